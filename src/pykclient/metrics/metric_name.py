"""The name of a metric (Java: MetricName)."""

from __future__ import annotations

from collections.abc import Mapping


class MetricName:
    """A name within a group, and tags that distinguish metrics of the same name.

    Equality ignores the description. Thread: any (immutable).
    """

    __slots__ = ("_hash", "_key", "description", "group", "name", "tags")

    def __init__(self, name: str, group: str, description: str = "", tags: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.group = group
        self.description = description
        self.tags: dict[str, str] = dict(tags or {})
        self._key = (name, group, frozenset(self.tags.items()))
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetricName) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"MetricName({self.name!r}, group={self.group!r}, tags={self.tags!r})"
