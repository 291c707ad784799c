"""The hash functions with which clients choose partitions. All take bytes and return an unsigned 32-bit number."""

from __future__ import annotations

from binascii import crc32
from functools import lru_cache

from pykclient.producer.partitioner.murmur_hash import murmur2

_MASK = 0xFFFFFFFF
_FNV1A_OFFSET = 0x811C9DC5
_FNV1A_PRIME = 0x01000193

#: Clears the sign bit, as Java's Utils.toPositive does.
POSITIVE = 0x7FFFFFFF

__all__ = ["POSITIVE", "crc32", "fnv1a", "murmur2", "murmur2_cached"]


#: ``murmur2`` with a cache of recent keys: real streams repeat keys, and a lookup is ten times cheaper. Use it for
#: short keys only, so that the cache stays below a megabyte.
murmur2_cached = lru_cache(maxsize=4096)(murmur2)


def fnv1a(data: bytes) -> int:
    """Return the FNV-1a hash without its sign, as librdkafka and Sarama do."""
    hashed = _FNV1A_OFFSET
    for byte in data:
        hashed = (hashed ^ byte) * _FNV1A_PRIME & _MASK
    return hashed if hashed <= POSITIVE else -hashed & _MASK
