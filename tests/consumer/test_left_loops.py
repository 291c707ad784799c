"""Loops abandoned in the middle, and what may happen before reading continues: no record is lost or skipped."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import IllegalStateError
from pykclient.types import TopicPartition
from tests.consumer.coordinator.harness import Listener
from tests.consumer.fake_broker import FakeCluster
from tests.consumer.responses import metadata_response

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
VALUES = [b"%d" % i for i in range(25)]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({T0: VALUES})


def leave_after(consumer: KafkaConsumer[Any, Any], offset: int) -> None:
    for record in consumer:
        if record.offset == offset:
            return


def read_on(consumer: KafkaConsumer[Any, Any]) -> list[int]:
    offsets: list[int] = []
    for _ in range(8):
        offsets += [record.offset for records in consumer.poll(1000).values() for record in records]
    return offsets


def new_leader_epoch(cluster: FakeCluster) -> None:
    cluster.broker.describe = lambda: metadata_response({"t": 1}, epoch=9)  # type: ignore[method-assign]
    cluster.broker.update_metadata(metadata_response({"t": 1}, epoch=9))


def test_abandoned_loop_continues_after_a_leader_change(cluster: FakeCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([T0])
        leave_after(consumer, 2)
        new_leader_epoch(cluster)
        assert read_on(consumer) == list(range(3, 25))


def test_loop_survives_a_pause_during_position_validation(cluster: FakeCluster) -> None:
    with cluster.consumer(consumer_timeout_ms=3000) as consumer:
        consumer.assign([T0])
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 2:
                new_leader_epoch(cluster)
                consumer._consumer.components.offsets.validate_positions_on_metadata_change()
                consumer.pause(T0)
                consumer.resume(T0)
        assert seen == list(range(25))


def test_smaller_subscription_commits_only_delivered_records(cluster: FakeCluster) -> None:
    cluster = FakeCluster({T0: VALUES, U0: VALUES})
    with cluster.consumer("t", "u", group_id="g", enable_auto_commit=True) as consumer:
        delivered = {"t": -1, "u": -1}
        for record in consumer:
            delivered[record.topic] = record.offset
            if record.offset == 2:
                break
        consumer.subscribe(["t"])
        for _ in range(5):
            consumer.poll(500)
        committed = cluster.broker.committed_offsets
        assert committed[U0].offset == delivered["u"] + 1


def test_a_refused_subscription_leaves_the_loop_its_records(cluster: FakeCluster) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([T0])
        leave_after(consumer, 2)
        with pytest.raises(IllegalStateError):
            consumer.subscribe(["x"])
        assert read_on(consumer) == list(range(3, 25))


def test_loop_resumes_after_a_rebalance_awaiting_its_commit(cluster: FakeCluster) -> None:
    listener = Listener()
    with cluster.consumer(group_id="g", enable_auto_commit=True) as consumer:
        consumer.subscribe(["t"], listener=listener)
        leave_after(consumer, 2)
        listener.on_revoked = consumer.commit
        consumer.enforce_rebalance()
        cluster.broker.overrides["OffsetCommitRequest"] = lambda *_: None  # no response yet
        assert consumer.poll(0) == {}
        cluster.broker.overrides.clear()
        for request in list(cluster.broker.requests):
            message = cluster.broker._build(request)
            if type(message).__name__ == "OffsetCommitRequest":
                assert message.topics[0].partitions[0].committed_offset == 3
                cluster.broker.respond_to_request(request, cluster.broker._OffsetCommitRequest(0, message))
        assert read_on(consumer) == list(range(3, 25))
