"""Text with one record per line, converted to columns and back without an object per record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.implementation import use_compiled
from pykclient.record.row_columns import Gathered, gather

if TYPE_CHECKING:
    from pykclient.record.columns import BinaryBuffers


def split_lines(
    data: bytes | memoryview, delimiter: bytes, key_delimiter: bytes | None, empty_is_null: bool
) -> tuple[Gathered | None, Gathered]:
    """Return the columns of keys and values in ``data``, whose records end with ``delimiter``.

    The last record may lack it. With a ``key_delimiter``, the key of a record is what is before the first one; a record
    without one has no key. Otherwise there is no column of keys. With ``empty_is_null``, empty keys and values are
    null.

    Raises:
        ValueError: a delimiter is empty.
    """
    values: list[bytes | None] = [*bytes(data).split(delimiter)]
    if not values[-1]:
        values.pop()
    keys: list[bytes | None] | None = None
    if key_delimiter is not None:
        if not key_delimiter:
            raise ValueError("empty separator")
        parts = [line.partition(key_delimiter) for line in values if line is not None]
        keys = [key if found else None for key, found, _ in parts]
        values = [value if found else key for key, found, value in parts]
    if empty_is_null:
        values = [value or None for value in values]
        keys = None if keys is None else [key or None for key in keys]
    return None if keys is None else gather(keys), gather(values)


def join_lines(
    keys: BinaryBuffers | None, values: BinaryBuffers, delimiter: bytes, key_delimiter: bytes, null: bytes
) -> bytes | bytearray:
    """Return the rows of ``values`` as text, each followed by ``delimiter``.

    With ``keys``, the row's key and ``key_delimiter`` are before each value. ``null`` stands for missing ones.
    """
    columns = [_rows(values, null)]
    if keys is not None:
        columns.insert(0, _rows(keys, null))
    return b"".join([key_delimiter.join(row) + delimiter for row in zip(*columns, strict=True)])


def _rows(column: BinaryBuffers, null: bytes) -> list[bytes]:
    ends = memoryview(column.offsets).cast("B")[: 4 * (column.rows + 1)].cast("i")
    data = bytes(memoryview(column.data)[: column.data_size])
    rows = [data[ends[row] : ends[row + 1]] for row in range(column.rows)]
    if column.null_count:
        rows = [text if column.validity[row >> 3] >> (row & 7) & 1 else null for row, text in enumerate(rows)]
    return rows


use_compiled(__name__)
