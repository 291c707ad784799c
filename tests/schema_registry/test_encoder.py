"""Arrow columns as Avro records: both implementations equal fastavro, and errors name column, row and both types."""

from __future__ import annotations

import asyncio
import datetime
import json
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import hypothesis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, strategies as st

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import ConfigError, IllegalArgumentError, SerializationError
from pykclient.implementation import python_form
from pykclient.producer.columns import ColumnEncoder
from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
    avro_columns,
    avro_encoder,
    avro_writing,
    header_schema_id_serializer,
    prefix_schema_guid_serializer,
)
from pykclient.schema_registry.avro import AvroDeserializer
from pykclient.schema_registry.avro_types import parse_avro
from pykclient.schema_registry.column_encoder import derived_type, part_of
from pykclient.schema_registry.rules import RuleError
from pykclient.schema_registry.schemas import Rule, RuleKind, RuleMode, RuleSet
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry
from tests.schema_registry.avro_strategies import record
from tests.schema_registry.test_columns import columns_of, framed

MANY = hypothesis.settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)
REGISTERING = {"auto.register.schemas": True}


def written(schema: Any, array: pa.Array) -> list[bytes | None]:
    """Return the rows as the compiled form writes them, which equals the Python form."""
    root = part_of(array, parse_avro(schema))
    data, offsets = avro_writing.encode(root, len(array), b"id")
    expected, places = python_form(avro_writing.encode)(root, len(array), b"id")
    assert (bytes(data), list(offsets)) == (bytes(expected), list(places))
    rows = [bytes(data[offsets[row] : offsets[row + 1]]) for row in range(len(array))]
    assert all(row[:2] in (b"id", b"") for row in rows)
    return [row[2:] if row else None for row in rows]


def by_fastavro(schema: Any, values: list[Any]) -> list[bytes | None]:
    return [None if value is None else framed(schema, value)[5:] for value in values]


def test_kinds_of_both_forms_are_the_same() -> None:
    _avro_writing: Any = pytest.importorskip("pykclient.schema_registry._avro_writing")
    names = ("CONSTANT", "BIT", "INTEGER", "FIXED", "TEXT", "REST", "DECIMAL", "RECORD", "LIST", "TAGGED")
    assert (*_avro_writing.KINDS,) == tuple(getattr(avro_writing, name) for name in names) == tuple(range(10))


@MANY
@given(data=st.data(), drawn=record(recursive=False))
def test_rows_equal_fastavros(data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]) -> None:
    schema, values = drawn
    rows = [None, *data.draw(st.lists(st.none() | values, max_size=12))]
    expected = [None if row is None else framed(schema, row) for row in rows]
    array = columns_of(schema).decode(pa.array(expected, pa.binary())).array
    assert written(schema, array) == [None if row is None else row[5:] for row in expected]
    start = data.draw(st.integers(0, len(rows)))
    assert written(schema, array[start:]) == [None if row is None else row[5:] for row in expected[start:]]


