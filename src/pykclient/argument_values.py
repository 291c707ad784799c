"""Values of any class as arguments of the clients, and how error messages show them.

Integers of any class are accepted, such as NumPy's, but not ``bool``: a truth value in place of a number is a
mistake. Errors name the parameter and what it must be. They show only numbers and short text, because a value in the
wrong place may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, Final

from pykclient.errors import IllegalArgumentError

_LONGEST_SHOWN: Final = 40
_LARGEST_SHOWN: Final = 64

#: The longest string of the protocol, in bytes.
_LONGEST_TEXT: Final = 32767

_MAX_INT32: Final = (1 << 31) - 1


def shown(value: object) -> str:
    """Return text for an error message: numbers and short text as they are, the type's name for any other value."""
    name = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, int) and value.bit_length() > _LARGEST_SHOWN:  # Python refuses to print very large integers
        return f"an {name} of {value.bit_length()} bits"
    if type(value) in (bool, int, float) or (type(value) is str and len(value) <= _LONGEST_SHOWN):
        return repr(value)
    return name


def is_same(value: object, plain: object) -> bool:
    """Return whether ``value`` is ``plain``: None, text, a number or a list of text.

    Values of other classes are not compared: an array of NumPy would answer with an array.
    """
    is_plain = isinstance(value, str) or type(value) in (bool, int, float, list, tuple)
    return value is plain or (is_plain and value == plain)


def is_truth_value(value: object) -> bool:
    """Return whether ``value`` is a ``bool`` of Python or NumPy."""
    kind = type(value)
    return kind is bool or (kind.__module__ == "numpy" and kind.__name__ in {"bool", "bool_"})


def whole_number(value: object) -> int:
    """Return ``value``, an integer of any class, as an ``int``.

    Raises:
        TypeError: it is a ``bool``, a float, or not a number.
    """
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    return index(value)  # type: ignore[arg-type]


def number(value: object, what: str, least: int = 0, most: int = _MAX_INT32) -> int:
    """Return an integer of any class as an ``int``.

    Raises:
        IllegalArgumentError: it is not an integer, or not between ``least`` and ``most``.
    """
    try:
        whole = whole_number(value)
    except TypeError:
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be an int") from None
    if not least <= whole <= most:
        raise IllegalArgumentError(f"{what} is {shown(whole)}; it must be from {least} to {most}")
    return whole


def plain_number(value: Any) -> int | float:
    """Return a number of any class, such as NumPy's, as an int or float.

    Raises:
        TypeError: it is a ``bool``, text, or not a number.
    """
    if not (is_truth_value(value) or isinstance(value, (str, bytes, bytearray))):
        for convert in (index, float):
            try:
                return convert(value)
            except (TypeError, ValueError, OverflowError):
                continue
    raise TypeError("not a number")


def text(value: object, what: str) -> str:
    """Return a text that the protocol can carry, as a plain ``str``.

    Raises:
        IllegalArgumentError: it is not a ``str``, is too long, or has no UTF-8 form.
    """
    if not isinstance(value, str):
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be a str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise IllegalArgumentError(f"{what} cannot be encoded in UTF-8: {error.reason}") from None
    if size > _LONGEST_TEXT:
        raise IllegalArgumentError(f"{what} has {size} bytes; the protocol allows {_LONGEST_TEXT}")
    return str.__str__(value)


def elements(values: Any) -> list[Any] | None:
    """Return the elements of a collection or iterator; None if it is text, bytes, or cannot be iterated."""
    if isinstance(values, (str, bytes, bytearray)) or not isinstance(values, Iterable):
        return None
    try:
        iterator = iter(values)
    except TypeError:  # an array of NumPy without dimensions
        return None
    return list(iterator)


def checked_flag(flag: Any, name: str) -> bool:
    """Return ``flag``, a truth value of Python or NumPy, as a ``bool``.

    Raises:
        IllegalArgumentError: it is anything else, such as a number or the text "false".
    """
    if not is_truth_value(flag):
        raise IllegalArgumentError(f"{name} is {shown(flag)}; it must be True or False")
    return bool(flag)


def check_callable(function: object, name: str) -> None:
    """Check that ``function`` can be called.

    Raises:
        IllegalArgumentError: it cannot.
    """
    if not callable(function):
        raise IllegalArgumentError(f"{name} is {shown(function)}; it must be something to call")
