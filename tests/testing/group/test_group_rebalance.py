"""Members that join, leave, fail and return, on virtual time."""

from __future__ import annotations

import pytest

from pykclient.testing.group.group_metadata import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from tests.testing.group.harness import GROUP, Groups

ILLEGAL_GENERATION = 22
INCONSISTENT_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCING = 27
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
MEMBER_ID_REQUIRED = 79
GROUP_FULL = 81
FENCED = 82


def test_one_member_joins_syncs_and_stays() -> None:
    groups = Groups()
    first = groups.join().value
    assert first.error_code == MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    reply = groups.join(first.member_id)
    groups.settle()
    joined = reply.value
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, first.member_id)
    assert [one.member_id for one in joined.members] == [first.member_id]
    assert groups.group().state is COMPLETING_REBALANCE
    synced = groups.sync(first.member_id, 1, {first.member_id: b"all"}).value
    assert (synced.error_code, synced.assignment, synced.protocol_name) == (0, b"all", "range")
    assert groups.group().state is STABLE
    for _ in range(20):
        groups.advance(3_000)
        assert groups.heartbeat(first.member_id, 1) == 0


def test_old_versions_join_at_once() -> None:
    groups = Groups()
    reply = groups.join(version=3)
    groups.settle()
    assert reply.value.error_code == 0
    assert reply.value.generation_id == 1


def test_first_rebalance_waits_for_more_members() -> None:
    groups = Groups(**{"group.initial.rebalance.delay.ms": 3_000})
    one = groups.join(version=3)
    groups.advance(2_900)
    assert not one.answered
    two = groups.join(version=3)
    # A new member extends the wait by the same time again.
    groups.advance(3_000)
    assert not two.answered
    groups.advance(100)
    assert one.value.generation_id == two.value.generation_id == 1
    assert len(one.value.members) == 2
    assert two.value.members == []


def test_first_rebalance_waits_at_most_the_rebalance_timeout() -> None:
    groups = Groups(**{"group.initial.rebalance.delay.ms": 3_000})
    one = groups.join(version=3, rebalance_timeout_ms=5_000)
    for _ in range(3):
        groups.advance(1_900)
        if not one.answered:
            groups.join(version=3, rebalance_timeout_ms=5_000)
    assert one.answered


def test_second_member_makes_the_first_rejoin() -> None:
    groups = Groups()
    generation, (first,) = groups.stable(1)
    second, reply = groups.join_twice()
    assert groups.group().state is PREPARING_REBALANCE
    assert groups.heartbeat(first, generation) == REBALANCING
    assert not reply.answered
    again = groups.join(first)
    assert again.value.generation_id == reply.value.generation_id == generation + 1
    assert {one.member_id for one in again.value.members} == {first, second}
    waiting = groups.sync(second, generation + 1)
    assert not waiting.answered
    assert groups.heartbeat(second, generation + 1) == 0
    assert groups.sync(first, generation + 1, {first: b"a", second: b"b"}).value.assignment == b"a"
    assert waiting.value.assignment == b"b"


def test_many_members_join_leave_and_rejoin() -> None:
    groups = Groups()
    generation, ids = groups.stable(30)
    assert [groups.group().members[one].assignment for one in ids] == [b"part-%d" % i for i in range(30)]
    left = ids[::2]
    assert groups.leave(*left) == [0] * 15
    stayed = ids[1::2]
    replies = [groups.join(one) for one in stayed]
    assert groups.hand_out(stayed, replies) == generation + 1
    assert list(groups.group().members) == sorted(stayed, key=ids.index)


def test_silent_member_is_removed() -> None:
    groups = Groups()
    generation, (first, second) = groups.stable(2)
    for _ in range(3):
        groups.advance(3_000)
        assert groups.heartbeat(first, generation) == 0
    groups.advance(1_100)
    assert list(groups.group().members) == [first]
    assert groups.heartbeat(first, generation) == REBALANCING
    assert groups.heartbeat(second, generation) == UNKNOWN_MEMBER
    again = groups.join(first)
    assert again.value.generation_id == generation + 1
    assert [one.member_id for one in again.value.members] == [first]


def test_commit_extends_the_session() -> None:
    groups = Groups()
    generation, (first,) = groups.stable(1)
    for offset in range(10):
        groups.advance(9_000)
        assert set(groups.commit(offset, first, generation).value.values()) == {0}
    assert first in groups.group().members


