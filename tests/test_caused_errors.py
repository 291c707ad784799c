"""Errors that are also instances of the class of their cause."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
import uuid
from typing import Any, NoReturn
from xml.etree import ElementTree

import pytest

from pykclient import ConsumerRecord, KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.caused_errors import caused_by
from pykclient.errors import (
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    RecordDeserializationError,
    SerializationError,
)
from pykclient.serialization import JsonSerializer
from pykclient.testing import EmbeddedCluster


class SlottedError(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int, *, needed: str) -> None:
        super().__init__(code)
        self.code = code
        self.needed = needed


class ComputedError(ValueError):
    """An error whose offset is not a record's."""

    @property
    def offset(self) -> int:
        return 5


class FinalError(ValueError):
    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("final")


def raised_by(function: Any, *args: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*args)
    return caught.value


CAUSES = [
    raised_by(json.loads, "{"),
    raised_by(b"\xff".decode),
    raised_by(ElementTree.fromstring, "<a>"),
    raised_by(open, "/no/such/file"),
    raised_by({}.__getitem__, "k"),
    raised_by(uuid.UUID, "x"),
    raised_by(lambda: None.nothing),  # type: ignore[attr-defined]
    SlottedError(3, needed="yes"),
    ExceptionGroup("several", [ValueError()]),
]


def record_error(cause: BaseException) -> RecordDeserializationError:
    record: Any = ConsumerRecord("t", 0, None, 7, 0, 0, None, b"{", ())
    return caused_by(RecordDeserializationError("it failed", TopicPartition("t", 0), 7, "value", record), cause)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
def test_error_is_caught_by_either_class(cause: BaseException) -> None:
    error = record_error(cause)
    assert isinstance(error, RecordDeserializationError)
    if isinstance(cause, ExceptionGroup):
        assert type(error) is RecordDeserializationError, "it cannot be made of a text"
    else:
        assert isinstance(error, type(cause))
    for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(each) is type(error)
        assert (each.topic_partition, each.offset, each.part) == (TopicPartition("t", 0), 7, "value")
        assert each.record == error.record
        assert str(each) == "it failed"
        assert repr(each) == "RecordDeserializationError('it failed')"
        for name in ("msg", "pos", "lineno", "errno", "filename", "start", "reason", "code", "needed"):
            if hasattr(cause, name) and not isinstance(cause, ExceptionGroup):
                assert getattr(each, name) == getattr(cause, name), name


def test_traceback_names_the_error_of_this_package() -> None:
    (line,) = traceback.format_exception_only(record_error(CAUSES[0]))
    assert line == "pykclient.errors.RecordDeserializationError: it failed\n"


def test_notes_survive_pickling() -> None:
    error = record_error(CAUSES[0])
    error.add_note("a note")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["a note"]


def test_pickling_leaves_out_causes_that_cannot_be_pickled() -> None:
    class LocalError(ValueError):
        pass

    cause = LocalError("x")
    cause.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
    error = record_error(cause)
    assert isinstance(error, LocalError)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is RecordDeserializationError
    assert (back.offset, str(back)) == (7, "it failed")


@pytest.mark.parametrize(
    "cause",
    [StopIteration(), StopAsyncIteration(), KafkaTimeoutError("x"), ConfigError("x"), KeyboardInterrupt()],
    ids=lambda cause: type(cause).__name__,
)
def test_special_exception_classes_are_not_added(cause: BaseException) -> None:
    assert type(record_error(cause)) is RecordDeserializationError


def test_attributes_of_this_package_win() -> None:
    assert record_error(ComputedError()).offset == 7
    assert isinstance(record_error(ComputedError()), ValueError), "the nearest class that has no offset of its own"
    assert not isinstance(record_error(ComputedError()), ComputedError)


def test_final_class_is_replaced_by_its_base() -> None:
    error = record_error(FinalError("x"))
    assert isinstance(error, ValueError)
    assert not isinstance(error, FinalError)


# --- in the clients ---------------------------------------------------------------------------------------------------


def parse(data: bytes) -> Any:
    return json.loads(data)


