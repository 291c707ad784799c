"""Ranges of offsets as Arrow record batches, in the executor's Python worker (Spark: KafkaDataConsumer).

A range ends at its last offset, without a wait for more. Offsets without records, which compaction and transactions
leave, are passed over. Records that are gone are noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pykclient.clock import SYSTEM_CLOCK, Clock, Timer
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    LogTruncationError,
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
    from pykclient.spark.ranges import OffsetRange

_logger = logging.getLogger(__name__)

#: How many rows a batch has at most; Spark's own batches of Arrow have as many.
MAX_ROWS = 10_000

#: How many bytes of records a batch has at most, unless one record alone is larger.
MAX_BYTES = 8 * 1024 * 1024

#: How long to pass over what was fetched and another worker has read.
_CATCH_UP_MS = 1000

#: What is asked for of each partition at once where a range has so few offsets that more would mostly be dropped.
_SMALL_RANGE = 1000
_SMALL_FETCH_BYTES = 1024 * 1024

#: How long to look for the reason why nothing comes.
_DIAGNOSIS_MS = 10_000


class ReadTask:
    """What all tasks of one read have in common, as it is pickled to the executors.

    ``columns`` are Spark's names in the order of the schema. ``poll_timeout_ms`` is how long nothing may come before
    the task fails. Where records are gone it fails, too, or without ``fail_on_data_loss`` goes on behind them. Rows
    with times outside of ``bounds`` are left out. With ``prefetch`` a consumer goes on fetching behind its ranges, for
    the next micro-batch. ``freeze_heap``: see ``freeze_heap_once``.

    Thread: any (nothing changes after it was made).
    """

    __slots__ = (
        "bounds",
        "columns",
        "consumer_config",
        "fail_on_data_loss",
        "freeze_heap",
        "poll_timeout_ms",
        "prefetch",
    )

    def __init__(
        self,
        consumer_config: Mapping[str, object],
        columns: Sequence[str],
        poll_timeout_ms: int = 120_000,
        fail_on_data_loss: bool = True,
        bounds: Bounds | None = None,
        freeze_heap: bool = True,
        prefetch: bool = False,
    ) -> None:
        self.consumer_config = dict(consumer_config)
        self.columns = tuple(columns)
        self.poll_timeout_ms = poll_timeout_ms
        self.fail_on_data_loss = fail_on_data_loss
        self.bounds = bounds
        self.freeze_heap = freeze_heap
        self.prefetch = prefetch

    def __repr__(self) -> str:
        return f"ReadTask(columns={','.join(self.columns)})"  # the configuration may have secrets


def read_ranges(
    task: ReadTask,
    ranges: Sequence[OffsetRange],
    pool: ConsumerPool | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``ranges`` in batches of Spark's schema; those of a partition come in order.

    Raises:
        IllegalStateError: records of a range are gone, and the task is to fail then.
        KafkaTimeoutError: nothing came for ``poll_timeout_ms``; says of which partition, and why, if that is known.
        KafkaError: what cannot be read, or must not.
    """
    if task.freeze_heap:
        freeze_heap_once()
    pool = consumer_pool.pool() if pool is None else pool
    for part in _disjoint(ranges):
        pooled = pool.acquire(_consumer_config(task, part.values()), part, fresh=_is_retry())
        is_usable = False
        try:
            yield from _RangeReader(task, pooled, part, clock).read()
            is_usable = True
        except GeneratorExit:
            is_usable = True  # Spark has rows enough, as for a LIMIT
            raise
        finally:
            if is_usable:
                pool.release(pooled, warm=task.prefetch)
            else:
                pool.discard(pooled)


def _consumer_config(task: ReadTask, ranges: Collection[OffsetRange]) -> dict[str, object]:
    """The task's, with smaller fetches for small ranges, unless what comes beyond them is for the next micro-batch."""
    config = task.consumer_config
    size_bytes = config.get("max.partition.fetch.bytes")
    is_small = all(each.end - each.start <= _SMALL_RANGE for each in ranges)
    if task.prefetch or not is_small or not isinstance(size_bytes, int) or size_bytes <= _SMALL_FETCH_BYTES:
        return config
    return {**config, "max.partition.fetch.bytes": _SMALL_FETCH_BYTES}


