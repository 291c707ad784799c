"""Every transition in the table of member states."""

from __future__ import annotations

from itertools import product

import pytest

from pykclient.consumer.coordinator.classic_rebalance import ASSIGNING, RESTING, STEPS, RebalanceStep, step
from pykclient.consumer.coordinator.membership import (
    COMPLETING_REBALANCE,
    NO_GENERATION,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
    UNJOINED,
    Generation,
    MemberState,
    move,
)
from pykclient.errors import IllegalStateError

STATES = (UNJOINED, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE)
LEGAL = {
    (UNJOINED, UNJOINED),
    (UNJOINED, PREPARING_REBALANCE),
    (PREPARING_REBALANCE, UNJOINED),
    (PREPARING_REBALANCE, PREPARING_REBALANCE),
    (PREPARING_REBALANCE, COMPLETING_REBALANCE),
    (COMPLETING_REBALANCE, UNJOINED),
    (COMPLETING_REBALANCE, PREPARING_REBALANCE),
    (COMPLETING_REBALANCE, STABLE),
    (STABLE, UNJOINED),
    (STABLE, PREPARING_REBALANCE),
}


@pytest.mark.parametrize(("state", "to"), list(product(STATES, STATES)), ids=lambda state: state.name)
def test_only_listed_transitions_are_allowed(state: MemberState, to: MemberState) -> None:
    if (state, to) in LEGAL:
        assert move(state, to) is to
    else:
        with pytest.raises(IllegalStateError, match=f"from {state} to {to}"):
            move(state, to)


def test_the_table_has_every_state() -> None:
    assert set(TRANSITIONS) == set(STATES)
    assert [state for state in STATES if not state.sends_heartbeats] == [UNJOINED, PREPARING_REBALANCE]


def test_generation_is_reset_without_an_id() -> None:
    assert NO_GENERATION.is_reset
    assert not NO_GENERATION.has_member_id
    kept = Generation(-1, "m", None)
    assert kept.is_reset
    assert kept.has_member_id
    assert not Generation(3, "m", "range").is_reset


STEP_NAMES = list(STEPS)


@pytest.mark.parametrize("current", STEP_NAMES, ids=str)
def test_only_listed_rebalance_steps_are_allowed(current: RebalanceStep) -> None:
    for to in STEPS:
        if to is RESTING or to in STEPS[current]:
            assert step(current, to) is to
        else:
            with pytest.raises(IllegalStateError, match=f"from {current} to {to}"):
                step(current, to)


def test_each_step_leads_to_an_assignment() -> None:
    for current in STEPS:
        if current is RESTING:
            continue
        reached = {current}
        for _ in STEPS:
            reached |= {to for one in reached for to in STEPS[one]}
        assert ASSIGNING in reached
