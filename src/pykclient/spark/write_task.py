"""Writing one task's Arrow batches, by columns, with a shared producer (Spark: KafkaWriteTask, KafkaRowWriter)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pykclient.errors import IllegalArgumentError, KafkaError
from pykclient.record.arrow import decoded, takeable
from pykclient.record.row_columns import group_rows
from pykclient.spark.deliveries import described
from pykclient.spark.producers import LeasedProducer, pool
from pykclient.spark.worker import freeze_heap_once, task_name

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.producer.columns import ColumnEncoder

TOPIC, KEY, VALUE, HEADERS, PARTITION = "topic", "key", "value", "headers", "partition"

#: The columns that are written. Others are ignored, as by Spark's own sink.
COLUMNS = (TOPIC, KEY, VALUE, HEADERS, PARTITION)


class Lease(Protocol):
    """A producer for one task."""

    def send_batch(
        self, topic: str, data: Any, *, value: Any = None, key: Any = None, headers: Any = None, partition: Any = None
    ) -> Any:
        """Send rows."""

    def check(self) -> None:
        """Raise KafkaError if some rows are known to have failed."""

    def end(self, *, failed: bool) -> int:
        """Release the producer, and return how many rows were written. Unless ``failed``, first wait for all rows.

        Raises:
            KafkaError: Some rows were not written.
        """


class KafkaWriteTask:
    """Writes one task's rows. ``topic`` takes precedence over the column of that name; one of the two is required.

    ``freeze_heap``: see ``freeze_heap_once``; ``fingerprint``: see ``ProducerPool.acquire``; ``begin`` gets a producer
    for the first row; ``encoders`` make the bytes of typed columns. Thread: owner.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str | None,
        *,
        freeze_heap: bool = False,
        fingerprint: str | None = None,
        begin: Callable[[], Lease] | None = None,
        encoders: Mapping[str, ColumnEncoder] | None = None,
    ) -> None:
        self._encoders = encoders or {}
        self._begin: Callable[[], Lease] = begin or (lambda: LeasedProducer(pool(), config, fingerprint))
        self._topic = topic
        self._freeze_heap = freeze_heap
        self._name = task_name()
        self._rows = 0
        #: The optional columns that the rows have.
        self._columns: dict[str, Any] | None = None

    def execute(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Write all rows, wait until they are acknowledged, and return their number.

        ``buffer.memory`` bounds the memory: with so many bytes in flight, the next batch waits. The first error ends
        the task without sending the rest.

        Raises:
            KafkaError: Rows were not written, or cannot be. The text names the task and contains no data.
        """
        lease: Lease | None = None  # a task without rows needs none
        try:
            for batch in batches:
                if batch.num_rows:
                    lease = lease or self._begin()
                    self._send(lease, batch)
        except BaseException:
            if lease is not None:
                lease.end(failed=True)
            raise
        written = 0 if lease is None else lease.end(failed=False)
        if self._freeze_heap:
            freeze_heap_once()  # now that all modules are loaded that later tasks need
        return written

    def _send(self, lease: Lease, batch: pa.RecordBatch) -> None:
        if self._columns is None:
            check_names(batch.schema.names, self._topic)
            written = (VALUE, KEY, HEADERS, PARTITION)
            self._columns = {name: self._encoders.get(name, name) for name in written if name in batch.schema.names}
        try:
            if self._topic is not None:
                lease.send_batch(self._topic, batch, **self._columns)
            else:
                for topic, rows in by_topic(batch, self._rows):
                    lease.send_batch(topic, rows, **self._columns)
        except KafkaError as error:
            raise KafkaError(
                f"{self._name} could not be written to Kafka; after {self._rows} rows of it: {described(error)}"
            ) from error
        self._rows += batch.num_rows
        lease.check()


def by_topic(batch: pa.RecordBatch, rows_before: int = 0) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic with its rows, in order, without columns that are not written.

    ``rows_before`` is the number of rows before the batch, for the error.

    Raises:
        IllegalArgumentError: A topic is null.
    """
    import pyarrow as pa

    column = decoded(batch.column(batch.schema.get_field_index(TOPIC)))
    if column.null_count:
        row = rows_before + next(row for row in range(len(column)) if not column[row].is_valid)
        raise IllegalArgumentError(
            f"row {row} (counted from 0) has a null topic; give each row a topic, or set one for all rows by the "
            "option topic"
        )
    encoded = column.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], batch
        return
    numbers = memoryview(encoded.indices.buffers()[1]).cast("B").cast("i")
    first = encoded.indices.offset
    rows = pa.record_batch(
        {name: takeable(batch.column(name)) for name in batch.schema.names if name in COLUMNS and name != TOPIC}
    )
    for number, indices in group_rows(numbers[first : first + len(column)], 0, len(column)):
        taken = pa.Array.from_buffers(pa.int32(), len(indices), [None, pa.py_buffer(indices)])
        yield topics[number], rows.take(taken)


def check_names(names: Sequence[str], topic: str | None) -> None:
    """Check that rows with columns of these names can be written.

    Raises:
        IllegalArgumentError: There is no value or no topic, or a column is there twice.
    """
    there = f"the rows have {', '.join(names)}"
    if VALUE not in names:
        raise IllegalArgumentError(f"rows to write need a column {VALUE!r}; {there}")
    if TOPIC not in names and topic is None:
        raise IllegalArgumentError(
            f"there is neither the option {TOPIC} nor a column {TOPIC!r}, and one of them is required; {there}"
        )
    for name in COLUMNS:
        if names.count(name) > 1 and not (name == TOPIC and topic is not None):
            raise IllegalArgumentError(f"there are several columns {name!r}; {there}")
