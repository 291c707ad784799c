"""Where the examples find a cluster: one that is named, or a real Kafka of their own for as long as they run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import NamedTuple


class Cluster(NamedTuple):
    bootstrap_servers: str
    description: str


@contextlib.contextmanager
def open_cluster(bootstrap_servers: str | None, partitions: int) -> Iterator[Cluster]:
    """The cluster at ``bootstrap_servers``; without it a Kafka that gives new topics ``partitions`` partitions."""
    if bootstrap_servers is not None:
        yield Cluster(bootstrap_servers, f"the cluster at {bootstrap_servers}")
        return
    from tests.kafka import artifacts
    from tests.kafka.cluster import KafkaCluster

    if why := artifacts.missing():
        sys.exit(f"No Kafka to run on. Name one with --bootstrap-servers, or: {why}")
    with KafkaCluster(properties={"num.partitions": partitions}) as kafka:
        name = f"Apache Kafka {artifacts.KAFKA_VERSION}, a real one, at {kafka.bootstrap_servers}"
        yield Cluster(kafka.bootstrap_servers, name)
