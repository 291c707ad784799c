"""``EmbeddedCluster`` as applications use it: its life, its brokers, its messages, and its refusals."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition, testing as public
from pykclient.errors import (
    ConfigError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidReplicationFactorError,
    KafkaTimeoutError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.testing import DISCONNECT, EmbeddedCluster
from tests.kafka.ports import PortReservations
from tests.kafka.probe import cluster_state
from tests.support.proxy import TcpProxy
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3) as cluster:
        yield cluster


def send(cluster: EmbeddedCluster, *values: bytes, topic: str = "orders") -> None:
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value).get(20)


def values(cluster: EmbeddedCluster, topic_partition: TopicPartition = ORDERS) -> list[bytes | None]:
    return [record.value for record in cluster.log(topic_partition)]


# --- life -------------------------------------------------------------------------------------------------------------


def test_closed_clusters_leave_no_threads_or_files() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) if os.path.isdir("/proc/self/fd") else 0

    with EmbeddedCluster(3) as first:
        send(first, b"what is loaded late is loaded now")
    threads, files = set(threading.enumerate()), open_files()
    for _ in range(5):
        with EmbeddedCluster(3) as cluster:
            send(cluster, b"x")
            ports = [int(address.rsplit(":", 1)[1]) for address in cluster.bootstrap_servers.split(",")]
        assert set(threading.enumerate()) <= threads
        assert open_files() <= files
        for port in ports:
            socket.create_server(("127.0.0.1", port)).close()


def test_clusters_do_not_affect_each_other() -> None:
    clusters = [EmbeddedCluster(2).start() for _ in range(10)]
    try:
        for number, cluster in enumerate(clusters):
            send(cluster, b"%d" % number)
        for number, cluster in enumerate(clusters):
            assert values(cluster) == [b"%d" % number]
    finally:
        for cluster in clusters:
            cluster.close()


def test_cluster_starts_once_and_may_close_twice() -> None:
    cluster = EmbeddedCluster()
    assert repr(cluster) == "<EmbeddedCluster not running>"
    with pytest.raises(IllegalStateError, match="does not run; use it in a with statement"):
        _ = cluster.bootstrap_servers
    with cluster.start():
        with pytest.raises(IllegalStateError, match="runs already"):
            cluster.start()
        assert cluster.bootstrap_servers in repr(cluster)
    cluster.close()
    with pytest.raises(IllegalStateError, match="does not run"):
        cluster.create_topic("orders")
    with cluster.start():  # a new cluster, without data of the first
        assert cluster.state().partitions == {}


def test_brokers_use_consecutive_ports() -> None:
    ports = PortReservations()
    first = ports.take_two()  # other test processes stay away from both until the end
    with contextlib.closing(ports), EmbeddedCluster(2, port=first) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{first},127.0.0.1:{first + 1}"
        with (
            pytest.raises(OSError, match=rf"cannot listen at 127\.0\.0\.1:{first}: .*in use"),
            EmbeddedCluster(port=first),
        ):
            pass
        send(cluster, b"x")


@pytest.mark.parametrize(
    "arguments",
    [
        {"brokers": 0},
        {"brokers": [1, 1]},
        {"port": 65535, "brokers": 2},
        {"release": "0.8"},
        {"memory_limit_bytes": 0},
        {"num_partitions": 0},
        {"config": {"num.partitoins": 3}},
        {"transaction_version": 3},
        {"release": "3.9", "transaction_version": 2},
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        EmbeddedCluster(**arguments)  # type: ignore[arg-type]


def test_public_names_exist() -> None:
    assert all(getattr(public, name) is not None for name in public.__all__)
    assert set(public.__all__) <= set(dir(public))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = public.Nothing


# --- brokers ----------------------------------------------------------------------------------------------------------


def test_clients_survive_the_death_of_the_controller(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", assignment={0: [1, 2, 3]})
    first = cluster.controller_id
    assert first is not None
    cluster.kill(first)
    cluster.wait_for(lambda: cluster.controller_id not in (None, first))
    cluster.wait_for(lambda: cluster.isr(ORDERS) == sorted({1, 2, 3} - {first}))
    assert cluster.alive_broker_ids == sorted({1, 2, 3} - {first})
    cluster.restart(first)
    cluster.wait_for(lambda: cluster.isr(ORDERS) == [1, 2, 3])


def test_stop_pause_and_restart_keep_the_disk(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", assignment={0: [1]})
    send(cluster, b"kept")
    servers = cluster.bootstrap_servers
    for end in (cluster.stop, cluster.kill):
        end(1)
        assert cluster.state().brokers == {1: "down", 2: "running", 3: "running"}
        assert cluster.log(ORDERS, 1)[0].value == b"kept"
        with pytest.raises(IllegalStateError, match="broker 1 does not run"):
            cluster.pause(1)
        cluster.restart(1)
    assert cluster.bootstrap_servers == servers
    with pytest.raises(IllegalStateError, match="runs already"):
        cluster.restart(1)
    cluster.pause(1)
    assert cluster.state().brokers[1] == "paused"
    with pytest.raises(OSError, match="timed out"):
        cluster_state("127.0.0.1", int(servers.split(",")[0].rsplit(":", 1)[1]), timeout_s=0.2)
    cluster.resume(1)
    cluster.wait_for(lambda: cluster.leader(ORDERS) == 1)
    assert values(cluster) == [b"kept"]


def test_missing_broker_is_named_in_the_error(cluster: EmbeddedCluster) -> None:
    for call in (cluster.kill, cluster.stop, cluster.restart, cluster.pause, cluster.resume, cluster.disk):
        with pytest.raises(IllegalArgumentError, match=r"there is no broker 7, only \[1, 2, 3\]"):
            call(7)


# --- topics -----------------------------------------------------------------------------------------------------------


def test_topics_are_created_moved_and_deleted(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", 2, 2, {"retention.ms": 60_000})
    with pytest.raises(TopicAlreadyExistsError):
        cluster.create_topic("orders")
    with pytest.raises(InvalidReplicationFactorError):
        cluster.create_topic("many", replication_factor=4)
    state = cluster.state().partitions[ORDERS]
    assert len(state.replicas) == 2
    for to in (*state.replicas, state.replicas[0]):
        cluster.move_leader(ORDERS, to)
        assert cluster.leader(ORDERS) == to
    with pytest.raises(IllegalArgumentError):
        cluster.move_leader(ORDERS, *({1, 2, 3} - set(state.replicas)))
    cluster.delete_topic("orders")
    cluster.wait_for(lambda: cluster.state().partitions == {})
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.delete_topic("orders")


# --- what happened ----------------------------------------------------------------------------------------------------


def test_requests_and_logs_can_be_read(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", assignment={0: [2, 3]})
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, client_id="app") as producer:
        producer.send("orders", b"1").get(20)
    last = cluster.requests[-1].number
    send(cluster, b"2", b"3")
    (first,) = cluster.requests_of("Produce", client_id="app")
    assert (first.broker_id, first.fate, first.error_codes) == (2, "ANSWERED", set())
    assert first.answered_ms is not None
    assert first.answered_ms >= first.time_ms
    assert len(cluster.requests_of("Produce", after=last)) == 2
    assert {request.api for request in cluster.requests_of(party="broker-3", broker=2)} >= {"FETCH"}
    assert [record.offset for record in cluster.log(ORDERS, from_offset=1)] == [1, 2]
    assert [record.value for record in cluster.log(ORDERS, 3)] == [b"1", b"2", b"3"]
    with pytest.raises(IllegalStateError, match="broker 1 has no replica"):
        cluster.log(ORDERS, 1)
    with pytest.raises(ValueError, match="there is no API 'Prodce'"):
        cluster.requests_of("Prodce")


def test_state_shows_groups(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    with KafkaConsumer[bytes, bytes](
        "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing"
    ) as consumer:
        eventually(lambda: consumer.poll(timeout_ms=50) or consumer.assignment())
        assert cluster.state().groups["billing"] == ("Stable", 1, 1)
    cluster.wait_for(lambda: cluster.state().groups["billing"].members == 0)


def test_feature_can_be_updated() -> None:
    with EmbeddedCluster(brokers=2, transaction_version=1) as cluster:
        epochs = []
        for level in (1, 2, 0):
            if level != 1:
                cluster.update_feature("transaction.version", level)
            for address in cluster.bootstrap_servers.split(","):
                with RawClient(address) as client:
                    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
                    answer = client.ask(request, 4, ApiVersionsResponse)
                found = {feature.name: feature.max_version_level for feature in answer.finalized_features}
                assert found.get("transaction.version", 0) == level
            epochs.append(answer.finalized_features_epoch)
        assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]
        with pytest.raises(ConfigError, match=r"transaction\.version can be 0 to 2, not 3"):
            cluster.update_feature("transaction.version", 3)


def test_wait_for_timeout_shows_the_cluster(cluster: EmbeddedCluster) -> None:
    with pytest.raises(
        KafkaTimeoutError, match=r"waited 0\.1 s for the moon; the cluster: broker 1 RUNNING.*, broker 2 RUNNING"
    ):
        cluster.wait_for(lambda: False, 100, "the moon")
    with pytest.raises(ZeroDivisionError):
        cluster.wait_for(lambda: 1 // 0)


def test_error_of_a_hook_is_raised_by_the_next_call(cluster: EmbeddedCluster) -> None:
    def hook(request: object) -> None:
        raise LookupError("on purpose")

    cluster.faults.control("ApiVersions", hook)
    send(cluster, b"it does no harm")
    with pytest.raises(LookupError, match="on purpose"):
        _ = cluster.requests
    assert values(cluster) == [b"it does no harm"]
    cluster.faults.clear()


def test_close_raises_the_error_of_a_hook_unless_another_is_raised() -> None:
    def hook(request: object) -> None:
        raise LookupError("on purpose")

    def use(error: Exception | None) -> None:
        with EmbeddedCluster() as cluster:
            cluster.faults.control("ApiVersions", hook)
            send(cluster, b"x")
            if error is not None:
                raise error

    with pytest.raises(LookupError, match="on purpose"):
        use(None)
    with pytest.raises(NotImplementedError):
        use(NotImplementedError())


def test_hook_can_return_a_verdict(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    control = cluster.faults.control("Produce", lambda request: DISCONNECT, times=3)
    send(cluster, b"x")
    assert control.hits == 3
    assert values(cluster) == [b"x"]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_memory_is_limited() -> None:
    with EmbeddedCluster(memory_limit_bytes=1 << 20) as cluster:
        cluster.create_topic("orders")
        with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
            futures = [producer.send("orders", bytes(100_000)) for _ in range(11)]
            with pytest.raises(PolicyViolationError) as refused:
                futures[-1].get(20)
            for part in ("orders-0", "memory_limit_bytes is 1,048,576", "Raise memory_limit_bytes"):
                assert part in str(refused.value)
            assert len(values(cluster)) == 10
            cluster.delete_topic("orders")
            producer.send("others", bytes(100_000)).get(20)  # there is memory again


# --- proxies ----------------------------------------------------------------------------------------------------------


def test_clients_connect_through_proxies() -> None:
    ports = PortReservations()
    at = {id: ("127.0.0.1", ports.take()) for id in (1, 2)}
    with EmbeddedCluster(2, proxies=at) as cluster:
        cluster.create_topic("orders", assignment={0: [1], 1: [2]})
        with (
            TcpProxy(cluster.address_behind_proxy(1), at[1][1]) as first,
            TcpProxy(cluster.address_behind_proxy(2), at[2][1]) as second,
        ):
            servers = first.address
            producer: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=servers)
            consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
                "orders", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
            )
            with producer, consumer:
                for partition in (0, 1):
                    producer.send("orders", b"x", partition=partition).get(20)
                assert {next(consumer).partition for _ in range(2)} == {0, 1}
            assert second.accepted > 0
            assert {request.broker_id for request in cluster.requests_of("Produce")} == {1, 2}
        cluster.kill(1)
        cluster.restart(1)
        with TcpProxy(cluster.address_behind_proxy(1), at[1][1]) as first:
            _, port = cluster_state(*at[1]).brokers[1]
            assert port == at[1][1]
        direct = [int(address.rsplit(":", 1)[1]) for address in cluster.bootstrap_servers.split(",")]
        assert [port for _, port in cluster_state("127.0.0.1", direct[1]).brokers.values()] == direct
        with pytest.raises(IllegalArgumentError, match=r"no proxy was named for broker 3, only for \[1, 2\]"):
            cluster.address_behind_proxy(3)
    ports.close()
