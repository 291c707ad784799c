"""A member of a group without partitions waits for the group, and does nothing meanwhile."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing.simulation import Simulation
from pykclient.testing.simulation.simulation import SimulatedSelector

TOPIC = "orders"
QUIET_MS = 30_000
HEARTBEAT_MS = 3_000
POLL_MS = 5_000


class Group:
    """Two members on a topic with one partition. A member leaves the group when its name is in ``leaving``."""

    def __init__(self, simulation: Simulation, protocol: str) -> None:
        self._simulation = simulation
        self._config = {
            "bootstrap.servers": simulation.bootstrap_servers,
            "group.id": "billing",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
        self.leaving: set[str] = set()
        self._owners: dict[str, bool] = {}
        self.read: list[tuple[str, bytes | None]] = []
        for name in ("first", "second"):
            simulation.actor(partial(self._run, name), name)

    def _run(self, name: str) -> None:
        consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer.in_environment(
            self._simulation.environment(name), self._config
        )
        consumer.subscribe([TOPIC])
        while name not in self.leaving:
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                self.read += [(name, record.value) for record in records]
            self._owners[name] = bool(consumer.assignment())
        consumer.close()

    def owner_and_spare(self) -> tuple[str, str]:
        """Return the member with the partition and the one without, as of their last polls."""
        spare, owner = sorted(self._owners, key=self._owners.__getitem__)
        assert (self._owners[owner], self._owners[spare]) == (True, False)
        return owner, spare


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The polls of the network so far, by party."""
    counts: Counter[str] = Counter()
    poll = SimulatedSelector.poll

    def counted(self: SimulatedSelector, timeout_ms: int) -> None:
        counts[self.party] += 1
        poll(self, timeout_ms)

    monkeypatch.setattr(SimulatedSelector, "poll", counted)
    return counts


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_spare_member_wakes_for_heartbeats_only(protocol: str, polls: Counter[str]) -> None:
    with Simulation(seed=1, brokers=1, group_consumer_heartbeat_interval_ms=HEARTBEAT_MS) as simulation:
        simulation.create_topic(TOPIC)
        group = Group(simulation, protocol)

        def direct() -> None:
            simulation.clock.sleep_ms(20_000)
            owner, spare = group.owner_and_spare()
            before = polls[f"client:{spare}"]
            simulation.clock.sleep_ms(QUIET_MS)
            # Each heartbeat is sent and answered, and positions are not committed.
            beats = QUIET_MS // HEARTBEAT_MS + 1
            assert polls[f"client:{spare}"] - before <= 4 * beats + QUIET_MS // POLL_MS

            group.leaving.add(owner)
            producer = KafkaProducer.in_environment(
                simulation.environment("producer"), {"bootstrap.servers": simulation.bootstrap_servers}
            )
            producer.send(TOPIC, b"one").get(10)
            simulation.wait_for(lambda: (spare, b"one") in group.read or (owner, b"one") in group.read)
            simulation.clock.sleep_ms(QUIET_MS)
            producer.send(TOPIC, b"two").get(10)
            producer.close()
            simulation.wait_for(lambda: (spare, b"two") in group.read)
            group.leaving.add(spare)

        director = simulation.actor(direct, "director")
        simulation.run()
        assert director.done
