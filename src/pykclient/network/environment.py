"""What a client takes from its surroundings: time, chance, threads and connections.

A client has all of it from one ``Environment``, so that a simulation can put many clients and a cluster into one thread
on virtual time, and repeat what they do from a seed.
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
    from pykclient.network.kafka_channel import ChannelBuilder
    from pykclient.network.selectable import Selectable
    from pykclient.network.selector import SelectorConfig


class Thread(Protocol):
    """What clients need of a ``threading.Thread``."""

    name: str
    daemon: bool

    @property
    def ident(self) -> int | None: ...

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""

    def is_alive(self) -> bool: ...


class ReentrantLock(Protocol):
    """What clients need of a ``threading.RLock``."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Environment(Protocol):
    """Where a client lives. Thread: any.

    Conditions are the clock's (``Clock.new_condition``), as a clock is what waits for them. Plain locks need not come
    from here: clients hold them for a moment, and never while they wait.
    """

    @property
    def clock(self) -> Clock: ...

    @property
    def host_resolver(self) -> HostResolver: ...

    @property
    def killed_by(self) -> tuple[type[BaseException], ...]:
        """Exceptions that end a thread as if its process were killed: it does nothing more."""

    def new_rng(self) -> random.Random:
        """The random numbers of one client: jitter, partitions, which node to ask."""

    def new_thread(self, run: Callable[[], object], name: str) -> Thread:
        """A thread that has not been started, and does not hold up the end of the interpreter."""

    def new_reentrant_lock(self) -> ReentrantLock:
        """A lock that may be held during a poll of the network."""

    def get_ident(self) -> int:
        """Which thread this is; equal to the ``ident`` of its Thread."""

    def new_selector(
        self, config: SelectorConfig, metrics: Metrics, log_context: LogContext, channel_builder: ChannelBuilder
    ) -> Selectable:
        """The connections of one client."""


class SystemEnvironment:
    """The machine's threads, names and sockets. Thread: any."""

    __slots__ = ("clock", "host_resolver", "killed_by")

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
