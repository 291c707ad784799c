"""One target under atheris, which prefers inputs that reach new code: run by ``python -m tests.fuzz``.

Failures do not end the run. Each is stored once, with its traceback.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import traceback
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["pykclient"]):
    from tests.fuzz import guard
    from tests.fuzz.targets import MAX_SIZE, TARGETS, corpus

#: Of so many inputs one is run under the measurement of memory, which costs time.
_MEASURED_EVERY = 50

#: The seconds after which an input counts as one that hangs.
_TIMEOUT_S = 20

_MEMORY_MB = 1536


def place_of(error: BaseException) -> str:
    """Return what tells failures apart: the class of the error, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return "|".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in frames)])


def main(name: str, seconds: int, seed: int, inputs: Path, failures: Path) -> None:
    logging.disable()
    target = TARGETS[name]
    for data in corpus(target, Random(seed)):
        (inputs / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    seen: set[str] = set()
    runs = 0

    def run(data: bytes) -> None:
        nonlocal runs
        runs += 1
        try:
            guard.run(target, data, measured=runs % _MEASURED_EVERY == 0)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            place = place_of(error)
            if place not in seen:
                seen.add(place)
                store(failures, data, error)

    atheris.Setup(
        [
            "fuzz",
            str(inputs),
            f"-max_total_time={seconds}",
            f"-seed={seed or 1}",
            f"-timeout={_TIMEOUT_S}",
            f"-rss_limit_mb={_MEMORY_MB}",
            f"-max_len={MAX_SIZE}",
            f"-artifact_prefix={failures}/",
            "-print_final_stats=1",
        ],
        run,
    )
    atheris.Fuzz()


def store(failures: Path, data: bytes, error: BaseException) -> None:
    """Store an input that fails, and how."""
    path = failures / f"failure-{hashlib.sha1(data, usedforsecurity=False).hexdigest()[:12]}"
    path.write_bytes(data)
    path.with_suffix(".txt").write_text("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
