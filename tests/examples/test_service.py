"""examples/service.py keeps its guarantees when it is terminated or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

ORDERS = 2_000
PARTITIONS = 3
NO_ADDRESS = {7, 700, 1_400}
NOT_JSON = {100, 1_500}


class Service:
    """The service in a process of its own, with its log in a file."""

    def __init__(self, any_kafka: AnyKafka, topic: str, log_file: Path) -> None:
        self.log_file = log_file
        command = [sys.executable, "-W", "error", "-m", "examples.service"]
        command += ["--bootstrap-servers", any_kafka.bootstrap_servers, "--topic", topic]
        with log_file.open("w") as log:
            self.process = subprocess.Popen(command, cwd=Path(examples.__file__).parents[1], stderr=log, env=os.environ)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def check_running(self) -> None:
        if self.process.poll() is not None:
            pytest.fail(f"the service has ended with {self.process.returncode}: {self.log}")

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def started(any_kafka: AnyKafka, topic: str, tmp_path: Path) -> Iterator[Any]:
    services: list[Service] = []

    def start() -> Service:
        services.append(Service(any_kafka, topic, tmp_path / f"service-{len(services)}.log"))
        return services[-1]

    yield start
    for service in services:
        service.process.kill()
        service.process.wait(60)


@pytest.fixture
def topic(any_kafka: AnyKafka, topic: str) -> str:
    any_kafka.create_topic(topic, PARTITIONS)
    for output in ("shipped", "dead-letters"):
        any_kafka.create_topic(f"{topic}.{output}", 1)
    return topic


def write_orders(any_kafka: AnyKafka, topic: str, numbers: range) -> None:
    with KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers) as producer:
        for number in numbers:
            order = {"id": number, "address": "here"}
            if number in NO_ADDRESS:
                del order["address"]
            value = b"{not json" if number in NOT_JSON else json.dumps(order).encode()
            producer.send(topic, value, partition=number % PARTITIONS)


def end_offset(any_kafka: AnyKafka, topic: str) -> int:
    tp = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=any_kafka.bootstrap_servers) as consumer:
        return consumer.end_offsets([tp])[tp]


def read(any_kafka: AnyKafka, topic: str) -> list[Any]:
    tp = TopicPartition(topic, 0)
    records: list[Any] = []
    with KafkaConsumer(bootstrap_servers=any_kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            records += consumer.poll(timeout_ms=1000).get(tp, [])
    return records


def await_shipments(any_kafka: AnyKafka, topic: str, count: int, service: Service) -> None:
    def is_there() -> bool:
        service.check_running()
        return end_offset(any_kafka, f"{topic}.shipped") >= count

    eventually(is_there, 60.0, f"{count} shipments")


def test_service_that_is_terminated_or_killed_loses_no_order(any_kafka: AnyKafka, topic: str, started: Any) -> None:
    half = ORDERS // 2
    write_orders(any_kafka, topic, range(half))

    first = started()
    await_shipments(any_kafka, topic, 200, first)
    assert first.end(signal.SIGTERM) == 0, first.log
    assert "Stopped" in first.log
    assert "Traceback" not in first.log
    shipped = [json.loads(record.value)["order"] for record in read(any_kafka, f"{topic}.shipped")]
    assert len(shipped) == len(set(shipped))

    second = started()
    await_shipments(any_kafka, topic, half - 10, second)  # most of this half's valid orders
    write_orders(any_kafka, topic, range(half, ORDERS))
    await_shipments(any_kafka, topic, half + 100, second)
    assert second.end(signal.SIGKILL) == -signal.SIGKILL

    third = started()
    good = set(range(ORDERS)) - NO_ADDRESS - NOT_JSON

    def all_shipped() -> bool:
        third.check_running()
        return {json.loads(record.value)["order"] for record in read(any_kafka, f"{topic}.shipped")} == good

    eventually(all_shipped, 90.0, "all orders shipped")
    assert third.end(signal.SIGINT) == 0, third.log

    again = Counter(json.loads(record.value)["order"] for record in read(any_kafka, f"{topic}.shipped"))
    assert all(again[number] == 1 for number in shipped), "what a graceful end has committed is not read again"
    dead = read(any_kafka, f"{topic}.dead-letters")
    by_origin = {dict(record.headers)["origin"].decode(): dict(record.headers)["reason"].decode() for record in dead}
    expected = {f"{topic}-{number % PARTITIONS}@{number // PARTITIONS}" for number in NO_ADDRESS | NOT_JSON}
    assert by_origin.keys() == expected
    assert sum(reason == "the order has no address" for reason in by_origin.values()) == len(NO_ADDRESS)
    assert {record.value for record in dead if b"{not" in record.value} == {b"{not json"}
