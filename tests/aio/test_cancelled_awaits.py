"""Calls that are cancelled at each of their awaits in turn: transactions, admin calls, the start and end of clients.

Calls for records, sends and acknowledgements have such tests beside their other ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.aio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer
from pykclient.errors import KafkaError
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.admin.test_wrong_arguments import CALLS as ADMIN_CALLS
from tests.aio.loops import run

_numbers = itertools.count()
TP = TopicPartition("orders", 0)

Call = Callable[[], Coroutine[Any, Any, Any]]


class CancelledAt(Awaitable[Any]):
    """Awaits a coroutine, and cancels the task when the coroutine waits for the ``place``-th time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], place: int) -> None:
        self._coroutine = coroutine
        self._place = place

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        error: BaseException | None = None
        for place in itertools.count(1):
            try:
                awaited = next(steps) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            if place == self._place:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            error = None
            try:
                yield awaited
            except BaseException as raised:  # noqa: BLE001 - the coroutine gets it
                error = raised
        raise AssertionError


async def is_cancelled(call: Call, place: int) -> bool:
    """Cancel a call at its ``place``-th await; return whether that ended it. If there is no such await, it runs."""

    async def main() -> None:
        await CancelledAt(call(), place)

    task = asyncio.ensure_future(main())
    await asyncio.wait([task])
    if task.cancelled():
        return True
    task.result()
    return False


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as made:
        made.create_topic("orders", 2)
        with KafkaProducer(bootstrap_servers=made.bootstrap_servers) as producer:
            producer.send_batch("orders", [b"0", b"1", b"2"], partition=0).get(10)
        yield made


def new_topic(cluster: EmbeddedCluster) -> TopicPartition:
    topic = f"cancelled-{next(_numbers)}"
    cluster.create_topic(topic, 1)
    return TopicPartition(topic, 0)


def committed_values(cluster: EmbeddedCluster, tp: TopicPartition) -> list[bytes | None]:
    with KafkaConsumer[Any, bytes](
        bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([tp])
        values: list[bytes | None] = []
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            values += [record.value for records in consumer.poll(1_000).values() for record in records]
    return values


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_cancelled_commit_or_abort_ends_the_transaction(cluster: EmbeddedCluster, how: str) -> None:
    tp = new_topic(cluster)

    async def main() -> list[bytes]:
        sent = []
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=tp.topic) as producer:
            end = getattr(producer, f"{how}_transaction")
            for place in itertools.count(1):
                await producer.begin_transaction()
                sent.append(b"%d" % place)
                await producer.send(tp.topic, sent[-1])
                if not await is_cancelled(end, place):
                    assert place > 1
                    break
                await end()  # goes on, and has a result
            await producer.begin_transaction()
            await producer.send(tp.topic, b"last")
            await producer.commit_transaction()
        return [*(sent if how == "commit" else []), b"last"]

    expected = run(main())
    assert committed_values(cluster, tp) == expected


def test_cancelled_send_offsets_keeps_the_transaction_usable(cluster: EmbeddedCluster) -> None:
    tp = new_topic(cluster)

    async def main() -> int:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=tp.topic) as producer:
            for place in itertools.count(1):
                await producer.begin_transaction()

                async def send(offset: int = place) -> None:
                    await producer.send_offsets_to_transaction({tp: offset}, tp.topic)

                if not await is_cancelled(send, place):
                    assert place > 1
                    await producer.commit_transaction()
                    return place
                await send()
                await producer.commit_transaction()
        raise AssertionError

    last = run(main())
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=tp.topic) as consumer:
        assert consumer.committed(tp) == last


@pytest.mark.parametrize("settings", [{}, {"transactional_id": "started"}], ids=["plain", "transactional"])
def test_producer_survives_cancelled_start_and_stop(cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
    tp = new_topic(cluster)

    async def send(producer: AIOKafkaProducer, value: bytes) -> None:
        async with producer.transaction() if settings else contextlib.nullcontext():
            await producer.send(tp.topic, value)

    async def main() -> list[bytes]:
        sent = []
        for place in itertools.count(1):
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings)
            is_first_cancelled = await is_cancelled(producer.start, place)
            if is_first_cancelled:
                await producer.start()
            sent.append(b"%d" % place)
            await send(producer, sent[-1])
            is_second_cancelled = await is_cancelled(producer.stop, place)
            await producer.stop()
            if not (is_first_cancelled or is_second_cancelled):
                assert place > 1
                return sent
        raise AssertionError

    expected = run(main())
    assert committed_values(cluster, tp) == expected


@pytest.mark.parametrize("group", [False, True], ids=["alone", "group"])
def test_consumer_survives_cancelled_start_and_stop(cluster: EmbeddedCluster, group: bool) -> None:
    async def main() -> None:
        for place in itertools.count(1):
            settings: dict[str, Any] = {"group_id": f"cancelled-{next(_numbers)}"} if group else {}
            consumer = AIOKafkaConsumer(
                "orders", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **settings
            )
            is_first_cancelled = await is_cancelled(consumer.start, place)
            if is_first_cancelled:
                await consumer.start()
            assert (await consumer.getone(TP)).offset == 0
            is_second_cancelled = await is_cancelled(consumer.stop, place)
            await consumer.stop()
            if not (is_first_cancelled or is_second_cancelled):
                assert place > 1
                return

    run(main())


def test_admin_client_survives_cancelled_calls(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        cancelled = 0
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5) as admin:
            for method, arguments in ADMIN_CALLS.items():
                valid = {**arguments, "timeout_ms": 1_000}

                async def call(method: str = method, valid: dict[str, Any] = valid) -> None:
                    with contextlib.suppress(KafkaError):  # some things that it asks for are not there
                        await getattr(admin, method)(**valid)

                for place in itertools.count(1):
                    assert place < 1_000
                    if not await is_cancelled(call, place):
                        break
                    cancelled += 1
                assert [topic.name for topic in await admin.list_topics()][:1] == ["orders"]
        assert cancelled >= len(ADMIN_CALLS)

    run(main())


def test_admin_client_survives_cancelled_start_and_close(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        for place in itertools.count(1):
            admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
            is_first_cancelled = await is_cancelled(admin.start, place)
            if is_first_cancelled:
                await admin.start()
            await admin.describe_cluster()
            is_second_cancelled = await is_cancelled(admin.close, place)
            await admin.close()
            if not (is_first_cancelled or is_second_cancelled):
                return

    run(main())
