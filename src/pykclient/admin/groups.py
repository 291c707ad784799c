"""Groups of every type, and their members: the steps of their methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from pykclient import errors
from pykclient.admin import expect
from pykclient.admin.admin_calls import Steps, run
from pykclient.admin.api import (
    GROUP,
    LOADING,
    AdminApiHandler,
    Answers,
    CoordinatorStrategy,
    LookupStrategy,
    VersionedBuilder,
    for_all,
    item_error,
    to_any_broker,
    to_broker,
)
from pykclient.admin.cluster import broker_ids, of_broker
from pykclient.admin.descriptions import GroupDescription, GroupListing, MemberDescription
from pykclient.admin.values import GroupState, GroupType, MemberToRemove, Results, authorized_operations
from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError, RemoteProtocolError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.message import Request
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest
from pykclient.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.protocol.messages.leave_group import LeaveGroupRequest
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from pykclient.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from pykclient.protocol.wire import Reader
from pykclient.types import Node, TopicPartition

_DEAD = "Dead"
#: The reason that a removed member gets, as Java's client gives it.
_DEFAULT_REASON = "member was removed by an admin"
_MAX_REASON = 255
#: The types of members in a response of ConsumerGroupDescribe: classic and consumer.
_IS_UPGRADED = {0: False, 1: True}
Listed = ListGroupsResponse.ListedGroup
Classic = DescribeGroupsResponse.DescribedGroup
Modern = (
    ConsumerGroupDescribeResponse.DescribedGroup
    | ShareGroupDescribeResponse.DescribedGroup
    | StreamsGroupDescribeResponse.DescribedGroup
)


class Described(NamedTuple):
    """A group in a response, and the coordinator that has sent it."""

    coordinator_id: int
    group: Any


def coordinator(coordinator_id: int | None = None, name_of: Callable[[Any], str] = str) -> LookupStrategy[Any]:
    """Return the strategy that finds the coordinators of groups, or uses the one that the application names."""
    return CoordinatorStrategy(GROUP, name_of) if coordinator_id is None else to_broker(coordinator_id)


def find_coordinator(name: str, key_type: int) -> Steps[int]:
    """Return the id of the broker that coordinates a group, or a transactional id (key type 1)."""
    # All brokers answer this version, which is about one key.
    builder = RequestBuilder(FindCoordinatorRequest(key=name, key_type=key_type), max_version=3)
    answers = for_all(lambda response: response.node_id)
    handler: AdminApiHandler[str, int] = AdminApiHandler(
        "find_coordinator", to_any_broker(), builder, answers, retried=LOADING
    )
    return (yield from run(handler, [name]))[name]


# --- listing ---


def list_groups(
    brokers: Sequence[int] | None, states: Sequence[GroupState], types: Sequence[GroupType]
) -> Steps[Results[int, list[Listed]]]:
    """List the groups of the given coordinators (default: all brokers)."""
    request = ListGroupsRequest(
        states_filter=[state.value for state in states], types_filter=[kind.value for kind in types]
    )
    ids = brokers if brokers is not None else (yield from broker_ids())
    answers = for_all(lambda response: response.groups)
    return (yield from run(AdminApiHandler("list_groups", of_broker(), request, answers, retried=LOADING), ids))


# --- describing ---


def _describe(
    groups: Sequence[str], request: Callable[[Sequence[str]], Request | RequestBuilder], coordinator_id: int | None
) -> Steps[Results[str, Described]]:
    def answers(_keys: Sequence[str], response: Any) -> Answers[str]:
        for group in response.groups:
            yield group.group_id, item_error(group), Described(handler.destination, group)

    handler: AdminApiHandler[str, Described] = AdminApiHandler(
        "describe_groups", coordinator(coordinator_id), lambda keys, _timeout_ms: request(keys), answers
    )
    return run(handler, groups)


def describe_classic_groups(groups: Sequence[str], coordinator_id: int | None = None) -> Steps[Results[str, Described]]:
    """Describe groups of the classic protocol. A group that does not exist has the state Dead or an error."""

    def request(keys: Sequence[str]) -> RequestBuilder:
        return VersionedBuilder(
            DescribeGroupsRequest(),
            lambda version: DescribeGroupsRequest(groups=keys, include_authorized_operations=version >= 3),
        )

    return _describe(groups, request, coordinator_id)


def _describe_modern(groups: Sequence[str], kind: GroupType) -> Steps[Results[str, Described]]:
    request = _MODERN[kind]
    return _describe(groups, lambda keys: request(group_ids=keys, include_authorized_operations=True), None)


#: How groups are described that are not classic: of the consumer protocol (KIP-848), share groups (KIP-932), and
#: streams groups (KIP-1071).
_MODERN: Final[dict[GroupType, Callable[..., Request]]] = {
    GroupType.CONSUMER: ConsumerGroupDescribeRequest,
    GroupType.SHARE: ShareGroupDescribeRequest,
    GroupType.STREAMS: StreamsGroupDescribeRequest,
}
#: The order in which ``describe_groups`` asks for groups of each type.
_TYPES: Final = (GroupType.CONSUMER, GroupType.CLASSIC, GroupType.SHARE, GroupType.STREAMS)


def describe_groups(groups: Sequence[str]) -> Steps[Results[str, GroupDescription]]:
    """Describe groups of any type.

    A group is looked for among those of the consumer protocol, then among the classic ones, share groups and streams
    groups.
    """
    client = yield None
    results: Results[str, GroupDescription] = Results()
    left = list(groups)
    for kind in _TYPES:
        described = yield from (
            describe_classic_groups(left) if kind is GroupType.CLASSIC else _describe_modern(left, kind)
        )
        left = _not_of_this_type(described)
        results.failed.update({name: error for name, error in described.failed.items() if name not in left})
        for name, (coordinator_id, group) in described.succeeded.items():
            if group.group_state == _DEAD and kind is GroupType.CLASSIC:
                left.append(name)  # how brokers before Kafka 4.0 say that there is no such group
                continue
            description = _classic_description(group) if kind is GroupType.CLASSIC else _modern_description(group, kind)
            node = client.metadata.fetch().node_by_id(coordinator_id)
            results.succeeded[name] = description._replace(coordinator=node)
    for name in left:
        results.failed[name] = errors.GroupIdNotFoundError(f"group {name!r} does not exist")
    return results


def _not_of_this_type(results: Results[str, Any]) -> list[str]:
    other = (errors.GroupIdNotFoundError, UnsupportedVersionError)
    return [name for name, error in results.failed.items() if isinstance(error, other)]


def _modern_description(group: Modern, kind: GroupType) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        kind,
        group_state(group.group_state),
        kind.value,
        getattr(group, "assignor_name", ""),
        tuple(
            _streams_member(group, member) if kind is GroupType.STREAMS else _modern_member(member)
            for member in group.members
        ),
        authorized_operations(group.authorized_operations),
        group.group_epoch,
        group.assignment_epoch,
    )


def _modern_member(member: Any) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        getattr(member, "instance_id", None),
        member.client_id,
        member.client_host,
        member.rack_id,
        tuple(member.subscribed_topic_names or ()),
        _assigned(member.assignment),
        _assigned(member.target_assignment) if hasattr(member, "target_assignment") else None,
        member.member_epoch,
        _IS_UPGRADED.get(getattr(member, "member_type", -1)),
    )


def _streams_member(group: Any, member: Any) -> MemberDescription:
    """Return a member of a streams group, which has tasks of subtopologies instead of partitions."""
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rack_id,
        tuple(topic for subtopology in subtopologies for topic in subtopology.source_topics),
        frozenset(),
        frozenset(),
        member.member_epoch,
    )


def _assigned(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_description(group: Classic) -> GroupDescription:
    members = []
    for member in group.members:
        subscription, assignment = decoded(member.member_metadata, member.member_assignment, group.protocol_type)
        members.append(
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                None if subscription is None else subscription.rack_id or None,
                () if subscription is None else tuple(subscription.topics),
                frozenset(
                    TopicPartition(topic.topic, partition)
                    for topic in (() if assignment is None else assignment.assigned_partitions)
                    for partition in topic.partitions
                ),
                None,
                None,
            )
        )
    return GroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        group_state(group.group_state),
        group.protocol_type,
        group.protocol_data,
        tuple(members),
        authorized_operations(group.authorized_operations),
        None,
        None,
    )


def group_state(name: str) -> GroupState:
    """Return the state that a coordinator names, UNKNOWN for one that this client does not know."""
    return next((state for state in GroupState if state.value.lower() == name.lower()), GroupState.UNKNOWN)


def decoded(
    metadata: Any, assignment: Any, protocol_type: str = "consumer"
) -> tuple[ConsumerProtocolSubscription | None, ConsumerProtocolAssignment | None]:
    """Return a member's subscription and assignment; None if empty or not of the consumer protocol."""
    if protocol_type != "consumer":
        return None, None
    return _read(ConsumerProtocolSubscription, metadata), _read(ConsumerProtocolAssignment, assignment)


