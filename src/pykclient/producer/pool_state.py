"""The fields of a BufferPool and of the loans that it makes."""

from __future__ import annotations

from collections import deque
from typing import Any

from pykclient.implementation import use_compiled
from pykclient.producer.queue_state import new_lock


class Loan:
    """Memory that a thread has taken from the pool, for itself or for a batch.

    The thread creates the loan before it asks for memory. The pool records here what it lends, in the same step in
    which it counts it as lent. So after an exception anywhere, there is either no loan, or one that its owner still
    holds and returns. Thread: owner.
    """

    __slots__ = ("belongs_to_batch", "buffer", "queued", "size")

    def __init__(self) -> None:
        #: A buffer of ``size`` bytes; None if there is no loan, or if memory is reserved but not allocated.
        self.buffer: bytearray | None = None
        #: The number of bytes lent; 0 once they were returned.
        self.size = 0
        #: True once a batch in a queue uses the memory, and returns it.
        self.belongs_to_batch = False
        #: The number of bytes for which a RowBacklog counts the batch.
        self.queued = 0


class PoolState:
    """The free memory of a BufferPool. The compiled form stores numbers as C integers."""

    __slots__ = ("_available", "_closed", "_free", "_kept", "_lock", "_waiters", "returned", "total_memory")

    def __init__(self, memory: int, kept_sizes: tuple[int, ...]) -> None:
        self.total_memory = memory
        self._lock = new_lock()  # guards: _available, _closed, _free, _kept, _waiters
        self._available = memory  # excludes the buffers in _free
        #: The free buffers that are kept, by their size, and the sum of their sizes.
        self._free: dict[int, deque[bytearray]] = {size: deque() for size in kept_sizes}
        self._kept = 0
        self._waiters: deque[Any] = deque()  # of BufferPool
        self._closed = False
        #: Loans that are no longer needed. Appending one takes no lock, so nothing can interrupt it. The next thread
        #: that uses the pool takes them back.
        self.returned: deque[Loan] = deque()


use_compiled(__name__)
