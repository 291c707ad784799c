"""The keys that all clients share (Java: CommonClientConfigs), and conversions of their values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pykclient.config.config_def import ConfigKey, ForeignKey, Importance, Type
from pykclient.config.validators import CaseInsensitiveValidString, ValidList, ValidString, at_least

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_logger = logging.getLogger(__name__)

JMX_REPORTER = "org.apache.kafka.common.metrics.JmxReporter"


def none_means(meaning: Any) -> Callable[[Any], Any]:
    """Return a converter for keys that kafka-python programs set to None."""
    return lambda value: meaning if value is None else value


def upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


def lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def serialization_class(value: Any) -> Any:
    """Convert the name of one of Java's serializers to ours of the same name."""
    prefix = "org.apache.kafka.common.serialization."
    if isinstance(value, str) and value.strip().startswith(prefix):
        return value.strip().replace(prefix, "pykclient.serialization.", 1)
    return value


# --- keys whose default differs between clients ----------------------------------------------------------------------


def bootstrap_servers(default: tuple[str, ...] = ("localhost:9092",)) -> ConfigKey:
    return ConfigKey(
        "bootstrap.servers",
        Type.LIST,
        default,
        HIGH,
        "Addresses of brokers to connect to first, as host:port. Without a port, 9092 is tried and a warning logged. "
        "Two or three are enough, as the client learns the rest of the cluster from them. It asks them again when it "
        "has lost all known brokers. Java's clients have no default; this one is kafka-python's.",
        ValidList(empty_allowed=not default),
    )


def client_id(importance: str) -> ConfigKey:
    return ConfigKey(
        "client.id",
        Type.STRING,
        "",
        importance,
        "A name for this client in the brokers' logs, quotas and metrics. If it is empty, the client generates one.",
        convert=none_means(""),
    )


def connections_max_idle_ms(default: int) -> ConfigKey:
    return ConfigKey(
        "connections.max.idle.ms",
        Type.LONG,
        default,
        MEDIUM,
        "Close connections that have been idle for this long. A negative value means never.",
        convert=none_means(-1),
    )


def enable_metrics_push(default: bool) -> ConfigKey:
    return ConfigKey(
        "enable.metrics.push",
        Type.BOOLEAN,
        default,
        LOW,
        "If true, metrics are pushed to the cluster if it requests them (KIP-714).",
    )


# --- keys that are the same for all -----------------------------------------------------------------------------------

DEFAULT_API_TIMEOUT_MS = ConfigKey(
    "default.api.timeout.ms",
    Type.INT,
    60_000,
    MEDIUM,
    "The timeout of all calls that have a timeout parameter and get none. It must be at least "
    "request.timeout.ms, and is raised to that if it is not set.",
    at_least(0),
)


