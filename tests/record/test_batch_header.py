"""The header of a batch, as both implementations write it."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import example, given, strategies as st

from pykclient.record.memory_records_builder import write_header
from pykclient.record.record_batch import RECORD_BATCH_OVERHEAD
from tests.support.twins import both_forms

NAMES = {
    "base_offset": 64,
    "last_offset_delta": 32,
    "attributes": 16,
    "base_timestamp": 64,
    "max_timestamp": 64,
    "producer_id": 64,
    "producer_epoch": 16,
    "base_sequence": 32,
    "partition_leader_epoch": 32,
    "count": 32,
}
PLAIN: dict[str, Any] = dict.fromkeys(NAMES, 1)


def numbers(bits: int) -> st.SearchStrategy[Any]:
    limit = 1 << (bits - 1)
    return st.integers(-limit, limit - 1) | st.sampled_from((-limit - 1, limit, 1 << 70, None, 1.5, True))


def outcome(form: Any, buffer: Any, size: Any, fields: dict[str, Any]) -> Any:
    try:
        form(buffer, size, **fields)
    except Exception as error:  # noqa: BLE001 - both must raise the same
        return type(error), str(error)
    return bytes(buffer)


@given(
    st.binary(min_size=RECORD_BATCH_OVERHEAD, max_size=200),
    st.integers(0, 210),
    st.fixed_dictionaries({name: numbers(bits) for name, bits in NAMES.items()}),
    st.sampled_from((bytearray, lambda data: memoryview(bytearray(data)))),
)
@example(bytes(100), 100, PLAIN, bytearray)
@example(bytes(100), 60, PLAIN, bytearray)
@example(bytes(100), 101, PLAIN, bytearray)
@example(bytes(100), 100, {**PLAIN, "count": 1.5}, bytearray)
def test_python_and_c_write_same_header(data: bytes, size: int, fields: dict[str, Any], kind: Any) -> None:
    python, compiled = both_forms("pykclient.record.memory_records_builder", "write_header")
    assert outcome(compiled, kind(data), size, fields) == outcome(python, kind(data), size, fields)


def test_header_fields_are_at_their_offsets() -> None:
    buffer = bytearray(RECORD_BATCH_OVERHEAD)
    fields = {name: 3 + place for place, name in enumerate(NAMES)}
    write_header(buffer, len(buffer), **fields)
    offset, length, leader_epoch, magic, _, *rest = struct.unpack(">qiibIhiqqqhii", buffer)
    assert (offset, length, leader_epoch, magic) == (3, RECORD_BATCH_OVERHEAD - 12, 11, 2)
    assert rest == [5, 4, 6, 7, 8, 9, 10, 12]
