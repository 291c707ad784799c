"""The consumer's keys (Java: ConsumerConfig).

The share consumer's keys: those of a consumer, without what brokers decide for share groups.

Java: ShareConsumerConfig.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, ClassVar

from pykclient.config import client_keys as shared
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.client_keys import HIGH, LONG_MAX, LOW, MEDIUM, lower, none_means, serialization_class
from pykclient.config.config_def import ConfigDef, ConfigKey, ForeignKey, Type
from pykclient.config.security_keys import SECURITY_KEYS
from pykclient.config.validators import (
    CaseInsensitiveValidString,
    NonEmptyString,
    Validator,
    ValidList,
    ValidString,
    at_least,
    between,
    parse_iso_duration_ms,
)
from pykclient.errors import ConfigError

#: Java's assignors and their names in the group protocol, which are their names here.
ASSIGNOR_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")


def _assignors(value: Any) -> Any:
    """Replace Java's class names by names; keep classes and instances."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)):
        return value
    names = [item.strip() if isinstance(item, str) else item for item in value]
    return [ASSIGNOR_NAMES.get(item, item) if isinstance(item, str) else item for item in names]


#: Names of Kafka 0.8, which kafka-python has as well, and of librdkafka.
_OFFSET_RESET_ALIASES = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}


def _offset_reset_name(value: Any) -> Any:
    """Return a reset policy's name in lower case; kafka-python's names of Kafka 0.8 are accepted too."""
    if not isinstance(value, str) or value.strip().lower().startswith("by_duration:"):
        return value
    name = value.strip().lower()
    return _OFFSET_RESET_ALIASES.get(name, name)


def _isolation_level(value: Any) -> Any:
    """Return an isolation level's name, given in any case or as the protocol's number, as in kafka-python."""
    if isinstance(value, int) and not isinstance(value, bool) and value in {0, 1}:
        return ("read_uncommitted", "read_committed")[value]
    return lower(value)


def _iteration_timeout(value: Any) -> Any:
    """Convert None and negative numbers, which mean no timeout in kafka-python."""
    if value is None or (isinstance(value, (int, float)) and value < 0):
        return LONG_MAX
    return value


def _offset_reset(value: Any) -> str | None:
    if value in {"latest", "earliest", "none"}:
        return None
    if not isinstance(value, str) or not value.startswith("by_duration:"):
        return "must be latest, earliest, none or by_duration: with a duration, such as by_duration:PT12H"
    try:
        milliseconds = parse_iso_duration_ms(value.removeprefix("by_duration:"))
    except ValueError:
        return "must have a duration such as P7D, PT12H or P1DT2H30M after by_duration:"
    return "must not have a negative duration" if milliseconds < 0 else None


def _acquire_mode(value: Any) -> str | None:
    if isinstance(value, str) and value.lower() in {"batch_optimized", "record_limit"}:
        return None
    return "must be batch_optimized or record_limit"


