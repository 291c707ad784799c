from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.record import (
    Compression,
    CompressionType,
    ControlRecordType,
    DefaultRecordBatch,
    EndTransactionMarker,
    MemoryRecords,
    MemoryRecordsBuilder,
    Record,
    estimate_size_in_bytes_upper_bound,
    record_batch_overhead,
)
from pykclient.types import LOG_APPEND_TIME, NO_TIMESTAMP_TYPE
from tests.record.strategies import CODECS, legacy_batches, record_lists, v2_batches


def only_batch(builder: MemoryRecordsBuilder) -> DefaultRecordBatch:
    (batch,) = MemoryRecords(builder.build()).batches()
    batch.ensure_valid()
    assert isinstance(batch, DefaultRecordBatch)
    return batch


@given(v2_batches())
def test_v2_batches_round_trip(records_and_batch: tuple[list[Record], bytes]) -> None:
    records, data = records_and_batch
    (batch,) = MemoryRecords(data).batches()
    batch.ensure_valid()
    assert batch.records() == records
    assert list(batch) == records
    assert batch.first_record() == records[0]
    assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
    assert batch.count_or_none == len(records)
    assert batch.max_timestamp == max(record.timestamp for record in records)


@given(legacy_batches())
def test_old_formats_round_trip(records_and_batch: tuple[list[Record], bytes]) -> None:
    records, data = records_and_batch
    batches = list(MemoryRecords(data).batches())
    for batch in batches:
        batch.ensure_valid()
    assert list(MemoryRecords(data).records()) == records
    assert batches[0].base_offset == records[0].offset
    assert batches[-1].last_offset == records[-1].offset


@given(record_lists(), st.sampled_from((0, 1, 2)))
def test_computed_sizes_equal_written_bytes(records: list[Record], magic: int) -> None:
    if magic < 2:
        records = [record._replace(headers=()) for record in records]
    builder = MemoryRecordsBuilder(magic=magic, base_offset=records[0].offset)
    total = record_batch_overhead(magic, CompressionType.NONE)
    for record in records:
        size = builder.append_with_offset(*record)
        total += size
        bound = estimate_size_in_bytes_upper_bound(magic, builder.compression, record.key, record.value, record.headers)
        assert size + record_batch_overhead(magic, CompressionType.NONE) <= bound
        assert builder.estimated_size_in_bytes == total
    assert len(builder.build()) == total


# --- room


@given(record_lists(), st.integers(61, 2000), st.sampled_from(CODECS), st.sampled_from((0, 1, 2)))
def test_try_append_equals_has_room_for_and_append(records: list[Record], limit: int, codec: str, magic: int) -> None:
    if magic < 2:
        records = [record._replace(headers=()) for record in records]
        codec = "gzip" if codec == "zstd" else codec
    one, other = (
        MemoryRecordsBuilder(magic=magic, compression=Compression.of(codec), write_limit=limit) for _ in range(2)
    )
    for builder in (one, other):
        builder.set_estimated_compression_ratio(0.6)
    for record in records:
        size = one.append(*record[1:]) if one.has_room_for(*record[1:]) else 0
        assert other.try_append(*record[1:]) == size
        assert one.num_records == other.num_records
        assert one.is_full == other.is_full
        if one.num_records > 1 and size:
            assert one.estimated_size_in_bytes <= limit
    assert one.build() == other.build()


def test_the_first_record_always_fits() -> None:
    builder = MemoryRecordsBuilder(write_limit=1)
    assert not builder.is_full
    assert builder.has_room_for(0, None, b"x" * 1000)
    assert builder.try_append(0, None, b"x" * 1000) > 1000
    assert builder.is_full
    assert not builder.has_room_for(0, None, None)
    assert builder.try_append(0, None, None) == 0
    assert builder.num_records == 1


