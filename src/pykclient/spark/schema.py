"""The columns of a Kafka topic as Spark's own source names and types them (KafkaRecordToRowConverter)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pykclient.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

#: Types in Spark's DDL by column name, in the order of the schema.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}

#: Names that differ in ``poll_arrow``.
_SOURCE_NAMES = {"timestampType": "timestamp_type"}


def column_names(chosen: tuple[str, ...] | None, include_headers: bool) -> tuple[str, ...]:
    """Return the columns to read: the chosen ones, or all, ``headers`` only with ``include_headers``."""
    if chosen is not None:
        return chosen
    return tuple(name for name in COLUMNS if name != "headers" or include_headers)


def ddl(names: Sequence[str]) -> str:
    """Return the schema of these columns as DDL, for ``DataSource.schema``."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in names)


@lru_cache(maxsize=16)
def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema that Spark requires for these columns: that of its ``to_arrow_schema(schema, "UTC")``.

    Raises:
        ImportError: pyarrow is not installed.
    """
    from pykclient.record.arrow import pyarrow

    pa = pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in names])


class SparkBatches:
    """Converts batches of ``KafkaConsumer.poll_arrow`` to Spark's schema. Thread: owner."""

    __slots__ = ("_schema", "_topic", "_topics")

    def __init__(self, names: tuple[str, ...]) -> None:
        self._schema = arrow_schema(names)
        #: The last topic, and a column that repeats it.
        self._topic = ""
        self._topics: Any = None

    @property
    def source_columns(self) -> list[str]:
        """The columns that ``convert`` needs, as ``poll_arrow`` names them."""
        return [_SOURCE_NAMES.get(name, name) for name in self._schema.names]

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same rows in Spark's schema.

        Raises:
            KafkaError: A timestamp is out of Spark's range.
        """
        from pykclient.record.arrow import pyarrow

        pa = pyarrow()
        arrays = [
            self._array(pa, batch.column(_SOURCE_NAMES.get(field.name, field.name)), field) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, pa: Any, array: Any, field: Any) -> Any:
        if field.name == "topic":
            return self._topic_column(pa, array)
        if field.name == "timestamp":
            return _microseconds(pa, array, field.type)
        if field.name == "headers":
            return _headers(pa, array, field.type)
        return array if field.name != "timestampType" else array.cast(field.type)

    def _topic_column(self, pa: Any, array: Any) -> Any:
        if len(array.dictionary) != 1:
            return array.dictionary_decode()
        rows, topic = len(array), array.dictionary[0].as_py()
        if self._topics is None or self._topic != topic or len(self._topics) < rows:
            self._topic, self._topics = topic, pa.repeat(pa.scalar(topic, pa.string()), rows)
        return self._topics.slice(0, rows)


def _microseconds(pa: Any, array: Any, type: Any) -> Any:
    try:
        times = array.cast(type)
    except pa.ArrowInvalid as error:
        raise KafkaError(
            f"the timestamp of a record is out of Spark's range, which counts microseconds: {error}. To read the other "
            "columns, name them in the option columns, without timestamp"
        ) from error
    if times.null_count:
        # Spark's own source returns the -1 ms that Kafka stores for a missing timestamp.
        times = times.fill_null(pa.scalar(-1000, type))
    return times


def _headers(pa: Any, array: Any, type: Any) -> Any:
    """Return the headers in Spark's type; null where a record has none."""
    import pyarrow.compute as pc

    headers = array.values
    if not len(headers):
        return pa.nulls(len(array), type)
    fields = type.value_type
    pairs = pa.StructArray.from_arrays([headers.field(0), headers.field(1)], fields=[fields.field(0), fields.field(1)])
    empty = pc.equal(pc.list_value_length(array), 0)
    return pa.ListArray.from_arrays(array.offsets, pairs, type=type, mask=empty)
