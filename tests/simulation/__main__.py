"""Run many schedules from a shell; see the package's docstring."""

from __future__ import annotations

import argparse
import gc
import random
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pool
from types import FrameType

from pykclient.clock import SYSTEM_CLOCK
from tests.simulation.schedule import Schedule, make, make_with_asyncio, make_with_consumer_groups, shrink
from tests.simulation.world import World, failure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="the first seed; a fresh one without")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit", type=int, default=60, help="CPU seconds after which a schedule is endless")
    parser.add_argument("--shrink", action="store_true", help="make the first failing schedule smaller")
    parser.add_argument("--consumer-groups", action="store_true", help="groups of the consumer protocol (KIP-848)")
    parser.add_argument(
        "--asyncio", action="store_true", help="clients of asyncio, whose calls are cancelled at random"
    )
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    options = parser.parse_args()
    made = make_with_consumer_groups if options.consumer_groups else make_with_asyncio if options.asyncio else make
    first = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    start_ms = SYSTEM_CLOCK.now_ms()
    failed: dict[str, list[int]] = {}
    done = 0
    if options.trace:
        return _trace(made(first))
    gc.collect()
    gc.freeze()
    gc.set_threshold(400_000, 20, 10)  # a schedule leaves much garbage in cycles: 0.4 GB a minute if it stays
    for seed, why in _outcomes(range(first, first + options.count), options.jobs, options.limit, made):
        done += 1
        if why is not None:
            kind = why[:60]
            failed.setdefault(kind, []).append(seed)
            if len(failed[kind]) <= 2:
                print(f"seed {seed}: {why}", flush=True)
            if options.shrink:
                _show_shrunk(made(seed), why)
            if options.stop or options.shrink:
                break
        if SYSTEM_CLOCK.now_ms() - start_ms > options.seconds * 1000:
            break
    seconds = (SYSTEM_CLOCK.now_ms() - start_ms) / 1000
    rate = done / seconds * 60 if seconds else 0
    print(
        f"{done} schedules from seed {first} in {seconds:.1f} s ({rate:.0f} a minute): "
        f"{sum(map(len, failed.values()))} failed"
    )
    for kind, seeds in sorted(failed.items(), key=lambda item: -len(item[1])):
        print(f"  {len(seeds)} x {kind!r}: {seeds[:6]}")
    return 1 if failed else 0


class _Endless(BaseException):
    """A schedule took too long."""


def _ring(signal_number: int, frame: FrameType | None) -> None:
    raise _Endless


def _outcome(limit_s: int, made: Callable[[int], Schedule], seed: int) -> tuple[int, str | None]:
    # CPU time, as a busy machine makes no schedule endless.
    signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        return seed, failure(made(seed))
    except _Endless:
        return seed, f"not done after {limit_s} s: somebody goes round without end"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _outcomes(
    seeds: range, jobs: int, limit_s: int, made: Callable[[int], Schedule]
) -> Iterator[tuple[int, str | None]]:
    outcome = partial(_outcome, limit_s, made)
    if jobs == 1:
        yield from map(outcome, seeds)
        return
    with Pool(jobs) as pool:
        yield from pool.imap(outcome, seeds, chunksize=4)


def _trace(schedule: Schedule) -> int:
    print(schedule)
    world = World(schedule)
    world.trace = print
    world.run()
    return 0


def _show_shrunk(schedule: Schedule, why: str) -> None:
    start = why[:40]
    small = shrink(schedule, lambda other: (failure(other) or "").startswith(start))
    print(small)
    print(failure(small))


if __name__ == "__main__":
    sys.exit(main())
