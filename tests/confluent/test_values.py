"""Errors, messages and partitions are those of confluent-kafka."""

from __future__ import annotations

import pickle
from typing import Any

import confluent_kafka as theirs
import pytest
from confluent_kafka import cimpl
from hypothesis import given, strategies as st

import pykclient.confluent as ours
from pykclient import errors
from pykclient.confluent import constants
from pykclient.confluent.error_codes import ERRORS
from pykclient.confluent.kafka_error import code_of, error_of
from pykclient.confluent.partitioners import PARTITIONERS


def test_error_codes_names_and_texts_are_librdkafkas() -> None:
    names = {name for name in dir(theirs.KafkaError) if name.upper() == name and not name.startswith("__")}
    assert {name for _, name, _ in ERRORS} == names
    for code, name, text in ERRORS:
        real = theirs.KafkaError(code)
        error = ours.KafkaError(code)
        assert getattr(theirs.KafkaError, name) == code == getattr(ours.KafkaError, name)
        assert (error.name(), error.str(), repr(error)) == (real.name(), real.str(), repr(real))
        assert text == real.str()


def test_error_equals_its_code_and_survives_pickling() -> None:
    error = ours.KafkaError(ours.KafkaError._TIMED_OUT, "late", fatal=True, retriable=True, txn_requires_abort=True)
    again = pickle.loads(pickle.dumps(error))
    assert again == error == -185
    assert error != None  # noqa: E711 - applications write this
    assert error < 0
    assert (again.str(), again.fatal(), again.retriable(), again.txn_requires_abort()) == ("late", True, True, True)
    assert repr(error) == 'KafkaError{FATAL,code=_TIMED_OUT,val=-185,str="late"}'
    exception = pickle.loads(pickle.dumps(ours.KafkaException(error)))
    assert exception.args[0] == error


def test_unknown_error_code_has_a_name() -> None:
    assert repr(ours.KafkaError(999)) == repr(theirs.KafkaError(999))


def test_constants_are_those_of_the_extension_module() -> None:
    real = {name: value for name, value in vars(cimpl).items() if isinstance(value, int)}
    assert real
    assert {name: getattr(constants, name) for name in real} == real


@pytest.mark.parametrize("arguments", [("t",), ("t", 1), ("t", 1, 5), ("t", 1, -2, "m", 3)])
def test_partitions_print_as_in_confluent_kafka(arguments: tuple[Any, ...]) -> None:
    assert repr(ours.TopicPartition(*arguments)) == repr(theirs.TopicPartition(*arguments))


def test_partitions_are_equal_by_topic_and_number() -> None:
    one, other = ours.TopicPartition("t", 1, 5), ours.TopicPartition("t", 1, 6)
    assert one == other
    assert hash(one) == hash(other)
    assert sorted([ours.TopicPartition("b"), one, ours.TopicPartition("a")])[0].topic == "a"
    with pytest.raises(TypeError):
        ours.TopicPartition(None)  # type: ignore[arg-type]


def test_messages_survive_pickling() -> None:
    arguments: dict[str, Any] = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "key": b"k",
        "value": b"v",
        "headers": [("a", b"b")],
        "error": ours.KafkaError(3),
        "timestamp": (1, 5),
        "latency": 0.5,
        "leader_epoch": 7,
        "delivery_count": 2,
    }
    message: ours.Message[bytes, bytes] = ours.Message(**arguments)
    again = pickle.loads(pickle.dumps(message))
    assert again == message
    assert (again.latency(), again.delivery_count(), len(again)) == (0.5, 2, 1)
    real = theirs.Message(**{**arguments, "error": None})
    for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "latency", "leader_epoch"):
        assert getattr(message, name)() == getattr(real, name)(), name


def test_empty_message_answers_as_in_confluent_kafka() -> None:
    message: ours.Message[bytes, bytes] = ours.Message()
    real = theirs.Message()
    for name in ("topic", "partition", "offset", "key", "timestamp", "latency", "leader_epoch", "delivery_count"):
        assert getattr(message, name)() == getattr(real, name)(), name
    with pytest.raises(TypeError, match="timestamp must be a tuple"):
        ours.Message(timestamp=5)  # type: ignore[arg-type]


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_partitioners_choose_librdkafkas_partition(key: bytes, partitions: int) -> None:
    assert ours.consistent(key, partitions) == theirs.consistent(key, partitions)
    assert ours.murmur2(key, partitions) == theirs.murmur2(key, partitions)
    assert ours.fnv1a(key, partitions) == theirs.fnv1a(key, partitions)
    assert PARTITIONERS["consistent"](key, partitions) == theirs.consistent(key, partitions)
    if key:
        assert PARTITIONERS["consistent_random"](key, partitions) == theirs.consistent(key, partitions)


def test_consistent_random_chooses_at_random_without_a_key() -> None:
    assert PARTITIONERS["consistent_random"](None, 5) is None
    assert PARTITIONERS["consistent_random"](b"", 5) is None
    assert PARTITIONERS["murmur2_random"](None, 5) is None
    assert PARTITIONERS["random"](b"k", 1) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicAuthorizationError("no"), ours.KafkaError.TOPIC_AUTHORIZATION_FAILED),
        (errors.KafkaTimeoutError("late"), ours.KafkaError._TIMED_OUT),
        (errors.RequestTimedOutError("late"), ours.KafkaError.REQUEST_TIMED_OUT),
        (errors.SaslAuthenticationError("no"), ours.KafkaError._AUTHENTICATION),
        (errors.DisconnectError("gone"), ours.KafkaError._TRANSPORT),
        (errors.RecordTooLargeError("large"), ours.KafkaError.MSG_SIZE_TOO_LARGE),
        (errors.KafkaError("else"), ours.KafkaError._FAIL),
    ],
)
def test_native_errors_have_librdkafkas_codes(error: errors.KafkaError, code: int) -> None:
    assert code_of(error) == code
    assert error_of(error).retriable() == isinstance(error, errors.RetriableError)


def test_versions_are_those_of_the_reference() -> None:
    assert ours.libversion() == theirs.libversion()
    assert str(theirs.version()) == ours.version()
