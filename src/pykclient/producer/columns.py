"""``send_batch``: its input as columns, its rows' way into batches, and its result."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from pykclient.argument_values import check_callable, shown, whole_number
from pykclient.clock import Clock
from pykclient.errors import (
    AuthenticationError,
    BrokerError,
    IllegalArgumentError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from pykclient.producer.future import (
    DeliveryFuture,
    FutureRecordMetadata,
    ProduceRequestResult,
    run_listeners,
    signed_milliseconds,
)
from pykclient.producer.interceptors import UNKNOWN_PARTITION
from pykclient.producer.outbox import NO_OFFSET
from pykclient.producer.partitioner.hashing import hash_partitions
from pykclient.producer.record_arguments import checked_headers, checked_partition, checked_timestamp
from pykclient.record import arrow
from pykclient.record.default_record import encode_headers
from pykclient.record.record_batch import MAX_INT32, MAX_INT64
from pykclient.record.row_columns import (
    NO_HEADERS,
    UNCHOSEN,
    BytesColumn,
    RowRun,
    Rows,
    group_rows,
    oversized,
    upper_bound,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.network.metadata import Cluster
    from pykclient.producer.record_accumulator import RecordAccumulator


class Part(NamedTuple):
    """Some rows and their partitions: one number for all, or a view of int32 in which -1 means none."""

    rows: Rows
    partition: int | None
    partitions: memoryview | None
    highest_partition: int | None


@runtime_checkable
class ColumnEncoder(Protocol):
    """Makes the bytes of keys or values out of columns of the data, as ``avro_encoder`` does."""

    def encode_rows(
        self, batch: pa.RecordBatch, topic: str, part: str, others: frozenset[str], first_row: int = 0
    ) -> BytesColumn:
        """Return a row's bytes for each row. ``others`` are the columns that other arguments name."""


class BatchInput:
    """The arguments of ``send_batch``.

    Raises:
        IllegalArgumentError: an argument has the wrong type or value.
    """

    def __init__(
        self, topic: str, data: Any, value: Any, key: Any, headers: Any, timestamp: Any, partition: Any
    ) -> None:
        self._topic = topic
        self._data = data
        #: By the names of the arguments. A single number applies to all rows; a number of another class, such as
        #: NumPy's, becomes an int here.
        self._given = given = {
            "value": value,
            "key": key,
            "headers": headers if _length(headers) != 0 or arrow.is_arrow(headers) else None,
            "timestamp": checked_timestamp(timestamp, "timestamp") if _is_number(timestamp) else timestamp,
            "partition": checked_partition(partition) if _is_number(partition) else partition,
        }
        for name, column in (given | {"headers": headers}).items():
            _check_column(column, name)
        #: The columns that arguments name, and those that encode others.
        self._named = frozenset(column for column in given.values() if isinstance(column, str))
        self.has_encoder = isinstance(value, ColumnEncoder) or isinstance(key, ColumnEncoder)

    def parts(self, now_ms: int) -> Iterable[Part]:
        """Yield the rows in parts; the parts of a stream are read on demand.

        Rows without a timestamp get ``now_ms``.
        """
        if not arrow.is_arrow(self._data):
            return [self._part_of_values(self._data, now_ms)]
        batches = arrow.to_batches(self._data)
        if batches is None:
            return [self._part_of_values(arrow.to_array(self._data), now_ms)]
        columns: dict[str, Any] = {
            name: arrow.to_array(given) if arrow.is_arrow(given) else given for name, given in self._given.items()
        }
        lengths = {name: len(given) for name, given in columns.items() if _is_column(given, name)}
        if lengths or arrow.is_in_memory(self._data):
            # All parts are checked before the first is sent.
            batches = list(batches)
            count = sum(batch.num_rows for batch in batches)
            for name, length in lengths.items():
                if length != count:
                    raise IllegalArgumentError(f"{name} has {length} rows, data has {count}")
            return list(self._parts_of_batches(batches, columns, now_ms))
        return self._parts_of_batches(batches, columns, now_ms)

    # --- rows with named columns -------------------------------------------------------------------------------

    def _parts_of_batches(self, batches: Iterable[Any], whole: dict[str, Any], now_ms: int) -> Iterator[Part]:
        begun = 0
        for batch in batches:
            count = batch.num_rows
            columns = {
                name: given.encode_rows(batch, self._topic, name, self._named, begun)
                if isinstance(given, ColumnEncoder)
                else _of_rows(batch, given, name, begun, count)
                for name, given in whole.items()
            }
            if self._given["value"] is None:
                columns["value"] = _values_of(batch)
            yield _part(count, columns, now_ms)
            begun += count

    # --- a column of values ------------------------------------------------------------------------------------

    def _part_of_values(self, values: Any, now_ms: int) -> Part:
        if _length(values) is None or isinstance(values, memoryview):
            raise IllegalArgumentError(
                f"data is {type(self._data).__name__}; it must be in Arrow's format or a sequence of bytes"
            )
        if self.has_encoder:
            raise IllegalArgumentError("an encoder needs data with named columns, such as a table")
        if self._given["value"] is not None:
            raise IllegalArgumentError("value names a column of data, which has none: it is the values itself")
        columns: dict[str, Any] = {}
        for name, given in self._given.items():
            if isinstance(given, str):
                raise IllegalArgumentError(f"{name} = {given!r} names a column, but data has none")
            columns[name] = arrow.to_array(given) if arrow.is_arrow(given) else given
            if _is_column(columns[name], name) and len(columns[name]) != len(values):
                raise IllegalArgumentError(f"{name} has {len(columns[name])} rows, data has {len(values)}")
        columns["value"] = values
        return _part(len(values), columns, now_ms)


