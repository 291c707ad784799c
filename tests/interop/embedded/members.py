"""Group members of other clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from tests.interop.clients import PEERS, Sample
from tests.support.wait import eventually


class Member:
    """A group member on its own thread. Thread: any."""

    def __init__(self, run: Callable[[Member], None]) -> None:
        self.assigned: set[int] = set()
        self.values: list[bytes] = []
        self.error: BaseException | None = None
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)

    def _run(self, run: Callable[[Member], None]) -> None:
        try:
            run(self)
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.error = error

    def __enter__(self) -> Member:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def confluent_member(servers: str, topic: str, group_id: str) -> Callable[[Member], None]:
    def run(member: Member) -> None:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": servers, "group.id": group_id, "auto.offset.reset": "earliest", "log_level": 2}
        consumer = Consumer({**settings, "heartbeat.interval.ms": 100, "session.timeout.ms": 6000})
        consumer.subscribe([topic])
        try:
            while not member.stopping.is_set():
                message = consumer.poll(0.05)
                member.assigned = {tp.partition for tp in consumer.assignment()}
                if message is not None and message.error() is None:
                    member.values.append(message.value() or b"")
        finally:
            consumer.close()

    return run


def kafka_python_member(servers: str, topic: str, group_id: str) -> Callable[[Member], None]:
    def run(member: Member) -> None:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
        )
        # kafka-python joins before it knows the topic. If it must rejoin, it forgets to if poll() returns in between.
        consumer.partitions_for_topic(topic)
        consumer.subscribe([topic])
        try:
            while not member.stopping.is_set():
                for records in consumer.poll(500).values():
                    member.values += [record.value for record in records]
                member.assigned = {tp.partition for tp in consumer.assignment()}
        finally:
            consumer.close()

    return run


def aiokafka_member(servers: str, topic: str, group_id: str) -> Callable[[Member], None]:
    async def main(member: Member) -> None:
        from aiokafka import AIOKafkaConsumer

        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
        ) as consumer:
            while not member.stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    member.values += [record.value for record in records]
                member.assigned = {tp.partition for tp in consumer.assignment()}

    return lambda member: asyncio.run(main(member))


MEMBERS = {"confluent-kafka": confluent_member, "kafka-python": kafka_python_member, "aiokafka": aiokafka_member}


def share_and_take_over(peer: str, servers: str, topic: str, group_id: str) -> None:
    """Two members of a group share a topic of four partitions, then one leaves. Every record is read once."""
    make = MEMBERS[peer]
    writer = PEERS["confluent-kafka"]
    writer.write(servers, {topic: ("none", [Sample(b"%d" % i, b"a%d" % i) for i in range(100)])})
    with Member(make(servers, topic, group_id)) as first:
        eventually(lambda: first.error or len(first.values) == 100, 30.0, "all records")
        eventually(lambda: first.error or len(first.assigned) == 4, 30.0, "all partitions")  # set after its values
        assert first.assigned == {0, 1, 2, 3}
        with Member(make(servers, topic, group_id)) as second:
            members = (first, second)

            def shared() -> bool:
                if error := first.error or second.error:
                    raise error
                return sorted(map(len, (first.assigned, second.assigned))) == [2, 2]

            eventually(shared, 30.0, "two partitions for each")
            assert not first.assigned & second.assigned
            writer.write(servers, {topic: ("lz4", [Sample(b"%d" % i, b"b%d" % i) for i in range(100)])})
            eventually(lambda: sum(len(member.values) for member in members) >= 200, 30.0, "all records")
        eventually(lambda: first.error or len(first.assigned) == 4, 30.0, "all partitions after the other has left")
    values = first.values + second.values
    assert sorted(values) == sorted(b"%s%d" % (letter, i) for letter in (b"a", b"b") for i in range(100))
