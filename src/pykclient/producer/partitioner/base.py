"""What a partitioner is (Java: Partitioner)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from pykclient.network.cluster import Cluster


class Partitioner(ABC):
    """Chooses the partition of records that do not name theirs. Subclass it, or hand in any callable.

    A subclass with a method ``on_new_batch(topic, cluster, prev_partition)`` is told when its choice would begin a new
    batch, and then asked once more: so it can stay with one partition while a batch fills (KIP-480).

    Thread: any; several application threads may call at the same time.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: B027 - optional
        """Called once with the producer's configuration, by its dotted keys."""

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
        """The partition's number, or None to leave the choice to the built-in sticky partitioner.

        ``cluster.partitions_for_topic(topic)`` lists them all, ``available_partitions_for_topic`` those with a leader.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Called once when the producer closes."""


class CallablePartitioner(Partitioner):
    """A plain function with kafka-python's signature: ``f(key_bytes, all_partitions, available_partitions) -> int``.

    Both lists hold partition numbers in ascending order. Thread: any, as far as the function is.
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
