"""Kafka's message schemas as the generator needs them: read from the jars, checked, and limited to existing versions.

The schemas of the current Kafka and of an older one are merged first (``merged``), so that a message also has the
versions that were dropped in between.
"""

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
    """Convert to snake case: ``TopicData`` to ``topic_data``, ``isKRaftController`` to ``is_kraft_controller``."""
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@dataclass(frozen=True)
class Versions:
    """The versions from ``lowest`` to ``highest``, inclusive; none if ``lowest`` is greater."""

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
        """Return Python code that is true for these versions, if the version is known to be in ``among``."""
        if self.lowest > among.lowest and self.highest < among.highest:
            return (
                f"{self.lowest} <= version <= {self.highest}"
                if self.lowest < self.highest
                else f"version == {self.lowest}"
            )
        if self.lowest > among.lowest:
            return f"version >= {self.lowest}"
        return f"version == {self.highest}" if self.highest == among.lowest else f"version <= {self.highest}"

    def outside(self, among: Versions) -> str:
        """Return Python code that is true for the versions of ``among`` other than these."""
        if self.lowest > among.lowest and self.highest < among.highest:
            return f"not {self.lowest} <= version <= {self.highest}"
        return f"version < {self.lowest}" if self.lowest > among.lowest else f"version > {self.highest}"

    def __str__(self) -> str:
        return f"v{self.lowest}-{self.highest}" if self.lowest < self.highest else f"v{self.lowest}"


@dataclass(frozen=True)
class Primitive:
    """A type of the protocol: the method of Reader and Writer, the Python type, and the struct code if it has one."""

    method: str
    python: str
    code: str | None = None
    variable: bool = False
    """The type has a length, hence a compact form and null."""


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
        """The struct code, if the field can be joined with its neighbours."""
        return self.primitive.code if self.primitive and not self.array and self.tag is None else None

    @property
    def optional(self) -> bool:
        return bool(self.nullable & self.versions) or self.default == "None"


@dataclass
class Struct:
    name: str
    versions: Versions
    """The versions in which the struct can occur."""
    fields: list[Field] = field(default_factory=list)

    @property
    def plain(self) -> list[Field]:
        return [f for f in self.fields if f.tag is None]

    @property
    def tagged(self) -> list[Field]:
        return sorted((f for f in self.fields if f.tag is not None), key=lambda f: f.tag or 0)


@dataclass
class Message:
    """A request, a response or a data message with all its structs, which have unique names as in Java's classes."""

    name: str
    kind: str
    """``request``, ``response``, ``data``, or a record of a coordinator: ``coordinator-key``, ``coordinator-value``."""
    key: int
    versions: Versions
    """All versions, including those that the current Kafka has dropped."""
    spoken: Versions
    """The versions that a current client speaks: not dropped, and declared stable."""
    flexible: Versions
    body: Struct
    structs: list[Struct] = field(default_factory=list)

    @property
    def is_sent(self) -> bool:
        """True if the message is sent over connections by itself."""
        return self.kind in ("request", "response")


# --- reading the schemas ----------------------------------------------------------------------------------------------


Schema = dict[str, Any]
"""A schema, or a part of one, as the JSON has it."""


def read_schema(jar: zipfile.ZipFile, name: str) -> Schema | None:
    """Return the schema ``name``; None if the jar does not have it, or has no versions of it left."""
    try:
        text = jar.read(f"common/message/{name}.json").decode()
    except KeyError:
        return None
    schema: Schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return schema if Versions.parse(schema["validVersions"]) else None


def load(jar: zipfile.ZipFile, name: str, old_jar: zipfile.ZipFile | None = None) -> Message:
    """Return the message ``name``, including the versions that only ``old_jar`` has.

    Raises:
        KeyError: neither jar has it.
        ValueError: the generator does not support the schema.
    """
    schema, old = read_schema(jar, name), read_schema(old_jar, name) if old_jar else None
    if old and old_jar and old["type"] == "response":  # only requests say that their last version is not stable
        request = read_schema(old_jar, f"{name.removesuffix('Response')}Request") or {}
        old["latestVersionUnstable"] = request.get("latestVersionUnstable")
    if schema is None and old is None:
        raise KeyError(f"there is no schema of {name}")
    return message_of(merged(old, schema) if old and schema else schema or old or {}, schema or old or {})