def values_of_type(of: pa.DataType) -> st.SearchStrategy[Any]:
    """Return values whose Arrow type is ``of``."""
    kinds = pa.types
    if kinds.is_boolean(of):
        return st.booleans()
    if kinds.is_integer(of):
        bits = min(of.bit_width, 63 if "uint" in str(of) else 64)
        return (
            st.integers(0, 2**bits - 1) if "uint" in str(of) else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
    if kinds.is_floating(of):
        return st.floats(width=of.bit_width, allow_nan=False)
    if kinds.is_decimal(of):
        most = 10**of.precision - 1
        return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-of.scale))
    if kinds.is_date(of):
        return st.dates()
    if kinds.is_time(of):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 6}[of.unit]
        return st.times().map(
            lambda time: time.replace(microsecond=time.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
        )
    if kinds.is_timestamp(of):
        zone = st.just(datetime.UTC) if of.tz else st.none()
        low, high = datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)
        times = st.datetimes(low, high, timezones=zone)
        unit = {"s": 10**6, "ms": 1000, "us": 1, "ns": 1}[of.unit]
        return times.map(lambda time: time.replace(microsecond=time.microsecond // unit * unit))
    if kinds.is_fixed_size_binary(of):
        return st.binary(min_size=of.byte_width, max_size=of.byte_width)
    return st.binary(max_size=9) if "binary" in str(of) else st.text(max_size=9)


_LEAVES: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), "boolean"),
    *((of, "int") for of in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())),
    *((of, "long") for of in (pa.int8(), pa.int64(), pa.uint32(), pa.uint64())),
    *((of, "float") for of in (pa.float16(), pa.float32())),
    *((of, "double") for of in (pa.float32(), pa.float64(), pa.int16())),
    *(
        (of, "string")
        for of in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    ),
    *((of, "bytes") for of in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3))),
    *((of, {"type": "fixed", "name": "F", "size": 3}) for of in (pa.binary(3),)),
    *(
        (of, {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4})
        for of in (
            pa.decimal128(12, 4),
            pa.decimal128(9, 2),
            pa.decimal256(12, 4),
            pa.decimal64(9, 3),
            pa.decimal32(5, 0),
        )
    ),
    (
        pa.decimal128(9, 2),
        {"type": "fixed", "name": "F", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 2},
    ),
    *((of, {"type": "int", "logicalType": "date"}) for of in (pa.date32(), pa.date64())),
    *((of, {"type": "int", "logicalType": "time-millis"}) for of in (pa.time32("s"), pa.time32("ms"))),
    *(
        (of, {"type": "long", "logicalType": "time-micros"})
        for of in (pa.time64("us"), pa.time64("ns"), pa.time32("ms"))
    ),
    *(
        (pa.timestamp(unit, "UTC"), {"type": "long", "logicalType": "timestamp-micros"})
        for unit in ("s", "ms", "us", "ns")
    ),
    *((pa.timestamp(unit, "UTC"), {"type": "long", "logicalType": "timestamp-millis"}) for unit in ("s", "ms")),
    *((pa.timestamp(unit), {"type": "long", "logicalType": "local-timestamp-micros"}) for unit in ("s", "ms", "us")),
    (pa.timestamp("ms"), {"type": "long", "logicalType": "local-timestamp-millis"}),
]
_NESTED = ("none", "list", "large_list", "list_view", "fixed", "map", "struct", "union")


