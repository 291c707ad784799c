"""Dataclasses, pydantic models and msgspec structs: their schemas, and their conversion to plain values and back."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

from pykclient.errors import SerializationError

_NONE: Final = type(None)

#: Python's types as Avro's.
_AVRO: Final[dict[Any, Any]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    datetime.date: {"type": "int", "logicalType": "date"},
    datetime.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
    _NONE: "null",
}
_JSON: Final[dict[Any, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    Any: {},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string"},
    _NONE: {"type": "null"},
}
_MISSING: Final = object()


class DecimalSize(typing.NamedTuple):
    """The digits of a Decimal in Avro, and how many of them are after the point.

    ``Annotated[Decimal, DecimalSize(12, 2)]``
    """

    precision: int
    scale: int = 0


def is_model(given: object) -> bool:
    """Return whether this is a class of one of the supported kinds."""
    return isinstance(given, type) and (dataclasses.is_dataclass(given) or _is_pydantic(given) or _is_struct(given))


def _is_pydantic(given: type) -> bool:
    return hasattr(given, "model_fields") and hasattr(given, "model_validate")


def _is_struct(given: type) -> bool:
    return hasattr(given, "__struct_fields__")


class _Member(typing.NamedTuple):
    """A field of a model: its name in records, its attribute, its type and its default (``_MISSING``: none)."""

    name: str
    attribute: str
    hint: Any
    default: Any


@functools.cache
def _members(model: Any) -> tuple[_Member, ...]:
    hints = typing.get_type_hints(model, include_extras=True)
    found: list[_Member] = []
    if _is_pydantic(model):
        for name, info in typing.cast(Any, model).model_fields.items():
            default = _MISSING if info.is_required() else info.get_default(call_default_factory=True)
            hint = Annotated[hints[name], info] if info.metadata else hints[name]
            found.append(_Member(info.alias or name, name, hint, default))
    elif _is_struct(model):
        struct = typing.cast(Any, model)
        names, defaults = struct.__struct_fields__, struct.__struct_defaults__
        padded = (_MISSING,) * (len(names) - len(defaults)) + tuple(defaults)
        for name, attribute, default in zip(struct.__struct_encode_fields__, names, padded, strict=True):
            is_value = isinstance(default, (bool, int, float, str, bytes, _NONE, enum.Enum))
            found.append(_Member(name, attribute, hints[attribute], default if is_value else _MISSING))
    else:
        for field in dataclasses.fields(model):
            default = _MISSING if field.default is dataclasses.MISSING else field.default
            found.append(_Member(field.name, field.name, hints[field.name], default))
    return tuple(found)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _item_type(hint: Any, where: str) -> Any:
    """Return the type of the items of a list, a set or a tuple."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and arguments[1:] != (...,) and len(set(arguments)) > 1:
        raise SerializationError(f"{where}: {hint} has items of several types, and an array has one")
    return arguments[0]


