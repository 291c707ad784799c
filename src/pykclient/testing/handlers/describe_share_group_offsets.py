"""DescribeShareGroupOffsets: how far share groups have come, and their lags (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError, TopicAuthorizationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from pykclient.testing import acls
from pykclient.testing.group.share_group_offsets import SharePartitionOffset
from pykclient.testing.share.acknowledgements import check_enabled
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS = (0, 1)

_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
_Partition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition


def handle(broker: Broker, request: Request) -> None:
    """Respond when the share coordinators and the leaders of the partitions have answered."""
    body = cast(DescribeShareGroupOffsetsRequest, request.body)
    found: dict[int, DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = {}

    def described(index: int, group: DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup) -> None:
        found[index] = group
        if len(found) == len(body.groups):
            groups = [found[each] for each in range(len(body.groups))]
            request.respond(DescribeShareGroupOffsetsResponse(groups=groups))

    if not body.groups:
        request.respond(DescribeShareGroupOffsetsResponse())
    for index, asked in enumerate(body.groups):
        try:
            _describe(broker, request, asked, partial(described, index))
        except BrokerError as error:
            described(index, _Group(group_id=asked.group_id, error_code=error.code, error_message=str(error)))


def _describe(
    broker: Broker,
    request: Request,
    asked: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
    then: partial[None],
) -> None:
    check_enabled(broker)
    broker.auth.check_group(request, acls.DESCRIBE, asked.group_id)
    denied: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = []
    partitions: list[TopicPartition] | None = None
    if asked.topics is not None:
        names = {topic.topic_name for topic in asked.topics}
        allowed = broker.auth.filter(request, acls.DESCRIBE, acls.TOPIC, names)
        partitions = []
        for topic in asked.topics:
            if topic.topic_name in allowed:
                partitions += [TopicPartition(topic.topic_name, number) for number in topic.partitions]
            else:
                code = TopicAuthorizationError.code
                failed = [_Partition(partition_index=number, error_code=code) for number in topic.partitions]
                denied.append(_Topic(topic_name=topic.topic_name, partitions=failed))

    def answered(offsets: Mapping[TopicPartition, SharePartitionOffset]) -> None:
        topics: dict[str, DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = {}
        allowed = broker.auth.filter(request, acls.DESCRIBE, acls.TOPIC, {tp.topic for tp in offsets})
        for tp, offset in offsets.items():
            if tp.topic not in allowed:
                continue
            topic = topics.get(tp.topic)
            if topic is None:
                topic_id = broker.metadata_cache.topic_id(tp.topic)
                topic = topics[tp.topic] = _Topic(topic_name=tp.topic, topic_id=topic_id)
            topic.partitions.append(
                _Partition(
                    partition_index=tp.partition,
                    start_offset=offset.start_offset,
                    leader_epoch=offset.leader_epoch,
                    lag=offset.lag,
                    error_code=offset.error_code,
                )
            )
        then(_Group(group_id=asked.group_id, topics=[*topics.values(), *denied]))

    broker.group_coordinator.describe_share_group_offsets(asked.group_id, partitions, answered)


def error_response(
    body: DescribeShareGroupOffsetsRequest, code: int, message: str | None = None
) -> DescribeShareGroupOffsetsResponse:
    groups = [_Group(group_id=group.group_id, error_code=code, error_message=message) for group in body.groups]
    return DescribeShareGroupOffsetsResponse(groups=groups)
