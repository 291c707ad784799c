"""Arrow columns as Avro records, for ``send_batch``.

    producer.send_batch("orders", table, value=avro_encoder(registry, conf={"use.latest.version": True}))

Types are those that ``avro_columns`` makes, and all that Arrow can convert to them without a loss.
"""

from __future__ import annotations

import json
import re
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pykclient.errors import ConfigError, IllegalArgumentError, SerializationError
from pykclient.record.arrow import decoded
from pykclient.record.row_columns import BytesColumn
from pykclient.schema_registry.avro import AvroSerializer
from pykclient.schema_registry.avro_nodes import branch_name, encoded, has_null, is_decimal, shape_of, values_of, zigzag
from pykclient.schema_registry.avro_types import AvroType
from pykclient.schema_registry.avro_writing import (
    BIT,
    CONSTANT,
    DAMAGED,
    DECIMAL,
    FIXED,
    INTEGER,
    LIST,
    NULL,
    RECORD,
    REST,
    SEVERAL,
    TAGGED,
    TEXT,
    Part,
    UnfitError,
    encode,
)
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.rules import RuleError, rules_for
from pykclient.schema_registry.schemas import RuleMode, RulePhase, Schema, field_at, inner_path
from pykclient.schema_registry.serde import Plan, Registry
from pykclient.schema_registry.wire import SchemaId, header_schema_id_serializer
from pykclient.serialization import MessageField, SerializationContext

if TYPE_CHECKING:
    import pyarrow as pa

ToRow = Callable[[int], int]

UUID: Final = "arrow.uuid"
BOOL8: Final = "arrow.bool8"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMED_BY_CONF: Final = ("use.latest.version", "use.latest.with.metadata", "use.schema.id")


class MisfitError(Exception):
    """A column, or one of its values, does not fit. ``row`` is -1 for the whole column."""

    def __init__(self, text: str, row: int = -1, separator: str = ",") -> None:
        super().__init__(text)
        self.row, self.separator = row, separator


# --- parts -----------------------------------------------------------------------------------------------------------


def part_of(array: Any, of: AvroType, path: str = "", to_row: ToRow = int) -> Part:
    """Return how the values of an Arrow array are written as an Avro type.

    ``to_row`` maps an index of the array to the row that it is a part of.

    Raises:
        MisfitError: the array's type does not fit, or one of its values does not.
    """
    pa: Any = load("pyarrow", "arrow")
    if isinstance(array.type, pa.BaseExtensionType):
        array = _without_extension(pa, array, of)
    if of.kind == "union":
        part = _union(pa, array, of, path, to_row)
    elif pa.types.is_null(array.type):
        part = Part(CONSTANT, len(array))
        if of.kind != "null":
            part.validity = memoryview(bytes(len(array) + 8 >> 3))
    elif of.kind == "record":
        part = _record(pa, array, of, path, to_row)
    elif of.kind in ("array", "map"):
        part = _list(pa, array, of, path, to_row)
    else:
        part = _leaf(pa, array, of, path, to_row)
    if not part.where:
        part.where, part.source, part.target = field_at(path), str(array.type), str(of)
    return part


def _wrong_type(array: Any, of: AvroType, path: str, more: str = "") -> MisfitError:
    return MisfitError(f"{field_at(path)}: the column has {array.type}, and the schema {of}{more}")


def _without_extension(pa: Any, array: Any, of: AvroType) -> Any:
    wanted = [branch for branch in (of, *of.branches) if branch.kind == "string" and branch.logical == "uuid"]
    if wanted and array.type.extension_name == UUID:
        values = array.storage.to_pylist()
        return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in values], pa.string())
    return array.storage.cast(pa.bool_()) if array.type.extension_name == BOOL8 else array.storage


def _with_validity(part: Part, array: Any) -> Part:
    validity = array.buffers()[0]
    part.validity = None if validity is None or not array.null_count else memoryview(validity).cast("B")
    return part


def _view(buffer: Any) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _with_offsets(pa: Any, part: Part, array: Any) -> Part:
    buffer = array.buffers()[1]
    wide: Any = "q" if _is_any(pa, array.type, "large_list", "large_string", "large_binary") else "i"
    part.offsets = _view(buffer if buffer is not None and buffer.size else bytes(8)).cast(wide)
    return part


