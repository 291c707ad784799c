"""Group coordinators on virtual time, over one shared log of __consumer_offsets."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

from pykclient.errors import BrokerError, KafkaStorageError, for_code
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupRequest
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.record.memory_records import DefaultRecordBatch, MemoryRecords
from pykclient.testing.broker_context import STARTING, BrokerContext
from pykclient.testing.config import BrokerConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.group.group_coordinator import GroupCoordinator
from pykclient.testing.group.group_metadata import CommittedOffset, GroupMetadata
from pykclient.testing.group.group_rebalance import JoinAttempt
from pykclient.testing.log.log_types import FetchDataInfo
from pykclient.testing.memory_network import LinkPolicy, MemoryNetwork
from pykclient.testing.release_profiles import GROUP_VERSION, FinalizedFeatures, ReleaseProfile
from pykclient.testing.standard_authorizer import AuthHelper
from pykclient.types import Node, TopicPartition
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from pykclient.testing.metadata_cache import MetadataCache
    from pykclient.testing.replica.replica_manager import ReplicaManager

GROUP = "the-group"
TP = TopicPartition("topic", 0)

#: All groups are in this partition, so its leader coordinates all of them.
PARTITION = 0

NOT_LEADER = 6

UNSTABLE = -88

T = TypeVar("T")
AppendCallback = Callable[[dict[TopicPartition, ProduceResponse.PartitionProduceResponse]], None]


class Reply(Generic[T]):
    """The response to a request, once there is one."""

    def __init__(self) -> None:
        self._value: T | None = None

    def __call__(self, value: T) -> None:
        assert self._value is None, "a request was answered twice"
        self._value = value

    @property
    def answered(self) -> bool:
        return self._value is not None

    @property
    def value(self) -> T:
        assert self._value is not None, "the request still waits"
        return self._value


class FakeLog:
    """The log of the __consumer_offsets partition, shared by its successive leaders."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.batches_per_read = 2

    def append(self, records: Any) -> int:
        data = bytearray(records)
        batch = MemoryRecords(data).first_batch()
        assert isinstance(batch, DefaultRecordBatch)
        base_offset = self.log_end_offset
        batch.set_last_offset(base_offset + (batch.count_or_none or 0) - 1)
        self.batches.append(data)
        self.log_end_offset = batch.next_offset
        return base_offset

    def read(self, start_offset: int, max_length: int, isolation: str, min_one_message: bool) -> FetchDataInfo:
        views: list[memoryview] = []
        next_offset = start_offset
        for data in self.batches:
            batch = MemoryRecords(data).first_batch()
            assert batch is not None
            if batch.base_offset >= start_offset and len(views) < self.batches_per_read:
                views.append(memoryview(data))
                next_offset = batch.next_offset
        return FetchDataInfo(start_offset, next_offset, views)


class FakeReplicaManager:
    """A replica manager whose appends fail with ``error_code``, and wait for ``release`` while ``holding``.

    With ``fails_late``, nobody can tell before the append that it will fail, as with a slow disk. As in a real one, a
    disk that is offline shows when a partition is looked up for an append.
    """

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.error_code = 0
        self.fails_late = False
        self.holding = False
        self._held: list[tuple[TopicPartition, int, AppendCallback]] = []

    def partition(self, tp: TopicPartition) -> FakeReplicaManager:
        return self

    def get_partition_or_raise(self, tp: TopicPartition) -> FakeReplicaManager:
        if self.error_code == KafkaStorageError.code:
            raise KafkaStorageError
        return self

    def validate_appendable(self, required_acks: int) -> None:
        assert required_acks == -1
        error = None if self.fails_late else for_code(self.error_code)
        if error is not None and not isinstance(error, KafkaStorageError):
            raise error

    def append_records(
        self, timeout_ms: int, required_acks: int, entries: dict[TopicPartition, Any], respond: AppendCallback, **_: Any
    ) -> None:
        assert required_acks == -1
        ((tp, records),) = entries.items()
        if self.error_code:
            self._respond(tp, -1, respond, self.error_code)
            return
        base_offset = self.log.append(records)
        if self.holding:
            self._held.append((tp, base_offset, respond))
        else:
            self._respond(tp, base_offset, respond)

    @property
    def held(self) -> int:
        return len(self._held)

    def release(self, count: int | None = None, error_code: int = 0) -> None:
        """Complete the oldest ``count`` appends (None: all), as replicated or as failed with ``error_code``."""
        for _ in range(len(self._held) if count is None else count):
            tp, base_offset, respond = self._held.pop(0)
            self._respond(tp, base_offset, respond, error_code)

    @staticmethod
    def _respond(tp: TopicPartition, base_offset: int, respond: AppendCallback, error_code: int = 0) -> None:
        response = ProduceResponse.PartitionProduceResponse(error_code=error_code, base_offset=base_offset)
        respond({tp: response})


