"""The configuration tables compared with Java's, and with keys that users of other clients write."""

from __future__ import annotations

import json
import pickle
import re
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pykclient.config.abstract_config import AbstractConfig
from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.client_keys import INT_MAX, JMX_REPORTER, LONG_MAX
from pykclient.config.config_def import ConfigKey, Type
from pykclient.config.consumer_config import ASSIGNOR_NAMES, ConsumerConfig, ShareConsumerConfig
from pykclient.config.librdkafka_settings import _ADVICE, _RENAMED
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import ConfigError
from pykclient.serialization import StringSerializer
from tests.support.java import run_java

ROOT = Path(__file__).parents[2]
TABLES: dict[str, type[AbstractConfig]] = {
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "admin": AdminClientConfig,
}
ALL_KEYS = [(table, key) for table, config in TABLES.items() for key in config.DEFINITION.keys.values()]


#: Values of keys that share consumers refuse, and whose default is None.
SHARE_VALUES = {"group.instance.id": "i", "group.remote.assignor": "uniform", "group.id": "g"}


def producer(**more: Any) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="localhost", **more)


def consumer(**more: Any) -> ConsumerConfig:
    return ConsumerConfig(bootstrap_servers="localhost", **more)


# --- against Java -----------------------------------------------------------------------------------------------------


def java_default(row: dict[str, Any]) -> Any:
    """Return Java's default in our terms: assignors by name, and optional serializers."""
    if row["name"] == "partition.assignment.strategy":
        return [ASSIGNOR_NAMES[name] for name in row["default"]]
    if row["name"] == "bootstrap.servers" and row["table"] != "admin":
        return ["localhost:9092"]  # Java has none
    if row["name"] in ("receive.buffer.bytes", "send.buffer.bytes"):
        return -1  # Java's fixed sizes stop the system from adapting them
    if row["required"] and not row["name"].endswith("serializer"):
        return "required"
    return row["default"]


@pytest.mark.java
def test_tables_equal_javas() -> None:
    """Every key of the three clients has Java's name, type, default, valid values and importance."""
    output = run_java(Path(__file__).with_name("ConfigOracle.java")).decode()
    seen: dict[str, set[str]] = {table: set() for table in TABLES}
    for line in output.splitlines():
        row = json.loads(line)
        key = TABLES[row["table"]].DEFINITION.keys[row["name"]]
        seen[row["table"]].add(key.name)
        ours = {
            "table": row["table"],
            "name": key.name,
            "type": key.type,
            "importance": key.importance,
            "valid": key.valid_values,
            "default": key.default_value() if key.has_default else "required",
        }
        assert ours == {**{name: row[name] for name in ours}, "default": java_default(row)}
    for table, config in TABLES.items():
        assert seen[table] == {key.name for key in config.DEFINITION.keys.values() if not key.extension}


@pytest.mark.parametrize(("table", "key"), ALL_KEYS)
def test_every_default_is_valid_and_documented(table: str, key: ConfigKey) -> None:
    assert key.doc.endswith((".", ")"))
    if key.has_default and not (key.unsupported and key.type == Type.CLASS):
        assert key.parse(key.default) == key.default_value()


# --- rules that span keys ---------------------------------------------------------------------------------------------


def test_acks_accepts_numbers_and_all() -> None:
    assert producer()["acks"] == "-1"
    for given, expected in ((0, "0"), (1, "1"), (-1, "-1"), ("all", "-1"), ("1", "1")):
        assert producer(acks=given)["acks"] == expected
    with pytest.raises(ConfigError, match="acks = 2: it must be one of all, -1, 0, 1"):
        producer(acks=2)


@pytest.mark.parametrize("conflict", [{"acks": 1}, {"acks": 0}, {"retries": 0}])
def test_conflicting_settings_disable_default_idempotence(conflict: dict[str, Any]) -> None:
    assert producer()["enable.idempotence"] is True
    assert producer(**conflict)["enable.idempotence"] is False
    assert producer(**conflict, enable_idempotence=False)["enable.idempotence"] is False
    with pytest.raises(ConfigError, match=r"enable\.idempotence=True needs"):
        producer(**conflict, enable_idempotence=True)


def test_idempotence_limits_requests_in_flight() -> None:
    with pytest.raises(ConfigError, match="= 6: idempotence allows at most 5"):
        producer(max_in_flight_requests_per_connection=6)
    many = producer(max_in_flight_requests_per_connection=6, enable_idempotence=False)
    assert many["max.in.flight.requests.per.connection"] == 6


