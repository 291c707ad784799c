"""Avro schemas and values that fit them, drawn."""

from __future__ import annotations

import datetime
import decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _times(step: datetime.timedelta) -> st.SearchStrategy[datetime.datetime]:
    return st.integers(-(10**9), 4 * 10**9).map(lambda count: _EPOCH + count * step)


#: Schemas of single values, each with its values.
_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=40)),
    ("string", st.text(max_size=20)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-millis"}, _times(datetime.timedelta(milliseconds=1))),
    ({"type": "long", "logicalType": "timestamp-micros"}, _times(datetime.timedelta(microseconds=1))),
    (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        _times(datetime.timedelta(microseconds=1)).map(lambda found: found.replace(tzinfo=None)),
    ),
    (
        {"type": "int", "logicalType": "time-millis"},
        st.times().map(lambda found: found.replace(microsecond=found.microsecond // 1000 * 1000)),
    ),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        st.integers(-(10**11), 10**11).map(lambda found: decimal.Decimal(found).scaleb(-3)),
    ),
]


@st.composite
def avro(
    draw: st.DrawFn, depth: int = 2, names: list[int] | None = None, recursive: bool = True
) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return a schema and a strategy for its values. Names are unique in the schema."""
    names = names if names is not None else [0]

    def new_name() -> str:
        names[0] += 1
        return f"N{names[0]}"

    kind = draw(st.sampled_from(["leaf", "leaf", "enum", "fixed", "array", "map", "null", "record", "union"]))
    if depth <= 0 and kind not in ("enum", "fixed"):
        kind = "leaf"
    if kind == "leaf":
        found: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(_LEAVES))
        return found
    if kind == "enum":
        symbols = [f"S{place}" for place in range(draw(st.integers(1, 4)))]
        return {"type": "enum", "name": new_name(), "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 9))
        return {"type": "fixed", "name": new_name(), "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "record":
        made: tuple[Any, st.SearchStrategy[Any]] = draw(record(depth - 1, names, recursive))
        return made
    inner, values = draw(avro(depth - 1, names, recursive))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=5), values, max_size=3)
    if kind == "null" and not isinstance(inner, list):
        return ["null", inner] if draw(st.booleans()) else [inner, "null"], st.none() | values
    if kind == "union":
        return ["null", "boolean", "string", "long"], st.none() | st.booleans() | st.text() | st.integers(-99, 99)
    return inner, values


@st.composite
def record(
    draw: st.DrawFn, depth: int = 2, names: list[int] | None = None, recursive: bool = True
) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return the schema of a record, and a strategy for its values; some fields with a default are left out."""
    names = names if names is not None else [0]
    names[0] += 1
    name = f"N{names[0]}"
    fields: list[dict[str, Any]] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for place in range(draw(st.integers(1, 5))):
        inner, of = draw(avro(depth, names, recursive))
        field = {"name": f"f{place}", "type": inner}
        if draw(st.booleans()):
            field["aliases"] = [f"old{place}"]
        if inner == "long" and draw(st.booleans()):
            field["default"] = draw(st.integers(-99, 99))
            optional[f"f{place}"] = of
        else:
            values[f"f{place}"] = of
        fields.append(field)
    if recursive and draw(st.booleans()):
        fields.append({"name": "next", "type": ["null", name], "default": None})
        optional["next"] = st.none()
    schema = {"type": "record", "name": name, "fields": fields}
    return schema, st.fixed_dictionaries(values, optional=optional)


_PROMOTED = {
    "int": ["long", "double"],
    "long": ["double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}


@st.composite
def evolved(draw: st.DrawFn, schema: Any, nullable: bool = True) -> Any:
    """Return a schema that may read records of the given one: other types, orders and fields, with names kept."""
    if isinstance(schema, list):
        if len(schema) == 2 and draw(st.integers(0, 4)) == 0:  # null is then no value any more
            return next(branch for branch in schema if branch != "null")
        return [draw(evolved(branch, False)) if branch != "null" and len(schema) == 2 else branch for branch in schema]
    if isinstance(schema, str):
        found: Any = draw(st.sampled_from([schema, *_PROMOTED.get(schema, [])]))
    elif "logicalType" in schema or schema["type"] == "fixed":
        found = schema
    elif schema["type"] == "enum":
        kept = [symbol for symbol in schema["symbols"] if draw(st.integers(0, 3))] or schema["symbols"][:1]
        found = {**schema, "symbols": [*kept, "NEW"]}
        if draw(st.booleans()):
            found["default"] = "NEW"
    elif schema["type"] == "array":
        found = {**schema, "items": draw(evolved(schema["items"]))}
    elif schema["type"] == "map":
        found = {**schema, "values": draw(evolved(schema["values"]))}
    else:
        return draw(evolved_record(schema))
    return ["null", found] if nullable and draw(st.integers(0, 4)) == 0 else found


@st.composite
def evolved_record(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose fields are some of the given one's, renamed or evolved, and new ones with defaults."""
    fields: list[dict[str, Any]] = []
    for field in schema["fields"]:
        if draw(st.integers(0, 4)) == 0:
            continue
        made: dict[str, Any] = {"name": field["name"], "type": draw(evolved(field["type"]))}
        renamed = {**made, "name": f"renamed_{field['name']}", "aliases": [field["name"]]}
        form = draw(st.sampled_from(["same", "same", "renamed", "both"]))
        if form == "both":  # the old name is that of another field now
            again = [{**renamed, "type": ["null", "long"], "default": None}]
        else:
            again = []
        fields += [renamed if form == "renamed" else made, *again]
    new: list[dict[str, Any]] = [
        {"name": "new_text", "type": "string", "default": "text"},
        {"name": "new_null", "type": ["null", "long"], "default": None},
        {"name": "new_list", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        {"name": "new_double", "type": "double"},  # without a default: nothing can be read
    ]
    fields += [field for place, field in enumerate(new) if draw(st.integers(0, 2 if place < 3 else 9)) == 0]
    return {**schema, "fields": draw(st.permutations(fields))}


# --- more than columns have -------------------------------------------------------------------------------------------

_MILLISECOND = datetime.timedelta(milliseconds=1)
_MORE_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    *_LEAVES,
    (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        _times(_MILLISECOND).map(lambda at: at.replace(tzinfo=None)),
    ),
    ({"type": "long", "logicalType": "timestamp-nanos"}, st.integers(-(2**62), 2**62)),
    ({"type": "string", "logicalType": "unknown-to-all"}, st.text(max_size=5)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5}, st.integers(-99999, 99999).map(decimal.Decimal)),
]
#: Types whose fields may have a default, with the default.
_DEFAULTS: list[tuple[Any, st.SearchStrategy[Any], Any]] = [
    ("string", st.text(max_size=5), "d\u00e9fault"),
    ("boolean", st.booleans(), True),
    ("double", st.floats(allow_nan=False), 1.5),
    ({"type": "array", "items": "long"}, st.lists(st.integers(-9, 9), max_size=3), [1, -1]),
    ({"type": "map", "values": "int"}, st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=3), {"k": 1}),
    (["null", "string"], st.none() | st.text(max_size=5), None),
    (["string", "null"], st.none() | st.text(max_size=5), "text"),
]


class Drawn(NamedTuple):
    """A schema, a strategy for its values, and the schemas that it refers to, by their full names."""

    schema: Any
    values: st.SearchStrategy[Any]
    references: dict[str, Any]


class _Wide:
    """Draws schemas whose named types have namespaces, and are used again by their names."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0
        self._known: list[tuple[str, st.SearchStrategy[Any]]] = []
        self.references: dict[str, Any] = {}

    def _named(self, kind: str) -> dict[str, Any]:
        self._count += 1
        name, space = f"N{self._count}", self._draw(st.sampled_from(["a", "a.b", "c"]))
        found: dict[str, Any] = {"type": kind, "name": name, "namespace": space}
        if self._draw(st.booleans()):
            found["aliases"] = [f"old.N{self._count}"]
        if self._draw(st.booleans()):
            found["name"] = f"{space}.{name}"
            del found["namespace"]
        return found

    def _kept(self, schema: dict[str, Any], values: st.SearchStrategy[Any]) -> tuple[Any, st.SearchStrategy[Any]]:
        full = full_name(schema)
        self._known.append((full, values))
        return schema, values

    def type(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        kinds = ["leaf", "leaf", "fixed", "decimal", "duration", "enum", "again"]
        kind = self._draw(st.sampled_from(kinds + ["array", "map", "null", "records", "record"] * (depth > 0)))
        if kind == "again" and self._known:
            found: tuple[Any, st.SearchStrategy[Any]] = self._draw(st.sampled_from(self._known))
            return found
        if kind == "fixed":
            size = self._draw(st.integers(1, 20))
            return self._kept({**self._named("fixed"), "size": size}, st.binary(min_size=size, max_size=size))
        if kind == "decimal":
            schema = {**self._named("fixed"), "size": 6, "logicalType": "decimal", "precision": 12, "scale": 4}
            return self._kept(schema, st.integers(-(10**11), 10**11).map(lambda n: decimal.Decimal(n).scaleb(-4)))
        if kind == "duration":
            schema = {**self._named("fixed"), "size": 12, "logicalType": "duration"}
            return self._kept(schema, st.binary(min_size=12, max_size=12))
        if kind == "enum":
            symbols = ["A", "B", "C"]
            return self._kept({**self._named("enum"), "symbols": symbols, "default": "B"}, st.sampled_from(symbols))
        if kind == "array":
            inner, values = self.type(depth - 1)
            return {"type": "array", "items": inner}, st.lists(values, max_size=3)
        if kind == "map":
            inner, values = self.type(depth - 1)
            return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=5), values, max_size=3)
        if kind == "null":
            inner, values = self.type(depth - 1)
            if not isinstance(inner, list):
                return ["null", inner], st.none() | values
            return inner, values
        if kind == "records":
            first, of_first = self.record(depth - 1)
            second, of_second = self.record(depth - 1)
            names = full_name(first), full_name(second)
            values = of_first.map(lambda row: (names[0], row)) | of_second.map(lambda row: (names[1], row))
            return ["null", first, second], st.none() | values
        if kind == "record":
            return self.record(depth - 1)
        leaf: tuple[Any, st.SearchStrategy[Any]] = self._draw(st.sampled_from(_MORE_LEAVES))
        return leaf

    def record(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        schema = self._named("record")
        fields: list[dict[str, Any]] = []
        values: dict[str, st.SearchStrategy[Any]] = {}
        optional: dict[str, st.SearchStrategy[Any]] = {}
        for place in range(self._draw(st.integers(0, 4))):
            name = f"f{place}"
            if self._draw(st.integers(0, 2)) == 0:
                kind, of, default = self._draw(st.sampled_from(_DEFAULTS))
                fields.append({"name": name, "type": kind, "default": default, "doc": "text", "aliases": [f"o{place}"]})
                optional[name] = of
            else:
                kind, values[name] = self.type(depth)
                fields.append({"name": name, "type": kind, "order": "ignore"})
        made = {**schema, "fields": fields}
        found = self._kept(made, st.fixed_dictionaries(values, optional=optional))
        if not self.references and self._draw(st.integers(0, 3)) == 0 and _is_closed(made):
            self.references[full_name(made)] = made
            return full_name(made), found[1]
        return found


def full_name(schema: Any) -> str:
    """Return the full name of a named type, or the name itself."""
    if isinstance(schema, str):
        return schema
    name, space = str(schema["name"]), schema.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


def _is_closed(schema: Any) -> bool:
    """Return whether a record names no other type, so that it can be a schema of its own."""
    kinds = [field["type"] for field in schema["fields"]]
    return all(isinstance(kind, str) and "." not in kind and not kind.startswith("N") for kind in kinds)


@st.composite
def wide(draw: st.DrawFn) -> Drawn:
    """Return a record with all that Avro has: namespaces, references, logical types of fixed, unions of records."""
    drawing = _Wide(draw)
    schema, values = drawing.record(2)
    if isinstance(schema, str):  # the whole record became a reference
        schema = drawing.references.pop(schema)
    return Drawn(schema, values, drawing.references)
