"""Consumer groups, on the embedded cluster and on real Kafka."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sized
from functools import partial
from itertools import islice
from typing import Any

import confluent_kafka
import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer.values import ConsumerRebalanceListener
from pykclient.errors import (
    CommitFailedError,
    ConcurrentModificationError,
    FencedInstanceIdError,
    KafkaTimeoutError,
    UseAfterForkError,
    WakeupError,
)
from pykclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.support.any_kafka import AnyKafka, StartKafka
from tests.support.calls import counted_calls
from tests.support.wait import eventually

Consumer = KafkaConsumer[bytes, bytes]
Join = Callable[..., Consumer]


class Events(ConsumerRebalanceListener):
    """The calls of a rebalance listener, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.told.append(("revoked", sorted(revoked)))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.told.append(("assigned", sorted(assigned)))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.told.append(("lost", sorted(lost)))


@pytest.fixture
def join(any_kafka: AnyKafka, topic: str, group_id: str) -> Iterator[Join]:
    """A factory of members of the test's group, closed after the test."""
    made: list[Consumer] = []

    def make(*, listener: Any = None, bootstrap_servers: str | None = None, **settings: Any) -> Consumer:
        consumer: Consumer = KafkaConsumer(
            bootstrap_servers=bootstrap_servers or any_kafka.bootstrap_servers,
            **{"group_id": group_id, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 500, **settings},
        )
        made.append(consumer)
        consumer.subscribe([topic], listener=listener)
        return consumer

    yield make
    for consumer in made:
        consumer.close(timeout_ms=2_000)


def produce(cluster: AnyKafka, topic: str, count: int, partitions: int = 1) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


def poll_until(condition: Callable[[], object], *consumers: Consumer, timeout_s: float = 30.0) -> list[Any]:
    """Poll all consumers in turn until the condition holds, and return the records read."""
    records: list[ConsumerRecord[bytes, bytes]] = []

    def once() -> bool:
        for consumer in consumers:
            for some in consumer.poll(50).values():
                records.extend(some)
        return bool(condition())

    eventually(once, timeout_s, every_s=0)
    return records


def partitions_of(topic: str, *numbers: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


def test_group_resumes_at_committed_offsets(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic, partitions=2)
    produce(any_kafka, topic, 100, partitions=2)
    first = join()
    seen = [int(record.value or b"") for record in poll_until(first.assignment, first)]
    while len(seen) < 60:
        seen += [int(record.value or b"") for some in first.poll(1000, max_records=7).values() for record in some]
    first.close()
    second = join(consumer_timeout_ms=30_000)
    seen += [int(record.value or b"") for record in islice(second, 100 - len(seen))]
    assert sorted(seen) == list(range(100))


def test_remaining_member_takes_over_all_partitions(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic, partitions=4)
    events = Events()
    one = join(listener=events)
    poll_until(lambda: len(one.assignment()) == 4, one)
    two = join()
    poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
    assert one.assignment() | two.assignment() == partitions_of(topic, 0, 1, 2, 3)
    start = time.monotonic()
    two.close()
    poll_until(lambda: len(one.assignment()) == 4, one)
    # The first member left, so the second did not wait for the session timeout of 45 s.
    assert time.monotonic() - start < 30
    assert [what for what, _ in events.told] == ["assigned", "revoked", "assigned", "revoked", "assigned"]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_group_is_shared_with_confluent_kafka(
    any_kafka: AnyKafka, topic: str, group_id: str, join: Join, assignor: str
) -> None:
    any_kafka.create_topic(topic, partitions=4)
    ours = join(partition_assignment_strategy=[assignor])
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": any_kafka.bootstrap_servers,
            "group.id": group_id,
            "partition.assignment.strategy": assignor,
            "heartbeat.interval.ms": 500,
        }
    )
    try:
        theirs.subscribe([topic])

        def shared() -> bool:
            theirs.poll(0.05)
            return len(theirs.assignment()) == len(ours.assignment()) == 2

        poll_until(shared, ours)
    finally:
        theirs.close()
    poll_until(lambda: len(ours.assignment()) == 4, ours)


