"""Bounded memory for records that have not been sent (Java: BufferPool)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.clock import Clock, Signal
from pykclient.errors import BufferExhaustedError, IllegalArgumentError, KafkaError
from pykclient.producer.pool_state import BorrowedMemory as BorrowedMemory
from pykclient.producer.pool_state import Loan as Loan
from pykclient.producer.pool_state import PoolState
from pykclient.reentry import HERE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.buffer_pool_metrics import BufferPoolMetrics


#: A thread waits until this fraction of all memory is free, so that threads take turns less often. If threads were
#: woken for each returned buffer, waking one would cost more than filling the buffer.
_PART_WORTH_WAKING_FOR = 8
#: The longest time to wait for that fraction. After it, any sufficient memory will do.
_PATIENCE_MS = 20


#: The interval at which a waiting thread checks by itself, in case the thread that was to wake it was interrupted.
_LONGEST_WAIT_MS = 200


class MustWait(BaseException):
    """No memory is free, and this thread must not block for it: its owner waits in another way, and tries again.

    Not an Exception: no code between the pool and the owner may take it for a failure.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        #: The number of bytes that must be free.
        self.size = size


#: The number of returned loans at which they are taken in although no thread waits for memory.
_MOST_RETURNED = 8


class Waiter:
    """A thread in line. While it is ``patient``, it is woken only if ``wanted`` bytes are free."""

    __slots__ = ("is_gone", "patient", "signal", "wanted")

    def __init__(self, signal: Signal, size: int, wanted: int) -> None:
        self.signal = signal
        self.wanted = wanted
        self.patient = wanted > size
        #: True if the thread has left the line. Any thread that finds such a waiter at the head removes it.
        self.is_gone = False


