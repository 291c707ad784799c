"""One member of an exactly-once pipeline, as a process: it copies records with their keys and commits in transactions.

``python -m tests.chaos.copier <servers> <source> <target> <group> <protocol> <instance>`` runs until SIGTERM. It prints
``generation 1`` or ``generation 2`` whenever its transactions change to that generation (KIP-890), and ends with the
name of an error that it cannot go on after, for its supervisor to start it again.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
from typing import Any

from pykclient import ConsumerRecord, KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import CommitFailedError, KafkaError, KafkaTimeoutError, TransactionAbortableError, WakeupError

#: How long a group does without a member that was killed.
SESSION_MS = 4_000

Polled = dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]


class Copier:
    """A consumer of the source, and a producer to the target."""

    transaction_timeout_ms = 20_000

    def __init__(self, servers: str, source: str, target: str, group: str, protocol: str, instance: str) -> None:
        self._source, self._target = source, target
        self._generation = 0
        self.stopping = False
        shared: dict[str, Any] = {
            "bootstrap_servers": servers,
            "request_timeout_ms": 5_000,
            "reconnect_backoff_max_ms": 500,
        }
        # The brokers set these of the other protocol; see the test.
        session: dict[str, Any] = {}
        if protocol == "classic":
            session = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500}
        self.producer = KafkaProducer[bytes, bytes](
            **shared,
            transactional_id=f"{group}-{instance}",
            transaction_timeout_ms=self.transaction_timeout_ms,
            delivery_timeout_ms=20_000,
        )
        self.consumer = KafkaConsumer[bytes, bytes](
            **shared,
            **session,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=100,
        )

    def stop(self) -> None:
        """End ``run`` soon."""
        self.stopping = True
        self.consumer.wakeup()

    def run(self) -> None:
        with self.producer, self.consumer:
            self.producer.init_transactions()
            self.consumer.subscribe([self._source])
            while not self.stopping:
                try:
                    polled = self.consumer.poll(timeout_ms=500)
                    if polled:
                        self._copy_all(polled)
                except WakeupError:
                    continue

    def _copy_all(self, polled: Polled) -> None:
        try:
            with self.producer.transaction():
                self._note_generation()
                for records in polled.values():
                    for record in records:
                        self.producer.send(self._target, record.value, key=record.key)
                offsets = {tp: records[-1].offset + 1 for tp, records in polled.items()}
                self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        except (CommitFailedError, TransactionAbortableError) as error:
            logging.warning("aborted: %s", error)
            self._rewind()

    def _note_generation(self) -> None:
        transactions = self.producer._components.transactions
        assert transactions is not None
        generation = 2 if transactions.is_v2 else 1
        if generation != self._generation:
            self._generation = generation
            print("generation", generation, flush=True)

    def _rewind(self) -> None:
        """Seek to the committed offsets. A partition that is lost meanwhile needs none."""
        for tp in self.consumer.assignment():
            committed = self.consumer.committed(tp)
            if committed is None:
                self.consumer.seek_to_beginning(tp)
            else:
                self.consumer.seek(tp, committed)


def main() -> int:
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    copier = Copier(*sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: copier.stop())
    try:
        copier.run()
    except KafkaError as error:
        logging.exception("ends")
        kind = "KafkaTimeoutError" if isinstance(error, KafkaTimeoutError) else type(error).__name__
        print("ends", kind, flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