# fmt: off
NETWORK_KEYS = (
    ConfigKey("proxy.url", Type.PASSWORD, None, LOW,
        "The proxy through which the client connects to all brokers: socks5://host:port, or http://host:port for one "
        "with CONNECT, with user:password@ before the host if the proxy wants that. The proxy looks up the brokers' "
        "names. Needs pykclient[proxy]. kafka-python has this key; Java's client does not.", extension=True),
    ConfigKey("client.dns.lookup", Type.STRING, "use_all_dns_ips", MEDIUM,
        "The treatment of host names with several addresses. use_all_dns_ips tries each address in turn. "
        "resolve_canonical_bootstrap_servers_only replaces each bootstrap address by its canonical names.",
        ValidString("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    ConfigKey("metadata.max.age.ms", Type.LONG, 300_000, LOW,
        "The age at which metadata is refreshed even without errors, to discover new brokers and partitions.",
        at_least(0)),
    ConfigKey("receive.buffer.bytes", Type.INT, -1, MEDIUM,
        "The size of the socket's receive buffer (SO_RCVBUF). -1, the default, leaves it to the operating system, "
        "which adapts it to the connection. Java's defaults, 64 KiB for a consumer and 32 KiB for a producer, stop it "
        "from doing so, and make reading up to half as expensive again.", at_least(-1), convert=none_means(-1)),
    ConfigKey("send.buffer.bytes", Type.INT, -1, MEDIUM,
        "The size of the socket's send buffer (SO_SNDBUF). -1, the default, leaves it to the operating system, which "
        "adapts it to the connection. Java's default is 128 KiB.", at_least(-1), convert=none_means(-1)),
    ConfigKey("reconnect.backoff.ms", Type.LONG, 50, LOW,
        "The backoff before reconnecting to a broker after a failure. It doubles with every consecutive failure, up to "
        "reconnect.backoff.max.ms, with a jitter of 20 percent.", at_least(0)),
    ConfigKey("reconnect.backoff.max.ms", Type.LONG, 1_000, LOW,
        "The maximum backoff between attempts to connect to a broker. If only reconnect.backoff.ms is set, this has "
        "the same value, so the backoff is constant.", at_least(0)),
    ConfigKey("retry.backoff.ms", Type.LONG, 100, LOW,
        "The backoff before retrying a failed request. It doubles with every consecutive failure, up to "
        "retry.backoff.max.ms, with a jitter of 20 percent (KIP-580).", at_least(0)),
    ConfigKey("retry.backoff.max.ms", Type.LONG, 1_000, LOW,
        "The maximum backoff between attempts of a request. If it is below retry.backoff.ms, the backoff has this "
        "value from the start.", at_least(0)),
    ConfigKey("request.timeout.ms", Type.INT, 30_000, MEDIUM,
        "The maximum time to wait for the response to one request. After that the client closes the connection, and "
        "retries the request if possible.", at_least(0)),
    ConfigKey("socket.connection.setup.timeout.ms", Type.LONG, 10_000, MEDIUM,
        "The maximum time to establish a connection. It doubles with every consecutive failure."),
    ConfigKey("socket.connection.setup.timeout.max.ms", Type.LONG, 30_000, MEDIUM,
        "The maximum to which socket.connection.setup.timeout.ms grows."),
    ConfigKey("metrics.sample.window.ms", Type.LONG, 30_000, LOW,
        "The length of one sample window of rates and averages.", at_least(0)),
    ConfigKey("metrics.num.samples", Type.INT, 2, LOW,
        "The number of samples from which rates and averages are computed.", at_least(1)),
    ConfigKey("metrics.recording.level", Type.STRING, "INFO", LOW,
        "The most detailed level of metrics to record.", ValidString("INFO", "DEBUG", "TRACE")),
    ConfigKey("metric.reporters", Type.LIST, (JMX_REPORTER,), LOW,
        "Reporters that are notified of every metric (pykclient.metrics.MetricsReporter), as objects, classes or "
        "dotted names of classes. Java's JMX reporter is in the default, as in Java, but has no effect, because Python "
        "has no JMX.", ValidList()),
    ConfigKey("metadata.recovery.strategy", Type.STRING, "rebootstrap", LOW,
        "What to do when no known broker is reachable. rebootstrap starts again from bootstrap.servers (KIP-899, "
        "KIP-1102); none keeps trying the known brokers.",
        CaseInsensitiveValidString("REBOOTSTRAP", "NONE"), convert=lower),
    ConfigKey("metadata.recovery.rebootstrap.trigger.ms", Type.LONG, 300_000, LOW,
        "With metadata.recovery.strategy=rebootstrap: how long metadata may be unavailable before the client starts "
        "again from bootstrap.servers.", at_least(0)),
    ConfigKey("receive.message.max.bytes", Type.INT, INT_MAX, LOW,
        "The maximum size of a broker's response. A larger one closes the connection. Java's client has no such key "
        "and no limit.", at_least(1_000), extension=True),
    ConfigKey("config.providers", Type.LIST, (), LOW,
        "Names of providers that resolve placeholders in other values.",
        ValidList(), unsupported="resolve placeholders before you pass the configuration"),
)
# fmt: on

# --- keys of kafka-python that are not Kafka's ------------------------------------------------------------------------

_OWN_NETWORK = "the network client cannot be replaced"
#: What ``config["api_version"]`` is, by which programs choose what they use: the newest release that the client knows.
_KAFKA_VERSION = (4, 3)

# fmt: off
KAFKA_PYTHON_KEYS = (
    ForeignKey("api.version",
        "the client negotiates versions with every broker", ignored=True, own_value=_KAFKA_VERSION),
    ForeignKey("api.version.auto.timeout.ms", "the client negotiates versions with every broker", ignored=True),
    ForeignKey("bootstrap.timeout.ms",
        "creating a client never waits for the cluster; its calls do, each with its own timeout",
        harmless=(None, 30_000), ignored=True),
    ForeignKey("socket.options",
        "the socket options are fixed (TCP_NODELAY and keep-alive); set buffer sizes with send_buffer_bytes and "
        "receive_buffer_bytes", harmless=(None, [], [(6, 1, 1)])),
    ForeignKey("selector", "the client uses the machine's best selector", ignored=True),
    ForeignKey("metrics.enabled", "metrics are always recorded", harmless=(None, True), ignored=True),
    ForeignKey("kafka.client", _OWN_NETWORK),
    ForeignKey("net", _OWN_NETWORK),
    ForeignKey("socks5.proxy", "use proxy.url, with the same URL"),
)
# fmt: on

# --- rules that span keys --------------------------------------------------------------------------------------------


def apply_common_rules(originals: Mapping[str, Any], values: dict[str, Any]) -> None:
    """Apply the rules that all clients share (Java: CommonClientConfigs)."""
    if "reconnect.backoff.ms" in originals and "reconnect.backoff.max.ms" not in originals:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
    for first, most in (
        ("retry.backoff.ms", "retry.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ):
        if values[first] > values[most]:
            _logger.warning(
                "%s=%d is above %s=%d, which is used from the start", first, values[first], most, values[most]
            )
    values["metric.reporters"] = [reporter for reporter in values["metric.reporters"] if reporter != JMX_REPORTER]
