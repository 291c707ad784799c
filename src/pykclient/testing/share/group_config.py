"""The settings of share groups, which administrators change on resources of type GROUP (Java: GroupConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykclient.config.config_def import ConfigDef, Type
from pykclient.config.validators import Validator, ValidString, parse_iso_duration_ms
from pykclient.testing.config import BrokerConfig, int_, key
from pykclient.testing.coordination import znodes
from pykclient.testing.coordination.coordination_client import CoordinationClient, KafkaCoordinationClient
from pykclient.testing.log.log_config import check_override

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_BY_DURATION: Final = "by_duration:"
_READ_COMMITTED: Final = "read_committed"

#: The broker's setting that is the default of a group's.
SERVER_SYNONYMS: Final = {
    "share.session.timeout.ms": "group.share.session.timeout.ms",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
}


def _offset_reset(value: Any) -> str | None:
    """Return what is wrong with a value of ``share.auto.offset.reset``, or None."""
    if value in (EARLIEST, LATEST):
        return None
    if isinstance(value, str) and value.startswith(_BY_DURATION):
        try:
            parse_iso_duration_ms(value.removeprefix(_BY_DURATION))
        except ValueError as error:
            return f"has no valid duration: {error}"
        return None
    return "must be earliest, latest, or by_duration: with a duration, such as by_duration:PT1H"


DEFINITION: Final = ConfigDef(
    (
        int_("share.session.timeout.ms", 45_000, 1, "The session timeout of a member."),
        int_("share.heartbeat.interval.ms", 5_000, 1, "The heartbeat interval of a member."),
        int_("share.record.lock.duration.ms", 30_000, 1, "The time for which a member has acquired records."),
        int_("share.delivery.count.limit", 5, 1, "The maximum number of deliveries of a record."),
        int_("share.partition.max.record.locks", 2_000, 1, "The maximum number of records of a partition in flight."),
        key(
            "share.auto.offset.reset",
            Type.STRING,
            LATEST,
            "Where a new group begins to read: earliest, latest, or by_duration: with a duration (ISO 8601).",
            Validator(_offset_reset, "[earliest, latest, by_duration:PnDTnHnMn.nS]"),
        ),
        key(
            "share.isolation.level",
            Type.STRING,
            "read_uncommitted",
            "Whether records of open and aborted transactions are delivered.",
            ValidString(_READ_COMMITTED, "read_uncommitted"),
        ),
        key("share.renew.acknowledge.enable", Type.BOOLEAN, True, "Whether members can renew acquisition locks."),
    )
)


def validate(overrides: Mapping[str, str]) -> None:
    """Check the settings of a group.

    Raises:
        InvalidConfigurationError: a name or a value is not valid.
    """
    for name, value in overrides.items():
        check_override(DEFINITION, "group", name, value)


class GroupConfig:
    """The effective settings of a share group: its own, then the broker's. Thread: loop."""

    def __init__(self, broker_config: BrokerConfig, overrides: Mapping[str, str]) -> None:
        defaults = {name: broker_config[synonym] for name, synonym in SERVER_SYNONYMS.items()}
        self.values: dict[str, Any] = DEFINITION.parse({**defaults, **overrides})
        values = self.values
        self.session_timeout_ms: int = values["share.session.timeout.ms"]
        self.heartbeat_interval_ms: int = values["share.heartbeat.interval.ms"]
        self.record_lock_duration_ms: int = values["share.record.lock.duration.ms"]
        self.delivery_count_limit: int = values["share.delivery.count.limit"]
        self.partition_max_record_locks: int = values["share.partition.max.record.locks"]
        self.auto_offset_reset: str = values["share.auto.offset.reset"]
        self.reset_duration_ms = 0
        if self.auto_offset_reset.startswith(_BY_DURATION):
            self.reset_duration_ms = parse_iso_duration_ms(self.auto_offset_reset.removeprefix(_BY_DURATION))
        self.read_committed = values["share.isolation.level"] == _READ_COMMITTED
        self.renew_acknowledge_enable: bool = values["share.renew.acknowledge.enable"]


class GroupConfigManager:
    """The settings of all groups, read from the coordination service when they are first needed. Thread: loop."""

    def __init__(self, defaults: BrokerConfig, coordination: CoordinationClient) -> None:
        self._defaults = defaults
        self._coordination = coordination
        self._store = KafkaCoordinationClient(coordination)
        self._configs: dict[str, GroupConfig] = {}

    def get(self, group_id: str) -> GroupConfig:
        """Return the effective settings of a group."""
        config = self._configs.get(group_id)
        if config is None:
            if not self._coordination.connected:
                return GroupConfig(self._defaults, {})
            config = self._configs[group_id] = GroupConfig(self._defaults, self.overrides(group_id))
        return config

    def overrides(self, group_id: str) -> dict[str, str]:
        """Return the settings that an administrator has changed."""
        return self._store.config(znodes.group_config_path(group_id))

    def set_overrides(self, group_id: str, overrides: dict[str, str]) -> None:
        """Change the settings of a group, on all brokers."""
        self._store.set_config(znodes.group_config_path(group_id), overrides)

    def forget(self, group_id: str | None = None) -> None:
        """Drop the cached settings of a group, or of all groups."""
        if group_id is None:
            self._configs.clear()
        else:
            self._configs.pop(group_id, None)
