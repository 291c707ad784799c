"""The pair of functions that make keys and values of bytes (Java: Deserializers)."""

from __future__ import annotations

from typing import Any

from pykclient.record.record_batch import Deserializer as DeserializeFunction
from pykclient.serialization import BYTES, Deserializer


class Deserializers:
    """Each is called with topic, headers and bytes; ``None`` leaves the bytes as they are, which is the fastest.

    Null keys and values are not passed, they stay None. Thread: any.
    """

    __slots__ = ("key", "value")

    def __init__(self, key: DeserializeFunction | None = None, value: DeserializeFunction | None = None) -> None:
        self.key = key
        self.value = value

    @classmethod
    def of(cls, key: Deserializer[Any], value: Deserializer[Any]) -> Deserializers:
        """The functions of two deserializers."""
        return cls(None if key is BYTES else key.deserialize, None if value is BYTES else value.deserialize)
