"""Acquired records on their way from a response to a poll of a share consumer.

Java: ShareFetch, ShareCompletedFetch, ShareFetchBuffer, ShareFetchCollector.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pykclient import errors
from pykclient.caused_errors import caused_by, innermost, load_of
from pykclient.consumer.fetch_collector import MENDED_BY_METADATA
from pykclient.consumer.share.acknowledgements import GAP, Acknowledgements, AcknowledgeType, NodeAcknowledgements
from pykclient.network.failures import topics_denied
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.record_batch import MAX_INT32, MAX_INT64, CursorOwner
from pykclient.serialization import definition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from pykclient.consumer.consumer_metrics import FetchMetricsAggregator
    from pykclient.consumer.fetch_collector import Deserializers, FetchContext
    from pykclient.consumer.values import FetchConfig
    from pykclient.protocol.messages.share_fetch import ShareFetchResponse
    from pykclient.record.memory_records import AnyRecordBatch
    from pykclient.types import ConsumerRecord, TopicIdPartition, TopicPartition


class ShareInFlightBatch:
    """The records of one partition that are locked for this consumer (Java: ShareInFlightBatch).

    ``in_flight`` are the records to be acknowledged, by offset. Thread: application.
    """

    def __init__(self, node_id: int, partition: TopicIdPartition) -> None:
        self.node_id = node_id
        self.partition = partition
        self.in_flight: dict[int, ConsumerRecord[Any, Any]] = {}
        self.acknowledgements = Acknowledgements()  # not on their way yet
        #: Offsets of records that could not be delivered. The application may change their acknowledgement.
        self.failed_offsets: frozenset[int] = frozenset()
        self._acknowledged: set[int] = set()  # offsets in in_flight
        self._renewing: dict[int, ConsumerRecord[Any, Any]] = {}
        self._renewed: dict[int, ConsumerRecord[Any, Any]] = {}

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to process and nothing to acknowledge."""
        return not self.in_flight and not self.acknowledgements

    @property
    def has_renewals(self) -> bool:
        """True if locks of records are being renewed, or were since the last poll."""
        return bool(self._renewing) or bool(self._renewed)

    @property
    def unacknowledged(self) -> int:
        """The number of records in flight that are not acknowledged."""
        return len(self.in_flight) - len(self._acknowledged)

    def add(self, record: ConsumerRecord[Any, Any]) -> None:
        self.in_flight[record.offset] = record

    def add_gap(self, offset: int) -> None:
        """Acknowledge an offset without a record, for instance after compaction."""
        self.acknowledgements.types[offset] = GAP

    def fail(self, offsets: frozenset[int], kind: AcknowledgeType) -> None:
        """Acknowledge records that could not be delivered."""
        self.failed_offsets = offsets
        self.acknowledgements.types.update(dict.fromkeys(offsets, int(kind)))

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record in flight."""
        self.acknowledgements.types[offset] = int(kind)
        self._acknowledged.add(offset)

    def acknowledge_failed(self, offset: int, kind: AcknowledgeType) -> bool:
        """Change the acknowledgement of a record that could not be delivered; return False if it is not one."""
        if offset not in self.failed_offsets:
            return False
        self.acknowledgements.types[offset] = int(kind)
        return True

    def acknowledge_rest(self, kind: AcknowledgeType, except_offsets: Set[int] = frozenset()) -> None:
        """Acknowledge all records in flight that are not acknowledged yet, without ``except_offsets``."""
        types = self.acknowledgements.types
        for offset in self.in_flight:
            if offset not in types and offset not in except_offsets:
                types[offset] = int(kind)
                self._acknowledged.add(offset)

    def merge(self, other: ShareInFlightBatch) -> None:
        """Add the records of another response."""
        self.in_flight.update(other.in_flight)
        self.acknowledgements.merge(other.acknowledgements)
        self.failed_offsets |= other.failed_offsets

    def take_acknowledged(self) -> Acknowledgements:
        """Return the acknowledgements to send, and drop their records."""
        taken, self.acknowledgements = self.acknowledgements, Acknowledgements()
        for offset in self._acknowledged:
            record = self.in_flight.pop(offset)
            if taken.types[offset] == AcknowledgeType.RENEW:
                self._renewing[offset] = record
        self._acknowledged = set()
        self.failed_offsets = frozenset()
        return taken

    def renewed(self, acknowledgements: Acknowledgements) -> None:
        """Process the broker's answer to acknowledgements, which may include renewals."""
        for offset, kind in acknowledgements.types.items():
            record = self._renewing.pop(offset, None)
            if record is not None and kind == AcknowledgeType.RENEW and acknowledgements.error is None:
                self._renewed[offset] = record

    def take_renewed(self) -> None:
        """Put records with renewed locks back in flight."""
        if self._renewed:
            self.in_flight = dict(sorted({**self.in_flight, **self._renewed}.items()))
            self._renewed = {}


