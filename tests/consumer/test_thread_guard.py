"""Calls of a second thread while another thread's call returns its records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pykclient.consumer.consumer_face import ThreadGuard
from pykclient.errors import ConcurrentModificationError


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

    def assignment(self) -> None:
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


def test_records_that_are_being_returned_are_not_taken_back() -> None:
    reader = Reader()
    errors: list[BaseException | None] = []
    reader.poll(lambda: errors.append(in_a_thread(reader.assignment)))
    assert isinstance(errors[0], ConcurrentModificationError)
    assert in_a_thread(reader.assignment) is None
    assert reader.recoveries == []


def test_records_that_were_not_returned_are_taken_back_by_any_thread() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    reader = Reader()
    with pytest.raises(KeyboardInterrupt):
        reader.poll(interrupted)
    assert in_a_thread(reader.assignment) is None
    assert reader.recoveries == [False]


def test_another_reader_of_that_thread_does_not_count() -> None:
    reader, other = Reader(), Reader()
    with pytest.raises(ZeroDivisionError):
        reader.poll(lambda: 1 / 0)
    errors: list[BaseException | None] = []
    other.poll(lambda: errors.append(in_a_thread(reader.assignment)))
    assert errors == [None]
    assert reader.recoveries == [False]


def test_a_call_that_leaves_while_another_enters_was_not_interrupted() -> None:
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
        reader.assignment()
    may_end.set()
    thread.join(10)
    reader.assignment()
    assert reader.recoveries == []
