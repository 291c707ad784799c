"""A share group under faults: members that crash, hang and release at random, on brokers that fail and move.

After all faults, every record is accepted. After a broker has confirmed that, no broker delivers the record again,
except for a former leader that is cut off: it delivers what it knows, and cannot confirm anything. A member that
hangs may return the record to its application even later, as it has fetched it before. A member whose lock has
expired may be told of success, too, if another one has accepted the record meanwhile; it then keeps a record whose
lock it has renewed.

A record whose release a broker has confirmed is delivered again, with a higher delivery count. Each delivery raises the
count by one. A new leader may repeat counts, as those of records that are held are not stored.

    python -m tests.simulation.share_groups --count 1000
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pykclient.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from pykclient.consumer.share.acknowledgements import AcknowledgeType
from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
from pykclient.errors import KafkaError, NotLeaderOrFollowerError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing.simulation import Simulation
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import TopicIdPartition, TopicPartition
from tests.simulation import schedule as steps, seeds
from tests.simulation.faults import FaultMaker
from tests.simulation.schedule import EVERYBODY, Settings, Step
from tests.simulation.share_drills import DRILL, ShareDrills

if TYPE_CHECKING:
    from pykclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
    from pykclient.testing.request_channel import RequestRecord

TOPIC, GROUP = "source", "sharers"

CRASH: Final = "crash member"  # member, time until its successor starts
HANG: Final = "hang member"  # member, duration
SHARE_DROP_REQUEST: Final = "drop share request"  # api, times
SHARE_DROP_RESPONSE: Final = "drop share response"  # api, times
SHARE_HOLD: Final = "hold share request"  # api, times, duration
SHARE_ERROR: Final = "share error"  # api, error, times
SHARE_MOVE: Final = "move coordinator"  # 0 for groups, 1 for the state of share groups; broker

_COORDINATORS: Final = (TopicPartition("__consumer_offsets", 0), TopicPartition("__share_group_state", 0))

#: The APIs of share groups by number, with errors that may occur at any time.
SHARE_APIS: Final = (
    ("SHARE_FETCH", (6, 122, 123, -1)),
    ("SHARE_ACKNOWLEDGE", (6, 122, 123, 15)),
    ("SHARE_GROUP_HEARTBEAT", (14, 15, 16, 25)),
    ("FIND_COORDINATOR", (15,)),
)

#: The steps that leave all leaders where they are, and lose no response after which a record stays acquired.
_OF_MEMBERS: Final = (CRASH, HANG, SHARE_DROP_REQUEST, SHARE_DROP_RESPONSE, SHARE_HOLD, SHARE_ERROR)

#: The error codes of acceptances that are written, and of those that may be.
_IS_WRITTEN: Final = (0,)
_MAY_BE_WRITTEN: Final = (0, NotLeaderOrFollowerError.code)

#: The steps after which a broker may take itself for a leader that another one has replaced.
_LEAVES_FORMER_LEADERS: Final = (steps.CUT, steps.RESET, steps.PAUSE)

_HEALING_MS: Final = 60_000
_LOOK_MS: Final = 50
_LENGTH_MS: Final = 1_500
_LOCK_MS: Final = 1_000
#: Faults may cost a record many deliveries, and after the last one it would be given up.
_DELIVERIES: Final = 1_000


class ShareSchedule(NamedTuple):
    """The settings of the cluster and the members, and steps in order of time."""

    seed: int
    settings: Settings
    members: int
    records: int
    release_percent: int
    is_explicit: bool
    acquire_mode: str
    steps: tuple[Step, ...]


def make(seed: int) -> ShareSchedule:
    rng = random.Random(f"share groups {seed}")
    brokers = rng.choice((1, 3, 3))
    settings = Settings(
        brokers=brokers,
        partitions=rng.choice((1, 2, 3)),
        replication_factor=brokers,
        min_isr=min(brokers, 2),
        session_timeout_ms=rng.choice((150, 300)),
        replica_lag_ms=rng.choice((300, 800)),
        link_delay_ms=rng.choice((1, 1, 5)),
        link_jitter_ms=rng.choice((0, 3)),
        batch_size=rng.choice((60, 1000)),
        max_poll_records=rng.choice((1, 5, 500)),
    )
    times = sorted(rng.randrange(_LENGTH_MS) for _ in range(rng.choice((0, 4, 8, 12))))
    return ShareSchedule(
        seed,
        settings,
        members=rng.choice((1, 2, 4)),
        records=rng.choice((10, 40)),
        release_percent=rng.choice((0, 20)),
        is_explicit=rng.random() < 0.6,
        acquire_mode=rng.choice(("batch_optimized", "record_limit")),
        steps=tuple(_step(rng, at_ms, settings) for at_ms in times),
    )


def _step(rng: random.Random, at_ms: int, settings: Settings) -> Step:
    duration_ms = rng.choice((20, 100, 400, 1200))
    roll = rng.random()
    api = rng.randrange(len(SHARE_APIS))
    if roll < 0.15:
        return Step(at_ms, CRASH, (rng.randrange(4), duration_ms))
    if roll < 0.25:
        return Step(at_ms, HANG, (rng.randrange(4), 2 * duration_ms))
    if roll < 0.37:
        return Step(at_ms, SHARE_DROP_REQUEST, (api, rng.choice((1, 1, 3))))
    if roll < 0.49:
        return Step(at_ms, SHARE_DROP_RESPONSE, (api, rng.choice((1, 1, 3))))
    if roll < 0.57:
        return Step(at_ms, SHARE_HOLD, (api, rng.choice((1, 3)), duration_ms))
    if roll < 0.67:
        return Step(at_ms, SHARE_ERROR, (api, rng.choice(SHARE_APIS[api][1]), rng.choice((1, 2))))
    broker = rng.randint(1, settings.brokers)
    if roll < 0.72:
        return Step(at_ms, SHARE_MOVE, (rng.randrange(2), broker))
    if roll < 0.78:
        return Step(at_ms, rng.choice((steps.KILL, steps.STOP)), (broker, duration_ms))
    if roll < 0.83:
        return Step(at_ms, steps.PAUSE, (broker, duration_ms))
    if roll < 0.9:
        other = rng.choice((steps.LEADER, steps.CLIENTS, EVERYBODY))
        return Step(at_ms, rng.choice((steps.CUT, steps.RESET)), (broker, other, duration_ms))
    return Step(at_ms, steps.MOVE_LEADER, (rng.randrange(settings.partitions), broker))


class Member:
    """A process with one share consumer."""

    def __init__(self, world: ShareWorld, number: int, life: int) -> None:
        self.name = f"m{number}-{life}"
        self.number, self.life = number, life
        self._world = world
        self._rng = world.simulation.new_rng()
        self.environment = world.simulation.environment(self.name)
        self.hang_ms = 0
        self.closed = False
        self.actor = world.simulation.actor(self.run, self.name)

    def crash(self) -> None:
        """Kill the process. Called by another actor."""
        self.closed = True
        self.environment.crash(self.actor)
        if hasattr(self, "_consumer"):
            self._consumer._guard.closed = True

    def run(self) -> None:
        schedule = self._world.schedule
        self._consumer: KafkaShareConsumer[bytes, bytes] = KafkaShareConsumer.in_environment(
            self.environment,
            {
                "bootstrap.servers": self._world.simulation.bootstrap_servers,
                "client.id": self.name,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit" if schedule.is_explicit else "implicit",
                "share.acquire.mode": schedule.acquire_mode,
                "max.poll.records": schedule.settings.max_poll_records,
                "request.timeout.ms": 1_000,
                "default.api.timeout.ms": 2_000,
                "fetch.max.wait.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 80,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 80,
                "socket.connection.setup.timeout.ms": 300,
                "socket.connection.setup.timeout.max.ms": 600,
            },
            TOPIC,
        )
        self._consumer.set_acknowledgement_commit_callback(self._acknowledged)
        self._kinds: dict[tuple[int, int], AcknowledgeType] = {}
        #: The delivery counts of records whose release was requested, until the broker has confirmed or refused it.
        self._releasing: dict[tuple[int, int], deque[int]] = {}
        while not self._world.ending:
            try:
                self._round()
            except KafkaError as error:
                self._world.note("round failed", self.name, type(error).__name__)
                self._world.clock.sleep_ms(20)
        try:
            self._consumer.close()
        except KafkaError as error:
            self._world.note("close failed", self.name, type(error).__name__)
        self.closed = True

    def _round(self) -> None:
        schedule = self._world.schedule
        for tp, records in self._consumer.poll(100).items():
            for record in records:
                assert record.value is not None
                count = record.delivery_count
                assert count is not None
                if self._kinds.get((tp.partition, record.offset)) is not AcknowledgeType.RENEW:
                    self._world.delivered(self.name, tp, record.offset, record.value, count)
                kind = AcknowledgeType.ACCEPT
                if schedule.is_explicit:
                    if self._rng.randrange(100) < schedule.release_percent:
                        kind = self._rng.choice((AcknowledgeType.RELEASE, AcknowledgeType.RENEW))
                    self._consumer.acknowledge(record, kind)
                self._kinds[tp.partition, record.offset] = kind
                if kind is AcknowledgeType.RELEASE:
                    self._releasing.setdefault((tp.partition, record.offset), deque()).append(count)
        if self.hang_ms:
            self._world.note("hangs", self.name, self.hang_ms)
            duration_ms, self.hang_ms = self.hang_ms, 0
            self._world.clock.sleep_ms(duration_ms)
        roll = self._rng.random()
        if roll < 0.3:
            self._consumer.commit_sync()
        elif roll < 0.5:
            self._consumer.commit_async()

    def _acknowledged(self, offsets: dict[TopicIdPartition, set[int]], error: KafkaError | None) -> None:
        for tip, some in offsets.items():
            for offset in sorted(some):
                kind = self._kinds[tip.partition, offset]
                if error is None and kind is AcknowledgeType.ACCEPT:
                    self._world.confirmed(tip.topic_partition, offset)
                elif kind is AcknowledgeType.RELEASE:
                    counts = self._releasing[tip.partition, offset]
                    if counts:
                        count = counts.popleft()
                        if error is None:
                            self._world.released(tip.topic_partition, offset, count)


class ShareWorld:
    """A cluster, the members, and what is checked about them."""

    def __init__(self, schedule: ShareSchedule) -> None:
        self.schedule = schedule
        settings = schedule.settings
        self.simulation = Simulation(
            schedule.seed,
            settings.brokers,
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
                "share.coordinator.state.topic.num.partitions": 1,
                "share.coordinator.state.topic.replication.factor": settings.replication_factor,
                "share.coordinator.state.topic.min.isr": settings.min_isr,
                "share.coordinator.write.timeout.ms": 400,
                "group.share.session.timeout.ms": 600,
                "group.share.heartbeat.interval.ms": 150,
                "group.share.record.lock.duration.ms": _LOCK_MS,
                "group.share.delivery.count.limit": _DELIVERIES,
            },
        )
        self.cluster = self.simulation.cluster
        self.clock = self.simulation.clock
        self.partitions = [TopicPartition(TOPIC, number) for number in range(settings.partitions)]
        self.members: list[Member] = []
        self.former: list[Member] = []
        self.ending = False
        self.trace: Callable[[str], None] | None = None
        self._values: dict[tuple[TopicPartition, int], bytes] = {}
        self._deliveries: Counter[tuple[TopicPartition, int]] = Counter()
        #: The deliveries that members have seen: the member, the record and its delivery count.
        self._seen: set[tuple[str, TopicPartition, int, int]] = set()
        #: The highest delivery count of each record whose release a broker has confirmed.
        self._released: dict[tuple[TopicPartition, int], int] = {}
        #: When members were first told that a record is accepted.
        self._confirmed: dict[tuple[TopicPartition, int], int] = {}
        self._sent: set[bytes] = set()
        self._fed = self._has_group = False
        self._history = hashlib.sha256()
        self.faults = FaultMaker(self.simulation, settings, self.partitions, lambda: None, self._environments)

    def _environments(self) -> Iterator[Any]:
        return (member.environment for member in (*self.members, *self.former) if not member.closed)

    # --- for members -------------------------------------------------------------------------------------------------

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

    def delivered(self, member: str, tp: TopicPartition, offset: int, value: bytes, count: int) -> None:
        self.note("delivered", tp, offset, count)
        self._seen.add((member, tp, offset, count))
        if self._values.setdefault((tp, offset), value) != value:
            raise InvariantError(f"{tp} {offset} has two values")
        self._deliveries[tp, offset] += 1

    def confirmed(self, tp: TopicPartition, offset: int) -> None:
        self.note("confirmed", tp, offset)
        self._confirmed.setdefault((tp, offset), self.clock.now_ms())

    def released(self, tp: TopicPartition, offset: int, count: int) -> None:
        self.note("released", tp, offset, count)
        self._released[tp, offset] = max(count, self._released.get((tp, offset), 0))

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> ShareWorld:
        """Run the schedule; raise InvariantError, or any other error that occurs."""
        try:
            self.simulation.start()
            self.simulation.create_topic(TOPIC, len(self.partitions), self.schedule.settings.replication_factor)
            configured = self.simulation.actor(self._configure, "admin")
            self.simulation.run(lambda: configured.done)
            self.simulation.actor(self._feed, "feeder")
            self.members = [Member(self, number, 0) for number in range(self.schedule.members)]
            begun_ms = self.clock.now_ms()
            for step in self.schedule.steps:
                self._pass_time(begun_ms + step.at_ms - self.clock.now_ms())
                self._do(step)
            self._pass_time(_LOOK_MS)
            self.faults.heal()
            self.note("healed")
            director = self.simulation.actor(self._settle, "director")
            self.simulation.run(lambda: director.done)
            self._check_deliveries()
            self._check_accepted()
        finally:
            for member in (*self.members, *self.former):
                if not member.closed:
                    member.crash()
            self.simulation.close()
        return self

    def _configure(self) -> None:
        admin = KafkaAdminClient.in_environment(
            self.simulation.environment("admin"), {"bootstrap.servers": self.simulation.bootstrap_servers}
        )
        configs = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, GROUP, configs)])
        admin.close()

    def _pass_time(self, duration_ms: int) -> None:
        passed: list[bool] = []
        self.simulation.loop.call_later(duration_ms, passed.append, True)
        self.simulation.run(lambda: bool(passed))

    def _feed(self) -> None:
        producer: KafkaProducer[bytes, bytes] = KafkaProducer.in_environment(
            self.simulation.environment("feeder"),
            {
                "bootstrap.servers": self.simulation.bootstrap_servers,
                "client.id": "feeder",
                "batch.size": self.schedule.settings.batch_size,
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
            for tp in self.partitions:
                value = b"%d-%d" % (tp.partition, number)
                self._sent.add(value)
                producer.send(TOPIC, value, partition=tp.partition)
            self.clock.sleep_ms(_LENGTH_MS // self.schedule.records)
        producer.close()
        self._fed = True

    def _do(self, step: Step) -> None:
        self.note(step.what, step.arguments)
        what, a = step.what, step.arguments
        faults = self.cluster.faults
        if what in (CRASH, HANG):
            member = self.members[a[0] % len(self.members)]
            if member.closed:
                return
            if what == HANG:
                member.hang_ms = a[1]
                return
            member.crash()
            self.simulation.loop.call_later(a[1], self._replace, member)
        elif what in (SHARE_DROP_REQUEST, SHARE_DROP_RESPONSE, SHARE_HOLD, SHARE_ERROR):
            api = SHARE_APIS[a[0]][0]
            if what == SHARE_DROP_REQUEST:
                faults.drop_requests(api, times=a[1], disconnect=a[1] == 1)
            elif what == SHARE_DROP_RESPONSE:
                faults.drop_responses(api, times=a[1], disconnect=a[1] == 1)
            elif what == SHARE_ERROR:
                faults.answer(api, a[1], times=a[2])
            else:
                control = faults.hold(api, times=a[1])
                self.simulation.loop.call_later(a[2], control.remove)
                self.simulation.loop.call_later(a[2], control.release)
        elif what == SHARE_MOVE:
            self.faults.move_leader(_COORDINATORS[a[0]], a[1])
        else:
            self.faults.do(step)

    def _replace(self, member: Member) -> None:
        index = self.members.index(member)
        self.former.append(member)
        self.members[index] = Member(self, member.number, member.life + 1)
        self.note("starts", self.members[index].name)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self.await_("all brokers run", self.faults.all_running)
        self.await_("everything is fed", lambda: self._fed)
        self.await_("every record was delivered", lambda: set(self._values.values()) == self._sent)
        quiet_ms = self._quiet_since()
        self.await_("no record comes any more", lambda: self.clock.now_ms() - self._quiet_since() > 3 * _LOCK_MS)
        self.note("quiet", quiet_ms)
        self.ending = True
        self.await_("members have stopped", lambda: all(member.closed for member in self.members))
        ShareDrills(self, _LOCK_MS).run()

    def _acquisitions(self) -> Iterator[tuple[int, int, str, TopicPartition, int, int]]:
        """Yield what responses gave to members, in that order: the time, broker, member, record and delivery count.

        The time is that of the response. A response may wait until the request's acknowledgements are written, long
        after it has acquired records, so with acknowledgements it is the time of the request.
        """
        requests = self.cluster.history.matching(api="SHARE_FETCH")
        for request in sorted(requests, key=lambda request: (request.answered_ms or 0, request.number)):
            if (request.client_id or "").startswith(DRILL):
                continue
            response = cast("ShareFetchResponse | None", request.response)
            now_ms = request.time_ms if _has_acknowledgements(request) else request.answered_ms or 0
            for topic in () if response is None else response.responses:
                for partition in topic.partitions:
                    tp = TopicPartition(TOPIC, partition.partition_index)
                    for records in partition.acquired_records:
                        for offset in range(records.first_offset, records.last_offset + 1):
                            member = request.client_id or ""
                            yield now_ms, request.broker_id, member, tp, offset, records.delivery_count

    def _check_deliveries(self) -> None:
        """Check what brokers delivered, which a member that hangs returns to its application much later."""
        has_one_leader = all(step.what in _OF_MEMBERS for step in self.schedule.steps)
        crashed = self._crashed()
        highest: dict[tuple[TopicPartition, int], int] = {}
        owners: dict[tuple[TopicPartition, int], str] = {}
        acquired = set()
        may_lag = any(step.what in _LEAVES_FORMER_LEADERS for step in self.schedule.steps)
        accepted_by = {(tp, offset): broker for broker, tp, offset in self._acceptances(_IS_WRITTEN)}
        for now_ms, broker, member, tp, offset, count in self._acquisitions():
            acquired.add((member, tp, offset, count))
            # A former leader that is cut off may deliver what it knows, until its first acknowledgement is refused.
            is_former = may_lag and broker != accepted_by.get((tp, offset), broker)
            if now_ms > self._confirmed.get((tp, offset), now_ms) and not is_former:
                raise InvariantError(f"{tp} {offset} was delivered again after its acceptance was confirmed")
            before = highest.get((tp, offset), 0)
            # What a crashed member holds is forgotten, with its count, if the last session of the group ends.
            is_exact = has_one_leader and owners.get((tp, offset)) not in crashed
            owners[tp, offset] = member
            if count > before + 1 or count < 1 or (is_exact and count != before + 1):
                raise InvariantError(f"{tp} {offset} has the delivery count {count}, and had {before} before")
            highest[tp, offset] = max(count, before)
        for member, tp, offset, count in self._seen - acquired:
            raise InvariantError(f"{member} got {tp} {offset} with the delivery count {count}, which no broker gave it")
        for (tp, offset), count in self._released.items():
            if highest[tp, offset] <= count:
                raise InvariantError(f"{tp} {offset} was released after delivery {count}, and not delivered again")

    def _check_accepted(self) -> None:
        """Check that each record was accepted with success, where no leader was lost that might have known.

        Whether the member got the response does not matter. If the last member crashes while its acceptance is being
        written, the leader forgets the group and calls itself fenced, and the acceptance may be written all the same.
        """
        if any(step.what not in (*_OF_MEMBERS, SHARE_MOVE) for step in self.schedule.steps):
            return
        accepted = {(tp, offset) for _, tp, offset in self._acceptances(_MAY_BE_WRITTEN)}
        for tp, offset in self._values:
            if (tp, offset) not in accepted:
                raise InvariantError(f"{tp} {offset} is not delivered any more, and was never accepted with success")

    def _acceptances(self, codes_of_crashed: Container[int]) -> Iterator[tuple[int, TopicPartition, int]]:
        """Yield the broker and the record of each acceptance that succeeded.

        Those of crashed members have one of ``codes_of_crashed``.
        """
        crashed = self._crashed()
        for api in ("SHARE_FETCH", "SHARE_ACKNOWLEDGE"):
            for request in self.cluster.history.matching(api=api):
                client_id = request.client_id or ""
                if not client_id.startswith(DRILL):
                    codes = codes_of_crashed if client_id in crashed else _IS_WRITTEN
                    for partition, offset in _accepted(request, codes):
                        yield request.broker_id, TopicPartition(TOPIC, partition), offset

    def _crashed(self) -> set[str]:
        """Return the names of members that have crashed."""
        return {member.name for member in self.former}

    def _quiet_since(self) -> int:
        """Return the time of the last delivery."""
        total = self._deliveries.total()
        if total != self._last_total:
            self._last_total, self._last_ms = total, self.clock.now_ms()
        return self._last_ms

    _last_total = _last_ms = -1

    def await_(self, what: str, condition: Callable[[], bool]) -> None:
        deadline_ms = self.clock.now_ms() + _HEALING_MS
        while not condition():
            if self.clock.now_ms() > deadline_ms:
                raise InvariantError(f"not within {_HEALING_MS / 1000} s after all faults: {what}")
            self.clock.sleep_ms(_LOOK_MS)
        self.note(what)


def _has_acknowledgements(request: RequestRecord) -> bool:
    body = cast("ShareFetchRequest", request.body)
    return any(partition.acknowledgement_batches for topic in body.topics for partition in topic.partitions)


def _accepted(request: RequestRecord, codes: Container[int]) -> Iterator[tuple[int, int]]:
    """Yield the partition and offset of each record that a request has accepted, with one of these error codes."""
    response: Any = request.response
    if response is None or response.error_code:
        return
    failed = {
        partition.partition_index
        for topic in response.responses
        for partition in topic.partitions
        if getattr(partition, "acknowledge_error_code", partition.error_code) not in codes
    }
    for topic in cast("Any", request.body).topics:
        for partition in topic.partitions:
            for batch in partition.acknowledgement_batches:
                offsets = range(batch.first_offset, batch.last_offset + 1)
                types = batch.acknowledge_types * (len(offsets) if len(batch.acknowledge_types) == 1 else 1)
                for offset, kind in zip(offsets, types, strict=True):
                    if kind == AcknowledgeType.ACCEPT and partition.partition_index not in failed:
                        yield partition.partition_index, offset


def run(schedule: ShareSchedule) -> ShareWorld:
    return ShareWorld(schedule).run()


if __name__ == "__main__":
    sys.exit(seeds.main("tests.simulation.share_groups", lambda seed: ShareWorld(make(seed))))
