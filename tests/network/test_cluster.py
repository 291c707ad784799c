"""The snapshot of the cluster's metadata."""

from __future__ import annotations

import uuid

from pykclient.network.metadata import Cluster
from pykclient.types import Node, PartitionInfo, TopicPartition

NODES = [Node(id, f"h{id}", 9092) for id in range(3)]
A = PartitionInfo("a", 0, NODES[0], (NODES[0], NODES[1]), (NODES[0],), (NODES[1],))
B = PartitionInfo("a", 1, None, (NODES[2],), ())
CLUSTER = Cluster("c", NODES, [A, B], topic_ids={"a": uuid.UUID(int=7)})


def test_cluster_answers_lookups_by_topic_and_partition() -> None:
    assert CLUSTER.partition(TopicPartition("a", 0)) == A
    assert CLUSTER.leader_for(TopicPartition("a", 1)) is None
    assert CLUSTER.leader_for(TopicPartition("x", 1)) is None
    assert CLUSTER.partitions_for_topic("a") == (A, B)
    assert CLUSTER.available_partitions_for_topic("a") == (A,)
    assert CLUSTER.partitions_for_topic("x") == CLUSTER.available_partitions_for_topic("x") == ()
    assert CLUSTER.partition_count_for_topic("a") == 2
    assert CLUSTER.partition_count_for_topic("x") is None
    assert CLUSTER.topics == {"a"}
    assert CLUSTER.node_by_id(2) is NODES[2]
    assert CLUSTER.topic_ids == {"a": uuid.UUID(int=7)}
    assert CLUSTER.topic_names == {uuid.UUID(int=7): "a"}


def test_node_if_online_returns_online_replicas_only() -> None:
    partition = TopicPartition("a", 0)
    assert CLUSTER.node_if_online(partition, 0) is NODES[0]
    assert CLUSTER.node_if_online(partition, 1) is None  # offline
    assert CLUSTER.node_if_online(partition, 2) is None  # no replica
    assert CLUSTER.node_if_online(partition, 9) is None
    assert CLUSTER.node_if_online(TopicPartition("x", 0), 0) is None


def test_clusters_with_equal_contents_are_equal() -> None:
    same = Cluster("c", NODES, [A, B], topic_ids={"a": uuid.UUID(int=7)})
    assert same == CLUSTER
    assert hash(same) == hash(CLUSTER)
    assert Cluster("c", NODES, [A]) != CLUSTER
    assert Cluster.empty().nodes == ()
    assert not Cluster.empty().is_bootstrap_configured
