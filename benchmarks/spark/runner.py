"""Runs all sources by turns in one JVM: every case in rounds, and in each round every source once."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.results import Line, case_of
from benchmarks.spark import topics
from benchmarks.spark.cases import (
    BACKLOG_ROWS,
    BACKLOGS,
    EMPTY,
    OURS,
    PARTITIONS,
    ROWS_PER_TRIGGER,
    SINK_ROWS,
    SINKS,
    SOURCES,
    SparkCase,
)
from benchmarks.spark.processes import Cpu, cpu

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.cases import Bench

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

#: The first triggers of a query, which start processes and compile, do not count.
_FIRST_TRIGGERS = 2

#: How often a query's progress is looked at until they are over.
_LOOK_S = 0.05


class Outcome(NamedTuple):
    """The result of a run. ``rows`` is None if it is unknown."""

    rows: int | None = None
    trigger_ms: float | None = None
    #: The CPU of all processes for a trigger, without the first ones.
    trigger_cpu_ms: float | None = None
    #: Bytes that the brokers sent, as a multiple of those of the values, and new connections in a micro-batch.
    fetched_ratio: float | None = None
    connections_per_trigger: float | None = None


def session(folder: Path, settings: Mapping[str, str]) -> SparkSession:
    """Create a session on two cores with both sources, set up as our documentation recommends."""
    from pyspark.sql import SparkSession

    from benchmarks.spark.empty_source import EmptySource
    from pykclient.spark import KafkaDataSource
    from tests.spark import session as tested

    configuration = {
        **tested.settings(folder, java_options=()),
        "spark.driver.memory": "4g",
        **settings,
    }
    started = SparkSession.builder.config(map=dict(configuration)).getOrCreate()
    started.dataSource.register(KafkaDataSource)
    started.dataSource.register(EmptySource)
    return started


class SparkRunner:
    """Runs cases on a cluster of one broker. Checkpoints go to ``folder``. Thread: owner."""

    def __init__(
        self,
        cluster: Any,
        spark: SparkSession,
        folder: Path,
        rounds: int,
        scale: float,
        sources: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        self._cluster = cluster
        self._spark = spark
        self._rounds = rounds
        self._scale = scale
        self._sources = sources
        self._options = options
        self._folder = folder
        self._topics: set[str] = set()

    def measure(self, name: str, case: SparkCase) -> Iterator[Line]:
        """Yield the lines of all rounds of a case, after an uncounted one. Each round starts with another source."""
        always = ("triggers", "triggers-1k", "sink", *BACKLOGS)  # with the same number of triggers
        scale = 1 if name in always else self._scale
        rows = int(case.rows * scale) // case.bench.partitions * case.bench.partitions
        topic = self._topic(name, case, rows)
        sources = [source for source in case.sources if source in self._sources]
        for source in sources:
            self._check(name, case, source, topic, rows)
            self._run(name, case, source, topic, rows)
        for turn in range(self._rounds):
            first = turn % len(sources)
            for source in sources[first:] + sources[:first]:
                yield {"round": turn, **self._run(name, case, source, topic, rows)}
        if name == "write":
            self._cluster.delete_topic(topic)

    def _topic(self, name: str, case: SparkCase, rows: int) -> str:
        if name == "write":
            return str(self._cluster.create_topic("spark-written", case.bench.partitions))
        topic = topics.name_of(case.bench) + (f"-{name}" if name in ("triggers", "triggers-1k", "sink") else "")
        if topic not in self._topics:
            # Batches of the default size, as ranges of offsets begin and end within one.
            batch_bytes = {"batch_bytes": 16 << 10} if name in BACKLOGS else {}
            topics.create(self._cluster, case.bench, rows, topic, **batch_bytes)
            self._topics.add(topic)
        return topic

    def _check(self, name: str, case: SparkCase, source: str, topic: str, rows: int) -> None:
        """Check that a source returns all rows."""
        from pyspark.sql import functions

        if name in ("write", "sink") or source == EMPTY:
            return
        found = self._read(name, case, source, topic, rows).agg(
            functions.count("*"), functions.countDistinct("partition"), functions.sum(functions.length("value"))
        )
        wanted = rows // topics.KEPT_OF if name == "filter" else rows
        assert tuple(found.first() or ()) == (wanted, case.bench.partitions, wanted * case.bench.size_bytes), (
            f"{source}, {name}: {found.first()}"
        )

    def _run(self, name: str, case: SparkCase, source: str, topic: str, rows: int) -> Line:
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        jvm.System.gc()  # no source pays for garbage of another one
        before, begun_s = self._cpu(), time.perf_counter()
        outcome = self._work(name, case, source, topic, rows)
        wall_s, used = time.perf_counter() - begun_s, self._cpu().since(before)
        assert outcome.rows in (None, rows), f"{source}, {name}: {outcome.rows} rows and not {rows}"
        line = {
            "client": source,
            **case_of(case.bench),
            "records": rows,
            "wall_s": wall_s,
            "records_per_s": rows / wall_s,
            "cpu_us_per_record": (used.jvm_s + used.python_s) / rows * 1e6,
            "all_us_per_record": (used.jvm_s + used.python_s + used.broker_s) / rows * 1e6,
            "jvm_us_per_record": used.jvm_s / rows * 1e6,
            "python_us_per_record": used.python_s / rows * 1e6,
            "broker_us_per_record": used.broker_s / rows * 1e6,
            "trigger_ms": outcome.trigger_ms,
            "trigger_cpu_ms": outcome.trigger_cpu_ms,
            "fetched_ratio": outcome.fetched_ratio,
            "connections_per_trigger": outcome.connections_per_trigger,
        }
        told = f"{wall_s:.2f} s; CPU {used.jvm_s:.2f} JVM, {used.python_s:.2f} Python, {used.broker_s:.2f} broker"
        if outcome.trigger_ms:
            told += f"; {outcome.trigger_ms:.0f} ms a trigger"
        if outcome.trigger_cpu_ms:
            told += f", {outcome.trigger_cpu_ms:.0f} ms of CPU"
        if outcome.fetched_ratio:
            told += f"; {outcome.fetched_ratio:.3f} bytes for each needed"
            told += f", {outcome.connections_per_trigger:.1f} connections"
        print(f"  {name}, {source}: {told}", file=sys.stderr, flush=True)
        return line

    def _work(self, name: str, case: SparkCase, source: str, topic: str, rows: int) -> Outcome:
        if name == "write":
            options = {**SOURCES[source].write_options, "kafka.bootstrap.servers": self._cluster.bootstrap_servers}
            made = _made(self._spark, case, rows).write.format(SOURCES[source].format)
            made.options(topic=topic, **options).mode("append").save()
            return Outcome()
        if name == "sink":
            return self._copy(source, topic)
        if name in BACKLOGS:
            return self._catch_up(case.bench, source, topic)
        if name in ROWS_PER_TRIGGER:
            return self._stream(name, source, topic, rows)
        self._read(name, case, source, topic, rows).select(*COLUMNS).write.format("noop").mode("overwrite").save()
        return Outcome()

    def _cpu(self) -> Cpu:
        gateway = self._spark.sparkContext._gateway
        assert gateway is not None
        return cpu(gateway.proc.pid, _broker_of(self._cluster))

    def _options_of(self, source: str, topic: str) -> dict[str, str]:
        options = {**SOURCES[source].read_options, "kafka.bootstrap.servers": self._cluster.bootstrap_servers}
        own = self._options if source == OURS else {}
        return {**options, "subscribe": topic, "startingOffsets": "earliest", **own}

    def _read(self, name: str, case: SparkCase, source: str, topic: str, rows: int) -> DataFrame:
        filters = name == "filter"
        self._spark.conf.set(_PUSHDOWN, str(filters).lower())
        options = self._options_of(source, topic)
        if filters and source == OURS:
            options["filterPushdown"] = "true"
        read = self._spark.read.format(SOURCES[source].format).options(**options).load()
        return (
            read.where(f"timestamp > timestamp_millis({topics.kept_after_ms(case.bench, rows)})") if filters else read
        )

    def _stream(self, name: str, source: str, topic: str, rows: int) -> Outcome:
        per_trigger = ROWS_PER_TRIGGER[name] * (self._scale if name == "stream" else 1)
        options = {"rows": str(rows)} if source == EMPTY else self._options_of(source, topic)
        options["maxOffsetsPerTrigger"] = str(int(per_trigger))
        stream = self._spark.readStream.format(SOURCES[source].format).options(**options).load().select(*COLUMNS)
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", tempfile.mkdtemp(prefix="checkpoint-", dir=self._folder))
            .trigger(availableNow=True)
            .start()
        )
        first, before = 0, self._cpu()
        while first < _FIRST_TRIGGERS and query.isActive:
            time.sleep(_LOOK_S)
            progress = query.lastProgress
            if progress is not None and progress["batchId"] >= _FIRST_TRIGGERS:
                first, before = progress["batchId"], self._cpu()
        query.awaitTermination()
        used, outcome = self._cpu().since(before), self._outcome(query)
        later = -(-rows // int(per_trigger)) - 1 - first
        return outcome._replace(trigger_cpu_ms=sum(used) / later * 1000 if first and later > 0 else None)

    def _copy(self, source: str, topic: str) -> Outcome:
        """Copy a topic by micro-batches."""
        servers = {"kafka.bootstrap.servers": self._cluster.bootstrap_servers}
        if "spark-copy" not in self._topics:
            self._topics.add(str(self._cluster.create_topic("spark-copy", PARTITIONS)))
        options = {**self._options_of(OURS, topic), "maxOffsetsPerTrigger": str(SINK_ROWS)}
        folder = tempfile.mkdtemp(prefix="checkpoint-", dir=self._folder)
        sink = SINKS[source]
        prefix = {"transactionalIdPrefix": folder} if "delivery" in sink.write_options else {}
        query = (
            self._spark.readStream.format("pykclient")
            .options(**options)
            .load()
            .select("key", "value")
            .writeStream.format(sink.format)
            .options(**servers, **sink.write_options, **prefix, topic="spark-copy", checkpointLocation=folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self._outcome(query)

    def _catch_up(self, bench: Bench, source: str, topic: str) -> Outcome:
        """Read a backlog through a proxy. The first micro-batches and the last one do not count in what it counts."""
        counts: list[tuple[int, int]] = []
        with self._cluster.proxies() as proxies:

            def write(batch: DataFrame, _number: int) -> None:
                counts.append(
                    (
                        sum(proxy.response_bytes for proxy in proxies.values()),
                        sum(proxy.accepted for proxy in proxies.values()),
                    )
                )
                batch.select(*COLUMNS).write.format("noop").mode("overwrite").save()

            options = {
                **self._options_of(source, topic),
                "kafka.bootstrap.servers": self._cluster.proxied_bootstrap_servers,
                "maxOffsetsPerTrigger": str(BACKLOG_ROWS * bench.partitions),
            }
            query = (
                self._spark.readStream.format(SOURCES[source].format)
                .options(**options)
                .load()
                .writeStream.foreachBatch(write)
                .option("checkpointLocation", tempfile.mkdtemp(prefix="checkpoint-", dir=self._folder))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        (first_bytes, first_accepted), (last_bytes, last_accepted) = counts[_FIRST_TRIGGERS], counts[-1]
        triggers = len(counts) - 1 - _FIRST_TRIGGERS
        needed = triggers * BACKLOG_ROWS * bench.partitions * bench.size_bytes
        return self._outcome(query)._replace(
            fetched_ratio=(last_bytes - first_bytes) / needed,
            connections_per_trigger=(last_accepted - first_accepted) / triggers,
        )

    def _outcome(self, query: StreamingQuery) -> Outcome:
        triggers = [progress for progress in query.recentProgress if progress["numInputRows"]]
        times_ms = [progress["durationMs"]["triggerExecution"] for progress in triggers]
        later_ms = times_ms[_FIRST_TRIGGERS if len(times_ms) > 2 * _FIRST_TRIGGERS else 0 :]
        return Outcome(sum(progress["numInputRows"] for progress in triggers), statistics.median(later_ms))


def _made(spark: SparkSession, case: SparkCase, rows: int) -> DataFrame:
    """Return rows that are cheap to create: a number as the key, and padded as the value."""
    from pyspark.sql import functions

    number = functions.col("id").cast("string")
    value = functions.rpad(number, case.bench.size_bytes, "x")
    return spark.range(0, rows, 1, case.bench.partitions).select(
        number.cast("binary").alias("key"), value.cast("binary").alias("value")
    )


def _broker_of(cluster: Any) -> int | None:
    process = cluster.brokers[1].process
    return process.pid if process is not None else None
