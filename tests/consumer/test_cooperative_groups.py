"""Cooperative rebalances: members keep reading what stays with them. On the embedded cluster and on real Kafka."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.types import TopicPartition
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

PARTITIONS = 6

Consumer = KafkaConsumer[bytes, bytes]
Join = Callable[..., Consumer]


@pytest.fixture
def join(any_kafka: AnyKafka, topic: str, group_id: str) -> Iterator[Join]:
    """A factory of members of the test's group, closed after the test."""
    any_kafka.create_topic(topic, PARTITIONS)
    with contextlib.ExitStack() as closing:

        def make(assignors: str = "cooperative-sticky", **settings: Any) -> Consumer:
            consumer: Consumer = KafkaConsumer(
                topic,
                bootstrap_servers=any_kafka.bootstrap_servers,
                group_id=group_id,
                auto_offset_reset="earliest",
                partition_assignment_strategy=assignors,
                heartbeat_interval_ms=100,
                **settings,
            )
            closing.callback(consumer.close, timeout_ms=2_000)
            return consumer

        yield make


def produce(any_kafka: AnyKafka, topic: str, value: bytes) -> None:
    """Write the value to each partition."""
    with KafkaProducer[bytes, bytes](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, value, partition=partition)


def share(*members: Consumer) -> None:
    """Poll the members until they own all partitions, in equal shares."""

    def shared() -> bool:
        for member in members:
            member.poll(20)
        owned = [member.assignment() for member in members]
        return all(len(each) == PARTITIONS / len(members) for each in owned) and len(set().union(*owned)) == PARTITIONS

    eventually(shared, 30.0, f"{len(members)} equal shares", every_s=0)


def test_cooperative_members_keep_reading_during_a_rebalance(
    any_kafka: AnyKafka, topic: str, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    reading, waiting = join(client_id="reading"), join()
    share(reading, waiting)
    kept = reading.assignment()
    for tp in kept:
        # Of partitions that are new, polls look up the positions only after the rebalance, as in Java.
        reading.position(tp)
    joining = join()

    def rejoins() -> bool:
        joining.poll(20)
        reading.poll(20)
        return any("client_id=reading" in line and "Joining the group" in line for line in caplog.text.splitlines())

    with caplog.at_level(logging.INFO):
        eventually(rejoins, 30.0)
    # The rebalance cannot end, as ``waiting`` does not take part.
    produce(any_kafka, topic, b"meanwhile")
    seen: set[TopicPartition] = set()

    def read_all() -> bool:
        joining.poll(20)
        seen.update(reading.poll(20))
        return seen == kept

    eventually(read_all, 30.0, "a record of each partition", every_s=0)
    assert reading.assignment() == kept
    assert not joining.assignment()
    share(reading, waiting, joining)
    assert reading.assignment() < kept


def test_rolling_restarts_switch_to_the_cooperative_protocol(join: Join) -> None:
    """Members with the default offer both assignors, so those with the newer one alone can replace them one by one."""
    default = "range, cooperative-sticky"
    old = [join(default), join(default)]
    share(*old)
    old[0].close()
    mixed = [join(), old[1]]
    share(*mixed)
    old[1].close()
    new = [mixed[0], join()]
    share(*new)
    kept = [member.assignment() for member in new]
    share(*new, join())
    assert all(member.assignment() < before for member, before in zip(new, kept, strict=True))
