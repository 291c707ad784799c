"""The settings of AIOKafkaProducer: aiokafka's names, values and texts, and KafkaProducer's."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.aio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer
from pykclient.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"max_batch_size": 1_000}, "batch.size", 1_000),
        ({"batch_size": 1_000}, "batch.size", 1_000),
        ({}, "linger.ms", 0),
        ({"linger_ms": 7}, "linger.ms", 7),
        ({"acks": "all"}, "acks", "-1"),
        ({"acks": -1}, "acks", "-1"),
        ({"acks": 1}, "enable.idempotence", False),
        ({}, "enable.idempotence", True),
        ({"enable_idempotence": False}, "enable.idempotence", False),
        ({"compression_type": None}, "compression.type", "none"),
        ({"compression_type": "zstd"}, "compression.type", "zstd"),
        ({"connections_max_idle_ms": None}, "connections.max.idle.ms", -1),
        ({"metadata_max_age_ms": 1_000}, "metadata.max.age.ms", 1_000),
        ({"request_timeout_ms": 5_000}, "request.timeout.ms", 5_000),
        ({"retry_backoff_ms": 50}, "retry.backoff.ms", 50),
        ({"max_request_size": 5_000}, "max.request.size", 5_000),
        ({"buffer_memory": 5_000_000}, "buffer.memory", 5_000_000),
        ({"client_id": "mine"}, "client.id", "mine"),
        # What aiokafka has by default may be given.
        ({"sasl_mechanism": "PLAIN", "sasl_kerberos_service_name": "kafka", "ssl_context": None}, "acks", "-1"),
        ({"transaction_timeout_ms": 60_000, "transactional_id": None, "api_version": None}, "acks", "-1"),
        ({"transactional_id": "t", "enable_idempotence": False}, "enable.idempotence", True),
        ({"security_protocol": "PLAINTEXT"}, "acks", "-1"),
    ],
)
def test_settings_become_kafkas_keys(settings: dict[str, Any], key: str, value: object) -> None:
    assert AIOKafkaProducer(**settings).config[key] == value


def test_mapping_may_use_dotted_names() -> None:
    producer = AIOKafkaProducer({"linger.ms": 3, "batch.size": 5}, acks=1)
    assert [producer.config[key] for key in ("linger.ms", "batch.size", "acks")] == [3, 5, "1"]


PASSWORD = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "alice", "sasl_plain_password": "hush"}


@pytest.mark.parametrize("make", [AIOKafkaProducer, AIOKafkaConsumer])
@pytest.mark.parametrize(
    ("config", "settings", "mechanism"),
    [
        (None, {"sasl_mechanism": "PLAIN"}, "PLAIN"),
        (None, {**PASSWORD, "sasl_mechanism": "PLAIN"}, "PLAIN"),
        (None, PASSWORD, "PLAIN"),  # aiokafka's default
        (None, {**PASSWORD, "sasl_mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, PASSWORD, "SCRAM-SHA-256"),
        ({"sasl.mechanisms": "SCRAM-SHA-256"}, PASSWORD, "SCRAM-SHA-256"),
        (None, {"security_protocol": "SASL_PLAINTEXT", "sasl_kerberos_service_name": "broker"}, "GSSAPI"),
        ({"security.protocol": "SASL_PLAINTEXT"}, {}, "GSSAPI"),
    ],
)
def test_mechanism_is_set(make: Any, config: dict[str, Any] | None, settings: dict[str, Any], mechanism: str) -> None:
    client = make(config or {}, **settings)
    assert client._config["sasl.mechanism"] == mechanism


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"acks": 122}, "Invalid ACKS parameter"),
        ({"acks": True}, "Invalid ACKS parameter"),
        ({"compression_type": "my_custom"}, "Invalid compression type!"),
        ({"acks": 1, "enable_idempotence": True}, "acks=1 not supported if enable_idempotence=True"),
        ({"security_protocol": "SOME"}, "`security_protocol` should be SSL or PLAINTEXT"),
        ({"security_protocol": "SSL"}, "`ssl_context` is mandatory if security_protocol=='SSL'"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "`ssl_context` is mandatory"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl_plain_username and sasl_plain_password required for PLAIN"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "a"},
            "sasl_plain_username and sasl_plain_password required for PLAIN",
        ),
        ({"transactional_id": "t", "acks": 1}, "transactional.id needs acks=all"),
        ({"max_batch_size": 5, "batch_size": 5}, "give one of them"),
        ({"linger": 5}, "linger"),
        ({"max_batch_size": "large"}, "batch"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AIOKafkaProducer(**settings)
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)  # as aiokafka's


@pytest.mark.parametrize("face", [AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaShareConsumer, AIOKafkaAdminClient])
def test_unknown_mechanism_is_refused_by_the_constructor(face: Any) -> None:
    settings = {"bootstrap_servers": "localhost:1", "sasl_mechanism": "FOO"}
    settings |= {"sasl_plain_username": "a", "sasl_plain_password": "b"}
    group = {"group_id": "g"} if face is AIOKafkaShareConsumer else {}
    with pytest.raises(ConfigError, match=r"sasl\.mechanism = 'FOO': it must be one of PLAIN, .*OAUTHBEARER"):
        face(security_protocol="SASL_PLAINTEXT", **settings, **group)
    face(**settings, **group)  # without SASL it has no effect
