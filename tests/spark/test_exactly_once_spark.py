"""The exactly-once sink in Spark, on real Kafka: its processes are killed, and every row is committed exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.admin import Admin
from tests.kafka.ports import PortReservations
from tests.producer.test_transactions_on_kafka import committed_values
from tests.spark import builtin, session
from tests.spark.releases import needs_read_limits
from tests.spark.topics import numbers, produce
from tests.support.any_kafka import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000


def run_job(folder: Path, arguments: list[str], starts: int) -> list[int]:
    """Start the job until it ends, at most ``starts`` times. Return its exit codes."""
    codes: list[int] = []
    command = [sys.executable, "-m", "tests.spark.exactly_once_job"]
    while not codes or codes[-1] != 0:
        log = folder / f"{len(codes)}.log"
        with log.open("wb") as out:
            job = subprocess.Popen(
                [*command, str(folder), *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **session.environment(), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            try:
                codes.append(job.wait(600))
            finally:
                if job.returncode is None:
                    os.killpg(job.pid, signal.SIGKILL)
                    job.wait(10)
        assert codes[-1] in {0, -signal.SIGKILL}, log.read_text(errors="replace")[-6000:]
        assert len(codes) <= starts, codes
    return codes


def check_killed(
    kafka: AnyKafka, topic: str, folder: Path, mode: str, points: list[str], master: str = "local[2,4]"
) -> None:
    source, target = f"{topic}-source", f"{topic}-target"
    kafka.create_topic(source, 2)
    kafka.create_topic(target, 2)
    produce(kafka, source, {0: numbers(0, ROWS // 2), 1: numbers(ROWS // 2, ROWS // 2)})
    drivers = [point for point in points if not point.startswith(("task", "executor"))]
    arguments = [kafka.bootstrap_servers, source, target, mode, ",".join(points), master]
    codes = run_job(folder, arguments, 1 + len(drivers))
    assert len(codes) == 1 + len(drivers)
    assert all((folder / point).exists() for point in points)
    expected = sorted(text.encode() for text in numbers(0, ROWS))
    assert sorted(committed_values(kafka.bootstrap_servers, target, ROWS)) == expected  # confluent-kafka
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        assert admin.list_transactions(states=["Ongoing"], transactional_id_pattern=f"{target}.*") == []


@needs_read_limits
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_killed_workers_and_drivers_commit_each_row_once(kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    check_killed(kafka, topic, tmp_path, "driver", ["task-rows", "task-end", "ending"])


@needs_read_limits
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_killed_workers_and_drivers_repeat_no_committed_task(kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    check_killed(kafka, topic, tmp_path, "task", ["task-rows", "task-commit", "task-end", "deciding"])


@needs_read_limits
@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_driver_death_at_every_point_commits_each_row_once(kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    points = ["opened", "deciding", "decided", "ended", "done", "zombie"]
    check_killed(kafka, topic, tmp_path, "driver", points)


@needs_read_limits
@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_driver_death_at_every_point_repeats_no_committed_task(kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    check_killed(kafka, topic, tmp_path, "task", ["opened", "deciding", "ended", "done", "zombie"])


@pytest.fixture
def standalone_cluster(tmp_path: Path) -> Iterator[str]:
    """A cluster with two executors of one core, on two addresses: Spark never repeats a task on the same one."""
    import pyspark

    home = Path(pyspark.__path__[0])
    ports = PortReservations()
    port = ports.take()
    deploy, master = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
    worker = [
        "--port",
        "0",
        "--webui-port",
        "0",
        "--cores",
        "1",
        "--memory",
        "600m",
        "--work-dir",
        str(tmp_path),
        master,
    ]
    commands = [
        ("127.0.0.1", [f"{deploy}.master.Master", "--port", str(port), "--webui-port", "0"]),
        ("127.0.0.2", [f"{deploy}.worker.Worker", *worker]),
        ("127.0.0.3", [f"{deploy}.worker.Worker", *worker]),
    ]
    running = []
    try:
        for address, (main, *rest) in commands:
            with (tmp_path / f"{address}.log").open("wb") as log:
                process = subprocess.Popen(
                    [home / "bin" / "spark-class", main, "--host", address, *rest],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **session.environment(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": address},
                    start_new_session=True,
                )
            running.append(process)
        yield master
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)
        ports.close()


@needs_read_limits
@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["driver", "task"])
def test_speculative_attempts_commit_each_row_once(
    kafka: AnyKafka, topic: str, tmp_path: Path, standalone_cluster: str, mode: str
) -> None:
    """The first attempt has written all rows of its task, too, when Spark takes the speculative one."""
    source, target = f"{topic}-source", f"{topic}-target"
    kafka.create_topic(source, 3)
    kafka.create_topic(target, 2)
    produce(kafka, source, {number: numbers(100 * number, 100) for number in range(3)})
    command = [sys.executable, "-m", "tests.spark.speculative_job", str(tmp_path), standalone_cluster]
    done = subprocess.run(
        [*command, kafka.bootstrap_servers, source, target, mode],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, **session.environment()},
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert (tmp_path / "slow").exists()
    assert (tmp_path / "fast").exists()
    expected = sorted(text.encode() for text in numbers(0, 300))
    assert sorted(committed_values(kafka.bootstrap_servers, target, 300)) == expected
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        assert admin.list_transactions(states=["Ongoing"], transactional_id_pattern=f"{target}.*") == []


@needs_read_limits
@pytest.mark.spark
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["driver", "task"])
def test_killed_executors_commit_each_row_once(
    kafka: AnyKafka, topic: str, tmp_path: Path, standalone_cluster: str, mode: str
) -> None:
    """With all of their workers: in the middle of a task, and between its last row and its report."""
    check_killed(kafka, topic, tmp_path, mode, ["executor-rows", "executor-end"], standalone_cluster)


@needs_read_limits
@pytest.mark.spark
@pytest.mark.timeout(180)
def test_both_sources_read_only_committed_rows(
    spark: SparkSession, kafka: AnyKafka, topic: str, tmp_path: Path
) -> None:
    """Of streams of both modes, and of a batch query: all rows or nothing."""
    from pykclient.spark import KafkaDataSource

    spark.dataSource.register(KafkaDataSource)
    kafka.create_topic(topic, 2)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    sink = {**servers, "topic": topic, "delivery": "exactly-once", "ledgerTopic": f"{topic}-ledger"}
    rows = spark.range(0, 50, 1, 3).selectExpr("cast(id as string) as value")
    batch = rows.write.format("pykclient").options(**sink, transactionalIdPrefix=f"{topic}-batch").mode("append")
    batch.save()
    failing = rows.selectExpr("if(value = '40', raise_error('stop'), value) as value")
    with pytest.raises(Exception, match="stop"):
        failing.write.format("pykclient").options(**sink, transactionalIdPrefix=f"{topic}-batch").mode("append").save()
    source = spark.readStream.format("pykclient").options(**servers, subscribe=topic, startingOffsets="earliest")
    stream = (
        source.option("kafka.isolation.level", "read_committed")
        .load()
        .where("cast(value as string) not like 's%'")
        .selectExpr("concat('s', cast(value as string)) as value")
    )
    for mode, more in (("driver", {}), ("task", {"deterministicPartitioning": "true"})):
        query = stream.writeStream.format("pykclient").options(
            **sink, **more, exactlyOnceMode=mode, transactionalIdPrefix=f"{topic}-{mode}"
        )
        query = query.option("checkpointLocation", str(tmp_path / mode)).trigger(availableNow=True)
        query.start().awaitTermination()
    batch.save()
    expected = Counter(dict.fromkeys([*numbers(0, 50), *(f"s{text}" for text in numbers(0, 50))], 2))
    for name in ("pykclient", "kafka") if builtin.has_builtin() else ("pykclient",):
        read = spark.read.format(name).options(**servers, subscribe=topic)
        found = read.option("kafka.isolation.level", "read_committed").load().selectExpr("cast(value as string)")
        assert Counter(row.value for row in found.collect()) == expected, name
    assert Counter(value.decode() for value in committed_values(kafka.bootstrap_servers, topic, 200)) == expected
