"""Writing record batches: their headers, and a builder of one batch (Java: MemoryRecordsBuilder)."""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.implementation import use_compiled
from pykclient.record.compression import NO_COMPRESSION, Compression, CompressionType
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.default_record import encode_headers
from pykclient.record.legacy_record_batch import encode_message
from pykclient.record.memory_records import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    OFFSET_OF_ATTRIBUTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
)
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    LOG_OVERHEAD,
    MAGIC_VALUE_V0,
    MAGIC_VALUE_V2,
    MAX_INT32,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    VARINTS,
    Buffer,
    crc32c,
    legacy_record_size,
    record_batch_overhead,
    record_size,
)
from pykclient.record.row_columns import encode_rows
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.record.row_columns import Rows

#: The factor by which size estimates exceed those of the compression ratio alone.
COMPRESSION_RATE_ESTIMATION_FACTOR = 1.05

#: The multiple of its current memory that a batch with a codec borrows at once, because each loan costs as much as
#: some records.
BORROWED_AT_ONCE = 3

#: Buffers from which records were compressed, kept for reuse: fresh memory of this size costs more than the records
#: that are written into it. All builders share them; any thread takes and returns them. They hold ``_SPARE_BYTES``
#: at most, about what a producer that waits for memory fills before the sender has compressed it.
_SPARES: deque[bytearray] = deque(maxlen=64)
_SPARE_BYTES = 6 * 1024 * 1024


def spare_records() -> bytearray:
    """Return a buffer for records that will be compressed. Its content is undefined."""
    try:
        return _SPARES.pop()
    except IndexError:
        return bytearray()


#: Of a header: base offset, length, leader epoch, magic, crc.
_BEFORE_CRC = Struct(">qiibI")
#: Attributes, last offset delta, base and max timestamp, producer id, epoch, base sequence, count.
_AFTER_CRC = Struct(">hiqqqhii")


def compute_attributes(
    compression_type: CompressionType,
    timestamp_type: int,
    is_transactional: bool = False,
    is_control_batch: bool = False,
    has_delete_horizon: bool = False,
) -> int:
    """Return the attributes of a batch header.

    Raises:
        IllegalArgumentError: the timestamp type is not valid.
    """
    if timestamp_type == NO_TIMESTAMP_TYPE:
        raise IllegalArgumentError("a batch of format v2 needs a timestamp type")
    attributes = compression_type.id
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_FLAG
    if is_transactional:
        attributes |= TRANSACTIONAL_FLAG
    if is_control_batch:
        attributes |= CONTROL_FLAG
    if has_delete_horizon:
        attributes |= DELETE_HORIZON_FLAG
    return attributes


