"""The rules for topic names (Java: Topic)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pykclient import argument_values
from pykclient.errors import IllegalArgumentError, InvalidTopicError

GROUP_METADATA_TOPIC_NAME: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC_NAME: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC_NAME: Final = "__share_group_state"
CLUSTER_METADATA_TOPIC_NAME: Final = "__cluster_metadata"

_INTERNAL: Final = frozenset({GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME, SHARE_GROUP_STATE_TOPIC_NAME})
_MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


#: Longer names are shortened in error messages.
_SHOWN_LENGTH: Final = 300


def is_internal(topic: str) -> bool:
    """Return True if Kafka itself keeps data in the topic."""
    return topic in _INTERNAL


def validate(topic: str) -> None:
    """Check that a topic can have this name.

    Raises:
        IllegalArgumentError: the name is not a string.
        InvalidTopicError: no topic can have this name.
    """
    if not isinstance(topic, str):
        raise IllegalArgumentError(f"a topic is a str, not {type(topic).__name__}: {shown(topic)}")
    problem = _problem(topic)
    if problem is not None:
        raise InvalidTopicError(f"Topic name is invalid: {problem}")


def is_valid(topic: str) -> bool:
    """Return True if a topic can have this name."""
    return _problem(topic) is None


def shown(topic: object) -> str:
    """Return a name, or any other value passed as a name, for an error message: names are quoted and shortened."""
    if not isinstance(topic, str):
        return argument_values.shown(topic)
    text = repr(topic)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _problem(topic: str) -> str | None:
    if not topic:
        return "the empty string is not allowed"
    if topic in (".", ".."):
        return f"'{topic}' is not allowed"
    if len(topic) > _MAX_LENGTH:
        return f"the length of {shown(topic)} is longer than the max allowed length {_MAX_LENGTH}"
    if not _LEGAL.fullmatch(topic):
        return f"{shown(topic)} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def colliding(topic: str, topics: Iterable[str]) -> str | None:
    """Return a topic whose name differs only in dots and underscores, which look the same in metric names; or None."""
    if "." not in topic and "_" not in topic:
        return None
    unified = topic.replace(".", "_")
    return next((other for other in topics if other != topic and other.replace(".", "_") == unified), None)
