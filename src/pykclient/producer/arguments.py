"""Arguments of the producer's methods: what is accepted, and what is said about the rest."""

from __future__ import annotations

from operator import index

from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalArgumentError
from pykclient.record.record_batch import MAX_INT64
from pykclient.types import Headers


def milliseconds(timeout: float | None) -> int:
    """Seconds in milliseconds; None is forever. Raises IllegalArgumentError."""
    if timeout is None:
        return FOREVER_MS
    if timeout < 0:
        raise IllegalArgumentError(f"timeout = {timeout}: a timeout must not be negative")
    return min(int(timeout * 1000), FOREVER_MS)


def checked_timestamp(timestamp_ms: int) -> int:
    """As an int, if it is one or of a class like NumPy's. Raises IllegalArgumentError."""
    try:
        number = index(timestamp_ms)
    except TypeError:
        raise IllegalArgumentError(f"timestamp_ms = {timestamp_ms!r}: a timestamp is an int, in milliseconds") from None
    if not 0 <= number <= MAX_INT64:
        raise IllegalArgumentError(f"timestamp_ms = {number}: a timestamp must not be negative, nor have over 64 bits")
    return number


def checked_headers(headers: Headers) -> Headers:
    """The headers as a sequence of their own. Raises IllegalArgumentError for anything but pairs of str and bytes."""
    try:
        checked = [(name, value) for name, value in headers]
    except (TypeError, ValueError):
        raise IllegalArgumentError("headers must be a list of pairs of a name and bytes or None") from None
    for name, value in checked:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise IllegalArgumentError(
                f"a header must be a str and bytes or None, but is {type(name).__name__} and {type(value).__name__}"
            )
    return checked
