"""The states of records and share partitions: each edge of the tables, and no other."""

from __future__ import annotations

from itertools import product

import pytest

from pykclient.errors import IllegalStateError, check_move
from pykclient.testing.share.in_flight_records import (
    SHARE_PARTITION_TRANSITIONS,
    RecordState,
    SharePartitionState,
    move_record,
)

_RECORDS = {
    ("AVAILABLE", "ACQUIRED"),
    ("AVAILABLE", "ARCHIVED"),
    ("ACQUIRED", "AVAILABLE"),
    ("ACQUIRED", "ACKNOWLEDGED"),
    ("ACQUIRED", "ARCHIVED"),
}
_SHARE_PARTITIONS = {
    ("EMPTY", "INITIALIZING"),
    ("EMPTY", "FENCED"),
    ("INITIALIZING", "ACTIVE"),
    ("INITIALIZING", "FAILED"),
    ("INITIALIZING", "FENCED"),
    ("ACTIVE", "FENCED"),
    ("FAILED", "FENCED"),
}


@pytest.mark.parametrize(("state", "to"), [*product(RecordState, RecordState)])
def test_only_listed_record_transitions_are_allowed(state: RecordState, to: RecordState) -> None:
    if (state.name, to.name) in _RECORDS:
        assert move_record(state, to) is to
    else:
        with pytest.raises(IllegalStateError, match=f"from {state.name} to {to.name}"):
            move_record(state, to)


@pytest.mark.parametrize(("state", "to"), [*product(SharePartitionState, SharePartitionState)])
def test_only_listed_partition_transitions_are_allowed(state: SharePartitionState, to: SharePartitionState) -> None:
    if (state.name, to.name) in _SHARE_PARTITIONS:
        check_move("a share partition", SHARE_PARTITION_TRANSITIONS, state, to)
    else:
        with pytest.raises(IllegalStateError, match=f"from {state} to {to}"):
            check_move("a share partition", SHARE_PARTITION_TRANSITIONS, state, to)
