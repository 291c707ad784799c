"""Columns decoded by the polls of asyncio consumers and of share consumers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import AcknowledgeType, KafkaConsumer, KafkaProducer, KafkaShareConsumer, TopicPartition
from pykclient.aio import AIOKafkaConsumer, AIOKafkaShareConsumer, ConsumerStoppedError
from pykclient.errors import IllegalArgumentError, IllegalStateError, RecordDeserializationError
from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    avro_columns,
    json_columns,
    protobuf_columns,
)
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry
from tests.aio.loops import run, until
from tests.consumer.share.share_groups import set_group
from tests.schema_registry.test_columns import NEWER, ORDER, framed
from tests.support.embedded_kafka import EmbeddedKafka

ORDERS = TopicPartition("orders", 0)


def write(servers: Any, *values: bytes) -> None:
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send("orders", value, partition=0)
        producer.flush(30)


@contextlib.asynccontextmanager
async def reading(servers: Any) -> Any:
    async with AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ORDERS])
        yield consumer


def asked_by(client: SchemaRegistryClient | AsyncSchemaRegistryClient) -> list[Any]:
    """Return a list that grows with each request that the client begins."""
    rest: Any = client.blocking.rest if isinstance(client, AsyncSchemaRegistryClient) else client.rest
    begun: list[Any] = []
    send = rest.send

    def sending(*args: Any, **more: Any) -> Any:
        begun.append(args)
        return send(*args, **more)

    rest.send = sending
    return begun


@pytest.mark.parametrize("is_async", [True, False])
def test_event_loop_runs_while_the_registry_does_not_answer(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, is_async: bool
) -> None:
    numbers = [client.register_schema("orders-value", Schema(json.dumps(schema))) for schema in (ORDER, NEWER)]
    new = {"city": "Bonn", "number": 7, "tags": {}, "what": 1}
    write(
        pykclient_cluster.bootstrap_servers,
        framed(ORDER, {"id": 5}, numbers[0]),
        framed(NEWER, new, numbers[1]),
        framed(ORDER, {"id": 6}, 99),
    )
    registry.hold()

    async def main() -> None:
        asked = AsyncSchemaRegistryClient({"url": registry.url}) if is_async else SchemaRegistryClient(url=registry.url)
        values = avro_columns(asked, on_error="keep")
        async with reading(pykclient_cluster.bootstrap_servers) as consumer:
            begun = asked_by(asked)
            polling = asyncio.create_task(
                consumer.getmany_arrow(timeout_ms=30_000, value=values, columns=["value", "partition"])
            )
            await until(lambda: begun)
            registry.release()
            batch = await polling
            assert batch.schema.names == ["value", "partition", "value_error", "value_bytes"]
            assert [row and row["number"] for row in batch.column("value").to_pylist()] == [5, 7, None]
            assert "schema id 99 is unknown" in batch.column("value_error")[2].as_py()
            assert await consumer.position(ORDERS) == 3
            assert (await consumer.getmany_arrow(timeout_ms=10, value=values)).num_rows == 0
        with contextlib.ExitStack() as closing:
            if isinstance(asked, SchemaRegistryClient):
                closing.enter_context(asked)
            else:
                await asked.close()

    run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_event_loop_runs_while_the_schema_of_no_rows_is_asked_for(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, is_async: bool
) -> None:
    part = {"type": "record", "name": "Part", "fields": [{"name": "size", "type": "long"}]}
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "part", "type": "Part"}]}
    client.register_schema("part", Schema(json.dumps(part)))
    given = Schema(json.dumps(whole), references=[SchemaReference("Part", "part", 1)])
    registry.hold()

    async def main() -> None:
        settings = {"url": registry.url, "timeout": 30, "max.retries": 0}
        asked = AsyncSchemaRegistryClient(settings) if is_async else SchemaRegistryClient(settings)
        async with AIOKafkaConsumer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("empty", 0)])
            begun = asked_by(asked)
            polling = asyncio.create_task(consumer.getmany_arrow(timeout_ms=10, value=avro_columns(asked, given)))
            await until(lambda: begun)
            registry.release()
            batch = await polling
            assert (batch.num_rows, str(batch.schema.field("value").type)) == (0, "struct<part: struct<size: int64>>")
        if isinstance(asked, SchemaRegistryClient):
            asked.close()
        else:
            await asked.close()

    run(main())


def test_rows_that_are_not_decoded_are_returned_by_the_next_call(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    write(pykclient_cluster.bootstrap_servers, framed(ORDER, {"id": 1}, number), b"poison")

    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url, "max.retries": 0}) as asked,
            reading(pykclient_cluster.bootstrap_servers) as consumer,
        ):
            strict, keeping = avro_columns(asked), avro_columns(asked, json.dumps(ORDER), on_error="keep")
            registry.fail(500, times=1)
            with pytest.raises(SchemaRegistryError):
                await consumer.getmany_arrow(timeout_ms=30_000, value=strict)
            with pytest.raises(RecordDeserializationError, match=r"offset 1 of orders-0 .*magic byte 112") as caught:
                await consumer.getmany_arrow(timeout_ms=30_000, value=strict, columns=["value"])
            assert (caught.value.topic_partition, caught.value.offset) == (ORDERS, 1)
            batch = await consumer.getmany_arrow(timeout_ms=30_000, value=keeping, columns=["value"])
            assert [row and row["id"] for row in batch.column("value").to_pylist()] == [1, None]
            assert await consumer.position(ORDERS) == 2
            with pytest.raises(IllegalArgumentError, match="not among them"):
                await consumer.getmany_arrow(value=strict, columns=["offset"])

    run(main())


@pytest.mark.parametrize("short", [b"", b"\0", b"\0\0\0", b"\0\0\0\0\0"], ids=len)
@pytest.mark.parametrize("is_apicurio", [False, True])
def test_rows_behind_a_short_row_are_decoded(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, short: bytes, is_apicurio: bool
) -> None:
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    good = framed(ORDER, {"id": 1}, number)
    if is_apicurio:
        good = b"\0" * 5 + good[1:]
    found = decoded_by_asyncio(registry, avro_columns, short, good, short, good)
    assert [row and row["id"] for row in found.column("value").to_pylist()] == [None, 1, None, 1]
    assert found.column("value_bytes").to_pylist() == [short, None, short, None]


@pytest.mark.parametrize("size", range(8))
def test_messages_behind_one_with_damaged_indexes_are_decoded(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, size: int
) -> None:
    text = 'syntax = "proto3"; message A {} message B { message C { int64 id = 1; } }'
    number = client.register_schema("orders-value", Schema(text, "PROTOBUF"))
    good = b"\0" + number.to_bytes(4, "big") + b"\4\2\0" + b"\x08\x07"
    short = good[:size]
    found = decoded_by_asyncio(registry, protobuf_columns, short, good, short)
    assert found.column("value").to_pylist() == [None, {"id": 7}, None]


def decoded_by_asyncio(registry: EmbeddedSchemaRegistry, columns: Any, *rows: bytes) -> Any:
    """Return a batch of rows, decoded as a consumer does it."""
    import pyarrow as pa

    batch = pa.record_batch({"value": pa.array(rows, pa.binary())})

    async def main() -> Any:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as asked:
            values = columns(asked, on_error="keep")
            load = values.unloaded(batch, "value")
            assert load is not None
            await load()
            return values.into(batch, "value")

    return run(main())


def test_key_and_value_of_a_record_are_decoded_by_one_decoder(
    pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    schema = {"title": "O", "type": "object", "properties": {"id": {"type": "integer"}}}
    number = client.register_schema("orders-value", Schema(json.dumps(schema), "JSON"))
    data, other = (b"\0" + of.to_bytes(4, "big") + b'{"id": 3}' for of in (number, 77))
    with KafkaProducer(bootstrap_servers=pykclient_cluster.bootstrap_servers) as producer:
        producer.send("orders", data, key=data, partition=0)
        producer.send("orders", other, key=other, partition=0)
        producer.flush(30)

    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url}) as asked,
            reading(pykclient_cluster.bootstrap_servers) as consumer,
        ):
            both = json_columns(asked, on_error="keep")
            batch = await consumer.getmany_arrow(timeout_ms=30_000, key=both, value=both)
            for name in ("key", "value"):
                assert batch.column(name).to_pylist() == [{"id": 3}, None]
                assert batch.column(f"{name}_bytes").to_pylist() == [None, other]

    run(main())


def test_decoder_of_an_asyncio_client_refuses_to_block(registry: EmbeddedSchemaRegistry) -> None:
    import pyarrow as pa

    batch = pa.record_batch({"value": pa.array([framed(ORDER, {"id": 1})], pa.binary())})
    with pytest.raises(IllegalStateError, match="give the decoder to getmany_arrow"):
        avro_columns(AsyncSchemaRegistryClient({"url": registry.url})).into(batch, "value")


@pytest.fixture
def group() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(1, {"group.share.heartbeat.interval.ms": 200}) as brokers:
        brokers.create_topic("orders", 1)
        set_group(brokers, "columns")
        yield brokers


SHARING: dict[str, Any] = {"share_acknowledgement_mode": "explicit", "group_id": "columns"}


def test_share_consumer_decodes_and_rejects_poison(group: EmbeddedKafka, client: SchemaRegistryClient) -> None:
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    write(group.bootstrap_servers, framed(ORDER, {"id": 1}, number), b"poison", framed(ORDER, {"id": 2}, number))
    strict, keeping = avro_columns(client), avro_columns(client, on_error="keep")
    with KafkaShareConsumer(bootstrap_servers=group.bootstrap_servers, **SHARING) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(RecordDeserializationError, match=r"offset 1 of orders-0 .*magic byte 112"):
            consumer.poll_arrow(30_000, columns=["value"], value=strict)
        batch = consumer.poll_arrow(30_000, columns=["topic", "partition", "offset", "value"], value=keeping)
        assert [row and row["id"] for row in batch.column("value").to_pylist()] == [1, None, 2]
        is_poison = batch.column("value_error").is_valid()
        consumer.acknowledge(batch)
        consumer.acknowledge(batch.filter(is_poison), AcknowledgeType.REJECT)
        assert list(consumer.commit_sync(30_000).values()) == [None]


@pytest.mark.parametrize("is_share", [False, True])
def test_batch_with_deleted_new_and_unknown_schemas_is_read_once_the_registry_is_back(
    group: EmbeddedKafka, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, is_share: bool
) -> None:
    old, new = (client.register_schema("orders-value", Schema(json.dumps(schema))) for schema in (ORDER, NEWER))
    client.delete_version("orders-value", 1)  # whose id the registry still knows
    gone = 99
    rows = [framed(ORDER, {"id": 1}, old), framed(NEWER, {"city": "Bonn", "number": 7, "tags": {}, "what": 1}, new)]
    write(group.bootstrap_servers, *rows, framed("string", "x", gone), framed(ORDER, {"id": 2}, old))
    with contextlib.ExitStack() as closing:
        if is_share:
            consumer: Any = KafkaShareConsumer("orders", bootstrap_servers=group.bootstrap_servers, **SHARING)
        else:
            consumer = KafkaConsumer(bootstrap_servers=group.bootstrap_servers, auto_offset_reset="earliest")
            consumer.assign([ORDERS])
        closing.enter_context(consumer)
        fresh = closing.enter_context(SchemaRegistryClient({"url": registry.url, "max.retries": 0}))
        registry.drop(times=1)  # as it does when it is restarted
        keeping, strict = avro_columns(fresh, on_error="keep"), avro_columns(fresh)
        with pytest.raises(SchemaRegistryError):
            consumer.poll_arrow(30_000, value=keeping)
        with pytest.raises(RecordDeserializationError, match=rf"offset 2 of orders-0 .*schema id {gone} is unknown"):
            consumer.poll_arrow(30_000, value=strict)
        batch = consumer.poll_arrow(30_000, value=keeping)
        assert [row and (row["number"], row["city"]) for row in batch.column("value").to_pylist()] == [
            *((1, "Ulm"), (7, "Bonn"), None, (2, "Ulm"))
        ]
        assert batch.column("value_bytes").to_pylist() == [None, None, framed("string", "x", gone), None]


def test_asyncio_share_consumer_decodes_and_does_not_block(
    group: EmbeddedKafka, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    write(group.bootstrap_servers, framed(ORDER, {"id": 1}, number), framed(ORDER, {"id": 2}, 99))
    registry.hold()

    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url}) as asked,
            AIOKafkaShareConsumer("orders", bootstrap_servers=group.bootstrap_servers, **SHARING) as consumer,
        ):
            values = avro_columns(asked, on_error="keep")
            begun = asked_by(asked)
            polling = asyncio.create_task(consumer.poll_arrow(30_000, value=values))
            await until(lambda: begun)
            registry.release()
            batch = await polling
            assert [row and row["id"] for row in batch.column("value").to_pylist()] == [1, None]
            assert batch.schema.names[-3:] == ["delivery_count", "value_error", "value_bytes"]
            consumer.acknowledge(batch)
            assert list((await consumer.commit_sync()).values()) == [None]

    run(main())


def test_stopped_share_consumer_returns_no_rows_whose_schema_comes_late(
    group: EmbeddedKafka, registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("orders-value", Schema(json.dumps(ORDER)))
    write(group.bootstrap_servers, framed(ORDER, {"id": 1}, number))
    registry.hold()

    async def main() -> None:
        async with (
            AsyncSchemaRegistryClient({"url": registry.url}) as asked,
            AIOKafkaShareConsumer("orders", bootstrap_servers=group.bootstrap_servers, **SHARING) as consumer,
        ):
            begun = asked_by(asked)
            polling = asyncio.create_task(consumer.poll_arrow(30_000, value=avro_columns(asked)))
            await until(lambda: begun)
            await consumer.stop(0.1)
            registry.release()
            with pytest.raises(ConsumerStoppedError):
                await polling

    run(main())
