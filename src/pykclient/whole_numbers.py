"""Integers of any class, such as NumPy's, as arguments of the clients."""

from __future__ import annotations

from operator import index


def whole_number(value: object) -> int:
    """Return ``value``, an integer of any class, as an ``int``.

    Raises:
        TypeError: it is a ``bool``, a float, or not a number.
    """
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    return index(value)  # type: ignore[arg-type]
