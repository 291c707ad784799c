"""``pykclient schemas`` on a registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.cli.command import Pykclient

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


def test_credentials_come_from_a_file(pykclient: Pykclient, tmp_path: Path) -> None:
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
