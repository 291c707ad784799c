"""The cluster: ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster, and the telemetry of clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from uuid import UUID

from pykclient import errors, topic_names
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from pykclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.handlers import ApiVersionManager, serves
from pykclient.testing.inter_broker_requests import missing_topic, missing_topic_code
from pykclient.testing.metadata_cache import MetadataSnapshot, PartitionState
from pykclient.testing.release_profiles import SUPPORTED_FEATURES, FinalizedFeatures
from pykclient.testing.request_channel import Request
from pykclient.testing.telemetry import ACCEPTED, MAX_BYTES, TelemetryReceiver

# --- ApiVersions -----------------------------------------------------------------------------------------------------

_TELEMETRY: Final = (ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, ApiKeys.PUSH_TELEMETRY)

_FIRST_WITH_SOFTWARE_NAME: Final = 3

_FIRST_WITH_FEATURES: Final = 3

_FIRST_WITH_LEVEL_0: Final = 4

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@serves(ApiKeys.API_VERSIONS, (0, 4))
def handle_api_versions(broker: Broker, request: Request, body: ApiVersionsRequest) -> None:
    if request.api_version >= _FIRST_WITH_SOFTWARE_NAME:
        for given in (body.client_software_name, body.client_software_version):
            if not _SOFTWARE_NAME.fullmatch(given):
                raise errors.InvalidRequestError(f"a client's software cannot be called {given!r}")
    # Brokers without a plug-in that receives metrics do not offer telemetry.
    response = api_versions_response(ApiVersionManager.of(broker), broker.cluster.telemetry is not None)
    if request.api_version >= _FIRST_WITH_FEATURES and broker.profile.has_features:
        _add_features(response, broker.features, request.api_version)
    request.respond(response)


def api_versions_response(manager: ApiVersionManager, has_telemetry: bool = True) -> ApiVersionsResponse:
    """Return the response with all versions that clients can use, with or without those of telemetry."""
    versions = manager.all_versions()
    # Some releases of librdkafka disable codecs, or fail, if version 0 is not listed. It is not served. Kafka 4 does
    # the same (KAFKA-18659).
    versions[ApiKeys.PRODUCE] = (0, versions[ApiKeys.PRODUCE][1])
    if not has_telemetry:
        for api_key in _TELEMETRY:
            versions.pop(api_key, None)
    return ApiVersionsResponse(api_keys=_api_keys(tuple(versions.items())))


@lru_cache(maxsize=32)
def _api_keys(versions: tuple[tuple[int, tuple[int, int]], ...]) -> tuple[ApiVersionsResponse.ApiVersion, ...]:
    """Return the entries of a response. Brokers share them, as each connection asks for them."""
    return tuple(
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
        for key, (oldest, newest) in versions
    )


def _add_features(response: ApiVersionsResponse, features: FinalizedFeatures, version: int) -> None:
    if version >= _FIRST_WITH_LEVEL_0:  # earlier clients do not accept a minimum of 0 (KAFKA-17011)
        response.supported_features = [
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=highest)
            for name, highest in SUPPORTED_FEATURES.items()
        ]
    response.finalized_features_epoch = features.epoch
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in features.levels.items()
    ]


def unsupported_version_response(versions: ApiVersionManager) -> ApiVersionsResponse:
    """Return the response, always in version 0, to a request in an unsupported version."""
    served = versions.versions(ApiKeys.API_VERSIONS)
    response = ApiVersionsResponse(error_code=errors.UnsupportedVersionError.code)
    # Releases before 2.4 do not list their versions in this response; clients then try version 0.
    if served is not None and served[1] >= _FIRST_WITH_SOFTWARE_NAME:
        response.api_keys.append(
            ApiVersionsResponse.ApiVersion(api_key=ApiKeys.API_VERSIONS, min_version=served[0], max_version=served[1])
        )
    return response


# --- Metadata --------------------------------------------------------------------------------------------------------

_MetadataTopic = MetadataResponse.MetadataResponseTopic

_MetadataPartition = MetadataResponse.MetadataResponsePartition

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 12


@serves(ApiKeys.METADATA, MetadataRequest.VERSIONS, everywhere=True)
def handle_metadata(broker: Broker, request: Request, body: MetadataRequest) -> None:
    """Respond with this broker's metadata, which may be outdated."""
    version = request.api_version
    snapshot = broker.metadata_cache.snapshot
    auth = broker.auth
    topics = _topics(broker, request, snapshot, body)
    if version >= 8 and body.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and topic.error_code != errors.TopicAuthorizationError.code:
                topic.topic_authorized_operations = auth.authorized_operations(request, acls.TOPIC, topic.name)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in map(request.advertised, snapshot.alive_brokers.values())
        ],
        cluster_id=broker.cluster.config.cluster_id,
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


