"""Running one input of a target under a limit of memory."""

from __future__ import annotations

import tracemalloc

from tests.fuzz.target import Target

#: The memory that a run may use for any input: tables, buffers, modules that are loaded by the first input.
CONSTANT_BYTES = 4 * 1024 * 1024


class TooMuchMemoryError(AssertionError):
    """A run has allocated more memory than its input justifies."""


def run(target: Target, data: bytes, *, measured: bool = False) -> None:
    """Run an input. If ``measured``, also check the memory that Python allocates for it.

    Raises:
        TooMuchMemoryError: it was too much.
        BaseException: the target's failure.
    """
    if not measured:
        target.run(data)
        return
    tracemalloc.start()
    try:
        target.run(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    limit = CONSTANT_BYTES + target.bytes_per_byte * len(data)
    if peak > limit:
        raise TooMuchMemoryError(
            f"{target.name} needs {peak:,} bytes for an input of {len(data)}; {limit:,} are allowed"
        )
