"""Arrow columns as JSON and Protobuf records, for ``send_batch``: a row becomes an object, which a serializer writes.

    producer.send_batch("orders", table, value=json_encoder(registry, conf={"use.latest.version": True}))

Types are those that ``json_columns`` and ``protobuf_columns`` make. Rules for writing are executed, as by ``send``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from pykclient.errors import IllegalArgumentError, SerializationError
from pykclient.record.row_columns import BytesColumn
from pykclient.schema_registry.column_encoder import BOOL8, UUID, MisfitError, RowEncoder, is_bytes, is_list, is_text
from pykclient.schema_registry.json_schema import JsonPlace, JSONSerializer
from pykclient.schema_registry.object_columns import (
    WRAPPERS,
    is_map,
    is_repeated,
    itself,
    json_all,
    json_form,
    json_items,
    json_properties,
    message_of,
)
from pykclient.schema_registry.protobuf import TYPE_NAMES, ProtobufSerializer, file_of, take_reference_strategy
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schemas import Schema, field_at, inner_path
from pykclient.schema_registry.serde import BaseSerializer, Plan, Registry
from pykclient.serialization import SerializationContext

#: Returns what a serializer writes for a value of a column.
_Convert = Callable[[Any], Any]


def _misfit(type: Any, target: object, path: str) -> MisfitError:
    return MisfitError(f"{field_at(path)}: the column has {type}, and the schema {target}")


class ObjectEncoder(RowEncoder):
    """Encodes rows that become objects first. Thread: any."""

    def _converter(self, serializer: Any, plan: Plan, type: Any, path: str) -> _Convert:
        """Return what converts the values of a column. Raises MisfitError if its type does not fit."""
        raise NotImplementedError

    def _encoded(
        self,
        serializer: Any,
        plan: Plan,
        ctx: SerializationContext,
        array: Any,
        path: str,
        where: str,  # noqa: ARG002
    ) -> BytesColumn:
        convert = self._converter(serializer, plan, array.type, path)
        found: list[bytes | None] = []
        values = _values(array)
        for row in range(len(array)):
            try:
                value = _value(array[row], path) if values is None else values[row]
                made = None if value is None else convert(value)
                found.append(None if made is None else serializer._write(plan, made, ctx))
            except MisfitError as error:
                raise MisfitError(str(error), row) from None
            except SerializationError as error:
                raise MisfitError(f"{error}; the column has {array.type}", row, ":") from error
        return BytesColumn.of(found)


def _values(array: Any) -> list[Any] | None:
    """Return the rows of a column; None if Python has not one of them. The rows of a struct are made by columns."""
    try:
        if not load("pyarrow", "arrow").types.is_struct(array.type) or array.null_count:
            return list(array.to_pylist())
        names = [field.name for field in array.type]
        if len(set(names)) < len(names):
            return None
        columns = [column.to_pylist() for column in array.flatten()]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    except (OverflowError, ValueError):
        return None


def _value(scalar: Any, path: str) -> Any:
    """Return a row of a column. Raises MisfitError if Python has not the value."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError) as error:
        if load("pyarrow", "arrow").types.is_struct(scalar.type):
            for place, field in enumerate(scalar.type):
                _value(scalar[place], inner_path(path, field.name))
        reason = "is a text that is not UTF-8" if isinstance(error, UnicodeDecodeError) else "is no value of Python's"
        raise MisfitError(f"{field_at(path)} {reason}, and cannot be encoded; the column has {scalar.type}") from None


def _plain(pa: Any, type: Any) -> Any:
    """Return the type of a column's values."""
    if isinstance(type, pa.BaseExtensionType) and type.extension_name != UUID:  # whose values are no bytes
        return pa.bool_() if type.extension_name == BOOL8 else type.storage_type
    return type.value_type if pa.types.is_dictionary(type) else type


def _parsed(text: str, type: Any, path: str, of_int: Callable[[str], Any] = int) -> Any:
    try:
        return json.loads(text, parse_float=_finite, parse_int=of_int, parse_constant=_finite)
    except (ValueError, OverflowError, RecursionError):
        raise MisfitError(
            f"{field_at(path)} is no JSON, which the schema's values of several types are, or has a number that they "
            f"cannot have; the column has {type}"
        ) from None


