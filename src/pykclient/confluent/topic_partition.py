"""Partitions, ids and a consumer's membership in confluent-kafka's shape."""

from __future__ import annotations

import base64
import struct
from functools import total_ordering
from typing import Any

from pykclient.confluent.constants import OFFSET_INVALID
from pykclient.types import ConsumerGroupMetadata


@total_ordering  # keys may have members of enumerations, which have only <
class Keyed:
    """Base class of values that are compared and hashed by ``_key``, among those of their own class."""

    __slots__ = ()

    def _key(self) -> Any:
        raise NotImplementedError

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> Any:
        return self._key() == other._key() if isinstance(other, type(self)) else NotImplemented

    def __lt__(self, other: object) -> Any:
        return self._key() < other._key() if isinstance(other, type(self)) else NotImplemented


class TopicPartition(Keyed):
    """A partition with an offset; also with an error, in results.

    Equality, order and hash go by topic and partition alone.
    """

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        for value in (partition, offset):
            if not isinstance(value, int):
                raise TypeError(f"{type(value).__name__!r} object cannot be interpreted as an integer")
        if not isinstance(metadata, str | None):
            raise TypeError(f"argument 4 must be str, not {type(metadata).__name__}")
        if "\0" in topic or (metadata and "\0" in metadata):
            raise ValueError("embedded null character")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = None if leader_epoch is None or leader_epoch < 0 else leader_epoch
        self.error: Any = None

    def __repr__(self) -> str:
        error = "None" if self.error is None else f"{self.error}"
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={error}}}"
        )

    def _key(self) -> tuple[str, int]:
        return self.topic, self.partition

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.topic, self.partition, self.offset, self.metadata, self.leader_epoch)
        return TopicPartition, arguments, (None, {"error": self.error})


def wire_metadata(metadata: str | None) -> str:
    """Return the metadata of a commit as it is sent: with a null character at its end, as confluent-kafka sends it.

    So "" differs from None, which brokers store as "". And confluent-kafka reads metadata up to a null character.
    """
    return "" if metadata is None else f"{metadata}\0"


def metadata_of(sent: str) -> str | None:
    """Return the metadata of a committed offset as confluent-kafka shows it."""
    return sent.partition("\0")[0] if sent else None


class Uuid:
    """A 128-bit id, such as a topic's; its text is base64 without padding."""

    __slots__ = ("_least", "_most")

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        for value in (most_significant_bits, least_significant_bits):
            if not isinstance(value, int):
                raise TypeError(f"{type(value).__name__!r} object cannot be interpreted as an integer")
        self._most = most_significant_bits
        self._least = least_significant_bits

    def get_most_significant_bits(self) -> int:
        """Return the upper 64 bits, signed."""
        return self._most

    def get_least_significant_bits(self) -> int:
        """Return the lower 64 bits, signed."""
        return self._least

    def __repr__(self) -> str:
        data = self._most.to_bytes(8, "big", signed=True) + self._least.to_bytes(8, "big", signed=True)
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def __hash__(self) -> int:
        return self._most ^ self._least

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Uuid):
            return NotImplemented
        return (self._most, self._least) == (other._most, other._least)


_MAGIC = b"CGMDv2:"


def encoded_group_metadata(metadata: ConsumerGroupMetadata) -> bytes:
    """Return the membership as bytes."""
    parts = [_MAGIC, struct.pack("<i", metadata.generation_id)]
    parts += [(metadata.group_id or "").encode(), b"\0", metadata.member_id.encode(), b"\0"]
    instance = metadata.group_instance_id
    parts.append(b"\1" if instance is None else b"\0" + instance.encode() + b"\0")
    return b"".join(parts)


def group_metadata_of(given: Any) -> ConsumerGroupMetadata:
    """Return the membership that ``encoded_group_metadata`` has written.

    Raises:
        ValueError: these are other bytes.
        TypeError: these are no bytes.
    """
    if not isinstance(given, bytes):
        raise TypeError("expected consumer group metadata as bytes")
    try:
        if not given.startswith(_MAGIC):
            raise ValueError(given)
        start = len(_MAGIC) + 4
        (generation,) = struct.unpack("<i", given[len(_MAGIC) : start])
        group, member, rest = given[start:].split(b"\0", 2)
        instance = None if rest[:1] == b"\1" else rest[1:-1].decode()
        return ConsumerGroupMetadata(group.decode(), generation, member.decode(), instance)
    except (ValueError, struct.error):
        raise ValueError("Invalid consumer group metadata") from None
