"""Keys and values under a schema registry, as JSON: what ``--key-format`` and ``--value-format`` read and write."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pykclient.cli.output import Record, Schemas
from pykclient.cli.problems import BadInputError, CommandError
from pykclient.cli.settings import parse_properties
from pykclient.errors import KafkaError, SerializationError
from pykclient.record.lines import JsonText
from pykclient.serialization import MessageField, SerializationContext

if TYPE_CHECKING:
    from pykclient.cli.session import Session
    from pykclient.consumer_record import ConsumerRecord
    from pykclient.producer.kafka_producer import KafkaProducer
    from pykclient.schema_registry import SchemaRegistryClient
    from pykclient.schema_registry.avro_types import AvroType
    from pykclient.types import Header

_URL: Final = "SCHEMA_REGISTRY_URL"


def registry_client(
    url: str | None, file: Path | None, option: str, timeout_ms: int, **defaults: Any
) -> SchemaRegistryClient:
    """Return a client of the registry that the options, a file or the environment name.

    Settings of the file win over ``timeout_ms``, the time for an attempt, and over ``defaults``.

    Raises:
        BadInputError: nothing names it; the text has the name of the option.
    """
    from pykclient.schema_registry import SchemaRegistryClient

    found: dict[str, Any] = {} if file is None else dict(parse_properties(file.read_text(encoding="utf-8")))
    address = url or found.pop("url", None) or found.pop("schema.registry.url", None) or os.environ.get(_URL)
    if not address:
        raise BadInputError(f"name the registry: {option} http://host:8081, or {_URL} in the environment")
    return SchemaRegistryClient({"timeout": timeout_ms / 1000, **defaults, **found, "url": address})


def _client(session: Session, schemas: Schemas) -> SchemaRegistryClient:
    file = None if schemas.file is None else Path(schemas.file)
    return registry_client(schemas.url, file, "--schema-registry", session.timeout_ms)


def _parts(schemas: Schemas) -> list[tuple[str, str, MessageField]]:
    named = (("key", schemas.key, MessageField.KEY), ("value", schemas.value, MessageField.VALUE))
    return [(name, form, field) for name, form, field in named if form is not None]


# --- reading ---------------------------------------------------------------------------------------------------------


class Reader:
    """Converts keys and values of records to JSON, and sends unreadable records to another topic.

    Thread: owner.
    """

    def __init__(self, session: Session, schemas: Schemas, dead_letters: str | None) -> None:
        self._client = _client(session, schemas)
        self._dead_letters = dead_letters
        self._session = session
        self._producer: KafkaProducer[bytes, bytes] | None = None
        self._decoders = [(name, field, self._decoder(form)) for name, form, field in _parts(schemas)]

    def _decoder(self, form: str) -> Callable[[Any, SerializationContext], Any]:
        if form == "avro":
            from pykclient.schema_registry.avro import AvroDeserializer

            return AvroDeserializer(self._client)
        if form == "json":
            from pykclient.schema_registry.json_schema import JSONDeserializer

            return JSONDeserializer(None, schema_registry_client=self._client)
        from google.protobuf.json_format import MessageToDict

        from pykclient.schema_registry.protobuf import ProtobufDeserializer

        read = ProtobufDeserializer(None, schema_registry_client=self._client)
        return lambda data, ctx: MessageToDict(read(data, ctx), preserving_proto_field_name=True)

    def read(self, record: ConsumerRecord[Any, Any]) -> Record | None:
        """Return the record as JSON, or None if it was sent to the dead-letter topic and acknowledged.

        Raises:
            CommandError: it cannot be read, and there is no such topic, or that has not taken it.
            SchemaRegistryError: the registry does not answer.
        """
        given: dict[str, bytes | None] = {"key": record.key, "value": record.value}
        try:
            for name, field, decode in self._decoders:
                data = given[name]
                if data is not None:
                    value = decode(data, SerializationContext(record.topic, field, list(record.headers)))
                    given[name] = JsonText(_to_json(value))
        except (KafkaError, ImportError) as error:
            if not _is_poison(error):
                raise
            self._refuse(record, error)
            return None
        timestamp = -1 if record.timestamp is None else record.timestamp
        place = (record.topic, record.partition, record.offset, timestamp)
        return Record(*place, given["key"], given["value"], record.headers)

    def _refuse(self, record: ConsumerRecord[Any, Any], error: Exception) -> None:
        place = f"{record.topic}-{record.partition} at offset {record.offset}"
        if self._dead_letters is None:
            raise CommandError(
                f"the record of {place} cannot be read: {error}; --dead-letters TOPIC goes on"
            ) from error
        if self._producer is None:
            self._producer = self._session.producer()
        headers = [*record.headers, *reason(record, error)]
        sent = self._producer.send(self._dead_letters, record.value, key=record.key, headers=headers)
        self._producer.flush()
        if (failure := sent.exception) is not None:
            raise CommandError(f"the record of {place} could not be copied to {self._dead_letters!r}: {failure}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        if self._producer is not None:
            self._producer.close()


def _is_poison(error: Exception) -> bool:
    """Return True if the record is at fault, and not the registry or this installation."""
    return bool(getattr(error, "blames_record", isinstance(error, SerializationError)))


def reason(record: ConsumerRecord[Any, Any], error: Exception) -> list[Header]:
    """Return the headers that say why a record is a dead letter, with the names that Kafka Connect gives them."""
    found = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "exception.class.name": type(error).__name__,
        "exception.message": str(error),
    }
    return [(f"__connect.errors.{name}", text.encode("utf-8", "replace")) for name, text in found.items()]


def _to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=_plain).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    """Return a value that JSON does not have as text: bytes as Avro's JSON has them, times in ISO 8601."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode("latin-1")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    raise SerializationError(f"a {type(value).__name__} has no form in JSON")


