"""The run of a schedule, and the checks of its invariants."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from pykclient.errors import KafkaError
from pykclient.network.cluster_connection_states import SLOW_LOOKUP_MS
from pykclient.record import CompressionRatioEstimator
from pykclient.testing.broker import Broker
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.testing.replica.partition import Partition
from pykclient.testing.simulation import Simulation
from pykclient.testing.simulation.checks import (
    InvariantError,
    Log,
    Ownership,
    check_everything_read,
    check_nothing_lost,
    check_nothing_twice,
    check_order,
    check_origin,
    check_read_again,
    check_reading,
    check_replicas,
)
from pykclient.testing.simulation.simulation import SimulatedEnvironment
from pykclient.types import TopicPartition
from tests.simulation import schedule as steps, seeds
from tests.simulation.applications import (
    AUTO_COMMIT_INTERVAL_MS,
    EXTRA,
    GROUP,
    LATE_MS,
    POLL_MS,
    TOPIC,
    ConsumerApplication,
    ProducerApplication,
)
from tests.simulation.asyncio_applications import AIOConsumerApplication, AIOProducerApplication
from tests.simulation.extra_topic import ExtraTopic
from tests.simulation.faults import FaultMaker
from tests.simulation.revocations import Revocations, incarnations
from tests.simulation.schedule import MIGRATIONS, Schedule, Step

#: The time that a cluster without faults may take to recover, and clients to finish.
_HEALING_MS = 20_000
_LOOK_MS = 50
_WATCH_MS = 20
_DEFAULT_MAX_BATCH_BYTES = 1 << 20
_DEFAULT_SEGMENT_BYTES = 1 << 30
_NO_LIMIT_MS = 100_000
#: The time for which a rebalance or coordinator lookup may keep a member from committing.
_REBALANCE_MS = 1_000
#: A connection setup timeout that leaves time to notice that a lookup is slow.
_LONG_SETUP_MS = 4_000
#: The round trips to the first acknowledged record of a producer: connections, metadata, producer id, record.
_START_ROUND_TRIPS = 10
#: More generations than a group has in a schedule.
_GENERATIONS = 1_000


class _Errors(logging.Handler):
    """A log handler that keeps unexpected exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._records: list[logging.LogRecord] = []
        self._logger = logging.getLogger("pykclient")
        self._before = (self._logger.level, self._logger.propagate)

    def install(self) -> None:
        self._logger.addHandler(self)
        if self._logger.level != logging.ERROR:  # a new level makes all loggers of the process forget theirs
            self._logger.setLevel(logging.ERROR)
        self._logger.propagate = False

    def uninstall(self) -> None:
        self._logger.removeHandler(self)
        if self._logger.level != self._before[0]:
            self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] and not issubclass(record.exc_info[0], KafkaError):
            self._records.append(record)

    def check(self) -> None:
        for record in self._records:
            assert record.exc_info is not None
            raise InvariantError(f"caught and logged: {record.getMessage()}") from record.exc_info[1]


