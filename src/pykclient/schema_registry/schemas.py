"""The values that a schema registry stores and returns, with confluent-kafka's names and the JSON of the REST API.

They compare by value and can be dictionary keys; do not change them once they were used. Each has ``to_dict()``, the
JSON that the registry takes, and ``from_dict()``, which accepts its responses. Fields that are None are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Self

from pykclient.errors import KafkaError

#: The codes of a registry for an unknown subject, version and schema.
_UNKNOWN_CODES = frozenset((40401, 40402, 40403))


class SchemaRegistryError(KafkaError):
    """The schema registry rejected a request, or could not be reached.

    ``http_status_code`` is the response's, or -1 if there was none. ``error_code`` is the registry's own, such as 40403
    for an unknown schema; -1 if unknown. ``error_message`` is the registry's text.
    """

    UNKNOWN = -1
    #: How long the registry asks to wait before the next attempt.
    retry_after_ms = 0

    def __init__(self, http_status_code: int, error_code: int, error_message: str, asked: str = "") -> None:
        """``asked`` says what was asked of which registry."""
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message
        self.asked = asked
        super().__init__(http_status_code, error_code, error_message, asked)

    @property
    def is_unknown(self) -> bool:
        """True if the registry does not know the subject, the version or the schema.

        A status of 404 alone says less: a proxy, or a registry under another path, returns it for everything.
        """
        return self.error_code in _UNKNOWN_CODES

    @property
    def blames_record(self) -> bool:
        """True if a record that needs the answer is at fault, and not the registry."""
        return self.is_unknown

    def __str__(self) -> str:
        text = f"{self.error_message} (HTTP status code {self.http_status_code}, SR code {self.error_code})"
        return f"{self.asked}: {text}" if self.asked else text

    def __repr__(self) -> str:
        return str(self)


class OAuthTokenError(SchemaRegistryError):
    """No token for the registry could be obtained."""

    def __init__(self, message: str, status_code: int | None = None, response_text: str | None = None) -> None:
        super().__init__(status_code or -1, -1, message)
        self.message = message
        self.status_code = status_code
        self.response_text = response_text
        self.args = (message, status_code, response_text)  # with which it is copied and pickled

    def __str__(self) -> str:
        return f"{self.message} (HTTP {self.status_code}): {self.response_text}"


def _json_name(name: str) -> str:
    return _RENAMED.get(name) or re.sub("_(.)", lambda found: found[1].upper(), name)


_RENAMED = {"schema_str": "schema", "schema_id": "id"}


def _to_json(value: Any) -> Any:
    if isinstance(value, JsonValue):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


def _frozen(value: Any) -> Any:
    """Return the value with lists and dictionaries replaced by hashable equivalents."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


class JsonValue:
    """Conversion of a dataclass from and to the JSON of the REST API."""

    #: How the value of a field is made of JSON, where it is not taken as it is.
    _makers: ClassVar[dict[str, Callable[[Any], Any]]] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the registry takes."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return {_json_name(name): _to_json(value) for name, value in found.items() if value is not None}

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Return the value that a response contains; what is missing gets its default, or None."""
        values = {}
        for item in fields(cls):  # type: ignore[arg-type]
            value = src_dict.get(_json_name(item.name))
            if value is not None:
                make = cls._makers.get(item.name)
                values[item.name] = value if make is None else make(value)
        return cls(**values)

    def _values(self) -> list[Any]:
        return [getattr(self, item.name) for item in fields(self)]  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(map(_frozen, self._values())))


class JsonMap(JsonValue):
    """A dataclass whose only field is the JSON object."""

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the JSON object."""
        (item,) = fields(self)  # type: ignore[arg-type]
        return dict(getattr(self, item.name))

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Return the value that has a copy of the JSON object."""
        return cls(dict(src_dict))  # type: ignore[call-arg]


def field_at(path: str) -> str:
    """Return the name in errors of a part of a value; an empty path is that of the whole value."""
    return f"field {path!r}" if path else "the value"


def inner_path(path: str, name: str) -> str:
    """Return the path of a part of the value at ``path``."""
    return f"{path}.{name}" if path else name


def _list_of(cls: type[JsonValue]) -> Callable[[Any], Any]:
    return lambda items: [cls.from_dict(item) for item in items]


def _known(cls: type[StrEnum]) -> Callable[[Any], Any]:
    """Return what makes a member of the text; a text of a newer registry stays, so that its use can be refused."""
    return lambda text: cls(text) if text in cls.__members__ else text


class RuleKind(StrEnum):
    """The effect of a rule: a check or a transformation."""

    CONDITION = "CONDITION"
    TRANSFORM = "TRANSFORM"


class RulePhase(StrEnum):
    """The step at which a rule is executed."""

    MIGRATION = "MIGRATION"
    DOMAIN = "DOMAIN"
    ENCODING = "ENCODING"


class RuleMode(StrEnum):
    """The operation for which a rule is executed."""

    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"
    UPDOWN = "UPDOWN"
    READ = "READ"
    WRITE = "WRITE"
    WRITEREAD = "WRITEREAD"


class ConfigCompatibilityLevel(StrEnum):
    """The compatibility that a subject's versions must have."""

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"


