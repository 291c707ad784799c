"""Run one client in one case: ``python -m benchmarks.worker CLIENT CASE-AS-JSON`` prints one JSON line."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path

from benchmarks.cases import Bench, Case
from benchmarks.clients import CLIENTS
from benchmarks.clients.measuring import NeverResting, Sample
from benchmarks.results import case_of


def quantile(values: list[float], q: float) -> float | None:
    """Return the ``q`` quantile by nearest rank, or None without values."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else None


def peak_rss_mb() -> float:
    """Return the peak of this program alone: getrusage includes the parent's memory before the exec."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def implementation_of(name: str) -> str | None:
    """Return which of our implementations ran; None for other clients. It shows if a module was not built."""
    if not name.startswith("pykclient"):
        return None
    from pykclient import implementation

    return implementation.NAME


def run(client: str, case: Case) -> Sample:
    """Run a case in this process."""
    kind = case.kind.removeprefix("busy-")
    method = "produce" if kind == "busy" else kind.replace("-", "_")
    with NeverResting() if case.kind.startswith("busy") else contextlib.nullcontext():
        sample: Sample = getattr(CLIENTS[client](), method)(case)
    return sample


def main() -> None:
    client, case = sys.argv[1], Case(**json.loads(sys.argv[2]))
    sample = run(client, case)
    line = {
        "client": client,
        "implementation": implementation_of(client),
        **case_of(Bench(*(getattr(case, field) for field in Bench._fields))),
        "records": sample.records,
        "cpu_us_per_record": sample.cpu_s / sample.records * 1e6,
        "cpu_share": sample.cpu_s / sample.wall_s,
        "records_per_s": sample.records / sample.wall_s,
        "sleeps_per_1000_records": None if sample.sleeps is None else sample.sleeps / sample.records * 1000,
        "p50_ms": quantile(sample.latencies_ms, 0.5),
        "p99_ms": quantile(sample.latencies_ms, 0.99),
        "peak_rss_mb": sample.peak_rss_mb or peak_rss_mb(),
        "start_cpu_s": sample.start_cpu_s,
        "start_s": sample.start_s,
        "sent": sample.sent or None,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
