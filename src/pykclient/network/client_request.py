"""A request to a node, and its outcome (Java: ClientRequest, ClientResponse)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pykclient.errors import IllegalStateError
from pykclient.metrics.stats import Tally
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, encode_response, parse_response

if TYPE_CHECKING:
    from pykclient.errors import AuthenticationError, KafkaError
    from pykclient.network.frames import Frame
    from pykclient.protocol.message import Request, Response
    from pykclient.protocol.wire import BytesLike

#: The position of the correlation id in the frame of a request, after its size, API key and version.
CORRELATION_ID_AT: Final = 8


class RepeatableRequest(NamedTuple):
    """A request that a poller sends again after each usual response.

    ``response`` is the frame of that, with the correlation id of the request in flight, which was sent ``age_ms`` ago.
    ``request`` is the frame to send, which has an epoch at ``epoch_at``. The next one has ``correlation_id`` and
    ``epoch``; each number grows by 1 with each request.
    """

    response: bytes
    request: bytes
    epoch_at: int
    correlation_id: int
    epoch: int
    age_ms: int


class Repetitions(NamedTuple):
    """The number of times that a poller has repeated a request, and the total size of the frames.

    ``since_ms`` is the time since the last one, the others are times from requests to their responses.
    """

    repeats: int
    size_bytes: int
    since_ms: int
    total_ms: int
    least_ms: int
    most_ms: int
    last_ms: int

    @property
    def latencies_ms(self) -> Tally:
        """The times from requests to their responses."""
        tally = Tally()
        tally.count, tally.total, tally.last = self.repeats, self.total_ms, self.last_ms
        tally.smallest, tally.largest = self.least_ms, self.most_ms
        return tally

    @property
    def throttle_times_ms(self) -> Tally:
        """The throttle times in the responses: zeros, because they were empty."""
        tally = Tally.of(0)
        tally.count = self.repeats
        return tally


class UsualResponse:
    """The response to each request of one kind while nothing changes, as bytes.

    An idle client gets the same bytes for each fetch, heartbeat and commit. Parsing them, ending the application's wait
    and starting it again would take most of its time. Thread: owner.
    """

    __slots__ = ("_version", "content")

    def __init__(self) -> None:
        self._version = -1
        #: The bytes after the correlation id.
        self.content = b""

    def expect(self, body: Response, version: int) -> bool:
        """Make ``body`` the usual response, unless it throttles the client; return whether it now is."""
        if getattr(body, "throttle_time_ms", 0):
            return False
        self._version, self.content = version, encode_response(body, version, 0).getvalue()[8:]
        return True

    def matches(self, version: int, frame: Frame) -> bool:
        """Return whether the response in ``frame``, which begins with the correlation id, is the usual one."""
        return version == self._version and frame[4:] == self.content


class Repetition(Protocol):
    """Creates the same request again, apart from its correlation id and an epoch. Thread: owner."""

    def next_frame(self, request: ClientRequest, version: int, correlation_id: int) -> bytes:
        """Return the frame that follows ``request``, whose response was the usual one."""

    def template(self, request: ClientRequest, version: int) -> tuple[bytes, int, int] | None:
        """Return the next frame without its numbers, the position of the epoch in it, and the epoch of ``request``.

        None if the request would not be sent again.
        """

    def repeated(self, request: ClientRequest, done: Repetitions, now_ms: int) -> None:
        """Record that a poller has repeated the request by itself."""


class Shortcut(NamedTuple):
    """The way of the ``usual`` response to a request: it is not parsed, and a wait goes on.

    ``handle(request, now_ms)`` returns True if the response is handled, and so has no ClientResponse; False if it must
    be parsed. With ``repetition`` the request is sent again at once, if it is the only one in flight to its node.
    """

    usual: UsualResponse
    handle: Callable[[ClientRequest, int], bool]
    repetition: Repetition | None = None


class RequestBuilder:
    """Builds a request in a version that client and node support (Java: AbstractRequest.Builder).

    This class wraps a complete message. Subclass it and override ``build`` if the content depends on the version. Any
    exception from ``build`` becomes the ``build_error`` of the response. With a ``shortcut``, the usual response is not
    parsed. Thread: owner.
    """

    __slots__ = ("api_key", "latest_allowed_version", "message", "oldest_allowed_version")

    shortcut: Shortcut | None = None

    def __init__(self, message: Request, min_version: int | None = None, max_version: int | None = None) -> None:
        self.message = message
        self.api_key = api_key = message.API_KEY
        oldest, latest = ApiKeys.versions(api_key)
        self.oldest_allowed_version = oldest if min_version is None else min_version
        self.latest_allowed_version = latest if max_version is None else max_version

    def build(self, version: int) -> Request:  # noqa: ARG002 - for subclasses
        """Return the request for ``version``, which is in the allowed range."""
        return self.message

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> Sequence[BytesLike]:
        """Return the frame of the request for ``version`` as buffers, which must not change until they are sent."""
        return encode_request(self.build(version), version, correlation_id, client_id).buffers()

    def parse_response(self, frame: BytesLike, version: int) -> Response:
        """Return the response in ``frame``, which begins with the correlation id.

        Raises:
            RemoteProtocolError: the bytes are not such a response.
        """
        return parse_response(frame, self.api_key, version)[1]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.message).__name__})"


class ClientRequest:
    """A request for a node. ``callback`` gets the ClientResponse on the polling thread. Thread: owner."""

    __slots__ = (
        "callback",
        "client_id",
        "correlation_id",
        "created_ms",
        "destination",
        "expect_response",
        "request_builder",
        "request_timeout_ms",
    )

    def __init__(
        self,
        destination: str,
        request_builder: RequestBuilder,
        correlation_id: int,
        client_id: str | None,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> None:
        self.destination = destination
        self.request_builder = request_builder
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.created_ms = created_ms
        self.expect_response = expect_response
        self.request_timeout_ms = request_timeout_ms
        self.callback = callback

    @property
    def api_key(self) -> int:
        return self.request_builder.api_key

    def __repr__(self) -> str:
        return (
            f"ClientRequest({self.request_builder!r}, destination={self.destination}, "
            f"correlation_id={self.correlation_id}, created_ms={self.created_ms})"
        )


class ClientResponse:
    """The outcome of a ClientRequest.

    Exactly one of these is set. ``response_body`` is the response. ``disconnected`` is True if the connection was lost
    (``timed_out`` too, if this client closed it). ``build_error`` is the reason why the request could not be built, and
    so was never sent; UnsupportedVersionError means that the node supports no suitable version. All are empty for a
    request that expects no response. Thread: owner.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "authentication_error",
        "build_error",
        "callback",
        "correlation_id",
        "created_ms",
        "destination",
        "disconnected",
        "received_ms",
        "response_body",
        "timed_out",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        callback: Callable[[ClientResponse], None] | None,
        destination: str,
        created_ms: int,
        received_ms: int,
        disconnected: bool = False,
        timed_out: bool = False,
        build_error: KafkaError | None = None,
        authentication_error: AuthenticationError | None = None,
        response_body: Any = None,
    ) -> None:
        if timed_out and not disconnected:
            raise IllegalStateError("a response cannot be timed out on a connection that still stands")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.callback = callback
        self.destination = destination
        self.created_ms = created_ms
        self.received_ms = received_ms
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.build_error = build_error
        self.authentication_error = authentication_error
        self.response_body = response_body

    @property
    def has_response(self) -> bool:
        return self.response_body is not None

    @property
    def request_latency_ms(self) -> int:
        """Return the time from the creation of the request to its outcome."""
        return self.received_ms - self.created_ms

    def on_complete(self) -> None:
        """Pass this response to its request's callback, if there is one."""
        if self.callback is not None:
            self.callback(self)

    def __repr__(self) -> str:
        return (
            f"ClientResponse(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, destination={self.destination}, "
            f"disconnected={self.disconnected}, timed_out={self.timed_out}, "
            f"body={type(self.response_body).__name__})"
        )
