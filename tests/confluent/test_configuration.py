"""The configuration is checked as librdkafka checks it: the same properties, defaults and errors."""

from __future__ import annotations

from typing import Any

import confluent_kafka as theirs
import pytest

import pykclient.confluent as ours
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.confluent.configuration import CONSUMER, PRODUCER, Configuration

#: Nothing listens there, and librdkafka does not log that.
_NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}

_REFUSED_PRODUCERS: list[dict[Any, Any]] = [
    {"foo": "1"},
    {"linger.ms": "abc"},
    {"linger.ms": -1},
    {"linger.ms": "-1.5"},
    {"linger.ms": ""},
    {"linger.ms": True},
    {"linger.ms": "inf"},
    {"linger.ms": 900001},
    {"retries": ""},
    {"retries": "x5"},
    {"enable.idempotence": ""},
    {"compression.type": ""},
    {"message.timeout.ms": 1, "linger.ms": 1.5},
    {"acks": "7000"},
    {"compression.type": "x"},
    {"acks": "all", "enable.idempotence": True, "max.in.flight": 10},
    {"message.timeout.ms": 1, "linger.ms": 5},
    {"enable.idempotence": "maybe"},
    {"security.protocol": "xx"},
    {"partitioner": "foo"},
    {"ssl_ca": "x"},
    {"auto.offset.reset": "foo"},
    {"debug": "foo"},
    {"transactional.id": "x", "enable.idempotence": False},
    {"acks": 1, "enable.idempotence": True},
    {"on_delivery": 3},
    {"dr_cb": "x"},
    {"error_cb": 1},
    {"stats_cb": 1},
    {"throttle_cb": 1},
    {"default.topic.config": {"acks": "9999"}},
    {5: "x"},
]

_REFUSED_CONSUMERS: list[dict[str, Any]] = [
    {"auto.offset.reset": "foo"},
    {"max.poll.interval.ms": 1000},
    {"group.protocol": "consumer", "session.timeout.ms": 6000},
    {"partition.assignment.strategy": "foo"},
    {"partition.assignment.strategy": "range,cooperative-sticky"},
    {"on_commit": 3},
    {"isolation.level": "x"},
]


def _failure(make: Any, config: dict[Any, Any]) -> tuple[str, str]:
    try:
        make(config)
    except Exception as error:  # noqa: BLE001 - the type is part of the comparison
        return type(error).__name__, str(error)
    pytest.fail(f"{config} was accepted")


@pytest.mark.parametrize("config", _REFUSED_PRODUCERS, ids=str)
def test_producer_refuses_a_configuration_with_librdkafkas_error(config: dict[Any, Any]) -> None:
    assert _failure(ours.Producer, {**_NOWHERE, **config}) == _failure(theirs.Producer, {**_NOWHERE, **config})


@pytest.mark.parametrize("config", _REFUSED_CONSUMERS, ids=str)
def test_consumer_refuses_a_configuration_with_librdkafkas_error(config: dict[Any, Any]) -> None:
    given = {**_NOWHERE, "group.id": "g", **config}
    assert _failure(ours.Consumer, given) == _failure(theirs.Consumer, given)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("linger.ms", 0.5, 0.5),
        ("linger.ms", "0.5", 0.5),
        ("linger.ms", 5.0, 5.0),
        ("queue.buffering.max.ms", "1e2", 100.0),
        ("linger.ms", " .5 ", 0.5),
        ("linger.ms", "0x10", 16.0),
        ("linger.ms", "5ms", 5.0),
        ("retries", "5.0", 5),
        ("retries", "0x10", 16),
        ("retries", "010", 8),
        ("retries", "09", 0),
        ("retries", "+7 times", 7),
        ("acks", "ALL", -1),
    ],
)
def test_numbers_are_read_as_librdkafka_reads_them(name: str, value: object, expected: float) -> None:
    config = {**_NOWHERE, name: value}
    theirs.Producer(config)
    ours.Producer(config).close()
    assert Configuration(PRODUCER, (config,), {}).value(name) == expected


