"""The load of each partition, from which the built-in partitioner chooses (KIP-794)."""

from __future__ import annotations

from pykclient.network.cluster import Cluster
from pykclient.producer.accumulator_state import NodeLatencyStats, TopicInfo

#: The partitioner of a topic learns the queue lengths after one in this many queues has changed. With few partitions
#: that is after each change; with thousands it is not worthwhile for each batch.
_CHANGES_THAT_MATTER = 64


class PartitionLoad:
    """Tells partitioners the lengths of their queues, and excludes nodes that accept no requests.

    Thread: io, but for ``look``, which any thread may call.
    """

    __slots__ = ("_node_stats", "_unavailable_after_ms", "excludes_nodes")

    def __init__(self, unavailable_after_ms: int) -> None:
        """``unavailable_after_ms`` is ``partitioner.availability.timeout.ms``; 0 excludes no node."""
        self._unavailable_after_ms = unavailable_after_ms
        #: True if ``update`` must be told of each attempt to send to a node.
        self.excludes_nodes = unavailable_after_ms > 0
        self._node_stats: dict[int, NodeLatencyStats] = {}

    def look(self, info: TopicInfo, cluster: Cluster) -> None:
        """Tell the topic's partitioner the lengths of its queues, if enough of them have changed.

        Java does so for all topics before each request; this client does when a partition must be chosen.
        """
        unavailable_after_ms = self._unavailable_after_ms
        queues = info.queues
        is_known = cluster is info.balanced_for and info.changes * _CHANGES_THAT_MATTER < len(queues)
        if is_known and not unavailable_after_ms:  # a node may become slow without any change to a queue
            return
        info.changes = 0
        info.balanced_for = cluster
        if len(queues) < len(cluster.partitions_for_topic(info.partitioner.topic)):
            # Use no load until every partition has had a batch: a partition without a queue would never be chosen.
            info.partitioner.update_partition_load_stats(None, [], len(queues))
            return
        queue_sizes: list[int] = []
        partition_ids: list[int] = []
        all_queues = list(queues.values())  # copied in one step, because other threads may add queues
        for queue in all_queues:
            leader = cluster.leader_for(queue.topic_partition)
            if leader is None:
                continue
            stats = self._node_stats.get(leader.id) if unavailable_after_ms else None
            if stats is None or stats.ready_time_ms - stats.drain_time_ms <= unavailable_after_ms:
                queue_sizes.append(len(queue.batches))
                partition_ids.append(queue.topic_partition.partition)
        info.partitioner.update_partition_load_stats(queue_sizes, partition_ids, len(all_queues))

    def update(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """Note that ``node_id`` had data to send at ``now_ms``, and whether it could take a request."""
        stats = self._node_stats.get(node_id)
        if stats is None:
            stats = self._node_stats[node_id] = NodeLatencyStats(now_ms)
        if can_drain:
            stats.drain_time_ms = now_ms
        stats.ready_time_ms = now_ms
