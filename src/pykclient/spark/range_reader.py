"""Ranges of offsets as Arrow record batches, in the executor's Python worker (Spark: KafkaDataConsumer).

A range ends at its last offset, without waiting for more records. Offsets without records, which compaction and
transactions leave, are skipped. Lost records are detected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykclient.clock import SYSTEM_CLOCK, Clock, Timer
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from pykclient.spark import consumer_pool
from pykclient.spark.consumer_pool import AnyConsumer, ConsumerPool, PooledConsumer
from pykclient.spark.schema import SparkBatches
from pykclient.spark.worker import freeze_heap_once, task_context
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.spark.filters import Bounds
    from pykclient.spark.formats import Formats
    from pykclient.spark.ranges import OffsetRange

_logger = logging.getLogger(__name__)

#: The maximum number of rows of a batch; Spark's own Arrow batches have as many.
MAX_ROWS = 10_000

#: The maximum size of a batch's records, unless one record alone is larger.
MAX_BYTES = 8 * 1024 * 1024

#: The time limit for skipping records that were fetched here and read by another worker.
_CATCH_UP_MS = 1000

#: The time limit for finding the reason why no records arrive.
_DIAGNOSIS_MS = 10_000


class ReadTask(NamedTuple):
    """The settings that all tasks of a query share, as they are pickled to the executors.

    ``columns`` are Spark's names in the order of the schema. A task fails if no records arrive for ``poll_timeout_ms``.
    It fails on lost records, too, unless ``fail_on_data_loss`` is off: then it logs a warning and continues after them.
    Rows with timestamps outside ``bounds`` are left out. ``formats`` are those of the columns that are decoded.
    ``freeze_heap``: see ``freeze_heap_once``.

    Thread: any (immutable).
    """

    consumer_config: Mapping[str, object]
    columns: tuple[str, ...]
    poll_timeout_ms: int = 120_000
    fail_on_data_loss: bool = True
    bounds: Bounds | None = None
    freeze_heap: bool = True
    formats: Formats | None = None

    def __repr__(self) -> str:
        return f"ReadTask(columns={','.join(self.columns)})"  # the configuration may contain secrets


def read_ranges(
    task: ReadTask,
    ranges: Sequence[OffsetRange],
    run: str | None = None,
    pool: ConsumerPool | None = None,
    clock: Clock = SYSTEM_CLOCK,
    *,
    ahead: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``ranges`` in batches of Spark's schema. Rows of a partition come in order.

    ``run`` names the run of a streaming query. After its ranges the consumer continues to fetch for the next
    micro-batch of that run. In a batch (None), and without ``ahead``, it does not, and only keeps its connections. A
    stream that catches up does without, because Spark gives partitions to other workers in each micro-batch. The sizes
    of fetches are estimated so that they end with the ranges (``FetchSizes``).

    Raises:
        IllegalStateError: Records of a range are lost, and ``fail_on_data_loss`` is on.
        KafkaTimeoutError: No records arrived for ``poll_timeout_ms``. Names the partition, and the reason if known.
        KafkaError: The records cannot be read, or reading is not allowed.
    """
    if task.freeze_heap:
        freeze_heap_once()
    pool = consumer_pool.pool() if pool is None else pool
    keeps = run if ahead else None
    for part in _disjoint(ranges):
        partitions = {tp: each.topic_id for tp, each in part.items()}
        pooled = pool.acquire(task.consumer_config, partitions, run=keeps, fresh=_is_retry())
        is_reusable = False
        try:
            yield from _RangeReader(task, run, pooled, part, clock).read()
            is_reusable = True
        except GeneratorExit:
            # Spark has enough rows, as for a LIMIT. Fetches may be in flight, which only the same run may use.
            is_reusable = keeps is not None
            raise
        finally:
            if is_reusable:
                pool.release(pooled, run=keeps)
            else:
                pool.discard(pooled)


def _disjoint(ranges: Sequence[OffsetRange]) -> list[dict[TopicPartition, OffsetRange]]:
    """Return the non-empty ranges by partition; a partition's second range is in the second dict, and so on."""
    parts: list[dict[TopicPartition, OffsetRange]] = []
    for each in ranges:
        if each.start < each.end:
            part = next((part for part in parts if each.topic_partition not in part), None)
            if part is None:
                parts.append(part := {})
            part[each.topic_partition] = each
    return parts


def _is_retry() -> bool:
    """Return True if this is a repeated or speculative attempt at the task."""
    return task_context()[1] > 0


