"""The bytes of an encrypted connection, whose frames its transport layer finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pykclient.implementation import use_compiled
from pykclient.network.frames import NetworkSend
from pykclient.network.transport_layer import PlaintextTransportLayer

#: The most bytes that one call receives.
_BUFFER_SIZE: Final = 256 * 1024


class BytePump(Protocol):
    """Moves the bytes of a connection. Thread: io."""

    ready: bool
    """True if a ``Poller`` may read and write ahead."""

    wanted_bytes: int
    """A poller need not report bytes that it has read ahead before there are this many."""

    def receive(self, feed: Callable[[memoryview], object]) -> int | None:
        """Pass received bytes to ``feed``, which must not keep them. Return their number.

        None: there are none; 0: the end of the stream.

        Raises:
            OSError: an error of the socket.
        """

    def write(self, send: NetworkSend) -> int:
        """Write as much as the socket accepts; return the number of bytes."""

    def close(self) -> None: ...


class SocketPump:
    """A ``BytePump`` that reads nothing ahead. Thread: io."""

    __slots__ = ("_transport", "_view", "ready", "wanted_bytes")

    def __init__(self, transport: PlaintextTransportLayer, buffer_size: int = _BUFFER_SIZE) -> None:
        self._transport = transport
        self._view = memoryview(bytearray(buffer_size))
        self.ready = False
        self.wanted_bytes = 1

    def receive(self, feed: Callable[[memoryview], object]) -> int | None:
        count = self._transport.read_into(self._view)
        if count:
            feed(self._view[:count])
        return count

    def write(self, send: NetworkSend) -> int:
        written = 0
        while not send.completed:
            sent = self._transport.write(send.pending())
            if sent is None:
                break
            send.advance(sent)
            written += sent
        return written

    def close(self) -> None:
        """Do nothing, as the socket is the transport's."""


def byte_pump(transport: PlaintextTransportLayer) -> BytePump:
    """Return a pump for the socket of ``transport``. The compiled form returns one that reads and writes ahead."""
    return SocketPump(transport)


use_compiled(__name__)
