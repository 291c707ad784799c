"""MurmurHash2, with which Java's clients choose the partition of a key."""

from __future__ import annotations

import struct
from typing import Final

from pykclient.implementation import use_compiled

_MASK: Final = 0xFFFFFFFF
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


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


use_compiled(__name__)
