"""The checked options of a query: those of Spark's own Kafka source, and a few more.

Names are case-insensitive (Spark passes them in lower case). Allowed combinations, precedence and refused keys of Kafka
are those of Spark's ``KafkaSourceProvider``, with these exceptions:

- an unknown option is an error that suggests the nearest one, instead of being ignored;
- ``endingTimestamp`` is refused in a stream like the other two ends, instead of being ignored;
- duplicates in JSON, fractions and negative timestamps are refused;
- consumers have a ``group.id`` only if ``groupIdPrefix`` or ``kafka.group.id`` sets one, as none joins a group.

``columns``, ``filterPushdown``, ``gcFreeze``, ``minRecordsPerTask`` and those of a schema registry exist only here.

This module is independent of pyspark and of any cluster.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError
from pykclient.spark.offsets import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    OFFSETS_EXAMPLE,
    TIMESTAMPS_EXAMPLE,
    GlobalTimestamp,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
    WhenNone,
    partition_list,
    partition_numbers,
)
from pykclient.spark.option_values import (
    KAFKA_PREFIX,
    REGISTRY_OPTIONS,
    REGISTRY_PREFIX,
    GivenOptions,
    parse_boolean,
    whole_number,
)
from pykclient.spark.schema import BYTES_SUFFIX, COLUMNS, ERROR_SUFFIX
from pykclient.spark.subscription import Assign, Subscribe, SubscribePattern, Topics
from pykclient.spark.worker import KEPT_BYTES, MAX_WARM

_logger = logging.getLogger(__name__)

_HEADERS = "headers"

DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
DEFAULT_NUM_RETRIES = 3
#: As in Spark's code (KafkaOffsetReaderAdmin); its guide says 10.
DEFAULT_RETRY_INTERVAL_MS = 1_000
DEFAULT_RECORDS_PER_TASK = 4_000

_TOPIC_OPTIONS = ("assign", "subscribe", "subscribePattern")
#: The columns that can have a format, and the options of a column's format.
_FORMATTED = ("key", "value")
_FORMAT_OPTIONS = ("format", "schema", "subject", "fields", "message")
_FORMATS = ("avro", "json", "protobuf")
_MODES = ("FAILFAST", "PERMISSIVE")

_READ_OPTIONS = (
    *_TOPIC_OPTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "columns",
    "filterPushdown",
    "gcFreeze",
    "minRecordsPerTask",
    *(f"{column}.{name}" for column in _FORMATTED for name in _FORMAT_OPTIONS),
    "mode",
    REGISTRY_OPTIONS,
)
#: Options that need ``delivery=exactly-once``.
_EXACTLY_ONCE_OPTIONS = (
    "transactionalIdPrefix",
    "ledgerTopic",
    "restartBudget",
    "exactlyOnceMode",
    "deterministicPartitioning",
)

_WRITE_OPTIONS = (
    "topic",
    "includeHeaders",
    "gcFreeze",
    "delivery",
    *_EXACTLY_ONCE_OPTIONS,
    *(f"{column}.{name}" for column in _FORMATTED for name in _FORMAT_OPTIONS if name != "fields"),
    REGISTRY_OPTIONS,
)

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"

#: Who commits the rows of a task: the driver those of all tasks, or each task its own.
BY_DRIVER, BY_TASK = "driver", "task"

DEFAULT_LEDGER_TOPIC = "pykclient-spark-ledger"
#: Ten minutes to write a micro-batch, and to restart a driver that has failed in its commit.
DEFAULT_RESTART_BUDGET_MS = 10 * 60_000
#: The longest that brokers allow by default (transaction.max.timeout.ms).
DEFAULT_TRANSACTION_TIMEOUT_MS = 15 * 60_000

#: Kafka's keys that a query must not set, and why.
_REFUSED_IN_SOURCE = {
    "auto.offset.reset": "the query decides where it starts and keeps track of it; use startingOffsets",
    "key.deserializer": "keys are binary columns; decode them with DataFrame operations",
    "value.deserializer": "values are binary columns; decode them with DataFrame operations",
    "enable.auto.commit": "Spark keeps the offsets of a query in its checkpoint, and nothing is committed to Kafka",
    "interceptor.classes": "interceptors could change what is read",
}
_REFUSED_IN_SINK = {
    "transactional.id": "each task needs an id of its own; use the options delivery=exactly-once and "
    "transactionalIdPrefix",
    "transaction.two.phase.commit.enable": "the sink uses it with delivery=exactly-once where brokers allow it",
    "key.serializer": "keys are written as the bytes that the key column holds; encode them with DataFrame operations",
    "value.serializer": "values are written as the bytes that the value column holds; encode them with DataFrame "
    "operations",
}

_SERVERS = "bootstrap.servers"

#: A timestamp that no record has.
_NEVER_MS = (1 << 63) - 1

#: Keys of older Java clients that have no effect here, and why.
_IGNORED = {"auto.include.jmx.reporter": "there is no JMX here, and Kafka 4.0 has removed it"}

_IDLE, _REQUEST_TIMEOUT = "connections.max.idle.ms", "request.timeout.ms"


#: The setting of serializers that is an option of the registry.
_AUTO_REGISTER = "auto.register.schemas"


class FormatOptions(NamedTuple):
    """The options of a column's format: the schema to read or write by, its subject, and the fields to decode.

    ``message`` is the name of Protobuf's message; None means the first one of the schema.
    """

    format: str
    schema: str | None
    subject: str | None
    fields: tuple[str, ...] | None
    message: str | None


class ReadOptions:
    """The options of a query that reads. Pickles. Its ``repr`` shows no settings of Kafka, as some are secrets.

    Thread: any (immutable).
    """

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, streaming: bool) -> ReadOptions:
        """Check ``options`` and their combinations, by the rules of streams or of batches.

        Raises:
            ConfigError: An option is wrong. The text names it and says what it must be.
        """
        use = "where Kafka is read; it is one of the sink"
        return cls(GivenOptions(options, _READ_OPTIONS, _WRITE_OPTIONS, use, ConsumerConfig.DEFINITION), streaming)

    def __init__(self, given: GivenOptions, streaming: bool) -> None:
        self.streaming = streaming
        #: Warnings for ``log_notes``.
        self.notes: list[str] = []
        self._kafka = _checked_kafka(given, _REFUSED_IN_SOURCE, self.notes)
        _keep_idle_connections(self._kafka, self.notes)
        self.topics = _topics(given)
        self._read_limits(given)
        self._read_rates(given)
        self._read_formats(given)
        self._read_columns(given)
        self.fail_on_data_loss: bool = given.boolean("failOnDataLoss", True)
        self.poll_timeout_ms: int = given.time_ms("kafkaConsumer.pollTimeoutMs", DEFAULT_POLL_TIMEOUT_MS)
        self.num_retries: int = given.whole("fetchOffset.numRetries", 1, 32) or DEFAULT_NUM_RETRIES
        self.retry_interval_ms: int = given.time_ms("fetchOffset.retryIntervalMs", DEFAULT_RETRY_INTERVAL_MS)
        self.freeze_heap: bool = given.boolean("gcFreeze", True)
        #: None: if other queries are not affected (see KafkaBatchReaderWithPushdown).
        self.push_filters: bool | None = given.boolean("filterPushdown", False) if "filterPushdown" in given else None
        self.group_id: str | None = _group_id(given, self._kafka.get("group.id"), self.notes)
        _check_client_config(ConsumerConfig, self.executor_config())

    def _read_limits(self, given: GivenOptions) -> None:
        """Parse the starting and ending options."""
        if self.streaming:
            for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
                if name in given:
                    raise ConfigError(
                        f"option {name} is not for streaming queries, which have no end; to read the existing records "
                        "and stop, use trigger(availableNow=True)",
                        key=name,
                    )
        when_none: WhenNone = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        self.starting = _limit(given, "starting", LATEST if self.streaming else EARLIEST, when_none)
        # The strategy is for starts only: without a record that late, an end is the end of the partition.
        self.ending = _limit(given, "ending", LATEST, "latest")
        if not self.streaming:
            _check_batch_limits(self.starting, self.ending)

    def _read_rates(self, given: GivenOptions) -> None:
        """Parse the options on the size of micro-batches and tasks."""
        self.max_offsets_per_trigger: int | None = given.whole("maxOffsetsPerTrigger", 1)
        self.min_offsets_per_trigger: int | None = given.whole("minOffsetsPerTrigger", 0)
        self.max_trigger_delay_ms: int = given.time_ms("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS)
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"minOffsetsPerTrigger ({least}) is greater than maxOffsetsPerTrigger ({most})",
                key="minOffsetsPerTrigger",
            )
        if not self.streaming:
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
                if name in given:
                    self.notes.append(f"Option {name} has no effect in a batch query")
        self.min_partitions: int | None = given.whole("minPartitions", 1, 32)
        self.max_records_per_partition: int | None = given.whole("maxRecordsPerPartition", 1)
        shared = given.whole("minRecordsPerTask", 0)
        self.records_per_task: int = DEFAULT_RECORDS_PER_TASK if shared is None else shared
        if self.min_partitions is not None or self.max_records_per_partition is not None:
            # Sharing tasks would change the number of tasks that the user requested.
            if shared:
                self.notes.append(
                    "Option minRecordsPerTask has no effect together with minPartitions or maxRecordsPerPartition"
                )
            self.records_per_task = 0

    def _read_columns(self, given: GivenOptions) -> None:
        self.include_headers: bool = given.boolean("includeHeaders", False)
        self.columns: tuple[str, ...] | None = None
        text = given.get("columns")
        if text is None:
            return
        self.columns = _columns(text, (*COLUMNS, *self.added_columns))
        if "includeHeaders" in given and self.include_headers != (_HEADERS in self.columns):
            raise ConfigError(
                f"includeHeaders is {str(self.include_headers).lower()}, but columns is {', '.join(self.columns)}; "
                "the option columns alone decides whether there are headers",
                key="columns",
            )
        self.include_headers = _HEADERS in self.columns

    def _read_formats(self, given: GivenOptions) -> None:
        """Parse the formats of key and value."""
        self.registry: dict[str, str] = given.registry
        self.formats = _formats(given)
        #: True if records that cannot be decoded are null.
        self.is_permissive = given.choice("mode", _MODES) == _MODES[1]
        for column, found in self.formats.items():
            if found.schema is not None and found.subject is not None:
                raise ConfigError(
                    f"give one of the options {column}.schema and {column}.subject", key=f"{column}.schema"
                )

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns for records that cannot be decoded, with the reason and the bytes."""
        suffixes = (ERROR_SUFFIX, BYTES_SUFFIX) if self.is_permissive else ()
        return tuple(name + suffix for name in self.formats for suffix in suffixes)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns to read: the chosen ones, or all, ``headers`` only with ``includeHeaders``."""
        if self.columns is not None:
            return self.columns
        names = tuple(name for name in COLUMNS if name != _HEADERS or self.include_headers)
        return names + self.added_columns

    def log_notes(self) -> None:
        """Log warnings about these options. Call it once per query: options are parsed in several processes."""
        _log_notes(self.notes)

    def driver_config(self) -> dict[str, object]:
        """Return the configuration of the consumer that looks up partitions and offsets. It may contain secrets."""
        return {
            "allow.auto.create.topics": False,  # a query must not recreate a topic that was deleted
            **self._kafka,
            **self._group(),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }

    def executor_config(self) -> dict[str, object]:
        """Return the configuration of the consumers in tasks, set for bulk reads unless ``kafka.*`` options differ.

        In streams, responses are small enough for a worker to keep those of several consumers. It may contain secrets.
        """
        sizes = {"fetch.max.bytes": KEPT_BYTES // MAX_WARM} if self.streaming else {}
        return {
            "allow.auto.create.topics": False,
            "max.partition.fetch.bytes": 8 << 20,
            **sizes,
            **self._kafka,
            **self._group(),
            "auto.offset.reset": "none",
            "enable.auto.commit": False,
        }

    def _group(self) -> dict[str, object]:
        return {} if self.group_id is None else {"group.id": self.group_id}

    def __repr__(self) -> str:
        kind = "stream" if self.streaming else "batch"
        return f"ReadOptions({kind}, {self.topics!r}, starting={self.starting!r}, ending={self.ending!r})"


class WriteOptions:
    """The options of a query that writes. Pickles. Its ``repr`` shows no settings of Kafka, as some are secrets.

    Thread: any (immutable).
    """

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, streaming: bool) -> WriteOptions:
        """Check ``options``, by the rules of streams or of batches.

        Raises:
            ConfigError: An option is wrong. The text names it and says what it must be.
        """
        use = "where Kafka is written; it is one of the source"
        given = GivenOptions(options, _WRITE_OPTIONS, _READ_OPTIONS, use, ProducerConfig.DEFINITION)
        checkpoint = next((value for name, value in options.items() if name.lower() == "checkpointlocation"), "")
        return cls(given, streaming, str(checkpoint))

    def __init__(self, given: GivenOptions, streaming: bool, checkpoint: str = "") -> None:
        self.streaming = streaming
        self.checkpoint = checkpoint
        #: Warnings for ``log_notes``.
        self.notes: list[str] = []
        self._kafka = _checked_kafka(given, _REFUSED_IN_SINK, self.notes)
        topic = given.get("topic")
        self.topic: str | None = None if topic is None else topic.strip()
        if self.topic == "":
            raise ConfigError(
                "option topic is empty; name a topic, or leave it out and have a topic column", key="topic"
            )
        self.include_headers: bool = given.boolean("includeHeaders", False)
        self.freeze_heap: bool = given.boolean("gcFreeze", True)
        self._read_formats(given)
        self._read_delivery(given)
        _check_client_config(ProducerConfig, self.producer_config())
        _check_partitioner(self._kafka.get("partitioner.class"))

    def log_notes(self) -> None:
        """Log warnings about these options. Call it once per query: options are parsed in several processes."""
        _log_notes(self.notes)

    def _read_formats(self, given: GivenOptions) -> None:
        """Parse the formats of key and value."""
        self.formats = _formats(given)
        self.registry: dict[str, str] = dict(given.registry)
        text = self.registry.pop(_AUTO_REGISTER, "false")
        self.auto_register = parse_boolean(REGISTRY_PREFIX + _AUTO_REGISTER, text)

    def _read_delivery(self, given: GivenOptions) -> None:
        """Parse the delivery guarantee, and the options that belong to it."""
        self.delivery: str = given.choice("delivery", (AT_LEAST_ONCE, EXACTLY_ONCE))
        self.transactional_id_prefix: str = (given.get("transactionalIdPrefix") or "").strip()
        self.ledger_topic: str = (given.get("ledgerTopic") or DEFAULT_LEDGER_TOPIC).strip()
        self.restart_budget_ms: int = given.time_ms("restartBudget", DEFAULT_RESTART_BUDGET_MS)
        #: True if each task commits its own rows.
        self.by_task = False
        if self.delivery == AT_LEAST_ONCE:
            for name in _EXACTLY_ONCE_OPTIONS:
                if name in given:
                    raise ConfigError(f"option {name} needs delivery={EXACTLY_ONCE}", key=name)
            return
        if not self.transactional_id_prefix:
            raise ConfigError(
                f"delivery={EXACTLY_ONCE} needs the option transactionalIdPrefix: a name that only this query has, and "
                "that stays the same when it is restarted",
                key="transactionalIdPrefix",
            )
        if not self.ledger_topic:
            raise ConfigError("option ledgerTopic is empty; name a topic, or leave it out", key="ledgerTopic")
        if self.streaming and not self.checkpoint:
            raise ConfigError(
                f"delivery={EXACTLY_ONCE} needs checkpointLocation as an option of the query: it identifies the query "
                "when it is restarted",
                key="checkpointLocation",
            )
        self._kafka.setdefault("transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS)
        self._read_mode(given)
        if self.by_task:
            return
        timeout_ms: int = ProducerConfig(self.producer_config())["transaction.timeout.ms"]
        if timeout_ms < self.restart_budget_ms:
            raise ConfigError(
                f"option kafka.transaction.timeout.ms ({timeout_ms} ms) is shorter than restartBudget "
                f"({self.restart_budget_ms} ms): brokers would abort transactions while a driver restarts. Raise the "
                "first one, up to the brokers' transaction.max.timeout.ms, or lower the second",
                key=KAFKA_PREFIX + "transaction.timeout.ms",
            )

    def _read_mode(self, given: GivenOptions) -> None:
        """Parse who commits."""
        name, statement = "exactlyOnceMode", "deterministicPartitioning"
        self.by_task = given.choice(name, (BY_DRIVER, BY_TASK)) == BY_TASK
        is_deterministic = given.boolean(statement, False)
        if not self.by_task:
            if statement in given:
                raise ConfigError(f"option {statement} needs {name}={BY_TASK}", key=statement)
            return
        if not self.streaming:
            raise ConfigError(
                f"{name}={BY_TASK} is for streaming queries: a batch query has no number by which a repetition is "
                f"recognized. {name}={BY_DRIVER} writes all of its rows, or none",
                key=name,
            )
        if "restartBudget" in given:
            raise ConfigError(
                f"option restartBudget has no meaning with {name}={BY_TASK}: no transaction is open while a driver is "
                "restarted",
                key="restartBudget",
            )
        if not is_deterministic:
            raise ConfigError(
                f"{name}={BY_TASK} needs {statement}=true, by which you state that a repeated micro-batch has the same "
                "rows in the same Spark partitions. Spark does not show the query's plan to the sink. It is true for "
                "select, filter and map over a Kafka source; with a shuffle (aggregation, join, repartition), "
                "pykclient.spark.has_shuffle(df) is True: use exactlyOnceMode=driver",
                key=statement,
            )

    def producer_config(self) -> dict[str, object]:
        """Return the configuration of the producer. It may contain secrets."""
        if self.delivery == EXACTLY_ONCE:
            return {**self._kafka, "transactional.id": self.transactional_id_prefix}
        return dict(self._kafka)

    def __repr__(self) -> str:
        return f"WriteOptions(topic={self.topic!r}, include_headers={self.include_headers})"


# --- columns, topics, limits ---------------------------------------------------------------------------------------


def _formats(given: GivenOptions) -> dict[str, FormatOptions]:
    """Return the options of the columns' formats. Raises ConfigError if others are given without them."""
    found = {column: _format(given, column) for column in _FORMATTED if f"{column}.format" in given}
    if not found:
        others = (f"{column}.{name}" for column in _FORMATTED for name in _FORMAT_OPTIONS)
        for name in (*others, "mode", *(REGISTRY_PREFIX + key for key in given.registry)):
            if name in given or name.startswith(REGISTRY_PREFIX):
                raise ConfigError(f"option {name} needs value.format or key.format", key=name)
    elif "url" not in given.registry:
        raise ConfigError(
            f"option {REGISTRY_PREFIX}url must be set to the registry's address, such as http://localhost:8081",
            key=REGISTRY_PREFIX + "url",
        )
    return found


