"""Topics with records for queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.support.any_kafka import AnyKafka


def produce(kafka: AnyKafka, topic: str, values: Mapping[int, Iterable[str]]) -> None:
    """Append ``values`` to the partitions of a topic, and wait until all replicas have them."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for partition, texts in values.items():
        for text in texts:
            producer.produce(topic, text.encode(), partition=partition, on_delivery=delivered)
    assert producer.flush(30.0) == 0
    assert not failed, failed


def add_partitions(kafka: AnyKafka, topic: str, total: int) -> None:
    """Give a topic ``total`` partitions, and wait until every broker has them."""
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    from tests.support.wait import eventually

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(30.0)

    def known() -> bool:
        running = [broker for broker in kafka.brokers.values() if broker.running]
        views = [broker.state([topic]).topics.get(topic, {}) for broker in running]
        return all(len(view) == total and all(one.leader >= 0 for one in view.values()) for view in views)

    eventually(known, 30.0, f"{total} partitions of {topic}")


def delete_records(kafka: AnyKafka, topic: str, partition: int, *, before: int) -> None:
    """Delete the records of a partition before an offset, as retention would."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    asked = TopicPartition(topic, partition, before)
    for future in admin.delete_records([asked]).values():
        assert future.result(30.0).low_watermark == before


def numbers(start: int, count: int) -> list[str]:
    """Return ``count`` numbers as text, from ``start`` on."""
    return [str(number) for number in range(start, start + count)]
