"""Groups that migrate between the classic and the consumer protocol while their members are replaced (KIP-848).

To reproduce a failure: ``python -m tests.simulation --migration --seed <seed> --shrink``.
"""

from __future__ import annotations

import pytest

from tests.simulation.schedule import MIGRATIONS, Schedule, Settings, Step, make_with_migration
from tests.simulation.seeds import first_of_sample
from tests.simulation.world import failure, run


@pytest.mark.parametrize("seed", [*range(1, 11), 113_422_920_207, 354_838_607_551, 912_436_329_870])
def test_schedule_passes_with_migrating_groups(seed: int) -> None:
    run(make_with_migration(seed))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_many_schedules_pass_with_migrating_groups() -> None:
    first = first_of_sample()
    for schedule in map(make_with_migration, range(first, first + 3_000)):
        why = failure(schedule)
        assert why is None, f"seed {schedule.seed}: {why}\n{schedule}"


def test_schedules_draw_all_directions_of_migration() -> None:
    assert {make_with_migration(seed).settings.group_protocol for seed in range(1, 30)} == set(MIGRATIONS)


def test_empty_group_restarts_at_the_first_generation() -> None:
    settings = Settings(
        partitions=3,
        producers=2,
        retry_backoff_ms=60,
        metadata_age_ms=100,
        consumers=2,
        group_protocol="both",
        member_session_ms=300,
        pattern=True,
    )
    steps = (
        Step(0, "hold", (8, 1, 1200)),
        Step(202, "send", (1, 0, 8, 1)),
        Step(397, "leave", (0,)),
        Step(1373, "crash consumer", (1,)),
    )
    run(Schedule(24, settings, steps))


def test_member_about_to_join_does_not_keep_the_group_classic() -> None:
    settings = Settings(
        brokers=2, segment_bytes=600, link_delay_ms=5, consumers=3, group_protocol="upgrade", pattern=True
    )
    steps = (
        Step(0, "leave", (1,)),
        Step(20, "cut", (21, 11, 100)),
        Step(185, "crash consumer", (0,)),
        Step(185, "leave", (2,)),
    )
    run(Schedule(97, settings, steps))


def test_expired_classic_member_rejoins_without_an_error() -> None:
    settings = Settings(
        brokers=3,
        partitions=5,
        dns_drill=True,
        max_block_ms=100,
        consumers=4,
        assignor="cooperative-sticky",
        group_protocol="downgrade",
    )
    steps = (
        Step(368, "crash consumer", (3,)),
        Step(627, "drop request", (6, 3)),
        Step(627, "leave", (0,)),
        Step(1095, "crash consumer", (2,)),
        Step(1223, "leave", (1,)),
    )
    run(Schedule(272, settings, steps))


def test_group_does_not_begin_anew_while_its_log_refuses_records() -> None:
    """Its members expire and others join while too few replicas are in sync."""
    settings = Settings(
        brokers=3,
        partitions=6,
        replication_factor=3,
        min_isr=3,
        max_batch_bytes=500,
        link_jitter_ms=3,
        idempotent=False,
        acks=1,
        retry_backoff_ms=60,
        consumers=3,
        auto_commit=True,
        group_protocol="downgrade",
        member_session_ms=300,
    )
    steps = (
        Step(0, "send", (0, 1, 8, 1)),
        Step(101, "hold", (9, 1, 400)),
        Step(181, "drop request", (14, 1)),
        Step(303, "leave", (1,)),
        Step(445, "drop request", (2, 1)),
        Step(457, "kill", (2, 20)),
        Step(463, "wakeup", (1,)),
        Step(539, "leave", (1,)),
        Step(615, "send", (0, 0, 8, 1)),
        Step(615, "pause", (20, 1000)),
        Step(1235, "send", (0, 0, 8, 1)),
    )
    run(Schedule(102, settings, steps))
