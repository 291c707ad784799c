"""The surroundings of a client that an event loop drives: nothing in them waits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pykclient.clock import Signal, SystemClock
from pykclient.errors import IllegalStateError
from pykclient.network.environment import SYSTEM_ENVIRONMENT, ReentrantLock, Thread
from pykclient.network.host_resolver import HostResolver, Lookup
from pykclient.network.selector import Selector, SelectorConfig

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.kafka_channel import ChannelBuilder


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

    __slots__ = ("_hosts", "_selector", "clock", "host_resolver", "killed_by")

    def __init__(self, hosts: Mapping[str, list[str] | OSError]) -> None:
        """``hosts`` are the outcomes of the lookups of bootstrap.servers, used until ``forget_hosts``."""
        self.clock = LoopClock()
        self._hosts = KnownHosts(SYSTEM_ENVIRONMENT.host_resolver, hosts)
        self.host_resolver: HostResolver = self._hosts
        self.killed_by: tuple[type[BaseException], ...] = ()
        self._selector: LoopSelector | None = None

    def new_rng(self) -> random.Random:
        return SYSTEM_ENVIRONMENT.new_rng()

    def new_thread(self, run: Callable[[], object], name: str) -> Thread:  # noqa: ARG002 - the driver runs it
        return NoThread(name)

    def new_reentrant_lock(self) -> ReentrantLock:
        return SYSTEM_ENVIRONMENT.new_reentrant_lock()

    get_ident = staticmethod(SYSTEM_ENVIRONMENT.get_ident)

    def new_selector(
        self, config: SelectorConfig, metrics: Metrics, log_context: LogContext, channel_builder: ChannelBuilder
    ) -> LoopSelector:
        self._selector = LoopSelector(config, metrics, self.clock, log_context, channel_builder)
        return self._selector

    def forget_hosts(self) -> None:
        """Look up all hosts afresh from now on."""
        self._hosts.forget()

    @property
    def selector(self) -> LoopSelector:
        """The selector of the client that was made in this environment."""
        assert self._selector is not None
        return self._selector
