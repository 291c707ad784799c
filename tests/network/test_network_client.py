"""NetworkClient over a selector without sockets (after Java's NetworkClientTest)."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

import pytest

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.errors import (
    DisconnectError,
    IllegalStateError,
    LocalProtocolError,
    SaslAuthenticationError,
    UnsupportedVersionError,
)
from pykclient.log_context import LogContext
from pykclient.metrics import Tally
from pykclient.network import channel_state
from pykclient.network.client_request import (
    ClientRequest,
    ClientResponse,
    RepeatableRequest,
    Repetitions,
    RequestBuilder,
    Shortcut,
    UsualResponse,
)
from pykclient.network.cluster_connection_states import ApiVersions, BackoffConfig
from pykclient.network.metadata import ClusterResource, ClusterResourceListeners, Metadata, MetadataRequestBuilder
from pykclient.network.metadata_updater import MetadataUpdater
from pykclient.network.network_client import NetworkClient, NetworkClientConfig
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, encode_response
from pykclient.protocol.message import Request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.types import Node, TopicPartition
from tests.support.mock_clock import MockClock
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector

NODE = Node(0, "127.0.0.1", 9092)
HEARTBEAT_VERSION = ApiKeys.latest_version(ApiKeys.HEARTBEAT)
REQUEST_TIMEOUT_MS = 1_000
BACKOFF_MS = 50


class Fixture:
    """A client, its selector and its clock."""

    def __init__(
        self,
        metadata: Metadata | MetadataUpdater | None = None,
        *,
        discover: bool = True,
        backoff_max_ms: int = BACKOFF_MS,
        rebootstrap_trigger_ms: int | None = None,
        setup_timeout_ms: int = 200,
    ) -> None:
        self.clock = MockClock()
        self.selector = MockSelector(self.clock)
        self.api_versions = ApiVersions()
        self.resolver = MockResolver()
        self.metadata = metadata or MetadataUpdater([NODE])
        config = NetworkClientConfig(
            client_id="test",
            max_in_flight_requests_per_connection=5,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            backoff=BackoffConfig(BACKOFF_MS, backoff_max_ms, setup_timeout_ms, 4 * setup_timeout_ms),
            discover_broker_versions=discover,
            rebootstrap_trigger_ms=rebootstrap_trigger_ms,
            host_resolver=self.resolver,
            rng=random.Random(7),
        )
        self.client = NetworkClient(config, self.selector, self.metadata, self.api_versions, self.clock, LogContext())

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def poll(self, timeout_ms: int = 1) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.now)

    def await_ready(self, node: Node = NODE, versions: dict[int, tuple[int, int]] | None = None) -> None:
        """Connect, and respond to the ApiVersions request."""
        self.client.ready(node, self.now)
        for _ in range(5):
            self.poll()
            for request in self.selector.pending(node.id_string):
                if request.header.api_key == ApiKeys.API_VERSIONS:
                    self.selector.respond(node.id_string, api_versions(versions))
            if self.client.can_send_request(node.id_string, self.now):
                return
        raise AssertionError("not ready")

    def send(
        self,
        message: Request | None = None,
        node: Node = NODE,
        *,
        timeout_ms: int | None = None,
        expect_response: bool = True,
    ) -> tuple[ClientRequest, list[ClientResponse]]:
        """Send a request; return it with a list to which its response is appended."""
        got: list[ClientResponse] = []
        builder = RequestBuilder(message or HeartbeatRequest(group_id="g", member_id="m"))
        request = self.client.new_client_request(
            node.id_string, builder, self.now, expect_response, timeout_ms, got.append
        )
        self.client.send(request, self.now)
        return request, got


def api_versions(versions: dict[int, tuple[int, int]] | None = None, error_code: int = 0) -> ApiVersionsResponse:
    known = {key: (ApiKeys.oldest_version(key), ApiKeys.latest_version(key)) for key in ApiKeys.all()}
    known.update(versions or {})
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=latest)
            for key, (oldest, latest) in known.items()
        ],
    )


def metadata_response(*nodes: Node, error_code: int = 0) -> MetadataResponse:
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port) for node in nodes
    ]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=-1, error_code=error_code)


# --- requests and responses ------------------------------------------------------------------------------------------


def test_a_request_to_a_node_that_is_not_ready_is_refused() -> None:
    f = Fixture()
    with pytest.raises(IllegalStateError, match="not ready"):
        f.send()


@pytest.mark.parametrize("loss", ["disconnect", "close", "drop", "poll"])
def test_lost_node_is_no_longer_ready(loss: str) -> None:
    f = Fixture()
    f.await_ready()
    assert f.client.ready(NODE, f.now)
    if loss == "disconnect":
        f.client.disconnect(NODE.id_string)
    elif loss == "close":
        f.client.close_node(NODE.id_string)
    elif loss == "drop":
        f.client.drop_connections()
    else:
        f.selector.disconnect(NODE.id_string)
        f.poll()
    with pytest.raises(IllegalStateError, match="not ready"):
        f.send()


def test_node_with_full_request_limit_is_not_ready() -> None:
    f = Fixture()
    f.await_ready()
    assert f.client.ready(NODE, f.now)
    for _ in range(5):
        f.send()
    with pytest.raises(IllegalStateError, match="not ready"):
        f.send()


@pytest.mark.parametrize("discover", [True, False])
def test_response_completes_request(discover: bool) -> None:
    f = Fixture(discover=discover)
    f.await_ready()
    request, got = f.send()
    assert f.client.in_flight_request_count() == f.client.in_flight_request_count("0") == 1
    assert f.poll() == []
    f.selector.respond("0", HeartbeatResponse(error_code=3))
    (response,) = f.poll()
    assert got == [response]
    assert response.has_response
    assert response.response_body.error_code == 3
    assert response.correlation_id == request.correlation_id
    assert response.api_version == ApiKeys.latest_version(ApiKeys.HEARTBEAT)
    assert response.request_latency_ms == 2
    assert f.client.in_flight_request_count() == 0


def test_responses_of_one_poll_are_handled_in_order() -> None:
    f = Fixture()
    f.await_ready()
    sent = [f.send()[0].correlation_id for _ in range(3)]
    for _ in range(3):
        f.selector.respond("0", HeartbeatResponse())
    assert [response.correlation_id for response in f.poll()] == sent


def test_requests_in_flight_are_limited() -> None:
    f = Fixture()
    f.await_ready()
    for _ in range(5):
        assert f.client.is_ready(NODE, f.now)
        f.send()
    assert not f.client.is_ready(NODE, f.now)
    f.selector.respond("0", HeartbeatResponse())
    f.poll()
    assert f.client.is_ready(NODE, f.now)


def test_node_is_not_ready_while_request_is_being_written() -> None:
    f = Fixture()
    f.await_ready()
    f.selector.hold_sends = True
    f.send()
    assert not f.client.is_ready(NODE, f.now)
    f.selector.complete_send(f.selector.requests[0].send)
    assert f.client.is_ready(NODE, f.now)


def test_request_without_response_completes_once_sent() -> None:
    f = Fixture()
    f.await_ready()
    _, with_response = f.send()
    _, without = f.send(ProduceRequest(acks=0, timeout_ms=1), expect_response=False)
    _, with_response_too = f.send()
    f.poll()
    assert len(without) == 1
    assert not without[0].has_response
    assert not without[0].disconnected
    assert f.client.in_flight_request_count("0") == 2
    f.selector.requests = [r for r in f.selector.requests if r.header.api_key == ApiKeys.HEARTBEAT]
    f.selector.respond("0", HeartbeatResponse())
    f.selector.respond("0", HeartbeatResponse())
    f.poll()
    assert with_response
    assert with_response_too


def test_failing_callback_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    f = Fixture()
    f.await_ready()

    def fail(_response: ClientResponse) -> None:
        raise ValueError("callback")

    builder = RequestBuilder(HeartbeatRequest())
    f.client.send(f.client.new_client_request("0", builder, f.now, True, callback=fail), f.now)
    _, got = f.send()
    f.selector.respond("0", HeartbeatResponse())
    f.selector.respond("0", HeartbeatResponse())
    assert len(f.poll()) == 2
    assert got
    assert "callback" in caplog.text


def test_correlation_ids_skip_those_reserved_for_sasl() -> None:
    f = Fixture()
    f.client._correlation_id = (1 << 31) - 1 - 8
    ids = [f.client.new_client_request("0", RequestBuilder(HeartbeatRequest()), 0, True).correlation_id for _ in "ab"]
    assert ids == [(1 << 31) - 1 - 8, 0]


def test_unsupported_version_fails_request_in_next_poll() -> None:
    f = Fixture()
    f.await_ready(versions={ApiKeys.HEARTBEAT: (90, 99)})
    request, got = f.send()
    (response,) = f.poll()
    assert got == [response]
    assert isinstance(response.build_error, UnsupportedVersionError)
    assert not response.disconnected
    assert f.client.in_flight_request_count() == 0
    assert f.selector.pending("0") == []
    assert response.correlation_id == request.correlation_id


class Unbuildable(RequestBuilder):
    """A request whose builder raises."""

    def __init__(self, message: Request, error: Exception) -> None:
        super().__init__(message)
        self.error = error

    def build(self, version: int) -> Request:
        raise self.error


@pytest.mark.parametrize("error", [ValueError("7"), errors.InvalidTopicError("no"), MemoryError()])
def test_a_request_that_cannot_be_built_fails_alone(error: Exception) -> None:
    f = Fixture()
    f.await_ready()
    got: list[ClientResponse] = []
    builder = Unbuildable(HeartbeatRequest(), error)
    f.client.send(f.client.new_client_request("0", builder, f.now, True, None, got.append), f.now)
    _, good = f.send()
    f.selector.respond("0", HeartbeatResponse())
    f.poll()
    f.poll()
    build_error = got[0].build_error
    assert build_error is error or (isinstance(build_error, LocalProtocolError) and build_error.__cause__ is error)
    assert not got[0].disconnected
    assert good[0].has_response


def test_a_request_that_cannot_be_encoded_fails_alone() -> None:
    f = Fixture()
    f.await_ready()
    _, bad = f.send(HeartbeatRequest(group_id="g\udce9", member_id="m"))
    assert f.client.can_send_request("0", f.now)
    f.poll()
    with pytest.raises(LocalProtocolError, match="HEARTBEAT v4 request could not be encoded"):
        raise bad[0].build_error or AssertionError


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_interrupted_send_fails_all_requests_of_connection(error: type[BaseException]) -> None:
    """An interrupted send may be partial, so the connection closes and all its requests fail."""
    f = Fixture()
    f.await_ready()
    _, first = f.send()

    def fail(_send: object) -> None:
        raise error

    send, f.selector.send = f.selector.send, fail  # type: ignore[assignment,method-assign]
    request = f.client.new_client_request("0", RequestBuilder(HeartbeatRequest()), f.now, True, None, first.append)
    with pytest.raises(error):
        f.client.send(request, f.now)
    f.selector.send = send  # type: ignore[method-assign]
    f.poll()
    assert [response.disconnected for response in first] == [True, True]
    assert f.client.in_flight_request_count() == 0
    f.clock.advance(2 * BACKOFF_MS)
    f.await_ready()


def test_report_names_request_that_cannot_be_encoded() -> None:
    """The first request of a connection cannot be encoded, and the report says so."""
    f, _ = bootstrapped()
    f.client._config = f.client._config._replace(client_id="caf\udce9")
    for _ in range(20):
        f.poll(BACKOFF_MS)
    assert "API_VERSIONS v4 request could not be encoded" in f.client.connection_report()
    assert f.client.in_flight_request_count() == 0


def test_newest_common_version_is_sent() -> None:
    f = Fixture()
    f.await_ready(versions={ApiKeys.HEARTBEAT: (0, 2)})
    f.send()
    assert f.selector.requests[0].header.api_version == 2


# --- timeouts --------------------------------------------------------------------------------------------------------


def test_a_late_answer_closes_the_connection() -> None:
    f = Fixture()
    f.await_ready()
    _, got = f.send()
    _, other = f.send(timeout_ms=60_000)
    f.poll(REQUEST_TIMEOUT_MS + 1)  # a poll waits at most the default timeout
    assert not got
    f.poll()
    f.poll()
    assert got[0].disconnected
    assert got[0].timed_out
    assert other[0].disconnected  # was on the same connection
    assert f.client.connection_failed(NODE)
    assert not f.selector.is_channel_ready("0")


def test_request_may_have_own_timeout() -> None:
    f = Fixture()
    f.await_ready()
    _, got = f.send(timeout_ms=10)
    f.poll(10)
    assert not got
    f.poll(1)
    assert got[0].timed_out


def test_each_request_times_out_after_its_own_timeout() -> None:
    nodes = [Node(id, "127.0.0.1", 9092 + id) for id in range(3)]
    f = Fixture(MetadataUpdater(nodes))
    for node in nodes:
        f.await_ready(node)
    f.poll()
    timeouts_ms = (500, 70, 300)
    got = [
        (f.now + timeout_ms, f.send(node=node, timeout_ms=timeout_ms)[1])
        for node, timeout_ms in zip(nodes, timeouts_ms, strict=True)
    ]
    f.client.initiate_connect(Node(7, "127.0.0.1", 9099), f.now)  # times out on its own
    while f.client.in_flight_request_count():
        now_ms = f.now
        f.client.poll(0, now_ms)
        for due_ms, responses in got:
            assert [response.timed_out for response in responses] == [True] * (now_ms > due_ms)
        f.clock.advance(1)


def test_throttled_time_does_not_count_towards_the_timeout() -> None:
    f = Fixture()
    f.await_ready()
    _, first = f.send()
    _, second = f.send()
    f.selector.respond("0", HeartbeatResponse(throttle_time_ms=5_000))
    f.poll()
    assert first
    f.clock.advance(REQUEST_TIMEOUT_MS + 10)
    f.poll(0)
    assert not second
    f.clock.advance(5_000)
    f.poll(0)
    assert second[0].timed_out


def test_connection_is_dropped_after_setup_timeout() -> None:
    f = Fixture()
    f.selector.auto_connect = False
    f.client.ready(NODE, f.now)
    f.poll(150)
    assert f.client.connection_delay_ms(NODE, f.now) > 0
    assert not f.client.connection_failed(NODE)
    f.poll(100)
    assert f.client.connection_failed(NODE)
    assert "no connection within" in f.client.connection_report()


# --- API versions ----------------------------------------------------------------------------------------------------


def test_first_request_is_api_versions_with_client_name() -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    f.poll()
    (request,) = f.selector.requests
    assert isinstance(request.body, ApiVersionsRequest)
    assert request.header.api_version == ApiKeys.latest_version(ApiKeys.API_VERSIONS)
    assert request.body.client_software_name == "pykclient"
    assert request.body.client_software_version
    assert request.header.client_id == "test"
    assert not f.client.is_ready(NODE, f.now)


def unsupported(api_versions_max: int | None) -> bytes:
    """Return the response of a node that does not support the requested version; it is always version 0."""
    keys = []
    if api_versions_max is not None:
        keys = [ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=api_versions_max)]
    body = ApiVersionsResponse(error_code=UnsupportedVersionError.code, api_keys=keys)
    return encode_response(body, 0, 0).getvalue()[4:]


@pytest.mark.parametrize(("told", "expected"), [(2, 2), (None, 0), (99, 3), (4, 3)])
def test_refused_api_versions_is_retried_in_supported_version(told: int | None, expected: int) -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    f.poll()
    f.selector.requests.clear()
    f.selector.receive("0", unsupported(told))
    f.poll()
    assert f.selector.requests[0].header.api_version == expected
    f.selector.respond("0", api_versions())
    f.poll()
    assert f.client.is_ready(NODE, f.now)


@pytest.mark.parametrize("body", [b"", b"\0", b"\xff" * 9, b"\0\0\0\1\0\x12\0"])
def test_malformed_refusal_is_retried_with_version_0(body: bytes) -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    f.poll()
    f.selector.requests.clear()
    f.selector.receive("0", b"\0\0\0\0\0\x23" + body)
    f.poll()
    assert f.selector.requests[0].header.api_version == 0


def test_connection_closes_if_node_refuses_all_api_versions() -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    f.poll()
    f.selector.requests.clear()
    f.selector.receive("0", unsupported(0))
    f.poll()
    f.selector.respond("0", api_versions(error_code=UnsupportedVersionError.code))
    f.poll()
    assert f.client.connection_failed(NODE)
    assert "rejected the ApiVersions request" in f.client.connection_report()


def test_other_api_versions_error_closes_connection() -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    f.poll()
    f.selector.respond("0", api_versions(error_code=errors.InvalidRequestError.code))
    f.poll()
    assert f.client.connection_failed(NODE)


def test_versions_are_forgotten_with_the_connection() -> None:
    f = Fixture()
    f.await_ready()
    assert f.api_versions.get("0") is not None
    f.selector.disconnect("0")
    f.poll()
    assert f.api_versions.get("0") is None


def test_api_versions_request_waits_for_handshake() -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    f.selector.ready.clear()  # connected, with a handshake in progress
    f.poll()
    assert not f.selector.requests
    f.selector.ready.add("0")
    f.poll()
    assert f.selector.requests


# --- connections lost ------------------------------------------------------------------------------------------------


def test_lost_connection_fails_requests_oldest_first() -> None:
    f = Fixture()
    f.await_ready()
    sent = [f.send()[0].correlation_id for _ in range(3)]
    f.selector.disconnect("0")
    responses = f.poll()
    assert [response.correlation_id for response in responses] == sent
    assert all(response.disconnected and not response.timed_out for response in responses)
    assert f.client.in_flight_request_count() == 0


def test_responses_received_before_disconnect_are_handled() -> None:
    f = Fixture()
    f.await_ready()
    _, first = f.send()
    _, second = f.send()
    f.selector.respond("0", HeartbeatResponse())
    f.selector.disconnect("0")
    f.poll()
    assert first[0].has_response
    assert second[0].disconnected


def test_disconnect_fails_pending_requests_in_next_poll() -> None:
    f = Fixture()
    f.await_ready()
    _, got = f.send()
    f.client.disconnect("0")
    assert not got
    (response,) = f.poll()
    assert response.disconnected
    assert f.client.connection_failed(NODE)
    f.client.disconnect("0")  # a second call changes nothing
    f.client.disconnect("never connected")


def test_driver_with_own_wait_polls_in_two_steps() -> None:
    fixture = Fixture()
    fixture.await_ready()
    client, selector = fixture.client, fixture.selector
    request, got = fixture.send()
    assert client.begin_poll(700, fixture.now) == 700
    selector.respond("0", HeartbeatResponse())
    assert not got  # nothing is handled before the I/O
    selector.poll(0)
    assert [response.correlation_id for response in client.end_poll(fixture.now)] == [request.correlation_id]
    assert len(got) == 1
    assert client.begin_poll(FOREVER_MS, fixture.now) == REQUEST_TIMEOUT_MS


def test_aborted_requests_are_handled_in_second_step_of_poll() -> None:
    fixture = Fixture()
    fixture.await_ready()
    client = fixture.client
    _, got = fixture.send()
    client.disconnect("0")
    assert client.begin_poll(700, fixture.now) == 0
    fixture.selector.poll(0)
    assert [response.disconnected for response in client.end_poll(fixture.now)] == [True]
    assert len(got) == 1
    assert client.begin_poll(700, fixture.now) == 700


def test_responses_arriving_during_close_are_handled() -> None:
    fixture = Fixture()
    fixture.await_ready()
    _, got = fixture.send()
    fixture.client.begin_poll(700, fixture.now)
    fixture.selector.respond("0", HeartbeatResponse())
    fixture.client.initiate_close()
    fixture.selector.poll(0)
    fixture.client.end_poll(fixture.now)
    assert len(got) == 1
    with pytest.raises(DisconnectError):
        fixture.client.begin_poll(700, fixture.now)


def test_close_node_forgets_pending_requests() -> None:
    f = Fixture()
    f.await_ready()
    _, got = f.send()
    f.client.close_node("0")
    assert f.poll() == []
    assert not got
    assert f.client.in_flight_request_count("0") == 0
    assert f.client.connection_delay_ms(NODE, f.now) == 0
    f.await_ready()


def test_the_backoff_grows_and_is_reset_by_success() -> None:
    f = Fixture(backoff_max_ms=1_000)
    delays = []
    for _ in range(6):
        f.client.ready(NODE, f.now)
        f.selector.disconnect("0")
        f.poll(0)
        delays.append(f.client.connection_delay_ms(NODE, f.now))
        f.clock.advance(delays[-1])
    for attempt, delay in enumerate(delays):
        expected = min(BACKOFF_MS * 2**attempt, 1_000)
        assert 0.8 * expected - 1 <= delay <= min(1.2 * expected, 1_000)
    f.await_ready()
    f.selector.disconnect("0")
    f.poll(0)
    assert f.client.connection_delay_ms(NODE, f.now) <= 1.2 * BACKOFF_MS


def test_delays_depend_on_connection_state() -> None:
    f = Fixture()
    assert f.client.connection_delay_ms(NODE, f.now) == 0
    f.await_ready()
    assert f.client.connection_delay_ms(NODE, f.now) == f.client.poll_delay_ms(NODE, f.now) == FOREVER_MS
    f.selector.disconnect("0")
    f.poll(0)
    assert f.client.connection_delay_ms(NODE, f.now) == BACKOFF_MS
    assert not f.client.ready(NODE, f.now)
    assert "0" not in f.selector.ready  # too early
    f.clock.advance(BACKOFF_MS)
    f.client.ready(NODE, f.now)
    assert "0" in f.selector.ready


def test_failed_authentication_is_reported() -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    error = SaslAuthenticationError("wrong password")
    f.selector.disconnect("0", channel_state.AUTHENTICATION_FAILED, exception=error)
    f.poll()
    assert f.client.authentication_error(NODE) is error
    assert f.client.connection_failed(NODE)
    assert "wrong password" in f.client.connection_report()
    f.clock.advance(2 * BACKOFF_MS)
    f.await_ready()
    assert f.client.authentication_error(NODE) is None


def test_addresses_are_tried_in_turn_and_then_resolved_again() -> None:
    node = Node(0, "kafka", 9092)
    f = Fixture(MetadataUpdater([node]))
    f.resolver.answers["kafka"] = ["10.0.0.1", "10.0.0.2"]
    f.selector.auto_connect = False
    tried = []
    for _ in range(4):
        f.client.ready(node, f.now)
        tried.append(f.selector.addresses["0"].ip)
        f.selector.disconnect("0", channel_state.NOT_CONNECTED)
        f.poll(0)
        f.clock.advance(BACKOFF_MS)
    assert tried == ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"]
    assert f.resolver.asked == ["kafka"] * 2


def test_next_address_is_tried_after_lost_connection() -> None:
    node = Node(0, "kafka", 9092)
    f = Fixture(MetadataUpdater([node]))
    f.resolver.answers["kafka"] = ["10.0.0.1", "10.0.0.2"]
    f.await_ready(node)
    f.selector.disconnect("0")
    f.poll(0)
    f.clock.advance(BACKOFF_MS)
    f.client.ready(node, f.now)
    assert f.selector.addresses["0"].ip == "10.0.0.2"
    assert f.resolver.asked == ["kafka"] * 2  # resolved again


def test_a_name_that_does_not_exist_is_reported() -> None:
    node = Node(0, "misspelt", 9092)
    f = Fixture(MetadataUpdater([node]))
    f.resolver.answers["misspelt"] = None
    assert not f.client.ready(node, f.now)
    assert f.client.connection_failed(node)
    assert f.client.connection_report() == (
        "1 of 1 brokers could not be reached (misspelt:9092: Name or service not known). The bootstrap servers gave "
        "these addresses: check that the brokers' advertised.listeners can be reached from here"
    )


@pytest.mark.parametrize(("host", "port"), [("", -1), ("kafka", -1), ("kafka", 0), ("", 9092), ("kafka", 70_000)])
def test_node_without_valid_address_is_logged_once_and_skipped(
    host: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(3, host, port)
    f = Fixture(MetadataUpdater([node, NODE]))
    for _ in range(5):
        assert not f.client.ready(node, f.now)
        assert f.client.connection_failed(node)
        assert f.client.poll_delay_ms(node, f.now) > 0
        f.clock.advance(BACKOFF_MS * 2)
    assert f.client.least_loaded_node(f.now).node == NODE
    f.await_ready()
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"metadata gives host {host!r} and port {port}" in warning.getMessage()
    assert "3" not in f.selector.addresses


# --- look-ups of hosts -----------------------------------------------------------------------------------------------

NAMED, OTHER = Node(1, "named", 9092), Node(2, "other", 9092)


def hanging_dns(*hosts: str) -> Fixture:
    f = Fixture(MetadataUpdater([NAMED, OTHER]), discover=False)
    f.resolver.hanging.update(hosts)
    return f


def test_hanging_lookup_does_not_delay_other_nodes() -> None:
    f = hanging_dns("named")
    start_ms = f.now
    for _ in range(10):
        assert not f.client.ready(NAMED, f.now)
        f.client.ready(OTHER, f.now)
        f.poll(1)
    assert f.client.is_ready(OTHER, f.now)
    assert f.now - start_ms == 10
    assert f.resolver.asked == ["named", "other"]  # one lookup at a time
    assert f.client.least_loaded_node(f.now).node == OTHER


def test_connection_starts_once_name_is_resolved() -> None:
    f = hanging_dns("named")
    f.resolver.answers["named"] = ["10.0.0.1", "10.0.0.2"]
    f.client.ready(NAMED, f.now)
    f.poll(1)
    assert "1" not in f.selector.addresses
    wakeups = f.selector.wakeups
    f.resolver.answer()
    assert f.selector.wakeups == wakeups + 1  # wakes a client that waits in poll
    f.poll(1)
    assert f.selector.addresses["1"] == ("10.0.0.1", 9092, "named")
    f.poll(1)
    assert f.client.is_ready(NAMED, f.now)


def test_late_lookup_failure_fails_connection() -> None:
    f = hanging_dns("named")
    f.client.ready(NAMED, f.now)
    f.clock.advance(150)
    f.resolver.answers["named"] = None
    f.resolver.answer()
    f.poll(1)
    assert f.client.connection_failed(NAMED)
    assert "named:9092: Name or service not known" in f.client.connection_report()
    # The backoff starts at the end of the attempt, so the next attempt does not directly follow a slow failure.
    assert 0 < f.client.connection_delay_ms(NAMED, f.now) <= 60


def test_lookup_times_out_and_is_retried() -> None:
    f = hanging_dns("named")
    f.client.ready(NAMED, f.now)
    f.clock.advance(241)  # the connection setup timeout
    f.poll(0)
    f.poll(0)
    assert f.client.connection_failed(NAMED)
    assert re.search(r"named:9092: no answer from the DNS within \d+ ms", f.client.connection_report())
    f.clock.advance(2 * BACKOFF_MS)
    f.client.ready(NAMED, f.now)
    assert f.resolver.asked == ["named"] * 2
    first, second = f.resolver.pending
    wakeups = f.selector.wakeups
    first[0].finish(["10.0.0.1"])  # result of the abandoned attempt, which is ignored
    assert f.selector.wakeups == wakeups
    f.poll(0)
    assert "1" not in f.selector.addresses
    second[0].finish(["10.0.0.2"])
    f.poll(0)
    assert f.selector.addresses["1"].ip == "10.0.0.2"


def test_slow_lookup_makes_metadata_use_another_node() -> None:
    metadata = Metadata(100, 100, 300_000, LogContext())
    metadata.bootstrap([("named", 9092), ("other", 9092)])
    f = Fixture(metadata, setup_timeout_ms=60_000)
    f.resolver.hanging.update(("named", "other"))
    while not f.resolver.asked:
        f.poll(10)
    start_ms = f.now
    while len(f.resolver.asked) == 1:
        f.poll(10)
    assert 1_000 <= f.now - start_ms <= 1_100  # the first lookup delays others this long
    f.resolver.hanging.clear()
    f.resolver.pending.pop()[0].finish(["10.0.0.2"])
    fetch_metadata(f, metadata_response(NODE))
    assert metadata.fetch().nodes == (NODE,)


@pytest.mark.parametrize("end", ["disconnect", "close_node", "close"])
def test_lookup_is_cancelled_with_its_node_or_client(end: str) -> None:
    f = hanging_dns("named")
    f.client.ready(NAMED, f.now)
    {
        "disconnect": lambda: f.client.disconnect("1"),
        "close_node": lambda: f.client.close_node("1"),
        "close": f.client.close,
    }[end]()
    wakeups = f.selector.wakeups
    f.resolver.answer()
    assert f.selector.wakeups == wakeups
    assert "1" not in f.selector.addresses


# --- throttling ------------------------------------------------------------------------------------------------------


def test_a_throttled_node_gets_no_requests_for_a_while() -> None:
    f = Fixture()
    f.await_ready()
    f.send()
    f.selector.respond("0", HeartbeatResponse(throttle_time_ms=100))
    f.poll()
    assert not f.client.is_ready(NODE, f.now)
    assert f.client.poll_delay_ms(NODE, f.now) == 100
    assert f.client.connection_delay_ms(NODE, f.now) == FOREVER_MS
    assert not f.client.has_ready_nodes(f.now)
    f.clock.advance(100)
    assert f.client.is_ready(NODE, f.now)
    assert f.client.has_ready_nodes(f.now)


def test_old_brokers_throttle_by_themselves() -> None:
    f = Fixture()
    f.await_ready(versions={ApiKeys.HEARTBEAT: (0, 1)})
    f.send()
    f.selector.respond("0", HeartbeatResponse(throttle_time_ms=100))
    f.poll()
    assert f.client.is_ready(NODE, f.now)


# --- the least loaded node -------------------------------------------------------------------------------------------


def test_least_loaded_node_prefers_idle_then_busy_then_connecting_then_unconnected() -> None:
    nodes = [Node(id, f"10.0.0.{id}", 9092) for id in range(4)]
    f = Fixture(MetadataUpdater(nodes))
    assert f.client.least_loaded_node(f.now).node in nodes
    assert not f.client.least_loaded_node(f.now).at_least_one_connection_ready
    f.selector.auto_connect = False
    f.client.ready(nodes[3], f.now)
    assert f.client.least_loaded_node(f.now).node is nodes[3]  # connecting
    f.selector.auto_connect = True
    f.await_ready(nodes[0])
    f.await_ready(nodes[1])
    f.send(node=nodes[0])
    assert f.client.least_loaded_node(f.now).node is nodes[1]  # idle
    f.send(node=nodes[1])
    f.send(node=nodes[1])
    assert f.client.least_loaded_node(f.now).node is nodes[0]  # one request in flight instead of two
    assert f.client.least_loaded_node(f.now).at_least_one_connection_ready


def test_least_loaded_node_is_the_one_tried_longest_ago() -> None:
    nodes = [Node(id, f"10.0.0.{id}", 9092) for id in range(3)]
    f = Fixture(MetadataUpdater(nodes))
    for node in (nodes[1], nodes[0]):
        f.client.ready(node, f.now)
        f.selector.disconnect(node.id_string)
        f.poll(10)
    f.clock.advance(BACKOFF_MS)
    assert f.client.least_loaded_node(f.now).node is nodes[2]
    f.client.ready(nodes[2], f.now)
    f.selector.disconnect("2")
    f.poll(10)
    f.clock.advance(BACKOFF_MS)
    assert f.client.least_loaded_node(f.now).node is nodes[1]


def test_no_node_is_available_while_all_back_off() -> None:
    f = Fixture()
    f.client.ready(NODE, f.now)
    f.selector.disconnect("0")
    f.poll(0)
    found = f.client.least_loaded_node(f.now)
    assert found.node is None
    assert not found.has_node_available_or_connection_ready


def test_a_cluster_without_nodes_is_an_error() -> None:
    f = Fixture(MetadataUpdater())
    with pytest.raises(IllegalStateError, match="no nodes"):
        f.client.least_loaded_node(f.now)


# --- closing ---------------------------------------------------------------------------------------------------------


def test_initiate_close_wakes_the_poll_and_refuses_more() -> None:
    f = Fixture()
    f.await_ready()
    assert f.client.active
    f.client.initiate_close()
    assert f.selector.wakeups == 1
    assert not f.client.active
    with pytest.raises(DisconnectError, match="closing"):
        f.poll()
    with pytest.raises(DisconnectError):
        f.send()
    f.client.close()
    f.client.close()
    assert f.selector.closed


# --- hostile nodes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "responded to request 0"),
        (b"\0\0", "responded to request"),
        (b"\0\0\0\x63\0\0\0\0", "responded to request 99"),
        (b"\0\0\0\1", "unreadable"),
        (b"\0\0\0\1\xff\xff\xff\xff\xff", "unreadable"),
    ],
)
def test_invalid_response_frame_closes_connection(frame: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    f = Fixture()
    f.await_ready()
    _, got = f.send()
    _, second = f.send()
    f.selector.receive("0", frame)
    f.selector.receive("0", frame)
    f.poll()
    assert got[0].disconnected
    assert second[0].disconnected
    assert f.client.connection_failed(NODE)
    assert f.client.connection_delay_ms(NODE, f.now) > 0
    assert said in caplog.text
    assert "WARNING" in caplog.text
    f.clock.advance(BACKOFF_MS)
    f.await_ready()


def test_unexpected_response_closes_connection(caplog: pytest.LogCaptureFixture) -> None:
    f = Fixture()
    f.await_ready()
    f.selector.receive("0", b"\0\0\0\0\0\0\0\0")
    f.poll()
    assert f.client.connection_failed(NODE)
    assert "it sent a response, but no request is in flight" in caplog.text


def test_an_unknown_error_code_is_left_to_the_caller() -> None:
    f = Fixture()
    f.await_ready()
    _, got = f.send()
    f.selector.respond("0", HeartbeatResponse(error_code=32_000))
    f.poll()
    assert got[0].response_body.error_code == 32_000


def test_repeated_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    f = Fixture()
    f.selector.connect_error = ConnectionRefusedError(111, "Connection refused")
    for _ in range(5):
        f.client.ready(NODE, f.now)
        f.clock.advance(2 * BACKOFF_MS)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1


# --- metadata --------------------------------------------------------------------------------------------------------


def bootstrapped(**options: int | None) -> tuple[Fixture, Metadata]:
    metadata = Metadata(100, 100, 300_000, LogContext())
    metadata.bootstrap([("127.0.0.1", 9092), ("127.0.0.2", 9092)])
    return Fixture(metadata, **options), metadata  # type: ignore[arg-type]


def fetch_metadata(f: Fixture, response: MetadataResponse) -> str:
    """Poll until a metadata request is sent, respond to it, and return the id of its node."""
    for _ in range(20):
        f.poll(20)
        for request in list(f.selector.requests):
            if request.header.api_key == ApiKeys.API_VERSIONS:
                f.selector.respond(request.node_id, api_versions())
            elif request.header.api_key == ApiKeys.METADATA:
                f.selector.respond(request.node_id, response)
                f.poll(0)
                return request.node_id
    raise AssertionError("no metadata request was sent")


def test_poll_fetches_metadata_by_itself() -> None:
    f, metadata = bootstrapped()
    assert fetch_metadata(f, metadata_response(NODE)) in ("-1", "-2")
    assert metadata.fetch().nodes == (NODE,)
    assert not metadata.fetch().is_bootstrap_configured
    f.poll()
    assert f.selector.requests == []
    f.clock.advance(300_000)
    fetch_metadata(f, metadata_response(NODE))


@pytest.mark.parametrize("error", [ValueError("7"), errors.InvalidTopicError("no"), KeyboardInterrupt()])
def test_unsendable_metadata_request_is_retried(error: BaseException) -> None:
    f, metadata = bootstrapped()
    fetch_metadata(f, metadata_response(NODE))
    f.await_ready()

    def build(_self: object, _version: int) -> Request:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetadataRequestBuilder, "build", build)
        f.clock.advance(200)
        metadata.request_update(True)
        if isinstance(error, Exception):
            f.poll()
            with pytest.raises(errors.KafkaError):
                metadata.maybe_throw_any_exception()
        else:
            with pytest.raises(KeyboardInterrupt):
                f.poll()
    assert metadata.update_requested
    version = metadata.update_version
    f.clock.advance(200)
    fetch_metadata(f, metadata_response(NODE))
    assert metadata.update_version > version


def test_other_requests_wait_while_metadata_is_due() -> None:
    f, metadata = bootstrapped()
    fetch_metadata(f, metadata_response(NODE))
    f.await_ready()
    assert f.client.is_ready(NODE, f.now)
    f.clock.advance(200)
    metadata.request_update(True)
    assert not f.client.is_ready(NODE, f.now)
    fetch_metadata(f, metadata_response(NODE))
    assert f.client.is_ready(NODE, f.now)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failing_listener_loses_no_response_of_its_poll(error: type[BaseException]) -> None:
    class Listener:
        fails = False

        def on_update(self, _resource: ClusterResource) -> None:
            if self.fails:
                raise error

    listener = Listener()
    metadata = Metadata(
        100, 100, 300_000, LogContext(), cluster_resource_listeners=ClusterResourceListeners([listener])
    )
    metadata.bootstrap([("127.0.0.1", 9092)])
    f = Fixture(metadata)
    fetch_metadata(f, metadata_response(NODE))
    f.await_ready()
    _, before = f.send()
    f.clock.advance(200)
    metadata.request_update(True)
    f.poll()
    _, after = f.send()
    for body in (HeartbeatResponse(), metadata_response(NODE), HeartbeatResponse()):
        f.selector.respond("0", body)
    listener.fails = True
    if error is KeyboardInterrupt:  # Ctrl-C must propagate
        with pytest.raises(KeyboardInterrupt):
            f.poll()
        f.clock.advance(REQUEST_TIMEOUT_MS)
    f.poll()
    assert [response.has_response for response in before] == [True]
    assert [response.disconnected for response in after] == [error is KeyboardInterrupt]


def test_a_metadata_response_without_brokers_is_tried_again() -> None:
    f, metadata = bootstrapped()
    fetch_metadata(f, metadata_response())
    assert metadata.fetch().is_bootstrap_configured
    f.clock.advance(120)
    fetch_metadata(f, metadata_response(NODE))
    assert not metadata.fetch().is_bootstrap_configured


def test_metadata_problems_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    f, _ = bootstrapped()
    response = metadata_response(NODE)
    lost = MetadataResponse.MetadataResponsePartition(
        partition_index=4, error_code=errors.ListenerNotFoundError.code, replica_nodes=[], isr_nodes=[]
    )
    response.topics = [
        MetadataResponse.MetadataResponseTopic(name="t", partitions=[lost]),
        MetadataResponse.MetadataResponseTopic(name="secret", error_code=errors.TopicAuthorizationError.code),
    ]
    fetch_metadata(f, response)
    assert "no listener of the kind that this client uses: t-4" in caplog.text
    assert "Not authorized to access topic 'secret'" in caplog.text


def test_a_broker_too_old_for_metadata_is_fatal() -> None:
    f, metadata = bootstrapped()
    f.poll()
    (request,) = f.selector.requests
    f.selector.respond(request.node_id, api_versions({ApiKeys.METADATA: (0, 0)}))
    f.poll()
    f.poll()
    with pytest.raises(UnsupportedVersionError):
        metadata.maybe_throw_any_exception()


def test_lost_connection_requests_metadata_after_backoff() -> None:
    f, metadata = bootstrapped()
    fetch_metadata(f, metadata_response(NODE))
    f.await_ready()
    f.selector.disconnect("0")
    f.poll(0)
    assert metadata.update_requested


def test_a_lost_metadata_request_is_sent_again() -> None:
    f, _ = bootstrapped()
    for _ in range(5):
        f.poll()
        for request in list(f.selector.requests):
            if request.header.api_key == ApiKeys.API_VERSIONS:
                f.selector.respond(request.node_id, api_versions())
    (request,) = f.selector.requests
    assert isinstance(request.body, MetadataRequest)
    f.selector.requests.clear()
    f.selector.disconnect(request.node_id)
    f.poll(200)
    fetch_metadata(f, metadata_response(NODE))


def test_failed_authentication_is_fatal_to_metadata() -> None:
    f, metadata = bootstrapped()
    f.poll()
    error = SaslAuthenticationError("no")
    (node_id,) = f.selector.ready
    f.selector.disconnect(node_id, channel_state.AUTHENTICATION_FAILED, exception=error)
    f.poll()
    with pytest.raises(SaslAuthenticationError):
        metadata.maybe_throw_fatal_exception()


def test_the_report_names_each_bootstrap_server() -> None:
    f, _ = bootstrapped()
    assert not f.client.is_unreachable
    f.selector.connect_error = ConnectionRefusedError(111, "Connection refused")
    for _ in range(20):
        f.poll(20)
    report = f.client.connection_report()
    assert report.startswith("2 of 2 bootstrap servers could not be reached (")
    assert "127.0.0.1:9092: Connection refused, nothing listens there" in report
    assert "127.0.0.2:9092: Connection refused, nothing listens there" in report
    assert f.client.is_unreachable


def test_client_rebootstraps_without_metadata_for_too_long() -> None:
    f, metadata = bootstrapped(rebootstrap_trigger_ms=1_000)
    gone = Node(7, "10.9.9.9", 9092)
    fetch_metadata(f, metadata_response(gone))
    f.clock.advance(300_000)
    f.selector.auto_connect = False
    f.poll()
    assert not metadata.fetch().is_bootstrap_configured
    for _ in range(200):
        f.poll(100)
        if metadata.fetch().is_bootstrap_configured:
            break
    assert metadata.fetch().is_bootstrap_configured
    f.selector.auto_connect = True
    fetch_metadata(f, metadata_response(NODE))


def test_bootstrap_servers_are_tried_when_no_node_is_left() -> None:
    f, metadata = bootstrapped(rebootstrap_trigger_ms=300_000, backoff_max_ms=2_000)
    fetch_metadata(f, metadata_response(NODE))
    f.selector.connect_error = ConnectionRefusedError(111, "Connection refused")
    metadata.request_update(True)
    for node_id in list(f.selector.ready):
        f.selector.disconnect(node_id)
    for _ in range(10):
        f.clock.advance(100)
        f.poll(0)
        if metadata.fetch().is_bootstrap_configured:
            return
    raise AssertionError("still waits for a node that is gone")


def test_broker_can_request_rebootstrap() -> None:
    f, metadata = bootstrapped(rebootstrap_trigger_ms=300_000)
    fetch_metadata(f, metadata_response(NODE))
    f.await_ready()
    f.send()
    f.selector.requests.clear()
    f.clock.advance(200)
    metadata.request_update(True)
    f.poll()
    f.selector.requests = [r for r in f.selector.requests if r.header.api_key == ApiKeys.METADATA]
    if f.selector.requests:
        node_id = f.selector.requests[0].node_id
        body = metadata_response(NODE, error_code=errors.RebootstrapRequiredError.code)
        # If node 0 got the metadata request, its heartbeat response is due first on that connection.
        if node_id == "0":
            f.selector.receive("0", encode_response(HeartbeatResponse(), 4, got_id(f)).getvalue()[4:])
        f.selector.respond(node_id, body)
        f.poll(0)
    assert metadata.fetch().is_bootstrap_configured


def got_id(f: Fixture) -> int:
    in_flight = f.client._in_flight.peek_next("0")
    assert in_flight is not None
    return in_flight.request.correlation_id


def test_rebootstrap_request_is_ignored_if_disabled() -> None:
    f, metadata = bootstrapped(rebootstrap_trigger_ms=None)
    fetch_metadata(f, metadata_response(NODE, error_code=errors.RebootstrapRequiredError.code))
    assert not metadata.fetch().is_bootstrap_configured


def test_leader_epochs_of_old_brokers_are_not_relied_on() -> None:
    metadata = Metadata(100, 100, 300_000, LogContext())
    metadata.bootstrap([("127.0.0.1", 9092)])
    f = Fixture(metadata)
    partition = MetadataResponse.MetadataResponsePartition(
        partition_index=0, leader_id=0, leader_epoch=5, replica_nodes=[0], isr_nodes=[0]
    )
    response = metadata_response(NODE)
    response.topics = [MetadataResponse.MetadataResponseTopic(name="t", partitions=[partition])]
    f.client.ready(metadata.fetch().nodes[0], f.now)
    f.poll()
    f.selector.respond("-1", api_versions({ApiKeys.METADATA: (1, 8)}))
    f.poll()
    f.poll()
    f.selector.respond("-1", response)
    f.poll()
    assert metadata.fetch().partition_count_for_topic("t") == 1
    assert metadata.last_seen_leader_epoch(TopicPartition("t", 0)) is None


# --- requests that are sent again -------------------------------------------------------------------------------------


class Heartbeats(RequestBuilder):
    """A heartbeat that is sent again after each response without an error. It is its own Repetition."""

    __slots__ = ("epoch", "repeated_ms", "shortcut", "wanted")

    def __init__(self) -> None:
        super().__init__(HeartbeatRequest(group_id="g", member_id="m"))
        self.wanted = True
        usual = UsualResponse()
        usual.expect(HeartbeatResponse(), HEARTBEAT_VERSION)
        self.shortcut = Shortcut(usual, lambda _request, _now_ms: self.wanted, self)
        self.epoch = 5
        self.repeated_ms: list[Tally] = []

    def next_frame(self, request: ClientRequest, version: int, correlation_id: int) -> bytes:
        return encode_request(self.message, version, correlation_id, request.client_id).getvalue()

    def template(self, request: ClientRequest, version: int) -> tuple[bytes, int, int] | None:
        return (b"request", 3, self.epoch) if self.wanted else None

    def repeated(self, request: ClientRequest, done: Repetitions, now_ms: int) -> None:
        self.repeated_ms.append(done.latencies_ms)


class Repeating(Fixture):
    """A client with such a request in flight; its selector answers while ``quiet_responses`` is more than 0."""

    def __init__(self) -> None:
        super().__init__()
        self.await_ready()
        self.builder = Heartbeats()
        self.got: list[ClientResponse] = []
        self.request = self.client.new_client_request(
            NODE.id_string, self.builder, self.now, True, callback=self.got.append
        )
        self.client.send(self.request, self.now)

    def respond(self, **fields: int) -> int:
        """Answer the request in flight, and return its correlation id."""
        [sent] = self.selector.pending(NODE.id_string)
        self.selector.respond(NODE.id_string, HeartbeatResponse(**fields))
        return sent.header.correlation_id

    def in_flight(self) -> list[int]:
        return [sent.header.correlation_id for sent in self.selector.pending(NODE.id_string)]


def test_repeated_request_is_sent_without_ending_wait() -> None:
    f = Repeating()
    last = f.respond()
    begun_ms = f.now
    f.selector.polls.clear()
    assert f.poll(100) == []
    # The first wait of the mock takes all the time: no other follows.
    assert f.selector.polls == [100]
    assert f.now == begun_ms + 100
    assert f.in_flight() == [last + 1]
    assert f.client.in_flight_request_count() == 1
    f.respond()
    f.builder.wanted = False
    [response] = f.poll()
    assert f.got == [response]
    assert response.correlation_id == last + 1
    assert response.created_ms == begun_ms + 100, "its latency is that of the last request"
    assert f.client.in_flight_request_count() == 0


def test_poll_waits_remaining_time_after_repeated_request(monkeypatch: pytest.MonkeyPatch) -> None:
    f = Repeating()
    waits: list[int] = []
    wait = f.selector.poll

    def answered_after_30_ms(timeout_ms: int) -> None:
        waits.append(timeout_ms)
        if len(waits) < 3:
            f.respond()
        wait(min(timeout_ms, 30))

    monkeypatch.setattr(f.selector, "poll", answered_after_30_ms)
    assert f.poll(100) == []
    assert waits == [100, 70, 40]


@pytest.mark.parametrize("what", ["error", "unwanted", "lost", "second request", "other response"])
def test_response_without_repetition_is_handled_normally(what: str) -> None:
    f = Repeating()
    if what == "second request":
        f.send()
        f.selector.respond(NODE.id_string, HeartbeatResponse())
    elif what == "other response":
        f.selector.respond(NODE.id_string, HeartbeatResponse(), correlation_id=77)
    else:
        f.builder.wanted = what != "unwanted"
        f.respond(error_code=errors.UnknownMemberIdError.code if what == "error" else 0)
    if what == "lost":
        f.selector.disconnect(NODE.id_string)
    [response] = f.poll()
    assert f.got == [response]
    assert response.disconnected == (what == "other response")
    assert len(f.in_flight()) == (what == "second request")


class UsuallyAnswered(RequestBuilder):
    """A heartbeat whose usual response is handled by ``handle``."""

    __slots__ = ("shortcut",)

    def __init__(self, handle: Callable[[ClientRequest, int], bool]) -> None:
        super().__init__(HeartbeatRequest(group_id="g", member_id="m"))
        usual = UsualResponse()
        usual.expect(HeartbeatResponse(), HEARTBEAT_VERSION)
        self.shortcut = Shortcut(usual, handle)


class Usual(Fixture):
    """A client with a request in flight whose response leaves nothing to decide unless it has an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.await_ready()
        self.handled: list[tuple[int, int]] = []
        self.got: list[ClientResponse] = []
        self.waits: list[int] = []
        builder = UsuallyAnswered(self.handle)
        request = self.client.new_client_request(NODE.id_string, builder, self.now, True, callback=self.got.append)
        self.client.send(request, self.now)
        wait = self.selector.poll

        def answered_after_30_ms(timeout_ms: int) -> None:
            self.waits.append(timeout_ms)
            wait(min(timeout_ms, 30))

        monkeypatch.setattr(self.selector, "poll", answered_after_30_ms)

    def handle(self, request: ClientRequest, now_ms: int) -> bool:
        self.handled.append((request.correlation_id, now_ms))
        return True


