"""The columns of a Kafka topic as Spark's own source names and types them (KafkaRecordToRowConverter)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.errors import KafkaError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.schema_registry.columns import RegistryColumns

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

#: The ends of the names of columns for records that cannot be decoded, with the reason and the bytes.
ERROR_SUFFIX, BYTES_SUFFIX = "_error", "_bytes"

#: Names that differ in ``poll_arrow``.
_SOURCE_NAMES = {"timestampType": "timestamp_type"}


def ddl(names: Sequence[str], types: Mapping[str, str] = COLUMNS) -> str:
    """Return the schema of these columns as DDL, for ``DataSource.schema``."""
    return ", ".join(f"`{name}` {types[name]}" for name in names)


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
        **dict.fromkeys(("key_error", "value_error"), pa.string()),
        **dict.fromkeys(("key_bytes", "value_bytes"), pa.binary()),
    }
    return pa.schema([pa.field(name, types[name]) for name in names])


class ColumnDecoder(NamedTuple):
    """A decoder of a column of bytes, and Spark's type of the column that it makes."""

    columns: RegistryColumns[Any, Any]
    type: pa.DataType


class SparkBatches:
    """Converts batches of ``KafkaConsumer.poll_arrow`` to Spark's schema. Thread: owner."""

    def __init__(self, names: tuple[str, ...], decoders: Mapping[str, ColumnDecoder] | None = None) -> None:
        schema = arrow_schema(names)
        self._decoders: dict[str, ColumnDecoder] = {}
        for name, decoder in (decoders or {}).items():
            if {name, name + ERROR_SUFFIX, name + BYTES_SUFFIX} & set(names):
                self._decoders[name] = decoder
            if name in names:
                at = schema.get_field_index(name)
                schema = schema.set(at, schema.field(at).with_type(decoder.type))
        self._schema = schema
        #: The last topic, and a column that repeats it.
        self._topic = ""
        self._topics: Any = None

    @property
    def source_columns(self) -> list[str]:
        """The columns that ``convert`` needs, as ``poll_arrow`` names them."""
        names = [_SOURCE_NAMES.get(name, name) for name in self._schema.names if name in COLUMNS]
        # A record that cannot be decoded is named.
        needed = (*self._decoders, "topic", "partition", "offset") if self._decoders else ()
        return [*names, *(name for name in needed if name not in names)]

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same rows in Spark's schema.

        Raises:
            KafkaError: A timestamp is out of Spark's range, or a record cannot be decoded.
        """
        from pykclient.record.arrow import pyarrow

        pa = pyarrow()
        made: dict[str, Any] = {}
        for name, decoder in self._decoders.items():
            made.update(_decoded(pa, batch, name, decoder))
        arrays = [
            made[field.name]
            if field.name in made
            else self._array(pa, batch.column(_SOURCE_NAMES.get(field.name, field.name)), field)
            for field in self._schema
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


def _decoded(pa: Any, batch: pa.RecordBatch, name: str, decoder: ColumnDecoder) -> dict[str, Any]:
    """Return the columns that a decoder makes of the column ``name``.

    Raises:
        RecordDeserializationError: A record cannot be decoded, and the format is not permissive.
        SerializationError: A time is out of Spark's range.
    """
    batch = decoder.columns.into(batch, name)
    column = batch.column(name)
    try:
        found = {name: column if column.type == decoder.type else column.cast(decoder.type)}
    except pa.ArrowInvalid as error:
        raise SerializationError(
            f"a field of the {name} is out of the range of Spark's type: {error}. To read the other fields, name them "
            f"in the option {name}.fields"
        ) from error
    for added in (name + ERROR_SUFFIX, name + BYTES_SUFFIX):
        if added in batch.schema.names:
            found[added] = batch.column(added)
    return found