@pytest.mark.parametrize(("given", "linger_ms"), [(0.5, 1), ("0.0", 0), (1.5, 2), (5.0, 5)])
def test_linger_below_a_millisecond_is_rounded_up(given: object, linger_ms: int) -> None:
    assert Configuration(PRODUCER, ({"linger.ms": given},), {}).native()["linger.ms"] == linger_ms


def test_message_timeout_may_be_just_above_linger() -> None:
    config = {**_NOWHERE, "message.timeout.ms": 1, "linger.ms": 0.5}
    theirs.Producer(config)
    ours.Producer(config).close()


def test_consumer_needs_a_group_id() -> None:
    assert _failure(ours.Consumer, dict(_NOWHERE)) == _failure(theirs.Consumer, dict(_NOWHERE))
    clients: list[Any] = [ours.Producer, ours.Consumer, theirs.Producer, theirs.Consumer]
    for make in clients:
        with pytest.raises(TypeError):
            make()
        with pytest.raises(TypeError):
            make("x")


def test_unsupported_property_is_refused_with_the_reason_and_its_default_is_accepted() -> None:
    with pytest.raises(ours.KafkaException, match=r"ssl.curves.list.*ssl module"):
        Configuration(PRODUCER, ({"ssl.curves.list": "x"},), {})
    Configuration(PRODUCER, ({"ssl.engine.id": "dynamic"},), {})


def test_property_without_effect_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        Configuration(PRODUCER, ({"socket.max.fails": 3},), {})
    assert len([record for record in caplog.records if "socket.max.fails" in record.message]) == 1


def test_values_are_strings_numbers_and_none() -> None:
    configuration = Configuration(
        PRODUCER, ({"linger.ms": "7", "acks": None, "retries": None, "enable.idempotence": "TRUE"},), {}
    )
    native = configuration.native()
    assert (native["linger.ms"], native["acks"], native["enable.idempotence"]) == (7, -1, True)


def test_keyword_arguments_win_over_the_dict() -> None:
    assert Configuration(PRODUCER, ({"linger.ms": 7},), {"linger.ms": 8}).number("linger.ms") == 8


def test_defaults_are_librdkafkas() -> None:
    producer = ProducerConfig(Configuration(PRODUCER, ({},), {"client.id": "x"}).native())
    assert producer["enable.idempotence"] is False
    assert producer["delivery.timeout.ms"] == 300_000
    assert producer["batch.size"] == 1_000_000
    assert producer["max.in.flight.requests.per.connection"] == 1_000_000
    consumer = ConsumerConfig(Configuration(CONSUMER, ({"group.id": "g"},), {}).native())
    assert consumer["isolation.level"] == "read_committed"
    assert consumer["allow.auto.create.topics"] is False
    assert consumer["partition.assignment.strategy"] == ["range", "roundrobin"]
    assert consumer["auto.offset.reset"] == "latest"


@pytest.mark.parametrize("timeout_ms", [1, 2, 5, 10, 100, 1000, 30_000, 300_000, 0])
def test_any_message_timeout_makes_a_valid_configuration(timeout_ms: int) -> None:
    settings = ProducerConfig(Configuration(PRODUCER, ({"message.timeout.ms": timeout_ms},), {}).native())
    assert settings["delivery.timeout.ms"] == (timeout_ms or 2**31 - 1)


def test_topic_configuration_may_be_nested() -> None:
    given = {"group.id": "g", "default.topic.config": {"auto.offset.reset": "smallest"}}
    assert Configuration(CONSUMER, (given,), {}).native()["auto.offset.reset"] == "earliest"


def test_addresses_lose_their_protocol_and_gain_a_port() -> None:
    native = Configuration(PRODUCER, ({"metadata.broker.list": "PLAINTEXT://a:1, b ,[::1]:3"},), {}).native()
    assert native["bootstrap.servers"] == ["a:1", "b:9092", "[::1]:3"]
