"""The driver of the exactly-once sink on a cluster: performs the requests of ``pykclient.spark.transactions``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from pykclient.admin.admin import Admin
from pykclient.admin.descriptions import TopicDescription
from pykclient.admin.values import (
    ConfigResource,
    OffsetSpec,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    AuthorizationError,
    ConfigError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TopicExistsError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
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

_POLICY, _COMPACT = "cleanup.policy", "compact"

#: The configuration of a ledger's topic, if the driver has to create it. Small segments keep compaction going.
_LEDGER_CONFIG = {_POLICY: _COMPACT, "segment.bytes": str(16 << 20), "max.message.bytes": str(8 << 20)}

#: The time within which the ledger's producer completes a transaction of its own. All queries that share the ledger
#: wait that long for one whose driver has died within such a transaction. Brokers take 10 s more to notice.
_LEDGER_TIMEOUT_MS = 30_000

#: The time to close the ledger's producer, which has nothing left to send.
_CLOSE_S = 5.0

#: The largest entry, in bytes.
_MOST_BYTES = 8 << 20

#: The number of records of the ledger that are read at first; then 16 times as many, and so on.
_FIRST_WINDOW = 64

#: The longest that a fetch waits for records, which are there already.
_FETCH_WAIT_MS = 10

#: The longest that a poll waits for a response.
_POLL_MS = 100

#: The bound of one wait for the ledger, longer than others may keep a transaction open in it.
_WAIT_MS = 60_000

#: The wait between two fetches behind an open transaction, at first and at most.
_BACKOFF_MS, _MOST_BACKOFF_MS = 10, 500

#: The bound of the wait for brokers to tell their settings. One may be down while a query starts.
_LIMITS_MS = 10_000

#: Settings of brokers.
_TWO_PHASE = "transaction.two.phase.commit.enable"
_MAX_TIMEOUT = "transaction.max.timeout.ms"

#: The transaction has ended, and the coordinator does not tell how: it knows a later producer of the id, or none at
#: all, because the id has expired.
_ENDED_BADLY = (
    ProducerFencedError,
    InvalidTxnStateError,
    InvalidProducerEpochError,
    InvalidPidMappingError,
    TransactionalIdNotFoundError,
)

#: States in which the markers of a transaction are being written, and the producer's next epoch is not in force yet.
_ENDING = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))


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
        self._is_ledger_checked = False
        self._position: int | None = None
        #: The last values of the ledger, which entries of other queries need not be able to be parsed; None: forgotten.
        self._found: dict[bytes, bytes | None] = {}
        self._performers: dict[type[Request], Callable[[Any], Any]] = {
            rules.Fence: self._fence,
            rules.Read: self._read,
            rules.Write: self._write,
            rules.End: self._end,
            rules.FindEnded: self._find_ended,
            rules.FindOpen: self._find_open,
            rules.FindOwner: self._find_owner,
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
        self._check_or_create_ledger()
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
        entry = request.entry
        with self._producer.transaction():
            self._producer.send(
                self._ledger.topic,
                None if entry is None else entry.as_bytes(),
                key=self._prefix.encode(),
                partition=self._ledger.partition,
            )
        if entry is not None:
            _logger.info("%s: batch %d is %s", self._prefix, entry.batch, entry.state)
        return Producer(*self._producer.producer_id_and_epoch)

    def _read(self, _request: rules.Read) -> Entry | None:
        return self.entry()

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

    def _find_open(self, _request: rules.FindOpen) -> list[Transaction]:
        listed = [each.transactional_id for each in self.open_transactions()]
        if not listed:
            return []
        described = self.admin.describe_transactions(listed).succeeded
        found = [
            Transaction(id, Producer(each.producer_id, each.producer_epoch), 0, {})
            for id, each in described.items()
            if each.state == TransactionState.ONGOING
        ]
        if found:
            ids = ", ".join(sorted(each.id for each in found))
            _logger.warning("Open transactions that no decision covers: %s", ids)
        return found

    def _find_owner(self, _request: rules.FindOwner) -> Producer | None:
        id = rules.driver_id(self._prefix)
        deadline_ms = SYSTEM_CLOCK.now_ms() + _WAIT_MS
        while True:
            described = self.admin.describe_transactions([id])
            if isinstance(described.failed.get(id), TransactionalIdNotFoundError):
                return None
            found = described.all()[id]
            if found.state not in _ENDING:
                return Producer(found.producer_id, found.producer_epoch)
            if SYSTEM_CLOCK.now_ms() > deadline_ms:
                raise KafkaTimeoutError(f"the transaction of {id} has not ended within {_WAIT_MS // 1_000} s")
            SYSTEM_CLOCK.sleep_ms(_BACKOFF_MS)

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

    def entry(self) -> Entry | None:
        """Return the prefix's last entry of all that were written before this call; None if there is none.

        Only new records are read if the ledger was read before. It is read up to its high watermark. An open
        transaction, such as the one of another query whose driver has died, holds back the last stable offset, and so
        would hide this query's later entries. So its end is waited for, which is at most its timeout.

        Raises:
            KafkaTimeoutError: The ledger could not be read within a minute. Names the transactions that are open.
            KafkaError: The entry cannot be read, or the ledger was deleted.
        """
        if not self._has_consumer():
            return None
        end = self.admin.list_offsets({self._ledger: OffsetSpec.LATEST}).all()[self._ledger].offset
        if self._position is None:
            self._read_back(end)
        elif end < self._position:
            raise KafkaError(
                f"the ledger {self._ledger.topic} ends at offset {end} and was read up to {self._position}: it was "
                "deleted, or has lost records"
            )
        else:
            self._read_range(self._position, end)
        self._position = end
        value = self._found.get(self._prefix.encode())
        return None if value is None else Entry.from_bytes(value)

    def entries(self) -> dict[str, Entry | None]:
        """Return the last committed entries of all prefixes; None for what cannot be read. Waits for no transaction.

        Raises:
            KafkaTimeoutError: They could not be read within a minute.
        """
        if not self._has_consumer() or self._consumer is None:
            return {}
        first = self._consumer.beginning_offsets([self._ledger])[self._ledger]
        self._read_range(first, self._consumer.end_offsets([self._ledger])[self._ledger])
        entries: dict[str, Entry | None] = {}
        for key, value in self._found.items():
            if value is not None:
                try:
                    entries[key.decode(errors="replace")] = Entry.from_bytes(value)
                except KafkaError:
                    entries[key.decode(errors="replace")] = None
        return entries

    def _has_consumer(self) -> bool:
        """Create the consumer. Return False if there is no ledger."""
        if self._consumer is None:
            # Once the ledger is known to exist, a broker that does not know it yet must not make it seem empty.
            if not self._is_ledger_checked and self._described_ledger() is None:
                return False
            self._check_or_create_ledger()
            consumer = KafkaConsumer[Any, Any](self._consumer_settings("read_committed"))
            self._consumer = self._clients.enter_context(consumer)
            self._consumer.assign([self._ledger])
        return True

    def _read_back(self, end: int) -> None:
        """Read from the end backwards, until an entry of the prefix is found."""
        assert self._consumer is not None
        first = self._consumer.beginning_offsets([self._ledger])[self._ledger]
        stop, window = end, _FIRST_WINDOW
        while stop > first and self._prefix.encode() not in self._found:
            start = max(first, stop - window)
            later, self._found = self._found, {}
            self._read_range(start, stop)
            self._found.update(later)
            stop, window = start, 16 * window

    def _read_range(self, start: int, stop: int) -> None:
        consumer = self._consumer
        if consumer is None or start >= stop:
            return
        deadline_ms, backoff_ms = SYSTEM_CLOCK.now_ms() + _WAIT_MS, _BACKOFF_MS
        consumer.seek(self._ledger, start)
        while (position := consumer.position(self._ledger)) < stop:
            for records in consumer.poll(_POLL_MS).values():
                for record in records:
                    if record.offset < stop and record.key is not None:
                        self._found[record.key] = record.value
            if consumer.position(self._ledger) > position:
                backoff_ms = _BACKOFF_MS
                continue
            if SYSTEM_CLOCK.now_ms() > deadline_ms:
                raise KafkaTimeoutError(
                    f"the ledger {self._ledger.topic} could not be read up to offset {stop} within "
                    f"{_WAIT_MS // 1_000} s; it got to {position}{self._holding(position)}"
                )
            SYSTEM_CLOCK.sleep_ms(backoff_ms)
            backoff_ms = min(2 * backoff_ms, _MOST_BACKOFF_MS)

    def _holding(self, position: int) -> str:
        """Return the part of an error that names open transactions in the ledger."""
        found = self.admin.describe_producers([self._ledger]).succeeded.get(self._ledger)
        open_ones = [
            f"of producer id {each.producer_id} from offset {each.current_transaction_start_offset}"
            for each in (found.active_producers if found else ())
            if 0 <= each.current_transaction_start_offset <= position
        ]
        if not open_ones:
            return ""
        return (
            f", where transactions are open: {', '.join(open_ones)}. They are those of other queries with this ledger, "
            f"and should have ended after {_LEDGER_TIMEOUT_MS // 1_000} s; `pykclient transactions hanging` tells "
            "whether brokers have forgotten them. A ledgerTopic of its own for each query avoids such waits"
        )

    def _described_ledger(self) -> TopicDescription | None:
        """Return the ledger's topic; None if the broker does not know it. Raises KafkaError if it does not answer."""
        described = self.admin.describe_topics([self._ledger.topic])
        if isinstance(described.failed.get(self._ledger.topic), UnknownTopicOrPartitionError):
            return None
        return described.all()[self._ledger.topic]

    def _check_or_create_ledger(self) -> None:
        """Create the ledger, or check that one that exists keeps its entries. Raises ConfigError if it does not."""
        if self._is_ledger_checked:
            return
        described = self._described_ledger()
        if described is not None or not self._create_ledger():
            self._check_ledger(described or self._awaited_ledger())
        self._is_ledger_checked = True

    def _awaited_ledger(self) -> TopicDescription:
        """Return the ledger's topic, which exists, as soon as brokers know it."""
        deadline_ms = SYSTEM_CLOCK.now_ms() + _WAIT_MS
        while (described := self._described_ledger()) is None:
            if SYSTEM_CLOCK.now_ms() > deadline_ms:
                raise KafkaTimeoutError(
                    f"the ledger {self._ledger.topic} exists, but brokers have not heard of it within "
                    f"{_WAIT_MS // 1_000} s"
                )
            SYSTEM_CLOCK.sleep_ms(_MOST_BACKOFF_MS)
        return described

    def _check_ledger(self, described: TopicDescription) -> None:
        topic = self._ledger.topic
        if len(described.partitions) != 1:
            raise _unfit_ledger(topic, f"has {len(described.partitions)} partitions")
        configs = self.admin.describe_configs([ConfigResource("topic", topic)])
        for error in configs.failed.values():
            if not isinstance(error, AuthorizationError):
                raise error
            _logger.warning(
                "The configuration of the ledger %s may not be read. Its cleanup.policy must be compact", topic
            )
        for found in configs.succeeded.values():
            if (policy := found[_POLICY].value) != _COMPACT:
                raise _unfit_ledger(topic, f"has cleanup.policy={policy}")

    def _create_ledger(self) -> bool:
        """Create the ledger. Return False if there is one."""
        created = self.admin.create_topics(
            {self._ledger.topic: {"num_partitions": 1, "replication_factor": -1, "configs": _LEDGER_CONFIG}}
        )
        for error in created.failed.values():
            if not isinstance(error, TopicExistsError):
                raise KafkaError(
                    f"the ledger {self._ledger.topic} could not be created: {error}. Create a topic with one partition "
                    "and cleanup.policy=compact, and name it in the option ledgerTopic"
                ) from error
        return not created.failed

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


def _unfit_ledger(topic: str, why: str) -> ConfigError:
    return ConfigError(
        f"the ledger {topic} {why}, and needs one partition and cleanup.policy=compact: a query whose decisions were "
        "deleted writes rows twice. Change the topic, or name another one in the option ledgerTopic",
        key="ledgerTopic",
    )


def _is_open(wanted: Transaction, found: TransactionDescription | None) -> bool:
    return (
        found is not None
        and found.state == TransactionState.ONGOING
        and (found.producer_id, found.producer_epoch) == wanted.producer
    )
