"""The state of one partition on a follower (Java: PartitionFetchState, ReplicaState)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import IllegalStateError
from pykclient.testing.replica.fetch_params import NO_EPOCH

if TYPE_CHECKING:
    from uuid import UUID

#: The follower is finding out where its log diverged from the leader's.
TRUNCATING: Final = "Truncating"
#: The leader does not have the follower's offset; the follower is asking for the bounds of the leader's log.
OUT_OF_RANGE: Final = "OutOfRange"
#: The follower is fetching.
FETCHING: Final = "Fetching"

_MOVES: Final = {
    TRUNCATING: (TRUNCATING, FETCHING),
    FETCHING: (FETCHING, TRUNCATING, OUT_OF_RANGE),
    OUT_OF_RANGE: (OUT_OF_RANGE, FETCHING),
}


class PartitionFetchState:
    """The progress of a follower: the next ``fetch_offset``, and the leader epoch of the record before it.

    The follower does nothing before ``delayed_until_ms``. Thread: loop.
    """

    __slots__ = (
        "current_leader_epoch",
        "delayed_until_ms",
        "fetch_offset",
        "last_fetched_epoch",
        "leader_end_offset",
        "state",
        "topic_id",
    )

    def __init__(
        self, topic_id: UUID, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int | None, state: str
    ) -> None:
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = NO_EPOCH if last_fetched_epoch is None else last_fetched_epoch
        self.state = state
        self.delayed_until_ms = 0
        #: The end of the leader's log, while OUT_OF_RANGE; None if not known yet.
        self.leader_end_offset: int | None = None

    def move(self, state: str) -> None:
        """Change the state.

        Raises:
            IllegalStateError: ``state`` must not follow the current one.
        """
        if state not in _MOVES[self.state]:
            raise IllegalStateError(f"a follower cannot go from {self.state} to {state}")
        self.state = state

    def __repr__(self) -> str:
        return f"PartitionFetchState({self.state} from {self.fetch_offset} in epoch {self.current_leader_epoch})"
