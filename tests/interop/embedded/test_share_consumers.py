"""Share consumers of other clients work against the embedded cluster unchanged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pykclient import KafkaAdminClient, KafkaProducer
from pykclient.admin import ConfigResource, ConfigResourceType
from pykclient.testing import EmbeddedCluster
from tests.support.java import run_java

SHARE_DECISIONS = Path(__file__).parents[1] / "ShareDecisions.java"


@pytest.mark.java
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("extra", "decided"),
    # One at a time: with renewed records at hand, Java's client may never return those that arrive meanwhile.
    [
        (b"release", {("release", 1, "release"): 5, ("release", 2, "accept"): 5}),
        (b"new", {("new", 1, "renew"): 5, ("new", 1, "accept"): 5}),
    ],
)
def test_java_share_consumer_works(extra: bytes, decided: dict[tuple[str, int, str], int]) -> None:
    values = [b"a", extra, b"xray", b"b", b"c"] * 5
    with EmbeddedCluster(3) as cluster:
        cluster.create_topic("jobs", partitions=2)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            settings = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, "workers", settings)])
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number, value in enumerate(values):
                producer.send("jobs", value, partition=number % 2)
        printed = run_java(SHARE_DECISIONS, cluster.bootstrap_servers, "workers", "jobs", str(len(values)))
    lines = [line.split() for line in printed.decode().splitlines()]
    decisions = Counter((value, int(deliveries), type) for _, deliveries, value, type in lines)
    assert decisions == {
        ("a", 1, "accept"): 5,
        ("b", 1, "accept"): 5,
        ("c", 1, "accept"): 5,
        ("xray", 1, "reject"): 5,
        **decided,
    }