def _finite(text: str) -> float:
    """Return the number of a text. Raises ValueError for NaN, infinity and what a double takes for it."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("JSON has no such number")
    return number


def _exact(text: str) -> int:
    """Return an integer that a double holds. Raises ValueError or OverflowError for others."""
    number = int(text)
    if int(float(number)) != number:
        raise ValueError("a double has no such number")
    return number


def _once(keys: Iterable[Any], type: Any, path: str) -> None:
    """Raise MisfitError if a map has a key twice, of which one value would be lost."""
    keys = list(keys)
    if len(set(keys)) < len(keys):
        raise MisfitError(f"{field_at(path)} has a key twice, which the schema's map has not; the column has {type}")


# --- JSON ------------------------------------------------------------------------------------------------------------


class JSONEncoder(ObjectEncoder):
    """Encodes rows as JSON. Thread: any."""

    def __init__(
        self,
        registry: Registry,
        schema: str | Schema | type | None,
        columns: str | Iterable[str] | None,
        conf: Mapping[str, Any] | None,
    ) -> None:
        """See ``json_encoder``."""
        super().__init__(columns, conf)
        self._made = JSONSerializer(schema, registry, conf=self._conf)

    def _serializer(self, ctx: SerializationContext) -> BaseSerializer:  # noqa: ARG002
        return self._made

    def _place(self, plan: Plan) -> JsonPlace:
        return JsonPlace(plan.codec.contents, plan.codec.validator._resolver)

    def _fields(self, serializer: Any, plan: Plan) -> set[str] | None:  # noqa: ARG002
        return set(json_properties(self._place(plan))) or None

    def _converter(self, serializer: Any, plan: Plan, type: Any, path: str) -> _Convert:  # noqa: ARG002
        return _json_converter(load("pyarrow", "arrow"), self._place(plan), type, path, ())


def _json_converter(pa: Any, place: JsonPlace, type: Any, path: str, outer: tuple[int, ...]) -> _Convert:
    """Return what converts the values of a column to JSON's: the opposite of ``json_columns``."""
    place, outer, kinds = json_form(place, outer)
    type = _plain(pa, type)
    if pa.types.is_null(type):
        return lambda _: None
    convert: _Convert | None = None
    if kinds == {"object"}:
        convert = _json_object(pa, place, type, path, outer)
    elif kinds == {"array"} and (items := json_items(place)) is not None:
        if not is_list(pa, type):
            raise _misfit(type, "array", path)
        item = _json_converter(pa, items, type.value_type, f"{path}[]", outer)
        convert = partial(_list, item)
    elif len(kinds) == 1 and (name := next(iter(kinds))) in _JSON_TYPES:
        if not _JSON_TYPES[name](pa, type):
            raise _misfit(type, name, path)
        convert = partial(_json_number, type=type, path=path) if name == "number" else itself
    if convert is None:
        if not is_text(pa, type):
            raise _misfit(type, f"{' or '.join(sorted(kinds)) or 'any value'}, whose JSON is a string", path)
        convert = partial(_parsed, type=type, path=path)
    made = convert
    return lambda value: None if value is None else made(value)


def _list(item: _Convert, values: Any) -> list[Any]:
    return [item(value) for value in values]


def _json_number(value: Any, type: Any, path: str) -> float | int:
    number: float | int = value if isinstance(value, (int, float)) else float(value)
    if not math.isfinite(number):
        raise MisfitError(f"{field_at(path)} is {number}, which JSON's number is not; the column has {type}")
    return number


_JSON_TYPES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "string": is_text,
    "integer": lambda pa, of: bool(pa.types.is_integer(of)),
    "number": lambda pa, of: bool(pa.types.is_integer(of) or pa.types.is_floating(of)),
    "boolean": lambda pa, of: bool(pa.types.is_boolean(of)),
}


