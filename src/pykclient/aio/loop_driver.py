"""A client on an event loop: its waits, the driver of its sockets, its environment, and its first steps."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

from pykclient.clock import Clock, Signal, SystemClock
from pykclient.errors import DisconnectError, IllegalStateError, KafkaTimeoutError
from pykclient.network.client_request import ClientResponse
from pykclient.network.client_utils import HostLookups, parse_addresses, resolver_for
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment, ReentrantLock, Thread
from pykclient.network.host_resolver import HostResolver, Lookup
from pykclient.network.selector import Selector, SelectorConfig
from pykclient.pacing import MOST_AT_ONCE, one_iteration

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.channel_builders import ChannelBuilder
    from pykclient.network.metadata import Metadata
    from pykclient.network.selectable import Selectable
    from pykclient.producer.buffer_pool import BufferPool

T = TypeVar("T")
#: The longest timer of a loop, in ms. A wait without a limit has none.
_LONGEST_TIMER_MS: Final = 1 << 40


class _Timer:
    """A limit on the wait for a future: sets its result to False when it is due."""

    __slots__ = ("_handle",)

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int, future: asyncio.Future[bool]) -> None:
        self._handle = None
        if timeout_ms < _LONGEST_TIMER_MS:
            self._handle = loop.call_later(max(0, timeout_ms) / 1000, _give_up, future)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


def _give_up(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


class LoopWaits:
    """The coroutines that wait for a condition. ``check`` is called after each turn. Thread: the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._at_once = 0  # waits that ended at once since the last one that did not
        self.waiting: dict[asyncio.Future[bool], Callable[[], object]] = {}

    async def until(self, condition: Callable[[], object], timeout_ms: int) -> bool:
        """Wait until ``condition`` holds after a turn; return False if ``timeout_ms`` passes first.

        An exception that ``condition`` raises is raised here.
        """
        if condition():
            self._at_once += 1
            if self._at_once <= MOST_AT_ONCE:
                return True
            await one_iteration()
            if condition():
                self._at_once = 0
                return True
        self._at_once = 0
        future: asyncio.Future[bool] = self._loop.create_future()
        self.waiting[future] = condition
        timer = _Timer(self._loop, timeout_ms, future)
        try:
            return await future
        finally:
            timer.cancel()
            self.waiting.pop(future, None)

    def check(self) -> None:
        """Wake the coroutines whose conditions hold."""
        for future, condition in [*self.waiting.items()]:
            if future.done():
                continue
            try:
                if condition():
                    future.set_result(True)
            except Exception as error:  # noqa: BLE001 - it is raised where the condition is waited for
                future.set_exception(error)


class _Place:
    """A coroutine's place in the line for memory."""

    __slots__ = ("future", "size")

    def __init__(self, size: int, future: asyncio.Future[bool]) -> None:
        self.size = size
        self.future = future


