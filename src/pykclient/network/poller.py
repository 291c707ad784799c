"""The one wait for many sockets, which any thread can end."""

from __future__ import annotations

import contextlib
import selectors
import socket
from typing import TYPE_CHECKING, Final, Protocol

from pykclient import implementation

if TYPE_CHECKING:
    from pykclient.network.kafka_channel import KafkaChannel

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: What ``select`` tells of a ``wakeup``.
WAKEUP: Final = (None, READ)

_compiled = implementation.compiled("network")


class Poller(Protocol):
    """Waits for the sockets of channels. Thread: io, but for ``wakeup``."""

    def register(self, channel: KafkaChannel, events: int) -> None:
        """Watch a channel's socket for ``events``, a mask of READ and WRITE."""

    def modify(self, channel: KafkaChannel, events: int) -> None: ...

    def unregister(self, channel: KafkaChannel) -> None: ...

    def write_later(self, channel: KafkaChannel, ends_wait: bool) -> bool:
        """Whether the next ``select`` will write the channel's frame, before it waits, and tell of a WRITE event then.

        If ``ends_wait``, it will not wait: no answer will come that could end the wait.
        """

    def select(self, timeout_ms: int) -> list[tuple[KafkaChannel | None, int]]:
        """What can be done on which channels, waiting at most ``timeout_ms`` for something or for ``wakeup``.

        A ``wakeup`` shows as an event of no channel.
        """

    def wakeup(self) -> None:
        """End the present wait, or let the next ``select`` not wait. Thread: any."""

    def close(self) -> None: ...


class SelectorsPoller:
    """A ``Poller`` with what the standard library has; reads and writes nothing by itself.

    Thread: io, but for ``wakeup``.
    """

    __slots__ = ("_selector", "_waiting", "_wake_reader", "_wake_writer", "_woken")

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, READ, None)
        self._woken = False
        self._waiting = False  # whether it takes a byte to wake the io thread

    def register(self, channel: KafkaChannel, events: int) -> None:
        self._selector.register(channel.sock, events, channel)

    def modify(self, channel: KafkaChannel, events: int) -> None:
        self._selector.modify(channel.sock, events, channel)

    def unregister(self, channel: KafkaChannel) -> None:
        self._selector.unregister(channel.sock)

    def write_later(self, channel: KafkaChannel, ends_wait: bool) -> bool:  # noqa: ARG002 - the seam's signature
        return False

    def select(self, timeout_ms: int) -> list[tuple[KafkaChannel | None, int]]:
        if timeout_ms <= 0:
            events = self._selector.select(0)
        else:
            # In this order, and in the other one in ``wakeup``: one of the two threads sees what the other has set. A
            # byte may be written when it is not needed any more; then the next call returns at once, for nothing.
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
            # Whoever sets it after this keeps the next call from waiting.
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
        if not self._waiting:
            return  # it looks at the flag before it waits
        # If the pipe is full there is more than enough to wake up by; if it is closed nobody is left to wake.
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")

    def close(self) -> None:
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()


def new_poller() -> Poller:
    """The compiled one where it was built and the system has epoll: it reads and writes without the interpreter's lock,
    in the same absence from it as the wait."""
    if _compiled is None or not _compiled.HAS_EPOLL:
        return SelectorsPoller()
    poller: Poller = _compiled.EpollPoller()
    return poller
