"""README.md: its programs run as they stand, apart from the broker's address, and its figures are the measured ones."""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

#: Lines that a program prints before it is ended, if it does not end by itself.
LINES = 3


class EnoughError(Exception):
    """The program has printed enough."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3) as running:
        with KafkaProducer[bytes, bytes](bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("flights", key=b"N14228", value=b"%d" % number)
        yield running


def printed_by(program: str, cluster: EmbeddedCluster) -> list[tuple[object, ...]]:
    """Run a program with the cluster's address; return the arguments of its calls of print."""
    printed: list[tuple[object, ...]] = []

    def print_(*values: object) -> None:
        printed.append(values)
        if len(printed) == LINES:
            raise EnoughError

    assert "localhost:9092" in program
    text = program.replace("localhost:9092", cluster.bootstrap_servers.split(",")[0])
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": {**vars(builtins), "print": print_}}
    with contextlib.suppress(EnoughError):
        exec(compile(text, "README.md", "exec"), names)
    return printed


def program_with(word: str) -> str:
    (found,) = [program for program in PROGRAMS if word in program]
    return str(found)


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ('compression_type="lz4"', 1),
        ("for record in consumer:\n        print", LINES),
        ("async with", LINES),
        pytest.param("poll_arrow", 1, marks=pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")),
    ],
)
def test_program_of_the_readme_prints(cluster: EmbeddedCluster, word: str, lines: int) -> None:
    program = program_with(word) if word != "for record in consumer:\n        print" else PROGRAMS[1]
    assert len(printed_by(program, cluster)) == lines


def test_application_test_of_the_readme_passes(cluster: EmbeddedCluster) -> None:
    names: dict[str, Any] = {}
    exec(program_with("pykclient_cluster"), names)
    test = names["test_orders_survive_a_broker"]
    assert [(mark.name, mark.kwargs) for mark in test.pytestmark] == [("pykclient_cluster", {"brokers": 3})]
    with EmbeddedCluster(3) as own:
        test(own)


def test_each_program_is_run_here_or_by_spark_tests() -> None:
    """The program with Spark runs in ``tests/examples/test_spark_examples.py``."""
    words = ('compression_type="lz4"', "for record in consumer:", "async with", "poll_arrow", "pykclient_cluster")
    others = [program for program in PROGRAMS if not any(word in program for word in words)]
    assert len(others) == 1
    assert "pykclient.spark" in others[0]


# --- figures ---------------------------------------------------------------------------------------------------------


def ratios(rows: str, column: int) -> dict[str, float]:
    """Return a column's ratios to confluent-kafka in the tables of performance.md, by row."""
    found: dict[str, float] = {}
    for line in PERFORMANCE.split("## Where another client is ahead")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.match(rows, cells[0]):
            found[cells[0]] = float(re.findall(r"\(([\d.]+)\)", cells[column])[0])
    return found


def test_speed_figures_equal_the_measurements() -> None:
    text = " ".join(README.split())
    assert "records of 100 bytes, batches of 64 KiB and otherwise both sides' defaults" in text
    assert "`send` and `poll` take less than half of the CPU per record" in text
    assert max(ratios(r"(produce|consume), 100 B, none, defaults", 1).values()) < 0.5
    assert "`send` takes 0.2 to 1.1 of it" in text
    produce = ratios(r"produce, (1|10) KB", 1)
    assert len(produce) == 6
    assert all(0.15 <= ratio < 1.15 for ratio in produce.values())
    ahead = {row for row, ratio in produce.items() if ratio > 1}
    assert ahead <= {"produce, 10 KB, lz4", "produce, 10 KB, zstd"}
    assert "`poll` takes 0.4 to 0.8" in text
    assert all(0.35 <= ratio < 0.85 for ratio in ratios(r"consume, (1|10) KB", 1).values())
