"""The state table of members of the consumer group protocol."""

from __future__ import annotations

from itertools import product

import pytest

from pykclient import types
from pykclient.consumer.coordinator import consumer_membership
from pykclient.consumer.coordinator.consumer_membership import (
    ACKNOWLEDGING,
    FATAL,
    FENCED,
    JOINING,
    LEAVING,
    NO_ASSIGNMENT,
    PREPARE_LEAVING,
    RECONCILING,
    STALE,
    TRANSITIONS,
    UNSUBSCRIBED,
    LocalAssignment,
    move,
)
from pykclient.consumer.coordinator.membership import STABLE, MemberState
from pykclient.errors import IllegalStateError
from tests.consumer.responses import topic_id

STATES = [value for value in vars(consumer_membership).values() if isinstance(value, MemberState)]

EDGES = {
    (UNSUBSCRIBED, JOINING),
    *product((JOINING, RECONCILING, ACKNOWLEDGING, STABLE), (PREPARE_LEAVING, FENCED, FATAL)),
    (JOINING, RECONCILING),
    (JOINING, STABLE),
    (RECONCILING, ACKNOWLEDGING),
    (RECONCILING, STABLE),
    (ACKNOWLEDGING, RECONCILING),
    (ACKNOWLEDGING, STABLE),
    (STABLE, RECONCILING),
    (PREPARE_LEAVING, LEAVING),
    (LEAVING, STALE),
    *product((PREPARE_LEAVING, LEAVING, FENCED, STALE, FATAL), (UNSUBSCRIBED,)),
    *product((FENCED, STALE), (JOINING,)),
}


def test_every_state_has_its_row() -> None:
    assert set(STATES) == set(TRANSITIONS)
    assert len(STATES) == 10


@pytest.mark.parametrize(("state", "to"), list(product(STATES, STATES)), ids=str)
def test_only_listed_transitions_are_allowed(state: MemberState, to: MemberState) -> None:
    if (state, to) in EDGES:
        assert move(state, to) is to
    else:
        with pytest.raises(IllegalStateError, match=f"from {state} to {to}"):
            move(state, to)


def test_states_outside_of_the_group_send_no_heartbeats() -> None:
    assert {state for state in STATES if not state.sends_heartbeats} == {UNSUBSCRIBED, FENCED, STALE, FATAL}


def test_states_map_to_public_member_states() -> None:
    reported = {state: state.reported for state in STATES}
    assert {state for state, name in reported.items() if name == types.MemberState.STABLE} == {STABLE}
    rebalancing = {JOINING, RECONCILING, ACKNOWLEDGING}
    assert {state for state, name in reported.items() if name == types.MemberState.REBALANCING} == rebalancing


def test_assignments_are_distinguished_by_number() -> None:
    one, two = topic_id("a"), topic_id("b")
    empty = NO_ASSIGNMENT.next({})
    assert empty == LocalAssignment(0, {})
    assert empty.next({}) is empty
    full = empty.next({one: frozenset((0, 1))})
    assert full.number == 1
    again = full.next({two: frozenset((0,))}).next({one: frozenset((0, 1))})
    assert again.partitions == full.partitions
    assert again != full
