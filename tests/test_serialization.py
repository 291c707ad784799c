from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient import serialization
from pykclient.errors import ConfigError, SerializationError
from pykclient.serialization import (
    BYTES,
    BooleanSerde,
    BytesSerde,
    DefaultSerializer,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    Serde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
    VoidSerde,
    deserializer_for,
    serializer_for,
)
from tests.support.java import run_java

ROUND_TRIPS: list[tuple[Serde[Any], st.SearchStrategy[Any]]] = [
    (BytesSerde(), st.binary()),
    (StringSerde(), st.text()),
    (StringSerde("utf-16"), st.text()),
    (DefaultSerializer(), st.text()),
    (ShortSerde(), st.integers(-(2**15), 2**15 - 1)),
    (IntegerSerde(), st.integers(-(2**31), 2**31 - 1)),
    (LongSerde(), st.integers(-(2**63), 2**63 - 1)),
    (FloatSerde(), st.floats(width=32, allow_nan=False)),
    (DoubleSerde(), st.floats(allow_nan=False)),
    (BooleanSerde(), st.booleans()),
    (UUIDSerde(), st.uuids()),
    (ListSerde(IntegerSerde()), st.lists(st.none() | st.integers(-(2**31), 2**31 - 1))),
    (ListSerde(UUIDSerde()), st.lists(st.none() | st.uuids())),
    (ListSerde(StringSerde()), st.lists(st.none() | st.text())),
    (JsonSerde(), st.recursive(st.integers() | st.text() | st.booleans(), st.lists)),
]
ALL: list[Serde[Any]] = [*(serde for serde, _ in ROUND_TRIPS), VoidSerde()]
BINARY = [
    ShortSerde(),
    IntegerSerde(),
    LongSerde(),
    FloatSerde(),
    DoubleSerde(),
    BooleanSerde(),
    UUIDSerde(),
    ListSerde(IntegerSerde()),
    ListSerde(StringSerde()),
    JsonSerde(),
]


@pytest.mark.parametrize(("serde", "values"), ROUND_TRIPS)
@given(data=st.data())
def test_values_survive_a_round_trip(serde: Serde[Any], values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    assert serde.deserialize("t", (), bytes(serde.serialize("t", (), value) or b"")) == value


@pytest.mark.parametrize("serde", ALL)
def test_null_stays_null(serde: Serde[Any]) -> None:
    assert serde.serialize("t", (), None) is None
    assert serde.deserialize("t", (), None) is None


@pytest.mark.parametrize("serde", ALL)
@given(data=st.binary())
def test_any_bytes_are_read_or_refused(serde: Serde[Any], data: bytes) -> None:
    with contextlib.suppress(SerializationError):
        serde.deserialize("t", (), data)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (ShortSerde(), 2**15),
        (IntegerSerde(), 2**31),
        (IntegerSerde(), "5"),
        (IntegerSerde(), True),
        (IntegerSerde(), 1.0),
        (LongSerde(), -(2**63) - 1),
        (FloatSerde(), 1e300),
        (DoubleSerde(), "x"),
        (DoubleSerde(), 10**400),
        (BooleanSerde(), 1),
        (UUIDSerde(), "no"),
        (StringSerde(), b"bytes"),
        (StringSerde("ascii"), "ä"),
        (StringSerde(), "\ud800"),
        (BytesSerde(), 5),
        (ListSerde(IntegerSerde()), [1, "x"]),
        (JsonSerde(), object()),
        (VoidSerde(), 0),
    ],
)
def test_unserializable_values_are_refused(serde: Serde[Any], value: Any) -> None:
    with pytest.raises(SerializationError, match="cannot be serialized as") as caught:
        serde.serialize("t", (), value)
    assert caught.value.__cause__ is not None


