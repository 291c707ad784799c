"""Every public method of the admin clients refuses arguments of the wrong kind before it sends anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from pykclient import KafkaAdminClient
from pykclient.admin import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    AlterConfigOp,
    ClientQuotaFilterComponent,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    TopicPartitionReplica,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pykclient.admin.topics import config_value
from pykclient.aio import AIOKafkaAdminClient
from pykclient.errors import IllegalArgumentError
from pykclient.metrics import KafkaMetric, MetricName
from pykclient.testing import EmbeddedCluster
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.aio.loops import run
from tests.support.odd_calls import Refusals, check_that_none_is_left_out, odd_calls
from tests.support.odd_values import HOSTILE, Number

TP = TopicPartition("orders", 0)
REPLICA = TopicPartitionReplica("orders", 0, 1)
ID = UUID(int=5)
METRIC = KafkaMetric(MetricName("orders-total", "shop", "", {}), lambda _config, _now_ms: 1)
ANY_RESOURCE = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
ANY_ACL = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, ANY_RESOURCE)
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
ONE_ACL = ACL("User:x", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ORDERS)

ODD = [*HOSTILE, {"password": b"secret"}, [5, b"secret"], [b"secret"], b"secret"]

#: Valid calls of Admin and AIOKafkaAdminClient, by method. All have a ``timeout_ms`` as well.
CALLS: dict[str, dict[str, Any]] = {
    "create_topics": {"new_topics": ["new"], "validate_only": True},
    "delete_topics": {"topics_or_ids": ["other"]},
    "list_topics": {"list_internal": False},
    "describe_topics": {"topics_or_ids": ["orders"]},
    "create_partitions": {"topic_partitions": {"orders": 5}, "validate_only": True},
    "delete_records": {"offsets": {TP: 0}},
    "elect_leaders": {"election_type": 0, "topic_partitions": [TP]},
    "alter_partition_reassignments": {"reassignments": {TP: None}, "allow_replication_factor_change": True},
    "list_partition_reassignments": {"topic_partitions": [TP]},
    "list_offsets": {"specs": {TP: -1}, "isolation_level": 0},
    "describe_producers": {"topic_partitions": [TP], "broker_id": 1},
    "describe_configs": {
        "resources": [ConfigResource("topic", "orders")],
        "include_synonyms": False,
        "include_documentation": False,
    },
    "incremental_alter_configs": {
        "resources": [ConfigResource("topic", "orders", {"retention.ms": "5"})],
        "validate_only": True,
    },
    "list_config_resources": {"resource_types": ["topic"]},
    "update_features": {"updates": {"transaction.version": 2}, "validate_only": True},
    "describe_features": {"node_id": 1},
    "add_raft_voter": {"voter_id": 5, "directory_id": ID, "endpoints": [("CONTROLLER", "h", 1)], "cluster_id": "c"},
    "remove_raft_voter": {"voter_id": 5, "directory_id": ID, "cluster_id": "c"},
    "unregister_broker": {"broker_id": 77},
    "describe_log_dirs": {"broker_ids": [1]},
    "describe_replica_log_dirs": {"replicas": [REPLICA]},
    "alter_replica_log_dirs": {"directories": {REPLICA: "/x"}},
    "list_groups": {"states": (), "types": (), "protocol_types": ()},
    **{name: {"group_ids": ["g"]} for name in ("describe_groups", "describe_streams_groups", "delete_groups")},
    "remove_members": {"group_id": "g", "members": [MemberToRemove(group_instance_id="i")]},
    "list_group_offsets": {"group_specs": {"g": [TP]}, "require_stable": False},
    "alter_group_offsets": {"group_id": "g", "offsets": {TP: 1}},
    "delete_group_offsets": {"group_id": "g", "partitions_to_delete": [TP]},
    "list_share_group_offsets": {"group_specs": {"g": [TP]}},
    "alter_share_group_offsets": {"group_id": "s", "offsets": {TP: 1}},
    "delete_share_group_offsets": {"group_id": "s", "topic_names": ["orders"]},
    "describe_acls": {"acl_filter": ANY_ACL},
    "create_acls": {"acls": [ONE_ACL]},
    "delete_acls": {"acl_filters": [ANY_ACL]},
    "describe_client_quotas": {"components": [], "strict": False},
    "alter_client_quotas": {
        "alterations": [({"user": "a"}, {"producer_byte_rate": 1.0})],
        "validate_only": True,
    },
    "describe_user_scram_credentials": {"users": ["a"]},
    "alter_user_scram_credentials": {"alterations": [UserScramCredentialDeletion("a", 1)]},
    "create_delegation_token": {"renewers": ["User:a"], "max_lifetime_ms": -1, "owner": None},
    "renew_delegation_token": {"hmac": b"x", "renew_period_ms": -1},
    "expire_delegation_token": {"hmac": b"x", "expiry_period_ms": -1},
    "describe_delegation_tokens": {"owners": None},
    "list_transactions": {"producer_ids": [], "states": [], "duration_ms": 5, "transactional_id_pattern": "a"},
    "describe_transactions": {"transactional_ids": ["t"]},
    "fence_producers": {"transactional_ids": ["t"]},
    "end_transaction": {"transactional_id": "t", "producer_id": 1, "epoch": 0, "commit": True},
    "end_transactions": {"open_transactions": {"t": (1, 0)}, "commit": False},
    "abort_transaction": {"spec": AbortTransactionSpec(TP, 1, 1)},
    "force_terminate_transaction": {"transactional_id": "t"},
    **{
        name: {}
        for name in (
            *("describe_cluster", "describe_metadata_quorum", "list_client_metrics_resources", "client_instance_id"),
        )
    },
}
for _arguments in CALLS.values():
    _arguments["timeout_ms"] = 20
OTHERS: dict[str, dict[str, Any]] = {
    "metrics": {"raw": False},
    "register_metric_for_subscription": {"metric": METRIC},
    "unregister_metric_from_subscription": {"metric": METRIC},
}

_COORDINATOR = {"group_coordinator_id": 1}
#: Valid calls of KafkaAdminClient, by method.
KAFKA_CALLS: dict[str, dict[str, Any]] = {
    "create_topics": {
        "new_topics": ["new"],
        "timeout_ms": 50,
        "validate_only": True,
        "raise_errors": True,
        "wait_for_metadata": False,
    },
    "delete_topics": {"topics": ["other"], "timeout_ms": 50, "raise_errors": True},
    "describe_topics": {"topics": ["orders"]},
    "describe_topic_partitions": {"topics": ["orders"], "response_partition_limit": 5, "cursor": None},
    "create_partitions": {
        "topic_partitions": {"orders": 5},
        "timeout_ms": 50,
        "validate_only": True,
        "raise_errors": True,
    },
    "delete_records": {"records_to_delete": {TP: 0}, "timeout_ms": 50, "partition_leader_id": 1},
    "elect_leaders": {"election_type": 0, "topic_partitions": {"orders": [0]}, "timeout_ms": 50, "raise_errors": True},
    "alter_partition_reassignments": {"reassignments": {TP: None}, "timeout_ms": 50},
    "list_partition_reassignments": {"topic_partitions": [TP], "timeout_ms": 50},
    "list_partition_offsets": {"topic_partition_specs": {TP: -1}, "isolation_level": 0, "timeout_ms": 50},
    "describe_producers": {"partitions": [TP], "broker_id": 1},
    "describe_configs": {
        "config_resources": [ConfigResource("topic", "orders")],
        "include_synonyms": False,
        "config_filter": "all",
    },
    **{
        f"{name}_configs": {
            "config_resources": [ConfigResource("topic", "orders", {"retention.ms": "5"})],
            "validate_only": True,
            "raise_on_unknown": True,
            "incremental": None,
        }
        for name in ("alter", "reset")
    },
    "list_config_resources": {"resource_types": ["topic"]},
    "get_broker_version_data": {"broker_id": 1},
    "describe_features": {"send_request_to_controller": False},
    "update_features": {"feature_updates": {"transaction.version": 2}, "validate_only": True, "timeout_ms": 50},
    "describe_log_dirs": {"topic_partitions": {"orders": [0]}, "brokers": [1]},
    "alter_replica_log_dirs": {"replica_assignments": {REPLICA: "/x"}},
    "list_groups": {"broker_ids": [1], "states_filter": (), "types_filter": ()},
    "describe_groups": {"group_ids": ["g"], **_COORDINATOR, "include_authorized_operations": False},
    "delete_groups": {"group_ids": ["g"], **_COORDINATOR},
    "remove_group_members": {"group_id": "g", "members": [MemberToRemove("m")], **_COORDINATOR},
    "list_group_offsets": {"group_specs": {"g": [TP]}},
    "alter_group_offsets": {"group_id": "g", "offsets": {TP: OffsetAndMetadata(1)}, **_COORDINATOR},
    "reset_group_offsets": {"group_id": "g", "offset_specs": {TP: 1}, **_COORDINATOR},
    "delete_group_offsets": {"group_id": "g", "partitions": [TP], **_COORDINATOR},
    "list_transactions": {
        "broker_ids": [1],
        "producer_id_filters": [],
        "state_filters": [],
        "duration_filter_ms": 5,
        "transactional_id_pattern": "a",
    },
    "end_transaction": {"transactional_id": "t", "producer_id": 1, "epoch": 0, "commit": True},
    "find_hanging_transactions": {"broker_ids": [1], "max_transaction_timeout_ms": 5},
    "wait_for_topics": {"topic_names": ["orders"], "timeout_ms": 50},
    **{
        name: {key: value for key, value in CALLS[name].items() if key != "timeout_ms"}
        for name in (
            *("describe_acls", "create_acls", "delete_acls", "alter_user_scram_credentials", "abort_transaction"),
            *("describe_user_scram_credentials", "describe_transactions", "describe_cluster", "client_instance_id"),
            "describe_metadata_quorum",
        )
    },
    **{name: {} for name in ("list_topics", "api_versions")},
    **OTHERS,
}


def _configs(configs: Any) -> list[ConfigResource]:
    return [ConfigResource("topic", "orders", configs)]


def _acl_filters(make: Callable[..., Any]) -> list[Callable[[Any], Any]]:
    given = [None, None, ACLOperation.ANY, ACLPermissionType.ANY, ANY_RESOURCE]
    return [lambda odd, place=place: make(*given[:place], odd, *given[place + 1 :]) for place in range(5)]  # type: ignore[misc]


#: Values with an odd one inside of them, by the argument that they are for.
INSIDE: dict[str, list[Callable[[Any], Any]]] = {
    "new_topics": [
        lambda odd: [NewTopic(odd)],
        lambda odd: [NewTopic("new", odd)],
        lambda odd: [NewTopic("new", 1, odd)],
        lambda odd: [NewTopic("new", replica_assignments=odd)],
        lambda odd: [NewTopic("new", replica_assignments={odd: [1]})],
        lambda odd: [NewTopic("new", replica_assignments={0: odd})],
        lambda odd: [NewTopic("new", topic_configs=odd)],
        lambda odd: [NewTopic("new", topic_configs={"retention.ms": odd})],
        lambda odd: [NewTopic("new", topic_configs={odd: "a"})],
        lambda odd: {"new": odd},
        lambda odd: {"new": {"configs": odd}},
    ],
    "topic_partitions": [
        lambda odd: {"orders": odd},
        lambda odd: {"orders": NewPartitions(odd)},
        lambda odd: {"orders": NewPartitions(5, odd)},
        lambda odd: {"orders": NewPartitions(5, [odd])},
        lambda odd: {"orders": {"total_count": odd}},
        lambda odd: {odd: 5},
        lambda odd: [TopicPartition("orders", odd)],
        lambda odd: [TopicPartition(odd, 0)],
    ],
    "resources": [
        lambda odd: [ConfigResource(odd, "orders")],
        lambda odd: [ConfigResource("topic", odd)],
        _configs,
        lambda odd: _configs([odd]),
        lambda odd: _configs({"retention.ms": odd}),
        lambda odd: _configs({odd: "1"}),
        lambda odd: _configs({"retention.ms": (odd, "1")}),
        lambda odd: _configs({"retention.ms": (AlterConfigOp.APPEND, odd)}),
    ],
    "specs": [lambda odd: {TP: odd}, lambda odd: {odd: 5}],
    "offsets": [
        lambda odd: {TP: odd},
        lambda odd: {odd: 5},
        lambda odd: {TP: OffsetAndMetadata(odd)},
        lambda odd: {TP: OffsetAndMetadata(1, odd)},
        lambda odd: {TP: OffsetAndMetadata(1, "", odd)},
    ],
    "reassignments": [lambda odd: {TP: odd}, lambda odd: {odd: [1]}, lambda odd: {TP: [odd]}],
    "updates": [
        lambda odd: {"transaction.version": odd},
        lambda odd: {odd: 1},
        lambda odd: {"transaction.version": (odd, 1)},
    ],
    "endpoints": [
        lambda odd: [odd],
        lambda odd: [(odd, "h", 1)],
        lambda odd: [("a", odd, 1)],
        lambda odd: [("a", "h", odd)],
    ],
    "replicas": [
        lambda odd: [TopicPartitionReplica(odd, 0, 1)],
        lambda odd: [TopicPartitionReplica("orders", odd, 1)],
        lambda odd: [TopicPartitionReplica("orders", 0, odd)],
    ],
    "directories": [lambda odd: {REPLICA: odd}, lambda odd: {odd: "/x"}, lambda odd: {("orders", 0, odd): "/x"}],
    "members": [
        lambda odd: [MemberToRemove(odd)],
        lambda odd: [MemberToRemove(None, odd)],
        lambda odd: [MemberToRemove("a", None, odd)],
    ],
    "group_specs": [lambda odd: {"g": odd}, lambda odd: {odd: None}, lambda odd: {"g": [odd]}],
    "acl_filter": [
        *_acl_filters(ACLFilter),
        lambda odd: ResourcePatternFilter(odd, None, ACLResourcePatternType.ANY),
        lambda odd: ResourcePatternFilter(ResourceType.ANY, odd, ACLResourcePatternType.ANY),
        lambda odd: ResourcePatternFilter(ResourceType.ANY, None, odd),
    ],
    "acls": [
        lambda odd: [ACL(odd, "*", ACLOperation.READ, ACLPermissionType.ALLOW, ORDERS)],
        lambda odd: [ACL("User:x", odd, ACLOperation.READ, ACLPermissionType.ALLOW, ORDERS)],
        lambda odd: [ACL("User:x", "*", odd, ACLPermissionType.ALLOW, ORDERS)],
        lambda odd: [
            ACL(
                "User:x",
                "*",
                ACLOperation.READ,
                ACLPermissionType.ALLOW,
                ResourcePattern(ResourceType.TOPIC, odd),
            )
        ],
    ],
    "components": [
        lambda odd: [ClientQuotaFilterComponent(odd)],
        lambda odd: [ClientQuotaFilterComponent("user", odd)],
        lambda odd: [ClientQuotaFilterComponent("user", None, odd)],
    ],
    "alterations": [
        lambda odd: [(odd, {})],
        lambda odd: [({"user": odd}, {"producer_byte_rate": 1.0})],
        lambda odd: [({odd: "a"}, {"producer_byte_rate": 1.0})],
        lambda odd: [({"user": "a"}, odd)],
        lambda odd: [({"user": "a"}, {"producer_byte_rate": odd})],
        lambda odd: [({"user": "a"}, {odd: 1.0})],
        lambda odd: [UserScramCredentialDeletion(odd, 1)],
        lambda odd: [UserScramCredentialDeletion("a", odd)],
        lambda odd: [UserScramCredentialUpsertion(odd, 1, "p", 1)],
        lambda odd: [UserScramCredentialUpsertion("a", odd, "p", 1)],
        lambda odd: [UserScramCredentialUpsertion("a", 1, odd, 1)],
        lambda odd: [UserScramCredentialUpsertion("a", 1, "p", odd)],
        lambda odd: [UserScramCredentialUpsertion("a", 1, "p", 1, odd)],
    ],
    "open_transactions": [lambda odd: {odd: (1, 0)}, lambda odd: {"t": odd}, lambda odd: {"t": (odd, 0)}],
    "spec": [
        lambda odd: AbortTransactionSpec(odd, 1, 1),
        lambda odd: AbortTransactionSpec(TP, odd, 1),
        lambda odd: AbortTransactionSpec(TP, 1, odd),
        lambda odd: AbortTransactionSpec(TP, 1, 1, odd),
    ],
}
#: The methods of aiokafka's admin client, which only the one for asyncio has.
AIOKAFKA_CALLS: dict[str, dict[str, Any]] = {
    "find_coordinator": {"group_id": "g", "coordinator_type": 0},
    "list_consumer_groups": {"broker_ids": [1]},
    "describe_consumer_groups": {
        "group_ids": ["g"],
        "group_coordinator_id": None,
        "include_authorized_operations": False,
    },
    "list_consumer_group_offsets": {"group_id": "g", "group_coordinator_id": None, "partitions": [TP]},
    "alter_configs": {"config_resources": []},
}
#: Methods that belong to the life of a client, or make one.
LIFE = {"close", "start", "in_environment", "of_client", "of_components"}


@pytest.mark.parametrize(
    ("cls", "calls"),
    [(Admin, CALLS | OTHERS), (AIOKafkaAdminClient, CALLS | OTHERS | AIOKAFKA_CALLS), (KafkaAdminClient, KAFKA_CALLS)],
    ids=["admin", "asyncio", "kafka-python"],
)
def test_tables_cover_each_argument_of_each_method(cls: Any, calls: dict[str, dict[str, Any]]) -> None:
    check_that_none_is_left_out(cls, calls, LIFE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("orders", partitions=2)
        yield running


@pytest.fixture(autouse=True)
def no_unexpected_errors(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no call has failed while its request was made, which ends all other calls too."""
    yield
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert {topic.name for topic in admin.list_topics()} <= {"orders", "new"}  # without validate_only
        assert len(admin.describe_topics(["orders"])["orders"].partitions) in {2, 5}


