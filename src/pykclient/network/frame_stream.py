"""Non-blocking reading and writing of frames over a transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pykclient.implementation import use_compiled
from pykclient.network.client_request import RepeatableRequest
from pykclient.network.frames import (
    UNLIMITED,
    UNLIMITED_SIZE,
    BytesLike,
    Frame,
    FrameReader,
    MemoryPool,
    NetworkSend,
)
from pykclient.network.transport_layer import PlaintextTransportLayer

#: Bytes that one channel may read per poll before the others get their turn.
READ_LIMIT: Final = 8 * 1024 * 1024

CLOSED_BY_PEER: Final = "the connection was closed by the other side"
MID_FRAME: Final = " in the middle of a frame"


class FrameStream(Protocol):
    """The interface between a channel and the bytes of its connection. Thread: io."""

    ready: bool
    """True if all frames are for the application, so that a ``Poller`` may read and write ahead."""

    @property
    def has_frame(self) -> bool:
        """True if a read returns a frame without new data."""

    @property
    def waits_for_memory(self) -> bool:
        """True if a frame waits for memory of a pool."""

    def read(self, frames: list[Frame], one: bool) -> int:
        """Append the received frames, or only the next if ``one``; return the number of bytes read.

        Frames received before an error are in ``frames`` when it is raised.

        Raises:
            ConnectionResetError: the end of the stream.
            InvalidReceiveError: an invalid size.
            OSError: another error of the socket.
        """

    def write(self, send: NetworkSend) -> int:
        """Write as much of the frame as the socket accepts; return the number of bytes."""

    def begin_repeating(self, request: RepeatableRequest) -> bool:
        """Let a ``Poller`` send a request again each time its response comes; return False if it cannot.

        Such a response does not end ``select``, and ``read`` does not return it, but counts its bytes.
        """

    def end_repeating(self) -> tuple[int, int, int, int, int, int, int]:
        """Send it no more; return ``Repetitions``."""

    @property
    def pump(self) -> object:
        """The object that a ``Poller`` reads and writes ahead: the stream itself, or what is below its encryption."""

    def close(self) -> None:
        """Discard unfinished frames, before the transport is closed."""


class ByteTransport(Protocol):
    """Reads and writes the bytes of a stream. Thread: io."""

    def read_into(self, target: memoryview) -> int | None:
        """Read up to ``len(target)`` bytes; return 0 at the end of the stream, and None if it would block."""


class WritableTransport(ByteTransport, Protocol):
    """Also writes them. Thread: io."""

    def write(self, buffers: Sequence[BytesLike]) -> int | None:
        """Write as much of ``buffers`` as the socket accepts, in one gathered call.

        Return the number of bytes, and None if it would block.
        """


class ReadingFrameStream:
    """The part of a ``FrameStream`` over any transport that reads. Thread: io."""

    __slots__ = ("_reader", "_transport")

    def __init__(self, transport: ByteTransport, reader: FrameReader) -> None:
        self._transport = transport
        self._reader = reader

    @property
    def has_frame(self) -> bool:
        return self._reader.has_frame

    @property
    def waits_for_memory(self) -> bool:
        return self._reader.waits_for_memory

    def read(self, frames: list[Frame], one: bool) -> int:
        reader = self._reader
        if reader.waits_for_memory and not reader.retry_allocation():
            return 0
        if reader.buffered:
            # Left over from a read of one frame only.
            while (frame := reader.next_frame()) is not None:
                frames.append(frame)
                if one:
                    return 0
        received = 0
        read_into = self._transport.read_into
        while received < READ_LIMIT:
            target = reader.writable()
            room = len(target)
            was_large = reader.mid_large_frame
            count = read_into(target)
            if count is None:
                break
            if not count:
                raise ConnectionResetError(CLOSED_BY_PEER + MID_FRAME * reader.mid_frame)
            received += count
            reader.advance(count)
            while (frame := reader.next_frame()) is not None:
                frames.append(frame)
                if one:
                    return received
            # The socket is probably empty now, so skip the call that would tell; except if the rest of a large frame is
            # in flight.
            if reader.waits_for_memory or (not reader.mid_large_frame and (was_large or count < room)):
                break
        return received

    def begin_repeating(self, request: RepeatableRequest) -> bool:  # noqa: ARG002 - the seam's signature
        return False

    def end_repeating(self) -> tuple[int, int, int, int, int, int, int]:
        return (0, 0, 0, 0, 0, 0, 0)

    def close(self) -> None:
        self._reader.close()


class TransportFrameStream(ReadingFrameStream):
    """A ``FrameStream`` over a transport without encryption. Thread: io."""

    __slots__ = ("_writer", "ready")

    def __init__(self, transport: WritableTransport, reader: FrameReader) -> None:
        super().__init__(transport, reader)
        self._writer = transport
        self.ready = False

    @property
    def pump(self) -> object:
        return self

    def write(self, send: NetworkSend) -> int:
        written = 0
        while not send.completed:
            buffers = send.pending()
            sent = self._writer.write(buffers)
            if sent is None:
                break
            written += sent
            wanted = send.remaining
            send.advance(sent)
            if sent < wanted and sent < sum(map(len, buffers)):
                break
        return written


def plaintext_frame_stream(
    transport: PlaintextTransportLayer,
    max_receive_size: int = UNLIMITED_SIZE,
    memory_pool: MemoryPool = UNLIMITED,
    first_limit: int | None = None,
) -> FrameStream:
    """Return the frames of an unencrypted connection; the other parameters are those of ``FrameReader``.

    The compiled form returns a stream that the compiled poller reads and writes ahead, unless the pool is bounded: a
    pool may be any Python object.
    """
    return TransportFrameStream(transport, FrameReader(max_receive_size, memory_pool, first_limit))


use_compiled(__name__)
