"""The sink: what Spark calls to write a batch, or a stream's micro-batches (Spark: KafkaWriter, KafkaStreamingWrite).

Columns and their types are those of the built-in sink: ``value`` (string or binary), and where they are there ``key``
(string or binary), ``headers`` (array<struct<key:string,value:binary>>), ``partition`` (int; null lets the partitioner
choose) and ``topic`` (string), which the option ``topic`` overrides. As there, headers are written whatever the option
``includeHeaders`` says, and other columns are ignored, ``timestamp`` among them: a record gets the time of its writing.

Rows are written at least once: a task that fails is tried again by Spark, from its first row on. Within one attempt the
producer is idempotent, so its own retries write nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from pykclient.errors import IllegalArgumentError
from pykclient.spark.producers import bulk_config
from pykclient.spark.worker import task_context
from pykclient.spark.write_task import COLUMNS, HEADERS, KEY, PARTITION, TOPIC, VALUE, KafkaWriteTask, check_names

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.spark.options import WriteOptions

_logger = logging.getLogger(__name__)

#: Columns of what is read from Kafka that say nothing of where it is to be written: ignored without a word.
_OF_THE_SOURCE = frozenset(("offset", "timestamp", "timestampType"))

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def check_schema(schema: StructType, topic: str | None) -> None:
    """Whether rows of ``schema`` can be written, with the option ``topic``.

    Raises IllegalArgumentError naming the column, its type and what it must be.
    """
    check_names(schema.names, topic)
    for field in schema.fields:
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


class KafkaWriterCommitMessage(WriterCommitMessage):
    """What a task has written: its partition, its attempt (from 0), and how many records are acknowledged.

    Thread: owner.
    """

    def __init__(self, partition_id: int, attempt: int, records: int) -> None:
        self.partition_id = partition_id
        self.attempt = attempt
        self.records = records


class _Writing:
    """What both writers do in a task, and what they tell of it. Pickled to the workers. Thread: owner."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        options.log_notes()
        self._options = options
        self._config = bulk_config(options.producer_config())

    def _write(self, batches: Iterator[pa.RecordBatch]) -> KafkaWriterCommitMessage:
        partition_id, attempt = task_context()
        task = KafkaWriteTask(self._config, self._options.topic, freeze_heap=self._options.freeze_heap)
        records = task.execute(batches)
        return KafkaWriterCommitMessage(partition_id, attempt, records)

    def _tell(self, what: str, messages: Sequence[WriterCommitMessage | None], *, aborted: bool) -> None:
        written = [message for message in messages if isinstance(message, KafkaWriterCommitMessage)]
        records = sum(message.records for message in written)
        if aborted:
            _logger.warning(
                "%s was aborted. %d of %d tasks succeeded, with %d records, others may have written some; all that was "
                "written stays in Kafka",
                what,
                len(written),
                len(messages),
                records,
            )
        else:
            _logger.info("%s is complete: %d records by %d tasks", what, records, len(written))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._options!r}>"


class KafkaWriter(_Writing, DataSourceArrowWriter):
    """Writes a batch query. Thread: owner."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Raises IllegalArgumentError for columns that cannot be written, and for the mode ``overwrite``."""
        if overwrite:
            raise IllegalArgumentError('a topic cannot be overwritten; write with mode("append")')
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaWriterCommitMessage:
        """Write one task's rows, in a worker. Raises KafkaError where some were not written."""
        return self._write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have written all there is."""
        self._tell("A write to Kafka", messages, aborted=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some task failed for good. What was written cannot be taken back."""
        self._tell("A write to Kafka", messages, aborted=True)


class KafkaStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query. Thread: owner."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:  # noqa: ARG002
        """Raises IllegalArgumentError for columns that cannot be written.

        With the output mode ``complete``, for which Spark asks to ``overwrite``, each micro-batch appends all rows of
        the result, as with the built-in sink. ``update`` does not get here: Spark refuses it for sinks in Python.
        """
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaWriterCommitMessage:
        """Write one task's rows, in a worker. Raises KafkaError where some were not written."""
        return self._write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks have written all there is."""
        self._tell(f"Micro-batch {batchId} to Kafka", messages, aborted=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Some task failed for good. What was written cannot be taken back; the query writes the micro-batch again."""
        self._tell(f"Micro-batch {batchId} to Kafka", messages, aborted=True)
