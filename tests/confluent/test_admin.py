"""The admin client and the share consumer in confluent-kafka's shape, on the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

import confluent_kafka.admin as theirs
import pytest

from pykclient.confluent import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IllegalStateException,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicCollection,
    TopicPartition,
    admin as ours,
    cimpl,
)
from pykclient.confluent.admin import (
    AclBinding,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from pykclient.testing import EmbeddedCluster

_PATIENCE_S = 30.0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        yield made


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made


def _done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(_PATIENCE_S)


def test_module_has_every_public_name_of_confluent_kafka() -> None:
    names = {
        name
        for name, value in vars(theirs).items()
        if not name.startswith("_")
        and (name.isupper() or getattr(value, "__module__", "").startswith("confluent_kafka"))
    }
    assert names
    assert {name for name in names if not hasattr(ours, name)} == set()


def test_seam_has_every_name_of_the_extension_module() -> None:
    from confluent_kafka import cimpl as real

    names = {name for name in vars(real) if not name.startswith("__")}
    assert {name for name in names if not hasattr(cimpl, name)} == set()


def test_topics_are_created_described_and_deleted(admin: AdminClient) -> None:
    assert _done(admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "5000"})])) is None
    with pytest.raises(KafkaException) as raised:
        _done(admin.create_topics([NewTopic("t", 2, 1)]))
    assert raised.value.args[0] == KafkaError.TOPIC_ALREADY_EXISTS
    _done(admin.create_partitions([NewPartitions("t", 3)]))
    described = _done(admin.describe_topics(TopicCollection(["t"])))
    assert (described.name, [each.id for each in described.partitions]) == ("t", [0, 1, 2])
    assert len(str(described.topic_id)) == 22
    assert sorted(admin.list_topics(timeout=_PATIENCE_S).topics["t"].partitions) == [0, 1, 2]
    resource = ConfigResource("topic", "t")
    assert _done(admin.describe_configs([resource]))["retention.ms"].value == "5000"
    change = ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource("topic", "t")
    changed.add_incremental_config(change)
    _done(admin.incremental_alter_configs([changed]))
    assert _done(admin.describe_configs([resource]))["retention.ms"].value == "7000"
    _done(admin.delete_topics(["t"]))
    with pytest.raises(KafkaException) as raised:
        _done(admin.describe_topics(TopicCollection(["t"])))
    assert raised.value.args[0] == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_groups_offsets_and_records_are_administered(cluster: EmbeddedCluster, admin: AdminClient) -> None:
    cluster.create_topic("t", 1)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Producer(servers) as producer:
        for number in range(5):
            producer.produce("t", str(number))
    tp = TopicPartition("t", 0)
    assert _done(admin.list_offsets({tp: OffsetSpec.latest()})).offset == 5
    assert _done(admin.delete_records([TopicPartition("t", 0, 2)])).low_watermark == 2
    assert _done(admin.list_offsets({tp: OffsetSpec.earliest()})).offset == 2
    with Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        assert len(consumer.consume(3, _PATIENCE_S)) >= 1
        described = _done(admin.describe_consumer_groups(["g"]))
        assert described.state is ConsumerGroupState.STABLE
        assert described.members[0].assignment.topic_partitions == [tp]
    assert [each.group_id for each in admin.list_consumer_groups().result(_PATIENCE_S).valid] == ["g"]
    _done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 4)])]))
    listed = _done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]))
    assert [each.offset for each in listed.topic_partitions] == [4]
    _done(admin.delete_consumer_groups(["g"]))


def test_cluster_is_described(admin: AdminClient) -> None:
    described = admin.describe_cluster().result(_PATIENCE_S)
    assert [node.id for node in described.nodes] == [1]
    assert described.cluster_id == admin.cluster_id(_PATIENCE_S)


def test_resources_and_acls_have_an_order() -> None:
    first, last = ConfigResource("topic", "t"), ConfigResource("broker", "1")
    assert first <= first <= last >= first
    assert last > first
    read = AclBinding("topic", "t", "literal", "User:a", "*", "read", "allow")
    write = AclBinding("topic", "t", "literal", "User:a", "*", "write", "allow")
    assert read <= read <= write > read
    assert write >= read


def test_enumerations_of_acls_are_read_by_name_and_checked() -> None:
    acl = AclBinding("topic", "t", "literal", "User:a", "*", "read", "allow")
    assert acl == AclBinding(2, "t", 3, "User:a", "*", 3, 3)
    with pytest.raises(ValueError, match="Cannot use enum"):
        AclBinding("any", "t", "literal", "User:a", "*", "read", "allow")
    with pytest.raises(ValueError, match="Unknown value"):
        AclBinding("nothing", "t", "literal", "User:a", "*", "read", "allow")
    with pytest.raises(ValueError, match="Expected host to be not None"):  # missing arguments come before wrong types
        AclBinding("topic", 1, "literal", "User:a", None, "read", "allow")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda admin: admin.create_topics([]), ValueError),
        (lambda admin: admin.create_topics([NewTopic("t", 1)], validate_only="maybe", request_timeout="x"), TypeError),
        (lambda admin: admin.delete_topics([""]), ValueError),
        (lambda admin: admin.describe_topics(["t"]), TypeError),
        (lambda admin: admin.describe_consumer_groups([]), ValueError),
        (lambda admin: admin.list_consumer_groups(states=["x"]), TypeError),
        (lambda admin: admin.list_consumer_group_offsets([]), ValueError),
        (lambda admin: admin.delete_records("t"), TypeError),
        (lambda admin: admin.alter_user_scram_credentials([]), ValueError),
        (lambda admin: admin.elect_leaders("preferred"), TypeError),
    ],
)
def test_wrong_arguments_are_refused(admin: AdminClient, call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(admin)


def test_share_consumer_acknowledges_messages(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with ShareConsumer({**servers, "group.id": "s", "share.acknowledgement.mode": "explicit"}) as consumer:
        with pytest.raises(IllegalStateException):
            consumer.poll(0)
        consumer.subscribe(["t"])
        assert consumer.subscription() == ["t"]
        deadline = monotonic() + _PATIENCE_S
        counts: list[int | None] = []
        with Producer(servers) as producer:
            while len(counts) < 2 and monotonic() < deadline:
                if not counts:  # a share group begins at the end of the topic
                    producer.produce("t", "v")
                    producer.flush(_PATIENCE_S)
                for message in consumer.poll(0.5):
                    first = not counts
                    consumer.acknowledge(message, AcknowledgeType.RELEASE if first else AcknowledgeType.ACCEPT)
                    counts.append(message.delivery_count())
                consumer.commit_sync(_PATIENCE_S)
        assert counts[0] == 1
        assert 2 in counts