def test_member_that_does_not_rejoin_is_removed() -> None:
    groups = Groups()
    generation, (first, second) = groups.stable(2, session_timeout_ms=300_000, rebalance_timeout_ms=20_000)
    again = groups.join(first, session_timeout_ms=300_000, rebalance_timeout_ms=20_000)
    groups.advance(19_000)
    assert groups.heartbeat(second, generation) == REBALANCING
    assert not again.answered
    groups.advance(1_000)
    assert [one.member_id for one in again.value.members] == [first]
    assert groups.join(second).value.error_code == UNKNOWN_MEMBER


def test_leader_that_does_not_rejoin_is_replaced() -> None:
    groups = Groups()
    generation, (first, second, third) = groups.stable(3, session_timeout_ms=300_000, rebalance_timeout_ms=20_000)
    groups.join_twice(session_timeout_ms=300_000, rebalance_timeout_ms=20_000)
    replies = [groups.join(one, session_timeout_ms=300_000, rebalance_timeout_ms=20_000) for one in (second, third)]
    groups.advance(20_000)
    leaders = {reply.value.leader for reply in replies}
    assert len(leaders) == 1
    assert first not in leaders
    assert groups.group().generation_id == generation + 1


def test_member_that_does_not_sync_is_removed() -> None:
    groups = Groups()
    _, (first, second) = groups.stable(2, rebalance_timeout_ms=20_000, session_timeout_ms=300_000)
    replies = [groups.join(one, rebalance_timeout_ms=20_000, session_timeout_ms=300_000) for one in (first, second)]
    generation = replies[0].value.generation_id
    assert groups.sync(first, generation, {first: b"a", second: b"b"}).value.assignment == b"a"
    groups.advance(20_000)
    assert list(groups.group().members) == [first]
    assert groups.heartbeat(first, generation) == REBALANCING


def test_leader_that_does_not_sync_does_not_block_members() -> None:
    groups = Groups()
    _, (first, second) = groups.stable(2, rebalance_timeout_ms=20_000, session_timeout_ms=300_000)
    replies = [groups.join(one, rebalance_timeout_ms=20_000, session_timeout_ms=300_000) for one in (first, second)]
    waiting = groups.sync(second, replies[0].value.generation_id)
    groups.advance(20_000)
    assert waiting.value.error_code == REBALANCING
    assert list(groups.group().members) == [second]
    again = groups.join(second)
    assert again.value.leader == second


def test_unused_member_id_expires() -> None:
    groups = Groups()
    generation, (first,) = groups.stable(1)
    pending = groups.join(session_timeout_ms=5_000).value.member_id
    again = groups.join(first)
    # All members have joined, but the pending one may still do so.
    assert not again.answered
    groups.advance(5_000)
    assert again.value.generation_id == generation + 1
    assert groups.join(pending).value.error_code == UNKNOWN_MEMBER


def test_pending_member_can_leave() -> None:
    groups = Groups()
    _, (first,) = groups.stable(1)
    pending = groups.join().value.member_id
    again = groups.join(first)
    assert groups.leave(pending) == [0]
    assert again.answered


def test_leaving_members_trigger_rebalances() -> None:
    groups = Groups()
    generation, (first, second) = groups.stable(2)
    assert groups.leave(first, "nobody") == [0, UNKNOWN_MEMBER]
    assert groups.heartbeat(second, generation) == REBALANCING
    assert groups.heartbeat(first, generation) == UNKNOWN_MEMBER
    assert groups.leave(second) == [0]
    assert groups.group().state is EMPTY
    assert groups.group().generation_id == generation + 1
    assert groups.leave(second) == [UNKNOWN_MEMBER]


def test_removed_member_gets_unknown_member_id() -> None:
    groups = Groups()
    generation, (first, second) = groups.stable(2)
    waiting = groups.join(first)
    assert groups.leave(first) == [0]
    assert waiting.value.error_code == UNKNOWN_MEMBER
    replies = [groups.join(second)]
    waiting_sync = groups.sync(second, replies[0].value.generation_id, {second: b"x"})
    assert waiting_sync.value.assignment == b"x"
    third, joining = groups.join_twice()
    again = groups.join(second)
    assert joining.answered
    assert again.answered
    held = groups.sync(third, generation + 2)
    assert groups.leave(third) == [0]
    assert held.value.error_code == UNKNOWN_MEMBER


