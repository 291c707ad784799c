"""A frame being sent (Java: NetworkSend, ByteBufferSend)."""

from __future__ import annotations

from collections.abc import Sequence

from pykclient.implementation import use_compiled

BytesLike = bytes | bytearray | memoryview

#: The maximum number of buffers per sendmsg. POSIX guarantees 16, Linux and macOS accept 1024; a produce request has a
#: few hundred at most.
IOV_MAX = 1024


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
