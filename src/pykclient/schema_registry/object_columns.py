"""JSON and Protobuf records as Arrow columns: libraries decode a record, and its fields become the rows of columns.

    batch = consumer.poll_arrow(1000, value=json_columns(registry))
    batch.column("value")      # a struct with a column for each property

Which column a part of a schema becomes, and how the values that libraries return fit it, is in a ``_Column``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from pykclient.errors import IllegalArgumentError, SerializationError
from pykclient.schema_registry.avro_decoder import Rows
from pykclient.schema_registry.columns import RegistryColumns, ensure_fields
from pykclient.schema_registry.json_schema import JsonPlace, ParsedJson, json_damage, json_problem, parsed_json
from pykclient.schema_registry.models import is_model, json_schema
from pykclient.schema_registry.protobuf import file_of, index_array, message_class, message_damage, schema_text
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schema_registry_client import AsyncSchemaRegistryClient, SchemaRegistryClient
from pykclient.schema_registry.schemas import Schema, field_at, inner_path
from pykclient.schema_registry.wire import SchemaId, read_indexes

_INT64: Final = range(-(1 << 63), 1 << 63)
#: The most rows that are decoded at once.
_BLOCK: Final = 1024
#: Returns the row of a column for a value at a path that is not null, and raises SerializationError if it does not fit.
_Convert = Callable[[Any, str], Any]


class _Column(NamedTuple):
    type: Any
    convert: _Convert
    #: True if Arrow's reader of JSON makes the same column.
    is_arrows: bool = False


class _ObjectReader:
    """Reads the rows of one array. Thread: owner."""

    def __init__(
        self, type: Any, decode: Callable[[bytes, bytes], Any], decode_all: Callable[[list[bytes]], Any] | None = None
    ) -> None:
        """Read rows into a column.

        ``decode`` returns the row of a prefix and the bytes after it, or raises SerializationError. ``decode_all``
        returns an array of many rows; None if it cannot.
        """
        self._type = type
        self._decode = decode
        self._decode_all = decode_all
        self._values: list[Any] = []
        self._parts: list[Any] = []

    def add_null(self) -> None:
        """Add null."""
        self._values.append(None)

    def read(self, prefix: bytes, rows: Rows, row: int) -> tuple[int, str | None]:
        """Read the rows from ``row`` on that are null or begin with ``prefix``."""
        size = len(prefix)
        while row < rows.size:
            if rows.is_null(row):
                self.add_null()
                row += 1
                continue
            if rows.value(row)[:size] != prefix:
                break
            end = min(rows.next_other(row, prefix), row + _BLOCK)
            values = [bytes(rows.value(place)[size:]) for place in range(row, end)]
            part = None if self._decode_all is None else self._decode_all(values)
            if part is not None:
                self._end_part()
                self._parts.append(part)
                row = end
                continue
            for value in values:
                try:
                    self._values.append(self._decode(prefix, value))
                except SerializationError as error:
                    return row, str(error)
                row += 1
        return row, None

    def _end_part(self) -> None:
        if self._values:
            self._parts.append(load("pyarrow", "arrow").array(self._values, self._type))
            self._values = []

    def array(self) -> Any:
        """Return the column."""
        pa: Any = load("pyarrow", "arrow")
        self._end_part()
        return pa.concat_arrays(self._parts) if self._parts else pa.array([], self._type)


# --- JSON ------------------------------------------------------------------------------------------------------------


class _JsonTarget(NamedTuple):
    column: _Column
    #: The schema that is given to read by, which values are checked against; None: each row's own.
    given: ParsedJson | None


class JSONColumns(RegistryColumns[ParsedJson, _JsonTarget]):
    """Decodes columns of JSON. Thread: one at a time."""

    schema_type = "JSON"
    _names = ("JSON Schema", "JSONDeserializer")

    def __init__(
        self,
        registry: SchemaRegistryClient | AsyncSchemaRegistryClient,
        schema: str | Schema | type | None = None,
        columns: Iterable[str] | None = None,
        on_error: str = "raise",
        validate: bool = True,
    ) -> None:
        """See ``json_columns``."""
        if isinstance(schema, type):
            if not is_model(schema):
                what = "dataclass, pydantic model or msgspec struct"
                raise IllegalArgumentError(f"schema: {schema.__name__} is no {what}")
            schema = json.dumps(json_schema(schema))
        load("jsonschema", "jsonschema")
        super().__init__(registry, schema, columns, on_error)
        self._validate = validate

    def _parsed(self, schema: Schema, schema_id: SchemaId | None) -> ParsedJson:  # noqa: ARG002
        schema_error = load("jsonschema.exceptions", "jsonschema").SchemaError
        try:
            return parsed_json(schema, self._resolve)
        except ValueError as error:
            raise SerializationError(f"not a valid JSON schema: {error}") from error
        except schema_error as error:
            raise SerializationError(f"not a valid JSON schema: {error.message}") from error

    def _new_target(self, schema: ParsedJson) -> _JsonTarget:
        place = JsonPlace(schema.contents, schema.validator._resolver)
        unresolvable = load("referencing.exceptions", "jsonschema").Unresolvable
        try:
            column = _json_column(place, self._fields, ())
        except unresolvable as error:
            raise SerializationError(f"the JSON schema refers to {error.ref}, which is not there") from error
        if self._fields is not None:
            ensure_fields(self._fields, [field.name for field in column.type] if _is_struct(column.type) else ())
        return _JsonTarget(column, None if self._given is None else schema)

    def _type(self, target: _JsonTarget) -> Any:
        return target.column.type

    def _reader(self, target: _JsonTarget) -> _ObjectReader:
        convert, given, writers = target.column.convert, target.given, self._writers

        def decode(prefix: bytes, data: bytes) -> Any:
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                raise SerializationError(json_damage(data)) from None
            if self._validate:
                try:
                    problem = json_problem(given or writers[prefix][1], value)
                except Exception as error:  # noqa: BLE001 - whatever a validator raises for a value
                    problem = f"it cannot be checked ({type(error).__name__})"
                if problem is not None:
                    raise SerializationError(problem)
            return None if value is None else convert(value, "")

        is_arrows = target.column.is_arrows and not self._validate
        all_of = partial(_read_json, target.column.type) if is_arrows else None
        return _ObjectReader(target.column.type, decode, all_of)


def _read_json(type: Any, rows: list[bytes]) -> Any:
    """Return the column of JSON objects by Arrow's own reader; None if a row may have to be read in another way."""
    # Each row must be one object: no text between them may be both the end of one and the beginning of another.
    if not all(row.startswith(b"{") and row.endswith(b"}") for row in rows):
        return None
    data = b"\n".join(rows)
    if not data.isascii():
        try:
            data.decode()  # also that of properties which are not read
        except UnicodeDecodeError:
            return None
    pa: Any = load("pyarrow", "arrow")
    reader = load("pyarrow.json", "arrow")
    try:
        table = reader.read_json(
            pa.BufferReader(data),
            reader.ReadOptions(use_threads=False, block_size=len(data) + 1),
            reader.ParseOptions(pa.schema(list(type)), True, "ignore"),
        )
        if table.num_rows != len(rows):
            return None
        found = pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=list(type))
        found.validate(full=True)  # of half surrogate pairs it makes texts that are not UTF-8
    except pa.ArrowInvalid:
        return None
    return found


