"""The machine's two clocks, as functions. ``clock.py`` makes them a Clock, which all other modules use."""

from __future__ import annotations

import time

from pykclient.implementation import use_compiled


def monotonic_ms() -> int:
    """Return monotonic milliseconds, meaningless outside the process."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


use_compiled(__name__)
