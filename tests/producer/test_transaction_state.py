"""Every transition in the table of transaction states."""

from __future__ import annotations

from itertools import product

import pytest

from pykclient.errors import IllegalStateError, check_move
from pykclient.producer.transactions.transaction_state import MOVES, STATES


@pytest.mark.parametrize(("source", "target"), list(product(STATES, STATES)))
def test_transaction_states_follow_table_of_moves(source: str, target: str) -> None:
    if target in MOVES[source]:
        check_move("a producer id", MOVES, source, target)
    else:
        with pytest.raises(IllegalStateError, match=f"from {source} to {target}"):
            check_move("a producer id", MOVES, source, target)


def test_fatal_error_is_final_and_reachable_from_every_state() -> None:
    assert all("FATAL_ERROR" in MOVES[state] for state in STATES)
    assert MOVES["FATAL_ERROR"] == {"FATAL_ERROR"}
