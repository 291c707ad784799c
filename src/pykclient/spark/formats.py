"""Keys and values that a schema registry has schemas of, as typed columns.

The driver resolves the schema to read by, once per ``load()``, and the schema to write with, once per batch. Tasks ask
the registry for the schemas that records were written with, and for the one to write with by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient.errors import ConfigError, IllegalArgumentError, SerializationError
from pykclient.schema_registry.column_encoder import RowEncoder, avro_encoder
from pykclient.schema_registry.columns import RegistryColumns, avro_columns
from pykclient.schema_registry.schema_registry_client import SchemaRegistryClient
from pykclient.schema_registry.schemas import Schema
from pykclient.spark.option_values import REGISTRY_PREFIX
from pykclient.spark.schema import BYTES_SUFFIX, ERROR_SUFFIX, ColumnDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pykclient.spark.options import FormatOptions, ReadOptions, WriteOptions

#: The workers of a machine mostly use one registry.
_MOST_CLIENTS = 8

Registry = tuple[tuple[str, str], ...]


class WrittenFormat(NamedTuple):
    """The encoding of a column by a schema. Pickles. Its ``repr`` shows no settings of the registry."""

    format: str
    schema_id: int
    message: str | None
    registry: Registry

    def __repr__(self) -> str:
        return f"WrittenFormat({self.format}, {self.schema_id})"

    def encoder(self, column: str) -> RowEncoder:
        """Return an encoder for one task."""
        conf = {"use.schema.id": self.schema_id}
        return _encoder(self.format, _client(self.registry), None, column, conf, self.message)


def _encoder(
    format: str,
    registry: SchemaRegistryClient,
    schema: str | None,
    column: str,
    conf: Mapping[str, Any],
    message: str | None,
) -> RowEncoder:
    """Return the encoder of a format."""
    if format == "avro":
        return avro_encoder(registry, schema, column, conf)
    # Here, as each worker would import what few formats need.
    from pykclient.schema_registry.object_encoder import json_encoder, protobuf_encoder

    if format == "json":
        return json_encoder(registry, schema, column, conf)
    return protobuf_encoder(registry, schema, column, conf, message)


def written_formats(options: WriteOptions, schema: StructType) -> dict[str, WrittenFormat]:
    """Return the formats of the columns that the options name.

    Raises:
        ConfigError: The subject of a column is not known, or the settings of the registry are wrong.
        IllegalArgumentError: There is no such column.
        SchemaRegistryError: The registry does not answer, or does not have the schema, or refuses it.
        SerializationError: The column's type does not fit the schema, or Avro has none for it.
    """
    if not options.formats:
        return {}
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    if missing := [column for column in options.formats if column not in schema.names]:
        raise IllegalArgumentError(f"the option {missing[0]}.format needs a column {missing[0]!r}")
    # Some versions of Spark have no such argument, and UTC by themselves.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    settings = tuple(sorted(options.registry.items()))
    found: dict[str, WrittenFormat] = {}
    with _new_client(settings) as registry:  # a client that has no subject's latest schema yet
        for column, given in options.formats.items():
            subject = given.subject or _written_subject(options, column)
            conf: dict[str, object] = {"subject.name.strategy": lambda _ctx, _name, subject=subject: subject}
            if given.schema is None and options.auto_register and given.format != "avro":
                raise ConfigError(
                    f"the option {column}.format={given.format} needs {column}.schema to register a schema: only "
                    "one of Avro can be derived from a column",
                    key=f"{column}.schema",
                )
            if given.schema is not None or options.auto_register:
                conf["auto.register.schemas"] = options.auto_register
            else:
                conf["use.latest.version"] = True
            encoder = _encoder(given.format, registry, given.schema, column, conf, given.message)
            types = to_arrow_schema(StructType([schema[column]]), **zone)
            schema_id = encoder.resolve(types, options.topic or "", column).id
            assert schema_id is not None
            found[column] = WrittenFormat(given.format, schema_id, given.message, settings)
    return found


def _written_subject(options: WriteOptions, column: str) -> str:
    """Return the subject of the topic that is written. Raises ConfigError if there may be several topics."""
    if options.topic is None:
        raise ConfigError(
            f"the option {column}.format needs {column}.subject, as each row names its topic; or set the option topic",
            key=f"{column}.subject",
        )
    return f"{options.topic}-{column}"


class ColumnFormat(NamedTuple):
    """The decoding of a column of bytes. Pickles. Its ``repr`` shows no settings of the registry.

    ``type`` is Spark's Arrow type of the column. ``fields`` are those to decode; None means all. ``message`` is the
    name of Protobuf's message.
    """

    format: str
    schema: Schema
    message: str | None
    fields: tuple[str, ...] | None
    type: pa.DataType
    is_permissive: bool
    registry: Registry

    def __repr__(self) -> str:
        return f"ColumnFormat({self.type})"

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields, if it is a record."""
        import pyarrow as pa

        return tuple(field.name for field in self.type) if pa.types.is_struct(self.type) else ()

    def only(self, names: tuple[str, ...]) -> ColumnFormat:
        """Return the format that decodes only these fields of the ones that it decodes."""
        import pyarrow as pa

        type = pa.struct([field for field in self.type if field.name in names])
        return self._replace(fields=names, type=type)

    def decoder(self) -> ColumnDecoder:
        """Return a decoder for one task."""
        mode = "keep" if self.is_permissive else "raise"
        found = _columns(self.format, _client(self.registry), self.schema, self.fields, mode, self.message)
        found.advice = "Set the option mode to PERMISSIVE to get null instead of it"
        return ColumnDecoder(found, self.type)


