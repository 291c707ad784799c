"""Avro records as columns: both implementations equal fastavro, on good and on damaged records."""

from __future__ import annotations

import contextlib
import decimal
import io
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import hypothesis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, strategies as st

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import IllegalArgumentError, RecordDeserializationError, SerializationError
from pykclient.implementation import python_form
from pykclient.schema_registry import (
    MessageField,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
    SerializationContext,
    avro_decoder,
    avro_encoder,
    avro_nodes,
)
from pykclient.schema_registry.avro import AvroSerializer
from pykclient.schema_registry.avro_nodes import encoded
from pykclient.schema_registry.avro_types import parse_avro, resolution_problems
from pykclient.schema_registry.columns import AvroColumns, avro_columns
from pykclient.schema_registry.rules import RuleError
from pykclient.schema_registry.schemas import Rule, RuleKind, RuleMode, RuleSet
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry
from tests.schema_registry.avro_strategies import evolved_record, record

MANY = hypothesis.settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=100)


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """Use the Python forms."""
    from pykclient.schema_registry import columns as module

    names = ("Column", "Decoder", "Rows")
    held = {name: getattr(module, name) for name in names}
    for name in names:
        setattr(module, name, python_form(getattr(avro_decoder, name)))
    try:
        yield
    finally:
        for name in names:
            setattr(module, name, held[name])


class Registry:
    """A registry's client with schemas by id."""

    name = "http://here"

    def __init__(self, *schemas: Any) -> None:
        self._schemas = {number: Schema(json.dumps(schema)) for number, schema in enumerate(schemas, 1)}

    def get_schema(self, number: int, *_: Any) -> Schema:
        if number not in self._schemas:
            raise SchemaRegistryError(404, 40403, f"Schema {number} not found")
        return self._schemas[number]

    def get_schema_by_guid(self, guid: str, *_: Any) -> Schema:
        raise SchemaRegistryError(404, 40403, f"Schema {guid} not found")


def columns_of(*schemas: Any, **more: Any) -> AvroColumns:
    registry: Any = Registry(*schemas)
    return avro_columns(registry, **more)


def framed(schema: Any, value: Any, number: int = 1) -> bytes:
    out = io.BytesIO(b"\x00" + number.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def both(decoder: Any, array: pa.Array) -> Any:
    """Return what the compiled form decodes, which equals the Python form.

    Its program reads rows that are followed by others, and its steps those that are not.
    """
    followed = pa.concat_arrays([array.cast(pa.binary()), pa.array([bytes(1 << 14)])])[:-1]
    views = followed.cast(pa.binary_view())
    with in_python():
        expected = decoder().decode(array)
        assert decoder().decode(views).poison == expected.poison
    for rows in (array, views, followed):
        found = decoder().decode(rows)
        assert found.poison == expected.poison
        assert found.array.type == expected.array.type
        found.array.validate(full=True)
        if not found.array.equals(expected.array):  # NaN equals nothing
            assert repr(found.array.to_pylist()) == repr(expected.array.to_pylist())
    return found


#: Schemas of scalars, and texts that may be null: what programs read.
SCALARS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(0, 63).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1))),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "boolean": ("boolean", st.booleans()),
    "string": ("string", st.text(max_size=40)),
    "bytes": ("bytes", st.binary(max_size=40)),
    "fixed": ({"type": "fixed", "name": "F", "size": 5}, st.binary(min_size=5, max_size=5)),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    "list": ({"type": "array", "items": ["null", "string"]}, st.lists(st.none() | st.text(max_size=9), max_size=3)),
}


