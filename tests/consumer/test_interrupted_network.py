"""Exceptions of signal handlers in polls over real sockets: connections start anew, and every record comes once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.testing import EmbeddedCluster
from tests.support.interrupts import SOURCE, Interrupted, Place
from tests.support.wait import eventually

TP = TopicPartition("t", 0)
RECORDS = 200


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TP.topic)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(RECORDS):
                producer.send(TP.topic, b"%d" % number, partition=TP.partition)
        yield cluster.bootstrap_servers


class Reader:
    """Reads in small pieces, so that there is much to interrupt."""

    def __init__(self, servers: str, group_id: str) -> None:
        self.consumer: KafkaConsumer[Any, Any] = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group_id,
            auto_offset_reset="earliest",
            max_poll_records=20,
            max_partition_fetch_bytes=2_000,
        )
        self.next = 0

    def poll(self) -> int:
        for records in self.consumer.poll(50).values():
            for record in records:
                assert record.offset == self.next
                self.next += 1
        return self.next

    def read_a_while(self) -> None:
        for _ in range(12):
            self.poll()


@pytest.mark.parametrize("subscribes", [False, True], ids=["assign", "subscribe"])
def test_reading_continues_after_interrupted_network_calls(servers: str, subscribes: bool) -> None:
    def fail() -> None:
        raise Interrupted

    number = 1
    while True:
        place = Place(number, fail, SOURCE)
        reader = Reader(servers, f"g-{subscribes}-{number}")
        with place, reader.consumer as consumer:
            if subscribes:
                consumer.subscribe([TP.topic])
            else:
                consumer.assign([TP])
            eventually(reader.poll, what="the first records", every_s=0)
            error = place.interrupt(reader.read_a_while)
            assert error is None or isinstance(error, Interrupted), repr(error)
            eventually(lambda: reader.poll() == RECORDS, what="all records", every_s=0)  # noqa: B023
            consumer.commit()
            assert consumer.committed(TP) == RECORDS
        if not place.reached:
            return
        number += 601


def test_an_exception_in_the_wait_keeps_the_connections(servers: str) -> None:
    def fail(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, fail)
    try:
        with KafkaConsumer(bootstrap_servers=servers) as consumer:
            consumer.assign([TP])
            consumer.seek_to_end()
            assert consumer.position(TP) == RECORDS  # asked of the leader, so its connection is there
            consumer.poll(200)
            made = consumer.metrics()["consumer-metrics"]["connection-creation-total"]
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGALRM))
            timer.start()
            with pytest.raises(Interrupted):
                consumer.poll(60_000)
            timer.join()
            assert consumer.position(TP) == RECORDS
            consumer.poll(700)
            assert consumer.metrics()["consumer-metrics"]["connection-creation-total"] == made
    finally:
        signal.signal(signal.SIGALRM, before)
