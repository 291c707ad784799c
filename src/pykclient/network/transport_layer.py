"""Byte transport over a socket, plain or encrypted (Java: TransportLayer, PlaintextTransportLayer)."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Sequence
from typing import Protocol

from pykclient.network.network_send import BytesLike


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

    __slots__ = ("is_connected", "sock")

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
