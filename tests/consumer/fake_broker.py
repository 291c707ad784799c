"""A single broker that coordinates a group of one, in place of KafkaClient: for tests of the whole consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.consumer_components import ConsumerComponents
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.coordinator import classic_rebalance
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer.partition_assignors import Assignment, Subscription
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.log_context import LogContext
from pykclient.network.cluster_connection_states import NodeApiVersions
from pykclient.network.environment import SystemEnvironment
from pykclient.network.metadata import Metadata
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.protocol.messages.leave_group import LeaveGroupResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pykclient.types import Node, OffsetAndMetadata, TopicPartition
from tests.consumer.coordinator.harness import SteppedThread, committed, find_coordinator, join, sync
from tests.consumer.responses import (
    batch,
    epoch_response,
    fetch_response,
    metadata_response,
    partition_data,
    topic_id,
)
from tests.support.mock_client import ScriptedBrokers
from tests.support.mock_clock import MockClock

MEMBER = "the-member"


class FakeBroker(ScriptedBrokers):
    """A broker with the values of each partition (``logs``) and one group, which responds at once."""

    def __init__(self, clock: MockClock, metadata: Metadata, logs: Mapping[TopicPartition, list[bytes]]) -> None:
        super().__init__(clock, metadata)
        self.logs = {tp: list(values) for tp, values in logs.items()}
        self.committed_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.generation = 0
        self.records_per_fetch = 10
        self.subscription: Subscription | None = None
        self.update_metadata(self.describe())

    @property
    def node(self) -> Node:
        return Node(0, "localhost", 9092)

    def describe(self) -> Any:
        counts: dict[str, int] = {}
        for tp in self.logs:
            counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
        return metadata_response(counts)

    def _tp(self, topic: Any, partition: int) -> TopicPartition:
        name = getattr(topic, "name", "") or getattr(topic, "topic", "")
        if not name:
            name = next(tp.topic for tp in self.logs if topic_id(tp.topic) == topic.topic_id)
        return TopicPartition(name, partition)

    def _MetadataRequest(self, _node_id: int, _: MetadataRequest) -> Any:
        return self.describe()

    def _FindCoordinatorRequest(self, _node_id: int, _: Any) -> Any:
        return find_coordinator(self.node)

    def _JoinGroupRequest(self, _node_id: int, request: Any) -> Any:
        self.subscription = classic_rebalance.deserialize_subscription(request.protocols[0].metadata)
        self.generation += 1
        return join(self.generation, MEMBER, protocol=request.protocols[0].name)

    def _SyncGroupRequest(self, _node_id: int, request: Any) -> Any:
        assert self.subscription is not None
        mine = [tp for tp in self.logs if tp.topic in self.subscription.topics]
        answer = sync(protocol=request.protocol_name)
        answer.assignment = classic_rebalance.serialize_assignment(Assignment(mine))
        return answer

    def _HeartbeatRequest(self, _node_id: int, _: Any) -> Any:
        return HeartbeatResponse()

    def _LeaveGroupRequest(self, _node_id: int, _: Any) -> Any:
        return LeaveGroupResponse()

    def _OffsetCommitRequest(self, _node_id: int, request: OffsetCommitRequest) -> Any:
        response = OffsetCommitResponse()
        for topic in request.topics:
            answer = OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            for one in topic.partitions:
                tp = self._tp(topic, one.partition_index)
                offset = OffsetAndMetadata(
                    one.committed_offset, one.committed_metadata or "", one.committed_leader_epoch
                )
                self.committed_offsets[tp] = offset
                answer.partitions.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=tp.partition)
                )
            response.topics.append(answer)
        return response

    def _OffsetFetchRequest(self, _node_id: int, request: OffsetFetchRequest) -> Any:
        asked = [
            self._tp(topic, number) for topic in request.groups[0].topics or () for number in topic.partition_indexes
        ]
        return committed({tp: self.committed_offsets.get(tp, OffsetAndMetadata(-1)) for tp in asked})

    def _ListOffsetsRequest(self, _node_id: int, request: ListOffsetsRequest) -> Any:
        response = ListOffsetsResponse()
        for topic in request.topics:
            answer = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            for one in topic.partitions:
                end = len(self.logs[self._tp(topic, one.partition_index)])
                offset = 0 if one.timestamp == -2 else end
                answer.partitions.append(
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=one.partition_index, offset=offset, timestamp=1000
                    )
                )
            response.topics.append(answer)
        return response

    def _OffsetForLeaderEpochRequest(self, _node_id: int, request: Any) -> Any:
        asked = [self._tp(topic, one.partition) for topic in request.topics for one in topic.partitions]
        return epoch_response({tp: (1, len(self.logs[tp])) for tp in asked})

    def _FetchRequest(self, _node_id: int, request: Any) -> Any:
        answers = {}
        found = False
        for topic in request.topics:
            for one in topic.partitions:
                tp = self._tp(topic, one.partition)
                log = self.logs[tp]
                values = log[one.fetch_offset : one.fetch_offset + self.records_per_fetch]
                found |= bool(values)
                records = batch(one.fetch_offset, values) if values else b""
                answers[tp] = partition_data(tp, records, high_watermark=len(log), last_stable_offset=len(log))
        if found or not request.topics or self.waited_ms >= request.max_wait_ms:
            return fetch_response(answers)
        return None


class FakeCluster:
    """A clock, a broker and the consumers connected to it."""

    def __init__(self, logs: Mapping[TopicPartition, list[bytes]]) -> None:
        self.clock = MockClock(auto_tick_ms=1)
        self.logs = logs
        self.broker: FakeBroker

    def consumer(self, *topics: str, **settings: Any) -> KafkaConsumer[Any, Any]:
        config = ConsumerConfig(
            {
                "bootstrap.servers": "localhost:9092",
                "auto.offset.reset": "earliest",
                "metadata.max.age.ms": 10**9,
                # No heartbeats in these tests.
                "heartbeat.interval.ms": 10**8,
                "session.timeout.ms": 10**9,
            },
            **settings,
        )
        log_context = LogContext()
        strategy = AutoOffsetResetStrategy.from_string(config.get_str("auto.offset.reset"))
        subscriptions = SubscriptionState(log_context, strategy)
        metadata = ConsumerMetadata(config, subscriptions, log_context)
        self.broker = FakeBroker(self.clock, metadata, self.logs)
        components = ConsumerComponents(config, SystemEnvironment(self.clock), self.broker, metadata, subscriptions)
        components.api_versions.update("0", NodeApiVersions.create())
        if components.coordinator is not None:
            components.coordinator.heartbeat_thread.new_thread = SteppedThread
        consumer: KafkaConsumer[Any, Any] = KafkaConsumer._of(components)
        if topics:
            consumer.subscribe(topics)
        return consumer
