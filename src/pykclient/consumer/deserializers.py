"""The pair of functions that make keys and values of bytes (Java: Deserializers)."""

from __future__ import annotations

from pykclient.record.record_batch import Deserializer


class Deserializers:
    """Each is called with topic, headers and bytes; ``None`` leaves the bytes as they are, which is the fastest.

    Null keys and values are not passed, they stay None. Thread: any.
    """

    __slots__ = ("key", "value")

    def __init__(self, key: Deserializer | None = None, value: Deserializer | None = None) -> None:
        self.key = key
        self.value = value
