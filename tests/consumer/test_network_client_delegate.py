"""NetworkClientDelegate: sending, disconnects, and the heartbeat thread."""

from __future__ import annotations

import threading

import pytest

from pykclient.clock import Timer
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.application_driver import ApplicationDriver, NetworkClientDelegate, RequestFuture, UnsentRequest
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.subscription_state import SubscriptionState
from pykclient.consumer.values import AutoOffsetResetStrategy
from pykclient.errors import (
    AuthenticationError,
    DisconnectError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    WakeupError,
)
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.types import Node
from tests.consumer.responses import metadata_response
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock


class Network:
    """A NetworkClientDelegate over a MockClient, and the driver of the application."""

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
        self.network = NetworkClientDelegate(self.client, self.clock, 100, 1000, 5000)
        self.driver = ApplicationDriver(self.network, self.metadata, self.clock)

    def send(
        self, builder: RequestBuilder, timeout_ms: int | None = None, *, background: bool = False
    ) -> RequestFuture[ClientResponse]:
        """Queue a request to ``node``, and return its future."""
        request = UnsentRequest(builder, self.node, timeout_ms)
        self.network.add(request, background)
        return request.future

    def step(self) -> None:
        self.driver.step(self.timer(0), wakeup=False)

    def timer(self, timeout_ms: int = 1000) -> Timer:
        return Timer(self.clock, timeout_ms)


@pytest.fixture
def net() -> Network:
    return Network()


def heartbeat() -> RequestBuilder:
    return RequestBuilder(HeartbeatRequest(group_id="g"))


def test_split_poll_completes_requests_in_its_second_half(net: Network) -> None:
    """A driver with a wait of its own gets the longest wait, and what the I/O brought is completed after it."""
    future = net.send(heartbeat())
    for _ in range(2):  # connecting, and sending
        assert net.network.begin_poll(10_000, net.clock.now_ms()) <= 5_000
        net.network.end_poll(net.clock.now_ms())
    assert not future.is_done
    net.client.respond(HeartbeatResponse(error_code=0))
    assert not future.is_done
    net.network.end_poll(net.clock.now_ms())
    assert future.succeeded


def test_sent_request_completes_in_a_poll(net: Network) -> None:
    net.client.prepare_response(HeartbeatResponse(error_code=0))
    future = net.send(heartbeat())
    assert net.network.pending_request_count() == 1
    assert net.network.has_pending_requests(net.node)
    assert not future.is_done
    assert net.driver.run_until(lambda: future.is_done, net.timer())
    assert isinstance(future.value.response_body, HeartbeatResponse)
    assert not net.network.has_pending_requests()


def test_several_requests_to_one_node_keep_their_order(net: Network) -> None:
    order: list[int] = []
    for number in range(3):
        net.client.prepare_response(HeartbeatResponse(throttle_time_ms=number))
        future = net.send(heartbeat())
        future.add_listener(lambda response: order.append(response.response_body.throttle_time_ms))
    net.step()
    assert order == [0, 1, 2]


def test_disconnect_fails_sent_and_unsent_requests(net: Network) -> None:
    sent = net.send(heartbeat())
    net.step()
    assert net.network.pending_request_count(net.node) == 1
    net.network.disconnect_async(net.node)
    unsent = net.send(heartbeat())
    net.step()
    net.step()
    for future in (sent, unsent):
        assert isinstance(future.exception, DisconnectError)


def test_request_that_is_sent_after_close_async_takes_a_new_connection(net: Network) -> None:
    """As after a seek: the superseded fetch is dropped, and the next one may be sent by transmit."""
    dropped = net.send(heartbeat())
    net.step()
    net.network.close_async(net.node)
    future = net.send(heartbeat())
    net.network.transmit(net.clock.now_ms())
    net.step()
    assert net.network.pending_request_count(net.node) == 1
    net.client.respond(HeartbeatResponse(error_code=0))
    net.step()
    assert future.succeeded
    assert not dropped.is_done


