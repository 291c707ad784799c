"""Rows to send, by columns, and their encoding into batches without an object per record.

``BytesColumn`` has the layout of Arrow's large_binary; ``record/arrow.py`` converts all other types to it.
``encode_rows`` does what ``MemoryRecordsBuilder.append`` does, for a sequence of rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING

from pykclient.errors import IllegalArgumentError
from pykclient.implementation import use_compiled
from pykclient.record.record_batch import MAX_RECORD_OVERHEAD, RECORD_BATCH_OVERHEAD, VARINTS, size_of_varint

if TYPE_CHECKING:
    from pykclient.record.record_batch import Buffer


#: The end of a record without headers: their number, 0.
NO_HEADERS = b"\x00"

#: The partition number of a row before the partitioner has chosen one.
UNCHOSEN = -1


#: The bytes of a record besides its key and value, if it is one of a thousand in a batch and has no headers.
_USUAL_RECORD_OVERHEAD = 12


class BytesColumn:
    """Nullable bytes: row ``i`` is ``data[offsets[i]:offsets[i + 1]]``, or null if its bit in ``validity`` is 0.

    ``offsets`` is a view of int64; row 0 has the bit at ``validity_offset``. Thread: any, as nothing writes to it.
    """

    __slots__ = ("data", "length", "offsets", "validity", "validity_offset")

    def __init__(
        self,
        length: int,
        offsets: memoryview,
        data: Buffer,
        validity: memoryview | None = None,
        validity_offset: int = 0,
    ) -> None:
        self.length = length
        self.offsets = offsets
        self.data = memoryview(data)
        self.validity = validity
        self.validity_offset = validity_offset

    @staticmethod
    def of(values: Sequence[Buffer | None]) -> BytesColumn:
        """Return a column of copies of the values.

        Raises:
            IllegalArgumentError: a value is neither bytes-like nor None.
        """
        return BytesColumn(len(values), *gather(values))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> bytes | None:
        """Return a row's bytes.

        Raises:
            IllegalArgumentError: the offsets are outside the data.
        """
        if self.validity is not None:
            bit = self.validity_offset + row
            if not self.validity[bit >> 3] >> (bit & 7) & 1:
                return None
        start, end = self.offsets[row], self.offsets[row + 1]
        if not 0 <= start <= end <= len(self.data):
            raise IllegalArgumentError(f"row {row} is at {start} to {end} of {len(self.data)} bytes")
        return bytes(self.data[start:end])

    def size_of(self, start: int, stop: int) -> int:
        """Return the total size of some rows."""
        return self.offsets[stop] - self.offsets[start] if stop > start else 0


class Rows:
    """The columns of ``count`` records. None stands for a column of nulls or, for headers, for no headers.

    ``headers`` are the encoded headers of each row, or those of all rows. ``timestamps`` is a view of int64 in
    milliseconds since the epoch; -1 and a missing column mean ``timestamp_ms``. ``held`` belongs to the compiled
    versions, which keep the columns' addresses there.

    Thread: any, as nothing writes to it.
    """

    __slots__ = ("count", "headers", "held", "keys", "timestamp_ms", "timestamps", "values")

    def __init__(
        self,
        count: int,
        keys: BytesColumn | None,
        values: BytesColumn | None,
        headers: BytesColumn | bytes | None,
        timestamps: memoryview | None,
        timestamp_ms: int,
    ) -> None:
        self.count = count
        self.keys = keys
        self.values = values
        self.headers = headers
        self.timestamps = timestamps
        self.timestamp_ms = timestamp_ms
        self.held: object | None = None

    def key(self, row: int) -> bytes | None:
        return None if self.keys is None else self.keys[row]

    def value(self, row: int) -> bytes | None:
        return None if self.values is None else self.values[row]

    def timestamp(self, row: int) -> int:
        given = -1 if self.timestamps is None else self.timestamps[row]
        return self.timestamp_ms if given == -1 else given

    def encoded_headers(self, row: int) -> bytes:
        headers = self.headers
        if isinstance(headers, BytesColumn):
            return headers[row] or NO_HEADERS
        return headers or NO_HEADERS

    def estimated_size(self, start: int, stop: int) -> int:
        """Return the approximate size of a batch with some rows, without their headers and without compression."""
        size = RECORD_BATCH_OVERHEAD + _USUAL_RECORD_OVERHEAD * (stop - start)
        for column in (self.keys, self.values):
            if column is not None:
                size += column.size_of(start, stop)
        return size

    def upper_bound(self, row: int) -> int:
        """Return an upper bound of the size of a batch with only this row, without compression."""
        size = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD + len(self.encoded_headers(row))
        for data in (self.key(row), self.value(row)):
            size += 1 if data is None else size_of_varint(len(data)) + len(data)
        return size


class RowRun:
    """Rows of one partition to be put into batches.

    They are ``indices[first:stop]``, or ``first`` to ``stop`` without ``indices``; ``first`` advances as rows are
    appended. ``largest`` is the largest ``upper_bound`` of these rows. ``has_filled_batch`` is True if they have just
    filled a batch alone, so that no open batch has room. Thread: owner.
    """

    __slots__ = ("first", "has_filled_batch", "indices", "largest", "rows", "stop")

    def __init__(self, rows: Rows, indices: memoryview | None, first: int, stop: int, largest: int) -> None:
        self.rows = rows
        self.indices = indices
        self.first = first
        self.stop = stop
        self.largest = largest
        self.has_filled_batch = False

    def size_of_next(self, enough: int, most: int) -> int:
        """Return the size of a batch that fits the next row, and more rows up to ``enough`` bytes.

        If the remaining rows are known to take more, the batch also has room for those, up to ``most`` bytes.
        """
        remaining = self.stop - self.first
        if self.largest * remaining <= enough:
            return self.largest * remaining
        if self.largest <= enough:
            size = enough
        else:
            size = max(enough, self.rows.upper_bound(self.first if self.indices is None else self.indices[self.first]))
        if self.indices is None and size < most:
            size = max(size, min(most, self.rows.estimated_size(self.first, self.stop)))
        return size


def encode_record(
    timestamp_delta: int, offset_delta: int, key: Buffer | None, value: Buffer | None, headers: bytes
) -> bytes:
    """Return a record of format 2 with its length. ``headers`` are already encoded."""
    varints = VARINTS
    body = b"".join(
        (
            b"\x00",
            varints[timestamp_delta],
            varints[offset_delta],
            b"\x01" if key is None else varints[len(key)],
            b"" if key is None else key,
            b"\x01" if value is None else varints[len(value)],
            b"" if value is None else value,
            headers,
        )
    )
    return varints[len(body)] + body


#: The progress of an encoder: rows, end of the bytes, size of all records, the largest timestamp, and the largest
#: record.
Encoded = tuple[int, int, int, int, int]


def encode_rows(
    target: bytearray,
    position: int,
    rows: Rows,
    indices: memoryview | None,
    first: int,
    stop: int,
    base_timestamp: int,
    offset_delta: int,
    size: int,
    size_factor: float,
    room: int,
    max_size: int,
    size_limit: int,
) -> Encoded:
    """Write as many records as there is room for into ``target``, from ``position`` on. It grows if it is too short.

    They are the rows ``indices[first:stop]``, or ``first`` to ``stop`` without ``indices``. ``size`` is the size of the
    batch so far, in bytes before compression. With the next record, ``size_factor`` times that must not exceed
    ``room``, and the size itself must not exceed ``size_limit``; the first record of a batch always fits. No record
    follows the one with which the size reaches ``max_size``.

    Raises:
        BufferError: ``target`` cannot grow because there is a view of it. It may have been written to.
    """
    max_timestamp = -1
    largest = 0
    count = 0
    while first + count < stop and size < max_size:
        row = first + count if indices is None else indices[first + count]
        timestamp = rows.timestamp(row)
        record = encode_record(
            timestamp - base_timestamp,
            offset_delta + count,
            rows.key(row),
            rows.value(row),
            rows.encoded_headers(row),
        )
        if size and (int(size * size_factor) + len(record) > room or size + len(record) > size_limit):
            break
        end = position + len(record)
        target[position:end] = record
        position = end
        size += len(record)
        max_timestamp = max(max_timestamp, timestamp)
        largest = max(largest, len(record))
        count += 1
    return count, position, size, max_timestamp, largest


def _largest(column: BytesColumn, start: int, stop: int) -> int:
    """Return the size of the largest of some rows. Bytes between a null's offsets count as well.

    Raises:
        IllegalArgumentError: the offsets are outside the data.
    """
    offsets = column.offsets[start : stop + 1]
    if len(offsets) != stop + 1 - start:
        raise IndexError(f"rows {start} to {stop} are not in a column of {len(column.offsets) - 1}")
    sizes: list[int] = list(map(sub, offsets[1:], offsets))
    if offsets[0] < 0 or offsets[-1] > len(column.data) or min(sizes) < 0:
        for row, (begin, end) in enumerate(pairwise(offsets), start):
            if not 0 <= begin <= end <= len(column.data):
                raise IllegalArgumentError(f"row {row} is at {begin} to {end} of {len(column.data)} bytes")
    return max(sizes)


def upper_bound(rows: Rows, start: int, stop: int) -> int:
    """Return an upper bound for a batch of any one row: the columns' largest values plus all overhead.

    Raises:
        IllegalArgumentError: a column's offsets are outside its data.
    """
    if start >= stop:
        return 0
    headers = rows.headers
    size = (
        len(headers or NO_HEADERS) if not isinstance(headers, BytesColumn) else max(1, _largest(headers, start, stop))
    )
    for column in (rows.keys, rows.values):
        largest = 0 if column is None else _largest(column, start, stop)
        size += size_of_varint(largest) + largest
    return RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD + size


def oversized(rows: Rows, start: int, stop: int, limit: int) -> list[int]:
    """Return the rows that are too large for a batch of ``limit`` bytes, even alone and with all overhead."""
    return [row for row in range(start, stop) if rows.upper_bound(row) > limit]


def group_rows(numbers: memoryview, start: int, stop: int) -> list[tuple[int, memoryview]]:
    """Group rows by partition: return each partition in ``numbers``, which has one per row, with its rows in order.

    ``numbers`` and the rows are views of int32. Partitions are in ascending order.
    """
    groups: dict[int, array[int]] = {}
    for row in range(start, stop):
        groups.setdefault(numbers[row], array("i")).append(row)
    return [(number, memoryview(groups[number])) for number in sorted(groups)]


_MASK = (1 << 64) - 1
_MULTIPLIER = 0x9FB21C651E98DF25
_SEED = 0x9E3779B97F4A7C15


def fingerprint(rows: Rows, seed: int = 0) -> int:
    """Return the sum of the hashes of all rows, modulo 2**64, from their keys, values and headers.

    It does not depend on the order of the rows, nor on how they are divided: the fingerprints of parts add up. ``seed``
    changes all hashes. They are no protection from somebody who looks for rows with equal hashes.
    """
    total = 0
    for row in range(rows.count):
        hashed = seed & _MASK
        for data in (rows.key(row), rows.value(row), rows.encoded_headers(row)):
            hashed = _mixed(hashed, 0 if data is None else len(data) + 1)
            for start in range(0, len(data or b""), 8):
                hashed = _mixed(hashed, int.from_bytes((data or b"")[start : start + 8], "little"))
        hashed = (hashed ^ hashed >> 29) * _SEED & _MASK
        total += hashed ^ hashed >> 32
    return total & _MASK


def _mixed(hashed: int, word: int) -> int:
    hashed = ((hashed ^ word) + _SEED & _MASK) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 35


#: Offsets, data and validity of a BytesColumn.
Gathered = tuple[memoryview, bytes | bytearray, memoryview | None]


def gather(values: Sequence[Buffer | None]) -> Gathered:
    """Return the parts of a column with copies of the selected values.

    Raises:
        IllegalArgumentError: a value is neither bytes-like nor None.
    """
    ends = array("q", (0,))
    end = 0
    nulls: list[int] = []
    for row, value in enumerate(values):
        if value is None:
            nulls.append(row)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            end += value.nbytes if isinstance(value, memoryview) else len(value)
        else:
            raise IllegalArgumentError(f"row {row} is {type(value).__name__}; it must be bytes or None")
        ends.append(end)
    validity = None
    if nulls:
        bits = bytearray(b"\xff" * ((len(values) + 7) >> 3))
        for null in nulls:
            bits[null >> 3] &= ~(1 << (null & 7))
        validity = memoryview(bits)
    given = [value for value in values if value is not None] if nulls else values
    try:
        data = b"".join(given)  # type: ignore[arg-type]
    except TypeError:  # a view with gaps, as everything else was checked
        data = b"".join([bytes(value) for value in given])  # type: ignore[arg-type]
    return memoryview(ends), data, validity


def widened(offsets: memoryview) -> memoryview:
    """Return a copy of ``offsets``, a view of int32, as a view of int64."""
    return memoryview(array("q", offsets))


def gather_headers(places: memoryview, names: BytesColumn, values: BytesColumn) -> Gathered:
    """Return the parts of a column of encoded headers. Row ``i`` has those from ``places[i]`` to the next place.

    ``places`` is a view of int64.

    Raises:
        IllegalArgumentError: a header has no name, or a column's offsets are outside its data.
    """
    varints = VARINTS
    encoded: list[bytes] = []
    for start, stop in pairwise(places):
        if start >= stop:
            encoded.append(NO_HEADERS)
            continue
        if start < 0:
            raise IndexError(f"there is no header {start}")
        parts = [varints[stop - start]]
        for row in range(start, stop):
            name, value = names[row], values[row]
            if name is None:
                raise IllegalArgumentError(f"header {row} has no name")
            parts += (varints[len(name)], name, b"\x01" if value is None else varints[len(value)], value or b"")
        encoded.append(b"".join(parts))
    return gather(encoded)


use_compiled(__name__)