class ShareFetch:
    """The records in flight of all partitions (Java: ShareFetch).

    While ``returned`` is False, the records have not reached the application, so they are not acknowledged. ``error``
    is to be raised instead of returning records. Thread: application.
    """

    def __init__(self) -> None:
        self._batches: dict[TopicPartition, ShareInFlightBatch] = {}
        #: The period of the records' locks in milliseconds, if the broker has told it.
        self.lock_timeout_ms: int | None = None
        self.error: errors.KafkaError | None = None
        self.returned = False

    def can_add(self, node_id: int, partition: TopicIdPartition) -> bool:
        """Return False if the records' broker or topic differs from that of the partition so far.

        Their acknowledgements go to the broker that has delivered them.
        """
        present = self._batches.get(partition.topic_partition)
        return present is None or (present.node_id, present.partition) == (node_id, partition)

    def add(self, batch: ShareInFlightBatch, lock_timeout_ms: int | None) -> None:
        """Add the records of one response."""
        present = self._batches.get(batch.partition.topic_partition)
        if present is None:
            self._batches[batch.partition.topic_partition] = batch
        else:
            present.merge(batch)
        if lock_timeout_ms is not None:
            self.lock_timeout_ms = lock_timeout_ms

    @property
    def records(self) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """The records in flight by partition."""
        return {tp: list(batch.in_flight.values()) for tp, batch in self._batches.items() if batch.in_flight}

    @property
    def num_records(self) -> int:
        """The number of records in flight."""
        return sum(len(batch.in_flight) for batch in self._batches.values())

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to process, to acknowledge or to renew."""
        return all(batch.is_empty and not batch.has_renewals for batch in self._batches.values())

    @property
    def unacknowledged(self) -> int:
        """The number of records in flight that are not acknowledged."""
        return sum(batch.unacknowledged for batch in self._batches.values())

    def acknowledge(self, places: Iterable[tuple[TopicPartition, int]], kind: AcknowledgeType) -> None:
        """Acknowledge records in flight, given by partition and offset: all of them, or none if that fails.

        Raises:
            IllegalStateError: a record is not in flight.
        """
        found: list[tuple[ShareInFlightBatch, int]] = []
        for tp, offset in places:
            batch = self._batches.get(tp)
            if batch is None or offset not in batch.in_flight:
                raise errors.IllegalStateError(
                    f"the record at offset {offset} of {tp} cannot be acknowledged: it is not one of those that the "
                    "last poll() returned, its acknowledgement has been sent, or an exception of a signal handler has "
                    "interrupted a call, which released its lock. Acknowledge each record before the next poll() or "
                    "commit"
                )
            found.append((batch, offset))
        for batch, offset in found:
            batch.acknowledge(offset, kind)

    def acknowledge_failed(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that the last poll could not deliver.

        Raises:
            IllegalStateError: the last poll has not raised an error for this record.
        """
        batch = self._batches.get(tp)
        if batch is None or not batch.acknowledge_failed(offset, kind):
            raise errors.IllegalStateError(
                f"the record at offset {offset} of {tp} cannot be acknowledged by its offset: that is for records for "
                "which the last poll() has raised an error, such as RecordDeserializationError. Pass other records "
                "as acknowledge(record, type)"
            )

    def acknowledge_rest(self, kind: AcknowledgeType, waiting: Mapping[TopicPartition, Set[int]]) -> None:
        """Acknowledge all records that are not acknowledged yet, except those that wait for a loop."""
        for tp, batch in self._batches.items():
            batch.acknowledge_rest(kind, waiting.get(tp, frozenset()))

    def take_acknowledged(self) -> list[NodeAcknowledgements]:
        """Return the acknowledgements to send, and drop their records."""
        taken = []
        for batch in self._batches.values():
            acknowledgements = batch.take_acknowledged()
            if acknowledgements:
                taken.append(NodeAcknowledgements(batch.node_id, batch.partition, acknowledgements))
        return taken

    def renewed(
        self, partition: TopicIdPartition, acknowledgements: Acknowledgements, lock_timeout_ms: int | None
    ) -> None:
        """Process the broker's answer to acknowledgements, which may include renewals."""
        batch = self._batches.get(partition.topic_partition)
        if batch is not None and batch.partition == partition and batch.has_renewals:
            batch.renewed(acknowledgements)
            if lock_timeout_ms is not None:
                self.lock_timeout_ms = lock_timeout_ms

    def take_renewed(self) -> None:
        """Put records with renewed locks back in flight."""
        for batch in self._batches.values():
            batch.take_renewed()

    @property
    def has_renewals(self) -> bool:
        """True if locks of records are being renewed, or were since the last poll."""
        return any(batch.has_renewals for batch in self._batches.values())


