"""A service that ships orders, and survives what production does to it.

- SIGTERM and Ctrl-C end it gracefully: it finishes the order at hand, commits, and leaves the group.
- ``kill -9`` loses nothing. Offsets are committed after processing, so the orders since the last commit are read again
  (at-least-once): shipping an order twice must do no harm.
- An order that cannot be shipped is retried with a backoff, and then written to a dead-letter topic together with the
  reason. So is a record that cannot be deserialized. Neither stops the partition.
- Before partitions are revoked, the service commits what it has processed of them.

It reads ``orders`` and writes ``orders.shipped`` and ``orders.dead-letters``; ``--topic`` replaces ``orders``.
"""

from __future__ import annotations

import json
import logging
import signal
import time
from collections.abc import Iterable
from typing import Any

from examples.options import run
from pykclient import (
    ConsumerRebalanceListener,
    ConsumerRecord,
    FutureRecordMetadata,
    JsonDeserializer,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
    errors,
)

ATTEMPTS = 3
BACKOFF_S = 0.1
COMMIT_INTERVAL_S = 1.0

log = logging.getLogger("shipping")


class ShippingError(Exception):
    """An order could not be shipped. A later attempt may succeed."""


def ship(order: Any) -> Any:
    """Ship one order; return the shipment. Replace this with your own processing."""
    if not isinstance(order, dict) or "address" not in order:
        raise ShippingError("the order has no address")
    return {"order": order["id"], "to": order["address"]}


def to_bytes(value: Any) -> bytes | None:
    """Serialize a shipment as JSON. Dead letters are bytes already."""
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


class ShippingService(ConsumerRebalanceListener):
    """One member of the group that ships orders."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.topic = topic
        self.stopping = False
        #: The offsets to commit: for each partition, that of the next record to process.
        self.processed: dict[TopicPartition, int] = {}
        #: The records written since the last commit.
        self.written: list[FutureRecordMetadata] = []
        self.next_commit_s = 0.0
        self.producer = KafkaProducer[bytes, Any](
            bootstrap_servers=bootstrap_servers, client_id="shipping", value_serializer=to_bytes
        )
        self.consumer = KafkaConsumer[bytes, Any](
            bootstrap_servers=bootstrap_servers,
            client_id="shipping",
            group_id=f"{topic}-shipping",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,  # how long the partitions of a killed member wait for another one
            max_poll_records=100,  # all of these must be processed within max.poll.interval.ms, retries included
            value_deserializer=JsonDeserializer,
        )

    def stop(self) -> None:
        """End ``run`` soon. Signal handlers and other threads may call this."""
        self.stopping = True
        self.consumer.wakeup()

    def run(self) -> None:
        """Ship orders until ``stop`` is called.

        Raises:
            KafkaError: the service cannot continue.
        """
        with self.producer, self.consumer:
            self.consumer.subscribe([self.topic], listener=self)
            while not self.stopping:
                self.process(self.next_records())
                if time.monotonic() >= self.next_commit_s:
                    self.commit(list(self.processed))
            log.info("Stopping: committing and leaving the group")
            self.commit(list(self.processed))

    def next_records(self) -> list[ConsumerRecord[bytes, Any]]:
        """Poll for records. Put one that cannot be deserialized aside."""
        try:
            by_partition = self.consumer.poll(timeout_ms=500)
        except errors.WakeupError:
            return []
        except errors.RecordDeserializationError as error:
            self.put_aside(error.record, error)
            self.consumer.seek(error.topic_partition, error.offset + 1)
            self.processed[error.topic_partition] = error.offset + 1
            return []
        return [record for records in by_partition.values() for record in records]

    def process(self, records: Iterable[ConsumerRecord[bytes, Any]]) -> None:
        """Ship orders, one after the other, until ``stop`` is called."""
        for record in records:
            if self.stopping:
                return
            self.ship_or_put_aside(record)
            self.processed[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def ship_or_put_aside(self, record: ConsumerRecord[bytes, Any]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                shipment = ship(record.value)
            except ShippingError as error:
                if attempt == ATTEMPTS:
                    self.put_aside(record, error)
                else:
                    time.sleep(BACKOFF_S * attempt)
            else:
                self.written.append(self.producer.send(f"{self.topic}.shipped", key=record.key, value=shipment))
                return

    def put_aside(self, record: ConsumerRecord[Any, Any], reason: Exception) -> None:
        """Write a record to the dead-letter topic, with its origin and the reason as headers."""
        origin = f"{record.topic}-{record.partition}@{record.offset}"
        log.warning("%s goes to the dead letters: %s", origin, type(reason).__name__)
        headers = [("origin", origin.encode()), ("reason", str(reason).encode())]
        topic = f"{self.topic}.dead-letters"
        self.written.append(self.producer.send(topic, key=record.key, value=record.value, headers=headers))

    def commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit what was processed of ``partitions``, after everything written because of it is acknowledged."""
        self.producer.flush()
        for future in self.written:
            future.get()  # raises if it failed: the service ends, and the orders are read again
        self.written.clear()
        offsets = {tp: self.processed.pop(tp) for tp in partitions if tp in self.processed}
        while offsets:
            try:
                self.consumer.commit(offsets)
            except errors.WakeupError:
                continue  # stop() was called meanwhile; it interrupts one call only
            except errors.CommitFailedError:
                # The partitions belong to another member by now, which reads these orders again.
                log.warning("Could not commit", exc_info=True)
            break
        self.next_commit_s = time.monotonic() + COMMIT_INTERVAL_S

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        log.info("Assigned: %s", ", ".join(map(str, sorted(assigned))))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.commit(revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        # Other members may own them already, so a commit would fail.
        for tp in lost:
            self.processed.pop(tp, None)


def main(bootstrap_servers: str, topic: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    service = ShippingService(bootstrap_servers, topic)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    service.run()
    log.info("Stopped")


if __name__ == "__main__":
    run(main, topic="orders")
