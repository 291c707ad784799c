"""A task of the exactly-once sink: its rows are in a transaction.

The task leaves it open for the driver, or commits it with a token.

A task of a batch that is committed already only counts its rows and takes their fingerprint, for the driver to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pykclient.errors import TransactionalIdAuthorizationError, UnsupportedVersionError
from pykclient.producer.columns import ColumnEncoder
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.record.arrow import bytes_column, headers_column
from pykclient.record.row_columns import BytesColumn, Rows, fingerprint
from pykclient.spark.deliveries import Deliveries
from pykclient.spark.transactions import (
    CommitTask,
    Content,
    Producer,
    Ranges,
    Token,
    Transaction,
    offsets_of,
    token_key,
)
from pykclient.spark.worker import task_name

#: The time that a failed task has to abort its transaction. If that does not suffice, the driver aborts it.
_FAILED_CLOSE_S = 5.0


def content_of(topic: str, data: Any, *, value: Any = None, key: Any = None, headers: Any = None) -> Content:
    """Return the content of rows of a topic. Arguments are those of ``KafkaProducer.send_batch``, with column names."""
    others = frozenset(name for name in (value, key, headers) if isinstance(name, str))
    rows = Rows(
        data.num_rows,
        _bytes(data, topic, "key", key, others),
        _bytes(data, topic, "value", value, others),
        None if headers is None else headers_column(data.column(headers), "headers"),
        None,
        0,
    )
    return Content(data.num_rows, fingerprint(rows, _seed(topic)))


def _bytes(data: Any, topic: str, part: str, given: Any, others: frozenset[str]) -> BytesColumn | None:
    """Return the keys or values of rows, from the name of their column or from an encoder of typed columns."""
    if given is None:
        return None
    if isinstance(given, ColumnEncoder):
        return given.encode_rows(data, topic, part, others)
    return bytes_column(data.column(given), part)


@lru_cache(maxsize=1024)
def _seed(topic: str) -> int:
    return fingerprint(Rows(1, None, BytesColumn.of([topic.encode()]), None, None, 0))


class RepeatedRows:
    """Takes the rows of a task whose batch is committed already. Thread: owner."""

    def __init__(self) -> None:
        self.content = Content(0, 0)

    def send_batch(
        self, topic: str, data: Any, *, value: Any = None, key: Any = None, headers: Any = None, partition: Any = None
    ) -> None:
        """Add rows to the content."""
        del partition  # where the same row was written does not matter
        self.content = Content.total((self.content, content_of(topic, data, value=value, key=key, headers=headers)))

    def check(self) -> None:
        """Nothing can fail."""

    def end(self, *, failed: bool) -> int:
        """Return the number of rows."""
        del failed
        return self.content.rows


class TransactionalLease:
    """A producer for one attempt of one task, in a transaction that is open from the first row on.

    A producer cannot be kept for later tasks: the end of its transaction changes its epoch, which only the driver
    learns. Thread: owner.
    """

    def __init__(self, config: Mapping[str, Any], id: str, *, two_phase: bool) -> None:
        """Begin a transaction. Raises KafkaError if that fails."""
        self._id = id
        self._deliveries = Deliveries(keep_offsets=True)
        self._content = Content(0, 0)
        #: The transaction that was left open; None as long as it was not.
        self.transaction: Transaction | None = None
        #: False if the transaction times out.
        self.is_two_phase = False
        self._producer = self._begun(config, two_phase)

    def _begun(self, config: Mapping[str, Any], two_phase: bool) -> KafkaProducer[Any, Any]:
        self.is_two_phase = two_phase
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
        content = content_of(topic, data, value=value, key=key, headers=headers)
        self._content = Content.total((self._content, content))

    def check(self) -> None:
        """Raise KafkaError if some rows are known to have failed."""
        self._deliveries.check(f"sent so far by {task_name()}")

    def end(self, *, failed: bool) -> int:
        """Wait for all rows, complete the transaction, and return their number. If ``failed``, abort it.

        Raises:
            KafkaError: Some rows were not written. The transaction is aborted.
        """
        deliveries, producer = self._deliveries, self._producer
        try:
            if not failed:
                failed = True
                producer.flush()
                deliveries.check(f"of {task_name()}")
                failed = not self._complete(self._content, offsets_of(deliveries.pieces or {}))
        finally:
            producer.close(_FAILED_CLOSE_S if failed else None, keep_transaction=not failed)
        return deliveries.sent

    def _complete(self, content: Content, offsets: Ranges) -> bool:
        """Leave the transaction open, and return True; or return False, to abort it."""
        identity = Producer(*self._producer.producer_id_and_epoch)
        self.transaction = Transaction(self._id, identity, content.rows, offsets, content.fingerprint)
        return True


class CommittingLease(TransactionalLease):
    """A producer for one attempt of one task, which commits its transaction together with a token.

    ``decide`` runs ``commit_task`` for the rows, and returns the token that is committed. It gets the function that
    performs CommitTask. Thread: owner.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        id: str,
        topic: str,
        prefix: str,
        decide: Callable[[Callable[[CommitTask], None], Content, Ranges], Token],
    ) -> None:
        """Begin a transaction. Raises KafkaError if that fails."""
        self._topic = topic
        self._prefix = prefix
        self._decide = decide
        #: The token, of this attempt or an earlier one; None as long as nothing is known to be committed.
        self.token: Token | None = None
        super().__init__(config, id, two_phase=False)

    def _complete(self, content: Content, offsets: Ranges) -> bool:
        is_committed = False

        def commit(request: CommitTask) -> None:
            nonlocal is_committed
            key = token_key(self._prefix, request.token.partition)
            self._producer.send(self._topic, request.token.as_bytes(), key=key, partition=0)
            self._producer.commit_transaction()
            is_committed = True

        self.token = self._decide(commit, content, offsets)
        return is_committed