#: Far more than a broker locks for one partition (``group.share.partition.max.record.locks``).
MAX_ACQUIRED = 1_000_000


class ShareCompletedFetch:
    """The batches of one partition, and which of their records are acquired for this consumer.

    A response has whole batches, also with records that are acquired for others. An acquired offset without a record
    is a gap. The locks have expired by ``lock_end_ms``. Thread: application.
    """

    def __init__(
        self,
        node_id: int,
        partition: TopicIdPartition,
        partition_data: ShareFetchResponse.PartitionData,
        lock_timeout_ms: int | None,
        lock_end_ms: int,
        metric_aggregator: FetchMetricsAggregator,
    ) -> None:
        self.node_id = node_id
        self.partition = partition
        self.partition_data = partition_data
        self.lock_timeout_ms = lock_timeout_ms
        self.lock_end_ms = lock_end_ms
        self._metric_aggregator = metric_aggregator
        self.is_consumed = False
        self._records = MemoryRecords(partition_data.records) if partition_data.records else MemoryRecords.EMPTY
        self._position = 0  # of the next batch
        # The acquired records of the last batch that are not deserialized yet.
        self._pending: deque[ConsumerRecord[Any, Any]] = deque()
        #: The part of the next record that cannot be read, and why: what its deserializer needs could not be loaded.
        self._load_failure: tuple[str, Exception] | None = None
        self._acquired = self._acquired_offsets()
        self._records_read = self._bytes_read = 0

    def _acquired_offsets(self) -> deque[tuple[int, int]]:
        """Return the acquired offsets with their delivery counts, in ascending order.

        Raises:
            RemoteProtocolError: they are more than any broker acquires.
        """
        ranges = self.partition_data.acquired_records
        if sum(max(0, each.last_offset - each.first_offset + 1) for each in ranges) > MAX_ACQUIRED:
            raise errors.RemoteProtocolError(
                f"the broker claims to have acquired more than {MAX_ACQUIRED} records of "
                f"{self.partition.topic_partition} for one fetch"
            )
        acquired: dict[int, int] = {}
        for each in ranges:
            for offset in range(each.first_offset, each.last_offset + 1):
                acquired.setdefault(offset, each.delivery_count)
        return deque(sorted(acquired.items()))

    def fetch_records(
        self, config: FetchConfig, deserializers: Deserializers, max_records: int, *, may_fail: bool
    ) -> tuple[ShareInFlightBatch, errors.KafkaError | None]:
        """Return at least ``max_records`` records, if there are as many, up to the end of a batch.

        If the next record cannot be read, it is acknowledged, and returned is the error to raise. That happens only
        with ``may_fail`` and if there is no record before it to return. If its deserializer must load something first
        (the error's cause has ``load``), the record stays the next one.
        """
        result = ShareInFlightBatch(self.node_id, self.partition)
        try:
            while self._pending or len(result.in_flight) < max_records:
                if self._pending:
                    self._deliver(result, deserializers)
                elif not self._next_batch(config, result):
                    break
        except _UnreadableError as unreadable:
            if not may_fail or result.in_flight:
                return result, None
            if not unreadable.is_waiting:
                self._skip(unreadable, result)
            return result, unreadable.error
        return result, None

    def load_failed(self, part: str, failure: Exception) -> None:
        """Fail the next record: what the deserializer of its key or value needs could not be loaded."""
        self._load_failure = (part, failure)

    def drain(self) -> None:
        """Release the response, and record metrics of what was read from it."""
        if not self.is_consumed:
            self.is_consumed = True
            self._records = MemoryRecords.EMPTY
            self.partition_data.records = None
            self._metric_aggregator.record(self.partition.topic_partition, self._bytes_read, self._records_read)

    def release(self) -> ShareInFlightBatch:
        """Release all records that were not returned, and drain."""
        result = ShareInFlightBatch(self.node_id, self.partition)
        offsets = [record.offset for record in self._pending] + [offset for offset, _ in self._acquired]
        result.fail(frozenset(offsets), AcknowledgeType.RELEASE)
        self._pending.clear()
        self._acquired.clear()
        self.drain()
        return result

    # --- records -----------------------------------------------------------------------------------------------------

    def _deliver(self, result: ShareInFlightBatch, deserializers: Deserializers) -> None:
        """Deserialize the next record and add it to ``result``."""
        record = self._pending[0]
        key, value, part = record.key, record.value, "key"
        failure, self._load_failure = self._load_failure, None
        try:
            if failure is not None:
                part = failure[0]
                raise failure[1]
            if key is not None and deserializers.key is not None:
                key = deserializers.key(record.topic, record.headers, key)
            part = "value"
            if value is not None and deserializers.value is not None:
                value = deserializers.value(record.topic, record.headers, value)
        except Exception as error:
            made = self._deserialization_error(record, part, deserializers, error)
            raise _UnreadableError(made, is_waiting=load_of(error) is not None) from error
        record.key = key
        record.value = value
        result.add(record)
        self._pending.popleft()
        self._records_read += 1
        self._bytes_read += max(0, record.serialized_key_size) + max(0, record.serialized_value_size)

    def _deserialization_error(
        self, record: ConsumerRecord[Any, Any], part: str, deserializers: Deserializers, error: Exception
    ) -> errors.RecordDeserializationError:
        tp, offset = self.partition.topic_partition, record.offset
        deserializer = deserializers.key if part == "key" else deserializers.value
        assert deserializer is not None
        failure = errors.RecordDeserializationError(
            f"the {part} of the record at offset {offset} of {tp} cannot be deserialized by "
            f"{definition_of(deserializer)}: {type(error).__name__}: {error}. The record is released, so that it is "
            "delivered again until the group's limit of deliveries; with share.acknowledgement.mode=explicit, "
            f"acknowledge({tp.topic!r}, {tp.partition}, {offset}, AcknowledgeType.REJECT) discards it",
            tp,
            offset,
            part,
            record,
        )
        failure.__cause__ = error
        made = caused_by(failure, innermost(error))
        made.__cause__ = error
        return made

    # --- batches -----------------------------------------------------------------------------------------------------

    def _next_batch(self, config: FetchConfig, result: ShareInFlightBatch) -> bool:
        """Decode the next batch into ``_pending``. Return False at the end, where all that remains are gaps."""
        try:
            batch = self._records.batch_at(self._position)
        except errors.KafkaError as error:
            raise _UnreadableError(self._unreadable(error), self._acquired_until(MAX_INT64), is_batch=False) from error
        if batch is None:
            while self._acquired:
                result.add_gap(self._acquired.popleft()[0])
            self.drain()
            return False
        try:
            if config.check_crcs:
                batch.ensure_valid()
            records = [] if batch.is_control_batch else self._decode(batch, config)
        except errors.KafkaError as error:
            raise _UnreadableError(self._unreadable(error, batch), self._acquired_until(batch.last_offset)) from error
        self._position += len(batch.buffer)
        acquired = self._acquired
        for record in records:
            while acquired and acquired[0][0] < record.offset:
                result.add_gap(acquired.popleft()[0])
            if acquired and acquired[0][0] == record.offset:
                record.delivery_count = acquired.popleft()[1]
                self._pending.append(record)
        while acquired and acquired[0][0] <= batch.last_offset:
            result.add_gap(acquired.popleft()[0])
        return True

    def _decode(self, batch: AnyRecordBatch, config: FetchConfig) -> list[ConsumerRecord[Any, Any]]:
        """Return the records of a batch from the first acquired one on, with keys and values as bytes."""
        if not self._acquired:
            return []
        owner = CursorOwner(*self.partition.topic_partition)
        cursor = batch.cursor(owner, self._acquired[0][0], config.max_decompressed_bytes)
        records: list[ConsumerRecord[Any, Any]] = []
        while not cursor.exhausted:
            records += cursor.next_records(MAX_INT32)
        return records

    def _acquired_until(self, last_offset: int) -> frozenset[int]:
        return frozenset(offset for offset, _ in self._acquired if offset <= last_offset)

    def _unreadable(self, error: errors.KafkaError, batch: AnyRecordBatch | None = None) -> errors.KafkaError:
        """Return the error of a batch, or of bytes that are no batch."""
        tp = self.partition.topic_partition
        if batch is None:
            where, what = "", "All records that follow in the response are released"
        else:
            where = f" at offsets {batch.base_offset} to {batch.last_offset}"
            is_corrupt = isinstance(error, errors.CorruptRecordError)
            what = f"The acquired records of the batch are {'rejected' if is_corrupt else 'released'}"
        failure = (errors.CorruptRecordError if isinstance(error, errors.CorruptRecordError) else errors.KafkaError)(
            f"cannot read the records of {tp}{where}: {error}. {what}"
        )
        failure.__cause__ = error
        return failure

    def _skip(self, unreadable: _UnreadableError, result: ShareInFlightBatch) -> None:
        """Acknowledge what cannot be read, and go on behind it."""
        error = unreadable.error
        if isinstance(error, errors.RecordDeserializationError):
            result.fail(frozenset((self._pending.popleft().offset,)), AcknowledgeType.RELEASE)
            return
        batch = self._records.batch_at(self._position) if unreadable.is_batch else None
        kind = AcknowledgeType.RELEASE
        if batch is None:
            self._position = len(self._records.buffer)
        else:
            self._position += len(batch.buffer)
            if isinstance(error, errors.CorruptRecordError):
                kind = AcknowledgeType.REJECT
        result.fail(unreadable.offsets, kind)
        while self._acquired and self._acquired[0][0] in unreadable.offsets:
            self._acquired.popleft()

    def __repr__(self) -> str:
        return f"ShareCompletedFetch({self.partition}, from broker {self.node_id})"


