"""Metrics in OpenTelemetry's wire format, OTLP, which is the payload of a push (KIP-714).

Only the few messages that metrics need are written here, so that a client needs no library for protocol buffers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.metrics.kafka_metric import KafkaMetric
    from pykclient.metrics.metric_name import MetricName
    from pykclient.metrics.metrics import Metrics

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
    return _text(1, point.name) + _message(7, data_point + _tag(2, _VARINT) + _varint(temporality) + is_monotonic)


def _number_data_point(point: Point) -> bytes:
    start = b"" if point.start_ms is None else _fixed64(2, "<Q", point.start_ms * _NS_PER_MS)
    time = _fixed64(3, "<Q", point.time_ms * _NS_PER_MS)
    return start + time + _fixed64(4, "<d", point.value) + _attributes(7, point.attributes)


def _attributes(field: int, attributes: Mapping[str, str]) -> bytes:
    return b"".join(_message(field, _text(1, key) + _message(2, _text(1, value))) for key, value in attributes.items())


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8", "replace"))


def _message(field: int, content: bytes) -> bytes:
    return _tag(field, _LENGTH_DELIMITED) + _varint(len(content)) + content


def _fixed64(field: int, form: str, value: float) -> bytes:
    return _tag(field, _FIXED64) + struct.pack(form, value)


def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


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
    """Reads the metrics that a subscription asks for, and keeps what deltas need. Thread: owner."""

    __slots__ = ("_created_ms", "_last", "_log", "_metrics")

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
        """Forget the last values, as the kind of sums has changed."""
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
