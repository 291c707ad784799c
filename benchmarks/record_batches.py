"""CPU time a record takes to be put into a batch and to come out of one, without network; JSON lines.

python benchmarks/record_batches.py
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable

from pykclient.record import Compression, CursorOwner, MemoryRecords, MemoryRecordsBuilder

RECORDS = 2000
ROUNDS = 30


def microseconds_per_record(work: Callable[[], object]) -> float:
    """The best of all rounds: what disturbs only ever adds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return round(best / RECORDS * 1e6, 3)


def measure(codec: str, value: bytes) -> dict[str, float]:
    compression = Compression.of(codec)
    key = b"key-0001"

    def append() -> MemoryRecordsBuilder:
        builder = MemoryRecordsBuilder(compression=compression)
        try_append = builder.try_append
        for number in range(RECORDS):
            try_append(1_700_000_000_000 + (number >> 3), key, value, ())
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

    return {
        "append_us": microseconds_per_record(append),
        "records_us": microseconds_per_record(records),
        "consumer_records_us": microseconds_per_record(consumer_records),
    }


def main() -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for size in (100, 1000):
            value = bytes(number * 7 % 251 for number in range(size))
            row = {"codec": codec, "value_bytes": size, "python": platform.python_version(), **measure(codec, value)}
            print(json.dumps(row))


if __name__ == "__main__":
    main()
