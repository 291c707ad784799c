"""The records of one partition in a response, of which some are acquired (Java: ShareCompletedFetch)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pykclient.caused_errors import caused_by, innermost
from pykclient.consumer.share.acknowledge_type import AcknowledgeType
from pykclient.consumer.share.share_fetch import ShareInFlightBatch
from pykclient.errors import CorruptRecordError, KafkaError, RecordDeserializationError, RemoteProtocolError
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.record_batch import MAX_INT32, MAX_INT64, CursorOwner
from pykclient.serialization import definition_of

if TYPE_CHECKING:
    from pykclient.consumer.deserializers import Deserializers
    from pykclient.consumer.share.share_fetch_config import ShareFetchConfig
    from pykclient.consumer.share.share_metrics import ShareFetchMetricsAggregator
    from pykclient.protocol.messages.share_fetch import ShareFetchResponse
    from pykclient.record.record_batch import RecordBatch
    from pykclient.types import ConsumerRecord, TopicIdPartition

#: Far more than a broker locks for one partition (``group.share.partition.max.record.locks``).
MAX_ACQUIRED = 1_000_000


class ShareCompletedFetch:
    """The batches of one partition, and which of their records are acquired for this consumer.

    A response has whole batches, also with records that are acquired for others. An acquired offset without a record
    is a gap. The locks have expired by ``lock_end_ms``. Thread: application.
    """

    __slots__ = (
        "_acquired",
        "_bytes_read",
        "_metric_aggregator",
        "_pending",
        "_position",
        "_records",
        "_records_read",
        "is_consumed",
        "lock_end_ms",
        "lock_timeout_ms",
        "node_id",
        "partition",
        "partition_data",
    )

    def __init__(
        self,
        node_id: int,
        partition: TopicIdPartition,
        partition_data: ShareFetchResponse.PartitionData,
        lock_timeout_ms: int | None,
        lock_end_ms: int,
        metric_aggregator: ShareFetchMetricsAggregator,
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
        self._acquired = self._acquired_offsets()
        self._records_read = self._bytes_read = 0

    def _acquired_offsets(self) -> deque[tuple[int, int]]:
        """Return the acquired offsets with their delivery counts, in ascending order.

        Raises:
            RemoteProtocolError: they are more than any broker acquires.
        """
        ranges = self.partition_data.acquired_records
        if sum(max(0, each.last_offset - each.first_offset + 1) for each in ranges) > MAX_ACQUIRED:
            raise RemoteProtocolError(
                f"the broker claims to have acquired more than {MAX_ACQUIRED} records of "
                f"{self.partition.topic_partition} for one fetch"
            )
        acquired: dict[int, int] = {}
        for each in ranges:
            for offset in range(each.first_offset, each.last_offset + 1):
                acquired.setdefault(offset, each.delivery_count)
        return deque(sorted(acquired.items()))

    def fetch_records(
        self, config: ShareFetchConfig, deserializers: Deserializers, max_records: int, *, may_fail: bool
    ) -> tuple[ShareInFlightBatch, KafkaError | None]:
        """Return at least ``max_records`` records, if there are as many, up to the end of a batch.

        If the next record cannot be read, it is acknowledged, and returned is the error to raise. That happens only
        with ``may_fail`` and if there is no record before it to return.
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
            self._skip(unreadable, result)
            return result, unreadable.error
        return result, None

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
        try:
            if key is not None and deserializers.key is not None:
                key = deserializers.key(record.topic, record.headers, key)
            part = "value"
            if value is not None and deserializers.value is not None:
                value = deserializers.value(record.topic, record.headers, value)
        except Exception as error:
            raise _UnreadableError(self._deserialization_error(record, part, deserializers, error)) from error
        record.key = key
        record.value = value
        result.add(record)
        self._pending.popleft()
        self._records_read += 1
        self._bytes_read += max(0, record.serialized_key_size) + max(0, record.serialized_value_size)

    def _deserialization_error(
        self, record: ConsumerRecord[Any, Any], part: str, deserializers: Deserializers, error: Exception
    ) -> RecordDeserializationError:
        tp, offset = self.partition.topic_partition, record.offset
        deserializer = deserializers.key if part == "key" else deserializers.value
        assert deserializer is not None
        failure = RecordDeserializationError(
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

    def _next_batch(self, config: ShareFetchConfig, result: ShareInFlightBatch) -> bool:
        """Decode the next batch into ``_pending``. Return False at the end, where all that remains are gaps."""
        try:
            batch = self._records.batch_at(self._position)
        except KafkaError as error:
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
        except KafkaError as error:
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

    def _decode(self, batch: RecordBatch, config: ShareFetchConfig) -> list[ConsumerRecord[Any, Any]]:
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

    def _unreadable(self, error: KafkaError, batch: RecordBatch | None = None) -> KafkaError:
        """Return the error of a batch, or of bytes that are no batch."""
        tp = self.partition.topic_partition
        if batch is None:
            where, what = "", "All records that follow in the response are released"
        else:
            where = f" at offsets {batch.base_offset} to {batch.last_offset}"
            is_corrupt = isinstance(error, CorruptRecordError)
            what = f"The acquired records of the batch are {'rejected' if is_corrupt else 'released'}"
        failure = (CorruptRecordError if isinstance(error, CorruptRecordError) else KafkaError)(
            f"cannot read the records of {tp}{where}: {error}. {what}"
        )
        failure.__cause__ = error
        return failure

    def _skip(self, unreadable: _UnreadableError, result: ShareInFlightBatch) -> None:
        """Acknowledge what cannot be read, and go on behind it."""
        error = unreadable.error
        if isinstance(error, RecordDeserializationError):
            result.fail(frozenset((self._pending.popleft().offset,)), AcknowledgeType.RELEASE)
            return
        batch = self._records.batch_at(self._position) if unreadable.is_batch else None
        kind = AcknowledgeType.RELEASE
        if batch is None:
            self._position = len(self._records.buffer)
        else:
            self._position += len(batch.buffer)
            if isinstance(error, CorruptRecordError):
                kind = AcknowledgeType.REJECT
        result.fail(unreadable.offsets, kind)
        while self._acquired and self._acquired[0][0] in unreadable.offsets:
            self._acquired.popleft()

    def __repr__(self) -> str:
        return f"ShareCompletedFetch({self.partition}, from broker {self.node_id})"


class _UnreadableError(Exception):
    """A record, a batch, or bytes that are no batch (``is_batch`` is False), with the error to raise."""

    def __init__(self, error: KafkaError, offsets: frozenset[int] = frozenset(), *, is_batch: bool = True) -> None:
        super().__init__(str(error))
        self.error = error
        self.offsets = offsets
        self.is_batch = is_batch
