"""The consumer's keys (Java: ConsumerConfig)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, ClassVar

from pykclient.config import client_keys as shared
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.client_keys import HIGH, LONG_MAX, LOW, MEDIUM, lower, none_means, serialization_class
from pykclient.config.config_def import ConfigDef, ConfigKey, ForeignKey, Type
from pykclient.config.iso_duration import parse_iso_duration_ms
from pykclient.config.security_keys import SECURITY_KEYS
from pykclient.config.validators import (
    CaseInsensitiveValidString,
    Lambda,
    NonEmptyString,
    ValidList,
    ValidString,
    at_least,
    between,
)
from pykclient.errors import ConfigError

_SHARE_GROUPS = "share groups are not implemented"
_KIP_848_LATER = "the group protocol of KIP-848 comes with a later version"

#: Java's assignors and what they are called in the group protocol, which is their name here.
ASSIGNOR_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_ASSIGNORS_LATER = ("sticky", "cooperative-sticky")
_DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")


def _assignors(value: Any) -> Any:
    """Names instead of Java's class names; classes and instances stay."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)):
        return value
    names = [item.strip() if isinstance(item, str) else item for item in value]
    return [ASSIGNOR_NAMES.get(item, item) if isinstance(item, str) else item for item in names]


def _offset_reset_name(value: Any) -> Any:
    """A name in any case; kafka-python also has those of Kafka 0.8."""
    if not isinstance(value, str) or value.strip().lower().startswith("by_duration:"):
        return value
    name = value.strip().lower()
    return {"smallest": "earliest", "largest": "latest"}.get(name, name)


def _isolation_level(value: Any) -> Any:
    """A name in any case, or the number that the protocol and kafka-python's IsolationLevel have for it."""
    if isinstance(value, int) and not isinstance(value, bool) and value in {0, 1}:
        return ("read_uncommitted", "read_committed")[value]
    return lower(value)


def _iteration_timeout(value: Any) -> Any:
    """None and negative numbers are no timeout, as in kafka-python."""
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


