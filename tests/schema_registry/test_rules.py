"""Rules of data contracts are executed or refused, and never left out, whatever a reader reads by."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pykclient.errors import ConfigError, SerializationError
from pykclient.schema_registry import (
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    avro_columns,
)
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from pykclient.schema_registry.rules import (
    FieldContext,
    FieldRuleExecutor,
    RuleContext,
    RuleError,
    RuleOverride,
    RuleRegistry,
)
from pykclient.schema_registry.schemas import (
    Metadata,
    MetadataTags,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
)

VALUE = SerializationContext("orders", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}
LATEST = {"use.latest.version": True}
FIELDS = [{"name": "id", "type": "long"}, {"name": "city", "type": "string", "confluent:tags": ["PII"]}]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
#: The same without the tags: what an application would write by hand.
PLAIN = AVRO.replace(', "confluent:tags": ["PII"]', "")
JSON_TEXT = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "city": {"type": "string", "confluent:tags": ["PII"]}},
    }
)


@dataclasses.dataclass
class Order:
    id: int
    city: str


#: A reader of a newer form: a promoted type, and a field of its own.
Wider = dataclasses.make_dataclass("Order", [("id", float), ("city", str), ("note", str, "none")])


def message_class(tag: bool) -> type[Any]:
    """Return the class of a message ``Order``, with or without the tag in the options of its field."""
    from pykclient.schema_registry.protobuf import _own_pool

    pool = descriptor_pool.DescriptorPool()
    for name in ("google/protobuf/descriptor.proto", "confluent/meta.proto"):
        pool.AddSerializedFile(_own_pool().FindFileByName(name).serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    city = message.field.add(name="city", number=2, type=9, label=1)
    if tag:
        file.dependency.append("confluent/meta.proto")
        city.options.MergeFromString(b"\x82\x44\x05\x1a\x03PII")
    pool.Add(file)
    found: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return found


TAGGED, UNTAGGED = message_class(True), message_class(False)


def rules(**given: Any) -> RuleSet:
    rule = Rule(**{"name": "mask", "kind": RuleKind.TRANSFORM, "mode": RuleMode.READ, "type": "CEL_FIELD", **given})
    return RuleSet(domain_rules=[rule])


MASK = rules(tags=["PII"], expr="typeName == 'STRING'; value + '!'")
UNKNOWN = rules(type="TOKENIZE", tags=["PII"], name="secret")


READERS: dict[str, Callable[[SchemaRegistryClient], Any]] = {
    "avro": AvroDeserializer,
    "avro text": lambda client: AvroDeserializer(client, PLAIN),
    "avro schema": lambda client: AvroDeserializer(client, Schema(PLAIN)),
    "avro model": lambda client: AvroDeserializer(client, Order),
    "avro wider": lambda client: AvroDeserializer(client, Wider),
    "json": lambda client: JSONDeserializer(None, schema_registry_client=client),
    "json text": lambda client: JSONDeserializer('{"type": "object"}', schema_registry_client=client),
    "json model": lambda client: JSONDeserializer(Order, schema_registry_client=client),
    "protobuf": lambda client: ProtobufDeserializer(None, schema_registry_client=client),
    "protobuf class": lambda client: ProtobufDeserializer(UNTAGGED, schema_registry_client=client),
}


def written(client: SchemaRegistryClient, form: str, held: RuleSet) -> bytes | None:
    if form == "avro":
        client.register_schema("orders-value", Schema(AVRO, rule_set=held))
        return AvroSerializer(client, conf=LATEST)({"id": 1, "city": "Ulm"}, VALUE)
    if form == "json":
        client.register_schema("orders-value", Schema(JSON_TEXT, "JSON", rule_set=held))
        return JSONSerializer(None, client, conf=LATEST)({"id": 1, "city": "Ulm"}, VALUE)
    own = ProtobufSerializer(TAGGED, client)._own_schema(None)
    assert own is not None
    client.register_schema("orders-value", Schema(own.schema_str, "PROTOBUF", own.references, rule_set=held))
    return ProtobufSerializer(TAGGED, client, conf=LATEST)(TAGGED(id=1, city="Ulm"), VALUE)


def city(value: Any) -> Any:
    return value["city"] if isinstance(value, dict) else value.city


@pytest.mark.parametrize("name", list(READERS))
def test_rules_of_the_writer_hold_for_every_reader(client: SchemaRegistryClient, name: str) -> None:
    data = written(client, name.partition(" ")[0], MASK)
    found = READERS[name](client)(data, VALUE)
    assert city(found) == "Ulm!"
    if name == "avro wider":
        assert found == Wider(1.0, "Ulm!")
    if name == "protobuf class":
        assert type(found) is UNTAGGED


@pytest.mark.parametrize("name", list(READERS))
def test_rule_that_nothing_can_execute_raises_for_every_reader(client: SchemaRegistryClient, name: str) -> None:
    data = written(client, name.partition(" ")[0], UNKNOWN)
    with pytest.raises(RuleError, match="the schema of 'orders-value' has the rule 'secret' of type TOKENIZE"):
        READERS[name](client)(data, VALUE)


def test_rules_of_a_given_schema_replace_the_writers(client: SchemaRegistryClient) -> None:
    data = written(client, "avro", UNKNOWN)
    own = Schema(AVRO, rule_set=MASK)
    assert AvroDeserializer(client, own)(data, VALUE)["city"] == "Ulm!"


def test_rules_of_the_writer_keep_the_branch_of_a_union(client: SchemaRegistryClient) -> None:
    def record(name: str) -> Any:
        return {"type": "record", "name": name, "fields": FIELDS[1:]}

    def order(*parts: Any) -> str:
        return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "part", "type": list(parts)}]})

    client.register_schema("orders-value", Schema(order(record("A"), record("B")), rule_set=MASK))
    data = AvroSerializer(client, conf=LATEST)({"part": ("B", {"city": "Ulm"})}, VALUE)
    reader = AvroDeserializer(client, order(record("B"), record("A")), None, True)
    assert reader(data, VALUE) == {"part": ("B", {"city": "Ulm!"})}


@pytest.mark.parametrize("name", list(READERS))
def test_rule_without_mode_and_kind_transforms_on_writing_and_reading(client: SchemaRegistryClient, name: str) -> None:
    form = name.partition(" ")[0]
    data = written(client, form, rules(mode=None, kind=None, tags=["PII"], expr="typeName == 'STRING'; value + '!'"))
    assert city(READERS[name](client)(data, VALUE)) == "Ulm!!"


def unknown(**changed: Any) -> dict[str, Any]:
    return {"domainRules": [{"name": "new", "kind": "TRANSFORM", "mode": "READ", "type": "CEL", **changed}]}


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (unknown(mode="SOMETIMES"), "the rule 'new' of phase DOMAIN has the mode SOMETIMES"),
        (unknown(kind="OBFUSCATE"), "the rule 'new' has the kind OBFUSCATE"),
        (unknown(mode="UPGRADE"), "the rule 'new' of phase DOMAIN has the mode UPGRADE"),
        ({"auditRules": [{"name": "new"}]}, "the schema has auditRules"),
        ({**unknown(), "enableAt": "EDGE"}, "rules are enabled at EDGE"),
    ],
)
@pytest.mark.parametrize("name", list(READERS))
def test_rules_that_only_a_newer_registry_knows_raise_one_error(
    client: SchemaRegistryClient, held: dict[str, Any], text: str, name: str
) -> None:
    with pytest.raises(RuleError, match=f"'orders-value' has a rule that would be left out: .*{text}"):
        READERS[name](client)(written(client, name.partition(" ")[0], RuleSet.from_dict(held)), VALUE)


def test_rules_of_a_newer_registry_survive_json() -> None:
    given = {**unknown(mode="SOMETIMES", kind="OBFUSCATE"), "auditRules": [{"name": "a"}], "enableAt": "EDGE"}
    assert RuleSet.from_dict(given).to_dict() == given


def test_columns_refuse_rules_without_a_mode(client: SchemaRegistryClient) -> None:
    import pyarrow as pa

    data = written(client, "avro", rules(mode=None, tags=["PII"], expr="typeName == 'STRING'; value + '!'"))
    with pytest.raises(RuleError, match="rules are not executed for columns"):
        avro_columns(client, on_error="keep").decode(pa.array([data]))


def test_schema_registered_without_rules_is_written_by_those_of_the_registry(client: SchemaRegistryClient) -> None:
    client.register_schema("orders-value", Schema(AVRO, rule_set=rules(type="TOKENIZE", mode=RuleMode.WRITE)))
    for conf in (REGISTER, {}):
        with pytest.raises(RuleError, match="type TOKENIZE"):
            AvroSerializer(client, AVRO, conf=conf)({"id": 1, "city": "Ulm"}, VALUE)


# --- rules in the schema's text ---------------------------------------------------------------------------------------

_POSITIVE = [{"name": "positive", "doc": "must be positive", "expr": "this > 0"}]
_SHORT = [{"name": "short", "expr": "size(this) < 4 ? '' : 'too long'"}]


def inline(form: str, changed: list[dict[str, Any]] = _POSITIVE) -> Schema:
    """Return a schema of a format with rules in its text."""
    if form == "avro":
        number = {"name": "id", "type": "int", "confluent:rules": changed}
        part: dict[str, Any] = {"type": "record", "name": "Part", "fields": [number]}
        fields = [
            {"name": "parts", "type": {"type": "array", "items": ["null", part]}},
            {"name": "city", "type": ["null", "string"], "confluent:rules": _SHORT},
        ]
        whole = [{"name": "whole", "expr": "size(this.parts) > 0"}]
        return Schema(json.dumps({"type": "record", "name": "Order", "fields": fields, "confluent:rules": whole}))
    part = {"type": "object", "properties": {"id": {"type": "integer", "confluent:rules": changed}}}
    whole = [{"name": "whole", "expr": "size(this.parts) > 0"}]
    properties = {
        "parts": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/part"}]}},
        "city": {"type": ["null", "string"], "confluent:rules": _SHORT},
    }
    text = {"type": "object", "definitions": {"part": part}, "properties": properties}
    return Schema(json.dumps({**text, "confluent:rules": whole}), "JSON")


def serializer(form: str, client: SchemaRegistryClient, schema: Schema, **conf: Any) -> Any:
    given = {**REGISTER, **conf}
    if form == "avro":
        return AvroSerializer(client, schema, conf=given)
    return JSONSerializer(schema, client, conf=given)


@pytest.mark.parametrize("form", ["avro", "json"])
def test_rules_in_the_text_of_a_schema_are_checked_on_writing(client: SchemaRegistryClient, form: str) -> None:
    schema = inline(form)
    write = serializer(form, client, schema)
    assert write({"parts": [{"id": 1}, None], "city": "Ulm"}, VALUE)
    assert write({"parts": [{"id": 1}], "city": None}, VALUE)
    with pytest.raises(RuleError) as caught:
        write({"parts": [{"id": 1}, {"id": -1}], "city": "Berlin"}, VALUE)
    text = str(caught.value)
    assert "'orders-value' do not hold: " in text
    assert "parts[1].id: positive: must be positive" in text
    assert "city: short: too long" in text
    with pytest.raises(RuleError, match=r"the value: whole: size\(this.parts\) > 0"):
        write({"parts": [], "city": None}, VALUE)
    first = serializer(form, client, schema, **{"validation.rules.fail.fast": True})
    with pytest.raises(RuleError) as caught:
        first({"parts": [{"id": -1}], "city": "Berlin"}, VALUE)
    assert ";" not in str(caught.value)
    disabled = serializer(form, client, schema, **{"validation.rules.execution": "DISABLED"})
    assert disabled({"parts": [], "city": None}, VALUE)


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ([{"name": "sql", "sql": "this > 0"}], "'sql' of 'orders-value' has no expression"),
        ([{"name": "odd", "expr": "this + 1"}], "'odd' of 'orders-value' must return a bool or a text"),
        ("this > 0", "confluent:rules must be a list"),
    ],
)
def test_rules_in_the_text_of_a_schema_that_cannot_be_executed_raise(
    client: SchemaRegistryClient, form: str, rule: Any, text: str
) -> None:
    schema = inline(form, rule)
    with pytest.raises(SerializationError, match=text):
        serializer(form, client, schema)({"parts": [{"id": 1}], "city": None}, VALUE)


def test_rules_in_referenced_schemas_are_checked(client: SchemaRegistryClient) -> None:
    part = {"type": "record", "name": "Part", "fields": [{"name": "id", "type": "int", "confluent:rules": _POSITIVE}]}
    client.register_schema("part", Schema(json.dumps(part)))
    whole = {"type": "record", "name": "Order", "fields": [{"name": "part", "type": "Part"}]}
    schema = Schema(json.dumps(whole), references=[SchemaReference("Part", "part", 1)])
    with pytest.raises(RuleError, match=r"part\.id: positive"):
        AvroSerializer(client, schema, conf=REGISTER)({"part": {"id": 0}}, VALUE)


def test_rules_run_before_or_after_those_of_the_domain(client: SchemaRegistryClient) -> None:
    fields = [{"name": "city", "type": "string", "confluent:rules": _SHORT}]
    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
    longer = rules(mode=RuleMode.WRITE, expr="value + ' on the Danube'")
    schema = Schema(text, rule_set=longer)
    assert AvroSerializer(client, schema, conf=REGISTER)({"city": "Ulm"}, VALUE)
    after = {**REGISTER, "validation.rules.execution": "AFTER_DOMAIN_RULES"}
    with pytest.raises(RuleError, match="too long"):
        AvroSerializer(client, schema, conf=after)({"city": "Ulm"}, VALUE)
    with pytest.raises(ConfigError, match="must be one of DISABLED"):
        AvroSerializer(client, schema, conf={"validation.rules.execution": "NEVER"})


def test_rules_in_options_of_messages_are_checked(client: SchemaRegistryClient) -> None:
    from pykclient.schema_registry.protobuf import _own_message, _own_pool

    pool = descriptor_pool.DescriptorPool()
    for name in ("google/protobuf/descriptor.proto", "confluent/meta.proto"):
        pool.AddSerializedFile(_own_pool().FindFileByName(name).serialized_pb)

    def options(kind: str, rule: dict[str, str]) -> bytes:
        made = _own_message(f"google.protobuf.{kind.title()}Options")()
        made.Extensions[_own_pool().FindExtensionByName(f"confluent.{kind}_meta")].rules.add(**rule)
        data: bytes = made.SerializeToString()
        return data

    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="shop", syntax="proto3")
    file.dependency.append("confluent/meta.proto")
    part = file.message_type.add(name="Part")
    number = part.field.add(name="id", number=1, type=3, label=1)
    number.options.MergeFromString(options("field", {"name": "positive", "expr": "this > 0"}))
    order = file.message_type.add(name="Order")
    order.options.MergeFromString(options("message", {"name": "whole", "expr": "size(this.parts) > 0"}))
    order.field.add(name="parts", number=1, type=11, label=3, type_name=".shop.Part")
    order.field.add(name="one", number=2, type=11, label=1, type_name=".shop.Part")
    entry = order.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".shop.Part")
    order.field.add(name="by_name", number=3, type=11, label=3, type_name=".shop.Order.ByNameEntry")
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    piece = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Part"))
    write = ProtobufSerializer(kind, client, conf=REGISTER)
    assert write(kind(parts=[piece(id=1)]), VALUE)
    wrong = kind(parts=[piece(id=1), piece(id=0)], one=piece(id=-1), by_name={"a": piece(id=-2)})
    with pytest.raises(RuleError) as caught:
        write(wrong, VALUE)
    for path in ("parts[1].id", "one.id", 'by_name["a"].id'):
        assert f"{path}: positive: this > 0" in str(caught.value)
    with pytest.raises(RuleError, match="the value: whole"):
        write(kind(), VALUE)


def test_tags_in_metadata_name_fields_of_the_writer(client: SchemaRegistryClient) -> None:
    tags = Metadata(tags=MetadataTags({"Order.city": ["PII"]}))
    client.register_schema("orders-value", Schema(PLAIN, metadata=tags, rule_set=MASK))
    data = AvroSerializer(client, conf=LATEST)({"id": 1, "city": "Ulm"}, VALUE)
    assert AvroDeserializer(client, Order, rule_registry=RuleRegistry())(data, VALUE) == Order(1, "Ulm!")


class Copy:
    """An action that keeps what it was run with."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, RuleMode, Any, str]] = []

    def type(self) -> str:
        return "COPY"

    def run(self, ctx: RuleContext, message: Any, ex: Exception | None) -> None:
        self.seen.append((ctx.rule.name, ctx.rule_mode, message, type(ex).__name__))


