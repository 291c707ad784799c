"""A broker's session: its operations while connected, while disconnected, and after it has expired."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from pykclient.errors import ControllerMovedError, TopicExistsError
from pykclient.log_context import LogContext
from pykclient.testing.config import BrokerConfig
from pykclient.testing.coordination.coordination_client import (
    PRODUCER_ID_BLOCK_SIZE,
    CoordinationClient,
    KafkaCoordinationClient,
)
from pykclient.testing.coordination.coordination_service import (
    NODE_CREATED,
    NODE_DATA_CHANGED,
    ConnectionLossError,
    CoordinationService,
    NodeExistsError,
    SessionExpiredError,
)
from pykclient.testing.coordination.znodes import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.memory_network import LinkPolicy
from pykclient.types import Node, TopicPartition
from tests.support.mock_clock import MockClock

TIMEOUT_MS = 1_000
T0 = TopicPartition("t", 0)


class Box:
    """A service, and brokers that consist only of their sessions."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.service = CoordinationService(self.loop)
        self.links = LinkPolicy(cast(Any, None))

    def client(self, id: int = 1) -> CoordinationClient:
        broker = SimpleNamespace(
            id=id,
            party=f"broker-{id}",
            alive=True,
            log_context=LogContext(),
            config=BrokerConfig({"zookeeper.session.timeout.ms": TIMEOUT_MS}),
        )
        client = CoordinationClient(cast(Any, broker), self.service, self.links)
        client.startup()
        return client

    def run(self, duration_ms: int = 0) -> None:
        self.loop.run_due()
        self.clock.advance(duration_ms)
        self.loop.run_due()


@pytest.fixture
def box() -> Box:
    return Box()


def test_calls_without_contact_fail_and_the_session_survives(box: Box) -> None:
    client = box.client()
    client.create("/x", b"1", ephemeral=True)
    client.contact_lost("paused")
    client.contact_lost("cut off")
    calls = (
        lambda: client.create("/y"),
        lambda: client.set_data("/x", b""),
        lambda: client.delete("/x"),
        lambda: client.multi([]),
        lambda: client.get_data("/x"),
        lambda: client.exists("/x"),
        lambda: client.get_children("/"),
    )
    for call in calls:
        with pytest.raises(ConnectionLossError, match="broker 1 cannot reach"):
            call()
    client.contact_regained("paused")
    assert not client.connected, "it is cut off still"
    client.contact_regained("cut off")
    assert client.connected
    assert client.get_data("/x")[0] == b"1"


def test_expired_session_is_replaced_between_handler_calls(box: Box) -> None:
    client = box.client()
    first = client.session_id
    told: list[tuple[str, int]] = []
    client.before_new_session = lambda: told.append(("before", client.session_id))
    client.after_new_session = lambda: told.append(("after", client.session_id))
    client.register_reconnect_listener(lambda: told.append(("back", client.session_id)))
    client.create("/x", ephemeral=True)
    client.contact_lost("paused")
    box.run(TIMEOUT_MS)
    assert (told, client.session_id) == ([], first)
    client.contact_regained("paused")
    second = client.session_id
    assert second != first
    assert told == [("before", first), ("after", second), ("back", second)]
    assert client.exists("/x") is None


def test_session_given_up_is_replaced_at_once(box: Box) -> None:
    client = box.client()
    first = client.session_id
    client.expire()
    assert not client.connected
    with pytest.raises(SessionExpiredError):
        client.exists("/x")
    box.run()
    assert client.connected
    assert client.session_id != first


def test_restarted_client_ends_its_former_session(box: Box) -> None:
    first = box.client()
    first.create("/x", ephemeral=True)
    first.contact_lost("dead")
    other = box.client(2)
    second = box.client()
    assert second.exists("/x") is None
    assert other.connected
    assert len(box.service.sessions) == 2


def test_close_ends_the_session_only_with_contact(box: Box) -> None:
    client = box.client()
    client.create("/x", ephemeral=True)
    client.close()
    assert box.service.exists("/x") is None
    assert not client.connected
    lost = box.client()
    lost.create("/x", ephemeral=True)
    lost.contact_lost("cut off")
    lost.close()
    assert box.service.exists("/x") is not None
    box.run(TIMEOUT_MS)
    assert box.service.exists("/x") is None


def test_client_is_connected_while_the_link_works(box: Box) -> None:
    client = box.client()
    box.links.set("broker-1", "coordination", cut=True)
    assert not client.connected
    box.links.heal()
    assert client.connected
    box.links.set("coordination", "broker-*", reset=True, one_way=True)
    assert not client.connected
    assert not box.client(2).connected, "nor has who starts in the meantime"


