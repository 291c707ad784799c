"""The storage of groups and offsets: in memory, backed by __consumer_offsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from pykclient import errors
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.record.record_batch import Record
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordinator_log import AppendCallback, CoordinatorLog, KeyValue
from pykclient.testing.group import group_records
from pykclient.testing.group.group_metadata import DEAD, EMPTY, STABLE, CommittedOffset, GroupMetadata, GroupOffsets
from pykclient.testing.group.group_records import (
    CONSUMER_GROUP_RECORDS,
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_RECORDS,
    G,
    M,
    ModernGroupRecords,
    topics_of,
)
from pykclient.testing.group.modern_groups import (
    RETRY_EXPIRY_MS,
    ConsumerGroup,
    ModernGroup,
    ModernGroupMember,
    ShareGroup,
    hash_of,
)
from pykclient.testing.log.log_types import ProducerIdAndEpoch
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.types import TopicPartition

R = TypeVar("R", ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)

K = TypeVar("K", GroupMetadata, ConsumerGroup)
E = TypeVar("E", GroupMetadata, ConsumerGroup, ShareGroup)

Group = GroupMetadata | ConsumerGroup | ShareGroup
GroupCallback = Callable[[Group], None]


class GroupMetadataManager:
    """The groups whose partition of __consumer_offsets this broker leads (Java: GroupMetadataManager).

    Requests are served from memory. Changes that must not be lost are appended first, and take effect when all
    in-sync replicas have them. Groups whose members only send heartbeats change at once, unless the log refuses the
    change: no coordinator may count epochs that the next one cannot know. A new leader reads the partition from its
    start; until it is done, its groups are *loading*.

    Thread: loop
    """

    def __init__(self, broker: BrokerContext, replica_manager: ReplicaManager, metadata_cache: MetadataCache) -> None:
        self.groups: dict[str, Group] = {}
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self.storage: CoordinatorLog[_LoadedGroups] = CoordinatorLog(
            broker,
            replica_manager,
            metadata_cache,
            GROUP_METADATA_TOPIC,
            broker.config.get_int("offsets.topic.num.partitions"),
            broker.config.get_int("offsets.commit.timeout.ms"),
            _LoadedGroups.apply,
        )

    # --- which groups

    def validate_group_status(self, group_id: str | None, *, may_be_empty: bool = False) -> str:
        """Return the group's id, if this broker coordinates the group and has loaded it.

        Offsets could once be stored for a group without a name; ``may_be_empty`` allows it.

        Raises:
            InvalidGroupIdError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError: it
                is not so.
        """
        if group_id is None or not (group_id or may_be_empty):
            raise errors.InvalidGroupIdError(f"{group_id!r} cannot be the id of a group")
        self.storage.state_for(group_id)
        return group_id

    def get_or_create_group(self, group_id: str) -> Group:
        """Return the group, which is of the classic protocol if it is new."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = GroupMetadata(group_id, self._broker.loop.wall_ms)
        return group

    def group_of(self, kind: type[K], group_id: str, *, may_create: bool) -> K | None:
        """Return the group if it is of a protocol, or has no members and becomes so.

        Members that are about to join a classic group do not count. They learn that they are unknown, and begin again.

        Raises:
            CoordinatorNotAvailableError, NotCoordinatorError: the log refuses the new group, or that it changes.
        """
        group = self.groups.get(group_id)
        if isinstance(group, kind):
            return group
        if not may_create or isinstance(group, ShareGroup) or (group is not None and group.state is not EMPTY):
            return None
        if group is not None or kind is ConsumerGroup:
            self.validate_appendable(group_id)
        new = kind(group_id, self._broker.loop.wall_ms)
        self._replace_empty(group, new)
        return new

    def existing(self, kind: type[E], group_id: str) -> E:
        """Return the group, which must be of this protocol.

        Raises:
            GroupIdNotFoundError: it does not exist, or is of another protocol.
        """
        group = self.groups.get(group_id)
        if group is None:
            what = "Share group" if kind is ShareGroup else "Group"
            raise errors.GroupIdNotFoundError(f"{what} {group_id} not found.")
        if not isinstance(group, kind):
            raise errors.GroupIdNotFoundError(f"Group {group_id} is not a {kind.group_type} group.")
        return group

    def share_group(self, group_id: str, *, may_create: bool) -> ShareGroup:
        """Return a share group.

        Raises:
            GroupIdNotFoundError: there is none and it may not be created, or the group is of another protocol.
            CoordinatorNotAvailableError, NotCoordinatorError: the log refuses the new group.
        """
        if may_create and group_id not in self.groups:
            self.validate_appendable(group_id)
            self.groups[group_id] = ShareGroup(group_id, self._broker.loop.wall_ms)
        return self.existing(ShareGroup, group_id)

    def replace(self, old: Group, new: Group) -> list[KeyValue]:
        """Replace a group by one of the other protocol, with its offsets.

        Return the records that remove the old group. They belong into one batch with those of the new group, so that no
        coordinator finds neither.
        """
        self.groups[new.group_id] = new
        new.offsets = old.offsets
        old.cancel_timers()
        return _group_tombstones(old)

    def _replace_empty(self, old: Group | None, new: Group) -> None:
        if old is None:
            self.groups[new.group_id] = new
        elif tombstones := self.replace(old, new):
            self._append(new.group_id, tombstones, lambda _code, _offset: None)

    # --- writing

    def validate_appendable(self, group_id: str) -> None:
        """Check that the log takes records of a group now.

        Raises:
            CoordinatorNotAvailableError, NotCoordinatorError: it does not.
        """
        self.storage.validate_appendable(self.storage.partition_for(group_id))

    @contextmanager
    def all_or_nothing(self, group: ModernGroup[Any], records: list[KeyValue]) -> Iterator[None]:
        """Undo what is done to the group meanwhile if it adds ``records``, and the log refuses them.

        Members may be changed, but not be added or removed. Timers go on. (Java: SnapshottableCoordinator.)

        Raises:
            CoordinatorNotAvailableError, NotCoordinatorError: everything was undone.
        """
        try:
            self.validate_appendable(group.group_id)
        except (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError):
            restore = group.snapshot()
            yield
            if records:
                restore()
                raise
        else:
            yield

    def write(self, group: ModernGroup[Any], records: list[KeyValue], then: Callable[[int], None]) -> None:
        """Append records of a group, and its complete state if the log is behind.

        ``then`` is called with an error code or 0 when all that has changed is in the log.
        """
        if group.is_behind_log:
            records = [*records, *_records_of(group).all_records(group, self._broker.loop.wall_ms)]
        if not records:
            group.when_written(partial(then, 0))
            return
        group.begin_write()

        def written(code: int, _: int) -> None:
            group.is_behind_log = bool(code)
            then(code)
            group.end_write()

        self._append(group.group_id, records, written)

    def store_group(
        self,
        group: GroupMetadata,
        assignments: Mapping[str, bytes],
        then: Callable[[int], None],
        before: Iterable[KeyValue] = (),
    ) -> None:
        """Write the group with its members and assignments; call ``then`` with the error code, or 0.

        The records ``before`` it are in the same batch, so that no log has only a part.
        """
        key = group_records.group_metadata_key(group.group_id)
        value = group_records.group_metadata_value(group, assignments)
        self._append(group.group_id, [*before, (key, value)], lambda error_code, _: then(error_code))

    def store_offsets(
        self, group: Group, offsets: Mapping[TopicPartition, CommittedOffset], then: Callable[[int], None]
    ) -> None:
        """Write offsets. They can be read when ``then`` is called with 0."""
        write = group.offsets.prepare(offsets)

        def stored(error_code: int, base_offset: int) -> None:
            if error_code:
                group.offsets.fail(write)
            else:
                group.offsets.complete(write, base_offset)
            then(error_code)

        self._append(group.group_id, _offset_records(group.group_id, offsets), stored)

    def store_transactional_offsets(
        self,
        group: Group,
        producer: ProducerIdAndEpoch,
        verification: VerificationState | None,
        offsets: Mapping[TopicPartition, CommittedOffset],
        then: Callable[[int], None],
    ) -> None:
        """Write offsets of a transaction. They can be read when the transaction is committed."""
        producer_id = producer.producer_id
        group.offsets.prepare_transactional(producer_id, offsets)

        def stored(error_code: int, base_offset: int) -> None:
            if error_code:
                group.offsets.fail_transactional(producer_id, offsets)
            else:
                group.offsets.complete_transactional(offsets, base_offset)
            then(error_code)

        records = _offset_records(group.group_id, offsets)
        self._append(group.group_id, records, stored, producer, verification)

    def end_transaction(self, partition: int, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Commit or discard the offsets that a producer's transaction has sent to groups of this partition."""
        for group in self.groups.values():
            if producer_id in group.offsets.transactional and self.storage.partition_for(group.group_id) == partition:
                group.offsets.end_transaction(producer_id, marker_offset, committed=committed)

    def delete_offsets(self, group: Group, partitions: Iterable[TopicPartition], then: Callable[[int], None]) -> None:
        """Write tombstones for the offsets of these partitions, then remove them from memory."""
        known = set(group.offsets.partitions())
        removed = [tp for tp in partitions if tp in known]

        def deleted(error_code: int, base_offset: int) -> None:
            if not error_code:
                group.offsets.remove(removed, base_offset)
            then(error_code)

        if removed:
            self._append(group.group_id, self._offset_tombstones(group, removed), deleted)
        else:
            then(0)

    def delete_group(self, group: Group, then: Callable[[int], None]) -> None:
        """Write tombstones for an empty group and all its offsets, then remove it from memory."""
        removed = group.offsets.partitions()
        generation_id = group.generation_id
        records = self._offset_tombstones(group, removed) + _group_tombstones(group)

        def deleted(error_code: int, base_offset: int) -> None:
            if not error_code:
                group.offsets.remove(removed, base_offset)
                # A client may have joined or committed meanwhile.
                if group.state is EMPTY and group.generation_id == generation_id and not group.offsets:
                    self._forget(group)
            then(error_code)

        if records:
            self._append(group.group_id, records, deleted)
        else:
            self._forget(group)
            then(0)

    def _forget(self, group: Group) -> None:
        group.transition_to(DEAD, self._broker.loop.wall_ms)
        group.cancel_timers()
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    @staticmethod
    def _offset_tombstones(group: Group, partitions: Iterable[TopicPartition]) -> list[KeyValue]:
        return [(group_records.offset_commit_key(group.group_id, tp), None) for tp in partitions]

    def _append(
        self,
        group_id: str,
        records: Iterable[KeyValue],
        then: AppendCallback,
        producer: ProducerIdAndEpoch | None = None,
        verification: VerificationState | None = None,
    ) -> None:
        partition = self.storage.partition_for(group_id)
        self.storage.append(partition, records, then, producer=producer, verification=verification)

    # --- expiry

    def cleanup(self, retention_ms: int) -> None:
        """Remove expired offsets, and groups with neither members nor offsets (KIP-211)."""
        for group in list(self.groups.values()):
            if isinstance(group, ShareGroup):
                continue  # only an administrator deletes it
            expired = self._expired(group, retention_ms)
            # A pending member is about to join.
            if group.state is EMPTY and len(expired) == len(group.offsets.partitions()) and not group.pending_members:
                self.delete_group(group, ignore)
            elif expired:
                self.delete_offsets(group, expired, ignore)

    def _expired(self, group: Group, retention_ms: int) -> list[TopicPartition]:
        now_ms = self._broker.loop.wall_ms
        offsets = group.offsets
        if group.protocol_type is not None and group.state is EMPTY and group.state_timestamp_ms >= 0:
            # The retention of its offsets starts when the last member leaves.
            return offsets.expired(lambda _: group.state_timestamp_ms, now_ms, retention_ms)
        if group.protocol_type is None or group.state is EMPTY:
            return offsets.expired(lambda offset: offset.commit_timestamp_ms, now_ms, retention_ms)
        if group.uses_consumer_protocol and group.subscribed_topics is not None and group.state is STABLE:
            expired = offsets.expired(lambda offset: offset.commit_timestamp_ms, now_ms, retention_ms)
            return [tp for tp in expired if tp.topic not in group.subscribed_topics]
        return []

    def on_topics_deleted(self, topics: Iterable[str]) -> None:
        """Delete the offsets of deleted topics."""
        gone = frozenset(topics)
        for group in list(self.groups.values()):
            self.delete_offsets(group, [tp for tp in group.offsets.partitions() if tp.topic in gone], ignore)

    # --- loading

    def load(self, partition: int, epoch: int, on_loaded: GroupCallback) -> None:
        """Load the groups of a partition that this broker leads now, in leader epoch ``epoch``.

        ``on_loaded`` is called for each group.
        """
        loaded = _LoadedGroups(self._broker.loop.wall_ms)
        self.storage.load(partition, epoch, loaded, partial(self._on_loaded, partition, loaded, on_loaded))

    def unload(self, partition: int, epoch: int, on_unloaded: GroupCallback) -> None:
        """Unload the groups of a partition that another broker leads from ``epoch`` on, or was deleted (negative)."""
        if self.storage.unload(partition, epoch):
            for group in list(self.groups.values()):
                if self.storage.partition_for(group.group_id) == partition:
                    del self.groups[group.group_id]
                    on_unloaded(group)

    def _on_loaded(self, partition: int, loaded: _LoadedGroups, on_loaded: GroupCallback) -> None:
        groups = loaded.groups
        for group_id, offsets in loaded.offsets.items():
            if offsets:
                group = groups.setdefault(group_id, GroupMetadata(group_id, self._broker.loop.wall_ms))
                group.offsets = offsets
        self.groups.update(groups)
        for group in groups.values():
            on_loaded(group)
        self._log.info("Loaded %d groups from partition %d", len(groups), partition)


class _LoadedGroups:
    """The groups that the records of one partition add up to, and their offsets; later records override earlier ones.

    Those of a transaction count when its marker follows. Thread: loop.
    """

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}

    def apply(self, batch: AnyRecordBatch, record: Record) -> None:
        """Apply the next record of the log."""
        if batch.is_control_batch:
            marker = EndTransactionMarker.deserialize(record)
            committed = marker.control_type is ControlRecordType.COMMIT
            for offsets in self.offsets.values():
                offsets.end_transaction(batch.producer_id, batch.base_offset, committed=committed)
            return
        assert record.key is not None
        groups: dict[str, Any] = self.groups
        if CONSUMER_GROUP_RECORDS.read_into(
            groups, record.key, record.value, self._wall_ms
        ) or SHARE_GROUP_RECORDS.read_into(groups, record.key, record.value, self._wall_ms):
            return
        key = group_records.read_key(record.key)
        if key is None:
            return
        group_id, tp = key
        if tp is None:
            if record.value is not None:
                groups[group_id] = group_records.read_group(group_id, record.value)
            elif isinstance(groups.get(group_id), GroupMetadata):
                del groups[group_id]
        elif record.value is not None:
            offset = group_records.read_offset(record.value, batch.base_offset)
            offsets = self.offsets.setdefault(group_id, GroupOffsets())
            if batch.is_transactional:
                offsets.prepare_transactional(batch.producer_id, {tp: offset})
            else:
                offsets.committed[tp] = offset
        elif group_id in self.offsets:
            # All that was read before it, perhaps from the same batch.
            self.offsets[group_id].remove([tp], batch.base_offset + 1)