class BufferPool(PoolState):
    """A pool of ``total_memory`` bytes, lent in buffers.

    Threads that find too little wait in line, first come, first served.

    The pool keeps returned buffers of ``poolable_size`` (``batch.size``) and ``large_size`` (the batches of
    ``send_batch``) for the next batch, because most batches have one of these sizes. New memory costs more: the
    allocator clears it, and the system maps its pages. Only the first thread in line takes memory, and it gathers
    returned memory until it has enough, so small requests cannot starve a large one. At first it waits for a fraction
    of the memory to become free, for some milliseconds.

    A signal handler may raise an exception anywhere in here. CPython runs signal handlers only after calls and backward
    jumps, so memory changes owners in consecutive statements without a call.

    Each thread in line calls ``on_wait`` with the number of bytes that it wants before it waits: the memory may belong
    to batches of a sleeping sender. If ``on_wait`` raises, the thread does not wait, as where it is an event loop's.

    Thread: any.
    """

    __slots__ = ("_clock", "_metrics", "_on_wait", "poolable_size")

    def __init__(
        self,
        memory: int,
        poolable_size: int,
        clock: Clock,
        metrics: BufferPoolMetrics | None = None,
        on_wait: Callable[[int], object] | None = None,
        large_size: int = 0,
    ) -> None:
        super().__init__(memory, (poolable_size, large_size) if large_size > poolable_size else (poolable_size,))
        self.poolable_size = poolable_size
        self._clock = clock
        self._metrics = metrics
        self._on_wait = on_wait

    def allocate(self, loan: Loan, size: int, max_block_ms: int, to_borrow: int = 0) -> bytearray:
        """Lend ``size`` bytes to ``loan``, waiting at most ``max_block_ms`` for them.

        Until the time is up, wait for ``to_borrow`` further bytes to be free: a batch that soon finds nothing to borrow
        is sent half empty.

        Return the loan's buffer, whose content is undefined. The caller returns the loan, also after an exception,
        unless it belongs to a batch: see ``returned``.

        Raises:
            BufferExhaustedError: too little memory became free in time.
            IllegalArgumentError: ``size`` exceeds the memory of the pool.
            KafkaError: the pool was closed.
        """
        if size > self.total_memory:
            raise IllegalArgumentError(f"cannot allocate {size} bytes: buffer.memory is only {self.total_memory}")
        if to_borrow:
            to_borrow = min(to_borrow, self.total_memory - size)  # more is never free
        with HERE.mark, self._lock:
            if self._waiters or self.returned:
                self._take_in()
            if self._closed:
                raise _closed()
            if not self._waiters and self._available + self._kept >= size + to_borrow:
                self._lend(loan, size)
        if not loan.size:
            self._wait_for_memory(loan, size, max_block_ms, to_borrow)
        buffer = loan.buffer
        if buffer is None:
            buffer = loan.buffer = bytearray(size)
        return buffer

    def deallocate(self, loan: Loan) -> None:
        """Take back what was lent to ``loan``, whose buffer may have grown. A second call does nothing."""
        self.returned.append(loan)
        self.take_in_returned()

    def take_in_returned(self) -> None:
        """Make the memory of returned loans available, and wake a thread that waits for it."""
        with HERE.mark, self._lock:
            self._take_in()
            if self._waiters:
                self._wake_first_waiter()

    def loans_returned(self) -> None:
        """Take in what was added to ``returned`` if a thread waits for memory, or if it is much."""
        # A thread looks into ``returned`` after it has joined the line, so it is not missed here.
        if self._waiters or len(self.returned) > _MOST_RETURNED:
            self.take_in_returned()

    def lend_more(self, borrowed: BorrowedMemory, size: int, left: int) -> bool:
        """Lend ``size`` bytes without a buffer; return whether it did.

        It does not if a thread waits for memory, or fewer than ``left`` bytes would stay free.
        """
        with HERE.mark, self._lock:
            self._take_in()
            if self.queued or self._closed or not self._can_lend(size + left):
                return False
            if self._available < size:
                self._release(size)
            self._available -= size
            borrowed.size += size
        return True

    def take_back(self, borrowed: BorrowedMemory, kept: int) -> None:
        """Take back all memory lent without a buffer but ``kept`` bytes."""
        with HERE.mark, self._lock:
            self._available += borrowed.size - kept
            borrowed.size = kept
            self._take_in()
            self._wake_first_waiter()

    @property
    def available_memory(self) -> int:
        """The number of bytes not lent."""
        with HERE.mark, self._lock:
            self._take_in()
            return self.available_about

    @property
    def available_about(self) -> int:
        """``available_memory``, read without the lock, and so possibly outdated."""
        return self._available + self._kept

    @property
    def unallocated_memory(self) -> int:
        """The number of bytes neither lent nor kept in free buffers."""
        with HERE.mark, self._lock:
            self._take_in()
            return self._available

    @property
    def queued(self) -> int:
        """The number of callers waiting for memory. It is read without the lock and may be slightly outdated."""
        return len(self._waiters) + self.waiting_elsewhere

    def close(self) -> None:
        """Refuse further allocations and end all waits. Memory that is lent can still be returned."""
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
                self._on_wait(size + to_borrow)
            while True:
                with HERE.mark, self._lock:
                    self._take_in()
                    if self._closed:
                        raise _closed()
                    now_ms = clock.now_ms()
                    if waiter.patient and (now_ms >= patience_ends_ms or self._can_lend(waiter.wanted)):
                        waiter.patient = False
                    if self._waiters[0] is waiter and not waiter.patient:
                        self._lend(loan, size)
                        if loan.size == size and (self._can_lend(to_borrow) or now_ms >= deadline_ms):
                            return
                    until_ms = patience_ends_ms if waiter.patient else deadline_ms
                    if until_ms <= now_ms:
                        raise self.exhausted(size, loan.size, max_block_ms)
                waiter.signal.wait(min(until_ms - now_ms, _LONGEST_WAIT_MS))
        finally:
            # Leave the line also after an exception, or no other thread would get a turn. The caller returns what the
            # loan has gathered. Waiting for the lock may be interrupted too, so mark the waiter first.
            waiter.is_gone = True
            with HERE.mark, self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                if self._waiters and not waiter.patient:
                    self._waiters[0].patient = False  # the next thread has already waited for the same memory
                self._wake_first_waiter()
            self.record_wait(clock.now_ms() - start_ms)

    def record_wait(self, duration_ms: int) -> None:
        """Count a wait for memory in the metrics."""
        if self._metrics is not None:
            self._metrics.record_wait(duration_ms)

    def exhausted(self, size: int, gathered: int, max_block_ms: int) -> BufferExhaustedError:
        """Return the error for a wait of ``max_block_ms`` for ``size`` bytes that brought ``gathered``; count it."""
        if self._metrics is not None:
            self._metrics.record_exhausted()
        free = self.available_about + gathered
        return BufferExhaustedError(
            f"no {size} bytes of buffer.memory became free within {max_block_ms / 1000} s (max.block.ms): "
            f"{free} of {self.total_memory} bytes are free and {self.queued} caller(s) wait; "
            "the brokers accept less than is sent. Slow down, or raise buffer.memory"
        )

    def exhausted_by_rows(self, size: int, queued: int, limit: int, max_block_ms: int) -> BufferExhaustedError:
        """Return the error for a wait to queue ``size`` bytes of rows, beside ``queued`` of ``limit``; count it."""
        if self._metrics is not None:
            self._metrics.record_exhausted()
        return BufferExhaustedError(
            f"send_batch could not queue {size} bytes within {max_block_ms / 1000} s (max.block.ms): {queued} bytes of "
            f"rows wait to be sent, and {limit} is the limit; the brokers accept less than is sent. Slow down, or "
            "raise max.block.ms"
        )

    def _can_lend(self, size: int) -> bool:
        return self._available + self._kept >= size

    def _release(self, size: int) -> None:
        """Release kept buffers, small ones first, until ``size`` bytes are available. The caller holds the lock."""
        for buffer_size, free in self._free.items():
            while free and self._available < size:
                del free[0]
                self._kept -= buffer_size
                self._available += buffer_size

    def _lend(self, loan: Loan, size: int) -> None:
        """Lend what the loan lacks of ``size`` bytes, as far as memory is free. The caller holds the lock."""
        free = self._free.get(size)
        if free:
            # Use a free buffer instead of the gathered memory: creating a buffer costs more than keeping one. The
            # buffer returned last is the likeliest to be in the CPU's cache.
            self._available += loan.size
            loan.buffer = free[-1]
            loan.size = size
            self._kept -= size
            del free[-1]
            return
        missing = size - loan.size
        if self._available < missing:
            self._release(missing)
        lent = min(missing, self._available)
        self._available -= lent
        loan.size += lent

    def _take_in(self) -> None:
        """Take back returned loans, and remove waiters that have left the line. The caller holds the lock."""
        waiters, returned = self._waiters, self.returned
        while waiters and waiters[0].is_gone:
            del waiters[0]
        while returned:
            loan = returned[0]
            buffer = loan.buffer
            free = self._free.get(loan.size)
            if free is not None and buffer is not None and loan.size == len(buffer):
                free += (buffer,)
                self._kept += loan.size
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


def _closed() -> KafkaError:
    return KafkaError("the producer was closed while a send was waiting for buffer.memory")
