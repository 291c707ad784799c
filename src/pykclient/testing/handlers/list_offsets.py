"""ListOffsets: the first offset, the last one, or that of a timestamp."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import (
    BrokerError,
    InvalidRequestError,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    UnsupportedVersionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.testing import acls
from pykclient.testing.log.log_types import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.LIST_OFFSETS
VERSIONS = (0, 11)

_CONSUMER: Final = -1
_DEBUGGING_REPLICA: Final = -2

#: The first versions that allow these values instead of a timestamp.
_SINCE: Final = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}

_PartitionResponse = ListOffsetsResponse.ListOffsetsPartitionResponse


def handle(broker: Broker, request: Request) -> None:
    """Respond to consumers within the high watermark or the last stable offset, and to followers without a bound."""
    body = cast(ListOffsetsRequest, request.body)
    version = request.api_version
    asked = Counter((topic.name, one.partition_index) for topic in body.topics for one in topic.partitions)
    topics = []
    for topic in body.topics:
        partitions = []
        for one in topic.partitions:
            topic_partition = TopicPartition(topic.name, one.partition_index)
            try:
                broker.auth.check_topic(request, acls.DESCRIBE, topic.name)
                if asked[topic_partition] > 1:
                    raise InvalidRequestError(f"{topic_partition} is in the request twice")
                if one.timestamp < 0 and version < _SINCE.get(one.timestamp, version + 1):
                    raise UnsupportedVersionError(f"version {version} does not have timestamp {one.timestamp}")
                if version == 0:
                    found = _legacy_offsets(broker, body.replica_id, topic_partition, one)
                else:
                    found = _offset(broker, body, topic_partition, one)
            except OffsetNotAvailableError as error:
                # Older clients do not know this error (KIP-207).
                code = error.code if version >= 5 else LeaderNotAvailableError.code
                found = _PartitionResponse(partition_index=one.partition_index, error_code=code)
            except BrokerError as error:
                found = _PartitionResponse(partition_index=one.partition_index, error_code=error.code)
            if version < 4:
                found.leader_epoch = -1
            partitions.append(found)
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    request.respond(ListOffsetsResponse(topics=topics))


def _offset(
    broker: Broker,
    body: ListOffsetsRequest,
    topic_partition: TopicPartition,
    one: ListOffsetsRequest.ListOffsetsPartition,
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    found = broker.replica_manager.get_partition_or_raise(topic_partition).fetch_offset_for_timestamp(
        one.timestamp,
        body.isolation_level if body.replica_id == _CONSUMER else None,
        one.current_leader_epoch,
        fetch_only_from_leader=body.replica_id != _DEBUGGING_REPLICA,
    )
    if found is None:
        return _PartitionResponse(partition_index=one.partition_index)
    return _PartitionResponse(
        partition_index=one.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=-1 if found.leader_epoch is None else found.leader_epoch,
    )


def _legacy_offsets(
    broker: Broker, replica_id: int, topic_partition: TopicPartition, one: ListOffsetsRequest.ListOffsetsPartition
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    """Return base offsets of segments, latest first, as before version 1."""
    partition = broker.replica_manager.get_partition_or_raise(topic_partition)
    log = partition.local_log_with_epoch_or_raise(-1, require_leader=replica_id != _DEBUGGING_REPLICA)
    offsets = log.legacy_fetch_offsets_before(one.timestamp, one.max_num_offsets)
    if replica_id == _CONSUMER and offsets and offsets[0] > log.high_watermark:
        offsets = [log.high_watermark, *(offset for offset in offsets if offset <= log.high_watermark)]
    return _PartitionResponse(partition_index=one.partition_index, old_style_offsets=offsets)


def error_response(body: ListOffsetsRequest, code: int, message: str | None = None) -> ListOffsetsResponse:  # noqa: ARG001
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _PartitionResponse(partition_index=one.partition_index, error_code=code) for one in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
