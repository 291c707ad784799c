"""Run every client through every case, taking turns, on one real broker: ``python -m benchmarks --rounds 3``.

Prints one JSON line per run as it ends, then one ``median`` line per client and case. Machines are noisy: quote the
ratios between clients of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import Any

from benchmarks.clients import CLIENTS, Case

FIGURES = ("cpu_us_per_record", "cpu_share", "records_per_s", "p50_ms", "p99_ms", "peak_rss_mb")


def run(client: str, case: Case) -> dict[str, Any] | None:
    """One run in its own process; None, with the reason on stderr, where the client fails."""
    command = [sys.executable, "-m", "benchmarks.worker", client, json.dumps(case._asdict())]
    environment = {**os.environ, **CLIENTS[client].environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their bytecode
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    if done.returncode:
        print(f"{client} failed at {case}:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return line


def cases(arguments: argparse.Namespace) -> list[tuple[str, int, str, int]]:
    """(kind, size in bytes, codec, records) of all cases asked for."""
    wanted: list[tuple[str, int, str, int]] = []
    for size_bytes in arguments.sizes:
        records = arguments.records if size_bytes < 1000 else arguments.records // 4
        for codec in arguments.codecs:
            wanted.append(("produce", size_bytes, codec, records))
            wanted.append(("busy", size_bytes, codec, records // 4))
            wanted.append(("consume", size_bytes, codec, records))
    wanted.append(("latency", 100, "none", 1000))
    wanted += [("idle-producer", 100, "none", 10), ("idle-consumer", 100, "none", 10)]
    return [case for case in wanted if case[0] in arguments.kinds]


def warm_up(arguments: argparse.Namespace, cluster: Any) -> None:
    """Let the broker's virtual machine compile what it runs, or the first client pays for all."""
    cluster.create_topic("warm-up", arguments.partitions)
    for kind, records in (("produce", 500_000), ("consume", 500_000), ("latency", 2000)):
        run(
            "confluent-kafka",
            Case(kind, cluster.bootstrap_servers, "warm-up", arguments.partitions, records, 100, "none"),
        )
    cluster.delete_topic("warm-up")


def measure(arguments: argparse.Namespace, cluster: Any) -> None:
    lines: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    warm_up(arguments, cluster)
    for kind, size_bytes, codec, records in cases(arguments):
        shared = f"bench-consume-{size_bytes}-{codec}"
        if kind == "consume":  # every client reads the very same log, written by confluent-kafka
            cluster.create_topic(shared, arguments.partitions)
            run(
                "confluent-kafka",
                Case("produce", cluster.bootstrap_servers, shared, arguments.partitions, records, size_bytes, codec),
            )
        for turn in range(arguments.rounds):
            for client in arguments.clients:
                topic = shared if kind == "consume" else f"bench-{kind}-{size_bytes}-{codec}-{client}-{turn}"
                if kind != "consume":
                    cluster.create_topic(topic, arguments.partitions)
                case = Case(kind, cluster.bootstrap_servers, topic, arguments.partitions, records, size_bytes, codec)
                line = run(client, case)
                if kind != "consume":
                    cluster.delete_topic(topic)
                if line is not None:
                    print(json.dumps({"round": turn, **line}), flush=True)
                    lines[client, kind, str(size_bytes), codec].append(line)
        if kind == "consume":
            cluster.delete_topic(shared)
    for group in lines.values():
        median = {
            figure: statistics.median(line[figure] for line in group) if group[0][figure] is not None else None
            for figure in FIGURES
        }
        print(json.dumps({"median_of": len(group), **group[0], **median}))


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=400_000, help="of 100 bytes; a quarter of it for larger ones")
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4"])
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=list(CLIENTS))
    kinds = ["produce", "busy", "consume", "latency", "idle-producer", "idle-consumer"]
    parser.add_argument("--kinds", nargs="+", default=kinds, choices=kinds)
    arguments = parser.parse_args()
    with KafkaCluster(brokers=1, throughput=True) as cluster:
        measure(arguments, cluster)


if __name__ == "__main__":
    main()
