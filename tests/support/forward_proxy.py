"""A SOCKS5 and HTTP proxy for tests, and hostile ones."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

#: A hostile proxy: gets a client's socket, and does with it what it wants.
Behaviour = Callable[[socket.socket], None]


class ForwardProxy:
    """Connects clients to addresses that it finds by their names. Thread: any.

    ``hosts`` are the names that it knows, with their addresses. With ``credentials``, a user and a password, it
    refuses others. ``behaviour`` replaces what it does. ``asked`` are the addresses that clients wanted.
    """

    def __init__(
        self,
        hosts: Mapping[str, str],
        credentials: tuple[str, str] | None = None,
        behaviour: Behaviour | None = None,
    ) -> None:
        self._hosts = hosts
        self._credentials = credentials
        self._behaviour = behaviour
        self.asked: list[tuple[str, int]] = []
        self.connections = 0
        #: False for clients that take no informational responses, such as the standard library's.
        self.sends_continue = True
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(30)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        # A thread may still open a socket or start a thread: close only after the last of them.
        for thread in self._threads:
            thread.join(30)
        for sock in self._sockets:
            sock.close()

    def url(self, scheme: str, credentials: tuple[str, str] | None = None) -> str:
        user = "" if credentials is None else f"{credentials[0]}:{credentials[1]}@"
        return f"{scheme}://{user}127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(client)
            self._start(self._serve, client)

    def _start(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._behaviour is not None:
                self._behaviour(client)
                return
            first = client.recv(1, socket.MSG_PEEK)
            broker = self._socks5(client) if first == b"\x05" else self._http(client)
            if broker is not None:
                self._start(self._pump, broker, client)
                self._pump(client, broker)
                return
        client.close()

    def _connect(self, host: str, port: int) -> socket.socket | None:
        self.asked.append((host, port))
        address = self._hosts.get(host)
        if address is None:
            return None
        broker = socket.create_connection((address, port))
        self._sockets.append(broker)  # at once, because the client may be gone when it is told
        return broker

    def _socks5(self, client: socket.socket) -> socket.socket | None:
        _, count = _exactly(client, 2)
        methods = _exactly(client, count)
        wanted = 0 if self._credentials is None else 2
        if wanted not in methods:
            client.sendall(b"\x05\xff")
            return None
        client.sendall(bytes((5, wanted)))
        if self._credentials is not None:
            user = _exactly(client, _exactly(client, 2)[1])
            password = _exactly(client, _exactly(client, 1)[0])
            is_right = (user.decode(), password.decode()) == self._credentials
            client.sendall(b"\x01\x00" if is_right else b"\x01\x01")
            if not is_right:
                return None
        _, _, _, kind = _exactly(client, 4)
        if kind == 3:
            host = _exactly(client, _exactly(client, 1)[0]).decode()
        else:
            family = socket.AF_INET if kind == 1 else socket.AF_INET6
            host = socket.inet_ntop(family, _exactly(client, 4 if kind == 1 else 16))
        broker = self._connect(host, int.from_bytes(_exactly(client, 2), "big"))
        # Byte by byte, because a reply may arrive in pieces.
        for byte in b"\x05" + (b"\x04" if broker is None else b"\x00") + b"\x00\x03\x04host\x00\x50":
            client.sendall(bytes((byte,)))
        return broker

    def _http(self, client: socket.socket) -> socket.socket | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(client, 1)
        target = head.split()[1].decode()
        if self._credentials is not None:
            expected = base64.b64encode(":".join(self._credentials).encode())
            if b"Proxy-Authorization: Basic " + expected not in head:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return None
        host, _, port = target.rpartition(":")
        broker = self._connect(host.strip("[]"), int(port))
        if broker is None:
            client.sendall(b"HTTP/1.1 502 Unknown Host\r\nContent-Length: 0\r\n\r\n")
        else:
            first = b"HTTP/1.1 100 Continue\r\n\r\n" if self.sends_continue else b""
            client.sendall(first + b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        return broker

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        received = sock.recv(size - len(data))
        if not received:
            raise ConnectionResetError("the client has gone")
        data += received
    return data
