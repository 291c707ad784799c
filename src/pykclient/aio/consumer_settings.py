"""The settings of an AIOKafkaConsumer: KafkaConsumer's, under aiokafka's names where it has others."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

from pykclient.aio.producer_settings import check_security, without_defaults
from pykclient.argument_values import shown
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.errors import ConfigError

#: Settings of aiokafka without a meaning here, whatever their value.
_WITHOUT_EFFECT: Final = frozenset(("consumer_timeout_ms", "rebalance_timeout_ms"))

_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


def consumer_config(config: Mapping[str, Any] | None, settings: dict[str, Any]) -> ConsumerConfig:
    """Return the configuration for ``config`` and keyword arguments.

    Raises:
        ConfigError: a value is invalid. Where aiokafka checks the same, its text begins as aiokafka's.
    """
    _check(settings)
    given = {name: value for name, value in without_defaults(config, settings).items() if name not in _WITHOUT_EFFECT}
    if given.get("max_poll_records", 1) is None:  # no limit, as in aiokafka
        del given["max_poll_records"]
    group_id = given.get("group_id", (config or {}).get("group.id", (config or {}).get("group_id")))
    if group_id is None and given.get("enable_auto_commit") is True:  # aiokafka's default, without effect there
        del given["enable_auto_commit"]
    return ConsumerConfig(config, **given)


def _check(settings: Mapping[str, Any]) -> None:
    if settings.get("api_version") is not None:
        warnings.warn("`api_version` is deprecated and has no effect", DeprecationWarning, stacklevel=4)
    max_records = settings.get("max_poll_records")
    if max_records is not None and (
        isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1
    ):
        raise ConfigError(
            f"`max_poll_records` should be positive Integer, not {shown(max_records)}", key="max.poll.records"
        )
    level = settings.get("isolation_level")
    if isinstance(level, str) and level.lower() not in _ISOLATION_LEVELS:
        raise ConfigError(
            f"Incorrect isolation level {level}: it is {' or '.join(_ISOLATION_LEVELS)}", key="isolation.level"
        )
    check_security(settings)
