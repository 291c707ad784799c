"""examples/two_phase_commit.py publishes every order exactly once, although it is killed again and again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import examples
from examples.two_phase_commit import OrderPublisher, open_database
from pykclient import KafkaConsumer, PreparedTxnState, TopicPartition
from pykclient.testing.embedded_cluster import EmbeddedCluster
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

ALLOWED = {"unstable.api.versions.enable": True, "transaction.two.phase.commit.enable": True}
ORDERS = 1_200
KILLS = 3


def has_published(database: sqlite3.Connection, goal: int) -> bool:
    count: int = database.execute("SELECT count(*) FROM orders WHERE published = 1").fetchone()[0]
    return count >= goal


def test_every_order_is_published_once(topic: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with EmbeddedCluster(config=ALLOWED) as cluster, (tmp_path / "log").open("w+") as log:
        cluster.create_topic(topic)
        command = [sys.executable, "-W", "error", "-m", "examples.two_phase_commit", "--topic", topic]
        command += ["--bootstrap-servers", cluster.bootstrap_servers, "--database", str(path)]
        folder = Path(examples.__file__).parents[1]

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen([*command, *arguments], cwd=folder, env=os.environ, stderr=log)

        process = start("--create", str(ORDERS))
        try:
            for kill in range(1, KILLS + 1):
                database = open_database(str(path))
                goal = ORDERS * kill // (KILLS + 1)
                eventually(partial(has_published, database, goal), 60, "orders are published")
                database.close()
                process.send_signal(signal.SIGKILL)
                process.wait(60)
                process = start()
            log.seek(0)
            assert process.wait(120) == 0, log.read()
        finally:
            process.kill()
            process.wait(60)
        assert published(cluster, topic, ORDERS) == [b"order %d" % order for order in range(1, ORDERS + 1)]


def published(cluster: EmbeddedCluster, topic: str, count: int) -> list[bytes]:
    """Return what is published, once there are ``count`` records."""
    with KafkaConsumer[Any, Any](
        bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        found: list[bytes] = []

        def complete() -> bool:
            found.extend(record.value or b"" for record in consumer.poll(200).get(partition, []))
            return len(found) >= count

        eventually(complete, 60, "all orders are read")
        return found


class Paused(OrderPublisher):
    """A process that stops between its two commits, and is replaced meanwhile."""

    successor: OrderPublisher

    def prepare(self, orders: list[int]) -> PreparedTxnState:
        state = super().prepare(orders)
        self.successor.run()
        return state


def test_a_process_that_was_replaced_commits_nowhere(topic: str, tmp_path: Path) -> None:
    path = str(tmp_path / "orders.db")
    with EmbeddedCluster(config=ALLOWED) as cluster:
        cluster.create_topic(topic)
        databases = [open_database(path), open_database(path)]
        with databases[0]:
            databases[0].executemany("INSERT INTO orders (published) VALUES (?)", [(0,)] * 3)
        paused = Paused(cluster.bootstrap_servers, topic, databases[0])
        paused.successor = OrderPublisher(cluster.bootstrap_servers, topic, databases[1])
        with pytest.raises(RuntimeError, match="another process has taken over"):
            paused.run()
        for database in databases:
            database.close()
        assert published(cluster, topic, 3) == [b"order 1", b"order 2", b"order 3"]
