"""Bounded memory for records that have not been sent (Java: BufferPool), and a bound on the rows that wait."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.clock import HERE, Clock, Signal
from pykclient.errors import BufferExhaustedError, IllegalArgumentError, KafkaError
from pykclient.metrics import CumulativeSum, Meter, Rate
from pykclient.producer.outbox import BorrowedMemory as BorrowedMemory, Loan as Loan, PoolState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.metrics import Metrics

GROUP = "producer-metrics"

_NS_PER_MS = 1_000_000


class BufferPoolMetrics:
    """Metrics of waiting for memory. Thread: any."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        name = metrics.metric_name
        self._wait = metrics.sensor("bufferpool-wait-time")
        self._wait.add(
            name("bufferpool-wait-ratio", GROUP, "The fraction of time that threads wait for memory"), Rate(unit_ms=1)
        )
        self._wait_total = metrics.sensor("bufferpool-wait-time-total")
        self._wait_total.add(
            name("bufferpool-wait-time-ns-total", GROUP, "Nanoseconds that threads waited for memory"), CumulativeSum()
        )
        self._exhausted = metrics.sensor("buffer-exhausted-records")
        self._exhausted.add(
            Meter(
                name("buffer-exhausted-rate", GROUP, "Records dropped for lack of memory per second"),
                name("buffer-exhausted-total", GROUP, "Records dropped for lack of memory in total"),
            )
        )

    def record_wait(self, waited_ms: int) -> None:
        """Record that a thread has waited for ``waited_ms``."""
        now_ms = self._clock.now_ms()
        self._wait.record(waited_ms, now_ms)
        self._wait_total.record(waited_ms * _NS_PER_MS, now_ms)

    def record_exhausted(self) -> None:
        """Record that no memory became free in time."""
        self._exhausted.record(1, self._clock.now_ms())


def register_buffer_pool_gauges(metrics: Metrics, pool: BufferPool) -> None:
    """Register gauges for the pool's current state."""
    name = metrics.metric_name
    metrics.add_metric(
        name("waiting-threads", GROUP, "The number of threads that wait for memory"),
        lambda _config, _now_ms: pool.queued,
    )
    metrics.add_metric(
        name("buffer-total-bytes", GROUP, "The bytes of memory for records (buffer.memory)"),
        lambda _config, _now_ms: pool.total_memory,
    )
    metrics.add_metric(
        name("buffer-available-bytes", GROUP, "The bytes of this memory that are free"),
        lambda _config, _now_ms: pool.available_memory,
    )


#: A thread waits until this fraction of all memory is free, so that threads take turns less often. If threads were
#: woken for each returned buffer, waking one would cost more than filling the buffer.
_PART_WORTH_WAKING_FOR = 8
#: The longest wait for that fraction, or for half of the limit of rows. After it, any sufficient memory is enough.
_PATIENCE_MS = 20


#: The interval at which a waiting thread checks by itself, in case the thread that was to wake it was interrupted.
_LONGEST_WAIT_MS = 200


#: The number of returned loans at which they are taken in although no thread waits for memory.
_MOST_RETURNED = 8