class FakeMetadataCache:
    def __init__(self) -> None:
        self.topics = {"topic": UUID(int=7), "other": UUID(int=8)}
        self.partitions: dict[str, int] = {}
        self.listeners: list[Callable[[Sequence[str]], None]] = []

    def add_listener(self, listener: Callable[[Sequence[str]], None]) -> None:
        self.listeners.append(listener)

    def num_partitions(self, topic: str) -> int | None:
        return self.partitions.get(topic, 1)

    def topic_id(self, topic: str) -> UUID:
        return self.topics[topic]

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self.topics.items() if known == topic_id), None)

    def all_topics(self) -> list[str]:
        return list(self.topics)

    def set_partitions(self, topic: str, count: int) -> None:
        """Give a topic another number of partitions; create it if there is none."""
        self.topics.setdefault(topic, UUID(int=9 + len(self.topics)))
        self.partitions[topic] = count
        for listener in self.listeners:
            listener([topic])

    def contains(self, topic: str) -> bool:
        return topic in self.topics

    def delete_topic(self, topic: str) -> None:
        del self.topics[topic]
        for listener in self.listeners:
            listener([topic])


class GroupBroker(BrokerContext):
    """A broker that consists of a group coordinator."""

    def __init__(self, id: int, loop: EventLoop, log: FakeLog, config: BrokerConfig, rng: random.Random) -> None:
        super().__init__(
            Node(id, "host", 9092),
            config,
            loop,
            MemoryNetwork(loop, LinkPolicy(rng)),
            rng,
            profile=ReleaseProfile.of(ReleaseProfile.CURRENT),
            features=FinalizedFeatures({GROUP_VERSION: 1}),
        )
        self.move(STARTING)
        self.auth = AuthHelper(None)
        self.metadata_cache = FakeMetadataCache()
        self.replica_manager = FakeReplicaManager(log)
        unused: Any = None  # share groups and transactions
        self.coordinator = GroupCoordinator(
            self,
            cast("ReplicaManager", self.replica_manager),
            cast("MetadataCache", self.metadata_cache),
            *(unused, unused, unused, unused),
        )
        self.coordinator.startup()


