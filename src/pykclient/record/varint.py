"""Zigzag varints, as used in records of format 2 (Java: ByteUtils).

Encoding is a table lookup: ``VARINTS[n]`` is the encoding of any ``n``. Encodings of the numbers that are common in
batches are cached once computed. Decoders inline the cases of one and two bytes, and call this module for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykclient.errors import CorruptRecordError, IllegalArgumentError

#: Lower numbers have one or two bytes. All their encodings together take less than a megabyte.
_KEPT = 8192
_MASK_64 = (1 << 64) - 1
_INT64_BOUND = 1 << 63


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of a signed number of at most 64 bits.

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
    """Encodings by number, for any number. Thread: any."""

    __slots__ = ()

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if 0 <= value < _KEPT:
            self[value] = encoded
        return encoded


VARINTS = Varints()


def size_of_varint(value: int) -> int:
    """Return the length of ``encode_varint(value)``."""
    zigzag = (value << 1 ^ value >> 63) & _MASK_64
    return (zigzag.bit_length() + 6) // 7 or 1


def rest_of_varint(data: Sequence[int], pos: int, low: int) -> tuple[int, int]:
    """Return the zigzag of an int32 with more than two bytes, and the position after it.

    ``low`` is the sum of the first two bytes, with the second's continuation bit included.

    Raises:
        CorruptRecordError: it has more than five bytes.
        IndexError: the data ends inside it.
    """
    zigzag, pos = _rest(data, pos, low, 28)
    return zigzag & 0xFFFFFFFF, pos


def rest_of_varlong(data: Sequence[int], pos: int, low: int) -> tuple[int, int]:
    """Return the zigzag of an int64 of at most ten bytes, as ``rest_of_varint``."""
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
    """Return the int32 that starts at ``pos``, and the position after it.

    Raises:
        CorruptRecordError: it has more than five bytes.
        IndexError: the data ends inside it.
    """
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag += (data[pos] << 7) - 0x80
        pos += 1
        if zigzag > 0x3FFF:
            zigzag, pos = rest_of_varint(data, pos, zigzag)
    return zigzag >> 1 ^ -(zigzag & 1), pos
