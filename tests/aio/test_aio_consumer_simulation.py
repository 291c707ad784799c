"""A group of AIOKafkaConsumers in a simulation: virtual time, faults by seed, every record processed at least once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.aio import AIOKafkaConsumer
from pykclient.errors import KafkaError
from pykclient.testing.simulation import Simulation
from pykclient.types import TopicPartition

PARTITIONS = 3
RECORDS = 40  # in each partition
MEMBERS = 2


class Course:
    """Two members of a group on one event loop, which work, stop and start, while brokers die and are cut off."""

    def __init__(self, simulation: Simulation, rng: random.Random) -> None:
        self.simulation = simulation
        self.rng = rng
        self.processed: Counter[tuple[int, int]] = Counter()
        self.errors: Counter[str] = Counter()
        self.history: list[str] = []
        self.is_classic = rng.random() < 0.6

    @property
    def is_complete(self) -> bool:
        return len(self.processed) == PARTITIONS * RECORDS

    def write(self) -> None:
        """Write the records over a few seconds."""
        environment = self.simulation.environment("writer")
        rng = random.Random(self.rng.random())
        producer = KafkaProducer.in_environment(environment, bootstrap_servers=self.simulation.bootstrap_servers)
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.send("orders", b"%d" % number, partition=partition)
            environment.clock.sleep_ms(rng.choice([0, 0, 50, 300]))
        producer.close()

    def application(self) -> None:
        environment = self.simulation.environment("reader")
        with asyncio.Runner(loop_factory=environment.new_event_loop) as runner:
            runner.run(self._main(environment))

    async def _main(self, environment: Any) -> None:
        await asyncio.gather(*(self._member(environment, number) for number in range(MEMBERS)))

    async def _member(self, environment: Any, number: int) -> None:
        rng = random.Random(self.rng.random())
        while not self.is_complete:
            settings = {
                "bootstrap_servers": self.simulation.bootstrap_servers,
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "enable_auto_commit": rng.random() < 0.7,
                "auto_commit_interval_ms": 500,
                "max_poll_interval_ms": 20_000,
                "request_timeout_ms": 3_000,
                "default_api_timeout_ms": 8_000,
            }
            if self.is_classic:
                settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
                settings["partition_assignment_strategy"] = rng.choice([["range"], ["range", "cooperative-sticky"]])
            else:
                settings["group_protocol"] = "consumer"
            consumer = AIOKafkaConsumer.in_environment(environment, **settings)
            consumer.subscribe(["orders"], listener=_Listener())
            try:
                async with consumer:
                    await self._read(consumer, number, rng, rng.randrange(5, 200))
            except KafkaError as error:
                self.errors[type(error).__name__] += 1

    async def _read(self, consumer: AIOKafkaConsumer, number: int, rng: random.Random, calls: int) -> None:
        """Make some calls, a few of which are cancelled."""
        for _ in range(calls):
            if self.is_complete:
                return
            call = asyncio.ensure_future(
                consumer.getmany(timeout_ms=rng.choice([0, 300, 2_000]), max_records=rng.choice([1, 5, None]))
            )
            if rng.random() < 0.1:
                await asyncio.sleep(rng.choice([0, 0.002, 0.1]))
                call.cancel()
            try:
                records = [record for records in (await call).values() for record in records]
            except asyncio.CancelledError:
                continue
            except KafkaError as error:
                self.errors[type(error).__name__] += 1
                continue
            for record in records:
                self.history.append(f"{self.simulation.clock.time_ms} {number} {record.partition} {record.offset}")
            await asyncio.sleep(rng.choice([0, 0, 0.05, 1]))  # the work
            self.processed.update((record.partition, record.offset) for record in records)

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
                cluster.faults.cut("client:reader", broker, reset=self.rng.random() < 0.5)
                simulation.clock.sleep_ms(self.rng.randrange(100, 8_000))
                cluster.faults.heal("client:reader", broker)

    def check(self) -> None:
        """Check that no record is missing. One that was committed, but not processed, would be."""
        for partition in range(PARTITIONS):
            tp = TopicPartition("orders", partition)
            assert [record.value for record in self.simulation.cluster.log_records(tp)] == [
                b"%d" % number for number in range(RECORDS)
            ]
            assert all(self.processed[partition, offset] for offset in range(RECORDS))


class _Listener:
    """Takes its time in each call."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await asyncio.sleep(0.01)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await asyncio.sleep(0.01)


def course(seed: int) -> Course:
    """Run a simulation; return what happened."""
    config = {
        "min.insync.replicas": 2,
        "default.replication.factor": 3,
        "offsets.topic.replication.factor": 3,
        "group.initial.rebalance.delay.ms": 0,
    }
    with Simulation(seed, brokers=3, config=config) as simulation:
        simulation.create_topic("orders", PARTITIONS)
        run = Course(simulation, random.Random(seed))
        simulation.actor(run.write)
        simulation.actor(run.application)
        simulation.actor(run.disturb)
        simulation.run()
        run.check()
        return run


@pytest.mark.parametrize("seed", range(12))
def test_every_record_is_processed(seed: int) -> None:
    run = course(seed)
    assert run.is_complete


def test_same_seed_gives_same_history() -> None:
    assert course(5).history == course(5).history
