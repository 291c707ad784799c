"""Fetched records, from a response to the application, and the positions that may be committed meanwhile.

Java: Fetch, CompletedFetch, FetchBuffer, Deserializers, FetchCollector.

A poll moves the fetch positions past everything that it takes, so the next fetches can be sent while the application
works. Two kinds of records are before a position without having reached the application:

- The records of a *fetch* that was not returned yet. ``KafkaConsumer.poll`` sets ``fetch.returned`` in its last step,
  after which nothing can raise until the caller has the records. If a signal handler raises before that, the fetch
  stays unreturned, and the next call on the consumer rewinds to ``fetch.first_positions``.
- The records that wait for a ``for`` loop. UndeliveredRecords keeps them in chunks, one per partition.

``UndeliveredRecords.next_positions`` holds commits back to the first record of either kind. A loop needs no bookkeeping
per record: it runs over list iterators, which know how many records they have left.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set as AbstractSet
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pykclient import errors
from pykclient.caused_errors import caused_by, innermost
from pykclient.consumer.values import READ_COMMITTED
from pykclient.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError, RecordDeserializationError
from pykclient.network.failures import topics_denied
from pykclient.record import columns as record_columns, default_record
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.record_batch import MAX_INT64, Buffer, CursorOwner, Deserializer, crc32c
from pykclient.serialization import BYTES
from pykclient.types import ConsumerRecord, Header, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.clock import Clock
    from pykclient.consumer.application_driver import NetworkClientDelegate
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.consumer.consumer_metrics import FetchMetricsAggregator, FetchMetricsManager
    from pykclient.consumer.subscription_state import FetchPosition, SubscriptionState
    from pykclient.consumer.values import FetchConfig
    from pykclient.log_context import LogContext, PrefixLogger
    from pykclient.network.cluster_connection_states import ApiVersions
    from pykclient.network.metadata import Metadata
    from pykclient.protocol.messages.fetch import FetchResponse
    from pykclient.record.columns import Columns
    from pykclient.record.memory_records import AnyRecordBatch
    from pykclient.record.record_batch import Cursor


class FetchContext(NamedTuple):
    """The objects that all parts of fetching share. Thread: application."""

    log_context: LogContext
    client: NetworkClientDelegate
    metadata: ConsumerMetadata
    subscriptions: SubscriptionState
    clock: Clock
    api_versions: ApiVersions


def request_metadata_update(metadata: Metadata, subscriptions: SubscriptionState, tp: TopicPartition) -> None:
    """Request the current leader, and fetch from it instead of the preferred read replica."""
    metadata.request_update(False)
    subscriptions.clear_preferred_read_replica(tp)


#: The end offsets of a fetch without any. Nothing changes them.
_NOWHERE: Mapping[TopicPartition, int] = {}


class AnyFetch:
    """The data taken by one poll, as records or columns.

    ``first_positions`` has the position of each partition before the fetch moved it. While ``returned`` is False, the
    records have not reached the application, so commits are held back to these positions. Thread: owner.
    """

    __slots__ = ("first_positions", "is_full", "num_records", "position_advanced", "returned", "until")

    def __init__(self, until: Mapping[TopicPartition, int] | None = None) -> None:
        self.first_positions: dict[TopicPartition, FetchPosition] = {}
        self.num_records = 0
        #: True if there is no room for more, however few records there are.
        self.is_full = False
        self.position_advanced = False
        self.returned = False
        #: For some partitions, the offset of the first record that is not taken.
        self.until: Mapping[TopicPartition, int] = until or _NOWHERE

    @property
    def is_empty(self) -> bool:
        """True if there are no records and no position moved; aborted transactions can move one without records."""
        return not self.num_records and not self.position_advanced

    def end_offset(self, tp: TopicPartition) -> int:
        """Return the offset of the first record that is not taken."""
        return self.until.get(tp, MAX_INT64)


class Fetch(AnyFetch):
    """Records by partition. ``has_waited`` is True for records that waited for a loop. Thread: owner."""

    __slots__ = ("has_waited", "records")

    def __init__(self) -> None:
        # As AnyFetch.__init__, without its call.
        self.first_positions = {}
        self.num_records = 0
        self.is_full = self.position_advanced = self.returned = False
        self.until = _NOWHERE
        self.records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        self.has_waited = False

    def add(self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]]) -> None:
        """Append ``records`` to those of the partition. Takes ownership of the list."""
        if records:
            present = self.records.get(tp)
            if present is None:
                self.records[tp] = records
            else:
                present.extend(records)
            self.num_records += len(records)


class ColumnsFetch(AnyFetch):
    """Records in columns. For a partition in ``until``, only records before that offset are taken. Thread: owner."""

    __slots__ = ("columns",)

    def __init__(self, columns: Columns, until: Mapping[TopicPartition, int] | None = None) -> None:
        super().__init__(until)
        self.columns = columns


class Deserializers:
    """A deserializer for keys and one for values, each called with topic, headers and bytes.

    A deserializer of ``None`` returns the bytes unchanged, which is the fastest. Deserializers are not called for null
    keys and values, which remain None. ``headers_type`` is the type of records' headers. Thread: any.
    """

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
    AnyCursor = Cursor | record_columns.ColumnCursor
#: The type in a control record's key, after two bytes of version.
_ABORT = b"\x00\x00"


class CompletedFetch:
    """The fetched records of one partition, from ``next_fetch_offset`` on (Java: CompletedFetch).

    Records are decoded as they are returned, so no position moves past records that the application has not received.
    Batches are views of the response; ``drain`` releases it.

    Thread: application.
    """

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
        self._upcoming: AnyRecordBatch | None = None
        self._batch: AnyRecordBatch | None = None
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
        ) = default_record.decode_batches(
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

        def open_cursor(batch: AnyRecordBatch) -> Cursor:
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

        def open_cursor(batch: AnyRecordBatch, data: Buffer | None = None) -> record_columns.ColumnCursor:
            return record_columns.ColumnCursor(
                batch, *self.partition, self.next_fetch_offset, config.max_decompressed_bytes, data
            )

        def read(cursor: Any, wanted: int) -> int:
            count: int = cursor.read_into(columns, wanted, end_offset)
            return count

        def read_ahead(wanted: int) -> int:
            if columns.is_full:
                return 0
            count, is_inside, data = self._read_ordinary_batches(config, columns, wanted, end_offset)
            if is_inside or data is not None:
                self._cursor = self._next_cursor(config, partial(open_cursor, data=data))
            return count

        count = 0
        if self._cursor is None:
            count, is_inside, data = self._read_ordinary_batches(config, columns, max_rows, end_offset)
            if self.is_consumed:
                return count  # nearly always
            if is_inside or data is not None:
                self._cursor = self._next_cursor(config, partial(open_cursor, data=data))
        return self._read_on(config, max_rows, open_cursor, read, read_ahead, end_offset, count, is_columnar=True)

    def _read_on(
        self,
        config: FetchConfig,
        wanted: int,
        open_cursor: Callable[[AnyRecordBatch], AnyCursor],
        read: Callable[[AnyCursor, int], int],
        read_ahead: Callable[[int], int] | None = None,
        end_offset: int = MAX_INT64,
        count: int = 0,
        *,
        is_columnar: bool,
    ) -> int:
        """Read batch by batch until ``wanted`` records were read, or to ``end_offset``; return the number.

        ``read_ahead`` may read whole batches from the next one on, and leave a cursor in the last one. ``count`` is the
        number of records that it has read already.
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
                    if read_ahead is not None:
                        ahead = read_ahead(wanted - count)
                        if ahead or self._cursor is not None:
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
    ) -> tuple[int, bool, Buffer | None]:
        """Read batches that need no decisions.

        Return the record count, whether the last batch has more, and the records of the next one if they were
        decompressed.
        """
        if self._failure is not None:
            return 0, False, None
        rows, size_bytes = columns.rows, columns.size_bytes
        topic, partition = self.partition
        position, self.next_fetch_offset, is_inside, is_at_end, epoch, batch_end, data = record_columns.decode_batches(
            self._records.buffer,
            self._position,
            self.next_fetch_offset,
            crc32c if config.check_crcs else None,
            not (self._aborted_transactions or self._aborted_producer_ids) or config.isolation_level != READ_COMMITTED,
            topic,
            partition,
            columns,
            wanted,
            config.max_decompressed_bytes,
            end_offset,
        )
        self._records_read += columns.rows - rows
        self._bytes_read += columns.size_bytes - size_bytes
        self._left = 0
        if position > self._position:
            self.last_epoch = epoch if epoch >= 0 else None
            self._move_to(position, batch_end, is_at_end)
        return columns.rows - rows, is_inside, data

    # --- batches ---------------------------------------------------------------------------------------------------

    def _next_cursor(self, config: FetchConfig, open_cursor: Callable[[AnyRecordBatch], AnyCursor]) -> AnyCursor | None:
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

    def _next_batch(self) -> AnyRecordBatch | None:
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

    def _read_marker(self, batch: AnyRecordBatch) -> None:
        """Handle a control batch, which ends a transaction of its producer."""
        self._begin_aborted_up_to(batch.last_offset)
        if batch.producer_id in self._aborted_producer_ids:
            record = batch.first_record()
            key = None if record is None else record.key
            if key is not None and key[2:4] == _ABORT:
                self._aborted_producer_ids.discard(batch.producer_id)

    def _is_aborted(self, batch: AnyRecordBatch) -> bool:
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

    def __init__(self, log_context: LogContext) -> None:
        self._log = log_context.logger(__name__)
        #: The queue. Only this class changes it.
        self.completed: deque[CompletedFetch] = deque()
        self._queued: set[CompletedFetch] = set()  # the members of completed, for fast lookup
        self.next_in_line_fetch: CompletedFetch | None = None
        #: A number that changes whenever a fetch leaves the queue.
        self.removals = 0

    def has_completed_fetches(self, predicate: Callable[[CompletedFetch], bool]) -> bool:
        return any(map(predicate, self.completed))

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


