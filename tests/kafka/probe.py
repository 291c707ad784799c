"""A minimal client that asks one broker which brokers and partitions it knows.

It is independent of the client under test, and has no threads or retries.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

_METADATA, _VERSION = 3, 1


class PartitionState(NamedTuple):
    leader: int  # -1: none
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ClusterState(NamedTuple):
    brokers: dict[int, tuple[str, int]]
    controller: int
    topics: dict[str, dict[int, PartitionState]]  # no entry for a topic in error


def cluster_state(host: str, port: int, topics: Sequence[str] | None = None, timeout_s: float = 5.0) -> ClusterState:
    """Return Metadata v1 of ``topics`` (None: all) as this broker sees it. Raises OSError if it does not respond."""
    body = struct.pack(">i", -1 if topics is None else len(topics)) + b"".join(map(_string, topics or ()))
    frame = struct.pack(">hhi", _METADATA, _VERSION, 7) + _string("probe") + body
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as stream:
            size = stream.read(4)
            response = _Reader(stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else b"")
    if not response.frame:
        raise ConnectionError(f"{host}:{port} closed the connection")
    response.take(">i")
    brokers = {}
    for _ in range(response.take(">i")):
        broker, address = response.take(">i"), response.string()
        brokers[broker] = (address, response.take(">i"))
        response.string()
    controller = response.take(">i")
    found: dict[str, dict[int, PartitionState]] = {}
    for _ in range(response.take(">i")):
        error, name, _internal = response.take(">h"), response.string(), response.take(">b")
        partitions = {}
        for _ in range(response.take(">i")):
            _error, partition, leader = response.take(">h"), response.take(">i"), response.take(">i")
            partitions[partition] = PartitionState(leader, response.numbers(), response.numbers())
        if not error:
            found[name] = partitions
    return ClusterState(brokers, controller, found)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


class _Reader:
    """Reads fields from a response. Thread: owner."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self._at = 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.frame, self._at)
        self._at += struct.calcsize(form)
        return value

    def string(self) -> str:
        size = max(0, self.take(">h"))
        self._at += size
        return self.frame[self._at - size : self._at].decode()

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.take(">i") for _ in range(self.take(">i")))
