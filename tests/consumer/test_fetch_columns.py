"""Decoding a response into columns at once or batch by batch gives the same result, even for corrupt input."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from pykclient.consumer.consumer_metrics import FetchMetricsAggregator, FetchMetricsManager
from pykclient.consumer.fetch_collector import ColumnsFetch, CompletedFetch, Deserializers
from pykclient.consumer.values import READ_COMMITTED, READ_UNCOMMITTED, FetchConfig
from pykclient.errors import KafkaError
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.record import Compression, MemoryRecords, Record, columns
from pykclient.record.arrow import record_batch
from pykclient.record.columns import COLUMN_NAMES, Columns
from pykclient.record.compression import GzipCompression
from pykclient.record.memory_records import DefaultRecordBatch
from pykclient.record.record_batch import MAX_INT64, crc32c
from tests.consumer.harness import TP0, Harness
from tests.consumer.responses import batch, fetch_response, marker, partition_data
from tests.record.column_state import state
from tests.record.strategies import build, legacy_batches, v2_batches
from tests.support.twins import both_forms

PYTHON, COMPILED = zip(
    *(both_forms("pykclient.record.columns", name) for name in ("ColumnCursor", "decode_batches")), strict=True
)

#: The ways to decode: pure Python, compiled batch by batch, and compiled for as many batches at once as possible.
WAYS = (PYTHON, (COMPILED[0], PYTHON[1]), COMPILED)


@contextlib.contextmanager
def decoding(way: Any) -> Iterator[None]:
    """Let batches be decoded in one of WAYS."""
    before = columns.ColumnCursor, columns.decode_batches
    vars(columns)["ColumnCursor"], columns.decode_batches = way
    try:
        yield
    finally:
        vars(columns)["ColumnCursor"], columns.decode_batches = before


def completed(records: bytes, aborted: list[tuple[int, int]], offset: int) -> CompletedFetch:
    log_context = LogContext()
    harness = Harness()
    harness.assign(TP0)
    aggregator = FetchMetricsAggregator(FetchMetricsManager(Metrics()), [TP0])
    data = partition_data(TP0, records, aborted=aborted)
    return CompletedFetch(log_context.logger(__name__), harness.subscriptions, TP0, data, aggregator, offset)


def shown(target: Columns) -> Any:
    """Return the visible content of views, because one view covers a batch and another the whole response."""
    result = record_batch(target)
    return [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in result.columns
    ]


def read(
    way: Any,
    fetch: CompletedFetch,
    config: FetchConfig,
    step: int,
    max_bytes: int,
    names: Any,
    views: bool,
    ends: list[int],
) -> Any:
    """Read a response step by step until it has failed twice, and return everything observable.

    Reads first up to each of ``ends``, then the rest.
    """
    seen: list[Any] = []
    left = [*ends, MAX_INT64]
    with decoding(way):
        failures = 0
        while not fetch.is_consumed and failures < 2:
            target = Columns(names, max_bytes, views)
            try:
                count: Any = fetch.fetch_columns(config, target, step, left[0])
            except KafkaError as error:
                failures += 1
                count = repr(error)
            rows = shown(target) if views else state(target)
            seen.append((count, fetch.next_fetch_offset, fetch.last_epoch, fetch.is_consumed, target.is_full, rows))
            while len(left) > 1 and fetch.next_fetch_offset >= left[0]:
                del left[0]
        fetch.drain()
        seen.append((fetch._records_read, fetch._bytes_read))
        return seen


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Draw batches of all kinds, with offsets in or out of order."""
    parts = []
    offset = 0
    for kind in draw(st.lists(st.sampled_from("pptmlvcc"), min_size=1, max_size=7)):
        count = draw(st.integers(1, 4))
        producer_id = draw(st.integers(1, 2))
        values = [draw(st.none() | st.binary(max_size=20)) for _ in range(count)]
        epoch = draw(st.integers(1, 2))
        if kind == "p":
            parts.append(batch(offset, values, epoch=epoch))
        elif kind == "c":
            plain = [Record(offset + i, 5, None, value) for i, value in enumerate(values)]
            codec = Compression.of(draw(st.sampled_from(("gzip", "zstd"))))
            parts.append(build(plain, compression=codec, partition_leader_epoch=epoch))
        elif kind == "t":
            parts.append(batch(offset, values, producer_id=producer_id, transactional=True, epoch=epoch))
        elif kind == "m":
            parts.append(marker(offset, producer_id, commit=draw(st.booleans())))
        else:
            parts.append(draw(legacy_batches() if kind == "l" else v2_batches())[1])
        offset += count
    return b"".join(parts)


def with_damage(records: bytes, data: st.DataObject) -> bytes:
    """Return the start of ``records``, with a few bytes changed."""
    hostile = bytearray(records)
    for _ in range(data.draw(st.integers(1, 3))):
        hostile[data.draw(st.integers(0, len(hostile) - 1))] = data.draw(st.integers(0, 255))
    return bytes(hostile[: data.draw(st.integers(1, len(hostile)))])


