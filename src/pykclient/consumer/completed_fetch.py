"""The data of one partition from a fetch response, returned piece by piece, and the buffer of such data.

Java: CompletedFetch, FetchBuffer, Deserializers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, Any, Self

from pykclient.caused_errors import caused_by, innermost
from pykclient.consumer.fetch_config import READ_COMMITTED
from pykclient.errors import IllegalStateError, KafkaError, RecordDeserializationError
from pykclient.record import columns as record_columns, record_cursor
from pykclient.record.columns import ColumnCursor
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.record_batch import MAX_INT64, CursorOwner, Deserializer, crc32c
from pykclient.serialization import BYTES
from pykclient.types import ConsumerRecord, Header, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.fetch_config import FetchConfig
    from pykclient.consumer.fetch_context import FetchMetricsAggregator
    from pykclient.consumer.subscription_state import SubscriptionState
    from pykclient.log_context import LogContext, PrefixLogger
    from pykclient.protocol.messages.fetch import FetchResponse
    from pykclient.record.columns import Columns
    from pykclient.record.record_batch import Cursor, RecordBatch


class Deserializers:
    """A deserializer for keys and one for values, each called with topic, headers and bytes.

    A deserializer of ``None`` returns the bytes unchanged, which is the fastest. Deserializers are not called for null
    keys and values, which remain None. ``headers_type`` is the type of records' headers. Thread: any.
    """

    __slots__ = ("headers_type", "key", "value")

    def __init__(self, key: Deserializer | None = None, value: Deserializer | None = None) -> None:
        self.key = key
        self.value = value
        self.headers_type: type[tuple[Header, ...]] = tuple

    @classmethod
    def of(cls, key: Any, value: Any) -> Self:
        """Return the deserializers of two objects with a method ``deserialize``."""
        return cls(_function(key), _function(value))


def _function(deserializer: Any) -> Deserializer | None:
    return None if deserializer is BYTES else deserializer.deserialize


if TYPE_CHECKING:
    AnyCursor = Cursor | ColumnCursor
#: The type in a control record's key, after two bytes of version.
_ABORT = b"\x00\x00"


class CompletedFetch:
    """The fetched records of one partition, from ``next_fetch_offset`` on (Java: CompletedFetch).

    Records are decoded as they are returned, so no position moves past records that the application has not received.
    Batches are views of the response; ``drain`` releases it.

    Thread: application.
    """

    __slots__ = (
        "_aborted_producer_ids",
        "_aborted_transactions",
        "_batch",
        "_batch_end",
        "_bytes_read",
        "_cursor",
        "_failure",
        "_inside",
        "_left",
        "_log",
        "_metric_aggregator",
        "_position",
        "_records",
        "_records_read",
        "_subscriptions",
        "_upcoming",
        "is_consumed",
        "is_initialized",
        "last_epoch",
        "next_fetch_offset",
        "partition",
        "partition_data",
        "size_in_bytes",
        "topic_id",
    )

    def __init__(
        self,
        log: PrefixLogger,
        subscriptions: SubscriptionState,
        partition: TopicPartition,
        partition_data: FetchResponse.PartitionData,
        metric_aggregator: FetchMetricsAggregator,
        fetch_offset: int,
        topic_id: UUID | None = None,
    ) -> None:
        self._log = log
        self._subscriptions = subscriptions
        self._metric_aggregator = metric_aggregator
        self.partition = partition
        self.topic_id = topic_id  # as in the request; None without ids
        self.partition_data = partition_data
        self.next_fetch_offset = fetch_offset
        self.last_epoch: int | None = None
        self.is_consumed = False
        self.is_initialized = False
        records = partition_data.records
        self.size_in_bytes = 0 if records is None else len(records)
        self._records = MemoryRecords(records) if records else MemoryRecords.EMPTY
        self._position = 0  # in _records: where _upcoming begins, or will begin
        # Where the next record begins in the batch at _position, and how many it has left; 0 if it was not begun.
        self._inside = self._left = 0
        self._upcoming: RecordBatch | None = None
        self._batch: RecordBatch | None = None
        self._batch_end = 0  # the offset after the last batch that was read without being the current one
        self._cursor: AnyCursor | None = None  # in _batch, while it has records to return
        self._failure: KafkaError | None = None
        self._records_read = 0
        self._bytes_read = 0
        self._aborted_transactions: deque[tuple[int, int]] = deque()
        if partition_data.aborted_transactions:
            aborted = [(each.first_offset, each.producer_id) for each in partition_data.aborted_transactions]
            self._aborted_transactions.extend(sorted(aborted))
        self._aborted_producer_ids: set[int] = set()

    def has_batches(self) -> bool:
        """Return whether any batch remains, including a corrupt one."""
        if self._upcoming is not None or self._failure is not None:
            return True
        try:
            size_bytes = self._records.batch_size_at(self._position)
        except KafkaError:
            return True
        return size_bytes is not None and size_bytes <= self.size_in_bytes - self._position

    def record_aggregated_metrics(self, size_bytes: int, count: int) -> None:
        self._metric_aggregator.record(self.partition, size_bytes, count)

    def drain(self) -> None:
        """Release the response, and record metrics of what was read from it."""
        if self.is_consumed:
            return
        self.is_consumed = True
        if self._cursor is not None:
            self._count_cursor()
        self._failure = self._batch = self._upcoming = None
        self._records = MemoryRecords.EMPTY
        self._position = 0
        self.partition_data.records = None
        self._metric_aggregator.record(self.partition, self._bytes_read, self._records_read)
        if self._bytes_read > 0:
            # Partitions that deliver together move together, which keeps the partitions of a topic together.
            self._subscriptions.move_partition_to_end(self.partition)

    def fetch_records(
        self, config: FetchConfig, deserializers: Deserializers, max_records: int
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return the next records, at most ``max_records``; fewer, or none, at the end or before a bad record.

        Errors are raised only if there is no record before the bad one to return, and again on each call until the
        position moves past it.

        Raises:
            RecordDeserializationError: a deserializer failed.
            KafkaError: the bytes are not valid records.
        """
        # Without the call of CursorOwner.__new__, which is Python code.
        owner = tuple.__new__(
            CursorOwner, (*self.partition, deserializers.key, deserializers.value, deserializers.headers_type)
        )
        if self._cursor is not None or self._failure is not None:
            return self._read_by_cursors(config, owner, max_records, [])
        # The offset first: if a signal handler raises below, it no longer fits the position, and all this is dropped.
        (
            records,
            self.next_fetch_offset,
            position,
            self._inside,
            self._left,
            size_bytes,
            epoch,
            batch_end,
            is_at_end,
            failure,
        ) = record_cursor.decode_batches(
            self._records.buffer,
            self._position,
            self._inside,
            self._left,
            self.next_fetch_offset,
            crc32c if config.check_crcs else None,
            not (self._aborted_transactions or self._aborted_producer_ids) or config.isolation_level != READ_COMMITTED,
            owner,
            max_records,
        )
        self._records_read += len(records)
        self._bytes_read += size_bytes
        if records or position > self._position or failure is not None:
            self.last_epoch = epoch if epoch >= 0 else None
            if position > self._position:
                self._move_to(position, batch_end, is_at_end)
        if failure is not None:
            if records and isinstance(failure, KafkaError):
                return records
            if isinstance(failure, RecordDeserializationError):
                raise _of_deserializer(failure) from (failure.__cause__ or failure)
            raise failure
        if len(records) == max_records or self.is_consumed:
            return records  # nearly always
        self._left = 0
        return self._read_by_cursors(config, owner, max_records, records)

    def _read_by_cursors(
        self, config: FetchConfig, owner: CursorOwner, max_records: int, result: list[ConsumerRecord[Any, Any]]
    ) -> list[ConsumerRecord[Any, Any]]:
        """Add records to ``result`` until it has ``max_records``, batch by batch."""

        def open_cursor(batch: RecordBatch) -> Cursor:
            # The broker sends whole batches; the position may be inside the first.
            return batch.cursor(owner, self.next_fetch_offset, config.max_decompressed_bytes)

        def read(cursor: Any, wanted: int) -> int:
            nonlocal result
            records = cursor.next_records(wanted)
            result = result + records if result else records
            return len(records)

        self._read_on(config, max_records, open_cursor, read, count=len(result), is_columnar=False)
        return result

    def _move_to(self, position: int, batch_end: int, is_at_end: bool) -> None:
        """Continue with the batch at ``position``, after batches that were read without being the current one."""
        self._position = position
        self._upcoming = self._batch = None
        self._batch_end = batch_end
        if is_at_end:
            self._end()

    def fetch_columns(self, config: FetchConfig, columns: Columns, max_rows: int, end_offset: int = MAX_INT64) -> int:
        """Add the next records to ``columns``, at most ``max_rows`` and no more than they hold; return the number.

        Records from ``end_offset`` on are left. Once only those are left, ``next_fetch_offset`` is at or after it.

        Otherwise this is ``fetch_records`` without deserializers. The two may alternate.
        """

        def open_cursor(batch: RecordBatch) -> ColumnCursor:
            return ColumnCursor(batch, *self.partition, self.next_fetch_offset, config.max_decompressed_bytes)

        def read(cursor: Any, wanted: int) -> int:
            count: int = cursor.read_into(columns, wanted, end_offset)
            return count

        def read_ahead(wanted: int) -> int:
            count, is_inside = self._read_ordinary_batches(config, columns, wanted, end_offset)
            if is_inside:
                self._cursor = self._next_cursor(config, open_cursor)
            return count

        count = 0
        if self._cursor is None:
            count, is_inside = self._read_ordinary_batches(config, columns, max_rows, end_offset)
            if self.is_consumed:
                return count  # nearly always
            if is_inside:
                self._cursor = self._next_cursor(config, open_cursor)
        return self._read_on(config, max_rows, open_cursor, read, read_ahead, end_offset, count, is_columnar=True)

    def _read_on(
        self,
        config: FetchConfig,
        wanted: int,
        open_cursor: Callable[[RecordBatch], AnyCursor],
        read: Callable[[AnyCursor, int], int],
        read_ahead: Callable[[int], int] | None = None,
        end_offset: int = MAX_INT64,
        count: int = 0,
        *,
        is_columnar: bool,
    ) -> int:
        """Read batch by batch until ``wanted`` records were read, or to ``end_offset``; return the number.

        ``read_ahead`` may read whole batches from the next one on, without cursors. ``count`` is the number of records
        that it has read already.
        """
        try:
            while count < wanted and self.next_fetch_offset < end_offset and not self.is_consumed:
                cursor = self._cursor
                if cursor is not None and cursor.is_columnar is not is_columnar:
                    # The last call was of the other kind and ended inside this batch.
                    self._count_cursor()
                    assert self._batch is not None
                    cursor = self._cursor = open_cursor(self._batch)
                if cursor is None:
                    if read_ahead is not None and (ahead := read_ahead(wanted - count)):
                        count += ahead
                        continue
                    cursor = self._next_cursor(config, open_cursor)
                    if cursor is None:
                        break
                    self._cursor = cursor
                try:
                    count += read(cursor, wanted - count)
                except RecordDeserializationError as error:  # a retry may succeed
                    raise _of_deserializer(error) from (error.__cause__ or error)
                except IllegalStateError:
                    raise
                except KafkaError as error:
                    raise self._fail(error) from error
                self.next_fetch_offset = max(self.next_fetch_offset, cursor.next_offset)
                if cursor.exhausted:
                    self._finish_batch()
                elif count < wanted:
                    break  # a bad record follows, or the columns are full
        except IllegalStateError:
            # A signal handler called the consumer, maybe after records were read and before the offset moved past them.
            raise
        except KafkaError:
            if not count:
                raise
        return count

    def _read_ordinary_batches(
        self, config: FetchConfig, columns: Columns, wanted: int, end_offset: int
    ) -> tuple[int, bool]:
        """Read batches that need no decisions; return the record count, and whether the last batch has more."""
        if self._failure is not None:
            return 0, False
        rows, size_bytes = columns.rows, columns.size_bytes
        topic, partition = self.partition
        position, self.next_fetch_offset, is_inside, is_at_end, epoch, batch_end = record_columns.decode_batches(
            self._records.buffer,
            self._position,
            self.next_fetch_offset,
            crc32c if config.check_crcs else None,
            not (self._aborted_transactions or self._aborted_producer_ids) or config.isolation_level != READ_COMMITTED,
            topic,
            partition,
            columns,
            wanted,
            end_offset,
        )
        self._records_read += columns.rows - rows
        self._bytes_read += columns.size_bytes - size_bytes
        self._left = 0
        if position > self._position:
            self.last_epoch = epoch if epoch >= 0 else None
            self._move_to(position, batch_end, is_at_end)
        return columns.rows - rows, is_inside

    # --- batches ---------------------------------------------------------------------------------------------------

    def _next_cursor(self, config: FetchConfig, open_cursor: Callable[[RecordBatch], AnyCursor]) -> AnyCursor | None:
        """Return a cursor in the next batch for the application, or drain and return None if there is none."""
        while (batch := self._next_batch()) is not None:
            try:
                if config.check_crcs:
                    batch.ensure_valid()
                else:
                    batch.ensure_offsets_valid()
                if batch.is_control_batch:
                    self._read_marker(batch)
                elif not (config.isolation_level == READ_COMMITTED and self._is_aborted(batch)):
                    return open_cursor(batch)
            except KafkaError as error:
                raise self._fail(error) from error
        return None

    def _next_batch(self) -> RecordBatch | None:
        if self._upcoming is None:
            self._look_ahead()
        if self._failure is not None:
            raise self._failure
        batch, self._upcoming = self._upcoming, None
        if batch is None:
            self._end()
        else:
            self._batch = batch
            self._position += len(batch.buffer)
            epoch = batch.partition_leader_epoch
            self.last_epoch = epoch if epoch >= 0 else None
        return batch

    def _end(self) -> None:
        """Drain this fetch after its last batch."""
        # Aborted batches and markers have no records to return, and compaction may have removed the last records of
        # any batch. So take the next offset from the batch's end. Fetching from the offset after the last returned
        # record would bring the same batch again, forever.
        batch_end = self._batch_end if self._batch is None else self._batch.next_offset
        self.next_fetch_offset = max(self.next_fetch_offset, batch_end)
        self.drain()

    def _look_ahead(self) -> None:
        if self._upcoming is None and self._failure is None and self._position < self.size_in_bytes:
            try:
                self._upcoming = self._records.batch_at(self._position)
            except KafkaError as error:
                self._fail(error)

    def _finish_batch(self) -> None:
        """Finish the current batch, and drain this fetch if the batch was the last.

        Draining early frees the node for the next fetch, which is sent before the application gets these records.
        """
        if self._cursor is not None:
            self._count_cursor()
        if self._upcoming is None and self._position < self.size_in_bytes:
            self._look_ahead()
        if self._upcoming is None and self._failure is None:
            self._end()

    def _count_cursor(self) -> None:
        if self._cursor is not None:
            self._records_read += self._cursor.records_read
            self._bytes_read += self._cursor.bytes_read
            self._cursor = None

    def _fail(self, error: KafkaError) -> KafkaError:
        """Stop at this position for good: nothing after unreadable bytes can be located."""
        offset = self.next_fetch_offset if self._batch is None else max(self.next_fetch_offset, self._batch.base_offset)
        failure = KafkaError(
            f"cannot read the records of {self.partition} at offset {offset}: {error}; seek past it to continue"
        )
        failure.__cause__ = error
        self._failure = failure
        return failure

    # --- transactions ----------------------------------------------------------------------------------------------

    def _read_marker(self, batch: RecordBatch) -> None:
        """Handle a control batch, which ends a transaction of its producer."""
        self._begin_aborted_up_to(batch.last_offset)
        if batch.producer_id in self._aborted_producer_ids:
            record = batch.first_record()
            key = None if record is None else record.key
            if key is not None and key[2:4] == _ABORT:
                self._aborted_producer_ids.discard(batch.producer_id)

    def _is_aborted(self, batch: RecordBatch) -> bool:
        if not batch.is_transactional:
            return False
        self._begin_aborted_up_to(batch.last_offset)
        aborted = batch.producer_id in self._aborted_producer_ids
        if aborted:
            self._log.debug(
                "Skipping %s from %d to %d: producer %d aborted the transaction",
                self.partition,
                batch.base_offset,
                batch.last_offset,
                batch.producer_id,
            )
        return aborted

    def _begin_aborted_up_to(self, offset: int) -> None:
        """Mark the producers whose aborted transactions begin at or before ``offset`` as aborted.

        The broker lists aborted transactions by first offset. From there to its marker, the producer's records are
        aborted.
        """
        aborted = self._aborted_transactions
        while aborted and aborted[0][0] <= offset:
            self._aborted_producer_ids.add(aborted.popleft()[1])

    def __repr__(self) -> str:
        return f"CompletedFetch({self.partition}, {self.size_in_bytes} bytes from {self.next_fetch_offset})"