def _read(kind: Any, content: Any) -> Any:
    if not content:
        return None
    try:
        reader = Reader(content)
        version = min(reader.int16(), kind.VERSIONS[1])
        return kind.read(reader, version)
    except (RemoteProtocolError, UnsupportedVersionError):
        return None  # of another kind of member


def group_listing(group: Listed) -> GroupListing:
    """Return a group of a response as the typed result."""
    kind = next((kind for kind in GroupType if kind.value.lower() == group.group_type.lower()), GroupType.UNKNOWN)
    return GroupListing(group.group_id, group.protocol_type, group_state(group.group_state), kind)


# --- deleting ---


def delete_groups(groups: Sequence[str], coordinator_id: int | None = None) -> Steps[Results[str, None]]:
    """Delete groups without members, with their offsets.

    A group that an earlier attempt of this call may have deleted, and that is gone, counts as deleted.
    """

    def answers(_keys: Sequence[str], response: Any) -> Answers[str]:
        for result in response.results:
            error = item_error(result)
            if isinstance(error, errors.GroupIdNotFoundError) and result.group_id in handler.uncertain:
                error = None
            yield result.group_id, error, None

    handler: AdminApiHandler[str, None] = AdminApiHandler(
        "delete_groups",
        coordinator(coordinator_id),
        lambda keys, _timeout_ms: DeleteGroupsRequest(groups_names=keys),
        answers,
    )
    return run(handler, groups)