def _json_object(pa: Any, place: JsonPlace, type: Any, path: str, outer: tuple[int, ...]) -> _Convert | None:
    parts = json_properties(place)
    more = place.schema.get("additionalProperties")
    if not parts:
        if not isinstance(more, dict) or "patternProperties" in place.schema:
            return None
        if not pa.types.is_map(type) or not is_text(pa, type.key_type):
            raise _misfit(type, "object", path)
        item = _json_converter(pa, place.at(more), type.item_type, f"{path}{{}}", outer)

        def entries(value: Any) -> dict[str, Any]:
            _once((name for name, _ in value), type, path)
            return {name: item(of) for name, of in value}

        return entries
    if not pa.types.is_struct(type):
        raise _misfit(type, "object", path)
    steps = []
    for field in type:
        if field.name not in parts:
            raise MisfitError(f"{field_at(inner_path(path, field.name))}: the schema has no such property")
        step = _json_converter(pa, parts[field.name], field.type, inner_path(path, field.name), outer)
        steps.append((field.name, step))
    required = {name for each in json_all(place) for name in each.schema.get("required", ())}

    def fields(value: Any) -> dict[str, Any]:
        # A property that is null is left out, unless it must be there; the schema says whether it may be null then.
        return {name: step(value[name]) for name, step in steps if value[name] is not None or name in required}

    return fields


def json_encoder(
    registry: Registry,
    schema: str | Schema | type | None = None,
    columns: str | Iterable[str] | None = None,
    conf: Mapping[str, Any] | None = None,
) -> JSONEncoder:
    """Return an encoder of JSON for ``send_batch(value=...)`` and ``send_batch(key=...)``.

    Args:
        schema: the schema to write with, or a dataclass, pydantic model or msgspec struct. Without one, ``conf`` says
            which to use (``use.latest.version``, ``use.latest.with.metadata``, ``use.schema.id``).
        columns: as for ``avro_encoder``.
        conf: the settings of ``JSONSerializer``.

    A null is left out, unless its property is required. Columns of a value of several types have its JSON as text.

    Raises:
        ConfigError: a setting is unknown, of the wrong type, or puts the schema's id into headers.
        IllegalArgumentError: ``columns`` is empty.
        ImportError: pyarrow or jsonschema is not installed.
    """
    return JSONEncoder(registry, schema, columns, conf)


# --- Protobuf --------------------------------------------------------------------------------------------------------


class ProtobufEncoder(ObjectEncoder):
    """Encodes rows as messages of Protobuf. Thread: any."""

    def __init__(
        self,
        registry: Registry,
        schema: str | Schema | type | None,
        columns: str | Iterable[str] | None,
        conf: Mapping[str, Any] | None,
        message: str | None,
    ) -> None:
        """See ``protobuf_encoder``."""
        super().__init__(columns, conf)
        load("google.protobuf.message_factory", "protobuf")
        self._registry = registry
        self._schema = Schema(schema, "PROTOBUF") if isinstance(schema, str) else schema
        self._message = message
        settings = dict(self._conf)
        take_reference_strategy(settings)
        self._chooser = _SchemaOf(registry, settings, None, None)  # checks the settings
        if isinstance(schema, type) and message is not None:
            raise IllegalArgumentError("message: the class of the messages names it already")
        #: By topic and field.
        self._serializers: dict[tuple[str, str], ProtobufSerializer] = {}

    def _serializer(self, ctx: SerializationContext) -> ProtobufSerializer:
        key = (ctx.topic, str(ctx.field))
        found = self._serializers.get(key)
        if found is None:
            made: Any = self._schema
            if not isinstance(made, type):
                made = message_of(file_of(made or self._chooser.schema(ctx), self._chooser._resolve), self._message)
            found = self._serializers[key] = ProtobufSerializer(made, self._registry, conf=self._conf)
        return found

    def _fields(self, serializer: Any, plan: Plan) -> set[str] | None:  # noqa: ARG002
        return {field.name for field in serializer._msg_class.DESCRIPTOR.fields}

    def _converter(self, serializer: Any, plan: Plan, type: Any, path: str) -> _Convert:  # noqa: ARG002
        new = serializer._msg_class
        fill = _message_filler(load("pyarrow", "arrow"), new.DESCRIPTOR, type, path)

        def convert(value: Any) -> Any:
            message = new()
            _put(partial(fill, message), value, new.DESCRIPTOR.full_name, type, path)
            return message

        return convert


class _SchemaOf(BaseSerializer):
    """Chooses a schema by the settings of a serializer, before the class of its messages is known."""

    _keys = ProtobufSerializer._keys
    schema_type = "PROTOBUF"
    _fmt = "serialized"

    def schema(self, ctx: SerializationContext) -> Schema:
        """Return the schema that the settings name."""
        found = self.plan(ctx).writer
        assert found is not None
        return found

    def _codec(self, schema: Schema) -> Any:  # noqa: ARG002
        return None