def _of_deserializer(error: RecordDeserializationError) -> RecordDeserializationError:
    """Return the error of a deserializer for the application, which may catch it by the class of its cause."""
    return caused_by(error, innermost(error.__cause__ or error))


class FetchBuffer:
    """A queue of completed fetches, and ``next_in_line_fetch``, whose records are being returned.

    Thread: application.
    """

    __slots__ = ("_log", "_queued", "completed", "next_in_line_fetch", "removals")

    def __init__(self, log_context: LogContext) -> None:
        self._log = log_context.logger(__name__)
        #: The queue. Only this class changes it.
        self.completed: deque[CompletedFetch] = deque()
        self._queued: set[CompletedFetch] = set()  # the members of completed, for fast lookup
        self.next_in_line_fetch: CompletedFetch | None = None
        #: A number that changes whenever a fetch leaves the queue.
        self.removals = 0

    @property
    def is_empty(self) -> bool:
        return not self.completed

    def has_completed_fetches(self, predicate: Callable[[CompletedFetch], bool]) -> bool:
        return any(map(predicate, self.completed))

    def add(self, fetch: CompletedFetch) -> None:
        self.completed.append(fetch)
        self._queued.add(fetch)

    def add_all(self, fetches: Sequence[CompletedFetch]) -> None:
        self.completed.extend(fetches)
        self._queued.update(fetches)

    def peek(self) -> CompletedFetch | None:
        return self.completed[0] if self.completed else None

    def poll(self) -> CompletedFetch | None:
        if not self.completed:
            return None
        self.removals += 1
        fetch = self.completed.popleft()
        self._queued.discard(fetch)
        return fetch

    def holds(self, fetch: CompletedFetch) -> bool:
        """Return whether ``fetch`` is in the buffer and still has data."""
        return fetch in self._queued or (fetch is self.next_in_line_fetch and not fetch.is_consumed)

    def newest_first(self) -> Iterator[CompletedFetch]:
        """Yield all fetches that have data, from the last to be returned to the first."""
        yield from reversed(self.completed)
        if self.next_in_line_fetch is not None and not self.next_in_line_fetch.is_consumed:
            yield self.next_in_line_fetch

    def retain_all(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Drop the data of all other partitions."""
        self.removals += 1
        kept: deque[CompletedFetch] = deque()
        for fetch in self.completed:
            if fetch.partition in partitions:
                kept.append(fetch)
            else:
                self._drop(fetch)
        self.completed = kept
        self._queued = set(kept)
        if self.next_in_line_fetch is not None and self.next_in_line_fetch.partition not in partitions:
            self._drop(self.next_in_line_fetch)
            self.next_in_line_fetch = None

    def reset(self) -> None:
        """Drop everything, in whatever state it is."""
        self.removals += 1
        self.completed = deque()
        self._queued = set()
        self.next_in_line_fetch = None

    def _drop(self, fetch: CompletedFetch) -> None:
        self._log.debug("Dropping fetched records of %s, which is no longer fetched", fetch.partition)
        fetch.drain()

    def close(self) -> None:
        self.retain_all(frozenset())
