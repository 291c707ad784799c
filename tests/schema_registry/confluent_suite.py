"""Run confluent-kafka's own unit tests of its schema registry's client and serializers against this package's.

    python -m tests.schema_registry.confluent_suite CHECKOUT [--theirs] [pytest's arguments]

CHECKOUT is a checkout of confluent-kafka-python. Its tests are not changed: the modules that they import are replaced
by ones with this package's names, and a name that this package does not have is a class that cannot be made. Two things
are adapted: ``mock://`` is an embedded registry, empty for each test and without compatibility checks, as
confluent-kafka's mock has none; and schemas are registered by default. Needs the packages respx and pytest-asyncio.
``--theirs`` runs the tests against confluent-kafka itself, which also needs its drivers for encryption.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from pykclient import errors
from pykclient.clock import SYSTEM_CLOCK
from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    SchemaRegistryClient,
    avro,
    dek_registry,
    encryption,
    json_schema,
    kms,
    protobuf,
    rest,
    rules,
    schema_registry_client,
    schemas,
    serde,
    wire,
)
from pykclient.testing import EmbeddedSchemaRegistry

_OURS: Any = (schemas, rules, serde, wire, schema_registry_client)
_PREFIX = "confluent_kafka.schema_registry"
_MODULES = {
    "": (importlib.import_module("pykclient.schema_registry"), errors),
    **dict.fromkeys(("error", "serde", "rule_registry", "schema_registry_client"), _OURS),
    **dict.fromkeys(("_sync", "_async", "_sync.serde", "_async.serde", "common", "common.serde"), _OURS),
    **{f"{half}.schema_registry_client": _OURS for half in ("_sync", "_async", "common")},
    "common._oauthbearer": (),
    "wildcard_matcher": (),
    "rules": (rules,),
    **{name: (module,) for name, module in (("avro", avro), ("json_schema", json_schema), ("protobuf", protobuf))},
    "common.json_schema": (json_schema,),
    "_sync.protobuf": (protobuf,),
    "_async.protobuf": (protobuf,),
    "rules.cel": (rules,),
    "rules.cel.cel_executor": (rules,),
    "rules.cel.cel_field_executor": (rules,),
    "rules.jsonata": (rules,),
    "rules.jsonata.jsonata_executor": (rules,),
    "rules.encryption": (rules,),
    "rules.encryption.encrypt_executor": (encryption,),
    **{
        f"rules.encryption.{name}": (kms, dek_registry)
        for name in (
            *("dek_registry", "awskms", "azurekms", "gcpkms", "hcvault", "localkms"),
            *("dek_registry.dek_registry_client", "awskms.aws_driver", "azurekms.azure_driver", "gcpkms.gcp_driver"),
            *("hcvault.hcvault_driver", "hcvault.hcvault_client", "localkms.local_driver"),
        )
    },
}


class _Clock:
    """The clock of confluent-kafka's executors, from which the tests derive theirs; and one of this package."""

    def now(self) -> int:
        return SYSTEM_CLOCK.wall_ms()

    def wall_ms(self) -> int:
        return self.now()

    def __getattr__(self, name: str) -> Any:
        return getattr(SYSTEM_CLOCK, name)


def _update(value: dict[str, Any], changed: dict[str, Any]) -> None:
    for name, item in changed.items():
        if isinstance(value[name], dict) and isinstance(item, dict):
            _update(value[name], item)
        else:
            value[name] = item


def _like_theirs(executor: Any) -> Any:
    """Return a class of executors that change the given value itself, and tell the client of their keys at once."""

    class Executor(executor):
        def transform(self, ctx: Any, message: Any) -> Any:
            changed = super().transform(ctx, message)
            if isinstance(message, dict):
                _update(message, changed)
            elif hasattr(message, "CopyFrom"):
                message.CopyFrom(changed)
            return changed

        @classmethod
        def register_with_clock(cls, clock: Any) -> Any:
            made = cls(dek_registry.DekRegistryClient({"url": _Plugin.url}), clock)
            rules.RuleRegistry.register_rule_executor(made)
            return made

    return Executor


def _session(client: rest.RestClient) -> Any:
    header = client._credentials.headers().get("Authorization")
    return types.SimpleNamespace(auth=types.SimpleNamespace(_auth_header=header))


def _handle_bearer_auth(client: rest.RestClient, headers: dict[str, str]) -> None:
    headers.update(client._credentials.headers())


