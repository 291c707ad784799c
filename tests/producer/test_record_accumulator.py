"""Batches of the accumulator: creation, readiness, draining, expiry and re-enqueueing (Java: RecordAccumulatorTest)."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

from pykclient.clock import FOREVER_MS, SYSTEM_CLOCK
from pykclient.errors import BufferExhaustedError, IllegalStateError, KafkaError
from pykclient.log_context import LogContext
from pykclient.network.metadata import MetadataSnapshot
from pykclient.producer.batch_register import AccumulatorConfig, AppendResult
from pykclient.producer.buffer_pool import BufferPool
from pykclient.producer.future import ABORTED, FutureRecordMetadata, ProducerBatch
from pykclient.producer.record_accumulator import RecordAccumulator
from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
from pykclient.record import NO_COMPRESSION, Compression, MemoryRecords
from pykclient.types import TopicPartition
from tests.producer.harness import TOPIC, TP0, TP1, nodes_due, snapshot
from tests.support.mock_clock import MockClock
from tests.support.wait import eventually

TP2 = TopicPartition(TOPIC, 2)
LEADERS = {TP0: 0, TP1: 0, TP2: 1}
VALUE = bytes(100)
LINGER_MS = 10
RETRY_BACKOFF_MS = 100
DELIVERY_TIMEOUT_MS = 3200


class Harness:
    def __init__(
        self,
        *,
        batch_size: int = 1024,
        memory: int = 64 * 1024,
        linger_ms: int = LINGER_MS,
        compression: Compression = NO_COMPRESSION,
        adaptive: bool = False,
        availability_timeout_ms: int = 0,
        manager: ProducerIdManager | None = None,
        retry_backoff_max_ms: int = RETRY_BACKOFF_MS,
        guarantee_message_order: bool = False,
    ) -> None:
        self.clock = MockClock()
        self.pool = BufferPool(memory, batch_size, self.clock)
        config = AccumulatorConfig(
            batch_size,
            compression,
            linger_ms,
            RETRY_BACKOFF_MS,
            retry_backoff_max_ms,
            DELIVERY_TIMEOUT_MS,
            adaptive,
            availability_timeout_ms,
            guarantee_message_order,
        )
        self.accumulator = RecordAccumulator(config, self.pool, self.clock, LogContext(), manager, random.Random(6))
        self.snapshot = snapshot(LEADERS)

    def append(self, partition: int | None = 0, value: bytes = VALUE, abort_on_new_batch: bool = False) -> AppendResult:
        return self.accumulator.append(
            TOPIC,
            partition,
            self.clock.wall_ms(),
            b"key",
            value,
            (),
            None,
            1000,
            self.snapshot.cluster,
            abort_on_new_batch,
        )

    def future(self, partition: int = 0, value: bytes = VALUE) -> FutureRecordMetadata:
        future, _, _ = self.append(partition, value)
        assert future is not None
        return future

    def fill(self, partition: int = 0) -> int:
        """Append until a second batch starts; return the number of records in the first."""
        count = 0
        while len(self.queue(partition)) < 2:
            self.append(partition)
            count += 1
        return count - 1

    def queue(self, partition: int = 0) -> list[ProducerBatch]:
        queue = self.accumulator.get_queue(TOPIC, partition)
        return [] if queue is None else list(queue.batches)

    def ready(self, shot: MetadataSnapshot | None = None) -> set[int]:
        return set(nodes_due(self.accumulator, shot or self.snapshot, self.clock.now_ms())[0])

    def next_check_ms(self) -> int:
        return nodes_due(self.accumulator, self.snapshot, self.clock.now_ms())[1]

    def drain(
        self, node: int = 0, max_size: int = FOREVER_MS, shot: MetadataSnapshot | None = None
    ) -> list[ProducerBatch]:
        self.ready(shot)
        of_node = self.accumulator.waiting.nodes.get(node)
        return [] if of_node is None else self.accumulator.drain(of_node, max_size, self.clock.now_ms())


def records_of(batch: ProducerBatch) -> int:
    return sum(len(part.records()) for part in MemoryRecords(batch.records).batches())


def test_a_full_batch_is_due_at_once() -> None:
    h = Harness(linger_ms=10_000)
    _, wake, _ = h.append()
    assert wake  # there is a new batch
    assert h.append()[1:] == (False, False)
    assert h.ready() == set()
    count = h.fill() + 2
    assert h.ready() == {0}
    (batch,) = h.drain()
    assert batch.record_count == records_of(batch) == count
    assert len(batch.records) <= 1024


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_record_above_batch_size_gets_own_batch(codec: str) -> None:
    h = Harness(compression=Compression.of(codec))
    h.append(value=random.Random(1).randbytes(2048))
    h.append()
    assert [batch.record_count for batch in h.queue()] == [1, 1]
    (batch,) = h.drain()
    assert records_of(batch) == 1
    h.accumulator.register.succeed(batch, 0, -1)
    assert h.pool.available_memory == h.pool.total_memory - 1024  # the second record's batch


def test_batch_is_due_after_linger() -> None:
    h = Harness()
    h.append()
    assert h.ready() == set()
    assert h.next_check_ms() == LINGER_MS
    h.clock.advance(LINGER_MS // 2)
    assert h.next_check_ms() == LINGER_MS // 2
    h.clock.advance(LINGER_MS // 2)
    assert h.ready() == {0}


def test_drain_takes_one_batch_per_partition_within_size() -> None:
    h = Harness(linger_ms=0)
    for partition in (0, 1):
        h.fill(partition)
    drained = h.drain(max_size=1024)
    assert [batch.topic_partition for batch in drained] == [TP0]
    assert h.accumulator.waiting.nodes[0].has_due_rest
    # The next round starts where the last one stopped.
    assert [batch.topic_partition for batch in h.drain(max_size=1024)] == [TP1]
    assert {batch.topic_partition for batch in h.drain()} == {TP0, TP1}
    assert not h.accumulator.waiting.nodes[0].has_due_rest


def test_topics_without_a_leader_are_named() -> None:
    h = Harness(linger_ms=0)
    h.append()
    assert not h.ready(snapshot({TP0: None}))
    assert [queue.topic_partition for queue in h.accumulator.waiting.leaderless] == [TP0]


def test_muted_partitions_are_neither_due_nor_drained() -> None:
    h = Harness(linger_ms=0, guarantee_message_order=True)
    h.append()
    (batch,) = h.drain()
    h.append()
    assert h.ready() == set()
    assert h.drain() == []
    h.accumulator.register.succeed(batch, 0, -1)
    assert h.ready() == {0}


def test_memory_shortage_makes_everything_due() -> None:
    h = Harness(memory=2048, linger_ms=10_000)
    accumulator = RecordAccumulator(
        AccumulatorConfig(1024, NO_COMPRESSION, 10_000, 1, 1, DELIVERY_TIMEOUT_MS),
        pool := BufferPool(2048, 1024, SYSTEM_CLOCK),
        SYSTEM_CLOCK,
        LogContext(),
    )
    cluster = h.snapshot.cluster
    for partition in (0, 1):
        accumulator.append(TOPIC, partition, 1, None, b"v", (), None, 0, cluster)
    assert not nodes_due(accumulator, h.snapshot, SYSTEM_CLOCK.now_ms())[0]
    thread = threading.Thread(
        target=lambda: accumulator.append(TOPIC, 2, 1, None, b"v", (), None, 10_000, cluster), daemon=True
    )
    thread.start()
    eventually(lambda: pool.queued == 1)
    due, _ = nodes_due(accumulator, h.snapshot, SYSTEM_CLOCK.now_ms())
    assert set(due) == {0}
    for batch in accumulator.drain(due[0], FOREVER_MS, SYSTEM_CLOCK.now_ms()):
        accumulator.register.succeed(batch, 0, -1)
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_many_partitions_share_little_memory(codec: str) -> None:
    """Batches start small when memory is short, grow with their records, and return all that they have borrowed."""
    h = Harness(batch_size=16 * 1024, memory=512 * 1024, linger_ms=10_000, compression=Compression.of(codec))
    partitions = range(120)
    h.snapshot = snapshot({TopicPartition(TOPIC, number): 0 for number in partitions})
    value = random.Random(1).randbytes(100)
    for _ in range(4):
        for number in partitions:
            h.append(number, value)
    assert [len(h.queue(number)) for number in partitions] == [1] * 120
    numbers = itertools.cycle(partitions)
    with pytest.raises(BufferExhaustedError):
        all(h.append(number, value) for number in numbers)
    while batches := h.drain():
        if codec == "none":
            held = sum(len(batch.records) for batch in batches) + h.pool.available_memory
            assert held <= h.pool.total_memory
        for batch in batches:
            h.accumulator.register.succeed(batch, 0, -1)
    assert h.pool.available_memory == h.pool.total_memory


def test_failed_append_without_memory_leaves_nothing_behind() -> None:
    h = Harness(memory=1024)
    h.append()
    with pytest.raises(BufferExhaustedError):
        h.append(partition=1)
    assert h.queue(1) == []
    assert h.pool.unallocated_memory == 0


# --- retries ---------------------------------------------------------------------------------------------------------


def test_a_retried_batch_backs_off() -> None:
    h = Harness(linger_ms=0)
    h.append()
    (batch,) = h.drain()
    h.accumulator.register.requeue(batch, h.clock.now_ms())
    assert h.ready() == set()
    assert h.next_check_ms() == RETRY_BACKOFF_MS
    assert h.drain() == []
    h.append(partition=1)  # another partition of the node does not wait
    assert h.ready() == {0}
    assert [batch.topic_partition for batch in h.drain()] == [TP1]
    h.clock.advance(RETRY_BACKOFF_MS)
    assert h.drain() == [batch]
    assert batch.in_retry


def test_retry_backoff_grows() -> None:
    """KIP-580."""
    h = Harness(linger_ms=0, retry_backoff_max_ms=1000)
    h.append()
    waited = []
    for _ in range(6):
        (batch,) = h.drain()
        h.accumulator.register.requeue(batch, h.clock.now_ms())
        start_ms = h.clock.now_ms()
        while not h.ready():
            h.clock.advance(5)
        waited.append(h.clock.now_ms() - start_ms)
    for wait, base in zip(waited, (100, 200, 400, 800, 1000, 1000), strict=True):
        assert 0.8 * base <= wait <= min(1.2 * base, 1000) + 5


def test_a_new_leader_needs_no_backoff() -> None:
    h = Harness(linger_ms=0)
    h.append()
    (batch,) = h.drain(shot=snapshot(LEADERS, epochs={TP0: 1}))
    h.accumulator.register.requeue(batch, h.clock.now_ms())
    assert h.ready(snapshot(LEADERS, epochs={TP0: 1})) == set()
    moved = snapshot({TP0: 1}, epochs={TP0: 2})
    assert h.ready(moved) == {1}
    assert h.drain(1, shot=moved) == [batch]


def test_retried_batches_go_in_front_in_order() -> None:
    h = Harness(linger_ms=0)
    batches = []
    for _ in range(3):
        h.append()
        batches += h.drain()
    h.append()
    for batch in reversed(batches):
        h.accumulator.register.requeue(batch, h.clock.now_ms())
    assert h.queue()[:3] == batches


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_requeued_unnumbered_batches_are_sorted_by_age(order: tuple[int, ...]) -> None:
    """Re-enqueued batches without sequence numbers are sorted by age.

    Java puts each in front, so an old batch behind a young one expires late, because expiry looks at the first only.
    """
    h = Harness(linger_ms=0)
    batches = []
    for _ in range(3):
        h.append()
        batches += h.drain()
        h.clock.advance(10)
    h.append()
    (unsent,) = h.queue()
    for index in order:
        h.accumulator.register.requeue(batches[index], h.clock.now_ms())
    assert h.queue() == [*batches, unsent]
    start_ms = batches[0].created_ms
    for index, batch in enumerate(batches):
        assert h.accumulator.expired_batches(start_ms + 10 * index + DELIVERY_TIMEOUT_MS - 1) == []
        assert h.accumulator.expired_batches(start_ms + 10 * index + DELIVERY_TIMEOUT_MS) == [batch]


def test_retried_batch_precedes_unsent_ones() -> None:
    """A retried batch precedes unsent ones even if it is younger.

    Appending threads read the clock before they lock the queue, so a later batch may have an earlier time.
    """
    h = Harness(linger_ms=0)
    h.append()
    (batch,) = h.drain()
    h.append()
    (unsent,) = h.queue()
    unsent.created_ms -= 1
    h.accumulator.register.requeue(batch, h.clock.now_ms())
    assert h.queue() == [batch, unsent]


def test_requeued_numbered_batches_are_sorted_by_sequence() -> None:
    manager = ProducerIdManager(LogContext(), RETRY_BACKOFF_MS)
    manager.producer_id_and_epoch = manager.producer_id_and_epoch._replace(producer_id=7, epoch=0)
    h = Harness(linger_ms=0, manager=manager)
    h.append()
    manager.handle_completed_batch(h.drain()[0], 0)
    batches = []
    for _ in range(4):
        h.append()
        batches += h.drain()
    assert [batch.base_sequence for batch in batches] == [1, 2, 3, 4]
    for index in (2, 0, 3, 1):
        h.accumulator.register.requeue(batches[index], h.clock.now_ms())
    assert h.queue() == batches
    h.clock.advance(RETRY_BACKOFF_MS)
    assert h.drain() == [batches[0]]
    assert h.drain() == []  # until the first batch is acknowledged
    manager.handle_completed_batch(batches[0], 1)
    assert h.drain() == [batches[1]]


def test_untracked_batch_cannot_be_requeued() -> None:
    manager = ProducerIdManager(LogContext(), RETRY_BACKOFF_MS)
    manager.producer_id_and_epoch = manager.producer_id_and_epoch._replace(producer_id=7, epoch=0)
    h = Harness(linger_ms=0, manager=manager)
    h.append()
    (batch,) = h.drain()
    manager.remove_in_flight_batch(batch)
    with pytest.raises(IllegalStateError, match="not tracked as in flight"):
        h.accumulator.register.requeue(batch, h.clock.now_ms())


def test_nothing_is_drained_without_a_producer_id() -> None:
    h = Harness(linger_ms=0, manager=ProducerIdManager(LogContext(), RETRY_BACKOFF_MS))
    h.append()
    assert h.ready() == {0}
    assert h.drain() == []


def test_blocked_partition_does_not_delay_others() -> None:
    manager = ProducerIdManager(LogContext(), RETRY_BACKOFF_MS)
    manager.producer_id_and_epoch = manager.producer_id_and_epoch._replace(producer_id=7, epoch=0)
    h = Harness(linger_ms=0, manager=manager)
    h.append()
    (batch,) = h.drain()
    manager.mark_sequence_unresolved(batch)
    h.append()
    h.append(partition=1)
    assert [drained.topic_partition for drained in h.drain()] == [TP1]


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_batches_expire_in_order_and_next_expiry_is_known() -> None:
    h = Harness()
    first = h.future()
    h.fill()
    h.clock.advance(100)
    h.append(partition=1)
    h.clock.advance(DELIVERY_TIMEOUT_MS - 100)
    expired = h.accumulator.expired_batches(h.clock.now_ms())
    assert [batch.topic_partition for batch in expired] == [TP0, TP0]
    assert h.accumulator.waiting.next_expiry_ms == h.clock.now_ms() + 100
    assert not first.done()
    assert h.queue(0) == []


# --- flushing and closing --------------------------------------------------------------------------------------------


def test_flush_makes_all_batches_due_and_waits_for_them() -> None:
    h = Harness(linger_ms=10_000)
    for partition in (0, 1, 2):
        h.append(partition=partition)

    def send_all() -> None:
        assert h.ready() == {0, 1}
        drained = h.drain(0) + h.drain(1)
        assert len(drained) == 3
        for offset, batch in enumerate(drained):
            h.accumulator.register.succeed(batch, offset, -1)

    assert h.accumulator.flush(0, send_all)
    assert not h.accumulator._flushes
    h.append()
    assert h.ready() == set()


def test_flush_times_out() -> None:
    h = Harness()
    h.append()
    assert not h.accumulator.flush(100, lambda: None)
    assert not h.accumulator._flushes


def test_flush_waits_for_parts_of_split_batch() -> None:
    h = Harness(linger_ms=0)
    h.fill()
    (big,) = h.drain()
    (rest,) = h.drain()
    for batch in (big, rest):
        batch.max_record_size = 150
    big.is_split_batch = True  # makes the split halve it
    assert h.accumulator.register.split(big) > 1
    h.accumulator.register.succeed(rest, 0, -1)
    assert h.accumulator.has_incomplete
    done = threading.Event()
    accumulator = h.accumulator
    accumulator._clock = SYSTEM_CLOCK
    for batch in accumulator.register.incomplete:
        batch.produce_future._clock = SYSTEM_CLOCK  # on the mock clock the wait below would time out by itself

    def wait() -> None:
        assert accumulator.flush(10_000, lambda: None)
        done.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while h.queue():
        for batch in h.drain():
            assert not done.is_set()
            h.accumulator.register.succeed(batch, 0, -1)
    assert done.wait(30)


def test_closing_makes_all_batches_due_and_refuses_appends() -> None:
    h = Harness(linger_ms=10_000)
    h.append()
    h.accumulator.close()
    assert h.ready() == {0}
    for partition in (0, 1):
        with pytest.raises(KafkaError, match="closed"):
            h.append(partition=partition)


def test_forced_close_fails_all_batches_and_returns_memory() -> None:
    h = Harness(linger_ms=0)
    drained_future, waiting = h.future(), h.future(1)
    drained = h.drain()
    h.accumulator.register.sent(drained[:1])
    later = h.future(2)
    h.accumulator.close()
    h.accumulator.abort_incomplete_batches(KafkaError("closed by force"))
    for future in (drained_future, waiting, later):
        assert "closed by force" in str(future.exception)
    assert drained[0].final_state == ABORTED
    assert h.pool.available_memory == h.pool.total_memory - 1024  # the client may still be writing it
    h.accumulator.register.answered(drained[:1])
    assert not h.accumulator.register.succeed(drained[0], 0, -1)
    assert h.pool.available_memory == h.pool.total_memory
    assert not h.accumulator.has_undrained
    assert not h.accumulator.has_incomplete


# --- choosing partitions ---------------------------------------------------------------------------------------------


def test_records_without_partition_fill_batches_one_by_one() -> None:
    h = Harness(linger_ms=10_000)
    for _ in range(300):
        h.append(partition=None)
    full = [batch for partition in range(3) for batch in h.queue(partition) if batch.is_full]
    assert len(full) > 5
    assert min(batch.record_count for batch in full) == max(batch.record_count for batch in full) == 8
    assert all(h.queue(partition) for partition in range(3))


def test_every_record_counts_towards_the_switch_of_the_partition() -> None:
    harness = Harness(memory=1024 * 1024)
    partitioner = None
    runs: list[list[int]] = []
    for _ in range(200):
        harness.append(partition=None)
        partitioner = partitioner or harness.accumulator._topics[TOPIC].partitioner
        assert partitioner.sticky is not None
        if not runs or runs[-1][0] != partitioner.sticky.partition:
            runs.append([partitioner.sticky.partition, 0])
        runs[-1][1] += 1
    # Eight records fill a batch but are smaller than batch.size, so each partition gets two batches, or more by chance.
    assert all(length % 16 == 0 for _, length in runs[1:-1])
    assert len(runs) > 5


def test_a_custom_partitioner_is_asked_again_before_a_new_batch() -> None:
    h = Harness()
    assert h.append(abort_on_new_batch=True) == (None, False, True)
    assert h.queue() == []
    h.append()
    assert h.append(abort_on_new_batch=True)[2] is False


def test_adaptive_partitioning_follows_queue_lengths() -> None:
    """KIP-794."""
    h = Harness(linger_ms=10_000, adaptive=True)
    partitioner = None
    for partition in (0, 1):
        h.append(partition=partition)
    h.ready()
    partitioner = h.accumulator._topics[TOPIC].partitioner
    partitioner.next_partition(h.snapshot.cluster)
    assert partitioner.load_stats is None  # the partitions have no queues yet
    h.append(partition=2)
    h.fill(0)
    h.fill(0)
    h.ready()
    partitioner.next_partition(h.snapshot.cluster)
    assert partitioner.load_stats is not None
    assert partitioner.load_stats.sums == [1, 3, 5]


def test_partitions_of_unavailable_node_are_avoided() -> None:
    h = Harness(linger_ms=10_000, adaptive=True, availability_timeout_ms=50)
    for partition in (0, 1, 2):
        h.append(partition=partition)
    now_ms = h.clock.now_ms()
    h.accumulator.load.update(0, now_ms, True)
    h.accumulator.load.update(1, now_ms, True)
    partitioner = h.accumulator._topics[TOPIC].partitioner
    partitioner.next_partition(h.snapshot.cluster)
    assert partitioner.load_stats is None
    h.accumulator.load.update(0, now_ms + 51, False)
    assert partitioner.next_partition(h.snapshot.cluster) == 2
    assert partitioner.load_stats is not None
    assert partitioner.load_stats.ids == [2]
    h.accumulator.load.update(0, now_ms + 60, True)
    partitioner.next_partition(h.snapshot.cluster)
    assert partitioner.load_stats is None


def test_concurrent_appends_lose_no_record() -> None:
    accumulator = RecordAccumulator(
        AccumulatorConfig(1024, NO_COMPRESSION, 0, 1, 1, DELIVERY_TIMEOUT_MS),
        pool := BufferPool(8 * 1024, 1024, SYSTEM_CLOCK),
        SYSTEM_CLOCK,
        LogContext(),
        rng=random.Random(2),
    )
    shot = snapshot(LEADERS)
    futures: list[list[FutureRecordMetadata]] = [[] for _ in range(4)]

    def work(mine: list[FutureRecordMetadata]) -> None:
        for _ in range(500):
            future, _, _ = accumulator.append(TOPIC, None, 1, None, VALUE, (), None, 20_000, shot.cluster)
            assert future is not None
            mine.append(future)

    threads = [threading.Thread(target=work, args=(mine,), daemon=True) for mine in futures]
    for thread in threads:
        thread.start()
    offsets = dict.fromkeys(LEADERS, 0)
    while any(thread.is_alive() for thread in threads) or accumulator.has_undrained:
        for of_node in nodes_due(accumulator, shot, SYSTEM_CLOCK.now_ms())[0].values():
            for batch in accumulator.drain(of_node, FOREVER_MS, SYSTEM_CLOCK.now_ms()):
                accumulator.register.succeed(batch, offsets[batch.topic_partition], -1)
                offsets[batch.topic_partition] += batch.record_count
    seen = {(m.topic_partition, m.offset) for mine in futures for m in (future.get(0) for future in mine)}
    assert len(seen) == sum(offsets.values()) == 2000
    assert pool.available_memory == pool.total_memory
