"""Batch queries: the driver resolves ranges of offsets once, and tasks read them.

A task unpickles little: configuration and columns once per stage, and its own ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pykclient.errors import ConfigError
from pykclient.spark.ranges import share_tasks, split_ranges
from pykclient.spark.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pykclient.spark.filters import Bounds
    from pykclient.spark.formats import Formats
    from pykclient.spark.options import ReadOptions
    from pykclient.spark.range_reader import ReadTask
    from pykclient.spark.ranges import OffsetRange
    from pykclient.types import TopicPartition


class KafkaInputPartition(InputPartition):
    """The ranges that one task reads: one, or several small ones (Spark: KafkaBatchInputPartition).

    ``run`` names the run of the streaming query that planned them; None in a batch. ``ahead``: see ``read_ranges``.
    """

    def __init__(self, ranges: tuple[OffsetRange, ...], run: str | None = None, *, ahead: bool = True) -> None:
        self.ranges = ranges
        self.run = run
        self.ahead = ahead


class RangesReader:
    """Base of the readers of batches and streams. It pickles as what tasks need, without the rest of the query.

    Thread: owner.
    """

    _task: ReadTask | None = None

    @property
    def task(self) -> ReadTask:
        """The settings that all tasks of the query share. Raises ConfigError if options are wrong."""
        if self._task is None:
            self._task = self._new_task()
        return self._task

    def _new_task(self) -> ReadTask:
        raise NotImplementedError

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of ``partition``'s ranges. Called on an executor.

        Raises:
            IllegalStateError: Records are lost, and ``failOnDataLoss`` is on.
            KafkaError: The records cannot be read; the error says why.
        """
        from pykclient.spark.range_reader import read_ranges

        if not isinstance(partition, KafkaInputPartition):
            return iter(())
        return read_ranges(self.task, partition.ranges, partition.run, ahead=partition.ahead)

    def __getstate__(self) -> dict[str, Any]:
        # Neither connections nor options leave the driver: the task has what it needs of the options.
        return {"_task": self.task}


class KafkaBatchReader(RangesReader, DataSourceReader):
    """Reads one batch (Spark: KafkaBatch, KafkaScan). The offsets are those of the moment when the query was planned.

    Spark 4.1 to 4.3 plan once per ``load()``: all queries on its result read the offsets of the first one. With Spark's
    own source each query has its own offsets.

    Thread: owner.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], formats: Formats | None = None) -> None:
        self._options = options
        self._columns = columns
        self._formats = formats
        self._bounds: Bounds | None = None

    def _new_task(self) -> ReadTask:
        return new_read_task(self._options, self._columns, self._bounds, self._formats)

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task.

        Raises:
            KafkaError: The cluster does not respond, or the offsets contradict each other.
        """
        from pykclient.spark.offset_reader import KafkaOffsetReader

        self._options.log_notes()
        offset_reader = KafkaOffsetReader(self._options)
        try:
            ranges = offset_reader.batch_ranges(self._bounds)
        finally:
            offset_reader.close()
        return input_partitions(self._options, ranges) or [KafkaInputPartition(())]


class KafkaBatchReaderWithPushdown(KafkaBatchReader):
    """Reads only what filters on topic, partition, offset and timestamp let through. Spark's own source reads all.

    Needs ``spark.sql.python.filterPushdown.enabled``, and in Spark 4.1 to 4.3 the option ``filterPushdown``, too. Those
    versions plan once per ``load()`` or view, with the filters of the query that comes first. Other queries on the same
    result, or other branches of the same query, then read no other rows. With the option on, use the result of a
    ``load()`` in one place of one query only, and load again for another.

    Thread: owner.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remember ``filters`` and return them all. Spark applies them again, so a bound may be too wide."""
        from pykclient.spark.filters import Bounds

        self._bounds = Bounds.of(filters)
        return filters


def keeps_filters_apart() -> bool:
    """Return True if this Spark plans each query with its own filters (SPARK-58551).

    The releases that do so also push limits to data sources, which can be detected.
    """
    return hasattr(DataSourceReader, "pushLimit")


def checked_columns(schema: StructType, types: Mapping[str, str] = COLUMNS) -> tuple[str, ...]:
    """Return the names of the columns of ``schema``, in its order.

    Raises:
        ConfigError: There are no columns, or one differs from the format's in name, type or nullability.
    """
    if not schema.fields:
        raise ConfigError(f"The schema has no columns; leave it out or choose from: {', '.join(types)}")
    for field in schema.fields:
        wanted = types.get(field.name)
        if wanted is None:
            raise ConfigError(
                f"The format pykclient has no column {field.name!r}, which the schema names; leave the schema out or "
                f"choose from: {', '.join(types)}"
            )
        given = field.dataType.simpleString()
        if given.replace(" ", "") != wanted.replace(" ", "").replace("`", ""):
            raise ConfigError(
                f"The column {field.name!r} has the type {wanted} in the format pykclient, but {given} in the schema; "
                "leave the schema out, and cast the column once it is read"
            )
        if not field.nullable:
            raise ConfigError(
                f"The column {field.name!r} is NOT NULL in the schema, but nullable in the format pykclient"
            )
    return tuple(schema.fieldNames())


def checked_formats(
    schema: StructType, options: ReadOptions, formats: Formats | None
) -> tuple[tuple[str, ...], Formats | None]:
    """Return the names of the columns of ``schema``, and the formats with only the fields that it has.

    ``formats`` are those that ``DataSource.schema`` has resolved. Spark does not call it if the user gives a schema.

    Raises:
        ConfigError: A column differs from the format's, or an option of a format is wrong.
        KafkaError: The registry does not answer, or its schema cannot be columns.
    """
    if not options.formats:
        return checked_columns(schema), None
    from pykclient.spark.formats import column_formats, column_types

    found = dict(column_formats(options) if formats is None else formats)
    for field in schema.fields:
        names = getattr(field.dataType, "names", None)
        if field.name in found and names and set(names) < set(found[field.name].field_names):
            found[field.name] = found[field.name].only(tuple(names))
    return checked_columns(schema, {**COLUMNS, **column_types(found)}), found


def new_read_task(
    options: ReadOptions, columns: tuple[str, ...], bounds: Bounds | None = None, formats: Formats | None = None
) -> ReadTask:
    """Return the settings that all tasks of a query with these options share."""
    from pykclient.spark.range_reader import ReadTask

    return ReadTask(
        consumer_config=options.executor_config(),
        columns=columns,
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        bounds=bounds,
        freeze_heap=options.freeze_heap,
        formats=formats,
    )


def input_partitions(
    options: ReadOptions,
    ranges: Sequence[OffsetRange],
    run: str | None = None,
    latest: Mapping[TopicPartition, int] | None = None,
) -> list[InputPartition]:
    """Distribute ``ranges`` over tasks: large ranges are split, small ones share a task.

    ``latest`` are the ends of the logs, for a stream: a task with a backlog does not read ahead.

    A task costs Spark about 28 ms, more than fetching a thousand records, so few tasks are faster where there is little
    to read. If the user sets the number or size of tasks, ranges do not share tasks (see ``ReadOptions``).
    """
    split = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    ends = latest or {}
    return [
        KafkaInputPartition(shared, run, ahead=not _have_backlog(shared, ends))
        for shared in share_tasks(split, options.records_per_task)
    ]


def _have_backlog(ranges: Sequence[OffsetRange], latest: Mapping[TopicPartition, int]) -> bool:
    return any(each.end < latest.get(each.topic_partition, each.end) for each in ranges)
