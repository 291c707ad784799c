"""librdkafka's configuration, checked as librdkafka checks it and translated into this package's."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from pykclient.config.librdkafka_settings import IGNORED, REFUSED, SETTINGS
from pykclient.confluent.kafka_error import KafkaError, failure

_logger = logging.getLogger(__name__)

PRODUCER, CONSUMER, ADMIN = "P", "C", "A"

_INT_MAX = 2**31 - 1
#: The least memory for a producer's batches, which is librdkafka's default limit of messages, in bytes.
_LEAST_MEMORY = 1 << 30

#: Two names of one property, and the name of which librdkafka's messages speak.
_CANONICAL = {
    "acks": "request.required.acks",
    "auto.commit.enable": "enable.auto.commit",
    "bootstrap.servers": "metadata.broker.list",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "retries": "message.send.max.retries",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}

#: Callbacks of the configuration: the error for an object that cannot be called.
_CALLBACKS: dict[str, type[Exception]] = {
    "error_cb": TypeError,
    "oauth_cb": TypeError,
    "stats_cb": TypeError,
    "throttle_cb": ValueError,
}
_SPECIAL = {PRODUCER: ("on_delivery", "dr_cb", "dr_msg_cb"), CONSUMER: ("on_commit",), ADMIN: ()}

#: librdkafka's properties that its C interface sets with a function of its own, beside the callbacks.
_BY_FUNCTION = frozenset(("default_topic_conf", "interceptors", "msg_order_cmp", "opaque"))
_NOT_SETTABLE = frozenset(("ssl_key", "ssl_certificate", "ssl_ca"))

_SETS = frozenset(("builtin.features", "debug"))
#: The properties that may have fractions; the others that are numbers are integers.
_FLOATS = frozenset(("queue.buffering.max.ms",))
#: What C's strtol and strtod, which librdkafka calls, read of a text. They ignore what follows.
_INTEGER = re.compile(r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([0-9]+))")
_FLOAT = re.compile(r"\s*([+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf))", re.IGNORECASE)
_RESETS = {
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
    "error": "none",
}
_MECHANISMS = frozenset(("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "NONE"))
_EAGER = frozenset(("range", "roundrobin"))
_PARTITIONERS = frozenset(
    ("random", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")
)
#: What brokers decide in groups of the consumer protocol and share groups.
_OF_BROKERS = ("session.timeout.ms", "heartbeat.interval.ms")
_NOT_SHARED = frozenset(
    (
        "auto.offset.reset",
        "consume.callback.max.messages",
        "enable.auto.commit",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.queue.backoff.ms",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "message.copy.max.bytes",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
    )
)
#: librdkafka's acks by name.
_ACKS = {"all": -1}
_COMPRESSION_LEVELS = {"gzip": range(10), "lz4": range(13), "zstd": range(1, 23)}

#: An address at which nothing listens: what a client without ``bootstrap.servers`` connects to.
NOWHERE = "127.0.0.1:1"

#: Settings whose effect this client lacks, reported once for each process.
_told: set[str] = set()


class Configuration:
    """The configuration of one client.

    ``callbacks`` has the functions by their names in the configuration; ``logger`` is the logger of ``logger=``.
    ``text(name)`` and its siblings return the given value of a property or librdkafka's default.
    """

    def __init__(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_share: bool = False) -> None:
        """Check the arguments of a client's constructor.

        Raises:
            TypeError: there is no dict, or a callback cannot be called.
            ValueError: a consumer has no ``group.id``, or a share consumer a property that it cannot have.
            KafkaException: a property is unknown, or has a wrong value.
        """
        self.kind = kind
        self._is_share = is_share
        self.callbacks: dict[str, Callable[..., Any]] = {}
        self.logger: Any = None
        self._values: dict[str, Any] = {}
        given = _given(args, kwargs)
        if kind == CONSUMER and "group.id" not in given:
            raise ValueError("Failed to create consumer: group.id must be set")
        if (topic_settings := given.pop("default.topic.config", None)) is not None:
            given.update(topic_settings)
        for name, value in given.items():
            self._set(str(name), value)
        self._check()

    # --- values ------------------------------------------------------------------------------------------------

    def is_set(self, name: str) -> bool:
        """Return True if the property was given, under any of its names."""
        return _CANONICAL.get(name, name) in self._values

    def value(self, name: str) -> Any:
        """Return the value: an int, a bool or a str, as the property's type is; None if there is none."""
        canonical = _CANONICAL.get(name, name)
        return self._values[canonical] if canonical in self._values else _default(canonical)

    def text(self, name: str) -> str:
        """Return the value of a property of text, "" if there is none."""
        value = self.value(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> int:
        """Return the value of a property that is a number."""
        return int(self.value(name))

    def flag(self, name: str) -> bool:
        """Return the value of a property that is true or false."""
        return bool(self.value(name))

    def _idle_ms(self) -> int:
        """Return the time after which an idle connection is closed; it must exceed that of a request here."""
        idle_ms = self.number("connections.max.idle.ms")
        if not idle_ms:
            return -1
        request_ms = self.number("socket.timeout.ms")
        if self.kind == PRODUCER:
            request_ms = max(request_ms, self.number("request.timeout.ms"))
        elif self.kind == CONSUMER:
            request_ms = max(request_ms, self.number("fetch.wait.max.ms") + 1000)
        return max(idle_ms, request_ms + 1)

    def set_credentials(self, username: str, password: str) -> None:
        """Replace the values of ``sasl.username`` and ``sasl.password``."""
        self._values["sasl.username"], self._values["sasl.password"] = username, password

    # --- reading -----------------------------------------------------------------------------------------------

    def _set(self, name: str, value: Any) -> None:
        if name in _CALLBACKS:
            if not callable(value):
                raise _CALLBACKS[name](f"expected {name} property as a callable function")
            self.callbacks[name] = value
            return
        if name == "logger":
            self.logger = value
            return
        if name in _SPECIAL[self.kind] and not isinstance(value, str):
            if not callable(value):
                raise failure(KafkaError._INVALID_ARG, f"{name} requires a callable object")
            self.callbacks["on_delivery" if name.startswith("dr_") else name] = value
            return
        setting = SETTINGS.get(name)
        if setting is None:
            raise failure(KafkaError._INVALID_ARG, f'No such configuration property: "{name}"')
        if name in _BY_FUNCTION or name.endswith("_cb"):
            raise failure(
                KafkaError._INVALID_ARG, f'Property "{name}" must be set through dedicated .._set_..() function'
            )
        if name in _NOT_SETTABLE:
            raise failure(KafkaError._INVALID_ARG, f'Internal property "{name}" not settable')
        canonical = _CANONICAL.get(name, name)
        if value is None:
            self._values.pop(canonical, None)
            return
        parsed = _parsed(canonical, str(value))
        self._values[canonical] = parsed
        if parsed == _default(canonical):
            return
        if setting.treatment == REFUSED:
            raise failure(KafkaError._INVALID_ARG, f'Configuration property "{name}" is not supported: {setting.note}')
        foreign = {PRODUCER: "C", CONSUMER: "P"}.get(self.kind)
        if setting.scope == foreign:
            other, this = ("consumer", "producer") if foreign == "C" else ("producer", "consumer")
            _tell(f"Configuration property {name} is a {other} property and will be ignored by this {this} instance")
        elif setting.treatment == IGNORED:
            _tell(f"Configuration property {name} has no effect: {setting.note}")

    def _check(self) -> None:
        """Check the properties against each other."""
        mechanism = self.text("sasl.mechanisms")
        if self.text("security.protocol").startswith("sasl") and mechanism not in _MECHANISMS:
            raise self._refusal(f"Unsupported SASL mechanism: {mechanism}")
        if self.kind == PRODUCER:
            self._check_producer()
        elif self._is_share:
            self._check_share_consumer()
        elif self.kind == CONSUMER:
            self._check_consumer()

    def _check_share_consumer(self) -> None:
        for name in self._values:
            if name in _OF_BROKERS:
                raise ValueError(f"Failed to create share consumer: {_not_supported(name)}. It is defined broker side")
            if name in _NOT_SHARED:
                raise ValueError(f"Failed to create share consumer: `{name}` is not applicable for share consumer")

    def _check_producer(self) -> None:
        if self.text("partitioner") not in _PARTITIONERS:
            raise failure(
                KafkaError._INVALID_ARG,
                f'Invalid value for configuration property "partitioner": {self.text("partitioner")}',
            )
        transactional = bool(self.text("transactional.id"))
        if transactional and self.is_set("enable.idempotence") and not self.flag("enable.idempotence"):
            raise self._refusal("`transactional.id` requires `enable.idempotence=true`")
        if self.is_idempotent:
            if self.is_set("max.in.flight") and self.number("max.in.flight") > 5:
                raise self._refusal("`max.in.flight` must be set <= 5 when `enable.idempotence` is true")
            if self.is_set("acks") and self.number("acks") != -1:
                raise self._refusal("`acks` must be set to `all` when `enable.idempotence` is true")
            if self.is_set("retries") and self.number("retries") < 1:
                raise self._refusal("`retries` must be set >= 1 when `enable.idempotence` is true")
        timeout_ms = self.number("message.timeout.ms")
        if timeout_ms and self.is_set("linger.ms") and timeout_ms <= self.value("linger.ms"):
            raise self._refusal("`message.timeout.ms` must be greater than `linger.ms`")

    def _check_consumer(self) -> None:
        if self.text("group.protocol") == "consumer":
            for name in (*_OF_BROKERS, "partition.assignment.strategy"):
                if self.is_set(name):
                    raise self._refusal(f"{_not_supported(name)}. It is defined broker side")
            return
        if self.number("max.poll.interval.ms") < self.number("session.timeout.ms"):
            raise self._refusal("`max.poll.interval.ms`must be >= `session.timeout.ms`")
        strategies = self.strategies
        for strategy in strategies:
            if strategy not in _EAGER and strategy != "cooperative-sticky":
                raise self._refusal(f"Unsupported partition.assignment.strategy: {strategy}")
        if len({strategy in _EAGER for strategy in strategies}) > 1:
            raise self._refusal(
                f"All partition.assignment.strategy ({','.join(strategies)}) assignors must have the same protocol "
                "type, online migration between assignors with different protocol types is not supported"
            )

    def _refusal(self, text: str) -> Exception:
        kind = {PRODUCER: "producer", CONSUMER: "consumer", ADMIN: "admin client"}[self.kind]
        return failure(KafkaError._INVALID_ARG, f"Failed to create {kind}: {text}")

    # --- derived values ----------------------------------------------------------------------------------------

    @property
    def is_idempotent(self) -> bool:
        """True if the producer numbers its records."""
        return self.flag("enable.idempotence") or bool(self.text("transactional.id"))

    @property
    def strategies(self) -> list[str]:
        """The names of the assignors, in order of preference."""
        return [name.strip() for name in self.text("partition.assignment.strategy").split(",") if name.strip()]

    def native(self) -> dict[str, Any]:
        """Return this package's configuration of the same client."""
        settings = self.common()
        if self.kind == PRODUCER:
            self._of_producer(settings)
        elif self.kind == CONSUMER:
            self._of_consumer(settings)
        return settings

    def common(self) -> dict[str, Any]:
        """Return the settings that all of this package's clients have."""
        settings = self._same(
            *("client.id", "reconnect.backoff.ms", "retry.backoff.ms", "receive.message.max.bytes"),
            *("metadata.recovery.strategy", "enable.metrics.push"),
        )
        settings |= {
            "bootstrap.servers": _servers(self.text("bootstrap.servers")),
            "security.protocol": self.text("security.protocol").upper(),
            "reconnect.backoff.max.ms": max(map(self.number, ("reconnect.backoff.ms", "reconnect.backoff.max.ms"))),
            "retry.backoff.max.ms": max(self.number("retry.backoff.ms"), self.number("retry.backoff.max.ms")),
            "connections.max.idle.ms": self._idle_ms(),
            "metadata.max.age.ms": self.number("topic.metadata.refresh.interval.ms"),
        }
        if settings["metadata.max.age.ms"] < 0:
            settings["metadata.max.age.ms"] = self.number("metadata.max.age.ms")
        if "oauth_cb" in self.callbacks:
            settings["sasl.oauth.token.provider"] = self.callbacks["oauth_cb"]
            settings["sasl.oauthbearer.config"] = self.text("sasl.oauthbearer.config")
        if self.is_set("client.rack") and self.kind == CONSUMER:
            settings |= self._same("client.rack")
        for theirs, ours in (
            ("socket.send.buffer.bytes", "send.buffer.bytes"),
            ("socket.receive.buffer.bytes", "receive.buffer.bytes"),
        ):
            if self.number(theirs):
                settings[ours] = self.number(theirs)
        setup_ms = self.number("socket.connection.setup.timeout.ms")
        settings["socket.connection.setup.timeout.ms"] = setup_ms
        settings["socket.connection.setup.timeout.max.ms"] = setup_ms
        settings |= self._same(*filter(self.is_set, ("client.dns.lookup", "metadata.recovery.rebootstrap.trigger.ms")))
        self._security(settings)
        return settings

    def _same(self, *names: str) -> dict[str, Any]:
        """Return properties that have the same names and values here."""
        return {name: "" if (value := self.value(name)) is None else value for name in names}

    def _security(self, settings: dict[str, Any]) -> None:
        protocol = settings["security.protocol"]
        if "SSL" in protocol:
            self._tls(settings)
        if "SASL" in protocol:
            mechanism = settings["sasl.mechanism"] = self.text("sasl.mechanisms")
            if mechanism == "GSSAPI":
                settings |= self._same("sasl.kerberos.service.name")
            elif mechanism == "OAUTHBEARER":
                self._oauth(settings)
            else:
                settings |= self._same("sasl.username", "sasl.password")

    def _tls(self, settings: dict[str, Any]) -> None:
        for theirs, ours in (
            ("ssl.ca.location", "ssl.cafile"),
            ("ssl.certificate.location", "ssl.certfile"),
            ("ssl.key.location", "ssl.keyfile"),
            ("ssl.key.password", "ssl.key.password"),
            ("ssl.crl.location", "ssl.crlfile"),
            ("ssl.cipher.suites", "ssl.ciphers"),
        ):
            if self.text(theirs):
                settings[ours] = self.text(theirs)
        if settings.get("ssl.cafile") == "probe":
            del settings["ssl.cafile"]
        if self.text("ssl.ca.pem"):
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.certificates"] = self.text("ssl.ca.pem")
        if self.text("ssl.certificate.pem") or self.text("ssl.key.pem"):
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.certificate.chain"] = self.text("ssl.certificate.pem")
            settings["ssl.keystore.key"] = self.text("ssl.key.pem")
        elif self.text("ssl.keystore.location"):
            settings["ssl.keystore.type"] = "PKCS12"
            settings |= self._same("ssl.keystore.location", "ssl.keystore.password")
        settings["ssl.endpoint.identification.algorithm"] = (
            "https" if self.text("ssl.endpoint.identification.algorithm") == "https" else ""
        )
        if not self.flag("enable.ssl.certificate.verification"):
            settings["enable.ssl.certificate.verification"] = False

    def _oauth(self, settings: dict[str, Any]) -> None:
        if "oauth_cb" in self.callbacks:
            return  # whose tokens are used
        if self.text("sasl.oauthbearer.method") == "oidc":
            for name, setting in SETTINGS.items():
                ours = setting.note
                if ours.startswith("sasl.oauthbearer.") and ours != "sasl.oauthbearer.config" and self.is_set(name):
                    settings[ours] = self.value(name)
            if self.text("sasl.oauthbearer.grant.type").endswith("jwt-bearer"):
                settings["sasl.oauthbearer.jwt.retriever.class"] = (
                    "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
                )
        elif self.flag("enable.sasl.oauthbearer.unsecure.jwt"):
            settings["sasl.jaas.config"] = _unsecured_login(self.text("sasl.oauthbearer.config"))

    def _of_producer(self, settings: dict[str, Any]) -> None:
        linger_ms = math.ceil(self.value("linger.ms"))
        timeout_ms = self.number("message.timeout.ms") or _INT_MAX
        if linger_ms >= timeout_ms:
            linger_ms = max(0, timeout_ms - 1)
        queue_bytes = self.number("queue.buffering.max.kbytes") * 1024
        settings |= self._same("acks", "retries") | {
            "linger.ms": linger_ms,
            "delivery.timeout.ms": timeout_ms,
            "request.timeout.ms": max(1, min(self.number("request.timeout.ms"), timeout_ms - linger_ms)),
            "batch.size": min(self.number("batch.size"), self.number("message.max.bytes"), queue_bytes),
            "max.request.size": self.number("message.max.bytes") + 1024,
            # librdkafka's limit is one of messages, which Reports counts. The memory for batches must not be the
            # narrower one: each partition has a batch of its own, however few messages there are.
            "buffer.memory": max(queue_bytes, _LEAST_MEMORY),
            "compression.type": self.text("compression.codec"),
            "enable.idempotence": self.is_idempotent,
            "max.in.flight.requests.per.connection": (
                min(5, self.number("max.in.flight")) if self.is_idempotent else self.number("max.in.flight")
            ),
        }
        codec, level = settings["compression.type"], self.number("compression.level")
        if level >= 0 and level in _COMPRESSION_LEVELS.get(codec, ()):
            settings[f"compression.{codec}.level"] = level
        if self.text("transactional.id"):
            settings |= self._same("transactional.id", "transaction.timeout.ms")

    def _of_consumer(self, settings: dict[str, Any]) -> None:
        settings |= self._same(
            *("group.id", "allow.auto.create.topics", "check.crcs", "fetch.min.bytes", "max.partition.fetch.bytes"),
            *("max.poll.interval.ms", "isolation.level", "group.protocol"),
        )
        settings |= {
            "enable.auto.commit": False,  # the consumer commits what it has handed out, not what it has fetched
            "auto.offset.reset": _RESETS[self.text("auto.offset.reset")],
            "fetch.max.bytes": max(self.number("fetch.max.bytes"), 0),
            "fetch.max.wait.ms": self.number("fetch.wait.max.ms"),
            "request.timeout.ms": max(self.number("socket.timeout.ms"), self.number("fetch.wait.max.ms") + 1000),
            "exclude.internal.topics": False,
        }
        settings["default.api.timeout.ms"] = max(60_000, settings["request.timeout.ms"])
        if self.text("group.instance.id"):
            settings |= self._same("group.instance.id")
        if settings["group.protocol"] == "consumer":
            if self.text("group.remote.assignor"):
                settings |= self._same("group.remote.assignor")
        else:
            session_ms = self.number("session.timeout.ms")
            settings["session.timeout.ms"] = session_ms
            settings["heartbeat.interval.ms"] = min(self.number("heartbeat.interval.ms"), max(1, session_ms // 3))
            settings["partition.assignment.strategy"] = self.strategies


def _not_supported(name: str) -> str:
    return f"`{name}` is not supported for `group.protocol=consumer` or share consumer"


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if len(args) > 1:
        raise TypeError("expected tuple containing single dict")
    if args:
        if not isinstance(args[0], Mapping):
            raise TypeError("expected configuration dict")
        return {**args[0], **kwargs}
    if not kwargs:
        raise TypeError("expected configuration dict")
    return dict(kwargs)


def _default(name: str) -> Any:
    default = SETTINGS[name].default
    return _parsed(name, default) if default else None


def _parsed(name: str, text: str) -> Any:
    """Return the value that ``text`` means for a property.

    Raises:
        KafkaException: the property cannot have this value.
    """
    values = SETTINGS[name].values
    if values == "true, false":
        lowered = text.lower()
        if not text:
            raise failure(KafkaError._INVALID_ARG, f'Bool configuration property "{name}" cannot be set to empty value')
        if lowered in {"true", "t", "1"}:
            return True
        if lowered in {"false", "f", "0"}:
            return False
        raise failure(KafkaError._INVALID_ARG, f'Expected bool value for "{name}": true or false')
    if " .. " in values:
        low, high = map(int, values.split(" .. "))
        if name == "request.required.acks" and text.lower() in _ACKS:
            return _ACKS[text.lower()]
        number = _number(name, text)
        if not low <= number <= high:
            shown = f"{number:g}" if name in _FLOATS else number
            raise failure(
                KafkaError._INVALID_ARG,
                f'Configuration property "{name}" value {shown} is outside allowed range {low}..{high}\n',
            )
        return number
    if values:
        if not text:
            raise failure(KafkaError._INVALID_ARG, f'Configuration property "{name}" cannot be set to empty value')
        allowed = values.split(", ")
        parts = [part.strip() for part in text.split(",")] if name in _SETS else [text]
        if not all(part.lower() in allowed for part in parts):
            raise failure(KafkaError._INVALID_ARG, f'Invalid value "{text}" for configuration property "{name}"')
        return text.lower()
    return text


def _number(name: str, text: str) -> float:
    """Return the number at the beginning of ``text``: an int, or a float if the property may have a fraction."""
    if not text:
        kind = "Float" if name in _FLOATS else "Integer"
        raise failure(KafkaError._INVALID_ARG, f'{kind} configuration property "{name}" cannot be set to empty value')
    found = _INTEGER.match(text)
    integer = None
    if found is not None:
        sign, hexadecimal, octal, decimal = found.groups()
        magnitude = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
        integer = -magnitude if sign == "-" else magnitude
    if name in _FLOATS and (found is None or not found[2]):
        found = _FLOAT.match(text)
        if found is not None:
            return float(found[1])
    if integer is None:
        raise failure(KafkaError._INVALID_ARG, f'Invalid value for configuration property "{name}"')
    return integer


def _servers(text: str) -> list[str]:
    """Return the addresses of ``bootstrap.servers``: without the protocol, with librdkafka's default port."""
    servers = []
    for part in text.split(","):
        address = part.strip().rpartition("://")[2]
        if address:
            has_port = "]:" in address or (address.count(":") == 1)
            servers.append(address if has_port else f"{address}:9092")
    if not servers:
        _tell("No `bootstrap.servers` configured: client will not be able to connect to Kafka cluster")
    return servers or [NOWHERE]


def _unsecured_login(config: str) -> str:
    """Return the JAAS entry for an unsecured token, made of librdkafka's ``sasl.oauthbearer.config``."""
    fields = dict(part.split("=", 1) for part in config.split() if "=" in part)
    options = {
        f"unsecuredLoginStringClaim_{fields.get('principalClaimName', 'sub')}": fields.get("principal", ""),
        "unsecuredLoginLifetimeSeconds": fields.get("lifeSeconds", "3600"),
    }
    if "scope" in fields:
        options["unsecuredLoginStringClaim_scope"] = fields["scope"]
    for name, value in fields.items():
        if name.startswith("extension_"):
            options[f"unsecuredLoginExtension_{name.removeprefix('extension_')}"] = value
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return f"{module} required " + " ".join(f'{name}="{value}"' for name, value in options.items()) + ";"


def _tell(text: str) -> None:
    if text not in _told:
        _told.add(text)
        _logger.warning("%s", text)
