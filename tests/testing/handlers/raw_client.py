"""A client connection that sends any version of any request."""

from __future__ import annotations

import socket
from typing import Self, TypeVar, cast

from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.message import Request, Response

R = TypeVar("R", bound=Response)


class RawClient:
    """Sends one request at a time, in the version that the test chooses. Thread: owner."""

    def __init__(self, address: str, timeout_s: float = 30.0) -> None:
        host, _, port = address.split(",", maxsplit=1)[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._stream = self._socket.makefile("rb")
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        self._socket.sendall(encode_request(request, version, self._correlation_id, "raw").getvalue())

    def receive(self, api_key: int, version: int) -> Response:
        """Return the next response. Raises ConnectionError if the broker has closed the connection."""
        size = self._stream.read(4)
        if len(size) < 4:
            raise ConnectionError("the broker has closed the connection")
        frame = self._stream.read(int.from_bytes(size, "big"))
        correlation_id, response = parse_response(frame, api_key, version)
        assert correlation_id == self._correlation_id
        return response

    def ask(self, request: Request, version: int, _kind: type[R]) -> R:
        """Send a request and return its response, which is of the given class."""
        self.send(request, version)
        return cast(R, self.receive(request.API_KEY, version))
