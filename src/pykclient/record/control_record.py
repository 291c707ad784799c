"""Records that brokers write for clients: ends of transactions, leader changes (Java: ControlRecordType).

Keys and values start with their version; a later version than ours only adds to the end.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.record.record_batch import Buffer, Record

_KEY = Struct(">hh")
_END_TXN_MARKER = Struct(">hi")
_CURRENT_VERSION = 0


class ControlRecordType(IntEnum):
    """The type of a control record. Clients skip ``UNKNOWN`` types, which newer brokers may write."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @classmethod
    def from_type_id(cls, type_id: int) -> ControlRecordType:
        return cls(type_id) if 0 <= type_id <= cls.KRAFT_VOTERS else cls.UNKNOWN

    @classmethod
    def parse(cls, key: Buffer | None) -> ControlRecordType:
        """Return the type in a control record's key.

        Raises:
            CorruptRecordError: the key is not that of a control record.
        """
        if key is None or len(key) < _KEY.size:
            size = "no" if key is None else f"a {len(key)}-byte"
            raise CorruptRecordError(f"a control record has {size} key where {_KEY.size} bytes should be")
        version, type_id = _KEY.unpack_from(key)
        if version < 0:
            raise CorruptRecordError(f"a control record's key cannot have version {version}")
        return cls.from_type_id(type_id)

    def record_key(self) -> bytes:
        """Return the key of a record of this type.

        Raises:
            IllegalArgumentError: for ``UNKNOWN``.
        """
        if self is ControlRecordType.UNKNOWN:
            raise IllegalArgumentError("a control record of unknown type cannot be written")
        return _KEY.pack(_CURRENT_VERSION, self)


class EndTransactionMarker:
    """The end of a transaction: ``COMMIT`` or ``ABORT``, and the epoch of the coordinator that wrote it.

    Thread: any.
    """

    __slots__ = ("control_type", "coordinator_epoch")

    def __init__(self, control_type: ControlRecordType, coordinator_epoch: int) -> None:
        """Create a marker.

        Raises:
            IllegalArgumentError: the type is another one.
        """
        if control_type not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            raise IllegalArgumentError(f"{control_type.name} does not end a transaction")
        self.control_type = control_type
        self.coordinator_epoch = coordinator_epoch

    @classmethod
    def deserialize(cls, record: Record) -> EndTransactionMarker:
        """Decode a control record.

        Raises:
            CorruptRecordError: it is not a transaction marker.
        """
        control_type = ControlRecordType.parse(record.key)
        if control_type not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            raise CorruptRecordError(f"a control record of type {control_type.name} does not end a transaction")
        value = record.value
        if value is None or len(value) < _END_TXN_MARKER.size:
            raise CorruptRecordError("the end of a transaction has no coordinator epoch")
        version, coordinator_epoch = _END_TXN_MARKER.unpack_from(value)
        if version < 0:
            raise CorruptRecordError(f"the end of a transaction cannot have version {version}")
        return cls(control_type, coordinator_epoch)

    def serialize_value(self) -> bytes:
        return _END_TXN_MARKER.pack(_CURRENT_VERSION, self.coordinator_epoch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EndTransactionMarker) and (self.control_type, self.coordinator_epoch) == (
            other.control_type,
            other.coordinator_epoch,
        )

    def __hash__(self) -> int:
        return hash((self.control_type, self.coordinator_epoch))

    def __repr__(self) -> str:
        return f"EndTransactionMarker({self.control_type.name}, coordinator_epoch={self.coordinator_epoch})"
