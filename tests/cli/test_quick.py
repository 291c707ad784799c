"""A plain command line means the same with and without click."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykclient.cli import app, parameters, quick, reading, writing
from pykclient.cli.parameters import COMMON, TABLES, Parameter
from pykclient.cli.session import Session

#: A value of each option with a type of its own, and of some others. The rest takes any text.
SAMPLES = {
    "timeout": "1m",
    "delimiter": "\\t",
    "key_delimiter": ":",
    "timestamp": "2026-01-31T12:00",
    "start": "@1769860800000",
    "stop": "end",
    "set": "client.id=me",
    "header_patterns": "trace=4.*",
}


def sample(parameter: Parameter, file: str) -> str:
    if parameter.choices:
        return parameter.choices[-1]
    if parameter.path is not None:
        return file
    return SAMPLES.get(parameter.field, "x" if parameter.minimum is None else "3")


def lines(name: str, file: str) -> Iterator[list[str]]:
    """Yield command lines with each option, in each of its spellings."""
    yield [name, "orders"]
    yield [name, "orders", file]
    yield ["-b", "broker1:1,broker2:2", "--json", name, "orders", "-X", "client.id=me", "-X", "linger.ms=3"]
    for parameter in (*TABLES[name].options, *COMMON):
        text = sample(parameter, file)
        for option in [name for names in parameter.names for name in names.split("/")]:
            if parameter.is_flag:
                yield [name, option, "orders"]
                continue
            yield [name, "orders", option, text]
            if option.startswith("--"):
                yield [name, f"{option}={text}", "orders"]
            if parameter.is_repeated:
                yield [name, "orders", option, text, option, text]


Call = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What the commands were called with, instead of being run: their values, and the state of the session."""
    found: list[Call] = []

    def call(session: Session, **values: Any) -> None:
        state = {name: value for name, value in vars(session).items() if name != "on_level"}
        found.append((values, state))

    monkeypatch.setattr(writing, "produce", call)
    monkeypatch.setattr(reading, "consume", call)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_fast_path_and_click_parse_options_alike(name: str, calls: list[Call], tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x\n")
    for words in lines(name, str(file)):
        plain = quick.plain(words)
        assert plain is not None, words
        plain.run(Session())
        assert app.run(words, Session()) == 0
        here, there = calls[-2:]
        assert here == there, words


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "--version",
        "topics list",
        "consume",
        "consume --help",
        "consume orders --no-such-option",
        "consume orders --exit=yes",
        "consume orders -o -10",
        "consume orders -c",
        "consume orders -c 0",
        "consume orders -c many",
        "consume orders -p0",
        "consume orders -eJ",
        "consume orders --from yesterday",
        "consume orders -X linger.ms",
        "consume -- orders",
        "consume orders -O /",
        "produce",
        "produce orders /no/such/file",
        "produce orders --acks 2",
        "produce orders -F /no/such/file",
    ],
)
def test_fast_path_leaves_unusual_command_lines_to_click(line: str) -> None:
    found = quick.plain(line.split())
    if line == "consume orders -X linger.ms":  # a mistake that both find while the command runs
        assert found is not None
    else:
        assert found is None


def test_fast_path_leaves_completion_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PYKCLIENT_COMPLETE", "bash_complete")
    assert quick.plain(["consume", "orders"]) is None


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    rule = parameters.PathRule(exists=True)
    assert not rule.accepts(str(tmp_path))
    assert not rule.accepts(str(tmp_path / "none"))
    assert not rule.accepts("-")
    assert parameters.PathRule(is_written=True).accepts(str(tmp_path / "none"))


@pytest.mark.parametrize("line", ["consume orders -c 1", "produce orders"])
def test_fast_path_does_not_import_click_or_rich(line: str) -> None:
    program = f"""
import sys
from pykclient.cli.main import main
code = main([*{line!r}.split(), "-b", "localhost:1", "--timeout", "600ms", "-X", "fetch.max.wait.ms=100"])
print({{"click", "rich", "numpy", "pyarrow", "asyncio", "ssl", "inspect", "pathlib", "datetime"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], input="x\n", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr
