"""The settings of embedded brokers, with defaults that suit tests, and checks of the arguments of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from pykclient.argument_values import elements, number as number, shown
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.config_def import ConfigDef, ConfigKey, Importance, Type
from pykclient.config.validators import Validator, ValidString, at_least
from pykclient.errors import ConfigError, IllegalArgumentError
from pykclient.testing.acls import Acl, check_principal, checked_acls
from pykclient.testing.release_profiles import TRANSACTION_VERSION, FinalizedFeatures, ReleaseProfile
from pykclient.testing.security import GivenSecurity, UserCredentials, listeners_of
from pykclient.types import TopicPartition

#: More brokers, or partitions of one topic, would exhaust the memory before they are of any use.
MAX_BROKERS: Final = 1_000

MAX_PARTITIONS: Final = 1_000_000


def setting(value: object, name: str, least: int, most: int) -> int:
    """Return a number that configures a cluster.

    Raises:
        ConfigError: it is not an integer, or not between ``least`` and ``most``.
    """
    try:
        return number(value, name, least, most)
    except IllegalArgumentError as error:
        raise ConfigError(str(error), key=name) from None


def text_setting(value: object, name: str) -> str:
    """Return a text that configures a cluster.

    Raises:
        ConfigError: it is not a ``str``.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {shown(value)}; it must be a str", key=name)
    return value


def mapping_setting(value: object, name: str) -> Mapping[Any, Any]:
    """Return a mapping that configures a cluster; None is an empty one.

    Raises:
        ConfigError: it is neither.
    """
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {shown(value)}; it must be a dict", key=name)
    return value or {}


def broker_ids(brokers: Any) -> list[int]:
    """Return the ids of brokers, given by their number or one by one.

    Raises:
        ConfigError: there is none, there are too many, or one is not valid.
    """
    given = elements(brokers)
    if given is None:
        return list(range(1, setting(brokers, "brokers", 1, MAX_BROKERS) + 1))
    ids = [setting(id, "the id of a broker", 0, (1 << 31) - 1) for id in given]
    if not 0 < len(ids) <= MAX_BROKERS or len(set(ids)) < len(ids):
        raise ConfigError(f"brokers must be from 1 to {MAX_BROKERS} different ids, not these {len(ids)}", key="brokers")
    return ids


def topic(name: Any) -> str:
    """Return the name of a topic.

    Raises:
        IllegalArgumentError: it is not a ``str``, or has no UTF-8 form.
    """
    if not isinstance(name, str) or not _is_unicode(name):
        raise IllegalArgumentError(f"a topic is a str, its name, not {shown(name)}")
    return name


def _is_unicode(text: str) -> bool:
    """Return False if the text has halves of surrogate pairs, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def partition(value: Any) -> TopicPartition:
    """Return a partition, given as any pair of a topic and a number.

    Raises:
        IllegalArgumentError: it is no such pair.
    """
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], str):
        raise IllegalArgumentError(f"topic_partition is {shown(value)}; it must be a TopicPartition")
    return TopicPartition(value[0], number(value[1], "the number of a partition", 0, (1 << 31) - 1))


def topic_configs(values: Any) -> Mapping[str, object]:
    """Return the configuration of a topic; None is an empty one.

    Raises:
        IllegalArgumentError: it is not a mapping of names.
    """
    is_mapping = values is None or isinstance(values, Mapping)
    if not is_mapping or not all(isinstance(name, str) and _is_unicode(name) for name in values or ()):
        raise IllegalArgumentError(f"configs is {shown(values)}; it must be a dict such as {{'retention.ms': 1000}}")
    return values or {}


def assignment(values: Any) -> dict[int, list[int]]:
    """Return the brokers of each partition; None is an empty dict.

    Raises:
        IllegalArgumentError: it is not a mapping of numbers to lists of brokers.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise IllegalArgumentError(f"assignment is {shown(values)}; it must be a dict such as {{0: [1, 2]}}")
    checked: dict[int, list[int]] = {}
    for index, ids in values.items():
        found = elements(ids)
        if found is None:
            raise IllegalArgumentError(f"assignment has {shown(ids)} for a partition; it must be a list of brokers")
        checked[number(index, "a partition of assignment", 0, MAX_PARTITIONS)] = [
            number(id, "a broker of assignment", 0, (1 << 31) - 1) for id in found
        ]
    return checked


