"""One client, one case, one process: ``python -m benchmarks.worker CLIENT CASE-AS-JSON`` prints one JSON line."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.clients import CLIENTS, Case, NeverResting, Sample


def quantile(values: list[float], q: float) -> float | None:
    """The ``q`` quantile by nearest rank, or None of nothing."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else None


def peak_rss_mb() -> float:
    """Of this program alone: what getrusage tells includes the parent's, from before the exec."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def implementation_of(name: str) -> str | None:
    """Which of our implementations ran; None for others. A module that is not built would be measured unnoticed."""
    if not name.startswith("pykclient"):
        return None
    from pykclient import implementation

    return implementation.NAME


def main() -> None:
    client, case = CLIENTS[sys.argv[1]](), Case(**json.loads(sys.argv[2]))
    sample: Sample
    if case.kind == "busy":  # its CPU time says nothing, as it is that of the thread beside the client
        with NeverResting():
            sample = client.produce(case)
    else:
        sample = getattr(client, case.kind.replace("-", "_"))(case)
    print(
        json.dumps(
            {
                "client": client.name,
                "version": metadata.version(client.distribution),
                "implementation": implementation_of(client.name),
                "case": case.kind,
                "size_bytes": case.size_bytes,
                "codec": case.codec,
                "partitions": case.partitions,
                "records": sample.records,
                "cpu_us_per_record": sample.cpu_s / sample.records * 1e6,
                "cpu_share": sample.cpu_s / sample.wall_s,
                "records_per_s": sample.records / sample.wall_s,
                "p50_ms": quantile(sample.latencies_ms, 0.5),
                "p99_ms": quantile(sample.latencies_ms, 0.99),
                "peak_rss_mb": peak_rss_mb(),
            }
        )
    )


if __name__ == "__main__":
    main()
