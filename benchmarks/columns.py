"""Records by columns beside records one by one: ``python -m benchmarks.columns --rounds 3``.

``send_batch`` and ``poll_arrow`` take turns with confluent-kafka's ``produce`` and ``consume(1000)`` on one broker, in
processes of their own. Prints a JSON line per run, then medians, with the CPU's ratio to confluent-kafka's.
``--kafka embedded`` runs on a broker of our own, in the process of this program.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.clients import CLIENTS, Case, Sample, payload
from benchmarks.clients.kafka_python import Pykclient
from benchmarks.clients.measuring import BATCH_SIZE, LINGER_MS, Stopwatch

#: Rows of one call of ``send_batch``.
ROWS = 100_000


class PykclientColumns(Pykclient):
    """This project by columns: whole tables out, record batches in."""

    name = "pykclient-columns"

    def produce(self, case: Case) -> Sample:
        import pyarrow as pa

        producer: Any = self._kafka.KafkaProducer(
            bootstrap_servers=case.bootstrap_servers,
            compression_type=case.codec,
            linger_ms=LINGER_MS,
            batch_size=BATCH_SIZE,
        )
        producer.partitions_for(case.topic)
        table = pa.table({"value": pa.array([payload(case.size_bytes)] * ROWS, pa.binary())})
        producer.send_batch(case.topic, table.slice(0, 1)).get(30)
        watch = Stopwatch()
        watch.start()
        futures = [
            producer.send_batch(case.topic, table.slice(0, min(ROWS, case.records - begun)))
            for begun in range(0, case.records, ROWS)
        ]
        producer.flush()
        sample = watch.stop(case.records, [])
        assert all(future.succeeded() for future in futures)
        producer.close()
        return sample

    def _consume(self, case: Case, **arguments: Any) -> Sample:
        consumer = self._consumer(case)
        seen = 0
        while not seen:  # connection, metadata and the first fetch are not part of the figure
            seen = consumer.poll_arrow(1000, **arguments).num_rows
        watch = Stopwatch()
        watch.start()
        counted = 0
        while seen + counted < case.records:
            counted += consumer.poll_arrow(1000, **arguments).num_rows
        sample = watch.stop(counted, [])
        consumer.close()
        return sample

    def consume(self, case: Case) -> Sample:
        return self._consume(case)

    def consume_values(self, case: Case) -> Sample:
        """One column, and that as views."""
        return self._consume(case, columns=["value"], binary_view=True)


#: What is run of each kind, and whose figure is the measure.
RUNS = {
    "produce": (("pykclient-columns", "produce"), ("pykclient", "produce"), ("confluent-kafka", "produce")),
    "consume": (
        ("pykclient-columns", "consume"),
        ("pykclient-columns", "consume_values"),
        ("pykclient", "consume"),
        ("confluent-kafka", "consume"),
    ),
}


def work(client: str, method: str, case: Case) -> None:
    """In the process of its own."""
    kind = PykclientColumns if client == PykclientColumns.name else CLIENTS[client]
    sample: Sample = getattr(kind(), method)(case)
    figures = {
        "cpu_us_per_record": round(sample.cpu_s / sample.records * 1e6, 4),
        "records_per_s": round(sample.records / sample.wall_s),
    }
    print(json.dumps({"client": client, "case": method, **case._asdict(), **figures}))


def run(client: str, method: str, case: Case) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.columns", "--work", client, method, json.dumps(case._asdict())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{client} failed at {method}:\n{done.stderr[-2000:]}")
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(line), flush=True)
    return line


def measure(arguments: argparse.Namespace, cluster: Any) -> None:
    for size_bytes in arguments.sizes:
        for codec in arguments.codecs:
            lines: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
            shared = f"columns-{size_bytes}-{codec}"
            for kind, runs in RUNS.items():
                for turn in range(arguments.rounds):
                    for client, method in runs:
                        # Written by the first to produce, read by all.
                        topic = shared if kind == "consume" or (turn, client) == (0, "pykclient-columns") else ""
                        topic = topic or f"{shared}-{client}-{turn}"
                        if kind == "produce":
                            cluster.create_topic(topic, arguments.partitions)
                        case = Case(
                            kind,
                            cluster.bootstrap_servers,
                            topic,
                            arguments.partitions,
                            arguments.records,
                            size_bytes,
                            codec,
                        )
                        lines[client, method].append(run(client, method, case))
                        if topic != shared:
                            cluster.delete_topic(topic)
            cluster.delete_topic(shared)
            report(lines)


def report(lines: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    medians = {
        key: {
            figure: statistics.median(line[figure] for line in group)
            for figure in ("cpu_us_per_record", "records_per_s")
        }
        for key, group in lines.items()
    }
    for (client, method), median in medians.items():
        theirs = medians["confluent-kafka", method.partition("_")[0]]
        ratio = round(median["cpu_us_per_record"] / theirs["cpu_us_per_record"], 3)
        first = lines[client, method][0]
        about = {name: first[name] for name in ("client", "case", "size_bytes", "codec")}
        print(json.dumps({"median_of": len(lines[client, method]), **about, **median, "cpu_ratio": ratio}))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.columns", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100])
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4"])
    parser.add_argument("--kafka", choices=["real", "embedded"], default="real")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        client, method, case = arguments.work
        work(client, method, Case(**json.loads(case)))
        return
    cluster: AbstractContextManager[Any]
    if arguments.kafka == "real":
        from tests.kafka.cluster import KafkaCluster

        cluster = KafkaCluster(brokers=1, throughput=True)
    else:
        from pykclient.testing import EmbeddedCluster

        cluster = EmbeddedCluster(brokers=1)
    with cluster as running:
        measure(arguments, running)


if __name__ == "__main__":
    main()
