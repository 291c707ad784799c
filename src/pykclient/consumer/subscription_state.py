"""The subscription of a consumer, and the positions and states of its assigned partitions.

Indexes of the assigned partitions keep requests from walking thousands of them to find a few. The states of a partition
are a table. Java: SubscriptionState, FetchStates, TopicPartitionState; KIP-320 for validation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pykclient.consumer.values import (
    READ_COMMITTED,
    AutoOffsetResetStrategy,
    ConsumerRebalanceListener as ConsumerRebalanceListener,
)
from pykclient.errors import IllegalArgumentError, IllegalStateError, NoOffsetForPartitionError
from pykclient.log_context import LogContext
from pykclient.network.metadata import NO_LEADER_OR_EPOCH, LeaderAndEpoch
from pykclient.types import UNKNOWN_EPOCH, Node, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.values import SubscriptionPattern


#: The group of partitions whose leader is unknown and that could be fetched otherwise.
NO_NODE = -1


class FetchState(NamedTuple):
    """A state: whether it requires a position, and whether records may be fetched from it. Thread: any."""

    name: str
    requires_position: bool
    has_valid_position: bool

    def __repr__(self) -> str:
        return self.name


#: Assigned; the start position was not looked up yet.
INITIALIZING = FetchState("INITIALIZING", requires_position=False, has_valid_position=False)
#: The position is valid.
FETCHING = FetchState("FETCHING", requires_position=True, has_valid_position=True)
#: A ListOffsets request finds the position.
AWAIT_RESET = FetchState("AWAIT_RESET", requires_position=False, has_valid_position=False)
#: The leader changed; an OffsetForLeaderEpoch request checks that the log still has the consumed records.
AWAIT_VALIDATION = FetchState("AWAIT_VALIDATION", requires_position=True, has_valid_position=False)

TRANSITIONS: dict[FetchState, frozenset[FetchState]] = {
    INITIALIZING: frozenset((FETCHING, AWAIT_RESET, AWAIT_VALIDATION)),
    FETCHING: frozenset((FETCHING, AWAIT_RESET, AWAIT_VALIDATION)),
    AWAIT_RESET: frozenset((FETCHING, AWAIT_RESET)),
    AWAIT_VALIDATION: frozenset((FETCHING, AWAIT_RESET, AWAIT_VALIDATION)),
}

#: Requested in normal operation and ignored: a partition about to be reset has nothing to validate.
IGNORED = frozenset(((AWAIT_RESET, AWAIT_VALIDATION),))


class FetchPosition(NamedTuple):
    """The next offset to fetch, the epoch of the record before it, the partition's leader, and the topic's id.

    An offset has no meaning in a topic that was deleted and created again. So the id stays with it until the position
    is reset, and fetches and commits name the topic that the offset belongs to. The id is None with brokers before 2.8,
    or if it is not known yet.
    """

    offset: int
    offset_epoch: int | None = None
    current_leader: LeaderAndEpoch = NO_LEADER_OR_EPOCH
    topic_id: UUID | None = None

    def is_of_another_topic(self, topic_id: UUID | None) -> bool:
        """Return whether the offset is known to belong to a topic with another id than ``topic_id``."""
        own = self.topic_id
        if own is topic_id:  # nearly always, and comparing UUIDs is slow
            return False
        return own is not None and topic_id is not None and own != topic_id

    def __str__(self) -> str:
        leader, leader_epoch = self.current_leader
        known = []
        if self.offset_epoch is not None:
            known.append(f"after epoch {self.offset_epoch}")
        if leader is not None:
            known.append(f"led by node {leader.id}")
        if leader_epoch is not None:
            known.append(f"in epoch {leader_epoch}")
        return f"{self.offset} ({' '.join(known)})" if known else str(self.offset)


class LogTruncation(NamedTuple):
    """A loss of consumed records from the log (KIP-320). ``divergent_offset`` is None if its start is unknown."""

    topic_partition: TopicPartition
    fetch_position: FetchPosition
    divergent_offset: OffsetAndMetadata | None


class TopicPartitionState:
    """The state of one assigned partition.

    ``group_node`` belongs to SubscriptionState: the id of the node under which it has filed this partition as
    fetchable. ``lacks_offset`` belongs to MissingOffsets. Thread: application.
    """

    def __init__(self) -> None:
        self.fetch_state = INITIALIZING
        self.position: FetchPosition | None = None
        self.high_watermark: int | None = None
        self.last_fetch_ms: int | None = None  # since the epoch
        self.log_start_offset: int | None = None
        self.last_stable_offset: int | None = None
        self.paused = False
        self.pending_revocation = False
        self.pending_on_assigned_callback = False
        self.reset_strategy: AutoOffsetResetStrategy | None = None
        self.next_retry_ms: int | None = None
        self.preferred_read_replica: int | None = None
        self.preferred_read_replica_expires_ms: int | None = None
        self.end_offset_requested = False
        self.group_node: int | None = None
        self.lacks_offset = False

    def _move(self, state: FetchState, position: FetchPosition | None) -> bool:
        """Change to ``state`` at ``position``. Return False if the table says to ignore the transition."""
        if state not in TRANSITIONS[self.fetch_state]:
            if (self.fetch_state, state) in IGNORED:
                return False
            raise IllegalStateError(f"a partition cannot go from {self.fetch_state} to {state}")
        if state.requires_position and position is None:
            raise IllegalStateError(f"a partition cannot be {state} without a position")
        self.fetch_state = state
        self.position = position if state.requires_position else None
        self.next_retry_ms = None
        self.lacks_offset = False
        return True

    @property
    def has_valid_position(self) -> bool:
        return self.fetch_state.has_valid_position

    @property
    def is_fetchable(self) -> bool:
        return (
            self.fetch_state.has_valid_position
            and not self.paused
            and not self.pending_revocation
            and not self.pending_on_assigned_callback
        )

    @property
    def should_initialize(self) -> bool:
        return self.fetch_state is INITIALIZING and not (self.pending_revocation or self.lacks_offset)

    @property
    def fetch_node_id(self) -> int:
        """Return the id of the node to fetch from: the preferred read replica, or the leader; NO_NODE if unknown."""
        if self.preferred_read_replica is not None:
            return self.preferred_read_replica
        leader = None if self.position is None else self.position.current_leader.leader
        return NO_NODE if leader is None else leader.id

    def awaiting_retry_backoff(self, now_ms: int) -> bool:
        return self.next_retry_ms is not None and now_ms < self.next_retry_ms

    def reset(self, strategy: AutoOffsetResetStrategy) -> None:
        # The strategy comes first, because a signal handler may raise in between, and a partition that awaits its reset
        # needs one.
        self.reset_strategy = strategy
        self._move(AWAIT_RESET, None)

    def seek_validated(self, position: FetchPosition) -> None:
        if self._move(FETCHING, position):
            self.reset_strategy = None

    def seek_unvalidated(self, position: FetchPosition) -> None:
        self.seek_validated(position)
        self._validate(position)

    def _validate(self, position: FetchPosition) -> None:
        # Without both epochs there is nothing to compare.
        comparable = position.offset_epoch is not None and position.current_leader.epoch is not None
        self._move(AWAIT_VALIDATION if comparable else FETCHING, position)

    def is_led_by(self, leader: LeaderAndEpoch) -> bool:
        """Return whether there is a position that already has this leader."""
        return self.position is not None and leader.leader is not None and self.position.current_leader == leader

    def maybe_validate_position(self, leader: LeaderAndEpoch) -> bool:
        """Set the current leader. Return True if the position must be validated."""
        if self.fetch_state is AWAIT_RESET or leader.leader is None:
            return False
        position = self.position
        if position is not None and position.current_leader != leader:
            self._validate(position._replace(current_leader=leader))
            self.clear_preferred_read_replica()
        return self.fetch_state is AWAIT_VALIDATION

    def update_position_leader_no_validation(self, leader: LeaderAndEpoch) -> None:
        if self.position is not None:
            self._move(FETCHING, self.position._replace(current_leader=leader))

    def set_topic_id(self, topic_id: UUID | None) -> None:
        """Set the topic's id, if it was unknown or the brokers no longer know it."""
        if self.position is not None:
            self.position = self.position._replace(topic_id=topic_id)

    def reset_for_new_topic(self, strategy: AutoOffsetResetStrategy) -> None:
        """Reset the position, and forget the offsets of the deleted topic's log."""
        self.reset(strategy)
        self.high_watermark = self.log_start_offset = self.last_stable_offset = None
        self.clear_preferred_read_replica()

    def complete_validation(self) -> None:
        if self.position is not None:
            self._move(FETCHING, self.position)

    def advance(self, position: FetchPosition) -> None:
        """Advance the position after records were delivered; the state stays."""
        if not self.fetch_state.has_valid_position:
            raise IllegalStateError(f"a partition that is {self.fetch_state} has no position to advance")
        self.position = position

    def lag_and_lead(self, isolation_level: int) -> tuple[int | None, int | None]:
        """Return the records from the position to the readable end, and from the start of the log to the position.

        None means unknown. Thread: any.
        """
        position = self.position
        if position is None:
            return None, None
        end = self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark
        start = self.log_start_offset
        return None if end is None else end - position.offset, None if start is None else position.offset - start

    def clear_preferred_read_replica(self) -> int | None:
        """Fetch from the leader again. Return the id of the previous replica."""
        removed = self.preferred_read_replica
        self.preferred_read_replica = None
        self.preferred_read_replica_expires_ms = None
        return removed

    def __repr__(self) -> str:
        return f"TopicPartitionState({self.fetch_state}, position={self.position}, paused={self.paused})"


