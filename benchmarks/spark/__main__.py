"""Our data source for Spark and the built-in one through every case, taking turns: ``python -m benchmarks.spark``.

Prints tables, keeps each run as a line of JSON and writes the part of docs/performance.md that is about Spark. With
``--quick``, or with a part of the cases, that goes into build/benchmarks/ instead. Machines are noisy: quote the
ratios between sources of one run.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import report, results
from benchmarks.spark.cases import CASES, SOURCES
from benchmarks.spark.runner import SparkRunner, session
from tests.kafka import artifacts
from tests.kafka.cluster import KafkaCluster
from tests.spark import session as tested

#: Rounds and share of the rows of a full run, and of a quick one.
FULL, QUICK = (5, 1.0), (1, 0.5)


def about(rounds: int) -> dict[str, Any]:
    """What a reader has to know of the run, and nothing of the machine's names."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rounds": rounds,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "kafka": artifacts.KAFKA_VERSION,
        "java": artifacts.java_version(),
        "versions": {name: metadata.version(name) for name in ("pykclient", "pyspark", "pyarrow")},
    }


def measure(arguments: argparse.Namespace, runner: SparkRunner) -> Iterator[results.Line]:
    """All runs, each as it ends; says on stderr how far it is."""
    begun_s = time.monotonic()
    for name in arguments.cases:
        yield from runner.measure(name, CASES[name])
        print(f"{name}: {time.monotonic() - begun_s:.0f} s", file=sys.stderr, flush=True)


def pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, half of the rows")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float, help="times as many rows as usual")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--option", type=pair, action="append", default=[], metavar="K=V", help="for our reader")
    parser.add_argument("--conf", type=pair, action="append", default=[], metavar="K=V", help="for Spark")
    parser.add_argument("--output", type=Path, help="a folder for results and pages")
    whole = parser.parse_args([])
    arguments = parser.parse_args(words)
    rounds, scale = QUICK if arguments.quick else FULL
    whole.rounds = arguments.rounds  # fewer rounds of everything are a page as well
    everything = arguments == whole
    arguments.rounds = arguments.rounds or rounds
    arguments.scale = arguments.scale or scale
    arguments.place = report.Place.of_repository() if everything else report.Place.of_folder(arguments.output)
    return arguments


def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    os.environ.update(tested.environment())
    folder = Path(tempfile.mkdtemp(prefix="pykclient-spark-"))
    try:
        with KafkaCluster(brokers=1, throughput=True) as cluster:
            spark = session(folder, dict(arguments.conf))
            options = dict(arguments.option)
            runner = SparkRunner(cluster, spark, arguments.rounds, arguments.scale, arguments.sources, options)
            try:
                results.write(arguments.place.spark_lines, about(arguments.rounds), measure(arguments, runner))
            finally:
                runner.close()
                tested.stop(spark)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.place == report.Place.of_repository():
        report.render(arguments.place)
    report.show_spark(arguments.place)


if __name__ == "__main__":
    main()
