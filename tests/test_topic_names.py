"""Valid topic names; no client sends an invalid one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition, topic_names
from pykclient.errors import IllegalArgumentError, InvalidTopicError
from pykclient.testing import EmbeddedCluster
from pykclient.types import ProducerRecord

IMPOSSIBLE = ["caf\udce9", "x" * 40_000, "x" * 250, ".", "..", "a b", "a/b", "a\nb", "é", "a\n"]
NOT_NAMES: list[Any] = [None, 5, 5.0, b"bytes", ["list"], True]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        for topic in ("good", "other"):
            made.create_topic(topic)
        yield made


@pytest.mark.parametrize("name", [*IMPOSSIBLE, ""])
def test_invalid_names_are_refused(name: str) -> None:
    assert not topic_names.is_valid(name)
    with pytest.raises(InvalidTopicError) as caught:
        topic_names.validate(name)
    assert len(str(caught.value)) < 400
    str(caught.value).encode()


@pytest.mark.parametrize("name", ["a", "x" * 249, "...", "A.b_c-9", "__consumer_offsets"])
def test_valid_names_are_accepted(name: str) -> None:
    topic_names.validate(name)
    assert topic_names.is_valid(name)


@pytest.mark.parametrize("name", NOT_NAMES)
def test_other_types_are_refused(name: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=f"a topic is a str, not {type(name).__name__}"):
        topic_names.validate(name)


@pytest.mark.parametrize("name", [*IMPOSSIBLE, ""])
def test_producer_refuses_invalid_names_and_continues(cluster: EmbeddedCluster, name: str) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=20_000) as producer:
        heard: list[Any] = []
        future = producer.send(name, b"v", on_delivery=lambda error, _: heard.append(error))
        assert isinstance(future.exception, InvalidTopicError)
        assert heard == [future.exception]
        assert isinstance(producer.send(ProducerRecord(name, b"v")).exception, InvalidTopicError)
        with pytest.raises(InvalidTopicError):
            producer.send_batch(name, [b"v"]).get(0)
        with pytest.raises(InvalidTopicError):
            producer.partitions_for(name)
        assert producer.send("good", b"v").get(20).topic == "good"
        assert producer.send("other", b"v").get(20).topic == "other"


@pytest.mark.parametrize("name", NOT_NAMES)
def test_producer_refuses_topics_of_other_types(cluster: EmbeddedCluster, name: Any) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=20_000) as producer:
        for call in (
            lambda: producer.send(name, b"v"),
            lambda: producer.send_batch(name, [b"v"]),
            lambda: producer.partitions_for(name),
        ):
            with pytest.raises(IllegalArgumentError, match="a topic is a str"):
                call()
        producer.send("good", b"v").get(20)


def calls_of(consumer: KafkaConsumer[Any, Any], name: Any) -> list[Callable[[], object]]:
    tp = TopicPartition(name, 0)
    return [
        lambda: consumer.subscribe([name]),
        lambda: consumer.subscribe(["good", name]),
        lambda: consumer.assign([tp]),
        lambda: consumer.assign([(name, 0)]),  # type: ignore[list-item]
        lambda: consumer.seek(tp, 0),
        lambda: consumer.seek_to_beginning(tp),
        lambda: consumer.seek_to_end(tp),
        lambda: consumer.position(tp),
        lambda: consumer.pause(tp),
        lambda: consumer.resume(tp),
        lambda: consumer.highwater(tp),
        lambda: consumer.current_lag(tp),
        lambda: consumer.commit({tp: 1}),
        lambda: consumer.commit_async({tp: 1}),
        lambda: consumer.committed(tp),
        lambda: consumer.committed([tp]),
        lambda: consumer.offsets_for_times({tp: 1}),
        lambda: consumer.beginning_offsets([tp]),
        lambda: consumer.end_offsets([tp]),
        lambda: consumer.partitions_for(name),
        lambda: consumer.partitions_for_topic(name),
        lambda: consumer.list_topics(topics=[name]),
    ]


@pytest.mark.parametrize("name", [*IMPOSSIBLE, "", None, 5, b"bytes"])
def test_consumer_refuses_invalid_names_and_continues(cluster: EmbeddedCluster, name: Any) -> None:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="names") as consumer:
        expected = InvalidTopicError if isinstance(name, str) and name else IllegalArgumentError
        for call in calls_of(consumer, name):
            with pytest.raises(expected):
                call()
        assert consumer.partitions_for_topic("good") == {0}
        assert consumer.end_offsets([TopicPartition("other", 0)]).keys() == {TopicPartition("other", 0)}
        consumer.assign([TopicPartition("other", 0)])
        assert consumer.position(TopicPartition("other", 0)) >= 0
