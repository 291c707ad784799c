"""``pykclient schemas`` on a registry."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from pykclient import TopicPartition
from pykclient.schema_registry import (
    MessageField,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
)
from pykclient.schema_registry.avro import AvroDeserializer
from pykclient.testing import EmbeddedCluster
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.cli.command import Pykclient
from tests.schema_registry.conftest import page_url as page_url

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def pykclient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pykclient:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Pykclient()


def written(path: Path, *fields: str) -> str:
    rows = [{"name": name, "type": "long"} for name in fields]
    path.write_text(json.dumps({**ORDER, "fields": rows}))
    return str(path)


def test_schemas_are_registered_listed_shown_and_checked(
    pykclient: Pykclient,
    pykclient_schema_registry: EmbeddedSchemaRegistry,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", pykclient_schema_registry.url)
    good, bad = written(tmp_path / "a.avsc", "id"), written(tmp_path / "b.avsc", "id", "more")
    assert pykclient.ok("schemas", "register", "orders-value", good, "--json").json["id"] == 1
    rows = pykclient.ok("schemas", "list", "--json").json
    assert rows == [{"subject": "orders-value", "version": 1, "id": 1, "type": "AVRO"}]
    for name in ("orders-value", "1"):
        assert json.loads(pykclient.ok("schemas", "get", name).out) == ORDER
    assert "is compatible" in pykclient.ok("schemas", "check", "orders-value", good).out
    result = pykclient("schemas", "check", "orders-value", bad)
    assert result.code == 1
    assert "more: the writer has no such field" in result.err
    result = pykclient("schemas", "register", "orders-value", bad)
    assert result.code == 1
    assert "incompatible" in result.err


def test_registry_credentials_are_read_from_file(pykclient: Pykclient, tmp_path: Path) -> None:
    with EmbeddedSchemaRegistry(users={"alice": "pw"}) as registry:
        config = tmp_path / "registry.properties"
        config.write_text(f"url={registry.url}\nbasic.auth.user.info=alice:pw\n")
        assert pykclient.ok("schemas", "list", "--registry-config", str(config), "--json").json == []
        result = pykclient("schemas", "list", "--url", registry.url)
        assert result.code == 1
        assert "Unauthorized" in result.err


def test_missing_address_and_bad_references_are_bad_input(pykclient: Pykclient, tmp_path: Path) -> None:
    result = pykclient("schemas", "list")
    assert result.code == 2
    assert "--url" in result.err
    file = written(tmp_path / "a.avsc", "id")
    result = pykclient("schemas", "register", "s", file, "--url", "http://127.0.0.1:1", "--reference", "a=b")
    assert result.code == 2
    assert "NAME=SUBJECT:VERSION" in result.err


# --- records ---------------------------------------------------------------------------------------------------------

ALL: dict[str, Any] = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "what", "type": ["long", "string", {"type": "array", "items": "string"}]},
    ],
}
ROWS = [
    {"id": 1, "raw": "\u00ffx", "day": "2026-01-02", "at": None, "sum": "12.50", "what": "text"},
    {"id": 2, "raw": "", "day": "1969-12-31", "at": "2026-01-02T03:04:05+00:00", "sum": "-0.01", "what": ["a", "b"]},
]


@pytest.fixture
def registry(
    pykclient_schema_registry: EmbeddedSchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SchemaRegistryClient]:
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", pykclient_schema_registry.url)
    with SchemaRegistryClient({"url": pykclient_schema_registry.url}) as client:
        yield client


@pytest.fixture
def shell(cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pykclient:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    cluster.create_topic(topic)
    return Pykclient(cluster.bootstrap_servers)


def lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_avro_records_round_trip_as_json(
    shell: Pykclient, registry: SchemaRegistryClient, cluster: EmbeddedCluster, topic: str
) -> None:
    registry.register_schema(f"{topic}-value", Schema(json.dumps(ALL)))
    registry.register_schema(f"{topic}-key", Schema('"string"'))
    formats = ("--key-format", "avro", "--value-format", "avro")
    stdin = b"".join(b'"k%d"=' % int(str(row["id"])) + json.dumps(row).encode() + b"\n" for row in ROWS)
    shell.ok("produce", topic, *formats, "-K", "=", stdin=stdin)
    read = AvroDeserializer(registry)
    (first, second) = cluster.log(TopicPartition(topic, 0))
    ctx = SerializationContext(topic, MessageField.VALUE)
    assert read(first.value, ctx)["sum"] == decimal.Decimal("12.50")
    assert read(second.value, ctx)["at"] == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert [json.loads(line) for line in shell.ok("consume", topic, "-e", *formats).lines()] == ROWS
    shown = shell.ok("consume", topic, "-e", "-J", *formats)
    assert [(row["key"], row["value"]) for row in map(json.loads, shown.lines())] == [("k1", ROWS[0]), ("k2", ROWS[1])]
    assert shell.ok("consume", topic, "-e", *formats, "-f", "%k %o\\n").lines() == ['"k1" 0', '"k2" 1']
    # What consume --json writes can be produced again.
    shell.ok("produce", topic, "-J", *formats, stdin=shown.raw)
    assert [record.value for record in cluster.log(TopicPartition(topic, 0))[2:]] == [first.value, second.value]


def test_json_and_protobuf_records_round_trip(shell: Pykclient, registry: SchemaRegistryClient, topic: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="place.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Place").field.add(name="zip_code", number=1, type=9, label=1)
    text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
    registry.register_schema(f"{topic}-value", Schema(text, "JSON"))
    registry.register_schema(f"{topic}-key", Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF"))
    formats = ("--key-format", "protobuf", "--value-format", "json")
    row = {"key": {"zip_code": "89073"}, "value": {"id": 7}}
    shell.ok("produce", topic, "-J", *formats, stdin=lines([row]))
    (shown,) = map(json.loads, shell.ok("consume", topic, "-e", "-J", *formats).lines())
    assert {name: shown[name] for name in row} == row
    refused = shell("produce", topic, "-J", *formats, stdin=lines([row, {**row, "value": {}}]))
    assert refused.code != 0
    assert "near line 1: the value does not fit its schema" in refused.err
    assert "lacks the required properties id" in refused.err


def test_records_not_matching_schema_become_dead_letters(
    shell: Pykclient, registry: SchemaRegistryClient, cluster: EmbeddedCluster, topic: str
) -> None:
    registry.register_schema(f"{topic}-value", Schema(json.dumps(ORDER)))
    shell.ok("produce", topic, "-p", "0", "--value-format", "avro", stdin=lines([{"id": 1}]))
    shell.ok("produce", topic, "-p", "0", "-k", "bad", "-H", "from=test", stdin=b"not Avro\n")
    shell.ok("produce", topic, "-p", "0", "-f", "file", stdin=b"\0\0\0\3\3\2")
    shell.ok("produce", topic, "-p", "0", "--value-format", "avro", stdin=lines([{"id": 2}]))
    refused = shell("consume", topic, "-e", "--value-format", "avro")
    assert refused.code != 0
    assert f"the record of {topic}-0 at offset 1 cannot be read" in refused.err
    assert "--dead-letters" in refused.err
    dead = f"{topic}-dead"
    cluster.create_topic(dead)
    shown = shell.ok("consume", topic, "-e", "--value-format", "avro", "--dead-letters", dead)
    assert [json.loads(line) for line in shown.lines()] == [{"id": 1}, {"id": 2}]
    first, second = cluster.log(TopicPartition(dead, 0))
    assert (first.key, first.value, first.headers[0]) == (b"bad", b"not Avro", ("from", b"test"))
    headers = dict(first.headers)
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.partition"] == b"0"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.exception.class.name"] == b"SerializationError"
    assert b"Invalid magic byte" in (headers["__connect.errors.exception.message"] or b"")
    assert b"Schema 771 not found" in (dict(second.headers)["__connect.errors.exception.message"] or b"")


def test_unreachable_registry_makes_no_dead_letters(
    shell: Pykclient, registry: SchemaRegistryClient, cluster: EmbeddedCluster, topic: str
) -> None:
    shell.ok("produce", topic, "-f", "file", stdin=b"\0\0\0\0\1\2")
    result = shell(
        *("consume", topic, "-e", "--value-format", "avro", "--dead-letters", f"{topic}-dead"),
        *("--schema-registry", "http://127.0.0.1:9"),
    )
    assert result.code != 0
    assert "http://127.0.0.1:9" in result.err


def test_a_wrong_path_of_the_registry_makes_no_dead_letters(
    shell: Pykclient, registry: SchemaRegistryClient, cluster: EmbeddedCluster, topic: str, page_url: str
) -> None:
    dead = f"{topic}-dead"
    cluster.create_topic(dead)
    shell.ok("produce", topic, "-f", "file", stdin=b"\0\0\0\0\1\2")
    result = shell(
        *("consume", topic, "-e", "--value-format", "avro", "--dead-letters", dead),
        *("--schema-registry", page_url),
    )
    assert result.code != 0
    assert f"of the schema registry {page_url}" in result.err
    assert "is the path in url right?" in result.err
    assert not cluster.log(TopicPartition(dead, 0))


def test_a_rule_that_nothing_can_execute_makes_no_dead_letters(
    shell: Pykclient, registry: SchemaRegistryClient, cluster: EmbeddedCluster, topic: str
) -> None:
    rule = Rule("secret", None, RuleKind.TRANSFORM, RuleMode.READ, "TOKENIZE")
    registry.register_schema(f"{topic}-value", Schema(json.dumps(ORDER), rule_set=RuleSet(domain_rules=[rule])))
    dead = f"{topic}-dead"
    cluster.create_topic(dead)
    shell.ok("produce", topic, "--value-format", "avro", stdin=lines([{"id": 1}]))
    result = shell("consume", topic, "-e", "--value-format", "avro", "--dead-letters", dead)
    assert result.code != 0
    assert "type TOKENIZE" in result.err
    assert not cluster.log(TopicPartition(dead, 0))


@pytest.mark.parametrize("options", [["--schema-registry", "http://x"], ["--dead-letters", "d"]])
def test_options_of_formats_need_a_format(shell: Pykclient, topic: str, options: list[str]) -> None:
    result = shell("consume", topic, "-e", *options)
    assert result.code == 2
    assert "is for --key-format and --value-format" in result.err
