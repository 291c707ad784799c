"""Unsubscribing leaves the group even if one of its steps fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient.aio import AIOKafkaConsumer
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import KafkaError, TopicAuthorizationError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.consumer.coordinator.harness import Listener
from tests.consumer.fake_broker import FakeCluster
from tests.support.wait import eventually

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({T0: [b"%d" % number for number in range(25)]})


def test_unsubscribe_completes_if_the_listener_fails(cluster: FakeCluster) -> None:
    listener = Listener()
    with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert consumer.poll(2_000)
        listener.failure = ValueError("mine")
        with pytest.raises(KafkaError, match="mine"):
            consumer.unsubscribe()
        assert consumer.subscription() is None
        assert cluster.broker.names.count("LeaveGroupRequest") == 1
        consumer.subscribe(["t"])
        assert consumer.poll(2_000)
        assert cluster.broker.names.count("JoinGroupRequest") == 2


def test_unsubscribe_completes_if_the_commit_fails(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert cluster.broker.names.count("LeaveGroupRequest") == 1
        consumer.subscribe(["t"])
        assert consumer.poll(2_000)
        assert cluster.broker.names.count("JoinGroupRequest") == 2


def test_close_does_not_warn_about_an_empty_commit(caplog: pytest.LogCaptureFixture) -> None:
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


# --- while JoinGroup or SyncGroup is unanswered -----------------------------------------------------------------------


@pytest.fixture
def rebalancing() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        cluster.create_topic("t")
        yield cluster


#: Long enough for a test to see that nothing waits for an answer that never comes.
PATIENCE: dict[str, Any] = {"request_timeout_ms": 120_000, "default_api_timeout_ms": 120_000}


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("api", ["SyncGroup", "JoinGroup"])
@pytest.mark.parametrize("commits", [False, True])
def test_member_joins_again_although_its_rebalance_is_unanswered(
    rebalancing: EmbeddedCluster, api: str, static: bool, commits: bool
) -> None:
    def is_held_up(request: Any) -> bool:
        """Not the first JoinGroup: without a member id, a broker answers it at once."""
        return static or api == "SyncGroup" or bool(request.body.member_id)

    held = rebalancing.faults.hold(api, times=1, when=is_held_up)
    with KafkaConsumer[bytes, bytes](
        "t",
        bootstrap_servers=rebalancing.bootstrap_servers,
        group_id="g",
        enable_auto_commit=commits,
        group_instance_id="i" if static else None,
        **PATIENCE,
    ) as consumer:
        eventually(lambda: consumer.poll(20) or held.held)
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        eventually(lambda: consumer.poll(20) or consumer.assignment())
        held.remove()


@pytest.mark.parametrize("static", [False, True])
def test_close_after_unsubscribe_does_not_wait_for_an_unanswered_rebalance(
    rebalancing: EmbeddedCluster, static: bool
) -> None:
    held = rebalancing.faults.hold("SyncGroup", times=1)
    consumer = KafkaConsumer[bytes, bytes](
        "t",
        bootstrap_servers=rebalancing.bootstrap_servers,
        group_id="g",
        group_instance_id="i" if static else None,
        **PATIENCE,
    )
    eventually(lambda: consumer.poll(20) or held.held)
    consumer.unsubscribe()
    began_ms = consumer._clock.now_ms()
    consumer.close(timeout_ms=100_000)
    assert consumer._clock.now_ms() - began_ms < 20_000
    if not static:
        (leaving,) = rebalancing.requests_of("LeaveGroup")
        assert not leaving.error_codes


def test_asyncio_member_joins_again_although_its_rebalance_is_unanswered(rebalancing: EmbeddedCluster) -> None:
    async def main() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=rebalancing.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **PATIENCE
        )
        async with consumer:
            held = rebalancing.faults.hold("SyncGroup", times=1)
            consumer.subscribe(["t"])
            reading = asyncio.create_task(consumer.getone())
            while not held.held:
                await asyncio.sleep(0.01)
            consumer.unsubscribe()
            consumer.subscribe(["t"])
            async with asyncio.timeout(20):
                while not consumer.assignment():
                    await asyncio.sleep(0.01)
            held = rebalancing.faults.hold("SyncGroup", times=1)
            consumer.unsubscribe()
            consumer.subscribe(["t"])
            while not held.held:
                await asyncio.sleep(0.01)
            consumer.unsubscribe()
            reading.cancel()
            async with asyncio.timeout(20):
                await consumer.stop(100)

    asyncio.run(main())
