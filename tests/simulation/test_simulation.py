"""Schedules of all kinds: new ones in each run, and those that once found a defect.

A failure prints its seed and the shrunk schedule. To reproduce it, set ``SIMULATION_SEED=<seed>`` in the environment,
or run ``python -m tests.simulation --seed <seed> --shrink``.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from itertools import count
from pathlib import Path

import pytest

from pykclient.clock import SYSTEM_CLOCK
from pykclient.types import TopicPartition
from tests.simulation.schedule import Schedule, Settings, Step, make, shrink
from tests.simulation.seeds import first_of_sample
from tests.simulation.world import failure, run

_ROOT = Path(__file__).parents[2]
_SHRINKING_MS = 30_000


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(80, id="sample", marks=pytest.mark.timeout(600)),
        pytest.param(1_000, id="all", marks=[pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(3_600)]),
    ],
)
def test_many_schedules_pass(count: int) -> None:
    given = os.environ.get("SIMULATION_SEED")
    if given is not None:
        run(make(int(given)))
        return
    first = first_of_sample()
    wanted = range(first, first + count)
    if os.environ.get("PYKCLIENT_IMPL") == "python":  # the second run: half as many, with other seeds
        wanted = range(wanted.stop, wanted.stop + count // 2)
    for seed in wanted:
        why = failure(make(seed))
        if why is not None:
            pytest.fail(f"seed {seed}: {why}\n{_smaller(make(seed), why)}", pytrace=False)


def test_leader_that_loses_all_brokers_before_it_assigns_gives_all_partitions_out() -> None:
    run(make(49_689_924_376))


def _smaller(schedule: Schedule, why: str) -> Schedule:
    end_ms = SYSTEM_CLOCK.now_ms() + _SHRINKING_MS

    def fails_alike(other: Schedule) -> bool:
        return SYSTEM_CLOCK.now_ms() < end_ms and (failure(other) or "").startswith(why[:40])

    return shrink(schedule, fails_alike)


def test_same_seed_gives_the_same_schedule_and_history() -> None:
    for seed in range(1, 8):
        assert make(seed) == make(seed)
        assert run(make(seed)).history == run(make(seed)).history


def test_same_seed_gives_the_same_history_in_every_process() -> None:
    seeds = range(1, 7)
    code = (
        "from tests.simulation.schedule import make\n"
        "from tests.simulation.world import run\n"
        f"for seed in {list(seeds)}: print(run(make(seed)).history)"
    )
    histories = []
    for hash_seed in ("1", "2"):  # changes the order of sets of strings
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=_ROOT, env=environment, capture_output=True, text=True, check=True
        )
        histories.append(done.stdout.split())
    assert len(histories[0]) == len(seeds)
    assert histories[0] == histories[1]


@pytest.mark.parametrize(
    "end", [(), (Step(60, "cut", (1, 10, 9)), Step(61, "send", (0, 0, 8, 1)), Step(63, "crash producer", (0,)))]
)
def test_runs_do_not_leak_memory(end: tuple[Step, ...]) -> None:
    """A process may run thousands of schedules."""
    schedule = Schedule(
        1, Settings(consumers=1), (Step(0, "send", (0, 0, 8, 3)), Step(9, "send batch", (0, 0, 8, 3)), *end)
    )
    world = weakref.ref(run(schedule))
    gc.collect()
    assert world() is None


def test_shrinking_keeps_schedules_failing() -> None:
    schedule = make(next(seed for seed in count() if len(make(seed).steps) > 10))
    wanted = schedule.steps[7]
    small = shrink(schedule, lambda other: any(step.what == wanted.what for step in other.steps))
    assert [step.what for step in small.steps] == [wanted.what]


def test_restarted_broker_may_not_recognize_in_flight_duplicates() -> None:
    """Kafka's producer snapshot has only the last batch, so one of two retried batches is refused."""
    schedule = Schedule(
        40001685,
        Settings(brokers=3, replication_factor=2, min_isr=2, link_delay_ms=5),
        (
            Step(0, "send", (1, 0, 8, 2)),
            Step(194, "send", (1, 0, 8, 1)),
            Step(194, "send", (1, -1, 2000, 5)),
            Step(241, "cut", (20, 21, 1800)),
            Step(1863, "stop", (20, 1000)),
        ),
    )
    world = run(schedule)
    assert {value[:8] for value in world.forgotten} == {b"00000007", b"00000008"}


