"""The loops over the batches of a node and of a response, apart from what they do with each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pykclient.implementation import use_compiled
from pykclient.producer.pool_state import Loan as Loan  # the compiled form uses the compiled forms of these
from pykclient.producer.producer_batch import ProducerBatch as ProducerBatch
from pykclient.producer.queue_state import QueueState as QueueState
from pykclient.producer.record_fields import TxnPartitionState as TxnPartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.producer.accumulator_state import PartitionQueue, QueuesOfNode

#: The number of outdated entries in the heap of a node's queues at which it is rebuilt.
MOST_OUTDATED: Final = 100


class Drain:
    """The batches of a request, as far as they are known. Thread: io."""

    __slots__ = ("max_size", "now_ms", "of_node", "queues", "ready", "size")

    def __init__(self, of_node: QueuesOfNode, max_size: int, now_ms: int) -> None:
        self.of_node = of_node
        self.max_size = max_size
        self.now_ms = now_ms
        #: The batches, and the sum of their sizes in bytes.
        self.ready: list[ProducerBatch] = []
        self.size = 0
        #: The queues from which a batch was taken.
        self.queues: list[PartitionQueue] = []


class FilesQueues(Protocol):
    """The part of WaitingQueues that ``file_queues`` uses."""

    def file_queue(self, queue: PartitionQueue, snapshot: MetadataSnapshot) -> None: ...


class DrainsQueues(Protocol):
    """The part of a RecordAccumulator that ``drain_queues`` uses."""

    def drain_queue(self, queue: PartitionQueue, drain: Drain) -> bool: ...


class CompletesBatches(Protocol):
    """The part of a BatchRegister that ``succeed_written`` uses."""

    def succeed(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> bool: ...


def file_queues(waiting: FilesQueues, queues: dict[PartitionQueue, None], snapshot: MetadataSnapshot) -> None:
    """Update ``queues``, which have changed, in ``waiting``."""
    for queue in queues:
        waiting.file_queue(queue, snapshot)


def drain_queues(accumulator: DrainsQueues, drain: Drain) -> None:
    """Drain one batch per queue of a node, until the request is full."""
    for queue in drain.of_node.waiting:
        if not accumulator.drain_queue(queue, drain):
            return


def succeed_written(
    register: CompletesBatches,
    batches: dict[tuple[str, int], ProducerBatch],
    topic: str,
    written: Iterable[tuple[int, ...]],
) -> tuple[list[int], list[ProducerBatch]]:
    """Complete held batches of ``topic`` with success, and remove them from ``batches``.

    ``written`` has the fields of a WrittenResponse for each. Return the partitions for which there is no batch, and the
    batches that were given up before.
    """
    strangers: list[int] = []
    late: list[ProducerBatch] = []
    for index, _, base_offset, log_append_time_ms, *_ in written:
        batch = batches.pop((topic, index), None)
        if batch is None:
            strangers.append(index)
        elif not register.succeed(batch, base_offset, log_append_time_ms):
            late.append(batch)
    return strangers, late


use_compiled(__name__)
