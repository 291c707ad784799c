"""Frames of requests and responses, without I/O: those being sent, and a stream that is split into them.

Java: NetworkSend, ByteBufferSend, NetworkReceive.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

from pykclient.errors import IllegalArgumentError, RemoteProtocolError
from pykclient.implementation import use_compiled
from pykclient.protocol.wire import BytesLike
from pykclient.spare_buffers import SpareBuffers


class MemoryPool:
    """Buffer memory without a bound (Java: MemoryPool.NONE). Subclasses bound it. Thread: any.

    A channel that gets no buffer is muted meanwhile.
    """

    #: The total memory in bytes, used or not; None without a bound.
    size: int | None = None

    def try_allocate(self, size_bytes: int) -> bytearray | None:
        """Return a buffer of ``size_bytes``, or None if there is no memory now."""
        return bytearray(size_bytes)

    def release(self, size_bytes: int) -> None:
        """Return the memory of a buffer of this size to the pool."""

    @property
    def available_memory(self) -> int:
        """Return the free bytes. They can be negative in a pool that is not strict."""
        return (1 << 63) - 1

    @property
    def is_out_of_memory(self) -> bool:
        return self.available_memory <= 0


UNLIMITED = MemoryPool()


class SimpleMemoryPool(MemoryPool):
    """A pool that counts its memory.

    A strict pool refuses allocations that would exceed its size. Another one allocates as long as any memory is left,
    and so exceeds its size by at most one buffer.

    Thread: any.
    """

    def __init__(self, size_bytes: int, max_single_allocation_bytes: int, strict: bool) -> None:
        if not 0 < max_single_allocation_bytes <= size_bytes:
            raise IllegalArgumentError(
                f"a pool of {size_bytes} bytes cannot give out buffers of up to {max_single_allocation_bytes} bytes"
            )
        self._lock = threading.Lock()  # guards: _available
        self._available = size_bytes
        self.size = size_bytes
        self._max_single_bytes = max_single_allocation_bytes
        self._strict = strict

    def try_allocate(self, size_bytes: int) -> bytearray | None:
        if not 0 < size_bytes <= self._max_single_bytes:
            raise IllegalArgumentError(
                f"a buffer of {size_bytes} bytes is not between 1 and {self._max_single_bytes} bytes"
            )
        with self._lock:
            if self._available < (size_bytes if self._strict else 1):
                return None
            self._available -= size_bytes
        return bytearray(size_bytes)

    def release(self, size_bytes: int) -> None:
        with self._lock:
            self._available += size_bytes

    @property
    def available_memory(self) -> int:
        return self._available


#: A ``max_size`` that allows any size the size field can hold.
UNLIMITED_SIZE = -1
#: The largest first response. It is the one to ApiVersions and has a few hundred bytes, so a peer that announces more
#: than this does not speak Kafka.
FIRST_RESPONSE_LIMIT = 16 * 1024 * 1024
#: The most bytes that one read receives, unless it continues a larger frame.
BUFFER_SIZE = 64 * 1024
_SIZE = struct.Struct(">i")
#: The initial size of a large frame's buffer. The buffer grows as data arrives, so a peer cannot make the client
#: allocate by announcing a large size. If a peer has already sent a larger frame, the buffer starts at that size,
#: because growing costs more than receiving.
FIRST_BYTES = 1024 * 1024
#: The number of buffers for large frames that a connection keeps: one may still be read when the next frame arrives.
_SPARE_BUFFERS = 2
_SPARE_BYTES = 64 * 1024 * 1024
#: The maximum number of buffers per sendmsg. POSIX guarantees 16, Linux and macOS accept 1024; a produce request has a
#: few hundred at most.
IOV_MAX = 1024

#: A frame without its size prefix. A frame, or a view of it, keeps its memory alive.
Frame = BytesLike


class InvalidReceiveError(RemoteProtocolError):
    """The size of a frame is not valid."""


class TlsResponseError(InvalidReceiveError):
    """The peer responds with TLS to a client that does not use it."""


class NetworkReceive(NamedTuple):
    """A whole frame, without its size prefix, and the connection it came from."""

    source: str
    payload: Frame

    @property
    def size(self) -> int:
        """The size on the wire in bytes, including the size prefix."""
        return len(self.payload) + 4


def check_frame_size(start: bytes, size: int, max_size: int, first_limit: int | None) -> None:
    """Check the announced ``size`` of a frame in bytes; ``start`` is the first four bytes of the stream.

    ``first_limit`` is the limit in bytes for the first frame on a client's connection, and None for later frames.

    Raises:
        TlsResponseError: the peer speaks TLS.
        InvalidReceiveError: the size is negative or exceeds a limit, or the peer does not speak Kafka.
    """
    problem = None
    if first_limit is not None:
        if start == b"HTTP" or start[:1] == b"<":  # some web servers send a page without headers
            problem = "the response looks like HTTP: the address is that of a web server, not of Kafka"
        elif start[0] in (0x15, 0x16) and start[1] == 3:
            raise TlsResponseError("the response looks like TLS")
        elif size > first_limit:
            problem = (
                f"the first response claims to have {size} bytes: the address is probably not that of a Kafka broker"
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
    """Splits a stream into frames.

    Fill ``writable()``, pass the number of bytes to ``advance``, and call ``next_frame`` until it returns None.

    Frames that fit into the buffer are copied out of it as bytes, many per read. A larger frame gets its own buffer,
    and the rest of the frame is received directly into it. So its bytes are copied at most once, and most of them
    never.

    With a bounded ``memory_pool`` the reader does not read ahead: it reads a size, and then that many bytes into a
    buffer of the pool. While the pool is out of memory, ``waits_for_memory`` is true and ``writable`` returns an empty
    view.

    ``first_limit`` limits the very first frame, for a client that may have connected to something other than Kafka.

    Thread: owner.
    """

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
        self._start = 0  # index of the first byte that is not taken yet
        self._end = 0  # index of the first byte that is not filled yet
        self._large: bytearray | None = None  # the buffer of a large frame, filled up to _large_end
        self._large_end = 0
        self._large_size = 0  # the final size of that frame
        self._largest = FIRST_BYTES  # the final size of the largest frame so far
        self._spares = SpareBuffers(_SPARE_BUFFERS, _SPARE_BYTES)
        self._given = memoryview(b"")  # the view of it that writable() returned last
        self._wanted = 0  # the size of a frame for which the pool has no memory
        self.waits_for_memory = False

    @property
    def buffered(self) -> int:
        """The number of bytes that were received and not taken yet, including those of incomplete frames."""
        return self._end - self._start

    @property
    def mid_large_frame(self) -> bool:
        """True while a frame is being received into its own buffer."""
        return self._large is not None

    @property
    def mid_frame(self) -> bool:
        """True if the stream is inside a frame."""
        return self._large is not None or self._end > self._start or self.waits_for_memory

    @property
    def missing_bytes(self) -> int:
        """The number of bytes that the frame being received into its own buffer still lacks; 0 without one."""
        return 0 if self._large is None else self._large_size - self._large_end

    @property
    def has_frame(self) -> bool:
        """True if ``next_frame`` can return a frame without more bytes."""
        if self._large is not None:
            return self._large_end == self._large_size
        available = self._end - self._start - 4
        return available >= 0 and not self._pool and available >= _SIZE.unpack_from(self._buffer, self._start)[0] >= 0

    def writable(self) -> memoryview:
        """Return the memory for the next bytes. The view that was returned before is no longer valid.

        Raises:
            InvalidReceiveError: there is no memory for the rest of a large frame.
        """
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
        """Record that ``count`` bytes of ``writable()`` were filled."""
        if self._large is not None:
            self._large_end += count
        else:
            self._end += count

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None if more bytes are needed.

        Raises:
            InvalidReceiveError: the size of the frame is not valid.
        """
        large = self._large
        if large is not None:
            if self._large_end < self._large_size:
                return None
            self._given.release()
            self._large = None
            self._largest = max(self._largest, self._large_size)
            if self._pool is not None:
                return large  # the memory belongs to the pool
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
        """Ask the pool again for the frame that waits for memory. Return whether it had enough."""
        assert self._pool is not None
        self._large = self._pool.try_allocate(self._wanted)
        self._large_end = 0
        self._large_size = self._wanted
        self.waits_for_memory = self._large is None
        return not self.waits_for_memory

    def close(self) -> None:
        """Return the memory of an unfinished frame to the pool."""
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
        """Give the frame at ``_start`` its own buffer, and copy the bytes received so far into it."""
        have = self._end - self._start - 4
        large = self._spares.take(size, 4 * size) or bytearray(min(size, self._largest))
        large[:have] = self._view[self._start + 4 : self._end]
        self._large, self._large_end, self._large_size = large, have, size
        self._start = self._end = 0

    def _compact(self) -> None:
        """Move the remaining bytes to the front of the buffer."""
        count = self._end - self._start
        self._view[:count] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, count

    def _check_size(self, size: int) -> None:
        start = bytes(self._buffer[self._start : self._start + 4])
        first_limit, self._first = self._first, None
        try:
            check_frame_size(start, size, self._max_size, first_limit)
        except InvalidReceiveError:
            self._start = self._end = 0  # the rest of the stream cannot be decoded
            raise