@MANY
@given(data=st.data())
def test_all_arrow_types_are_written_as_fastavro_writes_their_values(data: st.DataObject) -> None:
    of, schema = data.draw(st.sampled_from(_LEAVES))
    values = values_of_type(of)
    for place, nested in enumerate(data.draw(st.lists(st.sampled_from(_NESTED), max_size=3))):
        if nested == "map":
            of, schema = pa.map_(pa.string(), of), {"type": "map", "values": schema}
            values = st.dictionaries(st.text(max_size=3), values, max_size=2)
        elif nested == "struct":
            of, schema = pa.struct([("a", of)]), _a_record(f"R{place}", schema)
            values = values.map(lambda value: {"a": value})
        elif nested == "fixed":
            of, schema, values = (
                pa.list_(of, 2),
                {"type": "array", "items": schema},
                st.lists(values, min_size=2, max_size=2),
            )
        elif nested == "union" and not isinstance(schema, list):
            schema, values = data.draw(st.sampled_from([["null", schema], [schema, "null"]])), st.none() | values
        elif nested.endswith(("list", "view")):
            of = {"list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view}[nested](of)
            schema, values = {"type": "array", "items": schema}, st.lists(values, max_size=3)
    schema = _a_record("Root", schema)
    rows = data.draw(st.lists(values, max_size=9))
    try:
        column = pa.array(rows, of)
    except pa.ArrowNotImplementedError:  # Arrow makes no arrays of this type out of Python's values
        hypothesis.reject()
    array = pa.StructArray.from_arrays([column], names=["a"])
    expected = by_fastavro(schema, [{"a": value} for value in rows])
    assert written(schema, array) == expected
    start = data.draw(st.integers(0, len(rows)))
    assert written(schema, array[start:]) == expected[start:]


def _a_record(name: str, schema: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": schema}]}


def test_unions_of_several_types_are_written_from_a_column_for_each_type_or_from_one() -> None:
    schema = ["null", "int", "string", {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}]
    values = [{"int": 1}, {"string": "s"}, {"R": {"x": 5}}, {"int": None}, {"string": "t", "int": None}]
    of = pa.struct([("string", pa.string()), ("int", pa.int64()), ("R", pa.struct([("x", pa.int8())]))])
    whole = _a_record("Root", schema)
    expected = by_fastavro(whole, [{"a": value} for value in (1, "s", {"x": 5}, None, "t")])
    assert written(whole, pa.array([{"a": value} for value in values], pa.struct([("a", of)]))) == expected
    assert written(whole, pa.array([{"a": "s"}, {"a": None}])) == [expected[1], expected[3]]
    assert written(whole, pa.array([{"a": {"x": 5}}])) == [expected[2]]
    both = pa.array([{"a": {"int": 1, "string": "s", "R": None}}], pa.struct([("a", of)]))
    with pytest.raises(avro_writing.UnfitError) as caught:
        written(whole, both)
    assert (caught.value.reason, caught.value.row) == (avro_writing.SEVERAL, 0)


def test_missing_columns_get_defaults() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "note", "type": "string", "default": "none"},
            {"name": "more", "type": ["null", "R"], "default": None},
            {"name": "bare", "type": ["int", "null"]},
        ],
    }
    assert written(schema, pa.array([{"id": 3}])) == by_fastavro(schema, [{"id": 3}])


def test_values_below_null_lists_are_not_looked_at() -> None:
    schema = _a_record("R", ["null", {"type": "array", "items": "int"}])
    validity = pa.py_buffer(b"\x05")
    far = pa.array([1, 1 << 40, 2], pa.int64())
    lists = pa.Array.from_buffers(
        pa.list_(pa.int64()),
        3,
        [validity, pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in range(4)))],
        1,
        0,
        [far],
    )
    array = pa.StructArray.from_arrays([lists], names=["a"])
    assert written(schema, array) == by_fastavro(schema, [{"a": [1]}, {"a": None}, {"a": [2]}])


