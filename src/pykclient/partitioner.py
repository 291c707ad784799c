"""Partitioners as kafka-python has them, for programs written for it.

They work in a producer, by themselves with any object that has kafka-python's methods of cluster metadata, and as a
function of ``(key, all_partitions, available_partitions)``. Java's kind is ``pykclient.Partitioner``.

Keyed records go to the same partitions as with kafka-python, by MurmurHash2 of the key. In a producer, records without
a key go to the built-in sticky partition (KIP-794).
"""

from __future__ import annotations

import functools
import random
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from pykclient.foreign_names import provide_modules
from pykclient.network.metadata import Cluster
from pykclient.producer.partitioner import Partitioner as JavaPartitioner
from pykclient.producer.partitioner.hashing import POSITIVE, murmur2

__all__ = ["DefaultPartitioner", "Partitioner", "RoundRobinPartitioner", "StickyPartitioner", "murmur2"]


class ClusterMetadata:
    """A cluster with the methods that kafka-python's partitioners call. Thread: any."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topics(self) -> set[str]:
        """Return the names of all known topics."""
        return set(self._cluster.topics)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of all partitions of a topic."""
        return {info.partition for info in self._cluster.partitions_for_topic(topic)}

    def available_partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of the partitions of a topic that have a leader."""
        return {info.partition for info in self._cluster.available_partitions_for_topic(topic)}


class Partitioner(JavaPartitioner):
    """Base of partitioners written for kafka-python. Their methods get a ClusterMetadata.

    Thread: any; several application threads may call at the same time.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("partition", "on_new_batch"):
            if name in cls.__dict__:
                setattr(cls, name, _with_cluster_metadata(cls.__dict__[name]))

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int | None:
        """Return the number of the partition for a record.

        None leaves the choice to the producer's sticky partition.
        """

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available_partitions: Sequence[int] = ()
    ) -> int | None:
        """Return the partition for a serialized key, as in kafka-python 2."""
        return self.partition("", key, key, None, None, _Partitions(all_partitions, available_partitions))


class _Partitions:
    """The partitions of the one topic that a call is about, as cluster metadata."""

    def __init__(self, all_partitions: Sequence[int], available: Sequence[int]) -> None:
        self._all = set(all_partitions)
        self._available = set(available)

    def topics(self) -> set[str]:
        return {""}

    def partitions_for_topic(self, topic: str) -> set[int]:  # noqa: ARG002
        return self._all

    def available_partitions_for_topic(self, topic: str) -> set[int]:  # noqa: ARG002
        return self._available


def _with_cluster_metadata(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with its Cluster arguments replaced by a ClusterMetadata."""

    @functools.wraps(method)
    def wrapped(self: Partitioner, *args: Any, **kwargs: Any) -> Any:
        args = tuple(ClusterMetadata(value) if isinstance(value, Cluster) else value for value in args)
        return method(self, *args, **kwargs)

    return wrapped


def partitions_of(topic: str, cluster: Any) -> tuple[list[int], list[int]]:
    """Return all partitions of a topic and those with a leader, both in ascending order.

    Raises:
        ValueError: The cluster metadata does not have the topic.
    """
    if topic not in cluster.topics():
        raise ValueError(f"topic {topic!r} not found in the cluster metadata")
    everything = sorted(cluster.partitions_for_topic(topic))
    return everything, sorted(cluster.available_partitions_for_topic(topic) or ())


class _KafkaPythons(Partitioner):
    """Base of kafka-python's own partitioners, which look at the serialized key and the cluster alone."""

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Any,
    ) -> int | None:
        return self._choose(topic, serialized_key, cluster)

    def _choose(self, topic: str, serialized_key: bytes | None, cluster: Any) -> int | None:
        raise NotImplementedError


class DefaultPartitioner(_KafkaPythons):
    """Partitions keyed records by MurmurHash2, and others randomly among partitions with a leader.

    In a producer, records without a key go to the built-in sticky partition instead (KIP-794). Thread: any.
    """

    def _choose(self, topic: str, serialized_key: bytes | None, cluster: Any) -> int | None:
        everything, available = partitions_of(topic, cluster)
        if serialized_key is not None:
            return everything[(murmur2(serialized_key) & POSITIVE) % len(everything)]
        if isinstance(cluster, ClusterMetadata):
            return None
        return random.choice(available or everything)


class RoundRobinPartitioner(_KafkaPythons):
    """Sends each record of a topic to the next partition with a leader, whatever its key.

    ``partitions`` are the partitions to use before any are passed in. Thread: any.
    """

    def __init__(self, partitions: Sequence[int] | None = None) -> None:
        self._default = sorted(partitions or ())
        self._lock = threading.Lock()  # guards: _last
        self._last: dict[str, int] = {}

    def _choose(self, topic: str, serialized_key: bytes | None, cluster: Any) -> int:  # noqa: ARG002
        everything, available = partitions_of(topic, cluster)
        return self._next(topic, available or everything)

    def __call__(
        self,
        key: bytes | None = None,  # noqa: ARG002 - the signature of the base
        all_partitions: Sequence[int] = (),
        available_partitions: Sequence[int] = (),
    ) -> int:
        """Return the next partition of those given, as in kafka-python 2."""
        return self._next("", sorted(available_partitions or all_partitions or self._default))

    def _next(self, topic: str, partitions: list[int]) -> int:
        """Return the smallest partition above the last one, or the first; so a list that changes skips none."""
        if not partitions:
            raise ValueError("there are no partitions to choose from")
        with self._lock:
            last = self._last.get(topic, -1)
            chosen = next((partition for partition in partitions if partition > last), partitions[0])
            self._last[topic] = chosen
        return chosen


class StickyPartitioner(DefaultPartitioner):
    """Partitions keyed records like DefaultPartitioner, others to one partition until ``on_new_batch``. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards: _sticky
        self._sticky: dict[str, int] = {}

    def _choose(self, topic: str, serialized_key: bytes | None, cluster: Any) -> int | None:
        if serialized_key is not None or isinstance(cluster, ClusterMetadata):
            return super()._choose(topic, serialized_key, cluster)
        everything, available = partitions_of(topic, cluster)
        with self._lock:
            current = self._sticky.get(topic)
            if current not in (available or everything):
                current = self._sticky[topic] = random.choice(available or everything)
            return current

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """Choose another partition of a topic, unless another thread already has."""
        with self._lock:
            if self._sticky.get(topic) != prev_partition or topic not in cluster.topics():
                return
            everything, available = partitions_of(topic, cluster)
            candidates = [partition for partition in available if partition != prev_partition]
            self._sticky[topic] = random.choice(candidates or available or everything)


provide_modules(
    __name__,
    {
        "abc": {"Partitioner": Partitioner},
        "default": {"DefaultPartitioner": DefaultPartitioner, "murmur2": murmur2},
        "hashed": {"murmur2": murmur2},
        "roundrobin": {"RoundRobinPartitioner": RoundRobinPartitioner},
        "sticky": {"StickyPartitioner": StickyPartitioner},
    },
)
