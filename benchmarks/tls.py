"""Compare the cost of TLS: CPU per record of clients with and without it.

``python -m benchmarks.tls`` prints one JSON line per client, case and round, and then the medians of the ratios to
confluent-kafka. Clients take turns, each in a process of its own, on one real broker with both listeners.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.clients import CLIENTS
from benchmarks.results import REFERENCE
from benchmarks.runner import run

PARTITIONS = 3


def main() -> None:
    from tests.kafka.secure_kafka import SecureKafka

    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    clients = [REFERENCE, "pykclient", "pykclient-columns"]
    parser.add_argument("--clients", nargs="+", default=clients, choices=list(CLIENTS))
    arguments = parser.parse_args()
    found: dict[tuple[str, ...], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, SecureKafka(Path(folder), throughput=True) as kafka:
        for size in arguments.sizes:
            records = arguments.records * 100 // size
            written = f"consume-{size}"
            kafka.cluster.create_topic(written, PARTITIONS)
            plain = Case("fill", kafka.bootstrap("PLAINTEXT"), written, PARTITIONS, records * 2, size, "none")
            run(REFERENCE, plain)
            for number in range(arguments.rounds):
                for client in arguments.clients:
                    for listener, ca_file in (("PLAINTEXT", ""), ("SSL", kafka.path("ca.pem"))):
                        for kind, topic, count in (
                            ("produce", f"produce-{size}-{number}-{client}-{listener}", records),
                            ("consume", written, records * 2),
                        ):
                            if kind == "produce":
                                kafka.cluster.create_topic(topic, PARTITIONS)
                            servers = kafka.bootstrap(listener)
                            case = Case(kind, servers, topic, PARTITIONS, count, size, "none", ca_file=ca_file)
                            line: dict[str, Any] | None = run(client, case)
                            if kind == "produce":
                                kafka.cluster.delete_topic(topic)
                            assert line is not None, (client, case)
                            print(json.dumps({"listener": listener, **line}), flush=True)
                            found.setdefault((kind, str(size), listener, client), []).append(line["cpu_us_per_record"])
    for (kind, size, listener, client), values in found.items():
        reference = statistics.median(found[kind, size, listener, REFERENCE])
        median = statistics.median(values)
        print(f"{kind}, {size} B, {listener}, {client}: {median:.2f} us per record, {median / reference:.2f}")


if __name__ == "__main__":
    main()
