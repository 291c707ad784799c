"""Streaming queries: the offsets of micro-batches, decided on the driver in one process per run of a query."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader

from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import ConfigError, IllegalStateError
from pykclient.spark.batch_reader import RangesReader, checked_formats, input_partitions, new_read_task
from pykclient.spark.offsets import (
    LATEST,
    LATEST_OFFSET,
    GlobalTimestamp,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
    offsets_from_json,
    offsets_to_json,
)
from pykclient.spark.options import ReadOptions
from pykclient.spark.ranges import new_records, rate_limit

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    #: True if Spark passes a limit when it asks for the end of a micro-batch.
    HAS_READ_LIMITS = True
except ImportError:  # Spark 4.1

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in for Spark 4.1, which has no such class."""

    HAS_READ_LIMITS = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from pykclient.clock import Clock
    from pykclient.spark.formats import Formats
    from pykclient.spark.offset_reader import KafkaOffsetReader
    from pykclient.spark.offsets import Offsets
    from pykclient.spark.range_reader import ReadTask
    from pykclient.types import TopicPartition

_logger = logging.getLogger(__name__)


class KafkaStreamReader(RangesReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides what each micro-batch reads (Spark: KafkaMicroBatchStream).

    A checkpoint has exactly the offsets that Spark's own source writes, so a query can move from one source to the
    other and back with its checkpoint. Spark's interface for Python causes these differences:

    - Spark's own source stores in the checkpoint where a new query starts. This one does not get the checkpoint's
      location. But Spark stores where the first micro-batch ends, before the batch is read. So a partition that starts
      at its latest offset is empty in the first micro-batch, which ends where it starts. A query that dies during its
      first micro-batch continues from there, and nothing is lost. (With Spark's own source that micro-batch is nearly
      always empty, too.) A query of Spark's own source must have finished its first micro-batch before it is moved.
    - The lag cannot be a metric of the query's progress. It is logged at level INFO; the progress has ``endOffset`` and
      ``latestOffset``.
    - Spark passes only one limit. This class applies all three.

    With Trigger.AvailableNow, ``minOffsetsPerTrigger`` is ignored. Spark's own source then ends a query early, and
    leaves fewer records than that to the next run.

    Pickles as what tasks need. Thread: owner, Spark's process for this run of the query.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        clock: Clock = SYSTEM_CLOCK,
        formats: Formats | None = None,
    ) -> None:
        self._given = options
        self._schema = schema
        self._formats = formats
        self._clock = clock
        self._run = uuid4().hex  # Spark creates the reader that plans once per run of the query
        self._checked_options: ReadOptions | None = None
        self._made_offset_reader: KafkaOffsetReader | None = None
        self._initial: Offsets | None = None
        self._held_back: frozenset[TopicPartition] = frozenset()  # empty in the first micro-batch
        self._first_end: Offsets | None = None
        self._came_since: frozenset[TopicPartition] = frozenset()  # created after the first micro-batch
        self._latest: Offsets | None = None
        self._available_now = False
        self._target: Offsets | None = None  # the end of a query with Trigger.AvailableNow
        self._last_batch_ms: int | None = None

    # --- called when a query starts

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Return the offsets at which a new query starts. Spark calls this twice and needs the same result.

        Raises:
            ConfigError: An option is wrong.
            KafkaError: The cluster does not respond, or the starting offsets do not fit the partitions.
        """
        if self._initial is None:
            starting, offset_reader = self._options.starting, self._offset_reader
            may_be_latest = starting != LATEST and _may_start_at_latest(starting)
            before = offset_reader.latest_offsets(None) if may_be_latest else {}
            self._initial = offset_reader.initial_offsets()
            if may_be_latest or starting == LATEST:
                at_latest = (tp for tp, offset in self._initial.items() if offset >= before.get(tp, 0))
                self._held_back = frozenset(at_latest)
            _logger.info("A new query starts at %s", offsets_to_json(self._initial))
        return offsets_to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits; ``latestOffset`` applies all. Raises ConfigError if an option is wrong."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the next latest offsets the end of the query."""
        self._available_now = True

    # --- called for each micro-batch

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the micro-batch that starts at ``start``, or ``start`` if there is nothing to do yet.

        Spark 4.1 passes no ``start``; then there are no limits.

        Raises:
            IllegalStateError: A topic was deleted and created again, and ``failOnDataLoss`` is on.
            KafkaError: The cluster does not respond.
        """
        known = None if start is None else offsets_from_json(start)
        latest = self._offset_reader.latest_offsets(known) if self._target is None else self._target
        self._latest = latest
        if known is None:
            return offsets_to_json(latest)
        if self._available_now:
            self._target = latest
        if self._first_end is None and known == self._initial:
            there = {tp: known[tp] if tp in self._held_back else offset for tp, offset in latest.items()}
            self._first_end = end = self._limited(known, there, limit)
        else:
            end = self._limited(known, latest, limit)
        if end != known and _logger.isEnabledFor(logging.INFO):
            _log_lag(end, latest)
        return offsets_to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest offsets as of the last ``latestOffset``, for the progress of the query."""
        return offsets_to_json(self._latest) if self._latest else None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return what the tasks of a micro-batch read.

        Raises:
            IllegalStateError: Records are lost, and ``failOnDataLoss`` is on. Or a query with Trigger.AvailableNow
                cannot reach its end.
            KafkaError: The cluster does not respond.
        """
        begin, until = offsets_from_json(start), offsets_from_json(end)
        if self._target is not None:
            self._check_target(self._target, until)
        if begin == self._initial and self._first_end in (None, until):
            if self._first_end is None:
                # The query died in its first micro-batch. Some partitions were created since.
                self._first_end = until
                self._came_since = frozenset(begin.keys() - until.keys())
            begin = {tp: offset for tp, offset in begin.items() if tp not in self._came_since}
            if _may_start_at_latest(self._options.starting):
                # The latest offsets of that time were lower than those of now.
                begin = {tp: min(offset, until.get(tp, offset)) for tp, offset in begin.items()}
        if begin == until:
            return []
        ranges = self._offset_reader.stream_ranges(begin, until)
        return input_partitions(self._options, ranges, self._run, self._latest)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: Spark stores the offsets."""

    def stop(self) -> None:
        """Close the connections. Spark calls this only after an error; otherwise it ends the process."""
        if self._made_offset_reader is not None:
            self._made_offset_reader.close()
            self._made_offset_reader = None

    # --- tasks

    def _new_task(self) -> ReadTask:
        columns, formats = checked_formats(self._schema, self._options, self._formats)
        return new_read_task(self._options, columns, formats=formats)

    # --- parts

    @property
    def _options(self) -> ReadOptions:
        """The options, parsed on first use: the user would not see an error of the constructor."""
        if self._checked_options is None:
            options = ReadOptions.parse(self._given, streaming=True)
            limits = (options.max_offsets_per_trigger, options.min_offsets_per_trigger)
            if not HAS_READ_LIMITS and any(limit is not None for limit in limits):
                raise ConfigError(
                    "options maxOffsetsPerTrigger and minOffsetsPerTrigger need Spark 4.2, as older versions do not "
                    "let a Python data source limit a micro-batch; leave them out, or use Spark's own source "
                    "(format kafka)"
                )
            self._checked_options = options
        return self._checked_options

    @property
    def _offset_reader(self) -> KafkaOffsetReader:
        """The offset reader, created on first use, as the constructor must not fail."""
        if self._made_offset_reader is None:
            from pykclient.spark.offset_reader import KafkaOffsetReader

            self._options.log_notes()
            self._made_offset_reader = KafkaOffsetReader(self._options)
        return self._made_offset_reader

    def _limited(self, start: Offsets, latest: Offsets, limit: ReadLimit | None) -> Offsets:
        """Return the end of a micro-batch within the minimum, the maximum and the delay of the options."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if isinstance(limit, ReadAllAvailable):  # no limit was given, or Trigger.Once, which reads all at once
            return latest
        if least is not None and not self._available_now and self._must_wait(least, start, latest):
            return start
        if most is None:
            return latest
        new = latest.keys() - start.keys()
        return rate_limit(most, start, latest, self._offset_reader.earliest_offsets(new) if new else {})

    def _must_wait(self, least: int, start: Offsets, latest: Offsets) -> bool:
        """Return True if there are too few records and the maximum delay has not passed. The first one never waits."""
        now_ms, last_ms = self._clock.now_ms(), self._last_batch_ms
        overdue = last_ms is None or now_ms - last_ms >= self._options.max_trigger_delay_ms
        if not overdue and new_records(start, latest) < least:
            return True
        self._last_batch_ms = now_ms
        return False

    def _check_target(self, target: Offsets, end: Offsets) -> None:
        """Check that a query with Trigger.AvailableNow can reach its end. Otherwise it would run forever.

        Raises:
            IllegalStateError: It cannot; the text says why.
        """
        latest = self._offset_reader.latest_offsets(end)
        if target.keys() != end.keys():
            missing = ", ".join(map(str, sorted(target.keys() ^ end.keys())))
            problem = f"the partitions of its micro-batch are not those of the query's start: {missing}"
        elif past := [tp for tp, offset in end.items() if offset > target[tp]]:
            problem = f"its micro-batch ends after the query's end: {_listed(past, end, target)}"
        elif gone := sorted(end.keys() - latest.keys()):
            problem = f"partitions were deleted while it was running: {', '.join(map(str, gone))}"
        elif back := [tp for tp, offset in end.items() if offset > latest[tp]]:
            problem = f"recreated partitions end before its micro-batch does: {_listed(back, end, latest)}"
        else:
            return
        raise IllegalStateError(
            f"The query with Trigger.AvailableNow cannot reach its end, as {problem}; start it again, with "
            "failOnDataLoss=false if records may be missing"
        )


def _may_start_at_latest(starting: OffsetLimit) -> bool:
    """Return True if a partition may start at its end, as of the start of the query."""
    if isinstance(starting, SpecificOffsets):
        return LATEST_OFFSET in starting.offsets.values()
    if isinstance(starting, (GlobalTimestamp, SpecificTimestamps)):
        return starting.when_none == "latest"
    return starting == LATEST


def _listed(partitions: list[TopicPartition], ends: Offsets, others: Offsets) -> str:
    return ", ".join(f"{tp} {ends[tp]} instead of {others[tp]}" for tp in sorted(partitions))


def _log_lag(end: Offsets, latest: Offsets) -> None:
    """Log the lag, which Spark's own source adds to the progress as metrics (KafkaMicroBatchStream.metrics)."""
    behind = [offset - end.get(tp, 0) for tp, offset in latest.items()]
    if behind:
        average = sum(behind) / len(behind)
        _logger.info("Offsets behind latest: min %d, max %d, avg %.1f", min(behind), max(behind), average)
