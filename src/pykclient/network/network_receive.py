"""Frames out of a stream of bytes, without I/O (Java: NetworkReceive)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pykclient.errors import RemoteProtocolError
from pykclient.network.memory_pool import UNLIMITED, MemoryPool
from pykclient.spare_buffers import SpareBuffers

#: ``max_size`` for no limit but that of the size field itself.
UNLIMITED_SIZE = -1

#: A client's first response answers ApiVersions and is a few hundred bytes; anything like this is no Kafka.
FIRST_RESPONSE_LIMIT = 16 * 1024 * 1024

#: Bytes that one read takes at most, unless a larger frame is under way.
BUFFER_SIZE = 64 * 1024

_SIZE = struct.Struct(">i")

#: What a frame gets of its own buffer at first. More follows as it comes: who only claims to send much takes no memory.
#: Who has sent as much before is believed, as growing costs more than receiving.
_FIRST_BYTES = 1024 * 1024

#: What a connection keeps of buffers for large frames: one may still be read when the next frame comes.
_SPARE_BUFFERS = 2
_SPARE_BYTES = 64 * 1024 * 1024

#: A frame without its size prefix. Whoever has one, or a view of it, keeps its memory.
Frame = bytes | bytearray | memoryview


class InvalidReceiveError(RemoteProtocolError):
    """The size of a frame cannot be right."""


class NetworkReceive(NamedTuple):
    """A whole frame, without its size prefix, and the connection it came from."""

    source: str
    payload: Frame

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.payload) + 4


def check_frame_size(start: bytes, size: int, max_size: int, first_limit: int | None) -> None:
    """Raise InvalidReceiveError for a frame whose size cannot be, that begins with the four bytes ``start``.

    ``first_limit`` None: it is not the first frame of a client's connection.
    """
    problem = None
    if first_limit is not None:
        if start == b"HTTP" or start[:1] == b"<":  # a web page without headers answers what is no request
            problem = "the answer looks like HTTP: the address is that of a web server, not of Kafka"
        elif start[0] in (0x15, 0x16) and start[1] == 3:
            problem = "the answer looks like TLS: the listener expects an encrypted connection (security.protocol=SSL)"
        elif size > first_limit:
            problem = (
                f"the first answer claims to have {size} bytes: the address is probably not that of a Kafka broker"
            )
    if size < 0:
        problem = f"a frame has the size {size}"
    elif 0 <= max_size < size:
        problem = problem or f"a frame of {size} bytes exceeds the limit of {max_size} bytes"
    if problem is not None:
        raise InvalidReceiveError(problem)


def no_memory_for_frame(size: int) -> InvalidReceiveError:
    return InvalidReceiveError(f"there is no memory for a frame of {size} bytes")


class FrameReader:
    """Slices a stream into frames: fill ``writable()``, tell ``advance`` how much came, take frames until None.

    Frames that fit into the buffer are copied out of it as bytes, many per read. A larger frame gets a buffer of its
    own, into which the rest of it is then received directly, so its bytes are copied at most once, and mostly never.

    With a bounded ``memory_pool`` nothing is read ahead: first a size, then that many bytes into a buffer of the pool.
    While the pool is out of memory ``waits_for_memory`` is true, and ``writable`` empty.

    ``first_limit`` bounds the first frame of all, for a client that may have reached something that is no Kafka.
    Thread: owner.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_first",
        "_given",
        "_large",
        "_large_end",
        "_large_size",
        "_largest",
        "_max_size",
        "_pool",
        "_spares",
        "_start",
        "_view",
        "_wanted",
        "waits_for_memory",
    )

    def __init__(
        self,
        max_size: int = UNLIMITED_SIZE,
        memory_pool: MemoryPool = UNLIMITED,
        first_limit: int | None = None,
        buffer_size: int = BUFFER_SIZE,
    ) -> None:
        self._max_size = max_size
        self._first = first_limit
        self._pool = None if memory_pool.size is None else memory_pool
        self._buffer = bytearray(4 if self._pool else buffer_size)
        self._view = memoryview(self._buffer)
        self._start = 0  # first byte that is not taken
        self._end = 0  # first byte that is not filled
        self._large: bytearray | None = None  # a frame with a buffer of its own, filled up to _large_end
        self._large_end = 0
        self._large_size = 0  # what it will have in the end
        self._largest = _FIRST_BYTES  # what one has had in the end
        self._spares = SpareBuffers(_SPARE_BUFFERS, _SPARE_BYTES)
        self._given = memoryview(b"")  # what writable() gave last of it
        self._wanted = 0  # size of a frame that the pool has no memory for
        self.waits_for_memory = False

    @property
    def buffered(self) -> int:
        """Bytes that came and are not taken yet, of whole frames or not."""
        return self._end - self._start

    @property
    def mid_large_frame(self) -> bool:
        """Whether a frame with a buffer of its own is under way."""
        return self._large is not None

    @property
    def mid_frame(self) -> bool:
        """Whether the stream, if it ended now, would end inside a frame."""
        return self._large is not None or self._end > self._start or self.waits_for_memory

    @property
    def has_frame(self) -> bool:
        """Whether ``next_frame`` gives a frame without more bytes."""
        if self._large is not None:
            return self._large_end == self._large_size
        available = self._end - self._start - 4
        return available >= 0 and not self._pool and available >= _SIZE.unpack_from(self._buffer, self._start)[0] >= 0

    def writable(self) -> memoryview:
        """Where the next bytes go; the view given before is no longer valid."""
        large = self._large
        if large is not None:
            self._given.release()
            if self._large_end == len(large):
                try:
                    large += bytes(min(len(large), self._large_size - len(large)))
                except MemoryError:
                    raise no_memory_for_frame(self._large_size) from None
            self._given = memoryview(large)[self._large_end : self._large_size]
            return self._given
        if self.waits_for_memory:
            return self._view[:0]
        return self._view[self._end :] if self._end else self._view

    def advance(self, count: int) -> None:
        """Note that ``count`` bytes of ``writable()`` were filled."""
        if self._large is not None:
            self._large_end += count
        else:
            self._end += count

    def next_frame(self) -> Frame | None:
        """The next whole frame; InvalidReceiveError for a size that cannot be."""
        large = self._large
        if large is not None:
            if self._large_end < self._large_size:
                return None
            self._given.release()
            self._large = None
            self._largest = max(self._largest, self._large_size)
            if self._pool is not None:
                return large  # its memory is the pool's
            self._spares.keep(large)
            return memoryview(large)[: self._large_size]
        start, end = self._start, self._end
        available = end - start
        if available < 4:
            if not available:
                self._start = self._end = 0
            elif len(self._buffer) - end < 4:
                self._compact()
            return None
        size: int = _SIZE.unpack_from(self._buffer, start)[0]
        if self._first is not None or size <= 0 or size > self._max_size >= 0:
            self._check_size(size)
        if self._pool is not None:
            return self._allocate_from_pool(size)
        stop = start + 4 + size
        if stop <= end:
            frame = bytes(self._view[start + 4 : stop])
            if stop == end:
                self._start = self._end = 0
            else:
                self._start = stop
            return frame
        if size + 4 > len(self._buffer):
            self._start_large(size)
        elif stop > len(self._buffer):
            self._compact()
        return None

    def retry_allocation(self) -> bool:
        """Try again to get memory for the frame that waits for it; whether that worked."""
        assert self._pool is not None
        self._large = self._pool.try_allocate(self._wanted)
        self._large_end = 0
        self._large_size = self._wanted
        self.waits_for_memory = self._large is None
        return not self.waits_for_memory

    def close(self) -> None:
        """Give memory of an unfinished frame back to the pool."""
        if self._pool is not None and self._large is not None:
            self._pool.release(len(self._large))
        self._large = None

    def _allocate_from_pool(self, size: int) -> Frame | None:
        self._start = self._end = 0
        if size == 0:
            return b""
        self._wanted = size
        self.retry_allocation()
        return None

    def _start_large(self, size: int) -> None:
        """Give the frame at ``_start`` its own buffer, with what came of it already."""
        have = self._end - self._start - 4
        large = self._spares.take(size, 4 * size) or bytearray(min(size, self._largest))
        large[:have] = self._view[self._start + 4 : self._end]
        self._large, self._large_end, self._large_size = large, have, size
        self._start = self._end = 0

    def _compact(self) -> None:
        """Move what is left to the front."""
        count = self._end - self._start
        self._view[:count] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, count

    def _check_size(self, size: int) -> None:
        start = bytes(self._buffer[self._start : self._start + 4])
        first_limit, self._first = self._first, None
        try:
            check_frame_size(start, size, self._max_size, first_limit)
        except InvalidReceiveError:
            self._start = self._end = 0  # nothing that follows can be understood
            raise
