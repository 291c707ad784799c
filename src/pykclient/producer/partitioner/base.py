"""The interface of partitioners (Java: Partitioner)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from pykclient.network.cluster import Cluster


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
