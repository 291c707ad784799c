"""The admin client's keys (Java: AdminClientConfig)."""

from __future__ import annotations

from typing import Any, ClassVar

from pykclient.config import client_keys as shared
from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.client_keys import HIGH, INT_MAX, LOW, MEDIUM
from pykclient.config.config_def import ConfigDef, ConfigKey, ForeignKey, Type
from pykclient.config.security_keys import SECURITY_KEYS
from pykclient.config.validators import ValidList, between
from pykclient.errors import ConfigError

# fmt: off
_KEYS = (
    shared.bootstrap_servers(default=()),
    ConfigKey("bootstrap.controllers", Type.LIST, (), HIGH,
        "Addresses of controllers to connect to instead of brokers, as host:port (KIP-919). This key and "
        "bootstrap.servers exclude each other. Controllers serve fewer calls than brokers.", ValidList()),
    shared.client_id(MEDIUM),
    shared.connections_max_idle_ms(300_000),
    shared.DEFAULT_API_TIMEOUT_MS,
    shared.enable_metrics_push(False),
    ConfigKey("retries", Type.INT, INT_MAX, LOW,
        "The maximum number of retries of a call after transient errors. Prefer the call's timeout to limit them.",
        between(0, INT_MAX)),
    *shared.NETWORK_KEYS,
    *SECURITY_KEYS,
)
# fmt: on


# fmt: off
_KAFKA_PYTHON_KEYS = (
    *shared.KAFKA_PYTHON_KEYS,
    ForeignKey("max.in.flight.requests.per.connection",
        "a broker handles the requests of a connection one after another", harmless=(None, 5), ignored=True),
)
# fmt: on


class AdminClientConfig(AbstractConfig):
    """An admin client's configuration.

    Raises:
        ConfigError: a key is unknown, or a value is wrong.
    """

    __slots__ = ()

    DEFINITION: ClassVar[ConfigDef] = ConfigDef(_KEYS, _KAFKA_PYTHON_KEYS)

    def _post_process(self, values: dict[str, Any]) -> None:
        shared.apply_common_rules(self.originals, values)
        servers, controllers = values["bootstrap.servers"], values["bootstrap.controllers"]
        if not servers and not controllers:
            if "bootstrap.servers" in self.originals:
                raise ConfigError("bootstrap.servers must not be empty", key="bootstrap.servers")
            values["bootstrap.servers"] = shared.bootstrap_servers().default
        if servers and controllers:
            raise ConfigError(
                "bootstrap.servers and bootstrap.controllers are both set. A client connects either to brokers or to "
                "controllers; create one client for each",
                key="bootstrap.controllers",
            )

    @property
    def bootstrap_key(self) -> str:
        """The key with the addresses of this client: ``bootstrap.servers`` or ``bootstrap.controllers``."""
        return "bootstrap.controllers" if self["bootstrap.controllers"] else "bootstrap.servers"
