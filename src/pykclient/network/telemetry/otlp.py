"""Metrics in OpenTelemetry's wire format, OTLP, which is the payload of a push (KIP-714).

Only the few messages that metrics need are written here, so that a client needs no library for protocol buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

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
