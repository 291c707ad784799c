"""The calls of the admin client, in the form that confluent-kafka's extension module gives them."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from pykclient import errors
from pykclient.admin.values import (
    ACL,
    ACLFilter,
    ACLOperation as NativeOperation,
    ACLPermissionType as NativePermission,
    ACLResourcePatternType as NativePattern,
    ConfigResource as NativeResource,
    NewPartitions as NativeNewPartitions,
    NewTopic as NativeNewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType as NativeResourceType,
    UserScramCredentialDeletion as NativeDeletion,
    UserScramCredentialUpsertion as NativeUpsertion,
)
from pykclient.confluent import constants
from pykclient.confluent.admin_types import AclBinding, AclBindingFilter, ConfigResource, NewPartitions, NewTopic
from pykclient.confluent.client import FORKED, Client
from pykclient.confluent.cluster_metadata import BrokerMetadata, GroupMember, GroupMetadata, limit_ms
from pykclient.confluent.configuration import ADMIN, Configuration
from pykclient.confluent.events import deadline_of, remaining
from pykclient.confluent.kafka_error import KafkaError, KafkaException, error_of, failure
from pykclient.confluent.model import ConsumerGroupTopicPartitions
from pykclient.confluent.topic_partition import TopicPartition, Uuid, metadata_of, wire_metadata
from pykclient.types import OffsetAndMetadata, TopicPartition as Native

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.admin.values import Results

A = TypeVar("A", ACL, ACLFilter)

#: Threads that run the calls of one client.
_THREADS = 4
#: The time limit of a call, in seconds: librdkafka's socket.timeout.ms.
_DEFAULT_S = 60.0

_STATES = {
    "Unknown": constants.CONSUMER_GROUP_STATE_UNKNOWN,
    "PreparingRebalance": constants.CONSUMER_GROUP_STATE_PREPARING_REBALANCE,
    "CompletingRebalance": constants.CONSUMER_GROUP_STATE_COMPLETING_REBALANCE,
    "Stable": constants.CONSUMER_GROUP_STATE_STABLE,
    "Dead": constants.CONSUMER_GROUP_STATE_DEAD,
    "Empty": constants.CONSUMER_GROUP_STATE_EMPTY,
}
_TYPES = {"classic": constants.CONSUMER_GROUP_TYPE_CLASSIC, "consumer": constants.CONSUMER_GROUP_TYPE_CONSUMER}
#: The protocol's kinds of resources with a configuration, by librdkafka's.
_CONFIG_KINDS = {constants.RESOURCE_TOPIC: 2, constants.RESOURCE_BROKER: 4, constants.RESOURCE_GROUP: 32}
_CHANGES = {
    constants.ALTER_CONFIG_OP_TYPE_SET: "SET",
    constants.ALTER_CONFIG_OP_TYPE_DELETE: "DELETE",
    constants.ALTER_CONFIG_OP_TYPE_APPEND: "APPEND",
    constants.ALTER_CONFIG_OP_TYPE_SUBTRACT: "SUBTRACT",
}


class AdminClientImpl(Client):
    """The calls of the admin client. Each completes a future on a thread of its own, with results by item.

    This is the class below confluent-kafka's own AdminClient, ``cimpl._AdminClientImpl``. Its results are of the
    classes that the module of the subclass exports.
    """

    _kind = "admin"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._is_open = False
        super().__init__(Configuration(ADMIN, args, kwargs))
        self.admin()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=self.name)
        self._is_open = True
        self.begin_events()

    # --- how a call runs -------------------------------------------------------------------------------------------

    def _types(self) -> Any:
        """Return the module whose classes the results are of."""
        for cls in type(self).__mro__:
            module = sys.modules.get(cls.__module__)
            if module is not None and hasattr(module, "ConfigEntry") and hasattr(module, "DescribeClusterResult"):
                return module
        from pykclient.confluent import admin_types

        return admin_types

    def _model(self) -> Any:
        """Return the module with the classes of nodes and partitions."""
        return (
            sys.modules.get(self._types().__name__.rpartition(".")[0] + "._model")
            or sys.modules[ConsumerGroupTopicPartitions.__module__]
        )

    def _submit(self, future: Future[Any], timeout: float, call: Callable[[Admin, int], Any]) -> None:
        _check_timeout(timeout)
        if timeout > _DEFAULT_S * 60 or (timeout < 0 and timeout != -1):
            raise KafkaException(
                KafkaError(KafkaError._INVALID_ARG, "Failed to set request timeout: value is outside the range 0..3600")
            )
        limit = int((_DEFAULT_S if timeout < 0 else timeout) * 1000)
        admin = self.admin().typed
        if self.is_forked:  # the threads that make calls are in the parent process
            raise failure(KafkaError._STATE, FORKED)

        def run() -> None:
            try:
                result = call(admin, max(1, limit))
            except errors.KafkaError as error:
                future.set_exception(KafkaException(_request_error(error)))
            except Exception as error:  # noqa: BLE001 - the future's owner gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._pool.submit(run)

    # --- topics ----------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        topics: list[Any],
        future: Any,
        validate_only: bool = False,
        request_timeout: float = -1,
        operation_timeout: float = -1,
    ) -> None:
        """Create topics; the result maps names to errors or None."""
        _check_timeout(operation_timeout)
        _list_of(topics, NewTopic, "NewTopic")
        wanted = []
        for topic in topics:
            assignment = _assignment(topic.replica_assignment)
            if assignment and topic.replication_factor not in {-1, len(assignment[0])}:
                raise ValueError("replication_factor and replica_assignment are mutually exclusive")
            if assignment is not None and len(assignment) != topic.num_partitions and topic.num_partitions != -1:
                raise ValueError(
                    f"replica_assignment must be a list of int lists with an outer size of {topic.num_partitions}"
                )
            config = {str(key): str(value) for key, value in (topic.config or {}).items()}
            by_partition = None if assignment is None else dict(enumerate(assignment))
            partitions, factor = (-1, -1) if by_partition else (topic.num_partitions, topic.replication_factor)
            wanted.append(NativeNewTopic(topic.topic, partitions, factor, by_partition, config))

        def call(admin: Admin, limit: int) -> dict[Any, Any]:
            return _errors_by(admin.create_topics(wanted, timeout_ms=limit, validate_only=validate_only))

        self._submit(future, request_timeout, call)

    def delete_topics(
        self, topics: list[str], future: Any, request_timeout: float = -1, operation_timeout: float = -1
    ) -> None:
        """Delete topics; the result maps names to errors or None."""
        _check_timeout(operation_timeout)
        _names(topics, "topics")
        self._submit(
            future, request_timeout, lambda admin, limit: _errors_by(admin.delete_topics(topics, timeout_ms=limit))
        )

    def create_partitions(
        self,
        topics: list[Any],
        future: Any,
        validate_only: bool = False,
        request_timeout: float = -1,
        operation_timeout: float = -1,
    ) -> None:
        """Add partitions; the result maps names to errors or None."""
        _check_timeout(operation_timeout)
        _list_of(topics, NewPartitions, "NewPartitions")
        wanted = {
            each.topic: NativeNewPartitions(each.new_total_count, _assignment(each.replica_assignment))
            for each in topics
        }

        def call(admin: Admin, limit: int) -> dict[Any, Any]:
            return _errors_by(admin.create_partitions(wanted, timeout_ms=limit, validate_only=validate_only))

        self._submit(future, request_timeout, call)

    def describe_topics(
        self,
        topic_names: list[str],
        future: Any,
        request_timeout: float = -1,
        include_authorized_operations: bool = False,
    ) -> None:
        """Describe topics; the result has a TopicDescription or an error for each, in order."""
        if not isinstance(topic_names, list):
            raise TypeError("requires a list of topic names")
        for name in topic_names:
            if not isinstance(name, str):
                raise TypeError("Expected list of topics strings")
            if not name:
                raise ValueError("Topic name cannot be empty")
        _flag(include_authorized_operations, "include_authorized_operations")
        types, model = self._types(), self._model()

        def call(admin: Admin, limit: int) -> list[Any]:
            found = admin.describe_topics(topic_names, timeout_ms=limit)
            return _outcomes(
                found, topic_names, lambda topic: _topic(types, model, topic, include_authorized_operations)
            )

        self._submit(future, request_timeout, call)

    def delete_records(
        self,
        topic_partition_offsets: list[Any],
        future: Any,
        request_timeout: float = -1,
        operation_timeout: float = -1,
    ) -> None:
        """Delete records before offsets; the result maps partitions to DeletedRecords or errors."""
        _check_timeout(operation_timeout)
        _list_of(topic_partition_offsets, TopicPartition, "TopicPartition")
        types = self._types()
        natives = _natives(topic_partition_offsets)
        wanted = {native: each.offset for native, each in zip(natives, topic_partition_offsets, strict=True)}

        def call(admin: Admin, limit: int) -> dict[Any, Any]:
            found = admin.delete_records(wanted, timeout_ms=limit)
            return dict(zip(topic_partition_offsets, _outcomes(found, natives, types.DeletedRecords), strict=True))

        self._submit(future, request_timeout, call)

    def list_offsets(
        self,
        topic_partitions: list[Any],
        future: Any,
        isolation_level_value: int | None = None,
        request_timeout: float = -1,
    ) -> None:
        """Look up offsets; the result maps partitions to ListOffsetsResultInfo or errors."""
        types = self._types()
        level = isolation_level_value or 0
        natives = _natives(topic_partitions)
        wanted = {native: _spec(each.offset) for native, each in zip(natives, topic_partitions, strict=True)}

        def info(place: Any) -> Any:
            epoch = -1 if place.leader_epoch is None else place.leader_epoch
            return types.ListOffsetsResultInfo(place.offset, place.timestamp, epoch)

        def call(admin: Admin, limit: int) -> dict[Any, Any]:
            found = admin.list_offsets(wanted, isolation_level=level, timeout_ms=limit)
            return dict(zip(topic_partitions, _outcomes(found, natives, info), strict=True))

        self._submit(future, request_timeout, call)

    def elect_leaders(
        self,
        election_type: int,
        partitions: list[Any] | None,
        future: Any,
        request_timeout: float = -1,
        operation_timeout: float = -1,
    ) -> None:
        """Elect leaders; the result maps partitions to errors or None."""
        _check_timeout(operation_timeout)
        wanted = None if partitions is None else _natives(partitions)

        def call(admin: Admin, limit: int) -> dict[Any, Any]:
            found = admin.elect_leaders(election_type, wanted, timeout_ms=limit)
            return {TopicPartition(*native): error for native, error in _errors_by(found).items()}

        self._submit(future, request_timeout, call)

    # --- configurations --------------------------------------------------------------------------------------------

    def describe_configs(
        self, resources: list[Any], future: Any, request_timeout: float = -1, broker: int = -1
    ) -> None:
        """Describe configurations; the result maps ConfigResource to entries by name."""
        _number(broker)
        natives = _resources(resources)
        types = self._types()

        def call(admin: Admin, limit: int) -> dict[Any, Any]:
            found = admin.describe_configs(list(natives.values()), include_synonyms=True, timeout_ms=limit)
            results = {}
            for each, native in natives.items():
                entries = None
                if native in found.succeeded:
                    entries = {name: _entry(types, entry) for name, entry in found.succeeded[native].items()}
                error = error_of(found.failed[native]) if native in found.failed else None
                made = types.ConfigResource(each.restype, each.name, described_configs=entries, error=error)
                results[made] = entries
            return results

        self._submit(future, request_timeout, call)

    def alter_configs(
        self,
        resources: list[Any],
        future: Any,
        validate_only: bool = False,
        request_timeout: float = -1,
        broker: int = -1,
    ) -> None:
        """Replace configurations; the result has a ConfigResource for each."""
        _number(broker)
        natives = _resources(resources)
        for each, native in natives.items():
            native.configs = {str(key): str(value) for key, value in each.set_config_dict.items()}
        admin = self.admin()
        types = self._types()

        def call(_: Admin, limit: int) -> dict[Any, Any]:  # noqa: ARG001 - the old request has the client's own limit
            results: dict[Any, None] = {}
            for each, native in natives.items():
                error: KafkaError | None = None
                try:
                    shown = admin.alter_configs([native], validate_only, raise_on_unknown=False, incremental=False)
                    text = next(iter(next(iter(shown.values())).values()))
                    error = None if text == "OK" else _named_error(text)
                except errors.KafkaError as raised:
                    error = error_of(raised)
                results[types.ConfigResource(each.restype, each.name, error=error)] = None
            return results

        self._submit(future, request_timeout, call)

    def incremental_alter_configs(
        self,
        resources: list[Any],
        future: Any,
        validate_only: bool = False,
        request_timeout: float = -1,
        broker: int = -1,
    ) -> None:
        """Change configurations; the result has a ConfigResource for each."""
        _number(broker)
        natives = _resources(resources)
        for each, native in natives.items():
            if not each.incremental_configs:
                raise ValueError("at least one ConfigEntry is needed for each resource")
            changes: dict[str, Any] = {}
            for entry in each.incremental_configs:
                operation = getattr(entry.incremental_operation, "value", None)
                if operation not in _CHANGES:
                    raise TypeError("expected incremental_operation to be an AlterConfigOpType")
                changes[entry.name] = (_CHANGES[operation], entry.value)
            native.configs = changes
        types = self._types()

        def call(admin: Admin, limit: int) -> dict[Any, Any]:
            wanted = list(natives.values())
            found = admin.incremental_alter_configs(wanted, validate_only=validate_only, timeout_ms=limit)
            errors = _outcomes(found, wanted, lambda _: None)
            return {
                types.ConfigResource(each.restype, each.name, error=error): None
                for each, error in zip(natives, errors, strict=True)
            }

        self._submit(future, request_timeout, call)

    # --- groups ----------------------------------------------------------------------------------------------------

    def list_consumer_groups(
        self,
        future: Any,
        states_int: list[int] | None = None,
        types_int: list[int] | None = None,
        request_timeout: float = -1,
    ) -> None:
        """List groups; the result is a ListConsumerGroupsResult."""
        states = [name for name, number in _STATES.items() if number in (states_int or ())]
        kinds = [name for name, number in _TYPES.items() if number in (types_int or ())]
        module = self._types()

        def call(admin: Admin, limit: int) -> Any:
            found = admin.list_groups(states=states, types=kinds, timeout_ms=limit)
            valid = [
                module.ConsumerGroupListing(
                    each.group_id,
                    not each.protocol_type,
                    _STATES.get(each.state.value, constants.CONSUMER_GROUP_STATE_UNKNOWN),
                    _TYPES.get(each.type.value, constants.CONSUMER_GROUP_TYPE_UNKNOWN),
                )
                for each in found
                if each.protocol_type in {"", "consumer"}
            ]
            return module.ListConsumerGroupsResult(valid=valid, errors=[])

        self._submit(future, request_timeout, call)

    def describe_consumer_groups(
        self,
        group_ids: list[str],
        future: Any,
        request_timeout: float = -1,
        include_authorized_operations: bool = False,
    ) -> None:
        """Describe groups; the result has a ConsumerGroupDescription or an error for each, in order."""
        _names(group_ids, "groups")
        _flag(include_authorized_operations, "include_authorized_operations")
        types, model = self._types(), self._model()

        def call(admin: Admin, limit: int) -> list[Any]:
            found = admin.describe_groups(group_ids, timeout_ms=limit)
            results: list[Any] = []
            for name in group_ids:
                failed = found.failed.get(name)
                if isinstance(failed, errors.GroupIdNotFoundError):
                    results.append(_dead_group(types, name))
                elif failed is not None:
                    results.append(error_of(failed))
                else:
                    results.append(_group(types, model, found.succeeded[name], include_authorized_operations))
            return results

        self._submit(future, request_timeout, call)

    def delete_consumer_groups(self, group_ids: list[str], future: Any, request_timeout: float = -1) -> None:
        """Delete groups; the result has None or an error for each, in order."""
        _names(group_ids, "groups")

        def call(admin: Admin, limit: int) -> list[Any]:
            found = _errors_by(admin.delete_groups(group_ids, timeout_ms=limit))
            return [found[name] for name in group_ids]

        self._submit(future, request_timeout, call)

    def list_consumer_group_offsets(
        self, request: list[Any], future: Any, require_stable: bool = False, request_timeout: float = -1
    ) -> None:
        """List the offsets of one group; the result has its ConsumerGroupTopicPartitions or an error."""
        (asked,) = request
        _flag(require_stable, "require_stable")
        wanted = None if asked.topic_partitions is None else _natives(asked.topic_partitions)
        made_of = self._model().ConsumerGroupTopicPartitions

        def call(admin: Admin, limit: int) -> list[Any]:
            found = admin.list_group_offsets({asked.group_id: wanted}, require_stable=require_stable, timeout_ms=limit)
            return _outcomes(found, [asked.group_id], lambda offsets: made_of(asked.group_id, _partitions_of(offsets)))

        self._submit(future, request_timeout, call)

    def alter_consumer_group_offsets(self, requests: list[Any], future: Any, request_timeout: float = -1) -> None:
        """Set the offsets of one group; the result has its ConsumerGroupTopicPartitions or an error."""
        (asked,) = requests
        wanted = {
            Native(each.topic, each.partition): OffsetAndMetadata(each.offset, wire_metadata(each.metadata))
            for each in asked.topic_partitions
        }
        made_of = self._model().ConsumerGroupTopicPartitions

        def call(admin: Admin, limit: int) -> list[Any]:
            found = _errors_by(admin.alter_group_offsets(asked.group_id, wanted, timeout_ms=limit))
            partitions = _partitions_of(wanted)
            for partition in partitions:
                partition.error = found.get(Native(partition.topic, partition.partition))
            return [made_of(asked.group_id, partitions)]

        self._submit(future, request_timeout, call)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """Return the groups with their members; or one of them.

        Raises:
            KafkaException: no broker responded within ``timeout`` seconds.
        """
        admin, limit = self.admin().typed, limit_ms(timeout)
        try:
            names = [group] if group is not None else [each.group_id for each in admin.list_groups(timeout_ms=limit)]
            found = admin.describe_groups(names, timeout_ms=limit).succeeded
        except errors.KafkaError as error:
            raise KafkaException(error_of(error, prefix="Failed to list groups: ")) from error
        return [_plain_group(found[name]) for name in names if name in found]

    # --- access control and credentials ----------------------------------------------------------------------------

    def create_acls(self, acls: list[Any], future: Any, request_timeout: float = -1) -> None:
        """Create ACLs; the result has None or an error for each, in order."""
        _list_of(acls, AclBinding, "AclBinding")
        wanted = [_native_acl(each, ACL, ResourcePattern) for each in acls]

        def call(admin: Admin, limit: int) -> list[Any]:
            found = _errors_by(admin.create_acls(wanted, timeout_ms=limit))
            return [found[each] for each in wanted]

        self._submit(future, request_timeout, call)

    def describe_acls(self, acl_binding_filter: Any, future: Any, request_timeout: float = -1) -> None:
        """Describe ACLs; the result is a list of AclBinding."""
        _one_of(acl_binding_filter, AclBindingFilter, "AclBindingFilter")
        wanted, types = _native_filter(acl_binding_filter), self._types()

        def call(admin: Admin, limit: int) -> list[Any]:
            return [_binding(types, acl) for acl in admin.describe_acls(wanted, timeout_ms=limit)]

        self._submit(future, request_timeout, call)

    def delete_acls(self, acls: list[Any], future: Any, request_timeout: float = -1) -> None:
        """Delete ACLs; the result has a list of AclBinding or an error for each filter, in order."""
        _list_of(acls, AclBindingFilter, "AclBindingFilter")
        wanted, types = [_native_filter(each) for each in acls], self._types()

        def call(admin: Admin, limit: int) -> list[Any]:
            found = admin.delete_acls(wanted, timeout_ms=limit)
            return _outcomes(found, wanted, lambda deleted: [_binding(types, acl) for acl in deleted.succeeded])

        self._submit(future, request_timeout, call)

    def describe_user_scram_credentials(
        self, users: list[str] | None, future: Any, request_timeout: float = -1
    ) -> None:
        """Describe credentials; the result maps users to UserScramCredentialsDescription or errors."""
        types = self._types()

        def call(admin: Admin, limit: int) -> dict[str, Any]:
            found = admin.describe_user_scram_credentials(users, timeout_ms=limit)
            results: dict[str, Any] = {user: error_of(error) for user, error in found.failed.items()}
            for user, infos in found.succeeded.items():
                made = [
                    types.ScramCredentialInfo(types.ScramMechanism(info.mechanism.value), info.iterations)
                    for info in infos
                ]
                results[user] = types.UserScramCredentialsDescription(user, made)
            return results

        self._submit(future, request_timeout, call)

    def alter_user_scram_credentials(self, alterations: list[Any], future: Any, request_timeout: float = -1) -> None:
        """Change credentials; the result maps users to None or errors."""

        def call(admin: Admin, limit: int) -> dict[str, Any]:
            wanted = [_native_scram(each) for each in alterations]
            return dict(_errors_by(admin.alter_user_scram_credentials(wanted, timeout_ms=limit)))

        self._submit(future, request_timeout, call)

    # --- the cluster and the end -----------------------------------------------------------------------------------

    def describe_cluster(
        self, future: Any, request_timeout: float = -1, include_authorized_operations: bool = False
    ) -> None:
        """Describe the cluster; the result is a DescribeClusterResult."""
        _flag(include_authorized_operations, "include_authorized_operations")
        types, model = self._types(), self._model()

        def call(admin: Admin, limit: int) -> Any:
            found = admin.describe_cluster(timeout_ms=limit)
            operations = found.authorized_operations if include_authorized_operations else None
            return types.DescribeClusterResult(
                _node(model, found.controller),
                [_node(model, node) for node in found.nodes],
                found.cluster_id,
                operations,
            )

        self._submit(future, request_timeout, call)

    def poll(self, timeout: float = -1) -> int:
        """Call the callbacks of what has happened; wait up to ``timeout`` seconds if nothing has."""
        deadline = deadline_of(timeout)
        while True:
            self.look()
            served = self.events.serve()
            left = remaining(deadline)
            if served or left <= 0:
                return served
            self.events.wait(left)

    def network_client(self) -> Any:
        return None if self._admin is None else self._admin._components.client

    def statistics(self) -> str:
        return "{}"

    def ensure_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("AdminClient has been closed")

    def close(self) -> None:
        """Wait for the calls that run, and release all resources."""
        if self._is_open:
            self._is_open = False
            self._pool.shutdown()
            self.release()

    def __len__(self) -> int:
        return len(self.events)

    def __bool__(self) -> bool:
        return True

    def _abandon(self) -> None:
        if getattr(self, "_is_open", False):
            self._is_open = False
            self._pool.shutdown(wait=False)
            try:
                self.release()
            except errors.IllegalStateError:  # the collector runs inside of another call of this thread
                _thread.start_new_thread(self.release, ())


# --- arguments -------------------------------------------------------------------------------------------------------


def _check_timeout(timeout: Any) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")


def _number(value: Any) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{type(value).__name__!r} object cannot be interpreted as an integer")


def _flag(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"Expected {name} to be bool type, not {type(value).__name__}")


def _one_of(item: Any, kind: type, name: str) -> None:
    if not isinstance(item, kind) and type(item).__name__ != name:  # confluent-kafka's own class below its own client
        raise TypeError(f"Expected {name}")


def _list_of(items: Any, kind: type, name: str) -> None:
    if not isinstance(items, list) or not items:
        raise ValueError(f"Expected non-empty list of {name} objects")
    for item in items:
        _one_of(item, kind, name)


def _names(names: Any, what: str) -> None:
    if not isinstance(names, list) or not names:
        raise ValueError(f"Expected non-empty list of {what}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"Expected list of {what} strings")
        if not name:
            raise ValueError(f"Expected list of {what} without empty names")


def _assignment(assignment: Any) -> list[list[int]] | None:
    if assignment is None:
        return None
    if not isinstance(assignment, list) or not all(isinstance(replicas, list) for replicas in assignment):
        raise TypeError("replica_assignment must be a list of int lists")
    for replicas in assignment:
        for replica in replicas:
            _number(replica)
    return assignment


def _resources(resources: Any) -> dict[Any, NativeResource]:
    _list_of(resources, ConfigResource, "ConfigResource")
    natives = {}
    for each in resources:
        kind = _CONFIG_KINDS.get(each.restype_int)
        if kind is None:
            raise KafkaException(
                KafkaError(KafkaError._INVALID_ARG, f"resources of type {each.restype.name} have no configuration")
            )
        natives[each] = NativeResource(kind, each.name)
    return natives


def _natives(partitions: Iterable[Any]) -> list[Native]:
    return [Native(each.topic, each.partition) for each in partitions]


def _spec(value: int) -> Any:
    from pykclient.admin.values import OffsetSpec as NativeSpec, OffsetTimestamp

    return NativeSpec(value) if value < 0 else OffsetTimestamp(value)


# --- translation -----------------------------------------------------------------------------------------------------


def _request_error(error: errors.KafkaError) -> KafkaError:
    if isinstance(error, errors.KafkaTimeoutError) and not isinstance(error, errors.BrokerError):
        return error_of(error, KafkaError._TIMED_OUT, prefix="Failed while waiting for response from broker: ")
    return error_of(error)


def _outcomes(results: Results[Any, Any], keys: Iterable[Any], make: Callable[[Any], Any]) -> list[Any]:
    """Return for each key its error, or what ``make`` returns for its result."""
    return [error_of(results.failed[key]) if key in results.failed else make(results.succeeded[key]) for key in keys]


def _errors_by(results: Results[Any, Any]) -> dict[Any, KafkaError | None]:
    found: dict[Any, KafkaError | None] = dict.fromkeys(results.succeeded)
    found.update({key: _request_error(error) for key, error in results.failed.items()})
    return found


def _named_error(text: str) -> KafkaError:
    """Return the error of kafka-python's text, which begins with the name of its class."""
    cls = getattr(errors, text.split(":", 1)[0].split("(", 1)[0].strip(), errors.KafkaError)
    if not (isinstance(cls, type) and issubclass(cls, errors.KafkaError)):
        return KafkaError(KafkaError._FAIL, text)
    return error_of(cls(text))


