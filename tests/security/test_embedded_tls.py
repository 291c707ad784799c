"""TLS between our clients, confluent-kafka and the embedded cluster."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer
from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import ConfigError, IllegalStateError
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.channel_builders import channel_builder_for
from pykclient.network.client_utils import parse_addresses
from pykclient.network.selectable import USE_DEFAULT_BUFFER_SIZE, SocketAddress
from pykclient.network.selector import Selector, SelectorConfig
from pykclient.testing import EmbeddedCluster, Security
from pykclient.testing.certificates import CertificateAuthority
from pykclient.types import TopicPartition
from tests.network.implementations import IMPLEMENTATIONS, choose

RECORDS = 1_000


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The implementation of both sides."""
    name: str = request.param
    choose(monkeypatch, name)
    return name


@pytest.fixture(params=["none", "requested", "required"])
def cluster(
    request: pytest.FixtureRequest,
    implementation: str,
    authority: CertificateAuthority,
) -> Iterator[EmbeddedCluster]:
    security = Security("SSL", client_auth=request.param, authority=authority)
    with EmbeddedCluster(brokers=2, security=security) as running:
        running.create_topic("t", assignment={0: [1], 1: [2]})
        yield running


def values_in(config: dict[str, Any], count: int) -> list[bytes | None]:
    """Return the values of the first records of topic t, sorted."""
    values: list[bytes | None] = []
    with KafkaConsumer(config, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        while len(values) < count:
            batches = consumer.poll(10_000)
            assert batches, f"{len(values)} of {count} records arrived"
            values += [record.value for records in batches.values() for record in records]
    return sorted(values, key=lambda value: value or b"")


def test_records_round_trip_over_tls(cluster: EmbeddedCluster) -> None:
    sent = [b"%05d" % index for index in range(RECORDS)]
    with KafkaProducer(cluster.client_config()) as producer:
        futures = [producer.send("t", value, partition=index % 2) for index, value in enumerate(sent)]
        producer.flush(30)
        for future in futures:
            future.get(0)
    assert values_in(cluster.client_config(), RECORDS) == sent


def test_frames_larger_than_buffers_round_trip(cluster: EmbeddedCluster) -> None:
    sent = [bytes([index]) * 950_000 for index in range(10)]
    with KafkaProducer(cluster.client_config(), batch_size=16_384) as producer:
        futures = [producer.send("t", value, partition=index % 2) for index, value in enumerate(sent)]
        for future in futures:
            future.get(30)
    assert values_in({**cluster.client_config(), "max.partition.fetch.bytes": 4_000_000}, len(sent)) == sent


async def through_an_event_loop(config: dict[str, Any], sent: list[bytes]) -> list[bytes | None]:
    """Send to both partitions of "t", and return what a member of a group reads of them, sorted."""
    async with AIOKafkaProducer(config) as producer:
        for index, value in enumerate(sent):
            await producer.send("t", value, partition=index % 2)
        await producer.flush()
    received: list[bytes | None] = []
    settings = {name.replace(".", "_"): value for name, value in config.items()}
    async with AIOKafkaConsumer("t", auto_offset_reset="earliest", group_id="g", **settings) as consumer:
        while len(received) < len(sent):
            batches = await consumer.getmany(timeout_ms=10_000)
            assert batches, f"{len(received)} of {len(sent)} records arrived"
            received += [record.value for records in batches.values() for record in records]
    return sorted(received, key=lambda value: value or b"")


@pytest.mark.parametrize("implementation", ["python", "c"], indirect=True)
@pytest.mark.parametrize("cluster", ["required"], indirect=True)
def test_asyncio_clients_connect_over_tls(cluster: EmbeddedCluster) -> None:
    sent = [b"%05d" % index for index in range(RECORDS)]
    assert asyncio.run(through_an_event_loop(cluster.client_config(), sent)) == sent


@pytest.mark.parametrize("implementation", ["c"], indirect=True)
def test_confluent_kafka_reads_and_writes_with_the_same_configuration(cluster: EmbeddedCluster) -> None:
    writer = confluent_kafka.Producer(cluster.client_config())
    writer.produce("t", b"theirs", partition=0)
    assert writer.flush(30) == 0
    assert values_in(cluster.client_config(), 1) == [b"theirs"]
    with KafkaProducer(cluster.client_config()) as producer:
        producer.send("t", b"ours", partition=1).get(30)
    reader = confluent_kafka.Consumer({**cluster.client_config(), "group.id": "g"})
    try:
        reader.assign([confluent_kafka.TopicPartition("t", 1, 0)])
        (message,) = reader.consume(1, 30)
        assert message.value() == b"ours"
    finally:
        reader.close()


def test_clients_of_each_listener_reach_all_brokers(authority: CertificateAuthority) -> None:
    security: dict[str, str | Security] = {"INSIDE": "PLAINTEXT", "OUTSIDE": Security("SSL", authority=authority)}
    with EmbeddedCluster(brokers=3, security=security) as cluster:
        cluster.create_topic("t", assignment={0: [1], 1: [2]})
        outside = cluster.client_config("OUTSIDE")
        with KafkaProducer(outside) as secure, KafkaProducer(cluster.client_config("INSIDE")) as plain:
            secure.send("t", b"1", partition=0).get(30)
            plain.send("t", b"2", partition=1).get(30)
        assert values_in(outside, 2) == [b"1", b"2"]
        cluster.kill(2)
        cluster.restart(2)
        with KafkaProducer(outside) as secure:
            secure.send("t", b"3", partition=1).get(30)


def test_clients_connect_with_sasl_over_tls(authority: CertificateAuthority) -> None:
    with EmbeddedCluster(security=Security("SASL_SSL", authority=authority)) as cluster:
        cluster.create_topic("t", partitions=2)
        with KafkaProducer(cluster.client_config()) as producer:
            producer.send("t", b"x", partition=0).get(30)
        assert values_in(cluster.client_config(), 1) == [b"x"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_asyncio_clients_connect_with_sasl_over_tls(authority: CertificateAuthority, mechanism: str) -> None:
    with EmbeddedCluster(security=Security("SASL_SSL", authority=authority)) as cluster:
        cluster.create_topic("t", partitions=2)
        sent = [b"%05d" % index for index in range(100)]
        assert asyncio.run(through_an_event_loop(cluster.client_config(mechanism=mechanism), sent)) == sent


def test_wrong_security_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="client_auth is one of none, requested, required"):
        Security("SSL", client_auth="always")
    with pytest.raises(IllegalStateError, match="a listener with SASL_PLAINTEXT has no certificates"):
        _ = Security("SASL_PLAINTEXT").authority


# --- many handshakes at once -----------------------------------------------------------------------------------------

CONNECTIONS = 300


def selector_for(cluster: EmbeddedCluster) -> Selector:
    from pykclient.config.producer_config import ProducerConfig

    builder = channel_builder_for(ProducerConfig(cluster.client_config()))
    return Selector(SelectorConfig(), Metrics(), SYSTEM_CLOCK, LogContext(), builder)


@pytest.mark.parametrize("implementation", ["python", "c"], indirect=True)
@pytest.mark.parametrize("cluster", ["required"], indirect=True)
def test_many_tls_connections_are_opened_in_parallel(cluster: EmbeddedCluster) -> None:
    ((host, port), *_) = parse_addresses(cluster.client_config()["bootstrap.servers"])
    selector = selector_for(cluster)
    for index in range(CONNECTIONS):
        address = SocketAddress(host, port, host)
        selector.connect(str(index), address, USE_DEFAULT_BUFFER_SIZE, USE_DEFAULT_BUFFER_SIZE)
    with KafkaProducer(cluster.client_config()) as producer:
        waiting = set(map(str, range(CONNECTIONS)))
        while waiting:
            future = producer.send("t", b"in between", partition=0)  # another client is not kept waiting
            selector.poll(1_000)
            assert not selector.disconnected
            waiting -= {id for id in waiting if selector.is_channel_ready(id)}
            future.get(30)
    selector.close()


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
def test_stalled_handshake_does_not_block_others(cluster: EmbeddedCluster) -> None:
    ((host, port), *_) = parse_addresses(cluster.client_config()["bootstrap.servers"])
    with socket.create_connection((host, port)) as silent, socket.create_connection((host, port)) as half:
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # the beginning of a client's first message
        with KafkaProducer(cluster.client_config()) as producer:
            producer.send("t", b"x", partition=0).get(30)
        silent.close()


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
def test_client_abandons_silent_server(cluster: EmbeddedCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{cluster.client_config()['bootstrap.servers']}"
        config = {**cluster.client_config(), "bootstrap.servers": servers}
        with KafkaProducer(config, socket_connection_setup_timeout_ms=100) as producer:
            producer.send("t", b"x", partition=0).get(30)
