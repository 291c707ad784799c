"""The brokers' assignors of consumer groups."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from pykclient.testing.group.server_assignors import (
    ASSIGNORS,
    MemberSpec,
    Partitions,
    Targets,
    assign_range,
    assign_uniform,
)

A, B = UUID(int=1), UUID(int=2)


def member(
    name: str, topics: dict[UUID, int], target: Partitions | None = None, instance: str | None = None
) -> MemberSpec:
    return MemberSpec(name, instance, topics, target or {})


def counts(targets: Targets) -> list[int]:
    return sorted(sum(map(len, target.values())) for target in targets.values())


def test_range_assignor_divides_each_topic() -> None:
    targets = assign_range([member("y", {A: 3, B: 3}), member("x", {A: 3, B: 3})])
    assert targets == {
        "x": {A: frozenset((0, 1)), B: frozenset((0, 1))},
        "y": {A: frozenset((2,)), B: frozenset((2,))},
    }


def test_range_assignor_starts_with_static_members() -> None:
    targets = assign_range([member("a", {A: 2}), member("z", {A: 2}, instance="i")])
    assert targets == {"z": {A: frozenset((0,))}, "a": {A: frozenset((1,))}}


def test_range_assignor_respects_different_subscriptions() -> None:
    targets = assign_range([member("x", {A: 3}), member("y", {A: 3, B: 2}), member("z", {B: 2})])
    assert targets == {
        "x": {A: frozenset((0, 1))},
        "y": {A: frozenset((2,)), B: frozenset((0,))},
        "z": {B: frozenset((1,))},
    }


def test_uniform_assignor_moves_few_partitions() -> None:
    topics = {A: 6}
    before = assign_uniform([member("x", topics), member("y", topics)])
    after = assign_uniform([member("x", topics, before["x"]), member("y", topics, before["y"]), member("z", topics)])
    assert counts(after) == [2, 2, 2]
    assert after["x"][A] < before["x"][A]
    assert after["y"][A] < before["y"][A]


@st.composite
def groups(draw: st.DrawFn) -> list[MemberSpec]:
    sizes = {UUID(int=number): draw(st.integers(1, 7)) for number in range(draw(st.integers(1, 4)))}
    members = []
    free = {(topic_id, number) for topic_id, count in sizes.items() for number in range(count)}
    for index in range(draw(st.integers(1, 5))):
        topics = {topic_id: count for topic_id, count in sizes.items() if draw(st.booleans())}
        owned = {tp for tp in sorted(free, key=str) if draw(st.booleans())}
        free -= owned
        target: dict[UUID, frozenset[int]] = {}
        for topic_id, number in owned:
            target[topic_id] = target.get(topic_id, frozenset()) | {number}
        members.append(member(f"m{index}", topics, target))
    return members


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=groups())
def test_each_subscribed_partition_has_one_owner(name: str, members: list[MemberSpec]) -> None:
    targets = ASSIGNORS[name](members)
    assert targets.keys() == {each.member_id for each in members}
    assigned = [(t, n) for target in targets.values() for t, partitions in target.items() for n in partitions]
    wanted = {(t, n) for each in members for t, count in each.topics.items() for n in range(count)}
    assert len(assigned) == len(set(assigned))
    assert set(assigned) == wanted
    for each in members:
        assert targets[each.member_id].keys() <= each.topics.keys()


@given(members=groups())
def test_uniform_assignor_is_balanced(members: list[MemberSpec]) -> None:
    """Nobody has two partitions more than another member that could have one of them."""
    targets = assign_uniform(members)
    sizes = {name: sum(map(len, target.values())) for name, target in targets.items()}
    for each in members:
        for other in members:
            if targets[each.member_id].keys() & other.topics.keys():
                assert sizes[each.member_id] - sizes[other.member_id] <= 1
