"""A task of the exactly-once sink: its rows are in a transaction that it leaves open for the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykclient.errors import TransactionalIdAuthorizationError, UnsupportedVersionError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.spark.deliveries import Deliveries
from pykclient.spark.transactions import Producer, Transaction, offsets_of, transactional_id
from pykclient.spark.worker import task_attempt, task_name

#: The time that a failed task has to abort its transaction. If that does not suffice, the driver aborts it.
_FAILED_CLOSE_S = 5.0


class TransactionalLease:
    """A producer for one attempt of one task, in a transaction that is open from the first row on.

    A producer cannot be kept for later tasks: the end of its transaction changes its epoch, which only the driver
    learns. Thread: owner.
    """

    __slots__ = ("_deliveries", "_id", "_producer", "transaction")

    def __init__(self, config: Mapping[str, Any], prefix: str, *, two_phase: bool) -> None:
        """Begin a transaction. Raises KafkaError if that fails."""
        attempt = task_attempt()
        self._id = transactional_id(prefix, attempt.partition, attempt.attempt)
        self._deliveries = Deliveries(keep_offsets=True)
        #: The transaction that was left open; None as long as it was not.
        self.transaction: Transaction | None = None
        self._producer = self._begun(config, two_phase)

    def _begun(self, config: Mapping[str, Any], two_phase: bool) -> KafkaProducer[Any, Any]:
        settings = {**config, "transactional.id": self._id}
        if two_phase:
            settings.pop("transaction.timeout.ms", None)
            settings["transaction.two.phase.commit.enable"] = True
        producer: KafkaProducer[Any, Any] = KafkaProducer(settings)
        try:
            producer.init_transactions()
            producer.begin_transaction()
        except (UnsupportedVersionError, TransactionalIdAuthorizationError):
            producer.close(_FAILED_CLOSE_S)
            if two_phase:  # brokers may allow it by their configuration, and still not offer the version of the request
                return self._begun(config, False)
            raise
        except BaseException:
            producer.close(_FAILED_CLOSE_S)
            raise
        return producer

    def send_batch(
        self, topic: str, data: Any, *, value: Any = None, key: Any = None, headers: Any = None, partition: Any = None
    ) -> None:
        """Send rows in the transaction."""
        future = self._producer.send_batch(topic, data, value=value, key=key, headers=headers, partition=partition)
        self._deliveries.add(future)

    def check(self) -> None:
        """Raise KafkaError if some rows are known to have failed."""
        self._deliveries.check(f"sent so far by {task_name()}")

    def end(self, *, failed: bool) -> int:
        """Wait for all rows, leave the transaction open, and return their number. If ``failed``, abort it.

        Raises:
            KafkaError: Some rows were not written. The transaction is aborted.
        """
        deliveries, producer = self._deliveries, self._producer
        try:
            if not failed:
                failed = True
                producer.flush()
                deliveries.check(f"of {task_name()}")
                identity = Producer(*producer.producer_id_and_epoch)
                self.transaction = Transaction(self._id, identity, deliveries.sent, offsets_of(deliveries.pieces or {}))
                failed = False
        finally:
            producer.close(_FAILED_CLOSE_S if failed else None, keep_transaction=not failed)
        return deliveries.sent
