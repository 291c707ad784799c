"""Spark Connect: a client in a process without a JVM, and the tests' session as the server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.kafka.ports import PortReservations
from tests.spark.connect_client import LIMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def connect_url(spark: SparkSession) -> Iterator[str]:
    """The URL of a server in the tests' JVM."""
    jvm: Any = spark.sparkContext._jvm
    context = spark.sparkContext._jsc.sc()
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    ports = PortReservations()
    port = ports.take()
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    service.start(context)
    yield f"sc://127.0.0.1:{port}"
    service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())
    ports.close()


@pytest.mark.timeout(300)
def test_connect_client_reads_and_writes(connect_url: str, kafka: KafkaCluster, topic: str, tmp_path: Path) -> None:
    kafka.create_topic(topic, 2)
    kafka.create_topic(f"{topic}-copy", 2)
    command = [sys.executable, "-m", "tests.spark.connect_client"]
    command += [connect_url, kafka.bootstrap_servers, topic, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["client"].startswith("pyspark.sql.connect.")
    assert answers["batch"] == list(range(60))
    assert answers["copy"] == list(range(60))
    assert answers["stream"] == list(range(60))
    assert answers["shuffles"] == [False, True]
    assert sum(answers["micro-batches"]) == 60
    assert len(answers["micro-batches"]) == (3 if LIMITS else 1)
    assert "startingOffsets" in answers["refusal"]
