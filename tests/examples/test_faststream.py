"""examples/faststream_orders.py runs on FastStream, with this package in the place of aiokafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.testing import EmbeddedCluster
from tests.support.wait import eventually

pytest.importorskip("faststream")

#: A test of a service without a broker, as FastStream's documentation shows it.
IN_MEMORY = """
import asyncio
import pykclient.alias

pykclient.alias.install("aiokafka")
from examples.faststream_orders import broker, ship
from faststream.kafka import TestKafkaBroker

results = []

@broker.subscriber("shipments")
async def shipped(shipment: dict) -> None:
    results.append(shipment)

async def main() -> None:
    async with TestKafkaBroker(broker):
        await broker.publish({"id": 7, "address": "London"}, "orders", key=b"7", headers={"a": "1"})
        ship.mock.assert_called_once_with({"id": 7, "address": "London"})

asyncio.run(main())
assert results == [{"order": 7, "to": "London"}], results
"""


def members(cluster: EmbeddedCluster) -> set[str]:
    bodies: list[Any] = [request.body for request in cluster.requests_of("JoinGroup")]
    return {body.member_id for body in bodies} - {""}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_faststream_service_writes_a_shipment_for_each_order(workers: int) -> None:
    with EmbeddedCluster(auto_create_topics_enable=False) as cluster:
        cluster.create_topic("shipments", partitions=1)
        program = (
            "-m",
            "pykclient.alias",
            "aiokafka",
            "--",
            "-m",
            "faststream",
            "run",
            "examples.faststream_orders:app",
            "--workers",
            str(workers),
        )
        service = subprocess.Popen(
            [sys.executable, *program],
            cwd=Path(examples.__file__).parents[1],
            env={**os.environ, "BOOTSTRAP_SERVERS": cluster.bootstrap_servers},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            # FastStream creates the topics that it reads
            eventually(lambda: cluster.leader(TopicPartition("orders", 0)))
            with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                producer.send("orders", b'{"id": 7, "address": "London"}').get(10)
            with KafkaConsumer(
                "shipments",
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                consumer_timeout_ms=20_000,
            ) as consumer:
                record = next(consumer, None)
            eventually(lambda: len(members(cluster)) == workers)
            bodies: list[Any] = [request.body for request in cluster.requests_of("ApiVersions")]
            software = {body.client_software_name for body in bodies}
        finally:
            service.terminate()
            output, _ = service.communicate(timeout=30)
        assert record is not None, output
        assert json.loads(record.value or b"") == {"order": 7, "to": "London"}
        assert software == {"pykclient"}, output


def test_broker_in_memory_calls_the_service() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_MEMORY],
        cwd=Path(examples.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