@st.composite
def flat_record(draw: st.DrawFn, name: str = "R", depth: int = 1) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return a record of scalars, some of which may be null, and of records of them; and its values."""
    fields, values = [], {}
    for place, kind in enumerate(draw(st.lists(st.sampled_from((*SCALARS, "record")), min_size=1, max_size=8))):
        label = f"{name}_{place}"
        if kind != "record":
            schema, of = SCALARS[kind]
            if isinstance(schema, dict) and "name" in schema:
                schema = {**schema, "name": label}
        elif depth:
            schema, of = draw(flat_record(label, depth - 1))
        else:
            schema, of = SCALARS["long"]
        form = draw(st.sampled_from(["value", "value", "first", "last"]))
        if form != "value":
            schema, of = (["null", schema] if form == "first" else [schema, "null"]), st.none() | of
        fields.append({"name": label, "type": schema})
        values[label] = of
    return {"type": "record", "name": name, "fields": fields}, st.fixed_dictionaries(values)


@MANY
@given(data=st.data(), drawn=flat_record())
def test_rows_of_scalars_equal_the_python_form_whatever_is_damaged_between_them(
    data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]
) -> None:
    schema, values = drawn
    rows: list[bytes | None] = []
    for row in data.draw(st.lists(st.none() | values, min_size=1, max_size=10)):
        value = None if row is None else bytearray(framed(schema, row))
        damage = data.draw(st.sampled_from(["none", "none", "byte", "end", "more", "id"]))
        if value is not None and damage == "byte":
            value[data.draw(st.integers(5, len(value) - 1)) if len(value) > 5 else 4] = data.draw(st.integers(0, 255))
        elif value is not None and damage == "end":
            del value[data.draw(st.integers(0, len(value))) :]
        elif value is not None and damage == "more":
            value += data.draw(st.binary(max_size=4))
        elif value is not None and damage == "id":
            value[4] = data.draw(st.sampled_from([1, 2, 3]))
        rows.append(None if value is None else bytes(value))
    wider = {**schema, "fields": [*schema["fields"], {"name": "more", "type": ["null", "int"], "default": None}]}
    chosen = data.draw(st.sampled_from([None, [schema["fields"][0]["name"]]]))
    both(lambda: columns_of(schema, wider, columns=chosen), pa.array(rows, pa.binary()))


def plain(schema: Any, value: Any, named: dict[str, Any]) -> Any:
    """Return a value in the form that its column has."""
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if value is None:
            return None
        if len(branches) == 1:
            return plain(branches[0], value, named)
        kind = {bool: "boolean", str: "string", int: "long"}[type(value)]
        return {branch: value if branch == kind else None for branch in branches}
    if isinstance(schema, dict):
        if schema["type"] == "record":
            return {row["name"]: plain(row["type"], value[row["name"]], named) for row in schema["fields"]}
        if schema["type"] == "array":
            return [plain(schema["items"], item, named) for item in value]
        if schema["type"] == "map":
            return [(key, plain(schema["values"], item, named)) for key, item in value.items()]
        if schema.get("logicalType") == "uuid":
            return str(value)
    return value


def test_numbers_of_both_forms_are_the_same() -> None:
    _avro_decoder: Any = pytest.importorskip("pykclient.schema_registry._avro_decoder")
    assert (*_avro_decoder.FORMS,) == (
        avro_nodes.BITS,
        avro_nodes.FIXED,
        avro_nodes.BYTES,
        avro_nodes.LIST,
        avro_nodes.STRUCT,
    )
    assert (*_avro_decoder.STEPS,) == tuple(range(18))


@MANY
@given(data=st.data(), drawn=record(recursive=False))
def test_columns_equal_fastavros_values(data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]) -> None:
    schema, values = drawn
    rows = [
        None if row is None else framed(schema, row) for row in data.draw(st.lists(st.none() | values, max_size=12))
    ]
    array = pa.array([b"before", *rows], pa.binary())[1:]
    found = both(lambda: columns_of(schema), array)
    assert found.poison == []
    fast = fastavro.parse_schema(json.loads(json.dumps(schema)))
    for row, got in zip(rows, found.array.to_pylist(), strict=True):
        if row is None:
            assert got is None
        else:
            expected = plain(schema, fastavro.schemaless_reader(io.BytesIO(row[5:]), fast, None), {})
            assert got == expected


@MANY
@given(data=st.data(), drawn=record(recursive=False))
def test_schemas_evolve_as_in_fastavro(data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]) -> None:
    writer, values = drawn
    reader = data.draw(evolved_record(writer))
    hypothesis.assume(reader["fields"])
    rows = [framed(writer, row) for row in data.draw(st.lists(values, min_size=1, max_size=6))]
    found = both(lambda: columns_of(writer, schema=json.dumps(reader)), pa.array(rows, pa.binary()))
    wrong = dict(found.poison)
    ours, theirs = (fastavro.parse_schema(json.loads(json.dumps(each))) for each in (writer, reader))
    for place, (row, got) in enumerate(zip(rows, found.array.to_pylist(), strict=True)):
        try:
            value = fastavro.schemaless_reader(io.BytesIO(row[5:]), ours, theirs)
        except (fastavro.read.SchemaResolutionError, UnicodeDecodeError, ValueError):
            assert place in wrong
            continue
        assert place not in wrong, wrong[place]
        assert got == plain(reader, value, {})


@MANY
@given(data=st.data(), drawn=record(recursive=False))
def test_damaged_records_are_poison_in_both_forms(
    data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]]
) -> None:
    schema, values = drawn
    rows = []
    for row in data.draw(st.lists(values, min_size=1, max_size=6)):
        value = bytearray(framed(schema, row))
        for place in data.draw(st.lists(st.integers(0, len(value) - 1), max_size=3)):
            value[place] = data.draw(st.integers(0, 255))
        rows.append(bytes(value[: data.draw(st.integers(0, len(value)))] if data.draw(st.booleans()) else value))
    try:
        found = both(lambda: columns_of(schema, on_error="keep"), pa.array(rows, pa.binary()))
    except (OverflowError, pa.ArrowInvalid):  # a date that Python or Arrow has not
        return
    assert len(found.array) == len(rows)
    for poison in found.poison:
        assert not found.array[poison.row].is_valid


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
NEWER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "city", "type": "string", "default": "Ulm"},
        {"name": "number", "aliases": ["id"], "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": "long"}, "default": {"a": 1}},
        {"name": "what", "type": ["long", "string", "null"], "default": 7},
    ],
}


def test_records_of_several_schemas_have_the_columns_of_the_newest() -> None:
    new = {"city": "Bonn", "number": 1.5, "tags": {}, "what": "x"}
    rows = [framed(ORDER, {"id": 1}), framed(NEWER, new, 2), framed(ORDER, {"id": 2, "note": "n"})]
    found = both(lambda: columns_of(ORDER, NEWER), pa.array(rows))
    old = {"city": "Ulm", "tags": [("a", 1)], "what": {"long": 7, "string": None}}
    assert found.array.to_pylist() == [
        {**old, "number": 1.0},
        {**new, "tags": [], "what": {"long": None, "string": "x"}},
        {**old, "number": 2.0},
    ]


def test_texts_that_are_damaged_between_good_rows_are_poison_alone() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": ["null", "string"]}]}
    texts = [None, b"", b"abc", "ü€𝄞".encode() * 20, b"\xc3", b"\xa9", b"\xed\xa0\x80", b"x" * 100]
    drawn = random.Random(1).choices(texts, k=600)
    rows = [b"\0\0\0\0\1" + (b"\0" if text is None else b"\2" + avro_nodes.zigzag(len(text)) + text) for text in drawn]
    found = both(lambda: columns_of(schema), pa.array(rows, pa.binary()))
    wrong = {poison.row for poison in found.poison}
    for place, (text, value) in enumerate(zip(drawn, found.array.to_pylist(), strict=True)):
        assert (place in wrong) == (text in (b"\xc3", b"\xa9", b"\xed\xa0\x80"))
        if place not in wrong:
            assert value == {"t": None if text is None else text.decode()}


def test_views_outside_of_their_buffers_are_refused() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": "string"}]}
    data = pa.py_buffer(b"\0\0\0\0\1\x20" + b"x" * 16)
    for size, number, place in ((22, 0, 1), (22, 1, 0), (22, -1, 0), (22, 0, -1), (-1, 0, 0), (1 << 30, 0, 1 << 30)):
        view = pa.py_buffer(struct.pack("<i4sii", size, b"\0" * 4, number, place))
        array = pa.Array.from_buffers(pa.binary_view(), 1, [None, view, data])
        for form in (contextlib.nullcontext, in_python):
            with form(), pytest.raises(SerializationError, match="outside of its buffer"):
                columns_of(schema).decode(array)


def test_only_selected_fields_become_columns() -> None:
    decoder = columns_of(ORDER, columns=["note"])
    assert decoder.decode(pa.array([framed(ORDER, {"id": 1, "note": "n"})])).array.to_pylist() == [{"note": "n"}]
    decoder = columns_of(ORDER, columns=["nope"])
    for _ in range(2):
        with pytest.raises(IllegalArgumentError, match="no field nope"):
            decoder.decode(pa.array([framed(ORDER, {"id": 1})]))


def test_fields_of_the_newest_schema_can_be_selected_behind_records_of_an_older_one() -> None:
    rows = [framed(ORDER, {"id": 1}), framed(NEWER, {"city": "Bonn", "number": 1, "tags": {}, "what": 1}, 2)]
    found = both(lambda: columns_of(ORDER, NEWER, columns=["city"]), pa.array(rows))
    assert found.array.to_pylist() == [{"city": "Ulm"}, {"city": "Bonn"}]


def test_types_that_contain_themselves_are_skipped_or_refused() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Tree"]}],
    }
    row = framed(tree, {"id": 1, "next": {"id": 2, "next": None}})
    found = both(lambda: columns_of(tree, columns=["id"]), pa.array([row]))
    assert found.array.to_pylist() == [{"id": 1}]
    with pytest.raises(SerializationError, match="contains itself"):
        columns_of(tree).decode(pa.array([row]))


def test_rows_without_a_known_schema_are_poison_with_the_reason() -> None:
    rows = [b"", b"\x07abcdef", framed(ORDER, {"id": 1}), framed(ORDER, {"id": 1}, 9), None, b"\0\0\0\0\1\2"]
    found = both(lambda: columns_of(ORDER), pa.array(rows, pa.binary()))
    assert found.array.is_valid().to_pylist() == [False, False, True, False, False, False]
    assert [poison.row for poison in found.poison] == [0, 1, 3, 5]
    reasons = " | ".join(poison.reason for poison in found.poison)
    for text in ("0 bytes are too short", "magic byte 7", "schema id 9 is unknown to", "the bytes end inside"):
        assert text in reasons


def test_schemas_that_do_not_fit_say_which_field_and_both_types() -> None:
    wanted = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    rows = pa.array([None, framed(ORDER, {"id": 1})])
    found = both(lambda: columns_of(ORDER, schema=json.dumps(wanted)), rows)
    assert found.array.to_pylist() == [None, None]
    ((row, reason),) = found.poison
    assert row == 1
    assert "schema id 1: " in reason
    assert "id: the reader's string cannot read the writer's int" in reason


MILLIS, MICROS, LOCAL, DATE, TIME_MILLIS, TIME_MICROS = (
    {"type": kind, "logicalType": logical}
    for kind, logical in (
        ("long", "timestamp-millis"),
        ("long", "timestamp-micros"),
        ("long", "local-timestamp-nanos"),
        ("int", "date"),
        ("int", "time-millis"),
        ("long", "time-micros"),
    )
)


@pytest.mark.parametrize(
    ("writer", "reader"),
    [(MILLIS, MICROS), (MICROS, MILLIS), (MILLIS, LOCAL), (DATE, MILLIS), (TIME_MILLIS, TIME_MICROS)],
)
def test_times_in_another_unit_are_poison_and_no_other_times(writer: Any, reader: Any) -> None:
    wrote, reads = (
        {"type": "record", "name": "R", "fields": [{"name": "at", "type": each}]} for each in (writer, reader)
    )
    rows = pa.array([framed(wrote, {"at": 19_723}), framed(reads, {"at": 7}, 2)])
    found = both(lambda: columns_of(wrote, reads), rows)
    assert found.array.is_valid().to_pylist() == [False, True]
    ((row, reason),) = found.poison
    assert row == 0
    assert "at: the reader's" in reason
    assert f"has another unit than the writer's {writer['type']} ({writer['logicalType']})" in reason


def test_decimals_of_more_digits_than_the_column_are_poison() -> None:
    wrote, reads = (
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": size}}],
        }
        for size in (9, 3)
    )
    rows = pa.array([framed(wrote, {"a": decimal.Decimal(1234567)}), framed(reads, {"a": decimal.Decimal(7)}, 2)])
    found = both(lambda: columns_of(wrote, reads), rows)
    assert found.array.to_pylist() == [None, {"a": decimal.Decimal(7)}]
    assert "fewer digits" in found.poison[0].reason


@pytest.mark.parametrize(
    ("of", "default"),
    [
        ("long", 2**70),
        ("long", float("inf")),
        ("float", 1e300),
        (["string", "int"], None),
        ({"type": "record", "name": "Own", "fields": [{"name": "own", "type": "Own", "default": {}}]}, {}),
    ],
)
def test_default_that_its_type_cannot_have_is_refused_by_name(of: Any, default: Any) -> None:
    with pytest.raises(SerializationError, match=r"the default .* is not of the type"):
        encoded(parse_avro(of), default)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_written_field_is_read_by_its_name_before_an_alias(order: tuple[int, int]) -> None:
    fields = [
        {"name": "a", "type": "long", "default": 5},
        {"name": "b", "type": "long", "aliases": ["a"], "default": 6},
    ]
    wrote = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    reads = {"type": "record", "name": "R", "fields": [fields[place] for place in order]}
    row = framed(wrote, {"a": 1})
    found = both(lambda: columns_of(wrote, schema=json.dumps(reads)), pa.array([row]))
    expected = fastavro.schemaless_reader(
        io.BytesIO(row[5:]), fastavro.parse_schema(wrote), fastavro.parse_schema(reads)
    )
    assert found.array.to_pylist() == [expected] == [{"a": 1, "b": 6}]
    assert both(
        lambda: columns_of(wrote, schema=json.dumps(reads), columns=["b"]), pa.array([row])
    ).array.to_pylist() == [{"b": 6}]


def test_a_field_whose_alias_another_field_reads_needs_a_default() -> None:
    wrote = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    more = {"name": "b", "type": "long", "aliases": ["a"]}
    reads = {"type": "record", "name": "R", "fields": [*wrote["fields"], more]}
    found = both(lambda: columns_of(wrote, schema=json.dumps(reads)), pa.array([framed(wrote, {"a": 1})]))
    assert "b: the writer has no such field, and the reader's long no default" in found.poison[0].reason
    problems = resolution_problems(parse_avro(reads), parse_avro(wrote))
    assert problems == ["b: the writer has no such field, and the reader's long no default"]


def test_real_registry_is_asked_once(client: SchemaRegistryClient) -> None:
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    decoder = avro_columns(client)
    array = pa.array([framed(ORDER, {"id": place}, number) for place in range(100)])
    assert decoder.decode(array).array.field("id").to_pylist() == list(range(100))


def test_poll_arrow_decodes_values_and_names_poison(
    pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    with KafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as producer:
        for place in range(5):
            producer.send("orders", framed(ORDER, {"id": place}, number), partition=0)
        producer.send("orders", b"poison", partition=0)
        producer.flush(30)
    settings: dict[str, Any] = {
        "bootstrap_servers": pykclient_cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
    }
    with KafkaConsumer(**settings) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        strict, keeping = avro_columns(client), avro_columns(client, on_error="keep")
        with pytest.raises(RecordDeserializationError, match=r"offset 5 of orders-0 .*magic byte 112") as caught:
            consumer.poll_arrow(30_000, value=strict, columns=["value"])
        assert (caught.value.topic_partition, caught.value.offset) == (TopicPartition("orders", 0), 5)
        batch = consumer.poll_arrow(30_000, value=keeping, columns=["value", "offset"])
        assert batch.schema.names == ["value", "offset", "value_error", "value_bytes"]
        assert batch.column("offset").to_pylist() == list(range(6))
        assert [row and row["id"] for row in batch.column("value").to_pylist()] == [0, 1, 2, 3, 4, None]
        assert batch.column("value_bytes").to_pylist() == [None] * 5 + [b"poison"]
        with pytest.raises(IllegalArgumentError, match="not among them"):
            consumer.poll_arrow(0, value=strict, columns=["offset"])
        wrong: Any = "avro"
        with pytest.raises(IllegalArgumentError, match="must decode columns"):
            consumer.poll_arrow(0, value=wrong)


@pytest.mark.parametrize(
    ("phase", "mode"),
    [("domain_rules", RuleMode.READ), ("encoding_rules", RuleMode.WRITEREAD), ("migration_rules", RuleMode.UPGRADE)],
)
def test_rules_for_reading_are_refused_and_never_left_out(phase: str, mode: RuleMode) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    rule = Rule(name="check", kind=RuleKind.CONDITION, mode=mode, type="CEL", expr="message.a > 0")
    registry: Any = Registry(schema)
    rule_set = registry._schemas[1].rule_set = RuleSet()
    setattr(rule_set, phase, [rule])
    columns = avro_columns(registry)
    with pytest.raises(RuleError, match="the rule 'check' of type CEL"):
        columns.decode(pa.array([framed(schema, {"a": 1})], pa.binary()))


def test_a_schema_of_bytes_has_no_length_before_them(client: SchemaRegistryClient) -> None:
    serializer = AvroSerializer(client, '"bytes"', conf={"auto.register.schemas": True})
    values = [b"", b"abc", bytes(100)]
    rows = pa.array([None, *(serializer(value, SerializationContext("raw", MessageField.VALUE)) for value in values)])
    found = both(lambda: avro_columns(client), rows)
    assert found.poison == []
    assert found.array.to_pylist() == [None, *values]
    encoded = avro_encoder(client, columns="a", conf={"use.latest.version": True}).encode_rows(
        pa.record_batch([found.array], names=["a"]), "raw", "value", frozenset()
    )
    assert [encoded[row] for row in range(4)] == rows.to_pylist()


def test_rules_for_writing_do_not_keep_columns_from_being_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    rule = Rule(name="check", kind=RuleKind.CONDITION, mode=RuleMode.WRITE, type="CEL", expr="message.a > 0")
    registry: Any = Registry(schema)
    registry._schemas[1].rule_set = RuleSet(domain_rules=[rule])
    columns = avro_columns(registry)
    assert columns.decode(pa.array([framed(schema, {"a": 1})], pa.binary())).array.to_pylist() == [{"a": 1}]


def test_rows_with_maps_are_scalars_of_arrow() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values": "long"}}]}
    with EmbeddedSchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        client.register_schema("t-value", Schema(json.dumps(schema)))
        column = avro_columns(client).decode(pa.array([b"\0\0\0\0\1\2\2k\4\0"])).array
    column.validate(full=True)
    assert column[0].as_py() == {"m": [("k", 2)]}
