"""The invariants report each kind of fault, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykclient.testing.simulation.checks import (
    InvariantError,
    Ownership,
    check_everything_read,
    check_nothing_lost,
    check_nothing_twice,
    check_one_topic_after_the_other,
    check_order,
    check_origin,
    check_reading,
    check_replicas,
)
from pykclient.types import TopicPartition

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
LOGS = {TP: {0: b"a", 1: b"b", 3: b"c"}, OTHER: {0: b"d"}}


def test_valid_runs_pass_every_check() -> None:
    check_nothing_lost([(TP, 1, b"b"), (OTHER, 0, b"d")], LOGS)
    check_nothing_twice(LOGS)
    check_nothing_twice({TP: {0: b"a", 1: b"b", 2: b"a"}}, forgotten={b"a"})
    check_order({TP: [b"a", b"b", b"lost", b"c"], OTHER: [b"d"]}, LOGS)
    check_order({TP: [b"a", b"b"]}, {TP: {0: b"a", 1: b"b", 2: b"a"}})  # a retry that was written twice
    check_origin([b"a", b"b", b"c", b"d", b"lost"], LOGS)
    check_reading({TP: {0: b"a", 3: b"c"}}, LOGS)
    check_everything_read(LOGS, LOGS)
    check_replicas({1: b"xyz", 2: b"xyz"}, TP)


@pytest.mark.parametrize("sent_before", [{b"x", b"a"}, {b"x", b"a", b"y"}])
@pytest.mark.parametrize(
    "read",
    [
        [],
        [(0, b"x"), (1, b"y"), (0, b"a"), (1, b"b")],
        [(0, b"a"), (1, b"x"), (2, b"y"), (0, b"a"), (1, b"b")],  # of both topics, in the first at the same offset
        [(4, b"a"), (0, b"a"), (1, b"b")],  # of both topics, at different offsets
    ],
)
def test_records_may_continue_in_a_recreated_topic(read: list[tuple[int, bytes]], sent_before: set[bytes]) -> None:
    check_one_topic_after_the_other("c", TP, read, LOGS[TP], sent_before)


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (
            lambda: check_nothing_lost([(TP, 2, b"x")], LOGS),
            "x was acknowledged at offset 2 of orders-0, but the log has nothing there",
        ),
        (
            lambda: check_nothing_lost([(TP, 1, b"x")], LOGS),
            "x was acknowledged at offset 1 of orders-0, but the log has b there",
        ),
        (lambda: check_nothing_twice({TP: {0: b"a"}, OTHER: {4: b"a"}}), "a is at offset 0 of orders-0 and at 4"),
        (lambda: check_nothing_twice({TP: {0: b"a", 1: b"a"}}, {b"b"}), "a is at offset 0 of orders-0 and at 1"),
        (lambda: check_order({TP: [b"b", b"a"]}, LOGS), "b is at offset 1 of orders-0 after a, which was sent later"),
        (lambda: check_origin([b"a", b"b", b"c"], LOGS), "d is at offset 0 of orders-1, and was never sent"),
        (
            lambda: check_reading({TP: {2: b"x"}}, LOGS),
            "x was read at offset 2 of orders-0, but the log has nothing there",
        ),
        (lambda: check_everything_read({TP: {0: b"a"}}, LOGS), "offset 1 of orders-0 was never read, and 1 others"),
        (
            lambda: check_one_topic_after_the_other("c", TP, [(0, b"a"), (1, b"x")], LOGS[TP], {b"x"}),
            "c read x at offset 1 of orders-0, which is of a topic deleted before",
        ),
        (
            lambda: check_one_topic_after_the_other("c", TP, [(1, b"b"), (4, b"a")], LOGS[TP], {b"a"}),
            "c read a at offset 4 of orders-0, which is of a topic deleted before",
        ),
        (
            lambda: check_one_topic_after_the_other("c", TP, [(4, b"a")], LOGS[TP]),
            "c read a at offset 4 of orders-0, which the log has elsewhere",
        ),
        (lambda: check_replicas({1: b"xyz", 2: b"xy"}, TP), "brokers 1 and 2 differ from byte 2 on"),
        (lambda: check_replicas({1: b"xyz", 3: b"xaz"}, TP), "brokers 1 and 3 differ from byte 1 on"),
    ],
)
def test_broken_invariants_are_named(check: Callable[[], None], problem: str) -> None:
    with pytest.raises(InvariantError, match=problem):
        check()


def test_partitions_may_move_between_members() -> None:
    ownership = Ownership()
    ownership.assigned("one", 1, [TP, OTHER])
    ownership.given_up("one", [TP, OTHER])
    ownership.assigned("one", 2, [TP])
    ownership.assigned("two", 2, [OTHER])
    assert ownership.of("one") == {TP}
    ownership.crashed("two")
    ownership.given_up("one", [TP])
    ownership.assigned("one", 3, [TP, OTHER])
    ownership.given_up("one", [TP, OTHER])
    ownership.closed("one")


def test_partition_has_one_owner_per_generation() -> None:
    ownership = Ownership()
    ownership.assigned("one", 1, [TP])
    with pytest.raises(InvariantError, match="two and one are both assigned orders-0 in generation 1"):
        ownership.assigned("two", 1, [TP])


def test_cooperative_move_needs_two_generations() -> None:
    """In cooperative rebalances, the owner revokes it in one, and another member is assigned it in the next one."""
    ownership = Ownership()
    ownership.assigned("one", 1, [TP, OTHER])
    ownership.revoked("one", 2, [TP])
    ownership.assigned("two", 3, [TP])
    ownership.revoked("one", 3, [OTHER])
    with pytest.raises(InvariantError, match="two is assigned orders-1 in generation 3, in which one still owns it"):
        ownership.assigned("two", 3, [OTHER])


def test_new_owner_may_be_reported_first() -> None:
    ownership = Ownership()
    ownership.assigned("one", 1, [TP])
    ownership.assigned("two", 2, [TP])
    with pytest.raises(InvariantError, match="two is assigned orders-0 in generation 2, in which one still owns it"):
        ownership.revoked("one", 2, [TP])


def test_static_member_keeps_partitions_under_a_new_id() -> None:
    ownership = Ownership()
    ownership.assigned("one-1", 1, [TP], owner="one")
    ownership.crashed("one-1")
    ownership.assigned("one-2", 1, [TP], owner="one")
    assert ownership.of("one-2") == {TP}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda ownership: ownership.assigned("one", 2, [TP]), "one is assigned orders-0, which it still owns"),
        (lambda ownership: ownership.given_up("one", [OTHER]), "one gives up orders-1, which it does not own"),
        (lambda ownership: ownership.closed("one"), "one was closed without being told to give up"),
    ],
)
def test_inconsistent_ownership_events_raise(wrong: Callable[[Ownership], None], problem: str) -> None:
    ownership = Ownership()
    ownership.assigned("one", 1, [TP])
    with pytest.raises(InvariantError, match=problem):
        wrong(ownership)