def test_values_below_null_structs_are_not_looked_at() -> None:
    schema = _a_record("R", ["null", _a_record("In", "int")])
    far = pa.array([1, 1 << 40, 2], pa.int64())
    structs = pa.StructArray.from_arrays([far], names=["a"], mask=pa.array([False, True, False]))
    array = pa.StructArray.from_arrays([structs], names=["a"])
    assert written(schema, array) == by_fastavro(schema, [{"a": {"a": 1}}, {"a": None}, {"a": {"a": 2}}])
    assert written(schema, array[1:]) == by_fastavro(schema, [{"a": None}, {"a": {"a": 2}}])


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 255, -32768, -(1 << 63), 10**37, -(1 << 119)])
def test_decimals_have_fastavros_length(number: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    whole = _a_record("R", schema)
    value = Decimal(number)
    assert written(whole, pa.array([{"a": value}], pa.struct([("a", pa.decimal128(38, 0))]))) == by_fastavro(
        whole, [{"a": value}]
    )


@pytest.mark.parametrize(
    ("schema", "values", "of", "text"),
    [
        (
            "int",
            [1, None],
            pa.int64(),
            r"row 1, field 'a' is null, which the schema's int is not; the column has int64",
        ),
        ("int", [1, 2, 1 << 40], pa.int64(), r"row 2, field 'a': a value of the column's int64 .* the schema's int"),
        ("int", ["1"], pa.string(), r"field 'a': the column has string, and the schema int: cast the column"),
        ("float", [0.5], pa.float64(), r"field 'a': the column has double, and the schema float"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            ["A", "B"],
            pa.string(),
            r"row 1, field 'a': a value of the column's string is no symbol of the schema's enum E",
        ),
        (
            {"type": "array", "items": {"type": "map", "values": "long"}},
            [[], [{}, {"k": None}]],
            pa.list_(pa.map_(pa.string(), pa.int64())),
            r"row 1, field 'a\[\]\{\}' is null, which the schema's long is not; the column has int64",
        ),
        (
            {"type": "array", "items": "int"},
            [[1], [], [1, 2, 1 << 40]],
            pa.list_(pa.int64()),
            r"row 2, field 'a\[\]': a value of the column's int64 does not fit the schema's int",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 0},
            [Decimal(1), Decimal(12345)],
            pa.decimal128(5, 0),
            r"row 1, field 'a': a value of the column's decimal128\(5, 0\) does not fit the schema's fixed",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
            [Decimal("1.10"), Decimal("1.25")],
            pa.decimal128(5, 2),
            r"row 1, field 'a': a value of the column's decimal128\(5, 2\) does not fit the schema's bytes \(decimal\)",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            [datetime.datetime(2026, 1, 1)],
            pa.timestamp("ms"),
            r"field 'a': the column has timestamp\[ms\], and the schema long .*one has a time zone",
        ),
        (
            ["null", "int", "string"],
            [b"x"],
            pa.binary(),
            r"field 'a': the column has binary, and the schema \[null, int",
        ),
        (
            _a_record("In", "int"),
            [{"b": 1}],
            pa.struct([("b", pa.int32())]),
            r"field 'a.b': the schema's record In has no",
        ),
        (
            _a_record("In", "int"),
            [{}],
            pa.struct([]),
            r"field 'a.a': there is no such column, and the schema's int has no",
        ),
    ],
)
def test_errors_name_column_row_field_and_both_types(
    client: SchemaRegistryClient, schema: Any, values: list[Any], of: pa.DataType, text: str
) -> None:
    batch = pa.record_batch([pa.array(values, of)], names=["a"])
    encoder = avro_encoder(client, json.dumps(_a_record("R", schema)), conf=REGISTERING)
    with pytest.raises(SerializationError, match=rf"the value .* with schema id 1 for topic 't': {text}") as ours:
        encoder.encode_rows(batch, "t", "value", frozenset())
    assert "1099511627776" not in str(ours.value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pykclient.schema_registry.column_encoder.encode", python_form(avro_writing.encode))
        with pytest.raises(SerializationError) as theirs:
            encoder.encode_rows(batch, "t", "value", frozenset())
    assert str(theirs.value) == str(ours.value)


# --- schemas of tables -----------------------------------------------------------------------------------------------


@MANY
@given(data=st.data(), drawn=record(recursive=False))
def test_columns_with_a_derived_schema_come_back_as_they_were(
    data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]
) -> None:
    schema, values = drawn
    rows = [framed(schema, row) for row in data.draw(st.lists(values, min_size=1, max_size=6))]
    array = columns_of(schema).decode(pa.array(rows, pa.binary())).array
    derived = derived_type(array.type, "Record")
    fastavro.parse_schema(json.loads(json.dumps(derived)))
    ours = [b"\0\0\0\0\1" + (row or b"") for row in written(derived, array)]
    again = columns_of(derived).decode(pa.array(ours, pa.binary()))
    assert again.poison == []
    assert again.array.to_pylist() == array.to_pylist()


def test_names_in_a_derived_schema_are_unique() -> None:
    inner = pa.struct([("b", pa.struct([("x", pa.int32())]))])
    derived = derived_type(pa.struct([("a_b", pa.struct([("y", pa.int32())])), ("a", inner)]), "R")
    fastavro.parse_schema(json.loads(json.dumps(derived)))
    parse_avro(derived)


