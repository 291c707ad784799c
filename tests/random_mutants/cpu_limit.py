"""A pytest plugin: a test that uses too much CPU time fails, because a mutation made it endless.

The limit of pytest-timeout is no help here. It is in seconds of the clock, which pass quickly on a busy machine, and it
strikes once: Hypothesis takes the failure for one of the test, and runs the endless example again.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

#: The CPU time in seconds that a test may take.
LIMIT_S = 30


class EndlessTest(BaseException):
    """Not an ``Exception``, so that neither the tested code nor Hypothesis handles it."""


def _end(_signal_number: int, _frame: FrameType | None) -> None:
    raise EndlessTest(f"the test took more than {LIMIT_S} s of CPU time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
