"""Arrow data of polars, DuckDB, pandas and pyarrow, in chunks of any kind, sent by ``send_batch``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalArgumentError
from pykclient.producer.columns import BatchInput
from pykclient.types import Header
from tests.producer.harness import TOPIC
from tests.producer.test_kafka_producer import Make, make

__all__ = ["make"]

#: Some are longer than the 12 bytes that fit into a view.
KEYS = ["a", None, "ключ", "", "a key of more than twelve bytes", "a"]
VALUES = [b"1", b"", None, b"\x00\xff", b"a value of more than twelve bytes", b"6"]
#: Seconds since the epoch.
TIMES = [1, 2_000_000_000, 3, 4, None, 6]
TEXT = ["one", None, "three"]
NOW_MS = 1_700_000_000_000


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int


ROWS = [
    Row(None if key is None else key.encode(), value, NOW_MS if time is None else time * 1000)
    for key, value, time in zip(KEYS, VALUES, TIMES, strict=True)
]


def rows_of(data: Any, **columns: Any) -> list[Row]:
    """Return the rows that the records would have."""
    given = {"value": None, "key": None, "headers": None, "timestamp": None, "partition": None, **columns}
    return [
        Row(part.rows.key(row), part.rows.value(row), part.rows.timestamp(row))
        for part in BatchInput("t", data, **given).parts(NOW_MS)
        for row in range(part.rows.count)
    ]


def polars_frame() -> pl.DataFrame:
    at = pl.Series(TIMES, dtype=pl.Int64)
    return pl.DataFrame({"key": KEYS, "value": VALUES, "ts": at}).with_columns(pl.from_epoch("ts", time_unit="s"))


def pandas_frame(text: str = "str") -> pd.DataFrame:
    """Return a frame whose index differs from the row numbers."""
    columns = {
        "key": pd.Series(KEYS, dtype=text),
        "value": pd.Series(VALUES, dtype=object),
        "ts": pd.to_datetime(pd.Series(TIMES, dtype="Int64"), unit="s"),
    }
    return pd.DataFrame(columns).set_index(pd.Index(range(10, 16)))


def arrow_table() -> pa.Table:
    at = pa.array([None if time is None else time * 1_000_000_000 for time in TIMES], pa.timestamp("ns"))
    return pa.table({"key": KEYS, "value": pa.array(VALUES, pa.binary()), "ts": at})


def relation(condition: str = "true") -> duckdb.DuckDBPyRelation:
    """Return a relation, which keeps its connection open."""
    connection = duckdb.connect()
    connection.execute("create table rows (number int, key text, value blob, ts timestamptz)")
    times = [None if time is None else datetime.fromtimestamp(time, UTC) for time in TIMES]
    connection.executemany(
        "insert into rows values (?, ?, ?, ?)", list(zip(range(6), KEYS, VALUES, times, strict=True))
    )
    return connection.sql(f"select key, value, ts from rows where {condition} order by number")


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (polars_frame, range(6)),
        (lambda: polars_frame().slice(1, 4), range(1, 5)),
        (lambda: polars_frame().filter(pl.col("key").is_not_null()), [0, 2, 3, 4, 5]),
        (lambda: pl.concat([polars_frame()[:2], polars_frame()[1:]], rechunk=False), [0, 1, 1, 2, 3, 4, 5]),
        (lambda: polars_frame().with_columns(pl.col("key").cast(pl.Categorical)), range(6)),
        (
            lambda: polars_frame().with_columns(
                pl.col("key").cast(pl.Enum(sorted({key for key in KEYS if key is not None})))
            )[2:],
            range(2, 6),
        ),
        (lambda: polars_frame().with_columns(pl.col("ts").cast(pl.Datetime("us", "Europe/Berlin"))), range(6)),
        (lambda: polars_frame().to_struct("rows"), range(6)),
        (lambda: polars_frame().clear(), []),
        (relation, range(6)),
        (lambda: relation("number % 2 = 1"), [1, 3, 5]),
        (lambda: relation("false"), []),
        (
            lambda: relation().project("key::enum('a', '', 'ключ', 'a key of more than twelve bytes') key, value, ts"),
            range(6),
        ),
        (pandas_frame, range(6)),
        (lambda: pandas_frame("object")[1:4], range(1, 4)),
        (lambda: pandas_frame("category"), range(6)),
        (lambda: pandas_frame().convert_dtypes(dtype_backend="pyarrow"), range(6)),
        (lambda: pandas_frame()[::2], [0, 2, 4]),
        (lambda: pandas_frame()[:0], []),
        (arrow_table, range(6)),
        (lambda: arrow_table().slice(2, 3), range(2, 5)),
        (lambda: pa.concat_tables([arrow_table()[:3], arrow_table()[:0], arrow_table()[5:]]), [0, 1, 2, 5]),
        (lambda: arrow_table().to_struct_array(), range(6)),
        (arrow_table()[:0].to_reader, []),
    ],
    ids=lambda each: "" if callable(each) else "-".join(map(str, each)) or "nothing",
)
def test_tables_of_any_library_give_the_same_rows(data: Callable[[], Any], kept: Any) -> None:
    table = data()
    assert rows_of(table, key="key", timestamp="ts") == [ROWS[row] for row in kept]


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(TEXT),
        pl.Series(["zero", *TEXT])[1:],
        pl.concat([pl.Series(TEXT[:1]), pl.Series(TEXT[1:])], rechunk=False),
        pl.concat(
            [pl.Series(TEXT[:1], dtype=pl.Categorical), pl.Series(TEXT[1:], dtype=pl.Categorical)], rechunk=False
        ),
        pl.Series([b"one", None, b"three"]),
        pd.Series(TEXT),
        pd.Series(TEXT, dtype="category"),
        pd.Series(["zero", *TEXT])[1:],
        pd.Series([b"one", None, b"three"]),
        pa.chunked_array([TEXT[:2], [], TEXT[2:]]),
        pa.array(["zero", *TEXT]).dictionary_encode()[1:],
    ],
    ids=lambda column: f"{type(column).__module__.split('.')[0]} {getattr(column, 'dtype', None) or column.type}",
)
def test_columns_of_any_library_become_rows(column: Any) -> None:
    values = [b"one", None, b"three"]
    assert rows_of(column) == [Row(None, value, NOW_MS) for value in values]
    assert rows_of(values, key=column) == [Row(value, value, NOW_MS) for value in values]


@pytest.mark.parametrize(
    "column", [pl.Series([], dtype=pl.Binary), pd.Series([], dtype="str"), pa.chunked_array([], pa.string_view())]
)
def test_columns_without_rows_give_no_records(column: Any) -> None:
    assert rows_of(column) == []


def test_all_parts_of_records_are_sent(make: Make) -> None:
    """All parts of a record pass through a producer to the broker."""
    producer, brokers = make()
    pairs = pl.List(pl.Struct({"name": pl.String, "value": pl.Binary}))
    headers = [[{"name": "a header", "value": b"x"}, {"name": "none", "value": None}], None, []]
    columns: dict[str, Any] = {
        "polars": pl.DataFrame(
            {
                "value": [b"1", b"2", b"3"],
                "headers": pl.Series(headers, dtype=pairs),
                "partition": pl.Series([1, 0, 1], dtype=pl.UInt8),
            }
        ),
        "DuckDB": duckdb.sql(
            "select * from (values"
            " ('1'::blob, [{'name': 'a header', 'value': 'x'::blob}, {'name': 'none', 'value': null}], 1),"
            " ('2'::blob, null, 0), ('3'::blob, [], 1)) t(value, headers, partition)"
        ),
    }
    there: tuple[Header, ...] = (("a header", b"x"), ("none", None))
    for data in columns.values():
        brokers.received.clear()
        producer.send_batch(TOPIC, data, headers="headers", partition="partition").get(10)
        assert sorted((record.value, partition, record.headers) for partition, record in brokers.received) == [
            (b"1", 1, there),
            (b"2", 0, ()),
            (b"3", 1, ()),
        ]


@pytest.mark.parametrize(
    "data",
    [
        pl.concat(
            [pl.DataFrame({"value": [b"1"], "n": [1]}), pl.DataFrame({"value": [b"2"], "n": [-1]})], rechunk=False
        ),
        pd.DataFrame({"value": [b"1", b"2"], "n": [1, -1]}),
    ],
    ids=["polars", "pandas"],
)
def test_bad_row_refuses_the_whole_frame(make: Make, data: Any) -> None:
    """A frame with one bad row is refused before anything is sent, although frames export Arrow streams."""
    producer, brokers = make()
    with pytest.raises(IllegalArgumentError, match="-1"):
        producer.send_batch(TOPIC, data, timestamp="n")
    producer.flush(10)
    assert brokers.received == []


@pytest.mark.parametrize(
    ("data", "arguments", "says"),
    [
        (pl.DataFrame({"value": [1]}), {}, "int64"),
        (pl.DataFrame({"value": [1.5]}).lazy(), {}, "LazyFrame"),
        (pd.DataFrame({"value": [b"1"], "partition": [1.0]}), {"partition": "partition"}, "double"),
        (pd.DataFrame({"value": [b"1", 2]}), {}, "DataFrame is not for Arrow"),
    ],
)
def test_frames_with_wrong_types_are_refused(data: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(IllegalArgumentError, match=says):
        rows_of(data, **arguments)


def test_relation_with_wrong_timestamp_type_is_refused() -> None:
    with duckdb.connect() as connection, pytest.raises(IllegalArgumentError, match="timestamp is of type decimal"):
        rows_of(connection.sql("select 'a'::blob as value, 1::hugeint as ts"), timestamp="ts")


KINDS: list[Any] = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(4),
    pa.dictionary(pa.int8(), pa.binary()),
    pa.dictionary(pa.uint32(), pa.string_view()),
    pa.null(),
]


@given(st.data())
def test_slices_of_any_arrow_type_are_read(draw: st.DataObject) -> None:
    """Chunks are slices of longer arrays, so that offsets, validity and children begin at any position."""
    kind = draw.draw(st.sampled_from(KINDS), "kind")
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    shortest, longest = (4, 4) if inner == pa.binary(4) else (0, 20)
    if pa.types.is_null(kind):
        values: st.SearchStrategy[Any] = st.none()
    elif "binary" in str(inner):
        values = st.none() | st.binary(min_size=shortest, max_size=longest)
    else:
        values = st.none() | st.text(max_size=longest)
    chunks = []
    expected: list[bytes | None] = []
    for _ in range(draw.draw(st.integers(0, 3), "chunks")):
        whole = draw.draw(st.lists(values, max_size=20), "values")
        start = draw.draw(st.integers(0, len(whole)), "start")
        stop = draw.draw(st.integers(start, len(whole)), "stop")
        array = pa.array(whole, inner)
        if inner is not kind:
            array = pa.DictionaryArray.from_arrays(pa.array(range(len(whole)), kind.index_type), array)
        chunks.append(array[start:stop])
        expected += [value.encode() if isinstance(value, str) else value for value in whole[start:stop]]
    column = pa.chunked_array(chunks, kind)
    numbers = pa.array(range(len(expected) + 1), pa.int64())[1:]
    found = [Row(value, value, number) for number, value in enumerate(expected, 1)]
    assert rows_of(column, key=column, timestamp=numbers) == found
    assert rows_of(pa.table({"value": column, "ts": numbers}), key="value", timestamp="ts") == found
