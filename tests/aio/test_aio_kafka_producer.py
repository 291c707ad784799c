"""AIOKafkaProducer on an embedded cluster and, where the fixture says so, on real Kafka."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pykclient
from pykclient import AcknowledgedBatch, ProducerInterceptor, ProducerRecord, implementation
from pykclient.aio import AIOKafkaProducer, AsyncProducer, RecordMetadata
from pykclient.aio.errors import MessageSizeTooLargeError, ProducerClosed
from pykclient.aio.structs import CREATE_TIME
from pykclient.errors import (
    BufferExhaustedError,
    DisconnectError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from pykclient.producer.partitioner import Partitioner
from pykclient.protocol.api_keys import ApiKeys
from pykclient.testing import EmbeddedCluster
from pykclient.types import Header, Headers, TopicPartition
from tests.aio.loops import LOOPS, run, some_iterations, until
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

_numbers = itertools.count()


def new_topic(cluster: EmbeddedCluster, partitions: int = 1, **settings: Any) -> str:
    name = f"aio-{next(_numbers)}"
    cluster.create_topic(name, partitions, **settings)
    return name


def values(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.log(TopicPartition(topic, partition))]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"auto.create.topics.enable": False}) as made:
        yield made


@asynccontextmanager
async def started(cluster: EmbeddedCluster, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        yield producer


# --- sending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_sent_records_arrive_in_order(cluster: EmbeddedCluster, loop: str) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        before = set(threading.enumerate())
        async with started(cluster) as producer:
            metadata = await producer.send_and_wait(
                topic, b"first", key=b"key", timestamp_ms=123, headers=[("name", b"1"), ("none", None)]
            )
            assert metadata == RecordMetadata(topic, 0, TopicPartition(topic, 0), 0, 123, CREATE_TIME)
            futures = [await producer.send(topic, b"%d" % number) for number in range(5_000)]
            assert all(isinstance(future, asyncio.Future) for future in futures)
            assert set(threading.enumerate()) == before  # no thread of ours, none of a pool
            offsets = [(await future).offset for future in futures]
            assert offsets == list(range(1, 5_001))
        assert set(threading.enumerate()) == before

    run(main(), loop)
    first = cluster.log(TopicPartition(topic, 0))[0]
    assert (first.key, first.timestamp, list(first.headers)) == (b"key", 123, [("name", b"1"), ("none", None)])
    assert values(cluster, topic) == [b"first", *(b"%d" % number for number in range(5_000))]


def test_records_of_one_loop_iteration_share_a_batch(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(cluster) as producer:
            await producer.send_and_wait(topic, b"warm")
            before = len(cluster.requests_of(ApiKeys.PRODUCE))
            await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(500)))
            assert len(cluster.requests_of(ApiKeys.PRODUCE)) - before <= 2

    run(main())


def test_awaited_send_makes_few_calls(cluster: EmbeddedCluster) -> None:
    """Only calls of this package's Python functions count: those of asyncio depend on its version."""
    topic = new_topic(cluster)
    package = str(Path(pykclient.__file__).parent)
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(package)

    async def main() -> int:
        nonlocal calls
        async with started(cluster, linger_ms=0) as producer:
            for _ in range(5):
                await producer.send_and_wait(topic, b"warm")
            counts = []
            for _ in range(20):
                calls = 0
                sys.setprofile(note)
                try:
                    await producer.send_and_wait(topic, b"value")
                finally:
                    sys.setprofile(None)
                counts.append(calls)
            return min(counts)  # some cycles publish metrics as well

    assert run(main()) <= (104 if implementation.NAME == "c" else 222)


