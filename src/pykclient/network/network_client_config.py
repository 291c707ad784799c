"""The settings of a network client."""

from __future__ import annotations

import random

from pykclient.metrics import Sensor
from pykclient.network.cluster_connection_states import BackoffConfig
from pykclient.network.host_resolver import DefaultHostResolver, HostResolver
from pykclient.network.selectable import USE_DEFAULT_BUFFER_SIZE
from pykclient.network.telemetry.client_telemetry import ClientTelemetry


class NetworkClientConfig:
    """The settings of a network client. Times are in milliseconds.

    ``rebootstrap_trigger_ms`` is None if metadata.recovery.strategy is none. ``throttle_time_sensor`` records the
    throttle time of each response. ``telemetry`` is None if no metrics are pushed.
    """

    __slots__ = (
        "backoff",
        "client_id",
        "discover_broker_versions",
        "host_resolver",
        "max_in_flight_requests_per_connection",
        "rebootstrap_trigger_ms",
        "request_timeout_ms",
        "rng",
        "socket_receive_buffer",
        "socket_send_buffer",
        "telemetry",
        "throttle_time_sensor",
        "through",
    )

    def __init__(
        self,
        *,
        client_id: str,
        max_in_flight_requests_per_connection: int = 100,
        request_timeout_ms: int = 30_000,
        backoff: BackoffConfig | None = None,
        socket_send_buffer: int = USE_DEFAULT_BUFFER_SIZE,
        socket_receive_buffer: int = USE_DEFAULT_BUFFER_SIZE,
        discover_broker_versions: bool = True,
        rebootstrap_trigger_ms: int | None = 300_000,
        host_resolver: HostResolver | None = None,
        throttle_time_sensor: Sensor | None = None,
        rng: random.Random | None = None,
        through: str | None = None,
        telemetry: ClientTelemetry | None = None,
    ) -> None:
        self.client_id = client_id
        self.max_in_flight_requests_per_connection = max_in_flight_requests_per_connection
        self.request_timeout_ms = request_timeout_ms
        self.backoff = backoff or BackoffConfig(50, 1_000, 10_000, 30_000)
        self.socket_send_buffer = socket_send_buffer
        self.socket_receive_buffer = socket_receive_buffer
        self.discover_broker_versions = discover_broker_versions
        self.rebootstrap_trigger_ms = rebootstrap_trigger_ms
        self.host_resolver = host_resolver or DefaultHostResolver()
        #: The proxy for messages; None without one.
        self.through = through
        self.throttle_time_sensor = throttle_time_sensor
        self.rng = rng or random.Random()
        self.telemetry = telemetry
