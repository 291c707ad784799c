"""Two-phase commits (KIP-939) of an AIOKafkaProducer."""

from __future__ import annotations

import asyncio

import pytest

from pykclient import PreparedTxnState
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import run
from tests.aio.test_transactions import committed


def producer_of(cluster: EmbeddedCluster, topic: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        transactional_id=topic,
        transaction_two_phase_commit_enable=True,
    )


def test_prepared_transaction_is_completed_after_restart(topic: str) -> None:
    config = {"unstable.api.versions.enable": True, "transaction.two.phase.commit.enable": True}

    async def first(cluster: EmbeddedCluster) -> PreparedTxnState:
        async with producer_of(cluster, topic) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"1")
            state = await producer.prepare_transaction()
            with pytest.raises(IllegalArgumentError, match="must be a PreparedTxnState"):
                await producer.complete_transaction(str(state))  # type: ignore[arg-type]
            await producer.complete_transaction(state)
            await producer.begin_transaction()
            await producer.send(topic, b"aborted")
            await producer.prepare_transaction()
            await producer.complete_transaction(state)
            await producer.begin_transaction()
            await producer.send(topic, b"2")
            return await producer.prepare_transaction()  # stop() leaves it

    async def second(cluster: EmbeddedCluster, stored: PreparedTxnState) -> None:
        producer = producer_of(cluster, topic)
        await producer.start(keep_prepared_txn=True)
        try:
            with pytest.raises(IllegalStateError, match="the transaction is prepared"):
                await producer.begin_transaction()
            await producer.complete_transaction(stored)

            async def fails() -> None:
                nonlocal stored
                async with producer.transaction():
                    await producer.send(topic, b"3")
                    stored = await producer.prepare_transaction()
                    raise OSError("no database")

            with pytest.raises(OSError, match="no database") as raised:
                await fails()
            assert "The transaction is prepared, and was not aborted" in raised.value.__notes__[0]
            await producer.complete_transaction(stored)
            await producer.begin_transaction()
            await producer.send(topic, b"cancelled")
            preparing = asyncio.ensure_future(producer.prepare_transaction())
            await asyncio.sleep(0)
            preparing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await preparing
            await producer.abort_transaction()
        finally:
            await producer.stop()

    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic(topic)
        stored = run(first(cluster))
        run(second(cluster, PreparedTxnState(str(stored))))
        assert committed(cluster.bootstrap_servers, topic, 3) == [b"1", b"2", b"3"]


def test_keep_prepared_txn_needs_a_transactional_id() -> None:
    async def starts() -> None:
        producer: AIOKafkaProducer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
        with pytest.raises(IllegalStateError, match=r"this producer has no transactional\.id"):
            await producer.start(keep_prepared_txn=True)

    run(starts())
