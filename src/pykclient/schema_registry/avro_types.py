"""Avro schemas as trees, the rules by which one reads what another one wrote (Avro 1.11, "Schema Resolution"), and the
places where the bytes of a record are damaged.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pykclient.errors import SerializationError
from pykclient.network.failures import shown_text
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schemas import Schema, field_at, inner_path

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))

#: The types that a reader promotes a writer's type to.
PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
_RULES: Final = "confluent:rules"


@dataclasses.dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record. ``has_default`` distinguishes a default of null from no default."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None
    #: The property ``confluent:rules``.
    rules: Any = None


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class AvroType:
    """A type. A recursive record contains itself. Compared by identity."""

    kind: str
    #: The full name of a record, an enum or a fixed type.
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    fields: list[AvroField] = dataclasses.field(default_factory=list)
    #: The property ``confluent:rules`` of a record.
    rules: Any = None
    branches: list[AvroType] = dataclasses.field(default_factory=list)
    symbols: list[str] = dataclasses.field(default_factory=list)
    default: str | None = None
    size: int = 0
    #: The element type of an array or a map.
    items: AvroType = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.items = self

    def __str__(self) -> str:
        if self.kind == "union":
            return f"[{', '.join(map(str, self.branches))}]"
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.items}"
        kind = f"{self.kind} ({self.logical})" if self.logical else self.kind
        return f"{kind} {self.name}" if self.name else kind


class _Parser:
    def __init__(self, named: Mapping[str, Any]) -> None:
        #: The schemas of references, which are parsed when they are needed.
        self._raw = dict(named)
        self._known: dict[str, AvroType] = {}

    def parse(self, given: Any, space: str) -> AvroType:
        if isinstance(given, str):
            return self._named(given, space)
        if isinstance(given, list):
            return AvroType("union", branches=[self.parse(branch, space) for branch in given])
        if not isinstance(given, dict) or "type" not in given:
            raise SerializationError(f"{shown_text(repr(given), 60)} is not an Avro schema")
        kind = given["type"]
        if not isinstance(kind, str):
            return self.parse(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define("record" if kind == "error" else kind, given, space)
        if kind in ("array", "map"):
            made = AvroType(kind)
            made.items = self.parse(given.get("items" if kind == "array" else "values"), space)
            return made
        if kind not in PRIMITIVES:
            return self._named(kind, space)
        made = AvroType(kind)
        _set_logical(made, given)
        return made

    def _named(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in (_full_name(name, space), name):
            if full in self._known:
                return self._known[full]
        for full in (_full_name(name, space), name):
            if full in self._raw:
                raw = self._raw.pop(full)
                found = self.parse(raw, "")
                self._known.setdefault(full, found)
                return found
        raise SerializationError(f"the Avro type {name!r} is not defined, nor among the schema's references")

    def _define(self, kind: str, given: Mapping[str, Any], space: str) -> AvroType:
        name = given.get("name")
        if not isinstance(name, str):
            raise SerializationError(f"an Avro {kind} has no name")
        full = _full_name(name, given.get("namespace", space))
        inner = full.rpartition(".")[0]
        made = AvroType(kind, full)
        made.aliases = tuple(_full_name(alias, inner) for alias in given.get("aliases", ()))
        self._known[full] = made
        if kind == "record":
            for row in given.get("fields", ()):
                of, aliases, rules = self.parse(row["type"], inner), tuple(row.get("aliases", ())), row.get(_RULES)
                made.fields.append(AvroField(row["name"], of, aliases, "default" in row, row.get("default"), rules))
            made.rules = given.get(_RULES)
        elif kind == "enum":
            made.symbols = list(given["symbols"])
            made.default = given.get("default")
        else:
            made.size = int(given["size"])
            _set_logical(made, given)
        return made


def _set_logical(made: AvroType, given: Mapping[str, Any]) -> None:
    made.logical = given.get("logicalType")
    made.precision = int(given.get("precision", 0))
    made.scale = int(given.get("scale", 0))


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def loaded(text: str) -> Any:
    """Return the JSON of an Avro schema; the name of a primitive type needs no quotes.

    Raises:
        SerializationError: it is not JSON.
    """
    text = text.strip()
    try:
        return text if text in PRIMITIVES else json.loads(text)
    except ValueError as error:
        raise SerializationError(f"not a valid Avro schema: {error}") from error


def parse_avro(schema: Any, named: Mapping[str, Any] | None = None) -> AvroType:
    """Parse an Avro schema in JSON. ``named`` has the schemas of referenced types by full name.

    Raises:
        SerializationError: it is not a schema, or a type is not defined.
    """
    try:
        return _Parser(named or {}).parse(schema, "")
    except (KeyError, TypeError, ValueError) as error:
        raise SerializationError(f"not a valid Avro schema: {type(error).__name__}: {error}") from error


def named_schemas(schema: Schema, resolve: Callable[[str, int], Schema]) -> dict[str, Any]:
    """Return the JSON of all schemas referenced by one, transitively, by name. ``resolve`` gets a subject's version.

    Each is visited once, so references may share references and form cycles.
    """
    found: dict[str, Any] = {}
    for name, text in referenced(schema, resolve):
        raw = loaded(text)
        found[name] = raw
        if isinstance(raw, dict) and isinstance(raw.get("name"), str):
            found[_full_name(raw["name"], raw.get("namespace", ""))] = raw
    return found


def referenced(
    schema: Schema, resolve: Callable[[str, int], Schema], is_known: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the schemas referenced by one, each once, innermost first; without known ones."""
    seen: set[tuple[str, int]] = set()

    def visit(of: Schema) -> Iterator[tuple[str, str]]:
        for reference in of.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            if name is None or subject is None or version is None:
                raise SerializationError(f"a reference needs a name, a subject and a version, not {reference}")
            if (subject, version) in seen or is_known(name):
                continue
            seen.add((subject, version))
            target = resolve(subject, version)
            yield from visit(target)
            if target.schema_str is None:
                raise SerializationError(f"version {version} of {subject!r}, which is referred to, has no text")
            yield name, target.schema_str

    return visit(schema)


