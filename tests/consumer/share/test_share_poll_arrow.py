"""``poll_arrow`` of share consumers, and acknowledgements of its rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pykclient import StringDeserializer
from pykclient.aio import AIOKafkaShareConsumer
from pykclient.consumer.share.acknowledgements import AcknowledgeType
from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.record.arrow import SHARE_COLUMN_NAMES, batch_of_records
from pykclient.types import ConsumerRecord, TopicPartition
from tests.aio.loops import run
from tests.consumer.share.fake_share_brokers import T0, T1, TOPIC, FakeShareCluster, SharePartition
from tests.consumer.share.share_groups import flat, numbers, produce, set_group
from tests.support.embedded_kafka import EmbeddedKafka

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def cluster(mode: str = "implicit", **settings: Any) -> FakeShareCluster:
    values = [b"%d" % number for number in range(10)]
    return FakeShareCluster({T0: SharePartition.of(values), T1: SharePartition.of([])}, mode, **settings)


def states(one: FakeShareCluster, tp: TopicPartition = T0) -> list[str]:
    return list(one.brokers.partitions[tp].states.values())


def record(offset: int, **fields: Any) -> ConsumerRecord[Any, Any]:
    of = {
        "topic": "a",
        "partition": 1,
        "leader_epoch": 5,
        "offset": offset,
        "timestamp": 1_000 + offset,
        "timestamp_type": 0,
        "key": None,
        "value": b"v",
        "headers": [],
        **fields,
    }
    made = ConsumerRecord._make([of.get(name) for name in ConsumerRecord._fields])
    made.delivery_count = offset + 1
    return made


def test_records_become_all_columns() -> None:
    records = [
        record(0, key=b"k", headers=[("h", b"1"), ("n", None)]),
        record(1, topic="b", value=None, timestamp=-1, timestamp_type=-1, leader_epoch=-1),
        record(300, value=b"", leader_epoch=None),
    ]
    batch = batch_of_records(records, SHARE_COLUMN_NAMES)
    batch.validate(full=True)
    assert batch.schema.names == list(SHARE_COLUMN_NAMES)
    columns = batch.to_pydict()
    assert columns["topic"] == ["a", "b", "a"]
    assert columns["partition"] == [1, 1, 1]
    assert columns["offset"] == [0, 1, 300]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_000, None, 1_300]
    assert columns["timestamp_type"] == [0, -1, 0]
    assert columns["key"] == [b"k", None, None]
    assert columns["value"] == [b"v", None, b""]
    assert columns["headers"] == [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], [], []]
    assert columns["leader_epoch"] == [5, None, None]
    assert columns["delivery_count"] == [1, 2, 301]


def test_no_records_give_an_empty_batch() -> None:
    batch = batch_of_records([], SHARE_COLUMN_NAMES)
    batch.validate(full=True)
    assert batch.num_rows == 0


def test_next_poll_accepts_the_previous_rows() -> None:
    one = cluster()
    batch = one.consumer.poll_arrow(2_000)
    assert batch.column("value").to_pylist() == [b"%d" % number for number in range(10)]
    assert set(batch.column("delivery_count").to_pylist()) == {1}
    assert states(one) == ["acquired"] * 10
    assert one.consumer.poll_arrow(100).num_rows == 0
    assert states(one) == ["accept"] * 10


def test_rows_are_acknowledged() -> None:
    one = cluster("explicit")
    batch = one.consumer.poll_arrow(2_000, columns=["topic", "partition", "offset"])
    is_odd = pc.equal(pc.bit_wise_and(batch.column("offset"), 1), 1)
    one.consumer.acknowledge(batch)
    one.consumer.acknowledge(batch.filter(is_odd), RELEASE)
    again = one.consumer.poll_arrow(2_000)
    assert again.column("offset").to_pylist() == [1, 3, 5, 7, 9]
    assert set(again.column("delivery_count").to_pylist()) == {2}
    one.consumer.acknowledge(pa.Table.from_batches([again]), REJECT)
    one.consumer.commit_sync()
    assert states(one) == ["accept", "reject"] * 5


def test_all_rows_are_acknowledged_or_none() -> None:
    one = cluster("explicit")
    batch = one.consumer.poll_arrow(2_000)
    one.consumer.acknowledge(batch.slice(0, 1))
    one.consumer.commit_sync()
    with pytest.raises(IllegalStateError, match="offset 0 of t-0 cannot be acknowledged"):
        one.consumer.acknowledge(batch.take(pa.array([3, 0])))
    with pytest.raises(IllegalStateError, match="9 records of the last poll"):
        one.consumer.poll_arrow()
    one.consumer.acknowledge(batch.slice(1))
    one.consumer.commit_sync()
    assert states(one) == ["accept"] * 10


def test_renewed_rows_are_returned_again() -> None:
    one = cluster("explicit")
    batch = one.consumer.poll_arrow(2_000)
    one.consumer.acknowledge(batch.slice(0, 9))
    one.consumer.acknowledge(batch.slice(9), RENEW)
    again = one.consumer.poll_arrow(2_000)
    assert again.column("offset").to_pylist() == [9]
    one.consumer.acknowledge(again)
    one.consumer.commit_sync()
    assert states(one) == ["accept"] * 10


def test_poll_and_poll_arrow_alternate() -> None:
    one = cluster(consumer_timeout_ms=100)
    assert numbers([next(one.consumer)]) == [0]
    assert one.consumer.poll_arrow().column("offset").to_pylist() == list(range(1, 10)), "what the loop has left"
    one.brokers.partitions[T0].states[4] = "available"
    assert numbers(flat(one.consumer.poll(2_000))) == [4]


def test_wrong_columns_and_deserializers_are_refused() -> None:
    one = cluster("explicit")
    with pytest.raises(IllegalArgumentError, match=r"there is no .x.; there are topic, .*, delivery_count"):
        one.consumer.poll_arrow(columns=["x"])
    with pytest.raises(IllegalArgumentError, match="none twice"):
        one.consumer.poll_arrow(columns=["offset", "offset"])
    batch = one.consumer.poll_arrow(2_000, columns=["offset", "topic"])
    with pytest.raises(IllegalArgumentError, match="have no column 'partition'"):
        one.consumer.acknowledge(batch)
    with pytest.raises(IllegalStateError, match=r"read with poll\(\), or without key_deserializer"):
        cluster(value_deserializer=StringDeserializer()).consumer.poll_arrow()


def test_asyncio_consumer_reads_and_acknowledges_batches() -> None:
    async def main(brokers: EmbeddedKafka) -> None:
        settings: dict[str, Any] = {"share_acknowledgement_mode": "explicit", "group_id": "columns"}
        async with AIOKafkaShareConsumer(TOPIC, bootstrap_servers=brokers.bootstrap_servers, **settings) as consumer:
            seen: list[int] = []
            while len(seen) < 5:
                batch = await consumer.poll_arrow(1_000)
                seen += map(int, batch.column("value").to_pylist())
                consumer.acknowledge(batch)
            assert seen == list(range(5))
            assert list((await consumer.commit_sync()).values()) == [None]

    with EmbeddedKafka(1, {"group.share.heartbeat.interval.ms": 200}) as brokers:
        brokers.create_topic(TOPIC, 1)
        set_group(brokers, "columns")
        produce(brokers, TOPIC, 5)
        run(main(brokers))
