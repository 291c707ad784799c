"""ConsumerNetworkClient: sending, waiting, disconnects, wakeups, and the background thread."""

from __future__ import annotations

import threading

import pytest

from pykclient.clock import Timer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.consumer_network_client import ConsumerNetworkClient
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.errors import (
    AuthenticationError,
    DisconnectError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    WakeupError,
)
from pykclient.log_context import LogContext
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.types import Node
from tests.consumer.responses import metadata_response
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock
from tests.support.wait import eventually


class Network:
    """A ConsumerNetworkClient over a MockClient."""

    def __init__(self) -> None:
        self.clock = MockClock(auto_tick_ms=1)
        log_context = LogContext()
        config = ConsumerConfig({"bootstrap.servers": "localhost:9092"})
        subscriptions = SubscriptionState(log_context, AutoOffsetResetStrategy.EARLIEST)
        subscriptions.subscribe({"secret"})
        self.metadata = ConsumerMetadata(config, subscriptions, log_context)
        self.client = MockClient(self.clock, self.metadata)
        self.client.update_metadata(metadata_response({"test": 1}))
        self.node: Node = self.metadata.fetch().nodes[0]
        self.network = ConsumerNetworkClient(self.client, self.metadata, self.clock, 100, 1000, 5000)

    def timer(self, timeout_ms: int = 1000) -> Timer:
        return Timer(self.clock, timeout_ms)


@pytest.fixture
def net() -> Network:
    return Network()


def heartbeat() -> RequestBuilder:
    return RequestBuilder(HeartbeatRequest(group_id="g"))


def test_send_and_poll(net: Network) -> None:
    net.client.prepare_response(HeartbeatResponse(error_code=0))
    future = net.network.send(net.node, heartbeat())
    assert net.network.pending_request_count() == 1
    assert net.network.has_pending_requests(net.node)
    assert not future.is_done
    assert net.network.poll_future(future, net.timer())
    assert isinstance(future.value.response_body, HeartbeatResponse)
    assert not net.network.has_pending_requests()


def test_several_requests_to_one_node_keep_their_order(net: Network) -> None:
    order: list[int] = []
    for number in range(3):
        net.client.prepare_response(HeartbeatResponse(throttle_time_ms=number))
        future = net.network.send(net.node, heartbeat())
        future.add_listener(lambda response: order.append(response.response_body.throttle_time_ms))
    net.network.poll_no_wakeup()
    assert order == [0, 1, 2]


def test_a_disconnect_fails_what_was_sent_and_what_was_not(net: Network) -> None:
    sent = net.network.send(net.node, heartbeat())
    net.network.poll_no_wakeup()
    assert net.network.pending_request_count(net.node) == 1
    net.network.disconnect_async(net.node)
    unsent = net.network.send(net.node, heartbeat())
    net.network.poll_no_wakeup()
    net.network.poll_no_wakeup()
    for future in (sent, unsent):
        assert isinstance(future.exception, DisconnectError)


def test_a_node_in_backoff_fails_what_waits_for_it(net: Network) -> None:
    net.client.backoff(net.node, 500)
    assert net.network.is_unavailable(net.node)
    future = net.network.send(net.node, heartbeat())
    net.network.poll_no_wakeup()
    assert isinstance(future.exception, DisconnectError)


def test_failed_authentication_is_the_error_of_waiting_requests(net: Network) -> None:
    net.client.authentication_failed(net.node, 300)
    future = net.network.send(net.node, heartbeat())
    net.network.poll_no_wakeup()
    assert isinstance(future.exception, AuthenticationError)
    with pytest.raises(AuthenticationError):
        net.network.maybe_throw_auth_failure(net.node)


def test_a_request_that_cannot_be_sent_expires(net: Network) -> None:
    net.client.delay_ready(net.node, 10_000)
    future = net.network.send(net.node, heartbeat(), 50)
    net.network.poll_no_wakeup()
    assert not future.is_done
    net.clock.advance(51)
    net.network.poll_no_wakeup()
    assert isinstance(future.exception, KafkaTimeoutError)


def test_an_unsupported_version_is_the_error(net: Network) -> None:
    net.client.prepare_unsupported_version_response()
    future = net.network.send(net.node, heartbeat())
    net.network.poll_no_wakeup()
    assert isinstance(future.exception, UnsupportedVersionError)


def test_wakeup_ends_a_poll_once(net: Network) -> None:
    future = net.network.send(net.node, heartbeat())
    net.network.wakeup()
    with pytest.raises(WakeupError):
        net.network.poll(net.timer(0))
    net.network.poll(net.timer(0))
    net.client.respond(HeartbeatResponse())
    assert net.network.poll_future(future, net.timer())


def test_wakeup_waits_for_a_poll_that_allows_it(net: Network) -> None:
    net.network.wakeup()
    net.network.poll_no_wakeup()
    with pytest.raises(WakeupError):
        net.network.maybe_trigger_wakeup()
    net.network.wakeup()
    net.network.disable_wakeups()
    net.network.poll(net.timer(0))