def test_handlers_are_called_for_watched_nodes(box: Box) -> None:
    client, other = box.client(), box.client(2)
    heard: list[str] = []
    assert not client.register_node_change_handler_and_check_existence("/x", heard.append)
    client.register_child_change_handler("/", lambda: heard.append("child"))
    client.get_children("/")
    other.create("/x")
    box.run()
    assert heard == [NODE_CREATED, "child"]
    other.set_data("/x", b"1")
    box.run()
    assert heard == [NODE_CREATED, "child"], "nothing was read since"
    client.get_data("/x")
    other.set_data("/x", b"2")
    box.run()
    assert heard == [NODE_CREATED, "child", NODE_DATA_CHANGED]
    client.unregister_node_change_handler("/x")
    client.unregister_child_change_handler("/")
    client.get_data("/x")
    client.get_children("/")
    other.set_data("/x", b"3")
    other.create("/y")
    box.run()
    assert len(heard) == 3


class TestKafkaCoordinationClient:
    """The data in the service has Kafka's paths."""

    def test_brokers(self, box: Box) -> None:
        client = KafkaCoordinationClient(box.client())
        node = Node(1, "h", 9092, "r")
        epoch = client.register_broker(node)
        assert client.all_broker_and_epochs() == {1: (node, epoch)}
        with pytest.raises(NodeExistsError):
            client.register_broker(node)
        assert box.service.get_data("/brokers/ids/1")[0] == node

    def test_only_one_controller_is_registered(self, box: Box) -> None:
        one, two = KafkaCoordinationClient(box.client(1)), KafkaCoordinationClient(box.client(2))
        assert one.controller_id() is None
        epoch, version = one.register_controller_and_increment_controller_epoch(1)
        assert (epoch, version, two.controller_id()) == (1, 1, 1)
        with pytest.raises(ControllerMovedError):
            two.register_controller_and_increment_controller_epoch(2)
        one.delete_controller(version)
        assert two.register_controller_and_increment_controller_epoch(2) == (2, 2)
        one.delete_controller(version)
        assert one.controller_id() == 2, "a deposed controller deposes nobody"
        with pytest.raises(ControllerMovedError):
            one.delete_topic_deletion("t", version)

    def test_topics_and_partitions_are_stored_and_changed(self, box: Box) -> None:
        client = KafkaCoordinationClient(box.client())
        _, version = client.register_controller_and_increment_controller_epoch(1)
        moving = ReplicaAssignment((1, 2, 3), (3,), (1,))
        assignment = TopicAssignment(UUID(int=5), {0: moving})
        client.create_topic("t", assignment, {"retention.ms": "1"})
        assert client.topic_assignment("t") == assignment
        assert client.topic_assignment("no") is None
        with pytest.raises(TopicExistsError):
            client.create_topic("t", assignment, {})
        assert client.topic_config("t") == {"retention.ms": "1"}
        state = LeaderAndIsr(1, 0, (1, 2), 0, 0)
        info = LeaderIsrAndControllerEpoch(state, 1)
        assert client.create_partition_states({T0: info}, version) == {T0}
        assert client.create_partition_states({T0: info}, version) == set()
        assert client.partition_states([T0, TopicPartition("t", 1)]) == {T0: info}
        updated, refused = client.update_leader_and_isr({T0: state.new_leader(2)}, 1, version)
        assert (updated, refused) == ({T0: LeaderAndIsr(2, 1, (1, 2), 0, 1)}, [])
        assert client.update_leader_and_isr({T0: state}, 1, version) == ({}, [T0]), "it was changed since"
        client.create_delete_topic("t")
        client.create_delete_topic("t")
        assert client.topic_deletions() == ["t"]
        client.delete_topic("t", version)
        assert (client.all_topics(), client.topic_deletions(), client.topic_config("t")) == ([], [], {})

    def test_producer_id_blocks_are_allocated_in_order(self, box: Box) -> None:
        one, two = KafkaCoordinationClient(box.client(1)), KafkaCoordinationClient(box.client(2))
        blocks = [client.allocate_producer_ids() for client in (one, two, one)]
        assert blocks == [(index * PRODUCER_ID_BLOCK_SIZE, PRODUCER_ID_BLOCK_SIZE) for index in range(3)]

    def test_reassignment_in_progress_is_encoded(self) -> None:
        """A reassignment in progress is encoded as in KIP-455's example."""
        assignment = ReplicaAssignment((1, 2, 3)).reassign_to((4, 5, 6))
        assert assignment == ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
        assert (assignment.origin_replicas, assignment.target_replicas) == ((1, 2, 3), (4, 5, 6))
        assert assignment.reassign_to((1, 2, 3)) == ReplicaAssignment((1, 2, 3))
        assert not assignment.reassign_to((1, 2, 3)).is_being_reassigned
