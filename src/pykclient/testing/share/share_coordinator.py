"""The coordinator of the state of share partitions, and its records.

Java: ShareCoordinatorService, ShareCoordinatorRecordHelpers.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from pykclient import errors
from pykclient.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from pykclient.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from pykclient.protocol.messages.share_snapshot_key import ShareSnapshotKey
from pykclient.protocol.messages.share_snapshot_value import ShareSnapshotValue
from pykclient.protocol.messages.share_update_value import ShareUpdateValue
from pykclient.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.record.record_batch import Record
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordinator_log import CoordinatorLog, KeyValue, versioned
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import DeleteRecordsResult, ReplicaManager
from pykclient.testing.share.in_flight_records import (
    NO_EPOCH,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    ShareState,
    StateBatch,
    state_batches_of,
)
from pykclient.topic_names import SHARE_GROUP_STATE_TOPIC_NAME
from pykclient.types import TopicPartition


def combine_state_batches(
    so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return batches without overlaps, from ``start_offset`` on (-1: all), in the order of their offsets.

    Where batches overlap, the one with more deliveries counts or, after as many deliveries, the one with the later
    state.
    """
    waiting = sorted(
        batch._replace(first_offset=max(batch.first_offset, start_offset))
        for batch in (*so_far, *new)
        if batch.last_offset >= start_offset
    )
    combined: list[StateBatch] = []
    #: The batches that cover ``offset``, the strongest first.
    covering: list[tuple[int, int, int]] = []
    bounds = sorted({bound for batch in waiting for bound in (batch.first_offset, batch.last_offset + 1)})
    index = 0
    for offset, end in pairwise(bounds):
        while index < len(waiting) and waiting[index].first_offset <= offset:
            batch = waiting[index]
            heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            index += 1
        while covering and covering[0][2] < offset:
            heapq.heappop(covering)
        if not covering:
            continue
        part = StateBatch(offset, end - 1, -covering[0][1], -covering[0][0])
        last = combined[-1] if combined else None
        if last is not None and last.last_offset + 1 == offset and last[2:] == part[2:]:
            combined[-1] = last._replace(last_offset=part.last_offset)
        else:
            combined.append(part)
    return combined


#: The types of records, which the keys start with.
_SNAPSHOT: Final = 0

_UPDATE: Final = 1


