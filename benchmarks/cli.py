"""CPU of ``pykclient produce`` and ``consume`` beside kcat: ``python -m benchmarks.cli [--rounds 5]``.

A million lines of 100 bytes go from a file to a topic of one partition of a real Kafka, and back to a file. The
commands take turns, each in a process of its own, whose start is included. The first of a million records alone, read
and written, shows what the start costs. Both sides run with their own defaults: batches of up to 1 MB on either side,
fetches of up to 4 MB of a partition here and of 1 MB in kcat. Needs kcat (a package of Debian).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.kafka.cluster import KafkaCluster

_RECORDS = 1_000_000
_TOPIC = "lines"


def commands(servers: str, folder: Path) -> Mapping[str, str]:
    """Return the command of each row."""
    lines, ours = folder / "lines.txt", f"{sys.executable} -m pykclient"
    return {
        "start of produce, pykclient": f"head -1 {lines} | {ours} produce {_TOPIC} -p 0 -b {servers}",
        "start of consume, pykclient": f"{ours} consume {_TOPIC} -c 1 -b {servers} > {folder / 'one'}",
        "produce, kcat": f"kcat -b {servers} -P -t {_TOPIC} -p 0 -l {lines}",
        "produce, pykclient": f"{ours} produce {_TOPIC} {lines} -p 0 -b {servers}",
        "consume, kcat": f"kcat -b {servers} -C -q -e -t {_TOPIC} -p 0 -o beginning -c {_RECORDS} > {folder / 'kcat'}",
        "consume, pykclient": f"{ours} consume {_TOPIC} -c {_RECORDS} -b {servers} > {folder / 'pykclient'}",
    }


def cpu_s(command: str) -> float:
    """Run a command in a shell; return the seconds of CPU that it took, with its start and its system calls."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, shell=True, check=True, timeout=120, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cli", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if shutil.which("kcat") is None:
        print("kcat is not installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name, KafkaCluster(brokers=1) as cluster:
        folder = Path(name)
        (folder / "lines.txt").write_bytes(b"".join(b"%099d\n" % number for number in range(_RECORDS)))
        cluster.create_topic(_TOPIC, 1)
        rows = commands(cluster.bootstrap_servers, folder)
        taken: dict[str, list[float]] = {row: [] for row in rows}
        for turn in range(rounds + 1):  # the first one is to warm up
            for row, command in rows.items():
                seconds = cpu_s(command)
                if turn:
                    taken[row].append(seconds)
        assert (folder / "kcat").read_bytes() == (folder / "pykclient").read_bytes()
    for row, seconds_of in taken.items():
        print(
            json.dumps({"row": row, "cpu_s": statistics.median(seconds_of), "all": [round(s, 3) for s in seconds_of]})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
