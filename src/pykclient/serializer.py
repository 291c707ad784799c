"""Serializers under kafka-python's module name, for programs written for it. Their home is pykclient.serialization."""

from __future__ import annotations

from pykclient.serialization import DefaultSerializer, Deserializer, JsonSerializer, Serializer

__all__ = ["DefaultSerializer", "Deserializer", "JsonSerializer", "Serializer"]
