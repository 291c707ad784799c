"""Compaction."""

from __future__ import annotations

from hypothesis import given, strategies as st

from pykclient.record.compression import Compression
from pykclient.record.memory_records import MemoryRecords
from pykclient.testing.log.log_cleaner import log_to_clean
from pykclient.testing.log.log_types import AbortedTxn, AppendOrigin, FetchIsolation
from tests.testing.log.support import NOW_MS, LogBox, batch, marker, read_all

_DAY_MS = 86_400_000


def compacted(config: dict[str, str] | None = None) -> LogBox:
    return LogBox({"cleanup.policy": "compact", **(config or {})})


def kept(box: LogBox) -> list[tuple[int, str, str | None]]:
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in box.records()
    ]


def test_last_record_of_each_key_keeps_its_offset() -> None:
    box = compacted()
    box.append_keys(("a", "1"), ("b", "1"))
    box.append_keys(("a", "2"))
    box.append_keys(("c", "1"), ("b", "2"))
    size = box.log.size
    box.log.roll()
    assert box.clean() == size - box.log.size > 0
    assert kept(box) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2")]
    assert box.budget.held_bytes == box.log.size
    assert (box.log.log_start_offset, box.log.log_end_offset) == (0, 5)
    # A read from an offset that was removed starts at the next one.
    assert MemoryRecords(b"".join(box.log.read(0, 1 << 20).records)).first_batch() is not None
    assert box.append_keys(("d", "1")) == range(5, 6)


def test_active_segment_is_not_compacted() -> None:
    box = compacted()
    box.append_keys(("a", "1"), ("a", "2"))
    assert box.clean() == 0
    assert len(kept(box)) == 2
    box.log.roll()
    box.append_keys(("a", "3"))
    box.clean()
    assert kept(box) == [(1, "a", "2"), (2, "a", "3")]


def test_unreplicated_and_new_records_are_not_compacted() -> None:
    box = compacted({"min.compaction.lag.ms": "1000"})
    box.append_keys(("a", "1"), ("a", "2"))
    box.log.roll()
    assert box.clean() == 0
    box.clock.advance(1001)
    box.log.append_as_leader(batch(((b"a", b"3"),), timestamps=[box.clock.wall_ms()]), 0)
    box.log.roll()
    box.clock.advance(1001)
    box.clean()
    assert kept(box) == [(1, "a", "2"), (2, "a", "3")]
    box.log.update_high_watermark(3)
    box.clean()
    assert kept(box) == [(2, "a", "3")]


def test_tombstones_stay_for_delete_retention_ms() -> None:
    box = compacted({"delete.retention.ms": "1000"})
    box.append_keys(("a", "1"), ("b", "1"), ("a", None))
    box.append_keys(("c", "1"))
    box.log.roll()
    box.clean()
    assert kept(box) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    first = next(MemoryRecords(b"".join(read_all(box.log))).batches())
    assert first.delete_horizon_ms == NOW_MS + 1000
    first.ensure_valid()
    assert [record.timestamp for record in first] == [NOW_MS, NOW_MS]
    box.clock.advance(999)
    box.clean()
    assert len(kept(box)) == 3
    box.clock.advance(1)
    box.clean()
    assert kept(box) == [(1, "b", "1"), (3, "c", "1")]


def test_last_batch_before_the_limit_stays_as_a_header() -> None:
    box = compacted({"delete.retention.ms": "0"})
    box.append_keys(("a", "1"))
    box.append_keys(("a", None))
    box.log.roll()
    for _ in range(2):
        box.clean()
    (left,) = MemoryRecords(b"".join(read_all(box.log))).batches()
    left.ensure_valid()
    assert (left.base_offset, left.count_or_none, left.producer_id) == (1, 0, -1)
    # Readers skip it.
    assert box.log.read(0, 100).next_offset == 2


def test_records_after_a_truncation_are_compacted() -> None:
    box = compacted()
    for key in "aaxy":
        box.append_keys((key, "1"))
    box.log.roll()
    box.clean()
    box.log.truncate_to(3)
    assert box.log.cleaner_checkpoint == 3
    for key in "ab":
        box.append_keys((key, "2"))
    box.log.roll()
    box.clean()
    assert kept(box) == [(2, "x", "1"), (3, "a", "2"), (4, "b", "2")]


def test_batches_keep_their_frame_and_compression() -> None:
    box = compacted()
    records = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")]
    box.append(batch(records, compression=Compression.of("zstd"), producer=(7, 2, 10)), epoch=3)
    box.append_keys(("c", "5"))
    box.append_keys(("z", "9"))
    box.log.roll()
    box.clean()
    first, *_ = MemoryRecords(b"".join(read_all(box.log))).batches()
    first.ensure_valid()
    assert (first.base_offset, first.last_offset, first.base_sequence, first.last_sequence) == (0, 3, 10, 13)
    assert (first.producer_id, first.producer_epoch, first.partition_leader_epoch) == (7, 2, 3)
    assert first.compression_type.name == "zstd"
    assert [record.offset for record in first] == [1, 2]


def test_last_sequence_of_a_producer_survives() -> None:
    box = compacted()
    box.append(batch(((b"a", b"1"),), producer=(7, 0, 0)))
    box.append(batch(((b"a", b"2"),), producer=(7, 0, 1)))
    box.append_keys(("a", "3"))
    box.log.roll()
    box.clean()
    assert kept(box) == [(2, "a", "3")]
    batches = list(MemoryRecords(b"".join(read_all(box.log))).batches())
    assert [(one.base_offset, one.count_or_none) for one in batches] == [(1, 0), (2, 1)]
    batches[0].ensure_valid()
    box.disk.directories[box.log.topic_partition].producer_snapshots.clear()
    box.open()
    box.log.update_high_watermark(3)
    assert box.log.append_as_leader(batch(((b"a", b"2"),), producer=(7, 0, 1)), 0).duplicate
    assert box.append(batch(((b"a", b"4"),), producer=(7, 0, 2))) == range(3, 4)


