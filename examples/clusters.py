"""Where the examples find a cluster: one that is named, an embedded one, or a real Kafka for as long as they run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

#: What ``open_cluster`` can start.
KINDS = ("embedded", "real")

_BROKERS = 3


class Cluster(NamedTuple):
    bootstrap_servers: str
    description: str


@contextlib.contextmanager
def open_cluster(bootstrap_servers: str | None, kind: str, partitions: int) -> Iterator[Cluster]:
    """The cluster at ``bootstrap_servers``; without it one of this kind, whose new topics have so many partitions."""
    if bootstrap_servers is not None:
        yield Cluster(bootstrap_servers, f"the cluster at {bootstrap_servers}")
    elif kind == "real":
        yield from _real(partitions)
    else:
        yield from _embedded(partitions)


def _embedded(partitions: int) -> Iterator[Cluster]:
    """Brokers in this process: nothing but Python is needed."""
    from pykclient.testing import EmbeddedCluster

    with EmbeddedCluster(_BROKERS, config={"num.partitions": partitions}) as cluster:
        yield Cluster(cluster.bootstrap_servers, f"an embedded cluster of {_BROKERS} brokers in this process")


def _real(partitions: int) -> Iterator[Cluster]:
    """Apache Kafka itself, which needs Java, and Maven to fetch it."""
    from tests.kafka import artifacts
    from tests.kafka.cluster import KafkaCluster

    if why := artifacts.missing():
        sys.exit(f"No Kafka to run on. Name one with --bootstrap-servers, or: {why}")
    with KafkaCluster(properties={"num.partitions": partitions}) as kafka:
        name = f"Apache Kafka {artifacts.KAFKA_VERSION}, a real one, at {kafka.bootstrap_servers}"
        yield Cluster(kafka.bootstrap_servers, name)