class MemoryLine:
    """The queue of coroutines that wait for a pool's memory, first come, first served. Thread: the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: BufferPool) -> None:
        self._loop = loop
        self._pool = pool
        self._line: deque[_Place] = deque()
        #: True if no coroutine waits. Each record and each turn of the driver asks for it.
        self.is_empty = True

    async def attempt(self, take: Callable[[], T | None], size: int, timeout_ms: int) -> T | None:
        """Call ``take`` when it is this caller's turn and memory is free, until it no longer returns None.

        ``size`` is the number of bytes that must be free for the first call. Return the result, or None after
        ``timeout_ms``. A caller that is cancelled has taken nothing.
        """
        place = _Place(size, self._loop.create_future())
        self._line.append(place)
        self.is_empty = False
        self._pool.waiting_elsewhere += 1  # batches with memory no longer linger
        deadline_s = self._loop.time() + timeout_ms / 1000
        try:
            self.check()
            while True:
                timer = _Timer(self._loop, ceil((deadline_s - self._loop.time()) * 1000), place.future)
                try:
                    if not await place.future:
                        return None
                finally:
                    timer.cancel()
                taken = take()
                if taken is not None:
                    return taken
                place.size = self._pool.missing_bytes
                place.future = self._loop.create_future()
        finally:
            self._line.remove(place)
            self.is_empty = not self._line
            self._pool.waiting_elsewhere -= 1
            self.check()

    def check(self) -> None:
        """Wake as many coroutines, from the first one on, as there is memory for."""
        if not self._line:
            return
        free = self._pool.available_memory
        for place in self._line:
            free -= place.size
            if free < 0:
                return
            if not place.future.done():
                place.future.set_result(True)

    def end(self, error: Exception) -> None:
        """Fail all waits: no memory will become free."""
        for place in self._line:
            if not place.future.done():
                place.future.set_exception(error)


#: A turn that finds more to do goes on for this many rounds, and begins none after this time, in ms. Then the
#: loop's other callbacks have their turn.
_MOST_ROUNDS: Final = 4
_LONG_TURN_MS: Final = 5
#: A coroutine that keeps calling a client lets the loop run after this time without a turn, in ms.
_LONGEST_RUN_MS: Final = 5
#: After this time without I/O, in ms, a turn begins with it: responses may have come in time.
_STALE_MS: Final = 100
#: The longest timer: an early turn does no harm.
_LONGEST_WAIT_MS: Final = 3_600_000
#: A future that is done, and the callback and the context with which a task waits for it.
Resumption = tuple[asyncio.Future[Any], Callable[[asyncio.Future[Any]], object], Context]


class Decider(Protocol):
    """The decision logic of a client, such as a Sender. Thread: owner."""

    @property
    def is_closed(self) -> bool:
        """True once there is nothing more to decide, and the connections are closed."""

    def step(self, now_ms: int) -> int:
        """Do everything that is due; return within how many ms to be called again."""

    def round_failed(self, error: Exception, now_ms: int) -> int:
        """Clean up after an exception that ended a round early; return the backoff in ms."""

    def fail(self, error: BaseException) -> None:
        """Close after an exception that must end the client."""


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
    coroutines wait for. Callbacks scheduled by a turn run in the loop's next iteration; only a task in ``resumed``
    runs right after a turn that the loop has begun.

    The loop keeps the driver alive until the decider has closed. So a client that is dropped without being closed can
    still send what is left. Thread: the loop's.
    """

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
        self._last_io_ms = clock.now_ms()  # when a turn last looked for responses
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
        """True if the loop has not run a turn for too long. A busy coroutine must then yield to the loop."""
        return self._clock.now_ms() - self._last_turn_ms > _LONGEST_RUN_MS

    def wake(self) -> None:
        """Schedule a turn in the next iteration of the loop."""
        if self._is_woken:
            return
        if self.is_held:  # by the loop's current callback, so the loop is not closed
            self._is_woken = True
        elif not (self.closed.done() or self._loop.is_closed()):
            self._is_woken = True
            self._loop.call_soon(self._turn_after_wake)

    def go_on(self, at_once: bool) -> None:
        """Clear ``is_held``, and run the deferred turn: ``at_once``, or in the loop's next iteration.

        A turn at once saves the loop an iteration, in which it would find nothing else to do.
        """
        self.is_held = False
        if self._is_woken:
            if at_once and not self._is_turning and not self.closed.done():
                self._turn_in_task()
            else:
                self._loop.call_soon(self._turn_after_wake)

    def turn_if_woken(self) -> None:
        """Run the turn that is queued in the loop at once.

        So a request is in flight while the loop looks for other work.
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
        """Run a turn as a callback of the loop, then resume a single task in ``resumed``: no other is running.

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
        """Run a turn while a task is running, or the loop is closed."""
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
        """Perform the work that is due: the I/O, unless the loop has found none, and the decisions that follow."""
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
        """Run a turn now to finish a forced close. The loop may already be closed."""
        if not self._decider.is_closed:
            self._turn_in_task()

    def _run_rounds(self, with_io: bool) -> int:
        """Run rounds until there is nothing to do at once, or enough are done; return for how many ms to wait."""
        clock, client, decider, selector = self._clock, self._client, self._decider, self._selector
        wait_ms = 0
        now_ms = start_ms = clock.now_ms()
        with_io = with_io or now_ms - self._last_io_ms >= _STALE_MS
        try:
            for _ in range(_MOST_ROUNDS):
                if with_io:
                    selector.poll(0)
                    now_ms = self._last_io_ms = clock.now_ms()
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
        """Schedule the next turn in ``wait_ms``, or earlier if a timer is due before."""
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
        """Detach from the loop. The selector calls this before closing its descriptor, whose number may be reused."""
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