def test_delivery_timeout_leaves_time_to_linger_and_to_send() -> None:
    assert producer(linger_ms=100_000, request_timeout_ms=50_000)["delivery.timeout.ms"] == 150_000
    assert producer(linger_ms=LONG_MAX)["delivery.timeout.ms"] == INT_MAX
    assert producer(linger_ms=LONG_MAX)["linger.ms"] == INT_MAX
    with pytest.raises(ConfigError, match=r"at least linger\.ms \+ request\.timeout\.ms = 30005"):
        producer(delivery_timeout_ms=30_000)


def test_reconnect_backoff_without_maximum_is_constant() -> None:
    assert producer(reconnect_backoff_ms=7)["reconnect.backoff.max.ms"] == 7
    assert producer(reconnect_backoff_ms=7, reconnect_backoff_max_ms=70)["reconnect.backoff.max.ms"] == 70
    assert producer()["reconnect.backoff.max.ms"] == 1000


def test_backoff_above_its_maximum_warns(caplog: pytest.LogCaptureFixture) -> None:
    producer(retry_backoff_ms=5000)
    assert "retry.backoff.ms=5000 is above retry.backoff.max.ms=1000" in caplog.text


def test_auto_commit_needs_a_group() -> None:
    assert consumer()["enable.auto.commit"] is False
    assert consumer(group_id="g")["enable.auto.commit"] is True
    assert consumer(group_id="g", enable_auto_commit=False)["enable.auto.commit"] is False
    assert consumer(enable_auto_commit=False)["enable.auto.commit"] is False
    with pytest.raises(ConfigError, match=r"needs a group\.id"):
        consumer(enable_auto_commit=True)


def test_heartbeat_interval_must_be_below_session_timeout() -> None:
    with pytest.raises(ConfigError, match=r"must be below session\.timeout\.ms = 3000"):
        consumer(group_id="g", session_timeout_ms=3000)
    assert consumer(session_timeout_ms=3000)["session.timeout.ms"] == 3000, "no group, no heartbeats"


@pytest.mark.parametrize(
    ("protocol", "key", "value"),
    [
        ("classic", "group_remote_assignor", "uniform"),
        ("consumer", "heartbeat_interval_ms", 1000),
        ("consumer", "partition_assignment_strategy", ["range"]),
        ("CONSUMER", "session_timeout_ms", 10_000),
        ("classic", "share_acknowledgement_mode", "explicit"),
        ("consumer", "share_acquire_mode", "record_limit"),
    ],
)
def test_settings_of_other_group_protocol_are_refused(protocol: str, key: str, value: Any) -> None:
    name = key.replace("_", ".")
    expected = f"^{re.escape(name)} cannot be set with group.protocol={protocol.lower()}: "
    with pytest.raises(ConfigError, match=expected):
        consumer(group_id="g", group_protocol=protocol, **{key: value})


@pytest.mark.java
def test_share_consumer_refuses_same_keys_as_javas() -> None:
    source = Path(__file__).with_name("ShareConfigOracle.java")
    refused = json.loads(run_java(source))
    assert refused, "Java refuses some"
    for key in ConsumerConfig.DEFINITION.keys.values():
        if key.extension or key.unsupported:
            continue
        value = SHARE_VALUES.get(key.name, key.default)
        settings = {"bootstrap.servers": "localhost:9092", "group.id": "g", key.name: value}
        if key.name in refused:
            with pytest.raises(ConfigError, match=f"^{re.escape(key.name)} cannot be set for a KafkaShareConsumer: "):
                ShareConsumerConfig(settings)
        elif key.has_default:
            assert ShareConsumerConfig(settings)["group.id"] == "g"


def test_consumer_group_protocol_has_its_settings() -> None:
    config = consumer(group_id="g", group_protocol="consumer", group_remote_assignor="range")
    assert (config["group.protocol"], config["group.remote.assignor"]) == ("consumer", "range")


@pytest.mark.parametrize("instance_id", ["a b", "x" * 250, ".", "..", "ä"])
def test_invalid_group_instance_id_is_refused(instance_id: str) -> None:
    assert consumer(group_instance_id="host-1_a.b")["group.instance.id"] == "host-1_a.b"
    with pytest.raises(ConfigError, match=r"group\.instance\.id"):
        consumer(group_instance_id=instance_id)


