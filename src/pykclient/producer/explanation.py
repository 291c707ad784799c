"""The text of ``KafkaProducer.explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.explanation import counted, page, shown_duration, shown_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.network.metadata import Cluster
    from pykclient.producer.future import ProducerBatch
    from pykclient.producer.producer_components import ProducerComponents
    from pykclient.types import TopicPartition

#: The most partitions that are listed, those with the oldest batches.
_MOST_PARTITIONS = 10


def explain_producer(name: str, components: ProducerComponents, config: Mapping[str, object]) -> str:
    """Return a report of a producer's state. Thread: any."""
    now_ms = components.clock.now_ms()
    pool = components.buffer_pool
    used = pool.total_memory - pool.available_about
    sections: list[tuple[str, str | list[str]]] = [
        ("Records", _records(components, now_ms)),
        (
            "Memory",
            f"{shown_size(used)} of buffer.memory={shown_size(pool.total_memory)} in use; "
            f"{counted(pool.queued, 'thread waits', 'threads wait')} for more",
        ),
    ]
    if components.transactions is not None:
        sections.append(("Transaction", components.transactions.explain(now_ms)))
    elif components.id_manager is not None:
        id = components.id_manager.producer_id_and_epoch
        known = f"producer id {id.producer_id}, epoch {id.epoch}" if id.is_valid else "no producer id yet"
        sections.append(("Idempotence", f"{components.id_manager.current_state}; {known}"))
    sections += [
        ("Metadata", components.metadata.explain(now_ms)),
        ("Brokers", components.client.explain(now_ms)),
        (
            "Settings",
            ", ".join(
                f"{key}={config[key]}"
                for key in ("acks", "linger.ms", "batch.size", "compression.type", "delivery.timeout.ms")
            ),
        ),
    ]
    return page(name, sections, components.log_context.problems)


def _records(components: ProducerComponents, now_ms: int) -> list[str]:
    """Return lines about the batches that wait and those in flight."""
    by_partition: dict[TopicPartition, list[ProducerBatch]] = {}
    for batch in components.accumulator.queued_batches():
        by_partition.setdefault(batch.topic_partition, []).append(batch)
    waiting = [batch for batches in by_partition.values() for batch in batches]
    in_flight = components.accumulator.register.in_flight()
    cluster = components.metadata.fetch()
    lines = [_summed("waiting", waiting, now_ms), _summed("in flight", in_flight, now_ms)]
    oldest_first = sorted(by_partition.items(), key=lambda item: item[1][0].created_ms)
    for tp, batches in oldest_first[:_MOST_PARTITIONS]:
        lines.append(f"{tp}: {_summed('waiting', batches, now_ms)}; {_reason(components, cluster, batches[0], now_ms)}")
    if len(oldest_first) > _MOST_PARTITIONS:
        lines.append(f"and {len(oldest_first) - _MOST_PARTITIONS} more partitions")
    return lines


def _summed(state: str, batches: list[ProducerBatch], now_ms: int) -> str:
    if not batches:
        return f"none {state}"
    records = sum(batch.record_count for batch in batches)
    oldest_ms = now_ms - min(batch.created_ms for batch in batches)
    return (
        f"{counted(records, 'record')} in {counted(len(batches), 'batch', 'batches')} {state}, "
        f"the oldest for {shown_duration(oldest_ms)}"
    )


def _reason(components: ProducerComponents, cluster: Cluster, batch: ProducerBatch, now_ms: int) -> str:
    """Return the reason why the first batch of a partition is not in flight."""
    accumulator = components.accumulator
    leader = cluster.leader_for(batch.topic_partition)
    if leader is None:
        return "the partition has no leader"
    if batch.attempts and batch.backoff_end_ms > now_ms:
        backoff = shown_duration(batch.backoff_end_ms - now_ms)
        return f"{counted(batch.attempts, 'attempt')} failed, the next is in {backoff}"
    if batch.topic_partition in accumulator.waiting.muted:
        return "another batch of the partition is in flight, and the order must be kept"
    lingers_ms = batch.last_attempt_ms + accumulator.linger_ms - now_ms
    if not batch.attempts and not batch.is_full and lingers_ms > 0:
        return f"lingers for another {shown_duration(lingers_ms)}"
    return f"waits for broker {leader.id}"