class _AsyncRest:
    """The private HTTP client of an asynchronous client, as far as the tests read it."""

    def __init__(self, client: AsyncSchemaRegistryClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client.blocking.rest, name)

    @property
    def bearer_field_provider(self) -> Any:
        conf = self._client.config()
        if conf["bearer.auth.credentials.source"] != "CUSTOM":
            return _identity_provider(self._client.blocking.rest)
        function, config = (conf[f"bearer.auth.custom.provider.{name}"] for name in ("function", "config"))
        return types.SimpleNamespace(custom_function=function, custom_config=config)

    async def handle_bearer_auth(self, headers: dict[str, str]) -> None:
        await self._client.run(lambda: _handle_bearer_auth(self._client.blocking.rest, headers))


def _encode_varints(out: BytesIO, indexes: list[int], zigzag: bool) -> None:
    out.write(wire.write_indexes(indexes, zigzag))


def _identity_provider(client: Any) -> Any:
    """Return what is under the names of confluent-kafka's providers of tokens: the settings that reached ours."""
    tokens, custom = client._credentials._tokens, client._credentials._custom
    if tokens is None:
        return types.SimpleNamespace(custom_function=custom.func, custom_config=custom.args[0])
    form = tokens._endpoint._form and tokens._endpoint._form.__self__
    its = form and types.SimpleNamespace(client_id=form.client_id, client_secret=form.secret.value, scope=form.scope)
    return types.SimpleNamespace(client=its, token_endpoint=tokens._endpoint._settings.url)


#: Private attributes that the tests read, by class.
_PRIVATE: dict[Any, dict[str, Any]] = {
    rest.RestClient: {
        "base_urls": property(lambda client: [str(url) for url in client._urls]),
        "session": property(_session),
        "bearer_field_provider": property(_identity_provider),
        "handle_bearer_auth": _handle_bearer_auth,
    },
    AsyncSchemaRegistryClient: {"_rest_client": property(_AsyncRest)},
    EmbeddedSchemaRegistry: {"_checked": lambda _, body: _any_text(body)},
    avro._Serializer: {
        "_auto_register": property(lambda serde: serde._conf["auto.register.schemas"]),
        "_subject_name_func": property(lambda serde: serde._strategy),
        "_subject_name_conf": property(lambda serde: serde._conf["subject.name.strategy.conf"]),
        "_strategy_accepts_client": property(lambda serde: serde._passes_client),
        "_schema_name": property(lambda serde: serde._name),
        "_parsed_schema": property(lambda serde: json.loads(serde._schema.schema_str)),
        "_strict_allow_default": property(lambda serde: serde._allow_default),
    },
    protobuf._Serializer: {"_encode_varints": staticmethod(_encode_varints)},
    wire.SchemaId: {
        "_read_index_array": staticmethod(lambda source, zigzag: wire.read_indexes(source.read(), 0, zigzag)[0])
    },
    kms.HcVaultKmsDriver: {"_get_verify": staticmethod(kms.vault_verify), "_get_cert": staticmethod(kms.vault_cert)},
}


def _identity_pool(given: Any) -> Any:
    key = "bearer.auth.identity.pool.id"
    return rest.read_config({"url": "http://x", key: given})[key]


def _any_text(body: Any) -> schemas.Schema:
    """Return the schema of a request with any text, as their mock takes it."""
    schema = schemas.Schema.from_dict(body)
    try:
        json.loads(schema.schema_str or "")
    except ValueError:
        if schema.schema_type != "PROTOBUF":
            schema.schema_str = json.dumps(schema.schema_str)
    return schema


