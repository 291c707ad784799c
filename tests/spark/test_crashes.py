"""Workers and drivers that die: no row is lost or duplicated, and no secret is logged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import session
from tests.spark.releases import needs_read_limits
from tests.spark.topics import numbers, produce
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

SECRET = "n0b0dy-may-read-this"


@needs_read_limits
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_killed_workers_and_drivers_lose_and_repeat_nothing(kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    kafka.create_topic(topic, 2)
    produce(kafka, topic, {0: numbers(0, 50), 1: numbers(50, 150)})

    def start(output: Path) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "tests.spark.crashing_job",
            str(tmp_path),
            kafka.bootstrap_servers,
            topic,
            SECRET,
        ]
        with output.open("wb") as out:
            return subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **session.environment(), "PYTHONUNBUFFERED": "1"},  # one is killed
                start_new_session=True,
            )

    first, second = tmp_path / "first.log", tmp_path / "second.log"
    job = start(first)
    try:
        eventually(lambda: (tmp_path / "stuck").exists() or job.poll() is not None, 120.0, "the third micro-batch")
    finally:
        os.killpg(job.pid, signal.SIGKILL)  # with its JVM; workers end with that
        job.wait(10.0)
    assert (tmp_path / "stuck").exists(), first.read_text()
    assert (tmp_path / "died").exists()
    job = start(second)
    try:
        assert job.wait(120.0) == 0, second.read_text()
    finally:
        if job.returncode is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert f"FOUND {' '.join(numbers(0, 200))}\n" in second.read_text()

    events = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    checkpoint = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert len(events) >= 2
    assert checkpoint
    assert "Physical Plan" in first.read_text()
    kept = [first, second, *events, *checkpoint]
    leaks = [str(path.relative_to(tmp_path)) for path in kept if SECRET.encode() in path.read_bytes()]
    assert leaks == []
