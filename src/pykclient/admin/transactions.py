"""Transactions and producers: the steps of their methods (KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pykclient import errors, topic_names
from pykclient.admin import expect
from pykclient.admin.admin_calls import Steps, run
from pykclient.admin.api import (
    LOADING,
    TRANSACTION,
    AdminApiHandler,
    Answers,
    CoordinatorStrategy,
    PartitionLeaderStrategy,
    VersionedBuilder,
    for_all,
    item_error,
    nothing,
)
from pykclient.admin.cluster import api_versions, broker_ids, features, of_broker
from pykclient.admin.partitions import by_partition, by_topic, leaders, topics_of
from pykclient.admin.values import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    Results,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.describe_producers import DescribeProducersRequest
from pykclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pykclient.protocol.messages.list_transactions import ListTransactionsRequest
from pykclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from pykclient.types import TopicPartition

V = TypeVar("V")

#: The feature that says which generation of transactions a cluster has, the second one, and the last version of EndTxn
#: for the first.
_TRANSACTION_VERSION, _SECOND_GENERATION = "transaction.version", 2
_LAST_END_TXN_VERSION_OF_FIRST = 4

#: States in which a transaction is not open.
_ENDED = {
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
}
#: A transaction is taken for hanging if it is open for longer than brokers allow, and this much more.
_HANGING_AFTER_MS = 5 * 60 * 1000


def _state(name: str) -> TransactionState:
    return next((state for state in TransactionState if state.value == name), TransactionState.UNKNOWN)


# --- listing and describing ---


class TransactionFilter(NamedTuple):
    """Filters for transactions. ``duration_ms`` is their minimum age."""

    producer_ids: Sequence[int] = ()
    states: Sequence[TransactionState] = ()
    duration_ms: int | None = None
    transactional_id_pattern: str | None = None


def list_transactions(
    brokers: Sequence[int] | None, wanted: TransactionFilter
) -> Steps[Results[int, list[TransactionListing]]]:
    """List the transactions of some brokers (default: all), by broker."""

    def request(version: int) -> ListTransactionsRequest:
        if wanted.duration_ms is not None and version < 1:
            raise UnsupportedVersionError("brokers before Kafka 3.8 have no filter by duration")
        if wanted.transactional_id_pattern is not None and version < 2:
            raise UnsupportedVersionError("brokers before Kafka 4.1 have no filter by transactional id")
        request = ListTransactionsRequest(
            state_filters=[state.value for state in wanted.states], producer_id_filters=wanted.producer_ids
        )
        if wanted.duration_ms is not None:
            request.duration_filter = wanted.duration_ms
        request.transactional_id_pattern = wanted.transactional_id_pattern
        return request

    def read(response: Any) -> list[TransactionListing]:
        return [
            TransactionListing(found.transactional_id, found.producer_id, _state(found.transaction_state))
            for found in response.transaction_states
        ]

    ids = brokers if brokers is not None else (yield from broker_ids())
    builder = VersionedBuilder(ListTransactionsRequest(), request)
    handler: AdminApiHandler[int, list[TransactionListing]] = AdminApiHandler(
        "list_transactions", of_broker(), builder, for_all(read), retried=LOADING
    )
    return (yield from run(handler, ids))


def transaction_filter(producer_ids: object, states: object, duration_ms: object, pattern: object) -> TransactionFilter:
    """Return checked conditions.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    ids = expect.optional_items(producer_ids, "producer_id_filters", "producer ids")
    asked = expect.optional_items(states, "state_filters", "states")
    return TransactionFilter(
        [expect.number(id, "a producer id", 0, expect.INT64) for id in ids],
        [TransactionState.build_from(state) for state in asked],
        None if duration_ms is None else expect.number(duration_ms, "duration_filter_ms", 0, expect.INT64),
        expect.optional_text(pattern, "transactional_id_pattern"),
    )


