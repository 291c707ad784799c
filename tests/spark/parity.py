"""Helpers to compare the built-in Kafka source with ours: both must read and refuse the same.

``Kinds`` makes the topics that both read: everything that a log can have in it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import DataFrame, SparkSession

BUILTIN, OURS = "kafka", "pykclient"
FORMATS = (BUILTIN, OURS)

#: The timestamp of the first record of ``Kinds.timed``; each is a second later than the one before it.
BEGUN_MS = 1_700_000_000_000

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def load(spark: SparkSession, kafka: AnyKafka, format: str, options: dict[str, Any]) -> DataFrame:
    """Load a batch, with a short poll timeout."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": 20_000, **options}
    texts = {name: _text(value) for name, value in given.items() if value is not None}
    return spark.read.format(format).options(**texts).load()


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return all rows as plain values, ordered by topic, partition and offset."""
    names = frame.columns
    rows = [tuple(_plain(value) for value in row) for row in frame.collect()]
    order = [names.index(name) for name in ("topic", "partition", "offset")]
    return sorted(rows, key=lambda row: [row[index] for index in order])


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(_plain(part) for part in item) for item in value]
    return value


def both(spark: SparkSession, kafka: AnyKafka, **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows of both sources, which must be equal and have the same schema."""
    theirs, ours = (load(spark, kafka, format, options) for format in FORMATS)
    assert ours.schema == theirs.schema
    rows = rows_of(theirs)
    assert rows_of(ours) == rows
    return rows


