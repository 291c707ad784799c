"""The decisions of telemetry: when to ask for a subscription, and when to push (Java: ClientTelemetryReporter).

Metrics in OpenTelemetry's wire format, OTLP, which is the payload of a push (KIP-714).

Only the few messages that metrics need are written here, so that a client needs no library for protocol buffers.
"""

from __future__ import annotations

import math
import random
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.errors import CorruptRecordError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.network.kafka_client import KafkaClient
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.wire import ZERO_UUID
from pykclient.record import Compression, CompressionType
from pykclient.record.record_batch import encode_uvarint

if TYPE_CHECKING:
    from pykclient.clock import Signal
    from pykclient.log_context import LogContext
    from pykclient.metrics import KafkaMetric, MetricName, Metrics
    from pykclient.network.cluster_connection_states import ApiVersions
    from pykclient.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
    from pykclient.protocol.messages.push_telemetry import PushTelemetryResponse

_NS_PER_MS: Final = 1_000_000
# The kinds of fields of protocol buffers.
_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
# AggregationTemporality.
_DELTA: Final = 1
_CUMULATIVE: Final = 2


class Point(NamedTuple):
    """A metric with one value. Times are in milliseconds since the epoch.

    ``start_ms`` is None for a gauge. For a sum it is the time that the value is counted from. With ``is_delta``, that
    is the time of the last push.
    """

    name: str
    attributes: Mapping[str, str]
    value: float
    time_ms: int
    start_ms: int | None = None
    is_delta: bool = False


def encode_metrics(resource: Mapping[str, str], points: Iterable[Point]) -> bytes:
    """Return a ``MetricsData`` with the metrics of one resource."""
    metrics = b"".join(_message(2, _metric(point)) for point in points)
    return _message(1, _message(1, _attributes(1, resource)) + _message(2, metrics))


def _metric(point: Point) -> bytes:
    data_point = _message(1, _number_data_point(point))
    if point.start_ms is None:
        return _text(1, point.name) + _message(5, data_point)  # a Gauge
    temporality = _DELTA if point.is_delta else _CUMULATIVE
    is_monotonic = _tag(3, _VARINT) + b"\x01"
    return _text(1, point.name) + _message(
        7, data_point + _tag(2, _VARINT) + encode_uvarint(temporality) + is_monotonic
    )


def _number_data_point(point: Point) -> bytes:
    start = b"" if point.start_ms is None else _fixed64(2, "<Q", point.start_ms * _NS_PER_MS)
    time = _fixed64(3, "<Q", point.time_ms * _NS_PER_MS)
    return start + time + _fixed64(4, "<d", point.value) + _attributes(7, point.attributes)


def _attributes(field: int, attributes: Mapping[str, str]) -> bytes:
    return b"".join(_message(field, _text(1, key) + _message(2, _text(1, value))) for key, value in attributes.items())


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8", "replace"))


def _message(field: int, content: bytes) -> bytes:
    return _tag(field, _LENGTH_DELIMITED) + encode_uvarint(len(content)) + content


def _fixed64(field: int, form: str, value: float) -> bytes:
    return _tag(field, _FIXED64) + struct.pack(form, value)


def _tag(field: int, kind: int) -> bytes:
    return encode_uvarint(field << 3 | kind)


_DOMAIN: Final = "org.apache.kafka"
#: The suffix of totals. All other metrics are gauges.
_SUM: Final = "-total"
#: A tag that is left out, as the brokers know it.
_CLIENT_ID: Final = "client-id"
#: Asks for all metrics.
_ALL: Final = ("*",)


def telemetry_name(name: MetricName) -> str:
    """Return the name of a metric in a push: ``org.apache.kafka.producer.record.send.total``."""
    group = name.group.removesuffix("-metrics").replace("-", ".")
    return f"{_DOMAIN}.{group}.{name.name.replace('-', '.')}"


class TelemetryCollector:
    """Reads the subscribed metrics, and keeps their last values to compute deltas. Thread: owner."""

    def __init__(self, metrics: Metrics, log_context: LogContext) -> None:
        self._log = log_context.logger(__name__)
        self._metrics = metrics
        self._created_ms = metrics.clock.wall_ms()
        self._last: dict[KafkaMetric, tuple[float, int]] = {}  # the last value pushed as a delta, and when

    @property
    def labels(self) -> dict[str, str]:
        """The attributes of the client that change while it runs."""
        return self._metrics.labels

    def reset(self) -> None:
        """Forget the last values, because the temporality of sums has changed."""
        self._last = {}

    def collect(self, prefixes: Sequence[str], is_delta: bool) -> list[Point]:
        """Return the metrics whose names begin with one of ``prefixes``, and that have a number as their value."""
        now_ms = self._metrics.clock.wall_ms()
        points: list[Point] = []
        pushed = self._metrics.pushed
        self._last = {metric: last for metric, last in self._last.items() if pushed.get(metric.metric_name) is metric}
        for name, metric in pushed.items():
            full_name = telemetry_name(name)
            if tuple(prefixes) != _ALL and not full_name.startswith(tuple(prefixes)):
                continue
            try:
                value = metric.metric_value()
            except Exception:  # noqa: BLE001 - a gauge of the application; the others are pushed
                self._log.warning("The metric %s could not be read", full_name, exc_info=True)
                continue
            if not isinstance(value, int | float) or math.isnan(value):
                continue
            attributes = {tag.replace("-", "_"): text for tag, text in name.tags.items() if tag != _CLIENT_ID}
            if not name.name.endswith(_SUM):
                points.append(Point(full_name, attributes, float(value), now_ms))
            elif is_delta:
                before, since_ms = self._last.get(metric, (0.0, self._created_ms))
                self._last[metric] = float(value), now_ms
                points.append(Point(full_name, attributes, value - before, now_ms, since_ms, is_delta=True))
            else:
                points.append(Point(full_name, attributes, float(value), now_ms, self._created_ms))
        return points


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


#: The interval in milliseconds after a failure, and where a broker names none.
DEFAULT_PUSH_INTERVAL_MS: Final = 5 * 60 * 1000
#: The intervals in milliseconds in which a client without a usable connection looks for one again: by itself, and
#: while the application waits for the client's id.
_NO_NODE_MS: Final = 1_000
_NO_NODE_AWAITED_MS: Final = 50
#: The first push comes after a random part of the interval, between these, so that clients do not push together.
_FIRST_PUSH: Final = (0.5, 1.5)
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


class TelemetryClient(KafkaClient, Protocol):
    """A client that sends telemetry requests."""

    def can_send_request(self, node_id: str, now_ms: int) -> bool:
        """Return True if the connection is ready, is not throttled, and has room for another request."""


class ClientTelemetry:
    """Gets subscriptions from brokers, and pushes the subscribed metrics at their interval.

    Brokers that have no receiver for metrics do not offer the API, and are not asked. The network client calls ``poll``
    in each of its polls; ``quiet_until_ms`` says from when on that can have an effect.

    Thread: owner.
    """

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
        """The client instance id that a broker assigned; None before the first subscription. Thread: any."""
        return self._adopted_id if self._subscription is None else self._subscription.client_instance_id

    def adopt(self, client_instance_id: uuid.UUID) -> uuid.UUID:
        """Adopt the id that a broker assigned in another request; return the id in use. Thread: any."""
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
        errors.check_move("telemetry", MOVES, self._state, target)
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
        return RequestBuilder(GetTelemetrySubscriptionsRequest(client_instance_id=known or ZERO_UUID))

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