def test_awaited_send_takes_one_loop_iteration(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    iterations = 0

    class Loop(asyncio.SelectorEventLoop):
        def _run_once(self) -> None:
            nonlocal iterations
            iterations += 1
            super()._run_once()  # type: ignore[misc]

    async def main() -> int:
        async with started(cluster, linger_ms=0) as producer:
            counts = []
            for _ in range(20):
                before = iterations
                await producer.send_and_wait(topic, b"value")
                counts.append(iterations - before)
            return min(counts)  # timers take iterations, too

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(asyncio.wait_for(main(), 60)) == 1


def test_single_record_is_sent_in_the_same_loop_iteration(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def requests_of_many(producer: AIOKafkaProducer) -> tuple[int, int]:
        """Send 500 records; return the number of requests in flight before the loop went on, and of all requests."""
        await producer.send_and_wait(topic, b"warm")
        client = producer._producer.components.client  # type: ignore[union-attr]
        before = len(cluster.requests_of(ApiKeys.PRODUCE))
        waits = [asyncio.ensure_future(producer.send_and_wait(topic, b"%d" % number)) for number in range(500)]
        in_flight: list[int] = []
        asyncio.get_running_loop().call_soon(lambda: in_flight.append(client.in_flight_request_count()))
        await asyncio.gather(*waits)
        return in_flight[0], len(cluster.requests_of(ApiKeys.PRODUCE)) - before

    async def main() -> int:
        async with started(cluster, linger_ms=0) as producer:
            for count in range(1, 21):
                # On a busy machine the loop may be late, and is let run first; and the rest may be split.
                in_flight, requests = await requests_of_many(producer)
                if in_flight == 1 and requests <= 10:  # one with the first record; the others go together
                    return count
            raise AssertionError(
                f"{in_flight} requests in flight, {requests} for 500 records, in the last of 20 attempts"
            )

    attempts = run(main())
    assert len(values(cluster, topic)) == 501 * attempts


def test_partition_is_explicit_or_chosen_by_key(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, 5)

    async def main() -> None:
        async with started(cluster) as producer:
            assert await producer.partitions_for(topic) == {0, 1, 2, 3, 4}
            for partition in range(5):
                metadata = await producer.send_and_wait(topic, b"here", partition=partition)
                assert metadata is not None
                assert metadata.partition == partition
            chosen = {(await producer.send_and_wait(topic, b"", key=b"k")).partition for _ in range(3)}
            assert len(chosen) == 1

    run(main())


def test_serializers_may_be_functions_objects_and_coroutines(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def slowly(value: Any) -> bytes:
        await asyncio.sleep(0.001)
        return json.dumps(value).encode()

    def key(text: str) -> bytes:
        return text.upper().encode()

    async def main() -> None:
        async with started(cluster, value_serializer=slowly, key_serializer=key) as producer:
            await asyncio.gather(*(producer.send_and_wait(topic, {"n": number}, key="k") for number in range(10)))
        async with started(cluster, value_serializer="pykclient.serialization.JsonSerializer") as producer:
            await producer.send_and_wait(topic, {"n": 10})

    run(main())
    numbers = [json.loads(value or b"")["n"] for value in values(cluster, topic)]
    assert sorted(numbers) == list(range(11))
    assert cluster.log(TopicPartition(topic, 0))[0].key == b"K"


def test_serializer_exceptions_become_serialization_errors(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def broken(value: Any) -> bytes:
        await asyncio.sleep(0)
        raise KeyError(value)

    async def main() -> None:
        async with started(cluster, key_serializer=broken) as producer:
            with pytest.raises(SerializationError, match=r"key .* cannot be serialized") as caught:
                await producer.send(topic, b"", key="missing")
            assert isinstance(caught.value, KeyError)
        async with started(cluster) as producer:
            with pytest.raises(TypeError, match="is a str, and there is no value_serializer") as without:
                await producer.send(topic, "text")
            assert isinstance(without.value, SerializationError)
        async with started(cluster, value_serializer=lambda value: 42) as producer:
            with pytest.raises(SerializationError, match="returned int instead of bytes"):
                await producer.send(topic, b"")

    run(main())
    assert values(cluster, topic) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": 7},
        {"partition": -1},
        {"partition": "0"},
        {"timestamp_ms": 1.5},
        {"timestamp_ms": -1},
        {"headers": [("name",)]},
        {"headers": "text"},
    ],
)
def test_arguments_are_checked_before_anything_is_sent(cluster: EmbeddedCluster, arguments: dict[str, Any]) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(cluster) as producer:
            with pytest.raises(IllegalArgumentError):
                await producer.send(**{"topic": topic, "value": b"v", **arguments})

    run(main())
    assert values(cluster, topic) == []


def test_send_with_acks_0_returns_no_metadata(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(cluster, acks=0) as producer:
            assert await producer.send_and_wait(topic, b"1") is None
            futures = [await producer.send(topic, b"2") for _ in range(2)]
            await asyncio.wait(futures)
            assert [future.result() for future in futures] == [None, None]

    run(main())
    cluster.wait_for(lambda: len(values(cluster, topic)) == 3)


def test_interceptors_see_every_record(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    acknowledged: list[tuple[int, Exception | None, Headers]] = []

    class Interceptor(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            return ProducerRecord(record.topic, (record.value or b"") + b"!", headers=[("by", b"interceptor")])

        def on_acknowledgement(self, metadata: Any, error: Exception | None, headers: Headers) -> None:
            acknowledged.append((metadata.offset, error, headers))

    async def main() -> None:
        async with started(cluster, interceptor_classes=[Interceptor()], max_request_size=1_000) as producer:
            await producer.send_and_wait(topic, b"seen")
            with pytest.raises(RecordTooLargeError):
                await producer.send(topic, bytes(2_000))

    run(main())
    assert values(cluster, topic) == [b"seen!"]
    (offset, none, headers), (no_offset, error, _) = acknowledged
    assert (offset, none, list(headers)) == (0, None, [("by", b"interceptor")])
    assert no_offset == -1
    assert isinstance(error, RecordTooLargeError)


def test_custom_partitioner_chooses_the_partition(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, 3)
    seen: list[tuple[Any, ...]] = []

    def last(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        seen.append((key, all_partitions, available))
        return all_partitions[-1]

    async def main() -> None:
        async with started(cluster, partitioner=last) as producer:
            metadata = await producer.send_and_wait(topic, b"v", key=b"k")
            assert metadata is not None
            assert metadata.partition == 2

    run(main())
    assert seen == [(b"k", [0, 1, 2], [0, 1, 2])]


def test_broker_errors_are_set_on_futures(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, configs={"max.message.bytes": 2_000})

    async def main() -> None:
        async with started(cluster, linger_ms=5) as producer:
            small = await producer.send(topic, b"small")
            await small
            future = await producer.send(topic, bytes(5_000))
            with pytest.raises(RecordTooLargeError):
                await future
            with pytest.raises(MessageSizeTooLargeError):  # found here, so the call itself raises
                await producer.send(topic, bytes(2_000_000))

    run(main())
    assert values(cluster, topic) == [b"small"]


def test_split_batch_completes_every_future(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, configs={"max.message.bytes": 3_000})

    async def main() -> None:
        async with started(cluster, max_batch_size=20_000, linger_ms=100) as producer:
            futures = [await producer.send(topic, b"%03d" % number * 100) for number in range(40)]
            cancelled = futures.pop(7)
            cancelled.cancel()
            offsets = [metadata.offset for metadata in await asyncio.gather(*futures)]
            assert offsets == [*range(7), *range(8, 40)]

    run(main())
    assert len(values(cluster, topic)) == 40  # cancelling a future does not stop the record


# --- missing topics, missing brokers ----------------------------------------------------------------------------------


def test_sends_wait_for_a_topic_until_max_block_ms(cluster: EmbeddedCluster) -> None:
    topic = f"aio-late-{next(_numbers)}"

    async def main() -> None:
        async with started(cluster, max_block_ms=2_000) as producer:
            with pytest.raises(KafkaTimeoutError, match=f"topic '{topic}' not in metadata after 2.0 s") as caught:
                await producer.send(topic, b"too early")
            assert isinstance(caught.value, UnknownTopicOrPartitionError)  # as programs for aiokafka expect
            with pytest.raises(KafkaTimeoutError):
                await producer.partitions_for(topic)
        async with started(cluster) as producer:
            waiting = [asyncio.ensure_future(producer.send_and_wait(topic, b"%d" % number)) for number in range(20)]
            await until(lambda: any(producer._waits.waiting))
            cluster.create_topic(topic, 1)
            await asyncio.gather(*waiting)

    run(main())
    assert sorted(values(cluster, topic)) == sorted(b"%d" % number for number in range(20))  # type: ignore[type-var]


def test_send_to_missing_partition_times_out(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(cluster, max_block_ms=2_000) as producer:
            with pytest.raises(KafkaTimeoutError, match=r"partition 5 of topic .* not in metadata .* it has 1"):
                await producer.send(topic, b"v", partition=5)

    run(main())


def test_start_fails_without_a_broker() -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
        for _ in range(2):  # it can be tried again
            with pytest.raises(DisconnectError, match=r"Unable to bootstrap from 127\.0\.0\.1:1: .*refused"):
                await producer.start()
        await producer.stop()

    run(main())


def test_start_ends_when_the_broker_does_not_answer(cluster: EmbeddedCluster) -> None:
    hung = cluster.faults.hold(ApiKeys.API_VERSIONS)

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=3_000)
        with pytest.raises(KafkaTimeoutError, match="no bootstrap server has answered"):
            await producer.start()
        task = asyncio.ensure_future(producer.start())
        await some_iterations(50)
        with pytest.raises(IllegalStateError, match="started already"):
            await producer.start()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        hung.remove()
        hung.release()
        await producer.start()
        await producer.stop()

    run(main())


def test_no_record_is_lost_while_a_broker_is_killed_and_restarted() -> None:
    with EmbeddedCluster(3, config={"default.replication.factor": 3}) as own:
        own.create_topic("t", 3)
        bootstrap_servers = own.bootstrap_servers

        async def main() -> None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
                futures = [await producer.send("t", b"%d" % number, partition=number % 3) for number in range(300)]
                own.kill(own.broker_ids[0])
                futures += [await producer.send("t", b"%d" % n, partition=n % 3) for n in range(300, 600)]
                await producer.flush()
                own.restart(own.broker_ids[0])
                futures += [await producer.send("t", b"%d" % n, partition=n % 3) for n in range(600, 900)]
                await asyncio.gather(*futures)

        run(main())
        for partition in range(3):
            expected = [b"%d" % number for number in range(partition, 900, 3)]
            assert values(own, "t", partition) == expected  # each once, in order


# --- memory -----------------------------------------------------------------------------------------------------------


def test_full_buffer_blocks_senders_but_not_the_loop(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.PRODUCE)

    async def main() -> None:
        async with started(cluster, buffer_memory=100_000, max_batch_size=10_000) as producer:
            sent: list[int] = []

            async def send(number: int) -> None:
                await producer.send(topic, bytes(5_000) + b"%d" % number)
                sent.append(number)

            tasks = [asyncio.ensure_future(send(number)) for number in range(100)]
            await until(lambda: producer._memory._line)
            count = len(sent)
            assert 5 <= count < 30
            await asyncio.sleep(0.05)
            assert len(sent) == count
            hold.remove()
            hold.release()
            await asyncio.gather(*tasks)
            assert sent == list(range(100))  # first come, first served
            await producer.flush()
            assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 100_000

    run(main())
    assert [value[5_000:] for value in values(cluster, topic) if value] == [b"%d" % number for number in range(100)]


def test_send_times_out_if_no_memory_becomes_free(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.PRODUCE)

    async def main() -> None:
        async with started(cluster, buffer_memory=50_000, max_batch_size=10_000, max_block_ms=2_000) as producer:
            futures: list[Any] = []

            async def send_without_end() -> None:
                while True:
                    futures.append(await producer.send(topic, bytes(5_000)))

            with pytest.raises(BufferExhaustedError, match=r"became free within 2\.0 s"):
                await send_without_end()
            hold.remove()
            hold.release()
            await asyncio.gather(*futures)
            await producer.send_and_wait(topic, bytes(5_000))

    run(main())


class Asked(Partitioner):
    """Partition 0, and the records for which it was asked, and told of a new batch."""

    def __init__(self) -> None:
        self.choices: list[int] = []
        self.new_batches: list[int] = []

    def partition(
        self, _topic: str, _key: Any, _key_bytes: bytes | None, _value: Any, value_bytes: bytes | None, _cluster: Any
    ) -> int:
        assert value_bytes is not None
        self.choices.append(int(value_bytes[5_000:]))
        return 0


class AskedAgain(Asked):
    def on_new_batch(self, _topic: str, _cluster: Any, _previous: int) -> None:
        self.new_batches.append(self.choices[-1])


@pytest.mark.parametrize("kind", [Asked, AskedAgain])
def test_partitioner_is_not_asked_again_after_a_wait_for_memory(cluster: EmbeddedCluster, kind: type[Asked]) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.PRODUCE)
    partitioner = kind()
    records = [bytes(5_000) + b"%d" % number for number in range(30)]

    async def main() -> None:
        settings: dict[str, Any] = {"buffer_memory": 50_000, "max_batch_size": 10_000, "partitioner": partitioner}
        async with started(cluster, **settings) as producer:
            tasks = [asyncio.ensure_future(producer.send(topic, value)) for value in records]
            await until(lambda: len(producer._memory._line) > 10)
            hold.remove()
            hold.release()
            await asyncio.gather(*tasks)

    run(main())
    assert values(cluster, topic) == records
    told = partitioner.new_batches
    assert len(told) == len(set(told))
    assert sorted(partitioner.choices) == sorted([*range(30), *told])


def test_endless_sender_does_not_stall_the_loop(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(cluster) as producer:
            await producer.send_and_wait(topic, b"warm")
            iterations = 0

            async def count() -> None:
                nonlocal iterations
                while True:
                    iterations += 1
                    await asyncio.sleep(0)

            counting = asyncio.ensure_future(count())
            await some_iterations()
            before = iterations
            for _ in range(50_000):
                await producer.send(topic, bytes(100))
            assert iterations > before + 3
            counting.cancel()
            await producer.flush()

    run(main())


# --- batches and columns ----------------------------------------------------------------------------------------------


def test_application_can_fill_and_send_batches(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(cluster, max_batch_size=10_000, linger_ms=20) as producer:
            before = await producer.send(topic, b"before", partition=0)
            batch = producer.create_batch()
            count = 0
            while batch.append(key=b"key", value=b"value", timestamp=None, headers=[("h", b"1")]) is not None:
                count += 1
            assert batch.closed()
            assert batch.record_count() == count > 100
            assert 9_000 < batch.size() <= 10_000
            metadata = await (await producer.send_batch(batch, topic, partition=0))
            assert metadata is not None
            assert metadata.offset == 1
            assert (await before).offset == 0
            assert len(values(cluster, topic)) == count + 1
            large = producer.create_batch()
            assert large.append(key=None, value=bytes(10_001), timestamp=5) is not None
            assert large.append(key=None, value=b"no room", timestamp=None) is None
            metadata = await (await producer.send_batch(large, topic, partition=0))
            assert metadata is not None
            assert (metadata.offset, metadata.timestamp) == (count + 1, 5)
            assert await (await producer.send_batch(producer.create_batch(), topic, partition=0)) is None
            anywhere = producer.create_batch()
            anywhere.append(key=None, value=b"anywhere", timestamp=None)
            metadata = await (await producer.send_batch(anywhere, topic, partition=None))
            assert metadata.partition in await producer.partitions_for(topic)
            with pytest.raises(IllegalArgumentError, match="create_batch"):
                await producer.send_batch([b"v"], topic, partition=0)  # type: ignore[arg-type]
        with pytest.raises(ProducerClosed):
            await producer.send_batch(batch, topic, partition=0)

    run(main())
    assert cluster.log(TopicPartition(topic, 0))[1].headers == [("h", b"1")]


def test_batches_use_the_serializers(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(
            cluster, key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode()
        ) as producer:
            batch = producer.create_batch()
            batch.append(key="k", value={"a": 1}, timestamp=None)
            batch.append(key="k", value={"a": 2}, timestamp=None)
            await (await producer.send_batch(batch, topic, partition=0))

    run(main())
    assert values(cluster, topic) == [b'{"a": 1}', b'{"a": 2}']


def test_send_columns_writes_all_rows_with_little_memory(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, 3)

    async def main() -> None:
        # Little memory, so that the call has to wait for it.
        async with started(cluster, buffer_memory=300_000, linger_ms=5) as producer:
            rows = [b"%05d" % number * 20 for number in range(10_000)]
            future = await producer.send_columns(topic, rows, key=[b"%d" % (number % 50) for number in range(10_000)])
            metadata = await future
            assert metadata.num_rows == 10_000
            assert not future.errors
            hold = cluster.faults.hold(ApiKeys.PRODUCE)
            future = await producer.send_columns(topic, rows[:100])
            with pytest.raises(IllegalStateError, match="await the future instead"):
                future.get(1)
            hold.remove()
            hold.release()
            with pytest.raises(IllegalArgumentError):
                await producer.send_columns(topic, 7)
            await producer.flush()

    run(main())
    assert sum(len(values(cluster, topic, partition)) for partition in range(3)) == 10_100


def test_send_columns_to_missing_partition_times_out(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, 2)

    async def main() -> None:
        async with started(cluster, max_block_ms=2_000) as producer:
            with pytest.raises(KafkaTimeoutError, match="partition 5 of topic"):
                await producer.send_columns(topic, [b"v"] * 3, partition=[0, 5, 1])
            await (await producer.send_columns(topic, [b"v"] * 2, partition=[0, 1]))

    run(main())
    assert values(cluster, topic, 0) == values(cluster, topic, 1) == [b"v"]


@pytest.mark.parametrize("sent_before", [False, True])
def test_send_columns_times_out_if_no_memory_becomes_free(cluster: EmbeddedCluster, sent_before: bool) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.PRODUCE)

    async def main() -> None:
        async with started(cluster, buffer_memory=100_000, max_batch_size=20_000, max_block_ms=2_000) as producer:
            await producer.partitions_for(topic)
            rows = [bytes(1_000)] * 500
            taken = []
            if not sent_before:
                taken = [await producer.send(topic, bytes(19_000)) for _ in range(5)]
                with pytest.raises(BufferExhaustedError):
                    await producer.send_columns(topic, rows)
            else:
                future = await producer.send_columns(topic, rows)  # as many rows as there is memory for
            hold.remove()
            hold.release()
            await asyncio.gather(*taken)
            if sent_before:
                with pytest.raises(BufferExhaustedError):
                    await future
                written = sum(len(each.rows) for each in future.slices if each.error is None)
                assert 0 < written < 500
                assert len(values(cluster, topic)) == written

    run(main())


# --- the life of a producer -------------------------------------------------------------------------------------------


def test_flush_waits_for_all_that_was_sent(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        async with started(cluster, linger_ms=60_000) as producer:
            await producer.flush()  # nothing to wait for
            futures = [await producer.send(topic, b"v") for _ in range(100)]
            assert not any(future.done() for future in futures)
            await producer.flush()
            assert all(future.done() for future in futures)

    run(main())


def test_stop_sends_buffered_records(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)

    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
        await producer.start()
        future = await producer.send(topic, b"left")
        await asyncio.gather(producer.stop(), producer.stop())
        await producer.stop()
        assert (await future).offset == 0
        for call in (producer.send(topic, b""), producer.flush(), producer.partitions_for(topic), producer.start()):
            with pytest.raises(ProducerClosed):
                await call

    run(main())
    assert values(cluster, topic) == [b"left"]


def test_stop_ends_within_its_timeout(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.PRODUCE)

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        future = await producer.send(topic, b"left")
        await producer.stop(timeout=0.1)
        with pytest.raises(KafkaError, match="closed by force"):
            await future

    run(main())
    hold.remove()
    hold.release()


def test_close_fails_sends_that_wait_for_memory(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.PRODUCE)

    async def main() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, buffer_memory=30_000, max_batch_size=10_000
        )
        await producer.start()
        missing = asyncio.ensure_future(producer.send("aio-nowhere", b"v"))
        full = [asyncio.ensure_future(producer.send(topic, bytes(9_000))) for _ in range(10)]
        await until(lambda: producer._memory._line and producer._waits.waiting)
        hold.remove()
        hold.release()
        await producer.stop()
        with pytest.raises(ProducerClosed):
            await missing
        outcomes = await asyncio.gather(*full, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.Future, ProducerClosed}
        await asyncio.gather(*(outcome for outcome in outcomes if isinstance(outcome, asyncio.Future)))

    run(main())


def test_stop_ends_a_start_in_progress(cluster: EmbeddedCluster) -> None:
    hung = cluster.faults.hold(ApiKeys.METADATA)

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        starting = asyncio.ensure_future(producer.start())
        await until(lambda: hung.held)
        await producer.stop()
        hung.remove()
        hung.release()
        with pytest.raises(ProducerClosed):
            await starting

    run(main())


def test_common_headers_are_added_and_batches_intercepted_once(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    batches: list[AcknowledgedBatch] = []
    trace = (("trace", b"1"),)

    class Common(ProducerInterceptor):
        def common_headers(self) -> tuple[Header, ...]:
            return trace

        def on_batch_acknowledgement(self, batch: AcknowledgedBatch) -> None:
            batches.append(batch)

    async def main() -> None:
        async with started(cluster, interceptor_classes=[Common()], linger_ms=60_000) as producer:
            futures = [await producer.send(topic, b"%d" % number, partition=0) for number in range(5)]
            futures.append(await producer.send(topic, b"5", partition=0, headers=[("app", b"x")]))
            await producer.flush()
            assert [metadata.offset for future in futures if (metadata := future.result())] == list(range(6))

    run(main())
    log = cluster.log(TopicPartition(topic, 0))
    assert [tuple(record.headers) for record in log] == [trace] * 5 + [(("app", b"x"), *trace)]
    (batch,) = batches
    assert (batch.record_count, batch.metadata.offset, batch.error) == (6, 0, None)
    assert list(batch.headers) == [trace, (("app", b"x"), *trace)]


def test_interceptors_see_memory_timeouts(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster)
    hold = cluster.faults.hold(ApiKeys.PRODUCE)
    errors: list[Exception | None] = []

    class Interceptor(ProducerInterceptor):
        def on_acknowledgement(self, metadata: Any, error: Exception | None, headers: Headers) -> None:
            assert metadata.topic == topic
            assert list(headers) == []
            errors.append(error)

    async def main() -> None:
        async with started(
            cluster,
            interceptor_classes=[Interceptor()],
            buffer_memory=20_000,
            max_batch_size=20_000,
            max_block_ms=2_000,
        ) as producer:
            await producer.send(topic, bytes(15_000))
            with pytest.raises(BufferExhaustedError):
                await producer.send(topic, bytes(15_000))
            assert [type(error) for error in errors] == [BufferExhaustedError]
            hold.remove()
            hold.release()

    run(main())
    assert [type(error) for error in errors] == [BufferExhaustedError, type(None)]


def test_a_producer_sends_only_between_start_and_stop(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(IllegalStateError, match="has not been started"):
            await producer.send("t", b"v")
        await producer.start()
        with pytest.raises(IllegalStateError, match="started already"):
            await producer.start()
        await producer.stop()
        never = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await never.stop()
        with pytest.raises(ProducerClosed):
            await never.start()

    run(main())


def test_client_cluster_shows_brokers_and_partitions(cluster: EmbeddedCluster) -> None:
    topic = new_topic(cluster, 2)
    hold = None

    async def main() -> None:
        nonlocal hold
        async with started(cluster, max_block_ms=2_000) as producer:
            assert producer.bootstrap_connected()
            view = producer.client.cluster
            (broker,) = view.brokers()
            assert f"{broker.host}:{broker.port}" == cluster.bootstrap_servers
            assert view.broker_metadata(broker.id) == broker
            assert view.broker_metadata(77) is None
            assert view.partitions_for_topic(topic) is view.available_partitions_for_topic(topic) is None
            await producer.send_and_wait(topic, b"v")
            assert view.topics() == {topic}
            assert view.partitions_for_topic(topic) == view.available_partitions_for_topic(topic) == {0, 1}
            assert await producer.client.force_metadata_update()
            hold = cluster.faults.hold(ApiKeys.METADATA)
            assert not await producer.client.force_metadata_update()
            hold.remove()
            hold.release()
        with pytest.raises(ProducerClosed):
            producer.client.cluster.brokers()

    run(main())


def test_all_kinds_of_send_write_every_record(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(f"aio-{next(_numbers)}", partitions=3)

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers, compression_type="lz4") as producer:
            futures = [await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7)) for number in range(10_000)]
            await asyncio.gather(*futures)
            await asyncio.gather(*(producer.send_and_wait(topic, b"x") for _ in range(500)))
            batch = producer.create_batch()
            batch.append(key=None, value=b"of a batch", timestamp=None)
            await (await producer.send_batch(batch, topic, partition=2))
            await (await producer.send_columns(topic, [b"row"] * 1_000))

    run(main())
    read = read_with_aiokafka(any_kafka.bootstrap_servers, topic, 11_501)
    assert sorted(value for value in read if value.isdigit()) == sorted(b"%d" % number for number in range(10_000))
    assert (read.count(b"x"), read.count(b"of a batch"), read.count(b"row")) == (500, 1, 1_000)


def read_with_aiokafka(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    """Return the values in a topic, as another client reads them."""
    from aiokafka import AIOKafkaConsumer

    async def main() -> list[bytes]:
        read: list[bytes] = []
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            while len(read) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    read += [record.value for record in records]
        return read

    return run(main())


@pytest.mark.parametrize("does", ["send", "nothing"])
def test_response_received_while_the_loop_was_blocked_counts(cluster: EmbeddedCluster, does: str) -> None:
    """The application blocks the loop beyond all timeouts, and the broker answers meanwhile."""
    topic = new_topic(cluster)
    limits = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 2_500, "retries": 0}

    async def main() -> None:
        async with started(cluster, **limits) as producer:
            await producer.send_and_wait(topic, b"0")
            hold = cluster.faults.hold(ApiKeys.PRODUCE)
            future = await producer.send(topic, b"1")
            await until(lambda: hold.held)
            record = cluster.requests_of(ApiKeys.PRODUCE)[-1]
            hold.remove()
            hold.release()
            later = await producer.send(topic, b"2") if does == "send" else None
            eventually(lambda: record.answered_ms is not None)  # this and what follows blocks the loop
            time.sleep(2.7)
            assert (await future).offset == 1
            if later is not None:  # the block kept it from being sent
                with pytest.raises(KafkaTimeoutError, match="was not sent"):
                    await later

    run(main())
