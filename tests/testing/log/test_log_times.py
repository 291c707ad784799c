"""Offsets by time, and segments that are rolled and deleted by time and size."""

from __future__ import annotations

import pytest

from pykclient.errors import OffsetOutOfRangeError
from pykclient.record.compression import Compression
from pykclient.testing.log.log_types import TimestampAndOffset
from tests.testing.log.support import NOW_MS, LogBox, batch, values

_HOUR_MS = 3_600_000


def test_first_record_at_or_after_a_time_is_found() -> None:
    box = LogBox()
    box.append(batch(values(3), timestamps=[100, 300, 200]), epoch=1)
    box.append(batch(values(2), timestamps=[250, 400], compression=Compression.of("snappy")), epoch=2)
    log = box.log
    assert log.fetch_offset_by_timestamp(0) == TimestampAndOffset(100, 0, 1)
    assert log.fetch_offset_by_timestamp(101) == TimestampAndOffset(300, 1, 1)
    assert log.fetch_offset_by_timestamp(300) == TimestampAndOffset(300, 1, 1)
    assert log.fetch_offset_by_timestamp(301) == TimestampAndOffset(400, 4, 2)
    assert log.fetch_offset_by_timestamp(401) is None


def test_special_timestamps_have_offsets() -> None:
    box = LogBox()
    log = box.log
    assert log.fetch_offset_by_timestamp(-2) == TimestampAndOffset(-1, 0, None)
    assert log.fetch_offset_by_timestamp(-1) == TimestampAndOffset(-1, 0, None)
    assert log.fetch_offset_by_timestamp(-3) is None
    box.append(batch(values(3), timestamps=[100, 300, 300]), epoch=1)
    box.append(batch(values(2), timestamps=[250, 200]), epoch=2)
    assert log.fetch_offset_by_timestamp(-2) == TimestampAndOffset(-1, 0, 1)
    assert log.fetch_offset_by_timestamp(-4) == TimestampAndOffset(-1, 0, 1)
    assert log.fetch_offset_by_timestamp(-1) == TimestampAndOffset(-1, 5, 2)
    assert log.fetch_offset_by_timestamp(-3) == TimestampAndOffset(300, 1, 1)
    assert log.fetch_offset_by_timestamp(-5) == TimestampAndOffset(-1, -1, -1)
    assert log.fetch_offset_by_timestamp(-6) == TimestampAndOffset(-1, -1, -1)
    log.maybe_increment_log_start_offset(4)
    assert log.fetch_offset_by_timestamp(-2) == TimestampAndOffset(-1, 4, 2)


def test_search_uses_log_append_time() -> None:
    box = LogBox({"message.timestamp.type": "LogAppendTime"})
    box.append(batch(values(3), timestamps=[5, 6, 7]))
    box.clock.advance(1000)
    box.append(batch(values(2), timestamps=[5, 6]))
    assert box.log.fetch_offset_by_timestamp(8) == TimestampAndOffset(NOW_MS, 0, 0)
    assert box.log.fetch_offset_by_timestamp(NOW_MS + 1) == TimestampAndOffset(NOW_MS + 1000, 3, 0)
    assert box.log.fetch_offset_by_timestamp(-3) == TimestampAndOffset(NOW_MS + 1000, 3, 0)


def test_search_skips_deleted_records() -> None:
    box = LogBox()
    box.append(batch(values(4), timestamps=[100, 200, 300, 400]))
    box.log.maybe_increment_log_start_offset(2)
    assert box.log.fetch_offset_by_timestamp(100) == TimestampAndOffset(300, 2, 0)


def test_segments_are_rolled_by_size() -> None:
    size = len(batch())
    box = LogBox({"internal.segment.bytes": str(3 * size)})
    for _ in range(7):
        box.append()
    assert [segment.base_offset for segment in box.log.segments] == [0, 3, 6]


def test_segments_are_rolled_by_record_time() -> None:
    box = LogBox({"segment.ms": str(_HOUR_MS)})
    box.append(batch(timestamps=[NOW_MS - 3 * _HOUR_MS]))
    box.append(batch(timestamps=[NOW_MS - 2 * _HOUR_MS]))
    assert len(box.log.segments) == 1
    box.append(batch(timestamps=[NOW_MS - 2 * _HOUR_MS + 1]))
    assert [segment.base_offset for segment in box.log.segments] == [0, 2]
    # The passing of time alone rolls no segment.
    box.clock.advance(5 * _HOUR_MS)
    box.append(batch(timestamps=[NOW_MS - 2 * _HOUR_MS]))
    assert len(box.log.segments) == 2


