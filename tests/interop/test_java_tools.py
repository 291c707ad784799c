"""Kafka's own command-line tools, which use more of a broker than clients do."""

from __future__ import annotations

import re

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from tests.kafka.tools import ToolError, run_tool
from tests.support.any_kafka import AnyKafka

pytestmark = pytest.mark.java


def tool(any_kafka: AnyKafka, name: str, *options: str) -> str:
    output = run_tool(f"org.apache.kafka.tools.{name}", "--bootstrap-server", any_kafka.bootstrap_servers, *options)
    return output.decode()


def test_topic_tool_manages_topics(any_kafka: AnyKafka, topic: str) -> None:
    def topics(*options: str) -> str:
        return tool(any_kafka, "TopicCommand", *options, "--topic", topic)

    topics("--create", "--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=60000")
    assert topic in tool(any_kafka, "TopicCommand", "--list").splitlines()
    topics("--alter", "--partitions", "4")
    described = topics("--describe")
    assert re.search(rf"Topic: {topic}\s.*PartitionCount: 4\s+ReplicationFactor: 1\s.*retention.ms=60000", described)
    assert re.search(rf"Topic: {topic}\s+Partition: 3\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)
    with pytest.raises(ToolError, match="already exists"):
        topics("--create")
    topics("--delete")
    with pytest.raises(ToolError, match="does not exist"):
        topics("--describe")


def test_config_tool_changes_topic_configs(any_kafka: AnyKafka, topic: str) -> None:
    def configs(*options: str) -> str:
        return run_tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", any_kafka.bootstrap_servers, "--entity-type", "topics", "--entity-name", topic),
            *options,
        ).decode()

    any_kafka.create_topic(topic)
    configs("--alter", "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    described = configs("--describe")
    assert "retention.ms=60000" in described
    assert "cleanup.policy=compact,delete" in described
    configs("--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in configs("--describe")


def test_group_tool_describes_resets_and_deletes_groups(any_kafka: AnyKafka, topic: str, group_id: str) -> None:
    """The tools describe groups, reset their offsets to the earliest, and delete them."""

    def groups(*options: str) -> str:
        return tool(any_kafka, "consumer.group.ConsumerGroupCommand", *options, "--group", group_id)

    with KafkaProducer[bytes, bytes](bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send(topic, b"x").get(20)
    with KafkaConsumer[bytes, bytes](
        topic, bootstrap_servers=any_kafka.bootstrap_servers, group_id=group_id, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(7):
            next(consumer)
    assert re.search(rf"{group_id}\s+{topic}\s+0\s+7\s+10\s+3\s", groups("--describe"))
    groups("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    with KafkaConsumer[bytes, bytes](bootstrap_servers=any_kafka.bootstrap_servers, group_id=group_id) as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) == 0
    assert group_id in tool(any_kafka, "consumer.group.ConsumerGroupCommand", "--list").splitlines()
    groups("--delete")
    assert group_id not in tool(any_kafka, "consumer.group.ConsumerGroupCommand", "--list").splitlines()
