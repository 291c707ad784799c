"""Does the model notice? Puts faults into a copy of the producer, one at a time, and looks for a schedule that fails.

python -m tests.producer.model.mutants [--seconds 60] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys

from tests.support.mutants import Mutant, first_failure

_SCHEDULES = 2000

MUTANTS = (
    Mutant("not muted", "producer/sender", "accumulator.mute_partition(batch.topic_partition)", "pass"),
    Mutant(
        "retry at the tail", "producer/record_accumulator", "batches.insert(position, batch)", "batches.append(batch)"
    ),
    Mutant(
        "retries not in order of sequence",
        "producer/producer_batch",
        "return self.has_sequence and self.base_sequence < other.base_sequence",
        "return False",
    ),
    Mutant(
        "numbers not reset by a bump",
        "producer/txn_partition_map",
        "        self.next_sequence = sequence\n",
        "        self.next_sequence = max(sequence, self.next_sequence)\n",
    ),
    Mutant(
        "memory kept after success",
        "producer/produce_response",
        "        self._accumulator.deallocate(batch)\n        if not batch.complete(",
        "        if not batch.complete(",
    ),
    Mutant(
        "fate decided twice",
        "producer/producer_batch",
        "        if before is not None:\n",
        "        if before is not None:\n            self.produce_future._done = False\n        if before == 0:\n",
    ),
    Mutant(
        "memory of what is being written freed",
        "producer/sender",
        "self._responses.fail_batch(batch, error, deallocate=not batch.in_flight)",
        "batch.in_flight = False; self._responses.fail_batch(batch, error)",
    ),
    Mutant(
        "drained before its backoff",
        "producer/record_accumulator",
        "                if first.backoff_end_ms > now_ms:\n                    continue\n",
        "",
    ),
    Mutant(
        "never unmuted",
        "producer/produce_response",
        "self._accumulator.unmute_partition(batch.topic_partition)",
        "pass",
    ),
    Mutant(
        "any retry may go",
        "producer/transaction_manager",
        "return expected not in (NO_SEQUENCE, first.base_sequence)",
        "return False",
    ),
    Mutant(
        "expired but not unresolved", "producer/transaction_manager", "self.mark_sequence_unresolved(batch)", "pass"
    ),
    Mutant(
        "a lost answer taken for a refusal",
        "producer/produce_response",
        "refused = batch.attempts == 0 and",
        "refused =",
    ),
    Mutant(
        "flush forgets the parts",
        "producer/future",
        "            waiting.extend(part for _, part in result.parts or ())\n",
        "",
    ),
    Mutant(
        "no callback for parts",
        "producer/future",
        "            entry[0].locate()[0].listeners.append(entry)\n",
        "            pass\n",
    ),
    Mutant(
        "first batch not alone",
        "producer/transaction_manager",
        "or not entry.is_known_to_broker",
        "or False",
    ),
    Mutant(
        "in flight never expires",
        "producer/produce_response",
        "                expired.append(batch)\n",
        "                pass\n",
    ),
    Mutant("parts stay open", "producer/producer_batch", "            part.close()\n", ""),
)


def _caught(mutant: Mutant, seconds: float) -> str | None:
    """The failure's line, or None."""
    arguments = ["--seed", "1", "--stop", "--count", str(_SCHEDULES), "--seconds", str(seconds)]
    return first_failure(mutant, "tests.producer.model", arguments, seconds + 10)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.producer.model.mutants")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60, help="for each")
    options = parser.parse_args()
    escaped = 0
    for mutant in MUTANTS:
        if options.names and mutant.name not in options.names:
            continue
        caught = _caught(mutant, options.seconds)
        escaped += caught is None
        print(f"{mutant.name}: {caught or 'ESCAPED'}", flush=True)
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
