"""A consumer's part in the rebalances of its group: subscriptions, assignments and listeners.

Java: ConsumerCoordinator, MetadataSnapshot. The coordinator passes subscriptions and assignments on undecoded, in the
encoding of Java's ConsumerProtocol.

A version prefix of two bytes, then the fields. Newer versions only add fields at the end, so an unknown version is
decoded as the newest known one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pykclient.consumer.application_driver import ApplicationCall, Steps
from pykclient.consumer.consumer_metadata import PatternSubscription
from pykclient.consumer.coordinator.group_member import CoordinatedConsumer, RebalanceListenerInvoker, names
from pykclient.consumer.coordinator.membership import NO_GENERATION, Generation, raise_first
from pykclient.consumer.partition_assignors import (
    COOPERATIVE,
    EAGER,
    Assignment,
    ConsumerPartitionAssignor,
    Subscription,
)
from pykclient.errors import ConfigError, IllegalStateError, RemoteProtocolError
from pykclient.network.metadata import Cluster
from pykclient.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.classic_membership import ClassicMembership
    from pykclient.consumer.coordinator.commit_request_manager import CommitRequestManager
    from pykclient.consumer.coordinator.membership import GroupRebalanceConfig
    from pykclient.log_context import LogContext
    from pykclient.protocol.messages.join_group import JoinGroupResponse


PROTOCOL_TYPE = "consumer"
#: 1 added owned partitions (KIP-429), 2 the generation id, 3 the rack (KIP-881).
HIGHEST_VERSION = ConsumerProtocolSubscription.VERSIONS[1]


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise RemoteProtocolError(f"version {version} of the consumer protocol does not exist")
    return min(version, HIGHEST_VERSION)


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


def _partitions(
    topics: Iterable[ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition],
) -> list[TopicPartition]:
    partitions = [TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions]
    for tp in partitions:
        if tp.partition < 0:
            raise RemoteProtocolError(f"topic {tp.topic!r} cannot have a partition {tp.partition}")
    return partitions


def serialize_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Encode the metadata of a JoinGroup request."""
    owned = _numbers_by_topic(sorted(subscription.owned_partitions))
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
    assigned = _numbers_by_topic(assignment.partitions)
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

    __slots__ = ("_partitions", "version")

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