#: Sets a message by a value of a column.
_Fill = Callable[[Any, Any], None]


def _message_filler(pa: Any, descriptor: Any, type: Any, path: str) -> _Fill:
    """Return what sets a message by a value: the opposite of ``protobuf_columns``."""
    type = _plain(pa, type)
    kinds, name = pa.types, descriptor.full_name
    if name in _TIMES:
        kind, method = _TIMES[name]
        if not getattr(kinds, kind)(type) or type.unit == "ns":
            raise _misfit(type, f"{name}, whose columns have microseconds or larger units", path)
        return lambda message, value: getattr(message, method)(value)
    if name in _JSONS:
        if not is_text(pa, type):
            raise _misfit(type, f"{name}, whose JSON is a string", path)
        parse = load("google.protobuf.json_format", "protobuf").ParseDict
        return lambda message, value: parse(_parsed(value, type, path, _exact), message)
    if name in WRAPPERS:
        return _field_filler(pa, descriptor.fields_by_name["value"], type, path)
    if not kinds.is_struct(type):
        raise _misfit(type, f"message {name}", path)
    steps = []
    choices: dict[str, list[str]] = {}
    for field in type:
        of = descriptor.fields_by_name.get(field.name)
        if of is None:
            raise MisfitError(f"{field_at(inner_path(path, field.name))}: the message {name} has no such field")
        steps.append((field.name, _field_filler(pa, of, field.type, inner_path(path, field.name))))
        if of.containing_oneof is not None:
            choices.setdefault(of.containing_oneof.name, []).append(field.name)

    def fill(message: Any, value: Any) -> None:
        for choice, names in choices.items():
            if sum(value[part] is not None for part in names) > 1:
                raise MisfitError(
                    f"{field_at(path)} has several values for the schema's oneof {choice} of {name}; the column has "
                    f"{type}"
                )
        for part, step in steps:
            if value[part] is not None:
                step(message, value[part])

    return fill


def _field_filler(pa: Any, field: Any, type: Any, path: str) -> _Fill:
    """Return what sets a field of a message by a value that is not null."""
    type = _plain(pa, type)
    name = field.name
    if pa.types.is_null(type):
        return lambda message, value: None  # noqa: ARG005
    if is_map(field):
        if not pa.types.is_map(type):
            raise _misfit(type, "map", path)
        key, of = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        entry = _message_of_entry(pa, key, of, type, path)
        return lambda message, value: entry(getattr(message, name), value)
    target = _type_name(field)
    unfit = partial(_unfit, target, type, path)
    if is_repeated(field):
        if not is_list(pa, type):
            raise _misfit(type, f"repeated {target}", path)
        inner_type, inner = type.value_type, f"{path}[]"
        null = partial(_null, target, type, inner)
        if field.message_type is not None:
            fill = _message_filler(pa, field.message_type, inner_type, inner)

            def append(message: Any, value: Any) -> None:
                held = getattr(message, name)
                for of in value:
                    if of is None:
                        raise null()
                    _put(partial(fill, held.add()), of, target, type, path)

            return append
        item = _scalar_of(pa, field, inner_type, inner)

        def extend(message: Any, value: Any) -> None:
            if None in value:
                raise null()
            try:
                getattr(message, name).extend(map(item, value))
            except (TypeError, ValueError):
                raise unfit() from None

        return extend
    if field.message_type is not None:
        fill = _message_filler(pa, field.message_type, type, path)

        def nested(message: Any, value: Any) -> None:
            inner = getattr(message, name)
            inner.SetInParent()
            _put(partial(fill, inner), value, target, type, path)

        return nested
    scalar_of = _scalar_of(pa, field, type, path)

    def scalar(message: Any, value: Any) -> None:
        try:
            setattr(message, name, scalar_of(value))
        except (TypeError, ValueError):
            raise unfit() from None

    return scalar


