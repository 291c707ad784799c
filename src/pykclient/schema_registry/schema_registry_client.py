"""The client of a schema registry (Confluent's REST API, which Apicurio, Karapace and Redpanda have as well).

Answers that cannot change are cached: schemas by id and GUID, and the ids of registered schemas. One request per
request is in flight at a time, and all threads with the same request wait for it.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import inspect
import json
import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import NoneType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.schema_registry.rest import APICURIO, RestClient, read_config, renewed_after_fork
from pykclient.schema_registry.schemas import (
    Association,
    AssociationCreateOrUpdateRequest,
    AssociationResponse,
    ConfigCompatibilityLevel,
    RegisteredSchema,
    Schema,
    SchemaRegistryError,
    SchemaVersion,
    ServerConfig,
)

T = TypeVar("T")
P = ParamSpec("P")

_SERVER_ERROR: Final = 500
#: The format of Protobuf schemas that serializers ask for: a FileDescriptorProto in base64.
SERIALIZED: Final = "serialized"
#: The most threads of an asynchronous client, each of which waits for one response.
_MOST_THREADS: Final = 8
_CUSTOM: Final = "bearer.auth.custom.provider.function"
#: How long a request waits for an application's coroutine, in seconds.
_LONGEST_FUNCTION_S: Final = 30


class BoundedCache(Generic[T]):
    """The most recently used answers by request, each with an optional time of expiry. Thread: any."""

    def __init__(self, capacity: int, clock: Clock) -> None:
        renewed_after_fork.add(self)
        self._capacity = capacity
        self._clock = clock
        self._lock = threading.Lock()  # guards _entries
        self._entries: OrderedDict[Hashable, tuple[T, int | None]] = OrderedDict()

    def after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may have held. What it was about to change may be lost."""
        self._lock = threading.Lock()
        self._entries = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """Return the answer; None if it is unknown or has expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry[1] is not None and entry[1] <= self._clock.now_ms():
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: T, ttl_s: float | None = None) -> None:
        """Keep an answer, for ``ttl_s`` seconds or for as long as there is room."""
        expiry_ms = None if ttl_s is None else self._clock.now_ms() + int(ttl_s * 1000)
        with self._lock:
            self._entries[key] = (value, expiry_ms)
            self._entries.move_to_end(key)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)

    def got(self, key: Hashable, ask: Callable[[], T], ttl_s: float | None = None) -> T:
        """Return the answer; what ``ask`` returns if it is unknown or has expired, which is kept as by ``put``."""
        found = self.get(key)
        if found is None:
            found = ask()
            self.put(key, found, ttl_s)
        return found

    def remove(self, wanted: Callable[[Any], bool] = lambda _: True) -> None:
        """Forget the answers to requests for which ``wanted`` is true."""
        with self._lock:
            for key in [key for key in self._entries if wanted(key)]:
                del self._entries[key]


class _InterruptedError(Exception):
    """The thread that asked has not got as far as an answer or an error."""


def _without_notes(error: SchemaRegistryError) -> SchemaRegistryError:
    """Return a copy of an error for another thread, which adds notes of its own."""
    made = copy.copy(error)
    made.__dict__.pop("__notes__", None)
    return made


class _Flights:
    """Requests in flight: a caller with the same request waits for the answer to the first. Thread: any."""

    def __init__(self) -> None:
        renewed_after_fork.add(self)
        self._lock = threading.Lock()  # guards _flights
        self._flights: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, ask: Callable[[], T], limit_s: float) -> T:
        """Return what ``ask`` returns, in this thread or in the one that asks already."""
        made: Future[T] = Future()
        try:
            while True:
                with self._lock:
                    flight = self._flights.setdefault(key, made)
                if flight is made:
                    break
                try:
                    found: T = flight.result(limit_s)
                    return found
                except _InterruptedError:
                    continue  # the thread that asked was interrupted, and this one was not
                except SchemaRegistryError as error:
                    raise _without_notes(error) from error.__cause__
                except TimeoutError:
                    text = f"another thread has waited for this for more than {limit_s:.0f} s"
                    raise SchemaRegistryError(-1, -1, text) from None
            made.set_result(ask())
        except Exception as error:
            made.set_exception(error)
            raise
        finally:
            with self._lock:
                if self._flights.get(key) is made:
                    del self._flights[key]
            if not made.done():
                made.set_exception(_InterruptedError())
        return made.result()

    def after_fork(self) -> None:
        """Forget the requests of the parent's threads, which do not exist in a child."""
        self._lock = threading.Lock()
        self._flights = {}