# --- members ---


def remove_members(
    group: str, members: Sequence[MemberToRemove], coordinator_id: int | None = None
) -> Steps[Results[MemberToRemove, None]]:
    """Remove members from a group of the classic protocol, several at once (KIP-345)."""

    def request(keys: Sequence[MemberToRemove], _timeout_ms: int) -> RequestBuilder:
        def of_version(version: int) -> LeaveGroupRequest:
            return LeaveGroupRequest(
                group_id=group,
                members=[
                    LeaveGroupRequest.MemberIdentity(
                        member_id=member.member_id or "",
                        group_instance_id=member.group_instance_id,
                        reason=(member.reason or _DEFAULT_REASON)[:_MAX_REASON] if version >= 5 else None,
                    )
                    for member in keys
                ],
            )

        return VersionedBuilder(LeaveGroupRequest(), of_version, min_version=3)

    def answers(keys: Sequence[MemberToRemove], response: Any) -> Answers[MemberToRemove]:
        told = {(member.member_id, member.group_instance_id): item_error(member) for member in response.members}
        told.update({(None, instance): error for (_, instance), error in told.items() if instance is not None})
        told.update({(member_id, None): error for (member_id, _), error in list(told.items()) if member_id})
        for key in keys:  # each is identified by whichever id it was given
            by = (None, key.group_instance_id) if key.group_instance_id is not None else (key.member_id, None)
            if by in told:
                error = told[by]
                is_removed = isinstance(error, errors.UnknownMemberIdError) and key in handler.uncertain
                yield key, None if is_removed else error, None  # by an earlier attempt

    handler: AdminApiHandler[MemberToRemove, None] = AdminApiHandler(
        "remove_group_members", coordinator(coordinator_id, lambda _: group), request, answers
    )
    return run(handler, members)


def remove_all_members(group: str) -> Steps[Results[MemberToRemove, None]]:
    """Remove all current members of a group.

    Raises:
        KafkaError: the group cannot be described.
    """
    described = (yield from describe_groups([group]))[group]
    members = [
        MemberToRemove(group_instance_id=member.group_instance_id)
        if member.group_instance_id is not None
        else MemberToRemove(member_id=member.member_id)
        for member in described.members
    ]
    return (yield from remove_members(group, members))


def members_to_remove(values: object) -> list[MemberToRemove]:
    """Return a list of members, each once.

    Raises:
        IllegalArgumentError: one of them is no MemberToRemove, or has no id.
    """
    found = expect.items(values, "members", "MemberToRemove")
    for index, member in enumerate(found):
        if not isinstance(member, MemberToRemove):
            raise IllegalArgumentError(f"members[{index}] is {shown(member)}; it must be a MemberToRemove")
        for value in (member.member_id, member.group_instance_id, member.reason):
            expect.optional_text(value, f"an id or reason of members[{index}]")
        if not member.member_id and member.group_instance_id is None:
            raise IllegalArgumentError(f"members[{index}] has neither a member_id nor a group_instance_id")
    return list(dict.fromkeys(found))