def with_damage_behind_the_checksum(records: bytes, data: st.DataObject) -> bytes | None:
    """Return ``records`` with bytes changed, and checksums that fit; None if they are not all in format 2."""
    hostile = bytearray(records)
    sizes = [len(each.buffer) for each in MemoryRecords(records).batches() if each.magic == 2]
    start = 0
    for size in sizes:
        if hostile[start + 16] != 2:
            return None
        for _ in range(data.draw(st.integers(0, 2))):
            place = data.draw(st.integers(23, size - 1))
            hostile[start + place] = data.draw(st.integers(0, 255))
        hostile[start + 17 : start + 21] = crc32c(bytes(hostile[start + 21 : start + size])).to_bytes(4, "big")
        start += size
    return bytes(hostile)


ways = st.tuples(
    st.integers(0, 20),  # position
    st.integers(1, 30),  # step
    st.sampled_from((1, 200, 1 << 30)),  # max_bytes
    st.none() | st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True),
    st.booleans(),  # views
    st.booleans(),  # check_crcs
    st.sampled_from((READ_COMMITTED, READ_UNCOMMITTED)),
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 10)), max_size=2),  # aborted
    st.lists(st.integers(0, 30), max_size=3).map(sorted),  # end offsets
)


def compare(records: bytes, chosen: Any) -> None:
    offset, step, max_bytes, names, views, check_crcs, isolation_level, aborted, ends = chosen
    config = FetchConfig(isolation_level=isolation_level, check_crcs=check_crcs)
    results = [
        read(way, completed(records, aborted, offset), config, step, max_bytes, names, views, ends) for way in WAYS
    ]
    assert results[1] == results[0]
    assert results[2] == results[0]


@given(answers(), ways)
def test_bulk_read_equals_batch_by_batch_read(records: bytes, chosen: Any) -> None:
    compare(records, chosen)


@given(answers(), ways, st.data())
def test_corrupt_bytes_fail_alike_on_every_path(records: bytes, chosen: Any, data: st.DataObject) -> None:
    compare(with_damage(records, data), chosen)


@given(answers(), ways, st.data())
def test_corrupt_bytes_with_valid_crc_fail_alike(records: bytes, chosen: Any, data: st.DataObject) -> None:
    hostile = with_damage_behind_the_checksum(records, data)
    if hostile is not None:
        compare(hostile, chosen)


@pytest.mark.parametrize("check_crcs", [False, True])
@pytest.mark.parametrize(("magic", "base_offset"), [(0, MAX_INT64), (1, MAX_INT64), (1, -1), (2, MAX_INT64), (2, -1)])
def test_impossible_offsets_are_refused(magic: int, base_offset: int, check_crcs: bool) -> None:
    """The CRC does not cover them, so they are checked with check.crcs=false, too."""
    records = bytearray(build([Record(0, 5, None, b"v")], magic=magic))
    records[:8] = base_offset.to_bytes(8, "big", signed=True)
    config = FetchConfig(check_crcs=check_crcs)
    for way in WAYS:
        seen = read(way, completed(bytes(records), [], 0), config, 9, 999, None, False, [])
        assert [(isinstance(step[0], str), step[1]) for step in seen[:-1]] == [(True, 0)] * 2
    fetch = completed(bytes(records), [], 0)
    with pytest.raises(KafkaError, match="offset"):
        fetch.fetch_records(config, Deserializers(), 9)


@settings(max_examples=20)
@given(st.integers(0, 1 << 30))
def test_many_batches_are_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    records = b"".join(batch(50 * number, [b"%d" % rng.randrange(1000)] * 50) for number in range(40))
    for offset, step, max_bytes, ends in (
        (0, 1 << 30, 1 << 30, []),
        (777, 333, 1 << 30, []),
        (0, 1 << 30, 3000, []),
        (100, 1 << 30, 1 << 30, [500, 777, 1999]),
    ):
        compare(records, (offset, step, max_bytes, None, False, True, READ_COMMITTED, [], ends))


