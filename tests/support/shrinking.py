"""Shrinks failing examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def fewer(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Return a subset of ``items`` that still fails, by leaving out runs of items, longer ones first."""
    size = len(items)
    while size:
        start = 0
        while start < len(items):
            kept = items[:start] + items[start + size :]
            if fails(kept):
                items = kept
            else:
                start += size
        size //= 2
    return items
