"""Share groups on the coordinator's side: heartbeats, epochs, assignments and start offsets (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import (
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NetworkError,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.testing.group.group_records import SHARE_GROUP_RECORDS as RECORDS
from pykclient.testing.group.modern_groups import (
    RETRY_EXPIRY_MS,
    Partitions,
    SharedTopic,
    ShareGroup,
    ShareGroupMember,
    hash_of,
)
from pykclient.testing.inter_broker_requests import InterBrokerSendThread, RequestAndCompletionHandler
from pykclient.testing.log.log_types import LATEST_TIMESTAMP
from pykclient.testing.share.in_flight_records import UNINITIALIZED_START_OFFSET, SharePartitionKey, ShareState
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker_context import BrokerContext
    from pykclient.testing.coordinator_log import KeyValue
    from pykclient.testing.group.group_metadata_manager import GroupMetadataManager
    from pykclient.testing.metadata_cache import MetadataCache
    from pykclient.testing.share.group_config import GroupConfigManager
    from pykclient.testing.share.persister import Persister

#: The error code, and the end offset if that is 0, of each partition.
Ends = Mapping[TopicPartition, tuple[int, int]]

_CONSUMER: int = -1


class PartitionMetadataClient(InterBrokerSendThread):
    """Asks the leaders of partitions for the offsets after their last records. Thread: loop."""

    def __init__(self, broker: BrokerContext, metadata_cache: MetadataCache) -> None:
        super().__init__(broker, "partition-metadata", broker.config.get_int("request.timeout.ms"))
        self._metadata_cache = metadata_cache
        self._queue: list[tuple[Node, list[TopicPartition], Callable[[Ends], None]]] = []

    def shutdown(self) -> None:
        super().shutdown()
        self._queue.clear()

    def list_latest_offsets(self, partitions: Iterable[TopicPartition], then: Callable[[Ends], None]) -> None:
        """Call ``then`` when all leaders have answered. Errors are not retried."""
        if not self._running:
            self.startup()
        found: dict[TopicPartition, tuple[int, int]] = {}
        by_leader: dict[Node, list[TopicPartition]] = {}
        snapshot = self._metadata_cache.snapshot
        for tp in partitions:
            leader = snapshot.leader(tp)
            if leader is None:
                found[tp] = LeaderNotAvailableError.code, -1
            else:
                by_leader.setdefault(leader, []).append(tp)
        waiting = set(by_leader)

        def answered(leader: Node, ends: Ends) -> None:
            found.update(ends)
            waiting.discard(leader)
            if not waiting:
                then(found)

        if not waiting:
            then(found)
        for leader, asked in by_leader.items():
            self._queue.append((leader, asked, partial(answered, leader)))
        self.wakeup()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        queue, self._queue = self._queue, []
        for node, partitions, then in queue:
            topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
            for topic, number in partitions:
                topics.setdefault(topic, []).append(
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=LATEST_TIMESTAMP)
                )
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked) for topic, asked in topics.items()
                ],
            )
            yield RequestAndCompletionHandler(
                self._broker.loop.now_ms, node, RequestBuilder(request), partial(self._on_response, partitions, then)
            )

    @staticmethod
    def _on_response(partitions: list[TopicPartition], then: Callable[[Ends], None], response: ClientResponse) -> None:
        ends = dict.fromkeys(partitions, (NetworkError.code, -1))
        body = response.response_body
        if isinstance(body, ListOffsetsResponse):
            for topic in body.topics:
                for partition in topic.partitions:
                    ends[TopicPartition(topic.name, partition.partition_index)] = partition.error_code, partition.offset
        then(ends)


_LEAVE_EPOCH = -1

#: Called with the response, when all that it tells is in the log.
HeartbeatCallback = Callable[[ShareGroupHeartbeatResponse], None]


class ShareGroupManager:
    """Manages groups whose members join, report and leave by heartbeats (Java: GroupMetadataManager).

    A member need not give anything up before another member gets it. But a partition is only assigned when a share
    coordinator has initialized its state. Changes take effect in memory at once, unless the log refuses them, and are
    answered when they are in the log. Thread: loop.
    """

    __slots__ = ("_broker", "_group_configs", "_log", "_manager", "_max_size", "_metadata_cache", "_persister")

    def __init__(
        self,
        broker: BrokerContext,
        metadata_cache: MetadataCache,
        group_configs: GroupConfigManager,
        persister: Persister,
        manager: GroupMetadataManager,
    ) -> None:
        self._broker = broker
        self._metadata_cache = metadata_cache
        self._group_configs = group_configs
        self._persister = persister
        self._manager = manager
        self._log = broker.log_context.logger(__name__)
        self._max_size: int = broker.config["group.share.max.size"]

    # --- heartbeats

    def validate(self, body: ShareGroupHeartbeatRequest) -> None:
        """Check the fields of a heartbeat.

        Raises:
            UnsupportedVersionError: the cluster has no share groups.
            InvalidRequestError: a field is not valid.
        """
        if not self._broker.features.share_version:
            raise UnsupportedVersionError("the feature share.version is at level 0, which has no share groups")
        for what, value in (("MemberId", body.member_id), ("GroupId", body.group_id), ("RackId", body.rack_id)):
            if value is not None and not value.strip():
                raise InvalidRequestError(f"{what} can't be empty.")
        if body.member_epoch == 0:
            if not body.subscribed_topic_names:
                raise InvalidRequestError("SubscribedTopicNames must be set in first request.")
        elif body.member_epoch < _LEAVE_EPOCH:
            raise InvalidRequestError("MemberEpoch is invalid.")

    def heartbeat(
        self, body: ShareGroupHeartbeatRequest, client_id: str, client_host: str, respond: HeartbeatCallback
    ) -> None:
        """Handle ShareGroupHeartbeat."""
        group = self._manager.share_group(body.group_id, may_create=body.member_epoch == 0)
        if body.member_epoch == _LEAVE_EPOCH:
            self._leave(group, body, respond)
            return
        if body.member_id not in group.members and len(group.members) >= self._max_size:
            raise GroupMaxSizeReachedError(
                f"The share group has reached its maximum capacity of {self._max_size} members."
            )
        records: list[KeyValue] = []
        member = self._member(group, body)
        before = member.assigned
        with self._manager.all_or_nothing(group, records):
            is_changed = self._update(group, member, body, client_id, client_host, records)
            is_changed = self._refresh(group, is_changed, records)
            self._reconcile(group, member, is_changed, records)
            # Also a heartbeat whose effect is undone shows that the member lives.
            self._restart_session(group, member)
            topics = self._uninitialized(group)
            if topics:
                group.begin_initialization(topics)
                records.append(RECORDS.state_record(group))
        is_full = body.member_epoch == 0 or body.subscribed_topic_names is not None
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._group_configs.get(group.group_id).heartbeat_interval_ms,
            assignment=_assignment(member.assigned) if is_full or member.assigned != before else None,
        )

        def written(code: int) -> None:
            respond(ShareGroupHeartbeatResponse(error_code=code) if code else response)
            if topics:
                self._initialize(group, topics)

        self._manager.write(group, records, written)

    def _member(self, group: ShareGroup, body: ShareGroupHeartbeatRequest) -> ShareGroupMember:
        """Return the member that a heartbeat comes from, which joins with epoch 0."""
        if body.member_epoch:
            member = group.existing_member(body.member_id)
            group.validate_epoch(member, body.member_epoch)
            return member
        known = group.members.get(body.member_id)
        if known is None:
            self._manager.validate_appendable(group.group_id)
            known = group.members[body.member_id] = ShareGroupMember(body.member_id)
            self._log.info("%r: %r joins", group, known)
        return known

    def _update(
        self,
        group: ShareGroup,
        member: ShareGroupMember,
        body: ShareGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        records: list[KeyValue],
    ) -> bool:
        """Apply the fields of a heartbeat; return whether the subscription has changed."""
        before, topics = member.settings(), member.topic_names
        member.update(body, client_id, client_host)
        if member.settings() != before:
            records.append(RECORDS.member_record(group.group_id, member))
        return member.topic_names != topics

    # --- epochs and assignments

    def _refresh(self, group: ShareGroup, is_changed: bool, records: list[KeyValue]) -> bool:
        """Begin the group's next epoch if its members, topics or initialized partitions have changed.

        Assign anew then, and return whether there is a new epoch.
        """
        is_changed = is_changed or (group.assignment_epoch >= group.group_epoch and group.is_assignment_behind())
        topics = group.known_topics(self._metadata_cache)
        if is_changed or group.is_metadata_stale:
            hash = hash_of(topics)
            is_changed = is_changed or hash != group.metadata_hash
            if is_changed:
                group.metadata_hash = hash
                group.group_epoch += 1
                records.append(RECORDS.group_record(group))
            group.is_metadata_stale = False
        if group.group_epoch > group.assignment_epoch:
            before = dict(group.targets)
            group.assign({topic: topic_id for topic, (topic_id, _) in topics.items()})
            records += RECORDS.assignment_records(group, before, self._broker.loop.wall_ms)
            self._log.info("%r: assigned anew", group)
        return is_changed

    def _reconcile(
        self, group: ShareGroup, member: ShareGroupMember, is_changed: bool, records: list[KeyValue]
    ) -> None:
        if not is_changed and member.epoch == group.assignment_epoch:
            return
        wanted = {self._metadata_cache.topic_id(topic) for topic in member.topic_names}
        target = group.targets.get(member.member_id, {})
        assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}
        if member.epoch == group.assignment_epoch and member.assigned == assigned:
            return
        member.assigned = assigned
        if member.epoch != group.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, group.assignment_epoch
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

    def _initialize(self, group: ShareGroup, topics: Mapping[UUID, SharedTopic]) -> None:
        keys = [
            SharePartitionKey(group.group_id, topic_id, partition)
            for topic_id, topic in topics.items()
            for partition in sorted(topic.partitions)
        ]
        codes: list[int] = []

        def initialized(code: int, message: str) -> None:
            codes.append(code)
            if code:
                self._log.info("%r: a share partition could not be initialized: %s", group, message)
            if len(codes) == len(keys) and not group.is_dead:
                self._end_initialization(group, topics, succeeded=not any(codes))

        for key in keys:
            self._persister.initialize_state(key, group.group_epoch, UNINITIALIZED_START_OFFSET, initialized)

    def _end_initialization(self, group: ShareGroup, topics: Mapping[UUID, SharedTopic], *, succeeded: bool) -> None:
        """Note the result; the next heartbeat of a member assigns the partitions, or tries again."""
        group.end_initialization(topics, succeeded=succeeded)
        self._manager.write(group, [RECORDS.state_record(group)], lambda _: None)

    def resume_initialization(self, group: ShareGroup) -> None:
        """Let the next heartbeat restart initializations that a previous coordinator had begun."""
        group.initializing.clear()

    # --- sessions

    def schedule_sessions(self, group: ShareGroup) -> None:
        """Start the sessions of all members of a group that was loaded."""
        for member in group.members.values():
            self._restart_session(group, member)

    def _restart_session(self, group: ShareGroup, member: ShareGroupMember) -> None:
        member.cancel_timers()
        timeout_ms = self._group_configs.get(group.group_id).session_timeout_ms
        self._expire_later(timeout_ms, group, member)

    def _expire_later(self, delay_ms: int, group: ShareGroup, member: ShareGroupMember) -> None:
        member.session_timer = self._broker.call_later(delay_ms, self._expire, group, member)

    def _expire(self, group: ShareGroup, member: ShareGroupMember) -> None:
        if group.is_dead or group.members.get(member.member_id) is not member:
            return
        try:
            self._remove(group, member, "its session expired", lambda _: None)
        except (CoordinatorNotAvailableError, NotCoordinatorError) as error:
            self._log.info("%r: %r stays for now, although its session expired: %s", group, member, error)
            self._expire_later(RETRY_EXPIRY_MS, group, member)

    def _leave(self, group: ShareGroup, body: ShareGroupHeartbeatRequest, respond: HeartbeatCallback) -> None:
        response = ShareGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)

        def written(code: int) -> None:
            respond(ShareGroupHeartbeatResponse(error_code=code) if code else response)

        self._remove(group, group.existing_member(body.member_id), "it leaves", written)

    def _remove(self, group: ShareGroup, member: ShareGroupMember, why: str, then: Callable[[int], None]) -> None:
        self._manager.validate_appendable(group.group_id)
        self._log.info("%r: removing %r, as %s", group, member, why)
        group.remove(member)
        group.group_epoch += 1
        group.metadata_hash = hash_of(group.known_topics(self._metadata_cache))
        records = RECORDS.member_tombstones(group.group_id, member.member_id)
        records.append(RECORDS.group_record(group))
        self._manager.write(group, records, then)


def _assignment(partitions: Partitions) -> ShareGroupHeartbeatResponse.Assignment:
    return ShareGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )


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


class ShareGroupOffsets:
    """Describes, resets and deletes the offsets of share groups. Thread: loop."""

    __slots__ = ("_manager", "_metadata_cache", "_partition_metadata_client", "_persister")

    def __init__(
        self,
        metadata_cache: MetadataCache,
        persister: Persister,
        partition_metadata_client: PartitionMetadataClient,
        manager: GroupMetadataManager,
    ) -> None:
        self._metadata_cache = metadata_cache
        self._persister = persister
        self._partition_metadata_client = partition_metadata_client
        self._manager = manager

    def _topic_id(self, topic: str) -> UUID | None:
        cache = self._metadata_cache
        return cache.topic_id(topic) if cache.contains(topic) else None

    # --- describing

    def describe(self, group_id: str, partitions: Iterable[TopicPartition] | None, respond: OffsetsCallback) -> None:
        """Look up offsets; ``partitions`` None means all partitions that the group has read."""
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
        waiting = set(keys)

        def with_state(tp: TopicPartition, state: ShareState | None) -> None:
            if state is not None:
                states[tp] = state
                found[tp] = SharePartitionOffset(state.start_offset, state.leader_epoch)
            waiting.discard(tp)
            if not waiting:
                self._add_lags(found, states, respond)

        if not keys:
            respond(found)
        for tp, key in keys.items():
            self._persister.read_state_summary(
                key,
                lambda _code, _message, state, tp=tp: with_state(tp, state),  # type: ignore[misc]
            )

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

    def alter(self, group_id: str, offsets: Mapping[TopicPartition, int], respond: AlteredCallback) -> None:
        """Set the start offsets of an empty group. Creates the group if it does not exist.

        Raises:
            GroupNotEmptyError: the group has members.
            GroupIdNotFoundError: the group is of another protocol.
        """
        group = self._manager.share_group(group_id, may_create=True)
        group.validate_delete()
        cache = self._metadata_cache
        codes: dict[TopicPartition, int] = {}
        topics: dict[UUID, SharedTopic] = {}
        for tp in offsets:
            topic_id = self._topic_id(tp.topic)
            if topic_id is None or not 0 <= tp.partition < (cache.num_partitions(tp.topic) or 0):
                codes[tp] = UnknownTopicOrPartitionError.code
                continue
            known = topics[topic_id].partitions if topic_id in topics else frozenset()
            topics[topic_id] = SharedTopic(tp.topic, known | {tp.partition})
        if not topics:
            respond(codes)
            return
        group.begin_initialization(topics)
        waiting = {
            TopicPartition(topic.name, number): SharePartitionKey(group_id, topic_id, number)
            for topic_id, topic in topics.items()
            for number in topic.partitions
        }

        def initialized(tp: TopicPartition, code: int) -> None:
            codes[tp] = code
            del waiting[tp]
            if not waiting:
                group.end_initialization(topics, succeeded=not any(codes[each] for each in keys))
                self._write(group, lambda code: respond(dict.fromkeys(codes, code) if code else codes))

        def begin(code: int) -> None:
            if code:
                respond(dict.fromkeys(offsets, code))
                return
            for tp, key in keys.items():
                self._persister.initialize_state(
                    key,
                    group.group_epoch,
                    offsets[tp],
                    lambda code, _, tp=tp: initialized(tp, code),  # type: ignore[misc]
                )

        keys = dict(waiting)
        self._write(group, begin)

    # --- deleting

    def delete(self, group_id: str, topics: Sequence[str], respond: DeletedCallback) -> None:
        """Delete the offsets of topics of an empty group.

        Raises:
            GroupNotEmptyError: the group has members.
            GroupIdNotFoundError: there is no such share group.
        """
        group = self._manager.share_group(group_id, may_create=False)
        group.validate_delete()
        codes: dict[str, int] = {}
        deleted: dict[str, UUID] = {}
        for name in topics:
            topic_id = self._topic_id(name)
            if topic_id is None or not (topic_id in group.initialized or topic_id in group.deleting):
                codes[name] = UnknownTopicOrPartitionError.code
            else:
                deleted[name] = topic_id
        self._delete(group, deleted, lambda results: respond({**results, **codes}))

    def delete_all(self, group: ShareGroup, then: Callable[[int], None]) -> None:
        """Delete all state of a group that is about to be deleted; ``then`` gets the first error code, or 0."""
        topics = {topic.name: topic_id for topic_id, topic in (*group.initialized.items(), *group.initializing.items())}
        topics |= {name: topic_id for topic_id, name in group.deleting.items()}
        # The share coordinators delete the state of deleted topics themselves.
        existing = {name: topic_id for name, topic_id in topics.items() if self._topic_id(name) == topic_id}
        self._delete(group, existing, lambda codes: then(next((code for code in codes.values() if code), 0)))

    def _delete(self, group: ShareGroup, topics: Mapping[str, UUID], then: DeletedCallback) -> None:
        codes = dict.fromkeys(topics, 0)
        keys: list[tuple[str, SharePartitionKey]] = []
        for name, topic_id in topics.items():
            known = [each[topic_id].partitions for each in (group.initialized, group.initializing) if topic_id in each]
            partitions = frozenset[int]().union(*known) or range(self._metadata_cache.num_partitions(name) or 0)
            keys += [(name, SharePartitionKey(group.group_id, topic_id, number)) for number in sorted(partitions)]
            group.initialized.pop(topic_id, None)
            group.initializing.pop(topic_id, None)
            group.deleting[topic_id] = name
        left = len(keys)

        def deleted(name: str, code: int) -> None:
            nonlocal left
            left -= 1
            codes[name] = codes[name] or code
            if left:
                return
            for each, topic_id in topics.items():
                if not codes[each]:
                    group.deleting.pop(topic_id, None)
            self._write(group, lambda code: then(dict.fromkeys(codes, code) if code else codes))

        def begin(code: int) -> None:
            if code:
                then(dict.fromkeys(codes, code))
                return
            for name, key in keys:
                self._persister.delete_state(key, lambda code, _, name=name: deleted(name, code))  # type: ignore[misc]

        if keys:
            self._write(group, begin)
        else:
            then(codes)

    def _write(self, group: ShareGroup, then: Callable[[int], None]) -> None:
        self._manager.write(group, [RECORDS.state_record(group)], then)