def test_admin_refuses_odd_arguments(cluster: EmbeddedCluster) -> None:
    refusals = Refusals()
    with Admin(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5) as admin:
        for _, call in odd_calls(CALLS | OTHERS, ODD):
            with refusals.counted():
                call(admin)
    assert refusals.count > 7000


def _made(make: Callable[[Any], Any], odd: Any) -> Any:
    """Return a value with an odd one inside of it; None if that cannot be the key of a dict."""
    try:
        return make(odd)
    except (TypeError, ValueError) as error:
        if "hash" in str(error) and not isinstance(error, IllegalArgumentError):
            return None
        raise


def test_admin_refuses_odd_values_inside_arguments(cluster: EmbeddedCluster) -> None:
    refusals = Refusals()
    used = set()
    with Admin(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5) as admin:
        for method, valid in CALLS.items():
            for name in valid.keys() & INSIDE.keys():
                used.add(name)
                for make in INSIDE[name]:
                    for odd in ODD:
                        with refusals.counted():
                            if (given := _made(make, odd)) is not None:
                                getattr(admin, method)(**{**valid, name: given})
    assert used == INSIDE.keys()
    assert refusals.count > 9000


def test_kafka_admin_client_refuses_odd_arguments(cluster: EmbeddedCluster) -> None:
    refusals = Refusals()
    with KafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers,
        retry_backoff_ms=5,
        default_api_timeout_ms=100,
        request_timeout_ms=100,
    ) as admin:
        for _, call in odd_calls(KAFKA_CALLS, ODD):
            with refusals.counted():
                call(admin)
    assert refusals.count > 6000


