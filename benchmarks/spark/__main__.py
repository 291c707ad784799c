"""Run every case with our data source and with Spark's own, by turns: ``python -m benchmarks.spark``.

Prints tables, writes each run as a line of JSON, and updates the Spark part of docs/performance.md. With ``--quick`` or
some of the cases only, the results go to build/benchmarks/ instead. Machines are noisy: quote ratios between sources of
the same run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import command, report, results
from benchmarks.spark.cases import CASES, GOALS, SINKS, SOURCES, TABLES
from benchmarks.spark.processes import keep_orphans
from benchmarks.spark.runner import SparkRunner, session
from tests.kafka.cluster import KafkaCluster
from tests.spark import session as tested

_PACKAGES = ("pykclient", "pyspark", "pyarrow")


def measure(arguments: argparse.Namespace, runner: SparkRunner) -> Iterator[results.Line]:
    """Yield the line of each run, and report progress on stderr."""
    begun_s = time.monotonic()
    for name in arguments.cases:
        yield from runner.measure(name, CASES[name])
        print(f"{name}: {time.monotonic() - begun_s:.0f} s", file=sys.stderr, flush=True)


def pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = command.new_parser("python -m benchmarks.spark", __doc__, "rows")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--sources", nargs="+", default=list(SOURCES | SINKS), choices=list(SOURCES | SINKS))
    parser.add_argument("--option", type=pair, action="append", default=[], metavar="K=V", help="for our reader")
    parser.add_argument("--unzipped", action="store_true", help="let Spark's Python processes not use pyspark.zip")
    parser.add_argument("--conf", type=pair, action="append", default=[], metavar="K=V", help="for Spark")
    return command.parsed(parser, words)


def home_without_zip(folder: Path) -> Path:
    """Create a SPARK_HOME without pyspark.zip, so that Python processes import the pyspark that pip installed."""
    import pyspark

    installed = Path(pyspark.__path__[0])
    libraries = Path("python") / "lib"
    (folder / libraries).mkdir(parents=True)
    for each in (*installed.iterdir(), *(installed / libraries).iterdir()):
        if each.name not in ("python", "pyspark.zip"):
            (folder / each.relative_to(installed)).symlink_to(each)
    return folder


def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    os.environ.update(tested.environment())
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their bytecode
    folder = Path(tempfile.mkdtemp(prefix="pykclient-spark-"))
    try:
        if arguments.unzipped:
            os.environ["SPARK_HOME"] = str(home_without_zip(folder / "home"))
        keep_orphans()
        with KafkaCluster(brokers=1, throughput=True) as cluster:
            spark = session(folder, dict(arguments.conf))
            options = dict(arguments.option)
            runner = SparkRunner(cluster, spark, folder, arguments.rounds, arguments.scale, arguments.sources, options)
            try:
                results.write(
                    arguments.place.spark_lines, command.about(arguments.rounds, _PACKAGES), measure(arguments, runner)
                )
            finally:
                tested.stop(spark)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.place == report.Place.of_repository():
        report.render(arguments.place)
    report.show_own(arguments.place.spark_lines, TABLES, GOALS)


if __name__ == "__main__":
    main()