def test_assignors_are_given_by_name_or_java_class() -> None:
    strategy = "partition.assignment.strategy"
    assert consumer()[strategy] == ["range", "cooperative-sticky"]
    assert consumer(partition_assignment_strategy="cooperative-sticky, sticky")[strategy] == [
        "cooperative-sticky",
        "sticky",
    ]
    assert consumer(partition_assignment_strategy=["roundrobin"])[strategy] == ["roundrobin"]
    java = "org.apache.kafka.clients.consumer.RoundRobinAssignor,org.apache.kafka.clients.consumer.StickyAssignor"
    assert consumer(partition_assignment_strategy=java)[strategy] == ["roundrobin", "sticky"]
    assert consumer(partition_assignment_strategy=(ConsumerConfig,))[strategy] == [ConsumerConfig]


@pytest.mark.parametrize("value", ["latest", "earliest", "none", "by_duration:PT1H", "by_duration:P7D"])
def test_valid_auto_offset_reset_is_accepted(value: str) -> None:
    assert consumer(auto_offset_reset=value)["auto.offset.reset"] == value


@pytest.mark.parametrize("value", ["oldest", "", "by_duration", "by_duration:", "by_duration:-PT1H", "1h", None])
def test_wrong_auto_offset_reset_is_refused(value: str | None) -> None:
    with pytest.raises(ConfigError, match=r"valid values: \[latest, earliest, none, by_duration:PnDTnHnMn.nS\]"):
        consumer(auto_offset_reset=value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config_providers", "file"),
    ],
)
def test_unsupported_key_says_not_supported_yet(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{key.replace('_', '.')} is not supported yet: "):
        consumer(**{key: value})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"enable_idempotence": False}, r"transactional\.id needs enable\.idempotence=True"),
        ({"acks": 1}, r"transactional\.id needs acks=all, not 1"),
        ({"retries": 0}, r"transactional\.id needs retries above 0"),
        ({"max_in_flight_requests_per_connection": 6}, r"allows at most 5"),
    ],
)
def test_transactions_need_idempotence(settings: dict[str, Any], why: str) -> None:
    assert producer(transactional_id="t")["enable.idempotence"]
    with pytest.raises(ConfigError, match=why):
        producer(transactional_id="t", **settings)


def test_two_phase_commit_needs_transactional_id() -> None:
    assert producer(transactional_id="t", transaction_two_phase_commit_enable=True)[
        "transaction.two.phase.commit.enable"
    ]
    with pytest.raises(ConfigError, match=r"enable=True needs a transactional\.id"):
        producer(transaction_two_phase_commit_enable=True)
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms is not possible with .* never time out"):
        producer(transactional_id="t", transaction_two_phase_commit_enable=True, transaction_timeout_ms=60_000)


def test_enumerated_values_ignore_case() -> None:
    config = consumer(security_protocol="plaintext", metadata_recovery_strategy="NONE", group_protocol="CLASSIC")
    assert config["security.protocol"] == "PLAINTEXT"
    assert config["metadata.recovery.strategy"] == "none"
    assert config["group.protocol"] == "classic"


def test_javas_jmx_reporter_is_ignored() -> None:
    assert producer()["metric.reporters"] == []
    assert producer(metric_reporters=[JMX_REPORTER, dict])["metric.reporters"] == [dict]


def test_javas_serializer_names_select_ours() -> None:
    java = "org.apache.kafka.common.serialization.StringSerializer"
    assert ProducerConfig({"bootstrap.servers": "a", "key.serializer": java})["key.serializer"] is StringSerializer


