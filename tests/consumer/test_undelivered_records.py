"""Tracking of the records that a loop has seen."""

from __future__ import annotations

from operator import length_hint
from typing import Any

from hypothesis import given, strategies as st

from pykclient.consumer.fetch_collector import Fetch, UndeliveredRecords
from pykclient.consumer.subscription_state import FetchPosition
from pykclient.types import ConsumerRecord, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def records(tp: TopicPartition, *offsets: int) -> list[ConsumerRecord[Any, Any]]:
    return [ConsumerRecord(tp.topic, tp.partition, 3, offset, 0, 0, None, b"", (), None, -1, 0) for offset in offsets]


def fill(undelivered: UndeliveredRecords, found: dict[TopicPartition, list[ConsumerRecord[Any, Any]]]) -> None:
    fetch = Fetch()
    for tp, list_ in found.items():
        fetch.add(tp, list_)
    undelivered.fill(fetch, lambda tp: FetchPosition(found[tp][-1].offset + 1, 3))
    assert fetch.returned


def filled() -> UndeliveredRecords:
    undelivered = UndeliveredRecords()
    fill(undelivered, {A: records(A, 5, 7, 8), B: records(B, 1, 2)})
    return undelivered


def next_offsets(undelivered: UndeliveredRecords) -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in undelivered.next_positions().items()}


def drain(undelivered: UndeliveredRecords, count: int) -> list[int]:
    """Loop over ``count`` records, like a generator that delegates to the iterators."""

    def iterate() -> Any:
        while (iterator := undelivered.next_iterator()) is not None:
            yield from iterator

    loop = iterate()
    return [next(loop).offset for _ in range(count)]


def test_positions_follow_the_loop() -> None:
    undelivered = filled()
    assert undelivered.next_positions() == {A: FetchPosition(5, 3), B: FetchPosition(1, 3)}
    assert drain(undelivered, 1) == [5]
    assert next_offsets(undelivered)[A] == 7
    assert drain(undelivered, 2) == [7, 8]
    assert next_offsets(undelivered) == {B: 1}
    assert drain(undelivered, 2) == [1, 2]
    assert next_offsets(undelivered) == {}
    assert undelivered.is_empty
    assert undelivered.next_iterator() is None


def test_records_of_other_partitions_wait_on_when_some_are_taken() -> None:
    undelivered = filled()
    fetch = Fetch()
    undelivered.take(fetch, 10, {B})
    assert [record.offset for record in fetch.records[B]] == [1, 2]
    assert A not in fetch.records
    assert next_offsets(undelivered) == {A: 5}


def test_abandoned_loop_resumes() -> None:
    undelivered = filled()
    first = undelivered.next_iterator()
    assert first is not None
    assert next(first).offset == 5
    second = undelivered.next_iterator()
    assert second is first


def test_dropping_a_partition_ends_its_iterator() -> None:
    undelivered = filled()
    iterator = undelivered.next_iterator()
    assert iterator is not None
    next(iterator)
    undelivered.drop([A])
    assert list(iterator) == []
    assert next_offsets(undelivered) == {B: 1}
    undelivered.clear()
    assert undelivered.is_empty


def test_a_fetch_holds_commits_back_until_it_is_returned() -> None:
    undelivered = filled()
    fetch = Fetch()
    undelivered.begin(fetch)
    fetch.first_positions[B] = FetchPosition(0, 2)
    assert next_offsets(undelivered) == {A: 5, B: 0}
    assert undelivered.unreturned is fetch
    fetch.returned = True
    assert next_offsets(undelivered) == {A: 5, B: 1}
    assert undelivered.unreturned is None


def test_poll_takes_waiting_records() -> None:
    undelivered = filled()
    loop = undelivered.next_iterator()
    assert loop is not None
    next(loop)
    fetch = Fetch()
    undelivered.begin(fetch)
    undelivered.take(fetch, 1)
    assert [record.offset for record in fetch.records[A]] == [7]
    assert next_offsets(undelivered) == {A: 7, B: 1}
    fetch.returned = True
    assert next_offsets(undelivered) == {A: 8, B: 1}
    assert [record.offset for record in loop] == [8], "the loop goes on behind what the poll took"


def test_split_loop_stops_after_its_current_record() -> None:
    undelivered = filled()
    loop = undelivered.next_iterator()
    assert loop is not None
    next(loop)
    undelivered.split()
    assert list(loop) == []
    assert next_offsets(undelivered) == {A: 7, B: 1}
    seen = []
    while (single := undelivered.next_single()) is not None:
        seen += [record.offset for record in single]
        assert len(seen) < 5 or undelivered.is_empty
    assert seen == [7, 8, 1, 2]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_any_steps_return_each_record_once_and_in_order(sizes: list[int], data: st.DataObject) -> None:
    undelivered = UndeliveredRecords()
    offset = 0
    for size in sizes:
        fill(undelivered, {A: records(A, *range(offset, offset + size))})
        offset += size
    seen: list[int] = []
    while not undelivered.is_empty:
        assert next_offsets(undelivered)[A] == len(seen)
        iterator = undelivered.next_iterator()
        assert iterator is not None
        seen += [next(iterator).offset for _ in range(min(data.draw(st.integers(1, 4)), length_hint(iterator)))]
    assert seen == list(range(offset))
