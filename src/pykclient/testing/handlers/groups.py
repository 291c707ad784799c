"""Consumer groups: their coordinator, their members, and their description."""

from __future__ import annotations

import re
from collections.abc import Callable, Set as AbstractSet
from typing import Any, Final

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykclient.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.group import group_metadata as group_state
from pykclient.testing.group.group_metadata import GroupMetadata
from pykclient.testing.group.group_rebalance import JoinAttempt
from pykclient.testing.group.modern_groups import ConsumerGroup, ConsumerGroupMember, Partitions
from pykclient.testing.handlers import answer_each, serves
from pykclient.testing.request_channel import Request
from pykclient.types import Node

# --- FindCoordinator -------------------------------------------------------------------------------------------------

#: From this version on, a request may have several keys.
_BATCHED_KEYS = 4

_GROUP, _TRANSACTION, _SHARE_KEY = 0, 1, 2

#: From this version on, there are keys of share partitions.
_WITH_SHARE_PARTITIONS = 6

#: A share partition: a group, a topic id and a partition.
_SHARE_PARTITION_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+", re.DOTALL)

Coordinator = FindCoordinatorResponse.Coordinator


def refuse_find_coordinator(
    body: FindCoordinatorRequest, code: int, message: str | None = None
) -> FindCoordinatorResponse:
    """Return the error for each key, or at the top, depending on the version."""
    if body.coordinator_keys:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
                for key in body.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, port=-1)


@serves(ApiKeys.FIND_COORDINATOR, (0, 6), refuse=refuse_find_coordinator)
def handle_find_coordinator(broker: Broker, request: Request, body: FindCoordinatorRequest) -> None:
    """Respond immediately. The first request creates the topic; meanwhile clients retry."""
    if request.api_version >= _BATCHED_KEYS:
        answers = [_coordinator(broker, request, body.key_type, key) for key in body.coordinator_keys]
        request.respond(FindCoordinatorResponse(coordinators=answers))
        return
    found = _coordinator(broker, request, body.key_type, body.key)
    request.respond(
        FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or "NONE",
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    )


def _coordinator(broker: Broker, request: Request, key_type: int, key: str) -> Coordinator:
    try:
        if key_type == _GROUP:
            broker.auth.check_group(request, acls.DESCRIBE, key)
        elif key_type == _TRANSACTION:
            broker.auth.check_transactional_id(request, acls.DESCRIBE, key)
        node = request.advertised(_find(broker, request.api_version, key_type, key))
    except errors.BrokerError as error:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=str(error))
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message="")


def _find(broker: Broker, api_version: int, key_type: int, key: str) -> Node:
    # In the order of the types.
    coordinators = broker.group_coordinator, broker.transaction_coordinator, broker.share_coordinator
    if not 0 <= key_type < len(coordinators):
        raise errors.InvalidRequestError(f"there are no coordinators of type {key_type}")
    if key_type == _SHARE_KEY and (api_version < _WITH_SHARE_PARTITIONS or not _SHARE_PARTITION_KEY.fullmatch(key)):
        raise errors.InvalidRequestError(f"{key!r} is not the key of a share partition, group:topic-id:partition")
    tp = coordinators[key_type].storage.topic_partition_for(key)
    cache = broker.metadata_cache
    if not cache.contains(tp.topic):
        broker.auto_topic_creation.create_topics([tp.topic])
        raise errors.CoordinatorNotAvailableError(f"{tp.topic} is being created")
    node = cache.snapshot.leader(tp)
    if node is None:
        raise errors.CoordinatorNotAvailableError(f"{tp} has no leader")
    return node


# --- JoinGroup -------------------------------------------------------------------------------------------------------

#: From this version on, an error response has no protocol, instead of one with an empty name.
_NULLABLE_PROTOCOL = 7


def refuse_join_group(body: JoinGroupRequest, code: int, message: str | None = None) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=body.member_id, error_code=code)


@serves(ApiKeys.JOIN_GROUP, (0, 9), refuse=refuse_join_group)
def handle_join_group(broker: Broker, request: Request, body: JoinGroupRequest) -> None:
    """Respond once all members have joined, or the time for that is over."""
    broker.auth.check_group(request, acls.READ, body.group_id)

    def respond(response: JoinGroupResponse) -> None:
        if response.error_code and request.api_version >= _NULLABLE_PROTOCOL:
            response.protocol_name = None
        request.respond(response)

    # Java's notation of addresses.
    client_host = f"/{request.client_host}"
    attempt = JoinAttempt(body, request.api_version, request.client_id or "", client_host, respond)
    broker.group_coordinator.join_group(attempt)


# --- SyncGroup -------------------------------------------------------------------------------------------------------

#: From this version on, a member names its protocol (KIP-559).
_NAMES_PROTOCOL = 5


