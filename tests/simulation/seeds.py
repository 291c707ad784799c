"""Runs of many seeds from a shell: options, results, and processes that leave their garbage to the system."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Protocol

from pykclient.clock import SYSTEM_CLOCK

#: Runs a seed, and returns a description of its failure, or None.
Failure = Callable[[int], str | None]

#: The schedules per process. Each leaves half a megabyte, as its cycles are not collected: that would take a tenth of
#: the time.
_PER_PROCESS = 200
_CHUNK = 4

#: The schedules that run before there are processes for the others.
_FIRST = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the seeds."""
    parser.add_argument("--seed", type=int, help="the first seed; a fresh one without")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit", type=int, default=60, help="CPU seconds after which a schedule is endless")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--trace", action="store_true", help="print what happens in the first schedule")


def first_seed(options: argparse.Namespace) -> int:
    """Return the first seed that the options choose."""
    seed: int | None = options.seed
    return _fresh_seed() if seed is None else seed


def first_of_sample() -> int:
    """Return and print the first seed of a test: a fresh one, but in CI the same each time, as CI judges a commit.

    pytest shows what a failed test has printed, also if it has failed for a reason that does not name the seed: a
    timeout, or a warning while something is collected.
    """
    first = 1 if os.environ.get("CI") else _fresh_seed()
    print(f"seeds from {first} on")
    return first


def _fresh_seed() -> int:
    return random.SystemRandom().randrange(1 << 40)


class World(Protocol):
    """A cluster and applications, in a simulation of one schedule."""

    trace: Callable[[str], None] | None

    def run(self) -> object:
        """Run the schedule; raise an exception if an invariant is broken."""


def failure_of(run: Callable[[], object]) -> str | None:
    """Run a schedule; return a description of its failure, or None."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        cause = f" <- {error.__cause__!r}" if error.__cause__ is not None else ""
        return f"{type(error).__name__}: {error}{cause}"
    return None


def main(module: str, new_world: Callable[[int], World]) -> int:
    """Run the seeds that the arguments of ``python -m module`` choose; return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    add_options(parser)
    options = parser.parse_args()
    first = first_seed(options)
    if options.trace:
        world = new_world(first)
        world.trace = print
        world.run()
        return 0
    logging.getLogger("pykclient").setLevel(logging.CRITICAL)
    return int(bool(run(lambda seed: failure_of(lambda: new_world(seed).run()), first, options)))


def run(failure: Failure, first: int, options: argparse.Namespace) -> list[tuple[int, str]]:
    """Run the seeds from ``first`` on, print what fails, and return the failed seeds with their descriptions."""
    start_ms = SYSTEM_CLOCK.now_ms()
    failed: list[tuple[int, str]] = []
    kinds: dict[str, list[int]] = {}
    done = 0
    for seed, why in _outcomes(range(first, first + options.count), options.jobs, options.limit, failure):
        done += 1
        if why is not None:
            failed.append((seed, why))
            seeds = kinds.setdefault(why[:60], [])
            seeds.append(seed)
            if len(seeds) <= 2:
                print(f"seed {seed}: {why}", flush=True)
            if options.stop:
                break
        if SYSTEM_CLOCK.now_ms() - start_ms > options.seconds * 1000:
            break
    seconds = (SYSTEM_CLOCK.now_ms() - start_ms) / 1000
    rate = done / seconds * 60 if seconds else 0
    print(f"{done} schedules from seed {first} in {seconds:.1f} s ({rate:.0f} a minute): {len(failed)} failed")
    for kind, seeds in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"  {len(seeds)} x {kind!r}: {seeds[:6]}")
    return failed


def _outcomes(seeds: range, jobs: int, limit_s: int, failure: Failure) -> Iterator[tuple[int, str | None]]:
    # The first ones run here: the processes then start with the modules and the specialized bytecode that these need.
    for seed in seeds[:_FIRST]:
        yield seed, _limited(failure, limit_s, seed)
    if len(seeds) <= _FIRST:
        return
    gc.collect()
    gc.freeze()  # so that the pages of modules stay shared
    chunks = _PER_PROCESS // _CHUNK
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, _begin_process, (failure, limit_s), maxtasksperchild=chunks) as pool:
        yield from pool.imap(_outcome, seeds[_FIRST:], chunksize=_CHUNK)


def _begin_process(failure: Failure, limit_s: int) -> None:
    _runs.append(partial(_limited, failure, limit_s))
    gc.disable()


#: Has one function, which runs a seed in this process: a function that was sent to it would have to be pickled.
_runs: list[Failure] = []


def _outcome(seed: int) -> tuple[int, str | None]:
    return seed, _runs[0](seed)


class _Endless(BaseException):
    """A schedule took too long."""


def _ring(signal_number: int, frame: FrameType | None) -> None:
    raise _Endless


def _limited(failure: Failure, limit_s: int, seed: int) -> str | None:
    # CPU time, as a busy machine makes no schedule endless.
    signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        return failure(seed)
    except _Endless:
        return f"not done after {limit_s} s: somebody goes round without end"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
