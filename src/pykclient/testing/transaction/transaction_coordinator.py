"""A broker's coordinator of transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple

from pykclient import errors
from pykclient.record.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.inter_broker_requests import ProducerIdManager
from pykclient.testing.log.log_types import ProducerIdAndEpoch
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.transaction.transaction_marker_channel_manager import TransactionMarkerChannelManager
from pykclient.testing.transaction.transaction_metadata import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    MAX_EPOCH,
    NO_TIMEOUT_MS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    ErrorCallback,
    TransactionMetadata,
    TransactionStateManager,
    bumps_epoch,
    is_epoch_exhausted,
)
from pykclient.types import TopicPartition

NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

#: Called with an error code and, if that is 0, the producer's id and epoch from now on.
ProducerCallback = Callable[[int, ProducerIdAndEpoch], None]
#: The same, and the id and epoch of the transaction that was kept.
InitCallback = Callable[[int, ProducerIdAndEpoch, ProducerIdAndEpoch], None]

#: For each complete state, the result that it is the end of.
_COMPLETE: Final = {COMPLETE_COMMIT: True, COMPLETE_ABORT: False}
_PREPARED: Final = {PREPARE_COMMIT: True, PREPARE_ABORT: False}


class InitProducerId(NamedTuple):
    """A producer's request for its id and epoch."""

    transactional_id: str | None
    txn_timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    two_phase_commit: bool = False
    keep_prepared: bool = False


