"""Share groups on a cluster, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from pykclient import AcknowledgeType, ConsumerRecord, KafkaProducer, KafkaShareConsumer
from pykclient.errors import KafkaError
from pykclient.types import TopicIdPartition
from tests.support.any_kafka import AnyKafka
from tests.support.group_configs import set_group_configs

Consumer = KafkaShareConsumer[Any, Any]
Record = ConsumerRecord[Any, Any]

TIMEOUT_S = 30.0


def set_group(brokers: AnyKafka, group_id: str, **settings: object) -> None:
    """Set configurations of a share group; it starts at the earliest records unless they say otherwise."""
    configs = {"share.auto.offset.reset": "earliest"}
    configs.update((f"share.{name.replace('_', '.')}", str(value)) for name, value in settings.items())
    set_group_configs(brokers, group_id, configs)


def produce(brokers: AnyKafka, topic: str, count: int, *, first: int = 0, partitions: int = 1, **settings: Any) -> None:
    """Write the numbers from ``first`` on, each to its partition in turn."""
    with KafkaProducer(bootstrap_servers=brokers.bootstrap_servers, linger_ms=50, **settings) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


def flat(polled: dict[Any, list[Record]]) -> list[Record]:
    return [record for records in polled.values() for record in records]


def polls(*consumers: Consumer, timeout_s: float = TIMEOUT_S) -> Iterator[tuple[Consumer, list[Record]]]:
    """Poll the consumers in turn, and yield each with its records; fail when the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for consumer in consumers:
            yield consumer, flat(consumer.poll(200))
    raise AssertionError(f"not done within {timeout_s} s")


def read(consumer: Consumer, count: int, kind: Callable[[Record], AcknowledgeType] | None = None) -> list[Record]:
    """Read at least ``count`` records, and acknowledge them by ``kind`` if it is given."""
    seen: list[Record] = []
    for _, records in polls(consumer):
        for record in records:
            if kind is not None:
                consumer.acknowledge(record, kind(record))
        seen += records
        if len(seen) >= count:
            return seen
    raise AssertionError


class Outcomes:
    """An acknowledgement commit callback that stores its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[TopicIdPartition, set[int]], KafkaError | None]] = []

    def __call__(self, offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        self.calls.append((offsets, error))

    def offsets(self, error: type[KafkaError] | None = None) -> list[int]:
        """Return the offsets of all calls with this class of error, sorted."""
        return sorted(
            offset
            for offsets, each in self.calls
            if (each is None if error is None else isinstance(each, error))
            for some in offsets.values()
            for offset in some
        )
