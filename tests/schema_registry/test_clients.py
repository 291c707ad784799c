"""Serializers of a registry in all clients: blocking, asyncio and share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pykclient import AcknowledgeType, KafkaConsumer, KafkaProducer, KafkaShareConsumer, TopicPartition
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer
from pykclient.confluent import DeserializingConsumer, SerializingProducer
from pykclient.confluent.aio import AsyncDeserializingConsumer, AsyncSerializingProducer
from pykclient.confluent.error import ValueDeserializationError, ValueSerializationError
from pykclient.errors import RecordDeserializationError, SerializationError
from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    SchemaRegistryClient,
    SchemaRegistryError,
    header_schema_id_serializer,
)
from pykclient.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroSerializer,
)
from pykclient.schema_registry.json_schema import (
    AsyncJSONDeserializer,
    AsyncJSONSerializer,
    JSONDeserializer,
    JSONSerializer,
)
from pykclient.schema_registry.protobuf import (
    AsyncProtobufDeserializer,
    AsyncProtobufSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from pykclient.serialization import MessageField, SerializationContext
from pykclient.testing import EmbeddedCluster
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.support.group_configs import set_group_configs
from tests.support.wait import eventually

JSON_ORDER = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
_VALUE = MessageField.VALUE
REGISTER = {"auto.register.schemas": True}


def message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


MESSAGE = message_class()
#: The serializer and deserializer of each format for asyncio, and those that block; and a value.
ASYNC: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "avro": (lambda client: AsyncAvroSerializer(client, ORDER, conf=REGISTER), AsyncAvroDeserializer, {"id": 7}),
    "json": (
        lambda client: AsyncJSONSerializer(JSON_ORDER, client, conf=REGISTER),
        lambda client: AsyncJSONDeserializer(None, schema_registry_client=client),
        {"id": 7},
    ),
    "protobuf": (
        lambda client: AsyncProtobufSerializer(MESSAGE, client, REGISTER),
        lambda client: AsyncProtobufDeserializer(MESSAGE, None, client),
        MESSAGE(id=7),
    ),
}
BLOCKING: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "avro": (lambda client: AvroSerializer(client, ORDER, conf=REGISTER), AvroDeserializer, {"id": 7}),
    "json": (
        lambda client: JSONSerializer(JSON_ORDER, client, conf=REGISTER),
        lambda client: JSONDeserializer(None, schema_registry_client=client),
        {"id": 7},
    ),
    "protobuf": (
        lambda client: ProtobufSerializer(MESSAGE, client, REGISTER),
        lambda client: ProtobufDeserializer(MESSAGE, None, client),
        MESSAGE(id=7),
    ),
}


def settings(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers}


def test_keys_and_values_of_blocking_clients(pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient) -> None:
    keys, values = AvroSerializer(client, '"string"', conf=REGISTER), AvroSerializer(client, ORDER, conf=REGISTER)
    with KafkaProducer(**settings(pykclient_cluster), key_serializer=keys, value_serializer=values) as producer:
        producer.send("orders", {"id": 7}, key="k").get(30)
        producer.send("orders", None, key="k").get(30)
        with pytest.raises(SerializationError, match=r"topic 'orders'.*field 'id' is of type str"):
            producer.send("orders", {"id": "x"})
    assert client.get_subjects() == ["orders-key", "orders-value"]
    reader = AvroDeserializer(client)
    with KafkaConsumer(
        "orders",
        **settings(pykclient_cluster),
        auto_offset_reset="earliest",
        key_deserializer=reader,
        value_deserializer=reader,
        consumer_timeout_ms=30_000,
    ) as consumer:
        assert [(record.key, record.value) for _, record in zip(range(2), consumer, strict=False)] == [
            ("k", {"id": 7}),
            ("k", None),
        ]


def test_ids_in_headers_travel_with_records(pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient) -> None:
    conf = {**REGISTER, "schema.id.serializer": header_schema_id_serializer}
    writer = AvroSerializer(client, ORDER, conf=conf)
    with KafkaProducer(**settings(pykclient_cluster), value_serializer=writer) as producer:
        producer.send("orders", {"id": 7}, headers=[]).get(30)
        with pytest.raises(SerializationError, match=r"headers=\[\]"):
            producer.send("orders", {"id": 7})
    with KafkaConsumer(
        "orders",
        **settings(pykclient_cluster),
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(client),
        consumer_timeout_ms=30_000,
    ) as consumer:
        record = next(consumer)
        assert record.value == {"id": 7}
        assert [name for name, _ in record.headers] == ["__value_schema_id"]


def test_poison_record_is_raised_with_its_bytes_and_can_be_skipped(
    pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient
) -> None:
    writer = AvroSerializer(client, ORDER, conf=REGISTER)
    with KafkaProducer(**settings(pykclient_cluster)) as producer:
        serialize = writer.for_field(_VALUE).serialize
        for value in (serialize("orders", (), {"id": 1}), b"poison", serialize("orders", (), {"id": 2})):
            producer.send("orders", value, partition=0)
    with KafkaConsumer(
        **settings(pykclient_cluster), auto_offset_reset="earliest", value_deserializer=AvroDeserializer(client)
    ) as consumer:
        tp = TopicPartition("orders", 0)
        consumer.assign([tp])
        values: list[Any] = []
        poison: list[Any] = []
        while len(values) < 2:
            try:
                polled: dict[Any, Any] = consumer.poll(30_000)
                values += [record.value["id"] for records in polled.values() for record in records]
            except RecordDeserializationError as error:
                poison.append((error.offset, error.record.value))
                consumer.seek(tp, error.offset + 1)
    assert (values, poison) == ([1, 2], [(1, b"poison")])


def test_silent_registry_makes_no_poison_records(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    with KafkaProducer(**settings(pykclient_cluster)) as producer:
        data = AvroSerializer(client, ORDER, conf=REGISTER)({"id": 1}, SerializationContext("orders", _VALUE))
        producer.send("orders", data, partition=0).get(30)
    with (
        SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as other,
        KafkaConsumer(
            "orders",
            **settings(pykclient_cluster),
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(other),
        ) as consumer,
    ):
        registry.fail(times=1)
        with pytest.raises(RecordDeserializationError, match=r"at offset 0 .*It is not at fault: poll again") as caught:
            next(consumer)
        assert not caught.value.is_poison
        assert next(consumer).value == {"id": 1}


def test_asyncio_clients_ask_the_registry_without_blocking_the_loop(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry
) -> None:
    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url}) as client,
            AsyncSchemaRegistryClient({"url": registry.url}) as other,
        ):
            writer = AsyncAvroSerializer(client, ORDER, conf=REGISTER)
            registry.hold()
            async with AIOKafkaProducer(**settings(pykclient_cluster), value_serializer=writer) as producer:
                sending = asyncio.create_task(producer.send_and_wait("orders", {"id": 7}))
                for _ in range(50):  # the loop goes on
                    await asyncio.sleep(0)
                assert not sending.done()
                registry.release()
                await sending
                await producer.send_and_wait("orders", {"id": 8})
            reader = AsyncAvroDeserializer(other)
            registry.hold()
            async with AIOKafkaConsumer(
                "orders",
                **settings(pykclient_cluster),
                auto_offset_reset="earliest",
                value_deserializer=reader,
            ) as consumer:
                reading = asyncio.create_task(consumer.getone())
                while not any("/schemas/ids/" in request.path for request in registry.requests):
                    registry.release()
                    await asyncio.sleep(0.01)
                assert (await reading).value == {"id": 7}
                assert (await consumer.getone()).value == {"id": 8}
            assert (
                await (await AsyncAvroSerializer(client, ORDER))({"id": 9}, SerializationContext("orders", _VALUE))
                is not None
            )

    asyncio.run(asyncio.wait_for(main(), 90))


def test_share_consumers_deserialize(pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient) -> None:
    writer = AvroSerializer(client, ORDER, conf=REGISTER)
    with (
        KafkaShareConsumer(
            "orders", **settings(pykclient_cluster), group_id="g", value_deserializer=AvroDeserializer(client)
        ) as consumer,
        KafkaProducer(**settings(pykclient_cluster), value_serializer=writer) as producer,
    ):
        found: list[Any] = []
        while not found:
            producer.send("orders", {"id": 7}).get(30)
            found = [record.value for record in _all(consumer.poll(1_000))]
        assert found[0] == {"id": 7}


def test_asyncio_share_consumers_ask_the_registry_without_blocking_the_loop(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    """Two schemas one after the other, and the loop goes on while the registry does not answer."""

    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url}) as other,
            AIOKafkaShareConsumer(
                "orders", **settings(pykclient_cluster), group_id="g", value_deserializer=AsyncAvroDeserializer(other)
            ) as consumer,
        ):
            await consumer.poll(1)  # joins
            registry.hold()
            reading = asyncio.create_task(consumer.getone())
            while other._threads is None:  # which ask
                await asyncio.sleep(0.01)
            assert not reading.done()
            registry.release()
            assert (await reading).value == {"id": 1}
            assert (await consumer.getone()).value == {"id": 1.5}
            await consumer.commit_sync()
            assert not (await consumer.poll(0))

    set_group_configs(pykclient_cluster, "g", {"share.auto.offset.reset": "earliest"})
    client.set_compatibility(level="NONE")
    with KafkaProducer(**settings(pykclient_cluster)) as producer:
        for text, value in ((ORDER, {"id": 1}), (ORDER.replace("long", "double"), {"id": 1.5})):
            data = AvroSerializer(client, text, conf=REGISTER)(value, SerializationContext("orders", _VALUE))
            producer.send("orders", data, partition=0).get(30)
    asyncio.run(asyncio.wait_for(main(), 90))


@pytest.mark.parametrize("method", ["getone", "getmany", "loop"])
def test_asyncio_consumer_names_the_record_of_an_unknown_schema(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, method: str
) -> None:
    async def one(consumer: AIOKafkaConsumer[bytes, Any]) -> Any:
        if method == "getone":
            return await consumer.getone()
        if method == "getmany":
            return _all(await consumer.getmany(timeout_ms=30_000))[0]
        return await anext(consumer)

    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url, "max.retries": 0}) as other,
            AIOKafkaConsumer(
                "orders",
                **settings(pykclient_cluster),
                auto_offset_reset="earliest",
                value_deserializer=AsyncAvroDeserializer(other),
            ) as consumer,
        ):
            with pytest.raises(RecordDeserializationError) as caught:
                await one(consumer)
            error = caught.value
            assert str(error).startswith(
                "the value of the record at offset 0 of orders-0 cannot be deserialized by AsyncAvroDeserializer: "
                "SchemaRegistryError: GET schemas/ids/99 of the schema registry"
            )
            assert "Seek to offset 1 to skip it" in str(error)
            assert (error.offset, error.part, error.record.value) == (0, "value", b"\0\0\0\0\x63\x02")
            assert isinstance(error.__cause__, SchemaRegistryError)
            assert error.is_poison
            assert error.topic_partition is not None
            consumer.seek(error.topic_partition, error.offset + 1)
            registry.fail(times=1)  # and then it answers again
            with pytest.raises(
                RecordDeserializationError, match=r"at offset 1 .*a fault of the test.*poll again$"
            ) as caught:
                await one(consumer)
            assert not caught.value.is_poison
            record = await one(consumer)
            assert (record.offset, record.value) == (1, {"id": 1})

    with KafkaProducer(**settings(pykclient_cluster)) as producer:
        data = AvroSerializer(client, ORDER, conf=REGISTER)({"id": 1}, SerializationContext("orders", _VALUE))
        for sent in (b"\0\0\0\0\x63\x02", data):
            producer.send("orders", sent, partition=0).get(30)
    asyncio.run(asyncio.wait_for(main(), 90))


def test_asyncio_share_consumer_names_the_record_of_an_unknown_schema(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url}) as other,
            AIOKafkaShareConsumer(
                "orders",
                **settings(pykclient_cluster),
                group_id="g",
                value_deserializer=AsyncAvroDeserializer(other),
                share_acknowledgement_mode="explicit",
            ) as consumer,
        ):
            with pytest.raises(RecordDeserializationError, match="Schema 99 not found") as caught:
                await consumer.getone()
            assert (caught.value.offset, caught.value.part) == (0, "value")
            consumer.acknowledge("orders", 0, 0, AcknowledgeType.REJECT)
            record = await consumer.getone()
            assert (record.offset, record.value) == (1, {"id": 1})
            consumer.acknowledge(record)
            await consumer.commit_sync()

    set_group_configs(pykclient_cluster, "g", {"share.auto.offset.reset": "earliest"})
    with KafkaProducer(**settings(pykclient_cluster)) as producer:
        data = AvroSerializer(client, ORDER, conf=REGISTER)({"id": 1}, SerializationContext("orders", _VALUE))
        for sent in (b"\0\0\0\0\x63\x02", data):
            producer.send("orders", sent, partition=0).get(30)
    asyncio.run(asyncio.wait_for(main(), 90))


def _all(polled: Any) -> list[Any]:
    return [record for records in polled.values() for record in records] if isinstance(polled, dict) else list(polled)


@pytest.mark.parametrize("form", list(ASYNC))
def test_asyncio_clients_write_and_read_all_formats(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, form: str
) -> None:
    write, read, value = ASYNC[form]

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            async with AIOKafkaProducer(**settings(pykclient_cluster), value_serializer=write(client)) as producer:
                await producer.send_and_wait("orders", value)
            async with AIOKafkaConsumer(
                "orders", **settings(pykclient_cluster), auto_offset_reset="earliest", value_deserializer=read(client)
            ) as consumer:
                assert (await consumer.getone()).value == value
            # Called alone they are coroutine functions.
            ctx = SerializationContext("orders", _VALUE)
            assert await read(client)(await write(client)(value, ctx), ctx) == value

    asyncio.run(asyncio.wait_for(main(), 90))


@pytest.mark.parametrize("form", list(BLOCKING))
def test_confluents_serializing_clients_run_unchanged(
    pykclient_cluster: EmbeddedCluster, client: SchemaRegistryClient, form: str
) -> None:
    write, read, value = BLOCKING[form]
    conf = {"bootstrap.servers": pykclient_cluster.bootstrap_servers}
    wrong: Any = {"id": "x"}
    producer: SerializingProducer[Any, Any]
    consumer: DeserializingConsumer[Any, Any]
    with SerializingProducer({**conf, "value.serializer": write(client)}) as producer:
        producer.produce("orders", value=value, headers=[], partition=0)
        producer.produce("orders", value=None, partition=0)
        with pytest.raises(ValueSerializationError, match="id" if form != "protobuf" else "message must be of type"):
            producer.produce("orders", value=wrong)
        assert producer.flush(30) == 0
    with KafkaProducer(**settings(pykclient_cluster)) as plain:
        plain.send("orders", b"poison", partition=0).get(30)
    reading = {**conf, "group.id": "g", "auto.offset.reset": "earliest", "value.deserializer": read(client)}
    with DeserializingConsumer(reading) as consumer:
        consumer.subscribe(["orders"])
        found: list[Any] = []

        def has_read(count: int) -> bool:
            message: Any = consumer.poll(1)
            found.extend([] if message is None else [message.value()])
            return len(found) == count

        eventually(lambda: has_read(2))
        assert found == [value, None]
        with pytest.raises(ValueDeserializationError, match="magic byte"):
            eventually(lambda: has_read(3))


@pytest.mark.parametrize("form", list(ASYNC))
def test_confluents_serializing_clients_for_asyncio(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, form: str
) -> None:
    write, read, value = ASYNC[form]
    conf = {"bootstrap.servers": pykclient_cluster.bootstrap_servers}

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            writing: Any = AsyncSerializingProducer({**conf, "value.serializer": write(client)})
            producer = await writing
            await (await producer.produce("orders", value=value))
            await producer.close()
            reading: Any = AsyncDeserializingConsumer(
                {**conf, "group.id": "g", "auto.offset.reset": "earliest", "value.deserializer": read(client)}
            )
            consumer = await reading
            await consumer.subscribe(["orders"])
            message = None
            while message is None:
                message = await consumer.poll(1)
            assert message.value() == value
            await consumer.close()

    asyncio.run(asyncio.wait_for(main(), 90))
