"""A registry in the process, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykclient.schema_registry import SchemaRegistryClient
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry


@pytest.fixture
def registry() -> Iterator[EmbeddedSchemaRegistry]:
    with EmbeddedSchemaRegistry() as found:
        yield found


@pytest.fixture
def client(registry: EmbeddedSchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "retries.wait.ms": 1}) as found:
        yield found
