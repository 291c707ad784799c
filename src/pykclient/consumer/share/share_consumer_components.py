"""Creation of a share consumer's parts from its configuration (Java: the constructor of ShareConsumerImpl)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pykclient.consumer.application_driver import ApplicationDriver
from pykclient.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
from pykclient.consumer.deserializers import Deserializers
from pykclient.consumer.network_client_delegate import NetworkClientDelegate
from pykclient.consumer.share.share_consume_request_manager import ShareConsumeRequestManager
from pykclient.consumer.share.share_coordinator import ShareCoordinator
from pykclient.consumer.share.share_fetch_buffer import ShareFetchBuffer
from pykclient.consumer.share.share_fetch_config import ShareFetchConfig
from pykclient.consumer.share.share_metrics import KafkaShareConsumerMetrics, ShareFetchMetricsManager
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.errors import InvalidGroupIdError
from pykclient.log_context import LogContext
from pykclient.metrics import MetricConfig, Metrics
from pykclient.metrics.app_info import register_app_info
from pykclient.network.api_versions import ApiVersions
from pykclient.network.authorization_errors import principal_of
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.serialization import deserializer_for

if TYPE_CHECKING:
    import random

    from pykclient.config.share_consumer_config import ShareConsumerConfig
    from pykclient.network.kafka_client import KafkaClient

_BACKOFF_EXP_BASE = 2
_BACKOFF_JITTER = 0.2

_sequence = itertools.count(1)


class ShareConsumerComponents:
    """The parts of a share consumer by name.

    Creates ``client`` unless ``kafka_client`` is given. Thread: application.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        environment: Environment = SYSTEM_ENVIRONMENT,
        kafka_client: KafkaClient | None = None,
        metadata: ConsumerMetadata | None = None,
        subscriptions: SubscriptionState | None = None,
    ) -> None:
        self.config = config
        self.environment = environment
        self.clock = environment.clock
        group_id = config["group.id"]
        if group_id is None or not group_id.strip():
            raise InvalidGroupIdError("a share consumer needs a group.id: the name of its share group")
        self.group_id: str = group_id
        self.client_id: str = config["client.id"] or f"consumer-{group_id}-{next(_sequence)}"
        self.log_context = LogContext(
            f"[ShareConsumer client_id={self.client_id} group_id={group_id}] ", principal_of(config)
        )
        # Whatever can fail because of a wrong configuration comes before whatever must be closed.
        self.key_deserializer = deserializer_for(config["key.deserializer"], "key.deserializer")
        self.value_deserializer = deserializer_for(config["value.deserializer"], "value.deserializer")
        rng = environment.new_rng()
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
            raise

    def _put_together(
        self,
        rng: random.Random,
        kafka_client: KafkaClient | None,
        metadata: ConsumerMetadata | None,
        subscriptions: SubscriptionState | None,
    ) -> None:
        config, environment, clock = self.config, self.environment, self.clock
        fetch_config = ShareFetchConfig.from_config(config)
        self.subscriptions = subscriptions or SubscriptionState(self.log_context, AutoOffsetResetStrategy.NONE)
        self.metadata = metadata or ConsumerMetadata(config, self.subscriptions, self.log_context, rng=rng)
        fetch_metrics = ShareFetchMetricsManager(self.metrics)
        if kafka_client is None:
            from pykclient.consumer.consumer_network_client import consumer_network_client

            kafka_client = consumer_network_client(
                config,
                self.client_id,
                self.metrics,
                self.log_context,
                ApiVersions(),
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
        self.guard = ThreadGuard(environment, "KafkaShareConsumer")
        self.driver = ApplicationDriver(
            self.client, self.metadata, clock, self.guard.application_code, config["retry.backoff.ms"]
        )
        backoff = ExponentialBackoff(
            config["retry.backoff.ms"], _BACKOFF_EXP_BASE, config["retry.backoff.max.ms"], _BACKOFF_JITTER, rng
        )
        self.coordinator = ShareCoordinator(
            GroupRebalanceConfig.from_consumer_config(self.group_id, config),
            self.log_context,
            self.client,
            self.metrics,
            clock,
            self.metadata,
            self.subscriptions,
            backoff,
            rng,
            environment,
        )
        deserializers = Deserializers.of(self.key_deserializer, self.value_deserializer)
        self.buffer = ShareFetchBuffer(self.log_context, self.metadata, fetch_config, deserializers, clock)
        self.requests = ShareConsumeRequestManager(
            self.log_context,
            self.client,
            self.metadata,
            self.subscriptions,
            clock,
            fetch_config,
            self.buffer,
            fetch_metrics,
            backoff,
            self.group_id,
            self.coordinator.membership.member_id,
        )
        self.client.managers.add(self.requests)
        self.consumer_metrics = KafkaShareConsumerMetrics(self.metrics)
        register_app_info(self.metrics)
