"""OpenTelemetry's instrumentors of other clients make their spans on this package, under ``pykclient.alias``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest

from pykclient import ConsumerRecord, KafkaConsumer, KafkaProducer, aio
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer
from pykclient.testing import EmbeddedCluster

_BEGIN = """
import json, sys
import pykclient.alias
pykclient.alias.install(sys.argv[1])
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
servers = sys.argv[2]
"""

_CONFLUENT = """
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
ConfluentKafkaInstrumentor().instrument(tracer_provider=provider)
import confluent_kafka

producer = confluent_kafka.Producer({"bootstrap.servers": servers})
producer.produce("orders", b"2 apples", headers=[])
producer.flush()
consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
message = consumer.poll(30)
assert message.value() == b"2 apples", message
consumer.close()
"""

_KAFKA = """
from opentelemetry.instrumentation.kafka import KafkaInstrumentor
KafkaInstrumentor().instrument(tracer_provider=provider)
import kafka

producer = kafka.KafkaProducer(bootstrap_servers=servers)
producer.send("orders", b"2 apples").get(30)
consumer = kafka.KafkaConsumer(
    "orders", bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
)
for record in consumer:
    assert record.value == b"2 apples"
    break
consumer.close()
producer.close()
"""

_AIOKAFKA = """
import asyncio
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
AIOKafkaInstrumentor().instrument(tracer_provider=provider)
import aiokafka

async def main():
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"2 apples", key=b"eve")
    async with aiokafka.AIOKafkaConsumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            assert record.value == b"2 apples"
            break