def test_retried_record_may_be_in_a_deleted_and_the_next_topic() -> None:
    """The consumer reads it twice, at different offsets, as the producer got no response from the first topic."""
    settings = Settings(consumers=1, groups=False, extra=True, delivery_timeout_ms=6000)
    steps = (
        Step(0, "create extra"),
        Step(1, "send extra", (0, 0, 8, 2)),
        Step(200, "drop response", (0, 3)),
        Step(250, "send extra", (0, 0, 8, 1)),
        Step(400, "delete extra"),
        Step(600, "create extra"),
    )
    world = run(Schedule(1, settings, steps))
    (reader,) = world.consumers
    reads = world.extra.read_by(reader.name, TopicPartition("orders-extra", 0))
    assert [offset for offset, value in reads if value.startswith(b"00000003")] == [2, 0]


def test_schedule_passes_while_a_topic_is_being_deleted() -> None:
    steps = (
        Step(0, "send", (1, 0, 8, 1)),
        Step(869, "send extra", (1, 2, 8, 1)),
        Step(869, "narrow", (21, 11, 400, 2000)),
        Step(1020, "delete extra"),
    )
    run(Schedule(5005833, Settings(consumers=3, extra=True), steps))


@pytest.mark.parametrize("seed", [20008875, 40004006])
def test_fenced_static_member_starts_anew(seed: int) -> None:
    settings = Settings(link_delay_ms=5, consumers=1, auto_commit=True, static_members=True)
    steps = (Step(29, "leave", (0,)), Step(29, "drop response", (6, 1)), Step(184, "send", (0, -1, 8, 1)))
    run(Schedule(seed, settings, steps))


def test_producer_waits_for_records_on_a_slow_disk() -> None:
    settings = Settings(partitions=2, idempotent=False, acks=0, consumers=2, fetch_bytes=300)
    steps = (Step(0, "send", (0, 1, 60, 5)), Step(115, "slow disk", (3, 400, 300)), Step(115, "send", (0, 1, 8, 1)))
    run(Schedule(51000549, settings, steps))


def test_member_with_a_stopped_coordinator_cannot_leave() -> None:
    settings = Settings(brokers=3, partitions=3, replication_factor=3, link_jitter_ms=3, consumers=1)
    steps = (Step(835, "delay", (22, 10, 1200, 500, 0)), Step(835, "stop", (1, 100)))
    run(Schedule(51000375, settings, steps))


def test_metadata_of_an_isolated_broker_is_ignored_after_rebootstrap() -> None:
    """Its metadata had an old leader epoch, in which it led: the log seemed truncated, and was read again from 0 on."""
    settings = Settings(
        brokers=2,
        partitions=2,
        replication_factor=2,
        session_timeout_ms=600,
        replica_lag_ms=300,
        link_jitter_ms=3,
        batch_size=400,
        memory=1600,
        request_timeout_ms=200,
        retry_backoff_ms=60,
        consumers=2,
        member_session_ms=300,
    )
    steps = (
        Step(13, "crash consumer", (1,)),
        Step(29, "send", (0, 1, 8, 1)),
        Step(29, "drop request", (0, 3)),
        Step(110, "send", (0, 1, 133, 12)),
        Step(110, "close producer", (0, 400)),
        Step(410, "cut", (21, 12, 400)),
        Step(410, "drop request", (1, 1)),
        Step(448, "crash consumer", (1,)),
        Step(747, "pause", (21, 400)),
        Step(747, "cut", (2, 21, 1200)),
        Step(747, "send", (0, -1, 8, 1)),
        Step(1196, "kill", (20, 1200)),
    )
    run(Schedule(418805989002, settings, steps))
