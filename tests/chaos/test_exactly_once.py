"""An exactly-once pipeline on three real brokers, by both group protocols and in both generations of transactions.

Two groups of processes copy the same records. Half of each group is killed or paused at random, every broker is
restarted, one is paused, leaders move, and the generation changes. confluent-kafka then reads every record once, and
those of each key in order.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.copier import SESSION_MS
from tests.chaos.pipeline import PARTITIONS, Committed, Feed, Pipeline, Supervisor, check_copies
from tests.consumer.test_consumer_groups_kafka import set_session_timeout
from tests.kafka.cluster import KafkaCluster
from tests.producer.test_transactions_on_kafka import set_transaction_version
from tests.support.wait import eventually

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

_PER_SECOND = 150


@pytest.fixture
def first_generation(kafka_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers that run transactions of the first generation until the test changes that."""
    set_transaction_version(kafka_cluster, 1)
    yield kafka_cluster
    kafka_cluster.make_healthy()
    set_transaction_version(kafka_cluster, 2)


class _Run:
    """The pipelines, and the faults of brokers."""

    def __init__(self, cluster: KafkaCluster, topic: str, folder: Path, seed: int, members: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        servers = cluster.bootstrap_servers
        self.source = cluster.create_topic(f"{topic}-in", PARTITIONS)
        self.pipelines = []
        self.shown = []
        for protocol in ("classic", "consumer"):
            target = cluster.create_topic(f"{topic}-{protocol}", PARTITIONS)
            pipeline = Pipeline(servers, self.source, target, protocol, members, folder)
            self.pipelines.append(pipeline)
            self.shown.append(Committed(servers, target))
        set_session_timeout(cluster, self.pipelines[1].group, SESSION_MS)
        self.feed = Feed(servers, self.source, _PER_SECOND)
        self.supervisor = Supervisor(self.pipelines, self.rng.randrange(1 << 30))

    def await_more(self, count: int) -> None:
        """Wait until each pipeline has committed so many more records."""
        goals = [committed.read() + count for committed in self.shown]

        def enough() -> bool:
            self.supervisor.check()
            counts = [committed.read() for committed in self.shown]
            return all(count >= goal for count, goal in zip(counts, goals, strict=True))

        eventually(enough, 90, f"{count} more records of each pipeline")

    def harm_brokers(self, version: int) -> None:
        """Restart every broker and pause one, and move leaders; change the generation on the way."""
        cluster, note = self.cluster, self.supervisor.note
        order = self.rng.sample(sorted(cluster.brokers), len(cluster.brokers))
        for index, number in enumerate(order):
            broker = cluster.brokers[number]
            note(f"restart broker {number}")
            if self.rng.random() < 0.5:
                broker.kill()
            else:
                broker.stop()
            self.await_more(1)
            broker.start()
            eventually(lambda: not cluster.out_of_sync(), 60, "every replica in sync")
            self.await_more(1)
            if index == 0:
                note(f"transaction.version={version}")
                set_transaction_version(cluster, version)
            topic = self.rng.choice([self.source, *(pipeline.target for pipeline in self.pipelines)])
            partition, leader = self.rng.randrange(PARTITIONS), self.rng.choice(order)
            note(f"broker {leader} leads {topic}-{partition}")
            cluster.move_leader(topic, partition, leader)
        paused = self.rng.choice(order)
        note(f"pause broker {paused}")
        cluster.brokers[paused].pause()
        until_s = time.monotonic() + self.rng.uniform(2, 8)  # longer than its session, at times
        while time.monotonic() < until_s:
            self.await_more(0)
        cluster.brokers[paused].resume()
        cluster.make_healthy()
        self.await_more(1)

    def settle(self) -> None:
        """End all faults, and wait until everything is copied."""
        self.supervisor.calm()
        self.feed.stop()

        def complete() -> bool:
            self.supervisor.check()
            counts = [committed.read() for committed in self.shown]
            return min(counts) >= self.feed.count

        eventually(complete, 90, "everything is copied")
        self.supervisor.stop()
        for committed in self.shown:
            eventually(committed.is_at_end, 60, "the end of each partition")

    def close(self) -> None:
        self.feed.abandon()
        for committed in self.shown:
            committed.close()


def run(cluster: KafkaCluster, topic: str, folder: Path, seconds: float, members: int) -> None:
    """Run the pipelines for so long, or for a round of faults if that takes longer, and check what they wrote."""
    seed = _seed()
    running = _Run(cluster, topic, folder, seed, members)
    supervisor = running.supervisor
    try:
        with supervisor:
            running.await_more(300)
            version, start_s = 2, time.monotonic()
            while version == 2 or time.monotonic() - start_s < seconds:
                running.harm_brokers(version)
                version = 3 - version
            running.settle()
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *supervisor.told]))
        raise
    finally:
        running.close()
    print(f"seed {seed}, {running.feed.count} records", *supervisor.told, sep="\n")
    expected = running.feed.expected()
    for pipeline, committed in zip(running.pipelines, running.shown, strict=True):
        print(pipeline.target, dict(pipeline.ends), pipeline.generations)
        check_copies(expected, committed.by_key)
        assert pipeline.ends["killed"] > 0
        # A process that was never harmed has gone from the first generation to the second.
        assert any(1 in generations and 2 in generations for generations in pipeline.generations)


def _seed() -> int:
    """Return the same seed for each run on CI, where a fresh one could refuse a change that did no harm."""
    fresh = 1 if os.environ.get("CI") else random.SystemRandom().randrange(1 << 30)
    return int(os.environ.get("PYKCLIENT_SEED", fresh))


@pytest.mark.timeout(400)
def test_exactly_once_survives_one_round_of_faults(first_generation: KafkaCluster, topic: str, tmp_path: Path) -> None:
    run(first_generation, topic, tmp_path, seconds=0, members=3)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_ten_minutes_of_faults_pass(first_generation: KafkaCluster, topic: str, tmp_path: Path) -> None:
    run(first_generation, topic, tmp_path, seconds=600, members=6)