class Kinds:
    """Topics of all kinds. Their names begin with ``prefix``. Thread: owner."""

    def __init__(self, kafka: AnyKafka, prefix: str) -> None:
        self._kafka = kafka
        self.prefix = prefix
        self.headers = kafka.create_topic(f"{prefix}-headers", 2)
        self.timed = kafka.create_topic(f"{prefix}-timed", 3)
        self.appended = kafka.create_topic(f"{prefix}-appended", 1, config={"message.timestamp.type": "LogAppendTime"})
        self.codecs = kafka.create_topic(f"{prefix}-codecs", len(CODECS))
        self.deleted = kafka.create_topic(f"{prefix}-deleted", 3)
        self.transactional = kafka.create_topic(f"{prefix}-transactional", 2)
        self.compacted = kafka.create_topic(f"{prefix}-compacted", 1, config=_COMPACTED)
        self.empty = kafka.create_topic(f"{prefix}-empty", 2)

    @property
    def all(self) -> list[str]:
        return [
            *(self.headers, self.timed, self.appended, self.codecs),
            *(self.deleted, self.transactional, self.compacted, self.empty),
        ]

    @contextlib.contextmanager
    def filled(self) -> Iterator[Kinds]:
        """Create all topics with their records. One transaction stays open until the block ends."""
        self._fill_headers()
        self._fill_timed()
        self._fill_codecs()
        self._fill_deleted()
        self._fill_compacted()
        with self._transactions():
            yield self

    def _producer(self, **settings: Any) -> Producer:
        from confluent_kafka import Producer

        return Producer(
            {"bootstrap.servers": self._kafka.bootstrap_servers, "log_level": 0, "linger.ms": 20, **settings}
        )

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers, "log_level": 0})

    def _fill_headers(self) -> None:
        producer = self._producer()
        records: list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]] = [
            (None, b"plain", []),
            (b"", b"", [("empty", b"")]),
            (b"key", None, [("null", None)]),
            (None, None, [("twice", b"1"), ("other", b"x"), ("twice", b"2"), ("twice", None)]),
            ("clé".encode(), "值".encode(), [("zäh", b"\x00\xff"), ("", b"no name")]),
            (b"\xff\xfe", b"\x00" * 300, [(f"h{number}", b"%d" % number) for number in range(40)]),
        ]
        for partition in range(2):
            for key, value, headers in records:
                producer.produce(self.headers, value, key, partition, headers=headers)
        for number in range(20):
            producer.produce(self.appended, b"%d" % number, partition=0, timestamp=BEGUN_MS)
        assert producer.flush(30) == 0

    def _fill_timed(self) -> None:
        """Fill partition 0 in order of timestamps, 1 with steps back, and 2 with two records only."""
        producer = self._producer()
        for number in range(50):
            producer.produce(self.timed, b"%d" % number, partition=0, timestamp=BEGUN_MS + number * 1000)
            back = number - 7 if number % 5 == 4 else number
            producer.produce(self.timed, b"%d" % number, partition=1, timestamp=BEGUN_MS + max(0, back) * 1000)
        for number in (0, 10):
            producer.produce(self.timed, b"%d" % number, partition=2, timestamp=BEGUN_MS + number * 1000)
        assert producer.flush(30) == 0

    def _fill_codecs(self) -> None:
        for partition, codec in enumerate(CODECS):
            producer = self._producer(**{"compression.type": codec})
            for number in range(300):
                producer.produce(self.codecs, b"value %d " % number * 5, b"%d" % (number % 7), partition)
            assert producer.flush(30) == 0

    def _fill_deleted(self) -> None:
        """Delete records: partition 0 begins late, 1 has no record left, 2 is complete."""
        from confluent_kafka import TopicPartition

        producer = self._producer()
        for partition in range(3):
            for number in range(60):
                producer.produce(self.deleted, b"%d" % number, partition=partition)
        assert producer.flush(30) == 0
        admin = self._admin()  # deletions continue as long as it exists
        deletions = admin.delete_records([TopicPartition(self.deleted, 0, 25), TopicPartition(self.deleted, 1, 60)])
        for deletion in deletions.values():
            deletion.result(30)

    def _fill_compacted(self) -> None:
        """Fill a topic in which only the last record of each key is left, with tombstones. Then stop the cleaner."""
        producer = self._producer()
        for number in range(10):
            for key in range(number % 3, 40, 2):
                value = None if number % 3 == 2 else b"%d" % number
                producer.produce(self.compacted, value, b"%d" % key, 0)
            producer.flush(30)

        def compacted() -> bool:
            producer.produce(
                self.compacted, b"x", b"roll", 0
            )  # starts a new segment, so that the previous one can be cleaned
            producer.flush(30)
            read = self._read(self.compacted)
            return len(read) < read[-1] - 60

        eventually(compacted, 60, "the topic compacted", every_s=0.3)
        self._set_policy(self.compacted, "delete")
        producer.produce(self.compacted, b"last", b"last", 0)
        assert producer.flush(30) == 0

    def _read(self, topic: str) -> list[int]:
        """Return the offsets of the records in partition 0."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self._kafka.bootstrap_servers, "group.id": topic, "enable.partition.eof": True}
        consumer = Consumer({**settings, "log_level": 0})
        consumer.assign([TopicPartition(topic, 0, 0)])
        offsets: list[int] = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
        consumer.close()
        return offsets

    def _set_policy(self, topic: str, policy: str) -> None:
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self._admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    @contextlib.contextmanager
    def _transactions(self) -> Iterator[None]:
        """Write committed, aborted and empty transactions, and one in partition 0 that stays open."""
        settings = {"transactional.id": self.transactional, "transaction.timeout.ms": _LONGEST_TRANSACTION_S * 1000}
        producer = self._producer(**settings)
        producer.init_transactions(30)

        def begin(count: int, partitions: tuple[int, ...]) -> None:
            producer.begin_transaction()
            for number in range(count):
                for partition in partitions:
                    producer.produce(self.transactional, b"%d" % number, b"of %d" % count, partition)
            assert producer.flush(30) == 0

        for count, commits in ((10, True), (11, False), (1, True), (12, True), (30, False), (13, True), (5, False)):
            begin(count, (0, 1))
            if commits:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        began_s = time.monotonic()
        begin(14, (0,))
        try:
            yield
        finally:
            if time.monotonic() - began_s < _LONGEST_TRANSACTION_S:  # otherwise the broker has aborted it
                producer.abort_transaction(30)


#: The longest timeout of a transaction that brokers allow by default.
_LONGEST_TRANSACTION_S = 900
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 200,
    "min.cleanable.dirty.ratio": 0.001,
    "delete.retention.ms": 0,
}
