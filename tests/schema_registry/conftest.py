"""A registry in the process, and a client of it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from pykclient.schema_registry import SchemaRegistryClient
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry


@pytest.fixture
def registry() -> Iterator[EmbeddedSchemaRegistry]:
    with EmbeddedSchemaRegistry() as found:
        yield found


@pytest.fixture
def client(registry: EmbeddedSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "retries.wait.ms": 1}) as found:
        yield found


class _Page(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        page = f"<html>no such page; you sent {self.headers.get('Authorization')}</html>".encode()
        self.send_response(404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def page_url() -> Iterator[str]:
    """The address of a web server that answers 404 with a page to everything, as a proxy does for a wrong path."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(30)
