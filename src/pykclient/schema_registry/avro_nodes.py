"""How the values of an Avro schema become columns: a tree of steps for each pair of a writer's and a reader's schema.

A step reads one value in the writer's form, and adds it to a column of the reader's form, or skips it. Records written
with another schema have another tree, but the same columns. The trees are walked by ``avro_decoder``.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any, Final

from pykclient.errors import SerializationError
from pykclient.record.record_batch import encode_varint
from pykclient.schema_registry.avro_types import AvroType, branch_for, matches, written_fields
from pykclient.schema_registry.schemas import inner_path

#: The forms of columns: one bit; so many bytes; bytes of any length; a number of values; named columns.
BITS, FIXED, BYTES, LIST, STRUCT = range(5)

#: The steps. LONG is a varint of the column's width, TEXT has a length, and RAW a fixed size.
NULL, BOOLEAN, LONG, LONG_TO_FLOAT, FLOAT, FLOAT_TO_DOUBLE, DOUBLE, TEXT, RAW = range(9)
ENUM, DECIMAL, RECORD, ARRAY, MAP, UNION, TAGGED_UNION, DEFAULT, FAIL = range(9, 18)

#: The deepest nesting of values.
DEEPEST: Final = 64


@dataclasses.dataclass(eq=False, slots=True)
class Shape:
    """The shape of a column, and its Arrow type. A struct has named children, a list has one."""

    form: int
    #: The name of the Arrow type, with its parameters.
    arrow: tuple[Any, ...]
    width: int = 0
    children: list[Shape] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=list)
    symbols: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False, slots=True)
class Step:
    """One step. ``column`` is the number of its column in the decoder, or -1 to skip the value.

    ``size`` is that of a fixed value in bytes; 1 for a string, which must be UTF-8. ``mapping`` maps an enum's symbols.
    ``data`` is a default's value in Avro. ``text`` says why a value cannot be read.
    """

    kind: int
    column: int
    steps: list[Step] = dataclasses.field(default_factory=list)
    size: int = 0
    mapping: list[int] = dataclasses.field(default_factory=list)
    data: bytes = b""
    text: str = ""


_TIMES: Final[dict[tuple[str, str | None], tuple[Any, ...]]] = {
    ("int", "date"): ("date32",),
    ("int", "time-millis"): ("time32", "ms"),
    ("long", "time-micros"): ("time64", "us"),
    ("long", "timestamp-millis"): ("timestamp", "ms", "UTC"),
    ("long", "timestamp-micros"): ("timestamp", "us", "UTC"),
    ("long", "timestamp-nanos"): ("timestamp", "ns", "UTC"),
    ("long", "local-timestamp-millis"): ("timestamp", "ms"),
    ("long", "local-timestamp-micros"): ("timestamp", "us"),
    ("long", "local-timestamp-nanos"): ("timestamp", "ns"),
}
_PLAIN: Final[dict[str, tuple[int, tuple[Any, ...], int]]] = {
    "null": (FIXED, ("null",), 0),
    "boolean": (BITS, ("bool_",), 0),
    "int": (FIXED, ("int32",), 4),
    "long": (FIXED, ("int64",), 8),
    "float": (FIXED, ("float32",), 4),
    "double": (FIXED, ("float64",), 8),
    "bytes": (BYTES, ("binary",), 0),
    "string": (BYTES, ("string",), 0),
}


def shape_of(of: AvroType, wanted: frozenset[str] | None = None) -> Shape:
    """Return the shape of a type's column. ``wanted`` selects fields of the outermost record.

    Raises:
        SerializationError: a type contains itself, which columns cannot; select other fields.
    """
    return _shape(of, wanted, ())


def _shape(of: AvroType, wanted: frozenset[str] | None, outer: tuple[AvroType, ...]) -> Shape:
    if of in outer:
        raise SerializationError(f"{of} contains itself, and columns cannot: select fields without it (columns=...)")
    inner = (*outer, of)
    if is_decimal(of):
        return Shape(FIXED, ("decimal128", of.precision, of.scale), 16)
    if (of.kind, of.logical) in _TIMES:
        return Shape(FIXED, _TIMES[of.kind, of.logical], 4 if of.kind == "int" else 8)
    if of.kind in _PLAIN:
        form, arrow, width = _PLAIN[of.kind]
        return Shape(form, arrow, width)
    if of.kind == "fixed":
        return Shape(FIXED, ("binary", of.size), of.size)
    if of.kind == "enum":
        return Shape(FIXED, ("dictionary",), 4, symbols=of.symbols)
    if of.kind == "array":
        return Shape(LIST, ("list",), children=[_shape(of.items, None, inner)])
    if of.kind == "map":
        pair = [Shape(BYTES, ("string",)), _shape(of.items, None, inner)]
        return Shape(LIST, ("map",), children=[Shape(STRUCT, ("struct",), 0, pair, ["key", "value"])])
    if of.kind == "union":
        branches = values_of(of)
        if len(branches) == 1:
            return _shape(branches[0], wanted, outer)
        if not branches:
            return Shape(FIXED, ("null",), 0)
        parts = [(branch_name(branch), branch) for branch in branches]
    else:
        parts = [(field.name, field.type) for field in of.fields if wanted is None or field.name in wanted]
    children = [_shape(part, None, inner) for _, part in parts]
    return Shape(STRUCT, ("struct",), 0, children, [name for name, _ in parts])


def is_decimal(of: AvroType) -> bool:
    """Return whether a type is a decimal that Arrow has a type for."""
    return of.logical == "decimal" and of.kind in ("bytes", "fixed") and 0 < of.precision <= 38


def values_of(union: AvroType) -> list[AvroType]:
    """Return the branches of a union that are not null."""
    return [branch for branch in union.branches if branch.kind != "null"]


def branch_name(branch: AvroType) -> str:
    """Return the name of a branch's column in the struct of a union."""
    return branch.name.rpartition(".")[2] or branch.kind


