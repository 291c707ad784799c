"""The settings of an AIOKafkaProducer: KafkaProducer's, under aiokafka's names where it has others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykclient.argument_values import is_same, shown
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError

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
    """Return the keyword arguments that say something.

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
    _check(settings)
    given = without_defaults(config, settings)
    if "max_batch_size" in given:
        if "batch_size" in given:
            raise ConfigError("max_batch_size is aiokafka's name of batch_size: give one of them")
        given["batch_size"] = given.pop("max_batch_size")
    if given.get("transactional_id") is not None and given.get("enable_idempotence") is False:
        del given["enable_idempotence"]  # aiokafka's default, which it ignores in this case
    if not {"linger_ms", "linger.ms", "queue.buffering.max.ms"} & {*given, *(config or ())}:
        given["linger_ms"] = 0
    return ProducerConfig(config, **given)


def _check(settings: Mapping[str, Any]) -> None:
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
    check_security(settings)


def check_security(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings that aiokafka refuses, too."""
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
