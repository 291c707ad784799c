"""Protobuf by a registry's schemas. Messages are those of the package protobuf: ``pip install 'pykclient[protobuf]'``.

Schemas are registered as serialized file descriptors, each import as a reference of its own. Google's well-known types
are not registered: every reader has them.
"""

from __future__ import annotations

import base64
import decimal
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pykclient.config.config_def import ConfigKey, Type
from pykclient.errors import ConfigError, SerializationError
from pykclient.schema_registry.avro_types import referenced
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.rules import FieldTransform, FieldWalk, InlineCheck, InlineRule, RuleRegistry, outer_tags
from pykclient.schema_registry.schemas import Schema, SchemaReference, inner_path
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
    reference_subject_name_strategy,
    setting,
)
from pykclient.schema_registry.wire import SchemaId, read_varint
from pykclient.serialization import SerializationContext

PROTOBUF: Final = "PROTOBUF"

_DEPRECATED: Final = "use.deprecated.format"
_OLD_INDEXES: Final = setting(_DEPRECATED, Type.BOOLEAN, False, "Indexes are unsigned, as old writers wrote them.")
_READING: Final[tuple[ConfigKey, ...]] = (*READING, _OLD_INDEXES)
_WRITING: Final[tuple[ConfigKey, ...]] = (
    *WRITING,
    _OLD_INDEXES,
    setting("skip.known.types", Type.BOOLEAN, True, "Do not register Google's and Confluent's own files."),
    setting("reference.subject.name.strategy", Type.STRING, None, "A function that returns a reference's subject."),
)


def _field(name: str, number: int, kind: str, label: str = "OPTIONAL") -> dict[str, Any]:
    """Return a field's description; ``kind`` is a type, or the name of a message after a dot."""
    typed = {"type": "TYPE_MESSAGE", "typeName": kind} if kind.startswith(".") else {"type": f"TYPE_{kind}"}
    return {"name": name, "number": number, "label": f"LABEL_{label}", **typed}


#: Files that every reader has, and the modules of Python that describe them.
_WELL_KNOWN: Final = tuple(
    f"google.{package}.{name}_pb2"
    for package, names in (
        ("protobuf", "any source_context type api descriptor duration empty field_mask struct timestamp wrappers"),
        ("type", "calendar_period color date datetime dayofweek expr fraction latlng money month"),
        ("type", "postal_address quaternion timeofday"),
    )
    for name in names.split()
)


#: Confluent's own files, which its serializers do not register either: tags of fields, and decimals.
_CONFLUENT: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "confluent/meta.proto",
        "package": "confluent",
        "syntax": "proto3",
        "dependency": ["google/protobuf/descriptor.proto"],
        "messageType": [
            {
                "name": "Meta",
                "field": [
                    _field("doc", 1, "STRING"),
                    _field("params", 2, ".confluent.Meta.ParamsEntry", "REPEATED"),
                    _field("tags", 3, "STRING", "REPEATED"),
                    _field("rules", 4, ".confluent.Rule", "REPEATED"),
                ],
                "nestedType": [
                    {
                        "name": "ParamsEntry",
                        "field": [_field("key", 1, "STRING"), _field("value", 2, "STRING")],
                        "options": {"mapEntry": True},
                    }
                ],
            },
            {
                "name": "Rule",
                "field": [_field(name, 1 + at, "STRING") for at, name in enumerate(("name", "doc", "expr", "sql"))],
            },
        ],
        "extension": [
            {**_field(f"{name}_meta", 1088, ".confluent.Meta"), "extendee": f".google.protobuf.{extended}Options"}
            for name, extended in (
                ("file", "File"),
                ("message", "Message"),
                ("field", "Field"),
                ("enum", "Enum"),
                ("enum_value", "EnumValue"),
            )
        ],
    },
    {
        "name": "confluent/type/decimal.proto",
        "package": "confluent.type",
        "syntax": "proto3",
        "messageType": [
            {
                "name": "Decimal",
                "field": [_field("value", 1, "BYTES"), _field("precision", 2, "UINT32"), _field("scale", 3, "INT32")],
            }
        ],
    },
    {
        "name": "confluent/types/decimal.proto",
        "syntax": "proto3",
        "dependency": ["confluent/type/decimal.proto"],
        "publicDependency": [0],
    },
)


_DEEPEST: Final = 100
#: The names of a field's types, by their numbers.
TYPE_NAMES: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)


