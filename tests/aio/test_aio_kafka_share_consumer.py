"""AIOKafkaShareConsumer on the embedded cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient.aio import AcknowledgeType, AIOKafkaShareConsumer
from pykclient.aio.errors import ConsumerStoppedError
from pykclient.errors import (
    ConcurrentModificationError,
    ConfigError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaConnectionError,
    RecordDeserializationError,
    UnsupportedVersionError,
)
from pykclient.types import ConsumerRecord, TopicIdPartition, TopicPartition
from tests.aio.loops import LOOPS, run, some_iterations, until
from tests.consumer.share.share_groups import numbers, produce, set_group
from tests.support.embedded_kafka import EmbeddedKafka

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(1, {"group.share.heartbeat.interval.ms": 200}) as made:
        yield made


class Group:
    """A topic with ``count`` records, and a share group that reads it from the start."""

    def __init__(self, cluster: EmbeddedKafka, count: int, partitions: int = 1) -> None:
        number = next(_numbers)
        self.cluster = cluster
        self.topic, self.group_id = f"shared-{number}", f"aio-share-{number}"
        cluster.create_topic(self.topic, partitions)
        set_group(cluster, self.group_id)
        produce(cluster, self.topic, count, partitions=partitions)

    def consumer(self, mode: str = "implicit", **settings: Any) -> AIOKafkaShareConsumer:
        return AIOKafkaShareConsumer(
            self.topic,
            bootstrap_servers=self.cluster.bootstrap_servers,
            group_id=self.group_id,
            share_acknowledgement_mode=mode,
            **settings,
        )


Record = ConsumerRecord[Any, Any]


def flat(polled: dict[TopicPartition, list[Record]]) -> list[Record]:
    return [record for records in polled.values() for record in records]


async def read(consumer: AIOKafkaShareConsumer, count: int) -> list[Record]:
    seen: list[Record] = []
    while len(seen) < count:
        seen += flat(await consumer.poll(1_000))
    return seen


async def nothing_left(group: Group) -> None:
    """Check that another member of the group gets no record."""
    async with group.consumer() as consumer:
        assert not await consumer.poll(600)


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_next_call_accepts_the_previous_records(cluster: EmbeddedKafka, loop: str) -> None:
    async def main() -> None:
        group = Group(cluster, 20, partitions=2)
        async with group.consumer() as consumer:
            assert consumer.acquisition_lock_timeout_ms() is None
            assert sorted(numbers(await read(consumer, 20))) == list(range(20))
            assert consumer.acquisition_lock_timeout_ms() == 30_000
            assert not await consumer.getmany(timeout_ms=300)
        await nothing_left(group)

    run(main(), loop)


def test_stop_accepts_no_records_but_commit_does(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 5)
        async with group.consumer() as consumer:
            await read(consumer, 5)
        async with group.consumer() as consumer:
            assert {record.delivery_count for record in await read(consumer, 5)} == {2}
            (outcome,) = (await consumer.commit_sync()).items()
            assert outcome[0].topic_partition == TopicPartition(group.topic, 0)
            assert outcome[1] is None
            assert await consumer.commit_sync() == {}
        await nothing_left(group)

    run(main())


def test_loop_accepts_received_records(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 8)
        async with group.consumer() as consumer:
            seen = [await consumer.getone()]
            async for record in consumer:
                seen.append(record)
                if len(seen) == 3:
                    break
            assert numbers(seen) == [0, 1, 2]
            await consumer.commit_sync()
            assert numbers(flat(await consumer.poll())) == [3, 4, 5, 6, 7], "a poll resumes where the loop stopped"
        async with group.consumer() as consumer:
            assert [(int(r.value or b""), r.delivery_count) for r in await read(consumer, 5)] == [
                (n, 2) for n in range(3, 8)
            ]

    run(main())


def test_other_tasks_can_acknowledge_records(cluster: EmbeddedKafka) -> None:
    outcomes: list[set[int]] = []

    async def outcome(offsets: dict[TopicIdPartition, set[int]], error: Exception | None) -> None:
        await asyncio.sleep(0.01)
        assert error is None
        outcomes.extend(offsets.values())

    async def main() -> None:
        group = Group(cluster, 9)
        async with group.consumer("explicit") as consumer:
            consumer.set_acknowledgement_commit_callback(outcome)

            async def work(record: Record) -> None:
                await asyncio.sleep(0)
                if record.delivery_count == 1:
                    consumer.acknowledge(record, (ACCEPT, RELEASE, REJECT)[record.offset % 3])
                else:
                    consumer.acknowledge(record)
                await consumer.commit_sync()

            await asyncio.gather(*map(work, await read(consumer, 9)))
            again = await read(consumer, 3)
            assert numbers(again) == [1, 4, 7]
            with pytest.raises(IllegalStateError, match=r"3 records of the last poll\(\) are not acknowledged"):
                await consumer.poll()
            await asyncio.gather(*map(work, again))
            assert not await consumer.poll(300)
        await nothing_left(group)
        assert sorted(offset for each in outcomes for offset in each) == sorted([*range(9), 1, 4, 7])

    run(main())


def test_renewed_records_are_returned_again(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 2)
        async with group.consumer("explicit") as consumer:
            first, second = await read(consumer, 2)
            consumer.acknowledge(first, RENEW)
            consumer.acknowledge(second)
            (again,) = await read(consumer, 1)
            assert (again.offset, again.delivery_count) == (first.offset, 1)
            consumer.acknowledge(again)
            assert list((await consumer.commit_sync()).values()) == [None]
        await nothing_left(group)

    run(main())


def test_undeserializable_record_raises_and_can_be_rejected(cluster: EmbeddedKafka) -> None:
    def not_one(data: bytes) -> int:
        if data == b"1":
            raise ValueError(data)
        return int(data)

    async def main() -> None:
        group = Group(cluster, 2)
        async with group.consumer("explicit", value_deserializer=not_one) as consumer:
            consumer.acknowledge(await consumer.getone())
            with pytest.raises(RecordDeserializationError) as raised:
                await consumer.getone()
            consumer.acknowledge(group.topic, 0, raised.value.offset, REJECT)
            assert not await consumer.poll(300)
        await nothing_left(group)

    run(main())


def test_unsubscribed_consumer_can_join_again(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 3)
        consumer = group.consumer()
        await consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
        async with consumer:
            with pytest.raises(IllegalStateError, match="subscribe"):
                await consumer.poll()
            consumer.subscribe([group.topic])
            await read(consumer, 3)
            await consumer.unsubscribe()
            assert len(await consumer.commit_sync()) == 1
            consumer.subscribe([group.topic])
            assert not await consumer.poll(600)
            produce(cluster, group.topic, 1, first=3)
            assert numbers(await read(consumer, 1)) == [3]

    run(main())


# --- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poll", "getone", "commit_sync"])
def test_calls_cancelled_at_any_await_lose_no_records(cluster: EmbeddedKafka, name: str) -> None:
    """No record is lost, and none is accepted that the application has not received."""
    count = 60

    async def outcome(*_: object) -> None:
        await some_iterations(2)  # another place for a cancellation

    async def main() -> None:
        group = Group(cluster, count, partitions=2)
        seen: list[int] = []
        async with group.consumer(max_poll_records=3) as consumer:
            consumer.set_acknowledgement_commit_callback(outcome)

            async def call() -> None:
                if name == "getone":
                    seen.append(int((await consumer.getone()).value or b""))
                    return
                seen.extend(numbers(flat(await consumer.poll(2_000))))
                if name == "commit_sync":
                    await consumer.commit_sync()

            for iterations in itertools.chain(range(60), itertools.repeat(10_000)):
                task = asyncio.ensure_future(call())
                for _ in range(iterations):
                    if task.done() or len(seen) >= count:
                        break
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                if len(seen) >= count:
                    break
            await consumer.commit_sync()
        assert sorted(seen) == list(range(count))
        await nothing_left(group)

    run(main())


def test_an_unreceived_record_is_released(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 10)
        async with group.consumer() as consumer:
            await consumer.getone()
            waiting = asyncio.ensure_future(consumer.commit_sync())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
        async with group.consumer() as consumer:
            assert numbers(await read(consumer, 9)) == list(range(1, 10))

    run(main())


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_one_task_reads_at_a_time(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 0)
        async with group.consumer() as consumer:
            reading = asyncio.ensure_future(consumer.getone())
            await some_iterations()
            for call in (consumer.poll(), consumer.getone(), consumer.unsubscribe()):
                with pytest.raises(ConcurrentModificationError, match=r"during getone\(\) of another task"):
                    await call
            await asyncio.wait_for(consumer.commit_sync(), 10)
            await asyncio.wait_for(consumer.commit_async(), 10)
            produce(cluster, group.topic, 1)
            assert (await reading).value == b"0"

    run(main())


def test_stop_ends_waiting_calls(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 0)
        consumer = group.consumer()

        async def loop() -> list[Record]:
            return [record async for record in consumer]

        await consumer.start()
        looping = asyncio.ensure_future(loop())
        await some_iterations()
        await consumer.stop()
        assert await looping == []
        with pytest.raises(ConsumerStoppedError):
            await consumer.poll()
        with pytest.raises(ConsumerStoppedError):
            aiter(consumer)
        await consumer.stop()

    run(main())


def test_a_callback_cannot_call_the_consumer(cluster: EmbeddedKafka, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        group = Group(cluster, 3)
        async with group.consumer() as consumer:
            calls = iter([consumer.poll, consumer.commit_sync, consumer.stop])

            async def callback(*_: object) -> None:
                await next(calls)()

            consumer.set_acknowledgement_commit_callback(callback)
            for method in ("poll", "commit_sync", "stop"):
                await consumer.getone()
                await consumer.commit_sync()
                assert f"{method}() cannot be called by an acknowledgement commit callback" in caplog.text

    run(main())


def test_calls_wait_for_an_asynchronous_callback(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        group = Group(cluster, 3)
        gate, entered = asyncio.Event(), asyncio.Event()

        async def callback(*_: object) -> None:
            entered.set()
            await gate.wait()

        async with group.consumer() as consumer:
            consumer.set_acknowledgement_commit_callback(callback)
            await consumer.getone()
            committing = asyncio.ensure_future(consumer.commit_sync())
            await entered.wait()
            polling = asyncio.ensure_future(consumer.poll(5_000))
            await some_iterations(20)
            assert not polling.done()
            gate.set()
            await committing
            assert numbers(flat(await polling)) == [1, 2]

    run(main())


# --- life -------------------------------------------------------------------------------------------------------------


def test_wrong_arguments_and_calls_are_refused(cluster: EmbeddedKafka) -> None:
    with pytest.raises(InvalidGroupIdError, match="needs a group_id"):
        AIOKafkaShareConsumer("t", bootstrap_servers="localhost:9092")
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit cannot be set for a KafkaShareConsumer"):
        AIOKafkaShareConsumer("t", group_id="g", enable_auto_commit=False)
    with pytest.raises(IllegalArgumentError, match="is a function"):
        AIOKafkaShareConsumer("t", group_id="g").set_acknowledgement_commit_callback(1)  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="at least one topic"):
        AIOKafkaShareConsumer("t", group_id="g").subscribe([])

    async def main() -> AIOKafkaShareConsumer:
        group = Group(cluster, 1)
        consumer = group.consumer()
        with pytest.raises(IllegalStateError, match="has not been started"):
            await consumer.poll()
        async with consumer:
            with pytest.raises(IllegalStateError, match="Did you call `start` twice"):
                await consumer.start()
            record = await consumer.getone()
            with pytest.raises(IllegalStateError, match=r"share\.acknowledgement\.mode=explicit"):
                consumer.acknowledge(record)
            with pytest.raises(IllegalArgumentError, match="write acknowledge"):
                consumer.acknowledge(record, 1, 2)  # type: ignore[call-overload]
            assert group.group_id in consumer.explain()
            assert consumer.metrics()["consumer-share-coordinator-metrics"]["rebalance-total"] == 1
            assert repr(consumer).startswith("<AIOKafkaShareConsumer consumer-aio-share-")
        with pytest.raises(ConsumerStoppedError):
            consumer.acknowledge(record)
        with pytest.raises(ConsumerStoppedError, match="create another one"):
            await consumer.start()
        other = group.consumer()
        await other.start()
        return other

    with asyncio.Runner() as runner:
        other = runner.run(main())

        async def elsewhere() -> None:
            with pytest.raises(IllegalStateError, match="another event loop"):
                await other.poll()

        asyncio.run(elsewhere())
        runner.run(other.stop())


def test_start_fails_without_a_broker() -> None:
    async def main() -> None:
        consumer = AIOKafkaShareConsumer("t", bootstrap_servers="localhost:1", group_id="g")
        for _ in range(2):
            with pytest.raises(KafkaConnectionError):
                await consumer.start()
        assert consumer.subscription() == {"t"}

    run(main())


def test_start_raises_the_join_error(cluster: EmbeddedKafka) -> None:
    assert cluster._cluster is not None
    cluster._cluster.faults.answer("ShareGroupHeartbeat", UnsupportedVersionError(), times=1)

    async def main() -> None:
        consumer = Group(cluster, 1).consumer()
        with pytest.raises(UnsupportedVersionError, match=r"share\.version at 1"):
            await consumer.start()
        async with consumer:
            assert (await consumer.getone()).value == b"0"

    run(main())


def test_a_garbage_collected_consumer_warns_and_disconnects(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        consumer = Group(cluster, 1).consumer()
        await consumer.start()
        client = consumer._consumer.components.client._client  # type: ignore[union-attr]
        del consumer
        await until(lambda: not client.active)

    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaShareConsumer"):
        run(main())
