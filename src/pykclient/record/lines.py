"""Text with one record per line, converted to columns, and made of fetched records, without an object per record.

The compiled form of the columns also fills a ``LineBuffer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.implementation import use_compiled
from pykclient.record.row_columns import Gathered, gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.record.record_batch import Span


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


class LineBuffer:
    """Records as text: each value is followed by ``delimiter``. Thread: owner.

    With a ``key_delimiter``, the key and ``key_delimiter`` are before each value. ``null`` stands for missing keys and
    values. ``Columns`` adds the records while it decodes them; so their bytes are copied once, out of the batch.
    """

    __slots__ = ("data", "delimiter", "key_delimiter", "null", "size_bytes")

    def __init__(self, delimiter: bytes, key_delimiter: bytes | None, null: bytes) -> None:
        self.delimiter = delimiter
        self.key_delimiter = key_delimiter
        self.null = null
        #: The text is in the first ``size_bytes`` bytes; the rest is spare room.
        self.data = bytearray()
        self.size_bytes = 0

    def clear(self) -> None:
        """Remove the text, and keep its memory for the next one."""
        self.size_bytes = 0

    def text(self) -> memoryview:
        """Return a view of the text. Release it before adding records."""
        return memoryview(self.data)[: self.size_bytes]

    def extend_spans(self, data: bytes, keys: Sequence[Span], values: Sequence[Span]) -> None:
        """Add records whose keys and values are these spans of ``data``."""
        parts: list[bytes] = []
        for key, value in zip(keys, values, strict=True):
            if self.key_delimiter is not None:
                parts += self.null if key is None else data[key[0] : key[1]], self.key_delimiter
            parts += self.null if value is None else data[value[0] : value[1]], self.delimiter
        text = b"".join(parts)
        self.data[self.size_bytes : self.size_bytes + len(text)] = text
        self.size_bytes += len(text)


use_compiled(__name__)