class Compiler:
    """Compiles the steps for the records of one writer. ``numbers`` maps shapes to column numbers."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers
        self._skips: dict[int, Step] = {}

    def step(self, writer: AvroType, reader: AvroType, shape: Shape, path: str = "") -> Step:
        """Return the step that reads a writer's value as a reader's; it fails on each value if the reader cannot.

        An error in an array's items, for instance, so does not matter to arrays without any.
        """
        try:
            return self._fitting_step(writer, reader, shape, path)
        except SerializationError as error:
            return Step(FAIL, self._numbers[id(shape)], text=str(error))

    def _fitting_step(self, writer: AvroType, reader: AvroType, shape: Shape, path: str) -> Step:
        column = self._numbers[id(shape)]
        if writer.kind == "union":
            return self._union(writer, reader, shape, path)
        if reader.kind == "union":
            return self._in_union(writer, reader, shape, path)
        if not matches(reader, writer):
            raise SerializationError(f"{path or 'the schema'}: the reader's {reader} cannot read the writer's {writer}")
        if reader.kind == "record":
            return self._record(writer, reader, shape, path)
        if reader.kind == "array":
            return Step(ARRAY, column, [self.step(writer.items, reader.items, shape.children[0], f"{path}[]")])
        if reader.kind == "map":
            pair = shape.children[0]
            key = Step(TEXT, self._numbers[id(pair.children[0])], size=1)
            value = self.step(writer.items, reader.items, pair.children[1], f"{path}{{}}")
            return Step(MAP, column, [Step(RECORD, self._numbers[id(pair)], [key, value])])
        return self._leaf(writer, reader, column, path)

    def _leaf(self, writer: AvroType, reader: AvroType, column: int, path: str) -> Step:
        if is_decimal(reader):
            if (writer.scale, writer.logical) != (reader.scale, "decimal") or writer.precision > reader.precision:
                raise SerializationError(
                    f"{path}: the reader's {reader} has another scale than the writer's, or fewer digits"
                )
            return Step(DECIMAL, column, size=writer.size)
        if reader.kind == "enum":
            known = {symbol: number for number, symbol in enumerate(reader.symbols)}
            fallback = known.get(reader.default or "", -1)
            mapping = [known.get(symbol, fallback) for symbol in writer.symbols]
            text = f"{path}: the reader's {reader} lacks a symbol of the writer"
            return Step(ENUM, column, mapping=mapping, text=text)
        if reader.kind == "fixed":
            if reader.size != writer.size:
                raise SerializationError(f"{path}: the reader's size is {reader.size}, the writer's {writer.size}")
            return Step(RAW, column, size=reader.size)
        written, read = (_TIMES.get((of.kind, of.logical), ()) for of in (writer, reader))
        if written and read and written[:2] != read[:2]:
            raise SerializationError(f"{path}: the reader's {reader} has another unit than the writer's {writer}")
        kind = _PROMOTED.get((writer.kind, reader.kind), _KINDS[writer.kind])
        return Step(kind, column, size=int(reader.kind == "string"))

    def _record(self, writer: AvroType, reader: AvroType, shape: Shape, path: str) -> Step:
        shapes = dict(zip(shape.names, shape.children, strict=True))
        found = written_fields(reader, writer)
        fields = [field for field in reader.fields if field.name in shapes]
        targets = {found[field.name].name: field for field in fields if field.name in found}
        steps = []
        for written in writer.fields:
            wanted = targets.get(written.name)
            inner = inner_path(path, written.name)
            if wanted is None:
                steps.append(self.skip(written.type))
            else:
                steps.append(self.step(written.type, wanted.type, shapes[wanted.name], inner))
        for field in fields:
            if field.name in found:
                continue
            if not field.has_default:
                raise SerializationError(
                    f"{path}.{field.name}: the writer has no such field, and the reader's {field.type} no default"
                )
            made = self.step(field.type, field.type, shapes[field.name], field.name)
            steps.append(Step(DEFAULT, -1, [made], data=encoded(field.type, field.default)))
        return Step(RECORD, self._numbers[id(shape)], steps)

    def _union(self, writer: AvroType, reader: AvroType, shape: Shape, path: str) -> Step:
        column = self._numbers[id(shape)]
        steps = []
        for branch in writer.branches:
            if branch.kind == "null" and has_null(reader):
                steps.append(Step(NULL, column))
            else:
                steps.append(self.step(branch, reader, shape, path))
        return Step(UNION, column, steps)

    def _in_union(self, writer: AvroType, reader: AvroType, shape: Shape, path: str) -> Step:
        number = branch_for(reader, writer)
        if number < 0:
            raise SerializationError(f"{path or 'the schema'}: the reader's {reader} has no branch for {writer}")
        branch = reader.branches[number]
        if branch.kind == "null":
            return Step(NULL, self._numbers[id(shape)])
        values = values_of(reader)
        if len(values) == 1:
            return self.step(writer, branch, shape, path)
        # The column is a struct with one column for each branch, of which all but one are null.
        steps = [Step(NULL, self._numbers[id(child)]) for child in shape.children]
        place = values.index(branch)
        steps[place] = self.step(writer, branch, shape.children[place], path)
        return Step(TAGGED_UNION, self._numbers[id(shape)], steps)

    def skip(self, writer: AvroType) -> Step:
        """Return the step that skips a writer's value, whose type may be recursive."""
        known = self._skips.get(id(writer))
        if known is not None:
            return known
        made = self._skips[id(writer)] = Step(_KINDS[writer.kind], -1, size=writer.size)
        if writer.kind == "record":
            made.steps = [self.skip(field.type) for field in writer.fields]
        elif writer.kind == "union":
            made.steps = [self.skip(branch) for branch in writer.branches]
        elif writer.kind == "array":
            made.steps = [self.skip(writer.items)]
        elif writer.kind == "map":
            made.steps = [Step(RECORD, -1, [Step(TEXT, -1), self.skip(writer.items)])]
        elif writer.kind == "enum":
            made.mapping = [0] * len(writer.symbols)
        return made


