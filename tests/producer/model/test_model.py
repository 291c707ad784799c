"""Schedules of all kinds against the whole producer, and those that once found a bug.

A failure prints its seed and the schedule, shrunk. To see it again: ``MODEL_SEED=<seed>`` in the environment, or
``python -m tests.producer.model --seed <seed> --shrink``.
"""

from __future__ import annotations

import os
import random
from itertools import count

import pytest

from pykclient.clock import SYSTEM_CLOCK
from tests.producer.model.brokers import Orders
from tests.producer.model.network import Fate
from tests.producer.model.schedule import Schedule, Settings, Step, make, shrink
from tests.producer.model.world import failure, run

_BUDGET_MS = 10_000
_SCHEDULES = 300
#: For the second run of all that has a compiled twin, in Python: others than the first run's, so that there are more.
_SCHEDULES_AGAIN = 150
_SHRINKING_MS = 20_000


def test_many_schedules() -> None:
    given = os.environ.get("MODEL_SEED")
    if given is not None:
        run(make(int(given)))
        return
    # On CI a commit is judged by the same schedules each time; everywhere else new ones are tried.
    first = 1 if os.environ.get("CI") else random.SystemRandom().randrange(1 << 40)
    wanted = range(first, first + _SCHEDULES)
    if os.environ.get("PYKCLIENT_IMPL") == "python":
        wanted = range(wanted.stop, wanted.stop + _SCHEDULES_AGAIN)
    end_ms = SYSTEM_CLOCK.now_ms() + _BUDGET_MS
    for seed in wanted:
        why = failure(make(seed))
        if why is not None:
            pytest.fail(f"seed {seed}: {why}\n{_smaller(make(seed), why)}", pytrace=False)
        if SYSTEM_CLOCK.now_ms() > end_ms:
            break


def _smaller(schedule: Schedule, why: str) -> Schedule:
    end_ms = SYSTEM_CLOCK.now_ms() + _SHRINKING_MS

    def fails_alike(other: Schedule) -> bool:
        return SYSTEM_CLOCK.now_ms() < end_ms and (failure(other) or "").startswith(why[:30])

    return shrink(schedule, fails_alike)


def test_a_seed_is_a_schedule_and_a_schedule_is_an_outcome() -> None:
    for seed in range(5):
        outcomes = [[record.outcomes[0][1] for record in run(make(seed)).records] for _ in range(2)]
        assert outcomes[0] == outcomes[1]
        assert make(seed) == make(seed)


# What found a bug once, shrunk.

#: A batch that was split fitted into one part again, and so went to the broker and back until it expired.
_SPLITTING_WITHOUT_END = Schedule(
    16,
    Settings(max_batch_size=200),
    (
        Step(0, "send", (0, 133, 1, 0)),
        Step(0, "send", (0, 6, 1, 0)),
    ),
    (),
)

#: A record joined a part of a split batch: it and the next record got the same number, and one was lost as a duplicate.
_APPENDED_TO_A_PART = Schedule(
    3,
    Settings(batch_size=1000, max_batch_size=500),
    (
        Step(0, "send", (0, 333, 2, 0)),
        Step(10, "send", (0, 333, 1, 0)),
    ),
    (),
)

#: The epochs of an id were used up: batches were numbered under no id, and the broker took a retry for another batch.
_NUMBERED_WITHOUT_ID = Schedule(
    5004334,
    Settings(request_timeout_ms=100, max_batch_size=200, first_epoch=32767),
    (
        Step(0, "send", (0, 133, 1, 0)),
        Step(0, "send", (0, 20, 2, 0)),
        Step(0, "flush", (100000,)),
    ),
    (*(Fate(),) * 11, Fate(write_ms=120, there_ms=99, back_ms=99)),
)

