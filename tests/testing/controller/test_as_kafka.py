"""The admin APIs give the same error codes and texts as a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Message, Request
from pykclient.protocol.messages.alter_configs import AlterConfigsRequest
from pykclient.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from pykclient.protocol.messages.create_partitions import CreatePartitionsRequest
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest
from pykclient.protocol.messages.describe_configs import DescribeConfigsRequest
from pykclient.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from pykclient.protocol.messages.elect_leaders import ElectLeadersRequest
from pykclient.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from pykclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.testing.controller.config_manager import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
)
from tests.kafka.cluster import KafkaCluster
from tests.support.wait import eventually
from tests.testing.controller.harness import ClusterHarness
from tests.testing.handlers.raw_client import RawClient

#: Fields that differ between clusters.
_IGNORED = {
    "throttle_time_ms",
    "topic_id",
    "cluster_id",
    "host",
    "port",
    "rack",
    "controller_id",
    "topic_config_error_code",
}

UNKNOWN_ID = UUID(int=5)


def create(*topics: CreateTopicsRequest.CreatableTopic, validate_only: bool = False) -> Request:
    return CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)


def automatic(
    name: str, partitions: int = 1, replicas: int = 1, config: tuple[str, str | None] | None = None
) -> CreateTopicsRequest.CreatableTopic:
    configs = [] if config is None else [CreateTopicsRequest.CreatableTopicConfig(name=config[0], value=config[1])]
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
    )


def manual(
    name: str, *assignment: tuple[int, list[int]], partitions: int = -1, replicas: int = -1
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in assignment
        ],
    )


def extend(name: str, count: int, *assignments: list[int], times: int = 1, validate_only: bool = False) -> Request:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None,
    )
    return CreatePartitionsRequest(topics=[topic] * times, timeout_ms=10_000, validate_only=validate_only)


def delete(*states: tuple[str | None, int]) -> Request:
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=UUID(int=id)) for name, id in states],
        timeout_ms=10_000,
    )


def describe(type: int, name: str, *keys: str) -> Request:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=type, resource_name=name, configuration_keys=keys or None
    )
    return DescribeConfigsRequest(resources=[resource])


def alter(type: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Request:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=type, resource_name=name, configs=configs
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replace(type: int, name: str, *configs: tuple[str, str | None]) -> Request:
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=type,
        resource_name=name,
        configs=[AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    return AlterConfigsRequest(resources=[resource])


def elect(type: int, name: str, partition: int) -> Request:
    topic = ElectLeadersRequest.TopicPartitions(topic=name, partitions=[partition])
    return ElectLeadersRequest(election_type=type, topic_partitions=[topic])


def move(name: str, partition: int, replicas: list[int] | None, allow: bool = True) -> Request:
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=replicas)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[wanted])
    return AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=allow)


def metadata(*topics: tuple[str | None, int], auto_create: bool = False) -> Request:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name, topic_id=UUID(int=id)) for name, id in topics],
        allow_auto_topic_creation=auto_create,
    )


def page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Request:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def conversation(prefix: str) -> list[Request]:
    """Return requests that create, change and delete topics named ``prefix...``, with every possible mistake."""
    t, c, no = f"{prefix}t", f"{prefix}c", f"{prefix}no"
    return [
        *(create(automatic(name)) for name in ("", ".", "..", "x" * 250, "a b", f"{prefix}old_name")),
        *(create(automatic(name)) for name in (f"{prefix}old.name", f"{prefix}old_name", "__cluster_metadata")),
        *(create(automatic(t, partitions=partitions)) for partitions in (0, -2)),
        *(create(automatic(t, replicas=replicas)) for replicas in (0, -2, 2)),
        *(create(automatic(t, config=config)) for config in (("no.such", "1"), ("retention.ms", None))),
        create(manual(t, (0, [1]), partitions=1)),
        create(manual(t, (0, [1]), replicas=1)),
        *(create(manual(t, (0, ids))) for ids in ([], [1, 1], [9], [-1])),
        create(manual(t, (1, [1]))),
        create(manual(t, (0, [1]), (1, []))),
        create(manual(t, (0, [1]), (0, [1]))),
        create(automatic(f"{prefix}twice"), automatic(f"{prefix}twice")),
        create(automatic(t, 2), validate_only=True),
        create(automatic(t, 2)),
        create(automatic(c, config=("retention.ms", "1000"))),
        *(extend(name, 2) for name in (no, "a b")),
        *(extend(t, count) for count in (2, 1, 0, -1)),
        *(extend(t, 3, ids) for ids in ([9], [], [1, 1])),
        extend(t, 4, [1]),
        extend(t, 9, times=2),
        extend(t, 4, validate_only=True),
        extend(t, 3),
        *(describe(TOPIC, name) for name in (no, "a b", "")),
        describe(TOPIC, t, "no.such"),
        describe(TOPIC, c, "retention.ms", "cleanup.policy", "max.message.bytes"),
        *(describe(BROKER, name) for name in ("9", "x")),
        *(describe(type, "") for type in (CLIENT_METRICS, GROUP)),
        *(describe(type, name) for type, name in ((BROKER_LOGGER, "9"), (BROKER_LOGGER, ""), (0, t), (99, t))),
        alter(TOPIC, c, ("no.such", SET, "1")),
        alter(TOPIC, c, ("", SET, "1")),
        alter(TOPIC, c, ("retention.ms", SET, None)),
        alter(TOPIC, c, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        *(alter(TOPIC, name, ("retention.ms", SET, "1")) for name in (no, "a b", "")),
        *(alter(TOPIC, c, ("retention.ms", operation, "1")) for operation in (APPEND, SUBTRACT)),
        alter(TOPIC, c, ("cleanup.policy", APPEND, "compact")),
        alter(TOPIC, c, ("cleanup.policy", SUBTRACT, "delete")),
        alter(TOPIC, c, ("retention.ms", SET, "5"), validate_only=True),
        describe(TOPIC, c, "retention.ms", "cleanup.policy"),
        alter(TOPIC, c, ("retention.ms", DELETE, None), ("max.message.bytes", SET, "77")),
        describe(TOPIC, c, "max.message.bytes", "cleanup.policy"),
        *(alter(BROKER, name, ("num.partitions", SET, "1")) for name in ("9", "1", "x")),
        alter(99, c, ("a", SET, "b")),
        *(replace(TOPIC, name, ("retention.ms", "7")) for name in (no, c)),
        *(replace(TOPIC, c, config) for config in (("no.such", "7"), ("retention.ms", None))),
        describe(TOPIC, c, "retention.ms", "cleanup.policy"),
        *(elect(0, name, partition) for name, partition in ((no, 0), (t, 9), (t, 0))),
        elect(1, t, 0),
        *(move(name, partition, [1]) for name, partition in ((no, 0), (t, 9), (t, 0))),
        *(move(t, 0, replicas) for replicas in ([], [1, 1], [-1], [9], None)),
        metadata((no, 0), ("a b", 0), (t, 0), ("", 0)),
        metadata((None, 9)),
        metadata(("a b", 0), auto_create=True),
        *(DescribeClusterRequest(endpoint_type=endpoint_type) for endpoint_type in (2, 7)),
        page(t, no, "a b"),
        page(t, limit=1),
        *(page(t, cursor=cursor) for cursor in (("!", 0), (t, -1), (t, 2), (t, 9))),
        ListConfigResourcesRequest(resource_types=[99]),
        delete((no, 0)),
        delete((None, 0)),
        delete((t, 5)),
        delete((None, 5)),
        delete((t, 0), (t, 0)),
        *(delete((name, 0)) for name in ("", "a b", c, t, t, f"{prefix}old_name")),
    ]


def plain(value: Any) -> Any:
    """Return a message without the fields that differ between clusters, and with sorted lists."""
    if isinstance(value, Message):
        fields = {name: plain(getattr(value, name)) for name in value.__slots__ if name not in _IGNORED}
        if type(value).__qualname__ == "CreateTopicsResponse.CreatableTopicResult" and fields["configs"]:
            # Compare only the names: the real test broker's settings are not the defaults.
            fields["configs"] = sorted(config["name"] for config in fields["configs"])
        return fields
    if isinstance(value, list):
        return sorted(map(plain, value), key=lambda element: json.dumps(element, default=str))
    return value


#: The requests that change nothing, and may be repeated.
READING = (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ListConfigResourcesRequest,
    MetadataRequest,
)


def are_equal(answer: Any, ask: Callable[[], Message]) -> bool:
    assert answer == plain(ask())
    return True


def test_responses_equal_kafkas(kafka: KafkaCluster, topic: str) -> None:
    cluster = ClusterHarness(1)
    prefix = f"{topic[-8:]}."
    with RawClient(kafka.bootstrap_servers) as client:
        for request in conversation(prefix):
            kind = ApiKeys.message_class(request.API_KEY, request=False)
            version = ApiKeys.latest_version(request.API_KEY)
            answer = plain(cluster.ask(request, kind))
            cluster.settle()
            ask = partial(client.ask, request, version, kind)
            if isinstance(request, READING):
                eventually(partial(are_equal, answer, ask))  # a broker of Kafka learns of changes a little later
            else:
                assert answer == plain(ask()), request