def _node(model: Any, node: Any) -> Any:
    return None if node is None else model.Node(node.id, node.host, node.port, node.rack)


def _operations(names: Iterable[str] | None) -> list[int] | None:
    return None if names is None else [NativeOperation[name].value for name in names]


def _topic(types: Any, model: Any, topic: Any, with_operations: bool) -> Any:
    partitions = [
        model.TopicPartitionInfo(
            each.partition,
            _node(model, each.leader),
            [_node(model, node) for node in each.replicas],
            [_node(model, node) for node in each.in_sync_replicas],
        )
        for each in topic.partitions
    ]
    number = 0 if topic.topic_id is None else topic.topic_id.int
    made = Uuid(_signed(number >> 64), _signed(number & (2**64 - 1)))
    operations = _operations(topic.authorized_operations) if with_operations else None
    return types.TopicDescription(topic.name, made, topic.is_internal, partitions, operations)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _entry(types: Any, entry: Any) -> Any:
    synonyms = {
        each.name: types.ConfigEntry(each.name, each.value, source=_source(each.source), is_synonym=True)
        for each in entry.synonyms
    }
    return types.ConfigEntry(
        entry.name,
        entry.value,
        source=_source(entry.source),
        is_read_only=entry.is_read_only,
        is_default=entry.is_default,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms,
    )