class World:
    """A cluster, its applications, and everything that is checked about them."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.settings = settings = schedule.settings
        CompressionRatioEstimator.reset_estimation(TOPIC)
        self.simulation = Simulation(
            schedule.seed,
            settings.brokers,
            release=settings.release,
            config={
                "num.partitions": settings.partitions,
                "default.replication.factor": settings.replication_factor,
                "min.insync.replicas": settings.min_isr,
                "max.incremental.fetch.session.cache.slots": settings.fetch_slots,
                "zookeeper.session.timeout.ms": settings.session_timeout_ms,
                "replica.lag.time.max.ms": settings.replica_lag_ms,
                "replica.fetch.wait.max.ms": min(300, settings.replica_lag_ms // 2),
                "replica.fetch.backoff.ms": 30,
                "request.timeout.ms": 400,
                "controller.socket.timeout.ms": 400,
                "controlled.shutdown.retry.backoff.ms": 20,
                "offsets.topic.num.partitions": 1,
                "offsets.topic.replication.factor": settings.replication_factor,
                "offsets.commit.timeout.ms": 400,
                "group.consumer.session.timeout.ms": settings.member_session_ms,
                "group.consumer.heartbeat.interval.ms": settings.member_session_ms // 4,
            },
        )
        self.cluster = self.simulation.cluster
        self.loop = self.simulation.loop
        self.clock = self.simulation.clock
        self.start_ms = self.clock.now_ms()
        self.partitions = [TopicPartition(TOPIC, number) for number in range(settings.partitions)]
        self.faults = FaultMaker(
            self.simulation, settings, self.partitions, self.note_high_watermarks, self._environments
        )
        self.extra = ExtraTopic(self)
        self.producers: list[ProducerApplication] = []
        self.consumers: list[ConsumerApplication] = []
        #: Applications that were replaced; some are still closing.
        self.former_producers: list[ProducerApplication] = []
        self.former_consumers: list[ConsumerApplication] = []
        self.ownership = Ownership()
        #: How often the group had been created anew when the consumer got its last assignment.
        self._incarnations: dict[str, int] = {}
        self._revocations = Revocations(self.cluster.history, TOPIC)
        #: The records that the group has read.
        self.group_read: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in self.partitions}
        #: The group's next offset over time, to judge commits.
        self._group_progress: dict[TopicPartition, list[tuple[int, int]]] = {tp: [(0, 0)] for tp in self.partitions}
        #: Records in flight when a broker loaded a snapshot without them, and the logs already examined.
        self.forgotten: set[bytes] = set()
        self._loaded: dict[tuple[int, TopicPartition], tuple[UnifiedLog, int]] = {}
        #: The highest high watermark of any broker.
        self._committed: dict[TopicPartition, int] = dict.fromkeys(self.partitions, 0)
        self.violations: list[InvariantError] = []
        self._values = 0
        self._sent_values: set[bytes] = set()
        self._history = hashlib.sha256()
        self.trace: Callable[[str], None] | None = None
        self._errors = _Errors()
        self._begun_ms = 0
        #: The time when all data delayed by a fault has arrived.
        self._delayed_until_ms = 0

    def _environments(self) -> list[SimulatedEnvironment]:
        producers, consumers = (*self.former_producers, *self.producers), (*self.former_consumers, *self.consumers)
        return [
            *(producer.environment for producer in producers if not producer.closed),
            *(consumer.environment for consumer in consumers if not consumer.closed),
        ]

    # --- for applications --------------------------------------------------------------------------------------------

    def next_value(self, size: int) -> bytes:
        self._values += 1
        value = f"{self._values:08d}".encode().ljust(size, b".")
        self._sent_values.add(value)
        return value

    def withdraw(self, value: bytes) -> None:
        """Note that a value was not sent after all, so that no log may have it."""
        self._sent_values.discard(value)

    def note(self, *what: object) -> None:
        """Add a line to the history, which is the same in each run of a schedule."""
        line = f"{self.clock.now_ms() - self.start_ms} {' '.join(map(str, what))}"
        self._history.update(line.encode())
        if self.trace is not None:
            self.trace(line)

    @property
    def history(self) -> str:
        """A digest of the history."""
        return self._history.hexdigest()

    def violated(self, error: InvariantError) -> InvariantError:
        """Keep and return the error, because clients may wrap or log what callbacks raise."""
        self.violations.append(error)
        return error

    def delivered(self, consumer: ConsumerApplication, tp: TopicPartition, offset: int, value: bytes) -> None:
        self.note("read", consumer.name, tp.partition, offset)
        if not self._is_committed(tp, offset):
            self.violated(InvariantError(f"{consumer.name} reads offset {offset} of {tp}, which is not committed yet"))
        if not self.settings.groups:
            return
        read = self.group_read[tp]
        if offset not in read and offset > 0 and offset - 1 not in read:
            self.violated(InvariantError(f"{consumer.name} reads {tp} from {offset} on: what is before was never read"))
        read[offset] = value
        progress = self._group_progress[tp]
        if offset + 1 > progress[-1][1]:
            progress.append((self.clock.now_ms(), offset + 1))

    def assigned(self, consumer: ConsumerApplication, generation: int, partitions: Collection[TopicPartition]) -> None:
        if self.settings.group_protocol in MIGRATIONS:
            self._incarnations[consumer.name] = incarnations(self.cluster.history)
        generation = self._unique(consumer, generation)
        try:
            self.ownership.assigned(consumer.name, generation, partitions, owner=consumer.member)
            self._revocations.assigned(consumer.name, partitions)
        except InvariantError as error:
            self.violated(error)

    def _unique(self, consumer: ConsumerApplication, generation: int) -> int:
        """Return a number for a generation: a group that was created anew counts from 1 again."""
        return _GENERATIONS * self._incarnations.get(consumer.name, 0) + generation

    def revoked(self, consumer: ConsumerApplication, generation: int, partitions: Collection[TopicPartition]) -> None:
        if self.settings.group_protocol in MIGRATIONS and self._revocations.was_removed(
            consumer.name, self.settings.member_session_ms, self.clock.now_ms()
        ):
            self.lost(consumer, partitions)
            return
        generation = self._unique(consumer, generation)
        try:
            self.ownership.revoked(consumer.name, generation, partitions, owner=consumer.member)
            if consumer.keeps_partitions:
                self._revocations.revoked(consumer.name, partitions)
        except InvariantError as error:
            self.violated(error)

    def lost(self, consumer: ConsumerApplication, partitions: Collection[TopicPartition]) -> None:
        try:
            self.ownership.given_up(consumer.name, partitions)
        except InvariantError as error:
            self.violated(error)

    def left(self, consumer: ConsumerApplication) -> None:
        try:
            self.ownership.closed(consumer.name)
        except InvariantError as error:
            self.violated(error)

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> World:
        """Run the schedule; raise InvariantError, or any other error that occurs."""
        try:
            self.begin()
            for step in self.schedule.steps:
                self.pass_time(self._begun_ms + step.at_ms - self.clock.now_ms())
                self.do(step)
            self.finish()
        finally:
            self.close()
        return self

    def begin(self) -> None:
        """Start the brokers and the applications."""
        self._errors.install()
        self.simulation.start()
        self._create_topic()
        self._begun_ms = self.clock.now_ms()
        self._watch()
        self.producers = [self._new_producer(number, 0) for number in range(self.settings.producers)]
        self.consumers = [self._new_consumer(number, 0) for number in range(self.settings.consumers)]

    def _new_producer(self, number: int, life: int, setup_timeout_ms: int = 300) -> ProducerApplication:
        kind = AIOProducerApplication if self.settings.asyncio else ProducerApplication
        return kind(self, number, life, setup_timeout_ms)

    def _new_consumer(self, number: int, life: int) -> ConsumerApplication:
        return (AIOConsumerApplication if self.settings.asyncio else ConsumerApplication)(self, number, life)

    def _create_topic(self) -> None:
        """Create the topic, unless the settings allow automatic creation on first use.

        That needs default topic settings and no static members: a returning static leader keeps the existing assignment
        (KIP-814), and does not notice that it predates the topic. A Java leader does the same.
        """
        settings = self.settings
        if (
            settings.max_batch_bytes < _DEFAULT_MAX_BATCH_BYTES
            or settings.segment_bytes < _DEFAULT_SEGMENT_BYTES
            or settings.static_members
            or settings.extra  # consumers with a second topic create no topics
        ):
            sizes = {
                "max.message.bytes": str(settings.max_batch_bytes),
                "internal.segment.bytes": str(settings.segment_bytes),
            }
            self.simulation.create_topic(TOPIC, settings.partitions, settings.replication_factor, sizes)

    def _watch(self) -> None:
        """Check that each in-sync replica has all committed records, now and periodically."""
        if self.violations:
            return
        for tp in self.partitions:
            replicas = self._note_high_watermark(tp)
            # As Cluster.leader() does, without another look at each broker.
            leaders = [(replica.leader_epoch, id) for id, replica in replicas.items() if replica.is_leader]
            if not leaders:
                continue
            _, leader_id = max(leaders)
            leader = replicas[leader_id]
            if leader.log is None:
                continue
            high_watermark = leader.log.high_watermark
            for id in sorted(leader.isr):
                replica = replicas.get(id)
                if replica is None or replica.log is None or replica.leader_epoch > leader.leader_epoch:
                    continue
                if replica.log.log_end_offset < high_watermark:
                    self.violated(
                        InvariantError(
                            f"{tp}: broker {leader_id} has the high watermark {high_watermark} in epoch "
                            f"{leader.leader_epoch}, in-sync replica {id} ends at {replica.log.log_end_offset}"
                        )
                    )
        self.loop.call_later(_WATCH_MS, self._watch)

    def note_high_watermarks(self) -> None:
        """Record the high watermarks. Call this before a broker loses its memory."""
        for tp in self.partitions:
            self._note_high_watermark(tp)

    def _note_high_watermark(self, tp: TopicPartition) -> dict[int, Partition]:
        """Record a partition's high watermark; return its replicas on the brokers that live."""
        committed = self._committed[tp]
        replicas = {}
        for id, broker in self.cluster.brokers.items():
            partition = broker.replica_manager.partition(tp)
            if partition is None:
                continue
            if broker.alive:
                replicas[id] = partition
            log = partition.log
            if log is not None:
                if log.high_watermark > committed:
                    committed = log.high_watermark
                if log.producer_state.loaded_offset:
                    self._note_forgotten(id, log)
        self._committed[tp] = committed
        return replicas

    def _note_forgotten(self, broker_id: int, log: UnifiedLog) -> None:
        """Record which values may be stored twice because a broker loaded a snapshot of the log's producers.

        If a producer retries a batch that the snapshot lacks, it resends all batches of the partition that are in
        flight.
        """
        tp, loaded_offset = log.topic_partition, log.producer_state.loaded_offset
        if self._loaded.get((broker_id, tp)) == (log, loaded_offset):
            return
        self._loaded[broker_id, tp] = (log, loaded_offset)
        known = {batch.last_offset for entry in log.active_producers for batch in entry.batches}
        unknown = {
            record.value
            for batch in log.batches(log.log_start_offset, loaded_offset)
            if batch.has_producer_id and batch.last_offset not in known
            for record in batch
        }
        late_ms = self.clock.now_ms() - _WATCH_MS  # the load is noticed late
        for producer in (*self.former_producers, *self.producers):
            in_flight = {
                record.value
                for record in producer.records
                if record.tp == tp and (not record.outcomes or record.resolved_ms >= late_ms)
            }
            if not unknown.isdisjoint(in_flight):
                self.forgotten |= in_flight

    def acknowledged(self, producer: ProducerApplication, tp: TopicPartition, offset: int) -> None:
        """Check that with acks=all a record is committed before its producer is told.

        Its leader may have ceased to lead since, and the next one may not know yet how far the replicas are.
        """
        if (
            self.settings.acks == -1
            and tp.topic == TOPIC
            and not self._is_committed(tp, offset)
            and not self._is_on_all_in_sync_replicas(tp, offset)
        ):
            self.violated(
                InvariantError(f"offset {offset} of {tp} is acknowledged to {producer.name} and not committed")
            )

    def _is_committed(self, tp: TopicPartition, offset: int) -> bool:
        if offset >= self._committed[tp]:
            self.note_high_watermarks()
        return offset < self._committed[tp]

    def _is_on_all_in_sync_replicas(self, tp: TopicPartition, offset: int) -> bool:
        in_sync = [self.cluster.brokers[id] for id in self.cluster.isr(tp)]
        logs = [self._log(broker, tp) for broker in in_sync if broker.alive]
        return bool(logs) and all(log is not None and offset < log.log_end_offset for log in logs)

    def pass_time(self, duration_ms: int) -> None:
        """Run the simulation for this long."""
        passed: list[bool] = []
        self.loop.call_later(duration_ms, passed.append, True)
        self._drive(lambda: bool(passed or self.violations))

    def finish(self) -> None:
        """End all faults, let all applications finish, and check the invariants."""
        self.pass_time(_LOOK_MS)
        self.faults.heal()
        self.note("healed")
        self._delayed_until_ms = self.cluster.network.last_arrival_ms()
        director = self.simulation.actor(self._settle, "director")
        self._drive(lambda: bool(director.done or self.violations))
        self.note("done", self.cluster.history.total, self.loop.steps, self.simulation.hub.turns)
        self._check_commits()
        self._check_logs()

    def _drive(self, until: Callable[[], bool]) -> None:
        self.simulation.run(until)
        if self.violations:
            raise self.violations[0]
        self._errors.check()

    def close(self) -> None:
        """Stop everything that still runs."""
        self._errors.uninstall()
        for producer in (*self.former_producers, *self.producers):
            if not producer.closed:
                producer.crash()
            producer.forget_futures()
        for consumer in (*self.former_consumers, *self.consumers):
            if not consumer.closed:
                consumer.crash()
        self.simulation.close()

    def do(self, step: Step) -> None:
        """Run the step now."""
        self.note(step.what, step.arguments)
        what, a = step.what, step.arguments
        if what in (
            steps.SEND,
            steps.SEND_BATCH,
            steps.SEND_EXTRA,
            steps.FLUSH,
            steps.CLOSE_PRODUCER,
            steps.CRASH_PRODUCER,
        ):
            self._do_producer(what, a[0] % len(self.producers), a)
        elif what in (
            steps.COMMIT,
            steps.BUSY,
            steps.PAUSE_PARTITIONS,
            steps.SEEK,
            steps.LEAVE,
            steps.CRASH_CONSUMER,
            steps.WAKEUP,
        ):
            if self.consumers:
                self._do_consumer(what, a[0] % len(self.consumers), a)
        elif what == steps.CREATE_EXTRA:
            self.extra.create()
        elif what == steps.DELETE_EXTRA:
            self.extra.delete()
        else:
            self.faults.do(step)

    def _do_producer(self, what: str, number: int, a: tuple[int, ...]) -> None:
        application = self.producers[number]
        if what in (steps.SEND, steps.SEND_BATCH, steps.SEND_EXTRA):
            partition = a[1] % self.settings.partitions if a[1] >= 0 else -1
            if what == steps.SEND_BATCH:
                application.inbox.put(lambda: application.send_batch(partition, a[2], a[3]))
            else:
                topic = TOPIC if what == steps.SEND else EXTRA
                application.inbox.put(lambda: application.send(partition, a[2], a[3], topic))
        elif what == steps.FLUSH:
            application.inbox.put(lambda: application.flush(a[1]))
        else:
            if what == steps.CLOSE_PRODUCER:
                application.inbox.put(lambda: application.close(a[1]))
            else:
                application.crash()
            self.former_producers.append(application)
            self.producers[number] = self._new_producer(number, len(self.former_producers))

    def _do_consumer(self, what: str, number: int, a: tuple[int, ...]) -> None:
        application = self.consumers[number]
        put = application.inbox.put
        if what == steps.COMMIT:
            put(lambda: application.commit(bool(a[1])))
        elif what == steps.BUSY:
            put(lambda: application.busy(a[1]))
        elif what == steps.PAUSE_PARTITIONS:
            put(lambda: application.pause(a[1]))
        elif what == steps.SEEK:
            put(application.seek)
        elif what == steps.WAKEUP:
            application.wakeup()
        else:
            if what == steps.LEAVE:
                put(application.leave)
            else:
                application.crash()
            self._replace_consumer(number)

    def _replace_consumer(self, number: int) -> None:
        self.former_consumers.append(self.consumers[number])
        self.consumers[number] = self._new_consumer(number, len(self.former_consumers))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait, without faults, until the cluster has recovered and the clients have finished and closed."""
        self._await("all brokers run", self.faults.all_running)
        self._await("the brokers find each other", self.cluster.is_ready)
        self._await("all futures are resolved", lambda: all(producer.settled for producer in self.producers))
        self._await("former producers are closed", lambda: all(producer.closed for producer in self.former_producers))
        self._probe(self.partitions)
        if self.settings.extra:
            self._settle_extra()
        self._await("all replicas are in sync", self._in_sync)
        if self.settings.acks:
            # With acks=0 a producer cannot notice that a connection has been dead since a fault.
            self._probe_speed("a record takes no time")
            if self.settings.dns_drill:
                self._dns_drill()
            if self.settings.drill:
                self._drill()
        if self.settings.crash_drill and self.settings.groups and self.settings.auto_commit and self.consumers:
            self._crash_drill()
        for producer in self.producers:
            producer.inbox.put(partial(producer.close, _NO_LIMIT_MS))
        self._await("producers are closed", lambda: all(producer.closed for producer in self.producers))
        self._await("former consumers are closed", lambda: all(consumer.closed for consumer in self.former_consumers))
        self._await_arrival()
        self._await("all replicas have everything", self._replicated)
        self._await("everything is read", self._everything_read)
        for consumer in self.consumers:
            consumer.inbox.put(consumer.leave)
        self._await("consumers are closed", lambda: all(consumer.closed for consumer in self.consumers))
        self._check_group()

    def _await(self, what: str, condition: Callable[[], bool], limit_ms: int = _HEALING_MS) -> None:
        deadline_ms = self.clock.now_ms() + limit_ms
        while not condition():
            if self.clock.now_ms() > deadline_ms:
                raise InvariantError(f"not within {limit_ms / 1000} s after all faults: {what}")
            self.clock.sleep_ms(_LOOK_MS)
        self.note(what)

    def _probe(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait until every producer can write to these partitions again."""
        for producer in self.producers:
            producer.unprobed = set(partitions)
            for tp in partitions:
                producer.inbox.put(partial(producer.probe, tp))
        self._await("producers write again", lambda: not any(producer.unprobed for producer in self.producers))

    def _drill(self) -> None:
        """Check that a leader waits for a follower that is cut off no longer than replica.lag.time.max.ms."""
        tp = self.partitions[0]
        leader, controller = self.cluster.leader(tp), self.cluster.active_controller()
        followers = [id for id in self.cluster.isr(tp) if id != leader and controller and id != controller.id]
        if leader is None or not followers:
            return
        self.note("drill", leader, followers[0])
        self.cluster.faults.cut(leader, followers[0])
        # A follower that misses no record stays in sync even if it does not fetch.
        writer = self.producers[0]
        writer.inbox.put(partial(writer.send_one, tp.partition, 8))
        lag_ms = self.settings.replica_lag_ms
        self.clock.sleep_ms(2 * lag_ms + _LOOK_MS)
        if followers[0] in self.cluster.isr(tp):
            raise InvariantError(
                f"broker {followers[0]} is in the ISR of {tp} without having fetched for {2 * lag_ms} ms"
            )
        self._probe([tp])
        self.faults.heal()
        self._await("all replicas are in sync again", self._in_sync)

    def _probe_speed(self, what: str, extra_ms: int = 0) -> None:
        for producer in self.producers:
            producer.unprobed = {self.partitions[0]}
            producer.inbox.put(partial(producer.probe_speed, self.partitions[0], extra_ms))
        self._await(what, lambda: not any(producer.unprobed for producer in self.producers))

    def _dns_drill(self) -> None:
        """Check that a broker whose name does not resolve delays the others' records only while metadata waits."""
        leader = self.cluster.leader(self.partitions[0])
        others = [id for id in self.cluster.nodes if id != leader]
        if leader is None or not others:
            return
        self.note("dns drill", others[0])
        self.faults.lose_name(others[0], hang=True)
        for producer in self.producers:  # makes them connect
            for tp in self.partitions:
                producer.inbox.put(partial(producer.send_one, tp.partition, 8))
            producer.inbox.put(partial(producer.rest, _LOOK_MS))
        self._probe_speed("a record takes no time while a name is not answered", SLOW_LOOKUP_MS)
        self._start_drill(others[0])
        self.faults.heal()
        self._probe(self.partitions)

    def _start_drill(self, lost: int) -> None:
        """Check that a new producer waits for the name of a broker only until it asks another one for metadata."""
        settings = self.settings
        if settings.max_block_ms < 2 * SLOW_LOOKUP_MS:
            return
        producer = self._new_producer(len(self.producers), 0, _LONG_SETUP_MS)
        producer.environment.host_resolver.hang(self.cluster.nodes[lost].host)
        self.producers.append(producer)
        producer.unprobed = {self.partitions[0]}
        round_trips_ms = 2 * _START_ROUND_TRIPS * (settings.link_delay_ms + settings.link_jitter_ms)
        # The metadata and the producer id may wait for the name one after the other.
        limit_ms = 2 * SLOW_LOOKUP_MS + settings.linger_ms + round_trips_ms + LATE_MS
        producer.inbox.put(partial(producer.probe_start, self.partitions[0], limit_ms))
        self._await("a producer starts while a name is not answered", lambda: not producer.unprobed)

    def _settle_extra(self) -> None:
        """Wait until the second topic exists and is writable, and nothing deletes it any more."""

        def is_there() -> bool:
            # A topic that is being deleted has leaders for a while. A request that was delayed may still come.
            if self.extra.is_changing() or self.clock.now_ms() <= self._delayed_until_ms:
                return False
            if self.extra.has_leaders():
                return True
            self.extra.create()
            return False

        self._await("the second topic is there", is_there)
        self._probe(self.extra.partitions)

    def _crash_drill(self) -> None:
        """Check that auto-commit keeps up: after a crash, only recently read records are read again."""
        self._await("former consumers are closed", lambda: all(consumer.closed for consumer in self.former_consumers))
        self._await_arrival()
        self._await("all that was sent is read", self._everything_read)
        self._await("consumers have done what they were told to", lambda: all(c.is_idle for c in self.consumers))
        ends = {tp: self._log_end(tp) for tp in self.partitions}
        self.clock.sleep_ms(self._commit_limit_ms())
        self.note("crash drill", sorted(ends.items()))
        for number, consumer in enumerate(self.consumers):
            consumer.crash()
            self._replace_consumer(number)
        writer = self.producers[0]
        for tp in self.partitions:
            writer.inbox.put(partial(writer.send_one, tp.partition, 8))
        self._await("what was sent after a crash has arrived", lambda: not writer.inbox and writer.settled)
        self._await("what was sent after a crash is read", self._everything_read)
        check_read_again({tp: [offset for c in self.consumers for offset in c.read.get(tp, ())] for tp in ends}, ends)

    def _commit_limit_ms(self) -> int:
        """Return the time in which a record read on a healthy cluster must be committed."""
        settings = self.settings
        round_trip_ms = 2 * (settings.link_delay_ms + settings.link_jitter_ms)
        return AUTO_COMMIT_INTERVAL_MS + POLL_MS + 10 * round_trip_ms + _REBALANCE_MS

    def _in_sync(self) -> bool:
        return all(len(self.cluster.isr(tp)) == self.settings.replication_factor for tp in self.partitions)

    def _replicated(self) -> bool:
        """Return whether all replicas are equal. Without acknowledgements, producers finish before replication does."""
        for tp in self.partitions:
            logs = [log for broker in self.cluster.alive_brokers() if (log := self._log(broker, tp)) is not None]
            ends = {log.log_end_offset for log in logs}
            if len(ends) != 1 or max(log.high_watermark for log in logs) not in ends:
                return False
        return True

    def _await_arrival(self) -> None:
        """Wait until all sent data has arrived, on a slow link perhaps long after it was sent."""
        left_ms = self.cluster.network.last_arrival_ms() - self.clock.now_ms()
        self._await("what was sent has arrived", self._arrived, max(left_ms, 0) + _HEALING_MS)

    def _arrived(self) -> bool:
        """Return whether all sent data has arrived.

        Without acknowledgements, producers finish before it has; and a client whose data is delayed is not up to date.
        """
        return (
            self.clock.now_ms() > self._delayed_until_ms
            and not self.cluster.network.in_transit("client:p*")
            and all(broker.replica_manager.disk_queue.idle for broker in self.cluster.alive_brokers())
        )

    def _everything_read(self) -> bool:
        if not self.consumers:
            return True
        ends = {tp: self._log_end(tp) for tp in self.partitions}
        if self.settings.extra and not self.extra.everything_read(self._log_of):
            return False
        if self.settings.groups:
            return all(self._group_progress[tp][-1][1] >= end for tp, end in ends.items())
        return all(consumer.expected.get(tp, 0) >= end for consumer in self.consumers for tp, end in ends.items())

    def _log_of(self, tp: TopicPartition) -> Log:
        return {record.offset: bytes(record.value or b"") for record in self.cluster.log_records(tp)}

    def _log_end(self, tp: TopicPartition) -> int:
        """Return the end of the longest replica. The leader alone would not do: between two elections there is none."""
        logs = [log for broker in self.cluster.alive_brokers() if (log := self._log(broker, tp)) is not None]
        return max((log.log_end_offset for log in logs), default=0)

    @staticmethod
    def _log(broker: Broker, tp: TopicPartition) -> UnifiedLog | None:
        partition = broker.replica_manager.partition(tp)
        return None if partition is None else partition.log

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _check_commits(self) -> None:
        """Check that no offset was committed before its records were returned to the application."""
        for record in self.cluster.history.matching(api="OFFSET_COMMIT"):
            body: Any = record.body
            for topic in body.topics:
                if not self._is_main(topic):
                    continue
                for partition in topic.partitions:
                    tp = TopicPartition(TOPIC, partition.partition_index)
                    read = max(end for at_ms, end in self._group_progress[tp] if at_ms <= record.time_ms)
                    if partition.committed_offset > read:
                        raise InvariantError(
                            f"{record.client_id} commits {partition.committed_offset} of {tp} when only {read} was read"
                        )

    def _is_main(self, topic: Any) -> bool:
        """Return whether a commit is of the first topic; newer requests name topics by their ids."""
        if topic.name:
            return bool(topic.name == TOPIC)
        ids = {
            log.topic_id for broker in self.cluster.alive_brokers() if (log := self._log(broker, self.partitions[0]))
        }
        return topic.topic_id in ids

    def _check_group(self) -> None:
        """Check that each closed consumer left the group, unless it is a static member.

        A member that a consumer was before a fault made the coordinator disown it stays until its session expires.
        """
        for broker in self.cluster.alive_brokers():
            group = broker.group_coordinator.groups.get(GROUP)
            members = () if group is None or self.settings.static_members else group.members.values()
            member_ids = {member.member_id for member in members}
            left = sorted(consumer.name for consumer in self.consumers if consumer.closed_as in member_ids)
            if left:
                raise InvariantError(f"{left} are in the group, although they were closed when all was well")

    def _check_logs(self) -> None:
        logs = {tp: self._log_of(tp) for tp in self.partitions}
        for tp in self.partitions:
            replicas = {
                broker.id: b"".join(bytes(batch.buffer) for batch in log.batches(0, log.log_end_offset))
                for broker in self.cluster.alive_brokers()
                if (log := self._log(broker, tp)) is not None
            }
            check_replicas(replicas, tp)
        producers = [*self.former_producers, *self.producers]
        settings = self.settings
        check_origin(self._sent_values, logs)
        if settings.idempotent:
            check_nothing_twice(logs, self.forgotten)
        for producer in producers:
            producer.check()
            if settings.idempotent or (settings.max_in_flight == 1 and settings.acks == -1):
                sent: dict[TopicPartition, list[bytes]] = {tp: [] for tp in self.partitions}
                for record in producer.records:
                    if record.tp in sent:  # records without a partition were refused, or their process was killed
                        sent[record.tp].append(record.value)
                check_order(sent, logs)
            if settings.acks == -1:
                check_nothing_lost(
                    [
                        (outcome.tp, outcome.offset, record.value)
                        for record in producer.records
                        if record.acknowledged
                        for outcome in record.outcomes
                        if outcome.tp in logs
                    ],
                    logs,
                )
        for consumer in (*self.former_consumers, *self.consumers):
            check_reading(consumer.read, logs)
        if settings.groups and self.consumers:
            check_everything_read(self.group_read, logs)
        if settings.extra:
            self.extra.check(self._log_of)


def run(schedule: Schedule) -> World:
    """Run the schedule; raise InvariantError, or any other error that occurs."""
    return World(schedule).run()


def failure(schedule: Schedule) -> str | None:
    """Run the schedule; return a description of its failure, or None."""
    return seeds.failure_of(partial(run, schedule))
