"""Ranges of offsets as Arrow record batches, in the executor's Python worker (Spark: KafkaDataConsumer)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pykclient.clock import SYSTEM_CLOCK, Timer
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import KafkaTimeoutError
from pykclient.record.arrow import pyarrow
from pykclient.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.spark.filters import Bounds
    from pykclient.spark.ranges import OffsetRange

#: How many rows a batch has at most; Spark's own batches are of this size.
MAX_ROWS = 10_000

#: How many bytes of records a batch has at most, unless one record alone is larger.
MAX_BYTES = 8 * 1024 * 1024

_NAMES = {"timestampType": "timestamp_type"}


class ReadTask:
    """What all tasks of one read have in common, as it is pickled to the executors."""

    __slots__ = ("bounds", "columns", "consumer_config", "fail_on_data_loss", "freeze_heap", "poll_timeout_ms")

    def __init__(
        self,
        consumer_config: Mapping[str, object],
        columns: Sequence[str],
        poll_timeout_ms: int = 120_000,
        fail_on_data_loss: bool = True,
        bounds: Bounds | None = None,
        freeze_heap: bool = True,
    ) -> None:
        self.consumer_config = dict(consumer_config)
        self.columns = tuple(columns)
        self.poll_timeout_ms = poll_timeout_ms
        self.fail_on_data_loss = fail_on_data_loss
        self.bounds = bounds
        self.freeze_heap = freeze_heap

    def __repr__(self) -> str:
        return f"ReadTask(columns={','.join(self.columns)})"


def read_ranges(task: ReadTask, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The rows of ``ranges``, those of a partition in order; ends when the last range does."""
    ends = {each.topic_partition: each.end for each in ranges if each.start < each.end}
    if not ends:
        return
    wanted = dict.fromkeys(["partition", "offset", *(_NAMES.get(name, name) for name in task.columns)])
    consumer: KafkaConsumer[Any, Any] = KafkaConsumer(task.consumer_config)
    try:
        consumer.assign(list(ends))
        for each in ranges:
            if each.topic_partition in ends:
                consumer.seek(each.topic_partition, each.start)
        timer = Timer(SYSTEM_CLOCK, task.poll_timeout_ms)
        while ends:
            batch = consumer.poll_arrow(timer.remaining_ms, MAX_ROWS, MAX_BYTES, columns=list(wanted))
            batch = _within(batch, ends)
            for tp in [tp for tp, end in ends.items() if consumer.position(tp) >= end]:
                del ends[tp]
                consumer.pause(tp)
            timer.update()
            if batch.num_rows:
                yield _spark_batch(batch, task.columns)
                timer = Timer(SYSTEM_CLOCK, task.poll_timeout_ms)
            elif timer.expired:
                raise KafkaTimeoutError(f"nothing came of {', '.join(map(str, ends))} in {task.poll_timeout_ms} ms")
    finally:
        consumer.close(timeout_ms=1000)


def _within(batch: pa.RecordBatch, ends: Mapping[Any, int]) -> pa.RecordBatch:
    import pyarrow.compute as pc

    for tp, end in ends.items():
        behind = pc.and_(pc.equal(batch["partition"], tp.partition), pc.greater_equal(batch["offset"], end))
        if pc.any(behind).as_py():
            batch = batch.filter(pc.invert(behind))
    return batch


def _spark_batch(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    pa = pyarrow()
    schema = arrow_schema(names)
    arrays = [_spark_array(pa, batch[_NAMES.get(field.name, field.name)], field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _spark_array(pa: Any, array: Any, field: Any) -> Any:
    import pyarrow.compute as pc

    if field.name == "timestamp":
        return array.cast(field.type).view(pa.int64()).fill_null(-1000).view(field.type)
    if field.name == "headers":
        pairs = pa.StructArray.from_arrays(
            [array.values.field(0), array.values.field(1)], fields=list(field.type.value_type)
        )
        empty = pc.equal(pc.list_value_length(array), 0)
        return pa.ListArray.from_arrays(array.offsets, pairs, type=field.type, mask=empty)
    return array if array.type == field.type else array.cast(field.type)
