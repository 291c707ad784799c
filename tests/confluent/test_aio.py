"""confluent-kafka's clients for asyncio, on the embedded cluster."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from pykclient.confluent import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from pykclient.confluent.aio import AIOConsumer, AIOProducer, AsyncDeserializingConsumer, AsyncSerializingProducer
from pykclient.confluent.error import ConsumeError, KeySerializationError, ValueDeserializationError
from pykclient.confluent.serialization import IntegerDeserializer, StringSerializer
from pykclient.testing import EmbeddedCluster

_PATIENCE_S = 30.0
_NOWHERE = "127.0.0.1:1"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("t", 2)
        yield made


def _run(program: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await program()

    asyncio.run(bounded())


def _conf(cluster: EmbeddedCluster, **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, **settings}


def _group(cluster: EmbeddedCluster, **settings: Any) -> dict[str, Any]:
    return _conf(cluster, **{"group.id": "g", "auto.offset.reset": "earliest", **settings})


async def _fill(cluster: EmbeddedCluster, count: int, partition: int = 0) -> None:
    async with AIOProducer(_conf(cluster)) as producer:
        for number in range(count):
            await producer.produce("t", str(number), partition=partition)


async def _read(consumer: AIOConsumer, count: int) -> list[Message[bytes, bytes]]:
    found: list[Message[bytes, bytes]] = []
    while len(found) < count:
        message = await consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            found.append(message)
    return found


async def _forever(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        await call()


# --- producer --------------------------------------------------------------------------------------------------------


def test_future_has_the_delivered_message(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with AIOProducer(_conf(cluster)) as producer:
            future = await producer.produce("t", "v", "k", partition=1, headers={"h": "x"})
            message = await future
            assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 0)
            assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"x")])
            assert len(producer) == 0
            assert await producer.poll(0) == 1
            assert await producer.poll(0) == 0

    _run(program)


def test_deliveries_arrive_without_poll_in_the_order_of_each_partition(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with AIOProducer(_conf(cluster), batch_size=10) as producer:
            futures = [await producer.produce("t", str(number), partition=0) for number in range(100)]
            messages = await asyncio.gather(*futures)
            assert [message.offset() for message in messages] == list(range(100))

    _run(program)


def test_close_waits_for_pending_deliveries(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        producer = AIOProducer(_conf(cluster, **{"linger.ms": 60_000}))
        futures = [await producer.produce("t", str(number)) for number in range(10)]
        assert len(producer) == 10
        await asyncio.gather(producer.close(), producer.close())
        assert all(future.done() for future in futures)
        assert {future.result().error() for future in futures} == {None}
        assert len(producer) == 0
        with pytest.raises(RuntimeError, match="closed"):
            await producer.produce("t", "late")
        with pytest.raises(RuntimeError, match="closed"):
            await producer.poll(0)

    _run(program)


def test_cancelled_close_gives_up_what_is_left() -> None:
    async def program() -> None:
        producer = AIOProducer({"bootstrap.servers": _NOWHERE})
        future = await producer.produce("t", "v")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.close()
        with pytest.raises(KafkaException) as raised:
            await future
        assert raised.value.args[0].code() == KafkaError._PURGE_QUEUE
        await producer.close()

    _run(program)


def test_cancelled_delivery_does_not_disturb_the_others(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with AIOProducer(_conf(cluster)) as producer:
            first = await producer.produce("t", "1", partition=0)
            second = await producer.produce("t", "2", partition=0)
            first.cancel()
            assert (await second).offset() == 1

    _run(program)


def test_undeliverable_message_fails_its_future() -> None:
    async def program() -> None:
        async with AIOProducer({"bootstrap.servers": _NOWHERE, "message.timeout.ms": 100}) as producer:
            future = await producer.produce("t", "v")
            assert await producer.flush(0) == 1
            with pytest.raises(KafkaException) as raised:
                await future
            assert raised.value.args[0].code() == KafkaError._MSG_TIMED_OUT

    _run(program)


def test_message_that_is_refused_fails_its_future(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with AIOProducer(_conf(cluster)) as producer:
            future = await producer.produce("t", bytes(2_000_000))
            with pytest.raises(KafkaException) as raised:
                await future
            assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
            with pytest.raises(TypeError):
                await producer.produce(5, "v")  # type: ignore[arg-type]

    _run(program)


def test_full_queue_makes_produce_wait_for_room(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with AIOProducer(_conf(cluster, **{"queue.buffering.max.messages": 2})) as producer:
            futures = [await producer.produce("t", str(number), partition=0) for number in range(10)]
            assert [(await future).offset() for future in futures] == list(range(10))

    _run(program)


def test_full_queue_fails_the_future_when_the_time_of_messages_is_up() -> None:
    async def program() -> None:
        conf = {"bootstrap.servers": _NOWHERE, "queue.buffering.max.messages": 1, "message.timeout.ms": 300}
        async with AIOProducer(conf) as producer:
            futures = [await producer.produce("t", str(number)) for number in range(2)]
            found = await asyncio.gather(*futures, return_exceptions=True)
            assert {type(each) for each in found} == {KafkaException}

    _run(program)


def test_callbacks_of_the_producer_are_awaited_and_their_errors_are_raised() -> None:
    async def program() -> None:
        errors: list[KafkaError] = []

        async def error_cb(error: KafkaError) -> None:
            await asyncio.sleep(0)
            errors.append(error)
            raise LookupError("mine")

        producer = AIOProducer({"bootstrap.servers": _NOWHERE, "error_cb": error_cb, "message.timeout.ms": 500})
        with pytest.raises(LookupError, match="mine"):
            await _forever(lambda: producer.poll(0.2))
        assert errors[0].code() == KafkaError._TRANSPORT
        try:
            await producer.close()
        except LookupError:  # more errors were reported
            assert len(errors) > 1

    _run(program)


def test_purged_messages_fail_their_futures() -> None:
    async def program() -> None:
        async with AIOProducer({"bootstrap.servers": _NOWHERE}) as producer:
            future = await producer.produce("t", "v")
            await producer.purge()
            with pytest.raises(KafkaException) as raised:
                await future
            assert raised.value.args[0].code() == KafkaError._PURGE_QUEUE

    _run(program)


def test_transaction_of_an_asyncio_producer(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with AIOProducer(_conf(cluster, **{"transactional.id": "x"})) as producer:
            await producer.init_transactions()
            for value, end in (("aborted", producer.abort_transaction), ("kept", producer.commit_transaction)):
                await producer.begin_transaction()
                await producer.produce("t", value, partition=0)
                await end()
            assert "t" in (await producer.list_topics()).topics
            assert await producer.cluster_id(timeout=_PATIENCE_S)
        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"])
            assert [message.value() for message in await _read(consumer, 1)] == [b"kept"]

    _run(program)


# --- consumer --------------------------------------------------------------------------------------------------------


def test_callback_may_assign_and_read_other_offsets(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        await _fill(cluster, 5)
        seen: list[Any] = []

        async def on_assign(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                partition.offset = 3
            await consumer.assign([each for each in partitions if each.partition == 0])
            # Two calls at the same time are made one after the other, by the thread that polls.
            seen.extend(await asyncio.gather(consumer.assignment(), consumer.position(partitions)))

        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"], on_assign=on_assign)
            assert [message.value() for message in await _read(consumer, 2)] == [b"3", b"4"]
        assert len(seen) == 2

    _run(program)


def test_error_of_a_rebalance_callback_is_raised_by_poll(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async def on_assign(_consumer: AIOConsumer, _partitions: list[TopicPartition]) -> None:
            raise LookupError("mine")

        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"], on_assign=on_assign)
            with pytest.raises(LookupError, match="mine"):
                await _forever(lambda: consumer.poll(1.0))

    _run(program)


def test_close_runs_the_revoke_callback_which_may_commit(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        await _fill(cluster, 3)
        committed: list[Any] = []

        async def on_revoke(consumer: AIOConsumer, _partitions: list[TopicPartition]) -> None:
            committed.extend(await consumer.commit(asynchronous=False) or ())

        consumer = AIOConsumer(_group(cluster, **{"enable.auto.commit": False}))
        await consumer.subscribe(["t"], on_revoke=on_revoke)
        await _read(consumer, 3)
        await consumer.close()
        assert [(each.partition, each.offset) for each in committed] == [(0, 3)]
        await consumer.close()
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await consumer.poll(0)

    _run(program)


def test_callback_of_close_may_close_the_consumer(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        consumer = AIOConsumer(_group(cluster))

        async def closes(consumer: AIOConsumer, _partitions: list[TopicPartition]) -> None:
            await consumer.close()

        await consumer.subscribe(["t"], on_revoke=closes)
        while not await consumer.assignment():
            await consumer.poll(0.1)
        await consumer.close()
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await consumer.poll(0)

    _run(program)


def test_close_that_a_callback_of_poll_is_refused_leaves_a_consumer_to_close(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        consumer = AIOConsumer(_group(cluster))
        refused: list[KafkaException] = []

        async def closes(consumer: AIOConsumer, _partitions: list[TopicPartition]) -> None:
            try:
                await consumer.close()
            except KafkaException as error:
                refused.append(error)

        await consumer.subscribe(["t"], on_assign=closes)
        while not refused:
            await consumer.poll(0.1)
        assert len(await consumer.assignment()) == 2
        await consumer.close()
        assert not [thread for thread in threading.enumerate() if "heartbeat" in thread.name]

    _run(program)


def test_cancelled_poll_loses_no_message(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        await _fill(cluster, 20)
        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"])
            found = [message.value() for message in await _read(consumer, 1)]
            cancelled = 0
            while len(found) < 20:
                poll = asyncio.create_task(consumer.poll(_PATIENCE_S))
                for _ in range(cancelled % 3):
                    await asyncio.sleep(0)
                poll.cancel()
                try:
                    found.append((await poll).value())
                except asyncio.CancelledError:
                    cancelled += 1
                    found.append((await consumer.poll(_PATIENCE_S)).value())
            assert found == [str(number).encode() for number in range(20)]
            assert cancelled

    _run(program)


def test_cancelled_poll_ends_and_lets_others_work(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"])
            poll = asyncio.create_task(consumer.poll(-1))
            await asyncio.sleep(0)  # the call begins
            poll.cancel()
            while not await consumer.assignment():
                await consumer.poll(0.1)

    _run(program)


def test_given_back_messages_are_not_committed(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        await _fill(cluster, 5)
        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"])
            (first,) = await _read(consumer, 1)
            assert first.value() == b"0"
            poll = asyncio.create_task(consumer.consume(4, 1.0))
            await asyncio.sleep(0)  # the call begins
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"])
            assert [each.value() for each in await _read(consumer, 4)] == [b"1", b"2", b"3", b"4"]

    _run(program)


def test_calls_of_several_tasks_take_turns(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        await _fill(cluster, 10)
        async with AIOConsumer(_group(cluster)) as consumer:
            await consumer.subscribe(["t"])
            found: list[bytes] = []

            async def read() -> None:
                while len(found) < 10:
                    message = await consumer.poll(0.1)
                    if message is not None:
                        found.append(message.value())

            await asyncio.gather(read(), read(), consumer.position([TopicPartition("t", 0)]))
            assert sorted(found) == [str(number).encode() for number in range(10)]

    _run(program)


def test_commit_and_statistics_callbacks_are_awaited(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        await _fill(cluster, 1)
        commits: list[Any] = []
        pages: list[str] = []

        async def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            commits.append((error, [each.offset for each in partitions]))

        conf = _group(cluster, **{"stats_cb": pages.append, "statistics.interval.ms": 100, "on_commit": on_commit})
        async with AIOConsumer(conf) as consumer:
            await consumer.subscribe(["t"])
            (message,) = await _read(consumer, 1)
            await consumer.commit(message=message)
            while not commits or not pages:
                await consumer.poll(0.1)
        assert commits[0] == (None, [1])

    _run(program)


def test_wrong_number_of_workers_is_refused() -> None:
    async def program() -> None:
        with pytest.raises(ValueError, match="max_workers must be at least 1"):
            AIOConsumer({"bootstrap.servers": _NOWHERE, "group.id": "g"}, max_workers=0)

    _run(program)


# --- clients that convert --------------------------------------------------------------------------------------------


class _Builder:
    """Builds a serializer that records that it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        assert not is_key
        return self, {name: value for name, value in conf.items() if name != "mine"}

    async def __call__(self, value: Any, _context: Any) -> bytes:
        await asyncio.sleep(0)
        return int(value).to_bytes(4, "big")

    async def aclose(self) -> None:
        self.is_closed = True


