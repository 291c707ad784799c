"""Records by a registry's schemas as Arrow columns, and those of Avro decoded without an object per record.

    batch = consumer.poll_arrow(1000, value=avro_columns(registry))
    batch.column("value")      # a struct with a column for each field

Fields of Avro have Arrow's types: times, dates, decimals, dictionaries for enums, lists, maps and structs. A union of
one type and null is a nullable column; one of several types a struct with a column for each type.
"""

from __future__ import annotations

import asyncio
import functools
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from pykclient.errors import IllegalArgumentError, IllegalStateError, RecordDeserializationError, SerializationError
from pykclient.schema_registry.avro_decoder import Column, Decoder, Rows
from pykclient.schema_registry.avro_nodes import BITS, BYTES, FIXED, LIST, Compiler, Shape, Step, shape_of, zigzag
from pykclient.schema_registry.avro_types import AvroType, damage, loaded, named_schemas, parse_avro
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.rules import RuleError, rules_for
from pykclient.schema_registry.schema_registry_client import AsyncSchemaRegistryClient, SchemaRegistryClient
from pykclient.schema_registry.schemas import RuleMode, RulePhase, Schema, SchemaRegistryError
from pykclient.schema_registry.wire import KEY_SCHEMA_ID, VALUE_SCHEMA_ID, SchemaId
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_ON_ERROR: Final = ("raise", "keep")
#: The most bytes before a value: an id, and Protobuf's indexes.
_LONGEST_PREFIX: Final = 1 << 14
#: The size of an id of Apicurio, which begins with five bytes of zero: all of a shorter record may be that.
_APICURIO_SIZE: Final = 9
#: A schema in the form that a format works with, and the columns that records are read into.
_Writer = TypeVar("_Writer")
_Columns = TypeVar("_Columns")


class Poison(NamedTuple):
    """A row that could not be decoded: its number in the array, and why."""

    row: int
    reason: str


class Decoded(NamedTuple):
    """The rows of an array as a column, and those that could not be decoded, which are null in it."""

    array: Any
    poison: list[Poison]


def _ensure_no_rules(schema: Schema, name: str, deserializer: str) -> None:
    """Raise RuleError if a schema has rules for reading: they work on single records, and must not be left out."""
    rules = [
        rule
        for phase in (RulePhase.ENCODING, RulePhase.DOMAIN, RulePhase.MIGRATION)
        for mode in (RuleMode.READ, RuleMode.UPGRADE, RuleMode.DOWNGRADE)
        for rule in rules_for(phase, mode, schema, schema)
    ]
    if rules:
        raise RuleError(
            f"schema {name} has the rule {rules[0].name!r} of type {rules[0].type}, and rules are not executed for "
            f"columns: read these records with poll() and {deserializer}"
        )


def rows_of(array: pa.Array) -> Rows:
    """Return the rows of an Arrow array of bytes or texts."""
    pa: Any = load("pyarrow", "arrow")
    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.binary())
    size, first = len(array), array.offset
    validity, *buffers = [None if buffer is None else memoryview(buffer).cast("B") for buffer in array.buffers()]
    bits = None if validity is None or not array.null_count else validity
    places = buffers.pop(0) if size else memoryview(b"")
    assert places is not None
    data = [memoryview(b"") if buffer is None else buffer for buffer in buffers]
    if pa.types.is_binary_view(array.type) or pa.types.is_string_view(array.type):
        return Rows(size, bits, first, None, places[16 * first : 16 * (first + size)], data)
    return Rows(size, bits, first, places.cast("i")[first : first + size + 1], None, data)


class RowReader(Protocol):
    """Reads rows into a column."""

    def read(self, prefix: bytes, rows: Rows, row: int) -> tuple[int, str | None]:
        """Read the rows from ``row`` on that are null or begin with ``prefix``.

        Returns:
            the next row that was not read, and why not if it begins with the prefix. Nothing of it is in the column.
        """

    def add_null(self) -> None:
        """Add null."""

    def array(self) -> Any:
        """Return the column."""


def ensure_fields(fields: frozenset[str] | None, known: Iterable[str]) -> None:
    """Raise IllegalArgumentError if one of the fields to decode, if any are named, is not ``known``."""
    if fields is not None and (unknown := fields.difference(known)):
        raise IllegalArgumentError(f"columns: the schema has no field {', '.join(sorted(unknown))}")


