from __future__ import annotations

import pytest

from pykclient.errors import CorruptRecordError, IllegalArgumentError
from pykclient.record import ControlRecordType, EndTransactionMarker, Record


@pytest.mark.parametrize("control_type", [each for each in ControlRecordType if each >= 0])
def test_control_record_types_round_trip(control_type: ControlRecordType) -> None:
    key = control_type.record_key()
    assert key == b"\0\0" + control_type.to_bytes(2, "big")
    assert ControlRecordType.parse(key) is control_type
    # A later version may append fields.
    assert ControlRecordType.parse(b"\0\5" + key[2:] + b"more") is control_type


@pytest.mark.parametrize("type_id", [7, 1000, 0x7FFF])
def test_unknown_types_are_parsed_as_unknown(type_id: int) -> None:
    assert ControlRecordType.parse(b"\0\0" + type_id.to_bytes(2, "big")) is ControlRecordType.UNKNOWN
    with pytest.raises(IllegalArgumentError):
        ControlRecordType.UNKNOWN.record_key()


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_invalid_control_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        ControlRecordType.parse(key)


@pytest.mark.parametrize("control_type", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_end_transaction_markers_round_trip(control_type: ControlRecordType) -> None:
    marker = EndTransactionMarker(control_type, 19)
    record = Record(0, 0, control_type.record_key(), marker.serialize_value())
    assert EndTransactionMarker.deserialize(record) == marker
    assert EndTransactionMarker.deserialize(record._replace(value=b"\0\3\0\0\0\x13more")) == marker
    assert len({marker, EndTransactionMarker(control_type, 19), EndTransactionMarker(control_type, 20)}) == 2
    for value in (None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\0"):
        with pytest.raises(CorruptRecordError):
            EndTransactionMarker.deserialize(record._replace(value=value))


def test_other_types_do_not_end_a_transaction() -> None:
    with pytest.raises(IllegalArgumentError, match="LEADER_CHANGE does not end"):
        EndTransactionMarker(ControlRecordType.LEADER_CHANGE, 1)
    with pytest.raises(CorruptRecordError, match="LEADER_CHANGE does not end"):
        EndTransactionMarker.deserialize(Record(0, 0, ControlRecordType.LEADER_CHANGE.record_key(), b"\0" * 6))
