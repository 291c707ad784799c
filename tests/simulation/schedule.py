"""Schedules for a cluster and its clients: settings, and steps with their times, all generated from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.support.shrinking import fewer

# Steps of applications, with their arguments.
SEND: Final = "send"  # producer, partition or -1, size, count
SEND_BATCH: Final = "send batch"  # the same, in one send_batch call
SEND_EXTRA: Final = "send extra"  # producer, partition, size, count; to the extra topic
FLUSH: Final = "flush"  # producer, timeout in ms
CLOSE_PRODUCER: Final = "close producer"  # producer, timeout in ms; the producer is replaced
CRASH_PRODUCER: Final = "crash producer"  # producer
COMMIT: Final = "commit"  # consumer; 1 for a synchronous commit
BUSY: Final = "busy"  # consumer, time without poll in ms
PAUSE_PARTITIONS: Final = "pause partitions"  # consumer, duration in ms
SEEK: Final = "seek"  # consumer; back to the committed offsets
LEAVE: Final = "leave"  # consumer; it is replaced later
CRASH_CONSUMER: Final = "crash consumer"  # consumer
WAKEUP: Final = "wakeup"  # consumer

# Steps of the cluster; durations are in milliseconds.
KILL: Final = "kill"  # broker, time until restart
STOP: Final = "stop"  # broker, time until restart
PAUSE: Final = "pause"  # broker, duration
CUT: Final = "cut"  # party, party, duration; parties are numbers, see faults
RESET: Final = "reset"  # party, party, duration
DELAY: Final = "delay"  # party, party, duration, delay, jitter
NARROW: Final = "narrow"  # party, party, duration, bytes per second
MOVE_LEADER: Final = "move leader"  # partition, broker
DROP_REQUEST: Final = "drop request"  # api, times
DROP_RESPONSE: Final = "drop response"  # api, times
ERROR: Final = "error"  # api, error code, times
HOLD: Final = "hold"  # api, times, duration
STALE_METADATA: Final = "stale metadata"  # broker, duration
SLOW_DISK: Final = "slow disk"  # broker, duration, delay
HANG_DNS: Final = "hang dns"  # broker, duration: clients lose their connections, and lookups of its name time out
FAIL_DNS: Final = "fail dns"  # the same, but lookups fail: no such name
EXPIRE_SESSION: Final = "expire session"  # broker
CREATE_EXTRA: Final = "create extra"  # (the extra topic)
DELETE_EXTRA: Final = "delete extra"

#: Assignors of sticky groups. The last one is a list, as in the default: members are eager then.
STICKY_ASSIGNORS: Final = ("cooperative-sticky", "cooperative-sticky", "sticky", "range, cooperative-sticky")

#: The group protocols of a group that migrates; see Settings.
MIGRATIONS: Final = ("upgrade", "downgrade", "both")
#: Assignors of classic members in groups that migrate.
MIGRATING_ASSIGNORS: Final = ("range", "roundrobin", "cooperative-sticky", "range, cooperative-sticky")

#: A client connects and has the cluster's metadata within this time, over the slowest link without faults.
_REACHED_MS: Final = 400


class Settings(NamedTuple):
    """The settings of a schedule; the defaults are the simplest."""

    brokers: int = 1
    partitions: int = 1
    replication_factor: int = 1
    min_isr: int = 1
    release: str | None = None
    session_timeout_ms: int = 300  # for brokers
    replica_lag_ms: int = 500
    max_batch_bytes: int = 1 << 20
    segment_bytes: int = 1 << 30
    fetch_slots: int = 1000
    link_delay_ms: int = 1
    link_jitter_ms: int = 0
    #: True to cut a follower off from its leader at the end, and check that the leader continues without it.
    drill: bool = False
    #: True to block lookups of a broker's name at the end, and check that the other brokers are as fast as before.
    dns_drill: bool = False

    producers: int = 1
    idempotent: bool = True
    acks: int = -1
    retries: int = (1 << 31) - 1
    max_in_flight: int = 5
    linger_ms: int = 0
    batch_size: int = 1000
    memory: int = 20_000
    max_block_ms: int = 2000
    request_timeout_ms: int = 500
    delivery_timeout_ms: int = 3000
    retry_backoff_ms: int = 20
    metadata_age_ms: int = 3000  # for consumers as well
    compression: str = "none"

    consumers: int = 0
    groups: bool = True
    auto_commit: bool = False
    static_members: bool = False
    assignor: str = "range"
    #: The assignor of the brokers, for members of the consumer protocol.
    remote_assignor: str = "uniform"
    #: "classic" or "consumer"; or a group that migrates: "upgrade" if new processes use the consumer protocol and the
    #: first ones do not, "downgrade" for the reverse, "both" if each process uses either.
    group_protocol: str = "classic"
    isolation: str = "read_uncommitted"
    max_poll_records: int = 500
    fetch_bytes: int = 1 << 20
    member_session_ms: int = 600
    max_poll_interval_ms: int = 2000
    #: The application's way to read; see applications.READERS.
    reading: str = "poll"
    #: True if consumers subscribe to a pattern, with or without a group.
    pattern: bool = False
    #: True if steps create and delete a second topic.
    extra: bool = False
    #: True to kill all consumers at the end, and check how much of what they had read is read again.
    crash_drill: bool = False
    #: True for the clients of asyncio, each on an event loop of its own, with calls that are cancelled at random.
    asyncio: bool = False


class Step(NamedTuple):
    at_ms: int
    what: str
    arguments: tuple[int, ...] = ()


class Schedule(NamedTuple):
    """Steps in order of time. Faults end after the last one."""

    seed: int
    settings: Settings
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        changed = {
            name: value for name, value in self.settings._asdict().items() if value != Settings._field_defaults[name]
        }
        lines = ["Schedule(", f"    {self.seed},"]
        lines.append(f"    Settings({', '.join(f'{name}={value!r}' for name, value in changed.items())}),")
        lines.append("    (")
        lines += [f"        Step({step.at_ms}, {step.what!r}, {step.arguments!r})," for step in self.steps]
        return "\n".join([*lines, "    ),", ")"])


def make(seed: int) -> Schedule:
    rng = random.Random(seed)
    settings = _settings(rng)
    trouble = rng.choice((0.0, 0.15, 0.3, 0.5))
    length_ms = rng.choice((200, 600, 1400))
    times = sorted(rng.randrange(length_ms) for _ in range(rng.choice((8, 16, 24))))
    steps = [_step(rng, at_ms, trouble, settings) for at_ms in times]
    if trouble and settings.replication_factor > 1 and rng.random() < (0.3 if settings.idempotent else 0.6):
        steps = sorted([*steps, *_left_behind(rng, length_ms, settings)], key=lambda step: step.at_ms)
    if settings.extra and settings.release is None and rng.random() < 0.6:
        steps = sorted([*steps, *_created_again(rng, length_ms)], key=lambda step: step.at_ms)
    return Schedule(seed, settings, tuple(steps))


def make_with_consumer_groups(seed: int) -> Schedule:
    """Return the schedule of ``make``; its groups are of the consumer protocol and have more members and partitions."""
    schedule = make(seed)
    settings = schedule.settings
    if not (settings.groups and settings.consumers and settings.release is None) or settings.extra:
        # The brokers assign topics by id. So the partitions of a topic that was created again may have other owners
        # than those of the deleted one, which the checks know by the same name.
        return schedule
    rng = random.Random(seed)
    settings = settings._replace(
        group_protocol="consumer",
        remote_assignor=rng.choice(("uniform", "range")),
        consumers=max(settings.consumers, rng.randint(2, 4)),
        partitions=max(settings.partitions, rng.randint(2, 6)),
    )
    return schedule._replace(settings=settings)


def make_with_sticky_members(seed: int) -> Schedule:
    """Return the schedule of ``make`` with a group of the sticky assignors, and more members and partitions."""
    schedule = make(seed)
    settings = schedule.settings
    rng = random.Random(seed)
    settings = settings._replace(
        groups=True,
        assignor=rng.choice(STICKY_ASSIGNORS),
        consumers=max(settings.consumers, rng.randint(2, 4)),
        partitions=max(settings.partitions, rng.randint(2, 6)),
    )
    return schedule._replace(settings=settings)


def make_with_migration(seed: int) -> Schedule:
    """Return the schedule of ``make``; its group has members of both protocols, which are replaced one by one."""
    rng = random.Random(seed)
    schedule = make(seed)
    settings = schedule.settings
    settings = settings._replace(
        groups=True,
        release=None,
        extra=False,  # for the reason that ``make_with_consumer_groups`` gives
        # A static member that comes back with the classic protocol may convert the group. Real coordinators do not
        # rebalance it then, so other members do not get what they were promised and others have not released yet.
        static_members=False,
        group_protocol=rng.choice(MIGRATIONS),
        assignor=rng.choice(MIGRATING_ASSIGNORS),
        remote_assignor=rng.choice(("uniform", "range")),
        consumers=max(settings.consumers, rng.randint(2, 4)),
        partitions=max(settings.partitions, rng.randint(2, 6)),
    )
    length_ms = max((step.at_ms for step in schedule.steps), default=0) + 1
    replaced = [
        Step(rng.randrange(length_ms), rng.choice((LEAVE, LEAVE, CRASH_CONSUMER)), (consumer,))
        for consumer in range(settings.consumers)
    ]
    kept = [step for step in schedule.steps if step.what not in (CREATE_EXTRA, DELETE_EXTRA, SEND_EXTRA)]
    steps = sorted([*kept, *replaced], key=lambda step: step.at_ms)
    return schedule._replace(settings=settings, steps=tuple(steps))


def make_with_asyncio(seed: int) -> Schedule:
    """Return the schedule of ``make`` or ``make_with_consumer_groups``, with the clients of asyncio."""
    schedule = random.Random(seed).choice((make, make_with_consumer_groups))(seed)
    # Such a producer must reach a broker within max.block.ms: each attempt to start connects again.
    max_block_ms = max(schedule.settings.max_block_ms, _REACHED_MS)
    return schedule._replace(settings=schedule.settings._replace(asyncio=True, max_block_ms=max_block_ms))


def _left_behind(rng: random.Random, length_ms: int, settings: Settings) -> list[Step]:
    """Return steps in which a follower misses records and then its leader fails during writes."""
    at_ms = rng.randrange(100, length_ms)
    steps = []
    if rng.random() < 0.6:
        lag_ms = rng.choice((0, settings.replica_lag_ms // 2, 2 * settings.replica_lag_ms))
        steps = [Step(at_ms, CUT, (LEADER, FOLLOWER, lag_ms + 200)), Step(at_ms + 1, SEND, (0, 0, 20, 3))]
        at_ms += lag_ms + rng.randrange(100)
    return [
        *steps,
        Step(at_ms, SEND, (0, 0, 20, 3)),
        Step(at_ms + rng.randrange(5), rng.choice((KILL, STOP, PAUSE)), (LEADER, 1000)),
        Step(at_ms + settings.session_timeout_ms + rng.choice((20, 120)), SEND, (0, 0, 20, 2)),
        Step(at_ms + settings.session_timeout_ms + rng.choice((120, 320)), SEND, (0, 0, 20, 2)),
    ]


def _created_again(rng: random.Random, length_ms: int) -> list[Step]:
    """A topic is read and deleted, and one with its name has more records than that, or fewer."""
    first_ms, deleted_ms = sorted(rng.randrange(length_ms) for _ in range(2))
    again_ms = deleted_ms + rng.choice((0, 20, 150, 400))
    before, after = rng.choice(((1, 6), (2, 12), (6, 1), (3, 3)))
    return [
        Step(first_ms, CREATE_EXTRA),
        Step(first_ms + 1, SEND_EXTRA, (0, 0, 20, before)),
        Step(deleted_ms + 2, DELETE_EXTRA),
        Step(again_ms + 3, CREATE_EXTRA),
        Step(again_ms + 4, SEND_EXTRA, (0, 0, 20, after)),
    ]


def _settings(rng: random.Random) -> Settings:
    brokers = rng.choice((1, 2, 3, 3))
    replication_factor = rng.randint(1, brokers)
    min_isr = rng.randint(1, replication_factor)
    kind = rng.choice(("idempotent",) * 6 + ("one in flight",) * 2 + ("acks 1", "acks 0"))
    idempotent = kind == "idempotent"
    batch_size = rng.choice((150, 400, 1000))
    request_timeout_ms = rng.choice((200, 500))
    linger_ms = rng.choice((0, 0, 5, 40))
    release = rng.choice((None,) * 12 + ("2.1", "2.4", "2.8", "3.3"))
    static_members = rng.random() < 0.15 and release != "2.1"
    return Settings(
        brokers=brokers,
        partitions=rng.choice((1, 1, 2, 3)),
        replication_factor=replication_factor,
        min_isr=min_isr,
        release=release,
        session_timeout_ms=rng.choice((150, 300, 600)),
        replica_lag_ms=rng.choice((300, 800)),
        max_batch_bytes=rng.choice((1 << 20, 1 << 20, 1 << 20, max(130, batch_size // 2))),
        segment_bytes=rng.choice((1 << 30, 1 << 30, 600)),
        fetch_slots=rng.choice((1000, 1000, 1, 0)),
        link_delay_ms=rng.choice((1, 1, 1, 5, 20)),
        link_jitter_ms=rng.choice((0, 0, 3, 15)),
        drill=min_isr < replication_factor and rng.random() < 0.3,
        dns_drill=rng.random() < 0.1,
        producers=rng.choice((1, 1, 1, 2)),
        idempotent=idempotent,
        acks={"acks 1": 1, "acks 0": 0}.get(kind, -1),
        retries=rng.choice((2, (1 << 31) - 1, (1 << 31) - 1)),
        max_in_flight=1 if kind == "one in flight" else rng.choice((1, 2, 5, 5)),
        linger_ms=linger_ms,
        batch_size=batch_size,
        memory=batch_size * rng.choice((4, 10, 40)),
        max_block_ms=rng.choice((100, 2000)),
        request_timeout_ms=request_timeout_ms,
        delivery_timeout_ms=linger_ms + request_timeout_ms * rng.choice((1, 2, 5, 10) if idempotent else (5, 10)),
        retry_backoff_ms=rng.choice((5, 20, 60)),
        metadata_age_ms=rng.choice((100, 3000, 3000) if idempotent else (100, 100, 3000)),
        compression=rng.choice(("none", "none", "none", "gzip")),
        consumers=rng.choice((0, 1, 1, 2, 3)),
        groups=rng.random() < 0.85,
        auto_commit=rng.random() < 0.5,
        static_members=static_members,
        assignor=rng.choice(("range", "roundrobin")),
        isolation=rng.choice(("read_uncommitted", "read_committed")),
        max_poll_records=rng.choice((1, 7, 500)),
        fetch_bytes=rng.choice((1 << 20, 1 << 20, 300)),
        member_session_ms=rng.choice((300, 600)),
        max_poll_interval_ms=rng.choice((500, 2000)),
        reading=rng.choice(("poll", "poll", "arrow", "loop", "arrow loop", "mixed")),
        pattern=rng.random() < 0.25,
        # A returning static leader keeps the existing assignment, and does not notice new topics (KIP-814).
        extra=rng.random() < 0.25 and not static_members,
        crash_drill=rng.random() < 0.5,
    )


def _step(rng: random.Random, at_ms: int, trouble: float, settings: Settings) -> Step:
    if rng.random() < trouble:
        return _trouble(rng, at_ms, settings)
    if settings.consumers and rng.random() < 0.35:
        return _consumer_step(rng, at_ms, settings)
    if settings.extra and rng.random() < 0.15:
        # Before commits had topic ids (4.1), a group could commit an offset of a deleted topic into its successor.
        return Step(at_ms, rng.choice((CREATE_EXTRA, DELETE_EXTRA)) if settings.release is None else CREATE_EXTRA)
    producer = rng.randrange(settings.producers)
    roll = rng.random()
    if roll < 0.88:
        partition = -1 if rng.random() < 0.2 else rng.randrange(settings.partitions)
        size = rng.choice((8, 20, 20, 60, settings.batch_size // 3, settings.batch_size * 2))
        count = rng.choice((1, 2, 5, 12))
        what = SEND
        if settings.extra and partition >= 0 and rng.random() < 0.4:
            what = SEND_EXTRA
        elif rng.random() < 0.2:
            what, count = SEND_BATCH, count * 3
        return Step(at_ms, what, (producer, partition, size, count))
    if roll < 0.96:
        return Step(at_ms, FLUSH, (producer, rng.choice((0, 10, 200, 100_000))))
    if roll < 0.98:
        return Step(at_ms, CLOSE_PRODUCER, (producer, rng.choice((0, 20, 400, 100_000))))
    return Step(at_ms, CRASH_PRODUCER, (producer,))


def _consumer_step(rng: random.Random, at_ms: int, settings: Settings) -> Step:
    consumer = rng.randrange(settings.consumers)
    roll = rng.random()
    if roll < 0.4:
        return Step(at_ms, COMMIT, (consumer, rng.randrange(2)))
    if roll < 0.5:
        return Step(at_ms, BUSY, (consumer, rng.choice((50, 400, 1500))))
    if roll < 0.6:
        return Step(at_ms, PAUSE_PARTITIONS, (consumer, rng.choice((50, 300))))
    if roll < 0.72:
        return Step(at_ms, SEEK, (consumer,))
    if roll < 0.78:
        return Step(at_ms, WAKEUP, (consumer,))
    return Step(at_ms, LEAVE if roll < 0.9 else CRASH_CONSUMER, (consumer,))


#: Names of APIs by number: those of producers, of consumers, and between brokers.
APIS: Final = (
    "PRODUCE",
    "PRODUCE",
    "FETCH",
    "METADATA",
    "INIT_PRODUCER_ID",
    "FIND_COORDINATOR",
    "JOIN_GROUP",
    "SYNC_GROUP",
    "HEARTBEAT",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "LIST_OFFSETS",
    "OFFSET_FOR_LEADER_EPOCH",
    "LEAVE_GROUP",
    "API_VERSIONS",
)

#: Errors that a broker may return at any time: none depends on what a producer sent before.
ERRORS: Final[dict[str, tuple[int, ...]]] = {
    "PRODUCE": (2, 3, 5, 6, 7, 19, 20, 56, 74, 75, 87),
    "FETCH": (3, 5, 6, 9, 56, 70, 71, 74, 75, 76),
    "METADATA": (5, 3),
    "INIT_PRODUCER_ID": (14, 15, 16),
    "FIND_COORDINATOR": (14, 15),
    "JOIN_GROUP": (14, 15, 16, 25, 27),
    "SYNC_GROUP": (14, 15, 16, 22, 25, 27),
    "HEARTBEAT": (15, 16, 22, 25, 27),
    "OFFSET_COMMIT": (7, 14, 15, 16, 27),
    "OFFSET_FETCH": (14, 15, 16),
    "LIST_OFFSETS": (3, 5, 6, 56, 74, 75),
    "OFFSET_FOR_LEADER_EPOCH": (3, 6, 56, 74, 75),
    "LEAVE_GROUP": (15, 16, 25),
    "API_VERSIONS": (35,),
}

#: Parties by number: brokers start at 1, these follow.
CLIENTS: Final = 10
EVERYBODY: Final = 11
COORDINATION: Final = 12
#: Brokers by their role at that time: for the first partition, the group, or the cluster.
LEADER: Final = 20
FOLLOWER: Final = 21
GROUP_COORDINATOR: Final = 22
CONTROLLER: Final = 23
ROLES: Final = (LEADER, LEADER, LEADER, FOLLOWER, FOLLOWER, GROUP_COORDINATOR, CONTROLLER)


def _trouble(rng: random.Random, at_ms: int, settings: Settings) -> Step:
    broker = rng.randint(1, settings.brokers) if rng.random() < 0.4 else rng.choice(ROLES)
    duration_ms = rng.choice((20, 100, 400, 1200))
    roll = rng.random()
    if roll < 0.12:
        return Step(at_ms, KILL, (broker, duration_ms))
    if roll < 0.18:
        return Step(at_ms, STOP, (broker, duration_ms))
    if roll < 0.25:
        return Step(at_ms, PAUSE, (broker, duration_ms))
    if roll < 0.45:
        other = rng.choice((FOLLOWER, FOLLOWER, CONTROLLER, CLIENTS, CLIENTS, EVERYBODY, COORDINATION))
        kind = rng.random()
        if kind < 0.4:
            return Step(at_ms, CUT, (broker, other, duration_ms))
        if kind < 0.6:
            return Step(at_ms, RESET, (broker, other, duration_ms))
        if kind < 0.9:
            delay_ms = rng.choice((5, 50, settings.request_timeout_ms))
            return Step(at_ms, DELAY, (broker, other, duration_ms, delay_ms, rng.choice((0, 10, 50))))
        return Step(at_ms, NARROW, (broker, other, duration_ms, rng.choice((2000, 20_000))))
    if roll < 0.6:
        return Step(at_ms, MOVE_LEADER, (rng.randrange(settings.partitions), broker))
    if roll < 0.7:
        return Step(at_ms, DROP_REQUEST, (rng.randrange(len(APIS)), rng.choice((1, 1, 3))))
    if roll < 0.8:
        return Step(at_ms, DROP_RESPONSE, (rng.randrange(len(APIS)), rng.choice((1, 1, 3))))
    if roll < 0.84:
        return Step(at_ms, HOLD, (rng.randrange(len(APIS)), rng.choice((1, 1, 3)), duration_ms))
    if roll < 0.92:
        api = rng.randrange(len(APIS))
        return Step(at_ms, ERROR, (api, rng.choice(ERRORS[APIS[api]]), rng.choice((1, 1, 2, 5))))
    if roll < 0.94:
        return Step(at_ms, STALE_METADATA, (broker, duration_ms))
    if roll < 0.96:
        return Step(at_ms, rng.choice((HANG_DNS, FAIL_DNS)), (broker, duration_ms))
    if roll < 0.98:
        return Step(at_ms, SLOW_DISK, (broker, duration_ms, rng.choice((5, 50, 300))))
    return Step(at_ms, EXPIRE_SESSION, (broker,))


# --- shrinking -------------------------------------------------------------------------------------------------------


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return a smaller schedule that still fails: fewer steps, simpler settings, smaller numbers."""
    while True:
        before = schedule
        schedule = _fewer_steps(schedule, fails)
        schedule = _plainer_settings(schedule, fails)
        schedule = _plainer_steps(schedule, fails)
        if schedule == before:
            return schedule


