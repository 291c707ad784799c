"""Parquet and Arrow files of ``pykclient consume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient.cli.output import Filters, Output, opening
from pykclient.record import arrow
from pykclient.record.columns import COLUMN_NAMES

if TYPE_CHECKING:
    from pykclient.record.columns import Columns

#: The rows of a group of rows, which Parquet compresses together.
_ROWS_PER_GROUP = 1 << 17
_GROUP_BYTES = 64 << 20


class ArrowOutput(Output):
    """All columns of the records, in groups of rows. Thread: owner.

    Raises:
        ImportError: pyarrow is not installed; the text says how to install it.
        OSError: the file cannot be written.
    """

    is_columnar = True
    columns = COLUMN_NAMES
    max_bytes = 8 << 20

    def __init__(self, path: str, is_parquet: bool, filters: Filters) -> None:
        self._pa = arrow.pyarrow()
        self._filters = filters
        self._batches: list[Any] = []
        self._rows = self._size_bytes = 0
        schema = arrow.schema()
        if is_parquet:
            import pyarrow.parquet

            with opening(path):
                self._writer: Any = pyarrow.parquet.ParquetWriter(path, schema, compression="zstd")
        else:
            import pyarrow.ipc

            # One dictionary of topics for the whole file is what the format of files asks for.
            options = pyarrow.ipc.IpcWriteOptions(unify_dictionaries=True)
            with opening(path):
                self._writer = pyarrow.ipc.new_file(path, schema, options=options)

    def write_columns(self, columns: Columns) -> int:
        batch: Any = arrow.record_batch(columns)
        if not self._filters.is_empty:
            batch = batch.filter(self._pa.array(self._matches(batch), self._pa.bool_()))
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._size_bytes += batch.nbytes
        if self._rows >= _ROWS_PER_GROUP or self._size_bytes >= _GROUP_BYTES:
            self._write_group()
        return int(batch.num_rows)

    def _matches(self, batch: Any) -> list[bool]:
        keys, values, headers = (batch.column(name).to_pylist() for name in ("key", "value", "headers"))
        times = batch.column("timestamp").cast(self._pa.int64()).to_pylist()
        return [
            self._filters.match(key, value, [(header["key"], header["value"]) for header in given], time)
            for key, value, given, time in zip(keys, values, headers, times, strict=True)
        ]

    def _write_group(self) -> None:
        batches, self._batches = self._batches, []
        self._rows = self._size_bytes = 0
        if batches:
            self._writer.write_table(self._pa.Table.from_batches(batches).unify_dictionaries())

    def close(self) -> None:
        try:
            self._write_group()
        finally:
            self._writer.close()
