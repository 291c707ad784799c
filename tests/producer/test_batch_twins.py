"""The compiled forms of a batch's methods do what the Python forms do, in all states of the batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.implementation import python_form
from pykclient.producer.future import ABORTED, FAILED, ProducerBatch, ProduceRequestResult
from pykclient.producer.outbox import SUCCEEDED, BatchState
from pykclient.producer.sender_thread import SenderThread
from pykclient.record import Compression, MemoryRecordsBuilder
from pykclient.record.memory_records_builder import AppendState
from pykclient.types import LOG_APPEND_TIME, TopicPartition

TP = TopicPartition("topic", 3)


def chosen_form(method: Any) -> Any:
    return method


FORMS: list[Callable[[Any], Any]] = [python_form, chosen_form]


def fields_of(instance: object, base: type) -> dict[str, Any]:
    """Return the values of all fields that the pure Python form of ``base`` has."""
    names = python_form(base).__slots__  # type: ignore[attr-defined]
    return {name: getattr(instance, name) for name in names if not name.startswith("_clock")}


def states_of(batch: ProducerBatch) -> tuple[dict[str, Any], dict[str, Any]]:
    of_batch = fields_of(batch, BatchState)
    of_builder = fields_of(of_batch.pop("_builder"), AppendState)
    del of_batch["produce_future"]
    of_builder["bytes"] = bytes(of_builder["_buffer"])
    return of_batch, of_builder


def builder_of(case: str) -> MemoryRecordsBuilder:
    buffer = bytearray(200)
    match case:
        case "usual":
            return MemoryRecordsBuilder(buffer, write_limit=200)
        case "compressed":
            return MemoryRecordsBuilder(buffer, write_limit=200, compression=Compression.of("gzip"))
        case "log append time":
            return MemoryRecordsBuilder(buffer, timestamp_type=LOG_APPEND_TIME, log_append_time=77)
        case "delete horizon":
            return MemoryRecordsBuilder(buffer, delete_horizon_ms=5)
        case "base offset":
            return MemoryRecordsBuilder(buffer, base_offset=40)
        case "old format":
            return MemoryRecordsBuilder(buffer, magic=1)
    raise AssertionError(case)


CASES = ["usual", "compressed", "log append time", "delete horizon", "base offset", "old format"]


def numbered(batch: ProducerBatch) -> None:
    batch.set_producer_state(1 << 40, 7, 2_000_000_000)


def transactional(batch: ProducerBatch) -> None:
    batch.set_producer_state(9, 0x7FFF, 0, True)


def without_id(batch: ProducerBatch) -> None:
    batch.set_producer_state(-1, -1, -1, True)


def without_epoch(batch: ProducerBatch) -> None:
    batch.set_producer_state(5, -1, 3)


def without_sequence(batch: ProducerBatch) -> None:
    batch.set_producer_state(5, 1, -1)


def aborted(batch: ProducerBatch) -> None:
    batch.abort_record_appends()


def closed(batch: ProducerBatch) -> None:
    batch.close()


def reset(batch: ProducerBatch) -> None:
    batch.close()
    batch.reset_producer_state(8, 2, 11)


STEPS: list[Callable[[ProducerBatch], None] | None] = [
    None,
    numbered,
    transactional,
    without_id,
    without_epoch,
    without_sequence,
    aborted,
    closed,
    reset,
]


def outcome(form: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return form(*arguments)
    except (IllegalStateError, IllegalArgumentError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("records", [0, 1, 5])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__ if step else "new")
@pytest.mark.parametrize("case", CASES)
def test_twins_number_batches_alike(case: str, step: Callable[[ProducerBatch], None] | None, records: int) -> None:
    """Also a batch that was closed, aborted or renumbered before, and one whose numbers are not valid."""
    seen = []
    for of in FORMS:
        batch = ProducerBatch(TP, builder_of(case), 1000, sender_thread=SenderThread())
        for number in range(records):
            batch.try_append(500 - number, b"k", b"value", (), None)
        outcomes = [] if step is None else [outcome(step, batch)]
        outcomes.append(outcome(of(ProducerBatch.close), batch))
        outcomes.append(outcome(of(ProducerBatch.set_producer_state), batch, 6, 1, 2))
        outcomes.append(outcome(of(ProducerBatch.close), batch))
        seen.append((outcomes, *states_of(batch)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("before", [None, ABORTED, FAILED, SUCCEEDED])
@pytest.mark.parametrize("final", [ABORTED, FAILED, SUCCEEDED])
def test_twins_decide_results_alike(before: str | None, final: str) -> None:
    seen = []
    for of in FORMS:
        batch = ProducerBatch(TP, builder_of("usual"), 1000)
        batch.try_append(1, b"k", b"v", (), None)
        outcomes = []
        if before is not None:
            outcomes.append(outcome(of(ProducerBatch.decide), batch, before, 4, -1, None))
        outcomes.append(outcome(of(ProducerBatch.decide), batch, final, 1 << 50, 99, None))
        result = batch.produce_future
        decided = (result.base_offset, result.log_append_time_ms, result.error_for)
        seen.append((outcomes, decided, result.record_count, result.created_ms, batch.final_state))
    assert seen[0] == seen[1]


def note(told: list[int], number: int, _future: object) -> None:
    told.append(number)


@pytest.mark.parametrize("defers", [False, True])
@pytest.mark.parametrize("listeners", [0, 2])
def test_twins_publish_results_alike(listeners: int, defers: bool) -> None:
    """A result without listeners, as of most batches, is settled at once; others are after their listeners."""
    seen = []
    for of in FORMS:
        batch = ProducerBatch(TP, builder_of("usual"), 1000, sender_thread=SenderThread())
        told: list[int] = []
        for number in range(max(listeners, 1)):
            future = batch.try_append(1, b"k", b"v", (), None)
            assert future is not None
            if listeners:
                future.add_done_callback(partial(note, told, number))
        result = batch.produce_future
        batch.decide(SUCCEEDED, 5, -1)
        done = of(ProduceRequestResult.done)
        outcomes = [done(result, defers), result.completed, result.settled, result.sender_thread is None, [*told]]
        outcomes += [done(result), result.settled, result.sender_thread is None, [*told]]
        seen.append(outcomes)
    assert seen[0] == seen[1]
    assert seen[0][-1] == [*range(listeners)]


def test_completed_result_needs_no_lock() -> None:
    """A forked child may inherit the lock, which all results of a producer share, while a lost thread holds it."""
    thread = SenderThread()
    batch = ProducerBatch(TP, builder_of("usual"), 1000, sender_thread=thread)
    future = batch.try_append(1, b"k", b"v", (), None)
    assert future is not None
    batch.decide(SUCCEEDED, 5, -1)
    batch.publish()
    told: list[object] = []
    with thread.results_lock:
        future.add_done_callback(told.append)
        assert future.get(0).offset == 5
    assert told == [future]
