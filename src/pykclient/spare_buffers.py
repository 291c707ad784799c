"""Large buffers for reuse.

The kernel provides the memory of a large buffer page by page when it is first written, and takes it back when the
buffer is freed. That costs more than receiving a response into it, or decoding one.
"""

from __future__ import annotations


def take_free(buffers: list[bytearray], size: int = 1, most: int | None = None) -> bytearray | None:
    """Remove the first buffer without views from the list and return it, or None if there is none.

    It has at least ``size`` bytes, and at most ``most``.
    """
    for place, buffer in enumerate(buffers):
        if len(buffer) < size or (most is not None and len(buffer) > most):
            continue
        try:
            last = buffer.pop()
        except BufferError:  # it is still viewed
            continue
        buffer.append(last)  # the memory is still allocated, so nothing moves
        return buffers.pop(place)
    return None


class SpareBuffers:
    """Buffers that were handed out as views, and can be reused when no views are left.

    A bytearray cannot change its size while there are views of it, which shows whether it is free. So only views of a
    buffer may be handed out, never the buffer itself.

    Thread: owner. Any thread may release views.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        """Keep at most ``max_count`` buffers, of at most ``max_bytes`` in total."""
        self._buffers: list[bytearray] = []
        self._max_count = max_count
        self._max_bytes = max_bytes

    def take(self, size: int = 1, most: int | None = None) -> bytearray | None:
        """Return a free buffer with arbitrary contents, or None.

        It has at least ``size`` bytes, and at most ``most``.
        """
        return take_free(self._buffers, size, most)

    def keep(self, buffer: bytearray) -> None:
        """Keep a buffer, which may still be viewed; evict the oldest when over the limit."""
        buffers = self._buffers
        buffers.append(buffer)
        total = sum(map(len, buffers))
        while len(buffers) > self._max_count or total > self._max_bytes:
            total -= len(buffers.pop(0))
