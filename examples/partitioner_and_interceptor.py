"""A partitioner that reserves a partition for urgent records, and an interceptor that traces every record.

An interceptor sees a record before it is serialized, may change it, and learns its result. It is independent of the
program, which suits tracing and counting.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import uuid4

from examples.options import run
from pykclient import KafkaProducer, ProducerInterceptor, ProducerRecord, RecordMetadata
from pykclient.types import Headers


def urgent_first(key: bytes | None, all_partitions: list[int], _available: list[int]) -> int:
    """Return partition 0 for urgent records, and one of the others, by key, for the rest.

    A function is enough. A subclass of pykclient's Partitioner also gets the topic, the value and the cluster.
    """
    if key == b"urgent" or len(all_partitions) == 1:
        return all_partitions[0]
    others = all_partitions[1:]
    return others[sum(key or b"") % len(others)]


class Tracer(ProducerInterceptor):
    """Gives each record a trace id, and counts results."""

    def __init__(self) -> None:
        self.under_way: set[bytes | None] = set()
        self.outcomes: Counter[str] = Counter()

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        trace_id = uuid4().bytes
        self.under_way.add(trace_id)
        record.headers = [*record.headers, ("trace-id", trace_id)]
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        self.under_way.discard(dict(headers)["trace-id"])
        self.outcomes[f"partition {metadata.partition}" if error is None else type(error).__name__] += 1


def main(bootstrap_servers: str, topic: str) -> None:
    tracer = Tracer()
    with KafkaProducer(
        bootstrap_servers=bootstrap_servers, partitioner=urgent_first, interceptor_classes=[tracer]
    ) as producer:
        urgent = [producer.send(topic, key=b"urgent", value=b"!") for _ in range(10)]
        others = [producer.send(topic, key=b"%d" % number, value=b".") for number in range(90)]
        for future in urgent + others:
            future.get(timeout=10)
        print("urgent records are in partitions", sorted({future.get().partition for future in urgent}))
        print("the others are in partitions", sorted({future.get().partition for future in others}))
    print(f"interceptor: {tracer.outcomes['partition 0']} in partition 0, {len(tracer.under_way)} without a response")


if __name__ == "__main__":
    run(main, topic="partitioner")
