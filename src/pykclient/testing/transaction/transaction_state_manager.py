"""The storage of transactional ids: in memory, backed by __transaction_state.

Java: TransactionStateManager, TransactionLog.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pykclient.errors import NotCoordinatorError, UnsupportedVersionError
from pykclient.protocol.messages.transaction_log_key import TransactionLogKey
from pykclient.protocol.messages.transaction_log_value import TransactionLogValue
from pykclient.protocol.wire import BytesLike, Reader
from pykclient.record.memory_records import AnyRecordBatch
from pykclient.record.record_batch import Record
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordinator_log import CoordinatorLog, versioned
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.transaction.transaction_metadata import (
    BY_ID,
    DEAD,
    EMPTY,
    EXPIRABLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionMetadata,
)
from pykclient.topic_names import TRANSACTION_STATE_TOPIC_NAME
from pykclient.types import TopicPartition

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
