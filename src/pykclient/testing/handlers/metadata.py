"""Metadata: brokers, topics and their leaders. A request for a topic can create it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from pykclient import topic_names
from pykclient.errors import (
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ReplicaNotAvailableError,
    TopicAuthorizationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.metadata_cache import MetadataSnapshot, PartitionState
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.METADATA
VERSIONS = MetadataRequest.VERSIONS

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 12


def handle(broker: Broker, request: Request) -> None:
    """Respond with this broker's knowledge, which may be outdated."""
    body = cast(MetadataRequest, request.body)
    version = request.api_version
    snapshot = broker.metadata_cache.snapshot
    auth = broker.auth
    topics = _topics(broker, request, snapshot, body)
    if version >= 8 and body.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and topic.error_code != TopicAuthorizationError.code:
                topic.topic_authorized_operations = auth.authorized_operations(request, acls.TOPIC, topic.name)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in map(request.advertised, snapshot.alive_brokers.values())
        ],
        cluster_id=broker.cluster_id,
        controller_id=-1 if snapshot.controller_id is None else snapshot.controller_id,
        topics=topics,
    )
    if 8 <= version <= 10 and body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_authorized_operations(broker, request)
    request.respond(response)


def cluster_authorized_operations(broker: Broker, request: Request) -> int:
    """Return the allowed operations on the cluster, for clients that may describe it."""
    if not broker.auth.authorize(request, acls.DESCRIBE, acls.CLUSTER, acls.CLUSTER_NAME):
        return 0
    return broker.auth.authorized_operations(request, acls.CLUSTER)


def _topics(broker: Broker, request: Request, snapshot: MetadataSnapshot, body: MetadataRequest) -> list[Topic]:
    version = request.api_version
    auth = broker.auth
    # Version 0 has no null, so an empty list means all topics.
    if body.topics is None or (version == 0 and not body.topics):
        names = auth.filter(request, acls.DESCRIBE, acls.TOPIC, snapshot.partition_states)
        return [_topic(snapshot, topic, version) for topic in snapshot.partition_states if topic in names]
    for wanted in body.topics:
        if wanted.name is None and version < _FIRST_VERSION_WITH_TOPIC_IDS:
            raise InvalidRequestError(f"Topic name can not be null for version {version}")
        if wanted.topic_id != ZERO_UUID and version < _FIRST_VERSION_WITH_TOPIC_IDS:
            raise InvalidRequestError(f"Topic IDs are not supported in requests for version {version}")
    ids = [wanted.topic_id for wanted in body.topics if wanted.topic_id != ZERO_UUID]
    if ids:
        return [_topic_of_id(broker, request, snapshot, topic_id) for topic_id in dict.fromkeys(ids)]
    wanted_names = dict.fromkeys(wanted.name for wanted in body.topics if wanted.name is not None)
    # The response does not tell whether a topic exists that the client may not describe.
    denied = [name for name in wanted_names if not auth.authorize(request, acls.DESCRIBE, acls.TOPIC, name)]
    rest = [name for name in wanted_names if name not in denied]
    found = [_topic(snapshot, name, version) for name in rest if name in snapshot.partition_states]
    missing = [name for name in rest if name not in snapshot.partition_states]
    if missing and body.allow_auto_topic_creation and broker.config.get_bool("auto.create.topics.enable"):
        creatable = missing
        if not auth.authorize(request, acls.CREATE, acls.CLUSTER, acls.CLUSTER_NAME):
            creatable = [name for name in missing if auth.authorize(request, acls.CREATE, acls.TOPIC, name)]
            denied += [name for name in missing if name not in creatable]
        if creatable:
            found += broker.auto_topic_creation.create_topics(creatable)
    else:
        found += [_missing(name) for name in missing]
    return found + [Topic(error_code=TopicAuthorizationError.code, name=name) for name in denied]


def _topic_of_id(broker: Broker, request: Request, snapshot: MetadataSnapshot, topic_id: UUID) -> Topic:
    name = snapshot.topic_names.get(topic_id)
    if name is None:
        return Topic(error_code=UnknownTopicIdError.code, name=None, topic_id=topic_id)
    if not broker.auth.authorize(request, acls.DESCRIBE, acls.TOPIC, name):
        return Topic(error_code=TopicAuthorizationError.code, name=None, topic_id=topic_id)
    return _topic(snapshot, name, request.api_version)


def _missing(name: str) -> Topic:
    error = UnknownTopicOrPartitionError if topic_names.is_valid(name) else InvalidTopicError
    return Topic(error_code=error.code, name=name, is_internal=topic_names.is_internal(name))


def _topic(snapshot: MetadataSnapshot, name: str, version: int) -> Topic:
    return Topic(
        name=name,
        topic_id=snapshot.topic_ids.get(name, ZERO_UUID),
        is_internal=topic_names.is_internal(name),
        partitions=[_partition(snapshot, state, version) for state in snapshot.partition_states[name].values()],
    )


def _partition(snapshot: MetadataSnapshot, state: PartitionState, version: int) -> Partition:
    alive = snapshot.alive_brokers
    replicas: Sequence[int] = state.replicas
    isr: Sequence[int] = state.isr
    code = 0
    if version == 0:
        # Only that version hides brokers that are down, and reports an error.
        replicas = [id for id in replicas if id in alive]
        isr = [id for id in isr if id in alive]
        if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            code = ReplicaNotAvailableError.code
    leader = state.leader
    if leader not in alive:
        leader = -1
        code = LeaderNotAvailableError.code
    return Partition(
        error_code=code,
        partition_index=state.partition_index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=state.offline_replicas,
    )


def error_response(body: MetadataRequest, code: int, message: str | None = None) -> MetadataResponse:  # noqa: ARG001
    """Return the error for each requested topic; the newest version also has it at the top."""
    return MetadataResponse(
        error_code=code,
        topics=[Topic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in body.topics or ()],
    )
