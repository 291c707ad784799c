"""The state of transactional ids in their coordinator's memory, with its states as a table, and in __transaction_state.

Java: TransactionMetadata, TransactionState, TransactionStateManager, TransactionLog; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, NamedTuple

from pykclient.errors import (
    IllegalStateError,
    NotCoordinatorError,
    ProducerFencedError,
    UnsupportedVersionError,
    check_move,
)
from pykclient.protocol.messages.transaction_log_key import TransactionLogKey
from pykclient.protocol.messages.transaction_log_value import TransactionLogValue
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.record.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordinator_log import CoordinatorLog, versioned
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.log.log_types import ProducerIdAndEpoch
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.topic_names import TRANSACTION_STATE_TOPIC_NAME
from pykclient.types import TopicPartition


class TransactionState(NamedTuple):
    """A state: its id in the log, and its name in DescribeTransactions. Compare by identity. Thread: any."""

    id: int
    name: str

    def __repr__(self) -> str:
        return self.name


#: No transaction yet in this epoch.
EMPTY: Final = TransactionState(0, "Empty")

#: At least one partition was added.
ONGOING: Final = TransactionState(1, "Ongoing")

#: The transaction is committed; its markers are being written.
PREPARE_COMMIT: Final = TransactionState(2, "PrepareCommit")

#: The transaction is aborted; its markers are being written.
PREPARE_ABORT: Final = TransactionState(3, "PrepareAbort")

#: All markers of the commit are written.
COMPLETE_COMMIT: Final = TransactionState(4, "CompleteCommit")

#: All markers of the abort are written.
COMPLETE_ABORT: Final = TransactionState(5, "CompleteAbort")

#: Expired: a tombstone is being written.
DEAD: Final = TransactionState(6, "Dead")

#: The coordinator is about to abort the transaction in a higher epoch. Only ever a pending state.
PREPARE_EPOCH_FENCE: Final = TransactionState(7, "PrepareEpochFence")

#: With transactions of version 2, a producer may abort without having added a partition.
TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: frozenset((EMPTY, ONGOING, PREPARE_ABORT, DEAD)),
    ONGOING: frozenset((ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE)),
    PREPARE_COMMIT: frozenset((COMPLETE_COMMIT,)),
    PREPARE_ABORT: frozenset((COMPLETE_ABORT,)),
    COMPLETE_COMMIT: frozenset((EMPTY, ONGOING, PREPARE_ABORT, DEAD)),
    COMPLETE_ABORT: frozenset((EMPTY, ONGOING, PREPARE_ABORT, DEAD)),
    DEAD: frozenset(),
    PREPARE_EPOCH_FENCE: frozenset((PREPARE_ABORT,)),
}

#: States in which an idle transactional id may expire.
EXPIRABLE: Final = frozenset((EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))

BY_ID: Final = {state.id: state for state in TRANSITIONS}

BY_NAME: Final = {state.name: state for state in TRANSITIONS}


#: The largest epoch. Producers never get it, so the coordinator can always fence them.
MAX_EPOCH: Final = (1 << 15) - 1

#: From this version on, each end of a transaction bumps the producer's epoch (KIP-890).
_BUMPS_EPOCH: Final = 2

_NO_TIMESTAMP: Final = -1

#: The timeout of transactions that never time out, as they take part in two-phase commits (KIP-939).
NO_TIMEOUT_MS: Final = (1 << 31) - 1


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Return whether a producer with this epoch needs a new producer id before its next bump."""
    return producer_epoch >= MAX_EPOCH - 1


def bumps_epoch(transaction_version: int) -> bool:
    """Return whether the end of a transaction of this version bumps the producer's epoch (KIP-890)."""
    return transaction_version >= _BUMPS_EPOCH