class PartitionIndex:
    """The assignment in order, and indexes of it.

    - ``without_position``: the partitions that cannot be fetched until a reset or validation completes.
    - ``fetchable``: the fetchable partitions by the id of the node to fetch from; no empty groups.
    - ``changed``: by node id, the partitions to tell that node about: added, removed, or with a new position.
    - ``leased``: the partitions fetched from a preferred replica for a limited time.
    - ``snapshot``: the assignment without an order. It is replaced as a whole and never changed. Thread: any.

    The order makes fetching fair: a partition that has delivered moves to the end. Thread: owner.
    """

    def __init__(self) -> None:
        self.assignment: dict[TopicPartition, TopicPartitionState] = {}
        self.without_position: dict[TopicPartition, TopicPartitionState] = {}
        self.fetchable: dict[int, dict[TopicPartition, TopicPartitionState]] = {}
        self.changed: dict[int, dict[TopicPartition, None]] = {}
        self.leased: dict[TopicPartition, TopicPartitionState] = {}
        self.snapshot: Mapping[TopicPartition, TopicPartitionState] = {}

    def file(self, tp: TopicPartition, state: TopicPartitionState, wanted: bool) -> None:
        """Update the indexes after a change of ``state``; with ``wanted`` False the partition is not fetched."""
        if state.fetch_state.has_valid_position:
            self.without_position.pop(tp, None)
        else:
            self.without_position[tp] = state
        node_id = state.fetch_node_id if wanted and state.is_fetchable else None
        if node_id != state.group_node:
            self._unfile(tp, state)
            if node_id is not None:
                self.fetchable.setdefault(node_id, {})[tp] = state
                state.group_node = node_id
        self.touch(tp, state)
        if state.preferred_read_replica is None:
            self.leased.pop(tp, None)
        else:
            self.leased[tp] = state

    def _unfile(self, tp: TopicPartition, state: TopicPartitionState) -> None:
        if state.group_node is not None:
            group = self.fetchable[state.group_node]
            del group[tp]
            if not group:
                del self.fetchable[state.group_node]
            self.changed.setdefault(state.group_node, {})[tp] = None
            state.group_node = None

    def touch(self, tp: TopicPartition, state: TopicPartitionState) -> None:
        """Record that the position of ``tp`` has changed."""
        if state.group_node is not None:
            self.changed.setdefault(state.group_node, {})[tp] = None

    def replace(self, assignment: dict[TopicPartition, TopicPartitionState]) -> None:
        """Start again with ``assignment``, none of which is filed yet."""
        for node_id, group in self.fetchable.items():
            self.changed.setdefault(node_id, {}).update(dict.fromkeys(group))
        for state in self.assignment.values():
            state.group_node = None
        self.without_position.clear()
        self.fetchable.clear()
        self.leased.clear()
        self.assignment = assignment
        self.snapshot = assignment.copy()

    def move_to_end(self, tp: TopicPartition) -> None:
        """Move ``tp`` to the end of the order; do nothing if it is not assigned."""
        assignment = self.assignment
        state = assignment.get(tp)
        if state is None:
            return
        # No call in between: a signal handler that raised there would lose the partition.
        del assignment[tp]
        assignment[tp] = state
        if state.group_node is not None:
            group = self.fetchable[state.group_node]
            del group[tp]
            group[tp] = state

    def expired_leases(self, now_ms: int) -> list[tuple[TopicPartition, TopicPartitionState]]:
        return [
            (tp, state)
            for tp, state in self.leased.items()
            if state.preferred_read_replica_expires_ms is not None and now_ms > state.preferred_read_replica_expires_ms
        ]

    def __iter__(self) -> Iterator[tuple[TopicPartition, TopicPartitionState]]:
        return iter(self.assignment.items())


