"""Avro by a registry's schemas. The codec is fastavro's: ``pip install 'pykclient[avro]'``.

serializer = AvroSerializer(registry, schema)            # or AvroSerializer(registry, Order), a dataclass
KafkaProducer(value_serializer=serializer)
KafkaConsumer("orders", value_deserializer=AvroDeserializer(registry))
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pykclient.config.config_def import ConfigKey, Type
from pykclient.errors import ConfigError, SerializationError
from pykclient.schema_registry.avro_nodes import has_null
from pykclient.schema_registry.avro_types import (
    AvroType,
    damage,
    is_written,
    loaded,
    named_schemas,
    parse_avro,
    resolution_problems,
)
from pykclient.schema_registry.models import avro_schema, is_model, maker, plain
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.rules import (
    FieldTransform,
    FieldWalk,
    InlineCheck,
    InlineRule,
    RuleRegistry,
    inline_rules,
    outer_tags,
)
from pykclient.schema_registry.schemas import Schema, field_at, inner_path
from pykclient.schema_registry.serde import (
    READING,
    WRITING,
    Asynchronous,
    BaseDeserializer,
    BaseSerde,
    BaseSerializer,
    Blocking,
    Plan,
    Registry,
    T,
    ToDict,
    converter,
    setting,
)
from pykclient.schema_registry.wire import SchemaId
from pykclient.serialization import SerializationContext

AVRO: Final = "AVRO"


class _Parsed(NamedTuple):
    """A schema as fastavro has it, and as a tree for messages."""

    fast: Any
    tree: AvroType
    is_bytes: bool
    #: Tells whether a value has an int that is none; None if the schema has no ints.
    exceeds: Callable[[Any], bool] | None


class _ReadCodec(NamedTuple):
    writer: _Parsed
    #: None if it is the writer's.
    reader: _Parsed | None


def _given_schema(given: Any) -> Schema | None:
    if given is None or isinstance(given, Schema):
        return given
    if is_model(given):
        return Schema(json.dumps(avro_schema(given)), AVRO)
    if isinstance(given, str):
        text = given.strip()
        # The registry takes objects and lists only.
        return Schema(text if text[:1] in ("{", "[") else f'{{"type":{text}}}', AVRO)
    raise TypeError("You must pass either schema string or schema object, or a class of a model")


def _parsed(serde: BaseSerde, schema: Schema) -> _Parsed:
    """Return a schema parsed together with all that it refers to."""
    load("fastavro", "avro")
    fastavro_schema = load("fastavro.schema", "avro")
    base = load("fastavro.repository.base", "avro")
    if schema.schema_str is None:
        raise SerializationError("the schema has no text")
    root = loaded(schema.schema_str)
    named = named_schemas(schema, serde._resolve)

    class Repository(base.AbstractSchemaRepository):  # type: ignore[misc,name-defined]
        def load(self, name: str) -> Any:
            found = {**named, "$root": root}.get(name)
            if found is None:
                raise SerializationError(f"the Avro type {name!r} is not defined, nor among the schema's references")
            return found

    tree = parse_avro(root, named)
    fast = fastavro_schema.load_schema("$root", repo=Repository()) if named else fastavro_schema.parse_schema(root)
    return _Parsed(fast, tree, tree.kind == "bytes", _int_check(tree, {}))


def _is_no_int(value: Any) -> bool:
    return value.__class__ is int and not -2_147_483_648 <= value <= 2_147_483_647


def _int_check(tree: AvroType, known: dict[int, Callable[[Any], bool]]) -> Callable[[Any], bool] | None:
    """Return what tells whether a value has an int of more than 32 bits.

    The library checks those in unions, and writes others, which Java then cannot read. ``known`` has the records that
    contain themselves.
    """
    if tree.kind == "int":
        return _is_no_int
    if tree.kind in ("array", "map"):
        inner = _int_check(tree.items, known)
        if inner is None:
            return None
        check = inner
        if tree.kind == "map":
            return lambda value: isinstance(value, Mapping) and any(map(check, value.values()))
        return lambda value: any(map(check, value))
    if tree.kind == "union":
        others = [branch for branch in tree.branches if branch.kind != "null"]
        return _int_check(others[0], known) if len(others) == 1 else None
    if tree.kind != "record":
        return None
    if id(tree) in known:
        return known[id(tree)]
    names: list[str] = []
    fields: list[tuple[str, Callable[[Any], bool]]] = []

    def record(value: Any) -> bool:
        if value.__class__ is not dict and not isinstance(value, Mapping):
            return False
        for name in names:  # without a call for each
            item = value.get(name)
            if item.__class__ is int and not -2_147_483_648 <= item <= 2_147_483_647:
                return True
        for name, check in fields:
            item = value.get(name)
            if item is not None and check(item):
                return True
        return False

    known[id(tree)] = record
    for field in tree.fields:
        made = _int_check(field.type, known)
        if made is _is_no_int:
            names.append(field.name)
        elif made is not None:
            fields.append((field.name, made))
    return record if names or fields else None


_STRICT: Final[tuple[ConfigKey, ...]] = (
    setting("validate.strict", Type.BOOLEAN, False, "Refuse records with other fields than the schema's."),
    setting(
        "validate.strict.allow.default", Type.BOOLEAN, False, "As validate.strict; fields with a default may miss."
    ),
)


class _Serializer(BaseSerializer):
    _keys = (*WRITING, *_STRICT)
    schema_type = AVRO

    def __init__(
        self,
        schema_registry_client: Registry,
        schema_str: str | Schema | type | None = None,
        to_dict: ToDict | None = None,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: RuleRegistry | None = None,
    ) -> None:
        """Check the settings; nothing is asked of the registry yet.

        ``schema_str`` is the schema to write with: text, a Schema (which may have references), or a dataclass, pydantic
        model or msgspec struct. ``to_dict(obj, ctx)`` turns the application's objects into values of the schema.
        Schemas are not registered unless ``auto.register.schemas`` is set; confluent-kafka's default is to register.

        Raises:
            ConfigError: a setting is unknown, or of the wrong type.
            TypeError: ``schema_str`` is of none of these types.
        """
        super().__init__(schema_registry_client, conf, rule_registry, rule_conf)
        self._to_dict = converter("to_dict", to_dict, "object")
        self._of_model = plain if is_model(schema_str) else None
        self._schema = _given_schema(schema_str)
        self._name = _name_in(self._schema)
        self._strict: bool = self._conf["validate.strict"]
        self._allow_default: bool = self._conf["validate.strict.allow.default"]
        self._write_value = load("fastavro", "avro").schemaless_writer

    def _codec(self, schema: Schema) -> _Parsed:
        return _parsed(self, schema)

    def _dumped(self, plan: Plan, value: Any) -> bytes:
        parsed: _Parsed = plan.codec
        if parsed.is_bytes:  # as in Java, without Avro's length
            return value if isinstance(value, bytes) else str(value).encode()
        if parsed.exceeds is not None and parsed.exceeds(value):
            raise OverflowError
        out = io.BytesIO()
        self._write_value(out, parsed.fast, value, strict=self._strict, strict_allow_default=self._allow_default)
        return out.getvalue()

    def _mismatch(self, plan: Plan, value: Any) -> str | None:
        return mismatch(plan.codec.tree, value)

    def _tags(self, schema: Schema) -> dict[str, list[str]]:
        return _inline_tags(self, schema)

    def _walk(self, plan: Plan) -> FieldWalk:
        return _walker(plan.codec.tree, plan)

    def _inline(self, codec: _Parsed) -> Callable[[Any], Iterator[InlineCheck]] | None:
        return _inline_checks(codec.tree)


class AvroSerializer(Blocking[bytes | None], _Serializer):
    """Writes Avro with the id of its schema. A serializer of clients, or called as ``serializer(value, ctx)``.

    Settings (``conf``): auto.register.schemas, normalize.schemas, use.schema.id, use.latest.version,
    use.latest.with.metadata, subject.name.strategy, subject.name.strategy.type, subject.name.strategy.conf,
    schema.id.serializer, validate.strict, validate.strict.allow.default. Thread: any.
    """


class AsyncAvroSerializer(Asynchronous[bytes | None], _Serializer):
    """``AvroSerializer`` for asyncio, with an AsyncSchemaRegistryClient."""


class _Deserializer(BaseDeserializer[T]):
    _keys = READING
    schema_type = AVRO

    def __init__(
        self,
        schema_registry_client: Registry,
        schema_str: str | Schema | type[T] | None = None,
        from_dict: Callable[[Any, SerializationContext], T] | None = None,
        return_record_name: bool = False,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: RuleRegistry | None = None,
    ) -> None:
        """Check the settings; nothing is asked of the registry yet.

        ``schema_str`` is the reader's schema: text, a Schema, or a model, whose instances are returned then. Without
        one, records have the form they were written in. ``from_dict(value, ctx)`` makes the application's objects.

        Raises:
            ConfigError: a setting is unknown, or of the wrong type.
            TypeError: ``schema_str`` is of none of these types.
        """
        super().__init__(schema_registry_client, conf, rule_registry, rule_conf)
        self._from_dict = converter("from_dict", from_dict, "value")
        if not isinstance(return_record_name, bool):
            raise ConfigError("return_record_name must be a boolean value")
        self._schema = _given_schema(schema_str)
        if from_dict is None and isinstance(schema_str, type) and is_model(schema_str):
            self._make = maker(schema_str)
        self._return_record_name = return_record_name
        self._read_value = load("fastavro", "avro").schemaless_reader

    def _codec(self, writer: Schema | None, reader: Schema | None, schema_id: SchemaId) -> _ReadCodec:
        assert writer is not None
        written = _parsed(self, writer)
        if reader is None or reader is writer or reader.schema_str == writer.schema_str:
            return _ReadCodec(written, None)
        wanted = _parsed(self, reader)
        problems = resolution_problems(wanted.tree, written.tree)
        if problems:
            raise SerializationError(f"records of schema {schema_id} cannot be read: {'; '.join(problems)}")
        return _ReadCodec(written, wanted)

    def _writer_name(self, codec: _ReadCodec) -> str | None:
        return codec.writer.tree.name or None

    def _loaded(self, plan: Plan, data: bytes) -> Any:
        codec: _ReadCodec = plan.codec
        if codec.writer.is_bytes:
            return data
        source = io.BytesIO(data)
        if plan.is_ruled_first and codec.reader is not None:
            # Only with their names can records of a union be written again.
            value = self._read_value(source, codec.writer.fast, None, True, return_record_name_override=True)
        else:
            reader = None if codec.reader is None else codec.reader.fast
            value = self._read_by(source, codec.writer.fast, reader)
        if source.tell() != len(data):
            raise SerializationError(f"{len(data) - source.tell()} bytes are left after the value")
        return value

    def _after_rules(self, plan: Plan, value: Any) -> Any:
        codec: _ReadCodec = plan.codec
        if not plan.is_ruled_first or codec.reader is None or codec.writer.is_bytes:
            return value
        source = io.BytesIO()
        load("fastavro", "avro").schemaless_writer(source, codec.writer.fast, value)
        source.seek(0)
        return self._read_by(source, codec.writer.fast, codec.reader.fast)

    def _read_by(self, source: io.BytesIO, writer: Any, reader: Any) -> Any:
        if self._make is not None:  # which needs the names of records only where there are several
            return self._read_value(source, writer, reader, True, return_record_name_override=True)
        return self._read_value(source, writer, reader, self._return_record_name)

    def _mismatch(self, plan: Plan, value: Any) -> str | None:
        codec: _ReadCodec = plan.codec
        return damage(codec.writer.tree, None if codec.reader is None else codec.reader.tree, value)

    def _tags(self, schema: Schema) -> dict[str, list[str]]:
        return _inline_tags(self, schema)

    def _walk(self, plan: Plan) -> FieldWalk:
        codec: _ReadCodec = plan.codec
        form = codec.writer if plan.is_ruled_first else codec.reader or codec.writer
        return _walker(form.tree, plan)


class AvroDeserializer(Blocking[T], _Deserializer[T]):
    """Reads Avro by the schema whose id a record has. A deserializer of clients, or ``deserializer(data, ctx)``.

    Settings (``conf``): use.latest.version, use.latest.with.metadata, subject.name.strategy,
    subject.name.strategy.type, subject.name.strategy.conf, schema.id.deserializer, glue.client. Thread: any.
    """


class AsyncAvroDeserializer(Asynchronous[T], _Deserializer[T]):
    """``AvroDeserializer`` for asyncio, with an AsyncSchemaRegistryClient."""


def _name_in(schema: Schema | None) -> str | None:
    """Return the full name of a schema's type, or the name of a primitive type."""
    if schema is None or schema.schema_str is None:
        return None
    given = loaded(schema.schema_str)
    if not isinstance(given, dict):
        return None
    name = given.get("name", given.get("type"))
    space = given.get("namespace")
    if not isinstance(name, str):
        return None
    return f"{space}.{name}" if space and "name" in given and "." not in name else name


