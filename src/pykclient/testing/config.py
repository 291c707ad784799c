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


def _key(
    name: str, type: str, default: Any, doc: str, validator: Validator | None = None, *, extension: bool = False
) -> ConfigKey:
    return ConfigKey(name, type, default, validator, Importance.MEDIUM, doc, extension=extension)


_KEYS = (
    # --- topics ------------------------------------------------------------------------------------------------------
    _key("auto.create.topics.enable", Type.BOOLEAN, True, "Whether a request for a missing topic creates it."),
    _key("delete.topic.enable", Type.BOOLEAN, True, "Whether topics can be deleted."),
    _key("num.partitions", Type.INT, 1, "The partitions of topics that are created without a number.", at_least(1)),
    _key(
        "default.replication.factor",
        Type.INT,
        -1,
        "The replicas of topics that are created without a number; -1: three, or all brokers if there are fewer.",
        at_least(-1),
    ),
    _key("min.insync.replicas", Type.INT, 1, "The in-sync replicas that acks=all needs.", at_least(1)),
    _key(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        "Whether a replica that is not in sync may become leader.",
    ),
    _key("auto.leader.rebalance.enable", Type.BOOLEAN, False, "Whether leadership moves back to preferred replicas."),
    _key(
        "leader.imbalance.check.interval.seconds",
        Type.LONG,
        300,
        "The interval of checks for leaders to move back.",
        at_least(1),
    ),
    # --- logs --------------------------------------------------------------------------------------------------------
    _key("message.max.bytes", Type.INT, 1_048_588, "The maximum size of a batch.", at_least(0)),
    _key(
        "log.message.timestamp.type",
        Type.STRING,
        "CreateTime",
        "Whether records keep the producer's timestamp or get the broker's.",
        ValidString("CreateTime", "LogAppendTime"),
    ),
    _key(
        "log.message.timestamp.before.max.ms",
        Type.LONG,
        _LONG_MAX,
        "The maximum age of a record's timestamp.",
        at_least(0),
    ),
    _key(
        "log.message.timestamp.after.max.ms",
        Type.LONG,
        3_600_000,
        "The maximum time by which a record's timestamp may be in the future.",
        at_least(0),
    ),
    _key("compression.type", Type.STRING, "producer", "The codec of stored batches; producer: the producer's codec."),
    _key("log.cleanup.policy", Type.LIST, ["delete"], "delete, compact, or both."),
    _key("log.segment.bytes", Type.INT, 1 << 30, "The maximum size of a segment.", at_least(14)),
    _key("log.roll.ms", Type.LONG, 604_800_000, "The maximum age of the active segment.", at_least(1)),
    _key("log.retention.ms", Type.LONG, 604_800_000, "The time to keep records; -1: forever.", at_least(-1)),
    _key("log.retention.bytes", Type.LONG, -1, "The bytes of a partition to keep; -1: all.", at_least(-1)),
    _key(
        "log.retention.check.interval.ms", Type.LONG, 300_000, "The interval of checks for old segments.", at_least(1)
    ),
    _key("log.cleaner.delete.retention.ms", Type.LONG, 86_400_000, "The time to keep tombstones.", at_least(0)),
    _key("log.cleaner.backoff.ms", Type.LONG, 15_000, "The interval of checks for logs to compact.", at_least(0)),
    _key("log.cleaner.min.compaction.lag.ms", Type.LONG, 0, "The minimum age of records to compact.", at_least(0)),
    _key("log.index.interval.bytes", Type.INT, 4096, "The bytes between two entries of an index.", at_least(0)),
    _key("producer.id.expiration.ms", Type.INT, 86_400_000, "The time to remember an idle producer.", at_least(1)),
    # --- connections -------------------------------------------------------------------------------------------------
    _key("socket.request.max.bytes", Type.INT, 104_857_600, "The maximum size of a request.", at_least(1)),
    _key(
        "connections.max.idle.ms",
        Type.LONG,
        600_000,
        "The idle time after which connections are closed; negative: never.",
    ),
    _key(
        "connections.max.reauth.ms",
        Type.LONG,
        0,
        "The longest session of a client with SASL, after which it must authenticate again; 0: no limit.",
        at_least(0),
    ),
    _key(
        "connection.failed.authentication.delay.ms",
        Type.INT,
        100,
        "The time for which a connection that failed to authenticate stays open.",
        at_least(0),
    ),
    _key(
        "delegation.token.secret.key",
        Type.PASSWORD,
        None,
        "The secret that makes and checks delegation tokens; without it, the cluster has none.",
    ),
    _key(
        "delegation.token.max.lifetime.ms",
        Type.LONG,
        604_800_000,
        "The longest life of a delegation token, with all renewals.",
        at_least(1),
    ),
    _key(
        "delegation.token.expiry.time.ms",
        Type.LONG,
        86_400_000,
        "The time after which a delegation token must be renewed.",
        at_least(1),
    ),
    _key(
        "authorizer.class.name",
        Type.STRING,
        "",
        "The class that decides about access; empty: everything is allowed.",
        ValidString("", STANDARD_AUTHORIZER),
    ),
    _key(
        "ssl.principal.mapping.rules",
        Type.STRING,
        "DEFAULT",
        "The rules that map the distinguished names of clients' certificates to names of users.",
    ),
    _key("super.users", Type.STRING, "", "The principals that may do anything, separated by semicolons."),
    _key(
        "allow.everyone.if.no.acl.found",
        Type.BOOLEAN,
        False,
        "Whether everyone may do anything with a resource that has no ACLs.",
    ),
    _key(
        "max.connections",
        Type.INT,
        _INT_MAX,
        "The maximum number of connections; the one idle longest is closed.",
        at_least(1),
    ),
    _key(
        "max.connections.per.ip", Type.INT, _INT_MAX, "The maximum number of connections from one address.", at_least(0)
    ),
    _key(
        "request.timeout.ms",
        Type.INT,
        30_000,
        "The time that a broker waits for another broker's response.",
        at_least(1),
    ),
    _key(
        "quota.producer.default",
        Type.LONG,
        _LONG_MAX,
        "The bytes per second that one client id may write.",
        at_least(1),
        extension=True,
    ),
    _key(
        "quota.consumer.default",
        Type.LONG,
        _LONG_MAX,
        "The bytes per second that one client id may read.",
        at_least(1),
        extension=True,
    ),
    _key("quota.window.num", Type.INT, 11, "The number of windows over which a rate is averaged.", at_least(1)),
    _key("quota.window.size.seconds", Type.INT, 1, "The length of a window.", at_least(1)),
    # --- replication -------------------------------------------------------------------------------------------------
    _key("replica.lag.time.max.ms", Type.LONG, 30_000, "The lag after which a replica leaves the ISR.", at_least(1)),
    _key(
        "replica.fetch.wait.max.ms",
        Type.INT,
        500,
        "The maximum time that a follower's fetch waits for records.",
        at_least(0),
    ),
    _key("replica.fetch.min.bytes", Type.INT, 1, "The bytes that a follower's fetch waits for.", at_least(0)),
    _key(
        "replica.fetch.max.bytes",
        Type.INT,
        1_048_576,
        "The maximum bytes of one partition in a follower's fetch.",
        at_least(0),
    ),
    _key(
        "replica.fetch.response.max.bytes",
        Type.INT,
        10_485_760,
        "The maximum bytes of a follower's fetch.",
        at_least(0),
    ),
    _key("replica.fetch.backoff.ms", Type.INT, 100, "The backoff of a follower after an error.", at_least(0)),
    _key("replica.selector.class", Type.STRING, None, "RackAwareReplicaSelector lets consumers read nearby (KIP-392)."),
    _key(
        "replica.high.watermark.checkpoint.interval.ms",
        Type.LONG,
        5_000,
        "The interval of saving high watermarks.",
        at_least(1),
    ),
    _key("fetch.max.bytes", Type.INT, 57_671_680, "The maximum bytes of a response to a fetch.", at_least(1024)),
    _key(
        "max.incremental.fetch.session.cache.slots",
        Type.INT,
        1_000,
        "The maximum number of fetch sessions of a broker.",
        at_least(0),
    ),
    # --- control plane -----------------------------------------------------------------------------------------------
    _key(
        "zookeeper.session.timeout.ms",
        Type.INT,
        500,
        "The time until a silent broker is considered dead; Kafka's own default is 18 s.",
        at_least(1),
    ),
    _key("controlled.shutdown.enable", Type.BOOLEAN, True, "Whether a broker moves its leaders before it stops."),
    _key("controlled.shutdown.max.retries", Type.INT, 3, "The number of retries of that.", at_least(0)),
    _key("controlled.shutdown.retry.backoff.ms", Type.LONG, 100, "The backoff between these retries.", at_least(0)),
    _key("controller.socket.timeout.ms", Type.INT, 30_000, "The timeout of a request to the controller.", at_least(1)),
    _key("broker.rack", Type.STRING, None, "The broker's rack."),
    # --- groups ------------------------------------------------------------------------------------------------------
    _key("offsets.topic.num.partitions", Type.INT, 4, "The partitions of __consumer_offsets (Kafka: 50).", at_least(1)),
    _key(
        "offsets.topic.replication.factor",
        Type.SHORT,
        3,
        "The replicas of __consumer_offsets; fewer if there are fewer brokers.",
        at_least(1),
    ),
    _key(
        "offsets.topic.segment.bytes",
        Type.INT,
        104_857_600,
        "The maximum size of a segment of __consumer_offsets.",
        at_least(1),
    ),
    _key("offsets.retention.minutes", Type.INT, 10_080, "The time to keep the offsets of an empty group.", at_least(1)),
    _key(
        "offsets.retention.check.interval.ms",
        Type.LONG,
        600_000,
        "The interval of checks for old offsets.",
        at_least(1),
    ),
    _key("offsets.commit.timeout.ms", Type.INT, 5_000, "The time that a commit waits for the replicas.", at_least(1)),
    _key("offset.metadata.max.bytes", Type.INT, 4_096, "The maximum length of the metadata of an offset."),
    _key(
        "group.min.session.timeout.ms",
        Type.INT,
        100,
        "The minimum session timeout of a member (Kafka: 6 s).",
        at_least(1),
    ),
    _key("group.max.session.timeout.ms", Type.INT, 1_800_000, "The maximum session timeout of a member.", at_least(1)),
    _key(
        "group.initial.rebalance.delay.ms",
        Type.INT,
        0,
        "The time that a new group waits for more members (Kafka: 3 s).",
        at_least(0),
    ),
    _key(
        "group.consumer.session.timeout.ms",
        Type.INT,
        45_000,
        "The session timeout of a member of the consumer protocol.",
        at_least(1),
    ),
    _key(
        "group.consumer.heartbeat.interval.ms",
        Type.INT,
        5_000,
        "The heartbeat interval of a member of the consumer protocol.",
        at_least(1),
    ),
    _key(
        "group.consumer.max.size", Type.INT, _INT_MAX, "The maximum number of members of a consumer group.", at_least(1)
    ),
    _key(
        "group.consumer.migration.policy",
        Type.STRING,
        "bidirectional",
        "The conversions of groups that have members: upgrade to the consumer protocol, downgrade to the classic one.",
        ValidString("disabled", "downgrade", "upgrade", "bidirectional"),
    ),
    _key(
        "group.share.session.timeout.ms",
        Type.INT,
        45_000,
        "The session timeout of a member of a share group.",
        at_least(1),
    ),
    _key(
        "group.share.heartbeat.interval.ms",
        Type.INT,
        500,
        "The heartbeat interval of a member of a share group (Kafka: 5 s).",
        at_least(1),
    ),
    _key("group.share.max.size", Type.INT, 200, "The maximum number of members of a share group.", at_least(1)),
    _key(
        "group.share.record.lock.duration.ms",
        Type.INT,
        30_000,
        "The time for which a member of a share group has acquired records.",
        at_least(1),
    ),
    _key(
        "group.share.delivery.count.limit",
        Type.INT,
        5,
        "The maximum number of deliveries of a record to a share group.",
        at_least(1),
    ),
    _key(
        "group.share.partition.max.record.locks",
        Type.INT,
        2_000,
        "The maximum number of records of a partition that a share group has in flight.",
        at_least(1),
    ),
    _key(
        "group.share.max.share.sessions",
        Type.INT,
        2_000,
        "The maximum number of share sessions of a broker.",
        at_least(1),
    ),
    _key(
        "share.coordinator.state.topic.num.partitions",
        Type.INT,
        4,
        "The partitions of __share_group_state (Kafka: 50).",
        at_least(1),
    ),
    _key(
        "share.coordinator.state.topic.replication.factor",
        Type.SHORT,
        3,
        "The replicas of __share_group_state; fewer if there are fewer brokers.",
        at_least(1),
    ),
    _key(
        "share.coordinator.state.topic.min.isr",
        Type.SHORT,
        2,
        "The in-sync replicas that a write to __share_group_state needs; fewer if there are fewer replicas.",
        at_least(1),
    ),
    _key(
        "share.coordinator.state.topic.segment.bytes",
        Type.INT,
        104_857_600,
        "The maximum size of a segment of __share_group_state.",
        at_least(1),
    ),
    _key(
        "share.coordinator.write.timeout.ms",
        Type.INT,
        5_000,
        "The time that a write of the share coordinator waits for the replicas.",
        at_least(1),
    ),
    _key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        Type.INT,
        500,
        "The changes of a share partition between two snapshots of its state.",
        at_least(0),
    ),
    _key(
        "share.coordinator.state.topic.prune.interval.ms",
        Type.INT,
        300_000,
        "The interval in which records of __share_group_state are deleted that later snapshots have replaced.",
        at_least(1),
    ),
    _key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        Type.INT,
        300_000,
        "The time after which share partitions that do not change get a snapshot, as old records cannot be deleted "
        "before.",
        at_least(1),
    ),
    _key("group.max.size", Type.INT, _INT_MAX, "The maximum number of members of a group.", at_least(1)),
    _key(
        "transactional.id.expiration.ms",
        Type.INT,
        604_800_000,
        "The idle time after which a transactional id expires.",
        at_least(1),
    ),
    _key("transaction.max.timeout.ms", Type.INT, 900_000, "The maximum timeout of a transaction.", at_least(1)),
    _key(
        "transaction.two.phase.commit.enable",
        Type.BOOLEAN,
        False,
        "Whether producers may take part in two-phase commits. They also need unstable.api.versions.enable (KIP-939).",
    ),
    _key(
        "unstable.api.versions.enable",
        Type.BOOLEAN,
        False,
        "Whether clients may use API versions that Kafka has not declared stable: here version 6 of InitProducerId.",
    ),
    _key(
        "transaction.state.log.num.partitions",
        Type.INT,
        4,
        "The partitions of __transaction_state (Kafka: 50).",
        at_least(1),
    ),
    _key(
        "transaction.state.log.replication.factor",
        Type.SHORT,
        3,
        "The replicas of __transaction_state; fewer if there are fewer brokers.",
        at_least(1),
    ),
    _key(
        "transaction.state.log.min.isr",
        Type.INT,
        2,
        "The in-sync replicas that a write to __transaction_state needs; fewer if there are fewer replicas.",
        at_least(1),
    ),
    _key(
        "transaction.state.log.segment.bytes",
        Type.INT,
        104_857_600,
        "The maximum size of a segment of __transaction_state.",
        at_least(1),
    ),
    _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Type.INT,
        1_000,
        "The interval of checks for transactions that have timed out (Kafka: 10 s).",
        at_least(1),
    ),
    _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Type.INT,
        3_600_000,
        "The interval of checks for transactional ids that have expired.",
        at_least(1),
    ),
    _key(
        "transaction.partition.verification.enable",
        Type.BOOLEAN,
        True,
        "Whether leaders ask the coordinator if a transaction has their partition (KIP-890).",
    ),
    _key(
        "add.partitions.to.txn.retry.backoff.ms",
        Type.INT,
        20,
        "The backoff of leaders that add a partition to a transaction while the one before is being completed.",
        at_least(1),
    ),
    _key(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Type.INT,
        100,
        "The time after which the client gets the error instead, and retries.",
        at_least(0),
    ),
)


class BrokerConfig(AbstractConfig):
    """The settings of one broker, by Kafka's keys with dots or underscores.

    It has only the settings that an embedded broker supports; an unknown key raises ConfigError. Thread: any.
    """

    __slots__ = ()

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

    __slots__ = (
        "acls",
        "advertised_host",
        "broker_config",
        "broker_ids",
        "cluster_id",
        "credentials",
        "history_size",
        "host",
        "listeners",
        "memory_limit_bytes",
        "port",
        "proxies",
        "racks",
        "release",
        "super_users",
        "transaction_version",
    )

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
