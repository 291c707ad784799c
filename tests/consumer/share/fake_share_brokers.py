"""Two brokers with a share group of one member, in place of KafkaClient: for tests of the whole share consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pykclient.config.consumer_config import ShareConsumerConfig
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.share.acknowledgements import GAP, AcknowledgeType
from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
from pykclient.consumer.share.share_consumer import ShareConsumerComponents
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.errors import (
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    NotLeaderOrFollowerError,
    ShareSessionNotFoundError,
)
from pykclient.log_context import LogContext
from pykclient.network.environment import SystemEnvironment
from pykclient.network.metadata import Metadata
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from pykclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.types import Node, TopicPartition
from tests.consumer.coordinator.harness import SteppedThread, find_coordinator
from tests.consumer.responses import batch, metadata_response, topic_id
from tests.support.mock_client import ScriptedBrokers
from tests.support.mock_clock import MockClock

TOPIC = "t"
T0, T1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
LOCK_MS = 30_000
AVAILABLE, ACQUIRED = "available", "acquired"


class SharePartition:
    """The batches of a partition, and what has become of each offset. ``counts`` are the deliveries so far."""

    def __init__(self, batches: Sequence[bytes], states: Mapping[int, str]) -> None:
        self.batches = list(batches)
        self.states = dict(states)  # available, acquired, or the name of the last acknowledgement
        self.counts = dict.fromkeys(self.states, 0)
        self.accepted: list[int] = []

    @classmethod
    def of(cls, values: Sequence[bytes], per_batch: int = 5) -> SharePartition:
        starts = range(0, len(values), per_batch)
        batches = [batch(start, values[start : start + per_batch]) for start in starts]
        return cls(batches, dict.fromkeys(range(len(values)), AVAILABLE))

    def acquire(self) -> list[tuple[int, int]]:
        """Acquire all available offsets, and return them with their delivery counts."""
        acquired = []
        for offset, state in self.states.items():
            if state == AVAILABLE:
                self.states[offset] = ACQUIRED
                self.counts[offset] += 1
                acquired.append((offset, self.counts[offset]))
        return acquired

    def acknowledge(self, first: int, last: int, types: Sequence[int]) -> int:
        """Return the error code."""
        offsets = range(first, last + 1)
        assert len(types) in (1, len(offsets))
        if any(self.states.get(offset) != ACQUIRED for offset in offsets):
            return InvalidRecordStateError.code
        for offset, kind in zip(offsets, list(types) * (len(offsets) if len(types) == 1 else 1), strict=True):
            if kind == AcknowledgeType.RELEASE:
                self.states[offset] = AVAILABLE
            elif kind != AcknowledgeType.RENEW:
                self.states[offset] = "gap" if kind == GAP else AcknowledgeType(kind).name.lower()
                if kind == AcknowledgeType.ACCEPT:
                    self.accepted.append(offset)
        return 0

    def release(self) -> None:
        """Release all locks."""
        for offset, state in self.states.items():
            if state == ACQUIRED:
                self.states[offset] = AVAILABLE


class FakeShareBrokers(ScriptedBrokers):
    """Brokers 0 and 1, which respond at once, except to fetches without records.

    Broker ``partition % 2`` leads a partition unless ``leaders`` says otherwise.
    """

    def __init__(self, clock: MockClock, metadata: Metadata, partitions: Mapping[TopicPartition, SharePartition]):
        super().__init__(clock, metadata)
        self.partitions = dict(partitions)
        self.leaders = {tp: tp.partition % 2 for tp in self.partitions}
        self.leader_epoch = 5
        self.sessions: dict[int, tuple[int, set[TopicPartition]]] = {}  # by node: the epoch of the next request
        self.member_epoch = 0
        self.is_assigned = False
        self.update_metadata(self.describe())

    def describe(self) -> Any:
        counts = {TOPIC: len(self.partitions)}
        return metadata_response(counts, brokers=2, leaders=self.leaders, epoch=self.leader_epoch)

    def move_leader(self, tp: TopicPartition, node_id: int) -> None:
        """Make another broker the leader, which has no locks."""
        self.leaders[tp] = node_id
        self.leader_epoch += 1
        self.partitions[tp].release()

    def lose_session(self, node_id: int) -> None:
        """Forget a session, and release its locks."""
        self.sessions.pop(node_id, None)
        for tp, leader in self.leaders.items():
            if leader == node_id:
                self.partitions[tp].release()

    def drop_connections(self) -> None:
        super().drop_connections()
        for node_id in list(self.sessions):
            self.lose_session(node_id)

    def _FindCoordinatorRequest(self, _node_id: int, _: Any) -> Any:
        return find_coordinator(Node(0, "localhost", 9092))

    # --- the group ---------------------------------------------------------------------------------------------------

    def _ShareGroupHeartbeatRequest(self, _node_id: int, request: ShareGroupHeartbeatRequest) -> Any:
        response = ShareGroupHeartbeatResponse(member_id=request.member_id, heartbeat_interval_ms=5_000)
        if request.member_epoch < 0:
            response.member_epoch = -1
            self.is_assigned = False
            return response
        if request.member_epoch == 0:
            self.member_epoch += 1
            assert request.subscribed_topic_names == [TOPIC]
        if not self.is_assigned or request.member_epoch == 0:
            self.is_assigned = True
            partitions = ShareGroupHeartbeatResponse.TopicPartitions(
                topic_id=topic_id(TOPIC), partitions=sorted(tp.partition for tp in self.partitions)
            )
            response.assignment = ShareGroupHeartbeatResponse.Assignment(topic_partitions=[partitions])
        response.member_epoch = self.member_epoch
        return response

    # --- records -----------------------------------------------------------------------------------------------------

    def _session_error(self, node_id: int, epoch: int) -> int:
        if epoch == 0:
            self.lose_session(node_id)
            self.sessions[node_id] = (1, set())
            return 0
        if node_id not in self.sessions:
            return ShareSessionNotFoundError.code
        expected, partitions = self.sessions[node_id]
        if epoch not in (expected, -1):
            return InvalidShareSessionEpochError.code
        self.sessions[node_id] = (expected + 1, partitions)
        return 0

    def _ShareFetchRequest(self, node_id: int, request: ShareFetchRequest) -> Any:
        partitions = set() if request.share_session_epoch == 0 else self.sessions.get(node_id, (0, set()))[1]
        added = {TopicPartition(TOPIC, each.partition_index) for topic in request.topics for each in topic.partitions}
        removed = {
            TopicPartition(TOPIC, number) for each in request.forgotten_topics_data for number in each.partitions
        }
        wanted = (partitions | added) - removed
        acknowledges = any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions)
        has_records = any(
            AVAILABLE in self.partitions[tp].states.values() for tp in wanted if self.leaders[tp] == node_id
        )
        is_moved = any(self.leaders[tp] != node_id for tp in wanted)
        if not (has_records or acknowledges or is_moved) and self.waited_ms < request.max_wait_ms:
            return None
        code = self._session_error(node_id, request.share_session_epoch)
        if code:
            return ShareFetchResponse(error_code=code)
        self.sessions[node_id] = (self.sessions[node_id][0], wanted)
        answers: dict[TopicPartition, ShareFetchResponse.PartitionData] = {}
        for topic in request.topics:
            for each in topic.partitions:
                if each.acknowledgement_batches:
                    tp = TopicPartition(TOPIC, each.partition_index)
                    error = self._apply(node_id, tp, each.acknowledgement_batches)
                    answers[tp] = ShareFetchResponse.PartitionData(
                        partition_index=tp.partition, acknowledge_error_code=error
                    )
        for tp in sorted(wanted):
            if self.leaders[tp] != node_id:
                answers[tp] = self._moved(tp, answers.get(tp))
            elif request.max_records:
                self._add_records(tp, answers)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[
                ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=answers.values())
            ],
            node_endpoints=[ShareFetchResponse.NodeEndpoint(node_id=id, host="localhost", port=9092) for id in (0, 1)],
        )

    def _add_records(self, tp: TopicPartition, answers: dict[TopicPartition, ShareFetchResponse.PartitionData]) -> None:
        acquired = self.partitions[tp].acquire()
        if acquired:
            data = answers.setdefault(tp, ShareFetchResponse.PartitionData(partition_index=tp.partition))
            data.records = b"".join(self.partitions[tp].batches)
            data.acquired_records = [
                ShareFetchResponse.AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=count)
                for offset, count in acquired
            ]

    def _moved(
        self, tp: TopicPartition, answer: ShareFetchResponse.PartitionData | None
    ) -> ShareFetchResponse.PartitionData:
        data = answer or ShareFetchResponse.PartitionData(partition_index=tp.partition)
        data.error_code = NotLeaderOrFollowerError.code
        data.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
            leader_id=self.leaders[tp], leader_epoch=self.leader_epoch
        )
        return data

    def _apply(self, node_id: int, tp: TopicPartition, batches: Sequence[Any]) -> int:
        if self.leaders[tp] != node_id:
            return NotLeaderOrFollowerError.code
        for each in batches:
            code = self.partitions[tp].acknowledge(each.first_offset, each.last_offset, each.acknowledge_types)
            if code:
                return code
        return 0

    def _ShareAcknowledgeRequest(self, node_id: int, request: ShareAcknowledgeRequest) -> Any:
        code = self._session_error(node_id, request.share_session_epoch)
        if code:
            return ShareAcknowledgeResponse(error_code=code)
        partitions = []
        for topic in request.topics:
            for each in topic.partitions:
                tp = TopicPartition(TOPIC, each.partition_index)
                error = self._apply(node_id, tp, each.acknowledgement_batches)
                partitions.append(
                    ShareAcknowledgeResponse.PartitionData(partition_index=tp.partition, error_code=error)
                )
        if request.share_session_epoch == -1:
            self.lose_session(node_id)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[
                ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id(TOPIC), partitions=partitions)
            ],
        )


class FakeShareCluster:
    """A clock, brokers and a share consumer connected to them. A fixture closes all that were ``made``."""

    made: ClassVar[list[FakeShareCluster]] = []

    def __init__(self, partitions: Mapping[TopicPartition, SharePartition], mode: str = "implicit", **settings: Any):
        self.clock = MockClock(auto_tick_ms=1)
        config = ShareConsumerConfig(
            {
                "bootstrap.servers": "localhost:9092",
                "group.id": "g",
                "metadata.max.age.ms": 10**9,
                "share.acknowledgement.mode": mode,
            },
            **settings,
        )
        log_context = LogContext()
        subscriptions = SubscriptionState(log_context, AutoOffsetResetStrategy.NONE)
        metadata = ConsumerMetadata(config, subscriptions, log_context)
        self.brokers = FakeShareBrokers(self.clock, metadata, partitions)
        environment = SystemEnvironment(self.clock)
        self.components = ShareConsumerComponents(config, environment, self.brokers, metadata, subscriptions)
        self.components.coordinator.heartbeat_thread.new_thread = SteppedThread
        self.consumer: KafkaShareConsumer[Any, Any] = KafkaShareConsumer._of(self.components)
        self.consumer.subscribe([TOPIC])
        self.made.append(self)
