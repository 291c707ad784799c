"""A whole run with few records on the embedded cluster. Results must exist; their values do not matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.results import Results


@pytest.mark.slow
def test_run_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            *("--kafka", "embedded", "--rounds", "1", "--scale", "0.002", "--output", str(tmp_path)),
            *("--sizes", "100", "--codecs", "lz4", "--partitions", "3"),
            *("--clients", "pykclient", "pykclient-columns", "confluent-kafka"),
            *("--kinds", "produce", "consume"),
        ]
    )
    results = Results.read(tmp_path / "benchmarks.jsonl")
    assert [str(bench) for bench in results.benches] == [
        *("produce, 100 B, none, defaults", "produce, 100 B, lz4", "produce, 100 B, none, keys"),
        *("consume, 100 B, none, defaults", "consume, 100 B, lz4", "consume, 100 B, none, keys"),
    ]
    for bench in results.benches:
        assert results.clients(bench) == ["pykclient", "pykclient-columns", "confluent-kafka"], bench
        for client in results.clients(bench):
            for figure in ("cpu_us_per_record", "records_per_s", "peak_rss_mb"):
                assert results.figure(client, bench, figure) is not None, (bench, client, figure)
    assert "produce, 100 B, lz4" in (tmp_path / "performance.md").read_text()
    printed = capsys.readouterr()
    assert "CPU of producing" in printed.out
    assert "failed" not in printed.err
    assert "the log has" not in printed.err
