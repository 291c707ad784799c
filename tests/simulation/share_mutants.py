"""Deliberate faults of share groups, which their simulation must catch.

python -m tests.simulation.share_mutants [--seeds 100] [NAME ...]
"""

from __future__ import annotations

import sys

from tests.consumer.share.mutants import MUTANTS as SHARE_CONSUMER_MUTANTS
from tests.support.mutants import Mutant, simulate
from tests.testing.share.mutants import MUTANTS as SHARE_MUTANTS

_SECONDS = 900

_PARTITION = "testing/share/share_partition"
_STATE = "testing/share/in_flight_records"
_RECORDS = "testing/share/in_flight_records"

#: Faults of brokers and consumers that their own tests catch, too. Others need old requests or exact offsets: only unit
#: tests have those.
_OF_BROKERS = (
    "the delivery count is not raised",
    "the start offset is one too far",
    "a lock never expires",
    "an acknowledged record is delivered again by a new leader",
    "an acknowledgement is answered before it is written",
    "a new coordinator forgets changes since the last snapshot",
    "records that were acquired are missing after a change of leaders",
    "members acknowledge what others have acquired",
    "a record is acknowledged again after that is written",
    "the leader epoch is not checked",
    "records of aborted transactions are delivered",
    "the records of a closed session stay acquired",
)
_OF_CONSUMERS = (
    "close accepts the records of the last poll",
    "a renewed record is not returned again",
    "the session of a broker goes on after it has lost it",
    "the epoch of a session is not raised",
)

MUTANTS = (
    *(mutant for mutant in SHARE_MUTANTS if mutant.name in _OF_BROKERS),
    *(mutant for mutant in SHARE_CONSUMER_MUTANTS if mutant.name in _OF_CONSUMERS),
    Mutant(
        "a renewed lock ends when it would have ended",
        _PARTITION,
        "        state.hold(self._new_lock(first_offset, last_offset))\n",
        "        pass\n",
    ),
    Mutant(
        "a lock ends early",
        _PARTITION,
        "            self._config.record_lock_duration_ms, self._on_lock_timeout,",
        "            self._config.record_lock_duration_ms // 2, self._on_lock_timeout,",
    ),
    Mutant(
        "a record is given up one delivery too early",
        _STATE,
        "        if state is RecordState.AVAILABLE and self.delivery_count >= max_delivery_count:\n",
        "        if state is RecordState.AVAILABLE and self.delivery_count >= max_delivery_count - 1:\n",
    ),
    Mutant(
        "a record is given up one delivery too late",
        _STATE,
        "        if state is RecordState.AVAILABLE and self.delivery_count >= max_delivery_count:\n",
        "        if state is RecordState.AVAILABLE and self.delivery_count > max_delivery_count:\n",
    ),
    Mutant(
        "a released record is lost",
        _PARTITION,
        "    2: RecordState.AVAILABLE,\n",
        "    2: RecordState.ARCHIVED,\n",
    ),
    Mutant(
        "a rejected record is available again",
        _PARTITION,
        "    3: RecordState.ARCHIVED,\n",
        "    3: RecordState.AVAILABLE,\n",
    ),
    Mutant(
        "the delivery count of a released record is not written",
        _PARTITION,
        "                updates.append(_Update(state, StateBatch(first, last, new, state.delivery_count)))\n\n"
        "    def _renew",
        "                updates.append(_Update(state, StateBatch(first, last, new, 0)))\n\n    def _renew",
    ),
    Mutant(
        "what could not be written takes effect",
        _PARTITION,
        "                self._roll_back(updates)\n                then(error)\n                return\n",
        "                then(error)\n",
    ),
    Mutant(
        "a record whose lock expired while its acknowledgement was written stays acquired",
        _STATE,
        "        if self.lock is not None and self.lock.expired:\n",
        "        if False:\n",
    ),
    Mutant(
        "a lock that expires takes back a record whose acknowledgement is being written",
        _PARTITION,
        "                if state.lock is lock and state.pending is None:\n",
        "                if state.lock is lock:\n",
    ),
    Mutant(
        "a lock takes back records that another one protects now",
        _PARTITION,
        "                if state.lock is lock and state.pending is None:\n",
        "                if state.lock is not None and state.pending is None:\n",
    ),
    Mutant(
        "a new leader begins at the start",
        _PARTITION,
        "        self.records.load(start_offset, list(state.batches))\n",
        "        self.records.load(start_offset, [])\n",
    ),
    Mutant(
        "a session that ends keeps its connection's records",
        "testing/share/share_partition_manager",
        "            self.release_session(session, lambda _: None)\n",
        "            pass\n",
    ),
    Mutant(
        "a former leader goes on",
        "testing/share/share_partition_manager",
        "            self._forget(key)\n\n    def _forget",
        "            pass\n\n    def _forget",
    ),
)


if __name__ == "__main__":
    sys.exit(simulate(MUTANTS, "tests.simulation.share_mutants", "tests.simulation.share_groups", _SECONDS))
