"""The embedded broker responds like a real one to the same requests, in every version of the group APIs."""

from __future__ import annotations

import json

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.testing.coordinator_log import java_hash
from pykclient.testing.group import group_records
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually
from tests.testing.group.conversation import ANSWERS, ROUNDS, converse


@pytest.mark.parametrize("name", ROUNDS)
def test_responses_equal_kafkas(any_kafka: AnyKafka, name: str) -> None:
    expected = json.loads(ANSWERS.read_text())[name]
    assert converse(any_kafka, name) == expected


def test_records_equal_kafkas(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    """Each record in __consumer_offsets decodes, and encodes to the same bytes."""
    any_kafka.create_topic(topic, partitions=2)
    with KafkaConsumer(topic, bootstrap_servers=any_kafka.bootstrap_servers, group_id=group_id) as consumer:
        eventually(lambda: consumer.poll(100) or consumer.assignment(), 20)
        consumer.commit({TopicPartition(topic, 1): OffsetAndMetadata(7, "a note", 3)})
        metadata = consumer.group_metadata()
        reader = KafkaConsumer(
            bootstrap_servers=any_kafka.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=500
        )
    with reader:
        numbers = reader.partitions_for_topic("__consumer_offsets") or set()
        reader.assign([TopicPartition("__consumer_offsets", number) for number in numbers])
        records = [(group_records.read_key(record.key or b""), record) for record in reader]
    ours = [(key[1], record) for key, record in records if key is not None and key[0] == group_id]
    # All records of a group are in one partition, which follows from the group's name.
    assert {record.partition for _, record in ours} == {abs(java_hash(group_id)) % len(numbers)}
    groups = [record for tp, record in ours if tp is None]
    assert {record.key for record in groups} == {group_records.group_metadata_key(group_id)}
    with_members = []
    for record in groups:
        assert record.value is not None
        group = group_records.read_group(group_id, record.value)
        parts = {name: member.assignment for name, member in group.members.items()}
        assert group_records.group_metadata_value(group, parts) == record.value
        if group.members:
            with_members.append(group)
    assert [(group.generation_id, group.leader_id) for group in with_members] == [
        (metadata.generation_id, metadata.member_id)
    ]
    (group,) = with_members
    assert (group.protocol_type, group.subscribed_topics) == ("consumer", frozenset((topic,)))
    tp = TopicPartition(topic, 1)
    offset = next(record for of, record in ours if of == tp)
    assert offset.key == group_records.offset_commit_key(group_id, tp)
    assert offset.value is not None
    read = group_records.read_offset(offset.value, 0)
    assert (read.offset, read.metadata, read.leader_epoch) == (7, "a note", 3)
    assert group_records.offset_commit_value(read) == offset.value