class _Missing:
    """Stands for a name that this package does not have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"pykclient.schema_registry has no {type(self).__name__}")

    @classmethod
    def register(cls) -> None:
        """Do nothing, so that tests which share a fixture with tests of encryption can run."""


class _Module(types.ModuleType):
    def __init__(self, name: str, sources: tuple[Any, ...]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._sources = sources

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            try:
                return getattr(source, name)
            except AttributeError:
                continue
        found = type(name, (_Missing,), {})
        setattr(self, name, found)
        return found


class _Plugin:
    """Installs the modules, and gives each test a registry."""

    url = ""

    def pytest_configure(self) -> None:
        found = importlib.util.find_spec("confluent_kafka")
        assert found is not None
        assert found.submodule_search_locations is not None
        for name, sources in _MODULES.items():
            full = f"{_PREFIX}.{name}".rstrip(".")
            sys.modules[full] = _Module(full, sources)
            parent, _, last = full.rpartition(".")
            if name:
                setattr(sys.modules[parent], last, sys.modules[full])
        # The tests' own messages import Confluent's options of Protobuf, which are generated code.
        generated = _Module(f"{_PREFIX}.confluent", ())
        generated.__path__ = [str(Path(found.submodule_search_locations[0]) / "schema_registry" / "confluent")]
        protobuf._schema_to_str, protobuf._create_index_array = protobuf.schema_text, protobuf.index_array  # type: ignore[attr-defined]
        sys.modules[f"{_PREFIX}.rule_registry"]._global_instance = rules.RuleRegistry.get_global_instance()  # type: ignore[attr-defined]
        matcher: Any = sys.modules[f"{_PREFIX}.wildcard_matcher"]
        matcher.wildcard_match = lambda text, pattern: rules._wildcards(pattern).fullmatch(text) is not None
        root: Any = sys.modules[_PREFIX]
        sys.modules[generated.__name__] = root.confluent = generated
        sys.modules["confluent_kafka.serialization"] = importlib.import_module("pykclient.serialization")
        importlib.import_module("pykclient.serialization").SerializationError = serde.SerializationError  # type: ignore[attr-defined]
        theirs: Any = sys.modules[f"{_PREFIX}.rules.encryption.encrypt_executor"]
        theirs.Clock = _Clock
        theirs.EncryptionExecutor = _like_theirs(encryption.EncryptionExecutor)
        theirs.FieldEncryptionExecutor = _like_theirs(encryption.FieldEncryptionExecutor)
        for writer in (
            serde.BaseSerializer,
            avro.AvroSerializer,
            protobuf.ProtobufSerializer,
            json_schema.JSONSerializer,
        ):
            keys = writer._keys
            writer._keys = tuple(
                key._replace(default=True) if key.name == "auto.register.schemas" else key for key in keys
            )
        for client in (SchemaRegistryClient, AsyncSchemaRegistryClient, dek_registry.DekRegistryClient):
            self._adapt(client)
        for owner, attributes in _PRIVATE.items():
            for name, value in attributes.items():
                setattr(owner, name, value)
        common: Any = sys.modules[f"{_PREFIX}.common.schema_registry_client"]
        common.normalize_identity_pool = _identity_pool
        rest.RestClient._exchange = _by_httpx(rest.RestClient._exchange)  # type: ignore[method-assign]

    def _adapt(self, client: Any) -> None:
        make = client.__init__

        def init(this: Any, conf: Mapping[str, Any] | None = None, /, **more: Any) -> None:
            given = dict(conf or {})
            if given.get("url") == "mock://":
                given["url"] = _Plugin.url
            make(this, given, **more)
            if isinstance(this, dek_registry.DekRegistryClient):
                this._conf = dict(conf or {})

        client.__init__ = init

    @pytest.fixture(autouse=True)
    def _registry(self) -> Iterator[None]:
        with EmbeddedSchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
            client.set_compatibility(level="NONE")
            _Plugin.url = registry.url
            yield


def _by_httpx(exchange: Any) -> Any:
    """Send requests for names that do not exist by httpx, whose responses the tests replace."""
    import httpx

    def send(this: Any, connection: Any, url: Any, method: str, path: str, data: Any, headers: Any) -> Any:
        if url.host == "127.0.0.1":
            return exchange(this, connection, url, method, path, data, headers)
        found = httpx.request(method, f"{url}/{path}", content=data, headers=headers)
        return found.status_code, found.content, found.headers

    return send


def main(arguments: list[str]) -> int:
    checkout, *rest_of = arguments
    sys.path[:] = [checkout, *(path for path in sys.path if Path(path).resolve() != Path.cwd())]
    for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
        del sys.modules[name]  # confluent-kafka's package has the same name
    plugins = [] if "--theirs" in rest_of else [_Plugin()]
    given = [one for one in rest_of if one != "--theirs"]
    if not any(one.startswith(checkout) for one in given):
        given.append(f"{checkout}/tests/schema_registry")
    fixed = ["-q", "-c", "/dev/null", f"--rootdir={checkout}", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    return int(pytest.main([*fixed, *given], plugins=plugins))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
