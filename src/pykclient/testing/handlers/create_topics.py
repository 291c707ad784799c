"""CreateTopics: with partition counts or explicit assignments, on the broker that is the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import TopicAuthorizationError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.testing import acls
from pykclient.testing.controller.admin_manager import TopicOutcome
from pykclient.testing.controller.config_manager import topic_entries

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.CREATE_TOPICS
VERSIONS = (0, 7)

_FIRST_VERSION_WITH_CONFIGS = 5

Result = CreateTopicsResponse.CreatableTopicResult


def handle(broker: Broker, request: Request) -> None:
    """Respond once this broker knows leaders for all partitions, or time is up."""
    body = cast(CreateTopicsRequest, request.body)
    auth = broker.auth
    names = {topic.name for topic in body.topics}
    authorized = names
    if not auth.authorize(request, acls.CREATE, acls.CLUSTER, acls.CLUSTER_NAME):
        authorized = auth.filter(request, acls.CREATE, acls.TOPIC, names)

    def respond(outcomes: Mapping[str, TopicOutcome]) -> None:
        results = [_result(broker, request, name, outcome) for name, outcome in outcomes.items()]
        request.respond(CreateTopicsResponse(topics=results))

    denied = {name: TopicOutcome(TopicAuthorizationError("Authorization failed.")) for name in names - authorized}
    topics = [topic for topic in body.topics if topic.name in authorized]
    broker.controller.admin_manager.create_topics(
        body.timeout_ms, body.validate_only, topics, lambda outcomes: respond({**outcomes, **denied})
    )


def _result(broker: Broker, request: Request, name: str, outcome: TopicOutcome) -> Result:
    if outcome.error is not None:
        return Result(name=name, error_code=outcome.error.code, error_message=str(outcome.error))
    result = Result(name=name, topic_id=outcome.topic_id, error_message=None)
    if not broker.auth.authorize(request, acls.DESCRIBE_CONFIGS, acls.TOPIC, name):
        result.num_partitions = result.replication_factor = -1
        if request.api_version >= _FIRST_VERSION_WITH_CONFIGS:
            result.topic_config_error_code = TopicAuthorizationError.code
            result.configs = None
        return result
    result.num_partitions = outcome.num_partitions
    result.replication_factor = outcome.replication_factor
    if request.api_version >= _FIRST_VERSION_WITH_CONFIGS:
        result.configs = [
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.config_source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_entries(broker.config, outcome.config or {})
        ]
    return result


def error_response(body: CreateTopicsRequest, code: int, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[Result(name=topic.name, error_code=code, error_message=message) for topic in body.topics]
    )