def test_a_batch_is_filled_to_the_last_byte() -> None:
    size = MemoryRecordsBuilder().append(0, None, b"x" * 50)
    builder = MemoryRecordsBuilder(write_limit=61 + 3 * size)
    assert [builder.try_append(0, None, b"x" * 50) for _ in range(4)] == [size, size, size, 0]
    assert len(builder.build()) == 61 + 3 * size


def test_the_estimate_follows_the_ratio() -> None:
    builder = MemoryRecordsBuilder(compression=Compression.of("gzip"), write_limit=1000)
    builder.append(0, None, bytes(800))
    uncompressed = builder.uncompressed_bytes_written - 61
    assert builder.estimated_size_in_bytes == 61 + int(uncompressed * 1.05)
    assert not builder.has_room_for(0, None, bytes(800))
    builder.set_estimated_compression_ratio(0.1)
    assert builder.estimated_size_in_bytes == 61 + int(uncompressed * (0.1 * 1.05))
    assert builder.has_room_for(0, None, bytes(800))
    builder.close()
    assert builder.estimated_size_in_bytes == len(builder.build())
    assert builder.compression_ratio == pytest.approx((len(builder.build()) - 61) / uncompressed)
    plain = MemoryRecordsBuilder(write_limit=1000)
    plain.append(0, None, b"")
    before = plain.estimated_size_in_bytes
    plain.set_estimated_compression_ratio(0.1)
    assert plain.estimated_size_in_bytes == before
    assert (plain.is_compressed, builder.is_compressed) == (False, True)


# --- the buffer


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 10, 61, 200, 5000])
def test_given_buffer_is_overwritten_from_its_start(codec: str, size: int) -> None:
    buffer = bytearray(b"\xee" * size)
    builder = MemoryRecordsBuilder(buffer, compression=Compression.of(codec))
    expected = MemoryRecordsBuilder(compression=Compression.of(codec))
    for each in (builder, expected):
        for number in range(10):
            each.append(1000 + number, b"key", b"value %d" % number)
    view = builder.build()
    assert view == expected.build()
    assert len(buffer) >= size
    if size >= len(view):
        assert view.obj is buffer
        assert buffer[len(view) :] == b"\xee" * (size - len(view))


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_given_buffer_that_cannot_grow_is_replaced(codec: str, magic: int) -> None:
    buffer = bytearray(100)
    somebody_s_view = memoryview(buffer)
    data = random.Random(1).randbytes(100)
    builder = MemoryRecordsBuilder(buffer, magic=magic, compression=Compression.of(codec))
    for _ in range(3):
        builder.append(0, None, data)
    assert [record.value for record in MemoryRecords(builder.build()).records()] == [data] * 3
    assert len(somebody_s_view) == 100


def test_keys_and_values_are_copied() -> None:
    builder = MemoryRecordsBuilder()
    key, value = bytearray(b"key"), bytearray(b"value")
    builder.append(0, memoryview(key), value, [("h", b"value")])
    key[:] = b"xxx"
    value[:] = b"xxxxx"
    assert only_batch(builder).records() == [Record(0, 0, b"key", b"value", (("h", b"value"),))]


def test_null_is_not_empty() -> None:
    builder = MemoryRecordsBuilder()
    builder.append(0, None, b"")
    builder.append(0, b"", None, [("n", None), ("e", b"")])
    assert only_batch(builder).records() == [
        Record(0, 0, None, b""),
        Record(1, 0, b"", None, (("n", None), ("e", b""))),
    ]


# --- states


def test_closed_builder_accepts_no_records() -> None:
    builder = MemoryRecordsBuilder()
    builder.append(5, b"k", b"v")
    builder.close_for_record_appends()
    builder.close_for_record_appends()
    assert builder.is_full
    assert not builder.is_closed
    assert not builder.has_room_for(0, None, None)
    assert builder.try_append(0, None, None) == 0
    with pytest.raises(IllegalStateError, match="closed for appends"):
        builder.append(0, None, None)
    builder.set_producer_state(7, 1, 3, False)
    builder.close()
    builder.close()
    first = bytes(builder.build())
    assert bytes(builder.build()) == first
    assert (builder.producer_id, builder.producer_epoch, builder.base_sequence) == (7, 1, 3)
    with pytest.raises(IllegalStateError, match="producer state"):
        builder.set_producer_state(7, 1, 3, False)
    with pytest.raises(IllegalStateError, match="last offset"):
        builder.override_last_offset(9)


