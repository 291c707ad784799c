"""ApiVersions: the APIs and versions that this broker serves (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from pykclient.errors import InvalidRequestError, UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.testing.finalized_features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.finalized_features import FinalizedFeatures
    from pykclient.testing.server.api_version_manager import ApiVersionManager
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.API_VERSIONS
VERSIONS: Final = (0, 4)

_TELEMETRY: Final = (ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, ApiKeys.PUSH_TELEMETRY)
_FIRST_WITH_SOFTWARE_NAME: Final = 3
_FIRST_WITH_FEATURES: Final = 3
_FIRST_WITH_LEVEL_0: Final = 4
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: Request) -> None:
    body = cast(ApiVersionsRequest, request.body)
    if request.api_version >= _FIRST_WITH_SOFTWARE_NAME:
        for given in (body.client_software_name, body.client_software_version):
            if not _SOFTWARE_NAME.fullmatch(given):
                raise InvalidRequestError(f"a client's software cannot be called {given!r}")
    # Brokers without a plug-in that receives metrics do not offer telemetry.
    response = api_versions_response(broker.apis.api_version_manager, broker.cluster.telemetry is not None)
    if request.api_version >= _FIRST_WITH_FEATURES and broker.cluster.profile.has_features:
        _add_features(response, broker.cluster.features, request.api_version)
    request.respond(response)


def api_versions_response(manager: ApiVersionManager, has_telemetry: bool = True) -> ApiVersionsResponse:
    """Return the response with all versions that clients can use, with or without those of telemetry."""
    versions = manager.all_versions()
    # Some releases of librdkafka disable codecs, or fail, if version 0 is not listed. It is not served. Kafka 4 does
    # the same (KAFKA-18659).
    versions[ApiKeys.PRODUCE] = (0, versions[ApiKeys.PRODUCE][1])
    if not has_telemetry:
        for api_key in _TELEMETRY:
            versions.pop(api_key, None)
    return ApiVersionsResponse(api_keys=_api_keys(tuple(versions.items())))


@lru_cache(maxsize=32)
def _api_keys(versions: tuple[tuple[int, tuple[int, int]], ...]) -> tuple[ApiVersionsResponse.ApiVersion, ...]:
    """Return the entries of a response. Brokers share them, as each connection asks for them."""
    return tuple(
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
        for key, (oldest, newest) in versions
    )


def _add_features(response: ApiVersionsResponse, features: FinalizedFeatures, version: int) -> None:
    if version >= _FIRST_WITH_LEVEL_0:  # earlier clients do not accept a minimum of 0 (KAFKA-17011)
        response.supported_features = [
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=highest)
            for name, highest in SUPPORTED_FEATURES.items()
        ]
    response.finalized_features_epoch = features.epoch
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in features.levels.items()
    ]


def unsupported_version_response(versions: ApiVersionManager) -> ApiVersionsResponse:
    """Return the response, always in version 0, to a request in an unsupported version."""
    served = versions.versions(API_KEY)
    response = ApiVersionsResponse(error_code=UnsupportedVersionError.code)
    # Releases before 2.4 do not list their versions in this response; clients then try version 0.
    if served is not None and served[1] >= _FIRST_WITH_SOFTWARE_NAME:
        response.api_keys.append(
            ApiVersionsResponse.ApiVersion(api_key=API_KEY, min_version=served[0], max_version=served[1])
        )
    return response


def error_response(
    body: ApiVersionsRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code)