def _is_built_in(name: str) -> bool:
    return name.startswith(("confluent/", "google/protobuf/", "google/type/"))


def index_array(descriptor: Any) -> list[int]:
    """Return a message's index path in its file: the index of each enclosing message, and its own."""
    found: list[int] = []
    while descriptor.containing_type is not None:
        outer = descriptor.containing_type
        found.append([nested.full_name for nested in outer.nested_types].index(descriptor.full_name))
        descriptor = outer
    found.append(list(descriptor.file.message_types_by_name).index(descriptor.name))
    return found[::-1]


def schema_text(file: Any) -> str:
    """Return a file's descriptor as the text of a schema."""
    return base64.b64encode(file.serialized_pb).decode("ascii")


def take_reference_strategy(conf: dict[str, Any]) -> Callable[..., str | None]:
    """Remove the strategy for the subjects of references from settings, and return it.

    Raises:
        ConfigError: it cannot be called.
    """
    strategy: Callable[..., str | None] | None = conf.pop("reference.subject.name.strategy", None)
    if strategy is not None and not callable(strategy):
        raise ConfigError("reference.subject.name.strategy must be callable")
    return strategy or reference_subject_name_strategy


class _Serializer(BaseSerializer):
    _keys = _WRITING
    schema_type = PROTOBUF
    _fmt = "serialized"

    def __init__(
        self,
        msg_type: type[Any],
        schema_registry_client: Registry,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: RuleRegistry | None = None,
    ) -> None:
        """Check the settings; nothing is asked of the registry yet. ``msg_type`` is the class of the messages.

        Raises:
            ConfigError: a setting is unknown, or of the wrong type.
        """
        given = dict(conf or {})
        strategy = take_reference_strategy(given)
        super().__init__(schema_registry_client, given, rule_registry, rule_conf)
        self._zigzag = not self._conf[_DEPRECATED]
        self._reference_subject = strategy
        self._msg_class = msg_type
        descriptor = msg_type.DESCRIPTOR
        self._name = descriptor.full_name
        self._file = descriptor.file
        self._index_array = index_array(descriptor)

    def _indexes(self) -> list[int] | None:
        return self._index_array

    def _check_object(self, obj: Any) -> None:
        if not isinstance(obj, self._msg_class):
            raise ValueError(  # noqa: TRY004 - as confluent-kafka
                f"message must be of type {self._msg_class} not {type(obj)}"
            )

    def _own_schema(self, ctx: SerializationContext | None) -> Schema | None:
        """Return the file's schema, with references to its imports, which are registered first if settings say so."""
        return self._with_references(self._file, ctx, {})

    def _with_references(self, file: Any, ctx: SerializationContext | None, done: dict[str, SchemaReference]) -> Schema:
        references = []
        normalize = self._conf["normalize.schemas"]
        for imported in file.dependencies:
            if self._conf["skip.known.types"] and _is_built_in(imported.name):
                continue
            if imported.name not in done:
                subject = self._reference_subject(ctx, imported)
                if subject is None:
                    raise SerializationError(f"there is no subject for the import {imported.name!r}")
                schema = self._with_references(imported, ctx, done)
                if self._conf["auto.register.schemas"]:
                    self._registry_needed().register_schema(subject, schema, normalize)
                found = self._registry_needed().lookup_schema(subject, schema, normalize)
                done[imported.name] = SchemaReference(imported.name, subject, found.version)
            references.append(done[imported.name])
        return Schema(schema_text(file), PROTOBUF, references)

    def _codec(self, schema: Schema) -> None:  # noqa: ARG002 - messages know their form
        return None

    def _inline(self, codec: Any) -> Callable[[Any], Iterator[InlineCheck]] | None:  # noqa: ARG002
        return _inline_checks(self._msg_class.DESCRIPTOR)

    def _dumped(self, plan: Plan, value: Any) -> bytes:  # noqa: ARG002
        made: bytes = value.SerializeToString()
        return made

    def _mismatch(self, plan: Plan, value: Any) -> str | None:  # noqa: ARG002
        missing = value.FindInitializationErrors()
        return f"the required fields {', '.join(missing)} of {self._name} are missing" if missing else None

    def _walk(self, plan: Plan) -> FieldWalk:
        return _walker(plan.reader)


