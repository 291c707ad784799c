"""At-least-once with explicit commits: nothing is committed before it is processed.

Two consumers of a group run one after the other. The first one stops between commits, as if it had been killed. The
second one reads the records since the last commit again, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable

from examples.options import run
from pykclient import ConsumerRebalanceListener, ConsumerRecord, KafkaConsumer, KafkaProducer, TopicPartition

RECORDS = 300


class CommitBeforeLeaving(ConsumerRebalanceListener):
    """Commits the processed records of partitions before they are revoked."""

    def __init__(self, consumer: KafkaConsumer[bytes, bytes], processed: dict[TopicPartition, int]) -> None:
        self.consumer = consumer
        self.processed = processed

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        # The committed offset is that of the next record to read.
        self.consumer.commit({tp: offset for tp, offset in self.processed.items() if tp in revoked})
        self.forget(revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        print("assigned:", ", ".join(str(tp) for tp in sorted(assigned)))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        # Other members may own them already: a commit would fail.
        self.forget(lost)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.processed.pop(tp, None)


def read(bootstrap_servers: str, topic: str, stop_after: int, crash: bool) -> list[tuple[int, int]]:
    """Process ``stop_after`` records, committing after every poll. A ``crash`` loses the last poll's commit."""
    seen: list[tuple[int, int]] = []
    processed: dict[TopicPartition, int] = {}
    consumer = KafkaConsumer[bytes, bytes](
        bootstrap_servers=bootstrap_servers,
        group_id=f"{topic}-workers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=50,
    )
    with consumer:
        consumer.subscribe([topic], listener=CommitBeforeLeaving(consumer, processed))
        while len(seen) < stop_after:
            for tp, records in consumer.poll(timeout_ms=1_000).items():
                for record in records:
                    process(record)
                    seen.append((record.partition, record.offset))
                    processed[tp] = record.offset + 1
            if crash and len(seen) >= stop_after:
                processed.clear()  # so that the revocation on closing commits nothing
            else:
                consumer.commit(processed)
    return seen


def process(record: ConsumerRecord[bytes, bytes]) -> None:
    """Process a record. As records may come twice, all external effects must be repeatable."""


def main(bootstrap_servers: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
    first = read(bootstrap_servers, topic, stop_after=100, crash=True)
    # The second consumer reads everything that the first one has not committed.
    second = read(bootstrap_servers, topic, stop_after=RECORDS - 50, crash=False)
    print(f"{len(first)} and {len(second)} records, {len(set(first) & set(second))} of them twice")
    print("every record was read" if len({*first, *second}) == RECORDS else "records are missing")


if __name__ == "__main__":
    run(main, topic="manual-commits")