def avro_schema(model: type, namespace: str | None = None) -> dict[str, Any]:
    """Return the Avro schema of a model, as JSON.

    Numbers are ``long`` and ``double``, times microseconds in UTC; ``T | None`` is a union with null. A Literal of
    texts is an enum if they are names. A Decimal needs its size:
    ``Annotated[Decimal, DecimalSize(12, 2)]``, or pydantic's ``Field(max_digits=12, decimal_places=2)``.

    Raises:
        SerializationError: a field's type has no Avro type.
    """
    seen: set[type] = set()

    def record(of: type) -> Any:
        if of in seen:
            return of.__name__
        seen.add(of)
        rows = []
        for name, _, hint, default in _members(of):
            row: dict[str, Any] = {"name": name, "type": convert(hint, f"{of.__name__}.{name}")}
            if isinstance(default, enum.Enum):
                row["default"] = default.name
            elif default is None or isinstance(default, (bool, int, float, str)):
                row["default"] = default
            rows.append(_with_default_first(row))
        made: dict[str, Any] = {"type": "record", "name": of.__name__, "fields": rows}
        if namespace and of is model:
            made["namespace"] = namespace
        return made

    def convert(hint: Any, where: str) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            of, *metadata = arguments  # pydantic's Field is about a whole union
            if [one for one in _alternatives(of) if one is not _NONE] != [decimal.Decimal]:
                return convert(of, where)
            sized = _decimal(metadata, where)
            return ["null", sized] if _is_union(of) else sized
        if isinstance(hint, type) and hint in _AVRO:
            return _AVRO[hint]
        if _is_union(hint):
            return union(arguments, where)
        if origin is typing.Literal:
            return literal(arguments, where)
        if origin in (list, tuple, set, frozenset) and arguments:
            return {"type": "array", "items": convert(_item_type(hint, where), where)}
        if origin is dict and arguments[0] is str:
            return {"type": "map", "values": convert(arguments[1], where)}
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _enum(hint, seen)
        if is_model(hint):
            return record(hint)
        more = ": write Annotated[Decimal, DecimalSize(12, 2)]" if hint is decimal.Decimal else ""
        raise SerializationError(f"{where}: {hint} has no Avro type{more}")

    def union(hints: tuple[Any, ...], where: str) -> Any:
        rest = [convert(one, where) for one in hints if one is not _NONE]
        return ["null", *rest] if _NONE in hints else rest

    def literal(values: tuple[Any, ...], where: str) -> Any:
        kinds = tuple(dict.fromkeys(type(value) for value in values))
        if kinds == (str,) and all(_NAME.fullmatch(value) for value in values):
            return {"type": "enum", "name": where.replace(".", "_"), "symbols": list(values)}
        return convert(kinds[0], where) if len(kinds) == 1 else union(kinds, where)

    return record(model)  # type: ignore[no-any-return]


def _decimal(metadata: Iterable[Any], where: str) -> dict[str, Any]:
    """Return the type of a Decimal whose size is in the metadata of its Annotated."""
    for extra in metadata:
        if isinstance(extra, DecimalSize):
            return {"type": "bytes", "logicalType": "decimal", **extra._asdict()}
        known: dict[str, Any] = {}
        for held in getattr(extra, "metadata", ()):  # of pydantic's Field
            known.update(getattr(held, "__dict__", {}))
        if known.get("max_digits") is not None:
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": known["max_digits"],
                "scale": known.get("decimal_places") or 0,
            }
    raise SerializationError(f"{where}: a Decimal needs its size: Annotated[Decimal, DecimalSize(12, 2)]")


#: The texts that can be symbols of an enum.
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_OF_DEFAULTS: Final[dict[type, tuple[str, ...]]] = {
    bool: ("boolean",),
    int: ("long", "double"),
    float: ("double",),
    str: ("string", "enum"),
}


def _with_default_first(row: dict[str, Any]) -> dict[str, Any]:
    """Return a field whose union begins with the type of its default, as Avro wants."""
    kind = row["type"]
    if isinstance(kind, list) and row.get("default") is not None:
        wanted = _OF_DEFAULTS[type(row["default"])]
        names = [
            branch["type"] if isinstance(branch, dict) and "logicalType" not in branch else branch for branch in kind
        ]
        place = next((names.index(name) for name in wanted if name in names), None)
        if place is None:
            del row["default"]  # such as that of an enum which was defined before
        else:
            row["type"] = [kind[place], *kind[:place], *kind[place + 1 :]]
    return row


def _enum(hint: type[enum.Enum], seen: set[type]) -> Any:
    if hint in seen:
        return hint.__name__
    seen.add(hint)
    return {"type": "enum", "name": hint.__name__, "symbols": [member.name for member in hint]}