def test_asynchronous_serializers_convert_keys_and_values(cluster: EmbeddedCluster) -> None:
    async def program() -> None:
        builder = _Builder()
        conf = _conf(cluster, mine=1, **{"key.serializer": StringSerializer(), "value.serializer.builder": builder})
        producer: AsyncSerializingProducer[str, int] = await AsyncSerializingProducer(conf)
        message = await (await producer.produce("t", "k", 7, partition=0))
        assert (message.key(), message.value()) == (b"k", b"\0\0\0\7")
        with pytest.raises(KeySerializationError):
            await producer.produce("t", 5)  # type: ignore[arg-type]
        await producer.close()
        assert builder.is_closed
        with pytest.raises(RuntimeError, match="closed"):
            await producer.produce("t", "k", 7)

        async def doubled(value: bytes, context: Any) -> Any:
            return 2 * IntegerDeserializer()(value, context)

        settings = _group(cluster, **{"value.deserializer": doubled, "enable.partition.eof": True})
        consumer: AsyncDeserializingConsumer[bytes, int] = await AsyncDeserializingConsumer(settings)
        await consumer.assign([TopicPartition("t", 0, 0)])
        (found,) = await consumer.consume(1, _PATIENCE_S)
        assert (found.key(), found.deserialized_value()) == (b"k", 14)
        with pytest.raises(ConsumeError):
            await consumer.poll(_PATIENCE_S)
        await _fill(cluster, 1)  # no int of four bytes
        with pytest.raises(ValueDeserializationError) as raised:
            await consumer.poll(_PATIENCE_S)
        assert raised.value.kafka_message.value() == b"0"
        await consumer.close()

    _run(program)


def test_failed_start_closes_what_was_built() -> None:
    async def program() -> None:
        builder = _Builder()
        with pytest.raises(KafkaException):
            await AsyncSerializingProducer({"no.such.property": 1, "value.serializer.builder": builder})
        assert builder.is_closed
        with pytest.raises(ValueError, match="Cannot configure both"):
            await AsyncDeserializingConsumer({"key.deserializer": builder, "key.deserializer.builder": builder})

    _run(program)


def test_calls_that_are_passed_on_show_their_arguments() -> None:
    for face, client in ((AIOConsumer, Consumer), (AIOProducer, Producer)):
        for name, method in vars(face).items():
            if name.startswith("_") or not inspect.iscoroutinefunction(method) or not hasattr(client, name):
                continue
            if name not in {"subscribe", "poll", "produce", "consume", "close"}:  # these have more to do
                shown, expected = inspect.signature(method), inspect.signature(getattr(client, name))
                assert list(shown.parameters) == list(expected.parameters), name
    assert "offsets" in inspect.signature(AIOConsumer.commit).parameters
    assert inspect.iscoroutinefunction(AIOConsumer.seek)
