"""Which versions of which APIs a broker serves, and to whom (Java: ApiVersionManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing.handlers import handler, is_broker_only

if TYPE_CHECKING:
    from pykclient.testing.release_profiles import ReleaseProfile

#: What is the same for all brokers of a release, and asked for with each connection.
_all_versions: dict[str, dict[int, tuple[int, int]]] = {}


class ApiVersionManager:
    """What the handlers declare; for clients cut to what the release has that the broker poses as.

    Brokers among themselves always speak what the handlers have. Thread: loop.
    """

    __slots__ = ("_profile", "_versions")

    def __init__(self, profile: ReleaseProfile) -> None:
        self._profile = profile
        self._versions: dict[tuple[int, bool], tuple[int, int] | None] = {}

    def versions(self, api_key: int, is_broker: bool = False) -> tuple[int, int] | None:
        """The oldest and newest version of an API that is served; None for none."""
        try:
            return self._versions[api_key, is_broker]
        except KeyError:
            found = self._versions[api_key, is_broker] = self._find(api_key, is_broker)
            return found

    def _find(self, api_key: int, is_broker: bool) -> tuple[int, int] | None:
        api_handler = handler(api_key)
        if api_handler is None or (is_broker_only(api_handler) and not is_broker):
            return None
        if is_broker:
            return api_handler.VERSIONS
        return self._profile.cut(api_key, api_handler.VERSIONS)

    def is_api_enabled(self, api_key: int, version: int, is_broker: bool = False) -> bool:
        """Whether this version is served."""
        versions = self.versions(api_key, is_broker)
        return versions is not None and versions[0] <= version <= versions[1]

    def latest_version(self, api_key: int) -> int:
        """The newest version that brokers speak; UnsupportedVersionError if they do not speak the API."""
        versions = self.versions(api_key, is_broker=True)
        if versions is None:
            raise UnsupportedVersionError(f"the embedded brokers do not serve {ApiKeys.name_of(api_key)}")
        return versions[1]

    def all_versions(self) -> dict[int, tuple[int, int]]:
        """All that clients can ask for."""
        found = _all_versions.get(self._profile.release)
        if found is None:
            found = {key: versions for key in ApiKeys.all() if (versions := self.versions(key)) is not None}
            _all_versions[self._profile.release] = found
        return dict(found)
