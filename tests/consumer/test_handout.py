"""Tracking of the records that a loop has seen."""

from __future__ import annotations

from operator import length_hint
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.fetch import Fetch
from pykclient.consumer.fetch_state import FetchPosition
from pykclient.consumer.handout import Handout
from pykclient.types import ConsumerRecord, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def records(tp: TopicPartition, *offsets: int) -> list[ConsumerRecord[Any, Any]]:
    return [ConsumerRecord(tp.topic, tp.partition, 3, offset, 0, 0, None, b"", (), None, -1, 0) for offset in offsets]


def fill(handout: Handout, found: dict[TopicPartition, list[ConsumerRecord[Any, Any]]]) -> None:
    fetch = Fetch()
    for tp, list_ in found.items():
        fetch.add(tp, list_)
    handout.fill(fetch, lambda tp: FetchPosition(found[tp][-1].offset + 1, 3))
    assert fetch.returned


def filled() -> Handout:
    handout = Handout()
    fill(handout, {A: records(A, 5, 7, 8), B: records(B, 1, 2)})
    return handout


def next_offsets(handout: Handout) -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in handout.next_positions().items()}


def drain(handout: Handout, count: int) -> list[int]:
    """Loop over ``count`` records, like a generator that delegates to the iterators."""

    def iterate() -> Any:
        while (iterator := handout.next_iterator()) is not None:
            yield from iterator

    loop = iterate()
    return [next(loop).offset for _ in range(count)]


def test_positions_follow_the_loop() -> None:
    handout = filled()
    assert handout.next_positions() == {A: FetchPosition(5, 3), B: FetchPosition(1, 3)}
    assert drain(handout, 1) == [5]
    assert next_offsets(handout)[A] == 7
    assert drain(handout, 2) == [7, 8]
    assert next_offsets(handout) == {B: 1}
    assert drain(handout, 2) == [1, 2]
    assert next_offsets(handout) == {}
    assert handout.is_empty
    assert handout.next_iterator() is None


def test_a_loop_that_was_left_is_gone_on_with() -> None:
    handout = filled()
    first = handout.next_iterator()
    assert first is not None
    assert next(first).offset == 5
    second = handout.next_iterator()
    assert second is first


def test_what_is_dropped_ends_the_loop_over_it() -> None:
    handout = filled()
    iterator = handout.next_iterator()
    assert iterator is not None
    next(iterator)
    handout.drop([A])
    assert list(iterator) == []
    assert next_offsets(handout) == {B: 1}
    handout.clear()
    assert handout.is_empty


def test_a_fetch_holds_commits_back_until_it_is_returned() -> None:
    handout = filled()
    fetch = Fetch()
    handout.begin(fetch)
    fetch.first_positions[B] = FetchPosition(0, 2)
    assert next_offsets(handout) == {A: 5, B: 0}
    assert handout.unreturned is fetch
    fetch.returned = True
    assert next_offsets(handout) == {A: 5, B: 1}
    assert handout.unreturned is None


def test_what_waits_is_taken_for_a_poll() -> None:
    handout = filled()
    loop = handout.next_iterator()
    assert loop is not None
    next(loop)
    fetch = Fetch()
    handout.begin(fetch)
    handout.take(fetch, 1)
    assert [record.offset for record in fetch.records[A]] == [7]
    assert next_offsets(handout) == {A: 7, B: 1}
    fetch.returned = True
    assert next_offsets(handout) == {A: 8, B: 1}
    assert [record.offset for record in loop] == [8], "the loop goes on behind what the poll took"


def test_a_loop_that_is_split_stops_after_its_record() -> None:
    handout = filled()
    loop = handout.next_iterator()
    assert loop is not None
    next(loop)
    handout.split()
    assert list(loop) == []
    assert next_offsets(handout) == {A: 7, B: 1}
    seen = []
    while (single := handout.next_single()) is not None:
        seen += [record.offset for record in single]
        assert len(seen) < 5 or handout.is_empty
    assert seen == [7, 8, 1, 2]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_whatever_is_done_each_record_comes_once_and_in_order(sizes: list[int], data: st.DataObject) -> None:
    handout = Handout()
    offset = 0
    for size in sizes:
        fill(handout, {A: records(A, *range(offset, offset + size))})
        offset += size
    seen: list[int] = []
    while not handout.is_empty:
        assert next_offsets(handout)[A] == len(seen)
        iterator = handout.next_iterator()
        assert iterator is not None
        seen += [next(iterator).offset for _ in range(min(data.draw(st.integers(1, 4)), length_hint(iterator)))]
    assert seen == list(range(offset))
