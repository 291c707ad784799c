"""The methods of KafkaAdminClient for transactions and producers, as kafka-python has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykclient.admin import expect
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.cluster import broker_id_arguments
from pykclient.admin.transactions import (
    abort_spec,
    abort_transaction,
    as_kafka_python,
    describe_producers,
    describe_transactions,
    end_transactions,
    hanging_transactions,
    list_transactions,
    open_transactions_argument,
    transaction_filter,
)
from pykclient.admin.values import (
    AbortTransactionSpec,
    PartitionProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from pykclient.types import TopicPartition


class TransactionCalls(AdminBase):
    """Transactions and producers."""

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Return the transactions of each broker that coordinates some; only those that match all filters.

        ``duration_filter_ms`` is how long they have been open at least. ``transactional_id_pattern`` is a regular
        expression.

        Raises:
            UnsupportedVersionError: the brokers are too old for a filter.
            KafkaError: a broker could not list its transactions.
        """
        brokers = None if broker_ids is None else broker_id_arguments(broker_ids, "broker_ids")
        wanted = transaction_filter(producer_id_filters, state_filters, duration_filter_ms, transactional_id_pattern)
        return self._run("list_transactions", None, lambda it: list_transactions(it, brokers, wanted)).all()

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Describe transactions by their transactional ids.

        Raises:
            TransactionalIdNotFoundError: a coordinator does not know an id.
            TransactionalIdAuthorizationError: not authorized to describe an id.
            KafkaError: any other error of an id.
        """
        ids = expect.texts(transactional_ids, "transactional_ids")
        return self._run("describe_transactions", None, lambda it: describe_transactions(it, ids)).all()

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Return the producers that have written to partitions lately, as the leaders or one broker know them.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            NotLeaderOrFollowerError: the named broker has no replica of a partition.
            KafkaError: any other error of a partition.
        """
        wanted = expect.partitions(partitions, "partitions")
        broker = None if broker_id is None else expect.number(broker_id, "broker_id")
        return self._run("describe_producers", None, lambda it: describe_producers(it, wanted, broker)).all()

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Abort the transaction of a producer on one partition, if nothing else ends it.

        Raises:
            InvalidProducerEpochError: the producer has another epoch by now.
            ClusterAuthorizationError: not authorized to alter the cluster.
            KafkaError: any other error of the partition.
        """
        wanted = abort_spec(spec)
        self._run("abort_transaction", None, lambda it: abort_transaction(it, wanted)).all()

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, commit: bool) -> None:
        """Commit or abort a transaction that its producer left open by ``KafkaProducer.close(keep_transaction=True)``.

        ``producer_id`` and ``epoch`` are the producer's ``producer_id_and_epoch``. The call can be repeated: ending a
        transaction again in the same way succeeds, until a producer with its ``transactional_id`` has started since.
        Kafka's own clients end only transactions of their own.

        Raises:
            InvalidTxnStateError: the transaction was ended in the other way, or has no records.
            ProducerFencedError: a later producer has the ``transactional_id``, or the transaction has timed out.
            InvalidPidMappingError: the coordinator has another producer id, or none, for the id.
            TransactionalIdAuthorizationError: not authorized to write with the ``transactional_id``.
            KafkaError: any other error, or the call has timed out. The transaction may have been ended.
        """
        id = expect.text(transactional_id, "transactional_id")
        ends = open_transactions_argument({id: (producer_id, epoch)})
        is_commit = expect.flag(commit, "commit")
        self._run("end_transaction", None, lambda it: end_transactions(it, ends, is_commit)).all()

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900000
    ) -> list[dict[str, Any]]:
        """Return open transactions that are five minutes older than ``max_transaction_timeout_ms``.

        That should be the brokers' ``transaction.max.timeout.ms``. The ages are by the clock of this machine.
        """
        brokers = None if broker_ids is None else broker_id_arguments(broker_ids, "broker_ids")
        most_ms = expect.number(max_transaction_timeout_ms, "max_transaction_timeout_ms")
        wall_ms = self._components.clock.wall_ms()
        found = self._run(
            "find_hanging_transactions", None, lambda it: hanging_transactions(it, brokers, most_ms, wall_ms)
        )
        return [dict(as_kafka_python(transaction)) for transaction in found]