def test_joining_client_that_disconnected_expires() -> None:
    groups = Groups()
    groups.stable(1, session_timeout_ms=1_000_000, rebalance_timeout_ms=2_000_000)
    lost = groups.join(version=3, session_timeout_ms=1_000_000, rebalance_timeout_ms=2_000_000)
    groups.advance(300_000)
    assert lost.value.error_code == UNKNOWN_MEMBER
    assert len(groups.group().members) == 1


def test_repeated_join_gets_the_same_response() -> None:
    groups = Groups()
    _, (first, second) = groups.stable(2)
    replies = [groups.join(one) for one in (first, second)]
    generation = replies[0].value.generation_id
    repeated = groups.join(second)
    assert repeated.value.generation_id == generation
    repeated_leader = groups.join(first)
    assert len(repeated_leader.value.members) == 2
    assert groups.hand_out((first, second), (repeated_leader, repeated)) == generation
    # In a stable group, a follower's join gets the current state; only a leader's join starts a rebalance.
    assert groups.join(second).value.generation_id == generation
    assert groups.group().state is STABLE
    groups.join(first)
    assert groups.group().state is PREPARING_REBALANCE


def test_changed_metadata_triggers_a_rebalance() -> None:
    groups = Groups()
    generation, (_, second) = groups.stable(2)
    assert not groups.join(second, protocols={"range": b"changed"}).answered
    assert groups.group().state is PREPARING_REBALANCE
    assert groups.group().generation_id == generation


def test_repeated_join_answers_the_first_one_too() -> None:
    groups = Groups()
    _, (first, second) = groups.stable(2)
    outdated = groups.join(first)
    repeated = groups.join(first)
    assert outdated.value.error_code == REBALANCING
    assert not repeated.answered
    groups.join(second)
    assert repeated.value.error_code == 0


def test_most_preferred_protocol_is_selected() -> None:
    groups = Groups()
    preferences: list[dict[str, bytes]] = [
        {"a": b"", "b": b"", "c": b""},
        {"b": b"", "a": b""},
        {"b": b"", "c": b"", "a": b""},
    ]
    replies = [groups.join(version=3, protocols=protocols) for protocols in preferences]
    groups.settle()
    replies = [
        groups.join(member, protocols=protocols)
        for member, protocols in zip(groups.group().members, preferences, strict=True)
    ]
    assert {reply.value.protocol_name for reply in replies} == {"b"}


def test_inconsistent_protocols_are_refused() -> None:
    groups = Groups()
    groups.stable(1)
    assert groups.join(protocols={"roundrobin": b""}).value.error_code == INCONSISTENT_PROTOCOL
    assert groups.join(protocol_type="connect").value.error_code == INCONSISTENT_PROTOCOL
    assert groups.join(group_id="new", protocols={}).value.error_code == INCONSISTENT_PROTOCOL
    assert groups.join(group_id="new", protocol_type="").value.error_code == INCONSISTENT_PROTOCOL


def test_a_protocol_named_twice_counts_once() -> None:
    groups = Groups()
    first, reply = groups.join_twice(protocols=[("range", b"one"), ("range", b"another")])
    groups.settle()
    assert (reply.value.error_code, reply.value.protocol_name) == (0, "range")
    second, reply = groups.join_twice(protocols=[("range", b"")])
    groups.join(first, protocols=[("range", b"one"), ("range", b"another")])
    groups.settle()
    assert (reply.value.error_code, reply.value.generation_id) == (0, 2)
    assert set(groups.group().members) == {first, second}


def test_group_of_another_protocol_type_works() -> None:
    groups = Groups()
    reply = groups.join(version=3, protocol_type="connect", protocols={"default": b"x"})
    groups.settle()
    member = reply.value.member_id
    assert reply.value.protocol_type == "connect"
    refused = groups.sync(member, 1, {member: b"y"})
    assert refused.value.error_code == INCONSISTENT_PROTOCOL
    synced = groups.sync(member, 1, {member: b"y"}, protocol_type="connect", protocol_name="default")
    assert synced.value.assignment == b"y"


