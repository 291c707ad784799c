"""The rules of the coordination service, one by one; test_coordination_model tests the service as a whole."""

from __future__ import annotations

import pytest

from pykclient.errors import IllegalArgumentError
from pykclient.testing.coordination.coordination_service import (
    NODE_CHILDREN_CHANGED,
    NODE_CREATED,
    NODE_DATA_CHANGED,
    NODE_DELETED,
    BadVersionError,
    Check,
    CoordinationService,
    Create,
    Delete,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Session,
    SessionExpiredError,
    SetData,
    WatchedEvent,
)
from pykclient.testing.event_loop import EventLoop
from tests.support.mock_clock import MockClock

TIMEOUT_MS = 1_000


class Service:
    """A service, and the events that its watches report."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.service = CoordinationService(self.loop)
        self.events: list[tuple[str, WatchedEvent]] = []
        self.expired: list[str] = []

    def session(self, name: str = "a") -> Session:
        return self.service.create_session(
            name,
            TIMEOUT_MS,
            lambda event: self.events.append((name, event)),
            lambda: self.expired.append(name),
        )

    def run(self, duration_ms: int = 0) -> list[tuple[str, WatchedEvent]]:
        """Advance the time and return the events since the last call."""
        self.loop.run_due()
        self.clock.advance(duration_ms)
        self.loop.run_due()
        events, self.events = self.events, []
        return events


@pytest.fixture
def box() -> Service:
    return Service()


def test_nodes_are_created_read_changed_and_deleted(box: Service) -> None:
    service = box.service
    path, created = service.create("/x", b"1")
    assert path == "/x"
    assert created.version == 0
    changed = service.set_data("/x", b"2", 0)
    assert (changed.version, changed.czxid) == (1, created.czxid)
    assert service.get_data("/x") == (b"2", changed)
    service.delete("/x", 1)
    assert service.exists("/x") is None
    assert service.create("/x")[1].czxid > created.czxid


def test_recreated_node_has_another_transaction_id(box: Service) -> None:
    first = box.service.create("/x")[1]
    box.service.delete("/x")
    assert box.service.create("/x")[1].czxid > first.czxid


def test_invalid_operations_are_refused(box: Service) -> None:
    service = box.service
    session = box.session()
    service.create("/x", session=session, ephemeral=True)
    service.create("/y")
    service.create("/y/z")
    with pytest.raises(NodeExistsError):
        service.create("/x")
    with pytest.raises(NoNodeError):
        service.create("/nowhere/x")
    with pytest.raises(NoChildrenForEphemeralsError):
        service.create("/x/child")
    with pytest.raises(BadVersionError):
        service.set_data("/y", b"", 7)
    with pytest.raises(BadVersionError):
        service.delete("/x", 7)
    with pytest.raises(NotEmptyError):
        service.delete("/y")
    for missing in (
        lambda: service.get_data("/no"),
        lambda: service.set_data("/no", b""),
        lambda: service.delete("/no"),
    ):
        with pytest.raises(NoNodeError):
            missing()
    with pytest.raises(NoNodeError):
        service.get_children("/no")
    for path in ("x", "/x/", "//x", ""):
        with pytest.raises(IllegalArgumentError):
            service.create(path)
    with pytest.raises(IllegalArgumentError):
        service.create("/e", ephemeral=True)
    with pytest.raises(IllegalArgumentError):
        service.delete("/")


def test_sequential_nodes_count_up_and_never_repeat(box: Service) -> None:
    service = box.service
    service.create("/q")
    first = service.create("/q/n_", sequential=True)[0]
    second = service.create("/q/n_", sequential=True)[0]
    service.delete(second)
    third = service.create("/q/n_", sequential=True)[0]
    assert (first, second, third) == ("/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002")
    assert service.get_children("/q") == ["n_0000000000", "n_0000000002"]


def test_multi_applies_all_or_nothing(box: Service) -> None:
    service = box.service
    service.create("/x", b"old")
    with pytest.raises(BadVersionError):
        service.multi([SetData("/x", b"new"), Create("/y"), Check("/x", 0)])
    assert service.get_data("/x")[0] == b"old"
    assert service.exists("/y") is None
    # Each part builds upon the ones before it.
    made = service.multi(
        [
            SetData("/x", b"new"),
            Check("/x", 1),
            Create("/y"),
            Create("/y/z"),
            Delete("/y/z"),
            Delete("/y"),
            Delete("/x"),
        ]
    )
    assert made == [None, None, "/y", "/y/z", None, None, None]
    assert service.exists("/x") is None
    assert service.exists("/y") is None
    with pytest.raises(NoNodeError):
        service.multi([Create("/y"), Delete("/y"), SetData("/y", b"")])
    with pytest.raises(NotEmptyError):
        service.multi([Create("/y"), Create("/y/z"), Delete("/y")])


def test_watches_fire_once_and_after_the_call(box: Service) -> None:
    service = box.service
    session = box.session()
    assert service.exists("/x", session) is None
    service.create("/x", b"1")
    assert box.events == []
    assert box.run() == [("a", WatchedEvent(NODE_CREATED, "/x"))]
    service.set_data("/x", b"2")
    assert box.run() == []
    service.get_data("/x", session)
    service.set_data("/x", b"3")
    service.set_data("/x", b"4")
    assert box.run() == [("a", WatchedEvent(NODE_DATA_CHANGED, "/x"))]
    service.get_data("/x", session)
    service.delete("/x")
    assert box.run() == [("a", WatchedEvent(NODE_DELETED, "/x"))]


def test_child_watches_ignore_data_changes(box: Service) -> None:
    service = box.service
    session = box.session()
    service.create("/x")
    service.get_children("/x", session)
    service.set_data("/x", b"")
    assert box.run() == []
    service.create("/x/y")
    assert box.run() == [("a", WatchedEvent(NODE_CHILDREN_CHANGED, "/x"))]
    service.get_children("/x", session)
    service.set_data("/x/y", b"")
    assert box.run() == []
    service.delete("/x/y")
    assert box.run() == [("a", WatchedEvent(NODE_CHILDREN_CHANGED, "/x"))]
    service.get_children("/x", session)
    service.get_data("/x", session)
    service.delete("/x")
    assert box.run() == [("a", WatchedEvent(NODE_DELETED, "/x"))], "both watches, one event"


def test_watches_fire_in_order_of_registration(box: Service) -> None:
    one, two = box.session("one"), box.session("two")
    box.service.exists("/x", two)
    box.service.exists("/x", one)
    box.service.create("/x")
    assert [name for name, _ in box.run()] == ["two", "one"]


def test_failed_read_sets_no_watch(box: Service) -> None:
    session = box.session()
    with pytest.raises(NoNodeError):
        box.service.get_data("/x", session)
    box.service.create("/x")
    assert box.run() == []


def test_ephemeral_nodes_end_with_their_session(box: Service) -> None:
    service = box.service
    one, two = box.session("one"), box.session("two")
    service.create("/x", session=one, ephemeral=True)
    service.create("/y", session=two, ephemeral=True)
    service.exists("/x", two)
    service.exists("/y", one)
    service.close_session(one)
    assert service.exists("/x") is None
    assert service.exists("/y") is not None
    assert box.run() == [("two", WatchedEvent(NODE_DELETED, "/x"))]
    with pytest.raises(SessionExpiredError):
        service.create("/z", session=one)
    with pytest.raises(SessionExpiredError):
        service.exists("/z", one)
    service.close_session(one)


def test_session_without_contact_lives_for_its_timeout(box: Service) -> None:
    service = box.service
    session = box.session()
    service.create("/x", session=session, ephemeral=True)
    service.contact_lost(session)
    box.run(TIMEOUT_MS - 1)
    assert session.alive
    service.contact_regained(session)
    box.run(10 * TIMEOUT_MS)
    assert session.alive, "nobody has to ping"
    service.contact_lost(session)
    service.contact_lost(session)
    box.run(TIMEOUT_MS)
    assert not session.alive
    assert service.exists("/x") is None
    service.contact_regained(session)
    assert not session.alive
    assert box.expired == [], "out of contact, it is not told"


def test_missed_events_arrive_later_in_order(box: Service) -> None:
    service = box.service
    session = box.session()
    service.exists("/x", session)
    service.exists("/y", session)
    service.exists("/z", session)
    service.create("/x")
    service.contact_lost(session)
    service.create("/y")
    assert box.run() == []
    service.create("/z")
    service.contact_regained(session)
    assert [event.path for _, event in box.run()] == ["/x", "/y", "/z"]


def test_session_in_contact_can_be_given_up(box: Service) -> None:
    session = box.session()
    box.service.expire_session(session)
    assert not session.alive
    box.run()
    assert box.expired == ["a"]
