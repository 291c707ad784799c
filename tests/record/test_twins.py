"""The compiled decoders and their pure Python twins agree on any bytes."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import sysconfig
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pykclient import consumer_record
from pykclient.consumer_record_base import FixedHeaders
from pykclient.record import Compression, CursorOwner, DefaultRecordBatch, Record
from pykclient.record.default_record import RecordCursor, encode_headers
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.memory_records_builder import compute_attributes, write_header
from pykclient.record.record_batch import MAX_INT32, MAX_INT64, RECORD_BATCH_OVERHEAD, encode_varint
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, Headers
from tests.consumer.responses import marker
from tests.record.strategies import CODECS, build, headers, nullable_bytes, record_lists, v2_batches
from tests.support.examples import examples
from tests.support.twins import both_forms, compiled_form

PythonCursor, CompiledCursor = both_forms("pykclient.record.default_record", "RecordCursor")
OWNER = CursorOwner("orders", 3)
MIN_INT32, MIN_INT64 = -MAX_INT32 - 1, -MAX_INT64 - 1


CONSUMER_RECORD: Any = compiled_form("pykclient.consumer_record").ConsumerRecord


@pytest.fixture(autouse=True)
def pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the class of compiled records where pickling looks for it, even under PYKCLIENT_IMPL=python."""
    monkeypatch.setattr(consumer_record, "ConsumerRecord", CONSUMER_RECORD)


def fields(record: ConsumerRecord[Any, Any]) -> list[tuple[type, Any]]:
    """Return all fields of a record with their types."""
    values = [getattr(record, name) for name in ConsumerRecord.__slots__]
    return [(type(value), value) for value in values]


