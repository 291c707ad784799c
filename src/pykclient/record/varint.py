"""Zigzag varints, as the fields of v2 records are written (Java: ByteUtils).

Encoding is a table look-up: ``VARINTS[n]`` is the encoding of any ``n``; those that batches are made of are kept once
they have been computed. Decoders inline the one- and two-byte cases and come here for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykclient.errors import CorruptRecordError, IllegalArgumentError

#: Numbers below have one or two bytes. All of their encodings together take less than a megabyte.
_KEPT = 8192
_MASK_64 = (1 << 64) - 1
_INT64_BOUND = 1 << 63


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed number of at most 64 bits.

    Raises:
        IllegalArgumentError: it has more.
    """
    if not -_INT64_BOUND <= value < _INT64_BOUND:
        raise IllegalArgumentError(f"{value} does not fit 64 bits")
    zigzag = (value << 1 ^ value >> 63) & _MASK_64
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


class Varints(dict[int, bytes]):
    """Encodings by number, of any number. Thread: any."""

    __slots__ = ()

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if 0 <= value < _KEPT:
            self[value] = encoded
        return encoded


VARINTS = Varints()


def size_of_varint(value: int) -> int:
    """How many bytes ``encode_varint(value)`` has."""
    zigzag = (value << 1 ^ value >> 63) & _MASK_64
    return (zigzag.bit_length() + 6) // 7 or 1


def rest_of_varint(data: Sequence[int], pos: int, low: int) -> tuple[int, int]:
    """The zigzag of an int32 with more than two bytes, and the position after it.

    ``low`` is what the first two bytes give when they are added up with the second's continuation bit left in.

    Raises:
        CorruptRecordError: more than five bytes.
        IndexError: the data ends inside.
    """
    zigzag, pos = _rest(data, pos, low, 28)
    return zigzag & 0xFFFFFFFF, pos


def rest_of_varlong(data: Sequence[int], pos: int, low: int) -> tuple[int, int]:
    """As ``rest_of_varint`` for an int64 of at most ten bytes."""
    zigzag, pos = _rest(data, pos, low, 63)
    return zigzag & _MASK_64, pos


def _rest(data: Sequence[int], pos: int, low: int, last_shift: int) -> tuple[int, int]:
    zigzag = low - 0x4000
    shift = 14
    while True:
        byte = data[pos]
        pos += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return zigzag, pos
        shift += 7
        if shift > last_shift:
            raise CorruptRecordError(f"a varint has more than {last_shift // 7 + 1} bytes")


def read_varint(data: Sequence[int], pos: int) -> tuple[int, int]:
    """The int32 that starts at ``pos`` and the position after it.

    Raises:
        CorruptRecordError: more than five bytes.
        IndexError: the data ends inside.
    """
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag += (data[pos] << 7) - 0x80
        pos += 1
        if zigzag > 0x3FFF:
            zigzag, pos = rest_of_varint(data, pos, zigzag)
    return zigzag >> 1 ^ -(zigzag & 1), pos
