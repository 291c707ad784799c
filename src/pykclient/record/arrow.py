"""Conversion between columns and Arrow arrays. The only module that imports pyarrow, on first use."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from pykclient.errors import IllegalArgumentError
from pykclient.implementation import use_compiled
from pykclient.record.columns import COLUMN_NAMES, BinaryBuffers, Columns, ViewBuffers
from pykclient.record.record_batch import MAX_INT64
from pykclient.record.row_columns import BytesColumn, gather_headers, widened

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.types import ConsumerRecord

_INT32 = struct.Struct("=i")
_INT8 = struct.Struct("=b")
_TIMESTAMPS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
#: A size below which copying does not matter.
_SMALL = 16 * 1024


def pyarrow() -> Any:
    """Import and return pyarrow.

    Raises:
        ImportError: it is not installed; the text says how to install it.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(f"columns need pyarrow ({error}); install it: pip install 'pykclient[arrow]'") from error
    return pyarrow


@lru_cache(maxsize=16)
def schema(names: tuple[str, ...] = COLUMN_NAMES, views: bool = False) -> pa.Schema:
    """Return the schema of ``record_batch`` for such columns."""
    pa = pyarrow()
    binary = pa.binary_view() if views else pa.binary()
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    fields = {
        "topic": pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        "partition": pa.field("partition", pa.int32(), nullable=False),
        "offset": pa.field("offset", pa.int64(), nullable=False),
        "timestamp": pa.field("timestamp", pa.timestamp("ms", "UTC")),
        "timestamp_type": pa.field("timestamp_type", pa.int8(), nullable=False),
        "key": pa.field("key", binary),
        "value": pa.field("value", binary),
        "headers": pa.field("headers", pa.list_(pa.field("item", header, nullable=False)), nullable=False),
        "leader_epoch": pa.field("leader_epoch", pa.int32()),
    }
    return pa.schema([fields[name] for name in names])


@lru_cache(maxsize=16)
def _types(names: tuple[str, ...], views: bool) -> tuple[pa.DataType, ...]:
    return tuple(field.type for field in schema(names, views))


def record_batch(columns: Columns) -> pa.RecordBatch:
    """Return the rows of ``columns``, taking ownership of their buffers: nothing may be added afterwards.

    Their memory is reused for later columns once nothing refers to the batch.
    """
    pa = pyarrow()
    names, views = columns.names, columns.views
    types = _types(names, views)
    batch = pa.RecordBatch.from_arrays(arrays(columns, types, pa.Array._import_from_c), schema=schema(names, views))
    columns.give_back()
    return batch


def _buffer(pa: Any, buffer: bytearray | None, size: int) -> Any:
    """Return the first ``size`` bytes of ``buffer``.

    The result is a copy if so little is used that it should not retain the buffer.
    """
    assert buffer is not None
    if len(buffer) > _SMALL and size < len(buffer) >> 1:
        return pa.py_buffer(bytes(memoryview(buffer)[:size]))
    return pa.py_buffer(memoryview(buffer)[:size])


def arrays(
    columns: Columns,
    types: tuple[pa.DataType, ...],
    import_array: Callable[[int, pa.DataType], pa.Array],
) -> list[pa.Array]:
    """Return the array of each column. ``import_array`` is pyarrow's ``Array._import_from_c``."""
    return [array_of(columns, name, type) for name, type in zip(columns.names, types, strict=True)]