def _fewer_steps(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    return schedule._replace(steps=fewer(schedule.steps, lambda steps: fails(schedule._replace(steps=steps))))


def _plainer_settings(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    for name, value in Settings._field_defaults.items():
        changed: dict[str, Any] = {name: value}
        tried = schedule._replace(settings=schedule.settings._replace(**changed))
        if tried != schedule and _makes_sense(tried.settings) and fails(tried):
            schedule = tried
    return schedule


def _makes_sense(settings: Settings) -> bool:
    return (
        settings.min_isr <= settings.replication_factor <= settings.brokers
        and settings.delivery_timeout_ms >= settings.linger_ms + settings.request_timeout_ms
        and (not settings.idempotent or (settings.acks == -1 and settings.max_in_flight <= 5))
        and settings.memory >= settings.batch_size
    )


def _plainer_steps(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    for index in range(len(schedule.steps)):
        step = schedule.steps[index]
        earliest_ms = schedule.steps[index - 1].at_ms if index else 0
        plainer = [step._replace(at_ms=earliest_ms)]
        if step.what in (SEND, SEND_BATCH, SEND_EXTRA):
            producer, partition, size, count = step.arguments
            plainer += [step._replace(arguments=(producer, partition, 8, 1))]
            plainer += [step._replace(arguments=(producer, partition, size, 1))]
            plainer += [step._replace(arguments=(producer, partition, 8, count))]
        for other in plainer:
            tried = schedule._replace(steps=(*schedule.steps[:index], other, *schedule.steps[index + 1 :]))
            if other != step and fails(tried):
                schedule = tried
                break
    return schedule
