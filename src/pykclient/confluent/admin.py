"""The admin client in confluent-kafka's shape."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from pykclient.confluent import constants
from pykclient.confluent.admin_impl import AdminClientImpl
from pykclient.confluent.admin_types import (
    AclBinding as AclBinding,
    AclBindingFilter as AclBindingFilter,
    AclOperation as AclOperation,
    AclPermissionType as AclPermissionType,
    AlterConfigOpType as AlterConfigOpType,
    ConfigEntry as ConfigEntry,
    ConfigResource as ConfigResource,
    ConfigSource as ConfigSource,
    ConsumerGroupDescription as ConsumerGroupDescription,
    ConsumerGroupListing as ConsumerGroupListing,
    DeletedRecords as DeletedRecords,
    DescribeClusterResult as DescribeClusterResult,
    ListConsumerGroupsResult as ListConsumerGroupsResult,
    ListOffsetsResultInfo as ListOffsetsResultInfo,
    MemberAssignment as MemberAssignment,
    MemberDescription as MemberDescription,
    NewPartitions as NewPartitions,
    NewTopic as NewTopic,
    OffsetSpec as OffsetSpec,
    ResourcePatternType as ResourcePatternType,
    ResourceType as ResourceType,
    ScramCredentialInfo as ScramCredentialInfo,
    ScramMechanism as ScramMechanism,
    TopicDescription as TopicDescription,
    UserScramCredentialAlteration as UserScramCredentialAlteration,
    UserScramCredentialDeletion as UserScramCredentialDeletion,
    UserScramCredentialsDescription as UserScramCredentialsDescription,
    UserScramCredentialUpsertion as UserScramCredentialUpsertion,
)
from pykclient.confluent.cluster_metadata import (
    BrokerMetadata as BrokerMetadata,
    ClusterMetadata as ClusterMetadata,
    GroupMember as GroupMember,
    GroupMetadata as GroupMetadata,
    PartitionMetadata as PartitionMetadata,
    TopicMetadata as TopicMetadata,
)
from pykclient.confluent.kafka_error import KafkaError as KafkaError, KafkaException as KafkaException
from pykclient.confluent.model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    TopicCollection,
)
from pykclient.confluent.topic_partition import TopicPartition

for _name in (
    *(name for name in vars(constants) if name.startswith(("CONFIG_SOURCE_", "RESOURCE_")) and "PATTERN" not in name),
    "OFFSET_INVALID",
):
    globals()[_name] = getattr(constants, _name)


class AdminClient(AdminClientImpl):
    """An admin client with confluent-kafka's methods: most return a dict of futures by item.

    Create it with a dict of librdkafka's properties. ``request_timeout`` of all methods is in seconds.
    """

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(conf, **kwargs)

    def create_topics(self, new_topics: list[NewTopic], **kwargs: Any) -> dict[str, Future[None]]:  # type: ignore[override]
        """Create topics; return futures by name."""
        return _each(super().create_topics, new_topics, (each.topic for each in new_topics), _by_key, kwargs)

    def delete_topics(self, topics: list[str], **kwargs: Any) -> dict[str, Future[None]]:  # type: ignore[override]
        """Delete topics; return futures by name."""
        return _each(super().delete_topics, topics, topics, _by_key, kwargs)

    def create_partitions(  # type: ignore[override]
        self, new_partitions: list[NewPartitions], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Add partitions to topics; return futures by name."""
        names = [each.topic for each in new_partitions]
        return _each(super().create_partitions, new_partitions, names, _by_key, kwargs)

    def describe_topics(self, topics: TopicCollection, **kwargs: Any) -> dict[str, Future[Any]]:  # type: ignore[override]
        """Describe topics; return futures of TopicDescription by name."""
        if not isinstance(topics, TopicCollection):
            raise TypeError("Expected input to be instance of TopicCollection")
        names = topics.topic_names
        if not isinstance(names, list):
            raise TypeError("Expected list of topic names to be described")
        return _each(super().describe_topics, names, names, _in_order, kwargs)

    def describe_configs(self, resources: list[ConfigResource], **kwargs: Any) -> dict[ConfigResource, Future[Any]]:  # type: ignore[override]
        """Describe configurations; return futures of dicts of ConfigEntry by resource."""
        _check_kind(resources, ConfigResource, ValueError)
        return _each(super().describe_configs, resources, resources, _by_resource, kwargs)

    def alter_configs(self, resources: list[ConfigResource], **kwargs: Any) -> dict[ConfigResource, Future[Any]]:  # type: ignore[override]
        """Replace configurations; return futures by resource. Keys that are not given go back to their defaults."""
        warnings.warn(
            "alter_configs has been deprecated. Use incremental_alter_configs instead.",
            category=DeprecationWarning,
            stacklevel=2,
        )
        _check_kind(resources, ConfigResource, ValueError)
        return _each(super().alter_configs, resources, resources, _by_resource, kwargs)

    def incremental_alter_configs(  # type: ignore[override]
        self, resources: list[ConfigResource], **kwargs: Any
    ) -> dict[ConfigResource, Future[Any]]:
        """Change configurations; return futures by resource."""
        _check_kind(resources, ConfigResource, TypeError)
        return _each(super().incremental_alter_configs, resources, resources, _by_resource, kwargs)

    def create_acls(self, acls: list[AclBinding], **kwargs: Any) -> dict[AclBinding, Future[None]]:  # type: ignore[override]
        """Create ACLs; return futures by ACL."""
        if len(set(acls)) != len(acls):
            raise ValueError("duplicate ACL bindings not allowed")
        _check_kind(acls, AclBinding, ValueError)
        return _each(super().create_acls, acls, acls, _in_order, kwargs)

    def describe_acls(self, acl_binding_filter: AclBindingFilter, **kwargs: Any) -> Future[list[AclBinding]]:  # type: ignore[override]
        """Describe ACLs; return a future of a list of AclBinding."""
        future = _future()
        super().describe_acls(acl_binding_filter, future, **kwargs)
        return future

    def delete_acls(  # type: ignore[override]
        self, acl_binding_filters: list[AclBindingFilter], **kwargs: Any
    ) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
        """Delete ACLs; return futures of lists of AclBinding by filter."""
        if len(set(acl_binding_filters)) != len(acl_binding_filters):
            raise ValueError("duplicate ACL binding filters not allowed")
        _check_kind(acl_binding_filters, AclBindingFilter, ValueError)
        return _each(super().delete_acls, acl_binding_filters, acl_binding_filters, _in_order, kwargs)

    def list_consumer_groups(self, **kwargs: Any) -> Future[Any]:  # type: ignore[override]
        """List groups; return a future of a ListConsumerGroupsResult. ``states`` and ``types`` are sets."""
        kinds: tuple[tuple[str, type[Any]], ...] = (("states", ConsumerGroupState), ("types", ConsumerGroupType))
        for name, kind in kinds:
            wanted = kwargs.pop(name, None)
            if wanted is None:
                continue
            if not isinstance(wanted, set):
                raise TypeError(f"'{name}' must be a set")
            if not all(isinstance(each, kind) for each in wanted):
                raise TypeError(f"All elements of {name} must be of type {kind.__name__}")
            kwargs[f"{name}_int"] = [each.value for each in wanted]
        future = _future()
        super().list_consumer_groups(future, **kwargs)
        return future

    def describe_consumer_groups(self, group_ids: list[str], **kwargs: Any) -> dict[str, Future[Any]]:  # type: ignore[override]
        """Describe groups; return futures of ConsumerGroupDescription by id."""
        _check_groups(group_ids, "described")
        return _each(super().describe_consumer_groups, group_ids, group_ids, _in_order, kwargs)

    def delete_consumer_groups(self, group_ids: list[str], **kwargs: Any) -> dict[str, Future[None]]:  # type: ignore[override]
        """Delete groups; return futures by id."""
        _check_groups(group_ids, "deleted")
        _check_kind(group_ids, str, ValueError)
        return _each(super().delete_consumer_groups, group_ids, group_ids, _in_order, kwargs)

    def list_consumer_group_offsets(  # type: ignore[override]
        self, list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions], **kwargs: Any
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """List the offsets of one group; return a future by its id."""
        asked = _one_group(list_consumer_group_offsets_request, "listing")
        if asked.topic_partitions is not None:
            _check_partitions(asked.topic_partitions, with_offsets=False)
        return _each(super().list_consumer_group_offsets, [asked], [asked.group_id], _in_order, kwargs)

    def alter_consumer_group_offsets(  # type: ignore[override]
        self, alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions], **kwargs: Any
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set the offsets of one group; return a future by its id."""
        asked = _one_group(alter_consumer_group_offsets_request, "altering")
        if asked.topic_partitions is None:
            raise ValueError("'topic_partitions' cannot be null")
        _check_partitions(asked.topic_partitions, with_offsets=True)
        return _each(super().alter_consumer_group_offsets, [asked], [asked.group_id], _in_order, kwargs)

    def describe_cluster(self, **kwargs: Any) -> Future[Any]:  # type: ignore[override]
        """Describe the cluster; return a future of a DescribeClusterResult."""
        future = _future()
        super().describe_cluster(future, **kwargs)
        return future

    def describe_user_scram_credentials(  # type: ignore[override]
        self, users: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Future[Any]] | Future[dict[str, Any]]:
        """Describe credentials; return futures by user, or one future of a dict if ``users`` is None."""
        if users is None:
            whole = _future()
            super().describe_user_scram_credentials(None, _spread({None: whole}, _all_or_error), **kwargs)
            return whole
        if not isinstance(users, list):
            raise TypeError("Expected input to be list of String")
        for user in users:
            _check_user(user)
        return _each(super().describe_user_scram_credentials, users, users, _by_key, kwargs)

    def alter_user_scram_credentials(  # type: ignore[override]
        self, alterations: list[UserScramCredentialAlteration], **kwargs: Any
    ) -> dict[str, Future[None]]:
        """Change credentials; return futures by user."""
        if not isinstance(alterations, list):
            raise TypeError("Expected input to be list")
        if not alterations:
            raise ValueError("Expected at least one alteration")
        for alteration in alterations:
            _check_alteration(alteration)
        users = [each.user for each in alterations]
        return _each(super().alter_user_scram_credentials, alterations, users, _by_key, kwargs)

    def list_offsets(  # type: ignore[override]
        self, topic_partition_offsets: dict[TopicPartition, OffsetSpec], **kwargs: Any
    ) -> dict[TopicPartition, Future[Any]]:
        """Look up offsets; return futures of ListOffsetsResultInfo by partition."""
        if not isinstance(topic_partition_offsets, dict):
            raise TypeError("Expected topic_partition_offsets to be dict of TopicPartition and OffsetSpec")
        asked = []
        for partition, spec in topic_partition_offsets.items():
            _check_partition(partition)
            if not isinstance(spec, OffsetSpec):
                raise TypeError("Value must be a OffsetSpec")
            asked.append(TopicPartition(partition.topic, partition.partition, spec._value))
        level = kwargs.pop("isolation_level", None)
        if level is not None:
            if not isinstance(level, IsolationLevel):
                raise TypeError("isolation_level argument should be an IsolationLevel")
            kwargs["isolation_level_value"] = level.value
        return _each(super().list_offsets, asked, asked, _by_key, kwargs)

    def delete_records(  # type: ignore[override]
        self, topic_partition_offsets: list[TopicPartition], **kwargs: Any
    ) -> dict[TopicPartition, Future[Any]]:
        """Delete records before offsets; return futures of DeletedRecords by partition."""
        if not isinstance(topic_partition_offsets, list):
            raise TypeError(f"Expected Request to be a list, got '{type(topic_partition_offsets).__name__}'")
        for each in topic_partition_offsets:
            if not isinstance(each, TopicPartition):
                raise TypeError(f"Element of the request list must be of type 'TopicPartition', not {type(each)}")
            if each.partition < 0:
                raise ValueError("'partition' cannot be negative")
        return _each(super().delete_records, topic_partition_offsets, topic_partition_offsets, _by_key, kwargs)

    def elect_leaders(  # type: ignore[override]
        self, election_type: ElectionType, partitions: list[TopicPartition] | None = None, **kwargs: Any
    ) -> Future[dict[TopicPartition, KafkaException | None]]:
        """Elect leaders of ``partitions`` (default: of all); return a future of errors by partition."""
        if not isinstance(election_type, ElectionType):
            raise TypeError("Expected 'election_type' to be of type 'ElectionType'")
        if partitions is not None:
            if not isinstance(partitions, list):
                raise TypeError(f"Expected 'partitions' to be a list, got '{type(partitions).__name__}'")
            for each in partitions:
                if not isinstance(each, TopicPartition):
                    raise TypeError(f"Element of the 'partitions' list must be of type 'TopicPartition', not {each!r}")
                if each.partition < 0:
                    raise ValueError("Elements of the 'partitions' list must not have negative value")
        future = _future()
        super().elect_leaders(election_type.value, partitions, future, **kwargs)
        return future


# --- futures ---------------------------------------------------------------------------------------------------------


def _future() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _each(
    call: Callable[..., None],
    asked: Any,
    keys: Iterable[Any],
    tell: Callable[[dict[Any, Future[Any]], Any], None],
    kwargs: dict[str, Any],
) -> dict[Any, Future[Any]]:
    """Make a call about ``asked``; return a future for each key, to which ``tell`` passes its part of the result on."""
    futures = {key: _future() for key in keys}
    call(asked, _spread(futures, tell), **kwargs)
    return futures


def _spread(futures: dict[Any, Future[Any]], tell: Callable[[dict[Any, Future[Any]], Any], None]) -> Future[Any]:
    """Return a future whose result ``tell`` passes on to ``futures``, and whose exception all of them get."""

    def done(whole: Future[Any]) -> None:
        error = whole.exception()
        if error is None:
            tell(futures, whole.result())
        else:
            for future in futures.values():
                future.set_exception(error)

    whole = _future()
    whole.add_done_callback(done)
    return whole


def _settle(future: Future[Any], result: Any) -> None:
    if isinstance(result, KafkaError):
        future.set_exception(KafkaException(result))
    else:
        future.set_result(result)


def _by_key(futures: dict[Any, Future[Any]], results: dict[Any, Any]) -> None:
    for key, future in futures.items():
        _settle(future, results[key])


def _in_order(futures: dict[Any, Future[Any]], results: list[Any]) -> None:
    for future, result in zip(futures.values(), results, strict=True):
        _settle(future, result)


def _by_resource(futures: dict[Any, Future[Any]], results: dict[Any, Any]) -> None:
    for resource, configs in results.items():
        _settle(futures[resource], configs if resource.error is None else resource.error)


def _all_or_error(futures: dict[Any, Future[Any]], results: dict[str, Any]) -> None:
    (future,) = futures.values()
    failed = next((result for result in results.values() if isinstance(result, KafkaError)), None)
    _settle(future, results if failed is None else failed)


# --- arguments -------------------------------------------------------------------------------------------------------


def _one_group(request: Any, verb: str) -> ConsumerGroupTopicPartitions:
    if request is None:
        raise TypeError("request cannot be None")
    if not isinstance(request, list):
        raise TypeError("request must be a list")
    if len(request) != 1:
        raise ValueError(f"Currently we support {verb} offsets for a single consumer group only")
    (asked,) = request
    if not isinstance(asked, ConsumerGroupTopicPartitions):
        raise TypeError("Expected list of 'ConsumerGroupTopicPartitions'")
    if not isinstance(asked.group_id, str):
        raise TypeError("'group_id' must be a string")
    if not asked.group_id:
        raise ValueError("'group_id' cannot be empty")
    return asked


def _check_kind(items: Iterable[Any], kind: type, error: type[Exception]) -> None:
    if not all(isinstance(item, kind) for item in items):
        raise error(f"Expected list of {kind!r}")


def _check_groups(group_ids: Any, verb: str) -> None:
    if not isinstance(group_ids, list):
        raise TypeError(f"Expected input to be list of group ids to be {verb}")
    if not group_ids:
        raise ValueError(f"Expected at least one group to be {verb}")


def _check_partition(partition: Any) -> None:
    if not isinstance(partition, TopicPartition):
        raise TypeError("partition must be a TopicPartition")
    if not partition.topic:
        raise ValueError("partition topic name cannot be empty")
    if partition.partition < 0:
        raise ValueError("partition index must be non-negative")


def _check_partitions(partitions: Any, with_offsets: bool) -> None:
    if not isinstance(partitions, list):
        raise TypeError("'topic_partitions' must be a list")
    if not partitions:
        raise ValueError("'topic_partitions' cannot be empty")
    for partition in partitions:
        if partition is None:
            raise ValueError("Element of 'topic_partitions' cannot be None")
        if not isinstance(partition, TopicPartition):
            raise TypeError("Element of 'topic_partitions' must be of type TopicPartition")
        _check_partition(partition)
        if with_offsets and partition.offset < 0:
            raise ValueError("Element of 'topic_partitions' must not have negative value for 'offset' field")
        if not with_offsets and partition.offset != constants.OFFSET_INVALID:
            raise ValueError("Element of 'topic_partitions' must not have 'offset' value")


def _check_user(user: Any) -> None:
    if not isinstance(user, str):
        raise TypeError("'user' must be a string")
    if not user:
        raise ValueError("'user' cannot be empty")


def _check_alteration(alteration: Any) -> None:
    if not isinstance(alteration, UserScramCredentialAlteration):
        raise TypeError("Expected each element of list to be subclass of UserScramCredentialAlteration")
    _check_user(alteration.user)
    if isinstance(alteration, UserScramCredentialUpsertion):
        if not isinstance(alteration.password, bytes):
            raise TypeError("'password' must be bytes")
        if not alteration.password:
            raise ValueError("'password' cannot be empty")
        if alteration.salt is not None and not alteration.salt:
            raise ValueError("'salt' can be None but cannot be empty")
        if alteration.salt is not None and not isinstance(alteration.salt, bytes):
            raise TypeError("'salt' must be bytes")
        info = alteration.scram_credential_info
        if not isinstance(info, ScramCredentialInfo):
            raise TypeError("Expected credential_info to be ScramCredentialInfo Type")
        if info.iterations < 1:
            raise ValueError("Iterations should be positive")
        mechanism = info.mechanism
    elif isinstance(alteration, UserScramCredentialDeletion):
        mechanism = alteration.mechanism
    else:
        raise TypeError("Expected each alteration to be an upsertion or a deletion")
    if not isinstance(mechanism, ScramMechanism):
        raise TypeError("Expected the mechanism to be ScramMechanism Type")
