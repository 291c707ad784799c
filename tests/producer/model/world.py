"""Runs a schedule against the real producer, and checks what must hold whatever happened."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pykclient.clock import FOREVER_MS
from pykclient.errors import BufferExhaustedError, IllegalStateError, KafkaError
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.api_versions import ApiVersions
from pykclient.network.cluster_connection_states import BackoffConfig
from pykclient.network.network_client import NetworkClient
from pykclient.network.network_client_config import NetworkClientConfig
from pykclient.producer.accumulator_state import AccumulatorConfig
from pykclient.producer.buffer_pool import BufferPool
from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.producer_metadata import ProducerMetadata
from pykclient.producer.producer_metrics import SenderMetrics
from pykclient.producer.record_accumulator import RecordAccumulator
from pykclient.producer.sender import Sender, SenderConfig
from pykclient.producer.transaction_manager import REST_MS, TransactionManager
from pykclient.protocol.api_keys import ApiKeys
from pykclient.record import Compression, CompressionRatioEstimator
from pykclient.record.record_batch import CURRENT_MAGIC_VALUE, estimate_size_in_bytes_upper_bound
from pykclient.types import RecordMetadata
from tests.producer.model import schedule as steps
from tests.producer.model.brokers import TOPIC, Brokers
from tests.producer.model.network import HEALTHY, Fate, SimulatedSelector, Simulation
from tests.producer.model.schedule import Schedule, Step

#: How late an outcome may be: the sender sleeps for a backoff at most while it waits for a producer id.
_LATE_MS = 250
#: Rounds of the sender in which nothing happens, in a row: at one instant, and in steps of a millisecond.
_MAX_IDLE_ROUNDS = 4
_MAX_LAZY_ROUNDS = 300
#: What a healthy cluster may take for a record: there and back, metadata that is due before it.
_HEALTHY_MS = 20


class ModelError(AssertionError):
    """Something that must hold does not."""


class SentRecord:
    """One record, from ``send`` to its fate."""

    def __init__(self, value: bytes, created_ms: int) -> None:
        self.value = value
        self.created_ms = created_ms
        self.future: FutureRecordMetadata
        self.partition = -1
        self.outcomes: list[tuple[Exception | None, int]] = []
        self.resolved_ms = -1

    @property
    def is_done(self) -> bool:
        return bool(self.outcomes)

    @property
    def has_succeeded(self) -> bool:
        return self.is_done and self.outcomes[0][0] is None

    @property
    def offset(self) -> int:
        return self.outcomes[0][1]

    def __repr__(self) -> str:
        return f"<{self.value[:6].decode()} to {self.partition}: {self.outcomes}>"


class _Errors(logging.Handler):
    """Exceptions that were caught and logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0]:
            self.records.append(record)


