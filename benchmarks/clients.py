"""One adapter per client, each used the way its own documentation shows for throughput.

An adapter's methods run one case and return a ``Sample``. All produce with idempotence and ``acks=all``, all consume by
``assign`` from the beginning, so that the group protocol is no part of the figures.
"""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

EVERY = 97  # one record in so many has its time from send to acknowledgement taken
LINGER_MS = 5
BATCH_SIZE = 131_072


class Sample(NamedTuple):
    """``latencies_ms``: send to acknowledgement when producing, the length of a poll call when consuming."""

    records: int
    cpu_s: float
    wall_s: float
    latencies_ms: list[float]


class Case(NamedTuple):
    """What to do: ``kind`` is produce, busy, consume, latency, idle-producer or idle-consumer."""

    kind: str
    bootstrap_servers: str
    topic: str
    partitions: int
    records: int
    size_bytes: int
    codec: str


class Stopwatch:
    """CPU and wall time of this process, all threads, between ``start`` and ``stop``."""

    def start(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu_s = usage.ru_utime + usage.ru_stime
        self._wall_s = time.perf_counter()

    def stop(self, records: int, latencies_ms: list[float]) -> Sample:
        wall_s = time.perf_counter() - self._wall_s
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Sample(records, usage.ru_utime + usage.ru_stime - self._cpu_s, wall_s, latencies_ms)


def payload(size_bytes: int) -> bytes:
    """A value that compresses about as well as text does."""
    words = b"".join(b'{"id": %d, "state": "shipped", "amount": %d.99} ' % (i, i * 7919 % 1000) for i in range(64))
    return (words * (size_bytes // len(words) + 1))[:size_bytes]


Callback = Callable[..., Any]


def _produce_sync(
    case: Case, send_many: Callable[[int], Any], send: Callable[[Callback], Any], flush: Callable[[], Any]
) -> Sample:
    """Drive a blocking client: ``send_many(count)`` is the loop of a program that sends, without anything around it.

    ``send(callback)`` sends one record, and calls back when it is acknowledged.
    """
    latencies_ms: list[float] = []
    clock = time.perf_counter
    watch = Stopwatch()
    watch.start()
    left = case.records
    while left:
        begun_s = clock()
        send(lambda *_, begun_s=begun_s: latencies_ms.append((clock() - begun_s) * 1000))
        count = min(left - 1, EVERY - 1)
        send_many(count)
        left -= 1 + count
    flush()
    return watch.stop(case.records, latencies_ms)


def _one_at_a_time(case: Case, send_and_wait: Callable[[], Any]) -> Sample:
    latencies_ms: list[float] = []
    clock = time.perf_counter
    for _ in range(50):
        send_and_wait()
    watch = Stopwatch()
    watch.start()
    for _ in range(case.records):
        begun_s = clock()
        send_and_wait()
        latencies_ms.append((clock() - begun_s) * 1000)
    return watch.stop(case.records, latencies_ms)


def _consume_polled(case: Case, poll: Callable[[], int], close: Callable[[], Any]) -> Sample:
    """Drive a blocking client: ``poll()`` returns how many records it gave and was walked over."""
    latencies_ms: list[float] = []
    clock = time.perf_counter
    seen = 0
    while seen == 0:  # connection, metadata and the first fetch are not part of the figure
        seen = poll()
    watch = Stopwatch()
    watch.start()
    counted = 0
    while seen + counted < case.records:
        begun_s = clock()
        counted += poll()
        latencies_ms.append((clock() - begun_s) * 1000)
    sample = watch.stop(counted, latencies_ms)
    close()
    return sample


def _idle(case: Case, poll: Callable[[], Any]) -> Sample:
    """``case.records`` seconds of doing nothing."""
    poll()
    watch = Stopwatch()
    watch.start()
    until_s = time.perf_counter() + case.records
    while time.perf_counter() < until_s:
        poll()
    return watch.stop(case.records, [])


class NeverResting:
    """An application's thread that computes all the time, and so wants the interpreter's lock all the time."""

    def __enter__(self) -> None:
        self._done = False
        self._thread = threading.Thread(target=self._compute)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done = True
        self._thread.join()

    def _compute(self) -> None:
        while not self._done:
            sum([number * number for number in range(50)])


class KafkaPython:
    """kafka-python, and whatever has its surface."""

    name = "kafka-python"
    distribution = "kafka-python"
    environment: Mapping[str, str] = MappingProxyType({})
    module = "kafka"

    def __init__(self) -> None:
        self._kafka = import_module(self.module)

    def produce(self, case: Case) -> Sample:
        producer: Any = self._kafka.KafkaProducer(
            bootstrap_servers=case.bootstrap_servers,
            compression_type=None if case.codec == "none" else case.codec,
            linger_ms=LINGER_MS,
            batch_size=BATCH_SIZE,
        )
        value, topic = payload(case.size_bytes), case.topic
        producer.partitions_for(topic)
        send = producer.send

        def send_many(count: int) -> None:
            for _ in range(count):
                send(topic, value)

        def send_one(callback: Callback) -> None:
            send(topic, value).add_callback(callback)

        sample = _produce_sync(case, send_many, send_one, producer.flush)
        producer.close()
        return sample

    def latency(self, case: Case) -> Sample:
        producer: Any = self._kafka.KafkaProducer(bootstrap_servers=case.bootstrap_servers, linger_ms=0)
        value, topic = payload(case.size_bytes), case.topic
        sample = _one_at_a_time(case, lambda: producer.send(topic, value).get(30))
        producer.close()
        return sample

    def _consumer(self, case: Case) -> Any:
        consumer: Any = self._kafka.KafkaConsumer(
            bootstrap_servers=case.bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
        )
        consumer.assign([self._kafka.TopicPartition(case.topic, p) for p in range(case.partitions)])
        return consumer

    def consume(self, case: Case) -> Sample:
        consumer = self._consumer(case)

        def poll() -> int:
            count = 0
            for records in consumer.poll(1000).values():
                for record in records:
                    record.value  # noqa: B018
                count += len(records)
            return count

        return _consume_polled(case, poll, consumer.close)

    def idle_consumer(self, case: Case) -> Sample:
        consumer = self._consumer(case)
        consumer.seek_to_end()
        sample = _idle(case, lambda: consumer.poll(1000))
        consumer.close()
        return sample

    def idle_producer(self, case: Case) -> Sample:
        producer: Any = self._kafka.KafkaProducer(bootstrap_servers=case.bootstrap_servers)
        producer.send(case.topic, b"x").get(30)
        sample = _idle(case, lambda: time.sleep(1))
        producer.close()
        return sample


class Pykclient(KafkaPython):
    """This project: the calls of a program written for kafka-python."""

    name = "pykclient"
    distribution = "pykclient"
    module = "pykclient"


class PykclientInPython(Pykclient):
    """The same without its compiled modules."""

    name = "pykclient-python"
    environment = MappingProxyType({"PYKCLIENT_IMPL": "python"})


class ConfluentKafka:
    """confluent-kafka (librdkafka)."""

    name = "confluent-kafka"
    distribution = "confluent-kafka"
    environment: Mapping[str, str] = MappingProxyType({})

    def _producer(self, case: Case, linger_ms: int) -> Any:
        import confluent_kafka

        return confluent_kafka.Producer(
            {
                "bootstrap.servers": case.bootstrap_servers,
                "enable.idempotence": True,
                "compression.type": case.codec,
                "linger.ms": linger_ms,
                "batch.size": BATCH_SIZE,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def produce(self, case: Case) -> Sample:
        producer = self._producer(case, LINGER_MS)
        producer.list_topics(case.topic, timeout=30)
        value, topic = payload(case.size_bytes), case.topic
        produce, poll = producer.produce, producer.poll

        def send_many(count: int) -> None:
            for _ in range(count):
                try:
                    produce(topic, value)
                except BufferError:
                    send_when_there_is_room()
                poll(0)

        def send_when_there_is_room(**options: Any) -> None:
            while True:
                try:
                    produce(topic, value, **options)
                except BufferError:
                    poll(0.01)
                else:
                    return

        return _produce_sync(
            case,
            send_many,
            lambda callback: send_when_there_is_room(on_delivery=callback),
            lambda: producer.flush(60),
        )

    def latency(self, case: Case) -> Sample:
        producer = self._producer(case, 0)
        value, topic = payload(case.size_bytes), case.topic

        def send_and_wait() -> None:
            producer.produce(topic, value)
            producer.flush(30)

        return _one_at_a_time(case, send_and_wait)

    def _consumer(self, case: Case) -> Any:
        import confluent_kafka

        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": case.bootstrap_servers,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign(
            [
                confluent_kafka.TopicPartition(case.topic, p, confluent_kafka.OFFSET_BEGINNING)
                for p in range(case.partitions)
            ]
        )
        return consumer

    def consume(self, case: Case) -> Sample:
        consumer = self._consumer(case)

        def poll() -> int:
            messages = consumer.consume(1000, 1.0)
            for message in messages:
                message.value()
            return len(messages)

        return _consume_polled(case, poll, consumer.close)

    def idle_consumer(self, case: Case) -> Sample:
        consumer = self._consumer(case)
        while consumer.consume(1000, 1.0):
            pass
        sample = _idle(case, lambda: consumer.consume(1000, 1.0))
        consumer.close()
        return sample

    def idle_producer(self, case: Case) -> Sample:
        producer = self._producer(case, LINGER_MS)
        producer.produce(case.topic, b"x")
        producer.flush(30)
        return _idle(case, lambda: time.sleep(1))


class Aiokafka:
    """aiokafka, compiled codecs."""

    name = "aiokafka"
    distribution = "aiokafka"
    environment: Mapping[str, str] = MappingProxyType({})

    def produce(self, case: Case) -> Sample:
        return asyncio.run(self._produce(case))

    async def _produce(self, case: Case) -> Sample:
        import aiokafka

        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=case.bootstrap_servers,
            enable_idempotence=True,
            compression_type=None if case.codec == "none" else case.codec,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_SIZE,
        )
        await producer.start()
        value, topic = payload(case.size_bytes), case.topic
        await producer.partitions_for(topic)
        latencies_ms: list[float] = []
        clock = time.perf_counter
        watch = Stopwatch()
        watch.start()
        for i in range(case.records):
            future = await producer.send(topic, value)
            if i % EVERY == 0:
                begun_s = clock()
                future.add_done_callback(lambda _, begun_s=begun_s: latencies_ms.append((clock() - begun_s) * 1000))
        await producer.flush()
        sample = watch.stop(case.records, latencies_ms)
        await producer.stop()
        return sample

    def latency(self, case: Case) -> Sample:
        return asyncio.run(self._latency(case))

    async def _latency(self, case: Case) -> Sample:
        import aiokafka

        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=case.bootstrap_servers, enable_idempotence=True, linger_ms=0
        )
        await producer.start()
        value = payload(case.size_bytes)
        latencies_ms: list[float] = []
        watch = Stopwatch()
        for i in range(50 + case.records):
            if i == 50:
                watch.start()
            begun_s = time.perf_counter()
            await producer.send_and_wait(case.topic, value)
            if i >= 50:
                latencies_ms.append((time.perf_counter() - begun_s) * 1000)
        sample = watch.stop(case.records, latencies_ms)
        await producer.stop()
        return sample

    async def _consumer(self, case: Case) -> Any:
        import aiokafka

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=case.bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(case.topic, p) for p in range(case.partitions)])
        return consumer

    def consume(self, case: Case) -> Sample:
        return asyncio.run(self._consume(case))

    async def _consume(self, case: Case) -> Sample:
        consumer = await self._consumer(case)
        latencies_ms: list[float] = []
        watch = Stopwatch()
        first = counted = 0
        while first + counted < case.records:
            begun_s = time.perf_counter()
            count = 0
            for records in (await consumer.getmany(timeout_ms=1000, max_records=1000)).values():
                for record in records:
                    record.value  # noqa: B018
                count += len(records)
            if first == 0:
                first = count
                watch.start()
                continue
            counted += count
            latencies_ms.append((time.perf_counter() - begun_s) * 1000)
        sample = watch.stop(counted, latencies_ms)
        await consumer.stop()
        return sample

    def idle_consumer(self, case: Case) -> Sample:
        return asyncio.run(self._idle_consumer(case))

    async def _idle_consumer(self, case: Case) -> Sample:
        consumer = await self._consumer(case)
        await consumer.seek_to_end()
        await consumer.getmany(timeout_ms=1000)
        watch = Stopwatch()
        watch.start()
        until_s = time.perf_counter() + case.records
        while time.perf_counter() < until_s:
            await consumer.getmany(timeout_ms=1000)
        sample = watch.stop(case.records, [])
        await consumer.stop()
        return sample

    def idle_producer(self, case: Case) -> Sample:
        return asyncio.run(self._idle_producer(case))

    async def _idle_producer(self, case: Case) -> Sample:
        import aiokafka

        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=case.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait(case.topic, b"x")
        watch = Stopwatch()
        watch.start()
        await asyncio.sleep(case.records)
        sample = watch.stop(case.records, [])
        await producer.stop()
        return sample


CLIENTS: dict[str, type[KafkaPython | ConfluentKafka | Aiokafka]] = {
    cls.name: cls for cls in (Pykclient, PykclientInPython, KafkaPython, Aiokafka, ConfluentKafka)
}
