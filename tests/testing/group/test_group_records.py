"""Keys and values of __consumer_offsets, and the partition of a group."""

from __future__ import annotations

from uuid import UUID

import pytest

from pykclient.errors import IllegalStateError, UnsupportedVersionError
from pykclient.protocol.messages.group_metadata_value import GroupMetadataValue
from pykclient.protocol.wire import Writer
from pykclient.testing.coordinator_log import java_hash
from pykclient.testing.group import group_metadata as group_state, group_records
from pykclient.testing.group.group_metadata import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    CommittedOffset,
    GroupMetadata,
    MemberMetadata,
)
from pykclient.testing.group.group_records import CONSUMER_GROUP_RECORDS
from pykclient.testing.group.modern_groups import ConsumerGroup, ConsumerGroupMember
from pykclient.types import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("grüße", 98768023),
        ("\U0001f600", 1772899),
    ],
)
def test_hashes_equal_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_offset_record_is_written_and_read() -> None:
    tp = TopicPartition("topic", 3)
    offset = CommittedOffset(42, 7, "a note", 1_000, topic_id=UUID(int=5))
    assert group_records.read_key(group_records.offset_commit_key("g", tp)) == ("g", tp)
    read = group_records.read_offset(group_records.offset_commit_value(offset), 11)
    assert (read.offset, read.leader_epoch, read.metadata, read.commit_timestamp_ms) == (42, 7, "a note", 1_000)
    assert (read.expire_timestamp_ms, read.topic_id, read.record_offset) == (-1, UUID(int=5), 11)


def test_record_bytes_equal_kafkas() -> None:
    key = group_records.offset_commit_key("g", TopicPartition("t", 1))
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x01"
    assert group_records.group_metadata_key("g") == b"\x00\x02\x00\x01g"
    value = group_records.offset_commit_value(CommittedOffset(2, -1, "", 3))
    assert value == b"\x00\x04" + (2).to_bytes(8) + b"\xff" * 4 + b"\x01" + (3).to_bytes(8) + b"\x00"
    with_expiry = group_records.offset_commit_value(CommittedOffset(2, -1, "", 3, 4))
    assert with_expiry == b"\x00\x01" + (2).to_bytes(8) + b"\x00\x00" + (3).to_bytes(8) + (4).to_bytes(8)


def test_group_record_is_written_and_read() -> None:
    group = GroupMetadata("g", 5)
    for name, instance in (("m1", None), ("m2", "i")):
        group.add(
            MemberMetadata(name, instance, "client", "/host", 10, 20, "consumer", [("range", b"meta-" + name.encode())])
        )
    group.transition_to(PREPARING_REBALANCE, 6)
    group.init_next_generation(7)
    read = group_records.read_group("g", group_records.group_metadata_value(group, {"m1": b"1", "m2": b"2"}))
    assert read.state is STABLE
    assert (read.generation_id, read.protocol_name, read.leader_id, read.state_timestamp_ms) == (1, "range", "m1", 7)
    assert read.static_members == {"i": "m2"}
    member = read.members["m2"]
    assert (member.client_id, member.client_host, member.rebalance_timeout_ms) == ("client", "/host", 10)
    assert (member.session_timeout_ms, member.metadata("range"), member.assignment) == (20, b"meta-m2", b"2")


def test_empty_group_record_is_written_and_read() -> None:
    group = GroupMetadata("g", 5)
    read = group_records.read_group("g", group_records.group_metadata_value(group, {}))
    assert read.state is EMPTY
    assert read.protocol_type is None
    assert not read.members


@pytest.mark.parametrize("ids", [("m", None, "m", None), ("m", "i", "n", "i")])
def test_group_record_with_duplicate_member_ids_is_unreadable(ids: tuple[str, str | None, str, str | None]) -> None:
    members = [
        GroupMetadataValue.MemberMetadata(member_id=member_id, group_instance_id=instance_id)
        for member_id, instance_id in (ids[:2], ids[2:])
    ]
    writer = Writer()
    writer.int16(3)
    GroupMetadataValue(protocol_type="consumer", protocol="range", members=members).write(writer, 3)
    with pytest.raises(UnsupportedVersionError, match="two members of one id"):
        group_records.read_group("g", writer.getvalue())


def test_member_record_with_another_instance_id_replaces_the_first() -> None:
    groups: dict[str, GroupMetadata | ConsumerGroup] = {}
    for instance_id in ("i", "j"):
        record = CONSUMER_GROUP_RECORDS.member_record("g", ConsumerGroupMember("m", instance_id))
        CONSUMER_GROUP_RECORDS.read_into(groups, *record, 0)
    assert groups["g"].static_members == {"j": "m"}
    for tombstone in CONSUMER_GROUP_RECORDS.member_tombstones("g", "m"):
        CONSUMER_GROUP_RECORDS.read_into(groups, *tombstone, 0)
    assert groups["g"].static_members == {}


def test_only_listed_state_transitions_are_allowed() -> None:
    for state, targets in group_state.TRANSITIONS.items():
        for target in group_state.TRANSITIONS:
            group = GroupMetadata("g", 0, state=state)
            if target in targets:
                group.transition_to(target, 0)
                assert group.state is target
            else:
                with pytest.raises(IllegalStateError, match="cannot go from"):
                    group.transition_to(target, 0)
    assert group_state.TRANSITIONS[DEAD] == frozenset()
    assert {state.name for state in group_state.TRANSITIONS} == {
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    }
    assert COMPLETING_REBALANCE in group_state.TRANSITIONS
