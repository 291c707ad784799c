"""No await of the asyncio clients keeps returning at once: the event loop would freeze."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.aio import (
    AIOKafkaAdminClient,
    AIOKafkaConsumer,
    AIOKafkaProducer,
    AIOKafkaShareConsumer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from pykclient.aio.errors import ConsumerStoppedError
from pykclient.aio.loop_driver import LoopWaits
from pykclient.confluent.aio import AIOConsumer, AIOProducer
from pykclient.errors import InvalidProducerEpochError, ProducerFencedError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import run, until
from tests.aio.spinning import until_unwatched

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as made:
        made.create_topic("t", 1)
        made.create_topic("empty", 1)
        with KafkaProducer(bootstrap_servers=made.bootstrap_servers) as producer:
            producer.send_batch("t", [b"%d" % n for n in range(10)], partition=0).get(10)
        yield made


def consumer_of(cluster: EmbeddedCluster, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    defaults = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer(*topics, **{**defaults, **settings})


class ReadingListener(ConsumerRebalanceListener):
    """Starts a reading task on assignment, as programs with one task per partition do, and then ends ``start``."""

    def __init__(self, read: Callable[[], Any], fail: Callable[[], Any]) -> None:
        self._read = read
        self._fail = fail
        self.tasks: list[asyncio.Task[Any]] = []

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.tasks.append(asyncio.create_task(self._reading()))
        await asyncio.sleep(0.05)  # the task waits for records
        await self._fail()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing."""

    async def _reading(self) -> None:
        while True:
            await self._read()


async def raise_value_error() -> None:
    raise ValueError("the state store is down")


async def load_forever() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("how", ["getone", "getone of a partition", "getmany", "arrow", "loop"])
@pytest.mark.parametrize("fail", [raise_value_error, load_forever])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_readers_raise_if_the_attempt_to_start_fails(
    cluster: EmbeddedCluster, how: str, fail: Callable[[], Any], protocol: str
) -> None:
    async def main() -> None:
        group = f"failing-{next(_numbers)}"
        consumer = consumer_of(cluster, group_id=group, group_protocol=protocol)
        read: dict[str, Callable[[], Any]] = {
            "getone": consumer.getone,
            "getone of a partition": lambda: consumer.getone(TopicPartition("t", 0)),
            "getmany": lambda: consumer.getmany(timeout_ms=60_000),
            "arrow": lambda: consumer.getmany_arrow(timeout_ms=60_000),
            "loop": consumer.__anext__,
        }
        listener = ReadingListener(read[how], fail)
        consumer.subscribe(["t"], listener=listener)
        starting = asyncio.create_task(consumer.start())
        await until(lambda: listener.tasks or starting.done())
        if fail is load_forever:
            await asyncio.sleep(0.1)
            starting.cancel()
        (outcome,) = await asyncio.gather(starting, return_exceptions=True)
        assert outcome is not None
        (reader,) = listener.tasks
        await asyncio.wait({reader}, timeout=30)
        error = reader.exception()
        assert isinstance(error, StopAsyncIteration if how == "loop" else ConsumerStoppedError), repr(error)
        if how != "loop":
            assert "the attempt to start" in str(error)
        await consumer.stop()

    run(main())


def test_reader_raises_if_a_listener_ends_the_program(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        consumer = consumer_of(cluster)
        consumer.assign([TopicPartition("empty", 0)])
        await consumer.start()
        reader = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.05)
        assert consumer._consumer is not None
        consumer._consumer.fail(SystemExit(3))
        with pytest.raises(ConsumerStoppedError, match="SystemExit"):
            await asyncio.wait_for(reader, 30)
        with pytest.raises(ConsumerStoppedError, match="SystemExit"):
            await consumer.getmany(timeout_ms=60_000)
        await consumer.stop()

    run(main())


def test_seek_without_backoff_lets_the_loop_run(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster, retry_backoff_ms=0) as consumer:
            tp = TopicPartition("t", 0)
            consumer.assign([tp])
            assert (await consumer.getone()).offset == 0
            hold = cluster.faults.hold(ApiKeys.LIST_OFFSETS, times=1)
            seeking = asyncio.create_task(consumer.seek_to_end(tp))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not seeking.done()
            await until(lambda: hold.release() == 1)  # once it has come, which the busy loop may delay
            assert await seeking
            assert await consumer.position(tp) == 10
            await consumer.seek_to_beginning(tp)
            assert await consumer.position(tp) == 0

    run(main())


def test_fulfilled_waits_yield_to_the_loop() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        waits = LoopWaits(loop)
        iterations = 0
        is_over = False

        def count() -> None:
            nonlocal iterations
            iterations += 1
            if not is_over:
                loop.call_soon(count)

        count()
        for _ in range(100_000):
            await until_unwatched(waits, lambda: True, 1_000)
        is_over = True
        return iterations

    assert run(main()) > 1_000


