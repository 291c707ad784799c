"""Channels of brokers' connections, with the security of the listener that accepted them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.errors import ConfigError
from pykclient.network.channel_builders import (
    Authenticators,
    ChannelBuilder,
    DefaultChannelBuilder,
    NoAuthenticators,
    PlaintextTransports,
)
from pykclient.testing.release_profiles import ReleaseProfile
from pykclient.testing.server.api_version_manager import ApiVersionManager
from pykclient.testing.server.sasl_server_authenticator import SaslServerAuthenticator

if TYPE_CHECKING:
    import socket

    from pykclient.network.authenticator import Authenticator
    from pykclient.network.kafka_channel import KafkaChannel
    from pykclient.network.memory_pool import MemoryPool
    from pykclient.network.selectable import SocketAddress
    from pykclient.network.transport_layer import TransportLayer
    from pykclient.testing.config import ClusterConfig
    from pykclient.testing.event_loop import EventLoop
    from pykclient.testing.security import Security


class ListenerChannelBuilder:
    """A ``ChannelBuilder`` for connections that any of a cluster's listeners have accepted. Thread: loop."""

    __slots__ = ("_builders", "_listener_of")

    def __init__(self, config: ClusterConfig, loop: EventLoop, listener_of: Callable[[int], str | None]) -> None:
        """Prepare the builders. ``listener_of`` returns the name of the listener at a port."""
        self._listener_of = listener_of
        self._builders = {name: _builder(security, config, loop) for name, security in config.listeners.items()}

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


def _builder(security: Security, config: ClusterConfig, loop: EventLoop) -> ChannelBuilder:
    if security.protocol in ("SSL", "SASL_SSL"):
        raise ConfigError(f"embedded brokers do not support {security.protocol} yet")
    authenticators: Authenticators = (
        SaslServerAuthenticators(security, config, loop) if security.uses_sasl else NoAuthenticators()
    )
    return DefaultChannelBuilder(PlaintextTransports(), authenticators)


class SaslServerAuthenticators:
    """Authenticators for the connections of one listener. Thread: loop."""

    __slots__ = ("_config", "_loop", "_security", "_versions")

    def __init__(self, security: Security, config: ClusterConfig, loop: EventLoop) -> None:
        self._security = security
        self._config = config
        self._loop = loop
        self._versions = ApiVersionManager(ReleaseProfile.of(config.release or ReleaseProfile.CURRENT))

    def new_authenticator(
        self,
        id: str,  # noqa: ARG002 - the seam's signature
        address: SocketAddress | None,  # noqa: ARG002
        transport: TransportLayer,  # noqa: ARG002
    ) -> Authenticator:
        return SaslServerAuthenticator(
            self._security,
            self._config.credentials,
            self._versions,
            lambda: self._loop.wall_ms,
            self._config.broker_config["connections.max.reauth.ms"],
        )

    def close(self) -> None:
        """Do nothing, as there are no resources."""
