"""Check that memory stays flat: ``python -m benchmarks.soak`` sends ten million records and reads them back.

Prints one JSON line per million with the resident memory of the process.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pykclient
from benchmarks.clients import payload


def resident_mb() -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def produce(bootstrap_servers: str, topic: str, records: int, every: int) -> None:
    value = payload(100)
    with pykclient.KafkaProducer[bytes, bytes](bootstrap_servers=bootstrap_servers, linger_ms=5) as producer:
        for i in range(1, records + 1):
            producer.send(topic, value)
            if i % every == 0:
                print(json.dumps({"case": "produce", "records": i, "resident_mb": resident_mb()}), flush=True)
        producer.flush()


def consume(bootstrap_servers: str, topic: str, records: int, every: int) -> None:
    with pykclient.KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=bootstrap_servers, group_id="soak", auto_offset_reset="earliest"
    ) as consumer:
        for i, _ in enumerate(consumer, 1):
            if i % every == 0:
                print(json.dumps({"case": "consume", "records": i, "resident_mb": resident_mb()}), flush=True)
            if i == records:
                break


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--every", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with KafkaCluster(brokers=1, throughput=True) as cluster:
        cluster.create_topic("soak", 3)
        produce(cluster.bootstrap_servers, "soak", arguments.records, arguments.every)
        consume(cluster.bootstrap_servers, "soak", arguments.records, arguments.every)


if __name__ == "__main__":
    main()
