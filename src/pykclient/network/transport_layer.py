"""A connection's bytes and frames, over a plain socket (Java: TransportLayer, PlaintextTransportLayer).

A transport connects and moves bytes. A stream reads frames from it and writes them. With TLS, a pump moves the
encrypted bytes instead, and ``tls.ssl_transport_layer`` finds the frames.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from pykclient.errors import ProxyAuthenticationError
from pykclient.implementation import use_compiled
from pykclient.network.client_request import RepeatableRequest
from pykclient.network.failures import reason_of
from pykclient.network.frames import (
    UNLIMITED,
    UNLIMITED_SIZE,
    Frame,
    FrameReader,
    MemoryPool,
    NetworkSend,
)
from pykclient.network.selectable import SocketAddress
from pykclient.protocol.wire import BytesLike

if TYPE_CHECKING:
    from pykclient.network.proxy import ProxyConfig


class TransportLayer(Protocol):
    """The state of a non-blocking connection, below its frames. Thread: io."""

    @property
    def sock(self) -> socket.socket: ...

    @property
    def ready(self) -> bool:
        """True if connected, and any handshake is complete."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def has_bytes_buffered(self) -> bool:
        """True if bytes can be read although the socket has none, for example from a decrypted TLS record.

        An incomplete record does not count: the selector does not wait while there are buffered bytes.
        """

    @property
    def wants_write(self) -> bool:
        """True if the layer itself has something to write, such as a part of its handshake."""

    @property
    def connect_events(self) -> int:
        """The events to wait for until the connection is established, as a mask of ``selectors``."""

    def finish_connect(self) -> bool:
        """Return whether the connection is established.

        Raises:
            OSError: the connection failed.
        """

    def handshake(self) -> None:
        """Continue the handshake as far as the socket allows.

        Raises:
            AuthenticationError, OSError: the handshake failed.
        """

    def close(self) -> None: ...


class PlaintextTransportLayer:
    """A plain socket. Thread: io."""

    has_bytes_buffered = False
    wants_write = False

    def __init__(self, sock: socket.socket, is_connected: bool = False) -> None:
        self.sock = sock
        self.is_connected = is_connected

    @property
    def ready(self) -> bool:
        return self.is_connected

    @property
    def connect_events(self) -> int:
        return selectors.EVENT_WRITE

    def finish_connect(self) -> bool:
        self.is_connected = self.is_established()
        return self.is_connected

    def is_established(self) -> bool:
        """Return whether the socket is connected.

        Raises:
            OSError: connecting failed.
        """
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            self.sock.getpeername()
        except OSError:
            return False  # woken before the connection was established
        return True

    def handshake(self) -> None:
        """Do nothing, as there is no handshake."""

    def read_into(self, target: memoryview) -> int | None:
        """Read up to ``len(target)`` bytes; return 0 at the end of the stream, and None if it would block."""
        try:
            return self.sock.recv_into(target)
        except (BlockingIOError, InterruptedError):
            return None

    def write(self, buffers: Sequence[BytesLike]) -> int | None:
        """Write as much of ``buffers`` as the socket accepts; return the number of bytes, None if it would block."""
        try:
            if len(buffers) == 1:
                return self.sock.send(buffers[0])
            return self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return None

    def close(self) -> None:
        self.is_connected = False
        self.sock.close()


def write_frame(transport: PlaintextTransportLayer, send: NetworkSend) -> int:
    """Write as much of a frame as the socket accepts; return the number of bytes."""
    written = 0
    while not send.completed:
        buffers = send.pending()
        sent = transport.write(buffers)
        if sent is None:
            break
        written += sent
        wanted = send.remaining
        send.advance(sent)
        if sent < wanted and sent < sum(map(len, buffers)):
            break
    return written


