"""ElectLeaders: make preferred replicas leaders, or replicas that are not in sync (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import ElectionNotNeededError, InvalidRequestError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from pykclient.testing import acls
from pykclient.testing.controller.replica_elector import PREFERRED, UNCLEAN
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.controller.partition_reassigner import ApiError
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.ELECT_LEADERS
VERSIONS = ElectLeadersRequest.VERSIONS

_FIRST_VERSION_WITH_ERROR_AT_THE_TOP = 1

Result = ElectLeadersResponse.PartitionResult


def handle(broker: Broker, request: Request) -> None:
    """Respond, from the controller, with the result of each partition."""
    body = cast(ElectLeadersRequest, request.body)
    broker.auth.check_cluster(request, acls.ALTER)
    if body.election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequestError(f"Unknown election type {body.election_type}")

    def respond(code: int, outcomes: Mapping[TopicPartition, ApiError]) -> None:
        if code:
            response = error_response(body, code)
            if request.api_version >= _FIRST_VERSION_WITH_ERROR_AT_THE_TOP:
                response.error_code = code
            request.respond(response)
            return
        results = _results(outcomes)
        if body.topic_partitions is None:
            # If all partitions were requested, only those with an attempted election are reported.
            for topic in results:
                topic.partition_result = [
                    result for result in topic.partition_result if result.error_code != ElectionNotNeededError.code
                ]
        request.respond(ElectLeadersResponse(replica_election_results=results))

    partitions = None
    if body.topic_partitions is not None:
        partitions = [
            TopicPartition(topic.topic, index) for topic in body.topic_partitions for index in topic.partitions
        ]
    broker.controller.elector.elect_leaders(partitions, body.election_type, respond)


def _results(outcomes: Mapping[TopicPartition, ApiError]) -> list[ElectLeadersResponse.ReplicaElectionResult]:
    topics: dict[str, ElectLeadersResponse.ReplicaElectionResult] = {}
    for (topic, index), (code, message) in outcomes.items():
        if topic not in topics:
            topics[topic] = ElectLeadersResponse.ReplicaElectionResult(topic=topic)
        topics[topic].partition_result.append(Result(partition_id=index, error_code=code, error_message=message))
    return list(topics.values())


def error_response(body: ElectLeadersRequest, code: int, message: str | None = None) -> ElectLeadersResponse:
    """Return the error for each partition; at the top if all were requested and the version has a field for it."""
    return ElectLeadersResponse(
        error_code=0 if body.topic_partitions else code,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    Result(partition_id=index, error_code=code, error_message=message) for index in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )
