"""A broker's session with the coordination service, and its watches (Java: ZooKeeperClient)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pykclient.testing.coordination.coordination_errors import ConnectionLossError, SessionExpiredError
from pykclient.testing.coordination.coordination_service import (
    ANY_VERSION,
    NODE_CHILDREN_CHANGED,
    Operation,
    Session,
    Stat,
    WatchedEvent,
)

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker

#: The service's name as a party of links.
PARTY: Final = "coordination"


class StateChangeHandler:
    """Called before and after a session is replaced. Thread: loop."""

    __slots__ = ("after_initializing_session", "before_initializing_session")

    def __init__(
        self, before_initializing_session: Callable[[], None], after_initializing_session: Callable[[], None]
    ) -> None:
        self.before_initializing_session = before_initializing_session
        self.after_initializing_session = after_initializing_session


class CoordinationClient:
    """A client with synchronous calls. They raise ConnectionLossError while the broker has no contact with the service.

    A session without contact for too long expires at the service. The client learns of it when contact returns, calls
    the state change handlers and begins a new session. As everything runs on one loop, contact cannot be lost during a
    callback: code that finds ``connected`` true can finish its work.

    Thread: loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._service = broker.cluster.coordination
        self._session_timeout_ms = broker.config.get_int("zookeeper.session.timeout.ms")
        self._log = broker.log_context.logger(__name__)
        self._session: Session | None = None
        self._out_of_contact: set[str] = set()  # by reason
        self._node_handlers: dict[str, Callable[[str], None]] = {}
        self._child_handlers: dict[str, Callable[[], None]] = {}
        self._state_change_handlers: list[StateChangeHandler] = []
        self._reconnect_listeners: list[Callable[[], None]] = []

    # --- the session -----------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Begin the session. A session left over from before a restart ends.

        Kafka would wait for the old session to expire before it registers again.
        """
        name = f"broker-{self._broker.id}"
        for session in self._service.sessions:
            if session.name == name:
                self._service.close_session(session)
        self._session = self._new_session()
        self._broker.faults.links.subscribe(self._links_changed)
        self._links_changed()

    def _new_session(self) -> Session:
        return self._service.create_session(
            f"broker-{self._broker.id}", self._session_timeout_ms, self._on_event, self._on_expired
        )

    def close(self) -> None:
        """End the session and so its ephemeral nodes. Without contact, they stay until the session expires."""
        if self._session is not None and not self._out_of_contact:
            self._service.close_session(self._session)
        self._session = None

    def _links_changed(self) -> None:
        links, party = self._broker.faults.links, self._broker.party
        if not self._broker.alive:
            links.unsubscribe(self._links_changed)
        elif links.is_cut(party, PARTY) or links.is_cut(PARTY, party):
            self.contact_lost("cut off")
        elif "cut off" in self._out_of_contact:
            self.contact_regained("cut off")

    @property
    def session_id(self) -> int:
        """The id of the current session, even without contact; 0 if there is none."""
        return self._session.id if self._session is not None else 0

    @property
    def connected(self) -> bool:
        """True if calls reach the service, with a live session."""
        return self._session is not None and self._session.alive and not self._out_of_contact

    def contact_lost(self, reason: str = "silent") -> None:
        """Note that the broker is cut off, paused or dead (``reason``). Several reasons may hold at a time."""
        self._out_of_contact.add(reason)
        if self._session is not None:
            self._service.contact_lost(self._session)

    def contact_regained(self, reason: str = "silent") -> None:
        """Remove one reason. After the last, the session continues, or a new one begins."""
        self._out_of_contact.discard(reason)
        if self._session is None or self._out_of_contact:
            return
        if self._session.alive:
            self._service.contact_regained(self._session)
            for listener in list(self._reconnect_listeners):
                listener()
        else:
            self._reinitialize()

    def expire(self) -> None:
        """Make the service expire the session despite its contact: a fault."""
        if self._session is not None:
            self._service.expire_session(self._session)

    def _on_expired(self) -> None:
        if self._session is not None and not self._session.alive and not self._out_of_contact:
            self._reinitialize()

    def _reinitialize(self) -> None:
        self._log.info("The session with the coordination service has expired; a new one begins")
        for handler in list(self._state_change_handlers):
            handler.before_initializing_session()
        self._session = self._new_session()
        for handler in list(self._state_change_handlers):
            handler.after_initializing_session()
        for listener in list(self._reconnect_listeners):
            listener()

    def _ensure_session(self) -> Session:
        session = self._session
        if session is None or self._out_of_contact:
            raise ConnectionLossError(f"broker {self._broker.id} cannot reach the coordination service")
        if not session.alive:
            raise SessionExpiredError(f"the session of broker {self._broker.id} has expired")
        return session

    # --- handlers --------------------------------------------------------------------------------------------------

    def register_state_change_handler(self, handler: StateChangeHandler) -> None:
        self._state_change_handlers.append(handler)

    def register_reconnect_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` each time the service becomes reachable again."""
        self._reconnect_listeners.append(listener)

    def register_node_change_handler(self, path: str, handler: Callable[[str], None]) -> None:
        """Call ``handler`` with the type of each change that a watch sees. Reading ``path`` sets the watch."""
        self._node_handlers[path] = handler

    def register_node_change_handler_and_check_existence(self, path: str, handler: Callable[[str], None]) -> bool:
        self._node_handlers[path] = handler
        return self.exists(path) is not None

    def unregister_node_change_handler(self, path: str) -> None:
        self._node_handlers.pop(path, None)

    def register_child_change_handler(self, path: str, handler: Callable[[], None]) -> None:
        """Call ``handler`` after a change among the children of ``path``. Reading them sets the watch."""
        self._child_handlers[path] = handler

    def unregister_child_change_handler(self, path: str) -> None:
        self._child_handlers.pop(path, None)

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type == NODE_CHILDREN_CHANGED:
            child_handler = self._child_handlers.get(event.path)
            if child_handler is not None:
                child_handler()
            return
        handler = self._node_handlers.get(event.path)
        if handler is not None:
            handler(event.type)

    # --- calls -----------------------------------------------------------------------------------------------------

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        """See ``CoordinationService.create``."""
        session = self._ensure_session()
        return self._service.create(path, data, session=session, ephemeral=ephemeral, sequential=sequential)

    def set_data(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return self._service.set_data(path, data, version, session=self._ensure_session())

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._service.delete(path, version, session=self._ensure_session())

    def multi(self, operations: Sequence[Operation]) -> list[str | None]:
        return self._service.multi(operations, self._ensure_session())

    def get_data(self, path: str) -> tuple[bytes, Stat]:
        session = self._ensure_session()
        return self._service.get_data(path, session if path in self._node_handlers else None)

    def exists(self, path: str) -> Stat | None:
        session = self._ensure_session()
        return self._service.exists(path, session if path in self._node_handlers else None)

    def get_children(self, path: str) -> list[str]:
        session = self._ensure_session()
        return self._service.get_children(path, session if path in self._child_handlers else None)