def _is_struct(of: Any) -> bool:
    found: bool = load("pyarrow", "arrow").types.is_struct(of)
    return found


def json_target(place: JsonPlace, outer: tuple[int, ...]) -> tuple[JsonPlace, tuple[int, ...]]:
    """Return what a place refers to, itself if it is no reference; and ``outer`` with all parts on the way.

    Raises:
        SerializationError: that is one of ``outer``.
    """
    outer = (*outer, id(place.schema))
    while (found := place.referred()) is not None:
        if id(found.schema) in outer:
            raise SerializationError(
                f"{place.schema['$ref']} contains itself, and columns cannot: select fields without it (columns=...)"
            )
        place, outer = found, (*outer, id(found.schema))
    return place, outer


def _json_column(place: JsonPlace, wanted: frozenset[str] | None, outer: tuple[int, ...]) -> _Column:
    """Return the column of a part of a schema. ``wanted`` selects properties of the outermost object.

    Raises:
        SerializationError: a type contains itself.
    """
    place, outer, kinds = json_form(place, outer)
    if kinds == {"object"}:
        return _json_object(place, wanted, outer)
    if kinds == {"array"} and (items := json_items(place)) is not None:
        return _json_list(_json_column(items, None, outer))
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    if len(kinds) == 1 and (name := next(iter(kinds))) in _JSON_SCALARS:
        arrow, convert = _JSON_SCALARS[name]
        return _Column(getattr(load("pyarrow", "arrow"), arrow)(), convert, name != "null")
    return _json_text()


