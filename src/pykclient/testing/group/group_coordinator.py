"""A broker's coordinator of classic consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from pykclient import errors
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from pykclient.record.record_batch import NO_SEQUENCE
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.group.consumer_group_manager import ConsumerGroupManager
from pykclient.testing.group.group_metadata import (
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    UNKNOWN_MEMBER_ID,
    CommittedOffset,
    GroupMetadata,
    SyncCallback,
)
from pykclient.testing.group.group_metadata_manager import E, Group, GroupMetadataManager
from pykclient.testing.group.group_rebalance import GroupRebalance, JoinAttempt, leave_each
from pykclient.testing.group.modern_groups import ConsumerGroup, ModernGroup, ShareGroup
from pykclient.testing.group.share_group_manager import PartitionMetadataClient, ShareGroupManager
from pykclient.testing.log.log_types import ProducerIdAndEpoch
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.share.group_config import GroupConfigManager
from pykclient.testing.share.persister import Persister
from pykclient.testing.transaction.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
    FirstBatch,
    TransactionSupportedOperation,
)
from pykclient.types import TopicPartition

#: From this version of OffsetCommit on, a missing group has an error code of its own (KIP-848).
_COMMIT_TELLS_MISSING_GROUP = 9

#: Called with the error code of each partition.
CommitCallback = Callable[[Mapping[TopicPartition, int]], None]
#: Called with an error code and, if that is 0, the offset of each partition (None if there is none), and the partitions
#: whose offsets depend on open transactions.
FetchCallback = Callable[[int, Mapping[TopicPartition, CommittedOffset | None], Collection[TopicPartition]], None]

#: The response error for each error of a transaction's coordinator. The client tries again.
_TRANSACTION_ERRORS: Final = {
    errors.NetworkError.code: errors.CoordinatorLoadInProgressError.code,
    errors.CoordinatorNotAvailableError.code: errors.CoordinatorLoadInProgressError.code,
    errors.NotCoordinatorError.code: errors.CoordinatorLoadInProgressError.code,
}


class GroupCoordinator:
    """The classic group protocol and committed offsets (Java: GroupCoordinator; KIP-62, KIP-345, KIP-394, KIP-814).

    Methods raise the BrokerError for the response, or answer through the callback argument, now or later, exactly once.

    Thread: loop
    """

    def __init__(
        self,
        broker: BrokerContext,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        group_configs: GroupConfigManager,
        persister: Persister,
        partition_metadata_client: PartitionMetadataClient,
        add_partitions_to_txn_manager: AddPartitionsToTxnManager,
    ) -> None:
        config = broker.config
        self._broker = broker
        self._metadata_cache = metadata_cache
        self._add_partitions_to_txn_manager = add_partitions_to_txn_manager
        self._log = broker.log_context.logger(__name__)
        self._manager = GroupMetadataManager(broker, replica_manager, metadata_cache)
        self.storage = self._manager.storage
        self._rebalance = GroupRebalance(broker, self._manager)
        self._consumer_groups = ConsumerGroupManager(broker, metadata_cache, self._manager, self._rebalance)
        self.share_groups = ShareGroupManager(
            broker, metadata_cache, group_configs, persister, partition_metadata_client, self._manager
        )
        self._min_session_timeout_ms: int = config["group.min.session.timeout.ms"]
        self._max_session_timeout_ms: int = config["group.max.session.timeout.ms"]
        self._max_size: int = config["group.max.size"]
        self._max_metadata_size: int = config["offset.metadata.max.bytes"]
        self._retention_ms: int = config["offsets.retention.minutes"] * 60_000
        self._check_interval_ms: int = config["offsets.retention.check.interval.ms"]

    def startup(self) -> None:
        """Accept requests. Groups arrive with the partitions that this broker is elected for."""
        self.storage.active = True
        self._metadata_cache.add_listener(self._on_metadata)
        self._broker.every(self._check_interval_ms, partial(self._manager.cleanup, self._retention_ms))

    def shutdown(self) -> None:
        """Stop all timers. Waiting members notice when their connections close."""
        self.storage.active = False
        for group in self._manager.groups.values():
            group.cancel_timers()

    @property
    def groups(self) -> Mapping[str, Group]:
        """The groups that this broker coordinates, by id."""
        return self._manager.groups

    # --- leadership

    def on_election(self, partition: int, epoch: int) -> None:
        """Take over a partition of __consumer_offsets, as this broker has become its leader."""
        self._manager.load(partition, epoch, self._on_group_loaded)

    def on_resignation(self, partition: int, epoch: int) -> None:
        """Give up a partition of __consumer_offsets. ``epoch`` is negative if the partition was deleted."""
        self._manager.unload(partition, epoch, self._on_group_unloaded)

    def _on_group_loaded(self, group: Group) -> None:
        if isinstance(group, ConsumerGroup):
            self._consumer_groups.schedule_sessions(group)
            return
        if isinstance(group, ShareGroup):
            # The next heartbeat restarts initializations that a previous coordinator had begun.
            group.initializing.clear()
            self.share_groups.schedule_sessions(group)
            return
        if len(group.members) > self._max_size:
            self._rebalance.prepare_rebalance(group, f"it has more than {self._max_size} members (group.max.size)")
        for member in list(group.members.values()):
            self._rebalance.reschedule_session(group, member)

    def _on_group_unloaded(self, group: Group) -> None:
        if isinstance(group, GroupMetadata):
            self._rebalance.abandon(group, errors.NotCoordinatorError.code)
        else:
            group.transition_to(DEAD, self._broker.loop.wall_ms)
            group.cancel_timers()
        group.offsets.abandon()

    def _on_metadata(self, topics: Collection[str]) -> None:
        if not self._manager.groups:
            return
        for group in self._manager.groups.values():
            if isinstance(group, ModernGroup):
                group.is_metadata_stale = True
        cache = self._metadata_cache
        gone = [topic for topic in topics if not cache.contains(topic)]
        if gone:
            self._manager.on_topics_deleted(gone)

    def _group_or_raise(self, group_id: str) -> Group:
        group = self._manager.groups.get(group_id)
        if group is None:
            raise errors.GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    def _classic_group_or_raise(self, group_id: str) -> GroupMetadata:
        group = self._manager.groups.get(group_id)
        if not isinstance(group, GroupMetadata):
            raise errors.UnknownMemberIdError(f"there is no classic group {group_id}")
        return group

    # --- members

    def join_group(self, attempt: JoinAttempt) -> None:
        """Handle JoinGroup. The response waits until all members have joined."""
        body = attempt.body
        try:
            group_id = self._manager.validate_group_status(body.group_id)
            timeout_ms = body.session_timeout_ms
            if not self._min_session_timeout_ms <= timeout_ms <= self._max_session_timeout_ms:
                raise errors.InvalidSessionTimeoutError(
                    f"a session of {timeout_ms} ms is not allowed here: {self._min_session_timeout_ms} "
                    f"(group.min.session.timeout.ms) to {self._max_session_timeout_ms} (group.max.session.timeout.ms)"
                )
            existing = self._manager.groups.get(group_id)
            if isinstance(existing, ConsumerGroup) and existing.members:
                self._consumer_groups.join(existing, attempt)
                return
            if body.member_id == UNKNOWN_MEMBER_ID:
                found = self._manager.group_of(GroupMetadata, group_id, may_create=True)
                if found is None:
                    raise errors.InconsistentGroupProtocolError(f"Group {group_id} is of another type.")
                group = found
            else:
                group = self._classic_group_or_raise(group_id)
        except errors.BrokerError as error:
            attempt.refuse(error, body.member_id)
            return
        self._rebalance.join(group, attempt)

    def sync_group(self, body: SyncGroupRequest, respond: SyncCallback) -> None:
        """Handle SyncGroup. The response waits for the leader's assignment."""
        try:
            group_id = self._manager.validate_group_status(body.group_id)
        except errors.CoordinatorLoadInProgressError as error:
            # The rebalance of this request ended with the previous coordinator.
            raise errors.RebalanceInProgressError(str(error)) from error
        group = self._manager.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._consumer_groups.sync(group, body, respond)
        else:
            self._rebalance.sync(self._classic_group_or_raise(group_id), body, respond)

    def heartbeat(self, body: HeartbeatRequest) -> None:
        """Handle Heartbeat: restart the member's session.

        Raises:
            RebalanceInProgressError: the member should join again.
        """
        try:
            group_id = self._manager.validate_group_status(body.group_id)
        except errors.CoordinatorLoadInProgressError:
            return  # sessions start when the group has been loaded
        found = self._manager.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            self._consumer_groups.classic_heartbeat(found, body)
            return
        group = self._classic_group_or_raise(group_id)
        group.validate_alive()
        member = group.member(body.member_id, body.group_instance_id)
        group.validate_generation(body.generation_id)
        self._rebalance.reschedule_session(group, member)
        if group.state is PREPARING_REBALANCE:
            raise errors.RebalanceInProgressError(f"group {group_id} is rebalancing: join again")

    def leave_group(
        self, group_id: str, leaving: Iterable[LeaveGroupRequest.MemberIdentity]
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Handle LeaveGroup, from one member or, for several members, from an administrator."""
        group_id = self._manager.validate_group_status(group_id)
        found = self._manager.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return self._consumer_groups.leave(found, leaving)
        group = found if isinstance(found, GroupMetadata) else None
        if group is not None:
            group.validate_alive()
        left: list[str] = []

        def remove(identity: LeaveGroupRequest.MemberIdentity) -> None:
            if group is None:
                raise errors.UnknownMemberIdError(f"there is no group {group_id}")
            left.append(self._remove_leaving_member(group, identity))

        responses = leave_each(leaving, remove)
        if group is not None and left:
            self._rebalance.update_after_removal(group, f"members {', '.join(left)} left")
        return responses

    def _remove_leaving_member(self, group: GroupMetadata, identity: LeaveGroupRequest.MemberIdentity) -> str:
        member_id = identity.member_id
        instance_id = identity.group_instance_id
        if group.remove_pending_member(member_id):
            return member_id
        if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
            # An administrator knows the instance, but not its current member id.
            member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
        member_id = group.member(member_id, instance_id).member_id
        self._log.info("%r: member %s leaves: %s", group, member_id, identity.reason or "not provided")
        group.remove(member_id)
        return member_id

    def modern_heartbeat(
        self,
        body: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        respond: Callable[[Any], None],
    ) -> None:
        """Handle ConsumerGroupHeartbeat or ShareGroupHeartbeat."""
        is_share = isinstance(body, ShareGroupHeartbeatRequest)
        manager: Any = self.share_groups if is_share else self._consumer_groups
        manager.validate(body)
        self._manager.validate_group_status(body.group_id)
        manager.heartbeat(body, client_id, client_host, respond)

    # --- offsets

    def commit_offsets(
        self,
        body: OffsetCommitRequest,
        api_version: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        respond: CommitCallback,
    ) -> None:
        """Handle OffsetCommit, from a member or from a client that only stores offsets."""
        group_id = self._manager.validate_group_status(body.group_id, may_be_empty=True)
        generation_id = body.generation_id_or_member_epoch
        group = self._manager.groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                missing = api_version >= _COMMIT_TELLS_MISSING_GROUP
                raise (errors.GroupIdNotFoundError if missing else errors.IllegalGenerationError)(
                    f"Group {group_id} not found."
                )
            group = self._manager.get_or_create_group(group_id)
        if isinstance(group, ModernGroup):
            group.validate_commit(body.member_id, generation_id, api_version)
        else:
            member = group.validate_offset_commit(body.member_id, body.group_instance_id, generation_id)
            if member is not None:
                self._rebalance.reschedule_session(group, member)
        self._store_accepted(partial(self._manager.store_offsets, group), offsets, respond)

    def _store_accepted(
        self,
        store: Callable[[Mapping[TopicPartition, CommittedOffset], Callable[[int], None]], None],
        offsets: Mapping[TopicPartition, CommittedOffset],
        respond: CommitCallback,
    ) -> None:
        """Store those of the offsets whose metadata is not too long."""
        limit = self._max_metadata_size
        accepted = {tp: offset for tp, offset in offsets.items() if len(offset.metadata) <= limit}

        def stored(error_code: int) -> None:
            too_large = errors.OffsetMetadataTooLargeError.code
            respond({tp: error_code if tp in accepted else too_large for tp in offsets})

        if accepted:
            store(accepted, stored)
        else:
            stored(0)

    def commit_transactional_offsets(
        self,
        body: TxnOffsetCommitRequest,
        operation: TransactionSupportedOperation,
        offsets: Mapping[TopicPartition, CommittedOffset],
        respond: CommitCallback,
    ) -> None:
        """Handle TxnOffsetCommit: store offsets that are committed with the producer's transaction (KIP-98, KIP-447).

        The transaction's coordinator must agree first, as for records.
        """
        group_id = self._manager.validate_group_status(body.group_id)
        producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        log = self.storage.topic_partition_for(group_id)

        def verified(
            codes: Mapping[TopicPartition, int], tokens: Mapping[TopicPartition, VerificationState | None]
        ) -> None:
            error_code = codes.get(log, 0)
            try:
                group = None if error_code else self._group_for_transaction(body)
            except errors.BrokerError as error:
                group, error_code = None, error.code
            if group is None:
                respond(dict.fromkeys(offsets, _TRANSACTION_ERRORS.get(error_code, error_code)))
            else:
                store = partial(self._manager.store_transactional_offsets, group, producer, tokens.get(log))
                self._store_accepted(store, offsets, respond)

        batches = {log: FirstBatch(producer, NO_SEQUENCE)}
        self._add_partitions_to_txn_manager.verify(body.transactional_id, batches, operation, verified)

    def _group_for_transaction(self, body: TxnOffsetCommitRequest) -> Group:
        """Return the group, if the sender's member and generation are valid; senders before KIP-447 have neither."""
        group_id = self._manager.validate_group_status(body.group_id)
        group = self._manager.groups.get(group_id)
        if group is None:
            if body.generation_id >= 0:
                raise errors.IllegalGenerationError(f"Group {group_id} not found.")
            return self._manager.get_or_create_group(group_id)
        if isinstance(group, ModernGroup):
            group.validate_commit(body.member_id, body.generation_id, None)
            return group
        group.validate_alive()
        anonymous = body.member_id == UNKNOWN_MEMBER_ID and body.group_instance_id is None
        if body.generation_id < 0 and (group.state is EMPTY or anonymous):
            return group
        self._rebalance.reschedule_session(group, group.member(body.member_id, body.group_instance_id))
        group.validate_generation(body.generation_id)
        return group

    def on_transaction_completed(
        self, partition: int, producer_id: int, marker_offset: int, *, committed: bool
    ) -> None:
        """Commit or discard a transaction's offsets, when its marker is written to this partition's log."""
        self._manager.end_transaction(partition, producer_id, marker_offset, committed=committed)

    def fetch_offsets(
        self,
        group_id: str | None,
        partitions: Collection[TopicPartition] | None,
        require_stable: bool,
        respond: FetchCallback,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> None:
        """Handle OffsetFetch; ``partitions`` None means all offsets of the group.

        A member of the consumer protocol names itself and its epoch, which must be valid.
        With ``require_stable`` the response waits for commits in flight, and names the partitions whose offsets an open
        transaction has sent (KIP-447).
        """
        group_id = self._manager.validate_group_status(group_id, may_be_empty=True)
        group = self._manager.groups.get(group_id)
        if isinstance(group, ModernGroup):
            group.validate_fetch(member_id, member_epoch)

        def answer() -> None:
            if group is not None and group.state is DEAD:
                respond(errors.NotCoordinatorError.code, {}, ())
                return
            committed = {} if group is None else group.offsets.committed
            found = {tp: committed.get(tp) for tp in (committed if partitions is None else partitions)}
            unstable: Collection[TopicPartition] = ()
            if group is not None and require_stable:
                unstable = {tp for tp in found if group.offsets.is_unstable(tp)}
            respond(0, found, unstable)

        if group is not None and require_stable:
            group.offsets.when_stable(answer)
        else:
            answer()

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition], respond: CommitCallback) -> None:
        """Handle OffsetDelete (KIP-496). Offsets of topics that the group reads cannot be deleted."""
        group = self._group_or_raise(self._manager.validate_group_status(group_id))
        group.validate_offset_delete()
        in_use = group.state is not EMPTY
        subscribed = errors.GroupSubscribedToTopicError.code
        refused = {tp: subscribed for tp in partitions if in_use and group.is_subscribed_to_topic(tp.topic)}
        deleted = [tp for tp in partitions if tp not in refused]
        self._manager.delete_offsets(
            group, deleted, lambda error_code: respond({**refused, **dict.fromkeys(deleted, error_code)})
        )

    # --- administration

    def list_groups(self) -> list[Group]:
        """Return all groups of this broker.

        Raises:
            CoordinatorNotAvailableError, CoordinatorLoadInProgressError: the coordinator is not ready.
        """
        self.storage.validate_all_loaded()
        return list(self._manager.groups.values())

    def describe_group(self, kind: type[E], group_id: str) -> E:
        """Return a group of a protocol.

        Raises:
            GroupIdNotFoundError: there is no such group.
        """
        group_id = self._manager.validate_group_status(group_id, may_be_empty=kind is GroupMetadata)
        return self._manager.existing(kind, group_id)

    def delete_group(self, group_id: str, respond: Callable[[int], None]) -> None:
        """Handle DeleteGroups (KIP-229) for one group. It must have no members; its offsets are deleted too."""
        group = self._group_or_raise(self._manager.validate_group_status(group_id, may_be_empty=True))
        group.validate_delete()
        if isinstance(group, ShareGroup):
            self._delete_share_group(group, respond)
        else:
            self._manager.delete_group(group, respond)

    def _delete_share_group(self, group: ShareGroup, respond: Callable[[int], None]) -> None:
        def state_deleted(code: int) -> None:
            if code:
                respond(code)
            elif group.is_dead:
                respond(errors.NotCoordinatorError.code)
            else:
                self._manager.delete_group(group, respond)

        self.share_groups.delete_all_offsets(group, state_deleted)
