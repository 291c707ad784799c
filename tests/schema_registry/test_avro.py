"""Avro serializers: bytes, resolution, rules, models, and what they say about damaged records."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import struct
import uuid
import zlib
from typing import Annotated, Any

import fastavro
import msgspec
import pydantic
import pytest

from pykclient.errors import ConfigError, SerializationError
from pykclient.schema_registry import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    SerializationContext,
    header_schema_id_serializer,
    prefix_schema_guid_serializer,
    record_subject_name_strategy,
)
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.models import DecimalSize, avro_schema
from pykclient.schema_registry.rules import RuleError, RuleOverride, RuleRegistry
from pykclient.schema_registry.schemas import Metadata, MetadataTags, Rule, RuleKind, RuleMode, RuleParams, RuleSet
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry

VALUE = SerializationContext("orders", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)


def test_round_trip_with_the_id_before_the_data(client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, ORDER, conf=REGISTER)({"id": 7, "note": "x"}, VALUE)
    assert data == struct.pack(">bI", 0, 1) + b"\x0e\x02\x02x"
    assert AvroDeserializer(client)(data, VALUE) == {"id": 7, "note": "x"}
    assert AvroDeserializer(client)(None, VALUE) is None
    assert AvroSerializer(client, ORDER)(None, VALUE) is None


def test_schemas_are_not_registered_unless_asked_for(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError, match=r"does not register schemas.*schemas register orders-value"):
        AvroSerializer(client, ORDER)({"id": 7}, VALUE)
    client.register_schema("orders-value", Schema(ORDER))
    assert AvroSerializer(client, ORDER)({"id": 7}, VALUE) is not None


def test_one_lookup_for_all_records(registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient) -> None:
    serializer, deserializer = AvroSerializer(client, ORDER, conf=REGISTER), AvroDeserializer(client)
    for number in range(10):
        assert deserializer(serializer({"id": number}, VALUE), VALUE)["id"] == number
    assert len(registry.requests) == 2


def test_guid_header_apicurio_and_glue_forms_are_read(client: SchemaRegistryClient) -> None:
    deserializer = AvroDeserializer(client)
    by_guid = AvroSerializer(client, ORDER, conf={**REGISTER, "schema.id.serializer": prefix_schema_guid_serializer})
    data = by_guid({"id": 7}, VALUE)
    assert data is not None
    assert (data[0], len(data)) == (1, 19)
    assert deserializer(data, VALUE)["id"] == 7

    by_header = AvroSerializer(client, ORDER, conf={**REGISTER, "schema.id.serializer": header_schema_id_serializer})
    some_headers: list[Any] = [[], {}]
    for headers in some_headers:
        ctx = SerializationContext("orders", MessageField.VALUE, headers)
        plain = by_header({"id": 7}, ctx)
        assert plain == b"\x0e\x00"
        assert "__value_schema_id" in dict(headers)
        assert deserializer(plain, ctx)["id"] == 7
    with pytest.raises(SerializationError, match="headers"):
        by_header({"id": 7}, VALUE)

    assert deserializer(struct.pack(">bq", 0, 1) + b"\x0e\x00", VALUE)["id"] == 7
    number = struct.pack(">q", 1)
    apicurio = SerializationContext("orders", MessageField.VALUE, [("apicurio.value.contentId", number)])
    assert deserializer(b"\x0e\x00", apicurio)["id"] == 7
    by_global_id = SerializationContext("orders", MessageField.VALUE, [("apicurio.value.globalId", number)])
    with pytest.raises(SchemaRegistryError, match=r"GET /apis/registry/v3/search/versions\?globalId=1"):  # no Apicurio
        deserializer(b"\x0e\x00", by_global_id)

    version = uuid.uuid4()

    class Glue:
        def get_schema_version(self, SchemaVersionId: str) -> dict[str, str]:  # noqa: N803
            assert SchemaVersionId == str(version)
            return {"SchemaDefinition": ORDER, "DataFormat": "AVRO"}

    from_glue = AvroDeserializer(client, conf={"glue.client": Glue()})
    for kind, body in ((0, b"\x0e\x00"), (5, zlib.compress(b"\x0e\x00"))):
        framed = bytes((3, kind)) + version.bytes + body
        assert from_glue(framed, VALUE)["id"] == 7
        with pytest.raises(SerializationError, match=r"glue\.client"):
            deserializer(framed, VALUE)


def test_bytes_have_no_length_as_in_java(client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, '"bytes"', conf=REGISTER)(b"xyz", VALUE)
    assert data == b"\x00\x00\x00\x00\x01xyz"
    assert AvroDeserializer(client)(data, VALUE) == b"xyz"


def test_evolution_reads_old_records_by_the_readers_schema(client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, ORDER, conf=REGISTER)({"id": 7, "note": "x"}, VALUE)
    newer = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "number", "aliases": ["id"], "type": "double"},
            {"name": "city", "type": "string", "default": "Ulm"},
        ],
    }
    assert AvroDeserializer(client, json.dumps(newer))(data, VALUE) == {"number": 7.0, "city": "Ulm"}
    client.register_schema("orders-value", Schema(json.dumps(newer)))
    latest = AvroDeserializer(client, conf={"use.latest.version": True})
    assert latest(data, VALUE) == {"number": 7.0, "city": "Ulm"}
    other = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "b", "type": "string"}]}
    with pytest.raises(SerializationError, match=r"b: the writer has no such field, and the reader's string no"):
        AvroDeserializer(client, json.dumps(other))(data, VALUE)


def test_latest_metadata_and_fixed_ids_choose_the_writers_schema(client: SchemaRegistryClient) -> None:
    number = client.register_schema("orders-value", Schema(ORDER))
    for conf in ({"use.latest.version": True}, {"use.schema.id": number}):
        assert AvroSerializer(client, conf=conf)({"id": 7}, VALUE) == b"\x00\x00\x00\x00\x01\x0e\x00"
    with pytest.raises(SerializationError, match=r"use\.latest\.version"):
        AvroSerializer(client)({"id": 7}, VALUE)


def test_subjects_are_named_by_the_strategy(client: SchemaRegistryClient) -> None:
    for conf in (
        {"subject.name.strategy": record_subject_name_strategy},
        {"subject.name.strategy.type": "TOPIC_RECORD"},
        {"subject.name.strategy.type": "ASSOCIATED"},
        {"subject.name.strategy": lambda ctx, name, client, settings: f"own-{name}"},
    ):
        AvroSerializer(client, ORDER, conf={**REGISTER, **conf})({"id": 7}, VALUE)
    assert client.get_subjects() == ["orders-shop.Order", "orders-value", "own-shop.Order", "shop.Order"]
    data = AvroSerializer(client, ORDER, conf={**REGISTER, "subject.name.strategy.type": "RECORD"})({"id": 7}, VALUE)
    reader = AvroDeserializer(client, conf={"use.latest.version": True, "subject.name.strategy.type": "RECORD"})
    assert reader(data, VALUE)["id"] == 7


def test_references_as_diamonds_and_recursion(client: SchemaRegistryClient) -> None:
    def named(name: str, *fields: str) -> Schema:
        rows = [{"name": field.lower(), "type": ["null", f"d.{field}"]} for field in fields]
        rows.append({"name": "self", "type": ["null", f"d.{name}"]})
        text = json.dumps({"type": "record", "name": name, "namespace": "d", "fields": rows})
        return Schema(text, references=[SchemaReference(f"d.{field}", field, 1) for field in fields])

    for schema, name in (
        (named("Base"), "Base"),
        (named("Left", "Base"), "Left"),
        (named("Right", "Base"), "Right"),
    ):
        client.register_schema(name, schema)
    top = named("Top", "Left", "Right")
    base = {"self": {"self": None}}
    value = {"left": {"base": base, "self": None}, "right": {"base": base, "self": None}, "self": None}
    data = AvroSerializer(client, top, conf=REGISTER)(value, VALUE)
    assert AvroDeserializer(client)(data, VALUE) == value


def test_type_that_is_not_among_the_references_is_named(client: SchemaRegistryClient) -> None:
    client.register_schema("part", Schema('{"type": "record", "name": "Part", "fields": []}'))
    fields = [{"name": "part", "type": "Part"}]  # which is shop.Part here
    text = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})
    schema = Schema(text, references=[SchemaReference("Part", "part", 1)])
    client.register_schema("orders-value", schema)
    with pytest.raises(SerializationError, match=r"the Avro type 'shop\.Part' is not defined"):
        AvroSerializer(client, schema)({"part": {}}, VALUE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"id": "7"}, "field 'id' is of type str, and the schema has long"),
        ({"note": "x"}, "field 'id' is missing, and the schema's long has no default"),
        ({"id": 1 << 70}, "field 'id' is out of range: the schema has long"),
        ({"id": 1, "note": 2}, r"field 'note' is of type int, which is none of \[null, string\]"),
        ([], "the value is of type list, and the schema has record shop.Order"),
    ],
)
def test_value_that_does_not_fit_names_field_and_both_types(
    client: SchemaRegistryClient, value: Any, text: str
) -> None:
    serializer = AvroSerializer(client, ORDER, conf=REGISTER)
    with pytest.raises(SerializationError, match=rf"the value of a record of topic 'orders', schema id 1.*{text}"):
        serializer(value, VALUE)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "0 bytes are too short"),
        (b"\x00\x00\x00", "3 bytes are too short"),
        (b"\x01\x00\x00\x00\x01\x0e", "6 bytes are too short"),
        (b"\x07\x00\x00\x00\x01\x0e\x00", "magic byte 7"),
        (b"\x00\x00\x00\x00\x01\x0e", "schema id 1"),
        (b"\x00\x00\x00\x00\x01\x0e\x00\x00", "1 bytes are left after the value"),
    ],
)
def test_damaged_records_raise_one_error_that_names_the_record(
    client: SchemaRegistryClient, data: bytes, text: str
) -> None:
    client.register_schema("orders-value", Schema(ORDER))
    with pytest.raises(SerializationError, match=f"the value of a record of topic 'orders'.*{text}"):
        AvroDeserializer(client)(data, VALUE)


def test_unknown_id_names_the_record(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError, match="schemas/ids/99") as caught:
        AvroDeserializer(client)(b"\x00\x00\x00\x00\x63\x0e", VALUE)
    assert caught.value.__notes__ == ["for the value of a record of topic 'orders', schema id 99"]


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ({"auto.register": True}, "unknown configuration key"),
        ({"auto.register.schemas": "yes"}, "auto.register.schemas must be a boolean: True or False"),
        ({"auto.register.schemas": True, "use.latest.version": True}, "cannot enable both"),
        ({"subject.name.strategy": 7}, "subject.name.strategy must be callable"),
        ({"subject.name.strategy.type": "TOPICS"}, "must be one of TOPIC"),
    ],
)
def test_wrong_settings_raise(client: SchemaRegistryClient, conf: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        AvroSerializer(client, ORDER, conf=conf)


# --- rules -----------------------------------------------------------------------------------------------------------


def ruled(**given: Any) -> Schema:
    rule = Rule(**{"name": "r", "kind": RuleKind.CONDITION, "mode": RuleMode.WRITE, "type": "CEL", **given})
    tags = Metadata(tags=MetadataTags({"shop.Order.note": ["PII"]}))
    return Schema(ORDER, metadata=tags, rule_set=RuleSet(domain_rules=[rule]))


def test_rule_of_unknown_type_raises_whatever_it_says_about_failures(client: SchemaRegistryClient) -> None:
    serializer = AvroSerializer(client, ruled(type="TOKENIZE", on_failure="NONE"), conf=REGISTER)
    with pytest.raises(RuleError, match="type TOKENIZE, which nothing here can execute"):
        serializer({"id": 1}, VALUE)


def test_cel_conditions_hold_or_raise(client: SchemaRegistryClient) -> None:
    serializer = AvroSerializer(client, ruled(expr="message.id > 5"), conf=REGISTER)
    assert serializer({"id": 6}, VALUE) is not None
    with pytest.raises(SerializationError, match="'r' of 'orders-value' failed: Rule expr failed: message"):
        serializer({"id": 5}, VALUE)


def test_cel_transforms_tagged_fields_only(client: SchemaRegistryClient) -> None:
    schema = ruled(kind=RuleKind.TRANSFORM, type="CEL_FIELD", tags=["PII"], expr="typeName == 'STRING'; value + '!'")
    data = AvroSerializer(client, schema, conf=REGISTER)({"id": 6, "note": "x"}, VALUE)
    assert AvroDeserializer(client)(data, VALUE) == {"id": 6, "note": "x!"}


def test_cel_sees_bytes_dates_times_decimals_and_uuids(client: SchemaRegistryClient) -> None:
    fields = [
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
    ]
    expr = (
        "message.raw == b'ab' && message.day == 1 && message.at < timestamp('2026-01-02T00:00:00Z')"
        " && message.id == '550e8400-e29b-41d4-a716-446655440000' && message.sum == 1.5"
    )
    rule = Rule(name="r", kind=RuleKind.CONDITION, mode=RuleMode.WRITE, type="CEL", expr=expr)
    text = json.dumps({"type": "record", "name": "All", "fields": fields})
    serializer = AvroSerializer(client, Schema(text, rule_set=RuleSet(domain_rules=[rule])), conf=REGISTER)
    value = {
        "raw": b"ab",
        "day": datetime.date(1970, 1, 2),
        "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        "id": uuid.UUID("550e8400-e29b-41d4-a716-446655440000"),
        "sum": decimal.Decimal("1.50"),
    }
    assert serializer(value, VALUE) is not None
    with pytest.raises(SerializationError, match="'r' of 'orders-value' failed"):
        serializer({**value, "raw": b"other"}, VALUE)


@pytest.mark.parametrize(
    ("path", "is_tagged"),
    [
        ("shop.Order.note", True),
        ("shop.*.note", True),
        ("**.note", True),
        ("shop.Order.n?te", True),
        ("**.*", True),
        ("shop.*", False),
        ("note", False),
    ],
)
def test_paths_of_tags_may_have_wildcards(client: SchemaRegistryClient, path: str, is_tagged: bool) -> None:
    schema = ruled(kind=RuleKind.TRANSFORM, type="CEL_FIELD", tags=["PII"], expr="name == 'note'; value + '!'")
    schema = dataclasses.replace(schema, metadata=Metadata(tags=MetadataTags({path: ["PII"]})))
    data = AvroSerializer(client, schema, conf=REGISTER)({"id": 6, "note": "x"}, VALUE)
    assert AvroDeserializer(client)(data, VALUE)["note"] == ("x!" if is_tagged else "x")


def test_overrides_disable_enable_and_ignore_failures(client: SchemaRegistryClient) -> None:
    for disabled, override in (
        (False, RuleOverride("CEL", disabled=True)),
        (True, None),
        (False, RuleOverride("CEL", on_failure="NONE")),
    ):
        rules = RuleRegistry()
        if override is not None:
            rules.register_override(override)
        schema = ruled(expr="false", disabled=disabled)
        assert AvroSerializer(client, schema, conf=REGISTER, rule_registry=rules)({"id": 1}, VALUE) is not None
    rules = RuleRegistry()
    rules.register_override(RuleOverride("CEL", disabled=False))
    with pytest.raises(SerializationError, match="'r' of 'orders-value' failed"):
        AvroSerializer(client, ruled(expr="false", disabled=True), conf=REGISTER, rule_registry=rules)({"id": 1}, VALUE)


def test_associations_name_subjects_and_are_cached(client: SchemaRegistryClient) -> None:
    conf = {"auto.register.schemas": True, "subject.name.strategy.type": "ASSOCIATED"}
    info = AssociationCreateOrUpdateInfo("billing", "value", "STRONG", schema=Schema(ORDER))
    client.create_association(AssociationCreateOrUpdateRequest("orders", "here", "17", "topic", [info]))
    serializer = AvroSerializer(client, ORDER, conf=conf)
    assert serializer({"id": 1}, VALUE) is not None
    assert client.get_subjects() == ["billing"]
    client.delete_associations("17")
    assert client.get_associations_by_resource_name("orders", "here") == []
    assert serializer({"id": 2}, VALUE) is not None
    assert client.get_subjects() == ["billing"]
    none = {**conf, "subject.name.strategy.conf": {"subject.name.strategy.fallback.type": "NONE"}}
    with pytest.raises(SerializationError, match="No associated subject found for topic orders"):
        AvroSerializer(client, ORDER, conf=none)({"id": 1}, VALUE)
    wrong = {**conf, "subject.name.strategy.conf": {"subject.name.strategy.fallback.type": "ASSOCIATED"}}
    with pytest.raises(ConfigError, match=r"fallback\.type = 'ASSOCIATED': it must be one of NONE, TOPIC"):
        AvroSerializer(client, ORDER, conf=wrong)({"id": 1}, VALUE)


def test_own_executor_runs_on_both_sides(client: SchemaRegistryClient) -> None:
    class Shift:
        def type(self) -> str:
            return "SHIFT"

        def transform(self, ctx: Any, message: Any) -> Any:
            by = int(ctx.get_parameter("by"))
            return {**message, "id": message["id"] + (by if ctx.rule_mode == RuleMode.WRITE else -by)}

    rules = RuleRegistry()
    rules.register_executor(Shift())
    schema = ruled(kind=RuleKind.TRANSFORM, type="SHIFT", mode=RuleMode.WRITEREAD, params=RuleParams({"by": "100"}))
    data = AvroSerializer(client, schema, conf=REGISTER, rule_registry=rules)({"id": 6}, VALUE)
    assert data == b"\x00\x00\x00\x00\x01\xd4\x01\x00"
    assert AvroDeserializer(client, rule_registry=rules)(data, VALUE)["id"] == 6
    with pytest.raises(RuleError, match="SHIFT"):
        AvroDeserializer(client)(data, VALUE)


def test_migration_rules_bring_records_to_the_latest_version(client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, ORDER, conf=REGISTER)({"id": 7}, VALUE)
    renamed = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "number", "type": "long"}]}
    rule = Rule(name="m", kind=RuleKind.TRANSFORM, mode=RuleMode.UPGRADE, type="JSONATA", expr='{"number": id}')
    client.set_compatibility("orders-value", "NONE")
    client.register_schema("orders-value", Schema(json.dumps(renamed), rule_set=RuleSet(migration_rules=[rule])))
    assert AvroDeserializer(client, conf={"use.latest.version": True})(data, VALUE) == {"number": 7}


# --- models ----------------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Item:
    name: str
    prices: list[float]


@dataclasses.dataclass
class Order:
    id: int
    at: datetime.datetime
    item: Item
    total: Annotated[decimal.Decimal, DecimalSize(9, 2)]
    color: Color = Color.RED
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    note: str | None = None


class PydanticItem(pydantic.BaseModel):
    name: str
    prices: list[float]
    color: Color = Color.RED


class StructItem(msgspec.Struct):
    name: str
    prices: list[float]
    color: Color = Color.RED


def test_models_are_written_and_read(client: SchemaRegistryClient) -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
    order = Order(7, at, Item("a", [1.5]), decimal.Decimal("12.50"), Color.BLUE, {"k": "v"})
    for topic, model, value in (
        ("a", Order, order),
        ("b", PydanticItem, PydanticItem(name="a", prices=[1.5], color=Color.BLUE)),
        ("c", StructItem, StructItem("a", [1.5], Color.BLUE)),
    ):
        ctx = SerializationContext(topic, MessageField.VALUE)
        data = AvroSerializer(client, model, conf=REGISTER)(value, ctx)
        assert AvroDeserializer(client, model)(data, ctx) == value


def test_schema_of_a_model_is_avros() -> None:
    schema = avro_schema(Order, "shop")
    fastavro.parse_schema(schema)
    assert schema["fields"][-1] == {"name": "note", "type": ["null", "string"], "default": None}
    with pytest.raises(SerializationError, match=r"Bad\.what: .* has no Avro type"):
        avro_schema(dataclasses.make_dataclass("Bad", [("what", object)]))
