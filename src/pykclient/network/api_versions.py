"""The versions of APIs: those of a node, those of all connected nodes, and the request for them (Java: ApiVersions)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, cast

from pykclient.errors import RemoteProtocolError, UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.network.frames import BytesLike, Frame
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import parse_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.wire import Reader
from pykclient.version import __version__


class ApiVersionRange(NamedTuple):
    """An inclusive range of versions."""

    min_version: int
    max_version: int


class NodeApiVersions:
    """A node's ApiVersions response: version ranges by API key, and the cluster's features (KIP-584).

    Immutable. Thread: any.
    """

    __slots__ = ("finalized_features", "finalized_features_epoch", "supported_features", "versions")

    def __init__(
        self,
        versions: Mapping[int, ApiVersionRange],
        supported_features: Mapping[str, ApiVersionRange] | None = None,
        finalized_features: Mapping[str, int] | None = None,
        finalized_features_epoch: int = -1,
    ) -> None:
        self.versions = versions
        self.supported_features: Mapping[str, ApiVersionRange] = supported_features or {}
        self.finalized_features: Mapping[str, int] = finalized_features or {}
        self.finalized_features_epoch = finalized_features_epoch

    @classmethod
    def create(cls, overrides: Iterable[tuple[int, int, int]] = ()) -> NodeApiVersions:
        """Return a node with all our versions, except for ``overrides`` (api key, min, max).

        For tests and simulations.
        """
        versions = {
            key: ApiVersionRange(ApiKeys.oldest_version(key), ApiKeys.latest_version(key))
            for key in ApiKeys.client_apis()
        }
        versions.update({key: ApiVersionRange(oldest, latest) for key, oldest, latest in overrides})
        return cls(versions)

    def api_version(self, api_key: int) -> ApiVersionRange | None:
        return self.versions.get(api_key)

    def latest_usable_version(
        self, api_key: int, oldest_allowed: int | None = None, latest_allowed: int | None = None
    ) -> int:
        """Return the newest version that the node supports and the caller allows.

        Raises:
            UnsupportedVersionError: there is none.
        """
        supported = self.versions.get(api_key)
        if supported is None:
            raise UnsupportedVersionError(f"the node does not support {ApiKeys.name_of(api_key)}")
        oldest = ApiKeys.oldest_version(api_key) if oldest_allowed is None else oldest_allowed
        latest = ApiKeys.latest_version(api_key) if latest_allowed is None else latest_allowed
        lowest, highest = supported
        version = latest if latest < highest else highest
        if version < oldest or version < lowest:
            raise UnsupportedVersionError(
                f"the node does not support {ApiKeys.name_of(api_key)} in versions {oldest} to {latest}, "
                f"only {supported.min_version} to {supported.max_version}"
            )
        return version

    def __repr__(self) -> str:
        known = ", ".join(
            f"{ApiKeys.name_of(key)}({key}): {oldest} to {latest}"
            for key, (oldest, latest) in sorted(self.versions.items())
        )
        return f"NodeApiVersions({known})"


_PRODUCE = 0

#: Record batch format by the oldest Produce version that carries it (Java: RecordBatch.MAGIC_VALUE_*).
_MAGIC_V2, _MAGIC_V1, _MAGIC_V0 = 2, 1, 0


class FinalizedFeaturesInfo(NamedTuple):
    """The finalized features of the cluster, as of the newest epoch that any node reported."""

    finalized_features_epoch: int
    finalized_features: Mapping[str, int]


class ApiVersions:
    """The API versions of each connected node, shared by the network client and request builders. Thread: any."""

    __slots__ = ("_finalized_features", "_finalized_features_epoch", "_lock", "_nodes", "get")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards: all below, but single lookups in _nodes
        self._nodes: dict[str, NodeApiVersions] = {}
        #: Returns the versions of a node by its id, or None. Each request asks for them, so no Python code runs.
        self.get: Callable[[str], NodeApiVersions | None] = self._nodes.get
        self._finalized_features_epoch = -1
        self._finalized_features: Mapping[str, int] = {}

    def update(self, node_id: str, versions: NodeApiVersions) -> None:
        with self._lock:
            self._nodes[node_id] = versions
            if versions.finalized_features_epoch > self._finalized_features_epoch:
                self._finalized_features_epoch = versions.finalized_features_epoch
                self._finalized_features = versions.finalized_features

    def remove(self, node_id: str) -> None:
        with self._lock:
            self._nodes.pop(node_id, None)

    @property
    def finalized_features_epoch(self) -> int:
        """The epoch of the newest finalized features; -1 until a broker has reported some."""
        return self._finalized_features_epoch

    @property
    def finalized_features_info(self) -> FinalizedFeaturesInfo:
        with self._lock:
            return FinalizedFeaturesInfo(self._finalized_features_epoch, self._finalized_features)

    @property
    def max_usable_produce_magic(self) -> int:
        """Return the newest batch format that every connected node accepts: 2 from Produce v3 on, 1 from v2, else 0."""
        with self._lock:
            magic = _MAGIC_V2
            for versions in self._nodes.values():
                produce = versions.api_version(_PRODUCE)
                if produce is not None:
                    latest = produce.max_version
                    magic = min(magic, _MAGIC_V2 if latest >= 3 else _MAGIC_V1 if latest == 2 else _MAGIC_V0)
            return magic


#: This client's name in brokers' logs and metrics.
CLIENT_SOFTWARE_NAME = "pykclient"

_UNSUPPORTED_VERSION = UnsupportedVersionError.code

_CORRELATION_ID_BYTES = 4

#: The size from which a response is not kept: no broker's list of versions is as large.
_LARGEST_KEPT = 8_192


class ApiVersionsRequestBuilder(RequestBuilder):
    """Builds a request for the versions of a node, whose response may be in another version. Thread: owner."""

    __slots__ = ()

    def parse_response(self, frame: BytesLike, version: int) -> ApiVersionsResponse:
        return parse_api_versions_response(frame, version)[1]


def api_versions_request(max_version: int | None = None) -> RequestBuilder:
    """Return a request in the newest version, or in ``max_version`` if the node asked for that."""
    request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__)
    return ApiVersionsRequestBuilder(request, 0, max_version)


def parse_api_versions_response(frame: Frame, version: int) -> tuple[int, ApiVersionsResponse]:
    """Return the correlation id and the response to a request of ``version``.

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