class TunnelTransportLayer(PlaintextTransportLayer):
    """A socket to a proxy, which is connected when the proxy has connected to the broker. Thread: io.

    The exchange with the proxy is a part of connecting, so ``socket.connection.setup.timeout.ms`` bounds it, and TLS
    and SASL begin after it.
    """

    def __init__(self, sock: socket.socket, proxy: ProxyConfig, address: SocketAddress) -> None:
        """Create the transport to ``address`` over a socket that connects to the proxy."""
        super().__init__(sock)
        self._tunnel = proxy.new_tunnel(address.host, address.port)
        self._name = proxy.name
        self._is_open = False  # True if the proxy has accepted the connection
        self._output = b""

    @property
    def connect_events(self) -> int:
        return selectors.EVENT_READ if self._is_open and not self._output else selectors.EVENT_WRITE

    def finish_connect(self) -> bool:
        try:
            if not self._is_open:
                if not self.is_established():
                    return False
                self._is_open = True
                self._output = self._tunnel.start()
            self._exchange()
        except (ProxyAuthenticationError, OSError) as error:
            self._fail(error)
        self.is_connected = self._tunnel.complete
        return self.is_connected

    def _exchange(self) -> None:
        """Continue the exchange as far as the socket allows."""
        tunnel = self._tunnel
        while not tunnel.complete:
            while self._output:
                sent = self.write((self._output,))
                if sent is None:
                    return
                self._output = self._output[sent:]
            try:
                received = self.sock.recv(tunnel.wanted_bytes)
            except (BlockingIOError, InterruptedError):
                return
            if not received:
                raise ConnectionResetError("it closed the connection before it had connected to the broker")
            self._output = tunnel.receive(received)

    def _fail(self, error: ProxyAuthenticationError | OSError) -> NoReturn:
        """Raise the error with the proxy's name."""
        kind = ProxyAuthenticationError if isinstance(error, ProxyAuthenticationError) else ConnectionError
        raise kind(f"{self._name}: {reason_of(error)}") from error


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

    def end_repeating(self) -> tuple[int, int, int, int, int, int]:
        """Send it no more; return ``Repetitions``."""

    @property
    def pump(self) -> object:
        """The object that a ``Poller`` reads and writes ahead: the stream itself, or what is below its encryption."""

    def close(self) -> None:
        """Discard unfinished frames, before the transport is closed."""


class ByteTransport(Protocol):
    """Reads the bytes of a stream. Thread: io."""

    def read_into(self, target: memoryview) -> int | None:
        """Read up to ``len(target)`` bytes; return 0 at the end of the stream, and None if it would block."""


class ReadingFrameStream:
    """The part of a ``FrameStream`` over any transport that reads. Thread: io."""

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

    def end_repeating(self) -> tuple[int, int, int, int, int, int]:
        return (0, 0, 0, 0, 0, 0)

    def close(self) -> None:
        self._reader.close()


class TransportFrameStream(ReadingFrameStream):
    """A ``FrameStream`` over a transport without encryption. Thread: io."""

    def __init__(self, transport: PlaintextTransportLayer, reader: FrameReader) -> None:
        super().__init__(transport, reader)
        self._writer = transport
        self.ready = False

    @property
    def pump(self) -> object:
        return self

    def write(self, send: NetworkSend) -> int:
        return write_frame(self._writer, send)


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


class Transports:
    """Creates the transports of one client or server; here, those without encryption. Thread: io."""

    def __init__(self, proxy: ProxyConfig | None = None) -> None:
        """Create transports that connect through ``proxy`` if there is one."""
        self._proxy = proxy

    def new_transport(self, sock: socket.socket, address: SocketAddress | None) -> TransportLayer:
        """Return a transport over ``sock``, as a client of ``address``; without an address, as a server."""
        return self._plain(sock, address)

    def _plain(self, sock: socket.socket, address: SocketAddress | None) -> PlaintextTransportLayer:
        if self._proxy is None or address is None:
            return PlaintextTransportLayer(sock, is_connected=address is None)
        return TunnelTransportLayer(sock, self._proxy, address)

    def new_stream(
        self, transport: Any, max_receive_size: int, memory_pool: MemoryPool, first_limit: int | None
    ) -> FrameStream:
        """Return the frames over one of these transports; the parameters are those of ``FrameReader``."""
        return plaintext_frame_stream(transport, max_receive_size, memory_pool, first_limit)


#: The most bytes that one call of a pump receives.
_PUMP_SIZE: Final = 256 * 1024


class BytePump(Protocol):
    """Moves the bytes of a connection. Thread: io."""

    ready: bool
    """True if a ``Poller`` may read and write ahead."""

    wanted_bytes: int
    """A poller need not report bytes that it has read ahead before there are this many."""

    def receive(self, feed: Callable[[memoryview], object]) -> int | None:
        """Pass received bytes to ``feed``, which must not keep them. Return their number.

        None: there are none; 0: the end of the stream.

        Raises:
            OSError: an error of the socket.
        """

    def write(self, send: NetworkSend) -> int:
        """Write as much as the socket accepts; return the number of bytes."""

    def close(self) -> None: ...


class SocketPump:
    """A ``BytePump`` that reads nothing ahead. Thread: io."""

    def __init__(self, transport: PlaintextTransportLayer, buffer_size: int = _PUMP_SIZE) -> None:
        self._transport = transport
        self._view = memoryview(bytearray(buffer_size))
        self.ready = False
        self.wanted_bytes = 1

    def receive(self, feed: Callable[[memoryview], object]) -> int | None:
        count = self._transport.read_into(self._view)
        if count:
            feed(self._view[:count])
        return count

    def write(self, send: NetworkSend) -> int:
        return write_frame(self._transport, send)

    def close(self) -> None:
        """Do nothing, as the socket is the transport's."""


def byte_pump(transport: PlaintextTransportLayer) -> BytePump:
    """Return a pump for the socket of ``transport``. The compiled form returns one that reads and writes ahead."""
    return SocketPump(transport)


use_compiled(__name__)
