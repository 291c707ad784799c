"""A loopback TCP proxy that injects faults.

    with TcpProxy(target=("127.0.0.1", 9092)) as proxy:
        proxy.cut_after(100)        # the connection ends after 100 more bytes to the client
        proxy.delay_ms = 50         # each chunk is late, in both directions
        proxy.blackhole()           # connections stay open and new ones are accepted, but no data passes
        proxy.refuse()              # the port does not listen; open connections continue
        proxy.drop_connections()    # every open connection is reset
        proxy.restore()             # all faults end

Faults take effect at once, for open and for new connections.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Self

_CHUNK = 64 << 10
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close sends a reset


class TcpProxy:
    """A port that forwards to one target, with two threads per connection. Thread: any."""

    host = "127.0.0.1"

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self.target = target
        self.port = port
        self.delay_ms = 0.0
        self.accepted = 0
        self.cuts = 0
        self.response_bytes = 0
        self._lock = threading.Condition()  # guards: all below, and the counters above
        self._connections: set[_Connection] = set()
        self._bytes_until_cut: int | None = None
        self._cut_resets = False
        self._passing = True
        self._closed = False
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._reserved: socket.socket | None = None
        self._reserve()
        self._listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def cut_after(self, response_bytes: int, *, reset: bool = False) -> None:
        """End one connection (in order, or by a reset) right after ``response_bytes`` more bytes to clients.

        The bytes of all connections count together. ``cuts`` counts the cuts; each call cuts once.
        """
        with self._lock:
            self._bytes_until_cut = response_bytes
            self._cut_resets = reset

    def blackhole(self) -> None:
        """Drop all data, like a network that lost its route."""
        with self._lock:
            self._passing = False

    def refuse(self) -> None:
        """Stop listening: new connections are refused. The port stays the proxy's."""
        listener, acceptor, self._listener = self._listener, self._acceptor, None
        if listener is not None and acceptor is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept() on Linux; elsewhere its timeout does
            acceptor.join()
            listener.close()
            self._reserve()

    def drop_connections(self) -> None:
        """Reset every open connection."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.end(reset=True)

    def restore(self) -> None:
        """Listen and forward everything without delay."""
        with self._lock:
            self._bytes_until_cut = None
            self._passing = True
            self.delay_ms = 0.0
            self._lock.notify_all()
        if self._listener is None:
            self._listen()

    def close(self) -> None:
        """Stop listening, reset open connections, and end the threads."""
        self.refuse()
        if self._reserved is not None:
            self._reserved.close()
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self.drop_connections()
        with self._lock:
            ended = self._lock.wait_for(lambda: not self._connections, 60.0)
        assert ended, "connections of the proxy did not end"

    def _reserve(self) -> None:
        """Bind a socket to the port, or to any for the first time, so that no other program gets it."""
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((self.host, self.port))
        self.port = self._reserved.getsockname()[1]

    def _listen(self) -> None:
        assert self._reserved is not None
        self._listener, self._reserved = self._reserved, None
        self._listener.listen(128)
        self._listener.settimeout(0.1)
        name = f"tcp-proxy-{self.port}"
        self._acceptor = threading.Thread(target=self._accept, args=(self._listener,), name=name, daemon=True)
        self._acceptor.start()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:  # shut down
                return
            try:
                server = socket.create_connection(self.target, 30.0)
            except OSError:
                client.close()
                continue
            connection = _Connection(client, server)
            with self._lock:
                self.accepted += 1
                self._connections.add(connection)
            for source in (client, server):
                threading.Thread(target=self._pump, args=(connection, source), daemon=True).start()

    def _pump(self, connection: _Connection, source: socket.socket) -> None:
        """Forward one direction until it ends."""
        to_client = source is connection.server
        while chunk := connection.receive(source):
            if self.delay_ms:
                time.sleep(self.delay_ms / 1000)
            allowed, cut = self._allowed(len(chunk), to_client)
            connection.send(source, memoryview(chunk)[:allowed])
            if cut:
                connection.end(reset=self._cut_resets)
        if connection.direction_ended(source):
            with self._lock:
                self._connections.discard(connection)
                self._lock.notify_all()

    def _allowed(self, size: int, to_client: bool) -> tuple[int, bool]:
        """Return how many of ``size`` bytes may pass, and whether the connection ends there; wait in a black hole."""
        with self._lock:
            self._lock.wait_for(lambda: self._passing or self._closed)
            cut = False
            if to_client:
                if self._bytes_until_cut is not None:
                    cut = size >= self._bytes_until_cut
                    size = min(size, self._bytes_until_cut)
                    self._bytes_until_cut = None if cut else self._bytes_until_cut - size
                    self.cuts += cut
                self.response_bytes += size
            return size, cut


class _Connection:
    """The client's socket and the socket to the target. Thread: any.

    The thread of the direction that ends last closes both sockets. If one were closed while another thread uses it, the
    system could give its descriptor to a new connection.
    """

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self._lock = threading.Lock()  # guards: _directions, _ended, _resets
        self._directions = 2
        self._ended = False
        self._resets = False
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            side.settimeout(0.1)  # limits how long a blocked send takes to see the end

    def receive(self, source: socket.socket) -> bytes:
        """Return the next bytes of one side, or none at the end of that side or of the connection."""
        while not self._ended:
            try:
                return source.recv(_CHUNK)
            except TimeoutError:
                continue
            except OSError:
                break
        return b""

    def send(self, source: socket.socket, data: memoryview) -> None:
        """Forward data that came from ``source``; end the connection if the other side is closed."""
        target = self._other(source)
        while data and not self._ended:
            try:
                data = data[target.send(data) :]
            except TimeoutError:
                continue
            except OSError:
                self.end()

    def end(self, *, reset: bool = False) -> None:
        """End both sides, by a reset or in order, and wake the threads that read from them."""
        with self._lock:
            if self._ended:
                return
            self._ended, self._resets = True, reset
            for side in (self.client, self.server):
                with contextlib.suppress(OSError):
                    if reset:
                        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    side.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)

    def direction_ended(self, source: socket.socket) -> bool:
        """Tell the other side that no more data comes. For the last direction, close both sockets and return True."""
        with self._lock:
            self._directions -= 1
            if self._directions:
                if not self._ended:
                    with contextlib.suppress(OSError):
                        self._other(source).shutdown(socket.SHUT_WR)
                return False
            self.client.close()
            self.server.close()
            return True

    def _other(self, side: socket.socket) -> socket.socket:
        return self.server if side is self.client else self.client
