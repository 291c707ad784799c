"""Applications that interrupt a cluster, fork, misuse hooks, or listen on unusual addresses."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import IllegalArgumentError, IllegalStateError, UnsupportedVersionError, UseAfterForkError
from pykclient.protocol.messages.fetch import FetchResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.testing import EmbeddedCluster
from tests.support.wait import eventually

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic("orders")
        yield cluster


def send(cluster: EmbeddedCluster, value: bytes = b"x") -> None:
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        producer.send("orders", value).get(20)


# --- where it listens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("localhost", "localhost"),
        ("::1", "[::1]"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("127.0.0.2", "127.0.0.2"),
    ],
)
def test_hosts_are_bound_and_advertised(host: str, told: str) -> None:
    if host == "127.0.0.2" and sys.platform != "linux":
        pytest.skip("only Linux has all of 127.0.0.0/8")
    if ":" in host and not socket.has_ipv6:
        pytest.skip("there is no IPv6")
    with EmbeddedCluster(2, host=host) as cluster:
        assert [server.rpartition(":")[0] for server in cluster.bootstrap_servers.split(",")] == [told, told]
        cluster.create_topic("orders", replication_factor=2)
        send(cluster)
        assert len(cluster.log(ORDERS)) == 1


def test_clients_use_the_advertised_host() -> None:
    with EmbeddedCluster(2, host="127.0.0.1", advertised_host="localhost", default_replication_factor=2) as cluster:
        assert cluster.bootstrap_servers.startswith("localhost:")
        servers = cluster.bootstrap_servers.replace("localhost", "127.0.0.1")
        with KafkaProducer(bootstrap_servers=servers) as producer:
            producer.send("orders", b"1").get(10)
            assert {node.host for node in producer._metadata.fetch().nodes} == {"localhost"}


def test_unknown_host_error_names_the_host() -> None:
    with pytest.raises(OSError, match=r"cannot listen at 'nobody\.invalid': "), EmbeddedCluster(host="nobody.invalid"):
        pass


# --- clients that are too new -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "lacks"), [("0.10.0", "LIST_OFFSETS"), ("0.10.2", "FETCH")])
def test_an_error_names_the_api_that_an_old_release_lacks(release: str, lacks: str) -> None:
    with (
        EmbeddedCluster(release=release) as cluster,
        KafkaConsumer[bytes, bytes](
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer,
    ):
        cluster.create_topic("orders")
        consumer.assign([ORDERS])
        with pytest.raises(UnsupportedVersionError, match=f"does not support {lacks} in versions"):
            consumer.poll(timeout_ms=10_000)
        consumer.seek(ORDERS, 0)
        for _ in range(2):
            with pytest.raises(UnsupportedVersionError, match=r"cannot read from .* does not support FETCH"):
                consumer.poll(timeout_ms=10_000)


# --- throttled --------------------------------------------------------------------------------------------------------


def test_throttled_fetch_returns_only_the_throttle_time() -> None:
    with EmbeddedCluster(quota_consumer_default=10_000, quota_window_num=2) as cluster:
        cluster.create_topic("orders")
        with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            for _ in range(5):
                producer.send("orders", bytes(3000)).get(20)
        with KafkaConsumer[bytes, bytes](
            "orders", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert [next(consumer).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        answers = [
            (request.throttle_time_ms > 0, [topic for topic in answer.responses if topic.partitions])
            for request in cluster.requests_of("Fetch")
            if isinstance(answer := request.response, FetchResponse)
        ]
        assert not any(topics for throttled, topics in answers if throttled)
        assert any(throttled for throttled, _ in answers)


# --- interrupted ------------------------------------------------------------------------------------------------------


def test_condition_is_not_evaluated_after_an_interrupted_wait(cluster: EmbeddedCluster) -> None:
    asked = [0]

    def interrupt() -> None:
        asked[0] += 1
        if asked[0] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cluster.wait_for(interrupt)
    before = asked[0]
    send(cluster)  # causes many events
    assert asked[0] == before


def start_interrupted(cluster: EmbeddedCluster, after_s: float) -> None:
    # Started inside pytest.raises: on a busy machine the timer may fire before the next line runs.
    threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT)).start()
    cluster.start()
    threading.Event().wait(20)


def test_sockets_are_opened_outside_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C interrupts the main thread, even between opening a socket and storing it."""
    openers = set()

    class Socket(socket.socket):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            openers.add(threading.current_thread())
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(socket, "socket", Socket)
    EmbeddedCluster().start().close()
    assert openers
    assert threading.main_thread() not in openers


def test_interrupted_start_leaks_no_threads() -> None:
    threads = set(threading.enumerate())
    for after_s in (0.001, 0.005, 0.01, 0.02):
        cluster = EmbeddedCluster(3)
        with pytest.raises(KeyboardInterrupt):
            start_interrupted(cluster, after_s)
        cluster.close()
        eventually(lambda: set(threading.enumerate()) <= threads)  # a thread may have just started


def test_close_ends_waits_of_other_threads() -> None:
    cluster = EmbeddedCluster().start()
    begun = threading.Event()

    def close() -> None:
        begun.wait(30)
        cluster.close()

    closer = threading.Thread(target=close)
    closer.start()
    started = time.monotonic()
    with pytest.raises(IllegalStateError, match="was closed while a thread waited"):
        cluster.wait_for(begun.set, 60_000)
    assert time.monotonic() - started < 30
    closer.join()


