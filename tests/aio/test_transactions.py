"""Transactions of an AIOKafkaProducer: what is committed, fenced, cancelled; read back by KafkaConsumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pykclient import KafkaConsumer, OffsetAndMetadata, TopicPartition
from pykclient.aio import AIOKafkaProducer
from pykclient.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import run, until
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


def committed(servers: str, topic: str, count: int) -> list[bytes]:
    """Return the values that are committed in partition 0, once there are ``count``."""
    with KafkaConsumer[Any, Any](bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek_to_beginning()
        found: list[bytes] = []

        def complete() -> bool:
            found.extend(record.value or b"" for records in consumer.poll(200).values() for record in records)
            return len(found) >= count

        eventually(complete, 30, f"{count} committed records")
        return found


def in_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(main())


def test_aborted_records_are_invisible_to_read_committed(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
            await producer.begin_transaction()
            future = await producer.send(topic, b"1")
            await producer.commit_transaction()
            metadata = await future
            assert metadata is not None
            assert metadata.offset == 0
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"aborted")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"2")
                await producer.send_batch(_batch(producer, [b"3", b"4"]), topic, partition=0)

            async def fail() -> None:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted too")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            with pytest.raises(RecordTooLargeError):
                async with producer.transaction():
                    await producer.send(topic, bytes(3_000_000))
            with pytest.raises(IllegalStateError, match="there is no transaction"):
                await producer.send(topic, b"outside")

    in_loop(main)
    assert committed(servers, topic, 4) == [b"1", b"2", b"3", b"4"]


def _batch(producer: AIOKafkaProducer, values: list[bytes]) -> Any:
    batch = producer.create_batch()
    for value in values:
        batch.append(key=None, value=value, timestamp=None)
    return batch


def test_transaction_commits_consumer_offsets(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers
    tp = TopicPartition(topic, 0)

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic)
        async with producer, producer.transaction():
            await producer.send_offsets_to_transaction({tp: OffsetAndMetadata(3)}, topic)

    in_loop(main)
    with KafkaConsumer[Any, Any](bootstrap_servers=servers, group_id=topic) as consumer:
        assert consumer.committed(tp) == 3


def test_a_zombie_is_fenced(any_kafka: AnyKafka, topic: str) -> None:
    any_kafka.create_topic(topic)
    servers = any_kafka.bootstrap_servers

    async def main() -> None:
        zombie = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic)
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie")
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as successor:
            with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
                await zombie.commit_transaction()
            async with successor.transaction():
                await successor.send(topic, b"successor")
        await zombie.stop()

    in_loop(main)
    assert committed(servers, topic, 1) == [b"successor"]


def test_transaction_calls_need_a_transactional_id() -> None:
    async def main() -> None:
        with EmbeddedCluster() as cluster:
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for call in (producer.begin_transaction, producer.commit_transaction, producer.init_transactions):
                    with pytest.raises(IllegalStateError, match="You need to configure transaction_id"):
                        await call()
                with pytest.raises(IllegalStateError, match="You need to configure transaction_id"):
                    async with producer.transaction():
                        pass

    in_loop(main)


def test_cancelled_block_aborts_and_cancelled_commit_continues() -> None:
    async def main() -> None:
        with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="t") as producer:

                async def block() -> None:
                    async with producer.transaction():
                        await producer.send_and_wait("t", b"cancelled")
                        await asyncio.sleep(3600)

                task = asyncio.create_task(block())
                await until(lambda: bool(cluster.log(TopicPartition("t", 0))))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await producer.begin_transaction()
                await producer.send("t", b"committed")
                commit = asyncio.create_task(producer.commit_transaction())
                await asyncio.sleep(0)  # it has begun
                commit.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await commit
                with pytest.raises(IllegalStateError, match=r"Call commit_transaction\(\) again"):
                    await producer.begin_transaction()
                manager = producer._usable().components.transactions
                assert manager is not None
                pending = manager.begin_commit()
                await until(lambda: pending.completed)
                await producer.begin_transaction()  # the commit has succeeded, so nothing is left to ask for
                await producer.abort_transaction()
            assert await asyncio.to_thread(committed, cluster.bootstrap_servers, "t", 1) == [b"committed"]

    in_loop(main)


def test_timed_out_call_can_be_repeated() -> None:
    async def main() -> None:
        with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, transactional_id="t", request_timeout_ms=500
            ) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait("t", b"1")
                cluster.faults.drop_responses("EndTxn", times=1)
                with pytest.raises(KafkaTimeoutError, match=r"commit_transaction\(\) did not complete within 0\.1 s"):
                    await producer.commit_transaction(timeout=0.1)
                await producer.commit_transaction()
                async with producer.transaction():
                    await producer.send("t", b"2")
            assert await asyncio.to_thread(committed, cluster.bootstrap_servers, "t", 2) == [b"1", b"2"]

    in_loop(main)


def test_a_failed_record_is_raised_by_the_commit() -> None:
    async def main() -> None:
        with EmbeddedCluster() as cluster:
            cluster.create_topic("t", configs={"max.message.bytes": 2_000})
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="t") as producer:
                with pytest.raises(TransactionAbortableError, match="RecordTooLargeError"):
                    async with producer.transaction():
                        future = await producer.send("t", bytes(5_000))
                with pytest.raises(RecordTooLargeError):
                    await future
                async with producer.transaction():
                    await producer.send("t", b"small")

    in_loop(main)


def test_abort_in_a_callback_during_a_commit_says_that_the_commit_goes_on() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        servers = cluster.bootstrap_servers

        async def main() -> None:
            settings: dict[str, Any] = {"bootstrap_servers": servers, "transactional_id": "x", "linger_ms": 60_000}
            async with AIOKafkaProducer(**settings) as producer:
                aborts: list[asyncio.Task[None]] = []

                def abort(_: object) -> None:
                    aborts.append(asyncio.create_task(producer.abort_transaction()))

                hold = cluster.faults.hold(ApiKeys.END_TXN, times=1)
                await producer.begin_transaction()
                future = await producer.send("t", b"1")  # only the commit sends it
                future.add_done_callback(abort)
                committing = asyncio.create_task(producer.commit_transaction())
                await until(lambda: aborts and aborts[0].done())
                with pytest.raises(IllegalStateError, match=r"must wait: commit_transaction\(\) has begun"):
                    aborts[0].result()
                assert not committing.done()
                await until(lambda: hold.release() == 1)
                await committing
                async with producer.transaction():  # it goes on
                    await producer.send("t", b"2")

        run(main())
        assert committed(servers, "t", 2) == [b"1", b"2"]
