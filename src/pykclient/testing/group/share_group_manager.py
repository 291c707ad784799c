"""Share groups on the coordinator's side: heartbeats, epochs, assignments and start offsets (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from pykclient import errors
from pykclient.network.client_request import ClientResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordinator_log import KeyValue
from pykclient.testing.group.group_metadata_manager import (
    GroupMetadataManager,
    ModernGroupManager,
    heartbeat_response,
    ignore,
    validate_names,
    when_written,
)
from pykclient.testing.group.group_records import SHARE_GROUP_RECORDS as RECORDS
from pykclient.testing.group.modern_groups import LEAVE_EPOCH, SharedTopic, ShareGroup, ShareGroupMember
from pykclient.testing.inter_broker_requests import InterBrokerSendThread, grouped
from pykclient.testing.log.log_types import LATEST_TIMESTAMP
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.share.group_config import GroupConfigManager
from pykclient.testing.share.in_flight_records import UNINITIALIZED_START_OFFSET, SharePartitionKey, ShareState
from pykclient.testing.share.persister import Gathered, Persister
from pykclient.types import Node, TopicPartition

#: The error code, and the end offset if that is 0, of each partition.
Ends = Mapping[TopicPartition, tuple[int, int]]

_CONSUMER: int = -1


class PartitionMetadataClient(InterBrokerSendThread):
    """Asks the leaders of partitions for the offsets after their last records. Thread: loop."""

    def __init__(self, broker: BrokerContext, metadata_cache: MetadataCache) -> None:
        super().__init__(broker, "partition-metadata", broker.config.get_int("request.timeout.ms"))
        self._metadata_cache = metadata_cache

    def list_latest_offsets(self, partitions: Iterable[TopicPartition], then: Callable[[Ends], None]) -> None:
        """Call ``then`` when all leaders have answered. Errors are not retried."""
        found: dict[TopicPartition, tuple[int, int]] = {}
        by_leader: dict[Node, list[TopicPartition]] = {}
        snapshot = self._metadata_cache.snapshot
        for tp in partitions:
            leader = snapshot.leader(tp)
            if leader is None:
                found[tp] = errors.LeaderNotAvailableError.code, -1
            else:
                by_leader.setdefault(leader, []).append(tp)

        def answered(results: Mapping[Node, Ends]) -> None:
            for ends in results.values():
                found.update(ends)
            then(found)

        gathered = Gathered(by_leader, answered)
        for leader, asked in by_leader.items():
            by_topic = grouped(
                (topic, ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=LATEST_TIMESTAMP))
                for topic, number in asked
            )
            topics = [
                ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic.items()
            ]
            request = ListOffsetsRequest(replica_id=_CONSUMER, topics=topics)
            self.send(leader, request, partial(self._on_response, asked, partial(gathered.add, leader)))

    @staticmethod
    def _on_response(partitions: list[TopicPartition], then: Callable[[Ends], None], response: ClientResponse) -> None:
        ends = dict.fromkeys(partitions, (errors.NetworkError.code, -1))
        body = response.response_body
        if isinstance(body, ListOffsetsResponse):
            for topic in body.topics:
                for partition in topic.partitions:
                    ends[TopicPartition(topic.name, partition.partition_index)] = partition.error_code, partition.offset
        then(ends)


_NO_LAG = -1


class SharePartitionOffset(NamedTuple):
    """The start offset of a share group in a partition, and its lag, which is -1 if it is not known."""

    start_offset: int = UNINITIALIZED_START_OFFSET
    leader_epoch: int = 0
    lag: int = _NO_LAG
    error_code: int = 0


#: The offset of each partition.
OffsetsCallback = Callable[[Mapping[TopicPartition, SharePartitionOffset]], None]

#: Called with an error code or 0 for each partition.
AlteredCallback = Callable[[Mapping[TopicPartition, int]], None]

#: Called with an error code or 0 for each topic.
DeletedCallback = Callable[[Mapping[str, int]], None]


#: Called with the response, when all that it tells is in the log.
HeartbeatCallback = Callable[[ShareGroupHeartbeatResponse], None]


class ShareGroupManager(ModernGroupManager[ShareGroup, ShareGroupMember]):
    """Manages groups whose members join, report and leave by heartbeats (Java: GroupMetadataManager).

    A member need not give anything up before another member gets it. But a partition is only assigned when a share
    coordinator has initialized its state. Changes take effect in memory at once, unless the log refuses them, and are
    answered when they are in the log. Thread: loop.
    """

    def __init__(
        self,
        broker: BrokerContext,
        metadata_cache: MetadataCache,
        group_configs: GroupConfigManager,
        persister: Persister,
        partition_metadata_client: PartitionMetadataClient,
        manager: GroupMetadataManager,
    ) -> None:
        super().__init__(broker, metadata_cache, manager, RECORDS, broker.config["group.share.max.size"])
        self._group_configs = group_configs
        self._persister = persister
        self._partition_metadata_client = partition_metadata_client

    # --- heartbeats

    def validate(self, body: ShareGroupHeartbeatRequest) -> None:
        """Check the fields of a heartbeat.

        Raises:
            UnsupportedVersionError: the cluster has no share groups.
            InvalidRequestError: a field is not valid.
        """
        if not self._broker.features.share_version:
            raise errors.UnsupportedVersionError("the feature share.version is at level 0, which has no share groups")
        validate_names(MemberId=body.member_id, GroupId=body.group_id, RackId=body.rack_id)
        if body.member_epoch == 0:
            if not body.subscribed_topic_names:
                raise errors.InvalidRequestError("SubscribedTopicNames must be set in first request.")
        elif body.member_epoch < LEAVE_EPOCH:
            raise errors.InvalidRequestError("MemberEpoch is invalid.")

    def heartbeat(
        self, body: ShareGroupHeartbeatRequest, client_id: str, client_host: str, respond: HeartbeatCallback
    ) -> None:
        """Handle ShareGroupHeartbeat."""
        group = self._manager.share_group(body.group_id, may_create=body.member_epoch == 0)
        if body.member_epoch == LEAVE_EPOCH:
            response = ShareGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)
            self.remove(group, group.member(body.member_id), "it leaves", when_written(respond, response))
            return
        self.validate_size(group, body.member_id)
        records: list[KeyValue] = []
        member = self._member(group, body)
        before = member.current
        with self._manager.all_or_nothing(group, records):
            settings = body, client_id, client_host
            is_changed = self.update(group, member, partial(member.update_settings, *settings), records)
            is_changed = is_changed or (group.assignment_epoch >= group.group_epoch and group.is_assignment_behind())
            is_changed = self.refresh(group, is_changed, records)
            self._reconcile(group, member, is_changed, records)
            # Also a heartbeat whose effect is undone shows that the member lives.
            self.restart_session(group, member)
            topics = self._uninitialized(group)
            if topics:
                group.begin_initialization(topics)
                records.append(RECORDS.state_record(group))
        is_full = body.member_epoch == 0 or body.subscribed_topic_names is not None
        with_assignment = is_full or member.current.assigned != before.assigned
        interval_ms = self._group_configs.get(group.group_id).heartbeat_interval_ms
        response = heartbeat_response(ShareGroupHeartbeatResponse, member, interval_ms, with_assignment)
        answer, epoch = when_written(respond, response), group.group_epoch

        def written(code: int) -> None:
            answer(code)
            if not topics:
                return
            if code:  # a former coordinator must not begin a state with an epoch that no other knows
                group.end_initialization(topics, succeeded=False)
            else:
                self._initialize(group, topics, epoch)

        self._manager.write(group, records, written)

    def _member(self, group: ShareGroup, body: ShareGroupHeartbeatRequest) -> ShareGroupMember:
        """Return the member that a heartbeat comes from, which joins with epoch 0."""
        if body.member_epoch:
            member = group.member(body.member_id)
            group.validate_epoch(member, body.member_epoch)
            return member
        known = group.members.get(body.member_id)
        if known is None:
            self._manager.validate_appendable(group.group_id)
            known = group.members[body.member_id] = ShareGroupMember(body.member_id)
            self._log.info("%r: %r joins", group, known)
        return known

    # --- epochs and assignments

    def _reconcile(
        self, group: ShareGroup, member: ShareGroupMember, is_changed: bool, records: list[KeyValue]
    ) -> None:
        current, epoch = member.current, group.assignment_epoch
        if not is_changed and current.epoch == epoch:
            return
        wanted = {self._metadata_cache.topic_id(topic) for topic in member.topic_names}
        target = group.targets.get(member.member_id, {})
        assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}
        if current.epoch == epoch and current.assigned == assigned:
            return
        previous = current.previous_epoch if current.epoch == epoch else current.epoch
        group.advance(member, current._replace(epoch=epoch, previous_epoch=previous, assigned=assigned))
        records.append(RECORDS.member_current_record(group.group_id, member))

    # --- the state of partitions

    def _uninitialized(self, group: ShareGroup) -> dict[UUID, SharedTopic]:
        """Return the partitions of subscribed topics whose state is neither initialized nor about to be."""
        found = {}
        for name, (topic_id, count) in group.known_topics(self._metadata_cache).items():
            known: set[int] = set()
            for topics in (group.initialized, group.initializing):
                if topic_id in topics:
                    known |= topics[topic_id].partitions
            missing = frozenset(range(count)) - known
            if missing:
                found[topic_id] = SharedTopic(name, missing)
        return found

    def _initialize(self, group: ShareGroup, topics: Mapping[UUID, SharedTopic], epoch: int) -> None:
        """Begin the state of partitions, with an epoch of the group that is in the log."""
        keys = [
            SharePartitionKey(group.group_id, topic_id, partition)
            for topic_id, topic in topics.items()
            for partition in sorted(topic.partitions)
        ]

        def initialized(codes: Mapping[SharePartitionKey, int]) -> None:
            if not group.is_dead:
                # The next heartbeat of a member assigns the partitions, or tries again.
                group.end_initialization(topics, succeeded=not any(codes.values()))
                self._write_state(group, ignore)

        gathered = Gathered(keys, initialized)

        def answered(key: SharePartitionKey, code: int, message: str) -> None:
            if code:
                self._log.info("%r: a share partition could not be initialized: %s", group, message)
            gathered.add(key, code)

        for key in keys:
            self._persister.initialize_state(key, epoch, UNINITIALIZED_START_OFFSET, partial(answered, key))

    def _session_timeout_ms(self, group: ShareGroup, member: ShareGroupMember) -> int:  # noqa: ARG002
        return self._group_configs.get(group.group_id).session_timeout_ms

    # --- the start offsets of groups

    def _topic_id(self, topic: str) -> UUID | None:
        cache = self._metadata_cache
        return cache.topic_id(topic) if cache.contains(topic) else None

    # --- describing

    def describe_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, respond: OffsetsCallback
    ) -> None:
        """Look up offsets; ``partitions`` None means all partitions that the group has read."""
        group_id = self._manager.validate_group_status(group_id)
        if partitions is None:
            group = self._manager.groups.get(group_id)
            initialized = group.initialized if isinstance(group, ShareGroup) else {}
            partitions = [
                TopicPartition(topic.name, number)
                for topic_id, topic in initialized.items()
                if self._topic_id(topic.name) == topic_id
                for number in sorted(topic.partitions)
            ]
        found: dict[TopicPartition, SharePartitionOffset] = dict.fromkeys(partitions, SharePartitionOffset())
        states: dict[TopicPartition, ShareState] = {}
        keys = {
            tp: SharePartitionKey(group_id, topic_id, tp.partition)
            for tp in found
            if (topic_id := self._topic_id(tp.topic)) is not None
        }
        gathered: Gathered[TopicPartition, int] = Gathered(keys, lambda _: self._add_lags(found, states, respond))

        def with_state(tp: TopicPartition, code: int, _: str, state: ShareState | None) -> None:
            if state is not None:
                states[tp] = state
                found[tp] = SharePartitionOffset(state.start_offset, state.leader_epoch)
            gathered.add(tp, code)

        for tp, key in keys.items():
            self._persister.read_state_summary(key, partial(with_state, tp))

    def _add_lags(
        self,
        found: dict[TopicPartition, SharePartitionOffset],
        states: Mapping[TopicPartition, ShareState],
        respond: OffsetsCallback,
    ) -> None:
        begun = [tp for tp, state in states.items() if state.start_offset >= 0 and state.delivery_complete_count >= 0]

        def answered(ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
            for tp in begun:
                error_code, end = ends[tp]
                if error_code:
                    found[tp] = SharePartitionOffset(0, 0, _NO_LAG, error_code)
                else:
                    lag = end - states[tp].start_offset - states[tp].delivery_complete_count
                    found[tp] = found[tp]._replace(lag=lag)
            respond(found)

        if begun:
            self._partition_metadata_client.list_latest_offsets(begun, answered)
        else:
            respond(found)

    # --- altering

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], respond: AlteredCallback) -> None:
        """Set the start offsets of an empty group. Creates the group if it does not exist.

        Raises:
            GroupNotEmptyError: the group has members.
            GroupIdNotFoundError: the group is of another protocol.
        """
        group = self._manager.share_group(self._manager.validate_group_status(group_id), may_create=True)
        group.validate_delete()
        cache = self._metadata_cache
        codes: dict[TopicPartition, int] = {}
        topics: dict[UUID, SharedTopic] = {}
        for tp in offsets:
            topic_id = self._topic_id(tp.topic)
            if topic_id is None or not 0 <= tp.partition < (cache.num_partitions(tp.topic) or 0):
                codes[tp] = errors.UnknownTopicOrPartitionError.code
                continue
            known = topics[topic_id].partitions if topic_id in topics else frozenset()
            topics[topic_id] = SharedTopic(tp.topic, known | {tp.partition})
        if not topics:
            respond(codes)
            return
        group.begin_initialization(topics)
        keys = {
            TopicPartition(topic.name, number): SharePartitionKey(group_id, topic_id, number)
            for topic_id, topic in topics.items()
            for number in topic.partitions
        }

        def initialized(results: Mapping[TopicPartition, int]) -> None:
            codes.update(results)
            group.end_initialization(topics, succeeded=not any(results.values()))
            self._write_state(group, lambda code: respond(dict.fromkeys(codes, code) if code else codes))

        def begin(code: int) -> None:
            if code:
                respond(dict.fromkeys(offsets, code))
                return
            gathered = Gathered(keys, initialized)
            for tp, key in keys.items():
                answered = partial(gathered.add_code, tp)
                self._persister.initialize_state(key, group.group_epoch, offsets[tp], answered)

        self._write_state(group, begin)

    # --- deleting

    def delete_offsets(self, group_id: str, topics: Sequence[str], respond: DeletedCallback) -> None:
        """Delete the offsets of topics of an empty group.

        Raises:
            GroupNotEmptyError: the group has members.
            GroupIdNotFoundError: there is no such share group.
        """
        group = self._manager.share_group(self._manager.validate_group_status(group_id), may_create=False)
        group.validate_delete()
        codes: dict[str, int] = {}
        deleted: dict[str, UUID] = {}
        for name in topics:
            topic_id = self._topic_id(name)
            if topic_id is None or not (topic_id in group.initialized or topic_id in group.deleting):
                codes[name] = errors.UnknownTopicOrPartitionError.code
            else:
                deleted[name] = topic_id
        self._delete_offsets(group, deleted, lambda results: respond({**results, **codes}))

    def delete_all_offsets(self, group: ShareGroup, then: Callable[[int], None]) -> None:
        """Delete all state of a group that is about to be deleted; ``then`` gets the first error code, or 0."""
        topics = {topic.name: topic_id for topic_id, topic in (*group.initialized.items(), *group.initializing.items())}
        topics |= {name: topic_id for topic_id, name in group.deleting.items()}
        # The share coordinators delete the state of deleted topics themselves.
        existing = {name: topic_id for name, topic_id in topics.items() if self._topic_id(name) == topic_id}
        self._delete_offsets(group, existing, lambda codes: then(next((code for code in codes.values() if code), 0)))

    def _delete_offsets(self, group: ShareGroup, topics: Mapping[str, UUID], then: DeletedCallback) -> None:
        codes = dict.fromkeys(topics, 0)
        keys: list[tuple[str, SharePartitionKey]] = []
        for name, topic_id in topics.items():
            known = [each[topic_id].partitions for each in (group.initialized, group.initializing) if topic_id in each]
            partitions = frozenset[int]().union(*known) or range(self._metadata_cache.num_partitions(name) or 0)
            keys += [(name, SharePartitionKey(group.group_id, topic_id, number)) for number in sorted(partitions)]
            group.initialized.pop(topic_id, None)
            group.initializing.pop(topic_id, None)
            group.deleting[topic_id] = name

        def deleted(results: Mapping[tuple[str, SharePartitionKey], int]) -> None:
            for (name, _), code in results.items():
                codes[name] = codes[name] or code
            for name in topics:
                if not codes[name]:
                    group.deleting.pop(topics[name], None)
            self._write_state(group, lambda code: then(dict.fromkeys(codes, code) if code else codes))

        def begin(code: int) -> None:
            if code:
                then(dict.fromkeys(codes, code))
                return
            gathered = Gathered(keys, deleted)
            for name, key in keys:
                self._persister.delete_state(key, partial(gathered.add_code, (name, key)))

        if keys:
            self._write_state(group, begin)
        else:
            then(codes)

    def _write_state(self, group: ShareGroup, then: Callable[[int], None]) -> None:
        self._manager.write(group, [RECORDS.state_record(group)], then)
