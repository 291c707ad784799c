"""Scheduling of many actors in one thread on virtual time: whose turn it is, and when time advances."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from pykclient.clock import FOREVER_MS
from pykclient.testing.event_loop import EventLoop, TimerHandle, below

#: Turns that actors may take while time stands still; more than that is a busy loop.
MAX_TURNS_AT_ONE_INSTANT = 5_000
#: Callbacks of the loop while time stands still, likewise.
MAX_STEPS_AT_ONE_INSTANT = 100_000


class SimulationError(Exception):
    """The simulation cannot continue: it is deadlocked, or it is in an endless loop."""


class VirtualClock:
    """Implements pykclient.clock.Clock; time stands still while code runs, and jumps when all actors wait.

    Thread: owner of the simulation.
    """

    def __init__(self, now_ms: int = 1_000_000, wall_ms: int = 1_700_000_000_000) -> None:
        self.time_ms = now_ms
        self._wall_offset_ms = wall_ms - now_ms
        self.hub: Hub  # set by the hub

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return self.time_ms + self._wall_offset_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.hub.sleep(duration_ms)

    def new_signal(self) -> SimulatedSignal:
        return SimulatedSignal(self.hub)

    def new_condition(self, lock: Any = None) -> threading.Condition:
        return SimulatedCondition(self.hub, lock)

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        assert isinstance(condition, SimulatedCondition), "a condition of another clock"
        return condition.wait_ms(timeout_ms)


class Actor:
    """The simulation's equivalent of a thread; it runs until it waits for something.

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, ident: int, run: Callable[[], object], name: str) -> None:
        self._hub = hub
        self._run = run
        # When the actor ends, control returns to the hub. By default it would return to the greenlet that created the
        # actor, such as an application that starts a thread. That application would then run in the thread's turn, and
        # the actor's exception would be lost.
        self._greenlet = greenlet(self._main, hub.main)
        self._timer: TimerHandle | None = None
        self._woken = False
        self.ident = ident
        self.name = name
        self.done = False
        #: True if the actor must not wait any more.
        self.ending = False
        self.failure: BaseException | None = None
        #: The asyncio event loop that the actor runs. For asyncio, all actors are one thread, which runs one loop.
        self.event_loop: asyncio.AbstractEventLoop | None = None
        #: Actors that wait for this actor's end.
        self.waiters: list[Actor] = []

    def _main(self) -> None:
        try:
            self._run()
        except GreenletExit:
            pass  # ended from outside by ``end``; like a killed process, the actor reports nothing
        except BaseException as error:  # noqa: BLE001 - the end of a thread; the hub raises it
            self.failure = error
        self.done = True
        for waiter in self.waiters:
            waiter.wake()

    # --- for the hub -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Raise GreenletExit in the actor where it waits, and at every later wait while it unwinds."""
        self.ending = True
        if self._timer is not None:
            self._timer.cancel()
        if self._greenlet and not self.done:
            self._greenlet.parent = getcurrent()  # control returns to the caller of ``end``
            self._greenlet.throw(GreenletExit)
        self.done = True

    # --- waiting -----------------------------------------------------------------------------------------------------

    def park(self, timeout_ms: int) -> bool:
        """Let others run until ``wake`` or for ``timeout_ms``; return True if woken. Called by the actor itself."""
        hub = self._hub
        self._woken = False
        if timeout_ms < FOREVER_MS:
            self._timer = hub.loop.call_later(timeout_ms, hub.make_runnable, self)
        if self.ending:
            raise GreenletExit
        event_loop = self.event_loop
        if event_loop is None:
            hub.main.switch()
        else:
            asyncio._set_running_loop(None)
            try:
                hub.main.switch()
            finally:
                asyncio._set_running_loop(event_loop)
        return self._woken

    def wake(self) -> None:
        """Wake the actor from ``park``."""
        if not self._woken and not self.done:
            self._woken = True
            self._hub.make_runnable(self)

    def __repr__(self) -> str:
        return f"<Actor {self.name}{', done' if self.done else ''}>"


