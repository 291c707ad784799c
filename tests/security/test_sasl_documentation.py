"""docs/security.md is true: each configuration for SASL connects, and those for other services are accepted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.config.producer_config import ProducerConfig
from pykclient.network.authenticator.logins import login_for
from pykclient.testing import EmbeddedCluster, Security
from pykclient.testing.certificates import CertificateAuthority
from pykclient.types import TopicPartition
from tests.security.tokens import TokenServer, unsecured_token

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
ADDRESS = "kafka.example.com:9094"
ENDPOINT = "https://idp.example.com/oauth2/token"


def configurations() -> list[Any]:
    """Return the page's configurations for SASL, with the titles of their sections."""
    section = PAGE.split("\n## SASL\n", 1)[1].split("\n## ", 1)[0]
    found = []
    for part in section.split("\n### ")[1:]:
        title, _, text = part.partition("\n")
        found += [pytest.param(code, id=title) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return found


def is_local(code: str) -> bool:
    return ADDRESS in code and "GSSAPI" not in code


LOCAL = [found for found in configurations() if is_local(found.values[0])]
OTHERS = [found for found in configurations() if not is_local(found.values[0])]


@pytest.fixture(scope="module")
def cluster(authority: CertificateAuthority) -> Iterator[EmbeddedCluster]:
    security = Security("SASL_SSL", authority=authority)
    with EmbeddedCluster(security=security, delegation_token_secret_key="a secret of the brokers") as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def provider() -> Iterator[TokenServer]:
    with TokenServer("alice") as server:
        yield server


def test_sasl_page_has_configurations() -> None:
    assert len(LOCAL) >= 6
    assert len(OTHERS) >= 5


@pytest.mark.parametrize("code", LOCAL)
def test_each_documented_sasl_configuration_connects(
    code: str,
    cluster: EmbeddedCluster,
    authority: CertificateAuthority,
    provider: TokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_USER", "alice")
    monkeypatch.setenv("KAFKA_PASSWORD", "alice-secret")
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    (tmp_path / "token").write_text(unsecured_token("alice", 3600))
    address = cluster.client_config()["bootstrap.servers"]
    code = code.replace(ADDRESS, address).replace("/etc/kafka", str(tmp_path)).replace(ENDPOINT, provider.url)
    names: dict[str, Any] = {
        "my_token": lambda: unsecured_token("alice", 3600),
        "my_expiry_time": lambda: time() + 3600,
    }
    exec(code, names)
    config = names["config"]
    with KafkaProducer(config) as producer:
        sent = producer.send("t", b"x", partition=0).get(30)
    with KafkaConsumer(config) as consumer:
        partition = TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        assert [record.value for record in consumer.poll(30_000)[partition]] == [b"x"]


@pytest.mark.parametrize("code", OTHERS)
def test_configurations_of_services_are_accepted(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", object())
    names: dict[str, Any] = {}
    exec(code, names)
    login = login_for(ProducerConfig(names["config"]))
    assert login.mechanism == names["config"]["sasl.mechanism"]
    login.close()
