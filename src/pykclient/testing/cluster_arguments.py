"""Checks of the arguments of embedded clusters: wrong ones are refused before a broker sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykclient.argument_values import elements, shown
from pykclient.argument_values import number as number
from pykclient.errors import ConfigError, IllegalArgumentError
from pykclient.types import TopicPartition

#: More brokers, or partitions of one topic, would exhaust the memory before they are of any use.
MAX_BROKERS: Final = 1_000
MAX_PARTITIONS: Final = 1_000_000


def setting(value: object, name: str, least: int, most: int) -> int:
    """Return a number that configures a cluster.

    Raises:
        ConfigError: it is not an integer, or not between ``least`` and ``most``.
    """
    try:
        return number(value, name, least, most)
    except IllegalArgumentError as error:
        raise ConfigError(str(error), key=name) from None


def text_setting(value: object, name: str) -> str:
    """Return a text that configures a cluster.

    Raises:
        ConfigError: it is not a ``str``.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {shown(value)}; it must be a str", key=name)
    return value


def mapping_setting(value: object, name: str) -> Mapping[Any, Any]:
    """Return a mapping that configures a cluster; None is an empty one.

    Raises:
        ConfigError: it is neither.
    """
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {shown(value)}; it must be a dict", key=name)
    return value or {}


def broker_ids(brokers: Any) -> list[int]:
    """Return the ids of brokers, given by their number or one by one.

    Raises:
        ConfigError: there is none, there are too many, or one is not valid.
    """
    given = elements(brokers)
    if given is None:
        return list(range(1, setting(brokers, "brokers", 1, MAX_BROKERS) + 1))
    ids = [setting(id, "the id of a broker", 0, (1 << 31) - 1) for id in given]
    if not 0 < len(ids) <= MAX_BROKERS or len(set(ids)) < len(ids):
        raise ConfigError(f"brokers must be from 1 to {MAX_BROKERS} different ids, not these {len(ids)}", key="brokers")
    return ids


def topic(name: Any) -> str:
    """Return the name of a topic.

    Raises:
        IllegalArgumentError: it is not a ``str``, or has no UTF-8 form.
    """
    if not isinstance(name, str) or not _is_unicode(name):
        raise IllegalArgumentError(f"a topic is a str, its name, not {shown(name)}")
    return name


def _is_unicode(text: str) -> bool:
    """Return False if the text has halves of surrogate pairs, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def partition(value: Any) -> TopicPartition:
    """Return a partition, given as any pair of a topic and a number.

    Raises:
        IllegalArgumentError: it is no such pair.
    """
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], str):
        raise IllegalArgumentError(f"topic_partition is {shown(value)}; it must be a TopicPartition")
    return TopicPartition(value[0], number(value[1], "the number of a partition", 0, (1 << 31) - 1))


def topic_configs(values: Any) -> Mapping[str, object]:
    """Return the configuration of a topic; None is an empty one.

    Raises:
        IllegalArgumentError: it is not a mapping of names.
    """
    is_mapping = values is None or isinstance(values, Mapping)
    if not is_mapping or not all(isinstance(name, str) and _is_unicode(name) for name in values or ()):
        raise IllegalArgumentError(f"configs is {shown(values)}; it must be a dict such as {{'retention.ms': 1000}}")
    return values or {}


def assignment(values: Any) -> dict[int, list[int]]:
    """Return the brokers of each partition; None is an empty dict.

    Raises:
        IllegalArgumentError: it is not a mapping of numbers to lists of brokers.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise IllegalArgumentError(f"assignment is {shown(values)}; it must be a dict such as {{0: [1, 2]}}")
    checked: dict[int, list[int]] = {}
    for index, ids in values.items():
        found = elements(ids)
        if found is None:
            raise IllegalArgumentError(f"assignment has {shown(ids)} for a partition; it must be a list of brokers")
        checked[number(index, "a partition of assignment", 0, MAX_PARTITIONS)] = [
            number(id, "a broker of assignment", 0, (1 << 31) - 1) for id in found
        ]
    return checked