class Hub:
    """The scheduler: gives actors and the loop their turns, and advances time when nothing is runnable.

    ``rng`` chooses among several runnable actors. An exception that leaves an actor, or a callback of the loop, ends
    the run. Thread: owner.
    """

    def __init__(self, clock: VirtualClock, loop: EventLoop, rng: random.Random) -> None:
        self.clock = clock
        clock.hub = self
        self.loop = loop
        self._rng = rng
        self.main = getcurrent()
        self._actors: list[Actor] = []
        self._runnable: list[Actor] = []
        self._current: Actor | None = None
        #: The number of the actor whose turn it is; 0 outside of actors.
        self.current_ident = 0
        #: Turns that actors have taken so far.
        self.turns = 0
        #: The first failure reported by ``fail``, even if the actor swallowed the exception.
        self.failure: SimulationError | None = None

    # --- for actors --------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Actor:
        """The actor whose turn it is.

        Raises:
            SimulationError: the caller is not an actor.
        """
        if self._current is None:
            raise SimulationError("only actors can wait: start the code that waits with Simulation.actor()")
        return self._current

    def fail(self, problem: str) -> SimulationError:
        """Make the run fail with a SimulationError, and return the error for the caller to raise."""
        error = SimulationError(problem)
        if self.failure is None:
            self.failure = error
        return error

    def actor(self, run: Callable[[], object], name: str) -> Actor:
        """Return a new actor, which runs once it is made runnable."""
        actor = Actor(self, len(self._actors) + 1, run, name)
        self._actors.append(actor)
        return actor

    def make_runnable(self, actor: Actor) -> None:
        """Schedule a turn for ``actor``."""
        if actor not in self._runnable:
            self._runnable.append(actor)

    def sleep(self, duration_ms: int) -> None:
        """Let ``duration_ms`` pass; with 0, let others run without time passing."""
        self.current.park(max(0, duration_ms))

    def offer_turn(self) -> None:
        """Let others run if anything is runnable at this instant. Called by an actor."""
        if self._runnable or not self.loop.next_due_ms():
            self.current.park(0)

    def end(self, actor: Actor) -> None:
        """End another actor where it is; errors it raises while it unwinds are ignored."""
        before, self._current = self._current, actor
        ident, self.current_ident = self.current_ident, actor.ident
        event_loop = asyncio._get_running_loop()
        try:
            actor.end()
        finally:
            self._current = before
            self.current_ident = ident
            asyncio._set_running_loop(event_loop)

    # --- for the driver of the run -----------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool], limit_ms: int) -> None:
        """Run until ``until()`` is true; it is checked whenever nothing is runnable.

        Raises:
            SimulationError: ``until()`` is still false after ``limit_ms``, all actors wait forever, or actors or
                callbacks
                run endlessly while time stands still.
            BaseException: the error of an actor or a callback.
        """
        clock, loop = self.clock, self.loop
        deadline_ms = clock.time_ms + limit_ms
        turns, steps = self.turns, loop.steps
        while True:
            delay_ms = loop.run_due()
            failure = self.failure or loop.failure
            if failure is not None:
                raise failure
            if self._runnable:
                self._turn()
                if self.turns - turns > MAX_TURNS_AT_ONE_INSTANT:
                    raise SimulationError(f"{self.turns - turns} turns without time passing: {self.describe()}")
                continue
            if delay_ms == 0:
                if loop.steps - steps > MAX_STEPS_AT_ONE_INSTANT:
                    raise SimulationError(f"{loop.steps - steps} events without time passing: {self.describe()}")
                continue
            if until():
                return
            if clock.time_ms >= deadline_ms:
                raise SimulationError(f"not done after {limit_ms} ms: {self.describe()}")
            if delay_ms == FOREVER_MS:
                raise SimulationError(f"deadlock, all actors wait forever: {self.describe()}")
            clock.time_ms = min(clock.time_ms + delay_ms, deadline_ms)
            turns, steps = self.turns, loop.steps

    def _turn(self) -> None:
        runnable = self._runnable
        actor = runnable.pop(below(self._rng, len(runnable)) if len(runnable) > 1 else 0)
        if actor.done:
            return
        self.turns += 1
        self._current = actor
        self.current_ident = actor.ident
        timer = actor._timer
        if timer is not None:
            timer.cancel()
            actor._timer = None
        try:
            actor._greenlet.switch()  # it runs until it waits again
        finally:
            self._current = None
            self.current_ident = 0
        if actor.failure is not None:
            raise actor.failure

    def describe(self) -> str:
        """Return the names of the actors that have not ended, and the time."""
        waiting = [actor.name for actor in self._actors if not actor.done]
        return f"{', '.join(waiting) or 'no actor'} left at {self.clock.time_ms} ms"

    def close(self) -> None:
        """End all actors where they are."""
        for actor in self._actors:
            self.end(actor)
        self._runnable.clear()