# --- resolution ------------------------------------------------------------------------------------------------------


def matches(reader: AvroType, writer: AvroType) -> bool:
    """Return whether a union's branch is a candidate for a writer's type."""
    if reader.kind != writer.kind:
        return reader.kind in PROMOTIONS.get(writer.kind, ())
    if reader.kind in ("enum", "fixed", "record"):
        return has_name(reader, writer)
    return True


def has_name(reader: AvroType, writer: AvroType) -> bool:
    """Return whether the names match, ignoring namespaces as most implementations do, or by an alias."""
    last = writer.name.rpartition(".")[2]
    return any(name.rpartition(".")[2] == last for name in (reader.name, *reader.aliases))


def written_fields(reader: AvroType, writer: AvroType) -> dict[str, AvroField]:
    """Return the writer's fields that a reader's fields read, by the readers' names.

    Each is read once: by the field of its own name, or else by the first one that has its name as an alias.
    """
    left = {known.name: known for known in writer.fields}
    found = {field.name: left.pop(field.name) for field in reader.fields if field.name in left}
    for field in reader.fields:
        alias = next((name for name in field.aliases if name in left), None)
        if field.name not in found and alias is not None:
            found[field.name] = left.pop(alias)
    return found


def branch_for(union: AvroType, writer: AvroType) -> int:
    """Return the number of the branch that reads a writer's type; -1 if none does."""
    candidates = [number for number, branch in enumerate(union.branches) if branch.kind == writer.kind]
    for number in candidates:
        branch = union.branches[number]
        if branch.kind not in ("enum", "fixed", "record") or writer.name in (branch.name, *branch.aliases):
            return number
    for number, branch in enumerate(union.branches):
        if matches(branch, writer):
            return number
    return -1


def resolution_problems(reader: AvroType, writer: AvroType) -> list[str]:
    """Return why a reader cannot read a writer's data, with the path and both types; empty if it can."""
    problems: list[str] = []
    seen: set[tuple[int, int]] = set()

    def check(reader: AvroType, writer: AvroType, path: str) -> None:
        if (id(reader), id(writer)) in seen:
            return
        seen.add((id(reader), id(writer)))
        where = path or "the schema"
        if writer.kind == "union":
            for branch in writer.branches:
                check(reader, branch, path)
        elif reader.kind == "union":
            number = branch_for(reader, writer)
            if number < 0:
                problems.append(f"{where}: the reader's {reader} has no branch for the writer's {writer}")
            else:
                check(reader.branches[number], writer, path)
        elif not matches(reader, writer):
            problems.append(f"{where}: the reader's {reader} cannot read the writer's {writer}")
        elif reader.kind in ("array", "map") and writer.kind == reader.kind:
            check(reader.items, writer.items, f"{path}[]")
        elif reader.kind == "fixed" and reader.size != writer.size:
            problems.append(f"{where}: the reader's size is {reader.size}, the writer's {writer.size}")
        elif reader.kind == "enum":
            missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if missing and reader.default is None:
                problems.append(
                    f"{where}: the reader's {reader} lacks the symbols {', '.join(missing)}, and has no default"
                )
        elif reader.kind == "record":
            check_fields(reader, writer, path)

    def check_fields(reader: AvroType, writer: AvroType, path: str) -> None:
        found = written_fields(reader, writer)
        for field in reader.fields:
            inner = inner_path(path, field.name)
            if field.name in found:
                check(field.type, found[field.name].type, inner)
            elif not field.has_default:
                problems.append(f"{inner}: the writer has no such field, and the reader's {field.type} no default")

    check(reader, writer, "")
    return problems


# --- damaged records --------------------------------------------------------------------------------------------------
# Decoders only say that a record cannot be read. This reads it a second time, for the message.

_DEEPEST: Final = 64
_SIZES: Final = {"float": 4, "double": 8}
_NUMBERS: Final = {"int": 32, "long": 64}


