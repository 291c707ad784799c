"""Checks of the arguments of the consumer's methods, with errors that say what to write instead.

Errors show numbers and short text, or else the type of the value, because a value in the wrong place may be a secret.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from pykclient import topic_names
from pykclient.argument_values import check_callable, elements, plain_number, shown, text, whole_number
from pykclient.clock import FOREVER_MS
from pykclient.config import validators
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.values import GroupMembershipOperation
from pykclient.errors import IllegalArgumentError
from pykclient.record.record_batch import MAX_INT32, MAX_INT64
from pykclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

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
        if isinstance(name, str) and validators.looks_like_addresses(name):
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
    hint = "; pass a pattern as subscribe(pattern=...)" if hasattr(values, "pattern") else ""
    return [topic_names.checked(name) for name in _names(values, "topics", hint)]


def _names(values: Any, what: str, hint: str = "") -> list[Any]:
    if isinstance(values, str):
        name = topic_names.shown(values)
        raise IllegalArgumentError(f"{what} must be a list of names, not the string {name}; write [{name}]")
    names = elements(values)
    if names is None:
        raise IllegalArgumentError(f"{what} must be a list of names, not {shown(values)}{hint}")
    return names


def pattern(value: Any) -> re.Pattern[str]:
    """Return a topic pattern, compiled.

    Raises:
        IllegalArgumentError: it is neither text nor a compiled pattern of text, is empty, or is not valid.
    """
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        return value
    if not isinstance(value, str):
        given = "re.Pattern of bytes" if isinstance(value, re.Pattern) else shown(value)
        raise IllegalArgumentError(f"pattern is {given}; it must be a regular expression: a str or re.compile(...)")
    if not value:
        raise IllegalArgumentError("the topic pattern is empty")
    try:
        return re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise IllegalArgumentError(
            f"the topic pattern {topic_names.shown(value)} is not a valid regular expression: {error}"
        ) from error


def listener(value: Any) -> Any:
    """Return the listener; any object with the two methods is accepted.

    Raises:
        IllegalArgumentError: it lacks one of the methods, or is a class instead of an object.
    """
    if value is not None:
        for method in ("on_partitions_revoked", "on_partitions_assigned"):
            if not callable(getattr(value, method, None)):
                raise IllegalArgumentError(
                    f"listener is {shown(value)}; a rebalance listener needs a method {method}(partitions)"
                )
        if isinstance(value, type):
            raise IllegalArgumentError(f"listener is the class {value.__name__}; pass an object: {value.__name__}()")
    return value


def partitions_of_call(args: tuple[Any, ...]) -> list[TopicPartition]:
    """Return the partitions given as several arguments, or as a single list of them."""
    if len(args) == 1 and not isinstance(args[0], (tuple, str, ConsumerRecord)) and isinstance(args[0], Iterable):
        return topic_names.partitions(args[0])
    return topic_names.partitions(args)


def offset(value: Any) -> int:
    """Return an offset as an int. Other integer types, such as NumPy's, are accepted.

    Raises:
        IllegalArgumentError: ``value`` is not a whole number, or does not fit 64 bits.
    """
    try:
        number = whole_number(value)
    except TypeError:
        raise IllegalArgumentError(f"an offset is an integer, not {shown(value)}") from None
    if not -MAX_INT64 <= number <= MAX_INT64:
        raise IllegalArgumentError(f"an offset has at most 64 bits, and this is {shown(number)}")
    return number


def offset_and_metadata(value: Any) -> OffsetAndMetadata:
    """Return an offset with its metadata and epoch. A plain number is accepted; None becomes no metadata, no epoch.

    Raises:
        IllegalArgumentError: a field has the wrong type, or does not fit the protocol.
    """
    if not isinstance(value, OffsetAndMetadata):
        return OffsetAndMetadata(offset(value))
    number = offset(value.offset)
    metadata = "" if value.metadata is None else text(value.metadata, "the metadata of an offset")
    if value.leader_epoch is None:
        return OffsetAndMetadata(number, metadata)
    try:
        epoch = whole_number(value.leader_epoch)
    except TypeError:
        raise IllegalArgumentError(f"a leader epoch is an integer, not {shown(value.leader_epoch)}") from None
    if epoch > MAX_INT32:
        raise IllegalArgumentError(f"a leader epoch has at most 32 bits, and this is {shown(epoch)}")
    return OffsetAndMetadata(number, metadata, max(-1, epoch))


def reason(value: Any) -> str | None:
    """Return the reason of a rebalance, or None.

    Raises:
        IllegalArgumentError: it is not a text that the protocol can carry.
    """
    return None if value is None else text(value, "reason")


def topic_id(value: Any) -> UUID | None:
    """Return a topic id, or None.

    Raises:
        IllegalArgumentError: it is not a UUID.
    """
    if value is not None and not isinstance(value, UUID):
        raise IllegalArgumentError(f"topic_id is {shown(value)}; it must be a uuid.UUID")
    return value


def callback(value: Any) -> Any:
    """Return a callback, or None.

    Raises:
        IllegalArgumentError: it cannot be called.
    """
    if value is not None:
        check_callable(value, "callback")
    return value


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
        tp, committed = topic_names.partition(key), offset_and_metadata(value)
        if committed.offset < 0:
            raise IllegalArgumentError(f"offset {committed.offset} of {tp} cannot be committed: it is negative")
        checked[tp] = committed
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
        tp = topic_names.partition(key)
        try:
            checked[tp] = int(value) if isinstance(value, float) else whole_number(value)
        except (TypeError, ValueError, OverflowError):
            checked[tp] = -1
        if not 0 <= checked[tp] <= MAX_INT64:
            raise IllegalArgumentError(f"the time for {tp} must be milliseconds since the epoch, not {shown(value)}")
    return checked


def ends(values: Any) -> dict[TopicPartition, int]:
    """Return the end offset of each partition in ``values``; None means no partitions.

    Raises:
        IllegalArgumentError: ``values`` is not a mapping, or has an invalid entry.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise IllegalArgumentError(
            f"until is {shown(values)}; it must be a dict such as {{TopicPartition('topic', 0): 5}}"
        )
    return {topic_names.partition(key): offset(value) for key, value in values.items()}


