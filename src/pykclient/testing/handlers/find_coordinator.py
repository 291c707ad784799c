"""FindCoordinator: the broker that leads the partition of a group or a transactional id (KIP-98, KIP-699)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from pykclient.errors import BrokerError, CoordinatorNotAvailableError, InvalidRequestError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.testing import acls
from pykclient.topic_names import (
    GROUP_METADATA_TOPIC_NAME,
    SHARE_GROUP_STATE_TOPIC_NAME,
    TRANSACTION_STATE_TOPIC_NAME,
)
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.FIND_COORDINATOR
VERSIONS = (0, 6)

#: From this version on, a request may have several keys.
_BATCHED = 4
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
#: From this version on, there are keys of share partitions.
_WITH_SHARE_PARTITIONS = 6
#: A share partition: a group, a topic id and a partition.
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+", re.DOTALL)

Coordinator = FindCoordinatorResponse.Coordinator


def handle(broker: Broker, request: Request) -> None:
    """Respond immediately. The first request creates the topic; meanwhile clients retry."""
    body = cast(FindCoordinatorRequest, request.body)
    if request.api_version >= _BATCHED:
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
    except BrokerError as error:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=str(error))
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message="")


def _find(broker: Broker, api_version: int, key_type: int, key: str) -> Node:
    if key_type == _GROUP:
        topic, partition = GROUP_METADATA_TOPIC_NAME, broker.group_coordinator.partition_for(key)
    elif key_type == _TRANSACTION:
        topic, partition = TRANSACTION_STATE_TOPIC_NAME, broker.transaction_coordinator.partition_for(key)
    elif key_type == _SHARE:
        if api_version < _WITH_SHARE_PARTITIONS or not _SHARE_KEY.fullmatch(key):
            raise InvalidRequestError(f"{key!r} is not the key of a share partition, group:topic-id:partition")
        topic, partition = SHARE_GROUP_STATE_TOPIC_NAME, broker.share_coordinator.partition_for(key)
    else:
        raise InvalidRequestError(f"there are no coordinators of type {key_type}")
    cache = broker.metadata_cache
    if not cache.contains(topic):
        broker.auto_topic_creation.create_topics([topic])
        raise CoordinatorNotAvailableError(f"{topic} is being created")
    tp = TopicPartition(topic, partition)
    node = cache.snapshot.leader(tp)
    if node is None:
        raise CoordinatorNotAvailableError(f"{tp} has no leader")
    return node


def error_response(body: FindCoordinatorRequest, code: int, message: str | None = None) -> FindCoordinatorResponse:
    """Return the error for each key, or at the top, depending on the version."""
    if body.coordinator_keys:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
                for key in body.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, port=-1)