#: After these errors a new leader or fresh metadata is enough; by code, the level of the log. A warning says that the
#: topic may have been deleted for good.
MENDED_BY_METADATA = {
    errors.NotLeaderOrFollowerError.code: logging.DEBUG,
    errors.LeaderNotAvailableError.code: logging.DEBUG,
    errors.ReplicaNotAvailableError.code: logging.DEBUG,
    errors.KafkaStorageError.code: logging.DEBUG,
    errors.FencedLeaderEpochError.code: logging.DEBUG,
    errors.OffsetNotAvailableError.code: logging.DEBUG,
    errors.UnknownTopicOrPartitionError.code: logging.WARNING,
    errors.UnknownTopicIdError.code: logging.WARNING,
    errors.InconsistentTopicIdError.code: logging.WARNING,
}


class FetchCollector:
    """Takes buffered records and advances the positions past them. Thread: application."""

    def __init__(
        self,
        context: FetchContext,
        fetch_config: FetchConfig,
        deserializers: Deserializers,
        metrics_manager: FetchMetricsManager,
    ) -> None:
        self._log = context.log_context.logger(__name__)
        self._metadata = context.metadata
        self._subscriptions = context.subscriptions
        self._clock = context.clock
        self._config = fetch_config
        self._last_taken: CompletedFetch | None = None
        self._sampled_ms: int | None = None  # when the present call has recorded lag and lead
        self._wall_ms: int | None = None  # when the present call has first stored offsets, since the epoch
        self._unknown: set[TopicPartition] = set()  # partitions that brokers did not know at their last fetch
        self._deserializers = deserializers
        self._metrics_manager = metrics_manager

    def collect_fetch(
        self,
        fetch_buffer: FetchBuffer,
        fetch: Fetch,
        max_records: int | None = None,
        partitions: Collection[TopicPartition] | None = None,
    ) -> Fetch:
        """Move records into ``fetch`` until it has ``max_records`` (``max.poll.records``), and the positions past them.

        Only records and errors of ``partitions`` are taken, if they are given; the others stay in the buffer.

        Errors are raised only if there is no record before them to return.

        Raises:
            KafkaError: a broker returned an error, or bytes are unreadable.
        """
        config, deserializers = self._config, self._deserializers

        def take(completed: CompletedFetch, wanted: int) -> None:
            records = completed.fetch_records(config, deserializers, wanted)
            if fetch.records:
                fetch.add(completed.partition, records)
            elif records:  # the same, without the call
                fetch.records[completed.partition] = records
                fetch.num_records = len(records)

        limit = config.max_poll_records if max_records is None else max_records
        self._collect(fetch_buffer, fetch, limit, take, partitions)
        return fetch

    def collect_columns(self, fetch_buffer: FetchBuffer, fetch: ColumnsFetch, max_rows: int) -> ColumnsFetch:
        """Move up to ``max_rows`` rows into the columns of ``fetch``, or until they are full.

        A partition that has reached its end in ``fetch.until`` is paused.
        """

        def take(completed: CompletedFetch, wanted: int) -> None:
            end_offset = fetch.end_offset(completed.partition) if fetch.until else MAX_INT64
            fetch.num_records += completed.fetch_columns(self._config, fetch.columns, wanted, end_offset)
            fetch.is_full = fetch.columns.is_full

        self._collect(fetch_buffer, fetch, max_rows, take)
        return fetch

    def _collect(
        self,
        fetch_buffer: FetchBuffer,
        fetch: AnyFetch,
        limit: int,
        take: Callable[[CompletedFetch, int], None],
        partitions: Collection[TopicPartition] | None = None,
    ) -> None:
        set_aside: list[CompletedFetch] = []
        try:
            while (remaining := limit - fetch.num_records) > 0 and not fetch.is_full:
                next_in_line = fetch_buffer.next_in_line_fetch
                if next_in_line is None or next_in_line.is_consumed:
                    completed = fetch_buffer.peek()
                    if completed is None:
                        break
                    if partitions is not None and completed.partition not in partitions:
                        # Its error, if it has one, is for the calls that ask for this partition.
                        fetch_buffer.poll()
                        set_aside.append(completed)
                    elif not self._next_in_line(fetch_buffer, completed, fetch):
                        break
                    continue
                tp = next_in_line.partition
                position = self._subscriptions.fetchable_position(tp)
                if (position is None and self._subscriptions.is_paused(tp)) or (
                    partitions is not None and tp not in partitions
                ):
                    # Back into the buffer, because the partition may be resumed or asked for before the next poll.
                    set_aside.append(next_in_line)
                    fetch_buffer.next_in_line_fetch = None
                elif not self._take(next_in_line, position, remaining, fetch, take):
                    break
        finally:
            if set_aside:
                fetch_buffer.add_all(set_aside)
            self._wall_ms = None
            if self._sampled_ms is not None:
                self._metrics_manager.record_extremes(self._sampled_ms)
                self._sampled_ms = None

    def _next_in_line(self, fetch_buffer: FetchBuffer, completed: CompletedFetch, fetch: AnyFetch) -> bool:
        """Make ``completed`` the next in line. Return False for an error that must wait, as records come first."""
        if completed.is_initialized:
            fetch_buffer.next_in_line_fetch = completed
        else:
            try:
                fetch_buffer.next_in_line_fetch = self.initialize(completed)
            except KafkaError:
                # An error without records is raised once. An error that comes after records is kept for the next poll.
                # A partition with unreadable records raises its error until the position moves past them.
                if not fetch.is_empty:
                    return False
                if not completed.size_in_bytes:
                    fetch_buffer.poll()
                raise
        fetch_buffer.poll()
        return True

    def _take(
        self,
        completed: CompletedFetch,
        position: FetchPosition | None,
        wanted: int,
        fetch: AnyFetch,
        take: Callable[[CompletedFetch, int], None],
    ) -> bool:
        """Take records of ``completed`` and move the position past them; None: it is not fetchable.

        Return False for an error that must wait for the next poll, because there are records to return before it.
        """
        tp = completed.partition
        subscriptions = self._subscriptions
        if position is None:
            # A rebalance, a reset or a new subscription came between the response and this poll.
            self._log.debug("Not returning fetched records of %s, which is no longer fetchable", tp)
            completed.drain()
            return True
        if completed.next_fetch_offset != position.offset:
            self._log.debug(
                "Not returning %s from %d, the position is now %s", tp, completed.next_fetch_offset, position
            )
            completed.drain()
            return True
        if position.topic_id is not completed.topic_id and position.is_of_another_topic(completed.topic_id):
            self._log.debug("Not returning %s from %d of a topic that was deleted", tp, completed.next_fetch_offset)
            completed.drain()
            return True
        # Before anything moves: if a signal handler raises below, the next call rewinds to this position.
        fetch.first_positions.setdefault(tp, position)
        try:
            take(completed, wanted)
        except IllegalStateError:
            # A signal handler called the consumer, maybe after records were added and before the position moves.
            raise
        except KafkaError:
            if fetch.is_empty:
                raise
            return False
        if completed.next_fetch_offset > position.offset:
            subscriptions.advance(tp, completed.next_fetch_offset, completed.last_epoch)
            fetch.position_advanced = True
        if fetch.until and max(completed.next_fetch_offset, position.offset) >= fetch.end_offset(tp):
            subscriptions.pause(tp)
        if completed is not self._last_taken or completed.is_consumed:
            # Lag and lead change evenly between the first and the last poll of the data of one response.
            self._last_taken = completed
            if self._sampled_ms is None:
                self._sampled_ms = self._clock.now_ms()
            lag, lead = subscriptions.lag_and_lead(tp, self._config.isolation_level)
            self._metrics_manager.record_partition(tp, lag, lead, self._sampled_ms)
        return True

    def initialize(self, completed: CompletedFetch) -> CompletedFetch | None:
        """Apply the metadata of a response. Return None if the response does not fit the current position."""
        tp = completed.partition
        code = completed.partition_data.error_code
        usable = False
        try:
            position = self._subscriptions.valid_position_or_none(tp)
            if position is None:
                self._log.debug("Dropping fetched records of %s, which no longer has a valid position", tp)
            elif position.topic_id is not completed.topic_id and position.is_of_another_topic(completed.topic_id):
                self._log.debug("Dropping data of %s that was fetched before the topic was deleted", tp)
            elif code:
                self._handle_error(completed, code)
            else:
                usable = self._handle_success(completed, position)
        finally:
            if not usable:
                completed.record_aggregated_metrics(0, 0)
            if code:
                self._subscriptions.move_partition_to_end(tp)
        completed.is_initialized = usable
        return completed if usable else None

    def _handle_success(self, completed: CompletedFetch, position: FetchPosition) -> bool:
        """Store the offsets of a response. Return False if its records are not those of the current position."""
        tp = completed.partition
        self._unknown.discard(tp)
        if position.offset != completed.next_fetch_offset:
            self._log.debug("Dropping %s from %d, the position is now %s", tp, completed.next_fetch_offset, position)
            return False
        if completed.size_in_bytes and not completed.has_batches():
            # Since KIP-74 a broker sends at least one whole batch, however large.
            raise KafkaError(
                f"no progress in {tp} at offset {completed.next_fetch_offset}: the broker sent "
                f"{completed.size_in_bytes} bytes without a complete batch"
            )
        data = completed.partition_data
        if self._wall_ms is None:
            self._wall_ms = self._clock.wall_ms()
        assigned = self._subscriptions.try_updating_offsets(
            tp,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            last_stable_offset=data.last_stable_offset,
            wall_ms=self._wall_ms,
        )
        if assigned and data.preferred_read_replica >= 0:
            expires_ms = self._clock.now_ms() + self._metadata.metadata_expire_ms
            assigned = self._subscriptions.try_updating_preferred_read_replica(
                tp, data.preferred_read_replica, expires_ms
            )
            self._log.debug("Reading %s from replica %d", tp, data.preferred_read_replica)
        return assigned

    def _handle_error(self, completed: CompletedFetch, code: int) -> None:
        """Handle a partition's error: find the leader, reset the position, or raise it to the application."""
        tp, offset = completed.partition, completed.next_fetch_offset
        error = errors.for_code(code)
        level = MENDED_BY_METADATA.get(code)
        if level is not None:
            if level == logging.WARNING:
                # Warn once, and not for each retry, until the partition is back.
                level = logging.DEBUG if tp in self._unknown else logging.WARNING
                self._unknown.add(tp)
            self._log.log(level, "Fetch of %s at %d: %s", tp, offset, error)
            request_metadata_update(self._metadata, self._subscriptions, tp)
        elif code == errors.OffsetOutOfRangeError.code:
            self._handle_offset_out_of_range(tp, offset)
        elif code == errors.TopicAuthorizationError.code:
            self._log.warning("Not authorized to read %s", tp)
            raise topics_denied(self._log.principal, [tp.topic], "READ")
        elif code == errors.UnknownLeaderEpochError.code:
            self._log.debug("The leader of %s does not know its epoch yet", tp)
        elif code == errors.UnknownServerError.code:
            self._log.warning("Fetch of %s at offset %d failed: the broker had an unexpected error", tp, offset)
        elif code == errors.CorruptRecordError.code:
            raise KafkaError(f"the broker reports that its log of {tp} is corrupt at offset {offset}")
        else:
            raise IllegalStateError(f"unexpected error in the fetch of {tp} at offset {offset}: {error!r}")

    def _handle_offset_out_of_range(self, tp: TopicPartition, offset: int) -> None:
        replica = self._subscriptions.clear_preferred_read_replica(tp)
        if replica is not None:
            # A follower may lag behind; the leader decides.
            self._log.debug("Offset %d of %s is out of range at replica %d, asking the leader", offset, tp, replica)
            return
        position = self._subscriptions.position_or_none(tp)
        if position is None or position.offset != offset:
            self._log.debug("Dropping %s from %d, the position is now %s", tp, offset, position)
        elif self._subscriptions.has_default_offset_reset_policy():
            self._log.info("Position %s of %s is out of range; resetting it", position, tp)
            self._subscriptions.request_offset_reset((tp,))
        else:
            raise OffsetOutOfRangeError(
                f"position {offset} of {tp} is out of range and auto.offset.reset is 'none'; "
                f"seek() to the offset to continue at",
                {tp: offset},
            )


Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]


