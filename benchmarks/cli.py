"""CPU of ``pykclient produce`` and ``consume`` beside kcat: ``python -m benchmarks.cli [--rounds 9]``.

A million lines of 100 bytes go from a file to a topic of one partition of a real Kafka, and back to a file. The
commands take turns, each in a process of its own, whose start is included. The first of a million records alone, read
and written, shows what the start costs. Both sides run with their own defaults: batches of up to 1 MB on either side,
fetches of up to 4 MB of a partition here and of 1 MB in kcat. Needs kcat (a package of Debian). A run of nine rounds or
more updates docs/performance.md; a shorter one goes to build/benchmarks/.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import command, report, results
from benchmarks.cases import Bench
from benchmarks.cli_cases import (
    CONSUME,
    FIGURE,
    GOALS,
    KCAT,
    OURS,
    PRODUCE,
    START_OF_CONSUME,
    START_OF_PRODUCE,
    TABLES,
)

RECORDS = 1_000_000
_TOPIC = "lines"
#: The rounds of a run that updates the page.
_FULL_ROUNDS = 9


def commands(servers: str, folder: Path) -> Mapping[tuple[str, Bench], str]:
    """Return the command of each client and case."""
    lines, ours = folder / "lines.txt", f"{sys.executable} -m pykclient"
    kcat_reads = f"kcat -b {servers} -C -q -e -t {_TOPIC} -p 0 -o beginning"
    return {
        (KCAT, START_OF_PRODUCE): f"head -1 {lines} | kcat -b {servers} -P -t {_TOPIC} -p 0",
        (OURS, START_OF_PRODUCE): f"head -1 {lines} | {ours} produce {_TOPIC} -p 0 -b {servers}",
        (KCAT, START_OF_CONSUME): f"{kcat_reads} -c 1 > {folder / 'one'}",
        (OURS, START_OF_CONSUME): f"{ours} consume {_TOPIC} -c 1 -b {servers} > {folder / 'one'}",
        (KCAT, PRODUCE): f"kcat -b {servers} -P -t {_TOPIC} -p 0 -l {lines}",
        (OURS, PRODUCE): f"{ours} produce {_TOPIC} {lines} -p 0 -b {servers}",
        (KCAT, CONSUME): f"{kcat_reads} -c {RECORDS} > {folder / KCAT}",
        (OURS, CONSUME): f"{ours} consume {_TOPIC} -c {RECORDS} -b {servers} > {folder / OURS}",
    }


def cpu_s(command: str) -> float:
    """Run a command in a shell; return the seconds of CPU that it took, with its start and its system calls."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, shell=True, check=True, timeout=120, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rounds: int) -> Iterator[results.Line]:
    """Yield the result of each run; report progress on stderr."""
    from tests.kafka.cluster import KafkaCluster

    with tempfile.TemporaryDirectory() as name, KafkaCluster(brokers=1) as cluster:
        folder = Path(name)
        (folder / "lines.txt").write_bytes(b"".join(b"%099d\n" % number for number in range(RECORDS)))
        cluster.create_topic(_TOPIC, 1)
        rows = commands(cluster.bootstrap_servers, folder)
        for turn in range(-1, rounds):  # the first one is to warm up
            for (client, bench), text in rows.items():
                seconds = cpu_s(text)
                if turn >= 0:
                    yield {"round": turn, "client": client, **results.case_of(bench), FIGURE: seconds}
            print(f"{turn + 1}/{rounds}", file=sys.stderr, flush=True)
        assert (folder / KCAT).read_bytes() == (folder / OURS).read_bytes()


def about(rounds: int) -> dict[str, Any]:
    """Return the description of the run, with kcat's version."""
    printed = subprocess.run(["kcat", "-V"], check=True, capture_output=True, text=True).stdout
    version = next((line.split()[1] for line in printed.splitlines() if line.startswith("Version")), "?")
    described = command.about(rounds, ["pykclient"])
    return {**described, "versions": {**described["versions"], KCAT: version}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cli", description=__doc__)
    parser.add_argument("--rounds", type=int, default=_FULL_ROUNDS)
    rounds = parser.parse_args().rounds
    if shutil.which("kcat") is None:
        print("kcat is not installed", file=sys.stderr)
        return 1
    is_full = rounds >= _FULL_ROUNDS
    place = report.Place.of_repository() if is_full else report.Place.of_folder()
    results.write(place.cli_lines, about(rounds), measure(rounds))
    if is_full:
        report.render(place)
    report.show_own(place.cli_lines, TABLES, GOALS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
