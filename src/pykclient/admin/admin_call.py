"""One call of the admin client, from its keys to their results (Java: AdminApiDriver)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pykclient.admin.api import ApiResult
from pykclient.admin.results import Results
from pykclient.clock import FOREVER_MS
from pykclient.errors import (
    AuthorizationError,
    DisconnectError,
    KafkaError,
    KafkaTimeoutError,
    RemoteProtocolError,
    RetriableError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.network.authorization_errors import call_denied
from pykclient.network.connection_failures import BOOTSTRAP_ADVICE, shown_node_id

if TYPE_CHECKING:
    from pykclient.admin.api import AdminApiHandler, ApiRequest
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.exponential_backoff import ExponentialBackoff

K = TypeVar("K")
V = TypeVar("V")

_TIME_ADVICE = "Give the call more time with timeout_ms, or look into the brokers' logs"


def _of_controllers(text: str) -> str:
    """Return a text about brokers as one about controllers."""
    return text.replace("bootstrap servers", "bootstrap controllers").replace(
        "brokers are up and that bootstrap.servers", "controllers are up and that bootstrap.controllers"
    )


class RetryPolicy(NamedTuple):
    """The backoff between the attempts for a key, and the most retries (``retries``).

    ``principal`` is whom the client authenticates as, if that is known, for messages.
    """

    backoff: ExponentialBackoff
    retries: int
    request_timeout_ms: int
    principal: str | None = None


class Deadline(NamedTuple):
    """The end of a call of the application, which may make several calls of APIs. ``at_ms`` is its time."""

    timeout_ms: int
    at_ms: int


class _Item:
    """The state of a key that has no result yet."""

    __slots__ = ("attempts", "destination", "last_error", "not_before_ms")

    def __init__(self) -> None:
        self.destination: int | None = None  # None: to be looked up
        self.attempts = 0  # that have failed
        self.not_before_ms = -FOREVER_MS
        self.last_error: KafkaError | None = None


class Attempt:
    """A request of a call, on its way. Thread: that of the call."""

    __slots__ = ("_call", "is_lookup", "is_sent", "request")

    def __init__(self, call: AdminCall[Any, Any], request: ApiRequest[Any], is_lookup: bool) -> None:
        self._call = call
        self.request = request
        self.is_lookup = is_lookup
        self.is_sent = False

    @property
    def is_current(self) -> bool:
        """False if nobody waits for the response any more."""
        return self._call.is_waiting_for(self)

    def on_complete(self, response: ClientResponse) -> None:
        """Take the response in. It is ignored if nobody waits for it."""
        self._call.on_complete(self, response)

    def fail(self, error: KafkaError, now_ms: int) -> None:
        """Note that the request was never sent."""
        self._call.on_failure(self, error, now_ms)


class AdminCall(Generic[K, V]):
    """A call of one API for many keys.

    Each key is looked up, sent, and retried on its own terms; keys that are due at the same time share requests.
    ``on_done`` is called once, when no key is left, or when the call has timed out. Thread: that of ``AdminCalls``.
    """

    __slots__ = (
        "_attempts",
        "_handler",
        "_in_flight",
        "_policy",
        "_waiting",
        "deadline",
        "is_done",
        "on_done",
        "results",
        "wants_metadata",
    )

    def __init__(
        self, handler: AdminApiHandler[K, V], keys: Iterable[K], deadline: Deadline, policy: RetryPolicy
    ) -> None:
        self._handler = handler
        self._policy = policy
        self.deadline = deadline
        self._waiting: dict[K, _Item] = {key: _Item() for key in keys}
        self._in_flight: dict[K, _Item] = {}
        self._attempts: set[Attempt] = set()
        self.results: Results[K, V] = Results()
        self.on_done: Callable[[], object] | None = None
        #: True once each key has a result. Other threads read it, so it is set last.
        self.is_done = not self._waiting
        #: True if a broker was not the right one, so that metadata should be refreshed before the next attempt.
        self.wants_metadata = False

    @property
    def name(self) -> str:
        return self._handler.name

    def is_waiting_for(self, attempt: Attempt) -> bool:
        return attempt in self._attempts

    # --- deciding ----------------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> tuple[list[Attempt], int]:
        """Return the attempts that are due at ``now_ms``, and the ms until the next one is, if no response arrives."""
        wait_ms = FOREVER_MS
        to_look_up: list[K] = []
        by_destination: dict[int, list[K]] = {}
        for key, item in self._waiting.items():
            if item.not_before_ms > now_ms:
                wait_ms = min(wait_ms, item.not_before_ms - now_ms)
                continue
            if item.destination is None:
                item.destination = self._handler.lookup.destination_of(key)
            if item.destination is None:
                to_look_up.append(key)
            else:
                by_destination.setdefault(item.destination, []).append(key)
        attempts: list[Attempt] = []
        if to_look_up:
            attempts += [Attempt(self, request, True) for request in self._handler.lookup.requests(to_look_up)]
        timeout_ms = max(0, min(self._policy.request_timeout_ms, self.deadline.at_ms - now_ms))
        for destination, keys in by_destination.items():
            for request in self._handler.requests(destination, keys, timeout_ms):
                attempts.append(Attempt(self, request, False))
        for attempt in attempts:
            self._attempts.add(attempt)
            for key in attempt.request.keys:
                self._in_flight[key] = self._waiting.pop(key)
        return attempts, wait_ms

    # --- hearing -----------------------------------------------------------------------------------------------------

    def on_complete(self, attempt: Attempt, response: ClientResponse) -> None:
        if attempt not in self._attempts:
            return
        error: KafkaError | None = response.authentication_error or response.build_error
        if error is None and response.disconnected:
            why = "no answer came in time" if response.timed_out else "the connection was lost"
            error = DisconnectError(f"a request to {shown_node_id(response.destination)} failed: {why}")
            if not attempt.is_lookup:
                self._handler.uncertain.update(attempt.request.keys)
        now_ms = response.received_ms
        if error is not None:
            self.on_failure(attempt, error, now_ms)
            return
        keys = attempt.request.keys
        if attempt.is_lookup:
            found = self._handler.lookup.handle_response(keys, response.response_body)
            items = {key: self._in_flight[key] for key in found.completed}
            for key, destination in found.completed.items():
                items[key].destination = destination
            self._settle(attempt, found, now_ms, is_lookup=True)
            return
        self._handler.latency_ms = response.request_latency_ms
        result = self._handler.handle_response(attempt.request.destination, keys, response.response_body)
        self._settle(attempt, result, now_ms)

    def on_failure(self, attempt: Attempt, error: KafkaError, now_ms: int) -> None:
        """Note that there is no response to an attempt."""
        if attempt not in self._attempts:
            return
        keys = attempt.request.keys
        result: ApiResult[K, Any]
        if isinstance(error, UnsupportedVersionError):
            if attempt.is_lookup and self._handler.lookup.handle_unsupported_version():
                self._take(attempt)
                for key in keys:
                    self._waiting[key] = self._in_flight.pop(key)
                return
            shown = UnsupportedVersionError(
                f"{self.name}: {error}. The brokers are too old for this call, or do not implement it"
            )
            shown.__cause__ = error
            result = self._handler.handle_unsupported_version(keys, shown)
        else:
            result = ApiResult()
            kind = result.unmapped if isinstance(error, RetriableError) else result.failed
            kind.update(dict.fromkeys(keys, error))
        self._settle(attempt, result, now_ms)

    def _settle(self, attempt: Attempt, result: ApiResult[K, Any], now_ms: int, *, is_lookup: bool = False) -> None:
        """Apply what became of the keys of an attempt."""
        self._take(attempt)
        self.wants_metadata |= bool(result.unmapped)
        self.results.error_of_all = result.error_of_all or self.results.error_of_all
        backoffs: dict[int, int] = {}  # by the number of attempts, so that keys which failed together stay together
        for key in attempt.request.keys:
            item = self._in_flight.pop(key)
            if key in result.completed:
                if is_lookup:
                    self._waiting[key] = item
                else:
                    self.results.succeeded[key] = result.completed[key]
            elif key in result.failed:
                self.results.failed[key] = self._explained(key, result.failed[key])
            elif key in result.retry:
                self._retry(key, item, result.retry[key], now_ms, backoffs)
            elif key in result.unmapped:
                item.destination = None
                self._retry(key, item, result.unmapped[key], now_ms, backoffs)
            else:
                self.results.failed[key] = RemoteProtocolError(
                    f"{self.name}: the broker's response says nothing about {key!r}"
                )
        self._finish()

    def _explained(self, key: K, error: KafkaError) -> KafkaError:
        """Return the error of a key; if a permission is missing, with whose it is and how to grant it."""
        if not isinstance(error, AuthorizationError):
            return error
        call = (
            self.name if key is None else f"{self.name} of {key!r}" if isinstance(key, str) else f"{self.name} of {key}"
        )
        name = key if isinstance(key, str) else getattr(key, "topic", getattr(key, "name", None))
        return call_denied(self._policy.principal, call, error, name)

    def _retry(self, key: K, item: _Item, error: KafkaError, now_ms: int, backoffs: dict[int, int]) -> None:
        item.last_error = error
        most = self._policy.retries
        if isinstance(error, UnknownTopicOrPartitionError):
            most = min(most, self._handler.MAX_UNKNOWN_TOPIC_ATTEMPTS - 1)
        if item.attempts >= most:
            self.results.failed[key] = error
            return
        if item.attempts not in backoffs:
            backoffs[item.attempts] = self._policy.backoff.backoff(item.attempts)
        item.not_before_ms = now_ms + backoffs[item.attempts]
        item.attempts += 1
        self._waiting[key] = item

    def _take(self, attempt: Attempt) -> None:
        self._attempts.discard(attempt)

    def _finish(self) -> None:
        if self.is_done or self._waiting or self._in_flight:
            return
        self.is_done = True
        if self.on_done is not None:
            self.on_done()

    # --- ending ------------------------------------------------------------------------------------------------------

    def fail(self, error: KafkaError) -> None:
        """Fail all keys without a result with ``error``."""
        for key in self._unfinished():
            self.results.failed[key] = error
        self._end()

    def time_out(self, connection_report: str, uses_controllers: bool = False) -> None:
        """Fail all keys without a result with KafkaTimeoutError.

        ``connection_report`` tells which nodes cannot be reached. They are controllers with ``uses_controllers``.
        """
        remedy = BOOTSTRAP_ADVICE if connection_report else _TIME_ADVICE
        report = f"; {connection_report.removesuffix(f'. {BOOTSTRAP_ADVICE}')}" if connection_report else ""
        if uses_controllers:
            remedy, report = _of_controllers(remedy), _of_controllers(report)
        self._note_uncertain()
        for key, item in self._unfinished().items():
            self.results.failed[key] = self._timeout_error(key, item, report, remedy)
        self._end()

    def _timeout_error(self, key: K, item: _Item, report: str, remedy: str) -> KafkaTimeoutError:
        about = "" if key is None else f" for {key!r}"
        if item.last_error is not None:
            attempts = "1 attempt" if item.attempts == 1 else f"{item.attempts} attempts"
            last = f"{attempts} failed, the last one with {type(item.last_error).__name__}: {item.last_error}"
        elif key in self._in_flight:
            last = "the broker has not answered"
        else:
            last = "no broker could be asked"
        uncertain = ". The request may have been carried out all the same" if key in self._handler.uncertain else ""
        error = KafkaTimeoutError(
            f"{self.name}{about} was not done within {self.deadline.timeout_ms} ms: {last}{report}{uncertain}. {remedy}"
        )
        error.__cause__ = item.last_error
        return error

    def _note_uncertain(self) -> None:
        for attempt in self._attempts:
            if attempt.is_sent and not attempt.is_lookup:
                self._handler.uncertain.update(attempt.request.keys)

    def _unfinished(self) -> dict[K, _Item]:
        return {**self._waiting, **self._in_flight}

    def _end(self) -> None:
        self._waiting = {}
        self._in_flight = {}
        self._attempts = set()
        self._finish()

    def recover(self) -> None:
        """Make all requests in flight due again: an exception anywhere has ended the driver's work on them."""
        self._note_uncertain()
        self._attempts = set()
        done = self.results
        unfinished = self._unfinished()
        self._in_flight = {}
        self._waiting = {key: item for key, item in unfinished.items() if key not in done}
        self._finish()