def test_malformed_lists_are_refused() -> None:
    numbers, texts = ListSerde(IntegerSerde()), ListSerde(StringSerde())
    with pytest.raises(SerializationError, match="str cannot be serialized as a list"):
        numbers.serialize("t", (), "text")  # type: ignore[arg-type]
    for serde, data in (
        (numbers, b""),
        (numbers, b"\x00"),
        (numbers, texts.serialize("t", (), ["a"])),
        (texts, numbers.serialize("t", (), [1])),
        (numbers, b"\x00" + bytes(4) + b"\x7f\xff\xff\xff"),
        (texts, b"\x01" + b"\x00\x00\x00\x01" + b"\xff\xff\xff\xfe"),
        (texts, b"\x01" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x02a"),
        (numbers, bytes(numbers.serialize("t", (), [1]) or b"") + b"x"),
    ):
        with pytest.raises(SerializationError, match="bytes are not a list, each"):
            serde.deserialize("t", (), bytes(data or b""))


def test_refused_bytes_do_not_appear_in_the_error() -> None:
    with pytest.raises(SerializationError) as caught:
        UUIDSerde().deserialize("t", (), b"geheim")
    assert str(caught.value) == "6 bytes are not a UUID"
    with pytest.raises(SerializationError, match="3 bytes are not utf-8 text"):
        StringSerde().deserialize("t", (), b"\xff\xfe\xfd")
    with pytest.raises(SerializationError, match="0 bytes are not null"):
        VoidSerde().deserialize("t", (), b"")


@pytest.mark.parametrize("data", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_pass_through_unchanged(data: Any) -> None:
    assert BYTES.serialize("t", (), data) is data
    assert DefaultSerializer().serialize("t", (), data) is data


def test_text_is_refused_without_a_serializer() -> None:
    default: Serde[Any] = BYTES
    with pytest.raises(SerializationError, match=r"^str cannot be serialized as bytes: set a serializer$"):
        default.serialize("t", (), "text")


class Upper:
    """A serializer that is not a subclass: having the method is enough."""

    def serialize(self, topic: str, headers: Any, data: str) -> bytes:
        return f"{topic}:{data}".upper().encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (StringSerde, b"a"),
        (StringSerde(), b"a"),
        (str.encode, b"a"),
        (Upper, b"T:A"),
        (Upper(), b"T:A"),
    ],
)
def test_serdes_classes_and_callables_serialize(value: Any, expected: bytes) -> None:
    assert serializer_for(value).serialize("t", (), "a") == expected
    serializer_for(StringSerde).close()


@pytest.mark.parametrize("value", [StringSerde, StringSerde(), bytes.decode])
def test_serdes_classes_and_callables_deserialize(value: Any) -> None:
    assert deserializer_for(value).deserialize("t", (), b"a") == "a"
    deserializer_for(StringSerde).close()


@pytest.mark.parametrize("resolve", [serializer_for, deserializer_for])
def test_uncallable_serializers_are_refused(resolve: Callable[[Any], object]) -> None:
    assert resolve(None) is BYTES
    with pytest.raises(ConfigError, match="is not callable"):
        resolve(5)


@pytest.mark.java
def test_bytes_equal_javas() -> None:
    parse: dict[str, Callable[[str], Any]] = {
        "Float": float,
        "Double": float,
        "Boolean": lambda text: text == "true",
        "String": str,
        "UUID": uuid.UUID,
    }
    lines = run_java(Path(__file__).with_name("SerializersOracle.java")).decode().split("\n")[:-1]
    assert len(lines) > 37

    def list_of(text: str, parse_one: Callable[[str], Any]) -> list[Any]:
        return [None if one == "null" else parse_one(one) for one in text[1:-1].split(", ") if text != "[]"]

    lists: dict[str, tuple[Serde[Any], Callable[[str], Any]]] = {
        "IntegerList": (ListSerde(IntegerSerde()), int),
        "StringList": (ListSerde(StringSerde()), str),
        "UUIDList": (ListSerde(UUIDSerde()), uuid.UUID),
    }
    for line in lines:
        kind, text, expected = line.split("\t")
        serde: Serde[Any]
        if kind in lists:
            serde, parse_one = lists[kind]
            value: Any = list_of(text, parse_one)
        else:
            value = parse.get(kind, int)(text)
            serde = getattr(serialization, f"{kind}Serializer")()
        assert bytes(serde.serialize("t", (), value) or b"").hex() == expected, line
        back: Any = serde.deserialize("t", (), bytes.fromhex(expected))
        assert back == value or (math.isnan(back) and math.isnan(value)), line