def test_types_that_avro_lacks_and_wrong_names_are_refused() -> None:
    for fields, text in (
        ([("a", pa.duration("s"))], "column 'a' is of type duration.s., and Avro has none"),
        ([("a", pa.struct([("b c", pa.int32())]))], "column 'a.b c': a field of Avro has only letters"),
        ([("a", pa.decimal256(50, 2))], "column 'a' is of type decimal256"),
    ):
        with pytest.raises(SerializationError, match=text):
            derived_type(pa.struct(fields), "R")


def test_uuids_are_text_or_fixed() -> None:
    value = uuid.uuid4()
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes], pa.binary(16)))
    text = _a_record("R", {"type": "string", "logicalType": "uuid"})
    rows = pa.StructArray.from_arrays([array], names=["a"])
    assert written(text, rows) == by_fastavro(text, [{"a": value}])
    fixed = _a_record("R", {"type": "fixed", "name": "F", "size": 16})
    assert written(fixed, rows) == by_fastavro(fixed, [{"a": value.bytes}])
    assert derived_type(rows.type, "R")["fields"][0]["type"] == ["null", {"type": "string", "logicalType": "uuid"}]


# --- registries and clients ------------------------------------------------------------------------------------------

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}
TABLE = pa.table({"id": [1, 2, 3], "city": ["Ulm", "Bonn", "Köln"]})


def rows_of(encoder: Any, table: pa.Table = TABLE, *named: str) -> list[bytes | None]:
    (batch,) = table.to_batches()
    column = encoder.encode_rows(batch, "orders", "value", frozenset(named))
    return [column[row] for row in range(len(column))]


def test_schema_is_looked_up_registered_derived_or_the_latest(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError, match=r"set auto\.register\.schemas"):
        rows_of(avro_encoder(client, json.dumps(ORDER)))
    with pytest.raises(SchemaRegistryError, match=r"set auto\.register\.schemas"):
        rows_of(avro_encoder(client))
    expected = [framed(ORDER, row) for row in TABLE.to_pylist()]
    assert rows_of(avro_encoder(client, json.dumps(ORDER), conf=REGISTERING)) == expected
    assert rows_of(avro_encoder(client, Schema(json.dumps(ORDER)))) == expected
    assert rows_of(avro_encoder(client, conf={"use.latest.version": True})) == expected
    assert rows_of(avro_encoder(client, conf={"use.schema.id": 1})) == expected
    guid = client.get_latest_version("orders-value").guid
    with_guid = rows_of(
        avro_encoder(client, json.dumps(ORDER), conf={"schema.id.serializer": prefix_schema_guid_serializer})
    )
    assert guid is not None
    assert with_guid == [b"\1" + uuid.UUID(guid).bytes + row[5:] for row in expected]
    derived = avro_encoder(client, conf={**REGISTERING, "subject.name.strategy.type": "RECORD"}, record_name="Mine")
    assert avro_columns(client).decode(pa.array(rows_of(derived), pa.binary())).array.to_pylist() == TABLE.to_pylist()
    assert "Mine" in client.get_subjects()


def test_an_incompatible_schema_is_refused_with_the_registrys_text(client: SchemaRegistryClient) -> None:
    client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    with pytest.raises(
        SchemaRegistryError, match=r"incompatible.*id: the reader's .*string.* has no branch for the writer's long"
    ) as caught:
        rows_of(avro_encoder(client, conf=REGISTERING, record_name="Order"), pa.table({"id": ["one"], "city": ["Ulm"]}))
    assert caught.value.http_status_code == 409


def test_columns_of_other_arguments_are_no_fields_unless_the_schema_has_them(client: SchemaRegistryClient) -> None:
    client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    table = TABLE.append_column("place", pa.array([0, 0, 1]))
    latest = avro_encoder(client, conf={"use.latest.version": True})
    assert rows_of(latest, table, "place", "city") == [framed(ORDER, row) for row in TABLE.to_pylist()]
    with pytest.raises(SerializationError, match=r"field 'place': .*has no such field.*name the columns to write"):
        rows_of(latest, table)
    by_name = avro_encoder(client, columns=["city", "id"], conf={"use.latest.version": True})
    assert rows_of(by_name, table) == [framed(ORDER, row) for row in TABLE.to_pylist()]
    with pytest.raises(IllegalArgumentError, match="no column 'nope'; it has id, city"):
        rows_of(avro_encoder(client, columns="nope", conf={"use.latest.version": True}))


