"""SASL on real Kafka: every mechanism carries records both ways, and failures say what is wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    SaslAuthenticationError,
)
from tests.kafka.secure_kafka import PASSWORD, SESSION_MS, USER, SecureKafka

RECORDS = 1000
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def settings(kafka: SecureKafka, mechanism: str, listener: str = "SASL_PLAINTEXT", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap(listener),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        **more,
    }


def produce(config: Mapping[str, Any], topic: str, count: int = RECORDS) -> list[bytes]:
    values = [b"value-%d" % number for number in range(count)]
    with KafkaProducer(config) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush(30)
    return values


def consume(config: Mapping[str, Any], topic: str, count: int = RECORDS) -> list[bytes]:
    values: list[bytes] = []
    with KafkaConsumer(topic, auto_offset_reset="earliest", **{k.replace(".", "_"): v for k, v in config.items()}) as c:
        end = monotonic() + 60
        while len(values) < count and monotonic() < end:
            for records in c.poll(1000).values():
                values += [record.value or b"" for record in records]
    return values


def consume_with_librdkafka(config: Mapping[str, Any], topic: str, count: int = RECORDS) -> list[bytes]:
    from confluent_kafka import Consumer

    consumer = Consumer({**config, "group.id": f"{topic}-librdkafka", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values: list[bytes] = []
        end = monotonic() + 60
        while len(values) < count and monotonic() < end:
            for message in consumer.consume(count, 1):
                value = message.value()
                assert message.error() is None
                assert isinstance(value, bytes)
                values.append(value)
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_both_ways(secure_kafka: SecureKafka, topic: str, mechanism: str) -> None:
    config = settings(secure_kafka, mechanism)
    values = produce(config, topic)
    assert consume(config, topic) == values
    assert consume_with_librdkafka(config, topic) == values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_javas_login_line(secure_kafka: SecureKafka, topic: str, mechanism: str) -> None:
    config = settings(secure_kafka, mechanism)
    del config["sasl.username"], config["sasl.password"]
    config["sasl.jaas.config"] = f'{JAAS[mechanism]} required username="{USER}" password="{PASSWORD}";'
    assert consume(config, topic, len(produce(config, topic, 10))) == [b"value-%d" % number for number in range(10)]


async def _send_from_a_loop(config: Mapping[str, Any], topic: str) -> int:
    async with AIOKafkaProducer(config) as producer:
        sent = [await producer.send(topic, b"value-%d" % number) for number in range(RECORDS)]
        return len([await future for future in sent])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_producer_in_an_event_loop(secure_kafka: SecureKafka, topic: str, mechanism: str) -> None:
    import asyncio

    config = settings(secure_kafka, mechanism)
    assert asyncio.run(_send_from_a_loop(config, topic)) == RECORDS
    assert len(consume(config, topic)) == RECORDS


# --- failures --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def within_five_seconds() -> Iterator[None]:
    start = monotonic()
    yield
    assert monotonic() - start < 5


REFUSED = [
    ("PLAIN", {"sasl.password": "hush-wrong"}, SaslAuthenticationError, "check the user name and the password"),
    ("PLAIN", {"sasl.username": "nobody"}, SaslAuthenticationError, "check the user name and the password"),
    ("SCRAM-SHA-256", {"sasl.password": "hush-wrong"}, SaslAuthenticationError, "check the user name, the password"),
    ("SCRAM-SHA-512", {"sasl.username": "nobody"}, SaslAuthenticationError, "check the user name, the password"),
]


@pytest.mark.parametrize(("mechanism", "change", "kind", "remedy"), REFUSED)
def test_refused_credentials_reach_every_caller(
    secure_kafka: SecureKafka,
    topic: str,
    mechanism: str,
    change: dict[str, str],
    kind: type[AuthenticationError],
    remedy: str,
) -> None:
    config = settings(secure_kafka, mechanism, **change)
    errors: list[BaseException] = []
    with KafkaProducer(config) as producer:
        for call in (lambda: producer.send(topic, b"v").get(20), lambda: producer.partitions_for(topic)):
            with within_five_seconds(), pytest.raises(kind) as caught:
                call()
            errors.append(caught.value)
    with KafkaConsumer(topic, **{k.replace(".", "_"): v for k, v in config.items()}, group_id=topic) as consumer:
        with within_five_seconds(), pytest.raises(kind) as caught:
            consumer.poll(20_000)
        errors.append(caught.value)
        with within_five_seconds(), pytest.raises(kind) as caught:
            consumer.end_offsets([TopicPartition(topic, 0)])
        errors.append(caught.value)
    for error in errors:
        text = str(error)
        assert secure_kafka.bootstrap("SASL_PLAINTEXT") in text
        assert mechanism in text
        assert remedy in text
        assert "hush" not in text
        assert PASSWORD not in text


def test_a_listener_without_sasl_says_so(secure_kafka: SecureKafka, topic: str) -> None:
    config = settings(secure_kafka, "PLAIN", "PLAINTEXT")
    with (
        KafkaProducer(config) as producer,
        within_five_seconds(),
        pytest.raises(IllegalSaslStateError, match=r"the listener does not use SASL; set security\.protocol"),
    ):
        producer.send(topic, b"v").get(20)


# --- re-authentication -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_steady_traffic_over_five_sessions(secure_kafka: SecureKafka, topic: str, mechanism: str) -> None:
    """No record fails, is lost or comes twice, and all over one connection to the broker."""
    config = settings(secure_kafka, mechanism, "SHORT_SESSIONS")
    sent = 0
    received: list[bytes] = []
    keywords = {k.replace(".", "_"): v for k, v in config.items()}
    with KafkaProducer(config) as producer, KafkaConsumer(topic, auto_offset_reset="earliest", **keywords) as consumer:
        end = monotonic() + 6 * SESSION_MS / 1000
        futures = []
        while monotonic() < end:
            for _ in range(20):
                futures.append(producer.send(topic, b"%d" % sent))
                sent += 1
            for records in consumer.poll(10).values():
                received += [record.value or b"" for record in records]
        for future in futures:
            assert future.get(30).offset >= 0
        end = monotonic() + 30
        while len(received) < sent and monotonic() < end:
            for records in consumer.poll(1000).values():
                received += [record.value or b"" for record in records]
        assert received == [b"%d" % number for number in range(sent)]
        for client in (producer, consumer):
            totals = [
                values["successful-reauthentication-total"]
                for group, values in client.metrics().items()
                if "successful-reauthentication-total" in values
            ]
            assert max(totals) >= 5, totals
            closed = [v["connection-close-total"] for v in client.metrics().values() if "connection-close-total" in v]
            assert sum(closed) <= 1, "the bootstrap connection alone"