#: The only authorizer. Clusters with ACLs have it without a setting.
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_INT_MAX = (1 << 31) - 1

_LONG_MAX = (1 << 63) - 1


def key(
    name: str, type: str, default: Any, doc: str, validator: Validator | None = None, *, extension: bool = False
) -> ConfigKey:
    """Return a setting of brokers, topics or groups."""
    return ConfigKey(name, type, default, Importance.MEDIUM, doc, validator, extension=extension)


def _boolean(name: str, default: bool, doc: str) -> ConfigKey:
    return key(name, Type.BOOLEAN, default, doc)


def _short(name: str, default: int, least: int, doc: str) -> ConfigKey:
    return key(name, Type.SHORT, default, doc, at_least(least))


def int_(name: str, default: int, least: int, doc: str) -> ConfigKey:
    """Return a setting of 32 bits that is at least ``least``."""
    return key(name, Type.INT, default, doc, at_least(least))


def long(name: str, default: int, least: int, doc: str, *, extension: bool = False) -> ConfigKey:
    """Return a setting of 64 bits that is at least ``least``."""
    return key(name, Type.LONG, default, doc, at_least(least), extension=extension)


_KEYS = (
    # --- topics ------------------------------------------------------------------------------------------------------
    _boolean("auto.create.topics.enable", True, "Whether a request for a missing topic creates it."),
    _boolean("delete.topic.enable", True, "Whether topics can be deleted."),
    int_("num.partitions", 1, 1, "The partitions of topics that are created without a number."),
    int_("default.replication.factor", -1, -1, "The default number of replicas; -1: three, or all brokers if fewer."),
    int_("min.insync.replicas", 1, 1, "The in-sync replicas that acks=all needs."),
    _boolean("unclean.leader.election.enable", False, "Whether a replica that is not in sync may become leader."),
    _boolean("auto.leader.rebalance.enable", False, "Whether leadership moves back to preferred replicas."),
    long("leader.imbalance.check.interval.seconds", 300, 1, "The interval of checks for leaders to move back."),
    # --- logs --------------------------------------------------------------------------------------------------------
    int_("message.max.bytes", 1_048_588, 0, "The maximum size of a batch."),
    key(
        "log.message.timestamp.type",
        Type.STRING,
        "CreateTime",
        "Whether records keep the producer's timestamp or get the broker's.",
        ValidString("CreateTime", "LogAppendTime"),
    ),
    long("log.message.timestamp.before.max.ms", _LONG_MAX, 0, "The maximum age of a record's timestamp."),
    long("log.message.timestamp.after.max.ms", 3_600_000, 0, "How far a record's timestamp may be in the future."),
    key("compression.type", Type.STRING, "producer", "The codec of stored batches; producer: the producer's codec."),
    key("log.cleanup.policy", Type.LIST, ["delete"], "delete, compact, or both."),
    int_("log.segment.bytes", 1 << 30, 14, "The maximum size of a segment."),
    long("log.roll.ms", 604_800_000, 1, "The maximum age of the active segment."),
    long("log.retention.ms", 604_800_000, -1, "The time to keep records; -1: forever."),
    long("log.retention.bytes", -1, -1, "The bytes of a partition to keep; -1: all."),
    long("log.retention.check.interval.ms", 300_000, 1, "The interval of checks for old segments."),
    long("log.cleaner.delete.retention.ms", 86_400_000, 0, "The time to keep tombstones."),
    long("log.cleaner.backoff.ms", 15_000, 0, "The interval of checks for logs to compact."),
    long("log.cleaner.min.compaction.lag.ms", 0, 0, "The minimum age of records to compact."),
    int_("log.index.interval.bytes", 4096, 0, "The bytes between two entries of an index."),
    int_("producer.id.expiration.ms", 86_400_000, 1, "The time to remember an idle producer."),
    # --- connections -------------------------------------------------------------------------------------------------
    int_("socket.request.max.bytes", 104_857_600, 1, "The maximum size of a request."),
    key("connections.max.idle.ms", Type.LONG, 600_000, "The idle time that ends a connection; negative: never."),
    long("connections.max.reauth.ms", 0, 0, "The longest session of a client with SASL; 0: no limit."),
    int_("connection.failed.authentication.delay.ms", 100, 0, "The delay of closing after a failed authentication."),
    key(
        "delegation.token.secret.key",
        Type.PASSWORD,
        None,
        "The secret that makes and checks delegation tokens; without it, the cluster has none.",
    ),
    long("delegation.token.max.lifetime.ms", 604_800_000, 1, "The longest life of a token, with all renewals."),
    long("delegation.token.expiry.time.ms", 86_400_000, 1, "The time after which a delegation token must be renewed."),
    key(
        "authorizer.class.name",
        Type.STRING,
        "",
        "The class that decides about access; empty: everything is allowed.",
        ValidString("", STANDARD_AUTHORIZER),
    ),
    key(
        "ssl.principal.mapping.rules",
        Type.STRING,
        "DEFAULT",
        "The rules that map the distinguished names of clients' certificates to names of users.",
    ),
    key("super.users", Type.STRING, "", "The principals that may do anything, separated by semicolons."),
    _boolean("allow.everyone.if.no.acl.found", False, "Whether everyone may use resources without ACLs."),
    int_("max.connections", _INT_MAX, 1, "The maximum number of connections; the one idle longest is closed."),
    int_("max.connections.per.ip", _INT_MAX, 0, "The maximum number of connections from one address."),
    int_("request.timeout.ms", 30_000, 1, "The time that a broker waits for another broker's response."),
    long("quota.producer.default", _LONG_MAX, 1, "The bytes per second that one client id may write.", extension=True),
    long("quota.consumer.default", _LONG_MAX, 1, "The bytes per second that one client id may read.", extension=True),
    int_("quota.window.num", 11, 1, "The number of windows over which a rate is averaged."),
    int_("quota.window.size.seconds", 1, 1, "The length of a window."),
    # --- replication -------------------------------------------------------------------------------------------------
    long("replica.lag.time.max.ms", 30_000, 1, "The lag after which a replica leaves the ISR."),
    int_("replica.fetch.wait.max.ms", 500, 0, "The maximum time that a follower's fetch waits for records."),
    int_("replica.fetch.min.bytes", 1, 0, "The bytes that a follower's fetch waits for."),
    int_("replica.fetch.max.bytes", 1_048_576, 0, "The maximum bytes of one partition in a follower's fetch."),
    int_("replica.fetch.response.max.bytes", 10_485_760, 0, "The maximum bytes of a follower's fetch."),
    int_("replica.fetch.backoff.ms", 100, 0, "The backoff of a follower after an error."),
    key("replica.selector.class", Type.STRING, None, "RackAwareReplicaSelector lets consumers read nearby (KIP-392)."),
    long("replica.high.watermark.checkpoint.interval.ms", 5_000, 1, "The interval of saving high watermarks."),
    int_("fetch.max.bytes", 57_671_680, 1024, "The maximum bytes of a response to a fetch."),
    int_("max.incremental.fetch.session.cache.slots", 1_000, 0, "The maximum number of fetch sessions of a broker."),
    # --- control plane -----------------------------------------------------------------------------------------------
    int_("zookeeper.session.timeout.ms", 500, 1, "The time until a silent broker is considered dead (Kafka: 18 s)."),
    _boolean("controlled.shutdown.enable", True, "Whether a broker moves its leaders before it stops."),
    int_("controlled.shutdown.max.retries", 3, 0, "The number of retries of that."),
    long("controlled.shutdown.retry.backoff.ms", 100, 0, "The backoff between these retries."),
    int_("controller.socket.timeout.ms", 30_000, 1, "The timeout of a request to the controller."),
    key("broker.rack", Type.STRING, None, "The broker's rack."),
    # --- groups ------------------------------------------------------------------------------------------------------
    int_("offsets.topic.num.partitions", 4, 1, "The partitions of __consumer_offsets (Kafka: 50)."),
    _short("offsets.topic.replication.factor", 3, 1, "The replicas of __consumer_offsets; fewer with fewer brokers."),
    int_("offsets.topic.segment.bytes", 104_857_600, 1, "The maximum size of a segment of __consumer_offsets."),
    int_("offsets.retention.minutes", 10_080, 1, "The time to keep the offsets of an empty group."),
    long("offsets.retention.check.interval.ms", 600_000, 1, "The interval of checks for old offsets."),
    int_("offsets.commit.timeout.ms", 5_000, 1, "The time that a commit waits for the replicas."),
    key("offset.metadata.max.bytes", Type.INT, 4_096, "The maximum length of the metadata of an offset."),
    int_("group.min.session.timeout.ms", 100, 1, "The minimum session timeout of a member (Kafka: 6 s)."),
    int_("group.max.session.timeout.ms", 1_800_000, 1, "The maximum session timeout of a member."),
    int_("group.initial.rebalance.delay.ms", 0, 0, "The time that a new group waits for more members (Kafka: 3 s)."),
    int_("group.consumer.session.timeout.ms", 45_000, 1, "The session timeout in the consumer protocol."),
    int_("group.consumer.heartbeat.interval.ms", 5_000, 1, "The heartbeat interval in the consumer protocol."),
    int_("group.consumer.max.size", _INT_MAX, 1, "The maximum number of members of a consumer group."),
    key(
        "group.consumer.migration.policy",
        Type.STRING,
        "bidirectional",
        "The conversions of groups that have members: upgrade to the consumer protocol, downgrade to the classic one.",
        ValidString("disabled", "downgrade", "upgrade", "bidirectional"),
    ),
    int_("group.share.session.timeout.ms", 45_000, 1, "The session timeout in share groups."),
    int_("group.share.heartbeat.interval.ms", 500, 1, "The heartbeat interval in share groups (Kafka: 5 s)."),
    int_("group.share.max.size", 200, 1, "The maximum number of members of a share group."),
    int_("group.share.record.lock.duration.ms", 30_000, 1, "The time for which a member has acquired records."),
    int_("group.share.delivery.count.limit", 5, 1, "The maximum number of deliveries of a record to a share group."),
    int_("group.share.partition.max.record.locks", 2_000, 1, "The most records of a partition in flight."),
    int_("group.share.max.share.sessions", 2_000, 1, "The maximum number of share sessions of a broker."),
    int_("share.coordinator.state.topic.num.partitions", 4, 1, "The partitions of __share_group_state (Kafka: 50)."),
    _short(
        "share.coordinator.state.topic.replication.factor",
        3,
        1,
        "The replicas of __share_group_state; fewer with fewer brokers.",
    ),
    _short(
        "share.coordinator.state.topic.min.isr",
        2,
        1,
        "The in-sync replicas that a write to __share_group_state needs; fewer with fewer replicas.",
    ),
    int_("share.coordinator.state.topic.segment.bytes", 104_857_600, 1, "The most bytes of its segments."),
    int_("share.coordinator.write.timeout.ms", 5_000, 1, "The time that its write waits for the replicas."),
    int_(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        0,
        "The changes of a share partition between two snapshots of its state.",
    ),
    int_(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        1,
        "The interval in which records of __share_group_state are deleted that later snapshots have replaced.",
    ),
    int_(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        1,
        "The time after which unchanged share partitions get a snapshot. Old records cannot be deleted before it.",
    ),
    int_("group.max.size", _INT_MAX, 1, "The maximum number of members of a group."),
    int_("transactional.id.expiration.ms", 604_800_000, 1, "The idle time after which a transactional id expires."),
    int_("transaction.max.timeout.ms", 900_000, 1, "The maximum timeout of a transaction."),
    _boolean(
        "transaction.two.phase.commit.enable",
        False,
        "Whether producers may take part in two-phase commits. They also need unstable.api.versions.enable (KIP-939).",
    ),
    _boolean(
        "unstable.api.versions.enable",
        False,
        "Whether clients may use API versions that Kafka has not declared stable: here version 6 of InitProducerId.",
    ),
    int_("transaction.state.log.num.partitions", 4, 1, "The partitions of __transaction_state (Kafka: 50)."),
    _short(
        "transaction.state.log.replication.factor",
        3,
        1,
        "The replicas of __transaction_state; fewer with fewer brokers.",
    ),
    int_(
        "transaction.state.log.min.isr",
        2,
        1,
        "The in-sync replicas that a write to __transaction_state needs; fewer with fewer replicas.",
    ),
    int_("transaction.state.log.segment.bytes", 104_857_600, 1, "The maximum segment size of __transaction_state."),
    int_(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        1_000,
        1,
        "The interval of checks for transactions that have timed out (Kafka: 10 s).",
    ),
    int_(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        1,
        "The interval of checks for transactional ids that have expired.",
    ),
    _boolean("transaction.partition.verification.enable", True, "Whether leaders verify transactions (KIP-890)."),
    int_(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        1,
        "The backoff of leaders that add a partition to a transaction while the one before is being completed.",
    ),
    int_(
        "add.partitions.to.txn.retry.backoff.max.ms", 100, 0, "The time until the client gets the error, and retries."
    ),
)