class ProtobufSerializer(Blocking[bytes | None], _Serializer):
    """Writes messages with the id of their schema and the index path of their type. A serializer of clients.

    Settings (``conf``): those of AvroSerializer that are not about Avro, skip.known.types,
    reference.subject.name.strategy and use.deprecated.format (the indexes of writers before confluent-kafka 1.8).
    Thread: any.
    """


class AsyncProtobufSerializer(Asynchronous[bytes | None], _Serializer):
    """``ProtobufSerializer`` for asyncio, with an AsyncSchemaRegistryClient."""


class _Codec(NamedTuple):
    #: The classes of the writer's and of the reader's messages; None without a registry.
    writer: Any
    reader: Any


class _Deserializer(BaseDeserializer[T]):
    _keys = _READING
    schema_type = PROTOBUF
    _fmt = "serialized"

    def __init__(
        self,
        message_type: type[T] | None,
        conf: Mapping[str, Any] | None = None,
        schema_registry_client: Registry | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: RuleRegistry | None = None,
    ) -> None:
        """Check the settings; nothing is asked of the registry yet.

        ``message_type`` is the class of the messages to return. None returns those of the writer's schema, whose
        classes are made from the registry. Without a registry's client, the ids of records are not looked up.

        Raises:
            ConfigError: a setting is unknown or of the wrong type, or there is neither a class nor a client.
        """
        super().__init__(schema_registry_client, conf, rule_registry, rule_conf)
        self._zigzag = not self._conf[_DEPRECATED]
        if message_type is None and schema_registry_client is None:
            raise ConfigError("schema_registry_client must be provided if message_type is None")
        self._msg_class: Any = message_type

    def _codec(self, writer: Schema | None, reader: Schema | None, schema_id: SchemaId) -> _Codec:
        if writer is None:
            return _Codec(None, None)
        indexes = schema_id.message_indexes or [0]
        written = self._message_class(writer, indexes)
        if reader is None or reader is writer:
            return _Codec(written, written)
        return _Codec(written, self._message_class(reader, indexes))

    def _message_class(self, schema: Schema, indexes: list[int]) -> Any:
        """Return the class of the message at a place of a schema's file."""
        return message_class(file_of(schema, self._resolve), indexes)

    def _writer_name(self, codec: _Codec) -> str | None:
        return None if codec.writer is None else str(codec.writer.DESCRIPTOR.full_name)

    def _loaded(self, plan: Plan, data: bytes) -> Any:
        codec: _Codec = plan.codec
        kind = codec.writer if plan.migrations or self._msg_class is None else self._msg_class
        if plan.has_rules and not plan.migrations:
            kind = codec.reader  # the application's class may lack tags of the schema
        message = kind()
        message.ParseFromString(data)
        if plan.migrations:
            return load("google.protobuf.json_format", "protobuf").MessageToDict(message, True)
        return message

    def _after_migrations(self, plan: Plan, value: Any) -> Any:
        assert plan.reader is not None
        assert plan.schema_id is not None
        if self._msg_class is not None and not plan.has_rules:
            kind = self._msg_class
        else:
            kind = self._message_class(plan.reader, plan.schema_id.message_indexes or [0])
        return load("google.protobuf.json_format", "protobuf").ParseDict(value, kind(), ignore_unknown_fields=True)

    def _after_rules(self, plan: Plan, value: Any) -> Any:  # noqa: ARG002
        if self._msg_class is None or isinstance(value, self._msg_class):
            return value
        return self._msg_class.FromString(value.SerializeToString())

    def _walk(self, plan: Plan) -> FieldWalk:
        return _walker(plan.ruled)

    def _mismatch(self, plan: Plan, value: Any) -> str | None:
        kind: Any = plan.codec.writer or self._msg_class
        descriptor = kind.DESCRIPTOR
        found = message_damage(descriptor, value, "", 0)
        return f"{len(value)} bytes are no message of {descriptor.full_name}" + (f": {found}" if found else "")


