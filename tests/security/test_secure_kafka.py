"""The fixture of real Kafka with TLS and SASL listeners."""

from __future__ import annotations

import socket
import ssl
import struct

import pytest

from tests.kafka.secure_kafka import SecureKafka

API_VERSIONS = 18


def handshake(kafka: SecureKafka, listener: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    host, port = kafka.bootstrap(listener).split(":")
    plain = socket.create_connection((host, int(port)), timeout=30)
    return context.wrap_socket(plain, server_hostname=host)


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_tls_listeners_have_a_certificate_of_the_authority(secure_kafka: SecureKafka, listener: str) -> None:
    context = ssl.create_default_context(cafile=secure_kafka.path("ca.pem"))
    with handshake(secure_kafka, listener, context) as connection:
        certificate = connection.getpeercert()
        assert certificate is not None
        assert certificate["subject"] == ((("commonName", "broker"),),)


def test_mutual_tls_listener_requires_client_certificate(secure_kafka: SecureKafka) -> None:
    context = ssl.create_default_context(cafile=secure_kafka.path("ca.pem"))
    # With TLS 1.3, the broker's refusal arrives after the client's handshake.
    with pytest.raises(ssl.SSLError), handshake(secure_kafka, "MTLS", context) as connection:
        connection.recv(1)
    context.load_cert_chain(secure_kafka.path("client.crt"), secure_kafka.path("client.key"))
    with handshake(secure_kafka, "MTLS", context) as connection:
        connection.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 0, 7, -1))
        _, correlation_id = struct.unpack(">ii", connection.recv(8))
        assert correlation_id == 7
