"""The producer and the consumer in confluent-kafka's shape, on the embedded cluster."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import Any

import pytest

from pykclient.confluent import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    DeserializingConsumer,
    IllegalStateException,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    SerializingProducer,
    ShareConsumer,
    ThrottleEvent,
    TopicPartition,
    consistent,
)
from pykclient.confluent.admin import AdminClient
from pykclient.confluent.error import KeySerializationError, ValueDeserializationError
from pykclient.confluent.serialization import IntegerDeserializer, IntegerSerializer, StringSerializer
from pykclient.errors import KafkaTimeoutError
from pykclient.system_time import monotonic_ms
from pykclient.testing import EmbeddedCluster
from pykclient.testing.security import Security
from tests.security.test_sasl_server_authenticator import unsecured_token

_PATIENCE_S = 30.0
_NOWHERE = "127.0.0.1:1"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("t", 2)
        yield made


@contextmanager
def _producer(cluster: EmbeddedCluster, **settings: Any) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as producer:
        yield producer


@contextmanager
def _consumer(cluster: EmbeddedCluster, **settings: Any) -> Iterator[Consumer]:
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer({**conf, **settings}) as consumer:
        yield consumer


def _fill(cluster: EmbeddedCluster, count: int, partition: int = 0) -> None:
    with _producer(cluster) as producer:
        for number in range(count):
            producer.produce("t", str(number), partition=partition)


def _until(consumer: Consumer, done: Callable[[], bool]) -> None:
    deadline = monotonic() + _PATIENCE_S
    while not done():
        assert monotonic() < deadline
        consumer.poll(0.1)


def _read(consumer: Consumer, count: int) -> list[Message[bytes, bytes]]:
    found: list[Message[bytes, bytes]] = []
    deadline = monotonic() + _PATIENCE_S
    while len(found) < count:
        assert monotonic() < deadline
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


# --- producer --------------------------------------------------------------------------------------------------------


def test_delivery_callbacks_run_only_inside_poll_and_flush(cluster: EmbeddedCluster) -> None:
    reports: list[tuple[Any, Any, int]] = []
    with _producer(cluster) as producer:
        producer.produce(
            "t", "v", "k", headers={"h": "x"}, callback=lambda e, m: reports.append((e, m, threading.get_ident()))
        )
        producer.inner().flush(_PATIENCE_S)
        assert not reports
        assert len(producer) == 1
        assert producer.flush(_PATIENCE_S) == 0
        assert len(producer) == 0
    ((error, message, thread),) = reports
    assert error is None
    assert thread == threading.get_ident()
    assert (message.topic(), message.value(), message.key(), message.offset()) == ("t", b"v", b"k", 0)
    assert message.partition() == consistent(b"k", 2)
    assert message.timestamp()[0] == 1
    assert message.latency() >= 0


def test_exception_of_a_callback_is_raised_by_poll(cluster: EmbeddedCluster) -> None:
    def fail(_error: object, _message: object) -> None:
        raise LookupError("mine")

    with _producer(cluster) as producer:
        producer.produce("t", "v", on_delivery=fail)
        with pytest.raises(LookupError, match="mine"):
            producer.flush(_PATIENCE_S)


def test_full_queue_raises_buffer_error_until_reports_are_served(cluster: EmbeddedCluster) -> None:
    with _producer(cluster, **{"queue.buffering.max.messages": 2}) as producer:
        producer.produce("t", "1")
        producer.produce("t", "2")
        with pytest.raises(BufferError, match="Local: Queue full"):
            producer.produce("t", "3")
        assert len(producer) == 2
        producer.flush(_PATIENCE_S)
        producer.produce("t", "3")


def test_unreachable_cluster_times_messages_out_and_reports_errors() -> None:
    seen: list[KafkaError] = []
    reports: list[tuple[Any, Any]] = []
    producer = Producer({"bootstrap.servers": _NOWHERE, "message.timeout.ms": 200, "error_cb": seen.append})
    started = monotonic()
    producer.produce("t", "v", callback=lambda error, message: reports.append((error, message.offset())))
    assert monotonic() - started < 5
    assert producer.flush(_PATIENCE_S) == 0
    deadline = monotonic() + _PATIENCE_S
    while KafkaError._ALL_BROKERS_DOWN not in seen and monotonic() < deadline:
        producer.poll(0.1)
    producer.close()
    assert reports == [(KafkaError._MSG_TIMED_OUT, None)]
    assert KafkaError._TRANSPORT in seen
    assert KafkaError._ALL_BROKERS_DOWN in seen


def test_purge_fails_messages_without_a_topic() -> None:
    reports: list[Any] = []
    producer = Producer({"bootstrap.servers": _NOWHERE})
    producer.produce("t", "v", callback=lambda error, _: reports.append(error))
    producer.purge()
    assert producer.flush(_PATIENCE_S) == 0
    producer.close()
    assert reports == [KafkaError._PURGE_QUEUE]


def test_purge_fails_messages_in_batches_and_in_flight(cluster: EmbeddedCluster) -> None:
    reports: list[Any] = []
    with _producer(cluster, **{"linger.ms": 60_000}) as producer:
        producer.produce("t", "1", partition=0)
        assert producer.flush(_PATIENCE_S) == 0
        held = cluster.faults.hold("Produce")
        producer.poll(0)
        for value in ("2", "3"):
            producer.produce("t", value, partition=0, callback=lambda error, _: reports.append(error))
            if value == "2":
                with pytest.raises(KafkaTimeoutError):
                    producer.inner().flush(0.01)
                cluster.wait_for(lambda: held.hits)
        producer.purge(in_queue=True, in_flight=False)
        producer.poll(0)
        assert reports == [KafkaError._PURGE_QUEUE]
        producer.purge(in_queue=False)
        producer.poll(0)
        assert reports == [KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT]
        assert len(producer) == 0
        cluster.faults.clear()
        producer.produce("t", "4", partition=0)
    with _consumer(cluster) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert [message.value() for message in _read(consumer, 3)] == [b"1", b"2", b"4"]


def test_purge_without_blocking_leaves_a_producer_that_works(cluster: EmbeddedCluster) -> None:
    with _producer(cluster) as producer:
        producer.purge(blocking=False)
        producer.purge()
        producer.produce("t", "1")
        assert producer.flush(_PATIENCE_S) == 0


def test_throttled_responses_call_throttle_cb() -> None:
    events: list[ThrottleEvent] = []
    with EmbeddedCluster(config={"quota.producer.default": 1}) as cluster:
        cluster.create_topic("t", 1)
        with _producer(cluster, throttle_cb=events.append) as producer:
            deadline = monotonic() + _PATIENCE_S
            while not events:
                assert monotonic() < deadline
                producer.produce("t", bytes(1000))
                producer.poll(0.1)
            producer.purge()
        assert events[0].broker_name == f"{cluster.bootstrap_servers}/1"
    assert events[0].throttle_time > 0
    assert events[0].broker_id == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_new_credentials_serve_the_next_connections(mechanism: str) -> None:
    security = Security("SASL_PLAINTEXT", mechanisms=[mechanism], users={"new": "right"})
    with EmbeddedCluster(security=security) as cluster:
        cluster.create_topic("t", 1)
        errors: list[KafkaError] = []
        wrong = {**cluster.client_config(), "sasl.username": "old", "sasl.password": "wrong", "error_cb": errors.append}
        with Producer(wrong) as producer:
            delivered: list[Any] = []
            producer.produce("t", "1", callback=lambda error, _: delivered.append(error))
            deadline = monotonic() + _PATIENCE_S
            while not errors:
                assert monotonic() < deadline
                producer.poll(0.1)
            producer.set_sasl_credentials("new", "right")
            assert producer.flush(_PATIENCE_S) == 0
            assert delivered == [None]
            assert "t" in producer.list_topics(timeout=_PATIENCE_S).topics


def test_token_callback_is_called_without_poll_and_over_tls() -> None:
    def oauth_cb(config: str) -> tuple[str, float]:
        configs.append(config)
        return unsecured_token(exp=time() + 60), time() + 60

    configs: list[str] = []
    with EmbeddedCluster(security=Security("SASL_SSL", mechanisms=["OAUTHBEARER"])) as cluster:
        cluster.create_topic("t", 1)
        given = {name: value for name, value in cluster.client_config().items() if not name.startswith("sasl.")}
        conf = {**given, "sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.config": "x=y", "oauth_cb": oauth_cb}
        with Producer(conf) as producer:
            producer.produce("t", "1")
            assert producer.flush(_PATIENCE_S) == 0
        for client in (AdminClient(conf), ShareConsumer({**conf, "group.id": "g"})):
            with client:
                assert "t" in client.list_topics(timeout=_PATIENCE_S).topics
    assert set(configs) == {"x=y"}


def test_constructor_gets_the_first_token_or_fails() -> None:
    def fail(_config: str) -> tuple[str, float]:
        raise LookupError("no token")

    tokens: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        tokens.append(config)
        return "token", time() + 60

    conf = {"bootstrap.servers": _NOWHERE, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}
    with Consumer({**conf, "group.id": "g", "oauth_cb": oauth_cb}):
        assert len(tokens) == 1
    for make in (
        lambda: Producer({**conf, "oauth_cb": fail}),
        lambda: Consumer({**conf, "group.id": "g", "oauth_cb": fail}),
    ):
        with pytest.raises(KafkaException, match="no token"):
            make()


def test_consumer_gets_throttle_events_and_new_credentials() -> None:
    security = Security("SASL_PLAINTEXT", mechanisms=["PLAIN"], users={"new": "right"})
    events: list[ThrottleEvent] = []
    with EmbeddedCluster(security=security, config={"quota.consumer.default": 1}) as cluster:
        cluster.create_topic("t", 1)
        with Producer(cluster.client_config()) as producer:
            producer.produce("t", bytes(1000))
        conf = {
            **cluster.client_config(),
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "throttle_cb": events.append,
        }
        with Consumer({**conf, "sasl.password": "wrong"}) as consumer:
            consumer.set_sasl_credentials("new", "right")
            consumer.subscribe(["t"])
            _until(consumer, lambda: bool(events))
    assert events[0].throttle_time > 0


def test_flush_returns_the_messages_that_are_left() -> None:
    producer = Producer({"bootstrap.servers": _NOWHERE})
    producer.produce("t", "v")
    assert producer.flush(0.1) == 1
    producer.purge()
    producer.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("t", 5), TypeError),
        (("t", bytearray(b"x")), TypeError),
        ((None,), TypeError),
        (("a\0b",), ValueError),
    ],
)
def test_wrong_arguments_of_produce_are_refused(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with Producer({"bootstrap.servers": _NOWHERE}) as producer:
        with pytest.raises(error):
            producer.produce(*arguments)
        for headers in ({"a": 5}, [("a",)], 5):
            with pytest.raises(TypeError):
                producer.produce("t", headers=headers)
        with pytest.raises(KafkaException) as raised:
            producer.produce("t", "x" * 2_000_000)
        assert raised.value.args[0] == KafkaError.MSG_SIZE_TOO_LARGE
        assert len(producer) == 0


def test_closed_producer_raises_runtime_error() -> None:
    producer = Producer({"bootstrap.servers": _NOWHERE})
    assert producer.close() is True
    for call in (lambda: producer.produce("t"), lambda: producer.poll(0), producer.flush, producer.list_topics):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            call()
    assert len(producer) == 0
    assert producer


def test_transaction_commits_messages_and_offsets(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 3)
    with _consumer(cluster) as consumer, _producer(cluster, **{"transactional.id": "x"}) as producer:
        consumer.subscribe(["t"])
        _read(consumer, 3)
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
        producer.produce("t", "out", partition=1)
        producer.send_offsets_to_transaction(
            [TopicPartition("t", 0, 3)], consumer.consumer_group_metadata(), _PATIENCE_S
        )
        producer.commit_transaction(_PATIENCE_S)
        assert consumer.committed([TopicPartition("t", 0)], _PATIENCE_S)[0].offset == 3
        assert _read(consumer, 1)[0].value() == b"out"


def test_commit_waits_for_messages_to_topics_that_do_not_exist_yet() -> None:
    delivered: list[Any] = []
    with (
        EmbeddedCluster(config={"auto.create.topics.enable": "false"}) as cluster,
        _producer(cluster, **{"transactional.id": "x"}) as producer,
    ):
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
        producer.produce("later", "v", callback=lambda error, _: delivered.append(error))
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(0.2)
        assert raised.value.args[0] == KafkaError._TIMED_OUT
        assert raised.value.args[0].retriable()
        cluster.create_topic("later", 1)
        producer.commit_transaction(_PATIENCE_S)
        assert producer.flush(_PATIENCE_S) == 0
    assert delivered == [None]


def test_transactional_call_without_an_id_is_not_configured() -> None:
    with Producer({"bootstrap.servers": _NOWHERE}) as producer:
        with pytest.raises(KafkaException) as raised:
            producer.begin_transaction()
        assert raised.value.args[0] == KafkaError._NOT_CONFIGURED


def test_batch_reports_each_refused_message(cluster: EmbeddedCluster) -> None:
    with _producer(cluster, **{"queue.buffering.max.messages": 2}) as producer:
        messages: list[dict[str, Any]] = [{"value": "1"}, {"value": b"2", "key": "k"}, {"value": "3"}]
        assert producer.produce_batch("t", messages) == 2
        assert messages[2]["_error"] == KafkaError._QUEUE_FULL


# --- consumer --------------------------------------------------------------------------------------------------------


def test_rebalance_callbacks_may_change_the_offsets(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 5)
    calls: list[tuple[str, list[int]]] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("assign", [each.partition for each in partitions]))
        for each in partitions:
            each.offset = 3 if each.partition == 0 else OFFSET_END
        consumer.assign(partitions)

    with _consumer(cluster) as consumer:
        consumer.subscribe(["^t$"], on_assign, lambda _, gone: calls.append(("revoke", [e.partition for e in gone])))
        assert [message.offset() for message in _read(consumer, 2)] == [3, 4]
        assert {each.partition for each in consumer.assignment()} == {0, 1}
    assert calls == [("assign", [0, 1]), ("revoke", [0, 1])]


def test_exception_of_a_rebalance_callback_is_raised_by_poll(cluster: EmbeddedCluster) -> None:
    def fail(_consumer: object, _partitions: object) -> None:
        raise LookupError("mine")

    with _consumer(cluster) as consumer:
        consumer.subscribe(["t"], on_assign=fail)
        with pytest.raises(LookupError, match="mine"):
            _until(consumer, lambda: False)


def test_end_of_each_partition_is_reported_once(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 3)
    with _consumer(cluster, **{"enable.partition.eof": True}) as consumer:
        consumer.subscribe(["t"])
        events: list[tuple[int | None, int | None, bool]] = []
        deadline = monotonic() + _PATIENCE_S
        while len(events) < 5 and monotonic() < deadline:
            for message in consumer.consume(10, 0.5):
                error = message.error()
                assert error is None or error == KafkaError._PARTITION_EOF
                events.append((message.partition(), message.offset(), error is not None))
        assert [event for event in events if event[0] == 0] == [
            (0, 0, False),
            (0, 1, False),
            (0, 2, False),
            (0, 3, True),
        ]
        assert (1, 0, True) in events
        assert consumer.poll(0.3) is None


def test_close_commits_what_was_handed_out_and_not_what_was_fetched(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 10)
    commits: list[Any] = []
    with _consumer(cluster, on_commit=lambda error, parts: commits.append((error, parts))) as consumer:
        consumer.subscribe(["t"])
        _read(consumer, 4)
    assert commits[-1] == (None, [TopicPartition("t", 0)])
    with _consumer(cluster) as consumer:
        consumer.subscribe(["t"])
        assert _read(consumer, 1)[0].offset() == 4


def test_stored_offsets_are_what_commit_commits(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 5)
    with _consumer(cluster, **{"enable.auto.offset.store": False, "enable.auto.commit": False}) as consumer:
        with pytest.raises(KafkaException) as raised:
            consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
        assert raised.value.args[0] == KafkaError._UNKNOWN_PARTITION
        consumer.subscribe(["t"])
        messages = _read(consumer, 5)
        with pytest.raises(KafkaException) as raised:
            consumer.commit(asynchronous=False)
        assert raised.value.args[0] == KafkaError._NO_OFFSET
        consumer.store_offsets(messages[1])
        committed = consumer.commit(asynchronous=False)
        assert committed is not None
        assert [each.offset for each in committed] == [2]
        assert consumer.position([TopicPartition("t", 0)])[0].offset == 5


def test_storing_offsets_beside_automatic_storing_is_refused(cluster: EmbeddedCluster) -> None:
    with _consumer(cluster) as consumer:
        with pytest.raises(KafkaException) as raised:
            consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
        assert raised.value.args[0] == KafkaError._INVALID_ARG
        with pytest.raises(ValueError, match="mutually exclusive"):
            consumer.commit(message=Message("t"), offsets=[])
        with pytest.raises(ValueError, match="expected either"):
            consumer.store_offsets()


def test_asynchronous_commit_calls_on_commit_in_a_later_poll(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 2)
    commits: list[Any] = []
    settings = {"enable.auto.commit": False, "on_commit": lambda error, parts: commits.append((error, parts[0].offset))}
    with _consumer(cluster, **settings) as consumer:
        consumer.subscribe(["t"])
        (message,) = _read(consumer, 1)
        assert consumer.commit(message) is None
        assert not commits
        _until(consumer, lambda: bool(commits))
    assert commits == [(None, 1)]


def test_assigned_partitions_start_at_their_offsets(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 5)
    _fill(cluster, 2, partition=1)
    with _consumer(cluster, **{"auto.offset.reset": "latest"}) as consumer:
        consumer.assign([TopicPartition("t", 0, 3)])
        assert [message.offset() for message in _read(consumer, 2)] == [3, 4]
        consumer.incremental_assign([TopicPartition("t", 1, OFFSET_BEGINNING)])
        assert [message.partition() for message in _read(consumer, 2)] == [1, 1]
        with pytest.raises(KafkaException) as raised:
            consumer.incremental_assign([TopicPartition("t", 1)])
        assert raised.value.args[0] == KafkaError._CONFLICT
        consumer.incremental_unassign([TopicPartition("t", 1)])
        assert consumer.assignment() == [TopicPartition("t", 0)]
        consumer.seek(TopicPartition("t", 0, 1))
        assert _read(consumer, 1)[0].offset() == 1
        consumer.unassign()
        assert consumer.assignment() == []


def test_paused_partition_resumes_at_the_next_message(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 5)
    with _consumer(cluster) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert _read(consumer, 1)[0].offset() == 0
        consumer.pause([TopicPartition("t", 0)])
        assert consumer.poll(0.3) is None
        consumer.resume([TopicPartition("t", 0)])
        assert _read(consumer, 1)[0].offset() == 1


def test_offsets_of_a_partition_are_looked_up(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 5)
    with _consumer(cluster) as consumer:
        tp = TopicPartition("t", 0)
        assert consumer.get_watermark_offsets(tp, _PATIENCE_S) == (0, 5)
        assert consumer.committed([tp], _PATIENCE_S)[0].offset == OFFSET_INVALID
        assert consumer.position([tp])[0].offset == OFFSET_INVALID
        assert consumer.offsets_for_times([TopicPartition("t", 0, 2**60)], _PATIENCE_S)[0].offset == OFFSET_END
        assert consumer.offsets_for_times([TopicPartition("t", 0, 0)], _PATIENCE_S)[0].offset == 0
        with pytest.raises(KafkaException) as raised:
            consumer.get_watermark_offsets(TopicPartition("t", 9), _PATIENCE_S)
        assert raised.value.args[0] == KafkaError._UNKNOWN_PARTITION
        metadata = consumer.list_topics(timeout=_PATIENCE_S)
        assert metadata.cluster_id == consumer.cluster_id(_PATIENCE_S)
        assert sorted(metadata.topics["t"].partitions) == [0, 1]


def test_closed_consumer_raises_runtime_error() -> None:
    consumer = Consumer({"bootstrap.servers": _NOWHERE, "group.id": "g"})
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.consume, consumer.assignment, consumer.unsubscribe, consumer.commit):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()


def test_connections_may_be_idle_for_less_than_a_request_takes() -> None:
    conf = {"bootstrap.servers": _NOWHERE, "connections.max.idle.ms": 1000}
    Consumer({**conf, "group.id": "g"}).close()
    Producer(conf).close()


def test_consumer_without_a_subscription_waits_and_returns_none() -> None:
    with Consumer({"bootstrap.servers": _NOWHERE, "group.id": "g"}) as consumer:
        assert consumer.poll(0.05) is None
        assert consumer.consume(5, 0.05) == []
        assert consumer.memberid() is None
        for topics, error in ((["t", ""], KafkaException), ([], KafkaException), ("t", TypeError)):
            with pytest.raises(error):
                consumer.subscribe(topics)  # type: ignore[arg-type]
        for count in (-1, 10**7):
            with pytest.raises(ValueError, match="between 0 and 1000000"):
                consumer.consume(count)


def test_statistics_have_librdkafkas_form(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 5)
    pages: list[dict[str, Any]] = []
    settings = {"stats_cb": lambda text: pages.append(json.loads(text)), "statistics.interval.ms": 100}
    with _consumer(cluster, **settings) as consumer:
        consumer.subscribe(["t"])
        _read(consumer, 5)
        # Pages made while messages were still to be read tell of a lag: take one that is younger.
        read_us = monotonic() * 1_000_000
        _until(consumer, lambda: bool(pages) and pages[-1]["ts"] > read_us)
        page = pages[-1]
        assert page["type"] == "consumer"
        assert page["topics"]["t"]["partitions"]["0"]["consumer_lag_stored"] == 0
        assert page["cgrp"]["state"] == "up"
        assert {broker["state"] for broker in page["brokers"].values()} == {"UP"}
    pages.clear()
    with _producer(cluster, **settings) as producer:
        producer.produce("t", "x")
        deadline = monotonic() + _PATIENCE_S
        while not any(page["txmsgs"] for page in pages):
            assert monotonic() < deadline
            producer.poll(0.1)
        assert pages[-1]["type"] == "producer"


# --- serializers -----------------------------------------------------------------------------------------------------


def test_serializing_clients_convert_keys_and_values(cluster: EmbeddedCluster) -> None:
    conf = {"bootstrap.servers": cluster.bootstrap_servers}
    producer: SerializingProducer[str, int] = SerializingProducer(
        {**conf, "key.serializer": StringSerializer(), "value.serializer": IntegerSerializer()}
    )
    producer.produce("t", "k", 7, partition=0)
    producer.produce("t", "k", 8, partition=0, headers={"a": "b"})
    with pytest.raises(KeySerializationError):
        producer.produce("t", 5)  # type: ignore[arg-type]
    producer.close()
    _fill(cluster, 1)  # no int of four bytes
    consumer: DeserializingConsumer[bytes, int] = DeserializingConsumer(
        {**conf, "group.id": "g", "auto.offset.reset": "earliest", "value.deserializer": IntegerDeserializer()}
    )
    consumer.subscribe(["t"])
    found: list[Any] = []
    with pytest.raises(ValueDeserializationError) as raised:
        _until_found(consumer, found)
    assert found == [(b"k", 7), (b"k", 8)]
    assert raised.value.kafka_message.value() == b"0"
    consumer.close()


def _until_found(consumer: DeserializingConsumer[bytes, int], found: list[Any]) -> None:
    deadline = monotonic() + _PATIENCE_S
    while monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            found.append((message.key(), message.deserialized_value()))


def test_log_records_do_not_end_a_poll() -> None:
    logger = logging.getLogger("application")
    records: list[logging.LogRecord] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Collecting()
    logger.addHandler(handler)
    try:
        with Producer({"bootstrap.servers": _NOWHERE, "client.id": "logs", "logger": logger}) as producer:
            logging.getLogger("pykclient.network").warning("[Producer client_id=logs] something happened")
            assert producer.poll(0) == 0
            assert any("something happened" in record.getMessage() for record in records)
            producer.produce("t", b"x", partition=0)
            producer.purge()
            assert producer.poll(_PATIENCE_S) == 1
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("make", [Producer, Consumer, AdminClient])
def test_dropped_client_leaves_no_handler_with_pykclients_logger(make: Any) -> None:
    before = logging.getLogger("pykclient").handlers[:]
    client = make({"bootstrap.servers": _NOWHERE, "group.id": "g"}, logger=logging.getLogger("application"))
    assert len(logging.getLogger("pykclient").handlers) == len(before) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del client
        gc.collect()
    assert logging.getLogger("pykclient").handlers == before


# --- share consumer ---------------------------------------------------------------------------------------------------


def test_share_consumer_refuses_what_confluent_kafka_refuses() -> None:
    conf = {"bootstrap.servers": _NOWHERE, "group.id": "g"}
    for wrong in ({"on_commit": print}, {"security.protocol": "ssl", "ssl.ca.location": "/nonexistent/ca.pem"}):
        with pytest.raises(ValueError, match=r"on_commit is not supported|Failed to create share consumer"):
            ShareConsumer({**conf, **wrong})
    consumer = ShareConsumer({**conf, "share.acknowledgement.mode": "explicit"})
    with pytest.raises(RuntimeError):
        consumer.__init__(conf)  # type: ignore[misc]
    places: list[tuple[tuple[Any, ...], type[Exception]]] = [
        *((place, TypeError) for place in ((None, 0, 0), ("t", "0", 0), ("t", 0, 1.5))),
        *((place, ValueError) for place in (("", 0, 0), ("t", -1, 0), ("t", 0, -1), ("t", 0, 0, 9))),
    ]
    for place, error in places:
        with pytest.raises(error):
            consumer.acknowledge_offset(*place)
    for names in ([""], ["t", "t"]):
        with pytest.raises(ValueError, match="Failed to set subscription"):
            consumer.subscribe(names)
    consumer.subscribe(["t"])
    consumer.subscribe([])
    assert consumer.subscription() == []
    consumer.close()
    with pytest.raises(IllegalStateException, match="Share consumer closed"):
        consumer.subscribe(["t"])


# --- the application's callbacks, threads, signals and processes ------------------------------------------------------


def test_member_that_polls_too_late_is_told_and_joins_again() -> None:
    with EmbeddedCluster(config={"group.min.session.timeout.ms": 1}) as cluster:
        cluster.create_topic("t", 1)
        settings = {
            "max.poll.interval.ms": 2_000,
            "session.timeout.ms": 2_000,
        }
        with _producer(cluster) as producer, _consumer(cluster, **settings) as consumer:
            producer.produce("t", "1")
            assert producer.flush(_PATIENCE_S) == 0
            consumer.subscribe(["t"])
            _read(consumer, 1)
            cluster.wait_for(lambda: cluster.requests_of("LeaveGroup"))
            cluster.wait_for(lambda: monotonic_ms() > consumer._last_poll_ms + 2_000)  # the end of a poll counts here
            message = consumer.poll(_PATIENCE_S)
            assert message is not None
            error = message.error()
            assert error == KafkaError._MAX_POLL_EXCEEDED
            assert error.str().startswith("Application maximum poll interval (2000ms) exceeded by ")
            assert message.value() == error.str().encode()
            producer.produce("t", "2")
            assert producer.flush(_PATIENCE_S) == 0
            while True:  # what was not committed is read again
                if _read(consumer, 1)[0].value() == b"2":
                    break


def _interrupt(call: Callable[[], object]) -> None:
    """Call, and press Ctrl-C soon."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupted() -> None:  # wherever the signal arrives
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        call()

    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pthread_kill")
