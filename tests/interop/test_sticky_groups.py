"""Sticky and cooperative-sticky groups of different clients: partitions stay with their members, whoever leads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.interop.group_members import Confluent, Java, KafkaPython, Member, Ours, Place, poll_until_shared
from tests.support.any_kafka import AnyKafka

PARTITIONS = 6

#: librdkafka has no eager sticky assignor.
KINDS = [
    pytest.param("sticky", Ours, id="sticky-ours"),
    pytest.param("sticky", Java, id="sticky-java", marks=pytest.mark.java),
    pytest.param("sticky", KafkaPython, id="sticky-kafka-python"),
    pytest.param("cooperative-sticky", Ours, id="cooperative-ours"),
    pytest.param("cooperative-sticky", Java, id="cooperative-java", marks=pytest.mark.java),
    pytest.param("cooperative-sticky", Confluent, id="cooperative-confluent"),
    pytest.param("cooperative-sticky", KafkaPython, id="cooperative-kafka-python"),
]


class Group:
    """The members of a group, which are closed in the end."""

    def __init__(self, place: Place, closing: contextlib.ExitStack) -> None:
        self._place = place
        self._closing = closing
        self.members: list[Member] = []
        #: False while a leader cannot read what other members had before.
        self.is_sticky = True

    def join(self, kind: Callable[[Place], Member]) -> Member:
        """Add a member, wait until all partitions are shared, and check that the other members only gave some away."""
        before = {id(member): (member.heard.owned.copy(), len(member.heard.revoked)) for member in self.members}
        joined = kind(self._place)
        self._closing.callback(self._close, joined)
        self.members.append(joined)
        self.settle()
        for member in self.members[:-1]:
            owned, revoked = before[id(member)]
            assert member.heard.owned < owned or not self.is_sticky
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
            assert each.heard.owned > owned or not self.is_sticky
            if self._place.assignor == "cooperative-sticky":
                assert each.heard.revoked[revoked:] == []

    def settle(self) -> None:
        poll_until_shared(self.members, PARTITIONS)
        assert not any(member.heard.lost for member in self.members)

    def _close(self, member: Member) -> None:
        if member in self.members:
            member.close()


@pytest.mark.parametrize(("assignor", "theirs"), KINDS)
@pytest.mark.parametrize("we_lead", [True, False], ids=["we lead", "they lead"])
def test_members_come_and_go(
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
        # The user data of kafka-python's eager assignor has a format of its own. We read it, but it cannot read ours.
        reads_ours = (theirs, assignor) != (KafkaPython, "sticky")
        group.is_sticky = we_lead or reads_ours
        leader = group.join(Ours if we_lead else theirs)
        other = group.join(theirs if we_lead else Ours)
        third = group.join(Ours)
        group.is_sticky = reads_ours
        group.leave(leader)
        group.leave(third if we_lead else other)
