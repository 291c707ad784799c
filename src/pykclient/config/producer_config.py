"""The producer's keys (Java: ProducerConfig)."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from pykclient.config import client_keys as shared
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.client_keys import HIGH, INT_MAX, LOW, MEDIUM, none_means, serialization_class
from pykclient.config.config_def import ConfigDef, ConfigKey, ForeignKey, Type
from pykclient.config.security_keys import SECURITY_KEYS
from pykclient.config.validators import NonEmptyString, Validator, ValidList, ValidString, at_least, between
from pykclient.errors import ConfigError

_logger = logging.getLogger(__name__)

#: A broker remembers this many batches of a producer, so no more may be in flight (Kafka: NUM_BATCHES_TO_RETAIN).
MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5

#: Larger numbers are not converted to text: Python refuses to, if they are very large.
_BITS_OF_A_NUMBER = 64


def _acks(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number and value.bit_length() < _BITS_OF_A_NUMBER else value


def _gzip_level(value: Any) -> str | None:
    return None if value == -1 or (value is not None and 1 <= value <= 9) else "must be between 1 and 9, or -1"


# fmt: off
_KEYS = (
    shared.bootstrap_servers(),
    ConfigKey("acks", Type.STRING, "all", LOW,
        "The acknowledgements that a write needs. all (or -1): from every in-sync replica. 1: from the leader, which "
        "may lose the write if it fails. 0: none; errors go unnoticed and offsets are -1. Idempotence needs all.",
        ValidString("all", "-1", "0", "1"), convert=_acks),
    ConfigKey("batch.size", Type.INT, 16_384, MEDIUM,
        "The maximum size in bytes of a batch of records for one partition. 0 sends every record in its own batch, and "
        "so does a record larger than this. Without a codec, send_batch() fills larger batches, up to "
        "max.request.size.", at_least(0)),
    ConfigKey("buffer.memory", Type.LONG, 33_554_432, HIGH,
        "The total bytes of memory for records that wait to be sent. When it is exhausted, send() blocks for up to "
        "max.block.ms and then raises BufferExhaustedError. Compression and requests in flight need some memory in "
        "addition.", at_least(0)),
    shared.client_id(MEDIUM),
    ConfigKey("compression.type", Type.STRING, "none", HIGH,
        "The compression of batches. Larger batches compress better.",
        ValidString("none", "gzip", "snappy", "lz4", "zstd"), convert=none_means("none")),
    ConfigKey("compression.gzip.level", Type.INT, -1, MEDIUM,
        "The level for compression.type=gzip: 1 is the fastest, 9 compresses best, -1 is the library's default "
        "(KIP-390).", Validator(_gzip_level, "[1,...,9] or -1")),
    ConfigKey("compression.lz4.level", Type.INT, 9, MEDIUM,
        "The level for compression.type=lz4. Higher levels compress better and are slower (KIP-390).", between(1, 17)),
    ConfigKey("compression.zstd.level", Type.INT, 3, MEDIUM,
        "The level for compression.type=zstd. Higher levels compress better and are slower; negative levels are the "
        "fastest (KIP-390).", between(-131_072, 22)),
    shared.connections_max_idle_ms(540_000),
    ConfigKey("delivery.timeout.ms", Type.INT, 120_000, MEDIUM,
        "The maximum time from send() until a record has succeeded or failed, including all waiting and retries. It "
        "must be at least linger.ms + request.timeout.ms, and is raised to that if it is not set.", at_least(0)),
    ConfigKey("enable.idempotence", Type.BOOLEAN, True, LOW,
        "If true, brokers discard duplicates from retries and keep the order of batches. This needs acks=all, retries "
        "above 0 and at most 5 requests in flight. If it is not set, conflicting values of acks or retries disable "
        "it."),
    shared.enable_metrics_push(True),
    ConfigKey("interceptor.classes", Type.LIST, (), LOW,
        "Interceptors, as objects, classes or dotted names of classes. They see every record before it is sent, may "
        "change it, and are told the result.", ValidList()),
    ConfigKey("key.serializer", Type.CLASS, None, HIGH,
        "The serializer of keys: a pykclient.serialization.Serializer, its class, a callable from key to bytes, or the "
        "dotted name of one. None passes bytes through.", convert=serialization_class),
    ConfigKey("value.serializer", Type.CLASS, None, HIGH,
        "The serializer of values, in the same form as key.serializer.", convert=serialization_class),
    ConfigKey("linger.ms", Type.LONG, 5, MEDIUM,
        "How long a batch waits for more records before it is sent. Higher values mean fewer requests and better "
        "compression, but add up to this much latency under light load.", at_least(0)),
    ConfigKey("max.block.ms", Type.LONG, 60_000, MEDIUM,
        "The maximum time that send() waits for metadata and buffer memory in total, and that partitions_for() waits "
        "for metadata.", at_least(0)),
    ConfigKey("max.in.flight.requests.per.connection", Type.INT, 5, LOW,
        "The maximum number of requests in flight to one broker. With more than 1 and without idempotence, a retry may "
        "reorder batches.", at_least(1)),
    ConfigKey("max.request.size", Type.INT, 1_048_576, MEDIUM,
        "The maximum size of a produce request in bytes, and so of a record. Brokers have their own limit for the "
        "compressed size of a batch (message.max.bytes).", at_least(0)),
    ConfigKey("metadata.max.idle.ms", Type.LONG, 300_000, LOW,
        "Stop requesting metadata of a topic to which nothing was sent for this long.", at_least(5_000)),
    ConfigKey("partitioner.class", Type.CLASS, None, MEDIUM,
        "The partitioner for records without an explicit partition: a partitioner, its class, a callable (key, all "
        "partitions, available partitions), the dotted name of one, or a name: RoundRobinPartitioner, "
        "UniformStickyPartitioner, Murmur3Partitioner, or librdkafka's random, consistent, consistent_random, murmur2, "
        "murmur2_random, fnv1a, fnv1a_random. None is Kafka's default: it uses the murmur2 hash of the key; records "
        "without a key fill the batch of one partition after the other, and faster brokers get more of them "
        "(KIP-794).", aliases=("partitioner",), named=True),
    ConfigKey("partitioner.adaptive.partitioning.enable", Type.BOOLEAN, True, LOW,
        "If true, the default partitioner sends more records to partitions with shorter queues, that is, to faster "
        "brokers."),
    ConfigKey("partitioner.availability.timeout.ms", Type.LONG, 0, LOW,
        "With adaptive partitioning: if a broker has accepted nothing for this long, it gets no records without a key. "
        "0 disables this.", at_least(0)),
    ConfigKey("partitioner.ignore.keys", Type.BOOLEAN, False, MEDIUM, "If true, the default partitioner ignores keys."),
    ConfigKey("retries", Type.INT, INT_MAX, HIGH,
        "The maximum number of retries of a batch after transient errors. Prefer delivery.timeout.ms to limit them. 0 "
        "disables idempotence.", between(0, INT_MAX)),
    ConfigKey("transactional.id", Type.STRING, None, LOW,
        "A name that identifies this producer across restarts, and lets it send records in transactions. No two "
        "producers may use it at the same time: the newer one fences the older. Needs idempotence.", NonEmptyString()),
    ConfigKey("transaction.timeout.ms", Type.INT, 60_000, LOW,
        "The maximum duration of a transaction in milliseconds, after which the coordinator aborts it, and in the "
        "first generation of transactions also fences the producer. At most transaction.max.timeout.ms of the brokers "
        "(15 minutes by default)."),
    ConfigKey("transaction.two.phase.commit.enable", Type.BOOLEAN, False, LOW,
        "Whether transactions take part in a two-phase commit, as with a database (KIP-939). They then never time out. "
        "The brokers must allow it, with the same setting and unstable.api.versions.enable=true."),
    *shared.NETWORK_KEYS,
    *SECURITY_KEYS,
)
# fmt: on

#: The codecs in the order of their numbers in a batch's attributes.
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# fmt: off
_FOREIGN = (
    *shared.KAFKA_PYTHON_KEYS,
    ForeignKey("allow.auto.create.topics",
        "a producer always asks brokers to create missing topics; auto.create.topics.enable on the brokers decides",
        harmless=(None, True)),
    ForeignKey("compression.attrs", "set compression_type", harmless=(None, 0)),
    ForeignKey("default.api.timeout.ms", "max_block_ms limits a producer's calls", harmless=(None, 60_000)),
)
# fmt: on


class ProducerConfig(AbstractConfig):
    """A producer's configuration. ``acks`` is "-1", "0" or "1"; ``client.id`` stays empty if it is not given.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or values contradict each other.
    """

    __slots__ = ()

    DEFINITION: ClassVar[ConfigDef] = ConfigDef(_KEYS, _FOREIGN)

    def _post_process(self, values: dict[str, Any]) -> None:
        shared.apply_common_rules(self.originals, values)
        if values["acks"] == "all":
            values["acks"] = "-1"
        values["linger.ms"] = min(values["linger.ms"], INT_MAX)
        self._foreign["compression.attrs"] = _CODECS.index(values["compression.type"])
        self._settle_idempotence(values)
        self._settle_delivery_timeout(values)
        self._check_two_phase_commit(values)

    def _check_two_phase_commit(self, values: dict[str, Any]) -> None:
        key = "transaction.two.phase.commit.enable"
        if not values[key]:
            return
        if values["transactional.id"] is None:
            raise ConfigError(f"{key}=True needs a transactional.id", key=key)
        if self.is_set("transaction.timeout.ms"):
            raise ConfigError(
                f"transaction.timeout.ms is not possible with {key}=True: such transactions never time out. Leave one "
                "of the two keys out",
                key="transaction.timeout.ms",
            )

    def _settle_idempotence(self, values: dict[str, Any]) -> None:
        """Check that explicitly enabled idempotence is possible; otherwise disable it (Java: ProducerConfig)."""
        transactional = values["transactional.id"] is not None
        if not values["enable.idempotence"]:
            if transactional:
                raise ConfigError("transactional.id needs enable.idempotence=True", key="enable.idempotence")
            return
        conflicts = []
        if values["retries"] == 0:
            conflicts.append("retries above 0")
        if values["acks"] != "-1":
            conflicts.append(f"acks=all, not {values['acks']}")
        if conflicts:
            needed = " and ".join(conflicts)
            if transactional:
                raise ConfigError(f"transactional.id needs {needed}", key="transactional.id")
            if self.is_set("enable.idempotence"):
                raise ConfigError(f"enable.idempotence=True needs {needed}", key="enable.idempotence")
            _logger.info("enable.idempotence is switched off, because it needs %s", needed)
            values["enable.idempotence"] = False
        in_flight = values["max.in.flight.requests.per.connection"]
        # Java checks this even if idempotence has just been disabled implicitly.
        if in_flight > MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
            raise ConfigError(
                f"max.in.flight.requests.per.connection = {in_flight}: idempotence allows at most "
                f"{MAX_IN_FLIGHT_FOR_IDEMPOTENCE}. Lower it, or set enable.idempotence=False",
                key="max.in.flight.requests.per.connection",
            )

    def _settle_delivery_timeout(self, values: dict[str, Any]) -> None:
        """Give a record the time to linger and to be sent once (Java: KafkaProducer.configureDeliveryTimeout)."""
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
