"""The main commands on the embedded cluster and on real Kafka, with the same results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Pykclient
from tests.support.any_kafka import AnyKafka


@pytest.fixture
def pykclient(any_kafka: AnyKafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pykclient:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Pykclient(any_kafka.bootstrap_servers)


def test_commands_handle_topic_records_and_group(pykclient: Pykclient, topic: str, group_id: str) -> None:
    pykclient.ok("topics", "create", f"{topic}:2:1", "-c", "retention.ms=86400000")
    pykclient.ok("produce", topic, "-p", "0", "-K", "=", "-z", "lz4", stdin=b"a=1\nb=2\nc=3\n")
    pykclient.ok("produce", topic, "-p", "1", "-Z", stdin=b"x\n\n")
    assert sorted(pykclient.ok("consume", topic, "-e", "-K", "=", "--null", "-").lines()) == [
        "-=-",
        "-=x",
        "a=1",
        "b=2",
        "c=3",
    ]
    assert pykclient.ok("consume", topic, "-p", "0", "--from", "-1", "-e", "-f", "%o %k\\n").out == "2 c\n"
    assert pykclient.ok("consume", topic, "-g", group_id, "-c", "5").out.count("\n") == 5
    (group,) = pykclient.ok("groups", "describe", group_id, "--json").json
    assert (group["state"], group["lag"]) == ("Empty", 0)
    reset = pykclient.ok("offsets", "reset", group_id, "-t", f"{topic}:0", "--to-earliest", "--execute", "--json").json
    assert reset == [{"topic": topic, "partition": 0, "current": 3, "new": 0}]
    assert sorted(pykclient.ok("consume", topic, "-g", group_id, "-e").lines()) == ["1", "2", "3"]
    rows = pykclient.ok("configs", "describe", "topic", topic, "--json").json
    assert ("retention.ms", "86400000") in [(row["key"], row["value"]) for row in rows]
    assert [row["end"] for row in pykclient.ok("topics", "describe", topic, "--json").json] == [3, 2]
    pykclient.ok("groups", "delete", group_id, "-y")
    pykclient.ok("topics", "delete", topic, "-y")


def test_doctor_finds_cluster_healthy(pykclient: Pykclient) -> None:
    checks = pykclient.ok("doctor", "--json").json
    assert [check["step"] for check in checks][:5] == ["configuration", "code", "DNS", "TCP", "API versions"]
    assert len(pykclient.ok("cluster", "describe", "--json").json["brokers"]) == 1
    assert "transaction.version" in pykclient.ok("cluster", "features").out
    assert pykclient.ok("transactions", "hanging", "--json").json == []
    assert len(pykclient.ok("bench", "-n", "1000", "--json").json) == 2
    assert len(pykclient.ok("top", "-n", "1", "--json").lines()) == 1
