"""The limit of what ``send_batch`` queues, so that a fast producer does not fill all of ``buffer.memory`` in vain."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.clock import Clock, Signal
from pykclient.errors import KafkaError
from pykclient.producer.buffer_pool import BufferPool, Loan
from pykclient.reentry import HERE

if TYPE_CHECKING:
    from collections.abc import Callable

#: The longest time to wait until half of the limit is free. After it, room for one batch will do.
_PATIENCE_MS = 20

#: The interval at which a waiting thread checks by itself, in case the thread that was to wake it was interrupted.
_LONGEST_WAIT_MS = 200


class _Waiter:
    """A thread in line. While it is ``patient``, it waits for half of its limit to be free."""

    __slots__ = ("is_gone", "limit", "patient", "signal", "size")

    def __init__(self, signal: Signal, size: int, limit: int) -> None:
        self.signal = signal
        self.size = size
        self.limit = limit
        self.patient = True
        #: True if the thread has left the line. Any thread that finds such a waiter at the head removes it.
        self.is_gone = False


class RowBacklog:
    """The number of bytes in batches of ``send_batch`` that have not been drained, and the threads that wait for less.

    Brokers limit throughput sooner or later, and a producer that is faster than they are would only fill memory. Once
    enough is queued to fill the next requests, more is of no use. Threads wait in line, first come, first served, and
    apart from those that wait for memory, so that ``send`` does not wait behind ``send_batch``. As in a BufferPool, a
    thread first waits for a while until it can queue several batches.

    A signal handler may raise an exception anywhere in here: a size is counted and noted in its loan in consecutive
    statements without a call.

    Each thread in line calls ``on_wait`` with its number of bytes before it waits: the batches may belong to a sleeping
    sender. Thread: any.
    """

    __slots__ = ("_clock", "_closed", "_left", "_lock", "_on_wait", "_pool", "_size", "_waiters")

    def __init__(self, clock: Clock, pool: BufferPool, on_wait: Callable[[int], object]) -> None:
        self._clock = clock
        self._pool = pool  # counts the waits in its metrics
        self._on_wait = on_wait
        self._lock = threading.Lock()  # guards: _closed, _size, _waiters
        self._size = 0
        self._waiters: deque[_Waiter] = deque()
        self._closed = False
        # The loans of batches that have left their queues. Appending one takes no lock, so nothing can interrupt it.
        self._left: deque[Loan] = deque()

    def enter(self, loan: Loan, size: int, limit: int, max_block_ms: int) -> int:
        """Count ``size`` bytes for ``loan``, once there are at most ``limit`` with them or no others.

        Waits at most ``max_block_ms``, and returns what is left of them. The caller calls ``leave``, also after an
        exception, unless the loan belongs to a batch.

        Raises:
            BufferExhaustedError: too few bytes were drained in time.
            KafkaError: the producer was closed.
        """
        with HERE.mark, self._lock:
            self._take_in()
            if self._closed:
                raise _closed()
            if not self._waiters and self._has_room(size, limit):
                self._size += size
                loan.queued = size
                return max_block_ms
        return self._wait(loan, size, limit, max_block_ms)

    def leave(self, loan: Loan) -> None:
        """Count the bytes of ``loan`` no longer, and wake a thread that waits for that. A second call does nothing."""
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
        waiter = _Waiter(clock.new_signal(), size, limit)
        try:
            with HERE.mark, self._lock:
                self._waiters.append(waiter)
            self._on_wait(size)
            while True:
                with HERE.mark, self._lock:
                    self._take_in()
                    if self._closed:
                        raise _closed()
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

    def _may_enter(self, waiter: _Waiter) -> bool:
        return self._has_room(waiter.size, waiter.limit // 2 + waiter.size if waiter.patient else waiter.limit)

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


def _closed() -> KafkaError:
    return KafkaError("the producer was closed while a send_batch was waiting for its batches to be sent")
