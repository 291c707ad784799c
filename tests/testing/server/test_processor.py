"""One request per connection at a time, ordered responses, throttling, limits, pauses and crashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pykclient.errors import IllegalStateError
from pykclient.network.frames import NetworkSend
from pykclient.network.selectable import SocketAddress
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.testing.memory_network import MemorySelector
from pykclient.testing.request_channel import Request
from pykclient.testing.server import processor as channel_mute_state
from tests.testing.server.support import HeartbeatHandler, VirtualCluster, correlation_ids, frame, heartbeat_handler


@pytest.fixture
def handler() -> Iterator[HeartbeatHandler]:
    with heartbeat_handler() as handler:
        yield handler


class Setup:
    def __init__(self, **settings: Any) -> None:
        self.cluster = VirtualCluster(**settings)
        self.broker = self.cluster.broker(1)
        self.cluster.server.open(self.broker)
        self.client = self.new_client("client:c")

    def new_client(self, party: str, id: str = "1", host: str = "127.0.0.1") -> MemorySelector:
        client = MemorySelector(self.cluster.network, party, host=host)
        client.connect(id, SocketAddress("127.0.0.1", 9092, "b"), -1, -1)
        self.cluster.run()
        client.poll(0)
        return client

    def send(self, *correlation_ids: int) -> None:
        for correlation_id in correlation_ids:
            self.client.send(NetworkSend("1", [frame(correlation_id)]))

    def answers(self, duration_ms: int = 0) -> list[int]:
        self.cluster.run(duration_ms)
        self.client.poll(0)
        return correlation_ids(self.client)


def test_requests_are_answered_in_order(handler: HeartbeatHandler) -> None:
    setup = Setup()
    setup.send(*range(100))
    assert setup.answers() == list(range(100))
    request = handler.requests[7]
    assert (request.party, request.client_id, request.broker_id, request.client_host) == (
        "client:c",
        "c",
        1,
        "127.0.0.1",
    )
    assert request.body.member_id == "m7"  # type: ignore[attr-defined]
    assert request.size_bytes == len(frame(7))


def test_next_request_waits_for_the_previous_response(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = lambda request: None
    setup.send(*range(30))
    assert setup.answers() == []
    assert len(handler.requests) == 1
    for number in range(30):
        handler.requests[number].respond(HeartbeatResponse())
        assert setup.answers() == [number]
        assert len(handler.requests) == min(number + 2, 30)


def test_connections_do_not_wait_for_each_other(handler: HeartbeatHandler) -> None:
    setup = Setup()
    other = setup.new_client("client:other")

    def answer_one(request: Request) -> None:
        if request.party == "client:other":
            request.respond(HeartbeatResponse())

    handler.answer = answer_one
    setup.send(1)
    other.send(NetworkSend("1", [frame(5, "other")]))
    assert setup.answers() == []
    other.poll(0)
    assert correlation_ids(other) == [5]


def test_a_request_is_answered_exactly_once(handler: HeartbeatHandler) -> None:
    setup = Setup()
    setup.send(1)
    assert setup.answers() == [1]
    with pytest.raises(IllegalStateError, match="answered already"):
        handler.requests[0].respond(HeartbeatResponse())
    with pytest.raises(IllegalStateError, match="answered already"):
        handler.requests[0].close_connection()


def test_request_without_response_gets_none(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = lambda request: request.respond(None)
    setup.send(1, 2)
    assert setup.answers() == []
    assert len(handler.requests) == 2


def test_throttled_connection_is_answered_at_once_and_read_later(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = lambda request: request.respond(HeartbeatResponse(), throttle_time_ms=500)
    setup.send(1, 2)
    assert setup.answers() == [1]
    assert handler.requests[0].record.response.throttle_time_ms == 500  # type: ignore[union-attr]
    assert setup.answers(499) == []
    assert setup.answers(1) == [2]


def test_throttling_may_end_before_the_response_is_sent(handler: HeartbeatHandler) -> None:
    assert channel_mute_state.after("THROTTLED_AND_RESPONSE_PENDING", "THROTTLE_ENDED") == "RESPONSE_PENDING"
    with pytest.raises(IllegalStateError, match="RESPONSE_SENT cannot happen to a connection that is NOT_MUTED"):
        channel_mute_state.after("NOT_MUTED", "RESPONSE_SENT")
    with pytest.raises(IllegalStateError):
        channel_mute_state.after("RESPONSE_PENDING", "REQUEST_RECEIVED")


def test_responses_to_closed_connections_are_dropped(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = lambda request: None
    setup.send(1, 2)
    setup.cluster.run()
    setup.client.close_channel("1")
    setup.cluster.run()
    handler.requests[0].respond(HeartbeatResponse(), throttle_time_ms=5)
    setup.cluster.run(10)
    assert len(handler.requests) == 1


def test_requests_without_response_are_handled_after_close(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = lambda request: request.respond(None)
    setup.send(*range(100))
    setup.client.close_channel("1")
    setup.cluster.run()
    assert len(handler.requests) == 100


def test_request_of_a_disconnected_peer_may_close_the_connection(handler: HeartbeatHandler) -> None:
    """A producer with acks=0 sends more than one turn's share of requests and disconnects; the last one fails."""
    setup = Setup()
    last = 40

    def answer(request: Request) -> None:
        if len(handler.requests) == last:
            request.close_connection()
        else:
            request.respond(None)

    handler.answer = answer
    setup.send(*range(100))
    setup.client.close_channel("1")
    setup.cluster.run()
    assert len(handler.requests) == last
    other = setup.new_client("client:other")
    handler.answer = lambda request: request.respond(HeartbeatResponse())
    other.send(NetworkSend("1", [frame(5, "other")]))
    setup.cluster.run()
    other.poll(0)
    assert correlation_ids(other) == [5]


