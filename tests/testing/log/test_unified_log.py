"""Appends, reads and offset bounds, case by case."""

from __future__ import annotations

import uuid

import pytest

from pykclient.errors import (
    CorruptRecordError,
    InconsistentTopicIdError,
    InvalidRecordError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from pykclient.record.compression import Compression
from pykclient.record.memory_records import MemoryRecords
from pykclient.testing.log.log_types import AppendOrigin, FetchIsolation, OffsetAndEpoch, OffsetsOutOfOrderError
from pykclient.types import LOG_APPEND_TIME
from tests.testing.log.support import NOW_MS, TP, LogBox, batch, content, read_all, values


def test_leader_assigns_offsets_and_epoch_and_changes_nothing_else() -> None:
    box = LogBox()
    given = batch(values(3), producer=(7, 1, 0), compression=Compression.of("gzip"))
    first = box.log.append_as_leader(given, 4)
    second = box.log.append_as_leader(batch(values(2)), 5)
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset, second.last_leader_epoch) == (3, 4, 5)
    stored = content(box.log.read(0, 1000, FetchIsolation.LOG_END))
    one, two = MemoryRecords(stored).batches()
    assert (one.base_offset, one.partition_leader_epoch, two.base_offset, two.partition_leader_epoch) == (0, 4, 3, 5)
    # The checksum covers all the rest.
    assert bytes(one.buffer[16:]) == given[16:]
    one.ensure_valid()


def test_append_does_not_modify_the_request() -> None:
    box = LogBox()
    given = bytearray(batch(values(2)))
    before = bytes(given)
    box.append(bytes(given))
    box.log.append_as_leader(given, 3)
    assert bytes(given) == before
    given[:] = bytes(len(given))
    assert [record.value for record in box.records()] == [b"v"] * 4


def test_log_append_time_replaces_timestamps_and_never_goes_back() -> None:
    box = LogBox({"message.timestamp.type": "LogAppendTime"})
    info = box.log.append_as_leader(batch(timestamps=[5]), 0)
    box.clock.set_wall_ms(NOW_MS - 1000)
    later = box.log.append_as_leader(batch(timestamps=[6]), 0)
    assert info.log_append_time == later.log_append_time == NOW_MS
    assert [record.timestamp for record in box.records()] == [NOW_MS, NOW_MS]
    (stored, _) = MemoryRecords(b"".join(read_all(box.log))).batches()
    assert stored.timestamp_type == LOG_APPEND_TIME
    stored.ensure_valid()


def test_compression_of_the_topic_replaces_the_producers() -> None:
    box = LogBox({"compression.type": "zstd", "compression.zstd.level": "9"})
    box.append(batch(values(20), compression=Compression.of("lz4")))
    (stored,) = MemoryRecords(b"".join(read_all(box.log))).batches()
    assert stored.compression_type.name == "zstd"
    assert len(box.records()) == 20


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_corrupt_batches_are_refused(origin: str) -> None:
    box = LogBox()
    data = bytearray(batch())
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        box.log.append_as_leader(data, 0, origin)
    with pytest.raises(CorruptRecordError):
        box.log.append_as_follower(data)
    assert box.log.log_end_offset == 0
    assert box.budget.held_bytes == 0


def test_client_batches_with_faults_are_refused() -> None:
    box = LogBox({"max.message.bytes": "200"})
    with pytest.raises(InvalidRecordError, match="begin with 0"):
        box.log.append_as_leader(batch(base_offset=1), 0)
    with pytest.raises(RecordTooLargeError, match=r"max.message.bytes, 200"):
        box.log.append_as_leader(batch(values(1, 300)), 0)
    with pytest.raises(InvalidRecordError, match="more than one batch"):
        box.log.append_as_leader(batch() + batch(), 0)
    assert not box.log.append_as_leader(batch()[:-1], 0).valid_bytes


