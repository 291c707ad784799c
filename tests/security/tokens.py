"""Tokens without a signature, and an identity provider that issues them."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from typing import Any, Self
from urllib.parse import parse_qs


def unsecured_token(user: str, lifetime_s: float, **claims: Any) -> str:
    """Return a JWT that brokers accept in their default configuration."""
    now_s = int(time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s - 60, "exp": now_s + lifetime_s, **claims})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, ""))


@contextlib.contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Yield the URL of a server that calls ``serve`` for each connection, on threads, and then closes it."""
    threads: list[threading.Thread] = []

    def run(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=run, args=(listener.accept()[0],), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/token"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
    for thread in threads:
        thread.join(30)


class TokenServer:
    """An identity provider on the loopback address. Its attributes decide what it answers. Thread: any."""

    def __init__(self, user: str, context: ssl.SSLContext | None = None) -> None:
        self.user = user
        self.status = 200
        self.lifetime_s = 3600
        self.body: bytes | None = None
        self.headers: dict[str, str] = {}
        self.failures = 0  # the requests that fail with status 503 before one succeeds
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.requests: list[tuple[dict[str, str], dict[str, str]]] = []  # headers and form (of a GET: query) of each
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):  # a client that refuses the certificate
                    super().handle()

            def do_POST(self) -> None:
                outer._answer(self, self.rfile.read(int(self.headers["Content-Length"])).decode())

            def do_GET(self) -> None:
                outer._answer(self, self.path.partition("?")[2])

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        if context is not None:
            # Without a handshake in accept(), which a client that refuses the certificate would break off.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/token?secret=hush-query"

    def _answer(self, handler: BaseHTTPRequestHandler, text: str) -> None:
        form = parse_qs(text)
        self.requests.append((dict(handler.headers), {name: values[0] for name, values in form.items()}))
        self.may_answer.wait(30)
        status, body = self.status, self.body
        if self.failures:
            self.failures -= 1
            status = 503
        if body is None and status == 200:
            token = unsecured_token(self.user, self.lifetime_s)
            body = json.dumps({"access_token": token, "expires_in": self.lifetime_s}).encode()
        with contextlib.suppress(OSError):  # the client has gone
            handler.send_response(status)
            for name, value in self.headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body or b'{"error": "invalid_client", "error_description": "who\\u001b are you"}')

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.may_answer.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
