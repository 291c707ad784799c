"""Text descriptions of batches, so that Java and Python can be given the same ones.

A description is one line for the batch and one per record:

    magic codec level|- timestamp-type base-offset log-append-time producer-id epoch sequence transactional control \
        leader-epoch delete-horizon last-offset|- count
    offset timestamp key|- value|- (header-name header-value|-)*

Bytes are ``=`` and hexadecimal digits. ``python -m tests.record.oracle`` writes the batches that Java builds from
``all_specs()`` to ``java_batches.txt``, for tests that run without Java.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from pykclient.record import (
    Compression,
    CompressionType,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecordsBuilder,
    Record,
)
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE
from tests.support.java import run_java

JAVA = Path(__file__).parent / "java" / "RecordsOracle.java"
VECTORS = Path(__file__).parent / "java_batches.txt"

_TIMESTAMP_TYPES = {
    NO_TIMESTAMP_TYPE: "NO_TIMESTAMP_TYPE",
    CREATE_TIME: "CREATE_TIME",
    LOG_APPEND_TIME: "LOG_APPEND_TIME",
}
#: The text of Java's TimestampType values.
TIMESTAMP_TYPE_TEXT = {
    NO_TIMESTAMP_TYPE: "NoTimestampType",
    CREATE_TIME: "CreateTime",
    LOG_APPEND_TIME: "LogAppendTime",
}


def to_text(data: bytes | None) -> str:
    return "-" if data is None else f"={data.hex()}"


def from_text(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text[1:])


def headers_text(record: Record) -> list[str]:
    return [text for name, value in record.headers for text in (to_text(name.encode()), to_text(value))]


class BatchSpec:
    """A batch to build. ``records`` have the timestamps that are appended, before any log append time."""

    def __init__(
        self,
        records: Sequence[Record],
        *,
        magic: int = 2,
        codec: str = "none",
        level: int | None = None,
        timestamp_type: int = CREATE_TIME,
        base_offset: int = 0,
        log_append_time: int = -1,
        producer: tuple[int, int, int] = (-1, -1, -1),
        is_transactional: bool = False,
        is_control: bool = False,
        leader_epoch: int = -1,
        delete_horizon_ms: int = -1,
        last_offset: int | None = None,
    ) -> None:
        self.records = records
        self.magic = magic
        self.codec = codec
        self.level = level
        self.timestamp_type = timestamp_type
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.producer = producer
        self.is_transactional = is_transactional
        self.is_control = is_control
        self.leader_epoch = leader_epoch
        self.delete_horizon_ms = delete_horizon_ms
        self.last_offset = last_offset

    def lines(self) -> list[str]:
        head = (
            self.magic,
            self.codec,
            "-" if self.level is None else self.level,
            _TIMESTAMP_TYPES[self.timestamp_type],
            self.base_offset,
            self.log_append_time,
            *self.producer,
            int(self.is_transactional),
            int(self.is_control),
            self.leader_epoch,
            self.delete_horizon_ms,
            "-" if self.last_offset is None else self.last_offset,
            len(self.records),
        )
        lines = [" ".join(map(str, head))]
        for record in self.records:
            fields = [str(record.offset), str(record.timestamp), to_text(record.key), to_text(record.value)]
            lines.append(" ".join(fields + headers_text(record)))
        return lines

    @classmethod
    def parse(cls, lines: Sequence[str]) -> BatchSpec:
        """Return the batch that ``lines`` describe."""
        head = lines[0].split(" ")
        records = []
        for line in lines[1:]:
            fields = line.split(" ")
            key, value, *rest = (from_text(text) for text in fields[2:])
            headers = tuple(((name or b"").decode(), data) for name, data in zip(rest[::2], rest[1::2], strict=True))
            records.append(Record(int(fields[0]), int(fields[1]), key, value, headers))
        return cls(
            records,
            magic=int(head[0]),
            codec=head[1],
            level=None if head[2] == "-" else int(head[2]),
            timestamp_type=next(number for number, name in _TIMESTAMP_TYPES.items() if name == head[3]),
            base_offset=int(head[4]),
            log_append_time=int(head[5]),
            producer=(int(head[6]), int(head[7]), int(head[8])),
            is_transactional=head[9] == "1",
            is_control=head[10] == "1",
            leader_epoch=int(head[11]),
            delete_horizon_ms=int(head[12]),
            last_offset=None if head[13] == "-" else int(head[13]),
        )

    def builder(self) -> MemoryRecordsBuilder:
        """Return our builder with all records appended."""
        builder = MemoryRecordsBuilder(
            magic=self.magic,
            compression=Compression.of(self.codec, self.level),
            timestamp_type=self.timestamp_type,
            base_offset=self.base_offset,
            log_append_time=self.log_append_time,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.producer[2],
            is_transactional=self.is_transactional,
            is_control_batch=self.is_control,
            partition_leader_epoch=self.leader_epoch,
            delete_horizon_ms=self.delete_horizon_ms,
        )
        for record in self.records:
            if self.is_control:
                builder.append_control_record(
                    record.timestamp, ControlRecordType.parse(record.key), record.value or b""
                )
            else:
                builder.append_with_offset(*record)
        if self.last_offset is not None:
            builder.override_last_offset(self.last_offset)
        return builder

    def expected(self) -> list[Record]:
        """Return the records as a reader must return them."""
        if self.magic == 0:
            return [record._replace(timestamp=-1) for record in self.records]
        if self.timestamp_type == LOG_APPEND_TIME:
            return [record._replace(timestamp=self.log_append_time) for record in self.records]
        return list(self.records)

    def __repr__(self) -> str:
        return f"BatchSpec({self.lines()[0]})"


_NAMES = ("", "h", "trace-id", "grüße", "鍵" * 30)


def random_records(
    rng: random.Random, count: int, base_offset: int, has_headers: bool, has_gaps: bool, value_size: int = 100
) -> list[Record]:
    records = []
    offset = base_offset
    timestamp = 1_700_000_000_000 + rng.randrange(1000)
    for _ in range(count):
        if has_gaps:
            offset += rng.choice((0, 0, 1, 70, 9000))
        key = rng.choice((None, b"", b"k", rng.randbytes(rng.randrange(70))))
        text = b"the quick brown fox " * (value_size // 20)
        value = rng.choice((None, b"", rng.randbytes(rng.randrange(value_size)), text[: rng.randrange(value_size)]))
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if has_headers and rng.random() < 0.5:
            headers = tuple(
                (rng.choice(_NAMES), rng.choice((None, b"", rng.randbytes(rng.randrange(30)))))
                for _ in range(rng.randrange(5))
            )
        records.append(Record(offset, timestamp, key, value, headers))
        offset += 1
        timestamp += rng.choice((-40, 0, 0, 1, 90, 20_000, 3_000_000_000))
        timestamp = max(timestamp, 0)
    return records


def control_spec(control_type: ControlRecordType, codec: str = "none") -> BatchSpec:
    is_marker = control_type in (ControlRecordType.COMMIT, ControlRecordType.ABORT)
    value = EndTransactionMarker(control_type, 7).serialize_value() if is_marker else b"\x00\x00\x01\x02"
    return BatchSpec(
        [Record(50, 1_700_000_000_000, control_type.record_key(), value)],
        base_offset=50,
        codec=codec,
        producer=(4000, 3, -1) if is_marker else (-1, -1, -1),
        is_transactional=is_marker,
        is_control=True,
        leader_epoch=9,
    )


def all_specs() -> list[BatchSpec]:
    """Return all formats with all codecs and timestamp types, then the features of v2. Each call returns the same."""
    rng = random.Random(20260101)
    specs = []
    for magic in (0, 1, 2):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            if magic < 2 and codec == "zstd":
                continue
            for timestamp_type in (CREATE_TIME, LOG_APPEND_TIME) if magic else (NO_TIMESTAMP_TYPE,):
                base_offset = rng.choice((0, 1, 1 << 40))
                # An uncompressed old message is a batch of its own.
                count = 1 if magic < 2 and codec == "none" else 12
                specs.append(
                    BatchSpec(
                        random_records(rng, count, base_offset, magic == 2, magic == 2),
                        magic=magic,
                        codec=codec,
                        timestamp_type=timestamp_type,
                        base_offset=base_offset,
                        log_append_time=1_700_000_500_000 if timestamp_type == LOG_APPEND_TIME else -1,
                    )
                )
    for codec, levels in (("gzip", (-1, 1, 9)), ("lz4", (1, 2, 9, 12, 17)), ("zstd", (-131072, -1, 3, 19))):
        specs += [
            BatchSpec(random_records(rng, 6, 5, True, False), codec=codec, level=level, base_offset=5)
            for level in levels
        ]
    for producer in ((0, 0, 0), (1 << 62, 32767, 77), (5, 1, (1 << 31) - 2)):
        specs += [
            BatchSpec(
                random_records(rng, 4, 1000, True, False),
                base_offset=1000,
                producer=producer,
                is_transactional=is_transactional,
                leader_epoch=rng.choice((0, 12)),
            )
            for is_transactional in (False, True)
        ]
    specs += [control_spec(control_type) for control_type in ControlRecordType if control_type >= 0]
    specs.append(BatchSpec(random_records(rng, 3, 10, False, True), base_offset=10, last_offset=40_000, codec="lz4"))
    specs.append(
        BatchSpec(random_records(rng, 3, 10, False, False), base_offset=10, delete_horizon_ms=1_800_000_000_000)
    )
    specs.append(BatchSpec([Record(3, -1, b"k", b"v")], base_offset=3))
    # More than one block of every codec, and three-byte offset deltas.
    big = [Record(i, 1_700_000_000_000 + i, None, rng.randbytes(8) * 4) for i in range(9000)]
    specs += [BatchSpec(big, codec=codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")]
    specs.append(BatchSpec([Record(0, 5, b"k" * 9000, rng.randbytes(200_000))], codec="snappy"))
    specs.append(BatchSpec([Record(0, 5, b"k" * 9000, rng.randbytes(200_000))], codec="lz4"))
    return specs


def build_with_java(specs: Sequence[BatchSpec]) -> list[list[str]]:
    """Return Java's results for each spec.

    They are its bytes, uncompressed size, largest timestamp and its offset, and the upper bound per record.
    """
    text = "\n".join(line for spec in specs for line in spec.lines())
    return [line.split() for line in run_java(JAVA, "build", stdin=text.encode()).decode().splitlines()]


def read_with_java(batches: Sequence[bytes]) -> list[list[str]]:
    """Return Java's description of each buffer: a line for every batch and record. Fails on a wrong CRC."""
    text = "\n".join(batch.hex() for batch in batches)
    described: list[list[str]] = [[]]
    for line in run_java(JAVA, "read", stdin=text.encode()).decode().splitlines():
        if line == "end":
            described.append([])
        else:
            described[-1].append(line)
    return described[:-1]


def compact_with_java(buffer: bytes, keep: str) -> bytes:
    data = from_text(run_java(JAVA, "compact", stdin=f"{to_text(buffer)} {keep}".encode()).decode().strip())
    return data or b""


def codec_of(spec: BatchSpec) -> CompressionType:
    return CompressionType.for_name(spec.codec)


def read_vectors() -> list[tuple[BatchSpec, bytes]]:
    """Return the batches captured from Java."""
    vectors = []
    lines = iter(VECTORS.read_text().splitlines())
    for head in lines:
        spec = BatchSpec.parse([head, *(next(lines) for _ in range(int(head.rsplit(" ", 1)[1])))])
        vectors.append((spec, from_text(next(lines)) or b""))
    return vectors


if __name__ == "__main__":
    small = [spec for spec in all_specs() if sum(len(line) for line in spec.lines()) < 5_000]
    with VECTORS.open("w") as out:
        for spec, answer in zip(small, build_with_java(small), strict=True):
            out.write("\n".join((*spec.lines(), answer[0])) + "\n")
