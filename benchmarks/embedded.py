"""The cost of the embedded cluster: ``python -m benchmarks.embedded`` prints one JSON line per figure.

It measures start-up with and without imports, throughput of a producer and a consumer (in the cluster's process and in
another one), CPU while idle, and memory up to its limit. ``--soak MINUTES`` runs a producer and a consumer for that
long and prints the resident memory, while retention bounds the log.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.clients import CLIENTS, Case, payload
from benchmarks.clients.measuring import warm_up_records
from benchmarks.runner import run
from benchmarks.soak import resident_mb
from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import KafkaError
from pykclient.testing import EmbeddedCluster

#: In a new interpreter: milliseconds of imports, of the start and of closing, and the CPU time of all of it.
_START = """
import sys, time
begun = time.perf_counter()
from pykclient.testing.embedded_cluster import EmbeddedCluster
imported = time.perf_counter()
cluster = EmbeddedCluster(int(sys.argv[1])).start()
started = time.perf_counter()
again = EmbeddedCluster(int(sys.argv[1])).start()
second = time.perf_counter()
cluster.close()
closed = time.perf_counter()
again.close()
print(*(round(seconds * 1000, 1) for seconds in (
    imported - begun, started - imported, second - started, closed - second, time.process_time()
)))
"""


def start(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield medians over new interpreters.

    The first cluster of a process includes late imports, the second does not.
    """
    names = ("import_ms", "first_start_ms", "second_start_ms", "close_ms", "cpu_of_all_ms")
    for brokers in (1, 3):
        rows = []
        for _ in range(rounds):
            command = [sys.executable, "-c", _START, str(brokers)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append([float(figure) for figure in done.stdout.split()])
        medians = (statistics.median(column) for column in zip(*rows, strict=True))
        yield {"case": "start", "brokers": brokers, **dict(zip(names, medians, strict=True))}


def throughput(rounds: int, records: int, partitions: int) -> Iterator[dict[str, Any]]:
    """Measure our producer with ``acks=all`` and our consumer, in the brokers' process and in one of their own."""
    for brokers, replication in ((1, 1), (3, 1), (3, 3)):
        for place in ("same process", "another process"):
            for kind in ("produce", "consume"):
                lines = [_through(brokers, replication, place, kind, records, partitions) for _ in range(rounds)]
                yield {
                    "case": kind,
                    "brokers": brokers,
                    "replication": replication,
                    "client": place,
                    "records_per_s": round(statistics.median(line["records_per_s"] for line in lines)),
                    "cluster_cpu_us_per_record": round(statistics.median(line["cpu_us"] for line in lines), 2),
                }


def _through(brokers: int, replication: int, place: str, kind: str, records: int, partitions: int) -> dict[str, float]:
    with EmbeddedCluster(brokers, memory_limit_bytes=2 << 30) as cluster:
        cluster.create_topic("bench", partitions, replication)
        case = Case("produce", cluster.bootstrap_servers, "bench", partitions, records, 100, "none")
        if kind == "consume":
            _run(case, "another process")
            case = case._replace(kind="consume")
        cpu_s = time.process_time()
        records_per_s = _run(case, place)
        through = records + (warm_up_records(case) if kind == "produce" else 0)
        return {"records_per_s": records_per_s, "cpu_us": (time.process_time() - cpu_s) / through * 1e6}


def _run(case: Case, place: str) -> float:
    """Return records per second."""
    if place == "same process":
        sample = getattr(CLIENTS["pykclient"](), case.kind)(case)
        return float(sample.records / sample.wall_s)
    line = run("pykclient", case)
    assert line is not None
    return float(line["records_per_s"])


def idle(seconds: float) -> Iterator[dict[str, Any]]:
    """Measure the share of a core of idle brokers, without clients and with a consumer that waits."""
    for brokers in (1, 3):
        with EmbeddedCluster(brokers) as cluster:
            cluster.create_topic("idle", 3)
            yield {"case": "idle", "brokers": brokers, "client": None, "cpu_share": _cpu_share(seconds)}
            consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
                "idle", bootstrap_servers=cluster.bootstrap_servers, group_id="idle"
            )
            with consumer:
                consumer.poll(timeout_ms=1000)
                share = _cpu_share(seconds, consumer)
            yield {"case": "idle", "brokers": brokers, "client": "a consumer, included", "cpu_share": share}


def _cpu_share(seconds: float, consumer: KafkaConsumer[bytes, bytes] | None = None) -> float:
    begun, cpu_s = time.perf_counter(), time.process_time()
    if consumer is None:
        time.sleep(seconds)
    else:
        consumer.poll(timeout_ms=seconds * 1000)
    return round((time.process_time() - cpu_s) / (time.perf_counter() - begun), 5)


def memory(limit_mb: int) -> Iterator[dict[str, Any]]:
    """Write until the limit is reached; report the amount written, the process's memory, and the error."""
    before = resident_mb()
    with EmbeddedCluster(memory_limit_bytes=limit_mb << 20) as cluster:
        producer: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        value, acknowledged, refused = bytes(10_000), 0, ""
        with producer:
            while not refused:
                try:
                    for future in [producer.send("full", value) for _ in range(100)]:
                        future.get(30)
                        acknowledged += 1
                except KafkaError as error:
                    refused = f"{type(error).__name__}: {error}"
        yield {
            "case": "memory",
            "limit_mb": limit_mb,
            "taken_mb": round(acknowledged * len(value) / (1 << 20), 1),
            "resident_mb_before": round(before, 1),
            "resident_mb": round(resident_mb(), 1),
            "error": refused,
        }


def soak(minutes: float, every_s: float) -> Iterator[dict[str, Any]]:
    """Write and read continuously with a log bounded by retention; memory must not grow."""
    settings = {"log.retention.bytes": 16 << 20, "log.segment.bytes": 4 << 20, "log.retention.check.interval.ms": 1000}
    value, begun = payload(100), time.monotonic()
    with EmbeddedCluster(3, config=settings) as cluster:
        cluster.create_topic("soak", 3, 3)
        servers = cluster.bootstrap_servers
        producer: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=servers, linger_ms=5)
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
            "soak", bootstrap_servers=servers, group_id="soak", auto_offset_reset="earliest"
        )
        with producer, consumer:
            sent = read = shown = 0
            while (passed_s := time.monotonic() - begun) < minutes * 60:
                for _ in range(2000):
                    producer.send("soak", value)
                sent += 2000
                while sent - read > 20_000:
                    read += sum(map(len, consumer.poll(timeout_ms=1000).values()))
                if passed_s >= shown * every_s:
                    shown += 1
                    yield {
                        "case": "soak",
                        "seconds": round(passed_s),
                        "sent": sent,
                        "read": read,
                        "resident_mb": round(resident_mb(), 1),
                    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedded", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=400_000, help="of 100 bytes")
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--idle-seconds", type=float, default=5.0)
    parser.add_argument("--limit-mb", type=int, default=64)
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    cases = ["start", "throughput", "idle", "memory"]
    parser.add_argument("--cases", nargs="*", default=cases, choices=cases)
    arguments = parser.parse_args()
    makers = {
        "start": lambda: start(arguments.rounds),
        "throughput": lambda: throughput(arguments.rounds, arguments.records, arguments.partitions),
        "idle": lambda: idle(arguments.idle_seconds),
        "memory": lambda: memory(arguments.limit_mb),
    }
    for case in arguments.cases:
        for line in makers[case]():
            print(json.dumps(line), flush=True)
    if arguments.soak:
        for line in soak(arguments.soak, every_s=10.0):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
