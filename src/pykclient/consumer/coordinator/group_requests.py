"""The requests of group members, in all versions that coordinators support (Java: the Builder classes)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pykclient.consumer.coordinator.membership import Generation, GroupRebalanceConfig
from pykclient.consumer.partition_assignors import numbers_by_topic
from pykclient.errors import TopicAuthorizationError, UnknownTopicOrPartitionError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder, Shortcut
from pykclient.protocol.message import Request
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupRequest
from pykclient.protocol.messages.leave_group import LeaveGroupRequest
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.types import OffsetAndMetadata, TopicPartition

GROUP_KEY_TYPE = 0

#: The coordinator's limit for the reason of joining or leaving (KIP-800).
MAX_REASON_LENGTH = 255

_ZERO_UUID = uuid.UUID(int=0)

#: The versions that introduced what the builders must distinguish.
_BATCHED_FIND_COORDINATOR = 4
_BATCHED_LEAVE_GROUP = 3
_REQUIRE_STABLE = 7
_BATCHED_OFFSET_FETCH = 8
_MEMBER_IN_OFFSET_FETCH = 9
_TOPIC_IDS = 10


class FindCoordinatorBuilder(RequestBuilder):
    """A FindCoordinator request for one group; v4 and later allow several (KIP-699). Thread: owner."""

    def __init__(self, group_id: str) -> None:
        super().__init__(FindCoordinatorRequest(key=group_id))
        self._group_id = group_id

    def build(self, version: int) -> Request:
        if version < _BATCHED_FIND_COORDINATOR:
            return FindCoordinatorRequest(key=self._group_id, key_type=GROUP_KEY_TYPE)
        return FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[self._group_id])


class StaticMemberBuilder(RequestBuilder):
    """A request that may contain ``group.instance.id``, which older coordinators do not know (KIP-345).

    Thread: owner.
    """

    def __init__(
        self, message: Request, instance_id: str | None, since_version: int, shortcut: Shortcut | None = None
    ) -> None:
        super().__init__(message)
        self.shortcut = shortcut
        self._instance_id = instance_id
        self._since_version = since_version

    def build(self, version: int) -> Request:
        if self._instance_id is not None and version < self._since_version:
            raise UnsupportedVersionError(
                f"group.instance.id={self._instance_id!r} needs brokers of version 2.3 or later: this one speaks "
                f"version {version} of {type(self.message).__name__}, static members came with {self._since_version}"
            )
        return self.message


def join_group(
    config: GroupRebalanceConfig,
    generation: Generation,
    protocol_type: str,
    protocols: Iterable[tuple[str, bytes]],
    reason: str,
) -> RequestBuilder:
    request = JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        reason=reason[:MAX_REASON_LENGTH],
    )
    return StaticMemberBuilder(request, config.group_instance_id, 5)


def sync_group(
    config: GroupRebalanceConfig, generation: Generation, protocol_type: str, assignments: Mapping[str, bytes]
) -> RequestBuilder:
    request = SyncGroupRequest(
        group_id=config.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=protocol_type,
        protocol_name=generation.protocol_name,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )
    return StaticMemberBuilder(request, config.group_instance_id, 3)


def heartbeat(config: GroupRebalanceConfig, generation: Generation, shortcut: Shortcut | None = None) -> RequestBuilder:
    request = HeartbeatRequest(
        group_id=config.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
    )
    return StaticMemberBuilder(request, config.group_instance_id, 3, shortcut)


class LeaveGroupBuilder(RequestBuilder):
    """A LeaveGroup request of one member; v3 and later allow several. Thread: owner."""

    def __init__(self, group_id: str, member_id: str, reason: str) -> None:
        super().__init__(LeaveGroupRequest(group_id=group_id))
        self._group_id = group_id
        self._member_id = member_id
        self._reason = reason[:MAX_REASON_LENGTH]

    def build(self, version: int) -> Request:
        if version < _BATCHED_LEAVE_GROUP:
            return LeaveGroupRequest(group_id=self._group_id, member_id=self._member_id)
        member = LeaveGroupRequest.MemberIdentity(member_id=self._member_id, reason=self._reason)
        return LeaveGroupRequest(group_id=self._group_id, members=[member])


def offset_commit(
    config: GroupRebalanceConfig,
    generation: Generation,
    group_instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[TopicPartition, uuid.UUID],
    shortcut: Shortcut | None = None,
) -> RequestBuilder:
    """Return a commit of ``offsets``, each in the topic with the id in ``topic_ids``.

    From v10 on, requests identify topics by id (KIP-848), but only if all ids are known.
    """
    topics: dict[tuple[str, uuid.UUID], OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for tp, offset in offsets.items():
        topic_id = topic_ids.get(tp, _ZERO_UUID)
        topic = topics.get((tp.topic, topic_id))
        if topic is None:
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=tp.topic, topic_id=topic_id, partitions=[])
            topics[tp.topic, topic_id] = topic
        topic.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=config.group_id,
        generation_id_or_member_epoch=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=group_instance_id,
        topics=list(topics.values()),
    )
    builder = StaticMemberBuilder(request, group_instance_id, 7, shortcut)
    if _ZERO_UUID in {topic.topic_id for topic in topics.values()}:
        builder.latest_allowed_version = _TOPIC_IDS - 1
    return builder


class OffsetFetchBuilder(RequestBuilder):
    """A request for one group's committed offsets of some partitions. Thread: owner.

    From v7 on, it asks the coordinator to wait for transactions (KIP-447); from v8 on, requests can have several
    groups; from v9 on, they may name a ``member``, which the coordinator checks (KIP-848); from v10 on, they identify
    topics by id, if all ids are known.
    """

    def __init__(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[str, uuid.UUID],
        member: Generation | None = None,
    ) -> None:
        super().__init__(OffsetFetchRequest(group_id=group_id))
        self._member = member
        self._group_id = group_id
        self._partitions = numbers_by_topic(sorted(partitions))
        self._topic_ids = {topic: topic_ids.get(topic, _ZERO_UUID) for topic in self._partitions}
        if _ZERO_UUID in self._topic_ids.values():
            self.latest_allowed_version = _TOPIC_IDS - 1

    def build(self, version: int) -> Request:
        if version < _BATCHED_OFFSET_FETCH:
            return OffsetFetchRequest(
                group_id=self._group_id,
                topics=[
                    OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
                    for topic, partitions in self._partitions.items()
                ],
                require_stable=version >= _REQUIRE_STABLE,
            )
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=topic, topic_id=self._topic_ids[topic], partition_indexes=partitions
            )
            for topic, partitions in self._partitions.items()
        ]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self._group_id, topics=topics)
        if self._member is not None and version >= _MEMBER_IN_OFFSET_FETCH:
            group.member_id = self._member.member_id
            group.member_epoch = self._member.generation_id
        return OffsetFetchRequest(groups=[group], require_stable=True)


class FetchedOffset(NamedTuple):
    """A partition of an OffsetFetch response. ``topic`` is None if the topic's id is unknown. Thread: owner."""

    topic: str | None
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None
    error_code: int


def offsets_of(
    response: OffsetFetchResponse, group_id: str, topic_names: Mapping[uuid.UUID, str]
) -> tuple[int, list[FetchedOffset]]:
    """Return the error code of the group, and its partitions, for any version."""
    if response.groups:
        group = next((group for group in response.groups if group.group_id == group_id), response.groups[0])
        return group.error_code, [
            FetchedOffset(
                topic.name or topic_names.get(topic.topic_id),
                partition.partition_index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
                partition.error_code,
            )
            for topic in group.topics
            for partition in topic.partitions
        ]
    offsets = [
        FetchedOffset(
            old_topic.name,
            old.partition_index,
            old.committed_offset,
            old.committed_leader_epoch,
            old.metadata,
            old.error_code,
        )
        for old_topic in response.topics
        for old in old_topic.partitions
    ]
    return response.error_code or _group_error_of_v1(offsets), offsets


def _group_error_of_v1(offsets: Iterable[FetchedOffset]) -> int:
    """Return the error of the group, which before v2 is in each partition."""
    of_topics = (0, UnknownTopicOrPartitionError.code, TopicAuthorizationError.code)
    return next((offset.error_code for offset in offsets if offset.error_code not in of_topics), 0)
