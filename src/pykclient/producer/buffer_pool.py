"""Bounded memory for records that are not yet sent (Java: BufferPool)."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.clock import Clock, Signal
from pykclient.errors import BufferExhaustedError, IllegalArgumentError, KafkaError
from pykclient.reentry import HERE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.producer_metrics import BufferPoolMetrics


#: A thread that has to wait for memory waits for this part of all of it, so that threads take turns less often: woken
#: for each buffer that comes back, it would cost more to wake than to fill one.
_PART_WORTH_WAKING_FOR = 8
#: But for so long at most. After that any memory that is enough will do.
_PATIENCE_MS = 20


#: A waiting thread looks for itself this often, in case the thread that was to wake it was interrupted.
_LONGEST_WAIT_MS = 200


class Loan:
    """Memory that a thread has taken out of the pool and not yet handed to a batch. Made by that thread, before.

    The pool notes here what it lends, in the same step in which it counts it as lent. So an exception at any place
    leaves either no loan, or one that its owner still holds and gives back. Thread: owner.
    """

    __slots__ = ("buffer", "size")

    def __init__(self) -> None:
        #: A buffer of ``size`` bytes; None while there is none, or memory is only reserved for it.
        self.buffer: bytearray | None = None
        #: Bytes that are lent. The owner sets it to 0 when it hands them to a batch.
        self.size = 0


class Waiter:
    """A thread in line. It is ``patient`` while it is only to be woken when ``wanted`` bytes are free."""

    __slots__ = ("is_gone", "patient", "signal", "wanted")

    def __init__(self, signal: Signal, size: int, wanted: int) -> None:
        self.signal = signal
        self.wanted = wanted
        self.patient = wanted > size
        #: Whether its thread has left the line. Whoever finds such a waiter at the head removes it.
        self.is_gone = False


class BorrowedMemory(Loan):
    """What one batch has borrowed beyond its buffer, for records that are not compressed yet.

    Thread: owner (whoever holds the lock of the batch's queue, then the sender).
    """

    __slots__ = ("_pool",)

    def __init__(self, pool: BufferPool) -> None:
        super().__init__()
        self._pool = pool

    def __del__(self) -> None:
        # An exception can end an append before its new batch is in a queue. No lock may be taken here. Not even
        # ``__init__`` may have got far.
        if getattr(self, "size", 0):
            self._pool.returned.append(self)

    def borrow(self, size: int, if_plenty: bool = False) -> bool:
        """Borrow ``size`` bytes more, without waiting. Return False if there are too few, or others wait.

        With ``if_plenty``, half of all memory must stay free.
        """
        return self._pool.lend_more(self, size, self._pool.total_memory // 2 if if_plenty else 0)

    def give_back(self) -> None:
        """Give back all that is borrowed."""
        if self.size:
            self._pool.take_back(self)


class BufferPool:
    """``total_memory`` bytes, lent out in buffers. Threads that find too little wait in line, first come, first served.

    Buffers of ``poolable_size`` (``batch.size``) are kept for the next batch, as most batches have that size. A waiter
    gathers what is given back bit by bit until it has its size, and only the first in line takes anything, so a large
    request cannot starve behind small ones. At first it lets a part of the memory become free, for some milliseconds.

    A signal handler may raise anywhere in here. What moves memory from one owner to the other is a run of statements
    without a call, because CPython runs signal handlers only after calls and backward jumps.

    ``on_wait`` is called by each thread that is in line, before it waits: the memory may be with somebody who sleeps.

    Thread: any.
    """

    __slots__ = (
        "_available",
        "_clock",
        "_closed",
        "_free",
        "_lock",
        "_metrics",
        "_on_wait",
        "_waiters",
        "poolable_size",
        "returned",
        "total_memory",
    )

    def __init__(
        self,
        memory: int,
        poolable_size: int,
        clock: Clock,
        metrics: BufferPoolMetrics | None = None,
        on_wait: Callable[[], object] | None = None,
    ) -> None:
        self.total_memory = memory
        self.poolable_size = poolable_size
        self._clock = clock
        self._metrics = metrics
        self._on_wait = on_wait
        self._lock = threading.Lock()  # guards: _available, _closed, _free, _waiters
        self._available = memory  # without the buffers in _free
        self._free: deque[bytearray] = deque()
        self._waiters: deque[Waiter] = deque()
        self._closed = False
        #: Loans that nobody needs any more. Adding one here takes no lock, so nothing can interrupt it. The next thread
        #: that looks at the memory takes them in.
        self.returned: deque[Loan] = deque()

    def allocate(self, loan: Loan, size: int, max_block_ms: int, to_borrow: int = 0) -> bytearray:
        """Lend ``size`` bytes to ``loan``, waiting at most ``max_block_ms`` for them.

        It waits until ``to_borrow`` bytes more are free as well, or the time is up: a batch that soon finds nothing to
        borrow is sent half empty.

        Return the buffer of the loan, with any content. The caller gives the loan back, also after an exception,
        unless it has handed the buffer on: see ``returned``.

        Raises:
            BufferExhaustedError: the time is up.
            IllegalArgumentError: the pool never has ``size`` bytes.
            KafkaError: the pool was closed.
        """
        if size > self.total_memory:
            raise IllegalArgumentError(f"cannot lend {size} bytes: buffer.memory allows {self.total_memory} in all")
        with HERE.mark, self._lock:
            self._take_in()
            self._raise_if_closed()
            if not self._waiters and self._can_lend(size + to_borrow):
                self._lend(loan, size)
        if not loan.size:
            self._wait_for_memory(loan, size, max_block_ms, to_borrow)
        buffer = loan.buffer
        if buffer is None:
            buffer = loan.buffer = bytearray(size)
        return buffer

    def deallocate(self, buffer: bytearray, size: int) -> None:
        """Take back ``buffer``, for which ``size`` bytes were lent. The buffer may have grown since."""
        with HERE.mark, self._lock:
            if size == self.poolable_size == len(buffer):
                self._free.append(buffer)
            else:
                self._available += size
            self._take_in()
            self._wake_first_waiter()

    def take_in_returned(self) -> None:
        """Make the memory of returned loans available, and wake a thread that waits for it."""
        with HERE.mark, self._lock:
            self._take_in()
            self._wake_first_waiter()

    def lend_more(self, borrowed: BorrowedMemory, size: int, left: int) -> bool:
        """Lend ``size`` bytes without a buffer, if nobody waits and ``left`` bytes stay free. Return whether it did."""
        with HERE.mark, self._lock:
            self._take_in()
            if self._waiters or self._closed or not self._can_lend(size + left):
                return False
            free = self._free
            while free and self._available < size:
                del free[0]
                self._available += self.poolable_size
            self._available -= size
            borrowed.size += size
        return True

    def take_back(self, borrowed: BorrowedMemory) -> None:
        """Take back what was lent without a buffer."""
        with HERE.mark, self._lock:
            self._available += borrowed.size
            borrowed.size = 0
            self._take_in()
            self._wake_first_waiter()

    @property
    def available_memory(self) -> int:
        """Bytes that are not lent."""
        with HERE.mark, self._lock:
            self._take_in()
            return self._available + len(self._free) * self.poolable_size

    @property
    def unallocated_memory(self) -> int:
        """Bytes that are neither lent nor kept in free buffers."""
        with HERE.mark, self._lock:
            self._take_in()
            return self._available

    @property
    def queued(self) -> int:
        """How many threads wait for memory. Read without the lock: a count that is a moment old does no harm."""
        return len(self._waiters)

    def close(self) -> None:
        """Refuse further allocations and end the waiting of all threads; what is lent can still be given back."""
        with HERE.mark, self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.signal.set()

    def _wait_for_memory(self, loan: Loan, size: int, max_block_ms: int, to_borrow: int) -> None:
        """Wait in line until ``loan`` has its buffer, or ``size`` bytes are reserved for it."""
        clock = self._clock
        start_ms = clock.now_ms()
        deadline_ms = start_ms + max_block_ms
        patience_ends_ms = min(deadline_ms, start_ms + _PATIENCE_MS)
        waiter = Waiter(clock.new_signal(), size, max(size, self.total_memory // _PART_WORTH_WAKING_FOR))
        try:
            with HERE.mark, self._lock:
                self._waiters.append(waiter)
            if self._on_wait is not None:
                self._on_wait()
            while True:
                with HERE.mark, self._lock:
                    self._take_in()
                    self._raise_if_closed()
                    now_ms = clock.now_ms()
                    if waiter.patient and (now_ms >= patience_ends_ms or self._can_lend(waiter.wanted)):
                        waiter.patient = False
                    if self._waiters[0] is waiter and not waiter.patient:
                        self._lend(loan, size)
                        if loan.size == size and (self._can_lend(to_borrow) or now_ms >= deadline_ms):
                            return
                    until_ms = patience_ends_ms if waiter.patient else deadline_ms
                    if until_ms <= now_ms:
                        raise self._exhausted(size, loan.size, max_block_ms)
                waiter.signal.wait(min(until_ms - now_ms, _LONGEST_WAIT_MS))
        finally:
            # Also after an exception: the turn must not get lost. The caller gives back what was gathered. Waiting for
            # the lock may be interrupted as well, hence the note.
            waiter.is_gone = True
            with HERE.mark, self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                if self._waiters and not waiter.patient:
                    self._waiters[0].patient = False  # it has waited for the same memory
                self._wake_first_waiter()
            if self._metrics is not None:
                self._metrics.record_wait(clock.now_ms() - start_ms)

    def _exhausted(self, size: int, gathered: int, max_block_ms: int) -> BufferExhaustedError:
        if self._metrics is not None:
            self._metrics.record_exhausted()
        free = self._available + gathered + len(self._free) * self.poolable_size
        return BufferExhaustedError(
            f"no {size} bytes of buffer.memory became free within {max_block_ms / 1000} s (max.block.ms): "
            f"{free} of {self.total_memory} bytes are free and {len(self._waiters)} thread(s) wait; "
            "the brokers take less than is sent"
        )

    def _can_lend(self, size: int) -> bool:
        return self._available + len(self._free) * self.poolable_size >= size

    def _lend(self, loan: Loan, size: int) -> None:
        """Lend what is missing of ``size`` bytes, as far as there is memory. Needs the lock."""
        free = self._free
        if size == self.poolable_size and free:
            # What was gathered is not needed: making a buffer costs more than keeping one. The one that came back last
            # is the likeliest to be in the processor's cache.
            self._available += loan.size
            loan.buffer = free[-1]
            loan.size = size
            del free[-1]
            return
        missing = size - loan.size
        while free and self._available < missing:
            del free[0]
            self._available += self.poolable_size
        lent = min(missing, self._available)
        self._available -= lent
        loan.size += lent

    def _take_in(self) -> None:
        """Take in the loans that were returned, and forget waiters that have gone. Needs the lock."""
        waiters, returned, free = self._waiters, self.returned, self._free
        while waiters and waiters[0].is_gone:
            del waiters[0]
        while returned:
            loan = returned[0]
            buffer = loan.buffer
            if buffer is not None and loan.size == self.poolable_size == len(buffer):
                free += (buffer,)
            else:
                self._available += loan.size
            loan.size = 0
            loan.buffer = None
            del returned[0]

    def _wake_first_waiter(self) -> None:
        if not self._waiters:
            return
        first = self._waiters[0]
        if self._can_lend(first.wanted if first.patient else 1):
            first.signal.set()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise KafkaError("the producer was closed while a send waited for buffer.memory")
