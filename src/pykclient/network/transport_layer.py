"""Bytes through a socket, plain or encrypted (Java: TransportLayer, PlaintextTransportLayer)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Protocol

from pykclient.network.network_send import BytesLike


class TransportLayer(Protocol):
    """A non-blocking connection. ``read_into`` and ``write`` return None where they would block. Thread: io."""

    @property
    def sock(self) -> socket.socket: ...

    @property
    def ready(self) -> bool:
        """Connected, and the handshake done if there is one."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether bytes can be read although the socket has none, as in an opened TLS record."""

    @property
    def wants_write(self) -> bool:
        """Whether the layer itself has something to write, such as a part of its handshake."""

    def finish_connect(self) -> bool:
        """Whether the connection now stands; raises OSError where it failed."""

    def handshake(self) -> None:
        """Go on with the handshake as far as the socket allows; raises AuthenticationError or OSError."""

    def read_into(self, target: memoryview) -> int | None:
        """Read up to ``len(target)`` bytes; 0 at the end of the stream."""

    def write(self, buffers: Sequence[BytesLike]) -> int | None:
        """Write what the socket takes of ``buffers``, in one gathered call; the number of bytes that it took."""

    def close(self) -> None: ...


class PlaintextTransportLayer:
    """The socket as it is. Thread: io."""

    __slots__ = ("is_connected", "sock")

    def __init__(self, sock: socket.socket, is_connected: bool = False) -> None:
        self.sock = sock
        self.is_connected = is_connected

    @property
    def ready(self) -> bool:
        return self.is_connected

    @property
    def has_bytes_buffered(self) -> bool:
        return False

    @property
    def wants_write(self) -> bool:
        return False

    def finish_connect(self) -> bool:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            self.sock.getpeername()
        except OSError:
            return False  # woken before the connection stood
        self.is_connected = True
        return True

    def handshake(self) -> None:
        """Nothing to agree on."""

    def read_into(self, target: memoryview) -> int | None:
        try:
            return self.sock.recv_into(target)
        except (BlockingIOError, InterruptedError):
            return None

    def write(self, buffers: Sequence[BytesLike]) -> int | None:
        try:
            if len(buffers) == 1:
                return self.sock.send(buffers[0])
            return self.sock.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return None

    def close(self) -> None:
        self.is_connected = False
        self.sock.close()
