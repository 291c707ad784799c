"""The data structures of the accumulator: its settings, queues and results."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from pykclient.clock import FOREVER_MS
from pykclient.network.cluster import Cluster
from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.partitioner.built_in import BuiltInPartitioner
from pykclient.producer.producer_batch import ProducerBatch, RowsInBatch
from pykclient.producer.queue_state import QueueState
from pykclient.record import Compression
from pykclient.types import TopicPartition

#: The future; True if the sender has a new batch or a full one to see to; True if the record was not appended, because
#: it would have started a new batch and the caller asked to choose the partition again in that case. A plain tuple,
#: because one is created per record.
AppendResult = tuple[FutureRecordMetadata | None, bool, bool]

#: The same for rows; the first element tells which rows were appended.
AppendRowsResult = tuple[RowsInBatch | None, bool, bool]


class AccumulatorConfig:
    """The settings of a RecordAccumulator. Times are in milliseconds."""

    __slots__ = (
        "batch_size",
        "compression",
        "delivery_timeout_ms",
        "enable_adaptive_partitioning",
        "guarantee_message_order",
        "linger_ms",
        "max_queued_rows",
        "max_rows_batch_size",
        "partition_availability_timeout_ms",
        "retry_backoff_max_ms",
        "retry_backoff_ms",
    )

    def __init__(
        self,
        batch_size: int,
        compression: Compression,
        linger_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        delivery_timeout_ms: int,
        enable_adaptive_partitioning: bool = False,
        partition_availability_timeout_ms: int = 0,
        guarantee_message_order: bool = False,
        max_rows_batch_size: int = 0,
        max_queued_rows: int = 0,
    ) -> None:
        self.batch_size = batch_size
        #: The maximum size in bytes of a batch of ``send_batch``.
        self.max_rows_batch_size = max(batch_size, max_rows_batch_size)
        #: How many bytes ``send_batch`` may queue, apart from a batch for each partition.
        self.max_queued_rows = max_queued_rows
        self.compression = compression
        self.linger_ms = linger_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.enable_adaptive_partitioning = enable_adaptive_partitioning
        self.partition_availability_timeout_ms = partition_availability_timeout_ms
        #: Mute a partition while one of its batches is in flight, so that retries cannot reorder its batches.
        self.guarantee_message_order = guarantee_message_order


class QueuesOfNode(Protocol):
    """The queues that have batches for one node, see WaitingQueues."""

    #: True if the node could take no request at the last check.
    is_blocked: bool
    #: True if the last drain left batches that are due.
    has_due_rest: bool

    @property
    def waiting(self) -> Collection[PartitionQueue]: ...

    def remove(self, queue: PartitionQueue) -> None: ...


class PartitionQueue(QueueState):
    """The batches of one partition, oldest first; only the last may be open."""

    __slots__ = ("node",)
    batches: deque[ProducerBatch]
    topic_info: TopicInfo

    def __init__(self, topic_partition: TopicPartition, topic_info: TopicInfo) -> None:
        super().__init__(topic_partition, deque())
        self.topic_info = topic_info
        # The sender's notes, see WaitingQueues: the node the queue was last filed under, and when its first batch is
        # due.
        self.node: QueuesOfNode | None = None
        self.due_ms = FOREVER_MS
        # The partition's leader according to ``snapshot``: looking it up costs as much as a batch's other lookups.
        self.snapshot = None
        self.leader = None
        self.leader_epoch = None

    def all_batches_full(self) -> bool:
        return not self.batches or self.batches[-1].is_full


class TopicInfo:
    """A topic's partitioner and queues. ``queues`` only grows, so reading it needs no lock."""

    __slots__ = ("balanced_for", "changes", "partitioner", "queues")

    def __init__(
        self,
        topic: str,
        batch_size: int,
        rng: random.Random,
        look_at_load: Callable[[TopicInfo, Cluster], None] | None,
    ) -> None:
        """``look_at_load`` tells the partitioner the lengths of the queues; None disables load tracking."""
        look = None if look_at_load is None else partial(look_at_load, self)
        self.partitioner = BuiltInPartitioner(topic, batch_size, rng, look)
        self.queues: dict[int, PartitionQueue] = {}
        #: The cluster for which the partitioner was last told, and the number of queue changes since. The number is an
        #: estimate: the sender counts without a lock.
        self.balanced_for: Cluster | None = None
        self.changes = 0


class NodeLatencyStats:
    """The times when a node last had data to send, and when it could last take it, on the clock of ``now_ms``."""

    __slots__ = ("drain_time_ms", "ready_time_ms")

    def __init__(self, now_ms: int) -> None:
        self.ready_time_ms = now_ms
        self.drain_time_ms = now_ms
