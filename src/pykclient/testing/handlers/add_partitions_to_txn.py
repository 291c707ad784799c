"""AddPartitionsToTxn: add partitions to transactions, or check that they were added (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from pykclient.errors import (
    BrokerError,
    InvalidProducerEpochError,
    OperationNotAttemptedError,
    ProducerFencedError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from pykclient.testing import acls
from pykclient.testing.transaction.transaction_metadata import ProducerIdAndEpoch
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.ADD_PARTITIONS_TO_TXN
VERSIONS = (0, 5)

#: From this version on, brokers send the request, for several transactions.
_BATCHED = 4
#: From this version on, clients know PRODUCER_FENCED.
_TELLS_FENCED = 2

#: The generation of transactions of clients that send the request themselves, and of those whose brokers send it.
_CLIENT_VERSION, _BROKER_VERSION = 0, 2

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction

#: Called with an error code for each partition.
ResultCallback = Callable[[Mapping[TopicPartition, int]], None]


def handle(broker: Broker, request: Request) -> None:
    """Respond when the partitions are in the log of the coordinator."""
    body = cast(AddPartitionsToTxnRequest, request.body)
    version = request.api_version
    if version >= _BATCHED:
        broker.auth.check_cluster(request, acls.CLUSTER_ACTION)
    if version < _BATCHED:
        broker.auth.check_transactional_id(request, acls.WRITE, body.v3_and_below_transactional_id)
        transaction = Transaction(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            topics=body.v3_and_below_topics,
        )

        def respond(errors: Mapping[TopicPartition, int]) -> None:
            request.respond(
                AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(transaction.topics, errors, version))
            )

        _handle(broker, request, transaction, _CLIENT_VERSION, respond)
        return
    answers: dict[int, TransactionResult] = {}

    def answered(index: int, errors: Mapping[TopicPartition, int]) -> None:
        one = body.transactions[index]
        answers[index] = TransactionResult(
            transactional_id=one.transactional_id, topic_results=_results(one.topics, errors, version)
        )
        if len(answers) == len(body.transactions):
            request.respond(
                AddPartitionsToTxnResponse(results_by_transaction=[answers[i] for i in range(len(answers))])
            )

    if not body.transactions:
        request.respond(AddPartitionsToTxnResponse())
    for index, transaction in enumerate(body.transactions):
        _handle(broker, request, transaction, _BROKER_VERSION, partial(answered, index))


def _handle(
    broker: Broker, request: Request, transaction: Transaction, client_version: int, respond: ResultCallback
) -> None:
    partitions = [TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions]
    authorized = broker.auth.filter(request, acls.WRITE, acls.TOPIC, (topic.name for topic in transaction.topics))
    cache = broker.metadata_cache
    failed: dict[TopicPartition, int] = {}
    for tp in partitions:
        if tp.topic not in authorized:
            failed[tp] = TopicAuthorizationError.code
        elif cache.partition_info(tp) is None:
            failed[tp] = UnknownTopicOrPartitionError.code
    if failed:
        # All or nothing.
        respond({tp: failed.get(tp, OperationNotAttemptedError.code) for tp in partitions})
        return
    coordinator = broker.transaction_coordinator
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            respond(coordinator.verify_partitions(transaction.transactional_id, producer, partitions))
        else:
            coordinator.add_partitions(
                transaction.transactional_id,
                producer,
                partitions,
                client_version,
                lambda error_code: respond(dict.fromkeys(partitions, error_code)),
            )
    except BrokerError as error:
        respond(dict.fromkeys(partitions, error.code))


def _results(topics: list[Topic], errors: Mapping[TopicPartition, int], version: int) -> list[TopicResult]:
    def code(tp: TopicPartition) -> int:
        error_code = errors[tp]
        if error_code == ProducerFencedError.code and version < _TELLS_FENCED:
            return InvalidProducerEpochError.code
        return error_code

    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=number, partition_error_code=code(TopicPartition(topic.name, number)))
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def error_response(
    body: AddPartitionsToTxnRequest,
    code: int,
    message: str | None = None,  # noqa: ARG001 - as all handlers
) -> AddPartitionsToTxnResponse:
    """Return the error at the top for brokers, and for each partition for clients."""
    if body.transactions:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = body.v3_and_below_topics
    errors = {TopicPartition(topic.name, number): code for topic in topics for number in topic.partitions}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, errors, _TELLS_FENCED))
