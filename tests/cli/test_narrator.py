"""The narrator prints what changes in a cluster, and not what stays the same."""

from __future__ import annotations

from pykclient.cli.embedded import changes
from pykclient.testing.cluster import ClusterState, GroupState, PartitionState
from pykclient.types import TopicPartition

BROKERS = {1: "running", 2: "running", 3: "running"}


def partition(leader: int | None = 1, isr: tuple[int, ...] = (1, 2), end: int = 0) -> PartitionState:
    return PartitionState(leader, (1, 2), isr, 0, end)


def state(
    brokers: dict[int, str] | None = None,
    controller: int | None = 1,
    orders: list[PartitionState] | None = None,
    groups: dict[str, GroupState] | None = None,
) -> ClusterState:
    partitions = {TopicPartition("orders", index): row for index, row in enumerate(orders or [])}
    return ClusterState(brokers or BROKERS, controller, partitions, groups or {})


def told(before: ClusterState, after: ClusterState) -> list[str]:
    return list(changes(before, after))


def test_narrator_is_silent_without_changes() -> None:
    assert told(state(orders=[partition()]), state(orders=[partition(end=1000)])) == []


def test_narrator_reports_broker_and_controller_changes() -> None:
    down = state({**BROKERS, 1: "down"}, controller=None)
    assert told(state(), down) == ["broker 1 is down", "no controller"]
    assert told(down, state(controller=2)) == ["broker 1 is running", "broker 2 is the controller"]
    assert told(state(), state({**BROKERS, 3: "paused"})) == ["broker 3 is paused"]


def test_narrator_reports_topic_changes() -> None:
    made = state(orders=[partition(), partition()])
    assert told(state(), made) == ["topic orders: 2 partitions, 2 replicas each"]
    assert told(made, state(orders=[partition()] * 3)) == ["topic orders has 3 partitions now, 2 before"]
    assert told(made, state()) == ["topic orders was deleted"]
    assert told(state(), state(orders=[PartitionState(1, (1,), (1,), 0, 0)])) == [
        "topic orders: 1 partition, 1 replica each"
    ]


def test_narrator_reports_leader_and_isr_changes() -> None:
    before = state(orders=[partition()])
    assert told(before, state(orders=[partition(2, (2,))])) == ["orders-0: leader 1 -> 2, in sync: 2"]
    assert told(before, state(orders=[partition(1, (1,))])) == ["orders-0: led by 1, in sync: 1"]
    assert told(before, state(orders=[partition(None, (2,))])) == ["orders-0: no leader, in sync: 2"]
    assert told(state(orders=[partition(None)]), before) == ["orders-0: leader none -> 1, in sync: 1, 2"]


def test_narrator_reports_group_changes() -> None:
    one, two = GroupState("Stable", 1, 1), GroupState("Stable", 2, 2)
    assert told(state(), state(groups={"g": one})) == ["group g: Stable, 1 member, generation 1"]
    assert told(state(groups={"g": one}), state(groups={"g": two})) == ["group g: Stable, 2 members, generation 2"]
    assert told(state(groups={"g": two}), state(groups={"g": GroupState("Empty", 3, 0)})) == [
        "group g: Empty, no members, generation 3"
    ]
    assert told(state(groups={"g": two}), state()) == ["group g is gone"]
