"""ConsumerGroupDescribe: the state and members of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import BrokerError, TopicAuthorizationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.testing import acls
from pykclient.testing.group.server_assignors import ASSIGNORS

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.consumer_group import ConsumerGroup
    from pykclient.testing.group.consumer_group_member import ConsumerGroupMember, Partitions
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)

#: The member type of the consumer protocol.
_CLASSIC: Final = 0
_CONSUMER: Final = 1

Described = ConsumerGroupDescribeResponse.DescribedGroup


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately."""
    body = cast(ConsumerGroupDescribeRequest, request.body)
    groups = []
    for group_id in body.group_ids:
        described = _describe(broker, request, group_id)
        if body.include_authorized_operations and not described.error_code:
            described.authorized_operations = broker.auth.authorized_operations(request, acls.GROUP, group_id)
        groups.append(described)
    request.respond(ConsumerGroupDescribeResponse(groups=groups))


def _describe(broker: Broker, request: Request, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    try:
        broker.auth.check_group(request, acls.DESCRIBE, group_id)
        group = broker.group_coordinator.describe_consumer_group(group_id)
    except BrokerError as error:
        return Described(group_id=group_id, error_code=error.code, error_message=str(error))
    members = [_member(broker, group, member) for member in group.members.values()]
    topics = {name for member in members for name in _topics_of(member)}
    if broker.auth.filter(request, acls.DESCRIBE, acls.TOPIC, topics) != topics:
        return Described(
            group_id=group_id,
            error_code=TopicAuthorizationError.code,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
    return Described(
        group_id=group_id,
        group_state=group.state.name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(next(iter(ASSIGNORS))),
        members=members,
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
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _topics_of(member: ConsumerGroupDescribeResponse.Member) -> set[str]:
    assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return {*member.subscribed_topic_names, *(topic.topic_name for topic in assigned if topic.topic_name)}


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
