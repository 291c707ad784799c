"""Request managers over the consumer's network client: who polls them, and who completes their requests."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, PollResult, RequestManagers, UnsentRequest
from pykclient.errors import AuthenticationError, DisconnectError, KafkaTimeoutError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.consumer.harness import Harness


class Manager:
    """Returns the results it was given, one per poll, and then nothing."""

    def __init__(self, *results: PollResult, runs_in_background: bool = False) -> None:
        self.runs_in_background = runs_in_background
        self.pending = True
        self.results = list(results)
        self.polled_ms: list[int] = []
        self.resets = 0

    def poll(self, now_ms: int) -> PollResult:
        self.polled_ms.append(now_ms)
        return self.results.pop(0) if self.results else NOTHING

    def reset(self) -> None:
        self.resets += 1


def asks(node: object = None, timeout_ms: int | None = None) -> UnsentRequest:
    return UnsentRequest(RequestBuilder(HeartbeatRequest(group_id="g")), node, timeout_ms)  # type: ignore[arg-type]


@pytest.fixture
def harness() -> Harness:
    harness = Harness(brokers=2)
    harness.update_metadata()
    return harness


def test_poll_sends_in_order_and_returns_the_shortest_wait() -> None:
    sent: list[tuple[UnsentRequest, bool]] = []
    managers = RequestManagers(lambda request, is_background: sent.append((request, is_background)))
    assert managers.poll(1) == FOREVER_MS
    first, second, third = asks(), asks(), asks()
    application = Manager(PollResult(50, [first, second]), PollResult(60))
    background = Manager(PollResult(70, [third]), PollResult(80), runs_in_background=True)
    managers.add(application, background)
    assert managers.poll(2) == 50
    assert sent == [(first, False), (second, False), (third, True)]
    assert managers.poll(3, background=True) == 80
    assert (application.polled_ms, background.polled_ms) == ([2], [2, 3])
    managers.reset()
    assert (application.resets, background.resets) == (1, 1)


def test_a_manager_with_nothing_pending_is_not_polled() -> None:
    managers = RequestManagers(lambda *_: None)
    manager = Manager(PollResult(50))
    managers.add(manager)
    manager.pending = False
    assert managers.poll(1000) == FOREVER_MS
    manager.pending = True
    assert managers.poll(1001) == 50
    assert manager.polled_ms == [1001]


def test_managers_are_due_after_their_wait_or_with_work() -> None:
    managers = RequestManagers(lambda *_: None)
    background = Manager(PollResult(80), PollResult(10), PollResult(20), runs_in_background=True)
    managers.add(Manager(PollResult(50)), background)
    assert managers.due_ms <= 0
    managers.poll(1000)
    assert managers.due_ms == 1050
    managers.poll(1050, background=True)
    assert managers.due_ms == 1050
    managers.poll(1050)
    assert managers.due_ms == 1070
    managers.poll_soon()
    assert managers.due_ms <= 0


def test_nothing_is_polled_while_no_manager_is_due(harness: Harness) -> None:
    manager = Manager()
    harness.network.managers.add(manager)
    harness.driver.transmit(if_any=True)
    harness.driver.transmit(if_any=True)
    assert len(manager.polled_ms) == 1
    manager.results.append(PollResult(requests=[asks()]))
    harness.network.managers.poll_soon()
    harness.driver.transmit(if_any=True)
    assert len(harness.client.requests) == 1
    harness.driver.transmit(if_any=True)  # receives the response, if there is one
    assert len(manager.polled_ms) == 3


def test_requests_go_to_their_node_or_the_least_loaded(harness: Harness) -> None:
    to_node, to_any = asks(harness.node(1)), asks()
    harness.network.managers.add(Manager(PollResult(requests=[to_node, to_any])))
    assert not harness.network.has_pending_requests()
    harness.poll()
    assert {request.destination for request in harness.client.requests} == {"0", "1"}
    assert harness.network.pending_request_count() == 2
    harness.client.respond(HeartbeatResponse(throttle_time_ms=1))
    harness.client.respond(HeartbeatResponse(throttle_time_ms=2))
    harness.poll()
    found = {to_node.future.value.response_body.throttle_time_ms, to_any.future.value.response_body.throttle_time_ms}
    assert found == {1, 2}
    assert not harness.network.has_pending_requests()


def test_a_poll_waits_no_longer_than_a_manager_allows(harness: Harness) -> None:
    timeouts: list[int] = []
    poll = harness.client.poll

    def note(timeout_ms: int, now_ms: int) -> object:
        timeouts.append(timeout_ms)
        return poll(timeout_ms, now_ms)

    harness.client.poll = note  # type: ignore[assignment, method-assign]
    harness.network.managers.add(Manager(PollResult(requests=[asks()]), PollResult(700), PollResult(0)))
    for _ in range(3):
        harness.poll(1000)
    assert timeouts[1:] == [700, 0]


def test_request_waits_for_a_reachable_node(harness: Harness) -> None:
    for id in range(2):
        harness.client.set_unreachable(harness.node(id), 500)
    request = asks()
    harness.network.managers.add(Manager(PollResult(requests=[request])))
    harness.poll()
    assert harness.network.has_pending_requests()
    assert harness.network.pending_request_count() == 1
    assert harness.network.pending_request_count(harness.node()) == 0
    harness.clock.advance(500)
    harness.client.prepare_response(HeartbeatResponse())
    harness.poll()
    assert request.future.succeeded


def test_request_without_a_reachable_node_times_out(harness: Harness) -> None:
    for id in range(2):
        harness.client.set_unreachable(harness.node(id), 500)
    request = asks(timeout_ms=50)
    harness.network.managers.add(Manager(PollResult(requests=[request])))
    harness.poll()
    harness.clock.advance(51)
    assert not request.future.is_done
    harness.poll(1000)
    assert isinstance(request.future.exception, KafkaTimeoutError)
    assert not harness.network.has_pending_requests()


def test_authentication_error_fails_the_request(harness: Harness) -> None:
    harness.client.create_pending_authentication_error(harness.node(0), 300)
    request = asks()
    harness.network.managers.add(Manager(PollResult(requests=[request])))
    for _ in range(3):
        harness.poll()
    assert isinstance(request.future.exception, AuthenticationError)


def test_lost_connection_fails_the_request(harness: Harness) -> None:
    request = asks(harness.node(1))
    harness.network.managers.add(Manager(PollResult(requests=[request])))
    harness.poll()
    harness.client.disconnect("1")
    harness.poll()
    assert isinstance(request.future.exception, DisconnectError)


@pytest.mark.parametrize("step", [lambda of: of.driver.transmit(), lambda of: of.network.poll_background()])
def test_requests_leave_without_waiting(harness: Harness, step: Callable[[Harness], object]) -> None:
    harness.network.managers.add(Manager(PollResult(requests=[asks()]), runs_in_background=True))
    step(harness)
    assert len(harness.client.requests) == 1


def test_the_background_completes_the_requests_of_its_managers_only(harness: Harness) -> None:
    ours, theirs = asks(harness.node(0)), asks(harness.node(1))
    application = Manager(PollResult(requests=[ours]))
    harness.network.managers.add(application, Manager(PollResult(requests=[theirs]), runs_in_background=True))
    harness.driver.transmit()
    for _ in range(2):
        harness.client.respond(HeartbeatResponse())
    harness.network.poll_background()
    assert theirs.future.is_done
    assert not ours.future.is_done
    assert len(application.polled_ms) == 1
    harness.poll()
    assert ours.future.is_done


def test_managers_and_listeners_hold_the_lease(harness: Harness) -> None:
    free: list[bool] = []

    def look() -> None:
        if harness.network.lease.acquire(blocking=False):
            harness.network.lease.release()
            free.append(True)
        else:
            free.append(False)

    def from_another_thread(_: object = None) -> None:
        other = threading.Thread(target=look)
        other.start()
        other.join()

    class Looks(Manager):
        def poll(self, now_ms: int) -> PollResult:
            from_another_thread()
            return super().poll(now_ms)

    request = asks()
    request.future.add_listener(from_another_thread)
    harness.network.managers.add(Looks(PollResult(requests=[request])))
    harness.client.prepare_response(HeartbeatResponse())
    harness.poll()
    assert free == [False, False]
    from_another_thread()
    assert free == [False, False, True]


def test_reset_forgets_sent_and_unsent_requests(harness: Harness) -> None:
    called: list[object] = []
    sent, answered, unsent = (asks(harness.node(id)) for id in (0, 1, 1))
    harness.client.set_unreachable(harness.node(0), 0)
    manager = Manager(PollResult(requests=[sent, answered]), PollResult(requests=[unsent]))
    for request in (sent, answered, unsent):
        request.future.add_listener(called.append, called.append)
    harness.network.managers.add(manager)
    harness.poll()
    harness.client.respond_from(HeartbeatResponse(), harness.node(1))
    harness.network.poll_background()  # reads the response, and leaves it to the application
    harness.client.delay_ready(harness.node(1), 1000)
    harness.driver.transmit()
    harness.network.reset()
    assert manager.resets == 1
    assert not harness.network.has_pending_requests()
    for _ in range(2):
        harness.poll()
    assert called == []


def test_a_response_that_a_manager_waits_for_ends_the_wait(harness: Harness) -> None:
    """A request that fails while it is queued does not leave its manager waiting for the network."""
    timeouts: list[int] = []
    poll: Callable[[int, int], object] = harness.client.poll

    def note(timeout_ms: int, now_ms: int) -> object:
        timeouts.append(timeout_ms)
        return poll(timeout_ms, now_ms)

    harness.client.poll = note  # type: ignore[assignment, method-assign]
    for id in range(2):
        harness.client.set_unreachable(harness.node(id), 500)
    request = asks(timeout_ms=-1)
    harness.network.managers.add(Manager(PollResult(requests=[request])))
    harness.poll(1000)
    assert timeouts == [0]
    assert isinstance(request.future.exception, KafkaTimeoutError)