# --- what does not fit -----------------------------------------------------------------------------------------------

_PYTHON: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float, int),
    "double": (float, int),
    "bytes": (bytes, bytearray, memoryview),
    "string": (str,),
    "fixed": (bytes, bytearray, memoryview),
    "enum": (str,),
    "array": (list, tuple),
    "map": (Mapping,),
    "record": (Mapping,),
}


def mismatch(tree: AvroType, value: Any, path: str = "") -> str | None:
    """Return the field of a value that does not fit the schema, with both types, or None."""
    where = field_at(path)
    if isinstance(value, tuple) and len(value) == 2 and tree.kind in ("union", "record"):
        value = value[1]
    if tree.kind == "union":
        found = [mismatch(branch, value, path) for branch in tree.branches]
        if None in found:
            return None
        nested = [text for text, branch in zip(found, tree.branches, strict=True) if branch.kind == "record" and text]
        if isinstance(value, Mapping) and len(nested) == 1:
            return nested[0]
        return f"{where} is of type {type(value).__name__}, which is none of {tree}"
    if tree.logical is not None:
        if not is_written(tree, value):
            return f"{where} is of type {type(value).__name__} and does not fit, and the schema has {tree}"
        return None
    if not isinstance(value, _PYTHON[tree.kind]) or _is_wrong_bool(tree, value):
        return f"{where} is of type {type(value).__name__}, and the schema has {tree}"
    if tree.kind == "string" and not is_written(tree, value):
        return f"{where} is a str with half a surrogate pair, which the schema's string in UTF-8 has not"
    if tree.kind in ("int", "long") and isinstance(value, int):
        bits = 31 if tree.kind == "int" else 63
        if not -(1 << bits) <= value < 1 << bits:
            return f"{where} is out of range: the schema has {tree}"
    if tree.kind == "enum" and value not in tree.symbols:
        return f"{where} is no symbol of the schema's {tree}"
    if tree.kind == "record":
        return _field_mismatch(tree, value, path)
    if tree.kind == "array" and isinstance(value, (list, tuple)):
        return next((text for item in value if (text := mismatch(tree.items, item, f"{path}[]"))), None)
    if tree.kind == "map" and isinstance(value, Mapping):
        return next((text for item in value.values() if (text := mismatch(tree.items, item, f"{path}{{}}"))), None)
    return None


