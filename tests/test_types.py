from __future__ import annotations

import pickle
from typing import Any

import pytest

from pykclient.types import (
    CREATE_TIME,
    ConsumerGroupMetadata,
    ConsumerRecord,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)

NODE = Node(1, "host", 9092, rack="r1")
PARTITION = TopicPartition("orders", 3)


def record(**more: Any) -> ConsumerRecord[str, str]:
    fields: dict[str, Any] = {
        "topic": "orders",
        "partition": 3,
        "leader_epoch": 5,
        "offset": 17,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": CREATE_TIME,
        "key": "secret key",
        "value": "secret value",
        "headers": (("a", b"1"), ("b", None)),
        "serialized_key_size": 10,
        "serialized_value_size": 12,
    }
    return ConsumerRecord(**{**fields, **more})


@pytest.mark.parametrize(
    "value",
    [
        PARTITION,
        NODE,
        PartitionInfo("orders", 3, NODE, (NODE,), (NODE,)),
        OffsetAndMetadata(5, "note", 2),
        OffsetAndTimestamp(5, 17),
        ConsumerGroupMetadata("g", 1, "m", "i"),
        RecordMetadata("orders", 3, PARTITION, 17, 5, -1, 3),
        record(),
    ],
)
def test_values_are_equal_to_their_pickled_copies(value: object) -> None:
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value
    assert hash(copy) == hash(value)
    assert repr(copy) == repr(value)


def test_a_producer_record_can_be_pickled() -> None:
    original: ProducerRecord[str, str] = ProducerRecord("orders", "v", "k", (("a", None),), 3, 5)
    copy = pickle.loads(pickle.dumps(original))
    assert [getattr(copy, name) for name in ProducerRecord.__slots__] == [
        getattr(original, name) for name in ProducerRecord.__slots__
    ]


def test_topic_partition_reads_like_kafkas() -> None:
    assert str(PARTITION) == "orders-3"
    assert PARTITION == ("orders", 3)
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 2), TopicPartition("a", 1)])[0] == ("a", 1)


def test_node() -> None:
    assert NODE.id_string == "1"
    assert str(NODE) == "host:9092 (id 1)"
    assert str(Node(-1, "host", 9092)) == "host:9092"
    assert Node(1, "host", 9092) != NODE
    assert NODE != "host:9092"


def test_keys_and_values_stay_out_of_repr() -> None:
    assert "secret" not in repr(record())
    assert "orders" in repr(record())
    assert "secret" not in repr(ProducerRecord("orders", "secret", "secret"))


def test_consumer_records_compare_by_all_fields() -> None:
    assert record() == record()
    assert record(value="other") != record()
    assert record(offset=18) != record()


def test_record_metadata_without_an_offset() -> None:
    assert RecordMetadata("orders", 3, PARTITION, 0, 5, -1, 3).has_offset
    assert not RecordMetadata("orders", 3, PARTITION, -1, 5, -1, 3).has_offset


def test_offset_defaults() -> None:
    assert OffsetAndMetadata(5) == (5, "", -1)
    assert OffsetAndTimestamp(5, 17) == (5, 17, -1)
    assert ConsumerGroupMetadata("g") == ("g", -1, "", None)
