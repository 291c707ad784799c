"""The arguments and results of a log.

Java: AppendOrigin, FetchIsolation, LogAppendInfo, FetchDataInfo, AbortedTxn and others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pykclient.errors import KafkaError
from pykclient.record.compression_type import CompressionType
from pykclient.record.record_batch import MAX_INT32, NO_TIMESTAMP, Buffer

UNKNOWN_OFFSET: Final = -1

# Special values in place of a timestamp (Java: ListOffsetsRequest).
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6


class AppendOrigin:
    """The origin of an append.

    Only a client's batches have their sequence numbers checked; only a follower's keep their offsets.
    """

    CLIENT: Final = "client"
    COORDINATOR: Final = "coordinator"
    REPLICATION: Final = "replication"


class FetchIsolation:
    """The bound of a read: the end for followers, the high watermark or the last stable offset for consumers."""

    LOG_END: Final = "log end"
    HIGH_WATERMARK: Final = "high watermark"
    TXN_COMMITTED: Final = "last stable offset"


class UnexpectedAppendOffsetError(KafkaError):
    """A leader sent records that end before the end of the follower's log: ``first_offset`` to ``last_offset``."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetsOutOfOrderError(KafkaError):
    """A leader sent batches whose offsets do not increase."""


class AbortedTxn(NamedTuple):
    """A transaction whose records must not be returned with read_committed.

    ``last_stable_offset`` is its value after the marker at ``last_offset``: a reader that stays below it needs no later
    entries.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TimestampAndOffset(NamedTuple):
    """A record's timestamp (ms), its offset, and the epoch of the leader that wrote it (None if unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int | None


class OffsetAndEpoch(NamedTuple):
    """An offset and its leader epoch."""

    offset: int
    leader_epoch: int


class LogAppendInfo:
    """The result of an append. ``log_append_time`` is -1 unless the records have the broker's time.

    If the log already had the batch, offsets and time are those of the first append, and ``duplicate`` is set. Thread:
    loop.
    """

    __slots__ = (
        "duplicate",
        "first_offset",
        "last_leader_epoch",
        "last_offset",
        "last_offset_of_first_batch",
        "log_append_time",
        "log_start_offset",
        "max_timestamp",
        "source_compression",
        "valid_bytes",
    )

    def __init__(self, log_start_offset: int) -> None:
        self.first_offset = UNKNOWN_OFFSET
        self.last_offset = -1
        self.last_offset_of_first_batch = -1
        self.last_leader_epoch: int | None = None
        self.max_timestamp = NO_TIMESTAMP
        self.log_append_time = NO_TIMESTAMP
        self.log_start_offset = log_start_offset
        self.source_compression = CompressionType.NONE
        self.valid_bytes = 0
        self.duplicate = False

    @property
    def first_or_last_offset_of_first_batch(self) -> int:
        """Return the first offset. In old formats it is the last offset of the first batch, as they have no other."""
        return self.first_offset if self.first_offset != UNKNOWN_OFFSET else self.last_offset_of_first_batch

    def roll_offset(self) -> int:
        """Return the base offset of a segment that begins with these records."""
        return self.first_offset if self.first_offset != UNKNOWN_OFFSET else self.last_offset - MAX_INT32

    def __repr__(self) -> str:
        return (
            f"LogAppendInfo(offsets={self.first_offset}..{self.last_offset}, max_timestamp={self.max_timestamp}, "
            f"log_append_time={self.log_append_time}, bytes={self.valid_bytes}, duplicate={self.duplicate})"
        )


class FetchDataInfo:
    """The result of a read: whole batches in order, as views of the log.

    ``first_entry_incomplete``: the first batch was larger than requested, and ``records`` has only its beginning.
    ``aborted_transactions`` is None unless the last stable offset was the bound. ``next_offset`` is the offset after
    the last batch read. Thread: loop; the views never change, whatever happens to the log.
    """

    __slots__ = (
        "aborted_transactions",
        "fetch_offset",
        "first_entry_incomplete",
        "next_offset",
        "records",
        "size_in_bytes",
    )

    def __init__(
        self,
        fetch_offset: int,
        records: Sequence[Buffer] = (),
        size_in_bytes: int = 0,
        *,
        next_offset: int | None = None,
        first_entry_incomplete: bool = False,
        aborted_transactions: list[AbortedTxn] | None = None,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.records = records
        self.size_in_bytes = size_in_bytes
        self.next_offset = fetch_offset if next_offset is None else next_offset
        self.first_entry_incomplete = first_entry_incomplete
        self.aborted_transactions = aborted_transactions

    def __repr__(self) -> str:
        return f"FetchDataInfo(from={self.fetch_offset}, to={self.next_offset}, size={self.size_in_bytes})"


class ProducerIdAndEpoch(NamedTuple):
    """A producer's identity."""

    producer_id: int
    epoch: int
