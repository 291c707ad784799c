"""``send_batch`` queues a limited number of bytes, and waits in line for more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.clock import SYSTEM_CLOCK, LockSignal
from pykclient.errors import BufferExhaustedError, KafkaError
from pykclient.producer import buffer_pool
from pykclient.producer.buffer_pool import BufferPool, Loan, RowBacklog
from pykclient.producer.columns import BatchFuture
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.support.wait import eventually

FOREVER_MS = 60_000
ROWS = [bytes(200)] * 2000
#: The limit of a producer with ``SMALL`` and a topic of two partitions: five requests, and a batch for each partition.
LIMIT = 5 * 10_000 + 2 * 1000
SMALL: dict[str, Any] = {"max_request_size": 10_000, "batch_size": 1000, "request_timeout_ms": 60_000}


def run(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def backlog(on_wait: Callable[[], object] = bool) -> RowBacklog:
    return RowBacklog(SYSTEM_CLOCK, BufferPool(1 << 20, 1024, SYSTEM_CLOCK), on_wait)


def test_bytes_count_until_batch_is_sent() -> None:
    rows, loan = backlog(), Loan()
    assert rows.enter(loan, 80, 100, 50) == 50
    assert (rows.size, loan.queued) == (80, 80)
    rows.leave(loan)
    rows.leave(loan)
    assert (rows.size, loan.queued) == (0, 0)


def test_single_batch_always_has_room() -> None:
    rows = backlog()
    rows.enter(Loan(), 1000, 100, 0)
    with pytest.raises(BufferExhaustedError, match=r"could not queue 1 bytes within 0\.0 s \(max\.block\.ms\): 1000 "):
        rows.enter(Loan(), 1, 100, 0)
    assert rows.size == 1000
    assert not rows.is_awaited


def test_threads_enter_in_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_PATIENCE_MS", 0)
    waits: list[bool] = []
    rows, first, entered = backlog(lambda: waits.append(True)), Loan(), list[str]()
    rows.enter(first, 100, 100, 0)

    def enter(size: int, name: str) -> None:
        rows.enter(Loan(), size, 100, FOREVER_MS)
        entered.append(name)

    large = run(lambda: enter(90, "large"))
    eventually(lambda: len(waits) == 1)
    small = run(lambda: enter(10, "small"))
    eventually(lambda: len(waits) == 2)
    assert entered == []
    rows.leave(first)
    for thread in (large, small):
        thread.join(30)
    assert sorted(entered) == ["large", "small"]
    assert rows.size == 100


def test_thread_first_waits_until_backlog_is_half_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_PATIENCE_MS", FOREVER_MS)
    rows, loans = backlog(), [Loan() for _ in range(10)]
    for loan in loans:
        rows.enter(loan, 10, 100, 0)
    thread = run(lambda: rows.enter(Loan(), 10, 100, FOREVER_MS))
    eventually(lambda: rows.is_awaited)
    for loan in loans[:4]:
        rows.leave(loan)
    assert rows.is_awaited
    rows.leave(loans[4])
    thread.join(30)
    assert rows.size == 60


def test_close_ends_all_waits() -> None:
    rows, failed = backlog(), list[str]()
    rows.enter(Loan(), 100, 100, 0)

    def enter() -> None:
        try:
            rows.enter(Loan(), 1, 100, FOREVER_MS)
        except KafkaError as error:
            failed.append(str(error))

    threads = [run(enter) for _ in range(3)]
    eventually(lambda: len(rows._waiters) == 3)
    rows.close()
    for thread in threads:
        thread.join(30)
    assert ["closed" in text for text in failed] == [True] * 3
    with pytest.raises(KafkaError, match="closed"):
        rows.enter(Loan(), 1, 100, 0)


def test_signal_handler_exception_removes_waiting_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, first, loan = backlog(), Loan(), Loan()
    rows.enter(first, 100, 100, 0)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LockSignal, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rows.enter(loan, 1, 100, FOREVER_MS)
    assert (rows.is_awaited, loan.queued) == (False, 0)
    rows.leave(first)
    assert rows.enter(loan, 100, 100, 0) == 0


def test_concurrent_threads_leave_empty_backlog() -> None:
    rows, largest = backlog(), list[int]()

    def work(seed: int) -> None:
        for step in range(200):
            loan = Loan()
            rows.enter(loan, 1 + (seed * 31 + step * 7) % 50, 100, FOREVER_MS)
            largest.append(rows.size)
            rows.leave(loan)

    threads = [run(lambda seed=seed: work(seed)) for seed in range(6)]  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert max(largest) <= 100
    assert rows.size == 0


# --- a producer whose broker does not respond ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as started:
        started.create_topic("rows", 2)
        yield started


@pytest.fixture
def make(cluster: EmbeddedCluster) -> Iterator[Callable[..., KafkaProducer[Any, Any]]]:
    made: list[KafkaProducer[Any, Any]] = []

    def make_one(topic: str = "rows", **settings: Any) -> KafkaProducer[Any, Any]:
        """Return a producer whose broker is paused after the first record of each partition, which is sent alone."""
        producer: KafkaProducer[Any, Any] = KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, **{**SMALL, **settings}
        )
        made.append(producer)
        for partition in (0, 1):
            producer.send(topic, b"first", partition=partition)
        producer.flush(30)
        cluster.pause(1)
        return producer

    yield make_one
    cluster.resume(1)
    for producer in made:
        producer.close(0)


def sending(producer: KafkaProducer[Any, Any], **options: Any) -> tuple[threading.Thread, list[BatchFuture]]:
    """Send 400 KB from another thread, and return it once it waits."""
    futures: list[BatchFuture] = []
    thread = run(lambda: futures.append(producer.send_batch("rows", ROWS, **options)))
    eventually(lambda: _backlog(producer).is_awaited)
    return thread, futures


def _backlog(producer: KafkaProducer[Any, Any]) -> RowBacklog:
    found = producer._accumulator.backlog
    assert found is not None
    return found


def lent(producer: KafkaProducer[Any, Any]) -> int:
    pool = producer._components.buffer_pool
    return pool.total_memory - pool.available_memory


def settled(producer: KafkaProducer[Any, Any]) -> None:
    """Wait until as many requests are in flight as may be."""
    eventually(lambda: producer._components.client.in_flight_request_count() == 5)
    eventually(lambda: _backlog(producer).size > LIMIT // 2)


@pytest.mark.parametrize("linger_ms", [0, 600_000])
@pytest.mark.parametrize("partition", [None, [row % 2 for row in range(len(ROWS))]])
def test_memory_while_the_broker_does_not_respond(
    make: Callable[..., KafkaProducer[Any, Any]], cluster: EmbeddedCluster, linger_ms: int, partition: Any
) -> None:
    """Twice as many bytes as may be in flight are lent at most, and all rows are sent once the broker responds."""
    producer = make(linger_ms=linger_ms, delivery_timeout_ms=700_000)
    thread, futures = sending(producer, partition=partition)
    settled(producer)
    assert lent(producer) <= LIMIT + 5 * 10_000
    assert producer.send("rows", b"alone", partition=1).is_done is False  # it does not wait behind rows
    cluster.resume(1)
    thread.join(60)
    producer.flush(60)
    assert futures[0].get(60).num_rows == len(ROWS)
    assert (_backlog(producer).size, lent(producer)) == (0, 0)


def test_flush_ends_while_rows_wait(make: Callable[..., KafkaProducer[Any, Any]], cluster: EmbeddedCluster) -> None:
    producer = make(linger_ms=20)
    thread, futures = sending(producer)
    flushing = run(lambda: producer.flush(60))
    eventually(lambda: producer._accumulator._flushes)
    cluster.resume(1)
    for each in (flushing, thread):
        each.join(60)
    assert futures[0].get(60).num_rows == len(ROWS)


def test_close_fails_waiting_send_batch(make: Callable[..., KafkaProducer[Any, Any]]) -> None:
    producer = make()
    thread, futures = sending(producer)
    producer.close(0)
    thread.join(30)
    assert futures[0].wait(30)
    assert sum(len(each.rows) for each in futures[0].errors) == len(ROWS)
    assert any("closed while a send_batch was waiting" in str(each.error) for each in futures[0].errors)
    assert _backlog(producer).size == 0


def test_rows_that_wait_too_long_have_an_error(
    make: Callable[..., KafkaProducer[Any, Any]], cluster: EmbeddedCluster
) -> None:
    """The rows before the wait are sent; those after it have its error."""
    cluster.create_topic("counted", 2)
    producer = make("counted", max_block_ms=100)
    future = producer.send_batch("counted", ROWS)
    (failed,) = future.errors
    assert isinstance(failed.error, BufferExhaustedError)
    assert 0 < len(failed.rows) < len(ROWS)
    cluster.resume(1)
    producer.flush(60)
    written = sum(len(cluster.log(TopicPartition("counted", number))) for number in range(2))
    assert written == 2 + len(ROWS) - len(failed.rows)


def test_ctrl_c_interrupts_waiting_send_batch(
    make: Callable[..., KafkaProducer[Any, Any]], cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are in a batch are sent, no bytes stay counted, and the producer still works."""
    producer = make()
    backlog = _backlog(producer)

    def interrupted(_signal: LockSignal, timeout_ms: int) -> bool:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return wait(_signal, timeout_ms)

    wait = LockSignal.wait
    with monkeypatch.context() as patched:
        patched.setattr(LockSignal, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send_batch("rows", ROWS)
    cluster.resume(1)
    assert producer.send_batch("rows", [b"after"]).get(60).num_rows == 1
    producer.flush(60)
    eventually(lambda: (backlog.size, lent(producer), backlog.is_awaited) == (0, 0, False))


def test_callback_is_never_blocked(make: Callable[..., KafkaProducer[Any, Any]], cluster: EmbeddedCluster) -> None:
    """On the sender's thread, which alone could end the wait, memory is the only limit."""
    producer, futures = make(), list[BatchFuture]()
    producer.send("rows", b"1", on_delivery=lambda *_: futures.append(producer.send_batch("rows", ROWS)))
    cluster.resume(1)
    producer.flush(60)
    eventually(lambda: bool(futures))
    assert futures[0].get(60).num_rows == len(ROWS)


def test_backlog_limit_grows_with_partitions_up_to_memory(cluster: EmbeddedCluster) -> None:
    """The limit of a topic grows with its partitions, up to the memory."""
    cluster.create_topic("wide", 40)
    with KafkaProducer[Any, Any](
        bootstrap_servers=cluster.bootstrap_servers, **SMALL, buffer_memory=90_001
    ) as producer:
        producer.partitions_for("wide")
        cluster_of = producer._metadata.fetch()
        assert producer._accumulator._limit("wide", cluster_of) == 90_000
        producer.partitions_for("rows")
        assert producer._accumulator._limit("rows", producer._metadata.fetch()) == LIMIT
    with KafkaProducer[Any, Any](
        bootstrap_servers=cluster.bootstrap_servers, **SMALL, buffer_memory=90_000
    ) as producer:
        producer.partitions_for("wide")
        assert producer._accumulator._limit("wide", producer._metadata.fetch()) == 0
