"""Batches that an application fills itself, as with aiokafka."""

from __future__ import annotations

from array import array
from typing import Any, Generic, NamedTuple

from pykclient.clock import SYSTEM_CLOCK
from pykclient.producer import record_arguments
from pykclient.producer.record_arguments import serialize
from pykclient.record.default_record import encode_headers
from pykclient.record.record_batch import MAX_RECORD_OVERHEAD, RECORD_BATCH_OVERHEAD
from pykclient.record.row_columns import BytesColumn, RowRun, Rows, upper_bound
from pykclient.serialization import Serializer
from pykclient.types import Headers, K, V


class RecordInBatch(NamedTuple):
    """A record's place in its batch, with the fields of aiokafka's class. ``crc`` is always None."""

    offset: int
    size: int
    timestamp: int
    crc: None = None


class BatchBuilder(Generic[K, V]):
    """Records for one partition, to be sent together with ``AIOKafkaProducer.send_batch``.

    It takes up to ``batch.size`` bytes, not compressed, or one larger record. Thread: owner.
    """

    def __init__(self, max_size: int, key_serializer: Serializer[Any], value_serializer: Serializer[Any]) -> None:
        self._max_size = max_size
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[bytes] = []
        self._timestamps: list[int] = []
        self._size = RECORD_BATCH_OVERHEAD
        self._closed = False

    def append(
        self, *, timestamp: int | None, key: K | None, value: V | None, headers: Headers | None = None
    ) -> RecordInBatch | None:
        """Add a record; return its place, or None if the batch is full or closed.

        ``timestamp`` is in milliseconds since the epoch; None means now. The serializers of the producer are called,
        with an empty topic; asynchronous ones are not supported here.

        Raises:
            SerializationError: a serializer failed, or is asynchronous.
            IllegalArgumentError: an argument has the wrong type or value.
        """
        if self._closed:
            return None
        timestamp_ms = SYSTEM_CLOCK.wall_ms() if timestamp is None else record_arguments.checked_timestamp(timestamp)
        pairs = record_arguments.checked_headers(headers)
        key_bytes = serialize(self._key_serializer, "key", "", pairs, key)
        value_bytes = serialize(self._value_serializer, "value", "", pairs, value)
        encoded = encode_headers(pairs)
        size = MAX_RECORD_OVERHEAD + len(key_bytes or b"") + len(value_bytes or b"") + len(encoded)
        if self._values and self._size + size > self._max_size:
            self._closed = True
            return None
        self._keys.append(key_bytes)
        self._values.append(value_bytes)
        self._headers.append(encoded)
        self._timestamps.append(timestamp_ms)
        self._size += size
        return RecordInBatch(len(self._values) - 1, size, timestamp_ms)

    def close(self) -> None:
        """Accept no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Return True if no more records can be added."""
        return self._closed

    def size(self) -> int:
        """Return an upper bound of the batch's uncompressed size in bytes."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self._values)

    def rows(self) -> RowRun | None:
        """Close the batch, and return its records; None if there are none."""
        self._closed = True
        count = len(self._values)
        if not count:
            return None
        keys = BytesColumn.of(self._keys) if any(key is not None for key in self._keys) else None
        headers = BytesColumn.of(self._headers)
        timestamps = memoryview(array("q", self._timestamps))
        rows = Rows(count, keys, BytesColumn.of(self._values), headers, timestamps, self._timestamps[0])
        return RowRun(rows, None, 0, count, upper_bound(rows, 0, count))
