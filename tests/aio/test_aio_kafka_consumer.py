"""AIOKafkaConsumer on an embedded cluster: records, positions, commits, lookups."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

from pykclient import ConsumerInterceptor, KafkaProducer
from pykclient.aio import AIOKafkaConsumer, AsyncConsumer, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pykclient.aio.errors import ConsumerStoppedError, GroupIdMissingError, IllegalOperation
from pykclient.errors import (
    DisconnectError,
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import LOOPS, run, until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"auto.create.topics.enable": False, "group.initial.rebalance.delay.ms": 0}) as made:
        yield made


def new_topic(cluster: EmbeddedCluster, partitions: int = 1, records: int = 0) -> list[TopicPartition]:
    """Create a topic with as many records in each partition; return its partitions."""
    name = f"read-{next(_numbers)}"
    cluster.create_topic(name, partitions)
    tps = [TopicPartition(name, number) for number in range(partitions)]
    for tp in tps:
        write(cluster, tp, records)
    return tps


def write(cluster: EmbeddedCluster, tp: TopicPartition, count: int, start: int = 0) -> None:
    write_values(cluster, tp, numbers(count, start))


def write_values(cluster: EmbeddedCluster, tp: TopicPartition, values: list[bytes]) -> None:
    if values:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_batch(tp.topic, values, partition=tp.partition).get(10)


def consumer_of(cluster: EmbeddedCluster, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    defaults = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer(*topics, **{**defaults, **settings})


@asynccontextmanager
async def reading(cluster: EmbeddedCluster, *tps: TopicPartition, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """Yield a consumer to which ``tps`` are assigned."""
    async with consumer_of(cluster, **settings) as consumer:
        if tps:
            consumer.assign(tps)
        yield consumer


async def read(
    consumer: AIOKafkaConsumer, count: int, partitions: tuple[TopicPartition, ...] = (), **arguments: Any
) -> dict[TopicPartition, list[Any]]:
    """Return the values of ``count`` records by partition, of ``partitions`` if any are given."""
    found: dict[TopicPartition, list[Any]] = {}
    while sum(map(len, found.values())) < count:
        for tp, records in (await consumer.getmany(*partitions, timeout_ms=1_000, **arguments)).items():
            found.setdefault(tp, []).extend(record.value for record in records)
    return found


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_records_are_read_in_order_without_a_thread(cluster: EmbeddedCluster, loop: str) -> None:
    tps = new_topic(cluster, 3, 2_000)

    async def main() -> None:
        before = set(threading.enumerate())
        async with reading(cluster, *tps) as consumer:
            assert await read(consumer, 6_000) == dict.fromkeys(tps, numbers(2_000))
            assert set(threading.enumerate()) == before
            assert await consumer.getmany(timeout_ms=50) == {}
        assert set(threading.enumerate()) == before

    run(main(), loop)


def test_loops_yield_records_in_order_and_resume(cluster: EmbeddedCluster) -> None:
    tps = new_topic(cluster, 2, 1_500)

    async def main() -> None:
        async with reading(cluster, *tps) as consumer:
            seen: dict[TopicPartition, list[Any]] = {tp: [] for tp in tps}
            for count in (1, 2, 7, 700, 2_290):  # a loop that was left goes on in the next one
                async for record in consumer:
                    tp = TopicPartition(record.topic, record.partition)
                    seen[tp].append(record.value)
                    assert await consumer.position(tp) == record.offset + 1
                    count -= 1  # noqa: PLW2901
                    if not count:
                        break
            assert seen == dict.fromkeys(tps, numbers(1_500))

    run(main())


def test_a_loop_that_takes_records_slowly_lets_the_event_loop_run(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 3_000)

    async def main() -> None:
        async with reading(cluster, tp) as consumer:
            loop = asyncio.get_running_loop()
            iterations = 0

            async def count() -> None:
                nonlocal iterations
                while True:
                    iterations += 1
                    await asyncio.sleep(0)

            counting = asyncio.ensure_future(count())
            seen = 0
            async for _ in consumer:
                seen += 1
                until_s = loop.time() + 0.0005  # work without an await
                while loop.time() < until_s:
                    pass
                if seen == 1_000:
                    before = iterations
                if seen == 1_400:
                    break
            counting.cancel()
            assert iterations - before >= 10  # 400 records take 200 ms

    run(main())


def test_getone_getmany_and_loops_can_be_mixed(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 100)

    async def main() -> None:
        async with reading(cluster, tp) as consumer:
            seen = [(await consumer.getone()).value for _ in range(10)]
            many = await consumer.getmany(timeout_ms=1_000, max_records=15)
            seen += [record.value for record in many[tp]]
            assert len(seen) == 25 or len(many[tp]) < 15
            seen.append((await consumer.getone()).value)
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 60:
                    break
            batch = await consumer.getmany_arrow(timeout_ms=1_000, columns=["value"])
            seen += batch.column("value").to_pylist()
            while len(seen) < 100:
                seen.append((await consumer.getone(tp)).value)
            assert seen == numbers(100)

    run(main())


def test_getone_returns_records_of_requested_partitions_only(cluster: EmbeddedCluster) -> None:
    one, two, three = new_topic(cluster, 3, 50)

    async def main() -> None:
        async with reading(cluster, one, two, three) as consumer:
            # The others' records are buffered, and do not hold up those that are asked for.
            assert await read(consumer, 50, max_records=7) or True
            await consumer.seek_to_beginning()
            assert [(await consumer.getone(two)).value for _ in range(50)] == numbers(50)
            write(cluster, two, 10, start=50)
            found = [(await consumer.getone(two)).value for _ in range(5)]
            assert found == numbers(5, start=50)
            rest: dict[TopicPartition, list[Any]] = {}
            while len(rest.get(three, ())) < 50:
                rest.update(await consumer.getmany(three, timeout_ms=1_000))
            assert [record.value for record in rest[three]] == numbers(50)
            assert await consumer.getmany(three) == {}
            assert await read(consumer, 55) == {one: numbers(50), two: numbers(5, start=55)}

    run(main())


def test_concurrent_tasks_wait_for_different_partitions(cluster: EmbeddedCluster) -> None:
    tps = new_topic(cluster, 4)

    async def main() -> None:
        async with reading(cluster, *tps) as consumer:
            tasks = [asyncio.ensure_future(consumer.getone(tp)) for tp in tps[:3]]
            for tp in reversed(tps):
                write(cluster, tp, 1)
            records = await asyncio.gather(*tasks)
            assert [record.partition for record in records] == [0, 1, 2]
            assert (await consumer.getone()).partition == 3

    run(main())


def test_loop_and_getone_of_one_partition_run_concurrently(cluster: EmbeddedCluster) -> None:
    """The loop's records stay with it, though only the other partition is fetched meanwhile."""
    one, two = new_topic(cluster, 2)
    write(cluster, one, 200)

    async def main() -> None:
        async with reading(cluster, one, two) as consumer:
            waiting = asyncio.ensure_future(consumer.getone(two))
            seen = []
            async for record in consumer:
                seen.append(record.value)
                await asyncio.sleep(0)
                if len(seen) == 200:
                    break
            assert seen == numbers(200)
            fetches = len(cluster.requests_of(ApiKeys.FETCH))
            write(cluster, two, 1)
            assert (await waiting).partition == 1
            assert len(cluster.requests_of(ApiKeys.FETCH)) - fetches < 20

    run(main())


