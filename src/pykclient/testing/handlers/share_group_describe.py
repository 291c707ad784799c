"""ShareGroupDescribe: the state and members of share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError, TopicAuthorizationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from pykclient.testing import acls
from pykclient.testing.group import simple_assignor

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.share_group import Partitions, ShareGroupMember
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.SHARE_GROUP_DESCRIBE
VERSIONS = (1, 1)

Described = ShareGroupDescribeResponse.DescribedGroup


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately."""
    body = cast(ShareGroupDescribeRequest, request.body)
    groups = []
    for group_id in body.group_ids:
        described = _describe(broker, request, group_id)
        if body.include_authorized_operations and not described.error_code:
            described.authorized_operations = broker.auth.authorized_operations(request, acls.GROUP, group_id)
        groups.append(described)
    request.respond(ShareGroupDescribeResponse(groups=groups))


def _describe(broker: Broker, request: Request, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
    try:
        broker.auth.check_group(request, acls.DESCRIBE, group_id)
        group = broker.group_coordinator.describe_share_group(group_id)
    except BrokerError as error:
        return Described(group_id=group_id, error_code=error.code, error_message=str(error))
    topics = group.subscribed_topics
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
        assignor_name=simple_assignor.NAME,
        members=[_member(broker, member) for member in group.members.values()],
    )


def _member(broker: Broker, member: ShareGroupMember) -> ShareGroupDescribeResponse.Member:
    return ShareGroupDescribeResponse.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=_assignment(broker, member.assigned),
    )


def _assignment(broker: Broker, partitions: Partitions) -> ShareGroupDescribeResponse.Assignment:
    return ShareGroupDescribeResponse.Assignment(
        topic_partitions=[
            ShareGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id,
                topic_name=broker.metadata_cache.topic_name(topic_id) or "",
                partitions=sorted(numbers),
            )
            for topic_id, numbers in partitions.items()
        ]
    )


def error_response(
    body: ShareGroupDescribeRequest, code: int, message: str | None = None
) -> ShareGroupDescribeResponse:
    groups = [Described(group_id=group_id, error_code=code, error_message=message) for group_id in body.group_ids]
    return ShareGroupDescribeResponse(groups=groups)
