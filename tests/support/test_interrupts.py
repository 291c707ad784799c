"""The harness that interrupts calls finds all windows, and only those that CPython has."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.interrupts import Interrupted, Place, places

HERE = str(Path(__file__).parent)


def size(text: str) -> int:
    """A Python function, unlike ``len``, which is built in."""
    return len(text)


def interrupted_at(call: Callable[[], object]) -> list[Place]:
    """Return the places of ``call``, after interrupting it at each."""
    found: list[Place] = []
    for place in places(under=HERE):
        with place:
            error = place.interrupt(call)
            assert isinstance(error, Interrupted) == place.reached
            found.append(place)
    return found[:-1]


def test_function_has_a_place_at_its_start_and_after_each_call() -> None:
    def call() -> None:
        len("")
        len("")

    names = [place.name.split(" ", 3)[3] for place in interrupted_at(call)]
    assert [name.rsplit(" ", 1)[1] for name in names] == ["RESUME", "CALL", "CALL"]


def test_loop_has_a_place_at_each_backward_jump() -> None:
    def call() -> None:
        number = 0
        while number < 3:
            number += 1

    assert len(interrupted_at(call)) == 1 + 2


def test_statements_without_calls_are_not_interrupted() -> None:
    class Account:
        def __init__(self) -> None:
            self.balance = 0
            self.entries: list[int] = []

    account = Account()

    def call() -> None:
        len("")
        account.balance += 1
        account.entries += (1,)

    for place in places(under=HERE):
        with place:
            place.interrupt(call)
            assert account.balance == len(account.entries)


def test_lock_is_always_released() -> None:
    lock = threading.Lock()

    def call() -> None:
        with lock:
            len("")

    for place in places(under=HERE):
        with place:
            place.interrupt(call)
            assert not lock.locked()


@pytest.mark.parametrize("last", [len, size])
def test_last_call_of_a_block_is_interrupted_inside_the_block(last: Callable[[str], int]) -> None:
    """The exception is raised after the call, and the lock is still released."""
    lock = threading.Lock()

    def call() -> int:
        with lock:
            return last("")

    at_the_end = 0
    for place in places(under=HERE):
        with place:
            error = place.interrupt(call)
            assert isinstance(error, Interrupted) == place.reached
            assert not lock.locked()
            at_the_end += "call after CALL" in place.name
    assert at_the_end >= 2  # of ``last``, and of the release


def test_acquire_before_try_is_found() -> None:
    locks: list[threading.Lock] = []

    def call() -> None:
        lock = locks[-1]
        lock.acquire()
        try:
            len("")
        finally:
            lock.release()

    for place in places(under=HERE):
        with place:
            locks.append(threading.Lock())
            place.interrupt(call)
    assert [lock.locked() for lock in locks].count(True) == 1


def test_a_missing_finally_is_found() -> None:
    states: list[list[str]] = []

    def call() -> None:
        states[-1].append("begun")
        states[-1].append("ended")

    for place in places(under=HERE):
        with place:
            states.append([])
            place.interrupt(call)
    assert ["begun"] in states


def test_failure_note_names_the_place() -> None:
    place = next(places(under=HERE))
    place.interrupt(lambda: len(""))
    with pytest.raises(ZeroDivisionError) as caught, place:
        raise ZeroDivisionError
    assert caught.value.__notes__[0].startswith("interrupted at place 1: test_interrupts.py:")


def test_handler_runs_at_each_place_and_the_call_continues() -> None:
    ran: list[None] = []
    results: list[int] = []

    def call() -> None:
        results.append(len("four") + len("x"))

    for place in places(run=lambda: ran.append(None), under=HERE):
        with place:
            assert place.interrupt(call) is None
            assert len(ran) == place.number - (not place.reached)
    assert results == [5] * place.number


def test_other_code_is_not_interrupted() -> None:
    def call() -> None:
        threading.Condition()

    assert {place.name.split(":")[1].strip() for place in interrupted_at(call)} == {"test_interrupts.py"}


def test_calls_in_c_have_no_places() -> None:
    rounds = places(under=HERE)
    place = next(rounds)
    assert place.interrupt(int) is None
    assert not place.reached
    with pytest.raises(AssertionError, match="never interrupted"):
        next(rounds)


def test_round_without_a_call_is_refused() -> None:
    rounds = places(under=HERE)
    next(rounds)
    with pytest.raises(AssertionError, match="nothing was called"):
        next(rounds)


def test_real_signals_arrive_at_the_same_places() -> None:
    """CPython handles no signal at a place that the harness excludes, and can handle one at each that it includes."""
    lines: set[int] = set()
    base = 0

    def handle(_number: int, frame: object) -> None:
        lines.add(frame.f_lineno - base)  # type: ignore[attr-defined]

    def call() -> None:
        nonlocal base
        base = call.__code__.co_firstlineno
        number = 0
        signal.raise_signal(signal.SIGALRM)  # on the fourth line below the function's ``def``
        number += 1
        number += 1

    before = signal.signal(signal.SIGALRM, handle)
    try:
        call()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        raised_in = {int(place.name.split(":")[2].split(" ")[0]) - base for place in interrupted_at(call)}
    finally:
        signal.signal(signal.SIGALRM, before)
    assert lines == {4}
    assert raised_in == {0, 4}