class ModernGroupManager(ABC, Generic[G, M]):
    """The sessions of members of groups whose coordinator assigns, and the groups' epochs.

    Changes take effect in memory at once, unless the log refuses them, and are answered when they are in the log.
    Thread: loop.
    """

    def __init__(
        self,
        broker: BrokerContext,
        metadata_cache: MetadataCache,
        manager: GroupMetadataManager,
        records: ModernGroupRecords[G, M],
        max_size: int,
    ) -> None:
        self._broker = broker
        self._metadata_cache = metadata_cache
        self._manager = manager
        self._records = records
        self._max_size = max_size
        self._log = broker.log_context.logger(type(self).__module__)

    def validate_size(self, group: G, member_id: str) -> None:
        """Check that the group has room for a member.

        Raises:
            GroupMaxSizeReachedError: it has not.
        """
        if member_id not in group.members and len(group.members) >= self._max_size:
            raise errors.GroupMaxSizeReachedError(
                f"The {group.protocol_type} group has reached its maximum capacity of {self._max_size} members."
            )

    def update(self, group: G, member: M, apply: Callable[[], None], records: list[KeyValue]) -> bool:
        """Change a member's settings by ``apply``; return whether it is new, or its subscription has changed."""
        before, subscription = self._records.member_record(group.group_id, member), member.subscription
        is_new = member.member_id not in group.targets
        apply()
        if (record := self._records.member_record(group.group_id, member)) != before:
            records.append(record)
        return is_new or member.subscription != subscription

    # --- epochs and assignments

    def refresh(self, group: G, is_changed: bool, records: list[KeyValue]) -> bool:
        """Begin the group's next epoch with a new assignment if its members or topics have changed.

        Return whether they have.
        """
        if is_changed or group.is_metadata_stale:
            self._match(group, records)
            hash = hash_of(group.known_topics(self._metadata_cache))
            is_changed = is_changed or hash != group.metadata_hash
            if is_changed:
                group.metadata_hash = hash
                group.group_epoch += 1
                records.append(self._records.group_record(group))
            group.is_metadata_stale = False
        if group.group_epoch > group.assignment_epoch:
            before = dict(group.targets)
            group.assign(group.known_topics(self._metadata_cache))
            records += self._records.assignment_records(group, before, self._broker.loop.wall_ms)
            self._log.info("%r: assigned anew", group)
        return is_changed

    def _match(self, group: G, records: list[KeyValue]) -> None:
        """Match regular expressions with the topics that there are, if members of this kind have any."""

    # --- sessions

    @abstractmethod
    def _session_timeout_ms(self, group: G, member: M) -> int: ...

    def schedule_sessions(self, group: G) -> None:
        """Start the sessions of all members of a group that was loaded."""
        for member in group.members.values():
            self.restart_session(group, member)

    def restart_session(self, group: G, member: M) -> None:
        """Restart the session of a member after a sign of life."""
        if member.session_timer is not None:
            member.session_timer.cancel()
        self._expire_session_later(group, member, "its session expired", self._session_timeout_ms(group, member))

    def _expire_session_later(self, group: G, member: M, why: str, delay_ms: int) -> None:
        again = self._expire_session_later
        member.session_timer = self._broker.call_later(delay_ms, self._expire, group, member, why, again)

    def _expire(self, group: G, member: M, why: str, again: Callable[[G, M, str, int], None]) -> None:
        """Remove a member, or try that again later if the log refuses it for now."""
        if group.is_dead or group.members.get(member.member_id) is not member:
            return
        try:
            self.remove(group, member, why, ignore)
        except (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError) as error:
            self._log.info("%r: %r stays for now, although %s: %s", group, member, why, error)
            again(group, member, why, RETRY_EXPIRY_MS)

    def remove(self, group: G, member: M, why: str, then: Callable[[int], None]) -> None:
        """Remove a member.

        Raises:
            CoordinatorNotAvailableError, NotCoordinatorError: the log refuses that, and the member stays.
        """
        self._manager.validate_appendable(group.group_id)
        self._log.info("%r: removing %r, as %s", group, member, why)
        group.remove(member)
        group.group_epoch += 1
        self._write_removal(group, self._records.member_tombstones(group.group_id, member.member_id), then)

    def _write_removal(self, group: G, records: list[KeyValue], then: Callable[[int], None]) -> None:
        group.metadata_hash = hash_of(group.known_topics(self._metadata_cache))
        self._manager.write(group, [*records, self._records.group_record(group)], then)


