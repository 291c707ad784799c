"""Futures of records: waiting and callbacks, from threads and from asyncio."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import traceback
import weakref
from collections.abc import Callable

import pytest

from pykclient.errors import KafkaError, KafkaTimeoutError, NetworkError
from pykclient.producer.future import (
    BatchDelivery,
    FutureRecordMetadata,
    OnDelivery,
    ProduceRequestResult,
    failed_future,
)
from pykclient.producer.outbox import add_delivery
from pykclient.producer.sender_thread import SenderThread
from pykclient.types import RecordMetadata, TopicPartition
from tests.support.wait import eventually

TP = TopicPartition("orders", 3)
ERROR = NetworkError("gone")


def pending(index: int = 0) -> tuple[ProduceRequestResult, FutureRecordMetadata]:
    result = ProduceRequestResult(TP)
    return result, FutureRecordMetadata(result, index, 1000, 1, 2)


def succeed(result: ProduceRequestResult, base_offset: int = 10, log_append_time_ms: int = -1) -> None:
    result.set(base_offset, log_append_time_ms)
    result.done()


def fail(result: ProduceRequestResult) -> None:
    result.set(-1, -1, lambda _index: ERROR)
    result.done()


def test_succeeded_future_returns_metadata() -> None:
    result, future = pending(5)
    assert (future.done(), future.is_done, future.succeeded(), future.failed()) == (False,) * 4
    assert future.value is None
    assert future.exception is None
    succeed(result)
    assert future.done()
    assert future.succeeded()
    assert future.get() == future.result(0) == future.value == RecordMetadata("orders", 3, TP, 15, 1000, None, 1, 2)
    assert "succeeded" in repr(future)


def test_metadata_has_broker_timestamp_and_may_lack_offset() -> None:
    result, future = pending(5)
    succeed(result, -1, 2000)
    metadata = future.get(0)
    assert (metadata.offset, metadata.has_offset, metadata.timestamp) == (-1, False, 2000)


def test_failed_future_raises_its_error() -> None:
    result, future = pending()
    fail(result)
    assert future.failed()
    assert not future.succeeded()
    assert future.retriable()
    assert future.exception is ERROR
    for _ in range(3):
        with pytest.raises(NetworkError) as caught:
            future.get(0)
    assert caught.value.__traceback__ is not None
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= 2  # raising it again does not accumulate tracebacks


def test_listeners_are_called_once_and_in_order() -> None:
    told: list[int] = []
    result, future = pending()
    for number in range(3):
        future.add_done_callback(lambda _, number=number: told.append(number))  # type: ignore[misc]
    succeed(result)
    result.done()
    assert told == [0, 1, 2]


def test_get_with_timeout_raises_timeout_error() -> None:
    _, future = pending()
    with pytest.raises(KafkaTimeoutError, match=r"orders-3 was not acknowledged within 0\.01 s"):
        future.get(0.01)


def test_waiting_threads_are_woken() -> None:
    result, future = pending()
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(future.get(10).offset), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(result._waiting) == len(threads))
    succeed(result)
    for thread in threads:
        thread.join(30)
    assert got == [10] * 4


def test_callbacks_in_the_order_of_records() -> None:
    result, first = pending(0)
    second = FutureRecordMetadata(result, 1, 1000, 1, 2)
    heard: list[object] = []
    second.add_callback(lambda *args, **kwargs: heard.append((args, kwargs)), "x", y=1)
    first.add_callback(heard.append)
    first.add_errback(lambda error: heard.append("never"))
    second.add_both(heard.append)
    first.add_done_callback(heard.append)
    succeed(result)
    assert heard == [first.value, first, (("x", second.value), {"y": 1}), second.value]
    first.add_callback(heard.append)  # the result is known, so the callback runs at once
    assert heard[-1] == first.value


def test_failed_future_calls_errbacks_only() -> None:
    result, future = pending()
    heard: list[object] = []
    future.add_errback(lambda *args: heard.append(args), "x").add_both(heard.append).add_callback(heard.append)
    fail(result)
    assert heard == [("x", ERROR), ERROR]


def test_callback_exceptions_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    result, future = pending()
    heard: list[object] = []

    def bad(_value: object) -> None:
        raise ValueError("application's")

    for _ in range(3):
        future.add_callback(bad)
    future.add_callback(heard.append)
    with caplog.at_level(logging.ERROR):
        succeed(result)
    assert len(heard) == 1
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert "3 callbacks" in caplog.text


def test_callback_may_read_its_future() -> None:
    result, future = pending()
    heard: list[int] = []
    future.add_done_callback(lambda done: heard.append(done.get(0).offset))
    succeed(result)
    assert heard == [10]


@pytest.mark.parametrize("end", [succeed, fail, lambda result: result.split([])])
def test_future_keeps_no_reference_to_producer(end: Callable[[ProduceRequestResult], None]) -> None:
    """In the compiled build no garbage collector would find a reference cycle of the future and the producer."""

    class Client:
        def __init__(self) -> None:
            self.kept: list[object] = []

        def wakeup(self) -> None:
            raise AssertionError("nobody waits")

    client = Client()
    result = ProduceRequestResult(TP, sender_thread=SenderThread(wakeup=client.wakeup))
    future = FutureRecordMetadata(result, 0, 1000, 1, 2)
    client.kept.append(future)
    end(result)
    is_there = weakref.ref(client)
    del client, result, future
    gc.collect()
    assert is_there() is None


def test_dropped_future_releases_its_result() -> None:
    """The compiled build uses the memory of futures again."""
    results = [ProduceRequestResult(TP) for _ in range(2)]
    before = [sys.getrefcount(results[number]) for number in (0, 1)]
    for count in (3000, 10):  # more than are kept, and fewer
        for number in (0, 1):
            futures = [FutureRecordMetadata(results[number], index, number, 5, 6) for index in range(count)]
            assert [future.index for future in futures] == list(range(count))
            assert {future.timestamp_ms for future in futures} == {number}
            references = sys.getrefcount(results[number])
            assert references == before[number] + count
            del futures
    after = [sys.getrefcount(results[number]) for number in (0, 1)]
    assert after == before


def test_records_move_with_a_split_batch() -> None:
    result = ProduceRequestResult(TP)
    futures = [FutureRecordMetadata(result, index, 1000, 1, 2) for index in range(6)]
    heard: list[int] = []
    for future in futures:
        future.add_callback(lambda metadata: heard.append(metadata.offset))
    parts = [ProduceRequestResult(TP) for _ in range(3)]
    result.split([(0, parts[0]), (2, parts[1]), (5, parts[2])])
    assert not any(future.done() for future in futures)
    assert not futures[0].failed()
    deeper = [ProduceRequestResult(TP) for _ in range(2)]
    parts[1].split([(0, deeper[0]), (1, deeper[1])])
    succeed(parts[0], 10)
    succeed(deeper[0], 20)
    succeed(deeper[1], 30)
    assert not futures[5].done()
    assert not result.await_all_dependents(0)
    succeed(parts[2], 40)
    assert [future.get(0).offset for future in futures] == [10, 11, 20, 30, 31, 40] == heard
    assert result.await_all_dependents(0)


class Shared(BatchDelivery):
    """A delivery of many records, which notes the offsets that it is called with, and the batches."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.batches: list[tuple[int, int]] = []

    @property
    def sees_batches(self) -> bool:
        return True

    def batch_delivered(
        self,
        deliveries: list[BatchDelivery],
        result: ProduceRequestResult,
        error: Exception | None,
        metadata: RecordMetadata,
    ) -> None:
        self.batches.append((metadata.offset, len(deliveries)))

    def __call__(self, error: Exception | None, metadata: RecordMetadata) -> None:
        self.offsets.append(metadata.offset)


