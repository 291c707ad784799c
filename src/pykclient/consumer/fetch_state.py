"""The fetch state of one partition: the table of states, and the data of each.

Source: KIP-320 for validation; Java: SubscriptionState.FetchStates and TopicPartitionState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.consumer.fetch_config import READ_COMMITTED, AutoOffsetResetStrategy
from pykclient.errors import IllegalStateError
from pykclient.network.metadata import NO_LEADER_OR_EPOCH, LeaderAndEpoch
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

#: The group of partitions whose leader is unknown and that could be fetched otherwise.
NO_NODE = -1


class FetchState:
    """A state: whether it requires a position, and whether records may be fetched from it. Thread: any."""

    __slots__ = ("has_valid_position", "name", "requires_position")

    def __init__(self, name: str, *, requires_position: bool, has_valid_position: bool) -> None:
        self.name = name
        self.requires_position = requires_position
        self.has_valid_position = has_valid_position

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

    __slots__ = (
        "end_offset_requested",
        "fetch_state",
        "group_node",
        "high_watermark",
        "lacks_offset",
        "last_fetch_ms",
        "last_stable_offset",
        "log_start_offset",
        "next_retry_ms",
        "paused",
        "pending_on_assigned_callback",
        "pending_revocation",
        "position",
        "preferred_read_replica",
        "preferred_read_replica_expires_ms",
        "reset_strategy",
    )

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