def _length(values: Any) -> int | None:
    """Return the length of a sequence or array, or None for any other object."""
    if not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        return None
    if isinstance(values, (str, bytes, bytearray, dict)):
        return None
    try:
        return len(values)
    except TypeError:  # raised by NumPy arrays without dimensions
        return None


def _is_number(given: Any) -> bool:
    """Return True for a single number, False for a column, the name of a column, or None."""
    if given is None or isinstance(given, str) or arrow.is_arrow(given):
        return False
    return hasattr(given, "__index__") and _length(given) is None


def _check_column(given: Any, name: str) -> None:
    """Check that ``given`` is a column, the name of one, or a number, which has been checked before.

    Raises:
        IllegalArgumentError: it is none of these.
    """
    if name in ("value", "key") and isinstance(given, ColumnEncoder):
        return
    if given is None or isinstance(given, (str, int)) or arrow.is_arrow(given):
        if not isinstance(given, int) or name in ("timestamp", "partition"):
            return
    elif _length(given) is not None and (not isinstance(given, memoryview) or name in ("timestamp", "partition")):
        return
    kinds = {
        "headers": "pairs of a name and bytes for all rows, a column of such lists",
        "timestamp": "a whole number of milliseconds for all rows, a column of these or of timestamps",
        "partition": "a whole number for all rows, a column of these",
    }.get(name, "a column with bytes for each row")
    raise IllegalArgumentError(f"{name} is {shown(given)}; it must be {kinds}, or the name of a column of data")


def _is_shared_headers(given: Any) -> bool:
    """Return True for header pairs that apply to all rows, False for a column with a list of pairs for each row."""
    if arrow.is_arrow(given) or not len(given):
        return False
    first = given[0]
    return isinstance(first, (tuple, list)) and len(first) == 2 and isinstance(first[0], str)


def _is_column(given: Any, name: str) -> bool:
    if given is None or isinstance(given, (str, int, ColumnEncoder)):
        return False
    return not (name == "headers" and _is_shared_headers(given))


def _of_rows(batch: Any, given: Any, name: str, begun: int, count: int) -> Any:
    """Return the values for a batch of rows: a column of the batch, or a slice of a separate column."""
    if isinstance(given, str):
        found = batch.schema.get_all_field_indices(given)
        if len(found) != 1:
            there = f"several columns {given!r}" if found else f"no column {given!r}"
            raise IllegalArgumentError(f"{name}: data has {there}; it has {', '.join(batch.schema.names)}")
        return batch.column(found[0])
    if not _is_column(given, name):
        return given
    return given[begun : begun + count]


def _values_of(batch: Any) -> Any:
    names = batch.schema.names
    if names.count("value") == 1:
        return batch.column(names.index("value"))
    if len(names) == 1:
        return batch.column(0)
    raise IllegalArgumentError(f"value: say which column of data has the values; it has {', '.join(names)}")


