"""The queue of a partition: its lock, its batches, and the bytes that count until the sticky partition changes."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from pykclient.implementation import use_compiled
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.types import Node


def new_lock() -> threading.Lock:
    """Return a lock. The compiled form returns one that C code takes without a Python call."""
    return threading.Lock()


class QueueState:
    """The state of a queue. The compiled form stores numbers as C integers."""

    __slots__ = (
        "batches",
        "due_ms",
        "last_batch_bytes",
        "leader",
        "leader_epoch",
        "lock",
        "snapshot",
        "topic_info",
        "topic_partition",
    )
    due_ms: int
    leader: Node | None
    leader_epoch: int | None
    snapshot: MetadataSnapshot | None
    topic_info: Any

    def __init__(self, topic_partition: TopicPartition, batches: deque[Any]) -> None:
        self.topic_partition = topic_partition
        self.lock = new_lock()  # guards: batches, the open batch, the sticky partition's produced_bytes
        self.batches = batches
        self.last_batch_bytes = 0  # the size of the last batch sent


class StickyPartitionInfo:
    """The current partition and the bytes appended to it. Changes only under the lock of the partition's queue."""

    __slots__ = ("partition", "produced_bytes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.produced_bytes = 0


class StickyState:
    """The current partition of a topic. Any thread replaces it, and reads it without a lock."""

    __slots__ = ("sticky",)
    sticky: StickyPartitionInfo | None


use_compiled(__name__)
