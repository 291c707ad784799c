"""The API versions that a broker serves (Java: ApiVersionManager)."""

from __future__ import annotations

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing.handlers import handler, is_broker_only
from pykclient.testing.release_profiles import ReleaseProfile

#: Ranges that are equal for all brokers of a release, and needed for each connection.
_all_versions: dict[tuple[str, bool], dict[int, tuple[int, int]]] = {}


class ApiVersionManager:
    """The versions that the handlers declare; for clients limited to those of the imitated release.

    ``has_unstable`` adds versions that Kafka has not declared stable to the current release. Brokers always use
    the handlers' versions among themselves. Thread: loop.
    """

    __slots__ = ("_has_unstable", "_profile", "_versions")

    def __init__(self, profile: ReleaseProfile, has_unstable: bool = False) -> None:
        self._profile = profile
        self._has_unstable = has_unstable and profile.release == ReleaseProfile.CURRENT
        self._versions: dict[tuple[int, bool], tuple[int, int] | None] = {}

    def versions(self, api_key: int, is_broker: bool = False) -> tuple[int, int] | None:
        """Return the oldest and newest supported version of an API, or None."""
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
        versions = self._profile.cut(api_key, api_handler.VERSIONS)
        unstable: int | None = getattr(api_handler, "UNSTABLE_VERSION", None)
        if versions is None or unstable is None or not self._has_unstable:
            return versions
        return versions[0], unstable

    def is_api_enabled(self, api_key: int, version: int, is_broker: bool = False) -> bool:
        """Return whether this version is supported."""
        versions = self.versions(api_key, is_broker)
        return versions is not None and versions[0] <= version <= versions[1]

    def latest_version(self, api_key: int) -> int:
        """Return the newest version between brokers.

        Raises:
            UnsupportedVersionError: brokers do not use the API among themselves.
        """
        versions = self.versions(api_key, is_broker=True)
        if versions is None:
            raise UnsupportedVersionError(f"the embedded brokers do not serve {ApiKeys.name_of(api_key)}")
        return versions[1]

    def all_versions(self) -> dict[int, tuple[int, int]]:
        """Return the versions of all APIs that clients can use."""
        found = _all_versions.get((self._profile.release, self._has_unstable))
        if found is None:
            found = {key: versions for key in ApiKeys.all() if (versions := self.versions(key)) is not None}
            _all_versions[self._profile.release, self._has_unstable] = found
        return dict(found)
