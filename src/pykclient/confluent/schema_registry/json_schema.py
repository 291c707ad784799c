"""The serializers for JSON Schema. As in confluent-kafka, ``auto.register.schemas`` is True unless it is set."""

from __future__ import annotations

from pykclient.schema_registry import json_schema
from pykclient.schema_registry.json_schema import (
    AsyncJSONDeserializer as AsyncJSONDeserializer,
    JSONDeserializer as JSONDeserializer,
)
from pykclient.schema_registry.serde import registering


class JSONSerializer(json_schema.JSONSerializer):
    """``pykclient.schema_registry.JSONSerializer`` that registers schemas by default."""

    _keys = registering(json_schema.JSONSerializer._keys)


class AsyncJSONSerializer(json_schema.AsyncJSONSerializer):
    """``pykclient.schema_registry.AsyncJSONSerializer`` that registers schemas by default."""

    _keys = registering(json_schema.AsyncJSONSerializer._keys)
