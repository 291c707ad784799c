"""Operations: the methods of the admin client as generators of API calls.

An operation yields the calls that it needs, and goes on once each is done. So the same code runs on a thread that
waits, and on an event loop.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pykclient.admin.admin_call import AdminCall, Deadline
from pykclient.admin.api import AdminApiHandler
from pykclient.admin.results import Results

if TYPE_CHECKING:
    from pykclient.admin.admin_metadata import AdminMetadata
    from pykclient.network.telemetry.client_instance_id import IdentifiedTelemetry

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

Operation = Generator[AdminCall[Any, Any], None, T]


class CallMaker(Protocol):
    """The part of ``AdminComponents`` that operations use."""

    @property
    def metadata(self) -> AdminMetadata: ...

    @property
    def telemetry(self) -> IdentifiedTelemetry | None: ...

    def call(self, handler: AdminApiHandler[K, V], keys: Collection[K], deadline: Deadline) -> AdminCall[K, V]: ...


class CallContext:
    """Makes the calls of one operation, which share its deadline."""

    __slots__ = ("_maker", "deadline")

    def __init__(self, maker: CallMaker, deadline: Deadline) -> None:
        self._maker = maker
        self.deadline = deadline

    @property
    def metadata(self) -> AdminMetadata:
        return self._maker.metadata

    @property
    def telemetry(self) -> IdentifiedTelemetry | None:
        return self._maker.telemetry

    def run(self, handler: AdminApiHandler[K, V], keys: Collection[K]) -> Operation[Results[K, V]]:
        """Make a call for ``keys`` and return its results; without keys, nothing is sent."""
        call = self._maker.call(handler, keys, self.deadline)
        if keys:
            yield call
        return call.results

    def ask(self, handler: AdminApiHandler[None, V]) -> Operation[V]:
        """Make a call that has a single answer, and return it.

        Raises:
            KafkaError: the call has failed.
        """
        results = yield from self.run(handler, (None,))
        return results[None]