def test_static_member_returns_without_a_rebalance(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic, partitions=2)
    events = Events()
    a = join(group_instance_id="a")
    b = join(group_instance_id="b", listener=events)
    poll_until(lambda: len(a.assignment()) == len(b.assignment()) == 1, a, b)
    before, told = a.assignment(), list(events.told)
    a.close()
    again = join(group_instance_id="a")
    poll_until(again.assignment, again, b)
    assert again.assignment() == before
    assert events.told == told
    assert again.group_metadata().group_instance_id == "a"


def test_a_second_member_with_an_instance_id_fences_the_first(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    first = join(group_instance_id="a")
    poll_until(first.assignment, first)
    second = join(group_instance_id="a")
    poll_until(second.assignment, second)
    with pytest.raises(FencedInstanceIdError, match="'a'"):
        poll_until(lambda: False, first)
    with pytest.raises(FencedInstanceIdError, match="'a'"):
        first.commit({TopicPartition(topic, 0): 1})
    second.poll(100)
    assert second.assignment()


def test_listener_can_commit_on_revocation(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic, partitions=2)
    produce(any_kafka, topic, 20, partitions=2)

    class CommitsOnRevocation(Events):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            super().on_partitions_revoked(revoked)
            one.commit()

    one = join(listener=CommitsOnRevocation(), enable_auto_commit=False)
    seen = poll_until(lambda: one.assignment() and all(one.position(tp) == 10 for tp in one.assignment()), one)
    two = join(enable_auto_commit=False)
    seen += poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
    assert len(seen) == 20
    assert {tp: two.position(tp) for tp in two.assignment()} == dict.fromkeys(two.assignment(), 10)


def test_positions_are_committed_automatically(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 10)
    tp = TopicPartition(topic, 0)
    consumer = join(auto_commit_interval_ms=50)
    poll_until(lambda: consumer.assignment() and consumer.position(tp) == 10, consumer)
    poll_until(lambda: consumer.committed(tp) == 10, consumer)


def test_application_can_commit_positions_and_offsets(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 10)
    tp = TopicPartition(topic, 0)
    consumer = join(enable_auto_commit=False)
    poll_until(lambda: consumer.assignment() and consumer.position(tp) == 10, consumer)
    assert consumer.committed(tp) is None
    consumer.commit()
    assert consumer.committed(tp) == 10
    consumer.commit({tp: OffsetAndMetadata(4, "a note")})
    assert consumer.committed(tp, metadata=True) == OffsetAndMetadata(4, "a note")
    heard: list[tuple[int, Exception | None]] = []
    futures = [
        consumer.commit_async({tp: offset}, lambda offsets, error: heard.append((offsets[tp].offset, error)))
        for offset in (5, 6, 7)
    ]
    poll_until(lambda: len(heard) == 3, consumer)
    assert heard == [(5, None), (6, None), (7, None)]
    assert all(future.succeeded() for future in futures)
    assert consumer.committed([tp]) == {tp: OffsetAndMetadata(7)}


def test_a_loop_commits_what_it_has_seen(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 100)
    tp = TopicPartition(topic, 0)
    consumer = join(enable_auto_commit=False)
    for record in consumer:
        assert consumer.position(tp) == record.offset + 1
        if record.offset == 41:
            consumer.commit()
            break
    assert consumer.committed(tp) == 42
    assert next(consumer).offset == 42
    # A poll in between returns the rest; no record is lost or repeated.
    rest = consumer.poll(5_000)[tp]
    assert [record.offset for record in rest] == list(range(43, 100))
    assert consumer.position(tp) == 100


def test_a_loop_that_is_closed_commits_what_it_has_seen(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 100)
    consumer = join()
    for record in consumer:
        if record.offset == 9:
            consumer.close()
            break
    with pytest.raises(RuntimeError, match="closed"):
        next(consumer)
    assert join().committed(TopicPartition(topic, 0)) == 10


def test_after_an_exception_nothing_is_committed(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 100)

    def fail_at_9() -> None:
        with join() as consumer:
            for record in consumer:
                _ = 1 // (9 - record.offset)

    with pytest.raises(ZeroDivisionError):
        fail_at_9()
    assert join().committed(TopicPartition(topic, 0)) is None


def test_loop_follows_pauses_and_seeks(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic, partitions=2)
    produce(any_kafka, topic, 40, partitions=2)
    consumer = join(consumer_timeout_ms=30_000)
    poll_until(lambda: len(consumer.assignment()) == 2, consumer)
    consumer.seek_to_beginning()
    seen: dict[int, list[int]] = {0: [], 1: []}
    for record in islice(consumer, 25):
        seen[record.partition].append(record.offset)
        if len(seen[record.partition]) == 5 and not consumer.paused():
            first = TopicPartition(topic, record.partition)
            consumer.pause(first)
            assert consumer.position(first) == 5
    assert sorted(map(len, seen.values())) == [5, 20]
    consumer.resume(first)
    for record in islice(consumer, 11):
        seen[record.partition].append(record.offset)
        if record.offset == 10 and len(seen[record.partition]) < 20:
            consumer.seek(first, 15)
    assert seen[first.partition] == [*range(11), *range(15, 20)]


def test_wakeup_from_another_thread(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    consumer = join()
    poll_until(consumer.assignment, consumer)
    timer = threading.Timer(0.3, consumer.wakeup)
    timer.start()
    start = time.monotonic()
    with pytest.raises(WakeupError):
        consumer.poll(60_000)
    assert time.monotonic() - start < 30
    timer.join()
    produce(any_kafka, topic, 1)
    assert poll_until(lambda: consumer.position(TopicPartition(topic, 0)) == 1, consumer)


def test_ctrl_c_interrupts_a_poll(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    consumer = join()
    poll_until(consumer.assignment, consumer)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(60_000)
    assert time.monotonic() - start < 30
    timer.join()
    produce(any_kafka, topic, 1)
    assert poll_until(lambda: consumer.position(TopicPartition(topic, 0)) == 1, consumer)


def test_member_that_polls_too_late_leaves_its_group(
    any_kafka: AnyKafka, topic: str, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 5)
    events = Events()
    consumer = join(listener=events, max_poll_interval_ms=1_000, enable_auto_commit=False)
    tp = TopicPartition(topic, 0)
    poll_until(lambda: consumer.assignment() and consumer.position(tp) == 5, consumer)  # an offset to commit
    events.told.clear()
    with caplog.at_level(logging.WARNING):
        eventually(lambda: "max.poll.interval.ms=1000" in caplog.text)
    with pytest.raises(CommitFailedError, match=r"poll\(\) was not called for \d+\.\d s.*max\.poll\.records"):
        eventually(consumer.commit)  # the member leaves after it has logged this
    poll_until(lambda: [what for what, _ in events.told][:2] == ["lost", "assigned"] and _commits(consumer), consumer)


@pytest.mark.slow
def test_heartbeats_keep_a_busy_member_in(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 5)
    consumer = join(session_timeout_ms=6_000, enable_auto_commit=False)
    poll_until(consumer.assignment, consumer)
    member = consumer.group_metadata().member_id
    name = f"kafka-coordinator-heartbeat-thread | {consumer.config['group.id']}"
    assert name in [thread.name for thread in threading.enumerate()]
    sent = consumer.metrics()["consumer-coordinator-metrics"]["heartbeat-total"]
    eventually(lambda: consumer.metrics()["consumer-coordinator-metrics"]["heartbeat-total"] >= sent + 14, 60)
    consumer.commit()
    assert consumer.group_metadata().member_id == member


@pytest.mark.slow
def test_pattern_finds_topics_created_later(any_kafka: AnyKafka, topic: str, join: Join, group_id: str) -> None:
    any_kafka.create_topic(f"{topic}-one")
    consumer = join(metadata_max_age_ms=300)
    consumer.unsubscribe()
    events = Events()
    consumer.subscribe(pattern=f"{re.escape(topic)}-.*", listener=events)
    poll_until(lambda: consumer.assignment() == partitions_of(f"{topic}-one", 0), consumer)
    any_kafka.create_topic(f"{topic}-two")
    any_kafka.create_topic(f"other-{topic}-two")
    expected = partitions_of(f"{topic}-one", 0) | partitions_of(f"{topic}-two", 0)
    poll_until(lambda: consumer.assignment() == expected, consumer)
    assert consumer.subscription() == {f"{topic}-one", f"{topic}-two"}


def test_enforce_rebalance_starts_a_new_generation(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    consumer = join()
    poll_until(consumer.assignment, consumer)
    generation = consumer.group_metadata().generation_id
    consumer.enforce_rebalance("a test")
    poll_until(lambda: consumer.group_metadata().generation_id == generation + 1, consumer)


def _reached(things: Sized, count: int) -> bool:
    return len(things) >= count


@pytest.mark.slow
def test_rebalances_lose_no_records(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    """No record is lost while four members join, read in a loop, close and start again."""
    any_kafka.create_topic(topic, partitions=4)
    seen: set[tuple[int, int]] = set()
    failures: list[BaseException] = []
    lives: list[int] = []
    stop = threading.Event()
    count = 4_000

    def live(number: int) -> None:
        rng = random.Random(number)
        try:
            while not stop.is_set():
                consumer: Consumer = KafkaConsumer(
                    topic,
                    bootstrap_servers=any_kafka.bootstrap_servers,
                    group_id=group_id,
                    auto_offset_reset="earliest",
                    heartbeat_interval_ms=200,
                    session_timeout_ms=6_000,
                    auto_commit_interval_ms=100,
                    max_poll_records=rng.choice((10, 200)),
                    consumer_timeout_ms=200,
                    group_instance_id=f"static-{number}" if number % 2 else None,
                )
                lives.append(number)
                with consumer:
                    until = time.monotonic() + rng.uniform(0.5, 1.5)
                    while time.monotonic() < until and not stop.is_set():
                        for record in consumer:
                            seen.add((record.partition, record.offset))
                            if time.monotonic() > until:
                                break
        except BaseException as error:  # noqa: BLE001 - for the main thread
            failures.append(error)

    members = [threading.Thread(target=live, args=(number,)) for number in range(4)]
    for member in members:
        member.start()
    try:
        for wave in range(1, 9):
            produce(any_kafka, topic, count // 8, partitions=4)
            # At least two members restart between two waves.
            eventually(partial(_reached, lives, 4 + 2 * wave), 40)
        eventually(lambda: len(seen) == count or failures, 40, "every record seen")
    finally:
        stop.set()
        for member in members:
            member.join(30)
    assert not failures
    assert not any(member.is_alive() for member in members)


@pytest.mark.slow
def test_a_member_that_dies_is_replaced_after_its_session(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic, partitions=2)
    one = join(session_timeout_ms=6_000)
    two = join(session_timeout_ms=6_000)
    poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
    # No more heartbeats and no LeaveGroup.
    assert two._consumer.components.coordinator is not None
    two._consumer.components.coordinator.heartbeat_thread.close()
    poll_until(lambda: len(one.assignment()) == 2, one, timeout_s=30)


def test_a_second_thread_is_refused(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    consumer = join()
    poll_until(consumer.assignment, consumer)

    def stay_inside() -> None:
        with contextlib.suppress(WakeupError):
            consumer.poll(60_000)

    inside = threading.Thread(target=stay_inside, name="the-first-thread")
    inside.start()
    refused: list[ConcurrentModificationError] = []

    def try_to_enter() -> bool:
        try:
            consumer.position(TopicPartition(topic, 0))
        except ConcurrentModificationError as error:
            refused.append(error)
        return bool(refused)

    eventually(try_to_enter, 30)
    assert "the-first-thread" in str(refused[0])
    assert threading.current_thread().name in str(refused[0])
    consumer.wakeup()
    inside.join()
    consumer.close()
    consumer.wakeup()


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork()")
def test_a_forked_child_is_refused(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka, topic, 3)
    consumer = join()
    poll_until(consumer.assignment, consumer)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            consumer.poll(0)
        except UseAfterForkError:
            consumer.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    consumer.seek_to_beginning()
    assert len(poll_until(lambda: consumer.position(TopicPartition(topic, 0)) == 3, consumer)) == 3


@pytest.mark.slow
def test_closing_while_the_broker_is_paused(start_kafka: StartKafka, topic: str, group_id: str) -> None:
    with start_kafka({}) as cluster:
        cluster.create_topic(topic)
        produce(cluster, topic, 3)
        consumer: Consumer = KafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group_id, auto_offset_reset="earliest"
        )
        poll_until(consumer.assignment, consumer)
        cluster.brokers[1].pause()
        start = time.monotonic()
        with pytest.raises(KafkaTimeoutError, match="within 500 ms"):
            consumer.commit({TopicPartition(topic, 0): 1}, timeout_ms=500)
        consumer.close(timeout_ms=1_000)
        assert time.monotonic() - start < 20  # by default each call would take half a minute
        cluster.brokers[1].resume()


@pytest.mark.slow
def test_member_survives_a_coordinator_restart(start_kafka: StartKafka, topic: str, group_id: str) -> None:
    with start_kafka({}) as cluster:
        cluster.create_topic(topic)
        produce(cluster, topic, 3)
        consumer: Consumer = KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
        )
        with consumer:
            poll_until(consumer.assignment, consumer)
            consumer.commit()
            cluster.brokers[1].kill()
            consumer.poll(500)
            cluster.brokers[1].start()
            produce(cluster, topic, 3)
            poll_until(lambda: consumer.position(TopicPartition(topic, 0)) == 6, consumer, timeout_s=60)
            poll_until(lambda: _commits(consumer), consumer, timeout_s=60)


@pytest.mark.slow
def test_another_broker_takes_over_as_coordinator(
    any_cluster: AnyKafka, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    any_cluster.create_topic(topic, partitions=2)
    produce(any_cluster, topic, 10, partitions=2)
    consumer: Consumer = KafkaConsumer(
        topic,
        bootstrap_servers=any_cluster.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=500,
    )
    with consumer:
        seen = poll_until(lambda: consumer.assignment() and len(seen_offsets(consumer)) == 2, consumer)
        consumer.commit()
        assert consumer._consumer.components.coordinator is not None
        coordinator = consumer._consumer.components.coordinator.lookup.node
        assert coordinator is not None
        any_cluster.brokers[2**31 - 1 - coordinator.id].kill()
        seen += poll_until(lambda: _commits(consumer), consumer, timeout_s=60)
        assert consumer._consumer.components.coordinator.lookup.node != coordinator
        produce(any_cluster, topic, 10, partitions=2)
        seen += poll_until(lambda: sum(consumer.position(tp) for tp in consumer.assignment()) == 20, consumer)
    assert len(seen) == 20


def seen_offsets(consumer: Consumer) -> list[int]:
    """Return the positions that are past the first five records."""
    return [1 for tp in consumer.assignment() if consumer.position(tp) == 5]


def _commits(consumer: Consumer) -> bool:
    try:
        consumer.commit(timeout_ms=2_000)
    except (CommitFailedError, KafkaTimeoutError):
        return False
    return True


@pytest.mark.slow
def test_idle_member_makes_few_calls(any_kafka: AnyKafka, topic: str, join: Join) -> None:
    any_kafka.create_topic(topic)
    with counted_calls() as calls:
        consumer = join(heartbeat_interval_ms=3_000)
        poll_until(consumer.assignment, consumer)
        (heartbeats,) = [thread for thread in threading.enumerate() if "coordinator-heartbeat" in thread.name]
        consumer.poll(500)
        made = calls.per_s(lambda: consumer.poll(3_000), threading.current_thread(), heartbeats)
    # Two fetches per second and an occasional heartbeat and commit, with their metrics; 1 % of a core is 15,000 calls.
    busiest = max(made.values())
    assert busiest < 10_000, made


@pytest.mark.parametrize("how", ["exit", "forget"])
def test_a_program_that_does_not_close_ends(any_kafka: AnyKafka, topic: str, group_id: str, how: str) -> None:
    any_kafka.create_topic(topic)
    program = f"""
import sys
from pykclient import KafkaConsumer
consumer = KafkaConsumer({topic!r}, bootstrap_servers={any_kafka.bootstrap_servers!r}, group_id={group_id!r})
while not consumer.assignment():
    consumer.poll(100)
print("joined", flush=True)
if sys.argv[1] == "forget":
    del consumer
"""
    command = [sys.executable, "-W", "always", "-c", program, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "joined\n"
        start = time.monotonic()
        _, told = running.communicate(timeout=60)
    assert running.returncode == 0, told
    assert time.monotonic() - start < 20, "closing may take half a minute, the end of the interpreter not"
    assert "was not closed" in told or how == "exit"