_KEYS = (
    shared.bootstrap_servers(),
    ConfigKey(
        "allow.auto.create.topics",
        Type.BOOLEAN,
        True,
        None,
        MEDIUM,
        "Whether subscribing to a topic that does not exist may create it, if the brokers allow that as well.",
    ),
    ConfigKey(
        "auto.commit.interval.ms",
        Type.INT,
        5_000,
        at_least(0),
        LOW,
        "How often positions are committed with enable.auto.commit.",
    ),
    ConfigKey(
        "auto.offset.reset",
        Type.STRING,
        "latest",
        Lambda(_offset_reset, "[latest, earliest, none, by_duration:PnDTnHnMn.nS]"),
        MEDIUM,
        "Where to start in a partition without a committed offset, or whose offset is gone: at the end, at the "
        "beginning, so long ago (by_duration:P7D, KIP-1106), or not at all: none raises NoOffsetForPartitionError.",
        convert=_offset_reset_name,
    ),
    ConfigKey(
        "check.crcs",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Whether the checksum of every batch is checked. It costs little.",
    ),
    shared.client_id(LOW),
    ConfigKey(
        "client.rack",
        Type.STRING,
        "",
        None,
        LOW,
        "Where this consumer runs. Brokers with a matching broker.rack may serve it from a close replica (KIP-392), "
        "and assignors prefer partitions that are near (KIP-881).",
        convert=none_means(""),
    ),
    shared.connections_max_idle_ms(540_000),
    shared.DEFAULT_API_TIMEOUT_MS,
    ConfigKey(
        "enable.auto.commit",
        Type.BOOLEAN,
        True,
        None,
        MEDIUM,
        "Whether positions are committed in the background, by poll() and close(). Off if there is no group.id.",
    ),
    shared.enable_metrics_push(True),
    ConfigKey(
        "exclude.internal.topics",
        Type.BOOLEAN,
        True,
        None,
        MEDIUM,
        "Whether a pattern leaves out Kafka's own topics, such as __consumer_offsets.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        Type.INT,
        52_428_800,
        at_least(0),
        MEDIUM,
        "About the most that one answer to a fetch holds; the first batch comes whole even if it is larger.",
    ),
    ConfigKey(
        "fetch.max.wait.ms",
        Type.INT,
        500,
        at_least(0),
        LOW,
        "How long a broker may hold a fetch back until there are fetch.min.bytes.",
    ),
    ConfigKey(
        "fetch.min.bytes",
        Type.INT,
        1,
        at_least(0),
        HIGH,
        "A broker answers a fetch as soon as it has this much. More of it means fewer requests and more delay.",
    ),
    ConfigKey(
        "group.id",
        Type.STRING,
        None,
        None,
        HIGH,
        "The consumer group. Needed for subscribe() and for commits.",
    ),
    ConfigKey(
        "group.instance.id",
        Type.STRING,
        None,
        NonEmptyString(),
        MEDIUM,
        "A name that makes this a static member: it keeps its partitions when it is back within session.timeout.ms "
        "(KIP-345). Unique within the group.",
    ),
    ConfigKey(
        "group.protocol",
        Type.STRING,
        "classic",
        CaseInsensitiveValidString("CONSUMER", "CLASSIC"),
        HIGH,
        "How the group shares out partitions: classic = a member decides, consumer = the broker does (KIP-848).",
        unsupported=_KIP_848_LATER,
        convert=lower,
    ),
    ConfigKey(
        "group.remote.assignor",
        Type.STRING,
        None,
        None,
        MEDIUM,
        "The broker's assignor to use with group.protocol=consumer.",
        unsupported=_KIP_848_LATER,
    ),
    ConfigKey(
        "heartbeat.interval.ms",
        Type.INT,
        3_000,
        None,
        HIGH,
        "How often the group's coordinator is told that this member lives. Below session.timeout.ms, best a third of "
        "it.",
    ),
    ConfigKey(
        "interceptor.classes",
        Type.LIST,
        (),
        ValidList(),
        LOW,
        "Objects, classes or dotted names of classes that see records before poll() returns them, may change them, and "
        "see commits.",
    ),
    ConfigKey(
        "internal.throw.on.fetch.stable.offset.unsupported",
        Type.BOOLEAN,
        False,
        None,
        LOW,
        "Whether old brokers that cannot tell stable offsets are an error. Kafka's own use.",
        unsupported="it is internal to Kafka Streams",
    ),
    ConfigKey(
        "isolation.level",
        Type.STRING,
        "read_uncommitted",
        ValidString("read_committed", "read_uncommitted"),
        MEDIUM,
        "read_committed leaves out records of transactions that were aborted and waits for open ones to end; "
        "read_uncommitted hands out everything.",
        convert=_isolation_level,
    ),
    ConfigKey(
        "key.deserializer",
        Type.CLASS,
        None,
        None,
        HIGH,
        "What turns bytes into keys: a pykclient.serialization.Deserializer, its class, a callable from bytes to key, "
        "or the dotted name of one. None passes bytes through.",
        convert=serialization_class,
    ),
    ConfigKey(
        "value.deserializer",
        Type.CLASS,
        None,
        None,
        HIGH,
        "What turns bytes into values, as key.deserializer does for keys.",
        convert=serialization_class,
    ),
    ConfigKey(
        "max.partition.fetch.bytes",
        Type.INT,
        1_048_576,
        at_least(0),
        HIGH,
        "About the most that one answer to a fetch holds of one partition; the first batch comes whole even if it is "
        "larger.",
    ),
    ConfigKey(
        "max.poll.interval.ms",
        Type.INT,
        300_000,
        at_least(1),
        MEDIUM,
        "The longest time between two calls of poll() before this member leaves its group, as it seems stuck.",
    ),
    ConfigKey(
        "max.poll.records",
        Type.INT,
        500,
        at_least(1),
        MEDIUM,
        "The most records that one poll() returns. What was fetched beyond that waits for the next.",
    ),
    ConfigKey(
        "partition.assignment.strategy",
        Type.LIST,
        _DEFAULT_ASSIGNORS,
        ValidList(),
        MEDIUM,
        "Assignors in order of preference: the names range and roundrobin, Java's class names of these, or classes and "
        "instances of your own. The members of a group must have one in common. The default is Java's, but "
        "cooperative-sticky comes with a later version, so range is used; sticky comes later, too.",
        convert=_assignors,
    ),
    shared.receive_buffer_bytes(65_536),
    ConfigKey(
        "session.timeout.ms",
        Type.INT,
        45_000,
        None,
        HIGH,
        "A member that the coordinator did not hear of for this long is out of the group. Brokers have limits for it "
        "(group.min.session.timeout.ms, group.max.session.timeout.ms).",
    ),
    ConfigKey(
        "share.acknowledgement.mode",
        Type.STRING,
        "implicit",
        ValidString("implicit", "explicit"),
        MEDIUM,
        "How records of a share group are acknowledged (KIP-932).",
        unsupported=_SHARE_GROUPS,
    ),
    ConfigKey(
        "share.acquire.mode",
        Type.STRING,
        "BATCH_OPTIMIZED",
        Lambda(_acquire_mode, "[batch_optimized, record_limit]"),
        MEDIUM,
        "How records of a share group are fetched (KIP-932).",
        unsupported=_SHARE_GROUPS,
    ),
    ConfigKey(
        "consumer.timeout.ms",
        Type.LONG,
        LONG_MAX,
        between(0, LONG_MAX),
        LOW,
        "Iterating over the consumer ends when no record came for this long. None or a negative number: never. From "
        "kafka-python; poll() is not concerned.",
        convert=_iteration_timeout,
        extension=True,
    ),
    ConfigKey(
        "max.decompressed.batch.bytes",
        Type.INT,
        256 * 1024 * 1024,
        at_least(1),
        LOW,
        "A compressed batch of records that would take more memory than this is refused as corrupt. The broker bounds "
        "only what a batch takes compressed, so that a megabyte from a hostile producer could fill all memory.",
        extension=True,
    ),
    *shared.NETWORK_KEYS,
    *SECURITY_KEYS,
)