def milliseconds(value: float) -> int:
    """Return a timeout in whole milliseconds.

    Warns of a few milliseconds given as a float: seconds were probably meant, as in confluent-kafka's ``poll(1.0)``.

    Raises:
        IllegalArgumentError: ``value`` is not a number from 0 on.
    """
    if type(value) is int and 0 <= value < FOREVER_MS:
        return value
    try:
        number = plain_number(value)
    except TypeError:
        number = -1
    if not number >= 0:  # NaN is neither
        raise IllegalArgumentError(f"timeout_ms is {shown(value)}; it must be a number of milliseconds from 0 on")
    if isinstance(value, float) and 0 < value <= _SUSPICIOUS_MS:
        warnings.warn(
            f"a consumer's timeouts are in milliseconds: {value} is {value / 1000} s; if seconds were meant, write "
            f"{round(value * 1000)}",
            RuntimeWarning,
            stacklevel=4,
        )
    return FOREVER_MS if number >= FOREVER_MS else int(number)


def max_records(value: Any) -> int | None:
    """Return a limit of records, or None for none.

    Raises:
        IllegalArgumentError: it is not a whole number from 1 on.
    """
    return None if value is None else _limit(value, "max_records", MAX_INT32)


def max_bytes(value: Any) -> int | None:
    """Return a limit of bytes, or None for none.

    Raises:
        IllegalArgumentError: it is not a whole number from 1 on.
    """
    return None if value is None else _limit(value, "max_bytes", MAX_INT64)


def _limit(value: Any, name: str, most: int) -> int:
    try:
        number = whole_number(value)
    except TypeError:
        number = 0
    if number < 1:
        raise IllegalArgumentError(f"{name} must be a whole number from 1 on, not {shown(value)}")
    return min(number, most)


def group_membership_operation(value: Any) -> str:
    """Return one of the values that ``close`` takes.

    Raises:
        IllegalArgumentError: there is no such value.
    """
    known = (
        GroupMembershipOperation.DEFAULT,
        GroupMembershipOperation.LEAVE_GROUP,
        GroupMembershipOperation.REMAIN_IN_GROUP,
    )
    if not isinstance(value, str) or value not in known:
        raise IllegalArgumentError(f"group_membership_operation must be one of {', '.join(known)}, not {shown(value)}")
    return value


def columns(values: Any) -> list[str] | None:
    """Return the names of columns, or None for all.

    Raises:
        IllegalArgumentError: ``values`` is not a collection of names.
    """
    if values is None:
        return None
    names = _names(values, "columns")
    for name in names:
        if not isinstance(name, str):
            raise IllegalArgumentError(f"columns must be a list of names, but one of them is {shown(name)}")
    return names