# fmt: off
_KEYS = (
    shared.bootstrap_servers(),
    ConfigKey("allow.auto.create.topics", Type.BOOLEAN, True, MEDIUM,
        "If true, subscribing to a missing topic creates it, provided that the brokers allow it."),
    ConfigKey("auto.commit.interval.ms", Type.INT, 5_000, LOW, "The interval of automatic commits.", at_least(0)),
    ConfigKey("auto.offset.reset", Type.STRING, "latest", MEDIUM,
        "Where to start in a partition without a valid committed offset: latest, earliest, a duration ago "
        "(by_duration:P7D, KIP-1106), or none, which raises NoOffsetForPartitionError.",
        Validator(_offset_reset, "[latest, earliest, none, by_duration:PnDTnHnMn.nS]"), convert=_offset_reset_name),
    ConfigKey("check.crcs", Type.BOOLEAN, True, LOW,
        "If true, the checksum of every batch is verified. This costs little."),
    shared.client_id(LOW),
    ConfigKey("client.rack", Type.STRING, "", LOW,
        "The rack of this consumer. Brokers may direct it to a replica in the same broker.rack (KIP-392), and "
        "assignors prefer partitions with such replicas (KIP-881).", convert=none_means("")),
    shared.connections_max_idle_ms(540_000),
    shared.DEFAULT_API_TIMEOUT_MS,
    ConfigKey("enable.auto.commit", Type.BOOLEAN, True, MEDIUM,
        "If true, poll() and close() commit positions automatically. Without a group.id, the default is false."),
    shared.enable_metrics_push(True),
    ConfigKey("exclude.internal.topics", Type.BOOLEAN, True, MEDIUM,
        "If true, patterns do not match internal topics such as __consumer_offsets."),
    ConfigKey("fetch.max.bytes", Type.INT, 52_428_800, MEDIUM,
        "The approximate maximum size of a fetch response. The first batch is returned even if it is larger.",
        at_least(0)),
    ConfigKey("fetch.max.wait.ms", Type.INT, 500, LOW,
        "The maximum time that a broker waits for fetch.min.bytes before it responds to a fetch.", at_least(0)),
    ConfigKey("fetch.min.bytes", Type.INT, 1, HIGH,
        "The minimum amount of data for a fetch response. Higher values mean fewer requests and more latency.",
        at_least(0)),
    ConfigKey("group.id", Type.STRING, None, HIGH, "The name of the consumer group. Commits need it."),
    ConfigKey("group.instance.id", Type.STRING, None, MEDIUM,
        "A name that makes this consumer a static member, which keeps its partitions if it returns within "
        "session.timeout.ms (KIP-345). It must be unique in the group.", NonEmptyString()),
    ConfigKey("group.protocol", Type.STRING, "classic", HIGH,
        "The group protocol: with classic, a member assigns partitions; with consumer, the broker does (KIP-848).",
        CaseInsensitiveValidString("CONSUMER", "CLASSIC"), convert=lower),
    ConfigKey("group.remote.assignor", Type.STRING, None, MEDIUM,
        "The assignor of the brokers that the group uses with group.protocol=consumer, such as uniform or range. By "
        "default the brokers choose it (group.consumer.assignors)."),
    ConfigKey("heartbeat.interval.ms", Type.INT, 3_000, HIGH,
        "The interval of heartbeats to the group coordinator. It must be lower than session.timeout.ms, typically a "
        "third of it."),
    ConfigKey("interceptor.classes", Type.LIST, (), LOW,
        "Interceptors, as objects, classes or dotted names of classes. They see records before poll() returns them, "
        "may change them, and see commits.", ValidList()),
    ConfigKey("internal.throw.on.fetch.stable.offset.unsupported", Type.BOOLEAN, False, LOW,
        "If true, brokers that do not support stable offsets cause an error. For internal use by Kafka.",
        unsupported="it is internal to Kafka Streams"),
    ConfigKey("isolation.level", Type.STRING, "read_uncommitted", MEDIUM,
        "read_committed skips records of aborted transactions, and stops before open ones until they end. "
        "read_uncommitted returns all records.",
        ValidString("read_committed", "read_uncommitted"), convert=_isolation_level),
    ConfigKey("key.deserializer", Type.CLASS, None, HIGH,
        "The deserializer of keys: a pykclient.serialization.Deserializer, its class, a callable from bytes to key, or "
        "the dotted name of one. None passes bytes through.", convert=serialization_class),
    ConfigKey("value.deserializer", Type.CLASS, None, HIGH,
        "The deserializer of values, in the same form as key.deserializer.", convert=serialization_class),
    ConfigKey("max.partition.fetch.bytes", Type.INT, 1_048_576, HIGH,
        "The approximate maximum size of one partition's part of a fetch response. The first batch is returned even if "
        "it is larger.", at_least(0)),
    ConfigKey("max.poll.interval.ms", Type.INT, 300_000, MEDIUM,
        "The maximum time between two calls of poll(). After that the member is considered stuck, and leaves its "
        "group.", at_least(1)),
    ConfigKey("max.poll.records", Type.INT, 500, MEDIUM,
        "The maximum number of records that one poll() returns. Further fetched records stay buffered for the next "
        "poll().", at_least(1)),
    ConfigKey("partition.assignment.strategy", Type.LIST, _DEFAULT_ASSIGNORS, MEDIUM,
        "The assignors in order of preference: range, roundrobin, sticky, cooperative-sticky, Java's class names of "
        "these, or your own classes or instances. The members of a group need one in common. With cooperative-sticky "
        "alone, members keep reading during a rebalance, except from partitions that move (KIP-429). In a list with "
        "others, as in the default, members revoke all partitions first. To change a running group from the default to "
        "cooperative-sticky, restart its members one by one with cooperative-sticky alone.",
        ValidList(), convert=_assignors),
    ConfigKey("session.timeout.ms", Type.INT, 45_000, HIGH,
        "The coordinator removes a member from the group after this long without a heartbeat. Brokers limit its value "
        "(group.min.session.timeout.ms, group.max.session.timeout.ms)."),
    ConfigKey("share.acknowledgement.mode", Type.STRING, "implicit", MEDIUM,
        "The acknowledgement mode of a KafkaShareConsumer (KIP-932): with implicit, the next poll() or commit accepts "
        "the records of the last poll(); with explicit, the application calls acknowledge() for each record.",
        ValidString("implicit", "explicit")),
    ConfigKey("share.acquire.mode", Type.STRING, "BATCH_OPTIMIZED", MEDIUM,
        "How brokers choose records for a KafkaShareConsumer (KIP-1206): with batch_optimized, poll() returns whole "
        "batches, so there may be more than max.poll.records; with record_limit, that is a strict limit.",
        Validator(_acquire_mode, "[batch_optimized, record_limit]")),
    ConfigKey("consumer.timeout.ms", Type.LONG, LONG_MAX, LOW,
        "Iteration over the consumer ends when no record has arrived for this long. None or a negative number means "
        "never. This setting is from kafka-python, and does not affect poll().",
        between(0, LONG_MAX), convert=_iteration_timeout, extension=True),
    ConfigKey("max.decompressed.batch.bytes", Type.INT, 256 * 1024 * 1024, LOW,
        "The maximum decompressed size of a batch. A larger batch is rejected as corrupt. Brokers limit only the "
        "compressed size, so a megabyte from a hostile producer could otherwise fill all memory.",
        at_least(1), extension=True),
    *shared.NETWORK_KEYS,
    *SECURITY_KEYS,
)
# fmt: on
# fmt: off
_FOREIGN = (
    *shared.KAFKA_PYTHON_KEYS,
    ForeignKey("max.in.flight.requests.per.connection",
        "a consumer has at most one fetch in flight to each broker", harmless=(None, 5), ignored=True),
    ForeignKey("enable.incremental.fetch.sessions",
        "the client uses fetch sessions whenever the broker supports them (KIP-227)", harmless=(None, True)),
    ForeignKey("default.offset.commit.callback",
        "pass a callback to commit_async(); failed automatic commits are logged"),
    ForeignKey("metric.group.prefix", "metrics have Kafka's group names", harmless=(None, "consumer"), ignored=True),
)
# fmt: on
_SHARE_CONSUMERS = "it is a setting of KafkaShareConsumer"
_NOT_IN_CONSUMER_GROUPS = {"share.acknowledgement.mode": _SHARE_CONSUMERS, "share.acquire.mode": _SHARE_CONSUMERS}
#: The settings that a group protocol does not have, and what to do instead.
_NOT_WITH = {
    "classic": {**_NOT_IN_CONSUMER_GROUPS, "group.remote.assignor": "members assign by partition.assignment.strategy"},
    "consumer": {
        **_NOT_IN_CONSUMER_GROUPS,
        "heartbeat.interval.ms": "the brokers name it (group.consumer.heartbeat.interval.ms, or the group's own "
        "consumer.heartbeat.interval.ms)",
        "partition.assignment.strategy": "the brokers assign; choose their assignor by group.remote.assignor",
        "session.timeout.ms": "the brokers set it (group.consumer.session.timeout.ms, or the group's own "
        "consumer.session.timeout.ms)",
    },
}


