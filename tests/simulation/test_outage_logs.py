"""Client logs while brokers are down for minutes: one line per change, and one reminder per minute."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import KafkaError
from pykclient.testing.simulation import Simulation

TOPIC = "orders"
AWAY_MS = 150_000


class Line(NamedTuple):
    time_ms: int
    level: str
    client: str
    text: str


class Log(logging.Handler):
    """The clients' log lines from INFO on, with the virtual time since the outage began."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.simulation: Simulation | None = None
        self.start_ms: int | None = None
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if self.simulation is not None and self.start_ms is not None and message.startswith(("[Producer", "[Consumer")):
            prefix, _, text = message.partition("] ")
            time_ms = self.simulation.clock.now_ms() - self.start_ms
            client = prefix.partition("client_id=")[2].split()[0]
            self.lines.append(Line(time_ms, record.levelname, client, text))

    def of(self, client: str) -> list[Line]:
        return [line for line in self.lines if line.client == client]


@pytest.fixture
def log() -> Iterator[Log]:
    log, logger = Log(), logging.getLogger("pykclient")
    level = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    yield log
    logger.removeHandler(log)
    logger.setLevel(level)


CLIENTS = ("writer", "member", "loner")


def run(log: Log, brokers: list[int], *, pause: bool = False) -> None:
    """Run three busy clients, with an outage of ``brokers`` in the middle."""
    with Simulation(seed=5, brokers=3, default_replication_factor=3, offsets_topic_replication_factor=3) as simulation:
        log.simulation = simulation
        simulation.create_topic(TOPIC, partitions=6)
        clock, done = simulation.clock, [False]

        def write() -> None:
            producer = KafkaProducer.in_environment(
                simulation.environment("writer"),
                bootstrap_servers=simulation.bootstrap_servers,
                client_id="writer",
                max_block_ms=1_000,
            )
            number = 0
            while not done[0]:
                try:
                    producer.send(TOPIC, b"v", partition=number % 6)
                except KafkaError:
                    clock.sleep_ms(1_000)
                number += 1
                clock.sleep_ms(2_000)
            producer.close(0)

        def read_in_a_group() -> None:
            consumer = KafkaConsumer.in_environment(
                simulation.environment("member"),
                TOPIC,
                bootstrap_servers=simulation.bootstrap_servers,
                client_id="member",
                group_id="billing",
            )
            while not done[0]:
                consumer.poll(2_000)
            consumer.close(timeout_ms=0)

        def read_in_a_loop() -> None:
            consumer = KafkaConsumer.in_environment(
                simulation.environment("loner"),
                TOPIC,
                bootstrap_servers=simulation.bootstrap_servers,
                client_id="loner",
                consumer_timeout_ms=AWAY_MS * 2,
            )
            for _ in consumer:
                if done[0]:
                    break
            consumer.close(timeout_ms=0)

        def go_away() -> None:
            clock.sleep_ms(30_000)
            log.start_ms = clock.now_ms()
            for id in brokers:
                (simulation.cluster.pause_broker if pause else simulation.cluster.kill_broker)(id)
            clock.sleep_ms(AWAY_MS)
            for id in brokers:
                (simulation.cluster.resume_broker if pause else simulation.cluster.start_broker)(id)
            clock.sleep_ms(30_000)
            log.simulation = None
            done[0] = True

        for actor in (write, read_in_a_group, read_in_a_loop, go_away):
            simulation.actor(actor)
        simulation.run()


def check_words(lines: list[Line]) -> None:
    for line in lines:
        for wrong in ("('", "{'", "None", "21474", "node ", "Error'", "\n"):
            assert wrong not in line.text, line


def reminders(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.text.startswith("Still not reachable: ")]


def test_outage_of_all_brokers_is_logged_briefly(log: Log) -> None:
    run(log, [1, 2, 3])
    check_words(log.lines)
    for client in CLIENTS:
        lines = log.of(client)
        during = [line for line in lines if line.time_ms < AWAY_MS]
        at_once = [line for line in during if line.time_ms < 10_000]
        later = [line for line in during if line.time_ms >= 10_000]
        texts = Counter(line.text.split(":")[0].split(" (")[0] for line in at_once)
        assert sum(text.startswith("Connection to ") for text in texts.elements()) == 3, texts
        assert sum(text.startswith("Disconnected from ") for text in texts.elements()) == 3, texts
        assert len(at_once) <= 8
        reminded = reminders(later)
        assert [round(line.time_ms / 60_000) for line in reminded] == [1, 2]
        assert all(line.level == "WARNING" for line in later)
        for minute, line in enumerate(reminded, 1):
            for broker, port in ((1, 9092), (2, 9093), (3, 9094)):
                found = re.search(rf"broker-{broker}:{port} for (\d+) s", line.text)
                assert found, line
                # A broker counts as unreachable from the first attempt on that failed.
                assert minute * 60 - 5 <= int(found[1]) < minute * 60 + 10, line
            assert "refused the connection" in line.text
        others = [line.text for line in later if line not in reminded]
        assert all(text.startswith("Without a group coordinator for ") for text in others)
        assert len(others) == (2 if client == "member" else 0)
        back = [line.text for line in lines if line.time_ms >= AWAY_MS]
        assert sum("again after 1" in text for text in back) == 3, back
        assert len(back) <= 5, back
    assert any("The group coordinator is broker " in line.text for line in log.of("member"))


def test_outage_of_one_broker_is_logged_without_reminders(log: Log) -> None:
    """The other brokers take over, so there are no reminders of an unneeded broker."""
    run(log, [1])
    check_words(log.lines)
    for client in CLIENTS:
        lines = [line for line in log.of(client) if not line.text.startswith(("Found the group", "The group coord"))]
        assert [line.text.split(":")[0] for line in lines if "broker-1" in line.text][:2] == [
            "Disconnected from broker 1 (broker-1",
            "Connection to broker 1 (broker-1",
        ]
        assert len(lines) <= 6, lines


def test_paused_brokers_are_logged_as_warnings(log: Log) -> None:
    """Paused brokers keep connections but do not respond; each gets a warning when its requests time out."""
    run(log, [1, 2, 3], pause=True)
    check_words(log.lines)
    for client in CLIENTS:
        warnings = [line for line in log.of(client) if line.level == "WARNING" and line.time_ms < AWAY_MS]
        assert sum("no response to " in line.text and "failed" in line.text for line in warnings) in range(3, 10), (
            warnings
        )
        assert 1 <= len(reminders(warnings)) <= 3, warnings
        assert len(warnings) <= 16, warnings


def test_healthy_cluster_logs_nothing(log: Log) -> None:
    run(log, [])
    assert log.lines == []