def test_actions_run_after_rules_that_name_them(client: SchemaRegistryClient) -> None:
    def schema(expr: str) -> Schema:
        held = rules(name="r", kind=RuleKind.CONDITION, mode=RuleMode.WRITEREAD, type="CEL", expr=expr)
        assert held.domain_rules is not None
        held.domain_rules[0].on_success, held.domain_rules[0].on_failure = "COPY,NONE", "COPY,ERROR"
        return Schema(AVRO, rule_set=held)

    value = {"id": 1, "city": "Ulm"}
    action = Copy()
    try:
        RuleRegistry.register_rule_action(action)
        data = AvroSerializer(client, schema("message.id < 2"), conf=REGISTER)(value, VALUE)
        assert action.seen == [("r", RuleMode.WRITE, value, "NoneType")]
        AvroDeserializer(client)(data, VALUE)  # which names no action for reading
        data = AvroSerializer(client, schema("message.id > 2"), conf=REGISTER)(value, VALUE)
        assert action.seen[1:] == [("r", RuleMode.WRITE, value, "RuleConditionError")]
        with pytest.raises(SerializationError, match="the rule 'r' of 'orders-value' failed"):
            AvroDeserializer(client)(data, VALUE)
    finally:
        RuleRegistry.get_global_instance().clear()
    with pytest.raises(RuleError, match="names the action 'COPY', which is not registered"):
        AvroSerializer(client, schema("message.id < 2"), conf=REGISTER)(value, VALUE)