def _topics(
    broker: Broker, request: Request, snapshot: MetadataSnapshot, body: MetadataRequest
) -> list[_MetadataTopic]:
    version = request.api_version
    auth = broker.auth
    # Version 0 has no null, so an empty list means all topics.
    if body.topics is None or (version == 0 and not body.topics):
        names = auth.filter(request, acls.DESCRIBE, acls.TOPIC, snapshot.partition_states)
        return [_topic(snapshot, topic, version) for topic in snapshot.partition_states if topic in names]
    for wanted in body.topics:
        if wanted.name is None and version < _FIRST_VERSION_WITH_TOPIC_IDS:
            raise errors.InvalidRequestError(f"Topic name can not be null for version {version}")
        if wanted.topic_id != ZERO_UUID and version < _FIRST_VERSION_WITH_TOPIC_IDS:
            raise errors.InvalidRequestError(f"Topic IDs are not supported in requests for version {version}")
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
        found += [missing_topic(name) for name in missing]
    return found + [_MetadataTopic(error_code=errors.TopicAuthorizationError.code, name=name) for name in denied]


def _topic_of_id(broker: Broker, request: Request, snapshot: MetadataSnapshot, topic_id: UUID) -> _MetadataTopic:
    name = snapshot.topic_names.get(topic_id)
    if name is None:
        return _MetadataTopic(error_code=errors.UnknownTopicIdError.code, name=None, topic_id=topic_id)
    if not broker.auth.authorize(request, acls.DESCRIBE, acls.TOPIC, name):
        return _MetadataTopic(error_code=errors.TopicAuthorizationError.code, name=None, topic_id=topic_id)
    return _topic(snapshot, name, request.api_version)


def _topic(snapshot: MetadataSnapshot, name: str, version: int) -> _MetadataTopic:
    return _MetadataTopic(
        name=name,
        topic_id=snapshot.topic_ids.get(name, ZERO_UUID),
        is_internal=topic_names.is_internal(name),
        partitions=[
            _metadata_partition(snapshot, state, version) for state in snapshot.partition_states[name].values()
        ],
    )


def _metadata_partition(snapshot: MetadataSnapshot, state: PartitionState, version: int) -> _MetadataPartition:
    alive = snapshot.alive_brokers
    replicas: Sequence[int] = state.replicas
    isr: Sequence[int] = state.isr
    code = 0
    if version == 0:
        # Only that version hides brokers that are down, and reports an error.
        replicas = [id for id in replicas if id in alive]
        isr = [id for id in isr if id in alive]
        if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            code = errors.ReplicaNotAvailableError.code
    leader = state.leader
    if leader not in alive:
        leader = -1
        code = errors.LeaderNotAvailableError.code
    return _MetadataPartition(
        error_code=code,
        partition_index=state.partition_index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=state.offline_replicas,
    )


# --- DescribeTopicPartitions -----------------------------------------------------------------------------------------

#: Kafka's max.request.partition.size.limit.
_MAX_PARTITIONS: Final = 2000

_DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic

_DescribedPartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition

Cursor = DescribeTopicPartitionsResponse.Cursor


