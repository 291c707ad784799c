"""The cluster, its features, its controllers, and the directories of its brokers: the steps of their methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from pykclient.admin import expect
from pykclient.admin.admin_calls import CONTROLLER_ENDPOINTS, ENDPOINT_TYPES_FROM, Steps, ask, run
from pykclient.admin.api import (
    AdminApiHandler,
    Answers,
    LookupStrategy,
    VersionedBuilder,
    checked,
    for_all,
    item_error,
    nothing,
    to_any_broker,
    to_controller,
    whole,
)
from pykclient.admin.descriptions import (
    ClusterDescription,
    FeatureMetadata,
    LogDirDescription,
    QuorumInfo,
    QuorumReplica,
    ReplicaInfo,
    ReplicaLogDirInfo,
)
from pykclient.admin.partitions import by_topic, topics_of
from pykclient.admin.topics import all_metadata, topic_id_or_none
from pykclient.admin.values import Results, TopicPartitionReplica, UpdateFeatureType, authorized_operations
from pykclient.argument_values import elements, shown
from pykclient.errors import IllegalArgumentError, KafkaStorageError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.network.kafka_client import enabled
from pykclient.protocol.messages.add_raft_voter import AddRaftVoterRequest
from pykclient.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from pykclient.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from pykclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pykclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykclient.protocol.messages.unregister_broker import UnregisterBrokerRequest
from pykclient.protocol.messages.update_features import UpdateFeaturesRequest
from pykclient.types import Node, TopicPartition
from pykclient.version import __version__

#: From this version on, a DescribeCluster request can ask for fenced brokers.
_FENCED_FROM = 2


def describe_cluster() -> Steps[DescribeClusterResponse]:
    """Describe the cluster with its fenced brokers, or its controllers if the client is connected to them."""
    client = yield None

    def request(version: int) -> DescribeClusterRequest:
        if of_controllers:
            return DescribeClusterRequest(
                include_cluster_authorized_operations=True, endpoint_type=CONTROLLER_ENDPOINTS
            )
        return DescribeClusterRequest(
            include_cluster_authorized_operations=True, include_fenced_brokers=version >= _FENCED_FROM
        )

    of_controllers = client.metadata.uses_controllers
    builder = VersionedBuilder(DescribeClusterRequest(), request, ENDPOINT_TYPES_FROM if of_controllers else None)
    try:
        return (yield from ask("describe_cluster", to_any_broker(or_controller=True), builder))
    except UnsupportedVersionError:  # before Kafka 2.8
        if of_controllers:
            raise
        metadata = yield from all_metadata("describe_cluster", ())
        return DescribeClusterResponse(
            cluster_id=metadata.cluster_id or "",
            controller_id=metadata.controller_id,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in metadata.brokers
            ],
            cluster_authorized_operations=metadata.cluster_authorized_operations,
        )


def client_instance_id() -> Steps[UUID]:
    """Return the client instance id that a broker assigned. Raises IllegalStateError if telemetry is disabled."""
    telemetry = enabled((yield None).telemetry)
    known = telemetry.client_instance_id
    if known is not None:
        return known
    response: GetTelemetrySubscriptionsResponse = yield from ask(
        "client_instance_id", to_any_broker(), GetTelemetrySubscriptionsRequest()
    )
    return telemetry.adopt(response.client_instance_id)


def broker_ids() -> Steps[list[int]]:
    """Return the ids of the brokers that are up."""
    described = yield from describe_cluster()
    return [broker.broker_id for broker in described.brokers if not broker.is_fenced]


def broker_id_arguments(brokers: object, what: str) -> list[int]:
    """Return a list of broker ids, each once."""
    return list(dict.fromkeys(expect.replicas(brokers, what)))


def of_broker() -> LookupStrategy[int]:
    """Return the strategy for keys that are ids of brokers."""
    return LookupStrategy(lambda broker_id: broker_id)


# --- log directories ---


def _log_dirs_request(partitions: Mapping[str, Sequence[int]] | None) -> DescribeLogDirsRequest:
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = None if partitions is None else topics_of(partitions, kind, "topic", "partitions")
    return DescribeLogDirsRequest(topics=topics)


def describe_log_dirs(
    partitions: Mapping[str, Sequence[int]] | None, brokers: Sequence[int]
) -> Steps[Results[int, DescribeLogDirsResponse]]:
    """Describe the log directories of brokers, with the given partitions or all."""

    request = _log_dirs_request(partitions)
    return run(AdminApiHandler("describe_log_dirs", of_broker(), request, for_all(whole)), brokers)


def describe_replica_log_dirs(
    replicas: Sequence[TopicPartitionReplica],
) -> Steps[Results[TopicPartitionReplica, ReplicaLogDirInfo]]:
    """Return the current and future log directories of replicas; none if the broker does not have the replica."""

    def request(keys: Sequence[TopicPartitionReplica], _timeout_ms: int) -> DescribeLogDirsRequest:
        return _log_dirs_request(by_topic(TopicPartition(key.topic, key.partition) for key in keys))

    def answers(
        keys: Sequence[TopicPartitionReplica], response: DescribeLogDirsResponse
    ) -> Answers[TopicPartitionReplica]:
        found = {TopicPartition(key.topic, key.partition): ReplicaLogDirInfo() for key in keys}
        for path, directory in log_dirs(response).items():
            if directory.error is not None and not isinstance(directory.error, KafkaStorageError):
                raise directory.error  # a directory that is offline tells of no replicas
            for tp, replica in directory.replicas.items():
                known = found.get(tp, ReplicaLogDirInfo())
                found[tp] = (
                    known._replace(future_replica_log_dir=path, future_replica_offset_lag=replica.offset_lag)
                    if replica.is_future
                    else known._replace(current_replica_log_dir=path, current_replica_offset_lag=replica.offset_lag)
                )
        for key in keys:
            yield key, None, found[TopicPartition(key.topic, key.partition)]

    return run(AdminApiHandler("describe_replica_log_dirs", _of_replica(), request, answers), replicas)


def _of_replica() -> LookupStrategy[TopicPartitionReplica]:
    """Return the strategy for replicas, which names their brokers."""
    return LookupStrategy(lambda replica: replica.broker_id)


def alter_replica_log_dirs(
    directories: Mapping[TopicPartitionReplica, str],
) -> Steps[Results[TopicPartitionReplica, None]]:
    """Have brokers move replicas to other log directories."""

    def request(keys: Sequence[TopicPartitionReplica], _timeout_ms: int) -> AlterReplicaLogDirsRequest:
        by_path: dict[str, dict[str, list[int]]] = {}
        for replica in keys:
            by_path.setdefault(directories[replica], {}).setdefault(replica.topic, []).append(replica.partition)
        return AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                )
                for path, topics in by_path.items()
            ]
        )

    def answers(keys: Sequence[TopicPartitionReplica], response: Any) -> Answers[TopicPartitionReplica]:
        broker_id = keys[0].broker_id
        for topic in response.results:
            for partition in topic.partitions:
                replica = TopicPartitionReplica(topic.topic_name, partition.partition_index, broker_id)
                yield replica, item_error(partition), None

    return run(AdminApiHandler("alter_replica_log_dirs", _of_replica(), request, answers), list(directories))


# --- the quorum ---


def describe_quorum() -> Steps[DescribeQuorumResponse]:
    """Describe the quorum of controllers."""

    def read(response: DescribeQuorumResponse) -> DescribeQuorumResponse:
        for topic in response.topics:
            for partition in topic.partitions:
                checked(partition)
        return response

    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
            )
        ]
    )
    return ask("describe_metadata_quorum", to_any_broker(or_controller=True), request, read)


class RaftVoterEndpoint(NamedTuple):
    """An endpoint of a voter of the quorum."""

    name: str
    host: str
    port: int


def _listener(endpoint: object, what: str) -> AddRaftVoterRequest.Listener:
    fields = elements(endpoint)
    if fields is None or len(fields) != 3:
        raise IllegalArgumentError(f"{what} is {shown(endpoint)}; it must be a RaftVoterEndpoint")
    return AddRaftVoterRequest.Listener(
        name=expect.text(fields[0], f"the name of {what}"),
        host=expect.text(fields[1], f"the host of {what}"),
        port=expect.number(fields[2], f"the port of {what}", 1, 65535),
    )


def add_raft_voter(cluster_id: str | None, voter_id: int, directory_id: UUID, endpoints: object) -> Steps[None]:
    """Add a voter to the quorum of controllers (KIP-853)."""
    listeners = [
        _listener(endpoint, f"endpoints[{index}]")
        for index, endpoint in enumerate(expect.items(endpoints, "endpoints", "RaftVoterEndpoint"))
    ]

    def request(_keys: Sequence[None], timeout_ms: int) -> AddRaftVoterRequest:
        return AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=listeners,
        )

    return ask("add_raft_voter", to_any_broker(or_controller=True), request, nothing)


def remove_raft_voter(cluster_id: str | None, voter_id: int, directory_id: UUID) -> Steps[None]:
    """Remove a voter from the quorum of controllers (KIP-853)."""
    request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)
    return ask("remove_raft_voter", to_any_broker(or_controller=True), request, nothing)


def unregister_broker(broker_id: int) -> Steps[None]:
    """Unregister a broker that is down for good."""
    request = UnregisterBrokerRequest(broker_id=broker_id)
    return ask("unregister_broker", to_any_broker(or_controller=True), request, nothing)


# --- features and versions ---


def api_versions(name: str, lookup: LookupStrategy[None] | None = None) -> Steps[ApiVersionsResponse]:
    """Return a broker's versions and features."""

    request = ApiVersionsRequest(client_software_name="pykclient", client_software_version=__version__)
    return ask(name, lookup or to_any_broker(or_controller=True), request)