def test_reset_forgets_connections_to_be_closed(net: Network) -> None:
    net.network.close_async(net.node)
    net.network.reset()
    future = net.send(heartbeat())
    net.network.transmit(net.clock.now_ms())
    net.step()
    assert net.network.pending_request_count(net.node) == 1
    net.client.respond(HeartbeatResponse(error_code=0))
    net.step()
    assert future.succeeded


def test_node_in_backoff_fails_waiting_requests(net: Network) -> None:
    net.client.backoff(net.node, 500)
    assert net.network.is_unavailable(net.node)
    future = net.send(heartbeat())
    net.step()
    assert isinstance(future.exception, DisconnectError)


def test_failed_authentication_is_the_error_of_waiting_requests(net: Network) -> None:
    net.client.authentication_failed(net.node, 300)
    future = net.send(heartbeat())
    net.step()
    assert isinstance(future.exception, AuthenticationError)
    with pytest.raises(AuthenticationError):
        net.network.maybe_throw_auth_failure(net.node)


def test_unsendable_request_expires(net: Network) -> None:
    net.client.delay_ready(net.node, 10_000)
    future = net.send(heartbeat(), 50)
    net.step()
    assert not future.is_done
    net.clock.advance(51)
    net.step()
    assert isinstance(future.exception, KafkaTimeoutError)


def test_unsupported_version_fails_the_request(net: Network) -> None:
    net.client.prepare_unsupported_version_response()
    future = net.send(heartbeat())
    net.step()
    assert isinstance(future.exception, UnsupportedVersionError)


class TestBackground:
    def test_only_background_requests_are_completed(self, net: Network) -> None:
        net.client.prepare_response(HeartbeatResponse())
        net.client.prepare_response(HeartbeatResponse())
        ours = net.send(heartbeat())
        theirs = net.send(heartbeat(), background=True)
        net.network.poll_background()
        assert theirs.is_done
        assert not ours.is_done
        net.step()
        assert ours.is_done

    def test_application_completes_background_requests_too(self, net: Network) -> None:
        net.client.prepare_response(HeartbeatResponse())
        future = net.send(heartbeat(), background=True)
        net.step()
        assert future.is_done

    def test_background_poll_leaves_errors_to_the_application(self, net: Network) -> None:
        net.client.update_metadata(metadata_response({}, errors={"secret": 29}))
        net.driver.wakeup()
        net.network.poll_background()
        with pytest.raises(WakeupError):
            net.driver.step(net.timer(0))
        with pytest.raises(TopicAuthorizationError):
            net.driver.step(net.timer(0))

    def test_background_poll_does_not_wait_for_the_lease(self, net: Network) -> None:
        """While the application polls, the heartbeat thread leaves the managers to it."""
        in_poll, leave = threading.Event(), threading.Event()
        poll = net.client.poll

        def blocking_poll(timeout_ms: int, now_ms: int) -> object:
            in_poll.set()
            assert leave.wait(30)
            return poll(timeout_ms, now_ms)

        net.client.poll = blocking_poll  # type: ignore[assignment, method-assign]
        application = threading.Thread(target=net.step)
        application.start()
        assert in_poll.wait(30)
        assert net.network.poll_background() is None
        leave.set()
        application.join(30)
        assert not application.is_alive()
        assert net.network.poll_background() is not None

    def test_interrupted_work_is_completed_by_the_application(self, net: Network) -> None:
        poll = net.client.poll

        def interrupted(_timeout_ms: int, _now_ms: int) -> object:
            raise KeyboardInterrupt

        net.client.poll = interrupted  # type: ignore[assignment, method-assign]
        with pytest.raises(KeyboardInterrupt):
            net.step()
        net.client.poll = poll  # type: ignore[method-assign]
        assert net.network.poll_background() is None
        assert not net.network.end_interrupted_wait()
        net.network.reset()
        assert net.network.poll_background() is not None
