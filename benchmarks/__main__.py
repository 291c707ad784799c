"""Run every client through every case, taking turns, on one real broker: ``python -m benchmarks``.

Prints tables, stores each run as a line of JSON, and generates docs/performance.md from them. With ``--quick``, or with
a selection of cases, the output goes to build/benchmarks/ instead; ``--add`` adds the cases to the page. Machines are
noisy: quote ratios between clients of one run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from benchmarks import command, report, results
from benchmarks.cases import CODECS, KINDS, SETTINGS, SIZES, plan
from benchmarks.clients import CLIENTS
from benchmarks.runner import Runner
from pykclient import implementation


def cluster_of(kind: str) -> AbstractContextManager[Any]:
    if kind == "real":
        from tests.kafka.cluster import KafkaCluster

        return KafkaCluster(brokers=1, throughput=True)
    from pykclient.testing import EmbeddedCluster

    return EmbeddedCluster(brokers=1, memory_limit_bytes=4 << 30)


def measure(arguments: argparse.Namespace, cluster: Any) -> Iterator[results.Line]:
    """Yield the result of each run; report progress on stderr."""
    begun_s = time.monotonic()
    benches = list(plan(arguments.kinds, arguments.sizes, arguments.codecs, arguments.partitions, arguments.settings))
    runner = Runner(cluster, arguments.clients, arguments.rounds, arguments.scale)
    runner.warm_up(arguments.codecs)
    for number, bench in enumerate(benches, 1):
        yield from runner.measure(bench)
        passed_s = time.monotonic() - begun_s
        print(f"{number}/{len(benches)} {bench}: {passed_s:.0f} s", file=sys.stderr, flush=True)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = command.new_parser("python -m benchmarks", __doc__, "records")
    parser.add_argument("--partitions", type=int, nargs="+", default=[3, 1000])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--codecs", nargs="+", default=list(CODECS), choices=CODECS)
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=list(CLIENTS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--add", action="store_true", help="add the selected cases to the results of the last run")
    parser.add_argument("--kafka", choices=["real", "embedded"], default="real")
    arguments = command.parsed(parser, words)
    if arguments.add:
        arguments.place = report.Place.of_repository()
    return arguments


def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    if implementation.NAME != "c":
        print("the compiled modules are not there: what is named pykclient runs in Python", file=sys.stderr)
        if arguments.place == report.Place.of_repository():
            raise SystemExit("a page needs both implementations: install a C compiler, and the package again")
    packages = sorted({kind.distribution for kind in CLIENTS.values()} - {""})
    with cluster_of(arguments.kafka) as cluster:
        write = results.add if arguments.add else results.write
        write(arguments.place.lines, command.about(arguments.rounds, packages), measure(arguments, cluster))
        report.render(arguments.place)
    report.show(arguments.place)


if __name__ == "__main__":
    main()
