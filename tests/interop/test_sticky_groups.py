"""Sticky and cooperative-sticky groups of different clients: partitions stay with their members, whoever leads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.interop.group_members import Confluent, Java, KafkaPython, Member, Ours, Place, poll_until_shared
from tests.support.any_kafka import AnyKafka

PARTITIONS = 6

KINDS = {
    "sticky-ours": ("sticky", Ours),
    "sticky-java": ("sticky", Java),
    "sticky-kafka-python": ("sticky", KafkaPython),
    "cooperative-ours": ("cooperative-sticky", Ours),
    "cooperative-java": ("cooperative-sticky", Java),
    "cooperative-confluent": ("cooperative-sticky", Confluent),  # has no eager one
    "cooperative-kafka-python": ("cooperative-sticky", KafkaPython),
}
CASES = [
    pytest.param(assignor, theirs, we_lead, id=f"{name}-{who}", marks=[pytest.mark.java] if theirs is Java else [])
    for name, (assignor, theirs) in KINDS.items()
    for who, we_lead in (("we lead", True), ("they lead", False))
    # A kafka-python member that leads joins twice. It sometimes stops when another one joins in between, or begins a
    # rebalance after each rebalance.
    if we_lead or theirs is not KafkaPython
]


class Group:
    """The members of a group, which are closed in the end."""

    def __init__(self, place: Place, closing: contextlib.ExitStack) -> None:
        self._place = place
        self._closing = closing
        self.members: list[Member] = []

    def join(self, kind: Callable[[Place], Member]) -> Member:
        """Add a member, wait until all partitions are shared, and check that the other members only gave some away."""
        before = {id(member): (member.heard.owned.copy(), len(member.heard.revoked)) for member in self.members}
        joined = kind(self._place)
        self._closing.callback(self._close, joined)
        self.members.append(joined)
        self.settle()
        for member in self.members[:-1]:
            owned, revoked = before[id(member)]
            assert member.heard.owned < owned
            if self._place.assignor == "cooperative-sticky":
                moved = owned - member.heard.owned
                assert sorted(member.heard.revoked[revoked:]) == sorted(moved), "members revoke only what moves"
        return joined

    def leave(self, member: Member) -> None:
        """Close a member, wait until its partitions are shared, and check that the other members keep theirs."""
        before = {id(each): (each.heard.owned.copy(), len(each.heard.revoked)) for each in self.members}
        self.members.remove(member)
        member.close()
        self.settle()
        for each in self.members:
            owned, revoked = before[id(each)]
            assert each.heard.owned > owned
            if self._place.assignor == "cooperative-sticky":
                assert each.heard.revoked[revoked:] == []

    def settle(self) -> None:
        poll_until_shared(self.members, PARTITIONS)
        assert not any(member.heard.lost for member in self.members)

    def _close(self, member: Member) -> None:
        if member in self.members:
            member.close()


@pytest.mark.parametrize(("assignor", "theirs", "we_lead"), CASES)
def test_mixed_members_join_leave_and_take_over(
    any_kafka: AnyKafka,
    topic: str,
    group_id: str,
    assignor: str,
    theirs: Callable[[Place], Member],
    we_lead: bool,
) -> None:
    any_kafka.create_topic(topic, PARTITIONS)
    with contextlib.ExitStack() as closing:
        group = Group(Place(any_kafka.bootstrap_servers, group_id, topic, assignor), closing)
        leader = group.join(Ours if we_lead else theirs)
        other = group.join(theirs if we_lead else Ours)
        third = group.join(Ours)
        if theirs is KafkaPython:
            group.leave(third)
            group.leave(other)
        else:
            group.leave(leader)
            group.leave(third if we_lead else other)


@pytest.mark.java
def test_all_clients_share_a_group_with_their_defaults(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    any_kafka.create_topic(topic, PARTITIONS)
    place = Place(any_kafka.bootstrap_servers, group_id, topic, None)
    with contextlib.ExitStack() as closing:
        members: list[Member] = []
        for kind in (Ours, Java, Confluent, KafkaPython):
            members.append(kind(place))
            closing.callback(members[-1].close)
            poll_until_shared(members, PARTITIONS)