def _is_wrong_bool(tree: AvroType, value: Any) -> bool:
    return isinstance(value, bool) and tree.kind != "boolean"


def _field_mismatch(tree: AvroType, value: Any, path: str) -> str | None:
    if not isinstance(value, Mapping):
        return None
    for field in tree.fields:
        inner = inner_path(path, field.name)
        if field.name in value:
            text = mismatch(field.type, value[field.name], inner)
        elif field.type.kind in ("bytes", "fixed") and field.has_default:
            text = (
                f"field {inner!r} is missing, and defaults of the schema's {field.type} cannot be written: give a value"
            )
        elif field.has_default or has_null(field.type):
            text = None
        else:
            text = f"field {inner!r} is missing, and the schema's {field.type} has no default"
        if text is not None:
            return text
    return None


# --- fields, for rules -----------------------------------------------------------------------------------------------


def _walker(tree: AvroType, plan: Plan) -> FieldWalk:
    inline: dict[str, list[str]] = plan.tags or {}
    schema = plan.ruled

    def walk(of: AvroType, value: Any, path: str, change: FieldTransform, own: frozenset[str]) -> Any:
        if of.kind == "union":
            if isinstance(value, tuple) and len(value) == 2:
                named = next((one for one in of.branches if value[0] in (one.name, one.kind)), None)
                return value if named is None else (value[0], walk(named, value[1], path, change, own))
            branch = next((one for one in of.branches if mismatch(one, value) is None), None)
            return value if branch is None else walk(branch, value, path, change, own)
        if of.kind == "record" and isinstance(value, Mapping):
            changed = dict(value)
            for field in of.fields:
                if field.name in changed:
                    inner = f"{of.name}.{field.name}"
                    wanted = frozenset(inline.get(inner, ())) | outer_tags(schema, inner)
                    changed[field.name] = walk(field.type, changed[field.name], inner, change, wanted)
            return changed
        if of.kind == "array" and isinstance(value, list):
            return [walk(of.items, item, path, change, own) for item in value]
        if of.kind == "map" and isinstance(value, Mapping):
            return {key: walk(of.items, item, path, change, own) for key, item in value.items()}
        return change(path, own, of.kind.upper(), value) if path else value

    return lambda value, change: walk(tree, value, "", change, frozenset())