def _format(given: GivenOptions, column: str) -> FormatOptions:
    """Return the options of a column's format."""
    name = f"{column}.format"
    if (format := (given.get(name) or "").strip().lower()) not in _FORMATS:
        raise ConfigError(
            f"option {name} must be {' or '.join(_FORMATS)}, not {format!r}; use DataFrame operations for "
            "other formats",
            key=name,
        )
    message = given.get(f"{column}.message")
    if message is not None and format != "protobuf":
        raise ConfigError(f"option {column}.message needs {name}=protobuf", key=f"{column}.message")
    schema, subject = given.get(f"{column}.schema"), given.get(f"{column}.subject")
    text = given.get(f"{column}.fields")
    fields = None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())
    if fields == ():
        raise ConfigError(f"option {column}.fields names no field", key=f"{column}.fields")
    return FormatOptions(format, schema, subject, fields, message)


def _columns(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    spelling = {name.lower(): name for name in known}
    names: list[str] = []
    for part in text.split(","):
        name = part.strip()
        if name.lower() not in spelling:
            raise ConfigError(
                f"option columns must be a comma-separated list of {', '.join(known)}; there is no column {name!r}",
                key="columns",
            )
        if spelling[name.lower()] in names:
            raise ConfigError(f"option columns has {name!r} twice", key="columns")
        names.append(spelling[name.lower()])
    return tuple(names)


def _topics(given: GivenOptions) -> Topics:
    found = [name for name in _TOPIC_OPTIONS if name in given]
    if len(found) != 1:
        what = "none of them is there" if not found else f"{' and '.join(found)} are there"
        raise ConfigError(f"exactly one of the options {', '.join(_TOPIC_OPTIONS)} must say what is read; {what}")
    (name,) = found
    value = given.values[name.lower()].strip()
    if name == "assign":
        partitions = partition_list(value, "option assign")
        if not partitions:
            raise ConfigError(f"option assign has no partitions: {value!r}", key=name)
        return Assign(partitions)
    if name == "subscribe":
        names = [part.strip() for part in value.split(",") if part.strip()]
        if not names:
            raise ConfigError(f"option subscribe has no topics: {value!r}", key=name)
        return Subscribe(names)
    if not value:
        raise ConfigError("option subscribePattern is empty", key=name)
    return SubscribePattern(value)


def _limit(given: GivenOptions, side: str, default: OffsetLimit, when_none: WhenNone) -> OffsetLimit:
    """Parse one side. A timestamp for all takes precedence over timestamps by partition, and these over offsets."""
    name = f"{side}Timestamp"
    if (text := given.get(name)) is not None:
        timestamp_ms = whole_number(name, text, -1)
        # ListOffsets takes -1 for the end of the log, and Spark's own source passes it on.
        return GlobalTimestamp(timestamp_ms, when_none) if timestamp_ms >= 0 else GlobalTimestamp(_NEVER_MS, "latest")
    name = f"{side}OffsetsByTimestamp"
    if (text := given.get(name)) is not None:
        times = partition_numbers(text.strip(), f"option {name}", TIMESTAMPS_EXAMPLE)
        return SpecificTimestamps(times, when_none)
    name = f"{side}Offsets"
    if (text := given.get(name)) is None:
        return default
    word = text.strip().lower()
    if word in {"latest", "earliest"}:
        return LATEST if word == "latest" else EARLIEST
    if not word.startswith("{"):
        raise ConfigError(f"option {name} must be earliest, latest or JSON such as {OFFSETS_EXAMPLE}, not {text!r}")
    return SpecificOffsets(partition_numbers(text.strip(), f"option {name}", OFFSETS_EXAMPLE, minimum=EARLIEST_OFFSET))


def _check_batch_limits(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Raise ConfigError for a start or an end that a batch cannot have, or for two that contradict each other."""
    if starting is LATEST:
        raise ConfigError("option startingOffsets can't be latest in a batch query: it would read nothing")
    if ending is EARLIEST:
        raise ConfigError("option endingOffsets can't be earliest in a batch query: it would read nothing")
    for limit, name, forbidden, word in (
        (starting, "startingOffsets", LATEST_OFFSET, "latest"),
        (ending, "endingOffsets", EARLIEST_OFFSET, "earliest"),
    ):
        if isinstance(limit, SpecificOffsets):
            for partition, offset in sorted(limit.offsets.items()):
                if offset == forbidden:
                    raise ConfigError(
                        f"option {name} can't be {word} ({forbidden}) for {partition} in a batch query", key=name
                    )
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        _check_pairs(starting.offsets, ending.offsets, "Offsets")
    elif isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        _check_pairs(starting.timestamps_ms, ending.timestamps_ms, "OffsetsByTimestamp")


def _check_pairs(starts: Mapping[Any, int], ends: Mapping[Any, int], what: str) -> None:
    """Raise ConfigError unless both have the same partitions, with no start after its end."""
    start_name, end_name = f"starting{what}", f"ending{what}"
    if starts.keys() != ends.keys():
        lone = ", ".join(str(partition) for partition in sorted(starts.keys() ^ ends.keys()))
        raise ConfigError(
            f"options {start_name} and {end_name} must name the same partitions, but only one of them has {lone}",
            key=start_name,
        )
    for partition, start in sorted(starts.items()):
        end = ends[partition]
        if start > end >= 0:  # negative ones are not resolved yet
            raise ConfigError(
                f"option {start_name} has {start} for {partition}, which is after the {end} that {end_name} has",
                key=start_name,
            )


# --- Kafka's own settings ------------------------------------------------------------------------------------------


def _checked_kafka(given: GivenOptions, refused: Mapping[str, str], notes: list[str]) -> dict[str, object]:
    """Return the settings of the ``kafka.*`` options by their keys with dots.

    Raises:
        ConfigError: A query may not set one of them, one is given twice, or the servers are missing or wrong.
    """
    settings: dict[str, object] = {}
    spelling: dict[str, str] = {}
    for name, value in given.kafka.items():
        if (reason := refused.get(name.replace("_", "."))) is not None:
            raise ConfigError(f"option kafka.{name} is not supported: {reason}", key=KAFKA_PREFIX + name)
        if (reason := _IGNORED.get(name.replace("_", "."))) is not None:
            notes.append(f"Option kafka.{name} has no effect: {reason}")
            continue
        with _as_option():
            key = given.definition.canonical(name)
        if key in settings:
            raise ConfigError(
                f"one option is given twice, as kafka.{spelling[key]} and as kafka.{name}", key=KAFKA_PREFIX + key
            )
        settings[key] = value
        spelling[key] = name
    if _SERVERS not in settings:
        raise ConfigError(
            f"option kafka.bootstrap.servers must be set, to addresses such as host:9092{_hint(given)}",
            key=KAFKA_PREFIX + _SERVERS,
        )
    settings[_SERVERS] = _servers(str(settings[_SERVERS]), notes)
    return settings


def _keep_idle_connections(settings: dict[str, object], notes: list[str]) -> None:
    """Raise ``connections.max.idle.ms`` above ``request.timeout.ms``: our consumer needs that, and Java's does not."""
    keys = [ConsumerConfig.DEFINITION.keys[name] for name in (_IDLE, _REQUEST_TIMEOUT)]
    with _as_option():
        idle_ms, request_ms = (
            key.parse(settings[key.name]) if key.name in settings else key.default_value() for key in keys
        )
    if 0 <= idle_ms <= request_ms:
        if _IDLE in settings:
            notes.append(
                f"Option kafka.{_IDLE} ({idle_ms}) is not above {_REQUEST_TIMEOUT} ({request_ms}): "
                f"{request_ms + 1} is used"
            )
        settings[_IDLE] = request_ms + 1


def _servers(text: str, notes: list[str]) -> str:
    """Return the addresses without duplicates, of which each client of each task would warn.

    Raises:
        ConfigError: An address has no port. Java's clients refuse it, too; another default port may be meant, and the
            query would only fail once connecting to this one has timed out several times.
    """
    from pykclient.network.client_utils import addresses_without_port

    with _as_option():
        portless = addresses_without_port(text)
    if portless:
        raise ConfigError(
            f"option kafka.bootstrap.servers must have a port in each address, such as host:9092, but there is none in "
            f"{', '.join(portless)}",
            key=KAFKA_PREFIX + _SERVERS,
        )
    addresses = [part.strip() for part in text.split(",") if part.strip()]
    unique = list(dict.fromkeys(addresses))
    if len(unique) < len(addresses):
        notes.append(f"Option kafka.bootstrap.servers has duplicates, which are ignored: {','.join(unique)} is used")
    return ",".join(unique)


def _hint(given: GivenOptions) -> str:
    """Return a hint on what may be wrong if there are no options at all."""
    if given.values or given.kafka:
        return ""
    return (
        ". There are no options at all. Spark does not pass on those that a table was created with: give them in the "
        "query, SELECT ... FROM t WITH (kafka.bootstrap.servers='host:9092', subscribe='t'), or use a temporary view"
    )


def _group_id(given: GivenOptions, chosen: object, notes: list[str]) -> str | None:
    """Return the ``group.id`` of the consumers, which neither join the group nor commit to it; None without one.

    Spark appends a UUID of the query. Here queries with the same options share a group id: each process of a query
    computes it, and a worker finds its idle consumers by their configuration.
    """
    prefix = given.get("groupIdPrefix")
    if chosen is not None:
        notes.append("Option kafka.group.id is set: do not share the group id with other consumers or queries")
        if prefix is not None:
            notes.append("Option groupIdPrefix has no effect together with kafka.group.id")
        return str(chosen)
    if prefix is None:
        return None
    return f"{prefix}-{zlib.crc32(repr(sorted(given.values.items())).encode()):08x}"


def _log_notes(notes: list[str]) -> None:
    for note in notes:
        _logger.warning("%s", note)


def _check_client_config(config: Callable[[Mapping[str, Any]], Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Raise ConfigError, on the driver, for settings that the clients in tasks would refuse."""
    from pykclient.network.client_utils import parse_addresses

    with _as_option():
        parse_addresses(config(settings)[_SERVERS])


def _check_partitioner(value: object) -> None:
    """Raise ConfigError for a class that cannot be loaded. It would fail in tasks, which Spark would repeat."""
    from pykclient.producer.partitioner import resolve_partitioner

    try:
        resolve_partitioner(value)
    except ConfigError as error:
        raise ConfigError(
            f"a kafka.* option is wrong: {error} (Java classes do not run here: it is one of Kafka's own, or a class "
            "in Python by its dotted name)",
            key=KAFKA_PREFIX + "partitioner.class",
        ) from error


@contextlib.contextmanager
def _as_option() -> Iterator[None]:
    """Say in ConfigErrors about keys of clients that they came from options."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"a kafka.* option is wrong: {error}", key=error.key) from None
