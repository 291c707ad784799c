"""The mock client behaves like KafkaClient wherever other tests rely on it."""

from __future__ import annotations

import pytest

from pykclient.errors import IllegalStateError
from pykclient.log_context import LogContext
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.network.kafka_client import KafkaClient
from pykclient.network.metadata import Metadata
from pykclient.network.network_client import NetworkClient
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.types import Node
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock

NODE, OTHER = Node(0, "a", 1), Node(1, "b", 2)


def seam(client: KafkaClient) -> KafkaClient:
    """Let mypy check that both clients implement the interface."""
    return client


def both(network: NetworkClient, mock: MockClient) -> list[KafkaClient]:
    return [seam(network), seam(mock)]


def make() -> tuple[MockClient, MockClock]:
    clock = MockClock()
    return MockClient(clock, nodes=[NODE, OTHER]), clock


def send(client: MockClient, clock: MockClock, node: Node = NODE) -> tuple[ClientRequest, list[ClientResponse]]:
    got: list[ClientResponse] = []
    now_ms = clock.now_ms()
    builder = RequestBuilder(HeartbeatRequest(group_id="g"))
    request = client.new_client_request(node.id_string, builder, now_ms, True, None, got.append)
    client.send(request, now_ms)
    return request, got


def test_prepared_responses_match_requests_in_order() -> None:
    client, clock = make()
    with pytest.raises(IllegalStateError, match="not ready"):
        send(client, clock)
    assert client.ready(NODE, clock.now_ms())
    client.prepare_response(HeartbeatResponse(error_code=1), lambda request: request.group_id == "g")
    client.prepare_response(HeartbeatResponse(error_code=2))
    (_, first), (_, second) = send(client, clock), send(client, clock)
    assert not first
    client.poll(0, clock.now_ms())
    assert [first[0].response_body.error_code, second[0].response_body.error_code] == [1, 2]
    client.prepare_response(HeartbeatResponse(), lambda _request: False)
    with pytest.raises(IllegalStateError, match="not the one"):
        send(client, clock)


def test_response_prepared_for_node_answers_only_that_node() -> None:
    client, clock = make()
    client.ready(NODE, clock.now_ms())
    client.ready(OTHER, clock.now_ms())
    client.prepare_response_from(HeartbeatResponse(error_code=7), OTHER)
    (_, first), (_, second) = send(client, clock), send(client, clock, OTHER)
    client.poll(0, clock.now_ms())
    assert second[0].response_body.error_code == 7
    assert not first
    client.respond_from(HeartbeatResponse(error_code=8), NODE)
    client.poll(0, clock.now_ms())
    assert first[0].response_body.error_code == 8
    with pytest.raises(IllegalStateError):
        client.respond(HeartbeatResponse())


def test_mock_client_simulates_disconnections_and_timeouts() -> None:
    client, clock = make()
    client.ready(NODE, clock.now_ms())
    _, got = send(client, clock)
    assert client.in_flight_request_count("0") == client.in_flight_request_count() == 1
    client.disconnect("0")
    client.poll(0, clock.now_ms())
    assert got[0].disconnected
    assert not client.is_ready(NODE, clock.now_ms())
    client.ready(NODE, clock.now_ms())
    _, late = send(client, clock)
    clock.advance(10_000)
    client.poll(0, clock.now_ms())
    assert late[0].disconnected
    assert client.in_flight_request_count() == 0


def test_mock_client_simulates_versions_backoff_and_throttling() -> None:
    client, clock = make()
    client.ready(NODE, clock.now_ms())
    client.set_api_versions(ApiKeys.HEARTBEAT, 90, 99)
    client.prepare_response(HeartbeatResponse())
    _, got = send(client, clock)
    client.poll(0, clock.now_ms())
    assert got[0].build_error is not None
    client.api_versions.clear()
    client.create_pending_authentication_error(NODE, 100)
    _, failed = send(client, clock)
    client.poll(0, clock.now_ms())
    assert failed[0].authentication_error is client.authentication_error(NODE)
    assert client.connection_failed(NODE)
    assert client.connection_delay_ms(NODE, clock.now_ms()) == 100
    assert client.least_loaded_node(clock.now_ms()).node == OTHER
    clock.advance(100)
    assert client.ready(NODE, clock.now_ms())
    client.throttle(NODE, 50)
    assert not client.is_ready(NODE, clock.now_ms())
    assert client.poll_delay_ms(NODE, clock.now_ms()) == 50


def test_prepared_metadata_is_applied_when_requested() -> None:
    clock = MockClock()
    metadata = Metadata(100, 100, 300_000, LogContext())
    metadata.bootstrap([("a", 1)])
    client = MockClient(clock, metadata)
    broker = MetadataResponse.MetadataResponseBroker(node_id=5, host="x", port=3)
    client.prepare_metadata_update(MetadataResponse(brokers=[broker], cluster_id="c"))
    client.poll(0, clock.now_ms())
    assert [node.id for node in metadata.fetch().nodes] == [5]
    assert not client.has_pending_metadata_updates()
