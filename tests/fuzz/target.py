"""A target of fuzzing: a function that must accept any bytes, and the inputs from which others are derived."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple


class Target(NamedTuple):
    """``run`` gets any bytes. It returns if they were read or refused as documented, and raises otherwise."""

    name: str
    run: Callable[[bytes], object]
    #: Returns valid inputs.
    seeds: Callable[[Random], Iterable[bytes]]
    #: The most bytes that a run may allocate for each byte of input, beside a constant.
    bytes_per_byte: int = 10


class Input:
    """Takes values from the front of fuzzed bytes. Missing bytes read as zeros. Thread: owner."""

    __slots__ = ("_data", "_pos")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def byte(self) -> int:
        return self.number(1)

    def number(self, size: int) -> int:
        """Return the next ``size`` bytes as an unsigned number."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big")

    def take(self, size: int) -> bytes:
        start, self._pos = self._pos, min(self._pos + size, len(self._data))
        return self._data[start : self._pos]

    def piece(self) -> bytes:
        """Return bytes whose length the next two bytes tell."""
        return self.take(self.number(2))

    def pieces(self) -> list[bytes]:
        """Return all pieces that are left."""
        found = []
        while self._pos < len(self._data):
            found.append(self.piece())
        return found

    def rest(self) -> bytes:
        return self.take(len(self._data))


def number(value: int, size: int = 1) -> bytes:
    """Encode a number for ``Input.number``."""
    return value.to_bytes(size, "big")


def pieces(*parts: bytes) -> bytes:
    """Encode pieces for ``Input.pieces``."""
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)
