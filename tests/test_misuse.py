"""Calls that mean something else: the errors say what to write instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pykclient import ConsumerRecord, KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, IllegalArgumentError, KafkaError
from pykclient.testing import EmbeddedCluster

TP = TopicPartition("t", 0)
RECORD: Any = ConsumerRecord("t", 0, None, 7, 0, 0, None, b"v", ())


@pytest.fixture
def consumer(pykclient_cluster: EmbeddedCluster) -> Iterator[KafkaConsumer[Any, Any]]:
    pykclient_cluster.create_topic("t")
    with KafkaConsumer[Any, Any](bootstrap_servers=pykclient_cluster.bootstrap_servers, group_id="g") as made:
        made.assign([TP])
        yield made


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: KafkaProducer("host:9092"),  # type: ignore[call-overload]
            "settings are a mapping or keyword arguments, not str; for an address write bootstrap_servers='host:9092'",
        ),
        (
            lambda: KafkaProducer(["a:9092", "b:9092"]),  # type: ignore[call-overload]
            "settings are a mapping or keyword arguments, not str; for an address write "
            "bootstrap_servers='a:9092,b:9092'",
        ),
        (
            lambda: KafkaProducer(5),  # type: ignore[call-overload]
            "settings are a mapping or keyword arguments, not int",
        ),
        (
            lambda: KafkaConsumer("host:9092"),
            "'host:9092' is an address, but KafkaConsumer's positional arguments are topics; write "
            "bootstrap_servers='host:9092'",
        ),
        (
            lambda: KafkaConsumer(["t", "u"]),  # type: ignore[call-overload]
            "KafkaConsumer takes its topics one by one, not as a list: write KafkaConsumer(*topics) or "
            "subscribe(topics)",
        ),
    ],
)
def test_constructors_refuse_wrong_arguments_with_advice(make: Callable[[], object], said: str) -> None:
    with pytest.raises((ConfigError, IllegalArgumentError)) as caught:
        make()
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda consumer: consumer.commit(RECORD),
            "offsets are committed by partition, not by record: write commit({TopicPartition(record.topic, "
            "record.partition): record.offset + 1})",
        ),
        (lambda consumer: consumer.commit_async(RECORD), "offsets are committed by partition, not by record"),
        (
            lambda consumer: consumer.commit([TP]),
            "offsets to commit are a dict such as {TopicPartition('topic', 0)",
        ),
        (lambda consumer: consumer.commit(True), "not bool"),
        (lambda consumer: consumer.assign("t"), "it must be a list of TopicPartition: write ['t']"),
        (
            lambda consumer: consumer.assign(["t"]),
            "partitions[0] is 't'; it must be a TopicPartition: write",
        ),
        (lambda consumer: consumer.assign(TP), "write [TopicPartition(topic='t', partition=0)]"),
        (lambda consumer: consumer.assign(5), "partitions is 5; it must be a list of TopicPartition"),
        (lambda consumer: consumer.seek(RECORD, 5), "write TopicPartition(record.topic, record.partition)"),
        (lambda consumer: consumer.seek("t", 5), "write TopicPartition('t', 0) for the topic's first partition"),
        (lambda consumer: consumer.seek(TP, "5"), "an offset is an integer, not '5'"),
        (lambda consumer: consumer.seek(TP, 2.0), "an offset is an integer, not 2.0"),
        (
            lambda consumer: consumer.position([TP]),
            "must be a TopicPartition, not several of them",
        ),
        (lambda consumer: consumer.committed(5), "partitions is 5; it must be a list of TopicPartition"),
        (lambda consumer: consumer.pause("t"), "write TopicPartition('t', 0) for the topic's first partition"),
        (lambda consumer: consumer.seek_to_end(RECORD), "write TopicPartition(record.topic, record.partition)"),
        (lambda consumer: consumer.subscribe("t"), "topics must be a list of names, not the string 't'; write ['t']"),
        (lambda consumer: consumer.subscribe(5), "topics must be a list of names, not 5"),
        (lambda consumer: consumer.offsets_for_times([TP]), "times are a dict such as {TopicPartition('topic', 0):"),
        (lambda consumer: consumer.offsets_for_times({TP: float("nan")}), "must be milliseconds since the epoch"),
        (lambda consumer: consumer.offsets_for_times({TP: "now"}), "must be milliseconds since the epoch"),
        (
            lambda consumer: consumer.end_offsets("t"),
            "it must be a list of TopicPartition: write ['t']",
        ),
        (lambda consumer: consumer.poll("1"), "timeout_ms is '1'; it must be a number of milliseconds from 0 on"),
        (lambda consumer: consumer.poll(None), "poll() takes a number of milliseconds, not None"),
    ],
)
def test_consumer_methods_refuse_wrong_arguments(consumer: Any, call: Callable[[Any], object], said: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        call(consumer)
    assert said in str(caught.value)


def test_seconds_instead_of_milliseconds_warn(consumer: KafkaConsumer[Any, Any]) -> None:
    said = r"timeouts are in milliseconds: 1\.0 is 0\.001 s; if seconds were meant, write 1000"
    with pytest.warns(RuntimeWarning, match=said) as caught:
        consumer.poll(1.0)
    assert caught[0].filename == __file__
    consumer.poll(0.0)
    consumer.poll(1)
    consumer.poll(50.5)


def test_integers_of_other_classes_are_accepted(consumer: KafkaConsumer[Any, Any]) -> None:
    consumer.seek(TP, np.int64(3))  # type: ignore[arg-type]
    assert consumer.position(TP) == 3
    assert type(consumer.position(TopicPartition(TP.topic, np.int64(TP.partition)))) is int  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="a number from 0 on"):
        consumer.position(TopicPartition(TP.topic, True))
    consumer.commit({TP: np.int32(2)})  # type: ignore[dict-item]
    assert consumer.committed(TP) == 2
    assert consumer.offsets_for_times({TP: time.time() * 1000}) == {TP: None}  # type: ignore[dict-item]
    assert consumer.offsets_for_times({TP: np.int64(5)}) == {TP: None}  # type: ignore[dict-item]


def test_none_means_no_topics(consumer: KafkaConsumer[Any, Any]) -> None:
    consumer.unsubscribe()
    consumer.subscribe(None, pattern="t.*")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "name", "said"),
    [
        (ConsumerConfig, "linger_ms", "it is a producer's key"),
        (ConsumerConfig, "partitioner", "it is a producer's key"),
        (ProducerConfig, "group.id", "it is a consumer's key"),
        (ProducerConfig, "servers", "did you mean 'bootstrap_servers'?"),
        (ProducerConfig, "linger", "did you mean 'linger_ms'?"),
        (ProducerConfig, "lingr.ms", "did you mean 'linger.ms'?"),
        (ConsumerConfig, "group", "docs/configuration.md lists all"),
        (ConsumerConfig, "group_ids", "did you mean 'group_id'?"),
        (ProducerConfig, "foo", "docs/configuration.md lists all"),
        (ProducerConfig, "name", "docs/configuration.md lists all"),
        (ProducerConfig, "timeout", "docs/configuration.md lists all"),
        (ProducerConfig, "transactional_ids", "did you mean 'transactional_id'?"),
    ],
)
def test_unknown_keys_are_refused(config: type[ProducerConfig | ConsumerConfig], name: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config({name: "x"})
    assert said in str(caught.value)


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig])
def test_hints_name_only_accepted_keys(config: type[ProducerConfig | ConsumerConfig]) -> None:
    definition = config.DEFINITION
    for key in definition.keys.values():
        for name in (key.name + "s", key.name[:-1], key.name.partition(".")[2], key.name.partition(".")[0]):
            try:
                definition.canonical(name)
            except ConfigError as error:
                _, found, hint = str(error).partition("did you mean '")
                if found:
                    assert definition.keys[definition.canonical(hint.removesuffix("'?"))].unsupported is None


#: The keys that programs for confluent-kafka set most; all but the last of each client are Kafka's as well.
CONFLUENT: list[tuple[type[ProducerConfig | ConsumerConfig], dict[str, Any], str]] = [
    (ProducerConfig, {"bootstrap.servers": "a:9092"}, ""),
    (ProducerConfig, {"client.id": "x"}, ""),
    (ProducerConfig, {"acks": "all"}, ""),
    (ProducerConfig, {"linger.ms": 5}, ""),
    (ProducerConfig, {"batch.size": 100_000}, ""),
    (ProducerConfig, {"compression.type": "lz4"}, ""),
    (ProducerConfig, {"enable.idempotence": True}, ""),
    (ProducerConfig, {"security.protocol": "plaintext"}, ""),
    (ProducerConfig, {"partitioner": "consistent_random"}, ""),
    (ProducerConfig, {"message.max.bytes": 1000}, "Kafka's is 'max.request.size'"),
    (ProducerConfig, {"queue.buffering.max.messages": 100}, "buffer.memory"),
    (ProducerConfig, {"error_cb": print}, "calls raise their errors"),
    (ProducerConfig, {"security.protocol": "SASL_SSL"}, ""),
    (ProducerConfig, {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"}, ""),
    (ConsumerConfig, {"group.id": "g"}, ""),
    (ConsumerConfig, {"auto.offset.reset": "beginning"}, ""),
    (ConsumerConfig, {"auto.offset.reset": "end"}, ""),
    (ConsumerConfig, {"auto.offset.reset": "error"}, ""),
    (ConsumerConfig, {"group.id": "g", "enable.auto.commit": "true"}, ""),
    (ConsumerConfig, {"session.timeout.ms": 10_000}, ""),
    (ConsumerConfig, {"max.poll.interval.ms": 300_000}, ""),
    (ConsumerConfig, {"partition.assignment.strategy": "roundrobin"}, ""),
    (ConsumerConfig, {"enable.auto.offset.store": False}, "commit the offsets of your choice"),
    (ConsumerConfig, {"enable.partition.eof": True}, "end_offsets()"),
    (ConsumerConfig, {"on_commit": print}, "commit_async()"),
    (ConsumerConfig, {"partition.assignment.strategy": "cooperative-sticky"}, ""),
]


@pytest.mark.parametrize(("config", "settings", "said"), CONFLUENT)
def test_settings_of_confluent_kafka_are_accepted_or_refused_with_advice(
    config: type[ProducerConfig | ConsumerConfig], settings: dict[str, Any], said: str
) -> None:
    if not said:
        config(settings)
        return
    with pytest.raises(KafkaError) as caught:
        config(settings)
    assert said in str(caught.value)
