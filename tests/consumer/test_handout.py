"""What a loop has seen and what it has not."""

from __future__ import annotations

from operator import length_hint
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.handout import Handout
from pykclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def records(tp: TopicPartition, *offsets: int) -> list[ConsumerRecord[Any, Any]]:
    return [ConsumerRecord(tp.topic, tp.partition, 3, offset, 0, 0, None, b"", (), None, -1, 0) for offset in offsets]


def filled() -> Handout:
    handout = Handout()
    handout.fill({A: records(A, 5, 7, 8), B: records(B, 1, 2)})
    return handout


def drain(handout: Handout, count: int) -> list[int]:
    """Loop over ``count`` records, as a generator does that delegates to the iterators."""

    def iterate() -> Any:
        while (iterator := handout.next_iterator()) is not None:
            yield from iterator

    loop = iterate()
    return [next(loop).offset for _ in range(count)]


def test_positions_follow_the_loop() -> None:
    handout = filled()
    assert handout.next_offsets() == {A: OffsetAndMetadata(5, "", 3), B: OffsetAndMetadata(1, "", 3)}
    assert drain(handout, 1) == [5]
    assert handout.next_offsets()[A].offset == 7
    assert drain(handout, 2) == [7, 8]
    assert handout.next_offsets() == {B: OffsetAndMetadata(1, "", 3)}
    assert drain(handout, 2) == [1, 2]
    assert handout.next_offsets() == {}
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
    assert handout.next_offsets() == {B: OffsetAndMetadata(1, "", 3)}
    handout.retain([A])
    assert handout.is_empty


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_whatever_is_done_each_record_comes_once_and_in_order(sizes: list[int], data: st.DataObject) -> None:
    handout = Handout()
    offset = 0
    for size in sizes:
        handout.fill({A: records(A, *range(offset, offset + size))})
        offset += size
    seen: list[int] = []
    while not handout.is_empty:
        assert handout.next_offsets()[A].offset == len(seen)
        iterator = handout.next_iterator()
        assert iterator is not None
        seen += [next(iterator).offset for _ in range(min(data.draw(st.integers(1, 4)), length_hint(iterator)))]
    assert seen == list(range(offset))
