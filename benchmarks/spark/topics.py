"""The topics that are read. confluent-kafka writes them once for all runs."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import Bench
from benchmarks.clients.measuring import payloads

#: The timestamp of the first record, and the difference between those of successive records of a partition.
BEGUN_MS, STEP_MS = 1_760_000_000_000, 4

#: The filter keeps one of so many records.
KEPT_OF = 100


def name_of(bench: Bench) -> str:
    """Return the name of the topic for reading, streaming and filtering."""
    return f"spark-{bench.size_bytes}-{bench.codec}-{bench.partitions}"


def create(cluster: Any, bench: Bench, rows: int, name: str, batch_bytes: int = 128 << 10) -> None:
    """Create a topic with ``rows`` records, evenly in all partitions, in batches like those of a busy producer."""
    from confluent_kafka import Producer

    cluster.create_topic(name, bench.partitions)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.type": bench.codec,
            "linger.ms": 50,
            "batch.size": batch_bytes,
            "queue.buffering.max.messages": 200_000,
            "enable.idempotence": True,
        }
    )
    values = payloads(bench.size_bytes)
    for number in range(rows // bench.partitions):
        timestamp_ms = BEGUN_MS + number * STEP_MS
        for partition in range(bench.partitions):
            value = values[(number * bench.partitions + partition) % len(values)]
            while True:
                try:
                    producer.produce(name, value, partition=partition, timestamp=timestamp_ms)
                    break
                except BufferError:
                    producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records of {name} were not written")


def kept_after_ms(bench: Bench, rows: int) -> int:
    """Return the timestamp after which one in ``KEPT_OF`` records lies."""
    each = rows // bench.partitions
    return BEGUN_MS + (each - each // KEPT_OF - 1) * STEP_MS
