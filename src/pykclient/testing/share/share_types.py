"""Vocabulary of share groups on the broker's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.testing.coordination.znodes import uuid_to_string

if TYPE_CHECKING:
    from uuid import UUID

#: The start offset of a share partition that the group has not begun to read.
UNINITIALIZED_START_OFFSET: Final = -1
#: The epoch in requests whose sender does not know it.
NO_EPOCH: Final = -1


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator finds the share coordinator."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets with the same state of delivery, as the share coordinator stores them (Java: PersisterStateBatch)."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The state of a share partition in the share coordinator (Java: ShareGroupOffset)."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: Sequence[StateBatch] = ()


class ShareUpdate(NamedTuple):
    """A change of a share partition's state, which its leader asks the share coordinator to write."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()