def outcome(work: Callable[[], Any]) -> Any:
    """Return the result, or the error with all its causes."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever one raises, the other has to
        chain: list[tuple[type, str]] = []
        each: BaseException | None = error
        while each is not None:
            chain.append((type(each), str(each)))
            each = each.__cause__
        record = getattr(error, "record", None)
        return "raised", chain, None if record is None else fields(record)


def history(cursor: RecordCursor, step: int) -> list[Any]:
    """Return all results and counts of a cursor, step by step, and the error of one more call."""
    seen: list[Any] = []
    failures = 0
    while not cursor.exhausted and failures < 2:
        result = outcome(lambda: [fields(record) for record in cursor.next_records(step)])
        failures += bool(result) and result[0] == "raised"
        seen.append((result, cursor.next_offset, cursor.records_read, cursor.bytes_read, cursor.exhausted))
        assert len(seen) < 10_000
    return seen


def assert_twins(
    data: bytes | bytearray, step: int = 7, from_offset: int = 0, owner: Callable[[], CursorOwner] = lambda: OWNER
) -> list[Any]:
    """Check that both twins read the first batch in ``data`` alike and return their results.

    Each gets its own owner.
    """
    histories = [
        history(kind(DefaultRecordBatch(memoryview(data)), owner(), from_offset, 1 << 20), step)
        for kind in (CompiledCursor, PythonCursor)
    ]
    assert histories[0] == histories[1]
    return histories[0]


def assert_summaries(data: bytes, count: int, base_timestamp: int) -> None:
    python, compiled = both_forms("pykclient.record.default_record", "summarize_records")
    one, other = (
        outcome(lambda: compiled(data, count, base_timestamp)),
        outcome(lambda: python(data, count, base_timestamp)),
    )
    assert one == other
    assert type(one) is type(other)


def batch_around(
    record_data: bytes,
    count: int,
    *,
    codec: str = "none",
    base_offset: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    timestamp_type: int = CREATE_TIME,
    leader_epoch: int = -1,
) -> bytes:
    """Return a batch whose header may be wrong."""
    compression = Compression.of(codec)
    buffer = bytearray(RECORD_BATCH_OVERHEAD) + compression.compress(record_data)
    write_header(
        buffer,
        len(buffer),
        base_offset=base_offset,
        last_offset_delta=max(count - 1, 0),
        attributes=compute_attributes(compression.type, timestamp_type),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        partition_leader_epoch=leader_epoch,
        count=count,
    )
    return bytes(buffer)


# --- numbers and records that may be anything

#: Invalid or unusual varints: too long, with leading zeros, or without an end.
odd_varints = st.binary(max_size=11).map(lambda rest: bytes(byte | 0x80 for byte in rest) + b"\0") | st.sampled_from(
    (b"\x80\x00", b"\x80\x80\x00", b"\xff" * 4 + b"\x0f", b"\xff" * 4 + b"\x1f", b"\xff" * 5, b"\xff" * 9 + b"\x01")
)
int32s = st.integers(-2, 200) | st.sampled_from((MIN_INT32, MAX_INT32)) | st.integers(MIN_INT32, MAX_INT32)
int64s = int32s | st.sampled_from((MIN_INT64, MAX_INT64)) | st.integers(MIN_INT64, MAX_INT64)


@st.composite
def sized(draw: st.DrawFn) -> bytes:
    """Bytes or null as encoded, with a size that is mostly right."""
    data = draw(nullable_bytes)
    if draw(st.integers(0, 19)) == 0:
        return draw(int32s.map(encode_varint) | odd_varints) + (data or b"")
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


@st.composite
def written_records(draw: st.DrawFn) -> bytes:
    """An encoded record, mostly a valid one: each field takes any valid value, and sometimes an invalid one."""

    def number(good: st.SearchStrategy[int]) -> bytes:
        return draw(odd_varints) if draw(st.integers(0, 19)) == 0 else encode_varint(draw(good))

    if draw(st.integers(0, 9)):
        header_part = encode_headers(draw(headers))
    else:
        names = draw(st.lists(st.tuples(sized(), sized()), max_size=3))
        header_part = number(st.just(len(names)) | int32s) + b"".join(name + value for name, value in names)
    body = draw(st.binary(min_size=1, max_size=1)) + number(int64s) + number(int32s) + draw(sized()) + draw(sized())
    body += header_part
    return (encode_varint(len(body)) if draw(st.integers(0, 19)) else number(int32s)) + body


@st.composite
def written_batches(draw: st.DrawFn) -> tuple[bytes, int, int, int]:
    """The records of a batch, the claimed count, and a base timestamp and offset."""
    records = draw(st.lists(written_records(), max_size=12))
    count = len(records) if draw(st.integers(0, 9)) else draw(st.integers(-1, 40) | int32s)
    base_offset = draw(st.integers(0, 1000) | st.sampled_from((MIN_INT64, -1, MAX_INT64 - 3, MAX_INT64)))
    return b"".join(records), count, draw(int64s), base_offset


from_offsets = st.integers(0, 200) | st.sampled_from((MIN_INT64, -1, MAX_INT64, MAX_INT64 + 1, MIN_INT64 - 1))


@settings(max_examples=examples(300))
@given(written_batches(), st.integers(1, 20), from_offsets, st.booleans(), st.integers(-1, 3))
def test_twins_read_any_records_alike(
    batch: tuple[bytes, int, int, int], step: int, from_offset: int, is_append_time: bool, leader_epoch: int
) -> None:
    data, count, base_timestamp, base_offset = batch
    whole = batch_around(
        data,
        count if count >= 0 else 0,
        base_offset=base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=77,
        timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
        leader_epoch=leader_epoch,
    )
    assert_twins(whole, step, from_offset)
    assert_summaries(data, count, base_timestamp)


@given(v2_batches(), st.integers(1, 40), st.integers(0, 40))
def test_twins_read_valid_batches_alike(batch: tuple[list[Record], bytes], step: int, skipped: int) -> None:
    records, data = batch
    read = assert_twins(data, step, records[0].offset + skipped)
    assert not any(result and result[0] == "raised" for result, *_ in read)
    view = DefaultRecordBatch(memoryview(data))
    assert_summaries(view.record_data(), view.count, view.base_timestamp)


@settings(max_examples=20)
@given(record_lists(), st.integers(1, 5))
def test_twins_read_truncated_batches_alike(records: list[Record], step: int) -> None:
    data = build(records[:6])[RECORD_BATCH_OVERHEAD:][:600]
    for end in range(len(data) + 1):
        assert_twins(batch_around(data[:end], len(records[:6])), step)
        assert_summaries(data[:end], len(records[:6]), 5)


@settings(max_examples=examples(200))
@given(v2_batches(), st.data())
def test_twins_read_changed_bytes_alike(batch: tuple[list[Record], bytes], draw: st.DataObject) -> None:
    (view,) = MemoryRecords(batch[1]).batches()
    assert isinstance(view, DefaultRecordBatch)
    data = bytearray(view.record_data())
    for _ in range(draw.draw(st.integers(1, 4), "changes")):
        at = draw.draw(st.integers(0, len(data) - 1), "at")
        data[at] = draw.draw(st.integers(0, 255) | st.sampled_from((0x7F, 0x80, 0xFF)), "byte")
    codec = draw.draw(st.sampled_from(CODECS), "codec")
    count = view.count + draw.draw(st.sampled_from((0, 0, 0, -1, 1)), "more")
    assert_twins(batch_around(bytes(data), count, codec=codec), draw.draw(st.integers(1, 9), "step"))
    assert_summaries(bytes(data), count, view.base_timestamp)


@given(st.binary(max_size=200), st.integers(0, 1 << 31 - 1), int64s)
def test_twins_read_garbage_alike(garbage: bytes, count: int, base_timestamp: int) -> None:
    assert_twins(batch_around(garbage, count, base_timestamp=base_timestamp))
    assert_summaries(garbage, count, base_timestamp)


def record_of(
    *, timestamp: bytes = b"\0", offset: bytes = b"\0", key: bytes = b"\1", value: bytes = b"\1", headers: bytes = b"\0"
) -> bytes:
    body = b"\0" + timestamp + offset + key + value + headers
    return encode_varint(len(body)) + body


#: Values on both sides of each limit.
EDGES = {
    "offset of five bytes": record_of(offset=b"\xfe\xff\xff\xff\x0f"),
    "offset with bits that are cut off": record_of(offset=b"\x80\x80\x80\x80\x7f"),
    "offset of six bytes": record_of(offset=b"\x80\x80\x80\x80\x80\x00"),
    "time of ten bytes": record_of(timestamp=b"\xfe" + b"\xff" * 8 + b"\x01"),
    "time with bits that are cut off": record_of(timestamp=b"\x80" * 9 + b"\x7e"),
    "time of eleven bytes": record_of(timestamp=b"\x80" * 10 + b"\x00"),
    "numbers longer than they need be": record_of(timestamp=b"\x82\x00", offset=b"\x82\x80\x00", key=b"\x84\x00ab"),
    "no headers in five bytes": record_of(headers=b"\x80\x80\x80\x80\x00"),
    "no headers in six bytes": record_of(headers=b"\x80\x80\x80\x80\x80\x00"),
    "one header less than none": record_of(headers=b"\x01"),
    "two headers less than none": record_of(headers=b"\x03"),
    "null as a name": record_of(headers=b"\x02\x01\x01"),
    "null as a key, by another number": record_of(key=b"\x13"),
    "a name that is not UTF-8": record_of(headers=b"\x02\x04\xff\xfe\x01"),
    "half of a surrogate pair as a name": record_of(headers=b"\x02\x06\xed\xa0\x80\x01"),
    "a record of no bytes": b"\0",
    "a record of less": b"\1",
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("base", [0, MAX_INT64 - 1, MAX_INT64, MIN_INT64])
def test_twins_read_edge_cases_alike(name: str, base: int) -> None:
    for data, count in ((EDGES[name], 1), (record_of() + EDGES[name] + record_of(), 3)):
        assert_twins(batch_around(data, count, base_timestamp=base))
        assert_twins(batch_around(data, count, base_offset=base), from_offset=MIN_INT64)
        assert_summaries(data, count, base)


@pytest.mark.parametrize("delta", range(4))
def test_twins_stop_alike_at_largest_offset(delta: int) -> None:
    data = record_of() + record_of(offset=encode_varint(delta))
    ((records, next_offset, *_),) = assert_twins(batch_around(data, 2, base_offset=MAX_INT64 - 2), from_offset=5)
    assert (len(records), next_offset) == (2 if delta else 1, MAX_INT64 - 1 + delta)


def test_twins_read_control_records_alike() -> None:
    """Twins read control records alike; consumers never read control batches this way."""
    ((records, *_),) = assert_twins(marker(3, 2, commit=False))
    assert len(records) == 1


def test_twins_read_empty_batch_alike() -> None:
    assert assert_twins(batch_around(b"", 0)) == []
    assert_summaries(b"", 0, 0)
    assert_summaries(b"\0", 0, 0)


# --- deserializers


class Fussy:
    """A deserializer that fails at one call and records all calls. Thread: owner."""

    def __init__(self, fails_at: int, error: type[BaseException]) -> None:
        self.calls: list[tuple[str, Headers, bytes]] = []
        self._fails_at = fails_at
        self._error = error

    def __call__(self, topic: str, headers: Headers, data: bytes) -> str | list[bytes] | None:
        self.calls.append((topic, headers, data))
        if len(self.calls) == self._fails_at:
            raise self._error("no")
        return (None, data.hex(), [data])[len(data) % 3]


@given(
    record_lists(),
    st.integers(1, 9),
    st.tuples(st.booleans(), st.booleans()),
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.sampled_from((ValueError, IndexError, StopIteration)),
)
def test_twins_call_deserializers_alike(
    records: list[Record],
    step: int,
    given_: tuple[bool, bool],
    fails_at: tuple[int, int],
    error: type[BaseException],
) -> None:
    asked: list[Fussy] = []

    def owner() -> CursorOwner:
        pair = [Fussy(at, error) if is_given else None for at, is_given in zip(fails_at, given_, strict=True)]
        asked.extend(each for each in pair if each is not None)
        return CursorOwner("orders", 3, pair[0], pair[1])

    assert_twins(build(records, partition_leader_epoch=4), step, 0, owner)
    half = len(asked) // 2
    assert [each.calls for each in asked[:half]] == [each.calls for each in asked[half:]]


@pytest.mark.parametrize("kind", [CompiledCursor, PythonCursor])
def test_interrupted_deserializer_loses_no_record(kind: type[RecordCursor]) -> None:
    data = build([Record(offset, 5, None, b"v") for offset in range(5)])
    owner = CursorOwner("orders", 3, None, Fussy(3, KeyboardInterrupt))
    cursor = kind(DefaultRecordBatch(memoryview(data)), owner, 0, 1 << 20)
    with pytest.raises(KeyboardInterrupt):
        cursor.next_records(10)
    assert (cursor.next_offset, cursor.records_read, cursor.exhausted) == (2, 2, False)
    assert [record.offset for record in cursor.next_records(10)] == [2, 3, 4]


# --- the objects themselves


def compiled_records(owner: CursorOwner = OWNER, value: bytes = b"v") -> list[ConsumerRecord[Any, Any]]:
    data = build([Record(offset, 5, b"k", value, (("h", b"x"),)) for offset in range(50)])
    cursor: RecordCursor = CompiledCursor(DefaultRecordBatch(memoryview(data)), owner, 0, 1 << 20)
    return cursor.next_records(100)


@pytest.mark.parametrize("headers", [(), (("a", b"b"), ("c", None))])
def test_headers_of_the_given_type(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    owner = CursorOwner("orders", 3, None, None, FixedHeaders)
    data = build([Record(offset, 1, None, b"v", headers) for offset in range(3)])
    assert_twins(data, owner=lambda: owner)
    for record in compiled_records(owner):
        assert type(record.headers) is FixedHeaders


def test_records_are_ordinary_objects() -> None:
    record = compiled_records()[7]
    assert type(record) is CONSUMER_RECORD
    assert pickle.loads(pickle.dumps(record)) == record
    assert repr(record) == (
        "ConsumerRecord(topic='orders', partition=3, leader_epoch=None, offset=7, timestamp=5, timestamp_type=0, "
        "key=b'k', value=b'v', headers=[('h', b'x')], serialized_key_size=1, serialized_value_size=1, "
        "serialized_header_size=2)"
    )
    record.value = "another"
    del record.key
    assert record.value == "another"
    assert not hasattr(record, "key")


def test_records_do_not_share_header_lists() -> None:
    records: list[Any] = compiled_records()
    first, second = records[:2]
    first.headers.append(("more", None))
    assert first.headers == [("h", b"x"), ("more", None)]
    assert second.headers == [("h", b"x")]
    assert gc.is_tracked(first)


def test_gc_tracks_records_that_may_be_in_cycle() -> None:
    assert not any(gc.is_tracked(record) for record in compiled_records())
    assert not any(gc.is_tracked(record) for record in compiled_records(CursorOwner("t", 0, None, lambda *_: "text")))
    for owner in (CursorOwner("t", 0, None, lambda *_: []), CursorOwner("t", 0, lambda *_: {}, None)):
        assert all(gc.is_tracked(record) for record in compiled_records(owner))


class Watched:
    """An object that the garbage collector tracks, with weak references."""


def test_gc_tracks_record_after_assignment_of_tracked_value() -> None:
    first, second = compiled_records()[:2]
    first.value = "no part of a cycle"
    assert not gc.is_tracked(first)
    thing: Any = Watched()
    gone = weakref.ref(thing)
    thing.record = first
    first.value = thing
    second.key = second
    assert gc.is_tracked(first)
    assert gc.is_tracked(second)
    del first, second, thing
    gc.collect()
    assert gone() is None


def test_cycle_through_deserialized_value_is_collected() -> None:
    records = compiled_records(CursorOwner("t", 0, None, lambda *_: Watched()))
    gone = [weakref.ref(record.value) for record in records]
    for record in records:
        made: Any = record.value
        made.record = record
    del made, record, records
    gc.collect()
    assert [each() for each in gone] == [None] * len(gone)


class Subclass(CONSUMER_RECORD):  # type: ignore[misc]
    pass


def test_deleted_record_releases_what_it_holds() -> None:
    of_a_subclass = Subclass("t", 0, 1, 2, 3, 0, None, None, (), None, -1, -1)
    records: list[Any] = [of_a_subclass, compiled_records()[0]]
    del of_a_subclass
    while records:
        record = records.pop()
        thing = Watched()
        gone = weakref.ref(thing)
        record.value = (thing,)
        del thing
        assert gone() is not None
        del record
        assert gone() is None


def test_memory_of_deleted_records_is_reused() -> None:
    records = compiled_records()
    addresses = {id(record) for record in records}
    copies = [copy.copy(record) for record in records]
    del records
    again = compiled_records()
    assert again == copies
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):  # free-threaded Python has another allocator
        assert addresses & {id(record) for record in again}
    held = sys.getrefcount(again[0])
    assert held == 2  # the references of the list and of the call


def test_long_chain_of_records_is_released() -> None:
    chain: Any = None
    for record in (record for _ in range(2000) for record in compiled_records()):
        record.value = chain
        chain = record
    del record
    chain = None
    kept = compiled_records()
    assert kept[0].value == b"v"


def test_batch_releases_its_references() -> None:
    """References made for a batch are released with it."""
    topic = "a-topic-of-its-own-" + str(id(object()))
    owner = CursorOwner(topic, 3)
    before = sys.getrefcount(topic)
    kept = compiled_records(owner, b"a value")
    assert sys.getrefcount(topic) == before + len(kept)
    value = kept[0].value
    held = sys.getrefcount(value)
    del kept
    assert sys.getrefcount(topic) == before
    assert sys.getrefcount(value) == held - 1
