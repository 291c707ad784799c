"""HTTP requests to identity providers, each of which has one deadline.

The timeout of the standard library is that of each single read. A server that sends a byte now and then would hold up
the thread that fetches tokens for hours.
"""

from __future__ import annotations

import functools
import http.client
import io
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pykclient.clock import Clock

if TYPE_CHECKING:
    import ssl

    from _typeshed import WriteableBuffer

#: The shortest timeout of a read, in seconds. A timeout of 0 would make the socket non-blocking.
_LEAST_S: Final = 0.001


def opener(clock: Clock, context: Callable[[], ssl.SSLContext] | None) -> urllib.request.OpenerDirector:
    """Return an opener for ``http`` and, with ``context``, which returns the context of a connection, for ``https``.

    The ``timeout`` of its ``open`` is that of the whole response.
    It does not follow redirects, so that credentials are not sent to another address.
    """
    return urllib.request.build_opener(_NoRedirects, _HttpHandler(clock), _HttpsHandler(clock, context))


def _not_followed(*_: Any, **__: Any) -> Any:
    """Leave a redirect to the default handler, which raises HTTPError, without a look at its address."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    http_error_301 = http_error_302 = http_error_303 = http_error_307 = http_error_308 = _not_followed


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        new_connection: Any = functools.partial(_HttpConnection, clock=self._clock)
        return self.do_open(new_connection, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, clock: Clock, context: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._clock = clock
        self._new_context = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        new_connection: Any = functools.partial(
            _HttpsConnection, clock=self._clock, context=None if self._new_context is None else self._new_context()
        )
        return self.do_open(new_connection, req)


class _HttpConnection(http.client.HTTPConnection):
    """A connection whose socket has a deadline from the time at which the connection object is created."""

    def __init__(self, host: str, *, clock: Clock, timeout: float, **settings: Any) -> None:
        super().__init__(host, timeout=timeout, **settings)
        self._deadline = Deadline(clock, timeout)

    def connect(self) -> None:
        super().connect()
        self.sock: Any = TimedSocket(self.sock, self._deadline)


class _HttpsConnection(http.client.HTTPSConnection):
    """As ``_HttpConnection``, with TLS."""

    def __init__(self, host: str, *, clock: Clock, timeout: float, **settings: Any) -> None:
        super().__init__(host, timeout=timeout, **settings)
        self._deadline = Deadline(clock, timeout)

    def connect(self) -> None:
        super().connect()
        self.sock: Any = TimedSocket(self.sock, self._deadline)


class Deadline:
    """The time at which a request must be complete."""

    __slots__ = ("_clock", "_due_ms")

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self.restart(timeout_s)

    def restart(self, timeout_s: float) -> None:
        """Allow ``timeout_s`` from now on."""
        self._due_ms = self._clock.now_ms() + int(timeout_s * 1000)

    def apply_to(self, sock: Any) -> None:
        """Set the timeout of a socket's next operation.

        Raises:
            TimeoutError: the time is over.
        """
        left_s = (self._due_ms - self._clock.now_ms()) / 1000
        if left_s <= 0:
            raise TimeoutError("the response took too long")
        sock.settimeout(max(left_s, _LEAST_S))


class TimedSocket:
    """The methods of a socket that ``http.client`` needs, with a deadline for all of them together."""

    def __init__(self, sock: Any, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._deadline.apply_to(self._sock)
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb", mode
        return io.BufferedReader(TimedReader(self._sock, self._deadline))

    def close(self) -> None:
        """Close the socket, once its readers are closed."""
        self._sock.close()


class TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock: Any, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._raw = sock.makefile("rb", 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._deadline.apply_to(self._sock)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
