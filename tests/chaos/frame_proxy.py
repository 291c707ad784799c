"""A proxy that parses Kafka's frames and cuts the connection inside a chosen one.

    with FrameProxy(target=("127.0.0.1", 9092)) as proxy:
        cut = proxy.cut(ApiKeys.PRODUCE, after=10)                     # of the next Produce response
        cut = proxy.cut(ApiKeys.PRODUCE, after=10, of_request=True)    # of the next Produce request
        ...
        cut.size        # the size of the frame; None until it has passed
        cut.inside      # true if the connection was cut inside the frame

A frame of ``after`` bytes or fewer passes whole, and its connection stays open.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

_PREFIX = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # api key, version, correlation id
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close sends a reset


class Cut:
    """One requested cut. Thread: any."""

    def __init__(self, api_key: int, after: int, of_request: bool, reset: bool) -> None:
        self.api_key = api_key
        self.after = after
        self.of_request = of_request
        self.reset = reset
        self.size: int | None = None

    @property
    def done(self) -> bool:
        return self.size is not None

    @property
    def inside(self) -> bool:
        return self.size is not None and self.after < self.size


class FrameProxy:
    """A port in front of one broker, with two threads for each connection. Thread: any."""

    host = "127.0.0.1"

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self._target = target
        self._lock = threading.Lock()  # guards: _order, _links
        self._order: Cut | None = None
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.create_server((self.host, port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(30.0)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(30.0)
            assert not thread.is_alive(), "a thread of the proxy did not end"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def cut(self, api_key: int, after: int, *, of_request: bool = False, reset: bool = False) -> Cut:
        """Cut the next frame of an API after ``after`` bytes, including its size prefix. Replaces a pending cut."""
        order = Cut(api_key, after, of_request, reset)
        with self._lock:
            self._order = order
        return order

    def drop_connections(self) -> None:
        """End every open connection."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.end()

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name=f"frame-proxy-{self.port}")
        self._threads = self._threads[:1] + [other for other in self._threads[1:] if other.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._target, 30.0)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            link = _Link(client, broker)
            with self._lock:
                self._links.add(link)
            self._spawn(self._pump, link, True)
            self._spawn(self._pump, link, False)

    def _pump(self, link: _Link, is_request: bool) -> None:
        source, sink = (link.client, link.broker) if is_request else (link.broker, link.client)
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _read_frame(source)
                order = self._take(link.api_key(frame, is_request), is_request, len(frame))
                if order is None or not order.inside:
                    sink.sendall(frame)
                    continue
                sink.sendall(frame[: order.after])
                link.end(reset=order.reset)
                break  # else data that has arrived from the broker would follow half a frame
        link.end()
        if link.leave():
            with self._lock:
                self._links.discard(link)

    def _take(self, api_key: int, is_request: bool, size: int) -> Cut | None:
        """Return the pending cut if it is for this frame, and mark it done."""
        with self._lock:
            order = self._order
            if order is None or order.api_key != api_key or order.of_request != is_request:
                return None
            self._order = None
            order.size = size
            return order


class _Link:
    """A client's socket, the socket to the broker, and the requests sent over them."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self._asked: dict[int, int] = {}
        self._lock = threading.Lock()  # guards: _directions, _ended
        self._directions = 2
        self._ended = False
        for side in (client, broker):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def api_key(self, frame: bytes, is_request: bool) -> int:
        if is_request:
            api_key, _, correlation_id = _REQUEST.unpack_from(frame, 4)
            self._asked[correlation_id] = api_key
            return int(api_key)
        return self._asked.pop(_PREFIX.unpack_from(frame, 4)[0])

    def end(self, *, reset: bool = False) -> None:
        """End both sides and wake both threads."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if reset:
                self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            for side in (self.client, self.broker):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RD if reset and side is self.client else socket.SHUT_RDWR)

    def leave(self) -> bool:
        """End one direction. For the last one, close both sockets and return True."""
        with self._lock:
            self._directions -= 1
            if self._directions:
                return False
        self.client.close()
        self.broker.close()
        return True


def _read_frame(source: socket.socket) -> bytes:
    prefix = _read(source, 4)
    return prefix + _read(source, _PREFIX.unpack(prefix)[0])


def _read(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = source.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)
