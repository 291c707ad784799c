"""Consume, transform, produce: every payment is booked exactly once, whatever is killed.

Each instance is a member of one consumer group. A transaction covers the bookings of one poll and the offsets of the
payments. So readers with ``isolation.level=read_committed`` see a payment's booking exactly once.

- ``kill -9`` leaves a transaction open. The instance that starts next under the same name aborts it; without one, the
  coordinator does after ``transaction.timeout.ms``. The payments are then booked by whoever has their partition.
- A member that was paused, and has lost its partitions meanwhile, cannot commit: its offsets are refused.
- SIGTERM and Ctrl-C end an instance between two transactions.

It reads ``payments`` and writes ``payments.bookings``; ``--topic`` replaces ``payments``. ``--instance`` is the name of
this instance, which no other may have at the same time.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal

from pykclient import ConsumerRecord, KafkaConsumer, KafkaProducer, TopicPartition, errors

log = logging.getLogger("booking")

FEE_CENTS = 25


def book(payment: bytes) -> bytes:
    """Return the booking for a payment. Replace this with your own processing."""
    order = json.loads(payment)
    return json.dumps({"payment": order["id"], "cents": order["cents"] + FEE_CENTS}).encode()


class BookingService:
    """One instance of the service."""

    def __init__(self, bootstrap_servers: str, topic: str, instance: str) -> None:
        self.topic = topic
        self.stopping = False
        self.producer = KafkaProducer[bytes, bytes](
            bootstrap_servers=bootstrap_servers,
            transactional_id=f"{topic}-booking-{instance}",
            transaction_timeout_ms=10_000,  # how long readers may have to wait for the transaction of a killed instance
        )
        self.consumer = KafkaConsumer[bytes, bytes](
            bootstrap_servers=bootstrap_servers,
            group_id=f"{topic}-booking",
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # offsets are committed with the transaction
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            max_poll_records=100,
        )

    def stop(self) -> None:
        """End ``run`` soon. Signal handlers and other threads may call this."""
        self.stopping = True
        self.consumer.wakeup()

    def run(self) -> None:
        """Book payments until ``stop`` is called.

        Raises:
            KafkaError: this instance cannot continue, for instance because another one has its name. Start it again.
        """
        with self.producer, self.consumer:
            self.producer.init_transactions()
            self.consumer.subscribe([self.topic])
            while not self.stopping:
                try:
                    payments = self.consumer.poll(timeout_ms=500)
                except errors.WakeupError:
                    continue
                if payments:
                    self.book_all(payments)

    def book_all(self, payments: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]) -> None:
        """Write the bookings and commit the offsets of ``payments`` in one transaction."""
        try:
            with self.producer.transaction():
                for records in payments.values():
                    for record in records:
                        self.producer.send(f"{self.topic}.bookings", book(record.value or b""), key=record.key)
                offsets = {tp: records[-1].offset + 1 for tp, records in payments.items()}
                self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        except (errors.CommitFailedError, errors.TransactionAbortableError) as error:
            log.warning("Nothing of this transaction is booked, and its payments are read again: %s", error)
            self.rewind()

    def rewind(self) -> None:
        """Read again from the committed offsets: the positions have moved past the payments that were aborted."""
        for tp in self.consumer.assignment():
            committed = self.consumer.committed(tp)
            if committed is None:
                self.consumer.seek_to_beginning(tp)
            else:
                self.consumer.seek(tp, committed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--topic", default="payments", help="default: payments")
    parser.add_argument("--instance", default="1", help="default: 1")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    service = BookingService(options.bootstrap_servers, options.topic, options.instance)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    service.run()
    log.info("Stopped")


if __name__ == "__main__":
    main()
