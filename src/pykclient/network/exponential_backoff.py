"""Exponential backoff with jitter (KIP-580; Java: ExponentialBackoff)."""

from __future__ import annotations

import math
import random


class ExponentialBackoff:
    """The backoff ``initial_ms * 2 ** attempts``, at most ``max_ms``, varied by ``jitter`` (0.2 means +-20 %).

    It is a constant ``initial_ms`` without jitter if ``max_ms`` does not exceed it. Thread: owner of ``rng``.
    """

    def __init__(self, initial_ms: int, max_ms: int, rng: random.Random | None = None, jitter: float = 0.2) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self.max_ms = max_ms  # the maximum backoff
        self._jitter = jitter
        self._rng = rng or random.Random()
        # The largest useful exponent, so that many attempts do not overflow the power.
        self._exp_max = math.log(max_ms / max(initial_ms, 1)) / math.log(2) if max_ms > initial_ms else 0.0

    def backoff(self, attempts: int) -> int:
        """Return the milliseconds to wait after ``attempts`` earlier failures (0 for the first)."""
        if self._exp_max == 0:
            return self._initial_ms
        term = self._initial_ms * 2 ** min(attempts, self._exp_max)
        factor = self._rng.uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else 1.0
        return min(int(factor * term), self.max_ms)
