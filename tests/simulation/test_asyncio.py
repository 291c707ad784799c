"""Schedules with the clients of asyncio, whose calls are cancelled at random.

To reproduce a failure: ``python -m tests.simulation --asyncio --seed <seed> --shrink``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings

import pytest

from tests.simulation.asyncio_applications import take_one
from tests.simulation.schedule import make_with_asyncio
from tests.simulation.seeds import first_of_sample
from tests.simulation.world import failure, run

#: Seeds that have found a defect.
_FINDINGS = (75, 159, 1057, 1189, 500_000_122, 332_657_322_080)


@pytest.mark.parametrize("seed", [*range(1, 6), *_FINDINGS])
def test_schedule_passes_with_asyncio_clients(seed: int) -> None:
    run(make_with_asyncio(seed))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_many_schedules_pass_with_asyncio_clients() -> None:
    first = first_of_sample()
    for seed in range(first, first + 3_000):
        why = failure(make_with_asyncio(seed))
        assert why is None, f"seed {seed}: {why}\n{make_with_asyncio(seed)}"


def test_same_seed_gives_the_same_history() -> None:
    assert run(make_with_asyncio(1)).history == run(make_with_asyncio(1)).history


def test_call_cancelled_before_its_start_leaves_no_coroutine() -> None:
    """Another actor may cancel a call in the turn that has made its task."""

    async def getone() -> None:
        raise AssertionError("it was cancelled")

    async def main() -> None:
        task = asyncio.ensure_future(take_one(getone))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert not [str(warning.message) for warning in caught]
