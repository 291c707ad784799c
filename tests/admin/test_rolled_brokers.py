"""Topics are created and deleted while three brokers are restarted: each result is right, and told once."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from pykclient import KafkaAdminClient
from pykclient.admin import Results
from pykclient.errors import KafkaError, TopicExistsError, UnknownTopicOrPartitionError
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

#: Topics of one call.
BATCH = 10


class Rolling:
    """Restarts the brokers of a cluster, one after another, until it is told to stop."""

    def __init__(self, cluster: AnyKafka) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.restarts = 0
        self.failure: BaseException | None = None

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                for broker in self._cluster.brokers.values():
                    if self._is_over.is_set():
                        return
                    broker.restart()
                    eventually(lambda: not self._cluster.out_of_sync(), 60.0, "every replica is in sync")
                    self.restarts += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def __enter__(self) -> Rolling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure


def check_repeated_by_a_broker(cluster: AnyKafka, results: Results[Any, Any], kind: type[KafkaError]) -> None:
    """Check that only one kind of error is there, and only on real Kafka.

    A real broker forwards the request to the controller. If it loses that connection it repeats the request itself,
    finds what it has done before, and tells the client nothing of that. So the error is true, and it is not for us to
    say that the topics are ours.
    """
    assert {type(error) for error in results.failed.values()} <= {kind}
    assert isinstance(cluster, KafkaCluster) or not results.failed


def run(cluster: AnyKafka, topics: int, restarts: int) -> None:
    """Create and delete at least ``topics`` topics, and go on until there were so many restarts.

    A tenth of the first ``topics`` is left, and none of the later ones: a broker that starts reads all that it has.
    """
    made: list[str] = []
    prefix = f"rolled-{uuid.uuid4().hex[:6]}"
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, client_id="roller") as admin:
        typed = admin.typed
        with Rolling(cluster) as rolling:
            number = 0
            while number < topics or rolling.restarts < restarts:
                assert rolling.failure is None
                names = [f"{prefix}-{number + index}" for index in range(BATCH)]
                number += BATCH
                wanted = {name: {"num_partitions": 2, "replication_factor": 1} for name in names}
                created = typed.create_topics(wanted, timeout_ms=90_000)
                assert set(created) == set(names)
                assert len(created) == BATCH
                assert {topic.num_partitions for topic in created.succeeded.values()} <= {2}
                check_repeated_by_a_broker(cluster, created, TopicExistsError)
                left_over = names[:1] if number <= topics else []
                obsolete = names[len(left_over) :]
                deleted = typed.delete_topics(obsolete, timeout_ms=90_000)
                assert set(deleted) == set(obsolete)
                assert len(deleted) == len(obsolete)
                check_repeated_by_a_broker(cluster, deleted, UnknownTopicOrPartitionError)
                made += left_over
        cluster.make_healthy()

        def left() -> list[str]:
            return sorted(name for name in admin.list_topics() if name.startswith(prefix))

        eventually(lambda: left() == sorted(made), 60.0, "the topics that were left are there")
        for name, error in typed.delete_topics(["never-made", *made], timeout_ms=90_000).failed.items():
            assert name == "never-made", error


@pytest.mark.timeout(300)
def test_admin_calls_survive_rolling_restart(any_cluster: AnyKafka) -> None:
    run(any_cluster, topics=60, restarts=3)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_admin_calls_survive_many_rolling_restarts(any_cluster: AnyKafka) -> None:
    run(any_cluster, topics=1_000, restarts=30)
