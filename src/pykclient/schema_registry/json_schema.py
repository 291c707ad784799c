"""JSON checked against a registry's schemas. The validator is jsonschema's: ``pip install 'pykclient[jsonschema]'``.

Schemas refer to others by the names of their references. Nothing else is fetched: a ``$ref`` to an address in the
network is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from pykclient.config.config_def import ConfigKey, Type
from pykclient.errors import ConfigError, SerializationError
from pykclient.network.failures import shown_text
from pykclient.schema_registry.avro_types import referenced
from pykclient.schema_registry.models import is_model, json_maker, json_plain, json_schema
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.rules import (
    FieldTransform,
    FieldWalk,
    InlineCheck,
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

JSON: Final = "JSON"

_INLINE: Final = "confluent:rules"
_MOST_SHOWN: Final = 200
_VALIDATE: Final[tuple[ConfigKey, ...]] = (setting("validate", Type.BOOLEAN, True, "Check values against the schema."),)


class ParsedJson(NamedTuple):
    """A JSON schema, and what checks values against it."""

    contents: Any
    validator: Any
    #: True if the text, or one that it refers to, has rules.
    has_inline_rules: bool


class _ReadCodec(NamedTuple):
    #: What values are checked against, and what their rules are found by.
    checked: ParsedJson
    ruled: ParsedJson


def _encoder() -> Callable[[Any], str | bytes]:
    """Return an encoder to compact JSON in UTF-8: orjson's if it is installed."""
    if find_spec("orjson") is not None:
        dumps: Callable[[Any], bytes] = load("orjson", "jsonschema").dumps
        return dumps
    return lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _given_schema(given: Any) -> Schema | None:
    if given is None or isinstance(given, Schema):
        return given
    if is_model(given):
        return Schema(json.dumps(json_schema(given)), JSON)
    if isinstance(given, str):
        return Schema(given, JSON)
    raise TypeError("You must pass either str or Schema, or a class of a model")


def parsed_json(schema: Schema, resolve: Callable[[str, int], Schema]) -> ParsedJson:
    """Parse a JSON schema. ``resolve`` gets a subject's version.

    Raises:
        ValueError: the text is not JSON.
    """
    jsonschema = load("jsonschema", "jsonschema")
    referencing = load("referencing", "jsonschema")
    draft7 = load("referencing.jsonschema", "jsonschema").DRAFT7
    contents = json.loads(schema.schema_str or "null")
    known = referencing.Registry()
    has_inline_rules = _INLINE in (schema.schema_str or "")
    for name, text in referenced(schema, resolve):
        has_inline_rules = has_inline_rules or _INLINE in text
        resource = referencing.Resource.from_contents(json.loads(text), default_specification=draft7)
        known = known.with_resource(name, resource)
    kind = jsonschema.validators.validator_for(contents)
    kind.check_schema(contents)
    return ParsedJson(contents, kind(contents, registry=known), has_inline_rules)


def json_problem(parsed: ParsedJson, value: Any) -> str | None:
    """Return which part of a value is not valid, and why, without showing it; None if it is valid."""
    error = next(parsed.validator.iter_errors(value), None)
    if error is None:
        return None
    path = ".".join(str(part) for part in error.absolute_path)
    where = field_at(path)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"{where} lacks the required properties {', '.join(missing)}"
    wanted = f"{error.validator} {shown_text(json.dumps(error.validator_value), _MOST_SHOWN)}"
    return f"{where} is of type {type(error.instance).__name__}, and the schema has {wanted}"


def json_damage(data: bytes) -> str | None:
    """Return why bytes are not JSON; None if they are."""
    try:
        json.loads(data)
    except UnicodeDecodeError as error:
        return f"the text is not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"the text is not JSON: {error}"
    except RecursionError:
        return "the JSON is nested too deeply"
    except ValueError:
        return "the JSON has a number with too many digits"
    return None