#: Called after each turn of a driver.
OnTurn = Callable[[], object]


def _refuse_to_wait() -> NoReturn:
    raise IllegalStateError("this would block the event loop: await the future instead")


class _LoopSignal:
    """A Signal that nobody waits for."""

    def wait(self, timeout_ms: int) -> bool:  # noqa: ARG002 - the seam's signature
        _refuse_to_wait()

    def set(self) -> None:
        """Do nothing: coroutines look after each turn of the driver."""


class LoopClock(SystemClock):
    """The system clocks, for a thread that must never wait. Thread: any."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Return at once; a thread would yield here.

        Raises:
            IllegalStateError: ``duration_ms`` is not 0.
        """
        if duration_ms > 0:
            _refuse_to_wait()

    def new_signal(self) -> Signal:
        return _LoopSignal()

    def wait(self, condition: object, timeout_ms: int) -> bool:  # noqa: ARG002 - the seam's signature
        _refuse_to_wait()


class _OtherLoopClock:
    """Another clock, such as a simulation's, for a thread that must never wait. Thread: any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now_ms = clock.now_ms
        self.wall_ms = clock.wall_ms

    def new_condition(self, lock: Any = None) -> Any:
        return self._clock.new_condition(lock)

    sleep_ms = LoopClock.sleep_ms
    new_signal = LoopClock.new_signal
    wait = LoopClock.wait


class NoThread:
    """A Thread that never runs: its work is the driver's. Thread: any."""

    ident: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.daemon = True

    def start(self) -> None:
        """Do nothing: the driver starts on its own."""

    def join(self, timeout: float | None = None) -> None:
        """Return at once: it has never run."""

    def is_alive(self) -> bool:
        return False


class KnownHosts:
    """A HostResolver that knows the results of some lookups, and delegates all others. Thread: any."""

    def __init__(self, resolver: HostResolver, outcomes: Mapping[str, list[str] | OSError]) -> None:
        self._resolver = resolver
        self._outcomes = outcomes

    def look_up(self, host: str, on_done: Callable[[], object] | None = None, canonical: bool = False) -> Lookup:
        outcome = self._outcomes.get(host)
        if outcome is None:
            return self._resolver.look_up(host, on_done, canonical)
        lookup = Lookup()
        lookup.finish(outcome)
        return lookup

    def forget(self) -> None:
        """Forget all results, so that changed addresses are looked up again."""
        self._outcomes = {}


class LoopSelector(Selector):
    """A selector whose wakeup needs no system call on the loop's own thread.

    Thread: the loop's, but for ``wakeup``.
    """

    #: Set by the driver's owner before the first wakeup.
    wake_driver: Callable[[], object] = staticmethod(bool)
    release_driver: Callable[[], object] = staticmethod(bool)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop_thread = SYSTEM_ENVIRONMENT.get_ident()

    def wakeup(self) -> None:
        if SYSTEM_ENVIRONMENT.get_ident() == self._loop_thread:
            self.wake_driver()
        else:  # a lookup's thread, or a destructor on another one
            super().wakeup()

    def close(self) -> None:
        self.release_driver()
        super().close()


