"""Waits for a condition with a bound, instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(predicate: Callable[[], T], timeout_s: float = 30.0, what: str = "", every_s: float = 0.02) -> T:
    """Call ``predicate`` until it returns something true, and return that.

    Raises AssertionError naming ``what`` after ``timeout_s``, or the AssertionError that ``predicate`` last raised.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        failed: AssertionError | None = None
        try:
            if result := predicate():
                return result
        except AssertionError as error:
            failed = error
        if time.monotonic() >= deadline:
            raise failed or AssertionError(f"not within {timeout_s} s: {what or repr(predicate)}")
        time.sleep(every_s)
