"""Share consumers of other clients work against the embedded cluster unchanged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pykclient import KafkaAdminClient, KafkaProducer
from pykclient.admin import ConfigResource, ConfigResourceType
from pykclient.testing import EmbeddedCluster
from tests.support.java import run_java

SHARE_MEMBER = Path(__file__).parents[1] / "ShareMember.java"


@pytest.mark.java
@pytest.mark.timeout(90)
def test_javas_share_consumer() -> None:
    values = [b"a", b"release", b"xray", b"b", b"new", b"c"] * 5
    with EmbeddedCluster(3) as cluster:
        cluster.create_topic("jobs", partitions=2)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            settings = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, "workers", settings)])
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number, value in enumerate(values):
                producer.send("jobs", value, partition=number % 2)
        printed = run_java(SHARE_MEMBER, cluster.bootstrap_servers, "workers", "jobs", str(len(values)))
    lines = [line.split() for line in printed.decode().splitlines()]
    decisions = Counter((value, int(deliveries), type) for _, deliveries, value, type in lines)
    assert decisions == {
        ("a", 1, "accept"): 5,
        ("b", 1, "accept"): 5,
        ("c", 1, "accept"): 5,
        ("new", 1, "renew"): 5,
        ("new", 1, "accept"): 5,
        ("xray", 1, "reject"): 5,
        ("release", 1, "release"): 5,
        ("release", 2, "accept"): 5,
    }
