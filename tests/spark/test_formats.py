"""Avro, JSON and Protobuf values as typed columns in Spark: types, options, errors, evolution."""

from __future__ import annotations

import datetime
import io
import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pykclient import KafkaProducer
from pykclient.errors import ConfigError, KafkaError
from pykclient.record import arrow
from pykclient.schema_registry import MessageField, Schema, SchemaRegistryClient, SerializationContext
from pykclient.schema_registry.json_schema import JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufSerializer
from pykclient.spark import KafkaDataSource
from pykclient.spark.batch_reader import KafkaBatchReader
from pykclient.spark.formats import column_formats
from pykclient.spark.options import ReadOptions
from pykclient.spark.schema import SparkBatches
from pykclient.testing import EmbeddedSchemaRegistry
from tests.schema_registry.test_object_columns import EVERYTHING
from tests.spark.test_schema import IN_UTC
from tests.support.embedded_kafka import EmbeddedKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "string"}],
}
NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


EVERY = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
    "null": "null",
    "fixed": {"type": "fixed", "name": "Three", "size": 3},
    "enum": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]},
    "array": {"type": "array", "items": {"type": "array", "items": logical("int", "time-millis")}},
    "map": {"type": "map", "values": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
    "record": {"type": "record", "name": "Inner", "fields": [{"name": "select", "type": ["null", "long"]}]},
    "either": ["null", "string", "long"],
    "decimal": logical("bytes", "decimal", precision=9, scale=2),
    "date": logical("int", "date"),
    "micros": logical("long", "time-micros"),
    "at_millis": logical("long", "timestamp-millis"),
    "at_micros": logical("long", "timestamp-micros"),
    "at_nanos": {"type": "long", "logicalType": "timestamp-nanos"},
    "local": logical("long", "local-timestamp-millis"),
    "uuid": logical("string", "uuid"),
}
MOMENT = datetime.datetime(2026, 11, 24, 9, 30, 0, 123_000, datetime.UTC)
VALUES: dict[str, Any] = {
    "boolean": True,
    "int": -1,
    "long": 1 << 40,
    "float": 0.5,
    "double": 0.25,
    "bytes": b"b",
    "string": "s",
    "null": None,
    "fixed": b"abc",
    "enum": "GREEN",
    "array": [[datetime.time(0, 0, 1)], []],
    "map": {"k": "L"},
    "record": {"select": 3},
    "either": 7,
    "decimal": Decimal("12.50"),
    "date": datetime.date(2026, 11, 24),
    "micros": datetime.time(0, 0, 1),
    "at_millis": MOMENT,
    "at_micros": MOMENT,
    "at_nanos": 5,
    "local": MOMENT.replace(tzinfo=None),
    "uuid": "6f1c2f5e-0000-4000-8000-000000000001",
}
IN_SPARK: dict[str, Any] = {
    **VALUES,
    "array": [[1000], []],
    "either": {"string": None, "long": 7},
    "micros": 1_000_000,
    "at_millis": MOMENT.replace(tzinfo=None),
    "at_micros": MOMENT.replace(tzinfo=None),
}


def record_of(types: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Every", "fields": [{"name": name, "type": of} for name, of in types.items()]}


def framed(schema: Any, value: Any, number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\x00" + number.to_bytes(4, "big") + out.getvalue()


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedSchemaRegistry]:
    with EmbeddedSchemaRegistry() as found:
        yield found


class Topic:
    """A topic of one partition, whose subject has schemas."""

    def __init__(self, name: str, kafka: EmbeddedKafka, registry: EmbeddedSchemaRegistry) -> None:
        self.name = kafka.create_topic(name, 1)
        self._servers = kafka.bootstrap_servers
        self._url = registry.url
        self.client = SchemaRegistryClient({"url": registry.url})

    def register(self, schema: Any, part: str = "value") -> int:
        return self.client.register_schema(f"{self.name}-{part}", Schema(json.dumps(schema)))

    def send(self, *values: bytes | None, key: bytes | None = None) -> None:
        with KafkaProducer(bootstrap_servers=self._servers) as producer:
            for value in values:
                producer.send(self.name, value, key)
            producer.flush(30)

    def options(self, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": self.name,
            "value.format": "avro",
            "schema.registry.url": self._url,
            "startingOffsets": "earliest",
            "fetchOffset.numRetries": "1",
            **more,
        }

    def read_options(self, **more: str) -> ReadOptions:
        return ReadOptions.parse(self.options(**more), streaming=False)

    def load(self, spark: SparkSession, schema: str | None = None, **more: str) -> DataFrame:
        reader = spark.read.format("pykclient").options(**self.options(**more))
        return (reader if schema is None else reader.schema(schema)).load()


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: EmbeddedKafka, registry: EmbeddedSchemaRegistry) -> Topic:
    return Topic(f"formats-{abs(hash(request.node.name)):x}", kafka, registry)


