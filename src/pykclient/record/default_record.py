"""Records in format 2: encoding, decoding, and reading them in steps (Java: DefaultRecord).

A record consists of its length, attributes (0), timestamp delta, offset delta, key, value, and headers. All numbers are
zigzag varints; the length -1 is null.

``read_record`` is the only reader: of lists of records, of a consumer's records (``RecordCursor``), of columns, and of
a broker's checks. It indexes `bytes`, for which the records of a batch are copied once; that costs a hundredth of what
indexing a memoryview would. Nothing is checked before it is read: reading stays inside ``data`` whatever the numbers
are, and a record that does not end exactly where its length says is corrupt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from pykclient.errors import (
    CorruptRecordError,
    IllegalArgumentError,
    KafkaError,
    RecordDeserializationError,
    reason_and_advice,
)
from pykclient.implementation import use_compiled
from pykclient.record.record_batch import (
    NO_TIMESTAMP,
    VARINTS,
    Buffer,
    CursorOwner,
    Record,
    Span,
    read_varint,
    rest_of_varint,
    rest_of_varlong,
)
from pykclient.serialization import definition_of
from pykclient.types import ConsumerRecord, Header, Headers, TopicPartition


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of a record: their number, then names and values.

    Raises:
        IllegalArgumentError: a name is not a string.
    """
    varints = VARINTS
    parts = [varints[len(headers)]]
    for name, value in headers:
        if not isinstance(name, str):
            raise IllegalArgumentError(f"a header's name must be a string, not {type(name).__name__}")
        encoded = name.encode()
        parts += (varints[len(encoded)], encoded)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (varints[len(value)], value)
    return b"".join(parts)


