"""Channels for each ``security.protocol`` (Java: ChannelBuilders, PlaintextChannelBuilder).

A channel is a transport (plain TCP or TLS) plus an authenticator (none or SASL), and each comes from a factory of its
own. So each of the four protocols is a pair of factories::

    PLAINTEXT       ChannelBuilder(Transports(), Authenticators())
    SSL             ChannelBuilder(tls, Authenticators())
    SASL_PLAINTEXT  ChannelBuilder(Transports(), sasl)
    SASL_SSL        ChannelBuilder(tls, sasl)
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pykclient.config.security_keys import warn_of_ignored
from pykclient.network.authenticator import Authenticators
from pykclient.network.frames import FIRST_RESPONSE_LIMIT, MemoryPool
from pykclient.network.kafka_channel import KafkaChannel
from pykclient.network.selectable import SocketAddress
from pykclient.network.transport_layer import Transports

if TYPE_CHECKING:
    from pykclient.network.authenticator.sasl_client import Login
    from pykclient.network.proxy import ProxyConfig


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


class ChannelBuilder:
    """Creates channels over sockets, from the transports and authenticators of two factories. Thread: io."""

    def __init__(self, transports: Transports, authenticators: Authenticators) -> None:
        self._transports = transports
        self._authenticators = authenticators

    @property
    def login(self) -> Login | None:
        """The credentials of all connections, None without SASL."""
        return self._authenticators.login

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
        transport = self._transports.new_transport(sock, address)
        authenticator = self._authenticators.new_authenticator(id, address, transport)
        first_limit = None if address is None else FIRST_RESPONSE_LIMIT
        stream = self._transports.new_stream(transport, max_receive_size, memory_pool, first_limit)
        return KafkaChannel(id, transport, authenticator, stream)

    def close(self) -> None:
        self._authenticators.close()


def plaintext_channel_builder() -> ChannelBuilder:
    """Return the builder of channels without encryption and authentication."""
    return ChannelBuilder(Transports(), Authenticators())


def channel_builder_for(config: Mapping[str, Any]) -> ChannelBuilder:
    """Return the builder for a client's ``security.protocol`` and the other keys of its configuration.

    Raises:
        ConfigError: they contradict each other, or a file that they name cannot be used.
    """
    warn_of_ignored(config)
    return ChannelBuilder(_transports_for(config), _authenticators_for(config))


def _transports_for(config: Mapping[str, Any]) -> Transports:
    if config["security.protocol"] in ("PLAINTEXT", "SASL_PLAINTEXT"):
        return Transports(proxy_of(config))
    from pykclient.network.tls.ssl_transport_layer import SslTransports

    return SslTransports.of_client(config, proxy_of(config))


def _authenticators_for(config: Mapping[str, Any]) -> Authenticators:
    if config["security.protocol"] in ("PLAINTEXT", "SSL"):
        return Authenticators()
    from pykclient.network.authenticator.logins import sasl_authenticators  # hmac and more, which most clients need not

    return sasl_authenticators(config)
