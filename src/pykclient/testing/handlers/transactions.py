"""Transactions: producer ids, partitions, markers, and their description."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from pykclient.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.handlers import answer_each, serves
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.log.log_types import AppendOrigin, ProducerIdAndEpoch
from pykclient.testing.request_channel import Request
from pykclient.testing.transaction.transaction_coordinator import NO_PRODUCER, InitProducerId
from pykclient.testing.transaction.transaction_metadata import BY_NAME, DEAD, TransactionMetadata
from pykclient.topic_names import GROUP_METADATA_TOPIC_NAME
from pykclient.types import TopicPartition


def _told(error_code: int, version: int, tells_fenced_since: int) -> int:
    """Return the code that clients of a version know for an error."""
    if error_code == errors.ProducerFencedError.code and version < tells_fenced_since:
        return errors.InvalidProducerEpochError.code
    return error_code


# --- InitProducerId --------------------------------------------------------------------------------------------------

#: From this version on, clients know PRODUCER_FENCED.
_INIT_PRODUCER_ID_TELLS_FENCED = 4


# The version with two-phase commit.
@serves(
    ApiKeys.INIT_PRODUCER_ID,
    InitProducerIdRequest.VERSIONS,
    unstable_version=6,
    producer_id=NO_PRODUCER.producer_id,
    producer_epoch=NO_PRODUCER.epoch,
)
def handle_init_producer_id(broker: Broker, request: Request, body: InitProducerIdRequest) -> None:
    """Respond with an id and epoch, for a transactional id or for a new producer.

    A producer without a transactional id increments its epoch itself, so its current id does not matter.
    """
    auth = broker.auth
    if body.transactional_id is not None:
        auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
        if body.enable2_pc:
            auth.check_transactional_id(request, acls.TWO_PHASE_COMMIT, body.transactional_id)
    elif not auth.authorize_by_resource_type(request, acls.WRITE, acls.TOPIC):  # enough since KIP-679
        auth.check_cluster(request, acls.IDEMPOTENT_WRITE)
    given = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    if (given.producer_id == NO_PRODUCER.producer_id) != (given.epoch == NO_PRODUCER.epoch):
        raise errors.InvalidRequestError("a producer id and its epoch are given together, or neither of them")

    def respond(error_code: int, producer: ProducerIdAndEpoch, ongoing: ProducerIdAndEpoch) -> None:
        error_code = _told(error_code, request.api_version, _INIT_PRODUCER_ID_TELLS_FENCED)
        request.respond(
            InitProducerIdResponse(
                error_code=error_code,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                ongoing_txn_producer_id=ongoing.producer_id,
                ongoing_txn_producer_epoch=ongoing.epoch,
            )
        )

    broker.transaction_coordinator.init_producer_id(
        InitProducerId(
            body.transactional_id,
            body.transaction_timeout_ms,
            None if given == NO_PRODUCER else given,
            body.enable2_pc,
            body.keep_prepared_txn,
        ),
        respond,
    )


# --- AddPartitionsToTxn ----------------------------------------------------------------------------------------------

#: From this version on, brokers send the request, for several transactions.
_BATCHED = 4

#: From this version on, clients know PRODUCER_FENCED.
_ADD_PARTITIONS_TO_TXN_TELLS_FENCED = 2

#: The generation of transactions of clients that send the request themselves, and of those whose brokers send it.
_ADD_PARTITIONS_TO_TXN_CLIENT_VERSION, _BROKER_VERSION = 0, 2

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult

PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult

TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult

Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction

#: Called with an error code for each partition.
ResultCallback = Callable[[Mapping[TopicPartition, int]], None]


def refuse_add_partitions_to_txn(
    body: AddPartitionsToTxnRequest, code: int, message: str | None = None
) -> AddPartitionsToTxnResponse:
    """Return the error: at the top level for brokers, and per partition for clients."""
    if body.transactions:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = body.v3_and_below_topics
    codes = {TopicPartition(topic.name, number): code for topic in topics for number in topic.partitions}
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(topics, codes, _ADD_PARTITIONS_TO_TXN_TELLS_FENCED)
    )


@serves(ApiKeys.ADD_PARTITIONS_TO_TXN, (0, 5), refuse=refuse_add_partitions_to_txn)
def handle_add_partitions_to_txn(broker: Broker, request: Request, body: AddPartitionsToTxnRequest) -> None:
    """Respond when the partitions are in the log of the coordinator."""
    version = request.api_version
    if version >= _BATCHED:
        broker.auth.check_cluster(request, acls.CLUSTER_ACTION)
        transactions, client_version = body.transactions, _BROKER_VERSION
    else:
        broker.auth.check_transactional_id(request, acls.WRITE, body.v3_and_below_transactional_id)
        transaction = Transaction(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            topics=body.v3_and_below_topics,
        )
        transactions, client_version = [transaction], _ADD_PARTITIONS_TO_TXN_CLIENT_VERSION

    def start(one: Transaction, answered: Callable[[TransactionResult], None]) -> None:
        def respond(codes: Mapping[TopicPartition, int]) -> None:
            topics = _results(one.topics, codes, version)
            answered(TransactionResult(transactional_id=one.transactional_id, topic_results=topics))

        _handle(broker, request, one, client_version, respond)

    def respond(results: list[TransactionResult]) -> None:
        if version >= _BATCHED:
            request.respond(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            request.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))

    answer_each(transactions, start, respond)


def _handle(
    broker: Broker, request: Request, transaction: Transaction, client_version: int, respond: ResultCallback
) -> None:
    partitions = [TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions]
    authorized = broker.auth.filter(request, acls.WRITE, acls.TOPIC, (topic.name for topic in transaction.topics))
    cache = broker.metadata_cache
    failed: dict[TopicPartition, int] = {}
    for tp in partitions:
        if tp.topic not in authorized:
            failed[tp] = errors.TopicAuthorizationError.code
        elif cache.partition_info(tp) is None:
            failed[tp] = errors.UnknownTopicOrPartitionError.code
    if failed:
        # All or nothing.
        respond({tp: failed.get(tp, errors.OperationNotAttemptedError.code) for tp in partitions})
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
    except errors.BrokerError as error:
        respond(dict.fromkeys(partitions, error.code))


def _results(topics: list[Topic], codes: Mapping[TopicPartition, int], version: int) -> list[TopicResult]:
    def code(tp: TopicPartition) -> int:
        return _told(codes[tp], version, _ADD_PARTITIONS_TO_TXN_TELLS_FENCED)

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


# --- AddOffsetsToTxn -------------------------------------------------------------------------------------------------

#: From this version on, clients know PRODUCER_FENCED.
_ADD_OFFSETS_TO_TXN_TELLS_FENCED: Final = 2

#: The generation of transactions in which producers send this request.
_ADD_OFFSETS_TO_TXN_CLIENT_VERSION: Final = 0


@serves(ApiKeys.ADD_OFFSETS_TO_TXN, (0, 4))
def handle_add_offsets_to_txn(broker: Broker, request: Request, body: AddOffsetsToTxnRequest) -> None:
    """Add the partition of __consumer_offsets that stores the group."""
    broker.auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
    broker.auth.check_group(request, acls.READ, body.group_id)

    def respond(error_code: int) -> None:
        error_code = _told(error_code, request.api_version, _ADD_OFFSETS_TO_TXN_TELLS_FENCED)
        request.respond(AddOffsetsToTxnResponse(error_code=error_code))

    try:
        broker.transaction_coordinator.add_partitions(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            [broker.group_coordinator.storage.topic_partition_for(body.group_id)],
            _ADD_OFFSETS_TO_TXN_CLIENT_VERSION,
            respond,
        )
    except errors.ProducerFencedError as error:
        respond(error.code)


# --- EndTxn ----------------------------------------------------------------------------------------------------------

#: From this version on, clients know PRODUCER_FENCED.
_END_TXN_TELLS_FENCED: Final = 2

#: From this version on, the end of a transaction bumps the producer's epoch.
_BUMPS_EPOCH: Final = 5


@serves(ApiKeys.END_TXN, (0, 5))
def handle_end_txn(broker: Broker, request: Request, body: EndTxnRequest) -> None:
    """Respond when the decision is in the log of the coordinator. The markers follow."""
    broker.auth.check_transactional_id(request, acls.WRITE, body.transactional_id)
    bumps_epoch = request.api_version >= _BUMPS_EPOCH

    def respond(error_code: int, producer: ProducerIdAndEpoch) -> None:
        error_code = _told(error_code, request.api_version, _END_TXN_TELLS_FENCED)
        response = EndTxnResponse(error_code=error_code)
        if bumps_epoch:
            response.producer_id, response.producer_epoch = producer
        request.respond(response)

    broker.transaction_coordinator.end_transaction(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        body.committed,
        2 if bumps_epoch else 0,
        respond,
    )


# --- WriteTxnMarkers -------------------------------------------------------------------------------------------------

PartitionResponses = dict[TopicPartition, ProduceResponse.PartitionProduceResponse]

Marker = WriteTxnMarkersRequest.WritableTxnMarker

MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult


@serves(ApiKeys.WRITE_TXN_MARKERS, (0, 2))
def handle_write_txn_markers(broker: Broker, request: Request, body: WriteTxnMarkersRequest) -> None:
    """Append a marker to each partition, and respond when all in-sync replicas have them."""
    if not broker.auth.authorize(request, acls.ALTER, acls.CLUSTER, acls.CLUSTER_NAME):
        broker.auth.check_cluster(request, acls.CLUSTER_ACTION)
    answer_each(
        body.markers, partial(_write, broker), lambda results: request.respond(WriteTxnMarkersResponse(markers=results))
    )


def _write(broker: Broker, marker: Marker, respond: Callable[[MarkerResult], None]) -> None:
    partitions = [TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]
    if marker.producer_id < 0 or marker.producer_epoch < 0 or not partitions:
        # Nothing can be written for such a producer. Kafka gives the same error.
        respond(_result(marker, dict.fromkeys(partitions, errors.UnknownServerError.code)))
        return
    builder = MemoryRecordsBuilder(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control_batch=True,
    )
    kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
    builder.append_end_txn_marker(broker.loop.wall_ms, EndTransactionMarker(kind, marker.coordinator_epoch))
    records = builder.build()

    def appended(responses: PartitionResponses) -> None:
        for tp, response in responses.items():
            if tp.topic == GROUP_METADATA_TOPIC_NAME and not response.error_code:
                broker.group_coordinator.on_transaction_completed(
                    tp.partition, marker.producer_id, response.base_offset, committed=marker.transaction_result
                )
        respond(_result(marker, {tp: response.error_code for tp, response in responses.items()}))

    broker.replica_manager.append_records(
        broker.config.get_int("request.timeout.ms"),
        -1,
        dict.fromkeys(partitions, records),
        appended,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=marker.transaction_version,
    )


def _result(marker: Marker, codes: dict[TopicPartition, int]) -> MarkerResult:
    return MarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                        partition_index=number, error_code=codes[TopicPartition(topic.name, number)]
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


# --- DescribeTransactions --------------------------------------------------------------------------------------------

_State = DescribeTransactionsResponse.TransactionState


@serves(ApiKeys.DESCRIBE_TRANSACTIONS, (0, 0))
def handle_describe_transactions(broker: Broker, request: Request, body: DescribeTransactionsRequest) -> None:
    request.respond(
        DescribeTransactionsResponse(
            transaction_states=[
                _describe(broker, request, transactional_id) for transactional_id in body.transactional_ids
            ]
        )
    )


def _describe(broker: Broker, request: Request, transactional_id: str) -> _State:
    try:
        broker.auth.check_transactional_id(request, acls.DESCRIBE, transactional_id)
        metadata = broker.transaction_coordinator.describe_transaction(transactional_id)
    except errors.BrokerError as error:
        return _State(transactional_id=transactional_id, error_code=error.code)
    topics = grouped(metadata.topic_partitions)
    visible = broker.auth.filter(request, acls.DESCRIBE, acls.TOPIC, topics)
    return _State(
        transactional_id=transactional_id,
        transaction_state=metadata.state.name,
        transaction_timeout_ms=metadata.txn_timeout_ms,
        transaction_start_time_ms=metadata.txn_start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
            if topic in visible
        ],
    )


# --- ListTransactions ------------------------------------------------------------------------------------------------


@serves(ApiKeys.LIST_TRANSACTIONS, (0, 2))
def handle_list_transactions(broker: Broker, request: Request, body: ListTransactionsRequest) -> None:
    """Respond with the transactional ids that match all filters, and the unknown states of the filter."""
    now_ms = broker.loop.wall_ms
    pattern = _pattern(body.transactional_id_pattern)
    producer_ids = frozenset(body.producer_id_filters)
    states = {BY_NAME[name] for name in body.state_filters if name in BY_NAME}

    def is_wanted(metadata: TransactionMetadata) -> bool:
        if metadata.state is DEAD:
            return False
        return (
            broker.auth.authorize(request, acls.DESCRIBE, acls.TRANSACTIONAL_ID, metadata.transactional_id)
            and (not producer_ids or metadata.producer_id in producer_ids)
            and (not body.state_filters or metadata.state in states)
            and (body.duration_filter < 0 or now_ms - metadata.txn_start_ms > body.duration_filter)
            and (pattern is None or pattern.fullmatch(metadata.transactional_id) is not None)
        )

    request.respond(
        ListTransactionsResponse(
            unknown_state_filters=[name for name in body.state_filters if name not in BY_NAME],
            transaction_states=[
                ListTransactionsResponse.TransactionState(
                    transactional_id=metadata.transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.name,
                )
                for metadata in broker.transaction_coordinator.list_transactions()
                if is_wanted(metadata)
            ],
        )
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise errors.InvalidRegularExpressionError(f"{text!r} is not a regular expression: {error}") from error