def test_rules_for_writing_are_refused_and_never_left_out(client: SchemaRegistryClient) -> None:
    rule = Rule(name="check", kind=RuleKind.CONDITION, mode=RuleMode.WRITE, type="CEL", expr="message.id > 0")
    client.register_schema("orders-value", Schema(json.dumps(ORDER), rule_set=RuleSet(domain_rules=[rule])))
    with pytest.raises(RuleError, match="the rule 'check' of type CEL, and rules are not executed for columns"):
        rows_of(avro_encoder(client, conf={"use.latest.version": True}))


def test_wrong_settings_are_refused_at_once(client: SchemaRegistryClient) -> None:
    with pytest.raises(ConfigError, match="a header is only for send"):
        avro_encoder(client, conf={"schema.id.serializer": header_schema_id_serializer})
    with pytest.raises(ConfigError, match=r"use\.latest\.versions"):
        avro_encoder(client, conf={"use.latest.versions": True})
    with pytest.raises(IllegalArgumentError, match="at least one column"):
        avro_encoder(client, columns=[])


def test_send_batch_writes_typed_keys_and_values_that_poll_arrow_reads(
    pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient
) -> None:
    servers = pykclient_cluster.bootstrap_servers
    orders = pa.array([{"id": 1, "city": "Ulm"}, None, {"id": 2, "city": "Bonn"}])
    table = pa.table({"number": [7, 8, 9], "order": orders, "part": [0, 0, 0]})
    table = pa.concat_tables([table, table])  # two batches
    value = avro_encoder(client, json.dumps(ORDER), columns="order", conf=REGISTERING)
    key = avro_encoder(client, columns="number", conf=REGISTERING)
    assert isinstance(key, ColumnEncoder)
    with KafkaProducer(bootstrap_servers=servers) as producer:
        assert producer.send_batch("orders", table, value=value, key=key, partition="part").get(30).num_rows == 6
        bad = table.set_column(1, "order", pa.array([*orders, None, {"city": "Ulm"}, None], orders.type))
        with pytest.raises(SerializationError, match=r"row 4, field 'order.id' is null"):
            producer.send_batch("orders", bad, value=value, key=key)
        with pytest.raises(IllegalArgumentError, match="an encoder needs data with named columns"):
            producer.send_batch("orders", [b"x"], value=value)
        producer.flush(30)
    assert client.get_latest_version("orders-key").schema.schema_str == '{"type":"long"}'
    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        batch = consumer.poll_arrow(
            30_000, value=avro_columns(client), key=avro_columns(client), columns=["key", "value"]
        )
    assert batch.column("key").to_pylist() == [7, 8, 9] * 2
    assert batch.column("value").to_pylist() == orders.to_pylist() * 2
    with KafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(client),
        consumer_timeout_ms=30_000,
    ) as reading:
        assert [next(reading).value for _ in range(3)] == orders.to_pylist()


def test_asyncio_encodes_without_blocking_the_loop(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    async def main() -> None:
        stream = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches())
        async with (
            AsyncSchemaRegistryClient({"url": registry.url}) as asking,
            AIOKafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as producer,
        ):
            for data in (TABLE, stream):
                registry.hold()
                encoder = avro_encoder(asking, conf=REGISTERING, record_name="A" if data is TABLE else "B")
                sending = asyncio.create_task(producer.send_columns("orders", data, value=encoder, partition=0))
                for _ in range(50):  # the loop goes on
                    await asyncio.sleep(0)
                assert not sending.done()
                registry.release()
                assert (await (await sending)).num_rows == 3

    client.set_compatibility("orders-value", "NONE")
    asyncio.run(asyncio.wait_for(main(), 90))
    assert len(client.get_versions("orders-value")) == 2