def test_concurrent_tasks_share_the_records(cluster: EmbeddedCluster) -> None:
    tps = new_topic(cluster, 2, 300)

    async def main() -> None:
        async with reading(cluster, *tps) as consumer:
            seen: list[tuple[int, int]] = []

            async def take_one_by_one() -> None:
                while True:
                    record = await consumer.getone()
                    seen.append((record.partition, record.offset))
                    await asyncio.sleep(0)

            async def take_many() -> None:
                while True:
                    for records in (await consumer.getmany(timeout_ms=100, max_records=5)).values():
                        seen.extend((record.partition, record.offset) for record in records)

            tasks = [asyncio.ensure_future(take()) for take in (take_one_by_one, take_many, take_one_by_one)]
            await until(lambda: len(seen) == 600)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(300)]

    run(main())


def test_many_waiting_tasks_get_records_in_order(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster)

    async def main() -> None:
        async with reading(cluster, tp, auto_offset_reset="latest") as consumer:
            await consumer.seek_to_end()
            seen: list[int] = []

            async def take_some() -> None:
                for _ in range(20):
                    seen.append((await consumer.getone()).offset)  # noqa: PERF401 - in the order of all tasks

            tasks = [asyncio.ensure_future(take_some()) for _ in range(50)]
            await asyncio.sleep(0.01)
            for portion in (16, 64, 16):  # what a loop takes at a time changes while tasks wait
                consumer._portion = portion
                write(cluster, tp, 100)
                await until(lambda: len(seen) % 100 == 0 and seen)
            write(cluster, tp, 700)
            await asyncio.gather(*tasks)
            assert seen == list(range(1_000))

    run(main())