@dataclass(eq=False)
class RuleParams(JsonMap):
    """The parameters of a rule."""

    params: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Rule(JsonValue):
    """A rule of a data contract. Without a ``kind`` it is a TRANSFORM, and without a ``mode`` a WRITEREAD.

    ``kind`` and ``mode`` of a newer registry's response are texts that the enums do not have.
    """

    name: str | None = None
    doc: str | None = None
    kind: RuleKind | None = None
    mode: RuleMode | None = None
    type: str | None = None
    tags: list[str] | None = None
    params: RuleParams | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool | None = None

    _makers: ClassVar = {"kind": _known(RuleKind), "mode": _known(RuleMode), "params": RuleParams.from_dict}


@dataclass(eq=False)
class RuleSet(JsonValue):
    """The rules of a schema, by phase. ``others`` has the rules of phases that only a newer registry knows."""

    migration_rules: list[Rule] | None = None
    domain_rules: list[Rule] | None = None
    encoding_rules: list[Rule] | None = None
    enable_at: str | None = None
    others: dict[str, Any] | None = None

    def of(self, phase: RulePhase) -> list[Rule]:
        """Return the rules of a phase."""
        found: list[Rule] | None = getattr(self, f"{phase.lower()}_rules")
        return found or []

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        others = found.pop("others", {})
        return {**found, **others}

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        found = super().from_dict(src_dict)
        known = {_json_name(item.name) for item in fields(cls)}
        found.others = {name: value for name, value in src_dict.items() if name not in known and value} or None
        return found

    _makers: ClassVar = dict.fromkeys(("migration_rules", "domain_rules", "encoding_rules"), _list_of(Rule))


@dataclass(eq=False)
class MetadataTags(JsonMap):
    """Tags of fields, by path."""

    tags: dict[str, list[str]] = field(default_factory=dict)


@dataclass(eq=False)
class MetadataProperties(JsonMap):
    """Properties of a schema."""

    properties: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Metadata(JsonValue):
    """Tags and properties of a schema."""

    tags: MetadataTags | None = None
    properties: MetadataProperties | None = None
    sensitive: list[str] | None = None

    _makers: ClassVar = {"tags": MetadataTags.from_dict, "properties": MetadataProperties.from_dict}


@dataclass(eq=False)
class SchemaVersion(JsonValue):
    """A version of a subject."""

    subject: str | None = None
    version: int | None = None


@dataclass(eq=False)
class SchemaReference(JsonValue):
    """A reference to another schema: the name used for it, its subject and its version."""

    name: str | None = None
    subject: str | None = None
    version: int | None = None


@dataclass(eq=False)
class Schema(JsonValue):
    """A schema: its text, its type (AVRO, JSON or PROTOBUF), and the schemas that it refers to."""

    schema_str: str | None
    schema_type: str | None = "AVRO"
    references: list[SchemaReference] | None = field(default_factory=list)
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None

    _makers: ClassVar = {
        "references": _list_of(SchemaReference),
        "metadata": Metadata.from_dict,
        "rule_set": RuleSet.from_dict,
    }

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        return super().from_dict(src_dict) if src_dict.get("schema") is not None else cls(None)


@dataclass(eq=False)
class RegisteredSchema(JsonValue):
    """A schema with its ids, and the subject and version that it is registered as."""

    subject: str | None
    version: int | None
    schema_id: int | None
    guid: str | None
    schema: Schema

    def to_dict(self) -> dict[str, Any]:
        own = {"subject": self.subject, "version": self.version, "id": self.schema_id, "guid": self.guid}
        return {**{name: value for name, value in own.items() if value is not None}, **self.schema.to_dict()}

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        found = src_dict.get
        return cls(found("subject"), found("version"), found("id"), found("guid"), Schema.from_dict(src_dict))


@dataclass(eq=False)
class ServerConfig(JsonValue):
    """The configuration of a subject, or of the registry."""

    compatibility: ConfigCompatibilityLevel | None = None
    compatibility_level: ConfigCompatibilityLevel | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None

    _makers: ClassVar = {
        "compatibility": ConfigCompatibilityLevel,
        "compatibility_level": ConfigCompatibilityLevel,
        "default_metadata": Metadata.from_dict,
        "override_metadata": Metadata.from_dict,
        "default_rule_set": RuleSet.from_dict,
        "override_rule_set": RuleSet.from_dict,
    }


@dataclass(eq=False)
class Association(JsonValue):
    """A resource, such as a topic, and the subject of its keys or values."""

    subject: str | None = None
    guid: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    association_type: str | None = None
    frozen: bool = False


@dataclass(eq=False)
class AssociationInfo(JsonValue):
    """One association in a response."""

    subject: str | None = None
    association_type: str | None = None
    lifecycle: str | None = None
    frozen: bool = False
    schema: Schema | None = None

    _makers: ClassVar = {"schema": Schema.from_dict}


@dataclass(eq=False)
class AssociationCreateOrUpdateInfo(JsonValue):
    """One association of a request."""

    subject: str | None = None
    association_type: str | None = None
    lifecycle: str | None = None
    frozen: bool | None = None
    schema: Schema | None = None
    normalize: bool | None = None

    _makers: ClassVar = {"schema": Schema.from_dict}


@dataclass(eq=False)
class _Resource(JsonValue):
    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None


@dataclass(eq=False)
class AssociationCreateOrUpdateRequest(_Resource):
    """The associations to create for a resource, or to change."""

    associations: list[AssociationCreateOrUpdateInfo] | None = None

    _makers: ClassVar = {"associations": _list_of(AssociationCreateOrUpdateInfo)}


@dataclass(eq=False)
class AssociationResponse(_Resource):
    """The associations of a resource that were created or changed."""

    associations: list[AssociationInfo] | None = None

    _makers: ClassVar = {"associations": _list_of(AssociationInfo)}
