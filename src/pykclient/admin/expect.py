"""Checks of the arguments that applications pass to an admin client, made before anything is sent.

Errors name the argument and the type that it should have. They show only numbers and short text, because a value in the
wrong place may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from pykclient.argument_values import whole_number
from pykclient.errors import IllegalArgumentError
from pykclient.types import TopicPartition

_LONGEST_SHOWN: Final = 60
_MAX_STRING: Final = 32767
INT32: Final = (1 << 31) - 1
INT64: Final = (1 << 63) - 1
INT16: Final = (1 << 15) - 1


def shown(value: object) -> str:
    """Return a value for an error message: a short text or number as it is, or else the name of its type."""
    if value is None:
        return "None"
    if isinstance(value, (str, bool, int, float)) and len(text := repr(value)[: _LONGEST_SHOWN + 1]) <= _LONGEST_SHOWN:
        return text
    return f"a value of type {type(value).__name__}"


def text(value: object, what: str) -> str:
    """Return a name as a plain ``str``.

    Raises:
        IllegalArgumentError: it is not a ``str``, is too long for the protocol, or has no UTF-8 form.
    """
    if not isinstance(value, str):
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be a str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise IllegalArgumentError(f"{what} cannot be encoded in UTF-8: {error.reason}") from error
    if size > _MAX_STRING:
        raise IllegalArgumentError(f"{what} has {size} bytes; the protocol allows {_MAX_STRING}")
    return str.__str__(value)


def optional_text(value: object, what: str) -> str | None:
    """Return ``text(value, what)``, or None for None."""
    return None if value is None else text(value, what)


def number(value: object, what: str, least: int = 0, most: int = INT32) -> int:
    """Return an integer of any class as an ``int``.

    Raises:
        IllegalArgumentError: it is not an integer, or not between ``least`` and ``most``.
    """
    try:
        whole = whole_number(value)
    except TypeError as error:
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be an int") from error
    if not least <= whole <= most:
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be from {least} to {most}")
    return whole


def flag(value: object, what: str) -> bool:
    """Return a truth value.

    Raises:
        IllegalArgumentError: it is not a ``bool``.
    """
    if not isinstance(value, bool):
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be True or False")
    return value


def timeout(timeout_ms: object) -> int | None:
    """Return a timeout in milliseconds; None and 0 are for the default, as in kafka-python.

    Raises:
        IllegalArgumentError: it is not a number, or is negative.
    """
    if isinstance(timeout_ms, float) and 0 <= timeout_ms <= INT32:
        timeout_ms = int(timeout_ms)
    return None if timeout_ms is None else number(timeout_ms, "timeout_ms") or None


def items(values: object, what: str, of: str) -> list[Any]:
    """Return the elements of a list or another iterable.

    Raises:
        IllegalArgumentError: it is a text, which iterates over its characters, or cannot be iterated.
    """
    if isinstance(values, (str, bytes, bytearray)) or not isinstance(values, Iterable):
        raise IllegalArgumentError(f"{what} is {shown(values)}; it must be a list of {of}")
    return list(values)


def texts(values: object, what: str) -> list[str]:
    """Return a list of names, each once, in order."""
    names = items(values, what, "names")
    return list(dict.fromkeys(text(name, f"{what}[{index}]") for index, name in enumerate(names)))


def mapping(values: object, what: str, of: str) -> Mapping[Any, Any]:
    """Return a mapping.

    Raises:
        IllegalArgumentError: it is none.
    """
    if not isinstance(values, Mapping):
        raise IllegalArgumentError(f"{what} is {shown(values)}; it must be a dict of {of}")
    return values


def partition(value: object, what: str) -> TopicPartition:
    """Return a TopicPartition; any pair of a topic and a partition will do.

    Raises:
        IllegalArgumentError: it is no such pair.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable) or len(pair := tuple(value)) != 2:
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be a TopicPartition")
    return TopicPartition(text(pair[0], f"the topic of {what}"), number(pair[1], f"the partition of {what}"))


def partitions(values: object, what: str) -> list[TopicPartition]:
    """Return a list of partitions, each once, in order."""
    found = items(values, what, "TopicPartition")
    return list(dict.fromkeys(partition(value, f"{what}[{index}]") for index, value in enumerate(found)))


def replicas(values: object, what: str) -> list[int]:
    """Return the ids of brokers."""
    return [number(value, f"{what}[{index}]") for index, value in enumerate(items(values, what, "broker ids"))]


def uuid(value: object, what: str) -> UUID:
    """Return a UUID.

    Raises:
        IllegalArgumentError: it is none.
    """
    if not isinstance(value, UUID):
        raise IllegalArgumentError(f"{what} is {shown(value)}; it must be a uuid.UUID")
    return value
