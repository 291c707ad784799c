"""Consumers that are cancelled, left, or used as they are not meant to be: nothing is lost, and nothing hangs."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import pickle
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.aio import AIOKafkaConsumer, ConsumerStoppedError, TopicPartition
from pykclient.errors import IllegalStateError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import LOOPS, run, until

WAIT_S = 60
TPS = [TopicPartition("t", 0), TopicPartition("t", 1)]
RECORDS = 400

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as made:
        made.create_topic("t", 2)
        made.create_topic("large", 1)
        with KafkaProducer(bootstrap_servers=made.bootstrap_servers) as producer:
            for tp in TPS:
                producer.send_batch("t", [b"%d" % n for n in range(RECORDS)], partition=tp.partition).get(10)
            for _ in range(4):
                producer.send_batch("large", [b"x" * 1_000] * 20_000).get(30)
        yield made


def consumer_of(cluster: EmbeddedCluster, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    defaults = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer(*topics, **{**defaults, **settings})


def new_group() -> str:
    return f"lived-{next(_numbers)}"


def test_start_with_assigned_partitions_asks_for_metadata_once(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        consumer = consumer_of(cluster, client_id="asks-once")
        consumer.assign(TPS)
        async with consumer:
            asked = cluster.requests_of(ApiKeys.METADATA, client_id="asks-once")
            assert len(asked) == 1

    run(main())


# --- cancellation -----------------------------------------------------------------------------------------------------


async def cancelled_everywhere(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Cancel ``call`` after 0, 1, 2 ... iterations of the loop, until one ends before that; return its result."""
    for iterations in itertools.chain(range(20), range(20, 5_000, 7)):
        task = asyncio.ensure_future(call())
        for _ in range(iterations):
            if task.done():
                break
            await asyncio.sleep(0)
        if task.done():
            return await task
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            continue
    raise AssertionError("the call never ended")


Seen = list[tuple[int, int]]


def note(seen: Seen, records: Any) -> None:
    seen += [(record.partition, record.offset) for record in records]


def complete(seen: Seen) -> bool:
    """Return whether each record was seen once, and each partition's in order."""
    for tp in TPS:
        assert [offset for partition, offset in seen if partition == tp.partition] == list(range(RECORDS))
    return True


