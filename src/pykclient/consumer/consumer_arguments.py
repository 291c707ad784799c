"""Checks of the arguments of the consumer's methods, with errors that say what to write instead."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pykclient import topic_names
from pykclient.clock import FOREVER_MS
from pykclient.config import addresses
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.coordinator.membership_operation import DEFAULT, LEAVE_GROUP, REMAIN_IN_GROUP
from pykclient.errors import IllegalArgumentError
from pykclient.record.record_batch import MAX_INT32
from pykclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from pykclient.whole_numbers import whole_number

#: A float timeout up to this value is probably meant in seconds.
_SUSPICIOUS_MS = 10


def settings_and_topics(
    args: tuple[Any, ...], settings: Mapping[str, Any], client: str = "KafkaConsumer"
) -> tuple[Mapping[str, Any] | ConsumerConfig | None, list[str]]:
    """Return the leading mapping, if there is one, and the topics.

    Raises:
        IllegalArgumentError: an argument is neither, such as the address of a broker.
    """
    config: Mapping[str, Any] | None = None
    if args and (args[0] is None or isinstance(args[0], Mapping)):
        config, *rest = args
        args = tuple(rest)
    if isinstance(config, ConsumerConfig) and settings:
        config = {**config.originals}
    for name in args:
        if isinstance(name, str) and addresses.looks_like_one(name):
            raise IllegalArgumentError(
                f"{name!r} is an address, but {client}'s positional arguments are topics; write "
                f"bootstrap_servers={name!r}"
            )
        if isinstance(name, Collection) and not isinstance(name, (str, bytes)):
            raise IllegalArgumentError(
                f"{client} takes its topics one by one, not as a {type(name).__name__}: write "
                f"{client}(*topics) or subscribe(topics)"
            )
    return config, topics(args)


def topics(values: Collection[str]) -> list[str]:
    """Return the names as a list.

    Raises:
        IllegalArgumentError: ``values`` is a single string, or one of them is blank or not a string.
        InvalidTopicError: no topic can have one of these names.
    """
    if isinstance(values, str):
        raise IllegalArgumentError(f"topics must be a list of names, not the string {values!r}; write [{values!r}]")
    if not isinstance(values, Iterable):
        raise IllegalArgumentError(f"topics must be a list of names, not {values!r}")
    return [topic(name) for name in values]


def topic(name: str) -> str:
    """Return the name of a topic, checked as in ``topics``."""
    if not isinstance(name, str) or not name.strip():
        raise IllegalArgumentError(
            f"a topic must be named by a string that is not empty, not {topic_names.shown(name)}"
        )
    topic_names.validate(name)
    return name


def pattern(value: str | re.Pattern[str]) -> re.Pattern[str]:
    if isinstance(value, re.Pattern):
        return value
    if not value:
        raise IllegalArgumentError("the topic pattern is empty")
    try:
        return re.compile(value)
    except re.error as error:
        raise IllegalArgumentError(f"the topic pattern {value!r} is not a valid regular expression: {error}") from error


def listener(value: Any) -> Any:
    """Return the listener; any object with the two methods is accepted.

    Raises:
        IllegalArgumentError: it lacks one of the methods.
    """
    if value is not None:
        for method in ("on_partitions_revoked", "on_partitions_assigned"):
            if not callable(getattr(value, method, None)):
                raise IllegalArgumentError(f"a rebalance listener needs a method {method}(partitions): {value!r}")
    return value


def partition(value: Any) -> TopicPartition:
    """Return ``value``, a TopicPartition or a plain pair, as a TopicPartition.

    Raises:
        IllegalArgumentError: it is neither, or the number is not a whole number from 0 on.
        InvalidTopicError: no topic can have this name.
    """
    if isinstance(value, TopicPartition):
        tp = value
    elif isinstance(value, tuple) and len(value) == 2:
        tp = TopicPartition(*value)
    elif isinstance(value, (list, set, frozenset)) and value:
        raise IllegalArgumentError(f"one TopicPartition is needed, not a {type(value).__name__} of them")
    elif isinstance(value, str):
        raise IllegalArgumentError(
            f"the topic {topic_names.shown(value)} is not a TopicPartition: write TopicPartition({value[:60]!r}, 0) "
            "for its first partition"
        )
    elif isinstance(value, ConsumerRecord):
        raise IllegalArgumentError(
            "a record is not a TopicPartition: write TopicPartition(record.topic, record.partition)"
        )
    else:
        raise IllegalArgumentError(f"{value!r} is not a TopicPartition")
    try:
        number = whole_number(tp.partition)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_INT32:
        raise IllegalArgumentError(
            f"{topic_names.shown(tp)} is not a partition: it needs a topic's name and a number from 0 on"
        )
    return TopicPartition(topic(tp.topic), number)


def partitions(values: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions without duplicates, in the order given.

    Raises:
        IllegalArgumentError: ``values`` is not a collection of partitions.
    """
    if isinstance(values, (TopicPartition, str)):
        raise IllegalArgumentError(f"partitions must be a list of TopicPartition, not {values!r}; write [{values!r}]")
    if not isinstance(values, Iterable) or isinstance(values, ConsumerRecord):
        raise IllegalArgumentError(f"partitions must be a list of TopicPartition, not {type(values).__name__}")
    return list(dict.fromkeys(partition(value) for value in values))


