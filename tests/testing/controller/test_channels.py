"""Requests between brokers are sent in order, time out, and reach the current controller."""

from __future__ import annotations

import pytest

from pykclient.errors import IllegalStateError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykclient.testing.broker import Broker
from pykclient.testing.inter_broker_requests import InterBrokerSendThread
from pykclient.types import Node, TopicPartition
from tests.testing.controller.harness import A_WHILE_MS, ClusterHarness

TIMEOUT_MS = 1_000


@pytest.fixture
def cluster() -> ClusterHarness:
    return ClusterHarness(3)


class Sender(InterBrokerSendThread):
    """A thread that sends the requests queued by the test."""

    def __init__(self, broker: Broker) -> None:
        self.responses: list[ClientResponse] = []
        super().__init__(broker, "test", TIMEOUT_MS)

    def ask(self, node: Node) -> None:
        self.send(node, DescribeClusterRequest(), self.responses.append)


class TestInterBrokerSendThread:
    def test_requests_are_answered_in_order(self, cluster: ClusterHarness) -> None:
        sender = Sender(cluster.broker(1))
        for _ in range(3):
            sender.ask(cluster.cluster.nodes[2])
        sender.ask(cluster.cluster.nodes[3])
        cluster.run_for()
        assert len(sender.responses) == 4
        assert all(isinstance(response.response_body, DescribeClusterResponse) for response in sender.responses)
        to_two = [response.correlation_id for response in sender.responses if response.destination == "2"]
        assert to_two == sorted(to_two)
        assert not sender._unsent

    def test_nothing_is_sent_after_the_end(self, cluster: ClusterHarness) -> None:
        sender = Sender(cluster.broker(1))
        sender.ask(cluster.cluster.nodes[2])
        sender.shutdown()
        sender.ask(cluster.cluster.nodes[2])
        cluster.run_for()
        assert sender.responses == []
        assert not sender._running

    def test_unreachable_broker_is_reported_as_disconnected_at_once(self, cluster: ClusterHarness) -> None:
        cluster.cluster.kill_broker(3)
        sender = Sender(cluster.broker(1))
        sender.ask(cluster.cluster.nodes[3])
        cluster.run_for()
        assert [(response.disconnected, response.timed_out) for response in sender.responses] == [(True, False)]

    def test_requests_in_backoff_wait_for_the_next_attempt(self, cluster: ClusterHarness) -> None:
        cluster.cluster.kill_broker(3)
        sender = Sender(cluster.broker(1))
        sender.ask(cluster.cluster.nodes[3])
        cluster.run_for()
        sender.ask(cluster.cluster.nodes[3])
        cluster.run_for(5)
        assert len(sender.responses) == 1
        cluster.cluster.start_broker(3)
        cluster.run_for(200)
        assert [response.disconnected for response in sender.responses] == [True, False]

    def test_unsent_requests_time_out(self, cluster: ClusterHarness) -> None:
        cluster.cluster.faults.links.set("broker-1", "broker-3", cut=True)
        sender = Sender(cluster.broker(1))
        sender.ask(cluster.cluster.nodes[3])
        cluster.run_for(TIMEOUT_MS - 1)
        assert sender.responses == []
        cluster.run_for(2)
        assert [response.disconnected for response in sender.responses] == [True]
        assert not sender._unsent

    def test_unanswered_requests_time_out(self, cluster: ClusterHarness) -> None:
        sender = Sender(cluster.broker(1))
        sender.ask(cluster.cluster.nodes[3])
        cluster.run_for()
        cluster.cluster.pause_broker(3)
        sender.ask(cluster.cluster.nodes[3])
        cluster.run_for(TIMEOUT_MS + 1)
        assert [response.timed_out for response in sender.responses] == [False, True]

    def test_shutdown_drops_pending_requests(self, cluster: ClusterHarness) -> None:
        sender = Sender(cluster.broker(1))
        sender.ask(cluster.cluster.nodes[2])
        sender.shutdown()
        sender.shutdown()
        sender.wakeup()
        cluster.run_for(A_WHILE_MS)
        assert sender.responses == []


