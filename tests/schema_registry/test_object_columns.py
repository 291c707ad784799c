"""JSON and Protobuf records as columns: they equal what the deserializers return, on good and on damaged records."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import HealthCheck, given, strategies as st

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import IllegalArgumentError, RecordDeserializationError, SerializationError
from pykclient.schema_registry import (
    MessageField,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    avro_columns,
    header_schema_id_serializer,
    json_columns,
    object_columns,
    prefix_schema_guid_serializer,
    protobuf_columns,
)
from pykclient.schema_registry.avro import AvroSerializer
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer, schema_text
from pykclient.schema_registry.rules import RuleError
from pykclient.schema_registry.wire import VALUE_SCHEMA_ID
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry

MANY = hypothesis.settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
VALUE = SerializationContext("orders", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}


@pytest.fixture(scope="module")
def shared() -> Iterator[SchemaRegistryClient]:
    with EmbeddedSchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        client.set_compatibility(level="NONE")
        yield client


def binary(rows: list[bytes | None]) -> pa.Array:
    return pa.array([b"before", *rows], pa.binary())[1:]


# --- JSON ------------------------------------------------------------------------------------------------------------

ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": ["null", "string"], "maxLength": 20}},
    "required": ["id"],
}
NEWER = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "number"},
        "note": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
}


def registered(client: SchemaRegistryClient, schema: Any, subject: str = "orders-value", **more: Any) -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return client.register_schema(subject, Schema(text, "JSON", **more))


def framed(number: int, value: Any) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"\0" + number.to_bytes(4, "big") + data


@st.composite
def json_schemas(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return a schema and a strategy of its values."""
    kinds = ["string", "integer", "number", "boolean", "any", "enum"]
    kind = draw(st.sampled_from([*kinds, *(["object", "object", "array", "map", "optional"] if depth else [])]))
    texts = st.text(max_size=8)
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": texts,
        "integer": st.integers(-(2**63), 2**63 - 1) | st.just(4.0),
        "number": st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
    }
    if kind in scalars:
        return {"type": kind}, scalars[kind]
    if kind == "any":
        return draw(st.sampled_from([True, {}, {"type": ["string", "integer"]}])), texts | st.integers(-5, 5)
    if kind == "enum":
        return {"enum": ["a", "b"]}, st.sampled_from("ab")
    inner, values = draw(json_schemas(depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "object", "additionalProperties": inner}, st.dictionaries(texts, values, max_size=3)
    if kind == "optional":
        return {"oneOf": [{"type": "null"}, inner]}, values
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
    parts = {name: draw(json_schemas(depth - 1)) for name in names}
    schema = {"type": "object", "properties": {name: part[0] for name, part in parts.items()}}
    return schema, st.fixed_dictionaries({}, optional={name: part[1] for name, part in parts.items()})


def json_plain(value: Any, of: pa.DataType) -> Any:
    """Return a value of the deserializer in the form that its column has."""
    if value is None:
        return None
    if pa.types.is_struct(of):
        return {field.name: json_plain(value.get(field.name), field.type) for field in of}
    if pa.types.is_map(of):
        return [(key, json_plain(item, of.item_type)) for key, item in value.items()]
    if pa.types.is_list(of):
        return [json_plain(item, of.value_type) for item in value]
    if pa.types.is_string(of) and not isinstance(value, str):
        return json.dumps(value)
    return float(value) if pa.types.is_floating(of) else value


def is_text_of_any(of: Any) -> bool:
    return json.dumps(of).count('"string", "integer"') > 0 or "true" in json.dumps(of) or "{}" in json.dumps(of)


@MANY
@given(data=st.data(), drawn=json_schemas())
def test_json_columns_equal_the_deserializers_values_and_errors(
    data: st.DataObject, drawn: tuple[Any, st.SearchStrategy[Any]], shared: SchemaRegistryClient
) -> None:
    part, values = drawn
    schema = {"type": "object", "properties": {"x": part}}
    number = registered(shared, schema)
    rows: list[bytes | None] = []
    for value in data.draw(st.lists(st.none() | st.fixed_dictionaries({"x": values}), max_size=8)):
        if value is None:
            rows.append(None)
            continue
        row = bytearray(framed(number, value))
        if data.draw(st.booleans()):
            for place in data.draw(st.lists(st.integers(5, len(row) - 1), max_size=2)):
                row[place] = data.draw(st.integers(0, 255))
            del row[data.draw(st.integers(5, len(row))) :]
        rows.append(bytes(row))
    reads: JSONDeserializer[Any] = JSONDeserializer(None, schema_registry_client=shared)
    array, poison = json_columns(shared).decode(binary(rows))
    wrong = dict(poison)
    array.validate(full=True)
    for place, written in enumerate(rows):
        if place in wrong:
            assert array[place].as_py() is None
            try:
                reads(written, VALUE)
            except SerializationError:
                continue
            # What JSON has and no column does.
            assert any(text in wrong[place] for text in ("64 bits", "surrogate", "of a double")), wrong[place]
            continue
        value = reads(written, VALUE)
        if is_text_of_any(part):
            assert (array[place].as_py() is None) == (value is None)
        elif len(array):
            expected = json_plain(value, array.type)
            assert array[place].as_py() == expected or repr(array[place].as_py()) == repr(
                expected
            )  # NaN equals nothing


#: What JSON is read otherwise than Python does, or not at all, by other readers.
ODD = [
    *(b'{"x":1}', b'{"x":1.0}', b'{"x":1e2}', b'{"x":1E400}', b'{"x":-0}', b'{"x":-0.0}', b'{"x":01}', b'{"x":+1}'),
    *(b'{"x":NaN}', b'{"x":Infinity}', b'{"x":9007199254740993}', b'{"x":9223372036854775808}', b'{"x":true}'),
    *(b'{"x":"a","x":"b"}', b'{"x":null,"x":1}', rb'{"\u0078":"k"}', rb'{"x":"\ud83d\ude00"}', rb'{"x":"\ud800"}'),
    *(rb'{"x":"\udc00"}', b'{"x":"\xff"}', b'{"y":"\xff"}', b'{"x":"a\nb"}', b'{"x":"a\0b"}', b'{\n"x":\n1}', b" {} "),
    *(b"{}{}", b'{"x":1}{"x":2}', b'{"x":"}', b'{"x":{}}', b'{"x":[]}', b'{"x":[{"x":1}]}', b'{"x":{"x":"z","y":1}}'),
    *(b"", b"[]", b"{", b"}", b"null", b"\xef\xbb\xbf{}", '{"x":1}'.encode("utf-16"), b'{"x":1,}', b'{"x":/**/1}'),
    *('{"x":"ü"}'.encode(), b'{"a":' * 200 + b"1" + b"}" * 200, b'{"x":"' + b"t" * 5000 + b'"}'),
]


@MANY
@given(data=st.data())
@pytest.mark.parametrize(
    "part",
    [
        *({"type": name} for name in ("string", "integer", "number", "boolean", "null")),
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "properties": {"x": {"type": "string"}}},
        {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
    ],
)
def test_arrows_reader_of_json_makes_the_same_columns(
    part: Any, data: st.DataObject, shared: SchemaRegistryClient
) -> None:
    number = registered(shared, {"type": "object", "properties": {"x": part, "z": {"type": "string"}}})
    plain = json.dumps({"x": data.draw(st.sampled_from(["a", 1, 1.5, True, None, [1], {"x": "b"}]))}).encode()
    chosen = data.draw(st.lists(st.just(plain) | st.sampled_from(ODD), min_size=1, max_size=4))
    rows = binary([framed(number, row) for row in chosen])
    found = json_columns(shared, validate=False).decode(rows)
    found.array.validate(full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_columns, "_read_json", lambda _type, _rows: None)
        expected = json_columns(shared, validate=False).decode(rows)
    assert found.poison == expected.poison
    assert found.array.type == expected.array.type
    made, wanted = (repr(one.array.to_pylist()).replace("-0.0", "0.0") for one in (found, expected))
    assert made == wanted  # Python's integer -0 is 0


def test_values_of_several_types_are_their_json(client: SchemaRegistryClient) -> None:
    number = registered(client, {"type": "object", "properties": {"a": {}, "b": {"type": ["integer", "string"]}}})
    array, poison = json_columns(client).decode(
        binary([framed(number, {"a": {"x": [1, "ü"]}, "b": 7}), framed(number, {"a": None, "b": "7"})])
    )
    assert not poison
    assert array.to_pylist() == [{"a": '{"x":[1,"ü"]}', "b": "7"}, {"a": None, "b": '"7"'}]


def test_json_of_several_schemas_has_the_columns_of_the_newest(client: SchemaRegistryClient) -> None:
    client.set_compatibility(level="NONE")
    old, new = registered(client, ORDER), registered(client, NEWER)
    rows = binary([framed(old, {"id": 1}), None, framed(new, {"id": 1.5, "lines": [{"sku": "s"}]}), framed(old, {})])
    array, ((row, reason),) = json_columns(client).decode(rows)
    assert array.to_pylist()[:3] == [
        {"id": 1.0, "note": None, "lines": None},
        None,
        {"id": 1.5, "note": None, "lines": [{"sku": "s"}]},
    ]
    assert (row, array[3].as_py()) == (3, None)
    assert reason == f"schema id {old}: the value lacks the required properties id"


@dataclasses.dataclass
class Order:
    id: int
    note: str | None = None


@pytest.mark.parametrize("schema", [json.dumps(ORDER), Schema(json.dumps(ORDER), "JSON"), Order])
def test_json_is_read_by_a_given_schema_and_checked_against_it(client: SchemaRegistryClient, schema: Any) -> None:
    number = registered(client, NEWER)
    columns = json_columns(client, schema)
    assert columns.arrow_type() == pa.struct({"id": pa.int64(), "note": pa.string()})
    array, ((row, reason),) = columns.decode(
        binary([framed(number, {"id": 3, "more": 1}), framed(number, {"id": 1.5})])
    )
    assert array.to_pylist() == [{"id": 3, "note": None}, None]
    assert (row, "field 'id' is of type float" in reason) == (1, True)


def test_only_selected_properties_become_columns(client: SchemaRegistryClient) -> None:
    number = registered(client, ORDER)
    rows = binary([framed(number, {"id": 1, "note": "n"})])
    assert json_columns(client, columns=["note"]).decode(rows).array.to_pylist() == [{"note": "n"}]
    with pytest.raises(IllegalArgumentError, match="no field nope"):
        json_columns(client, columns=["nope"]).decode(rows)


def test_json_without_validation_only_has_to_fit_the_columns(client: SchemaRegistryClient) -> None:
    number = registered(client, ORDER)
    rows = binary([framed(number, {"note": 25 * "n"}), framed(number, {"id": "1"}), framed(number, [])])
    array, poison = json_columns(client, validate=False).decode(rows)
    assert array.to_pylist() == [{"id": None, "note": 25 * "n"}, None, None]
    assert [reason.partition(": ")[2] for _, reason in poison] == [
        "field 'id' is of type str, and the column is of integers",
        "the value is of type list, and the column is a struct",
    ]
    assert [row for row, _ in json_columns(client).decode(rows).poison] == [0, 1, 2]


def test_json_schemas_with_references_become_columns(client: SchemaRegistryClient) -> None:
    part = {"type": "object", "properties": {"name": {"$ref": "#/$defs/name"}}, "$defs": {"name": {"type": "string"}}}
    registered(client, part, "part")
    schema = {
        "allOf": [{"$ref": "#/definitions/base"}, {"properties": {"part": {"$ref": "part.json"}}}],
        "definitions": {"base": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    }
    number = registered(client, schema, references=[SchemaReference("part.json", "part", 1)])
    array, poison = json_columns(client).decode(binary([framed(number, {"id": 1, "part": {"name": "x"}})]))
    assert (array.to_pylist(), poison) == ([{"id": 1, "part": {"name": "x"}}], [])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"id": {"type": "integer"}, "next": {"$ref": "#"}}},
        {"type": "object", "properties": {"id": {"type": "integer"}}, "allOf": [{"$ref": "#"}]},
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        },
    ],
)
def test_json_that_contains_itself_is_refused_unless_left_out(client: SchemaRegistryClient, schema: Any) -> None:
    rows = binary([framed(registered(client, schema), {"id": 1})])
    with pytest.raises(SerializationError, match="# contains itself"):
        json_columns(client).decode(rows)
    if "allOf" not in schema:
        assert json_columns(client, columns=["id"]).decode(rows).array.to_pylist() == [{"id": 1}]


