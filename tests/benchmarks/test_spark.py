"""The Spark cases and the page that reports them, without measuring anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql.types import StructType

from benchmarks import goals, report, tables
from benchmarks.report import Place
from benchmarks.results import Line, Results, case_of
from benchmarks.spark.__main__ import home_without_zip, parse
from benchmarks.spark.cases import (
    BACKLOGS,
    CASES,
    FIGURES,
    GOALS,
    OURS,
    REFERENCE,
    ROWS_PER_TRIGGER,
    SINKS,
    SOURCES,
    TABLES,
)
from benchmarks.spark.empty_source import EmptySource
from benchmarks.spark.processes import Cpu, cpu
from benchmarks.spark.topics import BEGUN_MS, KEPT_OF, STEP_MS, kept_after_ms
from pykclient.spark.schema import COLUMNS
from tests.benchmarks.test_report import ABOUT
from tests.support.wait import eventually


def line(source: str, case: str, **figures: float) -> Line:
    return {"round": 0, "client": source, **case_of(CASES[case].bench), **figures}


def test_case_names_are_unique_and_compare_with_the_reference() -> None:
    assert len({case.bench for case in CASES.values()}) == len(CASES)
    for case in CASES.values():
        assert {REFERENCE, OURS} <= set(case.sources) <= set(SOURCES | SINKS)
    assert set(ROWS_PER_TRIGGER) <= set(CASES)


def test_goals_and_tables_name_only_cases_that_run() -> None:
    run = {(source, case.bench) for case in CASES.values() for source in case.sources}
    for goal in GOALS:
        for comparison in goal.comparisons:
            assert {(comparison.client, comparison.bench), (comparison.to, comparison.bench)} <= run, goal.id
            assert comparison.figure in FIGURES
    assert {row.bench for table in TABLES.values() for row in table.rows} <= {bench for _, bench in run}


def test_spark_goal_ids_differ_from_the_other_goals() -> None:
    ids = [goal.id for goal in (*goals.GOALS, *GOALS)]
    assert len(ids) == len(set(ids))


def test_the_filter_keeps_one_row_in_a_hundred() -> None:
    case = CASES["filter"]
    each = case.rows // case.bench.partitions
    after_ms = kept_after_ms(case.bench, case.rows)
    assert sum(BEGUN_MS + number * STEP_MS > after_ms for number in range(each)) * KEPT_OF == each


def test_the_page_compares_with_the_built_in_source() -> None:
    spark = Results(
        ABOUT,
        [
            line(OURS, "read", wall_s=1.0, cpu_us_per_record=1.0),
            line(REFERENCE, "read", wall_s=5.0, cpu_us_per_record=2.0),
            line(OURS, "write", wall_s=4.0, cpu_us_per_record=1.0),
            line(REFERENCE, "write", wall_s=5.0, cpu_us_per_record=0.8),
        ],
    )
    notes = "## spark-write\n\nWhat bounds it.\n"
    names = ("spark-run", "spark-goals", "spark-bounds", *TABLES)
    page = report.pages(Results(ABOUT, []), "\n\n".join(f"{{{{{name}}}}}" for name in names), notes, spark=spark)
    assert "| batch read, time: ≤ 0.28 of the built-in source | 0.200 (0.200 to 0.200) | met |" in page[""]
    assert "| batch write, time: ≤ 0.55 of the built-in source | 0.800 (0.800 to 0.800) | **not met** |" in page[""]
    assert "worst: batch write, 1 M x 100 B: ≤ 1 of the built-in source | 1.25" in page[""]
    assert "What bounds it." in page[""]
    assert "| batch read, 4 M x 100 B | 5.00 | 1.00 (0.200) |" in page[""]
    assert "### spark-read, 100 B, none, 4 partitions" in page["figures.md"]


def test_no_connections_meet_the_goal_of_none() -> None:
    (goal,) = [each for each in GOALS if each.id == "spark-backlog-connections"]
    for count in (0.0, 0.5):
        lines = [line(OURS, case, connections_per_trigger=count) for case in BACKLOGS]
        (verdict,) = goals.verdicts(Results(ABOUT, lines), [goal])
        assert (verdict.ratio.median, verdict.met) == (count, not count)


def test_tables_of_spark_are_empty_before_it_was_measured() -> None:
    for table in TABLES.values():
        assert tables.filled(Results(ABOUT, []), table).rows == []
    assert "Not measured" in report.pages(Results(ABOUT, []), "{{spark-time}}", "")[""]


def test_the_page_is_only_written_for_a_whole_run() -> None:
    assert parse([]).place == Place.of_repository()
    assert parse(["--rounds", "3"]).place == Place.of_repository()
    for words in (["--quick"], ["--cases", "read"], ["--option", "gcFreeze=false"], ["--conf", "a=b"], ["--unzipped"]):
        assert parse(words).place == Place.of_folder()


def test_the_source_without_kafka_reads_all_rows_in_micro_batches() -> None:
    source = EmptySource({"rows": "2500", "maxoffsetspertrigger": "1000"})
    reader = source.streamReader(StructType())
    sizes, start = [], reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        (batch,) = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        assert batch.schema.names == [name for name in COLUMNS if name != "headers"]
        sizes.append(batch.num_rows)
        start = end
    assert sizes == [1000, 1000, 500]
    assert start == reader.reportLatestOffset()


def test_spark_home_without_the_archive_is_complete_otherwise(tmp_path: Path) -> None:
    home = home_without_zip(tmp_path / "home")
    assert (home / "jars").is_dir()
    assert (home / "bin" / "spark-submit").is_file()
    (py4j,) = (home / "python" / "lib").iterdir()
    assert py4j.name.startswith("py4j")
    assert py4j.is_file()


#: A program with two children: the first works and ends, the second works and stays, like the program itself.
TREE = r"""
import subprocess, sys
burn = "while __import__('time').process_time() < {}: pass"
subprocess.run([sys.executable, "-c", burn.format(0.6)], check=True)
and_stay = "\nprint(flush=True); input()"
below = subprocess.Popen([sys.executable, "-c", burn.format(0.4) + and_stay], stdin=subprocess.PIPE)
exec(burn.format(0.2))
input()
below.communicate(b"\n")
"""


def test_child_processes_count_as_python() -> None:
    with subprocess.Popen([sys.executable, "-c", TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tree:
        assert tree.stdin is not None
        assert tree.stdout is not None
        tree.stdout.readline()  # the second child has done its work
        eventually(lambda: cpu(tree.pid, None).jvm_s >= 0.1)
        used = cpu(tree.pid, os.getpid())
        tree.communicate(b"\n")
    assert used.python_s >= 0.9
    assert used.broker_s > 0
    assert used.since(used) == Cpu(0, 0, 0)


#: A Python worker whose parent ends before it, below a process that keeps it.
ORPHAN = """
import os, subprocess, sys, time
from benchmarks.spark.processes import cpu, keep_orphans
keep_orphans()
worker = "import time\\nwhile time.process_time() < 0.4: pass"
daemon = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {worker!r}])"
jvm = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {daemon!r}]); print(flush=True); input()"
with subprocess.Popen([sys.executable, "-c", jvm], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
    started.stdout.readline()  # the daemon has ended
    end = time.monotonic() + 30
    while cpu(started.pid, None).python_s < 0.4 and time.monotonic() < end:
        pass
    print(cpu(started.pid, None).python_s)
    started.communicate(b"\\n")
"""


def test_workers_that_outlive_their_parent_count_as_python() -> None:
    command, root = [sys.executable, "-c", ORPHAN], Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, timeout=60)
    assert float(done.stdout) >= 0.4
