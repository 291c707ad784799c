"""Checks of the arguments of an AIOKafkaConsumer. Their texts begin as aiokafka's, and their classes are also its."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pykclient.aio.errors import ArgumentTypeError
from pykclient.argument_values import shown
from pykclient.consumer import consumer_arguments
from pykclient.errors import IllegalArgumentError
from pykclient.record.record_batch import MAX_INT64
from pykclient.types import OffsetAndMetadata, TopicPartition


class PrefixPattern:
    """A pattern that a topic's name only has to begin with, as in aiokafka; ``$`` at its end asks for the whole name.

    Implements TopicPattern. Thread: any.
    """

    __slots__ = ("_pattern",)

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    @property
    def pattern(self) -> str:
        return self._pattern.pattern

    def fullmatch(self, string: str, /) -> object | None:
        """Return a true value if ``string`` begins with a match."""
        return self._pattern.match(string)


def topics_or_pattern(topics: Any, pattern: Any) -> tuple[list[str], PrefixPattern | None]:
    """Return the checked topics and pattern of ``subscribe``, one of which is given.

    Raises:
        ArgumentTypeError: neither or both are given, or topics are not a list of strings.
        IllegalArgumentError: the pattern is not valid.
        InvalidTopicError: no topic can have one of these names.
    """
    has_pattern = not (pattern is None or (isinstance(pattern, str) and not pattern))
    if topics is not None and not isinstance(topics, (tuple, set, frozenset, list)):
        raise ArgumentTypeError("Topics should be list of strings")
    if not (topics or has_pattern):
        raise ArgumentTypeError("You should provide either `topics` or `pattern`")
    if topics and has_pattern:
        raise ArgumentTypeError("You can't provide both `topics` and `pattern`")
    if has_pattern:
        return [], PrefixPattern(consumer_arguments.pattern(pattern))
    return consumer_arguments.topics(topics or ()), None


def listener(value: Any) -> Any:
    """Return the listener; any object with the two methods is accepted.

    Raises:
        ArgumentTypeError: it lacks one of the methods.
    """
    try:
        return consumer_arguments.listener(value)
    except IllegalArgumentError as error:
        raise ArgumentTypeError(f"listener should be an instance of ConsumerRebalanceListener: {error}") from None


def partitions(values: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions given as arguments.

    Raises:
        ArgumentTypeError: one is not a TopicPartition.
    """
    checked = []
    for value in values:
        if not isinstance(value, tuple) or len(value) != 2:
            raise ArgumentTypeError(f"partitions must be TopicPartition instances, not {shown(value)}")
        checked.append(consumer_arguments.partition(value))
    return list(dict.fromkeys(checked))


def offset(value: Any) -> int:
    """Return the offset of ``seek``.

    Raises:
        IllegalArgumentError: it is not a whole number from 0 on.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INT64:
        raise IllegalArgumentError(f"Offset must be a positive integer, or 0, not {shown(value)}")
    return value


def offsets(values: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit: numbers, pairs of a number and text, or OffsetAndMetadata.

    Raises:
        IllegalArgumentError: ``values`` is empty or not a dict, or an entry is invalid.
        ArgumentTypeError: a key or the metadata has the wrong type.
    """
    if not isinstance(values, Mapping) or not values:
        raise IllegalArgumentError(
            f"offsets to commit are a dict such as {{TopicPartition('topic', 0): 5}}, not {shown(values)}"
        )
    plain: dict[Any, Any] = {}
    for key, value in values.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise ArgumentTypeError(f"Key should be TopicPartition instance, not {shown(key)}")
        if isinstance(value, tuple) and not isinstance(value, OffsetAndMetadata):
            if len(value) != 2:
                raise IllegalArgumentError(f"an offset is a number, or a pair of a number and text, not {shown(value)}")
            value = OffsetAndMetadata(*value)  # noqa: PLW2901
        if isinstance(value, OffsetAndMetadata) and not isinstance(value.metadata, (str, type(None))):
            raise ArgumentTypeError(f"Metadata should be a string, not {shown(value.metadata)}")
        plain[key] = value
    return consumer_arguments.offsets(plain) or {}


def max_records(value: Any) -> int | None:
    """Return ``max_records``; None means no limit.

    Raises:
        IllegalArgumentError: it is not a whole number from 1 on.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise IllegalArgumentError(f"`max_records` must be a positive Integer, not {shown(value)}")
    checked: int | None = value
    return checked


def timestamps(values: Any) -> dict[TopicPartition, int]:
    """Return the times by partition, in whole milliseconds since the epoch.

    Raises:
        IllegalArgumentError: ``values`` is not a mapping, or a time is not a number from 0 on.
    """
    if isinstance(values, Mapping):
        for tp, value in values.items():
            if isinstance(value, (int, float)) and value < 0:
                raise IllegalArgumentError(
                    f"The target time for partition {consumer_arguments.partition(tp)} is {shown(value)}. The target "
                    "time cannot be negative."
                )
    return consumer_arguments.timestamps(values)