def message_damage(descriptor: Any, data: bytes, path: str, depth: int) -> str | None:
    """Return which field of a message's bytes is damaged, and its type; None if none is found."""
    pos = 0
    where = f"field {path!r}" if path else "the message"
    while pos < len(data) and depth < _DEEPEST:
        try:
            tag, pos = read_varint(data, pos)
        except SerializationError:
            return f"{where}: the bytes end inside of the number of a field"
        field = descriptor.fields_by_number.get(tag >> 3)
        name = f"{path}.{field.name}" if path and field is not None else field.name if field is not None else path
        kind = "a field that the schema has not"
        if field is not None:
            kind = f"the schema has {field.message_type.full_name if field.message_type else TYPE_NAMES[field.type]}"
        where_of = f"field {name!r}" if name else "the message"
        if not tag >> 3:
            return f"{where}: there is no field 0"
        wire = tag & 7
        try:
            size = {1: 8, 5: 4}.get(wire, 0)
            if wire in (0, 2):
                value, pos = read_varint(data, pos)
                size = value if wire == 2 else 0
        except SerializationError:
            return f"{where_of}: the bytes end inside of it; {kind}"
        if wire > 5 or wire in (3, 4):
            return f"{where_of}: the wire type {wire} cannot be read; {kind}" if wire > 5 else None
        if size > len(data) - pos:
            return f"{where_of}: the bytes end inside of it; {kind}"
        part = data[pos : pos + size]
        pos += size
        if field is None or wire != 2:
            continue
        if field.message_type is not None:
            found = message_damage(field.message_type, part, name, depth + 1)
            if found is not None:
                return found
        elif field.type == field.TYPE_STRING:
            try:
                part.decode()
            except UnicodeDecodeError as error:
                return f"{where_of}: the text is not UTF-8 at byte {error.start}; {kind}"
    return None


def file_of(schema: Schema, resolve: Callable[[str, int], Schema]) -> Any:
    """Return the descriptor of a schema's file. ``resolve`` gets a subject's version.

    Raises:
        SerializationError: the schema is not a file.
    """
    pool = _pool()
    seen: set[str] = set()  # a pool has one file of a name, whichever version of a subject it is

    def is_known(name: str) -> bool:
        if name in seen or _is_built_in(name):
            return True
        seen.add(name)
        return False

    try:
        for name, text in referenced(schema, resolve, is_known):
            pool.Add(_file(name, text))
        file = _file("default", schema.schema_str or "")
        pool.Add(file)
        return pool.FindFileByName(file.name)
    except (TypeError, ValueError, KeyError) as error:
        raise SerializationError(f"the schema is no valid file of Protobuf: {error}") from error


def message_class(file: Any, indexes: Sequence[int]) -> Any:
    """Return the class of the message at a place of a file.

    Raises:
        SerializationError: the file has no such message.
    """
    descriptor = None
    messages = list(file.message_types_by_name.values())
    for index in indexes:
        if not 0 <= index < len(messages):
            raise SerializationError(f"message index {index} out of range: there are {len(messages)} messages")
        descriptor = messages[index]
        messages = list(descriptor.nested_types)
    return load("google.protobuf.message_factory", "protobuf").GetMessageClass(descriptor)


def _file(name: str, text: str) -> Any:
    """Return the file's descriptor in the text of a schema."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise SerializationError(
            f"the schema of {name!r} is text of Protobuf, and not a serialized file: the registry does not support "
            "format=serialized"
        ) from error
    made = load("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto()
    try:
        made.ParseFromString(data)
    except Exception as error:
        raise SerializationError(f"the schema of {name!r} is no file of Protobuf") from error
    made.name = name
    return made


def known_files() -> Iterator[bytes]:
    """Yield the serialized files that every reader has, each after those that it imports."""
    for name in _WELL_KNOWN:
        yield load(name, "protobuf").DESCRIPTOR.serialized_pb
    proto = load("google.protobuf.descriptor_pb2", "protobuf")
    for described in _CONFLUENT:
        made = load("google.protobuf.json_format", "protobuf").ParseDict(described, proto.FileDescriptorProto())
        yield made.SerializeToString()


def _pool() -> Any:
    """Return a new pool with the files that every reader has."""
    pool = load("google.protobuf.descriptor_pool", "protobuf").DescriptorPool()
    for file in known_files():
        pool.AddSerializedFile(file)
    return pool


@functools.cache
def _own_message(name: str) -> Any:
    """Return the class of a message that every reader has."""
    return load("google.protobuf.message_factory", "protobuf").GetMessageClass(_own_pool().FindMessageTypeByName(name))


@functools.cache
def _own_pool() -> Any:
    return _pool()


def decimal_to_protobuf(value: decimal.Decimal, scale: int) -> Any:
    """Return a ``confluent.type.Decimal`` message with ``scale`` digits after the decimal point.

    Raises:
        ValueError: the value has more digits after the point, or is no number.
    """
    if not value.is_finite():
        raise ValueError("the decimal is not finite")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + scale
    number = int("".join(map(str, digits)))
    if shift < 0 and number % 10**-shift:
        raise ValueError("Scale provided does not match the decimal")
    number = number * 10**shift if shift >= 0 else number // 10**-shift
    number = -number if sign else number
    message = _own_message("confluent.type.Decimal")()
    message.value = number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    message.scale = scale
    return message


def protobuf_to_decimal(value: Any) -> decimal.Decimal:
    """Return the decimal in a message ``confluent.type.Decimal``."""
    number = int.from_bytes(value.value, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return decimal.Decimal((int(number < 0), digits, -value.scale))


def _meta(options: Any, kind: str) -> Any:
    """Return Confluent's options of a message or a field."""
    given = _own_message(f"google.protobuf.{kind.title()}Options")()
    given.ParseFromString(options.SerializeToString())
    return given.Extensions[_own_pool().FindExtensionByName(f"confluent.{kind}_meta")]