def json_form(place: JsonPlace, outer: tuple[int, ...]) -> tuple[JsonPlace, tuple[int, ...], set[str]]:
    """Return the schema of a place's values, ``outer`` with all parts on the way, and the types of values but null."""
    place, outer = json_target(place, outer)
    while (part := _single(place)) is not None:
        place, outer = json_target(part, outer)
    return place, outer, _kinds(place, outer)


def json_items(place: JsonPlace) -> JsonPlace | None:
    """Return the schema that all items of an array have; None if there is none."""
    items = place.schema.get("items")
    return place.at(items) if isinstance(items, dict) and "prefixItems" not in place.schema else None


def _single(place: JsonPlace) -> JsonPlace | None:
    """Return the only alternative of a schema but null, which all its values are of; None if it has none or several."""
    schema = place.schema
    if isinstance(schema, dict) and "properties" not in schema:
        for kind in ("oneOf", "anyOf", "allOf"):
            parts = [part for part in schema.get(kind, ()) if not _is_null(part)]
            if len(parts) == 1:
                return place.at(parts[0])
    return None


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _kinds(place: JsonPlace, outer: tuple[int, ...]) -> set[str]:
    """Return the types that a schema's values may have, without null; empty if it names none."""
    schema = place.schema
    if not isinstance(schema, dict):
        return set()
    given = schema.get("type")
    if given is not None:
        kinds = {given} if isinstance(given, str) else set(given)
        return kinds - {"null"} or kinds
    if "properties" in schema:
        return {"object"}
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    kinds = {_KINDS.get(type(value), "object") for value in values if value is not None}
    for kind in ("allOf", "oneOf", "anyOf"):
        for part in schema.get(kind, ()):
            if not _is_null(part):
                kinds |= _kinds(*json_target(place.at(part), outer))
    return kinds


def json_all(place: JsonPlace, outer: tuple[int, ...] = ()) -> Iterator[JsonPlace]:
    """Yield a schema, and all schemas that its values must fit as well."""
    place, outer = json_target(place, outer)
    if isinstance(place.schema, dict):
        yield place
        for part in place.schema.get("allOf", ()):
            yield from json_all(place.at(part), outer)


def json_properties(place: JsonPlace) -> dict[str, JsonPlace]:
    """Return the properties of an object by name, and those of all schemas that it must fit as well."""
    found: dict[str, JsonPlace] = {}
    for each in json_all(place):
        for name, part in each.schema.get("properties", {}).items():
            found.setdefault(name, each.at(part))
    return found


def _json_object(place: JsonPlace, wanted: frozenset[str] | None, outer: tuple[int, ...]) -> _Column:
    pa: Any = load("pyarrow", "arrow")
    parts = {name: part for name, part in json_properties(place).items() if wanted is None or name in wanted}
    more = place.schema.get("additionalProperties")
    if not parts and wanted is None:
        if not isinstance(more, dict) or "patternProperties" in place.schema:
            return _json_text()
        item = _json_column(place.at(more), None, outer)

        def entries(value: Any, path: str) -> Any:
            if not isinstance(value, dict):
                raise _unfit(value, path, "a map")
            return [
                (_text(name, path), None if of is None else item.convert(of, inner_path(path, name)))
                for name, of in value.items()
            ]

        return _Column(pa.map_(pa.string(), item.type), entries)
    columns = {name: _json_column(part, None, outer) for name, part in parts.items()}
    steps = [(name, column.convert) for name, column in columns.items()]

    def fields(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _unfit(value, path, "a struct")
        return {
            name: None if (of := value.get(name)) is None else convert(of, inner_path(path, name))
            for name, convert in steps
        }

    is_arrows = all(column.is_arrows for column in columns.values())
    return _Column(pa.struct([pa.field(name, column.type) for name, column in columns.items()]), fields, is_arrows)


def _json_list(item: _Column) -> _Column:
    pa: Any = load("pyarrow", "arrow")

    def items(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _unfit(value, path, "a list")
        return [None if of is None else item.convert(of, f"{path}[]") for of in value]

    return _Column(pa.list_(item.type), items, item.is_arrows)


def _json_text() -> _Column:
    """Return the column of values of several types: their JSON."""

    def text(value: Any, path: str) -> Any:
        return _text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), path)

    return _Column(load("pyarrow", "arrow").string(), text)


