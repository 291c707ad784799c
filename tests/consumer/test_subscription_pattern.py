"""Patterns that the brokers match."""

from __future__ import annotations

import re
import uuid

import pytest

from pykclient import KafkaConsumer, SubscriptionPattern
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.errors import IllegalArgumentError, IllegalStateError, InvalidGroupIdError
from pykclient.log_context import LogContext


@pytest.mark.parametrize(
    "pattern",
    ["orders-.*", r"a\.b[+?]+", "(?i)x|y", r"[(?=]\d{2,3}", "(?:a)(b)*?", r"\\1", "(?P<name>a)", r"\p{Greek}", "[]?+]"],
)
def test_re2_patterns_are_accepted(pattern: str) -> None:
    assert SubscriptionPattern(pattern).pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("a(?=b)", "lookahead"),
        ("a(?!b)", "lookahead"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "lookbehind"),
        (r"(a)\1", "backreference"),
        ("(?P<n>a)(?P=n)", "backreference"),
        ("(a)?(?(1)b)", "condition"),
        ("(?>a)", "atomic"),
        ("a*+", "possessive"),
        ("a{1,2}+", "possessive"),
        ("a(?#note)", "comment"),
        ("(?x)a b", "flag"),
        (r"a\Z", r"\\Z"),
    ],
)
def test_python_only_patterns_are_refused(pattern: str, what: str) -> None:
    with pytest.raises(IllegalArgumentError, match=rf"{what}.*re\.compile"):
        SubscriptionPattern(pattern)


@pytest.mark.parametrize("pattern", ["", None, re.compile("a")])
def test_values_other_than_patterns_are_refused(pattern: object) -> None:
    with pytest.raises(IllegalArgumentError, match="needs a regular expression"):
        SubscriptionPattern(pattern)  # type: ignore[arg-type]


def test_pattern_with_a_lone_surrogate_is_refused() -> None:
    """A request with half of a surrogate pair cannot be encoded, and the heartbeat would be tried again and again."""
    with pytest.raises(IllegalArgumentError, match=r"'x\\ud800' cannot be sent"):
        SubscriptionPattern("x\ud800")


@pytest.mark.parametrize("pattern", [SubscriptionPattern("a.*"), re.compile("a.*")])
def test_pattern_passed_as_topics_is_refused(pattern: object) -> None:
    with (
        KafkaConsumer[bytes, bytes](bootstrap_servers="127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(IllegalArgumentError, match=r"subscribe\(pattern=\.\.\.\)"),
    ):
        consumer.subscribe(pattern)  # type: ignore[arg-type]


def test_equal_patterns_have_equal_hashes() -> None:
    assert SubscriptionPattern("a") == SubscriptionPattern("a") != SubscriptionPattern("b")
    assert len({SubscriptionPattern("a"), SubscriptionPattern("a")}) == 1


def test_classic_protocol_refuses_subscription_patterns() -> None:
    with KafkaConsumer(bootstrap_servers="localhost:1", group_id="g") as consumer:
        with pytest.raises(IllegalArgumentError, match=r"group\.protocol=consumer"):
            consumer.subscribe(pattern=SubscriptionPattern("a"))
        assert consumer.subscription() is None
    with KafkaConsumer(bootstrap_servers="localhost:1") as consumer, pytest.raises(InvalidGroupIdError):
        consumer.subscribe(pattern=SubscriptionPattern("a"))


def test_pattern_excludes_other_subscriptions() -> None:
    with KafkaConsumer("a", bootstrap_servers="localhost:1", group_id="g", group_protocol="consumer") as consumer:
        with pytest.raises(IllegalStateError, match="exclude each other"):
            consumer.subscribe(pattern=SubscriptionPattern("a"))
        consumer.unsubscribe()
        consumer.subscribe(pattern=SubscriptionPattern("a"))
        with pytest.raises(IllegalStateError, match="exclude each other"):
            consumer.subscribe(["a"])


def test_only_assigned_topics_are_in_the_metadata() -> None:
    config = ConsumerConfig({"bootstrap.servers": "localhost:1"})
    subscriptions = SubscriptionState(LogContext(), AutoOffsetResetStrategy.EARLIEST)
    metadata = ConsumerMetadata(config, subscriptions, LogContext())
    subscriptions.subscribe_broker_pattern(SubscriptionPattern("a"))
    assert metadata.new_metadata_request_builder().request.topics == []
    mine, other = uuid.uuid4(), uuid.uuid4()
    assert subscriptions.set_assigned_topic_ids([mine])
    assert [topic.topic_id for topic in metadata.new_metadata_request_builder().request.topics or ()] == [mine]
    assert metadata.retain_topic_id("x", mine, False, 0)
    assert not metadata.retain_topic_id("y", other, False, 0)
    assert not subscriptions.set_assigned_topic_ids([])
    subscriptions.unsubscribe()
    assert subscriptions.broker_pattern() is None
