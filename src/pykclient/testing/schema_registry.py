"""A schema registry inside the process, for tests: Confluent's REST API on a real socket, with faults.

    with EmbeddedSchemaRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        registry.fail(status=503, times=2)

It stores subjects, versions, references, compatibility levels and modes, and checks the compatibility of Avro, JSON
Schema and Protobuf. A new version takes over the metadata and the rules of the one before. It stores encrypted keys of
fields, as a DEK registry does. Text of Protobuf needs Protobuf's compiler: ``pip install grpcio-tools``, or protoc on
the path.
"""

from __future__ import annotations

import base64
import http.server
import importlib.util
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import SerializationError
from pykclient.schema_registry.avro_types import loaded, named_schemas, parse_avro, resolution_problems
from pykclient.schema_registry.dek_registry import LATEST, Dek, DekAlgorithm, DekId, Kek, KekId
from pykclient.schema_registry.rest import load
from pykclient.schema_registry.schemas import (
    Association,
    AssociationCreateOrUpdateRequest,
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    MetadataTags,
    RegisteredSchema,
    Rule,
    RuleSet,
    Schema,
    ServerConfig,
)

_LEVELS: Final = tuple(ConfigCompatibilityLevel)


class RegistryRequest(NamedTuple):
    """A request that the registry received, and the status of its response."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any
    status: int


@dataclass(slots=True)
class _Fault:
    """A fault for the next requests whose path contains ``path``."""

    path: str
    status: int | None
    delay_ms: int
    drop: bool
    left: int | None
    retry_after: str | None = None


class _RefusedError(Exception):
    """An error of the API: a code, which begins with the HTTP status, and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.status = int(str(code)[:3])


@dataclass(slots=True, eq=False)
class _Version:
    schema: Schema
    schema_id: int
    version: int
    is_live: bool = True  # not deleted, or else not for good


#: How long the compiler of Protobuf may take, in seconds.
_LONGEST_RUN_S: Final = 60


def _compiled(text: str, imports: list[tuple[str, bytes]]) -> bytes:
    """Return the descriptor of a file of Protobuf. ``imports`` has the names and descriptors of others.

    Raises:
        ValueError: the text is not valid, or there is no compiler.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    from pykclient.schema_registry.protobuf import known_files

    command = [sys.executable, "-m", "grpc_tools.protoc"]
    if importlib.util.find_spec("grpc_tools") is None:
        found = shutil.which("protoc")
        if found is None:
            raise ValueError("text of Protobuf needs its compiler: pip install grpcio-tools")
        command = [found]
    known = FileDescriptorSet(file=[FileDescriptorProto.FromString(file) for file in known_files()])
    for name, file in imports:
        known.file.append(FileDescriptorProto.FromString(file))
        known.file[-1].name = name
    with tempfile.TemporaryDirectory() as folder:
        source, others, made = (Path(folder, name) for name in ("schema.proto", "others", "made"))
        source.write_text(text, encoding="utf-8")
        others.write_bytes(known.SerializeToString())
        options = [f"--proto_path={folder}", f"--descriptor_set_in={others}", f"--descriptor_set_out={made}"]
        try:
            run = subprocess.run(  # noqa: S603 - the compiler, with files of this process
                [*command, *options, source.name], capture_output=True, text=True, timeout=_LONGEST_RUN_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"the compiler of Protobuf has not ended within {_LONGEST_RUN_S} s") from None
        if run.returncode:
            raise ValueError(run.stderr.replace(f"{source.parent}{os.sep}", "").strip().replace("\n", "; "))
        compiled: bytes = FileDescriptorSet.FromString(made.read_bytes()).file[0].SerializeToString()
        return compiled


def _plain_file(text: str) -> str:
    """Return a file of Protobuf without what is not a part of the schema, such as its name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return text
    for name in ("name", "source_code_info"):
        file.ClearField(name)
    if file.syntax == "proto2":  # the default
        file.ClearField("syntax")
    rest = list(file.message_type)
    fields = list(file.extension)
    while rest:
        message = rest.pop()
        rest += message.nested_type
        fields += [*message.field, *message.extension]
    for field in fields:
        field.ClearField("json_name")
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _canonical(schema: Schema, normalize: bool) -> str:
    """Return a text that is the same for schemas that count as equal."""
    text = schema.schema_str or ""
    if schema.schema_type == "PROTOBUF":
        text = _plain_file(text)
    if schema.schema_type in ("AVRO", "JSON"):
        text = json.dumps(json.loads(text), sort_keys=normalize, separators=(",", ":"))
    rest = {**schema.to_dict(), "schema": text}
    rest["references"] = sorted(rest.get("references") or [], key=lambda row: str(row.get("name")))
    return json.dumps(rest, sort_keys=True)