def read_headers(data: bytes, pos: int, end: int) -> tuple[tuple[Header, ...], int]:
    """Decode the headers that start at ``pos`` with their count; return them and the position after them.

    Raises:
        CorruptRecordError: they do not end before ``end``.
        IndexError: the data ends inside them.
    """
    count, pos = read_varint(data, pos)
    # A header has at least two bytes.
    if not 0 <= count <= (end - pos) // 2:
        raise CorruptRecordError(f"a record with {end - pos} bytes left cannot have {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        size, pos = read_varint(data, pos)
        if not 0 <= size <= end - pos:
            raise CorruptRecordError(f"a header's name of {size} bytes in a record with {end - pos} bytes left")
        try:
            name = data[pos : pos + size].decode()
        except UnicodeDecodeError:
            # As in Java, a name that is not UTF-8 does not make the record unreadable.
            name = data[pos : pos + size].decode(errors="replace")
        size, pos = read_varint(data, pos + size)
        if size < 0:
            headers.append((name, None))
            continue
        if size > end - pos:
            raise CorruptRecordError(f"a header's value of {size} bytes in a record with {end - pos} bytes left")
        headers.append((name, data[pos : pos + size]))
        pos += size
    return tuple(headers), pos


def size_mismatch(excess: int) -> CorruptRecordError:
    return CorruptRecordError(f"a record's fields do not fill its length: they end {excess} bytes after it")


def ended_early() -> CorruptRecordError:
    return CorruptRecordError("a batch ends inside a record, or before the last")


def bytes_remain(remaining: int, count: int) -> CorruptRecordError:
    return CorruptRecordError(f"{remaining} bytes are left after the {count} records of a batch")


#: Timestamp delta, offset delta, key, value, headers, and the position after the record.
RecordFields = tuple[int, int, Span, Span, tuple[Header, ...], int]


def read_record(data: bytes, pos: int) -> RecordFields:
    """Read the record at ``pos``. Numbers of one byte are read without a call, which takes longer than all the rest.

    Raises:
        CorruptRecordError: the record cannot be decoded.
        IndexError: the data ends inside it.
    """
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    end = pos + (zigzag >> 1)
    is_negative = zigzag & 1
    zigzag = data[pos + 1]  # after the attributes, none of which are defined
    pos += 2
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varlong(data, pos, zigzag)
    timestamp_delta = zigzag >> 1 ^ -(zigzag & 1)
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    offset_delta = zigzag >> 1 ^ -(zigzag & 1)
    key = value = None
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    if not zigzag & 1:
        start = pos
        pos += zigzag >> 1
        key = (start, pos)
    zigzag = data[pos]
    pos += 1
    if zigzag > 0x7F:
        zigzag, pos = rest_of_varint(data, pos, zigzag)
    if not zigzag & 1:
        start = pos
        pos += zigzag >> 1
        value = (start, pos)
    headers: tuple[Header, ...] = ()
    if data[pos]:
        headers, pos = read_headers(data, pos, end)
    else:
        pos += 1
    if pos != end or is_negative:
        raise size_mismatch(pos - end)
    return timestamp_delta, offset_delta, key, value, headers, pos


def decode_records(
    data: bytes, pos: int, count: int, base_offset: int, base_timestamp: int
) -> tuple[list[Record], int]:
    """Decode ``count`` records from ``pos`` on; return them and the position after them.

    Raises:
        CorruptRecordError: they cannot be decoded.
    """
    records: list[Record] = []
    append, new_tuple = records.append, tuple.__new__
    try:
        for _ in range(count):
            timestamp_delta, offset_delta, key_span, value_span, headers, pos = read_record(data, pos)
            key = None if key_span is None else data[key_span[0] : key_span[1]]
            value = None if value_span is None else data[value_span[0] : value_span[1]]
            append(
                new_tuple(Record, (base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, headers))
            )
    except IndexError:
        raise ended_early() from None
    return records, pos


class RecordsSummary(NamedTuple):
    """The properties of a batch's records that a broker checks.

    Records without a timestamp do not count for the two timestamps, which are -1 if no record has one.
    """

    min_timestamp: int
    max_timestamp: int
    all_have_keys: bool
    offsets_follow: bool
    """True if the offset deltas are 0, 1, 2 and so on."""


def summarize_records(data: bytes, count: int, base_timestamp: int) -> RecordsSummary:
    """Check that ``data`` is exactly ``count`` records.

    Raises:
        CorruptRecordError: it is not.
    """
    min_timestamp = max_timestamp = NO_TIMESTAMP
    all_have_keys = offsets_follow = True
    pos = 0
    try:
        for expected in range(count):
            timestamp_delta, offset_delta, key, _, _, pos = read_record(data, pos)
            timestamp = base_timestamp + timestamp_delta
            max_timestamp = max(max_timestamp, timestamp)
            if timestamp != NO_TIMESTAMP and (min_timestamp == NO_TIMESTAMP or timestamp < min_timestamp):
                min_timestamp = timestamp
            all_have_keys = all_have_keys and key is not None
            offsets_follow = offsets_follow and offset_delta == expected
    except IndexError:
        raise ended_early() from None
    if pos != len(data):
        raise bytes_remain(len(data) - pos, count)
    return RecordsSummary(min_timestamp, max_timestamp, all_have_keys, offsets_follow)


def deserialization_error(
    owner: CursorOwner, part: str, record: Record, timestamp_type: int, epoch: int | None, error: Exception
) -> RecordDeserializationError:
    """Return the error of a deserializer of ``owner``; ``part`` of ``record`` is the key or the value."""
    offset, timestamp, key, value, headers = record
    topic_partition = TopicPartition(owner.topic, owner.partition)
    deserializer = owner.key_deserializer if part == "key" else owner.value_deserializer
    assert deserializer is not None
    return RecordDeserializationError(
        f"the {part} of the record at offset {offset} of {topic_partition} cannot be deserialized by "
        f"{definition_of(deserializer)}: {reason_and_advice(error, offset)}",
        topic_partition,
        offset,
        part,
        ConsumerRecord(
            owner.topic,
            owner.partition,
            epoch,
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            headers,
            None,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        ),
    )


#: Base offset, base time, time of the append or None, kind of time, and epoch or None.
CommonFields = tuple[int, int, int | None, int, int | None]


class BatchOfRecords(Protocol):
    """The part of a DefaultRecordBatch that a cursor reads."""

    @property
    def count(self) -> int: ...
    @property
    def common_fields(self) -> CommonFields: ...
    def record_view(self, max_decompressed_bytes: int = ...) -> bytes | memoryview: ...


class RecordCursor:
    """A position in a batch of format 2.

    ``next_records`` decodes, deserializes and creates ConsumerRecords in one loop.

    A record that cannot be decoded or deserialized stops it: the records before it are returned first, and the next
    call raises the error. So does every later call, unless the deserializer succeeds then (Java: CompletedFetch).

    ``next_offset`` is the offset after the last returned record, or the start. So a failing record is at
    ``next_offset`` or, after a gap, later; the RecordDeserializationError has its exact offset. ``records_read`` and
    ``bytes_read`` count the returned records and their (uncompressed) bytes.

    Thread: owner.
    """

    is_columnar: ClassVar[bool] = False

    def __init__(
        self,
        batch: BatchOfRecords,
        owner: CursorOwner,
        from_offset: int,
        max_decompressed_bytes: int,
        data: Buffer | None = None,
    ) -> None:
        """Begin at the first record of ``batch`` whose offset is not below ``from_offset``.

        ``data`` is the batch's decompressed records, if they are known; otherwise the first call gets them.

        Raises:
            CorruptRecordError: the number of records in the header is negative.
        """
        self._batch = batch
        self._owner = owner
        self._limit = max_decompressed_bytes
        self._data: bytes | None = None if data is None else bytes(data)
        self._common_fields = batch.common_fields
        self._pos = 0
        self._remaining = batch.count
        self.next_offset = from_offset
        self.bytes_read = 0
        self.records_read = 0
        self.exhausted = self._remaining == 0

    def next_records(self, max_records: int) -> list[ConsumerRecord[Any, Any]]:
        """Return at most ``max_records`` more records.

        There are fewer only at the end of the batch or before a failing record, and none if the cursor is
        ``exhausted``.

        Raises:
            CorruptRecordError: the next record cannot be decoded.
            RecordDeserializationError: the next record cannot be deserialized.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        records: list[ConsumerRecord[Any, Any]] = []
        if self.exhausted or max_records <= 0:
            return records
        records_read = self.records_read
        try:
            self._decode(max_records, records)
        except IndexError:
            if not records:
                raise ended_early() from None
        except KafkaError:
            # The second: an error of a signal handler, which has struck before the cursor moved past the records.
            if not records or self.records_read - records_read != len(records):
                raise
        if self.exhausted:
            self._data = b""
        return records

    def _decode(self, max_records: int, records: list[ConsumerRecord[Any, Any]]) -> None:
        """Append the next records to ``records``. After each record the state is consistent.

        The state is written back once, in ``finally``: the locals change only when a record is complete.

        Raises:
            CorruptRecordError: a record cannot be decoded.
            IndexError: the batch ends inside a record.
            RecordDeserializationError: a record cannot be deserialized.
        """
        data = self._data
        if data is None:
            self._data = data = bytes(self._batch.record_view(self._limit))
        owner = self._owner
        topic, partition, deserialize_key, deserialize_value, headers_type = owner
        base_offset, base_timestamp, log_append_time, timestamp_type, epoch = self._common_fields
        append = records.append
        next_offset = self.next_offset
        remaining = self._remaining
        total = len(data)
        # The start of the next record to return.
        begin = pos = self._pos
        bytes_read = 0
        records_before = len(records)
        try:
            while max_records and remaining:
                timestamp_delta, offset_delta, key_span, value_span, headers, pos = read_record(data, pos)
                if headers_type is not tuple:
                    headers = headers_type(headers)
                if remaining == 1 and pos != total:
                    raise bytes_remain(total - pos, self._batch.count)
                offset = base_offset + offset_delta
                if offset >= next_offset:
                    timestamp = base_timestamp + timestamp_delta if log_append_time is None else log_append_time
                    key = raw_key = None if key_span is None else data[key_span[0] : key_span[1]]
                    value = raw_value = None if value_span is None else data[value_span[0] : value_span[1]]
                    part = "key"
                    try:
                        if deserialize_key is not None and raw_key is not None:
                            key = deserialize_key(topic, headers, raw_key)
                        part = "value"
                        if deserialize_value is not None and raw_value is not None:
                            value = deserialize_value(topic, headers, raw_value)
                    except Exception as error:
                        raw = Record(offset, timestamp, raw_key, raw_value, headers)
                        raise deserialization_error(owner, part, raw, timestamp_type, epoch, error) from error
                    append(
                        ConsumerRecord(
                            topic,
                            partition,
                            epoch,
                            offset,
                            timestamp,
                            timestamp_type,
                            key,
                            value,
                            headers,
                            None,
                            -1 if raw_key is None else len(raw_key),
                            -1 if raw_value is None else len(raw_value),
                        )
                    )
                    next_offset = offset + 1
                    max_records -= 1
                    bytes_read += pos - begin
                begin = pos
                remaining -= 1
        finally:
            # A signal handler may raise when a record is in the list, but the cursor not past it yet.
            if len(records) > records_before and records[-1].offset >= next_offset:
                records.pop()
            self._pos = begin
            self._remaining = remaining
            self.next_offset = next_offset
            self.bytes_read += bytes_read
            self.records_read += len(records) - records_before
            self.exhausted = remaining == 0


#: ``(records, next_offset, pos, inside, remaining, bytes_read, epoch, batch_end, is_at_end, failure)``
DecodedBatches = tuple[list[ConsumerRecord[Any, Any]], int, int, int, int, int, int, int, bool, BaseException | None]


def decode_batches(
    buffer: memoryview,
    pos: int,
    inside: int,
    remaining: int,
    next_offset: int,
    checksum: Callable[[Buffer], int] | None,
    takes_transactional: bool,
    owner: CursorOwner,
    max_records: int,
) -> DecodedBatches:
    """Return up to ``max_records`` records of the batches from ``pos`` on, starting with ``next_offset``.

    It stops before a batch or record that is not ordinary, and a cursor reads that one. Ordinary batches are
    uncompressed data in the current format, with the right checksum. The compiled form reads them; this one leaves all
    batches to cursors.

    Args:
        inside, remaining: the results of the last call if it ended inside the batch at ``pos``. ``remaining`` is 0 if
            it did not.
        checksum: computes a batch's checksum; None does not check it.
        takes_transactional: whether batches of transactions are ordinary.

    Returns:
        The records; the offset after the last one; the position after the last batch that was read to its end; where
        the next record of the batch at that position begins, and how many it still has, if it was begun; the size of
        the records in bytes; the leader epoch of the batch read last; the offset after the last batch that was read to
        its end; whether there is known to be no whole batch at the position; and the error of a deserializer, for the
        record at which this stopped.
    """
    return [], next_offset, pos, 0, 0, 0, -1, 0, False, None


use_compiled(__name__)
