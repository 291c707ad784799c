"""The calls for groups beside those of other clients, on the embedded cluster and on real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka.admin
import pytest

from pykclient import KafkaConsumer, OffsetAndMetadata, TopicPartition, errors
from pykclient.admin import GroupState, GroupType, MemberToRemove, OffsetSpec, OffsetTimestamp
from pykclient.errors import IllegalArgumentError, UnsupportedVersionError
from tests.admin.test_admin_on_kafka import Sides, of, plainly, records as records, sides as sides
from tests.support.wait import eventually

confluent: Any = confluent_kafka.admin

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:kafka")


def committed(sides: Sides, group: str, topic: str) -> None:
    """Leave a group without members that has read three and five records."""
    with KafkaConsumer(bootstrap_servers=sides.servers, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        consumer.commit(
            {TopicPartition(topic, 0): OffsetAndMetadata(3, "a note"), TopicPartition(topic, 1): OffsetAndMetadata(5)}
        )


@pytest.fixture
def member(sides: Sides, records: str, group_id: str) -> Iterator[KafkaConsumer[Any, Any]]:
    """The only member of a group, which has both partitions."""
    with KafkaConsumer(
        records,
        bootstrap_servers=sides.servers,
        group_id=group_id,
        group_instance_id="the-one",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        eventually(lambda: consumer.poll(timeout_ms=200) and consumer.assignment(), 30.0, "the member has partitions")
        yield consumer


def test_groups_equal_kafka_python(sides: Sides, records: str, group_id: str, member: KafkaConsumer[Any, Any]) -> None:
    described = sides.equal(lambda c, m: c.describe_groups([group_id, "no-group"]))
    assert described[group_id]["members"][0]["member_assignment"]["assigned_partitions"][0]["topic"] == records
    sides.equal(lambda c, m: c.describe_groups([group_id], group_coordinator_id=sides.broker_id))
    listed = sides.equal(lambda c, m: c.list_groups())
    assert group_id in [group["group_id"] for group in listed]
    sides.equal(lambda c, m: c.list_groups([sides.broker_id], ["stable"], ["classic"]))
    assert sides.equal(lambda c, m: c.delete_groups([group_id, "no-group"]))[group_id] == "NonEmptyGroupError"
    sides.equal(lambda c, m: c.delete_group_offsets(group_id, [TopicPartition(records, 0)]))
    sides.equal(lambda c, m: c.remove_group_members(group_id, [m.MemberToRemove(member_id="nobody")]))


def test_remove_members_removes_static_member(sides: Sides, group_id: str, member: KafkaConsumer[Any, Any]) -> None:
    missing = MemberToRemove(group_instance_id="nobody")
    static = MemberToRemove(group_instance_id="the-one", reason="maintenance")
    results = sides.typed.remove_members(group_id, [missing, static])
    assert set(results.succeeded) == {static}
    assert isinstance(results.failed[missing], errors.UnknownMemberIdError)
    assert sides.typed.describe_groups([group_id])[group_id].state is GroupState.EMPTY
    with pytest.raises(IllegalArgumentError, match="neither"):
        sides.typed.remove_members(group_id, [MemberToRemove()])
    with pytest.raises(IllegalArgumentError, match="members"):
        sides.typed.remove_members(group_id, ["the-one"])  # type: ignore[list-item]


def test_group_offset_calls_equal_kafka_pythons(sides: Sides, records: str, group_id: str) -> None:
    committed(sides, group_id, records)
    first, second, missing = (TopicPartition(records, index) for index in (0, 1, 9))
    found = sides.equal(lambda c, m: c.list_group_offsets(group_id))
    assert found[group_id][first] == OffsetAndMetadata(3, "a note")
    sides.equal(lambda c, m: c.list_group_offsets([group_id]))
    sides.equal(lambda c, m: c.list_group_offsets({group_id: [first], "no-group": [first]}))
    given = {first: OffsetAndMetadata(1, "x"), missing: OffsetAndMetadata(1)}
    answer = sides.equal(lambda c, m: c.alter_group_offsets(group_id, given))
    assert answer[first] == "NoError"
    sides.equal(lambda c, m: c.reset_group_offsets(group_id, {first: m.OffsetSpec.LATEST, second: 4}))
    reset = sides.equal(
        lambda c, m: c.reset_group_offsets(group_id, {first: m.OffsetTimestamp(1_000_005), second: 1_000})
    )
    assert {tp: value["offset"] for tp, value in reset.items()} == {first: 3, second: 10}
    seen = []
    for client in (sides.theirs, sides.ours):
        seen.append(plainly(client.delete_group_offsets(group_id, [first, missing])))
        client.alter_group_offsets(group_id, {first: OffsetAndMetadata(1)})
    assert seen[0] == seen[1]
    sides.equal_error(lambda c, m: c.delete_group_offsets("no-group", [first]))
    assert sides.ours.delete_groups([group_id]) == {group_id: "OK"}
    assert sides.ours.reset_group_offsets(group_id, {}) == {}


def equal_listings(sides: Sides) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the consumer groups that each side lists. Those of other tests may come and go between the two calls."""

    def both() -> tuple[dict[str, Any], dict[str, Any]]:
        all_groups = sides.typed.list_groups()  # of other tests also share and streams groups
        ours = {group.group_id: group for group in all_groups if group.protocol_type in ("", "consumer")}
        theirs = {group.group_id: group for group in sides.confluent.list_consumer_groups().result(20).valid}
        assert ours.keys() == theirs.keys()
        return ours, theirs

    return eventually(both)