def _disjoint(ranges: Sequence[OffsetRange]) -> list[dict[TopicPartition, OffsetRange]]:
    """The ranges that are not empty, by partition; a partition's second one is for when the first has been read."""
    parts: list[dict[TopicPartition, OffsetRange]] = []
    for each in ranges:
        if each.start < each.end:
            part = next((part for part in parts if each.topic_partition not in part), None)
            if part is None:
                parts.append(part := {})
            part[each.topic_partition] = each
    return parts


def _is_retry() -> bool:
    """Whether Spark runs this task again after it has failed, or beside another attempt at it."""
    return task_context()[1] > 0


class _RangeReader:
    """Reads ranges of different partitions with one consumer, at once. Thread: owner."""

    __slots__ = (
        "_bounds",
        "_clock",
        "_columns",
        "_consumer",
        "_ends",
        "_pooled",
        "_ranges",
        "_skipped",
        "_spark_batches",
        "_task",
    )

    def __init__(
        self, task: ReadTask, pooled: PooledConsumer, ranges: Mapping[TopicPartition, OffsetRange], clock: Clock
    ) -> None:
        self._task = task
        self._pooled = pooled
        self._consumer = pooled.consumer
        self._clock = clock
        self._ranges = ranges
        #: Of the ranges that are not read to their end.
        self._ends = {tp: each.end for tp, each in ranges.items()}
        #: Those whose records are lost up to the end, so that the consumer has not got there.
        self._skipped: set[TopicPartition] = set()
        self._spark_batches = SparkBatches(task.columns)
        self._columns = self._spark_batches.source_columns
        self._bounds = None if task.bounds is None or not _has_times(task.bounds) else task.bounds
        if self._bounds is not None and "timestamp" not in self._columns:
            self._columns.append("timestamp")

    def read(self) -> Iterator[pa.RecordBatch]:
        consumer, ends, timeout_ms = self._consumer, self._ends, self._task.poll_timeout_ms
        self._catch_up()
        # Nobody knows where it stands, should nobody go on with this generator.
        self._pooled.positions = {}
        timer = Timer(self._clock, timeout_ms)
        while ends:
            try:
                # As much as there is: what the next fetch brings comes while this is handed on.
                batch = consumer.poll_arrow(timer.remaining_ms, max_bytes=MAX_BYTES, columns=self._columns, until=ends)
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                self._on_lost(error)
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
        """Go to where the ranges begin.

        Another worker may have read what lies between, so that what this one has fetched since begins too early. Where
        the ranges are likely to be in it, it is faster to pass over the rest than to drop it all and to fetch anew.
        """
        pooled, consumer = self._pooled, self._consumer
        starts = {tp: each.start for tp, each in self._ranges.items()}
        behind = self._fetched_before(starts)
        if behind:
            pooled.assign({**starts, **behind})
            # Only now it shows how large those records really are.
            limit = pooled.bytes_and_records_read()[0] + len(behind) * self._partition_fetch_bytes
            timer = Timer(self._clock, _CATCH_UP_MS)
            try:
                while timer.not_expired and consumer.paused() < starts.keys():
                    consumer.poll_arrow(timer.remaining_ms, columns=["offset"], until=starts)
                    if pooled.bytes_and_records_read()[0] > limit:
                        break
                    timer.update()
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                _logger.debug("Not going on from %s: %s", behind, error)
            reached = consumer.paused()
            pooled.positions = {tp: start for tp, start in starts.items() if tp in reached}
        pooled.assign(starts)

    def _fetched_before(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where it stands in partitions in which what it has fetched from there on is likely to have the start.

        The fetch was sent when it got there. If the log had the start by then, the fetch brings it, unless it lies too
        far behind; if not, the fetch waited, and brings no more than the first records that came.
        """
        last = self._consumer.highwater  # as the fetch before has told
        behind = {
            tp: at
            for tp, at in self._pooled.positions.items()
            if at < starts.get(tp, at) and starts[tp] < (last(tp) or 0)
        }
        if not behind:
            return behind
        # They are taken to be as large as those before. If none were counted yet, the first response is still read.
        size_bytes, records = self._pooled.bytes_and_records_read()
        limit = self._partition_fetch_bytes * records
        return {tp: at for tp, at in behind.items() if (starts[tp] - at) * size_bytes <= limit}

    @property
    def _partition_fetch_bytes(self) -> int:
        """As much of a partition a fetch brings, unless one batch is larger."""
        size_bytes: int = self._consumer.config["max.partition.fetch.bytes"]
        return size_bytes

    def _of_spark(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._bounds is not None:
            batch = _within(batch, self._bounds)
        if batch.num_rows:
            batch = self._spark_batches.convert(batch)
        for start in range(0, batch.num_rows, MAX_ROWS):
            yield batch.slice(start, MAX_ROWS)

    # --- what can be wrong

    def _on_lost(self, error: OffsetOutOfRangeError | LogTruncationError) -> None:
        """Go on with what is there, if that is wanted (Spark: KafkaDataConsumer.getEarliestAvailableOffsetBetween)."""
        for tp, offset in error.offset_out_of_range_partitions.items():
            if tp in self._ends:
                first, last = self._available(tp)
                is_replaced = isinstance(error, LogTruncationError)
                why = "what was read last was replaced in its log, which" if is_replaced else "its log"
                self._lose(tp, offset, f"{why} has offsets from {first} up to {last}", first, last)

    def _lose(self, tp: TopicPartition, offset: int, why: str, first: int, last: int) -> None:
        """Records from ``offset`` on are not in the log, which has those from ``first`` up to ``last``."""
        end = self._ends[tp]
        what = f"{tp} cannot be read from offset {offset} up to {end}, as {why}"
        if self._task.fail_on_data_loss:
            raise IllegalStateError(
                f"Records are lost: {what}. They were aged out, or their topic was deleted or made anew, before the "
                "query read them; or it was given offsets that the topic does not have. If it is to go on with what "
                "there is, set the option failOnDataLoss to false"
            )
        if offset >= last or first >= end:
            del self._ends[tp]
            self._skipped.add(tp)
            self._consumer.pause(tp)
            rest = "all of that is skipped"
        else:
            goes_on = max(offset, first, self._ranges[tp].start)
            self._consumer.seek(tp, goes_on)
            rest = f"it is read from {goes_on} on"
        _logger.warning("Records are lost: %s; %s, as failOnDataLoss is false", what, rest)

    def _available(self, tp: TopicPartition) -> tuple[int, int]:
        """The first offset of the log and the one behind its last. Raises KafkaError."""
        if self._pooled.config.get("isolation.level") != "read_committed":
            return _log_offsets(self._consumer, tp)
        # It would be told as the end where the first open transaction began, and all behind that be taken for lost.
        with KafkaConsumer({**self._pooled.config, "isolation.level": "read_uncommitted"}) as reads_all:
            return _log_offsets(reads_all, tp)

    def _on_timeout(self) -> None:
        """Find out why nothing came: go on without what is gone, if that is wanted, or say what is wrong."""
        for tp in sorted(self._ends):
            offset: int | None = None
            try:
                offset = self._consumer.position(tp, _DIAGNOSIS_MS)
                if not self._exists(tp):
                    self._lose(tp, offset, "it does not exist any more", 0, 0)
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

    def _exists(self, tp: TopicPartition) -> bool:
        partitions = self._consumer.list_topics(_DIAGNOSIS_MS, topics=[tp.topic]).get(tp.topic, ())
        return any(each.partition == tp.partition for each in partitions)

    def _timeout_error(self, tp: TopicPartition, offset: int | None, why: str) -> KafkaTimeoutError:
        of = self._ranges[tp]
        where = f"from offset {offset}" if offset is not None else f"after offset {of.start}"
        return KafkaTimeoutError(
            f"{tp} cannot be read {where} up to {of.end}: nothing came for {self._task.poll_timeout_ms} ms (option "
            f"kafkaConsumer.pollTimeoutMs); {why}"
        )


def _log_offsets(consumer: AnyConsumer, tp: TopicPartition) -> tuple[int, int]:
    return consumer.beginning_offsets([tp], _DIAGNOSIS_MS)[tp], consumer.end_offsets([tp], _DIAGNOSIS_MS)[tp]


def _has_times(bounds: Bounds) -> bool:
    return bounds.first_timestamp_ms is not None or bounds.last_timestamp_ms is not None


def _within(batch: pa.RecordBatch, bounds: Bounds) -> pa.RecordBatch:
    """The rows whose timestamps are within the bounds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # What has none counts as -1, as Spark will see it.
    times = batch.column("timestamp").view(pa.int64()).fill_null(-1)
    wanted = None
    if bounds.first_timestamp_ms is not None:
        wanted = pc.greater_equal(times, bounds.first_timestamp_ms)
    if bounds.last_timestamp_ms is not None:
        before = pc.less_equal(times, bounds.last_timestamp_ms)
        wanted = before if wanted is None else pc.and_(wanted, before)
    return batch if pc.all(wanted).as_py() else batch.filter(wanted)
