"""Random numbers of the hot paths: the same as those of the standard library."""

from __future__ import annotations

import random

import pytest

from pykclient.testing.event_loop import below


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 9, 1000, 1 << 40])
def test_numbers_equal_randrange(limit: int) -> None:
    """A seed must give the same history as before, and as with ``randint`` for a jitter."""
    ours, theirs = random.Random(17), random.Random(17)
    assert [below(ours, limit) for _ in range(200)] == [theirs.randrange(limit) for _ in range(200)]
    assert ours.getstate() == theirs.getstate()
