"""examples/exactly_once.py books every payment exactly once, although its instances are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

PAYMENTS = 3_000
ROUNDS = 4
PARTITIONS = 3
ACCOUNTS = 20


class Instances:
    """The processes of the service, by the name of the instance."""

    def __init__(self, any_kafka: AnyKafka, topic: str, folder: Path) -> None:
        self._command = [sys.executable, "-W", "error", "-m", "examples.exactly_once"]
        self._command += ["--bootstrap-servers", any_kafka.bootstrap_servers, "--topic", topic]
        self._folder = folder
        self._starts = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        self._starts += 1
        with (self._folder / f"{self._starts}-{name}.log").open("w") as log:
            self.running[name] = subprocess.Popen(
                [*self._command, "--instance", name],
                cwd=Path(examples.__file__).parents[1],
                stderr=log,
                env=os.environ,
            )

    def end(self, name: str, number: signal.Signals) -> int:
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(60)

    def check(self) -> None:
        for name, process in self.running.items():
            if process.poll() is not None:
                logs = "\n".join(log.read_text() for log in sorted(self._folder.glob(f"*-{name}.log")))
                pytest.fail(f"instance {name} has ended with {process.returncode}: {logs}")


@pytest.fixture
def instances(any_kafka: AnyKafka, topic: str, tmp_path: Path) -> Iterator[Instances]:
    any_kafka.create_topic(topic, PARTITIONS)
    any_kafka.create_topic(f"{topic}.bookings", PARTITIONS)
    made = Instances(any_kafka, topic, tmp_path)
    yield made
    for name in [*made.running]:
        made.end(name, signal.SIGKILL)


class Bookings:
    """A reader of what is committed."""

    def __init__(self, consumer: KafkaConsumer[Any, Any], topic: str) -> None:
        self._consumer = consumer
        consumer.assign([TopicPartition(f"{topic}.bookings", partition) for partition in range(PARTITIONS)])
        consumer.seek_to_beginning()
        self.of_account: dict[bytes, list[int]] = defaultdict(list)

    def count(self) -> int:
        for records in self._consumer.poll(timeout_ms=100).values():
            for record in records:
                assert record.key is not None
                self.of_account[record.key].append(json.loads(record.value or b"")["payment"])
        return sum(map(len, self.of_account.values()))


def test_every_payment_is_booked_once(any_kafka: AnyKafka, topic: str, instances: Instances) -> None:
    rng = random.Random(7)
    names = ["a", "b"]
    for name in names:
        instances.start(name)
    servers = any_kafka.bootstrap_servers
    with (
        KafkaProducer[bytes, bytes](bootstrap_servers=servers) as producer,
        KafkaConsumer[Any, Any](bootstrap_servers=servers, isolation_level="read_committed") as consumer,
    ):
        bookings = Bookings(consumer, topic)
        paid = 0
        for _ in range(ROUNDS):
            for _ in range(PAYMENTS // ROUNDS):
                account = b"account-%d" % (paid % ACCOUNTS)
                producer.send(topic, json.dumps({"id": paid, "cents": 100}).encode(), key=account)
                paid += 1
            producer.flush(30)
            begun = bookings.count()
            eventually(lambda begun=begun: bookings.count() > begun, 60, "bookings go on")  # type: ignore[misc]
            killed = rng.choice(names)
            instances.end(killed, signal.SIGKILL)
            instances.start(killed)

        def complete() -> bool:
            instances.check()
            return bookings.count() >= PAYMENTS

        eventually(complete, 120, "all payments are booked")
        for name in names:
            assert instances.end(name, signal.SIGTERM) == 0
        assert bookings.count() == PAYMENTS
        for number in range(ACCOUNTS):  # each once, and in order for each account
            assert bookings.of_account[b"account-%d" % number] == list(range(number, PAYMENTS, ACCOUNTS))
