"""The state of columns, for comparison."""

from __future__ import annotations

from functools import partial
from typing import Any

from pykclient.record.columns import BinaryBuffers, Columns, HeadersBuffers, ViewBuffers
from pykclient.record.record_batch import Buffer


def state(target: Columns) -> Any:
    """Return everything that a twin may have changed."""

    def of(column: Any) -> Any:
        if isinstance(column, HeadersBuffers):
            return start(column.offsets, 4 * (target.rows + 1)), of(column.names), of(column.values)
        if isinstance(column, BinaryBuffers | ViewBuffers):
            validity = start(column.validity, (column.rows + 7) // 8)
            about = column.rows, column.null_count, validity
            if isinstance(column, ViewBuffers):
                return *about, start(column.views, 16 * column.rows), [*map(partial(of_source, column), column.sources)]
            return *about, start(column.offsets, 4 * (column.rows + 1)), start(column.data, column.data_size)
        return None if column is None else start(column, 8 * target.rows)

    def of_source(column: ViewBuffers, source: Buffer) -> bytes:
        return start(column.data, column.data_size) if source is column.data else bytes(source)

    def start(buffer: bytearray, size: int) -> bytes:
        assert len(buffer) >= size
        return bytes(buffer[:size])

    return (
        target.rows,
        target.size_bytes,
        target.is_full,
        target.has_missing_timestamps,
        [(run.key, run.rows) for run in target.runs],
        None if target.lines is None else bytes(target.lines.text()),
        *map(of, (target.offsets, target.timestamps, target.keys, target.values, target.headers)),
    )
