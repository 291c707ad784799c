"""The requests of partition leaders to transaction coordinators (Java: AddPartitionsToTxnManager; KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from pykclient import errors
from pykclient.network.client_request import ClientResponse
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.inter_broker_requests import InterBrokerSendThread, grouped
from pykclient.testing.log.log_types import ProducerIdAndEpoch
from pykclient.testing.log.producer_state_manager import VerificationState
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.replica.replica_manager import ReplicaManager
from pykclient.testing.transaction.transaction_coordinator import TransactionCoordinator
from pykclient.types import TopicPartition

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction

#: Called with an error code or 0 for each partition.
ErrorsCallback = Callable[[Mapping[TopicPartition, int]], None]
#: Called with the error codes of partitions that have one, and the tokens for the appends to the others.
VerificationCallback = Callable[
    [Mapping[TopicPartition, int], "Mapping[TopicPartition, VerificationState | None]"], None
]

#: Errors that say nothing about the transaction.
_RETRIABLE = (
    errors.NetworkError.code,
    errors.CoordinatorLoadInProgressError.code,
    errors.CoordinatorNotAvailableError.code,
    errors.NotCoordinatorError.code,
)


class TransactionSupportedOperation(IntEnum):
    """The ways in which a broker may handle a client's request, by the version of the request."""

    #: The broker checks; the client does not know TRANSACTION_ABORTABLE.
    DEFAULT_ERROR = 0
    #: The broker checks; the client knows TRANSACTION_ABORTABLE (KIP-1050).
    GENERIC_ERROR_SUPPORTED = 1
    #: The broker adds the partition.
    ADD_PARTITION = 2


class FirstBatch(NamedTuple):
    """The producer of a batch, and the batch's first sequence number."""

    producer: ProducerIdAndEpoch
    sequence: int


class _Question(NamedTuple):
    """The partitions of one transaction, and the callback for the coordinator's answer."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    topic_partitions: tuple[TopicPartition, ...]
    operation: TransactionSupportedOperation
    respond: ErrorsCallback

    def to_request(self) -> Transaction:
        return Transaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            verify_only=self.operation is not TransactionSupportedOperation.ADD_PARTITION,
            topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                for topic, partitions in grouped(self.topic_partitions).items()
            ],
        )

    def fail(self, error: type[errors.BrokerError]) -> None:
        self.respond(dict.fromkeys(self.topic_partitions, error.code))

    def error_code(self, error_code: int) -> int:
        """Return the coordinator's error as the client of a partition leader knows it."""
        if error_code == errors.ProducerFencedError.code:
            return errors.InvalidProducerEpochError.code
        if (
            error_code == errors.TransactionAbortableError.code
            and self.operation is TransactionSupportedOperation.DEFAULT_ERROR
        ):
            return errors.InvalidTxnStateError.code
        return error_code


class AddPartitionsToTxnManager(InterBrokerSendThread):
    """Asks coordinators, before a transaction's first records are appended, whether it has the partition.

    So no record can be appended to a transaction that has ended, which would then stay open for ever. Newer clients
    leave it to this broker to add the partition.

    Thread: loop
    """

    def __init__(
        self,
        broker: BrokerContext,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        transaction_coordinator: TransactionCoordinator,
    ) -> None:
        super().__init__(broker, "add-partitions-to-txn", broker.config["request.timeout.ms"])
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._transaction_coordinator = transaction_coordinator
        self._retry_backoff_ms: int = broker.config["add.partitions.to.txn.retry.backoff.ms"]
        self._retry_timeout_ms: int = broker.config["add.partitions.to.txn.retry.backoff.max.ms"]

    # --- appends

    def verify(
        self,
        transactional_id: str,
        batches: Mapping[TopicPartition, FirstBatch],
        operation: TransactionSupportedOperation,
        then: VerificationCallback,
        deadline_ms: int | None = None,
    ) -> None:
        """Add or verify the partitions of transactional batches that are about to be appended, then call ``then``.

        Only those whose transaction is not open on this broker need it. ``deadline_ms`` is the time of the last
        attempt; None in the first one.
        """
        manager = self._replica_manager
        adds = operation is TransactionSupportedOperation.ADD_PARTITION
        now_ms = self._broker.loop.now_ms
        last_ms = deadline_ms if deadline_ms is not None else now_ms + (self._retry_timeout_ms if adds else 0)
        # Most likely the markers of the producer's previous transaction are being written (KIP-890). The next attempt
        # has tokens of its own, because a marker ends those of this one.
        try_again = partial(self.verify, transactional_id, batches, operation, then, last_ms)
        tokens: dict[TopicPartition, VerificationState | None] = {}
        for topic_partition, (producer, sequence) in batches.items():
            try:
                token = manager.get_partition_or_raise(topic_partition).start_transaction_verification(
                    producer.producer_id, producer.epoch, sequence, bumps_epoch=adds
                )
            except errors.ConcurrentTransactionsError as error:
                if now_ms < last_ms:
                    self._broker.call_later(self._retry_backoff_ms, try_again)
                else:
                    then(dict.fromkeys(batches, error.code), {})
                return
            except errors.BrokerError:
                continue  # the append will fail with the same error
            if token is not None:
                tokens[topic_partition] = token
        producers = {batches[tp].producer for tp in tokens}
        if not producers:
            then({}, {})
            return
        producer = producers.pop()
        if producers:
            then(dict.fromkeys(tokens, errors.InvalidPidMappingError.code), {})
            return

        def answered(codes: Mapping[TopicPartition, int]) -> None:
            if errors.ConcurrentTransactionsError.code in codes.values() and self._broker.loop.now_ms < last_ms:
                self._broker.call_later(self._retry_backoff_ms, try_again)
            else:
                then({tp: code for tp, code in codes.items() if code}, tokens)

        self._ask(_Question(transactional_id, producer, tuple(tokens), operation, answered))

    # --- requests

    def _ask(self, question: _Question) -> None:
        """Ask the transaction's coordinator."""
        stored_in = self._transaction_coordinator.storage.topic_partition_for(question.transactional_id)
        node = self._metadata_cache.snapshot.leader(stored_in)
        if node is None:
            question.fail(errors.CoordinatorNotAvailableError)
        else:
            request = AddPartitionsToTxnRequest(transactions=[question.to_request()])
            self.send(node, request, partial(self._on_response, question))

    @staticmethod
    def _on_response(question: _Question, response: ClientResponse) -> None:
        body = response.response_body
        if not isinstance(body, AddPartitionsToTxnResponse) or body.error_code:
            question.fail(errors.NetworkError)
            return
        codes = {
            TopicPartition(topic.name, one.partition_index): one.partition_error_code
            for result in body.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        question.respond(
            {tp: question.error_code(codes.get(tp, errors.NetworkError.code)) for tp in question.topic_partitions}
        )


def append_error(
    error_code: int, topic_partition: TopicPartition, operation: TransactionSupportedOperation
) -> errors.BrokerError:
    """Return the error of an append whose verification failed. Clients retry if the coordinator may agree later."""
    if error_code == errors.InvalidTxnStateError.code:
        return errors.InvalidTxnStateError(f"{topic_partition} was not added to the transaction")
    cause = errors.for_code(error_code)
    assert cause is not None, "the code of an error"
    if error_code in _RETRIABLE or (
        error_code == errors.ConcurrentTransactionsError.code
        and operation is not TransactionSupportedOperation.ADD_PARTITION
    ):
        # Not a coordinator's error, for which clients would look up another leader.
        return errors.NotEnoughReplicasError(
            f"it could not be verified that {topic_partition} was added to the transaction: {cause}"
        )
    return cause
