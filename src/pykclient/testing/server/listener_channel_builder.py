"""Channels of brokers' connections, with the security of the listener that accepted them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, cast

from pykclient.network.authenticator import Authenticator, Authenticators
from pykclient.network.channel_builders import ChannelBuilder
from pykclient.network.frames import MemoryPool
from pykclient.network.kafka_channel import KafkaChannel
from pykclient.network.selectable import SocketAddress
from pykclient.network.tls.ssl_transport_layer import SslTransportLayer
from pykclient.network.transport_layer import TransportLayer, Transports
from pykclient.testing.config import ClusterConfig
from pykclient.testing.delegation_tokens import DelegationTokens
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.handlers import ApiVersionManager
from pykclient.testing.release_profiles import ReleaseProfile
from pykclient.testing.security import Security
from pykclient.testing.server.sasl_server_authenticator import SaslServerAuthenticator
from pykclient.testing.standard_authorizer import SslPrincipalMapper, SslSession

#: The names of this machine that a client may connect to.
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class ListenerChannelBuilder(ChannelBuilder):
    """A ``ChannelBuilder`` for connections that any of a cluster's listeners have accepted. Thread: loop."""

    def __init__(
        self,
        config: ClusterConfig,
        loop: EventLoop,
        listener_of: Callable[[int], str | None],
        tokens: Callable[[], DelegationTokens | None],
    ) -> None:
        """Prepare the builders. ``listener_of`` returns the name of the listener at a port, and ``tokens`` the
        cluster's delegation tokens.
        """
        self._listener_of = listener_of
        self._builders = {name: _builder(security, config, loop, tokens) for name, security in config.listeners.items()}

    def build_channel(
        self,
        id: str,
        sock: socket.socket,
        address: SocketAddress | None,
        max_receive_size: int,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        listener = self._listener_of(sock.getsockname()[1])
        if listener is None:
            raise OSError("the listener was closed")
        return self._builders[listener].build_channel(id, sock, address, max_receive_size, memory_pool)

    def close(self) -> None:
        for builder in self._builders.values():
            builder.close()


def _builder(
    security: Security, config: ClusterConfig, loop: EventLoop, tokens: Callable[[], DelegationTokens | None]
) -> ChannelBuilder:
    authenticators = Authenticators()
    if security.uses_sasl:
        authenticators = _by_sasl(security, config, loop, tokens)
    elif security.has_principals:
        authenticators = _by_certificate(config)
    transports = _tls(security, config) if security.uses_tls else Transports()
    return ChannelBuilder(transports, authenticators)


def _tls(security: Security, config: ClusterConfig) -> Transports:
    from pykclient.network.tls.ssl_factory import KeyStore, server_context
    from pykclient.network.tls.ssl_transport_layer import SslTransports

    certificate = security.broker_certificate
    if certificate is None:
        advertised = [config.advertised_host.format(id=id) for id in config.broker_ids]
        certificate = security.authority.issue("broker", list(dict.fromkeys((*advertised, *_OWN_NAMES))))
    store = KeyStore(certificate.certificate_pem, certificate.key_pem(), None)
    return SslTransports.of_server(server_context(store, security.authority.certificate_pem, security.client_auth))


class SslServerAuthenticator(Authenticator):
    """Identifies a client by its certificate, which the handshake has verified. Thread: loop."""

    def __init__(self, session: SslSession) -> None:
        self._session = session

    @property
    def session(self) -> SslSession:
        return self._session


class _ServerAuthenticators(Authenticators):
    """Authenticators for the connections of one listener. Thread: loop."""

    def __init__(self, new: Callable[[TransportLayer], Authenticator]) -> None:
        self._new = new

    def new_authenticator(
        self,
        id: str,  # noqa: ARG002 - the base's signature
        address: SocketAddress | None,  # noqa: ARG002
        transport: TransportLayer,
    ) -> Authenticator:
        return self._new(transport)


def _by_certificate(config: ClusterConfig) -> _ServerAuthenticators:
    mapper = SslPrincipalMapper(config.broker_config["ssl.principal.mapping.rules"])

    def new(transport: TransportLayer) -> Authenticator:
        tls = cast("SslTransportLayer", transport)
        return SslServerAuthenticator(SslSession(lambda: tls.peer_certificate, mapper))

    return _ServerAuthenticators(new)


def _by_sasl(
    security: Security, config: ClusterConfig, loop: EventLoop, tokens: Callable[[], DelegationTokens | None]
) -> _ServerAuthenticators:
    versions = ApiVersionManager(
        ReleaseProfile.of(config.release or ReleaseProfile.CURRENT),
        bool(config.broker_config["unstable.api.versions.enable"]),
    )
    max_reauth_ms = config.broker_config["connections.max.reauth.ms"]
    return _ServerAuthenticators(
        lambda _: SaslServerAuthenticator(
            security, config.credentials, versions, lambda: loop.wall_ms, max_reauth_ms, tokens()
        )
    )
