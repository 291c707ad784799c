"""The decisions of telemetry: when to ask for a subscription, and when to push (Java: ClientTelemetryReporter)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.errors import CorruptRecordError, IllegalStateError
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.network.telemetry.otlp import TelemetryCollector, encode_metrics
from pykclient.protocol.api_keys import ApiKeys
from pykclient.record import Compression, CompressionType

if TYPE_CHECKING:
    from pykclient.clock import Signal
    from pykclient.log_context import LogContext
    from pykclient.metrics.metrics import Metrics
    from pykclient.network.api_versions import ApiVersions
    from pykclient.network.kafka_client import LeastLoadedNode
    from pykclient.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
    from pykclient.protocol.messages.push_telemetry import PushTelemetryResponse
    from pykclient.types import Node

SUBSCRIPTION_NEEDED: Final = "SUBSCRIPTION_NEEDED"

SUBSCRIPTION_IN_PROGRESS: Final = "SUBSCRIPTION_IN_PROGRESS"

PUSH_NEEDED: Final = "PUSH_NEEDED"

PUSH_IN_PROGRESS: Final = "PUSH_IN_PROGRESS"

TERMINATING_PUSH_NEEDED: Final = "TERMINATING_PUSH_NEEDED"

TERMINATING_PUSH_IN_PROGRESS: Final = "TERMINATING_PUSH_IN_PROGRESS"

TERMINATED: Final = "TERMINATED"

#: The states that may follow each state. A subscription without metrics, and every failure, lead back to the first.
MOVES: Final[dict[str, frozenset[str]]] = {
    SUBSCRIPTION_NEEDED: frozenset((SUBSCRIPTION_IN_PROGRESS, TERMINATED)),
    SUBSCRIPTION_IN_PROGRESS: frozenset((PUSH_NEEDED, SUBSCRIPTION_NEEDED, TERMINATING_PUSH_NEEDED, TERMINATED)),
    PUSH_NEEDED: frozenset((PUSH_IN_PROGRESS, SUBSCRIPTION_NEEDED, TERMINATING_PUSH_NEEDED, TERMINATED)),
    PUSH_IN_PROGRESS: frozenset((PUSH_NEEDED, SUBSCRIPTION_NEEDED, TERMINATING_PUSH_NEEDED, TERMINATED)),
    TERMINATING_PUSH_NEEDED: frozenset((TERMINATING_PUSH_IN_PROGRESS, TERMINATED)),
    TERMINATING_PUSH_IN_PROGRESS: frozenset((TERMINATED,)),
    TERMINATED: frozenset(),
}

#: The states in which a request waits for its response.
IN_PROGRESS: Final = frozenset((SUBSCRIPTION_IN_PROGRESS, PUSH_IN_PROGRESS, TERMINATING_PUSH_IN_PROGRESS))

#: The states of a client that is closing.
TERMINATING: Final = frozenset((TERMINATING_PUSH_NEEDED, TERMINATING_PUSH_IN_PROGRESS, TERMINATED))


def check_move(source: str, target: str) -> None:
    """Check that the table allows a transition.

    Raises:
        IllegalStateError: the table has no transition from ``source`` to ``target``.
    """
    if target not in MOVES[source]:
        raise IllegalStateError(f"telemetry cannot go from {source} to {target}")


#: The interval in milliseconds after a failure, and where a broker names none.
DEFAULT_PUSH_INTERVAL_MS: Final = 5 * 60 * 1000

#: The intervals in milliseconds in which a client without a usable connection looks for one again: by itself, and
#: while the application waits for the client's id.
_NO_NODE_MS: Final = 1_000

_NO_NODE_AWAITED_MS: Final = 50

#: The first push comes after a random part of the interval, between these, so that clients do not push together.
_FIRST_PUSH: Final = (0.5, 1.5)

_ZERO_UUID: Final = uuid.UUID(int=0)

#: Errors after which nothing is ever sent again.
_FATAL: Final = (errors.InvalidRequestError, errors.InvalidRecordError, errors.UnsupportedVersionError)

#: Errors after which the subscription is fetched at once.
_STALE: Final = (errors.UnknownSubscriptionIdError, errors.UnsupportedCompressionTypeError)

#: Errors after which the subscription is fetched after the interval.
_LATER: Final = (errors.TelemetryTooLargeError, errors.ThrottlingQuotaExceededError)


class Subscription(NamedTuple):
    """The metrics that a broker asks for. ``interval_ms`` is in milliseconds."""

    client_instance_id: uuid.UUID
    subscription_id: int
    interval_ms: int
    compression: CompressionType
    is_delta: bool
    prefixes: tuple[str, ...]


class TelemetryClient(Protocol):
    """The part of a NetworkClient that sends requests of telemetry."""

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode: ...

    def can_send_request(self, node_id: str, now_ms: int) -> bool: ...

    def ready(self, node: Node, now_ms: int) -> bool: ...

    def new_client_request(
        self,
        node_id: str,
        request_builder: RequestBuilder,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest: ...

    def send(self, request: ClientRequest, now_ms: int) -> None: ...


class ClientTelemetry:
    """Asks brokers which metrics they want, and pushes these at the interval that they name.

    Brokers that have no receiver for metrics do not offer the API, and are not asked. The network client calls ``poll``
    in each of its polls; ``quiet_until_ms`` says from when on that can have an effect.

    Thread: owner.
    """

    __slots__ = (
        "_adopted_id",
        "_api_versions",
        "_awaiting",
        "_collector",
        "_is_closing",
        "_lacks_node",
        "_log",
        "_node_id",
        "_resource",
        "_rng",
        "_state",
        "_subscription",
        "quiet_until_ms",
    )

    def __init__(
        self,
        metrics: Metrics,
        resource: Mapping[str, str],
        api_versions: ApiVersions,
        log_context: LogContext,
        rng: random.Random,
    ) -> None:
        """Create it. ``resource`` has the attributes of the client that never change, such as ``group_id``."""
        self._log = log_context.logger(__name__)
        self._collector = TelemetryCollector(metrics, log_context)
        self._resource = dict(resource)
        self._api_versions = api_versions
        self._rng = rng
        self._state: str = SUBSCRIPTION_NEEDED
        self._subscription: Subscription | None = None
        self._node_id: str | None = None  # the broker of the last request, which is used as long as it can be
        self._is_closing = False
        self._lacks_node = False  # at the last poll
        self._adopted_id: uuid.UUID | None = None
        self._awaiting: list[Signal] = []  # of threads that wait for the id
        #: ``poll`` has no effect before this time.
        self.quiet_until_ms = -FOREVER_MS

    @property
    def client_instance_id(self) -> uuid.UUID | None:
        """The id that a broker has given to this client; None before the first subscription. Thread: any."""
        return self._adopted_id if self._subscription is None else self._subscription.client_instance_id

    def adopt(self, client_instance_id: uuid.UUID) -> uuid.UUID:
        """Use an id that a broker has given to another request of this client. Return the id in use. Thread: any."""
        if self._subscription is None:
            self._adopted_id = client_instance_id
        return self.client_instance_id or client_instance_id

    @contextmanager
    def awaited(self, signal: Signal) -> Iterator[None]:
        """Set ``signal`` as soon as there is an id, and connect to a broker if there is no connection. Thread: any."""
        self._awaiting.append(signal)
        if self._lacks_node:
            self.quiet_until_ms = -FOREVER_MS  # a poll that overwrites it in this moment looks again within a second
        try:
            yield
        finally:
            self._awaiting.remove(signal)

    def push_last(self, client: TelemetryClient, now_ms: int) -> bool:
        """Push a last time, if there is a subscription and a usable connection. Return True if a push was sent."""
        self._is_closing = True
        self.quiet_until_ms = -FOREVER_MS
        self.poll(client, now_ms)
        return self._state == TERMINATING_PUSH_IN_PROGRESS

    def poll(self, client: TelemetryClient, now_ms: int) -> int:
        """Send the request that is due. Return how many milliseconds may pass before the next call."""
        if self._is_closing and self._state not in TERMINATING:
            has_subscribed = self._subscription is not None and self._state != SUBSCRIPTION_NEEDED
            self._move(TERMINATING_PUSH_NEEDED if has_subscribed else TERMINATED)
        if self._state in IN_PROGRESS or self._state == TERMINATED:
            return self._wait(now_ms, FOREVER_MS)
        if now_ms < self.quiet_until_ms:
            return self.quiet_until_ms - now_ms
        node_id = self._usable_node(client, now_ms)
        self._lacks_node = node_id is None
        if node_id is None:
            return self._wait(now_ms, _NO_NODE_AWAITED_MS if self._awaiting else _NO_NODE_MS)
        versions = self._api_versions.get(node_id)
        if versions is None or versions.api_version(ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS) is None:
            return self._wait(now_ms, DEFAULT_PUSH_INTERVAL_MS)
        self._send(client, node_id, now_ms)
        return self._wait(now_ms, FOREVER_MS)

    def reset(self) -> None:
        """Forget the request in flight, because its connection was dropped."""
        if self._state in IN_PROGRESS:
            self._failed(self.quiet_until_ms, DEFAULT_PUSH_INTERVAL_MS)
            self.quiet_until_ms = -FOREVER_MS

    def _usable_node(self, client: TelemetryClient, now_ms: int) -> str | None:
        if self._node_id is None or not client.can_send_request(self._node_id, now_ms):
            node = client.least_loaded_node(now_ms).node
            self._node_id = None if node is None else node.id_string
            if node is not None and (self._awaiting or self._subscription is not None) and not self._is_closing:
                client.ready(node, now_ms)
        if self._node_id is None or not client.can_send_request(self._node_id, now_ms):
            self._node_id = None
        return self._node_id

    def _wait(self, now_ms: int, duration_ms: int) -> int:
        self.quiet_until_ms = min(now_ms + duration_ms, FOREVER_MS)
        return self.quiet_until_ms - now_ms

    def _move(self, target: str) -> None:
        check_move(self._state, target)
        self._state = target

    # --- requests --------------------------------------------------------------------------------------------------

    def _send(self, client: TelemetryClient, node_id: str, now_ms: int) -> None:
        before = self._state
        if before == SUBSCRIPTION_NEEDED:
            builder, target = self._subscription_request(), SUBSCRIPTION_IN_PROGRESS
        else:
            is_last = before == TERMINATING_PUSH_NEEDED
            builder = self._push_request(is_last)
            target = TERMINATING_PUSH_IN_PROGRESS if is_last else PUSH_IN_PROGRESS
        request = client.new_client_request(node_id, builder, now_ms, True, callback=self._on_response)
        is_sent = False
        self._move(target)
        try:
            client.send(request, now_ms)
            is_sent = True
        finally:
            if not is_sent:  # an exception of a signal handler: a request that never completes would end telemetry
                self._state = before

    def _subscription_request(self) -> RequestBuilder:
        from pykclient.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest

        known = self.client_instance_id
        return RequestBuilder(GetTelemetrySubscriptionsRequest(client_instance_id=known or _ZERO_UUID))

    def _push_request(self, is_last: bool) -> RequestBuilder:
        from pykclient.protocol.messages.push_telemetry import PushTelemetryRequest

        subscription = self._subscription
        assert subscription is not None
        points = self._collector.collect(subscription.prefixes, subscription.is_delta)
        resource = {**self._resource, **self._collector.labels}
        payload = Compression.of(subscription.compression).compress(encode_metrics(resource, points))
        return RequestBuilder(
            PushTelemetryRequest(
                client_instance_id=subscription.client_instance_id,
                subscription_id=subscription.subscription_id,
                terminating=is_last,
                compression_type=subscription.compression.id,
                metrics=payload,
            )
        )

    # --- responses -------------------------------------------------------------------------------------------------

    def _on_response(self, response: ClientResponse) -> None:
        now_ms = response.received_ms
        if self._state == TERMINATING_PUSH_IN_PROGRESS:
            self._move(TERMINATED)
            return
        if self._state not in IN_PROGRESS:
            return  # the client is closing
        if response.response_body is None:
            self._failed(now_ms, DEFAULT_PUSH_INTERVAL_MS)
        elif self._state == SUBSCRIPTION_IN_PROGRESS:
            self._subscribed(response.response_body, now_ms)
        else:
            self._pushed(response.response_body, now_ms)

    def _failed(self, now_ms: int, wait_ms: int) -> None:
        """Fetch the subscription again after ``wait_ms``."""
        terminal = self._state == TERMINATING_PUSH_IN_PROGRESS
        self._move(TERMINATED if terminal else SUBSCRIPTION_NEEDED)
        self._wait(now_ms, wait_ms)

    def _has_error(self, code: int, now_ms: int) -> bool:
        """Return True, and decide how to go on, if a response has an error."""
        error = errors.for_code(code)
        if error is None:
            return False
        interval_ms = DEFAULT_PUSH_INTERVAL_MS if self._subscription is None else self._subscription.interval_ms
        if isinstance(error, _FATAL):
            self._log.warning("The broker refuses telemetry, which ends: %s", type(error).__name__)
            self._failed(now_ms, FOREVER_MS)
        elif isinstance(error, _STALE):
            self._failed(now_ms, 0)
        elif isinstance(error, _LATER):
            self._failed(now_ms, interval_ms)
        else:
            self._log.debug("Telemetry failed, and goes on later: %s", type(error).__name__)
            self._failed(now_ms, DEFAULT_PUSH_INTERVAL_MS)
        return True

    def _subscribed(self, body: GetTelemetrySubscriptionsResponse, now_ms: int) -> None:
        if self._has_error(body.error_code, now_ms):
            return
        before = self._subscription
        if before is not None and before.is_delta != body.delta_temporality:
            self._collector.reset()
        interval_ms = body.push_interval_ms if body.push_interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS
        self._subscription = Subscription(
            self._adopted_id or body.client_instance_id,
            body.subscription_id,
            interval_ms,
            _compression(body.accepted_compression_types),
            body.delta_temporality,
            tuple(body.requested_metrics),
        )
        for signal in tuple(self._awaiting):
            signal.set()
        if not self._subscription.prefixes:
            self._move(SUBSCRIPTION_NEEDED)
            self._wait(now_ms, interval_ms)
            return
        self._move(PUSH_NEEDED)
        self._wait(now_ms, round(interval_ms * self._rng.uniform(*_FIRST_PUSH)))

    def _pushed(self, body: PushTelemetryResponse, now_ms: int) -> None:
        if not self._has_error(body.error_code, now_ms):
            assert self._subscription is not None
            self._move(PUSH_NEEDED)
            self._wait(now_ms, self._subscription.interval_ms)


def _compression(accepted: Sequence[int]) -> CompressionType:
    """Return the first codec of a broker's list, which begins with the best one; none if it is not known."""
    for number in accepted:
        try:
            return CompressionType.for_id(number)
        except CorruptRecordError:
            continue
    return CompressionType.NONE
