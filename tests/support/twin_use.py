"""Find the test files that run code with a compiled twin; the others need no second run in pure Python.

    python -m tests.support.twin_use [DIRECTORY ...]

runs the files in pure Python and writes those that never came near such code into ``without_twins.txt``, which the
second run of ``make test`` leaves out. ``make test-full`` runs every file twice.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT / "src" / "pykclient"
WITHOUT_TWINS = Path(__file__).with_name("without_twins.txt")
_DEFAULT = ("tests/protocol", "tests/record", "tests/network", "tests/producer", "tests/consumer")


def twinned_modules() -> set[str]:
    """Return the paths of modules that choose between a compiled function and one in Python."""
    return {
        str(path)
        for path in _PACKAGE.rglob("*.py")
        if path.name != "implementation.py"
        and "cli" not in path.parts
        and "use_compiled(__name__)" in path.read_text(encoding="utf-8")
    }


class TwinUse:
    """A plugin of pytest that notes the test files which call functions of twinned modules. Thread: any."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.using: set[str] = set()
        self._modules = twinned_modules()
        self._current = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._current = item.nodeid.split("::", 1)[0]
        self.seen.add(self._current)
        self._watch(self._current not in self.using)
        try:
            return (yield)
        finally:
            self._watch(False)

    def _watch(self, on: bool) -> None:
        profile = self._called if on else None
        threading.setprofile(profile)
        sys.setprofile(profile)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename in self._modules:
            self.using.add(self._current)
            self._watch(False)


def main(arguments: list[str]) -> int:
    if os.environ.get("PYKCLIENT_IMPL") != "python":
        os.environ["PYKCLIENT_IMPL"] = "python"
        os.execv(sys.executable, [sys.executable, "-m", "tests.support.twin_use", *arguments])
    use = TwinUse()
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-m", "not java and not kafka and not slow", *(arguments or _DEFAULT)], [use]
    )
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        before = set(WITHOUT_TWINS.read_text(encoding="utf-8").split()) if WITHOUT_TWINS.exists() else set()
        without = (before - use.seen) | (use.seen - use.using)
        WITHOUT_TWINS.write_text("".join(f"{file}\n" for file in sorted(without)), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