@serves(ApiKeys.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest.VERSIONS)
def handle_describe_topic_partitions(broker: Broker, request: Request, body: DescribeTopicPartitionsRequest) -> None:
    """Respond with a page in the order of the topics' names, and the start of the next one."""
    snapshot = broker.metadata_cache.snapshot
    response = DescribeTopicPartitionsResponse()
    remaining = max(min(_MAX_PARTITIONS, body.response_partition_limit), 1)
    first_topic = body.cursor.topic_name if body.cursor is not None else ""
    denied = []
    for name in _names(snapshot, body):
        if not broker.auth.authorize(request, acls.DESCRIBE, acls.TOPIC, name):
            if body.topics:
                denied.append(_DescribedTopic(error_code=errors.TopicAuthorizationError.code, name=name))
            continue
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        states = snapshot.partition_states.get(name)
        if states is None and not body.topics:
            continue
        described = _DescribedTopic(
            name=name,
            is_internal=topic_names.is_internal(name),
            topic_authorized_operations=broker.auth.authorized_operations(request, acls.TOPIC, name),
        )
        response.topics.append(described)
        if states is None:
            described.error_code = missing_topic_code(name)
            continue
        start = body.cursor.partition_index if body.cursor is not None and name == first_topic else 0
        end = min(len(states), start + remaining)
        described.topic_id = snapshot.topic_ids.get(name, ZERO_UUID)
        described.partitions = [
            _described_partition(snapshot, states[index]) for index in range(start, end) if index in states
        ]
        if end < len(states):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        remaining -= len(described.partitions)
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
        raise errors.InvalidRequestError(
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
        )
    if cursor.partition_index < 0:
        raise errors.InvalidRequestError(f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor}")
    return sorted(name for name in wanted if name >= cursor.topic_name)


def _described_partition(snapshot: MetadataSnapshot, state: PartitionState) -> _DescribedPartition:
    return _DescribedPartition(
        partition_index=state.partition_index,
        leader_id=state.leader if state.leader in snapshot.alive_brokers else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=state.offline_replicas,
    )


# --- DescribeCluster -------------------------------------------------------------------------------------------------

_BROKERS: Final = 1

_CONTROLLERS: Final = 2


@serves(ApiKeys.DESCRIBE_CLUSTER, DescribeClusterRequest.VERSIONS)
def handle_describe_cluster(broker: Broker, request: Request, body: DescribeClusterRequest) -> None:
    """Respond with this broker's metadata. Requests for a quorum's controllers are rejected."""
    if body.endpoint_type == _CONTROLLERS:
        raise errors.MismatchedEndpointTypeError(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    if body.endpoint_type != _BROKERS:
        raise errors.UnsupportedEndpointTypeError(f"Unsupported endpoint type {body.endpoint_type}")
    snapshot = broker.metadata_cache.snapshot
    response = DescribeClusterResponse(
        cluster_id=broker.cluster.config.cluster_id,
        controller_id=-1 if snapshot.controller_id is None else snapshot.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack
            )
            for node in map(request.advertised, snapshot.alive_brokers.values())
        ],
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_authorized_operations(broker, request)
    request.respond(response)


# --- GetTelemetrySubscriptions ---------------------------------------------------------------------------------------


def _receiver(broker: Broker) -> TelemetryReceiver:
    receiver = broker.cluster.telemetry
    if receiver is None:
        raise errors.UnsupportedVersionError
    return receiver


@serves(ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, GetTelemetrySubscriptionsRequest.VERSIONS)
def handle_get_telemetry_subscriptions(
    broker: Broker, request: Request, body: GetTelemetrySubscriptionsRequest
) -> None:
    """Respond with the subscription. Without a receiver, the API is not offered."""
    receiver = _receiver(broker)
    request.respond(
        GetTelemetrySubscriptionsResponse(
            client_instance_id=receiver.new_instance(body.client_instance_id),
            subscription_id=receiver.subscription_id,
            accepted_compression_types=[codec.id for codec in ACCEPTED],
            push_interval_ms=receiver.interval_ms,
            telemetry_max_bytes=MAX_BYTES,
            delta_temporality=receiver.is_delta,
            requested_metrics=receiver.prefixes,
        )
    )


# --- PushTelemetry ---------------------------------------------------------------------------------------------------


@serves(ApiKeys.PUSH_TELEMETRY, PushTelemetryRequest.VERSIONS)
def handle_push_telemetry(broker: Broker, request: Request, body: PushTelemetryRequest) -> None:
    """Pass the metrics to the receiver. Without one, the API is not offered."""
    receiver = _receiver(broker)
    receiver.push(
        request.header.client_id or "",
        body.client_instance_id,
        body.subscription_id,
        body.compression_type,
        bytes(body.metrics),
        is_last=body.terminating,
    )
    request.respond(PushTelemetryResponse())