class TestNodeToController:
    def ask(self, cluster: ClusterHarness, id: int) -> list[object]:
        """Send a request of broker ``id`` to the controller; the returned list gets its outcome."""
        outcomes: list[object] = []
        broker = cluster.broker(id)
        request = AllocateProducerIdsRequest(broker_id=id, broker_epoch=broker.epoch)
        broker.node_to_controller.send_request(
            RequestBuilder(request),
            lambda response: outcomes.append(response.response_body),
            lambda: outcomes.append("timeout"),
        )
        return outcomes

    def test_controller_answers_every_broker(self, cluster: ClusterHarness) -> None:
        for id in (1, 2, 3):
            outcomes = self.ask(cluster, id)
            cluster.run_for()
            (response,) = outcomes
            assert isinstance(response, AllocateProducerIdsResponse)
            assert response.error_code == 0

    def test_next_controller_is_found_after_a_death(self, cluster: ClusterHarness) -> None:
        first = cluster.controller_id
        asker = cluster.others()[0]
        self.ask(cluster, asker)
        cluster.run_for()
        cluster.cluster.kill_broker(first)
        outcomes = self.ask(cluster, asker)
        cluster.run_until(lambda: outcomes, "an answer")
        assert isinstance(outcomes[0], AllocateProducerIdsResponse)
        assert len(cluster.cluster.history.matching(api="ALLOCATE_PRODUCER_IDS", party=f"broker-{asker}")) >= 2

    def test_former_controller_refuses_and_the_new_one_is_found(self, cluster: ClusterHarness) -> None:
        first = cluster.controller_id
        asker = cluster.broker(cluster.others()[0])
        asker.metadata_cache.freeze()
        before = cluster.controller.epoch
        cluster.broker(first).controller.resign()
        cluster.run_until(
            lambda: cluster.cluster.active_controller() is not None and cluster.controller.epoch > before, "an election"
        )
        cluster.settle()
        if cluster.controller_id == first:
            pytest.skip("the same broker was elected again")
        outcomes = self.ask(cluster, asker.id)
        cluster.run_for(500)
        assert outcomes == [], "it asks the one that it knows of"
        asked = cluster.cluster.history.matching(api="ALLOCATE_PRODUCER_IDS", party=asker.party)
        assert 2 <= len(asked) < 20, "again and again, but not without rest"
        assert {record.broker_id for record in asked} == {first}
        asker.metadata_cache.thaw()
        cluster.run_until(lambda: outcomes, "an answer")
        assert isinstance(outcomes[0], AllocateProducerIdsResponse)

    def test_request_without_a_controller_times_out(self) -> None:
        cluster = ClusterHarness(2, request_timeout_ms=3_000)
        other = cluster.others()[0]
        links = cluster.cluster.faults.links
        links.set("*", "coordination", cut=True)
        cluster.cluster.kill_broker(cluster.controller_id)
        outcomes = self.ask(cluster, other)
        cluster.run_for(2_999)
        assert outcomes == []
        cluster.run_for(1_500)
        assert outcomes == ["timeout"], "after the last attempt, which may have to rest before"
        outcomes = self.ask(cluster, other)
        links.heal()
        cluster.run_until(lambda: outcomes, "an answer")
        assert isinstance(outcomes[0], AllocateProducerIdsResponse), "it is the controller itself now"

    def test_request_timeout_may_end_the_shutdown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster = ClusterHarness(2, request_timeout_ms=1_000)
        other = cluster.others()[0]
        broker = cluster.broker(other)
        monkeypatch.setattr(type(broker.metadata_cache), "controller_id", None)
        broker.shutdown()  # it asks the controller first
        outcomes = self.ask(cluster, other)
        cluster.run_until(lambda: not broker.alive, "the broker to stop without having been answered")
        assert outcomes == [], "nobody hears of what a broker that has stopped was waiting for"

    def test_closed_channel_refuses_requests(self, cluster: ClusterHarness) -> None:
        channel = cluster.broker(2).node_to_controller
        channel.shutdown()
        with pytest.raises(IllegalStateError, match="not open"):
            channel.send_request(RequestBuilder(AllocateProducerIdsRequest()), lambda _: None)


class TestControllerChannels:
    def test_each_broker_gets_all_requests_in_order_after_a_disconnect(self, cluster: ClusterHarness) -> None:
        target = cluster.others()[0]
        controller = cluster.broker(cluster.controller_id)
        cluster.cluster.faults.links.set(controller.party, f"broker-{target}", cut=True)
        for index in range(3):
            answer = cluster.send(_create(f"t{index}"), cluster.controller_id)
            cluster.run_for(50)
            assert answer.done
        assert cluster.broker(target).metadata_cache.all_topics() == []
        cluster.cluster.faults.links.set(controller.party, f"broker-{target}", reset=True)
        cluster.run_for(300)
        cluster.cluster.faults.links.heal()
        cluster.run_until(lambda: cluster.controller.channel_manager.idle, "it has caught up")
        assert cluster.broker(target).metadata_cache.all_topics() == ["t0", "t1", "t2"]
        partition = cluster.broker(target).replica_manager.partition(TopicPartition("t2", 0))
        assert partition is not None

    def test_removed_broker_gets_no_more_requests(self, cluster: ClusterHarness) -> None:
        target = cluster.others()[0]
        cluster.cluster.kill_broker(target)
        cluster.send(_create("t"), cluster.controller_id)
        cluster.run_for(100)
        assert not cluster.controller.channel_manager.idle, "it may come back in time"
        cluster.run_for(A_WHILE_MS)
        assert cluster.controller.channel_manager.idle


def _create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
