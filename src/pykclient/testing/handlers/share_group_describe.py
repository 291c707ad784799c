"""ShareGroupDescribe: the state and members of share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from pykclient.testing.group import simple_assignor

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.group.share_group import Partitions, ShareGroupMember
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.SHARE_GROUP_DESCRIBE
VERSIONS = (1, 1)

#: Everything is allowed without authentication: read, delete, describe, describe and alter configs.
_ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

Described = ShareGroupDescribeResponse.DescribedGroup


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately."""
    body = cast(ShareGroupDescribeRequest, request.body)
    groups = []
    for group_id in body.group_ids:
        described = _describe(broker, group_id)
        if body.include_authorized_operations and not described.error_code:
            described.authorized_operations = _ALL_OPERATIONS
        groups.append(described)
    request.respond(ShareGroupDescribeResponse(groups=groups))


def _describe(broker: Broker, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
    try:
        group = broker.group_coordinator.describe_share_group(group_id)
    except BrokerError as error:
        return Described(group_id=group_id, error_code=error.code, error_message=str(error))
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