@serves(ApiKeys.SYNC_GROUP, (0, 5))
def handle_sync_group(broker: Broker, request: Request, body: SyncGroupRequest) -> None:
    """Respond once the leader's assignment is stored."""
    broker.auth.check_group(request, acls.READ, body.group_id)
    if request.api_version >= _NAMES_PROTOCOL and (body.protocol_type is None or body.protocol_name is None):
        raise errors.InconsistentGroupProtocolError("protocol type and name belong into a SyncGroup request")
    broker.group_coordinator.sync_group(body, request.respond)


# --- Heartbeat -------------------------------------------------------------------------------------------------------


@serves(ApiKeys.HEARTBEAT, (0, 4))
def handle_heartbeat(broker: Broker, request: Request, body: HeartbeatRequest) -> None:
    """Respond immediately."""
    broker.auth.check_group(request, acls.READ, body.group_id)
    broker.group_coordinator.heartbeat(body)
    request.respond(HeartbeatResponse())


# --- LeaveGroup ------------------------------------------------------------------------------------------------------

#: From this version on, a request may have several members.
_BATCHED_MEMBERS = 3


@serves(ApiKeys.LEAVE_GROUP, (0, 5))
def handle_leave_group(broker: Broker, request: Request, body: LeaveGroupRequest) -> None:
    """Respond immediately."""
    broker.auth.check_group(request, acls.READ, body.group_id)
    if request.api_version >= _BATCHED_MEMBERS:
        request.respond(LeaveGroupResponse(members=broker.group_coordinator.leave_group(body.group_id, body.members)))
        return
    leaving = LeaveGroupRequest.MemberIdentity(member_id=body.member_id)
    (left,) = broker.group_coordinator.leave_group(body.group_id, [leaving])
    request.respond(LeaveGroupResponse(error_code=left.error_code))


# --- ConsumerGroupHeartbeat, ShareGroupHeartbeat ---------------------------------------------------------------------


@serves(ApiKeys.CONSUMER_GROUP_HEARTBEAT, (0, 1))
@serves(ApiKeys.SHARE_GROUP_HEARTBEAT, (1, 1))
def handle_modern_heartbeat(
    broker: Broker, request: Request, body: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
) -> None:
    """Respond when all changes in the response are in the log."""
    auth = broker.auth
    auth.check_group(request, acls.READ, body.group_id)
    for topic in body.subscribed_topic_names or ():
        auth.check_topic(request, acls.DESCRIBE, topic)
    # Java's notation of addresses.
    client_host = f"/{request.client_host}"
    broker.group_coordinator.modern_heartbeat(body, request.client_id or "", client_host, request.respond)


# --- DescribeGroups --------------------------------------------------------------------------------------------------

#: Earlier versions describe a missing group as a dead one (KIP-1043).
_TELLS_MISSING_GROUP = 6

_DescribedGroup = DescribeGroupsResponse.DescribedGroup


@serves(ApiKeys.DESCRIBE_GROUPS, (0, 6), error_message=None)
def handle_describe_groups(broker: Broker, request: Request, body: DescribeGroupsRequest) -> None:
    """Respond immediately."""
    groups = []
    for group_id in body.groups:
        if not broker.auth.authorize(request, acls.DESCRIBE, acls.GROUP, group_id):
            groups.append(_DescribedGroup(group_id=group_id, error_code=errors.GroupAuthorizationError.code))
            continue
        described = _describe_classic_group(broker, group_id, request.api_version)
        if body.include_authorized_operations and not described.error_code:
            described.authorized_operations = broker.auth.authorized_operations(request, acls.GROUP, group_id)
        groups.append(described)
    request.respond(DescribeGroupsResponse(groups=groups))


def _describe_classic_group(broker: Broker, group_id: str, version: int) -> _DescribedGroup:
    dead = group_state.DEAD.name
    try:
        group = broker.group_coordinator.describe_group(GroupMetadata, group_id)
    except errors.GroupIdNotFoundError as error:
        if version >= _TELLS_MISSING_GROUP:
            return _DescribedGroup(group_id=group_id, group_state=dead, error_code=error.code, error_message=str(error))
        return _DescribedGroup(group_id=group_id, group_state=dead)
    except errors.BrokerError as error:
        return _DescribedGroup(group_id=group_id, error_code=error.code)
    # Members' metadata is shown only when the protocol is settled.
    protocol = group.protocol_name if group.state is group_state.STABLE else None
    return _DescribedGroup(
        group_id=group_id,
        group_state=group.state.name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=_members(group, protocol),
    )