class _UnreadableError(Exception):
    """A record, a batch, or bytes that are no batch (``is_batch`` is False), with the error to raise.

    ``is_waiting`` is True if the record can perhaps be read later.
    """

    def __init__(
        self,
        error: errors.KafkaError,
        offsets: frozenset[int] = frozenset(),
        *,
        is_batch: bool = True,
        is_waiting: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.offsets = offsets
        self.is_batch = is_batch
        self.is_waiting = is_waiting


class ShareFetchBuffer:
    """The responses that no poll has returned yet, by partition.

    ``add`` and ``clear`` belong to the holder of the I/O lease. Thread: application, for all else.
    """

    def __init__(
        self,
        context: FetchContext,
        config: FetchConfig,
        deserializers: Deserializers,
    ) -> None:
        self._clock = context.clock
        self._log = context.log_context.logger(__name__)
        self._metadata = context.metadata
        self._config = config
        self._deserializers = deserializers
        self._waiting: deque[ShareCompletedFetch] = deque()
        self._next_in_line: ShareCompletedFetch | None = None

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to return or to raise."""
        return not self._waiting and (self._next_in_line is None or self._next_in_line.is_consumed)

    def add(self, completed: ShareCompletedFetch) -> None:
        self._waiting.append(completed)

    def clear(self) -> None:
        """Drop everything, as the records are no longer locked for this consumer."""
        self._waiting.clear()
        self._next_in_line = None

    def load_failed(self, part: str, failure: Exception) -> None:
        """Fail the next record: what the deserializer of its key or value needs could not be loaded."""
        if self._next_in_line is not None:
            self._next_in_line.load_failed(part, failure)

    def release_all(self) -> list[NodeAcknowledgements]:
        """Drop everything, and return acknowledgements that release the records."""
        waiting = ([] if self._next_in_line is None else [self._next_in_line]) + list(self._waiting)
        self.clear()
        released = []
        for completed in waiting:
            fetch = ShareFetch()
            fetch.add(completed.release(), None)
            released += fetch.take_acknowledged()
        return released

    def collect(self) -> ShareFetch:
        """Return the records for one poll, of whole batches.

        An error is put into ``error`` of the result, and only if there is no record before it to return.
        """
        fetch = ShareFetch()
        while (wanted := self._config.max_poll_records - fetch.num_records) > 0:
            completed = self._next_in_line
            if completed is None or completed.is_consumed:
                if not self._waiting:
                    break
                completed = self._waiting[0]
                if completed.partition_data.error_code:
                    if not self._handle_error(completed, fetch):
                        break
                    continue
                self._next_in_line = self._waiting.popleft()
            if self._clock.now_ms() >= completed.lock_end_ms:
                # Other members may have processed them; if not, the broker delivers them again.
                tp = completed.partition.topic_partition
                self._log.info("Dropping fetched records of %s, as their locks expired before a poll took them", tp)
                completed.drain()
                continue
            if not fetch.can_add(completed.node_id, completed.partition):
                break  # the leader has changed; the next poll returns these
            batch, error = completed.fetch_records(
                self._config, self._deserializers, wanted, may_fail=not fetch.num_records
            )
            fetch.add(batch, completed.lock_timeout_ms)
            if error is not None:
                fetch.error = error
                break
            if not completed.is_consumed:
                break  # an error follows, or there are enough records
        return fetch

    def _handle_error(self, completed: ShareCompletedFetch, fetch: ShareFetch) -> bool:
        """Handle the error of a partition. Return False if it ends the collection."""
        tp = completed.partition.topic_partition
        error = errors.for_code(completed.partition_data.error_code, completed.partition_data.error_message)
        level = MENDED_BY_METADATA.get(completed.partition_data.error_code)
        if level is not None:
            self._log.log(level, "Fetching from %s failed, requesting metadata: %s", tp, error)
            self._metadata.request_update(False)
        elif isinstance(error, (errors.UnknownLeaderEpochError, errors.UnknownServerError)):
            self._log.warning("Fetching from %s failed: %s", tp, error)
        else:
            if fetch.num_records:
                return False  # the next poll raises it
            if isinstance(error, errors.TopicAuthorizationError):
                self._log.warning("Not authorized to read %s", tp)
                fetch.error = topics_denied(self._log.principal, [tp.topic], "READ")
            else:
                fetch.error = error
        self._waiting.popleft()
        completed.drain()
        return fetch.error is None
