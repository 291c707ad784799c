"""Batches and logs for the tests of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykclient.record.compression import NO_COMPRESSION, Compression
from pykclient.record.control_record import ControlRecordType, EndTransactionMarker
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.record.record_batch import Record
from pykclient.testing.log.broker_disk import BrokerDisk
from pykclient.testing.log.log_cleaner import clean
from pykclient.testing.log.log_config import LogConfig
from pykclient.testing.log.log_segment import MemoryBudget
from pykclient.testing.log.log_types import AppendOrigin, FetchDataInfo, FetchIsolation
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.types import TopicPartition
from tests.support.mock_clock import MockClock

TP = TopicPartition("orders", 0)
#: The tests' wall clock time at their start.
NOW_MS = 1_700_000_000_000

KeyValue = tuple[bytes | None, bytes | None]


def batch(
    records: Sequence[KeyValue] = ((b"k", b"v"),),
    *,
    timestamps: Sequence[int] | None = None,
    compression: Compression = NO_COMPRESSION,
    base_offset: int = 0,
    epoch: int = -1,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """Return a batch; ``producer`` is id, epoch and base sequence."""
    builder = MemoryRecordsBuilder(
        compression=compression,
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=transactional,
    )
    for index, (key, value) in enumerate(records):
        builder.append(NOW_MS if timestamps is None else timestamps[index], key, value)
    return bytes(builder.build())


def values(count: int, size: int = 1) -> list[KeyValue]:
    return [(b"k", b"v" * size)] * count


def marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0, timestamp: int = NOW_MS
) -> bytes:
    """Return the control batch that ends a transaction."""
    builder = MemoryRecordsBuilder(
        producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control_batch=True
    )
    control_type = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    builder.append_end_txn_marker(timestamp, EndTransactionMarker(control_type, coordinator_epoch))
    return bytes(builder.build())


class LogBox:
    """A log, its disk and its clock."""

    def __init__(self, config: dict[str, Any] | None = None, *, memory_limit_bytes: int = 1 << 30) -> None:
        self.clock = MockClock(wall_ms=NOW_MS)
        self.budget = MemoryBudget(memory_limit_bytes)
        self.disk = BrokerDisk(self.budget, "broker 1")
        self.config = LogConfig(None, config)
        self.log = self.open()

    def open(self, log_start_offset: int = 0) -> UnifiedLog:
        """Open the log as a starting broker does."""
        directory = self.disk.directory(TP)
        self.log = UnifiedLog(directory, self.config, self.clock, log_start_offset=log_start_offset)
        return self.log

    def clean(self) -> int:
        """Compact the log now, and return the number of freed bytes."""
        return clean(self.log, self.clock.wall_ms())

    def append(self, data: bytes | None = None, epoch: int = 0, origin: str = AppendOrigin.CLIENT) -> range:
        """Append as leader of ``epoch``, replicate everything, and return the offsets."""
        info = self.log.append_as_leader(batch() if data is None else data, epoch, origin)
        self.log.update_high_watermark(self.log.log_end_offset)
        return range(info.first_offset, info.last_offset + 1)

    def append_keys(self, *keyed: tuple[str, str | None]) -> range:
        """Append records with these keys and values in one batch, and return the offsets."""
        return self.append(
            batch(
                [(key.encode(), None if value is None else value.encode()) for key, value in keyed],
                timestamps=[self.clock.wall_ms()] * len(keyed),
            )
        )

    def records(self, isolation: str = FetchIsolation.LOG_END) -> list[Record]:
        return [record for data in read_all(self.log, isolation) for record in MemoryRecords(data).records()]


def read_all(log: UnifiedLog, isolation: str = FetchIsolation.LOG_END, max_length: int = 1 << 20) -> list[bytes]:
    """Return the data of all reads from the log's start to its end."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while True:
        info = log.read(offset, max_length, isolation, True)
        if not info.records:
            return found
        found.append(content(info))
        offset = info.next_offset


def content(info: FetchDataInfo) -> bytes:
    data = b"".join(info.records)
    assert len(data) == info.size_in_bytes
    return data
