"""Models of three kinds, in Avro and JSON and back: every type of field that Python's own programs use."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from typing import Annotated, Any, Literal

import fastavro
import msgspec
import pydantic
import pytest

from pykclient.errors import SerializationError
from pykclient.schema_registry import MessageField, SchemaRegistryClient, SerializationContext
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.models import DecimalSize, avro_schema, json_schema

REGISTER = {"auto.register.schemas": True}
VALUE = SerializationContext("orders", MessageField.VALUE)
Sum = Annotated[decimal.Decimal, DecimalSize(9, 2)]
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)
DAY = datetime.date(2026, 1, 2)
TIME = datetime.time(3, 4, 5, 678901)
NUMBER = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")


class Color(enum.Enum):
    RED = "BLUE"  # a value that is the name of another member
    BLUE = "RED"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


#: The types of fields, with values of each. MODEL is a model of the same kind.
MODEL: Any = object()
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "bool": (bool, [True]),
    "int": (int, [-(2**63), 2**63 - 1]),
    "float": (float, [1.5]),
    "str": (str, ["\u00e9"]),
    "bytes": (bytes, [b"\xff\x00a", b""]),
    "datetime": (datetime.datetime, [NOW]),
    "date": (datetime.date, [DAY]),
    "time": (datetime.time, [TIME]),
    "decimal": (Sum, [decimal.Decimal("-12.50")]),
    "optional_decimal": (Sum | None, [None, decimal.Decimal("0.01")]),
    "decimals": (list[Sum], [[decimal.Decimal("0.01")]]),
    "uuid": (uuid.UUID, [NUMBER]),
    "enum": (Color, [Color.RED, Color.BLUE]),
    "int_enum": (Size, [Size.LARGE]),
    "literal": (Literal["a", "b"], ["b"]),
    "literal_text": (Literal["a-b", ""], ["a-b"]),
    "literal_number": (Literal[1, 2], [2]),
    "optional": (int | None, [None, 7]),
    "optional_enum": (Color | None, [None, Color.RED]),
    "optional_datetime": (datetime.datetime | None, [None, NOW]),
    "optional_bytes": (bytes | None, [None, b"\xff"]),
    "optional_literal": (Literal["x", "y"] | None, [None, "y"]),
    "union": (int | str | bool, [1, "x", True]),
    "list": (list[datetime.date], [[], [DAY]]),
    "dict": (dict[str, uuid.UUID], [{}, {"a": NUMBER}]),
    "dict_of_lists": (dict[str, list[Color]], [{"a": [Color.RED]}]),
    "list_of_optionals": (list[int | None], [[1, None]]),
    "set": (frozenset[int], [frozenset({1, 2})]),
    "tuple": (tuple[int, ...], [(1, 2)]),
    "nested": (MODEL, [MODEL]),
    "optional_nested": (MODEL, [MODEL, None]),
    "list_of_nested": (MODEL, [MODEL]),
}


def typed(kind: str, name: str, fields: list[tuple[str, Any]]) -> Any:
    """Return a class with these fields, all of them required."""
    if kind == "dataclass":
        return dataclasses.make_dataclass(name, fields)
    if kind == "msgspec":
        return msgspec.defstruct(name, fields, module=__name__)
    config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    given: dict[str, Any] = {field: (hint, ...) for field, hint in fields}
    return pydantic.create_model(name, __config__=config, **given)


def model(kind: str, what: str) -> tuple[Any, list[Any]]:
    """Return a model with one field, and its values."""
    hint, values = TYPES[what]
    if hint is MODEL:
        inner = typed(kind, "Inner", [("at", datetime.datetime), ("raw", bytes)])
        one = inner(at=NOW, raw=b"\xff")
        hint = {"nested": inner, "optional_nested": inner | None, "list_of_nested": list[inner]}[what]  # type: ignore[valid-type]
        values = [([one] if what.startswith("list") else one) if value is MODEL else value for value in values]
    return typed(kind, "Model", [("field", hint)]), values


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize("kind", ["dataclass", "msgspec", "pydantic"])
@pytest.mark.parametrize("what", list(TYPES))
def test_fields_of_models_are_written_and_read(client: SchemaRegistryClient, what: str, kind: str, form: str) -> None:
    cls, values = model(kind, what)
    write: Any
    read: Any
    if form == "avro":
        write, read = AvroSerializer(client, cls, conf=REGISTER), AvroDeserializer(client, cls)
        fastavro.parse_schema(avro_schema(cls))
    else:
        write, read = JSONSerializer(cls, client, conf=REGISTER), JSONDeserializer(cls, schema_registry_client=client)
    for value in values:
        found = read(write(cls(field=value), VALUE), VALUE)
        assert found == cls(field=value)
        assert type(found.field) is type(value)


@pytest.mark.parametrize("kind", ["dataclass", "msgspec", "pydantic"])
def test_records_of_a_union_keep_their_class_in_avro(client: SchemaRegistryClient, kind: str) -> None:
    first: Any
    second: Any
    if kind == "msgspec":
        first = msgspec.defstruct("First", [("id", int)], tag=True)
        second = msgspec.defstruct("Second", [("id", int)], tag=True)
    else:
        first, second = typed(kind, "First", [("id", int)]), typed(kind, "Second", [("id", int)])
    whole = typed(kind, "Model", [("one", first | second), ("more", list[first | second])])
    value = whole(one=second(id=1), more=[first(id=2), second(id=3)])
    data = AvroSerializer(client, whole, conf=REGISTER)(value, VALUE)
    assert AvroDeserializer(client, whole)(data, VALUE) == value


def test_records_of_a_union_are_told_apart_by_their_fields_in_json(client: SchemaRegistryClient) -> None:
    first, second = typed("dataclass", "First", [("id", int)]), typed("dataclass", "Second", [("number", int)])
    whole = typed("dataclass", "Model", [("one", first | second)])
    data = JSONSerializer(whole, client, conf=REGISTER)(whole(second(1)), VALUE)
    assert JSONDeserializer(whole, schema_registry_client=client)(data, VALUE) == whole(second(1))


class Aliased(pydantic.BaseModel):
    number: int = pydantic.Field(alias="orderNumber")
    sum: decimal.Decimal | None = pydantic.Field(default=None, max_digits=9, decimal_places=2)


class Renamed(msgspec.Struct, rename="camel"):
    order_number: int


@pytest.mark.parametrize("value", [Aliased(orderNumber=7, sum=decimal.Decimal("1.25")), Renamed(7)])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_names_in_records_are_those_of_the_model(client: SchemaRegistryClient, value: Any, form: str) -> None:
    cls = type(value)
    if form == "avro":
        data = AvroSerializer(client, cls, conf=REGISTER)(value, VALUE)
        assert AvroDeserializer(client, cls)(data, VALUE) == value
        assert AvroDeserializer(client)(data, VALUE)["orderNumber"] == 7
    else:
        data = JSONSerializer(cls, client, conf=REGISTER)(value, VALUE)
        assert JSONDeserializer(cls, schema_registry_client=client)(data, VALUE) == value
        assert JSONDeserializer(None, schema_registry_client=client)(data, VALUE)["orderNumber"] == 7


def test_union_of_a_default_begins_with_its_type() -> None:
    @dataclasses.dataclass
    class Defaults:
        text: int | str | None = "x"
        number: str | float | None = 1.5
        color: Color | None = Color.BLUE
        nothing: int | None = None

    schema = avro_schema(Defaults)
    fastavro.parse_schema(schema)
    kinds = [row["type"] if isinstance(row["type"], list) else [row["type"]] for row in schema["fields"]]
    assert kinds[0] == ["string", "null", "long"]
    assert kinds[1] == ["double", "null", "string"]
    assert kinds[2][0]["symbols"] == ["RED", "BLUE"]
    assert kinds[3] == ["null", "long"]


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (decimal.Decimal, r"Bad\.what: .* has no Avro type: write Annotated\[Decimal, "),
        (Annotated[decimal.Decimal, "money"], r"Bad\.what: a Decimal needs its size"),
        (tuple[int, str], r"Bad\.what: .* has items of several types"),
        (Any, r"Bad\.what: .* has no Avro type"),
        (dict[int, str], r"Bad\.what: .* has no Avro type"),
    ],
)
def test_types_without_an_avro_type_are_named(hint: Any, text: str) -> None:
    with pytest.raises(SerializationError, match=text):
        avro_schema(dataclasses.make_dataclass("Bad", [("what", hint)]))


def test_any_is_any_json(client: SchemaRegistryClient) -> None:
    cls = dataclasses.make_dataclass("Model", [("field", Any)])
    assert json.loads(json.dumps(json_schema(cls)))["properties"] == {"field": {}}
    data = JSONSerializer(cls, client, conf=REGISTER)(cls({"a": [1, None]}), VALUE)
    assert JSONDeserializer(cls, schema_registry_client=client)(data, VALUE) == cls({"a": [1, None]})