class LoopEnvironment:
    """The Environment of one client in an event loop. Created, like the client, on the loop's thread."""

    def __init__(self, hosts: Mapping[str, list[str] | OSError], base: Environment = SYSTEM_ENVIRONMENT) -> None:
        """Create it from another environment, the machine's or a simulation's.

        ``hosts`` are the outcomes of the lookups of bootstrap.servers, used until ``forget_hosts``.
        """
        self._base = base
        self.clock: Clock = LoopClock() if base is SYSTEM_ENVIRONMENT else _OtherLoopClock(base.clock)
        self._hosts = KnownHosts(base.host_resolver, hosts)
        self.host_resolver: HostResolver = self._hosts
        self.killed_by = base.killed_by
        self._selector: Selectable | None = None

    def new_rng(self) -> random.Random:
        return self._base.new_rng()

    def new_thread(self, run: Callable[[], object], name: str) -> Thread:  # noqa: ARG002 - the driver runs it
        return NoThread(name)

    def new_reentrant_lock(self) -> ReentrantLock:
        return self._base.new_reentrant_lock()

    def get_ident(self) -> int:
        return self._base.get_ident()

    def new_selector(
        self, config: SelectorConfig, metrics: Metrics, log_context: LogContext, channel_builder: ChannelBuilder
    ) -> Selectable:
        if self._base is SYSTEM_ENVIRONMENT:
            self._selector = LoopSelector(config, metrics, self.clock, log_context, channel_builder)
        else:
            self._selector = self._base.new_selector(config, metrics, log_context, channel_builder)
        return self._selector

    def forget_hosts(self) -> None:
        """Look up all hosts afresh from now on."""
        self._hosts.forget()

    def driver(self, loop: AbstractEventLoop, decider: Decider, client: PolledClient, on_turn: OnTurn) -> LoopDriver:
        """Return a driver for the client that was made in this environment."""
        selector = self._selector
        assert selector is not None
        driver = LoopDriver(loop, decider, client, selector, self.clock, on_turn)
        if isinstance(selector, LoopSelector):
            selector.wake_driver, selector.release_driver = driver.wake, driver.release
        return driver


#: A bootstrap server that refuses connections may be starting, or have further addresses: try for this long.
_PATIENCE_MS: Final = 1_000


class Reach(Protocol):
    """The part of a network client that tracks unreachable addresses. Thread: owner."""

    @property
    def is_unreachable(self) -> bool: ...

    def connection_report(self) -> str: ...


async def look_up_bootstrap_servers(
    loop: asyncio.AbstractEventLoop, config: AbstractConfig, environment: Environment, key: str = "bootstrap.servers"
) -> dict[str, list[str] | OSError]:
    """Return the addresses of each host in a setting, or the error of its lookup.

    Numeric addresses need no lookup. The others are looked up by the resolver that all clients of the process share, on
    its own threads, because the system's call has no timeout; nothing here waits for them but this coroutine.
    """
    now_ms = environment.clock.now_ms
    canonical = config["client.dns.lookup"] == "resolve_canonical_bootstrap_servers_only"
    news = asyncio.Event()

    def on_done() -> None:  # on a thread of the resolver
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(news.set)

    hosts = dict.fromkeys(host for host, _ in parse_addresses(config[key], key))
    resolver = resolver_for(config, environment.host_resolver)
    lookups = HostLookups(hosts, resolver, on_done, canonical, now_ms())
    while (wait_ms := lookups.wait_ms(now_ms())) > 0:
        timer = loop.call_later(wait_ms / 1000, news.set)
        try:
            await news.wait()
        finally:
            timer.cancel()
        news.clear()
    return lookups.outcomes(now_ms())


async def await_bootstrap(
    metadata: Metadata,
    client: Reach,
    clock: Clock,
    waits: LoopWaits,
    timeout_ms: int,
    timeout_key: str,
    raise_failure: Callable[[], None] | None = None,
) -> None:
    """Wait until a bootstrap server has described the cluster. ``timeout_key`` is the setting of ``timeout_ms``.

    ``raise_failure`` raises the error that a consumer's turn has taken out of the metadata, if there is one.

    Raises:
        KafkaConnectionError: no bootstrap server can be reached.
        KafkaTimeoutError: none has answered within ``timeout_ms``.
        AuthenticationError: the cluster refused the credentials.
    """
    start_ms = clock.now_ms()
    metadata.request_update(False)

    def is_over() -> bool:
        metadata.maybe_throw_fatal_exception()
        if not metadata.fetch().is_bootstrap_configured:
            return True
        if raise_failure is not None:
            raise_failure()
        if clock.now_ms() - start_ms >= _PATIENCE_MS and client.is_unreachable:
            addresses = ", ".join(f"{host}:{port}" for host, port in metadata.bootstrap_addresses)
            raise DisconnectError(f"Unable to bootstrap from {addresses}: {client.connection_report()}")
        return False

    if not await waits.until(is_over, timeout_ms):
        report = client.connection_report()
        text = f"no bootstrap server has answered within {timeout_ms / 1000} s ({timeout_key})"
        raise KafkaTimeoutError(f"{text}: {report}" if report else text)
