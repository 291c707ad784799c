"""The hash functions with which clients choose partitions. All take bytes and return an unsigned 32-bit number."""

from __future__ import annotations

import struct
from binascii import crc32
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pykclient.errors import IllegalArgumentError
from pykclient.implementation import use_compiled
from pykclient.record.row_columns import UNCHOSEN

if TYPE_CHECKING:
    from pykclient.record.row_columns import BytesColumn

_MASK: Final = 0xFFFFFFFF
_FNV1A_OFFSET: Final = 0x811C9DC5
_FNV1A_PRIME: Final = 0x01000193
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C

#: Clears the sign bit, as Java's Utils.toPositive does.
POSITIVE: Final = 0x7FFFFFFF

__all__ = ["POSITIVE", "crc32", "fnv1a", "hash_partitions", "murmur2", "murmur2_cached"]


def murmur2(data: bytes) -> int:
    """Return the MurmurHash2 of bytes-like ``data`` with Kafka's seed (Java: Utils.murmur2, as an unsigned number)."""
    length = len(data)
    hashed = _SEED ^ length
    words = length >> 2
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ ((mixed ^ mixed >> 24) * _MULTIPLIER & _MASK)
    rest = length & 3
    if rest:
        hashed = (hashed ^ int.from_bytes(data[words << 2 :], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


@lru_cache(maxsize=4096)
def murmur2_cached(data: bytes) -> int:
    """Return ``murmur2`` from a cache of recent keys, where a lookup is ten times cheaper.

    Use it for short keys only, so that the cache stays below a megabyte.
    """
    return murmur2(data)


def fnv1a(data: bytes) -> int:
    """Return the FNV-1a hash without its sign, as librdkafka and Sarama do."""
    hashed = _FNV1A_OFFSET
    for byte in data:
        hashed = (hashed ^ byte) * _FNV1A_PRIME & _MASK
    return hashed if hashed <= POSITIVE else -hashed & _MASK


def hash_partitions(keys: BytesColumn | None, start: int, stop: int, count: int, numbers: memoryview) -> None:
    """Fill in the partitions of keyed rows without a partition in ``numbers``, a view of int32.

    Raises:
        IllegalArgumentError: ``count``, the number of partitions, is not positive.
    """
    if count < 1:
        raise IllegalArgumentError(f"a topic cannot have {count} partitions")
    if keys is None:
        return
    for row in range(start, stop):
        if numbers[row] == UNCHOSEN:
            key = keys[row]
            if key is not None:
                numbers[row] = (murmur2(key) & POSITIVE) % count


use_compiled(__name__)
