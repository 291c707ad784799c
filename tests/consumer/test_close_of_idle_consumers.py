"""Closing an idle consumer does not wait for the fetch in flight, which waits for records."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from pykclient import KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.aio import AIOKafkaConsumer, AIOKafkaShareConsumer
from pykclient.errors import KafkaError
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.support.group_configs import set_group_configs
from tests.support.wait import eventually

#: Longer than anything else takes here, even on a busy machine.
LONG_POLL: dict[str, Any] = {
    "fetch_max_wait_ms": 50_000,
    "request_timeout_ms": 100_000,
    "auto_offset_reset": "earliest",
}
SHORT_S = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, config={"group.initial.rebalance.delay.ms": 0}) as made:
        made.create_topic("t", 2)
        with KafkaProducer[bytes, bytes](bootstrap_servers=made.bootstrap_servers) as producer:
            for partition in (0, 1):
                producer.send("t", b"1", partition=partition).get(10)
        yield made


def fetches(cluster: EmbeddedCluster, client_id: str) -> list[Any]:
    return cluster.requests_of("Fetch", client_id=client_id)


def has_long_polls(cluster: EmbeddedCluster, client_id: str) -> bool:
    """Return whether both brokers hold an incremental fetch back."""
    waiting = {
        request.broker_id
        for request in fetches(cluster, client_id)
        if request.answered_ms is None and request.body.session_epoch > 0
    }
    return len(waiting) == 2


def assert_sessions_ended(cluster: EmbeddedCluster, client_id: str) -> None:
    ended = [request for request in fetches(cluster, client_id) if request.body.session_epoch == -1]
    assert {request.broker_id for request in ended} == {1, 2}
    assert all(request.body.session_id and not request.error_codes for request in ended)


#: The settings of a consumer without a group, and of members by both protocols; and the request by which they leave.
GROUPS: dict[str, tuple[dict[str, Any], str | None]] = {
    "none": ({}, None),
    "classic": ({"group_protocol": "classic"}, "LeaveGroup"),
    "consumer": ({"group_protocol": "consumer"}, "ConsumerGroupHeartbeat"),
}


def settings_of(cluster: EmbeddedCluster, group: str, client_id: str) -> dict[str, Any]:
    settings, leaves_by = GROUPS[group]
    name = {} if leaves_by is None else {"group_id": client_id}
    return {"bootstrap_servers": cluster.bootstrap_servers, "client_id": client_id, **settings, **name, **LONG_POLL}


def has_left(cluster: EmbeddedCluster, group: str, client_id: str) -> bool:
    """Return whether the member, if it is one, has left its group."""
    leaves_by = GROUPS[group][1]
    if leaves_by is None:
        return True
    requests: list[Any] = cluster.requests_of(leaves_by, client_id=client_id)
    return any(leaves_by == "LeaveGroup" or request.body.member_epoch == -1 for request in requests)


@pytest.mark.parametrize("group", GROUPS)
def test_close_does_not_wait_for_the_long_poll(cluster: EmbeddedCluster, group: str) -> None:
    client_id = f"blocking-{group}"
    consumer = KafkaConsumer[bytes, bytes]("t", **settings_of(cluster, group, client_id))
    eventually(lambda: consumer.poll(20) or has_long_polls(cluster, client_id))
    eventually(lambda: not consumer.poll(20) and has_long_polls(cluster, client_id))
    began_s = time.monotonic()
    consumer.close()
    assert time.monotonic() - began_s < SHORT_S
    assert_sessions_ended(cluster, client_id)
    assert has_left(cluster, group, client_id)


@pytest.mark.parametrize("group", GROUPS)
def test_asyncio_stop_does_not_wait_for_the_long_poll(cluster: EmbeddedCluster, group: str) -> None:
    client_id = f"asyncio-{group}"

    async def main() -> None:
        consumer = AIOKafkaConsumer("t", **settings_of(cluster, group, client_id))
        await consumer.start()
        for _ in range(2):
            await consumer.getone()
        reading = asyncio.create_task(consumer.getone(TopicPartition("t", 0), TopicPartition("t", 1)))
        while not has_long_polls(cluster, client_id):
            await asyncio.sleep(0.01)
        began_s = time.monotonic()
        await consumer.stop()
        assert time.monotonic() - began_s < SHORT_S
        await asyncio.wait({reading})
        reading.exception()

    asyncio.run(asyncio.wait_for(main(), 100))
    assert_sessions_ended(cluster, client_id)
    assert has_left(cluster, group, client_id)


def has_share_poll(cluster: EmbeddedCluster, client_id: str) -> bool:
    """Return whether a broker holds a share fetch back that acknowledges nothing."""
    requests: list[Any] = cluster.requests_of("ShareFetch", client_id=client_id)
    return any(request.answered_ms is None and not request.body.topics for request in requests)


class ShareGroup(NamedTuple):
    """A share group that reads a topic of one partition from the beginning."""

    cluster: EmbeddedCluster
    topic: str
    producer: KafkaProducer[bytes, bytes]

    def settings(self, client_id: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "client_id": f"{client_id}-{self.topic}",
            "group_id": self.topic,
            "fetch_max_wait_ms": 50_000,
            "request_timeout_ms": 100_000,
        }

    def send(self, value: bytes) -> None:
        self.producer.send(self.topic, value).get(10)

    def assert_next_is(self, value: bytes) -> None:
        """Another member gets the next record, and nobody got it before."""
        with KafkaShareConsumer[bytes, bytes](self.topic, **self.settings("next")) as consumer:
            self.send(value)
            [record] = [record for records in consumer.poll(20_000).values() for record in records]
            assert (record.value, record.delivery_count) == (value, 1)
            consumer.commit_sync()


@pytest.fixture
def share_group(cluster: EmbeddedCluster) -> Iterator[ShareGroup]:
    topic = f"shared-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 1)
    set_group_configs(cluster, topic, {"share.auto.offset.reset": "earliest"})
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
        yield ShareGroup(cluster, topic, producer)


def test_close_of_a_share_consumer_does_not_wait_for_the_long_poll(share_group: ShareGroup) -> None:
    settings = share_group.settings("blocking")
    consumer = KafkaShareConsumer[bytes, bytes](share_group.topic, **settings)
    share_group.send(b"1")
    eventually(lambda: consumer.poll(20))
    assert list(consumer.commit_sync().values()) == [None]
    eventually(lambda: not consumer.poll(20) and has_share_poll(share_group.cluster, settings["client_id"]))
    began_s = time.monotonic()
    consumer.close()
    assert time.monotonic() - began_s < SHORT_S
    share_group.assert_next_is(b"2")


def test_close_of_a_share_consumer_confirms_what_the_fetch_in_flight_acknowledges(share_group: ShareGroup) -> None:
    outcomes: list[tuple[set[int], KafkaError | None]] = []
    settings = share_group.settings("confirming") | {"fetch_max_wait_ms": 300}
    consumer = KafkaShareConsumer[bytes, bytes](share_group.topic, **settings)
    consumer.set_acknowledgement_commit_callback(
        lambda offsets, error: outcomes.extend((places, error) for places in offsets.values())
    )
    share_group.send(b"1")
    eventually(lambda: consumer.poll(20))
    consumer.poll(20)  # accepts the record in its fetch
    consumer.close()
    assert outcomes == [({0}, None)]
    share_group.assert_next_is(b"2")


def test_asyncio_stop_of_a_share_consumer_does_not_wait_for_the_long_poll(share_group: ShareGroup) -> None:
    settings = share_group.settings("asyncio")

    async def main() -> None:
        consumer = AIOKafkaShareConsumer(share_group.topic, **settings)
        await consumer.start()
        share_group.send(b"1")
        await consumer.getone()
        assert list((await consumer.commit_sync()).values()) == [None]
        reading = asyncio.create_task(consumer.getone())
        while not has_share_poll(share_group.cluster, settings["client_id"]):
            await asyncio.sleep(0.01)
        began_s = time.monotonic()
        await consumer.stop()
        assert time.monotonic() - began_s < SHORT_S
        await asyncio.wait({reading})
        reading.exception()

    asyncio.run(asyncio.wait_for(main(), 100))
    share_group.assert_next_is(b"2")
