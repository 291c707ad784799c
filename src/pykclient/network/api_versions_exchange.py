"""The first request to a node, ApiVersions, and its response (KIP-35, KIP-511)."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from pykclient.errors import RemoteProtocolError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.network.network_receive import Frame
from pykclient.network.node_api_versions import ApiVersionRange, NodeApiVersions
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import parse_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.wire import Reader
from pykclient.version import __version__

#: This client's name in brokers' logs and metrics.
CLIENT_SOFTWARE_NAME = "pykclient"

_UNSUPPORTED_VERSION = UnsupportedVersionError.code
_CORRELATION_ID_BYTES = 4
#: The size from which a response is not kept: no broker's list of versions is as large.
_LARGEST_KEPT = 8_192


def api_versions_request(max_version: int | None = None) -> RequestBuilder:
    """Return a request in the newest version, or in ``max_version`` if the node asked for that."""
    request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__)
    return RequestBuilder(request, 0, max_version)


def parse_api_versions_response(frame: Frame, version: int) -> tuple[int, ApiVersionsResponse]:
    """Return the correlation id of, and the response to, a request of ``version``.

    A node that does not know the version returns UNSUPPORTED_VERSION in version 0. Since Kafka 2.4, that response lists
    the versions of ApiVersions itself. Some other brokers write a body that fits no version, so the part after the
    error code is decoded if possible, and ignored otherwise.
    """
    reader = Reader(frame)
    correlation_id, error_code = reader.int32(), reader.int16()
    if error_code != _UNSUPPORTED_VERSION:
        body = bytes(frame[_CORRELATION_ID_BYTES:])
        read = _read if len(body) <= _LARGEST_KEPT else _read.__wrapped__
        return correlation_id, read(body, version)
    try:
        return correlation_id, ApiVersionsResponse.read(Reader(frame, 4), 0)
    except RemoteProtocolError:
        return correlation_id, ApiVersionsResponse(error_code=error_code)


@lru_cache(maxsize=32)
def _read(body: bytes, version: int) -> ApiVersionsResponse:
    """Decode a response, which nobody changes. The nodes of a cluster send equal ones, on each connection again."""
    frame = bytes(_CORRELATION_ID_BYTES) + body
    return cast(ApiVersionsResponse, parse_response(frame, ApiKeys.API_VERSIONS, version)[1])


def fallback_version(response: ApiVersionsResponse) -> int:
    """Return the version to use after UNSUPPORTED_VERSION: the node's newest if it is known, else 0."""
    for api in response.api_keys:
        if api.api_key == ApiKeys.API_VERSIONS:
            return max(0, min(api.max_version, ApiKeys.latest_version(ApiKeys.API_VERSIONS)))
    return 0


def node_api_versions(response: ApiVersionsResponse) -> NodeApiVersions:
    return NodeApiVersions(
        {api.api_key: ApiVersionRange(api.min_version, api.max_version) for api in response.api_keys},
        {
            feature.name: ApiVersionRange(feature.min_version, feature.max_version)
            for feature in response.supported_features
        },
        {feature.name: feature.max_version_level for feature in response.finalized_features},
        response.finalized_features_epoch,
    )
