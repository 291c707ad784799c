"""Addresses and network clients from a configuration (Java: ClientUtils)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pykclient import implementation
from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import ConfigError
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics, Sensor
from pykclient.network.client_telemetry import ClientTelemetry
from pykclient.network.cluster_connection_states import ApiVersions, BackoffConfig
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.failures import reason_of, shown_address
from pykclient.network.host_resolver import DefaultHostResolver, HostResolver, Lookup
from pykclient.network.network_client import NetworkClient, NetworkClientConfig

if TYPE_CHECKING:
    from pykclient.network.metadata import Metadata
    from pykclient.network.metadata_updater import MetadataUpdater

DEFAULT_PORT = 9092
_SERVERS: Final = "bootstrap.servers"

#: The longest wait for the host names in bootstrap.servers when a client is created.
DNS_TIMEOUT_MS: Final = 10_000

#: The longest wait for the other names after the first one was found.
DNS_GRACE_MS: Final = 1_000

#: ``host:port``, optionally after a protocol name, as brokers write their listeners. IPv6 addresses are in brackets.
_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9_+.-]*://)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([\w.-]+))(?::(\d+))?")


def parse_address(text: str, key: str = _SERVERS) -> tuple[str, int]:
    """Return ``(host, port)`` of ``host:port``, ``[ipv6]:port`` or ``PROTOCOL://host:port``. The default port is 9092.

    Errors name ``key``, the setting.

    Raises:
        ConfigError: ``text`` is not such an address.
    """
    host, port = split_address(text, key)
    return host, DEFAULT_PORT if port is None else port


def split_address(text: str, key: str = _SERVERS) -> tuple[str, int | None]:
    """Return ``(host, port)`` as ``parse_address`` does, but None for a missing port. Errors name ``key``.

    Raises:
        ConfigError: ``text`` is not such an address.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        hint = ""
        if "@" in text:  # the part before @ may contain a password, so it is not shown
            text = "...@" + text.rpartition("@")[2]
            hint = "; leave out user and password"
        elif text.count(":") > 1:
            hint = " (an IPv6 address is written in brackets, as [::1]:9092)"
        raise ConfigError(f"{key}: {text!r} is not an address of the form host:port{hint}")
    ipv6, host, port_text = match.groups()
    port = None if port_text is None else int(port_text)
    if port is not None and not 0 < port < 65536:
        raise ConfigError(f"{key}: the port of {text!r} is not between 1 and 65535")
    return ipv6 or host, port


def parse_addresses(servers: str | Sequence[str], key: str = _SERVERS) -> list[tuple[str, int]]:
    """Return ``(host, port)`` of each address in a list or in a comma-separated string. No host is looked up.

    Raises:
        ConfigError: one of them is not an address.
    """
    return list(dict.fromkeys(parse_address(part, key) for part in _split(servers)))


def addresses_without_port(servers: str | Sequence[str]) -> list[str]:
    """Return the addresses without a port in a list or in a comma-separated string.

    Raises:
        ConfigError: one of them is not an address.
    """
    return [part.strip() for part in _split(servers) if split_address(part)[1] is None]


def _split(servers: str | Sequence[str]) -> list[str]:
    return [part for part in (servers.split(",") if isinstance(servers, str) else servers) if part.strip()]


def parse_and_validate_addresses(
    servers: str | Sequence[str],
    client_dns_lookup: str = "use_all_dns_ips",
    host_resolver: HostResolver | None = None,
    log_context: LogContext | None = None,
    clock: Clock = SYSTEM_CLOCK,
    key: str = _SERVERS,
) -> list[tuple[str, int]]:
    """Return ``(host, port)`` of each address of bootstrap.servers. The DNS must know at least one host.

    Warnings and errors name ``key``, the setting.

    Addresses without a port get port 9092 and a warning; Java refuses them.

    All hosts are looked up at the same time. The wait ends when all lookups are done, ``DNS_GRACE_MS`` after the first
    host was found, or after ``DNS_TIMEOUT_MS``. Hosts that could not be looked up are kept, because their name server
    may recover. With ``client_dns_lookup`` = ``resolve_canonical_bootstrap_servers_only``, each host is replaced by the
    canonical names of its addresses, as Kerberos behind an alias needs. In this case the wait is for all lookups.

    Raises:
        ConfigError: an address is malformed, or no host was found.
    """
    canonical = client_dns_lookup == "resolve_canonical_bootstrap_servers_only"
    log = (log_context or LogContext()).logger(__name__)
    parsed = parse_addresses(servers, key)
    if portless := addresses_without_port(servers):
        # In many clusters nothing listens on this port, and the client would only see timeouts.
        log.warning("%s: no port in %s; trying port %d. Write host:port", key, ", ".join(portless), DEFAULT_PORT)
    hosts = list(dict.fromkeys(host for host, _ in parsed))
    outcomes = _look_up_all(hosts, host_resolver or DefaultHostResolver(), clock, canonical)
    addresses: list[tuple[str, int]] = []
    unresolved: list[str] = []
    for host, port in parsed:
        outcome = outcomes[host]
        if isinstance(outcome, OSError):
            unresolved.append(f"{shown_address(host, port)}: {reason_of(outcome)}")
            # Kept because the name server may recover. Until then, the connection report names the host.
            addresses.append((host, port))
        elif canonical:
            addresses += [(name, port) for name in outcome]
        else:
            addresses.append((host, port))
    if len(parsed) == len(unresolved):
        details = f" ({'; '.join(unresolved)})" if unresolved else ", the list is empty"
        raise ConfigError(f"no address in {key} can be resolved{details}")
    for failure in unresolved:
        log.warning("An address of %s cannot be resolved: %s", key, failure)
    return list(dict.fromkeys(addresses))


