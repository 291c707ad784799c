"""A consumer's membership as bytes, in librdkafka's format."""

from __future__ import annotations

import struct
from typing import Any

from pykclient.types import ConsumerGroupMetadata

_MAGIC = b"CGMDv2:"


def encoded(metadata: ConsumerGroupMetadata) -> bytes:
    """Return the membership as bytes."""
    parts = [_MAGIC, struct.pack("<i", metadata.generation_id)]
    parts += [(metadata.group_id or "").encode(), b"\0", metadata.member_id.encode(), b"\0"]
    instance = metadata.group_instance_id
    parts.append(b"\1" if instance is None else b"\0" + instance.encode() + b"\0")
    return b"".join(parts)


def group_metadata_of(given: Any) -> ConsumerGroupMetadata:
    """Return the membership that ``encoded`` has written.

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