def _union(pa: Any, array: Any, of: AvroType, path: str, to_row: ToRow) -> Part:
    null = next((zigzag(number) for number, branch in enumerate(of.branches) if branch.kind == "null"), None)
    branches = [(number, branch) for number, branch in enumerate(of.branches) if branch.kind != "null"]
    if pa.types.is_null(array.type):
        part = Part(CONSTANT, len(array))
        part.validity = memoryview(bytes(len(array) + 8 >> 3))
    elif len(branches) > 1 and pa.types.is_struct(array.type) and _is_tagged(array.type, branches):
        part = _with_validity(Part(TAGGED, len(array), array.offset), array)
        children = []
        columns = _fields(array)
        for number, branch in branches:
            place = array.type.get_field_index(branch_name(branch))
            if place >= 0:
                child = part_of(columns[place], branch, f"{path}.{branch_name(branch)}", to_row)
                child.written = zigzag(number)
                children.append(child)
        part.children = children
    else:
        number, part = _branch(array, of, branches, path, to_row)
        part.written = zigzag(number)
    part.null = null
    if part.kind == TAGGED or not part.where:
        part.where, part.source, part.target = field_at(path), str(array.type), str(of)
    return part


def _fields(array: Any) -> list[Any]:
    """Return the columns of a struct; null where it is null, as values below need not fit."""
    if array.null_count:
        return list(array.flatten())
    return [array.field(place) for place in range(array.type.num_fields)]


def _is_tagged(type: Any, branches: Sequence[tuple[int, AvroType]]) -> bool:
    """Return whether a struct has a column for each branch of a union, as ``avro_columns`` makes them."""
    names = {branch_name(branch) for _, branch in branches}
    return type.num_fields > 0 and all(field.name in names for field in type)


def _branch(
    array: Any, of: AvroType, branches: Sequence[tuple[int, AvroType]], path: str, to_row: ToRow
) -> tuple[int, Part]:
    """Return the branch that an array's values are written as: first of all that of the array's own type."""
    kind = _kind(array.type)
    first: MisfitError | None = None
    for number, branch in sorted(branches, key=lambda each: each[1].kind != kind):
        try:
            return number, part_of(array, branch, path, to_row)
        except MisfitError as error:
            if len(branches) == 1 or error.row >= 0:
                first = first or error
    raise first or _wrong_type(array, of, path)


def _record(pa: Any, array: Any, of: AvroType, path: str, to_row: ToRow) -> Part:
    if not pa.types.is_struct(array.type):
        raise _wrong_type(array, of, path)
    names = [field.name for field in array.type]
    unknown = [name for name in names if name not in {field.name for field in of.fields} or names.count(name) > 1]
    if unknown:
        inner = inner_path(path, unknown[0])
        raise MisfitError(
            f"{field_at(inner)}: the schema's {of} has no such field, or the columns have it twice; name the columns "
            "to write (columns=[...])"
        )
    part = _with_validity(Part(RECORD, len(array), array.offset), array)
    columns = _fields(array)
    children = []
    for field in of.fields:
        inner = inner_path(path, field.name)
        if field.name in names:
            children.append(part_of(columns[names.index(field.name)], field.type, inner, to_row))
            continue
        child = Part(CONSTANT, len(array))
        if field.has_default:
            child.written = encoded(field.type, field.default)
        elif has_null(field.type):
            child.written = encoded(field.type, None)
        else:
            raise MisfitError(
                f"{field_at(inner)}: there is no such column, and the schema's {field.type} has no default"
            )
        children.append(child)
    part.children = children
    return part


