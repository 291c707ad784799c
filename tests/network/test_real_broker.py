"""The network client on real Kafka."""

from __future__ import annotations

from pykclient.clock import SYSTEM_CLOCK
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.network.metadata import MetadataRequestBuilder
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.types import Node, TopicPartition
from tests.network.client import Client, client
from tests.support.any_kafka import AnyKafka
from tests.support.proxy import TcpProxy


def test_bootstrap_learns_the_cluster(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=3)
    with client(any_kafka.bootstrap_servers) as c:
        c.bootstrap()
        c.poll_until(lambda: topic in c.metadata.fetch().topics)
        cluster = c.metadata.fetch()
        assert cluster.cluster_resource.cluster_id
        assert cluster.partition_count_for_topic(topic) == 3
        assert cluster.topic_ids[topic] != ZERO_UUID
        leader = c.metadata.current_leader(TopicPartition(topic, 0))
        assert leader.leader in cluster.nodes
        assert leader.epoch is not None
        assert c.api_versions.max_usable_produce_magic == 2


def test_requests_are_pipelined_and_answered_in_order(any_kafka: AnyKafka) -> None:
    with client(any_kafka.bootstrap_servers) as c:
        c.bootstrap()
        node = c.metadata.fetch().nodes[0]
        c.poll_until(lambda: c.network.ready(node, SYSTEM_CLOCK.now_ms()))
        answered: list[int] = []
        sent: list[int] = []
        for _ in range(5):
            now_ms = SYSTEM_CLOCK.now_ms()
            builder = RequestBuilder(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
            request = c.network.new_client_request(
                node.id_string, builder, now_ms, True, callback=lambda r: answered.append(r.correlation_id)
            )
            sent.append(request.correlation_id)
            c.network.send(request, now_ms)
        assert not c.network.is_ready(node, SYSTEM_CLOCK.now_ms())  # at the limit of five in flight
        responses = c.poll_until(lambda: len(answered) == 5)
        assert answered == sent
        assert all(response.response_body.error_code == 0 for response in responses)
        versions = {api.api_key for api in responses[0].response_body.api_keys}
        assert {ApiKeys.PRODUCE, ApiKeys.FETCH, ApiKeys.METADATA} <= versions
        values = c.metrics.by_group()
        assert values["test-metrics"]["connection-count"] >= 1


def test_metadata_can_be_requested_by_topic_id(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic, partitions=1)
    with client(any_kafka.bootstrap_servers) as c:
        c.bootstrap()
        c.poll_until(lambda: topic in c.metadata.fetch().topics)
        topic_id = c.metadata.topic_ids[topic]
        node = c.metadata.fetch().nodes[0]
        c.poll_until(lambda: c.network.ready(node, SYSTEM_CLOCK.now_ms()))
        got: list[ClientResponse] = []
        now_ms = SYSTEM_CLOCK.now_ms()
        builder = MetadataRequestBuilder.for_topic_ids([topic_id])
        c.network.send(c.network.new_client_request(node.id_string, builder, now_ms, True, callback=got.append), now_ms)
        c.poll_until(lambda: bool(got))
        assert [found.name for found in got[0].response_body.topics] == [topic]


def test_dead_bootstrap_server_is_skipped(any_kafka: AnyKafka) -> None:
    with client(f"127.0.0.1:1,{any_kafka.bootstrap_servers}") as c:
        c.bootstrap()
        assert c.metadata.fetch().nodes


def test_cut_connection_is_reestablished(any_kafka: AnyKafka) -> None:
    host, _, port = any_kafka.bootstrap_servers.partition(":")
    with TcpProxy(target=(host, int(port))) as proxy, client(f"127.0.0.1:{proxy.port}") as c:
        node = c.metadata.fetch().nodes[0]
        c.poll_until(lambda: c.network.ready(node, SYSTEM_CLOCK.now_ms()) or c.network.has_ready_nodes(1 << 62))
        c.bootstrap()
        for cut in range(0, 400, 13):
            proxy.cut_after(cut)
            response = ask(c, node)
            assert response.has_response or response.disconnected
        assert proxy.cuts > 1
        proxy.restore()
        ask_until_answered(c, node)


def test_silent_broker_costs_one_request_timeout(any_kafka: AnyKafka) -> None:
    host, _, port = any_kafka.bootstrap_servers.partition(":")
    settings = {"request.timeout.ms": 400, "delivery.timeout.ms": 1_000}
    with TcpProxy(target=(host, int(port))) as proxy, client(f"127.0.0.1:{proxy.port}", **settings) as c:
        node = c.metadata.fetch().nodes[0]
        ask_until_answered(c, node)
        proxy.blackhole()
        started_ms = SYSTEM_CLOCK.now_ms()
        response = ask(c, node)
        assert response.disconnected
        assert response.timed_out
        assert 400 <= SYSTEM_CLOCK.now_ms() - started_ms < 20_000, "no default, which is half a minute"
        proxy.restore()
        ask_until_answered(c, node)
        # The report may contain the broker's advertised address, which had 400 ms as well.
        assert f":{proxy.port}" not in c.network.connection_report()


def test_unreachable_node_is_reported(any_kafka: AnyKafka) -> None:
    host, _, port = any_kafka.bootstrap_servers.partition(":")
    with TcpProxy(target=(host, int(port))) as proxy, client(f"127.0.0.1:{proxy.port}") as c:
        node = c.metadata.fetch().nodes[0]
        assert ask(c, node).has_response
        proxy.refuse()
        proxy.drop_connections()
        now_ms = SYSTEM_CLOCK.now_ms
        c.poll_until(lambda: not c.network.ready(node, now_ms()) and c.network.connection_report() != "")
        assert f"127.0.0.1:{proxy.port}: Connection refused" in c.network.connection_report()
        proxy.restore()
        assert ask(c, node).has_response


def ask_until_answered(c: Client, node: Node) -> None:
    while not ask(c, node).has_response:
        pass


def ask(c: Client, node: Node) -> ClientResponse:
    """Send ApiVersions to a node once it is connected, and return the response."""
    c.poll_until(lambda: c.network.ready(node, SYSTEM_CLOCK.now_ms()))
    got: list[ClientResponse] = []
    now_ms = SYSTEM_CLOCK.now_ms()
    builder = RequestBuilder(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    request = c.network.new_client_request(node.id_string, builder, now_ms, True, callback=got.append)
    c.network.send(request, now_ms)
    c.poll_until(lambda: bool(got))
    return got[0]