def test_an_unexpected_error_is_raised_and_the_consumer_connects_anew(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 50)

    async def main() -> None:
        async with reading(cluster, tp) as consumer:
            assert len((await consumer.getmany(timeout_ms=5_000, max_records=20))[tp]) == 20
            inner = consumer._consumer
            assert inner is not None
            update = inner.consumer.update_between_calls
            calls: list[int] = []

            def fail() -> None:
                calls.append(1)
                if len(calls) == 1:
                    raise ValueError("a bug")
                update()

            inner.consumer.update_between_calls = fail  # type: ignore[method-assign]
            inner.driver.wake()
            await until(lambda: calls)
            with pytest.raises(ValueError, match="a bug"):
                await consumer.getone()
            assert await read(consumer, 30) == {tp: numbers(30, start=20)}

    run(main())


def test_waiting_getone_returns_new_records(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster)

    async def main() -> None:
        async with reading(cluster, tp, auto_offset_reset="latest") as consumer:
            assert await consumer.getmany() == {}
            await consumer.seek_to_end()
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.01)
            write(cluster, tp, 3)
            assert (await waiting).value == b"0"
            assert [(await anext(consumer)).value for _ in range(2)] == [b"1", b"2"]

    run(main())


def test_deserializers_and_interceptors_are_applied(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster)
    write_values(cluster, tp, [b'{"a": 1}', b"not json", b'{"b": 2}'])
    calls: list[int] = []

    class Counting(ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            calls.append(sum(map(len, records.values())))
            return records

    async def main() -> None:
        settings = {"value_deserializer": json.loads, "interceptor_classes": [Counting]}
        async with reading(cluster, tp, **settings) as consumer:
            assert (await consumer.getone()).value == {"a": 1}
            for _ in range(2):
                with pytest.raises(RecordDeserializationError) as caught:
                    await consumer.getone()
                assert caught.value.offset == 1
            consumer.seek(tp, caught.value.offset + 1)
            assert (await consumer.getone()).value == {"b": 2}
        assert calls == [1, 1]

    run(main())


def test_getmany_arrow_returns_chosen_columns(cluster: EmbeddedCluster) -> None:
    tps = new_topic(cluster, 2, 500)

    async def main() -> None:
        async with reading(cluster, *tps) as consumer:
            values: list[Any] = []
            while len(values) < 300:
                batch = await consumer.getmany_arrow(
                    timeout_ms=1_000, columns=["partition", "value"], until=dict.fromkeys(tps, 150)
                )
                assert isinstance(batch, pa.RecordBatch)
                values += batch.column("value").to_pylist()
            assert sorted(values) == sorted(numbers(150) * 2)
            assert consumer.paused() == set(tps)
            assert (await consumer.getmany_arrow(timeout_ms=10)).num_rows == 0
            consumer.resume(*tps)
            assert await read(consumer, 700) == dict.fromkeys(tps, numbers(350, start=150))

    run(main())


def test_paused_partitions_return_no_records(cluster: EmbeddedCluster) -> None:
    one, two = new_topic(cluster, 2, 20)

    async def main() -> None:
        async with reading(cluster, one, two) as consumer:
            consumer.pause(one)
            assert consumer.paused() == {one}
            assert await read(consumer, 20) == {two: numbers(20)}
            assert await consumer.getmany(timeout_ms=50) == {}
            consumer.resume(one)
            assert await read(consumer, 20) == {one: numbers(20)}
            with pytest.raises(IllegalStateError, match="not assigned"):
                consumer.pause(TopicPartition(one.topic, 7))

    run(main())


# --- positions --------------------------------------------------------------------------------------------------------


def test_seek_changes_positions(cluster: EmbeddedCluster) -> None:
    one, two = new_topic(cluster, 2, 30)

    async def main() -> None:
        async with reading(cluster, one, two) as consumer:
            assert await consumer.position(one) == 0
            consumer.seek(one, 25)
            assert await consumer.position(one) == 25
            assert await read(consumer, 35) == {one: numbers(5, start=25), two: numbers(30)}
            assert await consumer.seek_to_beginning(one)
            assert (await consumer.position(one), await consumer.position(two)) == (0, 30)
            assert await consumer.seek_to_end()
            assert await consumer.position(one) == 30
            assert consumer.highwater(one) == 30
            assert consumer.last_stable_offset(one) == -1
            told_ms = consumer.last_poll_timestamp(two)
            assert told_ms is not None
            assert told_ms > 1_600_000_000_000
            with pytest.raises(IllegalStateError, match="is not assigned"):
                await consumer.position(TopicPartition("elsewhere", 0))

    run(main())


def test_a_seek_does_not_wait_for_the_fetch_in_flight(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, records=3)

    async def main() -> None:
        async with reading(cluster, tp, fetch_max_wait_ms=29_000) as consumer:
            assert await read(consumer, 3) == {tp: numbers(3)}
            for offset in (1, 2, 0, 1):  # all but the first find both connections with a fetch that waits
                assert await consumer.getmany() == {}  # a fetch from the end is in flight
                consumer.seek(tp, offset)
                found = await consumer.getmany(timeout_ms=10_000)
                assert [record.offset for record in found[tp]] == list(range(offset, 3))
            consumer.seek(tp, 3)
            await asyncio.sleep(0)
            write(cluster, tp, 1, start=3)
            assert await read(consumer, 1) == {tp: numbers(1, start=3)}

    run(main())


def test_last_stable_offset_is_known_after_a_fetch(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 5)

    async def main() -> None:
        async with reading(cluster, tp, isolation_level="read_committed") as consumer:
            assert consumer.last_stable_offset(tp) is None
            assert consumer.last_poll_timestamp(tp) is None
            await read(consumer, 5)
            assert consumer.last_stable_offset(tp) == 5

    run(main())


def test_missing_offset_raises_without_a_reset_policy(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 5)

    async def main() -> None:
        async with reading(cluster, tp, auto_offset_reset="none") as consumer:
            for _ in range(2):
                with pytest.raises(NoOffsetForPartitionError):
                    await consumer.getone()
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.position(tp)
            consumer.seek(tp, 3)
            assert (await consumer.getone()).value == b"3"
            consumer.seek(tp, 99)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getmany(timeout_ms=5_000)
            await consumer.seek_to_beginning()
            assert (await consumer.getone()).value == b"0"

    run(main())


@pytest.mark.parametrize("group_id", [None, "asked"])
def test_missing_offset_of_an_unrequested_partition_is_ignored(cluster: EmbeddedCluster, group_id: str | None) -> None:
    one, two = new_topic(cluster, 2, 5)

    async def main() -> None:
        async with reading(cluster, one, two, auto_offset_reset="none", group_id=group_id) as consumer:
            consumer.seek(one, 1)
            for offset in (1, 2):
                assert (await consumer.getone(one)).offset == offset
            assert await read(consumer, 2, max_records=1, partitions=(one,)) == {one: [b"3", b"4"]}
            assert await consumer.position(one) == 5
            assert await consumer.getmany(one, timeout_ms=100) == {}
            for partitions in ((two,), (one, two), ()):
                with pytest.raises(NoOffsetForPartitionError) as raised:
                    await consumer.getmany(*partitions, timeout_ms=5_000)
                assert raised.value.partitions == {two}
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.position(two)
            other = asyncio.create_task(consumer.getone(one))
            with pytest.raises(NoOffsetForPartitionError):  # and not in the other task
                await consumer.getone(two)
            write(cluster, one, 1, 5)
            assert (await other).value == b"5"
            consumer.seek(two, 4)
            assert (await consumer.getone()).value == b"4"

    run(main())


def test_an_error_is_raised_only_by_calls_for_its_partition(cluster: EmbeddedCluster) -> None:
    one, two = new_topic(cluster, 2, 5)

    async def main() -> None:
        async with reading(cluster, one, two, auto_offset_reset="none") as consumer:
            consumer.seek(two, 99)
            with pytest.raises(OffsetOutOfRangeError):  # it is buffered, and raised again
                await consumer.getone(two)
            consumer.seek(one, 0)
            buffered = consumer._usable().consumer.has_available_fetches
            two_is_buffered = asyncio.create_task(consumer.getmany(two, timeout_ms=0))
            await asyncio.wait({two_is_buffered})
            await until(lambda: buffered((two,)))
            assert await read(consumer, 5, partitions=(one,)) == {one: numbers(5)}
            with pytest.raises(OffsetOutOfRangeError) as raised:
                await consumer.getone(two)
            assert raised.value.offset_out_of_range_partitions == {two: 99}

    run(main())


def test_beginning_end_and_time_offsets_are_looked_up(cluster: EmbeddedCluster) -> None:
    one, two = new_topic(cluster, 2, 10)

    async def main() -> None:
        async with reading(cluster) as consumer:
            assert await consumer.beginning_offsets([one, two]) == {one: 0, two: 0}
            assert await consumer.end_offsets([one]) == {one: 10}
            found = await consumer.offsets_for_times({one: 1, two: 4_000_000_000_000})
            first = found[one]
            assert isinstance(first, OffsetAndTimestamp)
            assert first.offset == 0
            assert found[two] is None
            assert one.topic in await consumer.topics()
            consumer.assign([one])
            await consumer.position(one)
            assert consumer.partitions_for_topic(one.topic) == {0, 1}
            assert consumer.partitions_for_topic("unheard-of") is None
            assert await consumer.client.force_metadata_update()
            assert consumer.client.cluster.topics() == {one.topic}
            assert consumer.metrics()["consumer-fetch-manager-metrics"]

    run(main())


# --- subscriptions without a group, and their changes -----------------------------------------------------------------


def test_a_consumer_without_a_group_reads_everything(cluster: EmbeddedCluster) -> None:
    one, two = new_topic(cluster, 2, 10)

    async def main() -> None:
        consumer = consumer_of(cluster, one.topic)
        assert consumer.subscription() == {one.topic}
        assert consumer.assignment() == set()
        async with consumer:
            assert consumer.assignment() == {one, two}
            assert await read(consumer, 20) == {one: numbers(10), two: numbers(10)}
            with pytest.raises(GroupIdMissingError, match="Requires group_id"):
                await consumer.commit()
            with pytest.raises(IllegalOperation):
                await consumer.committed(one)

    run(main())


def test_subscription_can_be_changed_while_running(cluster: EmbeddedCluster) -> None:
    first = new_topic(cluster, 1, 5)[0]
    second = new_topic(cluster, 1, 5)[0]

    async def main() -> None:
        consumer = consumer_of(cluster)
        consumer.subscribe(pattern=f"{first.topic}$")  # before start
        async with consumer:
            assert await read(consumer, 5) == {first: numbers(5)}
            assert consumer.subscription() == {first.topic}
            with pytest.raises(IllegalStateError, match="exclude each other"):
                consumer.assign([second])
            consumer.unsubscribe()
            assert consumer.assignment() == set()
            consumer.assign([second])
            assert await read(consumer, 5) == {second: numbers(5)}
            consumer.assign([])
            consumer.subscribe([first.topic, second.topic])
            assert await read(consumer, 10) == {first: numbers(5), second: numbers(5)}

    run(main())


def test_pattern_must_match_only_the_beginning(cluster: EmbeddedCluster) -> None:
    for name in ("begin-1", "begin-2", "not-begin-1"):
        cluster.create_topic(name, 1)

    async def main() -> None:
        consumer = consumer_of(cluster)
        consumer.subscribe(pattern="begin-")
        async with consumer:
            await until(consumer.assignment)
            assert consumer.subscription() == {"begin-1", "begin-2"}

    run(main())


# --- errors -----------------------------------------------------------------------------------------------------------


def test_start_fails_without_a_broker_and_can_be_repeated(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 1)

    async def main() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers="localhost:1")
        consumer.assign([tp])
        for _ in range(2):
            with pytest.raises(DisconnectError, match=r"Unable to bootstrap from localhost:1"):
                await consumer.start()
        await consumer.stop()

    run(main())


