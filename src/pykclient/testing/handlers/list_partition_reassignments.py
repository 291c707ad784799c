"""ListPartitionReassignments: the partitions being moved, and their targets (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import NotControllerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pykclient.testing import acls
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.LIST_PARTITION_REASSIGNMENTS
VERSIONS = ListPartitionReassignmentsRequest.VERSIONS

Response = ListPartitionReassignmentsResponse


def handle(broker: Broker, request: Request) -> None:
    """Respond, from the controller."""
    body = cast(ListPartitionReassignmentsRequest, request.body)
    broker.auth.check_cluster(request, acls.DESCRIBE)
    if not broker.controller.is_active:
        raise NotControllerError
    wanted = None
    if body.topics is not None:
        wanted = {TopicPartition(topic.name, index) for topic in body.topics for index in topic.partition_indexes}
    topics: dict[str, Response.OngoingTopicReassignment] = {}
    for (topic, index), assignment in broker.controller.reassigner.in_progress(wanted).items():
        if topic not in topics:
            topics[topic] = Response.OngoingTopicReassignment(name=topic)
        topics[topic].partitions.append(
            Response.OngoingPartitionReassignment(
                partition_index=index,
                replicas=assignment.replicas,
                adding_replicas=assignment.adding_replicas,
                removing_replicas=assignment.removing_replicas,
            )
        )
    request.respond(Response(error_message=None, topics=topics.values()))


def error_response(
    body: ListPartitionReassignmentsRequest,  # noqa: ARG001
    code: int,
    message: str | None = None,
) -> ListPartitionReassignmentsResponse:
    return Response(error_code=code, error_message=message)
