"""The demo accepts a correct result and rejects every kind of wrong one with exit code 1."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples import flights as demo
from examples.flights import DemoError, Flight, Tally
from pykclient.implementation import NAME
from tests.support.any_kafka import AnyKafka
from tests.support.twins import ROOT, compiled_modules, not_compiled_for_demo

COLUMNS = "year,carrier,tailnum,dep_delay,time_hour"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A year of six hundred flights, some of them cancelled or with an unknown aircraft."""
    source = random.Random(5)
    rows = [
        f"2013,{source.choice(['UA', 'AA', 'B6'])},{source.choice(['NA', *(f'N{n}' for n in range(40))])},"
        f"{source.choice(['NA', '-3', '0', '41'])},2013-01-01T{source.randrange(24):02}:00:00Z"
        for _ in range(600)
    ]
    path = tmp_path / "flights.csv"
    path.write_text("\n".join([COLUMNS, *rows]) + "\n", encoding="utf-8")
    return path


def tally(*flights: Flight) -> Tally:
    made = Tally()
    for flight in flights:
        made.add(flight.number, flight.carrier, flight.aircraft, flight.delay)
    return made


def flight(number: int, carrier: str = "UA", aircraft: str = "N1", delay: int | None = 5) -> Flight:
    return Flight(number, carrier, aircraft, delay, "2013-01-01T10:00:00Z")


def test_merged_tallies_equal_the_tally_of_one_reader() -> None:
    merged = tally(flight(0), flight(2, delay=None))
    merged.merge(tally(flight(1, "AA", "N2", -4)))
    merged.check(tally(flight(0), flight(1, "AA", "N2", -4), flight(2, delay=None)))
    assert merged.carriers == {"UA": [2, 1, 5], "AA": [1, 1, -4]}


@pytest.mark.parametrize(
    ("received", "message"),
    [
        ([flight(0)], "1 flights were read, the file has 2"),
        ([flight(0), flight(1), flight(1)], "3 flights were read"),
        ([flight(0), flight(1, "AA")], "AA: .* from the topic"),
        ([flight(0), flight(1, delay=6)], "UA: .* from the topic"),
        ([flight(1), flight(0)], "out of order, such as .'N1'"),
        ([flight(0), flight(0)], "lost, doubled"),
    ],
)
def test_a_wrong_answer_is_told(received: list[Flight], message: str) -> None:
    with pytest.raises(DemoError, match=message):
        tally(*received).check(tally(flight(0), flight(1)))


def test_an_aircraft_belongs_to_one_reader() -> None:
    with pytest.raises(DemoError, match="1 aircraft reached two readers, such as N1"):
        tally(flight(0)).merge(tally(flight(1)))


def test_a_file_that_is_missing_ends_in_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--file", "no-such-file.csv"]) == 1
    assert "no-such-file.csv" in capsys.readouterr().out


def test_demo_equals_a_direct_computation(any_kafka: AnyKafka, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = demo.main(["--bootstrap-servers", any_kafka.bootstrap_servers, "--file", str(file)])
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert "3 airlines: equal to a direct computation" in shown
    assert "40 aircraft: every flight once, in order" in shown


def test_the_whole_demo_fails_where_the_topic_is_wrong(
    any_kafka: AnyKafka, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = demo.write

    def write(producer: Any, topic: str, flights: Sequence[Flight], bar: Any, group: Any) -> None:
        honest(producer, topic, list(reversed(flights)), bar, group)

    monkeypatch.setattr(demo, "write", write)
    assert demo.main(["--bootstrap-servers", any_kafka.bootstrap_servers, "--file", str(file)]) == 1
    assert "out of order" in capsys.readouterr().out


def test_the_whole_demo_fails_where_a_reader_dies(
    any_kafka: AnyKafka, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = demo.write

    def write(producer: Any, topic: str, flights: Sequence[Flight], bar: Any, group: Any) -> None:
        next(iter(group.readers)).process.kill()
        honest(producer, topic, flights, bar, group)

    monkeypatch.setattr(demo, "write", write)
    assert demo.main(["--bootstrap-servers", any_kafka.bootstrap_servers, "--file", str(file)]) == 1
    assert "reader 1 ended with code -9" in capsys.readouterr().out


def is_in(name: str, folders: Sequence[str]) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def test_each_entry_that_make_demo_does_not_compile_has_compiled_modules() -> None:
    entries = not_compiled_for_demo()
    assert [entry for entry in entries if not any(is_in(name, [entry]) for name in compiled_modules())] == []


@pytest.mark.skipif(NAME != "c", reason="nothing compiled is in use")
def test_processes_of_the_demo_load_the_compiled_modules_that_make_demo_compiles(file: Path) -> None:
    command = [sys.executable, "-m", "examples.flights", "--file", str(file)]
    environment = {**os.environ, "PYTHONVERBOSE": "1"}  # each process tells its imports
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace", timeout=90, check=False
    )
    assert ended.returncode == 0, ended.stdout
    imported = re.findall(r"^import 'pykclient[.]([\w.]+)'", ended.stderr, re.MULTILINE)
    loaded = compiled_modules() & {name.replace(".", "/") for name in imported}
    assert loaded == {name for name in compiled_modules() if not is_in(name, not_compiled_for_demo())}
    assert imported.count("_system_time") == 1 + demo.READERS, "one of the processes was not seen"