class ConsumerConfig(AbstractConfig):
    """A consumer's configuration.

    ``client.id`` stays empty if it is not given. ``partition.assignment.strategy`` has names, classes and instances.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or values contradict each other.
    """

    __slots__ = ()

    DEFINITION: ClassVar[ConfigDef] = ConfigDef(_KEYS, _FOREIGN)

    def _post_process(self, values: dict[str, Any]) -> None:
        shared.apply_common_rules(self.originals, values)
        if values["group.id"] is None:
            if self.is_set("enable.auto.commit") and values["enable.auto.commit"]:
                raise ConfigError("enable.auto.commit=True needs a group.id to commit for", key="enable.auto.commit")
            values["enable.auto.commit"] = False
        elif values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            raise ConfigError(
                f"heartbeat.interval.ms = {values['heartbeat.interval.ms']}: it must be below session.timeout.ms = "
                f"{values['session.timeout.ms']}, best a third of it",
                key="heartbeat.interval.ms",
            )
        self._check_group_protocol(values)
        _settle_timeouts(values, self.is_set("default.api.timeout.ms"))
        instance_id = values["group.instance.id"]
        if instance_id is not None and not _is_instance_id(instance_id):
            raise ConfigError(
                f"group.instance.id = {instance_id!r}: it must have up to 249 letters, digits, '.', '_' and '-', "
                "and not be '.' or '..'",
                key="group.instance.id",
            )

    def _check_group_protocol(self, values: dict[str, Any]) -> None:
        """Reject settings that the group protocol does not have, as Java does."""
        protocol = values["group.protocol"]
        for name, instead in _NOT_WITH[protocol].items():
            if self.is_set(name) and values[name] is not None:
                raise ConfigError(f"{name} cannot be set with group.protocol={protocol}: {instead}", key=name)


