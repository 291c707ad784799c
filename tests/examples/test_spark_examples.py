"""The Spark examples work: each in the session shared by all tests, and one as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import examples
from pykclient import KafkaProducer
from pykclient.testing import EmbeddedCluster
from tests.support.any_kafka import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(examples.__file__).parent
NO_EXAMPLES = {"spark_jobs"}

PARTITIONS = 3

#: Patterns for the lines of the output, by example.
EXPECTED = {
    "spark_batch": [
        r"2699 flights in three days",
        r"914 on the third, of 15 carriers",
        r"\w\w left \d+\.\d minutes late",
        r"\w\w left \d+\.\d minutes late",
        r"\w\w left \d+\.\d minutes late",
    ],
    "spark_streaming": [
        r"1785 flights in [3-9] micro-batches, to offsets \{.*\}",
        r"914 flights in [2-9] micro-batches, to offsets \{.*\}",
        r"1\d windows are complete; 0 rows are wrong or doubled",
    ],
    "spark_foreach_partition": [
        r"row by row: \{'cancelled': 4, 'late': \d+, 'on time': \d+\}",
        r"by columns: \{'cancelled': 4, 'late': \d+, 'on time': \d+\}, 842 in all",
    ],
}


def check(name: str, lines: list[str]) -> None:
    assert len(lines) == len(EXPECTED[name]), lines
    for pattern, line in zip(EXPECTED[name], lines, strict=True):
        assert re.fullmatch(pattern, line), (pattern, lines)


@pytest.mark.parametrize("name", EXPECTED)
def test_spark_example_prints_what_it_says(
    name: str, spark: SparkSession, any_kafka: AnyKafka, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    any_kafka.create_topic(topic, PARTITIONS)
    # A new session keeps the example's settings and views from the other tests.
    import_module(f"examples.{name}").main(spark.newSession(), any_kafka.bootstrap_servers, topic)
    check(name, capsys.readouterr().out.splitlines())


def test_program_of_the_readme_reads_a_topic(spark: SparkSession, topic: str) -> None:
    text = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "pykclient.spark" in block]
    with EmbeddedCluster() as cluster:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("flights", b"%d" % number)
        names: dict[str, Any] = {}
        exec(program.replace("localhost:9092", cluster.bootstrap_servers), names)
        assert names["spark"].sparkContext is spark.sparkContext
        read = names["flights"].writeStream.format("memory").queryName(topic.replace("-", "_"))
        started = read.trigger(availableNow=True).start()
        assert started.awaitTermination(120)
    assert started.exception() is None
    assert names["flights"].columns[:5] == ["key", "value", "topic", "partition", "offset"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_spark_example_as_it_is_run() -> None:
    """The example starts an embedded cluster and Spark by itself."""
    command = [sys.executable, "-m", "examples.spark_batch"]
    ended = subprocess.run(
        command, cwd=FOLDER.parent, env=dict(os.environ), capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    check("spark_batch", ended.stdout.splitlines())


def test_every_spark_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("spark_*.py")} - NO_EXAMPLES == EXPECTED.keys()
