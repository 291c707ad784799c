"""Brokers that consist only of their server side, on real sockets, and raw clients."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from pykclient.testing.config import ClusterConfig
from pykclient.testing.embedded_cluster import LoopThread
from pykclient.testing.server.socket_server import SocketServer
from tests.testing.server.support import ServerCluster

TIMEOUT_S = 30.0


class RunningServer:
    """A server that listens until the block ends, and then raises any failure of the cluster's thread."""

    def __init__(self, brokers: int = 1, **settings: Any) -> None:
        self.cluster = ServerCluster(**settings)
        config = ClusterConfig(brokers, config=settings)
        self.server = SocketServer(config, self.cluster.loop)
        self.ports = self.server.bind(config.broker_ids)
        self.brokers = {id: self.cluster.broker(id, port) for id, port in self.ports.items()}
        self.thread = LoopThread(self.cluster.loop, lambda: self.server, "test-server")

    def __enter__(self) -> RunningServer:
        self.thread.start()
        for broker in self.brokers.values():
            self.open(broker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.thread.stop(TIMEOUT_S)
        if self.cluster.loop.failure is not None and error is None:
            raise self.cluster.loop.failure

    def open(self, broker: Any) -> None:
        broker.alive = True
        self.thread.call(lambda: self.server.open(broker))

    def stop(self, broker: Any, *, reset: bool = False) -> None:
        broker.alive = False
        self.thread.call(lambda: self.server.close_broker(broker, reset=reset))

    def connect(self, broker: int = 1) -> Peer:
        return Peer(self.ports[broker])


class Peer:
    """A client that is just a blocking socket."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(TIMEOUT_S)
        try:
            self.sock.connect(("127.0.0.1", port))
        except OSError:
            self.sock.close()
            raise
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def answer(self) -> bytes:
        """Return the payload of the next response."""
        return self.read(struct.unpack(">i", self.read(4))[0])

    def correlation_id(self) -> int:
        id: int = struct.unpack_from(">i", self.answer())[0]
        return id

    @property
    def closed(self) -> bool:
        """Wait for the server; return whether it closes the connection without another response."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True
