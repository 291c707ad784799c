"""The cluster for the examples: an existing one, an embedded one, or a temporary real Kafka."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

#: The kinds of clusters that ``open_cluster`` can start.
KINDS = ("embedded", "real")

_BROKERS = 3


class Cluster(NamedTuple):
    bootstrap_servers: str
    description: str


@contextlib.contextmanager
def open_cluster(bootstrap_servers: str | None, kind: str, partitions: int) -> Iterator[Cluster]:
    """Open the cluster at ``bootstrap_servers``, or start one of this kind, whose new topics have ``partitions``
    partitions.
    """
    if bootstrap_servers is not None:
        yield Cluster(bootstrap_servers, f"the cluster at {bootstrap_servers}")
    elif kind == "real":
        yield from _real(partitions)
    else:
        yield from _embedded(partitions)


def _embedded(partitions: int) -> Iterator[Cluster]:
    """Start brokers in this process, which needs nothing but Python."""
    from pykclient.testing import EmbeddedCluster

    with EmbeddedCluster(_BROKERS, config={"num.partitions": partitions}) as cluster:
        yield Cluster(cluster.bootstrap_servers, f"an embedded cluster of {_BROKERS} brokers in this process")


def _real(partitions: int) -> Iterator[Cluster]:
    """Start Apache Kafka, which needs Java and Maven."""
    from tests.kafka import artifacts
    from tests.kafka.cluster import KafkaCluster

    if why := artifacts.missing():
        sys.exit(f"No Kafka to run on. Name one with --bootstrap-servers, or: {why}")
    with KafkaCluster(properties={"num.partitions": partitions}) as kafka:
        name = f"Apache Kafka {artifacts.KAFKA_VERSION}, a real one, at {kafka.bootstrap_servers}"
        yield Cluster(kafka.bootstrap_servers, name)
