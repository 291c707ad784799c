"""kafka-python's sticky partitioner (KIP-480)."""

from __future__ import annotations

import random
import threading
from typing import Any

from pykclient.partitioner.abc import ClusterMetadata, partitions_of
from pykclient.partitioner.default import DefaultPartitioner


class StickyPartitioner(DefaultPartitioner):
    """Keyed records as DefaultPartitioner does; others to one partition until ``on_new_batch``. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards: _sticky
        self._sticky: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int | None:
        if serialized_key is not None or isinstance(cluster, ClusterMetadata):
            return super().partition(topic, key, serialized_key, value, serialized_value, cluster)
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
