"""An exactly-once pipeline under faults: a group of workers that copy a topic with their offsets in transactions.

Workers crash, hang with a transaction open while a successor takes over, and abort at random. After all faults,
read_committed shows each input once, in order; all of each transaction or nothing; and no transaction is left open.

    python -m tests.simulation.pipeline --count 1000
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, NamedTuple

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.testing.simulation import Simulation
from pykclient.testing.simulation.checks import (
    InvariantError,
    check_exactly_once,
    check_replicas,
    check_transactions,
)
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.simulation import schedule as steps, seeds
from tests.simulation.faults import FaultMaker
from tests.simulation.pipeline_drills import Drills
from tests.simulation.schedule import EVERYBODY, Settings, Step

SOURCE, TARGET, GROUP = "source", "target", "copiers"
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"

# Steps of workers, and faults of the APIs of transactions.
CRASH: Final = "crash worker"  # worker, time until its successor starts
HANG: Final = "hang worker"  # worker, duration; its successor starts at once
STALL: Final = "stall worker"  # worker, duration; the group may go on without it
TXN_DROP_REQUEST: Final = "drop transactional request"  # api, times
TXN_DROP_RESPONSE: Final = "drop transactional response"  # api, times
TXN_HOLD: Final = "hold transactional request"  # api, times, duration
TXN_ERROR: Final = "transactional error"  # api, error, times
TXN_MOVE: Final = "move coordinator"  # 0 for groups, 1 for transactions; broker

#: The APIs of transactions by number, the requests of brokers among them, with errors that may occur at any time.
TXN_APIS: Final = (
    ("INIT_PRODUCER_ID", None, (14, 15, 16, 51)),
    ("ADD_PARTITIONS_TO_TXN", "client:*", (14, 15, 16, 51)),
    ("ADD_OFFSETS_TO_TXN", None, (14, 15, 16, 51)),
    ("TXN_OFFSET_COMMIT", None, (14, 15, 16, 7)),
    ("END_TXN", None, (14, 15, 16, 51)),
    ("ADD_PARTITIONS_TO_TXN", "broker-*", (14, 15, 16, 51)),
    ("WRITE_TXN_MARKERS", "broker-*", (3, 6, 7, 19, 20)),
    ("PRODUCE", None, (6, 7, 19)),
)

#: With generation 0 or 1, transactions of a producer share its epoch. So a request that is processed after its sender
#: has given it up and repeated it may act on the next transaction: a marker commits offsets that are still pending.
#: Kafka's brokers do the same, and KIP-890 ends it with an epoch for each transaction.
_MAY_ACT_TOO_LATE: Final = frozenset({"TXN_OFFSET_COMMIT", "END_TXN", "WRITE_TXN_MARKERS"})
_IN_TIME_MS: Final = 150  # less than any request timeout of a schedule

_HEALING_MS: Final = 60_000
_SESSION_MS: Final = 600
_HEARTBEAT_MS: Final = 150
_POLL_INTERVAL_MS: Final = 1_000
_LOOK_MS: Final = 50


class PipelineSchedule(NamedTuple):
    """The settings of the cluster and the workers, and steps in order of time."""

    seed: int
    settings: Settings
    transaction_version: int
    workers: int
    records: int
    abort_percent: int
    has_stray: bool
    group_protocol: str
    steps: tuple[Step, ...]


def make(seed: int) -> PipelineSchedule:
    rng = random.Random(seed)
    brokers = rng.choice((1, 3, 3))
    replication_factor = rng.choice((1, brokers))
    settings = Settings(
        brokers=brokers,
        partitions=rng.choice((1, 2, 3)),
        replication_factor=replication_factor,
        min_isr=min(replication_factor, rng.choice((1, 2))),
        session_timeout_ms=rng.choice((150, 300)),
        replica_lag_ms=rng.choice((300, 800)),
        segment_bytes=rng.choice((1 << 30, 1 << 30, 600)),
        link_delay_ms=rng.choice((1, 1, 5)),
        link_jitter_ms=rng.choice((0, 3)),
        batch_size=rng.choice((150, 1000)),
        max_block_ms=rng.choice((500, 2000)),
        request_timeout_ms=rng.choice((200, 500)),
        assignor=rng.choice(("range", "cooperative-sticky")),
        max_poll_records=rng.choice((1, 5, 500)),
    )
    trouble = rng.choice((0, 4, 8, 12))
    length_ms = 1_500
    times = sorted(rng.randrange(length_ms) for _ in range(trouble))
    # Of another generator, so that a seed has the same faults by both protocols.
    group_protocol = random.Random(f"group protocol {seed}").choice(("classic", "consumer"))
    return PipelineSchedule(
        seed,
        settings,
        transaction_version=rng.choice((0, 1, 2, 2)),
        workers=rng.choice((1, 2, 3)),
        records=rng.choice((5, 15, 25)),
        abort_percent=rng.choice((0, 20)),
        has_stray=rng.random() < 0.3,
        group_protocol=group_protocol,
        steps=tuple(_step(rng, at_ms, settings) for at_ms in times),
    )


def _step(rng: random.Random, at_ms: int, settings: Settings) -> Step:
    duration_ms = rng.choice((20, 100, 400, 1200))
    roll = rng.random()
    if roll < 0.12:
        return Step(at_ms, CRASH, (rng.randrange(3), duration_ms))
    if roll < 0.22:
        return Step(at_ms, rng.choice((HANG, STALL)), (rng.randrange(3), 3 * duration_ms))
    if roll < 0.3:
        return Step(at_ms, TXN_MOVE, (rng.randrange(2), rng.randint(1, settings.brokers)))
    api = rng.randrange(len(TXN_APIS))
    if roll < 0.4:
        return Step(at_ms, TXN_DROP_REQUEST, (api, rng.choice((1, 1, 3))))
    if roll < 0.5:
        return Step(at_ms, TXN_DROP_RESPONSE, (api, rng.choice((1, 1, 3))))
    if roll < 0.58:
        return Step(at_ms, TXN_HOLD, (api, rng.choice((1, 3)), duration_ms))
    if roll < 0.66:
        return Step(at_ms, TXN_ERROR, (api, rng.choice(TXN_APIS[api][2]), rng.choice((1, 2))))
    broker = rng.randint(1, settings.brokers)
    if roll < 0.76:
        return Step(at_ms, rng.choice((steps.KILL, steps.STOP)), (broker, duration_ms))
    if roll < 0.82:
        return Step(at_ms, steps.PAUSE, (broker, duration_ms))
    if roll < 0.92:
        other = rng.choice((steps.LEADER, steps.CLIENTS, EVERYBODY, rng.randint(1, settings.brokers)))
        return Step(at_ms, rng.choice((steps.CUT, steps.RESET)), (broker, other, duration_ms))
    return Step(at_ms, steps.MOVE_LEADER, (rng.randrange(settings.partitions), broker))


class _Transaction:
    """The records that a worker sent in one transaction, and the outcome that the worker was told."""

    def __init__(self) -> None:
        self.outcome: bool | None = None
        self.values: dict[TopicPartition, list[bytes]] = {}


class Worker:
    """A process with a consumer of the source and a producer to the target. A new life fences the one before."""

    def __init__(self, pipeline: Pipeline, number: int, life: int) -> None:
        self.name = f"w{number}-{life}"
        self.number, self.life = number, life
        self._pipeline = pipeline
        self._simulation = pipeline.simulation
        self._rng = self._simulation.new_rng()
        self.environment = self._simulation.environment(self.name)
        self.hang_ms = 0
        self.stopping = pipeline.ending
        self.closed = False
        self.actor = self._simulation.actor(self.run, self.name)

    def crash(self) -> None:
        """Kill the process. Called by another actor."""
        self.closed = True
        self.environment.crash(self.actor)
        for client in self._clients():
            _forget(client)

    def run(self) -> None:
        self._open()
        try:
            self._work()
        except (KafkaError, IllegalStateError) as error:
            # Fenced, or failed for good: the process ends, and another one starts.
            self._pipeline.note("worker fails", self.name, type(error).__name__)
            if not self._pipeline.schedule.steps:
                self._pipeline.unprovoked.append(error)
        for client in self._clients():
            try:
                client.close()
            except KafkaError as error:
                self._pipeline.note("close failed", self.name, type(error).__name__)
        self.closed = True
        self._pipeline.ended(self)

    def _clients(self) -> list[KafkaConsumer[bytes, bytes] | KafkaProducer[bytes, bytes]]:
        """Return the clients that were created until now."""
        return [getattr(self, name) for name in ("_consumer", "_producer") if hasattr(self, name)]

    def _common(self) -> dict[str, Any]:
        """Return the settings of all clients."""
        return {
            "bootstrap.servers": self._simulation.bootstrap_servers,
            "client.id": self.name,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 80,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 80,
            "socket.connection.setup.timeout.ms": 300,
            "socket.connection.setup.timeout.max.ms": 600,
        }

    def _new_producer(self, **transactional: Any) -> KafkaProducer[bytes, bytes]:
        """Create a producer with these transactional settings."""
        settings = self._pipeline.schedule.settings
        return KafkaProducer.in_environment(
            self.environment,
            self._common()
            | {
                "batch.size": settings.batch_size,
                "max.block.ms": settings.max_block_ms,
                "request.timeout.ms": settings.request_timeout_ms,
                "delivery.timeout.ms": 2_000,
            },
            **transactional,
        )

    def _open(self) -> None:
        """Create the clients."""
        settings = self._pipeline.schedule.settings
        classic: dict[str, Any] = {}  # the brokers set these of the other protocol
        if self._pipeline.schedule.group_protocol == "classic":
            classic = {
                "partition.assignment.strategy": settings.assignor,
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
            }
        self._consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer.in_environment(
            self.environment,
            self._common()
            | {
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "max.poll.records": settings.max_poll_records,
                "request.timeout.ms": 1_000,
                "default.api.timeout.ms": 2_000,
                "fetch.max.wait.ms": 100,
                "max.poll.interval.ms": _POLL_INTERVAL_MS,
                "group.protocol": self._pipeline.schedule.group_protocol,
            }
            | classic,
        )
        self._producer = self._new_producer(transactional_id=f"worker-{self.number}", transaction_timeout_ms=3_000)

    def _work(self) -> None:
        self._again(self._producer.init_transactions)
        self._consumer.subscribe([SOURCE])
        while not self.stopping:
            self._round()

    def _again(self, call: Callable[[], object]) -> None:
        """Call until it ends in time, as an application does that must know the outcome."""
        while True:
            try:
                call()
                return
            except KafkaTimeoutError:
                self._pipeline.note("repeats", self.name, getattr(call, "__name__", ""))

    def _round(self) -> None:
        try:
            polled = self._consumer.poll(100)
        except KafkaTimeoutError:
            return
        except KafkaError as error:
            self._pipeline.note("poll failed", self.name, type(error).__name__)
            self._simulation.clock.sleep_ms(20)
            return
        if not polled:
            return
        self._producer.begin_transaction()
        transaction = _Transaction()
        self._pipeline.transactions.append(transaction)
        try:
            for tp in sorted(polled):
                target = TopicPartition(TARGET, tp.partition)
                for record in polled[tp]:
                    assert record.value is not None
                    value = self._pipeline.output(record.value)
                    transaction.values.setdefault(target, []).append(value)
                    self._producer.send(TARGET, value, partition=tp.partition)
            self._hang()
            offsets = {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in sorted(polled.items())}
            self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
            if self._rng.randrange(100) < self._pipeline.schedule.abort_percent:
                self._abort(transaction)
                self._rewind(sorted(polled))
                return
            self._again(self._producer.commit_transaction)
            transaction.outcome = True
            self._pipeline.note("committed", self.name, len(transaction.values))
        except KafkaError as error:
            self._pipeline.note("transaction failed", self.name, type(error).__name__)
            self._abort(transaction)
            self._rewind(sorted(polled))

    def _hang(self) -> None:
        if self.hang_ms:
            self._pipeline.note("hangs", self.name, self.hang_ms)
            duration_ms, self.hang_ms = self.hang_ms, 0
            self._simulation.clock.sleep_ms(duration_ms)

    def _abort(self, transaction: _Transaction) -> None:
        self._again(self._producer.abort_transaction)
        transaction.outcome = False
        self._pipeline.note("aborted", self.name)

    def _rewind(self, partitions: list[TopicPartition]) -> None:
        """Go back to the committed offsets."""
        for tp in partitions:
            offset: OffsetAndMetadata | int | None = None
            while tp in self._consumer.assignment():
                try:
                    offset = self._consumer.committed(tp)
                    break
                except KafkaError as error:
                    self._pipeline.note("committed failed", self.name, type(error).__name__)
            if tp in self._consumer.assignment():
                self._consumer.seek(tp, 0 if offset is None else offset)


def _forget(client: Any) -> None:
    """Let a crashed client be collected without a warning."""
    if isinstance(client, KafkaProducer):
        client._refusal = "crashed"
    else:
        client._guard.closed = True


class Stray:
    """A process that dies with a transaction open, and has no successor that would fence it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._environment = pipeline.simulation.environment("stray")
        self._actor = pipeline.simulation.actor(self._run, "stray")

    def _run(self) -> None:
        pipeline = self._pipeline
        self._producer: KafkaProducer[bytes, bytes] = KafkaProducer.in_environment(
            self._environment,
            {
                "bootstrap.servers": pipeline.simulation.bootstrap_servers,
                "transactional.id": "stray",
                "transaction.timeout.ms": 2_000,
                "max.block.ms": 60_000,
                "delivery.timeout.ms": 60_000,
                "request.timeout.ms": 500,
            },
        )
        transaction = _Transaction()
        transaction.outcome = False
        pipeline.transactions.append(transaction)
        try:
            self._producer.init_transactions()
            self._producer.begin_transaction()
            for tp in pipeline.targets:
                value = pipeline.output(b"stray")
                transaction.values[tp] = [value]
                self._producer.send(TARGET, value, partition=tp.partition)
            self._producer.flush()
        except KafkaError as error:
            pipeline.note("stray failed", type(error).__name__)
        pipeline.simulation.loop.call_later(0, self.crash)
        pipeline.clock.sleep_ms(60_000)

    def crash(self) -> None:
        """Kill the process. Called by another actor, also when it is dead."""
        if not self._actor.done:
            self._environment.crash(self._actor)
            if hasattr(self, "_producer"):
                _forget(self._producer)


