"""Every transition in the table of a batch's states; and no batch is forgotten after an exception anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

import pykclient.producer
from pykclient.errors import IllegalStateError, NotLeaderOrFollowerError, RecordTooLargeError, check_move
from pykclient.producer.future import OnDelivery
from pykclient.producer.outbox import DONE, MOVES, QUEUED, STATES
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.producer.harness import (
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    TP0,
    TP1,
    SenderHarness,
    produce_response,
)
from tests.support.interrupts import places

MANY_ROUNDS = 8
#: Errors are raised in the code of the producer, at any place.
PRODUCER = str(Path(pykclient.producer.__file__).parent)


@pytest.mark.parametrize(("source", "target"), list(product(STATES, STATES)))
def test_batch_states_follow_table_of_moves(source: str, target: str) -> None:
    if target in MOVES[source]:
        check_move("a batch", MOVES, source, target)
    else:
        with pytest.raises(IllegalStateError, match=f"from {source} to {target}"):
            check_move("a batch", MOVES, source, target)


def test_every_batch_state_is_reachable_and_leads_to_done() -> None:
    reached, last = {QUEUED}, set[str]()
    while reached != last:
        last = set(reached)
        reached |= {target for source in last for target in MOVES[source]}
    assert reached == set(STATES)
    assert not MOVES[DONE]
    assert all(MOVES[source] for source in STATES if source != DONE)


#: Only an interruption can strike here: between noting that batches are sent and the network client's acceptance of
#: their request, or before the call with its outcome begins. The batches then count as in flight until they expire.
UNKNOWN_TO_CLIENT = ("BatchRegister.sent ", "_send_produce_request after", "_handle_produce_response after RESUME")

#: An error here counts as one of the callback that is being called.
IN_CALLBACKS = (
    "run_listeners ",
    "FutureRecordMetadata.",
    "ProduceRequestResult.locate ",
    "BatchRegister.fail.<locals>",
)


class BrokenError(Exception):
    """Stands for an unexpected error, such as MemoryError, at any place."""


class Case(NamedTuple):
    """The response of the brokers to the first request, and the settings of the sender."""

    error_code: int = 0
    settings: Mapping[str, Any] = MappingProxyType({})
    #: Let time pass before the response, which then comes late.
    expires: bool = False


CASES = {
    "sent": Case(),
    "sent in order": Case(settings={"idempotent": False, "guarantee_message_order": True}),
    "without idempotence": Case(settings={"idempotent": False}),
    "retried": Case(NotLeaderOrFollowerError.code),
    "retried in order": Case(NotLeaderOrFollowerError.code, {"idempotent": False, "guarantee_message_order": True}),
    "refused": Case(87),  # an invalid record
    "split": Case(RecordTooLargeError.code),
    "split in order": Case(RecordTooLargeError.code, {"idempotent": False, "guarantee_message_order": True}),
    "expired": Case(expires=True),
    "expired in order": Case(settings={"idempotent": False, "guarantee_message_order": True}, expires=True),
}


def answer_all(h: SenderHarness, case: Case) -> None:
    """Respond to all requests: to the first produce request as the case says, to the others with success."""
    for request in h.requests():
        if request.api_key == 22:
            h.client.respond_to_request(request, InitProducerIdResponse(producer_id=7, producer_epoch=0))
            continue
        code = case.error_code if request is h.first_request else 0  # type: ignore[attr-defined]
        message = request.request_builder.message
        partitions = [(topic.name, part.index) for topic in message.topic_data for part in topic.partition_data]  # type: ignore[attr-defined]
        results = {TP0 if partition == 0 else TP1: (code, 0) for _, partition in partitions}
        h.client.respond_to_request(request, produce_response(results))


def run(h: SenderHarness, case: Case) -> None:
    """Run the sender until it has nothing left to do."""
    for number in range(MANY_ROUNDS):
        h.run_once_safely()
        if h.first_request is None and not h.is_later:  # type: ignore[attr-defined]
            produce = [request for request in h.requests() if request.api_key == 0]
            if produce:
                h.first_request = produce[0]  # type: ignore[attr-defined]
                if case.expires:
                    h.clock.advance(DELIVERY_TIMEOUT_MS)
                    h.run_once_safely()
        answer_all(h, case)
        h.clock.advance(RETRY_BACKOFF_MS if number % 2 else 1)


def tell(told: list[int], number: int) -> OnDelivery:
    return lambda _error, _metadata: told.append(number)


def check_all_over(h: SenderHarness, futures: list[Any]) -> None:
    register = h.accumulator.register
    assert all(future.done() for future in futures), futures
    assert not h.accumulator.has_incomplete
    assert not register.held
    assert not register._in_flight
    assert not h.accumulator.waiting.muted
    assert h.pool.available_memory == h.pool.total_memory


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=[pytest.mark.exhaustive, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("name", CASES)
def test_error_anywhere_loses_no_batch(name: str, every: int) -> None:
    """Whatever raises, all records get a result, all memory returns, and later records are sent."""
    case = CASES[name]
    for place in places(BrokenError, under=PRODUCER, every=every):
        with place:
            h = SenderHarness(**case.settings)
            h.first_request, h.is_later = None, False  # type: ignore[attr-defined]
            told: list[int] = []
            futures = [h.append(tp, on_delivery=tell(told, index)) for index, tp in enumerate((TP0, TP0, TP1))]
            error = place.interrupt(lambda h=h: run(h, case))  # type: ignore[misc]
            if error is not None:  # raised outside of a round: the driver ends
                h.sender.fail(error)
                h.client.reset()
            else:
                run(h, case)
                if not all(future.done() for future in futures):  # a lost request for an id is repeated
                    h.clock.advance(2 * REQUEST_TIMEOUT_MS)
                run(h, case)
                if any(name in place.name for name in UNKNOWN_TO_CLIENT):
                    assert all(future.done() for future in futures)
                    continue
                h.is_later = True  # type: ignore[attr-defined]
                later = [h.append(TP0, b"later"), h.append(TP1, b"later")]
                run(h, case)
                assert [future.exception for future in later] == [None, None]
                futures += later
            check_all_over(h, [] if error is not None else futures)
            assert all(future.done() for future in futures)
            if not any(name in place.name for name in IN_CALLBACKS):
                assert sorted(told) == [0, 1, 2]