def _list(pa: Any, array: Any, of: AvroType, path: str, to_row: ToRow) -> Part:
    given = array.type
    if pa.types.is_map(given):
        pair = pa.struct([("key", given.key_type), ("value", given.item_type)])
        array = array.cast(pa.list_(pair))
    elif not is_list(pa, given):
        raise _wrong_type(array, of, path)
    item = array.type.value_type
    is_pairs = pa.types.is_struct(item) and [field.name for field in item] == ["key", "value"]
    if not is_pairs if of.kind == "map" else pa.types.is_map(given):
        raise _wrong_type(array, of, path)
    part, values = _items(pa, array)
    part.where, part.source, part.target = field_at(path), str(given), str(of)
    offsets, first = part.offsets, part.first
    assert offsets is not None

    def row_of(index: int) -> int:
        return to_row(bisect_right(offsets, index, first, first + len(array)) - 1 - first)

    if of.kind == "array":
        part.children = [part_of(values, of.items, f"{path}[]", row_of)]
        return part
    entry = Part(RECORD, len(values))
    entry.children = [
        part_of(values.field(0), _STRING, f"{path}{{key}}", row_of),
        part_of(values.field(1), of.items, f"{path}{{}}", row_of),
    ]
    part.children = [entry]
    return part


def _items(pa: Any, array: Any) -> tuple[Part, Any]:
    """Return a list array's part and its values, all of which belong to rows.

    Others need not fit, and would be converted, too.
    """
    import pyarrow.compute as pc

    if not len(array):
        part = Part(LIST)
        part.offsets = memoryview(bytes(8)).cast("q")
        return part, pa.nulls(0, array.type.value_type)
    if not array.null_count and (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        ends = array.offsets
        if ends[0].as_py() == 0 and ends[-1].as_py() == len(array.values):
            return _with_offsets(pa, Part(LIST, len(array), array.offset), array), array.values
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    part = Part(LIST, len(array))
    part.offsets = _view(offsets.buffers()[1]).cast("q")
    if array.null_count:
        part.validity = _view(array.is_valid().buffers()[1])
    return part, array.flatten()


def _is_any(pa: Any, type: Any, *names: str) -> bool:
    """Return whether an Arrow type is of one of these kinds."""
    return any(getattr(pa.types, f"is_{name}")(type) for name in names)


def is_list(pa: Any, type: Any) -> bool:
    """Return whether an Arrow type is a list of any layout."""
    return _is_any(pa, type, "list", "large_list", "fixed_size_list", "list_view", "large_list_view")


_STRING: Final = AvroType("string")


def _leaf(pa: Any, array: Any, of: AvroType, path: str, to_row: ToRow) -> Part:
    kinds = pa.types
    array = decoded(array) if of.kind != "enum" else array
    if of.kind == "enum":
        array = _codes(pa, array, of, path, to_row)
    elif not _fits(pa, array.type, of):
        raise _wrong_type(array, of, path, _advice(pa, array.type, of))
    else:
        array = _cast(pa, array, _wanted(pa, array.type, of), of, path, to_row)
    first, length = array.offset, len(array)
    if of.kind == "boolean":
        part = Part(BIT, length, first)
    elif is_decimal(of):
        part = Part(DECIMAL, length, first, of.size)
    elif of.kind in ("bytes", "string"):
        part = _with_offsets(pa, Part(TEXT, length, first), array)
    elif of.kind == "null":
        raise _wrong_type(array, of, path)
    else:
        kind = INTEGER if of.kind in ("int", "long", "enum") else FIXED
        part = Part(kind, length, first, array.type.byte_width)
    part.data = _view(array.buffers()[2 if kinds.is_binary(array.type) or part.kind == TEXT else 1])
    return _with_validity(part, array)


def _kind(type: Any) -> str:
    """Return the kind of Avro type that is closest to an Arrow type."""
    try:
        found = derived_type(type, "", "")
    except SerializationError:
        return ""
    while isinstance(found, dict):
        found = found["type"]
    return str(found)


def is_text(pa: Any, type: Any) -> bool:
    """Return whether an Arrow type is a string of any layout."""
    return _is_any(pa, type, "string", "large_string", "string_view")


def is_bytes(pa: Any, type: Any) -> bool:
    """Return whether an Arrow type is binary of any layout."""
    return _is_any(pa, type, "binary", "large_binary", "binary_view", "fixed_size_binary")


def _fits(pa: Any, type: Any, of: AvroType) -> bool:
    """Return whether values of an Arrow type may be written as an Avro type that is not nested."""
    kinds = pa.types
    if of.kind == "boolean":
        return bool(kinds.is_boolean(type))
    if is_decimal(of):
        return bool(kinds.is_decimal(type))
    if of.kind in ("bytes", "fixed"):
        return is_bytes(pa, type)
    if of.kind == "string":
        return is_text(pa, type)
    if of.kind in ("float", "double"):
        return bool(kinds.is_integer(type) or kinds.is_floating(type)) and not (
            of.kind == "float" and kinds.is_float64(type)
        )
    if of.kind not in ("int", "long"):
        return False
    if kinds.is_integer(type):
        return True
    of_time = shape_of(of).arrow[0]
    if kinds.is_timestamp(type):
        return of_time == "timestamp" and (type.tz is None) == (len(shape_of(of).arrow) == 2)
    return of_time in ("date32", "time32", "time64") and bool(
        kinds.is_date(type) if of_time == "date32" else kinds.is_time(type)
    )


def _advice(pa: Any, type: Any, of: AvroType) -> str:
    if pa.types.is_timestamp(type) and of.kind == "long" and (of.logical or "").endswith(("millis", "micros", "nanos")):
        return ": one has a time zone, and the other has none"
    return ": cast the column"


def _wanted(pa: Any, type: Any, of: AvroType) -> Any:
    """Return the Arrow type whose buffers are written."""
    kinds = pa.types
    if of.kind in ("bytes", "string") and not is_decimal(of):
        if _is_any(pa, type, "string", "large_string", "binary", "large_binary"):
            return type
        return pa.large_string() if of.kind == "string" else pa.large_binary()
    if of.kind in ("int", "long") and kinds.is_integer(type):
        return pa.int32() if of.kind == "int" else pa.int64()
    name, *parameters = shape_of(of).arrow
    if name == "timestamp":
        return pa.timestamp(parameters[0], type.tz)
    return getattr(pa, name)(*parameters)


def _cast(pa: Any, array: Any, wanted: Any, of: AvroType, path: str, to_row: ToRow) -> Any:
    def converted(rows: Any) -> Any:
        if is_text(pa, wanted):
            rows.validate(full=True)  # Arrow takes all bytes for text, and readers of Avro only UTF-8
        if rows.type == wanted:
            return rows
        if pa.types.is_fixed_size_binary(wanted) and not pa.types.is_fixed_size_binary(rows.type):
            return pa.array(rows.to_pylist(), wanted)
        return rows.cast(wanted)

    try:
        return converted(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    # Arrow's message has the value, but not its row.
    low, high = 0, len(array)
    while low < high:
        middle = (low + high) // 2
        try:
            converted(array.slice(0, middle))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
        else:
            low = middle + 1
    if not high:
        raise _wrong_type(array, of, path)
    raise MisfitError(
        f"{field_at(path)}: a value of the column's {array.type} does not fit the schema's {of}", to_row(high - 1)
    )


def _codes(pa: Any, array: Any, of: AvroType, path: str, to_row: ToRow) -> Any:
    """Return the number of each value among an enum's symbols."""
    import pyarrow.compute as pc

    given = array.type
    if not pa.types.is_dictionary(array.type):
        if not is_text(pa, array.type):
            raise _wrong_type(array, of, path)
        array = array.cast(pa.large_string()).dictionary_encode()
    if not is_text(pa, array.type.value_type):
        raise _wrong_type(array, of, path)
    known = {symbol: number for number, symbol in enumerate(of.symbols)}
    symbols = array.dictionary.to_pylist()
    numbers = pa.array([None if each is None else known.get(each, -1) for each in symbols], pa.int32())
    codes = numbers.take(array.indices)
    unknown = pc.index(codes, pa.scalar(-1, pa.int32())).as_py()
    if unknown >= 0:
        raise MisfitError(
            f"{field_at(path)}: a value of the column's {given} is no symbol of the schema's {of}", to_row(unknown)
        )
    return codes


# --- schemas of tables -----------------------------------------------------------------------------------------------


class _Deriving:
    """Derives one schema, in which the names of types are unique."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def type(self, type: Any, name: str, path: str) -> Any:
        pa: Any = load("pyarrow", "arrow")
        kinds = pa.types
        if isinstance(type, pa.BaseExtensionType):
            if type.extension_name == UUID:
                return _logical("string", "uuid")
            return self.type(pa.bool_() if type.extension_name == BOOL8 else type.storage_type, name, path)
        if kinds.is_dictionary(type):
            return self.type(type.value_type, name, path)
        if kinds.is_struct(type):
            return self._record(type, name, path)
        if kinds.is_map(type) and is_text(pa, type.key_type):
            return {"type": "map", "values": self._item(type.item_field, name, f"{path}{{}}")}
        if is_list(pa, type):
            return {"type": "array", "items": self._item(type.value_field, name, f"{path}[]")}
        if kinds.is_fixed_size_binary(type):
            return {"type": "fixed", "name": self._unique(name), "size": type.byte_width}
        found = _derived_leaf(pa, type)
        if found is None:
            raise SerializationError(f"column {path!r} is of type {type}, and Avro has none for it")
        return found

    def _record(self, type: Any, name: str, path: str) -> Any:
        name = self._unique(name)
        fields = []
        for field in type:
            inner = inner_path(path, field.name)
            if not _NAME.fullmatch(field.name):
                raise SerializationError(
                    f"column {inner!r}: a field of Avro has only letters, digits and _ in its name"
                )
            of = self.type(field.type, f"{name}_{field.name}", inner)
            is_optional = field.nullable and of != "null"
            more = {"default": None} if is_optional else {}
            fields.append({"name": field.name, "type": ["null", of] if is_optional else of, **more})
        return {"type": "record", "name": name, "fields": fields}

    def _item(self, field: Any, name: str, path: str) -> Any:
        of = self.type(field.type, name, path)
        return ["null", of] if field.nullable and of != "null" else of

    def _unique(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def derived_type(type: pa.DataType, name: str, path: str = "") -> Any:
    """Return the Avro type, as JSON, for an Arrow type. ``name`` is that of a record or a fixed type.

    Raises:
        SerializationError: a field has a type or a name that Avro does not have.
    """
    return _Deriving().type(type, name, path)


def _derived_leaf(pa: Any, type: Any) -> Any:
    kinds = pa.types
    if kinds.is_decimal(type):
        if type.precision > 38 or not 0 <= type.scale <= type.precision:
            return None
        return {**_logical("bytes", "decimal"), "precision": type.precision, "scale": type.scale}
    if kinds.is_timestamp(type):
        unit = {"us": "micros", "ns": "nanos"}.get(type.unit, "millis")
        return _logical("long", f"timestamp-{unit}" if type.tz else f"local-timestamp-{unit}")
    if kinds.is_integer(type):
        return "int" if type.bit_width < 32 or type == pa.int32() else "long"
    for has_type, of in (
        (kinds.is_null, "null"),
        (kinds.is_boolean, "boolean"),
        (kinds.is_float64, "double"),
        (kinds.is_floating, "float"),
        (kinds.is_date, _logical("int", "date")),
        (kinds.is_time32, _logical("int", "time-millis")),
        (kinds.is_time64, _logical("long", "time-micros")),
    ):
        if has_type(type):
            return of
    if is_text(pa, type):
        return "string"
    return "bytes" if is_bytes(pa, type) else None


def _logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


# --- the encoder -----------------------------------------------------------------------------------------------------

_REASONS: Final = {
    NULL: "is null, which the schema's {target} is not; the column has {source}",
    SEVERAL: "has several values for the schema's {target}; the column has {source}",
    DAMAGED: "lies outside of the data of the column's {source}, for the schema's {target}",
}
_TOO_LARGE: Final = "is too large for the schema's {target}; the column has {source}"


class RowEncoder:
    """Encodes rows for ``send_batch(value=...)`` and ``send_batch(key=...)``. Thread: any."""

    def __init__(self, columns: str | Iterable[str] | None, conf: Mapping[str, Any] | None) -> None:
        """Check the columns to encode, and that the settings do not put the schema's id into a header.

        Raises:
            ConfigError: they do.
            IllegalArgumentError: there are no columns.
        """
        load("pyarrow", "arrow")
        self._conf = dict(conf or {})
        if self._conf.get("schema.id.serializer") is header_schema_id_serializer:
            raise ConfigError(
                "schema.id.serializer: columns have the schema's id before the data; a header is only for send()",
                key="schema.id.serializer",
            )
        if columns is not None and not (columns := columns if isinstance(columns, str) else list(columns)):
            raise IllegalArgumentError("columns: name at least one column")
        self._columns = columns

    def _serializer(self, ctx: SerializationContext) -> Any:
        """Return the serializer for a topic and field; None if the columns must be known first."""
        raise NotImplementedError

    def _deriving(self, array: Any, path: str) -> Any:
        """Return a serializer by the schema of a column."""
        raise NotImplementedError

    def _fields(self, serializer: Any, plan: Plan) -> set[str] | None:
        """Return the names of the schema's fields; None if it is no record."""
        raise NotImplementedError

    def _encoded(
        self, serializer: Any, plan: Plan, ctx: SerializationContext, array: Any, path: str, where: str
    ) -> BytesColumn:
        """Return the encoded rows of a column. Raises MisfitError if its type, or one of its values, does not fit."""
        raise NotImplementedError

    def encode_rows(
        self, batch: pa.RecordBatch, topic: str, part: str, others: frozenset[str], first_row: int = 0
    ) -> BytesColumn:
        """Return the encoded rows of a batch. A row of a single column that is null has no bytes: a tombstone.

        ``part`` is ``key`` or ``value``; ``others`` are columns for other arguments; ``first_row`` is the number of the
        first row in messages.

        Raises:
            IllegalArgumentError: a column is missing.
            RuleError: the schema has rules for writing, which are not executed for columns of Avro.
            SchemaRegistryError: the schema is not registered, or the registry does not answer.
            SerializationError: a column or a value does not fit, or a rule refuses it; the error names column, row,
                field and both types.
        """
        ctx, serializer, plan, array, path = self._chosen(batch, topic, part, others)
        where = f"the {part} cannot be encoded with schema {plan.schema_id} for topic {topic!r}"
        try:
            return self._encoded(serializer, plan, ctx, array, path, where)
        except MisfitError as error:
            row = f"row {first_row + error.row}{error.separator} " if error.row >= 0 else ""
            raise SerializationError(f"{where}: {row}{error}") from error.__cause__

    def resolve(self, schema: pa.Schema, topic: str, part: str) -> SchemaId:
        """Return the id of the schema for columns, after checking that their types fit.

        Raises:
            Exception: those of ``encode_rows``.
        """
        pa: Any = load("pyarrow", "arrow")
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        self.encode_rows(empty, topic, part, frozenset())
        _, _, plan, _, _ = self._chosen(empty, topic, part, frozenset())
        assert plan.schema_id is not None
        return plan.schema_id

    def _chosen(
        self, batch: Any, topic: str, part: str, others: frozenset[str]
    ) -> tuple[SerializationContext, Any, Plan, Any, str]:
        """Return the context, the serializer and its plan, and the column to encode with its name.

        All columns of a record are one column without a name.
        """
        pa: Any = load("pyarrow", "arrow")
        ctx = SerializationContext(topic, MessageField.KEY if part == "key" else MessageField.VALUE)
        serializer = self._serializer(ctx)
        plan: Plan | None = None if serializer is None else serializer.plan(ctx)
        fields = None if plan is None else self._fields(serializer, plan)
        names = batch.schema.names
        wanted = [self._columns] if isinstance(self._columns, str) else self._columns
        if wanted is None:
            wanted = [name for name in names if name not in others or (fields is not None and name in fields)]
        for name in wanted:
            if names.count(name) != 1:
                there = "several columns" if name in names else "no column"
                raise IllegalArgumentError(f"data has {there} {name!r}; it has {', '.join(names)}")
        if not wanted:
            raise IllegalArgumentError("data has no columns to encode")
        arrays = [batch.column(name) for name in wanted]
        array, path = arrays[0], wanted[0]
        if not isinstance(self._columns, str):
            chosen = [batch.schema.field(name) for name in wanted]
            array, path = pa.StructArray.from_arrays(arrays, fields=chosen), ""
        if plan is None:
            serializer = self._deriving(array, path)
            plan = serializer.plan(ctx)
        return ctx, serializer, plan, array, path


class AvroEncoder(RowEncoder):
    """Encodes rows as Avro. Thread: any."""

    def __init__(
        self,
        registry: Registry,
        schema: str | Schema | None,
        columns: str | Iterable[str] | None,
        conf: Mapping[str, Any] | None,
        record_name: str,
    ) -> None:
        """See ``avro_encoder``."""
        super().__init__(columns, conf)
        self._registry = registry
        self._record_name = record_name
        given = schema is not None or any(self._conf.get(name) for name in _NAMED_BY_CONF)
        made = AvroSerializer(registry, schema if given else "null", conf=self._conf)  # checks the settings
        #: None: the schema is derived from the columns.
        self._given = made if given else None
        #: The schema that was derived last, and its serializer.
        self._derived: tuple[Any, AvroSerializer] | None = None

    def _serializer(self, ctx: SerializationContext) -> AvroSerializer | None:  # noqa: ARG002
        return self._given

    def _fields(self, serializer: Any, plan: Plan) -> set[str]:  # noqa: ARG002
        branches = values_of(plan.codec.tree)
        record = branches[0] if len(branches) == 1 else plan.codec.tree
        return {field.name for field in record.fields}

    def _encoded(
        self, serializer: Any, plan: Plan, ctx: SerializationContext, array: Any, path: str, where: str
    ) -> BytesColumn:
        _ensure_no_rules(plan, where)
        root = part_of(array, plan.codec.tree, path)
        if plan.codec.is_bytes and root.kind == TEXT:  # as in Java, without Avro's length
            root.kind = REST
        try:
            data, offsets = encode(root, len(array), serializer.framed(plan, b"", ctx))
        except UnfitError as error:
            found = error.part
            reason = _REASONS.get(error.reason, _TOO_LARGE).format(target=found.target, source=found.source)
            raise MisfitError(f"{found.where} {reason}", error.row) from None
        return BytesColumn(len(array), memoryview(offsets), data, root.validity, root.first)

    def _deriving(self, array: Any, path: str) -> AvroSerializer:
        held = self._derived
        if held is None or held[0] != array.type:
            found = derived_type(array.type, self._record_name, path)
            serializer = AvroSerializer(self._registry, json.dumps(found), conf=self._conf)
            held = self._derived = (array.type, serializer)
        return held[1]


def _ensure_no_rules(plan: Plan, where: str) -> None:
    for phase, schema in ((RulePhase.DOMAIN, plan.reader), (RulePhase.ENCODING, plan.writer)):
        if rules := rules_for(phase, RuleMode.WRITE, None, schema):
            raise RuleError(
                f"{where}: it has the rule {rules[0].name!r} of type {rules[0].type}, and rules are not executed for "
                "columns: write these records with send() and AvroSerializer"
            )


def avro_encoder(
    registry: Registry,
    schema: str | Schema | None = None,
    columns: str | Iterable[str] | None = None,
    conf: Mapping[str, Any] | None = None,
    record_name: str = "Record",
) -> AvroEncoder:
    """Return an encoder for ``send_batch(value=...)`` and ``send_batch(key=...)``.

    Args:
        schema: the schema to write with. Without one, ``conf`` says which to use (``use.latest.version``,
            ``use.latest.with.metadata``, ``use.schema.id``); otherwise it is derived from the columns' types.
        columns: the name of one column, a struct or of any other type, whose values are written; or the names of the
            columns that are the record's fields. By default these are all columns that no other argument names.
        conf: the settings of ``AvroSerializer``. As there, the schema is looked up in the registry, and registered only
            with ``auto.register.schemas``.
        record_name: the name of the record in a derived schema.

    A column that the schema lacks is an error; a field without a column gets its default.

    Raises:
        ConfigError: a setting is unknown, of the wrong type, or puts the schema's id into headers.
        IllegalArgumentError: ``columns`` is empty.
        ImportError: pyarrow or fastavro is not installed.
    """
    return AvroEncoder(registry, schema, columns, conf, record_name)
