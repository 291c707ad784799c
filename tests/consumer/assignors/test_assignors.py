"""Examples and properties of the assignors; test_assignors_as_java.py compares them with Java's classes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.consumer.partition_assignors import (
    AbstractPartitionAssignor,
    ConsumerPartitionAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    Subscription,
    assignor_instances,
)
from pykclient.consumer.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from pykclient.errors import ConfigError
from pykclient.types import Node, PartitionInfo, TopicPartition
from tests.consumer.assignors.groups import Group, random_group

ASSIGNORS: dict[str, ConsumerPartitionAssignor] = {
    "range": RangeAssignor(),
    "roundrobin": RoundRobinAssignor(),
    "sticky": StickyAssignor(),
}


def assign(assignor: str, group: Group) -> dict[str, list[str]]:
    assignments = ASSIGNORS[assignor].assign(group.cluster, group.members)
    return {member_id: [str(tp) for tp in assignment.partitions] for member_id, assignment in assignments.items()}


def group_of(topics: dict[str, int], members: dict[str, list[str]]) -> Group:
    return Group(
        {topic: [[""]] * count for topic, count in topics.items()},
        {member_id: Subscription(wanted) for member_id, wanted in members.items()},
    )


class TestRange:
    def test_each_topic_is_divided_into_ranges(self) -> None:
        group = group_of({"a": 3, "b": 3}, {"m1": ["a", "b"], "m2": ["a", "b"]})
        assert assign("range", group) == {"m1": ["a-0", "a-1", "b-0", "b-1"], "m2": ["a-2", "b-2"]}

    def test_members_get_subscribed_topics_only(self) -> None:
        group = group_of({"a": 3, "b": 2}, {"m1": ["a"], "m2": ["a", "b"], "m3": ["missing"]})
        assert assign("range", group) == {"m1": ["a-0", "a-1"], "m2": ["a-2", "b-0", "b-1"], "m3": []}

    def test_static_members_come_first_in_the_order_of_their_names(self) -> None:
        group = group_of({"a": 3}, {"m1": ["a"], "m2": ["a"], "m3": ["a"]})
        for member_id, instance_id in (("m3", "i1"), ("m2", "i2")):
            group.members[member_id] = group.members[member_id]._replace(group_instance_id=instance_id)
        assert assign("range", group) == {"m3": ["a-0"], "m2": ["a-1"], "m1": ["a-2"]}

    def test_members_get_partitions_in_their_rack(self) -> None:
        group = Group(
            {"t": [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b"]]},
            {"m1": Subscription(["t"], rack_id="c"), "m2": Subscription(["t"], rack_id="a")},
        )
        assert assign("range", group) == {"m1": ["t-1", "t-2"], "m2": ["t-0", "t-3"]}

    def test_co_partitioned_topics_stay_together(self) -> None:
        group = Group(
            {"s": [["a"], ["b"]], "t": [["a"], ["b"]]},
            {"m1": Subscription(["s", "t"], rack_id="b"), "m2": Subscription(["s", "t"], rack_id="a")},
        )
        assert assign("range", group) == {"m1": ["s-1", "t-1"], "m2": ["s-0", "t-0"]}


class TestRoundRobin:
    def test_partitions_are_dealt_in_turn_across_topics(self) -> None:
        group = group_of({"a": 3, "b": 3}, {"m1": ["a", "b"], "m2": ["a", "b"]})
        assert assign("roundrobin", group) == {"m1": ["a-0", "a-2", "b-1"], "m2": ["a-1", "b-0", "b-2"]}

    def test_members_without_the_topic_are_passed_over(self) -> None:
        group = group_of({"a": 1, "b": 2, "c": 3}, {"m1": ["a"], "m2": ["a", "b"], "m3": ["a", "b", "c"]})
        assert assign("roundrobin", group) == {"m1": ["a-0"], "m2": ["b-0"], "m3": ["b-1", "c-0", "c-1", "c-2"]}


@pytest.mark.parametrize("assignor", list(ASSIGNORS))
@given(seed=st.integers(0, 2**32))
def test_each_partition_goes_to_one_subscribed_member(assignor: str, seed: int) -> None:
    group = random_group(random.Random(seed))
    assignments = ASSIGNORS[assignor].assign(group.cluster, group.members)
    assert assignments.keys() == group.members.keys()
    owners: Counter[TopicPartition] = Counter()
    for member_id, assignment in assignments.items():
        assert {tp.topic for tp in assignment.partitions} <= set(group.members[member_id].topics)
        owners.update(assignment.partitions)
    wanted = {topic for member in group.members.values() for topic in member.topics}
    expected = {TopicPartition(t, p) for t, racks in group.topics.items() if t in wanted for p in range(len(racks))}
    assert owners == Counter(expected)


_TOPICS = st.sampled_from(["a", "b", "c", "d"])


@pytest.mark.parametrize("assignor", list(ASSIGNORS))
@given(
    counts=st.dictionaries(_TOPICS, st.integers(0, 5)),
    wanted=st.dictionaries(
        st.sampled_from(["m1", "m2", "m3"]),
        st.tuples(st.lists(_TOPICS), st.sampled_from([None, "", "r0", "r1"]), st.sampled_from([None, "i1", "i2"])),
    ),
    racks=st.integers(0, 2),
)
def test_assign_partitions_ends_on_any_input(
    assignor: str,
    counts: dict[str, int],
    wanted: dict[str, tuple[list[str], str | None, str | None]],
    racks: int,
) -> None:
    """The assignor terminates on any input.

    Inputs include no members, members without topics, topics without subscribers, duplicate subscriptions and empty
    topics.
    """
    nodes = tuple(Node(index, "host", 9092, f"r{index}") for index in range(racks))
    partitions = {
        topic: [PartitionInfo(topic, number, None, nodes[number % 2 :], ()) for number in range(count)]
        for topic, count in counts.items()
    }
    members = {
        member_id: Subscription(topics, rack_id=rack, group_instance_id=instance)
        for member_id, (topics, rack, instance) in wanted.items()
    }
    implementation = ASSIGNORS[assignor]
    assert isinstance(implementation, AbstractPartitionAssignor)
    divided = implementation.assign_partitions(partitions, members)
    assert divided.keys() == members.keys()
    for member_id, assigned in divided.items():
        assert {tp.topic for tp in assigned} <= set(members[member_id].topics)
    topics = {topic for member in members.values() for topic in member.topics}
    expected = [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))]
    assert sorted(tp for assigned in divided.values() for tp in assigned) == sorted(expected)


@given(seed=st.integers(0, 2**32))
def test_ranges_differ_by_one_at_most(seed: int) -> None:
    group = random_group(random.Random(seed))
    assignments = ASSIGNORS["range"].assign(group.cluster, group.members)
    for topic in group.topics:
        counts = [
            sum(tp.topic == topic for tp in assignments[member_id].partitions)
            for member_id, member in group.members.items()
            if topic in member.topics
        ]
        assert not counts or max(counts) - min(counts) <= 1


class TestLoading:
    class Mine(RangeAssignor):
        name = "mine"

    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            ("range", RangeAssignor),
            ("roundrobin", RoundRobinAssignor),
            ("sticky", StickyAssignor),
            ("cooperative-sticky", CooperativeStickyAssignor),
            (RangeAssignor, RangeAssignor),
            (Mine(), Mine),
            ("pykclient.consumer.partition_assignors.RangeAssignor", RangeAssignor),
        ],
    )
    def test_names_classes_and_instances_are_loaded(self, value: Any, kind: type) -> None:
        (assignor,) = assignor_instances([value])
        assert type(assignor) is kind

    @pytest.mark.parametrize("value", ["rang", "no.such.module.Assignor", dict, 5, "pykclient.errors.KafkaError"])
    def test_unknown_assignors_are_refused(self, value: Any) -> None:
        with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy"):
            assignor_instances([value])

    def test_assignors_with_equal_names_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="two assignors"):
            assignor_instances(["range", RangeAssignor])