def merged(old: Schema, new: Schema) -> Schema:
    """Return ``new`` with the stable versions of ``old`` that are lower than its lowest.

    Raises:
        ValueError: a field of both differs in those versions.
    """
    was, now = Versions.parse(old["validVersions"]), Versions.parse(new["validVersions"])
    dropped = Versions(was.lowest, min(was.highest - bool(old.get("latestVersionUnstable")), now.lowest - 1))
    if not dropped:
        return new
    both = dict(new, validVersions=f"{dropped.lowest}-{now.highest}")
    both["fields"] = merged_fields(old["fields"], new["fields"], dropped, new["name"])
    structs = {struct["name"]: struct for struct in new.get("commonStructs", [])}
    for struct in old.get("commonStructs", []):
        its = structs.get(struct["name"], {**struct, "fields": []})
        fields = merged_fields(struct["fields"], its["fields"], dropped, f"{new['name']}.{struct['name']}")
        structs[struct["name"]] = {**its, "fields": fields}
    both["commonStructs"] = list(structs.values())
    return both


def merged_fields(old: list[Schema], new: list[Schema], dropped: Versions, path: str) -> list[Schema]:
    """Return the fields of a struct.

    These are those of ``new`` and, in their places, those of ``old`` that only ``dropped`` versions have.
    """
    theirs = {f["name"]: f for f in old}
    both = []
    for f in new:
        if f["name"] in theirs:
            was = theirs[f["name"]]
            if in_versions(was, dropped) != in_versions(f, dropped):
                raise ValueError(f"{path}.{f['name']} is not the same in the dropped versions: {was}, now {f}")
            if "fields" in f:
                fields = merged_fields(was["fields"], f["fields"], dropped, f"{path}.{f['name']}")
                f = {**f, "fields": fields}  # noqa: PLW2901
        both.append(f)
    names = [f["name"] for f in both]
    after = 0
    for f in old:
        if f["name"] in names:
            after = names.index(f["name"]) + 1
        elif Versions.parse(f["versions"]) & dropped:
            versions = Versions.parse(f["versions"]) & dropped
            both.insert(after, {**f, "versions": f"{versions.lowest}-{versions.highest}"})
            names.insert(after, f["name"])
            after += 1
    return both


def in_versions(f: Schema, versions: Versions) -> tuple[object, ...]:
    """Return the properties that determine the bytes of a field in ``versions``."""
    kinds = (Versions.parse(f.get(kind)) & versions for kind in ("versions", "nullableVersions", "taggedVersions"))
    return (f["type"], f.get("default"), f.get("flexibleVersions"), *(kind if kind else None for kind in kinds))


def message_of(schema: Schema, spoken: Schema) -> Message:
    """Return the message of a whole schema; ``spoken`` is the part of it that the current Kafka has."""
    name = schema["name"]
    versions, now = Versions.parse(schema["validVersions"]), Versions.parse(spoken["validVersions"])
    unstable = 1 if schema.get("latestVersionUnstable") else 0
    message = Message(
        name=name,
        kind=schema["type"],
        key=schema.get("apiKey", -1),
        versions=versions,
        spoken=Versions(now.lowest, now.highest - unstable),
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
    """Add the struct ``name``, which occurs in the versions ``among``, to ``message``."""
    struct = Struct(name, among)
    message.structs.append(struct)
    struct.fields = [load_field(f, message, among) for f in fields]
    for f in struct.fields:
        if f.name in RESERVED or keyword.iskeyword(f.name):
            raise ValueError(f"{message.name}.{name} has a field named {f.name}")


def load_field(schema: dict[str, Any], message: Message, among: Versions) -> Field:
    """Return a field of a struct that occurs in the versions ``among``."""
    array = schema["type"].startswith("[]")
    type_name = schema["type"].removeprefix("[]")
    tagged = Versions.parse(schema.get("taggedVersions"))
    versions = Versions.parse(schema.get("versions") or schema["taggedVersions"])
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
    """Return Python code of a field's default: the schema's, or else the type's."""
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
