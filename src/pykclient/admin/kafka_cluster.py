"""The methods of KafkaAdminClient for the cluster and its brokers, as kafka-python has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pykclient.admin import expect
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.api import to_broker
from pykclient.admin.cluster import (
    alter_replica_log_dirs,
    api_versions,
    broker_id_arguments,
    broker_ids,
    client_instance_id,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    directories,
    feature_updates,
    lookup_of_features,
    update_features,
)
from pykclient.admin.descriptions import BrokerVersionData
from pykclient.admin.operation import CallContext, Operation
from pykclient.admin.partitions import partitions_by_topic
from pykclient.admin.plain import is_answer, plain, shown_error, with_operations
from pykclient.admin.values import TopicPartitionReplica
from pykclient.errors import KafkaError, NoError
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

K = TypeVar("K")


class ClusterCalls(AdminBase):
    """The cluster, its brokers, features and controllers."""

    def describe_cluster(self) -> dict[str, Any]:
        """Return the cluster's id, its brokers, and the broker that stands for the controller.

        Raises:
            KafkaTimeoutError: no broker has answered within ``default.api.timeout.ms``.
        """
        described = plain(self._run("describe_cluster", None, describe_cluster))
        for name in ("error_code", "error_message", "endpoint_type", "throttle_time_ms"):
            del described[name]
        return with_operations(described)

    def client_instance_id(self) -> UUID:
        """Return the id that a broker has given to this client, by which its pushed metrics are known (KIP-714).

        Raises:
            IllegalStateError: telemetry is disabled. ``enable.metrics.push`` is off by default for admin clients.
            UnsupportedVersionError: the brokers have no receiver for metrics.
            KafkaTimeoutError: no broker has answered within ``default.api.timeout.ms``.
        """
        return self._run("client_instance_id", None, client_instance_id)

    def describe_log_dirs(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[str] | None = None,
        brokers: Iterable[int] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the log directories of brokers, with the sizes of partitions.

        ``topic_partitions`` maps topics to partitions, or lists topics; None is for all. ``brokers`` is a list of ids,
        by default all.

        Raises:
            ClusterAuthorizationError: not authorized to describe the cluster.
            KafkaTimeoutError: a broker has not answered within ``default.api.timeout.ms``.
        """
        asked = None if brokers is None else broker_id_arguments(brokers, "brokers")

        def begin(context: CallContext) -> Operation[dict[int, DescribeLogDirsResponse]]:
            partitions = yield from partitions_by_topic(context, topic_partitions)
            ids = asked if asked is not None else (yield from broker_ids(context))
            return (yield from describe_log_dirs(context, partitions, ids)).all()

        return [
            {"broker": broker_id, "log_dirs": plain(response.results)}
            for broker_id, response in self._run("describe_log_dirs", None, begin).items()
        ]

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[TopicPartitionReplica | tuple[str, int, int], str]
    ) -> dict[TopicPartitionReplica, type[KafkaError]]:
        """Move replicas to other log directories of their brokers.

        ``replica_assignments`` maps ``(topic, partition, broker id)`` to the path of a directory. Return the class of
        the error of each replica, NoError for success.

        Raises:
            KafkaError: an error that no broker has reported, such as a timeout.
        """
        wanted = directories(replica_assignments)
        results = self._run("alter_replica_log_dirs", None, lambda it: alter_replica_log_dirs(it, wanted))
        return {replica: error or NoError for replica, error in error_classes(results.failed, wanted).items()}

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Return the state of the quorum of controllers: its leader, voters and observers.

        Raises:
            UnsupportedVersionError: the cluster does not run in KRaft mode.
        """
        found: dict[str, Any] = plain(self._run("describe_metadata_quorum", None, describe_quorum))
        del found["error_code"], found["error_message"]
        for topic in found["topics"]:
            for partition in topic["partitions"]:
                del partition["error_code"], partition["error_message"]
                partition["error"] = None
        return found

    def get_broker_version_data(self, broker_id: int) -> BrokerVersionData:
        """Return the versions of the APIs that a broker supports."""
        id = expect.number(broker_id, "broker_id")
        name = "get_broker_version_data"
        response = self._run(name, None, lambda it: api_versions(it, name, to_broker(id)))
        return BrokerVersionData(id, _versions(response))

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Return the first and last version of each API, by its key, of any broker."""
        return _versions(self._run("api_versions", None, lambda it: api_versions(it, "api_versions")))

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """Return the features of the cluster, by name.

        ``supported`` and ``finalized`` are pairs of the lowest and highest level; ``finalized_epoch`` is None if it is
        unknown. With ``send_request_to_controller``, the broker that stands for the controller is asked.
        """
        lookup = lookup_of_features(expect.flag(send_request_to_controller, "send_request_to_controller"))
        response = self._run("describe_features", None, lambda it: api_versions(it, "describe_features", lookup))
        epoch = None if response.finalized_features_epoch < 0 else response.finalized_features_epoch
        found: dict[str, dict[str, Any]] = {}
        for supported in response.supported_features:
            levels = supported.min_version, supported.max_version
            found.setdefault(supported.name, {})["supported"] = levels
        for finalized in response.finalized_features:
            levels = finalized.min_version_level, finalized.max_version_level
            found.setdefault(finalized.name, {}).update(finalized=levels, finalized_epoch=epoch)
        return found

    def update_features(
        self, feature_updates: Mapping[str, Any], validate_only: bool = False, timeout_ms: int = 60000
    ) -> dict[str, str]:
        """Change the levels of features, and return ``{feature: "OK" or the error}``.

        ``feature_updates`` maps features to levels, or to pairs of an UpdateFeatureType and a level. Level 0 removes a
        feature. Raises the error of the whole request, such as ClusterAuthorizationError.
        """
        updates = _feature_updates(feature_updates)
        is_trial = expect.flag(validate_only, "validate_only")
        results = self._run("update_features", timeout_ms, lambda it: update_features(it, updates, is_trial))
        if results.error_of_all is not None:  # from version 2 on the brokers take all updates or none
            raise results.error_of_all
        return {name: shown_error(results.failed[name]) if name in results.failed else "OK" for name in updates}


_feature_updates = feature_updates


def error_classes(failed: Mapping[K, KafkaError], keys: Iterable[K]) -> dict[K, type[KafkaError] | None]:
    """Return the class of the error of each key, None for success.

    Raises:
        KafkaError: an error that no broker has reported.
    """
    for error in failed.values():
        if not is_answer(error):
            raise error
    return {key: type(failed[key]) if key in failed else None for key in keys}


def _versions(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