class _Target:
    """The columns that records are read into, whatever schema they were written with."""

    def __init__(self, reader: AvroType, fields: frozenset[str] | None) -> None:
        self.reader = reader
        ensure_fields(fields, (field.name for field in reader.fields))
        self.shape = shape_of(reader, fields)
        self.numbers: dict[int, int] = {}
        self._shapes: list[Shape] = []
        self._number(self.shape)
        self.steps: dict[bytes, Step] = {}

    def _number(self, shape: Shape) -> None:
        self.numbers[id(shape)] = len(self._shapes)
        self._shapes.append(shape)
        for child in shape.children:
            self._number(child)

    def step(self, prefix: bytes, writer: AvroType) -> Step:
        """Return the step that reads the records of a writer, which have a prefix."""
        found = self.steps.get(prefix)
        if found is None:
            found = self.steps[prefix] = Compiler(self.numbers).step(writer, self.reader, self.shape)
        return found

    def new_columns(self) -> list[Column]:
        """Return empty columns, by number."""
        made: dict[int, Column] = {}
        for shape in reversed(self._shapes):
            children = [made[self.numbers[id(child)]] for child in shape.children]
            made[self.numbers[id(shape)]] = Column(shape.form, shape.width, children)
        return [made[number] for number in range(len(self._shapes))]


