"""A call that is cancelled, at whichever await, has no half effect, and leaves the producer usable."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from pykclient.aio import AIOKafkaProducer
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.aio.loops import run, some_iterations, until

_numbers = itertools.count()

#: Calls are cancelled after 0, 1, 2 ... iterations of the loop, until one ends before that.
MOST_ITERATIONS = 5_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"auto.create.topics.enable": False}) as made:
        made.create_topic("t", 2)
        yield made


def values(cluster: EmbeddedCluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for partition in range(2) for record in cluster.log(TopicPartition(topic, partition))]


async def slowly(value: bytes) -> bytes:
    await some_iterations(3)
    return value


Values = list[bytes]


async def cancelled_everywhere(call: Callable[[bytes], Coroutine[Any, Any, object]]) -> tuple[Values, Values]:
    """Cancel ``call`` after each number of iterations. Return the values of the calls that were cancelled and ended."""
    ended: list[bytes] = []
    cancelled: list[bytes] = []
    for iterations in itertools.chain(range(20), itertools.count(20, 7)):
        assert iterations < MOST_ITERATIONS
        value = b"%d" % next(_numbers)
        task = asyncio.ensure_future(call(value))
        for _ in range(iterations):
            if task.done():
                break
            await asyncio.sleep(0)
        if task.done():
            await task
            ended.append(value)
            return cancelled, ended
        task.cancel()
        try:
            await task
            ended.append(value)
        except asyncio.CancelledError:
            cancelled.append(value)
    raise AssertionError


def test_send_can_be_cancelled_while_serializers_run(cluster: EmbeddedCluster) -> None:
    async def main() -> tuple[list[bytes], list[bytes]]:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, value_serializer=slowly, key_serializer=slowly
        ) as producer:

            async def send(value: bytes) -> None:
                await producer.send("t", value, key=b"k")

            return await cancelled_everywhere(send)

    cancelled, ended = run(main())
    assert len(cancelled) > 3
    written = values(cluster)
    assert not set(cancelled) & set(written)  # a send that was cancelled sends nothing
    assert set(ended) <= set(written)


def test_send_can_be_cancelled_while_waiting_for_metadata(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("cold", 2)

    async def main() -> tuple[list[bytes], list[bytes]]:
        all_cancelled: list[bytes] = []
        while True:
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:

                async def send(value: bytes, producer: AIOKafkaProducer = producer) -> None:
                    await producer.send("cold", value)

                value = b"%d" % next(_numbers)
                task = asyncio.ensure_future(send(value))
                await some_iterations(len(all_cancelled))
                if task.done():
                    await task
                    return all_cancelled, [value]
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                all_cancelled.append(value)
                assert not producer._waits.waiting
                if len(all_cancelled) == 5:
                    await producer.partitions_for("cold")
                    await send(b"usable")
                    return all_cancelled, [b"usable"]

    cancelled, ended = run(main())
    written = values(cluster, "cold")
    assert not set(cancelled) & set(written)
    assert set(ended) <= set(written)


def test_send_can_be_cancelled_while_waiting_for_memory(cluster: EmbeddedCluster) -> None:
    hold = cluster.faults.hold(ApiKeys.PRODUCE)

    async def main() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, buffer_memory=40_000, max_batch_size=10_000
        ) as producer:
            waiting = [asyncio.ensure_future(producer.send("t", b"%d," % n + bytes(8_000))) for n in range(12)]
            await until(lambda: producer._memory._line)
            await some_iterations()
            first = next(number for number, task in enumerate(waiting) if not task.done())
            for task in waiting[first::2]:
                task.cancel()
            hold.remove()
            hold.release()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            kept = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, asyncio.Future)]
            assert kept == [*range(first), *range(first + 1, 12, 2)]
            await producer.flush()
            assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 40_000
            assert producer.metrics()["producer-metrics"]["waiting-threads"] == 0
            written = [value for value in values(cluster) if value and b"," in value]
            assert [int(value.split(b",")[0]) for value in sorted(written, key=lambda v: int(v.split(b",")[0]))] == kept

    run(main())


@pytest.mark.parametrize(
    "what", ["send_and_wait", "the future", "flush", "partitions_for", "send_columns", "send_batch"]
)
def test_other_calls_can_be_cancelled(cluster: EmbeddedCluster, what: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=2) as producer:

            async def call(value: bytes) -> None:
                if what == "send_and_wait":
                    await producer.send_and_wait("t", value)
                elif what == "the future":
                    await (await producer.send("t", value))
                elif what == "flush":
                    await producer.send("t", value)
                    await producer.flush()
                elif what == "partitions_for":
                    await producer.partitions_for("t")
                elif what == "send_columns":
                    await (await producer.send_columns("t", [value]))
                else:
                    batch = producer.create_batch()
                    batch.append(key=None, value=value, timestamp=None)
                    await (await producer.send_batch(batch, "t", partition=1))

            _, ended = await cancelled_everywhere(call)
            last = b"%d" % next(_numbers)
            await producer.send_and_wait("t", last)
            await producer.flush()
            assert last in values(cluster)
            if what != "partitions_for":
                assert set(ended) <= set(values(cluster))
            assert not producer._producer.components.accumulator._flushes  # type: ignore[union-attr]
            assert not producer._waits.waiting

    run(main())


def test_cancelled_stop_continues(cluster: EmbeddedCluster) -> None:
    hold = cluster.faults.hold(ApiKeys.PRODUCE)
    value = b"%d" % next(_numbers)

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        future = await producer.send("t", value)
        stopping = asyncio.ensure_future(producer.stop())
        await some_iterations(10)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        hold.remove()
        hold.release()
        await future  # it is sent in the background
        await producer.stop()

    run(main())
    assert value in values(cluster)


def test_cancelled_start_leaves_nothing_behind(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        for iterations in range(12):
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            starting = asyncio.ensure_future(producer.start())
            await some_iterations(iterations)
            starting.cancel()
            try:
                await starting
            except asyncio.CancelledError:
                await producer.start()
            await producer.send_and_wait("t", b"v")
            await producer.stop()

    run(main())


def test_cancelled_block_sends_buffered_records(cluster: EmbeddedCluster) -> None:
    value = b"%d" % next(_numbers)

    async def main() -> None:
        sent = asyncio.Event()

        async def work() -> None:
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000) as producer:
                await producer.send("t", value)
                sent.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert value in values(cluster)
