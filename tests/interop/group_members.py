"""Members of a group, each a consumer of another client, behind one interface."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import confluent_kafka

from pykclient import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from tests.support.java import java_command
from tests.support.wait import eventually

_JAVA_MEMBER = Path(__file__).with_name("GroupMember.java")
_JAVA_CLASSES = {
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
HEARTBEAT_MS = 100
#: As an assignor: the brokers assign (KIP-848). Only for members of Java's client.
CONSUMER_PROTOCOL = "consumer"
_ROUNDS = 10


class Place(NamedTuple):
    """Where a member belongs. Without an ``assignor`` it offers its client's default."""

    bootstrap_servers: str
    group_id: str
    topic: str
    assignor: str | None


class Heard:
    """What a member's listener has heard: partition numbers by kind of call, and what the member owns by that."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.revoked: list[int] = []
        self.lost: list[int] = []

    def on_assigned(self, partitions: Iterable[int]) -> None:
        self.owned |= {*partitions}

    def on_revoked(self, partitions: Iterable[int]) -> None:
        self.revoked += partitions
        self.owned -= {*partitions}

    def on_lost(self, partitions: Iterable[int]) -> None:
        self.lost += partitions
        self.owned -= {*partitions}


class Member(Protocol):
    heard: Heard

    def __init__(self, place: Place) -> None: ...

    def poll(self) -> None:
        """Let the member take part in a rebalance, for a short while."""

    def close(self) -> None:
        """Leave the group."""


def _numbers(partitions: Iterable[Any]) -> list[int]:
    return [tp.partition for tp in partitions]


class Ours:
    """A member of this client."""

    def __init__(self, place: Place) -> None:
        self.heard = heard = Heard()

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
                heard.on_assigned(_numbers(assigned))

            def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
                heard.on_revoked(_numbers(revoked))

            def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
                heard.on_lost(_numbers(lost))

        assignors: dict[str, Any] = {"partition_assignment_strategy": place.assignor} if place.assignor else {}
        self.consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
            bootstrap_servers=place.bootstrap_servers,
            group_id=place.group_id,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
            **assignors,
        )
        self.consumer.subscribe([place.topic], listener=Listener())

    def poll(self) -> None:
        self.consumer.poll(20)
        assert {tp.partition for tp in self.consumer.assignment()} == self.heard.owned

    def close(self) -> None:
        self.consumer.close()


class Confluent:
    """A member of confluent-kafka."""

    def __init__(self, place: Place) -> None:
        self.heard = Heard()
        cooperative = place.assignor == "cooperative-sticky"

        def on_assign(consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self.heard.on_assigned(_numbers(partitions))
            (consumer.incremental_assign if cooperative else consumer.assign)(partitions)

        def on_revoke(consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self.heard.on_revoked(_numbers(partitions))
            if cooperative:
                consumer.incremental_unassign(partitions)
            else:
                consumer.unassign()

        def on_lost(_: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self.heard.on_lost(_numbers(partitions))

        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": place.bootstrap_servers,
                "group.id": place.group_id,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "enable.auto.commit": False,
                "log_level": 2,
                **({"partition.assignment.strategy": place.assignor} if place.assignor else {}),
            }
        )
        self.consumer.subscribe([place.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def poll(self) -> None:
        self.consumer.poll(0.02)

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    """A member of kafka-python."""

    def __init__(self, place: Place) -> None:
        import kafka
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        self.heard = heard = Heard()

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                heard.on_assigned(_numbers(assigned))

            def on_partitions_revoked(self, revoked: Any) -> None:
                heard.on_revoked(_numbers(revoked))

            def on_partitions_lost(self, lost: Any) -> None:
                heard.on_lost(_numbers(lost))

        classes = {"sticky": StickyPartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=place.bootstrap_servers,
            group_id=place.group_id,
            heartbeat_interval_ms=HEARTBEAT_MS,
            enable_auto_commit=False,
            **({"partition_assignment_strategy": [classes[place.assignor]]} if place.assignor else {}),
        )
        # It assigns what its metadata has, and may join before it has any.
        assert self.consumer.partitions_for_topic(place.topic)
        self.consumer.subscribe([place.topic], listener=Listener())

    def poll(self) -> None:
        self.consumer.poll(20)

    def close(self) -> None:
        self.consumer.close()


class Java:
    """A member of Java's client, in a process of its own."""

    def __init__(self, place: Place) -> None:
        self.heard = Heard()
        arguments = [place.bootstrap_servers, place.group_id, place.topic]
        if place.assignor == CONSUMER_PROTOCOL:
            arguments.append(place.assignor)
        elif place.assignor:
            arguments.append(f"org.apache.kafka.clients.consumer.{_JAVA_CLASSES[place.assignor]}")
        self._process = subprocess.Popen(
            java_command(_JAVA_MEMBER, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        hear = {"assigned": self.heard.on_assigned, "revoked": self.heard.on_revoked, "lost": self.heard.on_lost}
        for line in self._process.stdout:
            what, _, partitions = line.rstrip("\n").partition("\t")
            hear[what]([int(number) for number in partitions.split(",") if number])

    def poll(self) -> None:
        assert self._process.poll() is None, "the Java member has ended"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(30) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()


def poll_until_shared(members: Iterable[Member], partitions: int, timeout_s: float = 60.0) -> None:
    """Poll all members in turn until they own all partitions, and the numbers of any two differ by one at most.

    This must hold for some rounds, as kafka-python joins once more when its metadata has come.
    """
    members = list(members)
    rounds = 0

    def shared() -> bool:
        nonlocal rounds
        for member in members:
            member.poll()
        owned = [member.heard.owned.copy() for member in members]
        sizes = [len(numbers) for numbers in owned]
        in_shares = sum(sizes) == len(set().union(*owned)) == partitions and max(sizes) - min(sizes) <= 1
        rounds = rounds + 1 if in_shares else 0
        return rounds == _ROUNDS

    eventually(shared, timeout_s, f"{partitions} partitions shared by {len(members)} members", every_s=0)
