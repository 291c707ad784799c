"""What the accumulator keeps: its settings, its queues, and what it answers."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pykclient.clock import FOREVER_MS
from pykclient.implementation import compiled
from pykclient.network.cluster import Cluster
from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.partitioner.built_in import BuiltInPartitioner
from pykclient.producer.producer_batch import ProducerBatch, RowsInBatch
from pykclient.record import Compression
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.producer.waiting_queues import NodeQueues

_compiled = compiled("producer")

#: The future; whether the sender has something new to see to; whether the record was not appended, because it would
#: have begun a new batch and the caller wanted to choose its partition again in that case. A plain tuple, as it is
#: made once a record.
AppendResult = tuple[FutureRecordMetadata | None, bool, bool]

#: The same for rows, of which those are appended that it says.
AppendRowsResult = tuple[RowsInBatch | None, bool, bool]


class AccumulatorConfig:
    """The settings of a RecordAccumulator; times in milliseconds."""

    __slots__ = (
        "batch_size",
        "compression",
        "delivery_timeout_ms",
        "enable_adaptive_partitioning",
        "linger_ms",
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
    ) -> None:
        self.batch_size = batch_size
        self.compression = compression
        self.linger_ms = linger_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.enable_adaptive_partitioning = enable_adaptive_partitioning
        self.partition_availability_timeout_ms = partition_availability_timeout_ms


class QueueStatePython:
    """What a queue is made of. Its compiled twin has a lock that costs no call."""

    __slots__ = ("batches", "lock", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, batches: deque[ProducerBatch]) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.Lock()  # guards: batches, the open batch, the sticky partition's produced_bytes
        self.batches = batches


if TYPE_CHECKING:
    QueueState = QueueStatePython
else:
    QueueState = QueueStatePython if _compiled is None else _compiled.QueueState


class PartitionQueue(QueueState):
    """The batches of one partition, oldest first; only the last may be open."""

    __slots__ = ("due_ms", "last_batch_bytes", "node", "topic_info")

    def __init__(self, topic_partition: TopicPartition, topic_info: TopicInfo) -> None:
        super().__init__(topic_partition, deque())
        self.topic_info = topic_info
        # Notes of the sender, see WaitingQueues: where it was filed last, and when its first batch is due.
        self.node: NodeQueues | None = None
        self.due_ms = FOREVER_MS
        self.last_batch_bytes = 0  # of the batch that was sent last

    def all_batches_full(self) -> bool:
        return not self.batches or self.batches[-1].is_full


class TopicInfo:
    """A topic's partitioner and queues. ``queues`` only grows, so that readers who look one up need no lock."""

    __slots__ = ("balanced_for", "changes", "partitioner", "queues")

    def __init__(
        self,
        topic: str,
        batch_size: int,
        rng: random.Random,
        look_at_load: Callable[[TopicInfo, Cluster], None] | None,
    ) -> None:
        """``look_at_load`` tells the partitioner how long the queues are; None where it does not want to know."""
        look = None if look_at_load is None else partial(look_at_load, self)
        self.partitioner = BuiltInPartitioner(topic, batch_size, rng, look)
        self.queues: dict[int, PartitionQueue] = {}
        #: For which cluster the partitioner was told, and how often a queue has changed since. An estimate: the sender
        #: counts without a lock.
        self.balanced_for: Cluster | None = None
        self.changes = 0


class NodeLatencyStats:
    """When a node last had data to send, and when it last could take it (``now_ms``)."""

    __slots__ = ("drain_time_ms", "ready_time_ms")

    def __init__(self, now_ms: int) -> None:
        self.ready_time_ms = now_ms
        self.drain_time_ms = now_ms


class ReadyCheckResult:
    """Nodes that a batch is due for, when to look again for others, and topics that lack a leader."""

    __slots__ = ("next_ready_check_delay_ms", "ready_nodes", "unknown_leader_topics")

    def __init__(self) -> None:
        self.ready_nodes: dict[int, Node] = {}
        self.next_ready_check_delay_ms = FOREVER_MS
        self.unknown_leader_topics: set[str] = set()