def _inline_checks(descriptor: Any) -> Callable[[Any], Iterator[InlineCheck]] | None:
    """Return what yields the parts of a message that have rules in its options; None if there are none."""
    own: dict[str, tuple[InlineRule, ...]] = {}

    def rules_of(found: Any, kind: str) -> tuple[InlineRule, ...]:
        rows = _meta(found.GetOptions(), kind).rules
        return tuple(InlineRule(rule.name, rule.doc, rule.expr, rule.sql) for rule in rows)

    def collect(of: Any) -> None:
        if of.full_name in own:
            return
        own[of.full_name] = rules_of(of, "message")
        for field in of.fields:
            own[field.full_name] = rules_of(field, "field")
            if field.message_type is not None:
                collect(field.message_type)

    def checks(message: Any, path: str) -> Iterator[InlineCheck]:
        for rule in own[message.DESCRIPTOR.full_name]:
            yield path, rule, message
        for field in message.DESCRIPTOR.fields:
            if field.has_presence and not message.HasField(field.name):
                continue
            value, inner = getattr(message, field.name), inner_path(path, field.name)
            for rule in own[field.full_name]:
                yield inner, rule, value
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                if field.message_type.fields_by_name["value"].message_type is not None:
                    for key in value:
                        yield from checks(value[key], f'{inner}["{key}"]')
            elif field.has_presence:
                yield from checks(value, inner)
            else:
                for place, item in enumerate(value):
                    yield from checks(item, f"{inner}[{place}]")

    collect(descriptor)
    return (lambda message: checks(message, "")) if any(own.values()) else None


def _walker(schema: Schema | None) -> FieldWalk:
    def tags_of(field: Any) -> frozenset[str]:
        """Return the tags in Confluent's option ``field_meta``, and those in the schema's metadata."""
        return frozenset(_meta(field.GetOptions(), "field").tags) | outer_tags(schema, field.full_name)

    def each(field: Any, value: Any, change: FieldTransform, tags: frozenset[str]) -> Any:
        if field.message_type is not None:
            return walk(value, change)
        name = {1: "DOUBLE", 2: "FLOAT", 8: "BOOLEAN", 9: "STRING", 12: "BYTES", 14: "ENUM"}.get(field.type, "INT")
        return change(field.full_name, tags, name, value)

    def walk(message: Any, change: FieldTransform) -> Any:
        changed = type(message)()
        changed.CopyFrom(message)
        for field, value in message.ListFields():
            tags = tags_of(field)
            held = getattr(changed, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                of = field.message_type.fields_by_name["value"]
                for key in list(value):
                    if of.message_type is not None:
                        held[key].CopyFrom(walk(value[key], change))
                    else:
                        held[key] = each(of, value[key], lambda _, *rest: change(field.full_name, *rest), tags)  # noqa: B023
            elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
                del held[:]
                held.extend([each(field, item, change, tags) for item in value])
            elif field.message_type is not None:
                held.CopyFrom(walk(value, change))
            else:
                setattr(changed, field.name, each(field, value, change, tags))
        return changed

    return walk


class ProtobufDeserializer(Blocking[T], _Deserializer[T]):
    """Reads messages. A deserializer of clients, or called as ``deserializer(data, ctx)``."""


class AsyncProtobufDeserializer(Asynchronous[T], _Deserializer[T]):
    """``ProtobufDeserializer`` for asyncio, with an AsyncSchemaRegistryClient."""