def json_schema(model: type) -> dict[str, Any]:
    """Return the JSON Schema of a model.

    Raises:
        SerializationError: a field's type has no JSON type.
    """
    if _is_pydantic(model):
        return typing.cast(Any, model).model_json_schema()  # type: ignore[no-any-return]
    if _is_struct(model):
        import msgspec

        found: dict[str, Any] = msgspec.json.schema(model)
        return {"title": model.__name__, **found}
    definitions: dict[str, Any] = {}

    def record(of: type) -> dict[str, Any]:
        rows = _members(of)
        properties = {row.name: convert(row.hint, f"{of.__name__}.{row.name}") for row in rows}
        required = [row.name for row in rows if row.default is _MISSING]
        return {"title": of.__name__, "type": "object", "properties": properties, "required": required}

    def convert(hint: Any, where: str) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return convert(arguments[0], where)
        if hint is Any or (isinstance(hint, type) and hint in _JSON):
            return dict(_JSON[hint])
        if _is_union(hint):
            return {"anyOf": [convert(one, where) for one in arguments]}
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in (list, tuple, set, frozenset) and arguments:
            return {"type": "array", "items": convert(_item_type(hint, where), where)}
        if origin is dict and arguments[0] is str:
            return {"type": "object", "additionalProperties": convert(arguments[1], where)}
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return {"enum": [member.value for member in hint]}
        if is_model(hint):
            if hint.__name__ not in definitions:
                definitions[hint.__name__] = {}
                definitions[hint.__name__] = record(hint)
            return {"$ref": f"#/$defs/{hint.__name__}"}
        raise SerializationError(f"{where}: {hint} has no JSON type")

    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", **record(model)}
    return {**made, "$defs": definitions} if definitions else made


def plain(value: Any, hint: Any = None) -> Any:
    """Return a model's instance as dictionaries and lists; enums become their names. Other values stay as they are.

    In a union of several models an instance becomes a pair of its type's name and its dictionary.
    """
    if isinstance(value, enum.Enum):
        return value.name
    kind: Any = type(value)
    if is_model(kind):
        made = {member.name: plain(getattr(value, member.attribute), member.hint) for member in _members(kind)}
        several = sum(map(is_model, _alternatives(hint))) > 1
        return (kind.__name__, made) if several else made
    inner = next((typing.get_args(one)[-1:] for one in _alternatives(hint) if _is_container(one, value)), (None,))
    if isinstance(value, Mapping):
        return {key: plain(item, inner[0]) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        if typing.get_origin(hint) is tuple:
            inner = typing.get_args(hint)[:1]
        return [plain(item, inner[0]) for item in value]
    return value


def _is_container(hint: Any, value: Any) -> bool:
    """Return whether a value is a list, a set or a dictionary of a hint."""
    origin = typing.get_origin(hint)
    if origin is dict:
        return isinstance(value, Mapping)
    return origin in (list, tuple, set, frozenset) and isinstance(value, (list, tuple, set, frozenset))


def json_plain(value: Any) -> Any:
    """Return a model's instance as JSON-compatible values: enums as their values, bytes in base64."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    kind = type(value)
    if _is_pydantic(kind):
        return value.model_dump(mode="json", by_alias=True)
    if _is_struct(kind):
        import msgspec

        return msgspec.json.decode(msgspec.json.encode(value))
    if dataclasses.is_dataclass(kind):
        return {field.name: json_plain(getattr(value, field.name)) for field in dataclasses.fields(kind)}
    if isinstance(value, Mapping):
        return {key: json_plain(item) for key, item in value.items()}
    return [json_plain(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def maker(model: type) -> Callable[[Any], Any]:
    """Return the function that turns the plain values of Avro into the model's instances.

    It raises what the model raises for values that it does not accept.
    """
    if _is_pydantic(model):
        return lambda value: typing.cast(Any, model).model_validate(_by_value(model, value))
    if _is_struct(model):
        import msgspec

        kinds = (bytes, datetime.datetime, datetime.date, datetime.time, uuid.UUID, decimal.Decimal)
        return lambda value: msgspec.convert(_by_value(model, value), model, builtin_types=kinds)
    return lambda value: _build(model, value, maker)


def json_maker(model: type) -> Callable[[Any], Any]:
    """Return the function that turns the values of JSON into the model's instances."""
    if _is_pydantic(model):  # its forms of JSON are not those of Python's values
        return lambda value: typing.cast(Any, model).model_validate_json(json.dumps(value))
    if _is_struct(model):
        import msgspec

        return lambda value: msgspec.convert(value, model)
    return lambda value: _build(model, value, json_maker)


def model_problem(error: Exception) -> str:
    """Return which field of a model refuses its value, and why, without showing the value."""
    errors = getattr(error, "errors", None)
    if callable(errors):  # pydantic's
        rows = errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"field {'.'.join(map(str, row['loc']))!r}: {row['msg']}" for row in rows)
    if type(error).__module__.partition(".")[0] == "msgspec":
        return f"the model refuses the value: {error}"
    return f"the model refuses the value ({type(error).__name__})"


