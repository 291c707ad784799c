"""The client of a registry: what it asks, caches, retries and says."""

from __future__ import annotations

import asyncio
import email.utils
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pykclient.errors import ConfigError
from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    MessageField,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    SerializationContext,
    ServerConfig,
    avro_columns,
    prefix_schema_guid_serializer,
)
from pykclient.schema_registry.avro import AvroDeserializer, AvroSerializer
from pykclient.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pykclient.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from pykclient.schema_registry.schemas import ConfigCompatibilityLevel, RegisteredSchema, Rule, RuleSet
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.support.mock_clock import MockClock

VALUE = SerializationContext("orders", MessageField.VALUE)


def record(*fields: str, name: str = "Order") -> Schema:
    """A record whose fields are all of type long; a field with ``=`` has a default."""
    rows = [
        {"name": field.rstrip("="), "type": "long", **({"default": 0} if field.endswith("=") else {})}
        for field in fields
    ]
    return Schema(json.dumps({"type": "record", "name": name, "fields": rows}))


def test_registered_schema_is_looked_up_and_fetched(client: SchemaRegistryClient) -> None:
    number = client.register_schema("orders-value", record("a"))
    assert client.get_schema(number) == record("a")
    found = client.lookup_schema("orders-value", record("a"))
    assert (found.subject, found.version, found.schema_id) == ("orders-value", 1, number)
    assert found.guid is not None
    assert client.get_schema_by_guid(found.guid) == record("a")
    assert client.get_latest_version("orders-value").version == 1
    assert client.get_version("orders-value", 1).schema == record("a")
    assert client.get_subjects() == ["orders-value"]
    assert client.get_versions("orders-value") == [1]
    assert client.get_subjects_by_schema_id(number) == ["orders-value"]
    assert [row.version for row in client.get_schema_versions(number)] == [1]
    assert "AVRO" in client.get_schema_types()
    assert client.get_contexts() == ["."]


def test_one_request_per_id_under_concurrency(registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient) -> None:
    number = client.register_schema("orders-value", record("a"))
    client.clear_caches()
    registry.hold()
    before = len(registry.requests)
    started = threading.Barrier(17)

    def fetch() -> Schema:
        started.wait(30)
        return client.get_schema(number)

    with ThreadPoolExecutor(16) as threads:
        futures = [threads.submit(fetch) for _ in range(16)]
        started.wait(30)
        registry.release()
        assert {future.result(30).schema_str for future in futures} == {record("a").schema_str}
    assert len(registry.requests) == before + 1