@dataclass(slots=True, eq=False, repr=False)
class TransactionMetadata:
    """The producer id, epoch, state and partitions of one transactional id.

    A change has two steps: ``prepare_...`` checks it, marks it as pending and returns the *transit*, a copy of this
    with the change, to write; ``complete_transition_to`` applies it once all in-sync replicas of the log have it. There
    is at most one pending change. Times are wall-clock milliseconds.

    ``last_producer_epoch`` tells a retry of InitProducerId from a fenced producer (KIP-360). ``next_producer_id``
    replaces an id whose epochs are used up, as soon as the transaction's markers are written. ``next_producer_epoch``
    is set while a producer other than the one that began the transaction is to end it (KIP-939): that producer has the
    next id and epoch.

    Thread: loop
    """

    transactional_id: str
    producer_id: int
    txn_timeout_ms: int
    txn_last_update_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    prev_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    state: TransactionState = EMPTY
    #: A dict for its order, so that simulated schedules are reproducible.
    topic_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    txn_start_ms: int = _NO_TIMESTAMP
    client_transaction_version: int = 0
    pending_state: TransactionState | None = None
    #: A bumped epoch may not have reached the log, so the next attempt must not bump it again.
    has_failed_epoch_fence: bool = False

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer that may use the transactional id: the one that is to end the transaction, if there is one."""
        if self.next_producer_epoch != NO_PRODUCER_EPOCH:
            return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """True if another producer than the one that began the transaction must end it."""
        return self.state is ONGOING and self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def has_timeout(self) -> bool:
        """False if the producer takes part in two-phase commits: its transactions never time out."""
        return self.txn_timeout_ms != NO_TIMEOUT_MS

    @property
    def is_producer_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer.epoch)

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Remove a partition whose marker is written, or that needs none.

        Raises:
            IllegalStateError: no markers are being written.
        """
        if self.state not in (PREPARE_COMMIT, PREPARE_ABORT):
            raise IllegalStateError(f"{self!r} has no markers to be written, to {topic_partition} or elsewhere")
        self.topic_partitions.pop(topic_partition, None)

    # --- transitions -------------------------------------------------------------------------------------------------

    def prepare_fence_producer_epoch(self) -> TransactionMetadata:
        """Prepare to abort the transaction in the next epoch, which no producer is given."""
        epoch = self._marker_epoch
        keep = self.has_failed_epoch_fence or epoch == MAX_EPOCH
        return self._prepare(PREPARE_EPOCH_FENCE, producer_epoch=epoch + (not keep))

    def prepare_keep(self, new_producer_id: int | None, txn_timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Prepare to hand the transaction to another producer, in the next epoch or with a new producer id."""
        id, epoch = self.producer
        return self._prepare(
            ONGOING,
            next_producer_id=id if new_producer_id is None else new_producer_id,
            next_producer_epoch=epoch + 1 if new_producer_id is None else 0,
            txn_timeout_ms=txn_timeout_ms,
            txn_last_update_ms=now_ms,
        )

    @property
    def _marker_epoch(self) -> int:
        """The latest epoch that was given out with the producer id of the transaction."""
        if self.is_kept and self.next_producer_id == self.producer_id:
            return max(self.producer_epoch, self.next_producer_epoch)
        return self.producer_epoch

    def prepare_increment_producer_epoch(
        self, txn_timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TransactionMetadata:
        """Prepare the producer's next epoch.

        With ``expected_epoch``, a producer continues after an error (KIP-360). If it is the epoch before the current
        one, the request is a retry, and the epoch stays.

        Raises:
            ProducerFencedError: another producer has a later epoch.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise ProducerFencedError(
                    f"epoch {expected_epoch} of {self.transactional_id!r} is neither the current one, "
                    f"{self.producer_epoch}, nor the one before"
                )
        return self._prepare_new_epoch(epoch, last_epoch, txn_timeout_ms, now_ms)

    def prepare_producer_id_rotation(
        self, producer_id: int, txn_timeout_ms: int, now_ms: int, *, record_last_epoch: bool
    ) -> TransactionMetadata:
        """Prepare the first epoch of a new producer id, when the old id's epochs are exhausted."""
        last_epoch = self.producer_epoch if record_last_epoch else NO_PRODUCER_EPOCH
        return self._prepare_new_epoch(0, last_epoch, txn_timeout_ms, now_ms, producer_id)

    def _prepare_new_epoch(
        self, epoch: int, last_epoch: int, txn_timeout_ms: int, now_ms: int, producer_id: int | None = None
    ) -> TransactionMetadata:
        return self._prepare(
            EMPTY,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            txn_timeout_ms=txn_timeout_ms,
            topic_partitions={},
            txn_start_ms=_NO_TIMESTAMP,
            txn_last_update_ms=now_ms,
        )

    def prepare_add_partitions(
        self, topic_partitions: Iterable[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> TransactionMetadata:
        """Prepare to add partitions to the transaction, which begins with the first one."""
        return self._prepare(
            ONGOING,
            topic_partitions=dict.fromkeys(sorted({*self.topic_partitions, *topic_partitions})),
            txn_start_ms=self.txn_start_ms if self.state is ONGOING else now_ms,
            txn_last_update_ms=now_ms,
            client_transaction_version=client_transaction_version,
        )

    def prepare_abort_or_commit(
        self,
        state: TransactionState,
        client_transaction_version: int,
        next_producer_id: int,
        now_ms: int,
        *,
        no_partition_added: bool,
    ) -> TransactionMetadata:
        """Prepare the decision: ``PREPARE_COMMIT`` or ``PREPARE_ABORT``. Version 2 bumps the epoch.

        A producer with another id that ends the transaction keeps that id, and its epoch is bumped as well.
        """
        epoch, last_epoch = self._marker_epoch, self.last_producer_epoch
        next_epoch = NO_PRODUCER_EPOCH
        if self.is_kept and self.next_producer_id != self.producer_id and next_producer_id == NO_PRODUCER_ID:
            next_producer_id = self.next_producer_id
            next_epoch = self.next_producer_epoch + bumps_epoch(client_transaction_version)
        if bumps_epoch(client_transaction_version):
            last_epoch = epoch
            if not (epoch == MAX_EPOCH and state is PREPARE_ABORT):
                epoch += 1
        return self._prepare(
            state,
            next_producer_id=next_producer_id,
            next_producer_epoch=next_epoch,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            txn_start_ms=now_ms if no_partition_added else self.txn_start_ms,
            txn_last_update_ms=now_ms,
            client_transaction_version=client_transaction_version,
        )

    def prepare_complete(self, now_ms: int) -> TransactionMetadata:
        """Prepare the end of the transaction, for when all its markers are written."""
        self.has_failed_epoch_fence = False  # the decision is in the log, with the bumped epoch
        producer_id, epoch = self.producer_id, self.producer_epoch
        if self.next_producer_epoch != NO_PRODUCER_EPOCH:
            producer_id, epoch = self.producer
        elif bumps_epoch(self.client_transaction_version) and self.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = self.next_producer_id, 0
        return self._prepare(
            COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            producer_epoch=epoch,
            topic_partitions={},
            txn_last_update_ms=now_ms,
        )

    def prepare_dead(self) -> TransactionMetadata:
        """Prepare the removal of an expired transactional id."""
        return self._prepare(DEAD, topic_partitions={})

    def _prepare(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        """Mark a transition as pending; return a copy that differs by its state and by ``changes``."""
        check_move("a transactional id", TRANSITIONS, self.state, state)
        if self.pending_state is not None:
            raise IllegalStateError(f"{self!r} cannot go to {state}: it is already going to {self.pending_state}")
        changes.setdefault("topic_partitions", dict(self.topic_partitions))
        transit = replace(self, **{"state": state, "prev_producer_id": self.producer_id, **changes})
        if state is not DEAD and not 0 <= transit.producer_epoch <= MAX_EPOCH:
            raise IllegalStateError(f"{self!r} cannot go to {state} with epoch {transit.producer_epoch}")
        self.pending_state = state
        return transit

    def complete_transition_to(self, transit: TransactionMetadata) -> None:
        """Apply a prepared transition, which is in the log.

        Raises:
            IllegalStateError: it was not prepared, or does not fit the current state.
        """
        if self.pending_state is not transit.state or transit.state in (DEAD, PREPARE_EPOCH_FENCE):
            raise IllegalStateError(f"{self!r} cannot complete {transit}: its pending state is {self.pending_state}")
        same_producer = transit.producer_id == self.producer_id
        is_next = transit.producer_id == self.next_producer_id
        if (
            transit.producer_epoch < self.producer_epoch
            if same_producer
            else transit.producer_epoch != 0 and not is_next
        ):
            raise IllegalStateError(f"{self!r} cannot complete {transit}: the producer's epoch would go back")
        for each in fields(self):
            setattr(self, each.name, getattr(transit, each.name))

    def __repr__(self) -> str:
        return (
            f"<transactional id {self.transactional_id!r}, {self.state}, producer {self.producer_id}, "
            f"epoch {self.producer_epoch}, {len(self.topic_partitions)} partitions>"
        )


# --- in the log ------------------------------------------------------------------------------------------------------

_KEY_TYPE: Final = 0

#: The version of values since transaction.version=1, which has tagged fields, and the one before.
_FLEXIBLE_VALUE: Final = 1

_FIRST_VALUE: Final = 0


def key_to_bytes(transactional_id: str) -> bytes:
    return versioned(_KEY_TYPE, TransactionLogKey(transactional_id=transactional_id))


def value_to_bytes(transit: TransactionMetadata, transaction_version: int) -> bytes:
    """Return the value for the log of a cluster with this transaction.version."""
    version = _FLEXIBLE_VALUE if transaction_version >= 1 else _FIRST_VALUE
    partitions = grouped(sorted(transit.topic_partitions))
    value = TransactionLogValue(
        producer_id=transit.producer_id,
        producer_epoch=transit.producer_epoch,
        transaction_timeout_ms=transit.txn_timeout_ms,
        transaction_status=transit.state.id,
        transaction_partitions=None
        if transit.state is EMPTY
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in partitions.items()
        ],
        transaction_last_update_timestamp_ms=transit.txn_last_update_ms,
        transaction_start_timestamp_ms=transit.txn_start_ms,
    )
    if version == _FLEXIBLE_VALUE:
        value.previous_producer_id = transit.prev_producer_id
        value.next_producer_id = transit.next_producer_id
        value.next_producer_epoch = transit.next_producer_epoch
        value.client_transaction_version = transit.client_transaction_version
    return versioned(version, value, version)


def read_key(key: BytesLike) -> str | None:
    """Return the transactional id, or None for a key of another type.

    Raises:
        RemoteProtocolError: the bytes are not a key.
    """
    reader = Reader(key)
    return TransactionLogKey.read(reader, 0).transactional_id if reader.int16() == _KEY_TYPE else None


def read_value(transactional_id: str, value: BytesLike) -> TransactionMetadata:
    """Decode the value of a record.

    Raises:
        RemoteProtocolError, UnsupportedVersionError: the value cannot be decoded.
    """
    reader = Reader(value)
    read = TransactionLogValue.read(reader, reader.int16())
    state = BY_ID.get(read.transaction_status)
    if state is None:
        raise UnsupportedVersionError(f"{transactional_id!r} has state {read.transaction_status}, which is unknown")
    return TransactionMetadata(
        transactional_id,
        read.producer_id,
        read.transaction_timeout_ms,
        read.transaction_last_update_timestamp_ms,
        producer_epoch=read.producer_epoch,
        prev_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        next_producer_epoch=read.next_producer_epoch,
        state=state,
        topic_partitions={
            TopicPartition(topic.topic, partition): None
            for topic in read.transaction_partitions or ()
            for partition in topic.partition_ids
        },
        txn_start_ms=read.transaction_start_timestamp_ms,
        client_transaction_version=read.client_transaction_version,
    )


#: The maximum number of tombstones in one batch.
_MAX_EXPIRED_PER_BATCH: Final = 500

#: Called with an error code or 0.
ErrorCallback = Callable[[int], None]

#: Called with the coordinator's epoch and a transactional id whose transaction is decided.
DecidedCallback = Callable[[int, TransactionMetadata], None]


class TransactionStateManager:
    """The transactional ids whose partition of __transaction_state this broker leads.

    Requests are served from memory. A change is appended first, and takes effect when all in-sync replicas have it. A
    new leader reads the partition from its start; until it is done, its transactional ids are *loading*. The
    coordinator epoch distinguishes appends from before the broker lost and regained a partition.

    Thread: loop
    """

    def __init__(self, broker: BrokerContext, replica_manager: ReplicaManager, metadata_cache: MetadataCache) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self.storage: CoordinatorLog[dict[str, TransactionMetadata]] = CoordinatorLog(
            broker,
            replica_manager,
            metadata_cache,
            TRANSACTION_STATE_TOPIC_NAME,
            broker.config.get_int("transaction.state.log.num.partitions"),
            broker.config.get_int("request.timeout.ms"),
            _apply,
        )

    # --- which transactional ids

    def get(self, transactional_id: str) -> tuple[int, TransactionMetadata | None]:
        """Return the coordinator's epoch, and the transactional id's state if it has one.

        Raises:
            CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError: this broker does not
                coordinate it, or not yet.
        """
        metadata = self.storage.state_for(transactional_id).get(transactional_id)
        return self.storage.epochs[self.storage.partition_for(transactional_id)], metadata

    def current(self, transactional_id: str, coordinator_epoch: int) -> TransactionMetadata | None:
        """Return the transactional id's state, or None if this broker has not coordinated it since that epoch."""
        partition = self.storage.partition_for(transactional_id)
        if self.storage.epochs.get(partition) != coordinator_epoch:
            return None
        return self.storage.loaded.get(partition, {}).get(transactional_id)

    def all(self) -> list[TransactionMetadata]:
        """Return all transactional ids that this broker coordinates."""
        return [metadata for partition in self.storage.loaded.values() for metadata in partition.values()]

    # --- writing

    def append(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        transit: TransactionMetadata,
        then: ErrorCallback,
        *,
        keep_pending_on: int = 0,
    ) -> None:
        """Write a prepared transition and, when all in-sync replicas have it, apply it.

        ``then`` gets 0 or an error code. After an error the transition is no longer pending, except after
        ``keep_pending_on``, with which the caller will try again.
        """
        metadata = self.current(transactional_id, coordinator_epoch)
        if metadata is None:
            then(NotCoordinatorError.code)
            return
        key = key_to_bytes(transactional_id)
        value = value_to_bytes(transit, self._broker.features.transaction_version)

        def appended(error_code: int, _: int) -> None:
            current = self.current(transactional_id, coordinator_epoch)
            if current is None:
                error_code = error_code or NotCoordinatorError.code
            elif not error_code:
                current.complete_transition_to(transit)
            elif error_code != keep_pending_on:
                current.pending_state = None
            then(error_code)

        self.storage.append(self.storage.partition_for(transactional_id), [(key, value)], appended)

    # --- time

    def timed_out_transactions(self) -> list[TransactionMetadata]:
        """Return the ongoing transactions that are older than their timeouts."""
        now_ms = self._broker.loop.wall_ms
        return [
            metadata
            for metadata in self.all()
            if metadata.state is ONGOING
            and metadata.pending_state is None
            and metadata.has_timeout
            and metadata.txn_start_ms + metadata.txn_timeout_ms < now_ms
        ]

    def remove_expired_transactional_ids(self, expiration_ms: int) -> None:
        """Write tombstones for transactional ids that were idle for ``expiration_ms``, then forget them."""
        latest_ms = self._broker.loop.wall_ms - expiration_ms
        for number, partition in list(self.storage.loaded.items()):
            expired = [
                metadata
                for metadata in partition.values()
                if metadata.state in EXPIRABLE
                and metadata.pending_state is None
                and metadata.txn_last_update_ms <= latest_ms
            ]
            for start in range(0, len(expired), _MAX_EXPIRED_PER_BATCH):
                self._remove(number, partition, expired[start : start + _MAX_EXPIRED_PER_BATCH])

    def _remove(
        self, number: int, partition: dict[str, TransactionMetadata], expired: list[TransactionMetadata]
    ) -> None:
        for metadata in expired:
            metadata.prepare_dead()

        def removed(error_code: int, _: int) -> None:
            if self.storage.loaded.get(number) is not partition:
                return
            for metadata in expired:
                metadata.pending_state = None
                if not error_code:
                    metadata.state = DEAD
                    del partition[metadata.transactional_id]

        self.storage.append(number, [(key_to_bytes(metadata.transactional_id), None) for metadata in expired], removed)

    # --- loading

    def load(self, partition: int, epoch: int, on_decided: DecidedCallback) -> None:
        """Load the transactional ids of a partition that this broker leads now, in leader epoch ``epoch``.

        ``on_decided`` is then called for each transaction whose markers may not all be written.
        """
        loaded: dict[str, TransactionMetadata] = {}
        self.storage.load(partition, epoch, loaded, partial(self._on_loaded, partition, epoch, loaded, on_decided))

    def _on_loaded(
        self, partition: int, epoch: int, loaded: dict[str, TransactionMetadata], on_decided: DecidedCallback
    ) -> None:
        self._log.info("Loaded %d transactional ids from partition %d", len(loaded), partition)
        for metadata in list(loaded.values()):
            if metadata.state in (PREPARE_COMMIT, PREPARE_ABORT):
                on_decided(epoch, metadata)


def _apply(loaded: dict[str, TransactionMetadata], batch: AnyRecordBatch, record: Record) -> None:  # noqa: ARG001
    """Apply a record; later ones override earlier ones."""
    transactional_id = None if record.key is None else read_key(record.key)
    if transactional_id is None:
        return
    if record.value is None:
        loaded.pop(transactional_id, None)
    else:
        loaded[transactional_id] = read_value(transactional_id, record.value)
