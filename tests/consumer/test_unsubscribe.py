"""Unsubscribing leaves the group even if one of its steps fails."""

from __future__ import annotations

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import KafkaError, TopicAuthorizationError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.consumer.coordinator.harness import Listener
from tests.consumer.fake_broker import FakeCluster

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({T0: [b"%d" % number for number in range(25)]})


def test_the_listener_fails(cluster: FakeCluster) -> None:
    listener = Listener()
    with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert consumer.poll(2_000)
        listener.failure = ValueError("mine")
        with pytest.raises(KafkaError, match="mine"):
            consumer.unsubscribe()
        assert consumer.subscription() is None
        assert cluster.broker.received.count("LeaveGroupRequest") == 1
        consumer.subscribe(["t"])
        assert consumer.poll(2_000)
        assert cluster.broker.received.count("JoinGroupRequest") == 2


def test_the_automatic_commit_fails(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    with cluster.consumer(group_id="g", enable_auto_commit=True) as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert consumer.poll(2_000)
        errors = [TopicAuthorizationError("another topic")]

        def once() -> None:
            if errors:
                raise errors.pop()

        monkeypatch.setattr(consumer._consumer.components.metadata, "maybe_throw_any_exception", once)
        with pytest.raises(TopicAuthorizationError):
            consumer.unsubscribe()
        assert listener.told[-1] == ("revoked", [T0])
        assert cluster.broker.received.count("LeaveGroupRequest") == 1
        consumer.subscribe(["t"])
        assert consumer.poll(2_000)
        assert cluster.broker.received.count("JoinGroupRequest") == 2


def test_closing_does_not_warn_of_a_commit_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The automatic commit of ``unsubscribe`` has no answer yet, and there is nothing else to commit."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"1")
        consumer = KafkaConsumer[bytes, bytes](
            "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        )
        assert consumer.poll(10_000)
        held = cluster.faults.hold("OffsetCommit")
        consumer.unsubscribe()
        cluster.wait_for(lambda: held.held)
        consumer.close(timeout_ms=0)
        held.remove()
    assert "Not committed" not in caplog.text
