"""Channels for each ``security.protocol`` (Java: ChannelBuilders, PlaintextChannelBuilder).

A channel is a transport (plain TCP or TLS) plus an authenticator (none or SASL), and each comes from a factory of its
own. So each of the four protocols is a pair of factories::

    PLAINTEXT       DefaultChannelBuilder(PlaintextTransports(), NoAuthenticators())
    SSL             DefaultChannelBuilder(tls, NoAuthenticators())
    SASL_PLAINTEXT  DefaultChannelBuilder(PlaintextTransports(), sasl)
    SASL_SSL        DefaultChannelBuilder(tls, sasl)
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pykclient.config.security_keys import warn_of_ignored
from pykclient.network.authenticator import Authenticator, PlaintextAuthenticator
from pykclient.network.frames import FIRST_RESPONSE_LIMIT, MemoryPool
from pykclient.network.kafka_channel import KafkaChannel
from pykclient.network.selectable import SocketAddress
from pykclient.network.transport_layer import (
    FrameStream,
    PlaintextTransportLayer,
    TransportLayer,
    plain_transport,
    plaintext_frame_stream,
)

if TYPE_CHECKING:
    from pykclient.network.authenticator.sasl_client import Login
    from pykclient.network.proxy import ProxyConfig


class ChannelBuilder(Protocol):
    """Creates channels over sockets, including TLS and SASL (Java: ChannelBuilder). Thread: io."""

    def build_channel(
        self,
        id: str,
        sock: socket.socket,
        address: SocketAddress | None,
        max_receive_size: int,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        """Return a channel over ``sock``.

        It connects to ``address`` as a client; without an address, a server has accepted it.

        Raises:
            AuthenticationError: the credentials of this side cannot be used.
        """

    def close(self) -> None: ...


class Transports(Protocol):
    """Creates the transports of one client or server. Thread: io."""

    def new_transport(self, sock: socket.socket, address: SocketAddress | None) -> TransportLayer:
        """Return a transport over ``sock``, as a client of ``address``; without an address, as a server."""

    def new_stream(
        self, transport: Any, max_receive_size: int, memory_pool: MemoryPool, first_limit: int | None
    ) -> FrameStream:
        """Return the frames over one of this factory's transports; the parameters are those of ``FrameReader``."""

    def close(self) -> None: ...


class Authenticators(Protocol):
    """Creates the authenticators of one client or server. Thread: io."""

    def new_authenticator(self, id: str, address: SocketAddress | None, transport: TransportLayer) -> Authenticator:
        """Return the authenticator of connection ``id``, as a client of ``address``; without one, as a server.

        ``transport`` tells a server about the peer.
        """

    def close(self) -> None: ...


def proxy_of(config: Mapping[str, Any]) -> ProxyConfig | None:
    """Return the proxy of a client's configuration, if it has one.

    Raises:
        ConfigError: its URL is not valid, or a package for proxies is missing.
    """
    url = config["proxy.url"]
    if url is None or not url.value:
        return None
    from pykclient.network.proxy import proxy_at  # which most clients need not

    return proxy_at(url)


class PlaintextTransports:
    """Transports without encryption, through a proxy if there is one. Thread: io."""

    __slots__ = ("_proxy",)

    def __init__(self, proxy: ProxyConfig | None = None) -> None:
        self._proxy = proxy

    def new_transport(self, sock: socket.socket, address: SocketAddress | None) -> TransportLayer:
        return plain_transport(sock, address, self._proxy)

    def new_stream(
        self,
        transport: PlaintextTransportLayer,
        max_receive_size: int,
        memory_pool: MemoryPool,
        first_limit: int | None,
    ) -> FrameStream:
        return plaintext_frame_stream(transport, max_receive_size, memory_pool, first_limit)

    def close(self) -> None:
        """Do nothing, as there are no resources."""


class NoAuthenticators:
    """No authentication, or none but that of the transport. Thread: io."""

    __slots__ = ()

    def new_authenticator(
        self,
        id: str,  # noqa: ARG002 - the seam's signature
        address: SocketAddress | None,  # noqa: ARG002
        transport: TransportLayer,  # noqa: ARG002
    ) -> Authenticator:
        return PlaintextAuthenticator()

    def close(self) -> None:
        """Do nothing, as there are no resources."""


class DefaultChannelBuilder:
    """Builds channels from the transports of one factory and the authenticators of another. Thread: io."""

    __slots__ = ("_authenticators", "_transports")

    def __init__(self, transports: Transports, authenticators: Authenticators) -> None:
        self._transports = transports
        self._authenticators = authenticators

    @property
    def login(self) -> Login | None:
        """The credentials of all connections, None without SASL."""
        return getattr(self._authenticators, "login", None)

    def build_channel(
        self,
        id: str,
        sock: socket.socket,
        address: SocketAddress | None,
        max_receive_size: int,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        transport = self._transports.new_transport(sock, address)
        authenticator = self._authenticators.new_authenticator(id, address, transport)
        first_limit = None if address is None else FIRST_RESPONSE_LIMIT
        stream = self._transports.new_stream(transport, max_receive_size, memory_pool, first_limit)
        return KafkaChannel(id, transport, authenticator, stream)

    def close(self) -> None:
        self._authenticators.close()
        self._transports.close()


def plaintext_channel_builder() -> ChannelBuilder:
    """Return the builder of channels without encryption and authentication."""
    return DefaultChannelBuilder(PlaintextTransports(), NoAuthenticators())


def channel_builder_for(config: Mapping[str, Any]) -> DefaultChannelBuilder:
    """Return the builder for a client's ``security.protocol`` and the other keys of its configuration.

    Raises:
        ConfigError: they contradict each other, or a file that they name cannot be used.
    """
    warn_of_ignored(config)
    return DefaultChannelBuilder(_transports_for(config), _authenticators_for(config))


def _transports_for(config: Mapping[str, Any]) -> Transports:
    if config["security.protocol"] in ("PLAINTEXT", "SASL_PLAINTEXT"):
        return PlaintextTransports(proxy_of(config))
    from pykclient.network.tls.ssl_transport_layer import SslTransports

    return SslTransports.of_client(config, proxy_of(config))


def _authenticators_for(config: Mapping[str, Any]) -> Authenticators:
    if config["security.protocol"] in ("PLAINTEXT", "SSL"):
        return NoAuthenticators()
    from pykclient.network.authenticator.logins import sasl_authenticators  # hmac and more, which most clients need not

    return sasl_authenticators(config)
