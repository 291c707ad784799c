"""Bounded memory for records that are not yet sent (Java: BufferPool)."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pykclient.clock import Clock
from pykclient.errors import BufferExhaustedError, IllegalArgumentError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.producer_metrics import BufferPoolMetrics


#: A thread that has to wait for memory waits for this part of all of it, so that threads take turns less often: woken
#: for each buffer that comes back, it would cost more to wake than to fill one.
_PART_WORTH_WAKING_FOR = 8
#: But for so long at most. After that any memory that is enough will do.
_PATIENCE_MS = 20


class Waiter:
    """A thread in line. It is ``patient`` as long as it is only to be woken when ``wanted`` bytes are free."""

    __slots__ = ("condition", "patient", "wanted")

    def __init__(self, condition: threading.Condition, size: int, wanted: int) -> None:
        self.condition = condition
        self.wanted = wanted
        self.patient = wanted > size


class BufferPool:
    """``total_memory`` bytes, lent out in buffers. Threads that find too little wait in line, first come, first served.

    Buffers of ``poolable_size`` (``batch.size``) are kept for the next batch, as most batches have that size. A waiter
    gathers what is given back bit by bit until it has its size, and only the first in line takes anything, so a large
    request cannot starve behind small ones. At first it lets a part of the memory become free, for some milliseconds.

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

    def allocate(self, size: int, max_block_ms: int) -> bytearray:
        """A buffer of ``size`` bytes with any content; waits at most ``max_block_ms`` for it.

        Raises BufferExhaustedError when the time is up, IllegalArgumentError for a size that can never be had, and
        KafkaError when the pool closes meanwhile.
        """
        if size > self.total_memory:
            raise IllegalArgumentError(f"cannot lend {size} bytes: buffer.memory allows {self.total_memory} in all")
        with self._lock:
            self._raise_if_closed()
            must_wait = bool(self._waiters) or not self._can_lend(size)
            if not must_wait:
                buffer = self._take_free(size)
                if buffer is None:
                    self._free_up(size)
                    self._available -= size
        if must_wait:
            buffer = self._wait_for_memory(size, max_block_ms)
        if buffer is not None:
            return buffer
        try:
            return bytearray(size)
        except MemoryError:
            self._give_back(size)
            raise

    def deallocate(self, buffer: bytearray, size: int) -> None:
        """Give ``buffer`` back, for which ``size`` bytes were lent: it may have grown since."""
        with self._lock:
            if size == self.poolable_size == len(buffer):
                self._free.append(buffer)
            else:
                self._available += size
            self._wake_first_waiter()

    @property
    def available_memory(self) -> int:
        """Bytes that are not lent."""
        with self._lock:
            return self._available + len(self._free) * self.poolable_size

    @property
    def unallocated_memory(self) -> int:
        """Bytes that are neither lent nor kept in free buffers."""
        with self._lock:
            return self._available

    @property
    def queued(self) -> int:
        """How many threads wait for memory. Read without the lock: a count that is a moment old does no harm."""
        return len(self._waiters)

    def close(self) -> None:
        """Refuse further allocations and end the waiting of all who wait; what is lent can still be given back."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.condition.notify()

    def _wait_for_memory(self, size: int, max_block_ms: int) -> bytearray | None:
        """Wait in line; a free buffer, or None when ``size`` bytes are reserved."""
        accumulated = 0
        clock = self._clock
        start_ms = clock.now_ms()
        deadline_ms = start_ms + max_block_ms
        patience_ends_ms = min(deadline_ms, start_ms + _PATIENCE_MS)
        waiter = Waiter(clock.new_condition(self._lock), size, max(size, self.total_memory // _PART_WORTH_WAKING_FOR))
        try:
            with self._lock:
                self._waiters.append(waiter)
            if self._on_wait is not None:
                self._on_wait()
            with self._lock:
                while True:
                    self._raise_if_closed()
                    now_ms = clock.now_ms()
                    if waiter.patient and (now_ms >= patience_ends_ms or self._can_lend(waiter.wanted)):
                        waiter.patient = False
                    if self._waiters[0] is waiter and not waiter.patient:
                        buffer = self._take_free(size)
                        if buffer is not None:
                            return buffer  # what was gathered is not needed: to make one costs more
                        self._free_up(size - accumulated)
                        got = min(size - accumulated, self._available)
                        self._available -= got
                        accumulated += got
                        if accumulated == size:
                            accumulated = 0  # it is the caller's now
                            return None
                    until_ms = patience_ends_ms if waiter.patient else deadline_ms
                    if until_ms <= now_ms:
                        raise self._exhausted(size, accumulated, max_block_ms)
                    clock.wait(waiter.condition, until_ms - now_ms)
        finally:
            # Reached by KeyboardInterrupt as well: what was gathered must not get lost, nor the turn.
            with self._lock:
                self._available += accumulated
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                if self._waiters and not waiter.patient:
                    self._waiters[0].patient = False  # it has waited for the same memory
                self._wake_first_waiter()
                if self._metrics is not None:
                    self._metrics.record_wait(clock.now_ms() - start_ms)

    def _exhausted(self, size: int, accumulated: int, max_block_ms: int) -> BufferExhaustedError:
        if self._metrics is not None:
            self._metrics.record_exhausted()
        free = self._available + accumulated + len(self._free) * self.poolable_size
        return BufferExhaustedError(
            f"no {size} bytes of buffer.memory became free within {max_block_ms / 1000} s (max.block.ms): "
            f"{free} of {self.total_memory} bytes are free and {len(self._waiters)} thread(s) wait; "
            "the brokers take less than is sent"
        )

    def _can_lend(self, size: int) -> bool:
        return self._available + len(self._free) * self.poolable_size >= size

    def _take_free(self, size: int) -> bytearray | None:
        # The one that came back last is the likeliest to be in the processor's cache.
        return self._free.pop() if size == self.poolable_size and self._free else None

    def _free_up(self, size: int) -> None:
        """Turn free buffers into unallocated memory until there are ``size`` bytes of it, or none are left."""
        while self._free and self._available < size:
            self._available += len(self._free.popleft())

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._available += size
            self._wake_first_waiter()

    def _wake_first_waiter(self) -> None:
        if not self._waiters:
            return
        first = self._waiters[0]
        if self._can_lend(first.wanted if first.patient else 1):
            first.condition.notify()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise KafkaError("the producer was closed while a send waited for buffer.memory")
