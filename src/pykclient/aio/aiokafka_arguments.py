"""aiokafka's arguments: the settings that they stand for, and the values that they may have."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from pykclient import topic_names
from pykclient.aio.errors import ArgumentTypeError
from pykclient.argument_values import is_same, shown
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.producer_config import ProducerConfig
from pykclient.consumer import consumer_arguments
from pykclient.errors import ConfigError, IllegalArgumentError
from pykclient.record.record_batch import MAX_INT64
from pykclient.types import OffsetAndMetadata, TopicPartition

C = TypeVar("C", bound=AbstractConfig)
#: aiokafka's values for settings that would mean something else, or nothing, here. Passing them changes nothing.
AIOKAFKA_DEFAULTS: Final[dict[str, object]] = {
    "api_version": None,
    "sasl_kerberos_domain_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_oauth_token_provider": None,
    "sasl_plain_password": None,
    "sasl_plain_username": None,
    "ssl_context": None,
    "transaction_timeout_ms": 60_000,
}
_MECHANISM_KEYS: Final = frozenset(("sasl_mechanism", "sasl.mechanism", "sasl_mechanisms", "sasl.mechanisms"))
_ACKS: Final = ("all", "-1", "0", "1", -1, 0, 1)
_COMPRESSION: Final = ("gzip", "snappy", "lz4", "zstd", "none", None)
_SECURITY: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def without_defaults(config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that differ from their defaults.

    With a password but without a mechanism, that is PLAIN, as in aiokafka; Kafka's default is GSSAPI.
    """
    given = {
        name: value
        for name, value in settings.items()
        if name not in AIOKAFKA_DEFAULTS or not is_same(value, AIOKAFKA_DEFAULTS[name])
    }
    if given.get("sasl_plain_password") is not None and not _MECHANISM_KEYS & {*given, *(config or ())}:
        given["sasl_mechanism"] = "PLAIN"
    return given


def producer_config(config: Mapping[str, Any] | None, settings: dict[str, Any]) -> ProducerConfig:
    """Return the configuration for ``config`` and keyword arguments.

    ``linger_ms`` is 0 unless set: records that are sent in one iteration of the loop share a batch anyway.

    Raises:
        ConfigError: a value is invalid. Where aiokafka checks the same, its text begins as aiokafka's.
    """
    _check_producer(config, settings)
    given = without_defaults(config, settings)
    if "max_batch_size" in given:
        if "batch_size" in given:
            raise ConfigError("max_batch_size is aiokafka's name of batch_size: give one of them")
        given["batch_size"] = given.pop("max_batch_size")
    if given.get("transactional_id") is not None and given.get("enable_idempotence") is False:
        del given["enable_idempotence"]  # aiokafka's default, which it ignores in this case
    if not {"linger_ms", "linger.ms", "queue.buffering.max.ms"} & {*given, *(config or ())}:
        given["linger_ms"] = 0
    return with_known_mechanism(ProducerConfig(config, **given))


def _check_producer(config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
    acks = settings.get("acks", "all")
    if isinstance(acks, bool) or not any(is_same(acks, known) for known in _ACKS):
        raise ConfigError(f"Invalid ACKS parameter: acks is 'all' (or -1), 0 or 1, not {shown(acks)}", key="acks")
    compression = settings.get("compression_type")
    if not any(is_same(compression, known) for known in _COMPRESSION):
        names = ", ".join(name for name in _COMPRESSION if name is not None)
        raise ConfigError(
            f"Invalid compression type! compression_type is one of {names}, not {shown(compression)}",
            key="compression.type",
        )
    if settings.get("enable_idempotence") is True and str(acks) not in ("all", "-1"):
        raise ConfigError(f"acks={acks} not supported if enable_idempotence=True", key="acks")
    check_security(config, settings)


def check_security(config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for security settings that aiokafka rejects too."""
    security = settings.get("security_protocol", _SECURITY[0])
    if security is not None and not any(is_same(security, known) for known in _SECURITY):
        raise ConfigError(
            f"`security_protocol` should be SSL or PLAINTEXT, or with SASL_ before it, not {shown(security)}",
            key="security.protocol",
        )
    own_keys = any(name.startswith(("ssl_", "ssl.")) for name, value in settings.items() if value is not None)
    if security in {"SSL", "SASL_SSL"} and not own_keys:
        raise ConfigError(
            f"`ssl_context` is mandatory if security_protocol=={security!r}: pass one, such as "
            "ssl.create_default_context() to trust the system's authorities, or other settings that start with ssl_",
            key="security.protocol",
        )
    if security in {"SASL_PLAINTEXT", "SASL_SSL"} and not config:
        sasl = {name for name in without_defaults(None, settings) if name.startswith("sasl") and settings.get(name)}
        if not sasl - {"sasl_mechanism", "sasl_plain_username"} and settings.get("sasl_mechanism", "PLAIN") == "PLAIN":
            raise ConfigError(
                "sasl_plain_username and sasl_plain_password required for PLAIN sasl, which is meant if there is no "
                "sasl_mechanism; without them, say which mechanism, such as sasl_mechanism='GSSAPI'",
                key="sasl.mechanism",
            )


def with_known_mechanism(config: C) -> C:
    """Return ``config``, before a client is created from it: a login looks at the mechanism only in ``start``.

    Raises:
        ConfigError: there is no such mechanism.
    """
    if config["security.protocol"].startswith("SASL_"):
        from pykclient.network.authenticator.logins import check_mechanism

        check_mechanism(config["sasl.mechanism"])
    return config


#: Settings of aiokafka without a meaning here, whatever their value.
_WITHOUT_EFFECT: Final = frozenset(("consumer_timeout_ms", "rebalance_timeout_ms"))
_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


def consumer_config(config: Mapping[str, Any] | None, settings: dict[str, Any]) -> ConsumerConfig:
    """Return the configuration for ``config`` and keyword arguments.

    Raises:
        ConfigError: a value is invalid. Where aiokafka checks the same, its text begins as aiokafka's.
    """
    _check_consumer(config, settings)
    given = {name: value for name, value in without_defaults(config, settings).items() if name not in _WITHOUT_EFFECT}
    if given.get("max_poll_records", 1) is None:  # no limit, as in aiokafka
        del given["max_poll_records"]
    group_id = given.get("group_id", (config or {}).get("group.id", (config or {}).get("group_id")))
    if group_id is None and given.get("enable_auto_commit") is True:  # aiokafka's default, without effect there
        del given["enable_auto_commit"]
    return with_known_mechanism(ConsumerConfig(config, **given))


def _check_consumer(config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
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
    check_security(config, settings)


class PrefixPattern:
    """A pattern that matches the beginning of a topic's name, as in aiokafka, or with ``$`` the whole name.

    Implements TopicPattern. Thread: any.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    @property
    def pattern(self) -> str:
        return self._pattern.pattern

    def fullmatch(self, string: str, /) -> object | None:
        """Return a true value if ``string`` begins with a match."""
        return self._pattern.match(string)


def topics_or_pattern(topics: Any, pattern: Any) -> tuple[list[str], PrefixPattern | None]:
    """Return the validated topics or pattern of ``subscribe``, exactly one of which is given.

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
        if not topic_names.is_pair(value):
            raise ArgumentTypeError(topic_names.not_a_partition(value, "partition"))
        checked.append(topic_names.partition(value))
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
        if not topic_names.is_pair(key):
            raise ArgumentTypeError(topic_names.not_a_partition(key, "a key of offsets"))
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
                    f"The target time for partition {topic_names.partition(tp)} is {shown(value)}. The target "
                    "time cannot be negative."
                )
    return consumer_arguments.timestamps(values)
