"""Which names topics can have (Java: Topic)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pykclient.errors import InvalidTopicError

GROUP_METADATA_TOPIC_NAME: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC_NAME: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC_NAME: Final = "__share_group_state"
CLUSTER_METADATA_TOPIC_NAME: Final = "__cluster_metadata"

_INTERNAL: Final = frozenset({GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME, SHARE_GROUP_STATE_TOPIC_NAME})
_MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(topic: str) -> bool:
    """Whether Kafka itself keeps something in it."""
    return topic in _INTERNAL


def validate(topic: str) -> None:
    """Raises InvalidTopicError for a name that no topic can have."""
    problem = _problem(topic)
    if problem is not None:
        raise InvalidTopicError(f"Topic name is invalid: {problem}")


def is_valid(topic: str) -> bool:
    return _problem(topic) is None


def _problem(topic: str) -> str | None:
    if not topic:
        return "the empty string is not allowed"
    if topic in (".", ".."):
        return f"'{topic}' is not allowed"
    if len(topic) > _MAX_LENGTH:
        return f"the length of '{topic}' is longer than the max allowed length {_MAX_LENGTH}"
    if not _LEGAL.fullmatch(topic):
        return f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def colliding(topic: str, topics: Iterable[str]) -> str | None:
    """A topic that differs in nothing but dots and underscores, which the names of metrics cannot tell apart."""
    if "." not in topic and "_" not in topic:
        return None
    unified = topic.replace(".", "_")
    return next((other for other in topics if other != topic and other.replace(".", "_") == unified), None)