def _unencodable(value: Any, path: str) -> str | None:
    """Return which part of a value JSON, or a number of 64 bits, does not have; None if there is none."""
    where = field_at(path)
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                return f"{where} has a name of type {type(name).__name__}, and JSON has texts"
            text = _unencodable(item, inner_path(path, name))
            if text is not None:
                return text
        return None
    if isinstance(value, (list, tuple)):
        return next((text for item in value if (text := _unencodable(item, f"{path}[]")) is not None), None)
    if isinstance(value, str):
        return None if _is_encodable(value) else f"{where} is a str with half a surrogate pair, which UTF-8 has not"
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return f"{where} is an int of more than 64 bits"
    if value is None or isinstance(value, (bool, int, float)):
        return None
    return f"{where} is of type {type(value).__name__}, which JSON has not"


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Serializer(BaseSerializer):
    _keys = (*WRITING, *_VALIDATE)
    schema_type = JSON

    def __init__(
        self,
        schema_str: str | Schema | type | None,
        schema_registry_client: Registry,
        to_dict: ToDict | None = None,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: RuleRegistry | None = None,
        json_encode: Callable[[Any], str | bytes] | None = None,
    ) -> None:
        """Check the settings; nothing is asked of the registry yet.

        ``schema_str`` is text, a Schema (which may have references), or a dataclass, pydantic model or msgspec struct.
        ``json_encode`` replaces the encoder.

        Raises:
            ConfigError: a setting is unknown, or of the wrong type.
            TypeError: ``schema_str`` is of none of these types.
        """
        super().__init__(schema_registry_client, conf, rule_registry, rule_conf)
        self._to_dict = converter("to_dict", to_dict, "object")
        self._of_model = json_plain if is_model(schema_str) else None
        self._schema = _given_schema(schema_str)
        self._encode = json_encode or _encoder()
        given = None if self._schema is None else json.loads(self._schema.schema_str or "null")
        self._name = given.get("title") if isinstance(given, dict) else None
        load("jsonschema", "jsonschema")

    def _codec(self, schema: Schema) -> ParsedJson:
        return parsed_json(schema, self._resolve)

    def _dumped(self, plan: Plan, value: Any) -> bytes:
        if self._conf["validate"]:
            text = json_problem(plan.codec, value)
            if text is not None:
                raise SerializationError(text)
        made = self._encode(value)
        return made.encode() if isinstance(made, str) else made

    def _mismatch(self, plan: Plan, value: Any) -> str | None:  # noqa: ARG002
        return _unencodable(value, "")

    def _walk(self, plan: Plan) -> FieldWalk:
        return _walker(plan.codec, plan.reader)

    def _inline(self, codec: ParsedJson) -> Callable[[Any], Iterator[InlineCheck]] | None:
        return _inline_checks(codec) if codec.has_inline_rules else None


class JSONSerializer(Blocking[bytes | None], _Serializer):
    """Writes JSON with the id of its schema. A serializer of clients, or called as ``serializer(value, ctx)``.

    Settings (``conf``): those of AvroSerializer that are not about Avro, and ``validate`` (True). Thread: any.
    """


class AsyncJSONSerializer(Asynchronous[bytes | None], _Serializer):
    """``JSONSerializer`` for asyncio, with an AsyncSchemaRegistryClient."""


