"""WriteTxnMarkers: the ends of transactions, for partitions that this broker leads (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import UnknownServerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.testing import acls
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.topic_names import GROUP_METADATA_TOPIC_NAME
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.produce import ProduceResponse
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

    PartitionResponses = dict[TopicPartition, ProduceResponse.PartitionProduceResponse]

API_KEY: Final = ApiKeys.WRITE_TXN_MARKERS
VERSIONS: Final = (0, 2)

Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult


def handle(broker: Broker, request: Request) -> None:
    """Append a marker to each partition, and respond when all in-sync replicas have them."""
    body = cast(WriteTxnMarkersRequest, request.body)
    if not broker.auth.authorize(request, acls.ALTER, acls.CLUSTER, acls.CLUSTER_NAME):
        broker.auth.check_cluster(request, acls.CLUSTER_ACTION)
    answers: dict[int, MarkerResult] = {}

    def written(index: int, result: MarkerResult) -> None:
        answers[index] = result
        if len(answers) == len(body.markers):
            request.respond(WriteTxnMarkersResponse(markers=[answers[i] for i in range(len(answers))]))

    if not body.markers:
        request.respond(WriteTxnMarkersResponse())
    for index, marker in enumerate(body.markers):
        _write(broker, marker, partial(written, index))


def _write(broker: Broker, marker: Marker, respond: Callable[[MarkerResult], None]) -> None:
    partitions = [TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]
    if marker.producer_id < 0 or marker.producer_epoch < 0 or not partitions:
        # Nothing can be written for such a producer. Kafka gives the same error.
        respond(_result(marker, dict.fromkeys(partitions, UnknownServerError.code)))
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


def _result(marker: Marker, errors: dict[TopicPartition, int]) -> MarkerResult:
    return MarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                        partition_index=number, error_code=errors[TopicPartition(topic.name, number)]
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def error_response(body: WriteTxnMarkersRequest, code: int, message: str | None = None) -> WriteTxnMarkersResponse:  # noqa: ARG001
    return WriteTxnMarkersResponse(
        markers=[
            _result(
                marker,
                {TopicPartition(topic.name, n): code for topic in marker.topics for n in topic.partition_indexes},
            )
            for marker in body.markers
        ]
    )
