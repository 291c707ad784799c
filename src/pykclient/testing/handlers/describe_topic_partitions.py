"""DescribeTopicPartitions: topics page by page, so that large ones fit into responses (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient import topic_names
from pykclient.errors import (
    InvalidRequestError,
    InvalidTopicError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.metadata_cache import MetadataSnapshot, PartitionState
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = DescribeTopicPartitionsRequest.VERSIONS

#: Kafka's max.request.partition.size.limit.
_MAX_PARTITIONS: Final = 2000

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(broker: Broker, request: Request) -> None:
    """Respond with a page in the order of the topics' names, and the start of the next one."""
    body = cast(DescribeTopicPartitionsRequest, request.body)
    snapshot = broker.metadata_cache.snapshot
    response = DescribeTopicPartitionsResponse()
    remaining = max(min(_MAX_PARTITIONS, body.response_partition_limit), 1)
    first_topic = body.cursor.topic_name if body.cursor is not None else ""
    denied = []
    for name in _names(snapshot, body):
        if not broker.auth.authorize(request, acls.DESCRIBE, acls.TOPIC, name):
            if body.topics:
                denied.append(Topic(error_code=TopicAuthorizationError.code, name=name))
            continue
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        states = snapshot.partition_states.get(name)
        if states is None:
            if body.topics:
                operations = broker.auth.authorized_operations(request, acls.TOPIC, name)
                response.topics.append(_missing(name, operations))
            continue
        start = body.cursor.partition_index if body.cursor is not None and name == first_topic else 0
        end = min(len(states), start + remaining)
        partitions = [_partition(snapshot, states[index]) for index in range(start, end) if index in states]
        response.topics.append(
            Topic(
                name=name,
                topic_id=snapshot.topic_ids.get(name, ZERO_UUID),
                is_internal=topic_names.is_internal(name),
                partitions=partitions,
                topic_authorized_operations=broker.auth.authorized_operations(request, acls.TOPIC, name),
            )
        )
        if end < len(states):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        remaining -= len(partitions)
    response.topics += denied
    request.respond(response)


def _names(snapshot: MetadataSnapshot, body: DescribeTopicPartitionsRequest) -> list[str]:
    """Return the requested topics from the cursor on.

    Raises:
        InvalidRequestError: the cursor is not among the requested topics.
    """
    cursor = body.cursor
    wanted = {topic.name for topic in body.topics} if body.topics else set(snapshot.partition_states)
    if cursor is None:
        return sorted(wanted)
    if body.topics and cursor.topic_name not in wanted:
        raise InvalidRequestError(
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
        )
    if cursor.partition_index < 0:
        raise InvalidRequestError(f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor}")
    return sorted(name for name in wanted if name >= cursor.topic_name)


def _missing(name: str, authorized_operations: int) -> Topic:
    error = UnknownTopicOrPartitionError if topic_names.is_valid(name) else InvalidTopicError
    return Topic(
        error_code=error.code,
        name=name,
        is_internal=topic_names.is_internal(name),
        topic_authorized_operations=authorized_operations,
    )


def _partition(snapshot: MetadataSnapshot, state: PartitionState) -> Partition:
    return Partition(
        partition_index=state.partition_index,
        leader_id=state.leader if state.leader in snapshot.alive_brokers else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=state.offline_replicas,
    )


def error_response(
    body: DescribeTopicPartitionsRequest,
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[Topic(error_code=code, name=topic.name) for topic in body.topics])