def validate_names(**fields: str | None) -> None:
    """Check that the names in a heartbeat are not empty.

    Raises:
        InvalidRequestError: one of them is.
    """
    for field, value in fields.items():
        if value is not None and not value.strip():
            raise errors.InvalidRequestError(f"{field} can't be empty.")


def heartbeat_response(
    response_class: type[R], member: ModernGroupMember, interval_ms: int, with_assignment: bool
) -> R:
    """Return the response to a member's heartbeat."""
    kind: Any = response_class
    response: R = kind(member_id=member.member_id, member_epoch=member.current.epoch, heartbeat_interval_ms=interval_ms)
    if with_assignment:
        topics = topics_of(kind.TopicPartitions, member.current.assigned)
        response.assignment = kind.Assignment(topic_partitions=topics)
    return response


def when_written(respond: Callable[[R], None], response: R) -> Callable[[int], None]:
    """Return a callback for an append: it responds or, with an error code, refuses."""
    return lambda code: respond(type(response)(error_code=code) if code else response)


def _records_of(group: ModernGroup[Any]) -> ModernGroupRecords[Any, Any]:
    return CONSUMER_GROUP_RECORDS if isinstance(group, ConsumerGroup) else SHARE_GROUP_RECORDS


def _group_tombstones(group: Group) -> list[KeyValue]:
    """Return the records that remove a group with its members, but not its offsets."""
    if isinstance(group, ModernGroup):
        return _records_of(group).group_tombstones(group)
    if not group.generation_id:
        return []  # it only ever stored offsets
    return [(group_records.group_metadata_key(group.group_id), None)]


def _offset_records(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[KeyValue]:
    return [
        (group_records.offset_commit_key(group_id, tp), group_records.offset_commit_value(offset))
        for tp, offset in offsets.items()
    ]


def ignore(_: int) -> None:
    """As a callback with an error code: nobody waits for it."""