def _inline_checks(tree: AvroType) -> Callable[[Any], Iterator[InlineCheck]] | None:
    """Return what yields the parts of a value that have rules in the schema's text; None if there are none."""
    own: dict[int, tuple[InlineRule, ...]] = {}
    of_fields: dict[int, tuple[InlineRule, ...]] = {}

    def collect(of: AvroType) -> None:
        if id(of) in own:
            return
        own[id(of)] = inline_rules(of.rules)
        for field in of.fields:
            of_fields[id(field)] = inline_rules(field.rules)
        for inner in (of.items, *of.branches, *(field.type for field in of.fields)):
            collect(inner)

    def checks(of: AvroType, value: Any, path: str) -> Iterator[InlineCheck]:
        if of.kind == "union":
            name = value[0] if isinstance(value, tuple) and len(value) == 2 else None
            branches = [one for one in of.branches if name in (one.name, one.kind)] or of.branches
            value = value if name is None else value[1]
            branch = next((one for one in branches if mismatch(one, value) is None), None)
            if branch is not None:
                yield from checks(branch, value, path)
        elif of.kind == "record" and isinstance(value, Mapping):
            for rule in own[id(of)]:
                yield path, rule, value
            for field in of.fields:
                inner, held = inner_path(path, field.name), value.get(field.name)
                if held is not None:
                    for rule in of_fields[id(field)]:
                        yield inner, rule, held
                    yield from checks(field.type, held, inner)
        elif of.kind == "array" and isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                yield from checks(of.items, item, f"{path}[{place}]")
        elif of.kind == "map" and isinstance(value, Mapping):
            for key, item in value.items():
                yield from checks(of.items, item, f'{path}["{key}"]')

    collect(tree)
    if not any(own.values()) and not any(of_fields.values()):
        return None
    return lambda value: checks(tree, value, "")


def _inline_tags(serde: BaseSerde, schema: Schema) -> dict[str, list[str]]:
    """Return the tags in a schema's text and in those that it refers to (``confluent:tags``), by fields' full names."""
    found: dict[str, list[str]] = {}

    def visit(given: Any, space: str) -> None:
        if isinstance(given, list):
            for one in given:
                visit(one, space)
        elif isinstance(given, dict):
            inner = given.get("namespace", space)
            name = given.get("name", "")
            full = name if "." in name or not inner else f"{inner}.{name}"
            for field in given.get("fields", ()):
                if field.get("confluent:tags"):
                    found[f"{full}.{field['name']}"] = field["confluent:tags"]
                visit(field["type"], inner)
            for part in ("type", "items", "values"):
                if isinstance(given.get(part), (dict, list)):
                    visit(given[part], inner)

    if schema.schema_str:
        visit(loaded(schema.schema_str), "")
        for other in named_schemas(schema, serde._resolve).values():
            visit(other, "")
    return found
