"""Kafka's message schemas as the generator needs them: read from the jar, checked, cut to the versions that exist."""

from __future__ import annotations

import json
import keyword
import re
import zipfile
from dataclasses import dataclass, field
from typing import Any

NEVER = 1 << 15
"""Above every version: versions are int16."""

RESERVED = {"read", "write", "unknown_tags"}
"""Names that a field cannot have."""


def snake(name: str) -> str:
    """``TopicData`` becomes ``topic_data``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@dataclass(frozen=True)
class Versions:
    """The versions from ``lowest`` to ``highest``, both included; none if they are crossed."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str | None, default: str = "none") -> Versions:
        text = text or default
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEVER - 1)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.lowest, other.lowest), min(self.highest, other.highest))

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def covers(self, other: Versions) -> bool:
        return self & other == other

    def condition(self, among: Versions) -> str:
        """Python that is true for these versions, when the version is known to be in ``among``."""
        if self.lowest > among.lowest and self.highest < among.highest:
            return (
                f"{self.lowest} <= version <= {self.highest}"
                if self.lowest < self.highest
                else f"version == {self.lowest}"
            )
        return f"version >= {self.lowest}" if self.lowest > among.lowest else f"version <= {self.highest}"

    def outside(self, among: Versions) -> str:
        """Python that is true for the versions of ``among`` that are not these."""
        if self.lowest > among.lowest and self.highest < among.highest:
            return f"not {self.lowest} <= version <= {self.highest}"
        return f"version < {self.lowest}" if self.lowest > among.lowest else f"version > {self.highest}"

    def __str__(self) -> str:
        return f"v{self.lowest}-{self.highest}" if self.lowest < self.highest else f"v{self.lowest}"


@dataclass(frozen=True)
class Primitive:
    """A type of the protocol: the method of Reader and Writer, the type in Python, the struct code if it has one."""

    method: str
    python: str
    code: str | None = None
    variable: bool = False
    """Has a length, and so a compact form and a null."""


PRIMITIVES = {
    "bool": Primitive("boolean", "bool", "?"),
    "int8": Primitive("int8", "int", "b"),
    "int16": Primitive("int16", "int", "h"),
    "uint16": Primitive("uint16", "int", "H"),
    "int32": Primitive("int32", "int", "i"),
    "uint32": Primitive("uint32", "int", "I"),
    "int64": Primitive("int64", "int", "q"),
    "float64": Primitive("float64", "float", "d"),
    "uuid": Primitive("uuid", "UUID"),
    "string": Primitive("string", "str", variable=True),
    "bytes": Primitive("bytes_", "bytes", variable=True),
    "records": Primitive("records", "BytesLike", variable=True),
}


@dataclass
class Field:
    name: str
    type: str
    """A primitive's name or a struct's."""
    array: bool
    versions: Versions
    """Already cut to the versions that the message has."""
    nullable: Versions
    flexible: Versions
    tag: int | None
    ignorable: bool
    default: str
    """Python of the default, where ``Struct()`` stands for a new struct."""

    @property
    def primitive(self) -> Primitive | None:
        return PRIMITIVES.get(self.type)

    @property
    def code(self) -> str | None:
        """The struct code of a field that can be joined to its neighbours."""
        return self.primitive.code if self.primitive and not self.array and self.tag is None else None

    @property
    def optional(self) -> bool:
        return bool(self.nullable & self.versions) or self.default == "None"


@dataclass
class Struct:
    name: str
    versions: Versions
    """In which it can occur."""
    fields: list[Field] = field(default_factory=list)

    @property
    def plain(self) -> list[Field]:
        return [f for f in self.fields if f.tag is None]

    @property
    def tagged(self) -> list[Field]:
        return sorted((f for f in self.fields if f.tag is not None), key=lambda f: f.tag or 0)


@dataclass
class Message:
    """A request, a response or a data message, and all structs in it. They have unique names, as in Java's classes."""

    name: str
    kind: str
    key: int
    versions: Versions
    stable: Versions
    flexible: Versions
    body: Struct
    structs: list[Struct] = field(default_factory=list)


# --- reading the schemas ----------------------------------------------------------------------------------------------


def load(jar: zipfile.ZipFile, name: str) -> Message:
    """The message ``name``. Raises KeyError if the jar lacks it, ValueError if it is beyond this generator."""
    text = jar.read(f"common/message/{name}.json").decode()
    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    versions = Versions.parse(schema["validVersions"])
    unstable = 1 if schema.get("latestVersionUnstable") else 0
    message = Message(
        name=name,
        kind=schema["type"],
        key=schema.get("apiKey", -1),
        versions=versions,
        stable=Versions(versions.lowest, versions.highest - unstable),
        flexible=Versions.parse(schema.get("flexibleVersions")) & versions,
        body=Struct(name, versions),
    )
    message.body.fields = [load_field(f, message, versions) for f in schema["fields"]]
    for common in schema.get("commonStructs", []):
        add_struct(common["name"], common["fields"], message, Versions.parse(common["versions"]) & versions)
    names = [s.name for s in message.structs]
    if len(set(names)) != len(names):
        raise ValueError(f"{name}: two structs of one name in {names}")
    return message


def add_struct(name: str, fields: list[dict[str, Any]], message: Message, among: Versions) -> None:
    """Give ``message`` the struct ``name``, which occurs in the versions ``among``."""
    struct = Struct(name, among)
    message.structs.append(struct)
    struct.fields = [load_field(f, message, among) for f in fields]
    for f in struct.fields:
        if f.name in RESERVED or keyword.iskeyword(f.name):
            raise ValueError(f"{message.name}.{name} has a field named {f.name}")


def load_field(schema: dict[str, Any], message: Message, among: Versions) -> Field:
    """A field of a struct that occurs in the versions ``among``."""
    array = schema["type"].startswith("[]")
    type_name = schema["type"].removeprefix("[]")
    versions = Versions.parse(schema["versions"])
    tagged = Versions.parse(schema.get("taggedVersions"))
    if tagged and not tagged.covers(versions & among):
        raise ValueError(f"{message.name}.{schema['name']}: tagged in some versions only")
    if "fields" in schema:
        add_struct(type_name, schema["fields"], message, versions & among)
    nullable = Versions.parse(schema.get("nullableVersions"))
    return Field(
        name=snake(schema["name"]),
        type=type_name,
        array=array,
        versions=versions & among,
        nullable=nullable,
        flexible=Versions.parse(schema["flexibleVersions"]) if "flexibleVersions" in schema else message.flexible,
        tag=schema.get("tag"),
        ignorable=schema.get("ignorable", False),
        default=default_of(type_name, array, schema.get("default")),
    )


def default_of(type_name: str, array: bool, default: Any) -> str:
    """Python of a field's default: what its schema says, else its type's."""
    if default == "null":
        return "None"
    if array:
        return "[]"
    match type_name:
        case "bool":
            return "True" if default in (True, "true") else "False"
        case "float64":
            return repr(float(default or 0))
        case "string":
            return json.dumps(default or "")
        case "bytes":
            return 'b""'
        case "records":
            return "None"
        case "uuid":
            return "ZERO_UUID"
        case _ if type_name in PRIMITIVES:
            return str(int(str(default or 0), 0))
        case _:
            return "Struct()"