def test_hostile_json_is_poison_with_the_reason(client: SchemaRegistryClient) -> None:
    number = registered(client, {"type": "object", "properties": {"a": {}, "i": {"type": "integer"}}})
    rows: list[bytes | None] = [
        b"",
        b"{}",
        framed(number, b""),
        framed(number, b"{"),
        framed(number, b'{"a":"\xff"}'),
        framed(number, b"[" * 100_000),
        framed(number, b'{"i":' + b"9" * 5_000 + b"}"),
        framed(number, b'{"i":9223372036854775808}'),
        framed(number, rb'{"a":"\ud800"}'),
        framed(number + 1, {}),
        b"\x03" + bytes(30),
    ]
    array, poison = json_columns(client).decode(binary(rows))
    assert array.null_count == len(rows)
    reasons = [reason for _, reason in poison]
    for reason, text in zip(
        reasons,
        [
            "0 bytes are too short",
            "Invalid magic byte 123",
            "the text is not JSON",
            "the text is not JSON",
            "not UTF-8 at byte 6",
            "nested too deeply",
            "too many digits",
            "more than 64 bits",
            "half a surrogate pair",
            f"schema id {number + 1} is unknown to the registry",
            "or is not JSON Schema",
        ],
        strict=True,
    ):
        assert text in reason


