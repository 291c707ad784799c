"""The pool never lends more than it has, serves waiters in order, and gets all memory back (Java: BufferPoolTest)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import BufferExhaustedError, IllegalArgumentError, KafkaError
from pykclient.metrics import Metrics
from pykclient.producer import buffer_pool
from pykclient.producer.buffer_pool import BufferPool, BufferPoolMetrics, Loan
from tests.support.mock_clock import MockClock
from tests.support.wait import eventually

FOREVER_MS = 60_000


def run(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def allocate(pool: BufferPool, size: int, max_block_ms: int) -> bytearray:
    """Allocate a buffer for a batch as an appending thread does."""
    loan = Loan()
    try:
        buffer = pool.allocate(loan, size, max_block_ms)
        assert buffer is not None
        loan.belongs_to_batch = True
        return buffer
    finally:
        if loan.size and not loan.belongs_to_batch:
            pool.returned.append(loan)
            pool.take_in_returned()


def deallocate(pool: BufferPool, buffer: bytearray, size: int) -> None:
    """Return a buffer for which ``size`` bytes were lent, twice."""
    loan = Loan()
    loan.buffer, loan.size = buffer, size
    pool.deallocate(loan)
    pool.deallocate(loan)


def waiting(pool: BufferPool, count: int) -> None:
    eventually(lambda: pool.queued == count, what=f"{count} waiting threads")


def test_a_buffer_of_the_poolable_size_is_used_again() -> None:
    pool = BufferPool(64 * 1024, 1024, MockClock())
    buffer = allocate(pool, 1024, 10)
    assert len(buffer) == 1024
    assert (pool.available_memory, pool.unallocated_memory) == (63 * 1024, 63 * 1024)
    deallocate(pool, buffer, 1024)
    assert (pool.available_memory, pool.unallocated_memory) == (64 * 1024, 63 * 1024)
    assert allocate(pool, 1024, 10) is buffer


def test_buffers_of_other_sizes_are_not_pooled() -> None:
    pool = BufferPool(64 * 1024, 1024, MockClock())
    buffer = allocate(pool, 2048, 10)
    deallocate(pool, buffer, 2048)
    assert pool.unallocated_memory == 64 * 1024


def test_a_large_buffer_is_used_again() -> None:
    pool = BufferPool(64 * 1024, 1024, MockClock(), large_size=16 * 1024)
    buffer = allocate(pool, 16 * 1024, 10)
    deallocate(pool, buffer, 16 * 1024)
    assert (pool.available_memory, pool.unallocated_memory) == (64 * 1024, 48 * 1024)
    assert allocate(pool, 16 * 1024, 10) is buffer


def test_free_large_buffers_make_room_for_small_ones() -> None:
    pool = BufferPool(4096, 1024, MockClock(), large_size=4096)
    deallocate(pool, allocate(pool, 4096, 10), 4096)
    buffers = [allocate(pool, 1024, 10) for _ in range(4)]
    assert pool.available_memory == 0
    for buffer in buffers:
        deallocate(pool, buffer, 1024)
    assert len(allocate(pool, 4096, 10)) == 4096


def test_grown_buffer_counts_with_its_allocated_size() -> None:
    pool = BufferPool(64 * 1024, 1024, MockClock())
    buffer = allocate(pool, 1024, 10)
    buffer += bytes(5000)
    deallocate(pool, buffer, 1024)
    assert pool.available_memory == pool.unallocated_memory == 64 * 1024


def test_free_buffers_make_room_for_large_buffer() -> None:
    pool = BufferPool(4096, 1024, MockClock())
    buffers = [allocate(pool, 1024, 10) for _ in range(4)]
    for buffer in buffers:
        deallocate(pool, buffer, 1024)
    assert len(allocate(pool, 4096, 10)) == 4096
    assert pool.available_memory == 0


def test_allocation_above_buffer_memory_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match=r"buffer\.memory is only 1024"):
        allocate(BufferPool(1024, 512, MockClock()), 1025, 10)


def test_exhaustion_error_names_free_memory_and_is_counted() -> None:
    clock = MockClock()
    metrics = Metrics(clock=clock)
    pool = BufferPool(10, 1, clock, BufferPoolMetrics(metrics, clock))
    allocate(pool, 8, 10)
    with pytest.raises(BufferExhaustedError, match=r"no 3 bytes .* within 0\.01 s \(max\.block\.ms\): 2 of 10 bytes"):
        allocate(pool, 3, 10)
    values = metrics.by_group()["producer-metrics"]
    assert values["buffer-exhausted-total"] == 1
    assert values["bufferpool-wait-time-ns-total"] >= 10_000_000
    assert pool.available_memory == 2
    assert pool.queued == 0


def test_waiting_ends_when_memory_comes_back() -> None:
    pool = BufferPool(10, 1, SYSTEM_CLOCK)
    held = allocate(pool, 10, 0)
    thread = run(lambda: allocate(pool, 6, FOREVER_MS))
    waiting(pool, 1)
    deallocate(pool, held, 10)
    thread.join(30)
    assert not thread.is_alive()
    assert pool.available_memory == 4


def test_waiter_gets_the_returned_buffer() -> None:
    """A waiter gets the returned buffer even if the remaining memory is smaller than a buffer."""
    pool = BufferPool(1536, 1024, SYSTEM_CLOCK)
    buffer = allocate(pool, 1024, 10)
    got: list[bytearray] = []
    thread = run(lambda: got.append(allocate(pool, 1024, FOREVER_MS)))
    waiting(pool, 1)
    deallocate(pool, buffer, 1024)
    thread.join(10)
    assert got[0] is buffer
    assert pool.available_memory == pool.unallocated_memory == 512


def test_waiters_wait_until_part_of_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_PATIENCE_MS", FOREVER_MS)
    pool = BufferPool(16 * 1024, 1024, SYSTEM_CLOCK)
    buffers = [allocate(pool, 1024, 10) for _ in range(16)]
    got: list[bytearray] = []
    threads = [run(lambda: got.append(allocate(pool, 1024, FOREVER_MS))) for _ in range(2)]
    waiting(pool, 2)
    deallocate(pool, buffers[0], 1024)
    threads[0].join(0.05)
    assert got == []
    assert pool.queued == 2
    deallocate(pool, buffers[1], 1024)  # an eighth of the memory is now free, enough for both
    for thread in threads:
        thread.join(10)
    assert len(got) == 2


def test_waiter_takes_any_buffer_after_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_PATIENCE_MS", 1)
    pool = BufferPool(16 * 1024, 1024, SYSTEM_CLOCK)
    buffers = [allocate(pool, 1024, 10) for _ in range(16)]
    got: list[bytearray] = []
    thread = run(lambda: got.append(allocate(pool, 1024, FOREVER_MS)))
    waiting(pool, 1)
    deallocate(pool, buffers[0], 1024)
    thread.join(10)
    assert got[0] is buffers[0]


def test_waiters_are_served_in_order_of_arrival() -> None:
    """A large request accumulates returned memory while smaller, later requests wait."""
    pool = BufferPool(10, 1, SYSTEM_CLOCK)
    parts = [allocate(pool, 2, 0) for _ in range(5)]
    order: list[str] = []

    def wait_for(size: int, name: str) -> None:
        allocate(pool, size, FOREVER_MS)
        order.append(name)

    large = run(lambda: wait_for(8, "large"))
    waiting(pool, 1)
    small = run(lambda: wait_for(2, "small"))
    waiting(pool, 2)
    for part in parts[:3]:
        deallocate(pool, part, 2)
    assert order == []
    with pytest.raises(BufferExhaustedError):  # a newcomer cannot overtake
        allocate(pool, 1, 0)
    deallocate(pool, parts[3], 2)
    large.join(30)
    assert order == ["large"]
    deallocate(pool, parts[4], 2)
    small.join(30)
    assert order == ["large", "small"]


def test_timed_out_waiter_returns_gathered_memory() -> None:
    pool = BufferPool(10, 1, SYSTEM_CLOCK)
    kept, returned = allocate(pool, 5, 0), allocate(pool, 5, 0)
    failed: list[Exception] = []

    def give_up() -> None:
        try:
            allocate(pool, 8, 300)
        except BufferExhaustedError as error:
            failed.append(error)

    large = run(give_up)
    waiting(pool, 1)
    small = run(lambda: allocate(pool, 4, FOREVER_MS))
    waiting(pool, 2)
    deallocate(pool, returned, 5)
    large.join(30)
    small.join(30)
    assert len(failed) == 1
    assert not small.is_alive()
    deallocate(pool, kept, 5)
    assert pool.available_memory == 6


def test_close_ends_all_waiting_and_still_takes_buffers_back() -> None:
    pool = BufferPool(1, 1, SYSTEM_CLOCK)
    held = allocate(pool, 1, 0)
    failed: list[str] = []

    def wait_for() -> None:
        try:
            allocate(pool, 1, FOREVER_MS)
        except KafkaError as error:
            failed.append(str(error))

    threads = [run(wait_for) for _ in range(3)]
    waiting(pool, 3)
    pool.close()
    for thread in threads:
        thread.join(30)
    assert len(failed) == 3
    assert "closed" in failed[0]
    with pytest.raises(KafkaError, match="closed"):
        allocate(pool, 1, 0)
    deallocate(pool, held, 1)
    assert pool.available_memory == 1


def test_concurrent_use_leaks_no_memory() -> None:
    pool = BufferPool(20_000, 1024, SYSTEM_CLOCK)

    def work(seed: int) -> None:
        for step in range(300):
            size = 1024 if (seed + step) % 3 else 1 + (seed * 31 + step * 7) % 5000
            buffer = allocate(pool, size, FOREVER_MS)
            assert len(buffer) == size
            deallocate(pool, buffer, size)

    threads = [run(lambda seed=seed: work(seed)) for seed in range(8)]  # type: ignore[misc]
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert pool.available_memory == 20_000


class PoolMachine(RuleBasedStateMachine):
    """Accounting is correct and all memory returns after any sequence of allocations and deallocations."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(10_000, 1000, MockClock(), large_size=3000)
        self.lent: list[tuple[bytearray, int]] = []

    @rule(size=st.one_of(st.sampled_from([1000, 3000]), st.integers(1, 10_000)))
    def allocate(self, size: int) -> None:
        free = 10_000 - sum(lent for _, lent in self.lent)
        if size <= free:
            self.lent.append((allocate(self.pool, size, 0), size))
        else:
            with pytest.raises(BufferExhaustedError):
                allocate(self.pool, size, 0)

    @precondition(lambda self: self.lent)
    @rule(data=st.data(), grow=st.booleans())
    def deallocate(self, data: st.DataObject, grow: bool) -> None:
        buffer, size = self.lent.pop(data.draw(st.integers(0, len(self.lent) - 1)))
        if grow:
            buffer += b"x"
        deallocate(self.pool, buffer, size)

    @invariant()
    def the_books_are_right(self) -> None:
        assert self.pool.available_memory == 10_000 - sum(size for _, size in self.lent)
        assert self.pool.queued == 0
        assert len({id(buffer) for buffer, _ in self.lent}) == len(self.lent)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
