"""Checks of the arguments that applications pass to an admin client, made before anything is sent.

Errors name the argument and the type that it should have. They show only numbers and short text, because a value in the
wrong place may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from pykclient.argument_values import checked_flag, elements, number as number, shown, text as text
from pykclient.errors import IllegalArgumentError

INT32: Final = (1 << 31) - 1
INT64: Final = (1 << 63) - 1
INT16: Final = (1 << 15) - 1

flag: Final = checked_flag


def optional_text(value: object, what: str) -> str | None:
    """Return ``text(value, what)``, or None for None."""
    return None if value is None else text(value, what)


def timeout(timeout_ms: object) -> int | None:
    """Return a timeout in milliseconds; None and 0 mean the default, as in kafka-python.

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
    found = elements(values)
    if found is None:
        raise IllegalArgumentError(f"{what} is {shown(values)}; it must be a list of {of}")
    return found


def optional_items(values: object, what: str, of: str) -> list[Any]:
    """Return ``items(values, what, of)``, or no elements for None."""
    return [] if values is None else items(values, what, of)


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


def optional_mapping(values: object, what: str, of: str) -> Mapping[Any, Any]:
    """Return ``mapping(values, what, of)``, or an empty one for None."""
    return {} if values is None else mapping(values, what, of)


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