def test_follower_accepts_batches_above_its_limit() -> None:
    box = LogBox({"max.message.bytes": "200"})
    box.log.append_as_follower(batch(values(1, 300), epoch=0))
    assert box.log.log_end_offset == 1


def test_batch_larger_than_a_segment_is_refused() -> None:
    box = LogBox({"internal.segment.bytes": "100"})
    with pytest.raises(RecordBatchTooLargeError):
        box.append(batch(values(1, 100)))


def test_follower_checks_the_order_of_offsets() -> None:
    box = LogBox()
    with pytest.raises(OffsetsOutOfOrderError):
        box.log.append_as_follower(batch(base_offset=5, epoch=0) + batch(base_offset=5, epoch=0))
    assert box.log.log_end_offset == 0


def test_follower_refuses_batches_of_unknown_epochs() -> None:
    box = LogBox()
    info = box.log.append_as_follower(batch(epoch=1) + batch(base_offset=1, epoch=3), 2)
    assert info.last_offset == 0
    assert (box.log.log_end_offset, box.log.latest_epoch) == (1, 1)
    assert not box.log.append_as_follower(batch(base_offset=1, epoch=3), 2).valid_bytes


def test_truncation_does_not_change_earlier_reads() -> None:
    box = LogBox()
    box.append(batch(values(1, 50)))
    box.append(batch(values(1, 60)))
    info = box.log.read(0, 1000, FetchIsolation.LOG_END)
    assert all(isinstance(view, memoryview) and view.readonly for view in info.records)
    before = content(info)
    box.log.truncate_to(1)
    box.append(batch([(b"other", b"x" * 70)]))
    assert content(info) == before
    box.log.truncate_fully_and_start_at(0)
    box.append(batch([(b"third", b"y" * 70)]))
    assert content(info) == before


def test_large_reads_return_few_views() -> None:
    box = LogBox()
    for _ in range(2_000):
        box.log.append_as_leader(batch(values(1, 400)), 0)
    box.log.update_high_watermark(2_000)
    info = box.log.read(0, 1 << 20)
    assert info.size_in_bytes > 900_000
    assert len(info.records) < 20
    assert b"".join(read_all(box.log, max_length=100_000)) == b"".join(read_all(box.log, max_length=1))


def test_read_returns_as_many_batches_as_fit() -> None:
    box = LogBox()
    for _ in range(3):
        box.append()
    size = len(batch())
    for max_length, next_offset in ((1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size - 1, 2), (999, 3)):
        assert box.log.read(0, max_length).next_offset == next_offset
    part = box.log.read(1, size - 1, min_one_message=False)
    assert (part.first_entry_incomplete, part.next_offset, part.size_in_bytes) == (True, 1, size - 1)
    assert not box.log.read(1, size, min_one_message=False).first_entry_incomplete


def test_consumers_read_up_to_the_high_watermark() -> None:
    box = LogBox()
    box.log.append_as_leader(batch(values(2)), 0)
    box.log.append_as_leader(batch(values(2)), 0)
    assert not box.log.read(0, 1000).records
    assert box.log.update_high_watermark(2) == 2
    assert box.log.read(0, 1000).next_offset == 2
    # A high watermark inside a batch hides the whole batch.
    box.log.update_high_watermark(3)
    assert box.log.read(0, 1000).next_offset == 2
    assert not box.log.read(2, 1000).records
    assert box.log.update_high_watermark(9) == 4


def test_reads_past_the_high_watermark_are_empty_and_past_the_end_fail() -> None:
    box = LogBox()
    box.log.append_as_leader(batch(values(2)), 0)
    assert not box.log.read(1, 1000).records
    assert not box.log.read(2, 1000).records
    with pytest.raises(OffsetOutOfRangeError):
        box.log.read(3, 1000)


def test_end_offset_is_found_for_each_epoch() -> None:
    box = LogBox()
    box.append(batch(values(3)), epoch=1)
    box.append(batch(values(2)), epoch=4)
    log = box.log
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(0, 0)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(3, 1)
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(3, 1)
    assert log.end_offset_for_epoch(4) == OffsetAndEpoch(5, 4)
    assert log.end_offset_for_epoch(5) is None
    assert log.end_offset_for_epoch(-1) is None


