"""Waiting for many sockets, with a wakeup for other threads."""

from __future__ import annotations

import contextlib
import io
import selectors
import socket
from typing import TYPE_CHECKING, Final, Protocol

import pykclient.network.transport_layer  # noqa: F401 - the compiled poller reads and writes its compiled streams
from pykclient.implementation import use_compiled

if TYPE_CHECKING:
    from pykclient.network.kafka_channel import KafkaChannel

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: The event of a ``wakeup``.
WAKEUP: Final = (None, READ)


class Poller(Protocol):
    """Waits for the sockets of channels. Thread: io, except for ``wakeup``."""

    def register(self, channel: KafkaChannel, events: int) -> None:
        """Watch a channel's socket for ``events``, a mask of READ and WRITE."""

    def modify(self, channel: KafkaChannel, events: int) -> None: ...

    def unregister(self, channel: KafkaChannel) -> None: ...

    def write_later(self, channel: KafkaChannel, ends_wait: bool) -> bool:
        """Return whether the next ``select`` will write the channel's frame before it waits.

        It then reports a WRITE event. If ``ends_wait``, it will not wait, because there will be no response to end the
        wait.
        """

    def select(self, timeout_ms: int) -> list[tuple[KafkaChannel | None, int]]:
        """Return the ready channels with their events; wait at most ``timeout_ms`` for an event or a ``wakeup``.

        A ``wakeup`` is reported as an event without a channel.
        """

    def fileno(self) -> int:
        """Return a descriptor that is readable while ``select`` would return at once, including after ``wakeup``.

        From the first call on, a ``wakeup`` always makes it readable.

        Raises:
            io.UnsupportedOperation: the system has no such descriptor.
        """

    @property
    def has_work(self) -> bool:
        """True if ``select`` has work although the descriptor is not readable."""

    def wakeup(self) -> None:
        """End the current wait, or prevent the next one. Thread: any."""

    def close(self) -> None: ...


class SelectorsPoller:
    """A ``Poller`` based on the standard library. It does no reads and writes.

    Thread: io, except for ``wakeup``.
    """

    __slots__ = ("_is_watched", "_selector", "_waiting", "_wake_reader", "_wake_writer", "_woken")

    #: ``has_work``: it never writes later or reads ahead.
    has_work = False

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, READ, None)
        self._woken = False
        self._waiting = False  # True if waking the io thread takes a byte
        self._is_watched = False  # True if the wait is someone else's, so that waking always takes a byte

    def register(self, channel: KafkaChannel, events: int) -> None:
        self._selector.register(channel.sock, events, channel)

    def modify(self, channel: KafkaChannel, events: int) -> None:
        self._selector.modify(channel.sock, events, channel)

    def unregister(self, channel: KafkaChannel) -> None:
        self._selector.unregister(channel.sock)

    def write_later(self, channel: KafkaChannel, ends_wait: bool) -> bool:  # noqa: ARG002 - the seam's signature
        return False

    def fileno(self) -> int:
        if not hasattr(self._selector, "fileno"):  # poll and select have no descriptor of their own
            raise io.UnsupportedOperation(
                f"{type(self._selector).__name__} has no descriptor that an event loop can watch: "
                "this needs a system with epoll or kqueue"
            )
        self._is_watched = True
        descriptor: int = self._selector.fileno()
        return descriptor

    def select(self, timeout_ms: int) -> list[tuple[KafkaChannel | None, int]]:
        if timeout_ms <= 0:
            events = self._selector.select(0)
        else:
            # The order of the two statements, and the reverse order in ``wakeup``, ensure that one of the threads sees
            # the other's flag. A byte may be written in vain; then the next call returns at once.
            self._waiting = True
            try:
                events = self._selector.select(0 if self._woken else timeout_ms / 1000)
            finally:
                self._waiting = False
        found: list[tuple[KafkaChannel | None, int]] = []
        for key, mask in events:
            if key.data is not None:
                found.append((key.data, mask))
            else:
                self._drain_wakeups()
        if self._woken:
            # A wakeup after this prevents the next wait.
            self._woken = False
            found.append(WAKEUP)
        return found

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)

    def wakeup(self) -> None:
        if self._woken:
            return
        self._woken = True
        if not self._waiting and not self._is_watched:
            return  # the io thread checks the flag before it waits
        # If the pipe is full, the thread will wake anyway. If it is closed, there is no thread to wake.
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")

    def close(self) -> None:
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()


def new_poller() -> Poller:
    """Return a poller. The compiled form returns one that also reads and writes, where the system has epoll.

    It does so in the same section without the GIL as the wait.
    """
    return SelectorsPoller()


use_compiled(__name__)
