"""The partitioners that an application can configure or write (Java: Partitioner; KIP-480)."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from pykclient.clock import HERE
from pykclient.network.metadata import Cluster
from pykclient.producer.partitioner.hashing import POSITIVE, crc32, fnv1a, murmur2


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


class KeyPartitioner(Partitioner):
    """Base class of partitioners that see nothing of a record but its serialized key. Thread: any."""

    @abstractmethod
    def choose(self, topic: str, serialized_key: bytes | None, cluster: Cluster) -> int | None:
        """Return what ``partition`` does."""

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int | None:
        return self.choose(topic, serialized_key, cluster)


class CallablePartitioner(KeyPartitioner):
    """A function with kafka-python's signature: ``f(key_bytes, all_partitions, available_partitions) -> int``.

    Both lists contain partition numbers in ascending order. Thread: any, if the function allows it.
    """

    def __init__(self, function: Callable[[bytes | None, list[int], list[int]], int]) -> None:
        self._function = function

    def choose(self, topic: str, serialized_key: bytes | None, cluster: Cluster) -> int:
        everything = sorted(info.partition for info in cluster.partitions_for_topic(topic))
        available = sorted(info.partition for info in cluster.available_partitions_for_topic(topic))
        return self._function(serialized_key, everything, available)


class RoundRobinPartitioner(KeyPartitioner):
    """Sends each record to the next partition, with or without a key (Java: RoundRobinPartitioner). Thread: any."""

    def __init__(self) -> None:
        self._counters: defaultdict[str, Iterator[int]] = defaultdict(count)

    def choose(self, topic: str, serialized_key: bytes | None, cluster: Cluster) -> int:  # noqa: ARG002
        candidates = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return candidates[next(self._counters[topic]) % len(candidates)].partition


class UniformStickyPartitioner(KeyPartitioner):
    """Fills a batch of one partition, then picks another at random, with or without keys (KIP-480). Thread: any.

    Java removed it in 4.0 in favour of the built-in partitioner with ``partitioner.ignore.keys=true``, which also
    spreads records evenly if some brokers are slow.
    """

    takes_rng = True

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._lock = threading.Lock()  # guards: _current
        self._current: dict[str, int] = {}

    def choose(self, topic: str, serialized_key: bytes | None, cluster: Cluster) -> int:  # noqa: ARG002
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


class HashPartitioner(KeyPartitioner):
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

    def choose(self, topic: str, serialized_key: bytes | None, cluster: Cluster) -> int | None:
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


class RandomPartitioner(KeyPartitioner):
    """Picks a random partition that has a leader, with or without a key. librdkafka: ``random``. Thread: any."""

    takes_rng = True

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()

    def choose(self, topic: str, serialized_key: bytes | None, cluster: Cluster) -> int:  # noqa: ARG002
        candidates = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        return candidates[self._rng.randrange(len(candidates))].partition


class Murmur3Partitioner(HashPartitioner):
    """MurmurHash3 (x86, 32 bits, seed 0), sign cleared. It spreads short, similar keys better than MurmurHash2."""

    def __init__(self) -> None:
        import mmh3  # a C extension that most programs do not need

        self._hash = mmh3.hash

    def hash(self, key: bytes) -> int:
        return self._hash(key, 0, False) & POSITIVE
