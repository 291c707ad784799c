"""The leader epochs of a log, compared with a list that is searched linearly."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalArgumentError
from pykclient.testing.log.log_segment import LeaderEpochFileCache

_STEPS = st.lists(
    st.tuples(st.sampled_from(("assign", "end", "start")), st.integers(0, 8), st.integers(0, 30)), max_size=12
)


def _naive(steps: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for kind, epoch, offset in steps:
        if kind == "assign":
            if entries and entries[-1][0] == epoch and entries[-1][1] <= offset:
                continue
            while entries and (entries[-1][0] >= epoch or entries[-1][1] >= offset):
                entries.pop()
            entries.append((epoch, offset))
        elif kind == "end":
            entries = [entry for entry in entries if entry[1] < offset]
        else:
            gone = [entry for entry in entries if entry[1] <= offset]
            if gone:
                entries = [(gone[-1][0], offset), *entries[len(gone) :]]
    return entries


def _cache(steps: list[tuple[str, int, int]]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache()
    for kind, epoch, offset in steps:
        if kind == "assign":
            cache.assign(epoch, offset)
        elif kind == "end":
            cache.truncate_from_end(offset)
        else:
            cache.truncate_from_start(offset)
    return cache


@given(_STEPS)
def test_entries_equal_a_naive_list(steps: list[tuple[str, int, int]]) -> None:
    cache, entries = _cache(steps), _naive(steps)
    assert [tuple(entry) for entry in cache.entries] == entries
    assert cache.latest_epoch == (entries[-1][0] if entries else None)
    assert cache.earliest_entry == (entries[0] if entries else None)


@given(_STEPS, st.integers(-1, 9), st.integers(31, 40))
def test_epoch_ends_equal_a_naive_search(steps: list[tuple[str, int, int]], epoch: int, end: int) -> None:
    cache, entries = _cache(steps), _naive(steps)
    found = cache.end_offset_for(epoch, end)
    if epoch == -1 or not entries or epoch > entries[-1][0]:
        assert tuple(found) == (-1, -1)
    elif epoch == entries[-1][0]:
        assert tuple(found) == (end, epoch)
    else:
        later = min(start for other, start in entries if other > epoch)
        known = [other for other, _ in entries if other <= epoch]
        assert tuple(found) == (later, known[-1] if known else epoch)


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(epoch: int, offset: int) -> None:
    with pytest.raises(IllegalArgumentError):
        LeaderEpochFileCache().assign(epoch, offset)
