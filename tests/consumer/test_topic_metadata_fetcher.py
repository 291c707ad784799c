"""One-time lookups of topic metadata (Java: TopicMetadataFetcherTest)."""

from __future__ import annotations

import random

import pytest

from pykclient import errors
from pykclient.consumer.topic_metadata_fetcher import TopicMetadataFetcher
from pykclient.errors import InvalidTopicError, KafkaError, KafkaTimeoutError, TopicAuthorizationError
from pykclient.log_context import LogContext
from pykclient.protocol.messages.metadata import MetadataRequest
from tests.consumer.harness import TOPIC, Harness
from tests.consumer.responses import metadata_response


@pytest.fixture
def harness() -> Harness:
    harness = Harness(brokers=2)
    harness.update_metadata()
    return harness


@pytest.fixture
def fetcher(harness: Harness) -> TopicMetadataFetcher:
    return TopicMetadataFetcher(LogContext(), harness.network, 100, 1000, random.Random(1))


def test_all_topics(harness: Harness, fetcher: TopicMetadataFetcher) -> None:
    harness.client.prepare_response(metadata_response({"a": 2, "b": 1}, brokers=2), lambda r: r.topics is None)
    topics = fetcher.describe_topics(None, harness.timer())
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"a": 2, "b": 1}
    info = topics["a"].partitions[1]
    assert (info.topic, info.partition, info.leader) == ("a", 1, harness.node(1))
    assert info.replicas == (harness.node(0), harness.node(1))


def test_one_topic(harness: Harness, fetcher: TopicMetadataFetcher) -> None:
    harness.client.prepare_response(metadata_response({TOPIC: 2}), lambda r: not r.allow_auto_topic_creation)
    partitions = fetcher.get_topic_metadata(TOPIC, False, harness.timer())
    assert partitions is not None
    assert len(partitions) == 2


def test_several_topics_in_one_request(harness: Harness, fetcher: TopicMetadataFetcher) -> None:
    response = metadata_response({"a": 2}, errors={"x": errors.UnknownTopicOrPartitionError.code})

    def asks_for_both(request: MetadataRequest) -> bool:
        return [topic.name for topic in request.topics or ()] == ["a", "x"] and not request.allow_auto_topic_creation

    harness.client.prepare_response(response, asks_for_both)
    assert list(fetcher.describe_topics(["a", "x"], harness.timer())) == ["a"]
    assert fetcher.describe_topics([], harness.timer()) == {}


def test_unknown_topic(harness: Harness, fetcher: TopicMetadataFetcher) -> None:
    response = metadata_response({}, errors={"x": errors.UnknownTopicOrPartitionError.code})
    harness.client.prepare_response(response)
    assert fetcher.get_topic_metadata("x", False, harness.timer()) is None


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (errors.InvalidTopicError.code, InvalidTopicError),
        (errors.TopicAuthorizationError.code, TopicAuthorizationError),
        (errors.UnknownServerError.code, KafkaError),
    ],
)
def test_fatal_errors(harness: Harness, fetcher: TopicMetadataFetcher, code: int, raised: type[Exception]) -> None:
    harness.client.prepare_response(metadata_response({}, errors={"x": code}))
    with pytest.raises(raised, match="x"):
        fetcher.get_topic_metadata("x", False, harness.timer())


def test_passing_errors_and_disconnections(harness: Harness, fetcher: TopicMetadataFetcher) -> None:
    passing = metadata_response({}, errors={TOPIC: errors.LeaderNotAvailableError.code})
    harness.client.prepare_response(passing)
    harness.client.prepare_response(None, disconnected=True)
    harness.client.prepare_response(metadata_response({TOPIC: 2}))
    partitions = fetcher.get_topic_metadata(TOPIC, False, harness.timer(5000))
    assert partitions is not None
    assert len(partitions) == 2


def test_time_out(harness: Harness, fetcher: TopicMetadataFetcher) -> None:
    harness.clock.auto_tick_ms = 10
    with pytest.raises(KafkaTimeoutError, match=r"topic 'test' within 50 ms"):
        fetcher.get_topic_metadata(TOPIC, False, harness.timer(50))
