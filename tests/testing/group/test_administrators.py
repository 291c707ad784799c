"""Groups managed by the admin clients of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka.admin
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import GroupSubscribedToTopicError
from pykclient.types import TopicPartition
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


@pytest.fixture
def member(any_kafka: AnyKafka, topic: str, group_id: str) -> Iterator[KafkaConsumer[bytes, bytes]]:
    """The only member of a group, which has committed offset 3 of partition 0 of two."""
    any_kafka.create_topic(topic, partitions=2)
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        topic,
        bootstrap_servers=any_kafka.bootstrap_servers,
        group_id=group_id,
        client_id="the-client",
        enable_auto_commit=False,
    )
    with consumer:
        eventually(lambda: consumer.poll(100) or consumer.assignment(), 20)
        consumer.commit({TopicPartition(topic, 0): 3})
        yield consumer


def test_confluent_kafka_administers_the_group(
    any_kafka: AnyKafka, topic: str, group_id: str, member: KafkaConsumer[bytes, bytes]
) -> None:
    admin = AdminClient({"bootstrap.servers": any_kafka.bootstrap_servers})
    listed: Any = admin.list_consumer_groups().result(20)
    states = {group.group_id: group.state.name for group in listed.valid}
    assert not listed.errors
    assert states[group_id] == "STABLE"
    described: Any = admin.describe_consumer_groups([group_id])[group_id].result(20)
    assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
    (only,) = described.members
    assert (only.client_id, only.member_id) == ("the-client", member.group_metadata().member_id)
    assert {tp.partition for tp in only.assignment.topic_partitions} == {0, 1}
    of_group = ConsumerGroupTopicPartitions(group_id)
    committed: Any = admin.list_consumer_group_offsets([of_group])[group_id].result(20)
    assert [(tp.partition, tp.offset) for tp in committed.topic_partitions] == [(0, 3)]
    with pytest.raises(confluent_kafka.KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group_id])[group_id].result(20)
    member.close()
    wanted = ConsumerGroupTopicPartitions(group_id, [confluent_kafka.TopicPartition(topic, 1, 7)])
    admin.alter_consumer_group_offsets([wanted])[group_id].result(20)
    committed = admin.list_consumer_group_offsets([of_group])[group_id].result(20)
    assert {(tp.partition, tp.offset) for tp in committed.topic_partitions} == {(0, 3), (1, 7)}
    admin.delete_consumer_groups([group_id])[group_id].result(20)
    listed = admin.list_consumer_groups().result(20)
    assert group_id not in {group.group_id for group in listed.valid}


def test_kafka_python_administers_the_group(
    any_kafka: AnyKafka, topic: str, group_id: str, member: KafkaConsumer[bytes, bytes]
) -> None:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=any_kafka.bootstrap_servers)
    try:
        assert group_id in {group["group_id"] for group in admin.list_groups()}
        described = admin.describe_groups([group_id])[group_id]
        assert described["group_state"] == "Stable"
        assert [one["member_id"] for one in described["members"]] == [member.group_metadata().member_id]
        offsets = admin.list_group_offsets(group_id)[group_id]
        assert {tp.partition: offset.offset for tp, offset in offsets.items()} == {0: 3}
        first = kafka.TopicPartition(topic, 0)
        refused = admin.delete_group_offsets(group_id, [first])
        assert refused[first].errno == GroupSubscribedToTopicError.code
        member_id = member.group_metadata().member_id
        admin.remove_group_members(group_id, [kafka.admin.MemberToRemove(member_id=member_id)])
        assert admin.describe_groups([group_id])[group_id]["group_state"] == "Empty"
        assert admin.delete_group_offsets(group_id, [first])[first].errno == 0
        assert not admin.list_group_offsets(group_id)[group_id]
        admin.delete_groups([group_id])
        assert group_id not in {group["group_id"] for group in admin.list_groups()}
    finally:
        admin.close()
