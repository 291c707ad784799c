"""Operations that wait: completed once, by a key or by time, and gone after that."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from pykclient.testing.delayed_operation import DelayedOperation, DelayedOperationPurgatory
from pykclient.testing.event_loop import EventLoop, TimerHandle
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker


class Operation(DelayedOperation):
    """Completes when it may, and notes how."""

    def __init__(self, delay_ms: int = 1000, *, ready: bool = False) -> None:
        super().__init__(delay_ms)
        self.ready = ready
        self.seen: list[Hashable | None] = []
        self.ended: list[str] = []
        self.then: Callable[[], object] | None = None

    def try_complete(self, key: Hashable | None) -> bool:
        self.seen.append(key)
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.ended.append("completed")
        if self.then is not None:
            self.then()

    def on_expiration(self) -> None:
        self.ended.append("expired")


class Owner:
    """As much of a broker as a purgatory needs."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.purgatory = DelayedOperationPurgatory(cast("Broker", self))

    def call_later(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> TimerHandle:
        return self.loop.call_later(delay_ms, callback, *arguments)

    def advance(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.loop.run_due()
        assert self.loop.failure is None


def test_what_can_be_completed_at_once_is_not_watched() -> None:
    owner = Owner()
    operation = Operation(ready=True)
    assert owner.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.ended == ["completed"]
    assert (owner.purgatory.waiting, owner.purgatory.is_watched("a")) == (0, False)


def test_a_key_completes_what_is_ready() -> None:
    owner = Owner()
    ready, other = Operation(), Operation()
    for operation in (ready, other):
        assert not owner.purgatory.try_complete_else_watch(operation, ["a", "b"])
    ready.ready = True
    assert owner.purgatory.check_and_complete("c") == 0
    assert owner.purgatory.check_and_complete("b") == 1
    assert (ready.ended, ready.seen, other.ended, other.seen) == (["completed"], [None, "b"], [], [None, "b"])
    assert owner.purgatory.waiting == 1
    owner.advance(1000)
    assert (ready.ended, other.ended) == (["completed"], ["expired", "completed"])
    assert (owner.purgatory.waiting, owner.purgatory.is_watched("a")) == (0, False)


def test_what_somebody_else_completed_is_forgotten() -> None:
    owner = Owner()
    operations = [Operation(), Operation()]
    for operation in operations:
        owner.purgatory.try_complete_else_watch(operation, ["a"])
        operation.force_complete()
    assert owner.purgatory.check_and_complete("a") == 0
    assert (owner.purgatory.waiting, owner.purgatory.is_watched("a")) == (0, False)
    owner.purgatory.try_complete_else_watch(late := Operation(), ["b"])
    late.force_complete()
    owner.advance(1000)
    assert late.ended == ["completed"]
    assert (owner.purgatory.waiting, owner.purgatory.is_watched("b")) == (0, False)


def test_completing_one_may_complete_and_add_others() -> None:
    owner = Owner()
    purgatory = owner.purgatory
    first, second, third = Operation(), Operation(), Operation(50)
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
    first.then = lambda: (purgatory.check_and_complete("a"), purgatory.try_complete_else_watch(third, ["a"]))
    purgatory.check_and_complete("a")
    assert (first.ended, second.ended, third.ended) == (["completed"], ["completed"], [])
    assert purgatory.waiting == 1
    owner.advance(50)
    assert third.ended == ["expired", "completed"]


def test_an_expiration_that_adds_another() -> None:
    owner = Owner()
    first, second = Operation(100), Operation(30)
    first.then = lambda: owner.purgatory.try_complete_else_watch(second, ["a"])
    owner.purgatory.try_complete_else_watch(first, ["a"])
    owner.advance(100)
    assert not second.ended
    owner.advance(30)
    assert second.ended == ["expired", "completed"]


def test_after_the_shutdown_nothing_is_completed() -> None:
    owner = Owner()
    operation = Operation(10)
    owner.purgatory.try_complete_else_watch(operation, ["a"])
    owner.purgatory.shutdown()
    operation.ready = True
    assert owner.purgatory.check_and_complete("a") == 0
    owner.advance(100)
    assert not operation.ended


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from((10, 20, 30)), st.sets(st.sampled_from("abc"))),
            st.tuples(st.just("ready"), st.integers(0, 20), st.just(set())),
            st.tuples(st.just("check"), st.just(0), st.sets(st.sampled_from("abc"), min_size=1, max_size=1)),
            st.tuples(st.just("pass"), st.integers(0, 25), st.just(set())),
        ),
        max_size=40,
    )
)
def test_each_ends_once_and_in_time(steps: list[tuple[str, int, set[str]]]) -> None:
    owner = Owner()
    operations: list[Operation] = []
    deadlines: list[int] = []
    for kind, number, keys in steps:
        if kind == "add":
            operation = Operation(number)
            operations.append(operation)
            deadlines.append(owner.clock.now_ms() + number)
            owner.purgatory.try_complete_else_watch(operation, keys)
        elif kind == "ready" and operations:
            operations[number % len(operations)].ready = True
        elif kind == "check":
            (key,) = keys
            waiting = [one for one in operations if not one.ended and one.ready and key in one.keys]
            assert owner.purgatory.check_and_complete(key) == len(waiting)
        elif kind == "pass":
            owner.advance(number)
        for operation, deadline in zip(operations, deadlines, strict=True):
            if deadline <= owner.clock.now_ms():
                assert operation.ended
            assert operation.ended in ([], ["completed"], ["expired", "completed"])
    assert owner.purgatory.waiting == sum(1 for one in operations if not one.ended)
    watched = {key for one in operations if not one.ended for key in one.keys}
    assert {key for key in "abc" if owner.purgatory.is_watched(key)} == watched