class World:
    """A producer whose threads take turns, a network, brokers."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.settings = settings = schedule.settings
        CompressionRatioEstimator.reset_estimation(TOPIC)
        rng = random.Random(schedule.seed)
        log_context = LogContext()
        self.simulation = clock = Simulation()
        clock.while_waiting = self._turn
        self.brokers = Brokers(
            clock.later,
            lambda: clock.time_ms,
            partitions=settings.partitions,
            max_batch_size=settings.max_batch_size,
            first_epoch=settings.first_epoch,
            knows_unknown=settings.knows_unknown,
            max_versions={ApiKeys.PRODUCE: settings.max_produce_version},
        )
        self._healed = False
        self.selector = SimulatedSelector(clock, self.brokers, self._fates())
        self.metadata = ProducerMetadata(
            settings.retry_backoff_ms, settings.retry_backoff_ms * 4, 100_000, 100_000, log_context, clock, rng=rng
        )
        self.metadata.bootstrap([self.brokers.endpoint(0), self.brokers.endpoint(1)])
        backoff = BackoffConfig(settings.reconnect_backoff_ms, settings.reconnect_backoff_ms * 4, 200, 400)
        self.client = NetworkClient(
            NetworkClientConfig(
                client_id="model",
                max_in_flight_requests_per_connection=settings.max_in_flight,
                request_timeout_ms=settings.request_timeout_ms,
                backoff=backoff,
                rng=rng,
            ),
            self.selector,
            self.metadata,
            ApiVersions(),
            clock,
            log_context,
        )
        self.manager = TransactionManager(log_context, settings.retry_backoff_ms) if settings.idempotent else None
        self.pool = BufferPool(settings.memory, settings.batch_size, clock)
        self.accumulator = RecordAccumulator(
            AccumulatorConfig(
                settings.batch_size,
                Compression.of(settings.compression),
                settings.linger_ms,
                settings.retry_backoff_ms,
                settings.retry_backoff_ms * 4,
                settings.delivery_timeout_ms,
                enable_adaptive_partitioning=True,
                partition_availability_timeout_ms=50,
            ),
            self.pool,
            clock,
            log_context,
            self.manager,
            rng,
        )
        self.sender = Sender(
            SenderConfig(
                settings.acks,
                settings.retries,
                settings.max_request_size,
                settings.request_timeout_ms,
                settings.retry_backoff_ms,
                guarantee_message_order=settings.max_in_flight == 1,
            ),
            self.client,
            self.metadata,
            self.accumulator,
            SenderMetrics(Metrics(clock=clock), self.metadata, self.client, clock),
            clock,
            log_context,
            self.manager,
        )
        self.records: list[SentRecord] = []
        self.refused: set[bytes] = set()
        self._at_looks: deque[Step] = deque()
        self._count = 0
        self._resolved = 0
        self._idle_rounds = self._lazy_rounds = 0
        self._may_lose_acknowledged = settings.acks != -1
        self.rounds = 0

    def _fates(self) -> Iterator[Fate]:
        for fate in self.schedule.fates:
            if self._healed:
                break
            yield fate
        while True:
            yield HEALTHY

    # --- running -----------------------------------------------------------------------------------------------

    def run(self) -> World:
        """Raises ModelError, or whatever else went wrong in the producer."""
        errors = _Errors()
        logger = logging.getLogger("pykclient")
        level = logger.level
        logger.addHandler(errors)
        logger.setLevel(logging.ERROR)
        propagate, logger.propagate = logger.propagate, False
        try:
            self._run_steps()
        finally:
            logger.removeHandler(errors)
            logger.setLevel(level)
            logger.propagate = propagate
        for record in errors.records:
            assert record.exc_info is not None
            raise ModelError(f"caught and logged: {record.getMessage()}") from record.exc_info[1]
        return self

    def _run_steps(self) -> None:
        closed = forced = False
        for step in self.schedule.steps:
            self._drive(self.simulation.time_ms + step.wait_ms)
            if closed:
                break
            if step.what == steps.CLOSE:
                forced = self._close(step.arguments[0])
                closed = True
            elif self.settings.looks and step.what == steps.SEND and step.arguments[3] == 0:
                self._at_looks.append(step)
            else:
                self._do(step)
        self._do_pending()
        if not closed:
            self._settle()
            if self.manager is None or not self.manager.has_fatal_error:
                self._probe()
            forced = self._close(FOREVER_MS)
        self._check(forced)

    def _looked(self) -> None:
        """Another thread goes on just when the sender looks at the clock."""
        if self._at_looks:
            self.simulation.on_look = None  # that thread's own looks are not the sender's
            self._do(self._at_looks.popleft())
            self.simulation.on_look = self._looked

    def _do_pending(self) -> None:
        while self._at_looks:
            self._do(self._at_looks.popleft())

    def _do(self, step: Step) -> None:
        a = step.arguments
        if step.what == steps.SEND:
            for _ in range(a[2]):
                self._send(a[0] % self.settings.partitions if a[0] >= 0 else None, a[1], a[3])
        elif step.what == steps.FLUSH:
            self._flush(a[0])
        elif step.what == steps.MOVE:
            leader = None if a[1] < 0 else a[1]
            self.brokers.move(a[0] % self.settings.partitions, leader, bool(a[2]))
        elif step.what == steps.BREAK:
            self.selector.break_any(a[0])
        elif step.what == steps.DOWN:
            self.selector.set_down(a[0], True)
            self.simulation.later(a[1], lambda: self.selector.set_down(a[0], False))
        elif step.what == steps.FORGET and not self.accumulator.has_incomplete and not self.selector.outstanding:
            # What expires at brokers takes a day; what is sent is answered or given up long before.
            self._drive(self.simulation.time_ms + 2 * REST_MS)
            self.brokers.partitions[a[0] % self.settings.partitions].forget(self.simulation.time_ms - REST_MS)

    def _send(self, partition: int | None, size: int, max_block_ms: int) -> None:
        """What KafkaProducer.send does, once serializers and partitioners are through."""
        cluster = self.metadata.fetch()
        if cluster.partition_count_for_topic(TOPIC) is None:
            self.metadata.add(TOPIC, self.simulation.time_ms)
            self.metadata.request_update_for_topic(TOPIC)
            self.client.wakeup()
            if max_block_ms:
                return
            partition = partition or 0  # as if the metadata had been there, and left again
        self._count += 1
        record = SentRecord(f"{self._count:06d}".encode().ljust(size, b"."), self.simulation.time_ms)
        upper_bound = estimate_size_in_bytes_upper_bound(
            CURRENT_MAGIC_VALUE, Compression.of(self.settings.compression), None, record.value, ()
        )
        if upper_bound > min(self.settings.max_request_size, self.settings.memory):
            return

        def on_delivery(error: Exception | None, metadata: RecordMetadata) -> None:
            if not record.outcomes:
                self._resolved += 1
                record.resolved_ms = self.simulation.time_ms
            record.outcomes.append((error, metadata.offset))

        try:
            if self.manager is not None:
                self.manager.maybe_fail_with_error()
            future, wake, _ = self.accumulator.append(
                TOPIC, partition, 0, None, record.value, (), on_delivery, max_block_ms, cluster
            )
        except BufferExhaustedError:
            self.refused.add(record.value)
            return
        except KafkaError as error:
            if self.manager is None or not self.manager.has_fatal_error:
                raise ModelError(f"send raised {error!r}") from error
            self.refused.add(record.value)
            return
        assert future is not None
        record.future = future
        record.partition = future.locate()[0].topic_partition.partition
        self.records.append(record)
        if wake:
            self.metadata.add(TOPIC, self.simulation.time_ms)
            self.client.wakeup()

    def _flush(self, timeout_ms: int) -> None:
        earlier = list(self.records)
        start_ms = self.simulation.time_ms
        self.accumulator.begin_flush()
        self.client.wakeup()
        if self.accumulator.await_flush_completion(timeout_ms):
            for record in earlier:
                self._ensure(record.is_done, f"flush returned before {record}")
        else:
            self._ensure(self.simulation.time_ms - start_ms >= timeout_ms, "flush gave up early")

    def _close(self, timeout_ms: int) -> bool:
        """Returns whether records were given up."""
        self._do_pending()
        start_ms = self.simulation.time_ms
        self.selector.horizon_ms = FOREVER_MS
        self.sender.initiate_close()
        if timeout_ms == 0:
            self.sender.force_close()
        elif timeout_ms < FOREVER_MS:
            self.simulation.later(timeout_ms, self.sender.force_close)
        self.sender.run()
        took_ms = self.simulation.time_ms - start_ms
        limit_ms = min(timeout_ms, self.settings.delivery_timeout_ms + self.settings.request_timeout_ms)
        self._ensure(took_ms <= limit_ms + 2 * _LATE_MS, f"closing took {took_ms} ms, not {limit_ms}")
        return took_ms >= timeout_ms

    # --- the sender's thread -----------------------------------------------------------------------------------

    def _drive(self, until_ms: int) -> None:
        while self.simulation.time_ms < until_ms:
            self._turn(until_ms)

    def _turn(self, until_ms: int) -> None:
        """One round of the sender, which may end before its sleep does: then later turns sleep on."""
        selector, simulation = self.selector, self.simulation
        asleep_until_ms = selector.asleep_until_ms
        if asleep_until_ms is not None and not selector.woken and not selector.has_news:
            simulation.advance_to(min(until_ms, asleep_until_ms))
            if simulation.time_ms >= asleep_until_ms:
                selector.asleep_until_ms = None
            return
        selector.horizon_ms = until_ms
        before = (selector.progress, self._resolved, self._count)
        start_ms = simulation.time_ms
        self.rounds += 1
        self.simulation.on_look = self._looked if self._at_looks else None
        self.sender.run_once()
        self.simulation.on_look = None
        if before != (selector.progress, self._resolved, self._count):
            self._idle_rounds = self._lazy_rounds = 0
        elif simulation.time_ms == start_ms:
            self._idle_rounds += 1
            self._ensure(self._idle_rounds <= _MAX_IDLE_ROUNDS, "the sender spins")
        else:
            self._idle_rounds = 0
            self._lazy_rounds = self._lazy_rounds + 1 if simulation.time_ms - start_ms == 1 else 0
            self._ensure(self._lazy_rounds <= _MAX_LAZY_ROUNDS, "the sender spins slowly")

    def _settle(self) -> None:
        """Faults stop; everything gets its answer."""
        self._healed = True
        self.selector.heal()
        for index, partition in enumerate(self.brokers.partitions):
            if partition.leader is None:
                self.brokers.move(index, index % self.brokers.count, False)
        deadline_ms = self.simulation.time_ms + self.settings.delivery_timeout_ms + _LATE_MS
        while not all(record.is_done for record in self.records):
            self._ensure(self.simulation.time_ms < deadline_ms, "records without an answer")
            self._turn(deadline_ms)
        deadline_ms = self.simulation.time_ms + 3 * self.settings.request_timeout_ms + 1000
        while self.client.in_flight_request_count() or self.selector.outstanding:
            self._ensure(self.simulation.time_ms < deadline_ms, "requests without an answer")
            self._turn(deadline_ms)
        self._check_at_rest()

    def _probe(self) -> None:
        """After all that, the producer works: it recovers, and then is as quick as ever."""
        self._drive(self.simulation.time_ms + 1000)  # backoffs and throttling end
        self._send_to_all()  # with few retries these may fail for metadata that is old
        self._flush(FOREVER_MS)
        self._drive(self.simulation.time_ms + 200)
        if self.settings.delivery_timeout_ms >= self.settings.linger_ms + 300:
            sent = self._send_to_all()
            self._flush(FOREVER_MS)
            self._ensure_all_succeeded(sent, "the producer does not recover")
            sent = self._send_to_all()
            self._drive(self.simulation.time_ms + self.settings.linger_ms + _HEALTHY_MS)
            self._ensure_all_succeeded(sent, "slow although all is well")
        self._check_at_rest()

    def _send_to_all(self) -> list[SentRecord]:
        start = len(self.records)
        for partition in range(self.settings.partitions):
            self._send(partition, 1, 0)
        return self.records[start:]

    def _ensure_all_succeeded(self, records: list[SentRecord], text: str) -> None:
        for record in records:
            self._ensure(record.has_succeeded, f"{text}: {record}")

    # --- what must hold ----------------------------------------------------------------------------------------

    def _ensure(self, condition: object, text: str) -> None:
        if not condition:
            raise ModelError(text)

    def _check_at_rest(self) -> None:
        """Nothing is on its way, so nothing may be kept."""
        accumulator: Any = self.accumulator
        sender: Any = self.sender
        available = self.pool.available_memory
        self._ensure(available == self.pool.total_memory, f"{self.pool.total_memory - available} bytes are lost")
        self._ensure(not accumulator._incomplete, "incomplete batches are left")
        self._ensure(not accumulator._waiting.muted, "partitions are still muted")
        self._ensure(not accumulator.has_undrained, "batches are left in queues")
        self._ensure(not accumulator.flush_in_progress, "a flush is left")
        self._ensure(not sender._responses.in_flight._batches, "batches are left in flight")
        if self.manager is not None:
            entries: Any = self.manager._partitions._entries
            for entry in entries.values():
                left = entry.in_flight and not self.manager.has_fatal_error  # after that numbers mean nothing
                self._ensure(not left, f"{entry.topic_partition} has numbered batches left")
            self._ensure(not isinstance(self.manager.last_error, IllegalStateError), f"{self.manager.last_error!r}")

    def _check(self, forced: bool) -> None:
        if not forced:
            self._check_at_rest()
        for record in self.records:
            self._ensure(len(record.outcomes) == 1, f"called back {len(record.outcomes)} times: {record}")
            error, offset = record.outcomes[0]
            self._ensure(record.future.done(), f"called back, but not done: {record}")
            self._ensure(record.future.exception is error, f"future and callback disagree: {record}")
            self._ensure(not isinstance(error, IllegalStateError), f"{record}")
            if error is None:
                self._ensure(record.future.get(0).offset == offset, f"future and callback disagree: {record}")
            late_ms = record.resolved_ms - record.created_ms - self.settings.delivery_timeout_ms
            self._ensure(late_ms <= _LATE_MS, f"{late_ms} ms later than delivery.timeout.ms: {record}")
        for index in range(self.settings.partitions):
            self._check_log(index)

    def _check_log(self, index: int) -> None:
        settings = self.settings
        log = self.brokers.partitions[index].log
        of_partition = [record for record in self.records if record.partition == index]
        too_large = self.brokers.partitions[index].too_large
        self._ensure(too_large <= 4 * len(of_partition), f"{too_large} batches were too large: splitting has no end")
        at: dict[bytes, list[int]] = {}
        for offset, logged in enumerate(log):
            at.setdefault(logged.value, []).append(offset)
        known = {record.value for record in of_partition}
        self._ensure(at.keys() <= known, f"in the log of {index}, but not sent to it: {at.keys() - known}")
        for record in of_partition:
            offsets = at.get(record.value, [])
            # At most once: by sequence numbers, or because nothing is ever tried again.
            if settings.idempotent or settings.retries == 0:
                self._ensure(len(offsets) <= 1, f"written {len(offsets)} times, at {offsets}: {record}")
            if record.has_succeeded and settings.acks == -1:
                self._ensure(record.offset in offsets, f"in the log at {offsets}: {record}")
        succeeded = [record for record in of_partition if record.has_succeeded]
        if settings.acks == -1 and (settings.idempotent or settings.max_in_flight == 1):
            for first, second in pairwise(succeeded):
                self._ensure(first.offset < second.offset, f"out of order: {first} {second}")


def run(schedule: Schedule) -> World:
    return World(schedule).run()


def failure(schedule: Schedule) -> str | None:
    """What goes wrong, if anything."""
    try:
        run(schedule)
    except Exception as error:  # noqa: BLE001 - any is a failure of the producer, or of the model
        return f"{type(error).__name__}: {error}"
    return None