class Reader:
    """A consumer of the target with read_committed, without a group, which keeps all that it reads."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.read: dict[TopicPartition, list[bytes]] = {tp: [] for tp in pipeline.targets}
        self.stopping = False
        self._pipeline = pipeline
        pipeline.simulation.actor(self._run, "reader")

    def _run(self) -> None:
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer.in_environment(
            self._pipeline.simulation.environment("reader"),
            {
                "bootstrap.servers": self._pipeline.simulation.bootstrap_servers,
                "client.id": "reader",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "request.timeout.ms": 1_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 80,
                "fetch.max.wait.ms": 100,
                "socket.connection.setup.timeout.ms": 300,
                "socket.connection.setup.timeout.max.ms": 600,
            },
        )
        with consumer:
            consumer.assign(list(self.read))
            while not self.stopping:
                try:
                    polled = consumer.poll(100)
                except KafkaError as error:
                    self._pipeline.note("read failed", type(error).__name__)
                    self._pipeline.clock.sleep_ms(20)
                    continue
                for tp, records in polled.items():
                    self.read[tp] += [record.value or b"" for record in records]

    def has_read(self, shown: dict[TopicPartition, list[bytes]]) -> bool:
        return all(len(self.read[tp]) >= len(values) for tp, values in shown.items())


class Pipeline:
    """A cluster, the workers, and what is checked about them."""

    #: More settings of the brokers.
    broker_settings: ClassVar[dict[str, Any]] = {}
    #: The logs of brokers that transactions write to.
    state_logs: ClassVar[tuple[TopicPartition, ...]] = (TopicPartition(OFFSETS, 0), TopicPartition(TRANSACTIONS, 0))

    def __init__(self, schedule: PipelineSchedule) -> None:
        self.schedule = schedule
        settings = schedule.settings
        self.simulation = Simulation(
            schedule.seed,
            settings.brokers,
            transaction_version=schedule.transaction_version,
            config={
                "default.replication.factor": settings.replication_factor,
                "min.insync.replicas": settings.min_isr,
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
                "group.consumer.session.timeout.ms": _SESSION_MS,
                "group.consumer.heartbeat.interval.ms": _HEARTBEAT_MS,
                "transaction.state.log.num.partitions": 1,
                "transaction.state.log.replication.factor": settings.replication_factor,
                "transaction.state.log.min.isr": settings.min_isr,
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
                **self.broker_settings,
            },
        )
        self.cluster = self.simulation.cluster
        self.clock = self.simulation.clock
        self.sources = [TopicPartition(SOURCE, number) for number in range(settings.partitions)]
        self.targets = [TopicPartition(TARGET, number) for number in range(settings.partitions)]
        self.inputs: dict[TopicPartition, list[bytes]] = {tp: [] for tp in self.sources}
        self.transactions: list[_Transaction] = []
        self.unprovoked: list[Exception] = []  # the errors that ended workers in a schedule without faults
        #: Values of drills, which are in the target if their transactions were committed after all.
        self.drill_values: list[bytes] = []
        self.workers: list[Worker] = []
        #: Workers that were replaced while they hung, or because they failed.
        self.former: list[Worker] = []
        #: True when everything is copied; a worker that starts now stops at once.
        self.ending = False
        self.trace: Callable[[str], None] | None = None
        self._outputs = 0
        self._fed = False
        self._stray: Stray | None = None
        self._history = hashlib.sha256()
        self.faults = FaultMaker(self.simulation, settings, self.targets, lambda: None, self._environments)

    def _environments(self) -> Iterator[Any]:
        return (worker.environment for worker in (*self.workers, *self.former) if not worker.closed)

    # --- for workers -------------------------------------------------------------------------------------------------

    def note(self, *what: object) -> None:
        """Add a line to the history, which is the same in each run of a schedule."""
        line = f"{self.clock.now_ms()} {' '.join(map(str, what))}"
        self._history.update(line.encode())
        if self.trace is not None:
            self.trace(line)

    @property
    def history(self) -> str:
        """A digest of the history."""
        return self._history.hexdigest()

    def output(self, value: bytes) -> bytes:
        """Return what a worker makes of an input; each attempt has a number of its own."""
        self._outputs += 1
        return b"%s/%d" % (value, self._outputs)

    @property
    def group(self) -> str:
        return GROUP

    def begin_foreign(self) -> None:
        """Note that a transaction begins that is none of a worker, and is to be aborted."""
        self.transactions.append(_Transaction())
        self.transactions[-1].outcome = False

    def foreign_value(self, target: TopicPartition) -> bytes:
        """Return a value for the transaction that was noted last."""
        value = self.output(b"foreign")
        self.transactions[-1].values.setdefault(target, []).append(value)
        return value

    def ended(self, worker: Worker) -> None:
        """Start the next life of a worker that ended by itself."""
        if worker in self.workers and not worker.stopping:
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        index = self.workers.index(worker)
        self.former.append(worker)
        self.workers[index] = self._worker(worker.number, worker.life + 1)
        self.note("starts", self.workers[index].name)

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> Pipeline:
        """Run the schedule; raise InvariantError, or any other error that occurs."""
        try:
            self.simulation.start()
            sizes = {"internal.segment.bytes": str(self.schedule.settings.segment_bytes)}
            for topic in (SOURCE, TARGET):
                self.simulation.create_topic(topic, len(self.sources), self.schedule.settings.replication_factor, sizes)
            self.simulation.actor(self._feed, "feeder")
            self._reader = Reader(self)
            if self.schedule.has_stray:
                self._stray = Stray(self)
            self.workers = [self._worker(number, 0) for number in range(self.schedule.workers)]
            begun_ms = self.clock.now_ms()
            for step in self.schedule.steps:
                self._pass_time(begun_ms + step.at_ms - self.clock.now_ms())
                self._do(step)
            self._pass_time(_LOOK_MS)
            self.faults.heal()
            self.note("healed")
            director = self.simulation.actor(self._settle, "director")
            self.simulation.run(lambda: director.done)
            self._check()
        finally:
            self._stop()
        return self

    def _worker(self, number: int, life: int) -> Worker:
        return Worker(self, number, life)

    def _stop(self) -> None:
        for worker in (*self.workers, *self.former):
            if not worker.closed:
                worker.crash()
        if self._stray is not None:
            self._stray.crash()
        self.simulation.close()

    def _pass_time(self, duration_ms: int) -> None:
        passed: list[bool] = []
        self.simulation.loop.call_later(duration_ms, passed.append, True)
        self.simulation.run(lambda: bool(passed))

    def _feed(self) -> None:
        """Write the inputs, in order, whatever it takes."""
        producer: KafkaProducer[bytes, bytes] = KafkaProducer.in_environment(
            self.simulation.environment("feeder"),
            {
                "bootstrap.servers": self.simulation.bootstrap_servers,
                "client.id": "feeder",
                "max.block.ms": 600_000,
                "delivery.timeout.ms": 600_000,
                "request.timeout.ms": 500,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 80,
                "socket.connection.setup.timeout.ms": 300,
                "socket.connection.setup.timeout.max.ms": 600,
            },
        )
        for number in range(self.schedule.records):
            for tp in self.sources:
                value = b"%d-%d" % (tp.partition, number)
                self.inputs[tp].append(value)
                producer.send(SOURCE, value, partition=tp.partition)
            self.clock.sleep_ms(1_500 // self.schedule.records)
        producer.close()
        self._fed = True

    def _do(self, step: Step) -> None:
        self.note(step.what, step.arguments)
        what, a = step.what, step.arguments
        faults = self.cluster.faults
        if what == CRASH:
            worker = self.workers[a[0] % len(self.workers)]
            if not worker.closed:
                worker.crash()
                self.simulation.loop.call_later(a[1], self._restart, worker)
        elif what in (HANG, STALL):
            worker = self.workers[a[0] % len(self.workers)]
            if not worker.closed:
                worker.hang_ms = a[1]
                if what == HANG:
                    self._replace(worker)
                    worker.stopping = True
        elif what == TXN_MOVE:
            self.faults.move_leader(TopicPartition((OFFSETS, TRANSACTIONS)[a[0]], 0), a[1])
        elif what in (TXN_DROP_REQUEST, TXN_DROP_RESPONSE, TXN_HOLD, TXN_ERROR):
            api, party, _ = TXN_APIS[a[0]]
            if what == TXN_DROP_REQUEST:
                faults.drop_requests(api, times=a[1], disconnect=a[1] == 1, party=party)
            elif what == TXN_DROP_RESPONSE:
                faults.drop_responses(api, times=a[1], disconnect=a[1] == 1, party=party)
            elif what == TXN_ERROR:
                faults.answer(api, a[1], times=a[2], party=party)
            else:
                duration_ms = a[2]
                if api in _MAY_ACT_TOO_LATE and self.schedule.transaction_version < 2:
                    duration_ms = min(duration_ms, _IN_TIME_MS)
                control = faults.hold(api, times=a[1], party=party)
                self.simulation.loop.call_later(duration_ms, control.remove)
                self.simulation.loop.call_later(duration_ms, control.release)
        else:
            self.faults.do(step)

    def _restart(self, worker: Worker) -> None:
        if worker in self.workers:
            self._replace(worker)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self.await_("all brokers run", self.faults.all_running)
        self.await_("everything is fed", lambda: self._fed)
        self.await_("everything is copied", self._is_everything_copied)
        self.ending = True
        for worker in self.workers:
            worker.stopping = True
        self.await_("workers have stopped", lambda: all(w.closed for w in (*self.workers, *self.former)))
        self.await_("no transaction is open", self._is_stable)
        if self.unprovoked:
            raise InvariantError(f"workers failed without a fault: {self.unprovoked}")
        self._check_markers()  # before the drill, in which requests are lost
        Drills(self).run()
        self.await_("no transaction is open after the drill", self._is_stable)
        self.await_("all replicas have everything", self._is_replicated)
        self.await_("everything is read", lambda: self._reader.has_read(self._shown()))
        self._reader.stopping = True

    def await_(self, what: str, condition: Callable[[], bool]) -> None:
        deadline_ms = self.clock.now_ms() + _HEALING_MS
        while not condition():
            if self.clock.now_ms() > deadline_ms:
                raise InvariantError(f"not within {_HEALING_MS / 1000} s after all faults: {what}")
            self.clock.sleep_ms(_LOOK_MS)
        self.note(what)

    def _log(self, tp: TopicPartition) -> UnifiedLog | None:
        leader = self.cluster.leader(tp)
        partition = None if leader is None else self.cluster.brokers[leader].replica_manager.partition(tp)
        return None if partition is None else partition.log

    def _committed(self, tp: TopicPartition) -> list[bytes]:
        """Return the values that read_committed shows."""
        log = self._log(tp)
        if log is None:
            return []
        start, end = log.log_start_offset, log.last_stable_offset
        aborted = sorted(log.collect_aborted_txns(start, end), key=lambda txn: txn.first_offset)
        skipped: set[int] = set()
        values = []
        for batch in log.batches(start, end):
            while aborted and aborted[0].first_offset <= batch.base_offset:
                skipped.add(aborted.pop(0).producer_id)
            if batch.is_control_batch:
                skipped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in skipped):
                values += [bytes(record.value or b"") for record in batch.records()]
        return values

    def _is_everything_copied(self) -> bool:
        return all(
            len(self._committed(target)) >= max(self.schedule.records, len(self._committed(source)))
            for source, target in zip(self.sources, self.targets, strict=True)
        )

    def _is_stable(self) -> bool:
        return all(self.is_stable(tp) for tp in (*self.targets, *self.state_logs) if tp.topic != TRANSACTIONS)

    def is_stable(self, tp: TopicPartition) -> bool:
        """Return whether a partition has no open transaction."""
        log = self._log(tp)
        return log is not None and log.last_stable_offset == log.log_end_offset

    def _replicas(self, tp: TopicPartition) -> dict[int, UnifiedLog]:
        found = {}
        for broker in self.cluster.alive_brokers():
            partition = broker.replica_manager.partition(tp)
            if partition is not None and partition.log is not None:
                found[broker.id] = partition.log
        return found

    def _is_replicated(self) -> bool:
        for tp in (*self.targets, *self.state_logs):
            logs = self._replicas(tp).values()
            if len({log.log_end_offset for log in logs}) != 1:
                return False
            if any(log.high_watermark != log.log_end_offset for log in logs):
                return False
        return True

    def _shown(self) -> dict[TopicPartition, list[bytes]]:
        return {tp: self._committed(tp) for tp in self.targets}

    def _check(self) -> None:
        shown = self._shown()
        if self._reader.read != shown:
            raise InvariantError(f"a consumer read {self._reader.read}, and read_committed shows {shown}")
        sent = [(transaction.outcome, transaction.values) for transaction in self.transactions]
        check_transactions(sent, shown)
        made_of = {
            TopicPartition(SOURCE, tp.partition): [
                value.split(b"/")[0] for value in values if value not in self.drill_values
            ]
            for tp, values in shown.items()
        }
        # A broker that was stopped knows only the last batch of a producer. So a record may be in the source twice
        # (KIP-360), and then both must be copied.
        stored = {tp: self._committed(tp) for tp in self.sources}
        for tp, values in self.inputs.items():
            if set(values) != set(stored[tp]):
                raise InvariantError(f"{tp} has {stored[tp]}, and {values} were sent")
        check_exactly_once(stored, made_of)
        self._check_replicas()

    def _check_replicas(self) -> None:
        for tp in (*self.targets, *self.state_logs):
            logs = {
                id: b"".join(bytes(batch.buffer) for batch in log.batches(log.log_start_offset, log.log_end_offset))
                for id, log in self._replicas(tp).items()
            }
            check_replicas(logs, tp)
        for tp in self.targets:
            stable = {log.last_stable_offset for log in self._replicas(tp).values()}
            if len(stable) != 1:
                raise InvariantError(f"the replicas of {tp} have different last stable offsets: {stable}")

    def _check_markers(self) -> None:
        """Check that each marker ends a transaction, if nothing was sent twice or not at all.

        The partitions of a transaction that was aborted may have nothing of it but its marker.
        """
        if self.schedule.steps or not all(transaction.outcome for transaction in self.transactions):
            return
        for tp in self.targets:
            log = self._log(tp)
            assert log is not None
            open_producers: set[int] = set()
            for batch in log.batches(log.log_start_offset, log.log_end_offset):
                if not batch.is_control_batch:
                    open_producers.add(batch.producer_id)
                elif batch.producer_id not in open_producers:
                    raise InvariantError(f"the marker at offset {batch.base_offset} of {tp} ends no transaction")
                else:
                    open_producers.remove(batch.producer_id)


def run(schedule: PipelineSchedule) -> Pipeline:
    """Run the schedule; raise InvariantError, or any other error that occurs."""
    return Pipeline(schedule).run()


if __name__ == "__main__":
    sys.exit(seeds.main("tests.simulation.pipeline", lambda seed: Pipeline(make(seed))))
