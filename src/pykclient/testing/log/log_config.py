"""The settings of a topic (Java: LogConfig, TopicConfig, ServerTopicConfigSynonyms)."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, Final

from pykclient.config.config_def import ConfigDef, Type
from pykclient.config.validators import Validator, ValidString, between
from pykclient.errors import ConfigError, InvalidConfigurationError
from pykclient.record.record_batch import CURRENT_MAGIC_VALUE, MAGIC_VALUE_V0, MAGIC_VALUE_V1, MAGIC_VALUE_V2
from pykclient.testing.config import int_, key, long
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME

_LONG_MAX = (1 << 63) - 1
_DAY_MS = 86_400_000
_MIN_SEGMENT_BYTES = 1 << 20

COMPACT: Final = "compact"
DELETE: Final = "delete"

_THROTTLED_REPLICAS = re.compile(r"\d+:\d+|\*")


def _cleanup_policy(value: Any) -> str | None:
    unknown = [] if value is None else [policy for policy in value if policy not in (COMPACT, DELETE)]
    return None if value is not None and not unknown else "must be compact, delete, or both"


def _gzip_level(value: Any) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "must be between 1 and 9, or -1"


def _throttled_replicas(value: Any) -> str | None:
    if value == ["*"] or all(_THROTTLED_REPLICAS.fullmatch(entry) and entry != "*" for entry in value):
        return None
    return "must be * or a list of [partitionId]:[brokerId]"


_REPLICAS = Validator(_throttled_replicas, "[partitionId]:[brokerId],[partitionId]:[brokerId],...")


_KEYS = (
    int_("segment.bytes", 1 << 30, _MIN_SEGMENT_BYTES, "The maximum size of a segment."),
    key("internal.segment.bytes", Type.INT, None, "The same without a minimum, for tests."),
    long("segment.ms", 7 * _DAY_MS, 1, "The maximum age of the active segment."),
    long("segment.jitter.ms", 0, 0, "The maximum random time to subtract from segment.ms."),
    int_("segment.index.bytes", 10 << 20, 4, "The size of the indexes, which have no limit here."),
    long("flush.messages", _LONG_MAX, 1, "The records between two flushes; a log in memory needs none."),
    long("flush.ms", _LONG_MAX, 0, "The time between two flushes; a log in memory needs none."),
    key("retention.bytes", Type.LONG, -1, "The bytes of a partition to keep; -1: all."),
    long("retention.ms", 7 * _DAY_MS, -1, "The time to keep records; -1: forever."),
    int_("max.message.bytes", 1_048_588, 0, "The maximum size of a batch."),
    int_("index.interval.bytes", 4096, 0, "The bytes between index entries; here every batch has an entry."),
    long("delete.retention.ms", _DAY_MS, 0, "The time that compaction keeps tombstones."),
    long("min.compaction.lag.ms", 0, 0, "The minimum age of a record to compact."),
    long("max.compaction.lag.ms", _LONG_MAX, 1, "The maximum age of a record not compacted."),
    long("file.delete.delay.ms", 60_000, 0, "The time to keep deleted files; memory is freed at once."),
    key(
        "min.cleanable.dirty.ratio", Type.DOUBLE, 0.5, "The share of new bytes that starts a compaction.", between(0, 1)
    ),
    key(
        "cleanup.policy",
        Type.LIST,
        [DELETE],
        "The handling of old records: delete, compact, both or neither.",
        Validator(_cleanup_policy, "[compact, delete]"),
    ),
    key("unclean.leader.election.enable", Type.BOOLEAN, False, "Whether a replica out of sync may become leader."),
    int_("min.insync.replicas", 1, 1, "The in-sync replicas that acks=all needs."),
    key(
        "compression.type",
        Type.STRING,
        "producer",
        "The codec of stored batches; producer: the producer's codec.",
        ValidString("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    key("compression.gzip.level", Type.INT, -1, "The level of gzip.", Validator(_gzip_level, "[1,...,9] or -1")),
    key("compression.lz4.level", Type.INT, 9, "The level of lz4.", between(1, 17)),
    key("compression.zstd.level", Type.INT, 3, "The level of zstd.", between(-131_072, 22)),
    key("preallocate", Type.BOOLEAN, False, "Whether to preallocate files; without effect in memory."),
    key(
        "message.timestamp.type",
        Type.STRING,
        "CreateTime",
        "Whether records keep the producer's timestamp or get the broker's.",
        ValidString("CreateTime", "LogAppendTime"),
    ),
    long("message.timestamp.before.max.ms", _LONG_MAX, 0, "The maximum age of a record's timestamp."),
    long("message.timestamp.after.max.ms", 3_600_000, 0, "How far a record's timestamp may be in the future."),
    key("leader.replication.throttled.replicas", Type.LIST, [], "Ignored.", _REPLICAS),
    key("follower.replication.throttled.replicas", Type.LIST, [], "Ignored.", _REPLICAS),
    key("remote.storage.enable", Type.BOOLEAN, False, "Ignored: there is no remote storage."),
    long("local.retention.ms", -2, -2, "Ignored: there is no remote storage."),
    long("local.retention.bytes", -2, -2, "Ignored: there is no remote storage."),
    key("remote.log.copy.disable", Type.BOOLEAN, False, "Ignored: there is no remote storage."),
    key("remote.log.delete.on.disable", Type.BOOLEAN, False, "Ignored: there is no remote storage."),
)

DEFINITION: Final = ConfigDef(_KEYS)

#: Known only to releases before 4.0. Its value is a release, whose record format the topic uses.
MESSAGE_FORMAT_VERSION: Final = "message.format.version"
_RELEASE = re.compile(r"(\d+)\.(\d+)(\.\d+)*(-IV\d+)?")

#: The broker keys that provide the default of a topic key; the first one that is set wins.
SERVER_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "segment.bytes": ("log.segment.bytes",),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "max.message.bytes": ("message.max.bytes",),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "cleanup.policy": ("log.cleanup.policy",),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    "min.insync.replicas": ("min.insync.replicas",),
    "compression.type": ("compression.type",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.zstd.level": ("compression.zstd.level",),
    "preallocate": ("log.preallocate",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "local.retention.ms": ("log.local.retention.ms",),
    "local.retention.bytes": ("log.local.retention.bytes",),
}


def message_format_magic(release: str) -> int:
    """Return the record format that a release writes.

    Raises:
        ConfigError: the release is unknown.
    """
    found = _RELEASE.fullmatch(release)
    if found is None:
        raise ConfigError(f"{MESSAGE_FORMAT_VERSION} is a release such as 0.10.0 or 2.1, not {release!r}")
    version = int(found[1]), int(found[2])
    if version < (0, 10):
        return MAGIC_VALUE_V0
    return MAGIC_VALUE_V1 if version < (0, 11) else MAGIC_VALUE_V2


def check_override(definition: ConfigDef, kind: str, name: str, value: str | None) -> None:
    """Check a setting of a ``kind`` of resource.

    Raises:
        InvalidConfigurationError: its name is unknown, or the value is of the wrong type or out of range.
    """
    key = definition.keys.get(name)
    if key is None:
        raise InvalidConfigurationError(f"Unknown {kind} config name: {name}")
    try:
        key.parse(value)
    except ConfigError as error:
        raise InvalidConfigurationError(f"Invalid value {value} for configuration {name}: {error}") from error


def validate(overrides: Mapping[str, str | None], *, has_message_formats: bool = False) -> None:
    """Check the keys and values of a request that configures a topic.

    ``has_message_formats`` says whether the broker imitates a release that knows ``message.format.version``.

    Raises:
        InvalidConfigurationError: a key is unknown, or a value is of the wrong type or out of range.
    """
    for name, value in overrides.items():
        if name == MESSAGE_FORMAT_VERSION and has_message_formats:
            try:
                message_format_magic(value or "")
            except ConfigError as error:
                raise InvalidConfigurationError(f"Invalid value {value} for configuration {name}: {error}") from error
            continue
        if value is None and name in DEFINITION.keys and DEFINITION.keys[name].default is not None:
            raise InvalidConfigurationError(f"Invalid value null for configuration {name}: it must have a value")
        check_override(DEFINITION, "topic", name, value)
    remote = overrides.get("remote.storage.enable")
    if remote is not None and remote.strip().lower() == "true":
        raise InvalidConfigurationError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def server_defaults(broker_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topic defaults that a broker's configuration sets."""
    defaults: dict[str, Any] = {}
    for name, synonyms in SERVER_SYNONYMS.items():
        for synonym in synonyms:
            if synonym in broker_config:
                defaults[name] = broker_config[synonym]
                break
    # Topics cannot be configured with such small segments, but brokers in tests can.
    if defaults.get("segment.bytes", _MIN_SEGMENT_BYTES) < _MIN_SEGMENT_BYTES:
        defaults["internal.segment.bytes"] = defaults.pop("segment.bytes")
    return defaults


