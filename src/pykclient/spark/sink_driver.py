"""The driver of the exactly-once sink, and its tasks, on a cluster: performs the requests of ``transactions``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from pykclient.admin.admin import Admin
from pykclient.admin.values import ConfigResource, TransactionDescription, TransactionListing, TransactionState
from pykclient.clock import SYSTEM_CLOCK
from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    AuthorizationError,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.spark import transactions as rules
from pykclient.spark.compacted_topic import MOST_BYTES, WAIT_MS, CompactedTopic, connection_settings, reading_settings
from pykclient.spark.transactions import (
    ENDED,
    FORGOTTEN,
    LOST,
    UNKNOWN,
    Entry,
    FoundToken,
    Producer,
    Request,
    Steps,
    T,
    Token,
    TokenLog,
    Transaction,
)
from pykclient.types import TopicPartition

_logger = logging.getLogger(__name__)

#: The time within which the ledger's producer completes a transaction of its own. All queries that share the ledger
#: wait that long for one whose driver has died within such a transaction. Brokers take 10 s more to notice.
_LEDGER_TIMEOUT_MS = 30_000

#: The time to close the ledger's producer, which has nothing left to send.
_CLOSE_S = 5.0

#: The number of records of the ledger that are read at first; then 16 times as many, and so on.
_FIRST_WINDOW = 64

#: The wait between two looks at a transaction that is ending.
_BACKOFF_MS = 10

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


class BrokerLimits(NamedTuple):
    """Support for two-phase commits by all brokers, and the longest transaction timeout in ms; None: not known."""

    two_phase_commit: bool
    transaction_max_timeout_ms: int | None


class SinkDriver:
    """The clients of the driver, for openings, commits and commands; or of a task that commits its own rows.

    ``config`` is the producer's. Each opening, commit or command fences earlier ones, so ``end`` closes the ledger's
    producer after it. The other clients can be kept for the next one. Thread: owner.
    """

    def __init__(self, config: Mapping[str, Any], prefix: str, ledger: str) -> None:
        self._config = config
        self._prefix = prefix
        self._clients = contextlib.ExitStack()
        #: Producers of the ledger keep transactions open for a short time only. Tasks do so for as long as they like,
        #: so their tokens are looked for among all records, and only those that are found are waited for.
        self._ledger = CompactedTopic(
            ledger,
            "ledger",
            f"other queries with this ledger, and should have ended after {_LEDGER_TIMEOUT_MS // 1_000} s",
            config,
            "read_committed",
            lambda: self.admin,
            self._clients,
        )
        self._tokens, self._committed_tokens = (
            CompactedTopic(
                rules.tokens_topic(ledger), "token topic", "tasks", config, level, lambda: self.admin, self._clients
            )
            for level in ("read_uncommitted", "read_committed")
        )
        self._admin: Admin | None = None
        self._producer: KafkaProducer[Any, Any] | None = None
        self._position: int | None = None
        #: The last values of the ledger, which entries of other queries need not be able to be parsed; None: forgotten.
        self._found: dict[bytes, bytes | None] = {}
        self._performers: dict[type[Request], Callable[[Any], Any]] = {
            rules.Fence: self._fence,
            rules.Read: lambda _: self.entry(),
            rules.Write: self._write,
            rules.End: self._end,
            rules.FindEnded: self._find_ended,
            rules.FindOpen: self._find_open,
            rules.FindOwner: self._find_owner,
            rules.ReadTokens: self._read_tokens,
            rules.IsCommitted: lambda asked: self._has_record(self._tokens.place, asked.offset, "read_committed"),
            rules.FenceTask: lambda task: self.admin.fence_producers([task.id]).all(),
        }

    def run(self, steps: Steps[T], commit_task: Callable[[rules.CommitTask], None] | None = None) -> T:
        """Perform the requests of a function of a driver or a task, and return its result.

        ``commit_task`` performs the one that a task's own producer must perform.

        Raises:
            KafkaError: The function has raised it, or a request has failed.
        """
        try:
            request = next(steps)
            while True:
                try:
                    if isinstance(request, rules.CommitTask) and commit_task is not None:
                        answer = commit_task(request)
                    else:
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
        self._ledger.check_or_create()
        if self._producer is None:
            settings = {
                **connection_settings(self._config, ConsumerConfig, ProducerConfig),
                "transactional.id": rules.driver_id(self._prefix),
                "transaction.timeout.ms": _LEDGER_TIMEOUT_MS,
                "linger.ms": 0,
                "max.request.size": MOST_BYTES,
                "compression.type": "gzip",
            }
            self._producer = KafkaProducer[Any, Any](settings)
            self._producer.init_transactions()
        return Producer(*self._producer.producer_id_and_epoch)

    def _write(self, request: rules.Write) -> Producer:
        assert self._producer is not None
        entry = request.entry
        with self._producer.transaction():
            for key in self._token_keys() if entry is None else ():
                self._producer.send(self._tokens.place.topic, None, key=key, partition=self._tokens.place.partition)
            self._producer.send(
                self._ledger.place.topic,
                None if entry is None else entry.as_bytes(),
                key=self._prefix.encode(),
                partition=self._ledger.place.partition,
            )
        if entry is not None:
            _logger.info("%s: batch %d is %s", self._prefix, entry.batch, entry.state)
        return Producer(*self._producer.producer_id_and_epoch)

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
        with KafkaConsumer[Any, Any](reading_settings(self._config, isolation)) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            deadline_ms = SYSTEM_CLOCK.now_ms() + WAIT_MS
            while consumer.position(place) <= offset:
                for record in consumer.poll(1_000, max_records=1).get(place, ()):
                    return record.offset == offset
                if SYSTEM_CLOCK.now_ms() > deadline_ms:
                    raise KafkaTimeoutError(
                        f"{place} could not be read beyond offset {offset} within {WAIT_MS // 1_000} s ({isolation}): "
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
        deadline_ms = SYSTEM_CLOCK.now_ms() + WAIT_MS
        while True:
            described = self.admin.describe_transactions([id])
            if isinstance(described.failed.get(id), TransactionalIdNotFoundError):
                return None
            found = described.all()[id]
            if found.state not in _ENDING:
                return Producer(found.producer_id, found.producer_epoch)
            if SYSTEM_CLOCK.now_ms() > deadline_ms:
                raise KafkaTimeoutError(f"the transaction of {id} has not ended within {WAIT_MS // 1_000} s")
            SYSTEM_CLOCK.sleep_ms(_BACKOFF_MS)

    def _read_tokens(self, request: rules.ReadTokens) -> TokenLog:
        if request.start is None:
            self._tokens.check_or_create()
            return TokenLog(self._tokens.end())
        end = self._tokens.end(request.start)
        records = self._token_records(request.start, end)
        found = [FoundToken(offset, Token.from_bytes(value)) for offset, _, value in records if value is not None]
        return TokenLog(end, found)

    def _token_records(self, start: int, end: int) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield offset, key and value of the prefix's tokens, whatever became of their transactions."""
        for record in self._tokens.read(start, end):
            if record.key is not None and rules.prefix_of(record.key) == self._prefix:
                yield record.offset, record.key, record.value

    def _token_keys(self) -> list[bytes]:
        """Return the keys of the prefix's tokens that are not removed."""
        if not self._tokens.exists():
            return []
        first, end = self._tokens.stable_range()
        values = {key: value for _, key, value in self._token_records(first, end)}
        return [key for key, value in values.items() if value is not None]

    # --- the clients -----------------------------------------------------------------------------------------------

    @property
    def admin(self) -> Admin:
        """The client for transactions."""
        if self._admin is None:
            self._admin = self._clients.enter_context(Admin(connection_settings(self._config, AdminClientConfig)))
        return self._admin

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
        if not self._ledger.exists():
            return None
        self._ledger.check_or_create()
        end = self._ledger.end(self._position)
        if self._position is None:
            self._read_back(end)
        else:
            self._take(self._position, end)
        self._position = end
        value = self._found.get(self._prefix.encode())
        return None if value is None else Entry.from_bytes(value)

    def entries(self) -> dict[str, Entry | None]:
        """Return the last committed entries of all prefixes; None for what cannot be read. Waits for no transaction.

        Raises:
            KafkaTimeoutError: They could not be read within a minute.
        """
        if not self._ledger.exists():
            return {}
        self._ledger.check_or_create()
        self._take(*self._ledger.stable_range())
        entries: dict[str, Entry | None] = {}
        for key, value in self._found.items():
            if value is not None:
                try:
                    entries[key.decode(errors="replace")] = Entry.from_bytes(value)
                except KafkaError:
                    entries[key.decode(errors="replace")] = None
        return entries

    def tokens_after_done(self, entries: Mapping[str, Entry | None]) -> dict[str, list[Token]]:
        """Return by prefix the committed tokens of batches after the one that is done. Waits for no transaction.

        Raises:
            KafkaTimeoutError: They could not be read within a minute.
        """
        by_tasks = {prefix: entry for prefix, entry in entries.items() if entry and entry.state == rules.BY_TASKS}
        if not by_tasks or not self._committed_tokens.exists():
            return {}
        first, end = self._committed_tokens.stable_range()
        start = max(first, min(entry.position for entry in by_tasks.values()))
        found: dict[str, dict[bytes, Token]] = {prefix: {} for prefix in by_tasks}
        for record in self._committed_tokens.read(start, end):
            if record.key is None or record.value is None or (prefix := rules.prefix_of(record.key)) not in by_tasks:
                continue
            try:
                token = Token.from_bytes(record.value)
            except KafkaError as error:
                _logger.warning("Offset %d of the tokens: %s", record.offset, error)
                continue
            if token.batch > by_tasks[prefix].done and record.offset >= by_tasks[prefix].position:
                found[prefix][record.key] = token
        return {prefix: sorted(tokens.values()) for prefix, tokens in found.items()}

    def _read_back(self, end: int) -> None:
        """Read from the end backwards, until an entry of the prefix is found."""
        first, _ = self._ledger.stable_range()
        stop, window = end, _FIRST_WINDOW
        while stop > first and self._prefix.encode() not in self._found:
            start = max(first, stop - window)
            later, self._found = self._found, {}
            self._take(start, stop)
            self._found.update(later)
            stop, window = start, 16 * window

    def _take(self, start: int, stop: int) -> None:
        for record in self._ledger.read(start, stop):
            if record.key is not None:
                self._found[record.key] = record.value

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
