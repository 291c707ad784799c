"""The sink for batches and for the micro-batches of streams (Spark: KafkaWriter, KafkaStreamingWrite).

Columns and types are those of Spark's own sink: ``value`` (string or binary, or of any type with the option
``value.format``), and optionally ``key`` (as ``value``), ``headers`` (array<struct<key:string,value:binary>>),
``partition`` (int; null lets the partitioner choose) and ``topic`` (string), which the option ``topic`` overrides. As
there, headers are written whether or not the option ``includeHeaders`` is set. Other columns are ignored, including
``timestamp``: a record gets the time of its writing.

Rows are written at least once, as Spark repeats a failed task from its first row. Within one attempt the producer is
idempotent, so its retries write no duplicates. ``transactional_writer`` has the writers for exactly once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from pykclient.errors import IllegalArgumentError
from pykclient.spark.producers import bulk_config
from pykclient.spark.worker import task_context
from pykclient.spark.write_task import COLUMNS, HEADERS, KEY, PARTITION, TOPIC, VALUE, KafkaWriteTask, check_names

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.producer.columns import ColumnEncoder
    from pykclient.spark.formats import WrittenFormat
    from pykclient.spark.options import WriteOptions
    from pykclient.spark.write_task import Lease

_logger = logging.getLogger(__name__)

#: The results of the tasks; None for one that failed.
Messages = Sequence[WriterCommitMessage | None]
#: Columns that reading from Kafka returns and writing does not use. They are ignored without a warning.
_OF_THE_SOURCE = frozenset(("offset", "timestamp", "timestampType"))

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def check_schema(schema: StructType, topic: str | None, formatted: Collection[str] = ()) -> None:
    """Check that rows of ``schema`` can be written, with the option ``topic``. ``formatted`` may be of any type.

    Raises:
        IllegalArgumentError: They cannot. The text names the column, its type and the type that it must have.
    """
    check_names(schema.names, topic)
    for field in schema.fields:
        if field.name in formatted:
            continue
        if field.name in COLUMNS and not (field.name == TOPIC and topic is not None):
            _check_type(field.name, field.dataType)
    ignored = [name for name in schema.names if name not in COLUMNS and name not in _OF_THE_SOURCE]
    if ignored:
        _logger.warning("Columns that are not written to Kafka: %s", ", ".join(ignored))


def _check_type(name: str, given: DataType) -> None:
    if name in {KEY, VALUE}:
        allowed, wanted = isinstance(given, (StringType, BinaryType)), "string or binary"
    elif name == PARTITION:
        allowed, wanted = isinstance(given, IntegerType), "int"
    elif name == HEADERS:
        allowed, wanted = _is_headers(given), _HEADERS_TYPE
    else:
        allowed, wanted = isinstance(given, StringType), "string"
    if not allowed:
        raise IllegalArgumentError(
            f"column {name!r} is of type {given.simpleString()} and must be {wanted} to be written to Kafka; cast it"
        )


def _is_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = given.elementType.fields
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


@dataclass
class KafkaWriterCommitMessage(WriterCommitMessage):
    """The result of a task: its partition, its attempt (from 0), and the number of acknowledged records.

    Thread: owner.
    """

    partition_id: int
    attempt: int
    records: int


class Writing:
    """Base of all writers. Pickled to the workers. Thread: owner."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Raise IllegalArgumentError if the columns cannot be written, or for a batch with the mode ``overwrite``.

        Spark sets ``overwrite`` for streams with the output mode ``complete``. Each micro-batch then appends all rows
        of the result, as with Spark's own sink. Spark refuses ``update`` for Python sinks.
        """
        if overwrite and not options.streaming:
            raise IllegalArgumentError('a topic cannot be overwritten; write with mode("append")')
        check_schema(schema, options.topic, options.formats)
        options.log_notes()
        self._options = options
        self._formats: dict[str, WrittenFormat] = {}
        if options.formats:
            from pykclient.spark.formats import written_formats

            self._formats = written_formats(options, schema)
        self._config = bulk_config(options.producer_config())

    def _encoders(self) -> dict[str, ColumnEncoder]:
        """Return the encoders of typed columns, for one task."""
        return {column: format.encoder(column) for column, format in self._formats.items()}

    def _execute(self, batches: Iterator[pa.RecordBatch], begin: Callable[[], Lease] | None = None) -> int:
        """Write one task's rows with what ``begin`` returns, or a shared producer, and return their number."""
        encoders, freeze_heap = self._encoders(), self._options.freeze_heap
        task = KafkaWriteTask(
            self._config, self._options.topic, freeze_heap=freeze_heap, begin=begin, encoders=encoders
        )
        return task.execute(batches)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._options!r}>"


class _AtLeastOnce(Writing):
    """Base of both writers: writing in a task, and logging of the results. Thread: owner.

    ``batchId`` is that of a micro-batch, and None for a batch query.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaWriterCommitMessage:
        """Write one task's rows, in a worker. Raises KafkaError if some were not written."""
        return KafkaWriterCommitMessage(*task_context(), self._execute(iterator))

    def commit(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Log the success of all tasks."""
        tasks, records = _counted(messages)
        _logger.info("%s is complete: %d records by %d tasks", _named(batchId), records, tasks)

    def abort(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Log that a task failed permanently. Written records stay in Kafka, and a stream repeats the micro-batch."""
        tasks, records = _counted(messages)
        told = f"{tasks} of {len(messages)} tasks succeeded, with {records} records, and others may have written some"
        _logger.warning("%s was aborted. %s. All written records stay in Kafka", _named(batchId), told)


def _named(batch: int | None) -> str:
    return "A write to Kafka" if batch is None else f"Micro-batch {batch} to Kafka"


def _counted(messages: Messages) -> tuple[int, int]:
    """Return the number of tasks that succeeded, and that of their records."""
    written = [message.records for message in messages if isinstance(message, KafkaWriterCommitMessage)]
    return len(written), sum(written)


class KafkaWriter(_AtLeastOnce, DataSourceArrowWriter):
    """Writes a batch query. Thread: owner."""


class KafkaStreamWriter(_AtLeastOnce, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query. Thread: owner."""
