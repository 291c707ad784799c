"""The cluster, its ACLs and its transactions, from the command line; completion for shells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from pykclient import KafkaProducer, OffsetAndMetadata, TopicPartition
from pykclient.admin import Admin
from pykclient.admin.descriptions import (
    GroupDescription,
    GroupListing,
    ListedOffset,
    MemberDescription,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from pykclient.admin.values import GroupState, GroupType, Results
from pykclient.cli import top
from pykclient.spark import transactions as rules
from pykclient.spark.sink_driver import SinkDriver
from pykclient.testing import EmbeddedCluster
from pykclient.types import Node
from tests.cli.command import Pykclient
from tests.support.mock_clock import MockClock
from tests.support.wait import eventually

COMMAND = [sys.executable, "-W", "error", "-m", "pykclient"]


def test_cluster_commands_describe_brokers_and_features(pykclient: Pykclient) -> None:
    described = pykclient.ok("cluster", "describe", "--json").json
    assert [broker["broker"] for broker in described["brokers"]] == [1]
    assert described["controller"] == 1
    assert pykclient.ok("cluster", "describe").lines()[-1].split()[0] == "1"
    features = {row["feature"]: row["level"] for row in pykclient.ok("cluster", "features", "--json").json}
    assert "transaction.version" in features
    (log_dir,) = pykclient.ok("cluster", "log-dirs", "--json").json
    assert log_dir["broker"] == 1
    refused = pykclient("cluster", "quorum")
    assert refused.code == 1
    assert "DESCRIBE_QUORUM" in refused.err.upper() or "DescribeQuorum" in refused.err


def test_transactions_are_listed_and_described(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x").get(30)
        listed = pykclient.ok("transactions", "list", "--state", "Ongoing", "--json").json
        assert topic in [row["transactional_id"] for row in listed]
        (described,) = pykclient.ok("transactions", "describe", topic, "--json").json
        assert described["state"] == "Ongoing"
        assert described["partitions"] == [f"{topic}-0"]
        assert pykclient.ok("transactions", "hanging", "--max-timeout", "1ms", "--json").json == []
        missing = pykclient("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "7", "-y")
        assert missing.code == 1
        assert "begins at offset 7" in missing.err
        producer.abort_transaction()
    gone = pykclient("transactions", "describe", f"{topic}-gone")
    assert gone.code == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["acls", "create", "--principal", "User:a", "--operation", "READ"], "--topic"),
        (["acls", "create", "--principal", "User:a", "--operation", "EAT", "--topic", "t"], "EAT"),
        (["acls", "list", "--topic", "t", "--group", "g"], "one resource"),
        (["acls", "list", "--prefixed"], "--prefixed"),
        (["acls", "delete"], "--all"),
        (["acls", "delete", "--all", "--topic", "t"], "--all"),
        (["cluster", "log-dirs", "one"], "one"),
        (["transactions", "abort", "--topic", "t", "--partition", "0"], "--start-offset"),
        (["transactions", "abort", "--topic", "t", "--partition", "0", "--producer-id", "1"], "--producer-epoch"),
        (["transactions", "list", "--state", "Tired"], "there are Empty, Ongoing,"),
        (["transactions", "describe"], "ID"),
        (["top", "--interval", "often"], "often"),
        (["top", "-n", "0"], "0"),
        (["bench", "-n", "0"], "0"),
        (["bench", "--size", "0"], "0"),
        (["bench", "-z", "zip"], "zip"),
        (["completion", "tcsh"], "bash"),
        (["users", "set", "a", "--mechanism", "PLAIN"], "scram-sha-256"),
        (["users", "delete", "a"], "--yes"),
        (["quotas", "alter", "--set", "producer_byte_rate=1"], "--user"),
        (["quotas", "alter", "--user", "a"], "--unset"),
        (["quotas", "alter", "--user", "a", "--set", "producer_byte_rate=much"], "'much'"),
        (["topics", "delete-records", "a", "--before", "soon", "--yes"], "soon"),
        (["topics", "delete-records", "a"], "--before"),
        (["topics", "reassign", "a:0"], "BROKER"),
        (["topics", "reassign", "a=1"], "TOPIC:PARTITION"),
        (["topics", "reassign", "--cancel"], "orders:0"),
    ],
)
def test_bad_input_exits_with_code_2(pykclient: Pykclient, options: list[str], text: str) -> None:
    result = pykclient(*options)
    assert (result.code, result.raw) == (2, b""), result.err
    assert text in result.err
    assert "Traceback" not in result.err


def completed(cluster_address: str, *words: str) -> list[str]:
    """Return what bash would offer for the last of the words."""
    environment = {
        **os.environ,
        "_PYKCLIENT_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["pykclient", *words]),
        "COMP_CWORD": str(len(words)),
        "PYKCLIENT_BOOTSTRAP_SERVERS": cluster_address,
    }
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_completion_suggests_commands_and_topics(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    servers = cluster.bootstrap_servers
    assert completed(servers, "cons") == ["consume"]
    assert topic in completed(servers, "consume", topic[:5])
    assert completed(servers, "offsets", "re") == ["reset"]
    assert completed("127.0.0.1:1", "consume", "a") == []
    for shell in ("bash", "zsh", "fish"):
        assert "_PYKCLIENT_COMPLETE" in Pykclient().ok("completion", shell).out


def test_acls_commands_create_list_and_delete() -> None:
    with EmbeddedCluster(acls=[], super_users="User:ANONYMOUS") as cluster:
        acls = Pykclient(cluster.bootstrap_servers)
        alice = ("--principal", "User:alice")
        created = acls.ok(
            "acls", "create", *alice, "--operation", "READ", "--operation", "write", "--topic", "o", "--prefixed"
        )
        assert len(created.lines()) == 2
        acls.ok(
            "acls",
            "create",
            "--principal",
            "User:*",
            "--deny",
            "--operation",
            "ALTER",
            "--cluster",
            "--host",
            "10.0.0.1",
        )
        rows = acls.ok("acls", "list", "--json").json
        assert [
            (row["principal"], row["operation"], row["resource"], row["pattern"], row["permission"]) for row in rows
        ] == [
            ("User:*", "ALTER", "CLUSTER", "LITERAL", "DENY"),
            ("User:alice", "READ", "TOPIC", "PREFIXED", "ALLOW"),
            ("User:alice", "WRITE", "TOPIC", "PREFIXED", "ALLOW"),
        ]
        assert len(acls.ok("acls", "list", "--topic", "orders", "--json").json) == 2
        assert acls.ok("acls", "list", "--group", "g", "--json").json == []
        assert acls("acls", "delete", *alice).code == 2
        deleted = acls.ok("acls", "delete", *alice, "--operation", "READ", "--yes", "--json").json
        assert [row["operation"] for row in deleted] == ["READ"]
        acls.ok("acls", "delete", "--all", "--yes")
        assert acls.ok("acls", "list", "--json").json == []


def test_bench_measures_produce_and_consume(pykclient: Pykclient) -> None:
    rows = pykclient.ok("bench", "-n", "1500", "--size", "10", "--json").json
    assert [(row["step"], row["records"]) for row in rows] == [("produce", 1500), ("consume", 1500)]
    assert all(row["records_per_s"] > 0 for row in rows)
    assert [row["topic"] for row in pykclient.ok("topics", "list", "pykclient-bench-*", "--json").json] == []


def test_top_shows_topics_and_lag(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str, group_id: str) -> None:
    cluster.create_topic(topic, 2)
    pykclient.ok("produce", topic, "-p", "0", stdin=b"a\nb\nc\n")
    pykclient.ok("consume", topic, "-g", group_id, "-c", "1")
    shown = pykclient.ok("top", topic, "-n", "2", "--interval", "10ms", "--json").lines()
    turns = [json.loads(line) for line in shown]
    assert len(turns) == 2
    assert turns[1]["topics"] == [{"topic": topic, "partitions": 2, "records_per_s": 0, "end": 3}]
    (group,) = [row for row in turns[1]["groups"] if row["group"] == group_id]
    assert (group["state"], group["members"], group["lag"], group["changes"]) == ("Empty", 0, 2, 0)
    text = pykclient.ok("top", topic, "-n", "1").out
    assert text.startswith("TOPIC")
    assert group_id in text


class Cluster:
    """The admin calls that ``top`` makes, answered from memory."""

    def __init__(self) -> None:
        self.end = 0
        self.committed = 0
        self.members: list[str] = []
        self.state = GroupState.STABLE

    def list_topics(self) -> Any:
        return [TopicListing("t", None, False)]

    def describe_topics(self, _names: Any) -> Any:
        node = Node(1, "h", 1)
        part = PartitionDescription(0, node, 0, (node,), (node,), ())
        return Results({"t": TopicDescription("t", None, False, [part], None)})

    def list_groups(self, **_: Any) -> Any:
        return [GroupListing("g", "consumer", self.state, GroupType.CLASSIC)]

    def list_offsets(self, specs: Any) -> Any:
        return Results({tp: ListedOffset(self.end, -1, None) for tp in specs})

    def describe_groups(self, _names: Any) -> Any:
        members = tuple(
            MemberDescription(name, None, name, "h", None, (), frozenset(), None, None) for name in self.members
        )
        group = GroupDescription("g", GroupType.CLASSIC, self.state, "consumer", "range", members, None, None, None)
        return Results({"g": group})

    def list_group_offsets(self, _names: Any) -> Any:
        return Results({"g": {TopicPartition("t", 0): OffsetAndMetadata(self.committed)}})


def test_top_computes_rates_and_rebalances(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MockClock()
    monkeypatch.setattr(top, "SYSTEM_CLOCK", clock)
    cluster: Any = Cluster()
    monitor = top.Monitor(cluster, None)
    topics, groups = monitor.turn()
    assert (topics[0]["records_per_s"], groups[0]["records_per_s"]) == (None, None)
    clock.sleep_ms(2000)
    cluster.end, cluster.committed, cluster.members = 1000, 600, ["a"]
    topics, groups = monitor.turn()
    assert topics == [{"topic": "t", "partitions": 1, "records_per_s": 500, "end": 1000}]
    assert (groups[0]["records_per_s"], groups[0]["lag"], groups[0]["changes"]) == (300, 400, 1)
    clock.sleep_ms(2000)
    assert monitor.turn()[1][0]["changes"] == 1
    cluster.state = GroupState.PREPARING_REBALANCE
    assert monitor.turn()[1][0]["changes"] == 2


class SparkJob:
    """The parts of a Spark job with an exactly-once sink that the brokers see. Its prefix is the topic's name."""

    def __init__(self, servers: str, topic: str, ledger: str) -> None:
        self._servers, self._topic, self._ledger = servers, topic, ledger

    def open(self) -> rules.Opened:
        with SinkDriver({"bootstrap.servers": self._servers}, self._topic, self._ledger) as driver:
            return driver.run(rules.open_batch(rules.Owner("/c")))

    def write(self) -> rules.Transaction:
        """Write a row in a transaction that stays open."""
        producer = KafkaProducer[bytes, bytes](bootstrap_servers=self._servers, transactional_id=f"{self._topic}-0-0")
        producer.init_transactions()
        producer.begin_transaction()
        offset = producer.send(self._topic, b"x").get(30).offset
        identity = rules.Producer(*producer.producer_id_and_epoch)
        producer.close(keep_transaction=True)
        return rules.Transaction(f"{self._topic}-0-0", identity, 1, {self._topic: {"0": [offset, offset]}})

    def decide(self, opened: rules.Opened, written: rules.Transaction) -> None:
        """Write the decision into the ledger, and end before it is carried out."""
        decision, found = rules.commit_batch(opened, rules.Owner("/c", "q"), 0, [written], None), None
        with SinkDriver({"bootstrap.servers": self._servers}, self._topic, self._ledger) as driver:
            request = next(decision)
            while found is None:
                answer = driver.run(_one(request))
                found = request if isinstance(request, rules.Write) else None
                request = decision.send(answer)


