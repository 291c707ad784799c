"""One-time lookups of topic metadata (Java: TopicMetadataRequestManagerTest)."""

from __future__ import annotations

import random

import pytest

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, RequestFuture, UnsentRequest
from pykclient.consumer.consumer_metadata import TopicMetadataRequestManager
from pykclient.errors import (
    DisconnectError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from tests.consumer.harness import TOPIC, Harness
from tests.consumer.responses import metadata_response
from tests.consumer.unsent import message, respond


class Topics:
    """A manager, with a time of its own."""

    def __init__(self) -> None:
        self.manager = TopicMetadataRequestManager(Harness().network, 100, 1000, random.Random(1))
        self.now_ms = 50_000
        self.wait_ms = 0

    def poll(self, after_ms: int = 0) -> list[UnsentRequest]:
        self.now_ms += after_ms
        result = self.manager.poll(self.now_ms)
        self.wait_ms = result.wait_ms
        return list(result.requests)

    def request(self, after_ms: int = 0) -> UnsentRequest:
        [request] = self.poll(after_ms)
        return request


@pytest.fixture
def topics() -> Topics:
    return Topics()


def test_idle_manager_sends_no_request(topics: Topics) -> None:
    assert topics.manager.poll(0) is NOTHING


def test_all_topics_are_described(topics: Topics) -> None:
    future = topics.manager.describe_topics(None, 1000)
    request = topics.request()
    assert request.node is None
    assert message(request).topics is None
    respond(request, metadata_response({"a": 2, "b": 1}, brokers=2))
    assert {name: len(topic.partitions) for name, topic in future.value.items()} == {"a": 2, "b": 1}
    info = future.value["a"].partitions[1]
    assert (info.topic, info.partition, info.leader and info.leader.id) == ("a", 1, 1)
    assert [node.id for node in info.replicas] == [0, 1]
    assert topics.poll() == []
    assert topics.manager.poll(topics.now_ms) is NOTHING


def test_one_request_asks_for_several_topics(topics: Topics) -> None:
    future = topics.manager.describe_topics(["a", "x"], 1000)
    request = topics.request()
    assert [topic.name for topic in message(request).topics or ()] == ["a", "x"]
    assert not message(request).allow_auto_topic_creation
    respond(request, metadata_response({"a": 2}, errors={"x": errors.UnknownTopicOrPartitionError.code}))
    assert list(future.value) == ["a"]


def test_empty_lookup_sends_no_request(topics: Topics) -> None:
    assert topics.manager.describe_topics([], 1000).value == {}
    assert topics.manager.poll(0) is NOTHING


def test_lookup_may_create_the_topic(topics: Topics) -> None:
    topics.manager.describe_topics([TOPIC], 1000, allow_auto_topic_creation=True)
    assert message(topics.request()).allow_auto_topic_creation


def test_unknown_topic_is_omitted(topics: Topics) -> None:
    future = topics.manager.describe_topics(["x"], 1000)
    respond(topics.request(), metadata_response({}, errors={"x": errors.UnknownTopicOrPartitionError.code}))
    assert future.value == {}


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (errors.InvalidTopicError.code, InvalidTopicError),
        (errors.TopicAuthorizationError.code, TopicAuthorizationError),
        (errors.UnknownServerError.code, KafkaError),
    ],
)
def test_non_retriable_topic_errors_fail_the_lookup(topics: Topics, code: int, raised: type[Exception]) -> None:
    future = topics.manager.describe_topics(["x"], 1000)
    respond(topics.request(), metadata_response({}, errors={"x": code}))
    assert isinstance(future.exception, raised)
    assert "x" in str(future.exception)
    assert topics.poll(500) == []


def test_non_retriable_request_error_fails_the_lookup(topics: Topics) -> None:
    future = topics.manager.describe_topics(["x"], 1000)
    topics.request().future.raise_error(UnsupportedVersionError("too old"))
    assert isinstance(future.exception, UnsupportedVersionError)
    assert topics.poll(500) == []


def test_retries_back_off(topics: Topics) -> None:
    future = topics.manager.describe_topics([TOPIC], 5000)
    respond(topics.request(), metadata_response({}, errors={TOPIC: errors.LeaderNotAvailableError.code}))
    assert topics.poll() == []
    assert 80 <= topics.wait_ms <= 120
    assert topics.poll(topics.wait_ms - 1) == []
    assert topics.wait_ms == 1
    topics.request(1).future.raise_error(DisconnectError("gone"))
    assert topics.poll() == []
    assert 160 <= topics.wait_ms <= 240
    respond(topics.request(topics.wait_ms), metadata_response({TOPIC: 2}))
    assert len(future.value[TOPIC].partitions) == 2


@pytest.mark.parametrize("responded", [False, True], ids=["no response", "only errors"])
def test_lookup_times_out_with_the_last_error(topics: Topics, responded: bool) -> None:
    future = topics.manager.describe_topics([TOPIC], 50)
    request = topics.request()
    assert topics.wait_ms == 50
    if responded:
        request.future.raise_error(DisconnectError("gone"))
    assert topics.poll(49) == []
    assert topics.wait_ms == 1
    assert not future.is_done
    assert topics.poll(1) == []
    assert topics.wait_ms == FOREVER_MS
    why = "gone" if responded else "no broker answered"
    assert str(future.exception) == f"no metadata of topic 'test' within 50 ms: {why}"
    assert isinstance(future.exception, KafkaTimeoutError)
    if not responded:
        respond(request, metadata_response({TOPIC: 2}))  # too late, and ignored
    assert topics.manager.poll(topics.now_ms) is NOTHING


def test_timeout_names_the_topics(topics: Topics) -> None:
    lookups = [topics.manager.describe_topics(names, 0) for names in (None, ["b", "a"])]
    assert len(topics.poll()) == 2
    topics.poll()
    texts = [str(lookup.exception) for lookup in lookups]
    assert texts[0].startswith("no metadata of all topics within 0 ms")
    assert texts[1].startswith("no metadata of topics a, b within 0 ms")


def test_interrupted_call_ends_its_lookup(topics: Topics) -> None:
    """Its lookup ends, and what still arrives for it is ignored."""
    future = topics.manager.describe_topics([TOPIC], 1000)
    request = topics.request()
    future.give_up(KafkaError("interrupted"))
    assert topics.poll(10) == []
    request.future.raise_error(UnsupportedVersionError("too old"))
    forgotten: RequestFuture[object] = topics.manager.describe_topics([TOPIC], 1000)  # type: ignore[assignment]
    topics.request()
    topics.manager.reset()
    assert topics.manager.poll(topics.now_ms + 2000) is NOTHING
    assert not forgotten.is_done
