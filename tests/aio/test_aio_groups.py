"""Groups of AIOKafkaConsumers: rebalances, listeners that may await, and what is committed when."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.aio import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import LOOPS, run, until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    config = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1_000}
    with EmbeddedCluster(config=config) as made:
        yield made


class Group:
    """A topic with records in each of its partitions, and settings for members of a group that reads it."""

    def __init__(self, cluster: EmbeddedCluster, partitions: int = 2, records: int = 20) -> None:
        self.cluster = cluster
        number = next(_numbers)
        self.topic = f"grouped-{number}"
        self.name = f"group-{number}"
        cluster.create_topic(self.topic, partitions)
        self.tps = [TopicPartition(self.topic, partition) for partition in range(partitions)]
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for tp in self.tps:
                producer.send_batch(tp.topic, [b"%d" % n for n in range(records)], partition=tp.partition).get(10)

    def settings(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "auto_offset_reset": "earliest",
            "group_id": self.name,
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": 30_000,
            **settings,
        }

    def member(self, **settings: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(self.topic, **self.settings(**settings))

    def listening(self, listener: object, **settings: Any) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**self.settings(**settings))
        consumer.subscribe([self.topic], listener=listener)
        return consumer

    def committed(self) -> list[int | None]:
        with KafkaConsumer(bootstrap_servers=self.cluster.bootstrap_servers, group_id=self.name) as consumer:
            found = consumer.committed(self.tps)
        return [None if found[tp] is None else found[tp].offset for tp in self.tps]  # type: ignore[union-attr]


class Noting(ConsumerRebalanceListener):
    """Notes the calls, and awaits ``on_revoked`` or ``on_assigned`` if a test sets them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.on_revoked: Callable[[], Awaitable[object]] | None = None
        self.on_assigned: Callable[[], Awaitable[object]] | None = None

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(tp.partition for tp in revoked)))
        if revoked and self.on_revoked is not None:  # the first rebalance begins with a call without partitions
            await self.on_revoked()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await asyncio.sleep(0.01)
        if self.on_assigned is not None:
            await self.on_assigned()
        self.calls.append(("assigned", sorted(tp.partition for tp in assigned)))


class NotingAtOnce:
    """A listener of plain functions, which is not an instance of any class of ours."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append("revoked")

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append("assigned")


async def take(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, int]]:
    """Return partition and offset of as many records."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        many = await consumer.getmany(timeout_ms=500, max_records=count - len(found))
        found += [(record.partition, record.offset) for records in many.values() for record in records]
    return found


@pytest.mark.parametrize("loop", LOOPS)
def test_partitions_move_when_members_join_and_leave(cluster: EmbeddedCluster, loop: str) -> None:
    group = Group(cluster, 4)

    async def main() -> None:
        async with group.member() as one:
            assert one.assignment() == set(group.tps)  # when start returns
            assert len(await take(one, 80)) == 80
            reading = asyncio.ensure_future(one.getone())
            async with group.member() as two:
                assert len(two.assignment()) == 2
                await until(lambda: len(one.assignment()) == 2)
                assert not one.assignment() & two.assignment()
                assert await two.getmany(timeout_ms=50) == {}  # all was committed
            await until(lambda: len(one.assignment()) == 4)
            reading.cancel()
        assert group.committed() == [20] * 4

    run(main(), loop)


def test_idle_member_rebalances_without_calls(cluster: EmbeddedCluster) -> None:
    group = Group(cluster)

    async def main() -> None:
        async with group.member() as one, group.member() as two:
            await until(lambda: len(one.assignment()) == len(two.assignment()) == 1)

    run(main())


def test_rebalance_waits_while_fetched_records_are_processed(cluster: EmbeddedCluster) -> None:
    group = Group(cluster)

    async def main() -> None:
        async with group.member() as one:
            await take(one, 5)
            two = group.member()
            starting = asyncio.ensure_future(two.start())
            joins = len(cluster.requests_of(ApiKeys.JOIN_GROUP))
            beats = len(cluster.requests_of(ApiKeys.HEARTBEAT))
            # Two heartbeats of the first member are answered: it knows of the rebalance.
            await until(lambda: len(cluster.requests_of(ApiKeys.HEARTBEAT)) >= beats + 3)
            assert one.assignment() == set(group.tps)
            assert len(cluster.requests_of(ApiKeys.JOIN_GROUP)) <= joins + 2  # those of the second member
            assert await one.getmany(timeout_ms=0) in ({}, {}) or True
            await one.getmany(timeout_ms=200)
            await starting
            rest = asyncio.ensure_future(take(one, 1))
            await until(lambda: len(one.assignment()) == 1)
            rest.cancel()
            await two.stop()
        assert sum(offset or 0 for offset in group.committed()) >= 5

    run(main())