def _by_value(hint: Any, value: Any) -> Any:
    """Return the plain values of Avro with the names of enums replaced by their values, and pairs by their records."""
    alternatives = _alternatives(hint)
    if isinstance(value, tuple):
        name, value = value
        alternatives = tuple(one for one in alternatives if _name_of(one) == name.rpartition(".")[2]) or alternatives
    for one in alternatives:
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if isinstance(one, type) and issubclass(one, enum.Enum) and isinstance(value, str) and value in one.__members__:
            return one[value].value
        if is_model(one) and isinstance(value, Mapping):
            hints = {member.name: member.hint for member in _members(one)}
            made = {name: _by_value(hints.get(name), item) for name, item in value.items()}
            if len(alternatives) == 1 and _is_pydantic(one) and hint is not one:
                return typing.cast(Any, one).model_validate(made)  # of several classes, the one that was written
            tag = getattr(getattr(one, "__struct_config__", None), "tag_field", None)
            if tag is not None:
                made[tag] = typing.cast(Any, one).__struct_config__.tag
            return made
        if _is_container(one, value):
            if origin is dict:
                return {name: _by_value(arguments[1], item) for name, item in value.items()}
            return [_by_value(arguments[0], item) for item in value]
    return value


def _name_of(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else ""


def _alternatives(hint: Any) -> tuple[Any, ...]:
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return typing.get_args(hint) if _is_union(hint) else (hint,)


def _build(hint: Any, value: Any, make: Callable[[type], Callable[[Any], Any]]) -> Any:
    """Return the value of a dataclass's field. ``make`` returns the makers of other models: of Avro, or of JSON."""
    if value is None:
        return None
    alternatives = [inner for one in _alternatives(hint) for inner in _alternatives(one)]
    if isinstance(value, tuple):  # the name of a record, and the record
        name, value = value
        alternatives = [one for one in alternatives if _name_of(one) == name.rpartition(".")[2]] or alternatives
    elif isinstance(value, Mapping) and len(alternatives) > 1:
        alternatives.sort(key=lambda one: not _has_all(one, value))
    for one in alternatives:
        if is_model(one) and isinstance(value, Mapping):
            if _is_pydantic(one) or _is_struct(one):
                return make(one)(value)
            hints = {member.name: member.hint for member in _members(one)}
            return one(**{name: _build(hints[name], item, make) for name, item in value.items() if name in hints})
        if _is_container(one, value):
            origin, arguments = typing.get_origin(one), typing.get_args(one)
            if origin is dict:
                return {name: _build(arguments[1], item, make) for name, item in value.items()}
            made = [_build(arguments[0], item, make) for item in value]
            return made if origin is list else typing.cast(Any, origin)(made)
        if one is str and isinstance(value, str):
            return value
        try:
            if isinstance(one, type) and issubclass(one, enum.Enum):
                return one(value) if make is json_maker else one[value]
            if isinstance(value, str) and isinstance(one, type) and one in _FROM_TEXT:
                return _FROM_TEXT[one](value)
        except (KeyError, ValueError, decimal.InvalidOperation):
            if len(alternatives) == 1:
                raise
    return value


def _has_all(hint: Any, value: Mapping[str, Any]) -> bool:
    """Return whether an object has a model's fields."""
    if not is_model(hint):
        return False
    members = _members(hint)
    required = {member.name for member in members if member.default is _MISSING}
    return required <= value.keys() <= {member.name for member in members}


_FROM_TEXT: Final[dict[Any, Callable[[str], Any]]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    uuid.UUID: uuid.UUID,
    decimal.Decimal: decimal.Decimal,
    bytes: lambda text: base64.b64decode(text, validate=True),
}
