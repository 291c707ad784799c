"""The default partitioner: one partition until a batch is full, then another by load (KIP-480, KIP-794).

Java: BuiltInPartitioner.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable

from pykclient.errors import IllegalArgumentError
from pykclient.network.cluster import Cluster
from pykclient.producer.outbox import StickyPartitionInfo as StickyPartitionInfo
from pykclient.producer.outbox import StickyState


class PartitionLoadStats:
    """Partition ids and running sums of weights: ``ids[i]`` owns the numbers from ``sums[i-1]`` up to ``sums[i]``."""

    __slots__ = ("ids", "sums")

    def __init__(self, sums: list[int], ids: list[int]) -> None:
        self.sums = sums
        self.ids = ids


class BuiltInPartitioner(StickyState):
    """The sticky partitioner of one topic.

    The accumulator reads the current partition without a lock, takes the lock of that partition's queue, and then
    checks with ``is_partition_changed`` whether another thread has switched in between. Statistics are replaced as a
    whole, so any thread may read them. Thread: any.
    """

    __slots__ = ("_look_at_load", "_rng", "_sticky_batch_size", "load_stats", "topic")

    def __init__(
        self,
        topic: str,
        sticky_batch_size: int,
        rng: random.Random | None = None,
        look_at_load: Callable[[Cluster], None] | None = None,
    ) -> None:
        """``look_at_load`` is called before a partition is chosen, to update ``load_stats``."""
        if sticky_batch_size < 1:
            raise IllegalArgumentError(f"sticky_batch_size must be at least 1, but is {sticky_batch_size}")
        self.topic = topic
        self._sticky_batch_size = sticky_batch_size
        self._rng = rng or random.Random()
        self._look_at_load = look_at_load
        self.load_stats: PartitionLoadStats | None = None
        self.sticky = None

    def next_partition(self, cluster: Cluster) -> int:
        """Return a partition drawn at random, weighted by load if that is known.

        Otherwise all partitions with a leader are equally likely, or all partitions if none has a leader.
        """
        if self._look_at_load is not None:
            self._look_at_load(cluster)
        stats = self.load_stats
        if stats is not None:
            return stats.ids[bisect_right(stats.sums, self._rng.randrange(stats.sums[-1]))]
        candidates = cluster.available_partitions_for_topic(self.topic) or cluster.partitions_for_topic(self.topic)
        return candidates[self._rng.randrange(len(candidates))].partition

    def peek_current_partition_info(self, cluster: Cluster) -> StickyPartitionInfo:
        """Return the current partition; the first caller chooses it.

        Two threads may both find none. The second assignment wins; the first thread notices under the queue lock and
        starts again.
        """
        info = self.sticky
        if info is None:
            info = self.sticky = StickyPartitionInfo(self.next_partition(cluster))
        return info

    def is_partition_changed(self, info: StickyPartitionInfo | None) -> bool:
        return info is not None and self.sticky is not info

    def update_partition_info(
        self, info: StickyPartitionInfo | None, appended_bytes: int, cluster: Cluster, enable_switch: bool = True
    ) -> None:
        """Count ``appended_bytes``, and switch after a batch's worth of bytes.

        The caller holds the partition's queue lock.

        The caller disables the switch while a batch is open: leaving a half-full batch would send two small batches
        instead of a full one. After twice the batch size, the partition changes in any case.
        """
        if info is None:
            return
        info.produced_bytes += appended_bytes
        produced = info.produced_bytes
        if produced >= self._sticky_batch_size and (enable_switch or produced >= self._sticky_batch_size * 2):
            self.sticky = StickyPartitionInfo(self.next_partition(cluster))

    def update_partition_load_stats(
        self, queue_sizes: list[int] | None, partition_ids: list[int], partition_count: int
    ) -> None:
        """Compute weights from the queue lengths of the usable partitions: a longer queue gets fewer records.

        ``partition_count`` counts all partitions of the topic, also those excluded because they have no leader or a
        slow one. A weight is the longest length plus one, minus the partition's own length, so lengths 0, 3, 1 get
        weights 4, 1, 3. All partitions are equally likely if there are no queue lengths, or if none is excluded and the
        lengths are equal.
        """
        if not queue_sizes or partition_count < 2:
            self.load_stats = None
            return
        longest = max(queue_sizes)
        if min(queue_sizes) == longest and len(queue_sizes) == partition_count:
            self.load_stats = None
            return
        sums: list[int] = []
        total = 0
        for size in queue_sizes:
            total += longest + 1 - size
            sums.append(total)
        self.load_stats = PartitionLoadStats(sums, partition_ids)