def _message_of_entry(pa: Any, key: Any, of: Any, type: Any, path: str) -> _Fill:
    key_of, inner = _scalar_of(pa, key, type.key_type, path), f"{path}{{}}"
    is_message = of.message_type is not None
    value_of: Any = (
        _message_filler(pa, of.message_type, type.item_type, inner)
        if is_message
        else _scalar_of(pa, of, type.item_type, inner)
    )
    key_target, target = _type_name(key), _type_name(of)

    def fill(held: Any, value: Any) -> None:
        _once((name for name, _ in value), type, path)
        for name, item in value:
            if item is None:
                raise _null(target, type, inner)
            found = key_of(name)
            if is_message:
                _put(held.__getitem__, found, key_target, type, f"{path}{{key}}")
                _put(partial(value_of, held[found]), item, target, type, path)
            else:
                _put(partial(held.__setitem__, found), value_of(item), target, type, path)

    return fill


def _scalar_of(pa: Any, field: Any, type: Any, path: str) -> _Convert:
    """Return what returns the value of a scalar. Raises MisfitError if the column's type does not fit."""
    type = _plain(pa, type)
    kinds = pa.types
    if field.enum_type is not None and is_text(pa, type):
        numbers = {name: value.number for name, value in field.enum_type.values_by_name.items()}

        def number(value: str) -> int:
            found = numbers.get(value)
            if found is None:
                if not value.removeprefix("-").isdecimal():
                    raise MisfitError(
                        f"{field_at(path)} is no name of the schema's enum {field.enum_type.full_name}; the column has "
                        f"{type}"
                    )
                found = int(value)
            return found

        return number
    fits = {
        5: kinds.is_floating(type) or (kinds.is_integer(type) and type.bit_width <= 32),
        6: kinds.is_floating(type) and not kinds.is_float64(type),
        7: kinds.is_boolean(type),
        9: is_bytes(pa, type) if field.type == field.TYPE_BYTES else is_text(pa, type),
    }.get(field.cpp_type, kinds.is_integer(type))
    if not fits:
        if field.cpp_type <= _LAST_INTEGER and kinds.is_decimal(type) and type.scale <= 0:
            return int
        raise _misfit(type, _type_name(field), path)
    return itself


#: The types of integers in C++ have the numbers up to this.
_LAST_INTEGER: Final = 4


def _put(put: Callable[[Any], Any], value: Any, target: str, type: Any, path: str) -> None:
    """Call ``put``, whose errors say that the value does not fit the schema's ``target``."""
    try:
        put(value)
    except (TypeError, ValueError, OverflowError, load("google.protobuf.json_format", "protobuf").Error):
        raise _unfit(target, type, path) from None


def _null(target: str, type: Any, path: str) -> MisfitError:
    return MisfitError(f"{field_at(path)} is null, which the schema's {target} is not; the column has {type}")


def _unfit(target: str, type: Any, path: str) -> MisfitError:
    return MisfitError(f"{field_at(path)} does not fit the schema's {target}; the column has {type}")


def _type_name(field: Any) -> str:
    of = field.message_type or field.enum_type
    return of.full_name if of is not None else TYPE_NAMES[field.type]


#: The kinds of columns, and the method that sets such a message.
_TIMES: Final[Mapping[str, tuple[str, str]]] = {
    "google.protobuf.Timestamp": ("is_timestamp", "FromDatetime"),
    "google.protobuf.Duration": ("is_duration", "FromTimedelta"),
}
_JSONS: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))


def protobuf_encoder(
    registry: Registry,
    schema: str | Schema | type | None = None,
    columns: str | Iterable[str] | None = None,
    conf: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> ProtobufEncoder:
    """Return an encoder of Protobuf for ``send_batch(value=...)`` and ``send_batch(key=...)``.

    Args:
        schema: the class of the messages, or the schema to write with. Without one, ``conf`` says which to use
            (``use.latest.version``, ``use.latest.with.metadata``, ``use.schema.id``).
        columns: as for ``avro_encoder``.
        conf: the settings of ``ProtobufSerializer``.
        message: the name of the message in the schema; by default the first one.

    A field that is null is not set.

    Raises:
        ConfigError: a setting is unknown, of the wrong type, or puts the schema's id into headers.
        IllegalArgumentError: ``columns`` is empty, or ``message`` is not needed.
        ImportError: pyarrow or protobuf is not installed.
    """
    return ProtobufEncoder(registry, schema, columns, conf, message)