# --- Protobuf --------------------------------------------------------------------------------------------------------

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "bool": st.booleans(),
    "string": st.text(max_size=9),
    "bytes": st.binary(max_size=9),
    "uint32": st.integers(0, 2**32 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
}
SMALL_TIMES = st.integers(-(10**9), 4 * 10**9)


def field(name: str, number: int, kind: str, *, label: str = "OPTIONAL", **more: Any) -> Any:
    made = FIELD(name=name, number=number, label=FIELD.Label.Value(f"LABEL_{label}"), **more)
    made.type = FIELD.Type.Value(f"TYPE_{kind.upper()}")
    return made


def message_file(name: str = "everything.proto", extra: int = 0) -> Any:
    """Return the description of a file with fields of all kinds; ``extra`` more fields make a newer version."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
        file.dependency.append(module.DESCRIPTOR.name)
    everything = file.message_type.add(name="Everything")
    for number, kind in enumerate(SCALARS, 1):
        everything.field.append(field(f"a_{kind}", number, kind))
    everything.oneof_decl.add(name="choice")
    everything.oneof_decl.add(name="_optional")
    inner = everything.nested_type.add(name="Inner")
    inner.field.append(field("name", 1, "string"))
    entry = everything.nested_type.add(name="CountsEntry")
    entry.field.extend((field("key", 1, "string"), field("value", 2, "int64")))
    entry.options.map_entry = True
    entry = everything.nested_type.add(name="PartsEntry")
    entry.field.extend((field("key", 1, "int32"), field("value", 2, "message", type_name=".shop.Everything.Inner")))
    entry.options.map_entry = True
    state = everything.enum_type.add(name="State")
    for number, name_of in enumerate(("NEW", "PAID")):
        state.value.add(name=name_of, number=number)
    of = ".google.protobuf."
    everything.field.extend(
        (
            field("optional", 20, "int32", oneof_index=1, proto3_optional=True),
            field("text", 21, "string", oneof_index=0),
            field("inner", 22, "message", oneof_index=0, type_name=".shop.Everything.Inner"),
            field("numbers", 23, "int64", label="REPEATED"),
            field("inners", 24, "message", label="REPEATED", type_name=".shop.Everything.Inner"),
            field("counts", 25, "message", label="REPEATED", type_name=".shop.Everything.CountsEntry"),
            field("parts", 26, "message", label="REPEATED", type_name=".shop.Everything.PartsEntry"),
            field("state", 27, "enum", type_name=".shop.Everything.State"),
            field("states", 28, "enum", label="REPEATED", type_name=".shop.Everything.State"),
            field("at", 29, "message", type_name=f"{of}Timestamp"),
            field("took", 30, "message", type_name=f"{of}Duration"),
            field("wrapped", 31, "message", type_name=f"{of}Int64Value"),
            field("anything", 32, "message", type_name=f"{of}Struct"),
        )
    )
    everything.field.extend(field(f"more_{place}", 40 + place, "string") for place in range(extra))
    other = file.message_type.add(name="Other")
    other.field.append(field("x", 1, "int64"))
    tree = file.message_type.add(name="Tree")
    tree.field.extend((field("id", 1, "int64"), field("next", 2, "message", type_name=".shop.Tree", label="REPEATED")))
    return file


def classes(file: Any) -> dict[str, Any]:
    """Return the classes of the messages of a file by name."""
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found = pool.FindFileByName(file.name)
    return {
        name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.message_types_by_name.items()
    }


MESSAGES = classes(message_file())
EVERYTHING = MESSAGES["Everything"]
INNERS = st.fixed_dictionaries({"name": st.text(max_size=4)})
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    """Return a message, and the row that it becomes."""
    given: dict[str, Any] = {f"a_{kind}": draw(values) for kind, values in SCALARS.items() if draw(st.booleans())}
    row: dict[str, Any] = {f"a_{kind}": getattr(EVERYTHING(), f"a_{kind}") for kind in SCALARS} | given
    row |= dict.fromkeys(("optional", "text", "inner", "at", "took", "wrapped", "anything"))
    lists: dict[str, Any] = {
        "numbers": draw(st.lists(st.integers(-5, 2**40), max_size=3)),
        "inners": draw(st.lists(INNERS, max_size=2)),
        "counts": draw(st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=2)),
        "parts": draw(st.dictionaries(st.integers(-5, 5), INNERS, max_size=2)),
        "states": draw(st.lists(st.sampled_from([0, 1, 77]), max_size=3)),
    }
    given |= lists
    names = {0: "NEW", 1: "PAID", 77: "77"}
    row |= lists | {"states": [names[number] for number in lists["states"]]}
    given["state"] = draw(st.sampled_from([0, 1, 77]))
    row["state"] = names[given["state"]]
    if draw(st.booleans()):
        given["optional"] = row["optional"] = draw(st.integers(-1, 1))
    choice = draw(st.sampled_from(["none", "text", "inner"]))
    if choice != "none":
        given[choice] = row[choice] = draw(st.text(max_size=4)) if choice == "text" else draw(INNERS)
    if draw(st.booleans()):
        seconds, micros = draw(SMALL_TIMES), draw(st.integers(0, 999_999))
        given["at"] = timestamp_pb2.Timestamp(seconds=seconds, nanos=micros * 1000 + 7)
        row["at"] = EPOCH + datetime.timedelta(seconds=seconds, microseconds=micros)
        given["took"] = duration_pb2.Duration(seconds=seconds // 10)
        row["took"] = datetime.timedelta(seconds=seconds // 10)
        given["wrapped"] = wrappers_pb2.Int64Value(value=seconds)
        row["wrapped"] = seconds
        given["anything"] = struct_pb2.Struct()
        given["anything"]["k"] = "ü"
        row["anything"] = '{"k":"ü"}'
    made = EVERYTHING()
    for name in ("at", "took", "wrapped", "anything"):
        if name in given:
            getattr(made, name).ParseFromString(given.pop(name).SerializeToString())
    for number, part in given.pop("parts").items():
        made.parts[number].name = part["name"]
    made.MergeFrom(EVERYTHING(**given))
    return made, row


def protobuf_plain(row: Any) -> Any:
    """Return a row with its maps as dictionaries."""
    return None if row is None else {**row, "counts": dict(row["counts"]), "parts": dict(row["parts"])}


@pytest.fixture(scope="module")
def writes(shared: SchemaRegistryClient) -> ProtobufSerializer:
    return ProtobufSerializer(EVERYTHING, shared, {"auto.register.schemas": True})


@MANY
@given(drawn=st.lists(st.none() | messages(), max_size=6))
@pytest.mark.parametrize("is_given", [False, True])
def test_protobuf_columns_equal_the_messages(
    drawn: list[Any], is_given: bool, shared: SchemaRegistryClient, writes: ProtobufSerializer
) -> None:
    rows = binary([None if one is None else writes(one[0], VALUE) for one in drawn])
    columns = protobuf_columns(shared, EVERYTHING if is_given else None)
    array, poison = columns.decode(rows)
    array.validate(full=True)
    assert not poison
    if is_given:
        assert array.type == columns.arrow_type()
    assert [protobuf_plain(row) for row in array.to_pylist()] == [None if one is None else one[1] for one in drawn]


@MANY
@given(data=st.data(), drawn=messages())
def test_damaged_messages_are_poison_just_as_for_the_deserializer(
    data: st.DataObject, drawn: tuple[Any, Any], shared: SchemaRegistryClient, writes: ProtobufSerializer
) -> None:
    row = bytearray(writes(drawn[0], VALUE) or b"")
    for place in data.draw(st.lists(st.integers(0, len(row) - 1), max_size=3)):
        row[place] = data.draw(st.integers(0, 255))
    del row[data.draw(st.integers(0, len(row))) :]
    good = writes(EVERYTHING(a_int64=1), VALUE)
    array, poison = protobuf_columns(shared).decode(binary([good, bytes(row), good]))
    array.validate(full=True)
    assert array[0].is_valid
    assert array[2].is_valid
    reads: ProtobufDeserializer[Any] = ProtobufDeserializer(None, None, shared)
    try:
        found = reads(bytes(row), VALUE)
    except Exception:  # noqa: BLE001 - an id or an index that is not there
        assert [one.row for one in poison] == [1]
        return
    if poison:
        assert any(text in poison[0].reason for text in ("it is a message", "a time beyond", "has no JSON")), poison
    else:
        assert array[1].as_py()["a_int64"] == found.a_int64
        assert len(array[1].as_py()["inners"]) == len(found.inners)


def test_protobuf_of_several_versions_has_the_columns_of_the_newest(client: SchemaRegistryClient) -> None:
    newer = classes(message_file(extra=2))["Everything"]
    old, new = (ProtobufSerializer(kind, client, REGISTER) for kind in (EVERYTHING, newer))
    rows = binary([old(EVERYTHING(a_int32=1), VALUE), new(newer(a_int32=2, more_1="x"), VALUE)])
    array, poison = protobuf_columns(client, columns=["a_int32", "more_1"]).decode(rows)
    assert (array.to_pylist(), poison) == ([{"a_int32": 1, "more_1": ""}, {"a_int32": 2, "more_1": "x"}], [])
    array, poison = protobuf_columns(client, EVERYTHING, columns=["a_int32"]).decode(rows)
    assert (array.to_pylist(), poison) == ([{"a_int32": 1}, {"a_int32": 2}], [])


@pytest.mark.parametrize("schema", ["text", "schema"])
def test_protobuf_is_read_by_the_message_that_is_named(client: SchemaRegistryClient, schema: str) -> None:
    text = schema_text(EVERYTHING.DESCRIPTOR.file)
    given = text if schema == "text" else Schema(text, "PROTOBUF")
    other = MESSAGES["Other"]
    rows = binary([ProtobufSerializer(other, client, REGISTER)(other(x=3), VALUE)])
    for name in ("Other", "shop.Other"):
        array, poison = protobuf_columns(client, given, message=name).decode(rows)
        assert (array.to_pylist(), poison) == ([{"x": 3}], [])
    (reason,) = protobuf_columns(client, given).decode(rows).poison
    assert reason.reason.endswith("it is a message shop.Other, and the columns are those of shop.Everything")
    with pytest.raises(IllegalArgumentError, match="no message Nope"):
        protobuf_columns(client, given, message="Nope").decode(rows)
    with pytest.raises(IllegalArgumentError, match="names it already"):
        protobuf_columns(client, EVERYTHING, message="Other")
    with pytest.raises(IllegalArgumentError, match="int is no class of messages"):
        protobuf_columns(client, int)


def test_messages_that_contain_themselves_are_refused_unless_left_out(client: SchemaRegistryClient) -> None:
    tree = MESSAGES["Tree"]
    rows = binary([ProtobufSerializer(tree, client, REGISTER)(tree(id=1, next=[tree(id=2)]), VALUE)])
    with pytest.raises(SerializationError, match=r"shop.Tree contains itself"):
        protobuf_columns(client).decode(rows)
    assert protobuf_columns(client, columns=["id"]).decode(rows).array.to_pylist() == [{"id": 1}]
    with pytest.raises(IllegalArgumentError, match="no field nope"):
        protobuf_columns(client, columns=["nope"]).decode(rows)


def test_hostile_protobuf_is_poison_with_the_reason(client: SchemaRegistryClient) -> None:
    good = ProtobufSerializer(EVERYTHING, client, REGISTER)(EVERYTHING(a_int32=1), VALUE) or b""
    prefix = good[:5]
    late = EVERYTHING()
    late.at.seconds = 1 << 62
    no_number = EVERYTHING()
    no_number.anything["a"] = float("nan")
    rows: list[bytes | None] = [
        prefix,
        prefix + b"\x02\x20\x00",  # message 16
        prefix + b"\xfe\xff\xff\xff\x0f" + bytes(99),
        good + b"\x0a\xff",
        prefix + b"\0" + bytes([9 << 3 | 2, 1, 0xFF]),  # a_string
        prefix + b"\0" + late.SerializeToString(),
        prefix + b"\0" + no_number.SerializeToString(),
    ]
    array, poison = protobuf_columns(client, on_error="keep").decode(binary([good, *rows]))
    assert array.null_count == len(rows)
    for (_, reason), text in zip(
        poison,
        [
            "the bytes end inside of the message's indexes",
            "is unknown to the registry",
            "Invalid msgidx array length",
            "field 'a_double'",
            "field 'a_string': the text is not UTF-8",
            "field 'at' is a time beyond 64 bits",
            "field 'anything' has no JSON",
        ],
        strict=True,
    ):
        assert text in reason


# --- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_ids_in_headers_are_read_if_the_batch_has_them(
    pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient, format: str
) -> None:
    write, value, columns = writers(client, **{"schema.id.serializer": header_schema_id_serializer})[format]
    prefixed = writers(client)[format][0]
    servers = pykclient_cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, value_serializer=write) as producer:
        producer.send("orders", value, headers=[], partition=0).get(30)
        producer.send("orders", value, headers=[("other", b"\0\0\0\0\x09"), ("n", None)], partition=0).get(30)
        producer.send("orders", None, headers=[(VALUE_SCHEMA_ID, b"\7")], partition=0).get(30)
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send("orders", prefixed(value, VALUE), partition=0).get(30)
        producer.send("orders", b"bad", headers=[(VALUE_SCHEMA_ID, b"\0\0")], partition=0).get(30)
        producer.send("orders", b"bad", headers=[(VALUE_SCHEMA_ID, b"\0\0\0\1\0\0")], partition=0).get(30)
        producer.send("orders", b"bad", partition=0).get(30)
    keeping = columns(client, on_error="keep")
    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        rows: list[Any] = []
        while len(rows) < 7:
            batch = consumer.poll_arrow(30_000, value=keeping, columns=["headers", "value"])
            rows += batch.select(["value", "value_error", "value_bytes"]).to_pylist()
    first = [None if row["value"] is None else next(iter(row["value"].values())) for row in rows]
    assert first == [7, 7, None, 7, None, None, None]
    errors = [row["value_error"] for row in rows]
    assert errors[:4] == [None] * 4
    for error, text in zip(errors[4:], ["2 bytes are too short", "id 256 is unknown to", "magic byte 98"], strict=True):
        assert text in error
    assert [row["value_bytes"] for row in rows] == [None] * 4 + [b"bad"] * 3


def writers(client: SchemaRegistryClient, **more: Any) -> dict[str, tuple[Any, Any, Any]]:
    """Return a serializer, a value and the columns of each format."""
    conf = {"auto.register.schemas": True, **more}
    avro = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    return {
        "avro": (AvroSerializer(client, json.dumps(avro), conf=conf), {"id": 7}, avro_columns),
        "json": (JSONSerializer(json.dumps(ORDER), client, conf=conf), {"id": 7}, json_columns),
        "protobuf": (ProtobufSerializer(MESSAGES["Other"], client, conf), MESSAGES["Other"](x=7), protobuf_columns),
    }


@pytest.mark.parametrize("format", ["json", "protobuf"])
def test_records_with_the_guid_of_their_schema_are_read(client: SchemaRegistryClient, format: str) -> None:
    more = {"schema.id.serializer": prefix_schema_guid_serializer}
    write, value, columns = writers(client, **more)[format]
    array, poison = columns(client).decode(binary([write(value, VALUE)]))
    assert not poison
    assert next(iter(array.to_pylist()[0].values())) == 7


@pytest.mark.parametrize("format", ["json", "protobuf"])
def test_poll_arrow_decodes_the_format_and_names_poison(
    pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient, format: str
) -> None:
    write, value, columns = writers(client)[format]
    with KafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as producer:
        for row in (write(value, VALUE), None, b"poison"):
            producer.send("orders", row, partition=0)
        producer.flush(30)
    with KafkaConsumer(bootstrap_servers=pykclient_cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        with pytest.raises(RecordDeserializationError, match=r"offset 2 of orders-0 .*magic byte 112"):
            consumer.poll_arrow(30_000, value=columns(client), columns=["value"])
        batch = consumer.poll_arrow(30_000, value=columns(client, on_error="keep"), columns=["value"])
    assert batch.column("value").is_valid().to_pylist() == [True, False, False]
    assert batch.column("value_bytes").to_pylist() == [None, None, b"poison"]


@pytest.mark.parametrize("format", ["json", "protobuf"])
def test_rules_for_reading_are_refused(client: SchemaRegistryClient, format: str) -> None:
    rule = Rule(name="check", kind=RuleKind.CONDITION, mode=RuleMode.READ, type="CEL", expr="true")
    text = json.dumps(ORDER) if format == "json" else schema_text(EVERYTHING.DESCRIPTOR.file)
    schema = Schema(text, format.upper(), rule_set=RuleSet(domain_rules=[rule]))
    number = client.register_schema("orders-value", schema)
    columns = json_columns(client) if format == "json" else protobuf_columns(client)
    with pytest.raises(RuleError, match="the rule 'check' of type CEL"):
        columns.decode(binary([framed(number, b"\0")]))


@pytest.mark.parametrize("format", ["json", "protobuf"])
def test_columns_without_rows_or_a_schema_are_null(client: SchemaRegistryClient, format: str) -> None:
    columns = (json_columns if format == "json" else protobuf_columns)(client)
    assert columns.decode(binary([None, None])).array.to_pylist() == [None, None]
    assert columns.decode(binary([])).array.to_pylist() == []
    with pytest.raises(IllegalArgumentError, match="not known before the first record"):
        columns.arrow_type()
