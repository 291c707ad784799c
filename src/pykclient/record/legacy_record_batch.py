"""Messages in formats 0 and 1, and one as a batch of itself or of the messages it wraps.

Java: LegacyRecord, AbstractLegacyRecordBatch.

Each is preceded by its offset and size. It consists of a CRC-32 of the rest, magic, attributes, the timestamp (format
1), key and value.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, ClassVar, Final
from zlib import crc32

from pykclient.errors import CorruptRecordError, IllegalArgumentError, KafkaError
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, CompressionType, default_compression
from pykclient.record.default_record import deserialization_error
from pykclient.record.record_batch import (
    LOG_OVERHEAD,
    MAGIC_VALUE_V0,
    MAGIC_VALUE_V1,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_OVERHEAD_V0,
    Buffer,
    CursorOwner,
    Record,
    legacy_record_overhead,
)
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, ConsumerRecord

_OFFSET_AND_SIZE = Struct(">qi")
_CRC = Struct(">I")
_HEAD_V0 = Struct(">bb")
_HEAD_V1 = Struct(">bbq")
_SIZE = Struct(">i")
_CRC_SIZE = 4
_COMPRESSION_MASK = 0x07
_TIMESTAMP_TYPE_FLAG = 0x08


def encode_message(
    magic: int,
    offset: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    compression_type: CompressionType = CompressionType.NONE,
    timestamp_type: int = CREATE_TIME,
) -> bytes:
    """Encode one message with its offset and size. With a compression type, ``value`` is the compressed inner messages.

    Raises:
        IllegalArgumentError: a timestamp is below -1 or exceeds 64 bits, or a message in format 1 has no timestamp
            type.
    """
    if not 0 <= timestamp <= MAX_INT64 and timestamp != NO_TIMESTAMP:
        raise IllegalArgumentError(f"timestamp {timestamp} is negative or has more than 64 bits")
    attributes = compression_type.id
    if magic > MAGIC_VALUE_V0:
        if timestamp_type == NO_TIMESTAMP_TYPE:
            raise IllegalArgumentError("a message of format v1 needs a timestamp type")
        if timestamp_type == LOG_APPEND_TIME:
            attributes |= _TIMESTAMP_TYPE_FLAG
        head = _HEAD_V1.pack(magic, attributes, timestamp)
    else:
        head = _HEAD_V0.pack(magic, attributes)
    body = b"".join(
        (
            head,
            _SIZE.pack(-1 if key is None else len(key)),
            b"" if key is None else key,
            _SIZE.pack(-1 if value is None else len(value)),
            b"" if value is None else value,
        )
    )
    return _OFFSET_AND_SIZE.pack(offset, _CRC_SIZE + len(body)) + _CRC.pack(crc32(body)) + body


class LegacyRecord:
    """A decoded message in format 0 or 1 with its offset. Key and value are bytes or None.

    Thread: any.
    """

    __slots__ = ("_body", "attributes", "checksum", "key", "magic", "offset", "timestamp", "value")

    magic: int
    attributes: int

    def __init__(self, offset: int, message: Buffer) -> None:
        """Decode a message, which has at least ``RECORD_OVERHEAD_V0`` bytes.

        Raises:
            CorruptRecordError: the sizes do not fit.
        """
        data = bytes(message)
        self.offset = offset
        self.checksum: int = _CRC.unpack_from(data)[0]
        self._body = data[_CRC_SIZE:]
        self.magic, self.attributes = _HEAD_V0.unpack_from(self._body)
        if not 0 <= self.magic <= 1:
            raise CorruptRecordError(f"a message of format {self.magic} where v0 or v1 should be")
        if len(data) < legacy_record_overhead(self.magic):
            raise CorruptRecordError(f"a v{self.magic} message of {len(data)} bytes is smaller than the smallest")
        self.timestamp: int = NO_TIMESTAMP
        position = _HEAD_V0.size
        if self.magic > MAGIC_VALUE_V0:
            self.timestamp = _HEAD_V1.unpack_from(self._body)[2]
            position = _HEAD_V1.size
        self.key, position = self._sized(position)
        self.value, position = self._sized(position)

    def _sized(self, position: int) -> tuple[bytes | None, int]:
        body = self._body
        if len(body) - position < _SIZE.size:
            raise CorruptRecordError("a message ends before its value")
        size: int = _SIZE.unpack_from(body, position)[0]
        position += _SIZE.size
        if size < 0:
            return None, position
        if size > len(body) - position:
            raise CorruptRecordError(f"a key or value of {size} bytes in a message with {len(body) - position} left")
        return body[position : position + size], position + size

    @property
    def compression_type(self) -> CompressionType:
        return CompressionType.for_id(self.attributes & _COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> int:
        if self.magic == MAGIC_VALUE_V0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & _TIMESTAMP_TYPE_FLAG else CREATE_TIME

    @property
    def is_valid(self) -> bool:
        return self.checksum == crc32(self._body)

    def ensure_valid(self) -> None:
        """Check the CRC.

        Raises:
            CorruptRecordError: the stored CRC does not match the bytes.
        """
        computed = crc32(self._body)
        if computed != self.checksum:
            raise CorruptRecordError(
                f"the message at offset {self.offset} has CRC {self.checksum:#010x} but its bytes {computed:#010x}"
            )


def last_inner_offset(data: bytes) -> int | None:
    """Return the offset of the last message inside a wrapper (None if there is none), without decoding the others.

    Raises:
        CorruptRecordError: a size is invalid.
    """
    last = None
    for offset, _, _ in _places(data):
        last = offset
    return last


def _places(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield offset, start and end of the messages inside a wrapper. The last may be cut off, as old brokers did."""
    position = 0
    total = len(data)
    while total - position >= LOG_OVERHEAD:
        offset, size = _OFFSET_AND_SIZE.unpack_from(data, position)
        position += LOG_OVERHEAD
        if size < RECORD_OVERHEAD_V0:
            raise CorruptRecordError(f"a message of {size} bytes is smaller than the smallest, {RECORD_OVERHEAD_V0}")
        if size > total - position:
            return
        yield offset, position, position + size
        position += size


