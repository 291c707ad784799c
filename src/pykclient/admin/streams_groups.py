"""Groups of Kafka Streams' own protocol (KIP-1071): their topologies, members and tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pykclient.admin.groups import describe_streams_groups, group_state
from pykclient.admin.operation import CallContext, Operation
from pykclient.admin.results import Results
from pykclient.admin.values import GroupState, authorized_operations
from pykclient.types import Node


class TopicInfo(NamedTuple):
    """An internal topic of a subtopology, as the application wants it. ``partitions`` is 0 if it does not say."""

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
    """The tasks of a member: active ones, standby ones, and those that it warms up."""

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


def describe(context: CallContext, groups: Sequence[str]) -> Operation[Results[str, StreamsGroupDescription]]:
    """Describe streams groups."""
    described = yield from describe_streams_groups(context, groups)
    return described.map(lambda it: _description(it.group, context.metadata.fetch().node_by_id(it.coordinator_id)))


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
