"""Reading batches into columns in Arrow's layout, without an object per record.

``Columns`` collects the rows of many batches, and builds only the requested columns. ``ColumnCursor`` reads one batch
into it, in steps, as ``RecordCursor`` reads into ConsumerRecords. The results are plain buffers in Arrow's layout:
``record/arrow.py`` makes arrays of them, and this module does not need pyarrow. A buffer may have spare room at its
end.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from pykclient.argument_values import shown
from pykclient.errors import CorruptRecordError, IllegalArgumentError, KafkaError
from pykclient.implementation import use_compiled
from pykclient.record.default_record import (
    bytes_remain,
    ended_early,
    read_record,
)
from pykclient.record.record_batch import (
    MAGIC_VALUE_V2,
    MAX_INT32,
    MAX_INT64,
    NO_TIMESTAMP,
    Buffer,
    Span,
)
from pykclient.record.row_columns import encode_record
from pykclient.spare_buffers import take_free
from pykclient.types import Headers

if TYPE_CHECKING:
    from pykclient.record.lines import LineBuffer

#: All columns, in their default order.
COLUMN_NAMES = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)

#: Arrow's offsets within a column have 32 bits, and one record more than the bound must fit as well.
MAX_BYTES_BOUND = 1 << 30

#: A view consists of a size and either the bytes themselves, or their first four, the number of a buffer, and a
#: position.
_MAX_INLINE = 12
_INLINE = Struct("<i12s")
_REFERENCE = Struct("<i4sii")
_NULL_VIEW = bytes(16)

_INT32_ZERO = bytes(4)

#: Topic, partition, leader epoch, timestamp type.
RunKey = tuple[str, int, int, int]

_WRAP = 1 << 64


def _wrapped(number: int) -> int:
    """Wrap a sum to 64 bits, as Java does. No valid batch has such a number."""
    number &= _WRAP - 1
    return number - _WRAP if number > MAX_INT64 else number


#: Smaller buffers are not kept for reuse.
_SMALL = 64


class ColumnMemory:
    """The memory of returned columns, for reuse once nothing refers to them. Thread: owner."""

    __slots__ = ("_spares",)

    #: Buffers per purpose: one to fill, and one that the application holds meanwhile.
    _MAX_COUNT = 2
    _MAX_BYTES = 64 * 1024 * 1024

    def __init__(self) -> None:
        self._spares: dict[str, list[bytearray]] = {}

    def take(self, purposes: Iterable[str]) -> dict[str, bytearray]:
        """Return uninitialized buffers, one for each purpose."""
        taken = {}
        for purpose in purposes:
            spares = self._spares.get(purpose)
            taken[purpose] = (take_free(spares) if spares else None) or bytearray()
        return taken

    def keep(self, buffers: Mapping[str, bytearray]) -> None:
        """Keep buffers by purpose, except small ones, which are cheap to allocate."""
        for purpose, buffer in buffers.items():
            if len(buffer) > _SMALL:
                spares = self._spares.setdefault(purpose, [])
                spares.append(buffer)
                while len(spares) > self._MAX_COUNT or sum(map(len, spares)) > self._MAX_BYTES:
                    del spares[0]


def _put(buffer: bytearray, place: int, data: bytes | bytearray) -> None:
    """Write ``data`` at ``place``, which is not beyond the end."""
    buffer[place : place + len(data)] = data


def _extend_validity(validity: bytearray, rows: int, more: int, nulls: Iterable[int]) -> None:
    """Add ``more`` bits after ``rows`` bits, all set except those at ``nulls``, which are relative to ``rows``."""
    size = (rows + 7) >> 3
    _put(validity, size, b"\xff" * (((rows + more + 7) >> 3) - size))
    for null in nulls:
        validity[(rows + null) >> 3] &= ~(1 << (rows + null & 7))


class BinaryBuffers:
    """A column of bytes, with one value after the other in ``data``. Thread: owner."""

    PURPOSES: ClassVar = ("offsets", "data", "validity")

    __slots__ = ("data", "data_size", "null_count", "offsets", "rows", "validity")

    def __init__(self, memory: Mapping[str, bytearray], name: str) -> None:
        """Fill the buffers of ``memory`` whose purpose begins with ``name``."""
        self.rows = 0
        self.null_count = 0
        #: int32: the start of each value, and the end of the last one. ``validity`` has one bit per row, the lowest
        #: first; bits after the last row are set.
        self.offsets = memory[name + " offsets"]
        self.data = memory[name + " data"]
        self.validity = memory[name + " validity"]
        self.offsets[0:4] = _INT32_ZERO
        self.data_size = 0

    def extend(self, values: Sequence[Buffer | None]) -> None:
        ends = array("i")
        nulls = []
        end = self.data_size
        for row, value in enumerate(values):
            if value is None:
                nulls.append(row)
            else:
                end += len(value)
            ends.append(end)
        _put(self.data, self.data_size, b"".join([value for value in values if value is not None]))
        self.data_size = end
        _put(self.offsets, 4 * (self.rows + 1), ends.tobytes())
        _extend_validity(self.validity, self.rows, len(values), nulls)
        self.rows += len(values)
        self.null_count += len(nulls)

    def extend_spans(self, source: Buffer | None, data: bytes, spans: Sequence[Span]) -> None:  # noqa: ARG002
        """Copy the ``spans`` of ``data``, which are the bytes of ``source``."""
        self.extend([None if span is None else data[span[0] : span[1]] for span in spans])


class ViewBuffers:
    """A column of 16-byte views, which contain short values. Others refer to ``sources``.

    Received bytes are not copied. Decompressed ones are, into ``data``, whose memory is reused: fresh memory for each
    batch that a column keeps would take longer than a copy. Thread: owner.
    """

    PURPOSES: ClassVar = ("views", "validity", "data")

    __slots__ = ("_index_of_data", "data", "data_size", "null_count", "rows", "sources", "validity", "views")

    def __init__(self, memory: Mapping[str, bytearray], name: str) -> None:
        """Fill the buffers of ``memory`` whose purpose begins with ``name``."""
        self.rows = 0
        self.null_count = 0
        self.views = memory[name + " views"]
        self.validity = memory[name + " validity"]
        self.data = memory[name + " data"]
        self.data_size = 0
        #: The buffers to which the views refer. ``data`` is one of them once any view refers to it.
        self.sources: list[Buffer] = []
        self._index_of_data: int | None = None

    def next_index(self, source: Buffer | None) -> int:
        """Return the number that ``source_index`` will return."""
        if source is None:
            return len(self.sources) if self._index_of_data is None else self._index_of_data
        return len(self.sources) - (1 if self.sources and self.sources[-1] is source else 0)

    def source_index(self, source: Buffer | None) -> int:
        """Return the number of ``source`` in views; None means ``data``."""
        index = self.next_index(source)
        if index == len(self.sources):
            self.sources.append(self.data if source is None else source)
            if source is None:
                self._index_of_data = index
        return index

    def extend_spans(self, source: Buffer | None, data: bytes, spans: Sequence[Span]) -> None:
        """Add views of the ``spans`` of ``data``, which are the bytes of ``source``; None means to copy them."""
        views = bytearray()
        nulls = []
        for row, span in enumerate(spans):
            if span is None:
                nulls.append(row)
                views += _NULL_VIEW
                continue
            start, end = span
            if end - start <= _MAX_INLINE:
                views += _INLINE.pack(end - start, data[start:end])
                continue
            place = start
            if source is None:
                place = self.data_size
                _put(self.data, place, data[start:end])
                self.data_size += end - start
            views += _REFERENCE.pack(end - start, data[start : start + 4], self.source_index(source), place)
        _put(self.views, 16 * self.rows, views)
        _extend_validity(self.validity, self.rows, len(spans), nulls)
        self.rows += len(spans)
        self.null_count += len(nulls)


class HeadersBuffers:
    """A column of lists of names and values. Thread: owner."""

    __slots__ = ("names", "offsets", "values")

    def __init__(self, memory: Mapping[str, bytearray]) -> None:
        #: int32: the start of each record's headers among all headers, and the end of the last one's.
        self.offsets = memory["headers"]
        self.offsets[0:4] = _INT32_ZERO
        self.names = BinaryBuffers(memory, "header names")
        self.values = BinaryBuffers(memory, "header values")

    def extend(self, first: int, rows: Iterable[Headers]) -> None:
        """Add rows, the first of which has the number ``first``."""
        ends = array("i")
        names: list[bytes] = []
        values: list[bytes | None] = []
        before = self.names.rows
        for headers in rows:
            for name, value in headers:
                names.append(name.encode())
                values.append(value)
            ends.append(before + len(names))
        _put(self.offsets, 4 * (first + 1), ends.tobytes())
        self.names.extend(names)
        self.values.extend(values)


@functools.cache
def _purposes(names: tuple[str, ...], views: bool) -> list[str]:
    """Return the purposes of all buffers of such columns."""

    def of_bytes(name: str, kind: type[BinaryBuffers | ViewBuffers] = BinaryBuffers) -> list[str]:
        return [f"{name} {purpose}" for purpose in kind.PURPOSES]

    purposes = []
    for name in names:
        if name in ("offset", "timestamp"):
            purposes.append(name)
        elif name in ("key", "value"):
            purposes += of_bytes(name, ViewBuffers if views else BinaryBuffers)
        elif name == "headers":
            purposes += [name, *of_bytes("header names"), *of_bytes("header values")]
    return purposes


class Run:
    """Adjacent rows with the same batch properties. An epoch of -1 is unknown."""

    __slots__ = ("key", "leader_epoch", "partition", "rows", "timestamp_type", "topic")

    def __init__(self, key: RunKey) -> None:
        self.key = key
        self.topic, self.partition, self.leader_epoch, self.timestamp_type = key
        self.rows = 0


def checked_names(names: Collection[str] | None, known: tuple[str, ...] = COLUMN_NAMES) -> tuple[str, ...]:
    """Return the names of the requested columns; None means all of ``known``.

    Raises:
        IllegalArgumentError: a name is unknown or given twice, or there is none.
    """
    if names is None:
        return known
    wanted = tuple(names)
    for name in wanted:
        if name not in known:
            raise IllegalArgumentError(f"columns: there is no {shown(name)}; there are {', '.join(known)}")
    if not wanted or len(set(wanted)) < len(wanted):
        raise IllegalArgumentError("columns: name at least one, and none twice")
    return wanted


class Columns:
    """Rows of any number of batches, by columns. A column that is not requested is None, and never built.

    ``size_bytes`` is the encoded, uncompressed size of the records. A record that would exceed ``max_bytes`` is not
    read, unless it is the first; then ``is_full`` is set.

    Thread: owner.
    """

    def __init__(
        self,
        names: Collection[str] | None = None,
        max_bytes: int = MAX_BYTES_BOUND,
        views: bool = False,
        memory: ColumnMemory | None = None,
        lines: LineBuffer | None = None,
    ) -> None:
        """Prepare the buffers of the requested columns.

        ``names`` is a selection of COLUMN_NAMES; None means all. With ``views``, keys and values are not copied out of
        batches. ``memory`` is what earlier columns have left for reuse. With ``lines``, there are no columns; each row
        is added to ``lines`` as text.

        Raises:
            IllegalArgumentError: a name is unknown or given twice, or there is none.
        """
        self.names = wanted = checked_names(names) if lines is None else ()
        self.max_bytes = min(max_bytes, MAX_BYTES_BOUND)
        self.views = views
        self.memory = memory = ColumnMemory() if memory is None else memory
        self.rows = 0
        self.size_bytes = 0
        self.is_full = False
        self.runs: list[Run] = []
        self._taken = taken = memory.take(_purposes(wanted, views))
        #: int64, like the timestamps.
        self.offsets = taken.get("offset")
        self.timestamps = taken.get("timestamp")
        #: True if any timestamp is -1, which means that its record has none.
        self.has_missing_timestamps = False
        new_column = ViewBuffers if views else BinaryBuffers
        self.keys: BinaryBuffers | ViewBuffers | None = new_column(taken, "key") if "key" in wanted else None
        self.values: BinaryBuffers | ViewBuffers | None = new_column(taken, "value") if "value" in wanted else None
        self.headers = HeadersBuffers(taken) if "headers" in wanted else None
        self.lines = lines

    def give_back(self) -> None:
        """Return the memory for reuse once nothing refers to it."""
        self.memory.keep(self._taken)

    def add_run(self, key: RunKey, rows: int) -> None:
        """Set the common properties of the last ``rows`` rows."""
        if not self.runs or self.runs[-1].key != key:
            self.runs.append(Run(key))
        self.runs[-1].rows += rows

    def extend(
        self,
        source: Buffer | None,
        data: bytes,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        keys: Sequence[Span],
        values: Sequence[Span],
        headers: Sequence[Headers],
        size_bytes: int,
    ) -> None:
        """Add rows, given by columns. Spans refer to ``data``, the bytes of ``source``.

        Views may keep ``source`` in memory; None means to copy what they refer to.
        """
        if self.offsets is not None:
            _put(self.offsets, 8 * self.rows, array("q", offsets).tobytes())
        if self.timestamps is not None:
            _put(self.timestamps, 8 * self.rows, array("q", timestamps).tobytes())
            self.has_missing_timestamps = self.has_missing_timestamps or NO_TIMESTAMP in timestamps
        if self.keys is not None:
            self.keys.extend_spans(source, data, keys)
        if self.values is not None:
            self.values.extend_spans(source, data, values)
        if self.headers is not None:
            self.headers.extend(self.rows, headers)
        if self.lines is not None:
            self.lines.extend_spans(data, offsets, timestamps, keys, values, headers)
        self.rows += len(offsets)
        self.size_bytes += size_bytes


class ColumnCursor:
    """A position in a batch. ``read_into`` reads on from there, as many rows as requested.

    An undecodable record stops it: the rows before it are returned first, and the next call, like every later one,
    raises the error. The fields mean the same as in ``RecordCursor``. For old formats, ``bytes_read`` counts the size
    that the records would have in the current format.

    Thread: owner.
    """

    is_columnar: ClassVar[bool] = True

    def __init__(
        self,
        batch: Any,  # of any format
        topic: str,
        partition: int,
        from_offset: int,
        max_decompressed_bytes: int,
        data: Buffer | None = None,
    ) -> None:
        """Begin at the first record of ``batch`` whose offset is not below ``from_offset``.

        ``data`` is the decompressed records of a batch of format 2, if they are known.

        Raises:
            CorruptRecordError: the number of records in the header is negative.
        """
        self._batch = batch
        self._run: RunKey = (topic, partition, batch.partition_leader_epoch, batch.timestamp_type)
        self._limit = max_decompressed_bytes
        self._data = data
        self._bytes: bytes | None = None
        self._pos = 0
        self._failure: KafkaError | None = None
        is_legacy = batch.magic < MAGIC_VALUE_V2
        self._log_append_time: int | None = None if is_legacy else batch.log_append_time
        self._base_offset = 0 if is_legacy else batch.base_offset
        self._base_timestamp = 0 if is_legacy else batch.base_timestamp
        self._remaining = self._count = -1 if is_legacy else batch.count
        self.next_offset = from_offset
        self.bytes_read = 0
        self.records_read = 0
        self.exhausted = self._remaining == 0

    def read_into(self, columns: Columns, max_rows: int, end_offset: int = MAX_INT64) -> int:
        """Add at most ``max_rows`` rows; return their number.

        It is lower only if ``columns`` is full, at the end of the batch, or before an undecodable record. Records from
        ``end_offset`` on are not read; once they are next, ``next_offset`` is at least ``end_offset``.

        Raises:
            CorruptRecordError: the next record cannot be read.
            UnsupportedCompressionTypeError: the codec's package is not installed.
        """
        if self.exhausted or max_rows <= 0:
            return 0
        if self._data is None:
            if self._batch.magic >= MAGIC_VALUE_V2 and self._base_offset >= end_offset:
                self.next_offset = max(self.next_offset, end_offset)  # without decompressing the batch
                return 0
            self._open()
        if columns.lines is not None:
            columns.lines.record_text.set_partition(*self._run[:2])
        rows, size_bytes = columns.rows, columns.size_bytes
        failure: KafkaError | None = None
        try:
            self._decode(columns, max_rows, end_offset)
        except IndexError:
            failure = ended_early()
        except KafkaError as error:
            failure = error
        if not self._remaining and failure is None:
            failure = self._failure  # of an old format: the error after the readable records
        added = columns.rows - rows
        if failure is not None and not added:
            raise failure
        if added:
            columns.add_run(self._run, added)
            self.records_read += added
            self.bytes_read += columns.size_bytes - size_bytes
        self.exhausted = not self._remaining and failure is None
        if self.exhausted:
            self._data = self._bytes = b""
        return added

    def _open(self) -> None:
        batch = self._batch
        self._data = self._convert() if batch.magic < MAGIC_VALUE_V2 else batch.record_view(self._limit)

    def _convert(self) -> bytes:
        """Return the records of an old format in the current one, up to the first that cannot be read."""
        parts: list[bytes] = []
        try:
            for offset, timestamp, key, value, _ in self._batch.stream(self._limit):
                if not parts:
                    self._base_offset, self._base_timestamp = offset, timestamp
                if abs(offset - self._base_offset) > MAX_INT32:
                    raise CorruptRecordError(f"offset {offset} is too far from {self._base_offset} for one batch")
                parts.append(
                    encode_record(timestamp - self._base_timestamp, offset - self._base_offset, key, value, b"\x00")
                )
        except KafkaError as error:
            self._failure = error
        self._remaining = self._count = len(parts)
        return b"".join(parts)

    def _decode(self, columns: Columns, max_rows: int, end_offset: int) -> None:
        """Add the next records to ``columns``. After each row the state is consistent.

        Raises:
            CorruptRecordError: a record cannot be decoded.
            IndexError: the batch ends inside a record.
        """
        if self._bytes is None:
            self._bytes = bytes(self._data or b"")
        data = self._bytes
        # The decompressed bytes are temporary.
        source = self._data if isinstance(self._data, memoryview) else None
        log_append_time = self._log_append_time
        base_offset, base_timestamp = self._base_offset, self._base_timestamp
        wants_headers = columns.headers is not None or columns.lines is not None
        offsets: list[int] = []
        timestamps: list[int] = []
        keys: list[Span] = []
        values: list[Span] = []
        headers_of_rows: list[Headers] = []
        room = columns.max_bytes - columns.size_bytes
        is_first = not columns.rows
        next_offset = self.next_offset
        remaining = self._remaining
        total = len(data)
        begin = pos = self._pos
        size_bytes = 0
        try:
            while max_rows and remaining:
                timestamp_delta, offset_delta, key, value, headers, pos = read_record(data, pos)
                if remaining == 1 and pos != total:
                    raise bytes_remain(total - pos, self._count)
                offset = _wrapped(base_offset + offset_delta)
                if offset >= end_offset:
                    next_offset = max(next_offset, end_offset)
                    break
                if offset >= next_offset:
                    size = pos - begin
                    if size_bytes + size > room and not is_first:
                        columns.is_full = True
                        break
                    is_first = False
                    offsets.append(offset)
                    timestamps.append(
                        _wrapped(base_timestamp + timestamp_delta) if log_append_time is None else log_append_time
                    )
                    keys.append(key)
                    values.append(value)
                    if wants_headers:
                        headers_of_rows.append(headers)
                    next_offset = offset + 1
                    max_rows -= 1
                    size_bytes += size
                begin = pos
                remaining -= 1
        finally:
            self._pos = begin
            self._remaining = remaining
            self.next_offset = next_offset
            columns.extend(source, data, offsets, timestamps, keys, values, headers_of_rows, size_bytes)


def decode_batches(
    records: memoryview,
    pos: int,
    next_offset: int,
    checksum: Callable[[Buffer], int] | None,
    takes_transactional: bool,
    topic: str,
    partition: int,
    columns: Columns,
    max_rows: int,
    max_decompressed_bytes: int,
    end_offset: int = MAX_INT64,
) -> tuple[int, int, bool, bool, int, int, Buffer | None]:
    """Add up to ``max_rows`` records of the batches from ``pos`` on to ``columns``, starting with ``next_offset``.

    It stops before a batch that is not ordinary, and a cursor reads that one. Ordinary batches are data in the current
    format, with the right checksum, and either uncompressed or wanted whole. The compiled form reads them; this one
    leaves all batches to cursors.

    Args:
        checksum: computes a batch's checksum; None does not check it.
        takes_transactional: whether batches of transactions are ordinary.
        end_offset: the first offset that is not wanted.

    Returns:
        ``(pos, next_offset, is_inside, is_at_end, epoch, batch_end, data)``: the position after the last batch that was
        read to its end; the offset after the last record, or ``end_offset`` if the next record of the same batch is at
        or after it; whether the columns contain records of the batch at ``pos``; whether there is known to be no whole
        batch at ``pos``; the leader epoch of the batch before ``pos``, and the offset after it; the records of the
        batch at ``pos`` if they were decompressed, for the cursor that reads it, or None.
    """
    return pos, next_offset, False, False, -1, 0, None


use_compiled(__name__)