def test_groups_equal_confluents(sides: Sides, records: str, group_id: str, member: KafkaConsumer[Any, Any]) -> None:
    their = of(sides.confluent.describe_consumer_groups([group_id], include_authorized_operations=True))[group_id]
    results = sides.typed.describe_groups([group_id, "no-group"])
    assert isinstance(results.failed["no-group"], errors.GroupIdNotFoundError)
    our = results[group_id]
    assert (our.group_id, our.state.name, our.assignor) == (
        their.group_id,
        their.state.name,
        their.partition_assignor,
    )
    assert our.type is GroupType.CLASSIC
    assert our.authorized_operations is not None
    assert set(our.authorized_operations) == {operation.name for operation in their.authorized_operations}
    (mine,), (other,) = our.members, their.members
    assert (mine.member_id, mine.group_instance_id, mine.client_id, mine.host) == (
        other.member_id,
        other.group_instance_id,
        other.client_id,
        other.host,
    )
    assigned = other.assignment.topic_partitions
    assert {tuple(tp) for tp in mine.assignment} == {(tp.topic, tp.partition) for tp in assigned}
    assert mine.subscribed_topics == (records,)
    listed, their_listed = equal_listings(sides)
    assert listed[group_id].state.name == their_listed[group_id].state.name
    assert listed[group_id].type is GroupType.CLASSIC
    assert group_id not in {group.group_id for group in sides.typed.list_groups(states=["empty"])}


def test_group_offsets_equal_confluents(sides: Sides, records: str, group_id: str) -> None:
    committed(sides, group_id, records)
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group_id)
    their = of(sides.confluent.list_consumer_group_offsets([wanted]))[group_id].topic_partitions
    our = sides.typed.list_group_offsets(group_id)[group_id]
    assert {tp: found.offset for tp, found in our.items() if found} == {
        (found.topic, found.partition): found.offset for found in their
    }
    tp, other = TopicPartition(records, 0), TopicPartition(records, 1)
    assert sides.typed.list_group_offsets({group_id: [TopicPartition(records, 9)]})[group_id] == {
        TopicPartition(records, 9): None
    }
    assert sides.typed.alter_group_offsets(group_id, {tp: 7, other: OffsetAndMetadata(8, "n")}).all().keys() == {
        tp,
        other,
    }
    their = of(sides.confluent.list_consumer_group_offsets([wanted]))[group_id].topic_partitions
    assert sorted((found.partition, found.offset) for found in their) == [(0, 7), (1, 8)]
    sides.typed.delete_group_offsets(group_id, [tp]).all()
    assert sides.typed.list_group_offsets([group_id])[group_id].keys() == {other}
    results = sides.typed.delete_groups([group_id, "no-group"])
    assert set(results.succeeded) == {group_id}
    assert isinstance(results.failed["no-group"], errors.GroupIdNotFoundError)
    assert group_id not in {group.group_id for group in sides.typed.list_groups()}


def test_admin_describes_consumer_protocol_group(sides: Sides, records: str, group_id: str) -> None:
    if not sides.is_real:
        assert isinstance(sides.typed.describe_groups([group_id]).failed[group_id], errors.GroupIdNotFoundError)
        return
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": sides.servers,
            "group.id": group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([records])
    try:
        eventually(lambda: consumer.poll(0.2) is not None and consumer.assignment(), 30.0, "it has partitions")
        our = sides.typed.describe_groups([group_id])[group_id]
        assert our.type is GroupType.CONSUMER
        assert our.state is GroupState.STABLE
        assert our.assignor == "uniform"
        (mine,) = our.members
        assert mine.assignment == {TopicPartition(records, 0), TopicPartition(records, 1)}
        assert mine.target_assignment == mine.assignment
        assert mine.epoch == our.group_epoch
        types = {group.group_id: group.type for group in sides.typed.list_groups(types=["consumer"])}
        assert types[group_id] is GroupType.CONSUMER
    finally:
        consumer.close()


def test_admin_alters_and_lists_share_group_offsets(sides: Sides, records: str, group_id: str) -> None:
    first = TopicPartition(records, 0)
    altered = sides.typed.alter_share_group_offsets(group_id, {first: 4, TopicPartition(records, 9): 1})
    if isinstance(altered.failed.get(first), UnsupportedVersionError):
        assert not sides.is_real
        return
    assert set(altered.succeeded) == {first}
    assert isinstance(altered.failed[TopicPartition(records, 9)], errors.UnknownTopicOrPartitionError)
    found = sides.typed.list_share_group_offsets(group_id)[group_id]
    assert found[first].start_offset == 4
    described = sides.typed.describe_groups([group_id])[group_id]
    assert (described.type, described.state) == (GroupType.SHARE, GroupState.EMPTY)
    assert {group.group_id: group.type for group in sides.typed.list_groups()}[group_id] is GroupType.SHARE
    deleted = sides.typed.delete_share_group_offsets(group_id, [records, "nowhere"])
    assert set(deleted.succeeded) == {records}
    sides.typed.delete_groups([group_id]).all()


def test_group_call_errors_name_wrong_argument(sides: Sides) -> None:
    tp = TopicPartition("t", 0)
    for message, call in (
        ("group_ids is 'g'", lambda: sides.ours.describe_groups("g")),
        ("group_specs is empty", lambda: sides.ours.list_group_offsets([])),
        ("the offset of t-0 is -3", lambda: sides.ours.alter_group_offsets("g", {tp: OffsetAndMetadata(-3)})),
        ("a key of offsets is 't'", lambda: sides.typed.alter_group_offsets("g", {"t": 3})),  # type: ignore[dict-item]
        ("the place in t-0 is 'end'", lambda: sides.ours.reset_group_offsets("g", {tp: "end"})),  # type: ignore[dict-item]
        ("there is no GroupState 'sleepy'", lambda: sides.ours.list_groups(states_filter=["sleepy"])),
        ("broker_ids[0] is 'one'", lambda: sides.ours.list_groups(["one"])),  # type: ignore[list-item]
        ("partitions[0] is 'tp'", lambda: sides.ours.delete_group_offsets("g", ["tp"])),  # type: ignore[list-item]
        ("not negative", lambda: OffsetTimestamp(-1)),
    ):
        with pytest.raises(IllegalArgumentError) as caught:
            call()
        assert message in str(caught.value)
    assert kafka.admin.OffsetSpec.LATEST.value == OffsetSpec.LATEST
