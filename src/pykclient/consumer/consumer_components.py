"""Creation of a consumer's parts from its configuration (Java: the constructor of ClassicKafkaConsumer)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.application_driver import ApplicationDriver, NetworkClientDelegate
from pykclient.consumer.consumer_face import ThreadGuard
from pykclient.consumer.consumer_metadata import ConsumerMetadata, TopicMetadataRequestManager
from pykclient.consumer.consumer_metrics import AsyncConsumerMetrics, FetchMetricsManager, KafkaConsumerMetrics
from pykclient.consumer.coordinator.group_member import METRIC_PREFIX
from pykclient.consumer.coordinator.membership import CONSUMER, GroupRebalanceConfig
from pykclient.consumer.fetch_collector import (
    Deserializers,
    FetchBuffer,
    FetchCollector,
    FetchContext,
    UndeliveredRecords,
)
from pykclient.consumer.fetch_request_manager import FetchRequestManager
from pykclient.consumer.offsets_request_manager import OffsetsRequestManager
from pykclient.consumer.partition_assignors import assignor_instances
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy, ConsumerInterceptors, FetchConfig
from pykclient.errors import ConfigError
from pykclient.log_context import LogContext
from pykclient.metrics import MetricConfig, Metrics, register_app_info
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses, resolver_for
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.failures import principal_of
from pykclient.network.kafka_client import KafkaClient
from pykclient.serialization import deserializer_for
from pykclient.types import UNKNOWN_EPOCH, OffsetAndMetadata

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.consumer.coordinator.consumer_coordinator import ConsumerCoordinator
    from pykclient.consumer.coordinator.group_member import Offsets
    from pykclient.consumer.subscription_state import FetchPosition
    from pykclient.metrics import Sensor
    from pykclient.types import Header, TopicPartition

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


_sequence = itertools.count(1)


class ConsumerComponents:
    """The parts of a consumer by name. Creates ``client`` unless ``kafka_client`` is given. Thread: application."""

    #: The type of the headers of records.
    headers_type: type[tuple[Header, ...]] = tuple

    def __init__(
        self,
        config: ConsumerConfig,
        environment: Environment = SYSTEM_ENVIRONMENT,
        kafka_client: KafkaClient | None = None,
        metadata: ConsumerMetadata | None = None,
        subscriptions: SubscriptionState | None = None,
    ) -> None:
        self.config = config
        self.environment = environment
        self.clock = environment.clock
        self.group_id = config["group.id"]
        if self.group_id is not None and not self.group_id.strip():
            raise ConfigError("group.id is empty; leave it out for a consumer without a group")
        self.client_id: str = config["client.id"] or _default_client_id(self.group_id, config["group.instance.id"])
        prefix = _log_prefix(self.client_id, self.group_id, config["group.instance.id"])
        self.log_context = LogContext(prefix, principal_of(config))
        # Whatever can fail because of a wrong configuration comes before whatever must be closed.
        self.key_deserializer = deserializer_for(config["key.deserializer"], "key.deserializer")
        self.value_deserializer = deserializer_for(config["value.deserializer"], "value.deserializer")
        self.assignors = assignor_instances(config["partition.assignment.strategy"])
        rng = environment.new_rng()
        self.interceptors = ConsumerInterceptors(config.configured_instances("interceptor.classes"), self.log_context)
        self.metrics = Metrics(
            MetricConfig.of(config, self.client_id, config.metrics_context("kafka.consumer")),
            config.configured_instances("metric.reporters", method="init"),
            self.clock,
        )
        try:
            self._put_together(rng, kafka_client, metadata, subscriptions)
        except BaseException:
            # Nobody else gets this object, so nobody else could close them.
            self.metrics.close()
            self.interceptors.close()
            raise

    def _put_together(
        self,
        rng: random.Random,
        kafka_client: KafkaClient | None,
        metadata: ConsumerMetadata | None,
        subscriptions: SubscriptionState | None,
    ) -> None:
        config, environment, clock = self.config, self.environment, self.clock
        self.fetch_config = fetch_config = FetchConfig.from_config(config)
        self.subscriptions = subscriptions or SubscriptionState(
            self.log_context, AutoOffsetResetStrategy.from_string(config["auto.offset.reset"])
        )
        self.metadata = metadata or ConsumerMetadata(config, self.subscriptions, self.log_context, rng=rng)
        self.api_versions = api_versions = ApiVersions()
        fetch_metrics = FetchMetricsManager(self.metrics, isolation_level=fetch_config.isolation_level)
        if kafka_client is None:
            kafka_client = consumer_network_client(
                config,
                self.client_id,
                self.metrics,
                self.log_context,
                api_versions,
                self.metadata,
                fetch_metrics.throttle_time_sensor,
                environment,
                rng,
            )
        self.client = NetworkClientDelegate(
            kafka_client,
            clock,
            config["retry.backoff.ms"],
            config["request.timeout.ms"],
            config["heartbeat.interval.ms"],
            environment,
        )
        self.guard = ThreadGuard(environment)
        self.driver = ApplicationDriver(
            self.client, self.metadata, clock, self.guard.application_code, config["retry.backoff.ms"]
        )
        self.undelivered = UndeliveredRecords()
        self.coordinator = self._coordinator(rng)
        context = FetchContext(self.log_context, self.client, self.metadata, self.subscriptions, clock, api_versions)
        deserializers = Deserializers.of(self.key_deserializer, self.value_deserializer)
        deserializers.headers_type = self.headers_type
        self.fetch_buffer = FetchBuffer(self.log_context)
        self.fetch_collector = FetchCollector(context, fetch_config, deserializers, fetch_metrics)
        self.fetches = FetchRequestManager(context, fetch_config, self.fetch_buffer, fetch_metrics)
        self.offsets = OffsetsRequestManager(
            context, config["retry.backoff.ms"], config["request.timeout.ms"], fetch_config.isolation_level
        )
        self.topic_metadata = TopicMetadataRequestManager(
            self.client,
            config["retry.backoff.ms"],
            config["retry.backoff.max.ms"],
            rng,
            self.log_context.principal,
        )
        self.client.managers.add(self.topic_metadata, self.offsets, self.fetches)
        self.consumer_metrics = KafkaConsumerMetrics(self.metrics)
        if config["group.protocol"] == CONSUMER:
            self._measure_queues()
        register_app_info(self.metrics)

    def _measure_queues(self) -> None:
        metrics = self.client.metrics = AsyncConsumerMetrics(self.metrics, self.clock)
        coordinator = self.coordinator
        if coordinator is not None:
            coordinator.measure_events(metrics)
        metrics.measure_queues(
            self.client.unsent_request_count, lambda: 0 if coordinator is None else coordinator.event_count()
        )

    def _coordinator(self, rng: random.Random) -> ConsumerCoordinator | None:
        """Return the coordinator, or None without a group."""
        if self.group_id is None:
            return None
        # Imported here, because a consumer without a group starts faster without them.
        from pykclient.consumer.coordinator.consumer_coordinator import ConsumerCoordinator
        from pykclient.consumer.coordinator.group_member import CoordinatedConsumer

        config = self.config
        interval_ms = config["auto.commit.interval.ms"] if config["enable.auto.commit"] else None
        return ConsumerCoordinator(
            GroupRebalanceConfig.from_consumer_config(self.group_id, config),
            self.log_context,
            self.client,
            self.metrics,
            self.clock,
            CoordinatedConsumer(
                self.metadata,
                self.subscriptions,
                self.assignors,
                self.interceptors,
                auto_commit_offsets=self.auto_commit_offsets,
                auto_commit_interval_ms=interval_ms,
            ),
            rng,
            self.environment,
        )

    def auto_commit_offsets(self) -> Offsets:
        """Return the offsets to commit automatically.

        An automatic commit happens in a call of the application, which is then done with all records of earlier calls.
        """
        return self.consumed()

    def consumed(self) -> Offsets:
        """Return the offsets to commit: the positions, but not beyond records that the application has received."""
        offsets = self.subscriptions.all_consumed()
        hold_back(offsets, self.undelivered.next_positions())
        return offsets


def hold_back(offsets: Offsets, positions: Mapping[TopicPartition, FetchPosition]) -> None:
    """Lower ``offsets`` to ``positions`` where these are lower."""
    for tp, position in positions.items():
        if tp in offsets and position.offset < offsets[tp].offset:
            epoch = UNKNOWN_EPOCH if position.offset_epoch is None else position.offset_epoch
            offsets[tp] = OffsetAndMetadata(position.offset, "", epoch)


def _default_client_id(group_id: str | None, instance_id: str | None) -> str:
    if group_id is None:
        return f"consumer-{next(_sequence)}"
    return f"consumer-{group_id}-{instance_id or next(_sequence)}"


def _log_prefix(client_id: str, group_id: str | None, instance_id: str | None) -> str:
    group = f" group_id={group_id}" if group_id else ""
    instance = f" instance_id={instance_id}" if instance_id else ""
    return f"[Consumer client_id={client_id}{group}{instance}] "