def test_small_segments_are_merged() -> None:
    box = compacted({"internal.segment.bytes": "300"})
    for number in range(20):
        box.append_keys((f"k{number % 3}", str(number)))
    before = len(box.log.segments)
    # At their original size, the first compaction cannot merge any.
    box.clean()
    assert len(box.log.segments) == before
    box.clean()
    assert len(box.log.segments) == 2
    bases = [segment.base_offset for segment in box.log.segments]
    assert bases == sorted(set(bases))
    assert {(key, value) for _, key, value in kept(box)} >= {("k0", "18"), ("k1", "19"), ("k2", "17")}


def test_aborted_transactions_are_removed_and_markers_expire() -> None:
    box = compacted({"delete.retention.ms": "1000"})
    box.append(batch(((b"a", b"1"),), producer=(7, 0, 0), transactional=True))
    box.append(marker(7, 0, commit=True), origin=AppendOrigin.COORDINATOR)
    box.append(batch(((b"a", b"bad"),), producer=(8, 0, 0), transactional=True))
    box.append(marker(8, 0, commit=False), origin=AppendOrigin.COORDINATOR)
    box.append(batch(((b"b", b"1"),), producer=(7, 0, 1), transactional=True))
    box.append(marker(7, 0, commit=True), origin=AppendOrigin.COORDINATOR)
    box.append(batch(((b"b", b"2"),), producer=(8, 0, 1), transactional=True))
    box.append(marker(8, 0, commit=True), origin=AppendOrigin.COORDINATOR)
    box.append_keys(("z", "1"))
    box.log.roll()
    box.clean()
    data = b"".join(read_all(box.log))
    assert [one.base_offset for one in MemoryRecords(data).batches()] == [0, 1, 3, 4, 5, 6, 7, 8]
    info = box.log.read(0, 1 << 20, FetchIsolation.TXN_COMMITTED)
    assert info.aborted_transactions == [AbortedTxn(8, 2, 3, 4)]
    # The next compaction finds a marker whose transaction has no records left.
    box.clean()
    assert box.log.read(0, 1 << 20, FetchIsolation.TXN_COMMITTED).aborted_transactions == []
    data = b"".join(read_all(box.log))
    aborted = [one for one in MemoryRecords(data).batches() if one.base_offset == 3]
    assert aborted[0].delete_horizon_ms == NOW_MS + 1000
    aborted[0].ensure_valid()
    box.clock.advance(1000)
    box.clean()
    left = [one.base_offset for one in MemoryRecords(b"".join(read_all(box.log))).batches()]
    assert left == [0, 1, 4, 5, 6, 7, 8]


def test_open_transaction_limits_compaction() -> None:
    box = compacted()
    box.append_keys(("a", "1"), ("a", "2"))
    box.log.roll()
    box.append(batch(((b"a", b"3"),), producer=(7, 0, 0), transactional=True))
    box.log.roll()
    box.append_keys(("a", "4"))
    box.log.roll()
    box.clean()
    assert kept(box) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


def test_cleanable_ratio_and_lag_decide_on_compaction() -> None:
    box = compacted({"max.compaction.lag.ms": str(_DAY_MS)})
    box.append_keys(("a", "1"))
    box.log.roll()
    to_clean = log_to_clean(box.log, NOW_MS)
    assert (to_clean.first_dirty_offset, to_clean.first_uncleanable_offset) == (0, 1)
    assert to_clean.cleanable_ratio == 1.0
    assert not to_clean.needs_compaction_now
    assert log_to_clean(box.log, NOW_MS + _DAY_MS + 1).needs_compaction_now
    box.clean()
    to_clean = log_to_clean(box.log, NOW_MS)
    assert (to_clean.first_dirty_offset, to_clean.first_uncleanable_offset) == (1, 1)
    assert to_clean.cleanable_ratio == 0.0
    box.append_keys(("b", "1"))
    box.log.roll()
    assert log_to_clean(box.log, NOW_MS).cleanable_ratio == 0.5
    assert box.open().cleaner_checkpoint == 1
    box.log.truncate_to(0)
    assert box.log.cleaner_checkpoint == 0


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "x", "yy"])), min_size=1, max_size=4),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(0, 11), max_size=6),
)
def test_any_log_keeps_the_latest_value_of_each_key(
    batches: list[list[tuple[str, str | None]]], rolls: list[int]
) -> None:
    box = compacted({"delete.retention.ms": "0", "internal.segment.bytes": "400"})
    appended: list[tuple[int, str, str | None]] = []
    for index, records in enumerate(batches):
        offsets = box.append_keys(*records)
        appended += [(offset, *record) for offset, record in zip(offsets, records, strict=True)]
        if index in rolls:
            box.log.roll()
    latest: dict[str, tuple[int, str, str | None]] = {record[1]: record for record in appended}
    box.log.roll()
    end = box.log.log_end_offset
    for _ in range(3):
        before = box.log.size
        freed = box.clean()
        assert freed == before - box.log.size
        box.clock.advance(1)
    # Tombstones stay until the compaction after the first one that saw them.
    assert kept(box) == sorted(record for record in latest.values() if record[2] is not None)
    assert (box.log.log_end_offset, box.budget.held_bytes) == (end, box.log.size)
    assert b"".join(read_all(box.open())) == b"".join(read_all(box.log, max_length=1))