def test_spark_transactions_are_ended(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    ledger = f"{topic}-ledger"
    options = ("--ledger", ledger)
    assert pykclient.ok("spark-transactions", "list", *options, "--json").json == []
    job = SparkJob(cluster.bootstrap_servers, topic, ledger)
    job.decide(job.open(), job.write())
    (row,) = pykclient.ok("spark-transactions", "list", *options, "--json").json
    assert (row["prefix"], row["state"], row["open"]) == (topic, "decided", 1)
    assert row["transactions"][0]["rows"] == 1
    for refused in ("abort", "forget"):
        assert "decided" in pykclient("spark-transactions", refused, topic, *options, "-y").err
    assert "batch 0 is done" in pykclient.ok("spark-transactions", "commit", topic, *options, "-y").out
    job.open()
    job.write()
    assert "batch 0 is done" in pykclient.ok("spark-transactions", "abort", topic, *options, "-y").out
    (row,) = pykclient.ok("spark-transactions", "list", *options, "--json").json
    assert (row["state"], row["done"], row["open"]) == ("done", 0, 0)
    assert "batch 0 is done" in pykclient.ok("spark-transactions", "commit", topic, *options, "-y", "--as-written").out
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(ledger, b'{"version": 2}', key=b"z-later").get(30)
    _, unreadable = pykclient.ok("spark-transactions", "list", *options, "--json").json
    assert (unreadable["prefix"], unreadable["state"], unreadable["batch"]) == ("z-later", "unreadable", None)
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(ledger, None, key=b"z-later").get(30)
    pykclient.ok("spark-transactions", "forget", topic, *options, "-y")
    assert pykclient.ok("spark-transactions", "list", *options, "--json").json == []
    assert "no entry" in pykclient("spark-transactions", "commit", topic, *options, "-y").err


def test_spark_transactions_show_what_tasks_have_committed(
    pykclient: Pykclient, cluster: EmbeddedCluster, topic: str
) -> None:
    ledger = f"{topic}-ledger"
    options = ("--ledger", ledger)
    with SinkDriver({"bootstrap.servers": cluster.bootstrap_servers}, topic, ledger) as driver:
        opened = driver.run(rules.open_batch(rules.Owner("/c"), by_tasks=True))
        with KafkaProducer[bytes, bytes](
            bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"{topic}-2-0"
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()

            def commit(request: rules.CommitTask) -> None:
                key = rules.token_key(topic, request.token.partition)
                producer.send(rules.tokens_topic(ledger), request.token.as_bytes(), key=key, partition=0)
                producer.commit_transaction()

            token = rules.Token("q", 4, 2, rules.Content(3, 5), {"t": {"0": [7, 9]}})
            driver.run(rules.commit_task(opened, token, f"{topic}-2-1"), commit)
        (row,) = pykclient.ok("spark-transactions", "list", *options, "--json").json
        assert (row["state"], row["batch"], row["done"], row["open"]) == ("committed by tasks", 4, -1, 0)
        assert row["tokens"] == [{"batch": 4, "partition": 2, "rows": 3, "offsets": {"t": {"0": [7, 9]}}}]
        driver.end()  # each opening and each commit has its own producer
        driver.run(rules.complete_batch(opened, rules.Owner("/c", "q"), 4, [token], None))
    with KafkaProducer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as other:
        other.send(rules.tokens_topic(ledger), b'{"version": 2}', key=rules.token_key(topic, 3)).get(30)
    (row,) = pykclient.ok("spark-transactions", "list", *options, "--json").json
    assert (row["batch"], row["done"], row["tokens"]) == (4, 4, [])
    assert "batch 4 is committed by tasks" in pykclient.ok("spark-transactions", "abort", topic, *options, "-y").out
    pykclient.ok("spark-transactions", "forget", topic, *options, "-y")
    assert pykclient.ok("spark-transactions", "list", *options, "--json").json == []


@pytest.mark.parametrize(("rows", "state"), [("committed", "done"), ("aborted", "reverted")])
def test_user_must_confirm_fate_of_deleted_rows(
    pykclient: Pykclient, cluster: EmbeddedCluster, topic: str, rows: str, state: str
) -> None:
    cluster.create_topic(topic, 1)
    ledger = f"{topic}-ledger"
    job = SparkJob(cluster.bootstrap_servers, topic, ledger)
    opened, written = job.open(), job.write()
    job.decide(opened, written)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.fence_producers([written.id]).all()  # its coordinator cannot tell any more
        admin.delete_records({TopicPartition(topic, 0): -1}).all()  # nor can the rows
    command = ("spark-transactions", "commit", topic, "--ledger", ledger, "-y")
    refused = pykclient(*command)
    assert (refused.code, refused.raw) == (1, b"")
    assert "--deleted-rows" in refused.err
    assert f"batch 0 is {state}" in pykclient.ok(*command, "--deleted-rows", rows).out


def _one(request: Any) -> Any:
    """Return the answer to a request of the sink's driver."""
    return (yield request)


# --- users, quotas, records, leaders, replicas -----------------------------------------------------------------------


def test_users_commands_set_list_and_delete(pykclient: Pykclient) -> None:
    created = pykclient.ok("users", "set", "dora", stdin=b"hers-4021\n")
    assert (created.out, created.err) == ("SCRAM-SHA-512 set: dora\n", "")
    pykclient.ok("users", "set", "dora", "--mechanism", "scram-sha-256", "--iterations", "5000", stdin=b"hers-4021")
    rows = pykclient.ok("users", "list", "dora", "--json").json
    assert sorted((row["user"], row["mechanism"], row["iterations"]) for row in rows) == [
        ("dora", "SCRAM-SHA-256", 5000),
        ("dora", "SCRAM-SHA-512", 4096),
    ]
    pykclient.ok("users", "delete", "dora", "--yes")
    assert [row["mechanism"] for row in pykclient.ok("users", "list", "--json").json] == ["SCRAM-SHA-256"]
    pykclient.ok("users", "delete", "dora", "--mechanism", "SCRAM-SHA-256", "--yes")
    missing = pykclient("users", "list", "dora")
    assert (missing.code, missing.raw) == (1, b"")
    assert "dora" in missing.err
    assert pykclient("users", "set", "dora", stdin=b"").code == 2


def test_quotas_commands_alter_and_list(pykclient: Pykclient) -> None:
    words = ("quotas", "alter", "--user", "dora", "--client-id", "")
    pykclient.ok(*words, "--set", "producer_byte_rate=1000", "--set", "request_percentage=12.5")
    listed = pykclient.ok("quotas", "list", "--json").json
    assert listed == [
        {"user": "dora", "client-id": "(default)", "quota": "producer_byte_rate", "value": 1000.0},
        {"user": "dora", "client-id": "(default)", "quota": "request_percentage", "value": 12.5},
    ]
    assert pykclient.ok("quotas", "list", "--user", "nobody", "--json").json == []
    pykclient.ok(*words, "--unset", "producer_byte_rate", "--unset", "request_percentage")
    assert pykclient.ok("quotas", "list", "--json").json == []


def test_delete_records_moves_start_offsets(pykclient: Pykclient, cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 2)
    for number in range(10):
        pykclient.ok("produce", topic, "-p", "0", "--timestamp", str(1000 * (number + 1)), stdin=b"x\n")

    def starts(*words: str) -> list[int]:
        rows = pykclient.ok("topics", "delete-records", *words, "--yes", "--json").json
        return [row["start"] for row in rows]

    assert starts(topic, "--before", "2") == [2, 0]
    assert starts(f"{topic}:0", "--before", "@4000") == [3]
    assert starts(f"{topic}:0", "--before", "-4") == [6]
    assert starts(f"{topic}:0", "--before", "beginning") == [6]
    assert starts(topic, "--before", "end") == [10, 0]
    assert pykclient("topics", "delete-records", f"{topic}:7", "--before", "end", "--yes").code == 2
    assert "cluster: " in " ".join(pykclient("topics", "delete-records", topic, "--before", "end").err.split())


def test_commands_elect_leaders_and_move_replicas() -> None:
    with EmbeddedCluster(3) as cluster:
        pykclient = Pykclient(cluster.bootstrap_servers)
        pykclient.ok("topics", "create", "orders:2:2")
        assert pykclient.ok("topics", "elect-leaders", "orders", "--json").json == [
            {"name": f"orders-{number}", "result": "leader elected", "error": None} for number in range(2)
        ]
        pykclient.ok("topics", "elect-leaders")
        assert pykclient("topics", "elect-leaders", "orders", "--unclean").code == 2
        before = pykclient.ok("topics", "describe", "orders", "--json").json[0]["replicas"]
        after = [before[1], ({1, 2, 3} - {*before}).pop()]
        moved = pykclient.ok("topics", "reassign", f"orders:0={after[0]},{after[1]}")
        assert moved.out == "moving: orders-0\n"
        eventually(lambda: pykclient.ok("topics", "reassign", "--json").json == [], 30.0, "the move ends")
        assert pykclient.ok("topics", "describe", "orders", "--json").json[0]["replicas"] == after
        idle = pykclient("topics", "reassign", "--cancel", "orders:0")
        assert idle.code == 1
        assert idle.err.startswith("pykclient: orders-0: ")