def resolver_for(config: Mapping[str, Any], resolver: HostResolver) -> HostResolver:
    """Return the resolver for brokers' names: with a proxy, only the proxy's own name is looked up here.

    Raises:
        ConfigError: the proxy's URL is not valid, or a package for proxies is missing.
    """
    from pykclient.network.channel_builders import proxy_of

    proxy = proxy_of(config)
    if proxy is None:
        return resolver
    from pykclient.network.proxy import ProxyHostResolver

    return ProxyHostResolver(resolver, proxy)


class HostLookups:
    """Lookups of several hosts at the same time, and for how long to wait for them.

    The wait ends when all are done, ``DNS_GRACE_MS`` after the first host was found, or after ``DNS_TIMEOUT_MS``. With
    ``canonical``, it is for all lookups. ``on_done`` is called, by any thread, whenever a lookup is done.

    Thread: owner.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        resolver: HostResolver,
        on_done: Callable[[], object],
        canonical: bool,
        now_ms: int,
    ) -> None:
        self._canonical = canonical
        self._start_ms = now_ms
        self._deadline_ms = now_ms + DNS_TIMEOUT_MS
        self._found = False
        self._lookups = {host: resolver.look_up(host, on_done, canonical) for host in hosts}

    def wait_ms(self, now_ms: int) -> int:
        """Return for how long to wait for the next lookup that is done; 0 if the wait is over."""
        lookups = self._lookups.values()
        if all(lookup.done for lookup in lookups):
            return 0
        if not self._found and not self._canonical and any(_has_address(lookup) for lookup in lookups):
            self._found = True
            self._deadline_ms = min(self._deadline_ms, now_ms + DNS_GRACE_MS)
        return max(0, self._deadline_ms - now_ms)

    def outcomes(self, now_ms: int) -> dict[str, list[str] | OSError]:
        """End the lookups that are not done, and return addresses or an error for each host."""
        outcomes: dict[str, list[str] | OSError] = {}
        for host, lookup in self._lookups.items():
            if lookup.done:
                outcomes[host] = _outcome(lookup)
            else:
                lookup.cancel()
                outcomes[host] = TimeoutError(f"no answer from the DNS within {(now_ms - self._start_ms) / 1000:g} s")
        return outcomes


def _look_up_all(
    hosts: Sequence[str], resolver: HostResolver, clock: Clock, canonical: bool
) -> dict[str, list[str] | OSError]:
    """Look up all hosts at the same time, and wait for them. Return addresses or an error for each host."""
    signal = clock.new_signal()
    lookups = HostLookups(hosts, resolver, signal.set, canonical, clock.now_ms())
    while (wait_ms := lookups.wait_ms(clock.now_ms())) > 0:
        signal.wait(wait_ms)
    return lookups.outcomes(clock.now_ms())


def _outcome(lookup: Lookup) -> list[str] | OSError:
    try:
        return lookup.result()
    except OSError as error:
        return error


def _has_address(lookup: Lookup) -> bool:
    return lookup.done and not isinstance(_outcome(lookup), OSError)


#: The settings that a push of metrics names, by their names in the push (Java: ClientTelemetryProvider).
_RESOURCE_KEYS = {
    "client_rack": "client.rack",
    "group_id": "group.id",
    "group_instance_id": "group.instance.id",
    "transactional_id": "transactional.id",
}


def _telemetry(
    config: Mapping[str, Any],
    metrics: Metrics,
    api_versions: ApiVersions,
    log_context: LogContext,
    rng: random.Random | None,
) -> ClientTelemetry | None:
    """Return the telemetry of a client, or None if ``enable.metrics.push`` is off."""
    if not config["enable.metrics.push"]:
        return None
    resource = {name: str(config[key]) for name, key in _RESOURCE_KEYS.items() if config.get(key)}
    return ClientTelemetry(metrics, resource, api_versions, log_context, rng or random.Random())


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
    """Return a network client for the configuration of a producer, consumer or admin client.

    ``metadata`` must have been initialized with ``bootstrap(parse_and_validate_addresses(...))``.
    """
    # With the first client and not with its class, whose import loads no sockets and none of their compiled code.
    from pykclient.network.channel_builders import channel_builder_for, proxy_of
    from pykclient.network.selector import SelectorConfig

    implementation.tell(log_context.logger(implementation.__name__))
    rebootstrap = config["metadata.recovery.strategy"] == "rebootstrap"
    proxy = proxy_of(config)
    channel_builder = channel_builder_for(config)
    selector = environment.new_selector(
        SelectorConfig(
            connections_max_idle_ms=config["connections.max.idle.ms"],
            metrics_group_prefix=metrics_group_prefix,
            max_receive_size=config["receive.message.max.bytes"],
            proxy_port=None if proxy is None else proxy.port,
        ),
        metrics,
        log_context,
        channel_builder,
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
        host_resolver=resolver_for(config, environment.host_resolver),
        through=None if proxy is None else proxy.name,
        throttle_time_sensor=throttle_time_sensor,
        rng=rng,
        telemetry=_telemetry(config, metrics, api_versions, log_context, rng),
        login=channel_builder.login,
    )
    return NetworkClient(client_config, selector, metadata, api_versions, environment.clock, log_context)