def _part(count: int, columns: dict[str, Any], now_ms: int) -> Part:
    timestamps, timestamp_ms = _timestamps(columns["timestamp"], now_ms)
    rows = Rows(
        count,
        _bytes(columns["key"], "key"),
        _bytes(columns["value"], "value"),
        _headers(columns["headers"]),
        timestamps,
        timestamp_ms,
    )
    partition = columns["partition"]
    if partition is None:
        return Part(rows, None, None, None)
    if isinstance(partition, int):
        return Part(rows, partition, None, partition)
    numbers, highest = _numbers(partition, "partition", "i")
    return Part(rows, None, numbers, highest)


def _bytes(given: Any, what: str) -> BytesColumn | None:
    if given is None:
        return None
    if isinstance(given, BytesColumn):
        return given
    if arrow.is_arrow(given):
        return arrow.bytes_column(given, what)
    return BytesColumn.of(given)


def _headers(given: Any) -> BytesColumn | bytes | None:
    if given is None:
        return None
    if arrow.is_arrow(given):
        return arrow.headers_column(given, "headers")
    if _is_shared_headers(given):
        return encode_headers(checked_headers(given))
    rows = map(checked_headers, given)
    return BytesColumn.of([encode_headers(headers) if headers else NO_HEADERS for headers in rows])


def _timestamps(given: Any, now_ms: int) -> tuple[memoryview | None, int]:
    if given is None:
        return None, now_ms
    if isinstance(given, int):
        return None, given
    return _numbers(given, "timestamp", "q")[0], now_ms


def _numbers(given: Any, what: str, layout: Literal["q", "i"]) -> tuple[memoryview, int | None]:
    """Return a view of the numbers, with -1 for None, and the largest number.

    ``layout`` is "q" for 64 bits or "i" for 32 bits.
    """
    if arrow.is_arrow(given):
        return arrow.numbers_column(given, what, layout)
    most = MAX_INT64 if layout == "q" else MAX_INT32
    made = array(layout)
    highest = None
    for row, number in enumerate(given):
        if number is None:
            made.append(-1)
            continue
        try:
            plain = whole_number(number)
        except TypeError:
            plain = -1
        if not 0 <= plain <= most:
            raise IllegalArgumentError(f"{what}: row {row} has {shown(number)}; it must be a whole number, 0 to {most}")
        made.append(plain)
        highest = plain if highest is None else max(highest, plain)
    return memoryview(made), highest


#: Row numbers in the order in which the rows were sent: a range if they are adjacent.
RowNumbers = Sequence[int]


class SliceMetadata(NamedTuple):
    """Rows that were written to one batch of a partition, in order, or that failed together.

    ``base_offset`` is the offset of the first row, and the other rows have the offsets that follow; it is -1 with
    ``acks=0`` and after an error. ``partition`` is -1 for rows that failed before a partition was chosen.
    """

    topic: str
    partition: int
    rows: RowNumbers
    base_offset: int
    error: Exception | None


class BatchMetadata(NamedTuple):
    """The number of rows, and the first offset in each partition (-1 with ``acks=0``)."""

    topic: str
    num_rows: int
    base_offsets: dict[TopicPartition, int]
    slices: list[SliceMetadata]


class SentRows:
    """Adjacent rows of a batch, and the index of the first.

    ``rows`` count from ``first_row``. Thread: owner, then any.
    """

    __slots__ = ("first_row", "place", "result", "rows")

    def __init__(self, rows: RowNumbers, first_row: int, result: ProduceRequestResult, place: int) -> None:
        self.rows = rows
        self.first_row = first_row
        self.result = result
        self.place = place

    def numbers(self, start: int = 0, stop: int | None = None) -> RowNumbers:
        """Return the numbers of these rows among all rows of the call."""
        base = self.first_row
        rows = self.rows[start:stop]
        if isinstance(rows, range):
            return range(base + rows.start, base + rows.stop)
        return array("q", [base + row for row in rows])

    def parts(self) -> Iterator[SentRows]:
        """Yield the rows with the batch that holds them now: in several pieces if their batch was split."""
        rows, place = self.rows, self.place
        while len(rows):
            result, at = self.result.locate(place)
            count = len(rows)
            if result is not self.result:
                # The rows are adjacent in the batch, so search for the last of them that this part holds.
                low = 1
                while low < count:
                    middle = (low + count + 1) // 2
                    if self.result.locate(place + middle - 1)[0] is result:
                        low = middle
                    else:
                        count = middle - 1
            yield SentRows(rows[:count], self.first_row, result, at)
            rows = rows[count:]
            place += count