def array_of(columns: Columns, name: str, type: Any) -> Any:
    """Return the array of the column ``name``."""
    pa = pyarrow()
    rows = columns.rows
    runs = columns.runs
    if name == "topic":
        return _topics(pa, columns)
    if name == "partition":
        return _of_runs(pa, type, _INT32, [(run.partition, run.rows) for run in runs], rows)
    if name == "timestamp_type":
        return _of_runs(pa, type, _INT8, [(run.timestamp_type, run.rows) for run in runs], rows)
    if name == "leader_epoch":
        return _null_where_missing(
            pa,
            _of_runs(pa, type, _INT32, [(run.leader_epoch, run.rows) for run in runs], rows),
            min([run.leader_epoch for run in runs], default=0) < 0,
        )
    if name == "offset":
        return pa.Array.from_buffers(type, rows, [None, _buffer(pa, columns.offsets, 8 * rows)], 0)
    if name == "timestamp":
        times = pa.Array.from_buffers(pa.int64(), rows, [None, _buffer(pa, columns.timestamps, 8 * rows)], 0)
        return _null_where_missing(pa, times, columns.has_missing_timestamps).view(type)
    if name == "headers":
        return _headers(pa, type, columns)
    return _bytes(pa, type, columns.keys if name == "key" else columns.values)


def _of_runs(pa: Any, type: Any, layout: struct.Struct, runs: Sequence[tuple[int, int]], rows: int) -> Any:
    data = b"".join([layout.pack(value) * count for value, count in runs])
    return pa.Array.from_buffers(type, rows, [None, pa.py_buffer(data)], 0)


def _topics(pa: Any, columns: Columns) -> Any:
    numbers: dict[str, int] = {}
    runs = [(numbers.setdefault(run.topic, len(numbers)), run.rows) for run in columns.runs]
    indices = _of_runs(pa, pa.int32(), _INT32, runs, columns.rows)
    # pa.array() would import pandas if it is installed.
    names = [topic.encode() for topic in numbers]
    buffers = [array("i", (0, *accumulate(map(len, names)))), b"".join(names)]
    topics = pa.Array.from_buffers(pa.string(), len(names), [None, *map(pa.py_buffer, buffers)], 0)
    return pa.DictionaryArray.from_arrays(indices, topics, safe=False)  # without looking at each index again


def _null_where_missing(pa: Any, array: Any, has_missing: bool) -> Any:
    """Return the array with -1 replaced by null."""
    if not has_missing:
        return array
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(array, -1), pa.scalar(None, array.type), array)


def nullable(numbers: Any) -> Any:
    """Return an array of numbers with -1 replaced by null."""
    return _null_where_missing(pyarrow(), numbers, True)


def _bytes(pa: Any, type: Any, column: BinaryBuffers | ViewBuffers | None) -> Any:
    assert column is not None
    rows = column.rows
    validity = _buffer(pa, column.validity, (rows + 7) >> 3) if column.null_count else None
    if isinstance(column, ViewBuffers):
        sources = [
            _buffer(pa, column.data, column.data_size) if source is column.data else pa.py_buffer(source)
            for source in column.sources
        ]
        buffers = [validity, _buffer(pa, column.views, 16 * rows), *sources]
    else:
        offsets = _buffer(pa, column.offsets, 4 * (rows + 1))
        buffers = [validity, offsets, _buffer(pa, column.data, column.data_size)]
    return pa.Array.from_buffers(type, rows, buffers, column.null_count)


def _headers(pa: Any, type: Any, columns: Columns) -> Any:
    headers = columns.headers
    assert headers is not None
    header = type.value_type
    names = _bytes(pa, header.field(0).type, headers.names)
    values = _bytes(pa, header.field(1).type, headers.values)
    pairs = pa.StructArray.from_arrays([names, values], fields=[header.field(0), header.field(1)])
    return pa.Array.from_buffers(
        type, columns.rows, [None, _buffer(pa, headers.offsets, 4 * (columns.rows + 1))], 0, children=[pairs]
    )


# --- from Arrow ------------------------------------------------------------------------------------------------------


def nullable_int64(numbers: array[int]) -> pa.Array:
    """Return an array of numbers; -1 becomes null."""
    pa = pyarrow()
    made = pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)], 0)
    return _null_where_missing(pa, made, -1 in numbers)


