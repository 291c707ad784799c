"""The batches of a share partition's state, and their records."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from hypothesis import given, strategies as st

from pykclient.testing.share import share_coordinator as records_of
from pykclient.testing.share.in_flight_records import SharePartitionKey, ShareState, StateBatch
from pykclient.testing.share.share_coordinator import combine_state_batches

KEY = SharePartitionKey("g", UUID(int=7), 3)

batches = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 20),
    st.integers(0, 6),
    st.sampled_from((0, 2, 4)),
    st.integers(1, 3),
)


@given(st.lists(batches, max_size=6), st.lists(batches, max_size=6), st.integers(-1, 15))
def test_strongest_batch_wins_at_each_offset(
    so_far: list[StateBatch], new: list[StateBatch], start_offset: int
) -> None:
    combined = combine_state_batches(so_far, new, start_offset)
    offsets = {}
    for batch in combined:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            assert offset not in offsets
            offsets[offset] = batch.delivery_count, batch.delivery_state
    expected: dict[int, tuple[int, int]] = {}
    for batch in (*so_far, *new):
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            expected[offset] = max(expected.get(offset, (0, 0)), (batch.delivery_count, batch.delivery_state))
    assert offsets == expected
    assert combined == sorted(combined)
    for left, right in pairwise(combined):
        assert left.last_offset + 1 < right.first_offset or left[2:] != right[2:]


@given(st.lists(batches, max_size=4), st.lists(batches, max_size=4), st.integers(-1, 15))
def test_records_are_read_as_written(so_far: list[StateBatch], new: list[StateBatch], start_offset: int) -> None:
    state = ShareState(1, 2, 3, 4, 5, 6, 7, so_far)
    assert records_of.read_record(*records_of.snapshot_record(KEY, state)) == (KEY, state)
    update = records_of.StateUpdate(1, -1, start_offset, 2, new)
    assert records_of.read_record(*records_of.update_record(KEY, update)) == (KEY, update)
    after = update.apply(state)
    assert after.start_offset == (4 if start_offset < 0 else start_offset)
    assert (after.leader_epoch, after.delivery_complete_count) == (3, 2)
    assert after.batches == combine_state_batches(so_far, new, after.start_offset)


def test_tombstone_has_the_key_of_its_snapshot() -> None:
    key, value = records_of.tombstone(KEY)
    assert (key, value) == (records_of.snapshot_record(KEY, ShareState(0, 0, 0, 0, 0, 0, 0))[0], None)
    assert records_of.read_record(key, value) == (KEY, None)
