"""Sender.step never waits, because its driver polls; and every transition in the table of a sender's states."""

from __future__ import annotations

import threading
from itertools import product
from typing import Any

import pytest

from pykclient.errors import IllegalStateError, KafkaError, check_move
from pykclient.producer.batch_register import WaitingQueues
from pykclient.producer.produce_requests import PUBLISH_INTERVAL_MS
from pykclient.producer.sender import CLOSED, MOVES, STATES
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.producer.harness import RETRY_BACKOFF_MS, TP0, SenderHarness, produce_response
from tests.support.calls import counted_calls


def forbidden(*_: Any) -> Any:
    raise AssertionError("a step of the sender waits")


class Stepped(SenderHarness):
    """A sender whose steps may neither poll nor sleep; responses are delivered between them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.deliver = self.client.poll
        self.client.poll = forbidden  # type: ignore[assignment,method-assign]
        self.clock.sleep_ms = forbidden  # type: ignore[assignment,method-assign]

    def step(self) -> int:
        return self.sender.step(self.clock.now_ms())

    def poll(self) -> None:
        self.deliver(0, self.clock.now_ms())


@pytest.mark.parametrize(("source", "target"), list(product(STATES, STATES)))
def test_sender_states_follow_table_of_moves(source: str, target: str) -> None:
    if target in MOVES[source]:
        check_move("a sender", MOVES, source, target)
    else:
        with pytest.raises(IllegalStateError, match=f"from {source} to {target}"):
            check_move("a sender", MOVES, source, target)


def test_closed_is_final_and_reachable_from_every_state() -> None:
    assert not MOVES[CLOSED]
    assert all(CLOSED in MOVES[state] for state in STATES if state != CLOSED)


def test_steps_get_producer_id_then_send_and_complete() -> None:
    h = Stepped()
    future = h.append()
    assert 0 < h.step() <= RETRY_BACKOFF_MS  # one request for an id is in flight
    assert 0 < h.step() <= RETRY_BACKOFF_MS
    assert len(h.requests()) == 1
    h.client.respond(InitProducerIdResponse(producer_id=7, producer_epoch=0))
    h.poll()
    h.step()
    h.client.respond(produce_response({TP0: (0, 3)}))
    h.poll()
    assert future.get(0).offset == 3


def test_step_returns_time_until_next_producer_id_request() -> None:
    h = Stepped()
    h.append()
    h.step()
    h.client.respond(InitProducerIdResponse(error_code=14))  # the coordinator is loading
    h.poll()
    h.clock.advance(10)
    assert h.step() == RETRY_BACKOFF_MS - 10
    assert not h.requests()
    h.clock.advance(RETRY_BACKOFF_MS - 10)
    h.step()
    assert len(h.requests()) == 1


def test_step_returns_time_until_batch_is_due() -> None:
    h = Stepped(idempotent=False, linger_ms=40)
    h.append()
    assert h.step() == 40
    h.clock.advance(15)
    assert h.step() == 25
    assert not h.requests()
    h.clock.advance(25)
    h.step()
    assert len(h.requests()) == 1


def a_step_after_the_last_response(h: Stepped) -> int:
    """Send a record, get its response, and return what the step after that returns."""
    h.append()
    h.step()
    h.client.respond(produce_response({TP0: (0, 1)}))
    h.poll()
    assert not h.accumulator.has_incomplete
    return h.step()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One element for each time that a sender checks its queues."""
    begun: list[int] = []
    begin_look = WaitingQueues.begin_look

    def counted(queues: WaitingQueues) -> None:
        begun.append(1)
        begin_look(queues)

    monkeypatch.setattr(WaitingQueues, "begin_look", counted)
    return begun


def test_step_after_last_response_skips_scan(looks: list[int]) -> None:
    h = Stepped(idempotent=False)
    h.sender_metrics.publish(h.clock.now_ms())
    h.clock.advance(10)
    assert a_step_after_the_last_response(h) == PUBLISH_INTERVAL_MS - 10
    assert len(looks) == 1
    h.clock.advance(PUBLISH_INTERVAL_MS - 11)
    assert h.step() == 1
    assert len(looks) == 1
    h.clock.advance(1)
    h.step()  # publishes the metrics
    assert len(looks) == 2
    assert not h.sender_metrics.latencies


def test_record_after_skipped_scan_wakes_sender(looks: list[int]) -> None:
    h = Stepped(idempotent=False, linger_ms=5)
    h.sender_metrics.publish(h.clock.now_ms())
    h.append()
    h.clock.advance(5)
    assert a_step_after_the_last_response(h) == PUBLISH_INTERVAL_MS - 5
    _, wake, _ = h.accumulator.append(
        TP0.topic, TP0.partition, h.clock.wall_ms(), b"k", b"v", (), None, 1000, h.metadata.fetch()
    )
    assert wake
    assert h.step() == 5
    h.clock.advance(5)
    h.step()
    assert len(h.requests()) == 1
    assert len(looks) == 3


