"""Real consumers whose coordinator is killed, moved or restarted, on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.testing.group.group_metadata import STABLE
from pykclient.testing.group.group_records import GROUP_METADATA_TOPIC
from pykclient.testing.simulation.simulation import Simulation
from pykclient.types import TopicPartition

TOPIC = "orders"
GROUP = "readers"
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    """Three brokers; all groups are in one partition, whose leader can be killed."""
    settings = {"offsets.topic.num.partitions": 1, "offsets.commit.timeout.ms": 2_000}
    with Simulation(seed=3, brokers=3, config=settings) as simulation:
        simulation.create_topic(TOPIC, partitions=4)
        yield simulation


class Reader:
    """A member that polls and commits continuously, and leaves when told to."""

    def __init__(self, simulation: Simulation, name: str, instance_id: str | None = None) -> None:
        self.stopped = False
        self.generations: list[int] = []
        self.committed = 0
        self.owns = 0
        self._simulation = simulation
        self._name = name
        self._instance_id = instance_id
        simulation.actor(self._run, name)

    def _run(self) -> None:
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer.in_environment(
            self._simulation.environment(self._name),
            TOPIC,
            bootstrap_servers=self._simulation.bootstrap_servers,
            group_id=GROUP,
            group_instance_id=self._instance_id,
            heartbeat_interval_ms=500,
            session_timeout_ms=6_000,
            enable_auto_commit=False,
        )
        with consumer:
            while not self.stopped:
                consumer.poll(200)
                generation = consumer.group_metadata().generation_id
                if generation >= 0 and generation not in self.generations[-1:]:
                    self.generations.append(generation)
                assignment = consumer.assignment()
                self.owns = len(assignment)
                if assignment:
                    consumer.commit_async(dict.fromkeys(assignment, self.committed + 1), self._on_commit)

    def _on_commit(self, offsets: dict[TopicPartition, Any], error: Exception | None) -> None:
        if error is None:
            self.committed = max(self.committed, *(offset.offset for offset in offsets.values()))


def settled(*readers: Reader, partitions: int = 4) -> Callable[[], bool]:
    return lambda: sum(reader.owns for reader in readers) == partitions and all(reader.owns for reader in readers)


def coordinator(simulation: Simulation) -> int:
    found = simulation.cluster.leader(OFFSETS)
    assert found is not None
    return found


def another_one(simulation: Simulation, former: int) -> None:
    """Wait until another broker leads."""
    simulation.wait_for(lambda: simulation.cluster.leader(OFFSETS) not in (None, former))


def committed_on(simulation: Simulation, broker: int) -> int:
    group = simulation.cluster.broker(broker).group_coordinator.groups[GROUP]
    assert group.state is STABLE
    return min(offset.offset for offset in group.offsets.committed.values())


def go_on(simulation: Simulation, *readers: Reader) -> None:
    """Wait until every reader has committed five more records."""
    wanted = [reader.committed + 5 for reader in readers]
    simulation.wait_for(lambda: all(r.committed >= n for r, n in zip(readers, wanted, strict=True)))


def stop(simulation: Simulation, *readers: Reader) -> None:
    for reader in readers:
        reader.stopped = True
    simulation.run()


def kill(simulation: Simulation, broker: int) -> None:
    simulation.cluster.kill_broker(broker)


def move(simulation: Simulation, broker: int) -> None:
    simulation.cluster.move_leader(OFFSETS, broker % 3 + 1)


@pytest.mark.parametrize("fail", [kill, move])
def test_group_continues_with_another_coordinator(
    simulation: Simulation, fail: Callable[[Simulation, int], None]
) -> None:
    readers = [Reader(simulation, "one"), Reader(simulation, "two", "static")]
    simulation.wait_for(settled(*readers))
    go_on(simulation, *readers)
    former = coordinator(simulation)
    generations = [list(reader.generations) for reader in readers]
    committed = min(reader.committed for reader in readers)
    fail(simulation, former)
    another_one(simulation, former)
    go_on(simulation, *readers)
    # No member had to rejoin, and no commit is lost.
    assert [reader.generations for reader in readers] == generations
    assert committed_on(simulation, coordinator(simulation)) >= committed
    assert settled(*readers)()
    stop(simulation, *readers)


def test_returning_coordinator_knows_its_groups(simulation: Simulation) -> None:
    reader = Reader(simulation, "one")
    simulation.wait_for(settled(reader))
    for _ in range(4):
        go_on(simulation, reader)
        committed = reader.committed
        former = coordinator(simulation)
        kill(simulation, former)
        another_one(simulation, former)
        simulation.cluster.start_broker(former)
        simulation.wait_for(lambda: len(simulation.cluster.isr(OFFSETS)) == 3)
        go_on(simulation, reader)
        assert committed_on(simulation, coordinator(simulation)) >= committed
    assert len(reader.generations) == 1
    stop(simulation, reader)


def test_groups_survive_a_restart_of_all_brokers(simulation: Simulation) -> None:
    reader = Reader(simulation, "one")
    simulation.wait_for(settled(reader))
    go_on(simulation, reader)
    committed = reader.committed
    for broker in (1, 2, 3):
        kill(simulation, broker)
    for broker in (1, 2, 3):
        simulation.cluster.start_broker(broker)
    simulation.wait_for(lambda: simulation.cluster.leader(OFFSETS) is not None)
    go_on(simulation, reader)
    assert committed_on(simulation, coordinator(simulation)) >= committed
    stop(simulation, reader)


def test_member_dying_with_its_coordinator_expires(simulation: Simulation) -> None:
    readers = [Reader(simulation, "one"), Reader(simulation, "two")]
    simulation.wait_for(settled(*readers))
    former = coordinator(simulation)
    kill(simulation, former)
    simulation.cluster.faults.partition(["client:two"], ["client:one", 1, 2, 3])
    # The new coordinator waits for a whole session of the dead member, then the other one gets all partitions.
    simulation.wait_for(lambda: readers[0].owns == 4)
    simulation.cluster.faults.heal()
    simulation.wait_for(settled(*readers))
    stop(simulation, *readers)


def test_coordinator_without_followers_refuses_commits(simulation: Simulation) -> None:
    reader = Reader(simulation, "one")
    simulation.wait_for(settled(reader))
    go_on(simulation, reader)
    leader = coordinator(simulation)
    before = reader.committed
    simulation.cluster.faults.partition([leader], [id for id in (1, 2, 3) if id != leader])
    simulation.wait_for(lambda: reader.committed > before + 20, limit_ms=120_000)
    # The current leader has every acknowledged commit, from before the fault and after it.
    assert committed_on(simulation, coordinator(simulation)) >= reader.committed - 1
    simulation.cluster.faults.heal()
    go_on(simulation, reader)
    stop(simulation, reader)
