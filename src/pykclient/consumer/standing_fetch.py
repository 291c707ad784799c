"""Fetch requests that follow themselves while a broker has nothing new."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from pykclient.network.standing_request import CORRELATION_ID_AT, RenewalTemplate
from pykclient.protocol.headers import encode_request

if TYPE_CHECKING:
    from pykclient.consumer.fetch_metrics import FetchMetricsManager
    from pykclient.consumer.fetch_session_handler import FetchSessionHandler
    from pykclient.network.client_request import ClientRequest
    from pykclient.network.network_receive import Frame
    from pykclient.network.standing_request import Repetitions
    from pykclient.protocol.messages.fetch import FetchRequest

#: From this version on, a request's body begins with the same fields as in the latest.
_OLDEST_VERSION: Final = 15
_INT32: Final = Struct(">i")
#: max_wait_ms, min_bytes, max_bytes, isolation_level and session_id, which precede the session's epoch.
_BEFORE_EPOCH: Final = Struct(">iiibi")
#: A response without partitions, after its correlation id: the header's tags, throttle_time_ms, error_code, session_id,
#: the number of topics plus 1, tags.
_EMPTY_RESPONSE: Final = Struct(">bihibb")


class StandingFetch:
    """Renews an incremental request without changes when its response is empty, which leaves nothing to decide.

    An idle consumer gets an empty response every ``fetch.max.wait.ms``. Its next request differs only in the
    correlation id and in the session's epoch, so these are written into a copy of its bytes. Other requests and
    responses take dozens of objects and two hundred calls.

    ``build`` returns the request in a version. ``is_wanted()`` tells whether the same request would be created again.
    In a wait, a poller that can does the same without Python code; see ``StandingRequests``. Thread: application.
    """

    __slots__ = ("_build", "_epoch_at", "_frame", "_handler", "_is_wanted", "_metrics", "_nothing_new")

    def __init__(
        self,
        build: Callable[[int], FetchRequest],
        handler: FetchSessionHandler,
        metrics: FetchMetricsManager,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._build = build
        self._handler = handler
        self._metrics = metrics
        self._is_wanted = is_wanted
        self._frame = b""
        self._epoch_at = 0
        self._nothing_new = b""

    def __call__(
        self, request: ClientRequest, version: int, response: Frame, correlation_id: int, now_ms: int
    ) -> bytes | None:
        """Return the next request, with this correlation id, if ``response`` is empty and fits the session.

        Then the response has been handled. None if it has to be parsed.
        """
        if version < _OLDEST_VERSION:
            return None
        if not self._frame:
            self._prepare(version, request.client_id)
        if response[4:] != self._nothing_new or not self._is_wanted():
            return None
        self._metrics.record_latency(request.destination, now_ms - request.created_ms, now_ms)
        frame = bytearray(self._frame)
        _INT32.pack_into(frame, CORRELATION_ID_AT, correlation_id)
        _INT32.pack_into(frame, self._epoch_at, self._handler.next_epoch())
        return bytes(frame)

    def template(self) -> RenewalTemplate | None:
        """Return what a poller needs to do the same as a call; None if it would return None. Follows a call."""
        if not self._is_wanted():
            return None
        return RenewalTemplate(self._nothing_new, self._frame, self._epoch_at, self._handler.epoch)

    def repeated(self, request: ClientRequest, done: Repetitions, now_ms: int) -> None:
        """Note that a poller has sent the request again by itself."""
        self._handler.skip_epochs(done.repeats)
        self._metrics.record_latencies(request.destination, done.latencies_ms, now_ms)
        self._metrics.throttle_time_sensor.record_all(done.throttle_times_ms, now_ms)

    def _prepare(self, version: int, client_id: str | None) -> None:
        request = self._build(version)
        self._nothing_new = _EMPTY_RESPONSE.pack(0, 0, 0, request.session_id, 1, 0)
        self._frame = encode_request(request, version, 0, client_id).getvalue()
        body_at = CORRELATION_ID_AT + 4 + 2 + len((client_id or "").encode()) + 1  # the id has a length, tags follow
        self._epoch_at = body_at + _BEFORE_EPOCH.size
