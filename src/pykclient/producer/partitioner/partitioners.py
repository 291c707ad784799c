"""The default partitioner and those of applications (Java: BuiltInPartitioner, Partitioner; KIP-480, KIP-794)."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from pykclient.errors import IllegalArgumentError
from pykclient.network.metadata import Cluster
from pykclient.producer.outbox import StickyPartitionInfo as StickyPartitionInfo, StickyState
from pykclient.producer.partitioner.hashing import POSITIVE, crc32, fnv1a, murmur2
from pykclient.reentry import HERE


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
            return stats.ids[bisect_right(stats.sums, int(self._rng.random() * stats.sums[-1]))]
        candidates = cluster.available_partitions_for_topic(self.topic) or cluster.partitions_for_topic(self.topic)
        return candidates[int(self._rng.random() * len(candidates))].partition

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


class Partitioner(ABC):
    """Chooses the partition of records sent without one.

    Subclass it, or configure any callable. If a subclass has a method ``on_new_batch(topic, cluster, prev_partition)``,
    the producer calls it when the choice would start a new batch, and then calls ``partition`` again. So a partitioner
    can stay with one partition while a batch fills (KIP-480).

    Thread: any; several application threads may call at the same time.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: B027 - optional
        """Configure the partitioner. The producer calls it once, with its configuration by Kafka's keys."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int | None:
        """Return the partition's number, or None to let the built-in sticky partitioner choose.

        ``cluster.partitions_for_topic(topic)`` lists all partitions, ``available_partitions_for_topic`` those with a
        leader.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Release resources. The producer calls it once when it closes."""


class CallablePartitioner(Partitioner):
    """A function with kafka-python's signature: ``f(key_bytes, all_partitions, available_partitions) -> int``.

    Both lists contain partition numbers in ascending order. Thread: any, if the function allows it.
    """

    def __init__(self, function: Callable[[bytes | None, list[int], list[int]], int]) -> None:
        self._function = function

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        everything = sorted(info.partition for info in cluster.partitions_for_topic(topic))
        available = sorted(info.partition for info in cluster.available_partitions_for_topic(topic))
        return self._function(serialized_key, everything, available)


class RoundRobinPartitioner(Partitioner):
    """Sends each record to the next partition, with or without a key (Java: RoundRobinPartitioner). Thread: any."""

    def __init__(self) -> None:
        self._counters: defaultdict[str, Iterator[int]] = defaultdict(count)

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,  # noqa: ARG002
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        candidates = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return candidates[next(self._counters[topic]) % len(candidates)].partition


class UniformStickyPartitioner(Partitioner):
    """Fills a batch of one partition, then picks another at random, with or without keys (KIP-480). Thread: any.

    Java removed it in 4.0 in favour of the built-in partitioner with ``partitioner.ignore.keys=true``, which also
    spreads records evenly if some brokers are slow.
    """

    takes_rng = True

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._lock = threading.Lock()  # guards: _current
        self._current: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,  # noqa: ARG002
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        current = self._current.get(topic)
        return current if current is not None else self._switch(topic, cluster, None)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """Switch from ``prev_partition`` to another, unless another thread already has."""
        self._switch(topic, cluster, prev_partition)

    def _switch(self, topic: str, cluster: Cluster, previous: int | None) -> int:
        infos = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        candidates = [info.partition for info in infos]
        with HERE.mark, self._lock:
            current = self._current.get(topic)
            if current is not None and current != previous:
                return current
            others = [partition for partition in candidates if partition != previous] or candidates
            chosen = self._current[topic] = others[self._rng.randrange(len(others))]
            return chosen


class HashPartitioner(Partitioner):
    """Base class of partitioners that hash the key.

    Records without a key go to the built-in sticky partition or to a fixed partition. Thread: any.
    """

    #: True if records without a key are spread, False if they are hashed like an empty key.
    spreads_missing_keys = True
    #: True if an empty key counts as missing.
    spreads_empty_keys = False

    @abstractmethod
    def hash(self, key: bytes) -> int:
        """Return a hash that is not negative."""

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int | None:
        if serialized_key is None:
            if self.spreads_missing_keys:
                return None
            serialized_key = b""
        elif not serialized_key and self.spreads_empty_keys:
            return None
        return self.hash(serialized_key) % len(cluster.partitions_for_topic(topic))


class Murmur2RandomPartitioner(HashPartitioner):
    """Hashes like Java's default: MurmurHash2, sign cleared. librdkafka: ``murmur2_random``."""

    def hash(self, key: bytes) -> int:
        return murmur2(key) & POSITIVE


class Murmur2Partitioner(Murmur2RandomPartitioner):
    """MurmurHash2, with all records without a key in one partition. librdkafka: ``murmur2``."""

    spreads_missing_keys = False


class ConsistentRandomPartitioner(HashPartitioner):
    """CRC32, librdkafka's default: ``consistent_random``. Empty keys count as missing."""

    spreads_empty_keys = True

    def hash(self, key: bytes) -> int:
        return crc32(key)


class ConsistentPartitioner(ConsistentRandomPartitioner):
    """CRC32, with all records without a key in one partition. librdkafka: ``consistent``."""

    spreads_missing_keys = False
    spreads_empty_keys = False


class Fnv1aRandomPartitioner(HashPartitioner):
    """FNV-1a, like Sarama's default for keys. librdkafka: ``fnv1a_random``."""

    def hash(self, key: bytes) -> int:
        return fnv1a(key)


class Fnv1aPartitioner(Fnv1aRandomPartitioner):
    """FNV-1a, with all records without a key in one partition. librdkafka: ``fnv1a``."""

    spreads_missing_keys = False


class RandomPartitioner(Partitioner):
    """Picks a random partition that has a leader, with or without a key. librdkafka: ``random``. Thread: any."""

    takes_rng = True

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,  # noqa: ARG002
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        candidates = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return candidates[self._rng.randrange(len(candidates))].partition


class Murmur3Partitioner(HashPartitioner):
    """MurmurHash3 (x86, 32 bits, seed 0), sign cleared. It spreads short, similar keys better than MurmurHash2."""

    def __init__(self) -> None:
        import mmh3  # a C extension that most programs do not need

        self._hash = mmh3.hash

    def hash(self, key: bytes) -> int:
        return self._hash(key, 0, False) & POSITIVE
