"""Read a topic again from a timestamp to its current end, without a group.

Partitions are assigned manually, so that other readers are not disturbed and nothing is committed.
"""

from __future__ import annotations

from examples.options import run
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition

MIDNIGHT_MS = 1_356_998_400_000  # 2013-01-01 in UTC
HOUR_MS = 3_600_000


def write_a_day(bootstrap_servers: str, topic: str) -> None:
    """Write one record per hour, each with that hour as its timestamp."""
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for hour in range(24):
            producer.send(topic, b"%02d:00" % hour, timestamp_ms=MIDNIGHT_MS + hour * HOUR_MS)


def replay(bootstrap_servers: str, topic: str, since_ms: int) -> list[bytes]:
    """Return the values of all records since ``since_ms``, in the order of their timestamps."""
    with KafkaConsumer[bytes, bytes](bootstrap_servers=bootstrap_servers) as consumer:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        for tp, found in consumer.offsets_for_times(dict.fromkeys(partitions, since_ms)).items():
            consumer.seek(tp, ends[tp] if found is None else found.offset)
        records = []
        # The position moves past the last offsets even if they contain no records to return.
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            for batch in consumer.poll(timeout_ms=1_000).values():
                records += [record for record in batch if record.timestamp >= since_ms]
    return [record.value or b"" for record in sorted(records, key=lambda record: record.timestamp)]


def main(bootstrap_servers: str, topic: str) -> None:
    write_a_day(bootstrap_servers, topic)
    evening = replay(bootstrap_servers, topic, MIDNIGHT_MS + 18 * HOUR_MS)
    print(f"{len(evening)} records since 18:00: {b', '.join(evening).decode()}")


if __name__ == "__main__":
    run(main, topic="replay")
