"""DeleteRecords: raise the start offsets of logs (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import (
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from pykclient.testing import acls
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.replica.delayed_delete_records import DeleteRecordsResult
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DELETE_RECORDS
VERSIONS = (0, 2)

_PartitionResult = DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(broker: Broker, request: Request) -> None:
    """Respond once all live replicas have deleted the records, or the request's time is up."""
    body = cast(DeleteRecordsRequest, request.body)
    cache = broker.metadata_cache
    authorized = broker.auth.filter(request, acls.DELETE, acls.TOPIC, (topic.name for topic in body.topics))
    offsets = {
        topic_partition: one.offset
        for topic in body.topics
        if topic.name in authorized
        for one in topic.partitions
        if cache.partition_info(topic_partition := TopicPartition(topic.name, one.partition_index)) is not None
    }

    def respond(results: Mapping[TopicPartition, DeleteRecordsResult]) -> None:
        request.respond(
            DeleteRecordsResponse(
                topics=[
                    DeleteRecordsResponse.DeleteRecordsTopicResult(
                        name=topic.name,
                        partitions=[
                            _result(one.partition_index, results.get(TopicPartition(topic.name, one.partition_index)))
                            if topic.name in authorized
                            else _failed(one.partition_index, TopicAuthorizationError.code)
                            for one in topic.partitions
                        ],
                    )
                    for topic in body.topics
                ]
            )
        )

    if offsets:
        broker.replica_manager.delete_records(body.timeout_ms, offsets, respond)
    else:
        respond({})


def _result(index: int, result: DeleteRecordsResult | None) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    if result is None:
        return _failed(index, UnknownTopicOrPartitionError.code)
    return _PartitionResult(partition_index=index, low_watermark=result.low_watermark, error_code=result.error_code)


def _failed(index: int, code: int) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    return _PartitionResult(partition_index=index, low_watermark=-1, error_code=code)


def error_response(body: DeleteRecordsRequest, code: int, message: str | None = None) -> DeleteRecordsResponse:  # noqa: ARG001
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_failed(one.partition_index, code) for one in topic.partitions],
            )
            for topic in body.topics
        ]
    )
