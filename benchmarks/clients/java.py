"""Kafka's Java clients, driven by Kafka's own performance tools."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from benchmarks.cases import Case
from benchmarks.clients.measuring import BATCH_SIZE, BUFFER_MEMORY, LINGER_MS, Sample, payloads

_SOURCE = Path(__file__).with_name("PerfTools.java")

#: The options of Kafka's scripts.
_JVM = ("-Xmx512m", "-XX:+UseG1GC", "-Dfile.encoding=UTF-8")


class Java:
    """ProducerPerformance and ConsumerPerformance. They support neither keys nor a CPU-bound thread beside them.

    The JVM runs its tool twice; the first run compiles. Its start is reported separately.
    """

    name = "java"
    distribution = ""
    environment: ClassVar[Mapping[str, str]] = MappingProxyType({})
    kinds: ClassVar[tuple[str, ...]] = ("produce", "consume", "latency")
    share = 1.0
    share_of_many = 1.0
    only_plain = False
    runs_with_defaults = False

    def produce(self, case: Case) -> Sample:
        with tempfile.TemporaryDirectory() as folder:
            values = Path(folder, "values")
            values.write_bytes(b"\n".join(payloads(case.size_bytes)))

            def arguments(records: int) -> list[str]:
                return [
                    *("--bootstrap-server", case.bootstrap_servers, "--topic", case.topic),
                    *("--num-records", str(records), "--throughput", "-1", "--payload-file", str(values)),
                    *("--command-property", "acks=all", "enable.idempotence=true", f"compression.type={case.codec}"),
                    *(f"batch.size={BATCH_SIZE}", f"linger.ms={LINGER_MS}", f"buffer.memory={BUFFER_MEMORY}"),
                ]

            output = self._run("produce", *arguments(case.records), "--", *arguments(case.records))
        rates = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec", output, re.MULTILINE)
        assert int(rates[-1][0]) == case.records, output
        sample = self._sample(output, case.records, case.records / float(rates[-1][1]))
        return sample._replace(sent=2 * case.records)

    def consume(self, case: Case) -> Sample:
        arguments = [
            *("--bootstrap-server", case.bootstrap_servers, "--topic", case.topic),
            *("--num-records", str(case.records), "--hide-header", "--timeout", "20000"),
        ]
        warm_up = [*arguments, "--group", f"{case.topic}-warm-up-{os.getpid()}"]
        output = self._run("consume", *warm_up, "--", *arguments, "--group", f"{case.topic}-{os.getpid()}")
        # start, end, MB, MB/s, records, records/s, ms of the rebalance, ms of fetching, MB/s and records/s of fetching
        row = [text for text in output.splitlines() if text.count(",") == 9][-1].split(",")
        records = int(row[4])
        return self._sample(output, records, records / float(row[9]))

    def latency(self, case: Case) -> Sample:
        sizes = str(case.size_bytes), str(case.records)
        sample = self._sample(self._run("latency", case.bootstrap_servers, case.topic, *sizes), case.records, 1.0)
        return sample._replace(wall_s=sum(sample.latencies_ms) / 1000)

    def _run(self, *arguments: str) -> str:
        from tests.kafka import artifacts
        from tests.support.java import compiled_classes

        log4j = Path(artifacts.__file__).with_name("log4j2.properties")
        classes = os.pathsep.join([str(compiled_classes(_SOURCE)), artifacts.classpath()])
        command = [artifacts.java_tool(), *_JVM, f"-Dlog4j2.configurationFile={log4j}", "-cp", classes]
        done = subprocess.run(
            [*command, _SOURCE.stem, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise RuntimeError(f"Java ended with code {done.returncode}:\n{done.stderr[-4000:]}{done.stdout[-1000:]}")
        return done.stdout

    def _sample(self, output: str, records: int, wall_s: float) -> Sample:
        figures = json.loads(output.strip().splitlines()[-1])
        return Sample(
            records,
            figures["cpu_s"],
            wall_s,
            figures["latencies_ms"],
            peak_rss_mb=figures["peak_rss_kb"] / 1024,
            start_cpu_s=figures["start_cpu_s"],
            start_s=figures["start_s"],
        )