class FeatureUpdate(NamedTuple):
    """A level for a feature of the cluster; 0 removes it."""

    max_version_level: int
    upgrade_type: UpdateFeatureType = UpdateFeatureType.UPGRADE


def feature_updates(values: object) -> dict[str, FeatureUpdate]:
    """Return updates from levels, or from pairs of the kind of the update and the level.

    Raises:
        IllegalArgumentError: an argument is wrong, or there is none.
    """
    found = {}
    for feature, given in expect.mapping(values, "feature_updates", "levels by feature").items():
        name = expect.text(feature, "the name of a feature")
        kind: object = UpdateFeatureType.UPGRADE
        level: object = given
        if isinstance(given, FeatureUpdate):
            level, kind = given
        elif isinstance(given, tuple) and len(given) == 2:
            kind, level = given
        found[name] = FeatureUpdate(
            expect.number(level, f"the level of {name!r}", 0, expect.INT16), UpdateFeatureType.build_from(kind)
        )
    if not found:
        raise IllegalArgumentError("feature_updates is empty; name at least one feature")
    return found


def update_features(updates: Mapping[str, FeatureUpdate], validate_only: bool) -> Steps[Results[str, None]]:
    """Change the levels of features (KIP-584)."""
    downgrades = (UpdateFeatureType.SAFE_DOWNGRADE, UpdateFeatureType.UNSAFE_DOWNGRADE)

    def request(_keys: Sequence[str], timeout_ms: int) -> RequestBuilder:
        def of_version(version: int) -> UpdateFeaturesRequest:
            return UpdateFeaturesRequest(
                timeout_ms=timeout_ms,
                feature_updates=[
                    UpdateFeaturesRequest.FeatureUpdateKey(
                        feature=feature,
                        max_version_level=update.max_version_level,
                        **(  # the first version has another field for downgrades, and no trial
                            {"allow_downgrade": update.upgrade_type in downgrades}
                            if version == 0
                            else {"upgrade_type": update.upgrade_type.value}
                        ),
                    )
                    for feature, update in updates.items()
                ],
                validate_only=validate_only,
            )

        return VersionedBuilder(UpdateFeaturesRequest(), of_version)

    def answers(keys: Sequence[str], response: Any) -> Answers[str]:
        told = {result.feature: result for result in response.results}
        for key in keys:  # from version 2 on, a response has no results: all of them succeed or fail together
            result = told.get(key)
            yield key, None if result is None else item_error(result), None

    return run(AdminApiHandler("update_features", to_controller(or_quorum=True), request, answers), list(updates))


