"""Actors take turns, and time advances when all of them wait."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest

from pykclient.clock import FOREVER_MS
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.simulation.hub import (
    Actor,
    Hub,
    SimulatedReentrantLock,
    SimulatedThread,
    SimulationError,
    VirtualClock,
)

_LIMIT_MS = 100_000


class World:
    def __init__(self, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.start_ms = self.clock.now_ms()
        self.loop = EventLoop(self.clock)
        self.hub = Hub(self.clock, self.loop, random.Random(seed))
        self.actors: list[Actor] = []
        self.log: list[tuple[int, str]] = []

    def note(self, what: str) -> None:
        self.log.append((self.clock.now_ms() - self.start_ms, what))

    def actor(self, run: Callable[[], object]) -> Actor:
        actor = self.hub.actor(run, f"actor {len(self.actors)}")
        self.actors.append(actor)
        self.hub.make_runnable(actor)
        return actor

    def run(self, limit_ms: int = _LIMIT_MS) -> None:
        self.hub.run(lambda: all(actor.done for actor in self.actors), limit_ms)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.hub.close()


def test_time_jumps_to_the_next_event(world: World) -> None:
    def sleeper() -> None:
        world.clock.sleep_ms(3_000)
        world.note("slept")

    world.loop.call_later(1_000, world.note, "timer")
    world.actor(sleeper)
    world.run()
    assert world.log == [(1_000, "timer"), (3_000, "slept")]
    assert world.clock.wall_ms() - world.clock.now_ms() == VirtualClock().wall_ms() - VirtualClock().now_ms()


def test_seed_determines_the_order_of_turns() -> None:
    def turns(seed: int) -> list[tuple[int, str]]:
        world = World(seed)

        def run(name: str) -> None:
            for _ in range(5):
                world.note(name)
                world.clock.sleep_ms(0)

        for name in "abc":
            world.actor(lambda name=name: run(name))  # type: ignore[misc]
        world.run()
        return world.log

    assert turns(1) == turns(1)
    assert len({tuple(turns(seed)) for seed in range(10)}) > 5


def test_condition_wait_ends_with_notify(world: World) -> None:
    condition = world.clock.new_condition(threading.Lock())
    results: list[bool] = []

    def waiter() -> None:
        with condition:
            results.append(world.clock.wait(condition, FOREVER_MS))
            world.note("notified")

    def notifier() -> None:
        world.clock.sleep_ms(50)
        with condition:
            condition.notify()

    world.actor(waiter)
    world.actor(notifier)
    world.run()
    assert results == [True]
    assert world.log == [(50, "notified")]


def test_notify_wakes_the_given_number(world: World) -> None:
    condition = world.clock.new_condition()
    results: list[bool] = []

    def waiter() -> None:
        with condition:
            results.append(world.clock.wait(condition, 1_000))

    for _ in range(3):
        world.actor(waiter)

    def notifier() -> None:
        world.clock.sleep_ms(1)
        with condition:
            condition.notify(2)

    world.actor(notifier)
    world.run()
    assert results == [True, True, False]


def test_wait_without_notify_times_out(world: World) -> None:
    condition = world.clock.new_condition()

    def waiter() -> None:
        with condition:
            assert not world.clock.wait(condition, 70)
        world.note("timed out")

    world.actor(waiter)
    world.run()
    assert world.log == [(70, "timed out")]


def test_reentrant_lock_belongs_to_one_actor(world: World) -> None:
    lock = SimulatedReentrantLock(world.hub)

    def holder() -> None:
        with lock, lock:
            world.clock.sleep_ms(100)
        world.note("released")

    def taker() -> None:
        world.clock.sleep_ms(10)
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.02)
        world.note("gave up")
        with lock:
            world.note("taken")

    world.actor(holder)
    world.actor(taker)
    world.run()
    assert world.log == [(30, "gave up"), (100, "released"), (100, "taken")]


def test_lock_is_released_only_by_its_holder(world: World) -> None:
    lock = SimulatedReentrantLock(world.hub)

    def release() -> None:
        try:
            lock.release()
        except SimulationError:
            world.note("caught")

    world.actor(lock.acquire)
    world.run()
    world.actor(release)
    with pytest.raises(SimulationError, match="does not hold it"):
        world.run()
    assert world.log == [(0, "caught")]


def test_thread_can_be_joined(world: World) -> None:
    threads: list[SimulatedThread] = []

    def run() -> None:
        assert world.hub.current_ident == threads[0].ident
        world.clock.sleep_ms(100)

    def main() -> None:
        threads.append(SimulatedThread(world.hub, run, "worker"))
        assert not threads[0].is_alive()
        threads[0].start()
        threads[0].join(0.03)
        assert threads[0].is_alive()
        world.note("still there")
        threads[0].join()
        assert not threads[0].is_alive()
        world.note("ended")

    world.actor(main)
    world.run()
    assert world.log == [(30, "still there"), (100, "ended")]


def test_actor_exception_after_joining_its_thread_ends_the_run(world: World) -> None:
    """An application that fails inside ``with KafkaProducer`` behaves like this."""

    def run() -> None:
        world.clock.sleep_ms(100)

    def main() -> None:
        thread = SimulatedThread(world.hub, run, "worker")
        thread.start()
        thread.join()
        assert world.hub.current.name == "actor 0"
        world.clock.sleep_ms(10)
        raise LookupError("lost")

    world.actor(main)
    with pytest.raises(LookupError, match="lost"):
        world.run()


def test_actor_exception_ends_the_run(world: World) -> None:
    def fail() -> None:
        raise LookupError("lost")

    world.actor(fail)
    with pytest.raises(LookupError, match="lost"):
        world.run()


def test_deadlock_is_an_error(world: World) -> None:
    condition = world.clock.new_condition()

    def waiter() -> None:
        with condition:
            world.clock.wait(condition, FOREVER_MS)

    world.actor(waiter)
    with pytest.raises(SimulationError, match="deadlock, all actors wait forever: actor 0 left"):
        world.run()


def test_busy_loop_is_an_error(world: World) -> None:
    def spinner() -> None:
        while True:
            world.clock.sleep_ms(0)

    world.actor(spinner)
    with pytest.raises(SimulationError, match="turns without time passing"):
        world.run()


def test_endless_callbacks_are_an_error(world: World) -> None:
    def again() -> None:
        world.loop.call_soon(again)

    again()
    with pytest.raises(SimulationError, match="events without time passing"):
        world.run()


def test_run_beyond_its_limit_is_an_error(world: World) -> None:
    def sleeper() -> None:
        while True:
            world.clock.sleep_ms(10)

    world.actor(sleeper)
    with pytest.raises(SimulationError, match="not done after 1000 ms"):
        world.run(1_000)


def test_only_actors_can_wait(world: World) -> None:
    with pytest.raises(SimulationError, match="only actors can wait"):
        world.clock.sleep_ms(1)


def test_close_ends_waiting_actors() -> None:
    world = World()
    condition = world.clock.new_condition()
    ended: list[str] = []

    def waiter() -> None:
        try:
            with condition:
                world.clock.wait(condition, FOREVER_MS)
        finally:
            ended.append("waiter")
            world.clock.sleep_ms(5)  # raises the end of the run again
            ended.append("not reached")

    world.actor(waiter)
    world.hub.run(lambda: True, _LIMIT_MS)
    world.hub.close()
    assert ended == ["waiter"]


def test_actor_can_end_another_actor(world: World) -> None:
    ended: list[str] = []

    def victim() -> None:
        try:
            world.clock.sleep_ms(1_000)
        finally:
            ended.append("victim")
            world.clock.sleep_ms(5)

    def killer() -> None:
        world.clock.sleep_ms(10)
        world.hub.end(actor)
        assert world.hub.current.name == "actor 1"
        world.clock.sleep_ms(10)
        world.note("went on")

    actor = world.actor(victim)
    world.actor(killer)
    world.run()
    assert ended == ["victim"]
    assert world.log == [(20, "went on")]
