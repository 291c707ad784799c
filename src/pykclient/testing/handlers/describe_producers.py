"""DescribeProducers: the producers that write to a partition (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError, UnknownTopicOrPartitionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from pykclient.testing import acls
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DESCRIBE_PRODUCERS
VERSIONS = (0, 0)

_PartitionResponse = DescribeProducersResponse.PartitionResponse


def handle(broker: Broker, request: Request) -> None:
    """Respond for this broker's own log; any replica may be asked."""
    body = cast(DescribeProducersRequest, request.body)
    request.respond(
        DescribeProducersResponse(
            topics=[
                DescribeProducersResponse.TopicResponse(
                    name=topic.name,
                    partitions=[
                        _describe(broker, request, TopicPartition(topic.name, index))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in body.topics
            ]
        )
    )


def _describe(
    broker: Broker, request: Request, topic_partition: TopicPartition
) -> DescribeProducersResponse.PartitionResponse:
    index = topic_partition.partition
    try:
        broker.auth.check_topic(request, acls.READ, topic_partition.topic)
        if not broker.metadata_cache.contains(topic_partition.topic):
            raise UnknownTopicOrPartitionError(f"there is no topic {topic_partition.topic!r}")
        log = broker.replica_manager.get_partition_or_raise(topic_partition).local_log_or_raise()
    except BrokerError as error:
        return _PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
    return _PartitionResponse(
        partition_index=index,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            )
            for entry in log.active_producers
        ],
    )


def error_response(body: DescribeProducersRequest, code: int, message: str | None = None) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in body.topics
        ]
    )