@pytest.mark.parametrize("codec", CODECS)
def test_producer_state_can_be_rewritten(codec: str) -> None:
    builder = MemoryRecordsBuilder(compression=Compression.of(codec), producer_id=1, producer_epoch=0, base_sequence=10)
    builder.append(5, b"k", b"v")
    records = only_batch(builder).records()
    builder.reopen_and_rewrite_producer_state(2, 1, 0, True)
    assert not builder.is_closed
    batch = only_batch(builder)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (2, 1, 0, True)
    assert batch.records() == records


@pytest.mark.parametrize("codec", CODECS)
def test_aborted_builder_refuses_calls(codec: str) -> None:
    builder = MemoryRecordsBuilder(compression=Compression.of(codec))
    builder.append(5, b"k", b"v")
    builder.abort()
    assert builder.is_full
    for call in (
        builder.build,
        builder.close,
        lambda: builder.append(0, None, None),
        lambda: builder.reopen_and_rewrite_producer_state(1, 1, 1, False),
    ):
        with pytest.raises(IllegalStateError):
            call()


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_builder_without_records_builds_no_bytes(magic: int, codec: str) -> None:
    builder = MemoryRecordsBuilder(magic=magic, compression=Compression.of(codec))
    assert len(builder.build()) == 0
    assert builder.estimated_size_in_bytes == 0


def test_last_offset_can_be_overridden() -> None:
    builder = MemoryRecordsBuilder(base_offset=5, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2)
    builder.append(5, b"k", b"v")
    builder.override_last_offset(8)
    batch = only_batch(builder)
    assert (batch.last_offset, batch.next_offset, batch.count_or_none) == (8, 9, 1)
    assert batch.last_sequence == 1


# --- what is refused


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"magic": 1, "is_transactional": True}, "does not have transactional records"),
        ({"magic": 0, "is_control_batch": True}, "does not have control records"),
        ({"magic": 1, "compression": Compression.of("zstd")}, "does not have zstd"),
        ({"magic": 1, "delete_horizon_ms": 5}, "does not have a delete horizon"),
        ({"magic": 2, "timestamp_type": NO_TIMESTAMP_TYPE}, "needs a timestamp type"),
    ],
)
def test_features_that_a_format_lacks_are_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text):
        MemoryRecordsBuilder(**config)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"is_transactional": True}, "need a producer id"),
        ({"producer_id": 5, "base_sequence": 0}, "needs an epoch"),
        ({"producer_id": 5, "producer_epoch": 0}, "sequence -1 is negative"),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "magic": 1}, "does not have producer ids"),
    ],
)
def test_impossible_producer_states_are_refused(config: dict[str, Any], text: str) -> None:
    builder = MemoryRecordsBuilder(**config)
    builder.append(0, b"k", b"v")
    with pytest.raises(IllegalArgumentError, match=text):
        builder.build()


def test_impossible_record_offsets_are_refused() -> None:
    builder = MemoryRecordsBuilder(base_offset=10)
    builder.append_with_offset(12, 0, b"k", b"v")
    for offset, text in ((12, "does not come after 12"), (11, "does not come after"), (1 << 40, "starts at 10")):
        with pytest.raises(IllegalArgumentError, match=text):
            builder.append_with_offset(offset, 0, None, None)
    with pytest.raises(IllegalArgumentError, match="timestamp -2 is negative"):
        builder.append(-2, None, None)
    for magic in (1, 2):
        with pytest.raises(IllegalArgumentError, match="more than 64 bits"):
            MemoryRecordsBuilder(magic=magic).append(1 << 63, None, None)
    with pytest.raises(IllegalArgumentError, match="must be a string, not NoneType"):
        builder.append(0, None, None, [(None, b"")])  # type: ignore[list-item]
    with pytest.raises(IllegalArgumentError, match="control"):
        builder.append_control_record(0, ControlRecordType.COMMIT, b"")
    with pytest.raises(IllegalArgumentError, match="does not have headers"):
        MemoryRecordsBuilder(magic=1).append(0, None, None, [("h", b"")])
    assert only_batch(builder).records() == [Record(12, 0, b"k", b"v")]