def directories(values: object) -> dict[TopicPartitionReplica, str]:
    """Return paths of directories by replica.

    Raises:
        IllegalArgumentError: a key is no ``(topic, partition, broker id)``, or a path is no text.
    """
    return {
        _replica(key, "a key of replica_assignments"): expect.text(path, f"the directory of {key}")
        for key, path in expect.mapping(values, "replica_assignments", "paths by TopicPartitionReplica").items()
    }


def replicas_to_describe(values: object) -> list[TopicPartitionReplica]:
    """Return a list of replicas, each once.

    Raises:
        IllegalArgumentError: one of them is no ``(topic, partition, broker id)``.
    """
    given = expect.items(values, "replicas", "TopicPartitionReplica")
    return list(dict.fromkeys(_replica(value, f"replicas[{index}]") for index, value in enumerate(given)))


def _replica(value: object, what: str) -> TopicPartitionReplica:
    if not isinstance(value, tuple) or len(value) != 3:
        raise IllegalArgumentError(f"{what} is {shown(value)}, no replica")
    topic, partition, broker_id = value
    return TopicPartitionReplica(
        expect.text(topic, "the topic of a replica"),
        expect.number(partition, "the partition of a replica"),
        expect.number(broker_id, "the broker of a replica"),
    )


# --- typed results ---


