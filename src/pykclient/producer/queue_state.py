"""The queue of a partition: its lock, its batches, and the bytes that count until the sticky partition changes."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.implementation import use_compiled
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.producer.producer_batch import ProducerBatch


class QueueState:
    """The state of a queue. The compiled form has a lock that needs no Python call."""

    __slots__ = ("batches", "lock", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, batches: deque[ProducerBatch]) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.Lock()  # guards: batches, the open batch, the sticky partition's produced_bytes
        self.batches = batches


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
