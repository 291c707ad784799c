"""The deserializers of keys and values (Java: Deserializers)."""

from __future__ import annotations

from typing import Any, Self

from pykclient.record.record_batch import Deserializer
from pykclient.serialization import BYTES


class Deserializers:
    """A deserializer for keys and one for values, each called with topic, headers and bytes.

    A deserializer of ``None`` returns the bytes unchanged, which is the fastest. Deserializers are not called for null
    keys and values, which remain None. Thread: any.
    """

    __slots__ = ("key", "value")

    def __init__(self, key: Deserializer | None = None, value: Deserializer | None = None) -> None:
        self.key = key
        self.value = value

    @classmethod
    def of(cls, key: Any, value: Any) -> Self:
        """Return the deserializers of two objects with a method ``deserialize``."""
        return cls(_function(key), _function(value))


def _function(deserializer: Any) -> Deserializer | None:
    return None if deserializer is BYTES else deserializer.deserialize
