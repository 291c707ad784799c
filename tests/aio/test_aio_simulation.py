"""AIOKafkaProducer in a simulation: virtual time, faults by seed, and every acknowledged record written once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from pykclient.aio import AIOKafkaProducer
from pykclient.errors import KafkaError
from pykclient.testing.simulation import Simulation
from pykclient.types import TopicPartition

PARTITIONS = 3
TASKS = 4
RECORDS_OF_TASK = 25


class Course:
    """One producer of several tasks, and a cluster whose brokers die and are cut off from it."""

    def __init__(self, simulation: Simulation, rng: random.Random) -> None:
        self.simulation = simulation
        self.rng = rng
        self.acknowledged: list[tuple[int, int, bytes]] = []  # partition, offset, value
        self.failed: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.history: list[str] = []

    def application(self) -> None:
        environment = self.simulation.environment("writer")
        with asyncio.Runner(loop_factory=environment.new_event_loop) as runner:
            runner.run(self._main(environment))

    async def _main(self, environment: object) -> None:
        settings = {
            "bootstrap_servers": self.simulation.bootstrap_servers,
            "linger_ms": self.rng.choice([0, 5]),
            "request_timeout_ms": 2_000,
            "delivery_timeout_ms": 60_000,
            "max_batch_size": 200,
            "buffer_memory": 3_000,
        }
        async with AIOKafkaProducer.in_environment(environment, **settings) as producer:  # type: ignore[arg-type]
            await asyncio.gather(*(self._task(producer, number) for number in range(TASKS)))

    async def _task(self, producer: AIOKafkaProducer, task: int) -> None:
        rng = random.Random(self.rng.random())
        futures = []
        for number in range(RECORDS_OF_TASK):
            value = b"%d/%d" % (task, number)
            await asyncio.sleep(rng.choice([0, 0, 0.01, 0.5]))
            sending = asyncio.ensure_future(producer.send("orders", value, partition=number % PARTITIONS))
            if rng.random() < 0.1:
                await asyncio.sleep(rng.choice([0, 0.002]))
                sending.cancel()
            try:
                futures.append((value, await sending))
            except asyncio.CancelledError:
                self.cancelled.append(value)
            except KafkaError:
                self.failed.append(value)
        for value, future in futures:
            try:
                metadata = await future
            except KafkaError:
                self.failed.append(value)
            else:
                assert metadata is not None
                self.acknowledged.append((metadata.partition, metadata.offset, value))
                self.history.append(f"{self.simulation.clock.time_ms} {value!r} {metadata.partition} {metadata.offset}")

    def disturb(self) -> None:
        """Kill, restart and cut off brokers, each after the other."""
        simulation, cluster = self.simulation, self.simulation.cluster
        for _ in range(4):
            simulation.clock.sleep_ms(self.rng.randrange(100, 4_000))
            broker = self.rng.choice(sorted(cluster.nodes))
            if self.rng.random() < 0.5:
                cluster.kill_broker(broker)
                simulation.clock.sleep_ms(self.rng.randrange(100, 8_000))
                cluster.start_broker(broker)
            else:
                cluster.faults.cut("client:writer", broker, reset=self.rng.random() < 0.5)
                simulation.clock.sleep_ms(self.rng.randrange(100, 8_000))
                cluster.faults.heal("client:writer", broker)

    def check(self) -> None:
        written: Counter[bytes] = Counter()
        for partition in range(PARTITIONS):
            records = {
                record.offset: record.value or b""
                for record in self.simulation.cluster.log_records(TopicPartition("orders", partition))
            }
            written.update(records.values())
            for number, offset, value in self.acknowledged:
                if number == partition:
                    assert records[offset] == value
            for task in range(TASKS):  # each task's records keep their order
                order = [int(value.split(b"/")[1]) for value in records.values() if value.startswith(b"%d/" % task)]
                assert order == sorted(order)
        assert set(written.values()) <= {1}, "a record is written twice"
        assert not written.keys() & set(self.cancelled), "a send that was cancelled is written"
        assert len(self.acknowledged) + len(self.failed) + len(self.cancelled) == TASKS * RECORDS_OF_TASK


def course(seed: int) -> Course:
    """Run a simulation; return what happened."""
    config = {"min.insync.replicas": 2, "default.replication.factor": 3}
    with Simulation(seed, brokers=3, config=config) as simulation:
        simulation.create_topic("orders", PARTITIONS)
        run = Course(simulation, random.Random(seed))
        simulation.actor(run.application)
        simulation.actor(run.disturb)
        simulation.run()
        run.check()
        return run


@pytest.mark.parametrize("seed", range(12))
def test_every_acknowledged_record_is_written_once(seed: int) -> None:
    run = course(seed)
    assert len(run.acknowledged) > TASKS * RECORDS_OF_TASK // 2


def test_same_seed_gives_same_history() -> None:
    assert course(5).history == course(5).history
