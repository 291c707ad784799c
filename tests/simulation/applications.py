"""The applications that use the clients: producers and consumers, each an actor that takes commands."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.clock import FOREVER_MS
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer.values import ConsumerRebalanceListener
from pykclient.errors import (
    BufferExhaustedError,
    FencedInstanceIdError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnreleasedInstanceIdError,
)
from pykclient.producer.columns import BatchFuture
from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC = "orders"
#: A second topic, which steps create and delete.
EXTRA = "orders-extra"
GROUP = "billing"
GROUP_METADATA = TopicPartition("__consumer_offsets", 0)

#: The most that an outcome may be late: while it waits for a producer id, the sender sleeps for at most a backoff.
LATE_MS = 300
POLL_MS = 200
_PROBE_SIZE = 8
_SLACK_MS = 30
#: The records per loop, and rows per batch, of an application that mixes all ways to read.
_MIXED_RECORDS = 3
AUTO_COMMIT_INTERVAL_MS = 100


class Inbox:
    """The commands of other actors that an actor has yet to run."""

    def __init__(self, world: World) -> None:
        self._clock = world.simulation.clock
        self._condition = self._clock.new_condition()
        self._commands: deque[Callable[[], object]] = deque()

    def put(self, command: Callable[[], object]) -> None:
        with self._condition:
            self._commands.append(command)
            self._condition.notify()

    def get(self) -> Callable[[], object]:
        with self._condition:
            while not self._commands:
                self._clock.wait(self._condition, FOREVER_MS)
            return self._commands.popleft()

    def __bool__(self) -> bool:
        return bool(self._commands)

    def get_nowait(self) -> Callable[[], object] | None:
        return self._commands.popleft() if self._commands else None


class Outcome(NamedTuple):
    """The result of a record, as a callback or future reports it."""

    error: Exception | None
    tp: TopicPartition
    offset: int


class SentRecord:
    """One record and its results."""

    def __init__(self, producer: str, value: bytes) -> None:
        self.producer = producer
        self.value = value
        self.accepted_ms = -1
        self.tp: TopicPartition | None = None
        self.outcomes: list[Outcome] = []
        self.resolved_ms = -1
        self.future: FutureRecordMetadata | None = None
        #: True if nobody will learn the result, as the application has cancelled the record's future.
        self.is_abandoned = False

    @property
    def acknowledged(self) -> bool:
        return bool(self.outcomes) and self.outcomes[0].error is None

    @property
    def is_settled(self) -> bool:
        return bool(self.outcomes) or self.is_abandoned

    def __repr__(self) -> str:
        fate = (
            repr(self.outcomes[0].error)
            if self.outcomes and self.outcomes[0].error
            else f"{len(self.outcomes)} outcomes"
        )
        return f"<{self.value[:8].decode()} to {self.tp}: {fate}>"


class ProducerApplication:
    """A process with one producer."""

    def __init__(self, world: World, number: int, life: int, setup_timeout_ms: int = 300) -> None:
        """Start the process; ``setup_timeout_ms`` is the producer's ``socket.connection.setup.timeout.ms``."""
        self.world = world
        self._setup_timeout_ms = setup_timeout_ms
        self.name = f"p{number}-{life}"
        self.environment = world.simulation.environment(self.name)
        self.inbox = Inbox(world)
        self.records: list[SentRecord] = []
        self.crashed = False
        self.closed = False
        #: Partitions to which the producer has yet to prove that it can write.
        self.unprobed: set[TopicPartition] = set()
        self.actor = world.simulation.actor(self.run, self.name)
        self.producer: KafkaProducer[bytes, bytes]

    def config(self) -> dict[str, Any]:
        settings = self.world.settings
        return {
            "bootstrap.servers": self.world.simulation.bootstrap_servers,
            "client.id": self.name,
            "enable.idempotence": settings.idempotent,
            "acks": settings.acks,
            "retries": settings.retries,
            "max.in.flight.requests.per.connection": settings.max_in_flight,
            "linger.ms": settings.linger_ms,
            "batch.size": settings.batch_size,
            "buffer.memory": settings.memory,
            "max.block.ms": settings.max_block_ms,
            "request.timeout.ms": settings.request_timeout_ms,
            "delivery.timeout.ms": settings.delivery_timeout_ms,
            "retry.backoff.ms": settings.retry_backoff_ms,
            "retry.backoff.max.ms": settings.retry_backoff_ms * 4,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 80,
            "socket.connection.setup.timeout.ms": self._setup_timeout_ms,
            "socket.connection.setup.timeout.max.ms": 2 * self._setup_timeout_ms,
            "compression.type": settings.compression,
            "metadata.max.age.ms": settings.metadata_age_ms,
        }

    def run(self) -> None:
        self.producer = KafkaProducer.in_environment(self.environment, self.config())
        while not self.closed:
            self.inbox.get()()

    # --- commands ----------------------------------------------------------------------------------------------------

    def send(self, partition: int, size: int, count: int, topic: str = TOPIC) -> None:
        for _ in range(count):
            self.send_one(partition, size, topic)

    def send_batch(self, partition: int, size: int, count: int) -> BatchFuture | None:
        """Send ``count`` records at once; every third one has a different size."""
        records = self._rows(size, count)
        try:
            future = self.producer.send_batch(
                TOPIC, [record.value for record in records], partition=partition if partition >= 0 else None
            )
        except KafkaTimeoutError:  # no metadata
            return None
        self._sent_rows(future, records, partition)
        return future

    def _rows(self, size: int, count: int) -> list[SentRecord]:
        next_value = self.world.next_value
        return [SentRecord(self.name, next_value(size if row % 3 else size // 2 + 8)) for row in range(count)]

    def _sent_rows(self, future: BatchFuture, records: list[SentRecord], partition: int) -> None:
        """Keep the rows of a batch, and wait for their outcomes."""
        world = self.world
        for record in records:
            record.accepted_ms = world.clock.now_ms()
            if partition >= 0:
                record.tp = TopicPartition(TOPIC, partition)
        self.records += records

        def on_done(future: BatchFuture) -> None:
            self._ensure(future.done(), "a batch's callback came before the end")
            told: set[int] = set()
            for part in future.slices:
                for place, row in enumerate(part.rows):
                    self._ensure(row not in told, f"row {row} of a batch is told of twice")
                    told.add(row)
                    record = records[row]
                    tp = TopicPartition(TOPIC, part.partition)
                    if part.partition >= 0:
                        record.tp = tp
                    offset = part.base_offset + place if part.base_offset >= 0 else -1
                    self._resolved(record, Outcome(part.error, tp, offset))
            self._ensure(len(told) == len(records), f"{len(records) - len(told)} rows of a batch have no outcome")

        future.add_done_callback(on_done)

    def _resolved(self, record: SentRecord, outcome: Outcome) -> None:
        world = self.world
        record.outcomes.append(outcome)
        if len(record.outcomes) == 1:
            record.resolved_ms = world.clock.now_ms()
            if outcome.error is None:
                world.acknowledged(self, outcome.tp, outcome.offset)
            world.note("outcome", record.value[:8], type(outcome.error).__name__, outcome.offset)

    def send_one(self, partition: int, size: int, topic: str = TOPIC) -> SentRecord | None:
        world = self.world
        record = SentRecord(self.name, world.next_value(size))

        def on_delivery(error: Exception | None, metadata: RecordMetadata) -> None:
            self._resolved(record, Outcome(error, metadata.topic_partition, metadata.offset))

        start_ms = world.clock.now_ms()
        try:
            record.future = self.producer.send(
                topic,
                record.value,
                key=None if partition >= 0 else record.value[-2:],
                partition=partition if partition >= 0 else None,
                on_delivery=on_delivery,
            )
        except (BufferExhaustedError, KafkaTimeoutError):
            self._ensure(
                world.clock.now_ms() - start_ms >= world.settings.max_block_ms, "send gave up before max.block.ms"
            )
            return None
        except RecordTooLargeError:
            return None
        finally:
            took_ms = world.clock.now_ms() - start_ms
            limit_ms = world.settings.max_block_ms + LATE_MS
            self._ensure(took_ms <= limit_ms, f"send blocked for {took_ms} ms, not {world.settings.max_block_ms}")
        record.accepted_ms = world.clock.now_ms()
        if record.outcomes:  # refused before it joined a batch, or already delivered
            record.tp = record.outcomes[0].tp
        else:
            record.tp = record.future.locate()[0].topic_partition
        self.records.append(record)
        return record

    def probe(self, tp: TopicPartition) -> None:
        """Send a record, and again until one succeeds."""
        record = self.send_one(tp.partition, _PROBE_SIZE, tp.topic)
        if record is not None:
            assert record.future is not None
            try:
                record.future.get()
            except KafkaError as error:
                self.world.note("probe failed", self.name, tp, type(error).__name__)
        if record is not None and record.acknowledged:
            self.unprobed.discard(tp)
        else:
            self.inbox.put(lambda: self.probe(tp))

    def probe_speed(self, tp: TopicPartition, extra_ms: int = 0) -> None:
        """Check that a record takes a few round trips on a healthy cluster, plus ``extra_ms`` for a slow part."""
        self._check_speed("a record", lambda: self._sent(tp), extra_ms)
        self._check_speed("a batch", lambda: self.send_batch(tp.partition, _PROBE_SIZE, 1), extra_ms)
        self.unprobed.discard(tp)

    def probe_start(self, tp: TopicPartition, limit_ms: int) -> None:
        """Check that the first record of a new producer is acknowledged within ``limit_ms``."""
        start_ms = self.world.clock.now_ms()
        future = self._sent(tp)
        self._ensure(future is not None, "a new producer got no metadata")
        if future is not None:
            with contextlib.suppress(KafkaError):
                future.get()
        took_ms = self.world.clock.now_ms() - start_ms
        self._ensure(took_ms <= limit_ms, f"the first record of a producer took {took_ms} ms, not {limit_ms}")
        self.unprobed.discard(tp)

    def _sent(self, tp: TopicPartition) -> FutureRecordMetadata | None:
        record = self.send_one(tp.partition, _PROBE_SIZE)
        return None if record is None else record.future

    def _check_speed(
        self, what: str, send: Callable[[], FutureRecordMetadata | BatchFuture | None], extra_ms: int
    ) -> None:
        settings, clock = self.world.settings, self.world.clock
        start_ms = clock.now_ms()
        future = send()
        if future is None:
            return
        with contextlib.suppress(KafkaError):
            future.get()
        took_ms = clock.now_ms() - start_ms
        limit_ms = settings.linger_ms + 8 * (settings.link_delay_ms + settings.link_jitter_ms) + _SLACK_MS + extra_ms
        self._ensure(took_ms <= limit_ms, f"{what} took {took_ms} ms on a healthy cluster, not {limit_ms}")

    def flush(self, timeout_ms: int) -> None:
        earlier = list(self.records)
        start_ms = self.world.clock.now_ms()
        try:
            self.producer.flush(timeout_ms / 1000)
        except KafkaTimeoutError:
            self._ensure(self.world.clock.now_ms() - start_ms >= timeout_ms, "flush gave up early")
            return
        for record in earlier:
            if not record.is_settled:
                self._fail(f"flush returned before {record}")

    def close(self, timeout_ms: int) -> None:
        start_ms = self.world.clock.now_ms()
        self.producer.close(timeout_ms / 1000)
        self._closed(self.producer, start_ms, timeout_ms)

    def _closed(self, producer: KafkaProducer[Any, Any], start_ms: int, timeout_ms: int) -> None:
        """Check the producer, whose ``close`` with this timeout began at ``start_ms`` and has returned."""
        settings = self.world.settings
        took_ms = self.world.clock.now_ms() - start_ms
        limit_ms = min(timeout_ms, settings.delivery_timeout_ms + settings.request_timeout_ms) + 2 * LATE_MS
        self._ensure(took_ms <= limit_ms, f"closing took {took_ms} ms, not {limit_ms}")
        self.closed = True
        for record in self.records:
            if not record.is_settled:
                self._fail(f"{record} has no outcome after close")
        if took_ms < timeout_ms:  # otherwise requests were abandoned, with their memory
            pool = producer._accumulator._pool  # read directly, because closing removed the metrics
            lent = pool.total_memory - pool.available_memory
            self._ensure(lent == 0, f"{lent} bytes of buffer.memory were not given back")

    def rest(self, duration_ms: int) -> object:
        """Do nothing for this long. The result, if there is one, is to be awaited."""
        return self.world.clock.sleep_ms(duration_ms)  # type: ignore[func-returns-value]

    def crash(self) -> None:
        """Kill the process. Called by another actor."""
        self.crashed = self.closed = True
        self.environment.crash(self.actor)
        self._silence()

    def _silence(self) -> None:
        """Let a crashed client be collected without a warning."""
        if hasattr(self, "producer"):
            self.producer._refusal = "crashed"

    def forget_futures(self) -> None:
        """Release the futures, which refer to this world, and which the garbage collector does not see if compiled."""
        for record in self.records:
            if record.future is not None:
                record.future.locate()[0].listeners.clear()
                record.future = None

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        return all(record.is_settled for record in self.records)

    def check(self) -> None:
        settings = self.world.settings
        for record in self.records:
            if len(record.outcomes) > 1:
                self._fail(f"{record} was resolved more than once")
            if record.outcomes:
                took_ms = record.resolved_ms - record.accepted_ms
                limit_ms = settings.delivery_timeout_ms + LATE_MS
                if took_ms > limit_ms:
                    self._fail(f"{record} was resolved after {took_ms} ms, not {limit_ms}")

    def _ensure(self, condition: bool, problem: str) -> None:
        if not condition:
            self._fail(problem)

    def _fail(self, problem: str) -> None:
        if not self.crashed:
            raise self.world.violated(InvariantError(f"{self.name}: {problem}"))


class ConsumerApplication(ConsumerRebalanceListener):
    """A process with one consumer, which reports all it reads. A fenced consumer is closed and replaced.

    While a former static member is still about to leave, two have the same identity, and one is fenced. The member
    whose JoinGroup comes last stays, and that may be the one that leaves.
    """

    def __init__(self, world: World, number: int, life: int) -> None:
        self.world = world
        self.number = number
        self.name = f"c{number}-{life}"
        #: Static members keep their identity across restarts.
        self.member = f"c{number}" if world.settings.static_members else self.name
        self.environment = world.simulation.environment(self.name)
        self.inbox = Inbox(world)
        self.closing = self.closed = self.crashed = False
        self._fenced = self._obeying = False
        self.expected: dict[TopicPartition, int] = {}
        #: The records that this process read; those of group members also reach World.delivered.
        self.read: dict[TopicPartition, dict[int, bytes]] = {}
        self.errors = 0
        #: The member id with which the consumer was closed; empty if it could not leave without its coordinator.
        self.closed_as = ""
        self._rng = world.simulation.new_rng()
        self._protocol = self._choose_protocol(life)
        self.actor = world.simulation.actor(self.run, self.name)
        self.consumer: KafkaConsumer[bytes, bytes]

    def _choose_protocol(self, life: int) -> str:
        """Return the group protocol of this process."""
        wanted = self.world.settings.group_protocol
        if wanted == "both":
            return self._rng.choice(("classic", "consumer"))
        if wanted in ("upgrade", "downgrade"):
            return "consumer" if (life > 0) == (wanted == "upgrade") else "classic"
        return wanted

    def config(self) -> dict[str, Any]:
        settings = self.world.settings
        config: dict[str, Any] = {
            "bootstrap.servers": self.world.simulation.bootstrap_servers,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "isolation.level": settings.isolation,
            "max.poll.records": settings.max_poll_records,
            "max.partition.fetch.bytes": settings.fetch_bytes,
            "fetch.max.wait.ms": 300,
            "request.timeout.ms": 1_000,
            "default.api.timeout.ms": 2_000,
            "retry.backoff.ms": settings.retry_backoff_ms,
            "retry.backoff.max.ms": settings.retry_backoff_ms * 4,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 80,
            "socket.connection.setup.timeout.ms": 300,
            "socket.connection.setup.timeout.max.ms": 600,
            "metadata.max.age.ms": settings.metadata_age_ms,
            "enable.auto.commit": settings.groups and settings.auto_commit,
            "consumer.timeout.ms": POLL_MS,
            # Subscribing to a deleted topic must not create it.
            "allow.auto.create.topics": not settings.extra,
        }
        if settings.groups:
            config |= {
                "group.id": GROUP,
                "group.protocol": self._protocol,
                "max.poll.interval.ms": settings.max_poll_interval_ms,
                "auto.commit.interval.ms": AUTO_COMMIT_INTERVAL_MS,
            }
            if self._protocol == "consumer":
                config["group.remote.assignor"] = settings.remote_assignor
            else:
                config |= {
                    "session.timeout.ms": settings.member_session_ms,
                    "heartbeat.interval.ms": settings.member_session_ms // 4,
                    "partition.assignment.strategy": settings.assignor,
                }
            if settings.static_members:
                config["group.instance.id"] = self.member
        return config

    def run(self) -> None:
        while not self.closing:
            self._begin()
            self._fenced = False
            while not self._stopping:
                if not self._obey():
                    self._read()
            self._close()
        self.closed = True

    @property
    def _stopping(self) -> bool:
        return self.closing or self._fenced

    def _obey(self) -> bool:
        """Run the next command; return whether there was one."""
        command = self.inbox.get_nowait()
        if command is None:
            return False
        self._obeying = True
        command()
        self._obeying = False
        return True

    @property
    def is_idle(self) -> bool:
        """True if all commands are done and the consumer only reads."""
        return not (self._obeying or self.inbox)

    def _begin(self) -> None:
        settings, partitions = self.world.settings, self.world.partitions
        consumer = self.consumer = KafkaConsumer.in_environment(self.environment, self.config())
        listener = self if settings.groups else None
        if settings.pattern:
            consumer.subscribe(pattern=f"{TOPIC}.*", listener=listener)
        elif settings.groups:
            consumer.subscribe([TOPIC, EXTRA] if settings.extra else [TOPIC], listener=listener)
        else:
            consumer.assign([*partitions, *self.world.extra.partitions] if settings.extra else partitions)
        if not settings.groups:
            self.expected = dict.fromkeys(partitions, 0)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        start_ms = self.world.clock.now_ms()
        reading = self.world.settings.reading
        if reading == "mixed":
            reading = self._rng.choice(tuple(READERS))
        try:
            READERS[reading](self)
        except KafkaError as error:
            self.errors += 1
            self.world.note("poll failed", self.name, type(error).__name__)
            self._fenced = isinstance(error, (FencedInstanceIdError, UnreleasedInstanceIdError))
            self.world.clock.sleep_ms(10)
            return
        if "loop" not in reading:
            self._in_time("a poll", start_ms)

    def _in_time(self, what: str, start_ms: int) -> int:
        """Check that a read that started at ``start_ms`` took no longer than allowed; return the current time."""
        now_ms = self.world.clock.now_ms()
        self._ensure(now_ms - start_ms <= POLL_MS + 2_000 + LATE_MS, f"{what} took {now_ms - start_ms} ms")
        return now_ms

    def _poll(self) -> None:
        for tp, records in self.consumer.poll(timeout_ms=POLL_MS).items():
            for record in records:
                self._deliver(tp, record.offset, record.value)

    def _poll_arrow(self) -> None:
        few = self.world.settings.reading == "mixed"
        self._deliver_columns(self.consumer.poll_arrow(POLL_MS, max_records=_MIXED_RECORDS if few else None))

    def _loop(self) -> None:
        """Loop over records and run commands in between; in mixed mode, leave the loop after a few records."""
        start_ms = self.world.clock.now_ms()
        for got, record in enumerate(self.consumer, 1):
            self._in_time("the next record of a loop", start_ms)
            self._deliver(TopicPartition(record.topic, record.partition), record.offset, record.value)
            self._obey()
            if self._stopping or (self.world.settings.reading == "mixed" and got == _MIXED_RECORDS):
                return
            start_ms = self.world.clock.now_ms()
        self._in_time("the end of a loop", start_ms)

    def _loop_arrow(self) -> None:
        start_ms = self.world.clock.now_ms()
        for got, batch in enumerate(self.consumer.iter_arrow(max_records=_MIXED_RECORDS), 1):
            self._in_time("the next batch of a loop", start_ms)
            self._deliver_columns(batch)
            self._obey()
            if self._stopping or (self.world.settings.reading == "mixed" and got == _MIXED_RECORDS):
                return
            start_ms = self.world.clock.now_ms()
        self._in_time("the end of a loop", start_ms)

    def _deliver_columns(self, batch: Any) -> None:
        columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "value"))
        for topic, partition, offset, value in zip(*columns, strict=True):
            self._deliver(TopicPartition(topic, partition), offset, value)

    def _deliver(self, tp: TopicPartition, offset: int, value: bytes | None) -> None:
        assert value is not None
        if tp.topic == EXTRA:
            self.world.extra.delivered(self.name, tp, offset, value)
            return
        expected = self.expected.get(tp, offset)
        if offset != expected:
            self._ensure(False, f"got offset {offset} of {tp} instead of {expected}")
        self.expected[tp] = offset + 1
        self.read.setdefault(tp, {})[offset] = value
        self.world.delivered(self, tp, offset, value)

    # --- commands ----------------------------------------------------------------------------------------------------

    def commit(self, wait: bool) -> None:
        if not self.world.settings.groups:
            return
        try:
            if wait:
                self.consumer.commit()
            else:
                self.consumer.commit_async()
        except KafkaError as error:
            self.world.note("commit failed", self.name, type(error).__name__)

    def busy(self, duration_ms: int) -> object:
        return self.world.clock.sleep_ms(duration_ms)  # type: ignore[func-returns-value]

    def pause(self, duration_ms: int) -> None:
        paused = sorted(self.consumer.assignment())  # in the same order in every process
        self.consumer.pause(*paused)
        self.world.loop.call_later(duration_ms, self.inbox.put, self._resume)

    def _resume(self) -> None:
        self.consumer.resume(*sorted(self.consumer.paused()))

    def seek(self) -> None:
        """Seek to the committed offsets, as after a failed database transaction."""
        for tp in sorted(self.consumer.assignment()):
            offset: Any = 0
            if self.world.settings.groups and tp.topic == TOPIC:
                try:
                    offset = self.consumer.committed(tp) or 0
                except KafkaError:
                    return
            if tp not in self.consumer.assignment():  # this lookup, or one before, may have run a rebalance
                continue
            self.consumer.seek(tp, offset)
            self.expected[tp] = offset

    def wakeup(self) -> None:
        """Wake the consumer up. Called by another actor."""
        if hasattr(self, "consumer") and not (self.closing or self._fenced):
            self.consumer.wakeup()

    def leave(self) -> None:
        self.closing = True

    def _close(self) -> None:
        start_ms = self.world.clock.now_ms()
        self.closed_as = self._known_member_id(self.consumer._consumer.components.coordinator)
        try:
            self.consumer.close()
        except KafkaError as error:
            self.world.note("close failed", self.name, type(error).__name__)
        self._closed(start_ms)

    def _known_member_id(self, coordinator: Any) -> str:
        """Return the member id with which the consumer can leave; empty if it does not know the coordinator."""
        if coordinator is None:
            return ""
        found, real = coordinator.lookup.broker, self.world.cluster.leader(GROUP_METADATA)
        if found is None or found.id != real or coordinator.lookup.unknown:
            return ""
        return str(coordinator.membership.generation.member_id)

    def _closed(self, start_ms: int) -> None:
        """Check the consumer, whose ``close`` began at ``start_ms`` and has returned."""
        took_ms = self.world.clock.now_ms() - start_ms
        self._ensure(took_ms <= 1_000 + LATE_MS, f"closing took {took_ms} ms")
        if took_ms >= 1_000:  # request.timeout.ms, by which the broker has not answered all of its requests
            self.closed_as = ""
        if self.world.settings.groups:
            self.world.left(self)

    def crash(self) -> None:
        """Kill the process. Called by another actor."""
        self.crashed = self.closed = True
        self.environment.crash(self.actor)
        self.world.ownership.crashed(self.name)
        self._silence()

    def _silence(self) -> None:
        """Let a crashed client be collected without a warning."""
        if hasattr(self, "consumer"):
            self.consumer._guard.closed = True

    # --- the listener ------------------------------------------------------------------------------------------------

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        generation = self.consumer.group_metadata().generation_id
        self.world.note("assigned", self.name, generation, sorted(assigned))
        self.world.assigned(self, generation, assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.gave_back(revoked, self.is_member)

    @property
    def is_member(self) -> bool:
        """True if the consumer is in the group, as far as it knows."""
        components: Any = self.consumer._consumer.components
        return bool(components.coordinator.membership.generation.generation_id >= 0)

    def gave_back(self, revoked: Collection[TopicPartition], was_member: bool) -> None:
        """Check a revocation. ``was_member`` is True if the consumer was a member when it called its listener."""
        generation = self.consumer.group_metadata().generation_id
        self.world.note("revoked", self.name, sorted(revoked))
        self._ensure(was_member, f"{sorted(revoked)} were lost, and are reported as revoked")
        self.world.revoked(self, generation, revoked)
        self._forget(revoked)

    @property
    def keeps_partitions(self) -> bool:
        """True if the consumer revokes only partitions that move, as long as it stays in the group."""
        is_cooperative = self._protocol == "consumer" or self.world.settings.assignor == "cooperative-sticky"
        return is_cooperative and not self._stopping

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.world.note("lost", self.name, sorted(lost))
        self.world.lost(self, lost)
        self._forget(lost)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self.expected.pop(tp, None)

    def _ensure(self, condition: bool, problem: str) -> None:
        if not condition and not self.crashed:
            raise self.world.violated(InvariantError(f"{self.name}: {problem}"))


#: Ways to read: each reads the available records, and yields to other actors while there are none.
READERS: dict[str, Callable[[ConsumerApplication], None]] = {
    "poll": ConsumerApplication._poll,
    "arrow": ConsumerApplication._poll_arrow,
    "loop": ConsumerApplication._loop,
    "arrow loop": ConsumerApplication._loop_arrow,
}
