from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import IllegalStateError
from pykclient.testing.embedded_cluster import LoopThread
from pykclient.testing.event_loop import EventLoop


class Poller:
    """A poller that only waits to be woken."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def poll(self, timeout_ms: int) -> None:
        self._woken.wait(min(timeout_ms, 1000) / 1000)
        self._woken.clear()

    def wakeup(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


@pytest.fixture
def loop() -> EventLoop:
    return EventLoop(SYSTEM_CLOCK)


@pytest.fixture
def thread(loop: EventLoop) -> Iterator[LoopThread]:
    thread = LoopThread(loop, Poller, "test-loop")
    thread.start()
    yield thread
    thread.stop(5)
    assert not thread.running


def test_call_runs_on_the_loop_thread_and_returns_its_result(thread: LoopThread) -> None:
    assert thread.call(lambda: threading.current_thread().name) == "test-loop"
    assert not thread.is_current


def test_call_from_the_loop_thread_runs_at_once(thread: LoopThread) -> None:
    assert thread.call(lambda: thread.call(lambda: thread.is_current))


def test_exception_of_a_call_is_raised_in_the_caller(thread: LoopThread) -> None:
    def fail() -> None:
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        thread.call(fail)
    assert thread.call(lambda: 1) == 1


def test_wait_ends_when_the_loop_makes_the_condition_true(loop: EventLoop, thread: LoopThread) -> None:
    seen: list[int] = []
    thread.call(lambda: loop.call_later(30, seen.append, 1))
    assert thread.wait_for(lambda: bool(seen), 5_000)


def test_wait_notices_changes_from_other_threads(thread: LoopThread) -> None:
    flag = threading.Event()
    timer = threading.Timer(0.03, flag.set)
    timer.start()
    assert thread.wait_for(flag.is_set, 5_000)
    timer.join()


def test_wait_times_out_and_stops_checking(thread: LoopThread) -> None:
    asked: list[int] = []

    def never() -> bool:
        asked.append(1)
        return False

    assert not thread.wait_for(never, 50)
    count = thread.call(lambda: len(asked))
    for _ in range(3):
        thread.call(lambda: None)
    assert len(asked) == count


def test_raising_condition_ends_the_wait(thread: LoopThread) -> None:
    def fail() -> bool:
        raise KeyError("condition")

    with pytest.raises(KeyError, match="condition"):
        thread.wait_for(fail, 5_000)


def test_hook_cannot_wait_on_its_own_thread(thread: LoopThread) -> None:
    with pytest.raises(IllegalStateError, match="must not wait"):
        thread.call(lambda: thread.wait_for(lambda: True, 10))


def test_ended_thread_refuses_calls(loop: EventLoop) -> None:
    thread = LoopThread(loop, Poller, "test-loop")
    thread.start()
    thread.stop(5)
    with pytest.raises(IllegalStateError, match="does not run"):
        thread.call(lambda: None)


def test_poller_is_opened_and_closed_on_the_loop_thread(loop: EventLoop) -> None:
    threads = []

    class Watched(Poller):
        def __init__(self) -> None:
            super().__init__()
            threads.append(threading.current_thread().name)

        def close(self) -> None:
            threads.append(threading.current_thread().name)

    thread = LoopThread(loop, Watched, "test-loop")
    assert threads == []
    thread.start()
    assert threads == ["test-loop"]
    thread.stop(5)
    assert threads == ["test-loop", "test-loop"]


def test_failure_to_open_the_poller_is_raised_by_start(loop: EventLoop) -> None:
    def fail() -> Poller:
        raise OSError("no port left")

    thread = LoopThread(loop, fail, "test-loop")
    with pytest.raises(OSError, match="no port left"):
        thread.start()
    thread.stop(5)
    assert not thread.running
