"""The records of __share_group_state, in Kafka's format (Java: ShareCoordinatorRecordHelpers, ShareGroupOffset)."""

from __future__ import annotations

from typing import Final, NamedTuple

from pykclient.protocol.message import DataMessage
from pykclient.protocol.messages.share_snapshot_key import ShareSnapshotKey
from pykclient.protocol.messages.share_snapshot_value import ShareSnapshotValue
from pykclient.protocol.messages.share_update_key import ShareUpdateKey
from pykclient.protocol.messages.share_update_value import ShareUpdateValue
from pykclient.protocol.wire import BytesLike, Reader, Writer
from pykclient.testing.coordinator_log import KeyValue
from pykclient.testing.share.share_types import SharePartitionKey, ShareState, StateBatch
from pykclient.testing.share.state_batches import combine_state_batches

#: The types of records, which the keys start with.
_SNAPSHOT: Final = 0
_UPDATE: Final = 1


class StateUpdate(NamedTuple):
    """A change of a share partition's state since its last snapshot. Numbers that do not change are -1."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: list[StateBatch]

    def apply(self, state: ShareState) -> ShareState:
        """Return the state after this change."""
        start_offset = state.start_offset if self.start_offset < 0 else self.start_offset
        return state._replace(
            start_offset=start_offset,
            leader_epoch=state.leader_epoch if self.leader_epoch < 0 else self.leader_epoch,
            delivery_complete_count=self.delivery_complete_count,
            batches=combine_state_batches(state.batches, self.batches, start_offset),
        )


def _bytes(type: int, message: DataMessage) -> bytes:
    w = Writer()
    w.int16(type)
    message.write(w, 0)
    return w.getvalue()


def _snapshot_key(key: SharePartitionKey) -> bytes:
    message = ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _bytes(_SNAPSHOT, message)


def snapshot_record(key: SharePartitionKey, state: ShareState) -> KeyValue:
    """Return the record of the whole state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp_ms,
        write_timestamp=state.write_timestamp_ms,
        state_batches=[
            ShareSnapshotValue.StateBatch(
                first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=delivery_count
            )
            for first, last, delivery_state, delivery_count in state.batches
        ],
    )
    return _snapshot_key(key), _bytes(0, value)


def update_record(key: SharePartitionKey, update: StateUpdate) -> KeyValue:
    """Return the record of a change."""
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=[
            ShareUpdateValue.StateBatch(
                first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=delivery_count
            )
            for first, last, delivery_state, delivery_count in update.batches
        ],
    )
    message = ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _bytes(_UPDATE, message), _bytes(0, value)


def tombstone(key: SharePartitionKey) -> KeyValue:
    """Return the record that deletes the state."""
    return _snapshot_key(key), None


def read_record(key: BytesLike, value: BytesLike | None) -> tuple[SharePartitionKey, ShareState | StateUpdate | None]:
    """Return a record's share partition, and its state, a change of it, or None if it was deleted.

    Raises:
        RemoteProtocolError, UnsupportedVersionError: the record cannot be decoded.
    """
    reader = Reader(key)
    type = reader.int16()
    # Both keys have the same fields.
    read = ShareSnapshotKey.read(reader, 0)
    partition_key = SharePartitionKey(read.group_id, read.topic_id, read.partition)
    if value is None:
        return partition_key, None
    body = Reader(value)
    body.int16()
    if type == _UPDATE:
        update = ShareUpdateValue.read(body, 0)
        return partition_key, StateUpdate(
            update.snapshot_epoch,
            update.leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            [
                StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
                for b in update.state_batches
            ],
        )
    snapshot = ShareSnapshotValue.read(body, 0)
    return partition_key, ShareState(
        snapshot.snapshot_epoch,
        snapshot.state_epoch,
        snapshot.leader_epoch,
        snapshot.start_offset,
        snapshot.delivery_complete_count,
        snapshot.create_timestamp,
        snapshot.write_timestamp,
        [StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in snapshot.state_batches],
    )