@pytest.mark.parametrize("way", WAYS)
def test_columns_end_before_a_given_offset(way: Any) -> None:
    # Compacted batches have gaps between and after their records.
    sparse = b"".join(batch(start, [b"v"] * 2) for start in (0, 4, 8, 12, 20))
    config = FetchConfig()
    with decoding(way):
        for end in range(25):
            fetch = completed(sparse, [], 0)
            target = Columns(["offset"])
            fetch.fetch_columns(config, target, 100, end)
            offsets = record_batch(target)["offset"].to_pylist()
            assert offsets == [offset for offset in (0, 1, 4, 5, 8, 9, 12, 13, 20, 21) if offset < end]
            assert (fetch.next_fetch_offset, fetch.is_consumed) == (end, False) if end < 22 else (22, True)
            rest = Columns(["offset"])
            fetch.fetch_columns(config, rest, 100)
            assert len(offsets) + rest.rows == 10


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batch_beyond_the_end_is_not_decompressed(way: Any, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records = b"".join(
        build([Record(start + i, 5, None, b"v") for i in range(3)], compression=Compression.of(codec))
        for start in (0, 3)
    )
    opened: list[int] = []
    real = DefaultRecordBatch.record_view

    def record_view(batch: DefaultRecordBatch, limit: int) -> bytes | memoryview:
        opened.append(batch.base_offset)
        return real(batch, limit)

    monkeypatch.setattr(DefaultRecordBatch, "record_view", record_view)
    fetch = completed(records, [], 0)
    with decoding((way[0], PYTHON[1])):
        assert fetch.fetch_columns(FetchConfig(), Columns(), 100, 3) == 3
        assert fetch.fetch_columns(FetchConfig(), Columns(), 100, 3) == 0
        assert opened == [0]
        assert fetch.fetch_columns(FetchConfig(), Columns(), 100, 4) == 1


def test_batch_that_a_call_does_not_read_whole_is_decompressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small calls on one large batch would otherwise take quadratic time."""
    records = build([Record(i, 5, None, b"v") for i in range(100)], compression=Compression.of("gzip"))
    decompressed: list[int] = []
    real = GzipCompression.decompress

    def decompress(codec: GzipCompression, data: Any, magic: int = 2, limit: int = 1 << 20) -> bytes:
        decompressed.append(len(data))
        return real(codec, data, magic, limit)

    monkeypatch.setattr(GzipCompression, "decompress", decompress)
    for way in WAYS:
        fetch = completed(records, [], 0)
        with decoding(way):
            assert [fetch.fetch_columns(FetchConfig(), Columns(), 30) for _ in range(4)] == [30, 30, 30, 10]
        assert len(decompressed) == 1
        decompressed.clear()
        fetch = completed(records, [], 0)
        with decoding(way):
            counts = [fetch.fetch_columns(FetchConfig(), Columns(max_bytes=300), 100) for _ in range(3)]
        assert sum(counts) == 100
        assert all(0 < count < 50 for count in counts), "the columns were full before the end of the batch"
        assert len(decompressed) == 1
        decompressed.clear()


def test_views_of_a_response_share_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "decode_batches", COMPILED[1])
    records = b"".join(batch(2 * number, [b"a value that is long %d" % number] * 2) for number in range(5))
    target = Columns(["value"], views=True)
    assert completed(records, [], 0).fetch_columns(FetchConfig(), target, 100) == 10
    assert target.values is not None
    _, _, *buffers = record_batch(target)["value"].buffers()
    assert len(buffers) == 1
    assert buffers[0].size == len(records)


def test_last_record_consumes_the_fetch() -> None:
    fetch = completed(batch(0, [b"a"] * 3) + batch(3, [b"b"]), [], 0)
    assert fetch.fetch_columns(FetchConfig(), Columns(), 100) == 4
    assert fetch.is_consumed
    assert fetch.next_fetch_offset == 4


def test_truncated_last_batch_is_ignored() -> None:
    fetch = completed(batch(0, [b"a"] * 3) + batch(3, [b"b"])[:70], [], 0)
    assert fetch.fetch_columns(FetchConfig(), Columns(), 100) == 3
    assert fetch.is_consumed


def test_position_within_a_batch_has_its_epoch() -> None:
    fetch = completed(batch(0, [b"a"] * 3, epoch=1) + batch(3, [b"b"] * 3, epoch=2), [], 0)
    assert fetch.fetch_columns(FetchConfig(), Columns(), 4) == 4
    assert (fetch.next_fetch_offset, fetch.last_epoch) == (4, 2)
    assert fetch.fetch_columns(FetchConfig(), Columns(), 4) == 2


def test_a_corrupt_batch_is_told_until_it_is_passed() -> None:
    harness = Harness()
    harness.assign(TP0)
    records = batch(0, [b"a"] * 3) + batch(3, [b"b"] * 3)[:-1] + b"!" + batch(6, [b"c"])
    assert harness.fetches.create_fetch_requests() == 1
    harness.client.prepare_response(fetch_response({TP0: partition_data(TP0, records)}))
    harness.poll()

    def collect() -> ColumnsFetch:
        return harness.collector.collect_columns(harness.fetch_buffer, ColumnsFetch(Columns()), 100)

    assert collect().num_records == 3
    for _ in range(2):
        with pytest.raises(KafkaError, match=r"of test-0 at offset 3: .* CRC .* seek past it"):
            collect()
        assert harness.position(TP0) == 3
    harness.seek(TP0, 6)
    assert collect().num_records == 0  # the rest was not found and is fetched again
    assert harness.fetches.create_fetch_requests() == 1
