"""Driving a client from an asyncio event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, Protocol

from pykclient.clock import Clock
from pykclient.network.client_request import ClientResponse

#: A turn that finds more to do goes on for this many rounds, and begins none after this time, in ms. Then the
#: loop's other callbacks have their turn.
_MOST_ROUNDS: Final = 4
_LONG_TURN_MS: Final = 5

#: A coroutine that keeps calling a client lets the loop run after this time without a turn, in ms.
_LONGEST_RUN_MS: Final = 5

#: The longest timer: a turn that comes early does no harm.
_LONGEST_WAIT_MS: Final = 3_600_000


#: A future that is done, and the callback and the context with which a task waits for it.
Resumption = tuple[asyncio.Future[Any], Callable[[asyncio.Future[Any]], object], Context]


class Decider(Protocol):
    """The part of a client that decides what to send, such as a Sender. Thread: owner."""

    @property
    def is_closed(self) -> bool:
        """True once there is nothing more to decide, and the connections are closed."""

    def step(self, now_ms: int) -> int:
        """Do everything that is due; return within how many ms to be called again."""

    def round_failed(self, error: Exception, now_ms: int) -> int:
        """Clean up after an exception that ended a round early; return the backoff in ms."""

    def fail(self, error: BaseException) -> None:
        """Close because of an exception that no round may follow."""


class PolledClient(Protocol):
    """The part of a NetworkClient that a driver calls. Thread: owner."""

    def begin_poll(self, timeout_ms: int, now_ms: int) -> int: ...

    def end_poll(self, now_ms: int) -> list[ClientResponse]: ...


class WatchedSelector(Protocol):
    """The part of a selector that a driver calls. Thread: owner."""

    def fileno(self) -> int: ...

    def poll(self, timeout_ms: int) -> None: ...

    def wait_bound_ms(self, now_ms: int) -> int: ...


class LoopDriver:
    """Drives one client from the event loop's own thread, with one reader and one timer of the loop.

    A thread that drives a client steps the decider, begins a poll, waits, does the I/O, and ends the poll. Here the
    wait is the loop's: the loop watches the selector's descriptor, and a *turn* does the rest, without ever blocking. A
    turn comes when the descriptor is readable, when the timer is due, and in the next iteration of the loop after
    ``wake``, unless ``turn_if_woken`` has it before. After each turn ``on_turn`` is called: only a turn can bring what
    coroutines wait for. What goes on because of a turn does so in the loop's next iteration; only a task in ``resumed``
    does right after a turn that the loop has begun.

    The loop keeps the driver alive until the decider has closed. So a client that is dropped without being closed can
    still send what is left. Thread: the loop's.
    """

    __slots__ = (
        "__weakref__",
        "_client",
        "_clock",
        "_decider",
        "_descriptor",
        "_due_ms",
        "_is_turning",
        "_is_woken",
        "_last_turn_ms",
        "_loop",
        "_on_turn",
        "_selector",
        "_timer",
        "closed",
        "is_held",
        "resumed",
        "turns",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        decider: Decider,
        client: PolledClient,
        selector: WatchedSelector,
        clock: Clock,
        on_turn: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._decider = decider
        self._client = client
        self._selector = selector
        self._clock = clock
        self._on_turn = on_turn
        self._descriptor: int | None = None  # while the loop watches it
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0  # when the timer is due
        self._is_woken = False  # True while a turn is queued in the loop
        self._is_turning = False
        self._last_turn_ms = 0  # when the last turn ended
        #: While this is True, ``wake`` causes no turn. It is set for a part of one callback of the loop, which
        #: then calls ``go_on``.
        self.is_held = False
        #: Done once the decider has closed.
        self.closed: asyncio.Future[None] = loop.create_future()
        #: Tasks whose future the current turn has settled, and that the loop does not know of.
        self.resumed: list[Resumption] = []
        #: The number of turns so far.
        self.turns = 0

    def start(self) -> None:
        """Watch the selector.

        Raises:
            io.UnsupportedOperation: the system has no descriptor that the loop could watch.
            NotImplementedError: the loop cannot watch descriptors, as the proactor loop of Windows.
        """
        self._watch()
        self.wake()

    @property
    def is_overdue(self) -> bool:
        """True if the loop has run no turn for long. A coroutine that calls the client in a loop must then give way."""
        return self._clock.now_ms() - self._last_turn_ms > _LONGEST_RUN_MS

    def wake(self) -> None:
        """Have a turn in the next iteration of the loop."""
        if self._is_woken:
            return
        if self.is_held:  # by the loop's current callback, so the loop is not closed
            self._is_woken = True
        elif not (self.closed.done() or self._loop.is_closed()):
            self._is_woken = True
            self._loop.call_soon(self._turn_after_wake)

    def go_on(self, at_once: bool) -> None:
        """End ``is_held``, and have the turn that was held back: ``at_once``, or in the next iteration of the loop.

        A turn at once saves the loop an iteration, in which it would find nothing else to do.
        """
        self.is_held = False
        if self._is_woken:
            if at_once and not self._is_turning and not self.closed.done():
                self._turn_in_task()
            else:
                self._loop.call_soon(self._turn_after_wake)

    def turn_if_woken(self) -> None:
        """Have the turn that is queued in the loop at once.

        A request is so on its way while the loop looks for other work.
        """
        if self._is_woken and not self._is_turning and not self.closed.done():
            self._turn_in_task()

    # --- turns -----------------------------------------------------------------------------------------------------

    def _turn_after_wake(self) -> None:
        if self._is_woken and not self.closed.done():
            self._turn_in_loop(False)

    def _turn_after_wait(self) -> None:
        self._timer = None
        if self._descriptor is None:
            self._watch()
        self._turn_in_loop(True)

    def _turn_in_loop(self, with_io: bool) -> None:
        """Have a turn as a callback of the loop, and then let a single task in ``resumed`` go on: no other is running.

        The loop would take another iteration for it, and find nothing else to do.
        """
        try:
            self._turn(with_io)
            if len(self.resumed) == 1:
                future, wakeup, context = self.resumed.pop()
                context.run(wakeup, future)
        finally:
            if self.resumed:
                self._resume_soon()

    def _turn_in_task(self) -> None:
        """Have a turn while a task is running, or the loop is closed."""
        try:
            self._turn(False)
        finally:
            if self.resumed:
                self._resume_soon()

    def _resume_soon(self) -> None:
        while self.resumed:
            future, wakeup, context = self.resumed.pop(0)
            self._loop.call_soon(wakeup, future, context=context)

    def _turn(self, with_io: bool) -> None:
        """Do what is due: the I/O, unless the loop has found none, and the decisions that follow."""
        self._is_turning = True
        if not with_io:
            self._is_woken = False
        try:
            wait_ms = self._run_rounds(with_io)
        except BaseException as error:
            # SystemExit of a plugin, for example. The loop passes it on, or logs it.
            self._decider.fail(error)
            raise
        finally:
            self._is_turning = False
            self._last_turn_ms = now_ms = self._clock.now_ms()
            self.turns += 1
            if self._decider.is_closed:
                self._end()
            self._on_turn()
        if not self._decider.is_closed:
            self._schedule(wait_ms, now_ms)

    def close_at_once(self) -> None:
        """Have a turn now, for a decider that was told to close by force. The loop may have been closed already."""
        if not self._decider.is_closed:
            self._turn_in_task()

    def _run_rounds(self, with_io: bool) -> int:
        """Run rounds until there is nothing to do at once, or enough are done; return for how many ms to wait."""
        clock, client, decider, selector = self._clock, self._client, self._decider, self._selector
        wait_ms = 0
        now_ms = start_ms = clock.now_ms()
        try:
            for _ in range(_MOST_ROUNDS):
                if with_io:
                    selector.poll(0)
                    now_ms = clock.now_ms()
                    client.end_poll(now_ms)
                wait_ms = decider.step(now_ms)
                if decider.is_closed:
                    break
                wait_ms = client.begin_poll(wait_ms, now_ms)
                bound_ms = selector.wait_bound_ms(now_ms)
                wait_ms = wait_ms if wait_ms < bound_ms else bound_ms
                if wait_ms > 0 or clock.now_ms() - start_ms > _LONG_TURN_MS:
                    break
                with_io = True
        except Exception as error:  # noqa: BLE001 - the client must go on, and the loop too
            wait_ms = decider.round_failed(error, clock.now_ms())
            self._unwatch()  # the descriptor may stay readable, and would cause turn after turn
        return wait_ms

    def _schedule(self, wait_ms: int, now_ms: int) -> None:
        """Have the next turn in ``wait_ms``, or earlier if a timer is due before."""
        if wait_ms <= 0:
            self.wake()
            return
        wait_ms = wait_ms if wait_ms < _LONGEST_WAIT_MS else _LONGEST_WAIT_MS
        due_ms = now_ms + wait_ms
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._loop.call_later(wait_ms / 1000, self._turn_after_wait)

    # --- the loop --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._descriptor = descriptor = self._selector.fileno()
        self._loop.add_reader(descriptor, self._turn_in_loop, True)

    def _unwatch(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._loop.remove_reader(descriptor)

    def release(self) -> None:
        """Let go of the loop. The selector calls this before it closes its descriptor, whose number may be reused."""
        if self._loop.is_closed():
            self._descriptor = self._timer = None
            return
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.release()
        if not self.closed.done() and not self._loop.is_closed():
            self.closed.set_result(None)
