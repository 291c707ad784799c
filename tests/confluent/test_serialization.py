"""Serializers in confluent-kafka's shape give the bytes that confluent-kafka's own give."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import serialization as theirs

from pykclient.confluent import serialization as ours

_VALUES: list[tuple[str, Any]] = [
    ("Double", 0.1),
    ("Double", -1e308),
    ("Double", None),
    ("Integer", 0),
    ("Integer", -(2**31)),
    ("Integer", None),
    ("String", "größer"),
    ("String", ""),
    ("String", None),
]


@pytest.mark.parametrize(("kind", "value"), _VALUES)
def test_serializers_and_deserializers_agree_with_confluent_kafka(kind: str, value: Any) -> None:
    data = getattr(ours, f"{kind}Serializer")()(value)
    assert data == getattr(theirs, f"{kind}Serializer")()(value)
    assert getattr(ours, f"{kind}Deserializer")()(data) == value


@pytest.mark.parametrize(("kind", "value"), [("Double", "x"), ("Integer", 2**31), ("String", "\ud800")])
def test_refused_objects_raise_serialization_error(kind: str, value: Any) -> None:
    with pytest.raises(ours.SerializationError):
        getattr(ours, f"{kind}Serializer")()(value)


@pytest.mark.parametrize(("kind", "data"), [("Double", b"\0"), ("Integer", b"\0" * 5), ("String", b"\xff")])
def test_malformed_bytes_raise_serialization_error(kind: str, data: bytes) -> None:
    with pytest.raises(ours.SerializationError):
        getattr(ours, f"{kind}Deserializer")()(data)


def test_module_has_every_name_of_confluent_kafka() -> None:
    assert set(ours.__all__) == set(theirs.__all__)
    assert str(ours.MessageField.KEY) == str(theirs.MessageField.KEY) == "key"
