"""The serializers for JSON Schema."""

from __future__ import annotations

from pykclient.schema_registry.json_schema import (
    AsyncJSONDeserializer as AsyncJSONDeserializer,
    AsyncJSONSerializer as AsyncJSONSerializer,
    JSONDeserializer as JSONDeserializer,
    JSONSerializer as JSONSerializer,
)