class ConsumerGroupProtocol:
    """Subscribes to the group's topics, assigns partitions as the leader, and applies assignments.

    Implements GroupProtocol. Thread: application.
    """

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        membership: ClassicMembership,
        commits: CommitRequestManager,
        consumer: CoordinatedConsumer,
        listeners: RebalanceListenerInvoker,
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._membership = membership
        self._commits = commits
        self._assignors = consumer.assignors
        self._metadata = consumer.metadata
        self._subscriptions = consumer.subscriptions
        self._listeners = listeners
        self._pattern = PatternSubscription(consumer.metadata, consumer.subscriptions)
        self._protocol = _common_protocol(consumer.assignors)
        self.is_leader = False
        self._joined_subscription: frozenset[str] | None = None
        self._metadata_snapshot = PartitionSnapshot(
            config.rack_id, self._subscriptions.metadata_topics(), self._metadata.fetch(), self._metadata.update_version
        )
        self._assignment_snapshot: PartitionSnapshot | None = None
        # As the leader: the assignor, the members' subscriptions, or None to keep the assignment, and their topics.
        self._assignor: ConsumerPartitionAssignor | None = None
        self._members: dict[str, Subscription] | None = None
        self._topics: set[str] = set()
        #: True if the leader has assigned topics whose metadata it must have before it sends the assignment.
        self.awaits_topics = False
        #: This member's place in the group, as of the last completed join.
        self.group_metadata = ConsumerGroupMetadata(config.group_id, group_instance_id=config.group_instance_id)

    def check_assignors(self) -> None:
        """Raise IllegalStateError if there are no assignors."""
        if self._protocol is None:
            raise IllegalStateError("partition.assignment.strategy is empty, so subscribe() cannot work; use assign()")

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
            self.update_pattern_subscription(cluster)
        self._metadata_snapshot = PartitionSnapshot(
            self._config.rack_id, self._subscriptions.metadata_topics(), cluster, version
        )

    def update_pattern_subscription(self, cluster: Cluster) -> None:
        """Subscribe to the topics that match the pattern now."""
        self._pattern.match(cluster)

    @property
    def needs_fresh_metadata(self) -> bool:
        """True if the subscription is a pattern, which is matched before joining."""
        return self._subscriptions.has_pattern_subscription()

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

    @property
    def owned(self) -> Collection[TopicPartition]:
        """The partitions that this member owns."""
        return self._subscriptions.assigned_partitions()

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
                failure = yield from self._listeners.invoke_partitions_lost(owned)
                self._subscriptions.assign_from_subscribed(())
            elif self._protocol == EAGER and self._listeners.follows_rebalances:
                failure = yield from self._listeners.invoke_partitions_revoked(owned)
        elif self._protocol == EAGER:
            failure = yield from self._listeners.invoke_partitions_revoked(owned)
            self._subscriptions.assign_from_subscribed(())
        else:
            subscription = self._subscriptions.subscription()
            revoked = {tp for tp in owned if tp.topic not in subscription}
            if revoked:
                failure = yield from self._listeners.invoke_partitions_revoked(revoked)
                self._subscriptions.assign_from_subscribed(owned - revoked)
        self.is_leader = False
        self._subscriptions.reset_group_subscription()
        raise_first([failure])

    def revoke_all(self) -> Steps[None]:
        """Give up all partitions, as this member is about to leave.

        Raises:
            KafkaError: the listener raised; this is complete nevertheless.
        """
        generation = self._membership.generation  # the heartbeat thread may change it at any time
        owned = self._subscriptions.assigned_partitions()
        if not owned or not self._subscriptions.has_auto_assigned_partitions():
            return
        if (
            generation.generation_id == NO_GENERATION.generation_id
            or not generation.has_member_id
            or self._membership.rebalance_in_progress
        ):
            failure = yield from self._listeners.invoke_partitions_lost(owned)
        else:
            failure = yield from self._listeners.invoke_partitions_revoked(owned)
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
        raise IllegalStateError(f"the coordinator chose the assignor {name!r}, which this member did not offer")

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
            subscription.group_instance_id = member.group_instance_id
            subscriptions[member.member_id] = subscription
            self._topics.update(subscription.topics)
        self._members = None if skip_assignment else subscriptions
        self._watch(self._topics)

    def _watch(self, topics: Collection[str]) -> None:
        if self._subscriptions.group_subscribe(topics):
            self._metadata.request_update_for_new_topics()

    def distribute(self) -> Steps[Mapping[str, bytes]]:
        """Return each member's assignment; nothing if the current one is kept."""
        self.is_leader = True
        self.awaits_topics = False
        # Taken before the metadata that the assignor gets, so that no change after it is overlooked.
        self.metadata_updated()
        self._assignment_snapshot = self._metadata_snapshot
        assignor, subscriptions = self._assignor, self._members
        if subscriptions is None or assignor is None:
            self._log.info("This static member is the leader again; keeping the current assignment")
            return {}
        assignments: Mapping[str, Assignment] = yield ApplicationCall(
            partial(assignor.assign, self._metadata.fetch(), subscriptions), uses_consumer=False
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
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"the leader sent an assignment that cannot be read: {error}") from error
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
                failures.append((yield from self._listeners.invoke_partitions_revoked(revoked)))
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
        failures.append((yield from self._listeners.invoke_partitions_assigned(added)))
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
        raise ConfigError(f"partition.assignment.strategy: {offered} have no rebalance protocol in common")
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
        raise IllegalStateError(
            f"the assignor supports COOPERATIVE but gives partitions away that still have an owner: "
            f"{names(added & revoked)}"
        )
