"""DeleteTopics: delete topics by name or id, on the broker that is the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pykclient.errors import (
    BrokerError,
    InvalidRequestError,
    TopicAuthorizationError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls
from pykclient.testing.controller.admin_manager import TopicOutcome

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DELETE_TOPICS
VERSIONS = (0, 6)

#: Earlier versions have no error code for it.
_FIRST_VERSION_WITH_DELETION_DISABLED = 3

Result = DeleteTopicsResponse.DeletableTopicResult


def handle(broker: Broker, request: Request) -> None:
    """Respond once the topics are completely deleted, or time is up."""
    body = cast(DeleteTopicsRequest, request.body)
    states = body.topics or [DeleteTopicsRequest.DeleteTopicState(name=name) for name in body.topic_names]
    auth = broker.auth
    results: list[Result] = []
    ids = {}
    for index, state in enumerate(states):
        if state in states[:index]:
            continue  # the first occurrence was rejected for both
        try:
            name = _name(broker, state, states)
            auth.check_topic(request, acls.DELETE, name)
            ids[name] = state.topic_id
        except TopicAuthorizationError as error:
            # By id, the response does not tell the name of a topic that the client may not describe.
            may_see = state.name is not None or auth.authorize(request, acls.DESCRIBE, acls.TOPIC, name)
            results.append(_failed(name if may_see else None, error, state))
        except BrokerError as error:
            results.append(_failed(state.name, error, state))

    def respond(outcomes: Mapping[str, TopicOutcome]) -> None:
        for name, outcome in outcomes.items():
            error = outcome.error
            if error is None:
                results.append(Result(name=name, topic_id=outcome.topic_id))
                continue
            is_old = request.api_version < _FIRST_VERSION_WITH_DELETION_DISABLED
            if is_old and isinstance(error, TopicDeletionDisabledError):
                error = InvalidRequestError("Topic deletion is disabled.")
            results.append(_failed(name, error, DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ids[name])))
        request.respond(DeleteTopicsResponse(responses=results))

    broker.controller.admin_manager.delete_topics(body.timeout_ms, list(ids), respond)


def _name(
    broker: Broker, state: DeleteTopicsRequest.DeleteTopicState, states: list[DeleteTopicsRequest.DeleteTopicState]
) -> str:
    """Return the topic's name.

    Raises:
        InvalidRequestError, UnknownTopicIdError: the request is contradictory, or the id is unknown.
    """
    if states.count(state) > 1:
        kind = "name" if state.name is not None else "id"
        raise InvalidRequestError(f"Duplicate topic {kind}.")
    if state.name is not None:
        if state.topic_id != ZERO_UUID:
            raise InvalidRequestError("You may not specify both topic name and topic id.")
        return state.name
    if state.topic_id == ZERO_UUID:
        raise InvalidRequestError("Neither topic name nor id were specified.")
    name = broker.metadata_cache.topic_name(state.topic_id)
    if name is None:
        raise UnknownTopicIdError("This server does not host this topic ID.")
    return name


def _failed(name: str | None, error: BrokerError, state: DeleteTopicsRequest.DeleteTopicState) -> Result:
    return Result(name=name, topic_id=state.topic_id, error_code=error.code, error_message=str(error))


def error_response(body: DeleteTopicsRequest, code: int, message: str | None = None) -> DeleteTopicsResponse:
    states = body.topics or [DeleteTopicsRequest.DeleteTopicState(name=name) for name in body.topic_names]
    return DeleteTopicsResponse(
        responses=[
            Result(name=state.name, topic_id=state.topic_id, error_code=code, error_message=message) for state in states
        ]
    )