def _settle_timeouts(values: dict[str, Any], api_timeout_is_set: bool) -> None:
    """Reject timeouts that contradict each other, as kafka-python does.

    A broker may hold a fetch for fetch.max.wait.ms, so with a shorter request.timeout.ms idle fetches would fail. An
    idle connection must not be closed while a request on it may still be answered.
    """
    ascending = ["fetch.max.wait.ms", "request.timeout.ms"]
    if values["connections.max.idle.ms"] >= 0:
        ascending.append("connections.max.idle.ms")
    for shorter, longer in pairwise(ascending):
        if values[shorter] >= values[longer]:
            raise ConfigError(
                f"{shorter} = {values[shorter]}: it must be below {longer} = {values[longer]}", key=shorter
            )
    if values["default.api.timeout.ms"] < values["request.timeout.ms"]:
        if api_timeout_is_set:
            raise ConfigError(
                f"default.api.timeout.ms = {values['default.api.timeout.ms']}: it must be at least "
                f"request.timeout.ms = {values['request.timeout.ms']}",
                key="default.api.timeout.ms",
            )
        values["default.api.timeout.ms"] = values["request.timeout.ms"]


def _is_instance_id(text: str) -> bool:
    return re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", text) is not None and text not in {".", ".."}


_GROUP_CONFIG = "it is a setting of the group on the brokers"
#: The keys that share consumers do not have, and what to do instead.
NOT_IN_SHARE_GROUPS = {
    "auto.offset.reset": f"{_GROUP_CONFIG} (share.auto.offset.reset)",
    "enable.auto.commit": "records are acknowledged one by one (share.acknowledgement.mode)",
    "group.instance.id": "share groups have no static members",
    "isolation.level": f"{_GROUP_CONFIG} (share.isolation.level)",
    "partition.assignment.strategy": "the brokers assign partitions",
    "interceptor.classes": "share consumers have no interceptors",
    "session.timeout.ms": f"{_GROUP_CONFIG} (share.session.timeout.ms)",
    "heartbeat.interval.ms": f"{_GROUP_CONFIG} (share.heartbeat.interval.ms)",
    "group.protocol": "share groups have a protocol of their own",
    "group.remote.assignor": "the brokers assign partitions",
}


class ShareConsumerConfig(ConsumerConfig):
    """A share consumer's configuration.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or a share consumer cannot have the key.
    """

    __slots__ = ()

    DEFINITION: ClassVar[ConfigDef] = ConsumerConfig.DEFINITION

    def _post_process(self, values: dict[str, Any]) -> None:
        for name, instead in NOT_IN_SHARE_GROUPS.items():
            if self.is_set(name):
                raise ConfigError(f"{name} cannot be set for a KafkaShareConsumer: {instead}", key=name)
        super()._post_process(values)

    def _check_group_protocol(self, values: dict[str, Any]) -> None:
        """Do nothing: the keys of the protocols were checked before."""