def test_the_arrow_types_are_those_that_spark_makes_of_the_ddl(spark: SparkSession, topic: Topic) -> None:
    topic.register(record_of(EVERY))
    source = KafkaDataSource(topic.options(columns="value,offset"))
    ddl = source.schema()
    assert isinstance(ddl, str)
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    reader = source.reader(schema)
    assert isinstance(reader, KafkaBatchReader)
    formats = reader.task.formats or {}
    batches = SparkBatches(("value", "offset"), {name: each.decoder() for name, each in formats.items()})
    assert batches._schema.equals(to_arrow_schema(schema, **IN_UTC), check_metadata=True)
    assert batches.source_columns == ["value", "offset", "topic", "partition"]


JSON = {"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {}}}}


def other_formats(topic: Topic) -> dict[str, list[bytes | None]]:
    """Return the rows of two topics whose subjects have schemas of other formats, by format."""
    topic.client.register_schema(f"{topic.name}-value", Schema(json.dumps(JSON), "JSON"))
    context = SerializationContext(topic.name, MessageField.VALUE)
    write_json = JSONSerializer(json.dumps(JSON), topic.client)
    context_of_keys = SerializationContext(topic.name, MessageField.KEY)
    write = ProtobufSerializer(EVERYTHING, topic.client, {"auto.register.schemas": True})
    message = EVERYTHING(a_uint32=2**32 - 1, a_uint64=2**64 - 1, state=1, text="t")
    message.at.seconds, message.took.seconds, message.wrapped.value = 1, 90, 7
    message.parts[3].name = "three"
    return {
        "json": [write_json({"id": 1, "tags": ["a", 2]}, context)],
        "protobuf": [write(message, context_of_keys)],
    }


def test_types_of_other_formats_are_those_that_spark_makes_of_the_ddl(spark: SparkSession, topic: Topic) -> None:
    other_formats(topic)
    options = topic.options(columns="key,value,offset", **{"value.format": "json", "key.format": "protobuf"})
    source = KafkaDataSource(options)
    ddl = source.schema()
    assert isinstance(ddl, str)
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    assert schema["value"].dataType.simpleString() == "struct<id:bigint,tags:array<string>>"
    reader = source.reader(schema)
    assert isinstance(reader, KafkaBatchReader)
    formats = pickle.loads(pickle.dumps(reader.task.formats or {}))
    batches = SparkBatches(("key", "value"), {name: each.decoder() for name, each in formats.items()})
    expected = to_arrow_schema(StructType([schema["key"], schema["value"]]), **IN_UTC)
    assert batches._schema.equals(expected, check_metadata=True)


def test_ids_in_headers_are_read_by_queries_that_read_headers(topic: Topic) -> None:
    number = topic.register(ORDER)
    body = framed(ORDER, {"id": 1, "city": "Ulm"}, number)
    headers = [{"key": "__value_schema_id", "value": body[:5]}]
    row = {"topic": topic.name, "partition": 0, "offset": 0, "value": body[5:], "headers": headers}
    decoders = {name: each.decoder() for name, each in column_formats(topic.read_options()).items()}
    batches = SparkBatches(("value", "headers"), decoders)
    batch = pa.RecordBatch.from_pylist([row], arrow.schema(tuple(batches.source_columns)))
    (found,) = batches.convert(batch).to_pylist()
    assert found["value"] == {"id": 1, "city": "Ulm"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_json_and_protobuf_become_typed_columns(spark: SparkSession, topic: Topic) -> None:
    rows = other_formats(topic)
    topic.send(rows["json"][0], b"poison", key=rows["protobuf"][0])
    given = {"value.format": "json", "key.format": "protobuf", "key.message": "shop.Everything"}
    first, second = topic.load(spark, mode="permissive", **given).select("key", "value", "value_error").collect()
    assert first.value.asDict() == {"id": 1, "tags": ['"a"', "2"]}
    found = first.key.asDict(recursive=True)
    assert (found["a_uint32"], found["a_uint64"]) == (2**32 - 1, Decimal(2**64 - 1))
    assert (found["state"], found["text"], found["wrapped"], found["inner"]) == ("PAID", "t", 7, None)
    assert found["took"] == datetime.timedelta(seconds=90)
    assert found["parts"] == {3: {"name": "three"}}
    assert second.value is None
    assert "Invalid magic byte 112" in second.value_error


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_type_matches_from_avro(spark: SparkSession, topic: Topic) -> None:
    schema = record_of(EVERY)
    number = topic.register(schema)
    topic.send(framed(schema, VALUES, number), None)
    rows = topic.load(spark).select("offset", "value").collect()
    assert [row.offset for row in rows] == [0, 1]
    found = rows[0].value.asDict(recursive=True)
    assert {name: bytes(each) if isinstance(each, bytearray) else each for name, each in found.items()} == IN_SPARK
    assert rows[1].value is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fields_are_selected_by_option_or_by_schema(spark: SparkSession, topic: Topic) -> None:
    number = topic.register(ORDER)
    topic.send(*(framed(ORDER, {"id": place, "city": "Ulm"}, number) for place in range(3)))
    by_option = topic.load(spark, **{"value.fields": "city"})
    assert by_option.schema["value"].dataType.simpleString() == "struct<city:string>"
    assert [row.city for row in by_option.select("value.*").collect()] == ["Ulm"] * 3
    by_schema = topic.load(spark, "value struct<id: int>, offset bigint")
    assert by_schema.where("value.id > 0").select("value.id", "offset").collect() == [(1, 1), (2, 2)]
    with pytest.raises(AnalysisException, match=r"'value' has the type .*leave the schema out"):
        topic.load(spark, "value struct<id: bigint>").collect()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stream_keeps_its_initial_schema_for_newer_records(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    number = topic.register(ORDER)
    topic.register('"string"'.strip('"'), "key")
    topic.send(framed(ORDER, {"id": 1, "city": "Ulm"}, number), key=framed("string", "k", number + 1))
    frame = spark.readStream.format("pykclient").options(**topic.options()).load()
    found: list[tuple[int, str]] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.extend(tuple(row) for row in batch.select("value.*").collect())

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        newer = topic.register(NEWER)
        topic.send(framed(NEWER, {"id": 2, "city": "Bonn", "note": "n"}, newer))
        query.processAllAvailable()
    finally:
        query.stop()
    assert found == [(1, "Ulm"), (2, "Bonn")]
    again = topic.load(spark, mode="permissive", **{"key.format": "avro"})
    rows = again.select("key", "value.*", "value_error").collect()
    assert [tuple(row) for row in rows] == [("k", 1, "Ulm", None, None), (None, 2, "Bonn", "n", None)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_undecodable_records_fail_or_become_null_with_a_reason(spark: SparkSession, topic: Topic) -> None:
    number = topic.register(ORDER)
    alien = topic.client.register_schema("another", Schema('"long"'))
    good = framed(ORDER, {"id": 1, "city": "Ulm"}, number)
    bad = [b"poison", b"\0\0\0\x27\x0f\x02", good[:-1], b"\0" + alien.to_bytes(4, "big") + b"\2"]
    topic.send(good, *bad, None)
    with pytest.raises(PythonException, match=rf"offset 1 of {topic.name}-0 .*magic byte.*mode to PERMISSIVE"):
        topic.load(spark).collect()
    rows = topic.load(spark, mode="PERMISSIVE").orderBy("offset").collect()
    assert [row.value and row.value.id for row in rows] == [1, None, None, None, None, None]
    assert [row.value_bytes and bytes(row.value_bytes) for row in rows] == [None, *bad, None]
    reasons = [row.value_error for row in rows]
    assert (reasons[0], reasons[5]) == (None, None)
    for reason, text in zip(
        reasons[1:5],
        ["magic byte", "schema id 9999 is unknown", "the bytes end inside", "cannot read the writer's long"],
        strict=True,
    ):
        assert text in reason
    only = topic.load(spark, mode="PERMISSIVE", columns="value_error,offset").where("value_error is not null")
    assert only.count() == 4


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_given_schema_is_used_and_unknown_subject_fails_on_load(spark: SparkSession, topic: Topic) -> None:
    other = {**ORDER, "fields": [{"name": "id", "type": "long"}, {"name": "more", "type": "int", "default": 5}]}
    number = topic.client.register_schema("elsewhere", Schema(json.dumps(ORDER)))
    topic.send(framed(ORDER, {"id": 1, "city": "Ulm"}, number))
    with pytest.raises(AnalysisException, match=rf"Subject '{topic.name}-value' not found"):
        topic.load(spark)
    frame = topic.load(spark, **{"value.schema": json.dumps(other)})
    assert [tuple(row.value) for row in frame.collect()] == [(1, 5)]
    assert [tuple(row.value) for row in topic.load(spark, **{"value.subject": "elsewhere"}).collect()] == [(1, "Ulm")]


BASIC = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
AVRO = {**BASIC, "value.format": "Avro", "schema.registry.url": "http://localhost:1"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({**BASIC, "value.format": "avro"}, r"option schema\.registry\.url must be set"),
        ({**AVRO, "value.format": "xml"}, r"value\.format must be avro or json or protobuf, not 'xml'"),
        ({**AVRO, "value.message": "shop.Other"}, r"value\.message needs value\.format=protobuf"),
        ({**AVRO, "value.schema": '"int"', "value.subject": "s"}, r"one of the options value\.schema and"),
        ({**AVRO, "value.fields": " , "}, r"value\.fields names no field"),
        ({**AVRO, "mode": "dropmalformed"}, r"mode must be FAILFAST or PERMISSIVE"),
        ({**BASIC, "mode": "permissive"}, r"option mode needs value\.format or key\.format"),
        ({**BASIC, "schema.registry.url": "http://h"}, r"schema\.registry\.url needs value\.format"),
        ({**AVRO, "columns": "value_error"}, r"there is no column 'value_error'"),
        ({**AVRO, "columns": "key_bytes", "mode": "permissive"}, r"value_bytes; there is no column 'key_bytes'"),
    ],
)
def test_conflicting_format_options_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ReadOptions.parse(options, streaming=False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({**AVRO, "subscribe": "a,b"}, r"needs value\.subject or value\.schema, .*several topics \(topics a, b\)"),
        ({**AVRO, "schema.registry.url": "ftp://h"}, r"a schema\.registry\.\* option is wrong: .*http://host:port"),
        ({**AVRO, "schema.registry.retries": "1"}, r"a schema\.registry\.\* option is wrong: .*retries"),
        ({**AVRO, "value.schema": "{"}, r"not a valid Avro schema"),
        ({**AVRO, "value.schema": json.dumps(ORDER), "value.fields": "nope"}, r"no field nope"),
    ],
)
def test_unresolvable_formats_raise_on_load(options: dict[str, str], text: str) -> None:
    with pytest.raises(KafkaError, match=text):
        KafkaDataSource(options).schema()


def test_registry_secrets_reach_tasks_but_are_not_shown() -> None:
    options = {**AVRO, "value.schema": json.dumps(ORDER), "schema.registry.basic.auth.user.info": "me:hush"}
    source = KafkaDataSource(options)
    source.schema()
    order = StructType([StructField("id", IntegerType()), StructField("city", StringType())])
    schema = StructType([StructField("value", order)])
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    task = pickle.loads(pickle.dumps(reader)).task
    assert dict(task.formats["value"].registry)["basic.auth.user.info"] == "me:hush"
    for shown in (repr(task), repr(task.formats), repr(ReadOptions.parse(options, streaming=False))):
        assert "hush" not in shown
