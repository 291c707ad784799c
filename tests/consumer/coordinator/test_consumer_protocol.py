"""Serialization of subscriptions and assignments; test_assignor_oracle compares the bytes with Java's."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pykclient.consumer.coordinator.classic_rebalance import (
    HIGHEST_VERSION,
    deserialize_assignment,
    deserialize_subscription,
    serialize_assignment,
    serialize_subscription,
)
from pykclient.consumer.partition_assignors import Assignment, Subscription
from pykclient.errors import RemoteProtocolError
from pykclient.types import TopicPartition

topics = st.text(min_size=1, max_size=8)
partitions = st.lists(st.builds(TopicPartition, topics, st.integers(0, 100)), unique=True, max_size=8)
user_data = st.none() | st.binary(max_size=10)
subscriptions = st.builds(
    Subscription,
    st.lists(topics, unique=True, max_size=5),
    user_data,
    partitions,
    st.integers(-1, 1000),
    st.none() | st.text(min_size=1, max_size=5),
)


@given(subscriptions, st.integers(0, HIGHEST_VERSION))
def test_subscriptions_round_trip_in_all_versions(subscription: Subscription, version: int) -> None:
    read = deserialize_subscription(serialize_subscription(subscription, version))
    assert read.topics == sorted(subscription.topics)
    assert read.user_data == subscription.user_data
    assert read.owned_partitions == (sorted(subscription.owned_partitions) if version >= 1 else [])
    assert read.generation_id == (subscription.generation_id if version >= 2 else -1)
    assert read.rack_id == (subscription.rack_id if version >= 3 else None)


@given(partitions, user_data, st.integers(0, HIGHEST_VERSION))
def test_assignments_round_trip_per_version(given_out: list[TopicPartition], data: bytes | None, version: int) -> None:
    read = deserialize_assignment(serialize_assignment(Assignment(given_out, data), version))
    assert sorted(read.partitions) == sorted(given_out)
    assert read.user_data == data


@given(subscriptions)
def test_newer_versions_are_read_as_the_newest_known(subscription: Subscription) -> None:
    encoded = serialize_subscription(subscription)
    newer = (HIGHEST_VERSION + 7).to_bytes(2, "big") + encoded[2:] + b"fields of the future"
    assert deserialize_subscription(newer).topics == sorted(subscription.topics)


@given(st.binary(max_size=60))
def test_random_bytes_raise_protocol_errors_only(data: bytes) -> None:
    for read in (deserialize_subscription, deserialize_assignment):
        try:
            read(data)
        except RemoteProtocolError:
            continue


@given(subscriptions, st.data())
def test_truncated_bytes_are_refused(subscription: Subscription, data: st.DataObject) -> None:
    encoded = serialize_subscription(subscription)
    with pytest.raises(RemoteProtocolError):
        deserialize_subscription(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff"])
def test_malformed_bytes_are_refused(data: bytes) -> None:
    for read in (deserialize_subscription, deserialize_assignment):
        with pytest.raises(RemoteProtocolError):
            read(data)


def test_negative_partitions_are_refused() -> None:
    encoded = serialize_assignment(Assignment([TopicPartition("t", 1)]))
    with pytest.raises(RemoteProtocolError, match="-1"):
        deserialize_assignment(
            encoded.replace(b"\x00\x00\x00\x01\x00\x00\x00\x01", b"\x00\x00\x00\x01\xff\xff\xff\xff")
        )
