from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

from pykclient import errors
from pykclient.errors import BrokerError, KafkaError
from pykclient.types import TopicPartition
from tests.support.java import run_java

ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, KafkaError)]
CODED = {code: cls for code in range(-1, 200) if (cls := errors._BY_CODE.get(code)) is not None}

#: Internal classes of kafka-python, which have no counterpart.
NO_COUNTERPART = {"QuotaViolationError", "TooManyInFlightRequests", "UnknownBrokerIdError"}


@pytest.mark.parametrize("cls", ALL)
def test_every_error_survives_pickling(cls: type[KafkaError]) -> None:
    error = cls("what happened")
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert copy.args == error.args
    assert copy.__dict__ == error.__dict__


def test_attributes_survive_pickling() -> None:
    partition = TopicPartition("orders", 3)
    copy = pickle.loads(pickle.dumps(errors.RecordDeserializationError("bad", partition, 17)))
    assert (copy.topic_partition, copy.offset) == (partition, 17)
    assert pickle.loads(pickle.dumps(errors.ConfigError("bad", key="linger.ms"))).key == "linger.ms"


@pytest.mark.parametrize("cls", CODED.values())
def test_broker_errors_have_a_sentence_as_default_text(cls: type[BrokerError]) -> None:
    text = str(cls())
    assert text.endswith(".")
    assert " " in text, "a sentence, not a name"
    assert str(cls("told by the broker")) == "told by the broker"


@pytest.mark.parametrize("cls", ALL)
def test_error_flags_agree_with_base_classes(cls: type[KafkaError]) -> None:
    assert cls.retriable == issubclass(cls, errors.RetriableError)
    assert cls.invalid_metadata == issubclass(cls, errors.InvalidMetadataError)


def test_for_code_returns_the_error_of_a_code() -> None:
    assert errors.for_code(0) is None
    known = errors.for_code(6)
    assert isinstance(known, errors.NotLeaderOrFollowerError)
    assert (known.code, known.errno, known.error_name) == (6, 6, "NOT_LEADER_OR_FOLLOWER")
    assert str(errors.for_code(6, "from the broker")) == "from the broker"


def test_unknown_code_keeps_its_number() -> None:
    error = errors.for_code(4711)
    assert isinstance(error, errors.UnknownCodeError)
    assert error.code == 4711
    assert "4711" in str(error)
    assert errors.UnknownCodeError.code == -1
    copy = pickle.loads(pickle.dumps(error))
    assert copy.code == 4711


def test_error_names_of_kafka_python_exist() -> None:
    theirs = pytest.importorskip("kafka.errors", reason="kafka-python tells its names")
    names = {
        name
        for name, cls in inspect.getmembers(theirs, inspect.isclass)
        if issubclass(cls, theirs.KafkaError) and cls.__module__ == theirs.__name__
    }
    assert {name for name in names if not hasattr(errors, name)} == NO_COUNTERPART
    for alias, name in errors._ALIASES.items():
        assert getattr(errors, alias) is getattr(errors, name)
    with pytest.raises(AttributeError):
        _ = errors.NoSuchError


@pytest.mark.java
def test_errors_equal_javas() -> None:
    """Errors have Java's codes, names, and the base classes that decide how a client reacts."""
    families = {
        "RetriableException": errors.RetriableError,
        "RefreshRetriableException": errors.RefreshRetriableError,
        "InvalidMetadataException": errors.InvalidMetadataError,
        "ApplicationRecoverableException": errors.ApplicationRecoverableError,
        "AuthorizationException": errors.AuthorizationError,
        "AuthenticationException": errors.AuthenticationError,
        "InvalidOffsetException": errors.InvalidOffsetError,
        "OutOfOrderSequenceException": errors.OutOfOrderSequenceError,
        "TimeoutException": errors.KafkaTimeoutError,
    }
    seen = set()
    for line in run_java(Path(__file__).with_name("ErrorsOracle.java")).decode().splitlines():
        code, name, *ancestors = line.split("\t")
        seen.add(int(code))
        cls = CODED[int(code)]
        assert cls.error_name == name
        mine = {family for family, root in families.items() if issubclass(cls, root)}
        assert mine == families.keys() & set(ancestors), name
    assert seen == CODED.keys()
