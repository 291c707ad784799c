"""Objects that the garbage collector tracks: all that could form a cycle, but not each of many pending records."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from pykclient import KafkaProducer
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import KafkaError, TopicAuthorizationError
from pykclient.implementation import NAME
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import run

RECORDS = 5_000

if NAME != "c":
    pytest.skip("only the compiled code does this", allow_module_level=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("t", 1)
        yield made


def test_garbage_collector_does_not_track_pending_records(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000) as producer:
            warm = await producer.send("t", b"warm")
            await producer.flush()
            assert warm.done()
            gc.collect()
            before = len(gc.get_objects())
            futures = [await producer.send("t", b"%d" % number) for number in range(RECORDS)]
            assert len(gc.get_objects()) - before < RECORDS // 5
            await producer.flush()
            assert len(gc.get_objects()) - before < RECORDS // 5
            assert [future.result().offset for future in futures[:2]] == [1, 2]

    run(main())


def test_garbage_collector_does_not_track_futures(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        futures = [producer.send("t", b"%d" % number) for number in range(100)]
        assert sum(map(gc.is_tracked, futures)) < 10


def test_failed_and_cancelled_futures_are_tracked(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20) as producer:
            await producer.send_and_wait("t", b"warm")
            first, cancelled, third = [await producer.send("t", b"v") for _ in range(3)]
            cancelled.cancel()
            await asyncio.gather(first, third)
            assert gc.is_tracked(cancelled)
            cluster.faults.answer(ApiKeys.PRODUCE, TopicAuthorizationError())
            failed = [await producer.send("t", b"v") for _ in range(3)]
            await asyncio.wait(failed)
            assert all(map(gc.is_tracked, failed))
            assert all(isinstance(future.exception(), KafkaError) for future in failed)

    run(main())
