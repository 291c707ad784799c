"""The hash functions with which clients choose partitions. All take bytes and return an unsigned 32-bit number."""

from __future__ import annotations

import struct
from binascii import crc32
from functools import lru_cache

from pykclient.implementation import compiled

_compiled = compiled("producer")

_MASK = 0xFFFFFFFF
_MURMUR2_M = 0x5BD1E995
_MURMUR2_SEED = 0x9747B28C
_FNV1A_OFFSET = 0x811C9DC5
_FNV1A_PRIME = 0x01000193

#: Clears the sign bit, as Java's Utils.toPositive does.
POSITIVE = 0x7FFFFFFF

__all__ = ["POSITIVE", "crc32", "fnv1a", "murmur2", "murmur2_cached"]


def murmur2(data: bytes) -> int:
    """Return the MurmurHash2 of ``data`` with Kafka's seed (Java: Utils.murmur2, as an unsigned number)."""
    return murmur2_python(data) if _compiled is None or type(data) is not bytes else _compiled.murmur2(data)


def murmur2_python(data: bytes) -> int:
    """Return the same as ``murmur2``, for any bytes-like object."""
    length = len(data)
    hashed = _MURMUR2_SEED ^ length
    words = length >> 2
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _MURMUR2_M & _MASK
        hashed = (hashed * _MURMUR2_M & _MASK) ^ ((mixed ^ mixed >> 24) * _MURMUR2_M & _MASK)
    rest = length & 3
    if rest:
        hashed = (hashed ^ int.from_bytes(data[words << 2 :], "little")) * _MURMUR2_M & _MASK
    hashed = (hashed ^ hashed >> 13) * _MURMUR2_M & _MASK
    return hashed ^ hashed >> 15


#: ``murmur2`` with a cache of recent keys: real streams repeat keys, and a lookup is ten times cheaper. Use it for
#: short keys only, so that the cache stays below a megabyte.
murmur2_cached = lru_cache(maxsize=4096)(murmur2)


def fnv1a(data: bytes) -> int:
    """Return the FNV-1a hash without its sign, as librdkafka and Sarama do."""
    hashed = _FNV1A_OFFSET
    for byte in data:
        hashed = (hashed ^ byte) * _FNV1A_PRIME & _MASK
    return hashed if hashed <= POSITIVE else -hashed & _MASK
