"""Deliberate faults of share groups, each of which this package's tests must catch.

``python -m tests.testing.share.mutants`` puts one after another into a copy of the sources and runs those tests.
"""

from __future__ import annotations

import sys

from tests.support.mutants import Mutant, escaped

_TESTS = "tests/testing/share"

_PARTITION = "testing/share/share_partition"
_RECORDS = "testing/share/in_flight_records"
_COORDINATOR = "testing/share/share_coordinator"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a lock never expires",
        _PARTITION,
        "        lock.expired = True\n        written = []\n",
        "        lock.expired = True\n        written = []\n        return\n",
    ),
    Mutant(
        "the delivery count is not raised",
        "testing/share/in_flight_records",
        "        self.delivery_count += 1\n",
        "        self.delivery_count = max(self.delivery_count, 1)\n",
    ),
    Mutant(
        "an acknowledged record is delivered again by a new leader",
        _RECORDS,
        "InFlightState(RecordState(state), delivery_count)",
        "InFlightState(RecordState.AVAILABLE, delivery_count)",
    ),
    Mutant(
        "the start offset is one too far",
        _RECORDS,
        "            self.start_offset = max(self.start_offset, complete + 1)\n",
        "            self.start_offset = max(self.start_offset, complete + 2)\n",
    ),
    Mutant(
        "the leader epoch is not checked",
        _COORDINATOR,
        "    if leader_epoch != NO_EPOCH and leader_epoch < entry.state.leader_epoch:\n",
        "    if False:\n",
    ),
    Mutant(
        "the state epoch is not checked",
        _COORDINATOR,
        "    if state_epoch != NO_EPOCH and state_epoch < entry.state.state_epoch:\n",
        "    if False:\n",
    ),
    Mutant(
        "an acknowledgement is answered before it is written",
        _PARTITION,
        "        self._write([update.batch for update in updates], written)\n",
        "        written(None)\n",
    ),
    Mutant(
        "a new coordinator forgets changes since the last snapshot",
        _COORDINATOR,
        "    elif entry is not None:\n        entry.apply(change, offset, now_ms)\n",
        "    elif entry is not None and isinstance(change, ShareState):\n        entry.apply(change, offset, now_ms)\n",
    ),
    Mutant(
        "records after a snapshot that is still needed are deleted",
        _COORDINATOR,
        "            offset = min((entry.snapshot_offset for entry in entries.values()), default=0)\n",
        "            offset = max((entry.snapshot_offset for entry in entries.values()), default=0)\n",
    ),
    Mutant(
        "members acknowledge what others have acquired",
        _PARTITION,
        "    if state.member_id != member_id:\n",
        "    if False:\n",
    ),
    Mutant(
        "a record is acknowledged again while that is being written",
        _PARTITION,
        "    if state.pending is not None:\n",
        "    if False:\n",
    ),
    Mutant(
        "a record is acknowledged again after that is written",
        _PARTITION,
        '        raise errors.InvalidRecordStateError(f"The {what} cannot be acknowledged. '
        'The {what} is not acquired.")\n',
        "        return\n",
    ),
    Mutant(
        "records that were acquired are missing after a change of leaders",
        _RECORDS,
        "            if self._gap_start_offset == _NO_GAP and first > next_offset:\n",
        "            if False:\n",
    ),
    Mutant(
        "records of aborted transactions are delivered",
        "testing/share/share_partition",
        "        elif batch.is_transactional and batch.producer_id in producer_ids:\n",
        "        elif False:\n",
    ),
    Mutant(
        "the records of a closed session stay acquired",
        "testing/share/share_partition_manager",
        "                share_partition.release_acquired_records(session.key.member_id, self._fencing(key, done))\n",
        "                done(None)\n",
    ),
)


def main() -> int:
    missed = escaped(MUTANTS, _TESTS)
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} faults are caught")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