class TransactionCoordinator:
    """Transactions of the transactional ids that this broker coordinates (Java: TransactionCoordinator; KIP-98).

    It gives producers their ids and epochs, keeps the partitions of their transactions, decides each transaction by one
    record in its log, and then has the markers written. Requests fail with the BrokerError for the response, or are
    answered through a callback, exactly once. ``client_version`` is the generation of transactions that the request
    belongs to: 2 bumps the epoch at the end of each transaction (KIP-890), 0 does not.

    Thread: loop
    """

    def __init__(
        self,
        broker: BrokerContext,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        producer_ids: ProducerIdManager,
    ) -> None:
        config = broker.config
        self._broker = broker
        self._producer_ids = producer_ids
        self._log = broker.log_context.logger(__name__)
        self._states = TransactionStateManager(broker, replica_manager, metadata_cache)
        self.storage = self._states.storage
        self.markers: TransactionMarkerChannelManager = TransactionMarkerChannelManager(
            broker, metadata_cache, self._states
        )
        self._max_timeout_ms: int = config["transaction.max.timeout.ms"]
        self._is_2pc_enabled: bool = config["transaction.two.phase.commit.enable"]
        self._expiration_ms: int = config["transactional.id.expiration.ms"]
        self._abort_interval_ms: int = config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
        self._expiry_interval_ms: int = config["transaction.remove.expired.transaction.cleanup.interval.ms"]

    def startup(self) -> None:
        """Accept requests. Transactional ids arrive with the partitions that this broker is elected for."""
        self.storage.active = True

    def shutdown(self) -> None:
        """Stop the sending of markers, which the next coordinator continues."""
        self.storage.active = False
        self.markers.shutdown()

    # --- leadership

    def on_election(self, partition: int, epoch: int) -> None:
        """Take over a partition of __transaction_state, as this broker has become its leader."""
        self.markers.remove_partition(partition)
        self._states.load(partition, epoch, self._on_decided)
        self.storage.repeat(self._abort_timed_out_transactions, self._abort_interval_ms)
        self.storage.repeat(self._remove_expired, self._expiry_interval_ms)

    def on_resignation(self, partition: int, epoch: int) -> None:
        """Give up a partition of __transaction_state. ``epoch`` is negative if the partition was deleted."""
        self.storage.unload(partition, epoch)
        self.markers.remove_partition(partition)

    def _on_decided(self, coordinator_epoch: int, metadata: TransactionMetadata) -> None:
        transit = metadata.prepare_complete(self._broker.loop.wall_ms)
        self.markers.add_txn_markers_to_send(coordinator_epoch, metadata, transit)

    # --- time

    def _abort_timed_out_transactions(self) -> None:
        for metadata in self._states.timed_out_transactions():
            transit = metadata.prepare_fence_producer_epoch()
            self._log.info("%r has timed out after %d ms", metadata, metadata.txn_timeout_ms)
            self._fence(metadata, transit, _ignore)

    def _remove_expired(self) -> None:
        self._states.remove_expired_transactional_ids(self._expiration_ms)

    def _fence(self, metadata: TransactionMetadata, transit: TransactionMetadata, respond: ProducerCallback) -> None:
        """Abort an ongoing transaction in the epoch of ``transit``, which fences its producer."""
        producer = ProducerIdAndEpoch(transit.producer_id, transit.producer_epoch)
        version = self._broker.features.transaction_version
        self.end_transaction(metadata.transactional_id, producer, False, version, respond, is_from_client=False)

    # --- InitProducerId

    def init_producer_id(
        self, request: InitProducerId, respond: InitCallback, new_producer_id: int | None = None
    ) -> None:
        """Give a producer its id and epoch; fence all earlier producers with its transactional id.

        An ongoing transaction is aborted first; meanwhile the producer gets CONCURRENT_TRANSACTIONS and tries again.
        With ``expected``, the producer continues after an error and must not have been fenced (KIP-360). As in Kafka,
        its epoch is compared only when no transaction is open: a producer with an old epoch aborts the transaction of
        its successor, too. Without a transactional id any producer gets a new id.

        With ``keep_prepared``, an ongoing transaction is left to this producer, which ends it in its own epoch. Kafka
        4.3 refuses that; this follows KIP-939.
        """

        def answer(error_code: int, producer: ProducerIdAndEpoch) -> None:
            respond(error_code, producer, NO_PRODUCER)

        def again(producer_id: int) -> None:
            self.init_producer_id(request, respond, producer_id)

        transactional_id, txn_timeout_ms = request.transactional_id, request.txn_timeout_ms
        if transactional_id is None:
            self._producer_ids.generate_producer_id(
                lambda code, new_id: answer(code, NO_PRODUCER if code else ProducerIdAndEpoch(new_id, 0))
            )
            return
        try:
            _check_id(transactional_id)
            if request.two_phase_commit:
                if not self._is_2pc_enabled:
                    raise errors.TransactionalIdAuthorizationError("transaction.two.phase.commit.enable is false")
                txn_timeout_ms = NO_TIMEOUT_MS
            elif not 0 < txn_timeout_ms <= self._max_timeout_ms:
                raise errors.InvalidTxnTimeoutError(
                    f"transaction.timeout.ms={txn_timeout_ms} is not allowed here: 1 to {self._max_timeout_ms} "
                    "(transaction.max.timeout.ms of the broker)"
                )
            coordinator_epoch, metadata = self._states.get(transactional_id)
            if metadata is None:
                if new_producer_id is None:
                    self._with_new_producer_id(again, answer)
                    return
                metadata = TransactionMetadata(
                    transactional_id, new_producer_id, txn_timeout_ms, self._broker.loop.wall_ms
                )
                self.storage.state_for(transactional_id)[transactional_id] = metadata
            transit = self._prepare_init(metadata, request, txn_timeout_ms, new_producer_id)
        except errors.BrokerError as error:
            answer(error.code, NO_PRODUCER)
            return
        if transit is None:
            self._with_new_producer_id(again, answer)
        elif transit.state is PREPARE_EPOCH_FENCE:
            self._fence(
                metadata,
                transit,
                lambda error_code, _: answer(error_code or errors.ConcurrentTransactionsError.code, NO_PRODUCER),
            )
        else:
            producer, ongoing = ProducerIdAndEpoch(transit.producer_id, transit.producer_epoch), NO_PRODUCER
            if transit.state is ONGOING:
                next_producer = ProducerIdAndEpoch(transit.next_producer_id, transit.next_producer_epoch)
                producer, ongoing = next_producer, producer
                self._log.info("%r is kept for producer %s", metadata, producer)
            self._states.append(
                transactional_id,
                coordinator_epoch,
                transit,
                lambda code: respond(code, NO_PRODUCER, NO_PRODUCER) if code else respond(0, producer, ongoing),
            )

    def _with_new_producer_id(self, then: Callable[[int], None], respond: ProducerCallback) -> None:
        def generated(error_code: int, producer_id: int) -> None:
            if error_code:
                respond(error_code, NO_PRODUCER)
            else:
                then(producer_id)

        self._producer_ids.generate_producer_id(generated)

    def _prepare_init(
        self,
        metadata: TransactionMetadata,
        request: InitProducerId,
        txn_timeout_ms: int,
        new_producer_id: int | None,
    ) -> TransactionMetadata | None:
        """Return the transition for InitProducerId, or None if it needs a new producer id."""
        expected = request.expected
        _check_nothing_pending(metadata)
        if expected is not None and not _may_continue(metadata, expected):
            raise errors.ProducerFencedError(f"{expected} is not the producer of {metadata!r}")
        state = metadata.state
        if state in _PREPARED:
            raise errors.ConcurrentTransactionsError(f"the markers of {metadata!r} are being written")
        now_ms = self._broker.loop.wall_ms
        if state is ONGOING and not request.keep_prepared:
            return metadata.prepare_fence_producer_epoch()
        if state is ONGOING:
            if metadata.is_producer_epoch_exhausted and new_producer_id is None:
                return None
            return metadata.prepare_keep(new_producer_id, txn_timeout_ms, now_ms)
        if not metadata.is_producer_epoch_exhausted or (
            expected is not None and expected.epoch != metadata.producer_epoch
        ):
            epoch = None if expected is None else expected.epoch
            return metadata.prepare_increment_producer_epoch(txn_timeout_ms, epoch, now_ms)
        if new_producer_id is None:
            return None
        return metadata.prepare_producer_id_rotation(
            new_producer_id, txn_timeout_ms, now_ms, record_last_epoch=expected is not None
        )

    # --- partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topic_partitions: Collection[TopicPartition],
        client_version: int,
        respond: ErrorCallback,
    ) -> None:
        """Add partitions to the producer's transaction, and begin it if necessary."""
        coordinator_epoch, metadata = self._existing(transactional_id)
        # A pending transition may be about to give the producer the id that it uses already, so this comes first.
        _check_nothing_pending(metadata)
        _check_producer(metadata, producer)
        _check_producer_epoch(metadata, producer.epoch)
        if metadata.is_kept:
            raise errors.InvalidTxnStateError(f"{metadata!r} was prepared by another producer, and can only be ended")
        if metadata.state in _PREPARED:
            raise errors.ConcurrentTransactionsError(f"the markers of {metadata!r} are being written")
        if metadata.state is ONGOING and metadata.topic_partitions.keys() >= set(topic_partitions):
            respond(0)
            return
        transit = metadata.prepare_add_partitions(topic_partitions, self._broker.loop.wall_ms, client_version)
        self._states.append(transactional_id, coordinator_epoch, transit, respond)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, topic_partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return for each partition 0 if the producer's transaction has it, else an error code (KIP-890)."""
        _, metadata = self._existing(transactional_id)
        _check_producer(metadata, producer)
        _check_producer_epoch(metadata, producer.epoch)
        if metadata.state in _PREPARED:
            raise errors.ConcurrentTransactionsError(f"the markers of {metadata!r} are being written")
        known = metadata.topic_partitions
        return {tp: 0 if tp in known else errors.TransactionAbortableError.code for tp in topic_partitions}

    # --- the end

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        client_version: int,
        respond: ProducerCallback,
        new_producer_id: int | None = None,
        *,
        is_from_client: bool = True,
    ) -> None:
        """Commit or abort the producer's transaction.

        ``respond`` is called when the decision is in the log; the markers follow. It gets the producer's id and epoch
        for the next transaction.
        """
        is_fence = False
        try:
            coordinator_epoch, metadata = self._existing(transactional_id)
            # Only _fence gets here with this pending state.
            is_fence = not is_from_client and metadata.pending_state is PREPARE_EPOCH_FENCE
            if bumps_epoch(client_version):
                no_partition_added = _check_end_v2(metadata, producer, committed, is_fence)
            else:
                no_partition_added = _check_end_v1(metadata, producer, committed, is_fence, is_from_client)
        except errors.BrokerError as error:
            respond(error.code, NO_PRODUCER)
            return
        if no_partition_added is None:  # a retry of a request that was successful
            respond(0, metadata.producer)
            return
        if bumps_epoch(client_version) and not is_fence and metadata.is_producer_epoch_exhausted:
            if new_producer_id is None:
                again = partial(self.end_transaction, transactional_id, producer, committed, client_version, respond)
                self._with_new_producer_id(again, respond)
                return
        else:
            new_producer_id = NO_PRODUCER_ID
        if is_fence:
            metadata.pending_state = None
            if not bumps_epoch(client_version):
                # The abort takes place in the epoch that no producer knows.
                metadata.producer_epoch = producer.epoch
                metadata.last_producer_epoch = NO_PRODUCER_EPOCH
        transit = metadata.prepare_abort_or_commit(
            PREPARE_COMMIT if committed else PREPARE_ABORT,
            client_version,
            new_producer_id,
            self._broker.loop.wall_ms,
            no_partition_added=no_partition_added,
        )

        def decided(error_code: int) -> None:
            if not error_code:
                complete = metadata.prepare_complete(self._broker.loop.wall_ms)
                respond(0, ProducerIdAndEpoch(complete.producer_id, complete.producer_epoch))
                self.markers.add_txn_markers_to_send(coordinator_epoch, metadata, complete)
                return
            if (
                is_fence
                and not bumps_epoch(client_version)
                and self._states.current(transactional_id, coordinator_epoch) is metadata
            ):
                metadata.has_failed_epoch_fence = True
            respond(error_code, NO_PRODUCER)

        self._states.append(transactional_id, coordinator_epoch, transit, decided)

    # --- administration

    def describe_transaction(self, transactional_id: str) -> TransactionMetadata:
        """Return the state of a transactional id.

        Raises:
            TransactionalIdNotFoundError: it does not exist.
        """
        _, metadata = self._get(transactional_id)
        if metadata is None or metadata.state is DEAD:
            raise errors.TransactionalIdNotFoundError(f"there is no transactional id {transactional_id!r}")
        return metadata

    def list_transactions(self) -> list[TransactionMetadata]:
        """Return the transactional ids of this broker.

        Raises:
            CoordinatorNotAvailableError, CoordinatorLoadInProgressError: the coordinator is not ready.
        """
        self.storage.validate_all_loaded()
        return self._states.all()

    # --- checks

    def _get(self, transactional_id: str) -> tuple[int, TransactionMetadata | None]:
        _check_id(transactional_id)
        return self._states.get(transactional_id)

    def _existing(self, transactional_id: str) -> tuple[int, TransactionMetadata]:
        coordinator_epoch, metadata = self._get(transactional_id)
        if metadata is None:
            raise errors.InvalidPidMappingError(f"transactional id {transactional_id!r} has no producer id")
        return coordinator_epoch, metadata


