"""A consumer without its public class and its group, over a MockClient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykclient.clock import Timer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.application_driver import ApplicationDriver, NetworkClientDelegate
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.consumer_metrics import FetchMetricsManager
from pykclient.consumer.fetch_collector import Deserializers, Fetch, FetchBuffer, FetchCollector, FetchContext
from pykclient.consumer.fetch_request_manager import FetchRequestManager
from pykclient.consumer.offsets_request_manager import OffsetsRequestManager
from pykclient.consumer.subscription_state import FetchPosition, SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy, FetchConfig
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.cluster_connection_states import ApiVersions, NodeApiVersions
from pykclient.protocol.messages.fetch import FetchResponse
from pykclient.types import Node, TopicPartition
from tests.consumer.responses import fetch_response, metadata_response
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock

TOPIC = "test"
TP0 = TopicPartition(TOPIC, 0)
TP1 = TopicPartition(TOPIC, 1)


class Harness:
    """The parts of a consumer, whose metadata has topic ``test`` with two partitions.

    ``config`` is the consumer's configuration.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        deserializers: Deserializers | None = None,
        partitions: Mapping[str, int] | None = None,
        brokers: int = 1,
    ) -> None:
        self.config = ConsumerConfig({"bootstrap.servers": "localhost:9092", **(config or {})})
        self.clock = MockClock()
        log_context = LogContext()
        self.strategy = AutoOffsetResetStrategy.from_string(self.config.get_str("auto.offset.reset"))
        self.subscriptions = SubscriptionState(log_context, self.strategy)
        self.metadata = ConsumerMetadata(self.config, self.subscriptions, log_context)
        self.partitions = dict(partitions or {TOPIC: 2})
        self.brokers = brokers
        self.client = MockClient(self.clock, self.metadata)
        self.network = NetworkClientDelegate(self.client, self.clock, 100, 30_000, 5000)
        self.driver = ApplicationDriver(self.network, self.metadata, self.clock)
        self.metrics = Metrics(clock=self.clock)
        self.metrics_manager = FetchMetricsManager(self.metrics)
        self.api_versions = ApiVersions()
        for node_id in range(brokers):
            self.api_versions.update(str(node_id), NodeApiVersions.create())
        context = FetchContext(
            log_context, self.network, self.metadata, self.subscriptions, self.clock, self.api_versions
        )
        fetch_config = FetchConfig.from_config(self.config)
        self.fetch_buffer = FetchBuffer(log_context)
        self.collector = FetchCollector(context, fetch_config, deserializers or Deserializers(), self.metrics_manager)
        self.fetches = FetchRequestManager(context, fetch_config, self.fetch_buffer, self.metrics_manager)
        self.offsets = OffsetsRequestManager(context, 100, 30_000, fetch_config.isolation_level)
        self.network.managers.add(self.offsets, self.fetches)

    def timer(self, timeout_ms: int = 1000) -> Timer:
        return Timer(self.clock, timeout_ms)

    def node(self, node_id: int = 0) -> Node:
        node = self.metadata.fetch().node_by_id(node_id)
        assert node is not None
        return node

    def update_metadata(self, **kwargs: Any) -> None:
        """Apply a metadata response; ``kwargs`` are those of ``metadata_response``."""
        partitions = kwargs.pop("partitions", self.partitions)
        self.client.update_metadata(metadata_response(partitions, brokers=self.brokers, **kwargs))

    def assign(self, *partitions: TopicPartition, offset: int | None = 0) -> None:
        """Assign manually, load metadata, and seek all partitions to ``offset`` unless it is None."""
        self.subscriptions.assign_from_user(partitions)
        self.update_metadata()
        if offset is not None:
            for tp in partitions:
                self.seek(tp, offset)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        topic_id = self.metadata.topic_ids.get(tp.topic)
        position = FetchPosition(offset, None, self.metadata.current_leader(tp), topic_id)
        self.subscriptions.seek_validated(tp, position)

    def position(self, tp: TopicPartition) -> int | None:
        position = self.subscriptions.position(tp)
        return None if position is None else position.offset

    def poll(self, duration_ms: int = 0) -> None:
        self.driver.step(Timer(self.clock, duration_ms))

    def fetch(self, partitions: Mapping[TopicPartition, FetchResponse.PartitionData], **kwargs: Any) -> Fetch:
        """Send the pending fetches, respond to them, and collect the records."""
        assert self.fetches.create_fetch_requests() == 1
        self.client.prepare_response(fetch_response(partitions, **kwargs))
        self.poll()
        return self.collect_fetch()

    def collect_fetch(self, max_records: int | None = None) -> Fetch:
        """Take buffered records, as ``poll`` does."""
        self.fetches.raise_unsupported()
        return self.collector.collect_fetch(self.fetch_buffer, Fetch(), max_records)

    def sent(self, node: Node | None = None) -> Any:
        """Return the request in flight, as it was serialized."""
        for request in self.client.requests:
            if node is None or request.destination == node.id_string:
                builder = request.request_builder
                return builder.build(builder.latest_allowed_version)
        raise AssertionError("nothing was sent")


def values(fetch: Fetch, tp: TopicPartition) -> list[Any]:
    return [record.value for record in fetch.records.get(tp, ())]


def offsets(fetch: Fetch, tp: TopicPartition) -> list[int]:
    return [record.offset for record in fetch.records.get(tp, ())]
