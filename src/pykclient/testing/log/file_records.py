"""The bytes of a segment (Java: FileRecords)."""

from __future__ import annotations

from bisect import bisect_right

from pykclient.record.record_batch import Buffer

#: Pieces of memory start small, because most logs in tests are small, and double up to the largest size.
_FIRST_PIECE_BYTES = 4 * 1024
_LARGEST_PIECE_BYTES = 256 * 1024


class FileRecords:
    """Append-only bytes in pieces of memory, with views for readers.

    Bytes that were readable once are never overwritten: after a truncation the rest of the piece stays unused, because
    a response in flight may have a view of it. The data of one append is contiguous. Thread: loop.
    """

    __slots__ = ("_pieces", "_room", "_starts", "_used", "_views", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytearray] = []
        self._views: list[memoryview] = []
        # The position in the segment at which each piece begins.
        self._starts: list[int] = []
        self._used = 0
        self._room = 0

    def append(self, data: Buffer) -> None:
        """Append a copy of ``data``."""
        size = len(data)
        if size > self._room:
            self._add_piece(size)
        used = self._used
        self._pieces[-1][used : used + size] = data
        self._used = used + size
        self._room -= size
        self.size += size

    def _add_piece(self, size: int) -> None:
        doubled = 2 * len(self._pieces[-1]) if self._pieces else _FIRST_PIECE_BYTES
        piece = bytearray(max(size, min(doubled, _LARGEST_PIECE_BYTES)))
        self._pieces.append(piece)
        self._views.append(memoryview(piece).toreadonly())
        self._starts.append(self.size)
        self._used = 0
        self._room = len(piece)

    def read(self, position: int, size: int) -> list[memoryview]:
        """Return views of ``size`` bytes from ``position`` on. All of them must exist."""
        starts, views = self._starts, self._views
        found: list[memoryview] = []
        end = position + size
        index = bisect_right(starts, position) - 1
        while position < end:
            start = starts[index]
            stop = min(end, starts[index + 1]) if index + 1 < len(starts) else end
            found.append(views[index][position - start : stop - start])
            position = stop
            index += 1
        return found

    def truncate_to(self, size: int) -> None:
        """Truncate to ``size`` bytes."""
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._pieces.pop()
            self._views.pop()
        self.size = size
        self._room = 0