#: The settings that ``log_config`` has returned, by what was given.
_known: dict[tuple[tuple[tuple[str, Any], ...], ...], LogConfig] = {}
_MOST_KNOWN = 256


def log_config(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> LogConfig:
    """Return the settings of a topic.

    Topics and brokers with equal ones share an object, because checking the settings costs as much as handling a few
    requests.

    Raises:
        ConfigError: a key or a value is wrong.
    """
    given = tuple(
        tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in settings.items())
        for settings in (defaults, overrides)
    )
    found = _known.get(given)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[given] = LogConfig(defaults, overrides)
    return found


class LogConfig:
    """A topic's effective settings: its own, then the broker's, then Kafka's defaults.

    Thread: any (immutable).
    """

    def __init__(self, defaults: Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None) -> None:
        """Combine the settings.

        Raises:
            ConfigError: a key or a value is wrong.
        """
        given = {**(defaults or {}), **(overrides or {})}
        if overrides and "segment.bytes" in overrides:
            given["internal.segment.bytes"] = overrides.get("internal.segment.bytes")
        message_format = given.pop(MESSAGE_FORMAT_VERSION, None)
        self.message_format_magic = (
            CURRENT_MAGIC_VALUE if message_format is None else message_format_magic(message_format)
        )
        self.values: dict[str, Any] = DEFINITION.parse(given)
        values = self.values
        internal = values["internal.segment.bytes"]
        self.segment_size: int = values["segment.bytes"] if internal is None else internal
        self.segment_ms: int = values["segment.ms"]
        self.segment_jitter_ms: int = min(values["segment.jitter.ms"], self.segment_ms)
        self.retention_size: int = values["retention.bytes"]
        self.retention_ms: int = values["retention.ms"]
        self.max_message_size: int = values["max.message.bytes"]
        self.delete_retention_ms: int = values["delete.retention.ms"]
        self.compaction_lag_ms: int = values["min.compaction.lag.ms"]
        self.max_compaction_lag_ms: int = values["max.compaction.lag.ms"]
        self.min_cleanable_ratio: float = values["min.cleanable.dirty.ratio"]
        self.compact = COMPACT in values["cleanup.policy"]
        self.delete = DELETE in values["cleanup.policy"]
        self.min_in_sync_replicas: int = values["min.insync.replicas"]
        #: A codec's name, or "uncompressed", or "producer".
        self.compression_type: str = values["compression.type"]
        self.compression_level: int | None = values.get(f"compression.{self.compression_type}.level")
        self.message_timestamp_type = (
            LOG_APPEND_TIME if values["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
        )
        self.message_timestamp_before_max_ms: int = values["message.timestamp.before.max.ms"]
        self.message_timestamp_after_max_ms: int = values["message.timestamp.after.max.ms"]

    def random_segment_jitter(self, rng: random.Random) -> int:
        """Return the milliseconds by which a segment is rolled early."""
        return rng.randrange(self.segment_jitter_ms) if self.segment_jitter_ms else 0
