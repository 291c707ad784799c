"""The receiver of the metrics that clients push (KIP-714; Java: ClientMetricsManager)."""

from __future__ import annotations

import random
import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pykclient import errors
from pykclient.record import Compression, CompressionType

#: The codecs that a receiver takes, the preferred one first, as Kafka's brokers list them.
ACCEPTED: Final = (CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY)
#: Kafka's ``telemetry.max.bytes``.
MAX_BYTES: Final = 1_048_576
_ZERO_UUID: Final = uuid.UUID(int=0)

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_DELTA: Final = 1


class PushedMetric(NamedTuple):
    """A metric in a push. ``kind`` is ``"gauge"``, ``"sum"`` or ``"delta"``."""

    name: str
    attributes: dict[str, str]
    kind: str
    value: float


class Push(NamedTuple):
    """The metrics of one push by a client. ``is_last`` is True if the client was closing."""

    client_id: str
    client_instance_id: uuid.UUID
    resource: dict[str, str]
    metrics: list[PushedMetric]
    compression: str
    is_last: bool


class TelemetryReceiver:
    """A subscription to the metrics of all clients, and their pushes. Thread: loop."""

    def __init__(self, rng: random.Random, prefixes: Sequence[str], interval_ms: int, is_delta: bool) -> None:
        """``prefixes`` begin the names of metrics, ``("*",)`` are all. ``interval_ms`` is that of pushes."""
        self._rng = rng
        self.prefixes = list(prefixes)
        self.interval_ms = interval_ms
        self.is_delta = is_delta
        self.pushes: list[Push] = []
        self._instances: set[uuid.UUID] = set()

    @property
    def subscription_id(self) -> int:
        """A number that changes with the subscription."""
        text = f"{self.prefixes} {self.interval_ms} {self.is_delta}"
        return zlib.crc32(text.encode()) & 0x7FFFFFFF

    def new_instance(self, known: uuid.UUID) -> uuid.UUID:
        """Return the id of a client: the known one, or a new one."""
        id = known if known != _ZERO_UUID else uuid.UUID(int=self._rng.getrandbits(128), version=4)
        self._instances.add(id)
        return id

    def push(
        self, client_id: str, id: uuid.UUID, subscription_id: int, codec: int, payload: bytes, *, is_last: bool
    ) -> None:
        """Take a push.

        Raises:
            InvalidRequestError: the client has no id.
            UnknownSubscriptionIdError: the subscription is another one, or the client has not fetched it here.
            UnsupportedCompressionTypeError: the codec is not accepted.
            TelemetryTooLargeError: the payload is too large.
            InvalidRecordError: the payload is not readable.
        """
        if id == _ZERO_UUID:
            raise errors.InvalidRequestError("Invalid request from the client, missing client instance id")
        if id not in self._instances or subscription_id != self.subscription_id:
            raise errors.UnknownSubscriptionIdError("")
        if codec and codec not in [accepted.id for accepted in ACCEPTED]:
            raise errors.UnsupportedCompressionTypeError("")
        if len(payload) > MAX_BYTES:
            raise errors.TelemetryTooLargeError("")
        compression = CompressionType.for_id(codec)
        try:
            resource, metrics = decode_metrics(Compression.of(compression).decompress(payload))
        except (ValueError, struct.error, IndexError) as error:
            raise errors.InvalidRecordError(f"the metrics are unreadable: {error}") from error
        self.pushes.append(Push(client_id, id, resource, metrics, compression.name, is_last))


def decode_metrics(data: bytes) -> tuple[dict[str, str], list[PushedMetric]]:
    """Return the attributes of the resource, and the metrics, of a ``MetricsData`` in OTLP's format.

    Raises:
        ValueError, struct.error, IndexError: ``data`` is malformed.
    """
    resource: dict[str, str] = {}
    metrics: list[PushedMetric] = []
    for of_resource in _all(data, 1):
        for found in _all(of_resource, 1):
            resource.update(_attributes(found, 1))
        for scope in _all(of_resource, 2):
            metrics += [_metric(metric) for metric in _all(scope, 2)]
    return resource, metrics


def _metric(data: bytes) -> PushedMetric:
    (name,) = _all(data, 1)
    kind = "gauge"
    (content, *_) = [*_all(data, 5), *_all(data, 7)]
    for field, value in _fields(content):
        if field == 2:
            kind = "delta" if value == _DELTA else "sum"
    (point,) = _all(content, 1)
    values = [value for field, value in _fields(point) if field == 4]
    (number,) = struct.unpack("<d", bytes(values[0]))
    return PushedMetric(name.decode(), _attributes(point, 7), kind, number)


def _attributes(data: bytes, field: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in _all(data, field):
        (key,), (value,) = _all(pair, 1), _all(pair, 2)
        found[key.decode()] = b"".join(_all(value, 1)).decode()
    return found


def _all(data: bytes, field: int) -> list[bytes]:
    """Return the messages and texts with this field number."""
    return [value for number, value in _fields(data) if number == field and isinstance(value, bytes)]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message of protocol buffers."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif kind == _FIXED64:
            yield number, data[at : at + 8]
            at += 8
        elif kind == _LENGTH_DELIMITED:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise ValueError(f"a field of {size} bytes in {len(data) - at}")
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"a field of kind {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