def test_adjacent_records_share_a_delivery() -> None:
    result = ProduceRequestResult(TP)
    first, second, plain = Shared(), Shared(), list[int]()

    def own(_error: Exception | None, metadata: RecordMetadata) -> None:
        plain.append(metadata.offset)

    deliveries: list[OnDelivery] = [first, first, second, first, first, own, own]
    for index, delivery in enumerate(deliveries):
        add_delivery(result.listeners, FutureRecordMetadata(result, index, 1000, 1, 2), delivery)
    succeed(result, 10)
    assert (first.offsets, second.offsets, plain) == ([10, 13], [12], [15, 16])
    assert first.batches == [(10, 3)]


def test_shared_delivery_follows_records_into_split_batches() -> None:
    result = ProduceRequestResult(TP)
    first, second = Shared(), Shared()
    for index, delivery in enumerate((first, first, first, first, second, second)):
        add_delivery(result.listeners, FutureRecordMetadata(result, index, 1000, 1, 2), delivery)
    parts = [ProduceRequestResult(TP) for _ in range(4)]
    places = [(0, parts[0]), (2, parts[1]), (4, parts[2]), (5, parts[3])]
    result.split(places)
    result.split(places)  # as after an exception
    for part, offset in zip(parts, (10, 20, 30, 40), strict=True):
        succeed(part, offset)
    assert (first.offsets, second.offsets) == ([10, 20], [30, 40])
    assert (first.batches, second.batches) == ([(10, 1), (20, 1)], [(30, 1), (40, 1)])


def test_waiting_thread_follows_record_into_split_batch() -> None:
    result, future = pending(1)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(future.get(10).offset), daemon=True)
    thread.start()
    eventually(lambda: result._waiting)
    part = ProduceRequestResult(TP)
    result.split([(0, part)])
    eventually(lambda: part._waiting)
    succeed(part)
    thread.join(30)
    assert got == [11]


def test_failed_future_without_batch_raises_its_error() -> None:
    future = failed_future(TP, KafkaError("no"))
    with pytest.raises(KafkaError, match="no"):
        future.get(0)


def test_futures_can_be_awaited() -> None:
    async def main() -> list[int]:
        result, future = pending()
        other_result, other = pending()
        threading.Timer(0.05, lambda: succeed(result, 7)).start()
        succeed(other_result, 8)
        return [(await future).offset, (await other).offset, (await future).offset]

    assert asyncio.run(main()) == [7, 8, 7]


def test_await_raises_the_records_error() -> None:
    async def main() -> None:
        result, future = pending()
        threading.Timer(0.02, lambda: fail(result)).start()
        with pytest.raises(NetworkError):
            await future

    asyncio.run(main())


def test_cancelled_await_and_closed_loop_are_harmless(caplog: pytest.LogCaptureFixture) -> None:
    result, future = pending()
    still_waiting, other = pending()

    async def wait(what: FutureRecordMetadata) -> RecordMetadata:
        return await what

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(future), 0.01)
        succeed(result)
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(other), 0.01)

    asyncio.run(main())
    succeed(still_waiting)
    assert not caplog.records
