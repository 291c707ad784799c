"""Arrow columns of ConsumerRecords, for consumers that need an object for each record anyway."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from pykclient.record.arrow import nullable, pyarrow, schema
from pykclient.record.columns import COLUMN_NAMES

if TYPE_CHECKING:
    import pyarrow as pa

    from pykclient.types import ConsumerRecord

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
        return _topics(pa, records)
    if name == "headers":
        return _headers(pa, field.type, records)
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


def _topics(pa: Any, records: Records) -> Any:
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


def _headers(pa: Any, type: Any, records: Records) -> Any:
    headers = [record.headers for record in records]
    pairs = [pair for each in headers for pair in each]
    header = type.value_type
    names = _binary(pa, header.field(0).type, [name.encode() for name, _ in pairs])
    values = _binary(pa, header.field(1).type, [value for _, value in pairs])
    structs = pa.StructArray.from_arrays([names, values], fields=[header.field(0), header.field(1)])
    return pa.Array.from_buffers(
        type, len(records), [None, pa.py_buffer(_offsets(map(len, headers)))], 0, children=[structs]
    )
