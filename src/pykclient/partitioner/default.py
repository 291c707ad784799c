"""kafka-python's default partitioner."""

from __future__ import annotations

import random
from typing import Any

from pykclient.partitioner.abc import ClusterMetadata, Partitioner, partitions_of
from pykclient.producer.partitioner.hashing import POSITIVE, murmur2

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner(Partitioner):
    """Keyed records by MurmurHash2 of the key; others to a random partition with a leader.

    In a producer, records without a key go to the built-in sticky partition instead (KIP-794). Thread: any.
    """

    def partition(
        self,
        topic: str,
        key: Any,  # noqa: ARG002 - the signature of the base
        serialized_key: bytes | None,
        value: Any,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Any,
    ) -> int | None:
        everything, available = partitions_of(topic, cluster)
        if serialized_key is not None:
            return everything[(murmur2(serialized_key) & POSITIVE) % len(everything)]
        if isinstance(cluster, ClusterMetadata):
            return None
        return random.choice(available or everything)
