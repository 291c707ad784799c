"""Typed columns written as Avro by Spark's sink: types, options, errors, evolution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import IntegerType, StructType

from pykclient import KafkaConsumer, TopicPartition
from pykclient.errors import ConfigError, IllegalArgumentError, KafkaError
from pykclient.schema_registry import Schema, SchemaRegistryClient, avro_columns
from pykclient.schema_registry.avro import AvroDeserializer
from pykclient.spark import KafkaDataSource
from pykclient.spark.options import WriteOptions
from pykclient.testing import EmbeddedSchemaRegistry
from tests.spark.test_formats import EVERY, IN_SPARK, NEWER, ORDER, VALUES, framed, record_of
from tests.support.embedded_kafka import EmbeddedKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def registry() -> Iterator[EmbeddedSchemaRegistry]:
    with EmbeddedSchemaRegistry() as found:
        yield found


@pytest.fixture
def client(registry: EmbeddedSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as found:
        yield found


class Topic:
    """A topic of one partition, and the options to write it."""

    def __init__(self, name: str, kafka: EmbeddedKafka, registry: EmbeddedSchemaRegistry) -> None:
        self.name = kafka.create_topic(name, 1)
        self.servers = kafka.bootstrap_servers
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": self.name,
            "value.format": "avro",
            "schema.registry.url": registry.url,
        }

    def write(self, frame: DataFrame, **more: str) -> None:
        frame.write.format("pykclient").options(**{**self.options, **more}).mode("append").save()

    def values(self, client: SchemaRegistryClient, count: int) -> list[Any]:
        with KafkaConsumer(
            bootstrap_servers=self.servers, auto_offset_reset="earliest", value_deserializer=AvroDeserializer(client)
        ) as consumer:
            consumer.assign([TopicPartition(self.name, 0)])
            found: list[Any] = []
            while len(found) < count:
                records = consumer.poll(30_000)
                assert records
                found += [record.value for each in records.values() for record in each]
        return found


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: EmbeddedKafka, registry: EmbeddedSchemaRegistry) -> Topic:
    return Topic(f"written-{abs(hash(request.node.name)):x}", kafka, registry)


def orders(spark: SparkSession, *rows: tuple[Any, ...], types: str = "id int, city string") -> DataFrame:
    from pyspark.sql.functions import struct

    frame = spark.createDataFrame(list(rows), types)
    return frame.select(struct(*frame.columns).alias("value"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_readable_type_can_be_written(
    spark: SparkSession, topic: Topic, client: SchemaRegistryClient, kafka: EmbeddedKafka
) -> None:
    schema = record_of(EVERY)
    number = client.register_schema("every-value", Schema(json.dumps(schema)))
    source = kafka.create_topic("every-source", 1)
    from pykclient import KafkaProducer

    with KafkaProducer(bootstrap_servers=topic.servers) as producer:
        producer.send(source, framed(schema, VALUES, number), partition=0)
        producer.send(source, None, partition=0)
        producer.flush(30)
    reading = {
        "kafka.bootstrap.servers": topic.servers,
        "startingOffsets": "earliest",
        "value.format": "avro",
        "schema.registry.url": topic.options["schema.registry.url"],
        "value.subject": "every-value",
    }
    frame = spark.read.format("pykclient").options(**reading, subscribe=source).load().orderBy("offset")
    topic.write(frame.select("value").coalesce(1), **{"value.subject": "every-value"})
    rows = spark.read.format("pykclient").options(**reading, subscribe=topic.name).load().orderBy("offset").collect()
    found = rows[0].value.asDict(recursive=True)
    assert {name: bytes(each) if isinstance(each, bytearray) else each for name, each in found.items()} == IN_SPARK
    assert rows[1].value is None
    with KafkaConsumer(bootstrap_servers=topic.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic.name, 0)])
        batch = consumer.poll_arrow(30_000, columns=["value"])
    assert batch.column("value")[0].as_py() == framed(schema, VALUES, number)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_schema_is_resolved_and_misfits_fail_before_writing(
    spark: SparkSession, topic: Topic, client: SchemaRegistryClient
) -> None:
    frame = orders(spark, (1, "Ulm"))
    with pytest.raises(PySparkException, match=rf"Subject '{topic.name}-value' not found"):
        topic.write(frame)
    topic.write(frame, **{"schema.registry.auto.register.schemas": "true"})
    text = client.get_latest_version(f"{topic.name}-value").schema.schema_str or ""
    assert json.loads(text)["fields"][0] == {"name": "id", "type": ["null", "int"], "default": None}
    topic.write(orders(spark, (2, "Bonn")))
    client.set_compatibility(f"{topic.name}-value", "NONE")
    given = {"value.schema": json.dumps(ORDER), "schema.registry.auto.register.schemas": "true"}
    topic.write(orders(spark, (3, "Köln")), **given)
    with pytest.raises(PySparkException, match=r"field 'value.id': the column has string, and the schema int"):
        topic.write(orders(spark, ("4", "Mainz"), types="id string, city string"))
    with pytest.raises(PySparkException, match=r"row 0, field 'value.city' is null, which the schema's string is not"):
        topic.write(orders(spark, (5, None)))
    client.set_compatibility(f"{topic.name}-value", "BACKWARD")
    wrong = orders(spark, ("4", "Mainz"), types="id string, city string")
    with pytest.raises(PySparkException, match=r"incompatible with an earlier schema"):
        topic.write(wrong, **{"schema.registry.auto.register.schemas": "true"})
    assert topic.values(client, 3) == [
        {"id": 1, "city": "Ulm"},
        {"id": 2, "city": "Bonn"},
        {"id": 3, "city": "Köln"},
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_micro_batches_use_the_latest_schema(
    spark: SparkSession, topic: Topic, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    subject = f"{topic.name}-value"
    client.register_schema(subject, Schema(json.dumps(ORDER)))
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "0.json").write_text('{"key": 1, "value": {"id": 1, "city": "Ulm"}}\n')
    types = "key bigint, value struct<id: int, city: string>"
    frame = spark.readStream.schema(types).json(str(rows))
    key = {"key.format": "avro", "key.schema": '"long"', "key.subject": "keys"}
    client.register_schema("keys", Schema('{"type":"long"}'))
    exactly_once = {"delivery": "exactly-once", "transactionalIdPrefix": topic.name}
    options = {**topic.options, **key, **exactly_once, "checkpointLocation": str(tmp_path / "checkpoint")}
    query = frame.writeStream.format("pykclient").options(**options).start()
    try:
        query.processAllAvailable()
        newer = client.register_schema(subject, Schema(json.dumps(NEWER)))
        (rows / "1.json").write_text('{"key": 2, "value": {"id": 2, "city": "Bonn"}}\n')
        query.processAllAvailable()
    finally:
        query.stop()
    with KafkaConsumer(
        bootstrap_servers=topic.servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition(topic.name, 0)])
        found: list[tuple[int, Any]] = []
        values, keys = avro_columns(client, Schema(json.dumps(NEWER))), avro_columns(client)
        ids = set()
        while len(found) < 2:
            batch = consumer.poll_arrow(30_000, columns=["key", "value"])
            assert batch.num_rows
            ids |= {int.from_bytes(each.as_py()[1:5]) for each in batch.column("value")}
            decoded = values.into(keys.into(batch, "key"), "value")
            found += zip(decoded.column("key").to_pylist(), decoded.column("value").to_pylist(), strict=True)
    assert found == [(1, {"id": 1, "city": "Ulm", "note": None}), (2, {"id": 2, "city": "Bonn", "note": None})]
    assert newer in ids
    assert len(ids) == 2


def typed(ddl: str) -> StructType:
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType)
    return made


AVRO = {
    "kafka.bootstrap.servers": "localhost:9092",
    "topic": "t",
    "value.format": "avro",
    "schema.registry.url": "http://localhost:1",
}
PLAIN = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({**PLAIN, "value.format": "avro"}, r"option schema\.registry\.url must be set"),
        ({**AVRO, "value.format": "xml"}, r"value\.format must be avro or json or protobuf, not 'xml'"),
        ({**AVRO, "value.message": "M"}, r"option value\.message needs value\.format=protobuf"),
        ({**AVRO, "value.fields": "a"}, r"option 'value.fields' has no meaning where Kafka is written"),
        ({**AVRO, "mode": "permissive"}, r"option 'mode' has no meaning where Kafka is written"),
        ({**PLAIN, "key.schema": '"int"'}, r"option key\.schema needs value\.format or key\.format"),
        ({**AVRO, "schema.registry.auto.register.schemas": "1"}, r"auto\.register\.schemas must be true or false"),
    ],
)
def test_conflicting_format_options_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        WriteOptions.parse(options, streaming=False)


def test_unresolvable_columns_are_refused() -> None:
    by_row = {name: value for name, value in AVRO.items() if name != "topic"}
    with pytest.raises(ConfigError, match=r"needs value\.subject, as each row names its topic"):
        KafkaDataSource(by_row).writer(typed("topic string, value int"), False)
    with pytest.raises(IllegalArgumentError, match=r"the option key\.format needs a column 'key'"):
        KafkaDataSource({**AVRO, "key.format": "avro"}).writer(typed("value int"), False)
    options = {**AVRO, "schema.registry.max.retries": "0"}
    with pytest.raises(KafkaError, match=r"http://localhost:1"):
        KafkaDataSource(options).writer(typed("value int"), False)


@pytest.mark.parametrize("format", ["json", "protobuf"])
def test_only_schemas_of_avro_are_derived(registry: EmbeddedSchemaRegistry, format: str) -> None:
    options = {**AVRO, "value.format": format, "schema.registry.url": registry.url}
    options["schema.registry.auto.register.schemas"] = "true"
    with pytest.raises(ConfigError, match=rf"value\.format={format} needs value\.schema to register a schema"):
        KafkaDataSource(options).writer(StructType().add("value", StructType().add("id", IntegerType())), False)


OBJECT = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "city": {"type": "string"}, "price": {"type": "number"}},
    "required": ["id"],
}
MESSAGES = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 a = 1; }
message Order {
  int64 id = 1; string city = 2; uint64 large = 3; google.protobuf.Timestamp at = 4; repeated int32 n = 5;
}
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_json_and_protobuf_are_written_as_they_are_read(
    spark: SparkSession, topic: Topic, client: SchemaRegistryClient, kafka: EmbeddedKafka
) -> None:
    client.register_schema(f"{topic.name}-value", Schema(json.dumps(OBJECT), "JSON"))
    client.register_schema(f"{topic.name}-key", Schema(MESSAGES, "PROTOBUF"))
    formats = {"value.format": "json", "key.format": "protobuf", "key.message": "shop.Order"}
    columns = [
        "struct(7L AS id, 'Ulm' AS city, CAST(18446744073709551615 AS DECIMAL(20, 0)) AS large, "
        "TIMESTAMP'2024-01-02 03:04:05.678' AS at, array(1, 2) AS n) AS key",
        "struct(1L AS id, CAST(NULL AS STRING) AS city, 1.5D AS price) AS value",
    ]
    topic.write(spark.range(1).selectExpr(*columns), **formats)
    reading = {"startingOffsets": "earliest", "subscribe": topic.name, **formats}
    options = {name: value for name, value in topic.options.items() if name != "topic"}
    (row,) = spark.read.format("pykclient").options(**{**options, **reading}).load().select("key", "value").collect()
    (written,) = spark.range(1).selectExpr(*columns).collect()
    assert row.asDict(recursive=True) == written.asDict(recursive=True)
    with pytest.raises(PySparkException, match=r"field 'value.id': the column has string, and the schema integer"):
        topic.write(spark.range(1).selectExpr("struct('1' AS id) AS value"), **{"value.format": "json"})
    with pytest.raises(PySparkException, match=rf"for topic '{topic.name}': row 0: .*schema has type"):
        topic.write(spark.range(1).selectExpr("struct(CAST(NULL AS INT) AS id) AS value"), **{"value.format": "json"})


def test_registry_secrets_are_hidden(registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient) -> None:
    client.register_schema("t-value", Schema('{"type":"int"}'))
    options = {**AVRO, "schema.registry.url": registry.url, "schema.registry.basic.auth.user.info": "me:hush"}
    writer: Any = KafkaDataSource(options).writer(typed("value int"), False)
    assert dict(writer._formats["value"].registry)["basic.auth.user.info"] == "me:hush"
    encoded = writer._encoders()["value"].encode_rows(
        pa.record_batch({"value": pa.array([3], pa.int32())}), "t", "value", frozenset()
    )
    assert encoded[0] == b"\0\0\0\0\1\6"
    for shown in (repr(writer), repr(writer._formats), repr(writer._options)):
        assert "hush" not in shown