class TopicInfo(NamedTuple):
    """An internal topic of a subtopology, as the application configured it. ``partitions`` is 0 if unset."""

    partitions: int
    replication_factor: int
    topic_configs: dict[str, str]


class StreamsGroupSubtopologyDescription(NamedTuple):
    """A subtopology. ``state_changelog_topics`` and ``repartition_source_topics`` are by name."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: dict[str, TopicInfo]
    repartition_source_topics: dict[str, TopicInfo]


class TaskIds(NamedTuple):
    """Tasks of one subtopology: one for each partition."""

    subtopology_id: str
    partitions: tuple[int, ...]


class StreamsGroupMemberAssignment(NamedTuple):
    """The tasks of a member: active, standby and warm-up tasks."""

    active_tasks: tuple[TaskIds, ...]
    standby_tasks: tuple[TaskIds, ...]
    warmup_tasks: tuple[TaskIds, ...]


class TaskOffset(NamedTuple):
    """The offset of a task in its changelog topic."""

    subtopology_id: str
    partition: int
    offset: int


class Endpoint(NamedTuple):
    """The address at which a member answers queries (``application.server``)."""

    host: str
    port: int


class StreamsGroupMemberDescription(NamedTuple):
    """A member of a streams group. ``is_classic`` is True while it still uses the classic protocol."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: dict[str, str]
    task_offsets: tuple[TaskOffset, ...]
    task_end_offsets: tuple[TaskOffset, ...]
    assignment: StreamsGroupMemberAssignment
    target_assignment: StreamsGroupMemberAssignment
    is_classic: bool


class StreamsGroupDescription(NamedTuple):
    """A streams group. ``topology_epoch`` is None while the group has no topology."""

    group_id: str
    group_epoch: int
    target_assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[StreamsGroupSubtopologyDescription, ...]
    members: tuple[StreamsGroupMemberDescription, ...]
    group_state: GroupState
    coordinator: Node | None
    authorized_operations: list[str] | None


def describe_streams_groups(groups: Sequence[str]) -> Steps[Results[str, StreamsGroupDescription]]:
    """Describe streams groups."""
    client = yield None
    described = yield from _describe_modern(groups, GroupType.STREAMS)
    return described.map(lambda it: _description(it.group, client.metadata.fetch().node_by_id(it.coordinator_id)))


def _description(group: Any, coordinator: Node | None) -> StreamsGroupDescription:
    topology = group.topology
    return StreamsGroupDescription(
        group.group_id,
        group.group_epoch,
        group.assignment_epoch,
        None if topology is None else topology.epoch,
        tuple(_subtopology(one) for one in (() if topology is None else topology.subtopologies or ())),
        tuple(_member(member) for member in group.members),
        group_state(group.group_state),
        coordinator,
        authorized_operations(group.authorized_operations),
    )


def _subtopology(found: Any) -> StreamsGroupSubtopologyDescription:
    return StreamsGroupSubtopologyDescription(
        found.subtopology_id,
        tuple(found.source_topics),
        tuple(found.repartition_sink_topics),
        _topics(found.state_changelog_topics),
        _topics(found.repartition_source_topics),
    )


def _topics(found: Iterable[Any]) -> dict[str, TopicInfo]:
    return {
        topic.name: TopicInfo(topic.partitions, topic.replication_factor, _pairs(topic.topic_configs))
        for topic in found
    }


def _pairs(found: Iterable[Any]) -> dict[str, str]:
    return {pair.key: pair.value for pair in found}


def _member(found: Any) -> StreamsGroupMemberDescription:
    endpoint = found.user_endpoint
    return StreamsGroupMemberDescription(
        found.member_id,
        found.member_epoch,
        found.instance_id,
        found.rack_id,
        found.client_id,
        found.client_host,
        found.topology_epoch,
        found.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        _pairs(found.client_tags),
        _offsets(found.task_offsets),
        _offsets(found.task_end_offsets),
        _assignment(found.assignment),
        _assignment(found.target_assignment),
        found.is_classic,
    )


def _offsets(found: Iterable[Any]) -> tuple[TaskOffset, ...]:
    return tuple(TaskOffset(task.subtopology_id, task.partition, task.offset) for task in found)


def _assignment(found: Any) -> StreamsGroupMemberAssignment:
    return StreamsGroupMemberAssignment(
        _tasks(found.active_tasks), _tasks(found.standby_tasks), _tasks(found.warmup_tasks)
    )


def _tasks(found: Iterable[Any]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(tasks.subtopology_id, tuple(tasks.partitions)) for tasks in found)
