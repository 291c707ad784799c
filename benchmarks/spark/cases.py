"""Cases, sources with their settings, and the goals for our source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.cases import Bench
from benchmarks.goals import Comparison, Goal
from benchmarks.tables import Table, TableRow

#: The source whose figures are 1.
REFERENCE = "built-in"
TUNED = "built-in-tuned"
OURS = "pykclient"
EXACTLY_ONCE = "pykclient-exactly-once"
#: A Python data source without Kafka: what Spark takes for crossing to Python and back (``empty_source``).
EMPTY = "empty-python"

PARTITIONS = 4


class Source(NamedTuple):
    """A Spark format with options for reading and writing."""

    format: str
    read_options: Mapping[str, str]
    write_options: Mapping[str, str]


SOURCES = {
    REFERENCE: Source("kafka", {}, {}),
    TUNED: Source(
        "kafka",
        {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(8 << 20)},
        {"kafka.linger.ms": "5", "kafka.batch.size": str(128 << 10)},
    ),
    OURS: Source("pykclient", {}, {}),
    EMPTY: Source("empty", {}, {}),
}

#: Sources of the case ``sink`` alone, whose reader is ours for all of them.
SINKS = {
    REFERENCE: SOURCES[REFERENCE],
    OURS: SOURCES[OURS],
    EXACTLY_ONCE: Source("pykclient", {}, {"delivery": "exactly-once", "ledgerTopic": "spark-ledger"}),
}


class SparkCase(NamedTuple):
    """A case. ``bench`` identifies it in results. ``rows`` is the number of rows that are read or written."""

    bench: Bench
    rows: int
    what: str
    sources: Sequence[str] = (REFERENCE, TUNED, OURS)


def _bench(kind: str, size_bytes: int = 100, codec: str = "none", partitions: int = PARTITIONS) -> Bench:
    return Bench(f"spark-{kind}", size_bytes, codec, partitions=partitions)


_MANY = 4_000_000
_UNTUNED = (REFERENCE, OURS)

#: Rows per micro-batch: one of four large ones, and small ones.
ROWS_PER_TRIGGER = {"stream": _MANY // 4, "triggers": 2000, "triggers-1k": 1000}

#: Streams that catch up, behind a proxy that counts: their rows of a partition in a micro-batch, and micro-batches.
BACKLOG_ROWS, BACKLOG_TRIGGERS = 1000, 10
BACKLOGS = ("backlog-16", "backlog-64")

#: Rows of a micro-batch that is written to a topic.
SINK_ROWS = 100_000

CASES = {
    "read": SparkCase(_bench("read"), _MANY, "batch read, 4 M x 100 B"),
    "read-lz4": SparkCase(_bench("read", codec="lz4"), _MANY, "batch read, 4 M x 100 B, lz4", _UNTUNED),
    "read-zstd": SparkCase(_bench("read", codec="zstd"), _MANY, "batch read, 4 M x 100 B, zstd", _UNTUNED),
    "read-1k": SparkCase(_bench("read", 1000), _MANY // 4, "batch read, 1 M x 1 KB", _UNTUNED),
    "stream": SparkCase(_bench("stream"), _MANY, "stream, 4 M x 100 B, four micro-batches"),
    "triggers": SparkCase(_bench("triggers"), 40_000, "stream, 20 micro-batches of 2,000 rows"),
    "triggers-1k": SparkCase(
        _bench("triggers-1k"), 20_000, "stream, 20 micro-batches of 1,000 rows", (REFERENCE, EMPTY, OURS)
    ),
    "filter": SparkCase(_bench("filter"), _MANY, "batch read, `timestamp > ...` keeps 1 %", _UNTUNED),
    "write": SparkCase(_bench("write"), 1_000_000, "batch write, 1 M x 100 B", (REFERENCE, TUNED, EMPTY, OURS)),
    "sink": SparkCase(
        _bench("sink"), 10 * SINK_ROWS, "stream into a topic, 10 micro-batches of 100,000 x 100 B", tuple(SINKS)
    ),
    **{
        name: SparkCase(
            _bench("backlog", 1000, partitions=partitions),
            partitions * BACKLOG_ROWS * BACKLOG_TRIGGERS,
            f"stream that catches up, {partitions} partitions, 1,000 rows of 1 KB of each in a micro-batch",
            _UNTUNED,
        )
        for name, partitions in zip(BACKLOGS, (16, 64), strict=True)
    },
}

#: Cases that are timed as a whole.
_TIMED = tuple(name for name in CASES if name not in BACKLOGS and name != "sink")

_TIME, _CPU, _ALL, _TRIGGER = "wall_s", "cpu_us_per_record", "all_us_per_record", "trigger_ms"
_TRIGGER_CPU = "trigger_cpu_ms"
_FETCHED, _CONNECTIONS = "fetched_ratio", "connections_per_trigger"


def _at_most(case: str, what: str, bound: float, figure: str = _TIME, to: str = REFERENCE) -> Comparison:
    return Comparison(what, OURS, CASES[case].bench, figure, bound, to=to)


GOALS = (
    Goal("spark-read", [_at_most("read", "batch read, time", 0.28)]),
    Goal("spark-read-tuned", [_at_most("read", "batch read, time", 0.6, to=TUNED)]),
    Goal(
        "spark-coded",
        [
            _at_most(case, f"batch read of lz4, zstd, 1 KB, time; worst: {CASES[case].what}", 0.6)
            for case in ("read-lz4", "read-zstd", "read-1k")
        ],
    ),
    Goal("spark-stream", [_at_most("stream", "stream of four micro-batches, time", 1.0)]),
    Goal("spark-triggers", [_at_most("triggers", "small micro-batches, latency of a trigger", 1.4, _TRIGGER)]),
    Goal(
        "spark-triggers-cpu",
        [_at_most("triggers-1k", "micro-batches of 1,000 rows, CPU of all processes for each", 1.0, _TRIGGER_CPU)],
    ),
    Goal(
        "spark-triggers-start",
        [_at_most("triggers-1k", "20 of them with the start of their stream, CPU of all processes", 1.15, _ALL, EMPTY)],
    ),
    Goal("spark-filter", [_at_most("filter", "`timestamp > ...` that keeps 1 %, time", 0.15)]),
    Goal("spark-write", [_at_most("write", "batch write, time", 0.55)]),
    Goal(
        "spark-cpu",
        [
            _at_most(case, f"CPU of JVM and Python; worst: {CASES[case].what}", 1.0, _CPU)
            for case in _TIMED
            if case not in ("triggers", "triggers-1k")
        ],
    ),
    Goal(
        "spark-exactly-once",
        [
            Comparison(
                f"{what} of exactly once beside at least once", EXACTLY_ONCE, CASES["sink"].bench, figure, 1.3, to=OURS
            )
            for what, figure in (("latency of a trigger", _TRIGGER), ("CPU of all processes", _ALL))
        ],
    ),
    Goal(
        "spark-backlog",
        [
            Comparison(
                f"bytes fetched for each byte needed; worst: {CASES[case].what}",
                OURS,
                CASES[case].bench,
                _FETCHED,
                1.1,
                to=REFERENCE,
                unit="bytes",
            )
            for case in BACKLOGS
        ],
    ),
    Goal(
        "spark-backlog-connections",
        [
            Comparison(
                f"new connections in a micro-batch; worst: {CASES[case].what}",
                OURS,
                CASES[case].bench,
                _CONNECTIONS,
                0,
                to=REFERENCE,
                unit="connections",
            )
            for case in BACKLOGS
        ],
    ),
    Goal(
        "spark-backlog-triggers",
        [_at_most(case, f"latency of a trigger; worst: {CASES[case].what}", 1.0, _TRIGGER) for case in BACKLOGS],
    ),
)


def _table(
    title: str, caption: str, figure: str, names: Sequence[str] = _TIMED, sources: Sequence[str] = tuple(SOURCES)
) -> Table:
    rows = [TableRow(CASES[name].what, CASES[name].bench, figure) for name in names]
    return Table(title, caption, sources, rows, reference=REFERENCE)


_BESIDE = "In parentheses: the ratio to the built-in source in its default configuration."

TABLES = {
    "spark-time": _table("Spark: seconds", _BESIDE, _TIME),
    "spark-triggers": _table(
        "Spark: a trigger, ms (median)", _BESIDE, _TRIGGER, ("triggers-1k", "triggers", "stream", *BACKLOGS)
    ),
    "spark-triggers-cpu": _table(
        "Spark: CPU of all processes for a trigger, ms",
        _BESIDE,
        _TRIGGER_CPU,
        ("triggers-1k", "triggers"),
        (REFERENCE, EMPTY, OURS),
    ),
    "spark-sink": _table(
        "Spark: a trigger that writes to a topic, ms (median)", _BESIDE, _TRIGGER, ("sink",), tuple(SINKS)
    ),
    "spark-sink-cpu": _table("Spark: CPU of all processes for that, µs a row", _BESIDE, _ALL, ("sink",), tuple(SINKS)),
    "spark-fetched": _table("Spark: bytes fetched for each byte needed", "", _FETCHED, BACKLOGS, (REFERENCE, OURS)),
    "spark-connections": _table(
        "Spark: new connections in a micro-batch", "", _CONNECTIONS, BACKLOGS, (REFERENCE, OURS)
    ),
    "spark-cpu": _table("Spark: CPU of JVM and Python, µs a row", _BESIDE, _CPU),
    "spark-all": _table("Spark: CPU of all processes, µs a row", _BESIDE, _ALL, ("triggers-1k", "write", *BACKLOGS)),
    "spark-jvm": _table("Spark: CPU of the JVM, µs a row", _BESIDE, "jvm_us_per_record"),
    "spark-python": _table("Spark: CPU of Python, µs a row", "", "python_us_per_record", sources=(OURS,)),
    "spark-broker": _table("Spark: CPU of the broker, µs a row", _BESIDE, "broker_us_per_record"),
}

#: The names of all figures of a run.
FIGURES = {
    _TIME: "seconds",
    _TRIGGER: "ms a trigger",
    _TRIGGER_CPU: "CPU of all processes ms a trigger",
    _CPU: "CPU µs a row",
    _ALL: "CPU of all processes µs a row",
    "jvm_us_per_record": "of the JVM",
    "python_us_per_record": "of Python",
    "broker_us_per_record": "of the broker",
    _FETCHED: "bytes fetched for each needed",
    _CONNECTIONS: "new connections in a micro-batch",
}