def _ignore(_: int, __: ProducerIdAndEpoch) -> None:
    pass


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise errors.InvalidRequestError("a transactional id cannot be empty")


def _check_nothing_pending(metadata: TransactionMetadata) -> None:
    if metadata.pending_state is not None:
        raise errors.ConcurrentTransactionsError(f"{metadata!r} is going to {metadata.pending_state}")


def _check_producer(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    if metadata.producer.producer_id != producer.producer_id:
        raise errors.InvalidPidMappingError(f"{metadata!r} does not belong to producer {producer.producer_id}")


def _check_producer_epoch(metadata: TransactionMetadata, epoch: int) -> None:
    if metadata.producer.epoch != epoch:
        raise errors.ProducerFencedError(f"epoch {epoch} is not the current one of {metadata!r}")


def _may_continue(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Return whether a producer may get the next epoch (KIP-360); its epoch is checked later.

    It may if the transactional id is new, if it has its producer id, or if it repeats a request that gave it a new
    producer id.
    """
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.producer.producer_id
        or (expected.producer_id == metadata.prev_producer_id and is_epoch_exhausted(expected.epoch))
    )


def _check_end_v1(
    metadata: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    committed: bool,
    is_fence: bool,
    is_from_client: bool,
) -> bool | None:
    """Check EndTxn where the epoch stays the same. Return False if the transaction is to end, None if it has ended."""
    if not is_fence:
        _check_producer(metadata, producer)
    if is_from_client or producer.epoch < metadata.producer_epoch:
        _check_producer_epoch(metadata, producer.epoch)
    if not is_fence:
        _check_nothing_pending(metadata)
    state = metadata.state
    if state is ONGOING:
        return False
    if _COMPLETE.get(state) is committed:
        return None
    if _PREPARED.get(state) is committed:
        raise errors.ConcurrentTransactionsError(f"the markers of {metadata!r} are being written")
    raise _invalid_end(metadata, committed)


def _check_end_v2(
    metadata: TransactionMetadata, producer: ProducerIdAndEpoch, committed: bool, is_fence: bool
) -> bool | None:
    """Check EndTxn where each transaction has its own epoch, so that a retry can be told from the next transaction.

    Return whether the transaction, which is to end, has no partitions; None if it has ended.
    """
    if is_fence:
        return False
    # A pending transition may be about to give the producer the id that it uses already, so this comes first.
    _check_nothing_pending(metadata)
    epoch, state = producer.epoch, metadata.state
    retries_bump = metadata.producer.epoch == epoch + 1
    retries_overflow = (
        metadata.prev_producer_id == producer.producer_id and epoch == MAX_EPOCH - 1 and metadata.producer_epoch == 0
    )
    if not retries_overflow:
        _check_producer(metadata, producer)
    is_retry = retries_bump or retries_overflow
    if state in _PREPARED:
        if not retries_bump:
            raise errors.ProducerFencedError(f"epoch {epoch} is not the current one of {metadata!r}")
        if _PREPARED[state] is committed:
            raise errors.ConcurrentTransactionsError(f"the markers of {metadata!r} are being written")
        raise _invalid_end(metadata, committed)
    if state in _COMPLETE:
        if is_retry:
            if _COMPLETE[state] is committed:
                return None
            raise _invalid_end(metadata, committed)
        _check_producer_epoch(metadata, epoch)
    elif state in (ONGOING, EMPTY):
        _check_producer_epoch(metadata, epoch)
    else:
        raise errors.IllegalStateError(f"{metadata!r} cannot be in state {state}")
    if state is ONGOING:
        return False
    if committed:
        raise _invalid_end(metadata, committed)
    return True


def _invalid_end(metadata: TransactionMetadata, committed: bool) -> errors.InvalidTxnStateError:
    return errors.InvalidTxnStateError(f"{metadata!r} cannot be {'committed' if committed else 'aborted'}")
