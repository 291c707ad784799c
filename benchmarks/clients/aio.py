"""aiokafka with its compiled codecs, and pykclient.aio: event loop and program share one thread."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from benchmarks.cases import Case
from benchmarks.clients.measuring import (
    BATCH_SIZE,
    LINGER_MS,
    Patience,
    Sample,
    Stopwatch,
    chunks,
    payload,
    warm_up_records,
)


class Aiokafka:
    """aiokafka."""

    name = "aiokafka"
    distribution = "aiokafka"
    environment: ClassVar[Mapping[str, str]] = MappingProxyType({})
    kinds: ClassVar[tuple[str, ...]] = (
        *("produce", "consume", "busy", "busy-consume", "latency", "idle-producer", "idle-consumer"),
    )
    share = 0.2
    share_of_many = 0.5
    only_plain = False
    runs_with_defaults = False

    #: The package with the clients; all have aiokafka's surface.
    package = "aiokafka"

    async def _producer(self, case: Case, linger_ms: int = LINGER_MS) -> Any:
        producer = importlib.import_module(self.package).AIOKafkaProducer(
            bootstrap_servers=case.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            compression_type=None if case.codec == "none" else case.codec,
            linger_ms=linger_ms,
            max_batch_size=BATCH_SIZE,
        )
        await producer.start()
        return producer

    def produce(self, case: Case) -> Sample:
        return asyncio.run(self._produce(case))

    async def _produce(self, case: Case) -> Sample:
        producer = await self._producer(case)
        topic, send = case.topic, producer.send

        async def send_chunk(chunk: list[Any]) -> None:
            if case.keyed:
                for key, value in chunk:
                    await send(topic, value, key)
            else:
                for value in chunk:
                    await send(topic, value)

        for chunk in chunks(case, warm_up_records(case)):
            await send_chunk(chunk)
        await producer.flush()
        prepared = list(chunks(case, case.records))
        watch = Stopwatch()
        watch.start()
        for chunk in prepared:
            await send_chunk(chunk)
        await producer.flush()
        sample = watch.stop(case.records)._replace(sent=warm_up_records(case) + case.records)
        await producer.stop()
        return sample

    def latency(self, case: Case) -> Sample:
        return asyncio.run(self._latency(case))

    async def _latency(self, case: Case) -> Sample:
        producer = await self._producer(case, linger_ms=0)
        value = payload(case.size_bytes)
        for _ in range(200):
            await producer.send_and_wait(case.topic, value)
        latencies_ms: list[float] = []
        watch = Stopwatch()
        watch.start()
        for _ in range(case.records):
            begun_s = time.perf_counter()
            await producer.send_and_wait(case.topic, value)
            latencies_ms.append((time.perf_counter() - begun_s) * 1000)
        sample = watch.stop(case.records, latencies_ms)
        await producer.stop()
        return sample

    async def _consumer(self, case: Case) -> Any:
        module = importlib.import_module(self.package)
        consumer = module.AIOKafkaConsumer(
            bootstrap_servers=case.bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([module.TopicPartition(case.topic, p) for p in range(case.partitions)])
        return consumer

    async def _take(self, consumer: Any) -> int:
        """Read some records, and return how many."""
        count = 0
        for records in (await consumer.getmany(timeout_ms=1000, max_records=1000)).values():
            for record in records:
                record.value  # noqa: B018
            count += len(records)
        return count

    def consume(self, case: Case) -> Sample:
        return asyncio.run(self._consume(case))

    async def _consume(self, case: Case) -> Sample:
        consumer = await self._consumer(case)
        patience = Patience()
        seen = counted = 0
        while not seen:
            seen = await self._take(consumer)
            patience.after(seen)
        watch = Stopwatch()
        watch.start()
        while seen + counted < case.records:
            got = await self._take(consumer)
            patience.after(got)
            counted += got
        sample = watch.stop(counted)
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
        sample = watch.stop(case.records)
        await consumer.stop()
        return sample

    def idle_producer(self, case: Case) -> Sample:
        return asyncio.run(self._idle_producer(case))

    async def _idle_producer(self, case: Case) -> Sample:
        producer = await self._producer(case)
        await producer.send_and_wait(case.topic, b"x")
        watch = Stopwatch()
        watch.start()
        await asyncio.sleep(case.records)
        sample = watch.stop(case.records)
        await producer.stop()
        return sample


class AiokafkaLoop(Aiokafka):
    """aiokafka, read by ``async for``."""

    name = "aiokafka-loop"
    kinds: ClassVar[tuple[str, ...]] = ("consume",)
    only_plain = True

    async def _take(self, consumer: Any) -> int:
        count = 0
        async for record in consumer:
            record.value  # noqa: B018
            count += 1
            if count == 1000:
                break
        return count


class PykclientAio(Aiokafka):
    """``pykclient.aio``."""

    name = "pykclient-aio"
    distribution = "pykclient"
    package = "pykclient.aio"
    kinds: ClassVar[tuple[str, ...]] = ("produce", "consume", "latency", "idle-consumer")
    share = 1.0
    share_of_many = 1.0


class PykclientAioLoop(AiokafkaLoop):
    """``pykclient.aio``, read by ``async for``."""

    name = "pykclient-aio-loop"
    distribution = "pykclient"
    package = "pykclient.aio"
    share = 0.5