class _RangeReader:
    """Reads ranges of different partitions with one consumer, in parallel. Thread: owner."""

    def __init__(
        self,
        task: ReadTask,
        run: str | None,
        pooled: PooledConsumer,
        ranges: Mapping[TopicPartition, OffsetRange],
        clock: Clock,
    ) -> None:
        self._task = task
        self._run = run
        self._pooled = pooled
        self._consumer = pooled.consumer
        self._clock = clock
        self._ranges = ranges
        self._partitions = {tp: each.topic_id for tp, each in ranges.items()}
        #: The ends of the ranges that are not read completely.
        self._ends = {tp: each.end for tp, each in ranges.items()}
        #: Partitions whose records are lost up to the end of the range, which the consumer so has not reached.
        self._skipped: set[TopicPartition] = set()
        self._spark_batches = SparkBatches(
            task.columns, {name: format.decoder() for name, format in (task.formats or {}).items()}
        )
        self._columns = self._spark_batches.source_columns
        self._bounds = None if task.bounds is None or not _has_times(task.bounds) else task.bounds
        if self._bounds is not None and "timestamp" not in self._columns:
            self._columns.append("timestamp")

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the ranges."""
        consumer, ends, timeout_ms = self._consumer, self._ends, self._task.poll_timeout_ms
        self._catch_up()
        # Unknown as long as this generator is suspended, for it may never be resumed.
        self._pooled.positions = {}
        timer = Timer(self._clock, timeout_ms)
        while ends:
            try:
                # Takes all that has arrived. The next fetch is in flight while Spark works on this.
                batch = consumer.poll_arrow(timer.remaining_ms, max_bytes=MAX_BYTES, columns=self._columns, until=ends)
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                self._on_lost(error)
                continue
            except NoOffsetForPartitionError as error:
                self._on_recreated(error)
                continue
            for tp in consumer.paused():
                ends.pop(tp, None)
            timer.update()
            if batch.num_rows:
                yield from self._of_spark(batch)
            elif timer.expired:
                self._on_timeout()
            timer = Timer(self._clock, timeout_ms)
        self._pooled.positions = {tp: each.end for tp, each in self._ranges.items() if tp not in self._skipped}

    def _catch_up(self) -> None:
        """Move to the starts of the ranges.

        Another worker may have read the records in between, so that this consumer's fetch begins too early. If it
        probably contains the starts, skipping the records in between is faster than dropping it and fetching again.
        """
        pooled, consumer = self._pooled, self._consumer
        starts = {tp: each.start for tp, each in self._ranges.items()}
        behind = self._fetched_before(starts)
        if behind:
            pooled.assign(self._partitions, {**starts, **behind})
            # The sizes so far are estimates: stop once the records turn out to be larger.
            limit = pooled.bytes_and_records_read()[0] + len(behind) * self._partition_fetch_bytes
            timer = Timer(self._clock, _CATCH_UP_MS)
            try:
                while timer.not_expired and consumer.paused() < starts.keys():
                    consumer.poll_arrow(timer.remaining_ms, columns=["offset"], until=starts)
                    if pooled.bytes_and_records_read()[0] > limit:
                        break
                    timer.update()
            except (OffsetOutOfRangeError, LogTruncationError, NoOffsetForPartitionError) as error:
                _logger.debug("Not continuing from %s: %s", behind, error)
            reached = consumer.paused()
            pooled.positions = {tp: start for tp, start in starts.items() if tp in reached}
        pooled.assign(self._partitions, starts)

    def _fetched_before(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the positions of partitions whose fetch in flight probably contains the start.

        The fetch was sent when the consumer reached its position. If the log had the start by then, the fetch returns
        it, unless it is too far away. If not, the fetch waited, and returns only the first records that arrived.
        """
        last = self._consumer.highwater  # as of the previous fetch
        behind = {
            tp: at
            for tp, at in self._pooled.positions.items()
            if at < starts.get(tp, at) and starts[tp] < (last(tp) or 0)
        }
        if not behind:
            return behind
        # Assume that records are as large as those so far. If none were counted yet, read at least the first response.
        size_bytes, records = self._pooled.bytes_and_records_read()
        limit = self._partition_fetch_bytes * records
        return {tp: at for tp, at in behind.items() if (starts[tp] - at) * size_bytes <= limit}

    @property
    def _partition_fetch_bytes(self) -> int:
        """The size of the records of one partition that a fetch returns, unless one batch is larger."""
        size_bytes: int = self._consumer.config["max.partition.fetch.bytes"]
        return size_bytes

    def _of_spark(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._bounds is not None:
            batch = _within(batch, self._bounds)
        if batch.num_rows:
            batch = self._spark_batches.convert(batch)
        for start in range(0, batch.num_rows, MAX_ROWS):
            yield batch.slice(start, MAX_ROWS)

    # --- lost records and time-outs

    def _on_lost(self, error: OffsetOutOfRangeError | LogTruncationError) -> None:
        """Fail, or continue with what is left (Spark: KafkaDataConsumer.getEarliestAvailableOffsetBetween)."""
        for tp, offset in error.offset_out_of_range_partitions.items():
            if tp in self._ends:
                first, last = self._available(tp)
                is_replaced = isinstance(error, LogTruncationError)
                why = "the last records that were read were replaced in its log, which" if is_replaced else "its log"
                self._lose(tp, offset, f"{why} has offsets from {first} up to {last}", first, last)

    def _on_recreated(self, error: NoOffsetForPartitionError) -> None:
        """Fail, or skip ranges whose topic was created again: the driver plans to read it from its beginning.

        All partitions had a position. The consumer drops it when metadata shows another topic id.
        """
        for tp in sorted(error.partitions):
            if tp in self._ends:
                why = self._why_missing(tp) or "its topic was deleted and created again"
                self._lose(tp, self._ranges[tp].start, why, 0, 0)
        # Polls raise as long as a partition without a position is assigned.
        self._pooled.keep(self._ends)

    def _lose(self, tp: TopicPartition, offset: int, why: str, first: int, last: int) -> None:
        """Report lost records from ``offset`` on. The log has those from ``first`` up to, not including, ``last``."""
        end = self._ends[tp]
        what = f"{tp} cannot be read from offset {offset} up to {end}, as {why}"
        if self._task.fail_on_data_loss:
            planned = (
                "The offsets are those of the first query on what load() returned: if that was a while ago, load again"
                if self._run is None
                else "They were deleted by retention, or their topic was deleted, before the query read them"
            )
            raise IllegalStateError(
                f"Records are lost: {what}. {planned}. To continue without them, set the option failOnDataLoss to false"
            )
        if offset >= last or first >= end:
            del self._ends[tp]
            self._skipped.add(tp)
            self._consumer.pause(tp)
            rest = "all of them are skipped"
        else:
            goes_on = max(offset, first, self._ranges[tp].start)
            self._consumer.seek(tp, goes_on, topic_id=self._partitions[tp])
            rest = f"reading continues at offset {goes_on}"
        _logger.warning("Records are lost: %s; %s, as failOnDataLoss is false", what, rest)

    def _available(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the first offset of the log and the one after its last. Raises KafkaError."""
        if self._pooled.config.get("isolation.level") != "read_committed":
            return _log_offsets(self._consumer, tp)
        # With read_committed the log would seem to end where the first open transaction began, and the rest be lost.
        with KafkaConsumer({**self._pooled.config, "isolation.level": "read_uncommitted"}) as reads_all:
            return _log_offsets(reads_all, tp)

    def _on_timeout(self) -> None:
        """Find out why no records arrived: report the loss of records that do not exist, or raise KafkaTimeoutError."""
        for tp in sorted(self._ends):
            offset: int | None = None
            try:
                offset = self._consumer.position(tp, _DIAGNOSIS_MS)
                if missing := self._why_missing(tp):
                    self._lose(tp, offset, missing, 0, 0)
                    continue
                first, last = self._available(tp)
            except KafkaTimeoutError as error:
                raise self._timeout_error(tp, offset, str(error)) from error
            if first <= offset < last:
                raise self._timeout_error(
                    tp,
                    offset,
                    f"its log has offsets from {first} up to {last}, so the brokers may be too slow, or a transaction "
                    "that began there is still open",
                )
            self._lose(tp, offset, f"its log has offsets from {first} up to {last}", first, last)

    def _why_missing(self, tp: TopicPartition) -> str | None:
        """Return why the partition cannot be there to be read; None if it exists."""
        topic = self._consumer.describe_topics(_DIAGNOSIS_MS, topics=[tp.topic]).get(tp.topic)
        if topic is None or not any(each.partition == tp.partition for each in topic.partitions):
            return "it does not exist any more"
        wanted = self._partitions[tp]
        if wanted is not None and topic.topic_id not in (None, wanted):
            return f"the topic was deleted and created again (its topic id was {wanted} and is {topic.topic_id} now)"
        return None

    def _timeout_error(self, tp: TopicPartition, offset: int | None, why: str) -> KafkaTimeoutError:
        of = self._ranges[tp]
        where = f"from offset {offset}" if offset is not None else f"after offset {of.start}"
        return KafkaTimeoutError(
            f"{tp} cannot be read {where} up to {of.end}: no records arrived for {self._task.poll_timeout_ms} ms "
            f"(option kafkaConsumer.pollTimeoutMs); {why}"
        )


def _log_offsets(consumer: AnyConsumer, tp: TopicPartition) -> tuple[int, int]:
    return consumer.beginning_offsets([tp], _DIAGNOSIS_MS)[tp], consumer.end_offsets([tp], _DIAGNOSIS_MS)[tp]


def _has_times(bounds: Bounds) -> bool:
    return bounds.first_timestamp_ms is not None or bounds.last_timestamp_ms is not None


def _within(batch: pa.RecordBatch, bounds: Bounds) -> pa.RecordBatch:
    """Return the rows whose timestamps are within the bounds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A record without a timestamp counts as -1, which is what Spark gets.
    times = batch.column("timestamp").view(pa.int64()).fill_null(-1)
    wanted = None
    if bounds.first_timestamp_ms is not None:
        wanted = pc.greater_equal(times, bounds.first_timestamp_ms)
    if bounds.last_timestamp_ms is not None:
        before = pc.less_equal(times, bounds.last_timestamp_ms)
        wanted = before if wanted is None else pc.and_(wanted, before)
    return batch if pc.all(wanted).as_py() else batch.filter(wanted)
