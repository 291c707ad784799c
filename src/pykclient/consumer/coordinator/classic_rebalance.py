"""Membership by the classic group protocol: subscriptions, JoinGroup and SyncGroup, and the assignment that follows.

Java: ConsumerProtocol, MetadataSnapshot, ConsumerCoordinator, AbstractCoordinator; the other protocol's
ConsumerMembershipManager has such a state machine. KIP-394 (member ids), KIP-559 (protocol names), KIP-800 (reasons),
KIP-814 (a returning static leader does not assign).

The coordinator passes subscriptions and assignments on undecoded, in the encoding of Java's ConsumerProtocol: a version
prefix of two bytes, then the fields. Newer versions only add fields at the end, so an unknown version is decoded as the
newest known one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import (
    NOTHING,
    ApplicationCall,
    PollResult,
    Steps,
    UnsentRequest,
)
from pykclient.consumer.consumer_metadata import PatternSubscription
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.classic_membership import HeartbeatRequestManager, LeaveGroupRequestManager
from pykclient.consumer.coordinator.coordinator_request_manager import handled, unexpected
from pykclient.consumer.coordinator.group_member import (
    ClassicMemberMetrics,
    GroupMember,
    MemberManager,
    moved,
    names,
)
from pykclient.consumer.coordinator.membership import (
    NO_GENERATION,
    STABLE,
    Generation,
    raise_first,
)
from pykclient.consumer.partition_assignors import (
    COOPERATIVE,
    EAGER,
    Assignment,
    ConsumerPartitionAssignor,
    Subscription,
    numbers_by_topic,
)
from pykclient.network.metadata import Cluster
from pykclient.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.application_driver import RequestFuture
    from pykclient.consumer.coordinator.classic_membership import ClassicMembership
    from pykclient.consumer.coordinator.commit_request_manager import CommitBeforeRevoke, CommitRequestManager
    from pykclient.consumer.coordinator.group_member import MemberContext
    from pykclient.protocol.messages.join_group import JoinGroupResponse
    from pykclient.protocol.messages.sync_group import SyncGroupResponse

PROTOCOL_TYPE = "consumer"
#: 1 added owned partitions (KIP-429), 2 the generation id, 3 the rack (KIP-881).
HIGHEST_VERSION = ConsumerProtocolSubscription.VERSIONS[1]


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise errors.RemoteProtocolError(f"version {version} of the consumer protocol does not exist")
    return min(version, HIGHEST_VERSION)


def _partitions(
    topics: Iterable[ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition],
) -> list[TopicPartition]:
    partitions = [TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions]
    for tp in partitions:
        if tp.partition < 0:
            raise errors.RemoteProtocolError(f"topic {tp.topic!r} cannot have a partition {tp.partition}")
    return partitions


def serialize_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Encode the metadata of a JoinGroup request."""
    owned = numbers_by_topic(sorted(subscription.owned_partitions))
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in owned.items()
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return _prefixed(message, version)


def deserialize_subscription(buffer: BytesLike) -> Subscription:
    """Decode another member's subscription.

    Raises:
        RemoteProtocolError: the bytes are not a subscription.
    """
    reader = Reader(buffer)
    message = ConsumerProtocolSubscription.read(reader, _read_version(reader))
    return Subscription(
        message.topics,
        message.user_data,
        _partitions(message.owned_partitions),
        message.generation_id,
        message.rack_id or None,
    )


def serialize_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """Encode the assignment of a SyncGroup request."""
    assigned = numbers_by_topic(assignment.partitions)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in assigned.items()
        ],
        user_data=assignment.user_data,
    )
    return _prefixed(message, version)


def deserialize_assignment(buffer: BytesLike) -> Assignment:
    """Decode an assignment from the leader.

    Raises:
        RemoteProtocolError: the bytes are not an assignment.
    """
    reader = Reader(buffer)
    message = ConsumerProtocolAssignment.read(reader, _read_version(reader))
    return Assignment(_partitions(message.assigned_partitions), message.user_data)


def _prefixed(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    version = min(version, HIGHEST_VERSION)
    writer = Writer()
    writer.int16(version)
    message.write(writer, version)
    return writer.getvalue()


class PartitionSnapshot:
    """The partitions of some topics, with the racks of their replicas if this consumer has a rack. Thread: any."""

    def __init__(self, rack_id: str | None, topics: Iterable[str], cluster: Cluster, version: int) -> None:
        self.version = version
        self._partitions: dict[str, tuple[frozenset[str | None], ...]] = {}
        for topic in topics:
            infos = cluster.partitions_for_topic(topic)
            if infos:
                self._partitions[topic] = tuple(
                    frozenset(node.rack for node in info.replicas) if rack_id else frozenset()
                    for info in sorted(infos, key=lambda info: info.partition)
                )

    def matches(self, other: PartitionSnapshot) -> bool:
        """Return whether an assignment would be the same for both."""
        return self.version == other.version or self._partitions == other._partitions

    def __str__(self) -> str:
        counts = ", ".join(f"{topic}: {len(partitions)}" for topic, partitions in sorted(self._partitions.items()))
        return f"version {self.version} of metadata (partitions of {counts or 'no topic'})"


#: Assignors that assign only subscribed topics.
_ASSIGN_FROM_SUBSCRIBED = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))
#: This assignor itself prevents partitions from having two owners.
_COOPERATIVE_STICKY = "cooperative-sticky"


