"""The coordination service compared with a trivial model: dicts, and no watch fires twice."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykclient.testing.coordination.coordination_service import (
    NODE_CHILDREN_CHANGED,
    BadVersionError,
    Check,
    CoordinationError,
    CoordinationService,
    Create,
    Delete,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Session,
    SetData,
    WatchedEvent,
)
from pykclient.testing.event_loop import EventLoop
from tests.support.examples import examples
from tests.support.mock_clock import MockClock

TIMEOUT_MS = 100
ROOT = "/model"
PATHS = [f"{ROOT}{path}" for path in ("/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a")]
OWNERS = (0, 1)

paths = st.sampled_from(PATHS)
versions = st.sampled_from([-1, 0, 1, 2])
data = st.sampled_from([b"", b"1", b"2"])
owners = st.sampled_from(OWNERS)


class ModelNode:
    def __init__(self, value: bytes, owner: int | None) -> None:
        self.value = value
        self.version = 0
        self.owner = owner


class Model:
    """The nodes by path. Each operation works on a copy, so a failed one changes nothing."""

    def __init__(self) -> None:
        self.nodes: dict[str, ModelNode] = {ROOT: ModelNode(b"", None)}

    def children(self, path: str) -> list[str]:
        return sorted(other.removeprefix(f"{path}/") for other in self.nodes if other.rpartition("/")[0] == path)

    def copy(self) -> Model:
        copy = Model()
        for path, node in self.nodes.items():
            copied = copy.nodes[path] = ModelNode(node.value, node.owner)
            copied.version = node.version
        return copy

    def do(self, operation: Operation, owner: int) -> None:
        path = operation.path
        if isinstance(operation, Create):
            parent = self.nodes.get(path.rpartition("/")[0])
            if parent is None:
                raise NoNodeError(path)
            if parent.owner is not None:
                raise NoChildrenForEphemeralsError(path)
            if path in self.nodes:
                raise NodeExistsError(path)
            self.nodes[path] = ModelNode(operation.data, owner if operation.ephemeral else None)
            return
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if operation.version not in (-1, node.version):
            raise BadVersionError(path)
        if isinstance(operation, SetData):
            node.value = operation.data
            node.version += 1
        elif isinstance(operation, Delete):
            if self.children(path):
                raise NotEmptyError(path)
            del self.nodes[path]


operations = st.one_of(
    st.builds(Create, paths, data, st.booleans(), st.just(False)),
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)


class CoordinationMachine(RuleBasedStateMachine):
    """Two clients perform random operations, disconnect, expire and reconnect."""

    @initialize()
    def start(self) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.service = CoordinationService(self.loop)
        self.service.create(ROOT)
        self.model = Model()
        self.watching: dict[tuple[int, str, str], bool] = {}  # (owner, kind, path) -> should have fired
        self.sessions: dict[int, Session] = {}
        for owner in OWNERS:
            self.connect(owner)

    def connect(self, owner: int) -> None:
        def heard(event: WatchedEvent) -> None:
            kind = "children" if event.type == NODE_CHILDREN_CHANGED else "data"
            keys = [(owner, kind, event.path)]
            if event.type == "NODE_DELETED":
                keys.append((owner, "children", event.path))
            fired = [self.watching.pop(key) for key in keys if self.watching.get(key)]
            assert fired, f"{event} was heard by {owner}, who watches for nothing that has happened"

        self.sessions[owner] = self.service.create_session(str(owner), TIMEOUT_MS, heard)

    def mark(self, before: Model) -> None:
        """Mark the watches that the changes since ``before`` should have fired."""
        after = self.model
        for owner, kind, path in self.watching:
            node, previous = after.nodes.get(path), before.nodes.get(path)
            gone_or_new = (node is None) != (previous is None)
            if kind == "data":
                changed = node is not None and previous is not None and node.version != previous.version
            else:
                changed = before.children(path) != after.children(path)
            if gone_or_new or changed:
                self.watching[owner, kind, path] = True

    @rule(batch=st.lists(operations, min_size=1, max_size=4), owner=owners)
    def multi(self, batch: list[Operation], owner: int) -> None:
        session = self.sessions[owner]
        if not session.alive:
            return
        expected = self.model.copy()
        failure: type[Any] | None = None
        try:
            for operation in batch:
                expected.do(operation, owner)
        except CoordinationError as error:
            failure = type(error)
        if failure is not None:
            with pytest.raises(failure):
                self.service.multi(batch, session)
            return
        self.service.multi(batch, session)
        # One at a time, because watches also fire for a change that a later part of the batch undoes.
        for operation in batch:
            before = self.model.copy()
            self.model.do(operation, owner)
            self.mark(before)

    @rule(path=paths, owner=owners, kind=st.sampled_from(["data", "children", "exists"]))
    def watch(self, path: str, owner: int, kind: str) -> None:
        session = self.sessions[owner]
        if not session.alive or self.watching.get((owner, "data" if kind == "exists" else kind, path)):
            return  # a second watch could not be told from the first, whose event is in flight
        with contextlib.suppress(NoNodeError):
            if kind == "data":
                assert self.service.get_data(path, session)[0] == self.model.nodes[path].value
            elif kind == "children":
                assert self.service.get_children(path, session) == self.model.children(path)
            else:
                assert (self.service.exists(path, session) is not None) == (path in self.model.nodes)
            self.watching[owner, "data" if kind == "exists" else kind, path] = False

    @rule()
    def deliver(self) -> None:
        self.loop.run_due()
        assert self.loop.failure is None, self.loop.failure
        late = [key for key, fired in self.watching.items() if fired and self.sessions[key[0]].in_contact]
        assert not late, f"{late} should have been heard"

    @rule(owner=owners)
    def lose_contact(self, owner: int) -> None:
        self.service.contact_lost(self.sessions[owner])

    @rule(owner=owners)
    def regain_contact(self, owner: int) -> None:
        if self.sessions[owner].alive:
            self.service.contact_regained(self.sessions[owner])
        else:
            self.connect(owner)

    @rule(duration_ms=st.sampled_from([TIMEOUT_MS // 2, TIMEOUT_MS]))
    def let_time_pass(self, duration_ms: int) -> None:
        before = {owner: session.alive for owner, session in self.sessions.items()}
        self.deliver()
        self.clock.advance(duration_ms)
        self.loop.next_due_ms()
        self.loop.run_due()
        for owner, was_alive in before.items():
            if was_alive and not self.sessions[owner].alive:
                self.forget(owner)
        self.deliver()

    @rule(owner=owners)
    @precondition(lambda self: all(session.alive for session in self.sessions.values()))
    def close(self, owner: int) -> None:
        self.service.close_session(self.sessions[owner])
        self.forget(owner)

    def forget(self, owner: int) -> None:
        self.watching = {key: fired for key, fired in self.watching.items() if key[0] != owner}
        before = self.model.copy()
        self.model.nodes = {path: node for path, node in self.model.nodes.items() if node.owner != owner}
        self.mark(before)

    @invariant()
    def same(self) -> None:
        for path in PATHS:
            node = self.model.nodes.get(path)
            stat = self.service.exists(path)
            assert (stat is None) == (node is None), path
            if node is not None and stat is not None:
                assert (self.service.get_data(path)[0], stat.version) == (node.value, node.version)
                assert self.service.get_children(path) == self.model.children(path)


TestCoordinationMachine = CoordinationMachine.TestCase
TestCoordinationMachine.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
