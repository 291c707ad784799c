"""The verifier detects each kind of fault."""

from __future__ import annotations

import pytest

from pykclient.types import TopicPartition
from tests.chaos.pipeline import check_copies
from tests.chaos.verifier import Acknowledged, ConsumerWorkload, Written, check_partition


def log(*numbers: int) -> list[Written]:
    return [Written(offset, b"0:%d:.." % number) for offset, number in enumerate(numbers)]


def told(*numbers: int) -> list[Acknowledged]:
    return [Acknowledged(0, number, offset) for offset, number in enumerate(numbers)]


def test_correct_log_passes() -> None:
    check_partition("t-0", 0, log(0, 1, 2, 5), told(0, 1, 2))


@pytest.mark.parametrize(
    ("written", "acknowledged"),
    [
        (log(0, 1), told(0, 1, 2)),  # lost
        (log(0, 2, 1), told(0, 2, 1)),  # out of order
        (log(0, 1, 1), told(0, 1)),  # duplicated
        (log(0, 1, 2), [Acknowledged(0, 0, 1)]),  # at another offset
        (log(0), [*told(0), *told(0)]),  # acknowledged twice
        ([Written(0, b"1:0:")], []),  # in another partition's log
    ],
)
def test_verifier_finds_violations(written: list[Written], acknowledged: list[Acknowledged]) -> None:
    with pytest.raises(AssertionError):
        check_partition("t-0", 0, written, acknowledged)


def test_verifier_allows_duplicates_without_exactly_once() -> None:
    check_partition("t-0", 0, log(0, 1, 0, 1), told(0, 1), exactly_once=False)


@pytest.mark.parametrize("polls", [[[0, 1], [3]], [[0, 1], [1, 2]], [[0, 2]], [[1], [0]]])
def test_verifier_finds_gaps_and_repeats_of_a_member(polls: list[list[int]]) -> None:
    tp = TopicPartition("t", 0)
    reader = ConsumerWorkload("localhost:9", "t", group_id="g")
    reader.on_partitions_assigned({tp})
    for offsets in polls:
        reader._note(tp, offsets)
    reader.consumer.close()
    with pytest.raises(AssertionError):
        reader.check()


def test_member_may_read_records_again_after_a_rebalance() -> None:
    tp = TopicPartition("t", 0)
    reader = ConsumerWorkload("localhost:9", "t", group_id="g")
    for offsets in ([0, 1, 2], [2, 3]):
        reader.on_partitions_assigned({tp})
        reader._note(tp, offsets)
        reader.on_partitions_revoked({tp})
    reader._note(tp, [4])
    reader.consumer.close()
    assert reader.read() == {0: {0, 1, 2, 3}}
    with pytest.raises(AssertionError, match="not assigned"):
        reader.check()


def test_identical_copies_pass() -> None:
    check_copies({b"a": range(3), b"b": [0]}, {b"b": [0], b"a": [0, 1, 2]})


@pytest.mark.parametrize(
    ("copied", "problem"),
    [
        ({b"a": [0, 2], b"b": [0]}, r"b'a': lost \[1\], doubled \[\]"),
        ({b"a": [0, 1, 2]}, r"b'b': lost \[0\]"),
        ({b"a": [0, 1, 1, 2], b"b": [0]}, r"lost \[\], doubled \[1\]"),
        ({b"a": [1, 0, 2], b"b": [0]}, r"b'a': out of order"),
        ({b"a": [0, 1, 2, 3], b"b": [0]}, r"foreign \[3\]"),
        ({b"a": [0, 1, 2], b"b": [0], b"c": [0]}, r"b'c': .*foreign \[0\]"),
    ],
)
def test_wrong_copies_end_the_test(copied: dict[bytes, list[int]], problem: str) -> None:
    """A record that is lost, doubled, of an aborted transaction or at the wrong place ends the exactly-once test."""
    with pytest.raises(AssertionError, match=problem):
        check_copies({b"a": range(3), b"b": [0]}, copied)
