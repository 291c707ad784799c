"""Deliberate faults of two-phase commits, which the simulation of publishers must catch.

python -m tests.simulation.two_phase_mutants [--seeds 100] [NAME ...]
"""

from __future__ import annotations

import sys

from tests.support.mutants import Mutant, simulate

_SECONDS = 900

_CALLS = "producer/transactions/transactional_calls"
_MANAGER = "producer/transactions/transaction_manager"

MUTANTS = (
    Mutant(
        "a prepare does not wait for records in flight",
        _MANAGER,
        "        if current == state.PREPARING_TRANSACTION and is_flushed:\n",
        "        if current == state.PREPARING_TRANSACTION:\n",
    ),
    Mutant(
        "any state commits",
        _CALLS,
        "        committed = self._prepared_state == prepared_state\n",
        "        committed = True\n",
    ),
    Mutant(
        "any state aborts",
        _CALLS,
        "        committed = self._prepared_state == prepared_state\n",
        "        committed = False\n",
    ),
    Mutant(
        "two prepared transactions have the same state",
        _MANAGER,
        "            if not (self._is_started or self._prepared_state.has_transaction()):\n",
        "            if not self._is_started:\n",
    ),
    Mutant(
        "what is prepared is not kept",
        _MANAGER,
        "                two_phases = steps.KEEP_PREPARED if keeps_prepared else steps.ABORT_PREPARED\n",
        "                two_phases = steps.ABORT_PREPARED\n",
    ),
    Mutant(
        "the state of the new producer is taken for that of the prepared transaction",
        _MANAGER,
        "                self._prepared_state = ongoing\n",
        "                self._prepared_state = PreparedTxnState.of(body.producer_id, body.producer_epoch)\n",
    ),
    Mutant(
        "the producer that has prepared a transaction may end it although another one has started",
        "testing/transaction/transaction_metadata",
        "        if self.next_producer_epoch != NO_PRODUCER_EPOCH:\n            return ProducerIdAndEpoch(self.next_",
        "        if False:\n            return ProducerIdAndEpoch(self.next_",
    ),
)


if __name__ == "__main__":
    sys.exit(simulate(MUTANTS, "tests.simulation.two_phase_mutants", "tests.simulation.two_phase_commit", _SECONDS))
