"""The fields of a batch's builder that each record changes."""

from __future__ import annotations

from pykclient.implementation import use_compiled


class AppendState:
    """The state of a builder that changes with each record, or that appending needs.

    The compiled form stores the numbers as C values.
    """

    __slots__ = (
        "_append_closed",
        "_base_timestamp",
        "_last_offset",
        "_max_timestamp",
        "_position",
        "_records",
        "_room",
        "_size_factor",
        "_size_limit",
        "_uncompressed_size",
        "base_offset",
        "is_control_batch",
        "magic",
        "num_records",
    )
    _append_closed: bool
    _base_timestamp: int | None
    _last_offset: int | None
    _max_timestamp: int
    _position: int
    _records: bytearray
    _room: int
    _size_factor: float
    _size_limit: int
    _uncompressed_size: int
    base_offset: int
    is_control_batch: bool
    magic: int
    num_records: int


use_compiled(__name__)
