from __future__ import annotations

import pickle
from typing import Any

import kafka.consumer.fetcher
import kafka.producer.future
import kafka.structs
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


def test_record_of_a_test_needs_only_topic_and_partition() -> None:
    made = ConsumerRecord(topic="orders", partition=3, value="v")
    assert made == ConsumerRecord("orders", 3, None, -1, -1, -1, None, "v", ())
    assert (made.headers, made.serialized_value_size) == ([], -1)


@pytest.mark.parametrize(
    "value",
    [
        PARTITION,
        NODE,
        PartitionInfo("orders", 3, NODE, (NODE,), (NODE,)),
        OffsetAndMetadata(5, "note", 2),
        OffsetAndTimestamp(5, 17),
        ConsumerGroupMetadata("g", 1, "m", "i"),
        RecordMetadata("orders", 3, PARTITION, 17, 5, None, -1, 3),
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


def test_topic_partition_text_equals_kafkas() -> None:
    assert str(PARTITION) == "orders-3"
    assert PARTITION == ("orders", 3)
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 2), TopicPartition("a", 1)])[0] == ("a", 1)


def test_node_has_text_and_equality() -> None:
    assert NODE.id_string == "1"
    assert str(NODE) == "host:9092 (id 1)"
    assert str(Node(-1, "host", 9092)) == "host:9092"
    assert Node(1, "host", 9092) != NODE
    assert NODE != "host:9092"


def test_record_text_shows_the_beginning_of_key_and_value() -> None:
    assert str(record(key=b"k", value=None)) == (
        "ConsumerRecord(topic='orders', partition=3, leader_epoch=5, offset=17, timestamp=1700000000000, "
        "timestamp_type=0, key=b'k', value=None, headers=[('a', b'1'), ('b', None)], serialized_key_size=10, "
        "serialized_value_size=12, serialized_header_size=3)"
    )
    assert f"value={b'v' * 60!r}... (1000 bytes)," in repr(record(value=b"v" * 1000))
    assert f"value={'v' * 60!r}... (61 characters)," in repr(record(value="v" * 61))
    assert f"value={'v' * 60!r}," in repr(record(value="v" * 60))
    assert len(repr(record(key=[["long"] * 1000] * 1000, value={"a": "b" * 1000}))) < 500


def test_keys_and_values_to_send_stay_out_of_repr() -> None:
    assert "secret" not in repr(ProducerRecord("orders", "secret", "secret"))


class TestConsumerRecordAsNamedTuple:
    """ConsumerRecord has the named tuple interface of kafka-python's class."""

    def test_fields_equal_those_of_kafka_python(self) -> None:
        theirs = kafka.consumer.fetcher.ConsumerRecord
        assert ConsumerRecord._fields == theirs._fields
        assert record()._asdict().keys() == theirs(*record())._asdict().keys()
        assert RecordMetadata._fields == kafka.producer.future.RecordMetadata._fields
        assert ConsumerGroupMetadata._fields == kafka.structs.ConsumerGroupMetadata._fields

    def test_records_unpack_and_index_like_tuples(self) -> None:
        theirs = kafka.consumer.fetcher.ConsumerRecord(*record())
        topic, partition, *_, header_size = record()
        assert (topic, partition, header_size) == ("orders", 3, 3)
        assert len(record()) == len(theirs)
        for index in (0, 6, -1, slice(2, 5), slice(None)):
            assert record()[index] == theirs[index]
        with pytest.raises(IndexError):
            record()[13]

    def test_each_record_has_its_own_list_of_headers(self) -> None:
        headers = (("a", b"1"),)
        first: Any = record(headers=headers)
        second: Any = record(headers=headers)
        first.headers.append(("b", None))
        assert first.headers == [("a", b"1"), ("b", None)]
        assert first.serialized_header_size == 3
        assert second.headers == [("a", b"1")]
        second.headers = ()
        assert second.headers == []
        assert second.serialized_header_size == -1

    def test_replace_returns_a_changed_copy(self) -> None:
        original = record()
        changed = original._replace(value="other", headers=[])
        assert (changed.value, changed.headers, changed.offset) == ("other", [], 17)
        assert original == record()
        copy: Any = original._replace()
        copy.headers.clear()
        assert original == record()
        with pytest.raises(ValueError, match="no field valu"):
            original._replace(valu=1)

    def test_make_and_asdict_round_trip(self) -> None:
        assert ConsumerRecord._make(record()) == record()
        assert ConsumerRecord(**record()._asdict()) == record()

    def test_records_match_patterns(self) -> None:
        match record():
            case ConsumerRecord(topic, _, value=value):
                assert (topic, value) == ("orders", "secret value")


def test_consumer_records_compare_by_all_fields() -> None:
    assert record() == record()
    assert record(value="other") != record()
    assert record(offset=18) != record()


def test_record_metadata_may_have_no_offset() -> None:
    assert RecordMetadata("orders", 3, PARTITION, 0, 5, None, -1, 3).has_offset
    assert not RecordMetadata("orders", 3, PARTITION, -1, 5, None, -1, 3).has_offset


def test_offset_types_have_defaults() -> None:
    assert OffsetAndMetadata(5) == (5, "", -1)
    assert OffsetAndTimestamp(5, 17) == (5, 17, -1)
    assert ConsumerGroupMetadata("g") == ("g", -1, "", None, "<unjoined>")
