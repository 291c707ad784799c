"""The embedded broker and a real one give the same responses to the same requests, and store the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pykclient.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from pykclient.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record.compression import Compression
from pykclient.record.memory_records import MemoryRecords
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient
from tests.testing.log.support import NOW_MS, batch, values

_UNKNOWN_TOPIC, _OUT_OF_RANGE, _CORRUPT, _TOO_LARGE = 3, 1, 2, 10
_OUT_OF_ORDER, _BAD_EPOCH, _INVALID_RECORD, _INVALID_TIMESTAMP = 45, 47, 87, 32
_UNKNOWN_EPOCH, _UNSUPPORTED_VERSION, _INVALID_REQUEST, _LOAD_IN_PROGRESS = 75, 35, 42, 14


class Partition:
    """Partition 0 of a topic, used through requests."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self.client = client
        self.topic = topic

    def produce(self, data: bytes, acks: int = -1) -> ProduceResponse.PartitionProduceResponse:
        request = ProduceRequest(
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=self.topic, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=data)]
                )
            ],
        )
        (topic,) = self.client.ask(request, 12, ProduceResponse).responses
        return topic.partition_responses[0]

    def append(self, data: bytes) -> int:
        answer = self.produce(data)
        assert answer.error_code == 0
        return answer.base_offset

    def fetch(self, offset: int, max_bytes: int = 1 << 20, isolation: int = 0) -> FetchResponse.PartitionData:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[
                FetchRequest.FetchTopic(
                    topic=self.topic,
                    partitions=[
                        FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
                    ],
                )
            ],
        )
        (topic,) = self.client.ask(request, 12, FetchResponse).responses
        return topic.partitions[0]

    def stored(self) -> list[bytes]:
        """Fetch and return all batches."""
        found: list[bytes] = []
        offset = 0
        while True:
            records = self.fetch(offset).records
            batches = list(MemoryRecords(records or b"").batches())
            if not batches:
                return found
            found += [bytes(one.buffer) for one in batches]
            offset = batches[-1].next_offset

    def list_offset(
        self, timestamp: int, version: int = 11, replica_id: int = -1, **fields: Any
    ) -> tuple[int, int, int, int]:
        """Return error, timestamp, offset and epoch of a ListOffsets response."""
        request = ListOffsetsRequest(
            replica_id=replica_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=self.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)
                    ],
                )
            ],
        )
        (topic,) = self.client.ask(request, version, ListOffsetsResponse).topics
        one = topic.partitions[0]
        return one.error_code, one.timestamp, one.offset, one.leader_epoch

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Return error and low watermark of a DeleteRecords response."""
        request = DeleteRecordsRequest(
            timeout_ms=10_000,
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=self.topic,
                    partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)],
                )
            ],
        )
        (topic,) = self.client.ask(request, 2, DeleteRecordsResponse).topics
        return topic.partitions[0].error_code, topic.partitions[0].low_watermark

    def end_of_epoch(self, epoch: int, current_epoch: int = -1) -> tuple[int, int, int]:
        """Return error, epoch and end offset of an OffsetForLeaderEpoch response."""
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=self.topic,
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=current_epoch, leader_epoch=epoch
                        )
                    ],
                )
            ]
        )
        (topic,) = self.client.ask(request, 4, OffsetForLeaderEpochResponse).topics
        one = topic.partitions[0]
        return one.error_code, one.leader_epoch, one.end_offset

    def new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

        def ask() -> int | None:
            answer = self.client.ask(request, 4, InitProducerIdResponse)
            assert answer.error_code in (0, _LOAD_IN_PROGRESS)
            return None if answer.error_code else answer.producer_id

        found = eventually(ask, 30.0, "a producer id")
        assert found is not None
        return found


@pytest.fixture
def client(any_kafka: AnyKafka) -> Iterator[RawClient]:
    with RawClient(any_kafka.bootstrap_servers) as client:
        yield client


@pytest.fixture
def partition(any_kafka: AnyKafka, client: RawClient, topic: str) -> Partition:
    # The test records are old; retention must not delete them.
    return Partition(client, any_kafka.create_topic(topic, config={"retention.ms": -1}))


def moved(data: bytes, base_offset: int, epoch: int = 0) -> bytes:
    """Return a batch with its offsets and its leader epoch as in the log."""
    return base_offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]


def test_log_keeps_batches_as_sent(partition: Partition) -> None:
    sent = [
        batch(values(3)),
        batch([(None, b"x" * 300), (b"", b""), (b"k", None)], timestamps=[NOW_MS, NOW_MS - 5, NOW_MS + 5]),
        *(batch(values(40), compression=Compression.of(codec)) for codec in ("gzip", "snappy", "lz4", "zstd")),
    ]
    expected, offset = [], 0
    for data in sent:
        assert partition.append(data) == offset
        expected.append(moved(data, offset))
        (one,) = MemoryRecords(data).batches()
        offset += one.last_offset + 1
    assert partition.stored() == expected
    assert partition.fetch(offset).high_watermark == offset


def test_log_append_time_replaces_timestamps(any_kafka: AnyKafka, client: RawClient, topic: str) -> None:
    any_kafka.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    partition = Partition(client, topic)
    data = batch(values(3), timestamps=[1, 2, 3])
    answer = partition.produce(data)
    assert answer.log_append_time_ms > NOW_MS
    (stored,) = MemoryRecords(b"".join(partition.stored())).batches()
    stored.ensure_valid()
    assert stored.max_timestamp == answer.log_append_time_ms
    # Only offset, epoch, CRC, timestamp type and largest timestamp differ from what was sent.
    kept = bytes(stored.buffer)
    assert (kept[23:35], kept[43:]) == (data[23:35], data[43:])
    assert partition.list_offset(5) == (0, answer.log_append_time_ms, 0, 0)


def test_offsets_are_found_by_timestamp(partition: Partition) -> None:
    assert partition.list_offset(-3)[:3] == (0, -1, -1)
    partition.append(batch(values(3), timestamps=[100, 300, 200]))
    partition.append(batch(values(3), timestamps=[250, 400, 400], compression=Compression.of("lz4")))
    partition.append(batch(values(2), timestamps=[350, 360]))
    for timestamp, expected in (
        (0, (0, 100, 0, 0)),
        (101, (0, 300, 1, 0)),
        (250, (0, 300, 1, 0)),
        (301, (0, 400, 4, 0)),
        (400, (0, 400, 4, 0)),
        (401, (0, -1, -1, -1)),
        (-1, (0, -1, 8, 0)),
        (-2, (0, -1, 0, 0)),
        (-3, (0, 400, 4, 0)),
        (-4, (0, -1, 0, 0)),
        (-5, (0, -1, -1, -1)),
        (-7, (_UNSUPPORTED_VERSION, -1, -1, -1)),
    ):
        assert (timestamp, partition.list_offset(timestamp)) == (timestamp, expected)
    for version in range(1, 4):
        assert partition.list_offset(101, version) == (0, 300, 1, -1)
    assert partition.list_offset(-3, 6)[0] == _UNSUPPORTED_VERSION
    assert partition.list_offset(-2, current_leader_epoch=0)[0] == 0
    assert partition.list_offset(-2, current_leader_epoch=1)[0] == _UNKNOWN_EPOCH
    assert Partition(partition.client, "no-such-topic").list_offset(-1)[0] == _UNKNOWN_TOPIC


def test_duplicate_partition_in_list_offsets_is_refused(partition: Partition) -> None:
    one = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[one, one])]
    )
    (topic,) = partition.client.ask(request, 7, ListOffsetsResponse).topics
    assert {answer.error_code for answer in topic.partitions} == {_INVALID_REQUEST}


def test_deleted_records_are_out_of_range(partition: Partition) -> None:
    for _ in range(3):
        partition.append(batch(values(3), timestamps=[100, 200, 300]))
    assert partition.delete_records(4) == (0, 4)
    assert partition.delete_records(2) == (0, 4)
    assert partition.delete_records(10) == (_OUT_OF_RANGE, -1)
    assert partition.fetch(3).error_code == _OUT_OF_RANGE
    found = partition.fetch(4)
    assert (found.log_start_offset, found.high_watermark) == (4, 9)
    assert next(MemoryRecords(found.records or b"").batches()).base_offset == 3
    assert partition.list_offset(-2) == (0, -1, 4, 0)
    assert partition.list_offset(100) == (0, 200, 4, 0)
    assert partition.delete_records(-1) == (0, 9)
    assert partition.list_offset(-2) == (0, -1, 9, 0)
    answer = partition.produce(batch())
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (0, 9, -1, 9)
    assert Partition(partition.client, "no-such-topic").delete_records(1) == (_UNKNOWN_TOPIC, -1)


def test_end_offsets_of_epochs_are_returned(partition: Partition) -> None:
    assert partition.end_of_epoch(0) == (0, 0, 0)
    partition.append(batch(values(3)))
    assert partition.end_of_epoch(0) == (0, 0, 3)
    assert partition.end_of_epoch(0, current_epoch=0) == (0, 0, 3)
    assert partition.end_of_epoch(1) == (0, -1, -1)
    assert partition.end_of_epoch(0, current_epoch=1) == (_UNKNOWN_EPOCH, -1, -1)
    assert Partition(partition.client, "no-such-topic").end_of_epoch(0)[0] == _UNKNOWN_TOPIC


def test_fetch_returns_at_least_one_batch_within_limits(partition: Partition) -> None:
    for _ in range(4):
        partition.append(batch(values(1, 100)))
    size = len(batch(values(1, 100)))

    def offsets(offset: int, max_bytes: int) -> Sequence[int]:
        records = partition.fetch(offset, max_bytes).records
        return [one.base_offset for one in MemoryRecords(records or b"").batches()]

    assert offsets(0, 1) == [0]
    assert offsets(1, 2 * size) == [1, 2]
    assert offsets(1, 3 * size - 1) == [1, 2]
    assert offsets(4, size) == []
    assert partition.fetch(5).error_code == _OUT_OF_RANGE


def test_sequence_numbers_are_checked(partition: Partition) -> None:
    id = partition.new_producer_id()

    def send(sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, int]:
        answer = partition.produce(batch(values(count), producer=(id, epoch, sequence)))
        return answer.error_code, answer.base_offset

    assert send(0, 2) == (0, 0)
    assert send(2, 1) == (0, 2)
    assert send(0, 2) == (0, 0)
    again = partition.produce(batch(producer=(id, 0, 2)))
    assert (again.error_code, again.base_offset, again.log_append_time_ms, again.log_start_offset) == (0, 2, NOW_MS, 0)
    assert send(4) == (_OUT_OF_ORDER, -1)
    assert send(0, 1) == (_OUT_OF_ORDER, -1)
    assert [send(sequence) for sequence in range(3, 8)] == [(0, sequence) for sequence in range(3, 8)]
    assert send(3) == (0, 3)
    assert send(2) == (_OUT_OF_ORDER, -1)
    assert send(5, epoch=1) == (_OUT_OF_ORDER, -1)
    assert send(0, epoch=1) == (0, 8)
    assert send(8, epoch=0) == (_BAD_EPOCH, -1)
    assert send(1, epoch=1) == (0, 9)
    other = partition.new_producer_id()
    answer = partition.produce(batch(producer=(other, 0, 17)))
    assert (answer.error_code, answer.base_offset) == (0, 10)
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=partition.topic, partition_indexes=[0])]
    )
    (topic,) = partition.client.ask(request, 0, DescribeProducersResponse).topics
    assert sorted(
        (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp, one.current_txn_start_offset)
        for one in topic.partitions[0].active_producers
    ) == sorted([(id, 1, 1, NOW_MS, -1), (other, 0, 17, NOW_MS, -1)])


def test_unacceptable_batches_are_refused(any_kafka: AnyKafka, client: RawClient, topic: str) -> None:
    any_kafka.create_topic(
        topic,
        config={"max.message.bytes": 500, "message.timestamp.before.max.ms": 1000, "cleanup.policy": "compact"},
    )
    partition = Partition(client, topic)
    now_ms = partition_time(any_kafka, client, topic)
    good = batch(timestamps=[now_ms])
    corrupt = bytearray(good)
    corrupt[-1] ^= 1
    assert partition.produce(bytes(corrupt)).error_code == _CORRUPT
    assert partition.produce(batch(values(1, 500), timestamps=[now_ms])).error_code == _TOO_LARGE
    assert partition.produce(good + good).error_code == _INVALID_RECORD
    assert partition.produce(batch(base_offset=1, timestamps=[now_ms])).error_code == _INVALID_RECORD
    without_key = partition.produce(batch([(b"k", b"v"), (None, b"v")], timestamps=[now_ms] * 2))
    assert (without_key.error_code, [one.batch_index for one in without_key.record_errors]) == (_INVALID_RECORD, [1])
    old = partition.produce(batch(values(3), timestamps=[now_ms, NOW_MS, now_ms]))
    assert (old.error_code, [one.batch_index for one in old.record_errors]) == (_INVALID_TIMESTAMP, [1])
    assert partition.append(good) == 0


def partition_time(any_kafka: AnyKafka, client: RawClient, topic: str) -> int:
    """Return the broker's time of day."""
    name = any_kafka.create_topic(f"{topic}-time", config={"message.timestamp.type": "LogAppendTime"})
    return Partition(client, name).produce(batch()).log_append_time_ms
