"""Signal handlers that raise at every point of a call: no record is lost, and the consumer stays usable and closable.

A committed record must have been returned by an earlier call, and an application that continues to read gets each
record once and in order.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient.consumer.coordinator.classic_membership import ClassicMembership
from pykclient.consumer.fetch_collector import AnyFetch
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import IllegalStateError, KafkaError, WakeupError
from pykclient.types import TopicPartition
from tests.consumer.fake_broker import FakeCluster
from tests.support.interrupts import SOURCE, Interrupted, Place, places

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SIZES = {T0: 25, T1: 7}

Seen = dict[TopicPartition, int]  # the next offset that the application expects


class Application:
    """A consumer, and the records that the application got from each partition.

    It has polled once unless ``is_fresh``.
    """

    def __init__(self, *, subscribes: bool, is_fresh: bool = False, **settings: Any) -> None:
        self.cluster = FakeCluster({tp: [b"%d" % number for number in range(size)] for tp, size in SIZES.items()})
        self.consumer: KafkaConsumer[Any, Any] = self.cluster.consumer(
            group_id="g", max_poll_records=4, auto_commit_interval_ms=50, consumer_timeout_ms=1_000, **settings
        )
        self.next: Seen = dict.fromkeys(SIZES, 0)
        self.called_back = 0
        if subscribes:
            self.consumer.subscribe(["t"])
        else:
            self.consumer.assign(list(SIZES))
        if not is_fresh:
            self.poll()

    # --- calls to interrupt ------------------------------------------------------------------------------------------

    def poll(self) -> None:
        self._take(self.consumer.poll(1_000))

    def poll_without_waiting(self) -> None:
        self._take(self.consumer.poll(0))

    def look(self) -> None:
        self.consumer.poll(1_000, update_offsets=False)

    def step(self) -> None:
        self._got(self.consumer.__next__())

    def loop(self) -> None:
        for count, record in enumerate(self.consumer):
            self._got(record)
            if count == 5:
                break

    def loop_with_commits(self) -> None:
        for count, record in enumerate(self.consumer):
            self._got(record)
            self.commit_async()
            if count == 2:
                break

    def poll_arrow(self) -> None:
        self._got_rows(self.consumer.poll_arrow(1_000, max_records=5))

    def loop_over_arrow(self) -> None:
        for count, batch in enumerate(self.consumer.iter_arrow(max_records=3)):
            self._got_rows(batch)
            if count == 1:
                break

    def commit(self) -> None:
        self.consumer.commit()

    def commit_async(self) -> None:
        def count(_offsets: object, _error: object) -> None:
            self.called_back += 1

        self.consumer.commit_async(callback=count)

    def look_around(self) -> None:
        for tp in SIZES:
            self.consumer.position(tp)
            self.consumer.current_lag(tp)
        self.consumer.pause(T1)
        self.consumer.resume(T1)
        self.consumer.committed(T0)
        self.consumer.end_offsets([T0])
        self.consumer.metrics()

    def rejoin(self) -> None:
        self.consumer.enforce_rebalance()
        self.poll()

    def close(self) -> None:
        self.consumer.close()

    # --- what it got -------------------------------------------------------------------------------------------------

    def _take(self, records: dict[TopicPartition, list[Any]]) -> None:
        for list_ in records.values():
            for record in list_:
                self._got(record)

    def _got(self, record: Any) -> None:
        tp = TopicPartition(record.topic, record.partition)
        assert record.offset == self.next[tp], f"{tp}: {record.offset} came instead of {self.next[tp]}"
        self.next[tp] += 1

    def _got_rows(self, batch: Any) -> None:
        for row in batch.to_pylist():
            tp = TopicPartition(row["topic"], row["partition"])
            assert row["offset"] == self.next[tp], f"{tp}: {row['offset']} came instead of {self.next[tp]}"
            self.next[tp] += 1

    # --- what must hold ----------------------------------------------------------------------------------------------

    @property
    def committed(self) -> Seen:
        return {tp: offset.offset for tp, offset in self.cluster.broker.committed_offsets.items()}

    def read_to_the_end(self) -> None:
        self.consumer.resume(*self.consumer.paused())
        for _ in range(60):
            self.poll()
            if self.next == SIZES:
                return
        raise AssertionError(f"the records did not come: {self.next}")

    def check_commits(self) -> None:
        for tp, offset in self.committed.items():
            assert offset <= self.next[tp], f"{tp} is committed up to {offset}, but was seen up to {self.next[tp]}"

    def check_locks(self) -> None:
        """Check that no lock is held while no call is in progress."""
        components = self.consumer._consumer.components
        locks = {
            "client": components.client.lease,
            "metadata": components.metadata._lock,
            "api_versions": components.api_versions._lock,
            "metrics": components.metrics._lock,
        }
        if components.coordinator is not None:
            membership = components.coordinator.membership
            assert isinstance(membership, ClassicMembership)
            locks["membership"] = membership._lock
            locks["lookup"] = components.coordinator.lookup._lock
        held: list[str] = []

        def look() -> None:
            for name, lock in locks.items():
                if lock.acquire(blocking=False):
                    lock.release()
                else:
                    held.append(name)

        other = threading.Thread(target=look)  # on another thread, because some locks are reentrant
        other.start()
        other.join()
        assert not held, f"locks are held: {held}"


CALLS: dict[str, Callable[[Application], None]] = {
    call.__name__: call
    for call in (
        Application.poll,
        Application.poll_without_waiting,
        Application.look,
        Application.step,
        Application.loop,
        Application.loop_with_commits,
        Application.poll_arrow,
        Application.loop_over_arrow,
        Application.commit,
        Application.commit_async,
        Application.look_around,
    )
}


def every(step: int, run: Callable[[], object]) -> Iterator[Place]:
    """Yield each ``step``-th place of a call until the call has no more; ``run`` is called at the place."""
    number = 1
    gc.disable()  # otherwise destructors of consumers from earlier rounds would be interrupted instead
    try:
        while True:
            place = Place(number, run, SOURCE)
            yield place
            if not place.reached:
                assert number > 1
                return
            number += step
            if number % 8 == 0:
                gc.collect()
    finally:
        gc.enable()


def fail() -> None:
    raise Interrupted


def check_interrupted(
    step: int, call: Callable[[Application], None], check: Callable[[Application], None], **settings: Any
) -> None:
    """Interrupt ``call`` at each place with an exception, and ``check`` the application afterwards."""
    for place in every(step, fail):
        application = Application(**settings)
        with place:
            error = place.interrupt(lambda: call(application))  # noqa: B023
            assert error is None or isinstance(error, Interrupted), repr(error)
            application.check_locks()
            check(application)


def check_closing(step: int, call: Callable[[Application], None], **settings: Any) -> None:
    def check(application: Application) -> None:
        application.close()
        application.check_commits()

    check_interrupted(step, call, check, **settings)


def check_reading_on(step: int, call: Callable[[Application], None], **settings: Any) -> None:
    def check(application: Application) -> None:
        application.read_to_the_end()
        application.close()
        application.check_commits()
        if settings.get("enable_auto_commit"):
            assert application.committed == SIZES

    check_interrupted(step, call, check, **settings)


@pytest.mark.parametrize("enable_auto_commit", [False, True], ids=["by hand", "auto-commit"])
@pytest.mark.parametrize("name", CALLS)
def test_consumer_closes_after_an_interrupted_call(name: str, enable_auto_commit: bool) -> None:
    check_closing(97, CALLS[name], subscribes=False, enable_auto_commit=enable_auto_commit)


@pytest.mark.parametrize("name", CALLS)
def test_consumer_reads_on_after_an_interrupted_call(name: str) -> None:
    check_reading_on(71, CALLS[name], subscribes=False, enable_auto_commit=True)


def test_consumer_reads_on_after_an_interrupted_first_poll() -> None:
    settings: dict[str, Any] = {"is_fresh": True, "enable_auto_commit": True}
    check_reading_on(211, Application.poll, subscribes=False, **settings)
    check_reading_on(211, Application.poll, subscribes=True, **settings)


def test_consumer_reads_on_after_an_interrupted_rebalance() -> None:
    check_reading_on(101, Application.rejoin, subscribes=True, enable_auto_commit=True)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("subscribes", [False, True], ids=["assign", "subscribe"])
@pytest.mark.parametrize("name", CALLS)
def test_interruptions_at_every_line_are_survived(name: str, subscribes: bool) -> None:
    check_reading_on(1, CALLS[name], subscribes=subscribes, enable_auto_commit=True)
    check_closing(1, CALLS[name], subscribes=subscribes, enable_auto_commit=True)


@pytest.mark.parametrize("subscribes", [False, True], ids=["assign", "subscribe"])
def test_close_after_an_interrupted_close(subscribes: bool) -> None:
    for place in every(43, fail):
        application = Application(subscribes=subscribes, enable_auto_commit=True)
        with place:
            error = place.interrupt(application.close)
            assert error is None or isinstance(error, Interrupted), repr(error)
            application.check_locks()
            application.close()
            application.check_commits()
            with pytest.raises(IllegalStateError, match="closed"):
                application.consumer.poll(0)


def use_next(application: Application) -> None:
    try:
        for _ in range(3):
            application._got(next(application.consumer))
    finally:
        application.close()


def test_interrupted_next_commits_only_returned_records() -> None:
    for place in places(under=__file__):
        application = Application(subscribes=False, enable_auto_commit=True)
        with place:
            place.interrupt(lambda: use_next(application))  # noqa: B023
            application.close()
            application.check_commits()


def test_every_commit_calls_back_once() -> None:
    for place in every(19, fail):
        application = Application(subscribes=False, enable_auto_commit=False)
        with place:
            error = place.interrupt(application.commit_async)
            application.read_to_the_end()
            application.close()
            assert application.called_back == 1 or (error is not None and application.called_back == 0)


#: Methods that a signal handler or destructor may call while the same thread is inside a call.
INTRUDERS: dict[str, Callable[[Application], object]] = {
    "close": Application.close,
    "poll": Application.poll_without_waiting,
    "commit": Application.commit,
    "metrics": lambda application: application.consumer.metrics(),
    "wakeup": lambda application: application.consumer.wakeup(),
}


@pytest.mark.parametrize("call", ["poll", "loop", "commit"])
@pytest.mark.parametrize("name", INTRUDERS)
def test_signal_handler_calls_work_or_are_refused(name: str, call: str) -> None:
    """The handler's call works or raises IllegalStateError at once.

    The interrupted call then continues or ends with that error.
    """
    application: Application
    refused: list[str] = []

    def intrude() -> None:
        try:
            INTRUDERS[name](application)
        except IllegalStateError as error:
            refused.append(str(error))
            raise

    for place in every(61, intrude):
        application = Application(subscribes=False, enable_auto_commit=False)
        with place:
            error = place.interrupt(lambda: CALLS[call](application))  # noqa: B023
            is_closed = "closed" in repr(application.consumer)
            assert (
                error is None
                or (isinstance(error, WakeupError) and name == "wakeup")
                or (isinstance(error, KafkaError) and ("wakeup()" in str(error) or is_closed))
            ), repr(error)
            application.check_locks()
            if not is_closed:
                if name == "wakeup":
                    with contextlib.suppress(WakeupError):
                        application.consumer.poll(0, update_offsets=False)
                application.read_to_the_end()
                application.close()
            application.check_commits()
    assert refused or name == "wakeup"
    assert all("wakeup()" in reason for reason in refused)


@pytest.mark.parametrize("call", ["poll", "poll_arrow", "loop"])
@pytest.mark.parametrize("catches", [True, False])
def test_a_signal_handler_commits_while_a_call_returns_its_records(
    call: str, catches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(subscribes=False, enable_auto_commit=False)
    returned = AnyFetch.__dict__["returned"]
    refused: list[str] = []

    class Interrupted:
        """The attribute ``returned``; the handler strikes before it is set."""

        def __get__(self, fetch: AnyFetch, _: type) -> object:
            return returned.__get__(fetch)

        def __set__(self, fetch: AnyFetch, value: bool) -> None:
            if value and fetch.num_records and not refused:
                try:
                    application.commit()
                except IllegalStateError as error:
                    refused.append(str(error))
                    if not catches:
                        raise
            returned.__set__(fetch, value)

    monkeypatch.setattr(AnyFetch, "returned", Interrupted())
    with contextlib.nullcontext() if catches else pytest.raises(IllegalStateError):
        CALLS[call](application)
    assert len(refused) == 1
    assert "is in the middle of" in refused[0]
    application.read_to_the_end()
    application.close()
