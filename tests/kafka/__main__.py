"""Runs Kafka until Ctrl-C: ``python -m tests.kafka [--brokers 3] [--port 9092]``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time

from tests.kafka import artifacts
from tests.kafka.cluster import KafkaCluster


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--port", type=int, help="of the first broker (default: a free one)")
    parser.add_argument("--throughput", action="store_true", help="for benchmarks: full compiler, larger heap")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="a broker setting")
    arguments = parser.parse_args()
    if why := artifacts.missing():
        print(f"Kafka cannot be run here: {why}", file=sys.stderr)
        return 1
    properties = dict(pair.split("=", 1) for pair in arguments.property)
    signal.signal(signal.SIGTERM, _interrupt)
    started = time.monotonic()
    with (
        contextlib.suppress(KeyboardInterrupt),
        KafkaCluster(arguments.brokers, properties, port=arguments.port, throughput=arguments.throughput) as cluster,
    ):
        print(f"Kafka {artifacts.KAFKA_VERSION} is up after {time.monotonic() - started:.1f} s; Ctrl-C ends it")
        print(f"bootstrap servers: {cluster.bootstrap_servers}\nlogs: {cluster.folder}", flush=True)
        while True:
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
