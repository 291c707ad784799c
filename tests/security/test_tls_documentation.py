"""docs/security.md is true: each configuration for TLS connects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.testing import EmbeddedCluster, Security
from pykclient.testing.certificates import CertificateAuthority
from pykclient.types import TopicPartition

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
SECRET = "store-secret"


def configurations() -> list[Any]:
    """Return the page's configurations for TLS, with the titles of their sections."""
    section = PAGE.split("\n## TLS\n", 1)[1].split("\n## ", 1)[0]
    found = []
    for part in section.split("\n### ")[1:]:
        title, _, text = part.partition("\n")
        found += [pytest.param(code, id=title) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return found


@pytest.fixture(scope="module")
def security(authority: CertificateAuthority) -> Security:
    return Security("SSL", authority=authority, client_auth="requested")


@pytest.fixture(scope="module")
def cluster(security: Security) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security=security) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def files(tmp_path: Path, security: Security) -> Path:
    client = security.client_certificate
    texts = {
        "ca.pem": security.authority.certificate_pem,
        "client.pem": client.key_pem(SECRET) + client.certificate_pem,
        "client.crt": client.certificate_pem,
        "client.key": client.key_pem(),
        "client.encrypted.key": client.key_pem(SECRET),
        "revoked.pem": security.authority.revocation_list_pem(),
        "service.cert": client.certificate_pem,
        "service.key": client.key_pem(),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "ca.p12").write_bytes(security.authority.pkcs12(SECRET))
    (tmp_path / "client.p12").write_bytes(client.pkcs12(SECRET))
    return tmp_path


def test_tls_page_has_configurations() -> None:
    assert len(configurations()) >= 10


@pytest.mark.parametrize("code", configurations())
def test_each_documented_tls_configuration_connects(
    code: str, cluster: EmbeddedCluster, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.pem"))  # the system's authorities
    address = cluster.client_config()["bootstrap.servers"]
    assert "kafka.example.com:9093" in code
    names: dict[str, Any] = {}
    exec(code.replace("kafka.example.com:9093", address).replace("/etc/kafka", str(files)), names)
    config = names["config"]
    with KafkaProducer(config) as producer:
        sent = producer.send("t", b"x", partition=0).get(30)
    with KafkaConsumer(config) as consumer:
        partition = TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        assert [record.value for record in consumer.poll(30_000)[partition]] == [b"x"]
