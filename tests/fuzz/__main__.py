"""Fuzz targets, one after the other: ``python -m tests.fuzz --target batches --seconds 600``.

With atheris (``pip install --group fuzz``) the runs are guided by coverage, and inputs that reach new code are kept for
the next run. Without it, inputs are random changes of the corpus.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz import guard
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target
from tests.fuzz.targets import MAX_SIZE, TARGETS, corpus, keep

_DIRECTORY = Path(__file__).parents[2] / ".cache" / "fuzz"

#: Beside the time for fuzzing, a process loads the corpus, and may be on its last input.
_EXTRA_S = 300


def fuzz_guided(target: Target, seconds: int, seed: int, directory: Path) -> tuple[int, list[Path]]:
    """Return the number of inputs, and the files with those that failed."""
    inputs, failures = directory / target.name / "inputs", directory / target.name / "failures"
    for each in (inputs, failures):
        each.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", target.name, *map(str, (seconds, seed, inputs, failures))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _EXTRA_S, check=False)
    except subprocess.TimeoutExpired:
        return 0, [failures / "it did not end"]
    found = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    if found is None or done.returncode:
        (failures / "output.txt").write_text(done.stderr)
    return int(found[1]) if found else 0, sorted(path for path in failures.iterdir() if path.suffix != ".txt")


def fuzz_at_random(target: Target, seconds: int, seed: int) -> tuple[int, list[bytes]]:
    """Return the number of inputs, and the one that failed, if any."""
    rng = Random(seed)
    begin = corpus(target, rng)
    end = time.monotonic() + seconds
    runs = 0
    while time.monotonic() < end:
        data = mutated(begin, rng, MAX_SIZE)
        runs += 1
        try:
            guard.run(target, data, measured=runs % 50 == 0)
        except Exception:
            logging.getLogger(__name__).exception("%s fails for %r", target.name, data)
            return runs, [data]
    return runs, []


def keep_some(target: Target, directory: Path) -> int:
    """Keep some inputs of earlier guided runs in the repository."""
    return keep(target, (path.read_bytes() for path in (directory / target.name / "inputs").iterdir()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=TARGETS, help="one of the targets (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=_DIRECTORY, help="for inputs and failures of guided runs")
    parser.add_argument("--unguided", action="store_true", help="do not use atheris")
    parser.add_argument("--keep", action="store_true", help="only store inputs of earlier runs in tests/fuzz/corpus")
    options = parser.parse_args(arguments)
    is_guided = not options.unguided and importlib.util.find_spec("atheris") is not None
    failed = False
    print(f"{'guided by atheris' if is_guided else 'unguided'}, process {os.getpid()}", flush=True)
    for name in options.target or TARGETS:
        target = TARGETS[name]
        if options.keep:
            print(f"{name}: {keep_some(target, options.directory)} inputs kept", flush=True)
            continue
        failures: Sequence[Path | bytes]
        if is_guided:
            runs, failures = fuzz_guided(target, options.seconds, options.seed, options.directory)
        else:
            runs, failures = fuzz_at_random(target, options.seconds, options.seed)
        failed = failed or bool(failures)
        print(f"{name}: {runs:,} inputs in {options.seconds} s, {len(failures)} failures", flush=True)
        for failure in failures:
            print(f"  {failure!r}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
