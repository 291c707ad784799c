"""System calls and hand-overs of the interpreter's lock while producing, beside a thread that never rests and without.

python -m benchmarks.handovers: one JSON line per client and case. Needs strace, which slows the client down: the rates
are those of a second run without it. Each of the calls named ``handing_over`` gives the interpreter's lock away and has
to get it back, which takes up to 5 ms while another thread computes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.clients import CLIENTS, Case

#: What CPython gives its lock away for; ``futex`` is how it is waited for.
HANDING_OVER = ("clock_nanosleep", "epoll_wait", "poll", "recvfrom", "recvmsg", "sendmsg", "sendto")


def run(client: str, case: Case, prefix: list[str]) -> dict[str, Any]:
    command = [*prefix, sys.executable, "-m", "benchmarks.worker", client, json.dumps(case._asdict())]
    environment = {**os.environ, **CLIENTS[client].environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, env=environment)
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return line


def system_calls(client: str, case: Case) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report"
        run(client, case, ["strace", "-f", "-c", "-o", str(report)])
        # % time, seconds, usecs/call, calls, errors (or nothing), name
        found = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", report.read_text(), re.MULTILINE)
    return {name: int(calls) for calls, name in found if name != "total"}


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    parser = argparse.ArgumentParser(prog="python -m benchmarks.handovers", description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--clients", nargs="+", default=["pykclient", "kafka-python"], choices=list(CLIENTS))
    arguments = parser.parse_args()
    with KafkaCluster(brokers=1, throughput=True) as cluster:
        for kind in ("produce", "busy"):
            for client in arguments.clients:
                cases = []
                for turn in range(2):
                    topic = f"handovers-{kind}-{client}-{turn}"
                    cluster.create_topic(topic, 3)
                    cases.append(Case(kind, cluster.bootstrap_servers, topic, 3, arguments.records, 100, "none"))
                calls = system_calls(client, cases[0])
                thousands = arguments.records / 1000
                handing_over = sum(calls.get(name, 0) for name in HANDING_OVER)
                row = {
                    "client": client,
                    "case": kind,
                    "records_per_s": round(run(client, cases[1], [])["records_per_s"]),
                    "handing_over_per_1000_records": round(handing_over / thousands, 2),
                    **{name: round(calls.get(name, 0) / thousands, 3) for name in (*HANDING_OVER, "futex")},
                }
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
