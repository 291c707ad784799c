"""A leader accepts, refuses and rewrites the same batches as Kafka's own LogValidator."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from pykclient.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from pykclient.record import (
    Compression,
    CompressionType,
    ControlRecordType,
    MemoryRecords,
    MemoryRecordsBuilder,
    Record,
    compression as compression_module,
)
from pykclient.record.memory_records_builder import write_header
from pykclient.testing.log.log_types import AppendOrigin
from pykclient.testing.log.log_validator import LogValidator, RecordValidationError, ValidationResult
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, TopicPartition
from tests.record.conversion_oracle import ask_java, content
from tests.record.oracle import control_spec

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def some_records(
    count: int, *, key: bytes | None = b"k", timestamp: int = NOW, has_headers: bool = True
) -> list[Record]:
    headers = (("h", b"1"), ("g", None)) if has_headers else ()
    return [Record(i, timestamp - 3 * i, key, b"value %d" % i, headers) for i in range(count)]


def batch_of(records: list[Record], codec: str = "none", magic: int = 2, **config: Any) -> bytes:
    """Return one batch; in an old format without a codec, one message per record."""
    builder = MemoryRecordsBuilder(
        magic=magic, compression=Compression.of(codec), base_offset=records[0].offset, **config
    )
    for record in records:
        builder.append_with_offset(*record)
    return bytes(builder.build())


def validate(
    data: bytes, first_offset: int = 500, source: str = "none", target: str = "none", **given: Any
) -> ValidationResult:
    validator = LogValidator(
        memoryview(data),
        TP,
        NOW,
        source_compression=CompressionType.for_name(source),
        target_compression=Compression.of(target),
        partition_leader_epoch=7,
        **given,
    )
    return validator.validate_messages_and_assign_offsets(first_offset)


@pytest.mark.parametrize("codec", CODECS)
def test_only_the_header_of_an_unchanged_batch_is_rewritten(codec: str) -> None:
    data = batch_of(some_records(4), codec, producer_id=9, producer_epoch=1, base_sequence=3)
    given = bytes(data)
    result = validate(data, source=codec, target=codec)
    assert data == given
    assert (result.next_offset, result.max_timestamp_ms) == (504, NOW)
    assert not result.message_size_maybe_changed
    (batch,) = MemoryRecords(result.records).batches()
    batch.ensure_valid()
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (500, 503, 7)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 1, 3)
    assert batch.records() == [record._replace(offset=record.offset + 500) for record in some_records(4)]
    assert bytes(result.records)[21:] == given[21:]


def test_missing_codec_matters_only_for_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch_of(some_records(4), "lz4")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lz4", "cramjam")]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("lz4", "cramjam"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(compression_module, "_engines", {})
    result = validate(data, source="lz4", target="lz4")
    assert (result.next_offset, result.max_timestamp_ms) == (504, NOW)
    assert bytes(result.records)[21:] == data[21:]
    with pytest.raises(UnsupportedCompressionTypeError, match="pip install cramjam"):
        validate(data, source="lz4", target="gzip")


def test_log_append_time_is_the_brokers_time() -> None:
    result = validate(batch_of(some_records(3)), timestamp_type=LOG_APPEND_TIME)
    (batch,) = MemoryRecords(result.records).batches()
    batch.ensure_valid()
    assert {record.timestamp for record in batch.records()} == {NOW}
    assert (batch.timestamp_type, result.max_timestamp_ms, result.log_append_time_ms) == (LOG_APPEND_TIME, NOW, NOW)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_become_one_current_batch(magic: int, codec: str) -> None:
    records = some_records(3, has_headers=False)
    result = validate(batch_of(records, codec, magic), source=codec, target="lz4")
    (batch,) = MemoryRecords(result.records).batches()
    batch.ensure_valid()
    assert (batch.magic, batch.compression_type.name, batch.partition_leader_epoch) == (2, "lz4", 7)
    times = [record.timestamp if magic else -1 for record in records]
    assert [(record.offset, record.timestamp) for record in batch.records()] == list(
        zip((500, 501, 502), times, strict=True)
    )
    assert result.message_size_maybe_changed


def test_gaps_between_offsets_are_closed() -> None:
    records = [record._replace(offset=offset) for record, offset in zip(some_records(3), (0, 5, 6), strict=True)]
    data = bytearray(batch_of(records))
    with pytest.raises(InvalidRecordError, match="says it has 3 records, and offsets 0 to 6"):
        validate(bytes(data))
    result = validate(bytes(data), origin=AppendOrigin.COORDINATOR)
    assert [record.offset for record in MemoryRecords(result.records).records()] == [500, 501, 502]


def test_exactly_one_batch_is_accepted() -> None:
    data = batch_of(some_records(1))
    with pytest.raises(InvalidRecordError, match="more than one batch"):
        validate(data + data)
    with pytest.raises(InvalidRecordError, match="has no batch"):
        validate(b"")
    mixed = batch_of(some_records(1, has_headers=False), magic=0) + batch_of(
        some_records(1, has_headers=False), magic=1
    )
    with pytest.raises(InvalidRecordError, match="different formats, v0 and v1"):
        validate(mixed)


def test_compacted_topic_needs_keys() -> None:
    records = [*some_records(2), *some_records(2, key=None)]
    records = [record._replace(offset=i) for i, record in enumerate(records)]
    with pytest.raises(RecordValidationError, match="2 records were refused: record 2: t-0 is compacted") as caught:
        validate(batch_of(records), compacted_topic=True)
    assert [index for index, _ in caught.value.record_errors] == [2, 3]
    assert isinstance(caught.value.error, InvalidRecordError)
    validate(batch_of(some_records(2)), compacted_topic=True)


def test_timestamps_have_bounds() -> None:
    bounds: dict[str, Any] = {"timestamp_before_max_ms": 10, "timestamp_after_max_ms": 5}
    for timestamp in (NOW - 10, NOW + 5, -1):
        validate(batch_of(some_records(1, timestamp=timestamp)), **bounds)
    for timestamp in (NOW - 11, NOW + 6):
        with pytest.raises(RecordValidationError, match="rejected due to invalid timestamp") as caught:
            validate(batch_of(some_records(1, timestamp=timestamp)), **bounds)
        assert isinstance(caught.value.error, InvalidTimestampError)
        assert caught.value.record_errors == [
            (0, f"timestamp {timestamp} is out of range, which is {NOW - 10} to {NOW + 5}")
        ]
    data = batch_of([Record(0, -1, None, None), Record(1, NOW + 6, None, None)])
    with pytest.raises(RecordValidationError):
        validate(data, **bounds)
    validate(batch_of(some_records(1, timestamp=5)), timestamp_type=LOG_APPEND_TIME, **bounds)


def test_control_records_from_producers_are_refused() -> None:
    data = bytes(control_spec(ControlRecordType.ABORT).builder().build())
    with pytest.raises(InvalidRecordError, match="control records"):
        validate(data)
    result = validate(data, origin=AppendOrigin.COORDINATOR, target="gzip")
    (batch,) = MemoryRecords(result.records).batches()
    assert (batch.is_control_batch, batch.base_offset, batch.compression_type.name) == (True, 500, "none")


def test_idempotence_needs_a_sequence_and_the_current_format() -> None:
    data = bytearray(batch_of(some_records(1), producer_id=5, producer_epoch=0, base_sequence=0))
    with pytest.raises(UnsupportedForMessageFormatError, match="idempotent records need message format v2"):
        validate(bytes(data), to_magic=1)
    data[53:57] = b"\xff\xff\xff\xff"
    with pytest.raises(InvalidRecordError, match="has the sequence -1"):
        validate(bytes(data))


@pytest.mark.parametrize("declared", [1, 3, 0, -1])
def test_header_record_count_must_match(declared: int) -> None:
    data = bytearray(batch_of(some_records(2)))
    (batch,) = MemoryRecords(bytes(data)).batches()
    write_header(
        data,
        len(data),
        base_offset=0,
        last_offset_delta=declared - 1,
        attributes=0,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        partition_leader_epoch=-1,
        count=declared,
    )
    with pytest.raises((CorruptRecordError, InvalidRecordError)):
        validate(bytes(data))
    assert batch.count_or_none == 2


def test_damaged_records_are_refused_or_readable() -> None:
    """Records behind a header with a matching CRC can be read if they are accepted."""
    rng = random.Random(6)
    taken = 0
    for _ in range(2_000):
        data = bytearray(batch_of(some_records(5)))
        data[61 + rng.randrange(len(data) - 61)] = rng.randrange(256)
        try:
            result = validate(bytes(data))
        except KafkaError:
            continue
        assert len(list(MemoryRecords(result.records).records())) == 5
        taken += 1
    assert 500 < taken < 1_900


JAVA_NAMES = {
    "InvalidRecordException": InvalidRecordError,
    "InvalidTimestampException": InvalidTimestampError,
    "CorruptRecordException": CorruptRecordError,
    "UnsupportedForMessageFormatException": UnsupportedForMessageFormatError,
}


def java_cases() -> list[tuple[bytes, dict[str, Any]]]:
    """Return batches and the arguments of their validation."""
    rng = random.Random(3)
    cases: list[tuple[bytes, dict[str, Any]]] = []
    for source in CODECS:
        for magic in (0, 1, 2):
            if magic < 2 and source == "zstd":
                continue
            for _ in range(16):
                records = [
                    Record(i, rng.choice((-1, NOW, NOW - 50, NOW + 7)), rng.choice((b"k", b"", b"k", None)), b"v%d" % i)
                    for i in range(rng.choice((1, 1, 4)))
                ]
                has_id = magic == 2 and rng.random() < 0.3
                config = {"producer_id": 4, "producer_epoch": 1, "base_sequence": 8} if has_id else {}
                given: dict[str, Any] = {
                    "source": source,
                    "target": source if rng.random() < 0.5 else rng.choice(CODECS),
                    "compacted_topic": rng.random() < 0.3,
                    "to_magic": rng.choice((2, 2, 2, 1, 0)),
                    "timestamp_type": rng.choice((CREATE_TIME, CREATE_TIME, LOG_APPEND_TIME)),
                    "timestamp_before_max_ms": rng.choice((1 << 60, 40)),
                    "timestamp_after_max_ms": rng.choice((1 << 60, 4)),
                }
                if given["to_magic"] < 2 and given["target"] == "zstd":
                    continue
                cases.append((batch_of(records, source, magic, **config), given))
    return cases


@pytest.mark.java
def test_validation_equals_javas() -> None:
    tasks = [
        f"validate {given['source']} {given['target']} {str(given['compacted_topic']).lower()} {given['to_magic']} "
        f"{'LogAppendTime' if given['timestamp_type'] == LOG_APPEND_TIME else 'CreateTime'} "
        f"{given['timestamp_before_max_ms']} {given['timestamp_after_max_ms']} 7 {NOW} 500 {data.hex()}"
        for data, given in java_cases()
    ]
    outcomes = set()
    for task, (data, given), answer in zip(tasks, java_cases(), ask_java(tasks), strict=True):
        first, *rest = answer.split(" ")
        outcomes.add(first)
        if first in JAVA_NAMES:
            with pytest.raises(KafkaError) as caught:
                validate(data, **given)
            error = caught.value
            if rest:
                assert isinstance(error, RecordValidationError), task
                assert [str(len(error.record_errors))] == rest, task
                error = error.error
            assert type(error) is JAVA_NAMES[first], task
            continue
        ours = validate(data, **given)
        assert content([ours.records]) == content([bytes.fromhex(rest[1])]), task
        assert str(ours.next_offset) == first, task
        if given["to_magic"]:  # magic 0 has no timestamps, and Java's results vary there
            assert str(ours.max_timestamp_ms) == rest[0], task
    assert {"InvalidRecordException", "InvalidTimestampException", "501", "504"} <= outcomes