class ConsumerGroupProtocol(MemberManager):
    """Subscribes to the group's topics, assigns partitions as the leader, and applies assignments.

    Thread: application.
    """

    def __init__(
        self,
        context: MemberContext,
        membership: ClassicMembership,
        commits: CommitRequestManager,
        pattern: PatternSubscription,
    ) -> None:
        super().__init__(context)
        self._membership = membership
        self._commits = commits
        self._pattern = pattern
        self._assignors = context.consumer.assignors
        self._listeners = context.listeners
        self._protocol = _common_protocol(self._assignors)
        self.is_leader = False  # as of the last join
        self._joined_subscription: frozenset[str] | None = None
        self._metadata_snapshot = self._snapshot_of(self._metadata.fetch(), self._metadata.update_version)
        self._assignment_snapshot: PartitionSnapshot | None = None
        # As the leader: the assignor, the members' subscriptions, or None to keep the assignment, and their topics.
        self._assignor: ConsumerPartitionAssignor | None = None
        self._members: dict[str, Subscription] | None = None
        self._topics: set[str] = set()
        #: True if the leader has assigned topics whose metadata it must have before it sends the assignment.
        self.awaits_topics = False
        #: This member's place in the group, as of the last completed join.
        self.group_metadata = ConsumerGroupMetadata(
            self._config.group_id, group_instance_id=self._config.group_instance_id
        )

    def check_assignors(self) -> None:
        """Raise IllegalStateError if there are no assignors."""
        if self._protocol is None:
            raise errors.IllegalStateError(
                "partition.assignment.strategy is empty, so subscribe() cannot work; use assign()"
            )

    # --- metadata ----------------------------------------------------------------------------------------------------

    def metadata_updated(self) -> None:
        """Process metadata that arrived since the last call."""
        version = self._metadata.update_version
        if version <= self._metadata_snapshot.version:
            return
        cluster = self._metadata.fetch()
        if cluster.is_bootstrap_configured:
            # All nodes were lost, and the client starts again from the bootstrap servers (KIP-899). Without this check
            # the leader would consider all topics deleted: it would rebalance the group, and a pattern would match
            # nothing.
            return
        if self._subscriptions.has_pattern_subscription():
            self._pattern.match(cluster)
        self._metadata_snapshot = self._snapshot_of(cluster, version)

    def _snapshot_of(self, cluster: Cluster, version: int) -> PartitionSnapshot:
        return PartitionSnapshot(self._config.rack_id, self._subscriptions.metadata_topics(), cluster, version)

    def rejoin_needed(self) -> bool:
        """Return whether this member must rejoin, for example because its subscription or topics changed."""
        snapshot = self._assignment_snapshot
        current = self._metadata_snapshot
        if snapshot is not None and snapshot is not current and not snapshot.matches(current):
            self._membership.request_rejoin_if_necessary(
                "cached metadata has changed",
                f"the assignment was made from {snapshot}, there is {current} now",
            )
            return True
        if snapshot is not None:
            # Both have the same partitions, and the next check can skip comparing them.
            self._assignment_snapshot = current
        joined, subscription = self._joined_subscription, self._subscriptions.subscription()
        if joined is not None and joined != subscription:
            self._membership.request_rejoin_if_necessary(
                "subscription has changed", f"the subscription was {sorted(joined)}, it is {sorted(subscription)} now"
            )
            return True
        return self._membership.rejoin_needed

    # --- before joining --------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Return no more records of partitions that are about to be revoked."""
        if self._protocol == EAGER:
            self._subscriptions.mark_pending_revocation(self._subscriptions.assigned_partitions())

    def revoke(self, generation: Generation) -> Steps[None]:
        """Give up partitions before joining again, after ``generation``.

        Raises:
            KafkaError: the listener raised; this is complete nevertheless.
        """
        owned = self._subscriptions.assigned_partitions()
        failure: Exception | None = None
        if generation.generation_id == NO_GENERATION.generation_id or not generation.has_member_id:
            if owned:
                self._log.info("The membership has ended, so other members may own these partitions already")
                failure = yield from self._listeners.invoke("lost", owned)
                self._subscriptions.assign_from_subscribed(())
            elif self._protocol == EAGER and self._listeners.follows_rebalances:
                failure = yield from self._listeners.invoke("revoked", owned)
        elif self._protocol == EAGER:
            failure = yield from self._listeners.invoke("revoked", owned)
            self._subscriptions.assign_from_subscribed(())
        else:
            subscription = self._subscriptions.subscription()
            revoked = {tp for tp in owned if tp.topic not in subscription}
            if revoked:
                failure = yield from self._listeners.invoke("revoked", revoked)
                self._subscriptions.assign_from_subscribed(owned - revoked)
        self._subscriptions.reset_group_subscription()
        raise_first([failure])

    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave.

        Raises:
            KafkaError: the listener raised; this is complete nevertheless.
        """
        generation = self._membership.generation  # the heartbeat thread may change it at any time
        owned = self._subscriptions.assigned_partitions()
        if not owned or not self._subscriptions.is_auto_assigned:
            return
        if (
            generation.generation_id == NO_GENERATION.generation_id
            or not generation.has_member_id
            or self._membership.rebalance_in_progress
        ):
            failure = yield from self._listeners.invoke("lost", owned)
        else:
            failure = yield from self._listeners.invoke("revoked", owned)
        self._subscriptions.assign_from_subscribed(())
        raise_first([failure])

    def offers(self) -> Steps[Sequence[tuple[str, bytes]]]:
        """Return the offered assignors with this member's subscription, the preferred one first."""
        topics = self._joined_subscription = self._subscriptions.subscription()
        owned = self._subscriptions.assigned_partitions_list()
        generation_id = self._membership.generation.generation_id
        offers = []
        for assignor in self._assignors:
            user_data = yield ApplicationCall(partial(assignor.subscription_user_data, topics), uses_consumer=False)
            subscription = Subscription(sorted(topics), user_data, owned, generation_id, self._config.rack_id)
            offers.append((assignor.name, serialize_subscription(subscription)))
        return offers

    # --- as the leader ---------------------------------------------------------------------------------------------

    def _assignor_named(self, name: str) -> ConsumerPartitionAssignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise errors.IllegalStateError(f"the coordinator chose the assignor {name!r}, which this member did not offer")

    def elect(
        self, protocol_name: str, members: Sequence[JoinGroupResponse.JoinGroupResponseMember], skip_assignment: bool
    ) -> None:
        """Begin to assign, by watching the topics of all members: any change in them makes the leader rebalance.

        Raises:
            KafkaError: a member's subscription cannot be read.
        """
        self._assignor = self._assignor_named(protocol_name)
        subscriptions: dict[str, Subscription] = {}
        self._topics = set()
        for member in members:
            subscription = deserialize_subscription(member.metadata)
            subscription = subscription._replace(group_instance_id=member.group_instance_id)
            subscriptions[member.member_id] = subscription
            self._topics.update(subscription.topics)
        self._members = None if skip_assignment else subscriptions
        self._watch(self._topics)

    def _watch(self, topics: Collection[str]) -> None:
        if self._subscriptions.group_subscribe(topics):
            self._metadata.request_update_for_new_topics()

    def distribute(self) -> Steps[Mapping[str, bytes]]:
        """Return each member's assignment; nothing if the current one is kept."""
        self.awaits_topics = False
        self.metadata_updated()
        # Made of what the assignor gets, so that no change after it is overlooked. A rebootstrap may have emptied it.
        version, cluster = self._metadata.update_version, self._metadata.fetch()
        self._assignment_snapshot = self._snapshot_of(cluster, version)
        assignor, subscriptions = self._assignor, self._members
        if subscriptions is None or assignor is None:
            self._log.info("This static member is the leader again; keeping the current assignment")
            return {}
        assignments: Mapping[str, Assignment] = yield ApplicationCall(
            partial(assignor.assign, cluster, subscriptions), uses_consumer=False
        )
        if strangers := assignments.keys() - subscriptions.keys():
            self._log.warning(
                "Assignor %s assigned partitions to %s, which are not members of the group; ignoring these",
                assignor.name,
                ", ".join(sorted(strangers)),
            )
            assignments = {member_id: given for member_id, given in assignments.items() if member_id in subscriptions}
        if self._protocol == COOPERATIVE and assignor.name != _COOPERATIVE_STICKY:
            _validate_cooperative_assignment(subscriptions, assignments)
        if assignor.name not in _ASSIGN_FROM_SUBSCRIBED:
            self._take_note_of_other_topics(assignments)
        self._log.info(
            "Assigned as leader by %s: %s",
            assignor.name,
            "; ".join(f"{member_id}: {names(given.partitions)}" for member_id, given in sorted(assignments.items())),
        )
        # Members that the assignor left out get an empty assignment: Java members cannot decode zero bytes.
        return {
            member_id: serialize_assignment(assignments.get(member_id) or Assignment(())) for member_id in subscriptions
        }

    def distributed(self) -> None:
        """Watch also the topics whose metadata has been fetched for the assignment."""
        if self.awaits_topics:
            self.metadata_updated()
            self._assignment_snapshot = self._metadata_snapshot

    def _take_note_of_other_topics(self, assignments: Mapping[str, Assignment]) -> None:
        """Watch topics that no member has subscribed to, which an application's assignor may assign."""
        assigned = {tp.topic for assignment in assignments.values() for tp in assignment.partitions}
        if left_out := self._topics - assigned:
            self._log.warning("No partitions were assigned of the topics %s", ", ".join(sorted(left_out)))
        if added := assigned - self._topics:
            self._log.info("The assignor assigned topics that no member subscribes to: %s", ", ".join(sorted(added)))
            self._watch(self._topics | added)
            self.awaits_topics = True

    # --- the assignment --------------------------------------------------------------------------------------------

    def assigned(self, generation: Generation, assignment: bytes) -> Steps[None]:
        """Apply the assignment. If this raises, the next poll of the application runs it again.

        Raises:
            RemoteProtocolError: the assignment cannot be read.
            KafkaError: the listener or the assignor raised; this is complete nevertheless.
        """
        if not self.is_leader:  # only the leader watches the metadata
            self._assignment_snapshot = None
        assignor = self._assignor_named(generation.protocol_name or "")
        self.group_metadata = ConsumerGroupMetadata(
            self._config.group_id, generation.generation_id, generation.member_id, self._config.group_instance_id
        )
        try:
            # No bytes: the leader's assignor left this member out.
            given = deserialize_assignment(assignment) if assignment else Assignment(())
        except errors.RemoteProtocolError as error:
            raise errors.RemoteProtocolError(f"the leader sent an assignment that cannot be read: {error}") from error
        assigned = sorted(given.partitions)
        if not self._subscriptions.check_assignment_matched_subscription(assigned):
            self._membership.request_rejoin(
                "received assignment does not match the current subscription",
                f"the assignment ({names(assigned)}) is for an older subscription than {self._subscriptions}",
            )
            return
        yield from self._take_assignment(assignor, Assignment(assigned, given.user_data))

    def _take_assignment(self, assignor: ConsumerPartitionAssignor, assignment: Assignment) -> Steps[None]:
        owned = self._subscriptions.assigned_partitions()
        added = [tp for tp in assignment.partitions if tp not in owned]
        failures: list[Exception | None] = []
        if self._protocol == COOPERATIVE:
            revoked = owned.difference(assignment.partitions)
            if revoked:
                # The state changes after the application was notified.
                failures.append((yield from self._listeners.invoke("revoked", revoked)))
                self._membership.request_rejoin(
                    "need to revoke partitions and re-join", f"given back: {names(revoked)}"
                )
        self._maybe_update_joined_subscription(assignment.partitions)
        try:
            yield ApplicationCall(partial(assignor.on_assignment, assignment, self.group_metadata), uses_consumer=False)
        except Exception as error:  # noqa: BLE001 - the application's code; raised below, when the state is right
            failures.append(error)
        self._commits.reschedule_auto_commit()
        self._subscriptions.assign_from_subscribed(assignment.partitions)
        failures.append((yield from self._listeners.invoke("assigned", added)))
        raise_first(failures)

    def _maybe_update_joined_subscription(self, partitions: Collection[TopicPartition]) -> None:
        """Extend the joined subscription.

        The leader may know more topics that match the pattern than this member did when it joined.
        """
        joined = self._joined_subscription
        if joined is None or not self._subscriptions.has_pattern_subscription():
            return
        added = {tp.topic for tp in partitions} - joined
        if added:
            if self._subscriptions.subscribe_from_pattern(self._subscriptions.subscription() | added):
                self._metadata.request_update_for_new_topics()
            self._joined_subscription = joined | added