def _is_found_by(given: Schema, held: Schema, normalize: bool) -> bool:
    """Return whether a version is the one that is looked up. Without metadata or rules, any are meant."""
    metadata, rules = given.metadata or held.metadata, given.rule_set or held.rule_set
    meant = Schema(given.schema_str, given.schema_type, given.references, metadata, rules)
    return _canonical(meant, normalize) == _canonical(held, normalize)


def _merged_metadata(older: Metadata | None, newer: Metadata | None) -> Metadata | None:
    if older is None or newer is None:
        return newer or older
    tags = {**(older.tags.tags if older.tags else {})}
    for path, names in (newer.tags.tags if newer.tags else {}).items():
        tags[path] = sorted({*tags.get(path, ()), *names})
    properties = {
        **(older.properties.properties if older.properties else {}),
        **(newer.properties.properties if newer.properties else {}),
    }
    sensitive = sorted({*(older.sensitive or ()), *(newer.sensitive or ())})
    return Metadata(
        MetadataTags(tags) if tags else None, MetadataProperties(properties) if properties else None, sensitive or None
    )


def _merged_rules(older: RuleSet | None, newer: RuleSet | None) -> RuleSet | None:
    """Return the rules of both; of two with the same name, the newer one."""
    if older is None or newer is None:
        return newer or older

    def merged(first: list[Rule] | None, second: list[Rule] | None) -> list[Rule] | None:
        names = {rule.name for rule in second or ()}
        return [*(rule for rule in first or () if rule.name not in names), *(second or ())] or None

    return RuleSet(
        merged(older.migration_rules, newer.migration_rules),
        merged(older.domain_rules, newer.domain_rules),
        merged(older.encoding_rules, newer.encoding_rules),
        newer.enable_at or older.enable_at,
    )


