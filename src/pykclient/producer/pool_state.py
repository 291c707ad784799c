"""The fields of a BufferPool and of the loans that it makes."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from pykclient.implementation import use_compiled
from pykclient.producer.queue_state import new_lock


class LendingPool(Protocol):
    """The part of a BufferPool that batches which borrow memory use."""

    total_memory: int
    returned: deque[Loan]

    def lend_more(self, borrowed: BorrowedMemory, size: int, left: int) -> bool: ...

    def take_back(self, borrowed: BorrowedMemory, kept: int) -> None: ...


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


class BorrowedMemory(Loan):
    """The memory that a batch has borrowed beyond its buffer, as it grew.

    Thread: owner (the thread that holds the lock of the batch's queue, then the sender).
    """

    __slots__ = ("_pool",)

    def __init__(self, pool: LendingPool) -> None:
        # As in Loan, without the call: there may be one for each batch.
        self.buffer = None
        self.size = 0
        self.belongs_to_batch = False
        self.queued = 0
        self._pool = pool

    def __del__(self) -> None:
        # An exception can end an append before its new batch is in a queue. No lock may be taken here. Even
        # ``__init__`` may not have completed.
        if getattr(self, "size", 0):
            self._pool.returned.append(self)

    def borrow(self, size: int, if_plenty: bool = False) -> bool:
        """Borrow ``size`` more bytes without waiting.

        Return False if too few bytes are free, or other threads wait for memory. With ``if_plenty``, half of all memory
        must stay free.
        """
        return self._pool.lend_more(self, size, self._pool.total_memory // 2 if if_plenty else 0)

    def give_back(self, kept: int = 0) -> None:
        """Return all borrowed memory but ``kept`` bytes to the pool."""
        if self.size > kept:
            self._pool.take_back(self, kept)


class Lender:
    """Creates the loans of a pool's batches that borrow memory. Thread: any."""

    __slots__ = ("_pool",)

    def __init__(self, pool: LendingPool) -> None:
        self._pool = pool

    def __call__(self) -> BorrowedMemory:
        return BorrowedMemory(self._pool)


class PoolState:
    """The free memory of a BufferPool. The compiled form stores numbers as C integers."""

    __slots__ = (
        "_available",
        "_closed",
        "_free",
        "_kept",
        "_lock",
        "_waiters",
        "returned",
        "total_memory",
        "waiting_elsewhere",
    )

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
        #: The number of callers that wait for memory in a line of their own.
        self.waiting_elsewhere = 0


use_compiled(__name__)
