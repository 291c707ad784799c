"""The doctor finds the step that fails, and says what to do about it."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pykclient import implementation
from pykclient.cli.doctor import Listener, connection_checks
from pykclient.config.admin_config import AdminClientConfig
from pykclient.testing import EmbeddedCluster, Security
from tests.cli.command import Pykclient
from tests.kafka.ports import refusing_port
from tests.security.tokens import answering
from tests.support.wait import eventually


@pytest.fixture(scope="module")
def secure_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, security=Security("SASL_SSL", users={"alice": "alices-password"})) as running:
        yield running


@pytest.fixture
def steps(pykclient: Pykclient) -> Any:
    """A function that runs the doctor and returns its checks: the step, whether it is fine, and the text."""

    def run(*options: str) -> list[tuple[str, bool, str]]:
        result = Pykclient()("doctor", "--json", "--timeout", "2s", *options)
        checks = result.json
        assert result.code == (0 if all(check["is_ok"] for check in checks) else 1)
        return [(check["step"], check["is_ok"], f"{check['detail']} {check['advice']}") for check in checks]

    return run


def test_doctor_finds_healthy_cluster_healthy(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 3)
    result = pykclient.ok("doctor")
    assert result.err == ""
    steps = [line.split()[1] for line in result.lines() if line.startswith("ok")]
    assert steps == ["configuration", "code", "DNS", "TCP", "API", "metadata", "DNS", "TCP", "request", "partitions"]
    assert result.lines()[-1] == "All 10 checks succeeded."
    assert ("code          pykclient: compiled" in result.out) == (implementation.NAME == "c")


def test_doctor_tells_missing_compiler(steps: Any, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "NAME", "python")
    monkeypatch.setattr(implementation, "REASON", "the compiled modules cannot be imported (no such module)")
    step, is_ok, text = steps("-b", cluster.bootstrap_servers)[1]
    assert (step, is_ok) == ("code", True)
    assert text.startswith("pure Python, without the compiled modules It is several times slower: the compiled modules")


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.2,TLSv1.3"])
def test_missing_client_certificate_fails_tls_not_sasl(
    steps: Any, versions: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    security = Security("SSL", client_auth="required")
    authority = tmp_path / "authority.pem"
    authority.write_text(security.authority.certificate_pem)
    with EmbeddedCluster(1, security=security) as cluster:
        options = ("-X", "security.protocol=SSL", "-X", f"ssl.cafile={authority}")
        checks = steps("-b", cluster.bootstrap_servers, *options, "-X", f"ssl.enabled.protocols={versions}")
    step, is_ok, text = checks[-1]
    assert (step, is_ok) == ("TLS", False)
    assert "et ssl.keystore.location (or ssl_certfile and ssl_keyfile) to a certificate that the broker trusts" in text
    assert "SASL" not in [step for step, _, _ in checks]


def test_doctor_explains_unanswered_tls_like_clients(steps: Any, cluster: EmbeddedCluster) -> None:
    """As Kafka does, which takes the first bytes of TLS for the size of a request."""

    def serve(connection: socket.socket) -> None:
        received = connection.recv(65536)
        if not received or received.startswith(b"\x16"):
            return
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as broker:
            broker.sendall(received)
            connection.sendall(broker.recv(65536))

    with answering(serve) as url:
        address = urlsplit(url).netloc
        step, is_ok, text = steps("-b", address, "-X", "security.protocol=SSL")[-1]
    assert (step, is_ok) == ("TLS", False)
    assert "does not speak TLS: it is a Kafka listener without it Set security.protocol to PLAINTEXT" in text
    assert "eof" not in text


def test_doctor_fails_at_dns_if_name_does_not_exist(steps: Any) -> None:
    step, is_ok, text = steps("-b", "no-such-host.invalid:9092")[-1]
    assert (step, is_ok) == ("DNS", False)
    assert "bootstrap.servers" in text


def test_doctor_fails_at_tcp_if_the_connection_is_refused(pykclient: Pykclient) -> None:
    with refusing_port() as port:
        address = f"127.0.0.1:{port}"
        result = Pykclient()("doctor", "-b", address)
    assert result.code == 1
    assert f"FAILED  TCP           {address}: Connection refused" in result.out
    assert "-> Check that the broker runs" in result.out
    assert "Begin with the first: TCP." in result.out


def test_doctor_fails_at_api_versions_without_an_answer(steps: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        step, is_ok, text = steps("-b", f"127.0.0.1:{silent.getsockname()[1]}")[-1]
    assert (step, is_ok) == ("API versions", False)
    assert "check the port" in text


def test_doctor_fails_at_tls_on_plaintext_listener(steps: Any, cluster: EmbeddedCluster) -> None:
    step, is_ok, text = steps("-b", cluster.bootstrap_servers, "-X", "security.protocol=SSL")[-1]
    assert (step, is_ok) == ("TLS", False)
    assert "security.protocol" in text


def test_doctor_fails_at_tls_if_connections_are_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        was_reset = threading.Event()

        def reset_connections() -> None:
            with contextlib.suppress(OSError):  # the listener is shut down
                while True:
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.close()
                    was_reset.set()

        resetting = threading.Thread(target=reset_connections)
        config = AdminClientConfig({"bootstrap.servers": "localhost", "security.protocol": "SSL"})
        checks = connection_checks(Listener("127.0.0.1", listener.getsockname()[1]), config, 30_000)
        try:
            before = list(itertools.islice(checks, 2))
            resetting.start()
            assert was_reset.wait(30)
            (tls,) = checks
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            resetting.join()
    assert [(check.step, check.is_ok) for check in (*before, tls)] == [("DNS", True), ("TCP", True), ("TLS", False)]
    assert "Check that the port is that of a listener with TLS" in tls.advice


def test_doctor_fails_at_missing_sasl(steps: Any, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKCLIENT_SASL_PASSWORD", "hush")
    sasl = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice")
    step, is_ok, text = steps("-b", cluster.bootstrap_servers, *sasl)[-1]
    assert (step, is_ok) == ("SASL", False)
    assert "does not use SASL" in text
    assert "hush" not in text


def secure_settings(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, **changes: str) -> tuple[str, ...]:
    given = {**cluster.client_config(), **changes}
    for key, value in given.items():
        monkeypatch.setenv(f"PYKCLIENT_{key.replace('.', '_').upper()}", str(value))
    return ("-b", cluster.bootstrap_servers)


def test_valid_tls_and_sasl_pass(steps: Any, secure_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = steps(*secure_settings(secure_cluster, monkeypatch))
    assert all(is_ok for _, is_ok, _ in checks)
    assert [step for step, _, _ in checks].count("TLS") == 2
    assert next(text for step, _, text in checks if step == "TLS").startswith("TLSv1")
    assert "SASL" in [step for step, _, _ in checks]


def test_wrong_password_is_named(steps: Any, secure_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    step, is_ok, text = steps(*secure_settings(secure_cluster, monkeypatch, **{"sasl.password": "not-hers"}))[-1]
    assert (step, is_ok) == ("SASL", False)
    assert "sasl.password" in text
    assert "not-hers" not in text


def test_doctor_fails_at_tls_if_the_authority_is_not_trusted(
    steps: Any, secure_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = secure_settings(secure_cluster, monkeypatch)
    monkeypatch.delenv("PYKCLIENT_SSL_CA_PEM")
    step, is_ok, text = steps(*servers)[-1]
    assert (step, is_ok) == ("TLS", False)
    assert "certificate" in text


def test_doctor_fails_at_tls_if_a_file_is_missing(steps: Any, cluster: EmbeddedCluster) -> None:
    options = ("-X", "security.protocol=SSL", "-X", "ssl.ca.location=no-such-file.pem")
    step, is_ok, text = steps("-b", cluster.bootstrap_servers, *options)[-1]
    assert (step, is_ok) == ("TLS", False)
    assert "no-such-file.pem" in text


def test_doctor_reports_unreachable_advertised_listener(steps: Any) -> None:
    with EmbeddedCluster(1, host="127.0.0.1", advertised_host="not-here.invalid") as cluster:
        servers = cluster.bootstrap_servers.replace("not-here.invalid", "127.0.0.1")
        failed = [(step, text) for step, is_ok, text in steps("-b", servers) if not is_ok]
    assert [step for step, _ in failed] == ["DNS"]
    assert "advertised.listeners" in failed[0][1]


def test_doctor_reports_partitions_without_leader(steps: Any) -> None:
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic("orders", 4, 1)
        first, second = cluster.bootstrap_servers.split(",")
        cluster.kill(cluster.broker_ids[1])
        pykclient = Pykclient(first)
        eventually(
            lambda: pykclient.ok("topics", "list", "--json").json[0]["leaderless"] == 2, 30.0, "two have no leader"
        )
        checks = steps("-b", first)
    assert second
    step, is_ok, text = checks[-1]
    assert (step, is_ok) == ("partitions", False)
    assert "2 without a leader" in text


@pytest.mark.parametrize("options", [["doctor", "now"], ["doctor", "-b", "localhost:99999999"], ["doctor", "-X", "a"]])
def test_bad_input_exits_with_code_2(options: list[str]) -> None:
    result = Pykclient()(*options)
    assert (result.code, result.raw.startswith(b"FAILED")) == (2, False)
    assert "Traceback" not in result.err
