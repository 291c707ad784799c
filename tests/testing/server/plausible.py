"""Random requests that are almost valid: existing names, numbers around the limits, readable records."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from pykclient.protocol.headers import encode_request
from pykclient.protocol.message import ZERO_UUID, Message, Request as RequestMessage
from pykclient.record import MemoryRecordsBuilder
from tests.protocol.messages import FieldType, _can_be_written, field_types

TOPICS = ("t", "u", "new", "no such topic", "", "__consumer_offsets", "x" * 250)
TEXTS: dict[str, tuple[str, ...]] = {
    "topic": TOPICS,
    "topic_name": TOPICS,
    "name": (*TOPICS, "cleanup.policy", "range", "retention.ms"),
    "group_id": ("g", "h", ""),
    "group": ("g", "h", ""),
    "member_id": ("", "m", "unknown"),
    "protocol_type": ("consumer", "connect", ""),
    "key": ("g", "h", ""),
    "resource_name": ("t", "1", "2", "", "no such"),
    "entity_type": ("client-id", "user", "ip"),
    "value": ("compact", "delete", "-1", "100", "nonsense", ""),
}
OTHER_TEXTS = ("", "a", "1", "größe", "t")
SMALL = (0, 0, 0, 1, 1, 2, 3, -1, -2, 100)
NUMBERS: dict[str, tuple[int, ...]] = {
    "max_wait_ms": (0, 1, -1),
    "timeout_ms": (0, 1, 50, -1),
    "session_timeout_ms": (100, 6000, 0, -1),
    "rebalance_timeout_ms": (0, 50, -1),
    "acks": (0, 1, -1, 2),
    "max_bytes": (0, 1, 100_000, -1, (1 << 31) - 1),
    "partition_max_bytes": (0, 1, 100_000, -1, (1 << 31) - 1),
    "resource_type": (2, 4, 8, 16, 0, 77),
    "num_partitions": (1, 2, -1, 0, -2),
    "count": (2, 3, 0, -1, 1),
}


def _batch() -> bytes:
    builder = MemoryRecordsBuilder()
    for number in range(3):
        builder.append(1_700_000_000_000 + number, b"k", b"v%d" % number, ())
    return bytes(builder.build())


class Plausible:
    """Makes random requests from a seed. ``topic_ids`` are those of existing topics."""

    def __init__(self, random: Random, topic_ids: list[UUID]) -> None:
        self._random = random
        batch = _batch()
        damaged = bytearray(batch)
        damaged[random.randrange(len(batch))] ^= 1 << random.randrange(8)
        self._plain: dict[str, tuple[Any, ...]] = {
            "bool": (False, True),
            "float": (0.0, 1.0, -1.5, float("nan"), float("inf")),
            "bytes": (b"", b"\0\0\0\0\0\0\0\0", b"b" * 300),
            "BytesLike": (batch, batch, batch + batch, bytes(damaged), batch[:-1], b"", b"r" * 100),
            "UUID": (ZERO_UUID, UUID(int=7 << 100), *topic_ids, *topic_ids),
        }

    def request(self, cls: type[RequestMessage], version: int) -> bytes:
        """Return an encoded request."""
        message = self._message(cls, cls, version)
        assert isinstance(message, cls)
        client_id = self._random.choice(("fuzz", "", None))
        return encode_request(message, version, self._random.randrange(100), client_id).getvalue()

    def _message(self, cls: type[Message], top: type[Message], version: int) -> Message:
        message = cls()
        for name, kind in field_types(cls, top).items():
            default = getattr(message, name)
            setattr(message, name, self._value(name, kind, default, top, version))
            if not _can_be_written(message, version):
                setattr(message, name, default)
        return message

    def _value(self, name: str, kind: FieldType, default: Any, top: type[Message], version: int) -> Any:
        random = self._random
        if random.random() < 0.1:
            return None if kind.optional and kind.struct is None else default

        def element() -> Any:
            if kind.struct is not None:
                return self._message(kind.struct, top, version)
            return random.choice(self._choices(name, kind))

        return [element() for _ in range(random.choice((0, 1, 1, 1, 2, 3)))] if kind.is_array else element()

    def _choices(self, name: str, kind: FieldType) -> tuple[Any, ...]:
        sample = (kind.plain or [None])[0]
        if isinstance(sample, bool):
            return self._plain["bool"]
        if isinstance(sample, int):
            return NUMBERS.get(name, SMALL)
        if isinstance(sample, str):
            return TEXTS.get(name, OTHER_TEXTS)
        if isinstance(sample, float):
            return self._plain["float"]
        if isinstance(sample, UUID):
            return self._plain["UUID"]
        return self._plain["BytesLike" if name == "records" else "bytes"]
