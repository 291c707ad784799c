"""SaslHandshake: refused here, as authenticators handle the requests of connections that authenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import IllegalSaslStateError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY: Final = ApiKeys.SASL_HANDSHAKE
VERSIONS: Final = (0, 1)


def handle(broker: Broker, request: Request) -> None:  # noqa: ARG001 - as all handlers
    raise IllegalSaslStateError("SaslHandshake request received on a connection that does not authenticate now")


def error_response(
    body: SaslHandshakeRequest,  # noqa: ARG001 - as all handlers
    code: int,
    message: str | None = None,  # noqa: ARG001
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code)
