"""Topic settings equal Kafka's."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pykclient.errors import ConfigError, InvalidConfigurationError
from pykclient.testing.config import BrokerConfig
from pykclient.testing.log import log_config
from pykclient.testing.log.log_config import LogConfig, server_defaults
from pykclient.types import CREATE_TIME, LOG_APPEND_TIME
from tests.support.java import run_java


def _kafka_text(value: object) -> str:
    """Return a value as Kafka prints it."""
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


@pytest.mark.java
def test_keys_defaults_and_valid_values_are_kafkas() -> None:
    expected = {}
    for line in run_java(Path(__file__).with_name("LogConfigOracle.java")).decode().splitlines():
        name, type, default, valid, synonyms = line.split("\t")
        expected[name] = (type, default, valid, synonyms)
    ours = {
        key.name: (
            key.type,
            _kafka_text(key.default),
            key.valid_values,
            ",".join(log_config.SERVER_SYNONYMS.get(key.name, ())),
        )
        for key in log_config.DEFINITION.keys.values()
    }
    assert ours == expected


def test_topic_settings_override_broker_settings() -> None:
    broker = BrokerConfig({"log.retention.ms": 5000, "min.insync.replicas": 2, "log.cleanup.policy": "compact,delete"})
    config = LogConfig(server_defaults(broker), {"min.insync.replicas": "3", "message.timestamp.type": "LogAppendTime"})
    assert (config.retention_ms, config.min_in_sync_replicas) == (5000, 3)
    assert (config.compact, config.delete) == (True, True)
    assert config.message_timestamp_type == LOG_APPEND_TIME
    assert LogConfig().message_timestamp_type == CREATE_TIME


def test_brokers_may_have_smaller_segments_than_topics() -> None:
    defaults = server_defaults(BrokerConfig({"log.segment.bytes": 1000}))
    assert LogConfig(defaults).segment_size == 1000
    assert LogConfig(defaults, {"segment.bytes": str(1 << 21)}).segment_size == 1 << 21
    assert LogConfig(None, {"internal.segment.bytes": "200", "segment.bytes": str(1 << 21)}).segment_size == 200
    with pytest.raises(ConfigError):
        LogConfig(None, {"segment.bytes": "1000"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention": "5"}, "Unknown topic config name: retention"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms"),
        ({"retention.ms": "-2"}, "must be at least -1"),
        ({"cleanup.policy": "burn"}, "must be compact, delete, or both"),
        ({"compression.type": "rar"}, "must be one of"),
        ({"compression.gzip.level": "10"}, "between 1 and 9"),
        ({"leader.replication.throttled.replicas": "1-2"}, "partitionId"),
        ({"min.insync.replicas": None}, "Invalid value null"),
        ({"remote.storage.enable": "true"}, "Tiered Storage"),
    ],
)
def test_wrong_topic_configs_are_refused(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        log_config.validate(overrides)


def test_valid_topic_configs_pass() -> None:
    log_config.validate(
        {
            "retention.ms": "-1",
            "cleanup.policy": "compact,delete",
            "follower.replication.throttled.replicas": "0:1,1:2",
            "leader.replication.throttled.replicas": "*",
            "remote.storage.enable": "false",
        }
    )
    log_config.validate({"cleanup.policy": ""})
    assert not LogConfig(None, {"cleanup.policy": ""}).delete


def test_segment_jitter_is_limited_by_the_segment_time() -> None:
    rng = random.Random(5)
    assert LogConfig().random_segment_jitter(rng) == 0
    config = LogConfig(None, {"segment.jitter.ms": "50", "segment.ms": "20"})
    assert {config.random_segment_jitter(rng) for _ in range(500)} == set(range(20))


def test_equal_settings_are_validated_once() -> None:
    defaults = server_defaults(BrokerConfig({"log.retention.ms": 7}))
    own = {"max.message.bytes": "100"}
    found = log_config.log_config(defaults, own)
    assert found.values == LogConfig(defaults, own).values
    assert log_config.log_config(dict(defaults), dict(own)) is found
    assert log_config.log_config(defaults, {}).max_message_size != 100
    assert log_config.log_config({**defaults, "retention.ms": 8}, own).retention_ms == 8
    for _ in range(2):
        with pytest.raises(ConfigError):
            log_config.log_config(defaults, {"max.message.bytes": "many"})


def test_number_of_cached_settings_is_limited() -> None:
    first = log_config.log_config({}, {"retention.ms": "1"})
    for number in range(300):
        log_config.log_config({}, {"retention.bytes": str(number)})
    again = log_config.log_config({}, {"retention.ms": "1"})
    assert again is not first
    assert again.values == first.values
