"""ConsumerGroupDescribe: the state and members of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.testing.group.server_assignors import ASSIGNORS

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.consumer_group import ConsumerGroup
    from pykclient.testing.group.consumer_group_member import ConsumerGroupMember, Partitions
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)

#: Everything is allowed without authentication: read, delete, describe, describe and alter configs.
_ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
#: The member type of the consumer protocol.
_CONSUMER: Final = 1

Described = ConsumerGroupDescribeResponse.DescribedGroup


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately."""
    body = cast(ConsumerGroupDescribeRequest, request.body)
    groups = []
    for group_id in body.group_ids:
        described = _describe(broker, group_id)
        if body.include_authorized_operations and not described.error_code:
            described.authorized_operations = _ALL_OPERATIONS
        groups.append(described)
    request.respond(ConsumerGroupDescribeResponse(groups=groups))


def _describe(broker: Broker, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    try:
        group = broker.group_coordinator.describe_consumer_group(group_id)
    except BrokerError as error:
        return Described(group_id=group_id, error_code=error.code, error_message=str(error))
    return Described(
        group_id=group_id,
        group_state=group.state.name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(next(iter(ASSIGNORS))),
        members=[_member(broker, group, member) for member in group.members.values()],
    )


def _member(broker: Broker, group: ConsumerGroup, member: ConsumerGroupMember) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(broker, member.current.assigned),
        target_assignment=_assignment(broker, group.targets.get(member.member_id, {})),
        member_type=_CONSUMER,
    )


def _assignment(broker: Broker, partitions: Partitions) -> ConsumerGroupDescribeResponse.Assignment:
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id,
                topic_name=broker.metadata_cache.topic_name(topic_id) or "",
                partitions=sorted(numbers),
            )
            for topic_id, numbers in partitions.items()
        ]
    )


def error_response(
    body: ConsumerGroupDescribeRequest, code: int, message: str | None = None
) -> ConsumerGroupDescribeResponse:
    groups = [Described(group_id=group_id, error_code=code, error_message=message) for group_id in body.group_ids]
    return ConsumerGroupDescribeResponse(groups=groups)