def test_override_for_all_serializers_disables_the_rules_of_a_type(client: SchemaRegistryClient) -> None:
    data = written(client, "avro", UNKNOWN)
    try:
        RuleRegistry.register_rule_override(RuleOverride("TOKENIZE", disabled=True))
        assert AvroDeserializer(client, Order)(data, VALUE) == Order(1, "Ulm")
    finally:
        RuleRegistry.get_global_instance().clear()
    with pytest.raises(RuleError, match="TOKENIZE"):
        AvroDeserializer(client, Order)(data, VALUE)


class Inspect(FieldRuleExecutor):
    """An application's own condition: no field begins with the rule's expression."""

    def type(self) -> str:
        return "INSPECT"

    def new_transform(self, ctx: RuleContext) -> Callable[[RuleContext, FieldContext, Any], Any]:
        return lambda _, field, value: not value.startswith(ctx.rule.expr)


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("refused", ["first", "second"])
def test_every_condition_on_the_same_fields_is_checked(client: SchemaRegistryClient, form: str, refused: str) -> None:
    conditions = [
        Rule(name=name, kind=RuleKind.CONDITION, mode=mode, type="INSPECT", tags=["PII"], expr=expr)
        for mode in (RuleMode.WRITE, RuleMode.READ)
        for name, expr in (("first", "A"), ("second", "B"))
    ]
    registry = RuleRegistry()
    registry.register_executor(Inspect())
    if form == "avro":
        client.register_schema("orders-value", Schema(AVRO, rule_set=RuleSet(domain_rules=conditions)))
        write: Any = AvroSerializer(client, conf=LATEST, rule_registry=registry)
        read: Any = AvroDeserializer(client, rule_registry=registry)
    elif form == "json":
        client.register_schema("orders-value", Schema(JSON_TEXT, "JSON", rule_set=RuleSet(domain_rules=conditions)))
        write = JSONSerializer(None, client, conf=LATEST, rule_registry=registry)
        read = JSONDeserializer(None, schema_registry_client=client, rule_registry=registry)
    else:
        own = ProtobufSerializer(TAGGED, client)._own_schema(None)
        assert own is not None
        held = RuleSet(domain_rules=conditions)
        client.register_schema("orders-value", Schema(own.schema_str, "PROTOBUF", own.references, rule_set=held))
        write = ProtobufSerializer(TAGGED, client, conf=LATEST, rule_registry=registry)
        read = ProtobufDeserializer(None, schema_registry_client=client, rule_registry=registry)

    def order(name: str) -> Any:
        return TAGGED(id=1, city=name) if form == "protobuf" else {"id": 1, "city": name}

    good = write(order("Ulm"), VALUE)
    assert city(read(good, VALUE)) == "Ulm"
    name = "Aalen" if refused == "first" else "Bonn"
    with pytest.raises(SerializationError, match=f"the rule '{refused}' of 'orders-value' failed"):
        write(order(name), VALUE)
    with pytest.raises(SerializationError, match=f"the rule '{refused}' of 'orders-value' failed"):
        read(good.replace(b"Ulm", name[:3].encode()), VALUE)