class Waiter:
    """A thread in line. While it is ``patient``, it waits for more than its ``size``: see BufferPool and RowBacklog."""

    __slots__ = ("is_gone", "patient", "signal", "size", "wanted")

    def __init__(self, signal: Signal, size: int, wanted: int, patient: bool) -> None:
        self.signal = signal
        self.size = size
        self.wanted = wanted
        self.patient = patient
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

    Each thread in line calls ``on_wait`` before it waits: the memory may belong to batches of a sleeping sender. It
    returns False if this thread must not wait, because it is an event loop's.

    Thread: any.
    """

    def __init__(
        self,
        memory: int,
        poolable_size: int,
        clock: Clock,
        metrics: BufferPoolMetrics | None = None,
        on_wait: Callable[[], bool] | None = None,
        large_size: int = 0,
    ) -> None:
        super().__init__(memory, (poolable_size, large_size) if large_size > poolable_size else (poolable_size,))
        self.poolable_size = poolable_size
        self._clock = clock
        self._metrics = metrics
        self._on_wait = on_wait
        #: The number of bytes that must be free for the last call of ``allocate`` that must not wait.
        self.missing_bytes = 0

    def allocate(self, loan: Loan, size: int, max_block_ms: int, to_borrow: int = 0) -> bytearray | None:
        """Lend ``size`` bytes to ``loan``, waiting at most ``max_block_ms`` for them.

        Until the time is up, wait for ``to_borrow`` further bytes to be free: a batch that soon finds nothing to borrow
        is sent half empty.

        Return the loan's buffer, whose content is undefined; None if the thread would have to wait, and must not. The
        caller returns the loan, also after an exception, unless it belongs to a batch: see ``returned``.

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
        if not loan.size and not self._wait_for_memory(loan, size, max_block_ms, to_borrow):
            return None
        buffer = loan.buffer
        if buffer is None:
            buffer = loan.buffer = bytearray(size)
        return buffer

    def deallocate(self, loan: Loan) -> None:
        """Return the memory of ``loan``, whose buffer may have grown, to the pool. Idempotent."""
        self.returned.append(loan)
        self.take_in_returned()

    def take_in_returned(self) -> None:
        """Make the memory of returned loans available, and wake a waiting thread."""
        with HERE.mark, self._lock:
            self._take_in()
            if self._waiters:
                self._wake_first_waiter()

    def loans_returned(self) -> None:
        """Process the loans in ``returned`` if a thread waits for memory, or if they are large."""
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
        """Take back all but ``kept`` bytes of the memory lent without a buffer."""
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

    def _wait_for_memory(self, loan: Loan, size: int, max_block_ms: int, to_borrow: int) -> bool:
        """Wait in line until ``loan`` has its buffer, or ``size`` bytes are reserved; return False if it must not."""
        clock = self._clock
        start_ms = clock.now_ms()
        deadline_ms = start_ms + max_block_ms
        patience_ends_ms = min(deadline_ms, start_ms + _PATIENCE_MS)
        wanted = max(size, self.total_memory // _PART_WORTH_WAKING_FOR)
        waiter = Waiter(clock.new_signal(), size, wanted, patient=wanted > size)
        try:
            with HERE.mark, self._lock:
                self._waiters.append(waiter)
            if self._on_wait is not None and not self._on_wait():
                self.missing_bytes = size + to_borrow
                return False
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
                            return True
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
        """Count and return the error for a timed-out wait for ``size`` bytes, of which ``gathered`` were free."""
        if self._metrics is not None:
            self._metrics.record_exhausted()
        free = self.available_about + gathered
        return BufferExhaustedError(
            f"no {size} bytes of buffer.memory became free within {max_block_ms / 1000} s (max.block.ms): "
            f"{free} of {self.total_memory} bytes are free and {self.queued} caller(s) wait; "
            "the brokers accept less than is sent. Slow down, or raise buffer.memory"
        )

    def exhausted_by_rows(self, size: int, queued: int, limit: int, max_block_ms: int) -> BufferExhaustedError:
        """Count and return the error for rows of ``size`` bytes that do not fit: ``queued`` of ``limit`` are in use."""
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


class RowBacklog:
    """The number of undrained bytes of ``send_batch``, and the threads that wait for it to fall.

    Brokers limit throughput sooner or later, and a producer that is faster than they are would only fill memory. Once
    enough is queued to fill the next requests, more is of no use. Threads wait in line, first come, first served, and
    apart from those that wait for memory, so that ``send`` does not wait behind ``send_batch``. As in a BufferPool, a
    thread first waits for a while until it can queue several batches.

    A signal handler may raise an exception anywhere in here: a size is counted and noted in its loan in consecutive
    statements without a call.

    Each thread in line calls ``on_wait`` before it waits: the batches may belong to a sleeping sender. Thread: any.
    """

    def __init__(self, clock: Clock, pool: BufferPool, on_wait: Callable[[], object]) -> None:
        self._clock = clock
        self._pool = pool  # counts the waits in its metrics
        self._on_wait = on_wait
        self._lock = threading.Lock()  # guards: _closed, _size, _waiters
        self._size = 0
        self._waiters: deque[Waiter] = deque()
        self._closed = False
        # The loans of batches that have left their queues. Appending one takes no lock, so nothing can interrupt it.
        self._left: deque[Loan] = deque()

    def enter(self, loan: Loan, size: int, limit: int, max_block_ms: int) -> int:
        """Wait until ``size`` more bytes fit into ``limit`` (or nothing else is queued), then count them for ``loan``.

        Waits at most ``max_block_ms``, and returns what is left of them. The caller calls ``leave``, also after an
        exception, unless the loan belongs to a batch.

        Raises:
            BufferExhaustedError: too few bytes were drained in time.
            KafkaError: the producer was closed.
        """
        with HERE.mark, self._lock:
            self._take_in()
            if self._closed:
                raise _closed_with_rows()
            if not self._waiters and self._has_room(size, limit):
                self._size += size
                loan.queued = size
                return max_block_ms
        return self._wait(loan, size, limit, max_block_ms)

    def leave(self, loan: Loan) -> None:
        """Subtract the bytes of ``loan``, and wake a waiting thread. Idempotent."""
        self._left.append(loan)
        # A thread looks into ``_left`` after it has joined the line, so it is not missed here.
        if self._waiters:
            with HERE.mark, self._lock:
                self._take_in()
                self._wake_first_waiter()

    @property
    def is_awaited(self) -> bool:
        """True while a thread waits. It is read without the lock and may be slightly outdated."""
        return bool(self._waiters)

    @property
    def size(self) -> int:
        """The number of bytes that are queued."""
        with HERE.mark, self._lock:
            self._take_in()
            return self._size

    def close(self) -> None:
        """Refuse further bytes and end all waits."""
        with HERE.mark, self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.signal.set()

    def _wait(self, loan: Loan, size: int, limit: int, max_block_ms: int) -> int:
        """Wait in line until the bytes are counted; return how much of ``max_block_ms`` is left."""
        clock = self._clock
        start_ms = clock.now_ms()
        deadline_ms = start_ms + max_block_ms
        patience_ends_ms = min(deadline_ms, start_ms + _PATIENCE_MS)
        waiter = Waiter(clock.new_signal(), size, limit, patient=True)
        try:
            with HERE.mark, self._lock:
                self._waiters.append(waiter)
            self._on_wait()
            while True:
                with HERE.mark, self._lock:
                    self._take_in()
                    if self._closed:
                        raise _closed_with_rows()
                    now_ms = clock.now_ms()
                    if now_ms >= patience_ends_ms:
                        waiter.patient = False
                    if self._waiters[0] is waiter and self._may_enter(waiter):
                        self._size += size
                        loan.queued = size
                        return deadline_ms - now_ms if deadline_ms > now_ms else 0
                    if now_ms >= deadline_ms:
                        break
                    until_ms = patience_ends_ms if waiter.patient else deadline_ms
                waiter.signal.wait(min(until_ms - now_ms, _LONGEST_WAIT_MS))
        finally:
            # Leave the line also after an exception, or no other thread would get a turn. Waiting for the lock may be
            # interrupted too, so mark the waiter first.
            waiter.is_gone = True
            with HERE.mark, self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                self._wake_first_waiter()
            self._pool.record_wait(clock.now_ms() - start_ms)
        raise self._pool.exhausted_by_rows(size, self._size, limit, max_block_ms)

    def _has_room(self, size: int, limit: int) -> bool:
        return not self._size or self._size + size <= limit

    def _may_enter(self, waiter: Waiter) -> bool:
        return self._has_room(waiter.size, waiter.wanted // 2 + waiter.size if waiter.patient else waiter.wanted)

    def _take_in(self) -> None:
        """Subtract what has left, and remove waiters that have left the line. The caller holds the lock."""
        waiters, left = self._waiters, self._left
        while waiters and waiters[0].is_gone:
            del waiters[0]
        while left:
            loan = left[0]
            self._size -= loan.queued
            loan.queued = 0
            del left[0]

    def _wake_first_waiter(self) -> None:
        if self._waiters and self._may_enter(self._waiters[0]):
            self._waiters[0].signal.set()


def _closed_with_rows() -> KafkaError:
    return KafkaError("the producer was closed while a send_batch was waiting for its batches to be sent")
