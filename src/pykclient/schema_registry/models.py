"""Dataclasses, pydantic models and msgspec structs: their schemas, and their conversion to plain values and back."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

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
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string"},
    _NONE: {"type": "null"},
}
_MISSING: Final = object()


def is_model(given: object) -> bool:
    """Return whether this is a class of one of the supported kinds."""
    return isinstance(given, type) and (dataclasses.is_dataclass(given) or _is_pydantic(given) or _is_struct(given))


def _is_pydantic(given: type) -> bool:
    return hasattr(given, "model_fields") and hasattr(given, "model_validate")


def _is_struct(given: type) -> bool:
    return hasattr(given, "__struct_fields__")


def _members(model: type) -> list[tuple[str, Any, Any]]:
    """Return the fields' names, types and defaults; ``_MISSING`` where there is none."""
    hints = typing.get_type_hints(model, include_extras=True)
    found: list[tuple[str, Any, Any]] = []
    if _is_pydantic(model):
        for name, info in typing.cast(Any, model).model_fields.items():
            found.append(
                (name, hints[name], _MISSING if info.is_required() else info.get_default(call_default_factory=True))
            )
    elif _is_struct(model):
        names = typing.cast(Any, model).__struct_fields__
        defaults = typing.cast(Any, model).__struct_defaults__
        padded = (_MISSING,) * (len(names) - len(defaults)) + tuple(defaults)
        for name, default in zip(names, padded, strict=True):
            is_value = isinstance(default, (bool, int, float, str, bytes, _NONE, enum.Enum))
            found.append((name, hints[name], default if is_value else _MISSING))
    else:
        for field in dataclasses.fields(model):
            default = _MISSING if field.default is dataclasses.MISSING else field.default
            found.append((field.name, hints[field.name], default))
    return found


def avro_schema(model: type, namespace: str | None = None) -> dict[str, Any]:
    """Return the Avro schema of a model, as JSON.

    Numbers are ``long`` and ``double``, times microseconds in UTC; ``T | None`` is a union with null, whose default is
    null. A Decimal needs its size: ``Annotated[Decimal, {"precision": 12, "scale": 2}]``.

    Raises:
        SerializationError: a field's type has no Avro type.
    """
    seen: set[type] = set()

    def record(of: type) -> Any:
        if of in seen:
            return of.__name__
        seen.add(of)
        rows = []
        for name, hint, default in _members(of):
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
            given = next((extra for extra in arguments[1:] if isinstance(extra, Mapping)), {})
            if arguments[0] is decimal.Decimal and "precision" in given:
                return {"type": "bytes", "logicalType": "decimal", **given}
            return convert(arguments[0], where)
        if hint in _AVRO:
            return _AVRO[hint]
        if origin in (typing.Union, types.UnionType):
            rest = [convert(one, where) for one in arguments if one is not _NONE]
            return ["null", *rest] if _NONE in arguments else rest
        if origin in (list, tuple, set, frozenset) and arguments:
            return {"type": "array", "items": convert(arguments[0], where)}
        if origin is dict and arguments[0] is str:
            return {"type": "map", "values": convert(arguments[1], where)}
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _enum(hint, seen)
        if is_model(hint):
            return record(hint)
        raise SerializationError(f"{where}: {hint} has no Avro type")

    return record(model)  # type: ignore[no-any-return]


def _with_default_first(row: dict[str, Any]) -> dict[str, Any]:
    """Return a field whose union begins with the type of its default, as Avro wants."""
    kind = row["type"]
    if isinstance(kind, list) and row.get("default") is not None and kind[0] == "null":
        row["type"] = [*kind[1:], "null"]
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
        properties = {name: convert(hint, f"{of.__name__}.{name}") for name, hint, _ in rows}
        required = [name for name, _, default in rows if default is _MISSING]
        return {"title": of.__name__, "type": "object", "properties": properties, "required": required}

    def convert(hint: Any, where: str) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return convert(arguments[0], where)
        if hint in _JSON:
            return dict(_JSON[hint])
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [convert(one, where) for one in arguments]}
        if origin in (list, tuple, set, frozenset) and arguments:
            return {"type": "array", "items": convert(arguments[0], where)}
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


def plain(value: Any) -> Any:
    """Return a model's instance as dictionaries and lists; enums become their names. Other values stay as they are."""
    if isinstance(value, enum.Enum):
        return value.name
    kind = type(value)
    if _is_pydantic(kind):
        return {name: plain(getattr(value, name)) for name in kind.model_fields}
    if _is_struct(kind):
        return {name: plain(getattr(value, name)) for name in kind.__struct_fields__}
    if dataclasses.is_dataclass(kind):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(kind)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def json_plain(value: Any) -> Any:
    """Return a model's instance as JSON-compatible values."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    kind = type(value)
    if _is_pydantic(kind):
        return value.model_dump(mode="json")
    if _is_struct(kind):
        import msgspec

        return msgspec.to_builtins(value)
    if dataclasses.is_dataclass(kind):
        return {field.name: json_plain(getattr(value, field.name)) for field in dataclasses.fields(kind)}
    if isinstance(value, Mapping):
        return {key: json_plain(item) for key, item in value.items()}
    return [json_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def maker(model: type) -> Callable[[Any], Any]:
    """Return the function that turns plain values into the model's instances.

    It raises what the model raises for values that it does not accept.
    """
    if _is_pydantic(model):
        return lambda value: typing.cast(Any, model).model_validate(_by_value(model, value))
    if _is_struct(model):
        import msgspec

        kinds = (bytes, datetime.datetime, datetime.date, datetime.time, uuid.UUID, decimal.Decimal)
        return lambda value: msgspec.convert(_by_value(model, value), model, builtin_types=kinds)
    return lambda value: _build(model, value)


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
    """Return plain values with the names of enums replaced by their values."""
    for one in _alternatives(hint):
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if isinstance(one, type) and issubclass(one, enum.Enum) and isinstance(value, str) and value in one.__members__:
            return one[value].value
        if is_model(one) and isinstance(value, Mapping):
            hints = {name: kind for name, kind, _ in _members(one)}
            return {name: _by_value(hints.get(name), item) for name, item in value.items()}
        if origin in (list, tuple, set, frozenset) and isinstance(value, list):
            return [_by_value(arguments[0], item) for item in value]
        if origin is dict and isinstance(value, Mapping):
            return {name: _by_value(arguments[1], item) for name, item in value.items()}
    return value


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _build(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    for one in _alternatives(hint):
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if isinstance(one, type) and issubclass(one, enum.Enum):
            return one[value] if value in one.__members__ else one(value)
        if is_model(one) and isinstance(value, Mapping):
            if _is_pydantic(one) or _is_struct(one):
                return maker(one)(value)
            names = {name: kind for name, kind, _ in _members(one)}
            return one(**{name: _build(names[name], item) for name, item in value.items() if name in names})
        if origin in (list, tuple, set, frozenset) and isinstance(value, list):
            made = [_build(arguments[0], item) for item in value]
            return made if origin is list else typing.cast(Any, origin)(made)
        if origin is dict and isinstance(value, Mapping):
            return {name: _build(arguments[1], item) for name, item in value.items()}
        if isinstance(value, str) and one in _FROM_TEXT:
            return _FROM_TEXT[one](value)
    return value


_FROM_TEXT: Final[dict[Any, Callable[[str], Any]]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    uuid.UUID: uuid.UUID,
    decimal.Decimal: decimal.Decimal,
}