def test_a_future_that_is_done_is_not_waited_for(net: Network) -> None:
    timeouts: list[int] = []
    poll = net.client.poll

    def note(timeout_ms: int, now_ms: int) -> object:
        timeouts.append(timeout_ms)
        return poll(timeout_ms, now_ms)

    net.client.poll = note  # type: ignore[assignment, method-assign]
    net.client.ready(net.node, net.clock.now_ms())
    net.network.poll(net.timer(), lambda: False)
    net.network.poll(net.timer(), lambda: True)
    net.network.send(net.node, heartbeat())
    net.network.poll(net.timer(700))
    assert timeouts[0] == 0
    # With nothing in flight, the timeout is the retry backoff; with a request in flight, the timer's remaining time.
    assert timeouts[1] == 100
    assert 690 <= timeouts[2] <= 700


def test_listeners_run_without_the_lock(net: Network) -> None:
    acquired: list[bool] = []

    def from_another_thread() -> None:
        free = net.network.lease.acquire(timeout=30)
        acquired.append(free)
        if free:
            net.network.lease.release()

    def listener(_: object) -> None:
        other = threading.Thread(target=from_another_thread)
        other.start()
        other.join()

    net.client.prepare_response(HeartbeatResponse())
    net.network.send(net.node, heartbeat()).add_listener(listener)
    net.network.poll_no_wakeup()
    assert acquired == [True]


def test_metadata_errors_come_out_of_poll(net: Network) -> None:
    net.client.update_metadata(metadata_response({}, errors={"secret": 29}))
    with pytest.raises(TopicAuthorizationError, match="secret"):
        net.network.poll_no_wakeup()
    net.network.poll_no_wakeup()


def test_metadata_can_be_awaited(net: Network) -> None:
    assert net.network.ensure_fresh_metadata(net.timer())
    net.client.prepare_metadata_update(metadata_response({"test": 2}))
    assert net.network.await_metadata_update(net.timer())
    assert net.metadata.fetch().partition_count_for_topic("test") is None  # not retained: not subscribed to
    net.client.set_unreachable(net.node, 10_000)
    assert not net.network.await_metadata_update(net.timer(50))


def test_pending_requests_can_be_awaited(net: Network) -> None:
    net.network.send(net.node, heartbeat())
    assert not net.network.await_pending_requests(net.node, net.timer(20))
    net.client.respond(HeartbeatResponse())
    assert net.network.await_pending_requests(net.node, net.timer())


class TestBackground:
    def test_only_background_requests_are_completed(self, net: Network) -> None:
        net.client.prepare_response(HeartbeatResponse())
        net.client.prepare_response(HeartbeatResponse())
        ours = net.network.send(net.node, heartbeat())
        theirs = net.network.send(net.node, heartbeat(), background=True)
        net.network.poll_background()
        assert theirs.is_done
        assert not ours.is_done
        net.network.poll_no_wakeup()
        assert ours.is_done

    def test_the_application_completes_both(self, net: Network) -> None:
        net.client.prepare_response(HeartbeatResponse())
        future = net.network.send(net.node, heartbeat(), background=True)
        net.network.poll_no_wakeup()
        assert future.is_done

    def test_it_does_not_raise_what_is_for_the_application(self, net: Network) -> None:
        net.client.update_metadata(metadata_response({}, errors={"secret": 29}))
        net.network.wakeup()
        net.network.poll_background()
        with pytest.raises(WakeupError):
            net.network.poll(net.timer(0))
        with pytest.raises(TopicAuthorizationError):
            net.network.poll(net.timer(0))

    def test_it_does_not_wait_for_a_poll_and_ends_its_wait(self, net: Network) -> None:
        """A request of the background thread wakes the application's poll, which then sends it."""
        in_poll, woken = threading.Event(), threading.Event()
        poll = net.client.poll

        def blocking_poll(timeout_ms: int, now_ms: int) -> object:
            if timeout_ms > 0 and not woken.is_set():
                in_poll.set()
                assert woken.wait(10)
            return poll(timeout_ms, now_ms)

        net.client.poll = blocking_poll  # type: ignore[assignment, method-assign]
        net.client.wakeup_hook = woken.set
        net.client.ready(net.node, net.clock.now_ms())
        net.network.send(net.node, heartbeat())
        application = threading.Thread(target=net.network.poll, args=(net.timer(60_000),))
        application.start()
        assert in_poll.wait(10)
        assert not woken.is_set()
        future = net.network.send(net.node, heartbeat(), background=True)
        net.network.poll_background()
        application.join(10)
        assert not application.is_alive()
        assert len(net.client.requests) == 2
        assert not future.is_done

    def test_what_comes_after_the_last_look_is_sent_before_poll_returns(self, net: Network) -> None:
        """A request queued after poll's last check of the queue, while poll still holds the lease, is sent."""
        try_send = net.network.try_send
        checks = 0

        def late(now_ms: int) -> int:
            nonlocal checks
            checks += 1
            wait_ms = try_send(now_ms)
            if checks == 2:
                other = threading.Thread(target=self._queue_and_go, args=(net,))
                other.start()
                other.join()
            return wait_ms

        net.network.try_send = late  # type: ignore[method-assign]
        net.network.poll_no_wakeup()
        eventually(lambda: len(net.client.requests) == 1, 30)

    @staticmethod
    def _queue_and_go(net: Network) -> None:
        net.network.send(net.node, heartbeat(), background=True)
        net.network.poll_background()
        assert not net.client.requests