def test_truncating_at_the_end_forgets_an_epoch_without_records() -> None:
    box = LogBox()
    box.append(epoch=1)
    box.log.leader_epoch_cache.assign(2, 1)
    assert box.log.latest_epoch == 2
    assert not box.log.truncate_to(1)
    assert box.log.latest_epoch == 1


def test_log_belongs_to_one_topic_id() -> None:
    box = LogBox()
    id = uuid.uuid4()
    box.log.assign_topic_id(id)
    box.log.assign_topic_id(id)
    assert box.open().topic_id == id
    with pytest.raises(InconsistentTopicIdError):
        box.log.assign_topic_id(uuid.uuid4())


def test_disk_failures_are_storage_errors() -> None:
    box = LogBox()
    box.append()
    box.disk.full = True
    with pytest.raises(KafkaStorageError, match="full"):
        box.append()
    assert len(box.records()) == 1
    box.disk.full, box.disk.offline = False, True
    with pytest.raises(KafkaStorageError, match="offline"):
        box.append()
    with pytest.raises(KafkaStorageError, match="offline"):
        box.log.read(0, 100)
    box.disk.offline = False
    assert box.append() == range(1, 2)
    box.disk.delete(TP)
    assert box.budget.held_bytes == 0


def test_reopened_log_is_unchanged() -> None:
    box = LogBox({"internal.segment.bytes": "200"})
    for epoch in (0, 0, 1, 3):
        box.append(batch(values(2, 30)), epoch=epoch)
    before = (read_all(box.log), box.log.leader_epoch_cache.entries, len(box.log.segments), box.log.size)
    log = box.open()
    assert (read_all(log), log.leader_epoch_cache.entries, len(log.segments), log.size) == before
    assert log.high_watermark == 0
    assert box.append() == range(8, 9)


def test_deleted_records_stay_deleted_after_truncation_and_restart() -> None:
    box = LogBox()
    box.append(batch(values(5)))
    box.log.maybe_increment_log_start_offset(4)
    box.log.truncate_to(2)
    log = box.open(log_start_offset=4)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (4, 4, 0)
    assert box.append() == range(4, 5)


def test_old_message_formats_are_stored_and_read() -> None:
    box = LogBox({"internal.segment.bytes": "300", "message.format.version": "0.10.2"})
    for first in range(0, 12, 3):
        assert box.append(batch(values(3, 20), timestamps=[first, first + 1, first + 2])) == range(first, first + 3)
    assert [record.offset for record in box.records()] == list(range(12))
    assert len(box.log.segments) > 2
    # Without epochs in the records, a follower uses the high watermark.
    assert box.log.latest_epoch is None
    assert box.log.fetch_offset_by_timestamp(7) == (7, 7, None)
    assert box.log.read(4, 40).next_offset == 5
    copy = LogBox({"internal.segment.bytes": "300", "message.format.version": "0.10.2"})
    for data in read_all(box.log):
        copy.log.append_as_follower(data)
    assert b"".join(read_all(copy.log)) == b"".join(read_all(box.log))
    copy.log.truncate_to(7)
    assert [record.offset for record in copy.records()] == list(range(7))
    assert copy.open().log_end_offset == 7


def test_compressed_old_batches_are_read_and_truncated() -> None:
    box = LogBox({"message.format.version": "0.10.2"})
    for _ in range(2):
        box.append(batch(values(5, 50), compression=Compression.of("gzip")))
    assert [one.last_offset for one in box.log.batches(0, 100)] == [4, 9]
    assert box.log.read(7, 1000).next_offset == 10
    box.log.truncate_to(7)
    assert (box.log.log_end_offset, [record.offset for record in box.records()]) == (7, [0, 1, 2, 3, 4])