def partitions_of_call(args: tuple[Any, ...]) -> list[TopicPartition]:
    """Return the partitions given as several arguments, or as a single list of them."""
    if len(args) == 1 and not isinstance(args[0], (tuple, str, ConsumerRecord)) and isinstance(args[0], Iterable):
        return partitions(args[0])
    return partitions(args)


def offset(value: Any) -> int:
    """Return an offset as an int. Other integer types, such as NumPy's, are accepted.

    Raises:
        IllegalArgumentError: ``value`` is not a whole number.
    """
    try:
        return whole_number(value)
    except TypeError:
        raise IllegalArgumentError(f"an offset is an integer, not {value!r}") from None


def offsets(values: Mapping[Any, Any] | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Return the offsets to commit by partition. Plain numbers are accepted as offsets.

    Raises:
        IllegalArgumentError: ``values`` is not a mapping, or has an invalid entry.
    """
    if values is None:
        return None
    if isinstance(values, ConsumerRecord):
        raise IllegalArgumentError(
            "offsets are committed by partition, not by record: write commit({TopicPartition(record.topic, "
            "record.partition): record.offset + 1})"
        )
    if not isinstance(values, Mapping):
        raise IllegalArgumentError(
            f"offsets to commit are a dict such as {{TopicPartition('topic', 0): 5}}, not {type(values).__name__}"
        )
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, value in values.items():
        committed = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(offset(value))
        if offset(committed.offset) < 0:
            raise IllegalArgumentError(f"offset {committed.offset} of {key} cannot be committed: it is negative")
        if committed.metadata is None or committed.leader_epoch is None:
            epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
            committed = OffsetAndMetadata(committed.offset, committed.metadata or "", epoch)
        checked[partition(key)] = committed
    return checked


def timestamps(values: Mapping[Any, Any]) -> dict[TopicPartition, int]:
    """Return the times by partition, in whole milliseconds since the epoch. Fractions are cut off.

    Raises:
        IllegalArgumentError: ``values`` is not a mapping, or a time is not a number from 0 on.
    """
    if not isinstance(values, Mapping):
        raise IllegalArgumentError(
            "times are a dict such as {TopicPartition('topic', 0): milliseconds since the epoch}, not "
            f"{type(values).__name__}"
        )
    checked: dict[TopicPartition, int] = {}
    for key, value in values.items():
        tp = partition(key)
        try:
            checked[tp] = int(value) if isinstance(value, float) else whole_number(value)
        except (TypeError, ValueError, OverflowError):
            checked[tp] = -1
        if checked[tp] < 0:
            raise IllegalArgumentError(f"the time for {tp} must be milliseconds since the epoch, not {value!r}")
    return checked


def ends(values: Mapping[Any, Any] | None) -> dict[TopicPartition, int]:
    """Return the end offset of each partition in ``values``; None means no partitions."""
    return {partition(key): offset(value) for key, value in (values or {}).items()}


def milliseconds(value: float) -> int:
    """Return a timeout in whole milliseconds.

    Warns of a few milliseconds given as a float: seconds were probably meant, as in confluent-kafka's ``poll(1.0)``.

    Raises:
        IllegalArgumentError: ``value`` is not a number from 0 on.
    """
    if type(value) is int and 0 <= value < FOREVER_MS:
        return value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isnan(value) or value < 0:
        raise IllegalArgumentError(f"a timeout is a number of milliseconds from 0 on, not {value!r}")
    if isinstance(value, float) and 0 < value <= _SUSPICIOUS_MS:
        warnings.warn(
            f"a consumer's timeouts are in milliseconds: {value} is {value / 1000} s; if seconds were meant, write "
            f"{round(value * 1000)}",
            RuntimeWarning,
            stacklevel=4,
        )
    return FOREVER_MS if value >= FOREVER_MS else int(value)


def max_records(value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise IllegalArgumentError(f"max_records must be at least 1, not {value!r}")
    return value


def max_bytes(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise IllegalArgumentError(f"max_bytes must be a positive whole number, not {value!r}")
    return value


def group_membership_operation(value: str) -> str:
    known = (DEFAULT, LEAVE_GROUP, REMAIN_IN_GROUP)
    if value not in known:
        raise IllegalArgumentError(f"group_membership_operation must be one of {', '.join(known)}, not {value!r}")
    return value


def columns(values: Any) -> list[str] | None:
    if values is None:
        return None
    if isinstance(values, str):
        raise IllegalArgumentError(f"columns must be a list of names, not the string {values!r}; write [{values!r}]")
    return list(values)