class _DamageError(Exception):
    pass


def damage(writer: AvroType, reader: AvroType | None, data: bytes) -> str | None:
    """Return which field is damaged, how, and its types in the writer's and the reader's schema; None if none is."""
    walk = _Walk(data)
    try:
        walk.value(writer, reader, "", 0)
    except _DamageError as error:
        return str(error)
    left = len(data) - walk.pos
    return f"{left} bytes are left after the value" if left else None


class _Walk:
    """Reads a record, and remembers the position."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.pos = 0

    def value(self, writer: AvroType, reader: AvroType | None, path: str, depth: int) -> None:
        """Read a value.

        Raises:
            _DamageError: it is damaged.
        """
        try:
            if depth > _DEEPEST:
                raise ValueError(f"values are nested more than {_DEEPEST} times")
            self._read(writer, reader, path, depth)
        except (IndexError, ValueError) as error:
            where = field_at(path)
            text = "the bytes end inside of it" if isinstance(error, IndexError) else str(error)
            types = f"the schema has {writer}"
            if reader is not None and str(reader) != str(writer):
                types += f", and the reader's has {reader}"
            raise _DamageError(f"{where}: {text}; {types}") from None

    def _read(self, writer: AvroType, reader: AvroType | None, path: str, depth: int) -> None:
        kind = writer.kind
        if reader is not None and reader.kind == "union" and kind != "union":
            number = branch_for(reader, writer)
            reader = reader.branches[number] if number >= 0 else None
        if kind == "record":
            found = {} if reader is None else written_fields(reader, writer)
            fields = () if reader is None else reader.fields
            wanted = {found[field.name].name: field.type for field in fields if field.name in found}
            for field in writer.fields:
                self.value(field.type, wanted.get(field.name), inner_path(path, field.name), depth + 1)
        elif kind == "union":
            number = self._long()
            if not 0 <= number < len(writer.branches):
                raise ValueError(f"there is no branch {number} of {len(writer.branches)} in a union")
            self.value(writer.branches[number], reader, path, depth + 1)
        elif kind in ("array", "map"):
            self._read_items(writer, None if reader is None else reader.items, path, depth)
        else:
            begin = self.pos
            self._read_leaf(writer)
            if writer.logical is not None and not _is_read(writer, self._data[begin : self.pos]):
                raise ValueError("the bytes are none of its values")

    def _read_items(self, writer: AvroType, reader: AvroType | None, path: str, depth: int) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the size of the block in bytes
            for _ in range(min(count, len(self._data) + 1)):  # values may have no bytes
                if writer.kind == "map":
                    _check_text(self._take(self._long()))
                self.value(writer.items, reader, f"{path}{'{}' if writer.kind == 'map' else '[]'}", depth + 1)

    def _read_leaf(self, writer: AvroType) -> None:
        kind = writer.kind
        if kind == "boolean":
            value = self._take(1)[0]
            if value > 1:
                raise ValueError(f"{value} is no boolean")
        elif kind in _NUMBERS:
            number, bits = self._long(), _NUMBERS[kind] - 1
            if not -(1 << bits) <= number < 1 << bits:
                raise ValueError(f"a number of more than {bits + 1} bits")
        elif kind in _SIZES:
            self._take(_SIZES[kind])
        elif kind in ("string", "bytes"):
            text = self._take(self._long())
            if kind == "string":
                _check_text(text)
        elif kind == "fixed":
            self._take(writer.size)
        elif kind == "enum":
            number = self._long()
            if not 0 <= number < len(writer.symbols):
                raise ValueError(f"there is no symbol {number} of {len(writer.symbols)}")

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _take(self, size: int) -> bytes:
        if size < 0:
            raise ValueError(f"a negative size: {size}")
        if size > len(self._data) - self.pos:
            raise IndexError(size)
        self.pos += size
        return self._data[self.pos - size : self.pos]


def _check_text(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the text is not UTF-8 at byte {error.start}") from None


def is_written(leaf: AvroType, value: Any) -> bool:
    """Return whether the codec accepts a value for a type without parts."""
    try:
        load("fastavro", "avro").schemaless_writer(io.BytesIO(), _alone(leaf), value)
    except Exception:  # noqa: BLE001 - whatever the codec raises for a value
        return False
    return True


def _is_read(leaf: AvroType, data: bytes) -> bool:
    try:
        load("fastavro", "avro").schemaless_reader(io.BytesIO(data), _alone(leaf), None)
    except Exception:  # noqa: BLE001 - whatever the codec raises for the bytes
        return False
    return True


def _alone(leaf: AvroType) -> Any:
    return _schema(leaf.kind, leaf.logical, leaf.precision, leaf.scale, leaf.size)


@functools.lru_cache(200)
def _schema(kind: str, logical: str | None, precision: int, scale: int, size: int) -> Any:
    more = {"precision": precision, "scale": scale} if precision else {}
    given = {"type": kind, "logicalType": logical or "", "name": "leaf", "size": size, **more}
    return load("fastavro", "avro").parse_schema(given)
