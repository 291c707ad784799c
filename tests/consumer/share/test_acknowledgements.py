"""Acknowledgements as ranges of offsets."""

from __future__ import annotations

from hypothesis import given, strategies as st

from pykclient.consumer.share.acknowledgements import (
    GAP,
    MIN_UNIFORM_BATCH,
    AcknowledgementBatch,
    Acknowledgements,
    AcknowledgeType,
)

TYPES = st.dictionaries(st.integers(0, 80), st.sampled_from([GAP, *map(int, AcknowledgeType)]), max_size=60)


@given(TYPES)
def test_batches_preserve_all_acknowledgements(types: dict[int, int]) -> None:
    batches = Acknowledgements(types).batches()
    said: dict[int, int] = {}
    for first, last, kinds in batches:
        offsets = range(first, last + 1)
        assert len(kinds) in (1, len(offsets))
        said.update(zip(offsets, kinds * len(offsets) if len(kinds) == 1 else kinds, strict=True))
    assert said == types
    assert batches == sorted(batches), "brokers need them in order"
    assert sum(last - first + 1 for first, last, _ in batches) == len(types), "they do not overlap"


def test_long_runs_are_sent_with_one_type() -> None:
    types = dict.fromkeys(range(100), 1) | {5: 2} | dict.fromkeys(range(200, 203), 3)
    assert Acknowledgements(types).batches() == [
        AcknowledgementBatch(0, 5, [1, 1, 1, 1, 1, 2]),
        AcknowledgementBatch(6, 99, [1]),
        AcknowledgementBatch(200, 202, [3]),
    ]
    short = dict.fromkeys(range(MIN_UNIFORM_BATCH - 1), 1) | {MIN_UNIFORM_BATCH - 1: 2}
    assert len(Acknowledgements(short).batches()) == 1


def test_the_last_acknowledgement_of_an_offset_counts() -> None:
    one = Acknowledgements({1: 1, 2: 1})
    one.merge(Acknowledgements({2: 3, 4: 2}))
    assert one.types == {1: 1, 2: 3, 4: 2}
    assert not one.has_renewals
    one.merge(Acknowledgements({9: 4}))
    assert one.has_renewals