def describe_transactions(transactional_ids: Sequence[str]) -> Steps[Results[str, TransactionDescription]]:
    """Describe transactions according to their coordinators."""

    def answers(_keys: Sequence[str], response: Any) -> Answers[str]:
        for found in response.transaction_states:
            described = TransactionDescription(
                handler.destination,
                _state(found.transaction_state),
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                {TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions},
            )
            yield found.transactional_id, item_error(found), described

    handler: AdminApiHandler[str, TransactionDescription] = AdminApiHandler(
        "describe_transactions",
        CoordinatorStrategy(TRANSACTION),
        lambda keys, _timeout_ms: DescribeTransactionsRequest(transactional_ids=keys),
        answers,
    )
    return run(handler, transactional_ids)


def describe_producers(
    partitions: Sequence[TopicPartition], broker_id: int | None
) -> Steps[Results[TopicPartition, PartitionProducerState]]:
    """Return the active producers of partitions, according to their leaders or to the given broker."""

    def request(keys: Sequence[TopicPartition], _timeout_ms: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=topics_of(by_topic(keys), DescribeProducersRequest.TopicRequest))

    def read(found: Any) -> PartitionProducerState:
        producers = [
            ProducerState(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in found.active_producers
        ]
        return PartitionProducerState(producers)

    handler: AdminApiHandler[TopicPartition, PartitionProducerState] = AdminApiHandler(
        "describe_producers", leaders(broker_id), request, by_partition("topics", read)
    )
    return run(handler, partitions)


# --- ending ---


def abort_transaction(spec: AbortTransactionSpec) -> Steps[Results[TopicPartition, None]]:
    """Write an abort marker to one partition, to end a hanging transaction."""

    def request(_keys: Sequence[TopicPartition], _timeout_ms: int) -> WriteTxnMarkersRequest:
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(
            name=spec.topic_partition.topic, partition_indexes=[spec.topic_partition.partition]
        )
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=spec.producer_id,
            producer_epoch=spec.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=spec.coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def answers(_keys: Sequence[TopicPartition], response: Any) -> Answers[TopicPartition]:
        for marker in response.markers:
            for topic in marker.topics:
                for found in topic.partitions:
                    yield TopicPartition(topic.name, found.partition_index), item_error(found), None

    return run(
        AdminApiHandler("abort_transaction", PartitionLeaderStrategy(), request, answers), [spec.topic_partition]
    )


def abort_spec(value: object) -> AbortTransactionSpec:
    """Return a checked AbortTransactionSpec.

    Raises:
        IllegalArgumentError: it is none, or has wrong values.
    """
    if not isinstance(value, AbortTransactionSpec):
        raise IllegalArgumentError(f"spec is {shown(value)}; it must be an AbortTransactionSpec")
    return AbortTransactionSpec(
        topic_names.partition(value.topic_partition, "topic_partition of spec"),
        expect.number(value.producer_id, "producer_id of spec", 0, expect.INT64),
        expect.number(value.producer_epoch, "producer_epoch of spec", 0, expect.INT16),
        expect.number(value.coordinator_epoch, "coordinator_epoch of spec", -1),
    )


class FencedProducer(NamedTuple):
    """The minimum producer id and epoch of the next producer with the transactional id."""

    producer_id: int
    producer_epoch: int


class _SingleRequestsHandler(AdminApiHandler[str, V]):
    """One request for each transactional id; a transaction that is ending is waited for."""

    def requests(self, destination: int, keys: Sequence[str], timeout_ms: int) -> Any:
        of_one = super().requests
        return [request for key in keys for request in of_one(destination, [key], timeout_ms)]


def fence_producers(transactional_ids: Sequence[str]) -> Steps[Results[str, FencedProducer]]:
    """Fence the producers with these transactional ids: abort their transactions, and reject what they send."""
    handler: _SingleRequestsHandler[FencedProducer] = _SingleRequestsHandler(
        "fence_producers",
        CoordinatorStrategy(TRANSACTION),
        # The timeout counts only for the producer id that this request creates, which nobody uses.
        lambda keys, timeout_ms: InitProducerIdRequest(
            transactional_id=keys[0], transaction_timeout_ms=max(timeout_ms, 1), producer_id=-1, producer_epoch=-1
        ),
        for_all(lambda response: FencedProducer(response.producer_id, response.producer_epoch)),
    )
    return run(handler, transactional_ids)


class ProducerOfTransaction(NamedTuple):
    """The producer id and epoch of an open transaction."""

    producer_id: int
    producer_epoch: int


def end_transactions(open_transactions: Mapping[str, ProducerOfTransaction], commit: bool) -> Steps[Results[str, None]]:
    """Commit or abort transactions that other producers have left open, by their transactional ids."""

    def request(keys: Sequence[str], _timeout_ms: int) -> RequestBuilder:
        producer_id, epoch = open_transactions[keys[0]]
        message = EndTxnRequest(
            transactional_id=keys[0], producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        return RequestBuilder(message, max_version=None if is_second else _LAST_END_TXN_VERSION_OF_FIRST)

    if not open_transactions:
        return Results()
    # A broker would take a later version for that of a producer of the second generation (KIP-890).
    finalized = features((yield from api_versions("end_transaction"))).finalized
    is_second = finalized.get(_TRANSACTION_VERSION, (0, 0))[1] >= _SECOND_GENERATION
    handler: _SingleRequestsHandler[None] = _SingleRequestsHandler(
        "end_transaction", CoordinatorStrategy(TRANSACTION), request, for_all(nothing)
    )
    return (yield from run(handler, list(open_transactions)))


def open_transactions_argument(values: object) -> dict[str, ProducerOfTransaction]:
    """Return transactional ids with their checked producer ids and epochs.

    Raises:
        IllegalArgumentError: they are malformed, or a number is out of its range.
    """
    found: dict[str, ProducerOfTransaction] = {}
    for id, producer in expect.mapping(values, "transactions", "transactional ids").items():
        if not isinstance(producer, tuple) or len(producer) != 2:
            raise IllegalArgumentError(f"{shown(producer)} must be a pair of a producer id and an epoch")
        found[expect.text(id, "a transactional id")] = ProducerOfTransaction(
            expect.number(producer[0], "producer_id", 0, expect.INT64),
            expect.number(producer[1], "producer_epoch", 0, expect.INT16),
        )
    return found


def force_terminate_transaction(transactional_id: str) -> Steps[None]:
    """Abort the transaction of a transactional id by fencing its producer (KIP-939).

    Raises:
        KafkaError: the producer could not be fenced.
    """
    (yield from fence_producers([transactional_id])).all()


# --- hanging transactions ---


class HangingTransaction(NamedTuple):
    """A transaction that has been open for longer than brokers allow."""

    transactional_id: str
    description: TransactionDescription
    age_ms: int


def hanging_transactions(
    brokers: Sequence[int] | None, max_transaction_timeout_ms: int, wall_ms: int
) -> Steps[list[HangingTransaction]]:
    """Return transactions open for over five minutes more than ``max_transaction_timeout_ms``."""
    listed = yield from list_transactions(brokers, TransactionFilter())
    names = sorted({found.transactional_id for of_broker in listed.all().values() for found in of_broker})
    described = yield from describe_transactions(names)
    found = []
    for name, transaction in described.succeeded.items():
        age_ms = wall_ms - transaction.transaction_start_time_ms
        is_open = transaction.state not in _ENDED and transaction.transaction_start_time_ms >= 0
        if is_open and age_ms >= max_transaction_timeout_ms + _HANGING_AFTER_MS:
            found.append(HangingTransaction(name, transaction, age_ms))
    for error in described.failed.values():
        if not isinstance(error, errors.TransactionalIdNotFoundError):  # it has expired in between
            raise error
    return found


def as_kafka_python(found: HangingTransaction) -> Mapping[str, Any]:
    """Return a transaction as kafka-python's dict."""
    transaction = found.description
    return {
        "transactional_id": found.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "state": transaction.state.value,
        "age_ms": found.age_ms,
        "coordinator_id": transaction.coordinator_id,
        "topic_partitions": sorted(transaction.topic_partitions),
    }
