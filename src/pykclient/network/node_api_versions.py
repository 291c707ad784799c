"""The API versions of a node (Java: NodeApiVersions)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys


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
