"""Offsets of a query: its starting and ending options, and the JSON that Spark keeps in a checkpoint.

The JSON is that of Spark's own Kafka source (``JsonUtils``, ``KafkaSourceOffset``), in a fixed order, so that a query
can move from one source to the other and back. This module is independent of Spark and of any cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pykclient.errors import ConfigError
from pykclient.types import TopicPartition

#: The end and the beginning of a partition, in offsets that users give (Spark: KafkaOffsetRangeLimit).
LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

#: The action if a partition has no record at or after its starting timestamp.
WhenNone = Literal["error", "latest"]

Offsets = dict[TopicPartition, int]

_LONG_MAX = (1 << 63) - 1
_INT_MAX = (1 << 31) - 1

OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMESTAMPS_EXAMPLE = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
PARTITIONS_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'


class OffsetLimit:
    """A start or an end of reading as an option gives it, not yet resolved (Spark: KafkaOffsetRangeLimit).

    One of ``EARLIEST``, ``LATEST``, ``SpecificOffsets``, ``SpecificTimestamps`` and ``GlobalTimestamp``. Thread: any.
    """


class EarliestOffsets(OffsetLimit):
    """The first record of each partition. ``EARLIEST`` is the only instance, even after unpickling."""

    def __reduce__(self) -> str:
        return "EARLIEST"

    __repr__ = __reduce__


class LatestOffsets(OffsetLimit):
    """The end of each partition. ``LATEST`` is the only instance, even after unpickling."""

    def __reduce__(self) -> str:
        return "LATEST"

    __repr__ = __reduce__


EARLIEST = EarliestOffsets()
LATEST = LatestOffsets()


@dataclass
class SpecificOffsets(OffsetLimit):
    """An offset for each partition, possibly ``LATEST_OFFSET`` or ``EARLIEST_OFFSET``."""

    offsets: Mapping[TopicPartition, int]


@dataclass
class SpecificTimestamps(OffsetLimit):
    """In each partition the first record at or after its own timestamp, in milliseconds since the epoch."""

    timestamps_ms: Mapping[TopicPartition, int]
    when_none: WhenNone = "error"


@dataclass
class GlobalTimestamp(OffsetLimit):
    """In every partition the first record at or after the same timestamp, in milliseconds since the epoch."""

    timestamp_ms: int
    when_none: WhenNone = "error"


# --- what crosses to Spark -----------------------------------------------------------------------------------------


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return ``{topic: {partition: next offset}}``, sorted by topic name and partition number.

    Spark compares offsets by their text, so the same offsets must always have the same order.
    """
    written: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        written.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return written


def offsets_from_json(value: str | Mapping[str, Any]) -> Offsets:
    """Return the offsets of a checkpoint, as text or parsed, from ``offsets_to_json`` or from Spark's own Kafka source.

    Raises:
        ConfigError: ``value`` is anything else.
    """
    return partition_numbers(value, "the offsets of the checkpoint", OFFSETS_EXAMPLE)


# --- JSON of options -----------------------------------------------------------------------------------------------


def partition_numbers(value: str | Mapping[str, Any], what: str, example: str, minimum: int = 0) -> Offsets:
    """Return the number of each partition in ``{"topic":{"0":23}}`` (Spark: JsonUtils.partitionOffsets).

    ``what`` names the value in errors. Spark accepts fractions, and topics or partitions that are given twice. They
    are refused here, as each of them is a mistake that would start a query at the wrong place.

    Raises:
        ConfigError: ``value`` is not such JSON, or a number is below ``minimum``. The text shows ``example``.
    """
    numbers: Offsets = {}
    for topic, partitions in _object(value, what, example).items():
        if not isinstance(partitions, Mapping):
            raise _unexpected(what, example, f"{topic!r} has no object with partitions and numbers")
        for text, number in partitions.items():
            topic_partition = TopicPartition(topic, _partition(text, topic, what, example))
            if topic_partition in numbers:
                raise _unexpected(what, example, f"{topic_partition} is there twice")
            numbers[topic_partition] = _number(number, minimum, topic_partition, what, example)
    return numbers


def partition_list(value: str, what: str) -> tuple[TopicPartition, ...]:
    """Return the partitions in ``{"topic":[0,1]}``, sorted and without duplicates (Spark: JsonUtils.partitions).

    Raises:
        ConfigError: ``value`` is not such JSON. ``what`` names the option in the text.
    """
    found: set[TopicPartition] = set()
    for topic, partitions in _object(value, what, PARTITIONS_EXAMPLE).items():
        if not isinstance(partitions, list):
            raise _unexpected(what, PARTITIONS_EXAMPLE, f"{topic!r} has no list of partitions")
        for number in partitions:
            if not _is_whole(number):
                raise _unexpected(what, PARTITIONS_EXAMPLE, f"{number!r} of {topic!r} is no partition")
            found.add(TopicPartition(topic, _partition(number, topic, what, PARTITIONS_EXAMPLE)))
    return tuple(sorted(found))


def _object(value: str | Mapping[str, Any], what: str, example: str) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=_without_doubles)
        except RecursionError:
            raise _unexpected(what, example, "it is nested too deeply") from None
        except ValueError as error:
            raise _unexpected(what, example, str(error)) from None
    if not isinstance(value, Mapping):
        raise _unexpected(what, example, "it is no JSON object")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError for duplicate names."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _partition(value: Any, topic: str, what: str, example: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    if not _is_whole(value) or not 0 <= value <= _INT_MAX:
        raise _unexpected(what, example, f"{value!r} of {topic!r} is no partition")
    return int(value)


def _number(value: Any, minimum: int, topic_partition: TopicPartition, what: str, example: str) -> int:
    if not _is_whole(value) or value > _LONG_MAX:
        raise _unexpected(what, example, f"{topic_partition} has {value!r}, which is no whole number of 64 bits")
    if value < minimum:
        raise _unexpected(what, example, f"{topic_partition} has {value}, which is less than {minimum}")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unexpected(what: str, example: str, problem: str) -> ConfigError:
    return ConfigError(f"{what}: expected JSON such as {example}, but {problem}", key=what)
