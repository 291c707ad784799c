"""The APIs that brokers serve: one module for each, named after it, loaded when it is first needed.

Such a module has ``API_KEY``; ``VERSIONS``, the oldest and newest version that it serves; ``handle(broker, request)``,
which sees to it that the request is answered, now or later; and ``error_response(body, code, message)``, an answer that
says nothing but an error, or None where the protocol has no place for one. ``BROKER_ONLY`` is True in those that serve
other brokers and are unknown to clients.
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
    """What a module of this package is. Thread: loop."""

    API_KEY: int
    VERSIONS: tuple[int, int]

    def handle(self, broker: Broker, request: Request) -> None:
        """Serve the request; a BrokerError that is raised becomes its answer."""

    def error_response(self, body: Any, code: int, message: str | None = None) -> Response | None:
        """The answer that says this error wherever it can say one; None if this request gets no answers (acks=0)."""


_loaded: dict[int, Handler | None] = {}


def handler(api_key: int) -> Handler | None:
    """The module that serves the API; None if none does."""
    try:
        return _loaded[api_key]
    except KeyError:
        name = f"{__name__}.{ApiKeys.name_of(api_key).lower()}"
        found = cast(Handler, import_module(name)) if find_spec(name) is not None else None
        _loaded[api_key] = found
        return found


def is_broker_only(api_handler: Handler) -> bool:
    """Whether the API is for brokers among themselves."""
    return getattr(api_handler, "BROKER_ONLY", False)