def has_null(reader: AvroType) -> bool:
    """Return whether null is a value of a type."""
    return reader.kind == "null" or any(branch.kind == "null" for branch in reader.branches)


#: The steps for a value that the reader promotes. All others are those of the writer's kind.
_PROMOTED: Final = {
    ("int", "float"): LONG_TO_FLOAT,
    ("int", "double"): LONG_TO_FLOAT,
    ("long", "float"): LONG_TO_FLOAT,
    ("long", "double"): LONG_TO_FLOAT,
    ("float", "double"): FLOAT_TO_DOUBLE,
}
_KINDS: Final = {
    "null": NULL,
    "boolean": BOOLEAN,
    "int": LONG,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": TEXT,
    "string": TEXT,
    "fixed": RAW,
    "enum": ENUM,
    "record": RECORD,
    "array": ARRAY,
    "map": MAP,
    "union": UNION,
}


# --- defaults --------------------------------------------------------------------------------------------------------


def zigzag(number: int) -> bytes:
    """Return a number as Avro's int or long."""
    return encode_varint(number)


#: What encoding a wrong default raises, such as one that is too large, or a record that holds itself by default.
_NOT_OF_THE_TYPE: Final = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError),
    *(StopIteration, TypeError, ValueError, struct.error),
)


def encoded(of: AvroType, default: Any) -> bytes:
    """Encode a schema's JSON default in Avro.

    Raises:
        SerializationError: it is not of the type.
    """
    try:
        return _encoded(of, default)
    except _NOT_OF_THE_TYPE as error:
        raise SerializationError(f"the default {json.dumps(default)} is not of the type {of}") from error


def _encoded(of: AvroType, default: Any) -> bytes:
    if of.kind == "null":
        return b""
    if of.kind == "boolean":
        return b"\x01" if default else b"\x00"
    if of.kind in ("int", "long"):
        return zigzag(int(default))
    if of.kind in ("float", "double"):
        return struct.pack("<f" if of.kind == "float" else "<d", default)
    if of.kind in ("bytes", "string", "fixed"):
        data: bytes = default.encode("utf-8" if of.kind == "string" else "latin-1")
        return data if of.kind == "fixed" else zigzag(len(data)) + data
    if of.kind == "enum":
        return zigzag(of.symbols.index(default))
    if of.kind == "union":
        number = next(
            number for number, branch in enumerate(of.branches) if (branch.kind == "null") == (default is None)
        )
        return zigzag(number) + _encoded(of.branches[number], default)
    if of.kind in ("array", "map"):
        items = [_encoded(of.items, item) for item in (default.values() if of.kind == "map" else default or ())]
        if of.kind == "map":
            keys = [key.encode() for key in default]
            items = [zigzag(len(key)) + key + item for key, item in zip(keys, items, strict=True)]
        return (zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"
    return b"".join(_encoded(field.type, default.get(field.name, field.default)) for field in of.fields)