def test_end_of_transaction_needs_transactional_control_batch() -> None:
    marker = EndTransactionMarker(ControlRecordType.ABORT, 4)
    configs: tuple[dict[str, Any], ...] = ({}, {"producer_id": 5, "producer_epoch": 0})
    for config in configs:
        with pytest.raises(IllegalArgumentError, match="the end of a transaction needs"):
            MemoryRecordsBuilder(is_control_batch=True, **config).append_end_txn_marker(0, marker)
    builder = MemoryRecordsBuilder(is_control_batch=True, is_transactional=True, producer_id=5, producer_epoch=0)
    builder.append_end_txn_marker(7, marker)
    with pytest.raises(IllegalArgumentError, match="control records"):
        builder.try_append(0, b"k", b"v") if builder.has_room_for(0, b"k", b"v") else None
    batch = only_batch(builder)
    assert batch.is_control_batch
    assert EndTransactionMarker.deserialize(batch.records()[0]) == marker


def test_info_has_largest_timestamp_and_its_offset() -> None:
    builder = MemoryRecordsBuilder(base_offset=10)
    assert builder.info() == (-1, -1)
    for timestamp in (5, 9, 7):
        builder.append(timestamp, None, None)
    assert builder.info() == (9, 12)
    old = MemoryRecordsBuilder(base_offset=10, magic=1)
    for timestamp in (5, 9, 7):
        old.append(timestamp, None, None)
    assert old.info() == (9, 11)
    appended = MemoryRecordsBuilder(base_offset=10, timestamp_type=LOG_APPEND_TIME, log_append_time=77)
    appended.append(5, None, None)
    assert appended.info() == (77, 10)


@pytest.mark.parametrize("magic", [1, 2])
def test_reused_memory_leaves_nothing_behind(magic: int) -> None:
    batches = []
    for count, value in ((500, b"of a long batch"), (3, b"of a short one"), (0, b"")):
        builder = MemoryRecordsBuilder(magic=magic, compression=Compression.of("lz4"))
        for _ in range(count):
            builder.append(5, None, value)
        batches.append([record.value for batch in MemoryRecords(builder.build()).batches() for record in batch])
    assert batches == [[b"of a long batch"] * 500, [b"of a short one"] * 3, []]


@pytest.mark.parametrize(("is_plenty", "borrowed"), [(True, [1_500]), (False, [])])
def test_memory_is_borrowed_in_advance_only_if_plentiful(is_plenty: bool, borrowed: list[int]) -> None:
    """A batch that only may need more memory must not take it from batches that do need it."""
    lent: list[int] = []

    class Memory:
        def borrow(self, size: int, if_plenty: bool = False) -> bool:
            if if_plenty and not is_plenty:
                return False
            lent.append(size)
            return True

        def give_back(self, kept: int = 0) -> None:
            assert not kept
            lent.clear()

    builder = MemoryRecordsBuilder(
        bytearray(500),
        compression=Compression.of("gzip"),
        write_limit=500,
        lender=Memory,
        max_uncompressed_size=2_000,
    )
    builder.set_estimated_compression_ratio(0.1)
    builder.borrow_ahead()
    assert lent == borrowed
    while builder.try_append(1, None, bytes(100)):
        assert not is_plenty or lent == borrowed  # the records fit into what was borrowed ahead
    assert builder.num_records > 10
