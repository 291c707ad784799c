"""The same programs on confluent-kafka and on this package, with the same results, on one embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import confluent_kafka as theirs
import pytest

import pykclient.confluent as ours
from pykclient.testing import EmbeddedCluster

_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("two", 2)
        made.create_topic("hundred", 100)
        yield made


@pytest.fixture(params=[theirs, ours], ids=["theirs", "ours"])
def ck(request: pytest.FixtureRequest) -> Any:
    module: ModuleType = request.param
    return module


def _settings(cluster: EmbeddedCluster, **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **settings}


# --- producer ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["two", "never-made"])
@pytest.mark.parametrize(
    ("kbytes", "value", "key", "admitted"), [(2, 1000, 0, 2), (2, 100, 1000, 20), (1, 1024, 0, 1), (1, 1025, 0, 0)]
)
def test_kbytes_limit_the_values_of_all_messages(
    ck: Any, cluster: EmbeddedCluster, topic: str, kbytes: int, value: int, key: int, admitted: int
) -> None:
    settings = _settings(cluster, **{"queue.buffering.max.kbytes": kbytes, "linger.ms": 60_000})
    with ck.Producer(settings) as producer:
        producer.list_topics("two", timeout=_PATIENCE_S)
        for _ in range(admitted):
            producer.produce(topic, bytes(value), bytes(key))
        with pytest.raises(BufferError, match="Local: Queue full"):
            producer.produce(topic, bytes(value), bytes(key))
        assert len(producer) == admitted
        producer.purge()
        assert producer.flush(_PATIENCE_S) == 0
        producer.produce(topic, b"x")
        producer.purge()


@pytest.mark.parametrize("kbytes", [512, 16384])
def test_small_queues_admit_messages_for_many_partitions(ck: Any, cluster: EmbeddedCluster, kbytes: int) -> None:
    failed: list[Any] = []
    with ck.Producer(_settings(cluster, **{"queue.buffering.max.kbytes": kbytes})) as producer:
        for number in range(300):
            producer.produce(
                "hundred", bytes(100), partition=number % 100, on_delivery=lambda e, _: e and failed.append(e)
            )
        assert producer.flush(_PATIENCE_S) == 0
    assert not failed