Formats = Mapping[str, ColumnFormat]


def _columns(
    format: str,
    registry: SchemaRegistryClient,
    schema: Schema,
    fields: tuple[str, ...] | None,
    on_error: str = "raise",
    message: str | None = None,
) -> RegistryColumns[Any, Any]:
    """Return the decoder of a format."""
    if format == "avro":
        return avro_columns(registry, schema, fields, on_error)
    # Here, as each worker would import what few formats need.
    from pykclient.schema_registry.object_columns import json_columns, protobuf_columns

    if format == "json":
        return json_columns(registry, schema, fields, on_error)
    return protobuf_columns(registry, schema, fields, on_error, message)


@lru_cache(maxsize=_MOST_CLIENTS)
def _client(settings: Registry) -> SchemaRegistryClient:
    """Return the client of this process for a registry, with the schemas that it has read so far."""
    return _new_client(settings)


def _new_client(settings: Registry) -> SchemaRegistryClient:
    try:
        return SchemaRegistryClient(dict(settings))
    except ConfigError as error:
        raise ConfigError(f"a {REGISTRY_PREFIX}* option is wrong: {error}", key=error.key) from None


def column_formats(options: ReadOptions) -> dict[str, ColumnFormat]:
    """Return the formats of the columns that the options name.

    Raises:
        ConfigError: The subject of a column is not known, or the settings of the registry are wrong.
        SchemaRegistryError: The registry does not answer, or does not know the subject.
        SerializationError: It is no schema of the format, or cannot be columns.
    """
    settings = tuple(sorted(options.registry.items()))
    with _new_client(settings) as registry:  # a client that has no subject's latest schema yet
        return {
            column: _column_format(options, column, given, registry, settings)
            for column, given in options.formats.items()
        }


def _column_format(
    options: ReadOptions, column: str, given: FormatOptions, registry: SchemaRegistryClient, settings: Registry
) -> ColumnFormat:
    kind = given.format.upper()
    if given.schema is not None:
        schema = Schema(given.schema, kind)
    else:
        subject = given.subject or _subject(options, column)
        schema = registry.get_latest_version(subject, "serialized" if kind == "PROTOBUF" else None).schema
        if (schema.schema_type or "AVRO") != kind:
            raise SerializationError(
                f"the latest schema of the subject {subject} is of type {schema.schema_type or 'AVRO'}, and the option "
                f"{column}.format is {given.format}"
            )
    type = _spark_type(_columns(given.format, registry, schema, given.fields, message=given.message).arrow_type())
    return ColumnFormat(given.format, schema, given.message, given.fields, type, options.is_permissive, settings)


def _subject(options: ReadOptions, column: str) -> str:
    """Return the subject of the topic that is read. Raises ConfigError if there may be several topics."""
    names: tuple[str, ...] = getattr(options.topics, "names", ())
    if len(names) != 1:
        raise ConfigError(
            f"the option {column}.format needs {column}.subject or {column}.schema, as the query may read several "
            f"topics ({options.topics.description})",
            key=f"{column}.subject",
        )
    return f"{names[0]}-{column}"


def _spark_type(of: pa.DataType) -> pa.DataType:
    """Return the type in Spark's Arrow batches of a column's: that of Spark's own ``from_avro`` and ``from_protobuf``.

    Only unions of several types differ: their fields have the names that ``AvroColumns`` gives them. Unsigned numbers
    are of the next wider type, which has all of them.
    """
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_struct(of):
        return pa.struct([pa.field(field.name, _spark_type(field.type)) for field in of])
    if kinds.is_list(of):
        return pa.list_(pa.field("element", _spark_type(of.value_type)))
    if kinds.is_map(of):
        return pa.map_(_spark_type(of.key_type), _spark_type(of.item_type))
    if of == pa.uint32():
        return pa.int64()
    if of == pa.uint64():
        return pa.decimal128(20, 0)
    if kinds.is_dictionary(of):
        return pa.string()
    if kinds.is_fixed_size_binary(of):
        return pa.binary()
    if kinds.is_time(of):
        return pa.int32() if kinds.is_time32(of) else pa.int64()
    if kinds.is_timestamp(of):
        return pa.int64() if of.unit == "ns" else pa.timestamp("us", of.tz)
    return of


_NAMES = {
    "bool": "boolean",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "binary": "binary",
    "string": "string",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
    "null": "void",
    "duration[us]": "interval day to second",
}


def type_ddl(of: pa.DataType) -> str:
    """Return the DDL of a type that ``_spark_type`` returns."""
    import pyarrow as pa

    if pa.types.is_struct(of):
        return f"struct<{', '.join(f'`{field.name}`: {type_ddl(field.type)}' for field in of)}>"
    if pa.types.is_list(of):
        return f"array<{type_ddl(of.value_type)}>"
    if pa.types.is_map(of):
        return f"map<{type_ddl(of.key_type)}, {type_ddl(of.item_type)}>"
    if pa.types.is_decimal(of):
        return f"decimal({of.precision},{of.scale})"
    return _NAMES[str(of)]


def column_types(formats: Formats) -> dict[str, str]:
    """Return the DDL of the columns that formats change or add."""
    types: dict[str, str] = {}
    for name, format in formats.items():
        types[name] = type_ddl(format.type)
        if format.is_permissive:
            types[name + ERROR_SUFFIX], types[name + BYTES_SUFFIX] = "string", "binary"
    return types
