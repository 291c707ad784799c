"""The id that brokers give to a client for its metrics (KIP-714), as callers see it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from pykclient.errors import IllegalStateError

if TYPE_CHECKING:
    from pykclient.clock import Signal


class IdentifiedTelemetry(Protocol):
    """The part of a client's telemetry that knows the id. Thread: any."""

    @property
    def client_instance_id(self) -> UUID | None:
        """The id that a broker has given to this client; None before the first subscription."""

    def adopt(self, client_instance_id: UUID) -> UUID:
        """Use an id that a broker has given to another request of this client. Return the id in use."""

    def awaited(self, signal: Signal) -> AbstractContextManager[None]:
        """Set ``signal`` as soon as there is an id, and connect to a broker if there is no connection."""


def enabled(telemetry: IdentifiedTelemetry | None) -> IdentifiedTelemetry:
    """Return the telemetry of a client.

    Raises:
        IllegalStateError: it is disabled.
    """
    if telemetry is None:
        raise IllegalStateError(
            "telemetry is disabled, so brokers give this client no id: set enable.metrics.push=true"
        )
    return telemetry
