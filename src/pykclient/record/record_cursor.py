"""Reading a batch in steps, directly into the application's records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

from pykclient.errors import KafkaError, RecordDeserializationError, reason_and_advice
from pykclient.implementation import use_compiled
from pykclient.record.default_record import bytes_remain, ended_early, read_record
from pykclient.record.record_batch import Buffer, CursorOwner, Record
from pykclient.serialization import definition_of
from pykclient.types import ConsumerRecord, TopicPartition


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
    __slots__ = (
        "_batch",
        "_common_fields",
        "_data",
        "_limit",
        "_owner",
        "_pos",
        "_remaining",
        "bytes_read",
        "exhausted",
        "next_offset",
        "records_read",
    )

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


class RecordIteratorCursor:
    """A cursor over an iterator of records, for old formats. Thread: owner."""

    is_columnar: ClassVar[bool] = False

    __slots__ = (
        "_failure",
        "_owner",
        "_records",
        "_timestamp_type",
        "_upcoming",
        "bytes_read",
        "exhausted",
        "next_offset",
        "records_read",
    )

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


use_compiled(__name__)
