"""Every transition in the table of transaction states."""

from __future__ import annotations

from itertools import product

import pytest

from pykclient.errors import IllegalStateError, check_move
from pykclient.producer.transactions.transaction_state import MOVES, STATES


@pytest.mark.parametrize(("source", "target"), list(product(STATES, STATES)))
def test_only_the_tables_moves_are_allowed(source: str, target: str) -> None:
    if target in MOVES[source]:
        check_move("a producer id", MOVES, source, target)
    else:
        with pytest.raises(IllegalStateError, match=f"from {source} to {target}"):
            check_move("a producer id", MOVES, source, target)


def test_a_fatal_error_can_follow_anything_and_nothing_follows_it() -> None:
    assert all("FATAL_ERROR" in MOVES[state] for state in STATES)
    assert MOVES["FATAL_ERROR"] == {"FATAL_ERROR"}
