"""Creation of a consumer's network client from its configuration.

Consumers import this module when they are created, as it loads sockets and TLS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.coordinator.coordinator_metrics import METRIC_PREFIX
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses, resolver_for

if TYPE_CHECKING:
    import random

    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.consumer.consumer_metadata import ConsumerMetadata
    from pykclient.log_context import LogContext
    from pykclient.metrics import Metrics
    from pykclient.metrics.sensor import Sensor
    from pykclient.network.api_versions import ApiVersions
    from pykclient.network.environment import Environment
    from pykclient.network.kafka_client import KafkaClient

#: Fetches, lookups and commits to one node are few, so none has to wait for another.
_MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION = 100


def consumer_network_client(
    config: AbstractConfig,
    client_id: str,
    metrics: Metrics,
    log_context: LogContext,
    api_versions: ApiVersions,
    metadata: ConsumerMetadata,
    throttle_time_sensor: Sensor,
    environment: Environment,
    rng: random.Random,
) -> KafkaClient:
    """Return a network client for the bootstrap servers, which ``metadata`` gets as its first nodes.

    Raises:
        ConfigError: a setting is wrong, or no bootstrap server's name can be resolved.
    """
    addresses = parse_and_validate_addresses(
        config["bootstrap.servers"],
        config["client.dns.lookup"],
        resolver_for(config, environment.host_resolver),
        log_context,
        environment.clock,
    )
    metadata.bootstrap(addresses)
    return create_network_client(
        config,
        client_id,
        metrics,
        METRIC_PREFIX,
        log_context,
        api_versions,
        metadata,
        _MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION,
        throttle_time_sensor=throttle_time_sensor,
        environment=environment,
        rng=rng,
    )
