"""Loading of the assignors in ``partition.assignment.strategy`` (Java:
ConsumerPartitionAssignor.getAssignorInstances).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykclient.config.config_def import load
from pykclient.consumer.assignors.consumer_partition_assignor import ConsumerPartitionAssignor
from pykclient.errors import ConfigError

KEY = "partition.assignment.strategy"
#: The classes by their names in the group protocol, loaded when they are configured.
_BY_NAME = {
    "range": "pykclient.consumer.assignors.range_assignor.RangeAssignor",
    "roundrobin": "pykclient.consumer.assignors.round_robin_assignor.RoundRobinAssignor",
    "sticky": "pykclient.consumer.assignors.sticky_assignor.StickyAssignor",
    "cooperative-sticky": "pykclient.consumer.assignors.cooperative_sticky_assignor.CooperativeStickyAssignor",
}
_NAMES = ", ".join(_BY_NAME)


def assignor_instances(values: Sequence[Any]) -> list[ConsumerPartitionAssignor]:
    """Return instances for names, dotted names of classes, classes and instances.

    Raises:
        ConfigError: a value is not an assignor.
    """
    assignors: list[ConsumerPartitionAssignor] = []
    for value in values:
        assignor = _instance(value)
        if any(other.name == assignor.name for other in assignors):
            raise ConfigError(f"{KEY}: two assignors have the name {assignor.name!r}")
        assignors.append(assignor)
    return assignors


def _instance(value: Any) -> ConsumerPartitionAssignor:
    given = value
    if isinstance(value, str):
        value = _load(_BY_NAME.get(value, value))
    if isinstance(value, type):
        value = value()
    if not isinstance(value, ConsumerPartitionAssignor):
        raise ConfigError(f"{KEY}: {given!r} is none of {_NAMES}, and no ConsumerPartitionAssignor")
    return value


def _load(name: str) -> Any:
    try:
        return load(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{KEY}: {name!r} is none of {_NAMES}, and not the dotted name of a class ({error})"
        ) from error
