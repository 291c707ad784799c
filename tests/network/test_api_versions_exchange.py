"""Responses to ApiVersions, which are decoded once if a connection gets the same one again."""

from __future__ import annotations

from pykclient.network.cluster_connection_states import node_api_versions, parse_api_versions_response
from pykclient.protocol.headers import encode_response
from pykclient.protocol.messages.api_versions import ApiVersionsResponse

_NEWEST = 4


def _frame(correlation_id: int, apis: int, highest: int = 9) -> bytes:
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key % 100, min_version=0, max_version=highest) for key in range(apis)
    ]
    writer = encode_response(ApiVersionsResponse(api_keys=keys), _NEWEST, correlation_id)
    return writer.getvalue()[4:]


def test_each_response_has_its_own_correlation_id() -> None:
    first = parse_api_versions_response(_frame(7, 3), _NEWEST)
    second = parse_api_versions_response(memoryview(_frame(8, 3)), _NEWEST)
    assert (first[0], second[0]) == (7, 8)
    assert first[1] == second[1]


def test_nodes_with_different_versions_are_distinguished() -> None:
    responses = [parse_api_versions_response(_frame(1, 3, highest), _NEWEST)[1] for highest in (9, 8)]
    assert [node_api_versions(response).versions[0].max_version for response in responses] == [9, 8]


def test_only_small_responses_are_kept() -> None:
    small, large = ([parse_api_versions_response(_frame(1, apis), _NEWEST)[1] for _ in range(2)] for apis in (60, 6000))
    assert small[0] is small[1]
    assert large[0] is not large[1]
    assert large[0] == large[1]