class SimulatedThread:
    """An actor with the interface of a thread (pykclient.network.environment.Thread).

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, run: Callable[[], object], name: str) -> None:
        self._hub = hub
        self._actor = hub.actor(run, name)
        self._actor.done = True  # until ``start``
        self.name = name
        self.daemon = True

    @property
    def ident(self) -> int:
        return self._actor.ident

    def start(self) -> None:
        self._actor.done = False
        self._hub.make_runnable(self._actor)

    def is_alive(self) -> bool:
        return not self._actor.done

    def end(self) -> None:
        """End the thread where it is."""
        self._hub.end(self._actor)

    def join(self, timeout: float | None = None) -> None:
        timeout_ms = FOREVER_MS if timeout is None else int(timeout * 1000)
        deadline_ms = self._hub.clock.time_ms + timeout_ms
        while not self._actor.done and self._hub.clock.time_ms < deadline_ms:
            me = self._hub.current
            self._actor.waiters.append(me)
            me.park(deadline_ms - self._hub.clock.time_ms)
            if me in self._actor.waiters:
                self._actor.waiters.remove(me)


class SimulatedSignal:
    """A signal that an actor waits for (pykclient.clock.Signal).

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._is_set = False
        self._waiting: Actor | None = None

    def wait(self, timeout_ms: int) -> bool:
        if not self._is_set:
            actor = self._waiting = self._hub.current
            actor.park(max(timeout_ms, 0))
            self._waiting = None
        was_set, self._is_set = self._is_set, False
        return was_set

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None:
            self._waiting.wake()


class SimulatedCondition(threading.Condition):
    """A condition that actors wait for.

    Its lock is a real lock; an actor never holds it while another actor has the turn.

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub, lock: Any = None) -> None:
        super().__init__(lock)
        self._hub = hub
        self._parked: deque[Actor] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        return self.wait_ms(FOREVER_MS if timeout is None else int(timeout * 1000))

    def wait_ms(self, timeout_ms: int) -> bool:
        """Wait as ``wait`` does, with the timeout in milliseconds."""
        actor = self._hub.current
        self._parked.append(actor)
        self.release()
        try:
            return actor.park(timeout_ms)
        finally:
            if actor in self._parked:
                self._parked.remove(actor)
            if not self.acquire(blocking=False):
                raise self._hub.fail("a lock is held by an actor that waits for something else")

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._parked))):
            self._parked.popleft().wake()

    def notify_all(self) -> None:
        self.notify(len(self._parked))


class SimulatedReentrantLock:
    """A lock that an actor may hold while it waits (pykclient.network.environment.ReentrantLock).

    Thread: owner of the simulation.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._owner: int | None = None
        self._depth = 0
        self._parked: deque[Actor] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._hub.current_ident
        if self._owner is None:
            self._owner = me
            self._depth = 1
            return True
        if self._owner == me:
            self._depth += 1
            return True
        deadline_ms = FOREVER_MS if timeout < 0 else self._hub.clock.time_ms + int(timeout * 1000)
        while self._owner is not None:
            remaining_ms = deadline_ms - self._hub.clock.time_ms if deadline_ms < FOREVER_MS else FOREVER_MS
            if not blocking or remaining_ms <= 0:
                return False
            actor = self._hub.current
            self._parked.append(actor)
            actor.park(remaining_ms)
            if actor in self._parked:
                self._parked.remove(actor)
        self._owner = me
        self._depth = 1
        return True

    def release(self) -> None:
        if self._owner != self._hub.current_ident:
            raise self._hub.fail("a lock is released by an actor that does not hold it")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            if self._parked:
                self._parked.popleft().wake()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()
