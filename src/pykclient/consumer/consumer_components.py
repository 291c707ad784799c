"""Creation of a consumer's parts from its configuration (Java: the constructor of ClassicKafkaConsumer)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.application_driver import ApplicationDriver, NetworkClientDelegate
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
from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.consumer.values import AutoOffsetResetStrategy, ConsumerInterceptors, FetchConfig
from pykclient.errors import ConfigError, KafkaError
from pykclient.log_context import LogContext
from pykclient.metrics import MetricConfig, Metrics, register_app_info
from pykclient.network.client_utils import create_network_client, parse_and_validate_addresses, resolver_for
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.failures import principal_of, raise_if_of_signal_handler
from pykclient.network.kafka_client import KafkaClient
from pykclient.serialization import deserializer_for
from pykclient.types import UNKNOWN_EPOCH, OffsetAndMetadata

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.consumer.application_driver import Steps
    from pykclient.consumer.coordinator.consumer_coordinator import ConsumerCoordinator
    from pykclient.consumer.coordinator.group_member import Offsets
    from pykclient.consumer.subscription_state import FetchPosition
    from pykclient.log_context import PrefixLogger
    from pykclient.metrics import Sensor
    from pykclient.types import Header, TopicPartition

#: Fetches, lookups and commits to one node are few, so none has to wait for another.
_MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION = 100


_sequence = itertools.count(1)


class CommonComponents:
    """The parts by name that consumers and share consumers have in common. Thread: application.

    A subclass first makes whatever can fail because of a wrong configuration, then whatever must be closed.
    """

    #: The name of the client's class.
    client_class = "KafkaConsumer"
    client_id: str
    metrics: Metrics
    subscriptions: SubscriptionState
    metadata: ConsumerMetadata
    client: NetworkClientDelegate
    guard: ThreadGuard
    driver: ApplicationDriver

    def __init__(self, config: AbstractConfig, environment: Environment, log_prefix: str) -> None:
        self.config = config
        self.environment = environment
        self.clock = environment.clock
        self.log_context = LogContext(log_prefix, principal_of(config))
        self.key_deserializer = deserializer_for(config["key.deserializer"], "key.deserializer")
        self.value_deserializer = deserializer_for(config["value.deserializer"], "value.deserializer")

    def _new_metrics(self) -> Metrics:
        config = self.config
        return Metrics(
            MetricConfig.of(config, self.client_id, config.metrics_context("kafka.consumer")),
            config.configured_instances("metric.reporters", method="init"),
            self.clock,
        )

    def _connect(
        self,
        kafka_client: KafkaClient | None,
        metadata: ConsumerMetadata | None,
        subscriptions: SubscriptionState | None,
        strategy: AutoOffsetResetStrategy,
        throttle_time_sensor: Sensor,
        rng: random.Random,
    ) -> FetchContext:
        """Create the client, with its metadata, subscriptions and driver; return what all parts of fetching share.

        Those that are given are taken instead. ``strategy`` is that of partitions without a position.

        Raises:
            ConfigError: a setting is wrong, or no bootstrap server's name can be resolved.
        """
        config, environment, clock = self.config, self.environment, self.clock
        self.subscriptions = subscriptions or SubscriptionState(self.log_context, strategy)
        self.metadata = metadata or ConsumerMetadata(config, self.subscriptions, self.log_context, rng=rng)
        api_versions = ApiVersions()
        if kafka_client is None:
            addresses = parse_and_validate_addresses(
                config["bootstrap.servers"],
                config["client.dns.lookup"],
                resolver_for(config, environment.host_resolver),
                self.log_context,
                clock,
            )
            self.metadata.bootstrap(addresses)
            kafka_client = create_network_client(
                config,
                self.client_id,
                self.metrics,
                METRIC_PREFIX,
                self.log_context,
                api_versions,
                self.metadata,
                _MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION,
                throttle_time_sensor=throttle_time_sensor,
                environment=environment,
                rng=rng,
            )
        backoff_ms = config["retry.backoff.ms"]
        self.client = NetworkClientDelegate(
            kafka_client,
            clock,
            backoff_ms,
            config["request.timeout.ms"],
            config["heartbeat.interval.ms"],
            environment,
        )
        self.guard = ThreadGuard(environment, self.client_class)
        self.driver = ApplicationDriver(self.client, self.metadata, clock, self.guard.application_code, backoff_ms)
        return FetchContext(self.log_context, self.client, self.metadata, self.subscriptions, clock, api_versions)


class Closing:
    """Closes the parts of a consumer one by one, and once, also if a close() was interrupted. Thread: application."""

    def __init__(self, log: PrefixLogger) -> None:
        self._log = log
        self._closed: set[str] = set()
        #: The first error.
        self.failure: KafkaError | None = None

    def attempt(self, what: str, close: Callable[[], object]) -> None:
        """Call ``close`` unless that part is closed."""
        if what not in self._closed:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - all else must be closed first
                self._note(what, error)
            self._closed.add(what)

    def attempt_steps(self, what: str, close: Steps[None]) -> Steps[None]:
        """Run the steps that close a part, unless it is closed."""
        if what not in self._closed:
            try:
                yield from close
            except Exception as error:  # noqa: BLE001 - as above
                self._note(what, error)
            self._closed.add(what)

    def attempt_rest(self, components: CommonComponents) -> None:
        """Close the metrics, the network client and the deserializers."""
        self.attempt("the metrics", components.metrics.close)
        self.attempt("the network client", components.client.close)
        for what in ("key_deserializer", "value_deserializer"):
            close = getattr(getattr(components, what), "close", None)
            if callable(close):
                self.attempt(f"the {what}", close)

    def _note(self, what: str, error: Exception) -> None:
        raise_if_of_signal_handler(error)
        self._log.error("Closing %s failed: %r", what, error)
        if self.failure is not None:
            return
        if isinstance(error, KafkaError):
            self.failure = error
            return
        self.failure = KafkaError(f"closing the consumer failed: {error!r}")
        self.failure.__cause__ = error


class ConsumerComponents(CommonComponents):
    """The parts of a consumer by name. Creates ``client`` unless ``kafka_client`` is given. Thread: application."""

    config: ConsumerConfig
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
        self.group_id = config["group.id"]
        if self.group_id is not None and not self.group_id.strip():
            raise ConfigError("group.id is empty; leave it out for a consumer without a group")
        self.client_id = config["client.id"] or _default_client_id(self.group_id, config["group.instance.id"])
        prefix = _log_prefix(self.client_id, self.group_id, config["group.instance.id"])
        super().__init__(config, environment, prefix)
        self.assignors = assignor_instances(config["partition.assignment.strategy"])
        rng = environment.new_rng()
        self.interceptors = ConsumerInterceptors(config.configured_instances("interceptor.classes"), self.log_context)
        self.metrics = self._new_metrics()
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
        config = self.config
        self.fetch_config = fetch_config = FetchConfig.from_config(config)
        strategy = AutoOffsetResetStrategy.from_string(config["auto.offset.reset"])
        fetch_metrics = FetchMetricsManager(self.metrics, isolation_level=fetch_config.isolation_level)
        context = self._connect(
            kafka_client, metadata, subscriptions, strategy, fetch_metrics.throttle_time_sensor, rng
        )
        self.api_versions = context.api_versions
        self.undelivered = UndeliveredRecords()
        self.coordinator = self._coordinator(rng)
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
                self.auto_commit_offsets,
                interval_ms,
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