# --- forked -----------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child and return its process id; the child exits with 0 if ``work`` returned true."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = 0 if work() else 2
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@forks
def test_forked_child_can_only_use_clients(cluster: EmbeddedCluster) -> None:
    def refused(use: Callable[[], object]) -> bool:
        try:
            use()
        except UseAfterForkError:
            return True
        return False

    def work() -> bool:
        send(cluster, b"from the child")
        told = all(refused(use) for use in (cluster.describe, cluster.state, lambda: cluster.wait_for(lambda: True)))
        cluster.close()
        return told

    send(cluster)
    assert exit_code(in_child(work)) == 0
    send(cluster, b"the child's end has done no harm")
    assert [record.value for record in cluster.log(ORDERS)][:2] == [b"x", b"from the child"]


@forks
def test_brokers_restart_while_a_forked_child_lives(cluster: EmbeddedCluster) -> None:
    send(cluster)
    reader, writer = os.pipe()

    def live_on() -> bool:
        os.close(writer)
        return os.read(reader, 1) == b""

    child = in_child(live_on)
    try:
        for broker, server in zip(cluster.broker_ids, cluster.bootstrap_servers.split(","), strict=True):
            cluster.kill(broker)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(server.rpartition(":")[2])), 5)
            cluster.restart(broker)
        send(cluster)
    finally:
        os.close(writer)
        os.close(reader)
        assert exit_code(child) == 0


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_hook_can_fail_the_test(cluster: EmbeddedCluster) -> None:
    """A hook can fail the test with pytest.fail, which is not an Exception."""
    cluster.faults.control("Produce", lambda _: pytest.fail("it must not be written"), times=1)
    send(cluster)
    with pytest.raises(pytest.fail.Exception, match="it must not be written"):
        cluster.describe()
    assert len(cluster.log(ORDERS)) == 1


def test_response_of_another_api_is_refused(cluster: EmbeddedCluster) -> None:
    cluster.faults.control("Produce", lambda _: MetadataResponse(), times=1)
    send(cluster)
    with pytest.raises(IllegalArgumentError, match="PRODUCE cannot be answered with a MetadataResponse"):
        cluster.describe()


def test_hook_can_respond(cluster: EmbeddedCluster) -> None:
    control = cluster.faults.control("Produce", lambda request: request.respond(ProduceResponse()))
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        future = producer.send("orders", b"x")
        cluster.wait_for(lambda: len(cluster.requests_of("Produce")) > 1, what="a second try")
        control.remove()
        future.get(20)
    assert len(cluster.log(ORDERS)) == 1


def test_hook_cannot_call_blocking_methods(cluster: EmbeddedCluster) -> None:
    refused: list[str] = []
    leader = cluster.leader(ORDERS)
    assert leader is not None

    def hook(_: object) -> None:
        for call in (
            cluster.close,
            lambda: cluster.stop(1),
            lambda: cluster.restart(1),
            lambda: cluster.move_leader(ORDERS, leader),
            lambda: cluster.create_topic("others"),
            lambda: cluster.wait_for(lambda: True),
        ):
            try:
                call()
            except IllegalStateError as error:
                refused.append(str(error))

    cluster.faults.control("Produce", hook)
    send(cluster)
    assert len(refused) == 6
    assert all(text.startswith("a hook ") for text in refused)
    assert cluster.alive_broker_ids == [1, 2]
    assert cluster.state().partitions.keys() == {ORDERS}


# --- what is not there ------------------------------------------------------------------------------------------------


def test_missing_logs_and_controllers_raise_clear_errors(cluster: EmbeddedCluster) -> None:
    with pytest.raises(IllegalStateError, match="there is no log of nothing-0 on any broker"):
        cluster.log(TopicPartition("nothing", 0))
    for broker in cluster.broker_ids:
        cluster.stop(broker)
    with pytest.raises(IllegalStateError, match="orders-0 has no leader; name the broker"):
        cluster.log(ORDERS)
    with pytest.raises(IllegalStateError, match="no broker is running"):
        cluster.create_topic("others")


@pytest.mark.parametrize("party", ["clint:*", "broker1", "orders-app", ""])
def test_invalid_parties_are_refused(cluster: EmbeddedCluster, party: str) -> None:
    for use in (
        lambda: cluster.faults.cut(party, 1),
        lambda: cluster.faults.partition([1], [party]),
        lambda: cluster.faults.heal(party, 1),
        lambda: cluster.faults.drop_requests("Produce", party=party),
    ):
        with pytest.raises(IllegalArgumentError, match="a party is a broker's id or 'broker-1'"):
            use()


# --- memory -----------------------------------------------------------------------------------------------------------


def test_retention_advised_by_memory_error_frees_memory() -> None:
    with EmbeddedCluster(2, memory_limit_bytes=8 << 20, log_retention_check_interval_ms=20) as cluster:
        bounds = {"retention.bytes": 1 << 20, "segment.bytes": 1 << 20}
        cluster.create_topic("orders", replication_factor=2, configs=bounds)
        with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            for _ in range(40):
                producer.send("orders", bytes(500_000)).get(20)
                cluster.wait_for(lambda: len(cluster.log(ORDERS)) <= 6, what="old records to be deleted")
