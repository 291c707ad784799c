"""From configuration to addresses and to a network client (Java: ClientUtils)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pykclient import implementation
from pykclient.errors import ConfigError
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics, Sensor
from pykclient.network.api_versions import ApiVersions
from pykclient.network.cluster_connection_states import BackoffConfig
from pykclient.network.connection_failures import reason_of
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.host_resolver import DefaultHostResolver, HostResolver, canonical_names
from pykclient.network.kafka_channel import ChannelBuilder, PlaintextChannelBuilder
from pykclient.network.network_client import NetworkClient, NetworkClientConfig
from pykclient.network.selector import SelectorConfig

if TYPE_CHECKING:
    import random

    from pykclient.network.metadata import Metadata
    from pykclient.network.metadata_updater import MetadataUpdater

DEFAULT_PORT = 9092

#: ``host:port`` with an optional protocol name in front, as brokers write their listeners; IPv6 in brackets.
_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9_+.-]*://)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([\w.-]+))(?::(\d+))?")


def parse_address(text: str) -> tuple[str, int]:
    """``(host, port)`` of ``host``, ``host:port``, ``[ipv6]:port`` or ``PROTOCOL://host:port``; else ConfigError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        hint = ""
        if "@" in text:  # what is before it may have a password, and is not shown
            text = "...@" + text.rpartition("@")[2]
            hint = " (users and passwords are no part of it)"
        elif text.count(":") > 1:
            hint = " (an IPv6 address is written in brackets, as [::1]:9092)"
        raise ConfigError(f"bootstrap.servers: {text!r} is not an address of the form host:port{hint}")
    ipv6, host, port_text = match.groups()
    port = int(port_text) if port_text is not None else DEFAULT_PORT
    if not 0 < port < 65536:
        raise ConfigError(f"bootstrap.servers: the port of {text!r} is not between 1 and 65535")
    return ipv6 or host, port


def parse_addresses(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """``(host, port)`` of each address in a list, or in a string with commas. Nothing is resolved."""
    parts = servers.split(",") if isinstance(servers, str) else servers
    return list(dict.fromkeys(parse_address(part) for part in parts if part.strip()))


def parse_and_validate_addresses(
    servers: str | Sequence[str],
    client_dns_lookup: str = "use_all_dns_ips",
    host_resolver: HostResolver | None = None,
    log_context: LogContext | None = None,
) -> list[tuple[str, int]]:
    """``(host, port)`` of the addresses; ConfigError where no name can be resolved.

    With ``resolve_canonical_bootstrap_servers_only`` each name is replaced by the canonical names of its addresses,
    as Kerberos behind an alias needs.
    """
    resolver = host_resolver or DefaultHostResolver()
    log = (log_context or LogContext()).logger(__name__)
    addresses: list[tuple[str, int]] = []
    unresolved: list[str] = []
    for host, port in parse_addresses(servers):
        try:
            ips = resolver.resolve(host)
        except OSError as error:
            unresolved.append(f"{host}:{port}: {reason_of(error)}")
            # Kept for when the name server has recovered; until then reports of what cannot be reached tell of it.
            addresses.append((host, port))
            continue
        if client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
            addresses += [(canonical_names(ip), port) for ip in ips]
        else:
            addresses.append((host, port))
    if len(addresses) == len(unresolved):
        details = f" ({'; '.join(unresolved)})" if unresolved else ", the list is empty"
        raise ConfigError(f"no address in bootstrap.servers can be resolved{details}")
    for failure in unresolved:
        log.warning("An address of bootstrap.servers cannot be resolved: %s", failure)
    return list(dict.fromkeys(addresses))


def create_channel_builder(config: Mapping[str, Any]) -> ChannelBuilder:
    """The channel builder for ``security.protocol``."""
    protocol = config["security.protocol"]
    if protocol != "PLAINTEXT":
        raise ConfigError(f"security.protocol={protocol} is not supported yet, only PLAINTEXT")
    return PlaintextChannelBuilder()


def create_network_client(
    config: Mapping[str, Any],
    client_id: str,
    metrics: Metrics,
    metrics_group_prefix: str,
    log_context: LogContext,
    api_versions: ApiVersions,
    metadata: Metadata | MetadataUpdater,
    max_in_flight_requests_per_connection: int,
    *,
    request_timeout_ms: int | None = None,
    throttle_time_sensor: Sensor | None = None,
    environment: Environment = SYSTEM_ENVIRONMENT,
    rng: random.Random | None = None,
) -> NetworkClient:
    """A network client, from the configuration of a producer, consumer or admin client.

    ``metadata`` should have been started with ``bootstrap(parse_and_validate_addresses(...))``.
    """
    implementation.tell(log_context.logger(implementation.__name__))
    rebootstrap = config["metadata.recovery.strategy"] == "rebootstrap"
    selector = environment.new_selector(
        SelectorConfig(
            connections_max_idle_ms=config["connections.max.idle.ms"],
            metrics_group_prefix=metrics_group_prefix,
            max_receive_size=config["receive.message.max.bytes"],
        ),
        metrics,
        log_context,
        create_channel_builder(config),
    )
    client_config = NetworkClientConfig(
        client_id=client_id,
        max_in_flight_requests_per_connection=max_in_flight_requests_per_connection,
        request_timeout_ms=config["request.timeout.ms"] if request_timeout_ms is None else request_timeout_ms,
        backoff=BackoffConfig(
            config["reconnect.backoff.ms"],
            config["reconnect.backoff.max.ms"],
            config["socket.connection.setup.timeout.ms"],
            config["socket.connection.setup.timeout.max.ms"],
        ),
        socket_send_buffer=config["send.buffer.bytes"],
        socket_receive_buffer=config["receive.buffer.bytes"],
        rebootstrap_trigger_ms=config["metadata.recovery.rebootstrap.trigger.ms"] if rebootstrap else None,
        host_resolver=environment.host_resolver,
        throttle_time_sensor=throttle_time_sensor,
        rng=rng,
    )
    return NetworkClient(client_config, selector, metadata, api_versions, environment.clock, log_context)