def cluster_description(response: DescribeClusterResponse) -> ClusterDescription:
    """Return a response as the typed result."""
    nodes = {
        broker.broker_id: Node(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
        for broker in response.brokers
    }
    return ClusterDescription(
        response.cluster_id,
        nodes.get(response.controller_id),
        tuple(nodes.values()),
        authorized_operations(response.cluster_authorized_operations),
    )


def log_dirs(response: DescribeLogDirsResponse) -> dict[str, LogDirDescription]:
    """Return the directories in a response by path."""
    return {
        found.log_dir: LogDirDescription(
            found.total_bytes,
            found.usable_bytes,
            {
                TopicPartition(topic.name, partition.partition_index): ReplicaInfo(
                    partition.partition_size, partition.offset_lag, partition.is_future_key
                )
                for topic in found.topics
                for partition in topic.partitions
            },
            item_error(found),
            found.is_cordoned,
        )
        for found in response.results
    }


def features(response: ApiVersionsResponse) -> FeatureMetadata:
    """Return the features in a response."""
    return FeatureMetadata(
        {found.name: (found.min_version, found.max_version) for found in response.supported_features},
        {found.name: (found.min_version_level, found.max_version_level) for found in response.finalized_features},
        None if response.finalized_features_epoch < 0 else response.finalized_features_epoch,
    )


def quorum_info(response: DescribeQuorumResponse) -> QuorumInfo:
    """Return the quorum in a response."""

    def replicas(states: Sequence[DescribeQuorumResponse.ReplicaState]) -> tuple[QuorumReplica, ...]:
        return tuple(
            QuorumReplica(
                state.replica_id,
                topic_id_or_none(state.replica_directory_id),
                state.log_end_offset,
                state.last_fetch_timestamp,
                state.last_caught_up_timestamp,
            )
            for state in states
        )

    (partition,) = response.topics[0].partitions
    return QuorumInfo(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        replicas(partition.current_voters),
        replicas(partition.observers),
        {
            node.node_id: tuple((listener.name, listener.host, listener.port) for listener in node.listeners)
            for node in response.nodes
        },
    )