def test_program_can_catch_its_deserializers_error(pykclient_cluster: EmbeddedCluster) -> None:
    servers = pykclient_cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for value in (b"1", b"no JSON", b"3"):
            producer.send("numbers", value)
    with KafkaConsumer(
        "numbers", bootstrap_servers=servers, auto_offset_reset="earliest", value_deserializer=parse
    ) as consumer:
        assert next(consumer).value == 1
        with pytest.raises(json.JSONDecodeError) as caught:
            next(consumer)
        error = caught.value
        assert isinstance(error, RecordDeserializationError)
        assert (error.pos, error.offset, error.part) == (0, 1, "value")
        assert isinstance(error.__cause__, json.JSONDecodeError)
        assert str(error) == (
            f"the value of the record at offset 1 of numbers-0 cannot be deserialized by parse ({__file__}:"
            f"{parse.__code__.co_firstlineno}): JSONDecodeError: Expecting value: line 1 column 1 (char 0). "
            "Seek to offset 2 to skip it"
        )
        consumer.seek(error.topic_partition, error.offset + 1)
        assert next(consumer).value == 3


@pytest.mark.parametrize("value", [JsonSerializer, parse])
def test_deserializer_error_is_raised_for_class_and_function(pykclient_cluster: EmbeddedCluster, value: Any) -> None:
    servers = pykclient_cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send("broken", b"{").get(10)
    with KafkaConsumer(
        "broken", bootstrap_servers=servers, auto_offset_reset="earliest", value_deserializer=value
    ) as consumer:
        with pytest.raises(json.JSONDecodeError):
            consumer.poll(10_000)
        with pytest.raises(RecordDeserializationError):
            next(consumer)


def strict(data: Any) -> bytes:
    raise LookupError("not in the catalogue")


class Upper:
    def serialize(self, topic: str, headers: Any, data: Any) -> Any:
        return data.upper()


@pytest.mark.parametrize(
    ("settings", "value", "kind", "said"),
    [
        (
            {"value_serializer": strict},
            "v",
            LookupError,
            f"the value of a record for topic 't' cannot be serialized by strict ({__file__}:"
            f"{strict.__code__.co_firstlineno}): LookupError: not in the catalogue",
        ),
        (
            {"value_serializer": Upper()},
            5,
            AttributeError,
            "the value of a record for topic 't' cannot be serialized by Upper.serialize: AttributeError: 'int' object "
            "has no attribute 'upper'",
        ),
        (
            {"value_serializer": JsonSerializer},
            object,
            TypeError,
            "the value of a record for topic 't' cannot be serialized by JsonSerde: type cannot be serialized as JSON: "
            "Object of type type is not JSON serializable",
        ),
        (
            {},
            "text",
            TypeError,
            "the value of a record for topic 't' is a str, and there is no value_serializer; set it to "
            "'pykclient.serialization.StringSerializer', or encode() the text",
        ),
        (
            {},
            {"a": 1},
            TypeError,
            "the value of a record for topic 't' is a dict, and there is no value_serializer; set it, for instance to "
            "'pykclient.serialization.JsonSerializer'",
        ),
        (
            {"value_serializer": Upper()},
            "text",
            SerializationError,
            "the value_serializer Upper.serialize returned str instead of bytes for a record for topic 't'",
        ),
    ],
)
def test_serializer_failure_names_serializer_topic_and_cause(
    pykclient_cluster: EmbeddedCluster, settings: dict[str, Any], value: Any, kind: type[Exception], said: str
) -> None:
    pykclient_cluster.create_topic("t")
    with (
        KafkaProducer[Any, Any](bootstrap_servers=pykclient_cluster.bootstrap_servers, **settings) as producer,
        pytest.raises(kind) as caught,
    ):
        producer.send("t", value)
    assert isinstance(caught.value, SerializationError)
    assert isinstance(caught.value, KafkaError)
    assert str(caught.value) == said
    with (
        KafkaProducer[Any, Any](
            bootstrap_servers=pykclient_cluster.bootstrap_servers,
            **{name.replace("value", "key"): serializer for name, serializer in settings.items()},
        ) as producer,
        pytest.raises(kind) as caught,
    ):
        producer.send("t", b"", value)
    assert str(caught.value) == said.replace("the value", "the key").replace("value_serializer", "key_serializer")