class EmbeddedSchemaRegistry:
    """A schema registry on a free port of 127.0.0.1. Thread: any."""

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        tokens: frozenset[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Without ``users`` (name to password) and ``tokens``, anyone may do anything."""
        self._users = users
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()  # guards all of the following
        self._subjects: dict[str, list[_Version]] = {}
        self._ids: dict[str, int] = {}
        self._last_id = 0
        self._levels: dict[str | None, dict[str, Any]] = {None: {"compatibility": "BACKWARD"}}
        self._modes: dict[str | None, str] = {None: "READWRITE"}
        self._associations: list[Association] = []
        #: Protobuf schemas that were sent as text, by their serialized form.
        self._texts: dict[str, str] = {}
        self._keks: dict[KekId, Kek] = {}
        self._deks: dict[DekId, Dek] = {}
        self._faults: list[_Fault] = []
        self._requests: list[RegistryRequest] = []
        self._held = threading.Event()  # set when no response is held
        self._held.set()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        if ssl_context is not None:
            self._server.socket = ssl_context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if ssl_context is None else "https"
        #: The address for clients.
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop; later connections are refused."""
        self._held.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def requests(self) -> list[RegistryRequest]:
        """The requests so far, oldest first."""
        with self._lock:
            return list(self._requests)

    def fail(self, status: int = 500, *, path: str = "", times: int | None = 1, retry_after: str | None = None) -> None:
        """Answer the next ``times`` requests (None: all) whose path contains ``path`` with an error.

        ``retry_after`` is the header Retry-After of these answers: seconds, or a date.
        """
        self._add(_Fault(path, status, 0, False, times, retry_after))

    def delay(self, delay_ms: int, *, path: str = "", times: int | None = 1) -> None:
        """Answer the next ``times`` requests late."""
        self._add(_Fault(path, None, delay_ms, False, times))

    def drop(self, *, path: str = "", times: int | None = 1) -> None:
        """Close the connections of the next ``times`` requests without an answer."""
        self._add(_Fault(path, None, 0, True, times))

    def hold(self) -> None:
        """Answer nothing until ``release`` is called."""
        self._held.clear()

    def release(self) -> None:
        """Answer the requests that are held, and later ones."""
        self._held.set()

    def heal(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()
        self._held.set()

    def _add(self, fault: _Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _fault_for(self, path: str) -> _Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.path in path and fault.left != 0:
                    if fault.left is not None:
                        fault.left -= 1
                    return fault
        return None

    def _answer(
        self, method: str, target: str, headers: dict[str, str], data: bytes
    ) -> tuple[int, Any, str | None] | None:
        """Return the status, the body and the Retry-After of a response; None to drop the connection."""
        parts = urllib.parse.urlsplit(target)
        query = urllib.parse.parse_qs(parts.query)
        try:
            body: Any = json.loads(data or b"null")
        except ValueError:
            body = data.decode(errors="replace")  # which no request has as its body
        fault = self._fault_for(parts.path)
        self._held.wait(60)
        if fault is not None and fault.delay_ms:
            self._clock.sleep_ms(fault.delay_ms)
        status: int
        answer: Any
        if fault is not None and fault.status is not None:
            status, answer = fault.status, {"error_code": fault.status * 100 + 1, "message": "a fault of the test"}
        elif not self._may_enter(headers):
            status, answer = 401, {"error_code": 40101, "message": "Unauthorized"}
        else:
            try:
                body = self._with_serialized(body)
                with self._lock:
                    path = [urllib.parse.unquote(part) for part in parts.path.strip("/").split("/")]
                    status, answer = 200, self._dispatch(method, path, query, body)
            except _RefusedError as error:
                status, answer = error.status, {"error_code": error.code, "message": str(error)}
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                # A body or a parameter that is not the API's. Without a response, clients would try again.
                status, answer = 400, {"error_code": 400, "message": f"Bad request: {error!r}"}
        with self._lock:
            self._requests.append(RegistryRequest(method, parts.path, query, headers, body, status))
        if fault is not None and fault.drop:
            return None
        return status, answer, None if fault is None else fault.retry_after

    def _with_serialized(self, body: Any) -> Any:
        """Return the body of a request with text of Protobuf compiled, and remember the text."""
        if not isinstance(body, dict) or body.get("schemaType") != "PROTOBUF" or _is_base64(body.get("schema")):
            return body
        with self._lock:
            imports = list(self._imports(Schema.from_dict(body), set()))
        try:
            made = base64.b64encode(_compiled(body["schema"], imports)).decode()
        except ValueError as error:
            raise _RefusedError(42201, f"Invalid schema: {error}") from None
        with self._lock:
            self._texts.setdefault(made, body["schema"])
        return {**body, "schema": made}

    def _imports(self, schema: Schema, seen: set[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the files that a schema imports, each after those that it imports itself."""
        for reference in schema.references or ():
            name = str(reference.name)
            if name not in seen:
                seen.add(name)
                target = self._resolve(str(reference.subject), int(reference.version or 0))
                yield from self._imports(target, seen)
                yield name, base64.b64decode(target.schema_str or "")

    def _shown(self, schema: Schema, query: dict[str, list[str]]) -> dict[str, Any]:
        """Return a schema in the format that a request asks for."""
        found = schema.to_dict()
        text = self._texts.get(found["schema"])
        return found if text is None or query.get("format") == ["serialized"] else {**found, "schema": text}

    def _may_enter(self, headers: dict[str, str]) -> bool:
        if self._users is None and self._tokens is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind == "Bearer":
            return given in (self._tokens or ())
        if kind != "Basic":
            return False
        user, _, password = base64.b64decode(given).decode().partition(":")
        return (self._users or {}).get(user) == password

    def _dispatch(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        handler = _ROOTS.get(path[0])
        found = None if handler is None else handler(self, method, path[1:], query, body)
        if found is None:
            raise _RefusedError(404, f"HTTP 404 Not Found: {method} {'/'.join(path)}")
        return found

    def _schemas(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        match method, path:
            case "GET", ["types"]:
                return ["JSON", "PROTOBUF", "AVRO"]
            case "GET", ["ids", number]:
                return self._full(lambda row: str(row.schema_id) == number, number, query)
            case "GET", ["guids", guid]:
                return self._full(lambda row: _guid(row.schema) == guid, guid, query)
            case "GET", ["ids", number, ("subjects" | "versions") as what]:
                rows = [
                    (subject, row.version)
                    for subject, versions in self._subjects.items()
                    for row in versions
                    if str(row.schema_id) == number and row.is_live
                ]
                if not rows:
                    raise _RefusedError(40403, f"Schema {number} not found")
                if what == "subjects":
                    return sorted({subject for subject, _ in rows})
                return [{"subject": subject, "version": version} for subject, version in rows]
        return None

    def _full(self, is_meant: Callable[[_Version], bool], name: str, query: dict[str, list[str]]) -> Any:
        """Return the schema of the first version that is meant, which may be deleted, but not for good."""
        for row in (row for rows in self._subjects.values() for row in rows):
            if is_meant(row):
                return {**self._shown(row.schema, query), "id": row.schema_id, "guid": _guid(row.schema)}
        raise _RefusedError(40403, f"Schema {name} not found")

    def _versions_of(self, subject: str, deleted: bool = False) -> list[_Version]:
        rows = [row for row in self._subjects.get(subject, ()) if deleted or row.is_live]
        if not rows:
            raise _RefusedError(40401, f"Subject '{subject}' not found.")
        return rows

    def _version(self, subject: str, text: str, deleted: bool) -> _Version:
        rows = self._versions_of(subject, deleted)
        if text in ("latest", "-1"):
            return rows[-1]
        for row in rows:
            if str(row.version) == text:
                return row
        raise _RefusedError(40402, f"Version {text} not found.")

    def _registered(self, subject: str, row: _Version, query: dict[str, list[str]]) -> Any:
        made = RegisteredSchema(subject, row.version, row.schema_id, _guid(row.schema), row.schema).to_dict()
        return {**made, **self._shown(row.schema, query)}

    def _subjects_route(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        deleted, normalize = _flag(query, "deleted"), _flag(query, "normalize")
        match method, path:
            case "GET", []:
                prefix = query.get("subjectPrefix", [""])[0]
                names = [name for name in self._subjects if name.startswith(prefix)]
                return sorted(name for name in names if deleted or any(row.is_live for row in self._subjects[name]))
            case "POST", [subject]:
                given = self._checked(body)
                for row in reversed(self._versions_of(subject, deleted)):
                    if _is_found_by(given, row.schema, normalize):
                        return self._registered(subject, row, query)
                raise _RefusedError(40403, "Schema not found")
            case "POST", [subject, "versions"]:
                return self._register(subject, self._checked(body), normalize, query)
            case "GET", [subject, "versions"]:
                return [row.version for row in self._versions_of(subject, deleted)]
            case "GET", [subject, "versions", version]:
                return self._registered(subject, self._version(subject, version, deleted), query)
            case "GET", [subject, "versions", version, "schema"]:
                shown = self._shown(self._version(subject, version, deleted).schema, query)
                return json.loads(shown["schema"]) if shown.get("schemaType") != "PROTOBUF" else shown["schema"]
            case "GET", [subject, "versions", version, "referencedby"]:
                return self._referrers(subject, self._version(subject, version, True).version)
            case "GET", [subject, "metadata"]:
                wanted_pairs = dict(zip(query.get("key", []), query.get("value", []), strict=True))
                for row in reversed(self._versions_of(subject, deleted)):
                    held = row.schema.metadata and row.schema.metadata.properties
                    if held and wanted_pairs.items() <= held.properties.items():
                        return self._registered(subject, row, query)
                raise _RefusedError(40402, "No version has this metadata.")
            case "DELETE", [subject]:
                rows = self._versions_of(subject, _flag(query, "permanent"))
                return self._delete(subject, rows, query, 40405, f"Subject '{subject}'")
            case "DELETE", [subject, "versions", version]:
                row = self._version(subject, version, _flag(query, "permanent"))
                return self._delete(subject, [row], query, 40407, f"Subject '{subject}' Version {version}")[0]
        return None

    def _delete(
        self, subject: str, rows: list[_Version], query: dict[str, list[str]], code: int, name: str
    ) -> list[int]:
        if _flag(query, "permanent") and any(row.is_live for row in rows):
            raise _RefusedError(code, f"{name} was not deleted first before being permanently deleted")
        for row in rows:
            users = self._referrers(subject, row.version)
            if users:
                raise _RefusedError(42206, f"Version {row.version} is referenced by schemas {users}.")
        for row in rows:
            row.is_live = False
            if _flag(query, "permanent"):
                self._subjects[subject].remove(row)
        if not self._subjects[subject]:
            del self._subjects[subject]
        used = {row.schema_id for rows in self._subjects.values() for row in rows}
        self._ids = {text: number for text, number in self._ids.items() if number in used}
        return [row.version for row in rows]

    def _referrers(self, subject: str, version: int) -> list[int]:
        return [
            row.schema_id
            for name, rows in self._subjects.items()
            for row in rows
            if row.is_live
            and any((ref.subject, ref.version) == (subject, version) for ref in row.schema.references or ())
        ]

    def _register(self, subject: str, schema: Schema, normalize: bool, query: dict[str, list[str]]) -> Any:
        if self._mode_of(subject) in ("READONLY", "READONLY_OVERRIDE"):
            raise _RefusedError(42205, f"Subject {subject} is in read-only mode")
        rows = [row for row in self._subjects.get(subject, ()) if row.is_live]
        schema = self._completed(subject, schema, rows[-1].schema if rows else None)
        canonical = _canonical(schema, normalize)
        for row in rows:
            if _canonical(row.schema, normalize) == canonical:
                return self._registered(subject, row, query)
        problems = self._problems(subject, schema, rows)
        if problems:
            raise _RefusedError(
                409,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
                f"[{'; '.join(problems)}]",
            )
        number = self._ids.setdefault(canonical, self._last_id + 1)
        self._last_id = max(self._last_id, number)
        every = self._subjects.setdefault(subject, [])
        row = _Version(schema, number, every[-1].version + 1 if every else 1)
        every.append(row)
        return self._registered(subject, row, query)

    def _completed(self, subject: str, schema: Schema, before: Schema | None) -> Schema:
        """Return a schema with the metadata and rules of the version before, and those of the configuration."""
        config = ServerConfig.from_dict({**self._levels[None], **self._levels.get(subject, {})})
        before = before or Schema(None)
        metadata = _merged_metadata(config.default_metadata, schema.metadata or before.metadata)
        rules = _merged_rules(config.default_rule_set, schema.rule_set or before.rule_set)
        return Schema(
            schema.schema_str,
            schema.schema_type,
            schema.references,
            _merged_metadata(metadata, config.override_metadata),
            _merged_rules(rules, config.override_rule_set),
        )

    def _problems(self, subject: str, schema: Schema, rows: list[_Version]) -> list[str]:
        level = self._level_of(subject)
        if not level.endswith("_TRANSITIVE"):
            rows = rows[-1:]
        found: list[str] = []
        kind = level.removesuffix("_TRANSITIVE")
        for row in reversed(rows if kind != "NONE" else ()):
            if row.schema.schema_type != schema.schema_type:
                found.append(f"the type of version {row.version} is {row.schema.schema_type}")
                continue
            if kind in ("BACKWARD", "FULL"):
                found += _problems_between(schema, row.schema, self._resolve)
            if kind in ("FORWARD", "FULL"):
                found += _problems_between(row.schema, schema, self._resolve)
        return found

    def _resolve(self, subject: str, version: int) -> Schema:
        return self._version(subject, str(version), True).schema

    def _checked(self, body: Any) -> Schema:
        """Return the schema of a request.

        Raises:
            _RefusedError: it is not valid.
        """
        schema = Schema.from_dict(body)
        try:
            if schema.schema_type == "AVRO":
                _avro(schema, self._resolve)
            elif schema.schema_type == "JSON":
                json.loads(schema.schema_str or "")
            elif schema.schema_type == "PROTOBUF":
                base64.b64decode(schema.schema_str or "", validate=True)
            else:
                raise ValueError(f"the type {schema.schema_type} is unknown")
        except (SerializationError, ValueError) as error:
            raise _RefusedError(42201, f"Invalid schema: {error}") from None
        return schema

    def _compatibility(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        match method, path:
            case "POST", ["subjects", subject, "versions", *version]:
                rows = self._versions_of(subject)
                if version:
                    rows = [self._version(subject, version[0], False)]
                problems = self._problems(subject, self._checked(body), rows)
                told = {"messages": problems} if _flag(query, "verbose") else {}
                return {"is_compatible": not problems, **told}
        return None

    def _level_of(self, subject: str | None) -> str:
        own = self._levels.get(subject, {}).get("compatibility")
        return str(own or self._levels[None]["compatibility"])

    def _config(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        subject = path[0] if path else None
        if method == "PUT":
            if body.get("compatibility", "NONE") not in _LEVELS:
                raise _RefusedError(42203, "Invalid compatibility level. Valid values are " + ", ".join(_LEVELS))
            self._levels[subject] = {**self._levels.get(subject, {}), **body}
            return body
        if subject is not None and subject not in self._levels and not _flag(query, "defaultToGlobal"):
            raise _RefusedError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        held = dict(self._levels.get(subject) or self._levels[None])
        if method == "DELETE" and subject is not None:
            del self._levels[subject]
            return held
        if method == "DELETE":
            self._levels[None] = {"compatibility": "BACKWARD"}
            return held
        return {**held, "compatibilityLevel": held.pop("compatibility", self._level_of(subject))}

    def _mode_of(self, subject: str | None) -> str:
        return self._modes.get(subject) or self._modes[None]

    def _mode(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        subject = path[0] if path else None
        if method == "PUT":
            self._modes[subject] = body["mode"]
        elif subject is not None and subject not in self._modes and not _flag(query, "defaultToGlobal"):
            raise _RefusedError(40409, f"Subject '{subject}' does not have subject-level mode configured")
        held = self._mode_of(subject)
        if method == "DELETE" and subject is not None:
            del self._modes[subject]
        return {"mode": held}

    def _associations_route(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        kinds = query.get("resourceType", [])
        types = query.get("associationType", [])

        def is_meant(row: Association) -> bool:
            return (not kinds or row.resource_type in kinds) and (not types or row.association_type in types)

        match method, path:
            case "POST", []:
                asked = AssociationCreateOrUpdateRequest.from_dict(body)
                for one in asked.associations or ():
                    if one.subject is None:
                        raise _RefusedError(42212, "an association needs a subject")
                    if one.schema is not None:
                        self._register(one.subject, self._checked(one.schema.to_dict()), bool(one.normalize), query)
                    row = Association(
                        one.subject,
                        str(uuid.uuid4()),
                        asked.resource_name,
                        asked.resource_namespace,
                        asked.resource_id,
                        asked.resource_type or "topic",
                        one.association_type or "value",
                        bool(one.frozen),
                    )
                    self._associations.append(row)
                return body
            case "GET", ["resources", space, name]:
                rows = [row for row in self._associations if row.resource_name == name and is_meant(row)]
                return [row.to_dict() for row in rows if space in ("-", row.resource_namespace)]
            case "DELETE", ["resources", number]:
                self._associations = [
                    row for row in self._associations if row.resource_id != number or not is_meant(row)
                ]
                return {}
        return None

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _keys(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        context = query.get("context", [None])[0]
        now_ms = self._clock.wall_ms()
        match method, path:
            case "GET", ["v1", "keks"]:
                return sorted(place.name for place in self._keks if place.context == context)
            case "POST", ["v1", "keks"]:
                kek = Kek.from_dict({**body, "ts": now_ms})
                if not (kek.name and kek.kms_type and kek.kms_key_id):
                    raise _RefusedError(42272, "A KEK needs name, kmsType and kmsKeyId")
                if kek.shared:
                    raise _RefusedError(42272, "Shared keys need a key management service, which this has not")
                if self._keks.setdefault(KekId(kek.name, False, context), kek) is not kek:
                    raise _RefusedError(40972, f"Key '{kek.name}' already exists")
                return kek.to_dict()
            case "GET" | "DELETE", ["v1", "keks", name]:
                kek = self._kek(name, context)
                if method == "DELETE":
                    if any(place.kek_name == name for place in self._deks):
                        raise _RefusedError(42273, f"Key '{name}' has data encryption keys")
                    del self._keks[KekId(name, False, context)]
                return kek.to_dict()
            case _, ["v1", "keks", name, "deks", *rest]:
                if not any(place.name == name for place in self._keks):
                    raise _RefusedError(40470, f"Key '{name}' not found")
                return self._dek(method, name, rest, query, body, now_ms)
        return None

    def _kek(self, name: str, context: str | None) -> Kek:
        found = self._keks.get(KekId(name, False, context))
        if found is None:
            raise _RefusedError(40470, f"Key '{name}' not found")
        return found

    def _dek(self, method: str, name: str, path: list[str], query: dict[str, list[str]], body: Any, now_ms: int) -> Any:
        if method == "POST":
            dek = Dek.from_dict({"version": 1, "algorithm": "AES256_GCM", **body, "kekName": name, "ts": now_ms})
            dek.subject = path[0] if path else dek.subject
            if dek.subject is None or dek.version is None or dek.algorithm is None or not dek.encrypted_key_material:
                raise _RefusedError(42272, "A DEK needs a subject and encryptedKeyMaterial")
            place = DekId(name, dek.subject, dek.version, dek.algorithm)
            if self._deks.setdefault(place, dek) is not dek:
                raise _RefusedError(40972, f"Key {place.subject!r}, version {place.version}, already exists")
            return dek.to_dict()
        if not path:
            return sorted({place.subject for place in self._deks if place.kek_name == name})
        algorithm = DekAlgorithm(query.get("algorithm", ["AES256_GCM"])[0])
        held = {
            place.version: dek
            for place, dek in self._deks.items()
            if (place.kek_name, place.subject, place.algorithm) == (name, path[0], algorithm)
        }
        wanted = path[2] if len(path) > 2 else "1"
        number = max(held, default=0) if wanted in ("latest", str(LATEST)) else int(wanted)
        if path[1:] == ["versions"] and held and method == "GET":
            return sorted(held)
        if number not in held:
            raise _RefusedError(40470, f"Key {path[0]!r}, version {wanted}, not found")
        if method == "DELETE":
            del self._deks[DekId(name, path[0], number, algorithm)]
        return held[number].to_dict()

    def _contexts(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> Any:
        return ["."] if method == "GET" else None


#: The handlers of requests, by the first part of the path.
_ROOTS: Final[dict[str, Callable[..., Any]]] = {
    "schemas": EmbeddedSchemaRegistry._schemas,
    "subjects": EmbeddedSchemaRegistry._subjects_route,
    "compatibility": EmbeddedSchemaRegistry._compatibility,
    "config": EmbeddedSchemaRegistry._config,
    "mode": EmbeddedSchemaRegistry._mode,
    "associations": EmbeddedSchemaRegistry._associations_route,
    "contexts": EmbeddedSchemaRegistry._contexts,
    "dek-registry": EmbeddedSchemaRegistry._keys,
}


def _flag(query: dict[str, list[str]], name: str) -> bool:
    return query.get(name, ["false"])[0].lower() == "true"


def _is_base64(text: Any) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (TypeError, ValueError):
        return False


def _guid(schema: Schema) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, _canonical(schema, False)))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients of tests disconnect when they like."""


def _handler(registry: EmbeddedSchemaRegistry) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = registry._answer(self.command, self.path, headers, data)
            if answer is None:
                self.close_connection = True
                return
            status, body, retry_after = answer
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            if retry_after is not None:
                self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


# --- compatibility of schemas -----------------------------------------------------------------------------------------

_Resolve = Callable[[str, int], Schema]


def _problems_between(reader: Schema, writer: Schema, resolve: _Resolve) -> list[str]:
    """Return the reasons why ``reader`` cannot read data of ``writer``; an empty list if it can.

    Avro follows the specification's schema resolution. The rules for JSON Schema and Protobuf are those of common
    changes; a real registry knows more of them.

    ``resolve`` returns the schema of a subject and a version, for references.
    """
    if reader.schema_type == "AVRO":
        return resolution_problems(_avro(reader, resolve), _avro(writer, resolve))
    if reader.schema_type == "JSON":
        return list(_json_problems(json.loads(reader.schema_str or "{}"), json.loads(writer.schema_str or "{}"), "#"))
    return _protobuf_problems(reader, writer)


def _avro(schema: Schema, resolve: _Resolve) -> Any:
    return parse_avro(loaded(schema.schema_str or ""), named_schemas(schema, resolve))


# --- JSON Schema -----------------------------------------------------------------------------------------------------


def _json_types(schema: Any) -> set[str]:
    found = schema.get("type") if isinstance(schema, dict) else None
    kinds = {found} if isinstance(found, str) else set(found or ())
    return kinds | {"integer"} if "number" in kinds else kinds


def _json_problems(reader: Any, writer: Any, path: str) -> list[str]:
    if reader is True or reader == {} or writer is False or reader == writer:
        return []
    if not isinstance(reader, dict) or not isinstance(writer, dict):
        return [f"{path}: the reader accepts nothing"] if reader is False else []
    found: list[str] = []
    read, written = _json_types(reader), _json_types(writer)
    if read and not (written and written <= read):
        found.append(f"{path}: the reader's type {_named(read)} does not accept the writer's {_named(written)}")
    if "enum" in reader and not ("enum" in writer and all(value in reader["enum"] for value in writer["enum"])):
        found.append(f"{path}: the reader's enum lacks values that the writer may write")
    for name, is_tighter in _BOUNDS.items():
        if name in reader and (name not in writer or is_tighter(reader[name], writer[name])):
            found.append(f"{path}: the reader's {name} is {reader[name]}, the writer's {writer.get(name, 'unlimited')}")
    properties, others = reader.get("properties", {}), writer.get("properties", {})
    found += [
        f"{path}/{name}: the reader requires this property, and the writer does not"
        for name in reader.get("required", ())
        if name not in writer.get("required", ()) and "default" not in properties.get(name, {})
    ]
    for name, schema in properties.items():
        if name in others:
            found += _json_problems(schema, others[name], f"{path}/{name}")
    if reader.get("additionalProperties") is False:
        found += [f"{path}/{name}: the reader does not allow it" for name in others if name not in properties]
        if writer.get("additionalProperties", True) is not False:
            found.append(f"{path}: the writer allows more properties, and the reader does not")
    if "items" in reader and "items" in writer:
        found += _json_problems(reader["items"], writer["items"], f"{path}[]")
    return found


_BOUNDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "maximum": lambda reader, writer: reader < writer,
    "maxLength": lambda reader, writer: reader < writer,
    "maxItems": lambda reader, writer: reader < writer,
    "minimum": lambda reader, writer: reader > writer,
    "minLength": lambda reader, writer: reader > writer,
    "minItems": lambda reader, writer: reader > writer,
}


def _named(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds)) or "any"


# --- Protobuf --------------------------------------------------------------------------------------------------------

#: Scalar types whose bytes are the same, by group.
_WIRE_GROUPS: Final = (
    frozenset(("TYPE_INT32", "TYPE_INT64", "TYPE_UINT32", "TYPE_UINT64", "TYPE_BOOL", "TYPE_ENUM")),
    frozenset(("TYPE_SINT32", "TYPE_SINT64")),
    frozenset(("TYPE_FIXED32", "TYPE_SFIXED32")),
    frozenset(("TYPE_FIXED64", "TYPE_SFIXED64")),
    frozenset(("TYPE_STRING", "TYPE_BYTES")),
)


def _protobuf_problems(reader: Schema, writer: Schema) -> list[str]:
    pb2 = load("google.protobuf.descriptor_pb2", "protobuf")

    def file(schema: Schema) -> Any:
        return pb2.FileDescriptorProto.FromString(base64.b64decode(schema.schema_str or ""))

    def name_of(field: Any) -> str:
        return str(pb2.FieldDescriptorProto.Type.Name(field.type))

    def check(reader: Any, writer: Any, path: str) -> list[str]:
        found: list[str] = []
        by_number = {field.number: field for field in reader.field}
        for field in writer.field:
            mine = by_number.get(field.number)
            if mine is None or (mine.type == field.type and mine.type_name == field.type_name):
                continue
            if not any(name_of(mine) in group and name_of(field) in group for group in _WIRE_GROUPS):
                found.append(
                    f"{path}.{mine.name}: field {field.number} is {name_of(mine)} {mine.type_name} for the reader, and "
                    f"{name_of(field)} {field.type_name} for the writer"
                )
        return found + check_all(reader.nested_type, writer.nested_type, path)

    def check_all(readers: Any, writers: Any, path: str) -> list[str]:
        found: list[str] = []
        by_name = {message.name: message for message in readers}
        for message in writers:
            inner = f"{path}.{message.name}" if path else message.name
            if message.name not in by_name:
                found.append(f"{inner}: the reader has no such message")
            else:
                found += check(by_name[message.name], message, inner)
        return found

    mine, other = file(reader), file(writer)
    if mine.package != other.package:
        return [f"the reader's package is {mine.package!r}, the writer's {other.package!r}"]
    return check_all(mine.message_type, other.message_type, "")