# --- calls in a row --------------------------------------------------------------------------------------------------

#: Calls in a row that may end without a suspension. The next one must let the loop run.
MOST_CALLS = 100
#: Calls that are made for each record have a bound in time instead, about 5 ms and the rest of a batch. A fast machine
#: makes some 10,000 of them meanwhile; without a bound, there would be no end.
MOST_RECORDS = 100_000
FOR_RECORDS = {"getmany", "produce", "send"}
#: Values of arguments without a default, by name. All others get None, which most methods refuse.
ARGUMENTS: dict[str, Any] = {
    "topic": "t",
    "partition": TopicPartition("t", 0),
    "partitions": [TopicPartition("t", 0)],
    "timestamps": {TopicPartition("t", 0): 1},
    "group_id": "any",
    "offsets": {},
    "topics_or_ids": ["t"],
}
#: Methods that end the client come last.
LAST = ["close", "stop"]


def coroutine_methods(face: type) -> list[str]:
    names = [
        name
        for name in dir(face)
        if not name.startswith("_") and inspect.iscoroutinefunction(inspect.getattr_static(face, name))
    ]
    return sorted(names, key=lambda name: (name in LAST, name))


def arguments_of(method: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(method).parameters.values()
    return {
        it.name: ARGUMENTS.get(it.name)
        for it in parameters
        if it.default is it.empty and it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)
    }


async def most_in_a_row(call: Callable[[], Any], limit: int) -> int:
    """Return how many calls in a row have ended without letting the loop run; stop at more than ``limit``."""
    loop = asyncio.get_running_loop()
    iterations = 0
    is_over = False

    def count() -> None:
        nonlocal iterations
        iterations += 1
        if not is_over:
            loop.call_soon(count)

    count()
    most = in_a_row = suspensions = 0
    try:
        async with asyncio.timeout(0.3):
            while suspensions < 2 and most <= limit:
                before = iterations
                with suppress(Exception):  # as a program that only logs
                    await call()
                if iterations == before:
                    in_a_row += 1
                    most = max(most, in_a_row)
                else:
                    in_a_row, suspensions = 0, suspensions + 1
    except TimeoutError:  # the last call waits, and so lets the loop run
        return most
    finally:
        is_over = True
    return most


@asynccontextmanager
async def healthy(face: type, cluster: EmbeddedCluster) -> AsyncIterator[Any]:
    servers = cluster.bootstrap_servers
    client: Any
    if face is AIOProducer:
        client = AIOProducer({"bootstrap.servers": servers})
    elif face is AIOConsumer:
        client = AIOConsumer({"bootstrap.servers": servers, "group.id": "in-a-row"})
    elif face is AIOKafkaShareConsumer:
        client = AIOKafkaShareConsumer("t", bootstrap_servers=servers, group_id="in-a-row")
    else:
        client = face(bootstrap_servers=servers)
    async with client:
        if face is AIOKafkaConsumer:
            client.assign([TopicPartition("t", 0)])
        yield client


@asynccontextmanager
async def closed(face: type, cluster: EmbeddedCluster) -> AsyncIterator[Any]:
    async with healthy(face, cluster) as client:
        pass
    yield client


@asynccontextmanager
async def fenced(face: type, cluster: EmbeddedCluster) -> AsyncIterator[Any]:
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": f"fenced-{next(_numbers)}"}
    async with face(**settings) as first, face(**settings):
        await first.begin_transaction()
        with pytest.raises(InvalidProducerEpochError):
            await first.send_and_wait("t", b"x")
        with pytest.raises(ProducerFencedError):
            await first.abort_transaction()
        yield first


FACES = [AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaShareConsumer, AIOKafkaAdminClient, AIOProducer, AIOConsumer]


@pytest.mark.parametrize(
    ("face", "state"),
    [*itertools.product(FACES, [healthy, closed]), (AIOKafkaProducer, fenced)],
    ids=lambda it: it.__name__,
)
def test_every_coroutine_that_is_called_in_a_row_lets_the_loop_run(
    cluster: EmbeddedCluster, face: type, state: Callable[[type, EmbeddedCluster], Any]
) -> None:
    async def main() -> dict[str, int]:
        async with state(face, cluster) as client:
            unfair = {}
            for name in coroutine_methods(face):
                method = getattr(client, name)
                call = partial(method, **arguments_of(method))
                limit = MOST_RECORDS if state is healthy and name in FOR_RECORDS else MOST_CALLS
                most = await asyncio.create_task(most_in_a_row(call, limit))
                if most > limit:
                    unfair[name] = most
            return unfair

    assert run(main()) == {}
