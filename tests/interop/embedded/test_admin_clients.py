"""Unmodified admin clients of others on three embedded brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.interop.clients import PEERS, Sample
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually

AT = 1_700_000_000_000

#: Typed as Any, because some of its types are not declared.
api: Any = confluent_kafka.admin


def test_librdkafka_admin_client_manages_topics(cluster: EmbeddedKafka, topic: str, group_id: str) -> None:
    admin = api.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    admin.create_topics([api.NewTopic(topic, 2, 3, config={"retention.ms": "60000"})])[topic].result(20)
    again = admin.create_topics([api.NewTopic(topic, 2, 3)])[topic]
    with pytest.raises(confluent_kafka.KafkaException, match="already exists"):
        again.result(20)
    admin.create_partitions([api.NewPartitions(topic, 4)])[topic].result(20)

    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(20)
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3]
    assert all(len(partition.replicas) == 3 and partition.leader is not None for partition in described.partitions)
    assert len({partition.leader.id for partition in described.partitions}) == 3
    assert admin.describe_cluster().result(20).controller is not None

    resource = api.ConfigResource(api.ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(20)
    assert configs["retention.ms"].value == "60000"
    change = api.ConfigResource(
        api.ResourceType.TOPIC,
        topic,
        incremental_configs=[
            api.ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=api.AlterConfigOpType.SET),
            api.ConfigEntry("retention.ms", None, incremental_operation=api.AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(20)

    def changed() -> bool:
        now = admin.describe_configs([resource])[resource].result(20)
        return bool(now["cleanup.policy"].value == "compact,delete" and now["retention.ms"].value != "60000")

    eventually(changed, 20.0, "the topic's settings have changed")

    PEERS["confluent-kafka"].write(cluster.bootstrap_servers, {topic: ("none", [Sample(b"k", b"v", (), AT)] * 10)})
    (partition,) = {
        row.partition for row in PEERS["confluent-kafka"].read(cluster.bootstrap_servers, {topic: 10})[topic]
    }
    tp = confluent_kafka.TopicPartition(topic, partition)
    for spec, offset in (
        (api.OffsetSpec.earliest(), 0),
        (api.OffsetSpec.latest(), 10),
        (api.OffsetSpec.for_timestamp(AT), 0),
    ):
        assert admin.list_offsets({tp: spec})[tp].result(20).offset == offset
    deleted = admin.delete_records([confluent_kafka.TopicPartition(topic, partition, 4)])
    assert next(iter(deleted.values())).result(20).low_watermark == 4
    assert admin.list_offsets({tp: api.OffsetSpec.earliest()})[tp].result(20).offset == 4

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group_id, "log_level": 2}
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, partition, 7)], asynchronous=False)
    consumer.close()
    assert group_id in [group.group_id for group in admin.list_consumer_groups().result(20).valid]
    assert admin.describe_consumer_groups([group_id])[group_id].result(20).state.name == "EMPTY"
    admin.delete_consumer_groups([group_id])[group_id].result(20)
    assert group_id not in [group.group_id for group in admin.list_consumer_groups().result(20).valid]

    admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: topic not in admin.list_topics(timeout=20).topics, 20.0, "the topic is deleted")


def test_kafka_python_admin_client_manages_topics(cluster: EmbeddedKafka, topic: str) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

    with kafka_python_admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 2, 3, topic_configs={"retention.ms": "60000"})])
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        assert "60000" in str(admin.describe_configs([resource]))
        admin.delete_topics([topic])
        eventually(lambda: topic not in admin.list_topics(), 20.0, "the topic is deleted")


@contextmanager
def kafka_python_admin(servers: str) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        yield admin
    finally:
        admin.close()
