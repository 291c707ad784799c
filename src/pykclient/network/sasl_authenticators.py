"""The authenticators of a client's connections, for SASL_PLAINTEXT and SASL_SSL (Java: SaslChannelBuilder)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from pykclient.network.authenticator import Authenticator
from pykclient.network.authenticator.logins import login_for
from pykclient.network.authenticator.sasl_client import Login
from pykclient.network.authenticator.sasl_client_authenticator import SaslClientAuthenticator
from pykclient.network.selectable import SocketAddress
from pykclient.network.transport_layer import TransportLayer


class SaslAuthenticators:
    """Authenticators that share a login. Thread: io."""

    __slots__ = ("_client_id", "_login", "_rng")

    def __init__(self, login: Login, client_id: str, rng: random.Random | None = None) -> None:
        self._login = login
        self._client_id = client_id
        self._rng = rng or random.Random()

    def new_authenticator(
        self,
        id: str,  # noqa: ARG002 - the seam's signature
        address: SocketAddress | None,
        transport: TransportLayer,  # noqa: ARG002
    ) -> Authenticator:
        assert address is not None, "clients connect; they do not accept"
        return SaslClientAuthenticator(self._login, address.host, address.port, self._client_id, self._rng)

    def close(self) -> None:
        self._login.close()


def sasl_authenticators(config: Mapping[str, Any]) -> SaslAuthenticators:
    """Return the authenticators for the ``sasl.*`` keys of a client's configuration.

    Raises:
        ConfigError: the mechanism is unknown, or its credentials are missing or contradictory.
    """
    return SaslAuthenticators(login_for(config), config["client.id"] or "pykclient")
