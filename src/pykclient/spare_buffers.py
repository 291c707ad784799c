"""Large buffers that are used again.

What is large comes from the kernel page by page when it is written to for the first time, and goes back there when it
is let go. That costs more than to receive a response into it, or to decode one.
"""

from __future__ import annotations


class SpareBuffers:
    """Buffers that were given out as views, for when nobody has such a view any more.

    A bytearray refuses to change its size as long as it is viewed, by whomever: that tells which ones are free. So
    only views of a buffer may be handed out, never the buffer itself.

    Thread: owner. Views may be let go by any.
    """

    __slots__ = ("_buffers", "_max_bytes", "_max_count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        """At most ``max_count`` are kept, of at most ``max_bytes`` together."""
        self._buffers: list[bytearray] = []
        self._max_count = max_count
        self._max_bytes = max_bytes

    def take(self, size: int = 1, most: int | None = None) -> bytearray | None:
        """One of ``size`` bytes or more, and at ``most`` so many, with whatever is in it; None when none is free."""
        for place, buffer in enumerate(self._buffers):
            if len(buffer) >= size and (most is None or len(buffer) <= most) and not _is_viewed(buffer):
                return self._buffers.pop(place)
        return None

    def keep(self, buffer: bytearray) -> None:
        """Take back what is viewed now; what was kept for longest is let go if it is too much."""
        buffers = self._buffers
        buffers.append(buffer)
        total = sum(map(len, buffers))
        while len(buffers) > self._max_count or total > self._max_bytes:
            total -= len(buffers.pop(0))


def _is_viewed(buffer: bytearray) -> bool:
    try:
        last = buffer.pop()
    except BufferError:
        return True
    buffer.append(last)  # the memory is still there, so that nothing moves
    return False
