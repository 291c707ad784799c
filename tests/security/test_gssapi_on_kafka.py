"""GSSAPI on real Kafka, with tickets of a real key distribution center.

These tests need Debian's packages krb5-kdc and krb5-admin-server and the package gssapi; without, they are left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import SaslAuthenticationError
from pykclient.testing.certificates import CertificateAuthority
from tests.kafka import kdc
from tests.kafka.cluster import KafkaCluster
from tests.kafka.kdc import REALM, Kdc

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 1_000
SESSION_MS = 1_500  # brokers refuse to authenticate a connection again within a second


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    why = kdc.missing()
    if why is None and importlib.util.find_spec("gssapi") is None:
        why = "the package gssapi: pip install 'pykclient[gssapi]', which needs libkrb5-dev"
    if why is not None:
        pytest.skip(f"Kerberos needs {why}")
    with Kdc(tmp_path_factory.mktemp("kdc")) as center, pytest.MonkeyPatch.context() as patch:
        for name, value in center.environment.items():
            patch.setenv(name, value)
        yield center


@pytest.fixture(scope="module")
def keytabs(center: Kdc) -> dict[str, Path]:
    return {name: center.add(name) for name in ("kafka/127.0.0.1", "alice", "mallory")}


@pytest.fixture(scope="module")
def kerberized(
    center: Kdc, keytabs: dict[str, Path], authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    """One broker with GSSAPI, with TLS and without. Sessions are short on the listener without."""
    store = tmp_path_factory.mktemp("kerberized") / "broker.pem"
    certificate = authority.issue("broker", ["127.0.0.1", "localhost"])
    store.write_text(certificate.key_pem() + certificate.certificate_pem)
    module = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{keytabs["kafka/127.0.0.1"]}" principal="kafka/127.0.0.1@{REALM}";'
    )
    properties: dict[str, object] = {
        "sasl.kerberos.service.name": "kafka",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "listener.name.kerberos.gssapi.connections.max.reauth.ms": SESSION_MS,
    }
    for name in ("kerberos", "kerberos_tls"):
        properties[f"listener.name.{name}.sasl.enabled.mechanisms"] = "GSSAPI"
        properties[f"listener.name.{name}.gssapi.sasl.jaas.config"] = module
    listeners = {"KERBEROS": "SASL_PLAINTEXT", "KERBEROS_TLS": "SASL_SSL"}
    options = [f"-Djava.security.krb5.conf={center.krb5_conf}", "-Xshare:auto"]
    with KafkaCluster(1, properties, listeners=listeners, java_options=options) as cluster:
        yield cluster


def settings(cluster: KafkaCluster, keytab: Path, principal: str) -> dict[str, Any]:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    broker = cluster.brokers[1]
    return {
        "bootstrap.servers": f"{broker.host}:{broker.ports['KERBEROS']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{module} required useKeyTab=true keyTab="{keytab}" principal="{principal}@{REALM}";',
    }


def test_records_survive_reauthentication(kerberized: KafkaCluster, keytabs: dict[str, Path], topic: str) -> None:
    config = settings(kerberized, keytabs["alice"], "alice")
    keywords = {name.replace(".", "_"): value for name, value in config.items()}
    values: list[bytes | None] = []
    with KafkaProducer(config) as producer, KafkaConsumer(topic, auto_offset_reset="earliest", **keywords) as consumer:
        sent = 0
        while sent < RECORDS or reauthentications(producer) < 3:
            producer.send(topic, b"%d" % sent).get(30)
            sent += 1
            for records in consumer.poll(0).values():
                values += [record.value for record in records]
        while len(values) < sent:
            batches = consumer.poll(30_000)
            assert batches, f"{len(values)} of {sent} records arrived"
            values += [record.value for records in batches.values() for record in records]
    assert values == [b"%d" % number for number in range(sent)]


def test_confluent_kafka_reads_records_sent_over_kerberos_and_tls(
    kerberized: KafkaCluster, keytabs: dict[str, Path], authority: CertificateAuthority, topic: str
) -> None:
    """confluent-kafka, whose wheels have no Kerberos, reads the records on the listener without it."""
    broker = kerberized.brokers[1]
    config = settings(kerberized, keytabs["alice"], "alice") | {
        "bootstrap.servers": f"{broker.host}:{broker.ports['KERBEROS_TLS']}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": authority.certificate_pem,
    }
    values = [b"%d" % number for number in range(RECORDS)]
    with KafkaProducer(config) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush(60)
    found: list[bytes | None] = []
    with KafkaConsumer(config) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        while len(found) < RECORDS:
            batches = consumer.poll(30_000)
            assert batches, f"{len(found)} of {RECORDS} records arrived"
            found += [record.value for record in batches[partition]]
    assert found == values
    reader = confluent_kafka.Consumer({"bootstrap.servers": kerberized.bootstrap_servers, "group.id": topic})
    try:
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert [message.value() for message in reader.consume(RECORDS, 60)] == values
    finally:
        reader.close()


def reauthentications(client: Any) -> float:
    name = "successful-reauthentication-total"
    return float(max((values[name] for values in client.metrics().values() if name in values), default=0))


def test_wrong_keytab_is_refused(kerberized: KafkaCluster, keytabs: dict[str, Path]) -> None:
    """Tickets that others have got for the principal do not count."""
    good = settings(kerberized, keytabs["alice"], "alice")
    bad = settings(kerberized, keytabs["mallory"], "alice")
    with KafkaProducer(good, max_block_ms=30_000) as producer:
        assert producer.partitions_for("anything")
    with (
        KafkaProducer(bad, max_block_ms=30_000) as producer,
        pytest.raises(SaslAuthenticationError, match=r"GSSAPI.*check the principal, its keytab") as caught,
    ):
        producer.partitions_for("anything")
    assert bad["bootstrap.servers"] in str(caught.value)


def test_unknown_kerberos_service_is_explained(kerberized: KafkaCluster, keytabs: dict[str, Path]) -> None:
    config = {**settings(kerberized, keytabs["alice"], "alice"), "sasl.kerberos.service.name": "kafka2"}
    with (
        KafkaProducer(config, max_block_ms=30_000) as producer,
        pytest.raises(SaslAuthenticationError, match=r"Kerberos failed.*host names are those of the service"),
    ):
        producer.partitions_for("t")