def _unfit(value: Any, path: str, column: str) -> SerializationError:
    return SerializationError(f"{field_at(path)} is of type {type(value).__name__}, and the column is {column}")


def _text(value: Any, path: str) -> Any:
    if not isinstance(value, str):
        raise _unfit(value, path, "a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SerializationError(f"{field_at(path)} has half a surrogate pair, which UTF-8 has not") from None
    return value


def _integer(value: Any, path: str) -> Any:
    if type(value) is float and value.is_integer():  # JSON Schema has no difference
        value = int(value)
    if type(value) is not int:
        raise _unfit(value, path, "of integers")
    if value not in _INT64:
        raise SerializationError(f"{field_at(path)} is a number of more than 64 bits")
    return value


def _number(value: Any, path: str) -> Any:
    if type(value) not in (int, float):
        raise _unfit(value, path, "of numbers")
    try:
        return float(value)
    except OverflowError:
        raise SerializationError(f"{field_at(path)} is a number beyond those of a double") from None


def _boolean(value: Any, path: str) -> Any:
    if type(value) is not bool:
        raise _unfit(value, path, "of booleans")
    return value


def _nothing(value: Any, path: str) -> Any:
    raise _unfit(value, path, "of nulls")


_JSON_SCALARS: Final[Mapping[str, tuple[str, _Convert]]] = {
    "string": ("string", _text),
    "integer": ("int64", _integer),
    "number": ("float64", _number),
    "boolean": ("bool_", _boolean),
    "null": ("null", _nothing),
}
_KINDS: Final = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}


def json_columns(
    registry: SchemaRegistryClient | AsyncSchemaRegistryClient,
    schema: str | Schema | type | None = None,
    columns: Iterable[str] | None = None,
    on_error: str = "raise",
    validate: bool = True,
) -> JSONColumns:
    """Return a decoder of JSON for ``poll_arrow(value=...)`` and ``poll_arrow(key=...)``, for one consumer.

    Objects become structs, those without named properties maps, and values of several types their JSON as text.

    Args:
        schema: the reader's schema, or a dataclass, pydantic model or msgspec struct. Without one, the columns are
            those of the newest schema that any record was written with, and change when a newer one comes.
        columns: the properties to decode; the others are left out.
        on_error: as for ``avro_columns``.
        validate: check each value against ``schema``, or the schema that it was written with, as JSONDeserializer does.
            If False, a value only has to fit its column.

    Raises:
        ImportError: pyarrow or jsonschema is not installed.
        IllegalArgumentError: an argument is invalid.
    """
    return JSONColumns(registry, schema, columns, on_error, validate)


# --- Protobuf --------------------------------------------------------------------------------------------------------


class _ProtobufTarget(NamedTuple):
    message: Any
    column: _Column


