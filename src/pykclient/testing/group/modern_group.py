"""The common part of groups of the consumer protocol and of share groups (Java: ModernGroup)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from pykclient.errors import CoordinatorNotAvailableError, GroupIdNotFoundError, GroupNotEmptyError
from pykclient.testing.group.group_offsets import GroupOffsets
from pykclient.testing.group.group_state import DEAD, GroupState

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.coordinator_log import KeyValue

#: The group's epoch is newer than that of the target assignment.
ASSIGNING: Final = GroupState("Assigning")
#: A member has not reached its target assignment yet.
RECONCILING: Final = GroupState("Reconciling")

#: The topics of a subscription, and the number of partitions of each.
Topics = Mapping[str, tuple["UUID", int]]
#: Appends records, and calls the callback with an error code or 0.
Store = Callable[[str, "list[KeyValue]", Callable[[int], None]], None]


class ModernGroup:
    """The epochs and writes of a group whose members only send heartbeats.

    The group's epoch rises when its members, their subscriptions or the subscribed topics change; then the target is
    assigned anew, in that epoch. ``is_behind_log`` is True if an append has failed, so that the log lacks a part of
    this; the next append writes all. Thread: loop.
    """

    __slots__ = (
        "_pending",
        "_waiting",
        "assignment_epoch",
        "group_epoch",
        "group_id",
        "is_behind_log",
        "is_dead",
        "is_metadata_stale",
        "metadata_hash",
        "offsets",
        "state_timestamp_ms",
    )

    protocol_type: ClassVar[str]
    uses_consumer_protocol: ClassVar[bool]

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.metadata_hash = 0
        self.state_timestamp_ms = now_wall_ms
        self.offsets = GroupOffsets()
        self.is_metadata_stale = True
        self.is_behind_log = False
        self.is_dead = False
        self._pending = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def has_members(self) -> bool:
        """True if the group has members."""
        raise NotImplementedError

    @property
    def generation_id(self) -> int:
        """The group's epoch."""
        return self.group_epoch

    @property
    def pending_members(self) -> Mapping[str, object]:
        """No members: in this protocol they come with an id."""
        return {}

    def transition_to(self, state: GroupState, now_wall_ms: int) -> None:
        """Note that the group is deleted or unloaded: other states follow from the members."""
        assert state is DEAD
        self.is_dead = True
        self.state_timestamp_ms = now_wall_ms

    # --- writes

    def write(
        self,
        store: Store,
        records: list[KeyValue],
        all_records: Callable[[], list[KeyValue]],
        then: Callable[[int], None],
    ) -> None:
        """Append records of the group with ``store``, and those of ``all_records`` too if the log is behind.

        ``then`` is called with an error code or 0 when all that has changed is in the log.
        """
        if self.is_behind_log:
            records = [*records, *all_records()]
        if not records:
            self._when_written(lambda: then(0))
            return
        self._pending += 1

        def written(code: int) -> None:
            self.is_behind_log = bool(code)
            then(code)
            self._end_write()

        store(self.group_id, records, written)

    def _end_write(self) -> None:
        self._pending -= 1
        if not self._pending:
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()

    def _when_written(self, then: Callable[[], None]) -> None:
        if self._pending:
            self._waiting.append(then)
        else:
            then()

    # --- who may do what

    def validate_commit(self, member_id: str, epoch: int, api_version: int | None) -> None:
        """Check that a member may commit offsets; ``api_version`` is None for a commit in a transaction."""
        raise NotImplementedError

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member may look up offsets."""
        raise NotImplementedError

    def validate_alive(self) -> None:
        """Check that the group is not dead.

        Raises:
            CoordinatorNotAvailableError: the group was just unloaded or deleted; the client should look for it again.
        """
        if self.is_dead:
            raise CoordinatorNotAvailableError(f"group {self.group_id} is being removed")

    def validate_delete(self) -> None:
        """Check that the group can be deleted.

        Raises:
            GroupNotEmptyError: it has members.
            GroupIdNotFoundError: it is dead already.
        """
        if self.is_dead:
            raise GroupIdNotFoundError(f"group {self.group_id} is in dead state")
        if self.has_members:
            raise GroupNotEmptyError(f"group {self.group_id} has members; it can be deleted when all have left")


def hash_of(topics: Topics) -> int:
    """Return a number that changes with the subscribed topics and their partitions; 0 without topics."""
    known: Iterable[str] = (f"{topic}:{topic_id}:{count}" for topic, (topic_id, count) in sorted(topics.items()))
    text = ",".join(known)
    return zlib.crc32(text.encode()) if text else 0