class RefusedRows(NamedTuple):
    """Rows that did not reach a batch, and their error."""

    partition: int
    rows: RowNumbers
    error: Exception


class BatchFuture(DeliveryFuture[BatchMetadata]):
    """A future for all records of a ``send_batch``.

    Wait with ``get`` or ``result``, ``await`` it in asyncio, or add a callback. Callbacks run where those of a
    FutureRecordMetadata do, once the last row is acknowledged or has failed. Some rows may fail while others are
    written: ``slices`` describes all rows, ``errors`` those that failed.

    Thread: any.
    """

    __slots__ = ("_clock", "_known", "_refused", "_sent", "num_rows", "topic")

    def __init__(
        self, topic: str, num_rows: int, sent: Sequence[SentRows], refused: Sequence[RefusedRows], clock: Clock
    ) -> None:
        self.topic = topic
        self.num_rows = num_rows
        self._sent = sent
        self._refused = refused
        self._clock = clock
        self._known = 0  # this many of _sent are done

    def _first_unknown(self) -> ProduceRequestResult | None:
        """Return the first result that is not set, or None."""
        for index in range(self._known, len(self._sent)):
            sent = self._sent[index]
            if not sent.result.completed:
                return sent.result
            if sent.result.parts is not None:
                for part in sent.parts():
                    if not part.result.completed:
                        return part.result
            self._known = index + 1
        return None

    # --- queries -----------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Return True once all rows are acknowledged or have failed."""
        return self._first_unknown() is None

    def succeeded(self) -> bool:
        """Return True if all rows were written; with ``acks=0``, if all were sent."""
        return self.done() and not self.errors

    def failed(self) -> bool:
        """Return True if the future is done and some rows failed."""
        return self.done() and bool(self.errors)

    @property
    def slices(self) -> list[SliceMetadata]:
        """Return all rows that are acknowledged or have failed, in the order in which they were sent."""
        known = [SliceMetadata(self.topic, each.partition, each.rows, NO_OFFSET, each.error) for each in self._refused]
        for sent in self._sent:
            for part in sent.parts():
                known += self._slices_of(part)
        return known

    def _slices_of(self, part: SentRows) -> Iterator[SliceMetadata]:
        result = part.result
        if not result.completed:
            return
        partition = result.topic_partition.partition
        if result.error_for is None:
            offset = NO_OFFSET if result.base_offset < 0 else result.base_offset + part.place
            yield SliceMetadata(self.topic, partition, part.numbers(), offset, None)
            return
        # Usually all rows have one error, but a broker may name the invalid rows.
        start = 0
        for row in range(1, len(part.rows) + 1):
            error = result.error_for(part.place + start)
            if row == len(part.rows) or not _is_same(result.error_for(part.place + row), error):
                yield SliceMetadata(self.topic, partition, part.numbers(start, row), NO_OFFSET, error)
                start = row

    @property
    def errors(self) -> list[SliceMetadata]:
        """Return the slices that failed."""
        failed = [SliceMetadata(self.topic, each.partition, each.rows, NO_OFFSET, each.error) for each in self._refused]
        for sent in self._sent:
            # Skip batches that were written, usually all of them, without looking at their rows.
            if sent.result.error_for is not None or sent.result.parts is not None:
                failed += [each for part in sent.parts() for each in self._slices_of(part) if each.error is not None]
        return failed

    @property
    def exception(self) -> Exception | None:
        """The first error; None before the future is done, and if all rows were written."""
        if not self.done():
            return None
        errors = self.errors
        return errors[0].error if errors else None

    @property
    def base_offsets(self) -> dict[TopicPartition, int]:
        """Return the first offset in each partition, of the rows that are known to be written."""
        offsets: dict[TopicPartition, int] = {}
        for each in self.slices:
            if each.error is None:
                tp = TopicPartition(each.topic, each.partition)
                offsets[tp] = min(each.base_offset, offsets.get(tp, each.base_offset))
        return offsets

    def offsets(self) -> pa.Array:
        """Return each row's offset as a pyarrow.Array of int64.

        It is null for rows that failed or are in flight, and with ``acks=0``.
        """
        from pykclient.record.arrow import nullable_int64

        offsets = array("q", (NO_OFFSET,)) * self.num_rows
        for each in self.slices:
            if each.base_offset >= 0:
                of_slice = range(each.base_offset, each.base_offset + len(each.rows))
                if isinstance(each.rows, range):
                    offsets[each.rows.start : each.rows.stop] = array("q", of_slice)
                else:
                    for row, offset in zip(each.rows, of_slice, strict=True):
                        offsets[row] = offset
        return nullable_int64(offsets)

    # --- waiting -----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds until all rows are acknowledged or have failed; return True if they are.

        None waits without a limit; a negative timeout does not wait.

        Raises:
            IllegalArgumentError: ``timeout`` is not a number.
        """
        deadline_ms = self._clock.now_ms() + signed_milliseconds(timeout)
        while (unknown := self._first_unknown()) is not None:
            if not unknown.await_(max(0, deadline_ms - self._clock.now_ms())):
                return False
        return True

    def get(self, timeout: float | None = None) -> BatchMetadata:
        """Wait up to ``timeout`` seconds for all rows, and return their metadata.

        None waits without a limit; a negative timeout does not wait.

        Raises:
            KafkaTimeoutError: ``timeout`` seconds have passed. The rows may still be delivered.
            IllegalArgumentError: ``timeout`` is not a number.
            Exception: the first of the errors that rows failed with.
        """
        if not self.wait(timeout):
            raise KafkaTimeoutError(
                f"not all of the {self.num_rows} rows for {self.topic} were acknowledged within {timeout} s; "
                "they are still on their way (delivery.timeout.ms bounds that)"
            )
        error = self.exception
        if error is not None:
            # Rows share the error: without this, each raise would lengthen its traceback.
            raise error.with_traceback(None)
        return BatchMetadata(self.topic, self.num_rows, self.base_offsets, self.slices)

    # --- callbacks ---------------------------------------------------------------------------------------------

    def add_done_callback(self, function: Callable[[Self], object]) -> Self:
        """Call ``function(future)`` once all rows are acknowledged or have failed; immediately if they already are."""
        check_callable(function, "function")

        def go_on(_anchor: FutureRecordMetadata | None = None) -> None:
            # Listens to one result at a time: the first that is not set.
            while (unknown := self._first_unknown()) is not None:
                if FutureRecordMetadata(unknown, 0, NO_OFFSET, -1, -1).add_listener(go_on):
                    return
            function(self)

        # Errors of the callback are logged and otherwise ignored, as on the sender's thread.
        nowhere = ProduceRequestResult(TopicPartition(self.topic, UNKNOWN_PARTITION))
        run_listeners([(FutureRecordMetadata(nowhere, 0, NO_OFFSET, -1, -1), go_on, False)])
        return self

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "succeeded" if not self.errors else "failed"
        return f"<BatchFuture of {self.num_rows} rows for {self.topic}: {state}>"


def _is_same(one: Exception, other: Exception) -> bool:
    return one is other or (type(one) is type(other) and one.args == other.args)


#: The largest number of rows in a window. Within a window, each partition's rows are appended together.
_WINDOW_ROWS = 65_536
#: The same for a partitioner that is asked again for each new batch.
_WINDOW_ROWS_ASKING = 500

#: The sender is woken after this many new batches: waking its thread costs more than filling a batch.
_BATCHES_TO_WAKE = 8

#: The partition number that marks rows too large for any batch.
_TOO_LARGE = -2

_INT32 = struct.Struct("=i")


class Route(NamedTuple):
    """The topic's metadata, and the time to wait for memory."""

    cluster: Cluster
    partition_count: int
    max_block_ms: int


