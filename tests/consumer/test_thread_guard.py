"""Calls of a second thread while another thread's call returns its records."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.errors import ConcurrentModificationError, IllegalStateError, WakeupError
from pykclient.log_context import LogContext
from pykclient.testing import EmbeddedCluster


class Reader:
    """A consumer whose ``poll`` marks its records as returned after it has left the guard."""

    def __init__(self) -> None:
        self._guard = ThreadGuard()
        self._guard.has_leftovers = lambda: not self.returned
        self._guard.recover = self._recover
        self.returned = True
        self.recoveries: list[bool] = []

    def poll(self, before_last_step: Callable[[], object], work: Callable[[], object] = lambda: None) -> None:
        with self._guard:
            self.returned = False
            work()
        before_last_step()
        self.returned = True

    def position(self) -> None:
        with self._guard:
            pass

    def _recover(self, in_middle: bool) -> None:
        self.recoveries.append(in_middle)
        self.returned = True


def in_a_thread(call: Callable[[], object]) -> BaseException | None:
    """Run ``call`` in a thread of its own, and return the error that it raised."""
    errors: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except ConcurrentModificationError as error:
            errors.append(error)
        else:
            errors.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    return errors[0]


def test_records_being_returned_are_not_taken_back() -> None:
    reader = Reader()
    errors: list[BaseException | None] = []
    reader.poll(lambda: errors.append(in_a_thread(reader.position)))
    assert isinstance(errors[0], ConcurrentModificationError)
    assert in_a_thread(reader.position) is None
    assert reader.recoveries == []


def test_records_that_were_not_returned_are_taken_back_by_any_thread() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    reader = Reader()
    with pytest.raises(KeyboardInterrupt):
        reader.poll(interrupted)
    assert in_a_thread(reader.position) is None
    assert reader.recoveries == [False]


def test_another_reader_of_the_thread_is_ignored() -> None:
    reader, other = Reader(), Reader()
    with pytest.raises(ZeroDivisionError):
        reader.poll(lambda: 1 / 0)
    errors: list[BaseException | None] = []
    other.poll(lambda: errors.append(in_a_thread(reader.position)))
    assert errors == [None]
    assert reader.recoveries == [False]


def test_call_leaving_while_another_enters_is_not_interrupted() -> None:
    """Its records are being returned, so they are not taken back."""
    reader = Reader()
    may_leave, has_left, may_end = threading.Event(), threading.Event(), threading.Event()

    class Held(dict[str, Any]):
        """What is inside of the guard: the other call leaves when it has been found here."""

        def setdefault(self, key: str, default: Any = None) -> Any:
            found = super().setdefault(key, default)
            if found is not default:
                may_leave.set()
                assert has_left.wait(10)
            return found

    def in_poll() -> None:
        inside.set()
        assert may_leave.wait(10)

    def before_last_step() -> None:
        has_left.set()
        assert may_end.wait(10)

    inside = threading.Event()
    reader._guard._held = Held()
    thread = threading.Thread(target=reader.poll, args=(before_last_step, in_poll))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(ConcurrentModificationError):
        reader.position()
    may_end.set()
    thread.join(10)
    reader.position()
    assert reader.recoveries == []


# --- methods that only read -------------------------------------------------------------------------------------------

PARTITIONS = {TopicPartition("t", number) for number in range(8)}
READS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "assignment": (lambda consumer: consumer.assignment(), PARTITIONS),
    "subscription": (lambda consumer: consumer.subscription(), {"t"}),
    "paused": (lambda consumer: consumer.paused(), {TopicPartition("t", 0)}),
    "highwater": (lambda consumer: consumer.highwater(TopicPartition("t", 1)), 500),
    "bootstrap_connected": (lambda consumer: consumer.bootstrap_connected(), True),
    "group_metadata": (lambda consumer: consumer.group_metadata().group_id, "readers"),
}


@pytest.fixture(scope="module")
def polled() -> Iterator[KafkaConsumer[bytes, bytes]]:
    """A consumer with eight partitions, whose records it has read; one of them is paused."""
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        cluster.create_topic("t", len(PARTITIONS))
        servers = cluster.bootstrap_servers
        with KafkaProducer[bytes, bytes](bootstrap_servers=servers) as producer:
            for tp in PARTITIONS:
                producer.send_batch("t", [b"x"] * 500, partition=tp.partition).get(10)
        with KafkaConsumer[bytes, bytes](
            "t", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest", max_poll_records=50
        ) as consumer:
            count = 0
            while count < 500 * len(PARTITIONS):
                count += sum(map(len, consumer.poll(1_000).values()))
            consumer.pause(TopicPartition("t", 0))
            yield consumer


@pytest.mark.parametrize("name", READS)
def test_another_thread_may_read_while_one_polls(polled: KafkaConsumer[bytes, bytes], name: str) -> None:
    """The value is right at any moment, although polls move partitions that have delivered to the end of the order."""
    read, expected = READS[name]
    wrong: list[object] = []
    errors: list[Exception] = []
    is_over = threading.Event()

    def reading() -> None:
        try:
            while not is_over.is_set():
                if (value := read(polled)) != expected:
                    wrong.append(value)
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    thread = threading.Thread(target=reading)
    thread.start()
    try:
        for _ in range(5):
            polled.seek_to_beginning(*(PARTITIONS - polled.paused()))
            count = 0
            while count < 500 * (len(PARTITIONS) - 1):
                count += sum(map(len, polled.poll(1_000).values()))
    finally:
        is_over.set()
        thread.join(10)
    assert (errors, wrong) == ([], [])


def test_moving_a_partition_to_the_end_does_not_hide_it() -> None:
    index = SubscriptionState(LogContext(), AutoOffsetResetStrategy.EARLIEST)
    index.assign_from_user(sorted(PARTITIONS))
    first = index.assigned_partitions_list()[0]
    seen: list[bool] = []

    class Watching(dict[TopicPartition, Any]):
        def __setitem__(self, tp: TopicPartition, state: Any) -> None:
            seen.append(first in index.assigned_partitions())  # between the two steps of a move
            super().__setitem__(tp, state)

    index._index.assignment = Watching(index._index.assignment)
    index.move_partition_to_end(first)
    assert seen == [True]
    assert index.assigned_partitions_list()[-1] == first


@pytest.mark.parametrize("name", READS)
def test_signal_handler_may_read_in_the_middle_of_a_poll(polled: KafkaConsumer[bytes, bytes], name: str) -> None:
    read, expected = READS[name]
    values: list[object] = []

    def handler(_number: int, _frame: object) -> None:
        values.append(read(polled))
        polled.wakeup()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(WakeupError):
            polled.poll(30_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert values == [expected]


@pytest.mark.parametrize("name", READS)
def test_closed_consumer_cannot_be_read(name: str) -> None:
    consumer = KafkaConsumer[bytes, bytes](bootstrap_servers="localhost:1")
    consumer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        READS[name][0](consumer)
