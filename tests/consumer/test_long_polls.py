"""Long polls and loops behave like a sequence of short polls while the coordinator is unavailable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import KafkaTimeoutError
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.coordinator.harness import COORDINATOR_NOT_AVAILABLE, committed, find_coordinator
from tests.consumer.fake_broker import FakeCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNSTABLE_OFFSET_COMMIT = 88

Consumer = KafkaConsumer[Any, Any]
Read = Callable[[Consumer, int], list[Any]]


def long_poll(consumer: Consumer, timeout_ms: int) -> list[Any]:
    return [record.value for records in consumer.poll(timeout_ms).values() for record in records]


def short_polls(consumer: Consumer, timeout_ms: int) -> list[Any]:
    clock = consumer._consumer.components.clock
    end_ms = clock.now_ms() + timeout_ms
    while clock.now_ms() < end_ms:
        if values := long_poll(consumer, 20):
            return values
    return []


def loop(consumer: Consumer, timeout_ms: int) -> list[Any]:
    consumer._loop_timeout_ms = timeout_ms
    return [record.value for record in consumer]


READS = pytest.mark.parametrize("read", [long_poll, short_polls, loop])


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({T0: [b"0", b"1"], T1: [b"2"]})


def joined(cluster: FakeCluster, **settings: Any) -> Consumer:
    """Return a member that has read everything."""
    consumer = cluster.consumer("t", group_id="g", enable_auto_commit=False, **settings)
    read: list[Any] = []
    while len(read) < 3:
        read += long_poll(consumer, 1_000)
    return consumer


def lose_coordinator(cluster: FakeCluster, consumer: Consumer) -> None:
    node = cluster.broker.node
    cluster.broker.overrides["FindCoordinatorRequest"] = lambda *_: find_coordinator(node, COORDINATOR_NOT_AVAILABLE)
    coordinator = consumer._consumer.components.coordinator
    assert coordinator is not None
    coordinator.lookup.mark_unknown("lost by the test")
    cluster.broker.received.clear()


@READS
def test_records_are_read_without_a_coordinator(cluster: FakeCluster, read: Read) -> None:
    with joined(cluster) as consumer:
        lose_coordinator(cluster, consumer)
        cluster.broker.logs[T0].append(b"3")
        start_ms = cluster.clock.now_ms()
        assert read(consumer, 5_000) == [b"3"]
        assert read is loop or cluster.clock.now_ms() - start_ms < 1_000


@READS
def test_a_reset_needs_no_coordinator(cluster: FakeCluster, read: Read) -> None:
    """seek_to_beginning takes effect while another partition's committed offset is unavailable."""
    with joined(cluster) as consumer:
        lose_coordinator(cluster, consumer)
        subscriptions = consumer._consumer.components.subscriptions
        subscriptions.assign_from_subscribed([T0])
        subscriptions.assign_from_subscribed([T0, T1])
        assert subscriptions.initializing_partitions() == {T1}
        consumer.seek_to_beginning(T0)
        assert read(consumer, 5_000) == [b"0", b"1"]


@READS
def test_looking_for_the_coordinator_backs_off(cluster: FakeCluster, read: Read) -> None:
    with joined(cluster) as consumer:
        lose_coordinator(cluster, consumer)
        assert read(consumer, 20_000) == []
        # retry.backoff.ms=100 doubles up to retry.backoff.max.ms=1000, both with 20 % jitter.
        assert 15 <= cluster.broker.names.count("FindCoordinatorRequest") <= 30
        assert cluster.broker.names.count("MetadataRequest") == 0  # FakeBroker pushes metadata


@READS
def test_the_coordinator_is_found_again(cluster: FakeCluster, read: Read) -> None:
    with joined(cluster) as consumer:
        lose_coordinator(cluster, consumer)
        node, back_ms = cluster.broker.node, cluster.clock.now_ms() + 3_000
        found_ms: list[int] = []

        def answer(*_: Any) -> Any:
            now_ms = cluster.clock.now_ms()
            if now_ms < back_ms:
                return find_coordinator(node, COORDINATOR_NOT_AVAILABLE)
            found_ms.append(now_ms)
            return find_coordinator(node)

        cluster.broker.overrides["FindCoordinatorRequest"] = answer
        assert read(consumer, 10_000) == []
        assert len(found_ms) == 1
        assert found_ms[0] - back_ms <= 1_300  # the largest backoff


@READS
def test_waiting_for_the_coordinator_counts_as_polling(cluster: FakeCluster, read: Read) -> None:
    """max.poll.interval.ms does not expire while the application is inside poll or the loop."""
    with joined(cluster, max_poll_interval_ms=4_000) as consumer:
        lose_coordinator(cluster, consumer)
        coordinator = consumer._consumer.components.coordinator
        assert coordinator is not None
        membership = coordinator.membership
        expired: list[bool] = []

        def answer(*_: Any) -> Any:
            expired.append(cluster.clock.now_ms() >= membership.last_poll_ms + 4_000)
            return find_coordinator(cluster.broker.node, COORDINATOR_NOT_AVAILABLE)

        cluster.broker.overrides["FindCoordinatorRequest"] = answer
        assert read(consumer, 20_000) == []
        assert expired
        assert not any(expired)


@READS
@pytest.mark.parametrize("offset", [0, -1])
def test_an_unstable_offset_does_not_keep_other_partitions_from_being_read(
    cluster: FakeCluster, read: Read, offset: int
) -> None:
    """The other partitions are read whether they have a committed offset or are reset."""
    with cluster.consumer("t", group_id="g", enable_auto_commit=False) as consumer:
        cluster.broker.overrides["OffsetFetchRequest"] = lambda _, request: committed(
            {T1: OffsetAndMetadata(offset)} if 1 in request.groups[0].topics[0].partition_indexes else {},
            partition_errors={T0: UNSTABLE_OFFSET_COMMIT},
        )
        assert read(consumer, 3_000) == [b"2"]
        assert consumer.position(T1) == 1
        with pytest.raises(KafkaTimeoutError, match="t-0"):
            consumer.position(T0, timeout_ms=500)
        del cluster.broker.overrides["OffsetFetchRequest"]
        assert read(consumer, 3_000) == [b"0", b"1"]


@READS
def test_an_unstable_offset_does_not_keep_the_group_from_rebalancing(cluster: FakeCluster, read: Read) -> None:
    """The consumer retries an unstable offset with a backoff, and joins a rebalance meanwhile."""
    with cluster.consumer("t", group_id="g", enable_auto_commit=False) as consumer:
        coordinator = consumer._consumer.components.coordinator
        assert coordinator is not None
        asked_ms: list[int] = []

        def answer(*_: Any) -> Any:
            asked_ms.append(cluster.clock.now_ms())
            if len(asked_ms) == 3:
                coordinator.membership.request_rejoin("asked for by the test")
            return committed({}, partition_errors={T0: UNSTABLE_OFFSET_COMMIT, T1: UNSTABLE_OFFSET_COMMIT})

        cluster.broker.overrides["OffsetFetchRequest"] = answer
        assert read(consumer, 10_000) == []
        assert cluster.broker.names.count("JoinGroupRequest") == 2
        assert 7 <= len(asked_ms) <= 20
        del cluster.broker.overrides["OffsetFetchRequest"]
        seen: list[Any] = []
        while values := read(consumer, 3_000):
            seen += values
        assert sorted(seen) == [b"0", b"1", b"2"]
