"""A tree of nodes with versions, sessions and one-time watches: ZooKeeper's semantics, in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pykclient.errors import IllegalArgumentError, KafkaError
from pykclient.testing.coordination import znodes
from pykclient.testing.event_loop import EventLoop, TimerHandle


class CoordinationError(KafkaError):
    """The base class of errors of the service and of the connection to it."""


class NoNodeError(CoordinationError):
    """No node exists at the path."""


class NodeExistsError(CoordinationError):
    """A node exists at the path already."""


class BadVersionError(CoordinationError):
    """The node was changed since its version was read."""


class NotEmptyError(CoordinationError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemeralsError(CoordinationError):
    """An ephemeral node has no children."""


class ConnectionLossError(CoordinationError):
    """The service is not reachable; the session may still be alive."""


class SessionExpiredError(CoordinationError):
    """The service has expired the session and removed its ephemeral nodes."""


#: As a version: any.
ANY_VERSION: Final = -1

# The events that a watch reports (ZooKeeper: Watcher.Event.EventType).
NODE_CREATED: Final = "NODE_CREATED"

NODE_DELETED: Final = "NODE_DELETED"

NODE_DATA_CHANGED: Final = "NODE_DATA_CHANGED"

NODE_CHILDREN_CHANGED: Final = "NODE_CHILDREN_CHANGED"


class WatchedEvent(NamedTuple):
    """An event at a path. It does not contain the new data."""

    type: str
    path: str


class Stat(NamedTuple):
    """A node's state: the transaction that created it, and the version of its data."""

    czxid: int
    version: int


class Create(NamedTuple):
    """In ``multi``: create a node. ``sequential`` appends ten digits that count up under one parent."""

    path: str
    data: Any = None
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """In ``multi``: write a node's data."""

    path: str
    data: Any
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """In ``multi``: remove a node."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """In ``multi``: require that the node has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


@dataclass(slots=True)
class _Node:
    data: Any
    czxid: int
    owner: int  # the session of an ephemeral node, otherwise 0
    version: int = 0
    created: int = 0  # the number of the next sequential child
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(self.czxid, self.version)


@dataclass(slots=True, eq=False)
class Session:
    """A client's session. It lives until it is closed, or has been without contact for ``timeout_ms``.

    ``on_event`` gets the events of its watches in order while it has contact; events in between are delivered
    afterwards. ``on_expired`` is called if the session expires while it has contact. Thread: loop.
    """

    id: int
    name: str
    timeout_ms: int
    on_event: Callable[[WatchedEvent], None]
    on_expired: Callable[[], None]
    alive: bool = True
    in_contact: bool = True
    expiry: TimerHandle | None = None
    ephemerals: dict[str, None] = field(default_factory=dict)
    events: deque[WatchedEvent] = field(default_factory=deque)  # not yet delivered


