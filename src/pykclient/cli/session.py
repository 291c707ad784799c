"""The options that all commands with a connection share, and the clients that they amount to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykclient.cli import settings

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin
    from pykclient.cli.column_consumer import ColumnConsumer
    from pykclient.producer.kafka_producer import KafkaProducer

#: The time for one call to the cluster. A person waits at a terminal, so it is shorter than Java's minute.
_DEFAULT_TIMEOUT_MS = 15_000


class Session:
    """The options before and after the command, and the resulting configuration. Thread: owner."""

    def __init__(self) -> None:
        self.bootstrap_servers: str | None = None
        self.config_path: str | None = None
        self.given: dict[str, str] = {}
        self.timeout_ms = _DEFAULT_TIMEOUT_MS
        self.is_json = False
        self.is_debug = False
        self.on_level: Callable[[int], None] = lambda _: None
        self._settings: dict[str, str] | None = None

    def remember(self, field: str, value: Any) -> None:
        """Take the value of a common option, if it was given.

        Raises:
            UsageError: a setting is not KEY=VALUE.
        """
        match field:
            case "bootstrap_servers" if value is not None:
                self.bootstrap_servers = value
            case "config" if value is not None:
                self.config_path = value
            case "set" if value:
                self.given.update(settings.assignments(value))
            case "timeout" if value is not None:
                self.timeout_ms = max(1, value)
            case "json" if value:
                self.is_json = True
            case "verbose" if value:
                self.on_level(logging.INFO)
            case "debug" if value:
                self.is_debug = True
                self.on_level(logging.DEBUG)

    def settings(self) -> dict[str, str]:
        """Return the given settings by dotted name: from the file, the environment, and the command line.

        Raises:
            ConfigError: a key is unknown, or the file is wrong.
            UsageError: a secret stands on the command line.
        """
        if self._settings is None:
            given = dict(self.given)
            if self.bootstrap_servers is not None:
                given["bootstrap.servers"] = self.bootstrap_servers
            self._settings = settings.merged(self.config_path, given)
        return self._settings

    def admin(self) -> Admin:
        """Return an admin client."""
        from pykclient.admin.admin import Admin
        from pykclient.config.admin_config import AdminClientConfig

        return Admin(settings.for_client(AdminClientConfig, self.settings(), self.waits()))

    def consumer(self, **overrides: Any) -> ColumnConsumer:
        """Return a consumer of bytes. ``overrides`` take precedence over all settings."""
        from pykclient.cli.column_consumer import ColumnConsumer

        return ColumnConsumer(**self.consumer_settings(**overrides))

    def consumer_settings(self, **overrides: Any) -> dict[str, Any]:
        """Return the settings of a consumer, as keyword arguments."""
        from pykclient.config.consumer_config import ConsumerConfig

        chosen = settings.for_client(ConsumerConfig, self.settings(), self.waits(), overrides)
        return {key.replace(".", "_"): value for key, value in chosen.items()}

    def producer(self, **overrides: Any) -> KafkaProducer[bytes, bytes]:
        """Return a producer of bytes. ``overrides`` take precedence over all settings."""
        from pykclient.config.producer_config import ProducerConfig
        from pykclient.producer.kafka_producer import KafkaProducer

        chosen = settings.for_client(ProducerConfig, self.settings(), self.waits(), overrides)
        return KafkaProducer(chosen)

    def waits(self) -> dict[str, Any]:
        """Return the default time limits of clients, which the user's settings win over."""
        # A request ends before the call, whose error then names the server that has not answered it.
        request_ms = min(30_000, max(1, self.timeout_ms * 9 // 10))
        return {
            "default.api.timeout.ms": self.timeout_ms,
            "max.block.ms": self.timeout_ms,
            "request.timeout.ms": request_ms,
        }
