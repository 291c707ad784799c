"""What a network client needs of its selector: the seam at which a simulated network is put in (Java: Selectable)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pykclient.network.channel_state import ChannelState
from pykclient.network.network_receive import NetworkReceive
from pykclient.network.network_send import NetworkSend

#: For ``send_buffer`` and ``receive_buffer``: leave the choice to the operating system.
USE_DEFAULT_BUFFER_SIZE = -1


class SocketAddress(NamedTuple):
    """Where to connect: a numeric address, and the name that it was found by (which TLS certificates are about)."""

    ip: str
    port: int
    host: str

    def __str__(self) -> str:
        ip = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{ip}:{self.port}" if self.host == self.ip else f"{self.host}/{ip}:{self.port}"


class Selectable(Protocol):
    """Many connections, one wait. The four collections are those of the last ``poll``.

    Thread: owner, but for ``wakeup``.
    """

    @property
    def completed_sends(self) -> Sequence[NetworkSend]: ...

    @property
    def completed_receives(self) -> Sequence[NetworkReceive]:
        """In order per connection; a connection can have several."""

    @property
    def disconnected(self) -> Mapping[str, ChannelState]:
        """Connections that were lost, with the state they were in; those closed by ``close_channel`` are not."""

    @property
    def connected(self) -> Sequence[str]: ...

    def connect(self, id: str, address: SocketAddress, send_buffer: int, receive_buffer: int) -> None:
        """Start to connect to ``address``; raises OSError where that fails at once."""

    def send(self, send: NetworkSend) -> None:
        """Send on a ready channel that has nothing else to send; what fails shows in ``disconnected``."""

    def poll(self, timeout_ms: int) -> None:
        """Do what I/O can be done, waiting at most ``timeout_ms`` for some."""

    def end_interrupted_wait(self) -> bool:
        """Return True, once, if an exception ended ``poll`` while it waited, with nothing else to do."""

    def drop_connections(self) -> None:
        """Drop all connections, in whatever state an exception has left them."""

    def wakeup(self) -> None:
        """End the present poll, or the next one at once. Thread: any."""

    def close_channel(self, id: str) -> None:
        """Close a connection, if there is one, without it showing in ``disconnected``."""

    def is_channel_ready(self, id: str) -> bool:
        """Whether the connection stands and is authenticated."""

    def mute(self, id: str) -> None:
        """Stop reading from a connection."""

    def unmute(self, id: str) -> None: ...

    def mute_all(self) -> None: ...

    def unmute_all(self) -> None: ...

    def close(self) -> None:
        """Close all connections and the selector itself."""
