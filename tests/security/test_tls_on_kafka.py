"""Produce and consume over TLS on real Kafka, with each form of keys and certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.types import TopicPartition
from tests.kafka.secure_kafka import STORE_PASSWORD, SecureKafka

RECORDS = 1_000

Configure = Callable[[SecureKafka], dict[str, Any]]


def pem_file(kafka: SecureKafka) -> dict[str, Any]:
    return {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": kafka.path("ca.pem"),
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": kafka.path("client.pem"),
    }


def pem_text(kafka: SecureKafka) -> dict[str, Any]:
    return {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": kafka.authority.certificate_pem,
        "ssl_keystore_type": "PEM",
        "ssl_keystore_certificate_chain": kafka.client_certificate.certificate_pem,
        "ssl_keystore_key": kafka.client_certificate.key_pem(STORE_PASSWORD),
        "ssl_key_password": STORE_PASSWORD,
    }


def pkcs12(kafka: SecureKafka) -> dict[str, Any]:
    return {
        "ssl_truststore_type": "PKCS12",
        "ssl_truststore_location": kafka.path("ca.p12"),
        "ssl_truststore_password": STORE_PASSWORD,
        "ssl_keystore_type": "PKCS12",
        "ssl_keystore_location": kafka.path("client.p12"),
        "ssl_keystore_password": STORE_PASSWORD,
    }


def kafka_python(kafka: SecureKafka) -> dict[str, Any]:
    return {
        "ssl_cafile": kafka.path("ca.pem"),
        "ssl_certfile": kafka.path("client.crt"),
        "ssl_keyfile": kafka.path("client.encrypted.key"),
        "ssl_password": STORE_PASSWORD,
    }


def librdkafka(kafka: SecureKafka) -> dict[str, Any]:
    return {
        "ssl.ca.location": kafka.path("ca.pem"),
        "ssl.certificate.location": kafka.path("client.crt"),
        "ssl.key.location": kafka.path("client.key"),
    }


def own_context(kafka: SecureKafka) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=kafka.path("ca.pem"))
    context.load_cert_chain(kafka.path("client.crt"), kafka.path("client.key"))
    return {"ssl_context": context}


def tls_1_2(kafka: SecureKafka) -> dict[str, Any]:
    return {**pem_file(kafka), "ssl_enabled_protocols": ["TLSv1.2"]}


def one_cipher_suite(kafka: SecureKafka) -> dict[str, Any]:
    return {**pem_file(kafka), "ssl_cipher_suites": ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]}


MUTUAL = [pem_file, pem_text, pkcs12, kafka_python, librdkafka, own_context, tls_1_2, one_cipher_suite]


def settings(kafka: SecureKafka, listener: str, configure: Configure) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap(listener),
        "security_protocol": kafka.protocol(listener),
        **configure(kafka),
    }


def produce(config: dict[str, Any], topic: str, count: int = RECORDS) -> list[bytes]:
    values = [b"%d" % index for index in range(count)]
    with KafkaProducer(**config) as producer:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(30)
        for future in futures:
            future.get(0)
    return values


def consume(config: dict[str, Any], topic: str, count: int = RECORDS) -> list[bytes | None]:
    values: list[bytes | None] = []
    with KafkaConsumer(**config) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        while len(values) < count:
            batches = consumer.poll(10_000)
            assert batches, f"{len(values)} of {count} records arrived"
            values += [record.value for record in batches[partition]]
    return values


@pytest.mark.parametrize("configure", MUTUAL)
def test_records_round_trip_over_mutual_tls(secure_kafka: SecureKafka, topic: str, configure: Configure) -> None:
    config = settings(secure_kafka, "MTLS", configure)
    assert consume(config, topic, len(sent := produce(config, topic))) == sent


def test_confluent_kafka_reads_records_sent_over_tls(secure_kafka: SecureKafka, topic: str) -> None:
    config = settings(secure_kafka, "SSL", lambda kafka: {"ssl_cafile": kafka.path("ca.pem")})
    sent = produce(config, topic)
    assert consume(config, topic) == sent
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": secure_kafka.bootstrap("SSL"),
            "security.protocol": "SSL",
            "ssl.ca.location": secure_kafka.path("ca.pem"),
            "group.id": topic,
        }
    )
    try:
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert [message.value() for message in reader.consume(RECORDS, 30)] == sent
    finally:
        reader.close()


def test_confluent_kafka_and_we_exchange_records_over_mutual_tls(secure_kafka: SecureKafka, topic: str) -> None:
    """confluent-kafka reads with the same certificate what we have written, and we read what it has written."""
    config = settings(secure_kafka, "MTLS", librdkafka)
    theirs = {key.replace("_", "."): value for key, value in config.items()}
    sent = produce(config, topic)
    reader = confluent_kafka.Consumer({**theirs, "group.id": topic})
    try:
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert [message.value() for message in reader.consume(RECORDS, 60)] == sent
    finally:
        reader.close()
    writer = confluent_kafka.Producer(theirs)
    for value in sent:
        writer.produce(topic, value)
    assert writer.flush(60) == 0
    assert consume(config, topic, 2 * RECORDS) == sent + sent


def test_records_larger_than_buffers_round_trip(secure_kafka: SecureKafka, topic: str) -> None:
    config = settings(secure_kafka, "SSL", lambda kafka: {"ssl_cafile": kafka.path("ca.pem")})
    values = [bytes([index]) * 900_000 for index in range(12)]
    with KafkaProducer(**config) as producer:
        futures = [producer.send(topic, value) for value in values]
        for future in futures:
            future.get(30)
    assert consume({**config, "max_partition_fetch_bytes": 5_000_000}, topic, len(values)) == values
