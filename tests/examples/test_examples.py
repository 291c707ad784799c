"""Each example runs in a process of its own, as a reader would run it, and prints the documented output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import examples
from tests.support.any_kafka import AnyKafka

FOLDER = Path(examples.__file__).parent
TESTED_ELSEWHERE = {
    "fastapi_orders",
    "faststream_orders",
    "health",
    "exactly_once",
    "flights",
    "service",
    "two_phase_commit",
}
NO_EXAMPLES = {"__init__", "clusters", "options"}

WARNS = {"callbacks_and_errors"}  # logs warnings about an invalid topic

PARTITIONS = 3

#: Patterns for the lines of the output, by example. Partitions respond in any order.
EXPECTED = {
    "asyncio_consumer": [
        r"interrupted after \d+ records",
        r"300 records were processed, [1-9]\d* of them twice",
    ],
    "asyncio_producer": [
        r"1000 records acknowledged, the last at .*-\d",
        r"the loop was free meanwhile",
    ],
    "callbacks_and_errors": [
        r"on_delivery: .*-\d at offset 0",
        r"callback: offset \d",
        r"on_delivery: RecordTooLargeError",
        r"too large: .*max\.request\.size = 10000.*",
        r"serialization: .* because of TypeError\('Object of type set is not JSON serializable'\)",
        r"no such partition: partition 1000 of topic .* not in metadata after 2\.0 s: it has 3.*",
        r"refused: InvalidTopicError, retriable: False",
    ],
    "json_values": [
        r"\w\w: \d+ left -?\d minutes late",
        r"\w\w: \d+ left -?\d minutes late",
        r"\w\w: \d+ left -?\d minutes late",
        r".*-\d has no JSON at offset \d: b'\{not json'",
    ],
    "manual_commits": [
        r"assigned: .*",
        r"assigned: .*",
        r"\d+ and \d+ records, [1-9]\d* of them twice",
        r"every record was read",
    ],
    "partitioner_and_interceptor": [
        r"urgent records are in partitions \[0\]",
        r"the others are in partitions \[1, 2\]",
        r"interceptor: 10 in partition 0, 0 without a response",
    ],
    "quickstart_producer": [r"acknowledged at offset 99"],
    "replay_by_time": [r"6 records since 18:00: 18:00, 19:00, 20:00, 21:00, 22:00, 23:00"],
}


def run(name: str, any_kafka: AnyKafka, topic: str) -> list[str]:
    command = [sys.executable, "-W", "error", "-m", f"examples.{name}"]
    command += ["--bootstrap-servers", any_kafka.bootstrap_servers, "--topic", topic]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    ended = subprocess.run(
        command, cwd=FOLDER.parent, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert name in WARNS or not ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize("name", EXPECTED)
def test_example_prints_what_it_says(name: str, any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, PARTITIONS)
    lines = run(name, any_kafka, topic)
    for pattern in EXPECTED[name]:
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    assert len(lines) == len(EXPECTED[name]), lines


def test_quickstart_writes_and_reads(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, PARTITIONS)
    run("quickstart_producer", any_kafka, topic)
    lines = run("quickstart_consumer", any_kafka, topic)
    assert [line.split()[1] for line in lines] == [str(offset) for offset in range(100)]
    assert lines[-1].endswith("b'N14228' b'the last one'")
    assert run("quickstart_consumer", any_kafka, topic) == []  # the group continues after the records that it has read


def test_every_example_is_tested() -> None:
    """Every example has a test; test_spark_examples.py tests those of Spark."""
    names = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("spark_")}
    names -= NO_EXAMPLES | TESTED_ELSEWHERE
    assert names == EXPECTED.keys() | {"quickstart_consumer"}
