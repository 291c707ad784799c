"""The markers that a transaction coordinator sends to partition leaders (Java: TransactionMarkerChannelManager)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from pykclient import errors
from pykclient.network.client_request import ClientResponse
from pykclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.inter_broker_requests import InterBrokerSendThread, grouped
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.transaction.transaction_metadata import (
    COMPLETE_COMMIT,
    PREPARE_COMMIT,
    TransactionMetadata,
    TransactionStateManager,
)
from pykclient.topic_names import TRANSACTION_STATE_TOPIC_NAME
from pykclient.types import Node, TopicPartition

#: The time after which a marker is sent again, or its destination is looked up again.
_RETRY_BACKOFF_MS: Final = 50

#: Errors of a partition that may pass.
_RETRIABLE: Final = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartitionError,
        errors.NotLeaderOrFollowerError,
        errors.NotEnoughReplicasError,
        errors.NotEnoughReplicasAfterAppendError,
        errors.RequestTimedOutError,
        errors.KafkaStorageError,
    )
)
#: The partition has markers of a later coordinator or records of a later epoch, so this coordinator must stop.
_FENCED: Final = frozenset((errors.InvalidProducerEpochError.code, errors.TransactionCoordinatorFencedError.code))
#: The partition cannot have records of transactions, so it needs no marker.
_NEEDS_NONE: Final = frozenset((0, errors.UnsupportedForMessageFormatError.code, errors.UnsupportedVersionError.code))


class PendingCompleteTxn(NamedTuple):
    """A decided transaction, and the state to write once its markers are written."""

    coordinator_epoch: int
    metadata: TransactionMetadata
    transit: TransactionMetadata

    @property
    def transactional_id(self) -> str:
        return self.metadata.transactional_id

    def request(self, topic_partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
        """Return the request for the transaction's markers in some of its partitions."""
        metadata, marker = self.metadata, WriteTxnMarkersRequest.WritableTxnMarker
        topics = [
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in grouped(topic_partitions).items()
        ]
        return WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=metadata.producer_id,
                    producer_epoch=metadata.producer_epoch,
                    transaction_result=metadata.state is PREPARE_COMMIT,
                    coordinator_epoch=self.coordinator_epoch,
                    transaction_version=metadata.client_transaction_version,
                    topics=topics,
                )
            ]
        )


class TransactionMarkerChannelManager(InterBrokerSendThread):
    """Sends markers to the leaders of a transaction's partitions until all are written, then completes the transaction.

    A marker that fails is sent again after a backoff, to whichever broker leads the partition then. The partitions that
    still need one are those left in the transaction's metadata. If this broker is no longer the coordinator, its
    successor finds the decision in the log and sends the markers again.

    Thread: loop
    """

    def __init__(self, broker: BrokerContext, metadata_cache: MetadataCache, states: TransactionStateManager) -> None:
        super().__init__(broker, "transaction-markers", broker.config["request.timeout.ms"])
        self._metadata_cache = metadata_cache
        self._states = states
        self._pending: dict[str, PendingCompleteTxn] = {}

    def shutdown(self) -> None:
        super().shutdown()
        self._pending.clear()

    def add_txn_markers_to_send(
        self, coordinator_epoch: int, metadata: TransactionMetadata, transit: TransactionMetadata
    ) -> None:
        """Send the markers of a decided transaction, then write ``transit``, its complete state."""
        txn = PendingCompleteTxn(coordinator_epoch, metadata, transit)
        self._pending[metadata.transactional_id] = txn
        self._route(txn, tuple(metadata.topic_partitions))

    def remove_partition(self, partition: int) -> None:
        """Forget the transactions of a partition of __transaction_state, which has a new leader."""
        for transactional_id in [id for id in self._pending if self._states.storage.partition_for(id) == partition]:
            del self._pending[transactional_id]

    def _is_current(self, txn: PendingCompleteTxn) -> bool:
        """Return whether this broker still coordinates the transaction. If it does not, forget it."""
        if self._pending.get(txn.transactional_id) is not txn:
            return False
        if self._states.current(txn.transactional_id, txn.coordinator_epoch) is txn.metadata:
            return True
        del self._pending[txn.transactional_id]
        return False

    def _route(self, txn: PendingCompleteTxn, topic_partitions: Iterable[TopicPartition]) -> None:
        """Send the markers for these partitions to their leaders. Partitions without one are looked up again later."""
        if not self._is_current(txn):
            return
        cache = self._metadata_cache
        by_leader: dict[Node, list[TopicPartition]] = {}
        leaderless: list[TopicPartition] = []
        for topic_partition in topic_partitions:
            leader = cache.snapshot.leader(topic_partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append(topic_partition)
            elif cache.partition_info(topic_partition) is None and cache.contains(TRANSACTION_STATE_TOPIC_NAME):
                # A broker that has just started knows no topics at all; this one was deleted.
                self._log.info("%s needs no marker of %r: it was deleted", topic_partition, txn.transactional_id)
                txn.metadata.remove_partition(topic_partition)
            else:
                leaderless.append(topic_partition)
        for leader, partitions in by_leader.items():
            self.send(leader, txn.request(partitions), partial(self._on_response, txn, partitions))
        if leaderless:
            self._route_later(txn, leaderless)
        self._maybe_write_completion(txn)

    def _route_later(self, txn: PendingCompleteTxn, topic_partitions: Iterable[TopicPartition]) -> None:
        self._broker.call_later(_RETRY_BACKOFF_MS, self._route, txn, topic_partitions)

    def _on_response(
        self, txn: PendingCompleteTxn, topic_partitions: Iterable[TopicPartition], response: ClientResponse
    ) -> None:
        """Handle the response to a request for the markers in these partitions, or a lost connection."""
        if not self._is_current(txn):
            return
        body = response.response_body
        codes: dict[TopicPartition, int] = {}
        if isinstance(body, WriteTxnMarkersResponse):
            codes = {
                TopicPartition(topic.name, one.partition_index): one.error_code
                for result in body.markers
                for topic in result.topics
                for one in topic.partitions
            }
        retry = []
        for topic_partition in topic_partitions:
            error_code = codes.get(topic_partition)
            if error_code is None or error_code in _RETRIABLE:
                retry.append(topic_partition)
            elif error_code in _NEEDS_NONE:
                txn.metadata.remove_partition(topic_partition)
            elif error_code in _FENCED:
                self._log.warning(
                    "%s refuses the marker of %r: error code %d", topic_partition, txn.metadata, error_code
                )
                del self._pending[txn.transactional_id]
                return
            else:
                raise errors.IllegalStateError(
                    f"{topic_partition} refuses the marker of {txn.metadata!r}: error {error_code}"
                )
        if retry:
            self._route_later(txn, retry)
        self._maybe_write_completion(txn)

    def _maybe_write_completion(self, txn: PendingCompleteTxn) -> None:
        if not txn.metadata.topic_partitions and self._is_current(txn):
            del self._pending[txn.transactional_id]
            self._write_completion(txn)

    def _write_completion(self, txn: PendingCompleteTxn) -> None:
        def written(error_code: int) -> None:
            if error_code == errors.CoordinatorNotAvailableError.code:
                self._broker.call_later(_RETRY_BACKOFF_MS, self._write_completion, txn)
            elif not error_code:
                ended = "committed" if txn.transit.state is COMPLETE_COMMIT else "aborted"
                self._log.debug("%r is %s", txn.metadata, ended)

        self._states.append(
            txn.transactional_id,
            txn.coordinator_epoch,
            txn.transit,
            written,
            keep_pending_on=errors.CoordinatorNotAvailableError.code,
        )