def test_segments_without_timestamps_are_rolled_by_age() -> None:
    box = LogBox({"segment.ms": str(_HOUR_MS)})
    box.append(batch(timestamps=[-1]))
    box.clock.advance(_HOUR_MS + 1)
    box.append(batch(timestamps=[-1]))
    assert len(box.log.segments) == 2


def test_retention_time_deletes_old_segments() -> None:
    box = LogBox({"retention.ms": str(_HOUR_MS), "internal.segment.bytes": "150"})
    for _ in range(6):
        box.append(batch(timestamps=[box.clock.wall_ms()]))
        box.clock.advance(_HOUR_MS // 4)
    assert [segment.base_offset for segment in box.log.segments] == [0, 2, 4]
    assert box.log.delete_old_segments() == 1
    assert (box.log.log_start_offset, box.log.high_watermark, box.log.log_end_offset) == (2, 6, 6)
    box.clock.advance(_HOUR_MS)
    assert box.log.delete_old_segments() == 2
    assert (box.log.log_start_offset, box.log.log_end_offset, box.log.size) == (6, 6, 0)
    assert box.log.delete_old_segments() == 0
    assert box.append() == range(6, 7)
    with pytest.raises(OffsetOutOfRangeError):
        box.log.read(5, 100)


def test_retention_size_deletes_old_segments() -> None:
    size = len(batch())
    box = LogBox({"retention.bytes": str(3 * size), "internal.segment.bytes": str(2 * size)})
    for _ in range(8):
        box.append()
    # A segment is deleted if the remaining ones have at least retention.bytes.
    assert box.log.delete_old_segments() == 2
    assert (box.log.log_start_offset, box.log.size, box.budget.held_bytes) == (4, 4 * size, 4 * size)


def test_unreplicated_segments_are_not_deleted() -> None:
    box = LogBox({"retention.ms": "1", "internal.segment.bytes": "150"})
    for _ in range(6):
        box.log.append_as_leader(batch(), 0)
    box.clock.advance(_HOUR_MS)
    assert box.log.delete_old_segments() == 0
    box.log.update_high_watermark(3)
    assert box.log.delete_old_segments() == 1
    assert box.log.log_start_offset == 2


def test_logs_without_delete_policy_drop_only_deleted_records() -> None:
    box = LogBox({"cleanup.policy": "compact", "retention.ms": "1", "internal.segment.bytes": "150"})
    for _ in range(6):
        box.append()
    box.clock.advance(_HOUR_MS)
    assert box.log.delete_old_segments() == 0
    box.log.maybe_increment_log_start_offset(5)
    assert box.log.delete_old_segments() == 2
    assert [segment.base_offset for segment in box.log.segments] == [4]
    assert box.log.log_start_offset == 5


def test_records_cannot_be_deleted_above_the_high_watermark() -> None:
    box = LogBox()
    box.append(batch(values(2)))
    box.log.append_as_leader(batch(values(2)), 0)
    with pytest.raises(OffsetOutOfRangeError):
        box.log.maybe_increment_log_start_offset(3)
    assert box.log.maybe_increment_log_start_offset(1)
    assert not box.log.maybe_increment_log_start_offset(1)
    # The log returns whole batches; readers drop the records before their offset.
    assert box.log.read(1, 1000).next_offset == 2


def test_legacy_fetch_returns_segment_offsets() -> None:
    box = LogBox({"internal.segment.bytes": "150"})
    assert box.log.legacy_fetch_offsets_before(-1, 5) == [0]
    for _ in range(5):
        box.append()
        box.clock.advance(1000)
    log = box.log
    assert log.legacy_fetch_offsets_before(-1, 1) == [5]
    assert log.legacy_fetch_offsets_before(-1, 9) == [5, 4, 2, 0]
    assert log.legacy_fetch_offsets_before(-2, 9) == [0]
    assert log.legacy_fetch_offsets_before(NOW_MS + 3000, 9) == [2, 0]
    assert log.legacy_fetch_offsets_before(NOW_MS, 9) == []