class _Chunk:
    """Records of one partition, and the position after them. The iterator counts the records it has returned."""

    __slots__ = ("iterator", "position", "records", "tp")

    def __init__(
        self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]], position: FetchPosition, next_index: int = 0
    ) -> None:
        self.tp = tp
        self.records = records
        self.position = position
        self.iterator: Any = iter(records)
        if next_index:
            self.skip_to(next_index)

    @property
    def left(self) -> int:
        """Return the number of records that are left."""
        return length_hint(self.iterator)

    @property
    def next_index(self) -> int:
        return len(self.records) - self.left

    @property
    def next_position(self) -> FetchPosition:
        """Return the position of the first record that is left."""
        record = self.records[self.next_index]
        return self.position._replace(offset=record.offset, offset_epoch=record.leader_epoch)

    def skip_to(self, index: int) -> None:
        """Continue at ``index``, also in a loop over the iterator."""
        self.iterator.__setstate__(index)


class UndeliveredRecords:
    """A queue of chunks, the first of which is being iterated, and the fetch that is being returned.

    Thread: application.
    """

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._fetch: AnyFetch | None = None
        self._handled: int | None = None  # id of the exception that was being handled when the fetch began
        self._held_back: dict[TopicPartition, FetchPosition] = {}

    # --- the fetch that is being returned ----------------------------------------------------------------------------

    def begin(self, fetch: AnyFetch) -> bool:
        """Commit only up to the start of ``fetch`` until it is marked as returned.

        Return whether records wait for a loop.
        """
        while self._chunks and not self._chunks[0].left:
            self._chunks.popleft()
        fetch.first_positions.clear()  # from an earlier attempt that found nothing
        error = sys.exc_info()[1]
        self._handled = None if error is None else id(error)
        self._fetch = fetch
        return bool(self._chunks)

    def hold_back_last(self) -> None:
        """Exclude the records that the application got last from commits if an exception is being handled.

        The exception interrupted their processing. They are the last record of a loop, or the records of the last poll,
        unless the application has called ``commit`` since then. An exception that the application was already handling
        when it got them does not count.
        """
        error = sys.exc_info()[1]
        if error is None or isinstance(error, GeneratorExit) or id(error) == self._handled:
            return
        if self._fetch is not None:
            self._fetch.returned = False
        else:
            self._held_back = self.positions_at_hand()

    @property
    def unreturned(self) -> AnyFetch | None:
        """The fetch whose records did not reach the application, or None."""
        fetch = self._fetch
        return None if fetch is None or fetch.returned else fetch

    def has_unreturned(self) -> bool:
        """Return whether the records of the last fetch did not reach the application."""
        fetch = self._fetch
        return fetch is not None and not fetch.returned

    def end(self) -> None:
        """Forget the fetch: its positions were rewound, it was empty, or the application has committed."""
        self._fetch = None

    # --- records that wait for a loop --------------------------------------------------------------------------------

    def fill(self, fetch: Fetch, position_of: Callable[[TopicPartition], FetchPosition | None]) -> None:
        """Queue the records of ``fetch`` for a loop. From then on the queue limits commits, not the fetch."""
        chunks = [
            _Chunk(tp, records, position)
            for tp, records in fetch.records.items()
            if records and (position := position_of(tp)) is not None
        ]
        self._chunks.extend(chunks)
        fetch.returned = True
        self._fetch = None

    def next_iterator(self) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """Return an iterator over the next records, or None if no record waits. An abandoned loop resumes."""
        chunks = self._chunks
        while chunks:
            first = chunks[0]
            if first.left:
                iterator: Iterator[ConsumerRecord[Any, Any]] = first.iterator
                return iterator
            if chunks and chunks[0] is first:  # unless a signal handler has polled in between
                chunks.popleft()
        return None

    def split(self) -> None:
        """End the current iterator after the loop's current record, so that the loop asks for another iterator."""
        if self._chunks and self._chunks[0].left:
            first = self._chunks[0]
            self._replace_first(_Chunk(first.tp, first.records, first.position, first.next_index))

    def next_single(self) -> Iterator[ConsumerRecord[Any, Any]] | None:
        """Return an iterator over one record, or None if no record waits."""
        iterator = self.next_iterator()
        if iterator is None or length_hint(iterator) == 1:
            return iterator
        first = self._chunks[0]
        index = first.next_index
        begin = max(0, index - 1)  # with the record before it, which may have to be held back
        single = _Chunk(first.tp, first.records[begin : index + 1], first.position, index - begin)
        self._replace_first(single, _Chunk(first.tp, first.records, first.position, index + 1))
        return single.iterator  # type: ignore[no-any-return]

    def _replace_first(self, *chunks: _Chunk) -> None:
        first, *others = self._chunks
        # In one step: no record is there twice, or not at all, wherever a signal handler raises.
        self._chunks = deque((*chunks, *others))
        first.skip_to(len(first.records))

    def take(self, fetch: Fetch, limit: int, partitions: Collection[TopicPartition] | None = None) -> None:
        """Move up to ``limit`` waiting records, only of ``partitions`` if given, into ``fetch``, which has begun."""
        for chunk in self._pending():
            if partitions is not None and chunk.tp not in partitions:
                continue
            wanted = limit - fetch.num_records
            if wanted <= 0:
                break
            index = chunk.next_index
            records = chunk.records[index : index + wanted]
            # The fetch holds commits back before the queue releases the records.
            fetch.first_positions.setdefault(chunk.tp, chunk.next_position)
            fetch.add(chunk.tp, records)
            fetch.has_waited = True
            chunk.skip_to(index + len(records))

    def _pending(self) -> list[_Chunk]:
        return [chunk for chunk in self._chunks if chunk.left] if self._chunks else []

    @property
    def is_empty(self) -> bool:
        """True if no record waits for a loop."""
        return not self._chunks or not self._pending()

    def positions_behind(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position after the waiting records, for each partition that has some."""
        return {chunk.tp: chunk.position for chunk in self._pending()}

    def waiting_positions(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position of the first waiting record, for each partition that has some."""
        positions: dict[TopicPartition, FetchPosition] = {}
        for chunk in self._pending():
            if chunk.tp not in positions:
                positions[chunk.tp] = chunk.next_position
        return positions

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the waiting records of ``partitions``; a loop over them continues with others."""
        for chunk in self._chunks:
            if chunk.tp in partitions:
                chunk.skip_to(len(chunk.records))

    def clear(self) -> None:
        """Drop all waiting records."""
        for chunk in self._chunks:
            chunk.skip_to(len(chunk.records))

    # --- offsets to commit -------------------------------------------------------------------------------------------

    def positions_at_hand(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position of the first record of each partition that the application got last.

        These are the records of the last poll, or the last record of a loop.
        """
        if self._fetch is not None:
            return self._fetch.first_positions
        if self._chunks and (index := self._chunks[0].next_index):
            first = self._chunks[0]
            record = first.records[index - 1]
            return {first.tp: first.position._replace(offset=record.offset, offset_epoch=record.leader_epoch)}
        return {}

    def next_positions(self) -> dict[TopicPartition, FetchPosition]:
        """Return the position of the application's next record, for partitions whose position is past it."""
        positions = self.waiting_positions()
        fetch = self.unreturned
        if fetch is not None:
            positions.update(fetch.first_positions)
        positions.update(self._held_back)
        return positions