class CoordinationService:
    """A store in which every call is atomic and sees all previous writes. It outlives all brokers.

    Nodes hold values that nobody changes.

    A reading call sets a watch. The watch fires once, and its event is delivered through the loop, after the call that
    caused it. Thread: loop.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._zxid = 0
        self._next_session_id = 1
        self._nodes: dict[str, _Node] = {"/": _Node(None, 0, 0)}
        self._sessions: dict[int, Session] = {}
        # Insertion order is the order in which watches were set, and in which they fire.
        self._data_watches: dict[str, dict[int, None]] = {}  # also for nodes that do not exist yet
        self._child_watches: dict[str, dict[int, None]] = {}
        for path in znodes.PERSISTENT_PATHS:
            self.create(path)

    # --- sessions --------------------------------------------------------------------------------------------------

    def create_session(
        self,
        name: str,
        timeout_ms: int,
        on_event: Callable[[WatchedEvent], None],
        on_expired: Callable[[], None] = lambda: None,
    ) -> Session:
        session = Session(self._next_session_id, name, timeout_ms, on_event, on_expired)
        self._next_session_id += 1
        self._sessions[session.id] = session
        return session

    def close_session(self, session: Session) -> None:
        """End a session, and so its ephemeral nodes and watches. Do nothing if it has ended already."""
        if not session.alive:
            return
        session.alive = False
        del self._sessions[session.id]
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        session.events.clear()
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, watchers in watches.items() if session.id in watchers]:
                del watches[path][session.id]
        if session.ephemerals:
            self._zxid += 1
            for path in list(session.ephemerals):
                self._remove(path)

    def contact_lost(self, session: Session) -> None:
        """Record lost contact. The session expires unless ``contact_regained`` is called in time."""
        if session.alive and session.in_contact:
            session.in_contact = False
            session.expiry = self._loop.call_later(session.timeout_ms, self.close_session, session)

    def contact_regained(self, session: Session) -> None:
        """Record regained contact, and deliver missed events. Do nothing if the session has expired."""
        if not session.alive or session.in_contact:
            return
        session.in_contact = True
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        for _ in session.events:
            self._loop.call_soon(self._deliver_next, session)

    def expire_session(self, session: Session) -> None:
        """Expire a session although it has contact (fault injection)."""
        if session.alive:
            self.close_session(session)
            if session.in_contact:
                self._loop.call_soon(session.on_expired)

    @property
    def sessions(self) -> Sequence[Session]:
        """The live sessions, oldest first."""
        return list(self._sessions.values())

    # --- reading ---------------------------------------------------------------------------------------------------

    def get_data(self, path: str, watcher: Session | None = None) -> tuple[Any, Stat]:
        """Return a node's data and state, and set a watch if there is a ``watcher``.

        Raises:
            NoNodeError: the node does not exist; no watch is set.
        """
        node = self._existing(path)
        if watcher is not None:
            self._watch(self._data_watches, path, watcher)
        return node.data, node.stat()

    def exists(self, path: str, watcher: Session | None = None) -> Stat | None:
        """Return a node's state or None. The watch also reports the creation of the node."""
        if watcher is not None:
            self._watch(self._data_watches, path, watcher)
        node = self._nodes.get(path)
        return node.stat() if node is not None else None

    def get_children(self, path: str, watcher: Session | None = None) -> list[str]:
        """Return the sorted names of the children, without the path.

        Raises:
            NoNodeError: the node does not exist; no watch is set.
        """
        node = self._existing(path)
        if watcher is not None:
            self._watch(self._child_watches, path, watcher)
        return sorted(node.children)

    # --- writing ---------------------------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: Any = None,
        *,
        session: Session | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """Create a node; return its path and state.

        Raises:
            NodeExistsError: the node exists.
            NoNodeError: the parent does not exist.
            NoChildrenForEphemeralsError: the parent is ephemeral.
        """
        (made,) = self.multi([Create(path, data, ephemeral, sequential)], session)
        if made is None:
            raise NoNodeError(path)
        return made, self._nodes[made].stat()

    def set_data(self, path: str, data: Any, version: int = ANY_VERSION, *, session: Session | None = None) -> Stat:
        """Write a node's data; return its new state.

        Raises:
            NoNodeError, BadVersionError: the node does not exist, or has another version.
        """
        self.multi([SetData(path, data, version)], session)
        return self._nodes[path].stat()

    def delete(self, path: str, version: int = ANY_VERSION, *, session: Session | None = None) -> None:
        """Delete a node.

        Raises:
            NoNodeError, BadVersionError, NotEmptyError: the node does not exist, has another version, or has children.
        """
        self.multi([Delete(path, version)], session)

    def multi(self, operations: Sequence[Operation], session: Session | None = None) -> list[str | None]:
        """Execute all operations or, if one of them fails, none; return the paths created by each Create.

        Raises:
            CoordinationError: the error of the first operation that fails.
        """
        if session is not None and not session.alive:
            raise SessionExpiredError(f"the session of {session.name} has expired")
        # path -> its future (version, children, is ephemeral), or None if deleted.
        pending: dict[str, tuple[int, int, bool] | None] = {}
        for operation in operations:
            self._validate(operation, session, pending)
        self._zxid += 1
        return [self._apply(operation, session) for operation in operations]

    def _validate(
        self, operation: Operation, session: Session | None, pending: dict[str, tuple[int, int, bool] | None]
    ) -> None:
        """Check that an operation will be possible after those that made ``pending``, without executing any."""
        path = operation.path
        if isinstance(operation, Create):
            _check_path(path)
            if operation.ephemeral and session is None:
                raise IllegalArgumentError(f"an ephemeral node needs a session: {path}")
            parent_path = _parent(path)
            parent = self._pending_state(parent_path, pending)
            if parent is None:
                raise NoNodeError(parent_path)
            if parent[2]:
                raise NoChildrenForEphemeralsError(parent_path)
            if not operation.sequential:
                if self._pending_state(path, pending) is not None:
                    raise NodeExistsError(path)
                pending[path] = (0, 0, operation.ephemeral)
            pending[parent_path] = (parent[0], parent[1] + 1, parent[2])
            return
        state = self._pending_state(path, pending)
        if state is None:
            raise NoNodeError(path)
        version, children, ephemeral = state
        if operation.version not in (ANY_VERSION, version):
            raise BadVersionError(f"{path} has version {version}, not {operation.version}")
        if isinstance(operation, SetData):
            pending[path] = (version + 1, children, ephemeral)
        elif isinstance(operation, Delete):
            if path == "/":
                raise IllegalArgumentError("the root cannot be deleted")
            if children:
                raise NotEmptyError(path)
            pending[path] = None
            parent_path = _parent(path)
            parent = self._pending_state(parent_path, pending)
            if parent is not None:
                pending[parent_path] = (parent[0], parent[1] - 1, parent[2])

    def _pending_state(
        self, path: str, pending: dict[str, tuple[int, int, bool] | None]
    ) -> tuple[int, int, bool] | None:
        if path in pending:
            return pending[path]
        node = self._nodes.get(path)
        return None if node is None else (node.version, len(node.children), node.owner != 0)

    def _apply(self, operation: Operation, session: Session | None) -> str | None:
        path = operation.path
        if isinstance(operation, Create):
            return self._insert(operation, session)
        if isinstance(operation, SetData):
            node = self._nodes[path]
            node.data = operation.data
            node.version += 1
            self._fire(self._data_watches, path, NODE_DATA_CHANGED)
        elif isinstance(operation, Delete):
            self._remove(path)
        return None

    def _insert(self, operation: Create, session: Session | None) -> str:
        path = operation.path
        parent_path = _parent(path)
        parent = self._nodes[parent_path]
        if operation.sequential:
            path = f"{path}{parent.created:010d}"
        owner = session.id if operation.ephemeral and session is not None else 0
        self._nodes[path] = _Node(operation.data, self._zxid, owner)
        if owner and session is not None:
            session.ephemerals[path] = None
        parent.children.add(_name(path))
        parent.created += 1
        self._fire(self._data_watches, path, NODE_CREATED)
        self._fire(self._child_watches, parent_path, NODE_CHILDREN_CHANGED)
        return path

    def _remove(self, path: str) -> None:
        node = self._nodes.pop(path)
        owner = self._sessions.get(node.owner)
        if owner is not None:
            owner.ephemerals.pop(path, None)
        parent_path = _parent(path)
        parent = self._nodes[parent_path]
        parent.children.discard(_name(path))
        # A session that watches both the data and the children of a node gets one event for its deletion.
        heard = self._fire(self._data_watches, path, NODE_DELETED)
        self._fire(self._child_watches, path, NODE_DELETED, heard)
        self._fire(self._child_watches, parent_path, NODE_CHILDREN_CHANGED)

    # --- watches ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _watch(watches: dict[str, dict[int, None]], path: str, session: Session) -> None:
        if not session.alive:
            raise SessionExpiredError(f"the session of {session.name} has expired")
        watches.setdefault(path, {})[session.id] = None

    def _fire(
        self, watches: dict[str, dict[int, None]], path: str, type: str, heard: dict[int, None] | None = None
    ) -> dict[int, None] | None:
        watchers = watches.pop(path, None)
        if watchers:
            event = WatchedEvent(type, path)
            for session_id in watchers:
                if heard is None or session_id not in heard:
                    session = self._sessions[session_id]
                    session.events.append(event)
                    self._loop.call_soon(self._deliver_next, session)
        return watchers

    @staticmethod
    def _deliver_next(session: Session) -> None:
        if session.in_contact and session.events:
            session.on_event(session.events.popleft())

    def _existing(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node


def _check_path(path: str) -> None:
    if not path.startswith("/") or (path.endswith("/") and path != "/") or "//" in path:
        raise IllegalArgumentError(f"not the path of a node: {path!r}")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
