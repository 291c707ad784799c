"""The APIs that brokers serve. Each is a module named after it, loaded on first use.

A module has ``API_KEY``; ``VERSIONS``, the oldest and newest version it serves; ``handle(broker, request)``, which
answers the request, now or later; and ``error_response(body, code, message)``, which returns a response with only an
error, or None if the protocol has no place for one. ``BROKER_ONLY`` is True in modules that serve other brokers only.
``UNSTABLE_VERSION`` is a version that clients can use with ``unstable.api.versions.enable``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, cast

from pykclient.protocol.api_keys import ApiKeys

if TYPE_CHECKING:
    from pykclient.protocol.message import Response
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request


class Handler(Protocol):
    """The interface of this package's modules. Thread: loop."""

    API_KEY: int
    VERSIONS: tuple[int, int]

    def handle(self, broker: Broker, request: Request) -> None:
        """Handle a request. A BrokerError that this raises becomes the response."""

    def error_response(self, body: Any, code: int, message: str | None = None) -> Response | None:
        """Return a response that contains this error wherever it can. None if the request gets no response (acks=0)."""


_loaded: dict[int, Handler | None] = {}


def handler(api_key: int) -> Handler | None:
    """Return the module that serves the API, or None if there is none."""
    try:
        return _loaded[api_key]
    except KeyError:
        name = f"{__name__}.{ApiKeys.name_of(api_key).lower()}"
        found = cast(Handler, import_module(name)) if find_spec(name) is not None else None
        _loaded[api_key] = found
        return found


def is_broker_only(api_handler: Handler) -> bool:
    """Return whether the API is only for brokers."""
    return getattr(api_handler, "BROKER_ONLY", False)