_FOREIGN = (
    *shared.KAFKA_PYTHON_KEYS,
    ForeignKey(
        "max.in.flight.requests.per.connection",
        "a consumer has one fetch at a time on its way to each broker",
        harmless=(None, 5),
        ignored=True,
    ),
    ForeignKey(
        "enable.incremental.fetch.sessions",
        "fetch sessions are used whenever the broker has them (KIP-227)",
        harmless=(None, True),
    ),
    ForeignKey(
        "default.offset.commit.callback",
        "pass a callback to commit_async(); automatic commits that fail are in the log",
    ),
    ForeignKey(
        "metric.group.prefix", "metrics have Kafka's own group names", harmless=(None, "consumer"), ignored=True
    ),
)


class ConsumerConfig(AbstractConfig):
    """A consumer's configuration. ``client.id`` stays empty if it was not given.

    ``partition.assignment.strategy`` holds names, classes and instances; names that only stand in the default are left
    out. Raises ConfigError for unknown keys, wrong values, and values that contradict each other.
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
        _settle_timeouts(values, self.is_set("default.api.timeout.ms"))
        instance_id = values["group.instance.id"]
        if instance_id is not None and not _is_instance_id(instance_id):
            raise ConfigError(
                f"group.instance.id = {instance_id!r}: it must have up to 249 letters, digits, '.', '_' and '-', "
                "and not be '.' or '..'",
                key="group.instance.id",
            )
        values["partition.assignment.strategy"] = _usable(values["partition.assignment.strategy"])


def _settle_timeouts(values: dict[str, Any], api_timeout_is_set: bool) -> None:
    """Refuse timeouts that contradict each other, as kafka-python does.

    A broker may hold a fetch for fetch.max.wait.ms, so a shorter request.timeout.ms would end idle fetches as failures.
    An idle connection must not be closed while a request on it may still be answered.
    """
    ascending = ["fetch.max.wait.ms", "request.timeout.ms"]
    if values["connections.max.idle.ms"] >= 0:
        ascending.append("connections.max.idle.ms")
    for shorter, longer in pairwise(ascending):
        if values[shorter] >= values[longer]:
            raise ConfigError(
                f"{shorter} = {values[shorter]}: it must be below {longer} = {values[longer]}",
                key=shorter,
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


def _usable(assignors: list[Any]) -> list[Any]:
    """The assignors that exist. Those of the default that do not may stand in the list, others raise."""
    if assignors == list(_DEFAULT_ASSIGNORS):
        return ["range"]
    for assignor in assignors:
        if assignor in _ASSIGNORS_LATER:
            raise ConfigError(
                f"partition.assignment.strategy: {assignor!r} comes with a later version; use range or roundrobin",
                key="partition.assignment.strategy",
            )
    return assignors
