"""CreatePartitions: add partitions to topics, on the broker that is the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import (
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from pykclient.testing import acls
from pykclient.testing.controller.admin_manager import TopicOutcome

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.CREATE_PARTITIONS
VERSIONS = CreatePartitionsRequest.VERSIONS

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def handle(broker: Broker, request: Request) -> None:
    """Respond once this broker knows leaders for all partitions, or time is up."""
    body = cast(CreatePartitionsRequest, request.body)

    authorized = broker.auth.filter(request, acls.ALTER, acls.TOPIC, (topic.name for topic in body.topics))

    def respond(outcomes: Mapping[str, TopicOutcome]) -> None:
        results = []
        for name, outcome in outcomes.items():
            if outcome.error is None:
                results.append(Result(name=name, error_message=None))
            else:
                # Like Kafka, which has no text for a missing topic.
                unknown = isinstance(outcome.error, UnknownTopicOrPartitionError)
                message = None if unknown else str(outcome.error)
                results.append(Result(name=name, error_code=outcome.error.code, error_message=message))
        results += [
            Result(name=name, error_code=TopicAuthorizationError.code, error_message=None)
            for name in dict.fromkeys(topic.name for topic in body.topics)
            if name not in authorized
        ]
        request.respond(CreatePartitionsResponse(results=results))

    topics = [topic for topic in body.topics if topic.name in authorized]
    broker.controller.admin_manager.create_partitions(body.timeout_ms, body.validate_only, topics, respond)


def error_response(body: CreatePartitionsRequest, code: int, message: str | None = None) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[Result(name=topic.name, error_code=code, error_message=message) for topic in body.topics]
    )