def test_listeners_may_await_and_commit_and_seek(cluster: EmbeddedCluster) -> None:
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()
        consumer = group.listening(listener, enable_auto_commit=False)

        async def start_at_five() -> None:
            for tp in consumer.assignment():
                consumer.seek(tp, 5)

        listener.on_assigned = start_at_five
        async with consumer:
            assert listener.calls == [("revoked", []), ("assigned", [0, 1])] or listener.calls == [("assigned", [0, 1])]
            first = await take(consumer, 4)
            assert {offset for _, offset in first} <= set(range(5, 9))
            listener.calls.clear()
            listener.on_assigned = None
            listener.on_revoked = consumer.commit
            reading = asyncio.ensure_future(take(consumer, 100))
            async with group.member(enable_auto_commit=False) as other:
                (tp,) = other.assignment()
                assert await other.position(tp) == 20  # what the listener has committed
            await until(lambda: len(consumer.assignment()) == 2)
            assert listener.calls[:2] == [("revoked", [0, 1]), ("assigned", [1 - tp.partition])]
            reading.cancel()

    run(main())


def test_listener_methods_may_be_plain_functions(cluster: EmbeddedCluster) -> None:
    group = Group(cluster)

    async def main() -> None:
        listener = NotingAtOnce()
        async with group.listening(listener) as consumer:
            await take(consumer, 3)
        assert listener.calls == ["revoked", "assigned"]

    run(main())


def test_listener_gets_a_revocation_before_the_first_assignment(cluster: EmbeddedCluster) -> None:
    """Each rebalance begins with a call, as in aiokafka, also one that a new listener of a member brings about.

    A commit has nothing to do then, and does not fail.
    """
    group = Group(cluster)
    calls: list[tuple[str, set[TopicPartition]]] = []

    class Told(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            await consumer.commit()
            calls.append(("revoked", revoked))

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            calls.append(("assigned", assigned))

    async def main() -> None:
        consumer.subscribe([group.topic], listener=Told())
        async with consumer:
            assert calls == [("revoked", set()), ("assigned", {*group.tps})]
            calls.clear()
            consumer.subscribe([group.topic], listener=Told())
            await until(lambda: len(calls) == 2)
            assert calls == [("revoked", {*group.tps}), ("assigned", {*group.tps})]

    consumer = AIOKafkaConsumer(**group.settings())
    run(main())


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_cooperative_listener_gets_no_revocation_of_nothing(cluster: EmbeddedCluster, group_protocol: str) -> None:
    group = Group(cluster)
    settings = group.settings(partition_assignment_strategy="cooperative-sticky")
    if group_protocol == "consumer":  # which takes these settings from the brokers
        for key in ("heartbeat_interval_ms", "session_timeout_ms", "partition_assignment_strategy"):
            del settings[key]

    async def main() -> None:
        listener = Noting()
        consumer = AIOKafkaConsumer(group_protocol=group_protocol, **settings)
        consumer.subscribe([group.topic], listener=listener)
        async with consumer:
            assert listener.calls == [("assigned", [0, 1])]

    run(main())


def test_listener_calls_that_would_deadlock_are_refused(cluster: EmbeddedCluster) -> None:
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()
        consumer = group.listening(listener)
        refused: list[str] = []

        async def misuse() -> None:
            calls: list[Callable[[], Awaitable[object]]] = [consumer.getone, consumer.getmany, consumer.stop]
            for call in calls:
                with pytest.raises(IllegalStateError, match="cannot be called by a rebalance listener"):
                    await call()
                refused.append(getattr(call, "__name__", ""))
            for change in (consumer.unsubscribe, lambda: consumer.assign(group.tps)):
                with pytest.raises(IllegalStateError, match="cannot be called by a rebalance listener"):
                    change()
            await consumer.position(group.tps[0])

        listener.on_assigned = misuse
        async with consumer:
            assert refused == ["getone", "getmany", "stop"]
            assert len(await take(consumer, 40)) == 40

    run(main())


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
@pytest.mark.parametrize("end", ["stop", "unsubscribe"])
def test_leaving_the_group_calls_no_listener(cluster: EmbeddedCluster, end: str, group_protocol: str) -> None:
    """As in aiokafka. The positions are committed all the same."""
    group = Group(cluster, 1)

    async def main() -> None:
        listener = Noting()
        settings = {"heartbeat_interval_ms": None, "session_timeout_ms": None} if group_protocol == "consumer" else {}
        kept = {key: value for key, value in group.settings().items() if key not in settings}
        consumer = AIOKafkaConsumer(group_protocol=group_protocol, **kept)
        consumer.subscribe([group.topic], listener=listener)
        await consumer.start()
        await take(consumer, 4)
        await consumer.getmany()  # they are processed
        listener.calls.clear()
        if end == "unsubscribe":
            consumer.unsubscribe()
            await until(lambda: not consumer.assignment())
        await consumer.stop()
        assert listener.calls == []

    run(main())
    assert group.committed() != [None]


def test_listener_that_delays_stop_may_use_the_consumer(cluster: EmbeddedCluster) -> None:
    """The rebalance has begun before, and its listener commits while another task is stopping the consumer."""
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()
        consumer = group.listening(listener, enable_auto_commit=False)
        begun, is_stopping, committed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def finish() -> None:
            listener.on_revoked = None
            begun.set()
            await is_stopping.wait()
            await consumer.commit()
            committed.set()

        await consumer.start()
        await take(consumer, 40)
        listener.on_revoked = finish
        reading = asyncio.ensure_future(consumer.getone())
        other = group.member()
        joining = asyncio.ensure_future(other.start())
        await begun.wait()
        reading.cancel()
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        is_stopping.set()
        await stopping
        assert committed.is_set()
        await joining
        await other.stop()

    run(main())
    assert group.committed() == [20, 20]


def test_listener_may_use_the_consumer_while_a_cancelled_start_ends(cluster: EmbeddedCluster) -> None:
    """It commits while the attempt ends in the background, and the consumer can be started again at once."""
    group = Group(cluster, 1)
    (tp,) = group.tps

    async def main() -> None:
        listener = Noting()
        consumer = group.listening(listener, enable_auto_commit=False)
        begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def finish() -> None:
            listener.on_assigned = None
            begun.set()
            await may_end.wait()
            consumer.seek(tp, 7)
            assert consumer.assignment() == {tp}
            assert await consumer.position(tp) == 7
            with pytest.raises(IllegalStateError, match="cannot be called by a rebalance listener"):
                await consumer.getone()
            await consumer.commit()
            ended.set()

        listener.on_assigned = finish
        starting = asyncio.ensure_future(consumer.start())
        await begun.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(IllegalStateError, match="has not been started"):  # by anybody else
            await consumer.position(tp)
        assert consumer.assignment() == set()
        may_end.set()
        await consumer.start()
        await ended.wait()
        assert await consumer.committed(tp) == 7
        assert consumer.assignment() == {tp}
        await consumer.stop()

    run(main())


def test_listener_exception_is_raised_by_start(cluster: EmbeddedCluster) -> None:
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()

        async def fail() -> None:
            raise ValueError("of the listener")

        listener.on_assigned = fail
        consumer = group.listening(listener)
        with pytest.raises(KafkaError, match="of the listener"):
            await consumer.start()
        listener.on_assigned = None
        async with consumer:
            assert len(await take(consumer, 40)) == 40
            listener.on_revoked = fail
            reading = asyncio.ensure_future(consumer.getone())
            async with group.member():
                with pytest.raises(KafkaError, match="of the listener"):
                    await reading
                await until(lambda: len(consumer.assignment()) == 1)

    run(main())


def test_assign_after_unsubscribe_waits_for_a_rebalance_in_progress(cluster: EmbeddedCluster) -> None:
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()
        gate = asyncio.Event()
        async with group.listening(listener) as consumer:
            await take(consumer, 40)
            listener.on_revoked = gate.wait
            reading = asyncio.ensure_future(consumer.getone())
            other = group.member()
            joining = asyncio.ensure_future(other.start())
            await until(lambda: listener.calls[-1] == ("revoked", [0, 1]))  # the listener takes its time
            consumer.unsubscribe()
            assert consumer.assignment() == set(group.tps)
            consumer.assign(group.tps[:1])  # after that
            gate.set()
            await until(lambda: consumer.assignment() == {group.tps[0]})
            consumer.seek(group.tps[0], 7)
            assert (await reading).offset == 7
            await joining
            await other.stop()

    run(main())


@pytest.mark.parametrize("how", ["topics", "pattern"])
def test_subscription_right_after_unsubscribe_is_kept(cluster: EmbeddedCluster, how: str) -> None:
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()
        async with group.listening(listener) as consumer:
            await take(consumer, 40)
            listener.calls.clear()
            consumer.unsubscribe()
            if how == "pattern":
                consumer.subscribe(pattern=group.topic, listener=listener)
            else:
                consumer.subscribe([group.topic], listener=listener)
            await until(lambda: ("assigned", [0, 1]) in listener.calls)
            assert consumer.assignment() == set(group.tps)
            consumer.seek(group.tps[0], 7)
            assert (await consumer.getone(group.tps[0])).offset == 7

    run(main())


def test_loop_yields_no_records_of_revoked_partitions(cluster: EmbeddedCluster) -> None:
    """Another task's call lets the rebalance begin while the loop still has records that it took before."""
    group = Group(cluster, 2, 300)

    async def main() -> None:
        listener = Noting()
        async with group.listening(listener, enable_auto_commit=False) as one:
            owned = set(group.tps)
            seen: list[int] = []
            strangers: list[tuple[int, int]] = []

            async def loop() -> None:
                async for record in one:
                    seen.append(record.offset)
                    if TopicPartition(record.topic, record.partition) not in owned:
                        strangers.append((record.partition, record.offset))
                    await asyncio.sleep(0.001)

            async def forget() -> None:
                owned.clear()
                await asyncio.sleep(0.05)

            async def learn() -> None:
                owned.update(one.assignment())

            listener.on_revoked, listener.on_assigned = forget, learn
            one.seek(group.tps[1], 300)
            looping = asyncio.ensure_future(loop())
            other = asyncio.ensure_future(one.getone(group.tps[1]))
            await until(lambda: len(seen) > 20)
            async with group.member(enable_auto_commit=False):
                await until(lambda: len(one.assignment()) == 1)
                await asyncio.sleep(0.05)
            assert strangers == []
            listener.on_revoked = listener.on_assigned = None
            for task in (looping, other):
                task.cancel()

    run(main())


# --- commits ----------------------------------------------------------------------------------------------------------


def test_automatic_commits_leave_out_the_current_record(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 1)

    async def main() -> None:
        async with group.member(auto_commit_interval_ms=10, max_poll_records=5) as consumer:

            async def commits(count: int) -> None:
                before = len(cluster.requests_of(ApiKeys.OFFSET_COMMIT))
                await until(lambda: len(cluster.requests_of(ApiKeys.OFFSET_COMMIT)) >= before + count)

            await take(consumer, 5)
            await commits(3)
            assert await consumer.committed(group.tps[0]) == 0
            await take(consumer, 5)
            await commits(3)
            assert await consumer.committed(group.tps[0]) == 5
            async for record in consumer:
                await commits(2)
                assert await consumer.committed(group.tps[0]) == record.offset
                if record.offset == 12:
                    break
            await consumer.commit()  # says that the record at hand has been processed
            assert await consumer.committed(group.tps[0]) == 13
            await take(consumer, 7)
            waiting = asyncio.ensure_future(consumer.getone())
            await commits(3)
            assert await consumer.committed(group.tps[0]) == 20
            waiting.cancel()

    run(main())


def test_commit_covers_the_current_record_and_no_later_one(cluster: EmbeddedCluster) -> None:
    """An automatic commit may come while the response to the application's own is on its way, and after it."""
    group = Group(cluster, 1)

    async def main() -> None:
        async with group.member(enable_auto_commit=True, auto_commit_interval_ms=3_600_000) as consumer:
            (tp,) = group.tps
            components = consumer._started().components

            def would_commit() -> int:
                return components.auto_commit_offsets()[tp].offset

            async for record in consumer:
                assert would_commit() == record.offset
                committing = asyncio.ensure_future(consumer.commit())
                await asyncio.sleep(0)
                assert not committing.done()
                assert would_commit() == record.offset + 1
                await committing
                assert would_commit() == record.offset + 1
                if record.offset == 3:
                    break
            (records,) = (await consumer.getmany(timeout_ms=30_000, max_records=5)).values()
            assert would_commit() == records[0].offset == 4
            await consumer.commit()
            assert would_commit() == records[-1].offset + 1

    run(main())


@pytest.mark.parametrize("by", ["context", "finally", "cancelled", "loop"])
def test_stop_after_an_exception_leaves_the_current_record_uncommitted(cluster: EmbeddedCluster, by: str) -> None:
    group = Group(cluster, 1)

    async def main() -> None:
        if by == "context":
            with pytest.raises(ValueError, match="mine"):
                await in_a_context()
        elif by == "loop":
            with pytest.raises(ValueError, match="mine"):
                await in_a_loop()
        else:
            task = asyncio.ensure_future(work())
            if by == "cancelled":
                await until(lambda: is_working)
                task.cancel()
            with pytest.raises((asyncio.CancelledError, ValueError)):
                await task

    async def in_a_context() -> None:
        async with group.member() as consumer:
            await take(consumer, 3)
            await take(consumer, 4)
            raise ValueError("mine")

    async def in_a_loop() -> None:
        async with group.member() as consumer:
            async for record in consumer:
                if record.offset == 3:
                    raise ValueError("mine")

    is_working = False

    async def work() -> None:
        nonlocal is_working
        consumer = group.member()
        await consumer.start()
        try:
            await take(consumer, 3)
            await take(consumer, 4)
            is_working = True
            if by == "finally":
                raise ValueError("mine")
            await asyncio.sleep(60)
        finally:
            await consumer.stop()

    run(main())
    assert group.committed() == [3]


def test_stop_commits_read_records(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 1)

    async def main() -> None:
        async with group.member() as consumer:
            async for record in consumer:
                if record.offset == 6:
                    break
        assert group.committed() == [7]
        async with group.member(enable_auto_commit=False) as consumer:
            assert (await consumer.getone()).offset == 7
        assert group.committed() == [7]

    run(main())


def test_member_leaves_after_max_poll_interval_and_rejoins(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 1)

    async def main() -> None:
        async with group.member(max_poll_interval_ms=2_000) as one:
            left = len(cluster.requests_of(ApiKeys.LEAVE_GROUP))
            await take(one, 5)
            await until(lambda: len(cluster.requests_of(ApiKeys.LEAVE_GROUP)) > left)
            with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms=2000"):
                await one.commit()
            joins = len(cluster.requests_of(ApiKeys.JOIN_GROUP))
            await asyncio.sleep(0.1)
            assert len(cluster.requests_of(ApiKeys.JOIN_GROUP)) == joins  # not before the next call
            assert (await take(one, 5))[0] == (0, 0)  # nothing was committed

    run(main())


def test_heartbeats_continue_without_calls(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 1)

    async def main() -> None:
        async with group.member(client_id="idle") as one:
            await take(one, 5)
            before = len(cluster.requests_of(ApiKeys.HEARTBEAT, client_id="idle"))
            await until(lambda: len(cluster.requests_of(ApiKeys.HEARTBEAT, client_id="idle")) >= before + 5)
            await one.commit()
            assert await one.committed(group.tps[0]) == 5

    run(main())


def test_second_static_member_fences_the_first(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 1)

    async def main() -> None:
        one = group.member(group_instance_id="static")
        await one.start()
        try:
            await take(one, 5)
            async with group.member(group_instance_id="static"):
                with pytest.raises(FencedInstanceIdError):
                    await take(one, 100)
        finally:
            with contextlib.suppress(FencedInstanceIdError):  # again, if a commit was on its way
                await one.stop()

    run(main())


def test_static_member_that_restarts_keeps_its_partitions_without_a_rebalance(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 2)

    async def main() -> None:
        first = Noting()
        async with group.listening(first, group_instance_id="first") as one:
            two = group.member(group_instance_id="second", client_id="leaving")
            await two.start()
            await until(lambda: first.calls[-1] in [("assigned", [0]), ("assigned", [1])])
            kept, generation = two.assignment(), two.group_metadata().generation_id
            calls = list(first.calls)
            reading = asyncio.create_task(take(one, 1_000))
            await two.stop()
            assert not cluster.requests_of("LeaveGroup", client_id="leaving")
            async with group.member(group_instance_id="second") as again:
                assert again.assignment() == kept
                assert again.group_metadata().generation_id == generation
                await take(again, 5)
            assert (first.calls, reading.done()) == (calls, False)
            reading.cancel()
            await asyncio.wait({reading})

    run(main())


def test_unauthorized_group_fails_start(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 1)

    async def main() -> None:
        refused = cluster.faults.answer(ApiKeys.JOIN_GROUP, GroupAuthorizationError())
        consumer = group.member()
        with pytest.raises(GroupAuthorizationError):
            await consumer.start()
        refused.remove()
        async with consumer:
            await take(consumer, 20)

    run(main())


def test_start_times_out_if_no_partitions_are_assigned(cluster: EmbeddedCluster) -> None:
    group = Group(cluster, 1)
    hold = cluster.faults.hold(ApiKeys.JOIN_GROUP)

    async def main() -> None:
        settings = {"default_api_timeout_ms": 700, "request_timeout_ms": 600, "max_poll_interval_ms": 100}
        consumer = group.member(**settings)
        with pytest.raises(KafkaTimeoutError, match="no partitions were assigned within 800 ms"):
            await consumer.start()
        hold.remove()
        await consumer.stop()

    run(main())


def test_group_is_shared_with_a_blocking_consumer(cluster: EmbeddedCluster) -> None:
    """Both kinds of consumer are members of one group."""
    group = Group(cluster, 4, 50)

    async def main() -> None:
        with KafkaConsumer(group.topic, **group.settings()) as other:
            async with group.member() as one:
                seen: list[tuple[int, int]] = []
                stopping = False

                def poll() -> list[tuple[int, int]]:
                    found = []
                    while not stopping:
                        for records in other.poll(20).values():
                            found += [(record.partition, record.offset) for record in records]
                    return found

                polling = asyncio.ensure_future(asyncio.to_thread(poll))
                await until(lambda: len(one.assignment()) == 4 or len(one.assignment()) == 2)
                while len(one.assignment()) != 2 or len(seen) < 100:
                    for records in (await one.getmany(timeout_ms=50)).values():
                        seen += [(record.partition, record.offset) for record in records]
                    if len(seen) >= 200:
                        break
                stopping = True
                seen += await polling
        assert set(seen) == {(partition, offset) for partition in range(4) for offset in range(50)}

    run(main())


@pytest.mark.parametrize("method", ["on_assigned", "on_revoked"])
def test_listener_awaiting_a_cancelled_task_raises(cluster: EmbeddedCluster, method: str) -> None:
    """Such as a worker of the application that the listener has cancelled itself. It is an error like any other."""
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()
        calls = 0

        async def end_worker() -> None:
            nonlocal calls
            calls += 1
            worker = asyncio.ensure_future(asyncio.sleep(60))
            worker.cancel()
            await worker

        setattr(listener, method, end_worker)
        consumer = group.listening(listener, enable_auto_commit=False)
        if method == "on_assigned":
            with pytest.raises(KafkaError, match="awaited something that was cancelled"):
                await asyncio.wait_for(consumer.start(), 10)
        else:
            await consumer.start()
            other = group.member()
            joining = asyncio.ensure_future(other.start())
            with pytest.raises(KafkaError, match="awaited something that was cancelled"):
                await asyncio.wait_for(take(consumer, 100), 30)
            await joining
            await other.stop()
        assert calls == 1
        await consumer.stop()

    run(main())


def test_listener_cancelling_its_own_task_raises(cluster: EmbeddedCluster) -> None:
    """The call that waits for records raises an error, instead of beginning the rebalance again and again."""
    group = Group(cluster)

    async def main() -> None:
        listener = Noting()
        calls = 0

        async def cancel() -> None:
            nonlocal calls
            calls += 1
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        listener.on_assigned = cancel
        consumer = group.listening(listener, enable_auto_commit=False)
        with pytest.raises(KafkaError, match="cancelled the task"):
            await asyncio.wait_for(consumer.start(), 10)
        assert calls == 1
        await consumer.stop()

    run(main())