def is_arrow(data: object) -> bool:
    """Return whether the object supports Arrow's C interface (PyCapsule protocol)."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def is_in_memory(data: object) -> bool:
    """Return whether the data is in memory, and not a stream of unknown length.

    Tables and columns can export a stream as well. But numpy can make an array of those: pyarrow's, polars' and pandas'
    have its method, readers and DuckDB's relations do not.
    """
    return hasattr(data, "__array__") or not hasattr(data, "__arrow_c_stream__")


def to_batches(data: Any) -> Any:
    """Return an iterator over the record batches of a table, a stream or one batch; None for an array.

    Raises:
        IllegalArgumentError: Arrow does not accept the data.
    """
    pa = pyarrow()
    if isinstance(data, pa.RecordBatch):
        return iter((data,))
    batches: Any
    if isinstance(data, pa.Table):
        batches = data.to_batches()
        return iter(batches)
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        if not pa.types.is_struct(data.type):
            return None
        batches = pa.Table.from_struct_array(data).to_batches()
        return iter(batches)
    try:
        if hasattr(data, "__arrow_c_stream__"):
            try:
                batches = pa.RecordBatchReader.from_stream(data)
                return iter(batches)
            except pa.ArrowInvalid:  # a stream of something other than rows
                return to_batches(pa.chunked_array(data))
        return to_batches(pa.array(data))
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise IllegalArgumentError(f"{type(data).__name__} is not for Arrow: {error}") from error


def to_array(data: Any) -> Any:
    """Return one pyarrow.Array for any array in Arrow's interface, chunked or not.

    Raises:
        IllegalArgumentError: it is not an array.
    """
    pa = pyarrow()
    if isinstance(data, pa.Array):
        return data
    try:
        if isinstance(data, pa.ChunkedArray):
            chunked = data
        elif hasattr(data, "__arrow_c_array__"):
            return pa.array(data)
        else:
            chunked = pa.chunked_array(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise IllegalArgumentError(f"{type(data).__name__} is not an array for Arrow: {error}") from error
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    # Dictionaries differ from chunk to chunk, and some cannot be unified.
    return pa.concat_arrays([decoded(chunk) for chunk in chunked.chunks] or [pa.nulls(0)])


def decoded(array: Any) -> Any:
    """Return the array without its dictionary.

    A dictionary may contain values twice, null among its values, and indices of any width.
    """
    return takeable(array.dictionary).take(array.indices) if pyarrow().types.is_dictionary(array.type) else array


def takeable(array: Any) -> Any:
    """Cast the values to a type for which Arrow implements ``take``, unlike views such as polars' categories."""
    pa = pyarrow()
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(array.type) else array


def _cast(array: Any, target: Any, what: str) -> Any:
    pa = pyarrow()
    try:
        return array.cast(target)
    except pa.ArrowException as error:
        raise IllegalArgumentError(f"{what} cannot be of type {array.type}: {error}") from error


def bytes_column(array: Any, what: str) -> BytesColumn:
    """Return a column of bytes from an array of any binary or string type, or a dictionary of these.

    The bytes of binary and string types are not copied.

    Raises:
        IllegalArgumentError: the array has another type.
    """
    pa = pyarrow()
    array = decoded(array)
    kind = array.type
    types = pa.types
    is_bytes = (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )
    if not is_bytes:
        raise IllegalArgumentError(f"{what} is of type {array.type}; it must be binary or string: encode it first")
    has_narrow_offsets = types.is_binary(kind) or types.is_string(kind)
    if types.is_null(kind):
        array = pa.nulls(len(array), pa.large_binary())
    elif not (has_narrow_offsets or types.is_large_binary(kind) or types.is_large_string(kind)):
        # The usual kinds need no cast: the first one of a process imports pyarrow.compute, which takes 8 MB.
        array = _cast(array, pa.large_binary(), what)
    validity, offsets, data = array.buffers()
    layout: Literal["i", "q"] = "i" if has_narrow_offsets else "q"
    view = memoryview(bytes(8)) if offsets is None or not offsets.size else memoryview(offsets)
    places = view.cast("B").cast(layout)
    start = array.offset if len(places) > array.offset else 0
    places = places[start : start + len(array) + 1]
    return BytesColumn(
        len(array),
        widened(places) if has_narrow_offsets else places,
        b"" if data is None else data,
        None if validity is None or not array.null_count else memoryview(validity).cast("B"),
        array.offset,
    )


