"""Brokers, configurations, ACLs and users with kafka-python's methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pykclient.admin import access, cluster, configs, expect
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.admin_calls import Steps
from pykclient.admin.api import to_any_broker, to_broker, to_controller
from pykclient.admin.descriptions import BrokerVersionData
from pykclient.admin.partitions import partitions_by_topic
from pykclient.admin.plain import answered, plain, shown_error, with_operations
from pykclient.admin.values import (
    ACL,
    ACLFilter,
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    Results,
    ScramMechanism,
    TopicPartitionReplica,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pykclient.errors import IllegalArgumentError, KafkaError, NoError, UnsupportedVersionError
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

K = TypeVar("K")


class ClusterCalls(AdminBase):
    """The cluster, its brokers, features and controllers."""

    def describe_cluster(self) -> dict[str, Any]:
        """Return the cluster's id, its brokers, and the broker that it names as controller.

        Raises:
            KafkaTimeoutError: no broker has answered within ``default.api.timeout.ms``.
        """
        described = plain(self._run(cluster.describe_cluster()))
        for name in ("error_code", "error_message", "endpoint_type", "throttle_time_ms"):
            del described[name]
        return with_operations(described)

    def client_instance_id(self) -> UUID:
        """Return the client instance id, by which brokers identify this client's metrics (KIP-714).

        Raises:
            IllegalStateError: telemetry is disabled. ``enable.metrics.push`` is off by default for admin clients.
            UnsupportedVersionError: the brokers have no receiver for metrics.
            KafkaTimeoutError: no broker has answered within ``default.api.timeout.ms``.
        """
        return self._run(cluster.client_instance_id())

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
        asked = None if brokers is None else cluster.broker_id_arguments(brokers, "brokers")

        def steps() -> Steps[dict[int, DescribeLogDirsResponse]]:
            partitions = yield from partitions_by_topic(topic_partitions)
            ids = asked if asked is not None else (yield from cluster.broker_ids())
            return (yield from cluster.describe_log_dirs(partitions, ids)).all()

        return [
            {"broker": broker_id, "log_dirs": plain(response.results)}
            for broker_id, response in self._run(steps()).items()
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
        wanted = cluster.directories(replica_assignments)
        results = self._run(cluster.alter_replica_log_dirs(wanted))
        return error_classes(results, wanted)

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Return the state of the quorum of controllers: its leader, voters and observers.

        Raises:
            UnsupportedVersionError: the cluster does not run in KRaft mode.
        """
        found: dict[str, Any] = plain(self._run(cluster.describe_quorum()))
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
        response = self._run(cluster.api_versions(name, to_broker(id)))
        return BrokerVersionData(id, _versions(response))

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Return the first and last version of each API, by API key, from any broker."""
        return _versions(self._run(cluster.api_versions("api_versions")))

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """Return the features of the cluster, by name.

        ``supported`` and ``finalized`` are pairs of the lowest and highest level; ``finalized_epoch`` is None if it is
        unknown. With ``send_request_to_controller``, the broker that stands for the controller is asked.
        """
        is_for_controller = expect.flag(send_request_to_controller, "send_request_to_controller")
        lookup = to_controller(or_quorum=True) if is_for_controller else to_any_broker(or_controller=True)
        described = cluster.features(self._run(cluster.api_versions("describe_features", lookup)))
        found: dict[str, dict[str, Any]] = {name: {"supported": levels} for name, levels in described.supported.items()}
        for name, levels in described.finalized.items():
            found.setdefault(name, {}).update(finalized=levels, finalized_epoch=described.finalized_epoch)
        return found

    def update_features(
        self, feature_updates: Mapping[str, Any], validate_only: bool = False, timeout_ms: int = 60000
    ) -> dict[str, str]:
        """Change the levels of features, and return ``{feature: "OK" or the error}``.

        ``feature_updates`` maps features to levels, or to pairs of an UpdateFeatureType and a level. Level 0 removes a
        feature. Raises the error of the whole request, such as ClusterAuthorizationError.
        """
        updates = cluster.feature_updates(feature_updates)
        is_trial = expect.flag(validate_only, "validate_only")
        results = self._run(cluster.update_features(updates, is_trial), timeout_ms)
        if results.error_of_all is not None:  # from version 2 on the brokers take all updates or none
            raise results.error_of_all
        return {name: shown_error(results.failed[name]) if name in results.failed else "OK" for name in updates}


def error_classes(results: Results[K, Any], keys: Iterable[K]) -> dict[K, type[KafkaError]]:
    """Return the class of the error of each key, NoError for success.

    Raises:
        KafkaError: the error of the request as a whole, or one that no broker has reported.
    """
    if results.error_of_all is not None:
        raise results.error_of_all
    failed = answered(results).failed
    return {key: type(failed[key]) if key in failed else NoError for key in keys}


def _versions(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


class ConfigCalls(AdminBase):
    """Configurations of topics, brokers and other resources."""

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = "modified",
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """Return the configurations of resources, as ``{type: {name: {key: values}}}``.

        ``configs`` of a resource names the keys to return; None is for all. ``config_filter`` chooses keys by where
        their value comes from: ``"modified"`` (set for the resource itself), ``"dynamic"`` (can be altered), ``"all"``,
        ``"default"`` or ``"static"``. Unlike kafka-python's, this raises the error of a resource.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            TopicAuthorizationError: not authorized to describe the configuration of a topic.
            ClusterAuthorizationError: not authorized to describe the configuration of a broker.
            KafkaError: any other error of a resource.
        """
        wanted = {resource: configs.keys_of(resource) for resource in configs.resources(config_resources)}
        chosen = ConfigFilterType.build_from(config_filter)
        with_synonyms = expect.flag(include_synonyms, "include_synonyms")
        results = self._run(configs.describe_configs(wanted, with_synonyms))
        found: dict[str, dict[str, Any]] = {}
        for resource, described in results.all().items():
            of_type = found.setdefault(resource.resource_type.name.lower(), {})
            of_type[resource.name] = _plain_configs(described, chosen)
        return found

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """Return the names of resources that have configurations, by type, for some types or for all.

        Brokers before Kafka 4.1 list only client metrics.
        """
        given = [] if resource_types is None else expect.items(resource_types, "resource_types", "types")
        types = [ConfigResourceType.build_from(kind) for kind in given]
        found: dict[str, list[str]] = {}
        for resource in self._run(configs.list_config_resources(types)):
            found.setdefault(resource.resource_type.name.lower(), []).append(resource.name)
        return found

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change configurations, and return ``{type: {name: "OK" or the error}}``.

        ``configs`` of a resource maps keys to values, or to pairs of an AlterConfigOp and a value. Other keys stay as
        they are. With ``raise_on_unknown``, a key that the resource does not have is an error before anything is
        changed. Brokers before Kafka 2.3, or ``incremental=False``, take all modified keys at once; then only SET is
        possible, and a concurrent change may be lost.

        Raises:
            IllegalArgumentError: an argument is wrong, or a key is unknown.
            KafkaError: an error that no broker has reported for one resource, such as a timeout.
        """
        changed = {resource: configs.changes_of(resource) for resource in configs.resources(config_resources)}
        return self._alter("alter_configs", changed, validate_only, raise_on_unknown, incremental)

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Reset configurations to their defaults, and return ``{type: {name: "OK" or the error}}``.

        ``configs`` of a resource names the keys, as a list or a dict; without any, all modified keys are reset.
        Needs brokers of Kafka 2.3 or newer.

        Raises:
            IllegalArgumentError: an argument is wrong, or a key is unknown.
            KafkaError: an error that no broker has reported for one resource, such as a timeout.
        """
        if incremental is False:
            raise IllegalArgumentError("resetting single keys needs incremental changes: leave out incremental=False")
        given = configs.resources(config_resources)
        named = {resource: configs.keys_of(resource) or [] for resource in given}
        bare = configs.all_keys(resource for resource, keys in named.items() if not keys)
        modified = self._run(configs.describe_configs(bare, False)).all()
        changed = {}
        for resource, keys in named.items():
            if resource in modified:
                entries = configs.config_entries(modified[resource]).values()
                keys[:] = [entry.name for entry in entries if entry.source.is_modified() and not entry.is_read_only]
            changed[resource] = [configs.Change(key, AlterConfigOp.DELETE, None) for key in keys]
        return self._alter("reset_configs", changed, validate_only, raise_on_unknown, True)

    def _alter(
        self,
        name: str,
        changed: Mapping[ConfigResource, list[configs.Change]],
        validate_only: bool,
        raise_on_unknown: bool,
        incremental: bool | None,
    ) -> dict[str, dict[str, str]]:
        is_trial = expect.flag(validate_only, "validate_only")
        refuses_unknown = expect.flag(raise_on_unknown, "raise_on_unknown")
        if incremental is not None:
            incremental = expect.flag(incremental, "incremental")

        def steps() -> Steps[Results[ConfigResource, Any]]:
            if refuses_unknown:
                known = yield from configs.describe_configs(configs.all_keys(changed), False)
                for resource, described in known.all().items():
                    can_be_set = {config.name for config in described.configs if not config.read_only}
                    unknown = {change.key for change in changed[resource]} - can_be_set
                    if unknown:
                        raise IllegalArgumentError(f"{resource} has no dynamic configs {sorted(unknown)}")
            if incremental is False:
                return (yield from configs.replace_configs(changed, is_trial))
            results = yield from configs.alter_configs(changed, is_trial)
            if incremental is None and any(type(e) is UnsupportedVersionError for e in results.failed.values()):
                return (yield from configs.replace_configs(changed, is_trial))
            return results

        failed = answered(self._run(steps())).failed
        found: dict[str, dict[str, str]] = {}
        for resource in changed:
            shown = shown_error(failed[resource]) if resource in failed else "OK"
            found.setdefault(resource.resource_type.name.lower(), {})[resource.name] = shown
        return found


def _plain_configs(described: configs.Described, chosen: ConfigFilterType) -> dict[str, dict[str, Any]]:
    found = {}
    for config in described.configs:
        source = ConfigSourceType.build_from(config.config_source)
        if (chosen is ConfigFilterType.DYNAMIC and config.read_only) or chosen.should_skip(source):
            continue
        values = plain(config)
        del values["is_default"]
        values["config_source"] = source.name
        values["config_type"] = ConfigType.build_from(config.config_type).name
        for synonym in values["synonyms"]:
            synonym["source"] = ConfigSourceType.build_from(synonym["source"]).name
        found[values.pop("name")] = values
    return found


class AccessCalls(AdminBase):
    """Access control lists and SCRAM credentials."""

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[KafkaError]]:
        """Return the ACLs that match a filter, and NoError.

        Raises:
            SecurityDisabledError: the brokers have no authorizer.
            ClusterAuthorizationError: not authorized to describe the cluster.
        """
        (wanted,) = access.acl_arguments([acl_filter], ACLFilter, "acl_filter")
        return self._run(access.describe_acls(wanted)), NoError

    def create_acls(self, acls: Iterable[ACL]) -> dict[str, list[Any]]:
        """Create ACLs. Return those that ``succeeded``, and those that ``failed`` with their error classes.

        Raises:
            KafkaError: an error that no broker has reported for an ACL, such as a timeout.
        """
        wanted = access.acl_arguments(acls, ACL, "acls")
        results = answered(self._run(access.create_acls(wanted)))
        return {
            "succeeded": [acl for acl in wanted if acl in results.succeeded],
            "failed": [type(results.failed[acl]) for acl in wanted if acl in results.failed],
        }

    def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[tuple[ACLFilter, list[ACL], type[KafkaError]]]:
        """Delete the ACLs that match filters. Return each filter's matching ACLs and its error class.

        Raises:
            KafkaError: an error that no broker has reported for a filter, such as a timeout.
        """
        wanted = access.acl_arguments(acl_filters, ACLFilter, "acl_filters")
        results = answered(self._run(access.delete_acls(wanted)))
        return [
            (acl_filter, [], type(results.failed[acl_filter]))
            if acl_filter in results.failed
            else (acl_filter, list(results.succeeded[acl_filter]), NoError)
            for acl_filter in wanted
        ]

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Create, replace and delete SCRAM credentials. Return each user's error text, or None for success.

        Raises:
            KafkaError: an error that no broker has reported for a user, such as a timeout.
        """
        wanted = access.scram_alterations(alterations)
        results = answered(self._run(access.alter_scram(wanted)))
        return {user: str(results.failed[user]) if user in results.failed else None for user in results}

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Return the SCRAM mechanisms and iterations of the given users, or of all.

        Raises:
            ClusterAuthorizationError: not authorized to describe the cluster.
        """
        asked = None if users is None else expect.texts(users, "users")
        found = self._run(access.describe_scram(asked))
        return {
            user.user: {
                "error": user.error_message if user.error_code else None,
                "credential_infos": [
                    {"mechanism": ScramMechanism.build_from(info.mechanism), "iterations": info.iterations}
                    for info in user.credential_infos
                ],
            }
            for user in found
        }