class _Deserializer(BaseDeserializer[T]):
    _keys = (*READING, *_VALIDATE)
    schema_type = JSON

    def __init__(
        self,
        schema_str: str | Schema | type[T] | None,
        from_dict: Callable[[Any, SerializationContext], T] | None = None,
        schema_registry_client: Registry | None = None,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: RuleRegistry | None = None,
        json_decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        """Check the settings; nothing is asked of the registry yet.

        ``schema_str`` is the schema to check values against, or a model, whose instances are returned then. Without
        one, it is the writer's. Without a registry's client, the ids of records are not looked up.

        Raises:
            ConfigError: a setting is unknown or of the wrong type, or there is neither a schema nor a client.
            TypeError: ``schema_str`` is of none of these types.
        """
        super().__init__(schema_registry_client, conf, rule_registry, rule_conf)
        self._schema = _given_schema(schema_str)
        if schema_registry_client is None and (self._schema is None or self._schema.references):
            what = "not provided" if self._schema is None else "a Schema instance with references"
            raise ConfigError(f'schema_registry_client must be provided if "schema_str" is {what}')
        self._from_dict = converter("from_dict", from_dict, "value")
        if from_dict is None and isinstance(schema_str, type) and is_model(schema_str):
            self._make = json_maker(schema_str)
        self._decode = json_decode or json.loads
        load("jsonschema", "jsonschema")

    def _codec(self, writer: Schema | None, reader: Schema | None, schema_id: SchemaId) -> _ReadCodec | None:  # noqa: ARG002
        schema = reader or writer
        if schema is None:
            return None
        checked = parsed_json(schema, self._resolve)
        is_ruled = writer is not None and writer is not schema and writer.rule_set is not None
        return _ReadCodec(checked, parsed_json(writer, self._resolve) if is_ruled and writer is not None else checked)

    def _make_plan(self, schema_id: SchemaId, ctx: SerializationContext | None) -> Plan:
        plan = super()._make_plan(schema_id, ctx)
        if not plan.migrations:
            return plan
        # Values are checked after their migration.
        codec = self._codec(None, plan.reader, schema_id)
        migrated = Plan(
            plan.subject, plan.schema_id, plan.writer, plan.reader, codec, plan.migrations, ruled=plan.ruled
        )
        return self._keep(self._plan_key(schema_id, ctx), migrated)

    def _writer_name(self, codec: _ReadCodec | None) -> str | None:
        contents = None if codec is None else codec.checked.contents
        return contents.get("title") if isinstance(contents, dict) else None

    def _loaded(self, plan: Plan, data: bytes) -> Any:  # noqa: ARG002
        return self._decode(data)

    def _problem(self, plan: Plan, value: Any) -> str | None:
        return None if plan.codec is None or not self._conf["validate"] else json_problem(plan.codec.checked, value)

    def _mismatch(self, plan: Plan, value: Any) -> str | None:  # noqa: ARG002 - the value is bytes here
        return json_damage(value)

    def _walk(self, plan: Plan) -> FieldWalk | None:
        if plan.codec is None:
            return None
        return _walker(plan.codec.ruled if plan.is_ruled_first else plan.codec.checked, plan.ruled)


class JSONDeserializer(Blocking[T], _Deserializer[T]):
    """Reads JSON and checks it against its schema. A deserializer of clients, or ``deserializer(data, ctx)``."""


class AsyncJSONDeserializer(Asynchronous[T], _Deserializer[T]):
    """``JSONDeserializer`` for asyncio, with an AsyncSchemaRegistryClient."""


class JsonPlace(NamedTuple):
    """A part of a schema, and what resolves its references."""

    schema: Any
    resolver: Any

    def at(self, schema: Any) -> JsonPlace:
        """Return another part of the same text."""
        return JsonPlace(schema, self.resolver)

    def referred(self) -> JsonPlace | None:
        """Return what this refers to; None if it is no reference."""
        if not isinstance(self.schema, dict) or "$ref" not in self.schema:
            return None
        found = self.resolver.lookup(self.schema["$ref"])
        return JsonPlace(found.contents, found.resolver)


def _all_of(parsed: ParsedJson, place: JsonPlace, value: Any) -> Iterator[JsonPlace]:
    """Yield the schemas without alternatives and references that a value fits."""
    while (found := place.referred()) is not None:
        place = found
    if isinstance(place.schema, dict):
        yield place
        for kind in ("oneOf", "anyOf", "allOf"):
            for one in place.schema.get(kind, ()):
                if parsed.validator.evolve(schema=one, _resolver=place.resolver).is_valid(value):
                    yield from _all_of(parsed, place.at(one), value)


def _property(places: list[JsonPlace], name: str) -> list[JsonPlace]:
    """Return what the schemas of an object say about a property."""
    return [
        place.at(place.schema["properties"][name]) for place in places if name in place.schema.get("properties", ())
    ]


def _inline_checks(parsed: ParsedJson) -> Callable[[Any], Iterator[InlineCheck]]:
    """Return what yields the parts of a value that have rules in the schema's text."""

    def checks(places: list[JsonPlace], value: Any, path: str) -> Iterator[InlineCheck]:
        if value is None:
            return
        flat = [found for place in places for found in _all_of(parsed, place, value)]
        for place in flat:
            for rule in inline_rules(place.schema.get(_INLINE)):
                yield path, rule, value
        for name, item in value.items() if isinstance(value, dict) else ():
            yield from checks(_property(flat, name), item, inner_path(path, name))
        items = [place.at(place.schema["items"]) for place in flat if "items" in place.schema]
        for number, item in enumerate(value if isinstance(value, list) else ()):
            yield from checks(items, item, f"{path}[{number}]")

    root = JsonPlace(parsed.contents, parsed.validator._resolver)
    return lambda value: checks([root], value, "")


def _walker(parsed: ParsedJson, schema: Schema | None) -> FieldWalk:
    def walk(places: list[JsonPlace], value: Any, path: str, change: FieldTransform, own: frozenset[str]) -> Any:
        flat = [found for place in places for found in _all_of(parsed, place, value)]
        if isinstance(value, dict) and any("properties" in place.schema for place in flat):
            changed = dict(value)
            for name in value:
                if inner := _property(flat, name):
                    where = f"{path}.{name}"
                    given = [one.schema.get("confluent:tags", ()) for one in inner if isinstance(one.schema, dict)]
                    tags = frozenset(tag for some in given for tag in some) | outer_tags(schema, where)
                    changed[name] = walk(inner, value[name], where, change, tags)
            return changed
        items = [place.at(place.schema["items"]) for place in flat if "items" in place.schema]
        if isinstance(value, list) and items:
            return [walk(items, item, path, change, own) for item in value]
        return value if path == "$" else change(path, own, _TYPES.get(type(value), "RECORD"), value)

    root = JsonPlace(parsed.contents, parsed.validator._resolver)
    return lambda value, change: walk([root], value, "$", change, frozenset())


_TYPES: Final[dict[type, str]] = {bool: "BOOLEAN", int: "INT", float: "DOUBLE", str: "STRING", type(None): "NULL"}