def quoted(name: str) -> str:
    """Return a name as part of a path."""
    return urllib.parse.quote(name, safe="")


class ConfiguredClient:
    """Base of the clients of registries, without their requests."""

    _conf: dict[str, Any]

    @classmethod
    def new_client(cls, conf: Mapping[str, Any]) -> Self:
        """Return a client for the configuration."""
        return cls(conf)  # type: ignore[call-arg]

    def config(self) -> dict[str, Any]:
        """Return the configuration that was given."""
        return self._conf

    def close(self) -> None:
        """Close the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SchemaRegistryClient(ConfiguredClient):
    """A schema registry's client, for threads. Thread: any.

        registry = SchemaRegistryClient({"url": "http://localhost:8081"})

    The keys are confluent-kafka's (``url``, ``basic.auth.user.info``, ``bearer.auth.*``, ``proxy``, ``timeout``,
    ``max.retries``, ``cache.capacity`` ...) and the TLS keys of the Kafka clients. All methods raise
    SchemaRegistryError if the registry refuses or cannot be reached; the error says what was asked of which registry.
    """

    clock: Clock = SYSTEM_CLOCK
    #: How long the latest version of a subject counts, in seconds; None: for as long as the client lives.
    latest_ttl_s: float | None = None

    def __init__(self, conf: Mapping[str, Any] | None = None, /, *, clock: Clock = SYSTEM_CLOCK, **more: Any) -> None:
        """Check the configuration; nothing is sent yet.

        Raises:
            ConfigError: a key is unknown, or has a wrong value.
        """
        self._conf = {**(conf or {}), **more}
        config = read_config(self._conf)
        #: The client's HTTP, which a client of the DEK registry shares.
        self.rest = RestClient(config, clock)
        self.clock = clock
        capacity = config["cache.capacity"]
        self.latest_ttl_s = config["cache.latest.ttl.sec"]
        self._missing_ttl_s: float = config["cache.missing.ttl.sec"]
        attempts = config["max.retries"] + 1
        self._limit_s = attempts * (config["timeout"] + config["retries.max.wait.ms"] / 1000) * 4
        self._schemas: BoundedCache[Schema] = BoundedCache(capacity, clock)
        self._cache: BoundedCache[RegisteredSchema] = BoundedCache(capacity, clock)
        #: The ids of contents by Apicurio's global ids.
        self._global_ids: BoundedCache[int] = BoundedCache(capacity, clock)
        self._latest: BoundedCache[RegisteredSchema] = BoundedCache(capacity, clock)
        self._missing: BoundedCache[SchemaRegistryError] = BoundedCache(capacity, clock)
        self._flights = _Flights()

    def close(self) -> None:
        """Close the connections."""
        self.rest.close()

    @property
    def name(self) -> str:
        """The registry's addresses, for messages."""
        return self.rest.name

    @property
    def _rest_client(self) -> RestClient:
        """``rest`` by confluent-kafka's name, which programs use for paths that have no method."""
        return self.rest

    def _read(self, make: Callable[[Any], T], answer: Any, path: str) -> T:
        """Return what ``make`` reads out of an answer.

        Raises:
            SchemaRegistryError: the answer is of another form.
        """
        try:
            return make(answer)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            text = f"the response is JSON, but not what a schema registry returns ({type(error).__name__}: {error})"
            raise SchemaRegistryError(-1, -1, text, f"{path} of the schema registry {self.name}") from error

    def _ask(
        self,
        make: Callable[[Any], T],
        path: str,
        query: Mapping[str, Any] | None = None,
        method: str = "GET",
        body: Any = None,
    ) -> T:
        """Return what ``make`` reads out of the answer to a request. Raises as ``_read``."""
        return self._read(make, self.rest.send(method, path, query, body), path)

    def _list(self, path: str, query: Mapping[str, Any] | None = None, make: Callable[[Any], Any] = str) -> list[Any]:
        """Return the list at a path, with each row made by ``make``."""
        return self._ask(_list_of(make), path, query)

    # --- schemas ------------------------------------------------------------------------------------------------------

    def get_schema(
        self,
        schema_id: int,
        subject_name: str | None = None,
        fmt: str | None = None,
        reference_format: str | None = None,
    ) -> Schema:
        """Return the schema with an id. Schemas are cached, and for a short time also missing ids.

        ``subject_name`` tells registries with contexts where to look. ``fmt`` is the format of the text, such as
        ``serialized`` for Protobuf.
        """
        query = {"subject": subject_name, "format": fmt, "reference_format": reference_format}
        return self._by_id(("id", schema_id, subject_name, fmt, reference_format), f"schemas/ids/{schema_id}", query)

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        """Return the schema of a GUID. It is cached."""
        return self._by_id(("guid", guid, fmt), f"schemas/guids/{quoted(guid)}", {"format": fmt})

    def get_schema_by_global_id(self, global_id: int, fmt: str | None = None) -> Schema:
        """Return the schema of a version's global id in Apicurio's registry. Its ids elsewhere are those of contents.

        Raises:
            SchemaRegistryError: no version has this id, or the URL is not that of Apicurio's ``/apis/ccompat``.
        """
        number = self._global_ids.get(global_id)
        if number is None:
            path = f"{APICURIO}search/versions"
            versions = self._ask(lambda found: found["versions"], path, {"globalId": global_id})
            if not versions:
                raise SchemaRegistryError(404, 40403, f"No version has the global id {global_id}")
            number = self._read(lambda found: int(found[0]["contentId"]), versions, path)
            self._global_ids.put(global_id, number)
        return self.get_schema(number, None, fmt)

    def _by_id(self, key: tuple[Any, ...], path: str, query: dict[str, Any]) -> Schema:
        missing = None if self._schemas.get(key) is not None else self._missing.get(key)
        if missing is not None:
            raise SchemaRegistryError(
                missing.http_status_code,
                missing.error_code,
                missing.error_message,
                f"{missing.asked} (asked less than {self._missing_ttl_s:g} s ago)",
            )

        def ask() -> Schema:
            try:
                return self._ask(_with_text, path, query)
            except SchemaRegistryError as error:
                if error.is_unknown:
                    self._missing.put(key, error, self._missing_ttl_s)
                if error.http_status_code != _SERVER_ERROR or query.get("format") != SERIALIZED:
                    raise
                return self._as_stored(path, query, error)

        return self._once(self._schemas, key, ask)

    def _as_stored(self, path: str, query: dict[str, Any], failure: SchemaRegistryError) -> Schema:
        """Return a schema of Protobuf without converting it, if it is stored as ``serialized``.

        Apicurio takes schemas in that form, and then fails to return them in it. Raises ``failure`` for any other.
        """
        made = self._ask(_with_text, path, {**query, "format": None})
        try:
            base64.b64decode(made.schema_str or "-", validate=True)
        except ValueError:
            raise failure from None
        return made

    def _once(self, cache: BoundedCache[T], key: Hashable, ask: Callable[[], T], ttl_s: float | None = None) -> T:
        """Return what is cached, or what ``ask`` returns; one thread asks at a time, and the others wait."""

        found = cache.get(key)
        return self._flights.run(key, lambda: cache.got(key, ask, ttl_s), self._limit_s) if found is None else found

    def get_schema_types(self) -> list[str]:
        """Return the types of schemas that the registry supports."""
        return self._list("schemas/types")

    def get_subjects_by_schema_id(
        self, schema_id: int, subject_name: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[str]:
        """Return the subjects that a schema is registered for."""
        query = {"subject": subject_name, "deleted": deleted, "offset": offset, "limit": limit}
        return self._list(f"schemas/ids/{schema_id}/subjects", query)

    def get_schema_versions(
        self, schema_id: int, subject_name: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[SchemaVersion]:
        """Return the subjects and versions that a schema is registered as."""
        query = {"subject": subject_name, "deleted": deleted, "offset": offset, "limit": limit}
        return self._list(f"schemas/ids/{schema_id}/versions", query, SchemaVersion.from_dict)

    # --- subjects -----------------------------------------------------------------------------------------------------

    def register_schema(self, subject_name: str, schema: Schema, normalize_schemas: bool = False) -> int:
        """Register a schema, if it is not registered yet, and return its id.

        Raises:
            SchemaRegistryError: it is not compatible with earlier versions, for instance; the text is the registry's.
        """
        found = self.register_schema_full_response(subject_name, schema, normalize_schemas)
        assert found.schema_id is not None
        return found.schema_id

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """Register a schema, if it is not registered yet, and return it with its ids. The answer is cached."""
        key = ("register", subject_name, _compact(schema), normalize_schemas)

        def ask() -> RegisteredSchema:
            path = f"subjects/{quoted(subject_name)}/versions"
            made = self._posted(path, subject_name, schema, {"normalize": normalize_schemas})
            self._missing.remove()
            self._latest.remove(lambda known: known[1] == subject_name)
            return made

        return self._once(self._cache, key, ask)

    def lookup_schema(
        self,
        subject_name: str,
        schema: Schema,
        normalize_schemas: bool = False,
        fmt: str | None = None,
        deleted: bool = False,
    ) -> RegisteredSchema:
        """Return the version that a schema is registered as. The answer is cached.

        Raises:
            SchemaRegistryError: it is not registered for this subject.
        """
        key = ("lookup", subject_name, _compact(schema), normalize_schemas, fmt, deleted)
        path = f"subjects/{quoted(subject_name)}"
        query = {"normalize": normalize_schemas, "format": fmt, "deleted": deleted}
        return self._once(self._cache, key, lambda: self._posted(path, subject_name, schema, query))

    def _posted(self, path: str, subject_name: str, schema: Schema, query: dict[str, Any]) -> RegisteredSchema:
        """Send a schema, and return what it is registered as."""
        got = self._ask(_with_id, path, query, "POST", schema.to_dict())
        text = got.schema if got.schema.schema_str is not None else schema
        return RegisteredSchema(got.subject or subject_name, got.version, got.schema_id, got.guid, text)

    def get_subjects(
        self,
        subject_prefix: str | None = None,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """Return the names of the subjects."""
        page = {"deleted": deleted, "deletedOnly": deleted_only, "offset": offset, "limit": limit}
        return self._list("subjects", {"subjectPrefix": subject_prefix, **page})

    def delete_subject(self, subject_name: str, permanent: bool = False) -> list[int]:
        """Delete a subject, and return the deleted versions. With ``permanent``, it cannot be restored."""
        path = f"subjects/{quoted(subject_name)}"
        versions = self._ask(_list_of(int), path, None, "DELETE")
        if permanent:
            versions = self._ask(_list_of(int), path, {"permanent": True}, "DELETE")
        self._forget(subject_name)
        return versions

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> RegisteredSchema:
        """Return the latest version of a subject, cached for ``cache.latest.ttl.sec``."""
        path = f"subjects/{quoted(subject_name)}/versions/latest"
        return self._latest_of(("latest", subject_name, fmt), path, {"format": fmt})

    def get_latest_with_metadata(
        self, subject_name: str, metadata: Mapping[str, str], deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return the latest version that has these metadata properties, cached as ``get_latest_version`` is."""
        query = {"key": [*metadata], "value": [*metadata.values()], "deleted": deleted, "format": fmt}
        key = ("metadata", subject_name, frozenset(metadata.items()), deleted, fmt)
        return self._latest_of(key, f"subjects/{quoted(subject_name)}/metadata", query)

    def _latest_of(self, key: tuple[Any, ...], path: str, query: dict[str, Any]) -> RegisteredSchema:
        return self._once(self._latest, key, lambda: self._ask(_with_id_and_text, path, query), self.latest_ttl_s)

    def get_version(
        self, subject_name: str, version: int | str = "latest", deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return a version of a subject. It is cached."""
        if version == "latest":
            return self.get_latest_version(subject_name, fmt)
        key = ("version", subject_name, version, deleted, fmt)
        path, query = f"subjects/{quoted(subject_name)}/versions/{version}", {"deleted": deleted, "format": fmt}
        return self._once(self._cache, key, lambda: self._ask(_with_id_and_text, path, query))

    def get_referenced_by(self, subject_name: str, version: int | str = "latest") -> list[int]:
        """Return the ids of the schemas that refer to this one."""
        return self._list(f"subjects/{quoted(subject_name)}/versions/{version}/referencedby", None, int)

    def get_versions(
        self, subject_name: str, deleted: bool = False, deleted_only: bool = False, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the versions of a subject."""
        query = {"deleted": deleted, "deletedOnly": deleted_only, "offset": offset, "limit": limit}
        return self._list(f"subjects/{quoted(subject_name)}/versions", query, int)

    def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> int:
        """Delete a version of a subject, and return it."""
        path = f"subjects/{quoted(subject_name)}/versions/{version}"
        found = self._ask(int, path, None, "DELETE")
        if permanent:
            found = self._ask(int, path, {"permanent": True}, "DELETE")
        self._forget(subject_name)
        return found

    # --- compatibility, configuration, modes --------------------------------------------------------------------------

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> dict[str, Any]:
        """Set the compatibility of a subject, or the registry's default, and return the registry's response."""
        if level is None:
            raise IllegalArgumentError(f"level must be one of {', '.join(ConfigCompatibilityLevel)}")
        return self._ask(_object, _config_path(subject_name), None, "PUT", {"compatibility": level.upper()})

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """Return the compatibility of a subject, or the registry's default."""
        return self._ask(_text("compatibilityLevel"), _config_path(subject_name))

    def test_compatibility(
        self,
        subject_name: str,
        schema: Schema,
        version: int | str = "latest",
        normalize: bool = False,
        verbose: bool = False,
    ) -> bool:
        """Return whether a schema is compatible with a version of a subject."""
        return not self.compatibility_problems(subject_name, schema, version, normalize, verbose)

    def compatibility_problems(
        self,
        subject_name: str,
        schema: Schema,
        version: int | str | None = "latest",
        normalize: bool = False,
        verbose: bool = True,
    ) -> list[str]:
        """Return the registry's reasons why a schema is incompatible; an empty list if it is compatible.

        ``version`` None checks all versions that the subject's compatibility covers.
        """
        path = f"compatibility/subjects/{quoted(subject_name)}/versions" + ("" if version is None else f"/{version}")
        query = {"normalize": normalize, "verbose": verbose}
        return self._ask(_problems, path, query, "POST", schema.to_dict())

    def test_compatibility_all_versions(
        self, subject_name: str, schema: Schema, normalize: bool = False, verbose: bool = False
    ) -> bool:
        """Return whether a schema is compatible with all versions that the subject's compatibility covers."""
        return not self.compatibility_problems(subject_name, schema, None, normalize, verbose)

    def set_config(self, subject_name: str | None = None, config: ServerConfig | None = None) -> ServerConfig:
        """Set the configuration of a subject, or of the registry."""
        body = (config or ServerConfig()).to_dict()
        return self._ask(ServerConfig.from_dict, _config_path(subject_name), None, "PUT", body)

    def get_config(self, subject_name: str | None = None) -> ServerConfig:
        """Return the configuration of a subject, or of the registry."""
        return self._ask(ServerConfig.from_dict, _config_path(subject_name))

    def delete_config(self, subject_name: str | None = None) -> ServerConfig:
        """Delete the configuration of a subject, or of the registry, and return it."""
        return self._ask(ServerConfig.from_dict, _config_path(subject_name), None, "DELETE")

    def get_mode(self, subject_name: str) -> str:
        """Return the mode of a subject, such as READWRITE."""
        return self._ask(_text("mode"), f"mode/{quoted(subject_name)}")

    def update_mode(self, subject_name: str, mode: str, force: bool = False) -> str:
        """Set the mode of a subject."""
        return self._ask(_text("mode"), f"mode/{quoted(subject_name)}", {"force": force}, "PUT", {"mode": mode})

    def delete_mode(self, subject_name: str) -> str:
        """Delete the mode of a subject, and return it."""
        return self._ask(_text("mode"), f"mode/{quoted(subject_name)}", None, "DELETE")

    def get_global_mode(self) -> str:
        """Return the registry's mode."""
        return self._ask(_text("mode"), "mode")

    def update_global_mode(self, mode: str, force: bool = False) -> str:
        """Set the registry's mode."""
        return self._ask(_text("mode"), "mode", {"force": force}, "PUT", {"mode": mode})

    def get_contexts(self, offset: int = 0, limit: int = -1) -> list[str]:
        """Return the names of the registry's contexts."""
        return self._list("contexts", {"offset": offset, "limit": limit})

    def get_associations_by_resource_name(
        self,
        resource_name: str,
        resource_namespace: str,
        resource_type: str | None = None,
        association_types: Iterable[str] | None = None,
        lifecycle: str | None = None,
        offset: int = 0,
        limit: int = -1,
    ) -> list[Association]:
        """Return the associations of a resource, such as a topic, with subjects."""
        query = {
            "resourceType": resource_type,
            "associationType": list(association_types or ()) or None,
            "lifecycle": lifecycle,
            "offset": offset,
            "limit": limit,
        }
        path = f"associations/resources/{quoted(resource_namespace)}/{quoted(resource_name)}"
        return self._list(path, query, Association.from_dict)

    def create_association(self, request: AssociationCreateOrUpdateRequest) -> AssociationResponse:
        """Associate a resource, such as a topic, with subjects."""
        return self._ask(AssociationResponse.from_dict, "associations", None, "POST", request.to_dict())

    def delete_associations(
        self,
        resource_id: str,
        resource_type: str | None = None,
        association_types: Iterable[str] | None = None,
        cascade_lifecycle: bool = False,
    ) -> None:
        """Delete the associations of a resource; with ``cascade_lifecycle`` also subjects that exist for it only."""
        query = {
            "resourceType": resource_type,
            "associationType": list(association_types or ()) or None,
            "cascadeLifecycle": cascade_lifecycle,
        }
        self.rest.delete(f"associations/resources/{quoted(resource_id)}", query)

    # --- caches -------------------------------------------------------------------------------------------------------

    def warm_up(self, topics: Iterable[str], fields: Iterable[str] = ("key", "value")) -> list[str]:
        """Fetch what the first record of each topic needs, and return the subjects found.

        These are all versions of the topics' subjects and what they refer to, so that readers ask for nothing, and
        neither do writers whose schema is registered, or which use the latest version. Subjects are those of the topic
        name strategy. A topic without any is left out. ``cache.capacity`` limits what is kept.
        """
        found = []
        seen: set[tuple[str, int]] = set()
        for subject in [f"{topic}-{field}" for topic in topics for field in fields]:
            try:
                versions = self.get_versions(subject)
            except SchemaRegistryError as error:
                if error.is_unknown:
                    continue
                raise
            found.append(subject)
            for version in versions:
                for fmt, registered in self._warm_up_version(subject, version, seen):
                    if version == versions[-1]:
                        self._latest.put(("latest", subject, fmt), registered, self.latest_ttl_s)
        return found

    def _warm_up_version(
        self, subject: str, version: int, seen: set[tuple[str, int]]
    ) -> list[tuple[str | None, RegisteredSchema]]:
        """Fetch a version in all forms, and what it refers to."""
        seen.add((subject, version))
        first = self.get_version(subject, version, True)
        schema, number = first.schema, first.schema_id
        made: list[tuple[str | None, RegisteredSchema]] = [(None, first)]
        if schema.schema_type == "PROTOBUF":
            text = schema if number is None else self.get_schema(number, None, SERIALIZED)
            made.append((SERIALIZED, RegisteredSchema(subject, version, number, first.guid, text)))
        for fmt, registered in made:
            for deleted in (False, True):
                self._cache.put(("version", subject, version, deleted, fmt), registered)
            for within in (None, subject):
                self._schemas.put(("id", registered.schema_id, within, fmt, None), registered.schema)
            if registered.guid is not None:
                self._schemas.put(("guid", registered.guid, fmt), registered.schema)
            plain = Schema(registered.schema.schema_str, registered.schema.schema_type, schema.references)
            for given in (registered.schema, plain):
                self._cache.put(("register", subject, _compact(given), False), registered)
                for deleted in (False, True):
                    self._cache.put(("lookup", subject, _compact(given), False, None, deleted), registered)
        for reference in schema.references or ():
            if reference.subject is None or reference.version is None:
                continue
            if (reference.subject, reference.version) not in seen:
                self._warm_up_version(reference.subject, reference.version, seen)
        return made

    def clear_latest_caches(self) -> None:
        """Forget which versions are the latest."""
        self._latest.remove()

    def clear_caches(self) -> None:
        """Forget all answers."""
        for cache in (self._schemas, self._cache, self._latest, self._missing, self._global_ids):
            cache.remove()

    def _forget(self, subject_name: str) -> None:
        self._cache.remove(lambda key: key[1] == subject_name)
        self._latest.remove(lambda key: key[1] == subject_name)


def _compact(schema: Schema) -> Schema:
    """Return a schema with its JSON as registries store it, so that the layout of a text does not matter."""
    if schema.schema_type == "PROTOBUF":
        return schema
    try:
        text = json.dumps(json.loads(schema.schema_str or ""), separators=(",", ":"), ensure_ascii=False)
    except ValueError:  # the registry says what is wrong with it
        return schema
    return Schema(text, schema.schema_type, schema.references, schema.metadata, schema.rule_set)


def _list_of(make: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    def read(answer: Any) -> list[T]:
        if not isinstance(answer, (list, tuple)):
            raise TypeError("it must be a list")
        return [make(row) for row in answer]

    return read


def _object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise TypeError("it must be an object")
    return answer


def _problems(answer: Any) -> list[str]:
    if answer["is_compatible"]:
        return []
    return _list_of(str)(answer.get("messages") or ()) or ["it is not compatible"]


def _text(name: str) -> Callable[[Any], str]:
    return lambda answer: str(_object(answer)[name])


def _with_text(answer: Any) -> Schema:
    found = Schema.from_dict(answer)
    if not isinstance(found.schema_str, str):
        raise TypeError("it has no text of a schema")
    return found


def _with_id(answer: Any) -> RegisteredSchema:
    found = RegisteredSchema.from_dict(answer)
    if not isinstance(found.schema_id, int) or not isinstance(found.schema.schema_str, (str, NoneType)):
        raise TypeError("it has no id of a schema")
    return found


def _with_id_and_text(answer: Any) -> RegisteredSchema:
    found = _with_id(answer)
    if found.schema.schema_str is None:
        raise TypeError("it has no text of a schema")
    return found


def _config_path(subject_name: str | None) -> str:
    return "config" if subject_name is None else f"config/{quoted(subject_name)}"


def _awaitable(
    method: Callable[Concatenate[SchemaRegistryClient, P], T],
) -> Callable[Concatenate[AsyncSchemaRegistryClient, P], Coroutine[Any, Any, T]]:
    """Return a method's form for asyncio."""

    async def call(self: AsyncSchemaRegistryClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda: method(self.blocking, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


async def _result_of(found: Any) -> Any:
    return await found


class AsyncSchemaRegistryClient:
    """``SchemaRegistryClient`` for asyncio, with the same methods as coroutines.

    Requests are made by up to eight threads of its own, so nothing blocks the event loop. A call that is cancelled
    leaves its request to end by its timeout; the answer is cached. ``bearer.auth.custom.provider.function`` may be a
    coroutine function, which runs in the event loop.
    """

    def __init__(self, conf: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        given = {**(conf or {}), **more}
        clock = given.pop("clock", SYSTEM_CLOCK)
        self._conf = dict(given)
        for name in [name for name in given if name.replace("_", ".").endswith(_CUSTOM)]:
            given[name] = self._waiting(given[name])
        #: The client that the threads use, and whose caches this one shares.
        self.blocking = SchemaRegistryClient(given, clock=clock)
        renewed_after_fork.add(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    @staticmethod
    def new_client(conf: Mapping[str, Any]) -> AsyncSchemaRegistryClient:
        """Return a client for the configuration."""
        return AsyncSchemaRegistryClient(conf)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Requests in flight fail; one that is still connecting ends by its timeout."""
        self._closed = True
        threads, self._threads = self._threads, None
        self.blocking.close()
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def after_fork(self) -> None:
        """Forget the parent's threads, which do not exist in a child."""
        self._threads = None

    async def run(self, call: Callable[[], T]) -> T:
        """Run ``call`` on one of the client's threads, and return its result."""
        if self._closed:
            raise IllegalStateError("the client of the schema registry is closed")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_MOST_THREADS, "pykclient-schema-registry")
        self._loop = asyncio.get_running_loop()
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _waiting(self, function: Any) -> Any:
        """Return an application's function in a form for threads: what is awaitable is awaited in the event loop."""
        if not callable(function):
            return function

        def call(config: Any) -> Any:
            found = function(config)
            if not inspect.isawaitable(found):
                return found
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(_result_of(found), self._loop).result(_LONGEST_FUNCTION_S)

        return call

    def config(self) -> dict[str, Any]:
        """Return the configuration that was given."""
        return self._conf

    @property
    def name(self) -> str:
        """The registry's addresses, for messages."""
        return self.blocking.name

    register_schema = _awaitable(SchemaRegistryClient.register_schema)
    register_schema_full_response = _awaitable(SchemaRegistryClient.register_schema_full_response)
    get_schema = _awaitable(SchemaRegistryClient.get_schema)
    get_schema_by_guid = _awaitable(SchemaRegistryClient.get_schema_by_guid)
    get_schema_by_global_id = _awaitable(SchemaRegistryClient.get_schema_by_global_id)
    get_schema_types = _awaitable(SchemaRegistryClient.get_schema_types)
    get_subjects_by_schema_id = _awaitable(SchemaRegistryClient.get_subjects_by_schema_id)
    get_schema_versions = _awaitable(SchemaRegistryClient.get_schema_versions)
    lookup_schema = _awaitable(SchemaRegistryClient.lookup_schema)
    get_subjects = _awaitable(SchemaRegistryClient.get_subjects)
    delete_subject = _awaitable(SchemaRegistryClient.delete_subject)
    get_latest_version = _awaitable(SchemaRegistryClient.get_latest_version)
    get_latest_with_metadata = _awaitable(SchemaRegistryClient.get_latest_with_metadata)
    get_version = _awaitable(SchemaRegistryClient.get_version)
    get_referenced_by = _awaitable(SchemaRegistryClient.get_referenced_by)
    get_versions = _awaitable(SchemaRegistryClient.get_versions)
    delete_version = _awaitable(SchemaRegistryClient.delete_version)
    set_compatibility = _awaitable(SchemaRegistryClient.set_compatibility)
    get_compatibility = _awaitable(SchemaRegistryClient.get_compatibility)
    test_compatibility = _awaitable(SchemaRegistryClient.test_compatibility)
    test_compatibility_all_versions = _awaitable(SchemaRegistryClient.test_compatibility_all_versions)
    compatibility_problems = _awaitable(SchemaRegistryClient.compatibility_problems)
    set_config = _awaitable(SchemaRegistryClient.set_config)
    get_config = _awaitable(SchemaRegistryClient.get_config)
    delete_config = _awaitable(SchemaRegistryClient.delete_config)
    get_mode = _awaitable(SchemaRegistryClient.get_mode)
    update_mode = _awaitable(SchemaRegistryClient.update_mode)
    delete_mode = _awaitable(SchemaRegistryClient.delete_mode)
    get_global_mode = _awaitable(SchemaRegistryClient.get_global_mode)
    update_global_mode = _awaitable(SchemaRegistryClient.update_global_mode)
    get_contexts = _awaitable(SchemaRegistryClient.get_contexts)
    get_associations_by_resource_name = _awaitable(SchemaRegistryClient.get_associations_by_resource_name)
    create_association = _awaitable(SchemaRegistryClient.create_association)
    delete_associations = _awaitable(SchemaRegistryClient.delete_associations)
    warm_up = _awaitable(SchemaRegistryClient.warm_up)

    async def clear_latest_caches(self) -> None:
        """Forget which versions are the latest."""
        self.blocking.clear_latest_caches()

    async def clear_caches(self) -> None:
        """Forget all answers."""
        self.blocking.clear_caches()
