"""Java's assignors, run on many groups in one process."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from pykclient.consumer.coordinator import classic_rebalance
from pykclient.consumer.partition_assignors import Assignment
from pykclient.types import TopicPartition
from tests.consumer.assignors.groups import Group, encode
from tests.support.java import run_java

_SOURCE = Path(__file__).with_name("AssignorOracle.java")


class _Output:
    def __init__(self, received: bytes) -> None:
        self._received = received
        self._position = 0

    def take(self, count: int) -> bytes:
        self._position += count
        return self._received[self._position - count : self._position]

    def take_int(self) -> int:
        value: int = struct.unpack(">i", self.take(4))[0]
        return value

    def take_text(self) -> str:
        return self.take(struct.unpack(">H", self.take(2))[0]).decode()

    def take_bytes(self) -> bytes:
        return self.take(self.take_int())

    def end(self) -> None:
        assert self._position == len(self._received)


def assign_in_java(cases: Sequence[tuple[str, Group]]) -> Iterator[dict[str, list[TopicPartition]] | None]:
    """Yield the partitions of each member, in ascending order, for each assignor's name and group.

    None if Java's assignor fails with a NullPointerException.
    """
    sent = struct.pack(">i", len(cases)) + b"".join(encode(assignor, group) for assignor, group in cases)
    output = _Output(run_java(_SOURCE, "assign", stdin=sent, timeout_s=600))
    for _ in cases:
        count = output.take_int()
        assigned = {}
        for _ in range(count):
            member_id = output.take_text()
            assigned[member_id] = sorted(classic_rebalance.deserialize_assignment(output.take_bytes()).partitions)
        yield assigned if count >= 0 else None
    output.end()


def user_data_in_java(cases: Sequence[tuple[str, Sequence[TopicPartition], int]]) -> Iterator[bytes]:
    """Yield the user data that each assignor sends after it got these partitions in this generation."""
    parts = [struct.pack(">i", len(cases))]
    for assignor, partitions, generation_id in cases:
        data = classic_rebalance.serialize_assignment(Assignment(partitions))
        name = assignor.encode()
        parts += [struct.pack(">H", len(name)), name, struct.pack(">ii", generation_id, len(data)), data]
    output = _Output(run_java(_SOURCE, "user-data", stdin=b"".join(parts)))
    for _ in cases:
        yield output.take_bytes()
    output.end()
