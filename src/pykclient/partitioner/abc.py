"""The base of partitioners written for kafka-python, and the cluster metadata that they are given."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from pykclient.network.cluster import Cluster
from pykclient.producer.partitioner import Partitioner as JavaPartitioner


class ClusterMetadata:
    """A cluster with the methods that kafka-python's partitioners call. Thread: any."""

    __slots__ = ("_cluster",)

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
        self,
        key: bytes | None,
        all_partitions: Sequence[int],
        available_partitions: Sequence[int] = (),
    ) -> int | None:
        """Return the partition for a serialized key, as in kafka-python 2."""
        return self.partition("", key, key, None, None, _Partitions(all_partitions, available_partitions))


class _Partitions:
    """The partitions of the one topic that a call is about, as cluster metadata."""

    __slots__ = ("_all", "_available")

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