#: A retry was sent after younger batches, and its delivery.timeout.ms was not seen before theirs had passed.
_OLD_BATCH_BEHIND_YOUNG_ONES = Schedule(
    101156,
    Settings(memory=2000, delivery_timeout_ms=300, retry_backoff_ms=60, max_batch_size=200),
    (
        Step(0, "send", (0, 1, 1, 50)),
        Step(300, "send", (0, 1, 5, 0)),
        Step(1, "send", (1, 1, 1, 0)),
        Step(0, "send", (0, 133, 12, 50)),
        Step(100, "move", (1, 1, 0)),
        Step(30, "send", (0, 1, 1, 0)),
        Step(0, "break", (0,)),
        Step(1, "move", (1, -1, 1)),
        Step(100, "send", (0, 1, 1, 0)),
        Step(3, "send", (1, 1, 1, 0)),
        Step(1, "move", (1, 0, 1)),
        Step(300, "send", (0, 1, 1, 0)),
    ),
    (
        *(Fate(),) * 3,
        Fate(write_ms=2, there_ms=0, back_ms=30),
        Fate(),
        Fate(write_ms=30, there_ms=5, back_ms=5, orders=Orders(errors=(44, 0, 56))),
        Fate(there_ms=5, back_ms=30),
        *(Fate(),) * 2,
        Fate(write_ms=2, there_ms=0),
        Fate(back_ms=5),
        *(Fate(),) * 2,
        Fate(there_ms=5),
        *(Fate(),) * 2,
        Fate(kind="lose response", write_ms=2, there_ms=5, back_ms=5, orders=Orders(replication_ms=300, lag=1)),
        *(Fate(),) * 4,
        Fate(there_ms=0, orders=Orders(errors=(87, 19), replication_ms=40, throttle_ms=30)),
        Fate(kind="cut late", back_ms=30, orders=Orders(replication_ms=40)),
    ),
)


#: A batch was numbered between the request for a bump of the epoch and the bump, and so renumbered in flight.
_NUMBERED_BEFORE_THE_BUMP = Schedule(
    502644,
    Settings(
        memory=10_000,
        max_request_size=10_000,
        request_timeout_ms=100,
        delivery_timeout_ms=100,
        retry_backoff_ms=60,
        looks=True,
    ),
    (
        Step(1, "send", (0, 1, 1, 0)),
        Step(0, "down", (0, 10)),
        Step(0, "down", (1, 10)),
        Step(30, "send", (0, 1, 2, 50)),
        Step(1, "send", (1, 2000, 3, 0)),
        Step(1, "move", (1, 1, 1)),
        Step(0, "send", (0, 333, 2, 0)),
        Step(1, "send", (0, 20, 1, 0)),
        Step(1, "send", (0, 1, 1, 0)),
        Step(100, "send", (0, 1, 1, 0)),
        Step(100, "send", (0, 1, 1, 0)),
    ),
    (*(Fate(),) * 6, Fate(there_ms=30, back_ms=30), *(Fate(),) * 11, Fate(write_ms=120, there_ms=0, back_ms=99)),
)

#: Without numbers a retry went in front of older ones, whose delivery.timeout.ms passed unseen until its own had.
_OLD_RETRY_BEHIND_A_YOUNG_ONE = Schedule(
    900946,
    Settings(idempotent=False, batch_size=1000, max_batch_size=500),
    (
        Step(0, "send", (0, 1, 1, 0)),
        Step(30, "send", (0, 60, 12, 0)),
        Step(3, "forget", (0,)),
        Step(0, "flush", (200,)),
        Step(100, "send", (0, 1, 1, 0)),
        Step(0, "move", (0, -1, 0)),
        Step(3, "send", (0, 1, 1, 0)),
        Step(1500, "send", (0, 1, 1, 0)),
    ),
    (
        Fate(),
        Fate(write_ms=2, back_ms=30),
        *(Fate(),) * 4,
        Fate(kind="lose response", back_ms=30, orders=Orders(replication_ms=40)),
    ),
)

#: After a rest the broker had forgotten the producer. It refused the first of two batches as too large and took the
#: second, whose answer was lost. The first one's parts were out of order then, and the second was written again.
_FORGOTTEN_AFTER_A_REST = Schedule(
    46385360275,
    Settings(max_batch_size=200),
    (
        Step(0, "send", (0, 1, 1, 0)),
        Step(30, "send", (0, 1, 1, 0)),
        Step(3, "forget", (0,)),
        Step(0, "send", (0, 20, 6, 0)),
        Step(1, "send", (0, 1, 1, 0)),
        Step(1, "down", (0, 10)),
    ),
    (),
)


@pytest.mark.parametrize(
    "schedule",
    [
        _SPLITTING_WITHOUT_END,
        _APPENDED_TO_A_PART,
        _NUMBERED_WITHOUT_ID,
        _OLD_BATCH_BEHIND_YOUNG_ONES,
        _NUMBERED_BEFORE_THE_BUMP,
        _OLD_RETRY_BEHIND_A_YOUNG_ONE,
        _FORGOTTEN_AFTER_A_REST,
    ],
    ids=lambda schedule: str(schedule.seed),
)
def test_schedules_that_found_a_bug(schedule: Schedule) -> None:
    run(schedule)


def test_shrinking_keeps_what_fails() -> None:
    schedule = make(next(seed for seed in count() if len(make(seed).steps) > 10))
    wanted = schedule.steps[7]
    small = shrink(schedule, lambda other: wanted in other.steps)
    assert small.steps == (wanted,)
    assert small.fates == ()
