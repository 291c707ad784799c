"""The transport of a connection through a proxy."""

from __future__ import annotations

import selectors
import socket
from typing import TYPE_CHECKING, NoReturn

from pykclient.errors import ProxyAuthenticationError
from pykclient.network.connection_failures import reason_of
from pykclient.network.transport_layer import PlaintextTransportLayer

if TYPE_CHECKING:
    from pykclient.network.proxy.proxy_config import ProxyConfig
    from pykclient.network.selectable import SocketAddress


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