def numbers_column(array: Any, what: str, layout: Literal["q", "i"]) -> tuple[memoryview, int | None]:
    """Return a view of int64 (``layout`` q) or int32 (i), with -1 for null, and the highest number, if there is one.

    With ``layout`` q, timestamps of any unit are accepted too, and are rounded down to milliseconds.

    Raises:
        IllegalArgumentError: the array has another type, or a number in it is negative or too large.
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    array = decoded(array)
    per_second = 0
    if pa.types.is_timestamp(array.type) and layout == "q":
        per_second = _TIMESTAMPS_PER_SECOND[array.type.unit]
        # The number behind a timestamp is UTC whatever its time zone is. Arrow's casts and temporal functions go by
        # local time instead, and fail on an hour that comes twice and on zones that this machine does not know.
        array = array.view(pa.int64())
    elif not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        kinds = "whole numbers or timestamps" if layout == "q" else "whole numbers"
        raise IllegalArgumentError(f"{what} is of type {array.type}; it must have {kinds}")
    array = _cast(array, pa.int64() if layout == "q" else pa.int32(), what)
    lowest, highest = (scalar.as_py() for scalar in pc.min_max(array).values())
    if lowest is not None and lowest < 0:
        raise IllegalArgumentError(f"{what} has {lowest}, which is negative")
    if per_second and highest is not None:
        array, highest = _in_milliseconds(array, per_second, highest, what)
    if array.null_count:
        array = array.fill_null(-1)
    buffer = array.buffers()[1]
    view = memoryview(b"" if buffer is None else buffer).cast("B").cast(layout)
    return view[array.offset : array.offset + len(array)], highest


def _in_milliseconds(array: Any, per_second: int, highest: int, what: str) -> tuple[Any, int]:
    """Return timestamps that are not negative in milliseconds, rounded down, and the highest of them."""
    import pyarrow.compute as pc

    if per_second >= 1000:
        divisor = per_second // 1000
        return (array if divisor == 1 else pc.divide(array, divisor)), highest // divisor
    highest *= 1000
    if highest > MAX_INT64:
        raise IllegalArgumentError(f"{what} has {highest // 1000} seconds, which are too many milliseconds for 64 bits")
    return pc.multiply_checked(array, 1000), highest


def headers_column(array: Any, what: str) -> BytesColumn | None:
    """Return each row's encoded headers, from a list of structs of a name and bytes, or a map of these.

    Raises:
        IllegalArgumentError: the array has another type.
    """
    pa = pyarrow()
    import pyarrow.compute as pc

    types = pa.types
    if types.is_null(array.type):
        return None
    if types.is_map(array.type):
        array = array.cast(
            pa.list_(pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)]))
        )
    is_list = types.is_list(array.type) or types.is_large_list(array.type) or types.is_list_view(array.type)
    if not is_list or not types.is_struct(array.type.value_type) or array.type.value_type.num_fields != 2:
        raise IllegalArgumentError(
            f"{what} is of type {array.type}; it must be a list of structs of a name and bytes, or a map"
        )
    # Without the values under null rows and null pairs.
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    names, values = array.flatten().flatten()
    if names.null_count:
        raise IllegalArgumentError(f"{what} has a header without a name")
    of_names = f"the names of {what}"
    # A string must be UTF-8, which bytes need not be.
    names = _cast(decoded(names), pa.large_binary(), of_names)
    names = bytes_column(_cast(names, pa.large_string(), of_names), of_names)  # bytes in UTF-8 can be cast to a string
    places = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    view = memoryview(places.buffers()[1]).cast("B").cast("q")[: len(places)]
    return BytesColumn(len(array), *gather_headers(view, names, bytes_column(values, f"the values of {what}")))


if TYPE_CHECKING:
    Records = Sequence[ConsumerRecord[Any, Any]]
#: How often the record has been delivered, in a share group.
DELIVERY_COUNT: Final = "delivery_count"
#: All columns, in their default order.
SHARE_COLUMN_NAMES: Final = (*COLUMN_NAMES, DELIVERY_COUNT)
#: The layouts of columns of numbers, as of the module ``array``.
_NUMBERS: Final = {
    "partition": "i",
    "offset": "q",
    "timestamp": "q",
    "timestamp_type": "b",
    "leader_epoch": "i",
    DELIVERY_COUNT: "h",
}


def batch_of_records(records: Records, names: Sequence[str]) -> pa.RecordBatch:
    """Return the columns ``names`` of records whose keys and values are bytes or None."""
    pa = pyarrow()
    fields = [
        pa.field(name, pa.int16(), nullable=False) if name == DELIVERY_COUNT else schema((name,)).field(0)
        for name in names
    ]
    arrays = [_array(pa, records, field) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(pa: Any, records: Records, field: Any) -> Any:
    name = field.name
    if name == "topic":
        return _topics_of_records(pa, records)
    if name == "headers":
        return _headers_of_records(pa, field.type, records)
    values: Callable[[Any], Any] = attrgetter(name)
    if name not in _NUMBERS:
        return _binary(pa, field.type, [values(record) for record in records])
    layout = _NUMBERS[name]
    if field.nullable:
        numbers = array(layout, [-1 if (value := values(record)) is None else value for record in records])
        type = pa.int64() if layout == "q" else field.type
        return nullable(_numbers(pa, type, numbers)).view(field.type)
    return _numbers(pa, field.type, array(layout, map(values, records)))


def _numbers(pa: Any, type: Any, numbers: array[int]) -> Any:
    return pa.Array.from_buffers(type, len(numbers), [None, pa.py_buffer(numbers)], 0)


def _topics_of_records(pa: Any, records: Records) -> Any:
    numbers: dict[str, int] = {}
    indices = array("i", [numbers.setdefault(record.topic, len(numbers)) for record in records])
    topics = _binary(pa, pa.string(), [topic.encode() for topic in numbers])
    return pa.DictionaryArray.from_arrays(_numbers(pa, pa.int32(), indices), topics)


def _binary(pa: Any, type: Any, values: Sequence[bytes | None]) -> Any:
    # pa.array() would import pandas if it is installed.
    present = [value or b"" for value in values]
    offsets = _offsets(map(len, present))
    nulls = values.count(None)
    validity = None
    if nulls:
        bits = bytearray((len(values) + 7) >> 3)
        for number, value in enumerate(values):
            if value is not None:
                bits[number >> 3] |= 1 << (number & 7)
        validity = pa.py_buffer(bits)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(present))]
    return pa.Array.from_buffers(type, len(values), buffers, nulls)


def _offsets(sizes: Iterable[int]) -> array[int]:
    return array("i", (0, *accumulate(sizes)))


def _headers_of_records(pa: Any, type: Any, records: Records) -> Any:
    headers = [record.headers for record in records]
    pairs = [pair for each in headers for pair in each]
    header = type.value_type
    names = _binary(pa, header.field(0).type, [name.encode() for name, _ in pairs])
    values = _binary(pa, header.field(1).type, [value for _, value in pairs])
    structs = pa.StructArray.from_arrays([names, values], fields=[header.field(0), header.field(1)])
    return pa.Array.from_buffers(
        type, len(records), [None, pa.py_buffer(_offsets(map(len, headers)))], 0, children=[structs]
    )


use_compiled(__name__)