class ProtobufColumns(RegistryColumns[Any, _ProtobufTarget]):
    """Decodes columns of Protobuf. Thread: one at a time."""

    schema_type = "PROTOBUF"
    _names = ("Protobuf", "ProtobufDeserializer")
    _fmt = "serialized"

    def __init__(
        self,
        registry: SchemaRegistryClient | AsyncSchemaRegistryClient,
        schema: str | Schema | type | None = None,
        columns: Iterable[str] | None = None,
        on_error: str = "raise",
        message: str | None = None,
    ) -> None:
        """See ``protobuf_columns``."""
        load("google.protobuf.message_factory", "protobuf")
        self._message = message
        self._class: Any = None
        if isinstance(schema, type):
            descriptor = getattr(schema, "DESCRIPTOR", None)
            if descriptor is None:
                raise IllegalArgumentError(f"schema: {schema.__name__} is no class of messages")
            if message is not None:
                raise IllegalArgumentError("message: the class of the messages names it already")
            self._class = schema
            schema = schema_text(descriptor.file)
        super().__init__(registry, schema, columns, on_error)
        #: The files of schemas by id, as each may have several messages.
        self._files: dict[object, Any] = {}

    def _prefix_size(self, row: memoryview) -> int:
        size = super()._prefix_size(row)
        head = bytes(row[size:_MOST_INDEX_BYTES])
        try:
            return size + read_indexes(head, 0)[1]
        except SerializationError:
            return size

    def _parsed(self, schema: Schema, schema_id: SchemaId | None) -> Any:
        if schema_id is None:
            return self._class or message_of(file_of(schema, self._resolve), self._message)
        key = schema_id.id if schema_id.id is not None else schema_id.guid
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = file_of(schema, self._resolve)
        try:
            return message_class(file, schema_id.message_indexes or [0])
        except SerializationError:
            return None

    def _new_target(self, schema: Any) -> _ProtobufTarget:
        descriptor = schema.DESCRIPTOR
        if self._fields is not None:
            ensure_fields(self._fields, descriptor.fields_by_name)
        return _ProtobufTarget(schema, _message_column(descriptor, self._fields, ()))

    def _type(self, target: _ProtobufTarget) -> Any:
        return target.column.type

    def _reader(self, target: _ProtobufTarget) -> _ObjectReader:
        decode_error = load("google.protobuf.message", "protobuf").DecodeError
        new, convert, writers = target.message, target.column.convert, self._writers
        name = target.message.DESCRIPTOR.name

        def decode(prefix: bytes, data: bytes) -> Any:
            written = writers[prefix][1].DESCRIPTOR
            if written.name != name:
                raise SerializationError(
                    f"it is a message {written.full_name}, and the columns are those of {new.DESCRIPTOR.full_name}"
                )
            message = new()
            try:
                message.ParseFromString(data)
                return convert(message, "")
            except (decode_error, UnicodeDecodeError):  # texts of proto2 are checked when they are read
                found = message_damage(written, data, "", 0)
                text = f"{len(data)} bytes are no message of {written.full_name}"
                raise SerializationError(f"{text}: {found}" if found else text) from None

        return _ObjectReader(target.column.type, decode)


#: The most bytes that are searched for the indexes of a message.
_MOST_INDEX_BYTES: Final = 1 << 14


def message_of(file: Any, name: str | None) -> Any:
    """Return the class of the message with a name, by default the first one.

    Raises:
        IllegalArgumentError: the file has no such message.
    """
    if name is None:
        return message_class(file, [0])
    for descriptor in _all_messages(file.message_types_by_name.values()):
        if name in (descriptor.full_name, descriptor.name):
            return message_class(file, index_array(descriptor))
    raise IllegalArgumentError(f"message: the schema has no message {name}")


def _all_messages(descriptors: Iterable[Any]) -> Iterator[Any]:
    for descriptor in descriptors:
        yield descriptor
        yield from _all_messages(descriptor.nested_types)


def _message_column(descriptor: Any, wanted: frozenset[str] | None, outer: tuple[str, ...]) -> _Column:
    """Return the column of a message. ``wanted`` selects fields of the outermost one.

    Raises:
        SerializationError: a message contains itself.
    """
    pa: Any = load("pyarrow", "arrow")
    name = descriptor.full_name
    if wanted is None and name in _WELL_KNOWN:
        return _WELL_KNOWN[name](pa)
    if name in outer:
        raise SerializationError(f"{name} contains itself, and columns cannot: select fields without it (columns=...)")
    outer = (*outer, name)
    fields = [field for field in descriptor.fields if wanted is None or field.name in wanted]
    if wanted is None and name in WRAPPERS:
        return _value_column(fields[0], outer, lambda message: message.value)
    columns = [(field.name, _field_column(field, outer)) for field in fields]

    def convert(message: Any, path: str) -> Any:
        return {name: column.convert(message, inner_path(path, name)) for name, column in columns}

    return _Column(pa.struct([pa.field(name, column.type) for name, column in columns]), convert)


