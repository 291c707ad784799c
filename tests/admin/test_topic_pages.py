"""Topics are described in pages, and in one response where brokers know no pages."""

from __future__ import annotations

import pytest

from pykclient.admin import Admin, topics
from pykclient.admin.descriptions import TopicDescription
from pykclient.errors import UnknownTopicOrPartitionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster

TOPICS = {"a": 3, "b": 5, "c": 1, "d": 4}


def described(cluster: EmbeddedCluster) -> dict[str, TopicDescription]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        results = admin.describe_topics([*TOPICS, "nowhere"])
        by_id = admin.describe_topics([topic.topic_id for topic in results.succeeded.values() if topic.topic_id])
    (error,) = results.failed.values()
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert "'nowhere'" in str(error)
    found = {str(name): topic for name, topic in results.succeeded.items()}
    for topic in found.values():
        plain = [part._replace(elr=None, last_known_elr=None) for part in topic.partitions]
        assert by_id[topic.topic_id] == topic._replace(partitions=plain)  # type: ignore[index]
    return found


@pytest.mark.parametrize("size", [1, 4, 8, 2000])
def test_describe_topics_reads_all_pages(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(topics, "_PAGE_SIZE", size)
    with EmbeddedCluster(brokers=2) as cluster:
        for name, partitions in TOPICS.items():
            cluster.create_topic(name, partitions)
        found = described(cluster)
        requests = len(cluster.requests_of(ApiKeys.DESCRIBE_TOPIC_PARTITIONS))
    assert {name: [part.partition for part in topic.partitions] for name, topic in found.items()} == {
        name: list(range(count)) for name, count in TOPICS.items()
    }
    assert all(part.elr == part.last_known_elr == () for topic in found.values() for part in topic.partitions)
    assert requests >= sum(TOPICS.values()) / size  # one more if the topic that is missing comes after a full page


def test_describe_topics_works_on_brokers_without_paging() -> None:
    with EmbeddedCluster(release="3.5") as cluster:
        for name, partitions in TOPICS.items():
            cluster.create_topic(name, partitions)
        found = described(cluster)
    assert {name: len(topic.partitions) for name, topic in found.items()} == TOPICS
    assert all(part.elr is None for topic in found.values() for part in topic.partitions)
