"""CPU of ``pykclient produce`` and ``consume`` beside kcat: ``python -m benchmarks.cli [--rounds 9]``.

A million lines of 100 bytes go from a file to a topic of one partition of a real Kafka, and back to a file: as they
are, as JSON, and as eight fields. So do 200,000 lines of 1 KB. The commands take turns, each in a process of its own,
whose start is included. The first of a million records alone, read and written, shows what the start costs. Both sides
run with their own defaults: batches of up to 1 MB on either side, fetches of up to 4 MB of a partition here and of 1 MB
in kcat. Needs kcat (a package of Debian). A run of nine rounds or more updates docs/performance.md; a shorter one goes
to build/benchmarks/.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import command, report, results
from benchmarks.cases import Bench
from benchmarks.cli_cases import (
    CONSUME,
    CONSUME_LARGE,
    FIGURE,
    FORMAT,
    FORMAT_LARGE,
    GOALS,
    JSON,
    JSON_LARGE,
    KCAT,
    OURS,
    PRODUCE,
    START_OF_CONSUME,
    START_OF_PRODUCE,
    TABLES,
)

#: How many lines there are of each size in bytes.
RECORDS = {100: 1_000_000, 1000: 200_000}
_FIELDS = r"%t %p %o %k %s %S %K %T\n"
#: The rounds of a run that updates the page.
_FULL_ROUNDS = 9


def commands(servers: str, folder: Path) -> Mapping[tuple[str, Bench], str]:
    """Return the command of each client and case."""
    pykclient = f"{sys.executable} -m pykclient"
    rows: dict[tuple[str, Bench], str] = {}

    def reads(bench: Bench, kcat_options: str = "", options: str = "", count: int | None = None) -> None:
        topic, most = topic_of(bench.size_bytes), count or RECORDS[bench.size_bytes]
        of_kcat = f"kcat -b {servers} -C -q -e -t {topic} -p 0 -o beginning -c {most} {kcat_options}"
        rows[KCAT, bench] = f"{of_kcat} > {folder / KCAT}-{bench.kind}"
        rows[OURS, bench] = (
            f"{pykclient} consume {topic} -c {most} -b {servers} {options} > {folder / OURS}-{bench.kind}"
        )

    lines, topic = folder / "100", topic_of(100)
    rows[KCAT, START_OF_PRODUCE] = f"head -1 {lines} | kcat -b {servers} -P -t {topic} -p 0"
    rows[OURS, START_OF_PRODUCE] = f"head -1 {lines} | {pykclient} produce {topic} -p 0 -b {servers}"
    rows[KCAT, PRODUCE] = f"kcat -b {servers} -P -t {topic} -p 0 -l {lines}"
    rows[OURS, PRODUCE] = f"{pykclient} produce {topic} {lines} -p 0 -b {servers}"
    reads(START_OF_CONSUME, count=1)
    for size in (CONSUME, CONSUME_LARGE):
        reads(size)
    for size in (JSON, JSON_LARGE):
        reads(size, "-J", "--json")
    for size in (FORMAT, FORMAT_LARGE):
        reads(size, f"-f '{_FIELDS}'", f"--format '{_FIELDS}'")
    return rows


def topic_of(size_bytes: int) -> str:
    """Return the topic that has lines of this size."""
    return f"lines-{size_bytes}"


def cpu_s(command: str) -> float:
    """Run a command in a shell; return the seconds of CPU that it took, with its start and its system calls."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, shell=True, check=True, timeout=120, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rounds: int) -> Iterator[results.Line]:
    """Yield the result of each run; report progress on stderr."""
    from tests.kafka.cluster import KafkaCluster

    with tempfile.TemporaryDirectory() as name, KafkaCluster(brokers=1) as cluster:
        folder = Path(name)
        for size_bytes, records in RECORDS.items():
            lines = b"".join(b"%0*d\n" % (size_bytes - 1, number) for number in range(records))
            (folder / str(size_bytes)).write_bytes(lines)
            cluster.create_topic(topic_of(size_bytes), 1)
        fill = f"kcat -b {cluster.bootstrap_servers} -P -t {topic_of(1000)} -p 0 -l {folder / '1000'}"
        subprocess.run(fill, shell=True, check=True, timeout=120)
        rows = commands(cluster.bootstrap_servers, folder)
        for turn in range(-1, rounds):  # the first one is to warm up
            for (client, bench), text in rows.items():
                seconds = cpu_s(text)
                if turn >= 0:
                    yield {"round": turn, "client": client, **results.case_of(bench), FIGURE: seconds}
            print(f"{turn + 1}/{rounds}", file=sys.stderr, flush=True)
        for kind in (CONSUME.kind, FORMAT.kind):
            assert Path(f"{folder / KCAT}-{kind}").read_bytes() == Path(f"{folder / OURS}-{kind}").read_bytes()


def about(rounds: int) -> dict[str, Any]:
    """Return the description of the run, with kcat's version."""
    printed = subprocess.run(["kcat", "-V"], check=True, capture_output=True, text=True).stdout
    version = next((line.split()[1] for line in printed.splitlines() if line.startswith("Version")), "?")
    described = command.about(rounds, ["pykclient"])
    return {**described, "versions": {**described["versions"], KCAT: version}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cli", description=__doc__)
    parser.add_argument("--rounds", type=int, default=_FULL_ROUNDS)
    rounds = parser.parse_args().rounds
    if shutil.which("kcat") is None:
        print("kcat is not installed", file=sys.stderr)
        return 1
    is_full = rounds >= _FULL_ROUNDS
    place = report.Place.of_repository() if is_full else report.Place.of_folder()
    results.write(place.cli_lines, about(rounds), measure(rounds))
    if is_full:
        report.render(place)
    report.show_own(place.cli_lines, TABLES, GOALS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
