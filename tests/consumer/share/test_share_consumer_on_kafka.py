"""KafkaShareConsumer on the embedded cluster and on real Kafka: what applications rely on first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from pykclient.aio import AIOKafkaShareConsumer
from pykclient.consumer.share.acknowledgements import AcknowledgeType
from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
from pykclient.errors import IllegalStateError, RecordDeserializationError
from tests.aio.loops import run
from tests.consumer.share.share_groups import Consumer, Outcomes, Record, flat, numbers, polls, produce, read, set_group
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka
from tests.support.embedded_kafka import EmbeddedKafka

Join = Callable[..., Consumer]


@pytest.fixture(scope="module", params=[EMBEDDED, REAL])
def brokers(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """One broker, embedded or real."""
    if request.param == "real":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedKafka(1, {"group.share.heartbeat.interval.ms": 200}) as embedded:
        yield embedded


@pytest.fixture
def join(brokers: AnyKafka, topic: str, group_id: str) -> Iterator[Join]:
    """A factory of members of the test's group, closed after the test. The topic has one partition."""
    brokers.create_topic(topic)
    set_group(brokers, group_id)
    made: list[Consumer] = []

    def start(mode: str = "implicit", **settings: object) -> Consumer:
        consumer: Consumer = KafkaShareConsumer(
            {
                "bootstrap.servers": brokers.bootstrap_servers,
                "group.id": group_id,
                "share.acknowledgement.mode": mode,
                **settings,
            },
            topic,
        )
        made.append(consumer)
        return consumer

    yield start
    for consumer in made:
        consumer.close()


def accept(_: Record) -> AcknowledgeType:
    return AcknowledgeType.ACCEPT


def test_records_are_accepted_by_the_next_poll_or_commit(brokers: AnyKafka, topic: str, join: Join) -> None:
    outcomes = Outcomes()
    produce(brokers, topic, 100)
    one = join()
    one.set_acknowledgement_commit_callback(outcomes)
    records = read(one, 100)
    assert numbers(records) == list(range(100))
    assert {record.delivery_count for record in records} == {1}
    assert one.acquisition_lock_timeout_ms() == 30_000
    assert list(one.commit_sync().values()) == [None]
    assert outcomes.offsets() == list(range(100))
    produce(brokers, topic, 10, first=100)
    assert numbers(read(one, 10)) == list(range(100, 110))
    one.close()  # accepts nothing
    two = join()
    again = read(two, 10)
    assert numbers(again) == list(range(100, 110))
    assert {record.delivery_count for record in again} == {2}


def test_explicit_acknowledgement_is_required(brokers: AnyKafka, topic: str, join: Join) -> None:
    produce(brokers, topic, 30)
    consumer = join("explicit")
    records = read(consumer, 30)
    consumer.acknowledge(records[0])
    with pytest.raises(IllegalStateError, match="29 records of the last poll"):
        consumer.poll()
    for record in records[1:]:  # they are still those of the last poll
        consumer.acknowledge(record, AcknowledgeType.RELEASE)
    again = read(consumer, 29, accept)
    assert numbers(again) == list(range(1, 30))
    assert {record.delivery_count for record in again} == {2}


def test_released_records_come_again_and_rejected_ones_do_not(brokers: AnyKafka, topic: str, join: Join) -> None:
    def kind(record: Record) -> AcknowledgeType:
        if record.offset % 3 == 0 and record.delivery_count == 1:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.REJECT if record.offset % 3 == 1 else AcknowledgeType.ACCEPT

    produce(brokers, topic, 30)
    consumer = join("explicit")
    records = read(consumer, 40, kind)
    counts = Counter(numbers(records))
    assert counts == {number: 2 if number % 3 == 0 else 1 for number in range(30)}
    assert set(consumer.commit_sync().values()) == {None}
    produce(brokers, topic, 1, first=30)
    assert numbers(read(consumer, 1, accept)) == [30]


def test_a_lock_is_renewed_and_the_record_returned_again(brokers: AnyKafka, topic: str, join: Join) -> None:
    def kind(record: Record) -> AcknowledgeType:
        renewed.append(record.offset)
        return AcknowledgeType.RENEW if renewed.count(record.offset) <= 2 else AcknowledgeType.ACCEPT

    renewed: list[int] = []
    outcomes = Outcomes()
    produce(brokers, topic, 4)
    consumer = join("explicit")
    consumer.set_acknowledgement_commit_callback(outcomes)
    records = read(consumer, 12, kind)
    assert Counter(numbers(records)) == dict.fromkeys(range(4), 3)
    assert {record.delivery_count for record in records} == {1}, "a renewal is no delivery"
    assert set(consumer.commit_sync().values()) == {None}
    assert outcomes.offsets() == sorted([*range(4)] * 3)


