"""The futures of a batch's records, in both implementations."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from pykclient.aio import awaited_records
from pykclient.aio.awaited_records import attach
from pykclient.aio.structs import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from pykclient.errors import KafkaError, NotLeaderOrFollowerError, TransactionAbortedError
from pykclient.implementation import NAME, python_form
from pykclient.producer.future import FutureRecordMetadata, ProduceRequestResult
from pykclient.producer.outbox import NO_OFFSET, NO_TIMESTAMP
from pykclient.types import TopicPartition
from tests.aio.loops import run, some_iterations

TP = TopicPartition("t", 3)


@pytest.fixture(autouse=True, params=["python", "c"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(awaited_records, "AwaitedRecords", python_form(awaited_records.AwaitedRecords))
    elif NAME != "c":
        pytest.skip("the compiled form takes compiled futures only")


def record(result: ProduceRequestResult, index: int) -> FutureRecordMetadata:
    return FutureRecordMetadata(result, index, 1_000 + index, -1, -1)


def attached(result: ProduceRequestResult, count: int, has_acks: bool = True) -> list[asyncio.Future[Any]]:
    futures = []
    for index in range(count):
        futures.append(asyncio.get_running_loop().create_future())
        attach(record(result, index), futures[-1], has_acks)
    assert len(result.listeners) == 1  # one for all
    return futures


def test_futures_get_metadata_of_written_records() -> None:
    async def main() -> None:
        result = ProduceRequestResult(TP)
        futures = attached(result, 3)
        futures[1].cancel()
        result.set(70, NO_TIMESTAMP)
        result.done()
        assert futures[0].result() == RecordMetadata("t", 3, TP, 70, 1_000, CREATE_TIME)
        assert futures[1].cancelled()
        assert futures[2].result() == RecordMetadata("t", 3, TP, 72, 1_002, CREATE_TIME)
        assert type(futures[2].result()) is RecordMetadata

    run(main())


@pytest.mark.parametrize("offset", [NO_OFFSET, 5])
def test_metadata_may_have_broker_timestamp_and_unknown_offset(offset: int) -> None:
    async def main() -> None:
        result = ProduceRequestResult(TP)
        (future,) = attached(result, 1)
        result.set(offset, 123)  # a duplicate has no offset
        result.done()
        assert future.result() == RecordMetadata("t", 3, TP, offset, 123, LOG_APPEND_TIME)

    run(main())


def test_futures_get_none_without_acknowledgements() -> None:
    async def main() -> None:
        result = ProduceRequestResult(TP)
        futures = attached(result, 2, has_acks=False)
        result.set(NO_OFFSET, NO_TIMESTAMP)
        result.done()
        assert [future.result() for future in futures] == [None, None]

    run(main())


def test_each_record_has_its_own_error() -> None:
    async def main() -> None:
        errors = [KafkaError("first"), NotLeaderOrFollowerError("second")]
        result = ProduceRequestResult(TP)
        futures = attached(result, 2)
        result.set(NO_OFFSET, NO_TIMESTAMP, lambda index: errors[index])
        result.done()
        assert [repr(future.exception()) for future in futures] == [repr(error) for error in errors]

    run(main())


def test_error_of_many_records_is_copied_for_each() -> None:
    async def main() -> None:
        error = KafkaError("shared")
        error.__cause__ = OSError("the cause")
        result = ProduceRequestResult(TP)
        futures = attached(result, 50)
        result.set(NO_OFFSET, NO_TIMESTAMP, lambda _: error)
        result.done()
        for future in futures:
            with pytest.raises(KafkaError, match="shared") as caught:
                await future
            assert caught.value.__cause__ is error.__cause__
        assert error.__traceback__ is None  # each task raised a copy

    run(main())


def test_futures_of_a_split_batch_get_their_offsets() -> None:
    async def main() -> None:
        result = ProduceRequestResult(TP)
        futures = attached(result, 4)
        first, second = ProduceRequestResult(TP), ProduceRequestResult(TP)
        result.split([(0, first), (2, second)])
        assert not any(future.done() for future in futures)
        first.set(10, NO_TIMESTAMP)
        first.done()
        assert [future.result().offset for future in futures[:2]] == [10, 11]
        assert not futures[2].done()
        second.set(90, NO_TIMESTAMP)
        second.done()
        assert [future.result().offset for future in futures[2:]] == [90, 91]

    run(main())


def test_parts_of_a_split_batch_may_complete_in_any_order() -> None:
    async def main() -> None:
        result = ProduceRequestResult(TP)
        futures = attached(result, 4)
        first, second = ProduceRequestResult(TP), ProduceRequestResult(TP)
        result.split([(0, first), (2, second)])
        second.set(NO_OFFSET, NO_TIMESTAMP, lambda _: KafkaError("failed"))
        second.done()
        first.set(10, NO_TIMESTAMP)
        first.done()
        assert [future.result().offset for future in futures[:2]] == [10, 11]
        assert [type(future.exception()) for future in futures[2:]] == [KafkaError] * 2

    run(main())


class OtherFuture(asyncio.Future[Any]):
    """A future as a loop may have its own, which does not show who waits for it."""

    @property
    def _callbacks(self) -> Any:
        raise AttributeError


async def waited_for(
    resumed: list[Any], count: int, kind: type[asyncio.Future[Any]] = asyncio.Future
) -> tuple[ProduceRequestResult, list[asyncio.Task[Any]]]:
    """Return the result of a batch, and a task that waits for each of its records."""
    result = ProduceRequestResult(TP)
    futures = [kind(loop=asyncio.get_running_loop()) for _ in range(count)]
    for index, future in enumerate(futures):
        attach(record(result, index), future, True, resumed)

    async def wait(future: asyncio.Future[Any]) -> Any:
        return await future

    tasks = [asyncio.ensure_future(wait(future)) for future in futures]
    await asyncio.sleep(0)
    return result, tasks


def test_task_awaiting_the_only_record_is_returned() -> None:
    async def main() -> None:
        resumed: list[Any] = []
        result, (task,) = await waited_for(resumed, 1)
        result.set(70, NO_TIMESTAMP)
        result.done()
        await some_iterations()
        assert not task.done()
        ((future, wakeup, context),) = resumed
        assert future.done()
        asyncio.get_running_loop().call_soon(wakeup, future, context=context)
        assert await task == RecordMetadata("t", 3, TP, 70, 1_000, CREATE_TIME)

    run(main())


@pytest.mark.parametrize(
    "case", ["two records", "an error", "cancelled", "nobody waits", "two wait", "another kind of future"]
)
def test_other_waiting_tasks_are_resumed_by_the_loop(case: str) -> None:
    async def main() -> None:
        resumed: list[Any] = []
        kind = OtherFuture if case == "another kind of future" else asyncio.Future
        result, tasks = await waited_for(resumed, 2 if case == "two records" else 1, kind)
        if case == "two wait":
            tasks[0]._fut_waiter.add_done_callback(lambda _: None)  # type: ignore[attr-defined]
        if case in ("cancelled", "nobody waits"):
            tasks[0].cancel()
            await asyncio.sleep(0)
        if case == "nobody waits":
            result = ProduceRequestResult(TP)
            attach(record(result, 0), asyncio.get_running_loop().create_future(), True, resumed)
        error = NotLeaderOrFollowerError("moved")
        result.set(70, NO_TIMESTAMP, (lambda _: error) if case == "an error" else None)
        result.done()
        assert not resumed
        await asyncio.wait(tasks, timeout=30)
        assert all(task.done() for task in tasks)
        if case == "an error":
            assert isinstance(tasks[0].exception(), NotLeaderOrFollowerError)

    run(main())


def test_futures_of_a_closed_loop_are_ignored() -> None:
    async def main() -> ProduceRequestResult:
        result = ProduceRequestResult(TP)
        (future,) = attached(result, 1)
        future.add_done_callback(print)
        return result

    result = run(main())
    result.set(1, NO_TIMESTAMP)
    result.done()


@pytest.mark.parametrize(("error", "is_reported"), [(TransactionAbortedError("it"), False), (KafkaError("it"), True)])
def test_unretrieved_errors_are_reported_except_after_aborts(error: KafkaError, is_reported: bool) -> None:
    """asyncio reports them, except for records of a transaction that the application has aborted."""
    reports = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reports.append(context["exception"]))
        result = ProduceRequestResult(TP)
        futures = attached(result, 2)
        result.set(NO_OFFSET, NO_TIMESTAMP, lambda _: error)
        result.done()
        with pytest.raises(type(error)):
            await futures[0]
        del futures, result
        gc.collect()

    run(main())
    assert [type(report) for report in reports] == [type(error)] * is_reported