class StateUpdate(NamedTuple):
    """A change of a share partition's state since its last snapshot. Numbers that do not change are -1."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()

    def apply(self, state: ShareState) -> ShareState:
        """Return the state after this change."""
        start_offset = state.start_offset if self.start_offset < 0 else self.start_offset
        return state._replace(
            start_offset=start_offset,
            leader_epoch=state.leader_epoch if self.leader_epoch < 0 else self.leader_epoch,
            delivery_complete_count=self.delivery_complete_count,
            batches=combine_state_batches(state.batches, self.batches, start_offset),
        )


def _key(type: int, key: SharePartitionKey) -> bytes:
    """Return the key of a record. Those of both types have the same fields."""
    return versioned(type, ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition))


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
        state_batches=[ShareSnapshotValue.StateBatch(**batch._asdict()) for batch in state.batches],
    )
    return _key(_SNAPSHOT, key), versioned(0, value)


def update_record(key: SharePartitionKey, update: StateUpdate) -> KeyValue:
    """Return the record of a change."""
    fields = update._asdict()
    batches = [ShareUpdateValue.StateBatch(**batch._asdict()) for batch in fields.pop("batches")]
    value = ShareUpdateValue(**fields, state_batches=batches)
    return _key(_UPDATE, key), versioned(0, value)


def tombstone(key: SharePartitionKey) -> KeyValue:
    """Return the record that deletes the state."""
    return _key(_SNAPSHOT, key), None


def read_record(key: BytesLike, value: BytesLike | None) -> tuple[SharePartitionKey, ShareState | StateUpdate | None]:
    """Return a record's share partition, and its state, a change of it, or None if it was deleted.

    Raises:
        RemoteProtocolError, UnsupportedVersionError: the record cannot be decoded.
    """
    reader = Reader(key)
    type = reader.int16()
    read = ShareSnapshotKey.read(reader, 0)
    partition_key = SharePartitionKey(read.group_id, read.topic_id, read.partition)
    if value is None:
        return partition_key, None
    body = Reader(value)
    body.int16()
    if type == _UPDATE:
        update = ShareUpdateValue.read(body, 0)
        numbers = {name: getattr(update, name) for name in StateUpdate._fields if name != "batches"}
        return partition_key, StateUpdate(**numbers, batches=state_batches_of(update))
    snapshot = ShareSnapshotValue.read(body, 0)
    return partition_key, ShareState(
        snapshot.snapshot_epoch,
        snapshot.state_epoch,
        snapshot.leader_epoch,
        snapshot.start_offset,
        snapshot.delivery_complete_count,
        snapshot.create_timestamp,
        snapshot.write_timestamp,
        state_batches_of(snapshot),
    )


#: Called with an error or None, when the change is written.
WrittenCallback = Callable[[errors.BrokerError | None], None]

#: The same, and the state that was asked for.
StateCallback = Callable[[errors.BrokerError | None, ShareState | None], None]


@dataclass(slots=True)
class _Entry:
    """The state of a share partition, and how many changes were written since its last snapshot.

    ``snapshot_offset`` is the offset of that snapshot, and ``written_ms`` the time of the last record. Thread: loop.
    """

    state: ShareState
    snapshot_offset: int
    written_ms: int
    updates: int = 0

    def apply(self, change: ShareState | StateUpdate, offset: int, now_ms: int) -> None:
        """Take over a record."""
        self.written_ms = now_ms
        if isinstance(change, ShareState):
            self.state = change
            self.updates = 0
            self.snapshot_offset = offset
        else:
            self.state = change.apply(self.state)
            self.updates += 1


class ShareCoordinator:
    """The state of share partitions whose partition of __share_group_state this broker leads.

    A change is appended first, and takes effect and is answered when all in-sync replicas have it. Meanwhile further
    requests for the share partition wait, so each sees the result of the one before. A leader that another one has
    replaced is fenced by its leader epoch, and one from before the state was reset by its state epoch.

    The records of a share partition begin with a snapshot. Those before the oldest of the latest snapshots are deleted
    at intervals. So that a share partition at rest does not keep all later records, it gets another snapshot.

    Thread: loop
    """

    def __init__(self, broker: BrokerContext, replica_manager: ReplicaManager, metadata_cache: MetadataCache) -> None:
        config = broker.config
        self._broker = broker
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._log = broker.log_context.logger(__name__)
        self._updates_per_snapshot = config.get_int("share.coordinator.snapshot.update.records.per.snapshot")
        self._write_timeout_ms = config.get_int("share.coordinator.write.timeout.ms")
        self.storage: CoordinatorLog[dict[SharePartitionKey, _Entry]] = CoordinatorLog(
            broker,
            replica_manager,
            metadata_cache,
            SHARE_GROUP_STATE_TOPIC_NAME,
            config.get_int("share.coordinator.state.topic.num.partitions"),
            self._write_timeout_ms,
            self._apply_record,
        )
        self._prune_interval_ms = config.get_int("share.coordinator.state.topic.prune.interval.ms")
        self._cold_interval_ms = config.get_int("share.coordinator.cold.partition.snapshot.interval.ms")
        self._pruned_to: dict[int, int] = {}
        #: The requests that wait for a share partition that is being written.
        self._waiting: dict[SharePartitionKey, deque[Callable[[], None]]] = {}

    def startup(self) -> None:
        """Accept requests. State arrives with the partitions that this broker is elected for."""
        self.storage.active = True
        self._metadata_cache.add_listener(self._on_metadata)

    def shutdown(self) -> None:
        """Refuse requests."""
        self.storage.active = False

    # --- leadership

    def on_election(self, partition: int, epoch: int) -> None:
        """Take over a partition that its broker leads from ``epoch`` on."""
        loaded: dict[SharePartitionKey, _Entry] = {}
        self.storage.load(partition, epoch, loaded, partial(self._on_loaded, partition, loaded))

    def _on_loaded(self, partition: int, loaded: dict[SharePartitionKey, _Entry]) -> None:
        self._pruned_to.pop(partition, None)
        self._log.info("Loaded %d share partitions from partition %d", len(loaded), partition)
        self.storage.repeat(self._prune, self._prune_interval_ms)
        self.storage.repeat(self._snapshot_cold, self._cold_interval_ms)

    def on_resignation(self, partition: int, epoch: int) -> None:
        """Give up a partition. ``epoch`` is negative if the partition was deleted."""
        self.storage.unload(partition, epoch)

    # --- requests
    #
    # ``asked`` is what a request says about a share partition.

    def initialize_state(
        self, key: SharePartitionKey, asked: InitializeShareGroupStateRequest.PartitionData, then: WrittenCallback
    ) -> None:
        """Begin the state of a share partition, or reset it."""

        def initialize(written: WrittenCallback) -> None:
            entry = self._partition(key).get(key)
            if entry is not None:
                _check_state_epoch(key, entry, asked.state_epoch)
            now_ms = self._broker.loop.wall_ms
            start_offset = asked.start_offset
            complete_count = -1 if start_offset == UNINITIALIZED_START_OFFSET else 0
            snapshot_epoch = 0 if entry is None else entry.state.snapshot_epoch + 1
            state = ShareState(snapshot_epoch, asked.state_epoch, 0, start_offset, complete_count, now_ms, now_ms)
            self._append(key, snapshot_record(key, state), state, written)

        self._run(key, initialize, then)

    def read_state(
        self, key: SharePartitionKey, asked: ReadShareGroupStateRequest.PartitionData, then: StateCallback
    ) -> None:
        """Return the state to the leader of a leader epoch; leaders of earlier epochs are fenced from then on."""
        found: list[ShareState] = []

        def read(written: WrittenCallback) -> None:
            entry = self._existing(key)
            _check_leader_epoch(entry, asked.leader_epoch)
            state = entry.state
            found.append(state)
            if asked.leader_epoch in (NO_EPOCH, state.leader_epoch):
                written(None)
            else:
                counts = state.start_offset, state.delivery_complete_count
                self._append_update(key, entry, StateUpdate(state.snapshot_epoch, asked.leader_epoch, *counts), written)

        self._run(key, read, lambda error: then(error, None if error is not None else found[0]))

    def read_state_summary(self, key: SharePartitionKey, asked: object, then: StateCallback) -> None:  # noqa: ARG002
        """Return the state, if only its numbers are wanted; a share partition without one has the start offset -1."""
        found: list[ShareState] = []

        def read(written: WrittenCallback) -> None:
            entry = self._partition(key).get(key)
            empty = ShareState(0, 0, 0, UNINITIALIZED_START_OFFSET, -1, 0, 0)
            found.append(empty if entry is None else entry.state)
            written(None)

        self._run(key, read, lambda error: then(error, None if error is not None else found[0]))

    def write_state(
        self, key: SharePartitionKey, asked: WriteShareGroupStateRequest.PartitionData, then: WrittenCallback
    ) -> None:
        """Write a change of the state by its leader."""

        def write(written: WrittenCallback) -> None:
            entry = self._existing(key)
            _check_leader_epoch(entry, asked.leader_epoch)
            _check_state_epoch(key, entry, asked.state_epoch)
            change = StateUpdate(
                entry.state.snapshot_epoch,
                entry.state.leader_epoch,
                asked.start_offset,
                asked.delivery_complete_count,
                combine_state_batches((), state_batches_of(asked), asked.start_offset),
            )
            self._append_update(key, entry, change, written)

        self._run(key, write, then)

    def delete_state(self, key: SharePartitionKey, asked: object, then: WrittenCallback) -> None:  # noqa: ARG002
        """Delete the state of a share partition, if it has one."""

        def delete(written: WrittenCallback) -> None:
            if key in self._partition(key):
                self._append(key, tombstone(key), None, written)
            else:
                written(None)

        self._run(key, delete, then)

    # --- one after the other

    def _run(self, key: SharePartitionKey, operation: Callable[[WrittenCallback], None], then: WrittenCallback) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(partial(self._run_now, key, operation, then))
            return
        self._waiting[key] = deque()
        self._run_now(key, operation, then)

    def _run_now(
        self, key: SharePartitionKey, operation: Callable[[WrittenCallback], None], then: WrittenCallback
    ) -> None:
        def done(error: errors.BrokerError | None) -> None:
            then(error)
            waiting = self._waiting[key]
            if waiting:
                # Not from here: a long queue would be as many nested calls.
                self._broker.call_soon(waiting.popleft())
            else:
                del self._waiting[key]

        try:
            self._check_topic(key)
            operation(done)
        except errors.BrokerError as error:
            done(error)

    def _check_topic(self, key: SharePartitionKey) -> None:
        if key.partition < 0:
            raise errors.InvalidRequestError("The partition id cannot be a negative number.")
        self._partition(key)  # whether this broker coordinates it
        cache = self._metadata_cache
        name = cache.topic_name(key.topic_id)
        if name is None or (cache.num_partitions(name) or 0) <= key.partition:
            raise errors.UnknownTopicOrPartitionError(f"there is no partition {key.partition} of topic {key.topic_id}")

    def _partition(self, key: SharePartitionKey) -> dict[SharePartitionKey, _Entry]:
        return self.storage.state_for(key.coordinator_key)

    def _existing(self, key: SharePartitionKey) -> _Entry:
        entry = self._partition(key).get(key)
        if entry is None:
            raise errors.InvalidRequestError(f"the state of {key.coordinator_key} was not initialized")
        return entry

    # --- writing

    def _append_update(
        self, key: SharePartitionKey, entry: _Entry, change: StateUpdate, written: WrittenCallback
    ) -> None:
        """Append a change or, after many of them, a snapshot with the change."""
        if entry.updates < self._updates_per_snapshot:
            self._append(key, update_record(key, change), change, written)
        else:
            self._append_snapshot(key, change.apply(entry.state), written)

    def _append_snapshot(self, key: SharePartitionKey, state: ShareState, written: WrittenCallback) -> None:
        now_ms = self._broker.loop.wall_ms
        snapshot = state._replace(
            snapshot_epoch=state.snapshot_epoch + 1, create_timestamp_ms=now_ms, write_timestamp_ms=now_ms
        )
        self._append(key, snapshot_record(key, snapshot), snapshot, written)

    def _append(
        self,
        key: SharePartitionKey,
        record: KeyValue,
        change: ShareState | StateUpdate | None,
        written: WrittenCallback,
    ) -> None:
        partition = self._partition(key)
        number = self.storage.partition_for(key.coordinator_key)

        def appended(error_code: int, offset: int) -> None:
            if error_code or self.storage.loaded.get(number) is not partition:
                written(errors.for_code(error_code or errors.NotCoordinatorError.code))
                return
            _apply(partition, key, change, offset, self._broker.loop.wall_ms)
            written(None)

        self.storage.append(number, [record], appended)

    def _apply_record(self, loaded: dict[SharePartitionKey, _Entry], _: AnyRecordBatch, record: Record) -> None:
        assert record.key is not None
        key, change = read_record(record.key, record.value)
        _apply(loaded, key, change, record.offset, self._broker.loop.wall_ms)

    # --- old records

    def _prune(self) -> None:
        """Delete the records before the oldest snapshot that is the latest of its share partition."""
        for number, entries in self.storage.loaded.items():
            offset = min((entry.snapshot_offset for entry in entries.values()), default=0)
            if offset > self._pruned_to.get(number, 0):
                tp = TopicPartition(SHARE_GROUP_STATE_TOPIC_NAME, number)
                self._replica_manager.delete_records(
                    self._write_timeout_ms, {tp: offset}, partial(self._on_pruned, number, offset), is_internal=True
                )

    def _on_pruned(self, number: int, offset: int, results: Mapping[TopicPartition, DeleteRecordsResult]) -> None:
        (result,) = results.values()
        if not result.error_code and number in self.storage.loaded:
            self._pruned_to[number] = offset

    def _snapshot_cold(self) -> None:
        """Write snapshots of share partitions at rest, unless all are: there is nothing to delete then."""
        end_ms = self._broker.loop.wall_ms - self._cold_interval_ms
        for entries in self.storage.loaded.values():
            cold = [key for key, entry in entries.items() if entry.written_ms <= end_ms]
            if len(cold) < len(entries):
                for key in cold:
                    self._run(key, partial(self._snapshot, key), lambda _: None)

    def _snapshot(self, key: SharePartitionKey, written: WrittenCallback) -> None:
        self._append_snapshot(key, self._existing(key).state, written)

    # --- topics

    def _on_metadata(self, topics: Collection[str]) -> None:
        """Delete the state of topics that are deleted."""
        cache = self._metadata_cache
        if all(cache.contains(topic) for topic in topics):
            return
        for partition in self.storage.loaded.values():
            for key in [key for key in partition if cache.topic_name(key.topic_id) is None]:
                # Not through ``_run``, which refuses requests for topics that do not exist.
                if key not in self._waiting:
                    self._append(key, tombstone(key), None, lambda _: None)


def _check_leader_epoch(entry: _Entry, leader_epoch: int) -> None:
    if leader_epoch != NO_EPOCH and leader_epoch < entry.state.leader_epoch:
        raise errors.FencedLeaderEpochError(f"leader epoch {leader_epoch} is over, it is {entry.state.leader_epoch}")


def _check_state_epoch(key: SharePartitionKey, entry: _Entry, state_epoch: int) -> None:
    if state_epoch != NO_EPOCH and state_epoch < entry.state.state_epoch:
        raise errors.FencedStateEpochError(
            f"state epoch {state_epoch} of {key.coordinator_key} is over, it is {entry.state.state_epoch}"
        )


def _apply(
    loaded: dict[SharePartitionKey, _Entry],
    key: SharePartitionKey,
    change: ShareState | StateUpdate | None,
    offset: int,
    now_ms: int,
) -> None:
    entry = loaded.get(key)
    if change is None:
        loaded.pop(key, None)
    elif entry is not None:
        entry.apply(change, offset, now_ms)
    elif isinstance(change, ShareState):
        loaded[key] = _Entry(change, offset, now_ms)
