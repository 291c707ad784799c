"""Subscriptions without a group."""

from __future__ import annotations

import re

from pykclient.consumer.consumer_metadata import SoleReader
from pykclient.types import TopicPartition
from tests.consumer.harness import TOPIC, TP0, TP1, Harness


def reader(harness: Harness) -> SoleReader:
    return SoleReader(harness.metadata, harness.subscriptions)


def test_all_known_partitions_are_assigned() -> None:
    harness = Harness()
    sole = reader(harness)
    harness.subscriptions.subscribe([TOPIC])
    sole.poll()
    assert harness.subscriptions.assigned_partitions() == set()
    harness.update_metadata()
    sole.poll()
    assert harness.subscriptions.assigned_partitions() == {TP0, TP1}


def test_assignment_is_kept_while_nothing_changes() -> None:
    harness = Harness()
    sole = reader(harness)
    harness.subscriptions.subscribe([TOPIC])
    harness.update_metadata()
    sole.poll()
    before = harness.subscriptions.assignment_id
    sole.poll()
    harness.update_metadata()
    sole.poll()
    assert harness.subscriptions.assignment_id == before


def test_added_partitions_join_and_the_others_keep_their_positions() -> None:
    harness = Harness()
    sole = reader(harness)
    harness.subscriptions.subscribe([TOPIC])
    harness.update_metadata()
    sole.poll()
    harness.seek(TP0, 5)
    harness.update_metadata(partitions={TOPIC: 3})
    sole.poll()
    assert harness.subscriptions.assigned_partitions() == {TP0, TP1, TopicPartition(TOPIC, 2)}
    assert harness.position(TP0) == 5


def test_a_topic_that_is_missing_for_a_moment_keeps_its_positions() -> None:
    harness = Harness()
    sole = reader(harness)
    harness.subscriptions.subscribe([TOPIC])
    harness.update_metadata()
    sole.poll()
    harness.seek(TP0, 5)
    harness.update_metadata(partitions={})
    sole.poll()
    assert harness.position(TP0) == 5


def test_new_subscription_unassigns_other_topics() -> None:
    harness = Harness(partitions={TOPIC: 2, "other": 1})
    sole = reader(harness)
    harness.subscriptions.subscribe([TOPIC])
    harness.update_metadata()
    sole.poll()
    harness.subscriptions.subscribe(["other"])
    harness.update_metadata()
    sole.poll()
    assert harness.subscriptions.assigned_partitions() == {TopicPartition("other", 0)}


def test_pattern_assigns_new_matching_topics() -> None:
    harness = Harness(partitions={TOPIC: 1, "unwanted": 1})
    sole = reader(harness)
    harness.subscriptions.subscribe_pattern(re.compile("test.*"))
    harness.update_metadata()
    sole.poll()
    assert harness.subscriptions.assigned_partitions() == {TP0}
    harness.update_metadata(partitions={TOPIC: 1, "unwanted": 1, "test-2": 1})
    sole.poll()
    assert harness.subscriptions.assigned_partitions() == {TP0, TopicPartition("test-2", 0)}


def test_new_pattern_unassigns_unmatched_topics() -> None:
    """Partitions that the new pattern does not match are dropped even before metadata for it arrives."""
    harness = Harness(partitions={"a1": 1, "ab": 1})
    sole = reader(harness)
    harness.subscriptions.subscribe_pattern(re.compile("a.*"))
    harness.update_metadata()
    sole.poll()
    harness.subscriptions.subscribe_pattern(re.compile(".*b.*"))
    sole.poll()
    assert harness.subscriptions.subscription() == {"ab"}
    assert harness.subscriptions.assigned_partitions() == {TopicPartition("ab", 0)}
    harness.update_metadata(partitions={"a1": 1, "ab": 1, "b1": 1})
    sole.poll()
    assert harness.subscriptions.assigned_partitions() == {TopicPartition("ab", 0), TopicPartition("b1", 0)}


def test_a_topic_of_a_pattern_that_is_missing_for_a_moment_keeps_its_positions() -> None:
    harness = Harness(partitions={TOPIC: 1})
    sole = reader(harness)
    harness.subscriptions.subscribe_pattern(re.compile("test.*"))
    harness.update_metadata()
    sole.poll()
    harness.seek(TP0, 5)
    harness.update_metadata(partitions={})
    sole.poll()
    assert harness.position(TP0) == 5


def test_partitions_assigned_by_hand_are_left_alone() -> None:
    harness = Harness()
    harness.assign(TP0)
    reader(harness).poll()
    assert harness.subscriptions.assigned_partitions() == {TP0}
