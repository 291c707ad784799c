"""``buffer.memory`` bounds what is held for batches with a codec too, whose records wait uncompressed."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.errors import BufferExhaustedError
from pykclient.producer.buffer_pool import BorrowedMemory, BufferPool, Loan
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.record import CompressionRatioEstimator, CompressionType
from tests.producer.harness import TOPIC
from tests.producer.test_kafka_producer import Make, make
from tests.support.mock_clock import MockClock

__all__ = ["make"]

MIB = 1 << 20


@pytest.fixture(autouse=True)
def compresses_well() -> Any:
    """Earlier batches of the topic came to a thousandth of their size."""
    for codec in (CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD):
        CompressionRatioEstimator.set_estimation(TOPIC, codec, 0.001)
    yield
    CompressionRatioEstimator.reset_estimation(TOPIC)


def held_bytes(producer: KafkaProducer[Any, Any]) -> int:
    """Count what the batches that wait hold, compressed or not."""
    held = 0
    for number in (0, 1):
        queue = producer._accumulator.get_queue(TOPIC, number)
        if queue is not None:
            with queue.lock:
                held += sum(len(batch._builder._buffer) + batch._builder._uncompressed_size for batch in queue.batches)
    return held


def fill(producer: KafkaProducer[Any, Any], size: int, most: int, by_columns: bool) -> tuple[int, list[Any]]:
    """Send until memory is out, or ``most`` bytes were taken; return how many were taken, and the futures."""
    values = [bytes(size)] * max(1, 20_000 // size)
    futures: list[Any] = []
    taken = 0
    while taken < most:
        try:
            futures.append(producer.send_batch(TOPIC, values) if by_columns else producer.send(TOPIC, values[0]))
        except BufferExhaustedError:
            break
        if by_columns and futures[-1].errors:
            break
        taken += len(values) * size if by_columns else size
    return taken, futures


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("size", [100, 5_000, 200_000])
def test_memory_stays_bounded_while_sending_is_blocked(
    make: Make, monkeypatch: pytest.MonkeyPatch, codec: str, by_columns: bool, size: int
) -> None:
    memory = 2 * MIB
    producer, brokers = make(
        compression_type=codec, buffer_memory=memory, batch_size=16 * 1024, linger_ms=60_000, max_block_ms=20
    )
    monkeypatch.setattr(producer._accumulator, "drain", lambda *_: {})  # nothing leaves, nothing is compressed
    taken, futures = fill(producer, size, 50 * memory, by_columns)
    assert taken < 2 * memory  # by the estimate it would be thousands of times as much
    assert held_bytes(producer) <= 2 * memory
    monkeypatch.undo()
    assert producer._accumulator._pool.available_memory < memory // 2
    producer.flush(30)
    pool = producer._accumulator._pool
    assert pool.available_memory == pool.total_memory
    assert sum(len(record.value or b"") for _, record in brokers.received) >= taken
    assert all(future.done() for future in futures)


@pytest.mark.parametrize("by_columns", [False, True])
def test_batch_stays_below_consumers_decompression_limit(
    make: Make, monkeypatch: pytest.MonkeyPatch, by_columns: bool
) -> None:
    monkeypatch.setattr("pykclient.producer.record_accumulator._MAX_UNCOMPRESSED_SIZE", MIB)
    producer, brokers = make(compression_type="lz4", buffer_memory=64 * MIB, batch_size=MIB, linger_ms=60_000)
    value = bytes(10_000)
    if by_columns:
        producer.send_batch(TOPIC, [value] * 1_000, partition=0)
    else:
        for _ in range(1_000):
            producer.send(TOPIC, value, partition=0)
    queue = producer._accumulator.get_queue(TOPIC, 0)
    assert queue is not None
    sizes = [batch._builder._uncompressed_size for batch in queue.batches]
    producer.flush(30)
    assert len(brokers.received) == 1_000
    assert all(size <= MIB for size in sizes)


def test_records_and_columns_fill_batches_alike(make: Make) -> None:
    """By records and by columns, compiled or not."""
    counts = []
    for by_columns in (False, True):
        producer, brokers = make(compression_type="lz4", buffer_memory=MIB, batch_size=4096, linger_ms=60_000)
        brokers.answering = False
        values = [b"%05d" % number * 40 for number in range(1_000)]
        if by_columns:
            producer.send_batch(TOPIC, values, partition=0, timestamp=5)
        else:
            for value in values:
                producer.send(TOPIC, value, partition=0, timestamp_ms=5)
        queue = producer._accumulator.get_queue(TOPIC, 0)
        assert queue is not None
        counts.append([batch.record_count for batch in queue.batches])
    assert counts[0] == counts[1]
    assert sum(counts[0]) == 1_000


@pytest.mark.parametrize("ending", ["expire", "close", "fail"])
def test_borrowed_memory_is_returned(make: Make, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    producer, _ = make(
        compression_type="lz4",
        linger_ms=0 if ending != "expire" else 50,
        request_timeout_ms=50,
        delivery_timeout_ms=100 if ending == "expire" else 60_000,
        known=True,
    )
    pool = producer._accumulator._pool

    def fail(*_: Any) -> bytes:
        raise MemoryError("no room")

    compression = producer._components.compression
    monkeypatch.setattr(type(compression), "compress", fail)
    if ending == "expire":  # nothing can be sent
        monkeypatch.setattr(producer._accumulator, "drain", lambda *_: {})
    elif ending == "close":
        monkeypatch.setattr(producer._accumulator, "drain", fail)
    futures = [producer.send(TOPIC, bytes(1_000)) for _ in range(200)]
    if ending == "close":
        assert pool.available_memory < pool.total_memory - 100_000
        producer.close(0)
    for future in futures:
        with pytest.raises(Exception, match=r"expired|no room|by force"):
            future.get(10)
    assert pool.available_memory == pool.total_memory


def test_batch_borrows_and_returns_memory() -> None:
    pool = BufferPool(1000, 100, MockClock())
    loan = Loan()
    pool.allocate(loan, 100, 0)
    borrowed = BorrowedMemory(pool)
    assert borrowed.borrow(600)
    assert not borrowed.borrow(301)
    assert (borrowed.size, pool.available_memory) == (600, 300)
    pool.deallocate(loan)  # now a free buffer, of which more can be made
    assert borrowed.borrow(400)
    assert pool.available_memory == 0
    borrowed.give_back()
    borrowed.give_back()
    assert (borrowed.size, pool.available_memory) == (0, 1000)
    assert borrowed.borrow(500)
    del borrowed  # with a batch that never came into a queue
    assert pool.available_memory == 1000
    pool.close()
    assert not BorrowedMemory(pool).borrow(1)