def test_usual_response_does_not_end_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    f = Usual(monkeypatch)
    f.selector.respond(NODE.id_string, HeartbeatResponse())
    begun_ms = f.now
    assert f.poll(50) == []
    assert f.waits == [50, 20]
    assert f.handled == [(f.handled[0][0], begun_ms + 30)]
    assert f.got == []
    assert f.client.in_flight_request_count() == 0
    f.send()
    f.selector.respond(NODE.id_string, HeartbeatResponse())
    assert len(f.poll(50)) == 1


@pytest.mark.parametrize("what", ["an error", "another response", "another connection", "a wrong id"])
def test_any_other_event_ends_wait(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    f = Usual(monkeypatch)
    if what == "an error":
        f.selector.respond(NODE.id_string, HeartbeatResponse(error_code=errors.UnknownMemberIdError.code))
    elif what == "a wrong id":
        f.selector.respond(NODE.id_string, HeartbeatResponse(), correlation_id=77)
    else:
        if what == "another response":
            f.send()
        f.selector.respond(NODE.id_string, HeartbeatResponse())
        if what == "another response":
            f.selector.respond(NODE.id_string, HeartbeatResponse())
        else:
            f.client.ready(Node(1, "127.0.0.1", 9093), f.now)
    responses = f.poll(50)
    assert f.waits == [50]
    assert len(responses) == (what != "another connection")
    assert len(f.handled) == (what not in ("an error", "a wrong id"))
    assert len(f.got) == (what in ("an error", "a wrong id"))
    assert all(response.disconnected == (what == "a wrong id") for response in f.got)


def test_repeated_request_has_new_timeout_and_fails_with_connection() -> None:
    f = Repeating()
    f.clock.advance(REQUEST_TIMEOUT_MS - 10)
    f.respond()
    f.poll()
    f.clock.advance(REQUEST_TIMEOUT_MS - 10)
    assert f.poll() == [], "its time began when it was sent again"
    f.clock.advance(100)
    [response] = f.poll()
    assert response.disconnected
    assert response.timed_out
    assert f.got == [response]


class Repeater:
    """A selector's part that sends the request again as often as ``count`` says, in each poll."""

    def __init__(self, f: Repeating, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[RepeatableRequest] = []
        self.count = 3
        self.error: BaseException | None = None
        self._poll = f.selector.poll
        monkeypatch.setattr(f.selector, "repeat", self.repeat)
        monkeypatch.setattr(f.selector, "poll", self.poll)

    def repeat(self, id: str, request: RepeatableRequest) -> Callable[[], Repetitions]:
        assert id == NODE.id_string
        self.asked.append(request)
        return lambda: Repetitions(self.count, 60, 40, 1_000, 300, 400)

    def poll(self, timeout_ms: int) -> None:
        if self.error is not None:
            raise self.error
        self._poll(timeout_ms)


def repeated_once(monkeypatch: pytest.MonkeyPatch) -> tuple[Repeating, Repeater]:
    """Return a client that has sent its request again once, before a poller could do it."""
    f = Repeating()
    f.respond()
    assert f.poll() == []
    return f, Repeater(f, monkeypatch)


def test_poller_repeats_request_during_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    f, poller = repeated_once(monkeypatch)
    [last] = f.in_flight()
    sent_ms = f.now
    f.clock.advance(5)
    assert f.poll(100) == []
    [request] = poller.asked
    assert f.builder.shortcut is not None
    content = f.builder.shortcut.usual.content
    assert request == RepeatableRequest(
        struct.pack(">ii", 4 + len(content), last) + content,
        b"request",
        3,
        last + 1,
        f.builder.epoch + 1,
        f.now - 100 - sent_ms,
    )
    [latencies] = f.builder.repeated_ms
    assert (latencies.count, latencies.total, latencies.smallest, latencies.largest) == (
        3,
        1_000,
        300,
        400,
    )
    assert f.request.correlation_id == last + 3
    assert f.request.created_ms == f.now - 40, "its latency is that of the last request"
    assert f.client._next_correlation_id() == last + 4
    f.poll(0)
    assert len(poller.asked) == 1, "a poll that does not wait needs no help"


@pytest.mark.parametrize("why", ["unwanted", "second request", "large id", "large epoch", "answered"])
def test_poller_repeats_only_a_sole_wanted_request(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, poller = repeated_once(monkeypatch)
    if why == "unwanted":
        f.builder.wanted = False
    elif why == "second request":
        f.send()
    elif why == "large id":
        f.client._correlation_id = (1 << 31) - 100
    elif why == "large epoch":
        f.builder.epoch = (1 << 31) - 100
    else:
        f.builder.wanted = False
        f.respond()
        f.poll()
        f.builder.wanted = True
        f.client.send(f.client.new_client_request(NODE.id_string, Heartbeats(), f.now, True), f.now)
    f.poll(10)
    assert poller.asked == []


def test_poller_requests_count_although_an_exception_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    f, poller = repeated_once(monkeypatch)
    [last] = f.in_flight()
    poller.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        f.poll(100)
    assert f.request.correlation_id == last + 3
    assert len(f.builder.repeated_ms) == 1


def test_request_is_unchanged_without_response(monkeypatch: pytest.MonkeyPatch) -> None:
    f, poller = repeated_once(monkeypatch)
    poller.count = 0
    created_ms = f.request.created_ms
    [last] = f.in_flight()
    f.poll(100)
    assert len(poller.asked) == 1
    assert (f.request.correlation_id, f.request.created_ms, f.builder.repeated_ms) == (last, created_ms, [])
