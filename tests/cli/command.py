"""The command ``pykclient`` in this process, with its input and output in memory."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, NamedTuple

import pytest

# Imported before any client has a thread: pytest parses the sources that it imports, and CPython 3.11 fails if two
# threads parse at once.
from pykclient.cli.main import main


class Result(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    def lines(self) -> list[str]:
        return self.out.splitlines()


class Pykclient:
    """Runs commands. With ``servers``, they are added to each command."""

    def __init__(self, servers: str | None = None) -> None:
        self.servers = servers

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result:
        """Run a command; return its result, whatever its exit code."""
        out, err = io.BytesIO(), io.BytesIO()
        words = [*arguments, *([] if self.servers is None else ["-b", self.servers])]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patched.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
            patched.setattr(sys, "stderr", io.TextIOWrapper(err, write_through=True))
            code = main(words)
            sys.stdout.flush()
            printed, told = out.getvalue(), err.getvalue().decode()
        return Result(code, printed, told)

    def ok(self, *arguments: str, stdin: bytes = b"") -> Result:
        """Run a command that must succeed."""
        result = self(*arguments, stdin=stdin)
        assert result.code == 0, f"{result.code}: {result.err}"
        return result
