"""Producer ids, allocated in blocks by the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pykclient.errors import CoordinatorLoadInProgressError
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.inter_broker_requests import ProducerIdManager
from tests.support.mock_clock import MockClock

NOT_READY = (CoordinatorLoadInProgressError.code, -1)


class FakeBroker:
    """A broker whose controller responds when the test says so."""

    id = 3
    epoch = 17

    def __init__(self) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.call_later = self.loop.call_later
        self.log_context = LogContext()
        self.asked: list[tuple[AllocateProducerIdsRequest, Callable[[Any], None], Callable[[], None]]] = []
        self.manager = ProducerIdManager(cast(Any, self), cast(Any, self))
        self.told: list[tuple[int, int]] = []

    def send_request(
        self, request: RequestBuilder, on_complete: Callable[[Any], None], on_timeout: Callable[[], None]
    ) -> None:
        message = request.build(0)
        assert isinstance(message, AllocateProducerIdsRequest)
        self.asked.append((message, on_complete, on_timeout))

    def answer(self, start: int = 0, size: int = 0, error_code: int = 0) -> None:
        _, on_complete, _ = self.asked.pop(0)
        body = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=size, error_code=error_code)
        on_complete(
            ClientResponse(67, 0, 1, None, "1", created_ms=0, received_ms=0, disconnected=False, response_body=body)
        )

    def want(self, count: int = 1) -> None:
        for _ in range(count):
            self.manager.generate_producer_id(lambda *answer: self.told.append(answer))

    def advance(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.loop.run_due()


def test_producer_ids_come_from_a_block() -> None:
    broker = FakeBroker()
    broker.want(2)
    assert not broker.told
    ((request, _, _),) = broker.asked
    assert (request.broker_id, request.broker_epoch) == (3, 17)
    broker.answer(4000, 3)
    broker.want()
    assert broker.told == [(0, 4000), (0, 4001), (0, 4002)]
    assert not broker.asked
    broker.want()
    broker.answer(7000, 1000)
    assert broker.told[3:] == [(0, 7000)]


def test_waiting_requests_may_need_several_blocks() -> None:
    broker = FakeBroker()
    broker.want(5)
    broker.answer(0, 2)
    broker.answer(10, 2)
    broker.answer(20, 2)
    assert [id for _, id in broker.told] == [0, 1, 10, 11, 20]


def test_refused_block_request_is_retried() -> None:
    broker = FakeBroker()
    broker.want()
    broker.answer(error_code=77)
    assert not broker.told
    broker.advance(100)
    broker.answer(5, 1)
    assert broker.told == [(0, 5)]


def test_missing_controller_fails_waiting_requests() -> None:
    broker = FakeBroker()
    broker.want()
    broker.advance(3_000)
    broker.want()
    broker.advance(2_000)
    assert broker.told == [NOT_READY]
    broker.asked.pop(0)[2]()
    broker.advance(100)
    broker.answer(5, 2)
    assert broker.told == [NOT_READY, (0, 5)]
    broker.advance(10_000)
    broker.want()
    assert broker.told[2:] == [(0, 6)]
    assert not broker.asked
