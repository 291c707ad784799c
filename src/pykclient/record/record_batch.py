"""The common parts of all batch formats: varints, CRC-32C, the record tuple, size estimates.

Encoding a varint is a table lookup: ``VARINTS[n]`` is the encoding of any ``n``. Encodings of the numbers that are
common in batches are cached once computed. Decoders inline the cases of one and two bytes, and call this module for the
others.

CRC-32C is the crc32c package's extension module without the package, whose ``__init__`` imports argparse and mmap for
its command line, and reads its version with importlib.metadata. That would be most of the time that ``import
pykclient.record`` takes; the extension module alone takes a third of a millisecond. If a later version keeps it
elsewhere, the package is imported as usual.

Java: RecordBatch, Record, Records, AbstractRecords and ByteUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, ClassVar, NamedTuple, Protocol, cast

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.record.compression import Compression, CompressionType
from pykclient.serialization import Buffer as Buffer
from pykclient.types import Header, Headers

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
    return encode_uvarint((value << 1 ^ value >> 63) & _MASK_64)


def encode_uvarint(number: int) -> bytes:
    """Return a number from 0 on in bytes of seven bits each, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class Varints(dict[int, bytes]):
    """A cache of varint encodings by number. Thread: any."""

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


def rest_of_varint(data: Sequence[int], pos: int, first: int) -> tuple[int, int]:
    """Return the zigzag of an int32 whose first byte, ``first``, is not its last, and the position after it.

    Raises:
        CorruptRecordError: it has more than five bytes.
        IndexError: the data ends inside it.
    """
    second = data[pos]
    if second < 0x80:
        return (first & 0x7F) | second << 7, pos + 1
    zigzag, pos = _rest(data, pos, first, 28)
    return zigzag & 0xFFFFFFFF, pos


def rest_of_varlong(data: Sequence[int], pos: int, first: int) -> tuple[int, int]:
    """Return the zigzag of an int64 of at most ten bytes, as ``rest_of_varint``."""
    second = data[pos]
    if second < 0x80:
        return (first & 0x7F) | second << 7, pos + 1
    zigzag, pos = _rest(data, pos, first, 63)
    return zigzag & _MASK_64, pos


def _rest(data: Sequence[int], pos: int, first: int, last_shift: int) -> tuple[int, int]:
    """Return the unsigned number whose first byte is ``first``, and the position after it."""
    number = first & 0x7F
    for shift in range(7, last_shift + 1, 7):
        byte = data[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, pos
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
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    return zigzag >> 1 ^ -(zigzag & 1), pos


MAGIC_VALUE_V0 = 0
MAGIC_VALUE_V1 = 1
MAGIC_VALUE_V2 = 2
CURRENT_MAGIC_VALUE = MAGIC_VALUE_V2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
#: The offset and size fields before every batch and every old message.
LOG_OVERHEAD = 12
#: The magic byte is at the same position in all formats.
MAGIC_OFFSET = 16
HEADER_SIZE_UP_TO_MAGIC = 17
RECORD_BATCH_OVERHEAD = 61
RECORD_OVERHEAD_V0 = 14
RECORD_OVERHEAD_V1 = 22
#: The maximum size of length, attributes, timestamp delta and offset delta of a record in format 2.
MAX_RECORD_OVERHEAD = 21
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1
#: The start and end of bytes in the data of a batch; None for null.
Span = tuple[int, int] | None


class Record(NamedTuple):
    """A record of a batch: absolute offset, timestamp in milliseconds, and key and value as bytes or None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


#: Called as ``deserializer(topic, headers, data)`` for data that is not None.
Deserializer = Callable[[str, Headers, bytes], Any]


class CursorOwner(NamedTuple):
    """The constant fields of a cursor's ConsumerRecords, and what makes the others.

    None as a deserializer means bytes. ``headers_type`` is called with the tuple of a record's headers.
    """

    topic: str
    partition: int
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    headers_type: type[tuple[Header, ...]] = tuple


class Cursor(Protocol):
    """A position in a batch that is read in steps; see ``RecordCursor``."""

    is_columnar: ClassVar[bool]
    next_offset: int
    bytes_read: int
    records_read: int
    exhausted: bool

    def next_records(self, max_records: int) -> list[Any]: ...


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number. 0 follows 2^31 - 1."""
    return sequence + increment & MAX_INT32


def decrement_sequence(sequence: int, decrement: int) -> int:
    return sequence - decrement & MAX_INT32


def _size_of_nullable(data: Buffer | None) -> int:
    return 1 if data is None else size_of_varint(len(data)) + len(data)


def size_of_headers(headers: Headers) -> int:
    """Return the encoded size of a record's headers with their count."""
    size = size_of_varint(len(headers))
    for name, value in headers:
        name_size = len(name) if name.isascii() else len(name.encode())
        size += size_of_varint(name_size) + name_size + _size_of_nullable(value)
    return size


def record_size(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
) -> int:
    """Return the encoded size of a record in format 2 with its length (Java: DefaultRecord.sizeInBytes)."""
    body = (
        1
        + size_of_varint(offset_delta)
        + size_of_varint(timestamp_delta)
        + _size_of_nullable(key)
        + _size_of_nullable(value)
        + size_of_headers(headers)
    )
    return size_of_varint(body) + body


def legacy_record_overhead(magic: int) -> int:
    return RECORD_OVERHEAD_V0 if magic == MAGIC_VALUE_V0 else RECORD_OVERHEAD_V1


def legacy_record_size(magic: int, key: Buffer | None, value: Buffer | None) -> int:
    """Return the size of a message in format 0 or 1, without offset and size field (Java: LegacyRecord.recordSize)."""
    return legacy_record_overhead(magic) + (0 if key is None else len(key)) + (0 if value is None else len(value))


def record_batch_overhead(magic: int, compression_type: CompressionType) -> int:
    """Return the bytes of a batch before its records: 61 in format 2, the wrapper's if old and compressed, else 0."""
    if magic >= MAGIC_VALUE_V2:
        return RECORD_BATCH_OVERHEAD
    if compression_type is not CompressionType.NONE:
        return LOG_OVERHEAD + legacy_record_overhead(magic)
    return 0


def estimate_size_in_bytes_upper_bound(
    magic: int,
    compression: Compression | CompressionType,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> int:
    """Return an upper bound of the size in bytes of a batch with only this record, without compression."""
    if magic >= MAGIC_VALUE_V2:
        size = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD + _size_of_nullable(key) + _size_of_nullable(value)
        return size + (size_of_headers(headers) if headers else 1)
    compression_type = compression if isinstance(compression, CompressionType) else compression.type
    return (
        LOG_OVERHEAD
        + legacy_record_size(magic, key, value)
        + (legacy_record_overhead(magic) if compression_type is not CompressionType.NONE else 0)
    )


def _load_crc32c() -> Callable[..., int]:
    package = find_spec("crc32c")
    if package is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            extension = module_from_spec(spec)
            spec.loader.exec_module(extension)
            if hasattr(extension, "crc32c"):
                return cast("Callable[..., int]", extension.crc32c)
    from crc32c import crc32c

    return crc32c


# For 32 KiB and more it would release the GIL. The computation takes microseconds, while getting the GIL back from a
# CPU-bound thread takes up to 5 ms.
crc32c: Callable[[Buffer], int] = partial(_load_crc32c(), gil_release_mode=0)
