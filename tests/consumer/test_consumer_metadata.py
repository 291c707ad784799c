"""The topics for which a consumer requests metadata (Java: ConsumerMetadataTest)."""

from __future__ import annotations

import re
from typing import Any

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.log_context import LogContext
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.types import TopicPartition
from tests.consumer.responses import metadata_response


def make(**config: Any) -> tuple[SubscriptionState, ConsumerMetadata]:
    subscriptions = SubscriptionState(LogContext(), AutoOffsetResetStrategy.EARLIEST)
    consumer_config = ConsumerConfig({"bootstrap.servers": "h:1", **config})
    return subscriptions, ConsumerMetadata(consumer_config, subscriptions, LogContext())


def update(metadata: ConsumerMetadata, response: MetadataResponse) -> set[str]:
    metadata.update_with_current_request_version(response, False, 1000)
    return set(metadata.fetch().topics)


def test_metadata_request_has_topics_of_all_members() -> None:
    subscriptions, metadata = make()
    subscriptions.subscribe({"a", "b"})
    subscriptions.group_subscribe({"c"})
    request = metadata.new_metadata_request_builder()
    assert sorted(request.topics) == ["a", "b", "c"]
    assert request.request.allow_auto_topic_creation
    assert update(metadata, metadata_response({"a": 1, "c": 1, "x": 1})) == {"a", "c"}


def test_auto_topic_creation_can_be_disabled() -> None:
    subscriptions, metadata = make(**{"allow.auto.create.topics": False})
    subscriptions.subscribe({"a"})
    assert not metadata.new_metadata_request_builder().request.allow_auto_topic_creation


def test_metadata_request_has_assigned_topics() -> None:
    subscriptions, metadata = make()
    subscriptions.assign_from_user([TopicPartition("a", 0)])
    assert metadata.new_metadata_request_builder().topics == ["a"]


def test_pattern_requests_all_topics_and_keeps_matches() -> None:
    subscriptions, metadata = make()
    subscriptions.subscribe_pattern(re.compile("[_a].*"))
    assert metadata.new_metadata_request_builder().request.topics is None
    response = metadata_response({"a1": 1, "b1": 1, "__consumer_offsets": 1})
    for topic in response.topics:
        topic.is_internal = topic.name == "__consumer_offsets"
    assert update(metadata, response) == {"a1"}
    subscriptions, metadata = make(**{"exclude.internal.topics": False})
    subscriptions.subscribe_pattern(re.compile("[_a].*"))
    assert update(metadata, response) == {"a1", "__consumer_offsets"}


def test_transient_topics_are_requested_until_cleared() -> None:
    subscriptions, metadata = make()
    subscriptions.subscribe({"a"})
    update(metadata, metadata_response({"a": 1}))
    assert not metadata.update_requested
    metadata.add_transient_topics(["a"])
    assert not metadata.update_requested
    metadata.add_transient_topics(["t"])
    assert metadata.update_requested
    assert metadata.new_metadata_request_builder().topics == ["a", "t"]
    assert update(metadata, metadata_response({"a": 1, "t": 1})) == {"a", "t"}
    metadata.clear_transient_topics()
    assert update(metadata, metadata_response({"a": 1, "t": 1})) == {"a"}
