"""A log behaves like a list of batches under any sequence of operations."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pykclient.errors import OffsetOutOfRangeError
from pykclient.record.memory_records import MemoryRecords
from pykclient.testing.log.log_types import FetchIsolation, UnexpectedAppendOffsetError
from tests.testing.log.support import NOW_MS, LogBox, batch, content, values

_SEGMENT_BYTES = 400
_ISOLATIONS = st.sampled_from((FetchIsolation.LOG_END, FetchIsolation.HIGH_WATERMARK))


class Stored(NamedTuple):
    """A batch of the model."""

    base: int
    last: int
    epoch: int
    data: bytes
    timestamps: tuple[int, ...]


class LogModel(RuleBasedStateMachine):
    """A model of a log: batches in a list that is searched linearly."""

    def __init__(self) -> None:
        super().__init__()
        self.box = LogBox({"internal.segment.bytes": _SEGMENT_BYTES, "retention.bytes": 3 * _SEGMENT_BYTES})
        self.batches: list[Stored] = []
        self.epochs: list[tuple[int, int]] = []
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.epoch = 0

    # --- appending

    @rule(count=st.integers(1, 4), size=st.integers(0, 60), age=st.integers(-50, 50), new_epoch=st.booleans())
    def append_as_leader(self, count: int, size: int, age: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        timestamps = tuple(NOW_MS - age + index for index in range(count))
        given = batch(values(count, size), timestamps=timestamps)
        info = self.box.log.append_as_leader(given, self.epoch)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        expected = batch(values(count, size), timestamps=timestamps, base_offset=self.end, epoch=self.epoch)
        self._store(expected, timestamps)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), gap=st.integers(0, 3))
    def append_as_follower(self, counts: list[int], gap: int) -> None:
        offset = self.end + gap
        copies = []
        for count in counts:
            copies.append(batch(values(count), timestamps=[NOW_MS] * count, base_offset=offset, epoch=self.epoch))
            offset += count
        cut_off = copies[-1][:-1]
        self.box.log.append_as_follower(b"".join(copies) + cut_off)
        for copy, count in zip(copies, counts, strict=True):
            self._store(copy, (NOW_MS,) * count)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def append_what_is_there(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        with pytest.raises(UnexpectedAppendOffsetError) as caught:
            self.box.log.append_as_follower(batch(base_offset=offset, epoch=self.epoch))
        assert (caught.value.first_offset, caught.value.last_offset) == (offset, offset)

    def _store(self, data: bytes, timestamps: tuple[int, ...]) -> None:
        (copy,) = MemoryRecords(data).batches()
        self.batches.append(Stored(copy.base_offset, copy.last_offset, copy.partition_leader_epoch, data, timestamps))
        self.end = copy.last_offset + 1
        if not self.epochs or self.epochs[-1][0] != copy.partition_leader_epoch:
            # An epoch without records is replaced by the next one that starts at the same offset.
            self.epochs = [entry for entry in self.epochs if entry[1] < copy.base_offset]
            self.epochs.append((copy.partition_leader_epoch, copy.base_offset))

    # --- moving bounds

    @rule(data=st.data())
    def raise_high_watermark(self, data: st.DataObject) -> None:
        wanted = data.draw(st.integers(self.high_watermark, self.end))
        assert self.box.log.update_high_watermark(wanted) == wanted
        self.high_watermark = wanted

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        wanted = data.draw(st.integers(0, self.high_watermark))
        assert self.box.log.maybe_increment_log_start_offset(wanted) == (wanted > self.start)
        self._begin_at(max(self.start, wanted))

    @rule()
    def delete_old_segments(self) -> None:
        log = self.box.log
        log.delete_old_segments()
        # Only whole segments are deleted, and no more than necessary.
        assert self.start <= log.log_start_offset <= self.high_watermark
        self._begin_at(log.log_start_offset)
        ends = [segment.base_offset for segment in log.segments[1:]] + [self.end]
        assert log.size - log.segments[0].size < 3 * _SEGMENT_BYTES or ends[0] > self.high_watermark

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(0, self.start - 2), self.end + 1))
        whole = self.box.log.segments[0].base_offset > offset
        assert self.box.log.truncate_to(offset) == (offset < self.end)
        if offset < self.end:
            self.batches = [] if whole else [stored for stored in self.batches if stored.last < offset]
            self.end = offset
            self.start = min(self.start, offset)
            self.high_watermark = offset if whole else min(self.high_watermark, offset)
            self.epochs = [] if whole else self.epochs
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    @rule(offset=st.integers(0, 50))
    def truncate_fully(self, offset: int) -> None:
        self.box.log.truncate_fully_and_start_at(offset)
        self.batches, self.epochs = [], []
        self.start = self.end = self.high_watermark = offset

    @rule()
    def roll(self) -> None:
        self.box.log.roll()

    @rule()
    def restart(self) -> None:
        active_base = self.box.log.segments[-1].base_offset
        log = self.box.open(self.start)
        # A restart forgets the rest of a gap that was truncated.
        self.end = max(self.batches[-1].last + 1 if self.batches else 0, active_base)
        if self.end < self.start:
            # All undeleted batches were truncated; the earlier ones are of no use.
            self.batches = []
            self.end = self.start
        self.high_watermark = min(self.high_watermark, self.end)
        log.update_high_watermark(self.high_watermark)
        # An epoch without records is forgotten, because it starts at the end.
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    def _begin_at(self, start: int) -> None:
        self.start = start
        self.batches = [stored for stored in self.batches if stored.last >= self.box.log.segments[0].base_offset]
        begun = [entry for entry in self.epochs if entry[1] <= start]
        if begun:
            self.epochs = [(begun[-1][0], start), *(entry for entry in self.epochs if entry[1] > start)]

    # --- reading

    @rule(data=st.data(), max_length=st.integers(1, 500), isolation=_ISOLATIONS, min_one=st.booleans())
    def read(self, data: st.DataObject, max_length: int, isolation: str, min_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        bound = self.end if isolation == FetchIsolation.LOG_END else self.high_watermark
        info = self.box.log.read(offset, max_length, isolation, min_one)
        ahead = [stored for stored in self.batches if stored.last >= offset]
        visible = [stored for stored in ahead if stored.last < bound]
        found = content(info)
        if not visible or visible[0] is not ahead[0]:
            assert found == b""
            assert info.next_offset == offset
            return
        expected = b"".join(stored.data for stored in visible)
        if len(visible[0].data) > max_length and not min_one:
            assert found == visible[0].data[:max_length]
            assert info.first_entry_incomplete
            return
        assert found
        assert expected.startswith(found)
        assert len(found) <= max(max_length, len(visible[0].data))
        read = [stored for stored in visible if stored.last < info.next_offset]
        assert b"".join(stored.data for stored in read) == found

    @rule(beyond=st.integers(1, 5))
    def read_outside(self, beyond: int) -> None:
        for offset in (self.end + beyond, self.start - beyond):
            with pytest.raises(OffsetOutOfRangeError, match=str(offset)):
                self.box.log.read(offset, 100)

    @rule(time_ms=st.integers(NOW_MS - 60, NOW_MS + 60))
    def search_by_time(self, time_ms: int) -> None:
        found = self.box.log.fetch_offset_by_timestamp(time_ms)
        expected = None
        for stored in self.batches:
            for index, timestamp in enumerate(stored.timestamps):
                if expected is None and timestamp >= time_ms and stored.base + index >= self.start:
                    expected = (timestamp, stored.base + index, stored.epoch)
        segments = self.box.log.segments
        if found is None and expected is not None:
            # As in Kafka, only the first segment with such a timestamp is searched, and its records may be below the
            # log's start offset.
            first = next(segment for segment in segments if segment.size and segment.largest_timestamp >= time_ms)
            assert first.base_offset < self.start
        else:
            assert found == expected

    # --- what is always so

    @invariant()
    def bounds_are_right(self) -> None:
        log = self.box.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
            self.start,
            self.high_watermark,
            self.end,
        )

    @invariant()
    def nothing_else_is_held(self) -> None:
        log = self.box.log
        assert log.size == sum(len(stored.data) for stored in self.batches)
        assert log.size == self.box.budget.held_bytes
        assert [segment.base_offset for segment in log.segments] == sorted(
            {segment.base_offset for segment in log.segments}
        )

    @invariant()
    def epochs_are_right(self) -> None:
        log = self.box.log
        assert [tuple(entry) for entry in log.leader_epoch_cache.entries] == self.epochs
        for epoch in range(self.epoch + 2):
            found = log.end_offset_for_epoch(epoch)
            if not self.epochs or epoch > self.epochs[-1][0]:
                assert found is None
                continue
            assert found is not None
            later = [start for other, start in self.epochs if other > epoch]
            assert found.offset == (later[0] if later else self.end)


LogModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLogModel = LogModel.TestCase
