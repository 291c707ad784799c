"""The producer's keys (Java: ProducerConfig)."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from pykclient.config import client_keys as shared
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.client_keys import HIGH, INT_MAX, LOW, MEDIUM, none_means, serialization_class
from pykclient.config.config_def import ConfigDef, ConfigKey, ForeignKey, Type
from pykclient.config.security_keys import SECURITY_KEYS
from pykclient.config.validators import Lambda, NonEmptyString, ValidList, ValidString, at_least, between
from pykclient.errors import ConfigError

_logger = logging.getLogger(__name__)

#: A broker remembers this many batches of a producer, so no more may be on their way (Kafka: NUM_BATCHES_TO_RETAIN).
MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5

_TRANSACTIONS_LATER = "transactions come with a later version"


def _acks(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _gzip_level(value: Any) -> str | None:
    return None if value == -1 or (value is not None and 1 <= value <= 9) else "must be between 1 and 9, or -1"


_KEYS = (
    shared.bootstrap_servers(),
    ConfigKey(
        "acks",
        Type.STRING,
        "all",
        ValidString("all", "-1", "0", "1"),
        LOW,
        "What a broker must have done before a write counts: all (or -1) = every in-sync replica has it; 1 = the "
        "leader has it, and may lose it when it fails; 0 = nothing, errors are not even seen and offsets are -1. "
        "Idempotence needs all.",
        convert=_acks,
    ),
    ConfigKey(
        "batch.size",
        Type.INT,
        16_384,
        at_least(0),
        MEDIUM,
        "Records for one partition are gathered into batches of up to this many bytes. 0 sends every record by itself; "
        "a larger record gets a batch of its own.",
    ),
    ConfigKey(
        "buffer.memory",
        Type.LONG,
        33_554_432,
        at_least(0),
        HIGH,
        "Bytes that may wait to be sent. When they are used up, send() blocks for up to max.block.ms and then raises "
        "BufferExhaustedError. Compression and requests on their way need some more.",
    ),
    shared.client_id(MEDIUM),
    ConfigKey(
        "compression.type",
        Type.STRING,
        "none",
        ValidString("none", "gzip", "snappy", "lz4", "zstd"),
        HIGH,
        "How batches are compressed. Larger batches compress better.",
        convert=none_means("none"),
    ),
    ConfigKey(
        "compression.gzip.level",
        Type.INT,
        -1,
        Lambda(_gzip_level, "[1,...,9] or -1"),
        MEDIUM,
        "Level for compression.type=gzip: 1 is fastest, 9 smallest, -1 the library's choice (KIP-390).",
    ),
    ConfigKey(
        "compression.lz4.level",
        Type.INT,
        9,
        between(1, 17),
        MEDIUM,
        "Level for compression.type=lz4: higher is smaller and slower (KIP-390).",
    ),
    ConfigKey(
        "compression.zstd.level",
        Type.INT,
        3,
        between(-131_072, 22),
        MEDIUM,
        "Level for compression.type=zstd: higher is smaller and slower, negative ones are the fastest (KIP-390).",
    ),
    shared.connections_max_idle_ms(540_000),
    ConfigKey(
        "delivery.timeout.ms",
        Type.INT,
        120_000,
        at_least(0),
        MEDIUM,
        "The bound on the time between send() and the record's success or failure, all waiting and retries included. "
        "Must be at least linger.ms + request.timeout.ms; if it is not set, it grows to that.",
    ),
    ConfigKey(
        "enable.idempotence",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Whether brokers weed out what retries send twice and keep the order of batches. Needs acks=all, retries "
        "above 0 and at most 5 requests in flight; unless it is set, other values of acks or retries switch it off.",
    ),
    shared.enable_metrics_push(True),
    ConfigKey(
        "interceptor.classes",
        Type.LIST,
        (),
        ValidList(),
        LOW,
        "Objects, classes or dotted names of classes that see every record before it is sent, may change it, and learn "
        "what became of it.",
    ),
    ConfigKey(
        "key.serializer",
        Type.CLASS,
        None,
        None,
        HIGH,
        "What turns keys into bytes: a pykclient.serialization.Serializer, its class, a callable from key to bytes, "
        "or the dotted name of one. None passes bytes through.",
        convert=serialization_class,
    ),
    ConfigKey(
        "value.serializer",
        Type.CLASS,
        None,
        None,
        HIGH,
        "What turns values into bytes, as key.serializer does for keys.",
        convert=serialization_class,
    ),
    ConfigKey(
        "linger.ms",
        Type.LONG,
        5,
        at_least(0),
        MEDIUM,
        "How long a batch that is not full waits for more records. More of it means fewer and better compressed "
        "requests, and as much more delay when there is little to send.",
    ),
    ConfigKey(
        "max.block.ms",
        Type.LONG,
        60_000,
        at_least(0),
        MEDIUM,
        "The bound on the time that send() waits for metadata and for free buffer memory together, and that "
        "partitions_for() waits for metadata.",
    ),
    ConfigKey(
        "max.in.flight.requests.per.connection",
        Type.INT,
        5,
        at_least(1),
        LOW,
        "Requests that may be on their way to one broker at a time. Without idempotence and with more than 1, a retry "
        "may change the order of batches.",
    ),
    ConfigKey(
        "max.request.size",
        Type.INT,
        1_048_576,
        at_least(0),
        MEDIUM,
        "The largest produce request in bytes, and so the largest record. Brokers have a limit of their own for a "
        "batch as it is after compression (message.max.bytes).",
    ),
    ConfigKey(
        "metadata.max.idle.ms",
        Type.LONG,
        300_000,
        at_least(5_000),
        LOW,
        "A topic that nothing was sent to for this long is no longer asked for when metadata is fetched.",
    ),
    ConfigKey(
        "partitioner.class",
        Type.CLASS,
        None,
        None,
        MEDIUM,
        "What chooses the partition of a record that names none: a partitioner, its class, a callable (key, all "
        "partitions, available partitions), the dotted name of one, or a name: RoundRobinPartitioner, "
        "UniformStickyPartitioner, Murmur3Partitioner, or librdkafka's random, consistent, consistent_random, murmur2, "
        "murmur2_random, fnv1a, fnv1a_random. None is Kafka's: by the murmur2 hash of the key, or without a key one "
        "partition per batch, brokers that answer faster more often (KIP-794).",
        aliases=("partitioner",),
        named=True,
    ),
    ConfigKey(
        "partitioner.adaptive.partitioning.enable",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Whether the default partitioner gives more to partitions with shorter queues, that is to faster brokers.",
    ),
    ConfigKey(
        "partitioner.availability.timeout.ms",
        Type.LONG,
        0,
        at_least(0),
        LOW,
        "With adaptive partitioning: a broker that accepted nothing for this long gets no records without a key. 0: "
        "never.",
    ),
    ConfigKey(
        "partitioner.ignore.keys",
        Type.BOOLEAN,
        False,
        None,
        MEDIUM,
        "Whether the default partitioner treats records with a key like those without.",
    ),
    shared.receive_buffer_bytes(32_768),
    ConfigKey(
        "retries",
        Type.INT,
        INT_MAX,
        between(0, INT_MAX),
        HIGH,
        "How often a batch is sent again after a failure that may pass. Better left alone: delivery.timeout.ms bounds "
        "the attempts. 0 switches idempotence off.",
    ),
    ConfigKey(
        "transactional.id",
        Type.STRING,
        None,
        NonEmptyString(),
        LOW,
        "The name under which this producer's transactions go on after a restart.",
        unsupported=_TRANSACTIONS_LATER,
    ),
    ConfigKey(
        "transaction.timeout.ms",
        Type.INT,
        60_000,
        None,
        LOW,
        "How long a transaction may stay open before the cluster aborts it.",
        unsupported=_TRANSACTIONS_LATER,
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        Type.BOOLEAN,
        False,
        None,
        LOW,
        "Whether an outside coordinator decides on transactions, which then never time out (KIP-939).",
        unsupported=_TRANSACTIONS_LATER,
    ),
    *shared.NETWORK_KEYS,
    *SECURITY_KEYS,
)

_FOREIGN = (
    *shared.KAFKA_PYTHON_KEYS,
    ForeignKey(
        "allow.auto.create.topics",
        "a producer always asks brokers to create missing topics; auto.create.topics.enable on the brokers decides",
        harmless=(None, True),
    ),
    ForeignKey("default.api.timeout.ms", "a producer's calls are bounded by max_block_ms", harmless=(None, 60_000)),
)


class ProducerConfig(AbstractConfig):
    """A producer's configuration. ``acks`` is "-1", "0" or "1"; ``client.id`` stays empty if it was not given.

    Raises ConfigError for unknown keys, wrong values, and values that contradict each other.
    """

    __slots__ = ()

    DEFINITION: ClassVar[ConfigDef] = ConfigDef(_KEYS, _FOREIGN)

    def _post_process(self, values: dict[str, Any]) -> None:
        shared.apply_common_rules(self.originals, values)
        if values["acks"] == "all":
            values["acks"] = "-1"
        values["linger.ms"] = min(values["linger.ms"], INT_MAX)
        self._settle_idempotence(values)
        self._settle_delivery_timeout(values)

    def _settle_idempotence(self, values: dict[str, Any]) -> None:
        """Idempotence that was asked for must be possible; otherwise it yields (Java: ProducerConfig)."""
        if not values["enable.idempotence"]:
            return
        conflicts = []
        if values["retries"] == 0:
            conflicts.append("retries above 0")
        if values["acks"] != "-1":
            conflicts.append(f"acks=all, not {values['acks']}")
        if conflicts:
            needed = " and ".join(conflicts)
            if self.is_set("enable.idempotence"):
                raise ConfigError(f"enable.idempotence=True needs {needed}", key="enable.idempotence")
            _logger.info("enable.idempotence is switched off, because it needs %s", needed)
            values["enable.idempotence"] = False
        in_flight = values["max.in.flight.requests.per.connection"]
        # Java checks this one even when idempotence has just been switched off by itself.
        if in_flight > MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
            raise ConfigError(
                f"max.in.flight.requests.per.connection = {in_flight}: idempotence allows at most "
                f"{MAX_IN_FLIGHT_FOR_IDEMPOTENCE}. Lower it, or set enable.idempotence=False",
                key="max.in.flight.requests.per.connection",
            )

    def _settle_delivery_timeout(self, values: dict[str, Any]) -> None:
        """A record must have the time to linger and to be sent once (Java: KafkaProducer.configureDeliveryTimeout)."""
        least = min(values["linger.ms"] + values["request.timeout.ms"], INT_MAX)
        given = values["delivery.timeout.ms"]
        if given >= least:
            return
        if self.is_set("delivery.timeout.ms"):
            raise ConfigError(
                f"delivery.timeout.ms = {given}: it must be at least linger.ms + request.timeout.ms = {least}",
                key="delivery.timeout.ms",
            )
        _logger.warning("delivery.timeout.ms becomes %d, the sum of linger.ms and request.timeout.ms", least)
        values["delivery.timeout.ms"] = least
