"""Loopback ports that stay reserved while a broker is down.

The ports are below the range of ephemeral ports; otherwise a client's connection could take the port of a stopped
broker. A lock file per port keeps concurrent test runs apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_RANGE = range(20_000, 32_000)


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections: it is bound, so that no other process gets it, and nothing listens there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class PortReservations:
    """Ports that no other test process takes until ``close``. Thread: owner."""

    def __init__(self) -> None:
        self._locks: list[IO[str]] = []
        self._folder = Path(tempfile.gettempdir(), f"pykclient-ports-{os.getuid()}")
        self._folder.mkdir(exist_ok=True)

    def take(self, port: int | None = None) -> int:
        """Reserve ``port``, or a free one. Raises OSError if that port (or every port tried) is in use."""
        if port is not None:
            if not self._try(port):
                raise OSError(f"port {port} of 127.0.0.1 is in use")
            return port
        for candidate in random.sample(_RANGE, 200):
            if self._try(candidate):
                return candidate
        raise OSError(f"no free port of 127.0.0.1 among 200 between {_RANGE.start} and {_RANGE.stop}")

    def take_two(self) -> int:
        """Reserve two neighbouring free ports; return the first. Raises OSError if all that were tried are in use."""
        for candidate in random.sample(_RANGE[:-1], 200):
            if self._try(candidate):
                if self._try(candidate + 1):
                    return candidate
                self._locks.pop().close()
        raise OSError("no two neighbouring ports of 127.0.0.1 are free among 200 that were tried")

    def _try(self, port: int) -> bool:
        file = Path(self._folder, str(port)).open("w")  # noqa: SIM115 - held until close()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            file.close()
            return False
        self._locks.append(file)
        return True

    def close(self) -> None:
        for file in self._locks:
            file.close()
        self._locks.clear()
