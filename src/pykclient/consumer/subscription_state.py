"""What a consumer reads: its subscription, the partitions assigned to it, and where it is in each."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from pykclient.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy
from pykclient.consumer.consumer_rebalance_listener import (
    ConsumerRebalanceListener as ConsumerRebalanceListener,  # kafka-python's programs import it from this module
)
from pykclient.consumer.fetch_config import READ_COMMITTED, READ_UNCOMMITTED
from pykclient.consumer.fetch_state import (
    AWAIT_RESET,
    AWAIT_VALIDATION,
    FetchPosition,
    LogTruncation,
    TopicPartitionState,
)
from pykclient.consumer.partition_index import PartitionIndex
from pykclient.errors import IllegalArgumentError, IllegalStateError, NoOffsetForPartitionError
from pykclient.log_context import LogContext
from pykclient.types import UNKNOWN_EPOCH, Node, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.network.metadata import LeaderAndEpoch

NONE = "none"
AUTO_TOPICS = "topics"
AUTO_PATTERN = "pattern"
USER_ASSIGNED = "assign"


class SubscriptionState:
    """Subscription, assignment and positions (Java: SubscriptionState).

    Whatever changes a partition's state ends with ``_file``, which keeps the indexes right.

    Thread: application. Metadata, which the heartbeat thread may refresh, asks ``metadata_topics``, ``needs_metadata``
    and ``matches_subscribed_pattern`` from any thread: they read values that are replaced whole, never changed.
    """

    def __init__(self, log_context: LogContext, default_reset_strategy: AutoOffsetResetStrategy) -> None:
        self._log = log_context.logger(__name__)
        self._default_reset_strategy = default_reset_strategy
        self._type = NONE
        self._pattern: re.Pattern[str] | None = None
        self._subscription: frozenset[str] = frozenset()
        self._group_subscription: frozenset[str] = frozenset()
        self._rebalance_listener: Any = None
        self._assignment_id = 0
        self._lease_id = 0
        self._index = PartitionIndex()

    def _file(self, tp: TopicPartition, state: TopicPartitionState) -> None:
        # Between a change of subscription and the rebalance that follows, partitions may be held that nobody wants.
        self._index.file(tp, state, self._type != AUTO_TOPICS or tp.topic in self._subscription)

    def _set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that stay keep what is known of them."""
        known = self._index.assignment
        self._assignment_id += 1
        assignment = {tp: known.get(tp) or TopicPartitionState() for tp in partitions}
        for state in assignment.values():
            # Of a rebalance that did not come to its end, as a wakeup left the listener: it was not taken away.
            state.pending_revocation = False
        self._index.replace(assignment)
        self._refile_all()

    def refile(self) -> None:
        """Make the indexes anew, and let look-ups that wait for an answer be sent again.

        For when an exception struck in the middle of a change: the partitions themselves are changed in single steps.
        """
        for _, state in self._index:
            state.next_retry_ms = None
        self._index.replace(self._index.assignment)
        self._refile_all()

    def _refile_all(self) -> None:
        for tp, state in self._index:
            self._file(tp, state)

    def _assigned(self, tp: TopicPartition) -> TopicPartitionState:
        state = self._index.assignment.get(tp)
        if state is None:
            raise IllegalStateError(
                f"{tp} is not assigned to this consumer: assign() it, or wait in poll() for the group to do so"
            )
        return state

    # --- subscription --------------------------------------------------------------------------------------------

    def _set_type(self, subscription_type: str) -> None:
        if self._type == NONE:
            self._type = subscription_type
        elif self._type != subscription_type:
            raise IllegalStateError(
                "subscribe() to topics, subscribe() to a pattern and assign() exclude each other; unsubscribe() first"
            )

    def subscribe(self, topics: Iterable[str], listener: Any = None) -> bool:
        """Subscribe to topics by name; True when the set has changed."""
        self._set_type(AUTO_TOPICS)
        self._rebalance_listener = listener
        return self._change_subscription(frozenset(topics))

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: Any = None) -> None:
        """Subscribe to every topic whose whole name matches, now and later."""
        self._set_type(AUTO_PATTERN)
        self._rebalance_listener = listener
        self._pattern = pattern

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Take the topics that the pattern was found to match; True when the set has changed."""
        if self._type != AUTO_PATTERN:
            raise IllegalArgumentError(f"there is no pattern: the subscription type is {self._type!r}")
        return self._change_subscription(frozenset(topics))

    def _change_subscription(self, topics: frozenset[str]) -> bool:
        if topics == self._subscription:
            return False
        self._subscription = topics
        self._refile_all()
        return True

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """As leader, take note of all topics of the group; True when some are beyond the own subscription."""
        if not self.has_auto_assigned_partitions():
            raise IllegalStateError("only a consumer that has subscribed can belong to a group")
        self._group_subscription = frozenset(topics)
        return not self._group_subscription <= self._subscription

    def reset_group_subscription(self) -> None:
        self._group_subscription = frozenset()

    def unsubscribe(self) -> None:
        """Forget subscription and assignment."""
        self._type = NONE
        self._pattern = None
        self._subscription = self._group_subscription = frozenset()
        self._set_assignment(())

    def has_pattern_subscription(self) -> bool:
        return self._type == AUTO_PATTERN

    def has_no_subscription_or_user_assignment(self) -> bool:
        return self._type == NONE

    def has_auto_assigned_partitions(self) -> bool:
        return self._type in (AUTO_TOPICS, AUTO_PATTERN)

    def matches_subscribed_pattern(self, topic: str) -> bool:
        pattern = self._pattern
        return pattern is not None and pattern.fullmatch(topic) is not None

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; empty with manual assignment."""
        return self._subscription if self.has_auto_assigned_partitions() else frozenset()

    def subscribed_pattern(self) -> re.Pattern[str] | None:
        return self._pattern

    def metadata_topics(self) -> frozenset[str]:
        """The topics to know about: the own and, as leader, those of the group."""
        return self._subscription | self._group_subscription

    def needs_metadata(self, topic: str) -> bool:
        return topic in self._subscription or topic in self._group_subscription

    def rebalance_listener(self) -> Any:
        return self._rebalance_listener

    # --- assignment ----------------------------------------------------------------------------------------------

    @property
    def assignment_id(self) -> int:
        """Changes with each assignment."""
        return self._assignment_id

    def assign_from_user(self, partitions: Collection[TopicPartition]) -> bool:
        """Assign by hand; True when the set of topics has changed. Partitions that stay keep their positions."""
        self._set_type(USER_ASSIGNED)
        if self._index.assignment.keys() == set(partitions):
            return False
        self._set_assignment(partitions)
        return self._change_subscription(frozenset(tp.topic for tp in partitions))

    def check_assignment_matched_subscription(self, assignments: Iterable[TopicPartition]) -> bool:
        """Whether everything that the group gave is still wanted."""
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
        """Take what the group gave. Partitions that stay keep their positions."""
        if not self.has_auto_assigned_partitions():
            raise IllegalArgumentError("the group cannot assign partitions: they were assigned by hand")
        self._set_assignment(assignments)

    def assign_from_subscribed_awaiting_callback(
        self, full_assignment: Iterable[TopicPartition], added: Iterable[TopicPartition]
    ) -> None:
        """As ``assign_from_subscribed``; the added ones wait for the rebalance listener before they are fetched."""
        self.assign_from_subscribed(full_assignment)
        self._mark(added, "pending_on_assigned_callback", True)

    def enable_partitions_awaiting_callback(self, partitions: Iterable[TopicPartition]) -> None:
        self._mark(partitions, "pending_on_assigned_callback", False)

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch no more of these: they are about to be taken away."""
        self._mark(partitions, "pending_revocation", True)

    def _mark(self, partitions: Iterable[TopicPartition], flag: str, value: bool) -> None:
        for tp in partitions:
            state = self._assigned(tp)
            setattr(state, flag, value)
            self._file(tp, state)

    def assigned_partitions(self) -> set[TopicPartition]:
        return set(self._index.assignment)

    def assigned_partitions_list(self) -> list[TopicPartition]:
        return list(self._index.assignment)

    def num_assigned_partitions(self) -> int:
        return len(self._index.assignment)

    def is_assigned(self, tp: TopicPartition) -> bool:
        return tp in self._index.assignment

    def move_partition_to_end(self, tp: TopicPartition) -> None:
        """Let the others come first in the next requests."""
        self._index.move_to_end(tp)

    def pause(self, tp: TopicPartition) -> None:
        self._mark((tp,), "paused", True)

    def resume(self, tp: TopicPartition) -> None:
        self._mark((tp,), "paused", False)

    def is_paused(self, tp: TopicPartition) -> bool:
        state = self._index.assignment.get(tp)
        return state is not None and state.paused

    def paused_partitions(self) -> set[TopicPartition]:
        return {tp for tp, state in self._index if state.paused}

    # --- what to fetch -------------------------------------------------------------------------------------------

    def fetchable_partitions(self, is_available: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """The partitions to fetch that ``is_available`` agrees to, those first that have waited longest."""
        return [tp for tp, state in self._index if state.group_node is not None and is_available(tp)]

    def fetch_node_ids(self) -> list[int]:
        """The ids of the nodes that have something to fetch; NO_NODE among them when a leader is unknown."""
        return list(self._index.fetchable)

    def fetchable_partitions_of(self, node_id: int) -> dict[TopicPartition, FetchPosition]:
        """All that is to be fetched from a node, by partition. Nothing is changed then for ``take_changes_of``."""
        self._index.changed.pop(node_id, None)
        group = self._index.fetchable.get(node_id, {})
        return {tp: state.position for tp, state in group.items() if state.position is not None}

    def take_changes_of(self, node_id: int) -> dict[TopicPartition, FetchPosition | None]:
        """What is to be fetched from a node otherwise than when it was last asked for; None: no more."""
        group = self._index.fetchable.get(node_id, {})
        changed = self._index.changed.pop(node_id, None) or ()
        return {tp: group[tp].position if tp in group else None for tp in changed}

    def leader_by_position(self, node_id: int) -> Node | None:
        """The node of this id, as a position to fetch from knows it."""
        for state in self._index.fetchable.get(node_id, {}).values():
            leader = None if state.position is None else state.position.current_leader.leader
            if leader is not None and leader.id == node_id:
                return leader
        return None

    def fetch_node_id(self, tp: TopicPartition) -> int | None:
        """The id of the node that the partition is to be fetched from; None when it is not to be fetched."""
        state = self._index.assignment.get(tp)
        return None if state is None else state.group_node

    def is_fetchable(self, tp: TopicPartition) -> bool:
        state = self._index.assignment.get(tp)
        return state is not None and state.group_node is not None

    def fetchable_position(self, tp: TopicPartition) -> FetchPosition | None:
        """Where to fetch the partition from; None when it is not to be fetched."""
        state = self._index.assignment.get(tp)
        return None if state is None or state.group_node is None else state.position

    # --- positions -----------------------------------------------------------------------------------------------

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.seek_validated(tp, FetchPosition(offset))

    def seek_validated(self, tp: TopicPartition, position: FetchPosition) -> None:
        state = self._assigned(tp)
        state.seek_validated(position)
        self._file(tp, state)

    def seek_unvalidated(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Seek, and have the position validated first when both epochs are known."""
        state = self._assigned(tp)
        state.seek_unvalidated(position)
        self._file(tp, state)

    def maybe_seek_unvalidated(
        self, tp: TopicPartition, position: FetchPosition, requested: AutoOffsetResetStrategy | None
    ) -> None:
        """Seek to what a reset has found, unless the application did something else meanwhile."""
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

    def has_valid_position(self, tp: TopicPartition) -> bool:
        state = self._index.assignment.get(tp)
        return state is not None and state.has_valid_position

    def set_position(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Move on after a delivery (Java: ``position(tp, position)``)."""
        state = self._assigned(tp)
        state.advance(position)
        if state.group_node == state.fetch_node_id:
            self._index.touch(tp, state)
        else:
            self._file(tp, state)

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What could be committed: the position of each partition that has a valid one."""
        consumed = {}
        for tp, state in self._index:
            position = state.position
            if position is not None and state.has_valid_position:
                epoch = UNKNOWN_EPOCH if position.offset_epoch is None else position.offset_epoch
                consumed[tp] = OffsetAndMetadata(position.offset, "", epoch)
        return consumed

    def has_all_fetch_positions(self) -> bool:
        return not self._index.without_position

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
        partitions: TopicPartition | Collection[TopicPartition],
        strategy: AutoOffsetResetStrategy | None = None,
    ) -> None:
        """Have one or more partitions reset, by default as ``auto.offset.reset`` says."""
        several: Collection[TopicPartition] = (
            (partitions,) if isinstance(partitions, TopicPartition) else tuple(partitions)
        )
        chosen = strategy or self._default_reset_strategy
        for tp in several:
            state = self._assigned(tp)
            state.reset(chosen)
            self._file(tp, state)

    def request_offset_reset_if_partition_assigned(self, tp: TopicPartition) -> None:
        if tp in self._index.assignment:
            self.request_offset_reset(tp)

    def reset_initializing_positions(self, include: Callable[[TopicPartition], bool] = lambda _: True) -> None:
        """Have those reset that nothing else gave a position; raises NoOffsetForPartitionError without a policy."""
        found = [tp for tp, state in self._index.without_position.items() if state.should_initialize and include(tp)]
        if self.has_default_offset_reset_policy():
            self.request_offset_reset(found)
            return
        if found:
            names = ", ".join(map(str, sorted(found)))
            raise NoOffsetForPartitionError(
                f"no committed offset and auto.offset.reset is 'none' for: {names}; seek() there, or set a policy",
                frozenset(found),
            )

    def is_offset_reset_needed(self, tp: TopicPartition) -> bool:
        return self._assigned(tp).fetch_state is AWAIT_RESET

    def reset_strategy(self, tp: TopicPartition) -> AutoOffsetResetStrategy | None:
        return self._assigned(tp).reset_strategy

    def partitions_needing_reset(self, now_ms: int) -> list[TopicPartition]:
        return [  # in the order of their assignment: simulations do the same in each process
            tp
            for tp, state in self._index.without_position.items()
            if state.fetch_state is AWAIT_RESET and not state.awaiting_retry_backoff(now_ms)
        ]

    def set_next_allowed_retry(self, partitions: Iterable[TopicPartition], retry_ms: int) -> None:
        for tp in partitions:
            self._assigned(tp).next_retry_ms = retry_ms

    def request_failed(self, partitions: Iterable[TopicPartition], retry_ms: int) -> None:
        """As ``set_next_allowed_retry``, of those that are still assigned."""
        self.set_next_allowed_retry([tp for tp in partitions if tp in self._index.assignment], retry_ms)

    # --- validation (KIP-320) --------------------------------------------------------------------------------------

    def maybe_validate_position_for_current_leader(
        self, tp: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool = True
    ) -> bool:
        """Take note of a partition's leader; True when its position is to be validated before it is fetched again.

        ``can_validate``: whether the leader's OffsetForLeaderEpoch is new enough, as far as that is known.
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
        """Compare a partition's position with the id that its topic has in metadata; None: brokers without ids.

        If the position is of an earlier topic of this name, which was deleted, reset it as ``auto.offset.reset`` says
        and return it.
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

    def awaiting_validation(self, tp: TopicPartition) -> bool:
        return self._assigned(tp).fetch_state is AWAIT_VALIDATION

    def complete_validation(self, tp: TopicPartition) -> None:
        state = self._assigned(tp)
        state.complete_validation()
        self._file(tp, state)

    def maybe_complete_validation(
        self, tp: TopicPartition, request_position: FetchPosition, end_offset: int, leader_epoch: int
    ) -> LogTruncation | None:
        """Take the answer of OffsetForLeaderEpoch; the truncation when there is one and no policy to deal with it.

        ``end_offset`` is where the log of the position's epoch, or of ``leader_epoch`` before it, ends; -1 if unknown.
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
            "The log of %s was truncated below the position %s; it now agrees up to offset %d",
            tp,
            request_position,
            end_offset,
        )
        return truncation

    # --- what responses tell ---------------------------------------------------------------------------------------

    def partition_end_offset(self, tp: TopicPartition, isolation_level: int) -> int | None:
        state = self._assigned(tp)
        return state.last_stable_offset if isolation_level == READ_COMMITTED else state.high_watermark

    def partition_lag(self, tp: TopicPartition, isolation_level: int) -> int | None:
        """Records between the position and the end that may be read, as last heard; None while unknown."""
        return self.partition_lag_and_lead(tp, isolation_level)[0]

    def partition_lead(self, tp: TopicPartition) -> int | None:
        """Records between the start of the log and the position; None while unknown."""
        return self.partition_lag_and_lead(tp, READ_UNCOMMITTED)[1]

    def partition_lag_and_lead(self, tp: TopicPartition, isolation_level: int) -> tuple[int | None, int | None]:
        """Both at once, as each delivery asks for them."""
        state = self._assigned(tp)
        position = state.position
        if position is None:
            return None, None
        end = state.last_stable_offset if isolation_level == READ_COMMITTED else state.high_watermark
        start = state.log_start_offset
        return None if end is None else end - position.offset, None if start is None else position.offset - start

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
    ) -> bool:
        """Note what a response said of the log, where it said something (>= 0); False when not assigned any more."""
        state = self._index.assignment.get(tp)
        if state is None:
            return False
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
        """Read from ``replica_id`` until ``expires_ms``; an unchanged choice keeps its lease."""
        state = self._index.assignment.get(tp)
        if state is None:
            return False
        if state.preferred_read_replica != replica_id:
            state.preferred_read_replica = replica_id
            state.preferred_read_replica_expires_ms = expires_ms
            self._lease_id += 1
            self._file(tp, state)
        return True

    def preferred_read_replica(self, tp: TopicPartition) -> int | None:
        """The replica that the partition is read from, None for its leader. Thread: any."""
        state = self._index.assignment.get(tp)
        return None if state is None else state.preferred_read_replica

    def leased_partitions(self) -> list[tuple[TopicPartition, int]]:
        """What is read from other replicas than the leader, and from which."""
        return [
            (tp, state.preferred_read_replica)
            for tp, state in self._index.leased.items()
            if state.preferred_read_replica is not None
        ]

    @property
    def has_leases(self) -> bool:
        """Whether anything is read from another replica than the leader."""
        return bool(self._index.leased)

    @property
    def lease_id(self) -> int:
        """Changes whenever a preferred read replica is set."""
        return self._lease_id

    def clear_preferred_read_replica(self, tp: TopicPartition) -> int | None:
        """Read from the leader again; the replica that was read from, if one was."""
        state = self._index.assignment.get(tp)
        if state is None:
            return None
        removed = state.clear_preferred_read_replica()
        self._file(tp, state)
        return removed

    def expire_preferred_read_replicas(self, now_ms: int) -> None:
        """End the leases that have run out: the leader is asked again and may name a better replica."""
        for tp, state in self._index.expired_leases(now_ms):
            state.clear_preferred_read_replica()
            self._file(tp, state)

    def __str__(self) -> str:
        if self._type == AUTO_TOPICS:
            return f"subscribe({', '.join(sorted(self._subscription))})"
        if self._type == AUTO_PATTERN:
            return f"subscribe({self._pattern.pattern if self._pattern else ''!r})"
        if self._type == USER_ASSIGNED:
            return f"assign({', '.join(map(str, self._index.assignment))})"
        return "no subscription"