_OFFSET = Struct(">q")


class LegacyRecordBatch(LegacyRecord):
    """An outer message.

    ``buffer`` is exactly the message, with offset and size. Thread: any, as long as nothing writes to it.
    """

    __slots__ = ("buffer",)

    # Messages have no producers, transactions, epochs nor counts.
    count_or_none: Final[int | None] = None
    delete_horizon_ms: Final[int | None] = None
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH
    has_producer_id = is_transactional = is_control_batch = False
    base_sequence = last_sequence = NO_SEQUENCE
    partition_leader_epoch = NO_PARTITION_LEADER_EPOCH

    def __init__(self, buffer: memoryview) -> None:
        """Decode the outer message.

        Raises:
            CorruptRecordError: the sizes do not fit.
        """
        self.buffer = buffer
        super().__init__(_OFFSET.unpack_from(buffer)[0], buffer[LOG_OVERHEAD:])

    @property
    def size_in_bytes(self) -> int:
        return len(self.buffer)

    @property
    def last_offset(self) -> int:
        return self.offset

    @property
    def max_timestamp(self) -> int:
        return self.timestamp

    @property
    def is_compressed(self) -> bool:
        return self.compression_type is not CompressionType.NONE

    @property
    def base_offset(self) -> int:
        """The first record's offset. To find it, a wrapper must be decompressed."""
        first = self.first_record() if self.is_compressed else None
        return self.last_offset if first is None else first.offset

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    def ensure_valid(self) -> None:
        """Check the CRC and the offset.

        Raises:
            CorruptRecordError: the stored CRC does not match the bytes, or the offset is invalid.
        """
        super().ensure_valid()
        self.ensure_offsets_valid()

    def ensure_offsets_valid(self) -> None:
        """Check the offset in the header, which the CRC does not cover.

        Raises:
            CorruptRecordError: it is negative, or there is no offset after it.
        """
        if not 0 <= self.last_offset < MAX_INT64:
            raise CorruptRecordError(f"a message cannot have offset {self.last_offset}")

    def records(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> list[Record]:
        """Decode the record, or the records inside it, with absolute offsets.

        Raises:
            CorruptRecordError: they cannot be decoded, or an inner CRC is wrong. The outer one is not checked: call
                ``ensure_valid`` first.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        return list(self.stream(max_decompressed_bytes))

    def stream(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Yield the records one by one.

        Raises:
            CorruptRecordError, UnsupportedCompressionTypeError: as ``records``, when the bad record is reached.
        """
        if not self.is_compressed:
            yield Record(self.offset, self.timestamp, self.key, self.value)
            return
        if self.compression_type is CompressionType.ZSTD:
            raise CorruptRecordError(f"a message of format v{self.magic} cannot be compressed with zstd")
        if self.value is None:
            raise CorruptRecordError("a compressed message has no value")
        compression = default_compression(self.compression_type)
        data = compression.decompress(self.value, self.magic, max_decompressed_bytes)
        shift = self._shift_of_inner_offsets(last_inner_offset(data))
        log_append_time = self.timestamp if self.timestamp_type == LOG_APPEND_TIME else None
        for inner_offset, position, end in _places(data):
            message = LegacyRecord(inner_offset, data[position:end])
            if message.compression_type is not CompressionType.NONE:
                raise CorruptRecordError("a compressed message has a compressed message inside")
            message.ensure_valid()
            timestamp = message.timestamp
            if log_append_time is not None and message.magic == MAGIC_VALUE_V1:
                timestamp = log_append_time
            offset = inner_offset + shift
            if offset >= MAX_INT64:
                raise CorruptRecordError(f"a compressed message has a message with offset {offset} inside")
            yield Record(offset, timestamp, message.key, message.value)

    def _shift_of_inner_offsets(self, last: int | None) -> int:
        """Return the amount to add to inner offsets.

        Format 0 wraps absolute offsets; format 1 relative ones, in a wrapper with the last one's absolute offset
        (KIP-31).
        """
        if last is None:
            raise CorruptRecordError("a compressed message has no messages inside")
        # Some versions of librdkafka send 0 in the wrapper; then only the inner offsets are known.
        if self.magic != MAGIC_VALUE_V1 or self.last_offset == 0:
            return 0
        if self.last_offset < last:
            raise CorruptRecordError(f"a wrapper at offset {self.last_offset} has a message {last} inside")
        return self.last_offset - last

    def __iter__(self) -> Iterator[Record]:
        return self.stream()

    def first_record(self) -> Record | None:
        """Return the first record.

        Raises:
            CorruptRecordError, UnsupportedCompressionTypeError: as ``records``.
        """
        return next(self.stream(), None)

    def cursor(
        self,
        owner: CursorOwner,
        from_offset: int = 0,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> RecordIteratorCursor:
        """Return a cursor that reads the batch in steps, as ConsumerRecords, from ``from_offset`` on."""
        return RecordIteratorCursor(self.stream(max_decompressed_bytes), owner, from_offset, self.timestamp_type)

    def __repr__(self) -> str:
        return f"LegacyRecordBatch(magic={self.magic}, offset={self.last_offset}, size={self.size_in_bytes})"


class RecordIteratorCursor:
    """A cursor over an iterator of records, for old formats. Thread: owner."""

    is_columnar: ClassVar[bool] = False

    def __init__(self, records: Iterator[Record], owner: CursorOwner, from_offset: int, timestamp_type: int) -> None:
        self._records = records
        self._owner = owner
        self._timestamp_type = timestamp_type
        self._upcoming: Record | None = None
        self._failure: KafkaError | None = None
        self.next_offset = from_offset
        self.bytes_read = 0
        self.records_read = 0
        self.exhausted = False

    def next_records(self, max_records: int) -> list[ConsumerRecord[Any, Any]]:
        """Return more records, as ``RecordCursor.next_records``."""
        result: list[ConsumerRecord[Any, Any]] = []
        try:
            while len(result) < max_records:
                record = self._peek()
                if record is None:
                    self.exhausted = True
                    break
                if record.offset >= self.next_offset:
                    result.append(self._convert(record))
                    self.next_offset = record.offset + 1
                    self.bytes_read += len(record.key or b"") + len(record.value or b"")
                self._upcoming = None
        except KafkaError:
            if not result:
                raise
            # A signal handler may have raised when a record was in the list, but the cursor not past it yet.
            self.next_offset = result[-1].offset + 1
        self.records_read += len(result)
        return result

    def _peek(self) -> Record | None:
        """Return the next record to convert. A record whose conversion failed remains the next one."""
        if self._failure is not None:
            raise self._failure
        if self._upcoming is None:
            try:
                self._upcoming = next(self._records, None)
            except KafkaError as error:
                # A generator ends after an error, which must be raised again.
                self._failure = error
                raise
        return self._upcoming

    def _convert(self, record: Record) -> ConsumerRecord[Any, Any]:
        owner = self._owner
        offset, timestamp, key, value, headers = record
        part = "key"
        new_key: Any = key
        new_value: Any = value
        try:
            if owner.key_deserializer is not None and key is not None:
                new_key = owner.key_deserializer(owner.topic, headers, key)
            part = "value"
            if owner.value_deserializer is not None and value is not None:
                new_value = owner.value_deserializer(owner.topic, headers, value)
        except Exception as error:
            raise deserialization_error(owner, part, record, self._timestamp_type, None, error) from error
        return ConsumerRecord(
            owner.topic,
            owner.partition,
            None,
            offset,
            timestamp,
            self._timestamp_type,
            new_key,
            new_value,
            owner.headers_type(headers),
            None,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
