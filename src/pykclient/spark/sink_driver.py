"""The driver of the exactly-once sink on a cluster: performs the requests of ``pykclient.spark.transactions``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from pykclient.admin.admin import Admin
from pykclient.admin.values import ConfigResource, TransactionDescription, TransactionListing, TransactionState
from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    AuthorizationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TopicExistsError,
    TransactionalIdNotFoundError,
)
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.spark import transactions as rules
from pykclient.spark.transactions import (
    ENDED,
    FORGOTTEN,
    LOST,
    UNKNOWN,
    Entry,
    Producer,
    Request,
    Steps,
    T,
    Transaction,
)
from pykclient.types import TopicPartition

_logger = logging.getLogger(__name__)

#: The configuration of a ledger's topic, if the driver has to create it. Small segments keep compaction going.
_LEDGER_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "max.message.bytes": str(8 << 20)}

#: The time within which the ledger's producer completes a transaction of its own.
_LEDGER_TIMEOUT_MS = 60_000

#: The time to close the ledger's producer, which has nothing left to send.
_CLOSE_S = 5.0

#: The largest entry, in bytes.
_MOST_BYTES = 8 << 20

#: The number of records of the ledger that are read at first; then 16 times as many, and so on.
_FIRST_WINDOW = 64

#: The longest that a fetch waits for records, which are there already.
_FETCH_WAIT_MS = 10

#: The bound of one wait for the ledger.
_WAIT_MS = 60_000

#: The bound of the wait for brokers to tell their settings. One may be down while a query starts.
_LIMITS_MS = 10_000

#: Settings of brokers.
_TWO_PHASE = "transaction.two.phase.commit.enable"
_MAX_TIMEOUT = "transaction.max.timeout.ms"

_ENDED_BADLY = (ProducerFencedError, InvalidTxnStateError, InvalidProducerEpochError)


def connection_settings(config: Mapping[str, Any], table: type[AbstractConfig]) -> dict[str, Any]:
    """Return the settings of a producer that another kind of client has, too: addresses, security, timeouts."""
    return {key: value for key, value in config.items() if key in table.DEFINITION.keys}


class BrokerLimits(NamedTuple):
    """Support for two-phase commits by all brokers, and the longest transaction timeout in ms; None: not known."""

    two_phase_commit: bool
    transaction_max_timeout_ms: int | None


class SinkDriver:
    """The clients of the driver, for openings, commits and commands.

    ``config`` is the producer's. Each opening, commit or command fences earlier ones, so ``end`` closes the ledger's
    producer after it. The other clients can be kept for the next one. Thread: owner.
    """

    def __init__(self, config: Mapping[str, Any], prefix: str, ledger: str) -> None:
        self._config = config
        self._prefix = prefix
        self._ledger = TopicPartition(ledger, 0)
        self._clients = contextlib.ExitStack()
        self._admin: Admin | None = None
        self._producer: KafkaProducer[Any, Any] | None = None
        self._consumer: KafkaConsumer[Any, Any] | None = None
        self._position: int | None = None
        self._found: dict[str, Entry | None] = {}  # None: forgotten
        self._performers: dict[type[Request], Callable[[Any], Any]] = {
            rules.Fence: self._fence,
            rules.Read: self._read,
            rules.Write: self._write,
            rules.End: self._end,
            rules.FindEnded: self._find_ended,
            rules.AbortOpen: self._abort_open,
        }

    def run(self, steps: Steps[T]) -> T:
        """Perform the requests of a driver's function, and return its result.

        Raises:
            KafkaError: The function has raised it, or a request has failed.
        """
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._performers[type(request)](request)
                except KafkaError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    # --- requests ------------------------------------------------------------------------------------------------

    def _fence(self, _request: rules.Fence) -> Producer:
        self._create_ledger()
        if self._producer is None:
            settings = {
                **connection_settings(self._config, ConsumerConfig),
                "transactional.id": rules.driver_id(self._prefix),
                "transaction.timeout.ms": _LEDGER_TIMEOUT_MS,
                "linger.ms": 0,
                "max.request.size": _MOST_BYTES,
                "compression.type": "gzip",
            }
            self._producer = KafkaProducer[Any, Any](settings)
            self._producer.init_transactions()
        return Producer(*self._producer.producer_id_and_epoch)

    def _write(self, request: rules.Write) -> Producer:
        assert self._producer is not None
        with self._producer.transaction():
            self._producer.send(
                self._ledger.topic,
                request.entry.as_bytes(),
                key=self._prefix.encode(),
                partition=self._ledger.partition,
            )
        _logger.info("%s: batch %d is %s", self._prefix, request.entry.batch, request.entry.state)
        return Producer(*self._producer.producer_id_and_epoch)

    def _read(self, _request: rules.Read) -> Entry | None:
        return self.entries().get(self._prefix)

    def _end(self, request: rules.End) -> dict[str, str]:
        wanted = {each.id: (each.producer.producer_id, each.producer.epoch) for each in request.transactions}
        results = self.admin.end_transactions(wanted, request.commit)
        outcomes = dict.fromkeys(results.succeeded, ENDED)
        for id, error in results.failed.items():
            _logger.warning("Transaction %s could not be ended: %s", id, error)
            outcomes[id] = UNKNOWN
        for each in request.transactions:
            if isinstance(results.failed.get(each.id), _ENDED_BADLY):
                is_committed = self._is_committed(each)
                if is_committed is None:
                    outcomes[each.id] = FORGOTTEN
                else:
                    outcomes[each.id] = ENDED if is_committed == request.commit else LOST
        return outcomes

    def _is_committed(self, transaction: Transaction) -> bool | None:
        """Return whether the rows of a transaction are committed, which only the rows tell; None if even they do not.

        The coordinator knows the last transaction of an id. If another producer had the id since then, it cannot tell.
        """
        if not transaction.offsets:
            return None
        topic, partitions = next(iter(transaction.offsets.items()))
        number, offsets = next(iter(partitions.items()))
        place, offset = TopicPartition(topic, int(number)), offsets[0]
        if self._has_record(place, offset, "read_committed"):
            return True
        return False if self._has_record(place, offset, "read_uncommitted") else None

    def _has_record(self, place: TopicPartition, offset: int, isolation: str) -> bool:
        with KafkaConsumer[Any, Any](self._consumer_settings(isolation)) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            deadline_ms = SYSTEM_CLOCK.now_ms() + _WAIT_MS
            while consumer.position(place) <= offset:
                for record in consumer.poll(1_000, max_records=1).get(place, ()):
                    return record.offset == offset
                if SYSTEM_CLOCK.now_ms() > deadline_ms:
                    raise KafkaTimeoutError(
                        f"{place} could not be read beyond offset {offset} within {_WAIT_MS // 1_000} s ({isolation}): "
                        "an open transaction may begin before it"
                    )
        return False

    def _find_ended(self, request: rules.FindEnded) -> set[str]:
        described = self.admin.describe_transactions([each.id for each in request.transactions])
        for error in described.failed.values():
            if not isinstance(error, TransactionalIdNotFoundError):
                raise error
        return {each.id for each in request.transactions if not _is_open(each, described.succeeded.get(each.id))}

    def _abort_open(self, _request: rules.AbortOpen) -> int:
        found = [each.transactional_id for each in self.open_transactions()]
        if found:
            _logger.warning("Aborting open transactions that no decision covers: %s", ", ".join(sorted(found)))
            self.admin.fence_producers(found).all()
        return len(found)

    # --- the clients -----------------------------------------------------------------------------------------------

    @property
    def admin(self) -> Admin:
        """The client for transactions."""
        if self._admin is None:
            self._admin = self._clients.enter_context(Admin(connection_settings(self._config, AdminClientConfig)))
        return self._admin

    def _consumer_settings(self, isolation: str) -> dict[str, Any]:
        return {
            **connection_settings(self._config, ConsumerConfig),
            "isolation.level": isolation,
            "allow.auto.create.topics": False,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # Other requests wait for a fetch in flight, such as the one that follows the last record.
            "fetch.max.wait.ms": _FETCH_WAIT_MS,
        }

    def broker_limits(self) -> BrokerLimits:
        """Return what the brokers that respond allow. Little is known if the principal may not ask."""
        brokers = [ConfigResource("broker", str(node.id)) for node in self.admin.describe_cluster().nodes]
        found = self.admin.describe_configs(brokers, timeout_ms=_LIMITS_MS)
        for error in found.failed.values():
            if not isinstance(error, (AuthorizationError, KafkaTimeoutError)):
                raise error
        if any(isinstance(error, AuthorizationError) for error in found.failed.values()):
            return BrokerLimits(False, None)
        values = [{key: config.value for key, config in configs.items()} for configs in found.succeeded.values()]
        return BrokerLimits(
            bool(values) and all(each.get(_TWO_PHASE) == "true" for each in values),
            min((int(each[_MAX_TIMEOUT] or 0) for each in values if _MAX_TIMEOUT in each), default=None),
        )

    def open_transactions(self, pattern: str | None = None) -> list[TransactionListing]:
        """Return the open transactions of the query's tasks, or those whose ids match ``pattern``."""
        return self.admin.list_transactions(
            states=[TransactionState.ONGOING],
            transactional_id_pattern=rules.pattern_of(self._prefix) if pattern is None else pattern,
        )

    def entries(self) -> dict[str, Entry]:
        """Return the last entries of the ledger by prefix: at least that of this prefix, if there is one.

        Only new records are read if it was read before.

        Raises:
            KafkaTimeoutError: They could not be read within a minute.
        """
        if self._consumer is None:
            if not self._has_ledger():
                return {}
            consumer = KafkaConsumer[Any, Any](self._consumer_settings("read_committed"))
            self._consumer = self._clients.enter_context(consumer)
            self._consumer.assign([self._ledger])
        ends = self._consumer.end_offsets([self._ledger])
        end, window = ends[self._ledger], _FIRST_WINDOW
        if self._position is not None:
            self._read_range(self._position, end)
        else:
            first = self._consumer.beginning_offsets([self._ledger])[self._ledger]
            stop = end
            while stop > first and self._prefix not in self._found:
                start = max(first, stop - window)
                later, self._found = self._found, {}
                self._read_range(start, stop)
                self._found.update(later)
                stop, window = start, 16 * window
        self._position = end
        return {prefix: entry for prefix, entry in self._found.items() if entry is not None}

    def _read_range(self, start: int, stop: int) -> None:
        consumer = self._consumer
        if consumer is None or start >= stop:
            return
        deadline_ms = SYSTEM_CLOCK.now_ms() + _WAIT_MS
        consumer.seek(self._ledger, start)
        while consumer.position(self._ledger) < stop:
            for records in consumer.poll(1_000).values():
                for record in records:
                    if record.offset < stop and record.key is not None:
                        self._take(record.key.decode(), record.value)
            if SYSTEM_CLOCK.now_ms() > deadline_ms:
                raise KafkaTimeoutError(
                    f"the ledger {self._ledger.topic} could not be read up to offset {stop} within "
                    f"{_WAIT_MS // 1_000} s; it got to {consumer.position(self._ledger)}"
                )

    def _take(self, prefix: str, value: bytes | None) -> None:
        self._found[prefix] = None if value is None else Entry.from_bytes(value)

    def forget(self) -> None:
        """Remove the prefix's entry from the ledger, and fence its driver."""
        self._fence(rules.Fence())
        assert self._producer is not None
        with self._producer.transaction():
            self._producer.send(self._ledger.topic, None, key=self._prefix.encode(), partition=self._ledger.partition)

    def _has_ledger(self) -> bool:
        return not self.admin.describe_topics([self._ledger.topic]).failed

    def _create_ledger(self) -> None:
        if self._producer is not None or self._consumer is not None or self._has_ledger():
            return
        created = self.admin.create_topics(
            {self._ledger.topic: {"num_partitions": 1, "replication_factor": -1, "configs": _LEDGER_CONFIG}}
        )
        for error in created.failed.values():
            if not isinstance(error, TopicExistsError):
                raise KafkaError(
                    f"the ledger {self._ledger.topic} could not be created: {error}. Create a compacted topic with one "
                    "partition, and name it in the option ledgerTopic"
                ) from error

    # --- scope ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def end(self) -> None:
        """Close the ledger's producer, so that the next opening or commit gets a new epoch."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(_CLOSE_S)

    def close(self) -> None:
        """Close all clients."""
        try:
            self.end()
        finally:
            self._clients.close()


def _is_open(wanted: Transaction, found: TransactionDescription | None) -> bool:
    return (
        found is not None
        and found.state == TransactionState.ONGOING
        and (found.producer_id, found.producer_epoch) == wanted.producer
    )
