"""Topics, groups, offsets and settings, administered from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from pykclient import KafkaConsumer, TopicPartition
from pykclient.testing import EmbeddedCluster
from tests.cli.command import Pykclient

COMMAND = [sys.executable, "-W", "error", "-m", "pykclient"]


def test_topics_commands_create_alter_and_delete(pykclient: Pykclient, topic: str) -> None:
    assert pykclient.ok("topics", "create", f"{topic}:2", "--dry-run").out == f"would be created: {topic}\n"
    assert pykclient.ok("topics", "create", f"{topic}:2", "-c", "retention.ms=5000").out == f"created: {topic}\n"
    again = pykclient("topics", "create", topic)
    assert again.code == 1
    assert "exists" in again.err
    assert pykclient.ok("topics", "create", topic, "--if-not-exists").code == 0
    pykclient.ok("produce", topic, "-p", "1", stdin=b"a\nb\n")
    listed = pykclient.ok("topics", "list", f"{topic[:-1]}?", "--json").json
    assert [(row["topic"], row["partitions"], row["replicas"], row["leaderless"]) for row in listed] == [
        (topic, 2, 1, 0)
    ]
    assert topic in pykclient.ok("topics", "list").out
    described = pykclient.ok("topics", "describe", topic, "--json").json
    assert [(row["partition"], row["leader"], row["start"], row["end"]) for row in described] == [
        (0, 1, 0, 0),
        (1, 1, 0, 2),
    ]
    table = pykclient.ok("topics", "describe", topic).lines()
    assert table[0].split() == ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "OFFLINE", "START", "END"]
    assert table[2].split() == [topic, "1", "1", "1", "1", "-", "0", "2"]
    changed = pykclient.ok(
        "topics", "alter", topic, "-p", "3", "-c", "max.message.bytes=1000", "--unset", "retention.ms"
    )
    assert changed.lines() == [f"partitions added: {topic}", f"changed: topic {topic}"]
    shown = pykclient.ok("configs", "describe", "topic", topic, "--json").json
    assert [(row["key"], row["value"]) for row in shown if "topic" in row["source"]] == [("max.message.bytes", "1000")]
    assert pykclient.ok("topics", "delete", topic, "--yes").out == f"deleted: {topic}\n"
    gone = pykclient("topics", "describe", topic)
    assert gone.code == 1
    assert "pykclient topics list" in gone.err


def test_partial_failure_reports_each_item(pykclient: Pykclient, topic: str) -> None:
    result = pykclient("topics", "create", topic, f"{topic}-much:1:9", "--json")
    assert result.code == 1
    outcomes = {row["name"]: row["result"] for row in result.json}
    assert outcomes == {topic: "created", f"{topic}-much": "failed"}
    assert "eplication factor" in result.err
    assert "1 of 2 failed" in result.err


def test_configs_commands_describe_and_alter_broker(pykclient: Pykclient) -> None:
    shown = pykclient.ok("configs", "describe", "broker", "1", "--key", "num.partitions", "--json").json
    assert [(row["key"], row["value"]) for row in shown] == [("num.partitions", "1")]
    refused = pykclient("configs", "alter", "broker", "1", "-c", "num.partitions=7")
    assert refused.code == 1
    assert "num.partitions" in refused.err


def test_groups_describe_shows_lag(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str, group_id: str) -> None:
    cluster.create_topic(topic, 2)
    pykclient.ok("produce", topic, "-p", "0", stdin=b"a\nb\nc\n")
    pykclient.ok("consume", topic, "-g", group_id, "-c", "2")
    listed = pykclient.ok("groups", "list", "--state", "Empty", "--type", "classic", "--json").json
    assert group_id in [row["group"] for row in listed]
    (described,) = pykclient.ok("groups", "describe", group_id, "--json").json
    assert (described["state"], described["members"], described["lag"]) == ("Empty", 0, 1)
    first = described["partitions"][0]
    assert (first["partition"], first["offset"], first["end"], first["lag"]) == (0, 2, 3, 1)
    with KafkaConsumer[bytes, bytes](
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group_id,
        client_id="reader",
        enable_auto_commit=False,
    ) as consumer:
        while not consumer.poll(1000):
            pass
        text = pykclient.ok("groups", "describe", group_id).out
        assert "Stable" in text
        assert "reader" in text
        members = pykclient.ok("groups", "describe", group_id, "--members", "--json").json
        assert members[0]["partitions"] == [f"{topic}-0", f"{topic}-1"]
        refused = pykclient("offsets", "reset", group_id, "--to-latest", "--execute")
        assert refused.code == 1
        assert "member" in refused.err
    assert pykclient.ok("groups", "delete", group_id, "-y").out == f"deleted: {group_id}\n"
    assert "pykclient groups list" in pykclient("groups", "describe", group_id).err


def test_a_group_is_watched_until_ctrl_c(
    pykclient: Pykclient, cluster: EmbeddedCluster, topic: str, group_id: str
) -> None:
    cluster.create_topic(topic, 1)
    pykclient.ok("consume", topic, "-g", group_id, "-e")
    command = [*COMMAND, "groups", "describe", group_id, "-b", cluster.bootstrap_servers, "-w", "--interval", "10ms"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += line.startswith("GROUP")
        if seen == 5:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")


def test_offsets_are_moved_only_when_asked(
    pykclient: Pykclient, cluster: EmbeddedCluster, topic: str, group_id: str
) -> None:
    cluster.create_topic(topic, 2)
    for number in range(10):
        pykclient.ok("produce", topic, "-p", "0", "--timestamp", str(1000 * (number + 1)), stdin=b"%d\n" % number)
    partition = TopicPartition(topic, 0)

    def reset(*options: str) -> list[tuple[int | None, int]]:
        shown = pykclient.ok("offsets", "reset", group_id, "-t", f"{topic}:0", *options, "--json").json
        return [(row["current"], row["new"]) for row in shown]

    def committed() -> Any:
        with KafkaConsumer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, group_id=group_id) as consumer:
            return consumer.committed(partition)

    assert reset("--to-earliest") == [(None, 0)]
    assert committed() is None
    assert reset("--to-offset", "4", "--execute") == [(None, 4)]
    assert committed() == 4
    assert reset("--shift-by", "-3") == [(4, 1)]
    assert reset("--shift-by", "99") == [(4, 10)]
    assert reset("--to-current") == [(4, 4)]
    assert reset("--to-latest") == [(4, 10)]
    assert reset("--to-time", "7000") == [(4, 6)]
    assert reset("--to-time", "now") == [(4, 10)]
    assert reset("--by-duration", "1h") == [(4, 10)]
    all_of_it = pykclient.ok("offsets", "reset", group_id, "--to-offset", "2", "--execute").lines()
    assert all_of_it[1].split() == [topic, "0", "4", "2"]
    assert committed() == 2
    pykclient.ok("offsets", "delete", group_id, "-t", topic, "--yes")
    assert committed() is None


def test_a_dry_run_names_the_option_that_executes_it(
    pykclient: Pykclient, cluster: EmbeddedCluster, topic: str, group_id: str
) -> None:
    cluster.create_topic(topic, 1)
    result = pykclient.ok("offsets", "reset", group_id, "-t", topic, "--to-latest")
    assert "--execute" in result.err
    assert "--execute" not in result.out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["topics"], "--help"),
        (["topics", "shred"], "shred"),
        (["topics", "create"], "NAME"),
        (["topics", "create", "a:0"], "a:0"),
        (["topics", "create", "a", "-c", "retention"], "retention"),
        (["topics", "create", "a/b"], "a/b"),
        (["topics", "delete", "a"], "--yes"),
        (["topics", "alter", "a"], "--partitions"),
        (["configs", "describe", "planet", "x"], "planet"),
        (["configs", "alter", "topic", "x"], "--set"),
        (["groups", "list", "--state", "tired"], "Stable"),
        (["groups", "list", "--type", "x"], "classic"),
        (["groups", "describe"], "GROUP"),
        (["groups", "describe", "g", "-w", "--interval", "often"], "often"),
        (["groups", "delete", "g"], "--yes"),
        (["offsets", "reset", "g"], "--to-earliest"),
        (["offsets", "reset", "g", "--to-latest", "--to-earliest"], "one of"),
        (["offsets", "reset", "g", "--to-latest", "--dry-run", "--execute"], "--dry-run"),
        (["offsets", "reset", "g", "--to-latest"], "--topic"),
        (["offsets", "reset", "g", "--to-latest", "-t", "a:b"], "a:b"),
        (["offsets", "reset", "g", "--to-time", "soon"], "soon"),
        (["offsets", "delete", "g", "-t", "t"], "--yes"),
    ],
)
def test_bad_input_exits_with_code_2(pykclient: Pykclient, options: list[str], text: str) -> None:
    result = pykclient(*options)
    assert (result.code, result.raw) == (2, b""), result.err
    assert text in result.err
    assert "Traceback" not in result.err


def test_json_of_empty_result_is_empty_list(pykclient: Pykclient) -> None:
    for command in (["topics", "list", "no-such-*"], ["groups", "list", "--state", "Dead"]):
        assert json.loads(pykclient.ok(*command, "--json").raw) == []
