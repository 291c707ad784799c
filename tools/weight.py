"""Print what the package weighs for those who read it: modules, lines of code, and files on the way of a record.

    python tools/weight.py [--source DIRECTORY]

The first table counts modules and lines of code, without blanks, comments and docstrings, and the mean length of a
function in such lines. The second one counts the calls of the package's Python functions during one steady call of a
client's method, and the files that they are in, in pure Python and with the compiled modules. Calls of compiled code
cannot be seen. Broker and client share the process; only the client's calls count, those of its threads included.
``--source`` is the ``src`` directory of another checkout, whose weight is then counted.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

_SOURCE = Path(__file__).resolve().parents[1] / "src"
_GENERATED = "protocol/messages"
_ROUNDS = 31
_Counts = dict[str, tuple[int, int]]


def code_lines(module: ast.AST, text: str) -> set[int]:
    """Return the numbers of the lines that hold code."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    filled = (number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#")
    return {number for number in filled if number not in docstrings}


def weigh(paths: Iterable[Path]) -> tuple[int, int, float]:
    """Return the number of modules, of lines of code, and the mean length of a function in such lines."""
    modules = lines = 0
    functions: list[int] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        module = ast.parse(text)
        code = code_lines(module, text)
        modules, lines = modules + 1, lines + len(code)
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                functions.append(sum(number in code for number in inside))
    return modules, lines, statistics.fmean(functions) if functions else 0.0


def print_sizes(source: Path) -> None:
    """Print the first table: each package, and all of them together."""
    package = source / "pykclient"
    generated = package / _GENERATED
    written = sorted(path for path in package.rglob("*.py") if generated not in path.parents)
    groups: dict[str, list[Path]] = {}
    for path in written:
        parts = path.relative_to(package).parts
        groups.setdefault(parts[0] if len(parts) > 1 else "(modules)", []).append(path)
    rows = {"all, written by hand": written, **dict(sorted(groups.items(), key=lambda group: -len(group[1])))}
    print("| | modules | lines of code | mean function |\n| --- | --- | --- | --- |")
    for name, paths in rows.items():
        modules, lines, mean = weigh(paths)
        print(f"| {name} | {modules:,} | {lines:,} | {mean:.1f} |")
    for name, paths in {"generated messages": sorted(generated.rglob("*.py"))}.items():
        modules, lines, mean = weigh(paths)
        print(f"| {name} | {modules:,} | {lines:,} | {mean:.1f} |")
    compiled = sorted(path for kind in ("*.pyx", "*.pxd") for path in package.rglob(kind))
    texts = (path.read_text(encoding="utf-8").splitlines() for path in compiled)
    lines = sum(bool(line.strip()) and line.lstrip()[0] != "#" for text in texts for line in text)
    print(f"| compiled (with docstrings) | {len(compiled)} | {lines:,} | - |")


class Calls:
    """Counts calls of the client's functions while ``recording``. Thread: any; a count lost to a race is noise."""

    def __init__(self) -> None:
        import pykclient

        self._package = str(Path(pykclient.__file__).parent) + os.sep
        self._cluster = self._package + "testing" + os.sep
        self.files: set[str] = set()
        self.calls = 0
        self.recording = False

    def watch(self) -> None:
        """Watch this thread, and all that start from now on."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    @staticmethod
    def unwatch() -> None:
        """End what ``watch`` began, for this thread and new ones."""
        threading.setprofile(None)
        sys.setprofile(None)

    def begin(self) -> None:
        self.files, self.calls, self.recording = set(), 0, True

    def end(self) -> tuple[int, int]:
        """Return the calls since ``begin``, and the files."""
        self.recording = False
        return self.calls, len(self.files)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self.recording:
            return
        file = frame.f_code.co_filename
        if file.startswith(self._package) and not file.startswith(self._cluster):
            self.calls += 1
            self.files.add(file)


def _middle(counts: list[tuple[int, int]]) -> tuple[int, int]:
    return int(statistics.median(calls for calls, _ in counts)), int(statistics.median(files for _, files in counts))


def _blocking(calls: Calls, servers: str) -> _Counts:
    from pykclient import KafkaConsumer, KafkaProducer

    def steady(call: Callable[[], Any], prepare: Callable[[], Any] = lambda: None) -> tuple[int, int]:
        counts = []
        for _ in range(_ROUNDS):
            prepare()
            calls.begin()
            call()
            counts.append(calls.end())
        return _middle(counts)

    found: _Counts = {}
    with KafkaProducer(bootstrap_servers=servers) as producer:
        found["send().get()"] = steady(lambda: producer.send("weight", b"value").get(30))
        consumer = KafkaConsumer(
            "weight",
            bootstrap_servers=servers,
            group_id="weight",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with consumer:
            while not consumer.poll(timeout_ms=1_000):
                pass
            found["poll, one fetch"] = steady(
                lambda: consumer.poll(timeout_ms=10_000), lambda: producer.send("weight", b"value").get(30)
            )
            found["commit()"] = steady(consumer.commit)
    return found


async def _asyncio(calls: Calls, servers: str) -> _Counts:
    from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer

    async def steady(call: Callable[[], Awaitable[Any]], prepare: Callable[[], Awaitable[Any]]) -> tuple[int, int]:
        counts = []
        for _ in range(_ROUNDS):
            await prepare()
            calls.begin()
            await call()
            counts.append(calls.end())
        return _middle(counts)

    found: _Counts = {}
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        found["aio send_and_wait"] = await steady(
            lambda: producer.send_and_wait("weight", b"value"), lambda: asyncio.sleep(0)
        )
        consumer = AIOKafkaConsumer("weight", bootstrap_servers=servers, auto_offset_reset="earliest")
        async with consumer:
            while not await consumer.getmany(timeout_ms=1_000):
                pass
            found["aio getmany"] = await steady(
                lambda: consumer.getmany(timeout_ms=10_000), lambda: producer.send_and_wait("weight", b"value")
            )
    return found


def count_calls() -> _Counts:
    """Return calls and files of one steady call of each kind, in the implementation of this process."""
    from pykclient.testing import EmbeddedCluster

    with EmbeddedCluster(brokers=1) as cluster:
        calls = Calls()
        calls.watch()
        try:
            found = _blocking(calls, cluster.bootstrap_servers)
            return found | asyncio.run(_asyncio(calls, cluster.bootstrap_servers))
        finally:
            calls.unwatch()


def _counted(implementation: str, source: Path) -> _Counts:
    environment = {**os.environ, "PYKCLIENT_IMPL": implementation, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--calls"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    counts: _Counts = json.loads(done.stdout)
    return counts


def main() -> None:
    """Print both tables, or with ``--calls`` the counts of one implementation as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=_SOURCE)
    parser.add_argument("--calls", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.calls:
        print(json.dumps(count_calls()))
        return
    print_sizes(arguments.source)
    pure, compiled = (_counted(name, arguments.source.resolve()) for name in ("python", "c"))
    print("\n| | pure: calls / files | compiled: calls / files |\n| --- | --- | --- |")
    for name in pure:
        print(f"| `{name}` | {pure[name][0]} / {pure[name][1]} | {compiled[name][0]} / {compiled[name][1]} |")


if __name__ == "__main__":
    main()
