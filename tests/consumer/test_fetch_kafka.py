"""Records written by confluent-kafka and read by pykclient, on real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as TheirPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from pykclient.types import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import AnyKafka, StartKafka
from tests.support.wait import eventually

Consume = Callable[..., KafkaConsumer[Any, Any]]


@pytest.fixture
def consume(request: pytest.FixtureRequest) -> Consume:
    """A factory of manually assigned consumers without a group, closed after the test."""

    def make(
        *partitions: TopicPartition, bootstrap_servers: str | None = None, **config: Any
    ) -> KafkaConsumer[Any, Any]:
        # The wait is short because close() waits for the fetch in flight.
        settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **config}
        consumer: KafkaConsumer[Any, Any] = KafkaConsumer(
            bootstrap_servers=bootstrap_servers or request.getfixturevalue("any_kafka").bootstrap_servers, **settings
        )
        request.addfinalizer(consumer.close)
        consumer.assign(partitions)
        return consumer

    return make


def produce(bootstrap_servers: str, topic: str, values: Iterable[bytes], partition: int = 0, **config: Any) -> None:
    timestamps = config.pop("timestamps", None)
    producer = Producer({"bootstrap.servers": bootstrap_servers, **{k.replace("_", "."): v for k, v in config.items()}})
    for index, value in enumerate(values):
        extra = {} if timestamps is None else {"timestamp": timestamps[index]}
        producer.produce(topic, value, key=b"k%d" % index, partition=partition, headers=[("h", None)], **extra)
    assert producer.flush(30) == 0


def take(consumer: KafkaConsumer[Any, Any], count: int, timeout_s: float = 30.0) -> list[ConsumerRecord[Any, Any]]:
    """Poll until ``count`` records have been returned."""
    taken: list[ConsumerRecord[Any, Any]] = []

    def enough() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            taken.extend(records)
        return len(taken) >= count

    eventually(enough, timeout_s, f"{count} records")
    return taken


def nothing_more(consumer: KafkaConsumer[Any, Any]) -> bool:
    return not consumer.poll(timeout_ms=300)


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_read(any_kafka: AnyKafka, topic: str, consume: Consume, codec: str) -> None:
    any_kafka.create_topic(topic)
    values = [b"value %d" % index for index in range(3000)]
    produce(any_kafka.bootstrap_servers, topic, values, compression_type=codec, linger_ms=50)
    consumer = consume(TopicPartition(topic, 0))
    records = take(consumer, 3000)
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(3000))
    assert records[7].key == b"k7"
    assert records[7].headers == [("h", None)]
    assert consumer.position(TopicPartition(topic, 0)) == 3000


def test_oversized_batch_is_returned_whole(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    values = [bytes([index]) * 200_000 for index in range(3)]
    produce(any_kafka.bootstrap_servers, topic, values)
    consumer = consume(TopicPartition(topic, 0), max_partition_fetch_bytes=1000, fetch_max_bytes=1000)
    assert [record.value for record in take(consumer, 3)] == values


def test_one_session_fetches_many_partitions(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic, partitions=50)
    partitions = [TopicPartition(topic, index) for index in range(50)]
    consumer = consume(*partitions)
    for round_ in range(3):
        for partition in (0, 7, 49):
            produce(any_kafka.bootstrap_servers, topic, [b"%d" % round_], partition)
        records = take(consumer, 3)
        assert {(record.partition, record.value) for record in records} == {(p, b"%d" % round_) for p in (0, 7, 49)}
        consumer.pause(partitions[1])
        consumer.resume(partitions[1])
    handler = consumer._consumer.components.fetches._session_handlers[1]
    assert handler.session_id > 0
    assert nothing_more(consumer)


def test_paused_partitions_wait(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic, partitions=2)
    tp0, tp1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in (0, 1):
        produce(any_kafka.bootstrap_servers, topic, [b"%d" % partition] * 5, partition)
    consumer = consume(tp0, tp1)
    consumer.pause(tp0)
    assert {record.partition for record in take(consumer, 5)} == {1}
    assert nothing_more(consumer)
    consumer.resume(tp0)
    assert {record.partition for record in take(consumer, 5)} == {0}


def test_undecodable_record_raises_where_it_is_and_can_be_skipped(
    any_kafka: AnyKafka, topic: str, consume: Consume
) -> None:
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    produce(any_kafka.bootstrap_servers, topic, [b"1", b"2", b"three", b"4"])
    consumer = consume(tp, value_deserializer=int)
    assert [record.value for record in take(consumer, 2)] == [1, 2]
    with pytest.raises(RecordDeserializationError) as caught:
        take(consumer, 1)
    assert (caught.value.topic_partition, caught.value.offset) == (tp, 2)
    assert consumer.position(tp) == 2
    consumer.seek(tp, 3)
    assert [record.value for record in take(consumer, 1)] == [4]


def test_metrics_count_records_and_lag(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka.bootstrap_servers, topic, [b"x" * 100] * 1000)
    consumer = consume(TopicPartition(topic, 0))
    take(consumer, 1000)
    metrics = consumer.metrics()
    fetching = metrics["consumer-fetch-manager-metrics"]
    assert fetching["records-consumed-total"] == 1000
    assert 100_000 < fetching["bytes-consumed-total"] < 150_000
    assert fetching["fetch-total"] >= 1
    of_partition = metrics[f"consumer-fetch-manager-metrics.{topic}.0"]
    assert (of_partition["records-lag"], of_partition["records-lead"]) == (0, 1000)


class Doubles:
    """An interceptor that returns every record twice."""

    def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
        return {tp: [record for record in list_ for _ in range(2)] for tp, list_ in records.items()}


def test_interceptor_changes_returned_records(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    produce(any_kafka.bootstrap_servers, topic, [b"a"])
    consumer = consume(TopicPartition(topic, 0), interceptor_classes=[Doubles()])
    assert [record.value for record in take(consumer, 2)] == [b"a", b"a"]


# --- where to begin ---------------------------------------------------------------------------------------------------


def test_reading_starts_at_the_earliest_or_latest_offset(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    produce(any_kafka.bootstrap_servers, topic, [b"old"])
    late = consume(tp, auto_offset_reset="latest")
    assert late.position(tp) == 1
    produce(any_kafka.bootstrap_servers, topic, [b"new"])
    assert [record.value for record in take(late, 1)] == [b"new"]
    assert [record.value for record in take(consume(tp), 2)] == [b"old", b"new"]


def test_without_reset_a_missing_position_raises(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    produce(any_kafka.bootstrap_servers, topic, [b"a"])
    consumer = consume(tp, auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError) as caught:
        consumer.poll(timeout_ms=30_000)
    assert caught.value.partitions == {tp}
    consumer.seek(tp, 77)
    with pytest.raises(OffsetOutOfRangeError) as out_of_range:
        take(consumer, 1)
    assert out_of_range.value.offset_out_of_range_partitions == {tp: 77}
    consumer.seek_to_beginning(tp)
    assert [record.value for record in take(consumer, 1)] == [b"a"]


def test_reset_by_duration_skips_old_records(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic, partitions=2)
    tp, all_old = TopicPartition(topic, 0), TopicPartition(topic, 1)
    probe = consume(tp)
    now_ms = probe._consumer.components.clock.wall_ms()
    hour = 3_600_000
    ages = [5 * hour, 3 * hour, hour // 2, 0]
    values = [b"%d" % age for age in ages]
    produce(any_kafka.bootstrap_servers, topic, values, timestamps=[now_ms - age for age in ages])
    produce(any_kafka.bootstrap_servers, topic, values[:2], 1, timestamps=[now_ms - age for age in ages[:2]])
    consumer = consume(tp, all_old, auto_offset_reset="by_duration:PT2H")
    assert [record.value for record in take(consumer, 2)] == values[2:]
    assert consumer.position(all_old) == 2  # no record is recent enough, so reading starts at the end
    produce(any_kafka.bootstrap_servers, topic, [b"new"], 1)
    assert [record.value for record in take(consumer, 1)] == [b"new"]


def test_deleted_records_reset_the_position(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    produce(any_kafka.bootstrap_servers, topic, [b"%d" % index for index in range(10)])
    consumer = consume(tp, max_poll_records=1)
    assert [record.offset for record in take(consumer, 1)] == [0]
    admin = AdminClient({"bootstrap.servers": any_kafka.bootstrap_servers})
    for future in admin.delete_records([TheirPartition(topic, 0, 6)]).values():
        future.result(30)
    consumer.seek(tp, 2)
    assert [record.offset for record in take(consumer, 1)] == [6]
    assert consumer.beginning_offsets([tp]) == {tp: 6}


def test_offset_lookups_agree_with_the_admin_client(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic, partitions=2)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(any_kafka.bootstrap_servers, topic, [b"a", b"b", b"c"], timestamps=[1000, 2000, 3000])
    consumer = consume(tp)
    assert consumer.beginning_offsets([tp, empty]) == {tp: 0, empty: 0}
    assert consumer.end_offsets([tp, empty]) == {tp: 3, empty: 0}
    found = consumer.offsets_for_times({tp: 1500, empty: 1500})
    assert found == {tp: OffsetAndTimestamp(1, 2000, 0), empty: None}
    assert consumer.offsets_for_times({tp: 3001}) == {tp: None}
    admin = AdminClient({"bootstrap.servers": any_kafka.bootstrap_servers})
    theirs = admin.list_offsets({TheirPartition(topic, 0): OffsetSpec.for_timestamp(1500)})
    assert [future.result(30).offset for future in theirs.values()] == [1]
    assert consumer.partitions_for_topic(topic) == {0, 1}
    assert topic in consumer.topics()
    assert consumer.position(tp) == 0
    assert consumer.current_lag(tp) == 3


# --- transactions -----------------------------------------------------------------------------------------------------


def test_only_committed_records_are_read(kafka: KafkaCluster, topic: str, consume: Consume) -> None:
    kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    expected = []
    for number in range(12):
        commit = number % 3 != 1
        producer.begin_transaction()
        for index in range(5):
            value = b"%d/%d" % (number, index)
            producer.produce(topic, value)
            if index == 2:
                producer.flush(30)  # splits the transaction into several batches
            if commit:
                expected.append(value)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)

    servers = kafka.bootstrap_servers
    committed = consume(tp, bootstrap_servers=servers, isolation_level="read_committed", max_poll_records=7)
    assert [record.value for record in take(committed, len(expected))] == expected
    assert nothing_more(committed)
    assert committed.position(tp) == 72  # 12 transactions, aborted ones included, of five records and a marker each
    assert committed.end_offsets([tp]) == {tp: 72}
    assert committed.current_lag(tp) == 0

    uncommitted = consume(tp, bootstrap_servers=servers, isolation_level="read_uncommitted")
    assert len(take(uncommitted, 61)) == 61
    assert uncommitted.end_offsets([tp]) == {tp: 73}

    producer.commit_transaction(30)
    assert [record.value for record in take(committed, 1)] == [b"open"]


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_connection_cut_at_any_byte_loses_no_records(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    with any_kafka.proxies() as proxies:
        consumer = consume(
            tp,
            bootstrap_servers=any_kafka.proxied_bootstrap_servers,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=20,
            retry_backoff_ms=5,
            fetch_max_wait_ms=100,
        )
        producer = Producer({"bootstrap.servers": any_kafka.bootstrap_servers, "linger.ms": 0})
        proxy = proxies[1]
        for byte in range(140):  # a response with one record has about 150 bytes
            consumer.poll(0)
            proxy.cut_after(byte, reset=bool(byte % 2))
            producer.produce(topic, b"%d" % byte)
            producer.flush(10)
            [record] = take(consumer, 1)
            assert (record.offset, record.value) == (byte, b"%d" % byte)
        assert proxy.cuts == 140
        consumer.close()


def test_silent_broker_is_replaced_by_a_new_leader(any_cluster: AnyKafka, topic: str, consume: Consume) -> None:
    any_cluster.create_topic(topic, assignment=[[1, 2, 3]])
    tp = TopicPartition(topic, 0)
    produce(any_cluster.bootstrap_servers, topic, [b"a"] * 10, acks="all")
    consumer = consume(
        tp, bootstrap_servers=any_cluster.bootstrap_servers, request_timeout_ms=1500, fetch_max_wait_ms=100
    )
    assert len(take(consumer, 10)) == 10
    any_cluster.brokers[1].pause()
    try:
        produce(any_cluster.bootstrap_servers, topic, [b"b"] * 10, acks="all")  # succeeds once a new leader is elected
        assert [record.offset for record in take(consumer, 10, 60)] == list(range(10, 20))
    finally:
        any_cluster.brokers[1].resume()


@pytest.mark.slow
def test_compacted_topic_is_read_completely(start_kafka: StartKafka, topic: str, consume: Consume) -> None:
    """A compacted topic with gaps, empty batches and a compacted end is read correctly."""
    with start_kafka({"log.cleaner.backoff.ms": 100}) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic(
            topic,
            config={
                "cleanup.policy": "compact",
                "segment.ms": 200,
                "min.cleanable.dirty.ratio": 0.001,
                "delete.retention.ms": 0,
            },
        )
        tp = TopicPartition(topic, 0)
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})
        for number in range(20):
            for key in range(number % 3, 50, 2):
                # Every third round writes tombstones; the last rounds, for all keys above 40.
                value = None if number % 3 == 2 or (number > 15 and key > 40) else b"%d" % number
                producer.produce(topic, value, key=b"%d" % key)
            producer.flush(10)
        end = consume(tp, bootstrap_servers=servers).end_offsets([tp])[tp]

        def compacted() -> bool:
            producer.produce(topic, b"x", key=b"roll")  # an append to a segment that is old enough rolls it
            producer.flush(10)
            consumer = consume(tp, bootstrap_servers=servers)
            offsets = [record.offset for record in take(consumer, 1)]
            consumer.close()
            return bool(offsets) and offsets[0] > 0

        eventually(compacted, 60, every_s=0.3)

        def theirs() -> list[Any]:
            consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.partition.eof": True})
            consumer.assign([TheirPartition(topic, 0, 0)])
            read = []
            while (message := consumer.poll(10)) is not None and message.error() is None:
                read.append((message.offset(), message.key(), message.value()))
            consumer.close()
            return read

        def ours(max_poll_records: int) -> list[Any]:
            consumer = consume(tp, bootstrap_servers=servers, max_poll_records=max_poll_records)
            end = consumer.end_offsets([tp])[tp]
            read = []
            while consumer.position(tp) < end:
                records = consumer.poll(timeout_ms=1000).get(tp, ())
                read += [(record.offset, record.key, record.value) for record in records]
            consumer.close()
            return read

        def same() -> bool:  # becomes true once the log cleaner is idle
            read = theirs()
            return len(read) < end and read == ours(1) == ours(500)

        eventually(same, 60)


# --- three brokers ----------------------------------------------------------------------------------------------------


def test_consumer_reads_from_the_closest_replica(any_cluster: AnyKafka, topic: str, consume: Consume) -> None:
    any_cluster.create_topic(topic, assignment=[[1, 2, 3]])
    tp = TopicPartition(topic, 0)
    produce(any_cluster.bootstrap_servers, topic, [b"a"])
    consumer = consume(tp, bootstrap_servers=any_cluster.bootstrap_servers, client_rack="rack-3")
    assert [record.value for record in take(consumer, 1)] == [b"a"]
    assert consumer.metrics()[f"consumer-fetch-manager-metrics.{topic}.0"]["preferred-read-replica"] == 3
    # After the replica fails, the consumer reads from the leader without loss or repetition.
    any_cluster.brokers[3].kill()
    values = [b"%d" % index for index in range(20)]
    produce(any_cluster.bootstrap_servers, topic, values)
    assert [record.value for record in take(consumer, 20, 60)] == values


def test_leader_changes_lose_no_records(any_cluster: AnyKafka, topic: str, consume: Consume) -> None:
    any_cluster.create_topic(topic, assignment=[[1, 2, 3]])
    tp = TopicPartition(topic, 0)
    consumer = consume(tp, bootstrap_servers=any_cluster.bootstrap_servers)
    seen: list[int] = []
    for number, leader in enumerate((2, 3, 1, 2)):
        produce(any_cluster.bootstrap_servers, topic, [b"%d" % number] * 10)
        any_cluster.move_leader(topic, 0, leader)
        produce(any_cluster.bootstrap_servers, topic, [b"%d" % number] * 10)
        seen += [record.offset for record in take(consumer, 20, 60)]
    assert seen == list(range(80))


def test_killed_leader_loses_no_records(any_cluster: AnyKafka, topic: str, consume: Consume) -> None:
    any_cluster.create_topic(topic, assignment=[[1, 2, 3]])
    tp = TopicPartition(topic, 0)
    consumer = consume(tp, bootstrap_servers=any_cluster.bootstrap_servers, max_poll_records=10)
    produce(any_cluster.bootstrap_servers, topic, [b"x"] * 50, acks="all")
    seen = [record.offset for record in take(consumer, 20)]
    any_cluster.brokers[1].kill()
    produce(any_cluster.bootstrap_servers, topic, [b"x"] * 50, acks="all")
    seen += [record.offset for record in take(consumer, 100 - len(seen), 60)]
    assert seen == list(range(100))


@pytest.mark.slow
def test_log_truncation_is_detected(any_cluster: AnyKafka, topic: str, consume: Consume) -> None:
    """A replica that missed records becomes leader, which truncates records already read (KIP-320)."""
    any_cluster.create_topic(
        topic,
        assignment=[[1, 2]],
        config={"unclean.leader.election.enable": "true", "min.insync.replicas": 1},
    )
    tp = TopicPartition(topic, 0)
    servers = any_cluster.bootstrap_servers
    produce(servers, topic, [b"kept"] * 10, acks="all")
    told = consume(tp, bootstrap_servers=servers, auto_offset_reset="none")
    told.seek_to_beginning(tp)
    follows = consume(tp, bootstrap_servers=servers, auto_offset_reset="latest")
    follows.seek_to_beginning(tp)
    any_cluster.brokers[2].kill()
    produce(servers, topic, [b"lost"] * 10, acks=1)
    assert len(take(told, 20, 60)) == len(take(follows, 20, 60)) == 20
    any_cluster.brokers[1].kill()
    any_cluster.brokers[2].start()
    any_cluster.await_leader(topic, 0, other_than=1, timeout_s=60)
    produce(servers, topic, [b"new"], acks=1)
    with pytest.raises(LogTruncationError) as caught:
        take(told, 1, 60)
    assert caught.value.divergent_offsets[tp].offset == 10
    [record] = take(follows, 1, 60)
    assert (record.offset, record.value) == (10, b"new")


def test_recreated_topic_is_read_from_its_start(any_kafka: AnyKafka, topic: str, consume: Consume) -> None:
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    produce(any_kafka.bootstrap_servers, topic, [b"old %d" % index for index in range(10)])
    consumer = consume(tp, metadata_max_age_ms=500)
    take(consumer, 10)
    any_kafka.delete_topic(topic)
    any_kafka.create_topic(topic)
    produce(any_kafka.bootstrap_servers, topic, [b"new"])
    values: list[Any] = []

    def new_one_is_there() -> bool:
        try:
            for records in consumer.poll(timeout_ms=200).values():
                values.extend(record.value for record in records)
        except KafkaError as error:
            raise AssertionError(str(error)) from error
        return b"new" in values

    eventually(new_one_is_there, 30)
    assert values == [b"new"]