def _field_column(field: Any, outer: tuple[str, ...]) -> _Column:
    """Return the column of a field, which converts the message that has it."""
    pa: Any = load("pyarrow", "arrow")
    name = field.name
    if is_map(field):
        key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        keys, values = _value_column(key, outer, itself), _value_column(value, outer, itself)

        def entries(message: Any, path: str) -> Any:
            held = getattr(message, name)
            return [(keys.convert(key, path), values.convert(held[key], f"{path}{{}}")) for key in held]

        return _Column(pa.map_(keys.type, values.type), entries)
    if is_repeated(field):
        item = _value_column(field, outer, itself)

        def items(message: Any, path: str) -> Any:
            return [item.convert(of, f"{path}[]") for of in getattr(message, name)]

        return _Column(pa.list_(item.type), items)
    column = _value_column(field, outer, lambda message: getattr(message, name))
    if not field.has_presence:
        return column
    convert = column.convert

    def optional(message: Any, path: str) -> Any:
        return convert(message, path) if message.HasField(name) else None

    return _Column(column.type, optional)


def itself(value: Any) -> Any:
    return value


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    found = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return bool(found)


def _value_column(field: Any, outer: tuple[str, ...], get: Callable[[Any], Any]) -> _Column:
    """Return the column of one value of a field. ``get`` returns the value of what is converted."""
    pa: Any = load("pyarrow", "arrow")
    if field.message_type is not None:
        column = _message_column(field.message_type, None, outer)
        inner = column.convert
        return _Column(column.type, lambda of, path: inner(get(of), path))
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        # Enums are open: the number of a symbol that the schema has not is kept.
        return _Column(pa.string(), lambda of, _: names.get(number := get(of)) or str(number))
    return _Column(getattr(pa, _SCALARS[field.cpp_type, field.type == field.TYPE_BYTES])(), lambda of, _: get(of))


#: The names of Arrow's types by the number of the type in C++, and whether a text is one of bytes.
_SCALARS: Final = {
    (1, False): "int32",
    (2, False): "int64",
    (3, False): "uint32",
    (4, False): "uint64",
    (5, False): "float64",
    (6, False): "float32",
    (7, False): "bool_",
    (9, False): "string",
    (9, True): "binary",
}
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def _micros(message: Any, path: str) -> int:
    found: int = message.seconds * 1_000_000 + message.nanos // 1000
    if found not in _INT64:
        raise SerializationError(f"{field_at(path)} is a time beyond 64 bits of microseconds")
    return found


def _json_of(message: Any, path: str) -> str:
    json_format = load("google.protobuf.json_format", "protobuf")
    try:
        found = json.dumps(json_format.MessageToDict(message), ensure_ascii=False, separators=(",", ":"))
    except (json_format.Error, RecursionError, ValueError):  # the last for NaN and infinity
        raise SerializationError(f"{field_at(path)} has no JSON") from None
    return found


_WELL_KNOWN: Final[Mapping[str, Callable[[Any], _Column]]] = {
    "google.protobuf.Timestamp": lambda pa: _Column(pa.timestamp("us", "UTC"), _micros),
    "google.protobuf.Duration": lambda pa: _Column(pa.duration("us"), _micros),
    **{
        f"google.protobuf.{name}": lambda pa: _Column(pa.string(), _json_of)
        for name in ("Struct", "Value", "ListValue")
    },
}


def protobuf_columns(
    registry: SchemaRegistryClient | AsyncSchemaRegistryClient,
    schema: str | Schema | type | None = None,
    columns: Iterable[str] | None = None,
    on_error: str = "raise",
    message: str | None = None,
) -> ProtobufColumns:
    """Return a decoder of Protobuf for ``poll_arrow(value=...)`` and ``poll_arrow(key=...)``, for one consumer.

    Messages become structs, also those of a ``oneof``, of which one field is not null. Fields that are not set are
    null if Protobuf tells them from their defaults. Timestamps and durations have microseconds. Wrappers are their
    values, ``Struct`` is its JSON as text, and an enum is the name of its number, or the number as text.

    Args:
        schema: the class of the messages to read, or the reader's schema. Without one, records are read by the newest
            schema that any of them was written with, and the columns change when a newer one comes.
        columns: the fields of the message to decode; the others are left out.
        on_error: as for ``avro_columns``. Records of another message cannot be decoded either.
        message: the name of the message in ``schema``; by default the first one.

    Raises:
        ImportError: pyarrow or protobuf is not installed.
        IllegalArgumentError: an argument is invalid.
    """
    return ProtobufColumns(registry, schema, columns, on_error, message)
