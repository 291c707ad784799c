"""Does the model notice? Puts faults into a copy of the producer, one at a time, and looks for a schedule that fails.

python -m tests.producer.model.mutants [--seconds 60] [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[3]
_SCHEDULES = 2000


class Mutant(NamedTuple):
    name: str
    module: str
    before: str
    after: str


MUTANTS = (
    Mutant("not muted", "sender", "accumulator.mute_partition(batch.topic_partition)", "pass"),
    Mutant("retry at the tail", "record_accumulator", "batches.insert(position, batch)", "batches.append(batch)"),
    Mutant(
        "retries not in order of sequence",
        "record_accumulator",
        "                position += 1",
        "                pass",
    ),
    Mutant(
        "numbers not reset by a bump",
        "txn_partition_map",
        "        self.next_sequence = sequence\n",
        "        self.next_sequence = max(sequence, self.next_sequence)\n",
    ),
    Mutant(
        "memory kept after success",
        "produce_response",
        "        self._accumulator.deallocate(batch)\n        if not batch.complete(",
        "        if not batch.complete(",
    ),
    Mutant(
        "fate decided twice",
        "producer_batch",
        "        if before is not None:\n",
        "        if before is not None:\n            self.produce_future._done = False\n        if before == 0:\n",
    ),
    Mutant(
        "memory of what is being written freed",
        "sender",
        "self._responses.fail_batch(batch, error, deallocate=not batch.in_flight)",
        "batch.in_flight = False; self._responses.fail_batch(batch, error)",
    ),
    Mutant(
        "drained before its backoff",
        "record_accumulator",
        "                if self._backoff_ms(first, first.waited_time_ms(now_ms)):\n                    continue\n",
        "",
    ),
    Mutant("never unmuted", "produce_response", "self._accumulator.unmute_partition(batch.topic_partition)", "pass"),
    Mutant(
        "any retry may go",
        "record_accumulator",
        "return expected not in (NO_SEQUENCE, first.base_sequence)",
        "return False",
    ),
    Mutant("expired but not unresolved", "transaction_manager", "self.mark_sequence_unresolved(batch)", "pass"),
    Mutant("a lost answer taken for a refusal", "produce_response", "refused = batch.attempts == 0 and", "refused ="),
    Mutant(
        "flush forgets the parts",
        "future",
        "            waiting.extend(part for _, part in result.parts or ())\n",
        "",
    ),
    Mutant(
        "no callback for parts",
        "future",
        "            entry[0].locate()[0].listeners.append(entry)\n",
        "            pass\n",
    ),
    Mutant(
        "first batch not alone",
        "record_accumulator",
        "or manager.last_acked_sequence(topic_partition) == NO_LAST_ACKED_SEQUENCE_NUMBER",
        "or False",
    ),
    Mutant(
        "in flight never expires",
        "produce_response",
        "                expired.append(batch)\n",
        "                pass\n",
    ),
    Mutant("parts stay open", "producer_batch", "            part.close()\n", ""),
)


def _sources(mutant: Mutant | None, directory: Path) -> Path:
    sources = directory / "src"
    shutil.copytree(_ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        path = sources / "pykclient" / "producer" / f"{mutant.module}.py"
        text = path.read_text(encoding="utf-8")
        if mutant.before not in text:
            raise SystemExit(f"{mutant.name}: {path.name} has no such place any more")
        path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    return sources


def _caught(mutant: Mutant, seconds: float) -> str | None:
    """The failure's line, or None."""
    with tempfile.TemporaryDirectory() as name:
        sources = _sources(mutant, Path(name))
        command = [sys.executable, "-m", "tests.producer.model", "--seed", "1", "--stop"]
        command += ["--count", str(_SCHEDULES), "--seconds", str(seconds)]
        # Mutants are of the implementation in Python.
        environment = {
            **os.environ,
            "PYKCLIENT_IMPL": "python",
            "PYTHONPATH": os.pathsep.join((str(sources), str(_ROOT))),
        }
        try:
            done = subprocess.run(
                command, cwd=name, env=environment, capture_output=True, text=True, check=False, timeout=seconds + 10
            )
        except subprocess.TimeoutExpired:
            return "a schedule has no end"
    found = re.search(r"^seed .*", done.stdout, re.MULTILINE)
    return found.group() if found else (done.stderr[-300:] or None)


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