class ColumnSenderContext(NamedTuple):
    """The components of a producer that a ColumnSender uses."""

    accumulator: RecordAccumulator
    #: Waits until the metadata has a partition or, given None, the topic.
    route: Callable[[int | None], Route]
    #: Returns a partitioner's choice for a key and a value; None stands for the built-in partitioner.
    choose: Callable[[bytes | None, bytes | None, Route], int | None] | None
    #: Tells a partitioner that chooses again for each batch that a partition's batch is full.
    on_new_batch: Callable[[Route, int], object] | None
    ensure_usable: Callable[[], None]
    wake_sender: Callable[[], None]
    max_record_size: int
    #: The largest size of a window's keys, and of its values.
    window_bytes: int
    ignores_keys: bool


class ColumnSender:
    """One call of ``send_batch``: sends rows in windows, and appends each partition's rows of a window in runs.

    Thread: owner.
    """

    def __init__(self, topic: str, context: ColumnSenderContext) -> None:
        self._topic = topic
        self._context = context
        self._append = context.accumulator.append_rows
        self._first_row = 0  # of the current part
        self._numbers = memoryview(b"")  # int32: the partitions of the current part's rows
        self._largest = 0  # upper bound of a window's row sizes, alone in a batch
        self._failure: Exception | None = None
        self._new_batches = 0  # since the sender was woken
        self.num_rows = 0
        self.sent: list[SentRows] = []
        self.refused: list[RefusedRows] = []

    def send(self, parts: Iterable[Part]) -> None:
        """Append all rows, and wait for memory and metadata where needed.

        An error before the first row is in a batch is raised. A later one becomes the error of all remaining rows, and
        no more rows are sent.
        """
        for _ in self.steps(parts):
            pass  # the pool has waited for memory itself

    def steps(self, parts: Iterable[Part]) -> Generator[int, None, None]:
        """Run ``send`` in steps, between which the caller may do other work.

        Yield the number of bytes that must become free before the next step, where the pool does not wait for them
        itself; 0 after each window.
        """
        for part in parts:
            self._first_row = self.num_rows
            self.num_rows += part.rows.count
            self._numbers = memoryview(b"")
            start = 0
            while start < part.rows.count:
                stop = self._end_of_window(part.rows, start)
                yield from self._send_or_refuse(part, start, stop)
                self._wake_sender()
                start = stop
                yield 0

    def _end_of_window(self, rows: Rows, start: int) -> int:
        stop = min(rows.count, start + (_WINDOW_ROWS if self._context.on_new_batch is None else _WINDOW_ROWS_ASKING))
        for column in (rows.values, rows.keys):
            if column is not None:
                bound = column.offsets[start] + self._context.window_bytes
                stop = max(start + 1, bisect_right(column.offsets, bound, start + 1, stop + 1) - 1)
        return stop

    def _send_or_refuse(self, part: Part, start: int, stop: int) -> Iterator[int]:
        if self._failure is not None:
            self._refuse(range(start, stop), self._failure)
            return
        sent, refused = len(self.sent), len(self.refused)
        try:
            yield from self._send_window(part, start, stop)
        except Exception as error:  # becomes the error of the remaining rows
            if not self.sent and not isinstance(error, (BrokerError, AuthenticationError)):
                raise
            self._failure = error
            handled = {row for rows in self.sent[sent:] for row in rows.numbers()}
            handled.update(row for rows in self.refused[refused:] for row in rows.rows)
            base = self._first_row
            self._refuse((row for row in range(start, stop) if base + row not in handled), error)

    # --- a window ----------------------------------------------------------------------------------------------

    def _send_window(self, part: Part, start: int, stop: int) -> Iterator[int]:
        rows, context = part.rows, self._context
        context.ensure_usable()
        route = context.route(part.highest_partition)
        self._largest = upper_bound(rows, start, stop)
        too_large: list[int] = []
        if self._largest > context.max_record_size:
            too_large = oversized(rows, start, stop, context.max_record_size)
        chosen = part.partition
        has_keys = rows.keys is not None and not context.ignores_keys
        if part.partitions is None and chosen is None and context.choose is None and not has_keys:
            chosen = UNCHOSEN
        if chosen is not None and not too_large:
            yield from self._send_run(RowRun(rows, None, start, stop, self._largest), chosen, route)
            return
        numbers = self._numbers
        if not numbers:
            numbers = self._numbers = memoryview(bytearray(4 * rows.count)).cast("i")
        if part.partitions is not None:
            numbers[start:stop] = part.partitions[start:stop]
        else:
            blank = _INT32.pack(UNCHOSEN if chosen is None else chosen)
            numbers[start:stop] = memoryview(blank * (stop - start)).cast("i")
        for row in too_large:
            numbers[row] = _TOO_LARGE
            error = RecordTooLargeError(
                f"row {self._first_row + row} for topic {self._topic!r} takes up to {rows.upper_bound(row)} bytes in a "
                f"batch, more than max.request.size or buffer.memory allows: {context.max_record_size}"
            )
            self._refuse((row,), error)
        if chosen is None and context.choose is not None:
            yield from self._choose_and_send(rows, start, stop, route)
            return
        if chosen is None and has_keys:
            hash_partitions(rows.keys, start, stop, route.partition_count, numbers)
        for number, indices in group_rows(numbers, start, stop):
            if number != _TOO_LARGE:
                yield from self._send_run(RowRun(rows, indices, 0, len(indices), self._largest), number, route)

    def _choose_and_send(self, rows: Rows, start: int, stop: int, route: Route) -> Iterator[int]:
        """Send rows without a partition, asking the application's partitioner for each row."""
        choose, numbers = self._context.choose, self._numbers
        assert choose is not None
        if self._context.on_new_batch is not None:
            yield from self._send_asking_again(rows, start, stop, route)
            return
        for row in range(start, stop):
            if numbers[row] == UNCHOSEN:
                number = choose(rows.key(row), rows.value(row), route)
                numbers[row] = UNCHOSEN if number is None else number
        for number, indices in group_rows(numbers, start, stop):
            if number != _TOO_LARGE:
                yield from self._send_run(RowRun(rows, indices, 0, len(indices), self._largest), number, route)

    def _send_asking_again(self, rows: Rows, start: int, stop: int, route: Route) -> Iterator[int]:
        """Send rows in order, with a partitioner that chooses again before each new batch (KIP-480)."""
        choose, on_new_batch, given = self._context.choose, self._context.on_new_batch, self._numbers
        assert choose is not None
        assert on_new_batch is not None

        def number_of(row: int) -> int:
            if given[row] != UNCHOSEN:
                return given[row]
            number = choose(rows.key(row), rows.value(row), route)
            return UNCHOSEN if number is None else number

        row = start
        has_asked = False  # for the next row, which may need a new batch
        while row < stop:
            number = number_of(row)
            if number == _TOO_LARGE:
                row += 1
                continue
            end = row + 1
            while not has_asked and end < stop and number_of(end) == number:
                end += 1
            may_ask = not has_asked and given[row] == UNCHOSEN and number != UNCHOSEN
            run = RowRun(rows, None, row, end, self._largest)
            if self._append_once(run, number, route, may_ask):
                has_asked = False
            elif may_ask:
                has_asked = True
                on_new_batch(route, number)
            else:
                yield self._context.accumulator.missing_bytes
            row = run.first

    # --- runs --------------------------------------------------------------------------------------------------

    def _send_run(self, run: RowRun, number: int, route: Route) -> Iterator[int]:
        """Append rows to one partition, or to the sticky partition."""
        while run.first < run.stop:
            if not self._append_once(run, number, route):
                self._wake_sender()
                yield self._context.accumulator.missing_bytes

    def _append_once(self, run: RowRun, number: int, route: Route, may_ask: bool = False) -> bool:
        """Append as many rows as one batch takes.

        Return False, with nothing appended, where this thread must not wait for memory; with ``may_ask``, where the
        rows need a new batch.
        """
        first = run.first
        partition = None if number == UNCHOSEN else number
        taken, is_new, _ = self._append(self._topic, partition, run, route.max_block_ms, route.cluster, may_ask)
        if taken is None:
            return False
        rows = range(first, run.first) if run.indices is None else run.indices[first : run.first]
        self.sent.append(SentRows(rows, self._first_row, taken.result, taken.place))
        if is_new:
            self._new_batches += 1
            if self._new_batches == _BATCHES_TO_WAKE:
                self._wake_sender()
        return True

    def _wake_sender(self) -> None:
        if self._new_batches:
            self._new_batches = 0
            self._context.wake_sender()

    def _refuse(self, rows: Iterable[int], error: Exception) -> None:
        numbers = array("q", (self._first_row + row for row in rows))
        if numbers:
            self.refused.append(RefusedRows(UNKNOWN_PARTITION, numbers, error))