# --- writing ---------------------------------------------------------------------------------------------------------


class Writer:
    """Converts JSON to keys and values by the topic's latest schema. Thread: owner."""

    def __init__(self, session: Session, schemas: Schemas, topic: str) -> None:
        self._client = _client(session, schemas)
        self._topic = topic
        self._encoders = {name: (field, self._encoder(form, field)) for name, form, field in _parts(schemas)}

    def _encoder(self, form: str, field: MessageField) -> Callable[[Any, SerializationContext], bytes | None]:
        latest = {"use.latest.version": True}
        if form == "avro":
            from pykclient.schema_registry.avro import AvroSerializer

            avro = AvroSerializer(self._client, conf=latest)
            plan = avro._make_plan(SerializationContext(self._topic, field))
            tree: AvroType = plan.codec.tree
            return lambda value, ctx: avro(from_json(tree, value), ctx)
        if form == "json":
            from pykclient.schema_registry.json_schema import JSONSerializer

            return JSONSerializer(None, self._client, conf=latest)
        from google.protobuf.json_format import ParseDict, ParseError

        from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

        found = self._client.get_latest_version(f"{self._topic}-{field}", "serialized")
        kind = ProtobufDeserializer(None, schema_registry_client=self._client)._message_class(found.schema, [0])
        write = ProtobufSerializer(kind, self._client, latest)

        def encode(value: Any, ctx: SerializationContext) -> bytes | None:
            try:
                return write(ParseDict(value, kind()), ctx)
            except ParseError as error:
                raise SerializationError(f"{kind.DESCRIPTOR.full_name}: {error}") from error

        return encode

    def has(self, name: str) -> bool:
        """Return True if ``key`` or ``value`` has a format."""
        return name in self._encoders

    def encoded(self, name: str, value: Any, headers: list[Header], where: str) -> bytes | None:
        """Return the bytes of a parsed JSON value.

        Raises:
            BadInputError: it does not fit the schema.
        """
        if value is None:
            return None
        field, encode = self._encoders[name]
        try:
            return encode(value, SerializationContext(self._topic, field, headers))
        except (SerializationError, ValueError, TypeError) as error:
            raise BadInputError(f"{where}: the {name} does not fit its schema: {error}") from error

    def parsed(self, name: str, text: bytes, headers: list[Header], where: str) -> bytes | None:
        """Return the bytes of a JSON text.

        Raises:
            BadInputError: it is no JSON, or does not fit the schema.
        """
        try:
            value = json.loads(text)
        except ValueError as error:
            raise BadInputError(f"{where}: the {name} is no JSON: {error}") from error
        return self.encoded(name, value, headers, where)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def from_json(tree: AvroType, value: Any) -> Any:
    """Convert a JSON value to the schema's type. Values that do not fit are returned unchanged.

    Texts become bytes, times and decimals. A union takes its branch's value, or an object with its branch's name as
    Avro's JSON has it.
    """
    if tree.kind == "union":
        return _branch(tree, value)
    if tree.kind == "record" and isinstance(value, Mapping):
        types = {field.name: field.type for field in tree.fields}
        return {name: from_json(types[name], item) if name in types else item for name, item in value.items()}
    if tree.kind == "array" and isinstance(value, list):
        return [from_json(tree.items, item) for item in value]
    if tree.kind == "map" and isinstance(value, Mapping):
        return {name: from_json(tree.items, item) for name, item in value.items()}
    try:
        return _scalar(tree, value)
    except (ValueError, decimal.InvalidOperation) as error:
        raise SerializationError(f"a text does not fit the schema's {tree}: {error}") from error


def _scalar(tree: AvroType, value: Any) -> Any:
    logical = tree.logical or ""
    if logical == "decimal" and isinstance(value, (str, int, float)):
        return decimal.Decimal(str(value))
    if isinstance(value, str):
        if logical == "date":
            return datetime.date.fromisoformat(value)
        if logical.startswith("time-"):
            return datetime.time.fromisoformat(value)
        if logical.startswith(("timestamp-", "local-timestamp-")):
            return datetime.datetime.fromisoformat(value)
        if tree.kind in ("bytes", "fixed") and logical != "uuid":
            return value.encode("latin-1")
    return value


def _branch(tree: AvroType, value: Any) -> Any:
    from pykclient.schema_registry.avro import mismatch

    if isinstance(value, Mapping) and len(value) == 1:
        (name, inner), *_ = value.items()
        for branch in tree.branches:
            if name in (branch.name, branch.kind) and branch.kind != "map":
                return (branch.name, from_json(branch, inner)) if branch.name else from_json(branch, inner)
    for branch in tree.branches:
        try:
            found = from_json(branch, value)
        except SerializationError:
            continue
        if mismatch(branch, found) is None:
            return found
    return value
