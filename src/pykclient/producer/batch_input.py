"""The arguments of ``send_batch``, converted to columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from pykclient.argument_values import shown, whole_number
from pykclient.errors import IllegalArgumentError
from pykclient.producer.record_arguments import checked_headers, checked_partition, checked_timestamp
from pykclient.record import arrow
from pykclient.record.default_record import encode_headers
from pykclient.record.record_batch import MAX_INT32, MAX_INT64
from pykclient.record.row_columns import NO_HEADERS, BytesColumn, Rows


class Part(NamedTuple):
    """A part of the rows and their partitions: one number for all, or a view of int32 in which -1 means none."""

    rows: Rows
    partition: int | None
    partitions: memoryview | None
    highest_partition: int | None


class BatchInput:
    """The arguments of ``send_batch`` except the topic.

    Raises:
        IllegalArgumentError: an argument has the wrong type or value.
    """

    def __init__(self, data: Any, value: Any, key: Any, headers: Any, timestamp: Any, partition: Any) -> None:
        self._data = data
        self._value = value
        self._key = key
        self._headers = headers if _length(headers) != 0 or arrow.is_arrow(headers) else None
        # A single number applies to all rows; a number of another class, such as NumPy's, becomes an int here.
        self._timestamp = checked_timestamp(timestamp, "timestamp") if _is_number(timestamp) else timestamp
        self._partition = checked_partition(partition) if _is_number(partition) else partition
        for name, given in (
            ("value", value),
            ("key", key),
            ("headers", headers),
            ("timestamp", self._timestamp),
            ("partition", self._partition),
        ):
            _check_column(given, name)

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
            name: arrow.to_array(given) if arrow.is_arrow(given) else given
            for name, given in (
                ("value", self._value),
                ("key", self._key),
                ("headers", self._headers),
                ("timestamp", self._timestamp),
                ("partition", self._partition),
            )
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
            columns = {name: _of_rows(batch, given, name, begun, count) for name, given in whole.items()}
            if self._value is None:
                columns["value"] = _values_of(batch)
            yield _part(count, columns, now_ms)
            begun += count

    # --- a column of values ------------------------------------------------------------------------------------

    def _part_of_values(self, values: Any, now_ms: int) -> Part:
        if _length(values) is None or isinstance(values, memoryview):
            raise IllegalArgumentError(
                f"data is {type(self._data).__name__}; it must be in Arrow's format or a sequence of bytes"
            )
        if self._value is not None:
            raise IllegalArgumentError("value names a column of data, which has none: it is the values itself")
        columns = {"value": values}
        for name, given in (
            ("key", self._key),
            ("headers", self._headers),
            ("timestamp", self._timestamp),
            ("partition", self._partition),
        ):
            if isinstance(given, str):
                raise IllegalArgumentError(f"{name} = {given!r} names a column, but data has none")
            columns[name] = arrow.to_array(given) if arrow.is_arrow(given) else given
            if _is_column(columns[name], name) and len(columns[name]) != len(values):
                raise IllegalArgumentError(f"{name} has {len(columns[name])} rows, data has {len(values)}")
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
    if given is None or isinstance(given, (str, int)):
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