class BrokerConfig(AbstractConfig):
    """The settings of one broker, by Kafka's keys with dots or underscores.

    It has only the settings that an embedded broker supports; an unknown key raises ConfigError. Thread: any.
    """

    DEFINITION: ClassVar[ConfigDef] = ConfigDef(_KEYS)


_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - advertised instead of it


class ClusterConfig:
    """The settings of a cluster.

    ``brokers`` is a number (ids start from 1) or a list of ids. ``port`` is the first broker's port, and the others use
    the following ones; 0 means any free ports. ``racks`` maps broker ids to racks. With ``release``, such as "2.1", the
    brokers imitate an older Kafka. ``transaction_version`` is the level of the feature transaction.version, by default
    the release's. ``proxies`` maps broker ids to the addresses of the application's own proxies: the broker gets a
    second port for its proxy, and advertises the proxies' addresses to clients on that port. ``security`` is the
    protocol or the ``Security`` of the brokers' listener, or of several listeners by name. ``acls``, even if there are
    none, turn the authorizer on, as ``authorizer.class.name`` does. ``memory_limit_bytes`` bounds the total size of all
    logs. ``config`` has broker settings, see ``BrokerConfig``. Brokers listen on ``host`` and advertise
    ``advertised_host``, by default the same. With ``host`` "0.0.0.0" or "::" they listen on all addresses and advertise
    the loopback address. "{id}" in ``advertised_host`` stands for the broker's id.
    """

    def __init__(
        self,
        brokers: int | list[int] = 1,
        *,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        port: int = 0,
        racks: dict[int, str] | None = None,
        proxies: dict[int, tuple[str, int]] | None = None,
        release: str | None = None,
        transaction_version: int | None = None,
        memory_limit_bytes: int = 512 * 1024 * 1024,
        history_size: int = 10_000,
        cluster_id: str = "pykclient-embedded-0001",
        security: GivenSecurity = None,
        acls: Iterable[Acl] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        """Check the settings.

        Raises:
            ConfigError: a setting is wrong.
        """
        ids = broker_ids(brokers)
        port = setting(port, "port", 0, 65535)
        if port > 65535 - len(ids):
            raise ConfigError(f"port {port} leaves no room for the ports of {len(ids)} brokers")
        self.broker_ids = ids
        self.host = text_setting(host, "host")
        self.port = port
        self.racks = dict(mapping_setting(racks, "racks"))
        self.proxies = dict(mapping_setting(proxies, "proxies"))
        self.release = release
        if release is not None:
            ReleaseProfile.of(text_setting(release, "release"))  # raises if the release is unknown
        self.transaction_version = transaction_version
        if transaction_version is not None:
            FinalizedFeatures({TRANSACTION_VERSION: transaction_version})  # raises if there is no such level
            if transaction_version and release is not None and not ReleaseProfile.of(release).has_features:
                raise ConfigError(f"release {release} has no features, so transaction_version can only be 0")
        self.memory_limit_bytes = setting(memory_limit_bytes, "memory_limit_bytes", 1, _LONG_MAX)
        self.history_size = setting(history_size, "history_size", 0, _LONG_MAX)
        if advertised_host is not None:
            text_setting(advertised_host, "advertised_host")
        # A client cannot connect to "all addresses".
        self.advertised_host = advertised_host or _LOOPBACK.get(host, host)
        self.cluster_id = cluster_id
        #: The listeners' security by name; the first is the default for clients.
        self.listeners = listeners_of(security)
        self.credentials = UserCredentials(self.listeners)
        self.broker_config = BrokerConfig(config or {})
        if acls is None and self.broker_config["authorizer.class.name"]:
            acls = ()
        #: The ACLs at the start; None without an authorizer.
        self.acls: tuple[Acl, ...] | None = None if acls is None else checked_acls(acls)
        #: The principals that may do anything.
        self.super_users = _super_users(self.broker_config["super.users"])
        if self.acls is None and (self.super_users or self.broker_config.is_set("allow.everyone.if.no.acl.found")):
            raise ConfigError(
                "super.users and allow.everyone.if.no.acl.found have no effect without an authorizer; give the cluster "
                "acls, or an empty list of them"
            )


def _super_users(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";") if name.strip())
    for name in names:
        check_principal(name)
    return names
