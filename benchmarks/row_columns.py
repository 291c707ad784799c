"""Measure the CPU time per row of each step of ``send_batch``, without a network: ``python -m benchmarks.row_columns``.

Prints a JSON line for pure Python and one for the compiled code, or with PYKCLIENT_IMPL for that one only.
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
from pykclient.producer.partitioner.hashing import hash_partitions
from pykclient.record.row_columns import (
    BytesColumn,
    Rows,
    encode_rows,
    gather_headers,
    group_rows,
    upper_bound,
)

ROWS = 10_000
ROUNDS = 10
BATCH_SIZE = 131_072
PARTITIONS = 3
NOW_MS = 1_700_000_000_000


def microseconds_per_row(work: Callable[[], object]) -> float:
    """Return the best of all rounds, as interference only adds time."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return round(best / ROWS * 1e6, 4)


def measure() -> dict[str, float]:
    values = [bytes(number * 7 % 251 for number in range(100))] * ROWS
    value_column = BytesColumn.of(values)
    key_column = BytesColumn.of([b"key-%d" % (number * 7919 % 5000) for number in range(ROWS)])
    plain = Rows(ROWS, None, value_column, None, None, NOW_MS)
    keyed = Rows(ROWS, key_column, value_column, None, None, NOW_MS)
    places = memoryview(bytes(8) + b"".join(row.to_bytes(8, sys.byteorder) for row in range(1, ROWS + 1))).cast("q")
    unchosen = b"\xff" * (4 * ROWS)
    numbers = memoryview(bytearray(unchosen)).cast("i")
    buffers = [bytearray(BATCH_SIZE) for _ in range(8)]

    def hash_keys() -> None:
        numbers.cast("B")[:] = unchosen
        hash_partitions(key_column, 0, ROWS, PARTITIONS, numbers)

    def encode(rows: Rows, indices: memoryview | None, count: int) -> None:
        first = batch = 0
        while first < count:
            target = buffers[batch % len(buffers)]
            done = encode_rows(
                target, 61, rows, indices, first, count, NOW_MS, 0, 0, 1.0, BATCH_SIZE - 61, 1 << 31, 1 << 31
            )
            first += done[0]
            batch += 1

    def encode_keyed() -> None:
        for _, indices in groups:
            encode(keyed, indices, len(indices))

    hash_keys()
    groups = group_rows(numbers, 0, ROWS)
    return {
        "encode_us": microseconds_per_row(lambda: encode(plain, None, ROWS)),
        "encode_keyed_us": microseconds_per_row(encode_keyed),
        "hash_us": microseconds_per_row(hash_keys),
        "group_us": microseconds_per_row(lambda: group_rows(numbers, 0, ROWS)),
        "upper_bound_us": microseconds_per_row(lambda: upper_bound(keyed, 0, ROWS)),
        "gather_us": microseconds_per_row(lambda: BytesColumn.of(values)),
        "gather_headers_us": microseconds_per_row(lambda: gather_headers(places, key_column, value_column)),
    }


def main() -> None:
    if "PYKCLIENT_IMPL" not in os.environ and implementation.NAME == "c":
        for name in ("python", "c"):
            command = [sys.executable, "-m", "benchmarks.row_columns"]
            subprocess.run(command, env={**os.environ, "PYKCLIENT_IMPL": name}, check=True)
        return
    about = {"implementation": implementation.NAME, "python": platform.python_version()}
    print(json.dumps({**about, **measure()}), flush=True)


if __name__ == "__main__":
    main()
