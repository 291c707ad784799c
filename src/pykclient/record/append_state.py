"""The fields of a batch's builder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.implementation import use_compiled

if TYPE_CHECKING:
    from pykclient.record.compression import Compression
    from pykclient.record.record_batch import Buffer
    from pykclient.types import Headers


class AppendState:
    """The state of a MemoryRecordsBuilder, and how it takes a record. The compiled form stores numbers as C values."""

    __slots__ = (
        "_append_closed",
        "_base_timestamp",
        "_buffer",
        "_delete_horizon_ms",
        "_header_size",
        "_last_offset",
        "_lender",
        "_log_append_time",
        "_max_timestamp",
        "_max_uncompressed_size",
        "_offset_of_max_timestamp",
        "_partition_leader_epoch",
        "_position",
        "_records",
        "_room",
        "_size_factor",
        "_size_limit",
        "_timestamp_type",
        "_uncompressed_size",
        "aborted",
        "base_offset",
        "base_sequence",
        "compression",
        "compression_ratio",
        "is_closed",
        "is_control_batch",
        "is_transactional",
        "magic",
        "memory",
        "num_records",
        "producer_epoch",
        "producer_id",
        "write_limit",
    )
    _append_closed: bool
    _base_timestamp: int | None
    _buffer: bytearray
    _delete_horizon_ms: int
    _header_size: int
    _last_offset: int | None
    _log_append_time: int
    _max_timestamp: int
    _max_uncompressed_size: int
    _offset_of_max_timestamp: int
    _partition_leader_epoch: int
    _position: int
    _records: bytearray
    _room: int
    _size_factor: float
    _size_limit: int
    _timestamp_type: int
    _uncompressed_size: int
    aborted: bool
    base_offset: int
    base_sequence: int
    compression: Compression
    compression_ratio: float
    is_closed: bool
    is_control_batch: bool
    is_transactional: bool
    magic: int
    num_records: int
    producer_epoch: int
    producer_id: int
    write_limit: int

    def try_append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
        """Append a record if the batch has room for it.

        The record is encoded once, and its real size decides. Return its size in bytes before compression, or 0 if the
        batch has no room.
        """
        return self._try_append(timestamp_ms, key, value, headers)

    def _try_append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        raise NotImplementedError


use_compiled(__name__)
