"""The surroundings of a client that an event loop drives: nothing in them waits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pykclient.aio.loop_driver import Decider, LoopDriver, PolledClient
from pykclient.clock import Clock, Signal, SystemClock
from pykclient.errors import IllegalStateError
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment, ReentrantLock, Thread
from pykclient.network.host_resolver import HostResolver, Lookup
from pykclient.network.selector import Selector, SelectorConfig

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.channel_builders import ChannelBuilder
    from pykclient.network.selectable import Selectable

#: Called after each turn of a driver.
OnTurn = Callable[[], object]


def _refuse_to_wait() -> NoReturn:
    raise IllegalStateError("this would block the event loop: await the future instead")


class _LoopSignal:
    """A Signal that nobody waits for."""

    __slots__ = ()

    def wait(self, timeout_ms: int) -> bool:  # noqa: ARG002 - the seam's signature
        _refuse_to_wait()

    def set(self) -> None:
        """Do nothing: coroutines look after each turn of the driver."""


class LoopClock(SystemClock):
    """The machine's clocks, for a thread that must never wait. Thread: any."""

    __slots__ = ()

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

    __slots__ = ("_clock", "now_ms", "wall_ms")

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

    __slots__ = ("daemon", "name")

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
    """A HostResolver that has the outcome of some lookups ready, and leaves all others to the next one. Thread: any."""

    __slots__ = ("_outcomes", "_resolver")

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
        """Look up all hosts afresh from now on, because addresses change."""
        self._outcomes = {}


class LoopSelector(Selector):
    """A selector that wakes its driver without a system call if the loop's own thread asks for it.

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

    __slots__ = ("_base", "_hosts", "_selector", "clock", "host_resolver", "killed_by")

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
