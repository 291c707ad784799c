"""The APIs, versions and features of Kafka releases (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykclient.argument_values import shown
from pykclient.errors import ConfigError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.record.record_batch import MAGIC_VALUE_V1, MAGIC_VALUE_V2

GROUP_VERSION: Final = "group.version"

SHARE_VERSION: Final = "share.version"

TRANSACTION_VERSION: Final = "transaction.version"

#: The highest level of each feature that the embedded brokers support; all support level 0.
SUPPORTED_FEATURES: Final[Mapping[str, int]] = {GROUP_VERSION: 1, SHARE_VERSION: 1, TRANSACTION_VERSION: 2}


class FinalizedFeatures:
    """The levels in effect, and their ``epoch``, which grows with each change. Thread: loop."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        """Start with these levels; a feature without one has level 0.

        Raises:
            ConfigError: the cluster does not support a feature or level.
        """
        self.epoch = 0
        self._levels: dict[str, int] = {}
        for name, level in levels.items():
            self.update(name, level)

    def update(self, name: str, level: int) -> None:
        """Change the level of a feature.

        Raises:
            ConfigError: the cluster does not support the feature or level.
        """
        highest = SUPPORTED_FEATURES.get(name) if isinstance(name, str) else None
        if highest is None:
            raise ConfigError(f"there is no feature {shown(name)}, only {', '.join(SUPPORTED_FEATURES)}")
        if type(level) is not int or not 0 <= level <= highest:
            raise ConfigError(f"{name} can be 0 to {highest}, not {shown(level)}")
        self.epoch += 1
        self._levels[name] = level

    @property
    def levels(self) -> Mapping[str, int]:
        """The levels above 0."""
        return {name: level for name, level in self._levels.items() if level}

    @property
    def group_version(self) -> int:
        """The group protocols: 1 has the one of KIP-848 beside the classic one."""
        return self._levels.get(GROUP_VERSION, 0)

    @property
    def share_version(self) -> int:
        """The support of share groups (KIP-932): 0 has none."""
        return self._levels.get(SHARE_VERSION, 0)

    @property
    def transaction_version(self) -> int:
        """The protocol generation of transactions (KIP-890): 2 bumps the epoch with each transaction."""
        return self._levels.get(TRANSACTION_VERSION, 0)


_RELEASES: Final = (
    *("0.10.0", "0.10.1", "0.10.2", "0.11", "1.0", "1.1"),
    *("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8"),
    *("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"),
    "4.3",
)

#: For each API, the newest stable version and the release that introduced it.
_HISTORY: Final[dict[int, str]] = {
    ApiKeys.PRODUCE: "0.10.0:2 0.11:3 1.0:5 2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11 4.3:13",
    ApiKeys.FETCH: "0.10.0:2 0.10.1:3 0.11:5 1.0:6 1.1:7 2.0:8 2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17 4.3:18",
    ApiKeys.LIST_OFFSETS: "0.10.0:0 0.10.1:1 0.11:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9 4.3:11",
    ApiKeys.METADATA: "0.10.0:1 0.10.1:2 0.11:4 1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11 3.1:12 4.3:13",
    ApiKeys.OFFSET_COMMIT: "0.10.0:2 0.11:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9 4.3:10",
    ApiKeys.OFFSET_FETCH: "0.10.0:1 0.10.2:2 0.11:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9 4.3:10",
    ApiKeys.FIND_COORDINATOR: "0.10.0:0 0.11:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6",
    ApiKeys.JOIN_GROUP: "0.10.0:0 0.10.1:1 0.11:2 2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9",
    ApiKeys.HEARTBEAT: "0.10.0:0 0.11:1 2.0:2 2.3:3 2.4:4",
    ApiKeys.LEAVE_GROUP: "0.10.0:0 0.11:1 2.0:2 2.4:4 3.2:5",
    ApiKeys.SYNC_GROUP: "0.10.0:0 0.11:1 2.0:2 2.3:3 2.4:4 2.5:5",
    ApiKeys.DESCRIBE_GROUPS: "0.10.0:0 0.11:1 2.0:2 2.3:3 2.4:5 4.3:6",
    ApiKeys.LIST_GROUPS: "0.10.0:0 0.11:1 2.0:2 2.4:3 2.6:4 3.8:5",
    ApiKeys.SASL_HANDSHAKE: "0.10.0:0 1.0:1",
    ApiKeys.API_VERSIONS: "0.10.0:0 0.11:1 2.0:2 2.4:3 3.9:4",
    ApiKeys.CREATE_TOPICS: "0.10.1:0 0.10.2:1 0.11:2 2.0:3 2.4:5 2.7:6 2.8:7",
    ApiKeys.DELETE_TOPICS: "0.10.1:0 0.11:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6",
    ApiKeys.DELETE_RECORDS: "0.11:0 2.0:1 2.6:2",
    ApiKeys.INIT_PRODUCER_ID: "0.11:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5",
    ApiKeys.OFFSET_FOR_LEADER_EPOCH: "0.11:0 2.0:1 2.1:2 2.3:3 2.8:4",
    ApiKeys.ADD_PARTITIONS_TO_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.6:4 3.8:5",
    ApiKeys.ADD_OFFSETS_TO_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4",
    ApiKeys.END_TXN: "0.11:0 2.0:1 2.7:2 2.8:3 3.8:4 4.3:5",
    ApiKeys.WRITE_TXN_MARKERS: "0.11:0 2.8:1 4.3:2",
    ApiKeys.TXN_OFFSET_COMMIT: "0.11:0 2.0:1 2.1:2 2.5:3 3.8:4 4.3:5",
    ApiKeys.DESCRIBE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
    ApiKeys.CREATE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
    ApiKeys.DELETE_ACLS: "0.11:0 2.0:1 2.5:2 3.3:3",
    ApiKeys.DESCRIBE_CONFIGS: "0.11:0 1.1:1 2.0:2 2.6:3 2.8:4",
    ApiKeys.ALTER_CONFIGS: "0.11:0 2.0:1 2.8:2",
    ApiKeys.ALTER_REPLICA_LOG_DIRS: "1.0:0 2.0:1 2.8:2",
    ApiKeys.DESCRIBE_LOG_DIRS: "1.0:0 2.0:1 2.6:2 3.2:3 3.3:4 4.3:5",
    ApiKeys.SASL_AUTHENTICATE: "1.0:0 2.2:1 2.5:2",
    ApiKeys.CREATE_PARTITIONS: "1.0:0 2.0:1 2.5:2 2.7:3",
    ApiKeys.CREATE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.4:2 3.3:3",
    ApiKeys.RENEW_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2",
    ApiKeys.EXPIRE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2",
    ApiKeys.DESCRIBE_DELEGATION_TOKEN: "1.1:0 2.0:1 2.5:2 3.3:3",
    ApiKeys.DELETE_GROUPS: "1.1:0 2.0:1 2.4:2",
    ApiKeys.ELECT_LEADERS: "2.2:0 2.4:2",
    ApiKeys.INCREMENTAL_ALTER_CONFIGS: "2.3:0 2.4:1",
    ApiKeys.ALTER_PARTITION_REASSIGNMENTS: "2.4:0 4.3:1",
    ApiKeys.LIST_PARTITION_REASSIGNMENTS: "2.4:0",
    ApiKeys.OFFSET_DELETE: "2.4:0",
    ApiKeys.DESCRIBE_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKeys.ALTER_CLIENT_QUOTAS: "2.6:0 2.8:1",
    ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKeys.ALTER_USER_SCRAM_CREDENTIALS: "2.7:0",
    ApiKeys.DESCRIBE_QUORUM: "2.7:0 3.3:1 3.9:2",
    ApiKeys.UPDATE_FEATURES: "2.7:0 3.3:1 4.3:2",
    ApiKeys.DESCRIBE_CLUSTER: "2.8:0 3.7:1 4.3:2",
    ApiKeys.DESCRIBE_PRODUCERS: "2.8:0",
    ApiKeys.UNREGISTER_BROKER: "2.8:0",
    ApiKeys.DESCRIBE_TRANSACTIONS: "3.0:0",
    ApiKeys.LIST_TRANSACTIONS: "3.0:0 3.8:1 4.3:2",
    ApiKeys.CONSUMER_GROUP_HEARTBEAT: "3.7:0 4.3:1",
    ApiKeys.CONSUMER_GROUP_DESCRIBE: "3.8:0 4.3:1",
    ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS: "3.7:0",
    ApiKeys.PUSH_TELEMETRY: "3.7:0",
    ApiKeys.LIST_CONFIG_RESOURCES: "3.7:0 4.3:1",
    ApiKeys.DESCRIBE_TOPIC_PARTITIONS: "3.8:0",
    ApiKeys.SHARE_GROUP_HEARTBEAT: "4.3:1",
    ApiKeys.SHARE_GROUP_DESCRIBE: "4.3:1",
    ApiKeys.SHARE_FETCH: "4.3:2",
    ApiKeys.SHARE_ACKNOWLEDGE: "4.3:2",
    ApiKeys.ADD_RAFT_VOTER: "3.9:0 4.3:1",
    ApiKeys.REMOVE_RAFT_VOTER: "3.9:0",
    ApiKeys.STREAMS_GROUP_DESCRIBE: "4.3:0",
    ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS: "4.3:1",
    ApiKeys.ALTER_SHARE_GROUP_OFFSETS: "4.3:0",
    ApiKeys.DELETE_SHARE_GROUP_OFFSETS: "4.3:0",
}


class ReleaseProfile:
    """A Kafka release as clients see it: its APIs and their versions. Immutable. Thread: any."""

    CURRENT: Final = _RELEASES[-1]
    """The default release of a cluster."""

    def __init__(self, release: str) -> None:
        """Look up the release, one of ``releases()``."""
        self.release = release
        #: The newest record format that the release knows.
        self.magic = MAGIC_VALUE_V1 if release.startswith("0.10.") else MAGIC_VALUE_V2
        until = _RELEASES.index(release)
        self._max_versions: dict[int, int] = {}
        for api_key, history in _HISTORY.items():
            for step in history.split():
                since, _, version = step.partition(":")
                if _RELEASES.index(since) <= until:
                    self._max_versions[api_key] = int(version)

    @staticmethod
    def releases() -> tuple[str, ...]:
        """Return all known releases, the oldest first."""
        return _RELEASES

    @classmethod
    def of(cls, release: str) -> ReleaseProfile:
        """Return the profile of a release, with or without its patch level: ``2.1`` or ``2.1.1``.

        Raises:
            ConfigError: the release is unknown.
        """
        parts = release.split(".")
        name = ".".join(parts[: 3 if parts[:2] == ["0", "10"] else 2])
        if name not in _RELEASES:
            raise ConfigError(f"there is no profile of release {release!r}, only of {', '.join(_RELEASES)}")
        profile = _profiles.get(name)
        if profile is None:
            profile = _profiles[name] = cls(name)
        return profile

    @property
    def has_message_formats(self) -> bool:
        """True if topics can use an old record format: up to 2.8 (KIP-724)."""
        return int(self.release[0]) < 3

    @property
    def has_features(self) -> bool:
        """True if clients adapt to finalized features: since 4.0."""
        return int(self.release[0]) >= 4

    @property
    def has_dynamic_min_insync_replicas(self) -> bool:
        """True if the controller writes min.insync.replicas as a dynamic default: since 4.1, with KIP-966."""
        return self.has_features

    @property
    def transaction_version(self) -> int:
        """The default transaction.version of a new cluster (KIP-890)."""
        return 2 if self.has_features else 0

    def max_version(self, api_key: int) -> int | None:
        """Return the newest version of an API; None if clients of this release cannot use it."""
        return self._max_versions.get(api_key)

    def min_version(self, api_key: int) -> int:
        """Return the oldest version of an API in this release. Kafka dropped none before 4.0."""
        return ApiKeys.oldest_version(api_key) if self.release.startswith("4.") else 0

    def cut(self, api_key: int, versions: tuple[int, int]) -> tuple[int, int] | None:
        """Return the part of ``versions`` that the release has, or None."""
        newest = self._max_versions.get(api_key)
        if newest is None:
            return None
        oldest, newest = max(versions[0], self.min_version(api_key)), min(versions[1], newest)
        return (oldest, newest) if oldest <= newest else None

    def __repr__(self) -> str:
        return f"ReleaseProfile({self.release})"


_profiles: dict[str, ReleaseProfile] = {}
