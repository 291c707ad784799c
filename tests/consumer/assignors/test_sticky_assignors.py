"""The sticky assignors: examples, and properties that hold through any number of rebalances."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given, strategies as st
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from pykclient.consumer.partition_assignors import COOPERATIVE, EAGER, Assignment, Subscription
from pykclient.consumer.sticky_assignor import (
    CooperativeStickyAssignor,
    MemberData,
    StickyAssignor,
    deserialize_member_data,
    serialize_member_data,
)
from pykclient.types import ConsumerGroupMetadata, TopicPartition
from tests.consumer.assignors.groups import Group, rebalancing_group

Partitions = dict[str, list[TopicPartition]]
#: The topics of each member, what it owns, and since which generation (5 if it is left out).
Members = Mapping[str, tuple[str, str] | tuple[str, str, int]]

#: Cooperative rebalances that follow each other at most. More than two are rare: when a partition is free, another one
#: can move.
MOST_ROUNDS = 6


def tps(text: str) -> list[TopicPartition]:
    """Return the partitions in a text such as "a0 a1 b0"."""
    return [TopicPartition(word[0], int(word[1:])) for word in text.split()]


def text(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{tp.topic}{tp.partition}" for tp in sorted(partitions))


def group_of(topics: Mapping[str, int], members: Members) -> Group:
    return Group(
        {topic: [[""]] * count for topic, count in topics.items()},
        {
            member_id: Subscription(
                list(member[0]), None, tps(member[1]), generation_id=member[2] if len(member) > 2 else 5
            )
            for member_id, member in members.items()
        },
    )


def eager(group: Group) -> Group:
    """Return the same group with members of the eager protocol, which tell what they owned in the user data."""
    return Group(
        group.topics,
        {
            member_id: Subscription(
                member.topics,
                serialize_member_data(member.owned_partitions, member.generation_id),
                generation_id=member.generation_id,
                rack_id=member.rack_id,
            )
            for member_id, member in group.members.items()
        },
    )


def assign(group: Group) -> Partitions:
    assigned = StickyAssignor().assign(group.cluster, eager(group).members)
    return {member_id: list(assignment.partitions) for member_id, assignment in assigned.items()}


def assign_cooperatively(group: Group) -> Partitions:
    assigned = CooperativeStickyAssignor().assign(group.cluster, group.members)
    return {member_id: list(assignment.partitions) for member_id, assignment in assigned.items()}


def sticky(topics: Mapping[str, int], members: Members) -> dict[str, str]:
    return {member_id: text(some) for member_id, some in assign(group_of(topics, members)).items()}


def cooperative(topics: Mapping[str, int], members: Members) -> dict[str, str]:
    return {member_id: text(some) for member_id, some in assign_cooperatively(group_of(topics, members)).items()}


class TestSameTopics:
    def test_first_assignment_is_balanced(self) -> None:
        assigned = sticky({"a": 3, "b": 2}, {"m1": ("ab", ""), "m2": ("ab", "")})
        assert assigned == {"m1": "a0 a2 b1", "m2": "a1 b0"}

    def test_leaving_member_gives_partitions_to_the_others(self) -> None:
        assigned = sticky({"a": 6}, {"m1": ("a", "a0 a3"), "m3": ("a", "a2 a5")})
        assert assigned == {"m1": "a0 a1 a3", "m3": "a2 a4 a5"}

    def test_joining_member_takes_from_the_others(self) -> None:
        assigned = sticky({"a": 6}, {"m1": ("a", "a0 a1 a2"), "m2": ("a", "a3 a4 a5"), "m3": ("a", "")})
        assert assigned == {"m1": "a0 a1", "m2": "a3 a4", "m3": "a2 a5"}

    def test_member_keeps_the_larger_share(self) -> None:
        assigned = sticky({"a": 5}, {"m1": ("a", "a0"), "m2": ("a", "a1 a2"), "m3": ("a", "a3 a4")})
        assert assigned == {"m1": "a0", "m2": "a1 a2", "m3": "a3 a4"}

    def test_deleted_topics_and_partitions_are_dropped(self) -> None:
        assigned = sticky({"a": 2}, {"m1": ("ab", "a0 a2 a3 b0"), "m2": ("ab", "a1")})
        assert assigned == {"m1": "a0", "m2": "a1"}

    def test_surplus_members_get_no_partitions(self) -> None:
        assigned = sticky({"a": 1}, {"m1": ("a", ""), "m2": ("a", "a0"), "m3": ("a", "")})
        assert assigned == {"m1": "", "m2": "a0", "m3": ""}

    def test_missing_topics_give_empty_assignments(self) -> None:
        assert sticky({}, {"m1": ("a", "a0"), "m2": ("a", "")}) == {"m1": "", "m2": ""}


class TestDifferentTopics:
    def test_kip_54_example_is_reproduced(self) -> None:
        topics = {"a": 1, "b": 2, "c": 3}
        before = sticky(topics, {"m1": ("a", ""), "m2": ("ab", ""), "m3": ("abc", "")})
        assert before == {"m1": "a0", "m2": "b0 b1", "m3": "c0 c1 c2"}
        after = sticky(topics, {"m2": ("ab", "b0 b1"), "m3": ("abc", "c0 c1 c2")})
        assert after == {"m2": "a0 b0 b1", "m3": "c0 c1 c2"}

    def test_unsubscribed_partitions_move_to_a_subscriber(self) -> None:
        assigned = sticky({"a": 2, "b": 2}, {"m1": ("a", "a0 b0"), "m2": ("ab", "a1 b1")})
        assert assigned == {"m1": "a0 a1", "m2": "b0 b1"}

    def test_member_without_topics_gets_no_partitions(self) -> None:
        """Java may assign partitions to it, if its hash order puts this member first."""
        assert sticky({"a": 2}, {"m1": ("", ""), "m2": ("a", "")}) == {"m1": "", "m2": "a0 a1"}

    def test_new_partitions_move_before_owned_ones(self) -> None:
        assigned = sticky({"a": 4, "b": 4}, {"m1": ("a", "a0 a1"), "m2": ("ab", "b0 b1 b2 b3"), "m3": ("ab", "a2 a3")})
        assert assigned["m2"] in {"b0 b1 b2", "b0 b1 b3", "b0 b2 b3", "b1 b2 b3"}
        assert {"a0", "a1"} == {*assigned["m1"].split()}


class TestGenerations:
    """KIP-341 and KIP-792: members that missed a rebalance still claim what they owned before it."""

    def test_the_latest_claim_counts(self) -> None:
        assert sticky({"a": 2}, {"m1": ("a", "a0 a1", 3), "m2": ("a", "a0", 5)}) == {"m1": "a1", "m2": "a0"}
        assert sticky({"a": 2}, {"m1": ("a", "a0", 5), "m2": ("a", "a0 a1", 3)}) == {"m1": "a0", "m2": "a1"}

    def test_older_claim_counts_without_a_later_one(self) -> None:
        assert sticky({"a": 4}, {"m1": ("a", "a1 a2", 3), "m2": ("a", "a3", 5)}) == {"m1": "a1 a2", "m2": "a0 a3"}

    def test_user_data_generation_outranks_the_subscription(self) -> None:
        """A member that was dropped has no generation any more; the partitions it had are those of an older one."""
        members = {
            "m1": Subscription(["a"], serialize_member_data(tps("a0 a1"), 3), generation_id=9),
            "m2": Subscription(["a"], serialize_member_data(tps("a0"), 5), generation_id=-1),
        }
        assigned = StickyAssignor().assign(group_of({"a": 2}, {}).cluster, members)
        assert {member_id: text(each.partitions) for member_id, each in assigned.items()} == {"m1": "a1", "m2": "a0"}

    def test_conflicting_claims_of_one_generation_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        topics = {"a": 4}
        members: Members = {"m1": ("a", "a0 a1"), "m2": ("a", "a1 a2"), "m3": ("a", "a1", 4)}
        assert {tp for some in sticky(topics, members).values() for tp in some.split()} == {"a0", "a1", "a2", "a3"}
        expected = {"m1": "a0 a3", "m2": "a2", "m3": ""}
        assert cooperative(topics, members) == expected, "m3 gets a1 after the others have revoked it"
        assert "Several members claim to own a-1 in the same generation" in caplog.text

    def test_later_claim_overrides_two_older_ones(self) -> None:
        members: Members = {"m1": ("a", "a0"), "m2": ("a", "a0"), "m3": ("a", "a0", 6)}
        assert cooperative({"a": 3}, members) == {"m1": "a1", "m2": "a2", "m3": "a0"}

    def test_older_claim_does_not_skip_revocation(self) -> None:
        """m2 claims a0 from before m1 got it. As it moves back, m1 must revoke it first."""
        members: Members = {"m1": ("ab", "a0 a1"), "m2": ("a", "a0", 3)}
        assert sticky({"a": 2}, members) == {"m1": "a1", "m2": "a0"}
        assert cooperative({"a": 2}, members) == {"m1": "a1", "m2": ""}


class TestCooperative:
    def test_sticky_assignors_support_their_rebalance_protocols(self) -> None:
        assert CooperativeStickyAssignor().supported_protocols == (COOPERATIVE, EAGER)
        assert StickyAssignor().supported_protocols == (EAGER,)

    def test_a_partition_moves_in_two_rounds(self) -> None:
        topics = {"a": 4}
        first = cooperative(topics, {"m1": ("a", "a0 a1 a2 a3"), "m2": ("a", "")})
        assert first == {"m1": "a0 a1", "m2": ""}
        second = cooperative(topics, {"m1": ("a", "a0 a1", 6), "m2": ("a", "", 6)})
        assert second == {"m1": "a0 a1", "m2": "a2 a3"}

    def test_unowned_partitions_are_assigned_at_once(self) -> None:
        assigned = cooperative({"a": 4}, {"m1": ("a", "a0"), "m2": ("a", "")})
        assert assigned == {"m1": "a0 a1", "m2": "a2 a3"}

    @pytest.mark.parametrize(
        ("generation_id", "user_data", "expected"),
        [
            (7, None, 7),
            (7, struct.pack(">i", 3), 7),
            (-1, struct.pack(">i", 3), 3),  # Java before KIP-792
            (-1, serialize_member_data(tps("a0 b1"), 4), 4),  # librdkafka before KIP-792
            (-1, b"", -1),  # kafka-python
            (-1, None, -1),
            (-1, b"abc", -1),
            (-1, b"abcdefgh", -1),
        ],
    )
    def test_generation_of_member_is_read(self, generation_id: int, user_data: bytes | None, expected: int) -> None:
        subscription = Subscription(["a"], user_data, tps("a0"), generation_id)
        assert CooperativeStickyAssignor().member_data(subscription) == MemberData(tps("a0"), expected)


class TestRacks:
    def test_members_prefer_their_rack(self) -> None:
        group = Group(
            {"t": [["a"], ["a"], ["b"], ["b"]]},
            {"m1": Subscription(["t"], rack_id="b"), "m2": Subscription(["t"], rack_id="a")},
        )
        assert {member_id: text(some) for member_id, some in assign(group).items()} == {"m1": "t2 t3", "m2": "t0 t1"}

    def test_balance_outranks_racks(self) -> None:
        group = Group(
            {"t": [["a"], ["a"], ["a"], ["a", "b"]]},
            {"m1": Subscription(["t"], rack_id="b"), "m2": Subscription(["t"], rack_id="a")},
        )
        assert {member_id: len(some) for member_id, some in assign(group).items()} == {"m1": 2, "m2": 2}
        assert "t3" in text(assign(group)["m1"])

    def test_racks_come_before_stickiness(self) -> None:
        for others in (["t"], ["t", "u"]):
            group = Group(
                {"t": [["a"], ["b"]], "u": []},
                {
                    "m1": Subscription(["t"], None, tps("t0"), 5, rack_id="b"),
                    "m2": Subscription(others, None, tps("t1"), 5, rack_id="a"),
                },
            )
            assert {member_id: text(some) for member_id, some in assign(group).items()} == {"m1": "t1", "m2": "t0"}

    def test_partition_without_a_rack_match_stays(self) -> None:
        for others in (["t"], ["t", "u"]):
            group = Group(
                {"t": [["a"], ["c"], ["c"], ["c"]], "u": []},
                {
                    "m1": Subscription(["t"], None, tps("t3"), 5, rack_id="a"),
                    "m2": Subscription(others, None, tps("t1 t2"), 5, rack_id="a"),
                },
            )
            expected = {"m1": "t0 t3", "m2": "t1 t2"}
            assert {member_id: text(some) for member_id, some in assign(group).items()} == expected


class TestUserData:
    def test_user_data_is_encoded_as_in_java(self) -> None:
        """As Java 4.3.1 writes them; see test_assignors_as_java.py."""
        assignor = StickyAssignor()
        assert assignor.subscription_user_data(frozenset(("t",))) is None
        assignor.on_assignment(Assignment(tps("t0 t5")), ConsumerGroupMetadata("g", 7, "m", None))
        assert assignor.subscription_user_data(frozenset()) == bytes.fromhex(
            "00000001 0001 74 00000002 00000000 00000005 00000007"
        )
        newer = CooperativeStickyAssignor()
        assert newer.subscription_user_data(frozenset()) == b"\xff\xff\xff\xff"
        newer.on_assignment(Assignment(tps("t0 t5")), ConsumerGroupMetadata("g", 7, "m", None))
        assert newer.subscription_user_data(frozenset()) == b"\x00\x00\x00\x07"

    def test_user_data_without_a_generation_is_read(self) -> None:
        data = serialize_member_data(tps("a0 b1 b2"), 3)
        assert deserialize_member_data(data) == MemberData(tps("a0 b1 b2"), 3)
        assert deserialize_member_data(data[:-4]) == MemberData(tps("a0 b1 b2"), -1)

    def test_user_data_of_kafka_python_3_is_read(self) -> None:
        """It begins with a version, which Java takes for a part of the number of topics."""
        data = StickyPartitionAssignor._metadata(["a"], tps("a0 b1 b2"), 3).user_data.encode()
        assert data == b"\0\1" + serialize_member_data(tps("a0 b1 b2"), 3)
        assert deserialize_member_data(data) == MemberData(tps("a0 b1 b2"), 3)
        assert deserialize_member_data(data[:12]) == MemberData(())

    @given(data=st.binary(max_size=40), position=st.integers(0, 40), generation_id=st.integers(-1, 2**31 - 1))
    def test_unreadable_user_data_is_ignored(self, data: bytes, position: int, generation_id: int) -> None:
        valid = serialize_member_data(tps("a0 a1 b7"), generation_id)
        for user_data in (data, valid[:position], valid[:position] + data):
            read = deserialize_member_data(user_data)
            assert read.generation_id >= -(2**31)
            assert isinstance(read.partitions, Sequence)


@given(
    seed=st.integers(0, 2**32),
    same_topics=st.booleans(),
    racks=st.booleans(),
    disorder=st.sampled_from(["", "stale", "contested"]),
)
def test_cooperative_rounds_end_in_a_stable_assignment(
    seed: int, same_topics: bool, racks: bool, disorder: str
) -> None:
    """Each partition has one owner at a time, and after a few rounds everything is assigned and stays where it is."""
    group = rebalancing_group(
        random.Random(seed),
        cooperative=True,
        same_topics=same_topics,
        racks=racks,
        stale=disorder == "stale",
        contested=disorder == "contested",
    )
    for generation_id in range(20, 20 + MOST_ROUNDS):
        assigned = assign_cooperatively(group)
        _check_owners(group, assigned, settled=generation_id > 20 or not disorder)
        if not _rejoin(group, assigned, generation_id):
            break
    else:
        pytest.fail(f"members still revoke partitions after {MOST_ROUNDS} rounds")
    assert {tp for partitions in assigned.values() for tp in partitions} == group.partitions
    stable = {member_id: {*partitions} for member_id, partitions in assigned.items()}
    assert {member_id: {*partitions} for member_id, partitions in assign_cooperatively(group).items()} == stable
    assert {member_id: {*partitions} for member_id, partitions in assign(group).items()} == stable


def _rejoin(group: Group, assigned: Partitions, generation_id: int) -> bool:
    """Let the members take their assignment; return True if any had to revoke a partition, and rejoins."""
    revoked = False
    for member_id, partitions in assigned.items():
        member = group.members[member_id]
        revoked |= not {*member.owned_partitions} <= {*partitions}
        group.members[member_id] = member._replace(owned_partitions=partitions, generation_id=generation_id)
    return revoked


def _check_owners(group: Group, assigned: Partitions, *, settled: bool) -> None:
    """Check that nobody gets a partition that another member owns.

    Before the group has ``settled``, claims can be older than another member's, or conflict with it.
    """
    counts = Counter(tp for partitions in assigned.values() for tp in partitions)
    assert set(counts.values()) <= {1}
    assert set(counts) <= group.partitions
    for member_id, partitions in assigned.items():
        assert {tp.topic for tp in partitions} <= set(group.members[member_id].topics)
    if settled:
        owners = {tp: member_id for member_id, member in group.members.items() for tp in member.owned_partitions}
        for member_id, partitions in assigned.items():
            assert all(owners.get(tp, member_id) == member_id for tp in partitions)


@given(seed=st.integers(0, 2**32))
def test_equal_topics_move_only_necessary_partitions(seed: int) -> None:
    group = rebalancing_group(random.Random(seed), cooperative=True, same_topics=True, racks=False)
    assigned = assign(group)
    share, larger_shares = divmod(len(group.partitions), len(group.members))
    owned = [len({*member.owned_partitions} & group.partitions) for member in group.members.values()]
    may_stay = sum(min(count, share) for count in owned) + min(larger_shares, sum(count > share for count in owned))
    stayed = [tp for each, member in group.members.items() for tp in {*member.owned_partitions} & {*assigned[each]}]
    assert len(stayed) == may_stay
    assert {len(partitions) for partitions in assigned.values()} <= {share, share + 1}


@given(seed=st.integers(0, 2**32), racks=st.booleans())
def test_different_topics_leave_no_improving_move(seed: int, racks: bool) -> None:
    group = rebalancing_group(random.Random(seed), cooperative=True, same_topics=False, racks=racks)
    assigned = assign(group)
    for member_id, member in group.members.items():
        for other, partitions in assigned.items():
            if any(tp.topic in member.topics for tp in partitions):
                assert len(partitions) <= len(assigned[member_id]) + 1, (member_id, other)


@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("same_topics", [False, True])
def test_a_large_group_becomes_stable(same_topics: bool, racks: bool) -> None:
    """100 members, 1,000 partitions: members leave and join between the rebalances."""
    rng = random.Random(848)
    names = ["a", "b", "c"] if racks else [""]
    topics = {f"t{number}": [[rng.choice(names)] for _ in range(10)] for number in range(100)}

    def member() -> Subscription:
        wanted = list(topics) if same_topics else rng.sample(list(topics), rng.randint(1, 100))
        return Subscription(wanted, rack_id=rng.choice(names) or None)

    group = Group(topics, {f"m{number:03}": member() for number in range(100)})
    for wave in range(5):
        for round_number in range(MOST_ROUNDS):
            assigned = assign_cooperatively(group)
            _check_owners(group, assigned, settled=True)
            if not _rejoin(group, assigned, wave * 10 + round_number):
                break
        else:
            pytest.fail(f"members still revoke partitions after {MOST_ROUNDS} rounds")
        assert {tp for partitions in assigned.values() for tp in partitions} == group.partitions
        for member_id in rng.sample(list(group.members), 10):
            del group.members[member_id]
        group.members.update({f"m{wave + 1}{number:03}": member() for number in range(10)})