def test_wrong_generations_and_unknown_members_are_refused() -> None:
    groups = Groups()
    generation, (first,) = groups.stable(1)
    assert groups.heartbeat(first, generation - 1) == ILLEGAL_GENERATION
    assert groups.heartbeat(first, generation + 1) == ILLEGAL_GENERATION
    assert groups.sync(first, generation - 1).value.error_code == ILLEGAL_GENERATION
    assert groups.sync("nobody", generation).value.error_code == UNKNOWN_MEMBER
    assert groups.heartbeat("nobody", generation) == UNKNOWN_MEMBER
    assert groups.join("nobody").value.error_code == UNKNOWN_MEMBER
    assert groups.join("nobody", group_id="no-group").value.error_code == UNKNOWN_MEMBER
    assert groups.join(group_id="").value.error_code == INVALID_GROUP_ID


@pytest.mark.parametrize("timeout_ms", [99, 1_800_001])
def test_session_timeouts_have_bounds(timeout_ms: int) -> None:
    assert Groups().join(session_timeout_ms=timeout_ms).value.error_code == INVALID_SESSION_TIMEOUT


def test_a_full_group_refuses_members_until_one_leaves() -> None:
    groups = Groups(**{"group.max.size": 2})
    generation, (first, second) = groups.stable(2)
    assert groups.join().value.error_code == GROUP_FULL
    assert groups.join(version=3).value.error_code == GROUP_FULL
    assert groups.heartbeat(first, generation) == 0
    assert groups.leave(second) == [0]
    groups.join(first)
    assert groups.join().value.error_code == MEMBER_ID_REQUIRED


def test_failed_assignment_write_fails_the_syncs() -> None:
    groups = Groups()
    _, (first, second) = groups.stable(2)
    replies = [groups.join(one) for one in (first, second)]
    generation = replies[0].value.generation_id
    waiting = groups.sync(second, generation)
    groups.replicas.error_code = 19
    assert groups.sync(first, generation, {first: b"a"}).value.error_code == COORDINATOR_NOT_AVAILABLE
    assert waiting.value.error_code == COORDINATOR_NOT_AVAILABLE
    assert groups.group().state is PREPARING_REBALANCE
    groups.replicas.error_code = 0
    replies = [groups.join(one) for one in (first, second)]
    assert groups.hand_out((first, second), replies) == generation + 1


def test_join_during_the_assignment_write_starts_a_rebalance() -> None:
    groups = Groups()
    _, (first,) = groups.stable(1)
    generation = groups.join(first).value.generation_id
    groups.replicas.holding = True
    outdated = groups.sync(first, generation, {first: b"all"})
    assert not outdated.answered
    _, reply = groups.join_twice()
    assert outdated.value.error_code == REBALANCING
    groups.replicas.release()
    assert groups.group().state is PREPARING_REBALANCE
    groups.join(first)
    assert reply.value.generation_id == generation + 1


# --- static members


def static(groups: Groups, *instances: str, session_timeout_ms: int = 10_000) -> dict[str, str]:
    """Make a stable group of static members and return their ids by instance."""
    for instance in instances:
        groups.join(instance_id=instance, session_timeout_ms=session_timeout_ms)
    groups.settle()
    ids = groups.group().static_members
    joins = [
        groups.join(ids[instance], instance_id=instance, session_timeout_ms=session_timeout_ms)
        for instance in instances
    ]
    groups.hand_out([ids[instance] for instance in instances], joins)
    return dict(ids)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("instance", ["a", "b"])
def test_static_member_returns_without_a_rebalance(instance: str, version: int) -> None:
    groups = Groups()
    ids = static(groups, "a", "b")
    generation = groups.group().generation_id
    leader = groups.group().leader_id
    back = groups.join(instance_id=instance, version=version).value
    assert (back.error_code, back.generation_id) == (0, generation)
    assert back.member_id not in ids.values()
    assert groups.group().state is STABLE
    was_leader = ids[instance] == leader
    if version == 9:
        assert back.skip_assignment is was_leader
        assert len(back.members) == (2 if was_leader else 0)
        assert (back.leader == back.member_id) is was_leader
    else:
        assert back.members == []
        assert back.leader == leader
    part = {"a": b"part-0", "b": b"part-1"}[instance]
    assert groups.sync(back.member_id, generation, instance_id=instance).value.assignment == part
    assert groups.heartbeat(ids[instance], generation, instance) == FENCED
    assert groups.sync(ids[instance], generation, instance_id=instance).value.error_code == FENCED
    assert groups.join(ids[instance], instance_id=instance).value.error_code == FENCED
    assert set(groups.commit(5, ids[instance], generation, instance_id=instance).value.values()) == {FENCED}
    assert groups.heartbeat(back.member_id, generation, instance) == 0