def test_asyncio_admin_client_refuses_odd_arguments(cluster: EmbeddedCluster) -> None:
    async def main() -> int:
        refusals = Refusals()
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5) as admin:
            for _, call in odd_calls(CALLS | OTHERS, ODD):
                with refusals.counted():
                    called = call(admin)
                    if asyncio.iscoroutine(called):
                        await called
        return refusals.count

    assert run(main()) > 7000


class GeneratorFailedError(Exception):
    pass


def _failing() -> Iterator[Any]:
    yield "orders"
    raise GeneratorFailedError


def test_errors_of_iterator_arguments_reach_caller(cluster: EmbeddedCluster) -> None:
    raised = 0
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for method, valid in CALLS.items():
            for name in valid:
                try:
                    getattr(admin, method)(**{**valid, name: _failing()})
                except IllegalArgumentError:
                    continue
                except GeneratorFailedError:
                    raised += 1
                else:
                    pytest.fail(f"{method}({name}=...)")
    assert raised > 20


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (5, "5"), (Number.ONE, "1"), (0.5, "0.5"), (np.float64(0.5), "0.5"), ("a", "a"), (None, None)],
)
def test_config_value_is_converted_to_text(value: object, text: str | None) -> None:
    assert config_value(value, "retention.ms") == text


def test_resource_type_is_built_from_number_name_or_member() -> None:
    right: list[Any] = [2, "topic", " TOPIC ", ConfigResourceType.TOPIC, np.int64(2)]
    for given in right:
        assert ConfigResourceType.build_from(given) is ConfigResourceType.TOPIC
    wrong: list[Any] = [2.0, True, b"topic", np.array([2, 4]), 10**5000]
    for given in wrong:
        with pytest.raises(IllegalArgumentError, match=r"there is no ConfigResourceType .*; there are UNKNOWN, TOPIC"):
            ConfigResourceType.build_from(given)


def test_too_many_iterations_of_a_hash_are_refused_at_once() -> None:
    with pytest.raises(IllegalArgumentError, match="iterations is 2147483647; it must be from 1 to 131072"):
        UserScramCredentialUpsertion("a", 1, "p", (1 << 31) - 1)


def test_config_keys_to_describe_must_be_list(cluster: EmbeddedCluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(IllegalArgumentError, match=r"configs of ConfigResource orders=TOPIC is 'retention\.ms'"):
            admin.describe_configs([ConfigResource("topic", "orders", "retention.ms")])
        (described,) = admin.describe_configs(_configs(iter(["retention.ms"]))).succeeded.values()
        assert list(described) == ["retention.ms"]