def test_response_metrics_are_published_soon(looks: list[int]) -> None:
    """The step that sent the record has published the metrics before; no other check would be due for long."""
    h = Stepped(idempotent=False)
    h.clock.advance(10 * PUBLISH_INTERVAL_MS)
    assert a_step_after_the_last_response(h) == PUBLISH_INTERVAL_MS
    assert len(looks) == 2
    assert h.sender_metrics.latencies
    h.clock.advance(PUBLISH_INTERVAL_MS)
    h.step()
    assert not h.sender_metrics.latencies


def test_pending_producer_id_is_checked_without_batches(looks: list[int]) -> None:
    h = Stepped()
    h.sender_metrics.publish(h.clock.now_ms())
    h.append()
    h.step()
    h.client.respond(InitProducerIdResponse(producer_id=7, producer_epoch=0))
    h.poll()
    assert 0 < a_step_after_the_last_response(h) <= PUBLISH_INTERVAL_MS
    assert h.manager is not None
    seen = len(looks)
    h.step()
    assert len(looks) == seen
    h.manager.request_epoch_bump(TP0)
    h.step()
    assert len(looks) == seen + 1


def test_a_failed_round_is_not_repeated_before_the_backoff(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    h = Stepped(idempotent=False)
    rounds: list[int] = []

    def fails(_of_node: object, _max_size: int, now_ms: int) -> Any:
        rounds.append(now_ms)
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(h.accumulator, "drain", fails)
        start_ms = h.clock.now_ms()
        future = h.append()
        assert h.step() == RETRY_BACKOFF_MS
        h.clock.advance(20)
        assert h.step() == RETRY_BACKOFF_MS - 20
        h.clock.advance(RETRY_BACKOFF_MS - 20)
        assert h.step() == RETRY_BACKOFF_MS
    assert rounds == [start_ms, start_ms + RETRY_BACKOFF_MS]
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "Error in the producer's I/O thread"
    ]
    h.clock.advance(RETRY_BACKOFF_MS)
    h.step()
    h.client.respond(produce_response({TP0: (0, 1)}))
    h.poll()
    assert future.get(0).offset == 1


def test_a_poll_that_fails_is_followed_by_a_wait() -> None:
    """A driver whose network client raises at once must not spin."""
    h = SenderHarness(idempotent=False)

    def fails(*_: Any) -> Any:
        raise MemoryError("no room")

    h.append()
    h.client.poll = fails  # type: ignore[assignment,method-assign]
    before_ms = h.clock.now_ms()
    h.driver.run_once()
    assert h.clock.now_ms() == before_ms + RETRY_BACKOFF_MS


def test_closing_sender_ends_with_last_response() -> None:
    h = Stepped(idempotent=False, linger_ms=10_000)
    future = h.append()
    h.step()
    h.sender.initiate_close()
    assert not h.sender.is_running
    h.step()
    assert not h.sender.is_closed
    h.client.respond(produce_response({TP0: (0, 2)}))
    h.poll()
    h.step()
    assert h.sender.is_closed
    assert future.get(0).offset == 2
    assert not h.client.active


def test_a_forced_close_ends_with_the_next_step_even_during_the_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    h = Stepped(idempotent=False)
    future = h.append()
    with monkeypatch.context() as patch:
        patch.setattr(h.accumulator, "drain", lambda *_: 1 // 0)
        h.step()
    h.sender.initiate_close()
    assert h.step() == RETRY_BACKOFF_MS
    assert not h.sender.is_closed
    h.sender.force_close()
    assert h.step() == 0
    assert h.sender.is_closed
    with pytest.raises(KafkaError, match="closed by force"):
        future.get(0)
    assert h.step() == 0


def test_abandoned_sender_refuses_records() -> None:
    h = Stepped(idempotent=False)
    h.sender.abandon()
    h.step()
    with pytest.raises(KafkaError, match="closed"):
        h.append()


def test_an_exception_that_ends_the_driver_fails_all_records() -> None:
    h = Stepped(idempotent=False)
    future = h.append()
    h.step()
    error = SystemExit(3)
    h.sender.fail(error)
    assert h.sender.is_closed
    assert not h.sender.is_running
    with pytest.raises(KafkaError, match="SystemExit") as caught:
        future.get(0)
    assert caught.value.__cause__ is error
    assert h.step() == 0


def test_a_step_that_sends_one_batch_makes_few_calls() -> None:
    """One walk over the nodes checks the connection, drains and sends; what is settled is not looked at."""
    h = Stepped(linger_ms=0)
    h.append()
    h.step()
    h.client.respond(InitProducerIdResponse(producer_id=7, producer_epoch=0))
    h.poll()
    for offset in range(3):
        if offset:
            h.append()
        with counted_calls() as calls:
            h.step()
        h.client.respond(produce_response({TP0: (0, offset)}))
        h.poll()
    assert calls.of(threading.current_thread()) < 120