@pytest.mark.parametrize("name", ["murmur2_random", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_partitioners_may_be_named(name: str) -> None:
    assert producer(partitioner=f" {name} ")["partitioner.class"] == name, "the producer knows what it stands for"


def test_bootstrap_servers_default_to_localhost() -> None:
    assert ProducerConfig()["bootstrap.servers"] == ["localhost:9092"]
    assert ConsumerConfig()["bootstrap.servers"] == ["localhost:9092"]
    assert list(AdminClientConfig()["bootstrap.servers"]) == ["localhost:9092"]
    assert not AdminClientConfig(bootstrap_controllers="c:9093")["bootstrap.servers"]
    with pytest.raises(ConfigError, match=r"bootstrap\.servers must not be empty"):
        AdminClientConfig(bootstrap_servers="")


@pytest.mark.parametrize("config", TABLES.values())
def test_bootstrap_servers_accept_list_or_text(config: type[AbstractConfig]) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        config(bootstrap_servers=[])
    assert config(bootstrap_servers=["a:1", "b:2"])["bootstrap.servers"] == ["a:1", "b:2"]
    assert config(bootstrap_servers="a:1, b:2")["bootstrap.servers"] == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"fetch_max_wait_ms": 50_000, "request_timeout_ms": 40_000},
            "fetch.max.wait.ms = 50000: it must be below request.timeout.ms = 40000",
        ),
        ({"request_timeout_ms": 500}, "fetch.max.wait.ms = 500: it must be below request.timeout.ms = 500"),
        (
            {"request_timeout_ms": 50_000, "connections_max_idle_ms": 40_000},
            "request.timeout.ms = 50000: it must be below connections.max.idle.ms = 40000",
        ),
        (
            {"request_timeout_ms": 70_000, "default_api_timeout_ms": 60_000},
            "default.api.timeout.ms = 60000: it must be at least request.timeout.ms = 70000",
        ),
    ],
)
def test_a_consumers_timeouts_must_not_contradict_each_other(settings: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        consumer(**settings)


def test_default_api_timeout_follows_request_timeout() -> None:
    assert consumer(request_timeout_ms=70_000)["default.api.timeout.ms"] == 70_000
    assert consumer(request_timeout_ms=600_000, connections_max_idle_ms=-1)["default.api.timeout.ms"] == 600_000
    assert consumer(request_timeout_ms=1_000, default_api_timeout_ms=1_000)["default.api.timeout.ms"] == 1_000


def test_fractions_of_milliseconds_are_rounded() -> None:
    settings = consumer(consumer_timeout_ms=1500.5, retry_backoff_ms=0.1 * 3 * 1000)
    assert (settings["consumer.timeout.ms"], settings["retry.backoff.ms"]) == (1500, 300)
    with pytest.raises(ConfigError, match=r"max\.poll\.records"):
        consumer(max_poll_records=1.5)
    with pytest.raises(ConfigError, match=r"retry\.backoff\.ms"):
        consumer(retry_backoff_ms=float("nan"))


@pytest.mark.parametrize(
    ("settings", "meaning"),
    [
        ({"auto_offset_reset": "smallest"}, "earliest"),
        ({"auto_offset_reset": "largest"}, "latest"),
        ({"auto_offset_reset": "EARLIEST"}, "earliest"),
        ({"auto_offset_reset": "by_duration:PT1H"}, "by_duration:PT1H"),
        ({"isolation_level": "READ_COMMITTED"}, "read_committed"),
        ({"isolation_level": 1}, "read_committed"),
        ({"isolation_level": 0}, "read_uncommitted"),
        ({"consumer_timeout_ms": -1}, LONG_MAX),
    ],
)
def test_kafka_python_spellings_are_accepted(settings: dict[str, Any], meaning: Any) -> None:
    (name,) = settings
    assert consumer(**settings)[name] == meaning


@pytest.mark.parametrize("config", [producer(linger_ms=1), consumer(group_id="g")])
def test_configurations_can_be_pickled(config: AbstractConfig) -> None:
    assert dict(pickle.loads(pickle.dumps(config))) == dict(config)


# --- programs written for kafka-python --------------------------------------------------------------------------------

SHARED_BY_KAFKA_PYTHON: dict[str, Any] = {
    "connections_max_idle_ms": 540_000,
    "allow_auto_create_topics": True,
    "metadata_max_age_ms": 300_000,
    "client_dns_lookup": "use_all_dns_ips",
    "retry_backoff_ms": 100,
    "request_timeout_ms": 30_000,
    "receive_message_max_bytes": 100_000_000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "socket_options": [(6, 1, 1)],
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30_000,
    "max_in_flight_requests_per_connection": 5,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "ssl_ciphers": None,
    "ssl_check_hostname": True,
    "api_version": None,
    "bootstrap_timeout_ms": 30_000,
    "metric_reporters": [],
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30_000,
    "selector": selectors.DefaultSelector,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "net": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "default_api_timeout_ms": 60_000,
    "socket_connection_setup_timeout_ms": 10_000,
    "socket_connection_setup_timeout_max_ms": 30_000,
    "client_id": None,
}
PRODUCER_OF_KAFKA_PYTHON: dict[str, Any] = {
    "key_serializer": str.encode,
    "value_serializer": None,
    "enable_idempotence": True,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "delivery_timeout_ms": 120_000,
    "acks": -1,
    "compression_type": None,
    "retries": float("inf"),
    "batch_size": 16_384,
    "linger_ms": 0,
    "partitioner": hash,
    "max_block_ms": 60_000,
    "max_request_size": 1_048_576,
}
CONSUMER_OF_KAFKA_PYTHON: dict[str, Any] = {
    "client_rack": "",
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": bytes.decode,
    "value_deserializer": None,
    "enable_incremental_fetch_sessions": True,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52_428_800,
    "max_partition_fetch_bytes": 1_048_576,
    "auto_offset_reset": "latest",
    "enable_auto_commit": False,
    "auto_commit_interval_ms": 5000,
    "check_crcs": True,
    "isolation_level": "read_uncommitted",
    "partition_assignment_strategy": (ConsumerConfig,),
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3000,
    "consumer_timeout_ms": float("inf"),
    "metric_group_prefix": "consumer",
    "exclude_internal_topics": True,
}


def test_kafka_pythons_producer_arguments_are_known() -> None:
    config = producer(**SHARED_BY_KAFKA_PYTHON, **PRODUCER_OF_KAFKA_PYTHON)
    assert config["receive.buffer.bytes"] == -1
    assert config["retries"] == INT_MAX
    assert config["compression.type"] == "none"
    assert config["partitioner.class"] is hash
    assert config["client.id"] == ""


def test_kafka_pythons_consumer_arguments_are_known() -> None:
    config = consumer(**SHARED_BY_KAFKA_PYTHON, **CONSUMER_OF_KAFKA_PYTHON)
    assert config["consumer.timeout.ms"] == LONG_MAX
    assert consumer(consumer_timeout_ms=500)["consumer.timeout.ms"] == 500


def test_kafka_pythons_own_arguments_are_all_listed() -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python tells its arguments")
    shared = SHARED_BY_KAFKA_PYTHON.keys() | {"bootstrap_servers", "kafka_client", "default_offset_commit_callback"}
    assert kafka.KafkaProducer.DEFAULT_CONFIG.keys() <= shared | PRODUCER_OF_KAFKA_PYTHON.keys()
    assert kafka.KafkaConsumer.DEFAULT_CONFIG.keys() <= shared | CONSUMER_OF_KAFKA_PYTHON.keys()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("kafka_client", object, "network client"),
        ("socket_options", [(6, 1, 0)], "TCP_NODELAY"),
    ],
)
def test_refused_arguments_say_why(name: str, value: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not a key of this client: .*{reason}"):
        producer(**{name: value})


def test_arguments_without_effect_warn(caplog: pytest.LogCaptureFixture) -> None:
    producer(api_version=(2, 6), bootstrap_timeout_ms=30_000)
    assert "api_version has no effect: the client negotiates versions" in caplog.text
    assert "bootstrap_timeout_ms" not in caplog.text


# --- programs written for confluent-kafka -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*_RENAMED, *_ADVICE])
def test_librdkafka_keys_are_refused_with_advice(name: str) -> None:
    for config in (ProducerConfig, ConsumerConfig):
        with pytest.raises(ConfigError, match="this is librdkafka's"):
            config({"bootstrap.servers": "a", name: 1})


def test_advice_names_keys_that_exist() -> None:
    known = ProducerConfig.DEFINITION.keys | ConsumerConfig.DEFINITION.keys
    assert {name for names in _RENAMED.values() for name in names} <= known.keys()
    assert not (_RENAMED.keys() | _ADVICE.keys()) & known.keys()


@pytest.mark.parametrize(
    ("config", "name", "kafka_name"),
    [
        (ProducerConfig, "queue.buffering.max.ms", "linger.ms"),
        (ProducerConfig, "message.max.bytes", "max.request.size"),
        (ConsumerConfig, "message.max.bytes", "fetch.max.bytes"),
        (ProducerConfig, "message.timeout.ms", "delivery.timeout.ms"),
        (ConsumerConfig, "fetch.wait.max.ms", "fetch.max.wait.ms"),
    ],
)
def test_librdkafkas_names_are_translated(config: type[AbstractConfig], name: str, kafka_name: str) -> None:
    with pytest.raises(ConfigError, match=f"Kafka's is '{kafka_name}'"):
        config({"bootstrap.servers": "a", name: 1})


# --- the reference ----------------------------------------------------------------------------------------------------


def test_reference_is_up_to_date() -> None:
    command = [sys.executable, "tools/config_reference.py", "docs/configuration.md", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_reference_has_every_key_in_both_spellings() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for _, key in ALL_KEYS:
        assert f"`{key.name}`" in text
        if key.unsupported is None:
            assert f"`{key.keyword}`" in text