@pytest.mark.parametrize("how", ["getone", "getone of a partition", "getmany", "loop", "arrow"])
def test_cancelled_call_loses_no_record(cluster: EmbeddedCluster, how: str) -> None:
    async def main() -> None:
        async with consumer_of(cluster, max_partition_fetch_bytes=700, fetch_max_bytes=700) as consumer:
            consumer.assign(TPS)
            seen: Seen = []
            turn = itertools.cycle(TPS)

            async def call() -> None:
                if how == "getone":
                    note(seen, [await consumer.getone()])
                elif how == "getone of a partition":
                    tp = next(turn)
                    if [partition for partition, _ in seen].count(tp.partition) < RECORDS:
                        note(seen, [await consumer.getone(tp)])
                elif how == "getmany":
                    for records in (await consumer.getmany(timeout_ms=60_000, max_records=9)).values():
                        note(seen, records)
                elif how == "arrow":
                    batch = await consumer.getmany_arrow(timeout_ms=60_000, max_records=9)
                    seen.extend(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
                else:
                    async for record in consumer:
                        note(seen, [record])
                        if len(seen) % 5 == 0:
                            break

            while len(seen) < 2 * RECORDS:
                await cancelled_everywhere(call)
            assert complete(seen)

    run(main())


def test_cancelled_calls_can_be_repeated(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster, group_id=new_group(), enable_auto_commit=False) as consumer:
            consumer.assign(TPS)
            assert await cancelled_everywhere(lambda: consumer.position(TPS[0])) == 0
            assert await cancelled_everywhere(lambda: consumer.end_offsets(TPS)) == dict.fromkeys(TPS, RECORDS)
            assert await cancelled_everywhere(lambda: consumer.offsets_for_times({TPS[0]: 0})) is not None
            assert await cancelled_everywhere(lambda: consumer.seek_to_end(TPS[1]))
            assert await cancelled_everywhere(consumer.topics) >= {"t"}
            await cancelled_everywhere(lambda: consumer.commit({TPS[0]: 7}))
            assert await cancelled_everywhere(lambda: consumer.committed(TPS[0])) == 7
            assert await cancelled_everywhere(lambda: consumer.seek_to_committed(TPS[0])) == {TPS[0]: 7}
            assert (await consumer.getone()).offset == 7

    run(main())


@pytest.mark.parametrize("group", [False, True])
def test_cancelled_start_can_be_repeated(cluster: EmbeddedCluster, group: bool) -> None:
    async def main() -> None:
        settings = {"group_id": new_group(), "session_timeout_ms": 6_000} if group else {}
        consumer = consumer_of(cluster, "t", **settings)
        for iterations in (0, 1, 2, 3, 5, 8, 13, 21, 34):
            task = asyncio.ensure_future(consumer.start())
            for _ in range(iterations):
                await asyncio.sleep(0)
            if task.done():
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await consumer.start()
        assert consumer.assignment() == set(TPS)
        assert (await consumer.getone()).offset == 0
        await consumer.stop()

    run(main())


def test_cancelled_stop_continues(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        group = new_group()
        consumer = consumer_of(cluster, "t", group_id=group)
        await consumer.start()
        await consumer.getone()
        before = len(cluster.requests_of(ApiKeys.LEAVE_GROUP))
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await consumer.stop()
        assert len(cluster.requests_of(ApiKeys.LEAVE_GROUP)) == before + 1
        async with consumer_of(cluster, "t", group_id=group) as again:
            assert sum([await again.committed(tp) or 0 for tp in TPS]) == 1

    run(main())


def test_error_of_a_cancelled_stop_is_not_reported_by_the_loop(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in the log, as no call is left that could raise it."""
    told: list[dict[str, Any]] = []
    closed: list[str] = []

    class Unclosable:
        def deserialize(self, topic: str, data: bytes) -> bytes:
            return data

        def close(self) -> None:
            closed.append("called")
            raise ValueError("of the deserializer")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        consumer = consumer_of(cluster, "t", group_id=new_group(), value_deserializer=Unclosable())
        await consumer.start()
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert not closed
        await consumer.stop()
        del consumer, stopping
        gc.collect()

    with caplog.at_level(logging.CRITICAL, logger="pykclient"):  # a record of the log would keep the error alive
        run(main())
    assert closed == ["called"]
    assert told == []


def test_waiting_listener_does_not_delay_stop(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        class Waiting:
            async def on_partitions_revoked(self, revoked: object) -> None: ...

            async def on_partitions_assigned(self, assigned: object) -> None:
                await asyncio.Event().wait()

        consumer = consumer_of(cluster, group_id=new_group())
        await consumer.start()
        consumer.subscribe(["t"], listener=Waiting())
        reading = asyncio.ensure_future(consumer.getone())
        await until(consumer.assignment)
        begun_s = asyncio.get_running_loop().time()
        await consumer.stop(timeout=0.2)
        assert asyncio.get_running_loop().time() - begun_s < 20
        with pytest.raises(ConsumerStoppedError, match="stopped"):
            await reading

    run(main())


# --- starting positions -----------------------------------------------------------------------------------------------

HOW = ["subscribed", "member", "assigned"]


def at_the_end(cluster: EmbeddedCluster, how: str, topic: str, **settings: Any) -> AIOKafkaConsumer:
    """Return a consumer that begins at the end of a partition of ``topic``, before its start."""
    topics = () if how == "assigned" else (topic,)
    group_id = new_group() if how == "member" else None
    consumer = consumer_of(cluster, *topics, group_id=group_id, auto_offset_reset="latest", **settings)
    if how == "assigned":
        consumer.assign([TopicPartition(topic, 0)])
    return consumer


def new_topic(cluster: EmbeddedCluster, partitions: int = 1) -> str:
    name = f"started-{next(_numbers)}"
    cluster.create_topic(name, partitions)
    return name


def write(cluster: EmbeddedCluster, topic: str) -> None:
    """Write a record while the loop stands still."""
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"after start", partition=0).get(10)


@pytest.mark.parametrize("how", HOW)
def test_record_written_right_after_start_is_read(cluster: EmbeddedCluster, how: str) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with at_the_end(cluster, how, topic) as consumer:
            write(cluster, topic)
            assert (await consumer.getone()).value == b"after start"

    run(main())


@pytest.mark.parametrize("how", HOW)
def test_record_is_read_of_a_topic_that_start_has_created(cluster: EmbeddedCluster, how: str) -> None:
    """The brokers create it when the consumer asks for its metadata."""
    topic = f"created-{next(_numbers)}"

    async def main() -> None:
        async with at_the_end(cluster, how, topic) as consumer:
            assert consumer.assignment() == {TopicPartition(topic, 0)}
            write(cluster, topic)
            assert (await consumer.getone()).value == b"after start"

    run(main())


@pytest.mark.parametrize("how", HOW)
def test_start_can_be_cancelled_while_positions_are_looked_up(cluster: EmbeddedCluster, how: str) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.LIST_OFFSETS)

    async def main() -> None:
        consumer = at_the_end(cluster, how, topic)
        starting = asyncio.ensure_future(consumer.start())
        await until(lambda: hold.held)
        assert not starting.done()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        hold.remove()
        await consumer.start()
        write(cluster, topic)
        assert (await consumer.getone()).value == b"after start"
        await consumer.stop()

    run(main())


@pytest.mark.parametrize("how", HOW)
def test_start_ends_if_the_consumer_is_stopped_while_positions_are_looked_up(
    cluster: EmbeddedCluster, how: str
) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.LIST_OFFSETS)

    async def main() -> None:
        consumer = at_the_end(cluster, how, topic)
        starting = asyncio.ensure_future(consumer.start())
        await until(lambda: hold.held)
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError, match="while it started"):
            await starting

    try:
        run(main())
    finally:
        hold.remove()


def test_start_waits_for_positions_after_a_rebalance_in_between(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, 2)
    group_id = new_group()
    hold = cluster.faults.hold(ApiKeys.LIST_OFFSETS)

    async def main() -> None:
        settings = {"group_id": group_id, "auto_offset_reset": "latest", "heartbeat_interval_ms": 50}
        one, two = (consumer_of(cluster, topic, **settings) for _ in range(2))
        starting = [asyncio.ensure_future(one.start())]
        await until(lambda: hold.held)
        starting.append(asyncio.ensure_future(two.start()))
        await until(lambda: len(one.assignment()) == len(two.assignment()) == 1)
        assert not any(task.done() for task in starting)
        hold.remove()
        hold.release()
        await asyncio.gather(*starting)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for partition in range(2):
                producer.send(topic, b"after start", partition=partition).get(10)
        assert {(await consumer.getone()).partition for consumer in (one, two)} == {0, 1}
        await asyncio.gather(one.stop(), two.stop())

    run(main())


@pytest.mark.parametrize("how", HOW)
def test_start_returns_without_positions_if_no_broker_tells_them(cluster: EmbeddedCluster, how: str) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.LIST_OFFSETS)

    async def main() -> None:
        async with at_the_end(cluster, how, topic, default_api_timeout_ms=1_000, request_timeout_ms=900) as consumer:
            assert consumer.assignment() == {TopicPartition(topic, 0)}
            hold.remove()
            await consumer.position(TopicPartition(topic, 0))

    run(main())


@pytest.mark.parametrize("how", HOW)
def test_start_does_not_wait_for_partitions_without_a_leader(how: str) -> None:
    with EmbeddedCluster(2, config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        topic = "led"
        cluster.create_topic(topic, assignment={0: [1], 1: [2]})
        cluster.kill(2)
        cluster.wait_for(lambda: cluster.leader(TopicPartition(topic, 1)) is None)

        async def main() -> None:
            consumer = at_the_end(cluster, how, topic)
            if how == "assigned":
                consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            async with consumer:
                write(cluster, topic)
                assert (await consumer.getone()).value == b"after start"

        run(main())


# --- other ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_unclosed_consumer_warns_and_closes(cluster: EmbeddedCluster, loop: str) -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        consumers = [consumer_of(cluster, "t")]
        await consumers[0].start()
        await consumers[0].getone()
        inner = consumers[0]._consumer
        assert inner is not None
        reference = weakref.ref(consumers[0])
        with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer"):
            consumers.clear()
        assert [context["message"][:26] for context in told] == ["Unclosed AIOKafkaConsumer "]
        told.clear()
        assert reference() is None
        await until(lambda: inner.is_closed)
        await until(inner.driver.closed.done)
        assert not told

    run(main(), loop)


def test_consumer_is_unusable_after_its_loop(cluster: EmbeddedCluster) -> None:
    async def begin() -> AIOKafkaConsumer:
        consumer = consumer_of(cluster, "t")
        await consumer.start()
        await consumer.getone()
        return consumer

    async def use(consumer: AIOKafkaConsumer) -> None:
        calls: list[Callable[[], Any]] = [consumer.getone, consumer.getmany, consumer.topics, lambda: anext(consumer)]
        for call in calls:
            with pytest.raises(IllegalStateError, match="another event loop"):
                await call()
        with pytest.raises(IllegalStateError, match="another event loop"):
            consumer.seek(TPS[0], 1)
        await consumer.stop()
        await consumer.stop()

    run(use(run(begin())))
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer"):
        run(begin())


def test_second_event_loop_is_refused(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await consumer.getone()

            def elsewhere() -> None:
                async def use() -> None:
                    for call in (consumer.getone(), consumer.stop()):
                        with pytest.raises(IllegalStateError, match="another event loop"):
                            await call

                run(use())

            await asyncio.to_thread(elsewhere)
            await consumer.getone()
            with pytest.raises(IllegalStateError, match="Did you call `start` twice"):
                await consumer.start()

    run(main())


def test_unstarted_consumer_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AIOKafkaConsumer("t", bootstrap_servers="127.0.0.1:1")
        gc.collect()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(AIOKafkaConsumer(client_id="mine"))
    assert repr(AIOKafkaConsumer(client_id="mine", group_id="g")) == "<AIOKafkaConsumer mine group_id=g>"


def test_consumer_is_refused_after_a_fork(cluster: EmbeddedCluster) -> None:
    program = f"""
import asyncio, os, sys
from pykclient.aio import AIOKafkaConsumer

async def main():
    consumer = AIOKafkaConsumer("t", bootstrap_servers={cluster.bootstrap_servers!r}, auto_offset_reset="earliest")
    await consumer.start()
    await consumer.getmany(timeout_ms=1000)
    child = os.fork()
    if not child:
        try:
            await consumer.getone()
        except Exception as error:
            print(type(error).__name__, flush=True)
        await consumer.stop()
        os._exit(0)
    os.waitpid(child, 0)
    await consumer.seek_to_beginning()
    await consumer.getone()
    await consumer.stop()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["UseAfterForkError"]), done.stderr


@pytest.mark.parametrize("ending", ["return", "raise SystemExit(0)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_programs_end_promptly_and_leave_the_group(cluster: EmbeddedCluster, ending: str) -> None:
    program = f"""
import asyncio, os, signal
from pykclient.aio import AIOKafkaConsumer

async def main():
    consumer = AIOKafkaConsumer(
        "t", bootstrap_servers={cluster.bootstrap_servers!r}, group_id="ends", auto_offset_reset="earliest"
    )
    async with consumer:
        async for record in consumer:
            {ending}
            await asyncio.sleep(100)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
"""
    before = len(cluster.requests_of(ApiKeys.LEAVE_GROUP))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(cluster.requests_of(ApiKeys.LEAVE_GROUP)) == before + 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux tells the open descriptors")
def test_stop_closes_all_file_descriptors(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        for round in range(4):
            if round == 2:
                before = len(os.listdir("/proc/self/fd"))
            async with consumer_of(cluster, "t", group_id=new_group()) as consumer:
                await consumer.getone()
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)

    run(main())


def test_reading_never_blocks_the_loop_for_long(cluster: EmbeddedCluster) -> None:
    """Reading 80 MB takes many iterations of the loop. CPU time is measured, as other programs take their share."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with consumer_of(cluster) as consumer:
            consumer.assign([TopicPartition("large", 0)])
            count = iterations = 0

            def tick() -> None:
                nonlocal iterations
                iterations += 1
                loop.call_soon(tick)

            tick()
            while count < 80_000:
                for records in (await consumer.getmany(timeout_ms=10_000)).values():
                    count += len(records)
            assert iterations >= 40

    run(main())


def test_idle_consumer_runs_few_driver_turns(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with consumer_of(cluster, "t", group_id=new_group(), auto_offset_reset="latest") as consumer:
            await consumer.seek_to_end()
            await consumer.getmany(timeout_ms=600)
            assert consumer._consumer is not None
            driver = consumer._consumer.driver
            before = driver.turns
            assert await consumer.getmany(timeout_ms=2_000) == {}
            assert driver.turns - before <= 40  # four fetches that wait for 500 ms each, a heartbeat, timers

    run(main())