class Groups:
    """A coordinator and requests to it. ``fail_over`` makes another broker the coordinator."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.log = FakeLog()
        self.config = BrokerConfig(settings)
        self.rng = random.Random(seed)
        self.epoch = 0
        self.broker = self._new_broker()
        self.broker.coordinator.on_election(PARTITION, self.epoch)
        self.settle()

    def _new_broker(self) -> GroupBroker:
        return GroupBroker(self.epoch + 1, self.loop, self.log, self.config, self.rng)

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.broker.coordinator

    @property
    def replicas(self) -> FakeReplicaManager:
        return self.broker.replica_manager

    def group(self, group_id: str = GROUP) -> GroupMetadata:
        group = self.coordinator.groups[group_id]
        assert isinstance(group, GroupMetadata)
        return group

    def fail_over(self, *, resign: bool = True, settle: bool = True) -> GroupBroker:
        """Make the old coordinator resign, or kill it; the new one loads. Return the old one."""
        old = self.broker
        self.epoch += 1
        if resign:
            old.coordinator.on_resignation(PARTITION, self.epoch)
            old.replica_manager.release(error_code=NOT_LEADER)
        else:
            old.alive = False
            old.coordinator.shutdown()
        self.broker = self._new_broker()
        self.broker.coordinator.on_election(PARTITION, self.epoch)
        if settle:
            self.settle()
        return old

    # --- time

    def settle(self) -> None:
        """Run all events that are due now."""
        while self.loop.next_due_ms() == 0:
            self.loop.run_due()
        if self.loop.failure is not None:
            raise self.loop.failure

    def advance(self, duration_ms: int) -> None:
        """Advance the time, and run all events that become due."""
        end_ms = self.clock.now_ms() + duration_ms
        self.settle()
        while self.clock.now_ms() < end_ms:
            self.clock.advance(min(self.loop.next_due_ms(), end_ms - self.clock.now_ms()))
            self.settle()

    # --- requests

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        version: int = 9,
    ) -> Reply[JoinGroupResponse]:
        if protocols is None:
            protocols = {"range": b""}
        body = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data)
                for name, data in (protocols.items() if isinstance(protocols, Mapping) else protocols)
            ],
        )
        reply: Reply[JoinGroupResponse] = Reply()
        self.coordinator.join_group(JoinAttempt(body, version, "client", "/127.0.0.1", reply))
        return reply

    def join_twice(self, **arguments: Any) -> tuple[str, Reply[JoinGroupResponse]]:
        """Get a member id, then join with it, as new dynamic members do."""
        first = self.join(**arguments).value
        assert first.error_code == 79
        return first.member_id, self.join(first.member_id, **arguments)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Reply[SyncGroupResponse]:
        body = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=one, assignment=data)
                for one, data in (assignments or {}).items()
            ],
        )
        reply: Reply[SyncGroupResponse] = Reply()
        try:
            self.coordinator.sync_group(body, reply)
        except BrokerError as error:
            reply(SyncGroupResponse(error_code=error.code))
        return reply

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> int:
        body = HeartbeatRequest(
            group_id=GROUP, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        try:
            self.coordinator.heartbeat(body)
        except BrokerError as error:
            return error.code
        return 0

    def leave(self, *members: str, instances: Sequence[str] = ()) -> list[int]:
        """Remove members, by id and then by instance; return their error codes in this order."""
        identity = LeaveGroupRequest.MemberIdentity
        leaving = [identity(member_id=member) for member in members]
        leaving += [identity(group_instance_id=instance) for instance in instances]
        return [one.error_code for one in self.coordinator.leave_group(GROUP, leaving)]

    def commit(
        self,
        offset: int,
        member_id: str = "",
        generation_id: int = -1,
        *,
        tp: TopicPartition = TP,
        group_id: str = GROUP,
        instance_id: str | None = None,
        retention_ms: int = -1,
        metadata: str = "",
        version: int = 10,
    ) -> Reply[Mapping[TopicPartition, int]]:
        body = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        wall_ms = self.loop.wall_ms
        committed = CommittedOffset(offset, -1, metadata, wall_ms, wall_ms + retention_ms if retention_ms >= 0 else -1)
        reply: Reply[Mapping[TopicPartition, int]] = Reply()
        try:
            self.coordinator.commit_offsets(body, version, {tp: committed}, reply)
        except BrokerError as error:
            reply({tp: error.code})
        return reply

    def fetch(
        self, *partitions: TopicPartition, group_id: str = GROUP, require_stable: bool = False
    ) -> Reply[tuple[int, dict[TopicPartition, int]]]:
        """Fetch an error code and the offsets of the partitions, by default of all.

        -1 stands for no offset, ``UNSTABLE`` for one that depends on an open transaction.
        """
        reply: Reply[tuple[int, dict[TopicPartition, int]]] = Reply()

        def respond(
            error_code: int,
            offsets: Mapping[TopicPartition, CommittedOffset | None],
            unstable: Collection[TopicPartition],
        ) -> None:
            found = {tp: -1 if one is None else one.offset for tp, one in offsets.items()}
            reply((error_code, found | dict.fromkeys(unstable, UNSTABLE)))

        try:
            self.coordinator.fetch_offsets(group_id, partitions or None, require_stable, respond)
        except BrokerError as error:
            reply((error.code, {}))
        return reply

    # --- whole rounds

    def stable(self, count: int, **arguments: Any) -> tuple[int, list[str]]:
        """Make a group of ``count`` dynamic members assigned ``part-0`` and so on; return generation and member ids."""
        ids, joins = [], []
        for _ in range(count):
            member_id, reply = self.join_twice(**arguments)
            ids.append(member_id)
            joins.append(reply)
        self.settle()
        while not all(reply.answered for reply in joins):
            joins = [self.join(member_id, **arguments) for member_id in ids]
            self.settle()
        return self.hand_out(ids, joins), ids

    def hand_out(self, ids: Sequence[str], joins: Sequence[Reply[JoinGroupResponse]]) -> int:
        """Let all members sync, the leader last, and return the generation."""
        (generation_id,) = {reply.value.generation_id for reply in joins}
        (leader,) = {reply.value.leader for reply in joins}
        assert not any(reply.value.error_code for reply in joins)
        syncs = [self.sync(member_id, generation_id) for member_id in ids if member_id != leader]
        parts = {member_id: b"part-%d" % number for number, member_id in enumerate(ids)}
        syncs.append(self.sync(leader, generation_id, parts))
        assert not any(reply.value.error_code for reply in syncs)
        return generation_id
