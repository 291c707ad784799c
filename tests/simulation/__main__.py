"""Run many schedules from a shell; see the package's docstring."""

from __future__ import annotations

import argparse
import sys

from tests.simulation import seeds
from tests.simulation.schedule import (
    Schedule,
    make,
    make_with_asyncio,
    make_with_consumer_groups,
    make_with_migration,
    make_with_sticky_members,
    shrink,
)
from tests.simulation.world import World, failure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    seeds.add_options(parser)
    parser.add_argument("--shrink", action="store_true", help="make the first failing schedule smaller")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--consumer-groups",
        dest="make",
        action="store_const",
        const=make_with_consumer_groups,
        default=make,
        help="groups of the consumer protocol (KIP-848)",
    )
    kinds.add_argument(
        "--sticky",
        dest="make",
        action="store_const",
        const=make_with_sticky_members,
        help="groups of the sticky assignors, mostly cooperative ones",
    )
    kinds.add_argument(
        "--migration",
        dest="make",
        action="store_const",
        const=make_with_migration,
        help="groups with members of both protocols, which are replaced one by one",
    )
    kinds.add_argument(
        "--asyncio",
        dest="make",
        action="store_const",
        const=make_with_asyncio,
        help="clients of asyncio, whose calls are cancelled at random",
    )
    options = parser.parse_args()
    options.stop = options.stop or options.shrink
    first = seeds.first_seed(options)
    if options.trace:
        return _trace(options.make(first))
    failed = seeds.run(lambda seed: failure(options.make(seed)), first, options)
    if options.shrink and failed:
        seed, why = failed[0]
        _show_shrunk(options.make(seed), why)
    return int(bool(failed))


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