def _source(source: Any) -> int:
    return int(source.value) if source.value in range(6) or source.value == 8 else 0


def _partitions_of(offsets: Any) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition)
        if place is None
        else TopicPartition(topic, partition, place.offset, metadata_of(place.metadata), place.leader_epoch)
        for (topic, partition), place in sorted(offsets.items())
    ]


def _dead_group(types: Any, group_id: str) -> Any:
    """Return the description of a group that does not exist, as librdkafka gives one instead of an error."""
    return types.ConsumerGroupDescription(group_id, True, [], "", constants.CONSUMER_GROUP_STATE_DEAD, None)


def _group(types: Any, model: Any, group: Any, with_operations: bool) -> Any:
    def assignment(partitions: Any) -> Any:
        return types.MemberAssignment([TopicPartition(*native) for native in sorted(partitions)])

    members = [
        types.MemberDescription(
            each.member_id,
            each.client_id,
            each.host,
            assignment(each.assignment),
            group_instance_id=each.group_instance_id,
            target_assignment=None if each.target_assignment is None else assignment(each.target_assignment),
        )
        for each in group.members
    ]
    return types.ConsumerGroupDescription(
        group.group_id,
        not group.protocol_type,
        members,
        group.assignor,
        _STATES.get(group.state.value, constants.CONSUMER_GROUP_STATE_UNKNOWN),
        _node(model, group.coordinator),
        _operations(group.authorized_operations) if with_operations else None,
        type=_TYPES.get(group.type.value, constants.CONSUMER_GROUP_TYPE_UNKNOWN),
    )


