"""Dispatch: requests read, refused and recorded, and errors of handlers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pykclient.errors import RebalanceInProgressError
from pykclient.network.frames import NetworkSend
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.testing.request_channel import Request
from tests.testing.server.support import HeartbeatHandler, heartbeat_handler
from tests.testing.server.test_processor import Setup


@pytest.fixture
def handler() -> Iterator[HeartbeatHandler]:
    with heartbeat_handler() as handler:
        yield handler


def exchange(setup: Setup, request: bytes) -> bytes | None:
    """Return the payload of the response, or None if the connection was closed instead."""
    setup.client.send(NetworkSend("1", [request]))
    setup.cluster.run()
    setup.client.poll(0)
    if setup.client.disconnected:
        return None
    return bytes(setup.client.completed_receives[0].payload)


def heartbeat_error(payload: bytes | None) -> int:
    assert payload is not None
    response = parse_response(payload, ApiKeys.HEARTBEAT, 4)[1]
    assert isinstance(response, HeartbeatResponse)
    return response.error_code


def with_version(request: bytes, version: int, api_key: int | None = None) -> bytes:
    key = request[4:6] if api_key is None else api_key.to_bytes(2, "big", signed=True)
    return request[:4] + key + version.to_bytes(2, "big", signed=True) + request[8:]


HEARTBEAT = encode_request(HeartbeatRequest(group_id="g"), 4, 1, "c").getvalue()


def api_versions(software: str) -> bytes:
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
    return encode_request(request, 3, 1, "c").getvalue()


def test_broker_error_becomes_the_response(handler: HeartbeatHandler) -> None:
    def fail(request: Request) -> None:
        raise RebalanceInProgressError

    setup = Setup()
    handler.answer = fail
    assert heartbeat_error(exchange(setup, HEARTBEAT)) == RebalanceInProgressError.code
    (record,) = setup.cluster.history.matching(api="Heartbeat")
    assert record.error_codes == {RebalanceInProgressError.code}


def test_defect_is_logged_and_answered(handler: HeartbeatHandler, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request) -> None:
        raise KeyError("oops")

    setup = Setup()
    handler.answer = fail
    setup.client.send(NetworkSend("1", [HEARTBEAT]))
    with caplog.at_level(logging.ERROR), pytest.raises(KeyError, match="oops"):
        setup.cluster.run()
    assert "HEARTBEAT" in caplog.text
    setup.cluster.loop.failure = None
    setup.cluster.run()
    setup.client.poll(0)
    assert heartbeat_error(bytes(setup.client.completed_receives[0].payload)) == -1
    handler.answer = lambda request: request.respond(HeartbeatResponse())
    assert heartbeat_error(exchange(setup, HEARTBEAT)) == 0


def test_unencodable_response_closes_the_connection(
    handler: HeartbeatHandler, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    handler.answer = lambda request: request.respond(HeartbeatResponse(error_code=1 << 40))
    setup.client.send(NetworkSend("1", [HEARTBEAT]))
    with pytest.raises(Exception, match="cannot be written"):
        setup.cluster.run()
    setup.cluster.loop.failure = None
    setup.cluster.run()
    setup.client.poll(0)
    assert list(setup.client.disconnected) == ["1"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        with_version(HEARTBEAT, 99),
        with_version(HEARTBEAT, -1),
        with_version(HEARTBEAT, 0, 999),
        with_version(HEARTBEAT, 0, -1),
        with_version(HEARTBEAT, 8, ApiKeys.UPDATE_METADATA),
        HEARTBEAT[:-3],
        HEARTBEAT[:9],
        b"\0\0\0\0",
    ],
    ids=["version", "negative version", "API", "negative API", "API of brokers", "cut body", "cut header", "empty"],
)
def test_unreadable_request_closes_the_connection(handler: HeartbeatHandler, request_bytes: bytes) -> None:
    setup = Setup()
    assert exchange(setup, request_bytes) is None
    assert handler.requests == []
    assert len(setup.cluster.history) == 0
    setup.client = setup.new_client("client:c")
    assert heartbeat_error(exchange(setup, HEARTBEAT)) == 0


@pytest.mark.parametrize("version", [5, 99, -3])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    payload = exchange(Setup(), with_version(api_versions("x"), version))
    assert payload is not None
    response = parse_response(payload, ApiKeys.API_VERSIONS, 0)[1]
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == 35
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 4)]


def test_history_has_requests_and_responses(handler: HeartbeatHandler) -> None:
    setup = Setup()
    exchange(setup, HEARTBEAT)
    setup.cluster.clock.advance(5)
    exchange(setup, HEARTBEAT)
    first, second = setup.cluster.history.matching(client_id="c", broker=1)
    assert (first.api, first.api_version, first.fate, first.party) == ("HEARTBEAT", 4, "ANSWERED", "client:c")
    assert second.time_ms - first.time_ms == 5
    assert second.answered_ms == second.time_ms
    assert first.body == HeartbeatRequest(group_id="g")
    assert first.response == HeartbeatResponse()
    assert setup.cluster.history.matching(after=first.number) == [second]
    assert setup.cluster.history.counts[ApiKeys.HEARTBEAT] == 2
