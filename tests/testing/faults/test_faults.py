"""Hooks on requests (what they decide, for how long, for whom), and links between clients and brokers over TCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykclient.errors import IllegalArgumentError, NotCoordinatorError, RebalanceInProgressError
from pykclient.network.frames import NetworkSend
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import parse_response
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.testing import faults
from pykclient.testing.faults import HookResult
from pykclient.testing.request_channel import Request
from tests.support.wait import eventually
from tests.testing.server.running import RunningServer
from tests.testing.server.support import HeartbeatHandler, frame, heartbeat_handler
from tests.testing.server.test_processor import Setup


@pytest.fixture
def handler() -> Iterator[HeartbeatHandler]:
    with heartbeat_handler() as handler:
        yield handler


def errors(setup: Setup, *ids: int) -> list[int]:
    """Return the error codes of the responses to these requests."""
    setup.send(*ids)
    setup.cluster.run()
    setup.client.poll(0)
    codes = []
    for receive in setup.client.completed_receives:
        response = parse_response(receive.payload, ApiKeys.HEARTBEAT, 4)[1]
        assert isinstance(response, HeartbeatResponse)
        codes.append(response.error_code)
    return codes


def test_error_applies_to_given_number_of_requests(handler: HeartbeatHandler) -> None:
    setup = Setup()
    control = setup.cluster.faults.answer("Heartbeat", NotCoordinatorError, times=2)
    assert errors(setup, 1, 2, 3) == [16, 16, 0]
    assert control.hits == 2
    assert len(handler.requests) == 1
    assert setup.cluster.faults.controls == []


@pytest.mark.parametrize(
    "error", [27, RebalanceInProgressError, RebalanceInProgressError("x"), HeartbeatResponse(error_code=27)]
)
def test_hook_answers_with_code_error_or_response(handler: HeartbeatHandler, error: HookResult) -> None:
    setup = Setup()
    control = setup.cluster.faults.control(ApiKeys.HEARTBEAT, lambda request: error)
    assert errors(setup, 1, 2) == [27, 27]
    control.remove()
    control.remove()
    assert errors(setup, 3) == [0]


def test_faults_apply_only_to_matching_requests(handler: HeartbeatHandler) -> None:
    setup = Setup()
    found = setup.cluster.faults
    found.answer("JOIN_GROUP", 1, times=None)
    found.answer(None, 2, broker=7, times=None)
    found.answer(None, 3, party="client:x*", times=None)
    found.answer(None, 4, party="broker-*", times=None)
    found.answer(None, 5, when=lambda request: request.body.member_id == "m2", times=None)  # type: ignore[attr-defined]
    assert errors(setup, 1, 2, 3) == [0, 5, 0]


def test_first_deciding_control_ends_the_search(handler: HeartbeatHandler) -> None:
    setup = Setup()
    seen: list[str] = []

    def hook(name: str, result: int | None) -> None:
        def look(request: Request) -> int | None:
            seen.append(name)
            return result

        setup.cluster.faults.control("Heartbeat", look)

    hook("passes", None)
    hook("decides", 9)
    hook("never", 9)
    assert errors(setup, 1) == [9]
    assert seen == ["passes", "decides"]


def test_dropped_requests_have_no_effect_and_get_no_response(handler: HeartbeatHandler) -> None:
    setup = Setup()
    setup.cluster.faults.drop_requests("Heartbeat")
    assert errors(setup, 1, 2) == []
    assert handler.requests == []
    assert setup.client.disconnected == {}
    assert [record.fate for record in setup.cluster.history.matching()] == ["REQUEST_DROPPED"]


def test_dropped_responses_follow_requests_that_took_effect(handler: HeartbeatHandler) -> None:
    setup = Setup()
    setup.cluster.faults.drop_responses("Heartbeat")
    assert errors(setup, 1, 2) == []
    assert len(handler.requests) == 1
    assert setup.client.disconnected == {}
    (record,) = setup.cluster.history.matching()
    assert (record.fate, record.response) == ("RESPONSE_DROPPED", HeartbeatResponse())


@pytest.mark.parametrize("after", [True, False])
def test_disconnect_happens_before_or_after_the_effect(handler: HeartbeatHandler, after: bool) -> None:
    setup = Setup()
    drop = setup.cluster.faults.drop_responses if after else setup.cluster.faults.drop_requests
    drop("Heartbeat", disconnect=True)
    assert errors(setup, 1, 2) == []
    assert len(handler.requests) == after
    assert list(setup.client.disconnected) == ["1"]
    assert [record.fate for record in setup.cluster.history.matching()] == ["DISCONNECTED"]


def test_held_requests_take_effect_on_release(handler: HeartbeatHandler) -> None:
    setup = Setup()
    control = setup.cluster.faults.hold("Heartbeat")
    other = setup.new_client("client:d")
    other.send(NetworkSend("1", [frame(1, "d")]))
    assert errors(setup, 1, 2) == []
    assert [request.party for request in control.held] == ["client:d", "client:c"]
    assert {record.fate for record in setup.cluster.history.matching()} == {"HELD"}
    assert control.release(1) == 1
    setup.cluster.run()
    assert [request.party for request in handler.requests] == ["client:d"]
    control.remove()
    assert setup.cluster.faults.release() == 1
    setup.cluster.run()
    setup.client.poll(0)
    assert len(setup.client.completed_receives) == 2


def test_requests_released_after_broker_death_are_lost(handler: HeartbeatHandler) -> None:
    setup = Setup()
    setup.cluster.faults.hold("Heartbeat")
    assert errors(setup, 1) == []
    setup.broker.alive = False
    setup.cluster.faults.clear()
    setup.cluster.run()
    assert handler.requests == []


def test_failing_hook_has_no_effect_and_is_reported(handler: HeartbeatHandler) -> None:
    def hook(request: Request) -> HookResult:
        raise LookupError("a mistake in a test")

    setup = Setup()
    setup.cluster.faults.control("Heartbeat", hook)
    with pytest.raises(LookupError, match="a mistake in a test"):
        errors(setup, 1)
    assert len(handler.requests) == 1


@pytest.mark.parametrize("wrong", [0, True, "NOT_COORDINATOR", object()])
def test_invalid_answers_are_refused(handler: HeartbeatHandler, wrong: object) -> None:
    setup = Setup()
    with pytest.raises(IllegalArgumentError, match="a request can be answered with"):
        setup.cluster.faults.answer("Heartbeat", wrong)  # type: ignore[arg-type]
    setup.cluster.faults.control("Heartbeat", lambda request: wrong)  # type: ignore[arg-type, return-value]
    with pytest.raises(IllegalArgumentError, match="a request can be answered with"):
        errors(setup, 1)


def test_api_names_are_accepted_in_any_form() -> None:
    found = Setup().cluster.faults
    for name in ("INIT_PRODUCER_ID", "InitProducerId", "init_producer_id", 22):
        assert found.hold(name)._api_key == 22
    with pytest.raises(IllegalArgumentError, match="there is no API 'Prodcue'; there are PRODUCE, FETCH"):
        found.hold("Prodcue")
    with pytest.raises(IllegalArgumentError, match="times must be above 0"):
        found.answer("Produce", 1, times=0)


def test_verdicts_have_a_readable_repr() -> None:
    assert repr(faults.DROP_REQUEST) == "DROP_REQUEST"


# --- links to clients over TCP ---------------------------------------------------------------------------------------


def test_cut_link_holds_frames_until_healed(handler: HeartbeatHandler) -> None:
    with RunningServer(2) as server, server.connect(1) as peer, server.connect(2) as other:
        cluster = server.cluster
        server.thread.call(lambda: cluster.faults.cut("client:c", 1))
        peer.send(frame(1))
        other.send(frame(2))
        assert other.correlation_id() == 2
        assert len(handler.requests) == 1
        server.thread.call(cluster.faults.heal)
        assert peer.correlation_id() == 1


def test_one_way_cut_loses_only_responses(handler: HeartbeatHandler) -> None:
    with RunningServer() as server, server.connect() as peer:
        server.thread.call(lambda: server.cluster.faults.cut(1, "client:*", one_way=True))
        peer.send(frame(1) + frame(2))
        eventually(lambda: len(handler.requests) == 2)
        server.thread.call(lambda: server.cluster.faults.heal(1, "client:*"))
        assert [peer.correlation_id(), peer.correlation_id()] == [1, 2]


def test_delays_keep_order_and_do_not_accumulate(handler: HeartbeatHandler) -> None:
    with RunningServer() as server, server.connect() as peer:
        clock = server.cluster.loop.clock
        server.thread.call(lambda: server.cluster.faults.delay("client:*", 1, 100))
        start_ms = clock.now_ms()
        for id in range(200):
            peer.send(frame(id))
        assert [peer.correlation_id() for _ in range(200)] == list(range(200))
        assert 200 <= clock.now_ms() - start_ms < 20_000, "half of what they would add up to"
        server.thread.call(server.cluster.faults.heal)
        peer.send(frame(3))
        assert peer.correlation_id() == 3


def test_throttled_link_limits_bytes_per_second(handler: HeartbeatHandler) -> None:
    with RunningServer() as server, server.connect() as peer:
        clock = server.cluster.loop.clock
        size = len(frame(0)) - 4
        server.thread.call(lambda: server.cluster.faults.throttle("client:c", 1, size * 50, one_way=True))
        start_ms = clock.now_ms()
        for id in range(10):
            peer.send(frame(id))
        assert [peer.correlation_id() for _ in range(10)] == list(range(10))
        assert clock.now_ms() - start_ms >= 190


def test_reset_link_closes_connections_and_breaks_new_ones(handler: HeartbeatHandler) -> None:
    with RunningServer() as server, server.connect() as peer, server.connect() as other:
        for each, client_id in ((peer, "c"), (other, "d")):
            each.send(frame(1, client_id))
            assert each.correlation_id() == 1
        server.thread.call(lambda: server.cluster.faults.cut("client:c", 1, reset=True))
        assert peer.closed
        with server.connect() as again:
            again.send(frame(2))
            assert again.closed
        other.send(frame(2, "d"))
        assert other.correlation_id() == 2


def test_partition_separates_clients_and_brokers(handler: HeartbeatHandler) -> None:
    with RunningServer(2) as server, server.connect(1) as near, server.connect(2) as far:
        server.thread.call(lambda: server.cluster.faults.partition(["client:*", 1], [2]))
        for peer in (far, near):
            peer.send(frame(1))
        assert near.correlation_id() == 1
        assert len(handler.requests) == 1
        server.thread.call(server.cluster.faults.clear)
        assert far.correlation_id() == 1


def test_broker_apis_match_requests_of_brokers() -> None:
    found = Setup().cluster.faults
    assert found.hold("UpdateMetadata")._party == "broker-*"
    assert found.hold("Fetch")._party == found.hold(None)._party == "client:*"
