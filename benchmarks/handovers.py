"""Count GIL hand-overs and system calls while producing, alone and beside a CPU-bound thread.

``python -m benchmarks.handovers`` prints one JSON line per client and case.

``sleeps_per_1000_records`` is how often a thread of the client slept (getrusage), for the GIL or for work: beside a
CPU-bound thread, waiting for the GIL takes up to 5 ms. System calls are counted in another run, under strace, which
slows the client down. CPython's own sockets release the GIL for each of these calls. The compiled poller releases it
once for all calls between two events, and not at all if it need not wait.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.clients import CLIENTS

#: The calls for which CPython's own modules release the GIL; ``futex`` is the wait for it.
CALLS = ("clock_nanosleep", "epoll_wait", "poll", "read", "recvfrom", "recvmsg", "sendmsg", "sendto", "write", "futex")

PARTITIONS = 3


def run(client: str, case: Case, prefix: list[str]) -> dict[str, Any]:
    command = [*prefix, sys.executable, "-m", "benchmarks.worker", client, json.dumps(case._asdict())]
    environment = {**os.environ, **CLIENTS[client].environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, env=environment)
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return line


def sleeps(client: str, case: Case) -> tuple[int, dict[str, Any]]:
    """Return how often threads of the client slept, and the client's own report."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw
    line = run(client, case, [])
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw - before, line


def system_calls(client: str, case: Case) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report"
        run(client, case, ["strace", "-f", "-c", "-o", str(report)])
        # % time, seconds, usecs/call, calls, errors (or nothing), name
        found = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", report.read_text(), re.MULTILINE)
    return {name: int(calls) for calls, name in found if name != "total"}


def measure(cluster: Any, kind: str, client: str, records: int) -> dict[str, Any]:
    topic = f"handovers-{kind}-{client}"
    cluster.create_topic(topic, PARTITIONS)
    few = Case(kind, cluster.bootstrap_servers, topic, PARTITIONS, records // 100, 100, "none")
    many = few._replace(records=records)
    begun, _ = sleeps(client, few)  # imports and connecting sleep as well
    slept, line = sleeps(client, many)
    calls, begun_calls = system_calls(client, many), system_calls(client, few)
    cluster.delete_topic(topic)
    thousands = (records - records // 100) / 1000
    return {
        "client": client,
        "implementation": line["implementation"],
        "case": kind,
        "records_per_s": round(line["records_per_s"]),
        "sleeps_per_1000_records": round((slept - begun) / thousands, 2),
        **{name: round((calls.get(name, 0) - begun_calls.get(name, 0)) / thousands, 3) for name in CALLS},
    }


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    parser = argparse.ArgumentParser(prog="python -m benchmarks.handovers", description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    clients = ["pykclient", "pykclient-python", "kafka-python"]
    parser.add_argument("--clients", nargs="+", default=clients, choices=list(CLIENTS))
    arguments = parser.parse_args()
    with KafkaCluster(brokers=1, throughput=True) as cluster:
        for kind in ("produce", "busy"):
            for client in arguments.clients:
                print(json.dumps(measure(cluster, kind, client, arguments.records)), flush=True)


if __name__ == "__main__":
    main()
