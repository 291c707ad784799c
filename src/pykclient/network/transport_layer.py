"""Byte transport over a socket, plain or encrypted (Java: TransportLayer, PlaintextTransportLayer)."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from pykclient.errors import ProxyAuthenticationError
from pykclient.network.failures import reason_of
from pykclient.network.frames import BytesLike
from pykclient.network.selectable import SocketAddress

if TYPE_CHECKING:
    from pykclient.network.proxy import ProxyConfig


class TransportLayer(Protocol):
    """The state of a non-blocking connection, below its frames. Thread: io."""

    @property
    def sock(self) -> socket.socket: ...

    @property
    def ready(self) -> bool:
        """True if connected, and any handshake is complete."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def has_bytes_buffered(self) -> bool:
        """True if bytes can be read although the socket has none, for example from a decrypted TLS record.

        An incomplete record does not count: the selector does not wait while there are buffered bytes.
        """

    @property
    def wants_write(self) -> bool:
        """True if the layer itself has something to write, such as a part of its handshake."""

    @property
    def connect_events(self) -> int:
        """The events to wait for until the connection is established, as a mask of ``selectors``."""

    def finish_connect(self) -> bool:
        """Return whether the connection is established.

        Raises:
            OSError: the connection failed.
        """

    def handshake(self) -> None:
        """Continue the handshake as far as the socket allows.

        Raises:
            AuthenticationError, OSError: the handshake failed.
        """

    def close(self) -> None: ...


class PlaintextTransportLayer:
    """A plain socket. Thread: io."""

    __slots__ = ("is_connected", "sock")

    has_bytes_buffered = False
    wants_write = False

    def __init__(self, sock: socket.socket, is_connected: bool = False) -> None:
        self.sock = sock
        self.is_connected = is_connected

    @property
    def ready(self) -> bool:
        return self.is_connected

    @property
    def connect_events(self) -> int:
        return selectors.EVENT_WRITE

    def finish_connect(self) -> bool:
        self.is_connected = self.is_established()
        return self.is_connected

    def is_established(self) -> bool:
        """Return whether the socket is connected.

        Raises:
            OSError: connecting failed.
        """
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            self.sock.getpeername()
        except OSError:
            return False  # woken before the connection was established
        return True

    def handshake(self) -> None:
        """Do nothing, as there is no handshake."""

    def read_into(self, target: memoryview) -> int | None:
        """Read up to ``len(target)`` bytes; return 0 at the end of the stream, and None if it would block."""
        try:
            return self.sock.recv_into(target)
        except (BlockingIOError, InterruptedError):
            return None

    def write(self, buffers: Sequence[BytesLike]) -> int | None:
        """Write as much of ``buffers`` as the socket accepts; return the number of bytes, None if it would block."""
        try:
            if len(buffers) == 1:
                return self.sock.send(buffers[0])
            return self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return None

    def close(self) -> None:
        self.is_connected = False
        self.sock.close()


def plain_transport(
    sock: socket.socket, address: SocketAddress | None, proxy: ProxyConfig | None
) -> PlaintextTransportLayer:
    """Return the transport over ``sock`` for a client of ``address``, perhaps through a proxy, or for a server."""
    if proxy is None or address is None:
        return PlaintextTransportLayer(sock, is_connected=address is None)
    from pykclient.network.transport_layer import TunnelTransportLayer

    return TunnelTransportLayer(sock, proxy, address)


class TunnelTransportLayer(PlaintextTransportLayer):
    """A socket to a proxy, which is connected when the proxy has connected to the broker. Thread: io.

    The exchange with the proxy is a part of connecting, so ``socket.connection.setup.timeout.ms`` bounds it, and TLS
    and SASL begin after it.
    """

    __slots__ = ("_is_open", "_name", "_output", "_tunnel")

    def __init__(self, sock: socket.socket, proxy: ProxyConfig, address: SocketAddress) -> None:
        """Create the transport to ``address`` over a socket that connects to the proxy."""
        super().__init__(sock)
        self._tunnel = proxy.new_tunnel(address.host, address.port)
        self._name = proxy.name
        self._is_open = False  # True if the proxy has accepted the connection
        self._output = b""

    @property
    def connect_events(self) -> int:
        return selectors.EVENT_READ if self._is_open and not self._output else selectors.EVENT_WRITE

    def finish_connect(self) -> bool:
        try:
            if not self._is_open:
                if not self.is_established():
                    return False
                self._is_open = True
                self._output = self._tunnel.start()
            self._exchange()
        except (ProxyAuthenticationError, OSError) as error:
            self._fail(error)
        self.is_connected = self._tunnel.complete
        return self.is_connected

    def _exchange(self) -> None:
        """Continue the exchange as far as the socket allows."""
        tunnel = self._tunnel
        while not tunnel.complete:
            while self._output:
                sent = self.write((self._output,))
                if sent is None:
                    return
                self._output = self._output[sent:]
            try:
                received = self.sock.recv(tunnel.wanted_bytes)
            except (BlockingIOError, InterruptedError):
                return
            if not received:
                raise ConnectionResetError("it closed the connection before it had connected to the broker")
            self._output = tunnel.receive(received)

    def _fail(self, error: ProxyAuthenticationError | OSError) -> NoReturn:
        """Raise the error with the proxy's name."""
        kind = ProxyAuthenticationError if isinstance(error, ProxyAuthenticationError) else ConnectionError
        raise kind(f"{self._name}: {reason_of(error)}") from error
