"""What happens to a producer: made from a seed, and small enough to read once it is shrunk."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.producer.model import network
from tests.producer.model.brokers import Orders
from tests.producer.model.network import HEALTHY, Fate
from tests.support.shrinking import fewer

SEND = "send"  # partition (-1: the partitioner's choice), size of the value, how many, max_block_ms
FLUSH = "flush"  # timeout_ms
TICK = "tick"
MOVE = "move"  # partition, broker (-1: none), whether what is not acknowledged is lost
BREAK = "break"  # number of the connection
DOWN = "down"  # broker, for how many ms
FORGET = "forget"  # partition: the broker forgets this producer
CLOSE = "close"  # timeout_ms

#: Refusals: nothing was written. The first few may pass, so the producer tries again.
RETRIABLE = (2, 3, 5, 6, 19, 56, 74, 89)
FINAL = (10, 29, 38, 44, 87)
FATAL = (31, 35)
AFTER_APPEND = (7, 20)


class Settings(NamedTuple):
    """Of the producer, and of the cluster."""

    idempotent: bool = True
    acks: int = -1
    retries: int = (1 << 31) - 1
    max_in_flight: int = 5
    linger_ms: int = 0
    batch_size: int = 400
    memory: int = 4000
    max_request_size: int = 1500
    request_timeout_ms: int = 300
    delivery_timeout_ms: int = 1500
    retry_backoff_ms: int = 20
    reconnect_backoff_ms: int = 10
    compression: str = "none"
    partitions: int = 3
    max_batch_size: int = 1 << 20
    first_epoch: int = 0
    knows_unknown: bool = True
    max_produce_version: int = 13
    looks: bool = False  # whether steps may fall on the sender's looks at the clock


class Step(NamedTuple):
    """``wait_ms`` after the step before it, ``what`` happens."""

    wait_ms: int
    what: str
    arguments: tuple[int, ...] = ()


class Schedule(NamedTuple):
    """``fates`` are for requests in the order of their sending; those after the last are healthy."""

    seed: int
    settings: Settings
    steps: tuple[Step, ...]
    fates: tuple[Fate, ...]

    def __str__(self) -> str:
        changed = {
            name: value for name, value in self.settings._asdict().items() if value != Settings._field_defaults[name]
        }
        lines = [f"Schedule(  # seed {self.seed}", f"    {self.seed},"]
        lines.append(f"    Settings({', '.join(f'{name}={value!r}' for name, value in changed.items())}),")
        lines.append("    (")
        lines += [f"        Step({step.wait_ms}, {step.what!r}, {step.arguments!r})," for step in self.steps]
        lines += ["    ),", "    ("]
        lines += [f"        {_fate_text(fate)}," for fate in self.fates]
        return "\n".join([*lines, "    ),", ")"])


def _fate_text(fate: Fate) -> str:
    parts = [
        f"{name}={_orders_text(value) if isinstance(value, Orders) else repr(value)}"
        for name, value in fate._asdict().items()
        if value != Fate._field_defaults[name]
    ]
    return f"Fate({', '.join(parts)})"


def _orders_text(orders: Orders) -> str:
    parts = [f"{name}={value!r}" for name, value in orders._asdict().items() if value != Orders._field_defaults[name]]
    return f"Orders({', '.join(parts)})"


def make(seed: int) -> Schedule:
    rng = random.Random(seed)
    settings = _settings(rng)
    trouble = rng.choice((0.0, 0.05, 0.15, 0.3, 0.5))
    slow = rng.choice((0.0, 0.1, 0.4))
    fates = tuple(_fate(rng, trouble, slow, settings) for _ in range(rng.choice((30, 60, 120))))
    steps = tuple(_step(rng, trouble, settings) for _ in range(rng.choice((10, 25, 50))))
    if rng.random() < 0.2:
        steps += (Step(rng.choice((0, 5, 50)), CLOSE, (rng.choice((0, 20, 400, 100_000)),)),)
    return Schedule(seed, settings, steps, fates)


def _settings(rng: random.Random) -> Settings:
    kind = rng.choice(("idempotent",) * 6 + ("one in flight", "acks 1", "no retries", "acks 0"))
    idempotent = kind == "idempotent"
    batch_size = rng.choice((100, 400, 1000))
    request_timeout_ms = rng.choice((100, 300))
    linger_ms = rng.choice((0, 0, 5, 40))
    max_in_flight = rng.choice((1, 2, 5, 5)) if idempotent else 1
    if kind in ("acks 1", "no retries", "acks 0"):
        max_in_flight = rng.choice((1, 5))
    return Settings(
        idempotent=idempotent,
        acks={"acks 1": 1, "acks 0": 0}.get(kind, -1),
        retries=0 if kind == "no retries" else rng.choice((1, 3, (1 << 31) - 1, (1 << 31) - 1)),
        max_in_flight=max_in_flight,
        linger_ms=linger_ms,
        batch_size=batch_size,
        memory=batch_size * rng.choice((5, 10, 40)),
        max_request_size=batch_size * rng.choice((1, 2, 10)),
        request_timeout_ms=request_timeout_ms,
        delivery_timeout_ms=linger_ms + request_timeout_ms * rng.choice((1, 2, 5, 20)),
        retry_backoff_ms=rng.choice((5, 20, 60)),
        reconnect_backoff_ms=rng.choice((5, 10, 100)),
        compression=rng.choice(("none", "none", "none", "gzip")),
        partitions=rng.choice((1, 2, 4)),
        max_batch_size=rng.choice((1 << 20, 1 << 20, max(120, batch_size // 2))),
        first_epoch=rng.choice((0, 0, 0, 0, 0, 0, 32766, 32767)),
        knows_unknown=rng.random() < 0.8,
        max_produce_version=rng.choice((13, 13, 12, 9, 3)),
        looks=rng.random() < 0.3,
    )


def _fate(rng: random.Random, trouble: float, slow: float, settings: Settings) -> Fate:
    if rng.random() >= max(trouble, slow):
        return HEALTHY
    kind = network.DELIVER
    orders = Orders()
    if rng.random() < trouble:
        roll = rng.random()
        if roll < 0.45:
            kind = rng.choice((network.LOSE_REQUEST, network.LOSE_RESPONSE, network.CUT_EARLY, network.CUT_LATE))
        elif roll < 0.95:
            orders = Orders(errors=tuple(_error(rng) for _ in range(rng.choice((1, 1, 2, 3)))))
        orders = orders._replace(
            replication_ms=rng.choice((0, 0, 3, 40, settings.request_timeout_ms)),
            throttle_ms=rng.choice((0, 0, 0, 0, 0, 30)),
            lag=rng.choice((0, 0, 1, 3)),
            hints=rng.random() < 0.5,
        )
    times = (0, 1, 1, 5, 30)
    if rng.random() < slow:
        times = (0, 1, 30, settings.request_timeout_ms - 1, settings.request_timeout_ms + 20)
    return Fate(kind, rng.choice((0, 0, 0, 2, times[-1], times[-2])), rng.choice(times), rng.choice(times), orders)


def _error(rng: random.Random) -> int:
    roll = rng.random()
    if roll < 0.25:
        return 0
    if roll < 0.6:
        return rng.choice(RETRIABLE)
    if roll < 0.75:
        return rng.choice(AFTER_APPEND)
    if roll < 0.995:
        return rng.choice(FINAL)
    return rng.choice(FATAL)


def _step(rng: random.Random, trouble: float, settings: Settings) -> Step:
    wait_ms = rng.choice((0, 0, 0, 1, 1, 3, 10, 30, 100))
    partition = rng.randrange(settings.partitions)
    if rng.random() < 0.08:
        wait_ms = rng.choice((settings.request_timeout_ms, settings.delivery_timeout_ms))
    roll = rng.random()
    if roll < 0.65:
        size = rng.choice((1, 20, 20, 60, settings.batch_size // 3, settings.batch_size * 2))
        where = -1 if rng.random() < 0.15 else partition
        return Step(wait_ms, SEND, (where, size, rng.choice((1, 1, 2, 5, 12)), rng.choice((0, 0, 0, 50))))
    if roll < 0.72:
        return Step(wait_ms, FLUSH, (rng.choice((0, 10, 200, 100_000)),))
    if rng.random() >= 2 * trouble:
        return Step(wait_ms, TICK)
    if roll < 0.84:
        return Step(wait_ms, MOVE, (partition, rng.choice((0, 1, 2, -1)), rng.randrange(2)))
    if roll < 0.91:
        return Step(wait_ms, BREAK, (rng.randrange(4),))
    if roll < 0.96:
        return Step(wait_ms, DOWN, (rng.randrange(3), rng.choice((10, 100, settings.delivery_timeout_ms))))
    return Step(wait_ms, FORGET, (partition,))


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """A smaller schedule that fails as well: fewer steps, healthier fates, plainer settings."""
    while True:
        before = schedule
        schedule = _fewer_steps(schedule, fails)
        schedule = _healthier(schedule, fails)
        for name, value in Settings._field_defaults.items():
            tried = schedule._replace(settings=schedule.settings._replace(**{name: value}))
            if tried != schedule and fails(tried):
                schedule = tried
        for index, step in enumerate(schedule.steps):
            for plainer in _plainer(step):
                steps = (*schedule.steps[:index], plainer, *schedule.steps[index + 1 :])
                if fails(schedule._replace(steps=steps)):
                    schedule = schedule._replace(steps=steps)
                    break
        if schedule == before:
            return schedule


def _plainer(step: Step) -> list[Step]:
    tried = [step._replace(wait_ms=wait_ms) for wait_ms in (0, 1) if wait_ms < step.wait_ms]
    if step.what == SEND:
        where, size, count, _ = step.arguments
        others = [(0, 1, 1, 0), (where, 1, 1, 0), (where, size, 1, 0), (where, size, count // 2, 0)]
        tried = [step._replace(arguments=other) for other in others if other != step.arguments and other[2]] + tried
    return tried


def _fewer_steps(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    return schedule._replace(steps=fewer(schedule.steps, lambda steps: fails(schedule._replace(steps=steps))))


def _healthier(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    size = len(schedule.fates)
    while size:
        for start in range(0, len(schedule.fates), size):
            fates = schedule.fates[:start] + (HEALTHY,) * size + schedule.fates[start + size :]
            if fates != schedule.fates and fails(schedule._replace(fates=fates)):
                schedule = schedule._replace(fates=fates[: len(schedule.fates)])
        size //= 2
    for index in range(len(schedule.fates)):
        fate = schedule.fates[index]
        plainer = [
            *(fate._replace(**{name: value}) for name, value in Fate._field_defaults.items()),
            *(
                fate._replace(orders=fate.orders._replace(**{name: value}))
                for name, value in Orders._field_defaults.items()
            ),
        ]
        for other in plainer:
            fates = (*schedule.fates[:index], other, *schedule.fates[index + 1 :])
            if fates != schedule.fates and fails(schedule._replace(fates=fates)):
                schedule = schedule._replace(fates=fates)
    fates = schedule.fates
    while fates and fates[-1] == HEALTHY:
        fates = fates[:-1]
    return schedule._replace(fates=fates)
