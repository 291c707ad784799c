"""All targets by name, and the inputs that earlier runs have found worth keeping."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz import client_targets, cluster_targets, protocol_targets, record_targets, security_targets
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for module in (protocol_targets, record_targets, security_targets, cluster_targets, client_targets)
    for target in module.TARGETS
}

_KEPT: Final = Path(__file__).parent / "corpus"

#: The largest input. Longer ones rarely reach other code.
MAX_SIZE: Final = 16 * 1024

#: The bytes of kept inputs of a target, and the largest input.
_MOST_KEPT: Final = 12 * 1024
_LARGEST_KEPT: Final = 1024


def corpus(target: Target, rng: Random) -> list[bytes]:
    """Return the inputs to begin with: valid ones, and those that were kept."""
    file = _KEPT / f"{target.name}.txt"
    kept = [base64.b64decode(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [*target.seeds(rng), *kept]


def keep(target: Target, inputs: Iterable[bytes]) -> int:
    """Store a sample of ``inputs`` for later runs; return their number."""
    seeds = set(target.seeds(Random(1)))
    lines: list[str] = []
    left = _MOST_KEPT
    for data in sorted(set(inputs) - seeds, key=lambda each: hashlib.sha256(each).digest()):
        if len(data) <= min(left, _LARGEST_KEPT):
            left -= len(data)
            lines.append(base64.b64encode(data).decode())
    _KEPT.mkdir(exist_ok=True)
    (_KEPT / f"{target.name}.txt").write_text("".join(f"{line}\n" for line in sorted(lines)))
    return len(lines)