def test_static_member_keeps_its_id_if_the_write_fails() -> None:
    groups = Groups()
    ids = static(groups, "a", "b")
    generation = groups.group().generation_id
    groups.replicas.error_code = 6
    assert groups.join(instance_id="a").value.error_code == NOT_COORDINATOR
    groups.replicas.error_code = 0
    assert groups.heartbeat(ids["a"], generation, "a") == 0


def test_static_member_crashing_during_its_return_expires() -> None:
    groups = Groups()
    static(groups, "a")
    groups.replicas.holding = True
    back = groups.join(instance_id="a")
    groups.advance(15_000)  # longer than its session, which does not expire while it waits
    groups.replicas.release()
    assert back.value.error_code == 0
    groups.replicas.holding = False
    groups.advance(9_999)
    assert list(groups.group().members) == [back.value.member_id]
    groups.advance(2)
    assert not groups.group().members


def test_static_member_returning_with_other_protocols_triggers_a_rebalance() -> None:
    groups = Groups()
    static(groups, "a")
    back = groups.join(instance_id="a", protocols={"roundrobin": b"", "range": b""})
    assert back.value.protocol_name == "roundrobin"
    assert groups.group().state is COMPLETING_REBALANCE


def test_static_member_returning_during_assignment_triggers_a_rebalance() -> None:
    groups = Groups()
    ids = static(groups, "a", "b")
    replies = [groups.join(ids[one], instance_id=one) for one in ("a", "b")]
    waiting = groups.sync(ids["b"], replies[0].value.generation_id, instance_id="b")
    back = groups.join(instance_id="b")
    assert waiting.value.error_code == FENCED
    assert groups.group().state is PREPARING_REBALANCE
    groups.join(ids["a"], instance_id="a")
    assert back.value.generation_id == replies[0].value.generation_id + 1


def test_static_member_replaces_its_waiting_instance() -> None:
    groups = Groups()
    ids = static(groups, "a", "b")
    waiting = groups.join(ids["a"], instance_id="a")
    back = groups.join(instance_id="a")
    assert waiting.value.error_code == FENCED
    groups.join(ids["b"], instance_id="b")
    assert back.value.error_code == 0


def test_expired_static_members_stay_during_a_rebalance() -> None:
    groups = Groups()
    ids = static(groups, "a", "b")
    again = groups.join(ids["a"], instance_id="a", rebalance_timeout_ms=5_000)
    groups.advance(4_000)
    groups.heartbeat(ids["b"], groups.group().generation_id, "b")
    groups.advance(56_000 - 4_000)
    # The other member's session has expired by now.
    assert [one.group_instance_id for one in again.value.members] == ["a"]


def test_absent_static_member_keeps_its_place() -> None:
    groups = Groups()
    ids = static(groups, "a", "b", session_timeout_ms=300_000)
    again = groups.join(ids["b"], instance_id="b", session_timeout_ms=300_000, protocols={"range": b"changed"})
    groups.advance(60_000)
    # The leader must be a member that has joined.
    assert again.value.leader == ids["b"]
    assert [one.group_instance_id for one in again.value.members] == ["a", "b"]


def test_leave_request_removes_static_members_by_instance() -> None:
    groups = Groups()
    ids = static(groups, "a", "b")
    assert groups.leave(instances=["a", "c"]) == [0, UNKNOWN_MEMBER]
    assert list(groups.group().static_members) == ["b"]
    assert groups.heartbeat(ids["a"], 2, "a") == UNKNOWN_MEMBER


def test_group_of_absent_static_members_becomes_empty() -> None:
    groups = Groups()
    arguments = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 5_000}
    groups.join(instance_id="a", **arguments)  # type: ignore[arg-type]
    groups.settle()
    (member,) = groups.group().members
    dynamic, joining = groups.join_twice(**arguments)
    assert not joining.answered
    assert groups.leave(dynamic) == [0]
    groups.advance(10_000)
    assert groups.group().state is PREPARING_REBALANCE
    groups.advance(20_000)
    assert member not in groups.group().members
    assert groups.group().state is EMPTY
    assert GROUP in groups.coordinator.groups