def test_resumed_broker_serves_earlier_requests(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = lambda request: setattr(setup.broker, "paused", True) or request.respond(HeartbeatResponse())  # type: ignore[func-returns-value]
    setup.send(1, 2)
    assert setup.answers(1000) == [1]
    handler.answer = lambda request: request.respond(HeartbeatResponse())
    setup.broker.resume()
    setup.cluster.server.resume(setup.broker)
    assert setup.answers() == [2]


def test_killed_broker_closes_connections_without_responses(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = lambda request: None
    setup.send(1)
    setup.cluster.run()
    setup.broker.alive = False
    setup.cluster.server.close_broker(setup.broker, reset=True)
    handler.requests[0].respond(HeartbeatResponse())
    assert setup.answers() == []
    assert "reset" in str(setup.client.disconnected["1"].cause)
    client = setup.new_client("client:c")
    assert list(client.disconnected) == ["1"]
    setup.broker.alive = True
    setup.cluster.server.open(setup.broker)
    assert setup.new_client("client:c").connected == ["1"]


def test_max_connections_closes_the_longest_idle_one(handler: HeartbeatHandler) -> None:
    setup = Setup(max_connections=2)
    setup.cluster.clock.advance(10)
    second = setup.new_client("client:d")
    setup.cluster.clock.advance(10)
    setup.send(1)
    setup.answers()
    third = setup.new_client("client:e")
    second.poll(0)
    assert list(second.disconnected) == ["1"]
    assert third.connected == ["1"]
    setup.send(2)
    assert setup.answers() == [2]


def test_max_connections_per_ip_refuses_connections(handler: HeartbeatHandler) -> None:
    setup = Setup(max_connections_per_ip=1)
    refused = setup.new_client("client:d")
    assert (refused.connected, list(refused.disconnected)) == ([], ["1"])
    assert setup.new_client("client:d", host="10.0.0.1").connected == ["1"]
    setup.send(1)
    assert setup.answers() == [1]


def test_brokers_are_identified_by_connection_and_clients_by_id(handler: HeartbeatHandler) -> None:
    setup = Setup()
    peer = setup.new_client("broker-2")
    peer.send(NetworkSend("1", [frame(1, "broker-2-fetcher")]))
    simulated = setup.new_client("client:x")
    simulated.send(NetworkSend("1", [frame(1, "y")]))
    setup.cluster.run()
    assert [request.party for request in handler.requests] == ["broker-2", "client:y"]
    assert [request.is_from_broker for request in handler.requests] == [True, False]


def test_handlers_may_close_the_connection(handler: HeartbeatHandler) -> None:
    setup = Setup()
    handler.answer = Request.close_connection
    setup.send(1, 2)
    assert setup.answers() == []
    assert list(setup.client.disconnected) == ["1"]
    assert len(handler.requests) == 1
    assert setup.cluster.history.matching()[0].fate == "DISCONNECTED"