def write_header(
    buffer: bytearray,
    size: int,
    *,
    base_offset: int,
    last_offset_delta: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    partition_leader_epoch: int,
    count: int,
) -> None:
    """Write the header of the batch in the first ``size`` bytes of ``buffer``."""
    _AFTER_CRC.pack_into(
        buffer,
        OFFSET_OF_ATTRIBUTES,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    checksum = crc32c(memoryview(buffer)[OFFSET_OF_ATTRIBUTES:size])
    _BEFORE_CRC.pack_into(
        buffer, 0, base_offset, size - LOG_OVERHEAD, partition_leader_epoch, CURRENT_MAGIC_VALUE, checksum
    )


def write_empty_header(
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int,
    last_offset: int,
    partition_leader_epoch: int,
    timestamp_type: int,
    timestamp: int,
    is_transactional: bool = False,
    is_control_batch: bool = False,
) -> bytearray:
    """Return a batch from which compaction has removed all records.

    It preserves the producer's last sequence number.
    """
    buffer = bytearray(RECORD_BATCH_OVERHEAD)
    write_header(
        buffer,
        RECORD_BATCH_OVERHEAD,
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        attributes=compute_attributes(CompressionType.NONE, timestamp_type, is_transactional, is_control_batch),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        count=0,
    )
    return buffer


class Memory(Protocol):
    """The source of memory beyond a builder's buffer (producer: BorrowedMemory)."""

    def borrow(self, size: int, if_plenty: bool = False) -> bool:
        """Borrow ``size`` more bytes without waiting; return True if they were available.

        With ``if_plenty``, many more than that must be available.
        """

    def give_back(self, kept: int = 0) -> None:
        """Return all borrowed memory but ``kept`` bytes."""


class RecordsInfo(NamedTuple):
    """The properties of a batch that a log keeps: its largest timestamp and the (shallow) offset that has it."""

    max_timestamp: int
    shallow_offset_of_max_timestamp: int


class AppendState:
    """The state of a MemoryRecordsBuilder, and how it takes a record. The compiled form stores numbers as C values."""

    __slots__ = (
        "_append_closed",
        "_base_timestamp",
        "_buffer",
        "_delete_horizon_ms",
        "_header_size",
        "_last_offset",
        "_lender",
        "_log_append_time",
        "_max_timestamp",
        "_max_uncompressed_size",
        "_offset_of_max_timestamp",
        "_partition_leader_epoch",
        "_position",
        "_records",
        "_room",
        "_size_factor",
        "_size_limit",
        "_timestamp_type",
        "_uncompressed_size",
        "aborted",
        "base_offset",
        "base_sequence",
        "compression",
        "compression_ratio",
        "is_closed",
        "is_control_batch",
        "is_transactional",
        "magic",
        "memory",
        "num_records",
        "producer_epoch",
        "producer_id",
        "write_limit",
    )

    def try_append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
        """Append a record if the batch has room for it.

        The record is encoded once, and its real size decides. Return its size in bytes before compression, or 0 if the
        batch has no room.
        """
        return self._try_append(timestamp_ms, key, value, headers)

    def _try_append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        raise NotImplementedError


use_compiled(__name__)


class MemoryRecordsBuilder(AppendState):
    """Appends records to a batch of any format and writes its header when it is closed.

    Uncompressed records are encoded into ``buffer``, in v2 behind a gap for the header. With a codec, records are
    encoded into a separate buffer, and ``close_for_record_appends`` compresses them into ``buffer`` together:
    compression is cheap in Python with one call into the codec per batch. So a batch that still accepts records holds
    up to ``write_limit`` divided by its compression ratio.

    With a ``lender``, the batch borrows the memory that it uses above the size of ``buffer``. The lender is called when
    the batch first borrows some. The batch accepts no more records when it cannot borrow more, or when it holds
    ``max_uncompressed_size`` bytes. Once compressed, it returns the borrowed memory that it no longer needs.

    Until the batch is compressed its size is an estimate, from ``set_estimated_compression_ratio``. A batch that
    compresses worse becomes larger than ``write_limit``, as in Java. The first record always fits.

    Thread: owner (the producer calls it under the lock of the partition's batches).
    """

    __slots__ = ()

    def __init__(
        self,
        buffer: bytearray | None = None,
        *,
        magic: int = CURRENT_MAGIC_VALUE,
        compression: Compression = NO_COMPRESSION,
        timestamp_type: int = CREATE_TIME,
        base_offset: int = 0,
        write_limit: int = MAX_INT32,
        log_append_time: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control_batch: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        delete_horizon_ms: int = NO_TIMESTAMP,
        lender: Callable[[], Memory] | None = None,
        max_uncompressed_size: int = MAX_INT32,
    ) -> None:
        """Build the batch in ``buffer``, from its start.

        The buffer belongs to the builder until the batch is no longer needed. A batch that does not fit extends it or,
        while a view of it exists, continues in a new buffer. ``write_limit`` is in bytes, header included.

        Raises:
            IllegalArgumentError: format ``magic`` does not support one of the arguments.
        """
        if magic > MAGIC_VALUE_V0 and timestamp_type == NO_TIMESTAMP_TYPE:
            raise IllegalArgumentError(f"format v{magic} needs a timestamp type")
        if magic < MAGIC_VALUE_V2:
            for name, given in (
                ("transactional records", is_transactional),
                ("control records", is_control_batch),
                ("zstd compression", compression.type is CompressionType.ZSTD),
                ("a delete horizon", delete_horizon_ms != NO_TIMESTAMP),
            ):
                if given:
                    raise IllegalArgumentError(f"format v{magic} does not have {name}")
        self.magic = magic
        self.compression = compression
        self.base_offset = base_offset
        self.write_limit = write_limit
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional
        self.is_control_batch = is_control_batch
        self.num_records = 0
        #: The records' compressed size divided by their uncompressed size; known once closed.
        self.compression_ratio = 1.0
        self.is_closed = False
        self.aborted = False
        self._timestamp_type = timestamp_type
        self._log_append_time = log_append_time
        self._partition_leader_epoch = partition_leader_epoch
        self._delete_horizon_ms = delete_horizon_ms
        self._buffer = bytearray() if buffer is None else buffer
        is_default = magic >= MAGIC_VALUE_V2
        self._header_size = RECORD_BATCH_OVERHEAD if is_default else record_batch_overhead(magic, compression.type)
        self._room = write_limit - self._header_size
        is_compressed = compression.type is not CompressionType.NONE
        self._size_factor: float = COMPRESSION_RATE_ESTIMATION_FACTOR if is_compressed else 1
        # Records are encoded into a separate buffer or, uncompressed, directly behind the gap for the header.
        self._records = spare_records() if is_compressed else self._buffer
        self._position = 0 if is_compressed else self._header_size
        if len(self._buffer) < self._header_size:
            self._buffer = bytearray(self._header_size)
            if not is_compressed:
                self._records = self._buffer
        self._uncompressed_size = 0
        self._lender = lender
        #: The borrowed memory; None before the batch first needs some.
        self.memory: Memory | None = None
        self._max_uncompressed_size = max_uncompressed_size
        # The current limit of uncompressed bytes. Only the first record may exceed it.
        self._size_limit = MAX_INT64 if lender is None else len(self._buffer) - self._position
        # With a delete horizon, the timestamps of the records are relative to the horizon (KIP-534).
        self._base_timestamp: int | None = delete_horizon_ms if delete_horizon_ms >= 0 else None
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = -1
        self._last_offset: int | None = None
        self._append_closed = False

    # --- appending

    def _try_append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
        if self._append_closed:
            return 0
        if self.magic < MAGIC_VALUE_V2 or self.is_control_batch:
            if not self.has_room_for(timestamp_ms, key, value, headers):
                return 0
            return self.append(timestamp_ms, key, value, headers)
        return self._append_default(timestamp_ms, key, value, headers, self._room)

    def append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
        """Append a record at the next offset, even if the batch has no room.

        Return the record's size in bytes before compression.

        ``key`` and ``value`` are bytes-like (bytes, bytearray or a memoryview of bytes) or None, and are copied.

        Raises:
            IllegalStateError: the batch is closed for appends.
            IllegalArgumentError: the timestamp is negative (-1, for none, is allowed) or over 64 bits, the record has
                headers in an old format, or the batch is a control batch.
        """
        if self._append_closed or self.magic < MAGIC_VALUE_V2 or self.is_control_batch:
            last_offset = self._last_offset
            offset = self.base_offset if last_offset is None else last_offset + 1
            return self._append_with_offset(offset, False, timestamp_ms, key, value, headers)
        return self._append_default(timestamp_ms, key, value, headers, None)

    def _append_default(
        self, timestamp: int, key: Buffer | None, value: Buffer | None, headers: Headers, room: int | None
    ) -> int:
        """Encode a v2 record at the next offset and return its size.

        Return 0 if ``room`` is given and too small for all records together.
        """
        base_timestamp = self._base_timestamp
        if base_timestamp is None:
            base_timestamp = timestamp
        if not 0 <= timestamp <= MAX_INT64 and timestamp != NO_TIMESTAMP:
            raise IllegalArgumentError(f"timestamp {timestamp} is negative or has more than 64 bits")
        last_offset = self._last_offset
        offset = self.base_offset if last_offset is None else last_offset + 1
        varints = VARINTS
        if key is None:
            key = b""
            key_size = b"\x01"
        else:
            key_size = varints[len(key)]
        if value is None:
            value = b""
            value_size = b"\x01"
        else:
            value_size = varints[len(value)]
        body = b"".join(
            (
                b"\x00",
                varints[timestamp - base_timestamp],
                varints[offset - self.base_offset],
                key_size,
                key,
                value_size,
                value,
                encode_headers(headers) if headers else b"\x00",
            )
        )
        record = varints[len(body)] + body
        size = len(record)
        uncompressed_size = self._uncompressed_size
        if room is not None and uncompressed_size:
            if int(uncompressed_size * self._size_factor) + size > room:
                return 0
            if uncompressed_size + size > self._size_limit and not self._borrow(size):
                return 0
        position = self._position
        end = position + size
        # Overwrites old bytes, and extends a buffer that ends before ``end``.
        try:
            self._records[position:end] = record
        except BufferError:
            self._leave_buffer()
            self._records[position:end] = record
        # No calls from here on, so that an exception of a signal handler leaves the record appended or not at all.
        self._position = end
        self._uncompressed_size = uncompressed_size + size
        self._last_offset = offset
        self.num_records += 1
        if timestamp > self._max_timestamp:  # noqa: PLR1730 - max() is a call
            self._max_timestamp = timestamp
        self._base_timestamp = base_timestamp
        return size

    def try_append_rows(
        self, rows: Rows, indices: memoryview | None, first: int, stop: int, max_bytes: int
    ) -> tuple[int, int]:
        """Append the rows ``indices[first:stop]``, in order, as long as the batch has room.

        Without ``indices``, append the rows ``first`` to ``stop``, at least one. Stop after the record with which the
        rows' uncompressed size reaches ``max_bytes``. Return the number of appended rows and the size of the largest
        one in bytes before compression. Only for batches of format v2 with records of applications.

        Raises:
            IllegalArgumentError: a column refers to bytes outside its data.
        """
        if self._append_closed:
            return 0, 0
        base_timestamp = self._base_timestamp
        if base_timestamp is None:
            base_timestamp = rows.timestamp(first if indices is None else indices[first])
        begun = first
        largest = 0
        max_size = self._uncompressed_size + max_bytes
        has_borrowed = False
        while True:
            count, size_of_largest = self._encode_rows(rows, indices, first, stop, base_timestamp, max_size)
            first += count
            largest = max(largest, size_of_largest)
            size = self._uncompressed_size
            if first == stop or size >= max_size or (has_borrowed and not count):
                break
            # Perhaps the memory was too small. If the batch was full instead, the next iteration appends nothing.
            if int(size * self._size_factor) >= self._room or self._size_limit == MAX_INT64:
                break
            size_of_next = rows.upper_bound(first if indices is None else indices[first])
            if size + size_of_next <= self._size_limit or not self._borrow(size_of_next):
                break
            has_borrowed = True
        return first - begun, largest

    def _encode_rows(
        self, rows: Rows, indices: memoryview | None, first: int, stop: int, base_timestamp: int, max_size: int
    ) -> tuple[int, int]:
        """Append the rows that fit; return their number, and the size of the largest one."""
        last_offset = self._last_offset
        offset_delta = 0 if last_offset is None else last_offset + 1 - self.base_offset
        limits = (self._uncompressed_size, self._size_factor, self._room, max_size, self._size_limit)
        run = (self._position, rows, indices, first, stop, base_timestamp, offset_delta, *limits)
        try:
            count, position, size, max_timestamp, largest = encode_rows(self._records, *run)
        except BufferError:
            self._leave_buffer()
            count, position, size, max_timestamp, largest = encode_rows(self._records, *run)
        if count:
            max_timestamp = max(self._max_timestamp, max_timestamp)
            # No calls from here on, so that an exception of a signal handler leaves all of the rows appended or none.
            self._position = position
            self._uncompressed_size = size
            self._last_offset = self.base_offset + offset_delta + count - 1
            self.num_records += count
            self._max_timestamp = max_timestamp
            self._base_timestamp = base_timestamp
        return count, largest

    def _borrow(self, size: int) -> bool:
        """Borrow memory for a record of ``size`` bytes and, if available, for later records; return True on success."""
        limit = self._size_limit
        missing = self._uncompressed_size + size - limit
        allowed = self._max_uncompressed_size - limit
        if missing > allowed:
            return False
        for more in (min(max(self._expected_need(), missing), allowed), missing):
            if self._memory().borrow(more):
                self._size_limit = limit + more
                return True
        return False

    def _expected_need(self) -> int:
        """Return the bytes that a full batch lacks by the compression estimate, up to a multiple of what it has."""
        limit = self._size_limit
        times = BORROWED_AT_ONCE if self.is_compressed else 1
        return min(times * limit, int(self._room / self._size_factor) - limit)

    def borrow_ahead(self) -> None:
        """Borrow memory for later records if there is plenty, to save later loans."""
        if self._lender is None:
            return
        expected = min(self._expected_need(), self._max_uncompressed_size - self._size_limit)
        if expected > 0 and self._memory().borrow(expected, if_plenty=True):
            self._size_limit += expected

    def _memory(self) -> Memory:
        """Return the memory from which to borrow. Most batches borrow none, and need no object for it."""
        memory = self.memory
        if memory is None:
            assert self._lender is not None
            memory = self.memory = self._lender()
        return memory

    def _leave_buffer(self) -> None:
        """Continue in a new buffer, because a view of the old one exists, which prevents it from growing."""
        buffer = bytearray(self._buffer)
        if self._records is self._buffer:
            self._records = buffer
        self._buffer = buffer

    def append_with_offset(
        self, offset: int, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
    ) -> int:
        """Append a record at ``offset``, which may leave a gap; return its size in bytes before compression.

        Raises:
            IllegalStateError: as ``append``.
            IllegalArgumentError: as ``append``, and if ``offset`` is not greater than the last offset.
        """
        return self._append_with_offset(offset, False, timestamp_ms, key, value, headers)

    def append_control_record(self, timestamp_ms: int, control_type: ControlRecordType, value: Buffer) -> int:
        """Append a control record to a control batch; return its size in bytes before compression.

        Raises:
            IllegalStateError: as ``append``.
            IllegalArgumentError: as ``append``, and for ``UNKNOWN``.
        """
        last_offset = self._last_offset
        offset = self.base_offset if last_offset is None else last_offset + 1
        return self._append_with_offset(offset, True, timestamp_ms, control_type.record_key(), value, ())

    def append_end_txn_marker(self, timestamp_ms: int, marker: EndTransactionMarker) -> int:
        """Append the marker that ends a transaction; return its size in bytes before compression.

        Raises:
            IllegalArgumentError: the batch has no producer id, or is not transactional.
        """
        if self.producer_id == NO_PRODUCER_ID:
            raise IllegalArgumentError("the end of a transaction needs a producer id")
        if not self.is_transactional:
            raise IllegalArgumentError("the end of a transaction needs a transactional batch")
        return self.append_control_record(timestamp_ms, marker.control_type, marker.serialize_value())

    def _append_with_offset(
        self,
        offset: int,
        is_control: bool,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> int:
        if self._append_closed:
            raise IllegalStateError("the batch is closed for appends")
        if is_control != self.is_control_batch:
            raise IllegalArgumentError("control records go into control batches, and nothing else does")
        last_offset = self._last_offset
        if last_offset is not None and offset <= last_offset:
            raise IllegalArgumentError(f"offset {offset} does not come after {last_offset}")
        if not 0 <= offset - self.base_offset <= MAX_INT32:
            raise IllegalArgumentError(f"offset {offset} cannot be in a batch that starts at {self.base_offset}")
        if self.magic < MAGIC_VALUE_V2:
            return self._append_legacy(offset, timestamp, key, value, headers)
        # The fast path uses the offset after the last one.
        self._last_offset = offset - 1
        try:
            return self._append_default(timestamp, key, value, headers, None)
        except BaseException:
            self._last_offset = last_offset
            raise

    def _append_legacy(
        self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None, headers: Headers
    ) -> int:
        if headers:
            raise IllegalArgumentError(f"format v{self.magic} does not have headers")
        if self._timestamp_type == LOG_APPEND_TIME:
            timestamp = self._log_append_time
        is_relative = self.magic > MAGIC_VALUE_V0 and self._records is not self._buffer
        inner_offset = offset - self.base_offset if is_relative else offset
        message = encode_message(self.magic, inner_offset, timestamp, key, value, timestamp_type=self._timestamp_type)
        size = len(message)
        try:
            self._records[self._position : self._position + size] = message
        except BufferError:
            self._leave_buffer()
            self._records[self._position : self._position + size] = message
        self._position += size
        self._uncompressed_size += size
        self._last_offset = offset
        self.num_records += 1
        if self.magic > MAGIC_VALUE_V0 and timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._offset_of_max_timestamp = offset
        return size

    # --- room

    @property
    def is_compressed(self) -> bool:
        """True if the batch has a codec; sizes are then estimates until the batch is closed."""
        return self.compression.type is not CompressionType.NONE

    def set_estimated_compression_ratio(self, ratio: float) -> None:
        """Set the ratio of the topic's earlier batches (CompressionRatioEstimator); ignored without a codec."""
        if self.compression.type is not CompressionType.NONE:
            self._size_factor = ratio * COMPRESSION_RATE_ESTIMATION_FACTOR

    def _estimated_bytes_written(self) -> int:
        return self._header_size + int(self._uncompressed_size * self._size_factor)

    @property
    def estimated_size_in_bytes(self) -> int:
        """The size of the batch in bytes: exact if it is closed or uncompressed, otherwise estimated."""
        if self.is_closed:
            return self._position
        return self._header_size + int(self._uncompressed_size * self._size_factor)

    @property
    def uncompressed_bytes_written(self) -> int:
        return self._header_size + self._uncompressed_size

    @property
    def is_full(self) -> bool:
        """True if no more records fit. A batch without records is never full."""
        return self._append_closed or (
            self.num_records > 0
            and self.write_limit <= self._header_size + int(self._uncompressed_size * self._size_factor)
        )

    def has_room_for(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> bool:
        """Return whether the record fits, ignoring how well it will compress. The first record always fits."""
        if self._append_closed:
            return False
        if self.num_records == 0:
            return True
        if self.magic < MAGIC_VALUE_V2:
            size = LOG_OVERHEAD + legacy_record_size(self.magic, key, value)
        else:
            base_timestamp = timestamp_ms if self._base_timestamp is None else self._base_timestamp
            offset_delta = 0 if self._last_offset is None else self._last_offset + 1 - self.base_offset
            size = record_size(offset_delta, timestamp_ms - base_timestamp, key, value, headers)
        return self.write_limit >= self._estimated_bytes_written() + size

    # --- closing

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Set the producer id, epoch and sequence, by which the broker detects duplicates.

        Raises:
            IllegalStateError: the batch is closed. It may have been sent; with other numbers it would be a duplicate.
        """
        if self.is_closed:
            raise IllegalStateError("the producer state of a closed batch cannot be set")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def reopen_and_rewrite_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Reopen a closed batch so that it can be closed with another producer state (KIP-360).

        The records stay the same. Bytes that were built before change with the new header, so they must not be in use
        any more.

        Raises:
            IllegalStateError: the batch is aborted.
        """
        if self.aborted:
            raise IllegalStateError("an aborted batch cannot be opened again")
        self.is_closed = False
        self.set_producer_state(producer_id, producer_epoch, base_sequence, is_transactional)

    def override_last_offset(self, last_offset: int) -> None:
        """End the batch with ``last_offset``, although its last record has a lower offset (compaction).

        Raises:
            IllegalStateError: the batch is closed.
        """
        if self.is_closed:
            raise IllegalStateError("the last offset of a closed batch cannot be changed")
        self._last_offset = last_offset

    def close_for_record_appends(self) -> None:
        """Close the batch for appends and compress its records. The header is not written yet.

        A second call does nothing.

        Raises:
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        self._append_closed = True
        records = self._records
        if records is self._buffer:
            return
        outgrown = 0
        try:
            with memoryview(records) as view, view[: self._position] as used:
                compressed = self.compression.compress(used, self.magic)
            end = self._header_size + len(compressed)
            outgrown = max(0, end - len(self._buffer))
        finally:
            self.give_back_memory(outgrown)
        try:
            self._buffer[self._header_size : end] = compressed
        except BufferError:
            self._leave_buffer()
            self._buffer[self._header_size : end] = compressed
        # No call between these two statements: a batch whose compression was interrupted is compressed again.
        self._position = end
        self._records = self._buffer
        if len(records) * (len(_SPARES) + 1) <= _SPARE_BYTES:
            _SPARES.append(records)

    def close(self) -> None:
        """Close the batch for appends and write its header. A second call does nothing.

        Raises:
            IllegalStateError: the batch is aborted.
            IllegalArgumentError: there is a producer id without epoch or sequence, or the batch is transactional
                and has no producer id.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        if self.aborted:
            raise IllegalStateError("an aborted batch cannot be closed")
        if self.is_closed:
            return
        self._validate_producer_state()
        if self._records is self._buffer:
            self._append_closed = True
        else:
            self.close_for_record_appends()
        if self.num_records == 0:
            self._position = 0
        elif self.magic >= MAGIC_VALUE_V2:
            self._write_default_header()
        elif self._header_size:
            self._write_legacy_wrapper()
        self.is_closed = True

    def _validate_producer_state(self) -> None:
        if self.producer_id == NO_PRODUCER_ID:
            if self.is_transactional:
                raise IllegalArgumentError("transactional records need a producer id")
            return
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            raise IllegalArgumentError("a producer id needs an epoch")
        if self.base_sequence < 0 and not self.is_control_batch:
            raise IllegalArgumentError(f"sequence {self.base_sequence} is negative")
        if self.magic < MAGIC_VALUE_V2:
            raise IllegalArgumentError(f"format v{self.magic} does not have producer ids")

    def _write_default_header(self) -> None:
        last_offset = self._last_offset
        assert last_offset is not None
        assert self._base_timestamp is not None
        has_delete_horizon = self._delete_horizon_ms >= 0
        is_log_append_time = self._timestamp_type == LOG_APPEND_TIME
        write_header(
            self._buffer,
            self._position,
            base_offset=self.base_offset,
            last_offset_delta=last_offset - self.base_offset,
            attributes=compute_attributes(
                self.compression.type,
                self._timestamp_type,
                self.is_transactional,
                self.is_control_batch,
                has_delete_horizon,
            ),
            base_timestamp=self._base_timestamp,
            max_timestamp=self._log_append_time if is_log_append_time else self._max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            partition_leader_epoch=self._partition_leader_epoch,
            count=self.num_records,
        )
        self.compression_ratio = (self._position - self._header_size) / self._uncompressed_size

    def _write_legacy_wrapper(self) -> None:
        assert self._last_offset is not None
        self.compression_ratio = (self._position - self._header_size) / self._uncompressed_size
        value = self._buffer[self._header_size : self._position]
        is_log_append_time = self._timestamp_type == LOG_APPEND_TIME
        self._buffer[: self._position] = encode_message(
            self.magic,
            self._last_offset,
            self._log_append_time if is_log_append_time else self._max_timestamp,
            None,
            value,
            self.compression.type,
            self._timestamp_type,
        )

    def build(self) -> memoryview:
        """Close the batch and return its bytes, as a view of the builder's buffer; empty if it has no records.

        Raises:
            IllegalStateError, IllegalArgumentError, UnsupportedCompressionTypeError: as ``close``.
        """
        if not self.is_closed:
            self.close()
        return memoryview(self._buffer)[: self._position]

    def abort(self) -> None:
        """Abort the batch: nothing can be appended or built any more."""
        self._append_closed = True
        self.aborted = True
        self._records = self._buffer
        self._position = 0
        self.give_back_memory()

    def give_back_memory(self, kept: int = 0) -> None:
        """Return all but ``kept`` bytes of the borrowed memory. Compressing or aborting a batch does this, too."""
        if self.memory is not None:
            self.memory.give_back(kept)

    def info(self) -> RecordsInfo:
        """Return the largest timestamp, and the offset for looking it up: the last offset if records share a batch."""
        shares_batch = self.magic >= MAGIC_VALUE_V2 or self.compression.type is not CompressionType.NONE
        last_offset = -1 if self._last_offset is None else self._last_offset
        if self._timestamp_type == LOG_APPEND_TIME:
            return RecordsInfo(self._log_append_time, last_offset if shares_batch else self.base_offset)
        if self._max_timestamp == NO_TIMESTAMP:
            return RecordsInfo(NO_TIMESTAMP, -1)
        return RecordsInfo(self._max_timestamp, last_offset if shares_batch else self._offset_of_max_timestamp)
