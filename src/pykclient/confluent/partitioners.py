"""librdkafka's partitioners: functions of a key and the number of partitions."""

from __future__ import annotations

import random
from collections.abc import Callable
from zlib import crc32

from pykclient.producer.partitioner.hashing import POSITIVE, murmur2 as _murmur2

_FNV_PRIME = 0x01000193
_FNV_OFFSET = 0x811C9DC5


def _check(partition_count: int) -> None:
    if not isinstance(partition_count, int):
        raise TypeError(f"{type(partition_count).__name__!r} object cannot be interpreted as an integer")
    if partition_count <= 0:
        raise ValueError("partition_count must be > 0")


def consistent(key: bytes, partition_count: int) -> int:
    """Return the partition of ``key`` by CRC-32, as librdkafka's default partitioner computes it."""
    _check(partition_count)
    return crc32(key) % partition_count


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition of ``key`` by murmur2, as Java's default partitioner computes it."""
    _check(partition_count)
    if not isinstance(key, bytes):
        raise TypeError(f"a bytes-like object is required, not {type(key).__name__!r}")
    return (_murmur2(key) & POSITIVE) % partition_count


def fnv1a(key: bytes, partition_count: int) -> int:
    """Return the partition of ``key`` by FNV-1a, as Sarama computes it."""
    _check(partition_count)
    value = _FNV_OFFSET
    for byte in key:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    if value >= 0x80000000:  # a negative number in Sarama
        value = 0x100000000 - value
    return value % partition_count


def _consistent_random(key: bytes | None, partition_count: int) -> int | None:
    return crc32(key) % partition_count if key else None


def _murmur2_random(key: bytes | None, partition_count: int) -> int | None:
    return None if key is None else murmur2(key, partition_count)


def _fnv1a_random(key: bytes | None, partition_count: int) -> int | None:
    return None if key is None else fnv1a(key, partition_count)


def _random(_key: bytes | None, partition_count: int) -> int | None:
    return random.randrange(partition_count)


#: The partitioners by name. None stands for a partition that the inner producer chooses, and keeps for a whole batch.
PARTITIONERS: dict[str, Callable[[bytes | None, int], int | None]] = {
    "consistent": lambda key, partition_count: consistent(key or b"", partition_count),
    "consistent_random": _consistent_random,
    "fnv1a": lambda key, partition_count: fnv1a(key or b"", partition_count),
    "fnv1a_random": _fnv1a_random,
    "murmur2": lambda key, partition_count: murmur2(key or b"", partition_count),
    "murmur2_random": _murmur2_random,
    "random": _random,
}

#: Those that leave messages without a key to the inner producer.
KEYLESS_STICK = {"consistent_random", "fnv1a_random", "murmur2_random"}