asyncio.run(main())
"""

_END = """
finished = spans.get_finished_spans()
print(json.dumps([[each.name, each.context.trace_id, dict(each.attributes)] for each in finished]))
"""


@pytest.mark.parametrize(
    ("package", "program"), [("confluent_kafka", _CONFLUENT), ("kafka", _KAFKA), ("aiokafka", _AIOKAFKA)]
)
def test_instrumentor_traces_a_record_from_send_to_receive(package: str, program: str) -> None:
    pytest.importorskip(f"opentelemetry.instrumentation.{package}")
    with EmbeddedCluster(auto_create_topics_enable=False) as cluster:
        cluster.create_topic("orders", partitions=1)
        servers = cluster.bootstrap_servers
        done = subprocess.run(
            [sys.executable, "-c", _BEGIN + program + _END, package, servers],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    spans = {name: (trace, attributes) for name, trace, attributes in json.loads(done.stdout)}
    sent, received = spans["orders send"], spans["orders process" if package == "confluent_kafka" else "orders receive"]
    assert sent[1]["messaging.system"] == received[1]["messaging.system"] == "kafka"
    if package != "confluent_kafka":  # its spans are linked instead
        assert sent[0] == received[0]
    if package == "aiokafka":
        assert json.loads(sent[1]["server.address"]) == servers
        assert sent[1]["messaging.destination.partition.id"] == "0"


class _Consumer(KafkaConsumer[bytes, bytes]):
    """Counts the records of loops where instrumentations do."""

    count = 0

    def __next__(self) -> ConsumerRecord[bytes, bytes]:
        record = super().__next__()
        self.count += 1
        return record


class _AIOProducer(AIOKafkaProducer[bytes, bytes]):
    async def send(self, *arguments: Any, **named: Any) -> Any:
        return await super().send(arguments[0], arguments[1], headers=[("a", b"1")])


class _AIOConsumer(AIOKafkaConsumer[bytes, bytes]):
    count = 0

    async def getone(self, *partitions: Any) -> ConsumerRecord[bytes, bytes]:
        self.count += 1
        return await super().getone(*partitions)


def test_methods_that_subclasses_replace_serve_loops_and_send_and_wait() -> None:
    async def main(servers: str) -> None:
        async with _AIOProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("orders", b"v")
            assert producer.client._client_id == producer.config["client.id"]
        async with _AIOConsumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                assert record.headers == (("a", b"1"),)
                break
            assert consumer.count == 1
            assert consumer._client._bootstrap_servers == servers

    with EmbeddedCluster() as cluster:
        asyncio.run(main(cluster.bootstrap_servers))
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            future: Any = producer.send("orders", b"w")
            assert future._produce_future.topic_partition == ("orders", 0)
        with _Consumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=1_000,
        ) as consumer:
            assert [record.value for record in consumer] == [b"v", b"w"]
            assert consumer.count == 2


def test_functions_that_replace_aiokafkas_private_parts_serve_clients_without_a_cluster() -> None:
    calls: list[Any] = []

    def recorded(name: str, result: Any = None) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            calls.append((name, *arguments, named) if named else (name, *arguments))
            return result

        return call

    async def main() -> None:
        nowhere: Any = {"bootstrap_servers": "127.0.0.1:1"}
        producer: Any = AIOKafkaProducer(**nowhere)
        producer.client.bootstrap = recorded("bootstrap")
        producer.client._wait_on_metadata = recorded("wait")
        producer._sender.start = recorded("start")
        producer._message_accumulator.add_message = recorded("add", "added")
        producer._partition = lambda *_: 1
        await producer.start()
        assert await producer.send("t", b"v", b"k", headers=[("h", b"1")]) == "added"
        await producer.stop()
        consumer: Any = AIOKafkaConsumer(group_id="g", **nowhere)
        consumer._client.bootstrap = recorded("bootstrap")
        await consumer.start()
        consumer._fetcher.next_record = recorded("next", "record")
        consumer._fetcher.fetched_records = recorded("fetched", {})
        assert await consumer.getone() == await anext(consumer) == "record"
        assert await consumer.getmany(timeout_ms=100) == {}
        await consumer.stop()

    asyncio.run(main())
    added = ("add", ("t", 1), b"k", b"v", 40.0, {"timestamp_ms": None, "headers": [("h", b"1")]})
    assert calls[:4] == [("start",), ("bootstrap",), ("wait", "t"), added]
    assert calls[4:] == [("bootstrap",), ("next", ()), ("next", ()), ("fetched", (), 0.1, {"max_records": None})]


def test_private_parts_of_aiokafka_work_when_nothing_replaces_them() -> None:
    async def main(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            assert await producer.client._wait_on_metadata("two") == {0, 1}
            metadata = await producer.send_and_wait("two", b"1", b"key")
            assert producer._partition("two", None, "key", "1", b"key", b"1") == metadata.partition
            assert producer._partition("two", None, None, "1", None, b"1") is None
            await producer.send_and_wait("two", b"2", b"key")
            with pytest.raises(AttributeError, match="has no attribute 'close'"):
                producer._sender.close()
        settings: Any = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer("two", **settings) as consumer:
            assert (await consumer._fetcher.next_record(())).value == b"1"
            ((record,),) = (await consumer._fetcher.fetched_records((), 30)).values()
            assert record.value == b"2"

    with EmbeddedCluster() as cluster:
        cluster.create_topic("two", 2)
        asyncio.run(main(cluster.bootstrap_servers))


def test_records_are_made_of_positional_arguments_in_aiokafkas_order() -> None:
    made: Any = aio.ConsumerRecord  # typed as the record of both clients
    record = made("t", 1, 2, 3, 0, b"k", b"v", None, 4, 5, headers=())
    assert (record.offset, record.timestamp, record.key, record.value) == (2, 3, b"k", b"v")
    assert (record.serialized_key_size, record.serialized_value_size) == (4, 5)
    assert isinstance(record, aio.ConsumerRecord)
    assert isinstance(record, ConsumerRecord)
    assert not isinstance("record", aio.ConsumerRecord)
    with pytest.raises(TypeError):
        made(*range(12))


def test_programs_derive_their_own_records() -> None:
    class Received(aio.ConsumerRecord[bytes, bytes]):
        receiver: str

    made: Any = Received
    record = made("t", 1, 2, 3, 0, b"k", b"v")
    record.receiver = "orders"
    assert (record.offset, record.value, record.receiver) == (2, b"v", "orders")
    assert type(record) is Received
    assert isinstance(record, aio.ConsumerRecord)
    assert not isinstance(aio.ConsumerRecord("t", 1), Received)


def test_derived_records_have_constructors_of_their_own() -> None:
    class Received(aio.ConsumerRecord[bytes, bytes]):
        def __init__(self, receiver: str, topic: str, partition: int, **named: Any) -> None:
            super().__init__(topic, partition, **named)
            self.receiver = receiver

    made: Any = Received
    record = made("orders", "t", 1, offset=3)
    assert (record.receiver, record.topic, record.partition, record.offset) == ("orders", "t", 1, 3)


def test_record_type_knows_all_records() -> None:
    made: Any = aio.ConsumerRecord
    record = made("t", 1, 2, 3, 0, b"k", b"v")
    assert issubclass(type(record), aio.ConsumerRecord)
    assert made._make(record) == record
    assert not issubclass(str, aio.ConsumerRecord)


def test_private_parts_can_be_wrapped_and_restored() -> None:
    async def main(servers: str) -> None:
        async with AIOKafkaConsumer("t", bootstrap_servers=servers) as consumer:
            fetcher: Any = consumer._fetcher
            original = fetcher.fetched_records
            calls: list[object] = []

            async def wrapped(*arguments: Any, **named: Any) -> Any:
                calls.append(arguments)
                return await original(*arguments, **named)

            with mock.patch.object(fetcher, "fetched_records", wrapped):
                assert await consumer.getmany() == {}
            assert await consumer.getmany() == {}
            assert len(calls) == 1
            with pytest.raises(AttributeError, match="cannot be replaced"):
                consumer.client.force_metadata_update = wrapped  # type: ignore[method-assign]

    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        asyncio.run(main(cluster.bootstrap_servers))