def test_registered_schemas_and_ids_are_asked_for_once(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    for _ in range(3):
        number = client.register_schema("s", record("a"))
        client.lookup_schema("s", record("a"))
        client.get_schema(number)
        client.get_version("s", 1)
        client.get_latest_version("s")
    assert len(registry.requests) == 5


def test_unknown_id_is_remembered_until_something_is_registered(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    for _ in range(3):
        with pytest.raises(SchemaRegistryError, match=r"GET schemas/ids/1 of the schema registry http") as caught:
            client.get_schema(1)
        assert (caught.value.http_status_code, caught.value.error_code) == (404, 40403)
    assert len(registry.requests) == 1
    assert client.register_schema("s", record("a")) == 1
    assert client.get_schema(1) == record("a")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_retriable_errors_are_retried(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, status: int
) -> None:
    registry.fail(status, times=3)
    assert client.get_subjects() == []
    assert [request.status for request in registry.requests] == [status] * 3 + [200]


class Waits(MockClock):
    """A clock whose waits take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_ms: list[int] = []

    def sleep_ms(self, duration_ms: int) -> None:
        self.waits_ms.append(duration_ms)
        super().sleep_ms(duration_ms)


@pytest.mark.parametrize(
    ("retry_after", "wait_ms"),
    [("1", 1000), ("2.5", 2500), ("7000", 5000), (None, 1), ("soon", 1), ("-3", 1), ("date", 3000)],
)
def test_retry_after_is_waited_for_within_the_longest_backoff(
    registry: EmbeddedSchemaRegistry, retry_after: str | None, wait_ms: int
) -> None:
    clock = Waits()
    if retry_after == "date":
        retry_after = email.utils.formatdate((clock.wall_ms() // 1000) + 3, usegmt=True)
    registry.fail(503, retry_after=retry_after)
    settings = {"url": registry.url, "retries.wait.ms": 1, "retries.max.wait.ms": 5000}
    with SchemaRegistryClient(settings, clock=clock) as client:
        assert client.get_subjects() == []
        registry.fail(503)  # the next failure does not ask for the wait of the first
        assert client.get_subjects() == []
    first, second = clock.waits_ms
    assert first in ((wait_ms, wait_ms - 1, wait_ms + 1) if wait_ms == 1 else (wait_ms,))
    assert second in (0, 1, 2)  # with its jitter


def test_error_after_all_retries_says_what_was_asked_of_whom(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    registry.fail(503, times=None)
    with pytest.raises(SchemaRegistryError, match=rf"GET subjects.*{registry.url} \(4 attempts.*a fault of the test"):
        client.get_subjects()


def test_refusals_are_not_retried(registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient) -> None:
    registry.fail(403)
    with pytest.raises(SchemaRegistryError, match="403"):
        client.get_subjects()
    assert len(registry.requests) == 1


def test_dropped_connections_are_retried(registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient) -> None:
    assert client.get_subjects() == []
    registry.drop(times=2)
    assert client.get_subjects() == []


def test_next_url_is_asked_when_one_refuses(registry: EmbeddedSchemaRegistry) -> None:
    with EmbeddedSchemaRegistry() as gone:
        dead = gone.url
    settings = {"url": f"{dead},{registry.url}", "max.retries": 0}
    with SchemaRegistryClient(settings) as client:
        assert client.get_subjects() == []
        assert client.get_subjects() == []


def test_unreachable_registry_raises_with_its_address() -> None:
    with EmbeddedSchemaRegistry() as gone:
        dead = gone.url
    with (
        SchemaRegistryClient({"url": dead, "max.retries": 1, "retries.wait.ms": 1}) as client,
        pytest.raises(SchemaRegistryError, match=rf"{dead}.*ConnectionRefused") as caught,
    ):
        client.get_schema(7)
    assert caught.value.http_status_code == -1


def test_slow_registry_times_out(registry: EmbeddedSchemaRegistry) -> None:
    registry.hold()
    with (
        SchemaRegistryClient({"url": registry.url, "timeout": 0.05, "max.retries": 0}) as client,
        pytest.raises(SchemaRegistryError, match=r"(?i)time"),
    ):
        client.get_subjects()
    registry.release()


def test_basic_and_bearer_credentials_are_accepted() -> None:
    with EmbeddedSchemaRegistry(users={"alice": "a:b@c"}, tokens=frozenset({"t0k"})) as registry:
        host = registry.url.removeprefix("http://")
        for settings in (
            {"url": registry.url, "basic.auth.user.info": "alice:a:b@c"},
            {"schema.registry.url": f"http://alice:a%3Ab%40c@{host}"},
            {"url": registry.url, "bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "t0k"},
            {
                "url": registry.url,
                "bearer.auth.credentials.source": "CUSTOM",
                "bearer.auth.custom.provider.function": lambda config: {"bearer.auth.token": config["token"]},
                "bearer.auth.custom.provider.config": {"token": "t0k"},
            },
        ):
            with SchemaRegistryClient(settings) as client:
                assert client.get_subjects() == []
        with (
            SchemaRegistryClient(url=registry.url, basic_auth_user_info="alice:wrong", max_retries=0) as client,
            pytest.raises(SchemaRegistryError, match="Unauthorized") as caught,
        ):
            client.get_subjects()
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("name", ["bearer.auth.custom.provider.function", "bearer_auth_custom_provider_function"])
def test_tokens_of_a_coroutine_function_are_awaited_in_the_loop(name: str) -> None:
    loops = []

    async def token(config: dict[str, str]) -> dict[str, str]:
        loops.append(asyncio.get_running_loop())
        return {"bearer.auth.token": config["token"]}

    async def main() -> None:
        conf = {"bearer.auth.credentials.source": "CUSTOM", "bearer.auth.custom.provider.config": {"token": "t0k"}}
        async with AsyncSchemaRegistryClient({"url": registry.url, **conf, name: token}) as client:
            assert client.config()[name] is token
            assert await client.get_subjects() == []
        assert loops == [asyncio.get_running_loop()]

    with EmbeddedSchemaRegistry(tokens=frozenset({"t0k"})) as registry:
        asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "Missing required configuration property url"),
        ({"url": "ftp://x"}, "Invalid url ftp://x: each must be http://host:port"),
        ({"url": "ftp://u:secret@x"}, r"Invalid url \[hidden\]: each"),
        ({"url": "http://x", "uurl": "y"}, "Unrecognized properties: unknown configuration key 'uurl'"),
        ({"url": "http://x", "ssl.key.location": "k"}, "ssl.certificate.location required when configuring"),
        ({"url": "http://x", "ssl.key.password": "secret"}, "ssl.certificate.location required when configuring"),
        ({"url": "http://x", "max.retries": -1}, "max.retries"),
        ({"url": "http://x", "bearer.auth.credentials.source": "STATIC_TOKEN"}, "Missing bearer.auth.token"),
        ({"url": "http://x", "bearer.auth.credentials.source": "CUSTOM"}, "Missing required custom OAuth .*function"),
        (
            {"url": "http://x", "bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "i"},
            "Missing required OAuth configuration properties: bearer.auth.client.secret, bearer.auth.issuer",
        ),
        (
            {"url": "http://x", "bearer.auth.credentials.source": "OAUTHBEARER_AZURE_IMDS"},
            "bearer.auth.issuer.endpoint.query must be provided when",
        ),
        ({"url": "http://u:p@x", "basic.auth.user.info": "u:p"}, "basic.auth.user.info configured with userinfo"),
        ({"url": "https://x", "ssl.ca.location": "/no/such/file"}, "/no/such/file"),
        ({"url": "http://x", "proxy": "socks5://u:secret@y"}, r"\[hidden\]"),
    ],
)
def test_wrong_configuration_raises(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        SchemaRegistryClient(settings)
    assert "secret" not in str(caught.value).replace("client.secret", "")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("url", {}, r"url must be a str, not <class 'dict'>"),
        ("bearer.auth.client.secret", 1, "bearer.auth.client.secret must be a str, not <class 'int'>"),
        ("bearer.auth.logical.cluster", 1, "logical cluster must be a str, not"),
        ("bearer.auth.identity.pool.id", 1, "identity pool id must be a str or list, not"),
        ("bearer.auth.identity.pool.id", [1], "All items in identity pool list must be strings"),
    ],
)
def test_value_of_another_type_raises_type_error(key: str, value: object, text: str) -> None:
    with pytest.raises(TypeError, match=text) as caught:
        SchemaRegistryClient({"url": "http://x", key: value})
    assert isinstance(caught.value, ConfigError)


def test_function_without_a_token_raises() -> None:
    conf = {"url": "http://127.0.0.1:9", "bearer.auth.credentials.source": "CUSTOM", "max.retries": 0}
    with (
        SchemaRegistryClient(conf, bearer_auth_custom_provider_function=lambda _: {}) as client,
        pytest.raises(ValueError, match=r"Missing required bearer auth fields, .*: bearer\.auth\.token"),
    ):
        client.get_subjects()


def test_incompatible_schema_is_refused_with_the_registrys_text(client: SchemaRegistryClient) -> None:
    client.register_schema("s", record("a"))
    with pytest.raises(SchemaRegistryError, match="b: the writer has no such field") as caught:
        client.register_schema("s", record("a", "b"))
    assert caught.value.http_status_code == 409
    assert not client.test_compatibility("s", record("a", "b"))
    assert client.compatibility_problems("s", record("a", "b")) != []
    assert client.test_compatibility("s", record("a", "b="))
    assert client.test_compatibility_all_versions("s", record("a", "b="))
    assert client.set_compatibility("s", "none") == {"compatibility": "NONE"}
    assert client.get_compatibility("s") == "NONE"
    assert client.register_schema("s", record("a", "b")) == 2


def test_configuration_and_modes_can_be_set(client: SchemaRegistryClient) -> None:
    assert client.get_compatibility() == "BACKWARD"
    config = ServerConfig(compatibility=ConfigCompatibilityLevel.FULL)
    assert client.set_config("s", config) == config
    assert client.get_config("s").compatibility_level == ConfigCompatibilityLevel.FULL
    assert client.delete_config("s").compatibility == ConfigCompatibilityLevel.FULL
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("s", "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError, match="read-only"):
        client.register_schema("s", record("a"))
    assert client.delete_mode("s") == "READONLY"


def test_schemas_have_references_and_metadata_and_can_be_deleted(client: SchemaRegistryClient) -> None:
    client.register_schema("part", record("a", name="Part"))
    whole = Schema(
        json.dumps({"type": "record", "name": "Whole", "fields": [{"name": "part", "type": "Part"}]}),
        references=[SchemaReference("Part", "part", 1)],
        metadata=Metadata(properties=MetadataProperties({"team": "blue"})),
    )
    number = client.register_schema("whole", whole)
    assert client.get_referenced_by("part", 1) == [number]
    assert client.get_latest_with_metadata("whole", {"team": "blue"}).schema_id == number
    with pytest.raises(SchemaRegistryError, match="No version"):
        client.get_latest_with_metadata("whole", {"team": "red"})
    with pytest.raises(SchemaRegistryError, match="referenced"):
        client.delete_version("part", 1)
    assert client.delete_subject("whole", permanent=True) == [1]
    assert client.delete_version("part", 1) == 1
    assert client.get_subjects() == []
    assert client.get_subjects(deleted=True) == ["part"]


def test_subject_keeps_all_versions_if_one_is_referenced(client: SchemaRegistryClient) -> None:
    client.register_schema("part", record("a", name="Part"))
    client.register_schema("part", record("a", "b=", name="Part"))
    fields = [{"name": "part", "type": "Part"}]
    whole = json.dumps({"type": "record", "name": "Whole", "fields": fields})
    client.register_schema("whole", Schema(whole, references=[SchemaReference("Part", "part", 2)]))
    with pytest.raises(SchemaRegistryError, match="Version 2 is referenced"):
        client.delete_subject("part")
    assert client.get_versions("part") == [1, 2]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "subjects/a/versions", b'{"schema": "{\\"type\\": \\"unknown\\"}"}', 42201),
        ("POST", "subjects/a/versions", b'["schema"]', 400),
        ("POST", "subjects/a/versions", b"schema", 400),
        ("PUT", "mode/a", b"{}", 400),
        ("GET", "schemas/ids/one/versions", None, 40403),
    ],
)
def test_wrong_requests_are_answered(
    registry: EmbeddedSchemaRegistry, method: str, path: str, body: bytes | None, code: int
) -> None:
    request = urllib.request.Request(f"{registry.url}/{path}", body, method=method)
    with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(request, timeout=30):
        pass
    with caught.value as response:
        assert json.load(response)["error_code"] == code


def test_ids_end_with_the_last_version_that_is_deleted_for_good(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("a", record("x"))
    assert client.register_schema("b", record("x")) == number
    client.delete_subject("a", permanent=True)
    assert SchemaRegistryClient({"url": registry.url}).get_schema(number) == record("x"), "b has it"
    client.delete_subject("b", permanent=True)
    with pytest.raises(SchemaRegistryError, match=f"Schema {number} not found"):
        SchemaRegistryClient({"url": registry.url}).get_schema(number)
    again = SchemaRegistryClient({"url": registry.url})
    assert again.register_schema("a", record("x")) > number
    assert again.get_versions("a") == [1]


@pytest.mark.parametrize(("path", "code"), [("subjects/a", 40405), ("subjects/a/versions/1", 40407)])
def test_permanent_deletion_before_the_soft_one_is_refused(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, path: str, code: int
) -> None:
    client.register_schema("a", record("x"))
    request = urllib.request.Request(f"{registry.url}/{path}?permanent=true", method="DELETE")
    with pytest.raises(urllib.error.HTTPError, match="404") as caught, urllib.request.urlopen(request, timeout=30):
        pass
    with caught.value as response:
        assert json.load(response)["error_code"] == code
    assert client.get_versions("a") == [1]


PART = record("a", name="Part")
WHOLE = Schema(
    json.dumps({"type": "record", "name": "Whole", "fields": [{"name": "part", "type": "Part"}]}),
    references=[SchemaReference("Part", "part", 1)],
)
JSON_PART = Schema('{"type": "object", "properties": {"a": {"type": "integer"}}}', "JSON")
JSON_WHOLE = Schema(
    '{"type": "object", "properties": {"part": {"$ref": "part.json"}}}',
    "JSON",
    references=[SchemaReference("part.json", "json-part", 1)],
)


def messages() -> Any:
    """Return the class of a message whose file imports another one."""
    pool = descriptor_pool.DescriptorPool()
    part = descriptor_pb2.FileDescriptorProto(name="part.proto", syntax="proto3")
    part.message_type.add(name="Part").field.add(name="a", number=1, type=3, label=1)
    whole = descriptor_pb2.FileDescriptorProto(name="whole.proto", syntax="proto3", dependency=["part.proto"])
    whole.message_type.add(name="Whole").field.add(name="part", number=1, type=11, label=1, type_name=".Part")
    pool.Add(part)
    pool.Add(whole)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Whole"))


MESSAGE = messages()
LATEST = {"use.latest.version": True}
REGISTER = {"auto.register.schemas": True}
#: A form's serializers and deserializers, each with what it is called with.
FIRST_RECORDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "avro": (
        lambda client, conf: AvroSerializer(client, WHOLE, conf=conf),
        lambda client, conf: AvroDeserializer(client, conf=conf),
    ),
    "json": (
        lambda client, conf: JSONSerializer(JSON_WHOLE, client, conf=conf),
        lambda client, conf: JSONDeserializer(None, schema_registry_client=client, conf=conf),
    ),
    "protobuf": (
        lambda client, conf: ProtobufSerializer(MESSAGE, client, conf),
        lambda client, conf: ProtobufDeserializer(None, conf, client),
    ),
}


@pytest.mark.parametrize("form", list(FIRST_RECORDS))
def test_warm_up_leaves_nothing_to_ask(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, form: str
) -> None:
    write, read = FIRST_RECORDS[form]
    value = MESSAGE() if form == "protobuf" else {"part": {"a": 7}}
    client.register_schema("part", PART)
    client.register_schema("json-part", JSON_PART)
    by_guid = {"schema.id.serializer": prefix_schema_guid_serializer}
    data = write(client, REGISTER)(value, VALUE)
    data_by_guid = write(client, {**REGISTER, **by_guid})(value, VALUE)
    with SchemaRegistryClient({"url": registry.url}) as other:
        assert other.warm_up(["orders", "unknown"]) == ["orders-value"]
        before = len(registry.requests)
        for conf in ({}, LATEST, REGISTER):
            assert write(other, conf)(value, VALUE) == data
        for conf in ({}, LATEST):
            read(other, conf)(data, VALUE)
            read(other, conf)(data_by_guid, VALUE)
        assert len(registry.requests) == before


def test_warm_up_fetches_all_versions_for_migrations(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    data = AvroSerializer(client, record("a"), conf=REGISTER)({"a": 1}, VALUE)
    client.register_schema("orders-value", record("a", "b="))
    with SchemaRegistryClient({"url": registry.url}) as other:
        other.warm_up(["orders"])
        before = len(registry.requests)
        assert AvroDeserializer(other, conf=LATEST)(data, VALUE) == {"a": 1, "b": 0}
        spaced = Schema(json.dumps(json.loads(record("a", "b=").schema_str or ""), indent=4))
        assert AvroSerializer(other, spaced)({"a": 1, "b": 2}, VALUE)
        assert len(registry.requests) == before


def test_caches_are_bounded(registry: EmbeddedSchemaRegistry) -> None:
    with SchemaRegistryClient(url=registry.url, cache_capacity=2) as client:
        numbers = [client.register_schema(f"s{place}", record(f"f{place}")) for place in range(4)]
        for number in numbers:
            client.get_schema(number)
        assert len(client._schemas._entries) == 2


def test_async_client_does_not_block_the_loop(registry: EmbeddedSchemaRegistry) -> None:
    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            number = await client.register_schema("s", record("a"))
            await client.clear_caches()
            registry.hold()
            asking = [asyncio.create_task(client.get_schema(number)) for _ in range(3)]
            turns = 0
            while turns < 100:  # the loop goes on while the registry does not answer
                await asyncio.sleep(0)
                turns += 1
            assert not any(task.done() for task in asking)
            registry.release()
            assert [await task for task in asking] == [record("a")] * 3
            with pytest.raises(SchemaRegistryError):
                await client.get_schema(99)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_values_survive_json() -> None:
    schema = Schema(
        "{}",
        "JSON",
        [SchemaReference("a", "b", 1)],
        Metadata(properties=MetadataProperties({"k": "v"})),
        RuleSet(domain_rules=[Rule.from_dict({"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"})]),
    )
    row = RegisteredSchema("s", 3, 7, "g", schema)
    assert RegisteredSchema.from_dict(json.loads(json.dumps(row.to_dict()))) == row
    assert len({row, RegisteredSchema.from_dict(row.to_dict())}) == 1


def rule(name: str, type: str = "CEL") -> Rule:
    return Rule.from_dict({"name": name, "kind": "CONDITION", "mode": "WRITE", "type": type})


def names(found: RegisteredSchema) -> list[str | None]:
    held = found.schema.rule_set
    return [] if held is None else [one.name for one in held.domain_rules or ()]


def test_new_version_takes_over_metadata_and_rules(client: SchemaRegistryClient) -> None:
    first = record("a")
    first.metadata = Metadata(properties=MetadataProperties({"team": "blue"}))
    first.rule_set = RuleSet(domain_rules=[rule("one")])
    client.register_schema("s", first)
    assert client.register_schema_full_response("s", record("a")).version == 1
    found = client.register_schema_full_response("s", record("a", "b="))
    assert (found.version, names(found), found.schema.metadata) == (2, ["one"], first.metadata)
    other = record("a", "b=", "c=")
    other.rule_set = RuleSet(domain_rules=[rule("two")])
    assert names(client.register_schema_full_response("s", other)) == ["two"]
    client.clear_caches()
    assert client.lookup_schema("s", record("a")).version == 1
    assert names(client.lookup_schema("s", record("a", "b="))) == ["one"]
    wrong = record("a")
    wrong.rule_set = RuleSet(domain_rules=[rule("two")])
    with pytest.raises(SchemaRegistryError, match="Schema not found"):
        client.lookup_schema("s", wrong)


def test_configuration_has_rules_and_metadata_before_and_over_those_of_versions(client: SchemaRegistryClient) -> None:
    def team(name: str) -> Metadata:
        return Metadata(properties=MetadataProperties({"team": name, name: "yes"}))

    client.set_config(
        "s",
        ServerConfig(
            compatibility=ConfigCompatibilityLevel.NONE,
            default_metadata=team("default"),
            override_metadata=team("override"),
            default_rule_set=RuleSet(domain_rules=[rule("one"), rule("two")]),
            override_rule_set=RuleSet(domain_rules=[rule("two", "CEL_FIELD")]),
        ),
    )
    given = record("a")
    given.metadata = team("own")
    found = client.register_schema_full_response("s", given)
    assert found.schema.metadata is not None
    assert found.schema.metadata.properties == MetadataProperties(
        {"team": "override", "default": "yes", "own": "yes", "override": "yes"}
    )
    assert names(found) == ["one", "two"]
    assert found.schema.rule_set is not None
    assert [one.type for one in found.schema.rule_set.domain_rules or ()] == ["CEL", "CEL_FIELD"]


ASKED: dict[str, Callable[[SchemaRegistryClient], Any]] = {
    "schema": lambda client: client.get_schema(1),
    "guid": lambda client: client.get_schema_by_guid("5c8a9a2e-8b0b-4b7c-9b1e-1f0d1f0d1f0d"),
    "warm_up": lambda client: client.warm_up(["orders"]),
    "lookup": lambda client: AvroSerializer(client, record("a"))({"a": 1}, VALUE),
    "registration": lambda client: AvroSerializer(client, record("a"), conf={"auto.register.schemas": True})(
        {"a": 1}, VALUE
    ),
    "association": lambda client: AvroSerializer(
        client, record("a"), conf={"subject.name.strategy.type": "ASSOCIATED"}
    )({"a": 1}, VALUE),
    "deserializer": lambda client: AvroDeserializer(client)(b"\0\0\0\0\1\2", VALUE),
    "columns": lambda client: avro_columns(client, on_error="keep").decode(pa.array([b"\0\0\0\0\1\2"])),
}


@pytest.mark.parametrize("name", list(ASKED))
def test_404_of_a_web_server_is_no_answer_of_a_registry(page_url: str, name: str) -> None:
    with SchemaRegistryClient({"url": f"{page_url}/wrong", "basic.auth.user.info": "me:s3cret"}) as client:
        for _ in range(2):  # it is not remembered as an unknown id either
            with pytest.raises(SchemaRegistryError) as caught:
                ASKED[name](client)
            text = str(caught.value)
            assert f"of the schema registry {page_url}/wrong: Unknown Schema Registry Error: the response" in text
            assert "asked less than" not in text
            assert "does not register schemas" not in text
            assert "is the path in url right? It is: <html>no such page; you sent Basic [hidden]" in text
            assert not caught.value.is_unknown


@pytest.mark.parametrize(
    ("code", "is_unknown"), [(40401, True), (40402, True), (40403, True), (404, False), (40408, False)]
)
def test_only_a_registrys_own_codes_mean_unknown(code: int, is_unknown: bool) -> None:
    assert SchemaRegistryError(404, code, "text").is_unknown is is_unknown
