"""The arguments and results of a log.

Java: AppendOrigin, FetchIsolation, LogAppendInfo, FetchDataInfo, AbortedTxn and others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pykclient.errors import KafkaError
from pykclient.record.compression import CompressionType
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


@dataclass(slots=True)
class LogAppendInfo:
    """The result of an append. ``log_append_time`` is -1 unless the records have the broker's time.

    If the log already had the batch, offsets and time are those of the first append, and ``duplicate`` is set. Thread:
    loop.
    """

    log_start_offset: int
    first_offset: int = UNKNOWN_OFFSET
    last_offset: int = -1
    last_offset_of_first_batch: int = -1
    last_leader_epoch: int | None = None
    max_timestamp: int = NO_TIMESTAMP
    log_append_time: int = NO_TIMESTAMP
    source_compression: CompressionType = CompressionType.NONE
    valid_bytes: int = 0
    duplicate: bool = False

    @property
    def first_or_last_offset_of_first_batch(self) -> int:
        """Return the first offset. In old formats it is the last offset of the first batch, as they have no other."""
        return self.first_offset if self.first_offset != UNKNOWN_OFFSET else self.last_offset_of_first_batch

    def roll_offset(self) -> int:
        """Return the base offset of a segment that begins with these records."""
        return self.first_offset if self.first_offset != UNKNOWN_OFFSET else self.last_offset - MAX_INT32


class FetchDataInfo(NamedTuple):
    """The result of a read: whole batches in order, as views of the log.

    ``first_entry_incomplete``: the first batch was larger than requested, and ``records`` has only its beginning.
    ``aborted_transactions`` is None unless the last stable offset was the bound. ``next_offset`` is the offset after
    the last batch read. The views never change, whatever happens to the log.
    """

    fetch_offset: int
    next_offset: int
    records: Sequence[Buffer] = ()
    size_in_bytes: int = 0
    first_entry_incomplete: bool = False
    aborted_transactions: list[AbortedTxn] | None = None


class ProducerIdAndEpoch(NamedTuple):
    """A producer's identity."""

    producer_id: int
    epoch: int
