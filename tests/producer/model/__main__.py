"""Runs many schedules from a shell: see the package."""

from __future__ import annotations

import argparse
import random
import sys

from pykclient.clock import SYSTEM_CLOCK
from tests.producer.model.schedule import Schedule, make, shrink
from tests.producer.model.world import failure, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.producer.model")
    parser.add_argument("--seed", type=int, help="the first seed; a fresh one without")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--shrink", action="store_true", help="make the first failing schedule smaller")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    options = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    end_ms = SYSTEM_CLOCK.now_ms() + options.seconds * 1000
    failed: dict[str, list[int]] = {}
    done = 0
    for seed in range(first, first + options.count):
        if SYSTEM_CLOCK.now_ms() > end_ms:
            break
        done += 1
        why = failure(make(seed))
        if why is None:
            continue
        kind = why[:48]
        failed.setdefault(kind, []).append(seed)
        if len(failed[kind]) <= 2:
            print(f"seed {seed}: {why}", flush=True)
        if options.shrink:
            _show_shrunk(make(seed), kind)
        if options.stop or options.shrink:
            break
    print(f"{done} schedules from seed {first}: {sum(map(len, failed.values()))} failed")
    for kind, seeds in failed.items():
        print(f"  {len(seeds)} x {kind!r}: {seeds[:6]}")
    return 1 if failed else 0


def _show_shrunk(schedule: Schedule, kind: str) -> None:
    start = kind[:30]
    small = shrink(schedule, lambda other: (failure(other) or "").startswith(start))
    print(small)
    run(small)


if __name__ == "__main__":
    sys.exit(main())
