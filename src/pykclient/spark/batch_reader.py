"""Batch queries: ranges of offsets resolved once on the driver, and read by tasks.

What a task unpickles is small: configuration and columns once per stage, and its own ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pykclient.errors import ConfigError
from pykclient.spark.ranges import share_tasks, split_ranges
from pykclient.spark.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pykclient.spark.filters import Bounds
    from pykclient.spark.options import ReadOptions
    from pykclient.spark.range_reader import ReadTask
    from pykclient.spark.ranges import OffsetRange


class KafkaInputPartition(InputPartition):
    """What one task reads (Spark: KafkaBatchInputPartition): one range, or several small ones."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        self.ranges = ranges


class RangesReader:
    """What the readers of batches and of streams share: tasks know how to read, and nothing else of the query.

    Thread: owner.
    """

    _task: ReadTask | None = None

    @property
    def task(self) -> ReadTask:
        """What tasks know of the query. Raises ConfigError."""
        if self._task is None:
            self._task = self._new_task()
        return self._task

    def _new_task(self) -> ReadTask:
        raise NotImplementedError

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the ranges of ``partition``, on an executor."""
        from pykclient.spark.range_reader import read_ranges

        ranges = partition.ranges if isinstance(partition, KafkaInputPartition) else ()
        return read_ranges(self.task, ranges)

    def __getstate__(self) -> dict[str, Any]:
        # Connections stay on the driver, and so do options: what a task needs of them is in its configuration.
        return {"_task": self.task}


class KafkaBatchReader(RangesReader, DataSourceReader):
    """Reads one batch (Spark: KafkaBatch, KafkaScan). Its offsets are those of the moment when the query was planned.

    Spark 4.1 to 4.3 plan once for what a ``load()`` returned: all queries on it have the offsets of the first. With
    Spark's own source each has its own.

    Thread: owner.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._bounds: Bounds | None = None

    def _new_task(self) -> ReadTask:
        return new_read_task(self._options, self._columns, self._bounds)

    def partitions(self) -> list[InputPartition]:
        """One partition per task. Raises KafkaError where offsets cannot be had, or contradict."""
        from pykclient.spark.offset_reader import KafkaOffsetReader

        offset_reader = KafkaOffsetReader(self._options)
        try:
            ranges = offset_reader.batch_ranges(self._bounds)
        finally:
            offset_reader.close()
        return input_partitions(self._options, ranges) or [KafkaInputPartition(())]


class KafkaBatchReaderWithPushdown(KafkaBatchReader):
    """Reads only what filters on topic, partition, offset and timestamp let through. Spark's own source reads all.

    Needs ``spark.sql.python.filterPushdown.enabled``, and in Spark 4.1 to 4.3 the option ``filterPushdown``, too. These
    keep what was planned with the filters of one query for whatever else uses what the same ``load()`` returned, or the
    same view: the next query, or another branch of this one, gets no other rows than the first one asked for. With the
    option on, what ``load()`` returned is for one place in one query; load again for another.

    Thread: owner.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of the filters, and return them all: Spark applies them again, so a bound may be too wide."""
        from pykclient.spark.filters import Bounds

        self._bounds = Bounds.of(filters)
        return filters


def keeps_filters_apart() -> bool:
    """Whether this Spark keeps what it planned with filters to the query that has them.

    It does from the release on that lets a data source know the limit of a query, too (SPARK-58551).
    """
    return hasattr(DataSourceReader, "pushLimit")


def checked_columns(schema: StructType) -> tuple[str, ...]:
    """The names of the columns of ``schema``, in its order. Raises ConfigError for none, or one not as ours."""
    if not schema.fields:
        raise ConfigError(f"The schema has no columns; leave it out or choose of: {', '.join(COLUMNS)}")
    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        if wanted is None:
            raise ConfigError(
                f"The schema has a column {field.name!r}, which the format pykclient has not; "
                f"leave the schema out or choose of: {', '.join(COLUMNS)}"
            )
        given = field.dataType.simpleString()
        if given != wanted.replace(" ", ""):
            raise ConfigError(
                f"The schema says {given} of the column {field.name!r}, which the format pykclient has as {wanted}; "
                "leave the schema out, and cast the column once it is read"
            )
        if not field.nullable:
            raise ConfigError(
                f"The schema says NOT NULL of the column {field.name!r}; columns of pykclient are nullable"
            )
    return tuple(schema.fieldNames())


def new_read_task(options: ReadOptions, columns: tuple[str, ...], bounds: Bounds | None = None) -> ReadTask:
    """What the tasks of a query with these options have in common."""
    from pykclient.spark.range_reader import ReadTask

    return ReadTask(
        consumer_config=options.executor_config(),
        columns=columns,
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        bounds=bounds,
        freeze_heap=options.freeze_heap,
        prefetch=options.streaming,
    )


def input_partitions(options: ReadOptions, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    """Share ``ranges`` out over tasks: large ranges are split, small ones share a task.

    A task costs Spark some 28 ms, more than to fetch a thousand records, so fewer are better where there is little to
    read. Where the user says how many tasks there are to be, or how large, nothing is shared (see ``ReadOptions``).
    """
    split = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    return [KafkaInputPartition(shared) for shared in share_tasks(split, options.records_per_task)]