def test_lookup_of_unknown_topic_times_out(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 3)

    async def main() -> None:
        async with reading(cluster, default_api_timeout_ms=700, request_timeout_ms=600) as consumer:
            with pytest.raises(KafkaTimeoutError, match="unheard-of"):
                await consumer.end_offsets([TopicPartition("unheard-of", 0)])
            assert await consumer.end_offsets([tp]) == {tp: 3}

    run(main())


def test_a_loop_ends_when_the_consumer_stops(cluster: EmbeddedCluster) -> None:
    (tp,) = new_topic(cluster, 1, 10)

    async def main() -> None:
        consumer = consumer_of(cluster)
        await consumer.start()
        consumer.assign([tp])
        seen: list[Any] = []

        async def loop() -> None:
            async for record in consumer:
                seen.append(record.value)  # noqa: PERF401 - the loop ends with the consumer

        looping = asyncio.ensure_future(loop())
        await until(lambda: len(seen) == 10)
        one, many = consumer.getone(), consumer.getmany(timeout_ms=60_000)
        waiting = [asyncio.ensure_future(one), asyncio.ensure_future(many)]
        await asyncio.sleep(0)
        await consumer.stop()
        await looping
        with pytest.raises(ConsumerStoppedError):
            await waiting[0]
        assert await waiting[1] == {}
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany()
        with pytest.raises(ConsumerStoppedError):
            await consumer.getone()
        with pytest.raises(ConsumerStoppedError):
            aiter(consumer)
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()

    run(main())


def test_commit_accepts_offsets_with_metadata(cluster: EmbeddedCluster) -> None:
    one, two = new_topic(cluster, 2, 10)

    async def main() -> None:
        group = f"group-{next(_numbers)}"
        async with reading(cluster, one, two, group_id=group, enable_auto_commit=False) as consumer:
            assert await consumer.committed(one) is None
            await read(consumer, 20)
            assert await consumer.committed(one) is None
            await consumer.commit({one: 3, two: (4, "a note")})
            assert await asyncio.gather(*(consumer.committed(tp) for tp in (one, two, one))) == [3, 4, 3]
            await consumer.commit({one: OffsetAndMetadata(5, "")})
            assert await consumer.committed(one) == 5
            await consumer.commit()
            assert await consumer.committed(two) == 10
            await consumer.commit({one: 2})
            assert await consumer.seek_to_committed(one) == {one: 2}
            assert (await consumer.getone()).offset == 2
        async with reading(cluster, one, two, group_id=group, enable_auto_commit=False) as consumer:
            assert await consumer.position(one) == 2
            assert await consumer.position(two) == 10

    run(main())


def test_async_consumer_is_an_alias() -> None:
    assert AsyncConsumer is AIOKafkaConsumer
