"""The columns of a Kafka topic as Spark's own source names and types them (KafkaRecordToRowConverter)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pykclient.record.arrow import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.spark.options import ReadOptions

#: Types in Spark's DDL by name, in the order of the schema.
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


def column_names(options: ReadOptions) -> tuple[str, ...]:
    """The columns that a read gives: those of the option ``columns``, or all, headers only with ``includeHeaders``."""
    if options.columns is not None:
        return options.columns
    return tuple(name for name in COLUMNS if name != "headers" or options.include_headers)


def ddl(names: Sequence[str]) -> str:
    """What ``DataSource.schema`` returns for these columns."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in names)


@lru_cache(maxsize=16)
def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """What Spark takes for these columns, which must be equal to what it makes of them: ``to_arrow_schema(..., "UTC")``.

    Raises:
        ImportError: pyarrow is not installed.
    """
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