def _members(group: GroupMetadata, protocol: str | None) -> list[DescribeGroupsResponse.DescribedGroupMember]:
    return [
        DescribeGroupsResponse.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol is None else member.metadata(protocol),
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


# --- ConsumerGroupDescribe -------------------------------------------------------------------------------------------

#: The member type of the consumer protocol.
_CLASSIC_MEMBER: Final = 0

_CONSUMER_MEMBER: Final = 1

_DescribedConsumerGroup = ConsumerGroupDescribeResponse.DescribedGroup


@serves(ApiKeys.CONSUMER_GROUP_DESCRIBE, (0, 1))
def handle_consumer_group_describe(broker: Broker, request: Request, body: ConsumerGroupDescribeRequest) -> None:
    """Respond immediately."""

    def describe(group_id: str) -> tuple[_DescribedConsumerGroup, AbstractSet[str]]:
        group = broker.group_coordinator.describe_group(ConsumerGroup, group_id)
        members = [_member(broker, group, member) for member in group.members.values()]
        described = _DescribedConsumerGroup(
            group_id=group_id,
            group_state=group.state.name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor,
            members=members,
        )
        return described, {name for member in members for name in _topics_of(member)}

    respond_with_groups(broker, request, body, describe)


def respond_with_groups(
    broker: Broker,
    request: Request,
    body: ConsumerGroupDescribeRequest | ShareGroupDescribeRequest,
    describe: Callable[[str], tuple[Any, AbstractSet[str]]],
) -> None:
    """Describe each group. ``describe`` returns its description, and the topics that this description is about."""
    auth = broker.auth
    response_class: Any = ApiKeys.message_class(body.API_KEY, request=False)
    groups = []
    for group_id in body.group_ids:
        try:
            auth.check_group(request, acls.DESCRIBE, group_id)
            described, topics = describe(group_id)
            if auth.filter(request, acls.DESCRIBE, acls.TOPIC, topics) != topics:
                raise errors.TopicAuthorizationError(
                    "The group has described topic(s) that the client is not authorized to describe."
                )
            if body.include_authorized_operations:
                described.authorized_operations = auth.authorized_operations(request, acls.GROUP, group_id)
        except errors.BrokerError as error:
            described = response_class.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=str(error)
            )
        groups.append(described)
    request.respond(response_class(groups=groups))


def _member(broker: Broker, group: ConsumerGroup, member: ConsumerGroupMember) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=assignment_of(broker, ConsumerGroupDescribeResponse, member.current.assigned),
        target_assignment=assignment_of(broker, ConsumerGroupDescribeResponse, group.targets.get(member.member_id, {})),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _topics_of(member: ConsumerGroupDescribeResponse.Member) -> set[str]:
    assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return {*member.subscribed_topic_names, *(topic.topic_name for topic in assigned if topic.topic_name)}


def assignment_of(broker: Broker, response_class: Any, partitions: Partitions) -> Any:
    """Return the assignment of a member, in the classes of a response."""
    return response_class.Assignment(
        topic_partitions=[
            response_class.TopicPartitions(
                topic_id=topic_id,
                topic_name=broker.metadata_cache.topic_name(topic_id) or "",
                partitions=sorted(numbers),
            )
            for topic_id, numbers in partitions.items()
        ]
    )


# --- ListGroups ------------------------------------------------------------------------------------------------------


@serves(ApiKeys.LIST_GROUPS, (0, 5))
def handle_list_groups(broker: Broker, request: Request, body: ListGroupsRequest) -> None:
    """Respond immediately. An empty filter matches everything; filters ignore case."""
    states = {state.lower() for state in body.states_filter}
    types = {type.lower() for type in body.types_filter}
    auth = broker.auth
    sees_all = auth.authorize(request, acls.DESCRIBE, acls.CLUSTER, acls.CLUSTER_NAME)
    groups = [
        ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.name,
            group_type=group.group_type,
        )
        for group in broker.group_coordinator.list_groups()
        if (sees_all or auth.authorize(request, acls.DESCRIBE, acls.GROUP, group.group_id))
        and (not states or group.state.name.lower() in states)
        and (not types or group.group_type in types)
    ]
    request.respond(ListGroupsResponse(groups=groups))


# --- DeleteGroups ----------------------------------------------------------------------------------------------------

Result = DeleteGroupsResponse.DeletableGroupResult


@serves(ApiKeys.DELETE_GROUPS, (0, 2))
def handle_delete_groups(broker: Broker, request: Request, body: DeleteGroupsRequest) -> None:
    """Respond once the tombstones are on all in-sync replicas."""

    def delete(group_id: str, deleted: Callable[[Result], None]) -> None:
        def done(error_code: int) -> None:
            deleted(Result(group_id=group_id, error_code=error_code))

        try:
            broker.auth.check_group(request, acls.DELETE, group_id)
            broker.group_coordinator.delete_group(group_id, done)
        except errors.BrokerError as error:
            done(error.code)

    # A name that occurs twice gets one result.
    names = list(dict.fromkeys(body.groups_names))
    answer_each(names, delete, lambda results: request.respond(DeleteGroupsResponse(results=results)))
