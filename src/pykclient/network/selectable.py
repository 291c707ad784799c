"""The interface between the network client and its selector, which a simulated network replaces (Java: Selectable)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pykclient.network.channel_state import ChannelState
from pykclient.network.client_request import RepeatableRequest, Repetitions
from pykclient.network.frames import NetworkReceive, NetworkSend
from pykclient.types import Node

#: For ``send_buffer`` and ``receive_buffer``: let the operating system choose.
USE_DEFAULT_BUFFER_SIZE = -1


class SocketAddress(NamedTuple):
    """The numeric address to connect to, and the host name that it was found by, which TLS verifies."""

    ip: str
    port: int
    host: str

    def __str__(self) -> str:
        ip = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{ip}:{self.port}" if self.host == self.ip else f"{self.host}/{ip}:{self.port}"


def check_address(node: Node) -> None:
    """Raise OSError if metadata gave the node no usable address."""
    if not node.host or not 0 < node.port < 65536:
        raise OSError(f"it has no address, as metadata gives host {node.host!r} and port {node.port}")


class Selectable(Protocol):
    """Many connections with one wait. The four collections are the results of the last ``poll``.

    Thread: owner, but for ``wakeup``.
    """

    @property
    def completed_sends(self) -> Sequence[NetworkSend]: ...

    @property
    def completed_receives(self) -> Sequence[NetworkReceive]:
        """The frames received, in order per connection; a connection can have several."""

    @property
    def disconnected(self) -> Mapping[str, ChannelState]:
        """The connections that were lost, with their last state.

        Those that ``close_channel`` closed are not included.
        """

    @property
    def connected(self) -> Sequence[str]: ...

    def connect(self, id: str, address: SocketAddress, send_buffer: int, receive_buffer: int) -> None:
        """Start to connect to ``address``; buffer sizes are in bytes.

        Raises:
            OSError: connecting failed at once.
        """

    def send(self, send: NetworkSend) -> None:
        """Send a frame on a ready channel that has nothing else to send. ``disconnected`` shows failures."""

    def repeat(self, id: str, request: RepeatableRequest) -> Callable[[], Repetitions] | None:
        """Let ``poll`` repeat a request by itself without ending its wait; return the function that ends this.

        None if the connection cannot do so now.
        """

    def poll(self, timeout_ms: int) -> None:
        """Do all I/O that is possible, and wait at most ``timeout_ms`` for some."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is I/O to do, or after a ``wakeup``.

        For an event loop that watches it and then calls ``poll(0)``. It belongs to the selector.

        Raises:
            io.UnsupportedOperation: the system has no such descriptor.
        """

    def wait_bound_ms(self, now_ms: int) -> int:
        """Return within how many milliseconds ``poll`` must be called even if the descriptor is not readable.

        0 if it has something to do now, ``FOREVER_MS`` if only I/O can give it something to do.
        """

    def end_interrupted_wait(self) -> bool:
        """Return True, once, if an exception ended ``poll`` during its wait, when no other work was in progress."""

    def drop_connections(self) -> None:
        """Drop all connections after an unexpected exception."""

    def wakeup(self) -> None:
        """End the current poll, or else the next one at once. Thread: any."""

    def close_channel(self, id: str) -> None:
        """Close a connection, if it exists. It does not appear in ``disconnected``."""

    def is_channel_ready(self, id: str) -> bool:
        """Return True if the connection is established and authenticated."""

    def mute(self, id: str) -> None:
        """Stop reading from a connection."""

    def unmute(self, id: str) -> None: ...

    def close(self) -> None:
        """Close all connections and the selector itself."""
