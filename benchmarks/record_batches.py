"""Measure the CPU time per record of encoding and decoding batches, without a network, as JSON lines.

    python benchmarks/record_batches.py

Prints a row for pure Python and one for the compiled code, or with PYKCLIENT_IMPL for that one only.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable

from pykclient import implementation
from pykclient.record import Compression, CursorOwner, DefaultRecordBatch, MemoryRecords, MemoryRecordsBuilder
from pykclient.record.default_record import summarize_records
from pykclient.types import Headers

RECORDS = 2000
ROUNDS = 30


def microseconds_per_record(work: Callable[[], object]) -> float:
    """Return the best of all rounds, as interference only adds time."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return round(best / RECORDS * 1e6, 3)


def measure(codec: str, value: bytes, headers: Headers = ()) -> dict[str, float]:
    compression = Compression.of(codec)
    key = b"key-0001"

    def append() -> MemoryRecordsBuilder:
        builder = MemoryRecordsBuilder(compression=compression)
        try_append = builder.try_append
        for number in range(RECORDS):
            try_append(1_700_000_000_000 + (number >> 3), key, value, headers)
        builder.close()
        return builder

    data = bytes(append().build())
    owner = CursorOwner("topic", 0)

    def records() -> None:
        for batch in MemoryRecords(data).batches():
            batch.ensure_valid()
            batch.records()

    def consumer_records() -> None:
        for batch in MemoryRecords(data).batches():
            batch.ensure_valid()
            cursor = batch.cursor(owner)
            while not cursor.exhausted:
                cursor.next_records(500)

    def summary() -> None:
        for batch in MemoryRecords(data).batches():
            assert isinstance(batch, DefaultRecordBatch)
            batch.ensure_valid()
            summarize_records(batch.record_data(), batch.count, batch.base_timestamp)

    return {
        "append_us": microseconds_per_record(append),
        "records_us": microseconds_per_record(records),
        "consumer_records_us": microseconds_per_record(consumer_records),
        "summary_us": microseconds_per_record(summary),
    }


def main() -> None:
    if "PYKCLIENT_IMPL" not in os.environ and implementation.NAME == "c":
        for name in ("python", "c"):
            subprocess.run([sys.executable, __file__], env={**os.environ, "PYKCLIENT_IMPL": name}, check=True)
        return
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for size in (100, 1000):
            value = bytes(number * 7 % 251 for number in range(size))
            for headers in ((), (("trace", b"0123456789abcdef"), ("source", b"web"))):
                if headers and (codec, size) != ("none", 100):
                    continue
                row = {
                    "implementation": implementation.NAME,
                    "codec": codec,
                    "value_bytes": size,
                    "headers": len(headers),
                    "python": platform.python_version(),
                    **measure(codec, value, headers),
                }
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