class MissingOffsets:
    """The assigned partitions without a position, a committed offset and a reset policy.

    A KafkaConsumer raises an error as soon as there is one. With ``are_kept``, an error is kept until a call asks for
    the partition: the tasks of an event loop read different partitions of one consumer. Until then, no committed offset
    is looked up again. Thread: application.
    """

    def __init__(self, index: PartitionIndex) -> None:
        self._index = index
        self.are_kept = False

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Record that these assigned partitions have no offset to start from.

        Raises:
            NoOffsetForPartitionError: errors are not kept.
        """
        if partitions and not self.are_kept:
            raise _error(partitions)
        for tp in partitions:
            self._index.assignment[tp].lacks_offset = True

    def among(self, partitions: Collection[TopicPartition] | None) -> list[TopicPartition]:
        """Return those of ``partitions`` (None: all) that have no offset to start from."""
        return [
            tp
            for tp, state in self._index.without_position.items()
            if state.lacks_offset and (partitions is None or tp in partitions)
        ]

    def raise_for(self, partitions: Collection[TopicPartition] | None) -> None:
        """Raise the error of ``partitions`` (None: all), if any. Their offsets are then looked up again.

        Raises:
            NoOffsetForPartitionError: one of them has no offset to start from.
        """
        missing = self.among(partitions)
        if missing:
            for tp in missing:
                self._index.assignment[tp].lacks_offset = False
            raise _error(missing)


def _error(partitions: Collection[TopicPartition]) -> NoOffsetForPartitionError:
    names = ", ".join(map(str, sorted(partitions)))
    return NoOffsetForPartitionError(
        f"no committed offset and auto.offset.reset is 'none' for: {names}; seek() there, or set a policy",
        frozenset(partitions),
    )


NONE = "none"
AUTO_TOPICS = "topics"
AUTO_PATTERN = "pattern"
BROKER_PATTERN = "broker pattern"
USER_ASSIGNED = "assign"


class TopicPattern(Protocol):
    """The part of a ``re.Pattern`` that a subscription uses. Thread: any."""

    @property
    def pattern(self) -> str: ...

    def fullmatch(self, string: str, /) -> object | None: ...


class SubscriptionState:
    """Subscription, assignment and positions (Java: SubscriptionState).

    Every change of a partition's state ends with ``_file``, which updates the indexes.

    Thread: application, but for those with "Thread: any". Metadata, which the heartbeat thread may refresh, calls
    ``metadata_topics``, ``needs_metadata`` and ``matches_subscribed_pattern`` from any thread. They read values that
    are replaced as a whole and never changed.
    """

    def __init__(self, log_context: LogContext, default_reset_strategy: AutoOffsetResetStrategy) -> None:
        self._log_context = log_context
        self._log = log_context.logger(__name__)
        self._default_reset_strategy = default_reset_strategy
        # The second: by the group, or by this consumer without a group.
        self._type, self.is_auto_assigned = NONE, False
        self._pattern: TopicPattern | None = None
        self._broker_pattern: SubscriptionPattern | None = None
        self._assigned_topic_ids: frozenset[UUID] = frozenset()
        self._subscription: frozenset[str] = frozenset()
        self._group_subscription: frozenset[str] = frozenset()
        self._rebalance_listener: Any = None
        #: A number that changes with each assignment.
        self.assignment_id = 0
        #: A number that changes whenever the subscription or the assignment may have changed.
        self.request_id = 0
        #: A number that changes whenever a preferred read replica is set.
        self.lease_id = 0
        #: A number that changes whenever a partition may have become fetchable, or fetchable from another node.
        self.changes = 0
        self._index = PartitionIndex()
        #: The assigned partitions that lack a valid position.
        self.without_position = self._index.without_position
        self.missing = MissingOffsets(self._index)
        #: Put other partitions first in the next requests.
        self.move_partition_to_end = self._index.move_to_end
        self._read_only: frozenset[TopicPartition] | None = None

    def _file(self, tp: TopicPartition, state: TopicPartitionState) -> None:
        self.changes += 1
        # Until the rebalance that follows a change of subscription, it may own partitions it no longer wants.
        self._index.file(tp, state, self._is_wanted(tp) and (self._read_only is None or tp in self._read_only))

    def _is_wanted(self, tp: TopicPartition) -> bool:
        return self._type != AUTO_TOPICS or tp.topic in self._subscription

    def _set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment. Partitions that stay keep their state."""
        known = self._index.assignment
        self.assignment_id += 1
        self.request_id += 1
        assignment = {tp: known.get(tp) or TopicPartitionState() for tp in partitions}
        for state in assignment.values():
            # Set by a rebalance that a wakeup in the listener interrupted: the partition was not revoked.
            state.pending_revocation = False
        self._index.replace(assignment)
        self._refile_all()

    def refile(self) -> None:
        """Rebuild the indexes, and allow lookups that wait for a response to be sent again.

        For use after an exception struck in the middle of a change. The partitions themselves change in single steps.
        """
        for _, state in self._index:
            state.next_retry_ms = None
        self._index.replace(self._index.assignment)
        self._refile_all()

    def _refile_all(self) -> None:
        for tp, state in self._index:
            self._file(tp, state)

    def check_assigned(self, tp: TopicPartition) -> None:
        """Check that ``tp`` is assigned.

        Raises:
            IllegalStateError: it is not.
        """
        self._assigned(tp)

    def _assigned(self, tp: TopicPartition) -> TopicPartitionState:
        state = self._index.snapshot.get(tp)
        if state is None:
            raise IllegalStateError(
                f"{tp} is not assigned to this consumer: assign() it, or wait in poll() for the group to do so"
            )
        return state

    # --- subscription --------------------------------------------------------------------------------------------

    def _set_type(self, subscription_type: str) -> None:
        self.request_id += 1
        if self._type == NONE:
            self.is_auto_assigned = subscription_type != USER_ASSIGNED
            self._type = subscription_type
        elif self._type != subscription_type:
            raise IllegalStateError(
                "subscribe() to topics, subscribe() to a pattern and assign() exclude each other; unsubscribe() first"
            )

    def subscribe(self, topics: Iterable[str], listener: Any = None) -> bool:
        """Subscribe to topics by name. Return True if the set has changed."""
        self._set_type(AUTO_TOPICS)
        self._rebalance_listener = listener
        return self._change_subscription(frozenset(topics))

    def subscribe_pattern(self, pattern: TopicPattern, listener: Any = None) -> None:
        """Subscribe to every topic whose whole name matches, now and in the future."""
        self._set_type(AUTO_PATTERN)
        self._rebalance_listener = listener
        self._pattern = pattern

    def subscribe_broker_pattern(self, pattern: SubscriptionPattern, listener: Any = None) -> None:
        """Subscribe to every topic that matches a pattern according to the brokers."""
        self._set_type(BROKER_PATTERN)
        self._rebalance_listener = listener
        self._broker_pattern = pattern

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Set the topics that match the pattern. Return True if the set has changed."""
        if self._type != AUTO_PATTERN:
            raise IllegalArgumentError(f"there is no pattern: the subscription type is {self._type!r}")
        return self._change_subscription(frozenset(topics))

    def _change_subscription(self, topics: frozenset[str]) -> bool:
        if topics == self._subscription:
            return False
        self.request_id += 1
        self._subscription = topics
        self._refile_all()
        return True

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Set the topics of all members, as the group's leader. Return True if some are not subscribed here."""
        if not self.is_auto_assigned:
            raise IllegalStateError("only a consumer that has subscribed can belong to a group")
        self._group_subscription = frozenset(topics)
        return not self._group_subscription <= self._subscription

    def reset_group_subscription(self) -> None:
        self._group_subscription = frozenset()

    def unsubscribe(self) -> None:
        """Drop the subscription and the assignment."""
        self._type, self.is_auto_assigned = NONE, False
        self._pattern = self._broker_pattern = None
        self._assigned_topic_ids = frozenset()
        self._subscription = self._group_subscription = frozenset()
        self._set_assignment(())

    def renewed(self) -> SubscriptionState:
        """Return a new object with the same requested topics or pattern, and without results."""
        other = SubscriptionState(self._log_context, self._default_reset_strategy)
        other.missing.are_kept = self.missing.are_kept
        if self._type == AUTO_TOPICS:
            other.subscribe(self._subscription, self._rebalance_listener)
        elif self._type == AUTO_PATTERN and self._pattern is not None:
            other.subscribe_pattern(self._pattern, self._rebalance_listener)
        elif self._broker_pattern is not None:
            other.subscribe_broker_pattern(self._broker_pattern, self._rebalance_listener)
        elif self._type == USER_ASSIGNED:
            other.assign_from_user(list(self._index.assignment))
        return other

    def has_pattern_subscription(self) -> bool:
        return self._type == AUTO_PATTERN

    def has_no_subscription_or_user_assignment(self) -> bool:
        return self._type == NONE

    def matches_subscribed_pattern(self, topic: str) -> bool:
        pattern = self._pattern
        return pattern is not None and pattern.fullmatch(topic) is not None

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to; empty with manual assignment. Thread: any."""
        return self._subscription if self.is_auto_assigned else frozenset()

    def broker_pattern(self) -> SubscriptionPattern | None:
        """Return the pattern that the brokers match, if that is the subscription. Thread: any."""
        return self._broker_pattern

    def assigned_topic_ids(self) -> frozenset[UUID]:
        """Return the ids of topics that the group assigned by the brokers' pattern. Thread: any."""
        return self._assigned_topic_ids

    def set_assigned_topic_ids(self, topic_ids: Iterable[UUID]) -> bool:
        """Set the ids that ``assigned_topic_ids`` returns; return whether any is new."""
        before, self._assigned_topic_ids = self._assigned_topic_ids, frozenset(topic_ids)
        return not self._assigned_topic_ids <= before

    def metadata_topics(self) -> frozenset[str]:
        """Return the topics whose metadata is needed: the subscribed ones and, as leader, those of the group."""
        return self._subscription | self._group_subscription

    def needs_metadata(self, topic: str) -> bool:
        return topic in self._subscription or topic in self._group_subscription

    def rebalance_listener(self) -> Any:
        return self._rebalance_listener

    # --- assignment ----------------------------------------------------------------------------------------------

    def assign_from_user(self, partitions: Collection[TopicPartition]) -> bool:
        """Assign manually. Return True if the set of topics has changed. Partitions that stay keep their positions."""
        self._set_type(USER_ASSIGNED)
        if self._index.assignment.keys() == set(partitions):
            return False
        self._set_assignment(partitions)
        return self._change_subscription(frozenset(tp.topic for tp in partitions))

    def check_assignment_matched_subscription(self, assignments: Iterable[TopicPartition]) -> bool:
        """Return whether every partition that the group assigned is still wanted."""
        pattern, subscription = self._pattern, self._subscription
        for tp in assignments:
            if pattern is not None:
                if pattern.fullmatch(tp.topic) is None:
                    self._log.info("The group assigned %s, which the pattern %r does not match", tp, pattern.pattern)
                    return False
            elif tp.topic not in subscription:
                self._log.info("The group assigned %s, which is not among %s", tp, sorted(subscription))
                return False
        return True

    def assign_from_subscribed(self, assignments: Iterable[TopicPartition]) -> None:
        """Apply the group's assignment. Partitions that stay keep their positions."""
        if not self.is_auto_assigned:
            raise IllegalArgumentError("the group cannot assign partitions: assign() has assigned them manually")
        self._set_assignment(assignments)

    def assign_from_subscribed_awaiting_callback(
        self, full_assignment: Iterable[TopicPartition], added: Iterable[TopicPartition]
    ) -> None:
        """Apply the group's assignment, but do not fetch the added partitions before the listener has been called."""
        self.assign_from_subscribed(full_assignment)
        self._mark(added, "pending_on_assigned_callback", True)

    def enable_partitions_awaiting_callback(self, partitions: Iterable[TopicPartition]) -> None:
        self._mark(partitions, "pending_on_assigned_callback", False)

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions, which are about to be revoked."""
        self._mark(partitions, "pending_revocation", True)

    def _mark(self, partitions: Iterable[TopicPartition], flag: str, value: bool) -> None:
        for tp in partitions:
            state = self._assigned(tp)
            setattr(state, flag, value)
            self._file(tp, state)

    def assigned_partitions(self) -> set[TopicPartition]:
        """Return the assigned partitions. Thread: any."""
        return set(self._index.snapshot)

    def assigned_partitions_list(self) -> list[TopicPartition]:
        return list(self._index.assignment)

    def states(self) -> list[tuple[TopicPartition, TopicPartitionState]]:
        """Return the state of each assigned partition. Thread: any, which may read the states."""
        return list(self._index.snapshot.items())

    def num_assigned_partitions(self) -> int:
        return len(self._index.assignment)

    def is_assigned(self, tp: TopicPartition) -> bool:
        return tp in self._index.assignment

    def pause(self, tp: TopicPartition) -> None:
        self._mark((tp,), "paused", True)

    def resume(self, tp: TopicPartition) -> None:
        self._mark((tp,), "paused", False)

    def is_paused(self, tp: TopicPartition) -> bool:
        state = self._index.assignment.get(tp)
        return state is not None and state.paused

    def paused_partitions(self) -> set[TopicPartition]:
        """Return the paused partitions. Thread: any."""
        return {tp for tp, state in self._index.snapshot.items() if state.paused}

    def read_only(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Fetch only ``partitions``, because calls wait for their records; None: all again."""
        if partitions != self._read_only:
            self._read_only = partitions
            self._refile_all()

    # --- fetchable partitions ------------------------------------------------------------------------------------

    def fetch_node_ids(self) -> list[int]:
        """Return the ids of the nodes with partitions to fetch; NO_NODE is one of them if a leader is unknown."""
        return list(self._index.fetchable)

    def fetchable_partitions_of(self, node_id: int) -> dict[TopicPartition, FetchPosition]:
        """Return all partitions to fetch from a node, and clear its changes for ``take_changes_of``."""
        self._index.changed.pop(node_id, None)
        group = self._index.fetchable.get(node_id, {})
        return {tp: state.position for tp, state in group.items() if state.position is not None}

    def take_changes_of(self, node_id: int) -> dict[TopicPartition, FetchPosition | None]:
        """Return the partitions whose fetch state changed since the node's last request; None means removed."""
        group = self._index.fetchable.get(node_id, {})
        changed = self._index.changed.pop(node_id, None) or ()
        return {tp: group[tp].position if tp in group else None for tp in changed}

    def is_fetched_as_before(self, node_id: int) -> bool:
        """Return whether a node has partitions to fetch, and ``take_changes_of`` would return nothing for it.

        False while any partition is fetched from a preferred replica, which may end at any time.
        """
        index = self._index
        return node_id in index.fetchable and not index.changed.get(node_id) and not index.leased

    def leader_by_position(self, node_id: int) -> Node | None:
        """Return the node with this id from the leader information of a fetchable position, or None."""
        for state in self._index.fetchable.get(node_id, {}).values():
            leader = None if state.position is None else state.position.current_leader.leader
            if leader is not None and leader.id == node_id:
                return leader
        return None

    def fetch_node_id(self, tp: TopicPartition) -> int | None:
        """Return the id of the node to fetch the partition from, or None if the partition is not fetchable."""
        state = self._index.assignment.get(tp)
        return None if state is None else state.group_node

    def is_fetchable(self, tp: TopicPartition) -> bool:
        state = self._index.assignment.get(tp)
        return state is not None and state.group_node is not None

    def fetchable_position(self, tp: TopicPartition) -> FetchPosition | None:
        """Return the position to fetch the partition from, or None if it is not fetchable.

        A partition that is not fetched only because calls wait for others has its position.
        """
        state = self._index.assignment.get(tp)
        if state is None:
            return None
        if state.group_node is None and (self._read_only is None or not (self._is_wanted(tp) and state.is_fetchable)):
            return None
        return state.position

    # --- positions -----------------------------------------------------------------------------------------------

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.seek_validated(tp, FetchPosition(offset))

    def seek_validated(self, tp: TopicPartition, position: FetchPosition) -> None:
        state = self._assigned(tp)
        state.seek_validated(position)
        self._file(tp, state)

    def seek_unvalidated(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Set the position, and validate it first if both epochs are known."""
        state = self._assigned(tp)
        state.seek_unvalidated(position)
        self._file(tp, state)

    def maybe_seek_unvalidated(
        self, tp: TopicPartition, position: FetchPosition, requested: AutoOffsetResetStrategy | None
    ) -> None:
        """Set the position that a reset has found, unless the application has changed it meanwhile."""
        state = self._index.assignment.get(tp)
        if state is None:
            skipped: str | None = "it is no longer assigned"
        elif state.fetch_state is not AWAIT_RESET:
            skipped = "no reset is needed any more"
        elif requested is not None and requested != state.reset_strategy:
            skipped = "another reset was asked for"
        else:
            skipped = None
            state.seek_unvalidated(position)
            self._file(tp, state)
        if skipped is None:
            self._log.info("Resetting %s to offset %s", tp, position)
        else:
            self._log.debug("Not resetting %s: %s", tp, skipped)

    def position(self, tp: TopicPartition) -> FetchPosition | None:
        return self._assigned(tp).position

    def position_or_none(self, tp: TopicPartition) -> FetchPosition | None:
        state = self._index.assignment.get(tp)
        return None if state is None else state.position

    def valid_position(self, tp: TopicPartition) -> FetchPosition | None:
        state = self._assigned(tp)
        return state.position if state.has_valid_position else None

    def valid_position_or_none(self, tp: TopicPartition) -> FetchPosition | None:
        """Return the position if it is valid; also None if the partition is not assigned."""
        state = self._index.assignment.get(tp)
        return state.position if state is not None and state.fetch_state.has_valid_position else None

    def has_valid_position(self, tp: TopicPartition) -> bool:
        return self.valid_position_or_none(tp) is not None

    def set_position(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Move the position without changing the state (Java: ``position(tp, position)``)."""
        state = self._assigned(tp)
        state.advance(position)
        if state.group_node == state.fetch_node_id:
            self._index.touch(tp, state)
        else:
            self._file(tp, state)

    def advance(self, tp: TopicPartition, offset: int, offset_epoch: int | None) -> None:
        """Advance the position past delivered records; its leader and topic stay."""
        state = self._index.assignment.get(tp) or self._assigned(tp)
        position = state.position
        if position is None or not state.fetch_state.has_valid_position:
            raise IllegalStateError(f"a partition that is {state.fetch_state} has no position to advance")
        # Without the call of FetchPosition.__new__, which is Python code.
        state.position = tuple.__new__(FetchPosition, (offset, offset_epoch, position[2], position[3]))
        if state.group_node is not None:  # as PartitionIndex.touch, without its call
            self._index.changed.setdefault(state.group_node, {})[tp] = None

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that can be committed: the position of each partition with a valid one."""
        consumed = {}
        for tp, state in self._index:
            position = state.position
            if position is not None and state.has_valid_position:
                epoch = UNKNOWN_EPOCH if position.offset_epoch is None else position.offset_epoch
                consumed[tp] = OffsetAndMetadata(position.offset, "", epoch)
        return consumed

    def initializing_partitions(self) -> set[TopicPartition]:
        return {tp for tp, state in self._index.without_position.items() if state.should_initialize}

    # --- reset ---------------------------------------------------------------------------------------------------

    @property
    def default_reset_strategy(self) -> AutoOffsetResetStrategy:
        """The strategy of ``auto.offset.reset``."""
        return self._default_reset_strategy

    def has_default_offset_reset_policy(self) -> bool:
        return self._default_reset_strategy != AutoOffsetResetStrategy.NONE

    def request_offset_reset(
        self,
        partitions: Collection[TopicPartition],
        strategy: AutoOffsetResetStrategy | None = None,
    ) -> None:
        """Request a reset of partitions, by default with the strategy of ``auto.offset.reset``."""
        chosen = strategy or self._default_reset_strategy
        for tp in partitions:
            state = self._assigned(tp)
            state.reset(chosen)
            self._file(tp, state)

    def reset_initializing_positions(self, include: Callable[[TopicPartition], bool] = lambda _: True) -> None:
        """Request a reset of the partitions that are still without a position.

        Raises:
            NoOffsetForPartitionError: ``auto.offset.reset`` is ``none``, and ``missing`` does not keep the error.
        """
        found = [tp for tp, state in self._index.without_position.items() if state.should_initialize and include(tp)]
        if self.has_default_offset_reset_policy():
            self.request_offset_reset(found)
        else:
            self.missing.add(found)

    def is_offset_reset_needed(self, tp: TopicPartition) -> bool:
        return self._assigned(tp).fetch_state is AWAIT_RESET

    def reset_strategy(self, tp: TopicPartition) -> AutoOffsetResetStrategy | None:
        return self._assigned(tp).reset_strategy

    def partitions_needing_reset(self, now_ms: int) -> list[TopicPartition]:
        return [  # in the order of their assignment, so that simulations are the same in each process
            tp
            for tp, state in self._index.without_position.items()
            if state.fetch_state is AWAIT_RESET and not (state.lacks_offset or state.awaiting_retry_backoff(now_ms))
        ]

    def set_next_allowed_retry(self, partitions: Iterable[TopicPartition], retry_ms: int) -> None:
        for tp in partitions:
            self._assigned(tp).next_retry_ms = retry_ms

    def request_failed(self, partitions: Iterable[TopicPartition], retry_ms: int) -> None:
        """Call ``set_next_allowed_retry`` for those that are still assigned."""
        self.set_next_allowed_retry([tp for tp in partitions if tp in self._index.assignment], retry_ms)

    # --- validation (KIP-320) --------------------------------------------------------------------------------------

    def maybe_validate_position_for_current_leader(
        self, tp: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool = True
    ) -> bool:
        """Set a partition's leader. Return True if the position must be validated before the next fetch.

        ``can_validate`` is True if the leader's OffsetForLeaderEpoch is new enough, as far as known.
        """
        state = self._index.assignment.get(tp)
        if state is None:
            return False
        if can_validate and state.is_led_by(leader):
            return state.fetch_state is AWAIT_VALIDATION
        if can_validate or leader.leader is None:
            needed = state.maybe_validate_position(leader)
        else:
            state.update_position_leader_no_validation(leader)
            needed = False
        self._file(tp, state)
        return needed

    def update_topic_id(self, tp: TopicPartition, topic_id: UUID | None) -> FetchPosition | None:
        """Compare a partition's position with its topic's id in metadata, which is None with brokers without ids.

        If the position belongs to a deleted topic of the same name, reset it by ``auto.offset.reset`` and return it.
        """
        state = self._index.assignment.get(tp)
        position = None if state is None else state.position
        if state is None or position is None or position.topic_id == topic_id:
            return None
        recreated = position.is_of_another_topic(topic_id)
        if recreated:
            state.reset_for_new_topic(self._default_reset_strategy)
        else:
            state.set_topic_id(topic_id)
        self._file(tp, state)
        return position if recreated else None

    def partitions_needing_validation(self, now_ms: int) -> dict[TopicPartition, FetchPosition]:
        return {
            tp: state.position
            for tp, state in self._index.without_position.items()
            if state.fetch_state is AWAIT_VALIDATION
            and state.position is not None
            and not state.awaiting_retry_backoff(now_ms)
        }

    def complete_validation(self, tp: TopicPartition) -> None:
        state = self._assigned(tp)
        state.complete_validation()
        self._file(tp, state)

    def maybe_complete_validation(
        self, tp: TopicPartition, request_position: FetchPosition, end_offset: int, leader_epoch: int
    ) -> LogTruncation | None:
        """Apply an OffsetForLeaderEpoch response. Return the truncation if there is one and no reset policy.

        ``end_offset`` is the end of the log of the position's epoch, or of the earlier ``leader_epoch``; -1 if unknown.
        """
        state = self._index.assignment.get(tp)
        if state is None or state.fetch_state is not AWAIT_VALIDATION or state.position != request_position:
            return None
        known = end_offset >= 0 and leader_epoch >= 0
        if known and end_offset >= request_position.offset:
            state.complete_validation()
            self._file(tp, state)
            return None
        if self.has_default_offset_reset_policy():
            if known:
                leader = request_position.current_leader
                state.seek_validated(FetchPosition(end_offset, leader_epoch, leader, request_position.topic_id))
            else:
                state.reset(self._default_reset_strategy)
            self._file(tp, state)
            truncation = None
        else:
            divergent = OffsetAndMetadata(end_offset, "", leader_epoch) if known else None
            truncation = LogTruncation(tp, request_position, divergent)
        self._log.warning(
            "The log of %s was truncated below the position %s; it now agrees up to %s",
            tp,
            request_position,
            f"offset {end_offset}" if known else "an unknown offset, as it has no such leader epoch",
        )
        return truncation

    # --- offsets from responses ------------------------------------------------------------------------------------

    def partition_end_offset(self, tp: TopicPartition, isolation_level: int) -> int | None:
        """Return the end of the log as of the last fetch. Thread: any."""
        state = self._assigned(tp)
        return state.last_stable_offset if isolation_level == READ_COMMITTED else state.high_watermark

    def log_start_offset(self, tp: TopicPartition) -> int | None:
        """Return the first offset of the log as of the last fetch; None before the first."""
        return self._assigned(tp).log_start_offset

    def last_fetch_ms(self, tp: TopicPartition) -> int | None:
        """Return when the end offsets were fetched last, in milliseconds since the epoch; None before the first."""
        return self._assigned(tp).last_fetch_ms

    def lag_and_lead(self, tp: TopicPartition, isolation_level: int) -> tuple[int | None, int | None]:
        """Return the records from the position to the readable end, and from the start of the log to the position.

        None means unknown, and for both if the partition is not assigned. Thread: any.
        """
        state = self._index.assignment.get(tp)
        return (None, None) if state is None else state.lag_and_lead(isolation_level)

    def request_partition_end_offset(self, tp: TopicPartition) -> None:
        self._assigned(tp).end_offset_requested = True

    def partition_end_offset_requested(self, tp: TopicPartition) -> bool:
        return self._assigned(tp).end_offset_requested

    def maybe_clear_partition_end_offset_requested(self, tp: TopicPartition) -> bool:
        state = self._index.assignment.get(tp)
        if state is None or not state.end_offset_requested:
            return False
        state.end_offset_requested = False
        return True

    def try_updating_offsets(
        self,
        tp: TopicPartition,
        *,
        high_watermark: int = -1,
        log_start_offset: int = -1,
        last_stable_offset: int = -1,
        wall_ms: int | None = None,
    ) -> bool:
        """Store a response's offsets that are known (>= 0). Return False if the partition is no longer assigned.

        ``wall_ms`` is the time of a fetch, in milliseconds since the epoch.
        """
        state = self._index.assignment.get(tp)
        if state is None:
            return False
        if wall_ms is not None:
            state.last_fetch_ms = wall_ms
        if high_watermark >= 0:
            state.high_watermark = high_watermark
            state.end_offset_requested = False
        if log_start_offset >= 0:
            state.log_start_offset = log_start_offset
        if last_stable_offset >= 0:
            state.last_stable_offset = last_stable_offset
            state.end_offset_requested = False
        return True

    # --- closest replica (KIP-392) ---------------------------------------------------------------------------------

    def try_updating_preferred_read_replica(self, tp: TopicPartition, replica_id: int, expires_ms: int) -> bool:
        """Fetch from ``replica_id`` until ``expires_ms``. If the replica is unchanged, keep the current lease."""
        state = self._index.assignment.get(tp)
        if state is None:
            return False
        if state.preferred_read_replica != replica_id:
            state.preferred_read_replica = replica_id
            state.preferred_read_replica_expires_ms = expires_ms
            self.lease_id += 1
            self._file(tp, state)
        return True

    def preferred_read_replica(self, tp: TopicPartition) -> int | None:
        """Return the replica to fetch the partition from, or None for its leader. Thread: any."""
        state = self._index.assignment.get(tp)
        return None if state is None else state.preferred_read_replica

    def leased_partitions(self) -> list[tuple[TopicPartition, int]]:
        """Return the partitions that are fetched from a replica other than the leader, with its id."""
        return [
            (tp, state.preferred_read_replica)
            for tp, state in self._index.leased.items()
            if state.preferred_read_replica is not None
        ]

    @property
    def has_leases(self) -> bool:
        """True if any partition is fetched from a replica other than the leader."""
        return bool(self._index.leased)

    def clear_preferred_read_replica(self, tp: TopicPartition) -> int | None:
        """Fetch from the leader again. Return the previous replica, if there was one."""
        state = self._index.assignment.get(tp)
        if state is None:
            return None
        removed = state.clear_preferred_read_replica()
        self._file(tp, state)
        return removed

    def expire_preferred_read_replicas(self, now_ms: int) -> None:
        """End expired leases: the leader is asked again and may name a better replica."""
        for tp, state in self._index.expired_leases(now_ms):
            state.clear_preferred_read_replica()
            self._file(tp, state)

    def __str__(self) -> str:
        if self._type == AUTO_TOPICS:
            return f"subscribe({', '.join(sorted(self._subscription))})"
        if self._type == AUTO_PATTERN:
            return f"subscribe({self._pattern.pattern if self._pattern else ''!r})"
        if self._broker_pattern is not None:
            return f"subscribe({self._broker_pattern})"
        if self._type == USER_ASSIGNED:
            return f"assign({', '.join(map(str, self._index.assignment.copy()))})"
        return "no subscription"
