"""The parts of a producer with which the compiled ``send`` starts a batch, as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pykclient.implementation import use_compiled
from pykclient.producer.pool_state import PoolState as PoolState  # the compiled form uses its compiled form
from pykclient.producer.producer_batch import ProducerBatch as ProducerBatch  # and this one's
from pykclient.producer.send_path import SendPath as SendPath  # and this one's

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.clock import Clock
    from pykclient.producer.sender_thread import SenderThread
    from pykclient.producer.waiting_queues import WaitingQueues

#: The smallest part of ``buffer.memory`` that a batch starts with, unless ``batch.size`` is less.
SMALLEST_CAPACITY: Final = 512


class BatchStart:
    """The parts of an accumulator of uncompressed batches that a new batch needs.

    Only the compiled ``send`` reads them. It does what ``RecordAccumulator.append_with_new_batch`` does, where that
    neither waits nor fails. Thread: any.
    """

    __slots__ = ()

    def __init__(
        self,
        pool: PoolState,
        waiting: WaitingQueues,
        incomplete: dict[Any, None],
        clock: Clock,
        sender_thread: SenderThread,
        lender: Callable[[], Any],
        *,
        batch_size: int,
        linger_ms: int,
        max_uncompressed_size: int,
    ) -> None:
        """``incomplete`` gets the new batches. Sizes are in bytes."""


use_compiled(__name__)