class RegistryColumns(Generic[_Writer, _Columns]):
    """Decodes columns of bytes into columns of fields. Thread: one at a time.

    A format says how it parses a schema, which columns that makes, and how it reads rows.
    """

    #: True: columns of views are decoded as well, which need no copies of the bytes.
    reads_views: ClassVar[bool] = True
    schema_type: ClassVar[str]
    #: The name of the format in messages, and that of its deserializer.
    _names: ClassVar[tuple[str, str]]
    #: The format of a schema's text that the registry is asked for.
    _fmt: ClassVar[str | None] = None

    def __init__(
        self,
        registry: SchemaRegistryClient | AsyncSchemaRegistryClient,
        schema: str | Schema | None = None,
        columns: Iterable[str] | None = None,
        on_error: str = "raise",
    ) -> None:
        if on_error not in _ON_ERROR:
            raise IllegalArgumentError(f"on_error must be one of {', '.join(_ON_ERROR)}, not {on_error!r}")
        load("pyarrow", "arrow")
        self.on_error = on_error
        self._registry = registry.blocking if isinstance(registry, AsyncSchemaRegistryClient) else registry
        #: None: a client that may block.
        self._asynchronous = registry if isinstance(registry, AsyncSchemaRegistryClient) else None
        self._fields = None if columns is None else frozenset(columns)
        if self._fields is not None and not self._fields:
            raise IllegalArgumentError("columns: name at least one field")
        self._given = Schema(schema, self.schema_type) if isinstance(schema, str) else schema
        #: What to do about a row that cannot be decoded, for errors.
        self.advice = "Seek to offset {next} to skip it, or decode with on_error='keep'"
        self._target: _Columns | None = None
        #: The newest schema that records were written with, which is read by if none is given.
        self._newest = -1
        self._writers: dict[bytes, tuple[SchemaId, _Writer]] = {}
        #: By column, prefixes of the rows that ``unloaded`` was last asked about, which have no schema of this format.
        self._unknown: dict[str, set[bytes]] = {}

    # Hooks for each format.

    def _parsed(self, schema: Schema, schema_id: SchemaId | None) -> _Writer | None:
        """Return a schema in the form that the format works with; None if it has not what a record's id refers to."""
        raise NotImplementedError

    def _new_target(self, schema: _Writer) -> _Columns:
        """Return the columns that a schema's records are read into."""
        raise NotImplementedError

    def _type(self, target: _Columns) -> Any:
        """Return the Arrow type of columns."""
        raise NotImplementedError

    def _reader(self, target: _Columns) -> RowReader:
        """Return what reads the rows of one array."""
        raise NotImplementedError

    def _prefix_size(self, row: memoryview) -> int:
        """Return the size of what is before a row's value, if the row begins as one with an id."""
        magic = row[0] if row else -1
        return 17 if magic == 1 else _APICURIO_SIZE if magic == 0 and not any(row[1:5]) else 5

    # The steps.

    def into(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Return a batch of ``poll_arrow`` with the column ``name`` decoded.

        If the batch has the column ``headers``, ids in headers are read as well.

        Raises:
            RecordDeserializationError: a row cannot be decoded, and ``on_error`` is ``raise``.
            RuleError: a schema has rules for reading, which are not executed for columns.
            SchemaRegistryError: the registry does not answer.
        """
        pa: Any = load("pyarrow", "arrow")
        place = batch.schema.get_field_index(name)
        raw = batch.column(place)
        framed, poison = self._with_ids(batch, name, raw)
        array, more = self.decode(framed)
        self._unknown.pop(name, None)
        poison = sorted(poison + more)
        if poison and self.on_error == "raise":
            raise self._error(batch, name, poison)
        batch = batch.set_column(place, name, array)
        if self.on_error == "keep":
            reasons: dict[int, str] = dict(poison)
            rows = range(batch.num_rows)
            texts = pa.nulls(len(rows), pa.string())
            kept = pa.nulls(len(rows), pa.binary())
            if reasons:
                texts = pa.array([reasons.get(row) for row in rows], pa.string())
                kept = pa.array([raw[row].as_py() if row in reasons else None for row in rows], pa.binary())
            batch = batch.append_column(f"{name}_error", texts).append_column(f"{name}_bytes", kept)
        return batch

    def arrow_type(self) -> pa.DataType:
        """Return the type of the column.

        Raises:
            IllegalArgumentError: no schema is given, or it lacks one of the fields.
            RuleError: the schema has rules for reading, which are not executed for columns.
            SchemaRegistryError: the registry does not answer, or does not know a schema that this one refers to.
            SerializationError: it is no schema of the format, or has a type that contains itself.
        """
        target = self._choose(())
        if target is None:
            raise IllegalArgumentError("the type of the column is not known before the first record, without a schema")
        return self._type(target)

    def decode(self, array: pa.Array) -> Decoded:
        """Return the column of an array of bytes.

        Raises:
            SchemaRegistryError: the registry does not know a schema's id, or does not answer; whatever ``on_error``
                says, unless it does not know the id.
            SerializationError: a schema is not valid, or has a type that contains itself.
        """
        rows = rows_of(array)
        # Nearly always all rows have the schema of earlier ones, and it takes no pass over them to know that.
        found = None if self._target is None else self._decoded(rows, self._prefixes(rows, 1))
        found = found or self._decoded(rows, self._prefixes(rows))
        assert found is not None
        return found

    def _decoded(self, rows: Rows, prefixes: dict[bytes, None]) -> Decoded | None:
        """Return the column of rows; None if one has a newer schema than ``prefixes``, and its columns are wanted."""
        target = self._choose(prefixes)
        if target is None:
            poison = [Poison(row, self._reason(rows, row)) for row in range(rows.size) if not rows.is_null(row)]
            return Decoded(load("pyarrow", "arrow").nulls(rows.size), poison)
        poison = []
        reader = self._reader(target)
        row = 0
        any_prefix = next(iter(prefixes), None)
        while row < rows.size:
            prefix = self._prefix_at(rows, row)
            if prefix is None:  # a null, which is read with any prefix
                prefix = any_prefix
            elif self._is_known(prefix) and self._given is None and self._number(prefix) > self._newest:
                return None
            if prefix is None or prefix not in self._writers:
                if not rows.is_null(row):
                    poison.append(Poison(row, self._reason(rows, row)))
                reader.add_null()
                row += 1
                continue
            row, reason = reader.read(prefix, rows, row)
            if reason is not None:
                poison.append(Poison(row, f"schema {self._writers[prefix][0]}: {reason}"))
                reader.add_null()
                row += 1
        return Decoded(reader.array(), poison)

    def _with_ids(self, batch: pa.RecordBatch, name: str, raw: pa.Array) -> tuple[pa.Array, list[Poison]]:
        """Return the values with the ids of their headers before them, and the rows whose header has none, as null."""
        place = batch.schema.get_field_index("headers")
        header = {"key": KEY_SCHEMA_ID, "value": VALUE_SCHEMA_ID}.get(name)
        if place < 0 or header is None:
            return raw, []
        pa: Any = load("pyarrow", "arrow")
        pc: Any = load("pyarrow.compute", "arrow")
        headers = batch.column(place)
        is_id = pc.equal(headers.flatten().field(0), header)
        if not pc.any(is_id).as_py():
            return raw, []
        owners = pc.list_parent_indices(headers).filter(is_id)
        ids = headers.flatten().field(1).filter(is_id).dictionary_encode("encode")
        prefixes: list[bytes | None] = []
        reasons: dict[int, str] = {}
        for number, data in enumerate(ids.dictionary.to_pylist()):
            schema_id = SchemaId(self.schema_type)
            try:
                prefixes.append(data[: schema_id.read(data)] if data is not None else b"")
            except SerializationError as error:
                prefixes.append(None)
                reasons[number] = str(error)
        rows = pa.array(range(batch.num_rows), owners.type)
        numbers = ids.indices.take(pc.index_in(rows, value_set=owners))  # of each row's first id
        found = pa.array(prefixes, pa.binary()).take(numbers)
        # Rows without a header have no number, and rows whose header has no id a number.
        before = pc.if_else(pc.is_null(numbers), pa.scalar(b"", pa.binary()), found)
        framed = pc.binary_join_element_wise(before, raw.cast(pa.binary()), pa.scalar(b"", pa.binary()))
        return framed, [
            Poison(row, reasons[number])
            for row, number in enumerate(numbers.to_pylist() if reasons else ())
            if number in reasons and raw[row].is_valid
        ]

    def _prefix_at(self, rows: Rows, row: int) -> bytes | None:
        """Return the bytes before a row's value; those of the row if they are no prefix; None for null."""
        if rows.is_null(row):
            return None
        found = rows.value(row)
        return bytes(found[: self._prefix_size(found)])

    def _prefixes(self, rows: Rows, most: int | None = None) -> dict[bytes, None]:
        """Return the prefixes of rows, at most the first ``most``, and ask the registry for those that are new."""
        found: dict[bytes, None] = {}
        for prefix in self._ids(rows):
            if self._is_known(prefix):
                found[prefix] = None
                if len(found) == most:
                    break
        return found

    def _ids(self, rows: Rows) -> Iterator[bytes]:
        """Yield the prefixes of rows that are ids; that of several rows in succession once."""
        row = 0
        while row < rows.size:
            prefix = self._prefix_at(rows, row)
            if prefix is None or (prefix not in self._writers and self._id_of(prefix) is None):
                row += 1  # rows behind it may begin with its bytes
                continue
            yield prefix
            is_start_of_others = len(prefix) < _APICURIO_SIZE and not any(prefix[:5])
            row = row + 1 if is_start_of_others else rows.next_other(row, prefix)

    def _is_known(self, prefix: bytes) -> bool:
        """Return whether the prefix has the id of a schema of this format; ask the registry if it is new."""
        if prefix in self._writers:
            return True
        if self._is_unknown(prefix):
            return False
        if (schema_id := self._id_of(prefix)) is None:
            return False
        if self._asynchronous is not None:
            raise IllegalStateError(
                f"schema {schema_id} is not loaded: give the decoder to getmany_arrow() or poll_arrow() of an asyncio "
                "consumer, or a SchemaRegistryClient to the decoder"
            )
        writer = self._look_up(schema_id)
        if writer is None:
            return False
        self._writers[prefix] = (schema_id, writer)
        return True

    def _is_unknown(self, prefix: bytes) -> bool:
        return any(prefix in prefixes for prefixes in self._unknown.values())

    def _id_of(self, prefix: bytes) -> SchemaId | None:
        """Return the id that a prefix is; None if it is none of this registry's."""
        schema_id = SchemaId(self.schema_type)
        try:
            return schema_id if schema_id.read(prefix) == len(prefix) and not schema_id.is_glue else None
        except SerializationError:
            return None

    def _look_up(self, schema_id: SchemaId) -> _Writer | None:
        """Return the schema of an id, from the registry; None if it has none of this format."""
        try:
            if schema_id.id is not None:
                schema = self._registry.get_schema(schema_id.id, None, self._fmt)
            else:
                schema = self._registry.get_schema_by_guid(str(schema_id.guid), self._fmt)
        except SchemaRegistryError as error:
            if error.is_unknown:
                return None
            raise
        if (schema.schema_type or "AVRO") != self.schema_type:
            return None
        _ensure_no_rules(schema, str(schema_id), self._names[1])
        return self._parsed(schema, schema_id)

    def unloaded(self, batch: pa.RecordBatch, name: str) -> Callable[[], Awaitable[None]] | None:
        """Return what to await before ``into``, which would block for the registry's answer otherwise; None: nothing.

        What it returns raises the errors of ``into`` about schemas.
        """
        rows = rows_of(self._with_ids(batch, name, batch.column(batch.schema.get_field_index(name)))[0])
        wanted: dict[bytes, SchemaId] = {}
        for prefix in self._ids(rows):
            if self._is_unknown(prefix):  # in the other column
                self._unknown.setdefault(name, set()).add(prefix)
            elif prefix not in self._writers and (found := self._id_of(prefix)) is not None:
                wanted[prefix] = found
        has_given = self._given is None or self._target is not None
        if not wanted and has_given:
            return None

        def look_up() -> tuple[dict[bytes, _Writer | None], _Columns | None]:
            target = None if has_given else self._given_target()
            return {prefix: self._look_up(schema_id) for prefix, schema_id in wanted.items()}, target

        async def load() -> None:
            if self._asynchronous is not None:
                writers, target = await self._asynchronous.run(look_up)
            else:
                writers, target = await asyncio.get_running_loop().run_in_executor(None, look_up)
            if target is not None:
                self._target = target
            for prefix, writer in writers.items():
                if writer is None:
                    self._unknown.setdefault(name, set()).add(prefix)
                else:
                    self._writers[prefix] = (wanted[prefix], writer)

        return load

    def _given_target(self) -> _Columns:
        """Return the columns of the schema that is given."""
        assert self._given is not None
        _ensure_no_rules(self._given, "to read into", self._names[1])
        given = self._parsed(self._given, None)
        assert given is not None
        return self._new_target(given)

    def _reason(self, rows: Rows, row: int) -> str:
        schema_id = SchemaId(self.schema_type)
        try:
            schema_id.read(bytes(rows.value(row)[:_LONGEST_PREFIX]))
        except SerializationError as error:
            return str(error)
        return f"schema {schema_id} is unknown to the registry {self._registry.name}, or is not {self._names[0]}"

    def _resolve(self, subject: str, version: int) -> Schema:
        """Return a schema that another one refers to."""
        return self._registry.get_version(subject, version, True, self._fmt).schema

    def _choose(self, prefixes: Iterable[bytes]) -> _Columns | None:
        """Return the columns to read into: the given schema's, or the newest one's that records have come with."""
        if self._given is not None:
            if self._target is None:
                self._target = self._given_target()
            return self._target
        newest, schema = self._newest, None
        for prefix in prefixes:
            if (number := self._number(prefix)) > newest:
                newest, schema = number, self._writers[prefix][1]
        if schema is not None:
            self._target = self._new_target(schema)
            self._newest = newest
        return self._target

    def _number(self, prefix: bytes) -> int:
        """Return the number of a known schema: a newer one has a higher number."""
        return self._writers[prefix][0].id or 0

    def _error(self, batch: pa.RecordBatch, name: str, poison: list[Poison]) -> RecordDeserializationError:
        row, reason = poison[0]
        text = f"the {name} in row {row} cannot be decoded: {reason}"
        if not {"topic", "partition", "offset"} <= set(batch.schema.names):
            return RecordDeserializationError(text, part=name)
        topic, partition, offset = (batch.column(column)[row].as_py() for column in ("topic", "partition", "offset"))
        more = f" (and {len(poison) - 1} more)" if len(poison) > 1 else ""
        return RecordDeserializationError(
            f"the {name} of the record at offset {offset} of {topic}-{partition} cannot be decoded: {reason}{more}. "
            f"{self.advice.format(next=offset + 1)}",
            TopicPartition(topic, partition),
            offset,
            name,
        )


class AvroColumns(RegistryColumns[AvroType, _Target]):
    """Decodes columns of Avro. Thread: one at a time."""

    schema_type = "AVRO"
    _names = ("Avro", "AvroDeserializer")

    def _parsed(self, schema: Schema, schema_id: SchemaId | None) -> AvroType:  # noqa: ARG002
        return parse_avro(loaded(schema.schema_str or ""), named_schemas(schema, self._resolve))

    def _new_target(self, schema: AvroType) -> _Target:
        return _Target(schema, self._fields)

    def _type(self, target: _Target) -> Any:
        return _array(load("pyarrow", "arrow"), target.shape, target.new_columns()[0]).type

    def _reader(self, target: _Target) -> _AvroReader:
        return _AvroReader(target, self._writers)


class _AvroReader:
    """Reads the rows of one array. Thread: owner."""

    def __init__(self, target: _Target, writers: Mapping[bytes, tuple[SchemaId, AvroType]]) -> None:
        self._target = target
        self._writers = writers
        self._columns = target.new_columns()
        self._decoders: dict[bytes, Decoder] = {}

    def add_null(self) -> None:
        self._columns[0].add_null()

    def read(self, prefix: bytes, rows: Rows, row: int) -> tuple[int, str | None]:
        writer = self._writers[prefix][1]
        decoder = self._decoders.get(prefix)
        if decoder is None:
            decoder = self._decoders[prefix] = Decoder(self._target.step(prefix, writer), self._columns)
        reason: str | None = None
        if writer.kind == "bytes":
            if rows.is_null(row):
                self.add_null()
            else:
                reason = _decode_bytes(decoder, rows.value(row), prefix)
            row += reason is None
        else:
            row, reason = decoder.decode(rows, row, prefix)
        if reason is not None:
            value = bytes(rows.value(row)[len(prefix) :])
            reason = damage(writer, self._target.reader, value) or reason
        return row, reason

    def array(self) -> Any:
        return _array(load("pyarrow", "arrow"), self._target.shape, self._columns[0])


def _decode_bytes(decoder: Decoder, value: memoryview, prefix: bytes) -> str | None:
    """Decode a record whose whole schema is bytes: serializers write it without Avro's length. Return why not."""
    body = bytes(value[len(prefix) :])
    framed = prefix + zigzag(len(body)) + body
    ends = memoryview(array("i", (0, len(framed))))
    return decoder.decode(Rows(1, None, 0, ends, None, [memoryview(framed)]), 0, prefix)[1]


def avro_columns(
    registry: SchemaRegistryClient | AsyncSchemaRegistryClient,
    schema: str | Schema | None = None,
    columns: Iterable[str] | None = None,
    on_error: str = "raise",
) -> AvroColumns:
    """Return a decoder for ``poll_arrow(value=...)`` and ``poll_arrow(key=...)``, for one consumer.

    Args:
        schema: the reader's schema. Without one, records are read by the newest schema that any of them was written
            with, and the columns change when a newer one comes.
        columns: the fields of the record to decode; the others are skipped.
        on_error: ``raise`` raises SerializationError for a row that cannot be decoded, which names its topic, partition
            and offset, and the position stays before the batch. ``keep`` makes it null, and adds the columns
            ``value_error`` with the reason and ``value_bytes`` with its bytes, which are null for all other rows.

    Raises:
        ImportError: pyarrow is not installed.
        IllegalArgumentError: an argument is invalid.
    """
    return AvroColumns(registry, schema, columns, on_error)


@functools.lru_cache(256)
def _arrow_type(name: tuple[Any, ...]) -> Any:
    return getattr(load("pyarrow", "arrow"), name[0])(*name[1:])


def _array(pa: Any, shape: Shape, column: Column) -> Any:
    """Return the Arrow array of a column."""
    length, null_count, validity, offsets, data = column.buffers()
    if shape.arrow == ("null",):
        return pa.nulls(length)
    valid = None if validity is None else pa.py_buffer(validity)
    if shape.form == BITS:
        return pa.Array.from_buffers(pa.bool_(), length, [valid, pa.py_buffer(data)], null_count)
    if shape.symbols:
        indices = pa.Array.from_buffers(pa.int32(), length, [valid, pa.py_buffer(data)], null_count)
        return pa.DictionaryArray.from_arrays(indices, pa.array(shape.symbols, pa.string()), safe=False)
    if shape.form in (FIXED, BYTES):
        kind = _arrow_type(shape.arrow)
        parts = [valid, pa.py_buffer(data)]
        if shape.form == BYTES:
            parts.insert(1, pa.py_buffer(offsets))
        return pa.Array.from_buffers(kind, length, parts, null_count)
    children = [_array(pa, child, of) for child, of in zip(shape.children, column.children, strict=True)]
    if shape.form == LIST:
        item = children[0]
        kind = pa.list_(item.type)
        if shape.arrow == ("map",):
            kind = pa.map_(*(field.type for field in item.type))
            # A map's keys are not nullable, and Arrow ends the process over entries of another type.
            entries = pa.struct([kind.key_field, kind.item_field])
            parts = [item.field(0), item.field(1)]
            item = pa.Array.from_buffers(entries, len(item), [None], 0, children=parts)
        return pa.Array.from_buffers(kind, length, [valid, pa.py_buffer(offsets)], null_count, children=[item])
    kind = pa.struct([pa.field(name, child.type) for name, child in zip(shape.names, children, strict=True)])
    return pa.Array.from_buffers(kind, length, [valid], null_count, children=children)