def _common_protocol(assignors: Sequence[ConsumerPartitionAssignor]) -> int | None:
    """Return the highest rebalance protocol that all assignors support; None without assignors."""
    if not assignors:
        return None
    common = set.intersection(*(set(assignor.supported_protocols) for assignor in assignors))
    if not common:
        offered = ", ".join(assignor.name for assignor in assignors)
        raise errors.ConfigError(f"partition.assignment.strategy: {offered} have no rebalance protocol in common")
    return max(common)


def _validate_cooperative_assignment(
    subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]
) -> None:
    """Check that no partition moves directly from one member to another, as its owner still reads it (KIP-429)."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, assignment in assignments.items():
        owned = set(subscriptions[member_id].owned_partitions)
        added |= set(assignment.partitions) - owned
        revoked |= owned.difference(assignment.partitions)
    if added & revoked:
        raise errors.IllegalStateError(
            f"the assignor supports COOPERATIVE but gives partitions away that still have an owner: "
            f"{names(added & revoked)}"
        )


class RebalanceStep(NamedTuple):
    """A step of a member towards its next assignment. Thread: any."""

    name: str
    needs_application: bool = False  # only a poll of the application leads on from here

    def __repr__(self) -> str:
        return self.name


#: There is nothing to do, or the next poll of the application begins a rebalance.
RESTING = RebalanceStep("RESTING", needs_application=True)
#: A pattern is matched with fresh metadata first.
REFRESHING = RebalanceStep("REFRESHING")
#: The offsets of the partitions to be revoked are being committed.
COMMITTING = RebalanceStep("COMMITTING")
#: The application revokes partitions, and its assignors say what to offer.
PREPARING = RebalanceStep("PREPARING", needs_application=True)
#: JoinGroup is to be sent.
READY = RebalanceStep("READY")
#: JoinGroup is in flight.
JOINING = RebalanceStep("JOINING")
#: The leader waits for the metadata of all members' topics.
ELECTED = RebalanceStep("ELECTED")
#: The application's assignor assigns partitions to the members.
DISTRIBUTING = RebalanceStep("DISTRIBUTING", needs_application=True)
#: SyncGroup is to be sent, once the leader has the metadata of all topics that it has assigned.
JOINED = RebalanceStep("JOINED")
#: SyncGroup is in flight.
SYNCING = RebalanceStep("SYNCING")
#: The application is told its assignment.
ASSIGNING = RebalanceStep("ASSIGNING", needs_application=True)

#: From each step a rebalance may also fail or end, back to RESTING.
STEPS: dict[RebalanceStep, frozenset[RebalanceStep]] = {
    RESTING: frozenset((REFRESHING, COMMITTING, PREPARING)),
    REFRESHING: frozenset((COMMITTING, PREPARING)),
    COMMITTING: frozenset((PREPARING,)),
    PREPARING: frozenset((READY,)),
    READY: frozenset((JOINING,)),
    JOINING: frozenset((ELECTED, JOINED)),
    ELECTED: frozenset((DISTRIBUTING,)),
    DISTRIBUTING: frozenset((JOINED,)),
    JOINED: frozenset((SYNCING,)),
    SYNCING: frozenset((ASSIGNING,)),
    ASSIGNING: frozenset(),
}


def step(current: RebalanceStep, to: RebalanceStep) -> RebalanceStep:
    """Return ``to``.

    Raises:
        IllegalStateError: the table does not have this transition.
    """
    if to is not RESTING and to not in STEPS[current]:
        raise errors.IllegalStateError(f"a rebalance cannot go from {current} to {to}")
    return to


if TYPE_CHECKING:
    Members = Sequence[JoinGroupResponse.JoinGroupResponseMember]
#: The coordinator answers JoinGroup within the rebalance timeout; this is added for the network.
JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000
#: A rebalance that failed with one of these errors is restarted at once.
_REJOIN_AT_ONCE = (
    errors.UnknownMemberIdError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    errors.MemberIdRequiredError,
)
#: Errors that the application gets as they are, unless the rebalance is restarted.
_UNDERSTOOD = (
    *_REJOIN_AT_ONCE,
    errors.RetriableError,
    errors.FencedInstanceIdError,
    errors.GroupAuthorizationError,
    errors.InvalidGroupIdError,
    errors.UnsupportedVersionError,
)


class _Rebalance(NamedTuple):
    """A rebalance as its log line tells of it: its beginning, its reason, and the partitions owned before it."""

    began_ms: int
    reason: str
    owned: frozenset[TopicPartition]


class UnjoinedGroupError(errors.RetriableError):
    """The member left the group while JoinGroup was in flight."""


class ClassicMembershipManager(GroupMember):
    """A member that joins by JoinGroup and SyncGroup: its rebalances, in the steps of ``membership``.

    Only ``advance`` begins a rebalance, so that it begins inside of ``poll()`` of the application, before that looks
    for records. Thread: application.
    """

    membership: ClassicMembership
    heartbeats: HeartbeatRequestManager

    def __init__(self, context: MemberContext, membership: ClassicMembership, commits: CommitRequestManager) -> None:
        super().__init__(context)
        self._commits = commits
        self.membership = membership
        self._sensors = ClassicMemberMetrics(context.metrics, membership)
        self.protocol = ConsumerGroupProtocol(context, membership, commits, self._pattern)
        self.leaving = LeaveGroupRequestManager(
            context, membership, lambda: self.is_joining, lambda: self.is_join_in_flight
        )
        self.heartbeats = HeartbeatRequestManager(context, membership, self._sensors.heartbeat, self.leaving)
        self.managers = (self, self.heartbeats, self.leaving)
        self._step = RESTING
        self._failure: Exception | None = None  # for the application
        self._fresh_after: int | None = None  # the version of the metadata that a newer one is awaited for
        self._deadline_ms = FOREVER_MS  # of ELECTED and JOINED
        self._commit: CommitBeforeRevoke | None = None
        self._must_revoke = False
        self._offered: Sequence[tuple[str, bytes]] = ()
        self._failures = 0
        self._next_join_ms = context.clock.now_ms()
        self._generation: Generation | None = None  # of the rebalance in progress
        self._rebalance: _Rebalance | None = None  # the one in progress, with all its attempts
        self._assignments: Mapping[str, bytes] = {}  # by the leader
        self._assignment = b""  # of this member

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member's place in the group, as of the last completed join."""
        return self.protocol.group_metadata

    def check_subscription(self) -> None:
        """Raise IllegalStateError if there are no assignors."""
        self.protocol.check_assignors()

    def check_broker_pattern(self) -> None:
        """Raise IllegalArgumentError: with this protocol, members match patterns."""
        raise errors.IllegalArgumentError(
            "the brokers match patterns only with group.protocol=consumer; set that, or subscribe to re.compile(...), "
            "which the client matches"
        )

    def metadata_updated(self) -> None:
        """Process metadata that arrived since the last call."""
        self.protocol.metadata_updated()

    # --- each poll ---------------------------------------------------------------------------------------------------

    def raise_failure(self) -> None:
        """Raise the error that ended the membership, once; joining starts the heartbeats again."""
        failure, self.heartbeats.failure = self.heartbeats.failure, None
        if failure is not None:
            self.heartbeat_thread_failed(failure)
            raise failure

    def heartbeat_thread_failed(self, failure: Exception) -> None:
        """Join again, as the coordinator may have removed this member meanwhile."""
        self.membership.request_rejoin_if_necessary("heartbeats failed", f"heartbeats failed: {failure}")

    @property
    def is_rebalancing(self) -> bool:
        """True if this member must join, or complete a join in progress."""
        if not self._subscriptions.is_auto_assigned:
            return False
        return self._step is not RESTING or self.protocol.rejoin_needed()

    # --- for the application's poll ----------------------------------------------------------------------------------

    @property
    def is_joining(self) -> bool:
        """True while JoinGroup or SyncGroup is in flight, which the coordinator may hold back for minutes."""
        return self._step is JOINING or self._step is SYNCING

    @property
    def is_join_in_flight(self) -> bool:
        """True while JoinGroup is in flight."""
        return self._step is JOINING

    @property
    def needs_application(self) -> bool:
        """True if the application must call ``advance``."""
        if self._step is REFRESHING:
            return self._has_fresh_metadata()
        return self._step.needs_application or self._failure is not None

    def advance(self, now_ms: int) -> None:
        """Begin a rebalance, or queue the next steps of the application.

        Raises the error of an attempt that no retry will fix; the next call begins another one.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._step is RESTING and self._subscriptions.has_pattern_subscription():
            # Members see a new topic at different times, and each would rebalance the group. Checking the metadata
            # first makes one rebalance enough. It must have been matched once before joining anyway.
            if self._metadata.time_to_allow_update(now_ms) == 0:
                self._metadata.request_update(True)
            self._await_fresh_metadata(now_ms)
            self._move(REFRESHING)
        if self._step is RESTING or (self._step is REFRESHING and self._has_fresh_metadata()):
            self.protocol.metadata_updated()
            self._begin(now_ms)
        if self._step.needs_application and not self.events:
            # Also again, if an exception has interrupted them.
            if self._step is PREPARING:
                self.events.add(self._prepare())
            elif self._step is DISTRIBUTING:
                self.events.add(self._distribute())
            elif self._step is ASSIGNING:
                self.events.add(self._assign())

    def _begin(self, now_ms: int) -> None:
        if self._rebalance is None:
            reason = self.membership.rejoin_reason or "this member is new"
            self._rebalance = _Rebalance(now_ms, reason, frozenset(self._subscriptions.assigned_partitions()))
        # Taken first, so that an application callback that raises is not called again by the next poll().
        self._must_revoke = self._must_revoke or self.membership.take_join_prepare()
        self._commit = self._commits.commit_before_revoke(now_ms) if self._must_revoke else None
        if self._commit is not None:
            self.protocol.suspend()
        self._move(PREPARING if self._commit is None else COMMITTING)

    def stop(self) -> None:
        """End the rebalance, as the application leaves the group."""
        self.events.clear()
        self._failure = self._rebalance = None
        self._must_revoke = False
        if not self.is_joining:  # then the response ends it
            self._move(RESTING)

    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave."""
        return self.protocol.revoke_all()

    @property
    def waits_for_others(self) -> bool:
        """True while the coordinator's own connection may be held up for minutes."""
        return self.leaving.waits_for_others

    def leave(self, operation: str, reason: str, *, is_closing: bool = False) -> RequestFuture[None] | None:
        """End the membership; send LeaveGroup if this is a member and ``operation`` allows it.

        Return the future of the request, or None without one. Thread: the holder of the I/O lease.
        """
        return self.leaving.leave(operation, reason, is_closing=is_closing)

    def _move(self, to: RebalanceStep) -> None:
        self._step = step(self._step, to)

    # --- the application's steps -------------------------------------------------------------------------------------

    def _prepare(self) -> Steps[None]:
        must_revoke, self._must_revoke = self._must_revoke, False
        try:
            if must_revoke:
                yield from self.protocol.revoke(self.membership.generation)
            self._offered = yield from self.protocol.offers()
        except Exception:
            self._move(RESTING)
            raise
        self._move(READY)

    def _distribute(self) -> Steps[None]:
        try:
            self._assignments = yield from self.protocol.distribute()
        except Exception as error:
            self._attempt_failed(error)
            self._failure = None  # raised here
            raise
        if self.protocol.awaits_topics:
            self._await_fresh_metadata(self._clock.now_ms())
        self._move(JOINED)

    def _assign(self) -> Steps[None]:
        generation, state = self.membership.snapshot()
        if generation.is_reset or state is not STABLE:
            # The heartbeat has shown that the membership ended after SyncGroup was answered.
            self._move(RESTING)
            reason = f"{generation} ended in {state} during the rebalance"
            self.membership.reset_and_rejoin(reason)
            return
        yield from self.protocol.assigned(generation, self._assignment)
        # Only now, so that the next poll completes an application callback that was woken up.
        self._failures = 0
        self.membership.needs_join_prepare = True
        self._move(RESTING)
        self._log_rebalance(generation)

    def _log_rebalance(self, generation: Generation) -> None:
        """Log who rebalanced, why, for how long, and what has moved."""
        done, self._rebalance = self._rebalance, None
        if done is None:
            return
        owned = frozenset(self._subscriptions.assigned_partitions())
        self._log.info(
            "Rebalanced in %d ms to %s%s: gained %s, gave back %s, has %d partitions. Why: %s",
            self._clock.now_ms() - done.began_ms,
            generation,
            " as leader" if self.protocol.is_leader else "",
            moved(owned - done.owned),
            moved(done.owned - owned),
            len(owned),
            done.reason,
        )

    # --- metadata ----------------------------------------------------------------------------------------------------

    def _await_fresh_metadata(self, now_ms: int) -> None:
        """Wait for an update if one is due."""
        self._fresh_after = None
        if self._metadata.update_requested or self._metadata.time_to_next_update(now_ms) == 0:
            self._fresh_after = self._metadata.request_update(False)

    def _has_fresh_metadata(self) -> bool:
        return self._fresh_after is None or self._metadata.update_version > self._fresh_after

    # --- requests ----------------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the request that is due."""
        current = self._step
        commit = self._commit
        if current is COMMITTING and commit is not None:
            wait_ms = commit.poll(now_ms)
            if commit.is_done:
                self._move(PREPARING)  # first: without a commit, an interrupted member would stay in COMMITTING
                self._commit = None
            return PollResult(wait_ms)
        if current is READY:
            return self._join(now_ms)
        if current is ELECTED or current is JOINED:
            return self._await_metadata_of_group(now_ms)
        return NOTHING

    def reset(self) -> None:
        """Fail the request in flight."""
        if self.is_joining:
            self._coordinator.mark_unknown("the connection was closed", is_disconnected=True)
            self._attempt_failed(
                errors.DisconnectError("an exception interrupted the call that was using the connection")
            )

    def _join(self, now_ms: int) -> PollResult:
        if self.membership.needs_join_prepare:
            self._move(RESTING)  # the membership has ended since, and the application must give up its partitions
            return PollResult(0)
        if now_ms < self._next_join_ms:
            return PollResult(self._next_join_ms - now_ms)
        node = self._coordinator.check_and_get()
        if node is None:
            self._coordinator.look_up()
            self._failure = self._coordinator.take_fatal_error()
            return NOTHING
        config = self._config
        sent, reason = self.membership.begin_rebalance()
        self._log.info("Joining the group%s", f": {reason}" if reason else "")
        builder = group_requests.join_group(config, sent, PROTOCOL_TYPE, self._offered, reason)
        # The coordinator holds the response until all members have joined, or the rebalance timeout has passed.
        timeout_ms = max(
            self._client.default_request_timeout_ms, config.rebalance_timeout_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS
        )
        request = UnsentRequest(builder, node, min(timeout_ms, 2**31 - 1))
        joined: RequestFuture[None] = handled(
            self._coordinator, request.future, partial(self._handle_join, sent), self._sensors.join.record
        )
        joined.add_listener(None, self._attempt_failed)
        self._move(JOINING)
        return PollResult(requests=(request,))

    def _await_metadata_of_group(self, now_ms: int) -> PollResult:
        # After a rebootstrap (KIP-899), the assignor would see no topic.
        is_lost = self._step is ELECTED and self._metadata.fetch().is_bootstrap_configured
        if is_lost or not self._has_fresh_metadata():
            if now_ms < self._deadline_ms:
                return PollResult(self._deadline_ms - now_ms)
            timeout_ms = self._config.rebalance_timeout_ms
            self._attempt_failed(
                errors.KafkaTimeoutError(
                    f"as leader of group {self._config.group_id!r}, no metadata of its topics within {timeout_ms} ms: "
                    f"{self._client.connection_report() or 'no broker answered'}"
                )
            )
            return PollResult(0)
        if self._step is ELECTED:
            self._fresh_after = None
            self._move(DISTRIBUTING)
            return PollResult(0)
        return self._sync()

    def _sync(self) -> PollResult:
        sent = self._generation
        node = self._coordinator.check_and_get()
        if node is None or sent is None:
            self._attempt_failed(errors.CoordinatorNotAvailableError("the group coordinator is not known"))
            return PollResult(0)
        if self.protocol.is_leader:
            self.protocol.distributed()
        builder = group_requests.sync_group(self._config, sent, PROTOCOL_TYPE, self._assignments)
        request = UnsentRequest(builder, node)
        synced: RequestFuture[None] = handled(
            self._coordinator, request.future, partial(self._handle_sync, sent), self._sensors.sync.record
        )
        synced.add_listener(None, self._attempt_failed)
        self._move(SYNCING)
        return PollResult(requests=(request,))

    def _attempt_failed(self, error: Exception) -> None:
        """Begin again, after a backoff where that may help; other errors are the application's."""
        self._move(RESTING)
        self._sensors.failed_rebalance.record()
        name = type(error).__name__
        if not isinstance(error, errors.MemberIdRequiredError):  # which has already requested it
            self.membership.request_rejoin(f"rebalance failed due to {name}", f"the rebalance failed: {name}: {error}")
        if isinstance(error, _REJOIN_AT_ONCE):
            return
        if not isinstance(error, errors.RetriableError):
            self._failure = error
            return
        self._next_join_ms = self._clock.now_ms() + self._retry_backoff.backoff(self._failures)
        self._failures += 1

    # --- JoinGroup ---------------------------------------------------------------------------------------------------

    def _handle_join(self, sent: Generation, response: JoinGroupResponse, future: RequestFuture[None]) -> None:
        error = errors.for_code(response.error_code)
        if error is not None:
            if isinstance(error, errors.MemberIdRequiredError):
                self._log.debug("The coordinator gave the member id %s to join with", response.member_id)
                self.membership.member_id_assigned(response.member_id)
            future.raise_error(self._refused("JoinGroup", error, sent))
            return
        if self._other_protocol_type(response.protocol_type):
            future.raise_error(self._inconsistent(f"is of type {response.protocol_type!r}"))
            return
        generation = Generation(response.generation_id, response.member_id, response.protocol_name)
        if not self.membership.joined(generation):
            self.leaving.joined_after_leaving(response.member_id)
            future.raise_error(UnjoinedGroupError("the group was left before the answer to JoinGroup came"))
            return
        is_leader = self.protocol.is_leader = response.leader == response.member_id
        self._log.info("Joined %s%s", generation, " as leader" if is_leader else "")
        self._sensors.name_member(response.member_id)
        self._generation = generation
        self._assignments = {}
        self._fresh_after = None
        now_ms = self._clock.now_ms()
        self._deadline_ms = now_ms + self._config.rebalance_timeout_ms
        if is_leader:
            self.protocol.elect(response.protocol_name or "", response.members, response.skip_assignment)
            self._await_fresh_metadata(now_ms)
        self._move(ELECTED if is_leader else JOINED)
        future.complete(None)

    def _refused(self, api: str, error: errors.BrokerError, sent: Generation) -> errors.KafkaError:
        """Apply an error of JoinGroup or SyncGroup to the membership, and return the error of the attempt."""
        config = self._config
        error = self._coordinator.judged(api, error)
        if isinstance(error, (errors.UnknownMemberIdError, errors.IllegalGenerationError)):
            self.membership.reset_if_unchanged(sent, error, f"{api}: {error}")
        elif isinstance(error, errors.GroupMaxSizeReachedError):
            return errors.GroupMaxSizeReachedError(
                f"group {config.group_id!r} has as many members as the brokers allow (group.max.size)"
            )
        elif isinstance(error, errors.InconsistentGroupProtocolError):
            return self._inconsistent("has members that share no assignor with it")
        elif isinstance(error, errors.InvalidSessionTimeoutError):
            return errors.InvalidSessionTimeoutError(
                f"the brokers do not allow session.timeout.ms={config.session_timeout_ms}: they have limits "
                f"for it (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        elif not isinstance(error, _UNDERSTOOD):
            return unexpected(f"the answer to {api}", error)
        return error

    # --- SyncGroup ---------------------------------------------------------------------------------------------------

    def _handle_sync(self, sent: Generation, response: SyncGroupResponse, future: RequestFuture[None]) -> None:
        error = errors.for_code(response.error_code)
        if error is not None:
            future.raise_error(self._refused("SyncGroup", error, sent))
            return
        if self._other_protocol_type(response.protocol_type):
            future.raise_error(self._inconsistent(f"is of type {response.protocol_type!r}"))
            return
        if response.protocol_name is not None and response.protocol_name != sent.protocol_name:
            future.raise_error(self._inconsistent(f"uses {response.protocol_name!r}, not {sent.protocol_name!r}"))
            return
        complete, duration_ms = self.membership.synced(sent)
        if not complete:
            # A heartbeat has meanwhile shown that the membership has ended. ILLEGAL_GENERATION makes the member start
            # again at once.
            self._log.info("%s ended before the response to SyncGroup arrived; joining again", sent)
            future.raise_error(errors.IllegalGenerationError("the membership ended during the rebalance"))
            return
        self._log.debug("The group is stable at %s", sent)
        self._sensors.successful_rebalance.record(duration_ms)
        self._assignment = response.assignment
        self._move(ASSIGNING)
        future.complete(None)

    def _other_protocol_type(self, protocol_type: str | None) -> bool:
        return protocol_type is not None and protocol_type != PROTOCOL_TYPE

    def _inconsistent(self, what: str) -> errors.InconsistentGroupProtocolError:
        names = ", ".join(name for name, _ in self._offered)
        return errors.InconsistentGroupProtocolError(
            f"group {self._config.group_id!r} {what}; this member is of type {PROTOCOL_TYPE!r} and offers "
            f"{names or 'nothing'} (partition.assignment.strategy)"
        )
