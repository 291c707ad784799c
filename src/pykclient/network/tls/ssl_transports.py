"""The TLS transports of one client or server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pykclient.network.byte_pump import byte_pump
from pykclient.network.connection_failures import shown_address
from pykclient.network.frame_stream import FrameStream
from pykclient.network.memory_pool import MemoryPool
from pykclient.network.network_receive import FrameReader
from pykclient.network.plain_transport import plain_transport
from pykclient.network.selectable import SocketAddress
from pykclient.network.tls.plaintext_probe import ProbedPeers
from pykclient.network.tls.ssl_engine import SslEngine
from pykclient.network.tls.ssl_factory import ContextSettings, SslFactory, client_ssl_factory
from pykclient.network.tls.ssl_frame_stream import SslFrameStream
from pykclient.network.tls.ssl_transport_layer import SslTransportLayer

if TYPE_CHECKING:
    from pykclient.network.proxy.proxy_config import ProxyConfig


class SslTransports:
    """Creates transports with TLS (implements channel_builders.Transports). Thread: io."""

    __slots__ = ("_factory", "_probed", "_proxy")

    def __init__(self, factory: SslFactory, proxy: ProxyConfig | None = None) -> None:
        self._factory = factory
        self._probed = ProbedPeers()
        self._proxy = proxy

    @classmethod
    def of_client(cls, config: Mapping[str, Any], proxy: ProxyConfig | None = None) -> Self:
        """Return the transports for a client's configuration, through a proxy if there is one.

        Raises:
            ConfigError: it or a file that it names cannot be used.
        """
        return cls(client_ssl_factory(config), proxy)

    @classmethod
    def of_server(cls, context: ssl.SSLContext) -> Self:
        return cls(SslFactory(lambda: ContextSettings(context, ()), ()))

    def new_transport(self, sock: socket.socket, address: SocketAddress | None) -> SslTransportLayer:
        settings = self._factory.current()
        if address is None:
            host = None
            peer = shown_address(*sock.getpeername()[:2])
        else:
            host = _certificate_name(address.host)
            peer = shown_address(address.host, address.port)
        try:
            engine = SslEngine(settings.context, host)
        except (ssl.SSLError, ValueError) as error:  # such as a host name that is no name
            raise OSError(f"TLS with {peer} cannot begin: {error}") from error
        plain = plain_transport(sock, address, self._proxy)
        probed = None if address is None else self._probed
        return SslTransportLayer(plain, byte_pump(plain), engine, peer, host, settings.allowed_ciphers, probed)

    def new_stream(
        self, transport: SslTransportLayer, max_receive_size: int, memory_pool: MemoryPool, first_limit: int | None
    ) -> FrameStream:
        return SslFrameStream(transport, FrameReader(max_receive_size, memory_pool, first_limit))

    def close(self) -> None:
        """Do nothing, as the context has no resources."""


def _certificate_name(host: str) -> str:
    """Return the name that the certificate of a host must have: no trailing dot, and no zone of an IPv6 address."""
    return host.partition("%")[0].rstrip(".") if ":" in host else host.rstrip(".")
