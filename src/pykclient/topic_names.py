"""The rules for topic names (Java: Topic), and for the partitions that applications pass to clients."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pykclient import argument_values
from pykclient.argument_values import elements, whole_number
from pykclient.errors import IllegalArgumentError, InvalidTopicError
from pykclient.types import ConsumerRecord, TopicPartition

GROUP_METADATA_TOPIC_NAME: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC_NAME: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC_NAME: Final = "__share_group_state"
CLUSTER_METADATA_TOPIC_NAME: Final = "__cluster_metadata"

_INTERNAL: Final = frozenset({GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME, SHARE_GROUP_STATE_TOPIC_NAME})
_MAX_LENGTH: Final = 249
_MAX_INT32: Final = (1 << 31) - 1
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


def checked(topic: Any) -> str:
    """Return the name of a topic.

    Raises:
        IllegalArgumentError: it is not a string, or is blank.
        InvalidTopicError: no topic can have this name.
    """
    if not isinstance(topic, str) or not topic.strip():
        raise IllegalArgumentError(f"a topic must be named by a string that is not empty, not {shown(topic)}")
    validate(topic)
    return topic


def partition(value: Any, what: str = "partition") -> TopicPartition:
    """Return ``value``, a TopicPartition or a pair of a topic and a number, as a TopicPartition.

    Raises:
        IllegalArgumentError: it is neither, or the number is not a whole number from 0 on.
        InvalidTopicError: no topic can have this name.
    """
    if not is_pair(value):
        raise IllegalArgumentError(not_a_partition(value, what))
    topic, given = value
    try:
        number = whole_number(given)
    except TypeError:
        number = -1
    if not 0 <= number <= _MAX_INT32:
        raise IllegalArgumentError(f"{what} is {_shown_pair(value)}; it needs a topic's name and a number from 0 on")
    return TopicPartition(checked(topic), number)


def partitions(values: Any, what: str = "partitions") -> list[TopicPartition]:
    """Return a list of partitions without duplicates, in the order given.

    Raises:
        IllegalArgumentError: ``values`` is not a collection of partitions.
        InvalidTopicError: no topic can have one of these names.
    """
    if isinstance(values, (TopicPartition, str)):
        given = shown(values) if isinstance(values, str) else _shown_pair(values)
        raise IllegalArgumentError(f"{what} is {given}; it must be a list of TopicPartition: write [{given}]")
    found = None if isinstance(values, ConsumerRecord) else elements(values)
    if found is None:
        raise IllegalArgumentError(f"{what} is {argument_values.shown(values)}; it must be a list of TopicPartition")
    return list(dict.fromkeys(partition(value, f"{what}[{index}]") for index, value in enumerate(found)))


def is_pair(value: object) -> bool:
    """Return True for a TopicPartition, or a pair in its place."""
    return isinstance(value, (tuple, list)) and len(value) == 2 and not isinstance(value[0], tuple)


def not_a_partition(value: object, what: str) -> str:
    """Return the text of the error for a value that is not a partition."""
    text = f"{what} is {argument_values.shown(value)}; it must be a TopicPartition"
    if isinstance(value, (list, set, frozenset)) and value:
        return f"{text}, not several of them"
    if isinstance(value, str):
        return f"{text}: write TopicPartition({value[:60]!r}, 0) for the topic's first partition"
    if isinstance(value, ConsumerRecord):
        return f"{text}: write TopicPartition(record.topic, record.partition)"
    return text


def _shown_pair(pair: Any) -> str:
    topic, number = pair
    given = type(number).__name__ if isinstance(number, str) else argument_values.shown(number)
    return f"TopicPartition(topic={shown(topic)}, partition={given})"