def test_ctrl_c_ends_poll_and_flush_and_the_clients_go_on(cluster: EmbeddedCluster) -> None:
    with _producer(cluster) as producer, _consumer(cluster) as consumer:
        consumer.subscribe(["t"])
        _until(consumer, lambda: len(consumer.assignment()) == 2)
        for call in (producer.poll, consumer.poll, lambda: consumer.consume(5, 60)):
            _interrupt(call)
        held = cluster.faults.hold("Produce")
        producer.produce("t", "1")
        _interrupt(producer.flush)
        assert len(producer) == 1
        cluster.wait_for(lambda: held.hits)
        cluster.faults.clear()
        assert producer.flush(_PATIENCE_S) == 0
        assert _read(consumer, 1)[0].value() == b"1"


_FORK = """
import os, sys
import pykclient.confluent as ck
from pykclient.confluent.admin import AdminClient, NewTopic
conf = {{"bootstrap.servers": {address!r}}}
producer = ck.Producer(conf)
consumer = ck.Consumer({{**conf, "group.id": "forked", "auto.offset.reset": "earliest"}})
admin = AdminClient(conf)
admin.create_topics([NewTopic("v")])["v"].result(30)
for _ in range(3):
    producer.produce("t", b"before")
producer.flush()
consumer.subscribe(["t"])
assert consumer.poll(30).value() == b"before"  # the others are at hand
share = ck.ShareConsumer({{**conf, "group.id": "share"}})
producer.produce("t", b"too")
child = os.fork()
if child == 0:
    other = ck.Producer(conf)
    other.produce("t", b"child")
    assert other.flush(30) == 0
    refused = lambda: producer.produce("t", b"refused")
    of_consumer = (lambda: consumer.poll(0), lambda: consumer.consume(9, 0), consumer.assignment, share.subscription)
    for call in (refused, producer.flush, lambda: admin.create_topics([NewTopic("u")]), *of_consumer):
        try:
            call()
        except ck.KafkaException as error:
            print(error.args[0].str(), flush=True)
    for client in (consumer, producer, admin, share):
        client.close()
    os._exit(0)
os.waitpid(child, 0)
assert consumer.poll(30).value() == b"before"
producer.produce("t", b"after")
assert producer.flush(30) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_child_needs_a_producer_of_its_own(cluster: EmbeddedCluster) -> None:
    program = _FORK.format(address=cluster.bootstrap_servers)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("before fork()") == 7, done.stdout
    with _consumer(cluster) as consumer:
        consumer.subscribe(["t"])
        values = sorted(message.value() for message in _read(consumer, 6))
        assert values == [b"after", b"before", b"before", b"before", b"child", b"too"]


def _failing_once() -> Callable[..., None]:
    calls: list[object] = []

    def fail(*_: object) -> None:
        calls.append(_)
        if len(calls) == 1:
            raise LookupError("mine")

    return fail


def test_poll_raises_what_any_callback_raises_and_goes_on(cluster: EmbeddedCluster) -> None:
    for settings in (
        {"stats_cb": _failing_once(), "statistics.interval.ms": 1},
        {"error_cb": _failing_once(), "bootstrap.servers": _NOWHERE},
    ):
        with _producer(cluster, **settings) as producer:
            with pytest.raises(LookupError, match="mine"):
                producer.poll(_PATIENCE_S)
            producer.poll(0)
    _fill(cluster, 1)
    with _consumer(cluster, on_commit=_failing_once()) as consumer:
        consumer.subscribe(["t"])
        consumer.commit(_read(consumer, 1)[0])
        with pytest.raises(LookupError, match="mine"):
            _until(consumer, lambda: False)
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        assert consumer.committed([TopicPartition("t", 0)], _PATIENCE_S)[0].offset == 1


def test_messages_of_a_call_in_which_a_callback_raises_come_with_the_next_call(cluster: EmbeddedCluster) -> None:
    def fail(_text: str) -> None:
        if failing:
            failing.pop()
            raise LookupError("mine")

    _fill(cluster, 3)
    failing: list[int] = []
    with _consumer(cluster, stats_cb=fail, **{"statistics.interval.ms": 1}) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert _read(consumer, 1)[0].value() == b"0"
        taken: list[int] = []
        original = consumer._hand_out

        def hand_out(found: list[Message[bytes, bytes]], wanted: int) -> None:
            original(found, wanted)
            if found and not taken:
                taken.append(len(found))
                failing.append(1)
                consumer.events.put(lambda: fail(""))

        consumer._hand_out = hand_out  # type: ignore[method-assign]
        with pytest.raises(LookupError, match="mine"):
            _until(consumer, lambda: consumer.consume(1000, 1) == [])
        assert taken
        assert [message.value() for message in _read(consumer, 2)] == [b"1", b"2"]


def test_producer_may_be_closed_by_a_delivery_callback(cluster: EmbeddedCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("t", "1", callback=lambda _error, _message: producer.close())
    assert producer.flush(_PATIENCE_S) == 0
    with pytest.raises(RuntimeError, match="Producer has been closed"):
        producer.poll(0)


def test_consumer_closed_by_on_commit_is_closed(cluster: EmbeddedCluster) -> None:
    _fill(cluster, 1)
    closing: list[Consumer] = []
    with _consumer(cluster, on_commit=lambda _error, _partitions: closing[0].close()) as consumer:
        closing.append(consumer)
        consumer.subscribe(["t"])
        consumer.commit(_read(consumer, 1)[0])
        with pytest.raises(RuntimeError, match="Consumer closed"):
            _until(consumer, lambda: False)


def test_consumer_cannot_be_closed_by_on_assign(cluster: EmbeddedCluster) -> None:
    with _consumer(cluster) as consumer:
        consumer.subscribe(["t"], on_assign=lambda consumer, _: consumer.close())
        with pytest.raises(KafkaException, match=r"when poll\(\) has returned"):
            _until(consumer, lambda: False)
        assert len(consumer.assignment()) == 2  # it is still a member


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # the collector may come to them first
@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_clients_in_a_cycle_that_were_not_closed_give_no_warning(cluster: EmbeddedCluster, kind: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    client: Any
    if kind == "producer":
        client = Producer(settings)
    elif kind == "consumer":
        client = Consumer({**settings, "group.id": "g"})
    else:
        client = AdminClient(settings)
    client.list_topics(timeout=_PATIENCE_S)
    cycle: list[Any] = [client]
    cycle.append(cycle)
    del cycle, client
    gc.collect()  # warnings are errors


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_consumer_that_is_dropped_ends_its_thread(cluster: EmbeddedCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "dropped", "heartbeat.interval.ms": 50}
    consumer = Consumer({**settings, "throttle_cb": lambda _event: None})
    consumer.subscribe(["t"])
    deadline = monotonic() + _PATIENCE_S
    while len(consumer.assignment()) < 2:
        assert monotonic() < deadline
        consumer.poll(0.1)
    (thread,) = [each for each in threading.enumerate() if each.name.endswith("dropped")]
    del consumer
    gc.collect()
    thread.join(_PATIENCE_S)
    assert not thread.is_alive()


def test_values_can_be_pickled_and_clients_cannot(cluster: EmbeddedCluster) -> None:
    delivered: list[Message[bytes, bytes]] = []
    with _producer(cluster) as producer, _consumer(cluster) as consumer:
        producer.produce("t", "v", "k", headers={"a": "b"}, callback=lambda _, message: delivered.append(message))
        producer.flush(_PATIENCE_S)
        consumer.subscribe(["t"])
        message = _read(consumer, 1)[0]
        for each in (delivered[0], message):
            copy = pickle.loads(pickle.dumps(each))
            assert (copy, copy.latency(), copy.headers()) == (each, each.latency(), [("a", b"b")])
        for client in (producer, consumer):
            with pytest.raises(TypeError, match=r"cannot (be )?pickle"):
                pickle.dumps(client)
    error = KafkaException(KafkaError(KafkaError._TIMED_OUT, "late", retriable=True))
    assert repr(pickle.loads(pickle.dumps(error)).args[0]) == repr(error.args[0])


# --- the end of the process -------------------------------------------------------------------------------------------

_CLIENTS = """
import pykclient.confluent as ck
from pykclient.confluent.admin import AdminClient
conf = {{"bootstrap.servers": {address!r}}}
producer = ck.Producer(conf)
producer.produce("t", b"x")
consumer = ck.Consumer({{**conf, "group.id": "exit"}})
consumer.subscribe(["t"])
consumer.poll(1)
share_consumer = ck.ShareConsumer({{**conf, "group.id": "exit-shared"}})
share_consumer.subscribe(["t"])
share_consumer.poll(0.1)
admin = AdminClient(conf)
admin.list_topics(timeout=10)
"""
_CYCLE = """
def show():
    return clients

clients = [producer, consumer, share_consumer, admin, show]
"""


@pytest.mark.parametrize("rest", ["", "def show():\n    return producer\n", _CYCLE], ids=["flat", "function", "cycle"])
def test_exit_with_unclosed_clients_prints_nothing(cluster: EmbeddedCluster, rest: str) -> None:
    program = _CLIENTS.format(address=cluster.bootstrap_servers) + rest
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
def test_close_does_not_raise_an_earlier_error_of_a_connection(kind: Any) -> None:
    """Another event waits when the first one raises."""
    told: list[KafkaError] = []

    def raise_it(error: KafkaError) -> None:
        told.append(error)
        raise KafkaException(error)

    consumer = kind({"bootstrap.servers": _NOWHERE, "group.id": "g", "error_cb": raise_it})
    consumer.subscribe(["t"])
    with pytest.raises(KafkaException):
        consumer.poll(_PATIENCE_S)
    consumer.report_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    consumer.close()
    assert len(told) == 1