def test_other_records_wait_while_a_record_is_renewed(brokers: AnyKafka, topic: str, join: Join) -> None:
    """As in Java, a poll returns only records with renewed locks, until these are acknowledged otherwise."""
    produce(brokers, topic, 1)
    consumer = join("explicit")
    (record,) = read(consumer, 1)
    produce(brokers, topic, 3, first=1)
    for _ in range(3):
        consumer.acknowledge(record, AcknowledgeType.RENEW)
        (again,) = read(consumer, 1)
        assert (again.offset, again.delivery_count) == (record.offset, 1)
    consumer.acknowledge(record)
    assert numbers(read(consumer, 3, accept)) == [1, 2, 3]


def test_asyncio_member_reads_and_renews(brokers: AnyKafka, topic: str, group_id: str, join: Join) -> None:
    """It reads records and columns, renews, and is cancelled; another member then finds nothing."""

    async def main() -> None:
        settings: dict[str, Any] = {"group_id": group_id, "share_acknowledgement_mode": "explicit"}
        settings["bootstrap_servers"] = brokers.bootstrap_servers
        async with AIOKafkaShareConsumer(topic, **settings) as consumer:
            seen: list[int] = []
            while len(seen) < 20:
                rows = await consumer.poll_arrow(2_000)
                if len(seen) < 5 and rows.num_rows:
                    consumer.acknowledge(rows, AcknowledgeType.RENEW)
                    rows = await consumer.poll_arrow(10_000)
                seen += map(int, rows["value"].to_pylist())
                consumer.acknowledge(rows)
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.wait({waiting})
            produce(brokers, topic, 1, first=20)
            consumer.acknowledge(await consumer.getone())
            assert list((await consumer.commit_sync()).values()) == [None]
            assert sorted(seen) == list(range(20))

    produce(brokers, topic, 20)
    run(main())
    assert not flat(join().poll(1_000))


def test_members_share_a_partition(brokers: AnyKafka, topic: str, join: Join) -> None:
    members = [join("explicit", **{"max.poll.records": 5, "share.acquire.mode": "record_limit"}) for _ in range(3)]
    produce(brokers, topic, 300, **{"batch.size": 200})
    seen: Counter[int] = Counter()
    by_member: Counter[Consumer] = Counter()
    for consumer, records in polls(*members):
        assert len(records) <= 5
        for record in records:
            consumer.acknowledge(record)
        seen.update(numbers(records))
        by_member[consumer] += len(records)
        if sum(seen.values()) >= 300:
            break
    assert seen == dict.fromkeys(range(300), 1)
    assert len(+by_member) == 3, "each has a part of the only partition"


def test_undeserializable_record_raises_and_can_be_rejected(brokers: AnyKafka, topic: str, join: Join) -> None:
    def small(data: bytes) -> int:
        if int(data) == 3:
            raise ValueError("three")
        return int(data)

    produce(brokers, topic, 6)
    consumer = join("explicit", **{"value.deserializer": small})
    seen: list[Record] = []
    errors: list[RecordDeserializationError] = []
    while len(errors) < 2 or len(seen) < 5:
        try:
            records = flat(consumer.poll(5000))
        except RecordDeserializationError as error:
            errors.append(error)
            if len(errors) == 2:
                consumer.acknowledge(topic, 0, error.offset, AcknowledgeType.REJECT)
            continue
        for record in records:
            consumer.acknowledge(record)
        seen += records
    assert {record.value for record in seen} == {0, 1, 2, 4, 5}
    assert [(error.offset, error.record.value, error.record.delivery_count) for error in errors] == [
        (3, b"3", 1),
        (3, b"3", 2),
    ]
    assert set(consumer.commit_sync().values()) == {None}


def test_loop_accepts_received_records(brokers: AnyKafka, topic: str, join: Join) -> None:
    produce(brokers, topic, 20)
    one = join(**{"consumer.timeout.ms": 20_000})
    assert numbers(list(islice(one, 7))) == list(range(7))
    one.commit_sync()
    one.close()
    two = join(**{"consumer.timeout.ms": 20_000})
    again = list(islice(two, 13))
    assert numbers(again) == list(range(7, 20))
    assert {record.delivery_count for record in again} == {2}, "they were locked, and released by close()"
