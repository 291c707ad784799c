"""A client's environment: its time, random numbers, threads and connections.

A client gets all of them from one ``Environment``. So a simulation can run many clients and a cluster in one thread, in
virtual time, and reproduce a run from its seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.network.host_resolver import DefaultHostResolver, HostResolver

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.network.channel_builders import ChannelBuilder
    from pykclient.network.selectable import Selectable
    from pykclient.network.selector import SelectorConfig


class Thread(Protocol):
    """The part of ``threading.Thread`` that clients use."""

    name: str
    daemon: bool

    @property
    def ident(self) -> int | None: ...

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, at most ``timeout`` seconds."""

    def is_alive(self) -> bool: ...


class ReentrantLock(Protocol):
    """The part of ``threading.RLock`` that clients use."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Environment(Protocol):
    """The surroundings of a client. Thread: any.

    The clock makes the conditions (``Clock.new_condition``), because waiting for one takes time. Plain locks need not
    come from here: clients hold them only briefly, and never while they wait.
    """

    @property
    def clock(self) -> Clock: ...

    @property
    def host_resolver(self) -> HostResolver: ...

    @property
    def killed_by(self) -> tuple[type[BaseException], ...]:
        """The exceptions that end a thread as if its process were killed: the thread does nothing more."""

    def new_rng(self) -> random.Random:
        """Return the random number generator of one client, for jitter, partitions and the choice of nodes."""

    def new_thread(self, run: Callable[[], object], name: str) -> Thread:
        """Return a daemon thread that has not been started."""

    def new_reentrant_lock(self) -> ReentrantLock:
        """Return a lock that may be held during a poll of the network."""

    def get_ident(self) -> int:
        """Return the id of the current thread; it equals the ``ident`` of its Thread."""

    def new_selector(
        self, config: SelectorConfig, metrics: Metrics, log_context: LogContext, channel_builder: ChannelBuilder
    ) -> Selectable:
        """Return the selector that holds the connections of one client."""


class SystemEnvironment:
    """The machine's own clock, threads, host names and sockets. Thread: any."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.host_resolver: HostResolver = DefaultHostResolver()
        self.killed_by: tuple[type[BaseException], ...] = ()

    def new_rng(self) -> random.Random:
        return random.Random()

    def new_thread(self, run: Callable[[], object], name: str) -> Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def new_reentrant_lock(self) -> ReentrantLock:
        return threading.RLock()

    get_ident = staticmethod(get_ident)

    def new_selector(
        self, config: SelectorConfig, metrics: Metrics, log_context: LogContext, channel_builder: ChannelBuilder
    ) -> Selectable:
        from pykclient.network.selector import Selector

        return Selector(config, metrics, self.clock, log_context, channel_builder)


SYSTEM_ENVIRONMENT = SystemEnvironment()
