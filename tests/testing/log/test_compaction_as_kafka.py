"""The embedded broker's cleaner leaves the same records of a compacted topic as a real one's."""

from __future__ import annotations

from collections.abc import Sequence

from pykclient.record.compression import NO_COMPRESSION, Compression
from pykclient.record.memory_records import AnyRecordBatch, MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import NO_PRODUCER_ID, NO_SEQUENCE
from tests.support.any_kafka import StartKafka
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient
from tests.testing.log.support import NOW_MS, KeyValue, batch
from tests.testing.log.test_as_kafka import Partition

_SEGMENT_MS = 60_000


def _batches(partition: Partition) -> list[AnyRecordBatch]:
    found = list(MemoryRecords(b"".join(partition.stored())).batches())
    for one in found:
        one.ensure_valid()
    return found


def _rest(
    base_offset: int,
    last_offset: int,
    records: Sequence[tuple[int, KeyValue]],
    *,
    compression: Compression = NO_COMPRESSION,
    producer: tuple[int, int, int] = (NO_PRODUCER_ID, -1, NO_SEQUENCE),
) -> bytes:
    """Return the batch that compaction leaves."""
    builder = MemoryRecordsBuilder(
        base_offset=base_offset,
        compression=compression,
        partition_leader_epoch=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    for offset, (key, value) in records:
        builder.append_with_offset(offset, NOW_MS, key, value)
    builder.override_last_offset(last_offset)
    return bytes(builder.build())


def test_compaction_equals_kafkas(start_kafka: StartKafka, topic: str) -> None:
    with start_kafka({"log.cleaner.backoff.ms": 100}) as kafka, RawClient(kafka.bootstrap_servers) as client:
        config = {"cleanup.policy": "compact", "segment.ms": _SEGMENT_MS, "min.cleanable.dirty.ratio": 0}
        partition = Partition(client, kafka.create_topic(topic, config=config))
        id = partition.new_producer_id()
        lz4 = Compression.of("lz4")
        partition.append(batch([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], producer=(id, 0, 0)))  # 0 to 2
        partition.append(batch([(b"a", b"2"), (b"d", b"2")], compression=lz4))  # 3, 4
        partition.append(batch([(b"b", None), (b"e", b"3")]))  # 5, 6
        partition.append(batch([(b"c", b"4"), (b"f", b"4")], producer=(id, 0, 3)))  # 7, 8
        partition.append(batch([(b"c", b"5"), (b"f", b"5"), (b"d", b"5")], producer=(id, 0, 5)))  # 9 to 11
        partition.append(batch([(b"g", b"6"), (b"e", b"6"), (b"h", b"6")]))  # 12 to 14
        partition.append(batch([(b"c", b"7"), (b"f", b"7"), (b"d", b"7")]))  # 15 to 17
        partition.append(batch([(b"e", b"8"), (b"i", b"8"), (b"a", b"8")]))  # 18 to 20
        # The record's time rolls a new segment, which is not compacted.
        last = batch([(b"h", b"9")], timestamps=[NOW_MS + _SEGMENT_MS + 1])
        partition.append(last)  # 21
        eventually(lambda: len(_batches(partition)) < 9, 30.0, "a compaction")
        found = _batches(partition)
        # The first batches are removed, the tombstone has a delete horizon, and the producer's last batch is empty.
        assert [one.base_offset for one in found] == [5, 9, 12, 15, 18, 21]
        tombstone, empty, some, *others = found
        assert tombstone.delete_horizon_ms is not None
        assert [(record.offset, record.timestamp, record.key, record.value) for record in tombstone] == [
            (5, NOW_MS, b"b", None)
        ]
        assert (tombstone.last_offset, tombstone.count_or_none) == (6, 1)
        assert (empty.count_or_none, empty.last_offset, empty.base_sequence, empty.last_sequence) == (0, 11, 5, 7)
        assert (empty.producer_id, empty.producer_epoch, empty.max_timestamp) == (id, 0, NOW_MS)
        assert bytes(some.buffer) == _rest(12, 14, [(12, (b"g", b"6")), (14, (b"h", b"6"))])
        assert [record.offset for one in others for record in one] == [15, 16, 17, 18, 19, 20, 21]
        # The log accepts more records, and still knows the producer.
        answer = partition.produce(batch([(b"f", b"5")], producer=(id, 0, 8), timestamps=[NOW_MS + _SEGMENT_MS + 2]))
        assert (answer.error_code, answer.base_offset) == (0, 22)
        assert partition.list_offset(-2) == (0, -1, 0, 0)
        first = MemoryRecords(partition.fetch(0).records or b"").first_batch()
        assert first is not None
        assert first.base_offset == 5
        assert partition.list_offset(NOW_MS) == (0, NOW_MS, 5, 0)
