"""Measure the CPU time per record of Avro, JSON and Protobuf by a registry's schemas: ``python -m benchmarks.schemas``.

Prints a table, with confluent-kafka's serializers in it. Rounds are interleaved, and figures are the medians of the
rounds' CPU time of the thread that works: the clients read and write an embedded cluster, whose brokers have threads of
their own. ``--rounds N`` and ``--records N`` change the extent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.schema_registry import (
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    avro_columns,
    avro_encoder,
    json_encoder,
    protobuf_encoder,
)
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.json_schema import JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufSerializer
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry

TOPIC, WRITTEN = "orders", "written"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "city", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "customer", "type": "string"},
        {"name": "weight", "type": "float"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seller", "type": "long"},
    ],
}
#: The types of the same fields in JSON Schema, and those of Protobuf. Times are numbers.
JSON_TYPES = {
    "id": "integer",
    "count": "integer",
    "city": "string",
    "price": "number",
    "paid": "boolean",
    "note": "string",
    "customer": "string",
    "weight": "number",
    "at": "integer",
    "seller": "integer",
}
PROTOBUF_TYPES = {"integer": "INT64", "string": "STRING", "number": "DOUBLE", "boolean": "BOOL"}
#: Serializers work on so many records, as one takes several microseconds.
SINGLE = 2_000
#: Consumers by record read so many, which is more than a fetch has.
BY_RECORDS = 20_000


class Goal(NamedTuple):
    """An upper bound of the ratio of two rows."""

    row: str
    to: str
    bound: float

    def verdict(self, figures: dict[str, float]) -> str:
        ratio = figures[self.row] / figures[self.to]
        verdict = "met" if ratio <= self.bound else "missed"
        return f"{self.row} / {self.to}: {ratio:.3f} (at most {self.bound:g}: {verdict})"


PLAIN, COLUMNS, TWO_COLUMNS = "poll_arrow", "poll_arrow, avro_columns", "poll_arrow, avro_columns of two fields"
BYTES_BY_RECORD, BY_RECORD, THEIRS_BY_RECORD = (
    "poll",
    "poll, AvroDeserializer",
    "confluent-kafka's consume, AvroDeserializer",
)
DECODED, BY_OURS, BY_THEIRS = "avro_columns", "AvroDeserializer", "confluent-kafka's AvroDeserializer"
SENT, ENCODED_SENT = "send_batch of bytes", "send_batch, avro_encoder"
ENCODED, WRITTEN_BY_OURS, WRITTEN_BY_THEIRS = "avro_encoder", "AvroSerializer", "confluent-kafka's AvroSerializer"
OBJECT_ROWS = {
    format: (encoder, f"{name}Serializer", f"confluent-kafka's {name}Serializer")
    for format, encoder, name in (("json", "json_encoder", "JSON"), ("protobuf", "protobuf_encoder", "Protobuf"))
}
GOALS = (
    Goal(DECODED, BY_THEIRS, 0.1),
    Goal(COLUMNS, PLAIN, 1.5),
    Goal(ENCODED, WRITTEN_BY_THEIRS, 0.1),
    *(
        Goal(OBJECT_ROWS[format][0], OBJECT_ROWS[format][2], bound)
        for format, bound in (("json", 1.1), ("protobuf", 1.8))
    ),
)


def table_of(rows: int) -> pa.Table:
    """Return records of about 60 bytes in Avro; one of two has a note."""
    chance = random.Random(1)
    return pa.table(
        {
            "id": pa.array([chance.getrandbits(40) for _ in range(rows)], pa.int64()),
            "count": pa.array([chance.getrandbits(12) for _ in range(rows)], pa.int32()),
            "city": [f"city {row % 100}" for row in range(rows)],
            "price": [chance.random() for _ in range(rows)],
            "paid": [row % 2 == 0 for row in range(rows)],
            "note": ["by hand" if row % 2 else None for row in range(rows)],
            "customer": [f"customer {row}" for row in range(rows)],
            "weight": pa.array([0.5] * rows, pa.float32()),
            "at": pa.array([1_700_000_000_000 + row for row in range(rows)], pa.timestamp("ms", "UTC")),
            "seller": pa.array([chance.getrandbits(16) for _ in range(rows)], pa.int64()),
        }
    )


def message_class() -> Any:
    """Return the class of messages with the same fields."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto.Type
    for number, (name, of) in enumerate(JSON_TYPES.items(), 1):
        message.field.add(name=name, number=number, label=1, type=kinds.Value(f"TYPE_{PROTOBUF_TYPES[of]}"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def object_cases(
    client: SchemaRegistryClient, theirs: Any, their_context: Any, batch: pa.RecordBatch
) -> dict[str, tuple[Callable[[], object], int]]:
    """Return the rows of JSON and Protobuf: an encoder of columns beside a loop that makes objects and writes them."""
    from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJSON
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobuf

    place = batch.schema.get_field_index("at")
    batch = batch.set_column(place, "at", batch.column(place).cast(pa.int64()))
    place = batch.schema.get_field_index("weight")
    batch = batch.set_column(place, "weight", batch.column(place).cast(pa.float64()))
    properties = {name: {"type": of} for name, of in JSON_TYPES.items()}
    text = json.dumps({"title": "Order", "type": "object", "properties": properties})
    kind = message_class()
    plain = [{name: value for name, value in row.items() if value is not None} for row in batch.to_pylist()]
    ours = SerializationContext(TOPIC, MessageField.VALUE)
    registering = {"auto.register.schemas": True}
    conf = {**registering, "subject.name.strategy.type": "TOPIC"}
    found: dict[str, tuple[Callable[[], object], int]] = {}
    client.set_compatibility(level="NONE")
    for format, encoder, make, serializers in (
        (
            "json",
            json_encoder(client, Schema(text, "JSON"), conf=registering),
            dict,
            (JSONSerializer(text, client, conf=registering), TheirJSON(text, theirs, lambda row, _: row, conf=conf)),
        ),
        (
            "protobuf",
            protobuf_encoder(client, kind, conf=registering),
            kind,
            (ProtobufSerializer(kind, client, registering), TheirProtobuf(kind, theirs, conf)),
        ),
    ):
        by_columns, by_ours, by_theirs = OBJECT_ROWS[format]
        found[by_columns] = (partial(encoder.encode_rows, batch, TOPIC, "value", frozenset()), batch.num_rows)
        for name, serializer, context in ((by_ours, serializers[0], ours), (by_theirs, serializers[1], their_context)):
            found[name] = (partial(write_all, serializer, make, plain, context), batch.num_rows)
    return found


def write_all(serializer: Any, make: Callable[..., Any], rows: list[dict[str, Any]], context: object) -> None:
    """Make an object of each row and write it."""
    for row in rows:
        serializer(make(**row), context)


@contextlib.contextmanager
def cases(records: int) -> Iterator[dict[str, tuple[Callable[[], object], int]]]:
    """Yield what to run for each row, and its number of records."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import confluent_kafka
        import confluent_kafka.schema_registry as confluent
        import confluent_kafka.schema_registry.avro as confluent_avro
        from confluent_kafka.serialization import MessageField as TheirField, SerializationContext as TheirContext
    with (
        EmbeddedSchemaRegistry() as registry,
        SchemaRegistryClient({"url": registry.url}) as client,
        EmbeddedCluster() as cluster,
    ):
        servers = cluster.bootstrap_servers
        text = json.dumps(SCHEMA)
        for topic in (TOPIC, WRITTEN):
            client.register_schema(f"{topic}-value", Schema(text))
        (batch,) = table_of(records).to_batches()
        encoder = avro_encoder(client, conf={"use.latest.version": True})
        column = encoder.encode_rows(batch, TOPIC, "value", frozenset())
        values = [column[row] or b"" for row in range(records)]
        encoded = pa.array(values, pa.binary())
        single, several = min(SINGLE, records), min(BY_RECORDS, records)
        objects = batch.slice(0, SINGLE).to_pylist()
        ours, theirs = SerializationContext(TOPIC, MessageField.VALUE), TheirContext(TOPIC, TheirField.VALUE)
        their_client = confluent.SchemaRegistryClient({"url": registry.url})
        conf = {"subject.name.strategy.type": "TOPIC"}
        reading = AvroDeserializer(client), confluent_avro.AvroDeserializer(their_client, conf=conf)
        writing = (
            AvroSerializer(client, text),
            confluent_avro.AvroSerializer(their_client, text, conf={**conf, "auto.register.schemas": False}),
        )
        decoder, two = avro_columns(client), avro_columns(client, columns=["id", "city"])
        partition = TopicPartition(TOPIC, 0)
        with (
            KafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer,
            KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
            KafkaConsumer(bootstrap_servers=servers, value_deserializer=reading[0]) as by_record,
            contextlib.closing(confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "theirs"})) as peer,
        ):
            producer.send_batch(TOPIC, encoded, partition=0).get(60)
            consumer.assign([partition])
            by_record.assign([partition])

            def poll(value: Any) -> None:
                consumer.seek(partition, 0)
                left = records
                while left > 0:
                    left -= consumer.poll_arrow(10_000, value=value, columns=["value"]).num_rows

            def poll_records(of: Any) -> None:
                of.seek(partition, 0)
                left = several
                while left > 0:
                    left -= sum(map(len, of.poll(10_000, max_records=left).values()))

            def consume_theirs() -> None:
                peer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
                left = several
                while left > 0:
                    messages = peer.consume(left, 10)
                    left -= len([reading[1](message.value(), theirs) for message in messages])

            yield {
                PLAIN: (lambda: poll(None), records),
                COLUMNS: (lambda: poll(decoder), records),
                TWO_COLUMNS: (lambda: poll(two), records),
                DECODED: (lambda: decoder.decode(encoded), records),
                BYTES_BY_RECORD: (lambda: poll_records(consumer), several),
                BY_RECORD: (lambda: poll_records(by_record), several),
                THEIRS_BY_RECORD: (consume_theirs, several),
                BY_OURS: (lambda: [reading[0](value, ours) for value in values[:SINGLE]], single),
                BY_THEIRS: (lambda: [reading[1](value, theirs) for value in values[:SINGLE]], single),
                SENT: (lambda: producer.send_batch(WRITTEN, encoded, partition=0).get(60), records),
                ENCODED_SENT: (
                    lambda: producer.send_batch(WRITTEN, batch, value=encoder, partition=0).get(60),
                    records,
                ),
                ENCODED: (lambda: encoder.encode_rows(batch, TOPIC, "value", frozenset()), records),
                WRITTEN_BY_OURS: (lambda: [writing[0](value, ours) for value in objects], single),
                WRITTEN_BY_THEIRS: (lambda: [writing[1](value, theirs) for value in objects], single),
                **object_cases(client, their_client, theirs, batch.slice(0, SINGLE)),
            }
        their_client.close()


def measured(rounds: int, records: int) -> dict[str, float]:
    """Return the microseconds of CPU per record of each row: the median of the rounds after the first."""
    found: dict[str, list[float]] = {}
    with cases(records) as rows:
        for number in range(rounds + 1):
            for name, (work, count) in rows.items():
                start = time.thread_time()
                work()
                if number:  # the first one imports and compiles
                    found.setdefault(name, []).append((time.thread_time() - start) / count * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schemas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args(arguments)
    figures = measured(options.rounds, options.records)
    for name, microseconds in figures.items():
        print(f"{name:46} {microseconds:8.3f} us")
    for goal in GOALS:
        print(goal.verdict(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
