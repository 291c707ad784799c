"""Deliberate faults of transactions, each of which the tests in ``_TESTS`` must catch.

``python -m tests.producer.transaction_mutants`` puts one after another into a copy of the sources and runs those tests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.mutants import Mutant, environment_of, with_fault

_TESTS = ("tests/producer/test_transactions.py", "tests/producer/test_two_phase_commit.py")
_LIMIT_S = 300

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a commit does not wait for records in flight",
        "producer/transactions/transaction_manager",
        "        if current in state.COMPLETING and is_flushed:\n",
        "        if current in state.COMPLETING:\n",
    ),
    Mutant(
        "a former coordinator that knows of no transaction is believed",
        "producer/transactions/transaction_manager",
        "        if self._end_refusals >= _END_RETRIES or self._too_long():\n",
        "        if True:\n",
    ),
    Mutant(
        "an abort commits",
        "producer/transactions/transaction_manager",
        "            committed = current == state.COMMITTING_TRANSACTION\n",
        "            committed = True\n",
    ),
    Mutant(
        "a commit aborts",
        "producer/transactions/transaction_manager",
        "            committed = current == state.COMMITTING_TRANSACTION\n",
        "            committed = False\n",
    ),
    Mutant(
        "the epoch of the response is ignored",
        "producer/transactions/transaction_manager",
        "            if body is not None and body.producer_id >= 0:\n",
        "            if False:\n",
    ),
    Mutant(
        "no epoch is requested after a failed batch",
        "producer/transactions/transaction_manager",
        "        self._needs_epoch_bump = True\n        if not self._coordinator_bumps_epochs",
        "        if not self._coordinator_bumps_epochs",
    ),
    Mutant(
        "a failed batch does not matter to the transaction",
        "producer/transactions/transaction_manager",
        "            self._note_failed_batch(batch, error)\n",
        "            pass\n",
    ),
    Mutant(
        "records are sent to partitions that are not part of the transaction",
        "producer/transactions/transaction_manager",
        "        self.new_partitions.add(topic_partition)\n        return False\n",
        "        return True\n",
    ),
    Mutant(
        "partitions of the last transaction count as part of the next",
        "producer/transactions/transaction_manager",
        "            self._partitions_in_transaction.clear()\n",
        "            pass\n",
    ),
    Mutant(
        "groups of the last transaction count as part of the next",
        "producer/transactions/transaction_manager",
        "            self._groups_in_transaction.clear()\n",
        "            pass\n",
    ),
    Mutant(
        "offsets are dropped by a commit",
        "producer/transactions/transaction_manager",
        "            if self._offsets:\n                return self._offsets_step(self._offsets[0], producer)\n",
        "            if self._offsets and current == state.IN_TRANSACTION:\n"
        "                return self._offsets_step(self._offsets[0], producer)\n",
    ),
    Mutant(
        "a member that was left behind can commit offsets",
        "producer/transactions/transaction_steps",
        "            generation_id=self._group.generation_id,\n",
        "            generation_id=-1,\n",
    ),
    Mutant(
        "offsets are committed with the id of the group only",
        "producer/transactions/transaction_steps",
        "            generation_id=self._group.generation_id,\n"
        "            member_id=self._group.member_id,\n"
        "            group_instance_id=self._group.group_instance_id,\n",
        "",
    ),
    Mutant(
        "a fenced producer goes on",
        "producer/transactions/transaction_steps",
        "    (FENCED, (ProducerFencedError, InvalidProducerEpochError)),\n",
        "    (ABORTABLE, (ProducerFencedError, InvalidProducerEpochError)),\n",
    ),
    Mutant(
        "the coordinator is never looked up again",
        "producer/transactions/transaction_steps",
        "                self.forget(step)\n",
        "                pass\n",
    ),
    Mutant(
        "requests to coordinators are retried without backoff",
        "producer/transactions/transaction_steps",
        "        self.not_before_ms = now_ms + backoff_ms\n",
        "        self.not_before_ms = now_ms\n",
    ),
    Mutant(
        "the generation changes within a transaction",
        "producer/transactions/transaction_manager",
        "        if self._state == state.FATAL_ERROR:\n            return False\n        if topic_partition in",
        "        self._update_version()\n        if self._state == state.FATAL_ERROR:\n            return False\n"
        "        if topic_partition in",
    ),
    Mutant(
        "an upgrade needs no new epoch",
        "producer/transactions/transaction_manager",
        "                self._needs_epoch_bump = True\n            self._is_started = False\n",
        "                pass\n            self._is_started = False\n",
    ),
    Mutant(
        "a request without a response is no reason for a new epoch",
        "producer/transactions/transaction_manager",
        "        if response.disconnected and step.changes_transaction:\n",
        "        if False:\n",
    ),
    Mutant(
        "a commit fails because there is no new epoch after it",
        "producer/transactions/transaction_manager",
        "                self._pending.has_ended = True\n",
        "                pass\n",
    ),
    Mutant(
        "records join a transaction that ends",
        "producer/record_accumulator",
        "            manager.maybe_fail_with_error()\n",
        "            pass\n",
    ),
    Mutant(
        "an abort sends what was not sent",
        "producer/sender",
        "            self._register.abort_undrained(error)\n",
        "            pass\n",
    ),
    Mutant(
        "close leaves the transaction open",
        "producer/sender",
        "            or self._is_aborting_for_close(now_ms)\n",
        "",
    ),
    Mutant(
        "close waits for the end of a prepared transaction",
        "producer/transactions/transaction_manager",
        "        return self._state in state.ONGOING and (not self.is_prepared or self.has_calls_left)\n",
        "        return self._state in state.ONGOING\n",
    ),
    Mutant(
        "close does not wait for the commit of a prepared transaction",
        "producer/transactions/transaction_manager",
        "        return self._state in state.ONGOING and (not self.is_prepared or self.has_calls_left)\n",
        "        return self._state in state.ONGOING and not self.is_prepared\n",
    ),
    Mutant(
        "another call may follow one that timed out",
        "producer/transactions/transactional_calls",
        "        self._check_pending(call)\n        if self._state not in sources:\n",
        "        if self._state not in sources:\n",
    ),
)


def is_caught(mutant: Mutant) -> bool:
    """Return whether any test fails with the fault."""
    with tempfile.TemporaryDirectory() as directory:
        sources = with_fault(mutant, Path(directory))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60"]
        command += ["--hypothesis-profile", "fresh", *_TESTS]
        done = subprocess.run(command, env=environment_of(sources), capture_output=True, check=False, timeout=_LIMIT_S)
        return done.returncode == 1


def main() -> int:
    missed = []
    for mutant in MUTANTS:
        caught = is_caught(mutant)
        print(f"{mutant.name}: {'caught' if caught else 'ESCAPED'}", flush=True)
        if not caught:
            missed.append(mutant.name)
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} faults are caught")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