def _plain_group(group: Any) -> GroupMetadata:
    leader = group.coordinator
    return GroupMetadata(
        None if leader is None else BrokerMetadata(leader.id, leader.host, leader.port),
        group.group_id,
        None,
        group.state.value,
        group.protocol_type,
        group.assignor,
        [GroupMember(each.member_id, each.client_id, each.host) for each in group.members],
    )


def _native_acl(acl: Any, make: Callable[..., A], pattern: Callable[..., Any]) -> A:
    """Return the ACL, or the filter, that ``make`` makes of a resource's ``pattern`` and the rest."""
    resource = pattern(NativeResourceType(acl.restype_int), acl.name, NativePattern(acl.resource_pattern_type_int))
    operation, permission = NativeOperation(acl.operation_int), NativePermission(acl.permission_type_int)
    return make(acl.principal, acl.host, operation, permission, resource)


def _native_filter(acl: Any) -> ACLFilter:
    return _native_acl(acl, ACLFilter, ResourcePatternFilter)


def _binding(types: Any, acl: ACL) -> Any:
    pattern = acl.resource_pattern
    return types.AclBinding(
        pattern.resource_type.value,
        pattern.resource_name,
        pattern.pattern_type.value,
        acl.principal,
        acl.host,
        acl.operation.value,
        acl.permission_type.value,
    )


def _native_scram(alteration: Any) -> NativeDeletion | NativeUpsertion:
    info = getattr(alteration, "scram_credential_info", None)
    if info is None:
        return NativeDeletion(alteration.user, alteration.mechanism.value)
    return NativeUpsertion(alteration.user, info.mechanism.value, alteration.password, info.iterations, alteration.salt)