class NetworkSend:
    """A frame with its size prefix, as a list of buffers for one ``sendmsg``. Nothing is copied.

    If ``expect_response`` is False, the selector's poll returns as soon as the frame is sent, because no response would
    end the wait. The buffers must not change until ``completed``. Thread: owner.
    """

    __slots__ = ("_buffers", "_next", "completed", "destination_id", "expect_response", "remaining", "size")

    def __init__(self, destination_id: str, buffers: Sequence[BytesLike], expect_response: bool = True) -> None:
        self.destination_id = destination_id
        self.expect_response = expect_response
        self._buffers: list[BytesLike] = list(buffers)
        self._next = 0  # index of the first unsent buffer
        self.size = self.remaining = sum(map(len, buffers))
        self.completed = not self.size

    def pending(self) -> list[BytesLike]:
        """Return the unsent buffers, at most as many as one ``sendmsg`` takes."""
        if self._next or len(self._buffers) > IOV_MAX:
            return self._buffers[self._next : self._next + IOV_MAX]
        return self._buffers

    def unsent(self) -> list[BytesLike]:
        """Return all unsent buffers."""
        return self._buffers[self._next :]

    def complete(self) -> None:
        """Record that everything was sent."""
        self.remaining = 0
        self.completed = True
        self._buffers = []

    def advance(self, sent_bytes: int) -> None:
        """Record that the first ``sent_bytes`` of the pending bytes were sent."""
        self.remaining -= sent_bytes
        if not self.remaining:
            self.completed = True
            self._buffers = []
            return
        index = self._next
        buffers = self._buffers
        while sent_bytes >= len(buffers[index]):
            sent_bytes -= len(buffers[index])
            index += 1
        if sent_bytes:
            buffers[index] = memoryview(buffers[index])[sent_bytes:]
        self._next = index

    def __repr__(self) -> str:
        return f"NetworkSend(to={self.destination_id}, {self.remaining} of {self.size} bytes left)"


use_compiled(__name__)
