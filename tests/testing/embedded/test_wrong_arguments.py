"""An embedded cluster refuses arguments of the wrong kind before a broker sees them, and goes on."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.errors import ConfigError, IllegalArgumentError, KafkaError
from pykclient.testing import Acl, EmbeddedCluster
from pykclient.types import TopicPartition
from tests.support.odd_values import HOSTILE

TP = TopicPartition("orders", 0)

SETTINGS = (
    *("brokers", "host", "advertised_host", "port", "racks", "proxies", "release", "transaction_version", "acls"),
    *("memory_limit_bytes", "history_size", "config"),
)
#: Arguments that hardly any odd value suits, by method.
CALLS: dict[str, dict[str, Any]] = {
    "create_topic": {
        "name": "",
        "partitions": 0,
        "replication_factor": 0,
        "configs": {"no.such": ""},
        "assignment": None,
    },
    "delete_topic": {"name": ""},
    "request": {"message": None, "broker": 1},
    "request_controller": {"message": None},
    "leader": {"topic_partition": TP},
    "isr": {"topic_partition": TP},
    "move_leader": {"topic_partition": TP, "broker": 5},
    "update_feature": {"name": "transaction.version", "level": 9},
    **{name: {"broker": 5} for name in ("kill", "stop", "restart", "pause", "resume", "disk", "address_behind_proxy")},
    "wait_for": {"predicate": lambda: True, "timeout_ms": 0},
    "requests_of": {"api": None, "client_id": None, "broker": None, "party": None, "after": 0},
    "log": {"topic_partition": TP, "broker": None, "from_offset": 0},
    "add_acls": {"*acls": Acl("User:alice", topic="orders")},
    "remove_acls": {"*acls": Acl("User:alice", topic="orders")},
}
#: The only broker; calls with its id are the other tests' business.
ONE = [value for value in HOSTILE if not (isinstance(value, int) and value == 1)]


def test_wrong_settings_raise_config_errors() -> None:
    refused = 0
    for name in SETTINGS:
        for value in HOSTILE:
            try:
                EmbeddedCluster(**{name: value})
            except ConfigError:
                refused += 1
    assert refused > 500
    with pytest.raises(ConfigError, match=r"num\.partitions = an int of 16610 bits: it must be"):
        EmbeddedCluster(num_partitions=10**5000)


def test_wrong_arguments_raise_documented_errors() -> None:
    with EmbeddedCluster(acls=[]) as cluster:
        cluster.create_topic("orders")
        refused = 0
        for method, valid in CALLS.items():
            for name in valid:
                rest = {other: given for other, given in valid.items() if other != name}
                for value in ONE if name != "predicate" else [value for value in ONE if not callable(value)]:
                    try:
                        if name.startswith("*"):
                            getattr(cluster, method)(value)
                        else:
                            getattr(cluster, method)(**rest, **{name: value})
                    except KafkaError as error:
                        refused += isinstance(error, (IllegalArgumentError, ConfigError))
        assert refused > 1500
        with pytest.raises(IllegalArgumentError, match="partitions is 2147483647; it must be from"):
            cluster.create_topic("payments", partitions=(1 << 31) - 1)
        cluster.create_topic("payments")
        assert cluster.leader(TopicPartition("payments", 0)) == 1
        assert cluster.alive_broker_ids == [1]
