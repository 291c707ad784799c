"""Commits, fetches, expiry and deletion of offsets, and their state after a failover."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pykclient.errors import BrokerError, GroupIdNotFoundError, GroupNotEmptyError
from pykclient.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from pykclient.protocol.wire import Writer
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.testing.config import BrokerConfig
from pykclient.testing.group.group_metadata import EMPTY, STABLE, GroupMetadata
from pykclient.types import TopicPartition
from tests.testing.group.harness import GROUP, TP, Groups, Reply

OFFSET_METADATA_TOO_LARGE = 12
LOADING = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER = 25
REBALANCING = 27
GROUP_ID_NOT_FOUND = 69
GROUP_FULL = 81
SUBSCRIBED = 86

OTHER = TopicPartition("other", 3)
MINUTE_MS = 60_000


Codes = Mapping[TopicPartition, int]


def code(reply: Reply[Codes]) -> int:
    """Return the error code, which is the same for all partitions."""
    (value,) = set(reply.value.values())
    return value


def never(_: object) -> None:
    raise AssertionError("this should have raised")


def subscribed_to(*topics: str) -> dict[str, bytes]:
    w = Writer()
    w.int16(0)
    ConsumerProtocolSubscription(topics=list(topics)).write(w, 0)
    return {"range": w.getvalue()}


def test_committed_offsets_are_fetched() -> None:
    groups = Groups()
    generation, (member,) = groups.stable(1)
    assert code(groups.commit(5, member, generation)) == 0
    assert code(groups.commit(7, member, generation, tp=OTHER)) == 0
    assert groups.fetch(TP).value == (0, {TP: 5})
    assert groups.fetch().value == (0, {TP: 5, OTHER: 7})
    unknown = TopicPartition("topic", 9)
    assert groups.fetch(unknown).value == (0, {unknown: -1})
    assert groups.fetch(TP, group_id="no-group").value == (0, {TP: -1})
    assert groups.fetch(group_id="no-group").value == (0, {})


def test_commits_need_the_member_and_generation() -> None:
    groups = Groups()
    generation, (member,) = groups.stable(1)
    assert code(groups.commit(1, member, generation - 1)) == ILLEGAL_GENERATION
    assert code(groups.commit(1, "nobody", generation)) == UNKNOWN_MEMBER
    assert code(groups.commit(1)) == UNKNOWN_MEMBER
    assert code(groups.commit(1, member, -1)) == ILLEGAL_GENERATION
    assert code(groups.commit(1, member, generation, instance_id="a")) == UNKNOWN_MEMBER
    _, reply = groups.join_twice()
    # A member of the current generation may still commit while others join.
    assert code(groups.commit(2, member, generation)) == 0
    groups.join(member)
    assert code(groups.commit(3, member, generation)) == ILLEGAL_GENERATION
    assert code(groups.commit(3, member, reply.value.generation_id)) == REBALANCING
    assert groups.fetch(TP).value == (0, {TP: 2})


def test_groups_without_members_accept_any_commit() -> None:
    groups = Groups()
    assert code(groups.commit(4)) == 0
    assert groups.fetch(TP).value == (0, {TP: 4})
    assert groups.group().protocol_type is None
    assert code(groups.commit(4, group_id="new", generation_id=1)) == GROUP_ID_NOT_FOUND
    assert code(groups.commit(4, group_id="new", generation_id=1, version=8)) == ILLEGAL_GENERATION
    assert code(groups.commit(4, group_id="")) == 0


def test_commit_metadata_is_limited_in_length() -> None:
    groups = Groups(**{"offset.metadata.max.bytes": 10})
    assert code(groups.commit(1, metadata="x" * 10)) == 0
    assert code(groups.commit(2, metadata="x" * 11)) == OFFSET_METADATA_TOO_LARGE
    assert groups.fetch(TP).value == (0, {TP: 1})


def test_commit_is_visible_after_replication() -> None:
    groups = Groups()
    groups.commit(1)
    groups.replicas.holding = True
    commit = groups.commit(2)
    assert groups.fetch(TP).value == (0, {TP: 1})
    stable = groups.fetch(TP, require_stable=True)
    later = groups.commit(3)
    assert not stable.answered
    groups.replicas.release(1)
    assert code(commit) == 0
    assert stable.value == (0, {TP: 2})
    assert not later.answered
    groups.replicas.release()
    assert groups.fetch(TP, require_stable=True).value == (0, {TP: 3})


def test_failed_commit_changes_nothing() -> None:
    groups = Groups()
    groups.commit(1)
    groups.replicas.holding = True
    commit = groups.commit(2)
    stable = groups.fetch(TP, require_stable=True)
    groups.replicas.release(error_code=7)
    assert code(commit) == COORDINATOR_NOT_AVAILABLE
    assert stable.value == (0, {TP: 1})
    groups.replicas.error_code = 6
    assert code(groups.commit(2)) == NOT_COORDINATOR


def test_members_and_offsets_survive_a_failover() -> None:
    groups = Groups()
    generation, (first, second) = groups.stable(2)
    for offset in range(20):
        groups.commit(offset, first, generation)
    old = groups.fail_over(settle=False)
    assert groups.fetch(TP).value[0] == LOADING
    assert code(groups.commit(1, first, generation)) == LOADING
    assert groups.heartbeat(first, generation) == 0
    assert groups.sync(first, generation).value.error_code == REBALANCING
    assert groups.join(first).value.error_code == LOADING
    groups.settle()
    assert not old.coordinator.groups
    assert groups.group().state is STABLE
    assert groups.fetch(TP).value == (0, {TP: 19})
    assert groups.heartbeat(second, generation) == 0
    assert groups.sync(second, generation).value.assignment == b"part-1"
    assert code(groups.commit(20, second, generation)) == 0
    # The sessions restarted at the failover and then expire.
    groups.advance(10_000)
    assert groups.group().state is EMPTY


def test_resignation_fails_waiting_requests() -> None:
    groups = Groups()
    generation, (first, second) = groups.stable(2)
    waiting = groups.join(first)
    groups.replicas.holding = True
    commit = groups.commit(3, second, generation)
    stable = groups.fetch(TP, require_stable=True)
    old = groups.fail_over()
    assert waiting.value.error_code == NOT_COORDINATOR
    assert code(commit) == NOT_COORDINATOR
    assert stable.value == (NOT_COORDINATOR, {})
    with pytest.raises(BrokerError, match="does not coordinate"):
        old.coordinator.describe_group(GroupMetadata, GROUP)


def test_resignation_fails_a_waiting_sync() -> None:
    groups = Groups()
    _, (first, second) = groups.stable(2)
    replies = [groups.join(one) for one in (first, second)]
    waiting = groups.sync(second, replies[0].value.generation_id)
    groups.fail_over()
    assert waiting.value.error_code == NOT_COORDINATOR
    # The last completed generation counts.
    assert groups.group().generation_id == replies[0].value.generation_id - 1
    assert groups.heartbeat(second, replies[0].value.generation_id) == ILLEGAL_GENERATION


def test_static_members_survive_a_failover() -> None:
    groups = Groups()
    groups.join(instance_id="a")
    groups.settle()
    (member,) = groups.group().members
    groups.sync(member, 1, {member: b"all"})
    back = groups.join(instance_id="a").value.member_id
    groups.fail_over(resign=False)
    assert groups.group().static_members == {"a": back}
    assert groups.sync(back, 1, instance_id="a").value.assignment == b"all"


def test_outdated_elections_are_ignored() -> None:
    groups = Groups()
    groups.commit(1)
    coordinator = groups.coordinator
    coordinator.on_resignation(0, 5)
    coordinator.on_election(0, 4)
    groups.settle()
    assert groups.fetch(TP).value[0] == NOT_COORDINATOR
    coordinator.on_election(0, 6)
    coordinator.on_resignation(0, 5)
    groups.settle()
    assert groups.fetch(TP).value == (0, {TP: 1})
    coordinator.on_resignation(0, 7)
    coordinator.on_election(0, 8)
    coordinator.on_resignation(0, 9)
    groups.settle()
    assert groups.fetch(TP).value[0] == NOT_COORDINATOR


def test_group_above_the_new_limit_shrinks_at_the_next_rebalance() -> None:
    groups = Groups()
    generation, (first, second, third) = groups.stable(3)
    groups.config = BrokerConfig({"group.max.size": 2})
    groups.fail_over()
    # All members can commit; after that, only two can rejoin.
    assert groups.heartbeat(third, generation) == REBALANCING
    assert code(groups.commit(5, third, generation)) == 0
    replies = [groups.join(one) for one in (second, third)]
    assert groups.join(first).value.error_code == GROUP_FULL
    assert {reply.value.generation_id for reply in replies} == {generation + 1}
    assert list(groups.group().members) == [second, third]


def test_groups_of_a_killed_coordinator_expire_elsewhere() -> None:
    groups = Groups()
    generation, _ = groups.stable(1)
    groups.fail_over(resign=False)
    groups.advance(10_000)
    assert groups.group().state is EMPTY
    assert groups.group().generation_id == generation + 1


def test_only_empty_groups_can_be_deleted() -> None:
    groups = Groups()
    generation, (member,) = groups.stable(1)
    groups.commit(1, member, generation)
    with pytest.raises(GroupNotEmptyError):
        groups.coordinator.delete_group(GROUP, never)
    groups.leave(member)
    groups.replicas.holding = True
    deleted: Reply[int] = Reply()
    groups.coordinator.delete_group(GROUP, deleted)
    assert groups.fetch(TP).value == (0, {TP: 1})
    groups.replicas.release()
    assert deleted.value == 0
    assert not groups.coordinator.groups
    with pytest.raises(GroupIdNotFoundError):
        groups.coordinator.delete_group(GROUP, never)
    groups.fail_over()
    assert not groups.coordinator.groups
    assert groups.fetch(TP).value == (0, {TP: -1})


def test_group_used_during_its_deletion_remains() -> None:
    groups = Groups()
    groups.commit(1)
    groups.replicas.holding = True
    deleted: Reply[int] = Reply()
    groups.coordinator.delete_group(GROUP, deleted)
    commit = groups.commit(2)
    groups.replicas.release()
    assert deleted.value == 0
    assert code(commit) == 0
    assert groups.fetch(TP).value == (0, {TP: 2})
    groups.fail_over()
    assert groups.fetch(TP).value == (0, {TP: 2})


def test_group_is_deleted_while_a_commit_is_pending() -> None:
    groups = Groups()
    groups.replicas.holding = True
    commit = groups.commit(1)
    deleted: Reply[int] = Reply()
    groups.coordinator.delete_group(GROUP, deleted)
    groups.replicas.release()
    assert code(commit) == 0
    assert not groups.coordinator.groups


def test_failed_deletion_changes_nothing() -> None:
    groups = Groups()
    groups.commit(1)
    groups.replicas.error_code = 19
    deleted: Reply[int] = Reply()
    groups.coordinator.delete_group(GROUP, deleted)
    assert deleted.value == COORDINATOR_NOT_AVAILABLE
    assert groups.fetch(TP).value == (0, {TP: 1})


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    groups = Groups()
    generation, (member,) = groups.stable(1, protocols=subscribed_to("topic"))
    groups.commit(1, member, generation)
    groups.commit(2, member, generation, tp=OTHER)
    reply: Reply[Codes] = Reply()
    groups.coordinator.delete_offsets(GROUP, [TP, OTHER], reply)
    assert reply.value == {TP: SUBSCRIBED, OTHER: 0}
    assert groups.fetch().value == (0, {TP: 1})
    groups.leave(member)
    reply = Reply()
    groups.coordinator.delete_offsets(GROUP, [TP, OTHER], reply)
    assert reply.value == {TP: 0, OTHER: 0}
    groups.fail_over()
    assert groups.fetch().value == (0, {})


def test_offsets_of_non_consumer_groups_cannot_be_deleted() -> None:
    groups = Groups()
    groups.join(version=3, protocol_type="connect")
    groups.settle()
    with pytest.raises(GroupNotEmptyError):
        groups.coordinator.delete_offsets(GROUP, [TP], never)


def test_offsets_of_deleted_topics_are_removed() -> None:
    groups = Groups()
    groups.commit(1)
    groups.commit(2, tp=OTHER)
    groups.broker.metadata_cache.delete_topic("topic")
    assert groups.fetch().value == (0, {OTHER: 2})
    groups.fail_over()
    assert groups.fetch().value == (0, {OTHER: 2})


RETENTION = {"offsets.retention.minutes": 10, "offsets.retention.check.interval.ms": 1_000}


def test_offsets_of_an_empty_group_expire_after_the_last_leave() -> None:
    groups = Groups(**RETENTION)
    generation, (member,) = groups.stable(1)
    groups.commit(1, member, generation)
    for _ in range(120):
        groups.advance(9_000)
        assert groups.heartbeat(member, generation) == 0
    groups.leave(member)
    groups.advance(10 * MINUTE_MS - 2_000)
    assert groups.fetch(TP).value == (0, {TP: 1})
    groups.advance(3_000)
    assert GROUP not in groups.coordinator.groups
    groups.fail_over()
    assert not groups.coordinator.groups


def test_offsets_of_unsubscribed_topics_expire() -> None:
    groups = Groups(**RETENTION)
    generation, (member,) = groups.stable(1, protocols=subscribed_to("topic"))
    groups.commit(1, member, generation)
    groups.commit(2, member, generation, tp=OTHER)
    for _ in range(70):
        groups.advance(9_000)
        assert groups.heartbeat(member, generation) == 0
    assert groups.fetch().value == (0, {TP: 1})


def test_offsets_of_standalone_consumers_expire_after_the_last_commit() -> None:
    groups = Groups(**RETENTION)
    groups.commit(1)
    groups.advance(6 * MINUTE_MS)
    groups.commit(2, tp=OTHER)
    groups.advance(5 * MINUTE_MS)
    assert groups.fetch().value == (0, {OTHER: 2})
    groups.advance(6 * MINUTE_MS)
    assert not groups.coordinator.groups


def test_commit_may_set_its_retention() -> None:
    groups = Groups(**RETENTION)
    groups.commit(1, retention_ms=20 * MINUTE_MS)
    groups.commit(2, tp=OTHER, retention_ms=MINUTE_MS)
    groups.advance(2 * MINUTE_MS)
    assert groups.fetch().value == (0, {TP: 1})
    groups.fail_over()
    groups.advance(15 * MINUTE_MS)
    assert groups.fetch().value == (0, {TP: 1})
    groups.advance(4 * MINUTE_MS)
    assert groups.fetch().value == (0, {})


def test_unreadable_records_do_not_stop_a_coordinator() -> None:
    groups = Groups()
    groups.commit(1)
    builder = MemoryRecordsBuilder()
    for key, value in ((b"", b""), (None, b"x"), (b"\x00\x63abc", b"x"), (b"\x00\x02\x00\x01a", b"\x00\x63")):
        builder.append(0, key, value)
    groups.log.append(builder.build())
    groups.commit(2)
    groups.fail_over()
    assert groups.fetch(TP).value == (0, {TP: 2})
    assert list(groups.coordinator.groups) == [GROUP]
