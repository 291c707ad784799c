"""Clients behind SOCKS5 and HTTP proxies, which look up the brokers' names."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.admin import Admin
from pykclient.aio import AIOKafkaProducer
from pykclient.config.config_def import Password
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError, KafkaTimeoutError, ProxyAuthenticationError
from pykclient.network.proxy import HttpTunnel, ProxyConfig, Socks5Tunnel
from pykclient.testing import EmbeddedCluster, Security
from tests.kafka.ports import refusing_port
from tests.support.forward_proxy import Behaviour, ForwardProxy
from tests.support.secrets import forms_of
from tests.support.wait import eventually

CREDENTIALS = ("user", "p@ss:word/")
#: As in a URL.
QUOTED = ("user", "p%40ss%3Aword%2F")

SCHEMES = pytest.mark.parametrize("scheme", ["socks5", "http"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers whose names only the proxy knows."""
    security: dict[str, str | Security] = {"PLAIN": "PLAINTEXT", "SECURE": Security("SASL_SSL")}
    with EmbeddedCluster(2, host="127.0.0.1", advertised_host="broker-{id}.invalid", security=security) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


HOSTS = {"broker-1.invalid": "127.0.0.1", "broker-2.invalid": "127.0.0.1"}


@SCHEMES
@pytest.mark.parametrize("credentials", [None, CREDENTIALS])
@pytest.mark.parametrize("listener", ["PLAIN", "SECURE"])
def test_clients_reach_brokers_through_proxy(
    cluster: EmbeddedCluster, scheme: str, listener: str, credentials: tuple[str, str] | None
) -> None:
    """Producer, consumer and admin client reach all brokers through the proxy, with TLS and SASL as without."""
    with ForwardProxy(HOSTS, credentials) as proxy:
        url = proxy.url(scheme, QUOTED if credentials else None)
        config = {**cluster.client_config(listener), "proxy.url": url}
        with KafkaProducer(config) as producer:
            sent = [producer.send("t", b"value", partition=index).get(20) for index in (0, 1)]
        with KafkaConsumer({**config, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([sent[0].topic_partition, sent[1].topic_partition])
            for metadata in sent:
                consumer.seek(metadata.topic_partition, metadata.offset)
            assert [next(consumer).value for _ in sent] == [b"value", b"value"]
        with Admin(config) as admin:
            assert "t" in {topic.name for topic in admin.list_topics()}
        assert {host for host, _ in proxy.asked} == set(HOSTS)


def test_asyncio_client_uses_proxy(cluster: EmbeddedCluster) -> None:
    """The clients for asyncio use the proxy as well."""

    async def send(url: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, proxy_url=url) as producer:
            await producer.send_and_wait("t", b"value")

    with ForwardProxy(HOSTS) as proxy:
        asyncio.run(asyncio.wait_for(send(proxy.url("socks5")), 30))
        assert proxy.asked


@SCHEMES
@pytest.mark.parametrize("given", [None, ("user", "wrong")])
def test_refused_credentials_are_fatal(cluster: EmbeddedCluster, scheme: str, given: tuple[str, str] | None) -> None:
    """A proxy that refuses the credentials is a fatal error at once, without another attempt and without the secret."""
    with ForwardProxy(HOSTS, CREDENTIALS) as proxy:
        config = {**cluster.client_config("PLAIN"), "proxy.url": proxy.url(scheme, given)}
        with KafkaProducer(config) as producer, pytest.raises(ProxyAuthenticationError) as caught:
            producer.send("t", b"value").get(20)
        text = str(caught.value)
        assert f"proxy 127.0.0.1:{proxy.port}" in text
        assert "To mend it: put the right user and password into proxy.url" in text
        assert "wrong" not in text
        assert proxy.connections <= 2  # one for each bootstrap server


def failure(config: dict[str, Any], reason: str) -> str:
    """Return the error of a client that cannot reach any broker; it has this reason.

    On a busy machine the first calls may end before an attempt to connect does.
    """
    settings = {"max.block.ms": 700, "socket.connection.setup.timeout.ms": 200, "reconnect.backoff.ms": 20}
    with KafkaProducer({**config, **settings}) as producer:

        def text() -> str | None:
            with pytest.raises(KafkaTimeoutError) as caught:
                producer.send("t", b"value").get(30)
            return str(caught.value) if reason in str(caught.value) else None

        return eventually(text, what=reason) or ""


@SCHEMES
def test_error_names_proxy_and_unreachable_broker(cluster: EmbeddedCluster, scheme: str) -> None:
    """The error names the proxy, the broker, the reason and what to do."""
    with ForwardProxy({}) as proxy:
        reason = f"proxy 127.0.0.1:{proxy.port}: it does not connect to broker-"
        text = failure({**cluster.client_config("PLAIN"), "proxy.url": proxy.url(scheme)}, reason)
        assert ".invalid" in text
        assert "To mend it: " in text


def closes(client: socket.socket) -> None:
    client.recv(65536)
    client.close()


def sends(data: bytes) -> Behaviour:
    def behave(client: socket.socket) -> None:
        client.recv(1)
        client.sendall(data)
        client.recv(65536)

    return behave


def sends_without_end(data: bytes) -> Behaviour:
    def behave(client: socket.socket) -> None:
        client.recv(1)
        while True:
            client.sendall(data)

    return behave


def hangs(client: socket.socket) -> None:
    threading.Event().wait(5)


@pytest.mark.parametrize(
    ("scheme", "behaviour", "reason"),
    [
        ("socks5", closes, "it closed the connection before"),
        ("http", closes, "it closed the connection before"),
        ("socks5", sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "it does not speak SOCKS5"),
        ("http", sends(b"\x05\xff\r\n\r\n"), "it does not speak HTTP"),
        ("http", sends_without_end(b"HTTP/1.1 100 Continue\r\n\r\n"), "has more than 32768 bytes"),
        ("http", sends_without_end(b"X-Header: endless"), "it does not speak HTTP"),
        ("http", sends(b"\x1b[31m" * 5000 + b"\r\n\r\n"), "it does not speak HTTP"),
        ("http", sends(b"HTTP/1.1 200 OK\r\n\r\nand more"), "it sent 8 bytes behind its response"),
        ("socks5", sends(b"\x05\x00" + b"\x05\x02\x00\x01" + bytes(6)), "its rules do not allow it"),
        ("socks5", sends(b"\x05\x00" + b"\x05\x63\x00\x01" + bytes(6)), "it does not speak SOCKS5"),
        ("socks5", hangs, "no connection through the "),
        ("http", hangs, "no connection through the "),
    ],
)
def test_hostile_proxy_is_reported(cluster: EmbeddedCluster, scheme: str, behaviour: Behaviour, reason: str) -> None:
    """Whatever a proxy does ends the attempt with an error that says so."""
    with ForwardProxy({}, behaviour=behaviour) as proxy:
        text = failure({**cluster.client_config("PLAIN"), "proxy.url": proxy.url(scheme)}, reason)
    assert f"proxy 127.0.0.1:{proxy.port}" in text
    assert len(text) < 1000


def test_error_names_unreachable_proxy(cluster: EmbeddedCluster) -> None:
    """Errors of reaching the proxy name the proxy instead of a broker."""
    config = cluster.client_config("PLAIN")
    with refusing_port() as port:
        reason = f"the SOCKS5 proxy 127.0.0.1:{port}: Connection refused"
        failure({**config, "proxy.url": f"socks5://127.0.0.1:{port}"}, reason)
    with pytest.raises(ConfigError, match=r"host of the HTTP proxy proxy\.invalid:3128 cannot be resolved"):
        KafkaProducer({**config, "proxy.url": "http://proxy.invalid:3128"})


@pytest.mark.parametrize(
    "url",
    [
        "proxy:1080",
        "socks4://proxy:1080",
        "socks5://:1080",
        "http://proxy/path",
        "http://hunter2@proxy:1",
        "http://proxy:99999",
        f"socks5://user:{'hunter2' * 40}@proxy",
        "socks5://user:hunter2/x@proxy:1080",
        "socks5://user:hunter2#x@proxy:1080",
        "http://user:hunter2?x@proxy:1080",
        "http://user:hunter2\u2100@proxy:1080",
        "http://user:[hunter2@proxy:1080",
    ],
)
def test_wrong_proxy_url_is_refused_without_showing_it(url: str) -> None:
    """A wrong URL is an error before anything is connected, and the error does not show it."""
    with pytest.raises(ConfigError, match=r"proxy\.url") as caught:
        KafkaProducer(bootstrap_servers="localhost:1", proxy_url=url)
    assert "hunter2" not in forms_of(caught.value)


def test_proxy_url_is_never_shown() -> None:
    """No text form shows the URL, because it may contain a password."""
    config = ProducerConfig({"proxy.url": "socks5://user:hunter2@proxy"})
    assert config["proxy.url"] == Password("socks5://user:hunter2@proxy")
    assert "hunter2" not in repr(config["proxy.url"]) + repr(ProxyConfig.parse("socks5://user:hunter2@proxy"))


@pytest.mark.parametrize("host", ["a\r\nX: y", "a b", "\x00", "\udcff", ""])
def test_invalid_host_names_are_refused(host: str) -> None:
    """A broker's name cannot add anything to the exchange."""
    with pytest.raises(ConnectionError, match="is not valid"):
        HttpTunnel(host, 9092, None, None).start()
    socks = Socks5Tunnel(host, 9092, None, None)
    socks.start()
    with pytest.raises(ConnectionError, match="is not valid"):
        socks.receive(b"\x05\x00")


def test_socks_request_encodes_names_and_addresses() -> None:
    """Names are sent in ASCII, numeric addresses as such, IPv6 ones without their zone."""
    for host, sent in (
        ("bücher.example", b"\x03\x15xn--bcher-kva.example"),
        ("10.0.0.1", b"\x01\x0a\x00\x00\x01"),
        ("fe80::1%eth0", b"\x04" + socket.inet_pton(socket.AF_INET6, "fe80::1")),
    ):
        socks = Socks5Tunnel(host, 9092, None, None)
        socks.start()
        assert socks.receive(b"\x05\x00") == b"\x05\x01\x00" + sent + b"\x23\x84"
    long = Socks5Tunnel("b" * 256, 9092, None, None)
    long.start()
    with pytest.raises(ConnectionError, match="too long"):
        long.receive(b"\x05\x00")
    request = HttpTunnel("::1", 9092, None, None).start()
    assert request.startswith(b"CONNECT [::1]:9092 HTTP/1.1\r\nHost: [::1]:9092\r\n")
