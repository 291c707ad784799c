"""Serializers under kafka-python's module name. They are defined in pykclient.serialization."""

from __future__ import annotations

from pykclient.serialization import DefaultSerializer, Deserializer, JsonSerializer, Serializer

__all__ = ["DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer"]
