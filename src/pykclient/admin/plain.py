"""Messages as plain dicts, as kafka-python's methods return them."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import UUID

from pykclient import errors
from pykclient.admin.values import Results, authorized_operations
from pykclient.errors import AuthenticationError, BrokerError, KafkaError, UnsupportedVersionError
from pykclient.protocol.message import ZERO_UUID, Message

K = TypeVar("K")
V = TypeVar("V")
_BIT_FIELDS = {"authorized_operations", "cluster_authorized_operations", "topic_authorized_operations"}


def plain(value: Any) -> Any:
    """Return a message as nested dicts; topic ids become text, other values stay as they are."""
    if isinstance(value, Message):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, UUID):
        return None if value == ZERO_UUID else str(value)
    return value


def with_operations(found: dict[str, Any]) -> dict[str, Any]:
    """Return the dict with ``authorized_operations`` as a list of names or None, instead of a bit field."""
    for name in _BIT_FIELDS & found.keys():
        found["authorized_operations"] = authorized_operations(found.pop(name))
    return found


def shown_error(error: KafkaError) -> str:
    """Return an error's text as it appears in kafka-python's results."""
    code = f"[Error {error.code}] " if isinstance(error, BrokerError) else ""
    return f"{code}{kafka_python_name(error)}: {error}"


def kafka_python_name(error: KafkaError) -> str:
    """Return the name of an error's class in kafka-python, derived from the name of its code."""
    if isinstance(error, BrokerError):
        name = error.error_name.title().replace("_", "") + "Error"
        if name != type(error).__name__ and getattr(errors, name, None) is type(error):
            return name
    return type(error).__name__


def answered(results: Results[K, V]) -> Results[K, V]:
    """Return the results.

    Raises:
        KafkaError: the first error that no broker has reported for an item.
    """
    for error in results.failed.values():
        if not isinstance(error, BrokerError) or isinstance(error, (AuthenticationError, UnsupportedVersionError)):
            raise error
    return results
