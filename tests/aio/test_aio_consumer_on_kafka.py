"""AIOKafkaConsumer on the embedded broker and on a real one, alone and in groups with other clients."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import Counter
from typing import Any

import aiokafka
import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.aio.loops import run, until
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import AnyKafka

_numbers = itertools.count()

PARTITIONS = 4


def new_topic(kafka: AnyKafka, records: int) -> list[TopicPartition]:
    topic = kafka.create_topic(f"aio-read-{next(_numbers)}-{uuid.uuid4().hex[:6]}", partitions=PARTITIONS)
    tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, compression_type="lz4") as producer:
        for tp in tps:
            producer.send_batch(topic, [b"%d" % number for number in range(records)], partition=tp.partition).get(30)
    return tps


def settings_of(kafka: AnyKafka, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap_servers,
        "auto_offset_reset": "earliest",
        **({} if "group_protocol" in settings else {"heartbeat_interval_ms": 300}),
        **settings,
    }


def test_group_member_reads_seeks_and_commits(any_kafka: AnyKafka) -> None:
    tps = new_topic(any_kafka, 2_500)
    topic = tps[0].topic

    async def main() -> None:
        group_id = f"contract-{uuid.uuid4().hex[:6]}"
        settings = settings_of(any_kafka, group_id=group_id)
        async with AIOKafkaConsumer(topic, **settings) as consumer:
            assert consumer.assignment() == set(tps)
            seen: Counter[tuple[int, int]] = Counter()
            while len(seen) < 3_000:
                for records in (await consumer.getmany(timeout_ms=1_000, max_records=500)).values():
                    seen.update((record.partition, record.offset) for record in records)
            async for record in consumer:
                seen[record.partition, record.offset] += 1
                if len(seen) == 6_000:
                    break
            await consumer.commit()
        async with AIOKafkaConsumer(topic, **settings) as consumer:
            while len(seen) < 10_000:
                record = await consumer.getone()
                seen[record.partition, record.offset] += 1
            assert set(seen.values()) == {1}
            assert await consumer.end_offsets(tps) == dict.fromkeys(tps, 2_500)
            assert (await consumer.offsets_for_times({tps[0]: 0}))[tps[0]].offset == 0  # type: ignore[union-attr]
            assert topic in await consumer.topics()
            consumer.seek(tps[1], 7)
            assert (await consumer.getone(tps[1])).offset == 7
            await consumer.seek_to_end()
            async with AIOKafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers) as producer:
                await producer.send_and_wait(topic, b"at the end", partition=2)
            record = await consumer.getone()
            assert (record.partition, record.offset, record.value) == (2, 2_500, b"at the end")

    run(main())


@pytest.mark.parametrize("how", ["subscribed", "member", "assigned"])
def test_record_written_right_after_start_is_read(any_kafka: AnyKafka, how: str) -> None:
    """From the end of the partitions. The loop stands still while the record is written."""
    tps = new_topic(any_kafka, 10)
    topic = tps[0].topic

    async def main() -> None:
        group_id = f"from-end-{uuid.uuid4().hex[:6]}" if how == "member" else None
        topics = () if how == "assigned" else (topic,)
        consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=any_kafka.bootstrap_servers, group_id=group_id, auto_offset_reset="latest"
        )
        if how == "assigned":
            consumer.assign(tps)
        async with consumer:
            with KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers) as producer:
                producer.send(topic, b"after start", partition=3).get(30)
            record = await consumer.getone()
            assert (record.partition, record.offset, record.value) == (3, 10, b"after start")

    run(main())


async def members_come_and_go(kafka: AnyKafka, **settings: Any) -> None:
    """Read a topic with three members, two of which leave early. Each record is read once, as all are committed."""
    tps = new_topic(kafka, 3_000)
    settings = settings_of(kafka, group_id=f"moving-{uuid.uuid4().hex[:6]}", **settings)
    seen: Counter[tuple[int, int]] = Counter()

    async def member(limit: int) -> None:
        async with AIOKafkaConsumer(tps[0].topic, **settings) as consumer:
            count = 0
            while count < limit and len(seen) < PARTITIONS * 3_000:
                for records in (await consumer.getmany(timeout_ms=100, max_records=100)).values():
                    seen.update((record.partition, record.offset) for record in records)
                    count += len(records)
                await asyncio.sleep(0.005)

    await asyncio.gather(*(member(limit) for limit in (1_000, 2_500, 100_000)))
    assert set(seen.values()) == {1}


def test_rebalances_lose_and_repeat_no_records(any_kafka: AnyKafka) -> None:
    run(members_come_and_go(any_kafka))


def test_consumer_protocol_rebalances_lose_and_repeat_no_records(kafka: KafkaCluster) -> None:
    run(members_come_and_go(kafka, group_protocol="consumer"))


def test_group_is_shared_with_aiokafka_and_a_blocking_consumer(any_kafka: AnyKafka) -> None:
    tps = new_topic(any_kafka, 1_000)
    topic = tps[0].topic

    async def main() -> None:
        group_id = f"mixed-{uuid.uuid4().hex[:6]}"
        seen: set[tuple[int, int]] = set()
        stopping = asyncio.Event()

        async def read(consumer: Any) -> None:
            async with consumer:
                while not stopping.is_set():
                    for records in (await consumer.getmany(timeout_ms=50, max_records=50)).values():
                        seen.update((record.partition, record.offset) for record in records)

        def poll() -> None:
            settings = settings_of(any_kafka, group_id=group_id, partition_assignment_strategy=["roundrobin"])
            with KafkaConsumer(topic, **settings) as consumer:
                while not stopping.is_set():
                    for records in consumer.poll(50, max_records=50).values():
                        seen.update((record.partition, record.offset) for record in records)

        settings = settings_of(any_kafka, group_id=group_id)
        ours = AIOKafkaConsumer(topic, **settings, partition_assignment_strategy=["roundrobin"])
        theirs = aiokafka.AIOKafkaConsumer(
            topic, **settings, partition_assignment_strategy=[RoundRobinPartitionAssignor]
        )
        tasks = [asyncio.ensure_future(read(consumer)) for consumer in (ours, theirs)]
        tasks.append(asyncio.ensure_future(asyncio.to_thread(poll)))
        try:
            await until(lambda: any(task.done() for task in tasks) or len(seen) == PARTITIONS * 1_000)
            # The three share the partitions, as each assignor of this name makes the same assignment.
            await until(lambda: any(task.done() for task in tasks) or 1 <= len(ours.assignment()) <= 2)
        finally:
            stopping.set()
            await asyncio.gather(*tasks)
        assert len(seen) == PARTITIONS * 1_000

    run(main())
