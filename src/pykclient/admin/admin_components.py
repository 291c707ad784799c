"""Creation of an admin client's parts from its configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient.admin.admin_call import AdminCall, Deadline, RetryPolicy
from pykclient.admin.admin_calls import AdminCalls
from pykclient.admin.admin_metadata import AdminMetadata
from pykclient.errors import IllegalStateError, UnsupportedEndpointTypeError, UseAfterForkError
from pykclient.log_context import LogContext
from pykclient.metrics import MetricConfig, Metrics
from pykclient.metrics.app_info import register_app_info
from pykclient.network.api_versions import ApiVersions
from pykclient.network.authorization_errors import principal_of
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses, resolver_for
from pykclient.network.cluster import ClusterResourceListeners
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.metadata import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER

if TYPE_CHECKING:
    from pykclient.admin.api import AdminApiHandler
    from pykclient.config.admin_config import AdminClientConfig
    from pykclient.network.kafka_client import KafkaClient
    from pykclient.network.telemetry.client_instance_id import IdentifiedTelemetry

K = TypeVar("K")
V = TypeVar("V")

#: A broker handles the requests of one connection one after another; more than a few in flight gain nothing.
_MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION = 5

_numbers = count(1)


class AdminComponents:
    """The parts of one admin client. Tests may pass ``client`` and ``metadata``. Thread: any."""

    def __init__(
        self,
        config: AdminClientConfig,
        environment: Environment = SYSTEM_ENVIRONMENT,
        client: KafkaClient | None = None,
        metadata: AdminMetadata | None = None,
    ) -> None:
        self.config = config
        self.environment = environment
        self.clock = clock = environment.clock
        rng = environment.new_rng()
        self.client_id: str = config["client.id"] or f"adminclient-{next(_numbers)}"
        self.log_context = LogContext(f"[AdminClient client_id={self.client_id}] ", principal_of(config))
        self._default_timeout_ms: int = config["default.api.timeout.ms"]
        self._pid = os.getpid()
        self._are_plugins_closed = False
        addresses: list[tuple[str, int]] = []
        if metadata is None:  # wrong addresses are found before there is anything to close
            addresses = parse_and_validate_addresses(
                config[config.bootstrap_key],
                config["client.dns.lookup"],
                resolver_for(config, environment.host_resolver),
                self.log_context,
                clock,
                config.bootstrap_key,
            )
        self.metrics = Metrics(
            MetricConfig.of(config, self.client_id, config.metrics_context("kafka.admin.client")),
            config.configured_instances("metric.reporters", method="init"),
            clock,
        )
        register_app_info(self.metrics)
        try:
            if metadata is None:
                listeners = ClusterResourceListeners([*self.metrics.reporters])
                metadata = AdminMetadata(config, self.log_context, listeners, rng)
                metadata.bootstrap(addresses)
            self.metadata = metadata
            self.api_versions = ApiVersions()
            self.client = client or create_network_client(
                config,
                self.client_id,
                self.metrics,
                "admin-client",
                self.log_context,
                self.api_versions,
                metadata,
                _MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION,
                environment=environment,
                rng=rng,
            )
        except BaseException:
            self.metrics.close()  # nobody else gets this object
            raise
        backoff = ExponentialBackoff(
            config["retry.backoff.ms"],
            RETRY_BACKOFF_EXP_BASE,
            config["retry.backoff.max.ms"],
            RETRY_BACKOFF_JITTER,
            rng,
        )
        self._policy = RetryPolicy(backoff, config["retries"], config["request.timeout.ms"], self.log_context.principal)
        self.calls = AdminCalls(self.client, metadata, clock, config["retry.backoff.ms"], self.log_context)

    @property
    def telemetry(self) -> IdentifiedTelemetry | None:
        """The telemetry of the client; None if ``enable.metrics.push`` is off."""
        return self.client.telemetry

    def deadline(self, timeout_ms: int | None) -> Deadline:
        """Return the deadline of a call that begins now; None is for ``default.api.timeout.ms``."""
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(timeout_ms, self.clock.now_ms() + timeout_ms)

    def call(self, handler: AdminApiHandler[K, V], keys: Iterable[K], deadline: Deadline) -> AdminCall[K, V]:
        """Return a call that has not begun.

        Raises:
            UnsupportedEndpointTypeError: the client is connected to controllers, and they do not serve the call.
        """
        if self.metadata.uses_controllers and not handler.lookup.SERVED_BY_CONTROLLERS:
            raise UnsupportedEndpointTypeError(
                f"{handler.name} is served by brokers only, and this client is connected to controllers "
                "(bootstrap.controllers). Use a client with bootstrap.servers for it"
            )
        return AdminCall(handler, keys, deadline, self._policy)

    def ensure_usable(self) -> None:
        """Check that the client is open, and belongs to this process.

        Raises:
            UseAfterForkError: the client was made before a fork.
            IllegalStateError: the client is closed.
        """
        if os.getpid() != self._pid:
            raise UseAfterForkError(
                f"this admin client was made in process {self._pid} and is used in its child {os.getpid()}: its "
                "connections belong to the parent; make a client in each process, after the fork"
            )
        if self.calls.is_closed or self.calls.is_closing:
            raise IllegalStateError("the admin client is closed; create another one")

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def close_plugins(self) -> None:
        """Close the metrics and their reporters, once."""
        if not self._are_plugins_closed:
            self._are_plugins_closed = True
            self.metrics.close()

    def node_versions(self) -> dict[int, Any]:
        """Return the API versions of the brokers that are connected now, by broker id."""
        found = {}
        for node in self.metadata.fetch().nodes:
            versions = self.api_versions.get(node.id_string)
            if versions is not None:
                found[node.id] = versions
        return found
